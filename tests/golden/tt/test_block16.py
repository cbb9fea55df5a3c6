"""block16: values against exact fractions, its range and its error, cores along the rank that a product adds up."""

from fractions import Fraction

import numpy as np
import pytest

from golden.tt.block16 import BLOCK, MANTISSA_BITS, rounded, rounded_cores
from golden.tt.load import Limits, Loader, X, Y

LARGEST = np.float32(((1 << MANTISSA_BITS) - 1) * 2.0 ** (127 - MANTISSA_BITS + 1))


def exactly(block):
    """The values of one block, by the definition: the least unit in which all mantissas have 13 bits."""
    values = [Fraction(float(value)) for value in block]
    exponent = -126
    while True:
        unit = Fraction(2) ** (exponent - MANTISSA_BITS + 1)
        codes = [round(value / unit) for value in values]
        if max(map(abs, codes)) < 1 << MANTISSA_BITS:
            break
        exponent += 1
    found = [float(code * unit) for code in codes]
    return [value if abs(value) >= 2.0**-126 else 0.0 for value in found]


def draws(rng, count):
    """Blocks of values of one size and of very different ones, ties, powers of two, those that carry."""
    plain = rng.standard_normal((count, BLOCK))
    spread = plain * 2.0 ** rng.integers(-20, 21, (count, BLOCK))
    ties = (2 * rng.integers(0, 1 << MANTISSA_BITS, (count, BLOCK)) + 1) / 2.0**MANTISSA_BITS
    carry = np.where(rng.random((count, BLOCK)) < 0.4, 2 - 2.0 ** -rng.integers(10, 24, (count, BLOCK)), spread)
    small = np.ldexp(rng.standard_normal((count, BLOCK)), -126 + rng.integers(0, 16, (count, BLOCK)))
    large = np.ldexp(rng.uniform(-1, 1, (count, BLOCK)), 127)
    blocks = np.concatenate([plain, spread, ties, carry, small, large]).astype(np.float32)
    blocks[np.abs(blocks) < 2.0**-126] = 0
    blocks[rng.random(blocks.shape) < 0.1] = 0
    return blocks


def test_values_are_those_of_the_definition():
    blocks = draws(np.random.default_rng(1), 60)
    assert np.array_equal(rounded(blocks), np.array([exactly(block) for block in blocks], np.float32))


def test_what_is_held_stays_and_the_error_is_half_a_unit():
    blocks = draws(np.random.default_rng(2), 400)
    held = rounded(blocks)
    assert np.array_equal(rounded(held), held)
    largest = np.abs(held).max(1, keepdims=True)
    assert (np.abs(held.astype(np.float64) - blocks) <= np.maximum(largest * 2.0**-MANTISSA_BITS, 2.0**-126)).all()


def test_range():
    """Past the largest value it is infinite, as are infinities; a NaN stays one; subnormals are zero."""
    tiny = np.float32(1e-45)
    given = np.array([LARGEST, -LARGEST, 0, tiny, np.finfo(np.float32).max, 1, np.inf, np.nan], np.float32)
    held = rounded(given)
    assert np.array_equal(held, np.array([LARGEST, -LARGEST, 0, 0, np.inf, 0, np.inf, np.nan], np.float32),
                          equal_nan=True)
    assert np.array_equal(rounded(given[:6])[:4], held[:4]), "the last block may be shorter"


def test_cores_share_exponents_along_the_rank_that_is_added_up():
    rng = np.random.default_rng(3)
    cores = [(rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape)).astype(np.float32)
             for shape in ((1, 3, 2, 6), (6, 4, 2, 5), (5, 3, 4, 1))]
    held = rounded_cores(cores)
    for k, (core, found) in enumerate(zip(cores, held, strict=True)):
        turned, want = (np.moveaxis(each, 0 if k else -1, -1) for each in (core, found))
        for first in range(0, turned.shape[-1], BLOCK):
            part = turned[..., first:first + BLOCK]
            assert np.array_equal(rounded(part), want[..., first:first + BLOCK])
    assert any((core != found).any() for core, found in zip(cores, held, strict=True))


@pytest.mark.parametrize("value", [np.inf, np.nan, np.finfo(np.float32).max])
def test_a_value_without_a_code_is_named(value):
    cores = [np.ones((1, 3, 2, 6), np.float32), np.ones((6, 4, 2, 1), np.float32)]
    cores[1][5, 2, 1, 0] = value
    with pytest.raises(ValueError) as caught:
        rounded_cores(cores)
    assert str(caught.value) == f"core 2, slice 2: block16 has no code for its value {cores[1][5, 2, 1, 0]}"


def test_two_lines_share_one_of_the_memory():
    """Tables follow each other without gaps but at the ends of cores; a unit without groups refuses the format."""
    sizes = dict(grid_log2=2, x_lines=64, y_lines=64, t_lines=64, t_middle_lines=64, tables=4, index_bits=20,
                 mode_bits=8, rank_max=16, dim_max=64)
    cores = [np.ones(shape, np.float32) for shape in ((1, 9, 4, 4), (4, 7, 4, 4), (4, 5, 4, 1))]
    loader = Loader(Limits(**sizes, grouped=True))
    for number, (block16, lines) in enumerate(((False, (5, 8)), (True, (3, 4)), (True, (3, 4)), (False, (5, 8)))):
        before = loader.x_used, loader.y_used
        _, _, beats = loader.add(cores, block16=block16)
        assert (loader.x_used - before[0], loader.y_used - before[1]) == lines, number
        for target, used, most in ((X, before[0], loader.x_used), (Y, before[1], loader.y_used)):
            places = {beat.address for beat in beats if beat.target == target}
            assert used << block16 == min(places) and max(places) < most << block16
            assert all(beat.block == block16 for beat in beats if beat.target == target)
    with pytest.raises(ValueError) as caught:
        Loader(Limits(**sizes, grouped=False)).add(cores, block16=True)
    assert str(caught.value) == ("cores of block16 need a TT unit with grouped = true, whose operands share exponents")
    only = Loader(Limits(**sizes, grouped=True, block16_only=True))
    with pytest.raises(ValueError) as caught:
        only.add(cores)
    assert str(caught.value) == (
        "cores of float32 need a TT unit with block16_only = false; this one takes tt_format = block16 alone")
    assert only.add(cores, block16=True)[0] == 0
