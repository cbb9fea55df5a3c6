"""The mover of the logger's image between beats and sets, against the image's order."""
import os
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.hotline.image import beats_of, image_of, order
from hw.hotline.image import ImageMover
from verif.bench import rng, seed
from verif.bench.harness import Harness
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import always, bursty, never, sometimes
from verif.hotline.bench import TINY, WIDE

CONFIGS = {
    "tiny": replace(TINY, sets=32),
    "wide": replace(WIDE, sets=16, banks=16),
    # As few banks as a beat has sets.
    "narrow": replace(TINY, banks=4, sets=16, words=16, lanes=16),
}
CONFIG = CONFIGS[os.environ.get("IMAGE", "tiny")]
BANKS, SETS, WORDS = CONFIG.banks, CONFIG.sets, CONFIG.words


def draw(label):
    """A whole image's words, bits that no entry has among them."""
    return np.random.default_rng(seed(label)).integers(0, 1 << 32, (BANKS * SETS * 4 // WORDS, WORDS), np.uint32)


def packed(beats):
    return [int.from_bytes(beat.astype("<u4").tobytes(), "little") for beat in beats]


class Bench(Harness):
    """The mover between beats and a logger that holds an image."""

    raw, watch = ("o_beats",), ("i_beats", "i_image")

    def __init__(self, dut, *, beats=always, images=always, answers=always, asks=always):
        self.image = np.zeros((BANKS, SETS, 4), np.uint32)
        self.wrote, self.asked, self.done_at = [], [], []
        super().__init__(dut, {"i_beats": beats(), "o_beats": beats(), "o_image": images(), "o_ask": asks(),
                               "i_image": answers()})
        self.source, self.sink, self.writes = self.sources["i_beats"], self.sinks["o_beats"], self.sinks["o_image"]

    def _cycle(self):
        if self.dut.done.value == 1:
            self.done_at.append(self.cycle)

    def _o_image(self, beat):
        self.wrote.append((beat["bank"], beat["set"]))
        self.image[beat["bank"], beat["set"]] = beat["ways"]

    def _o_ask(self, beat):
        self.asked.append((beat["bank"], beat["set"]))
        self.sources["i_image"].put({**beat, "ways": self.image[beat["bank"], beat["set"]].tolist()})

    async def finish(self, times):
        """Waits for the pulse of `done`, and that there is no other."""
        limit = self.cycle + 200 * BANKS * SETS
        while len(self.done_at) < times:
            await RisingEdge(self.dut.clk)
            assert self.cycle < limit, "it never ended"
        for _ in range(5):
            await RisingEdge(self.dut.clk)
        assert len(self.done_at) == times

    async def load(self, beats, times=1):
        self.wrote.clear()
        self.source.put_raw(packed(beats))
        await self.pulse("start_load")
        await self.finish(times)
        assert self.wrote == order(BANKS, SETS)
        got = self.image & 0x1FFFF
        assert (got == image_of(beats, BANKS, SETS)).all()
        # What came in as it was: the logger drops what it has no place for.
        assert (beats_of(self.image, WORDS) == beats).all()

    async def save(self, times=1):
        self.asked.clear()
        self.sink.beats.clear()
        await self.pulse("start_save")
        await self.finish(times)
        assert self.asked == order(BANKS, SETS)
        assert self.sink.beats == packed(beats_of(self.image, WORDS))


@cocotb.test()
async def smoke(dut):
    """An image in, and the same out."""
    bench = await Bench.begin(dut)
    await bench.load(draw("smoke"))
    await bench.save(2)


@cocotb.test()
async def random_match_golden(dut):
    """Several images, loads and saves in any order: every set in its place and in the image's order, done
    once for each."""
    bench = await Bench.begin(dut)
    for turn in range(4):
        if turn % 3 < 2:
            await bench.load(draw(turn), turn + 1)
        else:
            await bench.save(turn + 1)
        assert len(bench.done_at) == turn + 1


@cocotb.test()
async def backpressure_both_sides(dut):
    """Beats, sets to write, sets asked for and their answers that pause, each by itself and all together."""
    pauses = rng("pauses")
    rare, common = (lambda: sometimes(0.3, pauses)), (lambda: bursty(pauses))
    for patterns in (dict(beats=rare), dict(images=rare, answers=rare), dict(asks=rare),
                     dict(beats=common, images=common, answers=common, asks=common), dict(beats=lambda: never(100))):
        bench = await Bench.begin(dut, **patterns)
        await bench.load(draw(str(patterns)))
        await bench.save(2)
        bench.stop()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A set each cycle from the first to the last, without a gap in both directions, and done a cycle after the last
    was taken."""
    bench = await Bench.begin(dut)
    await bench.load(draw("rate"))
    assert np.ptp(bench.writes.at) == BANKS * SETS - 1
    assert bench.done_at[0] - bench.cycle == bench.writes.at[-1] + 1 - bench.writes.cycle
    await bench.save(2)
    assert np.ptp(bench.sinks["o_ask"].at) == BANKS * SETS - 1
    assert set(np.diff(bench.sink.at)) == {WORDS // 4}
    assert bench.done_at[1] - bench.cycle == bench.sink.at[-1] + 1 - bench.sink.cycle


@cocotb.test()
async def reset_midstream(dut):
    """A reset in the middle of a load and of a save: the next ones begin with the first set."""
    for name in ("start_load", "start_save"):
        bench = await Bench.begin(dut, beats=lambda: sometimes(0.5, rng("reset")))
        bench.source.put_raw(packed(draw("before")))
        await bench.pulse(name)
        for _ in range(BANKS * SETS // 2 + 3):
            await RisingEdge(dut.clk)
        assert not bench.done_at
        bench.stop()
        bench = await Bench.begin(dut)
        await bench.load(draw("after"))
        await bench.save(2)
        bench.stop()


@cocotb.test()
async def corner_values(dut):
    """All bits and none; beats that are there before the start, and beats behind the image, which stay where
    they are."""
    bench = await Bench.begin(dut)
    ones = np.full((BANKS * SETS * 4 // WORDS, WORDS), 0xFFFFFFFF, np.uint32)
    await bench.load(ones)
    bench.source.put_raw(packed(np.concatenate([ones * 0, draw("more")])))
    for _ in range(20):
        await RisingEdge(dut.clk)
    assert bench.source.sent == len(ones), "a beat was taken without a load"
    bench.wrote.clear()
    await bench.pulse("start_load")
    await bench.finish(2)
    assert bench.wrote == order(BANKS, SETS) and not bench.image.any()
    assert bench.source.sent == 2 * len(ones), "a beat behind the image was taken"
    await bench.save(3)


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", one_of(CONFIGS))
def test_image(name, number):
    simulate(ImageMover(CONFIGS[name]), "verif.hotline.test_image", name=f"hotline_image_{name}", tests=6,
             seed=number, env={"IMAGE": name})
