"""Reorders lookups and rows so that neighbours share their leading core indices (EL-Rec §IV).

Two means, which add up:

- order of lookups: `sorted_batches` sorts the lookups inside each batch and deals each lane a run of its own.
  The vectors come out in that order; `Order.restore` puts them back.
- numbering of rows: a bijection old row -> new row, made before training (rows are equivalent until then) or
  applied to a finished table. `by_frequency` puts hot rows together (EL-Rec's global information);
  `by_community` numbers the rest by what is looked up together (its local information). `by_similarity`
  numbers rows by vectors learned beforehand: neighbours then resemble each other, which is the structure
  that tensor trains can hold, so it lowers the error as well.

EL-Rec finds communities by modularity with Rabbit order; here it is Louvain's method (Blondel et al. 2008),
which has the same goal and is short enough to need no graph library.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit


@dataclass(frozen=True)
class Order:
    """`positions[n]` is the place in the log of the n-th lookup to be issued."""

    positions: np.ndarray

    def apply(self, items: np.ndarray) -> np.ndarray:
        """`items` of the log (indices, table ids) in the order of issue."""
        return items[self.positions]

    def restore(self, results: np.ndarray) -> np.ndarray:
        """Results in the order of issue, back in the order of the log."""
        restored = np.empty_like(results)
        restored[self.positions] = results
        return restored


def sorted_batches(keys: np.ndarray, *, batch: int, lanes: int = 2) -> Order:
    """Sorts each `batch` of lookups by key; equal keys keep the order of the log.

    The unit deals lookups to its lanes in turn, so the sorted batch is cut into one run a lane and the runs
    are interleaved: a lane then walks keys in order instead of every lane walking every key.
    """
    if batch < 1 or lanes < 1:
        raise ValueError(f"batch {batch} and lanes {lanes} must be 1 or more")
    keys = np.asarray(keys)
    positions = np.empty(keys.size, dtype=np.int64)
    for start in range(0, keys.size, batch):
        ranked = start + np.argsort(keys[start:start + batch], kind="stable")
        # Which lane the batch's first lookup falls to follows from its place in the whole stream.
        first = start % lanes
        lane = (first + np.arange(ranked.size)) % lanes
        positions[start + np.argsort(lane, kind="stable")] = ranked
    return Order(positions)


def by_frequency(indices: np.ndarray, rows: int) -> np.ndarray:
    """New row of each old row: 0 for the one looked up most; of equally many, the lower old row first."""
    counts = np.bincount(indices, minlength=rows)
    if counts.size > rows:
        raise ValueError(f"an index is {counts.size - 1}; the table has {rows} rows")
    bijection = np.empty(rows, dtype=np.int64)
    bijection[np.argsort(-counts, kind="stable")] = np.arange(rows)
    return bijection


def by_community(indices: np.ndarray, rows: int, *, batch: int, hot_rows: int, sweeps: int = 10,
                 window: int = 16) -> np.ndarray:
    """New row of each old row: the `hot_rows` most looked up first, then one community after another.

    Two rows are joined when they fall within `window` lookups of each other in one batch; EL-Rec joins all
    pairs of a batch, which is quadratic in it. Communities stand hottest first, and so do the rows inside
    one, so that the reuse buffer sees few keys.
    """
    frequency = by_frequency(indices, rows)
    if not 0 <= hot_rows <= rows:
        raise ValueError(f"hot_rows {hot_rows} must be 0 to the table's {rows} rows")
    cold = np.asarray(frequency)[indices] >= hot_rows
    pairs = []
    for start in range(0, indices.size, batch):
        walk = np.asarray(indices[start:start + batch])[cold[start:start + batch]].astype(np.int64)
        for gap in range(1, min(window, walk.size - 1) + 1):
            a, b = np.minimum(walk[:-gap], walk[gap:]), np.maximum(walk[:-gap], walk[gap:])
            pairs.append((a * rows + b)[a != b])
    codes, weights = np.unique(np.concatenate(pairs) if pairs else np.empty(0, np.int64), return_counts=True)
    label = _communities(codes // rows, codes % rows, weights.astype(np.float64), rows, sweeps)

    counts = np.bincount(indices, minlength=rows)
    heat = np.bincount(label, weights=counts, minlength=rows)[label]
    is_cold = frequency >= hot_rows
    # lexsort: last key first; hot rows ahead of all, each kind in its own order
    order = np.lexsort((frequency, np.where(is_cold, label, 0), np.where(is_cold, -heat, 0), is_cold))
    bijection = np.empty(rows, dtype=np.int64)
    bijection[order] = np.arange(rows)
    return bijection


def by_similarity(vectors: np.ndarray) -> np.ndarray:
    """New row of each row of `vectors`: halved along the direction of largest spread, and each half again."""
    vectors = np.asarray(vectors, dtype=np.float64)
    order: list[int] = []

    def place(rows: np.ndarray) -> None:
        if rows.size <= 2:
            order.extend(rows)
            return
        spread = vectors[rows] - vectors[rows].mean(axis=0)
        direction = np.linalg.eigh(spread.T @ spread)[1][:, -1]
        # An eigenvector's sign is the solver's whim; the larger half of its entries decides it here.
        direction = direction * (np.sign(direction[np.argmax(np.abs(direction))]) or 1)
        ranked = rows[np.argsort(spread @ direction, kind="stable")]
        place(ranked[: rows.size // 2])
        place(ranked[rows.size // 2:])

    place(np.arange(vectors.shape[0]))
    bijection = np.empty(vectors.shape[0], dtype=np.int64)
    bijection[order] = np.arange(vectors.shape[0])
    return bijection


def _communities(left: np.ndarray, right: np.ndarray, weight: np.ndarray, rows: int,
                 sweeps: int) -> np.ndarray:
    """A community's label for each row: moves that raise modularity, then the same between communities."""
    label = np.arange(rows)
    while left.size:
        ends, others = np.concatenate([left, right]), np.concatenate([right, left])
        order = np.argsort(ends, kind="stable")
        starts = np.searchsorted(ends[order], np.arange(rows + 1))
        moved = _local_moves(starts, others[order], np.concatenate([weight, weight])[order], sweeps)
        if (moved == np.arange(rows)).all():
            break
        label = moved[label]
        # Communities become the nodes of the next level; edges inside them stay as loops, which never move
        # but count in the degree.
        left, right = moved[left], moved[right]
        codes, back = np.unique(np.minimum(left, right) * rows + np.maximum(left, right), return_inverse=True)
        weight = np.bincount(back, weights=weight)
        left, right = codes // rows, codes % rows
        if (left == right).all():
            break
    return label


@njit(cache=True)
def _local_moves(starts, others, weight, sweeps):
    rows = starts.size - 1
    label = np.arange(rows)
    degree = np.zeros(rows)
    for row in range(rows):
        for e in range(starts[row], starts[row + 1]):
            degree[row] += weight[e]
    total = degree.sum()
    size = degree.copy()
    toward = np.zeros(rows)
    for _ in range(sweeps):
        moves = 0
        for row in range(rows):
            here = label[row]
            for e in range(starts[row], starts[row + 1]):
                if others[e] != row:
                    toward[label[others[e]]] += weight[e]
            size[here] -= degree[row]
            best = here
            gain = toward[here] - size[here] * degree[row] / total
            for e in range(starts[row], starts[row + 1]):
                there = label[others[e]]
                other_gain = toward[there] - size[there] * degree[row] / total
                if other_gain > gain + 1e-12:
                    best = there
                    gain = other_gain
            for e in range(starts[row], starts[row + 1]):
                toward[label[others[e]]] = 0.0
            size[best] += degree[row]
            if best != here:
                label[row] = best
                moves += 1
        if moves == 0:
            break
    return label
