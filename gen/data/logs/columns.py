"""Several columns of a log that look up one table, as one table of bags: its counts are those of all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gen.data.logs.log import Chunk, Piece, Pieces

Columns = Mapping[str, tuple[str, ...]]


def by_table(log: Pieces, columns: Columns) -> Pieces:
    """The log with a model's tables in place of its columns; the log itself where these have the same names.

    columns: of each table, by name. A table of several has the ids of all of them in one bag per sample, in their
    order. Other columns are left out.
    Raises      ValueError: a column that the log does not have
    """
    for table, names in columns.items():
        for name in names:
            if name not in log.tables:
                raise ValueError(f"table {table}: {log.source} has no column {name!r}; it has {', '.join(log.tables)}")
    if all(names == (table,) for table, names in columns.items()):
        return log
    joined = [_Joined(piece.source, tuple(columns), bytes=piece.bytes, unread=piece.unread, form=piece.form,
                      piece=piece, columns=columns) for piece in log.pieces]
    return Pieces(log.source, joined, progress=log.progress, notes=log.notes)


@dataclass
class _Joined(Piece):
    """A piece with its columns joined. problems: the piece's own."""

    piece: Piece = field(kw_only=True, repr=False)
    columns: Columns = field(kw_only=True)

    def __post_init__(self) -> None:
        self.piece = replace(self.piece, first=self.first)
        self.problems = self.piece.problems

    @property
    def steady(self) -> bool:
        return self.piece.steady

    def _chunks(self, samples: int) -> Iterator[Chunk]:
        for chunk in self.piece.chunks(samples):
            self.done = self.piece.done
            ids, offsets = {}, {}
            for table, names in self.columns.items():
                if len(names) == 1:
                    ids[table] = chunk.ids[names[0]]
                    if names[0] in chunk.offsets:
                        offsets[table] = chunk.offsets[names[0]]
                else:
                    ids[table], offsets[table] = _bags(chunk, names)
            yield Chunk(chunk.first, chunk.samples, ids, offsets, chunk.values)


def _bags(chunk: Chunk, names: tuple[str, ...]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Ids and offsets of the columns' bags, one behind the other in each sample."""
    edges = [chunk.edges(name) for name in names]
    offsets = sum(edges, np.zeros(chunk.samples + 1, np.int64))
    found = np.empty(offsets[-1], np.uint64)
    begins = offsets[:-1].copy()
    for name, edge in zip(names, edges):
        lengths = np.diff(edge)
        found[np.repeat(begins - edge[:-1], lengths) + np.arange(edge[-1])] = chunk.ids[name]
        begins += lengths
    return found, offsets
