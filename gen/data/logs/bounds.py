"""What a file may ask for, and how it is refused: bounds that every reader looks at before it makes room for anything,
and the boundary behind which every fault of a file is a ValueError of one sentence that names it."""

import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Fields of a line, columns, arrays of an archive, tables.
COLUMNS = 1 << 14
#: Numbers of a chunk over all columns, 8 bytes each.
WORDS = 1 << 23
#: Ids of one bag.
BAG = 1 << 22
#: Bytes of an array that has to be held whole where the others are streamed.
HELD = 1 << 28
#: Bytes of ids and values of a log that is held whole.
WHOLE = 1 << 30
#: A packed file may unpack to so many times its bytes, or to so many bytes where that is more.
RATIO, UNPACKED = 1000, 1 << 28
#: Bytes of an archive's directory.
DIRECTORY = 1 << 22
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
SENTENCE = 2000     # characters of what another library says


@contextmanager
def readable(where: str | Path, form: str = "") -> Iterator[None]:
    """Around what reads a file: a sentence that names it passes, whatever else goes wrong becomes one. form: what it
    is read as.

    Raises      ValueError: that sentence; the fault behind it is its cause
    """
    try:
        yield
    except Exception as error:
        text = " ".join((isinstance(error, OSError) and error.strerror or str(error)).split())
        if isinstance(error, ValueError) and str(where) in text:
            raise
        if isinstance(error, MemoryError):
            text = "it asks for more memory than there is"
        elif not isinstance(error, (ValueError, OSError, zipfile.BadZipFile)):
            text = f"{type(error).__name__}: {text}"
        raise ValueError(f"{where} cannot be read{form and f' as {form}'}: {text[:SENTENCE]}") from error


def few(names: Iterable[str], most: int = 40) -> str:
    """Names for a sentence, the first of them where there are many."""
    given = [name if name and name.isprintable() else repr(name) for name in names]
    return ", ".join(given[:most]) + (f" and {len(given) - most} more" if len(given) > most else "")


def twice(names: Iterable[str]) -> str | None:
    """The first name that is there more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def samples_at_once(samples: int, columns: int) -> int:
    """So many samples, or fewer where there are so many columns that a chunk would pass WORDS."""
    return max(1, min(samples, WORDS // max(columns, 1)))


def stretches(lengths: NDArray[np.int64], most: int = WORDS) -> Iterator[tuple[int, int]]:
    """Samples start to stop, in order: with at most so many ids together, or one that has more. lengths: of each."""
    ends, start = np.cumsum(lengths, dtype=np.int64), 0
    while start < len(lengths):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield start, stop
        start = stop


def together(source: str, rising: Mapping[str, NDArray[np.int64]], samples: int) -> NDArray[np.int64]:
    """How many ids the bags of each sample have.

    Raises      ValueError: a bag of more than BAG
    """
    found = np.zeros(samples, np.int64)
    for name, edges in rising.items():
        lengths = np.diff(edges)
        if len(lengths) and lengths.max() > BAG:
            raise ValueError(f"{source}: a bag of {name} has {lengths.max():,} ids; at most {BAG:,} are read")
        found += lengths
    return found


def unpacked(where: str | Path, size: int, packed: int) -> None:
    """Raises ValueError where `packed` bytes of a file become so many more that it is no log."""
    if size > max(UNPACKED, RATIO * packed):
        raise ValueError(f"{where} has {packed:,} bytes and unpacks to {size:,} or more, over {RATIO:,} times as many; "
                         "no log does")


class _Bounded(io.BufferedReader):
    """A file of which no more than DIRECTORY bytes are read at once until `free`: an archive's directory is read so."""

    free = False

    def read(self, size: int | None = -1) -> bytes:
        if not self.free and size is not None and size > DIRECTORY:
            raise zipfile.BadZipFile(f"its directory of {size:,} bytes is longer than {DIRECTORY:,}")
        return super().read(size)


@contextmanager
def archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip archive that is no trap: a directory of bounded length, every name once, no member locked, all packed as
    numpy does or not at all.

    Raises      BadZipFile: one of these; OSError, ValueError: as zipfile does. All become sentences by `readable`
    """
    with _Bounded(io.FileIO(path)) as file, zipfile.ZipFile(file) as found:
        file.free = True
        infos = found.infolist()
        if len(infos) > COLUMNS:
            raise zipfile.BadZipFile(f"it has {len(infos):,} members, more than {COLUMNS:,}")
        if (name := twice(info.filename for info in infos)) is not None:
            raise zipfile.BadZipFile(f"it has the member {name!r} twice")
        if locked := [info.filename for info in infos if info.flag_bits & 1]:
            raise zipfile.BadZipFile(f"the member {locked[0]!r} is encrypted")
        if odd := [info.filename for info in infos if info.compress_type not in PACKED]:
            raise zipfile.BadZipFile(f"the member {odd[0]!r} is packed in another way than deflate")
        yield found


def fill(file: Any, room: NDArray[np.uint8], block: int = 1 << 20) -> int:
    """Reads a stream into an array of bytes, block by block; returns how many there were."""
    at = 0
    while at < len(room):
        data = file.read(min(block, len(room) - at))
        if not data:
            break
        room[at:at + len(data)] = np.frombuffer(data, np.uint8)
        at += len(data)
    return at
