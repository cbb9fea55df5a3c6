"""Files as streams of whole records: plain ones by stretches, compressed ones from end to end."""

import bz2
import gzip
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gen.base.extras import extra
from gen.data.logs import bounds, parse

#: Endings of compressed files, and what they are called.
COMPRESSED = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd", ".zip": "zip"}
#: How they begin; a zip archive may be an npz as well.
SIGNS = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
BLOCK = 1 << 18     # bytes that are read at once: they stay in the CPU's caches until they are parsed
LINE = 1 << 24      # bytes of a line that are still waited for


class OpenQuote(ValueError):
    """A quoted field that does not end."""


def compressed(path: Path) -> bool:
    return path.suffix.lower() in COMPRESSED


def stem(path: Path) -> Path:
    """The path without the ending of its compression."""
    return path.with_suffix("") if compressed(path) else path


class _Records:
    """Finds the ends of records in a text that is looked at from its begin, stretch by stretch. separator: None where
    fields are never quoted, so that a record is a line."""

    def __init__(self, separator: str | None):
        self.separator, self.state = separator, 0

    def ends(self, buffer: bytearray, start: int, stop: int, least: int = 0) -> tuple[int, int]:
        """Behind the first end of a record among bytes start to stop that lies at `least` or more, behind the last
        one; 0 where there is none."""
        if self.separator is None or not self.open and buffer.find(b'"', start, stop) < 0:
            if stop > start:
                end = buffer[stop - 1]
                self.state = 0 if end == 10 or self.separator is not None and end == ord(self.separator) else 1
            return buffer.find(b"\n", max(start, least - 1), stop) + 1, buffer.rfind(b"\n", start, stop) + 1
        first, last, self.state = parse.records(np.frombuffer(buffer, np.uint8), start, stop, ord(self.separator),
                                                self.state, least)
        return int(first), int(last)

    @property
    def open(self) -> bool:
        """Whether a quoted field has begun and may go on."""
        return self.state >= parse.IN_QUOTES


def cuts(path: Path, start: int, piece: int, separator: str | None = None) -> list[int]:
    """Bytes at which a plain text is cut into stretches of about `piece` bytes, each behind a record's end: the first
    is `start`, the last the file's size. separator: of fields that may be quoted; the text is read once for it.

    Raises      ValueError: a line of more than LINE bytes at a cut
    """
    size = path.stat().st_size
    count = max(1, round((size - start) / piece))
    wanted = [start + (size - start) * number // count for number in range(1, count)]
    found = [start]
    for end in _behind(path, start, wanted) if separator is None else _behind_quotes(path, start, wanted, separator):
        if found[-1] < end < size:
            found.append(end)
    return [*found, size] if size > start else [start, start]


def _behind(path: Path, start: int, wanted: list[int]) -> Iterator[int]:
    """The first line's end at each of these bytes or behind it."""
    with path.open("rb") as file:
        for target in wanted:
            file.seek(target - 1)
            begin = file.tell()
            while (block := file.read(1 << 16)) and b"\n" not in block:
                _check_line(path, file.tell() - begin)
            if block:
                yield file.tell() - len(block) + block.index(b"\n") + 1


def _behind_quotes(path: Path, start: int, wanted: list[int], separator: str) -> Iterator[int]:
    """As `_behind`, of records whose fields may hold line ends in quotes."""
    records, buffer, at, left = _Records(separator), bytearray(BLOCK), start, list(wanted)
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while left and (count := file.readinto(buffer)):
            begin = 0
            while left and begin < count:
                first, _ = records.ends(buffer, begin, count, max(left[0] - at, begin + 1))
                if not first:
                    break
                yield at + first
                # What is behind this end is looked at again, from the begin of a record.
                begin, records.state = first, 0
                left = [target for target in left if target > at + first]
            at += count


def lines_before(path: Path, stop: int) -> int:
    """Line ends in the first `stop` bytes of a plain file."""
    count = 0
    with path.open("rb") as file:
        while stop > 0 and (block := file.read(min(stop, BLOCK))):
            count += block.count(b"\n")
            stop -= len(block)
    return count


def _check_line(path: Path, held: int) -> None:
    if held > LINE:
        raise ValueError(f"{path} has a line of more than {LINE:,} bytes; is it text?")


class _Unpacked:
    """The bytes of a compressed file, no more of them than one of its size may become."""

    def __init__(self, path: Path, packed: IO[bytes], member: IO[bytes] | None = None):
        self.path, self.kind, self.size, self.given = path, COMPRESSED[path.suffix.lower()], path.stat().st_size, 0
        self.faults: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, lzma.LZMAError)
        self.file: Any
        if member is not None:
            self.file, self.faults = member, (*self.faults, zipfile.BadZipFile)
        elif self.kind == "gzip":
            self.file = gzip.GzipFile(fileobj=packed)
        elif self.kind == "bzip2":
            self.file = bz2.BZ2File(packed)
        elif self.kind == "xz":
            self.file = lzma.LZMAFile(packed)
        else:
            with extra(f"{path}: a log compressed by zstd"):
                import pyarrow
            self.faults += (pyarrow.ArrowException,)
            self.file = self._asked(pyarrow.CompressedInputStream, packed, self.kind)

    def readinto(self, room: memoryview) -> int:
        count: int = self._asked(self.file.readinto, room)
        self.given += count
        bounds.unpacked(self.path, self.given, self.size)
        return count

    def _asked(self, what: Callable[..., Any], *how: Any) -> Any:
        try:
            return what(*how)
        except self.faults as error:
            raise ValueError(f"{self.path} is no whole {self.kind} file: {error}") from None


@contextmanager
def _opened(path: Path, start: int = 0) -> Iterator[tuple[Any, Callable[[], int]]]:
    """(the file's bytes from `start` on, unpacked where it is compressed; how many of its own have been read)."""
    with path.open("rb", buffering=0) as file:
        if path.suffix.lower() == ".zip":
            with _member(path) as (member, size):
                unpacked = _Unpacked(path, file, member)
                yield unpacked, lambda: unpacked.size * unpacked.given // max(size, 1)
        elif compressed(path):
            yield _Unpacked(path, file), file.tell
        else:
            file.seek(start)
            yield file, lambda: file.tell() - start


@contextmanager
def _member(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """The one file of a zip archive, and its bytes.

    Raises      ValueError: there are none or several
    """
    with bounds.archive(path) as found:
        files = [info for info in found.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
        if len(files) != 1:
            names = bounds.few((info.filename for info in files), 8)
            raise ValueError(f"{path} holds {len(files)} files{names and ', '}{names}; a log is one of them: "
                             f"`unzip -p {path} NAME` writes it, and - reads it from a pipe")
        with found.open(files[0]) as member:
            yield member, files[0].file_size


def unpack(path: Path, plain: IO[bytes]) -> None:
    """Writes a compressed file's bytes.

    Raises      ValueError: it is damaged or cut short, or unpacks to far more than a log does
    """
    block = memoryview(bytearray(BLOCK))
    with _opened(path) as (file, _):
        while count := file.readinto(block):
            plain.write(block[:count])


def head(path: Path, size: int) -> bytes:
    """The first bytes, unpacked: so many, or more where the first line is longer.

    Raises      ValueError: as `blocks`
    """
    found, ended = bytearray(), False
    with _opened(path) as (file, _):
        block = memoryview(bytearray(min(size, BLOCK)))
        while (len(found) < size or not ended) and (count := file.readinto(block)):
            new = max(0, len(found) - 1)    # what lies before has been looked at
            found += block[:count]
            ended = ended or b"\n" in found[new:]
            if not ended and b"\r" in found[new:-1]:
                break       # lines that do not end as they should, which is the caller's affair
            _check_line(path, 0 if ended else len(found))
    return bytes(found)


def blocks(path: Path, start: int = 0, stop: int | None = None, separator: str | None = None) \
        -> Iterator[tuple[NDArray[np.uint8], int]]:
    """(whole records, how many of the file's own bytes are read by now); a last line without an end is given one. A
    block is there until the next one is asked for. separator: of fields that may be quoted, so that a record may have
    several lines; None: a record is a line.

    Raises      ValueError: a compressed file that is damaged or cut short or unpacks to far more than a log does, a
                line of more than LINE bytes; OpenQuote
    """
    buffer, held, records = bytearray(2 * BLOCK), 0, _Records(separator)
    packed = compressed(path)
    left = os.stat(path).st_size if stop is None or packed else stop - start
    with _opened(path, start) as (file, done):
        while True:
            if held > len(buffer) // 2:
                if held > LINE and records.open:
                    raise OpenQuote(f"is not closed within {LINE:,} bytes")
                _check_line(path, held)
                buffer = buffer + bytes(len(buffer))
            room = BLOCK if packed else min(BLOCK, left)
            count = file.readinto(memoryview(buffer)[held:held + room]) if room else 0
            left -= count
            if not count:
                break
            _, end = records.ends(buffer, held, held + count)
            held += count
            if end:
                yield np.frombuffer(buffer, np.uint8, end), done()
                buffer[:held - end] = buffer[end:held]
                held -= end
        if held:
            if records.state == parse.IN_QUOTES:
                raise OpenQuote("is not closed")
            buffer[held] = 10
            yield np.frombuffer(buffer, np.uint8, held + 1), done()
