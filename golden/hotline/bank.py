"""The access logger's banks: which rows they hold after any sequence of accesses.

A set has four ways. An entry is an image word: {id: 14, rrpv: 2, valid: 1} from bit 0 on; rrpv, the re-reference
prediction value, is 0 for a row that is expected again soon, 3 for one that may be replaced (stale). Of an access that
learns, with max the highest rrpv of the set:

                   srrip, sampled                             steady
    hit            rrpv[way] = 0                              rrpv[way] = max(rrpv[way] - 1, 0)
    an empty way   the lowest one takes the row, rrpv 2       the lowest one takes the row, rrpv 3
    else           srrip: always, sampled: at every           a stale way: the lowest one takes the row, rrpv 3;
                   2**insert_log2-th time of the bank:        none: at every 2**insert_log2-th time of the bank
                   all rrpv rise by 3 - max, the lowest       all rrpv rise by 1, and no row comes in
                   stale way takes the row, rrpv 2

Source: srrip is Hotline's, §6.2, Fig. 6.5 (SRRIP with 2 bits). There a row that is met once pushes out one that is met
often; with sampled it seldom comes in, with steady it is the first to go: .91, .95 and .98 of the oracle's accesses
(bench/hotline.py, Zipf 1.05, 16 K entries, insert_log2 5).
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

POLICIES = SRRIP, SAMPLED, STEADY = "srrip", "sampled", "steady"
WAYS = 4
ID_BITS = 14
STALE = 3                                   # the rrpv of what may be replaced
RRPV = 1 << ID_BITS                         # one step of it, in an entry
VALID = 1 << ID_BITS + 2
_SRRIP, _, _STEADY = range(len(POLICIES))
_ID = RRPV - 1
_RRPV = STALE * RRPV


def _number(policy):
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(map(repr, POLICIES))}, not {policy!r}")
    return POLICIES.index(policy)


@njit(cache=True)
def _insert(ways, way, id, rrpv):
    ways[way] = id | rrpv * RRPV | VALID


@njit(cache=True)
def access(ways, count, id, insert_log2, learn, policy):
    """(way or -1, the bank's new count); `ways`, the set's entries, are changed in place. policy: its number in
    POLICIES. Numba."""
    hit_way, empty, most = -1, -1, np.int64(0)
    for way in range(WAYS - 1, -1, -1):
        entry = np.int64(ways[way])
        if not entry & VALID:
            empty = way
        elif entry & _ID == id:
            hit_way = way
        most = max(most, entry // RRPV & STALE)
    if not learn:
        return hit_way, count
    steady = policy == _STEADY
    fresh = STALE if steady else STALE - 1
    if hit_way >= 0:
        # An image that was loaded may hold a row twice.
        for way in range(WAYS):
            entry = np.int64(ways[way])
            if entry & VALID and entry & _ID == id and entry & _RRPV:
                ways[way] = entry - RRPV if steady else entry & ~_RRPV
        return hit_way, count
    if empty >= 0:
        _insert(ways, empty, id, fresh)
        return hit_way, count
    if policy != _SRRIP and not (steady and most == STALE):
        count += 1
        if not count >> insert_log2:
            return hit_way, count
        count = 0
    older = STALE - most
    if steady and older:
        for way in range(WAYS):
            ways[way] += RRPV
        return hit_way, count
    victim = -1
    for way in range(WAYS - 1, -1, -1):
        ways[way] += older * RRPV
        if np.int64(ways[way]) & _RRPV == _RRPV:
            victim = way
    _insert(ways, victim, id, fresh)
    return hit_way, count


@njit(cache=True)
def _run(image, counts, banks, sets, ids, insert_log2, learn, policy):
    hit = np.empty(len(banks), np.bool_)
    ways = np.empty(len(banks), np.int8)
    for at in range(len(banks)):
        bank = banks[at]
        way, counts[bank] = access(image[bank, sets[at]], counts[bank], ids[at], insert_log2, learn, policy)
        hit[at], ways[at] = way >= 0, max(way, 0)
    return hit, ways


def run(image: NDArray[np.uint32], counts: NDArray[np.uint32], banks: NDArray, sets: NDArray, ids: NDArray,
        insert_log2: int, learn: bool, policy: str = STEADY) -> tuple[NDArray[np.bool_], NDArray[np.int8]]:
    """(hit, way) of each access, way 0 without a hit; both of the state before the access.

    image: (banks, sets, 4) entries; counts: (banks,); both are changed in place. banks, sets, ids: of the accesses,
    in order. policy: of POLICIES; srrip does not count, and has no use for insert_log2.
    """
    return _run(image, counts, np.asarray(banks, np.int64), np.asarray(sets, np.int64), np.asarray(ids, np.int64),
                insert_log2, learn, _number(policy))


class Bank:
    """One bank, access by access, with entries whose parity is wrong."""

    def __init__(self, sets: int, insert_log2: int, policy: str = STEADY):
        self.insert_log2, self.policy = insert_log2, _number(policy)
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
        found, self.count = access(ways, self.count, id, self.insert_log2, learn, self.policy)
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
