"""The commands from a preset's core to a card: package, xo, bitstream."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = ["COMMANDS"]

_OPTIONS = (
    click.option("--clock", type=int, default=300, show_default=True, help="The kernel's clock in MHz: 300, 250, 200."),
    click.option("--instances", type=int, default=1, show_default=True, help="Instances of the kernel in the image."),
    click.option("--force", is_flag=True, help="Packages what the gate refuses; package.json says so."),
    click.option("--no-gate", is_flag=True, help="Leaves the gate's measurement out; package.json says so."),
    click.option("--out", type=click.Path(path_type=Path), help="Folder for the presets' folders [build]."),
)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _show(gate: Any) -> None:
    """The gate's table, and a sentence for all that it does not hold."""
    from rich.console import Console
    from rich.table import Table

    head, rows = gate.table()
    table = Table(title=f"{gate.kernel} at {gate.clock_mhz} MHz, mapped by Yosys", title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    Console(width=max(100, sum(map(len, head)) + 20), highlight=False).print(table)
    told = gate.as_dict()
    click.echo(f"depth: LUT levels {told['levels']} of {told['levels_allowed']} allowed, carry chains {told['chains']} "
               f"of {told['chains_allowed']}; at the ports {told['port_levels']} and {told['port_chains']}")
    for note in gate.notes:
        click.echo(f"note: {note}")
    from fpga.vitis.shells import budgets
    for budget in budgets().values():
        if budget.missing:
            click.echo(f"note: {budget.about}: {budget.missing}")


def _make(preset: str, core: str, clock: int, instances: int, force: bool, no_gate: bool, out: Path | None,
          experimental_xo: bool = False) -> Any:
    """The package of a core, or the end of the command with the reasons."""
    from fpga.vitis import flow

    click.echo(f"{preset}/{core}: Verilog" + ("" if no_gate else ", then area and depth by Yosys (minutes at first)"))
    try:
        made = flow.package(preset, core, clock_mhz=clock, instances=instances, out=out, force=force,
                            gated=not no_gate, experimental_xo=experimental_xo, measured=_show)
    except flow.PackageError as error:
        for reason in error.reasons:
            click.echo(f"refused: {reason}", err=True)
        click.echo(f"{preset}/{core}: nothing was packaged", err=True)
        sys.exit(1)
    except (ValueError, RuntimeError, OSError) as error:
        raise click.ClickException(_sentence(error)) from None
    for miss in made.gate.misses if made.gate else ():
        click.echo(f"forced: {miss}")
    click.echo(f"{preset}/{core}: package complete in {made.folder}")
    return made


def _sentence(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)


@click.command()
@click.argument("preset")
@click.argument("core", nargs=-1)
@_options
@click.option("--experimental-xo", is_flag=True, help="Adds an .xo made without Vivado; nobody has linked one yet.")
def package(preset: str, core: tuple[str, ...], experimental_xo: bool, **options: Any) -> None:
    """Writes the Vitis package of the cores of PRESET, build/<preset>/vitis/<core>/, unless the gate refuses one."""
    from fpga.vitis import flow

    try:
        asked = core or tuple(flow.kernels(preset))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if not asked:
        raise click.ClickException(f"preset {preset} describes no kernel")
    for name in asked:
        _make(preset, name, experimental_xo=experimental_xo, **options)


@click.command()
@click.argument("preset")
@click.argument("core")
@_options
def xo(preset: str, core: str, **options: Any) -> None:
    """Packages a core and has Vivado make its .xo, build/<preset>/vitis/<core>-xo/hotrail_<core>.xo."""
    from fpga.vitis import toolchain

    _ends(lambda made: toolchain.xo(made, say=click.echo), _make(preset, core, **options))


@click.command()
@click.argument("preset")
@click.argument("core")
@click.option("--target", type=click.Choice(("hw", "hw_emu")), default="hw", show_default=True,
              help="For the card, or for simulation on the host.")
@click.option("--platform", help="The platform's name, or the path of its .xpfm [the SmartSSD's standard shell].")
@_options
def bitstream(preset: str, core: str, target: str, platform: str | None, **options: Any) -> None:
    """Packages a core and takes it the whole way to an .xclbin, build/<preset>/vitis/<core>-<target>/."""
    from fpga.vitis import toolchain
    from fpga.vitis.shells import card

    _ends(lambda made: toolchain.bitstream(made, target, platform or card().platform, say=click.echo),
          _make(preset, core, **options))


def _ends(run: Callable[[Any], Path], made: Any) -> None:
    from fpga.vitis.toolchain import VitisError

    try:
        click.echo(f"made {run(made)}")
    except (VitisError, OSError) as error:
        raise click.ClickException(_sentence(error)) from None


COMMANDS = (package, xo, bitstream)
