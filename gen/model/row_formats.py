"""Rows in narrow formats: quantised as FBGEMM does, and as they lie on a card (golden.emb.row_decoder).

FBGEMM keeps a quantised row as its codes and then scale and bias: int8 in dim bytes and two float32, int4 in dim / 2
bytes, the even value in the low half, and two float16. On a card scale and bias lie in front, which is all that
changes.
Source: FBGEMM, FloatToFused8BitRowwiseQuantized and FloatToFusedNBitRowwiseQuantizedSBHalf
"""

import numpy as np
from numpy.typing import NDArray

from golden.emb import row_decoder
from golden.fp import fp32
from golden.fp.narrow import narrow, widen
from hw.isa.emb import ROW_FORMAT

#: dtype of scale and bias, in formats with codes.
CODES = {"int8": np.float32, "int4": np.float16}
WORDS = 16      # of a beat: how long it is does not change a value


class RowError(ValueError):
    """row: the number of the first row that cannot be stored; the text says why, of "its" values."""

    def __init__(self, row: int, text: str):
        super().__init__(text)
        self.row = row


def fused_bytes(form: str, dim: int) -> int:
    """Of a row as FBGEMM keeps it; 0 where the format has no scale."""
    if form not in CODES:
        return 0
    return dim * _bits(form) // 8 + 2 * np.dtype(CODES[form]).itemsize


def fused_dim(form: str, width: int) -> int:
    """Values of a row that FBGEMM keeps in `width` bytes."""
    return (width - fused_bytes(form, 0)) * 8 // _bits(form)


def quantise(rows: NDArray[np.float32], form: str) -> NDArray[np.uint8]:
    """FBGEMM's rows of float32 ones (n, dim): codes to the nearest, ties to even. Raises RowError: no finite range"""
    dtype, most = CODES[form], 2 ** _bits(form) - 1
    with np.errstate(all="ignore"):
        bias = rows.min(axis=1).astype(dtype)
        low = rows.min(axis=1) if form == "int8" else bias.astype(np.float32)
        reach = rows.max(axis=1) - low
        scale = (reach / np.float32(most)).astype(dtype)
        if form == "int8":
            inverse = np.float32(most) / (reach + np.float32(1e-8))
        else:
            scale[scale == 0] = 1
            inverse = 1 / scale.astype(np.float32)
            scale[np.isinf(inverse)] = 1
            inverse[np.isinf(inverse)] = 1
        _finite(scale, bias, dtype)
        codes = np.clip(np.rint((rows - low[:, None]) * inverse[:, None]), 0, most).astype(np.uint8)
    if form == "int4":
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    return np.concatenate([codes, np.stack([scale, bias], axis=1).view(np.uint8)], axis=1)


def values(fused: NDArray[np.uint8], form: str) -> NDArray[np.float32]:
    """(n, dim) of FBGEMM's rows."""
    codes, scale, bias = _taken(fused, form)
    if form == "int4":
        codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), 2 * codes.shape[1])
    ends = (fp32.bits(each.astype(np.float32))[:, None] for each in (scale, bias))
    return row_decoder.scaled(codes, *ends)


def store(rows: NDArray, form: str, words: int) -> NDArray[np.uint32]:
    """(n, 32-bit words) as rows lie on a card whose beats have `words` words, of float32 rows (n, dim) or, for int8 and
    int4, of FBGEMM's rows (n, bytes) uint8. What lies behind the values is 0.

    Raises      RowError: a value that overflows the format, or a scale or bias that is not finite
    """
    number = ROW_FORMAT[form.upper()]
    fused = None
    if form in CODES:
        fused = rows if rows.dtype == np.uint8 else quantise(rows, form)
        codes, scale, bias = _taken(fused, form)
        _finite(scale, bias, CODES[form])
        dim = fused_dim(form, fused.shape[1])
    else:
        dim = rows.shape[1]
    held = np.zeros((len(rows), row_decoder.beats(-(-dim // words), number) * words), np.uint32)
    if fused is not None:
        places, ends = held.view(np.uint8), fused.shape[1] - codes.shape[1]
        start = number.header * words * number.bits // 8
        places[:, :ends], places[:, start:start + codes.shape[1]] = fused[:, -ends:], codes
    elif form == "float32":
        held[:, :dim] = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    else:
        held.view(np.uint16)[:, :dim] = found = narrow(np.ascontiguousarray(rows, np.float32), form)
        over = np.isfinite(rows) & np.isinf(widen(found, form))
        if over.any():
            row, at = (int(k) for k in np.argwhere(over)[0])
            raise RowError(row, f"its value {rows[row, at]} is past the largest {form}")
    return held


def rounded(rows: NDArray[np.float32], form: str) -> NDArray[np.float32]:
    """(n, dim) as a card reads rows that were stored in a format. Raises RowError: as `store` does"""
    return row_decoder.decode(store(rows, form, WORDS), ROW_FORMAT[form.upper()], rows.shape[1], WORDS)


def _bits(form: str) -> int:
    return ROW_FORMAT[form.upper()].bits


def _taken(fused: NDArray[np.uint8], form: str) -> tuple[NDArray[np.uint8], NDArray, NDArray]:
    """Codes, scales and biases."""
    dtype = np.dtype(CODES[form])
    ends = np.ascontiguousarray(fused[:, -2 * dtype.itemsize:]).view(dtype)
    return fused[:, :-2 * dtype.itemsize], ends[:, 0], ends[:, 1]


def _finite(scale: NDArray, bias: NDArray, dtype: type) -> None:
    for name, each in (("scale", scale), ("bias", bias)):
        if not np.isfinite(each).all():
            row = int(np.argmin(np.isfinite(each)))
            raise RowError(row, f"its {name}, a {np.dtype(dtype).name}, is {each[row]}")
