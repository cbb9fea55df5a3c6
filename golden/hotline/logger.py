"""The access logger: a row's bank, set and identifier, and what the banks hold after any sequence of accesses."""

import numpy as np
from numpy.typing import NDArray

from golden.hotline import bank, randomizer
from golden.hotline.image import beats_of, image_of


class Logger:
    """A logger of `banks` banks of `sets` sets. image: (banks, sets, 4) entries, counts: (banks,), policy and
    insert_log2: see golden.hotline.bank."""

    def __init__(self, banks: int, sets: int, insert_log2: int, policy: str = bank.STEADY):
        self.banks, self.sets, self.insert_log2, self.policy = banks, sets, insert_log2, policy
        self.bank_bits, self.set_bits = (banks - 1).bit_length(), (sets - 1).bit_length()
        self.domain_bits = self.bank_bits + self.set_bits + bank.ID_BITS
        self.image = np.zeros((banks, sets, bank.WAYS), np.uint32)
        self.counts = np.zeros(banks, np.uint32)

    def places(self, rows) -> tuple[NDArray, NDArray, NDArray]:
        """(bank, set, identifier) of each row."""
        word = randomizer.permute(rows, self.domain_bits)
        return (word & self.banks - 1, word >> self.bank_bits & self.sets - 1,
                word >> self.bank_bits + self.set_bits)

    def access(self, rows, learn: bool) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """(hit, number) of each row, one after the other; number, bank lowest, then set, then way, counts with a
        hit."""
        banks, sets, ids = self.places(rows)
        hit, way = bank.run(self.image, self.counts, banks, sets, ids, self.insert_log2, learn, self.policy)
        return hit, banks | sets << self.bank_bits | way.astype(np.int64) << self.bank_bits + self.set_bits

    def rows(self) -> NDArray[np.int64]:
        """The numbers of all rows that the logger holds."""
        banks, sets, ids = bank.hot_rows(self.image)
        return randomizer.invert(ids << self.bank_bits + self.set_bits | sets << self.bank_bits | banks,
                                 self.domain_bits)

    def stale(self) -> NDArray[np.int64]:
        """The re-reference prediction value of all rows that the logger holds, in the order of `rows`."""
        entries = self.image[self.image & bank.VALID != 0]
        return (entries >> bank.ID_BITS & bank.STALE).astype(np.int64)

    def clear(self) -> None:
        self.image[:], self.counts[:] = 0, 0

    def reset(self) -> None:
        """What a reset does: the entries stay."""
        self.counts[:] = 0

    def write(self, bank: int, set: int, ways) -> None:
        """Writes a set from outside."""
        self.image[bank, set], self.counts[bank] = ways, 0

    def save(self, words: int) -> NDArray[np.uint32]:
        """The image in beats of that many words."""
        return beats_of(self.image, words)

    def load(self, beats: NDArray[np.uint32]) -> None:
        self.image[:], self.counts[:] = image_of(beats, self.banks, self.sets), 0
