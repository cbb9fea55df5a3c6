"""The access logger's image in memory: sets of bank 0, 1, .. innermost, their number outermost, 4 words each."""

import numpy as np
from numpy.typing import NDArray

ENTRY = (1 << 17) - 1   # the bits of a word that an entry has


def order(banks: int, sets: int) -> list[tuple[int, int]]:
    """(bank, set) of the sets in memory."""
    return [(bank, number) for number in range(sets) for bank in range(banks)]


def beats_of(image: NDArray[np.uint32], words: int) -> NDArray[np.uint32]:
    """Beats of `words` words; image: (banks, sets, 4)."""
    return image.swapaxes(0, 1).reshape(-1, words)


def image_of(beats: NDArray[np.uint32], banks: int, sets: int) -> NDArray[np.uint32]:
    """The image (banks, sets, 4) that beats bring; bits that no entry has are dropped."""
    return beats.reshape(sets, banks, 4).swapaxes(0, 1) & np.uint32(ENTRY)
