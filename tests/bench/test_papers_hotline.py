"""What crosses PCIe in Hotline's table 7.6, counted sample by sample."""

import numpy as np
import pytest

from bench.papers_hotline import DIM, cold_rows, minutes

pytestmark = pytest.mark.regress


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_cold_rows_are_sent_once_in_a_mini_batch(batch):
    random = np.random.default_rng(batch)
    numbers = random.integers(0, 30, (200, 4))
    hot = numbers < 22
    gathered = [k for k in range(200) if not hot[k].all()]
    sent = 0
    for begin in range(0, len(gathered) // batch * batch, batch):
        sent += len({numbers[k, t] for k in gathered[begin:begin + batch] for t in range(4) if not hot[k, t]})
    wanted = sent / (len(gathered) // batch * batch) * len(gathered) / 200
    assert cold_rows(numbers, hot, batch) == pytest.approx(wanted) and 0 < wanted < 4


def test_no_row_is_sent_where_all_are_hot():
    assert cold_rows(np.zeros((10, 2), np.int64), np.ones((10, 2), bool), 4) == 0


def test_minutes():
    """A row of 16 values each way for each of 45,840,617 samples, ten times."""
    assert minutes(1) == pytest.approx(458_406_170 * 128 / 15.75e9 / 60) and DIM == 16
