"""Sums of rows as golden.tt.rows defines them, as loops that a compiler makes fast: groups that share an exponent.

tests/golden/tt/test_sums.py holds the two equal. What is not finite is left to the definition.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from golden.fp import fp32, group_dot
from golden.fp.rounding import rounded
from golden.tt.layout import Layout

GROUP, GUARD = np.int64(fp32.GROUP), np.int64(fp32.GUARD_BITS)
CUT, REACH, UNUSED = np.int64(group_dot.CUT_BITS), np.int64(group_dot.REACH), np.int64(group_dot.UNUSED_BITS)
UNIT = np.int64(group_dot.UNIT)
PLACES = np.int64(23 + fp32.GUARD_BITS)
INFINITE = 255


class _Groups(NamedTuple):
    """mants: (n, groups, 4, items), exps: (n, groups, items); finite: all are numbers."""

    mants: NDArray[np.int64]
    exps: NDArray[np.int64]
    finite: bool


def pooled(cores: Sequence[NDArray], indices: NDArray[np.int64], offsets: NDArray[np.int64],
           layout: Layout) -> NDArray[np.float32] | None:
    """golden.tt.rows.pooled for a unit whose operands share exponents; None: something is not finite.

    indices: inside the table; offsets: chunks of a row at least.
    """
    factors = [_grouped(np.moveaxis(np.asarray(core, np.float32), 0, 3).reshape(core.shape[1], -1, core.shape[0]))
               for core in cores[1:]]
    # Rows with the same leading cores share the products of these.
    heads, of = np.unique(indices // layout.modes[-1], return_inverse=True)
    parts = np.unravel_index(heads, layout.modes[:-1])
    chain = _grouped(np.asarray(cores[0], np.float32)[0, parts[0]])
    if not (chain.finite and all(factor.finite for factor in factors)):
        return None
    for k, factor in enumerate(factors[:-1], start=1):
        chain = _Groups(*_products(chain.mants, chain.exps, factor.mants, factor.exps, parts[k], layout.ranks[k + 1]))
        if not chain.finite:
            return None
    last = factors[-1]
    out = np.empty((len(offsets) - 1, chain.exps.shape[2], last.exps.shape[2]), np.uint32)
    _sums(chain.mants, chain.exps, of.reshape(-1), last.mants, last.exps, indices % layout.modes[-1], offsets, out)
    return out.view(np.float32).reshape(len(offsets) - 1, layout.dim)


def _grouped(values: NDArray[np.float32]) -> _Groups:
    """golden.fp.fp32.group of (n, items, rank)."""
    return _Groups(*_of_words(fp32.bits(np.ascontiguousarray(values))))


@njit(cache=True)
def _of_words(words):
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


@njit(cache=True, inline="always")
def _peaks(top, left, right):
    """top[column, item]: at least the exponents of these operands' products. left, right: (groups, items or columns)"""
    for g in range(left.shape[0]):
        for column in range(right.shape[1]):
            ey = right[g, column]
            if ey:
                for item in range(left.shape[1]):
                    if left[g, item]:
                        top[column, item] = max(top[column, item], left[g, item] + ey)


@njit(cache=True, inline="always")
def _add(total, top, left, left_exps, right, right_exps):
    """Adds the products of these operands to total[column, item]."""
    for g in range(left_exps.shape[0]):
        for column in range(right_exps.shape[1]):
            ey = right_exps[g, column]
            if ey:
                y0, y1, y2, y3 = right[g, 0, column], right[g, 1, column], right[g, 2, column], right[g, 3, column]
                for item in range(left_exps.shape[1]):
                    shift = top[column, item] - ey - left_exps[g, item]
                    if left_exps[g, item] and shift < REACH:
                        product = (left[g, 0, item] * y0 + left[g, 1, item] * y1 + left[g, 2, item] * y2
                                   + left[g, 3, item] * y3) >> CUT
                        total[column, item] += ((product >> shift) + 1) >> 1


@njit(cache=True)
def _products(left, left_exps, right, right_exps, right_of, rank):
    """Products of row n and right_of[n], regrouped: mants (n, groups, 4, items), exps, whether all are finite."""
    count, items, columns = left.shape[0], left.shape[3], right.shape[3]
    groups, parts = -(-rank // GROUP), columns // rank
    mants = np.zeros((count, groups, GROUP, items * parts), np.int64)
    exps = np.zeros((count, groups, items * parts), np.int64)
    total, top = np.empty((columns, items), np.int64), np.empty((columns, items), np.int64)
    finite = True
    for row in range(count):
        total[:], top[:] = 0, 0
        y = right_of[row]
        _peaks(top, left_exps[row], right_exps[y])
        for part in range(parts):
            for first in range(0, rank, GROUP):
                begin, end = part * rank + first, part * rank + min(first + GROUP, rank)
                for item in range(items):
                    most = np.int64(0)
                    for column in range(begin, end):
                        most = max(most, top[column, item])
                    for column in range(begin, end):
                        top[column, item] = most
        _add(total, top, left[row], left_exps[row], right[y], right_exps[y])
        for part in range(parts):
            for g in range(groups):
                begin, end = part * rank + g * GROUP, part * rank + min((g + 1) * GROUP, rank)
                for item in range(items):
                    spread = np.int64(0)
                    for column in range(begin, end):
                        bits = total[column, item] >> UNUSED
                        spread |= bits ^ (bits >> 63)
                    width = np.int64(0)
                    while spread >> width:
                        width += 1
                    exponent = top[begin, item] + UNIT + UNUSED + 127 + width - 1
                    if width and exponent > 0:
                        finite &= exponent < INFINITE
                        exps[row, g, item * parts + part] = exponent
                        left_by = PLACES + 1 - width
                        for column in range(begin, end):
                            bits = total[column, item] >> UNUSED
                            moved = bits << left_by if left_by >= 0 else bits >> -left_by
                            mants[row, g, column - begin, item * parts + part] = moved
    return mants, exps, finite


@njit(cache=True)
def _sums(left, left_exps, left_of, right, right_exps, right_of, offsets, out):
    """out[chunk, item, column]: words of the sums over the rows of each chunk."""
    items, columns = left.shape[3], right.shape[3]
    total, top = np.empty((columns, items), np.int64), np.empty((columns, items), np.int64)
    for chunk in range(len(offsets) - 1):
        total[:], top[:] = 0, 0
        for row in range(offsets[chunk], offsets[chunk + 1]):
            _peaks(top, left_exps[left_of[row]], right_exps[right_of[row]])
        for row in range(offsets[chunk], offsets[chunk + 1]):
            x, y = left_of[row], right_of[row]
            _add(total, top, left[x], left_exps[x], right[y], right_exps[y])
        for column in range(columns):
            for item in range(items):
                sum_ = total[column, item]
                out[chunk, item, column] = rounded(sum_, top[column, item] + UNIT) if sum_ else 0
