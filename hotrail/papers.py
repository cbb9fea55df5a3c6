"""The command for what the source papers claim and read, beside what was recorded here."""

from pathlib import Path

import click

from gen.base.staging import together
from gen.base.tools import build_folder
from hotrail.as_json import JSON, result

KEYS = ("screc", "hotline", "el-rec", "scars", "freqcache")


@click.command()
@click.argument("paper", required=False, type=click.Choice(KEYS))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the page [build/papers].")
@JSON
def papers(paper: str | None, out: Path | None) -> None:
    """Shows the figures and tables of five papers beside hotrail's.

    Of PAPER, default all: whether its claims hold and under which assumptions, each reading beside the recorded one
    with its id and why they differ, and what a figure needs that is not to be had. The recorded results come with
    hotrail; in a clone `hotrail bench NAME` and `python -m bench.page` measure and record them anew.
    """
    from hotrail.report import papers as report
    from hotrail.terminal import say

    found = [each for each in report.load() if paper in (None, each["key"])]
    folder = out or build_folder() / "papers"
    with together(folder, "papers") as half:
        page = report.write(found, half)
    report.show(found)
    say(f"report     {folder / page.name}")
    result(page=folder / page.name, papers=found)


COMMANDS = (papers,)
