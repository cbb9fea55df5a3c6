"""The page of `hotrail bench`: every figure beside its target; Hotline's figures, caches over their size and latency
over load drawn."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.framework import Row
from hotrail.report.page import Axis, Bars, Chart, Lines, Page, Series, Table

Points = dict[Any, float]      # by number, or by the name of a group of bars
DRAWN = ("hotline.", "emb.cache.", "scars.", "system.curve.")       # whose rows may be points of charts
HEAD = ("figure", "what it is", "value", "unit", "target", "met")


def write(rows: Iterable[Row], folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    return page(rows).write(folder)


def page(rows: Iterable[Row]) -> Page:
    """What a bench has not measured yet is left out, chart by chart and section by section."""
    rows = list(rows)
    values = {row.id: float(row.value) for row in rows if row.id.startswith(DRAWN) and not isinstance(row.value, str)}
    judged = [row.met for row in rows if row.met is not None]
    made = Page("hotrail bench", "Every figure beside its target", facts=[
        ("figures", f"{len(rows):,}"), ("with a target", f"{len(judged):,}"), ("met", f"{sum(judged):,}")])
    for heading, panels in _SECTIONS.items():
        made.add(heading, *(panel.chart(found) for panel, found in ((panel, panel.found(values)) for panel in panels)
                            if found))
    made.add("Figures", Table("Figures", HEAD, [_cells(row) for row in rows], left=2))
    return made


def _cells(row: Row) -> list[str]:
    value = row.value if isinstance(row.value, str) else f"{row.value:,.6g}"
    return [row.id, row.what, value, row.unit, row.target or "-",
            "-" if row.met is None else "yes" if row.met else "no"]


class _Lines:
    """A panel of lines. pattern: of the rows' ids, with groups `line` and `at`; names: of the lines, by their group."""

    def __init__(self, title: str, pattern: str, x: str, y: str, reading: str, *,
                 names: dict[str, str] | None = None, thesis: tuple[float, float] | None = None, log: bool = True):
        self.title, self.pattern, self.x, self.y, self.reading = title, re.compile(pattern), x, y, reading
        self.names, self.thesis, self.log = names or {}, thesis, log

    def found(self, values: dict[str, float]) -> dict[str, Points]:
        lines: dict[str, Points] = defaultdict(dict)
        for id, value in values.items():
            if match := self.pattern.fullmatch(id):
                lines[match["line"] or ""][float(match["at"])] = value
        return dict(lines)

    def chart(self, lines: dict[str, Points]) -> Chart:
        series = [Series(self.names.get(name, name), sorted(points.items()),
                         form="dashed" if "oracle" in name else "line")
                  for name, points in sorted(lines.items())]
        if self.thesis is not None:
            series.append(Series("thesis", [self.thesis], "ink", "dots"))
        return Lines(self.title, f"{self.reading}.", Axis(self.x, self.x, log=self.log),
                     Axis(self.y, self.y, least=0), series)


class _Bars(_Lines):
    """A panel of bars: `at` is what a group of bars is of."""

    def found(self, values: dict[str, float]) -> dict[str, Points]:
        lines: dict[str, Points] = defaultdict(dict)
        for id, value in values.items():
            if match := self.pattern.fullmatch(id):
                lines[match["line"] or ""][match["at"]] = value
        both = [at for at in dict.fromkeys(at for bars in lines.values() for at in bars)
                if all(at in bars for bars in lines.values())]
        return {name: {at: bars[at] for at in both} for name, bars in lines.items()} if both else {}

    def chart(self, lines: dict[str, Points]) -> Chart:
        return Bars(self.title, f"{self.reading}.", Axis(self.x), Axis(self.y, self.y, least=0),
                    [Series(self.names.get(name, name), list(bars.items())) for name, bars in lines.items()],
                    labels=list(next(iter(lines.values()))))


_HOTLINE = (
    _Lines("Fig. 6.4: accesses issued a cycle, RTL", r"hotline\.issue\.(?P<line>\d+)\.(?P<at>\d+)",
           "places of the queue", "accesses a cycle", "The thesis: 60 with 64 banks and 512 places", thesis=(512, 60),
           names={str(banks): f"{banks} banks" for banks in (16, 32, 64)}),
    _Bars("Fig. 6.6: accesses to the rows found hot, the oracle's being 1",
          r"hotline\.coverage\.(?P<at>zipf[\d.]+\.\d+k)(?P<line>|\.srrip|\.sets)", "", "of the oracle's",
          "The thesis: close to the oracle with SRRIP",
          names={"": "hotrail", ".srrip": "SRRIP", ".sets": "the best four of each set"}),
    _Bars("Fig. 6.8: popular samples with and without the randomizer",
          r"hotline\.popular\.(?P<at>[a-z]+\.\d+k?(?:\.front)?)(?P<line>|\.bare)", "", "% of samples",
          "The thesis: none of Taobao's without it", names={"": "with", ".bare": "without"}),
    _Lines("Fig. 7.6: the GPU at work", r"hotline\.overlap\.(?P<line>gpu|core)\.(?P<at>\d+)", "mini-batches in flight",
           "% of the cycles", "The thesis: four fill the pipeline",
           names={"gpu": "24 cycles a sample", "core": "1 cycle a sample"}),
    _Lines("Fig. 7.7: popular samples, Criteo Kaggle's shape",
           r"hotline\.popular\.criteo\.(?P<at>\d+)k(?P<line>|\.oracle)", "thousand hot rows", "% of samples",
           "The thesis: most with 2 MB, a million entries; 75 % of the samples on the whole",
           names={"": "hotrail", ".oracle": "oracle"}),
)
_POLICIES = {"hotrail": "row cache, by frequency", "lru": "LRU", "lfu": "LFU", "s3fifo": "S3-FIFO", "sieve": "SIEVE",
             "wtinylfu": "W-TinyLFU"}
_CACHES = (
    *(_Lines(f"SSD rows brought: {log}, {table}", rf"emb\.cache\.curve\.{log}\.{table}\.(?P<line>\w+)\.(?P<at>\d+)",
             "% of the rows cached", "% of the lookups", "every row of a batch once; learned on the log's first half, "
             "judged on the second", names=_POLICIES)
      for log, table in (("movielens", "item_id"), ("movielens", "user_id"), ("anime", "anime"), ("msweb", "vroot"),
                         ("openbandit", "item"))),
    _Lines("Words moved a sample in training, Criteo Kaggle's shape",
           r"scars\.criteo\.(?P<at>\d+)(?P<line>|\.coalesced)", "MB for batch and cache", "words",
           "SCARS' formulas, and what starting a batch costs",
           names={"": "best split", ".coalesced": "coalesced alone"}),
)
_SYSTEM = tuple(_Lines(f"Latency over load: {name}", rf"system\.curve\.{log}\.(?P<at>\d+)\.(?P<line>p\d+)",
                       "% of the largest load", "us", "Samples arrive at random; stages as twins of the cards take "
                       "them", log=False)
                for log, name in (("anime", "anime, RM0, 8 cards"), ("mels2021", "MELS 2021, 8 cards")))
_SECTIONS = {"The Hotline thesis' figures, measured": _HOTLINE, "Caches over their size": _CACHES,
             "The system under load": _SYSTEM}
