"""What a click log says of each table, as an object that is saved and planned from.    Source: SCRec §III.B, Fig. 6"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Heat", "Profile", "TableProfile"]

FEW = 1 << 12


@dataclass(frozen=True, eq=False)
class Heat:
    """How often rows are accessed: `rows[k]` rows of `accesses[k]` accesses each, hottest first, no zeros. int64 both.

    It is all that the CDF needs, exact, and short however long the table is.
    """

    accesses: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, counts: ArrayLike) -> "Heat":
        """Out of the accesses of every row, in any order, zeros among them or not."""
        kept = np.asarray(counts, np.int64)
        # Nearly all counts are small: no need to sort them.
        few = np.bincount(np.minimum(kept, FEW), minlength=FEW + 1)[:FEW]
        low = np.flatnonzero(few[1:]) + 1
        high, rows = np.unique(kept[kept >= FEW], return_counts=True)
        return cls(np.concatenate([high[::-1], low[::-1]]), np.concatenate([rows[::-1], few[low[::-1]]]))

    @classmethod
    def joined(cls, accesses: ArrayLike, rows: ArrayLike) -> "Heat":
        """Out of so many rows of so many accesses, in any order, the same number of accesses more than once or not."""
        given, many = np.asarray(accesses, np.int64), np.asarray(rows, np.int64)
        there = (given > 0) & (many > 0)
        levels, at = np.unique(given[there], return_inverse=True)
        sums = np.zeros(len(levels), np.int64)
        np.add.at(sums, at, many[there])
        return cls(levels[::-1].copy(), sums[::-1].copy())

    @property
    def total(self) -> int:
        return int(self.accesses @ self.rows)

    @property
    def touched(self) -> int:
        """Rows that are accessed at all."""
        return int(self.rows.sum())

    def cdf(self, rows: ArrayLike) -> NDArray[np.float64]:
        """The share of accesses that falls on so many of the hottest rows."""
        edges = np.concatenate([[0], np.cumsum(self.rows)])
        sums = np.concatenate([[0], np.cumsum(self.rows * self.accesses)])
        return np.interp(np.asarray(rows, np.float64), edges, sums) / max(self.total, 1)

    def icdf(self, shares: ArrayLike) -> NDArray[np.int64]:
        """The fewest rows on which at least these shares of the accesses fall."""
        wanted = np.ceil(np.asarray(shares, np.float64) * self.total - 1e-6)
        sums = np.cumsum(self.rows * self.accesses)
        at = np.minimum(np.searchsorted(sums, wanted), len(sums) - 1)
        before, edges = sums - self.rows * self.accesses, np.cumsum(self.rows) - self.rows
        more = np.ceil(np.maximum(wanted - before[at], 0) / self.accesses[at])
        return np.where(wanted > 0, edges[at] + more, 0).astype(np.int64)


@dataclass(frozen=True, eq=False)
class TableProfile:
    """One table. samples: of the log. bag_lengths, bag_samples: the pooling factor's distribution: so many samples have
    a bag of that length; an empty bag is one of length 0. ids, counts: ascending ids and how often each was accessed
    (None where only statistics are known). rows: of the model's table where one was named, else those touched."""

    name: str
    rows: int
    samples: int
    heat: Heat
    bag_lengths: NDArray[np.int64]
    bag_samples: NDArray[np.int64]
    ids: NDArray[np.uint64] | None = None
    counts: NDArray[np.int64] | None = None

    @property
    def pooling(self) -> float:
        """The average pooling factor."""
        return self.heat.total / max(self.samples, 1)


@dataclass(frozen=True, eq=False)
class Profile:
    """Of a log. tables: by name, in its order. extras: what further analyses found (popular samples over memory,
    correlation of tables, miss-ratio curves, errors of subsampling), arrays by name."""

    source: str
    samples: int
    tables: Mapping[str, TableProfile]
    sampled: float = 1.0
    extras: Mapping[str, NDArray] = field(default_factory=dict)
