"""The table of cold rows against its model: every answer, every slot, every query, in the order of the unit's steps."""
import os
from collections import deque
from dataclasses import replace

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from golden.hotline.row_table import RowTable as Model
from hw.hotline.row_table import QUERY_CLIENTS, RELEASES_PER_LOOKUP, RowTable, bucket_bits
from verif.bench import reset, rng, start
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import Scoreboard, Sink, Source, always, bursty, never, sometimes
from verif.hotline.bench import TINY, WIDE

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
CONFIGS = {
    "tiny": TINY,
    # Four mini-batches, arrays in block memory, wide row numbers.
    "wide": replace(WIDE, banks=64, sets=65536, row_slots=128),
}
CONFIGS["deep"] = CONFIGS["tiny"]
# Output registers of the arrays as in large ones: two of the buckets, four of the others.
ARRAY_ROWS = {"deep": 8}
NAME = os.environ.get("ROW_TABLE", "tiny")
CONFIG = CONFIGS[NAME]
SLOTS, BATCHES = CONFIG.row_slots, CONFIG.batches
REGISTERS, SLOT_REGISTERS, LIST_REGISTERS = (max(1, count * SLOTS // 2 // ARRAY_ROWS.get(NAME, 32768))
                                             for count in (1, 2, BATCHES))
LATENCY = 7 + REGISTERS         # from a lookup to its answer
APART = 4 + REGISTERS           # between two of the same bucket


def address_of(row):
    return row * 0x9E3779B1 & 0xFFFFFFFF


def pool(random, count, *, one_bucket=0.0):
    """Different rows; some of them, at multiples of what the tag begins with, share few buckets."""
    rows = set()
    while len(rows) < count:
        row = random.getrandbits(CONFIG.domain_bits)
        if random.random() < one_bucket:
            row &= -1 << CONFIG.domain_bits - 4
        rows.add(row)
        if one_bucket == 1 and len(rows) == 16:
            break
    return sorted(rows)


class Bench:
    """The table between mini-batches that open, look up, and are given up in order; queries all the while."""

    def __init__(self, dut, *, asks=always, gives=always, queries=always, answers=always, label="bench"):
        self.dut, self.random = dut, rng(label)
        self.asks, self.gives = asks(), gives()
        self.model = Model(SLOTS)
        self.row_of = {}
        self.pending = deque()          # (row, tag) asked for and not answered
        self.flight = deque()           # [number, slots, queries under way] of closed mini-batches, oldest first
        self.opened = 0
        self.cycle = 0
        self.asked_at, self.found_at, self.given_at, self.misses, self.hits = [], [], [], 0, 0
        self.sources = [Source(dut, f"i_query__{k}", pattern=queries()) for k in range(QUERY_CLIENTS)]
        self.boards = [Scoreboard(f"o_query__{k}") for k in range(QUERY_CLIENTS)]
        self.owners = [deque() for _ in range(QUERY_CLIENTS)]
        self.sinks = [Sink(dut, f"o_query__{k}", pattern=answers(), on_beat=self._answered(k))
                      for k in range(QUERY_CLIENTS)]
        self.release = None             # slot offered
        self.taken = deque()            # slots that were taken, and have not been seen to act
        self.offer = None               # lookup offered
        self.held = False               # a cycle ago there was a lookup without its answer or a row with a slot

    def _answered(self, k):
        def answered(beat):
            self.boards[k].got(beat)
            self.owners[k].popleft()[2] -= 1
        return answered

    @classmethod
    async def begin(cls, dut, **arguments):
        start(dut)
        dut.i__valid.value = dut.i_release__valid.value = dut.open.value = dut.batch.value = 0
        dut.limit.value = SLOTS
        await reset(dut)
        return cls(dut, **arguments)

    def stop(self):
        """Ends the drivers; only a reset may follow."""
        for source in self.sources:
            source.stop()
        for sink in self.sinks:
            sink.stop()

    async def tick(self, *, ask=None, opens=False):
        """One cycle; ask: (row, tag) that is offered until it is taken. Whether it was."""
        dut, model, random = self.dut, self.model, self.random
        if self.offer is None and ask is not None and next(self.asks):
            self.offer = ask
            row, tag = ask
            dut.i__payload.value = layout_of("i__payload").pack(
                {"row": row, "address": address_of(row), "tag": tag})
        dut.i__valid.value = self.offer is not None
        if self.release is None and self.flight and not self.flight[0][2] and next(self.gives):
            slots = self.flight[0][1]
            if slots:
                self.release = slots.pop(random.randrange(len(slots)))
                dut.i_release__payload.value = self.release
        dut.i_release__valid.value = self.release is not None
        dut.open.value = opens
        if opens:
            self.opened += 1
        dut.batch.value = (self.opened - 1) % BATCHES
        held = bool(self.pending) or model.in_use > 0
        await RisingEdge(dut.clk)
        self.cycle += 1
        # `idle` is a cycle late.
        assert dut.idle.value == 0 or not (held and self.held), f"cycle {self.cycle}: idle with rows held or looked up"
        self.held = held
        if dut.o_valid.value == 1:
            row, tag = self.pending.popleft()
            ordinal, slot, miss = model.lookup(row)
            got = layout_of("o").unpack(int(dut.o.value))
            want = {"ordinal": ordinal, "miss": miss, "slot": slot, "address": address_of(row), "tag": tag}
            assert got == want, f"cycle {self.cycle}: row {row:#x} is {got}, expected {want}"
            assert int(dut.rows.value) == model.rows, (int(dut.rows.value), model.rows)
            self.row_of[slot] = row
            self.found_at.append(self.cycle)
            self.misses, self.hits = self.misses + miss, self.hits + (not miss)
        # A release that leaves the row to another mini-batch is not seen: the order of that and of lookups is all one.
        if dut.freed.value == 1:
            while not model.release(self._oldest()):
                pass
        if self.release is not None and dut.i_release__ready.value == 1:
            self.taken.append(self.release)
            self.release = None
            self.given_at.append(self.cycle)
            if not self.flight[0][1]:
                self.flight.popleft()
        if opens:
            model.open((self.opened - 1) % BATCHES)
        if self.offer is not None and dut.i__ready.value == 1:
            self.pending.append(self.offer)
            self.asked_at.append(self.cycle)
            self.offer = None
            return True
        return False

    def _oldest(self):
        assert self.taken, f"cycle {self.cycle}: a slot is freed that is held"
        return self.taken.popleft()

    def empty(self):
        """No mini-batch is in flight, and all rows were given up."""
        return not self.flight and self.release is None and self.model.in_use == 0

    async def until(self, true, cycles=3000):
        for _ in range(cycles):
            if true():
                return
            await self.tick()
        raise AssertionError(f"not done after {cycles} cycles: {len(self.pending)} lookups, {len(self.flight)} "
                             f"mini-batches in flight")

    def query(self, batch, count=1):
        """Questions for rows of a mini-batch that is in flight, from any client."""
        number, slots, _ = batch
        for _ in range(count):
            k, ordinal = self.random.randrange(QUERY_CLIENTS), self.random.randrange(len(slots))
            slot, row = self.model.lists[number, ordinal]
            batch[2] += 1
            self.owners[k].append(batch)
            self.boards[k].expect({"slot": slot, "address": address_of(row)})
            self.sources[k].put({"batch": number, "ordinal": ordinal})

    async def batch(self, rows, *, queries=0):
        """A whole mini-batch of these lookups."""
        await self.until(lambda: len(self.flight) < BATCHES and (self.release is None or len(self.flight)))
        await self.tick(opens=True)
        number = (self.opened - 1) % BATCHES
        for row in rows:
            # Who asks leaves a slot for whatever is under way.
            await self.until(lambda: self.model.in_use + len(self.pending) < SLOTS)
            tag = self.random.getrandbits(layout_of("i__payload")._fields[2][2].width)
            while not await self.tick(ask=(row, tag)):
                pass
        await self.until(lambda: not self.pending)
        slots = [self.model.lists[number, k][0] for k in range(self.model.rows)]
        if slots:
            self.flight.append([number, slots, 0])
            self.query(self.flight[-1], queries)

    async def finish(self):
        """All mini-batches give up their rows; nothing is left."""
        await self.until(self.empty)
        for _ in range(12):
            await self.tick()
        # The last one to go may be taken off the counts of the buckets that it had passed, 6 cycles each.
        await self.until(lambda: self.dut.idle.value == 1, cycles=6 << bucket_bits(CONFIG))
        assert self.dut.idle.value == 1 and not self.taken and self.model.in_use == 0
        for board in self.boards:
            board.done()
        self.stop()


async def mixed(bench, random, batches, *, skew=2.0, one_bucket=0.2, queries=20):
    """Mini-batches over a pool of rows of which some come often."""
    rows = pool(random, 3 * SLOTS, one_bucket=one_bucket)
    for _ in range(batches):
        count = random.randrange(1, 2 * SLOTS)
        drawn, different = [], set()
        for _ in range(count):
            row = rows[int(len(rows) * random.random() ** skew)]
            # A mini-batch alone always fits.
            if row in different or len(different) < SLOTS - 1:
                different.add(row)
                drawn.append(row)
        await bench.batch(drawn, queries=queries)
    await bench.finish()


@cocotb.test()
async def smoke(dut):
    """Rows of one mini-batch, twice each; all in flight share them; then all are free."""
    bench = await Bench.begin(dut, gives=lambda: never(600))
    rows = pool(rng("smoke"), 10)
    for _ in range(BATCHES):
        await bench.batch(rows + rows, queries=10)
    assert (bench.misses, bench.hits) == (10, 20 * BATCHES - 10)
    await bench.finish()


@cocotb.test()
async def random_match_golden(dut):
    """Mini-batches of rows that come often and seldom, in many buckets and in few: every ordinal, slot and answer to a
    query as the model's, and a pulse for each slot that becomes free."""
    random = rng("mixed")
    for one_bucket in (0.0, 0.3, 1.0):
        bench = await Bench.begin(dut, label=f"mixed {one_bucket}")
        await mixed(bench, random, 30 if REGRESS and CONFIG is TINY else 12, one_bucket=one_bucket)


@cocotb.test()
async def backpressure_both_sides(dut):
    """Lookups, releases, queries and their answers that pause, each by itself and all together."""
    random, pauses = rng("pauses"), rng("patterns")
    rare, common = (lambda: sometimes(0.1, pauses)), (lambda: bursty(pauses))
    for asks, gives, queries, answers in ((common,) * 4, (always, rare, always, always),
                                          (always, always, always, rare), (rare, always, common, always)):
        bench = await Bench.begin(dut, asks=asks, gives=gives, queries=queries, answers=answers,
                                  label=f"pauses {random.random()}")
        await mixed(bench, random, 5, queries=40)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A lookup or a release a cycle, of buckets that differ; two of one bucket as far apart as said; a row of a bucket
    that is full, and what it costs to find; two queries a cycle in all; one cycle more for each further register."""
    bench = await Bench.begin(dut, gives=lambda: never(10_000))
    lonely = different(min(SLOTS // 2, 16))     # no more than are read ahead
    for _ in range(SLOTS + 20):     # the buckets have been emptied
        await bench.tick()
    await bench.batch(lonely + lonely)
    assert LATENCY == 8 or REGISTERS > 1
    assert bench.found_at[0] - bench.asked_at[0] == LATENCY, bench.found_at[0] - bench.asked_at[0]
    steps = [after - before for before, after in zip(bench.found_at, bench.found_at[1:])]
    assert set(steps) == {1} or SLOTS < 64, steps
    assert sum(steps) <= len(steps) + APART, steps
    for _ in range(40):
        await bench.tick()
    await bench.batch([lonely[0]] * 3)
    steps = [after - before for before, after in zip(bench.found_at[-3:], bench.found_at[-2:])]
    assert steps == [APART] * 2, steps
    bench.gives = always()
    await bench.finish()
    steps = [after - before for before, after in zip(bench.given_at, bench.given_at[1:])]
    assert steps.count(1) >= len(steps) - 2 * BATCHES, steps
    # Six rows of a bucket: the first four are in it, the others in the next one.
    bench = await Bench.begin(dut, gives=lambda: never(10_000))
    found, by_bucket = None, {}
    for k in range(1, 1 << 16):
        row = k << CONFIG.slot_bits + 1
        bucket = bucket_of(row)
        by_bucket.setdefault(bucket, []).append(row)
        if len(by_bucket[bucket]) == 6:
            found = by_bucket[bucket]
            break
    await bench.batch(found)
    for at, row in enumerate(found):
        for _ in range(10):
            await bench.tick()
        while not await bench.tick(ask=(row, 0)):
            pass
        await bench.until(lambda: not bench.pending)
        took = bench.found_at[-1] - bench.asked_at[-1]
        assert took == LATENCY + (5 + REGISTERS) * (at >= 4), (at, took)
    bench.query(bench.flight[-1], 1)
    await bench.until(lambda: not bench.flight[-1][2])
    took = {sink.at[0] - source.taken_at[0] for source, sink in zip(bench.sources, bench.sinks) if sink.at}
    assert took == {6 + SLOT_REGISTERS + LIST_REGISTERS}, took
    if REGISTERS == 1:
        bench.query(bench.flight[-1], 300)
        await bench.until(lambda: not bench.flight[-1][2])
        times = sorted(at for sink in bench.sinks for at in sink.at)[1:]
        assert times[-1] - times[0] <= 240, times[-1] - times[0]
    bench.gives = always()
    await bench.finish()


def bucket_of(row):
    """The bucket as the hardware's text says it."""
    bits = CONFIG.slot_bits - 1
    tag_bits = CONFIG.domain_bits - bits
    bucket = 0
    for k in range(bits):
        taps = {(k * 7 + step * (k % 3 + 2) * 3 + step) % tag_bits for step in range(5)} | {k % tag_bits}
        bit = row >> k & 1
        for tap in sorted(taps)[:5]:
            bit ^= row >> bits + tap & 1
        bucket |= bit << k
    return bucket


def different(count):
    """Rows whose buckets differ."""
    rows = {bucket_of(row): row for row in range(64 * SLOTS)}
    return list(rows.values())[:count]


@cocotb.test()
async def fair_shares(dut):
    """Lookups and releases that wait all the time: a lookup goes behind every few releases, none waits for all."""
    bench = await Bench.begin(dut, gives=lambda: never(10_000))
    rows = different(min(SLOTS - 1, 31))
    await bench.batch(rows[::2])
    bench.gives, went = always(), ""
    await bench.tick(opens=True)
    waiting = deque(rows[1::2])
    for _ in range(30 * len(rows)):
        if await bench.tick(ask=(waiting[0], 0) if waiting else None) and waiting:
            waiting.popleft()
        went += "l" * int(dut.o_valid.value) + "r" * int(dut.freed.value)
    shared = went[went.index("r"):went.rindex("r")]
    assert not waiting and shared.count("l") + 1 >= shared.count("r") // RELEASES_PER_LOOKUP >= 2, went
    bench.stop()


@cocotb.test()
async def reset_midstream(dut):
    """A reset with lookups, releases and queries under way; what the memories hold of the rows before counts no more,
    though the same rows come."""
    random = rng("reset")
    for turn in range(4):
        bench = await Bench.begin(dut, label=f"reset {turn}")
        rows = pool(random, SLOTS - 1, one_bucket=0.3)
        for _ in range(random.randrange(1, 4)):
            await bench.batch(random.sample(rows, random.randrange(4, SLOTS - 1)), queries=30)
        await bench.tick(opens=True) if len(bench.flight) < BATCHES else None
        for _ in range(random.randrange(30)):
            await bench.tick(ask=(rows[0], 0) if bench.model.in_use + len(bench.pending) < SLOTS else None)
        bench.stop()
        bench = await Bench.begin(dut, label=f"again {turn}")
        await bench.batch(rows, queries=20)
        assert bench.misses == len(rows)
        await bench.finish()


@cocotb.test()
async def corner_values(dut):
    """Every slot in use, and again; row 0 and the last one; one row in all mini-batches; a bucket's first, middle and
    last row that leave; mini-batches that nobody overlaps, so that slots are given out from 0 again."""
    random = rng("corners")
    bench = await Bench.begin(dut)
    top = (1 << CONFIG.domain_bits) - 1
    for _ in range(3):
        await bench.batch([0, top, *pool(random, SLOTS - 2)], queries=5)
    for _ in range(3 * BATCHES):
        await bench.batch([top], queries=1)
    await bench.until(bench.empty)
    # Rows that leave one by one out of lists, in any order, while others come.
    rows = pool(random, 16, one_bucket=1.0)
    for _ in range(30):
        await bench.batch(random.sample(rows, random.randrange(1, len(rows))))
    await bench.until(bench.empty)
    for row in (top, 0, top):
        await bench.batch([row])
        await bench.until(bench.empty)
        assert bench.found_at and bench.model.in_use == 0
    await bench.finish()


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", one_of(CONFIGS))
def test_row_table(name, number):
    simulate(RowTable(CONFIGS[name], array_rows=ARRAY_ROWS.get(name, 32768)), "verif.hotline.test_row_table",
             name=f"hotline_row_table_{name}", tests=7, seed=number, env={"ROW_TABLE": name})
