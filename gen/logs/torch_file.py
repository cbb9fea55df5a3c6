"""Tensors that torch.save has written, without torch, and without running what the file says.

The file is a zip archive: a pickle that names tensors, and the bytes of each, not packed. The pickle is read by an
unpickler that knows tensors, and the containers that hold them, and refuses any other name; the bytes are mapped.
"""

import collections
import pickle
import struct
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TorchFileError", "read"]

_STORAGES = {"LongStorage": "i8", "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1", "ByteStorage": "u1",
             "BoolStorage": "?", "DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2"}
PICKLE_BYTES = 1 << 20      # of names and shapes; more is no file of tensors


class TorchFileError(ValueError):
    """One sentence on the file."""


def read(path: str | Path) -> Any:
    """What was saved: containers of arrays that cannot be written, mapped from the file.

    Raises      TorchFileError: no such file, one of before torch 1.6, anything in it but tensors of numbers, a tensor
                that leaves its bytes
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
            members = {PurePosixPath(info.filename).parts[1:]: info for info in archive.infolist()}
            if ("data.pkl",) not in members:
                raise TorchFileError(f"{path} holds no data.pkl; torch.save writes one")
            if members["data.pkl",].file_size > PICKLE_BYTES:
                raise TorchFileError(f"{path}: data.pkl is longer than {PICKLE_BYTES:,} bytes; tensors need less")
            order = archive.read(members["byteorder",]) if ("byteorder",) in members else b"little"
            with archive.open(members["data.pkl",]) as file:
                return _Unpickler(file, path, raw, members, order == b"little").load()
    except zipfile.BadZipFile as error:
        raise TorchFileError(f"{path} is no file of torch.save since 1.6: {error}") from None
    except TorchFileError:
        raise
    # Whatever a pickle that is none may do to the unpickler.
    except Exception as error:
        raise TorchFileError(f"{path} cannot be read as tensors: {type(error).__name__}: {error}") from None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], path: Path, raw: IO[bytes], members: dict[tuple[str, ...], zipfile.ZipInfo],
                 little: bool):
        super().__init__(file, encoding="utf-8")
        self._path, self._raw, self._members, self._order = path, raw, members, "<" if little else ">"

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("torch._utils", "_rebuild_tensor"), ("torch._utils", "_rebuild_tensor_v2")):
            return self._tensor
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch" and name in _STORAGES:
            return np.dtype(self._order + _STORAGES[name])
        raise TorchFileError(f"{self._path} names {module}.{name}; only tensors of numbers are read")

    def persistent_load(self, pid: Any) -> NDArray:
        """A storage: the bytes of a member, mapped."""
        kind, dtype, key, _, count = pid
        info = self._members.get(("data", str(key)))
        if kind != "storage" or not isinstance(dtype, np.dtype) or info is None:
            raise TorchFileError(f"{self._path} has no bytes for its storage {key!r}")
        if info.compress_type != zipfile.ZIP_STORED or type(count) is not int or not (
                0 <= count * dtype.itemsize <= info.file_size):
            raise TorchFileError(f"{self._path}: the storage {key!r} of {info.file_size:,} bytes is packed, or too "
                                 f"short for {count} numbers of {dtype.itemsize} bytes")
        if not count:
            return np.zeros(0, dtype)
        # The local header has lengths of its own.
        self._raw.seek(info.header_offset)
        header = self._raw.read(30)
        name, extra = struct.unpack("<HH", header[26:30])
        start = info.header_offset + 30 + name + extra
        if start + count * dtype.itemsize > self._path.stat().st_size:
            raise TorchFileError(f"{self._path} ends before its storage {key!r} does")
        return np.memmap(self._path, dtype, "r", start, (count,))

    def _tensor(self, storage: NDArray, offset: int, size: tuple[int, ...], stride: tuple[int, ...],
                *_: Any) -> NDArray:
        whole = all(type(each) is int and each >= 0 for each in (offset, *size, *stride)) and len(size) == len(stride)
        empty = 0 in size
        if not whole or not empty and offset + sum((n - 1) * step for n, step in zip(size, stride)) >= len(storage):
            raise TorchFileError(f"{self._path}: a tensor of shape {tuple(size)} leaves its {len(storage):,} numbers")
        if empty:
            return np.zeros(size, storage.dtype)
        return np.lib.stride_tricks.as_strided(storage[offset:], size, [step * storage.itemsize for step in stride],
                                               writeable=False)
