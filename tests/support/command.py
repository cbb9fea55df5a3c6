"""The `hotrail` command in this process."""

from click.testing import CliRunner

from hotrail.__main__ import main


def call(*arguments, **options):
    """What it printed and its exit code. options: as CliRunner.invoke takes them."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **options)
