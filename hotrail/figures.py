"""Pictures of what the benches measured: the Hotline thesis' figures again, and caches over their size."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # draws to files on machines without a screen
import matplotlib.pyplot as plt

from bench.framework import Row
from hotrail.report import COOL, GREEN, SOFT, WARM, styled

__all__ = ["write"]

Points = dict[Any, float]      # by number, or by the name of a group of bars
COLOURS = (COOL, GREEN, WARM, SOFT, "#7b5ea7", "#c98b2b")


def write(rows: Iterable[Row], folder: Path) -> list[tuple[str, Path]]:
    """(what it shows, path) of each picture that is written into `folder`.

    What a bench has not measured yet is left out, panel by panel and picture by picture.
    """
    values = {row.id: float(row.value) for row in rows if row.id.startswith(("hotline.", "emb.cache.", "scars."))}
    pictures = []
    for name, (about, panels) in _PICTURES.items():
        measured = [(panel, found) for panel, found in ((panel, panel.found(values)) for panel in panels) if found]
        if measured:
            folder.mkdir(parents=True, exist_ok=True)
            _draw(measured, folder / name)
            pictures.append((about, folder / name))
    return pictures


def _draw(panels: "list[tuple[_Lines, dict[str, Points]]]", path: Path) -> None:
    with styled():
        figure, axes = plt.subplots(-(-len(panels) // 2), 2, figsize=(12.5, 3.9 * -(-len(panels) // 2)),
                                    layout="constrained", squeeze=False)
        for axis in axes.flat[len(panels):]:
            axis.axis("off")
        for axis, (panel, found) in zip(axes.flat, panels, strict=False):
            panel.draw(axis, found)
            axis.text(0, -0.24, panel.reading, transform=axis.transAxes, color=SOFT, fontsize=8)
        figure.savefig(path, dpi=130, metadata={"Software": None})
        plt.close(figure)


class _Lines:
    """A panel of lines. pattern: of the rows' ids, with groups `line` and `at`; names: of the lines, by their group."""

    def __init__(self, title: str, pattern: str, x: str, y: str, reading: str, *, scale: float = 1,
                 names: dict[str, str] | None = None, thesis: tuple[float, float] | None = None, log: bool = True):
        self.title, self.pattern, self.x, self.y, self.reading = title, re.compile(pattern), x, y, reading
        self.scale, self.names, self.thesis, self.log = scale, names or {}, thesis, log

    def found(self, values: dict[str, float]) -> dict[str, Points]:
        lines: dict[str, Points] = defaultdict(dict)
        for id, value in values.items():
            if match := self.pattern.fullmatch(id):
                lines[match["line"] or ""][self.scale * float(match["at"])] = value
        return dict(lines)

    def draw(self, axis, lines: dict[str, Points]) -> None:
        for number, (name, points) in enumerate(sorted(lines.items())):
            axis.plot(*zip(*sorted(points.items()), strict=True), marker="o", ms=3.5, lw=1.6,
                      color=COLOURS[number % len(COLOURS)], ls="--" if "oracle" in name else "-",
                      label=self.names.get(name, name))
        if self.thesis is not None:
            axis.plot(*self.thesis, "x", color=WARM, ms=9, mew=2, label="thesis")
        if self.log:
            axis.set_xscale("log", base=2)
            ticks = sorted({at for points in lines.values() for at in points})
            axis.set_xticks(ticks[:: 1 + len(ticks) // 9], [f"{at:,.0f}" for at in ticks[:: 1 + len(ticks) // 9]])
        axis.set(title=self.title, xlabel=self.x, ylabel=self.y)
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False, fontsize=8)


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

    def draw(self, axis, lines: dict[str, Points]) -> None:
        width = 0.8 / len(lines)
        groups = list(next(iter(lines.values())))
        for number, (name, bars) in enumerate(lines.items()):
            axis.bar([at + number * width for at in range(len(groups))], list(bars.values()), width,
                     color=COLOURS[number % len(COLOURS)], label=self.names.get(name, name))
        axis.set_xticks([at + 0.4 - width / 2 for at in range(len(groups))], groups, fontsize=7,
                        rotation=30 if len(groups) > 6 else 0)
        axis.set(title=self.title, ylabel=self.y)
        axis.legend(frameon=False, fontsize=8)


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
           "The thesis: most with 2 MB; 75 % of the samples on the whole", names={"": "hotrail", ".oracle": "oracle"}),
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
_PICTURES = {"hotline_figures.png": ("the figures of the Hotline thesis, measured", _HOTLINE),
             "cache_figures.png": ("caches over their size", _CACHES)}
