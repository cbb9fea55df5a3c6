"""docs/figures.md: the figures that were measured last, beside their targets.

    python -m bench.page              takes the rows of build/bench.json, if there is one, into bench/results.json and
                                      writes docs/figures.md, docs/papers.md and hotrail/papers.json

bench/results.json has the last row of every bench that was recorded, bench/figures.toml the lines of the page: what a
line says and the ids of the rows whose values it shows; bench/papers.toml the same of what the source papers claim and
read (bench.readings). A recorded row that no line of either names is listed at the end of docs/figures.md. Points of
curves are not recorded.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.framework import Row, joined, shortened, values
from bench.readings import Paper, about, document, packed, papers
from gen.base.tools import build_folder

__all__ = ["LINES", "PACKED", "PAGE", "PAPERS", "PAPER_LINES", "RESULTS", "Line", "Section", "elsewhere", "merged",
           "page", "recorded", "sections", "shown"]

ROOT = Path(__file__).parents[1]
PAGE, RESULTS, LINES = ROOT / "docs" / "figures.md", ROOT / "bench" / "results.json", ROOT / "bench" / "figures.toml"
PAPERS, PAPER_LINES = ROOT / "docs" / "papers.md", ROOT / "bench" / "papers.toml"
PACKED = ROOT / "hotrail" / "papers.json"
HEAD = """# Figures

`python -m bench.page` writes this page from `bench/results.json`, which holds the last recorded row of every bench.
`make bench` measures all of them into `build/bench.json`, `hotrail bench NAME` the rows of one bench. A row has the id
that is given here. Simulation and processing speeds depend on the machine; these were measured on two shared CPU cores.
"""


@dataclass(frozen=True)
class Line:
    """A line of the page. ids: the rows whose values it shows; beside: figures of others, quoted."""

    what: str
    ids: tuple[str, ...]
    beside: str = ""


@dataclass(frozen=True)
class Section:
    """A table of the page with the sentences above it."""

    title: str
    about: str
    lines: tuple[Line, ...]


def sections(text: str) -> list[Section]:
    """The sections of bench/figures.toml."""
    return [Section(part["title"], part["about"],
                    tuple(Line(line["what"], tuple(line["ids"]), line.get("beside", "")) for line in part["figure"]))
            for part in tomllib.loads(text)["section"]]


def recorded(path: Path) -> dict[str, Row]:
    """The rows of a file such as build/bench.json, by id."""
    return {row["id"]: Row(**row) for row in json.loads(path.read_text("utf-8"))}


def merged(old: Mapping[str, Row], new: Mapping[str, Row], curves: Sequence[str] = ()) -> list[Row]:
    """The recorded rows after a bench: a bench that ran replaces all of its own rows, the others stay.

    curves: beginnings of the ids that are points of curves, which are left out
    """
    ran = {row.bench for row in new.values()}
    return [row for row in (*(row for row in old.values() if row.bench not in ran), *new.values())
            if not row.id.startswith(tuple(curves))]


def _cells(rows: Sequence[Row]) -> tuple[str, str]:
    """Values and targets of a line; what is missed is named."""
    target = joined([row.target or "-" for row in rows]) if any(row.target for row in rows) else ""
    missed = [row.id for row in rows if row.met is False]
    if missed:
        target += " **missed**" + ("" if len(missed) == len(rows) else f" by {', '.join(f'`{id}`' for id in missed)}")
    return values(rows), target


def page(rows: Iterable[Row], layout: Sequence[Section], run: str = "") -> str:
    """The page's text. run: what is said of the run.

    Raises      LookupError: a line names an id that is not among the rows, or two lines name the same
    """
    left = {row.id: row for row in rows}
    out = [HEAD, *([run + "\n"] if run else [])]
    for section in layout:
        out += [f"## {section.title}\n", *([section.about + "\n"] if section.about else []),
                "| what | measured | target | id |", "|---|---|---|---|"]
        for line in section.lines:
            missing = [id for id in line.ids if id not in left]
            if missing:
                raise LookupError(f"{LINES.name} names {', '.join(missing)}, not recorded or named twice")
            value, target = _cells([left.pop(id) for id in line.ids])
            what = f"{line.what} ({line.beside})" if line.beside else line.what
            out.append(f"| {what} | {value} | {target} | {shortened(line.ids)} |")
        out.append("")
    if left:
        out += ["## All other rows\n", "| what | measured | target | id |", "|---|---|---|---|"]
        for id in sorted(left):
            out.append(f"| {left[id].what} | {' | '.join(_cells([left[id]]))} | `{id}` |")
        out.append("")
    return "\n".join(out)


def elsewhere(rows: Iterable[Row], layout: Sequence[Section], other: Sequence[Paper]) -> list[Row]:
    """Without the rows that only the papers' lines name."""
    here = {id for section in layout for line in section.lines for id in line.ids}
    there = {id for paper in other for each in paper.figures for id in each.ids}
    return [row for row in rows if row.id in here or row.id not in there]


def shown(rows: Iterable[Row], layout: Sequence[Paper]) -> str:
    """hotrail/papers.json as text."""
    return json.dumps(packed(rows, layout), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    rows = list(recorded(RESULTS).values())
    if (path := build_folder() / "bench.json").exists():
        rows = merged(recorded(RESULTS), recorded(path), tomllib.loads(LINES.read_text("utf-8"))["curves"])
        lines = [" " + json.dumps(_plain(row), ensure_ascii=False) for row in rows]
        RESULTS.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")
    text, other = LINES.read_text("utf-8"), PAPER_LINES.read_text("utf-8")
    PAGE.write_text(page(elsewhere(rows, sections(text), papers(other)), sections(text), about(text)), "utf-8")
    PAPERS.write_text(document(rows, papers(other), about(other)), "utf-8")
    PACKED.write_text(shown(rows, papers(other)), "utf-8")


def _plain(row: Row) -> dict[str, Any]:
    return dict(vars(row))


if __name__ == "__main__":
    main()
