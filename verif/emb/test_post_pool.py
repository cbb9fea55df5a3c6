"""The post-pooling unit against golden.emb.pooling: bags of any make-up, a slow writer, vectors of a wrong length."""
import itertools
import os
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, RisingEdge

from gen.rtl.config import load
from golden.emb import packer, pooling
from golden.fp import fp32
from hw.emb.post_pool import PostPool
from hw.fp.reciprocal import COUNT_BITS, Reciprocal, reciprocal_word
from hw.isa import EMB
from hw.isa.emb import FORMAT, MODE
from verif.bench import reset, rng, seed
from verif.bench.harness import Harness
from verif.bench.memory import base
from verif.bench.runner import seeds, simulate
from verif.bench.stream import always, bursty, sometimes
from verif.fp.vectors import Runner

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
WORDS, OUTPUT_BEATS, BEAT_BYTES = 4, 64, 16   # of the tiny preset
SUM, MEAN, MAXIMUM = MODE
MODES = {mode: mode.name.lower() for mode in MODE}


def latency_of_pool():
    return pooling.latency(os.environ.get("LUT_PRODUCTS") == "1")


def bag(random, *, beats=None, chunks=None, dram=None, ssd=None, mode=None, weighted=None, count=None, values=None,
        form=None):
    """A bag, what the tiers hand over for it and the vector that it is. None: drawn."""
    beats = int(random.integers(1, 17)) if beats is None else beats
    mode = int(random.integers(3)) if mode is None else mode
    form = int(random.integers(len(FORMAT))) if form is None else form
    weighted = mode == SUM and bool(random.integers(2)) if weighted is None else weighted
    chunks = int(random.integers(4)) if chunks is None else chunks
    dram, ssd = (bool(random.integers(2)) if given is None else given for given in (dram, ssd))
    draw = values or (lambda shape: fp32.bits(random.standard_normal(shape).astype(np.float32)))
    vectors = draw((chunks + dram + ssd, beats * WORDS))
    weights = random.standard_normal(chunks).astype(np.float32) if weighted else None
    if count is None:
        count = len(vectors) if random.random() < 0.5 else len(vectors) * int(random.integers(1, 65_536 // 8))
    want = pooling.bag(vectors[:chunks], vectors[chunks:chunks + dram], vectors[chunks + dram:], mode=MODES[mode],
                       count=count, chunk_weights=weights)
    return {"beats": beats, "mode": mode, "weighted": weighted, "chunks": chunks, "dram": dram, "ssd": ssd,
            "vectors": vectors, "weights": weights, "count": count, "format": form, "want": packed(want, form),
            "out_beats": packer.beats(beats, form),
            "out": int(random.integers(0xFFFF0000)), "close": chunks > 0 and bool(random.integers(2))}


def behind(random, bags):
    """The same bags, most of whose vectors lie behind the one before, as those of an instruction do."""
    for before, one in itertools.pairwise(bags):
        if random.random() < 0.9:
            one["out"] = before["out"] + before["out_beats"]
    return bags


def packed(vector, form):
    return packer.pack(vector[None], form, WORDS)[0]


def steps_of(bag, last, instruction):
    """The steps of a bag: one a chunk, and one for its end unless the last chunk's has it."""
    shared = {"mode": bag["mode"], "weighted": bag["weighted"], "format": bag["format"],
              "beats": bag["beats"] - 1, "out": bag["out"], "instruction": instruction}
    # With a mean the count, with weights the tensor train row's; else what the field holds means nothing.
    spare = bag["count"] if bag["mode"] == MEAN else 0x7FC00000
    tail = {"dram": bag["dram"], "ssd": bag["ssd"], "end": 1, "last": last}
    joined = bag["close"] or not (bag["dram"] or bag["ssd"])
    found = [{"tt": 1, "factor": int(fp32.bits(bag["weights"])[k]) if bag["weighted"] else spare, **shared}
             for k in range(bag["chunks"])]
    if not found or not joined:
        found.append({"factor": spare, **shared})
    found[0]["first"] = 1
    found[-1].update(tail)
    return found


class Bench(Harness):
    """The unit between its tiers and a writer that answers a request some cycles after its last beat."""

    watch = ("i_steps", "i_tt", "i_dram", "i_ssd")

    def __init__(self, dut, *, tiers=always, writer=always, answer=40):
        self.done, self.instructions, self.faults = [], [], []
        self.most_waiting = self.served = self.answered_beats = 0
        self._answer, self._due = answer, []
        dut.outputs.value = self.base = base("outputs")
        super().__init__(dut, {name: tiers() for name in self.watch} | {"o_requests": writer()})
        self.requests, self.data = self.sinks["o_requests"], self.sinks["o_data"]

    def feed(self, bags, instruction_of=lambda number: 0, last=None):
        for number, one in enumerate(bags):
            ends = last(number) if last else number == len(bags) - 1
            self.sources["i_steps"].put(*steps_of(one, ends, instruction_of(number)))
            rows = one["vectors"].reshape(len(one["vectors"]), one["beats"], WORDS).tolist()
            for row in rows[:one["chunks"]]:
                self.sources["i_tt"].put(*({"words": words, "last": beat == one["beats"] - 1}
                                         for beat, words in enumerate(row)))
            tiers = [name for name in ("dram", "ssd") if one[name]]
            for name, row in zip(tiers, rows[one["chunks"]:], strict=True):
                self.sources[f"i_{name}"].put(*({"words": words} for words in row))

    def _cycle(self):
        """Requests are answered in order, once their beats are there and `answer` cycles have passed."""
        dut, due = self.dut, self._due
        if due and due[0] < self.cycle:
            due.pop(0)
        self.most_waiting = max(self.most_waiting, len(self.data.beats) - self._written(self.served - len(due)))
        while self.served < len(self.requests.beats) and (
                self.answered_beats + self.requests.beats[self.served]["beats"] <= len(self.data.beats)):
            self.answered_beats += self.requests.beats[self.served]["beats"]
            due.append(max(self.cycle + self._answer, due[-1] + 1 if due else 0))
            self.served += 1
        dut.written.value = bool(due) and due[0] <= self.cycle
        self.done += [self.cycle] * int(dut.done.value)
        if dut.instruction_done.value == 1:
            self.instructions.append(len(self.done))
        if dut.fault_valid.value == 1:
            fault = int(dut.fault.value)
            self.faults.append((fault & 0xFF, fault >> 8 & 0xFFFFFFFF, fault >> 40))

    def _written(self, requests):
        return sum(request["beats"] for request in self.requests.beats[:requests])

    async def finished(self, count, cycles=40_000):
        edge = RisingEdge(self.dut.clk)
        for _ in range(cycles):
            if len(self.done) >= count:
                break
            await edge
        await ClockCycles(self.dut.clk, 60)
        assert len(self.done) == count, f"{len(self.done)} of {count} bags done"

    def judge(self, bags):
        places = iter([(self.base + BEAT_BYTES * one["out"], one["out_beats"]) for one in bags])
        for request in self.requests.beats:
            at, end = request["address"], request["address"] + BEAT_BYTES * request["beats"]
            while at < end:
                address, beats = next(places)
                assert at == address, "a request does not begin where its bag's vector lies"
                at += BEAT_BYTES * beats
            assert at == end, "a request ends within a vector"
        assert next(places, None) is None, "bags without a request"
        words = np.array([[beat["data"] >> 32 * k & 0xFFFFFFFF for k in range(WORDS)] for beat in self.data.beats],
                         np.uint32)
        assert len(words) == sum(one["out_beats"] for one in bags), "beats"
        at = 0
        for number, one in enumerate(bags):
            got = words[at:at + one["out_beats"]].ravel()
            wrong = np.flatnonzero(got != one["want"])
            assert not len(wrong), (
                f"bag {number} ({one['chunks']} chunks, dram {one['dram']}, ssd {one['ssd']}, "
                f"{MODES[one['mode']]}, weighted {one['weighted']}, count {one['count']}, format {one['format']}): "
                f"word {wrong[0]} is {got[wrong[0]]:#010x}, expected {one['want'][wrong[0]]:#010x}; {len(wrong)}")
            at += one["out_beats"]


def corners(random):
    """A drawing of words that are often zeros, subnormals, infinities, NaNs or the largest numbers."""
    special = np.array([s | w for s in (0, 1 << 31) for w in (
        0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001)], np.uint32)

    def draw(shape):
        usual = fp32.bits(random.standard_normal(shape).astype(np.float32))
        return np.where(random.random(shape) < random.choice([0.1, 1.0]), random.choice(special, shape), usual)

    return draw


@cocotb.test()
async def smoke(dut):
    """A bag of each kind in each mode: of nothing, of one tier, of several vectors of one, of all tiers."""
    random = np.random.default_rng(1)
    bench = await Bench.begin(dut)
    bags = [bag(random, chunks=0, dram=False, ssd=False, mode=mode, count=0) for mode in (SUM, MEAN, MAXIMUM)]
    bags += [bag(random, chunks=c, dram=d, ssd=s, mode=mode)
             for mode in (SUM, MEAN, MAXIMUM) for c, d, s in ((2, 0, 0), (0, True, 0), (0, 0, True), (2, True, True))]
    bench.feed(bags)
    await bench.finished(len(bags))
    bench.judge(bags)
    assert not bench.faults


@cocotb.test()
async def random_match_golden(dut):
    """Hundreds of bags of any make-up, mode, length and factor: requests, words and the pulses of bags and
    instructions."""
    random = np.random.default_rng(seed("bags"))
    bench = await Bench.begin(dut)
    bags = behind(random, [bag(random) for _ in range(250)])
    bench.feed(bags, instruction_of=lambda k: k // 50, last=lambda k: k % 50 == 49)
    await bench.finished(len(bags))
    bench.judge(bags)
    assert len(bench.requests.beats) < len(bags), "no write holds several bags"
    assert bench.instructions == [50, 100, 150, 200, 250] and not bench.faults


@cocotb.test()
async def backpressure_both_sides(dut):
    """Tiers and steps that pause, requests taken late, writes answered late; the queue behind fills to its last beat
    and no further."""
    random, pauses = np.random.default_rng(seed("pauses")), rng("pauses")
    bench = await Bench.begin(dut, tiers=lambda: bursty(pauses), writer=lambda: sometimes(0.2, pauses), answer=150)
    bags = behind(random, [bag(random) for _ in range(150)])
    bench.feed(bags)
    await bench.finished(len(bags))
    bench.judge(bags)
    bench.stop()
    # With everything at hand, and with a beat every other cycle, the queue fills to its last beat, and no further.
    for tiers in (always, lambda: itertools.cycle((True, False))):
        bench = await Bench.begin(dut, tiers=tiers, answer=300)
        bags = [bag(random, beats=16, chunks=1, dram=False, ssd=False, mode=SUM, form=form)
                for form in FORMAT for _ in range(20)]
        bench.feed(bags)
        await bench.finished(len(bags))
        bench.judge(bags)
        bench.stop()
        assert bench.most_waiting == OUTPUT_BEATS, f"{bench.most_waiting} beats waited at most"


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Bags of one, four and sixteen beats in a row, and bags of four vectors: no gap between beats; the first one
    after the documented latency."""
    random = np.random.default_rng(seed("rate"))
    for beats, total in ((1, 60), (4, 40), (16, 8)):
        bench = await Bench.begin(dut, answer=0)
        bags = [bag(random, beats=beats, chunks=1, dram=False, ssd=False, mode=mode, weighted=False, count=9, form=0)
                for mode in random.integers(0, 3, total).tolist()]
        bench.feed(bags)
        await bench.finished(total)
        bench.judge(bags)
        at = bench.data.at
        if beats > 1:
            # A short bag is written more slowly than it is made: its answer takes longer than its beat.
            assert at == list(range(at[0], at[0] + total * beats)), f"gaps between beats of bags of {beats} beats"
        latency = at[0] - bench.sources["i_tt"].taken_at[0]
        assert latency == latency_of_pool(), latency
        bench.stop()
    # Bags of several vectors: a beat of a vector a cycle.
    bench = await Bench.begin(dut, answer=0)
    bags = [bag(random, beats=4, chunks=2, dram=True, ssd=True, mode=mode, weighted=False, count=63,
                form=1 + mode % 2)
            for mode in random.integers(0, 3, 20).tolist()]
    bench.feed(bags)
    await bench.finished(20)
    bench.judge(bags)
    taken = sorted(cycle for name in ("i_tt", "i_dram", "i_ssd") for cycle in bench.sources[name].taken_at)
    assert taken == list(range(taken[0], taken[0] + 20 * 16))
    bench.stop()
    # Half precision: a beat in two cycles, later by the packer's latency; FP32 behind it waits for as long.
    bench = await Bench.begin(dut, answer=0)
    bags = [bag(random, beats=4, chunks=1, dram=False, ssd=False, mode=SUM, weighted=False, form=form)
            for form in (1, 2, 1, 0, 0)]
    bench.feed(bags)
    await bench.finished(len(bags))
    bench.judge(bags)
    at, taken = bench.data.at, bench.sources["i_tt"].taken_at
    first = taken[1] + latency_of_pool() + packer.LATENCY
    assert at[:6] == list(range(first, first + 12, 2))
    assert taken[:12] == list(range(taken[0], taken[0] + 12)) and taken[12] == taken[11] + 1 + packer.LATENCY
    assert at[6:] == [cycle + latency_of_pool() for cycle in taken[12:]]


@cocotb.test()
async def reset_midstream(dut):
    """A reset with bags under way and beats unwritten; bags behind it are whole, are counted anew and find
    all the room."""
    random = np.random.default_rng(seed("reset"))
    bench = await Bench.begin(dut, answer=500)
    bench.feed([bag(random, beats=16, chunks=3) for _ in range(10)])
    await ClockCycles(dut.clk, 130)
    bench.stop()
    await reset(dut, cycles=1)      # a beat may leave in the cycle of the reset: nobody counts it
    bench = await Bench.begin(dut)
    bags = behind(random, [bag(random) for _ in range(40)])
    bench.feed(bags, last=lambda k: k == 39)
    await bench.finished(len(bags))
    bench.judge(bags)
    assert bench.instructions == [40]


@cocotb.test()
async def corner_values(dut):
    """Zeros of both signs, subnormals, infinities and NaNs in vectors and weights; counts at the ends of the table and
    of the range; single beats of every three formats in a row."""
    random = np.random.default_rng(seed("corners"))
    bench = await Bench.begin(dut)
    bags = [bag(random, beats=int(random.integers(1, 4)), values=corners(random)) for _ in range(150)]
    bags += [bag(random, beats=1, mode=MEAN, count=count, chunks=2)
             for count in (1, 2, 3, 62, 63, 64, 65, 127, 128, 1000, 65_535, 65_536)]
    bags += [bag(random, beats=1, chunks=1, dram=False, ssd=False, mode=SUM, form=int(form))
             for forms in itertools.product(FORMAT, repeat=3) for form in forms]
    bench.feed(bags)
    await bench.finished(len(bags))
    bench.judge(bags)


@cocotb.test()
@pytest.mark.testpoint("faults")
async def faults(dut):
    """Vectors of each tier, marked from one of their beats on: told once with instruction and bag, all bags right."""
    random = np.random.default_rng(seed("faults"))
    bench = await Bench.begin(dut)
    bags = [bag(random, beats=3, chunks=2, dram=True, ssd=True, weighted=False) for _ in range(12)]
    # Bag 2: a tensor train's vector marked. 4: card memory's. 5: the SSD's. 8: of the second instruction.
    marks = {("tt", 2): (1, 2), ("dram", 4): (0, 1), ("ssd", 5): (0, 2), ("tt", 8): (0, 0)}
    for number, one in enumerate(bags):
        bench.sources["i_steps"].put(*steps_of(one, number in (5, 11), 3 + (number > 5)))
        rows = one["vectors"].reshape(4, 3, WORDS).tolist()
        for at, (name, row) in enumerate(zip(("tt", "tt", "dram", "ssd"), rows, strict=True)):
            which, begin = marks.get((name, number), (None, 0))
            for beat, words in enumerate(row):
                error = which == (at % 2 if name == "tt" else 0) and beat >= begin
                last = {"last": beat == len(row) - 1} if name == "tt" else {}
                bench.sources[f"i_{name}"].put({"words": words, "error": error, **last})
    await bench.finished(len(bags))
    code = EMB.code
    assert bench.faults == [(code("TT_MEMORY"), 3, 2), (code("READ_ERROR"), 3, 4), (code("READ_ERROR"), 3, 5),
                            (code("TT_MEMORY"), 4, 2)]
    assert bench.instructions == [6, 12]
    bench.judge(bags)


@pytest.mark.turns(1)
@pytest.mark.parametrize("products", [0, 1])
@pytest.mark.parametrize("number", seeds())
def test_finish(number, products):
    config = load("tiny").cores["emb"]
    assert (config.words, config.output_beats, config.beat_bytes) == (WORDS, OUTPUT_BEATS, BEAT_BYTES)
    simulate(PostPool(replace(config, lut_products=products)), "verif.emb.test_post_pool",
             name=f"emb_finish_{products}", tests=7, seed=number, env={"LUT_PRODUCTS": str(products)})


# ---- the reciprocal

HOLD = 48   # cycles that a number stands: more than the longest division


class Inverse(wiring.Component):
    """A number and, in bit 31, its start; the quotient and whether it is there."""

    latency = 0

    i: In(64)
    o: Out(64)

    def elaborate(self, platform):
        m = Module()
        m.submodules.divide = divide = Reciprocal()
        m.d.comb += [divide.n.eq(self.i[:COUNT_BITS]), divide.start.eq(self.i[31]),
                     self.o.eq(Cat(divide.o, divide.done))]
        return m


@pytest.mark.testpoint("latency_and_rate_as_documented", "corner_values")
def test_reciprocal_of_every_count():
    """The reciprocal of every count of a mean, there in exactly its cycle; by default of every small count, of those
    around each power of two and of one in sixteen."""
    run = Runner(Inverse(), "reciprocal")
    counts = np.arange(1, (1 << 16) + 1, dtype=np.uint32)
    if not REGRESS:
        near = np.abs(counts[:, None].astype(int) - (1 << np.arange(17))).min(axis=1) <= 2
        counts = counts[(counts <= 512) | near | (counts % 16 == seeds()[0] % 16)]
    want = fp32.bits(fp32.div(np.float32(1), counts.astype(np.float32)))
    assert [reciprocal_word(int(n)) for n in counts] == want.tolist()
    records = np.zeros((len(counts), HOLD, 2), np.uint32)
    records[:, :, 0] = counts[:, None]
    records[:, 0, 0] |= np.uint32(1 << 31)
    got = run(records.reshape(-1, 2)).reshape(len(counts), HOLD, 2)
    assert (got[:, -1, 0] == want).all()
    # Not there before its cycle, there from then on.
    there = 28 + 16 - np.floor(np.log2(counts)).astype(int)
    for hold in range(1, HOLD):
        assert (got[:, hold, 1] == (hold >= there)).all(), hold


def test_illegal_config_wrong():
    """A queue that could not hold a bag while another is written is refused with a sentence."""
    config = load("tiny").cores["emb"]
    with pytest.raises(ValueError, match="output_beats must be at least 2 times row_beats_max = 16, not 16"):
        type(config)(**{**config.__dict__, "output_beats": 16})
