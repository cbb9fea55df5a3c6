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

from gen.data.logs import bounds, parse
from gen.data.logs.bounds import COLUMNS, few, readable, samples_at_once, twice, unpacked
from gen.data.logs.log import PIECE_BYTES, Chunk, Piece, Problems, endure

__all__ = ["VALUES", "ParquetPiece", "pieces"]

#: Names of whole numbers that are values all the same, unless they are asked for as tables.
VALUES = re.compile(r"label|click|clicked|is_click|target|rating|timestamp|time|hour|I\d\d?", re.IGNORECASE)


#: Bytes of a text, and entries of a list, in the file's description of itself.
TEXT, ENTRIES = 1 << 24, 1 << 17
PLACES = 1 << 18    # row groups times columns
BATCH = 1 << 24     # bytes of rows with lists that are read at once, about


@contextmanager
def _opened(path: Path, texts: Iterable[str] = ()) -> Iterator[pq.ParquetFile]:
    """texts: columns whose texts are kept as numbers into a list of those that differ."""
    with readable(path, "Parquet"):
        try:
            with pq.ParquetFile(path, read_dictionary=list(texts), thrift_string_size_limit=TEXT,
                                thrift_container_size_limit=ENTRIES, page_checksum_verification=True) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise ValueError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def pieces(path: Path, tables: Iterable[str] | None, missing: int | None, broken: float) -> list[Piece]:
    """A file by its row groups, small ones together.

    Raises      ValueError: no Parquet, no table in it, a column that is missing, there twice or holds no ids; more
                columns or row groups than are read, numbers that are far more than the file has bytes
    """
    with _opened(path) as file:
        schema, metadata = _schema(path, file), file.metadata
        names = set(schema.names)
        if tables is None:
            chosen = tuple(each.name for each in schema if _is_whole(each.type) and not VALUES.fullmatch(each.name))
        else:
            chosen = tuple(tables)
        if not chosen:
            raise ValueError(f"{path} has no column of whole numbers or lists of them; name the tables; "
                             f"there are {few(schema.names)}")
        for name in chosen:
            if name not in names:
                raise ValueError(f"{path} has no column {name!r}; it has {few(schema.names)}")
            if not _is_whole(schema.field(name).type) and not _is_text(schema.field(name).type):
                raise ValueError(f"{path}: the column {name!r} is {schema.field(name).type}; "
                                 "ids are whole numbers, texts or lists of them")
        wanted = set(chosen)
        values = tuple(each.name for each in schema if each.name not in wanted and (
            pa.types.is_floating(each.type) or pa.types.is_boolean(each.type)
            or pa.types.is_integer(each.type) and VALUES.fullmatch(each.name)))
        # Of row groups alone: what pyarrow knows of a column in one may end the process where it is damaged.
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        unpacked(path, 8 * (len(chosen) + len(values)) * sum(group.num_rows for group in groups), path.stat().st_size)
        whole = ParquetPiece(str(path), chosen, path=path, values=values, missing=missing, broken=broken,
                             texts=tuple(name for name in chosen if _is_text(schema.field(name).type)
                                         and not pa.types.is_nested(schema.field(name).type)),
                             lists=any(pa.types.is_nested(schema.field(name).type) for name in chosen),
                             unread=tuple(name for name in schema.names if name not in wanted and name not in values))
        found: list[Piece] = []
        start = rows = size = most = 0
        for number, group in enumerate(groups, start=1):
            rows, size = rows + group.num_rows, size + group.total_byte_size
            most = max(most, group.total_byte_size // max(group.num_rows, 1))
            if size >= PIECE_BYTES or number == len(groups):
                found.append(replace(whole, bytes=size, start=start, stop=number, rows=rows, wide=most))
                start, rows, size, most = number, 0, 0, 0
        return found or [whole]


def _schema(path: Path, file: pq.ParquetFile) -> pa.Schema:
    """Raises ValueError: too many columns or row groups, a name that is there twice"""
    columns, groups = len(file.schema), file.metadata.num_row_groups
    if columns > COLUMNS or columns * groups > PLACES * 64 or groups > PLACES:
        raise ValueError(f"{path} has {columns:,} columns in {groups:,} row groups; at most {COLUMNS:,} columns and "
                         f"{PLACES:,} groups are read")
    schema = file.schema_arrow
    if (double := twice(schema.names)) is not None:
        raise ValueError(f"{path} has the column {double!r} twice")
    return schema


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

    texts: tables of texts; lists: whether a table has lists; wide: bytes of a row on average, in the row group that has
    most.

    Raises      ValueError, while it is read: more broken rows than may be, a file that is damaged, a list of more than
                BAG ids
    """

    path: Path = field(kw_only=True)
    values: tuple[str, ...] = field(default=(), kw_only=True)
    missing: int | None = field(default=None, kw_only=True)
    broken: float = field(default=0.01, kw_only=True)
    texts: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    start: int = field(default=0, kw_only=True)
    stop: int = field(default=0, kw_only=True)
    rows: int = field(default=0, kw_only=True)
    lists: bool = field(default=False, kw_only=True)
    wide: int = field(default=1, kw_only=True)

    def _chunks(self, samples: int) -> Iterator[Chunk]:
        self.problems, self.done = Problems(), 0
        first, good, read = self.first, 0, 0
        samples = samples_at_once(samples, len(self.tables) + len(self.values))
        if self.lists:
            samples = max(1, min(samples, BATCH // max(self.wide, 1)))
        with _opened(self.path, self.texts) as file:
            before = sum(file.metadata.row_group(number).num_rows for number in range(self.start))
            for batch in file.iter_batches(samples, range(self.start, self.stop), [*self.tables, *self.values]):
                batch, length = self._whole(batch, before + read), batch.num_rows
                read, good = read + length, good + batch.num_rows
                self.done = self.bytes * read // max(self.rows, 1)
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
            if name in offsets and len(ids[name]) != offsets[name][-1]:
                raise ValueError(f"{self.path}: the lists of {name!r} do not hold what they say")
        bounds.together(self.source, offsets, batch.num_rows)
        return Chunk(first, batch.num_rows, ids, offsets, {name: _numbers(batch.column(name)) for name in self.values})


def _numbers(column: pa.Array) -> NDArray:
    """Values, NaN where there is none."""
    if column.null_count and pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return column.to_numpy(zero_copy_only=False)


def _ids(column: pa.Array, missing: int) -> NDArray[np.uint64]:
    """Whole numbers as they are, -n as 2**64 - n, texts as gen.data.logs.parse has them."""
    if pa.types.is_dictionary(column.type):
        # Each of those that differ once; there is one more for what is missing.
        place = pc.fill_null(column.indices.cast(pa.int64()), len(column.dictionary)).to_numpy()
        return np.append(_ids(column.dictionary, missing), np.uint64(missing))[place]
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
