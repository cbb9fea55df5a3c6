"""Completion of commands, options, files, presets and devices in a shell, by click's own means."""

import click
from click.shell_completion import CompletionItem, get_completion_class


def preset_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of presets, and files that end in .toml."""
    from gen.rtl.config import names

    return _named(names(), incomplete)


def device_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of devices, and files that end in .toml."""
    from gen.model import device
    from gen.rtl.config import stems

    return _named(stems(device.FOLDER), incomplete)


def _named(names: tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints the script that completes hotrail in SHELL.

    bash: hotrail completion bash > ~/.local/share/bash-completion/completions/hotrail. zsh: into a file _hotrail of a
    folder in $fpath. fish: into ~/.config/fish/completions/hotrail.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all three"
    click.echo(kind(ctx.find_root().command, {}, "hotrail", "_HOTRAIL_COMPLETE").source())


COMMANDS = (completion,)
