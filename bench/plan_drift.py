"""Plans of a log's beginning that serve its end: the stated range of SSD accesses, and a plan that knew the end.

Every id of the whole log has a row of its own, in the order of the ids, for both plans: what the beginning lacks are
rows without accesses. The plan that knew is made of the end, for the end alone, with the same options.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.data import needed
from bench.framework import Row, at_least, at_most, bench, figure
from bench.plan import BATCH, DIM
from bench.plan_truth import FILES, knowing, with_room
from fpga.api.verifying import verify
from gen.bundle import write
from gen.data.logs import Trace, of_arrays, open_log
from gen.data.logs.log import Log
from gen.data.profile import Profile
from gen.data.profiling import profile as profiled
from gen.data.profiling.held import parted
from gen.data.profiling.stream import with_rows
from gen.model.recommender import Recommender
from gen.model.weights import SeededWeights
from gen.planner.assume import model_of
from gen.planner.costs import Costs
from gen.planner.horizon import horizon_of
from gen.planner.plan import Plan
from gen.planner.planning import make
from gen.planner.served import served

CHURN = ("nowplaying", "grocery")       # users and items come and go
SERVED = (0.5, 0.25)                    # of the log, its end
ROOM = (0.1, 0.3, 0.5)                  # of the rows, in DRAM
DRIFT_ROOM, CARDS = 0.3, (1, 2)
WITHIN, WIDTH = 90.0, 8.0
MEDIAN, WORST = 1.05, 1.2
SECONDS = 12.0


def by_row(log: Log) -> Log:
    """With rows for ids."""
    trace = Trace.of(log)
    return of_arrays({name: np.unique(ids, return_inverse=True)[1] for name, ids in trace.indices.items()},
                     trace.offsets, source=trace.source)


def halves(log: Log, end: float) -> tuple[Recommender, Profile, Profile, Log]:
    """The model of the whole log, profiles of its beginning and its end, the end."""
    of = model_of(profiled(log), DIM, BATCH)[0]
    begin, last = parted(log, end)
    rows = {name: spec.rows for name, spec in of.tables.items()}
    first, second = (with_rows(profiled(part), rows) for part in (begin, last))
    return of, first.expecting(end / (1 - end)), second, last


def planned(of: Recommender, known: Profile, costs: Costs, cards: int, *, unseen: bool = True) -> Plan:
    return make(of, known, costs, cards=cards, levels=2, unseen=unseen, seconds=SECONDS, explain=False)


@bench("plan_horizon")
def horizons() -> Iterator[Row]:
    """The range of SSD accesses that plans state, against what the log's end asked for."""
    hits: dict[bool, list[bool]] = {True: [], False: []}
    widths = []
    for file in FILES:
        name, log = file.split("_")[0], by_row(open_log(needed(f"{file}.npz")))
        for end in SERVED:
            of, first, second, _ = halves(log, end)
            for room in ROOM:
                costs = with_room(of, first, 1, 1 / room)
                plan = planned(of, first, costs, 1)
                stated = horizon_of(plan, first, costs)
                found = served(plan, first, second, costs).shares[""][2]
                id, what = f"plan.horizon.{name}.{end:g}.{room:g}", f"{name}, last {end:.0%}, DRAM for {room:.0%}"
                yield figure(id, f"{what} of the rows: accesses to the SSD", round(100 * found, 2), "%")
                yield figure(f"{id}.planned", f"{what} of the rows: accesses to the SSD, as planned",
                             round(100 * plan.from_ssd, 2), "%")
                assert stated is not None
                hits[name in CHURN].append(stated.low <= found <= stated.high)
                widths.append(100 * (stated.high - stated.low))
    for churn, where in ((True, "logs whose users and items come and go"), (False, "other logs")):
        yield at_least(f"plan.horizon.{'churn' if churn else 'other'}", f"{len(hits[churn])} plans of {where}: share "
                       "of SSD accesses within the stated range", round(100 * float(np.mean(hits[churn])), 1), "%",
                       WITHIN)
    yield at_most("plan.horizon.width", f"{len(widths)} plans: stated range of the share of SSD accesses, widest",
                  round(max(widths), 1), "points", WIDTH)


def by_twins(plan: Plan, known: Profile, log: Log, samples: int) -> float:
    """Cycles of the slowest card."""
    with TemporaryDirectory() as folder:
        bundle = write(Path(folder) / "bundle", plan, known, SeededWeights())
        found = verify(bundle, log, samples, batch=BATCH, card="twin")
    assert not found.different, found.different
    return max(found.busy.values())


@bench("plan_drift")
def drift() -> Iterator[Row]:
    """The second half of logs served by twins with the plan of the first half, beside a plan that knew the second."""
    over: dict[bool, list[float]] = {True: [], False: []}
    for file in FILES:
        name, log = file.split("_")[0], by_row(open_log(needed(f"{file}.npz")))
        of, first, second, last = halves(log, 0.5)
        samples = second.samples // BATCH * BATCH
        for cards in CARDS:
            costs = with_room(of, first, cards, 1 / DRIFT_ROOM)
            knew = knowing(second)
            plans = ((planned(of, first, costs, cards), first),
                     (planned(of, knew, costs, cards, unseen=False), knew))
            mine, best = (by_twins(plan, known, last, samples) for plan, known in plans)
            over[name in CHURN].append(mine / best)
            yield figure(f"plan.drift.{name}.{cards}", f"{name}, second half by the first half's plan, DRAM for "
                         f"{DRIFT_ROOM:.0%} of the rows, {cards} cards: time of twins over those of a plan that knew "
                         "it", round(mine / best, 3), "x")
    what = f"{len(over[True])} plans of logs whose users and items come and go, over plans that knew"
    yield at_most("plan.drift.median", f"{what}, median", round(float(np.median(over[True])), 3), "x", MEDIAN)
    yield at_most("plan.drift.worst", f"{what}, worst", round(max(over[True]), 3), "x", WORST)
    yield figure("plan.drift.other", f"{len(over[False])} plans of other logs over plans that knew, worst",
                 round(max(over[False]), 3), "x")
