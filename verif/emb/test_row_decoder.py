"""The row decoder against its golden model, and that against exact fractions and the rows that FBGEMM has made."""

import os
from fractions import Fraction

import cocotb
import numpy as np
import pytest

from golden.emb import row_decoder as golden
from golden.fp import fp32
from hw.emb.row_decoder import RowDecoder
from hw.isa.emb import ROW_FORMAT
from verif.bench import rng, seed
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.emb.beats import through

WORDS, LONGEST = 4, 8
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
WAIVED = {
    "backpressure_both_sides": "The unit takes a beat a cycle and never waits; there is room for what comes out.",
}
PLAIN = int(ROW_FORMAT.FLOAT32)
HALVES = np.array([s | w for s in (0, 0x8000) for w in (
    0, 1, 2, 0x3FF, 0x400, 0x401, 0x7F, 0x80, 0x81, 0x3C00, 0x3F80, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7F7F, 0x7F80,
    0x7F81, 0x7FC0, 0x7FFF)], np.uint16)
ENDS = np.array([s | w for s in (0, 1 << 31) for w in (
    0, 1, 0x7FFFFF, 0x800000, 0x800001, 0xFFFFFF, 0x3F800000, 0x3F800001, 0x3FFFFFFF, 0x44FFFFFF, 0x45000000,
    0x50800000, 0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000)], np.uint32)


def parts(form):
    """Slots of a stored beat, and the first one of a row with values."""
    return 32 // ROW_FORMAT(form).bits, ROW_FORMAT(form).header


def near(random, size):
    """Patterns of scales and biases whose places overlap in every way: where a bias is cancelled, only breaks a tie or
    swallows the product more often than elsewhere."""
    exponent = random.integers(1, 255, size)
    distance = np.where(random.random(size) < 0.5, random.choice([-40, -27, -20, -12, -4, -3, -2, -1, 0, 1, 33, 34, 35],
                                                                 size), random.integers(-70, 45, size))
    bias = np.clip(exponent + distance, 0, 254)
    fractions = random.choice([0, 1, 3, 5, 0x7FFFFF, 0x400000], (2, size)) ^ np.where(
        random.random((2, size)) < 0.4, random.integers(0, 1 << 23, (2, size)), 0)
    signs = random.integers(0, 2, (2, size)) << 31
    scale, bias = signs[0] | exponent << 23 | fractions[0], signs[1] | bias << 23 | fractions[1]
    same = random.random(size) < 0.2
    return scale.astype(np.uint32), np.where(same, scale ^ (1 << 31), bias).astype(np.uint32)


def rows(random, count, form=None, corners=False):
    """(format, stored words, weight and the like) of rows of 1 to LONGEST beats of values."""
    found = []
    for _ in range(count):
        kind = int(random.integers(len(ROW_FORMAT))) if form is None else int(form)
        vector = int(random.integers(1, LONGEST + 1))
        stored = random.integers(0, 1 << 32, WORDS * golden.beats(vector, kind), dtype=np.uint32)
        if kind in (ROW_FORMAT.FLOAT16, ROW_FORMAT.BFLOAT16) and corners:
            stored = random.choice(HALVES, 2 * len(stored)).view(np.uint32)
        if kind == ROW_FORMAT.INT8:
            scale, bias = near(random, 1)
            stored[:2] = random.choice(ENDS, 2) if corners else (scale[0], bias[0])
            codes = stored.view(np.uint8)[2 * WORDS:]
            codes[:] = np.where(random.random(len(codes)) < 0.6, random.choice([0, 1, 2, 3, 5, 255], len(codes)), codes)
        if kind == ROW_FORMAT.INT4 and corners:
            stored[0] = random.choice(HALVES, 2).view(np.uint32)[0]
        found.append((kind, vector, stored))
    return found


def values(kind, vector, stored):
    return fp32.bits(golden.decode(stored[None], kind, WORDS * vector, WORDS))[0]


def beats(number, row):
    """What the unit's port shows for each beat of a row; the fields that go along follow from its number."""
    kind, vector, stored = row
    (slots, first), pack, lines = parts(kind), layout_of("i").pack, stored.reshape(-1, WORDS).tolist()
    return kind, [{"i": pack({
        "words": lines[(at + first) // slots], "weight": number, "context": at, **flags(number), "row_format": kind,
        "slot": (at + first) % slots, "begins": at == 0})} for at in range(vector)]


def flags(number):
    return {"first": number & 1, "last": number >> 1 & 1, "maximum": number >> 2 & 1,
            "tag": {"tier": number >> 3 & 1, "error": number >> 4 & 1}}


async def sent(dut, given, pauses=lambda: 0, stop_after=None):
    """As `through`, of rows."""
    return await through(dut, [beats(*each) for each in enumerate(given)], RowDecoder.latency, pauses, stop_after)


async def compared(dut, given, pauses=lambda: 0):
    """Sends rows and compares what comes out with the golden model. Returns the cycles of beats out and in."""
    out, taken = await sent(dut, given, pauses)
    want = [{"words": values(*row)[WORDS * at:WORDS * (at + 1)].tolist(), "weight": number, "context": at,
             **flags(number)} for number, row in enumerate(given) for at in range(row[1])]
    unpack = layout_of("o").unpack
    for (_, got), wanted in zip(out, want, strict=True):
        assert unpack(got) == wanted, f"{given[wanted['weight']]}"
    return [clock for clock, _ in out], taken


@cocotb.test()
async def smoke(dut):
    """A row of three beats in each format."""
    random = np.random.default_rng(1)
    await compared(dut, [row for form in ROW_FORMAT for row in rows(random, 1, form)])


@cocotb.test()
async def random_match_golden(dut):
    """Hundreds of rows, with and without pauses between beats."""
    random, pauses = np.random.default_rng(seed("rows")), rng("pauses")
    for count, pause in ((1200 if REGRESS else 400, lambda: 0), (300 if REGRESS else 100, lambda: pauses.randrange(4))):
        await compared(dut, rows(random, count), pause)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """FP32 in the same cycle; another format `latency` cycles behind its beat; a beat every cycle."""
    random = np.random.default_rng(seed("rate"))
    for form in ROW_FORMAT:
        left, taken = await compared(dut, rows(random, 40, form))
        late = 0 if form == PLAIN else RowDecoder.latency
        assert left == [clock + late for clock in taken]
        assert taken == list(range(taken[0], taken[0] + len(taken)))


@cocotb.test()
async def reset_midstream(dut):
    """What is on its way is dropped; a row behind the reset is whole."""
    random = np.random.default_rng(seed("reset"))
    await sent(dut, rows(random, 4, ROW_FORMAT.INT8), stop_after=6)
    await compared(dut, rows(random, 20))


@cocotb.test()
async def corner_values(dut):
    """Zeros, subnormals, ties, the largest numbers, infinities and NaNs as values, scales and biases."""
    random = np.random.default_rng(seed("corners"))
    await compared(dut, rows(random, 1200 if REGRESS else 500, corners=True))


@pytest.mark.testpoint("illegal_config_wrong")
@pytest.mark.parametrize("words", [0, 2, 12, 128, 4.0, True])
def test_wrong_parameters(words):
    """Beats in which a scale and a bias have no room, or that no core has."""
    with pytest.raises(ValueError, match=f"^words is {words!r}, must be a power of two from 4 to 64$"):
        RowDecoder(words=words, row_beats_max=8)


def test_wrong_lut_products():
    """More lanes in LUTs than there are."""
    with pytest.raises(ValueError, match="^lut_products is 5, must be 0 to 4 for 4 words$"):
        RowDecoder(words=4, row_beats_max=8, lut_products=5)


def rounded(exact):
    """A fraction as a binary32 word: RNE, subnormals flushed; +0 for both zeros."""
    if not exact:
        return 0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    scaled = size / Fraction(2) ** (exponent - 23)
    digits, rest = divmod(scaled.numerator, scaled.denominator)
    digits += 2 * rest > scaled.denominator or 2 * rest == scaled.denominator and digits & 1
    exponent, digits = (exponent + 1, digits >> 1) if digits >> 24 else (exponent, digits)
    sign = (exact < 0) << 31
    if not -126 <= exponent <= 127:
        return 0 if exponent < 0 else sign | fp32.INFINITY
    return sign | exponent + 127 << 23 | digits & 0x7FFFFF


def test_golden_is_a_fused_multiply_add():
    """Of exact fractions, for scales and biases that overlap in every way."""
    random = np.random.default_rng(seed("fractions"))
    scale, bias = near(random, 20_000)
    codes = random.choice([0, 1, 2, 3, 5, 127, 128, 255], (20_000, 1))
    got = fp32.bits(golden.scaled(codes, scale[:, None], bias[:, None])).reshape(-1)
    flushed = [[Fraction(float(value)) for value in fp32.flush(each)] for each in (scale, bias)]
    for q, s, b, word in zip(codes[:, 0].tolist(), *flushed, got.tolist(), strict=True):
        want = rounded(q * s + b)
        assert word == want or word & 0x7FFFFFFF == want == 0, f"{q} * {float(s)!r} + {float(b)!r}"


@pytest.mark.parametrize("form, dtype", [(ROW_FORMAT.FLOAT16, np.float16), (ROW_FORMAT.BFLOAT16, np.uint16)])
def test_golden_half_words(form, dtype):
    """All of them: NumPy's, or the upper half of a word; with this project's zeros and NaNs."""
    codes = np.arange(1 << 16, dtype=np.uint16)
    wide = codes.view(dtype).astype(np.float32) if dtype is np.float16 else (codes.astype(np.uint32) << 16).view(
        np.float32)
    got = golden.decode(codes.view(np.uint32).reshape(1, -1), form, len(codes), WORDS)[0]
    np.testing.assert_array_equal(fp32.bits(got), fp32.bits(fp32.flush(wide)))


@pytest.mark.parametrize("number", seeds())
def test_row_decoder(number):
    # Half of the lanes multiply in LUTs: rows are the same in both.
    simulate(RowDecoder(words=WORDS, row_beats_max=LONGEST, lut_products=WORDS // 2), "verif.emb.test_row_decoder",
             name="emb_row_decoder", tests=5, seed=number)
