"""The bags' reader against its golden model, with both buffers, the row table and the port as models beside it."""
import os
from collections import deque
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from golden.hotline import reducer
from golden.hotline.bags import NONE, Position, bags, pool
from hw.hotline.bags import BagReader
from hw.hotline.reducer import Reducer
from verif.bench import rng, seed
from verif.bench.directed import DISTANCES
from verif.bench.harness import Harness
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.bench.stream import bursty, sometimes
from verif.hotline.bench import TINY, WIDE

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
SHAPES = {"tiny": replace(TINY, frame_beats=256), "wide": replace(WIDE, positions=64, frame_beats=256)}
CONFIG = SHAPES[os.environ.get("HOTRAIL_SHAPE", "tiny")]
WORDS, BYTES = CONFIG.words, CONFIG.beat_bytes
HOT = 0x3_0000_0000
HOT_ROWS = 1 << CONFIG.hot_bits
B, A, M = reducer.BEGIN, reducer.ADD, reducer.MULTIPLY


def packed(words):
    return sum(int(word) << 32 * at for at, word in enumerate(words))


class Bench(Harness):
    raw = ("o",)

    def __init__(self, dut, log2, delay, **patterns):
        self.log2, self.beats, self.delay = log2, 1 << log2, delay
        self.due = deque()
        self.counts = dict.fromkeys(("v_mul", "v_add", "gpu_rd"), 0)
        self.frame, self.cold, self.slots, self.hot = {}, {}, [], {}
        self.poison = None
        super().__init__(dut, {name: made() for name, made in patterns.items()})

    @classmethod
    async def begin(cls, dut, log2=0, delay=5, **patterns):
        bench = await super().begin(dut, log2=log2, delay=delay, **patterns)
        dut.hot.value, dut.row_beats_log2.value = HOT, log2
        return bench

    # -- What stands around the unit, `delay` cycles away.
    def _later(self, name, words):
        self.due.append((self.cycle + self.delay, name, words))

    def _o_place(self, place):
        self._later("i_beats", [packed(self.frame[place["frame"], place["beat"]])])

    def _o_query(self, query):
        assert query["batch"] == self.number
        self._later("i_query", [self.slots[query["ordinal"]]])

    def _o_rows(self, slot):
        self._later("i_rows", [packed(words) for words in self.cold[slot]])

    def _o_requests(self, request):
        number, offset = divmod(request["address"] - HOT, BYTES << self.log2)
        assert not offset and request["beats"] == self.beats
        row = self.hot[number]
        self._later("i_hot", [packed(words) | (number == self.poison) << 32 * WORDS
                              | (at == self.beats - 1) << 32 * WORDS + 1 for at, words in enumerate(row)])

    def _cycle(self):
        for name in self.counts:
            self.counts[name] += getattr(self.dut, name).value == 1
        while self.due and self.due[0][0] <= self.cycle:
            _, name, words = self.due.popleft()
            self.sources[name].put_raw(words)

    async def write(self, positions):
        """Address registers of these positions."""
        self.positions = positions
        for number, position in enumerate(positions):
            self.dut.registers.value = layout_of("registers").pack(
                {"valid": 1, "position": number, "join": position.join, "pinned": position.pinned})
            await self.edge
        self.dut.registers.value = 0

    def samples(self, draw, count, *, start=0, cold=0.4, hot=0.4, words=None):
        """A mini-batch in the input buffer, of no more samples than a frame holds, its rows where they belong. start:
        None for anywhere in the frame. Returns what goes to the unit and what the model needs."""
        indices = len(self.positions)
        beats = -(-indices // WORDS)
        if beats < 8 and draw.random() < 0.3:
            beats += 1      # payload
        fits = CONFIG.frame_beats // beats
        count = min(count, fits)
        start = int(draw.integers(fits - count + 1)) if start is None else min(start, fits - count)
        most = min(CONFIG.row_slots, CONFIG.embedding_beats >> self.log2)
        rows = int(draw.integers(1, most + 1))
        width = WORDS << self.log2

        def row():
            bits = draw.integers(0, 1 << 32, width, np.uint32)
            if words is not None:
                return draw.choice(words, width).astype(np.uint32)
            return bits if draw.random() < 0.2 else (bits & np.uint32(0x81FFFFFF)) | np.uint32(0x3E000000)

        cold_rows = np.array([row() for _ in range(rows)])
        numbers = draw.choice(HOT_ROWS, 20, replace=False)
        self.hot = {int(number): row().reshape(-1, WORDS) for number in numbers}
        self.number, frame = int(draw.integers(CONFIG.batches)), int(draw.integers(CONFIG.frames))
        self.slots = draw.permutation(most)[:rows].tolist()
        self.cold = {slot: cold_rows[k].reshape(-1, WORDS) for k, slot in enumerate(self.slots)}
        kind = draw.choice(3, (count, beats * WORDS), p=[cold, hot, 1 - cold - hot])
        table = np.select([kind == 0, kind == 1],
                          [draw.integers(0, rows, kind.shape), draw.choice(numbers, kind.shape) | 1 << 31],
                          NONE).astype(np.uint32)
        # What is carried along is anything.
        table[:, indices:] = draw.integers(0, 1 << 32, (count, beats * WORDS - indices), np.uint32)
        self.frame = {(frame, start * beats + k): words for k, words in enumerate(table.reshape(-1, WORDS))}
        self.dut.indices.value, self.dut.sample_beats.value = indices, beats
        dense = np.zeros((HOT_ROWS, width), np.uint32)
        for number, values in self.hot.items():
            dense[number] = values.reshape(-1)
        beat = {"frame": frame, "start": start, "samples": count, "batch": self.number, "rows": rows, "frees": 1}
        return beat, pool(table, self.positions, dense, cold_rows, row_beats=self.beats)

    async def run(self, draw, count, limit=60_000, **more):
        """One mini-batch, judged. Returns the cycles at which its beats left."""
        o, before = self.sinks["o"], dict(self.counts)
        beat, want = self.samples(draw, count, **more)
        sent = len(o.beats)
        self.sources["i"].put(beat)
        await self.sources["i"].drained()
        await self.edge
        while self.dut.busy.value == 1:
            await self.edge
            limit -= 1
            assert limit, f"not done: {len(o.beats) - sent} beats of {want.vectors.size // WORDS}"
        wanted = [packed(words) for words in want.vectors.reshape(-1, WORDS)]
        got = o.beats[sent:]
        for at, (is_, should) in enumerate(zip(got, wanted, strict=False)):
            assert is_ == should, f"beat {at} of {len(wanted)} is {is_:#x}, expected {should:#x}"
        assert len(got) == len(wanted), (len(got), len(wanted))
        await ClockCycles(self.dut.clk, 3)
        counts = {name: self.counts[name] - before[name] for name in before}
        assert counts == {"v_mul": want.v_mul, "v_add": want.v_add, "gpu_rd": want.gpu_rd}, counts
        assert self.dut.idle.value == 1 and self.dut.error.value == 0 and len(o.beats) == sent + len(wanted)
        return o.at[sent:]


def some_positions(draw, count, begin=0.4, pinned=0.1):
    joins = draw.choice(3, count, p=[begin, (1 - begin) * 0.7, (1 - begin) * 0.3])
    if draw.random() < 0.8:
        joins[0] = B
    return [Position(int(join), bool(draw.random() < pinned)) for join in joins]


def lengths():
    return [log2 for log2 in range(7) if CONFIG.embedding_beats >> log2 >= 1]


@cocotb.test()
async def smoke(dut):
    """A bag of three and one of one, two samples."""
    bench = await Bench.begin(dut)
    await bench.write([Position(B), Position(A), Position(M), Position(B)])
    await bench.run(np.random.default_rng(1), 2)


@cocotb.test()
async def random_match_golden(dut):
    """Any bags, rows of every length, any mixture of hot rows, cold rows, pinned ones and none: every beat in order
    and all counts as the model's."""
    draw = np.random.default_rng(seed("bags"))
    for log2 in lengths():
        bench = await Bench.begin(dut, log2, delay=int(draw.integers(1, 40)))
        for _ in range((4 if log2 < 4 else 2) if REGRESS else 2):
            begin = float(draw.choice([0.05, 0.3, 0.9]))
            await bench.write(some_positions(draw, int(draw.integers(1, CONFIG.positions + 1)), begin))
            most = max(1, 600 // (len(bench.positions) << log2))
            cold = float(draw.choice([0, 0.3, 0.6]))
            count = int(draw.integers(1, most + 1))
            await bench.run(draw, count, start=None, cold=cold, hot=float(draw.choice([0, 0.2, 1 - cold])))


@cocotb.test()
async def backpressure_both_sides(dut):
    """Each of nine streams slow by itself, then all."""
    draw, pauses = np.random.default_rng(seed("slow")), rng("pauses")
    names = ("i_beats", "i_query", "i_rows", "i_hot", "o_place", "o_query", "o_rows", "o_requests", "o")
    for slow in [*((name,) for name in names), names]:
        made = (lambda: sometimes(0.2, pauses)) if pauses.random() < 0.5 else (lambda: bursty(pauses))
        bench = await Bench.begin(dut, pauses.randrange(3), **dict.fromkeys(slow, made))
        await bench.write(some_positions(draw, min(12, CONFIG.positions)))
        await bench.run(draw, 12)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A beat a cycle with bags of one row and, of several samples, with bags of several; rows of a bag alone at the
    documented distance."""
    draw = np.random.default_rng(seed("rate"))
    for log2, joins, count in ((0, [B] * 8, 32), (0, [B, A, A, A, B, A, A, A], 32), (1, [B, A, A, A], 40),
                               (2, [B] + [A] * 4, 20), (3, [B, A, M], 12)):
        bench = await Bench.begin(dut, log2, delay=60)
        await bench.write([Position(join) for join in joins])
        begin = bench.cycle
        at = await bench.run(draw, count, cold=1.0, hot=0.0)
        rows = count * len(joins) << log2
        # Both ends of the pipeline, the look through the positions, and the delays of four answers.
        over = at[-1] - begin - rows
        assert over < CONFIG.positions + 4 * 60 + 80, f"{rows} beats of rows took {over} cycles more"
    for log2 in (0, 3):
        bench = await Bench.begin(dut, log2, delay=1)
        await bench.write([Position(B)] + [Position(A)] * (CONFIG.positions - 1))
        begin = bench.cycle
        at = await bench.run(draw, 1, cold=1.0, hot=0.0)
        each = (at[0] - begin) / (CONFIG.positions - 1)
        assert each < Reducer.turnaround + bench.beats + 6, each


@cocotb.test()
async def reset_midstream(dut):
    """A reset in any phase of a mini-batch: nothing of it is left, the next one is right."""
    draw = np.random.default_rng(seed("reset"))
    for cycles in (1, 10, 30, 60, 100, 150, 200):
        bench = await Bench.begin(dut, 1)
        await bench.write(some_positions(draw, 8))
        beat, _ = bench.samples(draw, 30)
        bench.sources["i"].put(beat)
        for _ in range(cycles):
            await bench.edge
        bench = await Bench.begin(dut, int(draw.integers(3)))
        await bench.edge
        assert dut.busy.value == 0 and dut.idle.value == 1
        await bench.write(some_positions(draw, 8))
        await bench.run(draw, 5)


@cocotb.test()
async def one_cycle_reset(dut):
    """A reset while positions are looked through, and a mini-batch when that would have come to its end."""
    draw = np.random.default_rng(seed("search"))
    for distance in DISTANCES:
        bench = await Bench.begin(dut)
        await bench.write(some_positions(draw, 8))
        bench.sources["i"].put(bench.samples(draw, 3)[0])
        await ClockCycles(dut.clk, 4)
        bench = await Bench.begin(dut, keeps=True)
        await bench.write(some_positions(draw, 8))
        await ClockCycles(dut.clk, CONFIG.positions - 10 + distance)
        await bench.run(draw, 1)


@cocotb.test()
async def corner_values(dut):
    """No vector at all, all positions one vector, each its own; nothing but NONE, pinned positions; special words;
    the highest start and a whole frame; another length of rows without a reset between."""
    draw = np.random.default_rng(seed("corners"))
    specials = np.array([s | w for s in (0, 1 << 31) for w in (
        0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000)], np.uint32)
    bench = await Bench.begin(dut)
    for joins in ([A, M, A], [B], [B] * CONFIG.positions, [B] + [A] * (CONFIG.positions - 1),
                  [A] * (CONFIG.positions - 1) + [B]):
        await bench.write([Position(join) for join in joins])
        await bench.run(draw, 3)
        await bench.run(draw, 3, cold=0.0, hot=0.0)
        await bench.run(draw, 2, words=specials)
    await bench.write([Position(join, pinned) for join in (B, A, M) for pinned in (False, True)])
    await bench.run(draw, 6, words=specials)
    await bench.write([Position(B)] * WORDS)
    await bench.run(draw, 1, start=CONFIG.frame_beats - 1)
    await bench.run(draw, CONFIG.frame_beats)
    for log2 in (0, 2, 1, 3, 0):
        if log2 in lengths():
            bench.log2, bench.beats = log2, 1 << log2
            dut.row_beats_log2.value = log2
            await bench.write(some_positions(draw, 7))
            await bench.run(draw, 7)


@cocotb.test()
@pytest.mark.testpoint("faults")
async def faults(dut):
    """A hot row that cannot be trusted: no vector with it leaves, nor any behind it; the error stays until a reset."""
    draw = np.random.default_rng(seed("faults"))
    for log2 in (0, 1):
        bench = await Bench.begin(dut, log2)
        await bench.write([Position(B)] * 4)
        beat, want = bench.samples(draw, 8, cold=0.3, hot=0.7)
        words = np.array(list(bench.frame.values())).reshape(8, -1)[:, :4].reshape(-1)
        at = next(k for k, word in enumerate(words) if k > 5 and word >> 31 and word != NONE)
        bench.poison = int(words[at]) & 0x7FFFFFFF
        at = next(k for k, word in enumerate(words) if int(word) == 1 << 31 | bench.poison)
        bench.sources["i"].put(beat)
        for _ in range(300):
            await bench.edge
        assert dut.error.value == 1 and dut.busy.value == 1
        wanted = [packed(words) for words in want.vectors.reshape(-1, WORDS)]
        got = bench.sinks["o"].beats
        assert got == wanted[:len(got)] and len(got) <= at << log2
        bench = await Bench.begin(dut, log2)
        await bench.edge
        assert dut.error.value == 0
        await bench.write(some_positions(draw, 4))
        await bench.run(draw, 4)


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", ["tiny", pytest.param("wide", marks=pytest.mark.regress)])
def test_bags(name, number):
    simulate(BagReader(SHAPES[name]), "verif.hotline.test_bags", name=f"hotline_bags_{name}", tests=8, seed=number,
             env={"HOTRAIL_SHAPE": name})


@pytest.mark.testpoint("smoke")
def test_golden_pools():
    """Vectors by hand: hot, cold, NONE and pinned rows, sums and products."""
    assert bags([Position(A), Position(B), Position(A), Position(M), Position(B)]) == [[1, 2, 3], [4]]
    hot, cold = (np.array(rows, np.float32).view(np.uint32) for rows in ([[1, 2], [3, 4]], [[10, 20]]))
    samples = np.array([[0, 1 << 31, 1 << 31 | 1, NONE, 7], [NONE, 0, 0, 1 << 31, 5]], np.uint32)
    positions = [Position(B), Position(A), Position(M), Position(B), Position(B, pinned=True)]
    got = pool(samples, positions, hot, cold, row_beats=3)
    assert got.vectors.view(np.float32).tolist() == [[[33, 88], [0, 0], [0, 0]], [[100, 400], [1, 2], [0, 0]]]
    assert (got.v_mul, got.v_add, got.gpu_rd) == (6, 6, 3)
