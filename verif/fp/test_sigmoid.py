"""The logistic function: its golden model against float64, the unit against its golden model and its cycles."""
import os

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from golden.fp import fp32
from hw.fp.sigmoid import INTERVAL, STAGES, Sigmoid
from verif.bench import reset, rng, seed, start
from verif.bench.runner import seeds, simulate
from verif.bench.stream import always, bursty, never, sometimes
from verif.fp.vectors import Runner
from verif.mlp.cycles import Sigmoid as Model

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
TAG_BITS = 5
# Of both signs: what becomes 1/2, powers of two, what is close to 1 and to the smallest normal number, specials.
CORNERS = np.array([s | w for s in (0, 1 << 31) for w in (
    0, 1, 0x7FFFFF, 0x800000, 0x32000000, 0x33000000, 0x33800000, 0x34000000, 0x3F000000, 0x3F317218, 0x3F7FFFFF,
    0x3F800000, 0x41851591, 0x418AA123, 0x418AA124, 0x42AEAC4E, 0x42AEAC4F, 0x42AEAC50, 0x42AEAC51, 0x42B17217,
    0x42B17218, 0x42FFFFFF, 0x43000000, 0x437FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000)], np.uint32)


class Steady(wiring.Component):
    """A word in bits 0 to 31, valid in 32, ready in 33; out the word, valid and ready."""

    latency = 0
    i: In(64)
    o: Out(64)

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = Sigmoid(tag_bits=0)
        m.d.comb += [
            unit.i.payload.word.eq(self.i[:32]), unit.i.valid.eq(self.i[32]), unit.o.ready.eq(self.i[33]),
            self.o.eq(Cat(unit.o.payload.word, unit.o.valid, unit.i.ready)),
        ]
        return m


@pytest.mark.testpoint("random_match_golden", "latency_and_rate_as_documented")
def test_vectors():
    """Words of all sizes, one behind the other: as golden, a word in INTERVAL cycles. Tens of thousands, millions in a
    regression."""
    run = Runner(Steady(), "sigmoid")
    for number in seeds():
        random = np.random.default_rng(number)
        size = 1_000_000 if REGRESS else 10_000
        parts = [random.integers(0, 1 << 32, size, dtype=np.uint32),
                 random.integers(0x3B000000, 0x42C00000, size, dtype=np.uint32),
                 random.integers(0xBB000000, 0xC2C00000, size, dtype=np.uint32), CORNERS]
        words = random.permutation(np.concatenate(parts))
        records = np.zeros((len(words) * INTERVAL + (STAGES + 2) * INTERVAL, 2), np.uint32)
        records[:, 1] = 2
        records[:len(words) * INTERVAL:INTERVAL] = np.stack([words, np.full(len(words), 3, np.uint32)], -1)
        got = run(records)
        assert (got[:len(words) * INTERVAL:INTERVAL, 1] & 2 != 0).all(), "a word was not taken"
        at = np.flatnonzero(got[:, 1] & 1)
        assert at[0] == STAGES * INTERVAL + 2 and (np.diff(at) == INTERVAL).all() and len(at) == len(words)
        want = fp32.bits(fp32.sigmoid(words))
        wrong = np.flatnonzero(got[at, 0] != want)
        assert not len(wrong), (f"sigmoid of {words[wrong[0]]:#010x}: {got[at[wrong[0]], 0]:#010x}, expected "
                                f"{want[wrong[0]]:#010x}; {len(wrong)} of {len(words)} differ, seed {number}")
        print(f"sigmoid: {len(words):,} vectors, none differing")


class Bench:
    """The unit and its model; what both show is compared in every cycle."""

    def __init__(self, dut, *, source=always, sink=always):
        self.dut, self.model = dut, Model()
        self.source, self.sink = source(), sink()
        self.cycle = 0
        self.taken_at, self.out_at = [], []
        self.results = []

    @classmethod
    async def begin(cls, dut, **arguments):
        start(dut)
        dut.i__valid.value = dut.o__ready.value = 0
        await reset(dut)
        return cls(dut, **arguments)

    async def run(self, words, *, until=100_000):
        """Sends the words, tags counting, until all is out or `until` cycles have passed."""
        dut, model = self.dut, self.model
        edge = RisingEdge(dut.clk)
        waiting = [(int(word), number % (1 << TAG_BITS)) for number, word in enumerate(words)]
        total, offered = len(self.results) + len(waiting), None
        for _ in range(until):
            if offered is None and waiting and next(self.source):
                offered = waiting.pop(0)
            ready = next(self.sink)
            dut.i__valid.value = offered is not None
            word, tag = offered or (rng(f"{self.cycle}").getrandbits(32), 0)
            dut.i__payload.value = word | tag << 32
            dut.o__ready.value = ready
            await edge
            shown = [int(dut.i__ready.value), int(dut.o__valid.value), int(dut.busy.value)]
            want = [int(model.ready), int(model.o is not None), int(model.busy)]
            assert shown == want, f"cycle {self.cycle}: ready, valid, busy are {shown}, expected {want}"
            if model.o is not None:
                value = int(dut.o__payload.value)
                expected = int(fp32.bits(fp32.sigmoid(np.uint32(model.o[0]))))
                assert value == expected | model.o[1] << 32, f"cycle {self.cycle}: {value:#x} of {model.o[0]:#010x}"
                if ready:
                    self.results.append(model.o)
                    self.out_at.append(self.cycle)
            enters = offered if model.ready else None
            if enters is not None:
                self.taken_at.append(self.cycle)
                offered = None
            model.step(enters, ready and model.o is not None)
            self.cycle += 1
            if len(self.results) == total and not model.busy:
                return
        assert until != 100_000, "not done"


def words_of(random, count):
    near = fp32.bits((random.standard_normal(count) * 20).astype(np.float32))
    return np.where(random.random(count) < 0.2, random.choice(CORNERS, count), near)


@cocotb.test()
async def smoke(dut):
    """Four small numbers."""
    bench = await Bench.begin(dut)
    await bench.run(fp32.bits(np.array([0, 1, -1, 3.5], np.float32)))


@cocotb.test()
async def random_match_golden(dut):
    """Words of all sizes with pauses: every output in every cycle is the golden model's."""
    random, pauses = np.random.default_rng(seed("words")), rng("words")
    bench = await Bench.begin(dut, source=lambda: bursty(pauses, 30))
    await bench.run(words_of(random, 300))


@cocotb.test()
async def backpressure_both_sides(dut):
    """Words that come now and then, results taken late or for long not at all; stopped, the unit holds a word in each
    stage and takes no more."""
    random, pauses = np.random.default_rng(seed("pauses")), rng("pauses")
    for source, sink in ((always, lambda: sometimes(0.08, pauses)), (lambda: sometimes(0.1, pauses), always),
                         (lambda: bursty(pauses, 40), lambda: bursty(pauses, 40)), (always, lambda: never(200))):
        bench = await Bench.begin(dut, source=source, sink=sink)
        await bench.run(words_of(random, 60))
        if sink is not always and source is always:
            assert len(bench.results) == 60
    # A word some stages behind one that stands still goes on, as far as there is room.
    for gap in (INTERVAL, 2 * INTERVAL, 3 * INTERVAL):
        bench = await Bench.begin(dut, source=lambda gap=gap: iter([True] + [False] * gap + [True] * 1000),
                                  sink=lambda: never(100))
        await bench.run(words_of(random, 2))
    # Stopped, it holds a word in each stage, at the input and at the output, and takes no more.
    bench = await Bench.begin(dut, sink=lambda: never(500))
    await bench.run(words_of(random, 20), until=400)
    assert len(bench.taken_at) == STAGES + 2 and not bench.results


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A word in nine cycles, the first after exactly its latency, one that comes in between at each place of
    the turn."""
    random = np.random.default_rng(seed("rate"))
    bench = await Bench.begin(dut)
    await bench.run(words_of(random, 40))
    assert bench.out_at[0] - bench.taken_at[0] == STAGES * INTERVAL + 2
    assert set(np.diff(bench.out_at)) == {INTERVAL}
    # A word that comes while others are inside waits for its turn.
    slowest = 0
    for gap in range(1, 2 * INTERVAL):
        bench = await Bench.begin(dut, source=lambda gap=gap: iter([True] + [False] * gap + [True] * 1000))
        await bench.run(words_of(random, 2))
        wait = bench.out_at[1] - bench.taken_at[1] - STAGES * INTERVAL - 2
        assert 0 <= wait < INTERVAL
        slowest = max(slowest, wait)
    assert slowest == INTERVAL - 1


@cocotb.test()
async def reset_midstream(dut):
    """A reset with words in every stage and one that waits at the output: nothing of them comes out."""
    random = np.random.default_rng(seed("reset"))
    for cycles in (3, 25, 60, 90):
        bench = await Bench.begin(dut, sink=lambda: never(70))
        await bench.run(words_of(random, 30), until=cycles)
        bench = await Bench.begin(dut)
        await bench.run(words_of(random, 8))


@cocotb.test()
async def corner_values(dut):
    """Both signs of zeros, subnormals, powers of two, the neighbours of the last result that is not 0 or 1,
    infinities, NaNs."""
    bench = await Bench.begin(dut)
    await bench.run(CORNERS)


@pytest.mark.parametrize("number", seeds())
def test_sigmoid(number):
    simulate(Sigmoid(tag_bits=TAG_BITS), "verif.fp.test_sigmoid", name="fp_sigmoid", tests=6, seed=number)


def test_illegal_config_wrong():
    """A tag of a negative or broken number of bits is refused with a sentence."""
    for bits in (-1, 2.0, None):
        with pytest.raises(ValueError) as caught:
            Sigmoid(tag_bits=bits)
        assert str(caught.value) == f"tag_bits must be a whole number of at least 0, not {bits!r}"
