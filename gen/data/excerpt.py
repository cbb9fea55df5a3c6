"""Consecutive samples of a log as they came, kept in a profile: what counts of rows do not say.

Blocks of BLOCK consecutive samples are kept by a hash of their numbers, the smallest first, as long as they have at
most MOST ids together over all tables (bottom-k sampling; Cohen and Kaplan 2007). So a short log is kept whole, of a
long one blocks from all over it, and parts of a log that were counted apart keep, together, what the whole keeps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gen.data.logs.log import Chunk

BLOCK = 1 << 13
MOST = 1 << 22
WORD = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class Excerpt:
    """Of one table. runs: (R,) samples of each stretch of consecutive ones, in the log's order; lengths: (samples,)
    ids of each sample, None: one each; places: (n,) of each id its number among the profile's ascending ids, as many
    as those are where the profile has not counted it."""

    runs: NDArray[np.int64]
    lengths: NDArray[np.int64] | None
    places: NDArray[np.int64]

    @property
    def edges(self) -> NDArray[np.int64]:
        """(samples + 1,) of the ids, by sample."""
        if self.lengths is None:
            return np.arange(len(self.places) + 1)
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """By name, as `of` takes them."""
        empty = np.zeros(0, np.int64)
        return {"runs": self.runs, "lengths": empty if self.lengths is None else self.lengths, "places": self.places}

    @classmethod
    def of(cls, runs: NDArray[np.int64], lengths: NDArray[np.int64], places: NDArray[np.int64],
           ids: int) -> "Excerpt | None":
        """None of no runs. ids: that the profile has. Raises ValueError: arrays that do not fit together"""
        if not len(runs):
            return None
        samples = int(runs.sum())
        each = lengths if len(lengths) else None
        if runs.min() < 1 or places.max(initial=0) > ids or min(places.min(initial=0), lengths.min(initial=0)) < 0 \
                or (samples, len(places)) != ((len(places), samples) if each is None
                                              else (len(each), int(each.sum()))):
            raise ValueError("the samples that it keeps are not whole")
        return cls(runs, each, places)


@dataclass
class _Block:
    """Samples from number `first` on: ids and bags' lengths of each table, as they came. size: ids of all tables,
    those of samples past `most` ids included."""

    first: int
    samples: int = 0
    size: int = 0
    ids: dict[str, list[NDArray[np.uint64]]] = field(default_factory=dict)
    lengths: dict[str, list[NDArray[np.int64]]] = field(default_factory=dict)


class Blocks:
    """The blocks that are kept of a log, or of a part of one."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.blocks: dict[int, _Block] = {}
        self.limit = WORD + 1       # of hashes: blocks from it on are not kept

    def add(self, chunk: Chunk) -> None:
        """The chunk's samples; those of a block come in order."""
        at = 0
        while at < chunk.samples:
            number = (chunk.first + at) // BLOCK
            stop = min((number + 1) * BLOCK - chunk.first, chunk.samples)
            if _hash(number) < self.limit:
                self._extend(number, chunk.part(at, stop) if stop - at < chunk.samples else chunk)
            at = stop
        self._prune()

    def __add__(self, other: "Blocks") -> "Blocks":
        """Of both parts of a log, which share no block."""
        found = Blocks(self.most)
        found.limit = min(self.limit, other.limit)
        found.blocks = {number: block for number, block in {**self.blocks, **other.blocks}.items()
                        if _hash(number) < found.limit}
        found._prune()
        return found

    def _extend(self, number: int, chunk: Chunk) -> None:
        block = self.blocks.setdefault(number, _Block(chunk.first))
        size = block.size
        block.size += sum(map(len, chunk.ids.values()))
        if size >= self.most:       # it has its samples already
            return
        if block.size > self.most:
            ends = np.sum([chunk.edges(name) for name in chunk.ids], axis=0)
            fit = int(np.searchsorted(ends, self.most - size, side="right")) - 1
            chunk = chunk.part(0, fit)
        for name, ids in chunk.ids.items():
            block.ids.setdefault(name, []).append(ids.copy())
            block.lengths.setdefault(name, []).append(np.diff(chunk.edges(name)))
        block.samples += chunk.samples

    def _prune(self) -> None:
        size = 0
        for rank, number in enumerate(sorted(self.blocks, key=_hash)):
            size += self.blocks[number].size
            if size > self.most and rank:
                self.limit = min(self.limit, _hash(number))
                break
        for number in [number for number in self.blocks if _hash(number) >= self.limit]:
            del self.blocks[number]

    def excerpts(self, ids: Mapping[str, NDArray[np.uint64]]) -> dict[str, Excerpt]:
        """Of each table, by the ascending ids that were counted. Without a sample none."""
        blocks = [self.blocks[number] for number in sorted(self.blocks) if self.blocks[number].samples]
        if not blocks:
            return {}
        runs = [blocks[0].samples]
        for before, block in zip(blocks[:-1], blocks[1:], strict=True):
            if before.first + before.samples == block.first:
                runs[-1] += block.samples
            else:
                runs.append(block.samples)
        found = {}
        for name, known in ids.items():
            lengths = np.concatenate([each for block in blocks for each in block.lengths[name]])
            asked = np.concatenate([each for block in blocks for each in block.ids[name]])
            found[name] = Excerpt(np.array(runs, np.int64), None if (lengths == 1).all() else lengths,
                                  _places(known, asked))
        return found


def _places(known: NDArray[np.uint64], asked: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Of each id asked for its number among those known, ascending; as many as those are where it is not there."""
    if not len(known):
        return np.zeros(len(asked), np.int64)
    place = np.searchsorted(known, asked)
    there = known[np.minimum(place, len(known) - 1)] == asked
    return np.where(there, place, len(known))


def _hash(number: int) -> int:
    """Of a block (splitmix64)."""
    word = (number + 1) * 0x9E3779B97F4A7C15 & WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & WORD
    return word ^ word >> 31
