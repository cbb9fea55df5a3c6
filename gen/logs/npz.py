"""Arrays in an npz file, member by member in a stream, however they are packed.

`idx_<table>` is one index a sample, `ind_<table>` with `off_<table>` bags of indices; other arrays with one entry a
sample are values.
"""

import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from gen.logs.log import Chunk, Piece

__all__ = ["Member", "NpzPiece", "members", "piece", "tables_of", "values_of"]

BLOCK = 1 << 20     # entries of offsets that are looked at at once


class Member:
    """An array of the file, its entries in order.

    Parameters  archive: the open file; name: of the member
    Raises      ValueError: no array, or one of Python objects
    """

    def __init__(self, archive: zipfile.ZipFile, name: str):
        self.name = name.removesuffix(".npy")
        self.where = archive.filename
        self._file: IO[bytes] = archive.open(name)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        version = np.lib.format.read_magic(self._file)
        if version not in read:
            raise ValueError(f"{name} is of version {version}")
        self.shape, by_column, self.dtype = read[version](self._file)
        if self.dtype.hasobject:
            raise ValueError(f"{name} holds Python objects")
        self._whole: NDArray | None = None
        if by_column and len(self.shape) > 1:
            self._whole = self._rows(self.shape[0], self.shape[::-1][:-1]).reshape(self.shape[::-1]).T
        self._at = 0

    @property
    def entries(self) -> int:
        return self.shape[0] if self.shape else 0

    @property
    def whole_numbers(self) -> bool:
        return len(self.shape) == 1 and self.dtype.kind in "iu"

    def read(self, count: int) -> NDArray:
        """The next entries."""
        self._at += count
        if self._whole is not None:
            return self._whole[self._at - count:self._at]
        return self._rows(count, self.shape[1:])

    def _rows(self, count: int, shape: tuple[int, ...]) -> NDArray:
        size = count * int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        data = self._file.read(size)
        if len(data) != size:
            raise ValueError(f"{self.name} ends after {len(data):,} of {size:,} bytes")
        return np.frombuffer(data, self.dtype).reshape(count, *shape)

    def whole(self) -> NDArray:
        """All of it, to be written on."""
        return (self.read(self.entries) if self.shape else self._rows(1, ()).reshape(())).copy()

    def ids(self, count: int, most: int = (1 << 64) - 1) -> NDArray[np.uint64]:
        """The next entries as ids, none above `most`."""
        at, found = self._at, self.read(count)
        if found.size and (found.min() < 0 or int(found.max()) > most):
            bad = int(np.argmax(found < 0)) if found.min() < 0 else int(np.argmax(found))
            raise Fault(f"{self.where}: {self.name}[{at + bad}] is {found[bad]}; an index is 0 or more" + (
                f" and at most {most}" if found[bad] > 0 else ""))
        return found.astype(np.uint64)


class Fault(ValueError):
    """A sentence that is whole."""


@contextmanager
def members(path: Path) -> Iterator[dict[str, Member]]:
    """The arrays of a file by name, open for as long as the context is.

    Raises      ValueError: no npz file, no table in it, tables that are no whole numbers, offsets that are missing or
                do not rise from 0 to the indices' end, a file that turns out damaged
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = {member.name: member for member in (Member(archive, name) for name in archive.namelist())}
            _check(path, archive, found)
            yield found
    except Fault:
        raise
    except (ValueError, OSError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as npz: {error}") from None


def _check(path: Path, archive: zipfile.ZipFile, found: dict[str, Member]) -> None:
    for name, member in found.items():
        kind, _, table = name.partition("_")
        if kind in ("idx", "ind") and not member.whole_numbers:
            raise Fault(f"{path}: {name} is {member.dtype} of shape {member.shape}; "
                        "it must be whole numbers in one dimension")
        if kind == "ind":
            _check_offsets(path, archive, f"off_{table}", found, member.entries)
    if not tables_of(found):
        raise Fault(f"{path} has no array named idx_<table> or ind_<table>; it has {', '.join(found) or 'none'}")


def _check_offsets(path: Path, archive: zipfile.ZipFile, name: str, found: dict[str, Member], total: int) -> None:
    if name not in found:
        raise Fault(f"{path}: {name} is missing; the bags of ind_{name[4:]} need it")
    if not found[name].whole_numbers or not found[name].entries:
        raise Fault(f"{path}: {name} is {found[name].dtype} of shape {found[name].shape}; "
                    "it must be whole numbers in one dimension, one more than there are samples")
    # Read twice: faults are found before the first sample is given.
    member, first, last, rises = Member(archive, f"{name}.npy"), None, 0, True
    for begin in range(0, member.entries, BLOCK):
        block = member.read(min(BLOCK, member.entries - begin)).astype(np.int64)
        rises &= bool((np.diff(block, prepend=block[:1] if first is None else last) >= 0).all())
        first, last = (int(block[0]) if first is None else first), int(block[-1])
    if first != 0 or last != total or not rises:
        raise Fault(f"{path}: {name} runs from {first} to {last}; "
                    f"it must rise from 0 to {total}, the length of ind_{name[4:]}")


def tables_of(found: Mapping[str, Member]) -> dict[str, Member]:
    """The indices by table."""
    return {name[4:]: member for name, member in found.items() if name[:4] in ("idx_", "ind_")}


def values_of(found: Mapping[str, Member]) -> dict[str, Member]:
    """Arrays that are none of a table's."""
    return {name: member for name, member in found.items() if name.partition("_")[0] not in ("idx", "ind", "off")}


@dataclass
class NpzPiece(Piece):
    """A file; broken values end the reading: there are no lines that could be left out.

    Raises      ValueError: see members; an index below 0, while it is read
    """

    path: Path = field(kw_only=True)
    samples: int = field(kw_only=True)

    def chunks(self, samples: int = 65536) -> Iterator[Chunk]:
        self.done = 0
        with members(self.path) as found:
            tables = {name: member for name, member in tables_of(found).items() if name in self.tables}
            values = {name: member for name, member in values_of(found).items()
                      if member.entries == self.samples and name not in self.unread}
            bags = {name: found[f"off_{name}"] for name in tables if f"ind_{name}" in found}
            edge = {name: member.read(1).astype(np.int64) for name, member in bags.items()}
            for begin in range(0, self.samples, samples):
                count = min(samples, self.samples - begin)
                offsets = {}
                for name, member in bags.items():
                    rising = np.concatenate([edge[name], member.read(count).astype(np.int64)])
                    edge[name] = rising[-1:]
                    offsets[name] = rising - rising[0]
                ids = {name: member.ids(int(offsets[name][-1]) if name in bags else count)
                       for name, member in tables.items()}
                self.done = self.bytes * (begin + count) // self.samples
                yield Chunk(self.first + begin, count, ids, offsets,
                            {name: member.read(count) for name, member in values.items()})


def piece(path: Path, tables: Iterable[str] | None = None) -> NpzPiece:
    """A file as a piece of a log; tables: those wanted, all of them by default.

    Raises      ValueError: see members; a table that it has not, tables whose samples differ
    """
    with members(path) as found:
        there = tables_of(found)
        wanted = tuple(there) if tables is None else tuple(tables)
        for name in wanted:
            if name not in there:
                raise Fault(f"{path} has no table {name!r}; it has {', '.join(there)}")
        lengths = {name: found[f"off_{name}"].entries - 1 if f"ind_{name}" in found else there[name].entries
                   for name in wanted}
        first, samples = next(iter(lengths.items()))
        for name, length in lengths.items():
            if length != samples:
                raise Fault(f"{path}: {name} has {length} samples, {first} has {samples}")
        unread = [name for name in there if name not in wanted]
        unread += [name for name, member in values_of(found).items() if member.entries != samples]
        return NpzPiece(str(path), wanted, bytes=path.stat().st_size, path=path, samples=samples, unread=tuple(unread))
