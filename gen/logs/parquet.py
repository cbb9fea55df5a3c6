"""Parquet logs: a sample a row; columns of whole numbers are ids, of lists of them bags, of floats values."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gen.logs import parse
from gen.logs.log import PIECE_BYTES, Chunk, Piece, Problems, endure

__all__ = ["VALUES", "ParquetPiece", "pieces"]

#: Names of whole numbers that are values all the same, unless they are asked for as tables.
VALUES = re.compile(r"label|click|clicked|is_click|target|rating|timestamp|time|hour|I\d\d?", re.IGNORECASE)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from None


def pieces(path: Path, tables: Iterable[str] | None, missing: int | None, broken: float) -> list[Piece]:
    """A file by its row groups, small ones together.

    Raises      ValueError: no Parquet, no table in it, a column that is missing or holds no ids
    """
    with _opened(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        if tables is None:
            chosen = tuple(each.name for each in schema if _is_whole(each.type) and not VALUES.fullmatch(each.name))
        else:
            chosen = tuple(tables)
        if not chosen:
            raise ValueError(f"{path} has no column of whole numbers or lists of them; name the tables; "
                             f"there are {', '.join(schema.names)}")
        for name in chosen:
            if name not in schema.names:
                raise ValueError(f"{path} has no column {name!r}; it has {', '.join(schema.names)}")
            if not _is_whole(schema.field(name).type) and not _is_text(schema.field(name).type):
                raise ValueError(f"{path}: the column {name!r} is {schema.field(name).type}; "
                                 "ids are whole numbers, texts or lists of them")
        values = tuple(each.name for each in schema if each.name not in chosen and (
            pa.types.is_floating(each.type) or pa.types.is_boolean(each.type)
            or pa.types.is_integer(each.type) and VALUES.fullmatch(each.name)))
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        whole = ParquetPiece(str(path), chosen, path=path, values=values, missing=missing, broken=broken,
                             unread=tuple(name for name in schema.names if name not in (*chosen, *values)))
        found: list[Piece] = []
        start = rows = size = 0
        for number, group in enumerate(groups, start=1):
            rows, size = rows + group.num_rows, size + group.total_byte_size
            if size >= PIECE_BYTES or number == len(groups):
                found.append(replace(whole, bytes=size, start=start, stop=number, rows=rows))
                start, rows, size = number, 0, 0
        return found or [whole]


def _inner(kind: pa.DataType) -> pa.DataType:
    """What a column holds, or its lists."""
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    inner = kind.value_type if lists else kind
    return inner.value_type if pa.types.is_dictionary(inner) else inner


def _is_whole(kind: pa.DataType) -> bool:
    return pa.types.is_integer(_inner(kind))


def _is_text(kind: pa.DataType) -> bool:
    inner = _inner(kind)
    return (pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_binary(inner)
            or pa.types.is_large_binary(inner))


@dataclass
class ParquetPiece(Piece):
    """Row groups start to stop of a file.

    Raises      ValueError, while it is read: more broken rows than may be, a file that is damaged
    """

    path: Path = field(kw_only=True)
    values: tuple[str, ...] = field(default=(), kw_only=True)
    missing: int | None = field(default=None, kw_only=True)
    broken: float = field(default=0.01, kw_only=True)
    start: int = field(default=0, kw_only=True)
    stop: int = field(default=0, kw_only=True)
    rows: int = field(default=0, kw_only=True)

    def chunks(self, samples: int = 65536) -> Iterator[Chunk]:
        self.problems, self.done = Problems(), 0
        first, good, read = self.first, 0, 0
        with _opened(self.path) as file:
            before = sum(file.metadata.row_group(number).num_rows for number in range(self.start))
            for batch in file.iter_batches(samples, range(self.start, self.stop), [*self.tables, *self.values]):
                batch, length = self._whole(batch, before + read), batch.num_rows
                read, good = read + length, good + batch.num_rows
                self.done = self.bytes * read // self.rows
                endure(str(self.path), "rows", self.problems, good, read - good, self.broken)
                if batch.num_rows:
                    yield self._chunk(batch, first)
                    first += batch.num_rows
        if read and not good:
            endure(str(self.path), "rows", self.problems, 0, read, 0)

    def _whole(self, batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
        """Without the rows that lack an id."""
        if self.missing is not None:
            return batch
        kept = np.ones(batch.num_rows, bool)
        for name in self.tables:
            column = batch.column(name)
            if pa.types.is_nested(column.type):
                parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
                empty = parents[pc.list_flatten(column).is_null().to_numpy(zero_copy_only=False)]
            else:
                empty = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else ()
            empty = np.unique(np.asarray(empty, np.int64))
            empty = empty[kept[empty]]
            if len(empty):
                self.problems.add("rows with an empty id", f"{self.path}: row {before + empty[0] + 1}: "
                                  f"the column {name!r} is empty", len(empty))
                kept[empty] = False
        return batch if kept.all() else batch.filter(pa.array(kept))

    def _chunk(self, batch: pa.RecordBatch, first: int) -> Chunk:
        ids, offsets = {}, {}
        for name in self.tables:
            column = batch.column(name)
            if pa.types.is_nested(column.type):
                lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
                offsets[name] = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
                column = pc.list_flatten(column)
            ids[name] = _ids(column, self.missing or 0)
        return Chunk(first, batch.num_rows, ids, offsets,
                     {name: batch.column(name).to_numpy(zero_copy_only=False) for name in self.values})


def _ids(column: pa.Array, missing: int) -> NDArray[np.uint64]:
    """Whole numbers as they are, -n as 2**64 - n, texts as gen.logs.parse has them."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        if column.null_count:
            # A null whose place is kept: of the ids 0 .. 2**64 - 1 each may be another.
            empty = column.is_null().to_numpy(zero_copy_only=False)
            found = _ids(pc.fill_null(column, 0), 0).copy()
            found[empty] = missing
            return found
        return column.to_numpy().astype(np.uint64)
    empty = column.is_null().to_numpy(zero_copy_only=False)
    column = column.cast(pa.large_binary()) if not pa.types.is_large_string(column.type) else column
    _, edges, data = column.buffers()
    at = np.frombuffer(edges, np.int64)[column.offset:column.offset + len(column) + 1]
    found = np.empty(len(column), np.uint64)
    parse.ids_of(np.frombuffer(data or b"", np.uint8), at, found)
    found[empty] = missing
    return found
