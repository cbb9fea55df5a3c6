"""Dense features of samples, under the names that logs give them."""

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["dense_features", "dense_names"]

COUNT = re.compile(r"I\d\d?")


def dense_names(values: Mapping[str, NDArray]) -> list[str]:
    """The columns that hold dense features: `dense`, else Criteo's I1, I2, .. in order."""
    if "dense" in values:
        return ["dense"]
    return sorted((name for name in values if COUNT.fullmatch(name)), key=lambda name: int(name[1:]))


def dense_features(values: Mapping[str, NDArray]) -> NDArray[np.float32] | None:
    """(samples, features), None where a log has none. Criteo's counts become log(1 + x) as in Meta's DLRM, a missing
    or negative one 0."""
    names = dense_names(values)
    if names == ["dense"]:
        found = np.asarray(values["dense"], np.float32)
        return found.reshape(len(found), -1)
    if not names:
        return None
    counts = np.stack([np.nan_to_num(np.asarray(values[name], np.float64)) for name in names], axis=1)
    return np.log1p(np.maximum(counts, 0)).astype(np.float32)
