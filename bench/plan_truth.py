"""Plans beside twins on whole logs, DRAM for half of the rows: ids as given, permuted, and samples shuffled.

Where ids rise with time, cold rows that are asked for together lie on the same pages of the drive; permuted ids and
shuffled samples take that away, one by place and one by time. A log serves itself, so that no access is to a row that
it lacks.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.data import needed
from bench.framework import Row, at_most, bench, figure
from bench.plan import BATCH, DIM, costs
from fpga.api.verifying import verify
from gen.bundle import write
from gen.data.logs import Trace, of_arrays, open_log
from gen.data.logs.log import Log
from gen.data.profiling import profile as profiled
from gen.model.weights import SeededWeights
from gen.planner.assume import model_of
from gen.planner.build import build
from gen.planner.plan import Plan
from gen.planner.planning import make

FILES = ("nowplaying_128k", "grocery_122k", "anime_420k", "msweb", "openbandit_60k")
FORMS = ("given", "permuted", "shuffled")
CARDS = (1, 2, 4)
MEDIAN, WORST = 3.0, 10.0
SECONDS = 2.0


def in_form(trace: Trace, form: str) -> Log:
    """The log as it is, with other row numbers, or its samples in another order."""
    random = np.random.default_rng(1)
    ids, edges = dict(trace.indices), dict(trace.offsets)
    if form == "permuted":
        ids = {name: random.permutation(int(each.max()) + 1)[each] for name, each in ids.items()}
    if form == "shuffled":
        order = random.permutation(trace.samples)
        for name, each in ids.items():
            if name not in edges:
                ids[name] = each[order]
                continue
            lengths = np.diff(edges[name])[order]
            ends = np.cumsum(lengths)
            ids[name] = each[np.repeat(edges[name][:-1][order] - ends + lengths, lengths) + np.arange(ends[-1])]
            edges[name] = np.append(0, ends)
    return of_arrays(ids, edges, source=f"{trace.source}, {form}")


def beside_twin(log: Log, cards: int) -> tuple[Plan, float]:
    """The plan, and its time of a batch over that of twins, the slowest card's."""
    known = profiled(log)
    of = model_of(known, DIM, BATCH)[0]
    items = build(of, known, costs(), cards=1, unseen=False).problem.items
    rows = sum(item.total_rows * item.row_bytes for item in items)
    room = sum(item.bags_bytes for item in items) // cards + rows // 2
    plan = make(of, known, replace(costs(), dram_bytes=room), cards=cards, levels=2, unseen=False, seconds=SECONDS,
                explain=False)
    with TemporaryDirectory() as folder:
        bundle = write(Path(folder) / "bundle", plan, known, SeededWeights())
        found = verify(bundle, log, known.samples // BATCH * BATCH, batch=BATCH, card="twin")
    assert not found.different, found.different
    return plan, max(found.expected.values()) / max(found.busy.values())


@bench("plan_truth")
def truth() -> Iterator[Row]:
    """Plans over twins on logs, DRAM for half of the rows."""
    off = []
    for file in FILES:
        name, trace = file.split("_")[0], Trace.of(open_log(needed(f"{file}.npz")))
        for form in FORMS:
            log = in_form(trace, form)
            for number in CARDS:
                plan, over = beside_twin(log, number)
                off.append(100 * abs(over - 1))
                yield figure(f"plan.truth.{name}.{form}.{number}", f"{name}, {form}, {number} cards, "
                             f"{100 * plan.from_ssd:.0f} % of accesses to the SSD: time of a batch over a twin's",
                             round(over, 3), "x")
    what = f"{len(off)} logs and numbers of cards: time of a batch from a twin's"
    yield at_most("plan.truth.median", f"{what}, median", round(float(np.median(off)), 2), "%", MEDIAN)
    yield at_most("plan.truth.worst", f"{what}, worst", round(max(off), 2), "%", WORST)
