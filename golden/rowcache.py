"""Frequency-ordered row cache: which rows of a slow memory stand in a fast one, batch after batch.

Rows are numbered by rank, 0 the one looked up most in the log that the ranks were taken from. Before a batch all
its rows that are not cached are brought in; room is made by evicting the cached rows of the largest ranks, but
none that the batch needs. It is warmed with the rows of the smallest ranks.

Source: "A Frequency-aware Software Cache for Large Recommendation System Embeddings", §4.2, §4.3, Algorithm 1.
There every row of a batch must fit; here those that do not are left to be read where they are, the coldest first.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["RowCache", "Step"]


@dataclass(frozen=True)
class Step:
    """What one batch did. slots: for each rank asked, in the order asked, its slot, or -1 for a row to be read
    where it is. filled, filled_slots: ranks brought in, ascending, and where to. evicted: ranks that left.
    unique: different ranks in the batch. hits: of these, cached before.
    """

    slots: NDArray[np.int64]
    filled: NDArray[np.int64]
    filled_slots: NDArray[np.int64]
    evicted: NDArray[np.int64]
    unique: int
    hits: int


class RowCache:
    """A cache of `capacity` rows out of `rows`; empty until `warm` or `prepare` fill it.

    Raises      ValueError: a size below 0 or a rank that is none of the rows
    """

    def __init__(self, capacity: int, rows: int):
        if capacity < 0 or rows < 0:
            raise ValueError(f"capacity {capacity} and rows {rows} must be 0 or more")
        self.capacity = min(capacity, rows)
        self.rows = rows
        self._rank = np.full(self.capacity, -1, np.int64)      # of each slot, -1 when free
        self._slot = np.full(rows, -1, np.int64)               # of each rank

    @property
    def ranks(self) -> NDArray[np.int64]:
        """The cached ranks, ascending."""
        return np.sort(self._rank[self._rank >= 0])

    @property
    def slots(self) -> NDArray[np.int64]:
        """The slot of each rank, -1 for a rank that is not cached. Not to be changed."""
        return self._slot

    def warm(self) -> NDArray[np.int64]:
        """Caches the smallest ranks, rank r in slot r, and nothing else; returns them."""
        self._rank[:] = np.arange(self.capacity)
        self._slot[:] = -1
        self._slot[:self.capacity] = self._rank
        return self._rank.copy()

    def prepare(self, ranks: ArrayLike) -> Step:
        """Makes the cache ready for a batch that looks up `ranks`."""
        asked = np.asarray(ranks, dtype=np.int64)
        if asked.size and (asked.min() < 0 or asked.max() >= self.rows):
            wrong = asked[(asked < 0) | (asked >= self.rows)][0]
            raise ValueError(f"rank {wrong} is none of the {self.rows} rows")
        unique = np.unique(asked)
        cached = self._slot[unique] >= 0
        missing = unique[~cached]
        free = np.flatnonzero(self._rank < 0)
        # Cached rows that the batch does not need, the largest rank first.
        idle = self._rank.copy()
        idle[self._slot[unique[cached]]] = -1
        leaves = np.argsort(-idle, kind="stable")[:np.count_nonzero(idle >= 0)]
        filled = missing[:len(free) + len(leaves)]
        leaves = leaves[:max(0, len(filled) - len(free))]
        evicted = self._rank[leaves]
        self._slot[evicted] = -1
        to = np.concatenate([free, leaves])[:len(filled)]
        self._rank[to] = filled
        self._slot[filled] = to
        return Step(self._slot[asked], filled, to, evicted, len(unique), int(cached.sum()))

    def undo(self, step: Step) -> None:
        """Takes back the step that was made last."""
        self._slot[step.filled] = -1
        self._rank[step.filled_slots] = -1
        left = step.filled_slots[len(step.filled) - len(step.evicted):]
        self._rank[left] = step.evicted
        self._slot[step.evicted] = left
