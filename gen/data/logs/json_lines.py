"""JSON lines, an object per sample, which pyarrow reads: a copy in Parquet that goes with the process."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from gen.base.pipes import folder_of_process, stands_for
from gen.data.logs import stream
from gen.data.logs.bounds import COLUMNS, few, readable
from gen.data.logs.parquet import VALUES
from gen.data.logs.text import is_id

FIRST = 1000        # lines that say which columns there are, and of which types


def as_parquet(path: Path, tables: tuple[str, ...] | None,
               order_by: str | None) -> tuple[Path, tuple[str, ...], Mapping[str, str]]:
    """(the copy, its columns that are tables, why others were left out). Tables are those named, else columns whose
    names are ids'; what the first lines do not have is ignored.

    Raises      ValueError: no JSON lines, no table in them, a later line of other types
    """
    stat = path.stat()
    return _copied(path, tables, order_by, (stat.st_ino, stat.st_size, stat.st_mtime_ns))


@cache
def _copied(path: Path, tables: tuple[str, ...] | None, order_by: str | None,
            state: tuple[int, ...]) -> tuple[Path, tuple[str, ...], Mapping[str, str]]:
    """As `as_parquet`. state: of the file, which may become another one."""
    folder = folder_of_process()
    copy, plain = folder / f"{path.name}.parquet", path
    stands_for(copy, str(path))
    with readable(path, "JSON lines"):
        if stream.compressed(path):
            plain = folder / "plain"
            with plain.open("wb") as file:
                stream.unpack(path, file)
        kinds = _kinds(path, plain)
        chosen = tuple(filter(is_id, kinds)) if tables is None else tables
        if not chosen:
            raise ValueError(f"{path}: no column has an id's name, as user_id, so name the columns that are indices "
                             f"(--table); there are {few(kinds)}")
        kept, left = [], {}
        for name, kind in kinds.items():
            whole = pa.types.is_integer(kind) and VALUES.fullmatch(name)
            if name in chosen or pa.types.is_boolean(kind):
                kept.append(pa.field(name, kind))
            elif name == order_by and pa.types.is_string(kind):
                kept.append(pa.field(name, pa.timestamp("ms")))
            elif name == order_by or whole or pa.types.is_floating(kind):
                kept.append(pa.field(name, pa.float64()))       # later values may have a fraction
            else:
                left[name] = str(kind)
        with _opened(plain, pa.schema(kept)) as reader, pq.ParquetWriter(copy, reader.schema) as writer:
            for batch in reader:
                batch.validate(full=True)       # texts are UTF-8
                writer.write_batch(batch)
        if plain != path:
            plain.unlink()
    return copy, chosen, left


def _opened(plain: Path, schema: pa.Schema) -> Any:
    return pyarrow.json.open_json(plain, pyarrow.json.ReadOptions(block_size=stream.LINE), pyarrow.json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="ignore"))


def _kinds(path: Path, plain: Path) -> dict[str, pa.DataType]:
    """The columns of the first lines."""
    first: list[dict[str, Any]] = []
    for number, line in enumerate(islice(_lines(plain), FIRST), 1):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}:{number}: no JSON ({error})") from None
        if not isinstance(found, dict):
            raise ValueError(f"{path}:{number}: {line[:40].decode(errors='replace')!r} is no object")
        first.append(found)
    names = dict.fromkeys(name for line in first for name in line)
    if len(names) > COLUMNS:
        raise ValueError(f"{path} has {len(names):,} columns; at most {COLUMNS:,} are read")
    return {name: _kind([line.get(name) for line in first]) for name in names}


def _kind(values: Sequence[Any]) -> pa.DataType:
    """Of a column; hashes may be whole numbers beyond those that have a sign."""
    whole = [value for value in values if type(value) is int]
    return pa.uint64() if whole and 1 << 63 <= max(whole) < 1 << 64 and min(whole) >= 0 else pa.infer_type(values)


def _lines(plain: Path) -> Iterator[bytes]:
    """Those that are not blank."""
    with plain.open("rb") as file:
        while line := file.readline(stream.LINE):
            if line.strip():
                yield line.removeprefix(b"\xef\xbb\xbf")
