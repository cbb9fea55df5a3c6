"""Popular samples, and those with cold rows."""

from typing import Any

import numpy as np


def classify(cold: Any, beats: Any) -> np.ndarray:
    """Whether a sample is cold, for each of its beats.

    Parameters  cold: (beats,) whether a beat has a cold index; beats: (samples,) beats of each sample
    """
    cold, beats = np.asarray(cold, bool), np.asarray(beats)
    if not len(beats):
        return cold[:0]
    starts = np.cumsum(beats) - beats
    return np.repeat(np.logical_or.reduceat(cold, starts), beats)
