"""Pooled vectors of a log by way of a table's rows, in float64, as no card computes them: for what is held against."""

import numpy as np
from numpy.typing import NDArray

from gen.data.logs.log import Chunk
from gen.data.remap import rows_of
from gen.model.recommender import TableSpec


def looked_up(spec: TableSpec, chunk: Chunk, column: str, vocabulary: NDArray[np.uint64] | None) \
        -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows of the table that a column looks up, each once and ascending; which of these each lookup is of)."""
    rows, each = np.unique(rows_of(spec, chunk.ids[column], vocabulary), return_inverse=True)
    return rows, each.reshape(-1)


def pooled(spec: TableSpec, rows: NDArray, each: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """(bags, dim) by the table's mode, of rows (n, dim): row each[k] for lookup k, bag m from offsets[m] on."""
    found = np.zeros((len(offsets) - 1, rows.shape[1]))
    full = np.flatnonzero(np.diff(offsets) > 0)
    if len(full):
        combine = np.maximum if spec.mode == "max" else np.add
        found[full] = combine.reduceat(rows.astype(np.float64)[each], offsets[full], axis=0)
        if spec.mode == "mean":
            found[full] /= np.diff(offsets)[full, None]
    return found
