"""The result block and the progress words, as they reach the write port."""

import os

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from hw.isa import EMB
from hw.kernel.report import HEADER_WORDS, Reporter
from verif.bench import reset, rng
from verif.bench.harness import Harness
from verif.bench.memory import base
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import bursty

WAIVED = {
    "latency_and_rate_as_documented":
        "The block's length follows from the totals. It is written once a run, in some hundred cycles, and nothing but "
        "the end of the run waits for it.",
}

COUNTERS = int(os.environ.get("COUNTERS", "8"))


class _Bench(Harness):
    """Totals that come by like the counter file's, and a port that answers each request some cycles later."""

    def __init__(self, dut, pattern=None):
        random = rng()
        self.header = [random.getrandbits(32) for _ in range(HEADER_WORDS)]
        self.totals = [random.getrandbits(64) for _ in range(COUNTERS)]
        self.answered = self.waits = 0
        dut.base.value = self.base = base("results")
        dut.header.value = sum(word << 32 * at for at, word in enumerate(self.header))
        super().__init__(dut, {"o_requests": pattern})
        self.requests, self.beats = self.sinks["o_requests"], self.sinks["o_data"]

    def _cycle(self):
        dut, at = self.dut, self.cycle % COUNTERS
        dut.number.value = at
        dut.total.value = self.totals[at]
        self.waits = self.waits + 1 if len(self.requests.beats) > self.answered else 0
        dut.done.value = int(self.waits == 9)
        self.answered += self.waits == 9

    def words(self, first, count):
        width = len(self.dut.o_data__payload) // 32
        beats = self.beats.beats[first:first + count]
        return [beat >> 32 * at & 0xFFFFFFFF for beat in beats for at in range(width)]

    def block(self):
        words = list(self.header)
        for total in self.totals:
            words += [total & 0xFFFFFFFF, total >> 32]
        return words


async def _until(dut, condition, cycles=500):
    for _ in range(cycles):
        await RisingEdge(dut.clk)
        if condition():
            return
    raise AssertionError("nothing came within the time")


async def _block(dut, bench):
    await bench.pulse("finish")
    await _until(dut, lambda: int(dut.finished.value) == 1)


@cocotb.test()
async def smoke(dut):
    """The block is the header and every total, low words first, the rest of its last beat zero."""
    bench = await _Bench.begin(dut)
    await _block(dut, bench)
    beats = len(bench.beats.beats)
    assert bench.requests.beats == [{"address": bench.base, "beats": beats}]
    words = bench.words(0, beats)
    assert words[:len(bench.block())] == bench.block() and not any(words[len(bench.block()):])
    await ClockCycles(dut.clk, 2)
    assert int(dut.busy.value) == 0


@cocotb.test()
@pytest.mark.testpoint("backpressure_both_sides")
async def random_match_golden(dut):
    """Progress and block in random order of asking, behind a port that takes requests when it likes: progress words
    reach their address with what was to be told."""
    bench = await _Bench.begin(dut, pattern=bursty(rng()))
    for _ in range(8):
        released, done = rng().getrandbits(30), len(bench.requests.beats)
        dut.progress.value = released | done << 32
        await bench.pulse("report_progress")
        while bench.answered == done:
            await RisingEdge(dut.clk)
            assert int(dut.busy.value) == 1, "asked for, not yet written, and not busy"
        assert bench.requests.beats[-1] == {"address": bench.base + 768, "beats": 1}
        assert bench.words(len(bench.beats.beats) - 1, 1)[:2] == [released, done]
        await ClockCycles(dut.clk, rng().randrange(4))


@cocotb.test()
@pytest.mark.testpoint("random_match_golden")
async def progress_goes_before_the_block(dut):
    """Progress that is to be told when the run ends is written before the block, in a beat of its own."""
    bench = await _Bench.begin(dut)
    dut.progress.value = 77
    dut.report_progress.value = 1
    await bench.pulse("finish")
    dut.report_progress.value = 0
    await _until(dut, lambda: int(dut.finished.value) == 1)
    assert bench.requests.beats == [{"address": bench.base + 768, "beats": 1},
                                    {"address": bench.base, "beats": len(bench.beats.beats) - 1}]
    assert bench.words(0, 1)[:2] == [77, 0]


@cocotb.test()
@pytest.mark.testpoint("coincidences")
async def asked_for_again(dut):
    """Progress that is asked for once more in any cycle about that of its writing, and the run's end then; progress
    that is asked for as the block is written: the last word is written in the end, and the block whole."""
    bench = await _Bench.begin(dut)

    async def ask(word, wait):
        dut.progress.value = word
        await bench.pulse("report_progress")
        if wait:
            await ClockCycles(dut.clk, wait)

    for distance in range(20):
        for ends in ("never", "then", "before"):
            before, first = len(bench.requests.beats), len(bench.beats.beats)
            word = rng(f"{distance} {ends}").getrandbits(30)
            if ends == "before":
                await bench.pulse("finish")
                await ClockCycles(dut.clk, 1 + 3 * distance)
            else:
                await ask(~word & 0x3FFFFFFF, distance)
            await ask(word, 0)
            if ends == "then":
                await _block(dut, bench)
            await _until(dut, lambda: int(dut.busy.value) == 0)
            at, told, blocks = first, [], 0
            for request in bench.requests.beats[before:]:
                words = bench.words(at, request["beats"])
                if request["address"] == bench.base:
                    blocks += 1
                    assert words[:len(bench.block())] == bench.block(), (distance, ends)
                else:
                    assert request == {"address": bench.base + 768, "beats": 1}, (distance, ends)
                    told.append(words[0])
                at += request["beats"]
            assert told[-1] == word and len(told) <= 2 and blocks == (ends != "never"), (distance, ends, told, blocks)


@cocotb.test()
async def reset_midstream(dut):
    """A reset in the block forgets it; the next is whole."""
    bench = await _Bench.begin(dut)
    await bench.pulse("finish")
    await ClockCycles(dut.clk, rng().randrange(1, 12))
    await reset(dut)
    await ClockCycles(dut.clk, 1)       # a beat may leave in the cycle of the reset
    bench.beats.beats.clear()
    asked = len(bench.requests.beats)
    await ClockCycles(dut.clk, 40)
    assert len(bench.requests.beats) == asked and int(dut.busy.value) == 0
    await _block(dut, bench)
    assert bench.words(0, len(bench.beats.beats))[:len(bench.block())] == bench.block()


@pytest.mark.parametrize("words,counters", one_of([(16, 4), (4, 8), (8, 2)]))
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.testpoint("corner_values")
def test_report(words, counters, seed):
    """Beats of 4, 8 and 16 words, the block's last full and not; totals and words of 64 and 32 random bits."""
    simulate(Reporter(words=words, counters=counters, kernel=EMB), "verif.kernel.test_report",
             name=f"kernel_report_{words}", tests=5, seed=seed, env={"COUNTERS": counters})


@pytest.mark.parametrize(("parameters", "sentence"), [
    ({"words": 5, "counters": 8}, "words must be 4, 8 or 16, not 5"),
    ({"words": 4, "counters": 6}, "counters must be a power of two of at least 2, not 6"),
])
def test_illegal_config_wrong(parameters, sentence):
    """Impossible sizes are refused with a sentence."""
    with pytest.raises(ValueError, match=sentence):
        Reporter(**parameters, kernel=EMB)
