"""Reorders lookups and rows so that neighbours share their leading core indices (EL-Rec §IV).

Two means, which add up:

- order of lookups: `sorted_batches` sorts the lookups inside each batch. The vectors come out in that order, so each
  row has to be a bag by itself; `Order.restore` puts them back.
- numbering of rows: a bijection old row -> new row, made before training (rows are equivalent until then) or
  applied to a finished table. `by_frequency` puts hot rows together (EL-Rec's global information);
  `by_community` numbers the rest by what is looked up together (its local information). `by_similarity`
  numbers rows by vectors learned beforehand: neighbours then resemble each other, which is the structure
  that tensor trains can hold, so it lowers the error as well.

EL-Rec finds communities by modularity with Rabbit order; here it is scikit-network's Louvain method (Blondel et al.
2008), which has the same goal. Its Leiden method finds no better ones here and draws from the C library's generator, so
that the same seed gives other communities.
"""

from dataclasses import dataclass

import numpy as np

from gen.data.remap import by_heat


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


def sorted_batches(keys: np.ndarray, *, batch: int) -> Order:
    """Sorts each `batch` of lookups by key; equal keys keep the order of the log."""
    if batch < 1:
        raise ValueError(f"batch {batch} must be 1 or more")
    keys = np.asarray(keys)
    positions = np.empty(keys.size, dtype=np.int64)
    for start in range(0, keys.size, batch):
        positions[start:start + batch] = start + np.argsort(keys[start:start + batch], kind="stable")
    return Order(positions)


def by_frequency(indices: np.ndarray, rows: int) -> np.ndarray:
    """New row of each old row: 0 for the one looked up most; of equally many, the lower old row first."""
    counts = np.bincount(indices, minlength=rows)
    if counts.size > rows:
        raise ValueError(f"an index is {counts.size - 1}; the table has {rows} rows")
    bijection = np.empty(rows, dtype=np.int64)
    bijection[by_heat(counts)] = np.arange(rows)
    return bijection


def by_community(indices: np.ndarray, rows: int, *, batch: int, hot_rows: int, window: int = 16,
                 seed: int = 0) -> np.ndarray:
    """New row of each old row: the `hot_rows` most looked up first, then one community after another.

    Two rows are joined when they fall within `window` lookups of each other in one batch, as often as they do; EL-Rec
    joins all pairs of a batch, which is quadratic in it. Communities stand hottest first, and so do the rows inside
    one, so that the reuse buffer sees few keys. Rows that are joined to none come last, by frequency.

    Parameters  hot_rows: EL-Rec's Hot_ratio times rows; seed: of Louvain's method, the same numbering for the same seed
    Raises      ValueError: hot_rows, batch or window that cannot be
    Source      EL-Rec §IV, Alg. 2
    """
    if not 0 <= hot_rows <= rows:
        raise ValueError(f"hot_rows {hot_rows} must be 0 to the table's {rows} rows")
    if min(batch, window) < 1:
        raise ValueError(f"batch {batch} and window {window} must be 1 or more")
    indices = np.asarray(indices, dtype=np.int64)
    frequency = by_frequency(indices, rows)
    cold = frequency[indices] >= hot_rows
    pairs = [np.empty(0, np.int64)]
    for start in range(0, indices.size, batch):
        walk = indices[start:start + batch][cold[start:start + batch]]
        for gap in range(1, min(window, walk.size - 1) + 1):
            a, b = np.minimum(walk[:-gap], walk[gap:]), np.maximum(walk[:-gap], walk[gap:])
            pairs.append((a * rows + b)[a != b])
    codes, weight = np.unique(np.concatenate(pairs), return_counts=True)
    joined, community = _communities(codes // rows, codes % rows, weight, seed)

    heat = np.bincount(community, weights=np.bincount(indices, minlength=rows)[joined])
    # hot rows ahead of all, then communities, then the rest
    label = np.full(rows, heat.size)
    label[joined] = np.argsort(np.argsort(-heat, kind="stable"), kind="stable")[community]
    label[frequency < hot_rows] = -1
    bijection = np.empty(rows, dtype=np.int64)
    bijection[np.lexsort((frequency, label))] = np.arange(rows)
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


def _communities(left: np.ndarray, right: np.ndarray, weight: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows that have an edge, ascending; the number of each one's community)."""
    joined, ends = np.unique(np.concatenate([left, right]), return_inverse=True)
    if not joined.size:
        return joined, ends
    from scipy.sparse import coo_array, csr_matrix
    from sknetwork.clustering import Louvain

    one, other = ends.reshape(2, -1)
    graph = coo_array((weight.astype(np.float64), (one, other)), (joined.size, joined.size))
    method = Louvain(shuffle_nodes=True, random_state=seed, return_probs=False, return_aggregate=False)
    return joined, method.fit_predict(csr_matrix(graph + graph.T))
