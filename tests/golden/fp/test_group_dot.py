"""Dot products of groups, exact until they are rounded or regrouped: their bounds against float64, by any order."""

import numpy as np
import pytest

from golden.fp import fp32, group_dot
from golden.fp.group_dot import Groups, of_words, regroup, totals, words
from tests.golden.fp.test_fp32 import (
    DISTRIBUTIONS,
    cancelling_in_groups,
    exact_sums,
    largest_in_groups,
    lognormal,
    normal,
    uniform,
)


def fused(x, y):
    return words(totals(of_words(x), of_words(y)))


@pytest.mark.turns(14)
@pytest.mark.parametrize("distribution", [*DISTRIBUTIONS, lognormal, cancelling_in_groups])
@pytest.mark.parametrize("terms", [4, 16, 64, 128])
@pytest.mark.testpoint("accuracy", unit="fp/group_dot")
def test_stays_within_its_bound_of_float64(distribution, terms):
    """|error| <= 2^-22 sum over the groups of max |x| max |y|, 2^-28 of the largest one's for each group, and 2^-24
    |exact|: four products whose operands are cut, the sum moved and rounded, one rounding of all."""
    x, y = distribution(np.random.default_rng(6), (4000, terms))
    exact, _ = exact_sums(x, y)
    largest = largest_in_groups(x, y)
    lost = 2.0**-22 * largest.sum(-1) + terms // 4 * 2.0**-28 * largest.max(-1)
    bound = lost + 2.0**-24 * (np.abs(exact) + lost) + 2.0**-126
    inside = np.abs(exact) + bound < np.finfo(np.float32).max
    error = np.abs(fused(x, y).astype(np.float64) - exact)
    assert inside.sum() > 1000 and (error <= bound)[inside].all()


@pytest.mark.parametrize("distribution", [uniform, normal])
@pytest.mark.testpoint("accuracy", unit="fp/group_dot")
def test_is_more_accurate_than_numpy(distribution):
    """Root mean square of the errors of 64 terms, at most half of that of NumPy's float32 dot product."""
    x, y = distribution(np.random.default_rng(11), (2000, 64))
    exact, _ = exact_sums(x, y)
    numpy = np.array([np.dot(a, b) for a, b in zip(x, y)])
    ours, theirs = (np.sqrt(((v.astype(np.float64) - exact)**2).mean()) for v in (fused(x, y), numpy))
    assert ours <= 0.5 * theirs


@pytest.mark.testpoint("accuracy", unit="fp/group_dot")
def test_one_large_term_leaves_no_bias():
    """Terms behind one that is 2^12 times larger are rounded, not cut: their mean error is a twentieth of a unit."""
    x, y = normal(np.random.default_rng(3), (20000, 64))
    x[:, 4:], y[:, 4:] = np.abs(x[:, 4:]), np.abs(y[:, 4:])
    x[:, :4], y[:, :4] = [4096, 0, 0, 0], [1, 0, 0, 0]
    left, right = of_words(x), of_words(y)
    # Of operands as the groups hold them.
    held = np.ldexp(left.mants.astype(float), (left.exps - 152)[..., None]) * np.ldexp(
        right.mants.astype(float), (right.exps - 152)[..., None])
    sums = totals(left, right)
    unit = np.ldexp(1.0, sums.top + group_dot.UNIT)
    error = (sums.bits - held.sum((-1, -2)) / unit) / 15
    assert abs(error.mean()) < 0.05 and np.abs(error).max() <= 0.5 + 1e-6


@pytest.mark.testpoint("accuracy", unit="fp/group_dot")
def test_the_order_does_not_matter():
    """Groups in any order, also apart over several sums that are added afterwards."""
    random = np.random.default_rng(4)
    x, y = lognormal(random, (1000, 64))
    order = random.permutation(16)
    turned = [v.reshape(-1, 16, 4)[:, order].reshape(v.shape) for v in (x, y)]
    np.testing.assert_array_equal(fp32.bits(fused(x, y)), fp32.bits(fused(*turned)))


@pytest.mark.parametrize("spread", [0, 3, 10])
@pytest.mark.testpoint("accuracy", unit="fp/regroup")
def test_regrouped_sums_stay_within_their_bound(spread):
    """|error| < 2^-25 of the largest sum's leading bit, and 5.5 units of a total."""
    random = np.random.default_rng(spread)
    x, y = normal(random, (2000, 4, 8))
    y *= 2.0 ** random.integers(-spread, spread + 1, (2000, 4, 1))
    sums = totals(of_words(x), of_words(y), share=4)
    # What a sum that keeps its own exponent would be.
    left, right = of_words(x), of_words(y)
    held = (np.ldexp(left.mants.astype(float), (left.exps - 152)[..., None])
            * np.ldexp(right.mants.astype(float), (right.exps - 152)[..., None])).sum((-1, -2))
    group = regroup(sums)
    found = np.ldexp(group.mants.astype(float), (group.exps - 152)[..., None])[:, 0]
    leading = np.exp2(np.floor(np.log2(np.abs(held).max(-1, keepdims=True))))
    unit = np.ldexp(1.0, sums.top + group_dot.UNIT)
    assert (np.abs(found - held) <= 2.0**-25 * leading + 5.5 * unit).all()
    assert (group.mants.max(-1) < 1 << 26).all() and (np.abs(group.mants).max(-1) >= 1 << 25).all()


@pytest.mark.testpoint("corner_values", unit="fp/regroup")
def test_regrouped_corners():
    """Sums past the largest number, below the smallest, nothing at all, infinities and NaNs."""
    def of(values, others=1.0):
        x = np.zeros((len(values), 4), np.float32)
        x[:, 0] = values
        y = np.zeros((len(values), 4), np.float32)
        y[:, 0] = others
        return regroup(totals(of_words(x), of_words(y), share=len(values)))

    group = of([3e38, -3e38, 1, 0], 4)
    assert group.kinds[0].tolist() == [np.inf, -np.inf, np.inf, np.inf]
    assert not group.mants.any() and not group.exps.any()
    group = of([1e-30, -1e-30, 0, 0], 1e-30)
    assert group.kinds[0].tolist() == [1, 1, 1, 1] and not group.mants.any() and not group.exps.any()
    assert not of([0, 0, 0, 0]).mants.any()
    group = of([np.inf, -np.inf, np.nan, -1])
    assert group.kinds[0, :2].tolist() == [np.inf, -np.inf] and np.isnan(group.kinds[0, 2]) and group.kinds[0, 3] == -1
    # In two's complement a negative power of two has one place less.
    assert group.exps[0] == 126 and group.mants[0, 3] == -(1 << 26)
    # What fills a group up is nothing.
    assert of([3e38], 4).kinds[0].tolist() == [np.inf, 0, 0, 0]


@pytest.mark.testpoint("corner_values", unit="fp/group_dot")
def test_infinities_and_nans():
    """An infinity beside zero is no number, beside padding nothing; opposite infinities are none."""
    inf = np.float32(np.inf)
    for x, y, want in (([inf, 1], [1, 1], inf), ([inf, 1], [-1, 1], -inf), ([inf, inf], [1, -1], np.nan),
                       ([inf, 1], [0, 1], np.nan), ([np.nan, 1], [1, 1], np.nan), ([0, -0.0], [-1, 1], 0)):
        np.testing.assert_array_equal(fused(np.array([x], np.float32), np.array([y], np.float32)), np.float32([want]))
    left, right = of_words(np.array([inf, 2], np.float32)), of_words(np.array([0, 3], np.float32))
    padded = Groups(right.mants, right.exps, right.kinds)
    left.kinds[0, 0] = padded.kinds[0, 0] = 0
    assert words(totals(left, padded)) == 6
