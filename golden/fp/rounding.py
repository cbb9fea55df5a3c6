"""The rounding at the end of a fused sum, for loops that a compiler makes fast."""

import numpy as np
from numba import njit

from golden.fp import fp32

_INFINITY, _SIGN = np.int64(fp32.INFINITY), np.int64(fp32.SIGN)


@njit(cache=True)
def rounded(total, exponent):
    """The binary32 word of total * 2**exponent, an int64 that is not 0 and below 2**62: RNE, subnormals flushed."""
    sign = np.int64(0)
    if total < 0:
        sign, total = _SIGN, -total
    width, rest = np.int64(1), total
    for step in (32, 16, 8, 4, 2, 1):
        if rest >> step:
            width += step
            rest >>= step
    drop = width - 24
    if drop > 0:
        mantissa = total >> drop
        rest = total - (mantissa << drop)
        half = np.int64(1) << (drop - 1)
        if rest > half or (rest == half and mantissa & 1):
            mantissa += 1
            if mantissa >> 24:
                mantissa >>= 1
                width += 1
    else:
        mantissa = total << -drop
    biased = exponent + width - 1 + 127
    if biased >= 255:
        return sign | _INFINITY
    if biased <= 0:
        return sign
    return sign | (biased << 23) | (mantissa & 0x7FFFFF)
