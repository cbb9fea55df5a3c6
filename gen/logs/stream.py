"""Files as streams of whole lines: plain ones by stretches, compressed ones from end to end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["COMPRESSED", "blocks", "cuts", "lines_before", "stem", "unpack"]

#: Endings of compressed files, and what pyarrow calls them.
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BLOCK = 1 << 18     # bytes that are read at once: they stay in the CPU's caches until they are parsed
LINE = 1 << 26      # bytes of a line that are still waited for


def stem(path: Path) -> Path:
    """The path without the ending of its compression."""
    return path.with_suffix("") if path.suffix in COMPRESSED else path


def cuts(path: Path, start: int, piece: int) -> list[int]:
    """Bytes at which a plain text is cut into stretches of about `piece` bytes, each behind a line's end: the first is
    `start`, the last the file's size."""
    size = path.stat().st_size
    count = max(1, round((size - start) / piece))
    found = [start]
    with path.open("rb") as file:
        for number in range(1, count):
            file.seek(start + (size - start) * number // count - 1)
            while (block := file.read(1 << 16)) and b"\n" not in block:
                pass
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


@contextmanager
def _opened(path: Path, start: int = 0) -> Iterator[tuple[Any, Callable[[], int]]]:
    """(the file's bytes from `start` on, unpacked where it is compressed; how many of its own have been read)."""
    if path.suffix not in COMPRESSED:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            yield file, lambda: file.tell() - start
        return
    with pa.OSFile(str(path)) as packed:
        try:
            with pa.CompressedInputStream(packed, COMPRESSED[path.suffix]) as file:
                yield file, packed.tell
        except OSError as error:
            raise ValueError(f"{path} is no whole {COMPRESSED[path.suffix]} file: {error}") from None


def unpack(path: Path, plain: IO[bytes]) -> None:
    """Writes a compressed file's bytes.

    Raises      ValueError: it is damaged or cut short
    """
    with _opened(path) as (file, _):
        while block := file.read(BLOCK):
            plain.write(block)


def blocks(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """(whole lines, how many of the file's own bytes are read by now); a last line without an end is given one. A block
    is there until the next one is asked for.

    Raises      ValueError: a compressed file that is damaged or cut short, a line of more than LINE bytes
    """
    buffer, held = bytearray(2 * BLOCK), 0
    left = path.stat().st_size if stop is None or path.suffix in COMPRESSED else stop - start
    with _opened(path, start) as (file, done):
        while True:
            if held > len(buffer) // 2:
                if held > LINE:
                    raise ValueError(f"{path} has a line of more than {LINE:,} bytes; is it text?")
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
