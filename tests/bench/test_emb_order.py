"""Orders of lookups that are measured: each asks for the same rows."""

import numpy as np
import pytest

from bench.emb_order import COPIED, ascending, copied, once_ascending

pytestmark = pytest.mark.regress

GROUP, FIRST = 64, 10_000
DRAWN = np.minimum(np.random.default_rng(1).zipf(1.3, 16 * GROUP) - 1, 5000)


@pytest.mark.parametrize("order", [ascending, once_ascending])
def test_a_group_keeps_its_rows(order):
    done = order(DRAWN, GROUP)
    assert (np.sort(done.reshape(-1, GROUP)) == np.sort(DRAWN.reshape(-1, GROUP))).all() and (done != DRAWN).any()


def test_rows_asked_for_more_than_once_stay_where_they_are():
    for before, after in zip(DRAWN.reshape(-1, GROUP), once_ascending(DRAWN, GROUP).reshape(-1, GROUP), strict=True):
        rows, counts = np.unique(before, return_counts=True)
        once = np.isin(before, rows[counts == 1])
        assert (after[~once] == before[~once]).all() and (np.diff(after[once]) > 0).all()


def test_copies_take_every_second_access_to_hot_rows():
    done = copied(DRAWN, FIRST)
    assert (np.where(done >= FIRST, done - FIRST, done) == DRAWN).all()
    for row in range(COPIED):
        asked = np.count_nonzero(DRAWN == row)
        assert np.count_nonzero(done == FIRST + row) == asked // 2
    assert not (done >= FIRST + COPIED).any() and np.count_nonzero(done >= FIRST)
