"""The access logger against its model: answers of every wave, and what it holds afterwards."""
import os
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.hotline.image import order
from golden.hotline.logger import Logger as Model
from hw.hotline.logger import Logger
from verif.bench import report, rng, seed
from verif.bench.harness import Harness
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, shapes, simulate
from verif.bench.stream import always, bursty, never, sometimes
from verif.hotline.bench import TINY

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
CONFIGS = {
    "tiny": replace(TINY, sets=32, waves=32, queue=64),
    # More lanes than banks, few waves.
    "narrow": replace(TINY, lanes=16, banks=4, sets=16, waves=4, queue=128, policy="srrip", insert_log2=0),
    "sampled": replace(TINY, banks=4, sets=32, queue=64, policy="sampled"),
}
CONFIG = CONFIGS[os.environ.get("LOGGER", "tiny")]
LANES, BANKS, SETS, BITS = CONFIG.lanes, CONFIG.banks, CONFIG.sets, CONFIG.domain_bits
ENTRIES = BANKS * SETS * 4


def draw(random, count, *, rows=3 * ENTRIES, filled=0.9, learn=0.7, spread=0.6):
    """Waves (valid, row, learn): few rows come often, many rarely; lanes without an access; waves without any."""
    waves = []
    for _ in range(count):
        row = np.minimum(random.geometric(4 / ENTRIES, LANES), rows - 1)
        row = np.where(random.random(LANES) < spread, row, random.integers(0, rows, LANES))
        valid = random.random(LANES) < random.choice([filled, filled, filled, 0.1, 1, 0])
        waves.append((valid, row, bool(random.random() < learn)))
    return waves


class Bench(Harness):
    """The logger between waves, an image's sets and a reader of both, all judged against the model."""

    watch = ("i", "i_image", "i_ask")

    def __init__(self, dut, *, waves=always, answers=always, images=always):
        self.model = Model(BANKS, SETS, CONFIG.insert_log2, CONFIG.policy)
        self.expected = []      # of each wave: (valid, hit, number)
        self.judged = self.hits = self.accesses = 0
        self.want_hits = self.want_accesses = 0
        self.error = None
        self.busy = True
        self.error_layout = layout_of("error")
        super().__init__(dut, {"i": waves(), "i_image": images(), "i_ask": images(), "o": answers(),
                               "o_image": images()})
        self.waves, self.writes, self.asks = (self.sources[name] for name in ("i", "i_image", "i_ask"))
        self.answers, self.sets = self.sinks["o"], self.sinks["o_image"]

    @classmethod
    async def begin(cls, dut, clear=True, **patterns):
        """After a reset, which the contents outlive, with a clear."""
        bench = await super().begin(dut, **patterns)
        if clear:
            await bench.clear()
        return bench

    def _cycle(self):
        self.hits += int(self.dut.hits.value)
        self.accesses += int(self.dut.accesses.value)
        self.busy = self.dut.busy.value == 1
        shown = self.error_layout.unpack(int(self.dut.error.value))
        if shown["valid"]:
            assert self.error in (None, shown["bank"]), "the error changed"
            self.error = shown["bank"]
        else:
            assert self.error is None, "the error did not stay"

    def put(self, waves):
        """Sends waves and works out what has to come."""
        noise = rng(str(len(self.expected)))
        beats = []
        for valid, rows, learn in waves:
            hit, number = np.zeros(LANES, bool), np.zeros(LANES, np.int64)
            hit[valid], number[valid] = self.model.access(rows[valid], learn)
            self.expected.append((hit, number))
            self.want_hits += int(hit.sum())
            self.want_accesses += int(valid.sum())
            beats.append({"learn": learn, "lanes": [
                {"valid": int(v), "row": int(row) if v else noise.getrandbits(BITS)}
                for v, row in zip(valid, rows, strict=True)]})
        self.waves.put(*beats)

    def _o(self, beat):
        assert self.judged < len(self.expected), "an answer came unasked"
        hit, number = self.expected[self.judged]
        got = [lane["hit"] for lane in beat["lanes"]]
        assert got == hit.astype(int).tolist(), f"wave {self.judged}: hit {got}, expected {hit.astype(int).tolist()}"
        got = [lane["number"] for lane, was in zip(beat["lanes"], hit, strict=True) if was]
        assert got == number[hit].tolist(), f"wave {self.judged}: numbers {got}, expected {number[hit].tolist()}"
        self.judged += 1

    async def quiet(self, cycles=20_000):
        """Until all that was asked for has come, and a little longer."""
        limit, still = self.cycle + cycles, 0
        while still < 8:
            await RisingEdge(self.dut.clk)
            assert self.cycle < limit, f"not quiet after {cycles} cycles: {self.judged} of {len(self.expected)} waves"
            waits = self.waves._queue or self.writes._queue or self.asks._queue
            still = 0 if waits or self.busy or self.judged < len(self.expected) else still + 1
        assert self.judged == len(self.expected)
        assert (self.accesses, self.hits) == (self.want_accesses, self.want_hits)

    async def clear(self):
        self.dut.clear.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.clear.value = 0
        self.model.clear()
        await RisingEdge(self.dut.clk)
        await self.quiet()

    async def load(self, random, places, full=0.8):
        beats = []
        for bank, number in places:
            ways = (random.integers(0, 1 << 17, 4) | np.where(random.random(4) < full, 1 << 16, 0)).astype(np.uint32)
            # Rows that will be asked for, not only ones that never come.
            banks, sets, ids = self.model.places(random.integers(0, 3 * ENTRIES, 4))
            ways = np.where(random.random(4) < 0.5, ways, ways & ~np.uint32(0x3FFF) | ids.astype(np.uint32))
            self.model.write(bank, number, ways)
            dirt = random.integers(0, 1 << 15, 4) << 17
            beats.append({"bank": bank, "set": number, "ways": (ways | dirt).tolist()})
        self.writes.put(*beats)
        await self.quiet()

    async def save(self, places=None):
        """Reads sets, and compares them with the model's."""
        places = order(BANKS, SETS) if places is None else places
        self.sets.beats.clear()
        self.asks.put(*({"bank": bank, "set": number} for bank, number in places))
        await self.quiet()
        want = [{"bank": bank, "set": number, "ways": self.model.image[bank, number].tolist()}
                for bank, number in places]
        for got, expected in zip(self.sets.beats, want, strict=True):
            assert got == expected, f"{got}, expected {expected}"


@cocotb.test()
async def smoke(dut):
    """A row is learned, found by lanes of the same and of later waves, and forgotten by a clear."""
    bench = await Bench.begin(dut)
    all_lanes, row = np.ones(LANES, bool), np.full(LANES, 77)
    bench.put([(all_lanes, row, False), (all_lanes, row, True), (all_lanes, row, False),
               (all_lanes, np.arange(LANES), False)])
    await bench.quiet()
    assert bench.hits == 2 * LANES - 1
    await bench.clear()
    bench.put([(all_lanes, row, False)])
    await bench.quiet()
    assert bench.hits == 2 * LANES - 1
    await bench.save()


@cocotb.test()
async def random_match_golden(dut):
    """Waves that learn and that only look, lanes and waves without an access, in turn with sets written and read:
    every answer, every set and the counts of hits and accesses."""
    random = np.random.default_rng(seed("random"))
    bench = await Bench.begin(dut)
    for turn in range(3):
        bench.put(draw(random, 250 if REGRESS else 120, learn=[0.7, 1, 0.2][turn]))
        await bench.quiet()
        await bench.save()
        places = [(int(random.integers(BANKS)), int(random.integers(SETS))) for _ in range(30)]
        await bench.load(random, places)
        await bench.save(places[::-1])
    assert 0.1 < bench.hits / bench.accesses < 0.9, "waves that tell little"
    assert bench.error is None


@cocotb.test()
async def backpressure_both_sides(dut):
    """Waves that pause, answers and sets that are taken late, or for long not at all."""
    random, pauses = np.random.default_rng(seed("pauses")), rng("pauses")
    rare, common = (lambda: sometimes(0.2, pauses)), (lambda: bursty(pauses))
    for waves, answers, images in ((common, common, common), (always, rare, rare), (rare, always, always),
                                   (always, lambda: never(300), lambda: never(600))):
        bench = await Bench.begin(dut, waves=waves, answers=answers, images=images)
        bench.put(draw(random, 120 if REGRESS else 60))
        await bench.quiet()
        await bench.load(random, order(BANKS, SETS)[:20])
        await bench.save(order(BANKS, SETS)[:40])
        bench.stop()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A wave each cycle as far as the waves inside last, the cycles of a clear, a set each cycle in and out; no more
    waves inside than there are slots."""
    bench = await Bench.begin(dut)
    await bench.quiet()
    # One access a wave: a wave each cycle, as far as the waves inside last.
    lanes, at = np.zeros(LANES, bool), np.arange(LANES)
    lanes[0] = True
    bench.put([(lanes, at + k, True) for k in range(300)])
    await bench.quiet()
    latency = bench.answers.at[0] - bench.waves.taken_at[0] + bench.waves.cycle - bench.answers.cycle
    cycles = np.ptp(bench.answers.at)
    assert cycles <= max(300, 300 * (latency + 2) / CONFIG.waves), (cycles, latency)
    report(latency=int(latency), cycles=int(cycles))
    # The clear: from its pulse to the first wave that is taken.
    bench.put([(lanes, at, True)])
    dut.clear.value = 1
    await RisingEdge(dut.clk)
    dut.clear.value = 0
    bench.stop()
    bench = await Bench.begin(dut, clear=False)
    dut.clear.value = 1
    await RisingEdge(dut.clk)
    dut.clear.value = 0
    bench.model.clear()
    begun = bench.cycle
    await RisingEdge(dut.clk)
    bench.put([(lanes, at, False)])
    await bench.quiet()
    assert bench.waves.taken_at[0] - begun == SETS + 3, bench.waves.taken_at[0] - begun
    await bench.save()
    assert np.ptp(bench.asks.taken_at) == np.ptp(bench.sets.at) == BANKS * SETS - 1
    await bench.load(np.random.default_rng(1), order(BANKS, SETS))
    assert np.ptp(bench.writes.taken_at) == BANKS * SETS - 1
    # Nobody takes answers: as many waves as there are slots come in, and what the output holds.
    bench.stop()
    bench = await Bench.begin(dut, answers=lambda: never(50 * CONFIG.waves))
    before = bench.cycle
    bench.put(draw(np.random.default_rng(2), 2 * CONFIG.waves + 10))
    while bench.cycle < before + 20 * CONFIG.waves:
        await RisingEdge(dut.clk)
    assert bench.waves.sent == CONFIG.waves + 1, bench.waves.sent
    await bench.quiet()


@cocotb.test()
async def reset_midstream(dut):
    """A reset with waves, a clear or sets inside: the next ones find a logger that works; what the banks hold outlives
    it, what they count does not."""
    random = np.random.default_rng(seed("reset"))
    for what in ("waves", "clear", "sets", "stays"):
        bench = await Bench.begin(dut)
        if what == "waves":
            bench.put(draw(random, 200))
        elif what == "clear":
            bench.put(draw(random, 10))
            dut.clear.value = 1
        elif what == "sets":
            bench.asks.put(*({"bank": bank, "set": number} for bank, number in order(BANKS, SETS)))
        else:
            bench.put(draw(random, 100))
            await bench.quiet()
        for _ in range(int(random.integers(15, 40))):
            await RisingEdge(dut.clk)
            dut.clear.value = 0
        bench.stop()
        model = bench.model
        bench = await Bench.begin(dut, clear=what != "stays")
        if what == "stays":
            bench.model = model
            model.reset()
        bench.put(draw(random, 100))
        await bench.quiet()
        await bench.save()
        bench.stop()


@cocotb.test()
async def corner_values(dut):
    """The first and the last rows; all lanes to one bank, one set, one row; waves without an access; the way of each
    entry; a clear in the midst of waves takes effect between those taken before it and those taken after it."""
    random = np.random.default_rng(seed("corners"))
    bench = await Bench.begin(dut)
    every = np.ones(LANES, bool)
    top = 1 << BITS
    bench.put([(every, np.arange(LANES), True), (every, top - 1 - np.arange(LANES), True), (~every, every * 5, True),
               (every, np.arange(LANES), False), (every, top - 1 - np.arange(LANES), False)])
    # Rows of one bank, of one set, and one row.
    rows = np.arange(64 * BANKS * SETS)
    banks, sets, _ = bench.model.places(rows)
    for same in (rows[banks == 1], rows[(banks == BANKS - 1) & (sets == SETS - 1)], rows[:1]):
        for learn in (True, False, True, True, False):
            bench.put([(every, random.choice(same, LANES), learn) for _ in range(12)])
    bench.put([(~every, rows[:LANES], bool(k % 2)) for k in range(20)])
    await bench.quiet()
    await bench.save()
    # A clear while waves come: it waits for those that are inside, later ones wait for it.
    waves = draw(random, 60)
    before = len(bench.expected)
    bench.answers._on_beat = None       # nothing is known of them yet
    for wave in waves:
        bench.waves.put(wave_beat(wave))
    for _ in range(20):
        await RisingEdge(dut.clk)
    dut.clear.value = 1
    await RisingEdge(dut.clk)
    dut.clear.value = 0
    taken = bench.waves.sent + (bench.dut.i__ready.value == 1)
    await RisingEdge(dut.clk)
    # Worked out now: what was taken before the clear, and what after it.
    first = taken - before
    assert first < len(waves), "all came before the clear"
    for at, (valid, row, learn) in enumerate(waves):
        if at == first:
            bench.model.clear()
        hit, number = np.zeros(LANES, bool), np.zeros(LANES, np.int64)
        hit[valid], number[valid] = bench.model.access(row[valid], learn)
        bench.expected.append((hit, number))
        bench.want_hits += int(hit.sum())
        bench.want_accesses += int(valid.sum())
    for beat in bench.answers.beats[before:]:
        bench._o(beat)
    bench.answers._on_beat = bench._o
    await bench.quiet()
    await bench.save()


def wave_beat(wave):
    valid, rows, learn = wave
    return {"learn": learn, "lanes": [{"valid": int(v), "row": int(row)} for v, row in zip(valid, rows, strict=True)]}


@cocotb.test()
@pytest.mark.testpoint("faults")
async def flipped_bits(dut):
    """A bit of the memory turned over: the bank is told at a look, at an access that learns and in an image that is
    read, the lowest of two in one cycle, and stays; not where the set was written anew."""
    every = np.ones(LANES, bool)
    for banks, how in (([BANKS - 1], "look"), ([2, 1], "learn"), ([0], "image"), ([3], "load")):
        bench = await Bench.begin(dut)
        random = np.random.default_rng(seed(how))
        bench.put(draw(random, 20, learn=1))
        await bench.quiet()
        for bank in banks:
            for number in range(SETS):
                word = getattr(dut, f"bank_{bank}").store[number]
                word.value = int(word.value) ^ 1 << 17
        await RisingEdge(dut.clk)
        assert bench.error is None
        # The answers are those of the bank's model: here they are taken as they come.
        bench.answers._on_beat = None
        if how == "image":
            bench.asks.put({"bank": banks[0], "set": 3})
        elif how == "load":
            # A set that is written is right again.
            bench.writes.put({"bank": banks[0], "set": 3, "ways": [0] * 4})
            bench.asks.put({"bank": banks[0], "set": 3})
        else:
            rows = np.arange(100 * LANES)
            found = bench.model.places(rows)[0]
            picked = np.array([rows[found == banks[k % len(banks)]][k] for k in range(LANES)])
            bench.waves.put(wave_beat((every, picked, how == "learn")))
        for _ in range(100):
            await RisingEdge(dut.clk)
        if how == "load":
            assert bench.error is None
        else:
            assert bench.error == min(banks), (bench.error, how)
        for number in range(SETS):
            for bank in range(BANKS):
                bench.writes.put({"bank": bank, "set": number, "ways": [0] * 4})
        await bench.writes.drained()
        bench.stop()


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", shapes(CONFIGS, 1))
def test_logger(name, number):
    simulate(Logger(CONFIGS[name]), "verif.hotline.test_logger", name=f"hotline_logger_{name}", tests=7,
             seed=number, env={"LOGGER": name}, memories=("store",))
