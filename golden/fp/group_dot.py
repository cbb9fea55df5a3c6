"""Dot products of groups that share an exponent, bit for bit as hw.fp.group_dot adds them up: exact until the end.

What results become operands of the next product never are words: four sums that share an exponent become a group.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from golden.fp import fp32

#: Bits that are cut off a group's exact sum; the lowest of what is left only rounds.
CUT_BITS = 21
#: Places from which on a group's sum counts as nothing beside a larger one.
REACH = 32
#: Of a total, lowest bits that do not reach a group.
UNUSED_BITS = 2
#: A total's unit is 2^(top + UNIT).
UNIT = CUT_BITS + 1 - 2 * fp32.GUARD_BITS - 46 - 2 * fp32.BIAS
# Places of a group's highest mantissa bit but the sign.
_PLACES = 23 + fp32.GUARD_BITS


class Groups(NamedTuple):
    """Operands in groups of four. mants: int64 (.., groups, 4) in units of 2^-25 of 2^(exps - 127), exps: int64
    (.., groups), kinds: float32 (.., groups, 4), what each is beside an infinity or NaN: itself one, 0, 1 or -1."""

    mants: NDArray[np.int64]
    exps: NDArray[np.int64]
    kinds: NDArray[np.float32]


class Totals(NamedTuple):
    """Sums. bits: int64 in units of 2^(top + UNIT); top: the sum of two biased exponents; kinds: infinite, NaN, or
    finite: then the sum is the number."""

    bits: NDArray[np.int64]
    top: NDArray[np.int64]
    kinds: NDArray[np.float32]


def of_words(x: ArrayLike) -> Groups:
    """Float32 values (.., terms) as groups along the last axis, filled up with zeros: see golden.fp.fp32.group."""
    own = fp32.flush(x)
    mants, exps = fp32.group(own)
    kinds = np.where(np.isfinite(own), np.sign(own), own).astype(np.float32)
    padding = [(0, 0)] * (own.ndim - 1) + [(0, -own.shape[-1] % fp32.GROUP)]
    return Groups(mants, exps, np.pad(kinds, padding).reshape(mants.shape))


def totals(x: Groups, y: Groups, share: int = 0) -> Totals:
    """Sums over the last axes, groups (.., groups, 4), of broadcast x and y.

    Every group's exact sum of four products is shifted right to the largest exponent of its sum, rounded (half up) to
    2^-30 of the largest product that this exponent allows, and added exactly; so the order does not matter.
    share: sums along the last axis of the result that take the largest exponent of four by four, each `share` of them
    for themselves; 0: none.
    """
    product = (x.mants * y.mants).sum(-1) >> CUT_BITS
    exponent = np.where((x.exps == 0) | (y.exps == 0), 0, x.exps + y.exps)
    top = exponent.max(-1, initial=0)
    if share:
        parts = top.reshape(*top.shape[:-1], -1, share)
        starts = np.arange(0, share, fp32.GROUP)
        largest = np.maximum.reduceat(parts, starts, axis=-1)
        top = np.repeat(largest, np.diff(np.append(starts, share)), axis=-1).reshape(top.shape)
    shift = np.minimum(top[..., None] - exponent, 63)
    moved = np.where(shift < REACH, ((product >> shift) + 1) >> 1, 0)
    with np.errstate(invalid="ignore"):
        kinds = (x.kinds * y.kinds).sum((-1, -2))
    return Totals(moved.sum(-1), top, kinds)


def words(sums: Totals) -> NDArray[np.float32]:
    """Sums rounded once; an exact zero is +0."""
    word = fp32._round((sums.bits < 0).astype(np.int64), np.abs(sums.bits), sums.top + UNIT)
    word = np.where(sums.bits == 0, np.uint32(0), word)
    return fp32.flush(np.where(np.isfinite(sums.kinds), fp32.value(word), sums.kinds))


def regroup(sums: Totals) -> Groups:
    """Sums (.., n) whose fours share an exponent as groups (.., ceil(n / 4), 4), filled up with zeros.

    Mantissas are cut (floor) 25 places below the highest bit of the largest sum. Is that not below 2^128 all are
    infinite, below 2^-126 zero. What is zero counts as positive beside an infinity.
    """
    padding = [(0, 0)] * (sums.bits.ndim - 1) + [(0, -sums.bits.shape[-1] % fp32.GROUP)]

    def fours(values: NDArray) -> NDArray:
        values = np.pad(values, padding)
        return values.reshape(*values.shape[:-1], -1, fp32.GROUP)

    bits, kinds = fours(sums.bits) >> UNUSED_BITS, fours(sums.kinds)
    # All four have it; what fills up has none.
    top = fours(sums.top).max(-1)
    width = fp32._bit_length(bits ^ (bits >> 63)).max(-1)
    exps = top + UNIT + UNUSED_BITS + fp32.BIAS + width - 1
    over, under = (width > 0) & (exps >= 255), (width == 0) | (exps <= 0)
    left = (_PLACES + 1 - width)[..., None]
    mants = np.where(left < 0, bits >> np.maximum(-left, 0), bits << np.maximum(left, 0))
    mants = np.where((over | under)[..., None], 0, mants)
    sign = np.where(bits < 0, np.float32(-1), np.float32(1))
    own = np.where(over[..., None], sign * np.float32(np.inf), np.where(under[..., None], np.float32(1), sign))
    own = np.where(fours(np.ones_like(sums.bits)) > 0, own, 0)
    return Groups(mants, np.where(over | under, 0, exps), np.where(np.isfinite(kinds), own, kinds))
