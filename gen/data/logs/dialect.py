"""How a text is written, by its first bytes: its encoding, its line ends, what separates its fields."""

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gen.data.logs import parse, stream
from gen.data.logs.bounds import COLUMNS

SAMPLE = 1 << 16    # bytes in which a text is looked at
FIRST = 1 << 13     # bytes in which formats without a header line are looked for
RECORDS = 1000      # records in which it is looked at
#: Separators that are looked for, and what they are called.
NAMES = {"comma": ",", "tab": "\t", "semicolon": ";", "pipe": "|", "space": " "}
TRIED = (",", "\t", ";", "|")
#: By a file's ending, what a text of one field per line, or of several possible separators, has.
USUAL = {".csv": ",", ".tsv": "\t", ".inter": "\t"}
#: RecBole's kinds of fields.
MARKS = ("token", "token_seq", "float", "float_seq")
BOM = b"\xef\xbb\xbf"
JSON = re.compile(rb"\s*(\[\s*)?\{")
#: How files begin that are no text: what they are, and what to do.
OTHERS = {b"\xff\xfe": ("UTF-16", ": `iconv -f UTF-16 -t UTF-8` converts it"),
          b"\xfe\xff": ("UTF-16", ": `iconv -f UTF-16 -t UTF-8` converts it"),
          b"<!doctype": ("a page of HTML", ": is it one of a download that failed?"),
          b"version https://git-lfs": ("a pointer of Git LFS", ": `git lfs pull` fetches the file"),
          **{sign: (kind, f"; its name must end in {ending}") for sign, kind, ending in (
              (b"PK\x03\x04", "a zip archive", ".zip"), (b"PAR1", "Parquet", ".parquet"),
              *((sign, stream.COMPRESSED[ending], ending) for sign, ending in stream.SIGNS.items()))},
          **{sign: (kind, ": write its columns as Parquet, npz or CSV") for sign, kind in (
              (b"\x89HDF", "HDF5"), (b"\x93NUMPY", "an array of NumPy"), (b"ARROW1", "Arrow's IPC format"),
              (b"ORC", "ORC"), (b"Obj\1", "Avro"), (b"SQLite", "a database of SQLite"), (b"\x80\4", "a pickle"),
              (b"\x80\5", "a pickle"))}}
BOOKS = (".xlsx", ".xlsm", ".ods")      # of spreadsheet programs


@dataclass(frozen=True)
class Dialect:
    """separator: of fields; rows: the fields of the first records, those of the first line among them; start: bytes of
    a byte order mark and blank lines, which no field is of; first: bytes of the first record and of what is before it;
    lines: line ends in them; quotes: whether fields may stand in double quotes; record: the first one as it is
    written."""

    separator: str
    rows: tuple[list[str], ...]
    start: int
    first: int
    lines: int
    quotes: bool = True
    record: bytes = b""

    @property
    def called(self) -> str:
        """The separator, by its name."""
        names = {sign: f"{name}-separated" for name, sign in NAMES.items()}
        return names.get(self.separator, f"separated by {self.separator!r}")


def is_json_lines(lines: Sequence[str]) -> bool:
    """Whether the first line is a JSON object by itself, and no calibration, which has `tables`."""
    try:
        record = json.loads(lines[0]) if lines and lines[0].startswith("{") else None
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and "tables" not in record


def character(text: str, what: str) -> str:
    """A separator by its name (comma, tab, semicolon, pipe, space), as `\\t`, or as it is.

    Raises      ValueError: it is no single ASCII character that may separate
    """
    sign = NAMES.get(text, "\t" if text == "\\t" else text)
    if len(sign) != 1 or not " " <= sign <= "~" and sign not in "\t\x01" or sign.isalnum() or sign in "\"'.-+_":
        raise ValueError(f"{what} {text!r} is no separator; name comma, tab, semicolon, pipe, space or one other ASCII "
                         "character that is no letter, digit, quote, point or sign")
    return sign


def first_lines(path: Path) -> list[str]:
    """The first lines of a text, whole ones, without their ends."""
    begin = stream.head(path, FIRST)
    start = len(BOM) if begin.startswith(BOM) else 0
    lines = begin[start:].decode(errors="replace").lstrip("\r\n").split("\n")
    return [line.rstrip("\r") for line in (lines if len(begin) < FIRST else lines[:-1])][:100]


def dialect(path: Path, separator: str | None = None, texts: bool = True, quotes: bool = True) -> Dialect:
    """Of a text.

    Parameters  separator: where it is known; quotes: whether fields may stand in double quotes; texts: whether fields
                may hold texts, not numbers alone, of which whatever is no number is found while they are read
    Raises      ValueError: no text, no UTF-8, lines that end in a carriage return alone, more fields than COLUMNS, no
                separator or two that fit alike, names that nothing is between; names what answers it
    """
    begin = stream.head(path, SAMPLE)
    if not texts:
        line = begin.partition(b"\n")[0].decode(errors="replace")
        return Dialect(separator or "\t", (line.split(separator or "\t"),), len(BOM) * begin.startswith(BOM), 0, 0)
    for sign, (kind, what) in OTHERS.items():
        if begin.startswith(sign) or begin[:len(sign)].lower() == sign:
            if path.suffix.lower() in BOOKS:
                kind, what = "a workbook", ": save its sheet as CSV"
            raise ValueError(f"{path} is {kind}, not text in UTF-8{what}")
    if begin[257:262] == b"ustar":
        raise ValueError(f"{path} is a tar archive; `tar -xOf {path} NAME` writes one of its files, and - reads it "
                         "from a pipe")
    if b"\0" in begin:
        raise ValueError(f"{path} has a byte of 0, which is in no text; beside texts, Parquet and npz are read")
    start = len(BOM) if begin.startswith(BOM) else 0
    start += len(begin[start:]) - len(begin[start:].lstrip(b"\r\n"))
    body = begin[start:]
    sample = body if len(begin) < SAMPLE else body[:body.rfind(b"\n") + 1] or body
    try:
        text = sample.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}:{1 + sample.count(10, 0, error.start)}: {not_utf8(sample, error)}") from None
    if "\r" in text and "\n" not in text:
        raise ValueError(f"{path} has lines that end in a carriage return alone; they must end in LF or CRLF: "
                         f"`tr '\\r' '\\n'` converts it")
    if JSON.match(body):
        raise ValueError(f"{path} begins as JSON does, and line 1 is no object by itself; of JSON, lines of one object "
                         "each are read (`jq -c '.[]'` writes an array so)")
    signs = [separator] if separator else TRIED
    width = 1 + max(sample.count(sign.encode(), 0, sample.find(b"\n")) for sign in signs)
    if width > COLUMNS:
        raise ValueError(f"{path}: line 1 has {width:,} fields; at most {COLUMNS:,} are read")
    tables = {sign: rows(text, sign, quotes) for sign in signs}
    chosen = separator or _chosen(path, tables)
    ended = sample if sample.endswith(b"\n") else sample + b"\n"
    first = _first_end(ended, chosen) if quotes else ended.index(b"\n") + 1
    if sample and not first:
        raise ValueError(f"{path}:1: a quoted field is not closed in the first {len(sample):,} bytes; --no-quotes "
                         "takes quotes for text")
    lines = begin.count(b"\n", 0, start) + (sample.count(b"\n", 0, first) or 1)
    return Dialect(chosen, tuple(tables[chosen]), start, start + min(first, len(body)), lines, quotes,
                   body[:first].rstrip(b"\r\n"))


def not_utf8(data: bytes, error: UnicodeDecodeError) -> str:
    """What is wrong with a text that is no UTF-8, and what to do."""
    return (f"the byte 0x{data[error.start]:02x} is no UTF-8; `iconv -f WINDOWS-1252 -t UTF-8` converts a text of "
            "Windows, -f names another encoding")


def _first_end(data: bytes, separator: str) -> int:
    """Behind the first record; 0 where it does not end."""
    first, _, _ = parse.records(np.frombuffer(bytearray(data), np.uint8), 0, len(data), ord(separator), 0, 0)
    return int(first)


def rows(text: str, separator: str, quotes: bool = True) -> list[list[str]]:
    """The fields of the first records; blank lines are left out."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator,
                              quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE):
            if row:
                rows.append(row)
            if len(rows) == RECORDS:
                break
    except csv.Error:
        pass        # a field that is too long: what comes before it is known
    return rows


def _chosen(path: Path, found: dict[str, list[list[str]]]) -> str:
    """The separator: of those that the first line has, one by which all lines have as many fields; then the one of
    most fields."""
    usual = USUAL.get(stream.stem(path).suffix.lower(), "")
    rank = {}
    for sign, lines in found.items():
        widths = [len(row) for row in lines]
        if widths and widths[0] > 1:
            rank[sign] = (sum(width == widths[0] for width in widths) / len(widths) > 0.9, widths[0], sign == usual)
    _check_first(path, next(iter(found.items())), any(fits for fits, _, _ in rank.values()))
    if not rank:
        name = found[TRIED[0]][0][0] if found[TRIED[0]] else ""
        if any(not each.isprintable() or each in " ^~:" for each in name) and not _marked(name):
            raise ValueError(f"{path}: nothing separates fields in line 1, {name[:80]!r}; comma, tab, semicolon and "
                             f"pipe were looked for, {_other([row[0] for row in found[TRIED[0]]])}")
        return usual or TRIED[0]
    best = max(rank.values())
    chosen = [sign for sign in rank if rank[sign] == best]
    if len(chosen) > 1:
        called = {sign: name for name, sign in NAMES.items()}
        raise ValueError(f"{path}: fields may be separated by {' or '.join(called[sign] for sign in chosen)}; "
                         "--separator says by which")
    return chosen[0]


def _check_first(path: Path, rows: tuple[str, list[list[str]]], fits: bool) -> None:
    """rows: by a separator; fits: whether lines are as line 1 is.

    Raises      ValueError: line 1 is a comment or Excel's line on the separator
    """
    lines = [rows[0].join(row) for row in rows[1]] or [""]
    what, count = "", 1
    if lines[0].startswith("#") and not fits:
        what, count = "a comment", next((at for at, line in enumerate(lines) if line[0] != "#"), 1)
    if re.fullmatch("sep=.", lines[0].lower()):
        what = "Excel's, of the separator"
    if what:
        raise ValueError(f"{path}: line 1 is {what}; line 1 must name the fields: `tail -n +{count + 1} {path} |` "
                         "leaves it out, and - reads a log from a pipe")


def _other(lines: Sequence[str]) -> str:
    """What lines of one field may be."""
    widths = {len(line.split(" ")) for line in lines}
    for sign in ("::", "  "):
        if len({line.count(sign) for line in lines}) <= 1 + (sign == "  ") and sign in lines[0].strip():
            return f"{sign!r} is more than one character: " + (
                "`tr -s ' ' ','`" if sign == "  " else "`sed 's/::/\\t/g'`") + " makes it one"
    if all(":" in part for part in lines[0].split()[1:]) and " " in lines[0].strip():
        return "and pairs of index and value, as LIBSVM's, are not read: write a column for each field"
    if len(widths) > 1 and min(widths) > 1:
        return ("and lines with different numbers of ids are not read: write the ids of a line as one field, which "
                "--list separates")
    if "\x01" in lines[0]:
        return "--separator $'\\x01' reads these"
    return "--separator space reads these" if len(widths) == 1 and widths != {1} else "--separator names another"


def _marked(name: str) -> bool:
    """Whether it is one field as RecBole marks it."""
    return name.count(":") == 1 and name.partition(":")[2] in MARKS
