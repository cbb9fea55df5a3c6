"""binary32 words as half-precision ones, bit for bit as the hardware makes them.

binary16 (1, 5, 10 bits) and bfloat16 (1, 8, 7 bits), round to nearest even. A subnormal binary32 word is zero of the
same sign; a value below binary16's smallest normal one becomes a binary16 subnormal, or zero of the same sign. What
rounds past the largest number is infinity. Every NaN is the one quiet NaN without a sign: 0x7E00, 0x7FC0.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from golden.fp import fp32

#: Fraction bits, difference of the exponents' biases, infinity and NaN of each format.
FORMATS = {"float16": (10, 112, 0x7C00, 0x7E00), "bfloat16": (7, 0, 0x7F80, 0x7FC0)}


def narrow(x: ArrayLike, form: str) -> NDArray[np.uint16]:
    """The words of `form`, of float32 values or their patterns. Raises KeyError: another format"""
    fraction, bias, infinity, nan = FORMATS[form]
    word = fp32.bits(x).astype(np.int64)
    exponent, mantissa = word >> 23 & 0xFF, word & 0x7FFFFF
    is_nan = (exponent == 255) & (mantissa != 0)
    significand = np.where(exponent == 0, 0, mantissa | 1 << 23)
    biased = np.maximum(exponent - bias, 1)         # of a subnormal as of the smallest normal number
    drop = 23 - fraction + np.minimum(biased - (exponent - bias), 24)
    kept = significand >> drop
    rest, half = significand - (kept << drop), np.int64(1) << (drop - 1)
    kept += (rest > half) | ((rest == half) & (kept & 1 == 1))
    # The leading one of a normal number, and what rounding carries, count into the exponent.
    code = np.minimum((biased - 1 << fraction) + kept, infinity)
    return np.where(is_nan, nan, word >> 31 << 15 | code).astype(np.uint16)


def widen(code: ArrayLike, form: str) -> NDArray[np.float32]:
    """The values of half-precision words; exact, a NaN with its fraction. Raises KeyError: another format"""
    fraction, _, _, _ = FORMATS[form]
    pattern = np.ascontiguousarray(code, np.uint16)
    if fraction == 10:
        nan = pattern & 0x7FFF > 0x7C00     # which NumPy makes quiet on some machines
        bits = (pattern & 0x8000).astype(np.uint32) << 16 | 0x7F800000 | (pattern & 0x3FF).astype(np.uint32) << 13
        return np.where(nan, bits, pattern.view(np.float16).astype(np.float32).view(np.uint32)).view(np.float32)
    return (pattern.astype(np.uint32) << 16).view(np.float32)
