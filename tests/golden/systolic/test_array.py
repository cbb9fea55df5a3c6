"""The array's golden model against float64 and against itself told otherwise."""
import numpy as np
import pytest

from golden.fp import fp32
from golden.systolic import array as systolic


@pytest.mark.testpoint("corner_values", unit="systolic/array")
def test_tiles_against_float64():
    """Tiles of normal numbers are within the stated bound of float64."""
    random = np.random.default_rng(7)
    x = random.standard_normal((3, 5, 24)).astype(np.float32)
    y = random.standard_normal((3, 24, 6)).astype(np.float32)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    # Each product and the accumulator lose less than 2^-28 of the largest product a beat; one rounding.
    largest = (np.abs(x)[..., :, None, :] * np.abs(np.swapaxes(y, -1, -2))[..., None, :, :]).max(-1)
    for width in (1, 2, 4, 8):
        error = np.abs(systolic.tiles(x, y, width) - exact)
        assert (error <= np.abs(exact) * 2.0**-24 + largest * 2 * 24 * 2.0**-28).all()


def test_each_word_is_one_dot_product():
    random = np.random.default_rng(8)
    x = random.standard_normal((4, 7)).astype(np.float32)
    y = random.standard_normal((7, 3)).astype(np.float32)
    out = systolic.tiles(x, y, 2)
    for r in range(4):
        for c in range(3):
            assert fp32.bits(out[r, c]) == fp32.bits(fp32.dot(x[r], y[:, c], 2))


@pytest.mark.testpoint("latency_and_rate_as_documented", unit="systolic/array")
def test_schedule_of_one_tile_by_hand():
    """The cycles of one tile on the paper's array, counted by hand."""
    # The paper's array: 4 beats, then 12 cycles in the cell, a hold register, 4 rows up, 31 columns of skew.
    assert systolic.schedule([4], [4], columns=32, width=1, aligned=False) == [(20, 20 + 3 + 31)]
    assert systolic.schedule([4], [4], columns=32, width=1, aligned=True) == [(20 + 31, 20 + 31 + 3)]


@pytest.mark.testpoint("illegal_config_wrong", unit="systolic/array")
def test_tiles_too_short_to_drain_wrong():
    """Tiles with fewer beats than the rows before need to leave are refused with a sentence."""
    with pytest.raises(ValueError, match="tile 1 has 3 beats and 4 live rows: too few for the 4 rows before"):
        systolic.schedule([9, 3], [4, 4], columns=2, width=1, aligned=False)
    with pytest.raises(ValueError, match="tile 1 has 1 beats and 4 live rows: too few for the 2 rows before"):
        systolic.schedule([9, 1], [2, 4], columns=2, width=1, aligned=False)


@pytest.mark.testpoint("illegal_config_wrong", unit="systolic/array")
def test_unequal_terms_wrong():
    """Operands of unequal numbers of terms are refused with a sentence."""
    with pytest.raises(ValueError, match="x has 3 terms and y has 4; they must be equal"):
        systolic.tiles(np.zeros((2, 3), np.float32), np.zeros((4, 2), np.float32), 1)
