"""A log held in memory: of each table the rows that its samples look up, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gen.data.logs import bounds
from gen.data.logs.bounds import few
from gen.data.logs.log import Chunk, Log

#: Ids up to so many times those that a log has are rows themselves.
SPARSE = 4


def are_rows(largest: int, different: int) -> bool:
    """Whether ids serve as row numbers: the largest is not far above the number of different ids. Others, such as
    hashes, are numbered in ascending order."""
    return largest < SPARSE * different + 1024


@dataclass(frozen=True)
class Trace:
    """Samples of several tables, in the order of the log.

    indices: rows of each table; rows: size of each table; offsets: (samples + 1,) of tables whose samples have bags;
    values: (samples,) or (samples, k) of other columns; ids: of tables whose ids are no row numbers, the id of every
    row, ascending; note: that there are more samples than are held.
    """

    source: str
    indices: dict[str, NDArray[np.int64]]
    rows: dict[str, int]
    offsets: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    values: dict[str, NDArray] = field(default_factory=dict)
    ids: dict[str, NDArray[np.uint64]] = field(default_factory=dict)
    note: str = ""

    @classmethod
    def of(cls, log: Log, *, numbered: bool = False, head: bool = False) -> "Trace":
        """A whole log.

        Parameters  numbered: rows are the ids that occur, in ascending order, in every table; head: of a log that is
                    larger than what is held, the first samples
        Raises      ValueError: the log's; more than bounds.WHOLE bytes without `head`
        """
        chunks: list[Chunk] = []
        size, note = 0, ""
        for chunk in log.chunks():
            size += sum(each.nbytes for group in (chunk.ids, chunk.offsets, chunk.values) for each in group.values())
            if size > bounds.WHOLE:
                if head and chunks:
                    note = ", the first of the log: no more are held in memory"
                    break
                raise ValueError(f"{log.source} has more than {bounds.WHOLE:,} bytes of ids and values, which is the "
                                 "most that is held in memory")
            chunks.append(chunk)
        indices, rows, ids = {}, {}, {}
        for name in log.tables:
            joined = np.concatenate([np.zeros(0, np.uint64), *(chunk.ids.pop(name) for chunk in chunks)])
            indices[name], rows[name], named = _rows_of(joined, numbered)
            if named is not None:
                ids[name] = named
        columns = common_values(chunks)
        offsets, values = _offsets(chunks), {
            name: np.concatenate([chunk.values[name] for chunk in chunks]) for name in columns}
        return cls(log.source, indices, rows, offsets, values, ids, note)

    @property
    def samples(self) -> int:
        return min(len(self.offsets[name]) - 1 if name in self.offsets else len(array)
                   for name, array in self.indices.items())

    def table(self, name: str) -> NDArray[np.int64]:
        """Rows that table `name` is asked for; ValueError names the tables that exist."""
        if name not in self.indices:
            raise ValueError(f"{self.source} has no table {name!r}; it has {few(sorted(self.indices))}")
        return self.indices[name]

    def bags(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(indices, offsets) of a table; one index per sample is a bag of one."""
        indices = self.table(name)
        offsets = self.offsets.get(name)
        return indices, np.arange(len(indices) + 1) if offsets is None else offsets


def common_values(chunks: Sequence[Chunk]) -> list[str]:
    """Columns of values that all files of a log have."""
    return [name for name in (chunks[0].values if chunks else ()) if all(name in chunk.values for chunk in chunks)]


def picked(indices: NDArray[np.int64], offsets: NDArray[np.int64], samples: NDArray[np.integer]) \
        -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(indices, offsets) of the bags of some samples, given those of all."""
    lengths = offsets[samples + 1] - offsets[samples]
    edges = np.concatenate([[0], np.cumsum(lengths)])
    at = np.repeat(offsets[samples] - edges[:-1], lengths) + np.arange(edges[-1])
    return indices[at], edges


def _rows_of(ids: NDArray[np.uint64], numbered: bool) -> tuple[NDArray[np.int64], int, NDArray[np.uint64] | None]:
    """(row of each id, rows, the ids by row where they are no rows themselves)."""
    largest = int(ids.max()) if ids.size else -1
    if not numbered and are_rows(largest, ids.size):
        rows = ids.view(np.int64)
        if are_rows(largest, int(np.count_nonzero(np.bincount(rows)))):
            return rows, largest + 1, None
    named, rows = np.unique(ids, return_inverse=True)
    return rows.reshape(-1).astype(np.int64, copy=False), len(named), named


def _offsets(chunks: list[Chunk]) -> dict[str, NDArray[np.int64]]:
    """Of all chunks together, by table."""
    found = {}
    for name in chunks[0].offsets if chunks else ():
        lengths = np.concatenate([np.diff(chunk.offsets[name]) for chunk in chunks])
        found[name] = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return found
