"""The access logger's banks: which rows they hold after any sequence of accesses.

A set has four ways. An entry is an image word: {id: 14, rrpv: 2, valid: 1} from bit 0 on; rrpv, the re-reference
prediction value, is 0 for a row that is accessed often. Of an access that learns:

    hit            rrpv[way] = max(rrpv[way] - 1, 0)
    an empty way   the lowest one takes the row, rrpv 3
    a stale way    (rrpv 3) the lowest one takes the row, rrpv 3
    none of these  the bank counts; at every 2**insert_log2-th all rrpv of the set rise by one, no row comes in

Source: Hotline §6.2, Fig. 6.5 (SRRIP with 2 bits). There a hit sets 0 and every miss comes in with 2, which lets a
row that is met once push out one that is met often: .91 of the oracle where this holds .98 (bench/hotline.py).
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["ID_BITS", "STALE", "VALID", "WAYS", "Bank", "hot_rows", "oracle", "run"]

WAYS = 4
ID_BITS = 14
STALE = 3                                   # the rrpv of what may be replaced
RRPV = 1 << ID_BITS                         # one step of it, in an entry
VALID = 1 << ID_BITS + 2
_ID = RRPV - 1
_RRPV = STALE * RRPV


@njit(cache=True)
def access(ways, count, id, insert_log2, learn):
    """(way or -1, the bank's new count); `ways`, the set's entries, are changed in place. Numba."""
    found, empty, stale = -1, -1, -1
    for way in range(WAYS - 1, -1, -1):
        entry = np.int64(ways[way])
        if not entry & VALID:
            empty = way
        elif entry & _ID == id:
            found = way
        if entry & _RRPV == _RRPV:
            stale = way
    if not learn:
        return found, count
    if found >= 0:
        # An image that was loaded may hold a row twice.
        for way in range(WAYS):
            entry = np.int64(ways[way])
            if entry & VALID and entry & _ID == id and entry & _RRPV:
                ways[way] = entry - RRPV
    elif empty >= 0:
        ways[empty] = id | _RRPV | VALID
    elif stale >= 0:
        ways[stale] = id | _RRPV | VALID
    else:
        count += 1
        if count >> insert_log2:
            count = 0
            for way in range(WAYS):
                ways[way] += RRPV
    return found, count


@njit(cache=True)
def _run(image, counts, banks, sets, ids, insert_log2, learn):
    hit = np.empty(len(banks), np.bool_)
    ways = np.empty(len(banks), np.int8)
    for at in range(len(banks)):
        bank = banks[at]
        way, counts[bank] = access(image[bank, sets[at]], counts[bank], ids[at], insert_log2, learn)
        hit[at], ways[at] = way >= 0, max(way, 0)
    return hit, ways


def run(image: NDArray[np.uint32], counts: NDArray[np.uint32], banks: NDArray, sets: NDArray, ids: NDArray,
        insert_log2: int, learn: bool) -> tuple[NDArray[np.bool_], NDArray[np.int8]]:
    """(hit, way) of each access, way 0 without a hit; both of the state before the access.

    image: (banks, sets, 4) entries; counts: (banks,); both are changed in place. banks, sets, ids: of the accesses,
    in order.
    """
    return _run(image, counts, np.asarray(banks, np.int64), np.asarray(sets, np.int64), np.asarray(ids, np.int64),
                insert_log2, learn)


class Bank:
    """One bank, access by access, with entries whose parity is wrong."""

    def __init__(self, sets: int, insert_log2: int):
        self.insert_log2 = insert_log2
        self.image = np.zeros((sets, WAYS), np.uint32)
        self.count = 0
        self._wrong: set[tuple[int, int]] = set()

    def spoil(self, set: int, way: int, flips: int = 0) -> None:
        """An entry is read with wrong parity from now on, until it is written; flips: its bits that are turned."""
        self.image[set, way] ^= flips
        self._wrong.add((set, way))

    def access(self, set: int, id: int, learn: bool) -> tuple[bool, int, bool]:
        """(hit, way, wrong). A way with wrong parity is empty; an access that learns writes the set anew."""
        wrong = [way for way in range(WAYS) if (set, way) in self._wrong]
        ways = self.image[set].copy()
        for way in wrong:
            ways[way] &= ~np.uint32(VALID)
        found, self.count = access(ways, self.count, id, self.insert_log2, learn)
        if learn:
            self.write(set, ways)
        return found >= 0, max(found, 0), bool(wrong)

    def read(self, set: int) -> list[int]:
        """The set's entries as a read shows them."""
        return [int(entry) & ~(VALID if (set, way) in self._wrong else 0)
                for way, entry in enumerate(self.image[set])]

    def write(self, set: int, ways: NDArray) -> None:
        self.image[set] = ways
        for way in range(WAYS):
            self._wrong.discard((set, way))

    def load(self, set: int, ways: NDArray) -> None:
        """Writes a set from outside; the count begins anew."""
        self.write(set, ways)
        self.count = 0


def oracle(accesses: NDArray, entries: int) -> int:
    """Accesses to the `entries` rows that have most; accesses: of every row."""
    return int(np.sort(accesses)[max(0, len(accesses) - entries):].sum())


def hot_rows(image: NDArray[np.uint32]) -> tuple[NDArray, NDArray, NDArray]:
    """(bank, set, id) of every row that the logger holds."""
    bank, set, way = np.nonzero(image & VALID)
    return bank, set, (image[bank, set, way] & _ID).astype(np.int64)
