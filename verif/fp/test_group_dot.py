"""Dot products of groups whose sums share exponents, rounded and regrouped, against their golden model.

All in cocotb by default: the model is large, and a second one would cost more than its vectors. `make regress` has
millions of them, which C++ plays.
"""
import os
from functools import cache
from itertools import product

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.fp import fp32, group_dot
from golden.tt.block16 import rounded
from hw.fp.group import GROUP, MANT_BITS, Kind
from hw.fp.group_dot import SUBS, GroupDot
from verif.bench import rng, seed, start
from verif.bench.runner import build, run, seeds, shapes
from verif.fp.operands import CORNERS, dot_terms
from verif.fp.vectors import CELLS, GroupLane, Runner

UNIT = ("fp/group_dot", "fp/regroup")
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
LANE = dict(beats=4)
TERMS = GROUP * SUBS
IDLE = 1        # a control word: a beat that belongs to no sum is one by itself


def _expected(x, y, pad_x, pad_y, share: bool) -> tuple[np.ndarray, np.ndarray]:
    """Words (tile, owner, cell) and groups (tile, owner, 4 words) as bits; x (tile, owner, 1, term), y with cells."""
    left = group_dot.of_words(np.where(pad_x, np.uint32(0), x))
    right = group_dot.of_words(np.where(pad_y, np.uint32(0), y))
    # A product with padding counts as zero whatever it meets.
    counts = ~(pad_x | pad_y).reshape(*pad_y.shape[:-1], -1, GROUP)
    left, right = (group_dot.Groups(side.mants, side.exps, np.where(counts, side.kinds, 0).astype(np.float32))
                   for side in (left, right))
    sums = group_dot.totals(left, right, share=CELLS if share else 0)
    group = group_dot.regroup(sums)
    kinds = np.select([np.isnan(group.kinds), group.kinds == np.inf, group.kinds == -np.inf, group.kinds > 0],
                      [each.value for each in (Kind.NAN, Kind.PLUS_INFINITY, Kind.MINUS_INFINITY, Kind.POSITIVE)],
                      Kind.NEGATIVE.value)
    bits = np.zeros(group.exps.shape, object)
    for at in range(GROUP):
        bits += (group.mants[..., at] & ((1 << MANT_BITS) - 1)).astype(object) << MANT_BITS * at
        bits += kinds[..., at].astype(object) << GROUP * MANT_BITS + 8 + 3 * at
    bits += group.exps.astype(object) << GROUP * MANT_BITS
    packed = np.stack([(bits[..., 0] >> 32 * at) & 0xFFFFFFFF for at in range(4)], -1).astype(np.uint32)
    return fp32.bits(group_dot.words(sums)), packed


EMPTY = np.array([0, 0, 0, sum(Kind.POSITIVE.value << 20 + 3 * at for at in range(GROUP))], np.uint32)


# ---- cocotb: the testpoints of timing and reset

async def _through(dut, tiles, reset=range(0)):
    """tiles: (records of its beats or of a pause, words and groups after the last, None for a pause)."""
    start(dut)
    edge = RisingEdge(dut.clk)
    await edge  # the very first comes before anything driven is seen
    latency = GroupLane(**LANE).latency
    random = rng("garbage")
    beats = [record for records, _ in tiles for record in records]
    want = dict(zip(np.cumsum([len(records) for records, _ in tiles]) - 1, (found for _, found in tiles)))
    for cycle in range(len(beats) + latency + 1):
        words = beats[cycle] if cycle < len(beats) else [IDLE, *(random.getrandbits(32) for _ in range(81))]
        dut.i.value = sum(int(word) << 32 * k for k, word in enumerate(words))
        dut.rst.value = cycle in reset
        await edge
        if want.get(cycle - latency) is not None:
            o = int(dut.o.value)
            got = [o >> 32 * k & 0xFFFFFFFF for k in range(32)]
            assert got == want[cycle - latency].tolist(), f"beat {cycle - latency}: {got}"


def _tile(random, beats: int, combine: int, share: int):
    """Records of a tile of random numbers, and what leaves."""
    x = random.standard_normal((beats, SUBS, GROUP)).astype(np.float32)
    y = random.standard_normal((CELLS, beats, SUBS, GROUP)).astype(np.float32)
    owners = SUBS >> combine
    # Group s belongs to the owner s modulo owners.
    terms = lambda v: np.moveaxis(v.reshape(*v.shape[:-3], beats, SUBS // owners, owners, GROUP), -2, -4).reshape(
        *v.shape[:-3], owners, -1)
    left, right = terms(x)[None, :, None], np.moveaxis(terms(y), 0, 1)[None]
    none = np.zeros(1, bool)
    words, groups = _expected(fp32.bits(left), fp32.bits(right), np.broadcast_to(none, left.shape),
                              np.broadcast_to(none, right.shape), share > 0)
    out = np.zeros((CELLS + 1, SUBS, 4), np.uint32)
    flat = np.zeros((CELLS, SUBS), np.uint32)
    flat[:, :owners] = words[0].T
    out[CELLS] = EMPTY
    out[CELLS, :owners] = groups[0]
    control = [int(beat == 0) | combine << 1 | share << 3 for beat in range(beats)]
    records = [[control[b], 0, *fp32.bits(x[b]).ravel(), *fp32.bits(y[:, b]).ravel()] for b in range(beats)]
    return records, np.concatenate([flat.ravel(), out[CELLS].ravel()]) if share else flat.ravel()


def _tiles(label: str, pause: int, tiles: int = 40 if REGRESS else 16):
    """Tiles of one to four beats in all ways of combining and sharing, garbage between some of them."""
    random = np.random.default_rng(seed(label))
    found = []
    for _ in range(tiles):
        records, want = _tile(random, int(random.integers(1, 5)), int(random.integers(3)), int(random.integers(1, 3)))
        found.append((records, want))
        rest = int(random.integers(pause + 1))
        if rest:
            garbage = random.integers(0, 1 << 32, (rest, 82), dtype=np.uint32)
            garbage[:, 0] |= IDLE
            found.append((garbage.tolist(), None))
    return found


@cocotb.test()
@pytest.mark.testpoint("smoke")
async def smoke(dut):
    """One beat."""
    await _through(dut, [_tile(np.random.default_rng(1), 1, 0, 1)])


@cocotb.test()
@pytest.mark.testpoint("latency_and_rate_as_documented")
async def latency_and_rate(dut):
    """Sums of one to four beats back to back, each read in exactly the cycle that the property names."""
    await _through(dut, _tiles("rate", pause=0))


@cocotb.test()
@pytest.mark.testpoint("backpressure_both_sides")
async def garbage_between_sums(dut):
    """The unit takes a beat in every cycle and has no handshake: what belongs to no sum does no harm."""
    await _through(dut, _tiles("pause", pause=5))


@cocotb.test()
@pytest.mark.testpoint("reset_midstream")
async def reset_midstream(dut):
    """A reset in the middle of sums: they go on, as the contract says."""
    await _through(dut, _tiles("reset", pause=2), reset=range(30, 37))


@cocotb.test(skip="RECORDS" not in os.environ)
@pytest.mark.testpoint("random_match_golden", "corner_values", "padding")
async def play(dut):
    """Plays the records that test_group_dot_vectors made, a beat per cycle, and keeps what leaves for its checks."""
    start(dut)
    edge = RisingEdge(dut.clk)
    latency = GroupLane(**LANE).latency
    records = np.load(os.environ["RECORDS"])
    left = []
    dut.rst.value = 0
    await edge
    for cycle in range(len(records) + latency + 1):
        if cycle < len(records):
            dut.i.value = int.from_bytes(records[cycle].tobytes(), "little")
        await edge
        if cycle >= latency and len(left) < len(records):
            left.append(int(dut.o.value).to_bytes(4 * (CELLS * SUBS + 4 * SUBS), "little"))
    np.save(os.environ["LEFT"], np.frombuffer(b"".join(left), np.uint32).reshape(len(records), -1))


@cache
def model():
    return build(GroupLane(**LANE), "fp_group_dot")


@pytest.mark.parametrize("number", seeds())
def test_group_dot(number):
    run(model(), "verif.fp.test_group_dot", tests=4, seed=number)


# ---- vectors

def player(name, folder):
    """What records (N, words of i) give (N, words of o)."""
    if REGRESS:
        return Runner(GroupLane(**SHAPES[name]), f"group_{name}")
    assert SHAPES[name] == LANE

    def through(records):
        given, left = folder / "records.npy", folder / "left.npy"
        np.save(given, np.ascontiguousarray(records, np.uint32))
        run(model(), "verif.fp.test_group_dot", tests=1, seed=seeds()[0], only="play",
            env={"RECORDS": given, "LEFT": left})
        return np.load(left)

    return through


SHAPES = {
    "any4": LANE,
    "slices16": dict(beats=16, family="ultrascale_plus"),
    "narrow32": dict(beats=32, narrow=True, family="ultrascale_plus"),
    "narrow8": dict(beats=8, narrow=True),
}


@pytest.mark.parametrize("number", seeds()[:1] if REGRESS else seeds())
@pytest.mark.parametrize("name", shapes(SHAPES, 1))
@pytest.mark.testpoint("random_match_golden", "corner_values", "padding")
def test_group_dot_vectors(name, number, tmp_path):
    """Every way of combining and sharing, sums of one to the most beats: any bits, near and wide exponents, near
    cancellation, near overflow and underflow, corners as a first product, alone and among others, padding against
    numbers, infinities and NaNs: words and groups."""
    shape = SHAPES[name]
    play_all = player(name, tmp_path)
    random = np.random.default_rng([number, shape["beats"]])
    corners = np.array(list(product(CORNERS.tolist(), repeat=2)), np.uint32)
    tried = 0
    for _ in range(40 if REGRESS else 1):
        records, checks, at = [], [], 0
        for combine, beats, share in product(range(3), (1, 2, 3, shape["beats"]), range(3)):
            owners = SUBS >> combine
            k = TERMS // owners * beats
            tiles = max(20, (4000 if REGRESS else 100) // beats) + (len(corners) if beats == 1 else 0)
            x, first = dot_terms(random, tiles * owners, k)
            more = [dot_terms(random, tiles * owners, k)[1] for _ in range(CELLS - 1)]
            y = np.stack([first, *more], 1)
            if beats == 1:
                x[:len(corners), 0], y[:len(corners), 0, 0] = corners[:, 0], corners[:, 1]
                x[:len(corners):2, 1:] = 0
            if shape.get("narrow"):
                x = fp32.bits(rounded(x.view(np.float32)))
                x[(x & np.uint32(0x7F800000)) == 0x7F800000] = 0x3F800000
                x = fp32.bits(rounded(x.view(np.float32)))
            x, y = x.reshape(tiles, owners, 1, k), y.reshape(tiles, owners, CELLS, k)
            pad = (random.random((2, tiles, owners, 1, k)) < 0.1) & (random.random((tiles, owners, 1, 1)) < 0.25)
            pad_x, pad_y = pad
            words, groups = _expected(x, y, pad_x, np.broadcast_to(pad_y, y.shape), share > 0)

            def of_beats(v, tiles=tiles, owners=owners, beats=beats):
                """(tile, owner, cell, term) to (beat, cell, 16 terms): group s is owner + owners * its place."""
                by = v.reshape(tiles, owners, -1, beats, SUBS // owners, GROUP).transpose(0, 3, 2, 4, 1, 5)
                return by.reshape(tiles * beats, -1, TERMS)

            control = np.full((tiles, beats), combine << 1 | share << 3, np.uint32)
            control[:, 0] |= 1
            places = 1 << np.arange(TERMS)
            padding = (of_beats(pad_x)[:, 0] @ places | (of_beats(pad_y)[:, 0] @ places) << TERMS).astype(np.uint32)
            records.append(np.concatenate([control.reshape(-1, 1), padding[:, None], of_beats(x).reshape(-1, TERMS),
                                           of_beats(y).reshape(-1, CELLS * TERMS)], 1))
            checks.append((at + np.arange(tiles) * beats + beats - 1, owners, words, groups if share else None,
                           f"combine {combine}, {beats} beats, share {share}"))
            at += tiles * beats
        got = play_all(np.concatenate([*records, np.full((1, 82), IDLE, np.uint32)]))
        for last, owners, words, groups, what in checks:
            found = got[last, :CELLS * SUBS].reshape(-1, CELLS, SUBS)
            wrong = np.argwhere(found[..., :owners].transpose(0, 2, 1) != words)
            assert not len(wrong), f"{name}, {what}: word of {wrong[0]}, {len(wrong)} of {words.size} differ"
            assert not found[..., owners:].any(), f"{name}, {what}: groups joined to others give +0"
            tried += words.size
            if groups is not None:
                found = got[last, CELLS * SUBS:].reshape(-1, SUBS, 4)
                wrong = np.argwhere((found[:, :owners] != groups).any(-1))
                assert not len(wrong), (f"{name}, {what}: group of {wrong[0]}, {len(wrong)} differ: "
                                        f"{found[tuple(wrong[0])]}, expected {groups[tuple(wrong[0])]}")
                assert (found[:, owners:] == EMPTY).all(), f"{name}, {what}: groups joined to others give nothing"
                tried += groups.shape[0] * groups.shape[1]
    print(f"{name}: {tried:,} results, none differing")


@pytest.mark.parametrize("beats", [2, 12, 128])
@pytest.mark.testpoint("illegal_config_wrong")
def test_illegal_group_dot_wrong(beats):
    """Numbers of beats outside their range are refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        GroupDot(beats=beats)
    assert str(caught.value) == f"beats is {beats}, must be 4, 8, 16, 32 or 64"
