"""Folders of arrays and files that are written whole and checked when they are opened.

A manifest names every member with its SHA-256 and, of an array, dtype and shape; it carries a digest of itself.
Arrays are plain .npy files without pickled objects, mapped into memory when they are asked for. All bytes of one are
asked of the file system before any is written: a disk without room for them is then one sentence, where a map of a
file with holes would end the process when they are filled.
"""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from gen.base.kept import digest
from gen.base.npy import mapped, shape_of
from gen.base.sealed import seal, understood, unseal, writing
from gen.base.staging import WRITERS, staged

MANIFEST = "manifest.json"
MEMBER = re.compile(r"[A-Za-z0-9_\-]+(/[A-Za-z0-9_\-]+)?(\.[A-Za-z0-9_\-]+)*\.(npy|json|toml)")


class Writer:
    """A folder that is being written, beside the place where it will be; `with` puts it there at the end, or leaves
    nothing where an error ends it. One that was there before is replaced; anything else is not.

    kind, version: of what it holds.
    Raises      ValueError: the folder holds something else
    """

    def __init__(self, folder: str | Path, kind: str, version: int):
        self.folder, self.kind, self.version = Path(folder), kind, version
        check_replaceable(self.folder, kind)
        self._maps: list[np.memmap] = []

    def __enter__(self) -> Self:
        with writing(self.folder):
            self._place = staged(self.folder)
            self._half = self._place.__enter__()
            self._half.mkdir()
        return self

    def room(self, name: str, shape: tuple[int, ...], dtype: DTypeLike = np.uint32) -> NDArray:
        """A member of zeros that is filled in place.

        Raises      ValueError: there is no room for it on the disk
        """
        with self._begun(name, shape, np.dtype(dtype)) as file:
            if not math.prod(shape):
                return np.zeros(shape, dtype)
            self._maps.append(member := np.memmap(file, dtype, "r+", file.tell(), shape))
        return member

    def array(self, name: str, values: NDArray) -> str:
        """Writes an array; returns its name. Raises ValueError as `room` does"""
        values = np.ascontiguousarray(values)
        with self._begun(name, values.shape, values.dtype) as file:
            file.write(values.reshape(-1).view(np.uint8).data)
        return name

    @contextmanager
    def _begun(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> Iterator[IO[bytes]]:
        """The file of an array, its header written and the room behind it, zeros, its own."""
        with writing(self.folder / name), self._path(name).open("w+b") as file:
            npy.write_array_header_1_0(file, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False,
                                              "shape": tuple(map(int, shape))})
            file.flush()
            if bytes := math.prod(shape) * dtype.itemsize:
                os.posix_fallocate(file.fileno(), file.tell(), bytes)
            yield file

    def file(self, name: str, data: bytes) -> str:
        """Writes a file; returns its name. Raises ValueError as `room` does"""
        with writing(self.folder / name):
            self._path(name).write_bytes(data)
        return name

    def finish(self, content: Mapping[str, Any]) -> None:
        """Writes the manifest: what the folder is, and the digests of its members."""
        with writing(self.folder):
            for part in self._maps:
                part.flush()
        self._maps.clear()
        members = {}
        for path in sorted(path for path in self._half.rglob("*") if path.is_file()):
            name = path.relative_to(self._half).as_posix()
            members[name] = {"sha256": digest(path), **_form(path)}
        with writing(self.folder / MANIFEST):
            (self._half / MANIFEST).write_bytes(seal(self.kind, self.version, {**content, "members": members}))

    def _path(self, name: str) -> Path:
        assert MEMBER.fullmatch(name), name
        path = self._half / name
        path.parent.mkdir(exist_ok=True)
        return path

    def __exit__(self, *reason: Any) -> None:
        self._maps.clear()
        self._place.__exit__(*reason)


class Folder:
    """A folder that has been written. content: of its manifest. All members are read once, so that what is opened is
    what was written.

    Raises      ValueError: nothing of this kind, another version, a member that is missing or has changed
    """

    def __init__(self, folder: str | Path, kind: str, version: int):
        self.folder = Path(folder)
        try:
            data = (self.folder / MANIFEST).read_bytes()
        except OSError:
            raise ValueError(
                f"there is no {kind} {self.folder}: no such folder" if not self.folder.exists() else
                f"{self.folder} is no {kind}: it {'has no ' + MANIFEST if self.folder.is_dir() else 'is a file'}; name "
                f"the folder that `hotrail {WRITERS[kind]}` wrote") from None
        self.content = unseal(kind, version, data, str(self.folder / MANIFEST))
        with understood(kind, self.folder / MANIFEST):
            self.members: dict[str, dict[str, Any]] = dict(self.content["members"])
            self._check(kind)

    def _check(self, kind: str) -> None:
        for name, record in self.members.items():
            path = self.folder / name
            if not MEMBER.fullmatch(name):
                raise ValueError(f"{self.folder / MANIFEST} names a member {name!r}, which no {kind} has")
            if not path.is_file():
                raise ValueError(f"{self.folder} lacks its member {name}")
            if digest(path) != record["sha256"]:
                raise ValueError(f"{path} is damaged: it does not have the SHA-256 that the manifest names")
            if path.suffix == ".npy" and _form(path) != {key: record[key] for key in ("dtype", "shape")}:
                raise ValueError(f"{path} is not the array that the manifest describes")

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def array(self, name: str) -> NDArray:
        """A member, mapped into memory to be read.

        Raises      ValueError: there is none of that name, or it has changed since the folder was opened
        """
        path = self.path(name)
        if not path.is_file() or _form(path) != {key: self.members[name][key] for key in ("dtype", "shape")}:
            raise ValueError(f"{path} is damaged: it has changed since {self.folder} was opened")
        return mapped(path)

    def path(self, name: str) -> Path:
        """Of a member. Raises ValueError: there is none of that name"""
        if name not in self.members:
            raise ValueError(f"{self.folder} has no member {name!r}")
        return self.folder / name


def check_replaceable(folder: Path, kind: str) -> None:
    """Raises ValueError: a folder holds something else than one of this kind, damaged or not, or nothing"""
    if folder.exists() and not _replaceable(folder, kind):
        raise ValueError(f"{folder} holds something else than a {kind}; name a folder that does not exist")


def _replaceable(folder: Path, kind: str) -> bool:
    """Whether a folder holds one of this kind, damaged or not, or nothing."""
    if not folder.is_dir():
        return False
    try:
        return json.loads((folder / MANIFEST).read_bytes())["kind"] == kind
    except FileNotFoundError:
        return not any(folder.iterdir())
    except (ValueError, KeyError, TypeError):
        return False


def _form(path: Path) -> dict[str, Any]:
    """dtype and shape of an array; nothing of other files."""
    if path.suffix != ".npy":
        return {}
    dtype, shape = shape_of(path)
    return {"dtype": dtype.str, "shape": list(shape)}
