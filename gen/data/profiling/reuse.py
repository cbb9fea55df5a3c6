"""Miss ratios over a cache's size: of a fixed set of the hottest rows, and of LRU by reuse distances.

The reuse distance of an access is how many other rows have been accessed since its row was; LRU with more rows than
that hits it. Long logs are thinned by a hash of the ids, all accesses of a row or none, and distances are scaled up
(SHARDS, Waldspurger et al., FAST 2015, with the correction for how many accesses the chosen rows have). Nothing is
thinned by chance, so the pieces of a log give the same curve as the whole.
"""

from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gen.data.profile import TableProfile
from gen.data.profiling.count import GOLDEN

#: Cache sizes in shares of the rows touched.
POINTS = tuple(2.0**-power for power in range(10, -1, -1))
STREAM = 1 << 18    # accesses of a table that are kept, about
FEWEST = 256        # rows that must be kept for a curve


@dataclass(frozen=True, eq=False)
class Thinned:
    """Accesses of one table in their order, those of the rows whose hash is below `rate`. touched: its rows with
    accesses; seen: accesses, those left out among them."""

    rate: float
    touched: int
    seen: int = 0
    streams: tuple[NDArray[np.uint64], ...] = ()

    @classmethod
    def of(cls, table: TableProfile, sampled: float) -> "Thinned":
        rate = min(1.0, STREAM * sampled / max(table.heat.total, 1))
        return cls(rate if rate == 1 or rate * table.heat.touched >= FEWEST else 0.0, table.heat.touched)

    def of_chunk(self, ids: NDArray[np.uint64]) -> "Thinned":
        """Those of these accesses alone."""
        kept = ids if self.rate == 1 else ids[:0]
        if 0 < self.rate < 1:
            # Not the hash by which slots are found, or these would crowd together.
            words = (ids ^ ids >> np.uint64(29)) * GOLDEN
            words = (words ^ words >> np.uint64(32)) * GOLDEN
            kept = ids[words < np.uint64(int(self.rate * 2**64))]
        return replace(self, seen=len(ids), streams=(kept,))

    def __add__(self, other: "Thinned") -> "Thinned":
        """Of both, one behind the other."""
        return replace(self, seen=self.seen + other.seen, streams=self.streams + other.streams)

    def misses(self) -> NDArray[np.float64]:
        """The share of accesses that LRU misses with caches of POINTS; NaN where there is no curve."""
        if not self.rate or not self.seen:
            return np.full(len(POINTS), np.nan)
        stream = np.concatenate([np.zeros(0, np.uint64), *self.streams])
        apart = distances(stream) / self.rate
        sizes = np.ceil(np.array(POINTS) * self.touched)
        hits = np.array([np.count_nonzero((apart >= 0) & (apart < size)) for size in sizes])
        expected = self.rate * self.seen
        # Hot rows decide how many accesses come through: those too many or too few are hits of the smallest distance.
        return np.clip(1 - (hits + expected - len(stream)) / expected, 0, 1)


def static_misses(table: TableProfile) -> NDArray[np.float64]:
    """The share of accesses beside the hottest rows, for caches of POINTS that hold these and nothing else."""
    return 1 - table.heat.cdf(np.ceil(np.array(POINTS) * table.heat.touched))


def distances(ids: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Of each access, how many different other ids came since its own last did; -1 at an id's first."""
    _, which = np.unique(ids, return_inverse=True)
    return _distances(which, int(which.max(initial=-1)) + 1)


@njit(cache=True, nogil=True)
def _distances(which, different):       # pragma: no cover - compiled
    """A Fenwick tree over time counts the accesses that are the last of their row so far."""
    last = np.full(different, -1, np.int64)
    tree = np.zeros(len(which) + 1, np.int64)
    out = np.empty(len(which), np.int64)
    lasts = 0
    for now in range(len(which)):
        before = last[which[now]]
        out[now] = -1
        if before >= 0:
            at, older = before + 1, 0
            while at:
                older += tree[at]
                at &= at - 1
            out[now] = lasts - older
            at = before + 1
            while at <= len(which):
                tree[at] -= 1
                at += at & -at
            lasts -= 1
        at = now + 1
        while at <= len(which):
            tree[at] += 1
            at += at & -at
        lasts += 1
        last[which[now]] = now
    return out
