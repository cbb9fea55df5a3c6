"""Files as streams of whole lines: plain ones by stretches, compressed ones from end to end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gen.base.extras import extra
from gen.data.logs import bounds

__all__ = ["COMPRESSED", "blocks", "cuts", "lines_before", "stem", "unpack"]

#: Endings of compressed files, and what pyarrow calls them.
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BLOCK = 1 << 18     # bytes that are read at once: they stay in the CPU's caches until they are parsed
LINE = 1 << 24      # bytes of a line that are still waited for


def stem(path: Path) -> Path:
    """The path without the ending of its compression."""
    return path.with_suffix("") if path.suffix in COMPRESSED else path


def cuts(path: Path, start: int, piece: int) -> list[int]:
    """Bytes at which a plain text is cut into stretches of about `piece` bytes, each behind a line's end: the first is
    `start`, the last the file's size.

    Raises      ValueError: a line of more than LINE bytes at a cut
    """
    size = path.stat().st_size
    count = max(1, round((size - start) / piece))
    found = [start]
    with path.open("rb") as file:
        for number in range(1, count):
            file.seek(start + (size - start) * number // count - 1)
            begin = file.tell()
            while (block := file.read(1 << 16)) and b"\n" not in block:
                _check_line(path, file.tell() - begin)
            if block:
                end = file.tell() - len(block) + block.index(b"\n") + 1
                if found[-1] < end < size:
                    found.append(end)
    return [*found, size] if size > start else [start, start]


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

    def __init__(self, path: Path, arrow: Any, packed: Any, kind: str):
        self.path, self.kind, self.size, self.given = path, kind, path.stat().st_size, 0
        self.faults = arrow.ArrowException, OSError
        self.file = self._asked(arrow.CompressedInputStream, packed, kind)

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
    if path.suffix not in COMPRESSED:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            yield file, lambda: file.tell() - start
        return
    with extra(f"{path}: a compressed log"):
        import pyarrow
    with pyarrow.OSFile(str(path)) as packed:
        yield _Unpacked(path, pyarrow, packed, COMPRESSED[path.suffix]), packed.tell


def unpack(path: Path, plain: IO[bytes]) -> None:
    """Writes a compressed file's bytes.

    Raises      ValueError: it is damaged or cut short, or unpacks to far more than a log does
    """
    block = memoryview(bytearray(BLOCK))
    with _opened(path) as (file, _):
        while count := file.readinto(block):
            plain.write(block[:count])


def blocks(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """(whole lines, how many of the file's own bytes are read by now); a last line without an end is given one. A block
    is there until the next one is asked for.

    Raises      ValueError: a compressed file that is damaged or cut short or unpacks to far more than a log does, a
                line of more than LINE bytes
    """
    buffer, held = bytearray(2 * BLOCK), 0
    left = path.stat().st_size if stop is None or path.suffix in COMPRESSED else stop - start
    with _opened(path, start) as (file, done):
        while True:
            if held > len(buffer) // 2:
                _check_line(path, held)
                buffer = buffer + bytes(len(buffer))
            room = min(BLOCK, left) if path.suffix not in COMPRESSED else BLOCK
            count = file.readinto(memoryview(buffer)[held:held + room]) if room else 0
            left -= count
            if not count:
                break
            end = buffer.rfind(b"\n", held, held + count) + 1
            held += count
            if end:
                yield np.frombuffer(buffer, np.uint8, end), done()
                buffer[:held - end] = buffer[end:held]
                held -= end
        if held:
            buffer[held] = 10
            yield np.frombuffer(buffer, np.uint8, held + 1), done()
