"""The FP32 adder and multiplier against their golden models: testpoints in cocotb, vectors by the million without it.

The number of vectors a unit is small in `make test` and above ten million in `make regress`; it is printed.
"""
import os
from itertools import product

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from golden.fp import fp32
from hw.fp.add import Add
from hw.fp.multiply import Multiply
from verif.bench import rng, start
from verif.bench.runner import seeds, simulate
from verif.fp.operands import CORNERS, SIGN, near, nudged, random_words
from verif.fp.vectors import Lanes, Runner

UNIT = ("fp/add", "fp/multiply")
WAIVED = {
    "backpressure_both_sides":
        "The unit takes a pair of operands in every cycle and never waits; there is nothing to hold back.",
}

UNITS = {
    "multiply": (Multiply, fp32.mul),
    "add": (Add, fp32.add),
}
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))


# ---- cocotb: the testpoints of timing and reset

class Units(wiring.Component):
    """All units side by side on the same operands."""

    def __init__(self):
        super().__init__({"x": In(32), "y": In(32), **{name: Out(32) for name in UNITS}})

    def elaborate(self, platform):
        m = Module()
        for name, (unit, _) in UNITS.items():
            m.submodules[name] = part = unit()
            m.d.comb += [part.x.eq(self.x), part.y.eq(self.y), getattr(self, name).eq(part.o)]
        return m


LATENCY = {name: unit().latency for name, (unit, _) in UNITS.items()}


async def _through_units(dut, x, y, reset=range(0)):
    """A pair a cycle; each unit's result has to stand at its output exactly `latency` cycles later."""
    start(dut)
    edge = RisingEdge(dut.clk)
    await edge  # the very first comes before anything driven is seen
    want = {name: fp32.bits(golden(x, y)).tolist() for name, (_, golden) in UNITS.items()}
    for cycle in range(len(x) + max(LATENCY.values()) + 1):
        if cycle < len(x):
            dut.x.value, dut.y.value = int(x[cycle]), int(y[cycle])
        dut.rst.value = cycle in reset
        await edge
        # What is read right after an edge stood there before it.
        for name, latency in LATENCY.items():
            index = cycle - latency
            if 0 <= index < len(x):
                got = int(getattr(dut, name).value)
                assert got == want[name][index], (
                    f"{name} of {x[index]:#010x}, {y[index]:#010x}: {got:#x}, "
                    f"expected {want[name][index]:#x}")


@cocotb.test()
@pytest.mark.testpoint("smoke")
async def units_smoke(dut):
    """Three pairs of small integers."""
    await _through_units(dut, fp32.bits([3, 1, -7]), fp32.bits([4, 3, 2]))


@cocotb.test()
@pytest.mark.testpoint("latency_and_rate_as_documented")
async def units_latency_and_rate(dut):
    """A new pair in every cycle, no two results in a row alike; each result is read in exactly the cycle that
    `latency` names."""
    x = fp32.bits(np.arange(1, 201) * 1.5)
    await _through_units(dut, x, fp32.bits(np.arange(201, 1, -1) * (-1.0) ** np.arange(200)))


@cocotb.test()
@pytest.mark.testpoint("reset_midstream")
async def units_reset_midstream(dut):
    """A reset neither changes nor delays what is on its way, as the contract says."""
    random = np.random.default_rng(rng("reset").getrandbits(32))
    x, y = (fp32.bits(random.standard_normal(100)) for _ in range(2))
    await _through_units(dut, x, y, reset=range(40, 45))


@pytest.mark.parametrize("number", seeds())
def test_units(number):
    simulate(Units(), "verif.fp.test_fp", name="fp_units", tests=3, seed=number)


# ---- vectors

def _at_the_edge(random, x):
    """Words whose exponent and that of x add up to where products leave the range."""
    exponent = np.uint32(381) - ((x >> np.uint32(23)) & np.uint32(255))
    exponent += random.integers(0, 3, len(x), dtype=np.uint32)
    fraction = random_words(random, len(x)) & np.uint32(0x807FFFFF)
    return ((exponent << np.uint32(23)) & np.uint32(0x7F800000)) | fraction


def _pairs(random, count):
    """Operand pairs of every kind: any bits, near exponents, near cancellation, near overflow, near
    underflow, a corner against anything."""
    n = count // 8
    a, b, c = near(random, n, 100, 150), near(random, n, 1, 255), near(random, n, 1, 255)
    kinds = [
        (random_words(random, n), random_words(random, n)),
        (near(random, n, 120, 134), near(random, n, 120, 134)),
        (a, nudged(random, a ^ SIGN, 4)),
        (b, nudged(random, b ^ SIGN, 24)),
        # Sums of exponents around the largest result's, then around the smallest's.
        (c, _at_the_edge(random, c)),
        (near(random, n, 240, 255), near(random, n, 240, 255)),
        (near(random, n, 1, 16), near(random, n, 1, 130)),
    ]
    m = count - 7 * n
    kinds.append((random.choice(CORNERS, m), random_words(random, m)))
    x, y = (np.concatenate(column) for column in zip(*kinds))
    return x, y


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.testpoint("random_match_golden", "corner_values")
def test_vectors(name):
    """Pairs of any bits, near exponents, near cancellation, near overflow and near underflow, and all pairs of 42
    corners: zeros, subnormals, the edges of the range, ones, powers of two, infinities, NaNs. Above ten million pairs
    in a regression."""
    unit, golden = UNITS[name]
    lanes, count = 4, 10_485_760 if REGRESS else 32_768
    run = Runner(Lanes(unit, lanes), name)
    corners = np.array(list(product(CORNERS.tolist(), repeat=2)), np.uint32)
    tried = 0
    for number in seeds():
        random = np.random.default_rng([number, len(name)])
        for chunk in range(0, count, 1 << 20):
            x, y = _pairs(random, min(1 << 20, count - chunk))
            if chunk == 0:
                x, y = np.concatenate([corners[:, 0], x]), np.concatenate([corners[:, 1], y])
            keep = len(x) // lanes * lanes
            # Another order in every chunk: neighbours in the pipeline are of different kinds.
            order = random.permutation(len(x))[:keep]
            x, y = x[order], y[order]
            got = run(np.stack([x, y], -1).reshape(-1, 2 * lanes)).ravel()
            want = fp32.bits(golden(x, y))
            wrong = np.flatnonzero(got != want)
            assert not len(wrong), (
                f"{name} of {x[wrong[0]]:#010x}, {y[wrong[0]]:#010x}: {got[wrong[0]]:#010x}, expected "
                f"{want[wrong[0]]:#010x}; {len(wrong)} of {len(x)} differ, seed {number}")
            tried += len(x)
        if REGRESS:
            break  # ten million once; the other seeds are for the benches
    print(f"{name}: {tried:,} vectors, none differing")


@pytest.mark.regress
@pytest.mark.parametrize("name,registers", [
    ("multiply", ()), ("multiply", ("partial", "rounded")), ("add", ("aligned", "by4"))])
@pytest.mark.testpoint("latency_and_rate_as_documented")
def test_fewer_registers(name, registers):
    """Any choice of registers computes the same, `latency` cycles later."""
    unit, golden = UNITS[name]
    run = Runner(Lanes(lambda: unit(registers=registers), 2), f"{name}_{len(registers)}")
    assert run.latency == len(registers)
    x, y = _pairs(np.random.default_rng(1), 20_000)
    got = run(np.stack([x, y], -1).reshape(-1, 4)).ravel()
    assert (got == fp32.bits(golden(x, y))).all()


# ---- construction

@pytest.mark.parametrize("name", UNITS)
@pytest.mark.testpoint("illegal_config_wrong")
def test_illegal_registers_wrong(name):
    """Unknown and repeated names of registers are refused with a sentence."""
    unit, _ = UNITS[name]
    with pytest.raises(ValueError) as caught:
        unit(registers=("operands", "nowhere"))
    cuts = ", ".join(unit.CUTS)
    assert str(caught.value) == f"registers names 'nowhere', {unit.__name__} has the cuts {cuts}"
    with pytest.raises(ValueError, match="each cut may be named once"):
        unit(registers=("result", "result"))
