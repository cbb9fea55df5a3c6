"""Arrays out of .npy files that need not be sound: nothing is allocated before its bytes are known to be there."""

import io
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

HEADER = 10_000         # bytes
MOST_BYTES = 1 << 62    # of an array, where an axis of no entries counts as one
_LENGTH = {b"\1\0": 2, b"\2\0": 4}  # bytes of the header's length, by version
_READ = {2: npy.read_array_header_1_0, 4: npy.read_array_header_2_0}


@dataclass(frozen=True)
class Form:
    """What an array's header says. by_column: whether columns come first; start: bytes before the entries."""

    shape: tuple[int, ...]
    by_column: bool
    dtype: np.dtype
    start: int

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def form(file: IO[bytes], where: str) -> Form:
    """Reads a header; the file stands behind it.

    Raises      ValueError: no array, one of Python objects, a shape that no array has
    """
    magic = file.read(8)
    wide = _LENGTH.get(magic[6:])
    if magic[:6] != npy.MAGIC_PREFIX or wide is None:
        raise ValueError(f"{where} is no array: it begins with {magic!r}")
    length = file.read(wide)
    size = int.from_bytes(length, "little")
    if size > HEADER:
        raise ValueError(f"{where} has a header of {size:,} bytes; at most {HEADER:,} are read")
    try:
        shape, by_column, dtype = _READ[wide](io.BytesIO(length + file.read(size)))
    except Exception:       # whatever Python's parser says of the header's text
        raise ValueError(f"{where} is no array: its header cannot be read") from None
    if dtype.hasobject:
        raise ValueError(f"{where} holds Python objects")
    whole = len(shape) <= 32 and all(type(each) is int and each >= 0 for each in shape) and dtype.itemsize
    if not whole or math.prod(max(each, 1) for each in shape) * dtype.itemsize > MOST_BYTES:
        raise ValueError(f"{where} is {dtype} of shape {shape}, which is no array")
    return Form(shape, by_column, dtype, 8 + wide + size)


def opened(path: Path, kind: str) -> zipfile.ZipFile:
    """An npz file, its directory read.

    Raises      ValueError: `path` cannot be read or is no `kind`
    """
    try:
        return zipfile.ZipFile(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:      # zipfile's are of no common class, and may be of several lines
        raise ValueError(f"{path} is no {kind}: {' '.join(str(error).split())}") from None


def member(archive: zipfile.ZipFile, name: str, most: int) -> NDArray:
    """An array out of an npz file, of so many bytes at most.

    Raises      ValueError: one sentence that names file and array
    """
    array = name.removesuffix(".npy")
    where = f"{archive.filename}: {array if array.isprintable() else repr(array)}"
    try:
        with archive.open(name) as file:
            header = form(file, where)
            _check_size(header, archive.getinfo(name).file_size, where)
            if header.bytes > most:
                raise ValueError(f"{where} is {header.dtype} of shape {header.shape}, which is more than is asked for")
            data = file.read(header.bytes)
    except ValueError:
        raise
    except Exception as error:      # zipfile's and zlib's are of no common class
        raise ValueError(f"{where} cannot be read: {error or type(error).__name__}") from None
    if len(data) != header.bytes:
        raise ValueError(f"{where} ends after {len(data):,} of {header.bytes:,} bytes")
    return np.frombuffer(data, header.dtype).reshape(header.shape, order="F" if header.by_column else "C")


def _check_size(found: Form, size: int, where: str) -> None:
    """Raises ValueError: a file of another size than its header asks for"""
    if size - found.start != found.bytes:
        raise ValueError(f"{where} is no array: it has {size - found.start:,} bytes, its shape {found.shape} of "
                         f"{found.dtype} needs {found.bytes:,}")


def shape_of(path: Path) -> tuple[np.dtype, tuple[int, ...]]:
    """dtype and shape of an .npy file that has all of its bytes. Raises ValueError: it is none"""
    try:
        with path.open("rb") as file:
            header = form(file, str(path))
            size = path.stat().st_size
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    _check_size(header, size, str(path))
    return header.dtype, header.shape


def mapped(path: Path) -> NDArray:
    """An .npy file, mapped into memory to be read. Raises ValueError as `shape_of` does"""
    shape_of(path)
    array: NDArray = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
