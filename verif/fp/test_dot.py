"""The fused dot product against its golden model: testpoints in cocotb, vectors by the million without it.

The number of vectors is small in `make test` and above ten million in `make regress`; it is printed.
"""
import os
from itertools import product

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.fp import fp32
from hw.fp.dot import FusedDot
from verif.bench import rng, start
from verif.bench.runner import one_of, seeds, simulate
from verif.fp.operands import CORNERS, dot_terms
from verif.fp.vectors import DotLane, Runner

UNIT = "fp/dot"
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
DOT = dict(width=2, subs=2, terms_log2=4)


# ---- cocotb: the testpoints of timing and reset

async def _through_dot(dut, beats, want, reset=range(0)):
    """`beats`: (first, combine, x, y) or None for garbage; `want`: the words after a beat, by its index."""
    start(dut)
    edge = RisingEdge(dut.clk)
    await edge  # the very first comes before anything driven is seen
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


@cocotb.test()
@pytest.mark.testpoint("smoke")
async def dot_smoke(dut):
    """Two beats of small integers, each group alone and both joined."""
    x, y = np.array([1, 2, 3, 4], np.float32), np.array([5, 6, 7, -8], np.float32)
    want = {0: [int(fp32.bits(np.float32(v))) for v in (17, -11)], 1: [int(fp32.bits(np.float32(6))), 0]}
    await _through_dot(dut, [(1, 0, x, y), (1, 1, x, y)], want)


@cocotb.test()
@pytest.mark.testpoint("latency_and_rate_as_documented")
async def dot_latency_and_rate(dut):
    """Sums of one to four beats back to back, each read in exactly the cycle that the property names."""
    await _through_dot(dut, *_dot_case(np.random.default_rng(rng("rate").getrandbits(32)), pause=0))


@cocotb.test()
@pytest.mark.testpoint("backpressure_both_sides")
async def dot_garbage_between_tiles(dut):
    """The unit takes a beat in every cycle and has no handshake: garbage beats between sums do no harm."""
    await _through_dot(dut, *_dot_case(np.random.default_rng(rng("pause").getrandbits(32)), pause=5))


@cocotb.test()
@pytest.mark.testpoint("reset_midstream")
async def dot_reset_midstream(dut):
    """A reset in the middle of tiles: sums go on, as the contract says."""
    beats, want = _dot_case(np.random.default_rng(rng("reset").getrandbits(32)), pause=2)
    await _through_dot(dut, beats, want, reset=range(30, 37))



@pytest.mark.parametrize("number", seeds())
def test_dot(number):
    simulate(DotLane(**DOT), "verif.fp.test_dot", name="fp_dot", tests=4, seed=number)


# ---- vectors

SHAPES = {
    # width, subs, terms_log2, lut_products, family, whether groups share an exponent: share of the vectors
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
    "grouped4slices": ((4, 1, 14, 0, "ultrascale_plus", True), 0.5),
}
# Alike but for their sizes: those of a kind take turns.
KINDS = [("dot1", "dot1wide", "dot2", "dot8", "dot4x2", "dot2x4", "dot4x4"),
         ("slices1", "grouped4", "slices4", "grouped4slices", "slices4x4")]


@pytest.mark.parametrize("number", seeds()[:1] if REGRESS else seeds())
@pytest.mark.parametrize("name", [name for kind in KINDS for name in one_of(kind)])
@pytest.mark.testpoint("random_match_golden", "corner_values", "padding")
def test_dot_vectors(name, number):
    """Of twelve shapes one of each kind, every way of combining, one to four beats: any bits, near and wide
    exponents, near cancellation, near overflow, near underflow; all pairs of corners as a first product, alone and
    among others, and corners in any number of operands; padding operands against numbers, infinities and NaNs in any
    place of a sum. Above ten million sums in a regression."""
    (width, subs, terms_log2, lut_products, family, *shared), share = SHAPES[name]
    grouped = any(shared)
    run = Runner(DotLane(width=width, subs=subs, terms_log2=terms_log2, grouped=grouped, lut_products=lut_products,
                         family=family), name)
    total = int((10_485_760 if REGRESS else 20_000) * share)
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
                tiles = (60_000 if REGRESS else 300) // (owners * joined * beats) + len(corners)
                x, y = dot_terms(random, tiles * owners, k)
                # Every pair of corners is the first product of some sum, alone or among others.
                x[:len(corners), 0], y[:len(corners), 0] = corners[:, 0], corners[:, 1]
                if chunk == 0:
                    x[:len(corners):2, 1:] = 0
                # Padding in either operand or both, in one sum of four.
                pad_x, pad_y = (random.random((2, *x.shape)) < 0.1) & (random.random((len(x), 1)) < 0.25)
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
    (dict(width=4, subs=2, terms_log2=6, grouped=True), "subs is 2, must be 1 for groups that share an exponent"),
    (dict(width=4, terms_log2=6, grouped=True, lut_products=1), "lut_products is 1, must be 0 to 0 for 4 terms a beat"),
])
@pytest.mark.testpoint("illegal_config_wrong")
def test_illegal_dot_wrong(parameters, sentence):
    """Widths, groups, numbers of terms and multipliers outside their ranges are refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        FusedDot(**parameters)
    assert str(caught.value) == sentence
