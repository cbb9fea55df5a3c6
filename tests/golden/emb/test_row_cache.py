"""The row cache against Algorithm 1 of its paper, carried out row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden.emb.row_cache import RowCache


def slowly(cached: set[int], batch: list[int], capacity: int) -> tuple[set[int], list[int], list[int]]:
    """The cached set afterwards, what was brought in and what left."""
    wanted = sorted(set(batch))
    missing = [rank for rank in wanted if rank not in cached]
    brought, left = [], []
    cached = set(cached)
    for rank in missing:
        if len(cached) == capacity:
            idle = [other for other in cached if other not in wanted]
            if not idle:
                break
            cached.remove(max(idle))
            left.append(max(idle))
        cached.add(rank)
        brought.append(rank)
    return cached, brought, left


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 12), st.booleans(), st.lists(st.lists(st.integers(0, 29), max_size=20), max_size=12))
def test_every_batch_is_algorithm_1(capacity, warm, batches):
    cache, cached = RowCache(capacity, 30), set()
    if warm:
        assert list(cache.warm()) == list(range(capacity))
        cached = set(range(capacity))
    for batch in batches:
        before = set(cached)
        cached, brought, left = slowly(cached, batch, capacity)
        slots = cache.slots.copy()
        step = cache.prepare(batch)
        assert np.array_equal(cache.slots, slots) and set(cache.ranks) == before, "nothing happens before the commit"
        cache.commit(step)
        assert set(cache.ranks) == cached
        assert list(step.filled) == brought and sorted(step.evicted) == sorted(left)
        assert step.unique == len(set(batch)) and step.hits == len(set(batch) & before)
        held = {int(rank): int(slot) for rank, slot in zip(batch, step.slots, strict=True)}
        assert all((slot >= 0) == (rank in cached) for rank, slot in held.items())
        taken = [slot for slot in held.values() if slot >= 0]
        assert len(set(taken)) == len(taken) and all(slot < capacity for slot in taken)
        assert all(held[int(rank)] == slot for rank, slot in zip(step.filled, step.filled_slots, strict=True))


def test_a_row_stays_in_its_slot_until_it_leaves():
    cache = RowCache(3, 10)
    cache.warm()
    assert list(cache.prepare([0, 2, 1, 2]).slots) == [0, 2, 1, 2]
    step = cache.prepare([9, 0])
    cache.commit(step)
    assert list(step.evicted) == [2] and list(step.slots) == [2, 0], "the largest rank that is not asked for leaves"
    assert list(cache.prepare([1, 9]).slots) == [1, 2]


def test_more_rows_than_room_leaves_the_coldest_where_they_are():
    cache = RowCache(2, 10)
    step = cache.prepare([7, 3, 5, 3])
    assert list(step.filled) == [3, 5] and list(step.slots) == [-1, 0, 1, 0]


def test_a_step_is_for_the_cache_as_it_was():
    cache = RowCache(2, 10)
    first, second = cache.prepare([1]), cache.prepare([2])
    cache.commit(first)
    for late in (first, second):
        with pytest.raises(ValueError, match="the step was prepared after 0 steps, the cache has taken 1"):
            cache.commit(late)
    step = cache.prepare([3])
    cache.warm()
    with pytest.raises(ValueError, match="the step was prepared after 1 steps, the cache has taken 2"):
        cache.commit(step)


def test_wrong():
    with pytest.raises(ValueError, match="rank 10 is none of the 10 rows"):
        RowCache(2, 10).prepare([3, 10])
    with pytest.raises(ValueError, match="capacity -1 and rows 4 must be 0 or more"):
        RowCache(-1, 4)
