"""The addends' memory against golden.mlp.store: reads, results and loads in every cycle, and flipped bits."""
import os

import cocotb
import numpy as np
import pytest

from golden.mlp.store import Addends
from hw.mlp.addends import AddendMemory
from hw.mlp.store import codewords
from verif.bench import seed
from verif.bench.runner import one_of, seeds, simulate
from verif.mlp.bench import NARROW, TINY, MemoryBench, some_flips, words_of

CONFIGS = {"tiny": TINY, "narrow": NARROW}
CONFIG = CONFIGS[os.environ.get("HOTRAIL_SHAPE", "tiny")]
LATENCY, FLAG_LATENCY = AddendMemory.latency, AddendMemory(CONFIG).flag_latency
PAIRS = CONFIG.columns // 2
ALL = (1 << CONFIG.units) - 1


class Bench(MemoryBench):
    model = Addends(units=CONFIG.units, columns=CONFIG.columns, lines=CONFIG.addend_lines)

    quiet = ("read", "lines", "i_results", "i_load__valid")
    packed, flag_latency = ("lines", "i_results", "i_load__payload"), FLAG_LATENCY

    async def fill(self, random):
        for line in range(CONFIG.addend_lines):
            assert await self.step(load=a_load(random, line=line))

    async def step(self, lines=None, results=None, load=None, read=None):
        """A cycle; True if the load was taken. read: the units whose lines are needed (None: all, if there are any)."""
        dut, now = self.dut, self.cycle
        self.settle()
        read = ALL * (lines is not None) if read is None else read
        dut.read.value = read
        if lines is not None:
            dut.lines.value = self.layouts["lines"].pack(lines)
            self._expect(lines, read)
        dut.i_results.value = self.layouts["i_results"].pack({**results, "valid": 1}) if results else 0
        dut.i_load__valid.value = load is not None
        if load is not None:
            dut.i_load__payload.value = self.layouts["i_load__payload"].pack(load)
        await self.edge
        taken = load is not None and dut.i_load__ready.value == 1
        assert load is None or taken == (not results), f"cycle {now}: load taken {taken}, results {results}"
        if results:
            self._write(results["units"], results["line"], np.array(results["words"]))
        if taken:
            self._write(ALL, load["line"], np.array([load["words"]] * CONFIG.units))
        self.judge()
        return taken

    def _write(self, units, line, words):
        def done():
            self.model.write(units, line, words)
            self.rewritten(lambda key: units >> key[0] & 1 and key[1] == line)

        self.writes.append((self.cycle + AddendMemory.write_latency, done))

    def _expect(self, lines, read):
        words = self.model.read(lines)
        found = []
        for (unit, line, pair), bits in self.flipped.items():
            if line != lines[unit]:
                continue
            told = self.misread(words[unit, 2 * pair:2 * pair + 2], bits)
            if read >> unit & 1:
                found.append(told)
        self.expect(LATENCY, {"addends": words}, found)

    def flip_at(self, unit, line, pair, bits):
        self.flip(getattr(getattr(self.dut, f"part_{unit}").store, f"store_{pair}"), line, (unit, line, pair), bits)


def some_lines(random, within=CONFIG.addend_lines):
    return random.integers(0, within, CONFIG.units).tolist()


def some_results(random, within=CONFIG.addend_lines, **fixed):
    return {"units": int(random.integers(1, ALL + 1)), "line": int(random.integers(within)),
            "words": random.integers(0, 1 << 32, (CONFIG.units, CONFIG.columns)).tolist(), **fixed}


def a_load(random, within=CONFIG.addend_lines, **fixed):
    return {"line": int(random.integers(within)),
            "words": random.integers(0, 1 << 32, CONFIG.columns).tolist(), **fixed}


async def traffic(bench, random, cycles, *, within, reads=1.0, results=0.5, loads=0.7):
    """Reads, results and loads at once. Returns how many loads had to wait."""
    load, waited = None, 0
    for _ in range(cycles):
        if load is None and random.random() < loads:
            load = a_load(random, within)
        taken = await bench.step(some_lines(random, within) if random.random() < reads else None,
                                 some_results(random, within) if random.random() < results else None, load)
        waited += load is not None and not taken
        load = None if taken else load
    return waited


@cocotb.test()
async def smoke(dut):
    """A line loaded into every unit, one written into one, both read."""
    random = np.random.default_rng(1)
    bench = await Bench.begin(dut, random)
    assert await bench.step(load=a_load(random, line=3))
    await bench.step(results=some_results(random, units=0b10, line=4))
    await bench.step()
    await bench.step()
    for lines in ([3] * CONFIG.units, [4] * CONFIG.units, [3, 4] * (CONFIG.units // 2)):
        await bench.step(lines)
    await bench.flush()
    assert bench.model.words.any()


@cocotb.test()
async def random_match_golden(dut):
    """Reads and writes of every kind in every cycle, on few lines so that they meet and on all, equal to the golden
    model; a read before a write has settled gives the old line."""
    random = np.random.default_rng(seed("traffic"))
    bench = await Bench.begin(dut, random)
    await traffic(bench, random, 1000, within=3)
    await traffic(bench, random, 1000, within=CONFIG.addend_lines, reads=0.6)
    await bench.flush()


@cocotb.test()
async def backpressure_both_sides(dut):
    """A load waits as long as there are results and goes in the first cycle without."""
    random = np.random.default_rng(seed("arbiter"))
    bench = await Bench.begin(dut, random)
    assert await traffic(bench, random, 300, within=8, results=0.9, loads=1.0) > 150
    load = a_load(random)
    for _ in range(20):
        assert not await bench.step(some_lines(random), some_results(random), load)
    assert await bench.step(some_lines(random), load=load)
    await bench.flush()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Addends come when the contract says; what is written or loaded is seen `write_latency` later, not before."""
    random = np.random.default_rng(seed("latency"))
    bench = await Bench.begin(dut, random)
    for way in ("results", "load"):
        one = a_load(random, line=9) if way == "load" else some_results(random, units=1, line=9)
        word = one["words"][0] if way == "load" else one["words"][0][0]
        seen = []
        for cycle in range(LATENCY + AddendMemory.write_latency + 1):
            await bench.step([9] * CONFIG.units if cycle <= AddendMemory.write_latency else None,
                             **({way: one} if cycle == 0 else {}))
            if cycle >= LATENCY:
                seen.append(words_of(dut.addends.value, 1)[0] == word)
        assert seen == [False] * AddendMemory.write_latency + [True]
    await bench.flush()


@cocotb.test()
async def reset_midstream(dut):
    """Contents survive a reset; flags of reads before it do not come out behind it, nor does a write go on."""
    random = np.random.default_rng(seed("reset"))
    bench = await Bench.begin(dut, random)
    bench.flip_at(0, 5, 0, 0b11)
    for _ in range(bench.flag_latency):
        await bench.step([5] * CONFIG.units)
    await bench.step(results=some_results(random, units=ALL))
    dut.i_results.value = bench.layouts["i_results"].pack({**some_results(random, units=ALL), "valid": 1})
    await bench.reset_now()
    assert await bench.step(load=a_load(random, line=5))
    for line in range(CONFIG.addend_lines):
        await bench.step([line] * CONFIG.units)
    await bench.flush()


@cocotb.test()
async def corner_values(dut):
    """Erased, all ones, one bit, in every word; first and last line."""
    random = np.random.default_rng(seed("corners"))
    bench = await Bench.begin(dut, random)
    last = CONFIG.addend_lines - 1
    for value in (0, 0xFFFFFFFF, 1, 0x80000000):
        for word in range(CONFIG.columns):
            for unit in range(CONFIG.units):
                results = some_results(random, units=1 << unit, line=last * (word & 1))
                results["words"][unit][word] = value
                await bench.step(results=results)
            assert await bench.step(load=a_load(random, line=last * (~word & 1), words=[value] * CONFIG.columns))
            await bench.step()
            await bench.step()
            for line in (0, last):
                await bench.step([line] * CONFIG.units)
    await bench.flush()


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def flipped_bits(dut):
    """One flip is put right and counted where the lines are needed, two are told there, neither elsewhere; what is
    written again is whole."""
    random = np.random.default_rng(seed("flips"))
    bench = await Bench.begin(dut, random)
    for _ in range(12):
        for _ in range(12):
            key = int(random.integers(CONFIG.units)), int(random.integers(4)), int(random.integers(PAIRS))
            if key not in bench.flipped:
                bench.flip_at(*key, some_flips(random))
        for _ in range(40):
            await bench.step(some_lines(random, 4), read=int(random.integers(ALL + 1)))
        # What is written is whole again.
        for _ in range(2):
            await bench.step(results=some_results(random, 4))
            await bench.step(load=a_load(random, 4))
        await bench.flush()


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def every_word_is_watched(dut):
    """A flip in every codeword of a line: those of the units count whose line is needed."""
    random = np.random.default_rng(seed("watched"))
    bench = await Bench.begin(dut, random)
    for unit in range(CONFIG.units):
        for pair in range(PAIRS):
            bench.flip_at(unit, 1, pair, 1 << int(random.integers(72)))
    for read in range(ALL + 1):
        await bench.step([1] * CONFIG.units, read=read)
        assert bench.flags[bench.cycle - 1 + FLAG_LATENCY][0] == PAIRS * read.bit_count()
    await bench.flush()


@pytest.mark.parametrize("shape", one_of(CONFIGS))
@pytest.mark.parametrize("number", seeds())
def test_addends(number, shape):
    simulate(AddendMemory(CONFIGS[shape]), "verif.mlp.test_addends", name=f"mlp_addends_{shape}", tests=8,
             seed=number, env={"HOTRAIL_SHAPE": shape}, memories=("store_*",))


def test_illegal_config_wrong():
    """What the memories are made of refuses a style or a width that it cannot have, with a sentence."""
    with pytest.raises(ValueError, match="codewords takes pairs of 32-bit words, not 32 bits"):
        codewords(AddendMemory(TINY).addends[0][0])
