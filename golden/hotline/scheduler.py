"""The scheduler of the logger's banks, cycle by cycle.

A `Scheduler` shows in its attributes what the registers show in the present cycle; `step` is the clock edge that ends
it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from golden.stream.fifo import Fifo

COLUMNS = 8
MARGIN = 8

# An access of a lane, or of a bank: (bank, payload), and (tag, lane, payload).
Access = tuple[int, int]
Issue = tuple[int, int, int]


def order(banks: Sequence[int | None]) -> list[int]:
    """The lanes that have an access, whose bank is given, by bank and equal ones by lane."""
    return sorted((lane for lane, bank in enumerate(banks) if bank is not None),
                  key=lambda lane: (banks[lane], lane))


def pool(banks: np.ndarray, *, count: int, queue: int) -> float:
    """Accesses issued a cycle by an ideal queue: of `queue` places, which take the next accesses in every cycle,
    each of `count` banks gets one, if one is for it. banks: of all accesses, in order."""
    waits = np.zeros(count, np.int64)
    at = cycles = 0
    while True:
        room = queue - int(waits.sum())
        if at + room > len(banks):
            return (at - int(waits.sum())) / max(cycles, 1)
        waits += np.bincount(banks[at:at + room], minlength=count)
        at += room
        waits -= waits > 0
        cycles += 1


@dataclass
class _Wave:
    tag: int
    places: list[tuple[int, int]]   # (lane, payload), sorted
    lengths: np.ndarray             # of the banks' runs
    heavy: bool


@dataclass
class _Part:
    wave: _Wave
    starts: np.ndarray
    lengths: np.ndarray
    costs: np.ndarray               # all there ever were, up to each bank
    first: bool
    last: bool


class Scheduler:
    """Parameters as hw.hotline.scheduler.BankScheduler's.

    ready: a wave is taken; out: for each bank its access or None; released: as the output.
    waiting: accesses that wait for their banks, not those that banks take in this cycle; most: of it so far.
    full: (a bank's queue of runs, one of its columns) has fewer than MARGIN places left, which stops releases later.
    """

    def __init__(self, *, lanes: int, banks: int, queue: int):
        self.lanes, self.banks = lanes, banks
        self.columns = min(COLUMNS, lanes)
        self.depth = max(32, 4 * queue // banks)
        self.room = 32 if lanes > 8 else 16
        log = (lanes - 1).bit_length()
        sorting = 1 + log * (log + 1) // 2 + 1 + -(-log // 4)
        splitting = 3 + (banks - 1).bit_length()
        self.ready, self.released = False, False
        self.out: list[Issue | None] = [None] * banks
        self.waiting = self.most = 0
        self.full = (False, False)
        # Pipelines: the oldest at the right end leaves in this cycle.
        self._sorting: deque = deque([None] * sorting)
        self._splitting: deque = deque([None] * splitting)
        self._waves, self._parts = Fifo(self.room), Fifo(self.room)
        self._ahead = self._behind = 0
        self._left = (False, False)
        self._may_split = False
        self._part, self._cost = 0, 0
        # The release stage.
        self._older: _Part | None = None
        self._newer: _Part | None = None
        self._done = [np.ones(banks, bool), np.ones(banks, bool)]
        self._credits = queue                               # all there ever were
        self._returned: deque[int] = deque([0])
        self._waits = np.zeros(banks, np.int64)
        self._holds: deque[bool] = deque([False] * 6)       # the leftmost counts in this cycle
        self._ended: deque[bool] = deque([False] * 4)
        # The banks' queues: runs of (columns and accesses), the one under way first, and accesses in columns.
        self._runs: list[deque] = [deque() for _ in range(banks)]
        self._busy: list[deque] = [deque() for _ in range(banks)]
        self._held = np.zeros((banks, self.columns), np.int64)
        self._issued: deque[list[Issue | None]] = deque([[None] * banks for _ in range(4)])

    def step(self, wave: tuple[int, Sequence[Access | None]] | None) -> None:
        """wave: the tag and the lanes' accesses of the wave that is on offer."""
        taken = wave if self.ready else None
        hold = self._holds.popleft()
        self._holds.append(False)

        # -- Who is released.
        older, newer, done = self._older, self._newer, self._done
        goes = [np.zeros(self.banks, bool) for _ in range(2)]
        if older is not None and not hold:
            goes[0] = (older.costs <= self._credits) & ~done[0]
        if newer is not None and not hold:
            goes[1] = (newer.costs <= self._credits) & done[0] & ~done[1]
        advance = older is None or (not hold and bool(older.costs[-1] <= self._credits))
        free = advance or newer is None
        load = self._parts.o if free else None
        ended = advance and older is not None and older.last
        some = self._waits > 0
        lengths = np.where(goes[0], older.lengths if older else 0, np.where(goes[1], newer.lengths if newer else 0, 0))
        returned = int((some & (lengths == 0)).sum())
        self._waits += np.where(lengths > 0, lengths - 1, -some.astype(np.int64))
        self.waiting = int(self._waits.sum())
        self.most = max(self.most, self.waiting)
        self._issued.append(self._queues(goes, lengths))

        # -- What the other registers show next.
        self.out = self._issued.popleft()
        self._ended.append(ended)
        self.released = self._ended.popleft()
        self._credits += self._returned.popleft()
        self._returned.append(returned)

        before = self._done[1] | goes[1]
        if advance:
            self._older, self._newer, self._done = newer, None, [before, np.ones(self.banks, bool)]
        else:
            self._done = [done[0] | goes[0], before]
        if load is not None:
            self._newer, self._done[1] = load, load.lengths == 0
        self._front(taken, load)

    def _queues(self, goes: list[np.ndarray], lengths: np.ndarray) -> list[Issue | None]:
        """Runs enter the banks' queues, each bank takes its next access."""
        out: list[Issue | None] = [None] * self.banks
        full_runs = full_columns = False
        for b in range(self.banks):
            runs, busy, held = self._runs[b], self._busy[b], self._held[b]
            if lengths[b]:
                part = self._older if goes[0][b] else self._newer
                assert part is not None
                run = range(part.starts[b], part.starts[b] + lengths[b])
                runs.append([(place % self.columns, (part.wave.tag, *part.wave.places[place])) for place in run])
                held[[place % self.columns for place in run]] += 1
            full_runs |= len(runs) >= 2 * self.depth - MARGIN
            full_columns |= bool(held.max() >= self.depth - MARGIN)
            if not busy and runs:
                busy.extend(runs.popleft())
            if busy:
                column, out[b] = busy.popleft()
                held[column] -= 1
        # What the queues tell of themselves comes late.
        self._holds[4] |= full_runs
        self._holds[5] |= full_columns
        self.full = (full_runs, full_columns)
        return out

    def _front(self, taken, load) -> None:
        """From waves to parts of waves."""
        part = None
        wave = self._waves.o
        final = False
        if wave is not None and self._may_split:
            width = self.columns
            lengths = np.clip(wave.lengths - self._part * width, 0, width)
            begins = np.concatenate([[0], np.cumsum(wave.lengths)[:-1]])
            costs = self._cost + np.cumsum(np.maximum(lengths - 1, 0))
            self._cost = int(costs[-1])
            final = not wave.heavy or self._part == self.lanes // width - 1
            part = _Part(wave, begins + self._part * width, lengths, costs, self._part == 0, final)
            self._part = 0 if final else self._part + 1
        self._splitting.appendleft(part)
        self._sorting.appendleft(self._sorted(*taken) if taken else None)
        self._parts.step(self._splitting.pop(), load is not None)
        self._waves.step(self._sorting.pop(), final)
        # What left is counted a cycle late.
        left, self._left = self._left, (final, load is not None)
        self._ahead += (taken is not None) - left[0]
        self.ready = self._ahead < self.room
        self._behind += (part is not None) - left[1]
        self._may_split = self._behind < self.room

    def _sorted(self, tag: int, lanes: Sequence[Access | None]) -> _Wave:
        by_bank = order([None if access is None else access[0] for access in lanes])
        banks = [lanes[lane][0] for lane in by_bank]        # type: ignore[index]
        lengths = np.bincount(np.array(banks, np.int64), minlength=self.banks)
        return _Wave(tag, [(lane, lanes[lane][1]) for lane in by_bank],     # type: ignore[index]
                     lengths, bool(lengths.max() > self.columns))
