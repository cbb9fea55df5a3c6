"""The cache of a trained table by itself: what is asked for is there, and few rows move for it."""

import numpy as np
import pytest

from hotrail.training.placement import Placement

ROWS = 300


def traffic(random, count, indices=40, rows=ROWS):
    return [(random.random(indices) ** 3 * rows).astype(np.int64) for _ in range(count)]


def leaves(placement, batch):
    """The rows that a batch evicts, first to last."""
    placement.announce(np.array(batch))
    move = placement.plan()
    placement.commit(move)
    return move.victims.tolist()


def moved(placement, batches, depth):
    """Rows copied in, with every step held against a cache that is a dictionary."""
    held, total = {}, 0
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
        assert found <= 1.03 * least


def test_more_is_known_and_less_is_moved():
    batches = traffic(np.random.default_rng(2), 200)
    counts = np.bincount(np.concatenate(batches), minlength=ROWS)
    found = [moved(Placement(ROWS, 60, counts), batches, depth) for depth in (0, 2, 8)]
    assert found[0] > found[1] > found[2]


def test_the_coldest_leave():
    """Heat that is no count stays as it is, however often a row comes."""
    placement = Placement(10, 4, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    for batch, victims in (([0, 1, 2, 3], []), ([8], [3]), ([9, 0, 0], [8]), ([4], [9]), ([5, 6], [4, 2])):
        assert leaves(placement, batch) == victims


def test_rows_with_the_fewest_accesses_to_come_leave():
    """Of 3, 2, 2, 1 and 1 accesses; row 0 has had two, and row 1 one, when row 3 has had its last."""
    placement = Placement(5, 3, [3, 2, 2, 1, 1])
    for batch, victims in (([0, 0, 1], []), ([2, 2], []), ([3], [2]), ([4], [3]), ([0, 1], [])):
        assert leaves(placement, batch) == victims
    # All have come: once more from the beginning, when row 4 is the one with the fewest.
    for batch, victims in (([0], []), ([2, 2], [4]), ([3], [2])):
        assert leaves(placement, batch) == victims


def test_a_profile_of_other_batches():
    """Row 0 comes more often than the profile says: what has come counts too from then on."""
    placement = Placement(5, 3, [2, 3, 3, 3, 0])
    for batch, victims in (([0, 0, 1], []), ([0, 2], []), ([3], [1]), ([4], [2]), ([1], [4])):
        assert leaves(placement, batch) == victims


def test_rows_that_are_pinned_do_not_leave():
    placement = Placement(10, 3, np.arange(10)[::-1])
    placement.pin([8, 9])
    placement.commit(placement.plan())
    for batch, victims in (([0], []), ([9, 9, 1], [0]), ([2], [1]), ([3], [2])):
        assert leaves(placement, batch) == victims


def test_what_is_asked_often_stays_without_a_profile():
    placement = Placement(10, 3)
    for batch, victims in (([0, 0, 1], []), ([2], []), ([3], [1])):
        assert leaves(placement, batch) == victims


@pytest.mark.parametrize("heat", ["counts", "other", None])
def test_the_fewest_leave_of_all(heat):
    """Against a scan of all rows, over epochs: heat that falls, begins anew and rises keeps the order."""
    random = np.random.default_rng(3)
    epoch = traffic(random, 30)
    counts = {"counts": np.bincount(np.concatenate(epoch), minlength=ROWS), "other": random.integers(0, 30, ROWS),
              None: None}[heat]
    placement, total = Placement(ROWS, 60, counts), np.zeros(ROWS, np.int64)
    profile, down = (total.copy(), False) if counts is None else (counts, True)
    for number, batch in enumerate(epoch * 3):
        now = profile - total if down else profile + total
        held = np.setdiff1d(placement.cached()[0], batch)
        gone = leaves(placement, batch)
        assert sorted(now[gone]) == sorted(now[held])[:len(gone)]
        np.add.at(total, batch, 1)
        if down and (total > profile).any():
            down = False
        elif down and number % len(epoch) == len(epoch) - 1:
            total[:] = 0
    assert down == (heat == "counts")


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
