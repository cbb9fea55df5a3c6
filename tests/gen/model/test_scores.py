"""How good predictions are, beside the plain formulas."""

import numpy as np
import pytest

from gen.model.scores import auc, log_loss


@pytest.mark.parametrize("values", [2, 5, 1000])
def test_auc_is_the_share_of_pairs(values):
    random = np.random.default_rng(values)
    score, label = random.integers(values, size=120) / 7, random.integers(2, size=120)
    pairs = [1.0 if one > other else 0.5 if one == other else 0.0
             for one in score[label == 1] for other in score[label == 0]]
    assert auc(score, label) == pytest.approx(np.mean(pairs), abs=1e-12)


def test_log_loss_is_the_mean_over_samples():
    found = log_loss(np.array([0.9, 0.2, 0.0]), np.array([1, 0, 1]))
    assert found == pytest.approx(-(np.log(0.9) + np.log(0.8) + np.log(1e-12)) / 3)
