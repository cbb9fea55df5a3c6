"""Orders and numberings: they are bijections, they undo, and they save what they are there to save."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.data.reorder import by_community, by_frequency, by_similarity, sorted_batches


@given(st.integers(0, 300), st.integers(1, 70), st.integers(0, 99))
def test_sorted_batches_stay_in_their_batch_and_undo(count, batch, seed):
    keys = np.random.default_rng(seed).integers(0, 20, count)
    order = sorted_batches(keys, batch=batch)
    assert np.array_equal(np.sort(order.positions), np.arange(count))
    assert np.array_equal(order.positions // batch, np.arange(count) // batch)
    assert np.array_equal(order.restore(order.apply(keys)), keys)
    assert all((np.diff(order.apply(keys)[start:start + batch]) >= 0).all() for start in range(0, count, batch))
    assert all((np.diff(order.positions[at]) > 0).all() for at in (order.apply(keys) == key for key in range(20)))


def test_frequency_counts():
    indices = np.array([5, 5, 5, 2, 2, 7])
    assert by_frequency(indices, 8).tolist() == [3, 4, 1, 5, 6, 0, 7, 2]
    with pytest.raises(ValueError, match="an index is 7; the table has 7 rows"):
        by_frequency(indices, 7)


def planted(seed, groups=12, size=10):
    """Lookups in which each stretch of the log stays inside one scattered group of rows."""
    rng = np.random.default_rng(seed)
    members = rng.permutation(groups * size).reshape(groups, size)
    walk = np.repeat(rng.integers(0, groups, 400), 12)
    return members[walk, rng.integers(0, size, walk.size)], members


def test_communities_find_planted_groups():
    indices, members = planted(1)
    rows = by_community(indices, members.size, batch=480, hot_rows=0, window=6)
    assert np.array_equal(np.sort(rows), np.arange(members.size))
    spans = [np.ptp(rows[group]) + 1 for group in members]
    # Groups that happened to follow each other often may be joined; most stand alone and without a gap.
    assert sum(span == members.shape[1] for span in spans) >= 10


def test_hot_rows_come_first_and_by_frequency():
    indices, members = planted(3)
    indices = np.concatenate([indices, np.repeat([7, 3], [500, 400])])
    rows = by_community(indices, members.size, batch=480, hot_rows=2)
    assert (rows[7], rows[3]) == (0, 1)
    assert np.array_equal(np.sort(rows), np.arange(members.size))
    with pytest.raises(ValueError, match="hot_rows 121 must be 0 to the table's 120 rows"):
        by_community(indices, members.size, batch=480, hot_rows=members.size + 1)


def test_rows_never_looked_up_come_last():
    rows = by_community(np.array([1, 2, 1, 2]), 6, batch=4, hot_rows=0)
    assert set(rows[[1, 2]]) == {0, 1}


def test_communities_are_the_same_whatever_was_drawn_before():
    indices, members = planted(6)
    np.random.seed(1)       # noqa: NPY002 (the generator that others might draw from)
    first = by_community(indices, members.size, batch=480, hot_rows=5)
    np.random.seed(2)       # noqa: NPY002
    before = np.random.get_state()[1].tolist()      # noqa: NPY002
    assert np.array_equal(by_community(indices, members.size, batch=480, hot_rows=5), first)
    assert np.random.get_state()[1].tolist() == before, "others' random numbers are not touched"    # noqa: NPY002


@pytest.mark.parametrize("indices, hot", [([], 0), ([3], 0), ([3, 3, 3], 0), ([3, 1, 3], 4)])
def test_without_a_pair_of_cold_rows_it_is_frequency(indices, hot):
    indices = np.array(indices, np.int64)
    assert np.array_equal(by_community(indices, 4, batch=8, hot_rows=hot), by_frequency(indices, 4))


def test_rows_of_other_batches_are_not_joined():
    rows = by_community(np.array([0, 1, 2, 3] * 5), 4, batch=2, hot_rows=0, window=9)
    assert sorted(rows[:2]) in ([0, 1], [2, 3]) and sorted(rows[2:]) in ([0, 1], [2, 3])


def test_similarity_puts_clusters_together():
    rng = np.random.default_rng(4)
    label = rng.permutation(np.repeat(np.arange(8), 16))
    vectors = 10 * rng.standard_normal((8, 5))[label] + 0.01 * rng.standard_normal((128, 5))
    rows = by_similarity(vectors)
    assert np.array_equal(np.sort(rows), np.arange(128))
    changes = np.count_nonzero(np.diff(label[np.argsort(rows)]))
    assert changes <= 14  # 7 at best, 112 or so at random


def test_wrong():
    with pytest.raises(ValueError, match="batch 0 must be 1 or more"):
        sorted_batches(np.arange(4), batch=0)
    with pytest.raises(ValueError, match="batch 4 and window 0 must be 1 or more"):
        by_community(np.arange(4), 4, batch=4, hot_rows=0, window=0)
    with pytest.raises(ValueError, match="an index is 4; the table has 4 rows"):
        by_community(np.arange(5), 4, batch=4, hot_rows=0)
