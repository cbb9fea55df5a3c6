"""What `hotrail papers` prints, and its page: claims and readings of the source papers beside the recorded results.

hotrail/papers.json has both; `python -m bench.page` writes it in a clone.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table as Grid

from hotrail.report.page import Axis, Bars, Chart, Lines, Page, Series, Table
from hotrail.terminal import console

FILE = Path(__file__).parents[1] / "papers.json"
CLAIMS = ("claim", "holds", "under which assumptions, and hotrail")
FIGURES = ("figure", "what", "paper", "hotrail", "ratio", "id", "target", "why they differ")
NEEDS = ("figure", "what", "what it needs")
WIDE = 50       # largest over smallest value of a chart from which on its axis is logarithmic
WIDTH = 150     # columns where the output is no terminal

Paper = dict[str, Any]      # as bench.readings.packed has it


def load() -> list[Paper]:
    """Those of the installation."""
    found: list[Paper] = json.loads(FILE.read_text(encoding="utf-8"))["papers"]
    return found


def show(papers: Sequence[Paper]) -> None:
    shown = console(WIDTH)
    for paper in papers:
        shown.print(f"{paper['title']}: {paper['publication']}", style="bold")
        for head, rows in ((CLAIMS, _claims(paper)), (FIGURES, _figures(paper)), (NEEDS, _needs(paper))):
            grid = Grid(*head, box=None, pad_edge=False, padding=(0, 2, 1, 0))
            for column, name in zip(grid.columns, head, strict=True):
                column.overflow, column.no_wrap = "fold", name in ("figure", "holds")
            for row in rows:
                grid.add_row(*row)
            shown.print(grid)


def write(papers: Sequence[Paper], folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    return page(papers).write(folder)


def page(papers: Sequence[Paper]) -> Page:
    held = Counter(each["holds"] for paper in papers for each in paper["headlines"])
    figures = [each for paper in papers for each in paper["figures"]]
    made = Page("hotrail papers", "The papers' figures beside ours",
                lead="What the papers claim and read, and what was recorded here. A ratio is ours over the paper's.",
                facts=[("claims", f"{held.total()}"),
                       *((f"hold: {holds}", f"{count}") for holds, count in held.items()),
                       ("readings compared", f"{sum(bool(each['rows']) for each in figures)}"),
                       ("not to be had", f"{sum(not each['rows'] for each in figures)}")])
    for paper in papers:
        made.add(paper["title"], Table("Claims", CLAIMS, list(_claims(paper)), note=f"{paper['publication']}.", left=3),
                 *_charts(paper), Table("Figures and tables", FIGURES, list(_figures(paper)), note=paper["about"],
                                        left=8),
                 Table("Not to be had here", NEEDS, list(_needs(paper)), left=3))
    return made


def _claims(paper: Paper) -> Iterator[list[str]]:
    for each in paper["headlines"]:
        yield [each["claim"], each["holds"], each["answer"]]


def _figures(paper: Paper) -> Iterator[list[str]]:
    for each in paper["figures"]:
        if each["rows"]:
            ratio = " / ".join("-" if value is None else f"{value:g}" for value in each["ratio"])
            targets = dict.fromkeys(row["target"] for row in each["rows"] if row["target"])
            missed = any(row["met"] is False for row in each["rows"])
            yield [each["at"], f"{each['what']} ({each['source']})", each["paper"], each["hotrail"], ratio or "-",
                   each["ids"], (" / ".join(targets) or "-") + (" missed" if missed else ""), each["why"]]


def _needs(paper: Paper) -> Iterator[list[str]]:
    for each in paper["figures"]:
        if each["needs"]:
            yield [each["at"], f"{each['what']} ({each['source']})", each["needs"]]


def _charts(paper: Paper) -> Iterator[Chart]:
    """One of all lines that name the same chart."""
    charts: dict[str, list[dict[str, Any]]] = {}
    for each in paper["figures"]:
        if each["chart"]:
            charts.setdefault(each["chart"], []).append(each)
    for title, lines in charts.items():
        yield _chart(title, lines)


def _chart(title: str, lines: list[dict[str, Any]]) -> Chart:
    """Over numbers lines, with the paper's points; over anything else bars."""
    found: list[Series] = []
    for each in lines:
        points = [(label, row["value"]) for label, row in zip(each["over"], each["rows"], strict=True)
                  if not isinstance(row["value"], str)]
        found.append(Series(each["series"], points))
        read = [(label, value) for label, value in zip(each["over"], each["reading"]) if value is not None]
        if read:
            found.append(Series(f"{each['series']}: the paper", read, form="dots"))
    values = [y for series in found for _, y in series.points]
    log = min(values) > 0 and max(values) > WIDE * min(values)
    least = None if log or min(values) < 0 else 0
    about = "; ".join(dict.fromkeys(f"the paper: {each['paper']}" for each in lines)).capitalize() + "."
    unit = lines[0]["rows"][0]["unit"]
    if not all(label.replace(".", "", 1).isdigit() for each in lines for label in each["over"]):
        return Bars(title, about, Axis(lines[0]["unit"]), Axis(unit, unit, log=log, least=least), found,
                    labels=lines[0]["over"])
    found = [Series(each.name, [(float(x), y) for x, y in each.points], form=each.form) for each in found]
    over = lines[0]["unit"]
    return Lines(title, about, Axis(over, over, log=True), Axis(unit, unit, log=log, least=least), found)
