"""docs/figures.md: the figures that were measured last, beside their targets.

    python -m bench.page              takes the rows of build/bench.json, if there is one, into bench/results.json and
                                      writes docs/figures.md and docs/paper-figures.md

bench/results.json has the last row of every bench that was recorded, bench/figures.toml the lines of the page: what a
line says and the ids of the rows whose values it shows; bench/papers.toml the same of docs/paper-figures.md, beside
what the source papers read. A recorded row that no line of either names is listed at the end of docs/figures.md. Points
of curves are not recorded.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.framework import Row, number
from gen.base.tools import build_folder

__all__ = ["LINES", "PAGE", "PAPERS", "RESULTS", "Line", "Section", "about", "elsewhere", "merged", "page", "papers",
           "recorded", "sections"]

ROOT = Path(__file__).parents[1]
PAGE, RESULTS, LINES = ROOT / "docs" / "figures.md", ROOT / "bench" / "results.json", ROOT / "bench" / "figures.toml"
PAPERS, PAPER_LINES = ROOT / "docs" / "paper-figures.md", ROOT / "bench" / "papers.toml"
HEAD = """# Figures

`python -m bench.page` writes this page from `bench/results.json`, which holds the last recorded row of every bench.
`make bench` measures all of them into `build/bench.json`, `hotrail bench NAME` the rows of one bench. A row has the id
that is given here. Simulation and processing speeds depend on the machine; these were measured on two shared CPU cores.
"""


@dataclass(frozen=True)
class Line:
    """A line of a page. ids: the rows whose values it shows; beside: figures of others, quoted; why: of a paper's
    figure, why they differ, or what it would need."""

    what: str
    ids: tuple[str, ...]
    beside: str = ""
    why: str = ""


@dataclass(frozen=True)
class Section:
    """A table of the page with the sentences above it."""

    title: str
    about: str
    lines: tuple[Line, ...]


def about(text: str) -> str:
    """Of bench/figures.toml: which rows come from one run, and what it took."""
    return str(tomllib.loads(text)["about"])


def sections(text: str) -> list[Section]:
    """The sections of bench/figures.toml."""
    return [Section(part["title"], part["about"],
                    tuple(Line(line["what"], tuple(line["ids"]), line.get("beside", ""), line.get("why", ""))
                          for line in part["figure"]))
            for part in tomllib.loads(text)["section"]]


def recorded(path: Path) -> dict[str, Row]:
    """The rows of a file such as build/bench.json, by id."""
    return {row["id"]: Row(**row) for row in json.loads(path.read_text())}


def merged(old: Mapping[str, Row], new: Mapping[str, Row], curves: Sequence[str] = ()) -> list[Row]:
    """The recorded rows after a bench: a bench that ran replaces all of its own rows, the others stay.

    curves: beginnings of the ids that are points of curves, which are left out
    """
    ran = {row.bench for row in new.values()}
    return [row for row in (*(row for row in old.values() if row.bench not in ran), *new.values())
            if not row.id.startswith(tuple(curves))]


def _joined(texts: Sequence[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def _cells(rows: Sequence[Row]) -> tuple[str, str]:
    """Values and targets of a line; what is missed is named."""
    values = [number(row.value) for row in rows]
    if len({row.unit for row in rows}) == 1:
        value = f"{_joined(values)} {rows[0].unit}".strip()
    else:
        value = _joined([f"{text} {row.unit}".strip() for text, row in zip(values, rows, strict=True)])
    target = _joined([row.target or "-" for row in rows]) if any(row.target for row in rows) else ""
    missed = [row.id for row in rows if row.met is False]
    if missed:
        target += " **missed**" + ("" if len(missed) == len(rows) else f" by {', '.join(f'`{id}`' for id in missed)}")
    return value, target


def _ids(ids: Sequence[str]) -> str:
    """The first id whole, of the others what comes after the parts that they share with it."""
    first = ids[0].split(".")
    shown = [f"`{ids[0]}`"]
    for id in ids[1:]:
        parts = id.split(".")
        same = next((k for k, (a, b) in enumerate(zip(first, parts, strict=False)) if a != b),
                    min(len(first), len(parts)))
        shown.append(f"`.{'.'.join(parts[same:])}`" if same else f"`{id}`")
    return ", ".join(shown)


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
            out.append(f"| {what} | {value} | {target} | {_ids(line.ids)} |")
        out.append("")
    if left:
        out += ["## All other rows\n", "| what | measured | target | id |", "|---|---|---|---|"]
        for id in sorted(left):
            out.append(f"| {left[id].what} | {' | '.join(_cells([left[id]]))} | `{id}` |")
        out.append("")
    return "\n".join(out)


def elsewhere(rows: Iterable[Row], layout: Sequence[Section], other: Sequence[Section]) -> list[Row]:
    """Without the rows that only the other page's lines name."""
    here, there = ({id for section in each for line in section.lines for id in line.ids} for each in (layout, other))
    return [row for row in rows if row.id in here or row.id not in there]


def beside(rows: Iterable[Row], section: Section) -> Iterator[tuple[Line, str]]:
    """The lines of a section of the papers' figures whose rows are all there, each with the values of these."""
    known = {row.id: row for row in rows}
    for line in section.lines:
        if all(id in known for id in line.ids):
            yield line, _cells([known[id] for id in line.ids])[0] if line.ids else "-"


def papers(rows: Iterable[Row], layout: Sequence[Section], head: str) -> str:
    """The text of docs/paper-figures.md; a row may stand here and in docs/figures.md.

    Raises      LookupError: a line names an id that is not among the rows
    """
    rows = list(rows)
    known = {row.id for row in rows}
    out = [f"# The papers' figures\n\n{head}\n"]
    for section in layout:
        out += [f"## {section.title}\n", section.about + "\n", "| what | paper | hotrail | why |", "|---|---|---|---|"]
        if missing := [id for line in section.lines for id in line.ids if id not in known]:
            raise LookupError(f"{PAPER_LINES.name} names {', '.join(missing)}, not recorded")
        for line, value in beside(rows, section):
            ours = f"{value} ({_ids(line.ids)})" if line.ids else value
            out.append(f"| {line.what} | {line.beside} | {ours} | {line.why} |")
        out.append("")
    return "\n".join(out)


def main() -> None:
    rows = list(recorded(RESULTS).values())
    if (path := build_folder() / "bench.json").exists():
        rows = merged(recorded(RESULTS), recorded(path), tomllib.loads(LINES.read_text())["curves"])
        lines = [" " + json.dumps(_plain(row), ensure_ascii=False) for row in rows]
        RESULTS.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    text, other = LINES.read_text(), PAPER_LINES.read_text()
    PAGE.write_text(page(elsewhere(rows, sections(text), sections(other)), sections(text), about(text)))
    PAPERS.write_text(papers(rows, sections(other), about(other)))


def _plain(row: Row) -> dict[str, Any]:
    return dict(vars(row))


if __name__ == "__main__":
    main()
