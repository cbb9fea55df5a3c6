"""Plans beside twins on whole logs, ids as given, permuted, samples shuffled; and bounds beside plans at more steps.

Where ids rise with time, cold rows that are asked for together lie on the same pages of the drive; permuted ids and
shuffled samples take that away, one by place and one by time. A log serves itself, so that no access is to a row that
it lacks.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
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
from gen.data.profile import Profile
from gen.data.profiling import profile as profiled
from gen.model.recommender import Recommender
from gen.model.weights import SeededWeights
from gen.planner import build as building
from gen.planner.assume import model_of
from gen.planner.build import build
from gen.planner.costs import Costs
from gen.planner.plan import Plan
from gen.planner.planning import make

FILES = ("nowplaying_128k", "grocery_122k", "anime_420k", "msweb", "openbandit_60k")
FORMS = ("given", "permuted", "shuffled")
CARDS = (1, 2, 4)
MEDIAN, WORST = 3.0, 10.0
SECONDS, PARTS, FINE, GAP = 24.0, (2, 8), 600, 1.0


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


def with_room(of: Recommender, known: Profile, cards: int, part: float) -> Costs:
    """Cards with DRAM for so many a part of all rows together, and what else must lie there."""
    items = build(of, known, costs(), cards=1, unseen=False).problem.items
    rows = sum(item.total_rows * item.row_bytes for item in items)
    return replace(costs(), dram_bytes=sum(item.bags_bytes for item in items) // cards + int(rows / part / cards))


def beside_twin(log: Log, cards: int) -> tuple[Plan, float]:
    """The plan, and its time of a batch over that of twins, the slowest card's."""
    known = profiled(log)
    of = model_of(known, DIM, BATCH)[0]
    plan = make(of, known, with_room(of, known, cards, 2 / cards), cards=cards, levels=2, unseen=False, seconds=SECONDS,
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


def finer(of: Recommender, known: Profile, costs: Costs, cards: int) -> tuple[Plan, Plan]:
    """A plan, and one at more steps."""
    found, usual = [], building.STEPS
    try:
        for steps in (usual, FINE):
            building.STEPS = steps
            found.append(make(of, known, costs, cards=cards, levels=2, unseen=False, seconds=SECONDS, explain=False))
    finally:
        building.STEPS = usual
    return found[0], found[1]


@bench("plan_bound")
def bounds() -> Iterator[Row]:
    """Plans at many steps against the bounds of plans at few, and the gaps of these."""
    gaps, beaten = [], 0
    for file in FILES:
        name, log = file.split("_")[0], open_log(needed(f"{file}.npz"))
        known = profiled(log)
        of = model_of(known, DIM, BATCH)[0]
        for number, part in product(CARDS, PARTS):
            plan, fine = finer(of, known, with_room(of, known, number, part), number)
            beaten += fine.seconds < plan.bound * (1 - 1e-9)
            gaps.append(100 * plan.gap)
            yield figure(f"plan.bound.{name}.{number}.{part}", f"{name}, {number} cards, DRAM for 1 / {part} of the "
                         "rows: optimality gap", round(gaps[-1], 2), "%")
    yield at_most("plan.bound.beaten", f"{len(gaps)} plans at {FINE} steps: faster than the bound at {building.STEPS}",
                  beaten, "of them", 0)
    yield at_most("plan.bound.gap", f"{len(gaps)} plans: optimality gap, median", round(float(np.median(gaps)), 2), "%",
                  GAP)
