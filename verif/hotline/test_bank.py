"""A bank of the access logger against golden.hotline.bank: every answer of every access, in every cycle."""
import os
from collections import deque
from itertools import product

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.hotline.bank import VALID, Bank
from hw.hotline.bank import LoggerBank
from verif.bench import reset, rng, seed, start
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate

WAIVED = {
    "backpressure_both_sides":
        "An access is taken in every cycle and answered a fixed number of cycles later; there is nothing to "
        "hold back.",
}

SHAPES = {
    "tiny": dict(sets=64, policy="steady", insert_log2=2, tag_bits=7),
    "srrip": dict(sets=64, policy="srrip", insert_log2=0, tag_bits=7),
    "sampled": dict(sets=64, policy="sampled", insert_log2=2, tag_bits=1),
    "ultra": dict(sets=2048, policy="steady", insert_log2=0, tag_bits=1),
    "slow": dict(sets=16, policy="steady", insert_log2=5, tag_bits=9),
    "sampled_slow": dict(sets=16, policy="sampled", insert_log2=5, tag_bits=9),
}
SHAPE = SHAPES[os.environ.get("HOTRAIL_SHAPE", "tiny")]
SETS, TAGS = SHAPE["sets"], 1 << SHAPE["tag_bits"]
LATENCY = LoggerBank.LATENCY
STEADY = SHAPE["policy"] == "steady"
FRESH = 3 if STEADY else 2      # the rrpv of a row that has come in
WRITTEN = 5     # cycles from an access to the edge that brings its word into the memory
ENTRY = VALID * 2 - 1


def entry(id, rrpv, valid=1):
    return id | rrpv << 14 | valid << 16


class Bench:
    """The bank between accesses and their answers. What lies in it outlives a test, as it does a reset."""

    def __init__(self, dut):
        self.dut, self.edge = dut, RisingEdge(dut.clk)
        self.model = Bank(SHAPE["sets"], SHAPE["insert_log2"], SHAPE["policy"])
        self.i, self.write, self.o = layout_of("i"), layout_of("i_write"), layout_of("o")
        self.noise = rng("noise")
        self.cycle = 0
        self.due = {}
        self.undo = deque(maxlen=WRITTEN)   # of each of the last cycles: what the memory shows still
        self.seen = dict.fromkeys(("hit", "miss", "wrong"), 0)

    @classmethod
    async def begin(cls, dut):
        start(dut)
        dut.i.value = dut.i_write.value = 0
        await reset(dut)
        bench = cls(dut)
        for number in range(SETS):
            await bench.step(write=(number, [0] * 4))
        await bench.drain()
        return bench

    async def step(self, access=None, write=None):
        """access: (set, id, learn); write: (set, entries)."""
        dut = self.dut
        undo = None
        if access is not None:
            number, id, learn = access
            tag = self.noise.randrange(TAGS)
            before = self.model.image[number].copy()
            shown = self.model.read(number)
            hit, way, wrong = self.model.access(number, id, learn)
            undo = (number, before)
            self.due[self.cycle + LATENCY] = (hit, way, wrong, tag, None if learn else shown)
            self.seen["wrong" if wrong else "hit" if hit else "miss"] += 1
            dut.i.value = self.i.pack({"valid": 1, "learn": int(learn), "set": number, "id": id, "tag": tag})
        else:
            dut.i.value = self.noise.getrandbits(self.i.width) & ~1
        if write is not None:
            number, words = write
            self.model.load(number, words)
            dut.i_write.value = self.write.pack({"valid": 1, "set": number, "ways": words})
        else:
            dut.i_write.value = self.noise.getrandbits(self.write.width) & ~1
        self.undo.append(undo)
        await self.edge
        got, want = self.o.unpack(int(dut.o.value)), self.due.pop(self.cycle, None)
        assert got["valid"] == (want is not None), f"cycle {self.cycle}: valid {got['valid']}, expected {want}"
        if want is not None:
            hit, way, wrong, tag, shown = want
            told = got["hit"], got["way"], got["wrong"], got["tag"]
            assert told == (hit, way, wrong, tag), f"cycle {self.cycle}: {told}, expected {want}"
            ways = [entry(**fields) for fields in got["ways"]]
            assert shown is None or ways == shown, f"cycle {self.cycle}: {ways}, expected {shown}"
        self.cycle += 1

    async def drain(self, cycles=LATENCY + 1):
        for _ in range(cycles):
            await self.step()
        assert not self.due

    async def reset_now(self):
        """A reset: accesses whose word has not reached the memory leave nothing."""
        self.dut.rst.value = 1
        self.dut.i.value = self.dut.i_write.value = 0
        await self.edge
        self.dut.rst.value = 0
        for undo in reversed(list(self.undo)[-WRITTEN + 1:]):
            if undo is not None:
                self.model.image[undo[0]] = undo[1]
        self.model.count = 0
        self.due.clear()
        self.undo.clear()
        self.cycle += 1

    async def everything(self):
        """Reads all sets."""
        for number in range(SETS):
            await self.step((number, 0, False))
        await self.drain()

    def flip(self, number, way, bit):
        """Turns a bit of the memory over, nothing being on its way; bit 17 is the parity's."""
        word = self.dut.store[number]
        word.value = int(word.value) ^ 1 << 18 * way + bit
        self.model.spoil(number, way, 1 << bit & ENTRY)


def traffic(random, count, *, sets=3, ids=9, learn=0.8, busy=0.9):
    """Accesses that meet again and again, in a row and at all distances, with gaps."""
    numbers = random.choice(SETS, sets, replace=False)
    for _ in range(count):
        if random.random() > busy:
            yield None
        else:
            # Low ids come far more often.
            id = int(min(random.integers(1, 16384), random.geometric(2 / ids)))
            yield int(numbers[random.integers(sets)]), id, bool(random.random() < learn)


@cocotb.test()
async def smoke(dut):
    """A row is learned, found, and not found under another identifier or in another set."""
    bench = await Bench.begin(dut)
    for access in ((3, 77, False), (3, 77, True), (3, 77, False), (3, 78, False), (4, 77, False)):
        await bench.step(access)
    await bench.drain()
    assert bench.seen == {"hit": 1, "miss": 4, "wrong": 0}
    assert bench.model.read(3) == [entry(77, FRESH), 0, 0, 0]


@cocotb.test()
async def random_match_golden(dut):
    """By all three policies: accesses to one to twelve sets, few rows and many, in a row and with gaps, learning and
    looking: every answer, and at the end every set, as the model's."""
    random = np.random.default_rng(seed("traffic"))
    bench = await Bench.begin(dut)
    for sets, ids, learn, busy in ((1, 6, 1, 1), (1, 9, 0.7, 0.8), (2, 8, 0.9, 1), (3, 14, 0.8, 0.9), (5, 9, 0.9, 0.6),
                                   (12, 40, 0.9, 1), (2, 5, 0.3, 0.9)):
        for access in traffic(random, 700, sets=sets, ids=ids, learn=learn, busy=busy):
            await bench.step(access)
        await bench.drain()
    assert min(bench.seen["hit"], bench.seen["miss"]) > 1000, bench.seen
    await bench.everything()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """An access in every cycle, all to one set, and then apart by each distance up to the pipeline's length: every
    answer comes LATENCY cycles later and knows of all that came before."""
    bench = await Bench.begin(dut)
    for access in [(5, id, True) for id in (1, 1, 2, 1, 3, 4, 5, 5, 5, 1, 2, 3, 4, 6, 6)] * 12:
        await bench.step(access)
    assert not [cycle for cycle in bench.due if cycle >= bench.cycle + LATENCY]
    await bench.drain()
    for distance in range(1, LATENCY + 3):
        for id in (11, 11, 12, 13, 14, 15, 15, 11, 16, 17, 17) * 2:
            await bench.step((6, id, True))
            # What comes between goes to other sets, or nowhere.
            for other in range(distance - 1):
                await bench.step((7 + other, id, True) if id % 2 else None)
        await bench.drain()


@cocotb.test()
async def reset_midstream(dut):
    """Accesses that had not reached the memory leave nothing, sets stay, the count begins anew."""
    random = np.random.default_rng(seed("reset"))
    bench = await Bench.begin(dut)
    for _ in range(12):
        for access in traffic(random, int(random.integers(30, 90)), sets=2, busy=0.95):
            await bench.step(access)
        await bench.reset_now()
        if random.random() < 0.5:
            await bench.everything()
    for access in traffic(random, 200):
        await bench.step(access)
    await bench.drain()


@cocotb.test()
async def corner_values(dut):
    """Row 0 against empty sets, first and last sets and identifiers, counters at both ends, every combination of them
    before a miss that is the last to count; images with empty ways between and with a row twice; writes between
    accesses, as close as is allowed, each of which begins the count anew."""
    bench = await Bench.begin(dut)
    last = (1 << 14) - 1
    for number in (0, SETS - 1):
        for id in (0, last):
            for learn in (False, True, True, True, True, False):
                await bench.step((number, id, learn))
    await bench.drain()
    # At every 2**insert_log2-th miss, three times over, all age (steady), or one comes in.
    period = 1 << SHAPE["insert_log2"]
    await bench.step(write=(1, [entry(id, 0) for id in range(4)]))
    await bench.step()
    for miss in range(3 * period):
        await bench.step((1, 100 + miss, True))
    await bench.drain()
    came = [entry(99 + k * period, 2) for k in (1, 2, 3)]
    assert bench.model.read(1) == ([entry(id, 3) for id in range(4)] if STEADY else [*came, entry(3, 3)])
    # One short of that, then a write: all of them are needed again.
    await bench.step(write=(1, [entry(id, 1) for id in range(4)]))
    await bench.step()
    for miss in range(period - 1):
        await bench.step((1, 100 + miss, True))
    await bench.drain()
    await bench.step(write=(2, [entry(9, 2), entry(9, 1), entry(9, 0), entry(8, 3)]))
    await bench.step()
    for _ in range(4):
        await bench.step((2, 9, True))
    for miss in range(period - 1):
        await bench.step((1, 200 + miss, True))
    await bench.step((1, 0, False))
    await bench.drain()
    assert bench.model.read(1) == [entry(id, 1) for id in range(4)]
    assert bench.model.read(2) == [entry(9, 0), entry(9, 0), entry(9, 0), entry(8, 3)]
    await bench.step((1, 300, True))
    await bench.drain()
    assert bench.model.read(1) == ([entry(id, 2) for id in range(4)] if STEADY else
                                   [entry(300, 2), *(entry(id, 3) for id in (1, 2, 3))])
    # Every set of rrpv that there is, met by a miss that is the last of its period, and by a hit; the highest decides.
    for number, rrpv in enumerate(product(range(4), repeat=4)):
        at, other = number % (SETS - 1), (number + 1) % (SETS - 1)
        ways = [entry(id, value) for id, value in enumerate(rrpv)]
        await bench.step(write=(at, ways))
        await bench.step(write=(other, [entry(id, 0) for id in range(4)]))
        await bench.step()
        for miss in range(period - 1):
            await bench.step((other, 100 + miss, True))
        await bench.step((at, 50, True))
        assert any(word & 0x3FFF == 50 for word in bench.model.read(at)) == (not STEADY or 3 in rrpv)
        await bench.step((at, number % 5, number % 3 == 0))
        await bench.drain()
        await bench.step((at, 0, False))
    # Ways between empty ones; rrpv of an empty way is nothing.
    await bench.step(write=(3, [entry(5, 0), entry(6, 3, 0), entry(7, 3), entry(0, 0, 0)]))
    await bench.step()
    for id in (6, 5, 20, 21, 22, 0):
        await bench.step((3, id, True))
    await bench.drain()
    await bench.everything()


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def flipped_bits(dut):
    """Each bit of each way in turn: told at every look until an access that learns writes the set; the way counts as
    empty, others stay."""
    random = np.random.default_rng(seed("flips"))
    bench = await Bench.begin(dut)
    for bit in range(18):
        for way in range(4):
            number = int(random.integers(SETS))
            await bench.step(write=(number, [entry(id, int(random.integers(3))) for id in range(40, 44)]))
            await bench.drain()
            bench.flip(number, way, bit)
            wrong = bench.seen["wrong"]
            for id, learn in ((40 + way, False), (41, False), (40 + (way + 1) % 4, True), (40 + way, True),
                              (40 + way, False)):
                await bench.step((number, id, learn))
                for _ in range(int(random.choice([0, 0, *range(1, LATENCY + 2)]))):
                    await bench.step()
            assert bench.seen["wrong"] == wrong + 3
            await bench.drain()
    # All four at once, and a look right behind one that learns.
    await bench.step(write=(0, [entry(id, 1) for id in range(4)]))
    await bench.drain()
    for way in range(4):
        bench.flip(0, way, 3 * way)
        await bench.step()
    await bench.step((0, 1, True))
    await bench.step((0, 1, False))
    await bench.drain()
    assert [word & VALID for word in bench.model.read(0)] == [VALID, 0, 0, 0]
    await bench.everything()


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("shape", one_of(SHAPES))
def test_bank(shape, number):
    simulate(LoggerBank(**SHAPES[shape]), "verif.hotline.test_bank", name=f"hotline_bank_{shape}", tests=6,
             seed=number, env={"HOTRAIL_SHAPE": shape}, memories=("store",))


@pytest.mark.parametrize("change,sentence", [
    (dict(sets=48), "sets must be a power of two from 2 on, not 48"),
    (dict(sets=1), "sets must be a power of two from 2 on, not 1"),
    (dict(insert_log2=-1), "insert_log2 must be 0 or more, not -1"),
    (dict(policy="lru"), "policy must be one of 'srrip', 'sampled', 'steady', not 'lru'"),
    (dict(policy="srrip"), "insert_log2 must be 0 with the policy srrip, by which every miss comes in, not 2"),
    (dict(tag_bits=0), "tag_bits must be 1 or more, not 0"),
])
def test_illegal_config_wrong(change, sentence):
    """Sets that are no power of two, other policies, negative logarithms, a sampling srrip and tags of no bits are
    refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        LoggerBank(**(SHAPES["tiny"] | change))
    assert str(caught.value) == sentence
