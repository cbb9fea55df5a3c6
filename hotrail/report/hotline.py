"""The page of `hotrail hotline`: what the GPU does when, and what hot rows save it."""

from pathlib import Path

import numpy as np

from fpga.api.dispatching import Dispatched
from fpga.api.gpu import GATHERED, POPULAR
from hotrail.report.page import Axis, Lines, Page, Series, Spans, Table

KINDS = ((POPULAR, "four", "popular"), (GATHERED, "five", "gathered"))
POINTS = 300            # of a line
HEAD = ("run", "popular mini-batches", "gathered", "cold rows read", "shared", "cycles to the last one's end",
        "GPU idle")


def write(result: Dispatched, folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    return page(result).write(folder)


def page(result: Dispatched) -> Page:
    cut = f" {result.cut:,} indices of bags did not fit and were skipped." if result.cut else ""
    made = Page("hotrail hotline", "Popular mini-batches first, the others gathered meanwhile", lead=(
        f"{result.source}: {result.rows:,} rows in {len(result.tables)} tables. The core learned from "
        f"{result.learned:,} samples and found {result.hot:,} hot rows (capacity {result.capacity:,}), which take "
        f"{result.share:.1%} of the accesses in the remaining log; the oracle's {result.hot:,} rows take "
        f"{result.best:.1%}. Of the next {result.samples:,} samples {result.popular:,} "
        f"({result.popular / result.samples:.1%}) need hot rows only: their mini-batches of {result.batch} go "
        f"to the GPU at once, while the cold rows of the others are gathered.{cut}"), facts=[
            ("hot rows", f"{result.hot:,}"), ("accesses to them", f"{result.share:.1%}"),
            ("popular samples", f"{result.popular / result.samples:.1%}"), ("speed-up", f"{result.speedup:.2f}")])
    made.add("The same samples, dispatched in two ways", _time(result), Table("Both runs", HEAD, [
        [run.name, f"{run.count(POPULAR):,}", f"{run.count(GATHERED):,}", f"{run.counters['dma_rd']:,}",
         f"{run.counters['shared']:,}", f"{run.finished[-1]:,}", f"{run.idle:.1%}"] for run in result.runs],
        key="run", note=(
            f"Shared: cold indices whose row was there already. Where every mini-batch is gathered the run takes "
            f"{result.speedup:.2f} times as long: each of them waits for the updates of the one before. A mini-batch "
            f"ends before it is full where its rows would pass the {result.slots:,} that the core holds.")))
    made.add("Skew of the log", _share(result))
    return made


def _time(result: Dispatched) -> Spans:
    series = [Series(f"{name} mini-batches", [
        (run.name, (begin, end)) for run in result.runs
        for of, begin, end in zip(run.kinds, run.started, run.finished) if of == kind], colour, alone=True)
        for kind, colour, name in KINDS]
    waits = ", ".join(f"{run.idle:.0%} of the time in the run {run.name}" for run in result.runs)
    return Spans("What the GPU does", "Each mini-batch from its beginning to its end; where there is none the GPU "
                 f"waits: {waits}.",
                 Axis("clock cycles of the core", "cycles"), Axis("run"), [each for each in series if each.points],
                 key="run", wide=True, labels=[run.name for run in result.runs])


def _share(result: Dispatched) -> Lines:
    counts = result.accesses
    share = 100 * np.cumsum(counts) / max(1, counts.sum())
    at = np.unique(np.geomspace(1, max(counts.size, 1), POINTS).astype(int))
    series = [Series("rows", list(zip(at.tolist(), share[at - 1].tolist())))]
    if result.hot:
        series += [Series(f"{name}: {value:.1%}", [(result.hot, 100 * value)], colour, "dots")
                   for value, colour, name in ((result.best, "two", "the best rows in hindsight"),
                                               (result.share, "three", "those that the core found"))]
    return Lines("Accesses of the hottest rows", f"Share of the accesses that the most accessed rows take, and the "
                 f"{result.hot:,} hot rows.", Axis("rows, most accessed first", "rows", log=True),
                 Axis("% of the accesses", "%", least=0, most=100), series, wide=True)
