"""Parquet logs: a sample a row; columns of whole numbers are ids, of lists of them bags, of floats values."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gen.data.logs import bounds, cells
from gen.data.logs.bounds import COLUMNS, few, readable, samples_at_once, twice, unpacked
from gen.data.logs.cells import LISTED
from gen.data.logs.log import PIECE_BYTES, Chunk, Piece, Problems, endure
from gen.data.logs.reading import Form
from gen.data.logs.text import NONE, is_id, lists_of

#: Names of whole numbers that are values all the same, unless they are asked for as tables.
VALUES = re.compile(r"label|click|clicked|is_click|target|rating|timestamp|time|hour|I\d\d?", re.IGNORECASE)


#: Floats from which on not every whole number is one.
EXACT = 1 << 53
#: Bytes of a text, and entries of a list, in the file's description of itself.
TEXT, ENTRIES = 1 << 24, 1 << 17
PLACES = 1 << 18    # row groups times columns
HEAD = 1000         # rows in which texts are looked at for lists
#: The row index of pandas and Dask, by the names that they give it.
INDEX = re.compile(r"__index_level_[0-9]+__|__null_dask_index__")
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


def pieces(path: Path, tables: Iterable[str] | None, missing: int | None, broken: float, lists: Sequence[str] = (),
           order_by: str | None = None) -> list[Piece]:
    """A file by its row groups, small ones together. lists: see gen.data.logs.text.lists_of; order_by: a column whose
    numbers or times are values whatever its name is.

    Raises      ValueError: no Parquet, no table in it, a column that is missing, there twice or holds no ids; more
                columns or row groups than are read, numbers that are far more than the file has bytes
    """
    with _opened(path) as file:
        schema, metadata = _schema(path, file), file.metadata
        chosen, index = _chosen(path, schema, tables)
        columns = set(chosen)
        values = tuple(each.name for each in schema if each.name not in columns and (
            each.name == order_by or each.name not in index and (
                _is_real(each.type) or pa.types.is_boolean(each.type)
                or pa.types.is_integer(each.type) and VALUES.fullmatch(each.name))))
        # Of row groups alone: what pyarrow knows of a column in one may end the process where it is damaged.
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        unpacked(path, 8 * (len(chosen) + len(values)) * sum(group.num_rows for group in groups), path.stat().st_size)
        flat = tuple(name for name in chosen if _is_text(schema.field(name).type)
                     and not pa.types.is_nested(schema.field(name).type))
        signs = _signs(path, flat, lists) if groups and (flat or lists) else {}
        splits = {name: sign for name, sign in signs.items() if sign != NONE}
        single = tuple(name for name, sign in signs.items() if sign == NONE)
        unread = {name: _why(name, schema.field(name).type, index) for name in schema.names
                  if name not in columns and name not in values}
        named = tables is None and any(map(is_id, chosen))
        form = Form("Parquet", {name: _how(schema.field(name).type, splits.get(name, NONE)) + (
            "; no id by its name: --table names the tables" if named and not is_id(name)
            and pa.types.is_integer(schema.field(name).type) else "") for name in chosen}, unread)
        piece = ParquetPiece(str(path), chosen, path=path, values=values, missing=missing, broken=broken, texts=flat,
                             splits=splits, single=single, form=form, unread=tuple(unread), lists=bool(splits) or any(
                                 pa.types.is_nested(schema.field(name).type) for name in chosen))
        parts: list[Piece] = []
        start = rows = size = most = 0
        for number, group in enumerate(groups, start=1):
            rows, size = rows + group.num_rows, size + group.total_byte_size
            most = max(most, group.total_byte_size // max(group.num_rows, 1))
            if size >= PIECE_BYTES or number == len(groups):
                parts.append(replace(piece, bytes=size, start=start, stop=number, rows=rows, wide=most))
                start, rows, size, most = number, 0, 0, 0
        return parts or [piece]


def _chosen(path: Path, schema: pa.Schema, tables: Iterable[str] | None) -> tuple[tuple[str, ...], frozenset[str]]:
    """The columns that are tables, and those of the writer's row index, which are none unless they are asked for."""
    index = _index(schema)
    if tables is None:
        chosen = tuple(each.name for each in schema if each.name not in index and not VALUES.fullmatch(each.name) and (
            _is_whole(each.type) or is_id(each.name) and (_is_real(each.type) or _is_text(each.type))))
    else:
        chosen = tuple(tables)
    if not chosen:
        raise ValueError(f"{path} has no column of whole numbers or lists of them; name the tables (--table); "
                         f"there are {few(schema.names)}")
    names = set(schema.names)
    for name in chosen:
        if name not in names:
            raise ValueError(f"{path} has no column {name!r}; it has {few(schema.names)}")
        kind = schema.field(name).type
        if not (_is_whole(kind) or _is_text(kind) or _is_real(_inner(kind))):
            raise ValueError(f"{path}: the column {name!r} is {kind}; ids are whole numbers, texts or lists of them")
    return chosen, index


def _index(schema: pa.Schema) -> frozenset[str]:
    """Columns that hold the row index of pandas or Dask, by the file's own description and by their names. An index
    that has an id's name is one that was given to it."""
    described: Any = ()
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        described = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", ())
    named = {each for each in described if isinstance(each, str)} if isinstance(described, list) else set()
    return frozenset(name for name in schema.names if name in named and not is_id(name) or INDEX.fullmatch(name))


def _signs(path: Path, texts: Sequence[str], lists: Sequence[str]) -> dict[str, str]:
    """What stands between the ids of a text, of columns whose texts may be lists, by the first rows."""
    columns: dict[str, list[str]] = {name: [] for name in texts}
    with _opened(path, texts) as file:
        for batch in islice(file.iter_batches(HEAD, [0], list(texts)) if texts else (), 1):
            for name in texts:
                # Each text once, as the file has them: rows may repeat a long one.
                distinct = _plain(batch.column(name)).unique()
                distinct = distinct.dictionary_decode() if pa.types.is_dictionary(distinct.type) else distinct
                columns[name] = [str(each, errors="replace") if isinstance(each, bytes) else each
                                 for each in distinct.to_pylist() if each is not None]
    return lists_of(columns, lists, str(path))


def _why(name: str, kind: pa.DataType, index: frozenset[str]) -> str:
    return "the writer's row index" if name in index else "not asked for" if _is_whole(kind) else str(kind)


def _how(kind: pa.DataType, split: str) -> str:
    """How ids are understood, in words."""
    if split != NONE:
        return "lists in brackets" if split == "\0" else f"lists, separated by {split!r}"
    ids = "texts, hashed" if _is_text(kind) else "whole numbers"
    return f"lists of {ids}" if pa.types.is_nested(kind) else ids


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
    inner = kind.value_type if _is_list(kind) else kind
    inner = inner.value_type if pa.types.is_dictionary(inner) else inner
    return getattr(inner, "storage_type", inner)


def _is_list(kind: pa.DataType) -> bool:
    return any(each(kind) for each in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list,
                                       pa.types.is_list_view, pa.types.is_large_list_view))


def _is_real(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_whole(kind: pa.DataType) -> bool:
    return pa.types.is_integer(_inner(kind))


def _is_text(kind: pa.DataType) -> bool:
    return any(each(_inner(kind)) for each in (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary,
        pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary))


@dataclass
class ParquetPiece(Piece):
    """Row groups start to stop of a file.

    texts: tables of texts; splits: what stands between the ids of a text, where texts are lists, a NUL for brackets
    alone; single: texts that are single ids whatever they look like; lists: whether a table has lists; wide: bytes of a
    row on average, in the row group that has most.

    Raises      ValueError, while it is read: more broken rows than may be, a file that is damaged, a list of more than
                BAG ids
    """

    path: Path = field(kw_only=True)
    values: tuple[str, ...] = field(default=(), kw_only=True)
    missing: int | None = field(default=None, kw_only=True)
    broken: float = field(default=0.01, kw_only=True)
    texts: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    splits: Mapping[str, str] = field(default_factory=dict, kw_only=True, repr=False)
    single: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
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
                length = batch.num_rows
                batch = self._whole(self._split(batch, before + read), before + read)
                read, good = read + length, good + batch.num_rows
                self.done = self.bytes * read // max(self.rows, 1)
                endure(self.source, "rows", self.problems, good, read - good, self.broken)
                if batch.num_rows:
                    yield self._chunk(batch, first)
                    first += batch.num_rows
        if read and not good:
            endure(self.source, "rows", self.problems, 0, read, 0)

    def _split(self, batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
        """With lists where texts are lists, and whole numbers where floats are ids."""
        for place, name in enumerate(self.tables):
            column = _plain(batch.column(name))
            if name in self.splits:
                column = self._lists(name, column, before)
            elif pa.types.is_floating(column.type):
                column = self._whole_numbers(name, column, before + np.arange(len(column)))
            elif pa.types.is_nested(column.type) and pa.types.is_floating(column.type.value_type):
                lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
                ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
                column = pa.LargeListArray.from_arrays(ends, self._whole_numbers(
                    name, pc.list_flatten(column), before + np.repeat(np.arange(len(column)), lengths)))
            elif name in self.texts:
                self._refuse_lists(name, column, before)
            batch = batch.set_column(place, name, column)
        return batch

    def _lists(self, name: str, column: pa.Array, before: int) -> pa.Array:
        try:
            return _listed(column, self.splits[name], self.missing)
        except IndexError as error:
            text = str(column[error.args[0]].as_py())[:80]
            raise ValueError(f"{self.source}: row {before + error.args[0] + 1}: the column {name!r} has {text!r}, a "
                             "list of lists, or of keys and values, or one that is cut; --list "
                             f"{name}=none reads single ids") from None

    def _whole_numbers(self, name: str, column: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
        """Ids that a program wrote as floats, as some are missing. rows: where each is."""
        numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
        none = np.isnan(numbers)
        odd = np.flatnonzero(~none & ((numbers != np.floor(numbers)) | (np.abs(numbers) >= EXACT)))
        if len(odd):
            raise ValueError(f"{self.source}: row {rows[odd[0]] + 1}: the column {name!r} has {numbers[odd[0]]:g}; "
                             f"ids written as floats are whole numbers below 2**53 (--table names other columns)")
        return pa.array(np.where(none, 0, numbers).astype(np.int64), mask=none)

    def _refuse_lists(self, name: str, column: pa.Array, before: int) -> None:
        if name in self.single:
            return
        texts = column.dictionary if pa.types.is_dictionary(column.type) else column
        if pa.types.is_binary(texts.type) or pa.types.is_large_binary(texts.type):
            return
        odd = pc.index(pc.match_substring_regex(texts, f"^({LISTED.pattern})$"), True).as_py()
        if odd >= 0:
            raise ValueError(f"{self.source}: the column {name!r} has {texts[odd].as_py()[:80]!r} behind the first "
                             f"rows, which may be a list: --list '{name}=pipe' reads lists, --list {name}=none "
                             "single ids")

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
                self.problems.add("rows with an empty id", f"{self.source}: row {before + empty[0] + 1}: "
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
                raise ValueError(f"{self.source}: the lists of {name!r} do not hold what they say")
        bounds.together(self.source, offsets, batch.num_rows)
        values = {name: self._values(name, batch.column(name)) for name in self.values}
        return Chunk(first, batch.num_rows, ids, offsets, values)

    def _values(self, name: str, column: pa.Array) -> NDArray:
        if not _is_text(column.type):
            return _numbers(column)
        times = _times(column)
        if len(odd := np.flatnonzero(np.isnan(times))) and (text := column[odd[0]].as_py()) is not None:
            raise ValueError(f"{self.source}: the column {name!r} has {str(text)[:80]!r}, which is neither a number "
                             "nor a time, as 2024-01-31 23:59:58")
        return times


def _plain(column: pa.Array) -> pa.Array:
    """Without an extension of the type, views and fixed widths; decimals as texts."""
    column = getattr(column, "storage", column)
    kind, inner = column.type, _inner(column.type)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        column = column.cast(pa.large_list(kind.value_type))
    target = (pa.large_string() if pa.types.is_string_view(inner) or pa.types.is_decimal(inner) else
              pa.large_binary() if pa.types.is_binary_view(inner) or pa.types.is_fixed_size_binary(inner) else None)
    return column if target is None else column.cast(pa.large_list(target) if _is_list(kind) else target)


def _listed(column: pa.Array, sign: str, missing: int | None) -> pa.Array:
    """Texts as lists of ids, as gen.data.logs.cells has them: an empty list where there is none. sign: see
    ParquetPiece.splits.

    Raises      IndexError: the place of a list of lists, or one that is cut
    """
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    _, edges, data = pc.fill_null(column.cast(pa.large_binary()), b"").buffers()
    at = np.frombuffer(edges, np.int64)[column.offset:column.offset + len(column) + 1]
    room = int(at[-1] - at[0]) + len(column) + 1
    ids, none, ends = np.empty(room, np.uint64), np.zeros(room, bool), np.zeros(len(column) + 1, np.int64)
    odd = cells.lists_of(np.frombuffer(data or b"\0", np.uint8), at, ord(sign), np.uint64(missing or 0),
                         missing is not None, ids, ends, none)
    if odd >= 0:
        raise IndexError(odd)
    return pa.LargeListArray.from_arrays(ends, pa.array(ids[:ends[-1]], mask=none[:ends[-1]]))


def _times(column: pa.Array) -> NDArray[np.float64]:
    """Texts that are times or numbers, as seconds since 1970; NaN where one is none."""
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    _, edges, data = column.cast(pa.large_binary()).buffers()
    at = np.frombuffer(edges, np.int64)[column.offset:column.offset + len(column) + 1]
    return cells.moments_of(np.frombuffer((data.to_pybytes() if data else b"") + b"\n", np.uint8), at)


def _numbers(column: pa.Array) -> NDArray:
    """Values, NaN where there is none; times as whole numbers."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if column.null_count and pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return column.to_numpy(zero_copy_only=False)


def _ids(column: pa.Array, missing: int) -> NDArray[np.uint64]:
    """Whole numbers as they are, -n as 2**64 - n, texts as gen.data.logs.cells has them."""
    if pa.types.is_dictionary(column.type):
        # Each of those that differ once; there is one more for what is missing.
        place = pc.fill_null(column.indices.cast(pa.int64()), len(column.dictionary)).to_numpy()
        return np.append(_ids(column.dictionary, missing), np.uint64(missing))[place]
    if pa.types.is_integer(column.type):
        if column.null_count:
            # A null whose place is kept: of the ids 0 .. 2**64 - 1 each may be another.
            empty = column.is_null().to_numpy(zero_copy_only=False)
            ids = _ids(pc.fill_null(column, 0), 0).copy()
            ids[empty] = missing
            return ids
        return column.to_numpy().astype(np.uint64)
    empty = column.is_null().to_numpy(zero_copy_only=False)
    column = column.cast(pa.large_binary()) if not pa.types.is_large_string(column.type) else column
    _, edges, data = column.buffers()
    at = np.frombuffer(edges, np.int64)[column.offset:column.offset + len(column) + 1]
    ids = np.empty(len(column), np.uint64)
    cells.ids_of(np.frombuffer(data or b"", np.uint8), at, ids)
    ids[empty] = missing
    return ids
