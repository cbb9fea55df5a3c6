"""Opens a click log by what it is."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any

from gen.base.extras import extra
from gen.base.pipes import copied, with_names
from gen.base.staging import written_by
from gen.data.logs import dialect, lines, mels, npz, ordering, stream, text
from gen.data.logs.bounds import archive, readable
from gen.data.logs.log import Log, Piece, Pieces, Progress
from gen.data.logs.movielens import movielens
from gen.model.log_options import LogOptions
from gen.model.recommender import Recommender

#: What can be read. text: with a header line; movielens: ratings without one.
FORMATS = ("criteo", "avazu", "movielens", "text", "parquet", "npz", "mels", "jsonl")
TEXTS = ("criteo", "avazu", "movielens", "text")
MOVIELENS = "movielens"
_ENDINGS = {".npz": "npz", ".parquet": "parquet", ".pq": "parquet", ".pt": "mels", ".jsonl": "jsonl"}


def open_log(paths: str | Path | Iterable[str | Path], format: str | None = None,
             tables: str | Iterable[str] | None = None, *, missing: int | None = None, separator: str | None = None,
             fields: str | Iterable[str] | None = None, lists: str | Iterable[str] = (),
             quotes: bool | None = None, order_by: str | None = None, broken: float = 0.01,
             progress: Progress | None = None) -> Pieces:
    """A click log of one file or several, read in a stream.

    Parameters  paths: a file, a folder of files, in the order of the numbers in their names, or files in order; a
                pipe, - for the standard input; or movielens, MovieLens-100K, which is fetched and kept; format: one of
                FORMATS, by default what ending and first lines say; tables: those wanted, by default all (of a text
                with header: fields marked :token, else those whose names are ids'; of Parquet: whole numbers and lists
                of them); missing: the id that an empty field of a text with header or of Parquet stands for, where by
                default it is a fault (Criteo, Avazu: always 0); separator, fields, lists, quotes, order_by: see
                gen.model.log_options; a log in another order is held in memory; broken: share of a piece's samples
                that may be broken, ten are always endured; 0: none; progress: told the bytes read and all of them
    Raises      ValueError: one sentence with the file and what is wrong; while it is read: too many broken lines, a
                file that is damaged, no sample

    >>> log = open_log("day_0.gz")                                             # doctest: +SKIP
    >>> for chunk in log.chunks(): use(chunk.ids["C03"])                       # doctest: +SKIP
    >>> print(log.report())                                                    # doctest: +SKIP
    """
    several: Sequence[Any] = (
        [paths] if isinstance(paths, str) or not isinstance(paths, Sequence | Iterator) else [*paths])
    if not all(isinstance(each, str | Path) for each in several):
        raise ValueError("a log is a path, paths, or what hotrail.open_log makes of them, not a "
                         f"{type(paths).__name__}; hotrail.of_arrays({{column: ids}}) makes one of arrays")
    named = [Path(each) for each in several]
    if named.count(Path("-")) > 1:
        raise ValueError("- is named twice, and the standard input can be read once")
    if format is not None and format not in FORMATS:
        raise ValueError(f"the format {format!r} is unknown; there are {', '.join(FORMATS)}")
    if not 0 <= broken <= 1:
        raise ValueError(f"broken must be a share from 0 to 1, not {broken:g}")
    names = None if tables is None else tuple(dict.fromkeys((tables,) if isinstance(tables, str) else tables))
    if names is not None and not names:
        raise ValueError("tables must name one table at least")
    if missing is not None:
        if not -1 << 63 <= missing < 1 << 64:
            raise ValueError(f"missing must be an id from -2**63 to 2**64 - 1, not {missing}")
        missing %= 1 << 64
    if named == [Path(MOVIELENS)] and not named[0].exists():
        source = movielens(names)
        source.progress = progress
        return source
    options = _Asked(format, names, missing, dialect.character(separator, "--separator") if separator else None,
                   _several(fields) or None, (lists,) if isinstance(lists, str) else tuple(lists), quotes is not False,
                   order_by, broken)
    log = Pieces(", ".join(map(str, named)), options.pieces([file for path in named for file in _files(path)]),
                 progress=progress, notes=_notes(named))
    return log if order_by is None else ordering.ordered(log, order_by)


def open_for(logs: Sequence[str | Path], options: LogOptions, tables: Sequence[str] = (),
             model: Recommender | None = None, progress: Progress | None = None) -> Pieces:
    """A log as a command reads it: by its options, else by those of the model, whose columns are the tables.

    Raises      ValueError: as `open_log`; tables beside a model
    """
    if model is None:
        return open_log(logs, tables=tables or None, progress=progress, **options.given())
    if tables:
        raise ValueError(f"--table {tables[0]}: the tables are those of the model; leave out one of them")
    try:
        return open_log(logs, tables=model.columns, progress=progress, **options.over(model.log).given())
    except ValueError as error:
        if name := named_in(error, {name: spec.looked_up_by for name, spec in model.tables.items()}):
            raise ValueError(f"{error}: columns = [..] in the model's [tables.{name}] names its own") from error
        raise


def named_in(error: ValueError, columns: Mapping[str, tuple[str, ...]]) -> str | None:
    """The table of whose columns, by table, an error names one that the log does not have."""
    return next((table for table, names in columns.items() if any(
        f"has no {what} {name!r}" in str(error) for name in names for what in ("field", "column", "table"))), None)


#: A log, or the paths of one.
LogLike = str | Path | Iterable[str | Path] | Log


def opened(log: LogLike, tables: Iterable[str] | None = None, **options: Any) -> Any:
    """A log as it is, or what `open_log` makes of its paths."""
    source: Any = log
    return source if hasattr(source, "chunks") else open_log(source, tables=tables, **options)


def _several(names: str | Iterable[str] | None) -> tuple[str, ...]:
    return tuple(each.strip() for each in names.split(",")) if isinstance(names, str) else tuple(names or ())


def _notes(named: Sequence[Path]) -> tuple[str, ...]:
    """That files which a shell has put in order are in another than that of the numbers in their names."""
    names = [str(path) for path in named]
    if names != sorted(names) or names == sorted(names, key=_order):
        return ()
    last = max(named, key=lambda path: _order(str(path))).name
    return (f"{len(names)} files as they were given, {named[0].name}, {named[1].name}, .. {named[-1].name}; by the "
            f"numbers in their names {last} is the last",)


def _files(path: Path) -> Iterator[Path]:
    """The files of a log in order, those of a folder by the numbers in their names; what is no file is copied to one.

    Raises      ValueError: nothing is there, or a folder in a folder whose place in the order is not known
    """
    if path.is_dir():
        yield from _within(path)
    elif path == Path("-") and not path.exists():
        yield _standard_input()
    elif path.exists() and not path.is_file():
        yield copied(path, str(path), _ending)
    elif path.is_file():
        yield path
    elif address := re.match(r"[a-z0-9]{2,}:/", str(path)):
        raise ValueError(f"{path} is an address; download the file first, or write it to a pipe, which - reads, as in "
                         f"`curl -s {address[0]}/.. | hotrail profile -`")
    else:
        raise ValueError(f"{path} is not a file")


def _within(folder: Path) -> Iterator[Path]:
    """Files, but none that are hidden or say something of the others, as _SUCCESS; those of Hive's folders, as
    date=2024-01-01."""
    if writer := written_by(folder):
        raise ValueError(f"{folder} holds what `hotrail {writer}` wrote and is no log")
    there = sorted((path for path in folder.iterdir() if path.name[0] not in "._"), key=lambda path: _order(path.name))
    folders = [path for path in there if path.is_dir()]
    if other := [path for path in folders if "=" not in path.name] or folders[:len(there) - len(folders)]:
        raise ValueError(f"{other[0]} is a folder, whose place in the order of {folder} is not known; name the files "
                         "or folders in order")
    for path in there:
        yield from _within(path) if path.is_dir() else (path,)


def _order(name: str) -> list[tuple[int, int, str]]:
    """Of names, by the numbers in them: day_2 before day_10."""
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in re.split(r"([0-9]+)", name) if part]


def settled(logs: Iterable[str | Path]) -> list[str | Path]:
    """The paths of a log that is to be opened more than once: what can be read once is copied."""
    return [copied(Path(log), str(log), _ending) if Path(log).exists() and not (
        Path(log).is_file() or Path(log).is_dir()) else log for log in logs]


@cache
def _standard_input() -> Path:
    """A command may read its log twice. Raises ValueError: the process has none"""
    if sys.stdin is None:       # its number is another file's by now
        raise ValueError("- is the standard input, which is closed; `hotrail ... - < FILE` gives it")
    return copied(Path("/dev/stdin"), "standard input", _ending)


def _ending(path: Path) -> str:
    """Of a file that has no name of its own, where its first bytes ask for one."""
    with path.open("rb") as file:
        begin = file.read(8)
    if begin.startswith(b"PK\x03\x04"):
        with readable(path, "a zip archive"), archive(path) as files:
            names = files.namelist()
        return (".npz" if any(name.endswith(".npy") for name in names) else
                ".pt" if any(name.endswith("data.pkl") for name in names) else ".zip")
    return next((ending for sign, ending in stream.SIGNS.items() if begin.startswith(sign)), "")


def format_of(path: Path, separator: str | None = None) -> str:
    """By the ending, and the first lines of a text."""
    ending = stream.stem(path).suffix.lower()
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    if not stream.compressed(path) and (kind := _by_bytes(path)):
        return kind
    lines = dialect.first_lines(path) if separator in (None, "\t") else []
    if dialect.is_json_lines(lines):
        return "jsonl"
    if text.is_criteo(lines):
        return "criteo"
    if text.is_movielens(lines):
        return "movielens"
    of = dialect.dialect(path, separator)
    if text.is_avazu(of):
        return "avazu"
    if ending in text.ENDINGS or separator is not None or of.rows and len(of.rows[0]) > 1:
        return "text"
    if not of.rows:
        raise ValueError(f"{path} is empty")
    endings = ", ".join([*_ENDINGS, *text.ENDINGS])
    raise ValueError(f"{path} ends in {ending!r} and is not Criteo's; the endings read are {endings}, texts also with "
                     f"{', '.join(stream.COMPRESSED)}; or say the format: {', '.join(FORMATS)}")


def _by_bytes(path: Path) -> str | None:
    """The format of a file whose first bytes say it."""
    with path.open("rb") as file:
        return "parquet" if file.read(4) == b"PAR1" else None


def _with_partition(piece: Piece, path: Path) -> Piece:
    """Says that the names of Hive's folders are read as no column."""
    keys = [part.partition("=")[0] for part in path.parent.parts if "=" in part]
    left = {key: "the name of a folder" for key in keys if key not in (*piece.tables, *piece.unread)}
    return _with_unread(piece, left, piece.form.text)


def _with_unread(piece: Piece, left: Mapping[str, str], text: str) -> Piece:
    """With columns that were left out before, and why; text: how the file is read."""
    return replace(piece, unread=(*piece.unread, *left),
                   form=replace(piece.form, text=text, unread={**piece.form.unread, **left}))


@dataclass(frozen=True)
class _Asked:
    """What open_log is asked for, checked."""

    format: str | None
    tables: tuple[str, ...] | None
    missing: int | None
    separator: str | None
    fields: tuple[str, ...] | None
    lists: tuple[str, ...]
    quotes: bool
    order_by: str | None
    broken: float

    def pieces(self, files: Sequence[Path]) -> list[Piece]:
        """Of all files, in order; texts are read alike."""
        formats, layouts = {}, {}
        for file in files:
            with readable(file):
                try:
                    formats[file] = self.format or ("text" if self.fields or not self.quotes else
                                                    format_of(file, self.separator))
                    self._check_options(file, formats[file])
                    if formats[file] in TEXTS:
                        layouts[file] = self._layout(file, formats[file])
                except ValueError as error:
                    if file.suffix in {each.suffix for each in files if each != file} or len(files) == 1:
                        raise
                    raise ValueError(f"{error}; is it one of the log's? Of a folder all files are read, unless they "
                                     "are named one by one") from error
        layouts = dict(zip(layouts, text.together(list(layouts.values()))))
        pieces: list[Piece] = []
        for file in files:
            with readable(file):
                pieces += map(_with_partition, self._pieces(file, formats[file], layouts.get(file)), repeat(file))
        # Columns in another order are the same tables.
        return [replace(piece, tables=pieces[0].tables) if {*piece.tables} == {*pieces[0].tables} else piece
                for piece in pieces]

    def _layout(self, path: Path, format: str) -> text.Layout:
        if format == "movielens":
            return replace(text.movielens(path), missing=self.missing).only(self.tables, str(path))
        of = dialect.dialect(path, "\t" if format == "criteo" else self.separator, format != "criteo", self.quotes)
        if format == "text":
            return text.with_header(path, of, self.tables, self.missing, self.lists, self.fields, self.order_by)
        layout = text.criteo(of) if format == "criteo" else text.avazu(path, of)
        layout = layout if self.missing is None else replace(layout, missing=self.missing)
        return layout.only(self.tables, str(path))

    def _check_options(self, path: Path, format: str) -> None:
        """Raises ValueError: an option that says nothing of such a file"""
        mean = {"text": ("separator", "fields", "lists"), "avazu": ("separator",), "parquet": ("lists",),
                "jsonl": ("lists",)}
        for name in ("separator", "fields", "lists"):
            if getattr(self, name) and name not in mean.get(format, ()):
                option = "--list" if name == "lists" else f"--{name}"
                raise ValueError(f"{path} is of the format {format}, for which {option} has no meaning")

    def _pieces(self, path: Path, format: str, layout: text.Layout | None) -> list[Piece]:
        if layout is not None:
            return lines.pieces(path, layout, self.broken)
        if format == "npz":
            return [npz.piece(path, self.tables)]
        if format == "mels":
            return mels.pieces(path, self.tables)
        with extra(f"{path}: {'JSON lines' if format == 'jsonl' else 'Parquet'}"):
            from gen.data.logs import json_lines, parquet
        if format == "jsonl":
            copy, tables, left = json_lines.as_parquet(path, self.tables, self.order_by)
            try:
                pieces = parquet.pieces(copy, tables, self.missing, self.broken, self.lists, self.order_by)
            except ValueError as error:
                raise ValueError(with_names(str(error))) from error
            return [_with_unread(replace(piece, source=str(path)), left, "JSON lines") for piece in pieces]
        return parquet.pieces(path, self.tables, self.missing, self.broken, self.lists, self.order_by)
