"""The order of requests to the drive."""

import numpy as np
import pytest

from gen.compiler.dies import over_dies


def stretches(flash):
    """Flash pages as they are read, one behind the other."""
    return flash[np.append(True, np.diff(flash) != 0)]


@pytest.mark.parametrize("dies, flash_pages, window", [(32, 4, 128), (3, 1, 7), (8, 2, 1000), (1, 4, 16), (4, 4, 1)])
def test_each_page_is_requested_once_and_dies_take_turns(dies, flash_pages, window):
    random = np.random.default_rng(dies)
    pages = random.choice(5000, 700, replace=False)
    order = over_dies(pages, dies, flash_pages, 0, window)
    assert sorted(order) == list(range(len(pages)))
    assert (order - np.arange(len(order)) < window).all(), "no page before its window"
    read = stretches(pages[order] // flash_pages)
    if window == 1000:      # every page waits from the beginning: dies take turns until one has none
        fewest = np.bincount(np.unique(read) % dies, minlength=dies).min()
        turns = read[:fewest * dies].reshape(fewest, dies) % dies
        assert (np.sort(turns, axis=1) == np.arange(dies)).all()
        assert len(np.unique(read)) == len(read), "the pages of a flash page follow one another"
    if window == 1:
        assert np.array_equal(order, np.arange(len(pages)))


def test_one_die_with_flash_pages_of_a_page_keeps_the_order():
    assert np.array_equal(over_dies(np.array([7, 0, 3, 2]), 1, 1, 0), np.arange(4))
    assert not len(over_dies(np.zeros(0, np.int64), 32, 4, 0))


def test_pages_that_are_under_way_at_once_keep_the_order_of_need():
    pages = np.random.default_rng(1).choice(5000, 65, replace=False)
    assert np.array_equal(over_dies(pages[:64], 32, 4, 64), np.arange(64))
    assert not np.array_equal(over_dies(pages, 32, 4, 64), np.arange(65))
