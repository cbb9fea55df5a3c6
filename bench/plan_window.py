"""DRAM rows that a core finds again in its window: the planner's time of DRAM beside the cycles of a twin.

One card with all rows in DRAM. What the link moves is left out of both, as a batch's transfers go on beside the run of
another, and so is the start of a run: the cycles of a batch of one sample.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.data import CALIBRATION, needed
from bench.framework import Row, at_most, bench, figure
from bench.plan import BATCH, logs_of_plan, shuffled
from fpga.api.verifying import verify
from fpga.card.costs import measure
from gen.bundle import write
from gen.data.logs import of_arrays
from gen.data.logs.criteo import ClickLog
from gen.data.logs.log import Log
from gen.data.profiling import profile as profiled
from gen.model.weights import SeededWeights
from gen.planner.assume import model_of
from gen.planner.build import build
from gen.planner.planning import make

DIMS, BATCHES, OFF = (16, 64), 8, 10.0
CRITEO_SAMPLES = 50_000
#: Rows of a table, Zipf's exponent (0: uniform), rows of a bag.
DRAWN = tuple(product((30, 1000, 3000, 20_000, 200_000), (0.0, 0.8, 1.05), (1, 8)))
DRAWN_BATCHES = 3


def beside_twin(log: Log, dim: int, batches: int) -> tuple[float, float]:
    """Time of DRAM over the twin's: as planned, and as if every access were fetched. The log serves itself: no access
    is to a row that it lacks."""
    known = profiled(log)
    of = model_of(known, dim, BATCH)[0]
    costs = replace(measure("smartssd", "smartssd", dims={dim}), packet_s=0.0, turn_s=0.0, run_s=0.0)
    plan = make(of, known, costs, cards=1, levels=2, unseen=False, explain=False)
    items = build(of, known, costs, cards=1, unseen=False).problem.items
    with TemporaryDirectory() as folder:
        bundle = write(Path(folder) / "bundle", plan, known, SeededWeights())
        found, start = (verify(bundle, log, samples, batch=batch, card="twin")
                        for samples, batch in ((batches * BATCH, BATCH), (1, 1)))
    assert not found.different, found.different
    seconds = (found.cycles[0] / found.batches - start.cycles[0]) / found.clock_mhz / 1e6
    return (plan.cards[0].dram.seconds / seconds,
            sum(item.lookups * item.dram_s + item.bags_s for item in items) / seconds)


def drawn(rows: int, exponent: float, bag: int) -> Log:
    random, samples = np.random.default_rng(rows), DRAWN_BATCHES * BATCH
    share = 1 / np.arange(1, rows + 1) ** exponent
    ids = random.permutation(rows)[random.choice(rows, samples * bag, p=share / share.sum())]
    return of_arrays({"rows": ids}, {"rows": np.arange(samples + 1) * bag})


@bench("plan_window")
def windowed() -> Iterator[Row]:
    """Rows found again in the core's window: the planner's time of DRAM beside twins."""
    logs = [*logs_of_plan(), ("criteo", shuffled(ClickLog(needed(CALIBRATION), seed=11), CRITEO_SAMPLES))]
    for (name, log), dim in product(logs, DIMS):
        planned, every = beside_twin(log, dim, BATCHES)
        what = f"{name}, rows of {dim} values: time of DRAM from a twin's"
        yield at_most(f"plan.window.{name}.d{dim}", what, round(100 * abs(planned - 1), 1), "%", OFF)
        yield figure(f"plan.window.{name}.d{dim}.every", f"{what}, as if every access were fetched",
                     round(100 * (every - 1), 1), "%")
    found = np.array([beside_twin(drawn(*each), dim, DRAWN_BATCHES) for each, dim in product(DRAWN, DIMS)])
    what = f"{len(found)} tables of 30 to 200,000 rows, uniform and Zipf, bags of 1 and 8: time of DRAM over a twin's"
    for id, at, less in (("planned", 0, ""), ("every", 1, ", as if every access were fetched")):
        for end, part in (("low", 0), ("mid", 50), ("high", 100)):
            yield figure(f"plan.window.drawn.{id}.{end}", f"{what}{less}, percentile {part}",
                         round(float(np.percentile(found[:, at], part)), 3), "x")
    yield figure("plan.window.drawn.within", f"{what}, within {OFF:g} %",
                 int((abs(found[:, 0] - 1) <= OFF / 100).sum()), "of them")
