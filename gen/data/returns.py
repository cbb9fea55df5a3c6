"""What the last fifth of a log asked of the rows that the part before it had, which is what its next part is expected
to ask of those that the whole log has: a held-out estimate (Jelinek and Mercer 1985), by how often rows were accessed.

Where accesses come in no order it agrees with Good's and Turing's. Where users come and go it does not, and is right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["FROM", "Returns", "measured"]

#: The share of a log from which on it is held against what is before.
FROM = 0.8
#: Rows are told apart by their accesses before: so many, up to the next number.
LEVELS = np.array([1, 2, 3, 4, 6, 9, 17, 33, 65, 129])
#: Accesses before and after, of which fewer say nothing.
FEWEST = 1000


@dataclass(frozen=True, eq=False)
class Returns:
    """Of one table. before, after: (LEVELS,) accesses before, and after, to rows that had so many before; unseen:
    accesses after to rows that had none; once: rows that had one."""

    before: NDArray[np.int64]
    after: NDArray[np.int64]
    unseen: int
    once: int

    def rates(self, accesses: NDArray[np.int64]) -> NDArray[np.float64]:
        """Accesses after for one before, of rows with so many; 1 on average where all rows come back alike."""
        known = np.flatnonzero(self.before)
        found = (self.after[known] / max(self.after.sum(), 1)) / (self.before[known] / self.before.sum())
        return np.interp(_level(accesses), known, found)

    def share(self, once: int, accesses: int) -> float:
        """Of the accesses that follow a log of so many accesses, of which `once` are the only ones to their row: the
        share to rows that it does not have. The longer a log, the fewer there are, as Good and Turing say."""
        share = self.unseen / (self.unseen + self.after.sum())
        return float(share * min(1.0, once / accesses * self.before.sum() / self.once if self.once else 1.0))

    def array(self) -> NDArray[np.int64]:
        """All numbers, as `of` takes them."""
        return np.concatenate([[self.unseen, self.once], self.before, self.after])

    @classmethod
    def of(cls, numbers: Sequence[int] | NDArray[np.int64]) -> "Returns | None":
        """None of no numbers. Raises ValueError: numbers that `array` does not give"""
        if not len(numbers):
            return None
        found = np.asarray(numbers)
        before, after = found[2:2 + len(LEVELS)], found[2 + len(LEVELS):]
        if len(found) != 2 + 2 * len(LEVELS) or found.min() < 0 or not before.sum() or not found[0] + after.sum():
            raise ValueError("what the end of the log asked of its rows is not whole")
        return cls(before, after, int(found[0]), int(found[1]))


def measured(ids: NDArray[np.uint64], counts: NDArray[np.int64], later_ids: NDArray[np.uint64],
             later_counts: NDArray[np.int64]) -> Returns | None:
    """Of ids, ascending, and their accesses before and after; None of fewer than FEWEST."""
    if min(counts.sum(), later_counts.sum()) < FEWEST:
        return None
    place = np.minimum(np.searchsorted(ids, later_ids), len(ids) - 1)
    again, level = ids[place] == later_ids, _level(counts)
    before, after = (np.bincount(at, weights, len(LEVELS)).astype(np.int64)
                     for at, weights in ((level, counts), (level[place[again]], later_counts[again])))
    return Returns(before, after, int(later_counts[~again].sum()), int((counts == 1).sum()))


def _level(accesses: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(LEVELS, accesses, side="right") - 1
