"""Rows as they lie in DRAM and on the SSD, and the FP32 values that the core makes of them.

Of a row of v beats of FP32 values, `words` values each, beats are taken by

    float32             v
    float16, bfloat16   ceil(v / 2)         value k in bits 16 k on
    int8                ceil((v + 2) / 4)   scale and bias, binary32 each, in bytes 0 to 7; value k in byte 2 words + k
    int4                ceil((v + 2) / 8)   scale and bias, binary16 each, in bytes 0 to 3; value k in nibble
                                            2 words + k, the low one of a byte first

    value = code * scale + bias, rounded once to binary32 (RNE): a fused multiply-add, as FBGEMM's kernels do

A subnormal scale or bias of 32 bits is zero, as every binary32 operand of the core; those of 16 bits count in full. An
exact zero is +0, a subnormal result zero of its sign. If scale or bias is not finite, so is no value: all are NaN.
Source: FBGEMM, fused 8-bit row-wise and n-bit row-wise quantisation; scale and bias lie in front here
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from golden.fp import fp32
from golden.fp.narrow import widen
from hw.isa.emb import ROW_FORMAT

LATENCY = 14        # cycles that a beat takes through the decoder, but of FP32
#: A larger distance of the exponents of bias and scale counts as this: the product is then less than a quarter of the
#: bias's last place, whatever it is.
FAR = 34
FRACTION = 3        # bits below the last place of the scale: two, and whether anything is below them


def beats(row_beats: int, form: int) -> int:
    """Of a row of `row_beats` beats of FP32 values."""
    return -(-(row_beats + ROW_FORMAT(form).header) * ROW_FORMAT(form).bits // 32)


def decode(rows: NDArray[np.uint32], form: int, width: int, words: int) -> NDArray[np.float32]:
    """(n, width) values of rows (n, 32-bit words) as they are stored; `words`: of a beat."""
    stored = np.ascontiguousarray(rows)
    if form == ROW_FORMAT.FLOAT32:
        return stored[:, :width].view(np.float32)
    if form in (ROW_FORMAT.FLOAT16, ROW_FORMAT.BFLOAT16):
        return fp32.flush(widen(stored.view(np.uint16)[:, :width], ROW_FORMAT(form).name.lower()))
    codes = stored.view(np.uint8)
    if form == ROW_FORMAT.INT8:
        ends = stored[:, :2]
    else:
        ends = widen(stored.view(np.uint16)[:, :2], "float16").view(np.uint32)
        codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), 2 * codes.shape[1])
    start = ROW_FORMAT(form).header * words
    return scaled(codes[:, start:start + width], ends[:, :1], ends[:, 1:])


def scaled(code: ArrayLike, scale: ArrayLike, bias: ArrayLike) -> NDArray[np.float32]:
    """code * scale + bias, rounded once. code: 0 to 255; scale, bias: float32 values or their patterns."""
    q = np.asarray(code, np.int64)
    s, b = (fp32.bits(fp32.flush(each)).astype(np.int64) for each in (scale, bias))
    (s_exponent, s_mantissa), (b_exponent, b_mantissa) = (
        (np.maximum(each >> 23 & 255, 1), np.where(each & 0x7F800000, each & 0x7FFFFF | 1 << 23, 0)) for each in (s, b))
    product = q * s_mantissa * np.where(s >> 31, -1, 1)
    alone = product == 0                    # the bias as it is
    distance = np.where(alone, 0, b_exponent - s_exponent)
    high, low = np.clip(distance, 0, FAR), np.clip(-distance, 0, 24 + FRACTION + 1)
    magnitude = b_mantissa << high + FRACTION
    moved = magnitude >> low | (magnitude & (np.int64(1) << low) - 1 != 0)
    total = (product << FRACTION) + np.where(b >> 31, -moved, moved)
    last = np.where(alone | (distance > FAR), b_exponent - high, s_exponent) - 150 - FRACTION
    word = fp32._round((total < 0).astype(np.int64), np.abs(total), last)
    wild = (s_exponent == 255) | (b_exponent == 255)
    return fp32.value(np.where(wild, np.uint32(fp32.NAN), word))
