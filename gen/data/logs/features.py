"""Dense features of samples, under the names that logs give them."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gen.data.logs.chunk import Chunk

COUNT = re.compile(r"I\d\d?")
#: Columns that say whether a sample was a click, in small or capital letters.
LABELS = ("label", "click", "clicked", "is_click", "clk")


def dense_names(values: Mapping[str, NDArray]) -> list[str]:
    """The columns that hold dense features: `dense`, else Criteo's I1, I2, .. in order."""
    if "dense" in values:
        return ["dense"]
    return sorted((name for name in values if COUNT.fullmatch(name)), key=lambda name: int(name[1:]))


def label_among(columns: Iterable[str], labels: Sequence[str] = LABELS) -> str | None:
    """The column of the first of these names that a log has."""
    there = {name.lower(): name for name in columns}
    return next((there[label] for label in labels if label in there), None)


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


def dense_of(chunk: Chunk, inputs: int) -> tuple[NDArray[np.float32], str]:
    """The dense features of a chunk, zeros where it has none, and a note that says so.

    Raises      ValueError: another number than the network's inputs
    """
    found = dense_features(chunk.values)
    if found is None:
        return (np.zeros((chunk.samples, inputs), np.float32),
                f"the log has no dense features: the network's {inputs} are zeros")
    if found.shape[1] != inputs:
        raise ValueError(f"the log has {found.shape[1]} dense features, the network takes {inputs}")
    return found, ""


def labels_of(values: Mapping[str, NDArray]) -> NDArray[np.int64] | None:
    """(samples,) 1 for a click and 0 for none, None where a log has no column of such numbers."""
    binary = {name: each.astype(np.int64) for name, each in values.items()
              if name.lower() in LABELS and np.isin(each, (0, 1)).all()}
    return binary.get(label_among(binary) or "")
