"""All dot products of two sets of vectors, as golden.fp.fp32.dot has them, fast enough for whole networks."""

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from golden.fp import fp32

ZERO = -1024    # exponent of a zero operand: below any that counts, whatever the other one is


def products(x: ArrayLike, y: ArrayLike, beat: int, *, grouped: bool = False) -> NDArray[np.float32]:
    """(M, N): the fused dot product of every vector of x (M, K) with every one of y (N, K), `beat` terms at a time.

    grouped: in groups of four that share an exponent
    Raises      ValueError: vectors of different lengths, a beat below 1, or not of whole groups
    """
    x, y = (np.ascontiguousarray(fp32.bits(each)) for each in (x, y))    # one kind of array is compiled for
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"x has the shape {x.shape} and y {y.shape}; they must be (M, K) and (N, K)")
    if beat < 1:
        raise ValueError(f"beat is {beat}, must be at least 1")
    if grouped and beat % fp32.GROUP:
        raise ValueError(f"beat is {beat}, must be a multiple of {fp32.GROUP} for groups that share an exponent")
    if len(x) > len(y):     # the longer side goes innermost
        return np.ascontiguousarray(products(y, x, beat, grouped=grouped).T)
    if grouped:
        (mx, ex), (my, ey) = _groups(x), _groups(y)
        total, peak = _group_sums(mx, ex, my.transpose(1, 2, 0).copy(), ey.T.copy(), beat // fp32.GROUP)
    else:
        (mx, ex), (my, ey) = _operands(x), _operands(y)
        total, peak = _sums(mx, ex, my.T.copy(), ey.T.copy(), beat)
    negative_total = (total < 0).astype(np.int64)
    word = fp32._round(negative_total, np.abs(total), peak - 2 * fp32.BIAS - 46 + fp32.dropped_bits(grouped))
    word = np.where(total == 0, np.uint32(0), word)
    if _kind(x).any() or _kind(y).any():
        word = _specials(_operands(x)[0], _kind(x), _operands(y)[0], _kind(y), word)
    return fp32.value(word)


def _operands(words: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Signed mantissas and exponents."""
    sign, exponent, mantissa, _ = fp32._unpack(words)
    return np.where(sign == 1, -mantissa, mantissa), np.where(mantissa == 0, ZERO, exponent)


def _kind(words: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """What is no number: 1 infinite, 2 NaN."""
    magnitude = words & np.uint32(fp32.SIGN - 1)
    return (magnitude >= fp32.INFINITY).astype(np.uint8) + (magnitude > fp32.INFINITY)


@njit(cache=True)
def _most(shift):
    """A 64-bit word is shifted by 63 at most."""
    return shift if shift < 63 else 63


@njit(cache=True)
def _groups(words):
    """As golden.fp.fp32.group: signed mantissas (M, groups, 4), exponents (M, groups), ZERO of a group of zeros."""
    count, terms = words.shape
    groups = -(-terms // fp32.GROUP)
    mantissas = np.zeros((count, groups, fp32.GROUP), np.int32)
    exponents = np.full((count, groups), ZERO, np.int64)
    for m in range(count):
        for k in range(terms):
            exponent = np.int64(words[m, k] >> 23 & 255)
            if 0 < exponent < 255 and exponent > exponents[m, k // fp32.GROUP]:
                exponents[m, k // fp32.GROUP] = exponent
        for k in range(terms):
            exponent = np.int64(words[m, k] >> 23 & 255)
            if 0 < exponent < 255:
                mantissa = np.int64(words[m, k] & 0x7FFFFF | 0x800000) << fp32.GUARD_BITS
                mantissa >>= _most(exponents[m, k // fp32.GROUP] - exponent)
                mantissas[m, k // fp32.GROUP, k % fp32.GROUP] = -mantissa if words[m, k] >> 31 else mantissa
    return mantissas, exponents


@njit(cache=True)
def _sums(mx, ex, my, ey, beat):
    """The accumulators (M, N) and their exponents behind the last beat: mantissas and exponents (M, K) and (K, N). The
    innermost loops go over N without a branch: a processor takes several in an instruction."""
    count, terms, wide = mx.shape[0], mx.shape[1], ey.shape[1]
    totals, peaks = np.zeros((count, wide), np.int64), np.zeros((count, wide), np.int64)
    new = np.empty(wide, np.int64)
    for m in range(count):
        total, peak = totals[m], peaks[m]
        for start in range(0, terms, beat):
            end = min(start + beat, terms)
            _move(total, peak, new, ex[m, start:end], ey[start:end])
            for k in range(start, end):
                exponents, x, y = ey[k], mx[m, k], my[k]
                for n in range(wide):
                    shift = _most(new[n] - ex[m, k] - exponents[n])
                    product = x * y[n]
                    moved = (abs(product) >> fp32.DROPPED_BITS) >> shift
                    total[n] += -moved if product < 0 else moved
    return totals, peaks


@njit(cache=True)
def _move(total, peak, new, ex, ey):
    """The accumulators (N,) with the largest exponent so far, that of this beat's terms (K,) and (K, N) included."""
    new[:] = peak
    for k in range(len(ex)):
        exponents = ey[k]
        for n in range(len(new)):
            new[n] = max(new[n], ex[k] + exponents[n])
    for n in range(len(new)):
        total[n] >>= _most(new[n] - peak[n])
        peak[n] = new[n]


@njit(cache=True)
def _group_sums(mx, ex, my, ey, beat):
    """The same of groups, `beat` of them at a time: mantissas (M, groups, 4) and (groups, 4, N), exponents (M, groups)
    and (groups, N)."""
    count, groups, wide = mx.shape[0], mx.shape[1], ey.shape[1]
    totals, peaks = np.zeros((count, wide), np.int64), np.zeros((count, wide), np.int64)
    new = np.empty(wide, np.int64)
    for m in range(count):
        total, peak = totals[m], peaks[m]
        for start in range(0, groups, beat):
            end = min(start + beat, groups)
            _move(total, peak, new, ex[m, start:end], ey[start:end])
            for k in range(start, end):
                exponent, exponents, y = ex[m, k], ey[k], my[k]
                x_0, x_1, x_2, x_3 = mx[m, k, 0], mx[m, k, 1], mx[m, k, 2], mx[m, k, 3]
                for n in range(wide):
                    shift = new[n] - exponent - exponents[n]
                    exact = x_0 * y[0, n] + x_1 * y[1, n] + x_2 * y[2, n] + x_3 * y[3, n]
                    total[n] += (exact >> fp32.GROUP_DROPPED_BITS) >> shift if shift < fp32.GROUP_REACH else 0
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
