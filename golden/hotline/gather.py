"""Which rows mini-batches with cold words gather, and what takes the place of those words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.hotline.lookup import HOT_BIT


@dataclass(frozen=True)
class Part:
    """A mini-batch: `samples` samples from `start` on, and its different rows in order of their ordinals. rows: their
    numbers; addresses: where they begin in the rows' buffer, in beats; words: cold ones."""

    start: int
    samples: int
    rows: list[int]
    addresses: list[int]
    words: int


def gather(samples: NDArray[np.uint32], *, first: Sequence[int], base: Sequence[int], pinned: Sequence[bool],
           indices: int, row_beats: int, slots: int) -> list[Part]:
    """The mini-batches that a frame of (n, words) samples makes; their cold words become ordinals, in place.

    first, base, pinned: of each position; slots: of the embedding buffer. Before a sample whose `indices` may need
    more slots than the mini-batch leaves, a new one begins. Source: Hotline thesis, 6.5
    """
    if indices > slots:
        raise ValueError(f"indices must be at most {slots}, the slots, not {indices}")
    parts: list[Part] = []
    start, words = 0, 0
    ordinals: dict[int, int] = {}
    addresses: list[int] = []

    def close(end: int) -> None:
        parts.append(Part(start, end - start, list(ordinals), list(addresses), words))

    for number, sample in enumerate(samples):
        if len(ordinals) + indices > slots:
            close(number)
            start, words = number, 0
            ordinals, addresses = {}, []
        for position in range(min(indices, len(sample))):
            word = int(sample[position])
            if word >> HOT_BIT or pinned[position]:
                continue
            row = first[position] + word
            if row not in ordinals:
                addresses.append(base[position] + word * row_beats)
            sample[position] = ordinals.setdefault(row, len(ordinals))
            words += 1
    close(len(samples))
    return parts
