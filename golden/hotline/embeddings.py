"""The embedding buffer: what is in it."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


class EmbeddingBuffer:
    """Rows of 2^row_beats_log2 beats in slots. beats: of the memory; words: of a beat.

    The memory outlives a change of the rows' length: its beats stay where they are.
    Raises      ValueError: a slot that the memory does not have
    """

    def __init__(self, *, beats: int, words: int, row_beats_log2: int = 0):
        self.memory = np.zeros((beats, words), np.uint32)
        self.row_beats_log2 = row_beats_log2

    def _place(self, slot: int) -> slice:
        start = slot << self.row_beats_log2
        if not 0 <= slot < len(self.memory) >> self.row_beats_log2:
            raise ValueError(f"slot must be below {len(self.memory) >> self.row_beats_log2}, not {slot}")
        return slice(start, start + (1 << self.row_beats_log2))

    def land(self, slot: int, row: ArrayLike) -> None:
        """A row from memory, (row beats, words)."""
        self.memory[self._place(slot)] = row

    def write(self, slot: int, beat: int, words: ArrayLike) -> None:
        """One beat of a row."""
        self.memory[self._place(slot)][beat] = words

    def read(self, slot: int) -> NDArray[np.uint32]:
        """A row, (row beats, words)."""
        return self.memory[self._place(slot)].copy()
