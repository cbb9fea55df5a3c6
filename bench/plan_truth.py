"""Plans beside twins on whole logs, ids as given, permuted, samples shuffled; and bounds beside plans at more steps.

Batches run one by one, and what the link moves in DRAM is left out of plan and twin. Of ids as given batches also
follow each other: while one is run, the inputs of the next and the vectors of the one before cross the link.

Where ids rise with time, cold rows that are asked for together lie on the same pages of the drive; permuted ids and
shuffled samples take that away, one by place and one by time. A log serves itself, so that no access is to a row that
it lacks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.data import needed
from bench.framework import Row, at_most, bench, figure
from bench.plan import BATCH, DIM, costs
from fpga.api.embedding import EmbeddingBags
from fpga.api.serving import Cards, batches
from fpga.api.verifying import card_seconds, verify
from fpga.card.memory import pages
from gen.bundle import write
from gen.compiler.dies import geometry, over_dies
from gen.compiler.emb import Bags
from gen.data.logs import Trace, of_arrays, open_log
from gen.data.logs.log import Log
from gen.data.profile import Profile
from gen.data.profiling import profile as profiled
from gen.model.device import Device
from gen.model.recommender import Recommender
from gen.model.weights import SeededWeights
from gen.planner import build as building
from gen.planner.assume import model_of
from gen.planner.build import bags_of, build
from gen.planner.costs import Costs
from gen.planner.plan import MEMORIES, DriveUse, Plan
from gen.planner.planning import make
from gen.planner.served import Shard

FILES = ("nowplaying_128k", "grocery_122k", "anime_420k", "msweb", "openbandit_60k")
FORMS = ("given", "permuted", "shuffled")
CARDS = (1, 2, 4)
MEDIAN, WORST = 3.0, 10.0
#: Drawn logs: rows, exponent of Zipf's law, rows of a bag. About half of the rows lie on the SSD, and most bags read a
#: page, while drive and DRAM take about as long.
DRAWN = ((10_000, 0.4, 4), (20_000, 0.8, 8), (20_000, 1.0, 20), (30_000, 0.7, 3), (40_000, 0.6, 6), (60_000, 1.1, 30))
DRAWN_BATCHES, DRAWN_MEDIAN = 8, 5.0
DRIVE_PAGES, DRIVE_READS, DRIVE_BATCHES = (256, 512, 1024, 2048, 4096, 65_536), (64, 128, 400, 1000, 3000), 4
DRIVE_MEDIAN, DRIVE_WORST = 10.0, 20.0
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


def knowing(profile: Profile) -> Profile:
    """As if the same samples came again."""
    return replace(profile, tables={name: replace(table, returns=None) for name, table in profile.tables.items()})


def planned(log: Log, cards: int) -> tuple[Plan, Profile, Costs]:
    known = knowing(profiled(log))
    of = model_of(known, DIM, BATCH)[0]
    room = with_room(of, known, cards, 2 / cards)
    return make(of, known, room, cards=cards, levels=2, unseen=False, seconds=SECONDS, explain=False), known, room


def alone(plan: Plan, costs: Costs) -> Plan:
    """The plan as if nothing crossed the link while a batch is run."""
    bare, less, tables = replace(costs, packet_s=0.0, turn_s=0.0), np.zeros(len(plan.cards)), {}
    for name, table in plan.tables.items():
        shard = Shard.of(plan, name, sum(getattr(table, memory).accesses for memory in MEMORIES), costs)
        with_link, without = (bags_of(shard.spec, shard.lookups, shard.batch, each).seconds for each in (costs, bare))
        less[list(table.cards)] += with_link - without
        tables[name] = replace(table, dram=replace(
            table.dram, seconds=table.dram.seconds - len(table.cards) * (with_link - without)))
    return replace(plan, tables=tables, cards=tuple(
        replace(card, dram=replace(card.dram, seconds=card.dram.seconds - link_s))
        for card, link_s in zip(plan.cards, less.tolist(), strict=True)))


def beside_twin(log: Log, plan: Plan, known: Profile, costs: Costs) -> float:
    """Time of a batch as planned over that of twins, the slowest card's."""
    with TemporaryDirectory() as folder:
        bundle = write(Path(folder) / "bundle", alone(plan, costs), known, SeededWeights())
        found = verify(bundle, log, known.samples // BATCH * BATCH, batch=BATCH, card="twin")
    assert not found.different, found.different
    return max(found.expected.values()) / max(found.busy.values())


def beside_steady_twin(log: Log, plan: Plan, known: Profile) -> float:
    """The same, of batches that follow each other."""
    with TemporaryDirectory() as folder, \
            Cards(write(Path(folder) / "bundle", plan, known, SeededWeights()), card="twin") as twins:
        device = Device.load(plan.device)
        parts = [twins.parts(twins.requests(chunk)) for chunk in batches(log, known.samples // BATCH * BATCH, BATCH)]
        wanted, taken = [], []
        for number, bags in twins.emb.items():
            if mine := [list(part[number].values()) for part in parts if number in part]:
                cycles, paged = steady(bags, mine)
                taken.append(cycles / (device.kernel_mhz * 1e6))
                wanted.append(paged * card_seconds(plan, number, BATCH, True, device)[1]
                              + (1 - paged) * card_seconds(plan, number, BATCH, False, device)[1])
    return max(wanted) / max(taken)


def steady(bags: EmbeddingBags, asked: Sequence[Sequence[Bags]]) -> tuple[float, float]:
    """(cycles from one batch to the next, share of the batches that read the drive). The cycles are those from the end
    of the first batch to that of the last but one, beside which there are inputs."""
    ends, paged = [], []
    for _ in bags.batches(asked):
        ends.append(bags.card.counters()["cycles"])
        assert bags.program is not None
        paged.append(len(bags.program.pages) > 0)
    return (ends[-3] - ends[0]) / (len(asked) - 3), float(np.mean(paged))


def drawn(rows: int, exponent: float, bag: int) -> Log:
    """Bags of independent accesses by Zipf's law."""
    random, samples = np.random.default_rng(rows), DRAWN_BATCHES * BATCH
    share = 1 / np.arange(1, rows + 1) ** exponent
    ids = random.permutation(rows)[random.choice(rows, samples * bag, p=share / share.sum())]
    return of_arrays({"rows": ids}, {"rows": np.arange(samples + 1) * bag}, source="drawn")


@bench("plan_drawn")
def pages_and_rows() -> Iterator[Row]:
    """Plans over twins on drawn logs where most bags read a page of the drive."""
    off: dict[str, list[float]] = {"one by one": [], "in a row": []}
    for rows, exponent, bag in DRAWN:
        log = drawn(rows, exponent, bag)
        plan, known, room = planned(log, 1)
        what = (f"{rows:,} rows, Zipf {exponent:g}, bags of {bag}, {100 * plan.from_ssd:.0f} % of accesses to the SSD: "
                "time of a batch over a twin's")
        for how, over in (("one by one", beside_twin(log, plan, known, room)),
                          ("in a row", beside_steady_twin(log, plan, known))):
            off[how].append(100 * abs(over - 1))
            yield figure(f"plan.drawn.{rows}.{bag}.{how.split()[-1]}", f"{what}, {how}", round(over, 3), "x")
    for how, each in off.items():
        id, what = f"plan.drawn.{how.split()[-1]}", f"{len(each)} drawn logs: time of a batch from a twin's, {how}"
        yield at_most(f"{id}.median", f"{what}, median", round(float(np.median(each)), 1), "%", DRAWN_MEDIAN)
        yield at_most(f"{id}.worst", f"{what}, worst", round(max(each), 1), "%", WORST)


@bench("plan_truth")
def truth() -> Iterator[Row]:
    """Plans over twins on logs, DRAM for half of the rows."""
    off: dict[bool, list[float]] = {False: [], True: []}
    for file in FILES:
        name, trace = file.split("_")[0], Trace.of(open_log(needed(f"{file}.npz")))
        for form, number in product(FORMS, CARDS):
            log = in_form(trace, form)
            plan, known, room = planned(log, number)
            what = f"{name}, {form}, {number} cards, {100 * plan.from_ssd:.0f} % of accesses to the SSD"
            over = beside_twin(log, plan, known, room)
            off[False].append(100 * abs(over - 1))
            yield figure(f"plan.truth.{name}.{form}.{number}", f"{what}: time of a batch over a twin's", round(over, 3),
                         "x")
            if form == FORMS[0]:
                over = beside_steady_twin(log, plan, known)
                off[True].append(100 * abs(over - 1))
                yield figure(f"plan.steady.{name}.{number}", f"{what}: time over a twin's from one batch to the next",
                             round(over, 3), "x")
    what = f"{len(off[False])} logs and numbers of cards: time of a batch from a twin's"
    yield at_most("plan.truth.median", f"{what}, median", round(float(np.median(off[False])), 2), "%", MEDIAN)
    yield at_most("plan.truth.worst", f"{what}, worst", round(max(off[False]), 2), "%", WORST)
    what = f"{len(off[True])} logs and numbers of cards: time from one batch to the next from a twin's"
    yield figure("plan.steady.median", f"{what}, median", round(float(np.median(off[True])), 2), "%")
    yield figure("plan.steady.worst", f"{what}, worst", round(max(off[True]), 2), "%")


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


@bench("plan_drive")
def drive() -> Iterator[Row]:
    """Time of the drive for drawn pages, dies in turns, by the planner's cost over that of the drive's model."""
    of, device, random, off = costs(), Device.load("smartssd"), np.random.default_rng(7), []
    dies = geometry(device.ssd, of.page_bytes)
    for among, read in product(DRIVE_PAGES, DRIVE_READS):
        if read > among:
            continue
        drawn = [random.choice(among, read, replace=False) for _ in range(DRIVE_BATCHES)]
        taken = np.mean([pages(device, each[over_dies(each, *dies)], of.page_bytes, ring_pages=of.ring_bytes
                               // of.page_bytes) for each in drawn])
        reads, most = np.array(float(read)), np.array(float(among))
        own = replace(of, drive_use=DriveUse(float(of.flash_reads(reads, most)) / of.dies))
        over = (of.drive_s + float(own.drive_seconds(reads, most))) / taken
        off.append(100 * abs(over - 1))
        yield figure(f"plan.drive.{among}.{read}", f"{read:,} of {among:,} pages: planned over the drive's time",
                     round(over, 3), "x")
    what = f"{len(off)} numbers of pages: planned time from the drive's"
    yield at_most("plan.drive.median", f"{what}, median", round(float(np.median(off)), 1), "%", DRIVE_MEDIAN)
    yield at_most("plan.drive.worst", f"{what}, worst", round(max(off), 1), "%", DRIVE_WORST)


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
