"""A table's accesses as they came, by the rank of their rows: what a batch asks for that counts of rows do not say.

Rows that are asked for together lie on the same pages, or do not; a row comes again soon, or does not. Both are counted
on the samples that a profile has kept, batch after batch of consecutive ones, and held against what as many accesses
drawn independently by the rows' counts would give. The quotient of both is what a planner takes over to batches of
accesses that are expected.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gen.data.expected import expected, expected_counts
from gen.data.profile import Heat
from gen.data.remap import by_heat, rows_of

if TYPE_CHECKING:
    from gen.data.profile import TableProfile
    from gen.model.recommender import TableSpec


@dataclass(frozen=True, eq=False)
class Order:
    """Of one table. ranks (n,): of the row of each access, 0 the one of which most is expected; samples (n,): the
    number of its sample; runs: samples of each stretch of consecutive ones; heat: of the rows of the whole log;
    pooling: accesses of a sample of it; lacking: ranks from the first to before the second are of rows that it does not
    have."""

    ranks: NDArray[np.int64]
    samples: NDArray[np.int64]
    runs: NDArray[np.int64]
    heat: Heat
    pooling: float
    lacking: tuple[int, int] = (0, 0)
    _kept: dict[tuple[int, ...], NDArray[np.int64]] = field(default_factory=dict, repr=False)
    _behind: dict[int, "Order | None"] = field(default_factory=dict, repr=False)

    def placed(self, places: NDArray[np.int64]) -> "Order | None":
        """With places (n,) of the rows of its accesses for their ranks; without those to places below 0. None if there
        are no others."""
        there = places >= 0
        if not there.any():
            return None
        return replace(self, ranks=places[there], samples=self.samples[there], _kept={}, _behind={})

    def behind(self, cut: int) -> "Order | None":
        """Of the rows from that rank on, ranked from there; made once."""
        if cut not in self._behind:
            self._behind[cut] = self.placed(self.ranks - cut)
        return self._behind[cut]

    def of_log(self, cuts: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of the hottest cuts[i] rows the log has."""
        first, end = self.lacking
        return cuts - np.clip(cuts - first, 0, end - first)

    def batch_of(self, lookups: float) -> int:
        """Consecutive samples that are counted together, where a batch has so many accesses: as many as it has, or as
        the longest stretch does."""
        return int(min(max(round(lookups / self.pooling), 1), self.runs.max()))

    def batches(self, size: int) -> tuple[NDArray[np.int64], int]:
        """(batch of each access, or -1 behind the last whole one of its stretch; batches), of `size` samples."""
        first = np.cumsum(self.runs) - self.runs
        whole = self.runs // size
        run = np.repeat(np.arange(len(self.runs)), self.runs)
        inside = np.arange(int(self.runs.sum())) - first[run]
        batch = np.where(inside < whole[run] * size, (np.cumsum(whole) - whole)[run] + inside // size, -1)
        return batch[self.samples], int(whole.sum())

    def pages(self, page_rows: int, size: int) -> tuple[NDArray[np.int64], int]:
        """(pages of page_rows rows by rank, as often as a batch asks for each, ascending; batches)."""
        batch, count = self.batches(size)

        def first() -> NDArray[np.int64]:
            by_page = self.kept((page_rows,), lambda: np.argsort(self.ranks // page_rows, kind="stable"))
            page, of = self.ranks[by_page] // page_rows, batch[by_page]
            again = np.append(False, (np.diff(page) == 0) & (np.diff(of) == 0))
            return page[~again & (of >= 0)]

        return self.kept((page_rows, size), first), count

    def touched(self, cuts: NDArray[np.int64], page_rows: int, size: int) -> NDArray[np.float64]:
        """(len(cuts),) different pages that a batch asks for on average, where rows from that rank on are asked for;
        between two ends of pages on a straight line."""
        pages, count = self.pages(page_rows, size)
        page, inside = cuts // page_rows, cuts % page_rows
        behind, next_ = (len(pages) - np.searchsorted(pages, each) for each in (page, page + 1))
        return (behind - (behind - next_) * (inside / page_rows)) / count

    def accesses(self, size: int) -> float:
        """Of a batch, on average."""
        batch, count = self.batches(size)
        return int(np.count_nonzero(batch >= 0)) / count

    def kept(self, key: tuple[int, ...], made: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
        """What was made once under this key."""
        if key not in self._kept:
            self._kept[key] = made()
        return self._kept[key]


    @classmethod
    def of(cls, table: "TableProfile", rank: NDArray[np.int64], heat: Heat) -> "Order | None":
        """None of a profile that has kept no samples. rank: of each of its ids. Accesses to ids that it has not counted
        are left out."""
        excerpt = table.excerpt
        if excerpt is None:
            return None
        sample = np.repeat(np.arange(len(excerpt.edges) - 1), np.diff(excerpt.edges))
        known = excerpt.places < len(rank)
        if not known.any():
            return None
        return cls(rank[excerpt.places[known]], sample[known], excerpt.runs, heat, table.pooling)


def ordered(spec: "TableSpec", table: "TableProfile") -> Order | None:
    """Of a table by its own ranks; None of a profile that has kept no samples. All accesses count alike here: by their
    age rows that went together would have ranks, and pages, close to each other for that reason alone."""
    table = replace(table, aged=None)
    if table.excerpt is None or table.ids is None:
        return None
    rank = ranked(spec, table, table.ids)[0]
    seen = np.unique(rank)
    first = int(np.argmax(np.append(seen, -1) != np.arange(len(seen) + 1)))
    found = Order.of(table, rank, expected(spec, table, unseen=False).heat)
    return found and replace(found, lacking=(first, first + max(spec.rows - len(seen), 0)))


def ranked(spec: "TableSpec", known: "TableProfile", ids: NDArray[np.uint64]) \
        -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Of ids: the place of their rows among all, as the bundle orders them, and whether the log has row or id. Rows
    that it does not have are alike and come as they are numbered; so that they take no memory."""
    known = known.ranking(spec.ids)
    assert known.ids is not None and known.counts is not None
    of_known = rows_of(spec, known.ids, known.ids)
    extra = [spec.rows - 1] if spec.ids == "vocabulary" else []
    rows, at = np.unique(np.append(of_known, extra).astype(np.int64), return_inverse=True)
    counts = np.bincount(at, weights=np.append(known.counts, np.zeros(len(extra))), minlength=len(rows))
    # Before them one row without an access: what is expected of those that the log does not have.
    asked = expected_counts(spec, np.append(0, counts).astype(np.int64), known)
    other = asked[0]
    rank = np.empty(len(rows), np.int64)
    rank[by_heat(asked[1:])] = np.arange(len(rows))
    rank += (asked[1:] < other) * (spec.rows - len(rows))
    first = int((asked[1:] >= other).sum())
    wanted = rows_of(spec, ids, known.ids)
    place = np.searchsorted(rows, wanted)
    there = rows[np.minimum(place, len(rows) - 1)] == wanted if len(rows) else np.zeros(len(wanted), bool)
    found = np.where(there, rank[np.minimum(place, len(rows) - 1)] if len(rows) else 0, first + wanted - place)
    return found, np.isin(ids, known.ids) if spec.ids == "vocabulary" else there
