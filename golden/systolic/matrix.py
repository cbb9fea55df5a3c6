"""All dot products of two sets of vectors, as golden.fp.fp32.dot has them, fast enough for whole networks."""

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from golden.fp import fp32

__all__ = ["products"]

ZERO = -1024    # exponent of a zero operand: below any that counts, whatever the other one is


def products(x: ArrayLike, y: ArrayLike, beat: int, *, grouped: bool = False) -> NDArray[np.float32]:
    """(M, N): the fused dot product of every vector of x (M, K) with every one of y (N, K), `beat` terms at a time.

    grouped: in groups of four that share an exponent
    Raises      ValueError: vectors of different lengths, a beat below 1, or not of whole groups
    """
    x, y = fp32.bits(x), fp32.bits(y)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"x has the shape {x.shape} and y {y.shape}; they must be (M, K) and (N, K)")
    if beat < 1:
        raise ValueError(f"beat is {beat}, must be at least 1")
    if grouped and beat % fp32.GROUP:
        raise ValueError(f"beat is {beat}, must be a multiple of {fp32.GROUP} for groups that share an exponent")
    (mx, ex, kind_x), (my, ey, kind_y) = _operands(x), _operands(y)
    if grouped:
        total, peak = _group_sums(*fp32.group(x), *fp32.group(y), beat // fp32.GROUP)
    else:
        total, peak = _sums(mx, ex, my, ey, beat)
    negative_total = (total < 0).astype(np.int64)
    word = fp32._round(negative_total, np.abs(total), peak - 2 * fp32.BIAS - 46 + fp32.dropped_bits(grouped))
    word = np.where(total == 0, np.uint32(0), word)
    if kind_x.any() or kind_y.any():
        word = _specials(mx, kind_x, my, kind_y, word)
    return fp32.value(word)


def _operands(words: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Signed mantissas, exponents, and what is no number: 1 infinite, 2 NaN."""
    sign, exponent, mantissa, nan = fp32._unpack(words)
    kind = np.where(nan, 2, np.where(exponent == 255, 1, 0)).astype(np.uint8)
    return np.where(sign == 1, -mantissa, mantissa), np.where(mantissa == 0, ZERO, exponent), kind


@njit(cache=True)
def _most(shift):
    """A 64-bit word is shifted by 63 at most."""
    return shift if shift < 63 else 63


@njit(cache=True)
def _sums(mx, ex, my, ey, beat):
    """The accumulators and their exponents behind the last beat."""
    terms = mx.shape[1]
    totals = np.empty((mx.shape[0], my.shape[0]), np.int64)
    peaks = np.empty((mx.shape[0], my.shape[0]), np.int64)
    for m in range(mx.shape[0]):
        for n in range(my.shape[0]):
            total, peak = np.int64(0), np.int64(0)
            for start in range(0, terms, beat):
                end = min(start + beat, terms)
                new = peak
                for k in range(start, end):
                    exponent = ex[m, k] + ey[n, k]
                    if exponent > new:
                        new = exponent
                total >>= _most(new - peak)
                for k in range(start, end):
                    product = mx[m, k] * my[n, k]
                    shift = _most(new - ex[m, k] - ey[n, k])
                    if product < 0:
                        total -= ((-product) >> fp32.DROPPED_BITS) >> shift
                    else:
                        total += (product >> fp32.DROPPED_BITS) >> shift
                peak = new
            totals[m, n] = total
            peaks[m, n] = peak
    return totals, peaks


@njit(cache=True)
def _group_sums(mx, ex, my, ey, beat):
    """The same of groups, `beat` of them at a time: mantissas (M, groups, 4), exponents (M, groups)."""
    totals = np.empty((mx.shape[0], my.shape[0]), np.int64)
    peaks = np.empty((mx.shape[0], my.shape[0]), np.int64)
    for m in range(mx.shape[0]):
        for n in range(my.shape[0]):
            total, peak = np.int64(0), np.int64(0)
            for start in range(0, mx.shape[1], beat):
                end = min(start + beat, mx.shape[1])
                new = peak
                for k in range(start, end):
                    if ex[m, k] and ey[n, k] and ex[m, k] + ey[n, k] > new:
                        new = ex[m, k] + ey[n, k]
                total >>= _most(new - peak)
                for k in range(start, end):
                    shift = new - ex[m, k] - ey[n, k]
                    if ex[m, k] and ey[n, k] and shift < fp32.GROUP_REACH:
                        exact = np.int64(0)
                        for w in range(fp32.GROUP):
                            exact += mx[m, k, w] * my[n, k, w]
                        total += (exact >> fp32.GROUP_DROPPED_BITS) >> shift
                peak = new
            totals[m, n] = total
            peaks[m, n] = peak
    return totals, peaks


@njit(cache=True)
def _specials(mx, kind_x, my, kind_y, word):
    """The words with infinities and NaNs where an operand is one."""
    word = word.copy()
    for m in range(mx.shape[0]):
        for n in range(my.shape[0]):
            nan = positive = negative = False
            for k in range(mx.shape[1]):
                if kind_x[m, k] | kind_y[n, k]:
                    if kind_x[m, k] == 2 or kind_y[n, k] == 2 or mx[m, k] == 0 or my[n, k] == 0:
                        nan = True
                    elif (mx[m, k] < 0) != (my[n, k] < 0):
                        negative = True
                    else:
                        positive = True
            if nan or positive and negative:
                word[m, n] = fp32.NAN
            elif positive:
                word[m, n] = fp32.INFINITY
            elif negative:
                word[m, n] = fp32.INFINITY | fp32.SIGN
    return word
