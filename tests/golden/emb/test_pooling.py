"""Pooled bags: against plain NumPy where that is exact, against float64, and the rules of the format."""
import numpy as np
import pytest

from golden.emb import pooling
from golden.fp import fp32


def _sequential(rows, weights):
    total = np.zeros(rows.shape[1], np.float32)
    for row, weight in zip(rows, weights):
        total += row * weight
    return total


@pytest.mark.parametrize("count", [1, 2, 10, 120, 5_000, 40_000])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.testpoint("accuracy", unit="emb/pooling")
def test_sums_are_at_least_as_accurate_as_sequential_float32(count, weighted):
    """Sums within a stated bound of float64 and no worse than sequential float32, by the largest error over many words
    in units of the sum of magnitudes."""
    random = np.random.default_rng([count, weighted])
    rows = random.standard_normal((count, 64)).astype(np.float32)
    weights = random.standard_normal(count).astype(np.float32) if weighted else np.ones(count, np.float32)
    exact = rows.astype(np.float64).T @ weights.astype(np.float64)
    scale = np.abs(rows.astype(np.float64)).T @ np.abs(weights.astype(np.float64))
    ours = np.abs(pooling.pool(rows, weights if weighted else None) - exact) / scale
    theirs = np.abs(_sequential(rows, weights) - exact) / scale
    assert ours.max() <= max(theirs.max(), 2.0**-24)
    # Rounded once; what the alignments cut off is a bit of 2^-30 of the largest term a row and twice at most.
    assert (ours <= 2.0**-24 + count * 2.0**-28 * np.abs(rows * weights[:, None]).max(0) / scale).all()


@pytest.mark.testpoint("accuracy", unit="emb/pooling")
def test_integers_are_exact():
    """Sums, maxima and weighted sums of small integers are exact."""
    random = np.random.default_rng(1)
    rows = random.integers(-40, 40, (3_000, 8)).astype(np.float32)
    assert (pooling.pool(rows) == rows.sum(0)).all()
    assert (pooling.pool(rows, mode="max") == rows.max(0)).all()
    weights = random.integers(-5, 5, 3_000).astype(np.float32)
    assert (pooling.pool(rows, weights) == (rows * weights[:, None]).sum(0)).all()


def test_a_bag_of_all_tiers():
    rows = np.arange(1, 25, dtype=np.float32).reshape(6, 4)
    parts = {"chunks": rows[:2], "dram": rows[2:5], "ssd": rows[5:]}
    assert (pooling.bag(**parts) == rows.sum(0)).all()
    assert (pooling.bag(**parts, mode="max") == rows.max(0)).all()
    # Two chunks that stand for four rows, so eight in all: a power of two divides exactly.
    assert (pooling.bag(**parts, mode="mean", count=8) == rows.sum(0) / 8).all()
    weights = np.array([2, -1, 4, 0.5, 1, 3], np.float32)
    got = pooling.bag(**parts, chunk_weights=weights[:2], dram_weights=weights[2:5], ssd_weights=weights[5:])
    assert (got == weights @ rows).all()
    with pytest.raises(ValueError, match="a mean takes no weights"):
        pooling.bag(**parts, mode="mean", ssd_weights=weights[5:])


def test_a_mean_is_the_sum_of_partials_times_the_rounded_reciprocal():
    random = np.random.default_rng(2)
    rows = random.standard_normal((5, 16)).astype(np.float32)
    third = fp32.div(np.float32(1), np.float32(3))
    got = pooling.bag(rows[:2], rows[2:3], rows[:0], mode="mean")
    assert (got == fp32.dot(rows[:3].T, np.full((16, 3), third), 1)).all()
    # Each tier's partial vector is rounded before it is divided.
    partial = fp32.dot(rows[2:].T, np.ones((16, 3), np.float32), 1)
    got = pooling.bag(rows[:0], rows[2:], rows[:0], mode="mean")
    assert (got == fp32.dot(partial[:, None], np.full((16, 1), third), 1)).all()


def test_empty_and_special():
    nothing = np.zeros((0, 3), np.float32)
    for mode in pooling.MODES:
        assert (fp32.bits(pooling.bag(nothing, nothing, nothing, mode=mode)) == 0).all()
    special = np.array([[-0.0, np.inf, np.nan], [-0.0, -np.inf, 1]], np.float32)
    assert fp32.bits(pooling.pool(special)).tolist() == [0, fp32.NAN, fp32.NAN]
    assert fp32.bits(pooling.pool(special, mode="max")).tolist() == [fp32.SIGN, fp32.INFINITY, fp32.NAN]
    with pytest.raises(ValueError, match="mode is 'median', must be one of sum, mean, max"):
        pooling.pool(special, mode="median")
