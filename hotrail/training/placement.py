"""Which rows of a table stand in a cache, batch after batch, planned some batches before they are used.

Source: "A Frequency-aware Software Cache for Large Recommendation System Embeddings", §4.2, §4.3, Algorithm 1; the rows
of batches that are planned and not finished stay, as EL-Rec's life cycles have it (§IV).
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

PINNED = np.int64(1 << 62)       # more than any row is accessed


@dataclass(frozen=True, eq=False)
class Move:
    """What a batch needs of the cache.

    number: of the batch, from 0. unique: rows that it looks up, each once, ascending. inverse: (n,) for each index,
    which of these it is. misses, fill_slots: rows to copy from the host, ascending, and their slots. victims,
    victim_slots: rows to write back first. wait_for: batches of lower numbers must have ended before.
    """

    number: int
    unique: NDArray[np.int64]
    inverse: NDArray[np.int64]
    misses: NDArray[np.int64]
    fill_slots: NDArray[np.int64]
    victims: NDArray[np.int64]
    victim_slots: NDArray[np.int64]
    wait_for: int


class Placement:
    """Slots of a cache of `capacity` rows out of `rows`.

    A row is evicted only to make room for a miss: those that no announced batch needs, the coldest first, and then
    those that are needed last. heat: accesses of each row, as a profile counts them. They are counted down, from the
    beginning when all have come, as long as no row has more than the profile says: it is of these batches, and the
    accesses to come decide. From then on it is of others, and the accesses so far are added to it; so they are without
    heat (LFU). Heat that is no count stays as it is. Time for a batch of n indices: O(n log n), and now and then
    O(rows). Memory: 32 bytes a row, and 8 a slot. What it decides depends on the batches alone, not on when they end.
    """

    def __init__(self, rows: int, capacity: int, heat: ArrayLike | None = None):
        if not 1 <= capacity <= rows:
            raise ValueError(f"cache_rows is {capacity}; it must be 1 to {rows}, the rows of the table")
        self.capacity = capacity
        self._heat = np.zeros(rows, np.int64) if heat is None else np.array(heat)
        if self._heat.dtype.kind not in "iuf" or not np.isfinite(self._heat).all():
            raise ValueError("heat must be finite numbers: accesses of each row")
        if self._heat.shape != (rows,):
            raise ValueError(f"heat has the shape {self._heat.shape}; it must be one number for each of {rows} rows")
        # Accesses so far: of them heat is counted down, up, or not at all.
        self._seen, self._sign = np.zeros(rows, np.int64), 1 if heat is None else -1
        if self._heat.min() < 0 or self._heat.sum(dtype=np.float64) >= PINNED or (self._heat % 1).any():
            self._heat, self._sign = np.unique(self._heat, return_inverse=True)[1], 0        # the same order
        self._heat = self._heat.astype(np.int64)
        self._to_come = int(self._heat.sum())
        self._pinned = np.zeros(0, np.int64)
        self._slot = np.full(rows, -1, np.int64)            # of each row, -1 where it is not cached
        self._row = np.full(capacity, -1, np.int64)         # of each slot, -1 where it is free
        self._last = np.full(rows, -1, np.int64)            # of each row, the last batch that needs it
        self._filled = 0                                    # slots are filled in turn, and never free again
        self._known: deque[tuple[NDArray[np.int64], NDArray[np.int64]]] = deque()
        self._count = 0                                     # batches announced
        # The coldest slots, and a heat that no slot outside of them is below.
        self._cold, self._least = np.zeros(0, np.int64), np.int64(0)

    def cached(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(rows, slots) of what is cached."""
        return self._row[:self._filled], np.arange(self._filled)

    def slots(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._slot[rows]

    def pin(self, rows: ArrayLike) -> None:
        """These are hotter than all others, and those pinned so far as hot as they were. A batch that brings them in
        is announced.

        Raises      IndexError: a number that is no row; ValueError: more rows than the cache has
        """
        rows = np.unique(self._checked(np.asarray(rows)))
        if len(rows) > self.capacity:
            raise ValueError(f"{len(rows)} rows are to be kept, and the cache holds {self.capacity}: fewer of them, or "
                             "more cache_rows")
        self._heat[self._pinned] -= PINNED
        self._heat[rows] += PINNED
        self._pinned = rows
        self._cold, self._least = np.zeros(0, np.int64), np.int64(0)
        self._announce(rows, np.zeros(0, np.int64))

    def _checked(self, rows: NDArray) -> NDArray:
        wrong = (rows < 0) | (rows >= len(self._slot))
        if wrong.any():
            raise IndexError(f"index {rows[wrong][0]} is none of the table's {len(self._slot)} rows")
        return rows

    def announce(self, indices: ArrayLike) -> None:
        """A batch will come, after those announced before.

        Raises      IndexError: an index that is no row; ValueError: the batch needs more rows than the cache has
        """
        unique, inverse = np.unique(self._checked(np.asarray(indices)), return_inverse=True)
        if len(unique) > self.capacity:
            raise ValueError(f"a batch looks up {len(unique)} different rows, and the cache holds {self.capacity}: "
                             "smaller batches, or more cache_rows")
        self._announce(unique, inverse.reshape(-1))

    def _announce(self, unique: NDArray[np.int64], inverse: NDArray[np.int64]) -> None:
        self._last[unique] = self._count
        self._known.append((unique, inverse))
        self._count += 1

    def plan(self, in_flight: int = 0) -> Move:
        """What the next batch that was announced needs; the placement is as before, until `commit`.

        Parameters  in_flight: so many batches before it are, if the cache has room for the rows of all of them
        """
        number, (unique, inverse) = self._count - len(self._known), self._known[0]
        held = self._slot[unique]
        misses = unique[held < 0]
        fresh = np.arange(self._filled, min(self._filled + len(misses), self.capacity))
        victim_slots, wait_for = self._victims(len(misses) - len(fresh), held[held >= 0], number, in_flight)
        return Move(number, unique, inverse, misses, np.concatenate([fresh, victim_slots]),
                    self._row[victim_slots], victim_slots, wait_for)

    def commit(self, move: Move) -> None:
        """The batch's rows are cached, its victims are not."""
        slots = move.fill_slots
        self._slot[move.victims] = -1
        self._slot[move.misses], self._row[slots] = slots, move.misses
        self._filled = max(self._filled, int(slots.max(initial=-1)) + 1)
        self._known.popleft()
        self._seen[move.unique] += np.bincount(move.inverse, minlength=len(move.unique))
        slots = self._slot[move.unique]
        self._cold = np.concatenate([self._cold[~np.isin(self._cold, np.concatenate([slots, move.victim_slots]))],
                                     slots[self._now(move.unique) <= self._least]])
        if self._sign < 0:
            self._to_come -= len(move.inverse)
            if (self._now(move.unique) < 0).any():
                self._sign = 1
            elif self._to_come:
                return
            else:
                self._to_come = int(self._seen.sum())
                self._seen[:] = 0
            self._cold, self._least = np.zeros(0, np.int64), np.int64(0)

    def _now(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Heat after what has come."""
        return self._heat[rows] + self._sign * self._seen[rows]

    def skip(self) -> None:
        """The next batch that was announced will not come."""
        self._known.popleft()

    def _victims(self, count: int, held: NDArray[np.int64], number: int,
                 in_flight: int) -> tuple[NDArray[np.int64], int]:
        """`count` slots to evict for batch `number`, which needs those `held`: the first to go first. And the number of
        the first batch that may still be in flight then."""
        if count == 0:
            return np.zeros(0, np.int64), 0
        before = number - in_flight
        # What has become hotter than the limit is where all others are.
        heat = self._now(self._row[self._cold])
        low = np.flatnonzero(heat <= self._least)
        low = low[np.argsort(heat[low], kind="stable")]
        if len(low) > (most := max(8 * count, self._filled // 8)):
            low, self._least = low[:most], heat[low[most - 1]]
        self._cold = self._cold[low]
        found = self._cold[self._last[self._row[self._cold]] < before]
        if len(found) >= count:
            return found[:count], before
        row = self._row[:self._filled]
        last, heat = self._last[row], self._now(row)
        free = (last < before) & (self._heat[row] < PINNED)
        if np.count_nonzero(free) < count:
            # Batches in flight must end first; then what is needed last is evicted.
            needed = np.full(self._filled, self._count)
            for ahead in range(len(self._known) - 1, 0, -1):
                slots = self._slot[self._known[ahead][0]]
                needed[slots[slots >= 0]] = number + ahead
            needed[self._slot[self._pinned[self._slot[self._pinned] >= 0]]] = number
            needed[held] = number - 1
            order = np.lexsort((heat, -needed))[:count]
            return order, number
        # Some more than are wanted, for the batches behind this one.
        wanted = min(int(np.count_nonzero(free)), max(4 * count, self._filled // 16)) - 1
        self._least = np.partition(heat[free], wanted)[wanted]
        self._cold = np.flatnonzero(heat <= self._least)
        self._cold = self._cold[np.argsort(heat[self._cold], kind="stable")]
        return self._cold[free[self._cold]][:count], before
