"""Small tables joined into their products, as a placement of the planner: plans with and without, by seconds and twins.

MicroRec's idea where the link does not bind: rows of 16 values, or results in half precision. The bound of what it
could gain is bench.plan's; the plan's own gap is of all placements with pairs.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.data import CALIBRATION, needed
from bench.framework import Row, bench, figure
from bench.plan import CARDS, DIM, SCALING_SECONDS, SMALL_SECONDS, Least, logs_of_plan, model
from fpga.api.verifying import verify
from fpga.card.costs import measure
from gen.bundle import write
from gen.data.logs.log import Log
from gen.data.profile import Profile
from gen.data.profiling import profile as profiled
from gen.data.profiling.criteo import criteo
from gen.model.recommender import RESULTS, Recommender
from gen.model.weights import SeededWeights
from gen.planner.plan import Plan
from gen.planner.planning import make

#: Values of a row, and the format of results.
FORMS = ("d16", 16, RESULTS[0]), ("half", DIM, RESULTS[1]), ("d16half", 16, RESULTS[1])
BATCHES = 4     # on twins


@bench("plan_join")
def joining() -> Iterator[Row]:
    """Small tables joined where rows are narrow, or results in half precision: plans, their bounds, and twins."""
    cases: list[tuple[str, str, Profile, Log | None]] = [(name, name, profiled(log), log)
                                                         for name, log in logs_of_plan()]
    cases.append(("criteo", "Criteo", criteo(needed(CALIBRATION)), None))
    for name, what, profile, log in cases:
        for id, dim, results in FORMS:
            of = model(profile)
            of = replace(of, tables={name: replace(spec, dim=dim, results=results) for name, spec in of.tables.items()})
            what_of = f"{what}, {CARDS} cards, rows of {dim} values, results in {results}"
            if id != "d16half":     # whose vectors share beats, which the bound does not know
                least = Least(profile, of, measure("smartssd", "smartssd", dims={dim}), SMALL_SECONDS, True)
                yield figure(f"plan.join.{name}.{id}", f"{what_of}: gain by joining small tables, at most",
                             least.gain(least.joined), "%")
            yield from joined_plan(f"plan.join.{name}.{id}", what_of, profile, of, log)


def joined_plan(id: str, what: str, profile: Profile, of: Recommender, log: Log | None) -> Iterator[Row]:
    """A plan with joined tables beside one without, by their seconds and by twins of the cards. log: None: its ids are
    not known."""
    dims = {spec.dim for spec in of.tables.values()}
    of_pairs = measure("smartssd", "smartssd", dims=dims | {2 * dim for dim in dims})
    plans = [make(of, profile, of_pairs, cards=CARDS, levels=2, seconds=SCALING_SECONDS, explain=False, join=join)
             for join in (False, True)]
    apart, together = plans
    joined = {table.joined for table in together.tables.values() if table.joined}
    yield figure(f"{id}.pairs", f"{what}: pairs of tables that the plan joins", len(joined), "")
    if joined:
        yield figure(f"{id}.gain", f"{what}: rate of that plan over one without joined tables",
                     round(apart.seconds / together.seconds, 3), "x")
        yield figure(f"{id}.gap", f"{what}: its optimality gap, of all that join or do not",
                     round(100 * together.gap, 3), "%")
    if joined and log is not None:
        seconds = [slowest_twin(plan, profile, log) for plan in plans]
        yield figure(f"{id}.twin", f"{what}: the same rate on twins, every bit the oracle's",
                     round(seconds[0] / seconds[1], 3), "x")
        yield figure(f"{id}.off", f"{what}: batches of twins over the plan's, with joined tables",
                     round(seconds[1] / together.seconds, 3), "x")


def slowest_twin(plan: Plan, profile: Profile, log: Log) -> float:
    """Seconds of a batch on the slowest card's twin, transfers included, every bit the oracle's."""
    with TemporaryDirectory() as folder:
        found = verify(write(Path(folder) / "bundle", plan, profile, SeededWeights()), log, BATCHES * plan.batch,
                       card="twin")
    assert not found.different, found.different
    return max(found.busy.values()) / found.batches / found.clock_mhz / 1e6
