"""From a log's ids to the words that the EMB core reads: id -> row of the table -> {device[31:30], emb_idx[29:0]}.

Rows are numbered by heat within each memory, the hottest first: hot rows of the SSD share pages, and warm rows that
are looked up together share the leading index of their tensor train. Each memory's numbers 0, 1, .. are taken by one
row each.       Source: SCRec §III.D
"""

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from gen.data.ids import id_text
from hw.isa.emb import DEVICE

if TYPE_CHECKING:
    from gen.data.profile import TableProfile
    from gen.model.recommender import TableSpec

DRAM, TT, SSD = DEVICE
DEVICE_SHIFT = 30
ROWS_AT_MOST = 1 << DEVICE_SHIFT
EMPTY = np.uint64((1 << 64) - 1)
DIRECT = 4      # entries a known id, up to which a table of all ids from 0 on is taken instead of hashing


def numbered(device: ArrayLike, order: ArrayLike, tt_row: ArrayLike | None = None) -> NDArray[np.uint32]:
    """Words of rows 0, 1, ..: device of each, numbered within its memory as they come in `order`, all rows of it.

    tt_row: of each row, which row of the train it is (default: numbered as the other memories' are).
    Raises      ValueError: a number that no word has room for
    """
    places, rows = np.asarray(device), np.asarray(order)
    words = np.zeros(len(places), np.uint32)
    for place in (DRAM, TT, SSD):
        mine = rows[places[rows] == place]
        number = np.arange(len(mine)) if place != TT or tt_row is None else np.asarray(tt_row, np.int64)[mine]
        past = (number < 0) | (number >= ROWS_AT_MOST)
        if past.any():
            raise ValueError(f"row {mine[np.argmax(past)]} is row {number[np.argmax(past)]} of its memory: a word has "
                             f"room for 0 to {ROWS_AT_MOST - 1}")
        words[mine] = (place << DEVICE_SHIFT | number).astype(np.uint32)
    return words


def rows_of(spec: "TableSpec", ids: ArrayLike, vocabulary: ArrayLike | None = None) -> NDArray[np.int64]:
    """The rows that ids have under the table's policy (gen.model.recommender.IDS). vocabulary: ascending, of the
    policy so called.

    Raises      ValueError: an id past the rows, where ids are rows; no vocabulary where one is needed
    """
    asked = _ids(ids)
    if spec.ids == "index":
        if asked.size and (asked >= spec.rows).any():
            raise _past(spec.name, spec.rows, asked, int(np.argmax(asked >= spec.rows)))
        return asked.astype(np.int64)
    if spec.ids == "modulo":
        return (asked % np.uint64(spec.rows)).astype(np.int64)
    if vocabulary is None:
        raise ValueError(f"table {spec.name}: ids = 'vocabulary' needs the ids that a profile has counted")
    known = _ids(vocabulary)
    if not len(known):
        return np.full(len(asked), spec.rows - 1)
    at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[at] == asked, np.minimum(at, spec.rows - 1), spec.rows - 1).astype(np.int64)


def unseen(spec: "TableSpec", vocabulary: ArrayLike, ids: ArrayLike) -> int:
    """How many of the ids have no row of their own in a table whose ids are a vocabulary (ascending): they read its
    last row, of which `shared` says whose it is."""
    known, asked = _ids(vocabulary), _ids(ids)
    if len(known) > spec.rows:
        known = known[:spec.rows - 1]
    if not len(known):
        return len(asked)
    return int(np.count_nonzero(known[np.minimum(np.searchsorted(known, asked), len(known) - 1)] != asked))


def shared(spec: "TableSpec", vocabulary: ArrayLike) -> str:
    """Whose the last row is where ids are a vocabulary; empty where it is kept for ids that are not in it."""
    known = _ids(vocabulary)
    if len(known) < spec.rows:
        return ""
    if len(known) == spec.rows:
        return f"that of the id {id_text(known[-1])}"
    return f"that of {len(known) - spec.rows + 1:,} of its {len(known):,} ids, from {id_text(known[spec.rows - 1])} on"


def row_counts(spec: "TableSpec", profile: "TableProfile", vocabulary: ArrayLike | None = None) -> NDArray[np.int64]:
    """(rows,) how often each row was accessed, by which rows are ranked (TableProfile.ranking): the profile's ids under
    the table's policy. vocabulary: where it is not the profile's ids.

    Raises      ValueError: statistics without ids, an id past the rows
    """
    profile = profile.ranking(spec.ids)
    if profile.ids is None or profile.counts is None:
        raise ValueError(f"table {spec.name}: its profile knows how hot rows are, not which; profile the log itself")
    counts = np.zeros(spec.rows, np.int64)
    np.add.at(counts, rows_of(spec, profile.ids, profile.ids if vocabulary is None else vocabulary),
              profile.counts)
    return counts


def by_heat(counts: ArrayLike) -> NDArray[np.int64]:
    """Rows by their accesses, the hottest first; of equal ones the smaller number."""
    return np.argsort(-np.asarray(counts, np.int64), kind="stable")


class Remap:
    """The ids of one table as words; several threads may call it at once.

    spec: says how ids become rows. words: (rows,) uint32, of each row. vocabulary: ascending ids, of which row k is the
    k-th, where the policy asks for them.
    Raises      ValueError: words of another number than the rows, no vocabulary where one is needed
    """

    def __init__(self, spec: "TableSpec", words: ArrayLike, vocabulary: ArrayLike | None = None):
        self.name, self.policy, self.rows = spec.name, spec.ids, spec.rows
        table = np.ascontiguousarray(words, np.uint32)
        if table.shape != (spec.rows,):
            raise ValueError(f"table {spec.name}: {spec.rows} rows need as many words, not {table.shape}")
        self._direct: NDArray[np.uint32] | None = table
        self._slots: tuple[NDArray[np.uint64], ...] = ()
        self._other = table[-1]
        if self.policy == "vocabulary":
            rows = rows_of(spec, () if vocabulary is None else vocabulary, vocabulary)
            known = _ids(vocabulary if vocabulary is not None else ())
            if len(known) and known[-1] < DIRECT * len(known) + 1024:
                self._direct = np.full(int(known[-1]) + 1, self._other, np.uint32)
                self._direct[known.astype(np.int64)] = table[rows]
            else:
                self._direct = None
                self._slots = _slots(known, table[rows])

    def __call__(self, ids: ArrayLike) -> NDArray[np.uint32]:
        """The words of ids, in order.

        Raises      ValueError: an id past the rows, where ids are rows
        """
        given = _ids(ids)
        asked, out = given.reshape(-1), np.empty(given.size, np.uint32)
        if self._direct is None and len(self._slots) == 1:
            _narrow(asked, self._slots[0], self._other, out)
        elif self._direct is None:
            _wide(asked, self._slots[0], self._slots[1], self._other, out)
        elif self.policy == "modulo":
            _modulo(asked, self._direct, out)
        elif self.policy == "vocabulary":
            _direct(asked, self._direct, self._other, out)
        else:
            bad = _index(asked, self._direct, out)
            if bad >= 0:
                raise _past(self.name, self.rows, asked, bad)
        return out.reshape(given.shape)


def _ids(ids: ArrayLike) -> NDArray[np.uint64]:
    """As uint64; negative ones are past every table."""
    found = np.asarray(ids)
    if found.size and found.dtype.kind not in "iu":
        raise ValueError(f"ids must be whole numbers, not {found.dtype}")
    return np.ascontiguousarray(found).view(np.uint64) if found.dtype == np.int64 else found.astype(np.uint64)


def _past(name: str, rows: int, ids: NDArray[np.uint64], at: int) -> ValueError:
    return ValueError(f"table {name}: the id {id_text(ids[at])} (number {at}) is past the table's {rows} rows; "
                      "ids that are no rows need ids = 'modulo' or 'vocabulary'")


def _slots(ids: NDArray[np.uint64], words: NDArray[np.uint32]) -> tuple[NDArray[np.uint64], ...]:
    """A table of open addressing, at most half full. Where ids have 32 bits a slot is {id, word}, else there is an
    array of ids and one of words. No word is all ones: there is no device 3."""
    bits = max(4, int(2 * len(ids)).bit_length())
    slots = np.full(1 << bits, EMPTY, np.uint64)
    if not len(ids) or ids[-1] < 1 << 32:
        _fill_narrow(ids, words, slots)
        return (slots,)
    held = np.full(1 << bits, EMPTY, np.uint64)
    _fill_wide(ids, words, slots, held)
    return slots, held


@njit(cache=True, nogil=True, inline="always")
def _hash(key, shift):
    return np.int64((key ^ (key >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15) >> shift)


@njit(cache=True, nogil=True)
def _shift(size):
    bits = 0
    while 1 << bits < size:
        bits += 1
    return np.uint64(64 - bits)


@njit(cache=True, nogil=True)
def _fill_narrow(ids, words, slots):
    shift, mask = _shift(len(slots)), len(slots) - 1
    for k in range(len(ids)):
        at = _hash(ids[k], shift)
        while slots[at] != EMPTY:
            at = (at + 1) & mask
        slots[at] = ids[k] << np.uint64(32) | np.uint64(words[k])


@njit(cache=True, nogil=True)
def _narrow(ids, slots, other, out):
    shift, mask = _shift(len(slots)), len(slots) - 1
    for k in range(len(ids)):
        key = ids[k]
        at = _hash(key, shift)
        word = other
        slot = slots[at]
        while slot != EMPTY:
            if slot >> np.uint64(32) == key:
                word = np.uint32(slot & np.uint64(0xFFFFFFFF))
                break
            at = (at + 1) & mask
            slot = slots[at]
        out[k] = word


@njit(cache=True, nogil=True)
def _fill_wide(ids, words, slots, held):
    """The word says whether a slot is taken: an id may be all ones."""
    shift, mask = _shift(len(slots)), len(slots) - 1
    for k in range(len(ids)):
        at = _hash(ids[k], shift)
        while held[at] != EMPTY:
            at = (at + 1) & mask
        slots[at], held[at] = ids[k], words[k]


@njit(cache=True, nogil=True)
def _wide(ids, slots, held, other, out):
    shift, mask = _shift(len(slots)), len(slots) - 1
    for k in range(len(ids)):
        key = ids[k]
        at = _hash(key, shift)
        word = other
        while held[at] != EMPTY:
            if slots[at] == key:
                word = np.uint32(held[at])
                break
            at = (at + 1) & mask
        out[k] = word


@njit(cache=True, nogil=True)
def _index(ids, words, out):
    """The number of the first id that is past the words, or -1."""
    rows = np.uint64(len(words))
    bad = False
    for k in range(len(ids)):
        key = ids[k]
        past = key >= rows
        bad |= past
        out[k] = words[np.int64(0 if past else key)]
    if bad:
        for k in range(len(ids)):
            if ids[k] >= rows:
                return k
    return -1


@njit(cache=True, nogil=True)
def _direct(ids, words, other, out):
    rows = np.uint64(len(words))
    for k in range(len(ids)):
        key = ids[k]
        out[k] = words[np.int64(key)] if key < rows else other


@njit(cache=True, nogil=True)
def _modulo(ids, words, out):
    rows = np.uint64(len(words))
    for k in range(len(ids)):
        key = ids[k]
        if key >= rows:
            if key >> np.uint64(32):
                key %= rows
            else:
                key = np.uint64(np.uint32(key) % np.uint32(rows))
        out[k] = words[np.int64(key)]
