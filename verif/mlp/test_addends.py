"""The addends' memory against golden.mlp.store: reads, results and loads in every cycle, and flipped bits."""
import os

import cocotb
import numpy as np
import pytest

from golden.mlp.store import Addends
from hw.mlp.addends import AddendMemory
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

CONFIGS = {"tiny": TINY, "narrow": NARROW}
CONFIG = CONFIGS[os.environ.get("HOTRAIL_SHAPE", "tiny")]
PAIRS = CONFIG.columns // 2
ALL = (1 << CONFIG.units) - 1


class Bench(MemoryBench):
    """A read has a line for each unit; `needed`: the units whose lines are."""

    unit, latency = AddendMemory(CONFIG), AddendMemory.latency
    model = Addends(units=CONFIG.units, columns=CONFIG.columns, lines=CONFIG.addend_lines)
    lines, codewords = CONFIG.addend_lines, (CONFIG.units, PAIRS)
    asks, writes = "lines", "i_results"

    def a_read(self, within=0, **fixed):
        return {"lines": [self.within(within) for _ in range(CONFIG.units)],
                "needed": int(self.random.choice([ALL, self.random.integers(ALL + 1)])), **fixed}

    def a_write(self, within=0, **fixed):
        return {"units": int(self.random.integers(ALL + 1)), "line": self.within(within),
                "words": self.words(CONFIG.units, CONFIG.columns), **fixed}

    def a_load(self, within=0, **fixed):
        return {"line": self.within(within), "words": self.words(CONFIG.columns), **fixed}

    def everything(self):
        return (("load", self.a_load(line=line)) for line in range(self.lines))

    def over(self, way, line):
        return self.a_load(line=line) if way == "load" else self.a_write(units=1, line=line)

    def counted(self, line):
        return {"lines": [line] * CONFIG.units, "needed": ALL}

    def show(self, read):
        self.dut.read.value = read["needed"] if read else 0
        if read:
            self.dut.lines.value = self.layouts["lines"].pack(read["lines"])

    def written(self, write):
        units, line = write["units"], write["line"]
        self.model.write(units, line, np.array(write["words"]))
        return lambda place: units >> place[0] & 1 and place[-1] == line

    def loaded(self, load):
        self.model.load(load["line"], load["words"])
        return lambda place: place[-1] == load["line"]

    def expected(self, read):
        words, flags = self.model.read(read["lines"]), []
        for (unit, pair, line), bits in self.flipped.items():
            if line == read["lines"][unit]:
                flag = self.misread(words[unit, 2 * pair:2 * pair + 2], bits)
                flags += [flag] * (read["needed"] >> unit & 1)
        return {"addends": words}, flags

    def array(self, place):
        return getattr(getattr(self.dut, f"part_{place[0]}").store, f"store_{place[1]}")


@cocotb.test()
async def smoke(dut):
    """A line loaded into every unit, one written into one, both read."""
    bench = await Bench.begin(dut, "smoke")
    assert await bench.step(load=bench.a_load(line=3))
    await bench.step(write=bench.a_write(units=0b10, line=4))
    await bench.step()
    await bench.step()
    for lines in ([3] * CONFIG.units, [4] * CONFIG.units, [3, 4] * (CONFIG.units // 2)):
        await bench.step(bench.a_read(lines=lines))
    await bench.flush()
    assert bench.model.words.any()


@cocotb.test()
async def random_match_golden(dut):
    """Traffic on few lines and on all, see verif.mlp.bench.random_traffic."""
    await random_traffic(dut, Bench)


@cocotb.test()
async def backpressure_both_sides(dut):
    """A load waits as long as there are results and goes in the first cycle without."""
    bench = await Bench.begin(dut, "arbiter")
    assert await bench.traffic(300, within=8, writes=0.9, loads=1.0) > 150
    load = bench.a_load()
    for _ in range(20):
        assert not await bench.step(bench.a_read(), bench.a_write(), load)
    assert await bench.step(bench.a_read(), load=load)
    await bench.flush()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Of addends, and of what is written or loaded."""
    await latency(dut, Bench, "addends")


@cocotb.test()
async def reset_midstream(dut):
    """With flags and writes under way."""
    await reset_with_flags_and_writes(dut, Bench)


@cocotb.test()
async def corner_values(dut):
    """Erased, all ones, one bit, in every word; first and last line."""
    bench = await Bench.begin(dut, "corners")
    last = CONFIG.addend_lines - 1
    for value in (0, 0xFFFFFFFF, 1, 0x80000000):
        for word in range(CONFIG.columns):
            for unit in range(CONFIG.units):
                results = bench.a_write(units=1 << unit, line=last * (word & 1))
                results["words"][unit][word] = value
                await bench.step(write=results)
            assert await bench.step(load=bench.a_load(line=last * (~word & 1), words=[value] * CONFIG.columns))
            await bench.step()
            await bench.step()
            for line in (0, last):
                await bench.step(bench.counted(line))
    await bench.flush()


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def flipped_bits(dut):
    """Anywhere, read and written again."""
    await flips(dut, Bench)


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def every_word_is_watched(dut):
    """A flip in every codeword of a line: those of the units count whose line is needed."""
    bench = await Bench.begin(dut, "watched")
    bench.flip_all(1)
    for needed in range(ALL + 1):
        await bench.step({**bench.counted(1), "needed": needed})
        assert bench.corrected == PAIRS * needed.bit_count()
    await bench.flush()


@pytest.mark.parametrize("shape", one_of(CONFIGS))
@pytest.mark.parametrize("number", seeds())
def test_addends(number, shape):
    simulate(AddendMemory(CONFIGS[shape]), "verif.mlp.test_addends", name=f"mlp_addends_{shape}", tests=8,
             seed=number, env={"HOTRAIL_SHAPE": shape}, memories=("store_*",))
