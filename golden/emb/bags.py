"""Bags of any length, pooled word by word as the pooling unit does it.

The same arithmetic as golden.fp.fp32, one term per beat, as loops that a compiler makes fast: logs have millions of
rows. tests/golden/emb/test_bags.py holds the two equal.
"""

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from golden.fp import fp32
from golden.fp.rounding import rounded

ONE = 0x3F800000
_NAN, _INFINITY, _SIGN = np.int64(fp32.NAN), np.int64(fp32.INFINITY), np.int64(fp32.SIGN)
_IS_NAN, _IS_POSITIVE, _IS_NEGATIVE = 1, 2, 4       # terms of a column that are not finite


def pool(values: ArrayLike, offsets: ArrayLike, weights: ArrayLike | None = None, *,
         maximum: bool = False) -> NDArray[np.float32]:
    """(B, D) float32: bag b pools rows offsets[b] .. offsets[b + 1] - 1 of `values`, in order.

    values: (N, D) float32 or uint32 patterns. weights: (N,), one a row (default 1.0), not used with `maximum`.
    Sum: golden.fp.fp32.dot over the bag's rows with one term per beat. Maximum: golden.fp.fp32.maximum from the first
    row on; a bag of one row gives the row with its subnormals flushed. An empty bag is +0 everywhere.
    Raises      ValueError: offsets that fall or pass the end, or a number of weights other than the rows'
    """
    words = np.ascontiguousarray(fp32.bits(values))
    places = np.ascontiguousarray(offsets, dtype=np.int64)
    if words.ndim != 2 or places.ndim != 1 or len(places) < 1:
        raise ValueError(f"values must have 2 axes and offsets 1 with an entry at least, not {words.ndim} and "
                         f"{places.shape}")
    if places[0] < 0 or places[-1] > len(words) or (np.diff(places) < 0).any():
        raise ValueError(f"offsets must rise from 0 to at most the {len(words)} rows")
    factors = np.full(len(words), ONE, np.uint32) if weights is None else np.ascontiguousarray(fp32.bits(weights))
    if factors.shape != (len(words),):
        raise ValueError(f"{len(words)} rows need as many weights, not {factors.shape}")
    out = np.zeros((len(places) - 1, words.shape[1]), np.uint32)
    if maximum:
        _maximum(words, places, out)
    else:
        _sum(words, places, factors, out)
    return out.view(np.float32)


@njit(cache=True)
def _sum(words, offsets, weights, out):
    columns = words.shape[1]
    total, peak = np.empty(columns, np.int64), np.empty(columns, np.int64)
    special = np.empty(columns, np.int64)
    for bag in range(len(offsets) - 1):
        total[:], peak[:], special[:] = 0, 0, 0
        for row in range(offsets[bag], offsets[bag + 1]):
            _add(words[row], np.int64(weights[row]), total, peak, special)
        for d in range(columns):
            if special[d] & _IS_NAN or special[d] == _IS_POSITIVE | _IS_NEGATIVE:
                out[bag, d] = _NAN
            elif special[d]:
                out[bag, d] = _INFINITY if special[d] == _IS_POSITIVE else _INFINITY | _SIGN
            elif total[d] != 0:
                out[bag, d] = rounded(total[d], peak[d] - 2 * 127 - 46 + 17)


@njit(cache=True)
def _add(words, y, total, peak, special):
    """A row to the sums of its bag, without a branch, so that the compiler takes several columns at once."""
    ey, fy = (y >> 23) & 0xFF, y & 0x7FFFFF
    for d in range(len(words)):
        x = np.int64(words[d])
        ex, fx = (x >> 23) & 0xFF, x & 0x7FFFFF
        minus = (x ^ y) >> 31
        wild = (ex == 255) | (ey == 255)
        nan = ((ex == 255) & ((fx != 0) | (ey == 0))) | ((ey == 255) & ((fy != 0) | (ex == 0)))
        special[d] |= (_IS_NAN if nan else _IS_NEGATIVE if minus else _IS_POSITIVE) if wild else 0
        counts = (ex != 0) & (ey != 0) & (not wild)
        product = ((fx | 0x800000) * (fy | 0x800000)) >> 17 if counts else 0
        exponent = ex + ey if counts else 0
        most = max(peak[d], exponent)
        product >>= min(most - exponent, 63)
        total[d] = (total[d] >> min(most - peak[d], 63)) + (-product if minus else product)
        peak[d] = most


@njit(cache=True)
def _maximum(words, offsets, out):
    columns = words.shape[1]
    for bag in range(len(offsets) - 1):
        for d in range(columns):
            best = np.int64(0)
            nan = False
            for row in range(offsets[bag], offsets[bag + 1]):
                x = np.int64(words[row, d])
                if (x & _INFINITY) == 0:
                    x &= _SIGN
                if (x & 0x7FFFFFFF) > _INFINITY:
                    nan = True
                # In the order of values, -0 below +0.
                if row == offsets[bag] or _place(x) > _place(best):
                    best = x
            out[bag, d] = _NAN if nan else best


@njit(cache=True)
def _place(word):
    return -1 - (word & 0x7FFFFFFF) if word >> 31 else word
