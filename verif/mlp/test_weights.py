"""The weights' memory against golden.mlp.store: slots and loads in every cycle, and flipped bits."""
import os
from dataclasses import replace

import cocotb
import numpy as np
import pytest

from golden.mlp.store import Weights
from hw.mlp.records import LATENCY, SOURCE
from hw.mlp.store import codewords
from hw.mlp.weights import WeightMemory
from verif.bench import seed
from verif.bench.runner import one_of, seeds, simulate
from verif.mlp.bench import NARROW, TINY, MemoryBench, some_flips, words_of

WAIVED = {
    "backpressure_both_sides":
        "Slots and loads are taken in every cycle; nothing is ever held back on either side.",
}

CONFIGS = {"tiny": TINY, "narrow": NARROW, "uram": replace(TINY, family="ultrascale_plus"),
           "narrow_uram": replace(NARROW, family="ultrascale_plus")}
CONFIG = CONFIGS[os.environ.get("HOTRAIL_SHAPE", "tiny")]
FLAG_LATENCY = WeightMemory(CONFIG).flag_latency
PAIRS = CONFIG.line_words // 2


class Bench(MemoryBench):
    model = Weights(units=CONFIG.units, words=CONFIG.line_words, lines=CONFIG.weight_lines)

    quiet, packed, flag_latency = ("valid", "load"), ("slot", "load"), FLAG_LATENCY

    async def fill(self, random):
        for line in range(CONFIG.weight_lines):
            for unit in range(CONFIG.units):
                await self.step(load=a_load(random, unit=unit, line=line))

    async def step(self, slot=None, load=None):
        dut, now = self.dut, self.cycle
        self.settle()
        dut.valid.value = slot is not None
        if slot is not None:
            dut.slot.value = self.layouts["slot"].pack(slot)
            self._expect(slot)
        dut.load.value = self.layouts["load"].pack({**load, "valid": 1}) if load else 0
        await self.edge
        if load:
            self.writes.append((now + WeightMemory.write_latency, lambda: self._load(load)))
        self.judge()

    def _load(self, load):
        self.model.load(load["unit"], load["line"], load["words"])
        self.rewritten(lambda key: key[:2] == (load["unit"], load["line"]))

    def _expect(self, slot):
        w = self.model.read(slot["weight_line"])
        found = []
        for (unit, line, pair), bits in self.flipped.items():
            if line != slot["weight_line"]:
                continue
            told = self.misread(w[unit, 2 * pair:2 * pair + 2], bits)
            own = (unit < CONFIG.units - slot["idle_units"] if slot["source"] == SOURCE.OWN
                   else slot["source"] == SOURCE.SHARED and slot["unit"] == unit)
            if own and not slot["blank"]:
                found.append(told)
        self.expect(LATENCY, {"w": w}, found)

    def flip_at(self, unit, line, pair, bits):
        part = getattr(self.dut, f"part_{unit}")
        memory = (getattr(part.store, f"store_{pair}") if CONFIG.family == "any"
                  else getattr(part, f"uram_{pair}").uram.mem)
        self.flip(memory, line, (unit, line, pair), bits)


def a_slot(random, within=CONFIG.weight_lines, **fixed):
    return {"weight_line": int(random.integers(within)), "source": int(random.integers(3)),
            "unit": int(random.integers(CONFIG.units)), "blank": int(random.random() < 0.2),
            "idle_units": int(random.integers(CONFIG.units)), **fixed}


def a_load(random, within=CONFIG.weight_lines, **fixed):
    return {"unit": int(random.integers(CONFIG.units)), "line": int(random.integers(within)),
            "words": random.integers(0, 1 << 32, CONFIG.line_words).tolist(), **fixed}


async def traffic(bench, random, cycles, *, within, slots=1.0, loads=0.5):
    for _ in range(cycles):
        await bench.step(a_slot(random, within) if random.random() < slots else None,
                         a_load(random, within) if random.random() < loads else None)


@cocotb.test()
async def smoke(dut):
    """A line of each part, read."""
    random = np.random.default_rng(1)
    bench = await Bench.begin(dut, random)
    for unit in range(CONFIG.units):
        await bench.step(load=a_load(random, unit=unit, line=3))
    await bench.step()
    await bench.step(a_slot(random, weight_line=3))
    await bench.flush()
    assert bench.model.words.any()


@cocotb.test()
async def random_match_golden(dut):
    """Reads and writes of every kind in every cycle, on few lines so that they meet and on all, equal to the golden
    model; a read before a write has settled gives the old line."""
    random = np.random.default_rng(seed("traffic"))
    bench = await Bench.begin(dut, random)
    await traffic(bench, random, 1000, within=3)
    await traffic(bench, random, 1000, within=CONFIG.weight_lines, slots=0.6, loads=1.0)
    await bench.flush()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Words come when the contract says; a load is seen by the slots `write_latency` later, not by one before."""
    random = np.random.default_rng(seed("latency"))
    bench = await Bench.begin(dut, random)
    load, seen = a_load(random, unit=0, line=9), []
    for cycle in range(LATENCY + WeightMemory.write_latency + 1):
        await bench.step(a_slot(random, weight_line=9) if cycle <= WeightMemory.write_latency else None,
                         load if cycle == 0 else None)
        if cycle >= LATENCY:
            seen.append(words_of(dut.w.value, 1)[0] == load["words"][0])
    assert seen == [False] * WeightMemory.write_latency + [True]
    await bench.flush()


@cocotb.test()
async def reset_midstream(dut):
    """Contents survive a reset; flags of slots before it do not come out behind it, nor does a load go on."""
    random = np.random.default_rng(seed("reset"))
    bench = await Bench.begin(dut, random)
    bench.flip_at(0, 5, 0, 0b11)
    for _ in range(bench.flag_latency):
        await bench.step(a_slot(random, weight_line=5, source=SOURCE.OWN, idle_units=0, blank=0))
    await bench.step(load=a_load(random))
    dut.load.value = bench.layouts["load"].pack({**a_load(random), "valid": 1})
    await bench.reset_now()
    await bench.step(load=a_load(random, unit=0, line=5))
    for line in range(CONFIG.weight_lines):
        await bench.step(a_slot(random, weight_line=line))
    await bench.flush()


@cocotb.test()
async def corner_values(dut):
    """Erased, all ones, one bit, in every word; first and last line."""
    random = np.random.default_rng(seed("corners"))
    bench = await Bench.begin(dut, random)
    last = CONFIG.weight_lines - 1
    for value in (0, 0xFFFFFFFF, 1, 0x80000000):
        for word in range(CONFIG.line_words):
            for unit in range(CONFIG.units):
                load = a_load(random, unit=unit, line=last * (word & 1))
                load["words"][word] = value
                await bench.step(load=load)
            await bench.step()
            for line in (0, last):
                await bench.step(a_slot(random, weight_line=line))
    for line in (0, last):
        for unit in range(CONFIG.units):
            await bench.step(load=a_load(random, unit=unit, line=line, words=[0xFFFFFFFF] * CONFIG.line_words))
    await bench.step()
    for line in (0, last, 1):
        await bench.step(a_slot(random, weight_line=line))
    await bench.flush()


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def flipped_bits(dut):
    """One flip is put right and counted where the slot needs the part, two are told there, neither elsewhere; what is
    written again is whole."""
    random = np.random.default_rng(seed("flips"))
    bench = await Bench.begin(dut, random)
    for _ in range(12):
        for _ in range(12):
            key = int(random.integers(CONFIG.units)), int(random.integers(4)), int(random.integers(PAIRS))
            if key not in bench.flipped:
                bench.flip_at(*key, some_flips(random))
        for _ in range(40):
            await bench.step(a_slot(random, 4))
        # What is loaded is whole again.
        for _ in range(3):
            await bench.step(load=a_load(random, 4))
        await bench.flush()


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def every_word_is_watched(dut):
    """A flip in every codeword of a line: one part counts, or all but idle ones, or none."""
    random = np.random.default_rng(seed("watched"))
    bench = await Bench.begin(dut, random)
    for unit in range(CONFIG.units):
        for pair in range(PAIRS):
            bench.flip_at(unit, 1, pair, 1 << int(random.integers(72)))
    told = []
    own = [(SOURCE.OWN, idle) for idle in range(CONFIG.units)]
    for source, idle in ((SOURCE.SHARED, 0), *own, (SOURCE.FEATURES, 0)):
        await bench.step(a_slot(random, weight_line=1, source=source, idle_units=idle, blank=0))
        told.append(bench.flags[bench.cycle - 1 + FLAG_LATENCY][0])
        await bench.step(a_slot(random, weight_line=1, source=source, idle_units=idle, blank=1))
    await bench.flush()
    assert told == [PAIRS, *(units * PAIRS for units in range(CONFIG.units, 0, -1)), 0]


@pytest.mark.parametrize("shape", one_of(["tiny", "narrow_uram", "narrow", "uram"]))
@pytest.mark.parametrize("number", seeds())
def test_weights(number, shape):
    simulate(WeightMemory(CONFIGS[shape]), "verif.mlp.test_weights", name=f"mlp_weights_{shape}", tests=7,
             seed=number, env={"HOTRAIL_SHAPE": shape}, memories=("store_*", "mem",))


def test_illegal_config_wrong():
    """What the memories are made of refuses a style or a width that it cannot have, with a sentence."""
    with pytest.raises(ValueError, match="codewords takes pairs of 32-bit words, not 32 bits"):
        codewords(WeightMemory(TINY).w[0][0])
