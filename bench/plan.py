"""The planner's program: the gap that is proven, beside the program as SCRec writes it and TorchRec's own planner.

Meta's 856 and 788 tables by their published statistics and Criteo Kaggle's 26, on 8 SmartSSDs; costs from the memory
models and the golden cycle models. Meta's also as if no access were to rows that the statistics lack: then every row
that is read fits the cards, which fills the tensor trains' memory and is harder. Tables may lie on several cards, but
where placements are compared: as written, HiGHS on eq. 3 to 37 for the time that the target allows; TorchRec's planner
(greedy proposals, greedy by perf onto cards), which chooses among the same splits. Its cost has a card take its
memories one after another, so both placements are compared under that cost, too.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
from numba import njit

from bench.data import CALIBRATION, LOGS, needed
from bench.framework import Row, at_least, at_most, bench, figure
from fpga.card.costs import measure
from gen.data.logs import open_log
from gen.data.logs.log import Log
from gen.data.profile import Profile
from gen.data.profiling import profile as profiled
from gen.data.profiling.criteo import criteo
from gen.data.profiling.held import parted
from gen.data.profiling.mels import mels
from gen.model.network import Model
from gen.model.recommender import Recommender
from gen.planner.assume import model_of
from gen.planner.bound import Master
from gen.planner.build import build
from gen.planner.choices import TIMES, Choices, loads, with_levels
from gen.planner.plan import Plan
from gen.planner.planning import least_reading, make, must_read
from gen.planner.problem import Item, Placement, Problem, TableChoice
from gen.planner.program import as_written
from gen.planner.refresh import Refreshed, in_rows, refresh, words_of
from gen.planner.served import served
from gen.planner.solve import solve

STATISTICS, TABLES = "mels_stats/locality_stats_{}.txt", {2021: 856, 2022: 788}
CARDS, DIM, BATCH = 8, 64, 2048
SECONDS, GAP = 60.0, 0.01
SMALL_SECONDS = 2.0
DRIFT_CARDS, DRIFT = 2, 1.1
WITHIN, MOVED = 0.05, 0.2
LARGE_TABLES, LARGE_CARDS, LARGE_SECONDS, LARGE_GAP = 2000, 64, 120.0, 0.02
ROWS_GAP = 0.005
SCALING_SECONDS, SCALING_GAP, SCALING = 10.0, 0.001, 7.0
TENTHS = 10         # TorchRec's planner chooses a table's cuts among tenths of its accesses


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
    start = time.perf_counter()
    plan = make(of, profile, costs(), cards=CARDS, unseen=unseen, tt_share=1.0, tt_gain=0.0, gap=GAP,
                seconds=seconds, explain=False)
    yield at_most(f"{id}.seconds", f"{what}: time", round(time.perf_counter() - start, 2), "s", seconds)
    yield at_most(f"{id}.gap", f"{what}: optimality gap", round(100 * plan.gap, 3), "%", 100 * GAP)
    yield figure(f"{id}.batch", f"{what}: a batch of {BATCH}", round(1e3 * plan.seconds, 4), "ms")


def serial(item: Item) -> Item:
    """The same table where a card takes its memories and its link one after another: all seconds are those of DRAM."""
    share = item.share
    return replace(item, dram_s=item.dram_s - item.tt_s, tt_s=0.0, ssd_s=0.0, in_s=0.0, out_s=0.0, page_in_s=0.0,
                   bags_s=item.bags_s + item.in_s + item.out_s,
                   ssd_landing=item.landing + item.reads * (item.ssd_s + item.page_in_s)
                   + item.lookups * item.tt_s * share)


def torchrec(problem: Problem, cards: int) -> tuple[TableChoice, ...] | None:
    """The placement by TorchRec's EmbeddingShardingPlanner, of tables that lie whole on a card: its table-wise kind.

    GreedyProposer: each table begins with its fastest option; each further proposal gives the table that takes most
    storage (here: of a card's memories the largest part) its next slower one. GreedyPerfPartitioner puts the tables of
    a proposal, slowest first, each on the card with the least sum so far that has the storage. The best proposal wins.
    """
    choices = Choices.of(problem)
    options, starts = [], [0]
    for j, item in enumerate(problem.items):
        at = choices.cut[j, : choices.cuts[j]]
        at = np.unique(at[np.searchsorted(item.share[at], np.arange(TENTHS + 1) / TENTHS - 1e-9).clip(max=len(at) - 1)])
        pairs = np.array([(x, y) for x in at for y in at if np.isfinite(choices.tt[j, x, y])])
        if not len(pairs):
            return None
        load = choices.load(np.full(len(pairs), j), pairs[:, 0], pairs[:, 1])
        order = np.argsort(load[:, :TIMES].sum(axis=1), kind="stable")
        options.append((pairs[order], load[order]))
        starts.append(starts[-1] + len(pairs))
    pairs, load = (np.concatenate(each) for each in zip(*options, strict=True))
    found, best = _torchrec(np.array(starts), load[:, :TIMES].sum(axis=1), load[:, TIMES:], choices.cap[TIMES:], cards)
    if not np.isfinite(best):
        return None
    return tuple(TableChoice((int(card),), int(a), int(h))
                 for card, (a, h) in zip(found[0], pairs[found[1]], strict=True))


@njit(cache=True)
def _torchrec(starts, perf, storage, cap, cards):
    tables = len(starts) - 1
    current = starts[:-1].copy()
    best, found = np.inf, np.zeros((2, tables), np.int64)
    while True:
        card, sums, used = np.zeros(tables, np.int64), np.zeros(cards), np.zeros((cards, 3))
        fits = True
        for j in np.argsort(-perf[current]):
            least = -1
            for m in range(cards):
                room = True
                for r in range(3):
                    room = room and used[m, r] + storage[current[j], r] <= cap[r]
                if room and (least < 0 or sums[m] < sums[least]):
                    least = m
            if least < 0:
                fits = False
                break
            card[j] = least
            sums[least] += perf[current[j]]
            for r in range(3):
                used[least, r] += storage[current[j], r]
        if fits and sums.max() < best:
            best = sums.max()
            found[0], found[1] = card, current
        largest, most = -1, -1.0
        for j in range(tables):
            size = 0.0
            for r in range(3):
                size = max(size, storage[current[j], r] / max(cap[r], 1.0))
            if current[j] + 1 < starts[j + 1] and size > most:
                largest, most = j, size
        if largest < 0:
            return found, best
        current[largest] += 1


def peak(problem: Problem, chosen: tuple[TableChoice, ...], cards: int) -> float:
    """Seconds of embedding of the slowest card."""
    return max(card.seconds for card in loads(problem, chosen, cards))


def timed(problem: Problem, seconds: float, gap: float = GAP) -> tuple[Placement, float]:
    start = time.perf_counter()
    placement = solve(problem, gap=gap, seconds=seconds)
    return placement, time.perf_counter() - start


def written(id: str, what: str, problem: Problem, seconds: float, ours: Placement) -> Iterator[Row]:
    outcome = as_written(problem, seconds=seconds, threads=2)
    if outcome.placement is None:
        yield figure(f"{id}.written", f"{what}, as written in {seconds:g} s", "none found", "")
    else:
        yield figure(f"{id}.written", f"{what}, as written in {seconds:g} s: gap",
                     round(100 * outcome.placement.gap, 2) if outcome.bound else "no bound", "%")
        yield figure(f"{id}.written.ratio", f"{what}, as written: time over ours",
                     round(outcome.placement.seconds / ours.seconds, 3), "x")


def peers(id: str, what: str, problem: Problem, limit: float) -> Iterator[Row]:
    """Of embedding alone: TorchRec's planner knows no networks. Ours gets so many seconds and no gap to stop at."""
    alone = replace(problem, bottom_s=0.0, top_s=0.0, features_s=0.0, predictions_s=0.0)
    start = time.perf_counter()
    theirs = torchrec(alone, CARDS)
    seconds = time.perf_counter() - start
    yield figure(f"{id}.torchrec.seconds", f"{what}, TorchRec's planner (own code): time", round(seconds, 2), "s")
    if theirs is None:
        yield figure(f"{id}.torchrec", f"{what}, TorchRec's planner", "none found", "")
        return
    ours, _ = timed(alone, limit, 0.0)
    yield at_most(f"{id}.torchrec", f"{what}, ours over TorchRec's: memories at once",
                  round(ours.seconds / peak(alone, theirs, CARDS), 3), "x", 1.0)
    one = alone.mapped(serial)
    ours, _ = timed(one, limit, 0.0)
    yield at_most(f"{id}.torchrec.serial", f"{what}, ours over TorchRec's: its own cost, one memory after another",
                  round(ours.seconds / peak(one, theirs, CARDS), 3), "x", 1.0)


def logs_of_plan() -> Iterator[tuple[str, Log]]:
    """Real logs by name."""
    yield "movielens", open_log("movielens")
    for file in LOGS:
        yield file.split("_")[0], open_log(needed(f"{file}.npz"))


def drifted(name: str, log: Log) -> Iterator[Row]:
    """The second half of a log, served by the plan of its first half, against a plan that knew it: batches by the
    planner's costs. Once on cards as they are, once on one card with DRAM for half of the rows."""
    first, second = (profiled(part) for part in parted(log, 0.5))
    of = model(profiled(log))
    rows = sum(spec.rows * costs().row_bytes(spec.dim) for spec in of.tables.values())
    bags = sum(item.bags_bytes for item in build(of, first, costs(), cards=1).problem.items)
    for id, what, cards, room in (
            (f"plan.drift.{name}", f"{name}, second half by the first half's plan", DRIFT_CARDS, costs().dram_bytes),
            (f"plan.drift.{name}.half", f"{name}, the same with DRAM for half of the rows", 1, bags + rows // 2)):
        held = {part: served(make(of, part, replace(costs(), dram_bytes=room), cards=cards, seconds=SMALL_SECONDS,
                                  explain=False), part, second, costs()) for part in (first, second)}
        yield at_most(id, f"{what}: batch time over that of a plan that knew it",
                      round(held[first].seconds / held[second].seconds, 3), "x", DRIFT)
        yield figure(f"{id}.ssd", f"{what}: accesses to the SSD", round(100 * held[first].shares[""][2], 2), "%")


@bench("plan_drift")
def drift() -> Iterator[Row]:
    """The second half of real logs served by the plan of the first half, beside a plan that knew the second."""
    for name, log in logs_of_plan():
        yield from drifted(name, log)


def refreshed(name: str, log: Log) -> Iterator[tuple[str, str, Refreshed]]:
    """(id, what, the first half's plan refreshed by the second half): on cards as they are, on one with DRAM for half
    of the rows, on four with DRAM for a tenth of them. The model has a row for every id of the log."""
    whole = profiled(log)
    vocabularies = {table.name: table.ids for table in whole.tables.values() if table.ids is not None}
    first, second = (profiled(part) for part in parted(log, 0.5))
    of = model(whole)
    by_row, rows = in_rows(of, first, vocabularies)
    all_bytes = sum(spec.rows * costs().row_bytes(spec.dim) for spec in of.tables.values())
    bags = sum(item.bags_bytes for item in build(by_row, rows, costs(), cards=1).problem.items)
    for id, what, cards, room in ((name, name, DRIFT_CARDS, costs().dram_bytes),
                                  (f"{name}.half", f"{name}, one card, DRAM for half of the rows", 1,
                                   bags + all_bytes // 2),
                                  (f"{name}.tenth", f"{name}, 4 cards, DRAM for a tenth of the rows", 4,
                                   bags + all_bytes // 10)):
        limited = replace(costs(), dram_bytes=room)
        plan = make(by_row, rows, limited, cards=cards, levels=2, seconds=SMALL_SECONDS, explain=False)
        yield id, what, refresh(replace(plan, model=of), words_of(plan, rows), vocabularies, second, limited,
                                seconds=SMALL_SECONDS)


@bench("plan_refresh")
def refreshing() -> Iterator[Row]:
    """Plans of a log's first half refreshed by its second half: rows that move, and time, beside a plan made afresh."""
    for name, log in logs_of_plan():
        for id, what, found in refreshed(name, log):
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
                yield figure(f"plan.refresh.{id}.stayed", f"{what}: time if none moved, over a plan made afresh",
                             round(found.stayed_s / found.fresh.seconds, 3), "x")


def scaled(name: str, log: Log) -> Iterator[Row]:
    """One card and all: tables on several cards, and whole ones."""
    profile = profiled(log)
    of = model(profile)

    def planned_on(cards: int, table_wise: bool = False) -> Plan:
        return make(of, profile, costs(), cards=cards, seconds=SCALING_SECONDS, table_wise=table_wise, explain=False)

    start = time.perf_counter()
    shared = planned_on(CARDS)
    yield at_most(f"plan.{name}.seconds", f"{name}, {len(of.tables)} tables x {CARDS} cards: time",
                  round(time.perf_counter() - start, 2), "s", SCALING_SECONDS)
    yield at_most(f"plan.{name}.gap", f"{name}, {len(of.tables)} tables x {CARDS} cards: optimality gap",
                  round(100 * shared.gap, 4), "%", 100 * SCALING_GAP)
    one, whole = planned_on(1), planned_on(CARDS, table_wise=True)
    yield at_least(f"plan.scaling.{name}", f"{name}, {len(of.tables)} tables: rate of {CARDS} cards over one card's",
                   round(one.seconds / shared.seconds, 2), "times", SCALING)
    yield figure(f"plan.scaling.{name}.whole", f"{name}: the same, every table whole on a card",
                 round(one.seconds / whole.seconds, 2), "times")
    yield figure(f"plan.scaling.{name}.batch", f"{name}: a batch of {BATCH} on {CARDS} cards",
                 round(1e6 * shared.seconds, 2), "us")


def anywhere(built: Problem, drive_s: float) -> float:
    """Seconds that no placement betters in which every row of a table may lie on any cards, with embedding alone.

    The linear program of whole tables shares out times and memories of all cards. Whatever card a row is on, all cards
    together bear at least what the table bears whole with the same rows in DRAM and TT: as many accesses, pages and
    indices, and a pooled vector of each bag at least. So it is a bound, with splits that no single card holds, and a
    problem without tensor trains whose rings keep all pages of a batch.
    """
    def bound(of: Problem) -> float:
        memories = ("dram_bytes", "tt_bytes", "ssd_bytes")
        choices = Choices.of(replace(of, **{name: of.cards * getattr(of, name) for name in memories}))
        return Master(replace(choices, cap=np.append(choices.cap[:TIMES], [getattr(of, name) for name in memories]))) \
            .seconds(of.cards).bound

    whole = replace(built, shardings=())
    reading = max(bound(whole), least_reading(whole, drive_s))
    if any(must_read(item) for item in whole.items):
        return reading
    dear = whole.mapped(lambda item: replace(
        item, ssd_reads=item.reads + np.where(item.reads > 0, 1.0 / item.ssd_s, 0)))      # a second per table
    return min(reading, bound(dear))


@bench("plan_rows")
def rows_on_cards() -> Iterator[Row]:
    """What splitting the rows of a table over cards could gain, beside copies and columns of it, at most."""
    cases = [(name, name, profiled(log), SCALING_SECONDS, True) for name, log in logs_of_plan()]
    cases.append(("criteo", "Criteo", criteo(needed(CALIBRATION)), SMALL_SECONDS, True))
    for year in TABLES:
        statistics = mels(needed(STATISTICS.format(year)))
        cases += [(f"mels{year}", f"MELS {year}", statistics, SECONDS, True),
                  (f"mels{year}.hot", f"MELS {year}, no access to rows that it lacks", statistics, SECONDS, False)]
    for name, what, profile, seconds, unseen in cases:
        of = model(profile)
        plan = make(of, profile, costs(), cards=CARDS, levels=2, gap=ROWS_GAP, seconds=seconds, unseen=unseen,
                    explain=False)
        kept = replace(costs(), ring_bytes=1 << 40)
        built = with_levels(build(of, profile, kept, cards=CARDS, unseen=unseen).problem, 2)
        least = min(anywhere(built, costs().drive_s), plan.seconds)
        yield at_most(f"plan.rows.{name}", f"{what}, {CARDS} cards: gain by rows of a table on different cards, at "
                      "most", round(100 * (plan.seconds / least - 1), 3), "%", 100 * GAP)


@bench("plan_large")
def large() -> Iterator[Row]:
    """2,000 tables on 64 cards: those of MELS 2021 and 2022, and 356 of 2021 once more."""
    known = [(f"{year} {name}", table) for year in TABLES
             for name, table in mels(needed(STATISTICS.format(year))).tables.items()]
    named = {f"{name} {round}": table for round in range(2) for name, table in known}
    tables = {name: replace(table, name=name) for name, table in islice(named.items(), LARGE_TABLES)}
    profile = Profile("MELS 2021 and 2022", next(iter(tables.values())).samples, tables)
    of, what = model(profile), f"{LARGE_TABLES:,} tables x {LARGE_CARDS} cards"
    costs()
    start = time.process_time()
    plan = make(of, profile, costs(), cards=LARGE_CARDS, tt_share=1.0, tt_gain=0.0, gap=LARGE_GAP,
                seconds=LARGE_SECONDS, explain=False)
    yield at_most("plan.large.seconds", f"{what}: time of a processor core", round(time.process_time() - start, 1), "s",
                  LARGE_SECONDS)
    yield at_most("plan.large.gap", f"{what}: optimality gap", round(100 * plan.gap, 3), "%", 100 * LARGE_GAP)
    yield figure("plan.large.batch", f"{what}: a batch of {BATCH}", round(1e3 * plan.seconds, 4), "ms")


@bench("plan_scaling")
def scaling() -> Iterator[Row]:
    """Logs of a few tables on one card and on eight, tables on several cards or whole."""
    for name, log in logs_of_plan():
        yield from scaled(name, log)


@bench("plan")
def plan() -> Iterator[Row]:
    """Placements of 856, 788 and 26 tables on 8 cards, optimality gaps; the program as written and a peer."""
    calibration, *statistics = (needed(file) for file in (CALIBRATION, *(STATISTICS.format(year) for year in TABLES)))
    item = Item("t", np.array([0, 1]), 1, 4, 1.0, 1.0, 1.0, 1.0, np.zeros(1, np.int64), np.zeros(1))
    tiny = Problem((item,), 1, 4, 0, 4)
    solve(tiny, gap=0.0), torchrec(tiny, 1)     # compiles the loops
    small = criteo(calibration)
    network = Model.load("screc_rm3", dim=DIM)
    for id, what, networks in (("plan.criteo", "Criteo, 26 tables x 8 cards", None),
                               ("plan.criteo.rm3", "the same with RM3's networks", network)):
        yield from planned(id, what, small, SMALL_SECONDS, network=networks)
        each = problem(small, network=networks)
        yield from written(id, what, each, SECONDS / 4, timed(each, SMALL_SECONDS, 0.0)[0])
    yield from peers("plan.criteo", "Criteo, 26 tables x 8 cards", problem(small), SMALL_SECONDS)
    for (year, tables), path in zip(TABLES.items(), statistics, strict=True):
        assert path is not None
        profile = mels(path)
        for id, what, unseen in ((f"plan.mels{year}", f"MELS {year}, {tables} tables x 8 cards", True),
                                 (f"plan.mels{year}.hot", f"MELS {year}, no access to rows that it lacks", False)):
            yield from planned(id, what, profile, SECONDS, unseen=unseen)
            if unseen:
                each = problem(profile)
                yield from written(id, what, each, SECONDS, timed(each, SECONDS)[0])
                yield from peers(id, what, each, SECONDS / 4)
