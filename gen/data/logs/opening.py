"""Opens a click log by what it is."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gen.base.extras import extra
from gen.data.logs import lines, mels, npz, stream, text
from gen.data.logs.bounds import COLUMNS, readable
from gen.data.logs.log import Log, Piece, Pieces, Progress
from gen.data.logs.movielens import movielens

__all__ = ["FORMATS", "LogLike", "format_of", "open_log", "opened"]

#: What can be read. text: with a header line.
FORMATS = ("criteo", "avazu", "text", "parquet", "npz", "mels")
MOVIELENS = "movielens"
_ENDINGS = {".npz": "npz", ".parquet": "parquet", ".pq": "parquet", ".pt": "mels"}


def open_log(paths: str | Path | Iterable[str | Path], format: str | None = None, tables: Iterable[str] | None = None,
             *, missing: int | None = None, broken: float = 0.01, progress: Progress | None = None) -> Pieces:
    """A click log of one file or several, read in a stream.

    Parameters  paths: a file, a folder of files, or files in order; or movielens, MovieLens-100K, which is fetched and
                kept; format: one of FORMATS, by default what ending and first line say; tables: those wanted, by
                default all (of a text with header: fields marked :token, else those ending in _id; of Parquet: whole
                numbers and lists of them); missing: the id that an empty
                field of a text with header or of Parquet stands for, where by default it is a fault (Criteo, Avazu:
                always 0); broken: share of a piece's samples that may be broken, ten are always endured; 0: none;
                progress: told the bytes read and all of them
    Raises      ValueError: one sentence with the file and what is wrong; while it is read: too many broken lines, a
                file that is damaged

    >>> log = open_log("day_0.gz")                                             # doctest: +SKIP
    >>> for chunk in log.chunks(): use(chunk.ids["C03"])                       # doctest: +SKIP
    >>> print(log.problems.lines())                                            # doctest: +SKIP
    """
    named = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    files = [file for path in named for file in (sorted(_logs_in(path)) if path.is_dir() else [path])]
    if format is not None and format not in FORMATS:
        raise ValueError(f"the format {format!r} is unknown; there are {', '.join(FORMATS)}")
    if not 0 <= broken <= 1:
        raise ValueError(f"broken must be a share from 0 to 1, not {broken:g}")
    wanted = None if tables is None else tuple(dict.fromkeys(tables))
    if wanted is not None and not wanted:
        raise ValueError("tables must name one table at least")
    if missing is not None:
        if not -1 << 63 <= missing < 1 << 64:
            raise ValueError(f"missing must be an id from -2**63 to 2**64 - 1, not {missing}")
        missing %= 1 << 64
    if named == [Path(MOVIELENS)] and not named[0].exists():
        found = movielens(wanted)
        found.progress = progress
        return found
    pieces: list[Piece] = []
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} is not a file")
        with readable(file):
            pieces += _pieces(file, format or format_of(file), wanted, missing, broken)
    return Pieces(", ".join(map(str, named)), pieces, progress=progress)


#: A log, or the paths of one.
LogLike = str | Path | Iterable[str | Path] | Log


def opened(log: LogLike, format: str | None = None, tables: Iterable[str] | None = None) -> Any:
    """A log as it is, or what `open_log` makes of its paths."""
    given: Any = log
    return given if hasattr(given, "chunks") else open_log(given, format, tables)


def _logs_in(folder: Path) -> list[Path]:
    """Files, but none that are hidden or say something of the others, as _SUCCESS."""
    return [path for path in folder.iterdir() if path.is_file() and path.name[0] not in "._"]


def format_of(path: Path) -> str:
    """By the ending, and the first line of a text."""
    ending = stream.stem(path).suffix
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    line = text.first_line(path).rstrip(b"\r\n")
    if line.count(b"\t") in (38, 39) and all(not cell or _is_criteo(n, cell) for n, cell in enumerate(
            reversed(line.split(b"\t")))):
        return "criteo"
    if line.count(b",") < COLUMNS and set(b"site_id,device_ip,device_model,hour".split(b",")) <= set(line.split(b",")):
        return "avazu"
    if ending in text.SEPARATORS:
        return "text"
    endings = ", ".join([*_ENDINGS, *text.SEPARATORS])
    raise ValueError(f"{path} ends in {ending!r} and is not Criteo's; the endings read are {endings}, texts also with "
                     f"{', '.join(stream.COMPRESSED)}; or say the format: {', '.join(FORMATS)}")


def _is_criteo(place: int, cell: bytes) -> bool:
    """Whether this may be the cell at a place counted from the end of a line of Criteo's."""
    try:
        int(cell, 16 if place < 26 else 10)
    except ValueError:
        return False
    return True


def _pieces(path: Path, format: str, tables: tuple[str, ...] | None, missing: int | None, broken: float) -> list[Piece]:
    if format == "npz":
        return [npz.piece(path, tables)]
    if format == "parquet":
        with extra(f"{path}: Parquet"):
            from gen.data.logs import parquet
        return parquet.pieces(path, tables, missing, broken)
    if format == "mels":
        return mels.pieces(path, tables)
    if format == "text":
        separator = text.SEPARATORS.get(stream.stem(path).suffix, "\t")
        return lines.pieces(path, text.with_header(path, separator, tables, missing), broken)
    if format == "avazu":
        return lines.pieces(path, text.avazu(path).only(tables, str(path)), broken)
    fields = text.first_line(path).count(b"\t") + 1
    return lines.pieces(path, text.criteo(39 if fields == 39 else 40).only(tables, str(path)), broken)
