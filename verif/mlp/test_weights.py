"""The weights' memory against golden.mlp.store: slots and loads in every cycle, and flipped bits."""
import os
from dataclasses import replace
from itertools import product

import cocotb
import pytest

from golden.mlp.store import Weights
from hw.mlp.records import SOURCE
from hw.mlp.weights import WeightMemory
from verif.bench.runner import one_of, seeds, simulate
from verif.mlp.bench import (
    NARROW,
    TINY,
    MemoryBench,
    flips,
    latency,
    random_traffic,
    reset_with_flags_and_writes,
)

WAIVED = {
    "backpressure_both_sides":
        "Slots and loads are taken in every cycle; nothing is ever held back on either side.",
}

CONFIGS = {"tiny": TINY, "narrow": NARROW, "uram": replace(TINY, family="ultrascale_plus"),
           "narrow_uram": replace(NARROW, family="ultrascale_plus")}
CONFIG = CONFIGS[os.environ.get("HOTRAIL_SHAPE", "tiny")]
PAIRS = CONFIG.line_words // 2


class Bench(MemoryBench):
    unit = WeightMemory(CONFIG)
    model = Weights(units=CONFIG.units, words=CONFIG.line_words, lines=CONFIG.weight_lines)
    lines, codewords = CONFIG.weight_lines, (CONFIG.units, PAIRS)
    writes, loads = "load", False

    def a_read(self, within=0, **fixed):
        random = self.random
        return {"weight_line": self.within(within), "source": int(random.integers(3)),
                "unit": int(random.integers(CONFIG.units)), "blank": int(random.random() < 0.2),
                "idle_units": int(random.integers(CONFIG.units)), **fixed}

    def a_write(self, within=0, **fixed):
        return {"unit": int(self.random.integers(CONFIG.units)), "line": self.within(within),
                "words": self.words(CONFIG.line_words), **fixed}

    def everything(self):
        return (("write", self.a_write(unit=unit, line=line))
                for line, unit in product(range(self.lines), range(CONFIG.units)))

    def over(self, way, line):
        return self.a_write(unit=0, line=line)

    def counted(self, line):
        return self.a_read(weight_line=line, source=SOURCE.OWN, idle_units=0, blank=0)

    def written(self, write):
        unit, line = write["unit"], write["line"]
        self.model.load(unit, line, write["words"])
        return lambda place: (place[0], place[-1]) == (unit, line)

    def expected(self, read):
        w, flags = self.model.read(read["weight_line"]), []
        for (unit, pair, line), bits in self.flipped.items():
            if line == read["weight_line"]:
                flag = self.misread(w[unit, 2 * pair:2 * pair + 2], bits)
                own = (unit < CONFIG.units - read["idle_units"] if read["source"] == SOURCE.OWN
                       else read["source"] == SOURCE.SHARED and read["unit"] == unit)
                flags += [flag] * (own and not read["blank"])
        return {"w": w}, flags

    def array(self, place):
        part = getattr(self.dut, f"part_{place[0]}")
        return (getattr(part.store, f"store_{place[1]}") if CONFIG.family == "any"
                else getattr(part, f"uram_{place[1]}").uram.mem)


@cocotb.test()
async def smoke(dut):
    """A line of each part, read."""
    bench = await Bench.begin(dut, "smoke")
    for unit in range(CONFIG.units):
        await bench.step(write=bench.a_write(unit=unit, line=3))
    await bench.step()
    await bench.step(bench.a_read(weight_line=3))
    await bench.flush()
    assert bench.model.words.any()


@cocotb.test()
async def random_match_golden(dut):
    """Traffic on few lines and on all, see verif.mlp.bench.random_traffic."""
    await random_traffic(dut, Bench)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Of words, and of what is loaded."""
    await latency(dut, Bench, "w")


@cocotb.test()
async def reset_midstream(dut):
    """With flags and loads under way."""
    await reset_with_flags_and_writes(dut, Bench)


@cocotb.test()
async def corner_values(dut):
    """Erased, all ones, one bit, in every word; first and last line."""
    bench = await Bench.begin(dut, "corners")
    last = CONFIG.weight_lines - 1
    for value in (0, 0xFFFFFFFF, 1, 0x80000000):
        for word in range(CONFIG.line_words):
            for unit in range(CONFIG.units):
                load = bench.a_write(unit=unit, line=last * (word & 1))
                load["words"][word] = value
                await bench.step(write=load)
            await bench.step()
            for line in (0, last):
                await bench.step(bench.a_read(weight_line=line))
    for line, unit in product((0, last), range(CONFIG.units)):
        await bench.step(write=bench.a_write(unit=unit, line=line, words=[0xFFFFFFFF] * CONFIG.line_words))
    await bench.step()
    for line in (0, last, 1):
        await bench.step(bench.a_read(weight_line=line))
    await bench.flush()


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def flipped_bits(dut):
    """Anywhere, read and loaded again."""
    await flips(dut, Bench)


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def every_word_is_watched(dut):
    """A flip in every codeword of a line: one part counts, or all but idle ones, or none."""
    bench = await Bench.begin(dut, "watched")
    bench.flip_all(1)
    told = []
    own = [(SOURCE.OWN, idle) for idle in range(CONFIG.units)]
    for source, idle in ((SOURCE.SHARED, 0), *own, (SOURCE.FEATURES, 0)):
        await bench.step(bench.a_read(weight_line=1, source=source, idle_units=idle, blank=0))
        told.append(bench.corrected)
        await bench.step(bench.a_read(weight_line=1, source=source, idle_units=idle, blank=1))
    await bench.flush()
    assert told == [PAIRS, *(units * PAIRS for units in range(CONFIG.units, 0, -1)), 0]


@pytest.mark.parametrize("shape", one_of(["tiny", "narrow_uram", "narrow", "uram"]))
@pytest.mark.parametrize("number", seeds())
def test_weights(number, shape):
    simulate(WeightMemory(CONFIGS[shape]), "verif.mlp.test_weights", name=f"mlp_weights_{shape}", tests=7,
             seed=number, env={"HOTRAIL_SHAPE": shape}, memories=("store_*", "mem",))
