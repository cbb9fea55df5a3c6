"""Meta's embedding lookup synthetic sets: the bags of many tables for one large batch, as tensors.

A file is a tuple (indices, offsets, lengths) that torch.save wrote. lengths is (tables, samples); the bag of table t
and sample b is indices[offsets[t * samples + b]:offsets[t * samples + b + 1]].
Source: github.com/facebookresearch/dlrm_datasets
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gen.data.logs import bounds, stream, torch_file
from gen.data.logs.log import PIECE_BYTES, Chunk, Piece
from gen.data.logs.reading import Form


@contextmanager
def _tensors(path: Path) -> Iterator[tuple[NDArray, NDArray, NDArray]]:
    """(indices, offsets, lengths), mapped; a packed file is unpacked beside temporary files for as long."""
    if not stream.compressed(path):
        yield _checked(path, torch_file.read(path))
        return
    handle, name = tempfile.mkstemp(".pt")
    try:
        with os.fdopen(handle, "wb") as plain:
            stream.unpack(path, plain)
        try:
            found = torch_file.read(name)
        except ValueError as error:
            raise ValueError(str(error).replace(name, str(path))) from error
        yield _checked(path, found)
    finally:
        os.unlink(name)


def _checked(path: Path, found: object) -> tuple[NDArray, NDArray, NDArray]:
    whole = isinstance(found, tuple | list) and len(found) >= 3 and all(
        isinstance(each, np.ndarray) and each.dtype.kind in "iu" for each in found[:3])
    if not whole:
        raise ValueError(f"{path} must hold three tensors of whole numbers: indices, offsets, lengths")
    indices, offsets, lengths = found[:3]       # type: ignore[index]
    if indices.ndim != 1 or lengths.ndim != 2 or offsets.shape != (lengths.size + 1,):
        raise ValueError(f"{path}: indices {indices.shape}, offsets {offsets.shape} and lengths {lengths.shape} do not "
                         "go together; there must be one offset more than there are lengths of tables x samples")
    if lengths.shape[0] > bounds.COLUMNS:
        raise ValueError(f"{path} has {lengths.shape[0]:,} tables; at most {bounds.COLUMNS:,} are read")
    if offsets[0] != 0 or offsets[-1] != len(indices):
        raise ValueError(f"{path}: offsets run from {offsets[0]} to {offsets[-1]}; "
                         f"they must rise from 0 to {len(indices)}, the length of indices")
    return indices, offsets, lengths


def pieces(path: Path, tables: Iterable[str] | None) -> list[Piece]:
    """A plain file by stretches of samples, a packed one whole. Tables are called t0, t1, ..., with as many digits as
    the last one needs.

    Raises      ValueError: no such tensors, tensors that do not go together, a table that there is not
    """
    with _tensors(path) as (indices, offsets, lengths):
        count, samples = lengths.shape
        names = tuple(f"t{number:0{len(str(count - 1))}}" for number in range(count))
        wanted, there = names if tables is None else tuple(tables), set(names)
        if not names:
            raise ValueError(f"{path} has no tables")
        for name in wanted:
            if name not in there:
                raise ValueError(f"{path} has no table {name!r}; it has {names[0]} to {names[-1]}")
        size, chosen = path.stat().st_size, set(wanted)
        unread = tuple(name for name in names if name not in chosen)
        whole = MelsPiece(str(path), wanted, bytes=size, path=path, stop=samples, unread=unread, form=Form(
            "Meta's lookup sets", dict.fromkeys(wanted, "lists"), dict.fromkeys(unread, "not asked for")))
        if stream.compressed(path) or not samples:
            return [whole]
        cuts = max(1, min(samples, round(size / PIECE_BYTES)))
        edges = [samples * number // cuts for number in range(cuts + 1)]
        return [replace(whole, start=start, stop=stop, bytes=size * stop // samples - size * start // samples)
                for start, stop in zip(edges, edges[1:])]


@dataclass
class MelsPiece(Piece):
    """Samples start to stop of a file.

    Raises      ValueError, while it is read: offsets that fall or disagree with the lengths, a bag of more than BAG ids
    """

    path: Path = field(kw_only=True)
    start: int = field(default=0, kw_only=True)
    stop: int = field(default=0, kw_only=True)

    def _chunks(self, samples: int) -> Iterator[Chunk]:
        self.done = 0
        with _tensors(self.path) as (indices, offsets, lengths):
            # Hundreds of tables: fewer samples, the same memory as of a log of one.
            samples = max(1, min(samples, samples * 64 // max(64, len(self.tables))))
            for begin in range(self.start, self.stop, samples):
                end = min(begin + samples, self.stop)
                edges = {name: self._edges(name, begin, end, len(indices), offsets, lengths) for name in self.tables}
                for start, stop in bounds.stretches(bounds.together(self.source, edges, end - begin)):
                    ids, bags = {}, {}
                    for name, each in edges.items():
                        ids[name] = indices[each[start]:each[stop]].astype(np.int64).view(np.uint64)
                        bags[name] = each[start:stop + 1] - each[start]
                    self.done = self.bytes * (begin + stop - self.start) // (self.stop - self.start)
                    yield Chunk(self.first + begin + start - self.start, stop - start, ids, bags)

    def _edges(self, name: str, begin: int, end: int, most: int, offsets: NDArray,
               lengths: NDArray) -> NDArray[np.int64]:
        """Where the bags of a table begin among the indices, and where the last of them ends."""
        table, total = int(name[1:]), lengths.shape[1]
        edges = offsets[table * total + begin:table * total + end + 1].astype(np.int64)
        if (edges < 0).any() or (edges > most).any() or (edges[1:] < edges[:-1]).any() or not np.array_equal(
                np.diff(edges), lengths[table, begin:end]):
            raise ValueError(f"{self.path}: the offsets of table {name}, samples {begin} to {end - 1}, do not rise by "
                             "the lengths")
        return edges
