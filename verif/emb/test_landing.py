"""The arbiter of both tiers: order, places in the ring, room and turns, against the cycle model."""

from dataclasses import dataclass, field

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from hw.emb.landing import TierArbiter
from verif.bench import reset, seed, start
from verif.bench.directed import DISTANCES, fair_shares
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.emb import cycles as model

SIZES = {"row_beats_max": 4, "partial_beats": 16, "copy_beats": 16}
MODULUS = 1 << 30
RING = 64


@dataclass
class Inputs:
    """What the arbiter is shown, cycle by cycle, and the rows of either tier with the cycle of their offer."""

    cycles: int
    dram: list = field(default_factory=list)
    dram_offered: list = field(default_factory=list)
    ssd: list = field(default_factory=list)
    ssd_offered: list = field(default_factory=list)
    ready: np.ndarray = None
    filled: np.ndarray = None
    returned: np.ndarray = None
    released: np.ndarray = None
    polled: np.ndarray = None
    ring: int = RING

    def __post_init__(self):
        self.ready = np.ones(self.cycles, np.bool_) if self.ready is None else self.ready
        for name, default in (("filled", 0), ("released", 0), ("polled", 0)):
            value = getattr(self, name)
            if value is None or np.isscalar(value):
                setattr(self, name, np.full(self.cycles, default if value is None else value, np.int64))
        self.returned = np.zeros((self.cycles, 3), np.int64) if self.returned is None else self.returned

    def modelled(self):
        def tier(rows, offered):
            return np.array([(at, row["offset"], row["beats"] + 1, row["vector"] + 1, row["last"], row["copy"])
                             for row, at in zip(rows, offered, strict=True)], np.int64).reshape(-1, 6)
        return model.arbiter([*SIZES.values(), self.ring], tier(self.dram, self.dram_offered),
                             tier(self.ssd, self.ssd_offered),
                             np.column_stack([self.ready, self.filled, self.returned]))


def row(offset, beats=1, vector=None, *, ssd=0, last=0, copy=0, mark=0):
    """`mark` makes rows differ, in a field that is handed through. vector: of the values' beats [as many as stored]."""
    return {"offset": offset, "beats": beats - 1, "piece": mark >> 2 & 3, "vector": (vector or beats) - 1,
            "row_format": mark % 5, "ring": ssd, "tier": ssd, "last": last,
            "copy": copy, "first": mark & 1, "weight": 0x3F800000 + mark, "maximum": mark >> 1 & 1}


@dataclass
class Seen:
    out: list = field(default_factory=list)  # (cycle of its arrival at the output, row)
    waiting: list = field(default_factory=list)
    position: list = field(default_factory=list)
    overflow: list = field(default_factory=list)
    full: list = field(default_factory=list)


async def drive(dut, inputs, *, clean=True):
    """Shows the inputs cycle by cycle; cycle 0 is the first after a reset."""
    edge = RisingEdge(dut.clk)
    pack, unpack, full = layout_of("o__payload").pack, layout_of("o__payload").unpack, layout_of("full").unpack
    dut.ring_beats.value = inputs.ring
    lanes = [(dut.i_dram__valid, dut.i_dram__ready, dut.i_dram__payload, inputs.dram, inputs.dram_offered),
             (dut.i_ssd__valid, dut.i_ssd__ready, dut.i_ssd__payload, inputs.ssd, inputs.ssd_offered)]
    for lane in lanes:
        lane[0].value = 0
    if clean:
        await reset(dut)
    at, seen, held = [0, 0], Seen(), None
    for cycle in range(inputs.cycles):
        offers = [number < len(rows) and offered[number] <= cycle
                  for number, (_, _, _, rows, offered) in zip(at, lanes)]
        for number, offer, (valid, _, payload, rows, _) in zip(at, offers, lanes):
            valid.value = offer
            if offer:
                payload.value = pack(rows[number])
        dut.o__ready.value = bool(inputs.ready[cycle])
        dut.filled.value, dut.released.value = int(inputs.filled[cycle]), int(inputs.released[cycle])
        dut.polled.value = int(inputs.polled[cycle])
        for name, value in zip(("dram_returned", "ssd_returned", "copy_written"), inputs.returned[cycle]):
            getattr(dut, name).value = int(value)
        await edge
        goes = [offer and ready.value == 1 for offer, (_, ready, *_) in zip(offers, lanes)]
        at = [number + go for number, go in zip(at, goes)]
        if dut.o__valid.value == 1:
            beat = int(dut.o__payload.value)
            assert held is None or held == beat, f"the row at the output changed in cycle {cycle}"
            if held is None:
                seen.out.append((cycle - 1, unpack(beat)))
            held = None if inputs.ready[cycle] else beat
        else:
            assert held is None, f"the row at the output was taken back in cycle {cycle}"
        seen.waiting.append(dut.waiting.value == 1)
        seen.position.append(int(dut.position.value))
        seen.overflow.append(dut.overflow.value == 1)
        seen.full.append(full(int(dut.full.value)))
        assert not seen.full[-1]["dram"] or (offers[0] and not goes[0]), f"no row lacks room in cycle {cycle}"
    return seen


def check(inputs, seen):
    """All rows, where and when the model has them, ring places and `waiting` included; a row that has not landed lacks
    no room yet."""
    taken, ssd_taken, waiting = inputs.modelled()
    want = [(int(cycle), dict(row)) for cycle, row in zip(taken, inputs.dram) if 0 <= cycle < inputs.cycles - 1]
    want += [(int(cycle), dict(row) | {"offset": row["offset"] % inputs.ring}) for cycle, row
             in zip(ssd_taken, inputs.ssd) if 0 <= cycle < inputs.cycles - 1]
    want.sort(key=lambda item: item[0])
    for at, (a, b) in enumerate(zip(seen.out, want)):
        assert a == b, f"row {at}: {a}, expected {b}"
    assert len(seen.out) == len(want)
    assert seen.waiting == waiting.tolist()
    early = [cycle for cycle, lacks in enumerate(seen.full[:-1]) if (lacks["ssd"] or lacks["copy"])
             and seen.waiting[cycle + 1]]
    assert not early, f"room is said to lack in cycle {early[0]} for what has not landed"
    return taken, ssd_taken


def sizes(random, longest):
    """Beats of a row as it is stored, and those of its values, which are no fewer."""
    vector = int(random.integers(1, longest + 1))
    return int(random.integers(1, vector + 1)), vector


def at_random(random, cycles, *, load=0.7, first=0):
    """Both tiers, rows landing bit by bit in a ring that goes round, queues that drain now and then."""
    longest = SIZES["row_beats_max"]
    count = cycles // 3
    dram = [row(int(random.integers(1 << 32)), *sizes(random, longest), last=int(random.random() < 0.4), mark=n)
            for n in range(count)]
    ssd, position, copied = [], first, int(random.integers(1, longest + 1))
    for n in range(count):
        copy = int(random.random() < 0.2)
        beats, vector = sizes(random, longest)
        if copy:
            beats, vector = copied, max(copied, vector)
        ssd.append(row(position % MODULUS, beats, vector, ssd=1, last=int(random.random() < 0.3), copy=copy, mark=n))
        position += beats + int(random.integers(0, 3))
    offers = [np.sort(random.integers(0, int(cycles * load), count)).tolist() for _ in range(2)]
    pace = np.repeat(random.choice([0, 0, 1, 2, 4], cycles // 20 + 1), 20)[:cycles]
    returned = (random.random((cycles, 3)) < [0.5, 0.4, 0.4]).astype(np.int64)
    inputs = Inputs(cycles, dram, offers[0], ssd, offers[1], ready=random.random(cycles) < 0.8,
                    filled=(first + np.cumsum(pace)) % MODULUS, returned=returned, ring=1 << 20)
    _settle(inputs)
    return inputs


def _settle(inputs):
    """Takes back returns of what is not there: cycle by cycle, what was taken bounds what comes back."""
    wish, inputs.returned = inputs.returned, np.zeros_like(inputs.returned)
    step = 50
    for begin in range(0, inputs.cycles, step):
        taken, ssd_taken, _ = inputs.modelled()
        for queue, (cycles, rows, counts) in enumerate((
                (taken, inputs.dram, lambda row: row["last"] and row["vector"] + 1),
                (ssd_taken, inputs.ssd, lambda row: row["last"] and not row["copy"] and row["vector"] + 1),
                (ssd_taken, inputs.ssd, lambda row: row["copy"]))):
            # What went before this stretch, less what came back before it.
            left = sum(counts(row) for cycle, row in zip(cycles, rows) if 0 <= cycle < begin)
            left -= int(inputs.returned[:begin, queue].sum())
            for cycle in range(begin, min(begin + step, inputs.cycles)):
                if wish[cycle, queue] and left > 0:
                    inputs.returned[cycle, queue] = 1
                    left -= 1


@cocotb.test()
async def smoke(dut):
    """Rows of card memory and one of the ring, at its place in the ring."""
    start(dut)
    inputs = Inputs(30, [row(100 + n, last=1, mark=n) for n in range(3)], [0, 0, 0],
                    [row(2 * RING + 5, 2, ssd=1, last=1)], [0], filled=2 * RING + 7)
    seen = await drive(dut, inputs)
    check(inputs, seen)
    assert sorted(row["offset"] for _, row in seen.out) == [5, 100, 101, 102]


@cocotb.test()
async def random_match_golden(dut):
    """Rows of both tiers that land bit by bit, room that comes and goes: order, cycles and waiting equal to the
    model's; the position's wrap at 2**30 is passed on the way."""
    start(dut)
    random = np.random.default_rng(seed("rows"))
    for first in (0, MODULUS - 200, 12345):
        inputs = at_random(random, 1500, first=first)
        taken, ssd_taken = check(inputs, await drive(dut, inputs))
        assert (taken >= 0).sum() > 50 and (ssd_taken >= 0).sum() > 50


@cocotb.test()
async def backpressure_both_sides(dut):
    """An output that is hardly ever ready, offers in bursts: nothing lost, nothing twice, every row in its order."""
    start(dut)
    random = np.random.default_rng(seed("pauses"))
    for probability in (0.15, 0.5):
        inputs = at_random(random, 1500, load=0.3)
        inputs.ready = np.repeat(random.random(300) < probability, 5)
        inputs.returned[:] = 0
        inputs.dram = [r | {"last": 0} for r in inputs.dram]
        inputs.ssd = [r | {"last": 0, "copy": 0} for r in inputs.ssd]
        check(inputs, await drive(dut, inputs))


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A row of card memory a cycle, one of the SSD every other, in turns when there are both; waiting in 2 cycles."""
    start(dut)
    many = 40
    dram = [row(n, mark=n) for n in range(many)]
    ssd = [row(n, ssd=1, mark=n) for n in range(many)]
    inputs = Inputs(80, dram, [0] * many)
    taken, _ = check(inputs, await drive(dut, inputs))
    assert taken.tolist() == list(range(many)), "latency 1: at the output a cycle after it was offered"
    inputs = Inputs(120, ssd=ssd, ssd_offered=[0] * many, filled=many)
    _, taken = check(inputs, await drive(dut, inputs))
    assert taken.tolist() == list(range(2, 2 + 2 * many, 2)), "latency 3, then every other cycle"
    inputs = Inputs(200, dram, [0] * many, ssd, [0] * many, filled=many)
    seen = await drive(dut, inputs)
    check(inputs, seen)
    assert [row["tier"] for _, row in seen.out[4:40]] == [1, 0] * 18
    assert np.ptp(np.diff([cycle for cycle, _ in seen.out[4:40]])) == 0, "a row a cycle while both have rows"
    # A row that has not landed holds nobody else up, and goes 2 cycles after `filled` has come far enough.
    filled = np.repeat([9, 12], [60, 40])
    inputs = Inputs(100, dram, [0] * many, [row(8, 4, ssd=1)], [5], filled=filled)
    seen = await drive(dut, inputs)
    dram_taken, taken = check(inputs, seen)
    assert dram_taken.tolist() == list(range(many)) and taken[0] == 61
    assert seen.waiting.index(True) == 5 + 2 and set(seen.position[7:60]) == {8}


@cocotb.test()
@pytest.mark.testpoint("random_match_golden")
async def room_of_results(dut):
    """Last rows wait for their own queue's room and hold the other tier's up in nothing; copies have their own."""
    start(dut)
    longest = SIZES["row_beats_max"]
    dram = [row(n, longest, last=1, mark=n) for n in range(12)]
    ssd = [row(4 * n, longest, ssd=1, last=1, copy=int(n >= 6), mark=n) for n in range(12)]
    inputs = Inputs(300, dram, [0] * 12, ssd, [0] * 12, filled=64)
    seen = await drive(dut, inputs)
    taken, ssd_taken = check(inputs, seen)
    # One more would fit, but a row goes only while there is room for two of the longest.
    fits = SIZES["partial_beats"] // longest - 1
    assert (taken >= 0).sum() == fits and (ssd_taken >= 0).sum() == fits
    assert seen.full[-1] == {"dram": 1, "ssd": 1, "copy": 0}
    returned = np.zeros((300, 3), np.int64)
    returned[100:114, 1] = 1  # room for the last two vectors of the SSD, then copies until they have none
    inputs = Inputs(300, dram, [0] * 12, ssd, [0] * 12, filled=64, returned=returned)
    seen = await drive(dut, inputs)
    taken, ssd_taken = check(inputs, seen)
    assert (taken >= 0).sum() == fits
    assert (ssd_taken >= 0).sum() == fits + 3 + SIZES["copy_beats"] // longest - 1
    assert seen.full[-1] == {"dram": 1, "ssd": 0, "copy": 1}
    # What has not landed lacks no room, though there is none.
    for copy in range(2):
        ssd = [row(longest * n, longest, ssd=1, last=1, copy=copy, mark=n) for n in range(4)]
        inputs = Inputs(60, ssd=ssd, ssd_offered=[0] * 4, filled=3 * longest)
        _, taken = check(inputs, await drive(dut, inputs))
        assert (taken >= 0).tolist() == [True] * 3 + [False]


@cocotb.test()
@pytest.mark.testpoint("coincidences")
async def room_that_comes_back_as_a_row_goes(dut):
    """A copied row is given back, and beats leave either queue, in every cycle about that in which the next row is
    taken: no room is lost or made, however often."""
    start(dut)
    longest, rows = SIZES["row_beats_max"], 8
    for distance in DISTANCES:
        dram = [row(n, longest, last=1, mark=n) for n in range(rows)]
        ssd = [row(longest * n, longest, ssd=1, last=1, copy=n % 2, mark=n) for n in range(2 * rows)]
        inputs = Inputs(400, dram, [20 * n for n in range(rows)], ssd, [20 * n for n in range(2 * rows)], filled=64,
                        ring=1 << 20)
        inputs.filled[:] = 2 * rows * longest
        # When rows go depends on what has come back before: row by row.
        for number in range(1, 2 * rows):
            taken, ssd_taken, _ = inputs.modelled()
            for queue, cycles, again, beats in ((0, taken, 1, longest), (1, ssd_taken, 2, longest),
                                                (2, ssd_taken, 2, 1)):
                if number < again or number >= len(cycles) or (queue and (number % 2 == 1) != (queue == 2)):
                    continue
                at = int(cycles[number]) + distance
                if cycles[number - again] >= 0 and at > cycles[number - again]:
                    inputs.returned[at:at + beats, queue] = 1
        check(inputs, await drive(dut, inputs))


@cocotb.test()
async def one_cycle_reset(dut):
    """A reset of one cycle with rows inside and both queues full: nothing is left, and all room is there."""
    start(dut)
    longest = SIZES["row_beats_max"]
    full = Inputs(60, [row(n, longest, last=1, mark=n) for n in range(12)], [0] * 12,
                  [row(4 * n, longest, ssd=1, last=1, mark=n) for n in range(12)], [0] * 12, filled=64)
    full.ready[40:] = False
    await drive(dut, full)
    await reset(dut, cycles=1)
    check(full, await drive(dut, full, clean=False))


@cocotb.test()
@pytest.mark.testpoint("fair_shares")
async def fair_shares_of_both_tiers(dut):
    """Rows of both tiers that can always go are served equally often."""
    start(dut)
    many = 60
    inputs = Inputs(100, [row(n, mark=n) for n in range(many)], [0] * many,
                    [row(n, ssd=1, mark=n) for n in range(many)], [0] * many, filled=many)
    seen = await drive(dut, inputs)
    tiers = [row["tier"] for _, row in seen.out[4:]]
    fair_shares((tiers.count(0), tiers.count(1)))


@cocotb.test()
async def corner_values(dut):
    """The last beat before `filled`, one too many, rows of a ring that was filled again, positions about 2**30."""
    start(dut)
    for filled, position, beats, lands in (
        (4, 0, 4, True), (3, 0, 4, False), (0, 0, 1, False), (0, MODULUS - 1, 1, True), (0, MODULUS - 4, 4, True),
        (1, MODULUS - 2, 3, True), (1, MODULUS - 2, 4, False), (RING, 0, 1, True), (RING + 1, 0, 1, False),
        (MODULUS // 2 + 5, 0, 1, False), (5, MODULUS // 2 + 9, 1, False), (MODULUS - 1, MODULUS - 2, 1, True),
    ):
        inputs = Inputs(12, ssd=[row(position, beats, ssd=1)], ssd_offered=[0], filled=filled)
        seen = await drive(dut, inputs)
        _, taken = check(inputs, seen)
        assert (taken[0] >= 0) == lands, (filled, position, beats)
        assert seen.waiting[-1] != lands
        if lands:
            assert seen.out[0][1]["offset"] == position % RING
    # No ring: no row of it lands. The whole of the modulus as a ring: the place is the position.
    for ring, filled, lands in ((1, 5, False), (MODULUS, 2000, True)):
        inputs = Inputs(12, ssd=[row(1234, ssd=1)], ssd_offered=[0], filled=filled, ring=ring)
        _, taken = check(inputs, await drive(dut, inputs))
        assert (taken[0] >= 0) == lands


@cocotb.test()
@pytest.mark.testpoint("host_faults")
async def host_faults(dut):
    """A row that never lands is waited for, and named; a ring filled beyond its size is reported when it is polled, and
    stays so, one that is released further than it is filled is not."""
    start(dut)
    seen = await drive(dut, Inputs(100, ssd=[row(8, ssd=1)], ssd_offered=[3], filled=8))
    assert all(seen.waiting[seen.waiting.index(True):]) and seen.position[-1] == 8
    assert not any(seen.overflow)
    # What has landed and lacks room is waited for again once the ring is filled over it.
    ssd = [row(4 * n, 4, ssd=1, last=1) for n in range(6)]
    inputs = Inputs(60, ssd=ssd, ssd_offered=[0] * 6, filled=np.where(np.arange(60) < 40, RING, 2 * RING))
    check(inputs, await drive(dut, inputs))
    polled = np.zeros(40, np.int64)
    polled[20] = 1
    for filled, released, over in ((RING, 0, False), (RING + 1, 0, True), (3, MODULUS - RING + 3, False),
                                   (3, MODULUS - RING + 2, True), (4, 5, False), (7, 7, False),
                                   (4, 4 + MODULUS // 2, False), (4, 5 + MODULUS // 2, True)):
        inputs = Inputs(40, filled=filled, released=released, polled=polled)
        seen = await drive(dut, inputs)
        assert seen.overflow == [over and cycle >= 22 for cycle in range(40)], (filled, released)
        inputs.polled = polled * 0
        assert not any((await drive(dut, inputs)).overflow), "nobody polled"


@cocotb.test()
async def reset_midstream(dut):
    """A reset drops the rows inside, frees all room and takes the error back."""
    start(dut)
    random, failed = np.random.default_rng(seed("reset")), 0
    for cycles in random.integers(5, 120, 6):
        inputs = at_random(random, int(cycles) + 20)
        inputs.returned[:] = 0
        inputs.polled[:], inputs.ring = 1, 1
        broken = await drive(dut, inputs)
        failed += broken.overflow[-1]
        fresh = at_random(random, 300)
        seen = await drive(dut, fresh)
        check(fresh, seen)
        assert not seen.overflow[-1]
    assert failed > 2


@pytest.mark.parametrize("number", seeds())
def test_tier_arbiter(number):
    simulate(TierArbiter(**SIZES), "verif.emb.test_landing", name="tier_arbiter", tests=11, seed=number)


def test_illegal_config_wrong():
    """Sizes that cannot be built are refused with a sentence."""
    for change, sentence in (
        ({"row_beats_max": 3}, "row_beats_max must be a power of two, not 3"),
        ({"partial_beats": 4},
         r"partial_beats must be a power of two of at least 8 \(two rows of row_beats_max\), not 4"),
        ({"copy_beats": 12}, r"copy_beats must be a power of two of at least 8 \(two rows of row_beats_max\), not 12"),
    ):
        with pytest.raises(ValueError, match=sentence):
            TierArbiter(**(SIZES | change))
