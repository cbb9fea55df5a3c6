"""Arrays in an npz file, member by member in a stream, however they are packed.

`idx_<table>` is one index per sample, `ind_<table>` with `off_<table>` bags of indices; other arrays with one entry a
sample are values, or a table's indices where they are asked for by their names.
"""

import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from gen.base import npy
from gen.data.logs import bounds
from gen.data.logs.bounds import HELD, few, readable, samples_at_once, stretches, twice
from gen.data.logs.log import Chunk, Piece
from gen.data.logs.reading import Form

BLOCK = 1 << 20     # entries of offsets that are looked at at once
ENTRY = 1 << 16     # bytes of an entry of an array of values


class Member:
    """An array of the file, its entries in order. Nothing is read but its header before it is asked for.

    Parameters  archive: the open file; name: of the member
    Raises      ValueError: no array, one of Python objects, a header that is too long or asks for more than is stored
    """

    def __init__(self, archive: zipfile.ZipFile, name: str):
        self.name, self.member, self._archive = name.removesuffix(".npy"), name, archive
        self._file: IO[bytes] = archive.open(name)
        self.form = npy.form(self._file, name)
        self.shape, self.dtype = self.form.shape, self.form.dtype
        stored = archive.getinfo(name).file_size - self.form.start
        if self.form.bytes > stored:
            raise ValueError(f"{self.name} ends after {stored:,} of {self.form.bytes:,} bytes")
        self._whole: NDArray | None = None
        self._at = 0

    def again(self) -> "Member":
        """The same array from its first entry on."""
        return Member(self._archive, self.member)

    @property
    def entries(self) -> int:
        return self.shape[0] if self.shape else 0

    @property
    def entry_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def whole_numbers(self) -> bool:
        return len(self.shape) == 1 and self.dtype.kind in "iu"

    def read(self, count: int) -> NDArray:
        """The next entries. An array that is stored by columns is held whole."""
        self._at += count
        if not self.form.by_column or len(self.shape) < 2:
            return self._numbers(count, self.shape[1:])
        if self._whole is None:
            if self.form.bytes > HELD:
                raise ValueError(f"{self.name} of {self.form.bytes:,} bytes cannot be held whole; at most {HELD:,} can")
            self._whole = self._numbers(self.shape[-1], self.shape[-2::-1]).T
        return self._whole[self._at - count:self._at]

    def _numbers(self, count: int, shape: tuple[int, ...]) -> NDArray:
        numbers = np.empty((count, *shape), self.dtype)
        size = bounds.fill(self._file, numbers.reshape(-1).view(np.uint8)) if numbers.size else 0
        if size != numbers.nbytes:
            raise ValueError(f"{self.name} ends after {size:,} of {numbers.nbytes:,} bytes")
        return numbers

    def ids(self, count: int) -> NDArray[np.uint64]:
        """The next entries as ids: a negative one is its two's complement."""
        return self.read(count).astype(np.uint64)


@contextmanager
def members(path: Path, wanted: Iterable[str] = ()) -> Iterator[dict[str, Member]]:
    """The arrays of a log by name, open for as long as the context is. wanted: tables, whose arrays may be named so.

    Raises      ValueError: no npz file, or one that turns out damaged; a member that is no array; no table in it,
                tables that are no whole numbers, offsets that are missing or do not rise from 0 to the indices' end
    """
    with readable(path, "npz"), bounds.archive(path) as file:
        if (double := twice(name.removesuffix(".npy") for name in file.namelist())) is not None:
            raise ValueError(f"it has the array {double!r} twice")
        members = {name.removesuffix(".npy"): Member(file, name) for name in file.namelist()}
        for name in [name for name in wanted if name in members and name not in tables_of(members)]:
            members[f"idx_{name}"] = members.pop(name)
        for name, member in members.items():
            kind, _, table = name.partition("_")
            if kind in ("idx", "ind") and not member.whole_numbers:
                raise ValueError(f"{path}: {name} is {member.dtype} of shape {member.shape}; "
                                 "it must be whole numbers in one dimension")
            if kind == "ind":
                _check_offsets(path, members.get(f"off_{table}"), table, member.entries)
        if not tables_of(members):
            raise ValueError(f"{path} has no array named idx_<table> or ind_<table>: --table names those that are "
                             f"tables; it has {few(members) or 'none'}")
        if (double := twice(name[4:] for name in members if name[:4] in ("idx_", "ind_"))) is not None:
            raise ValueError(f"{path} has the table {double!r} twice, as idx_{double} and as ind_{double}")
        yield members


def _check_offsets(path: Path, given: Member | None, table: str, total: int) -> None:
    if given is None:
        raise ValueError(f"{path}: off_{table} is missing; the bags of ind_{table} need it")
    if not given.whole_numbers or not given.entries:
        raise ValueError(f"{path}: off_{table} is {given.dtype} of shape {given.shape}; "
                         "it must be whole numbers in one dimension, one more than there are samples")
    # Read twice: faults are found before the first sample is given.
    member, first, last, rises = given.again(), None, 0, True
    for begin in range(0, member.entries, BLOCK):
        block = member.read(min(BLOCK, member.entries - begin)).astype(np.int64)
        rises &= bool((block[1:] >= block[:-1]).all() and (first is None or block[0] >= last))
        first, last = (int(block[0]) if first is None else first), int(block[-1])
    if first != 0 or last != total or not rises:
        raise ValueError(f"{path}: off_{table} runs from {first} to {last}; "
                         f"it must rise from 0 to {total}, the length of ind_{table}")


def tables_of(found: Mapping[str, Member]) -> dict[str, Member]:
    """The indices by table."""
    return {name[4:]: member for name, member in found.items() if name[:4] in ("idx_", "ind_")}


def values_of(found: Mapping[str, Member]) -> dict[str, Member]:
    """Arrays that are none of a table's."""
    return {name: member for name, member in found.items() if name.partition("_")[0] not in ("idx", "ind", "off")}


@dataclass
class NpzPiece(Piece):
    """A file; broken values end the reading: there are no lines that could be left out.

    Raises      ValueError: see members; a bag of more than BAG ids, while it is read
    """

    path: Path = field(kw_only=True)
    samples: int = field(kw_only=True)

    def _chunks(self, samples: int) -> Iterator[Chunk]:
        self.done = 0
        with members(self.path, self.tables) as arrays:
            tables = {name: arrays[f"ind_{name}" if f"ind_{name}" in arrays else f"idx_{name}"] for name in self.tables}
            left_out = set(self.unread)
            values = {name: member for name, member in values_of(arrays).items()
                      if member.entries == self.samples and name not in left_out}
            bags = {name: arrays[f"off_{name}"] for name in tables if f"ind_{name}" in arrays}
            edge = {name: member.read(1).astype(np.int64) for name, member in bags.items()}
            samples = samples_at_once(samples, len(tables) + sum(each.entry_bytes // 8 + 1 for each in values.values()))
            for begin in range(0, self.samples, samples):
                count = min(samples, self.samples - begin)
                rising = {name: np.concatenate([edge[name], member.read(count).astype(np.int64)])
                          for name, member in bags.items()}
                edge = {name: each[-1:] for name, each in rising.items()}
                for start, stop in stretches(bounds.together(self.source, rising, count)):
                    offsets = {name: each[start:stop + 1] - each[start] for name, each in rising.items()}
                    ids = {name: member.ids(int(offsets[name][-1]) if name in bags else stop - start)
                           for name, member in tables.items()}
                    self.done = self.bytes * (begin + stop) // self.samples
                    yield Chunk(self.first + begin + start, stop - start, ids, offsets,
                                {name: member.read(stop - start) for name, member in values.items()})


def piece(path: Path, tables: Iterable[str] | None = None) -> NpzPiece:
    """A file as a piece of a log; tables: those wanted, all of them by default.

    Raises      ValueError: see members; a table that it has not, tables whose samples differ
    """
    names = () if tables is None else tuple(tables)
    with members(path, names) as arrays:
        there = tables_of(arrays)
        wanted = names or tuple(there)
        for name in wanted:
            if name not in there:
                raise ValueError(f"{path} has no table {name!r}; it has {few(there)}")
        lengths = {name: arrays[f"off_{name}"].entries - 1 if f"ind_{name}" in arrays else there[name].entries
                   for name in wanted}
        first, samples = next(iter(lengths.items()))
        for name, length in lengths.items():
            if length != samples:
                raise ValueError(f"{path}: {name} has {length} samples, {first} has {samples}")
        chosen = set(wanted)
        unread = [name for name in there if name not in chosen]
        unread += [name for name, member in values_of(arrays).items()
                   if member.entries != samples or member.entry_bytes > ENTRY]
        form = Form("npz", {name: "lists" if f"ind_{name}" in arrays else "whole numbers" for name in wanted},
                    {name: "not asked for" if name in there else "not an entry for each sample" for name in unread})
        return NpzPiece(str(path), wanted, bytes=path.stat().st_size, path=path, samples=samples, unread=tuple(unread),
                        form=form)
