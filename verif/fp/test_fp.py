"""The FP32 units against their golden models: testpoints in cocotb, vectors by the million without it.

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
from golden.tt.block16 import rounded
from hw.fp.add import Add
from hw.fp.dot import FusedDot
from hw.fp.multiply import Multiply
from verif.bench import rng, start
from verif.bench.runner import one_of, seeds, simulate
from verif.fp.vectors import DotLane, Lanes, Runner

UNIT = ("fp/add", "fp/multiply")
WAIVED = {
    "backpressure_both_sides":
        "The unit takes a pair of operands in every cycle and never waits; there is nothing to hold back.",
}

UNITS = {
    "multiply": (Multiply, fp32.mul),
    "add": (Add, fp32.add),
}
# Both signs of: zero, smallest and largest subnormal, smallest normal and its neighbour, numbers around the
# square root of the smallest, the unit roundoff, one and its neighbours, the largest below two, 2^24, numbers
# around the square root of the largest, the largest and its half, infinity, a signalling and the quiet NaN.
CORNERS = np.array(
    [s | w for s in (0, 1 << 31) for w in (
        0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x1F800000, 0x20000001, 0x33800000, 0x34000000, 0x3F7FFFFF,
        0x3F800000, 0x3F800001, 0x3FFFFFFF, 0x4B800000, 0x5F7FFFFF, 0x5F800000, 0x7EFFFFFF, 0x7F7FFFFF,
        0x7F800000, 0x7F800001, 0x7FC00000)],
    np.uint32)
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
SIGN = np.uint32(1 << 31)


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
DOT = dict(width=2, subs=2, terms_log2=4)


async def _clock(dut):
    """Starts the clock and lets one edge pass: the very first comes before anything driven is seen."""
    start(dut)
    edge = RisingEdge(dut.clk)
    await edge
    return edge


async def _through_units(dut, x, y, reset=range(0)):
    """A pair a cycle; each unit's result has to stand at its output exactly `latency` cycles later."""
    edge = await _clock(dut)
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


@cocotb.test(skip="FP_BENCH" not in os.environ or os.environ["FP_BENCH"] != "units")
@pytest.mark.testpoint("smoke")
async def units_smoke(dut):
    """Three pairs of small integers."""
    await _through_units(dut, fp32.bits([3, 1, -7]), fp32.bits([4, 3, 2]))


@cocotb.test(skip="FP_BENCH" not in os.environ or os.environ["FP_BENCH"] != "units")
@pytest.mark.testpoint("latency_and_rate_as_documented")
async def units_latency_and_rate(dut):
    """A new pair in every cycle, no two results in a row alike; each result is read in exactly the cycle that
    `latency` names."""
    x = fp32.bits(np.arange(1, 201) * 1.5)
    await _through_units(dut, x, fp32.bits(np.arange(201, 1, -1) * (-1.0) ** np.arange(200)))


@cocotb.test(skip="FP_BENCH" not in os.environ or os.environ["FP_BENCH"] != "units")
@pytest.mark.testpoint("reset_midstream")
async def units_reset_midstream(dut):
    """A reset neither changes nor delays what is on its way, as the contract says."""
    random = np.random.default_rng(rng("reset").getrandbits(32))
    x, y = (fp32.bits(random.standard_normal(100)) for _ in range(2))
    await _through_units(dut, x, y, reset=range(40, 45))


async def _through_dot(dut, beats, want, reset=range(0)):
    """`beats`: (first, combine, x, y) or None for garbage; `want`: the words after a beat, by its index."""
    edge = await _clock(dut)
    latency = FusedDot(**DOT).latency
    random = rng("garbage")
    for cycle in range(len(beats) + latency + 1):
        beat = beats[cycle] if cycle < len(beats) else None
        if beat is None:
            dut.i.value = random.getrandbits(9 * 32) & ~1  # any garbage, but no `first`
        else:
            first, combine, x, y = beat
            words = [first | combine << 1, *fp32.bits(x).tolist(), *fp32.bits(y).tolist()]
            dut.i.value = sum(word << 32 * k for k, word in enumerate(words))
        dut.rst.value = cycle in reset
        await edge
        if cycle - latency in want:
            o = int(dut.o.value)
            got = [o & 0xFFFFFFFF, o >> 32]
            expected = want[cycle - latency]
            assert got == expected, f"beat {cycle - latency}: {got}, expected {expected}"


def _dot_case(random, pause, tiles=60):
    """Tiles of one to four beats in both ways of combining, garbage between some of them."""
    beats, want = [], {}
    for _ in range(tiles):
        combine, length = int(random.integers(2)), int(random.integers(1, 5))
        x, y = random.standard_normal((2, length, 2, 2)).astype(np.float32)
        beats += [(int(b == 0), combine, x[b].ravel(), y[b].ravel()) for b in range(length)]
        if combine:
            value = [fp32.dot(x.ravel(), y.ravel(), 4), np.float32(0)]
        else:
            value = [fp32.dot(x[:, s].ravel(), y[:, s].ravel(), 2) for s in range(2)]
        want[len(beats) - 1] = [int(fp32.bits(v)) for v in value]
        beats += [None] * int(random.integers(pause + 1))
    return beats, want


@cocotb.test(skip="FP_BENCH" not in os.environ or os.environ["FP_BENCH"] != "dot")
@pytest.mark.testpoint("smoke", unit="fp/dot")
async def dot_smoke(dut):
    """Two beats of small integers, each group alone and both joined."""
    x, y = np.array([1, 2, 3, 4], np.float32), np.array([5, 6, 7, -8], np.float32)
    want = {0: [int(fp32.bits(np.float32(v))) for v in (17, -11)], 1: [int(fp32.bits(np.float32(6))), 0]}
    await _through_dot(dut, [(1, 0, x, y), (1, 1, x, y)], want)


@cocotb.test(skip="FP_BENCH" not in os.environ or os.environ["FP_BENCH"] != "dot")
@pytest.mark.testpoint("latency_and_rate_as_documented", unit="fp/dot")
async def dot_latency_and_rate(dut):
    """Sums of one to four beats back to back, each read in exactly the cycle that the property names."""
    await _through_dot(dut, *_dot_case(np.random.default_rng(rng("rate").getrandbits(32)), pause=0))


@cocotb.test(skip="FP_BENCH" not in os.environ or os.environ["FP_BENCH"] != "dot")
@pytest.mark.testpoint("backpressure_both_sides", unit="fp/dot")
async def dot_garbage_between_tiles(dut):
    """The unit takes a beat in every cycle and has no handshake: garbage beats between sums do no harm."""
    await _through_dot(dut, *_dot_case(np.random.default_rng(rng("pause").getrandbits(32)), pause=5))


@cocotb.test(skip="FP_BENCH" not in os.environ or os.environ["FP_BENCH"] != "dot")
@pytest.mark.testpoint("reset_midstream", unit="fp/dot")
async def dot_reset_midstream(dut):
    """A reset in the middle of tiles: sums go on, as the contract says."""
    beats, want = _dot_case(np.random.default_rng(rng("reset").getrandbits(32)), pause=2)
    await _through_dot(dut, beats, want, reset=range(30, 37))


@pytest.mark.parametrize("number", seeds())
def test_units(number):
    simulate(Units(), "verif.fp.test_fp", name="fp_units", tests=3, seed=number, env={"FP_BENCH": "units"})


@pytest.mark.parametrize("number", seeds())
def test_dot(number):
    simulate(DotLane(**DOT), "verif.fp.test_fp", name="fp_dot", tests=4, seed=number, env={"FP_BENCH": "dot"})


# ---- vectors

def _random_words(random, count):
    return random.integers(0, 1 << 32, count, dtype=np.uint32)


def _near(random, count, low, high):
    """Random signs and fractions, exponents from `low` to `high` - 1."""
    exponents = random.integers(low, high, count, dtype=np.uint32) << np.uint32(23)
    return exponents | (_random_words(random, count) & np.uint32(0x807FFFFF))


def _nudged(random, x, bits):
    """x with small changes to its last bits."""
    return x + random.integers(-(1 << bits), (1 << bits) + 1, len(x)).astype(np.uint32)


def _at_the_edge(random, x):
    """Words whose exponent and that of x add up to where products leave the range."""
    exponent = np.uint32(381) - ((x >> np.uint32(23)) & np.uint32(255))
    exponent += random.integers(0, 3, len(x), dtype=np.uint32)
    fraction = _random_words(random, len(x)) & np.uint32(0x807FFFFF)
    return ((exponent << np.uint32(23)) & np.uint32(0x7F800000)) | fraction


def _pairs(random, count):
    """Operand pairs of every kind: any bits, near exponents, near cancellation, near overflow, near
    underflow, a corner against anything."""
    n = count // 8
    a, b, c = _near(random, n, 100, 150), _near(random, n, 1, 255), _near(random, n, 1, 255)
    kinds = [
        (_random_words(random, n), _random_words(random, n)),
        (_near(random, n, 120, 134), _near(random, n, 120, 134)),
        (a, _nudged(random, a ^ SIGN, 4)),
        (b, _nudged(random, b ^ SIGN, 24)),
        # Sums of exponents around the largest result's, then around the smallest's.
        (c, _at_the_edge(random, c)),
        (_near(random, n, 240, 255), _near(random, n, 240, 255)),
        (_near(random, n, 1, 16), _near(random, n, 1, 130)),
    ]
    m = count - 7 * n
    kinds.append((random.choice(CORNERS, m), _random_words(random, m)))
    x, y = (np.concatenate(column) for column in zip(*kinds))
    return x, y


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.testpoint("random_match_golden", "corner_values")
def test_vectors(name):
    """Pairs of any bits, near exponents, near cancellation, near overflow and near underflow, and all pairs of 42
    corners: zeros, subnormals, the edges of the range, ones, powers of two, infinities, NaNs. Above ten million pairs
    in a regression."""
    unit, golden = UNITS[name]
    lanes, count = 4, 10_485_760 if REGRESS else 131_072
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


def _terms(random, tiles, terms):
    """Operands of dot products (tiles, terms), one kind after the other."""
    n = -(-tiles // 8)
    shape = (n, terms)
    size = n * terms
    flat = lambda words: words.reshape(shape)
    a, b = flat(_near(random, size, 120, 134)), flat(_near(random, size, 120, 134))
    opposite_b = b.copy()
    opposite_b[:, 1::2] = flat(_nudged(random, b.ravel(), 3))[:, ::2][:, :terms // 2] ^ SIGN
    same_a = a.copy()
    same_a[:, 1::2] = a[:, ::2][:, :terms // 2]
    # A single large product that a later one undoes: what the accumulator shifts out is lost for good.
    high_a, high_b = flat(_near(random, size, 60, 200)), flat(_near(random, size, 60, 200))
    # Products near the largest number, of both signs.
    large_a, large_b = flat(_near(random, size, 188, 192)), flat(_near(random, size, 188, 192))
    tiny_a, tiny_b = flat(_near(random, size, 50, 66)), flat(_near(random, size, 50, 66))
    some = lambda v: np.where(random.random(shape) < 0.1, random.choice(CORNERS, shape), v)
    mixed_a, mixed_b = some(a), some(b)
    corner_a, corner_b = random.choice(CORNERS, shape), random.choice(CORNERS, shape)
    kinds = [(a, b), (same_a, opposite_b), (high_a, high_b), (large_a, large_b), (tiny_a, tiny_b),
             (mixed_a, mixed_b), (corner_a, corner_b),
             (flat(_random_words(random, size)), flat(_random_words(random, size)))]
    order = random.permutation(8 * n)[:tiles]
    return tuple(np.concatenate(column)[order] for column in zip(*kinds))


SHAPES = {
    # width, subs, terms_log2, lut_products, family, whether groups share an exponent, whether x is narrow: share of the
    # vectors
    "dot4x4": ((4, 4, 6, 1, "any"), 1.0),
    "dot1": ((1, 1, 6, 0, "any"), 0.25),
    "dot1wide": ((1, 1, 16, 0, "any"), 0.25),
    "dot2": ((2, 1, 6, 1, "any"), 0.25),
    "dot8": ((8, 1, 6, 2, "any"), 0.25),
    "dot2x4": ((2, 4, 10, 0, "any"), 0.1),
    "dot4x2": ((4, 2, 4, 0, "any"), 0.1),
    # A product waits for no cycle, one or two before the multipliers of its slices.
    "slices1": ((1, 1, 6, 0, "ultrascale_plus"), 0.1),
    "slices4": ((4, 1, 14, 2, "ultrascale_plus"), 0.5),
    "slices4x4": ((4, 4, 6, 1, "ultrascale_plus"), 1.0),
    # Groups of four operands that share an exponent.
    "grouped4": ((4, 1, 14, 0, "any", True), 0.25),
    "grouped4x2": ((4, 2, 4, 0, "any", True), 0.1),
    "grouped4slices": ((4, 1, 14, 0, "ultrascale_plus", True), 0.5),
    "grouped4x4": ((4, 4, 6, 0, "ultrascale_plus", True), 1.0),
    "narrow4x2": ((4, 2, 4, 0, "any", True, True), 0.1),
    "narrow4x4": ((4, 4, 7, 0, "ultrascale_plus", True, True), 1.0),
}
# Alike but for their sizes: those of a kind take turns.
KINDS = [("dot1", "dot1wide"), ("dot2", "dot8"), ("dot4x4", "dot2x4", "dot4x2"), ("slices4", "slices4x4", "slices1"),
         ("grouped4x2", "grouped4", "narrow4x2"), ("grouped4x4", "narrow4x4", "grouped4slices")]


@pytest.mark.parametrize("number", seeds()[:1] if REGRESS else seeds())
@pytest.mark.parametrize("name", [name for kind in KINDS for name in one_of(kind)])
@pytest.mark.testpoint("random_match_golden", "corner_values", "padding", unit="fp/dot")
def test_dot_vectors(name, number):
    """Of sixteen shapes one of each kind, every way of combining, one to four beats: any bits, near and wide
    exponents, near cancellation, near overflow, near underflow; all pairs of corners as a first product, alone and
    among others, and corners in any number of operands; padding operands against numbers, infinities and NaNs in any
    place of a sum. Above ten million sums in a regression."""
    (width, subs, terms_log2, lut_products, family, *shared), share = SHAPES[name]
    grouped, narrow = any(shared), len(shared) == 2
    run = Runner(DotLane(width=width, subs=subs, terms_log2=terms_log2, grouped=grouped, narrow=narrow,
                         lut_products=lut_products, family=family), name)
    total = int((10_485_760 if REGRESS else 60_000) * share)
    random = np.random.default_rng([number, width, subs])
    corners = np.array(list(product(CORNERS.tolist(), repeat=2)), np.uint32)
    tried = chunk = 0
    while tried < total:
        records, checks = [], []
        for combine in range(subs.bit_length()):
            joined = 1 << combine
            owners = subs // joined
            for beats in (1, 2, 4):
                k = width * joined * beats
                if k > 1 << terms_log2:
                    continue
                tiles = (60_000 if REGRESS else 1_000) // (owners * joined * beats) + len(corners)
                x, y = _terms(random, tiles * owners, k)
                # Every pair of corners is the first product of some sum, alone or among others.
                x[:len(corners), 0], y[:len(corners), 0] = corners[:, 0], corners[:, 1]
                if chunk == 0:
                    x[:len(corners):2, 1:] = 0
                if narrow:
                    x = fp32.bits(rounded(x.view(np.float32)))
                    x[(x & np.uint32(0x7F800000)) == 0x7F800000] = 0x3F800000
                    x = fp32.bits(rounded(x.view(np.float32)))
                # Padding in either operand or both, in one sum of four.
                pad_x, pad_y = (random.random((2, *x.shape)) < 0.1) & (random.random((len(x), 1)) < 0.25)
                if grouped and width * subs > 8:
                    pad_y[:] = False
                # A number that meets padding stays: it may be its group's largest. An infinity or NaN counts no more.
                kept_x, kept_y = (grouped & ((v & np.uint32(0x7F800000)) != 0x7F800000) for v in (x, y))
                want = fp32.dot(np.where(pad_x | (pad_y & ~kept_x), 0, x), np.where(pad_y | (pad_x & ~kept_y), 0, y),
                                width * joined, grouped=grouped)
                want = fp32.bits(want).reshape(tiles, owners)

                def beats_of(v, tiles=tiles, owners=owners, beats=beats, joined=joined):
                    # (tile, owner, beat, joined, width): group s is owner + owners * joined's index.
                    by_group = v.reshape(tiles, owners, beats, joined, width).transpose(0, 2, 3, 1, 4)
                    return by_group.reshape(tiles * beats, subs * width)

                control = np.full((tiles, beats), combine << 1, np.uint32)
                control[:, 0] |= 1
                pads = beats_of(pad_x) @ (1 << np.arange(8, 8 + width * subs))
                # The control word has room for eight of y's: the others are padded in x.
                many = beats_of(pad_y)
                pads |= (many[:, 8:] | beats_of(pad_x)[:, 8:]) @ (1 << np.arange(16, 16 + max(width * subs - 8, 0)))
                pads |= many[:, :8] @ (1 << np.arange(24, 24 + many[:, :8].shape[1]))
                control |= pads.reshape(control.shape).astype(np.uint32)
                start_at = sum(len(r) for r in records)
                records.append(np.concatenate([control.reshape(-1, 1), beats_of(x), beats_of(y)], 1))
                last = start_at + np.arange(tiles) * beats + beats - 1
                checks.append((last, owners, want, f"combine {combine}, {beats} beats"))
        got = run(np.concatenate(records))
        for last, owners, want, what in checks:
            wrong = np.argwhere(got[last, :owners] != want)
            assert not len(wrong), (
                f"{name}, {what}: tile {wrong[0][0]}, group {wrong[0][1]}, {len(wrong)} of {want.size} "
                f"differ, seed {number}, chunk {chunk}")
            assert not got[last, owners:].any(), f"{name}, {what}: groups joined to others give +0"
            tried += want.size
        chunk += 1
    print(f"{name}: {tried:,} vectors, none differing")


# ---- construction

@pytest.mark.parametrize("parameters,sentence", [
    (dict(width=3, terms_log2=6), "width is 3, must be 1, 2, 4 or 8"),
    (dict(width=16, terms_log2=6), "width is 16, must be 1, 2, 4 or 8"),
    (dict(width=4, subs=3, terms_log2=6), "subs is 3, must be 1, 2 or 4"),
    (dict(width=4, subs=4, terms_log2=3), "terms_log2 is 3, must be 4 to 16 for 16 terms a beat"),
    (dict(width=1, terms_log2=17), "terms_log2 is 17, must be 0 to 16 for 1 terms a beat"),
    (dict(width=2, terms_log2=6, lut_products=3), "lut_products is 3, must be 0 to 2 for 2 terms a beat"),
    (dict(width=1, terms_log2=6, lut_products=1), "lut_products is 1, must be 0 to 0 for 1 terms a beat"),
    (dict(width=4, terms_log2=15, grouped=True), "terms_log2 is 15, must be 2 to 14 for 4 terms a beat"),
    (dict(width=2, terms_log2=6, grouped=True), "width is 2, must be 4 for groups that share an exponent"),
    (dict(width=4, terms_log2=6, narrow=True), "narrow is True, must be False where groups do not share an exponent"),
    (dict(width=4, terms_log2=6, grouped=True, lut_products=1), "lut_products is 1, must be 0 to 0 for 4 terms a beat"),
])
@pytest.mark.testpoint("illegal_config_wrong", unit="fp/dot")
def test_illegal_dot_wrong(parameters, sentence):
    """Widths, groups, numbers of terms and multipliers outside their ranges are refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        FusedDot(**parameters)
    assert str(caught.value) == sentence


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
