"""EL-Rec's optimisations of a tensor train's training in turn, timed on one thread of this machine: Fig. 14, 17 and 18.

The table is Criteo Kaggle's largest at EL-Rec's rank on its smaller GPU. The baseline has TT-Rec's algorithm in the
same code: products and slopes per lookup, the cores' gradients summed behind them, then an optimiser's step. These are
ratios of a CPU, not of the paper's GPU, whose kernels, launches and caches differ.
"""

import time
from collections.abc import Iterator
from math import prod
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from bench.data import CALIBRATION, needed
from bench.framework import Row, bench, figure, one_thread
from bench.papers_data import STEP_BATCH, TRAINS
from gen.data.logs.criteo import ClickLog

if TYPE_CHECKING:
    import torch

    from gen.compress.torch_bag import TieredBag

ROUNDS = 21         # batches, the first of which warms up
RATE = 0.01
#: Whether a bag shares rows and products, takes the step itself, and has rows by frequency.
WAYS = {"all": (True, True, True), "per_lookup": (False, True, True), "random": (True, True, False),
        "kept": (True, False, True), "ttrec": (False, False, False)}
#: By what is off: whose lookup and whose backward pass count.
OFF = {"reuse": ("per_lookup", "all", "no reuse of rows and first products in lookups"),
       "aggregation": ("all", "per_lookup", "slopes of each lookup instead of their sums"),
       "order": ("random", "random", "rows in a random order instead of by frequency"),
       "fused": ("all", "kept", "gradients kept, and torch's SGD behind them"),
       "ttrec": ("ttrec", "ttrec", "all of these off, TT-Rec's algorithm")}


def bag(rows: int, columns: tuple[int, ...], rank: int, shares: bool, fused: bool) -> "TieredBag":
    """The table. shares: rows and first products; fused: it takes the step itself."""
    import torch

    from gen.compress.torch_bag import TieredBag

    class PerLookup(TieredBag):
        def _distinct(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return values.flatten(), torch.arange(values.numel()).reshape(values.shape)

    form = TieredBag if shares else PerLookup
    return form(np.ones(rows, np.uint8), prod(columns), rank=rank, columns=columns, rate=RATE if fused else None)


def seconds(of: "TieredBag", optimiser: "torch.optim.Optimizer | None", indices: "torch.Tensor",
            slope: "torch.Tensor") -> tuple[float, float]:
    """Of a batch's lookup, and of its backward pass with the update."""
    begin = time.thread_time()
    out = of(indices)
    between = time.thread_time()
    out.backward(slope)
    if optimiser is not None:
        optimiser.step()
        optimiser.zero_grad()
    return between - begin, time.thread_time() - between


def timed(log: ClickLog, table: int, form: tuple[tuple[int, ...], int], rounds: int = ROUNDS
          ) -> dict[str, tuple[float, float, float]]:
    """By what is off, medians of the time over that with all on: a step's, a lookup's, a backward pass'."""
    import torch

    one_thread()
    bags = {name: bag(log.rows[table], *form, shares, fused) for name, (shares, fused, _) in WAYS.items()}
    optimisers = {name: None if of.rate else torch.optim.SGD(of.parameters(), lr=RATE) for name, of in bags.items()}
    slope = torch.ones(STEP_BATCH, prod(form[0]))
    took: dict[str, list[tuple[float, float, float]]] = {off: [] for off in OFF}
    for number in range(rounds):
        ranks = np.concatenate(list(log.ranks(STEP_BATCH, number * STEP_BATCH)))[:, table]
        indices = [torch.from_numpy(each[:, None]) for each in (log.row(table, ranks), ranks)]
        of = {name: seconds(bags[name], optimisers[name], indices[by_frequency], slope)
              for name, (_, _, by_frequency) in WAYS.items()}
        for off, (lookup, backward, _) in OFF.items():
            forth, back = of[lookup][0], of[backward][1]
            took[off].append(((forth + back) / sum(of["all"]), forth / of["all"][0], back / of["all"][1]))
    return {off: (median(each[0] for each in found[1:]), median(each[1] for each in found[1:]),
                  median(each[2] for each in found[1:])) for off, found in took.items()}


@bench("papers_elrec")
def optimisations() -> Iterator[Row]:
    """EL-Rec Fig. 14, 17 and 18: each optimisation of a tensor train's training off in turn, timed on one thread."""
    log, form = ClickLog(needed(CALIBRATION)), TRAINS["r64"]
    table = int(np.argmax(log.rows))
    what = (f"Criteo Kaggle's largest table, {log.rows[table]:,} rows at rank {form[1]}, batches of {STEP_BATCH:,}, "
            f"one thread of this machine, median of {ROUNDS - 1}")
    for off, (step, lookup, backward) in timed(log, table, form).items():
        said = f"{OFF[off][2]}, over that with all on"
        yield figure(f"papers.elrec.fig14.timed.{off}", f"{what}: time of a training step with {said}", round(step, 2),
                     "times")
        if off not in ("aggregation", "fused"):
            yield figure(f"papers.elrec.fig17.timed.{off}", f"{what}: time of a lookup with {said}", round(lookup, 2),
                         "times")
        if off != "reuse":
            yield figure(f"papers.elrec.fig18.timed.{off}", f"{what}: time of a backward pass and update with {said}",
                         round(backward, 2), "times")
