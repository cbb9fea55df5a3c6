"""Files as streams of whole lines: plain ones by stretches, compressed ones from end to end."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["COMPRESSED", "LongLine", "blocks", "bytes_of", "cuts", "lines_before", "stem"]

#: Endings of compressed files, and what pyarrow calls them.
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BLOCK = 1 << 22
LINE = 1 << 26      # bytes of a line that are still waited for


class LongLine(ValueError):
    pass


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


def bytes_of(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[bytes, int]]:
    """(bytes, how many of the file's own are read by now), block by block, unpacked where the file is compressed.

    Raises      ValueError: a compressed file that is damaged or cut short
    """
    if path.suffix not in COMPRESSED:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            end = path.stat().st_size if stop is None else stop
            while (at := file.tell()) < end and (block := file.read(min(BLOCK, end - at))):
                yield block, file.tell() - start
        return
    with pa.OSFile(str(path)) as packed:
        try:
            with pa.CompressedInputStream(packed, COMPRESSED[path.suffix]) as file:
                while block := file.read(BLOCK):
                    yield block, packed.tell()
        except OSError as error:
            raise ValueError(f"{path} is no whole {COMPRESSED[path.suffix]} file: {error}") from None


def blocks(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """(whole lines, how many of the file's own bytes are read by now); a last line without an end is given one."""
    tail = b""
    done = 0
    for block, done in bytes_of(path, start, stop):
        end = block.rfind(b"\n") + 1
        if not end:
            tail += block
            if len(tail) > LINE:
                raise LongLine(f"{path} has a line of more than {LINE:,} bytes; is it text?")
            continue
        yield np.frombuffer(tail + block[:end], np.uint8), done
        tail = block[end:]
    if tail:
        yield np.frombuffer(tail + b"\n", np.uint8), done
