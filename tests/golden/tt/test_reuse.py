"""The count of first products against a plain simulation, and against bounds that need none."""

from collections import deque

import numpy as np
import pytest

from golden.tt.reuse import first_products, leading_keys


def plainly(keys, entries, lanes, rows):
    held = [deque(maxlen=entries) for _ in range(lanes)]
    computed = 0
    for n, key in enumerate(keys):
        lane = held[n // rows % lanes]
        if key not in lane:
            computed += 1
            lane.append(key)
    return computed


@pytest.mark.parametrize("entries", [0, 1, 2, 5, 16])
@pytest.mark.parametrize(("lanes", "rows"), [(1, 1), (2, 1), (3, 1), (2, 8)])
def test_equals_a_queue_for_each_lane(entries, lanes, rows):
    rng = np.random.default_rng(entries * 8 + lanes)
    keys = rng.zipf(1.3, 3000) % 50
    assert first_products(keys, entries=entries, lanes=lanes, rows=rows) == plainly(keys.tolist(), entries, lanes, rows)


def test_bounds():
    keys = np.random.default_rng(0).integers(0, 40, 2000)
    assert first_products(keys, entries=0) == keys.size
    in_lanes = sum(np.unique(keys[lane::2]).size for lane in range(2))
    assert first_products(keys, entries=40) == in_lanes
    assert first_products(np.sort(keys), entries=1) == in_lanes == 80
    assert first_products(keys[:0], entries=4) == 0


def test_oldest_leaves_even_when_just_hit():
    # 1 is hit right before 3 comes in; it was the oldest all the same.
    assert first_products(np.array([1, 2, 1, 3, 1]), entries=2, lanes=1) == 4


def test_keys_join_what_shares_the_first_product():
    modes = (3, 4, 5)
    rows = np.arange(60)
    assert np.array_equal(leading_keys(rows, modes), rows // 5)
    assert np.array_equal(leading_keys(rows[:12], (3, 4)), rows[:12] // 4)
    assert np.array_equal(leading_keys(rows, (3, 4, 5, 1)), rows // 5)
    other = leading_keys(rows, modes, np.full(60, 1))
    assert not np.intersect1d(other, leading_keys(rows, modes)).size


def test_wrong():
    with pytest.raises(ValueError, match="entries -1 must be 0 or more"):
        first_products(np.zeros(3), entries=-1)
    with pytest.raises(ValueError, match="one-dimensional"):
        first_products(np.zeros((3, 1)), entries=1)
