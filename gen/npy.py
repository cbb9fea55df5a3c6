"""Arrays out of .npy files that need not be sound: nothing is allocated before its bytes are known to be there."""

import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

__all__ = ["MOST_BYTES", "mapped", "member", "shape_of"]

MOST_BYTES = 1 << 40    # of an array
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def _header(file: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """(shape, whether columns come first, dtype, bytes of the entries); the file stands behind the header."""
    try:
        shape, by_column, dtype = _HEADERS[npy.read_magic(file)](file)
        size = math.prod(shape) * dtype.itemsize
    except Exception:       # whatever Python's parser says of the header's text
        raise ValueError(f"{where} is no array: its header cannot be read") from None
    if dtype.hasobject or dtype.itemsize == 0 or any(type(each) is not int or each < 0 for each in shape):
        raise ValueError(f"{where} is no array of numbers")
    if size > MOST_BYTES or max(shape, default=0) * dtype.itemsize > MOST_BYTES:
        raise ValueError(f"{where} has the shape {shape}, which is more than can be")
    return shape, by_column, dtype, size


def member(archive: zipfile.ZipFile, name: str, most: int = MOST_BYTES) -> NDArray:
    """An array out of an npz file, of so many bytes at most.

    Raises      ValueError: one sentence that names file and array
    """
    where = f"{archive.filename}: {name.removesuffix('.npy')}"
    try:
        with archive.open(name) as file:
            shape, by_column, dtype, size = _header(file, where)
            told = archive.getinfo(name).file_size - file.tell()
            if told != size:
                raise ValueError(f"{where} has {told:,} bytes, its shape {shape} of {dtype} needs {size:,}")
            if size > most:
                raise ValueError(f"{where} has the shape {shape} of {dtype}, which is more than is asked for")
            data = file.read(size)
    except ValueError:
        raise
    except Exception as error:      # zipfile's and zlib's are of no common class
        raise ValueError(f"{where} cannot be read: {error or type(error).__name__}") from None
    if len(data) != size:
        raise ValueError(f"{where} ends after {len(data):,} of {size:,} bytes")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if by_column else "C")


def shape_of(path: Path) -> tuple[np.dtype, tuple[int, ...]]:
    """dtype and shape of an .npy file that has all of its bytes. Raises ValueError: it is none"""
    try:
        with path.open("rb") as file:
            shape, _, dtype, size = _header(file, str(path))
            there = path.stat().st_size - file.tell()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    if there != size:
        raise ValueError(f"{path} is no array: it has {there:,} bytes, its shape {shape} of {dtype} needs {size:,}")
    return dtype, shape


def mapped(path: Path) -> NDArray:
    """An .npy file, mapped into memory to be read. Raises ValueError as `shape_of` does"""
    shape_of(path)
    found: NDArray = np.load(path, mmap_mode="r", allow_pickle=False)
    return found
