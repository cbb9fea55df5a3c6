"""How good predictions of clicks are."""

import numpy as np
from numpy.typing import NDArray

LEAST = 1e-12       # that a probability is from 0 and 1


def auc(score: NDArray, label: NDArray) -> float:
    """Share of pairs of a 1 and a 0 that are in the right order; ties are half right."""
    _, number, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2
    ones = label == 1
    n = int(ones.sum())
    return float((rank[number[ones]].sum() - n * (n + 1) / 2) / (n * (len(label) - n)))


def log_loss(probability: NDArray, label: NDArray) -> float:
    """Mean of -log of the probability that was given to what happened."""
    right = np.where(label == 1, probability, 1 - probability)
    return float(-np.log(np.clip(right, LEAST, 1)).mean())
