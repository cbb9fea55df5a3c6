"""Counts ids in a stream: how often each was seen, in memory that the different ids bound.

Small ids are counted in an array, all others in a hash table with open addressing; an array takes over where the ids
turn out to be dense. What comes out does not depend on it, nor on the order of the ids.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

FIRST_DENSE, FIRST_SLOTS = 1 << 12, 1 << 10
SPARSE = 4          # an array of up to so many entries an id is better than hashing
LARGE = 1 << 20     # slots, that are doubled; fewer grow faster
STEP = 64           # ids whose slots are asked of the memory at once
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class IdCounter:
    """Of one table's ids.

    >>> counter = IdCounter()
    >>> counter.add(np.array([7, 1 << 60, 7], np.uint64))
    >>> counter.counted()
    (array([                  7, 1152921504606846976], dtype=uint64), array([2, 1]))
    """

    def __init__(self) -> None:
        self._dense = np.zeros(FIRST_DENSE, np.int64)
        self._slots = np.zeros((FIRST_SLOTS, 2), np.uint64)     # id, count; 0: empty
        self._hashed = 0

    def add(self, ids: NDArray[np.uint64]) -> None:
        at = 0
        while True:
            at, self._hashed = _add(ids, at, self._dense, self._slots, self._hashed)
            if at == len(ids):
                return
            self._grow()

    def _grow(self) -> None:
        end = int(_largest(self._slots)) + 1
        if end > SPARSE * (self._hashed + np.count_nonzero(self._dense)):
            self._slots = _larger(self._slots, 4 if len(self._slots) < LARGE else 2)
            return
        dense = np.zeros(1 << (end - 1).bit_length(), np.int64)
        dense[:len(self._dense)] = self._dense
        ids, counts = _taken(self._slots, self._hashed)
        dense[ids.astype(np.int64)] = counts
        self._dense, self._slots, self._hashed = dense, np.zeros((FIRST_SLOTS, 2), np.uint64), 0

    def counted(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """(ids ascending, how often each)."""
        small = np.flatnonzero(self._dense)     # smaller than all that are hashed
        ids, counts = _sorted(*_taken(self._slots, self._hashed))
        return (np.concatenate([small.astype(np.uint64), ids]),
                np.concatenate([self._dense[small], counts.astype(np.int64)]))


def _sorted(ids: NDArray[np.uint64], counts: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    bits = int(counts.max(initial=0)).bit_length()
    if bits + int(ids.max(initial=0)).bit_length() > 64:
        order = np.argsort(ids, kind="stable")
        return ids[order], counts[order]
    words = ids << np.uint64(bits) | counts     # one sort of words is faster by far
    words.sort()
    return words >> np.uint64(bits), words & np.uint64((1 << bits) - 1)


@njit(cache=True, nogil=True)
def _taken(slots, used):        # pragma: no cover - compiled
    """The ids and counts in the slots."""
    ids, counts = np.empty(used, np.uint64), np.empty(used, np.uint64)
    at = 0
    for slot in range(len(slots)):
        if slots[slot, 1]:
            ids[at], counts[at] = slots[slot, 0], slots[slot, 1]
            at += 1
    return ids, counts


@njit(cache=True, nogil=True)
def _largest(slots):        # pragma: no cover - compiled
    largest = np.uint64(0)
    for slot in range(len(slots)):
        if slots[slot, 1] and slots[slot, 0] > largest:
            largest = slots[slot, 0]
    return largest


@njit(cache=True, nogil=True)
def _shift(slots):      # pragma: no cover - compiled
    """Of a product with GOLDEN, to so many slots, a power of two."""
    shift = 64
    while slots > 1:
        shift -= 1
        slots >>= 1
    return np.uint64(shift)


@njit(cache=True, nogil=True)
def _add(ids, at, dense, slots, used):      # pragma: no cover - compiled
    """Counts ids from `at` on until all are, or the slots are too full; returns how far it came, and the slots used."""
    limit = len(slots) - len(slots) // 3
    mask = np.uint64(len(slots) - 1)
    shift = _shift(len(slots))
    many = np.uint64(len(dense))
    ahead = np.empty(STEP, np.uint64)
    while at < len(ids):
        if used + STEP > limit:
            return at, used
        stop = min(at + STEP, len(ids))
        # The slots of a step come from memory together, not one behind the other.
        seen = np.uint64(0)
        for k in range(at, stop):
            slot = (ids[k] * GOLDEN) >> shift
            ahead[k - at] = slot
            if ids[k] >= many:
                seen |= slots[slot, 1]
            else:
                seen |= np.uint64(dense[ids[k]])
        if seen == np.uint64(0xFFFFFFFFFFFFFFFF):
            return at, used                 # never: but it keeps the loop above
        for k in range(at, stop):
            number = ids[k]
            if number < many:
                dense[number] += 1
                continue
            slot = ahead[k - at]
            while slots[slot, 1] and slots[slot, 0] != number:
                slot = (slot + np.uint64(1)) & mask
            if not slots[slot, 1]:
                slots[slot, 0] = number
                used += 1
            slots[slot, 1] += np.uint64(1)
        at = stop
    return at, used


@njit(cache=True, nogil=True)
def _larger(slots, times):      # pragma: no cover - compiled
    larger = np.zeros((times * len(slots), 2), np.uint64)
    mask = np.uint64(len(larger) - 1)
    shift = _shift(len(larger))
    for old in range(len(slots)):
        if slots[old, 1]:
            slot = (slots[old, 0] * GOLDEN) >> shift
            while larger[slot, 1]:
                slot = (slot + np.uint64(1)) & mask
            larger[slot, 0] = slots[old, 0]
            larger[slot, 1] = slots[old, 1]
    return larger


def join(ids: NDArray[np.uint64], counts: NDArray[np.int64], more_ids: NDArray[np.uint64],
         more_counts: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Two ascending lists of ids and their counts as one."""
    all_ids, all_counts = np.empty(len(ids) + len(more_ids), np.uint64), np.empty(len(ids) + len(more_ids), np.int64)
    size = _join(ids, counts, more_ids, more_counts, all_ids, all_counts)
    return all_ids[:size].copy(), all_counts[:size].copy()


@njit(cache=True, nogil=True)
def _join(ids, counts, more_ids, more_counts, all_ids, all_counts):     # pragma: no cover - compiled
    i = j = k = 0
    while i < len(ids) or j < len(more_ids):
        if j == len(more_ids) or (i < len(ids) and ids[i] < more_ids[j]):
            all_ids[k], all_counts[k] = ids[i], counts[i]
            i += 1
        elif i == len(ids) or more_ids[j] < ids[i]:
            all_ids[k], all_counts[k] = more_ids[j], more_counts[j]
            j += 1
        else:
            all_ids[k], all_counts[k] = ids[i], counts[i] + more_counts[j]
            i += 1
            j += 1
        k += 1
    return k


@njit(cache=True, nogil=True)
def kept(first, samples):       # pragma: no cover - compiled
    """(samples,) float64 from 0 to below 1, a hash of each sample's number (splitmix64)."""
    out = np.empty(samples, np.float64)
    for k in range(samples):
        word = (np.uint64(first) + np.uint64(k) + np.uint64(1)) * GOLDEN
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[k] = float((word ^ (word >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0
    return out
