"""The inputs of a program, as an image of card memory."""

import numpy as np
from numpy.typing import NDArray


class Inputs:
    """Puts arrays of words one behind the other, each at the begin of a beat."""

    def __init__(self, words: int):
        self.words = words
        self.beats = 0
        self.parts: list[NDArray[np.uint32]] = []

    def add(self, array: np.ndarray) -> int:
        at, count = self.beats, -(-len(array) // self.words)
        padded = np.zeros(count * self.words, np.uint32)
        padded[:len(array)] = array
        self.parts.append(padded)
        self.beats += count
        return at

    def image(self) -> NDArray[np.uint32]:
        flat = np.concatenate(self.parts) if self.parts else np.zeros(0, np.uint32)
        return flat.reshape(-1, self.words)
