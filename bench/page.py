"""docs/figures.md, the figures that decide something, and the site's page of all figures.

    python -m bench.page              takes the rows of build/bench.json, if there is one, into bench/results.json and
                                      writes docs/figures.md and docs/papers.md with their plots,
                                      and hotrail/papers.json

bench/results.json has the last row of every bench that was recorded, but no points of curves. bench/figures.toml names
the decisive ones, and groups all of them for the page that `make docs` writes (.ci/mkdocs_hooks.py). bench/papers.toml
has what the source papers claim and read (bench.readings).
"""

import html
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.framework import Row, joined, values, with_unit
from bench.plots import Plot, svg
from bench.readings import Paper, disputed, document, newer, packed, papers, pictures
from gen.base.tools import build_folder

ROOT = Path(__file__).parents[1]
PAGE, RESULTS, LINES = ROOT / "docs" / "figures.md", ROOT / "bench" / "results.json", ROOT / "bench" / "figures.toml"
PAPERS, PAPER_LINES = ROOT / "docs" / "papers.md", ROOT / "bench" / "papers.toml"
PACKED, PICTURES = ROOT / "hotrail" / "papers.json", ROOT / "docs" / "pictures"
HEAD = """# Figures

The figures that decide something, with their targets, also those that were missed. `bench/results.json` has all
{count} recorded rows; the site that `make docs` builds shows them on the page *All figures*, which filters by words.
`hotrail bench NAME` measures the rows of one bench, `make bench` all of them, into `build/bench.json`;
`python -m bench.page` records them and writes this page.

A row keeps the commit, the date and the processor of its measurement. Rows without a processor were recorded before
benches noted it; their commit is the one that recorded the value. Cycles, areas and estimates do not depend on the
processor. Times do: they were taken on two shared virtual cores of an AMD EPYC, and other work there changes them by
up to three times.
"""
ALL = """# All figures

The last recorded row of every bench (`bench/results.json`): {count} of them. A line may show several rows, in the order
of their ids. The commit is that of the measurement, or the one that recorded it.

<input id="filter" type="search" placeholder="Filter: words of a line or of an id" style="width: 100%">
<script>
document.getElementById("filter").addEventListener("input", event => {{
  const words = event.target.value.toLowerCase().split(/\\s+/);
  for (const row of document.querySelectorAll("article tbody tr"))
    row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
}});
</script>
"""


def with_table(text: str, part: str, table: Iterable[str]) -> str:
    """A page with another table between its marks `part` begin and `part` end. Raises LookupError: it has none"""
    begin, end = f"<!-- {part} begin -->\n", f"<!-- {part} end -->"
    head, begun, rest = text.partition(begin)
    _, ended, tail = rest.partition(end)
    if not begun or not ended:
        raise LookupError(f"the page has no place for the table {part!r}")
    return head + begin + "\n".join(table) + "\n" + end + tail


@dataclass(frozen=True)
class Line:
    """A line of the page of all figures. ids: the rows whose values it shows; beside: figures of others, quoted."""

    what: str
    ids: tuple[str, ...]
    beside: str = ""


@dataclass(frozen=True)
class Section:
    """A table of the page of all figures with the sentences above it."""

    title: str
    about: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Selection:
    """A table of docs/figures.md. figures: what each says, by id; plots: curves below the table."""

    title: str
    about: str
    figures: Mapping[str, str]
    plots: tuple[Plot, ...] = ()


def sections(text: str) -> list[Section]:
    """The sections of bench/figures.toml."""
    return [Section(part["title"], part["about"],
                    tuple(Line(line["what"], tuple(line["ids"]), line.get("beside", "")) for line in part["figure"]))
            for part in tomllib.loads(text)["section"]]


def selections(text: str) -> list[Selection]:
    """The decisive figures of bench/figures.toml."""
    return [Selection(part["title"], part["about"], part["figures"], tuple(
        Plot(**{**plot, "over": tuple(plot["over"])}) for plot in part.get("plot", ())))
        for part in tomllib.loads(text)["decisive"]]


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


def decisive(rows: Mapping[str, Row], layout: Sequence[Selection]) -> str:
    """The text of docs/figures.md. Raises LookupError: an id that is not recorded"""
    out = [HEAD.format(count=f"{len(rows):,}")]
    for part in layout:
        out += [f"## {part.title}\n", *([part.about + "\n"] if part.about else []),
                "| figure | value | target | id | commit, date, processor |", "|---|---|---|---|---|"]
        for id, what in part.figures.items():
            if id not in rows:
                raise LookupError(f"{LINES.name} names {id}, not recorded")
            row = rows[id]
            target = row.target + (" **missed**" if row.met is False else "")
            out.append(f"| {what} | {with_unit(row)} | {target} | `{id}` | {_origin([row])} |")
        out += ["", *(f"![{plot.title}](pictures/{plot.name}.svg)\n" for plot in part.plots)]
    return "\n".join(out)


def _origin(rows: Sequence[Row]) -> str:
    """Commit, date and processor of rows."""
    return "; ".join(dict.fromkeys(", ".join(filter(None, (row.commit, row.date, row.processor))) for row in rows))


def _cells(rows: Sequence[Row]) -> str:
    """Values, targets, ids and origin of a line; what is missed is named."""
    target = joined([row.target or "-" for row in rows]) if any(row.target for row in rows) else ""
    missed = [row.id for row in rows if row.met is False]
    if missed:
        target += " **missed**" + ("" if len(missed) == len(rows) else f" by {', '.join(f'`{id}`' for id in missed)}")
    return f"{values(rows)} | {target} | {' '.join(f'`{row.id}`' for row in rows)} | {_origin(rows)}"


def everything(rows: Iterable[Row], layout: Sequence[Section]) -> str:
    """The text of the page of all figures.

    Raises      LookupError: a line names an id that is not among the rows, or two lines name the same
    """
    left = {row.id: row for row in rows}
    head = ["| what | measured | target | id | recorded |", "|---|---|---|---|---|"]
    out = [ALL.format(count=f"{len(left):,}")]
    for section in layout:
        out += [f"## {section.title}\n", *([section.about + "\n"] if section.about else []), *head]
        for line in section.lines:
            missing = [id for id in line.ids if id not in left]
            if missing:
                raise LookupError(f"{LINES.name} names {', '.join(missing)}, not recorded or named twice")
            what = f"{line.what} ({line.beside})" if line.beside else line.what
            out.append(f"| {what} | {_cells([left.pop(id) for id in line.ids])} |")
        out.append("")
    if left:
        out += ["## All other rows\n", *head]
        out += [f"| {html.escape(left[id].what).replace('|', '&#124;')} | {_cells([left[id]])} |"
                for id in sorted(left)]
        out.append("")
    return "\n".join(out)


def shown(rows: Iterable[Row], layout: Sequence[Paper]) -> str:
    """hotrail/papers.json as text."""
    return json.dumps(packed(rows, layout), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    rows = list(recorded(RESULTS).values())
    if (path := build_folder() / "bench.json").exists():
        rows = merged(recorded(RESULTS), recorded(path), tomllib.loads(LINES.read_text("utf-8"))["curves"])
        lines = [" " + json.dumps(vars(row), ensure_ascii=False) for row in rows]
        RESULTS.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")
    text, other = LINES.read_text("utf-8"), PAPER_LINES.read_text("utf-8")
    known = {row.id: row for row in rows}
    PAGE.write_text(decisive(known, selections(text)), "utf-8")
    for plot in (plot for part in selections(text) for plot in part.plots):
        (PICTURES / f"{plot.name}.svg").write_text(svg(plot, known), "utf-8")
    for name, picture in pictures(rows, papers(other)).items():
        (PICTURES / f"{name}.svg").write_text(picture, "utf-8")
    PAPERS.write_text(document(rows, papers(other), disputed(other), newer(other)), "utf-8")
    PACKED.write_text(shown(rows, papers(other)), "utf-8")


if __name__ == "__main__":
    main()
