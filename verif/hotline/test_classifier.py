"""The Hotline core's classifier against golden.hotline.classifier."""
import os
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from golden.hotline.classifier import classify
from hw.hotline.classifier import Classifier
from verif.bench import rng, seed
from verif.bench.harness import Harness
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import Scoreboard, always, bursty, never, sometimes
from verif.hotline.bench import TINY

CONFIGS = {"tiny": TINY, "wide": replace(TINY, lanes=16, words=16)}
CONFIG = CONFIGS[os.environ.get("HOTRAIL_SHAPE", "tiny")]
DEPTH = 2 * CONFIG.sample_beats_max


def draw(random, sizes, share=0.2):
    """Beats of samples of these sizes, some of them cold."""
    count = int(np.sum(sizes))
    cold = random.random(count) < share
    words = random.integers(0, 1 << 32, (count, CONFIG.words), np.uint32).tolist()
    beats = [{"first": int(k == 0), "last": int(k == size - 1)} for size in sizes for k in range(size)]
    return [{**beat, "cold": int(c), "words": w} for beat, c, w in zip(beats, cold, words, strict=True)]


def expected(beats, sizes):
    cold = classify([beat["cold"] for beat in beats], sizes)
    return [{**beat, "cold": int(c)} for beat, c in zip(beats, cold, strict=True)]


class Bench(Harness):
    watch = ("i",)

    def __init__(self, dut, source=None, sink=None):
        self.board = Scoreboard()
        self.popular_at, self.idle_at = [], []
        super().__init__(dut, {"i": source, "o": sink})
        self.source, self.sink = self.sources["i"], self.sinks["o"]

    def _o(self, beat):
        self.board.got(beat)

    def _cycle(self):
        if self.dut.popular.value == 1:
            self.popular_at.append(self.cycle)
        if self.dut.idle.value == 1:
            self.idle_at.append(self.cycle)

    async def run(self, random, sizes, share=0.2):
        beats = draw(random, sizes, share)
        want = expected(beats, sizes)
        self.board.expect(*want)
        before = len(self.popular_at)
        self.source.put(*beats)
        await self.sink.wait(len(self.sink.beats) + len(beats), cycles=50 * len(beats) + 500)
        await ClockCycles(self.dut.clk, 4)
        self.board.done()
        popular = sum(beat["last"] and not beat["cold"] for beat in want)
        assert len(self.popular_at) - before == popular, (self.popular_at[before:], popular)
        assert self.dut.idle.value == 1


@cocotb.test()
async def smoke(dut):
    """Three samples of two beats."""
    bench = await Bench.begin(dut)
    await bench.run(np.random.default_rng(1), [2, 2, 2], share=0.3)


@cocotb.test()
async def random_match_golden(dut):
    """Samples of all lengths, few and many of them cold: every beat, its mark, and the counts."""
    random = np.random.default_rng(seed("samples"))
    bench = await Bench.begin(dut)
    for share in (0.05, 0.2, 0.7):
        await bench.run(random, random.integers(1, 9, 60), share)


@cocotb.test()
async def backpressure_both_sides(dut):
    """Beats that pause, beats taken late, both, and nothing taken for long."""
    random, pauses = np.random.default_rng(seed("pauses")), rng("pauses")
    for source, sink in ((bursty(pauses), bursty(pauses)), (sometimes(0.2, pauses), always()),
                         (always(), sometimes(0.2, pauses)), (always(), never(100))):
        bench = await Bench.begin(dut, source=source, sink=sink)
        await bench.run(random, random.integers(1, 9, 40))
        bench.stop()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Two cycles from a sample's last beat to its first, a beat a cycle whatever the length, pulses a cycle after the
    last beat, never idle with a beat inside; a sample that is not whole stays."""
    random = np.random.default_rng(seed("rate"))
    for size in range(1, 9):
        bench = await Bench.begin(dut)
        await bench.run(random, [size] * 12, share=0.2 / size)
        taken, at = bench.source.taken_at, bench.sink.at
        assert np.ptp(taken) == np.ptp(at) == 12 * size - 1, "a gap between beats"
        assert at[0] - taken[size - 1] == 2
        last = zip(taken[size - 1::size], bench.sink.beats[size - 1::size], strict=True)
        assert bench.popular_at == [cycle + 1 for cycle, beat in last if not beat["cold"]]
        busy = set(range(taken[0] + 1, at[-1] + 1))
        assert not busy & set(bench.idle_at), "idle with a beat inside"
        bench.stop()
    bench = await Bench.begin(dut, sink=never(60))
    bench.source.put(*draw(random, [8] * 6))
    await ClockCycles(dut.clk, 50)
    assert DEPTH <= bench.source.sent <= DEPTH + 1
    bench.stop()
    bench = await Bench.begin(dut)
    bench.source.put(*draw(random, [8])[:7])
    await ClockCycles(dut.clk, 30)
    assert not bench.sink.beats and dut.idle.value == 0


@cocotb.test()
async def reset_midstream(dut):
    """A reset inside a cold sample and with others inside: nothing is left, and the next sample is not cold for it."""
    random, pauses = np.random.default_rng(seed("reset")), rng("reset")
    for after in (1, 2, 4, 11, 30):
        bench = await Bench.begin(dut, sink=sometimes(0.3, pauses))
        beats = draw(random, [5] * 20, share=0.9)
        bench.board.expect(*expected(beats, [5] * 20))
        bench.source.put(*beats)
        await ClockCycles(dut.clk, after)
        bench.stop()
        bench = await Bench.begin(dut)
        await bench.run(random, [3, 1, 8, 2], share=0.1)
        bench.stop()


@cocotb.test()
async def corner_values(dut):
    """The only cold beat in each place of samples of each length; samples of one beat and the longest, one behind the
    other; all cold, none cold."""
    random = np.random.default_rng(seed("corners"))
    bench = await Bench.begin(dut)
    sizes = [size for size in range(1, 9) for _ in range(size)]
    beats = draw(random, sizes, share=0)
    at = 0
    for size in range(1, 9):
        for k in range(size):
            beats[at + k * size + k]["cold"] = 1
        at += size * size
    want = expected(beats, sizes)
    assert all(beat["cold"] for beat in want)
    bench.board.expect(*want)
    bench.source.put(*beats)
    await bench.sink.wait(len(beats))
    bench.board.done()
    for share in (0, 1):
        for size in (1, 8):
            await bench.run(random, [size] * 10, share)
    await bench.run(random, [1, 8, 1, 1, 8, 8, 1], share=0.15)


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", one_of(CONFIGS))
def test_classifier(name, number):
    simulate(Classifier(CONFIGS[name]), "verif.hotline.test_classifier", name=f"hotline_classifier_{name}", tests=6,
             seed=number, env={"HOTRAIL_SHAPE": name})
