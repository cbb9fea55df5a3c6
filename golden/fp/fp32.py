"""FP32 arithmetic, bit for bit as the hardware does it.

binary32, round to nearest even, subnormal operands read as zero of the same sign, subnormal results
flushed to zero of the same sign (decided after rounding), every NaN is 0x7FC00000.

Arguments are float32 or uint32 (bit patterns) arrays; results are float32 arrays. All work is done on
integers, so that nothing depends on the host's floating-point modes.
"""

import decimal
import functools

import numpy as np
from numpy.typing import ArrayLike, NDArray

NAN = 0x7FC00000
INFINITY = 0x7F800000
SIGN = 0x80000000
# What the fused dot product keeps of a 48-bit product: the part that a DSP cascade delivers after its
# 17-bit shift.
DROPPED_BITS = 17
# Where four operands share an exponent: bits that their mantissas keep below the largest one's lowest, bits that are
# dropped of the exact sum of their products, places from which on such a sum counts as nothing beside a larger one.
GROUP, GUARD_BITS, GROUP_DROPPED_BITS, GROUP_REACH = 4, 2, 19, 32
BIAS = 127


def bits(value: ArrayLike) -> NDArray[np.uint32]:
    """The bit patterns of float32 values; uint32 passes as it is."""
    array = np.asarray(value)
    if array.dtype == np.uint32:
        return array
    return np.asarray(array, np.float32, order="C").view(np.uint32)


def value(pattern: ArrayLike) -> NDArray[np.float32]:
    """The float32 values of bit patterns."""
    return np.asarray(pattern).astype(np.uint32).view(np.float32)


def flush(x: ArrayLike) -> NDArray[np.float32]:
    """Subnormals become zero of the same sign; every NaN the canonical one."""
    word = bits(x)
    word = np.where((word & INFINITY) == 0, word & SIGN, word)
    return value(np.where((word & ~np.uint32(SIGN)) > INFINITY, np.uint32(NAN), word))


def _unpack(x: ArrayLike) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Sign, biased exponent, mantissa with hidden bit (0 for a zero), all int64, and the NaN flag."""
    word = bits(x).astype(np.int64)
    exponent = (word >> 23) & 0xFF
    fraction = word & 0x7FFFFF
    mantissa = np.where(exponent == 0, 0, fraction | 0x800000)
    return word >> 31, exponent, mantissa, (exponent == 255) & (fraction != 0)


def _round(sign: NDArray, magnitude: NDArray, exponent: NDArray) -> NDArray[np.uint32]:
    """Rounds (-1)^sign * magnitude * 2^exponent; `magnitude` is an int64 in 0 .. 2^62 - 1."""
    zero = magnitude == 0
    width = _bit_length(magnitude)
    drop = width - 24
    right = np.maximum(drop, 0)
    mantissa = magnitude >> right
    rest = magnitude - (mantissa << right)
    half = (np.int64(1) << right) >> 1
    up = (rest > half) | ((rest == half) & (right > 0) & ((mantissa & 1) == 1))
    mantissa = np.where(drop < 0, magnitude << np.maximum(-drop, 0), mantissa) + up
    carried = mantissa >> 24
    mantissa = mantissa >> carried
    biased = exponent + width - 1 + BIAS + carried
    word = (biased << 23) | (mantissa & 0x7FFFFF)
    word = np.where(biased >= 255, INFINITY, word)
    word = np.where((biased <= 0) | zero, 0, word)
    return ((sign << 31) | word).astype(np.uint32)


def _bit_length(magnitude: NDArray) -> NDArray:
    """Bits of a non-negative int64 below 2^62, exactly (two halves keep float64 exact)."""
    high = magnitude >> 31
    high_bits = np.frexp(high.astype(np.float64))[1]
    low_bits = np.frexp((magnitude & 0x7FFFFFFF).astype(np.float64))[1]
    return np.where(high > 0, high_bits + 31, low_bits).astype(np.int64)


def dropped_bits(grouped: bool) -> int:
    """Of a product's 48 bits, how many lie below the unit of a dot product's accumulator."""
    return GROUP_DROPPED_BITS - 2 * GUARD_BITS if grouped else DROPPED_BITS


def group(x: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Groups of four along the last axis, padded with zeros: signed mantissas (.., groups, 4), exponents (.., groups).

    2^25 stands for the hidden bit of a number with the group's exponent, the largest of its numbers'; smaller ones are
    cut off below the guard bits. Infinities and NaNs count as zeros.
    """
    sign, exponent, mantissa, _ = _unpack(x)
    number = (mantissa != 0) & (exponent != 255)
    padding = [(0, 0)] * (np.ndim(x) - 1) + [(0, -np.shape(x)[-1] % GROUP)]

    def grouped(values: NDArray) -> NDArray:
        values = np.pad(np.where(number, values, 0), padding)
        return values.reshape(*values.shape[:-1], -1, GROUP)

    sign, exponent, mantissa = grouped(sign), grouped(exponent), grouped(mantissa)
    peak = exponent.max(-1)
    mantissa = (mantissa << GUARD_BITS) >> np.minimum(peak[..., None] - exponent, 63)
    return np.where(sign == 1, -mantissa, mantissa), peak


def dot(x: ArrayLike, y: ArrayLike, beat: int, *, grouped: bool = False) -> NDArray[np.float32]:
    """The fused dot product sum_i x_i * y_i over the last axis, `beat` terms taken at a time.

    Products keep their upper 31 bits; within a beat all are moved to the largest exponent seen since
    the first beat (floor of magnitudes for the products, floor for the accumulator), added exactly, and
    the total is rounded once. An exact zero is +0. K is padded with zeros to whole beats.

    grouped: operands come in groups of four that share an exponent, see `group`; what is moved are the exact sums of
    their products, cut (floor) at 2^-33 of the largest product that their exponents allow.
    """
    if beat < 1:
        raise ValueError(f"beat is {beat}, must be at least 1")
    if grouped and beat % GROUP:
        raise ValueError(f"beat is {beat}, must be a multiple of {GROUP} for groups that share an exponent")
    sx, ex, mx, nx = _unpack(x)
    sy, ey, my, ny = _unpack(y)
    infinite_x, infinite_y = (ex == 255) & ~nx, (ey == 255) & ~ny
    sign = sx ^ sy
    nan = nx | ny | (infinite_x & (my == 0)) | (infinite_y & (mx == 0))
    infinite = infinite_x | infinite_y
    positive = (infinite & (sign == 0)).any(-1)
    negative = (infinite & (sign == 1)).any(-1)
    is_nan = nan.any(-1) | (positive & negative)

    if grouped:
        (gx, ex), (gy, ey) = group(x), group(y)
        product = (gx * gy).sum(-1) >> GROUP_DROPPED_BITS
        exponent = np.where((ex == 0) | (ey == 0), 0, ex + ey)
        beat //= GROUP
    else:
        product = (mx * my) >> DROPPED_BITS
        exponent = np.where((mx == 0) | (my == 0), 0, ex + ey)
        product = np.where(sign == 1, -product, product)
    terms = product.shape[-1]
    total = np.zeros(product.shape[:-1], np.int64)
    peak = np.zeros(product.shape[:-1], np.int64)
    for start in range(0, terms, beat):
        e = exponent[..., start:start + beat]
        p = product[..., start:start + beat]
        new = np.maximum(peak, e.max(-1))
        shift = np.minimum(new[..., None] - e, 63)
        if grouped:
            moved = np.where(shift < GROUP_REACH, p >> shift, 0)
        else:
            moved = np.where(p < 0, -(-p >> shift), p >> shift)
        total = (total >> np.minimum(new - peak, 63)) + moved.sum(-1)
        peak = new
    negative_total = (total < 0).astype(np.int64)
    word = _round(negative_total, np.abs(total), peak - 2 * BIAS - 46 + dropped_bits(grouped))
    word = np.where(total == 0, np.uint32(0), word)
    word = np.where(positive, np.uint32(INFINITY), word)
    word = np.where(negative, np.uint32(INFINITY | SIGN), word)
    return value(np.where(is_nan, np.uint32(NAN), word))


def mul(x: ArrayLike, y: ArrayLike) -> NDArray[np.float32]:
    """x * y, rounded once."""
    sx, ex, mx, nx = _unpack(x)
    sy, ey, my, ny = _unpack(y)
    sign = sx ^ sy
    infinite = (ex == 255) | (ey == 255)
    nan = nx | ny | (infinite & ((mx == 0) | (my == 0)))
    word = _round(sign, mx * my, ex + ey - 2 * BIAS - 46)
    return _special(word, sign, infinite, nan)


def add(x: ArrayLike, y: ArrayLike) -> NDArray[np.float32]:
    """x + y, rounded once. An exact zero is +0, but (-0) + (-0) is -0."""
    sx, ex, mx, nx = _unpack(x)
    sy, ey, my, ny = _unpack(y)
    swap = ((ex << 24) | mx) < ((ey << 24) | my)
    large, small = np.where(swap, my, mx) << 30, np.where(swap, mx, my) << 30
    exponent = np.where(swap, ey, ex)
    shift = np.minimum(np.abs(ex - ey), 62)
    # Bits shifted out leave a mark in the lowest one; 30 spare bits keep it away from the rounding.
    moved = small >> shift
    moved |= (moved << shift) != small
    total = np.where(sx == sy, large + moved, large - moved)
    sign = np.where(total == 0, sx & sy, np.where(swap, sy, sx))
    infinite_x, infinite_y = ex == 255, ey == 255
    nan = nx | ny | (infinite_x & infinite_y & (sx != sy))
    word = _round(sign, total, exponent - BIAS - 23 - 30)
    return _special(word, np.where(infinite_x, sx, sy), infinite_x | infinite_y, nan)


def div(x: ArrayLike, y: ArrayLike) -> NDArray[np.float32]:
    """x / y, rounded once; a finite number over zero is infinite, 0 / 0 and inf / inf are NaN."""
    sx, ex, mx, nx = _unpack(x)
    sy, ey, my, ny = _unpack(y)
    sign = sx ^ sy
    divisor = np.where(my == 0, 1, my)
    quotient = (mx << 28) // divisor
    inexact = quotient * divisor != (mx << 28)
    word = _round(sign, (quotient << 1) | inexact, ex - ey - 29)
    word = np.where(ey == 255, (sign << 31).astype(np.uint32), word)
    zero_x, zero_y = mx == 0, my == 0
    infinite_x, infinite_y = ex == 255, ey == 255
    nan = nx | ny | (zero_x & zero_y) | (infinite_x & infinite_y)
    return _special(word, sign, infinite_x | zero_y, nan)


def _special(word: NDArray, sign: NDArray, infinite: NDArray, nan: NDArray) -> NDArray[np.float32]:
    word = np.where(infinite, (sign << 31) | INFINITY, word)
    return value(np.where(nan, NAN, word))


def _order(x: ArrayLike) -> NDArray[np.int64]:
    """Integers in the order of the flushed values, -0 below +0."""
    word = bits(flush(x)).astype(np.int64)
    return np.where(word >> 31 == 1, -1 - (word & 0x7FFFFFFF), word)


def maximum(x: ArrayLike, y: ArrayLike) -> NDArray[np.float32]:
    """The larger value; NaN if either is one; +0 is larger than -0."""
    a, b = _order(x), _order(y)
    word = np.where(a >= b, bits(flush(x)), bits(flush(y)))
    return value(np.where(_unpack(x)[3] | _unpack(y)[3], np.uint32(NAN), word))


# e^-a = 2^-(n + f), f in 27 bits: 512 stretches of a second-degree polynomial each.
_STRETCH_LOG2, _FRACTION_BITS = 9, 27
_LOG2_E = 198_282_496_599       # log2(e) * 2^37
_POWER_BITS = 28
# Bits behind the point of the first and second coefficient.
_SLOPE_BITS, _BEND_BITS = 22, 12


@functools.cache
def _power_table() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """2^-f around the middle of each stretch, half a unit of f further on: f comes with its lower bits cut off."""
    with decimal.localcontext(prec=40):
        two = decimal.Decimal(2)
        ln2 = two.ln()
        middle = [two ** -((2 * k + 1) / two ** (_STRETCH_LOG2 + 1) + 1 / two ** (_FRACTION_BITS + 1))
                  for k in range(1 << _STRETCH_LOG2)]
        # What is subtracted from the first one is cut off: half a unit too little on average, as this is.
        base = [int(value * 2 ** _POWER_BITS) for value in middle]
        slope = [round(value * ln2 * 2 ** _SLOPE_BITS) for value in middle]
        bend = [round(value * ln2 * ln2 / 2 * 2 ** _BEND_BITS) for value in middle]
        return np.array(base), np.array(slope), np.array(bend)


def sigmoid(x: ArrayLike) -> NDArray[np.float32]:
    """1 / (1 + e^-x), at most 0.70 ulp from the exact value and monotone; results below 2^-126 are +0."""
    sign, exponent, mantissa, nan = _unpack(x)
    # |x| * log2(e), four bits of the mantissa after the other, each time cut off below 2^-30 of the largest.
    right = 133 - exponent
    mantissa = np.where(right >= 64, 0, mantissa)
    product = np.zeros_like(mantissa)
    for place in range(0, 24, 4):
        product = (product + ((mantissa >> place) & 15) * _LOG2_E) >> 4
    scaled = (product >> 3) >> np.clip(right, 0, 63)
    n = np.where(right < 0, 255, scaled >> _FRACTION_BITS)
    # 2^-f
    base, slope, bend = _power_table()
    within = _FRACTION_BITS - _STRETCH_LOG2
    stretch = (scaled >> within) & ((1 << _STRETCH_LOG2) - 1)
    step = (scaled & ((1 << within) - 1)) - (1 << (within - 1))
    tangent = slope[stretch] - ((bend[stretch] * step) >> (_FRACTION_BITS + _BEND_BITS - _SLOPE_BITS))
    power = base[stretch] - ((tangent * step) >> (_FRACTION_BITS + _SLOPE_BITS - _POWER_BITS))
    # 1 / (1 + e^-a) or 2^-f / (1 + e^-a) * 2^-n, 26 bits of a quotient between 1/3 and 1.
    one = 1 << _POWER_BITS
    divisor = one + (power >> np.minimum(n, 63))
    quotient = np.minimum((np.where(sign == 1, power, one) << 26) // divisor, (1 << 26) - 1)
    upper = quotient >> 25
    places = 1 + upper
    fraction = (quotient >> places) & 0x7FFFFF
    biased = 125 - np.where(sign == 1, n, 0) + upper
    word = (biased << 23) + fraction + ((quotient >> (places - 1)) & 1)
    word = np.where(word < 1 << 23, 0, word)
    return value(np.where(nan, NAN, word))
