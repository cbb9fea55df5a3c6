"""The components of every report: one HTML file with its style, its script and its data, which needs nothing else.

    page = Page("hotrail plan", "Criteo on 8 cards", facts=[("per batch", "12 ms")])
    page.add("Cards", Table("Cards", ("card", "time"), [("0", "12 ms")], key="card"))
    page.write(folder)      # folder/index.html

A part of a page is whatever has a method `html`. Text of users is escaped here and nowhere else. The charts are drawn
by Chart.js, which stands in static/ as its authors publish it: one file that no Python package brings.
"""

import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

FILE = "index.html"
STATIC = Path(__file__).parent / "static"
SEARCHED = 8            # rows from which on a table can be searched
#: Of series that are no part of a card, whose parts have their own, in this order; names of the style sheet.
COLOURS = ("one", "two", "three", "four", "five", "six", "seven")


class Part(Protocol):
    def html(self) -> str: ...


@cache
def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _slug(title: str) -> str:
    """Of a heading, as the address of a place in the page."""
    return "".join(c if c.isalnum() else "-" for c in title.lower()).strip("-")


@dataclass(frozen=True)
class Text:
    """A paragraph. good: whether what it says is as it should be, None: neither."""

    text: str
    good: bool | None = None

    def html(self) -> str:
        mark = "" if self.good is None else f' class="{"good" if self.good else "bad"}"'
        return f"<p{mark}>{html.escape(self.text)}</p>\n"


@dataclass(frozen=True)
class Table:
    """Cells as a reader sees them, numbers with their unit ("1.88 ms", "12 %"), by which the browser sorts them.

    left: columns from the first whose cells stand on the left. key: what the first column names; a chart with the same
    key shows what the row is of."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    left: int = 1
    key: str = ""

    def html(self) -> str:
        head = "".join(f'<th scope="col"{_left(k, self.left)}><button type="button">{html.escape(name)}</button></th>'
                       for k, name in enumerate(self.head))
        rows = "\n".join(self._row(row) for row in self.rows)
        title, key = html.escape(self.title), f' data-key="{self.key}"' if self.key else ""
        search = (f'<input type="search" placeholder="search" aria-label="search in {html.escape(self.title)}">'
                  if len(self.rows) >= SEARCHED else "")
        note = Text(self.note).html() if self.note else ""
        return (f'<div class="table"{key}><div class="tools">{search}<output role="status"></output>{_CSV}</div>\n'
                f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table>'
                f"<caption>{title}</caption>\n<thead><tr>{head}</tr></thead>\n"
                f"<tbody>{rows}</tbody></table></div>\n{note}</div>\n")

    def _row(self, row: Sequence[str]) -> str:
        first, *others = (html.escape(cell) for cell in row)
        return f'<tr><th scope="row">{first}</th>' + "".join(
            f"<td{_left(k, self.left)}>{cell}</td>" for k, cell in enumerate(others, 1)) + "</tr>"


_CSV = '<button type="button" class="csv">CSV</button>'


def _left(column: int, left: int) -> str:
    return ' class="left"' if 0 < column < left else ""


@dataclass(frozen=True)
class Heat:
    """A matrix as colours, the largest magnitude the strongest. values (rows, columns): finite numbers."""

    title: str
    about: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]

    def html(self) -> str:
        most = max((abs(value) for row in self.values for value in row), default=0) or 1
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in ("", *self.columns))
        rows = "\n".join(
            f'<tr><th scope="row">{html.escape(name)}</th>' + "".join(
                f'<td{" class=n" if value < 0 else ""} style="--v:{100 * abs(value) / most:.0f}%">{value:.3g}</td>'
                for value in row) + "</tr>" for name, row in zip(self.rows, self.values, strict=True))
        return (f'<figure class="heat wide"><p>{html.escape(self.about)}</p><div class="scroll" tabindex="0" '
                f'role="region" aria-label="{html.escape(self.title)}"><table><caption>{html.escape(self.title)}'
                f"</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
                f'<div class="tools"><output role="status"></output>{_CSV}</div></figure>\n')


@dataclass(frozen=True)
class Axis:
    """title: with the unit, which stands behind every value that is read off: unit. least, most: of what is shown,
    None: of the data."""

    title: str = ""
    unit: str = ""
    log: bool = False
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Series:
    """points: (x, y) of lines; (label, value) of bars; (label, (from, to)) of spans. colour: a name of the style
    sheet. form: of lines, line, dashed, dots, or band, which is filled down to the series before. alone: bars that take
    the whole height of their row."""

    name: str
    points: Sequence[tuple[Any, Any]]
    colour: str = ""
    form: str = "line"
    alone: bool = False


@dataclass(frozen=True)
class Chart:
    """about: what it shows and how it is read, in the page and for who cannot see it. key: as Table has it."""

    title: str
    about: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    key: str = ""
    wide: bool = False
    kind = "lines"

    def spec(self) -> dict[str, Any]:
        """What static/page.js draws."""
        return {"kind": self.kind, "x": vars(self.x), "y": vars(self.y), "key": self.key, "series": [
            {"name": each.name, "colour": each.colour or COLOURS[k % len(COLOURS)], "form": each.form,
             "alone": each.alone, "points": [[_short(x), _short(y)] for x, y in each.points]}
            for k, each in enumerate(self.series)]}

    def html(self) -> str:
        spec = self.spec()
        data = json.dumps(spec, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        title, about = html.escape(self.title), html.escape(self.about)
        rows = len(spec.get("labels", ())) if self.kind in ("across", "spans") else 0
        high = f' style="height:{6 + 2.2 * rows:.0f}rem"' if rows > 5 else ""
        return (f'<figure class="chart{" wide" if self.wide else ""}"><figcaption>{title}</figcaption><p>{about}</p>\n'
                f'<div class="plot"{high}><canvas tabindex="0" role="img" aria-label="{title}. {about} Arrow keys read '
                f'its points."></canvas></div>\n<div class="tools"><output role="status"></output>'
                f'<button type="button" class="data" aria-expanded="false">Data</button>{_CSV}</div>\n'
                f'<script type="application/json">{data}</script></figure>\n')


class Lines(Chart):
    """Numbers over numbers."""


@dataclass(frozen=True)
class Bars(Chart):
    """Groups of bars. labels: of the groups, in their order. across: they lie, each group in a row."""

    labels: Sequence[str] = field(default=())
    stacked: bool = False
    across: bool = False

    @property
    def kind(self) -> str:      # type: ignore[override]
        return "across" if self.across else "bars"

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "labels": list(self.labels), "stacked": self.stacked}


@dataclass(frozen=True)
class Spans(Chart):
    """What works from when to when. labels: of the rows, from the top."""

    labels: Sequence[str] = field(default=())
    kind = "spans"

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "labels": list(self.labels)}


def _short(value: Any) -> Any:
    """As JSON has it; numbers with five digits."""
    if isinstance(value, tuple):
        return [_short(each) for each in value]
    return value if isinstance(value, str) else float(f"{value:.5g}") if value % 1 else int(value)


class Page:
    """command: whose report it is. facts: (what, how much) of the first glance."""

    def __init__(self, command: str, title: str, *, lead: str = "", facts: Iterable[tuple[str, str]] = ()):
        self.command, self.title, self.lead, self.facts = command, title, lead, list(facts)
        self._sections: list[tuple[str, list[Part]]] = []

    def add(self, heading: str, *parts: Part) -> None:
        """A section; one without parts is left out."""
        if parts:
            self._sections.append((heading, list(parts)))

    def write(self, folder: Path) -> Path:
        """Writes index.html into a folder, which is made; returns its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        path.write_text(self.html(), encoding="utf-8", errors="backslashreplace")    # a file's name may be no text
        return path

    def html(self) -> str:
        title = html.escape(self.title)
        links = "".join(f'<a href="#{_slug(heading)}">{html.escape(heading)}</a>' for heading, _ in self._sections)
        facts = "".join(f"<div><dt>{html.escape(what)}</dt><dd>{html.escape(much)}</dd></div>"
                        for what, much in self.facts)
        body = "\n".join(_section(heading, parts) for heading, parts in self._sections)
        return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(self.command)}: {title}</title><style>
{_static("page.css")}</style></head><body><a class="skip" href="#main">Skip to the content</a>
<header><div class="kind">{html.escape(self.command)}</div><h1>{title}</h1>
<button type="button" id="theme">Theme: auto</button>
<p class="lead">{html.escape(self.lead)}</p><nav aria-label="Sections">{links}</nav></header>
<main id="main"><dl class="facts">{facts}</dl>
{body}</main>
<footer>This page holds its data and scripts and loads nothing. Its charts are drawn by Chart.js (MIT licence).</footer>
<script>{_static("chart.min.js")}</script>
<script>
{_static("page.js")}</script></body></html>
"""


def _section(heading: str, parts: Sequence[Part]) -> str:
    """Charts side by side, what else there is above each other."""
    found = [f'<section aria-labelledby="{_slug(heading)}"><h2 id="{_slug(heading)}">{html.escape(heading)}</h2>\n']
    for before, part in zip((None, *parts), parts):
        figure, was = (isinstance(each, Chart | Heat) for each in (part, before))
        found.append(('<div class="charts">' if figure and not was else "</div>\n" if was and not figure else "")
                     + part.html())
    return "".join(found) + ("</div>" if isinstance(parts[-1], Chart | Heat) else "") + "</section>"
