"""Layouts of text logs, one sample a line: with a header line that names the fields, Criteo's without one, Avazu's."""

import csv
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gen.data.logs import parse, stream
from gen.data.logs.bounds import COLUMNS, few, twice

__all__ = ["AVAZU_TABLES", "CRITEO_TABLES", "SEPARATORS", "Header", "Layout", "avazu", "criteo", "first_line", "header",
           "is_number", "sample", "split", "with_header"]

#: Endings of files with a header line, and what stands between the fields.
SEPARATORS = {".csv": ",", ".tsv": "\t", ".inter": "\t", ".txt": "\t"}
CRITEO_DENSE = tuple(f"I{number:02}" for number in range(1, 14))
CRITEO_TABLES = tuple(f"C{number:02}" for number in range(1, 27))
#: Avazu's fields that are hashed to 32 bits, written in hexadecimal digits.
AVAZU_HEX = ("site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category", "device_id",
             "device_ip", "device_model")
AVAZU_TABLES = ("C1", "banner_pos", *AVAZU_HEX, "device_type", "device_conn_type", *(f"C{n}" for n in range(14, 22)))
AVAZU_VALUES = ("click", "hour")
SAMPLE = 1 << 16    # bytes of a text in which its fields are looked at first


@dataclass(frozen=True)
class Layout:
    """Of lines. separator: one character; names, kinds: of the fields, kinds of gen.data.logs.parse; missing: the
    id that an
    empty field stands for, None where it is a fault; start: bytes of the header line; quotes: fields may stand in
    double quotes."""

    separator: str
    names: tuple[str, ...]
    kinds: tuple[int, ...]
    missing: int | None = None
    start: int = 0
    quotes: bool = False

    def of_kind(self, *kinds: int) -> tuple[str, ...]:
        return tuple(name for name, kind in zip(self.names, self.kinds) if kind in kinds)

    @property
    def tables(self) -> tuple[str, ...]:
        return self.of_kind(parse.AUTO, parse.HEX)

    def only(self, tables: Iterable[str] | None, source: str) -> "Layout":
        """With these tables alone."""
        if tables is None:
            return self
        wanted, there = dict.fromkeys(tables), set(self.tables)
        for name in wanted:
            if name not in there:
                raise ValueError(f"{source} has no table {name!r}; it has {few(self.tables)}")
        kinds = tuple(parse.SKIP if name in there and name not in wanted else kind
                      for name, kind in zip(self.names, self.kinds))
        return replace(self, kinds=kinds)


def criteo(fields: int = 40) -> Layout:
    """Of Criteo's lines: a label (test data have none), 13 whole numbers, 26 ids in hexadecimal digits; empty where
    nothing is known, which is the id 0 and no number."""
    names = ("label",) * (fields - 39) + CRITEO_DENSE + CRITEO_TABLES
    return Layout("\t", names, (parse.NUMBER,) * (fields - 26) + (parse.HEX,) * 26, missing=0)


@dataclass(frozen=True)
class Header:
    """The first line of a text: its fields' names, what RecBole calls their kinds (or nothing), its bytes."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    bytes: int

    @property
    def tables(self) -> tuple[str, ...]:
        """The fields that are tables where none are named: those marked as tokens, else those ending in _id."""
        marked = tuple(name for name, kind in zip(self.names, self.kinds) if kind == "token")
        return marked or tuple(name for name in self.names if name.endswith("_id"))

    def chosen(self, fields: Iterable[str] | None, source: str) -> tuple[str, ...]:
        """The fields that are tables: those asked for, else `tables`."""
        chosen = self.tables if fields is None else tuple(fields)
        if not chosen:
            raise ValueError(f"{source}: no field ends in _id, so name the fields that are indices; "
                             f"there are {few(self.names)}")
        there = set(self.names)
        for name in chosen:
            if name not in there:
                raise ValueError(f"{source} has no field {name!r}; it has {few(self.names)}")
        return chosen


def header(line: bytes, separator: str, source: str) -> Header:
    """Reads a header line.

    Raises      ValueError: it is empty, no UTF-8, names a field twice, or has more than COLUMNS fields
    """
    check_fields(line, separator, source)
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    if not text:
        raise ValueError(f"{source} is empty; its first line must name the fields")
    cells = [cell.strip() for cell in text.split(separator)]
    if separator == ",":
        cells = [cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell for cell in cells]
    titles = [cell.partition(":") for cell in cells]
    names = tuple(name for name, _, _ in titles)
    if (double := twice(names)) is not None:
        raise ValueError(f"{source}: line 1 names the field {double!r} twice")
    return Header(names, tuple(kind for _, _, kind in titles), len(line))


def check_fields(line: bytes, separator: str, source: str) -> None:
    """Raises ValueError: a first line of more fields than COLUMNS, before any is looked at."""
    if (count := line.count(separator.encode()) + 1) > COLUMNS:
        raise ValueError(f"{source}: line 1 has {count:,} fields; at most {COLUMNS:,} are read")


def first_line(path: Path) -> bytes:
    """With its end; empty if there is none."""
    for block, _ in stream.blocks(path):
        return block[:int(np.argmax(block == 10)) + 1].tobytes()
    return b""


def with_header(path: Path, separator: str, tables: Iterable[str] | None = None, missing: int | None = None) -> Layout:
    """Of a text whose first line names its fields. Tables: see Header.chosen. Values: fields marked :float, and
    others without a mark whose first lines are numbers; text in them is no number."""
    found = header(first_line(path), separator, str(path))
    chosen, ids = set(found.chosen(tables, str(path))), set(found.tables)
    kinds = [parse.AUTO if name in chosen else parse.NUMBER if kind == "float" else
             parse.LOOSE if not kind and name not in ids else parse.SKIP
             for name, kind in zip(found.names, found.kinds)]
    for cells in sample(path, separator) if parse.LOOSE in kinds else ():
        if len(cells) == len(kinds):
            kinds = [parse.SKIP if kind == parse.LOOSE and not is_number(cell) else kind
                     for kind, cell in zip(kinds, cells)]
    return Layout(separator, found.names, tuple(kinds), missing, found.bytes, separator == ",")


def avazu(path: Path) -> Layout:
    """Of Avazu's CSV: 12 fields of small whole numbers and 9 hashed ones are tables, click and hour values.

    Raises      ValueError: a column that is missing
    """
    found = header(first_line(path), ",", str(path))
    for name in (*AVAZU_TABLES, "hour"):
        if name not in found.names:
            raise ValueError(f"{path} has no field {name!r}; it has {few(found.names)}")
    kinds = tuple(parse.HEX if name in AVAZU_HEX else parse.AUTO if name in AVAZU_TABLES else
                  parse.NUMBER if name in AVAZU_VALUES else parse.SKIP for name in found.names)
    return Layout(",", found.names, kinds, 0, found.bytes, True)


def split(line: str, separator: str) -> list[str]:
    """The fields of a line; between commas they may stand in double quotes."""
    if separator == "," and '"' in line:
        with suppress(csv.Error):
            return next(csv.reader([line]))
    return line.split(separator)


def is_number(cell: str) -> bool:
    """Or nothing."""
    try:
        return bool(float(cell or 0)) or True
    except ValueError:
        return False


def sample(path: Path, separator: str) -> list[list[str]]:
    """The fields of the first lines past the header."""
    for block, _ in stream.blocks(path):
        lines = block[:SAMPLE].tobytes().decode(errors="replace").split("\n")[1:-1]
        return [split(line.rstrip("\r"), separator) for line in lines if line.rstrip("\r")]
    return []
