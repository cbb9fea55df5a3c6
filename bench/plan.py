"""The planner's program: the gap that is proven, beside the program as SCRec writes it.

Meta's 856 and 788 tables by their published statistics and Criteo Kaggle's 26, on 8 SmartSSDs; costs from the memory
models and the golden cycle models. Meta's also as if no access were to rows that the statistics lack: then every row
that is read fits the cards, which fills the tensor trains' memory and is harder. Tables may lie on several cards, but
for the program as written: HiGHS on eq. 3 to 37 for the time that the target allows. Times are those of a processor
core, as other jobs may share the cores.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from bench.data import CALIBRATION, LOGS, needed
from bench.framework import Row, at_least, at_most, bench, figure
from bench.plan_as_written import as_written
from fpga.card.costs import measure
from gen.data.logs import Trace, of_arrays, open_log
from gen.data.logs.criteo import ClickLog, drawn
from gen.data.logs.log import Log
from gen.data.profile import Heat, Profile
from gen.data.profiling import profile as profiled
from gen.data.profiling.criteo import criteo
from gen.data.profiling.held import parted
from gen.data.profiling.mels import mels
from gen.data.remap import DEVICE_SHIFT, DRAM, ROWS_AT_MOST, SSD
from gen.model.network import Model
from gen.model.recommender import Recommender
from gen.planner.assume import model_of
from gen.planner.bound import Master
from gen.planner.build import bags_of, build
from gen.planner.choices import TIMES, Choices, with_levels
from gen.planner.costs import CORE_SHARE, LINE_BYTES, Costs
from gen.planner.moves import fewest
from gen.planner.plan import Plan
from gen.planner.planning import least_reading, make, must_read
from gen.planner.problem import Idle, Item, Placement, Problem
from gen.planner.refresh import Refreshed, Residents, in_rows, refresh, words_of
from gen.planner.solve import Infeasible, solve
from gen.planner.work import Deadline

STATISTICS, TABLES = "mels_stats/locality_stats_{}.txt", {2021: 856, 2022: 788}
CARDS, DIM, BATCH = 8, 64, 2048
SECONDS, GAP = 60.0, 0.01
SMALL_SECONDS = 2.0
REFRESH_CARDS, WITHIN, MOVED = 2, 0.05, 0.2
SCALE = {8: 20.0, 64: 60.0, 256: 200.0}     # seconds of a processor core, by the cards
ROWS_GAP = 0.005
WIDE = 512     # values of a row
SCALING_SECONDS, SCALING_GAP, SCALING = 10.0, 0.001, 7.0


@cache
def costs():
    return measure("smartssd", "smartssd", dims={DIM})


def model(profile: Profile, network: Model | None = None) -> Recommender:
    return replace(model_of(profile, DIM, BATCH)[0], network=network)


def problem(profile: Profile, *, network: Model | None = None, unseen: bool = True) -> Problem:
    """Of whole tables."""
    return build(model(profile, network), profile, costs(), cards=CARDS, unseen=unseen, tt_share=1.0,
                 table_wise=True).problem


def planned(id: str, what: str, profile: Profile, seconds: float, *, network: Model | None = None,
            unseen: bool = True) -> Iterator[Row]:
    """What `hotrail plan --quick` does behind the profile: the program made, both searches, the wait for the drive."""
    of = model(profile, network)
    start = time.process_time()
    plan = make(of, profile, costs(), cards=CARDS, unseen=unseen, tt_share=1.0, tt_gain=0.0, gap=GAP,
                seconds=seconds, explain=False)
    yield at_most(f"{id}.seconds", f"{what}: time of a processor core", round(time.process_time() - start, 2), "s",
                  seconds)
    yield at_most(f"{id}.gap", f"{what}: optimality gap", round(100 * plan.gap, 3), "%", 100 * GAP)
    yield figure(f"{id}.batch", f"{what}: a batch of {BATCH}", round(1e3 * plan.seconds, 4), "ms")


def written(id: str, what: str, problem: Problem, seconds: float, ours: Placement) -> Iterator[Row]:
    outcome = as_written(problem, seconds=seconds, threads=2)
    if outcome.placement is None:
        yield figure(f"{id}.written", f"{what}, as written in {seconds:g} s", "none found", "")
    else:
        yield figure(f"{id}.written", f"{what}, as written in {seconds:g} s: gap",
                     round(100 * outcome.placement.gap, 2) if outcome.bound else "no bound", "%")
        yield figure(f"{id}.written.ratio", f"{what}, as written: time over ours",
                     round(outcome.placement.seconds / ours.seconds, 3), "x")


def logs_of_plan() -> Iterator[tuple[str, Log]]:
    """Real logs by name."""
    yield "movielens", open_log("movielens")
    for file in LOGS:
        yield file.split("_")[0], open_log(needed(f"{file}.npz"))


def shuffled(log: ClickLog, samples: int) -> Log:
    """Samples of a calibration with other row numbers: its own rise as rows get colder, which no log's do."""
    g, trace = np.random.default_rng(1), Trace.of(drawn(log, samples))
    return of_arrays({table.name: g.permutation(table.rows)[trace.indices[table.name]] for table in log.tables},
                     source=log.source)


class Leaving:
    """A table that has left some of its cards, as gen.planner.moves takes it: rows of the SSD come to DRAM that others
    left, so that none goes for them."""

    def __init__(self, plan: Plan, name: str, cards: tuple[int, ...], words: NDArray[np.uint32], profile: Profile,
                 costs: Costs):
        table = replace(plan.tables[name], cards=cards)
        of = Residents(replace(plan, tables={name: table}), name, words, profile, costs)
        cold = np.flatnonzero(words >> DEVICE_SHIFT == SSD)
        self.cold = cold[np.argsort(-of.heat[cold], kind="stable")]
        self.cards, self.rows, self.most = cards, len(cards), int(np.count_nonzero(of.heat[cold]))
        self.of, self.costs = of, costs
        self.page = (words[self.cold] & (ROWS_AT_MOST - 1)).astype(np.int64) // of.shard.page_rows
        self.bytes = of.shard.dram_bytes(table.dram.rows + self.most, costs)

    def seconds(self, swaps: int) -> NDArray[np.float64]:
        heat = self.of.heat[self.cold]
        places = self.of.places.copy()
        places[DRAM] += heat[:swaps].sum()
        places[SSD] -= heat[:swaps].sum()
        pages = np.bincount(self.page[swaps:], heat[swaps:]).astype(np.int64)
        fetches = self.of.fetched + float(self.of.fetches[self.cold[:swaps]].sum())
        return self.of.shard.load(places, Heat.of(pages), fetches, self.costs, self.of.brought)


def by_leaving(plan: Plan, words: Mapping[str, NDArray[np.uint32]], profile: Profile, most_s: float,
               costs: Costs) -> int | None:
    """The fewest rows that are written for batches of so many seconds where tables with rows on the SSD leave cards
    of those among which they share samples, so that whatever the others need comes to DRAM that is free; None: no such
    placement is fast enough. Of a plan without tensor trains and networks; two tables at most."""
    limit = most_s - costs.idle.seconds
    options = {}
    for name, table in plan.tables.items():
        some = [each for count in range(1, len(table.cards) + 1) for each in combinations(table.cards, count)]
        options[name] = [Leaving(plan, name, each, words[name], profile, costs)
                         for each in (some if table.ssd.rows and table.by == "samples" else [table.cards])]
    least = None
    for chosen in product(*options.values()):
        if any(sum(each.bytes for each in chosen if card in each.cards) > plan.capacity["dram"]
               for card in range(len(plan.cards))):
            continue
        try:
            found = fewest(chosen, limit, gap=0.01, until=Deadline.of(SMALL_SECONDS, SECONDS)).rows
        except Infeasible:
            continue
        least = found if least is None else min(least, found)
    return least


def refreshed(name: str, log: Log) -> Iterator[tuple[str, str, Refreshed | None, int | None]]:
    """(id, what, the first half's plan refreshed by the second half or None where no swaps are fast enough, rows that
    move if tables leave cards): on cards as they are, on one with DRAM for half of the rows, on four with DRAM for a
    tenth of them, each of which serves a quarter of the samples. The model has a row for every id of the log."""
    whole = profiled(log)
    vocabularies = {table.name: table.ids for table in whole.tables.values() if table.ids is not None}
    first, second = (profiled(part) for part in parted(log, 0.5))
    of = model(whole)
    by_row, rows = in_rows(of, first, vocabularies)
    all_bytes = sum(spec.rows * costs().row_bytes(spec.dim) for spec in of.tables.values())
    bags = sum(item.bags_bytes for item in build(by_row, rows, costs(), cards=1).problem.items)
    for id, what, cards, room in ((name, name, REFRESH_CARDS, costs().dram_bytes),
                                  (f"{name}.half", f"{name}, one card, DRAM for half of the rows", 1,
                                   bags + all_bytes // 2),
                                  (f"{name}.tenth", f"{name}, 4 cards, DRAM for a tenth of the rows", 4,
                                   bags // 4 + all_bytes // 10)):
        limited = replace(costs(), dram_bytes=room)
        plan = make(by_row, rows, limited, cards=cards, levels=2, seconds=SMALL_SECONDS, explain=False)
        words = words_of(plan, rows)
        try:
            found = refresh(replace(plan, model=of), words, vocabularies, second, limited, seconds=SMALL_SECONDS)
        except ValueError:
            yield id, what, None, None
            continue
        yield id, what, found, by_leaving(plan, words, in_rows(of, second, vocabularies)[1],
                                          (1 + WITHIN) * found.fresh.seconds, limited) if found.rows else None


@bench("plan_refresh")
def refreshing() -> Iterator[Row]:
    """Plans of a log's first half refreshed by its second half: rows that move, and time, beside a plan made afresh."""
    for name, log in logs_of_plan():
        for id, what, found, left in refreshed(name, log):
            if found is None:
                yield figure(f"plan.refresh.{id}", f"{what}: rows that move", "no swaps are fast enough", "")
                continue
            slower = found.plan.seconds / found.fresh.seconds
            share = round(100 * found.rows / max(found.fresh_rows, 1), 2)
            about = f"{what}: rows that move, of those of a plan made afresh"
            yield at_most(f"plan.refresh.{id}.seconds", f"{what}: time over a plan made afresh", round(slower, 3), "x",
                          1 + WITHIN)
            if id.endswith(".tenth"):
                yield figure(f"plan.refresh.{id}", about, share, "%")
            else:
                yield at_most(f"plan.refresh.{id}", about, share, "%", 100 * MOVED)
            if found.rows:
                yield figure(f"plan.refresh.{id}.rows", f"{what}: rows that move", found.rows, "rows")
                yield figure(f"plan.refresh.{id}.least", f"{what}: rows that must move", found.least, "rows")
                if left is not None:
                    yield figure(f"plan.refresh.{id}.leaving", f"{what}: rows that would move if tables left cards",
                                 left, "rows")
                yield figure(f"plan.refresh.{id}.stayed", f"{what}: time if none moved, over a plan made afresh",
                             round(found.stayed_s / found.fresh.seconds, 3), "x")


def scaled(name: str, log: Log) -> Iterator[Row]:
    """One card and all: tables on several cards, and whole ones."""
    profile = profiled(log)
    of = model(profile)

    def planned_on(cards: int, table_wise: bool = False) -> Plan:
        return make(of, profile, costs(), cards=cards, seconds=SCALING_SECONDS, table_wise=table_wise, explain=False)

    start = time.process_time()
    shared = planned_on(CARDS)
    yield at_most(f"plan.{name}.seconds", f"{name}, {len(of.tables)} tables x {CARDS} cards: time of a processor "
                  "core", round(time.process_time() - start, 2), "s", SCALING_SECONDS)
    yield at_most(f"plan.{name}.gap", f"{name}, {len(of.tables)} tables x {CARDS} cards: optimality gap",
                  round(100 * shared.gap, 4), "%", 100 * SCALING_GAP)
    one, whole = planned_on(1), planned_on(CARDS, table_wise=True)
    yield at_least(f"plan.scaling.{name}", f"{name}, {len(of.tables)} tables: rate of {CARDS} cards over one card's",
                   round(one.seconds / shared.seconds, 2), "times", SCALING)
    yield figure(f"plan.scaling.{name}.whole", f"{name}: the same, every table whole on a card",
                 round(one.seconds / whole.seconds, 2), "times")
    yield figure(f"plan.scaling.{name}.batch", f"{name}: a batch of {BATCH} on {CARDS} cards",
                 round(1e6 * shared.seconds, 2), "us")


class Least:
    """A plan on DRAM and SSD, beside what no placement betters that could do more than the planner's."""

    def __init__(self, profile: Profile, of: Recommender, costs: Costs, seconds: float, unseen: bool):
        self.costs, self.seconds = costs, make(of, profile, costs, cards=CARDS, levels=2, gap=ROWS_GAP,
                                               seconds=seconds, unseen=unseen, explain=False).seconds
        kept = replace(costs, ring_bytes=1 << 40)
        self.built = with_levels(build(of, profile, kept, cards=CARDS, unseen=unseen).problem, 2)
        self.joined = joined(self.built, of, profile, costs)

    def gain(self, problem: Problem) -> float:
        """Percent that the plan takes over the bound."""
        least = min(anywhere(problem, self.costs.idle), self.seconds)
        return round(100 * (self.seconds / least - 1), 3)


def joined(built: Problem, of: Recommender, profile: Profile, costs: Costs) -> Problem:
    """A problem that bounds placements with products of tables (MicroRec), which have a row of DRAM for each pair of
    rows, with the values of both: a table of at most one index per sample whose product with another such table fits
    the DRAM of all cards costs what its bytes cost in the widest rows, and no index."""
    wide = measure("smartssd", "smartssd", dims={WIDE}).row_s
    line_s = min(seconds / lines for lines, seconds in {**wide, **costs.row_s}.items()) / CORE_SHARE
    single = [item for item in built.items if profile.tables[item.name].bag_lengths.max(initial=0) <= 1
              and profile.tables[item.name].pooling <= 1]

    def least(item: Item) -> Item:
        if not any(other is not item and item.total_rows * other.total_rows * (item.row_bytes + other.row_bytes)
                   <= built.cards * built.dram_bytes for other in single):
            return item
        spec = of.tables[item.name]
        vectors = bags_of(spec, 0.0, of.batch, costs).out_s / costs.link_s
        return replace(item, dram_s=min(item.dram_s, max(item.row_bytes / LINE_BYTES * line_s, 1 / costs.clock_hz)),
                       bags_s=vectors * (costs.write_s + costs.read_s), in_s=0.0, bags_bytes=0)

    names = {item.name for item in single}
    return replace(built.mapped(lambda item: least(item) if item.name in names else item), shardings=())


def anywhere(built: Problem, idle: Idle) -> float:
    """Seconds that no placement betters in which every row of a table may lie on any cards, with embedding alone.

    The linear program of whole tables shares out times and memories of all cards. Whatever card a row is on, all cards
    together have at least the load of the table whole with the same rows in DRAM and TT: as many accesses, pages and
    indices, and a pooled vector of each bag at least. So it is a bound, with splits that no single card holds, and a
    problem without tensor trains whose rings keep all pages of a batch.
    """
    def bound(of: Problem) -> float:
        memories = ("dram_bytes", "tt_bytes", "ssd_bytes")
        choices = Choices.of(replace(of, **{name: of.cards * getattr(of, name) for name in memories}))
        return Master(replace(choices, cap=np.append(choices.cap[:TIMES], [getattr(of, name) for name in memories]))) \
            .seconds(of.cards).bound

    whole = replace(built, shardings=(), idle=replace(idle, page_s=0.0))
    reading = max(bound(whole), least_reading(replace(whole, idle=idle)))
    if any(must_read(item) for item in whole.items):
        return reading
    penalised = whole.mapped(lambda item: replace(
        item, drive_curve=(item.rows, item.drive_s + (item.reads > 0))))     # a second per table
    return min(reading, bound(penalised))


@bench("plan_rows")
def rows_on_cards() -> Iterator[Row]:
    """What rows of a table on different cards, and products of small tables, could gain at most."""
    cases = [(name, name, profiled(log), SCALING_SECONDS, True) for name, log in logs_of_plan()]
    cases.append(("criteo", "Criteo", criteo(needed(CALIBRATION)), SMALL_SECONDS, True))
    for year in TABLES:
        statistics = mels(needed(STATISTICS.format(year)))
        cases += [(f"mels{year}", f"MELS {year}", statistics, SECONDS, True),
                  (f"mels{year}.hot", f"MELS {year}, no access to rows that it lacks", statistics, SECONDS, False)]
    for name, what, profile, seconds, unseen in cases:
        least = Least(profile, model(profile), costs(), seconds, unseen)
        yield at_most(f"plan.rows.{name}", f"{what}, {CARDS} cards: gain by rows of a table on different cards, at "
                      "most", least.gain(least.built), "%", 100 * GAP)
        yield figure(f"plan.join.{name}", f"{what}, {CARDS} cards: gain by joining small tables, and by rows of a "
                     "table on different cards, at most", least.gain(least.joined), "%")


@bench("plan_scale")
def scale() -> Iterator[Row]:
    """MELS 2021, 856 tables, on more and more cards."""
    profile = mels(needed(STATISTICS.format(2021)))
    of = model(profile)
    costs()
    for cards, seconds in SCALE.items():
        what = f"MELS 2021, {len(of.tables)} tables x {cards} cards"
        start = time.process_time()
        plan = make(of, profile, costs(), cards=cards, tt_share=1.0, tt_gain=0.0, gap=GAP, seconds=SECONDS,
                    explain=False)
        yield at_most(f"plan.scale.{cards}.seconds", f"{what}: time of a processor core",
                      round(time.process_time() - start, 1), "s", seconds)
        yield at_most(f"plan.scale.{cards}.gap", f"{what}: optimality gap", round(100 * plan.gap, 3), "%", 100 * GAP)
        yield figure(f"plan.scale.{cards}.batch", f"{what}: a batch of {BATCH}", round(1e3 * plan.seconds, 4), "ms")


@bench("plan_scaling")
def scaling() -> Iterator[Row]:
    """Logs of a few tables on one card and on eight, tables on several cards or whole."""
    for name, log in logs_of_plan():
        yield from scaled(name, log)


@bench("plan")
def plan() -> Iterator[Row]:
    """Placements of 856, 788 and 26 tables on 8 cards, optimality gaps; the program as written."""
    calibration, *statistics = (needed(file) for file in (CALIBRATION, *(STATISTICS.format(year) for year in TABLES)))
    item = Item("t", np.array([0, 1]), 1, 4, 1.0, 1.0, 1.0, 1.0, np.zeros(1, np.int64), np.zeros(1))
    tiny = Problem((item,), 1, 4, 0, 4)
    solve(tiny, gap=0.0)        # compiles the loops
    small = criteo(calibration)
    network = Model.load("screc_rm3", dim=DIM)
    for id, what, networks in (("plan.criteo", "Criteo, 26 tables x 8 cards", None),
                               ("plan.criteo.rm3", "the same with RM3's networks", network)):
        yield from planned(id, what, small, SMALL_SECONDS, network=networks)
        each = problem(small, network=networks)
        yield from written(id, what, each, SECONDS / 4, solve(each, gap=0.0, seconds=SMALL_SECONDS))
    for (year, tables), path in zip(TABLES.items(), statistics, strict=True):
        assert path is not None
        profile = mels(path)
        for id, what, unseen in ((f"plan.mels{year}", f"MELS {year}, {tables} tables x 8 cards", True),
                                 (f"plan.mels{year}.hot", f"MELS {year}, no access to rows that it lacks", False)):
            yield from planned(id, what, profile, SECONDS, unseen=unseen)
            if unseen:
                each = problem(profile)
                yield from written(id, what, each, SECONDS, solve(each, gap=GAP, seconds=SECONDS))
