"""Sums of rows as golden.tt.rows defines them, as loops that a compiler makes fast: groups that share an exponent.

tests/golden/tt/test_sums.py holds the two equal. What is not finite is left to the definition.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from golden.fp import fp32
from golden.fp.rounding import rounded
from golden.tt.layout import Layout

__all__ = ["pooled"]

GROUP, GUARD = np.int64(fp32.GROUP), np.int64(fp32.GUARD_BITS)
DROPPED, REACH = np.int64(fp32.GROUP_DROPPED_BITS), np.int64(fp32.GROUP_REACH)
UNIT = np.int64(fp32.dropped_bits(True) - 2 * fp32.BIAS - 46)
INFINITE = 255


def pooled(cores: Sequence[NDArray], indices: NDArray[np.int64], offsets: NDArray[np.int64],
           layout: Layout) -> NDArray[np.float32] | None:
    """golden.tt.rows.pooled for a unit whose operands share exponents; None: something is not finite.

    indices: inside the table; offsets: chunks of a row at least.
    """
    widths = [step.width for step in (layout.first, layout.middle, layout.last) if step]
    factors = [np.moveaxis(np.asarray(core, np.float32), 0, 3).reshape(core.shape[1], -1, core.shape[0])
               for core in cores]
    # Rows with the same leading cores share the products of these.
    found, of = np.unique(indices // layout.modes[-1], return_inverse=True)
    parts = np.unravel_index(found, layout.modes[:-1])
    chain = np.asarray(cores[0], np.float32)[0, parts[0]]
    every = np.arange(len(found) + 1)
    for k, width in enumerate(widths[:-1], start=1):
        product = _dots(chain, every[:-1], factors[k], parts[k], every, width)
        if product is None:
            return None
        chain = product.reshape(len(found), -1, layout.ranks[k + 1])
    sums = _dots(chain, of.reshape(-1), factors[-1], indices % layout.modes[-1], offsets, widths[-1])
    return None if sums is None else sums.reshape(len(offsets) - 1, layout.dim)


def _dots(left: NDArray, left_of: NDArray, right: NDArray, right_of: NDArray, offsets: NDArray,
          width: int) -> NDArray[np.float32] | None:
    """(M, items, columns): fused dot products over the rows of each chunk, in beats of `width` terms, row after row.

    left, right: (n, items or columns, rank) float32; left_of, right_of: whose of them a row is.
    """
    groups = [_grouped(fp32.bits(np.ascontiguousarray(side))) for side in (left, right)]
    if not all(finite for _, _, finite in groups):
        return None
    (left_of_4, left_peak, _), (right_of_4, right_peak, _) = groups
    out = np.empty((len(offsets) - 1, left.shape[1], right.shape[1]), np.uint32)
    _sums(left_of_4, left_peak, left_of, right_of_4, right_peak, right_of, offsets, width // GROUP, out)
    return out.view(np.float32)


@njit(cache=True)
def _grouped(words):
    """golden.fp.fp32.group of (n, items, rank): mantissas (n, groups, 4, items), exponents (n, groups, items)."""
    n, items, rank = words.shape
    groups = -(-rank // GROUP)
    mantissas = np.zeros((n, groups, GROUP, items), np.int64)
    peaks = np.zeros((n, groups, items), np.int64)
    finite = True
    for at in range(n):
        for item in range(items):
            for k in range(rank):
                exponent = np.int64(words[at, item, k] >> 23) & 0xFF
                finite &= exponent != INFINITE
                peaks[at, k // GROUP, item] = max(peaks[at, k // GROUP, item], exponent)
            for k in range(rank):
                word = np.int64(words[at, item, k])
                exponent = (word >> 23) & 0xFF
                if exponent:
                    shift = min(peaks[at, k // GROUP, item] - exponent, np.int64(63))
                    mantissa = ((word & 0x7FFFFF | 0x800000) << GUARD) >> shift
                    mantissas[at, k // GROUP, k % GROUP, item] = -mantissa if word >> 31 else mantissa
    return mantissas, peaks, finite


@njit(cache=True)
def _sums(left, left_peak, left_of, right, right_peak, right_of, offsets, beat, out):
    """beat: groups of one."""
    groups, items, columns = left.shape[1], left.shape[3], right.shape[3]
    total, peak = np.empty((columns, items), np.int64), np.empty((columns, items), np.int64)
    for chunk in range(len(offsets) - 1):
        total[:], peak[:] = 0, 0
        for first in range(0, groups, beat):
            for row in range(offsets[chunk], offsets[chunk + 1]):
                x, y = left_of[row], right_of[row]
                for column in range(columns):
                    if beat == 1 or first + 1 == groups:
                        _group(total[column], peak[column], left[x, first], left_peak[x, first], right[y, first],
                               right_peak[y, first], column)
                    else:
                        _beat(total[column], peak[column], left[x], left_peak[x], right[y], right_peak[y], column,
                              first, min(first + beat, groups))
        for column in range(columns):
            for item in range(items):
                sum_ = total[column, item]
                out[chunk, item, column] = rounded(sum_, peak[column, item] + UNIT) if sum_ else 0


@njit(cache=True, inline="always")
def _group(total, peak, left, left_peak, right, right_peak, column):
    """A beat of one group."""
    y0, y1, y2, y3 = right[0, column], right[1, column], right[2, column], right[3, column]
    ey = right_peak[column]
    if ey:
        for item in range(len(total)):
            ex = left_peak[item]
            exponent = ex + ey if ex else 0
            product = (left[0, item] * y0 + left[1, item] * y1 + left[2, item] * y2 + left[3, item] * y3) >> DROPPED
            most = max(peak[item], exponent)
            shift = most - exponent
            moved = product >> shift if shift < REACH else 0
            total[item] = (total[item] >> min(most - peak[item], 63)) + moved
            peak[item] = most


@njit(cache=True)
def _beat(total, peak, left, left_peak, right, right_peak, column, first, end):
    """A beat of several groups, all moved to the largest exponent before they are added."""
    for item in range(len(total)):
        most = peak[item]
        for k in range(first, end):
            if left_peak[k, item] and right_peak[k, column]:
                most = max(most, left_peak[k, item] + right_peak[k, column])
        moved = total[item] >> min(most - peak[item], 63)
        for k in range(first, end):
            if left_peak[k, item] and right_peak[k, column]:
                shift = most - left_peak[k, item] - right_peak[k, column]
                if shift < REACH:
                    moved += (left[k, 0, item] * right[k, 0, column] + left[k, 1, item] * right[k, 1, column]
                              + left[k, 2, item] * right[k, 2, column] + left[k, 3, item] * right[k, 3, column]
                              >> DROPPED) >> shift
        total[item], peak[item] = moved, most
