"""bench.compress: bags of chosen samples, rows of each form."""

import numpy as np
import pytest

from bench.compress import FORMS, SMALL, Samples, split

pytestmark = pytest.mark.regress


def test_bags_of_some_samples():
    offsets = np.array([0, 2, 2, 5, 6])
    indices = np.array([7, 8, 1, 2, 3, 9])
    samples = Samples((10,), ((indices, offsets),), np.zeros(4, np.float32))
    got, begins = samples.of(0, np.array([2, 1, 3, 0, 2]))
    assert got.tolist() == [1, 2, 3, 9, 7, 8, 1, 2, 3]
    assert begins.tolist() == [0, 3, 3, 4, 6]


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_a_form_hold_its_shares_and_no_more(form):
    """Counted row by row: the fewest hottest rows with the dense share, then the fewest with both."""
    counts = np.random.default_rng(4).zipf(1.4, 2000) % 900
    wanted, total = FORMS[form], counts.sum()
    dense, warm = split(counts, wanted)
    hottest = sorted(counts.tolist(), reverse=True)
    for rows, share in ((dense, wanted.hot), (dense + warm, wanted.hot + wanted.warm)):
        if share < 1:
            assert sum(hottest[:rows]) >= share * total - 1e-6
            assert rows == 0 or sum(hottest[:rows - 1]) < share * total
        else:
            assert rows == len(counts), "rows that nobody asks for have no other place"
    assert (dense == 0) == (wanted.hot == 0) and (warm == 0) == (wanted.warm == 0)


def test_small_tables_stay_dense():
    for form in FORMS.values():
        assert split(np.arange(SMALL - 1), form) == (SMALL - 1, 0)
