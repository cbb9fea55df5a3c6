"""The cache of a trained table by itself: what is asked for is there, and few rows move for it."""

import numpy as np
import pytest

from hotrail.training.placement import Placement

ROWS = 300


def traffic(random, count, indices=40, rows=ROWS):
    return [(random.random(indices) ** 3 * rows).astype(np.int64) for _ in range(count)]


def fill(placement):
    hottest = placement.hottest()
    if len(hottest):
        placement.announce(hottest)
        placement.commit(placement.plan())


def moved(placement, batches, depth):
    """Rows copied in, with every step held against a cache that is a dictionary."""
    fill(placement)
    held = dict(zip(*(part.tolist() for part in placement.cached()), strict=True))
    total = len(held)
    for batch in batches[:depth]:
        placement.announce(batch)
    for number, batch in enumerate(batches):
        if number + depth < len(batches):
            placement.announce(batches[number + depth])
        move = placement.plan(1)
        assert np.array_equal(move.unique[move.inverse], batch)
        assert move.number - 2 < move.wait_for <= move.number or not len(move.victims)
        for row, slot in zip(move.victims.tolist(), move.victim_slots.tolist(), strict=True):
            assert held.pop(row) == slot and row not in batch
            # Only what the batch before needs makes it wait.
            assert move.wait_for == move.number or row not in batches[number - 1]
        for row, slot in zip(move.misses.tolist(), move.fill_slots.tolist(), strict=True):
            assert row not in held and slot not in held.values()
            held[row] = slot
        placement.commit(move)
        assert len(held) <= placement.capacity
        assert [held[row] for row in move.unique.tolist()] == placement.slots(move.unique).tolist()
        total += len(move.misses)
    rows, slots = placement.cached()
    assert held == dict(zip(rows.tolist(), slots.tolist(), strict=True))
    return total


def fewest(batches, capacity):
    """Rows copied in by who knows all batches to come: those leave that are needed last (Belady), each batch's rows
    together."""
    uses = [set(batch.tolist()) for batch in batches]
    held, total = set(), 0
    for number, use in enumerate(uses):
        total += len(use - held)
        held |= use
        later = {row: next((k for k in range(number + 1, len(uses)) if row in uses[k]), len(uses)) for row in held}
        over = sorted(held - use, key=lambda row: (-later[row], row))[:max(0, len(held) - capacity)]
        held -= set(over)
    return total


@pytest.mark.parametrize("heat", ["counts", None])
@pytest.mark.parametrize(("capacity", "depth"), [(40, 8), (60, 0), (60, 3), (150, 8), (ROWS, 8)])
def test_rows_are_there_when_they_are_needed(heat, capacity, depth):
    batches = traffic(np.random.default_rng(capacity + depth), 60)
    counts = np.bincount(np.concatenate(batches), minlength=ROWS) if heat else None
    least = fewest(batches, capacity)
    found = moved(Placement(ROWS, capacity, counts), batches, depth)
    assert found >= least
    if depth == 8 and capacity == 40:
        # All that such a cache can keep lies within what is known.
        assert found <= 1.03 * least + capacity


def test_more_is_known_and_less_is_moved():
    batches = traffic(np.random.default_rng(2), 200)
    counts = np.bincount(np.concatenate(batches), minlength=ROWS)
    found = [moved(Placement(ROWS, 60, counts), batches, depth) for depth in (0, 2, 8)]
    assert found[0] > found[1] > found[2]


def test_the_coldest_leave():
    placement = Placement(10, 4, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    fill(placement)
    assert placement.cached()[0].tolist() == [0, 1, 2, 3]
    for batch, leaves in (([8], [3]), ([9, 0], [8]), ([4], [9]), ([5, 6], [4, 2])):
        placement.announce(np.array(batch))
        move = placement.plan()
        assert move.victims.tolist() == leaves
        placement.commit(move)


def test_what_is_asked_often_stays_without_a_profile():
    placement = Placement(10, 3)
    for batch in ([0, 0, 1], [2], [3]):
        placement.announce(np.array(batch))
        move = placement.plan()
        placement.commit(move)
    assert move.victims.tolist() == [1] and sorted(placement.cached()[0]) == [0, 2, 3]


def test_a_batch_that_does_not_come():
    placement = Placement(10, 2, np.arange(10)[::-1])
    for batch in ([1, 2], [3, 4], [5]):
        placement.announce(np.array(batch))
    placement.skip()
    move = placement.plan()
    assert move.unique.tolist() == [3, 4] and move.number == 1


def test_bad_input():
    with pytest.raises(ValueError, match="cache_rows is 11; it must be 1 to 10"):
        Placement(10, 11)
    with pytest.raises(ValueError, match=r"heat has the shape \(3,\)"):
        Placement(10, 4, [1, 2, 3])
    with pytest.raises(ValueError, match="heat must be finite numbers"):
        Placement(2, 1, [1.0, float("nan")])
    placement = Placement(10, 4)
    with pytest.raises(IndexError, match="index 10 is none of the table's 10 rows"):
        placement.announce([3, 10])
    with pytest.raises(IndexError, match="index -1 is none"):
        placement.announce([-1])
    with pytest.raises(ValueError, match="a batch looks up 5 different rows, and the cache holds 4: smaller batches"):
        placement.announce([1, 2, 3, 4, 5, 5])
    placement.announce([1, 2])
    assert placement.plan().number == 0
