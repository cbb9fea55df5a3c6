"""Half precision: the golden model against NumPy's and against bfloat16's definition, the unit against the golden model
for every way in which a word can be rounded."""
import os

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from golden.fp.narrow import FORMATS, narrow, widen
from hw.fp.narrow import Narrow
from verif.bench import seed, start
from verif.bench.runner import seeds, simulate
from verif.fp.vectors import Runner

WAIVED = {
    "backpressure_both_sides": "The unit takes a word in every cycle and never waits; there is nothing to hold back.",
    "illegal_config_wrong": "The unit has no parameters, so there is no configuration that could be wrong.",
}
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
LANES = 8
# Bits below those that a result keeps, its rounding bit among them, are only ever taken together: with all numbers in
# the upper 21 (sign, exponent and 12 of the fraction), none, one or all of the others set stand for all words.
UPPER = np.arange(1 << 21, dtype=np.uint32) << 11
LOWER = [0, 0x7FF, *(1 << k for k in range(11))]


class Words(wiring.Component):
    """LANES units: i = control, words; o = words. Control: bfloat16 in bit 0."""

    latency = Narrow.latency
    i: In(32 * (LANES + 1))
    o: Out(32 * LANES)

    def elaborate(self, platform):
        m = Module()
        for k in range(LANES):
            m.submodules[f"unit{k}"] = unit = Narrow()
            m.d.comb += [unit.brain.eq(self.i[0]), unit.word.eq(self.i[32 * (k + 1):32 * (k + 2)]),
                         self.o[32 * k:32 * k + 16].eq(unit.o)]
        return m


def as_defined(words, form):
    """Of NumPy, and of bfloat16 as the upper half of a word; with this project's zeros and NaNs."""
    value = words.view(np.float32)
    if form == "float16":
        with np.errstate(all="ignore"):
            codes = value.astype(np.float16).view(np.uint16)
    else:
        wide = words.astype(np.uint64)
        codes = (wide + 0x7FFF + (wide >> 16 & 1) >> 16).astype(np.uint16)
    codes = np.where(words & 0x7F800000 == 0, words >> 16 & 0x8000, codes)
    return np.where(np.isnan(value), FORMATS[form][3], codes)


@pytest.mark.parametrize("form", FORMATS)
def test_golden_is_as_defined(form):
    """Every rounding; in a regression every word."""
    for low in range(1 << 11) if REGRESS else LOWER[:2]:
        words = UPPER | np.uint32(low)
        np.testing.assert_array_equal(narrow(words, form), as_defined(words, form))


@pytest.mark.parametrize("form", FORMATS)
def test_every_half_word_comes_back(form):
    codes = np.arange(1 << 16, dtype=np.uint16)
    values = widen(codes, form)
    nan = np.isnan(values)
    subnormal = (form == "bfloat16") & (codes & 0x7F80 == 0)
    want = np.where(nan, FORMATS[form][3], np.where(subnormal, codes & 0x8000, codes))
    np.testing.assert_array_equal(narrow(values, form), want)


@pytest.mark.turns(1)
@pytest.mark.testpoint("random_match_golden", "corner_values")
@pytest.mark.parametrize("form", FORMATS)
def test_every_rounding(form):
    """All signs, exponents and fractions as far as a result depends on them: zeros, subnormals, ties, what
    rounds to infinity, infinities and NaNs among them."""
    run = Runner(Words(), "narrow")
    some = LOWER if REGRESS else LOWER[:2]
    for low in some:
        words = UPPER | np.uint32(low)
        records = np.zeros((len(words) // LANES, 1 + LANES), np.uint32)
        records[:, 0], records[:, 1:] = form == "bfloat16", words.reshape(-1, LANES)
        got = run(records).reshape(-1)
        wrong = np.flatnonzero(got != narrow(words, form))
        assert not len(wrong), f"{form} of {words[wrong[0]]:#010x}: {got[wrong[0]]:#06x}; {len(wrong)} differ"
    print(f"narrow {form}: {len(some) * len(UPPER):,} vectors, none differing")


async def through(dut, words, brain, reset=range(0)):
    """A word a cycle; each result has to stand at the output exactly `latency` cycles later."""
    start(dut)
    edge = RisingEdge(dut.clk)
    await edge
    want = np.where(brain, narrow(words, "bfloat16"), narrow(words, "float16"))
    for cycle in range(len(words) + Narrow.latency + 1):
        if cycle < len(words):
            dut.word.value, dut.brain.value = int(words[cycle]), int(brain[cycle])
        dut.rst.value = cycle in reset
        await edge
        at = cycle - Narrow.latency
        if 0 <= at < len(words):
            got = int(dut.o.value)
            assert got == want[at], f"{words[at]:#010x}, bfloat16 {brain[at]}: {got:#06x}, expected {want[at]:#06x}"


def drawn(label, count):
    random = np.random.default_rng(seed(label))
    return random.integers(0, 1 << 32, count, dtype=np.uint32), random.integers(0, 2, count)


@cocotb.test()
async def smoke(dut):
    """One, minus two, a third; in both formats."""
    words = np.array([1, -2, 1 / 3, 1, -2, 1 / 3], np.float32).view(np.uint32)
    await through(dut, words, np.arange(6) // 3)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A word in every cycle, in the formats by turns; each result in the cycle that `latency` names."""
    await through(dut, np.arange(1, 301, dtype=np.float32).view(np.uint32), np.arange(300) % 2)


@cocotb.test()
async def reset_midstream(dut):
    """A reset neither changes nor delays what is on its way."""
    await through(dut, *drawn("reset", 100), reset=range(40, 45))


@pytest.mark.parametrize("number", seeds())
def test_narrow(number):
    simulate(Narrow(), "verif.fp.test_narrow", name="fp_narrow", tests=3, seed=number)
