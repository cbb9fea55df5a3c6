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


@dataclass(frozen=True, eq=False)
class Step:
    """What one batch needs of the cache. slots: for each rank asked, in the order asked, its slot, or -1 for a row to
    be read where it is. filled, filled_slots: ranks to bring in, ascending, and where to. evicted: ranks that leave.
    unique: different ranks in the batch. hits: of these, cached before. at: steps that the cache had taken before.
    """

    slots: NDArray[np.int64]
    filled: NDArray[np.int64]
    filled_slots: NDArray[np.int64]
    evicted: NDArray[np.int64]
    unique: int
    hits: int
    at: int


class RowCache:
    """A cache of `capacity` rows out of `rows`; empty until `warm` or steps fill it. `prepare` says what a batch needs
    and changes nothing; `commit` takes the step, once its rows are there.

    Raises      ValueError: a size below 0 or a rank that is none of the rows
    """

    def __init__(self, capacity: int, rows: int):
        if capacity < 0 or rows < 0:
            raise ValueError(f"capacity {capacity} and rows {rows} must be 0 or more")
        self.capacity = min(capacity, rows)
        self.rows = rows
        self._rank = np.full(self.capacity, -1, np.int64)      # of each slot, -1 when free
        self._slot = np.full(rows, -1, np.int64)               # of each rank
        self._steps = 0

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
        self._steps += 1
        return self._rank.copy()

    def prepare(self, ranks: ArrayLike) -> Step:
        """What a batch that looks up `ranks` needs; the cache stays as it is."""
        requested = np.asarray(ranks, dtype=np.int64)
        if requested.size and (requested.min() < 0 or requested.max() >= self.rows):
            wrong = requested[(requested < 0) | (requested >= self.rows)][0]
            raise ValueError(f"rank {wrong} is none of the {self.rows} rows")
        unique, back = np.unique(requested, return_inverse=True)
        slots = self._slot[unique]
        missing = np.flatnonzero(slots < 0)
        hits = len(unique) - len(missing)
        free = np.flatnonzero(self._rank < 0)
        # Cached rows that the batch does not need, the largest rank first.
        idle = self._rank.copy()
        idle[slots[slots >= 0]] = -1
        leaves = np.argsort(-idle, kind="stable")[:np.count_nonzero(idle >= 0)]
        missing = missing[:len(free) + len(leaves)]
        leaves = leaves[:max(0, len(missing) - len(free))]
        to = np.concatenate([free, leaves])[:len(missing)]
        slots[missing] = to
        return Step(slots[back.reshape(-1)], unique[missing], to, self._rank[leaves], len(unique), hits, self._steps)

    def commit(self, step: Step) -> None:
        """The rows of a step are in their slots.

        Raises      ValueError: the cache has changed since the step was prepared
        """
        if step.at != self._steps:
            raise ValueError(f"the step was prepared after {step.at} steps, the cache has taken {self._steps}")
        self._slot[step.evicted] = -1
        self._rank[step.filled_slots] = step.filled
        self._slot[step.filled] = step.filled_slots
        self._steps += 1
