"""What a mini-batch's gradients do to its rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from golden.hotline import reducer
from golden.hotline.embeddings import EmbeddingBuffer

CHUNK = 1 << 15     # beats of a request of gradients, at the most


def parts(address: int, beats: int, most: int) -> list[tuple[int, int]]:
    """Requests (address, beats) of a run of beats, none of more than `most`."""
    return [(address + at, min(most, beats - at)) for at in range(0, beats, most)]


class Updater:
    """row = row + rate * gradient, of all rows in the embedding buffer and then of all in memory.

    buffer: the embedding buffer; memory: (beats, words), the rows' buffer
    """

    def __init__(self, buffer: EmbeddingBuffer, memory: NDArray[np.uint32]):
        self.buffer = buffer
        self.memory = memory

    def reads(self, address: int, rows: int) -> list[tuple[int, int]]:
        """The requests (address, beats) for the gradients of so many rows; all in beats."""
        return parts(address, rows << self.buffer.row_beats_log2, CHUNK)

    def writes(self, addresses: Sequence[int]) -> list[tuple[int, int]]:
        """The requests (address, beats) for rows that go back, in beats of the rows' buffer; where one is refused, all
        from that one on once more."""
        return [(address, 1 << self.buffer.row_beats_log2) for address in addresses]

    def update(self, slots: Sequence[int], addresses: Sequence[int], rate: int, gradients: ArrayLike
               ) -> NDArray[np.uint32]:
        """Updates the rows in these slots, at these beats of the rows' buffer; their new values, (rows, beats, words).

        gradients: (rows, beats, words). Rows of a mini-batch differ, so their order is without effect.
        """
        beats = 1 << self.buffer.row_beats_log2
        shape = len(slots), beats, self.memory.shape[1]
        rows = np.array([self.buffer.read(slot) for slot in slots], np.uint32).reshape(shape)
        rows = reducer.update(rows, rate, np.asarray(gradients, np.uint32).reshape(shape))
        for slot, address, row in zip(slots, addresses, rows, strict=True):
            self.buffer.land(slot, row)
            self.memory[address:address + beats] = row
        return rows
