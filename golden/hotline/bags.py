"""The vectors of pooled samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.hotline import reducer
from golden.hotline.lookup import HOT_BIT, NONE

__all__ = ["NONE", "Bag", "Position", "bags", "pool"]

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class Position:
    """What an address register says of a position. join: of golden.hotline.reducer."""

    join: int = reducer.BEGIN
    pinned: bool = False


@dataclass
class Bag:
    """The vectors of a mini-batch, (samples, vectors, words of a row), and what they took: beats multiplied and added,
    hot rows read."""

    vectors: Words
    v_mul: int = 0
    v_add: int = 0
    gpu_rd: int = 0


def bags(positions: Sequence[Position]) -> list[list[int]]:
    """The positions of each vector; those before the first that begins one are left out."""
    vectors: list[list[int]] = []
    for number, position in enumerate(positions):
        if position.join == reducer.BEGIN:
            vectors.append([number])
        elif vectors:
            vectors[-1].append(number)
    return vectors


def pool(samples: Words, positions: Sequence[Position], hot: Words, cold: Words, *, row_beats: int) -> Bag:
    """Joins each sample's rows. samples: (n, words) as the gatherer leaves them; positions: as many as there are
    indices; hot: (hot rows, words of a row); cold: the mini-batch's, in order of ordinals.

    NONE, or a row of a pinned position, is +0 where it begins a vector and left out elsewhere.
    """
    width = hot.shape[1]
    result = Bag(np.zeros((len(samples), len(bags(positions)), width), np.uint32))
    for sample, vectors in zip(np.asarray(samples).tolist(), result.vectors, strict=True):
        for vector, members in zip(vectors, bags(positions), strict=True):
            for number in members:
                word, position = sample[number], positions[number]
                begins = position.join == reducer.BEGIN
                if word == NONE or position.pinned:
                    continue
                is_hot = word >> HOT_BIT
                result.gpu_rd += is_hot
                row = hot[word ^ (1 << HOT_BIT)] if is_hot else cold[word]
                vector[:] = reducer.step(vector, row, position.join)
                if not begins and position.join == reducer.ADD:
                    result.v_add += row_beats
                elif not begins:
                    result.v_mul += row_beats
    return result
