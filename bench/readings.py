"""docs/papers.md, hotrail/papers.json and the site's page of the papers' figures: what the source papers claim and
evaluate, beside what was recorded here.

`python -m bench.page` writes the first two out of bench/papers.toml, which has the claims and readings, and the
recorded rows; `make docs` writes the third (.ci/mkdocs_hooks.py).
hotrail/papers.json comes with an installation, which has no benches: `hotrail papers` shows it.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.framework import Row, shortened, values, with_unit
from bench.plots import drawn

HOLDS = ("yes", "partly", "no", "not shown")
HEAD = """# Papers

hotrail puts five publications into hardware, models and benches. Docstrings cite them by the short names
below (`SCRec §III.E Alg. 1`). How to cite hotrail itself is in `CITATION.cff`.
"""
CURVES = """## Curves

Lines are hotrail's rows, dots the papers' points where their texts have numbers: of a line's colour, or dark where all
lines of a picture stand beside the same. The tables behind the pictures say under which assumptions.
"""
FIGURES = """## Figures and tables

`hotrail papers` prints every figure and table beside hotrail's rows, with the ratio and the reason why they differ, and
draws charts. The site that `make docs` builds has the same on the page *Figures of the papers*, with a sentence that
judges each; it also says what the figures that are not reproduced need.
"""


@dataclass(frozen=True)
class Headline:
    """A paper's claim. holds: one of HOLDS; answer: under which assumptions, {id} for a row's value and unit."""

    claim: str
    holds: str
    answer: str


@dataclass(frozen=True)
class Figure:
    """A line of a paper's figure or table. at: its number; source: its section and page; reading: the paper's, in the
    unit of the rows `ids` and one for each of them, NaN where it is not given; beside: the same in words, without
    numbers to compare; why: why ours differ; needs: what it would take, where there are no rows. chart, series: the
    line of a chart that the rows are, over: the labels of its points, of which unit."""

    at: str
    source: str
    what: str
    ids: tuple[str, ...] = ()
    reading: tuple[float, ...] = ()
    beside: str = ""
    why: str = ""
    needs: str = ""
    chart: str = ""
    series: str = ""
    over: tuple[str, ...] = ()
    unit: str = ""

    def __post_init__(self) -> None:
        where = f"papers.toml, {self.at}, {self.what}"
        if self.ids and (bool(self.reading) == bool(self.beside) or not self.why or self.needs):
            raise ValueError(f"{where}: rows stand beside a reading or words, and a why, without needs")
        if not self.ids and (not self.needs or self.reading or self.beside or self.why):
            raise ValueError(f"{where}: without rows it says what it needs, and nothing else")
        for name in ("reading", "over"):
            if getattr(self, name) and len(getattr(self, name)) != len(self.ids):
                raise ValueError(f"{where}: {name} has {len(getattr(self, name))} values for {len(self.ids)} rows")


@dataclass(frozen=True)
class Paper:
    """key: of the command; title: the short name; publication, code, taken: as docs/papers.md has them; about: what
    its lines share; verdict: by figure with rows of ours, a sentence that judges, {id} for a row's value and unit;
    plots: the charts of docs/papers.md, by the file in docs/pictures.

    Raises      ValueError: verdicts and figures with rows differ, a plot of a chart that no line names
    """

    key: str
    title: str
    publication: str
    code: str
    taken: str
    about: str
    headlines: tuple[Headline, ...]
    figures: tuple[Figure, ...]
    verdict: Mapping[str, str]
    plots: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := set(self.plots.values()) - {each.chart for each in self.figures}:
            raise ValueError(f"papers.toml, {self.title}: no line is of the chart {', '.join(sorted(unknown))}")
        if differ := {each.at for each in self.figures if each.ids} ^ set(self.verdict):
            raise ValueError(f"papers.toml, {self.title}: a verdict and rows belong together: "
                             f"{', '.join(sorted(differ))}")


def about(text: str) -> str:
    """What all lines of bench/papers.toml share."""
    return str(tomllib.loads(text)["about"]).strip()


def disputed(text: str) -> str:
    """What bench/papers.toml has of verdicts on which readers differ."""
    return str(tomllib.loads(text)["disputed"]).strip()


def newer(text: str) -> str:
    """What bench/papers.toml has of later and neighbouring work."""
    return str(tomllib.loads(text)["newer"]).strip()


def papers(text: str) -> list[Paper]:
    """Those of bench/papers.toml. Raises ValueError: a line without what it must have; TypeError: an unknown key"""
    found = []
    for part in tomllib.loads(text)["paper"]:
        headlines = tuple(Headline(**each) for each in part.pop("headline"))
        pages = part.pop("pages", {})
        for each in part["figure"]:
            each["source"] += f", p. {pages[each['at']]}" if each["at"] in pages else ""
        figures: list[dict[str, Any]] = [{key: tuple(value) if isinstance(value, list) else value
                                          for key, value in each.items()} for each in part.pop("figure")]
        found.append(Paper(**part, headlines=headlines, figures=tuple(Figure(**each) for each in figures)))
    return found


def answered(text: str, rows: Mapping[str, Row]) -> str:
    """Text whose {id} are the rows' values. Raises LookupError: an id that is not recorded"""
    return re.sub(r"\{([\w.]+)\}", lambda match: with_unit(*_known(rows, [match[1]])), text)


def reading(figure: Figure, rows: Sequence[Row]) -> str:
    """The paper's, as text."""
    if not figure.reading:
        return figure.beside
    texts = ["-" if math.isnan(each) else f"{each:,g}" for each in figure.reading]
    return f"{' / '.join(texts)} {rows[0].unit}".strip()


def packed(rows: Iterable[Row], layout: Sequence[Paper]) -> dict[str, Any]:
    """What hotrail/papers.json has. ratio: ours over the paper's, None where one of the two is no number.

    Raises      LookupError: an id that is not recorded
    """
    known = {row.id: row for row in rows}
    return {"papers": [{
        "key": paper.key, "title": paper.title, "publication": paper.publication.replace("*", ""), "about": paper.about,
        "headlines": [{"claim": each.claim, "holds": each.holds, "answer": answered(each.answer, known)}
                      for each in paper.headlines],
        "figures": [_packed(each, _known(known, each.ids)) for each in paper.figures]} for paper in layout]}


def document(rows: Iterable[Row], layout: Sequence[Paper], differ: str = "", beside: str = "") -> str:
    """The text of docs/papers.md. differ: of disputed verdicts; beside: of other work, {id} as in answers.

    Raises      LookupError: an id that is not recorded
    """
    known = {row.id: row for row in rows}
    out = [HEAD, "| short name | publication | where it is |", "|---|---|---|"]
    out += [f"| {paper.title} | {paper.publication} | {paper.code} |" for paper in layout]
    out += ["\n## What was taken, and what differs\n", *(f"**{paper.title}.** {paper.taken}\n" for paper in layout),
            "## Do the papers' results hold?\n", "| claim | holds | why |", "|---|---|---|"]
    out += [f"| {paper.title}: {each.claim} | {each.holds} | {answered(each.answer, known)} |"
            for paper in layout for each in paper.headlines]
    out += ["", differ, ""] if differ else [""]
    if any(paper.plots for paper in layout):
        out += [CURVES, *(f"![{paper.title}, {chart}](pictures/{name}.svg)\n"
                          for paper in layout for name, chart in paper.plots.items())]
    out += [FIGURES]
    out += ["## Newer and neighbouring work\n", answered(beside, known)] if beside else []
    return "\n".join(out).rstrip() + "\n"


def pictures(rows: Iterable[Row], layout: Sequence[Paper]) -> dict[str, str]:
    """The SVGs of docs/papers.md by their names. Raises LookupError: an id that is not recorded"""
    known = {row.id: row for row in rows}
    return {name: _picture(paper, chart, known) for paper in layout for name, chart in paper.plots.items()}


def _picture(paper: Paper, chart: str, known: Mapping[str, Row]) -> str:
    lines = [each for each in paper.figures if each.chart == chart]
    rows = {each.series: _known(known, each.ids) for each in lines}
    over = max((each.over for each in lines), key=len)

    def along(line: Figure, values: Iterable[float | str]) -> list[float]:
        at = dict(zip(line.over, values, strict=True))
        return [math.nan if isinstance(value := at.get(label, math.nan), str) else value for label in over]

    dots = {each.series: along(each, each.reading) for each in lines if each.reading}
    if len({str(each) for each in dots.values()}) == 1:
        dots = {"the paper": next(iter(dots.values()))}
    return drawn(f"{paper.title}, {chart}", lines[0].unit, rows[lines[0].series][0].unit, over, {
        each.series: along(each, (row.value for row in rows[each.series])) for each in lines}, dots)


def figures(rows: Iterable[Row], layout: Sequence[Paper], head: str) -> str:
    """The text of the site's page of the papers' figures. Raises LookupError: an id that is not recorded"""
    known = {row.id: row for row in rows}
    out = [f"# Figures of the papers\n\n{head}\n"]
    for paper in layout:
        out += [f"## {paper.title}\n", f"{paper.about}\n"]
        for at, text in paper.verdict.items():
            out += [f"### {paper.title}: {at}\n", f"{answered(text, known)}\n",
                    "| what | paper | hotrail | ratio | why they differ |", "|---|---|---|---|---|"]
            out += [_row(each, _known(known, each.ids)) for each in paper.figures if each.ids and each.at == at]
            out.append("")
        out += [f"### {paper.title}: not reproduced\n", "| figure | what | what it needs |", "|---|---|---|"]
        out += [f"| {each.at} ({each.source}) | {each.what} | {each.needs} |" for each in paper.figures if not each.ids]
        out.append("")
    return "\n".join(out)


def _known(rows: Mapping[str, Row], ids: Sequence[str]) -> list[Row]:
    if missing := [id for id in ids if id not in rows]:
        raise LookupError(f"papers.toml names {', '.join(missing)}, not recorded")
    return [rows[id] for id in ids]


def _ratios(figure: Figure, rows: Sequence[Row]) -> list[float | None]:
    """Ours over the paper's."""
    return [None if math.isnan(theirs) or isinstance(row.value, str) else float(f"{row.value / theirs:.3g}")
            for theirs, row in zip(figure.reading, rows, strict=True)] if figure.reading else []


def _packed(figure: Figure, rows: Sequence[Row]) -> dict[str, Any]:
    return {"at": figure.at, "source": figure.source, "what": figure.what, "paper": reading(figure, rows),
            "reading": [None if math.isnan(each) else each for each in figure.reading],
            "hotrail": values(rows) if rows else "", "ids": shortened(figure.ids).replace("`", "") if rows else "",
            "rows": [{"id": row.id, "value": row.value, "unit": row.unit, "target": row.target, "met": row.met}
                     for row in rows],
            "ratio": _ratios(figure, rows), "why": figure.why, "needs": figure.needs, "chart": figure.chart,
            "series": figure.series, "over": list(figure.over), "unit": figure.unit}


def _row(figure: Figure, rows: Sequence[Row]) -> str:
    targets = {row.target for row in rows if row.target}
    target = f", target {' / '.join(sorted(targets))}" if targets else ""
    ratio = " / ".join("-" if each is None else f"{each:g}" for each in _ratios(figure, rows)) or "-"
    return (f"| {figure.what} ({figure.source}) | {reading(figure, rows)} | {values(rows)} "
            f"({shortened(figure.ids)}{target}) | {ratio} | {figure.why} |")
