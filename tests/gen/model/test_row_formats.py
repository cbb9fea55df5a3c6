"""Rows in narrow formats: bit for bit those of FBGEMM 1.8.0, whose rows and lookups on a CPU were recorded."""

import re
from pathlib import Path

import numpy as np
import pytest

from gen.model import row_formats
from gen.model.recommender import ROW_FORMATS
from golden.emb import bags, row_decoder
from golden.fp import fp32
from golden.fp.narrow import narrow, widen
from hw.isa.emb import ROW_FORMAT

# Of torch.ops.fbgemm (FloatToFused8BitRowwiseQuantized, FloatToFusedNBitRowwiseQuantizedSBHalf and back) and of
# torch.ops.quantized.embedding_bag_byte_rowwise_offsets and .embedding_bag_4bit_rowwise_offsets, which sum with
# FBGEMM's kernels: rows_D, FORMAT_D, FORMAT_values_D, FORMAT_bags_D, indices_D, offsets_D. Constant rows, zeros,
# rows of one sign, far from zero and of every size are among them.
RECORDED = np.load(Path(__file__).parent / "fbgemm_rows.npz")
DIMS = (8, 64, 100)


def recorded(name, dim):
    return RECORDED[f"{name}_{dim}"]


@pytest.mark.parametrize("form", ["int8", "int4"])
@pytest.mark.parametrize("dim", DIMS)
def test_rows_are_those_of_fbgemm(form, dim):
    fused = recorded(form, dim)
    np.testing.assert_array_equal(row_formats.quantise(recorded("rows", dim), form), fused)
    assert row_formats.fused_bytes(form, dim) == fused.shape[1]
    wanted = recorded(f"{form}_values", dim)
    np.testing.assert_array_equal(row_formats.values(fused, form).view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("words", [4, 16])
@pytest.mark.parametrize("form", ["int8", "int4"])
@pytest.mark.parametrize("dim", DIMS)
def test_a_card_looks_up_what_fbgemm_does(form, dim, words):
    """Bags of one row bit for bit; those of more to the rounding of sums, which go in another order there."""
    stored = row_formats.store(recorded(form, dim), form, words)
    rows = row_decoder.decode(stored, ROW_FORMATS.index(form), dim, words)
    indices, offsets, wanted = recorded("indices", dim), recorded("offsets", dim), recorded(f"{form}_bags", dim)
    held = np.flatnonzero(np.diff(offsets))
    got = np.zeros_like(wanted)
    got[held] = bags.pool(rows[indices], np.append(offsets[held], offsets[-1]))
    single = np.diff(offsets) == 1
    assert single.sum() == 3
    np.testing.assert_array_equal(got[single].view(np.uint32), wanted[single].view(np.uint32))
    size = np.add.reduceat(np.abs(rows[indices]), offsets[held]).max(axis=1)
    assert (np.abs(got - wanted)[held] <= 2**-20 * size[:, None]).all()


@pytest.mark.parametrize("words", [4, 16])
@pytest.mark.parametrize("form", ROW_FORMATS)
def test_what_is_stored_comes_back(form, words):
    """As the format's values, of rows that fill their beats or not; what is left of a beat is 0."""
    random = np.random.default_rng(3)
    for dim in (2, 14, 16, 48, 50, 64):
        rows = random.standard_normal((9, dim)).astype(np.float32)
        stored = row_formats.store(rows, form, words)
        number, beats = ROW_FORMATS.index(form), -(-dim // words)
        assert stored.shape == (9, words * row_decoder.beats(beats, number))
        got = row_decoder.decode(stored, number, dim, words)
        assert row_decoder.decode(row_formats.store(rows[:0], form, words), number, dim, words).shape == (0, dim)
        if form in ("int8", "int4"):
            fused = row_formats.quantise(rows, form)
            np.testing.assert_array_equal(got, row_formats.values(fused, form))
            np.testing.assert_array_equal(row_formats.store(fused, form, words), stored)
            assert row_formats.values(row_formats.quantise(rows[:0], form), form).shape == (0, dim)
            used = fused.shape[1]
            step = (rows.max(axis=1) - rows.min(axis=1)) / (255 if form == "int8" else 15)
            assert (np.abs(got - rows) <= 0.51 * step[:, None] + 2**-11).all()
        else:
            np.testing.assert_array_equal(got, rows if form == "float32" else widen(narrow(rows, form), form))
            used = dim * ROW_FORMAT(number).bits // 8
        assert np.count_nonzero(stored.view(np.uint8)) <= 9 * used


@pytest.mark.parametrize("form, beats", [("float32", (4, 8, 16)), ("float16", (2, 4, 8)), ("bfloat16", (2, 4, 8)),
                                         ("int8", (2, 3, 5)), ("int4", (1, 2, 3))])
def test_beats_of_a_row(form, beats):
    """Of D = 64, 128 and 256 with a port of 64 bytes."""
    assert tuple(row_decoder.beats(dim // 16, ROW_FORMATS.index(form)) for dim in (64, 128, 256)) == beats


def spoilt(form, name, value):
    fused = row_formats.quantise(np.arange(24, dtype=np.float32).reshape(3, 8), form)
    dtype = row_formats.CODES[form]
    ends = np.ascontiguousarray(fused[:, -2 * np.dtype(dtype).itemsize:]).view(dtype)
    ends[1, ("scale", "bias").index(name)] = value
    fused[:, -2 * np.dtype(dtype).itemsize:] = ends.view(np.uint8)
    return fused


@pytest.mark.parametrize("form, dtype", [("int8", "float32"), ("int4", "float16")])
@pytest.mark.parametrize("name", ["scale", "bias"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_scale_or_bias_that_is_not_finite(form, dtype, name, value):
    """Is refused with the row's number, given or made of what has no finite range."""
    with pytest.raises(row_formats.RowError, match=f"^its {name}, a {dtype}, is {value}$") as error:
        row_formats.store(spoilt(form, name, value), form, 4)
    assert error.value.row == 1
    rows = np.zeros((4, 8), np.float32)
    rows[2, 3] = value
    with pytest.raises(row_formats.RowError, match=f"^its (scale|bias), a {dtype}, is ") as error:
        row_formats.store(rows, form, 4)
    assert error.value.row == 2


@pytest.mark.parametrize("form, value", [("float16", 65520.0), ("float16", -1e6), ("bfloat16", 3.4e38)])
def test_a_value_past_the_largest_number(form, value):
    """Is refused; what is infinite before stays so."""
    rows = np.zeros((4, 8), np.float32)
    rows[0, 0], rows[3, 5] = np.inf, value
    told = re.escape(f"its value {np.float32(value)} is past the largest {form}")
    with pytest.raises(row_formats.RowError, match=f"^{told}$") as error:
        row_formats.store(rows, form, 4)
    assert error.value.row == 3
    got = row_decoder.decode(row_formats.store(rows[:3], form, 4), ROW_FORMATS.index(form), 8, 4)
    assert fp32.bits(got)[0, 0] == fp32.INFINITY
