"""Arrays of a program's own making as a log."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.data.logs.log import Chunk, Piece, Pieces


@dataclass
class ArrayPiece(Piece):
    """Samples start to stop of arrays; bags: offsets of the tables that have them."""

    ids: Mapping[str, NDArray] = field(repr=False, kw_only=True)
    offsets: Mapping[str, NDArray] = field(default_factory=dict, repr=False, kw_only=True)
    values: Mapping[str, NDArray] = field(default_factory=dict, repr=False, kw_only=True)
    start: int = field(default=0, kw_only=True)
    stop: int = field(default=0, kw_only=True)

    def _chunks(self, samples: int) -> Iterator[Chunk]:
        for begin in range(self.start, self.stop, samples):
            end = min(begin + samples, self.stop)
            bags = {name: offsets[begin:end + 1] for name, offsets in self.offsets.items()}
            ids = {name: array[bags[name][0]:bags[name][-1]] if name in bags else array[begin:end]
                   for name, array in self.ids.items()}
            self.done = self.bytes * (end - self.start) // (self.stop - self.start)
            yield Chunk(self.first + begin - self.start, end - begin,
                        {name: array.astype(np.uint64) for name, array in ids.items()},
                        {name: (bag - bag[0]).astype(np.int64) for name, bag in bags.items()},
                        {name: array[begin:end] for name, array in self.values.items()})


def of_arrays(ids: Mapping[str, ArrayLike], offsets: Mapping[str, ArrayLike] | None = None,
              values: Mapping[str, ArrayLike] | None = None, *, source: str = "arrays", parts: int = 1) -> Pieces:
    """A log of arrays: of each table one id per sample, or the ids of its bags with their offsets.

    Parameters  ids: whole numbers in one dimension, by table; offsets: (samples + 1,), of tables looked up in bags;
                values: (samples,) or (samples, k) by name; source: what people call it; parts: into so many
    Raises      ValueError: no tables, ids that are no whole numbers, lengths that differ, offsets that do not rise
                from 0 to the ids' end

    >>> log = of_arrays({"user": [3, 0, 3], "tag": [1, 2, 2]}, {"tag": [0, 2, 2, 3]})
    >>> [(chunk.samples, chunk.ids["tag"].tolist()) for chunk in log.chunks(2)]
    [(2, [1, 2]), (1, [2])]
    """
    tables = {name: np.asarray(array) for name, array in ids.items()}
    bags = {name: np.asarray(array) for name, array in (offsets or {}).items()}
    others = {name: np.asarray(array) for name, array in (values or {}).items()}
    if not tables:
        raise ValueError(f"{source} has no tables")
    for name, array in tables.items():
        if array.ndim != 1 or array.dtype.kind not in "iu" and array.size:
            raise ValueError(f"{source}: {name} is {array.dtype} of shape {array.shape}; "
                             "it must be whole numbers in one dimension")
    for name, array in bags.items():
        if name not in tables:
            raise ValueError(f"{source}: offsets of {name!r}, which is no table; there are {', '.join(tables)}")
        if array.ndim != 1 or not array.size or array[0] != 0 or array[-1] != tables[name].size or (
                np.diff(array.astype(np.int64)) < 0).any():
            raise ValueError(f"{source}: the offsets of {name} must rise from 0 to {tables[name].size}, its ids")
    lengths = {name: len(bags[name]) - 1 if name in bags else len(array) for name, array in tables.items()}
    lengths |= {name: len(array) for name, array in others.items()}
    first, samples = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != samples:
            raise ValueError(f"{source}: {name} has {length} samples, {first} has {samples}")
    if not 1 <= parts <= max(samples, 1):
        raise ValueError(f"parts must be from 1 to {max(samples, 1)}, the samples, not {parts}")
    size = sum(array.nbytes for group in (tables, bags, others) for array in group.values())
    cuts = [samples * part // parts for part in range(parts + 1)]
    return Pieces(source, [ArrayPiece(source, tuple(tables), bytes=size // parts, ids=tables, offsets=bags,
                                      values=others, start=begin, stop=end) for begin, end in zip(cuts, cuts[1:])])
