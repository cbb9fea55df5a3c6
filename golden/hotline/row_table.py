"""Rows in slots of the embedding buffer: the same answers and slots as the hardware's, in the order of its steps."""

from collections import deque
from dataclasses import dataclass, field


@dataclass
class _Held:
    slot: int
    life: int           # mini-batches in flight that hold the row
    batch: int          # the last of them
    ordinal: int        # in that one


@dataclass
class RowTable:
    """Parameters  slots: of the embedding buffer that are used: given out from 0 on, then in the order in which they
    came back. Lookups and releases in the order in which they are carried out."""

    slots: int
    held: dict[int, _Held] = field(default_factory=dict)            # by row
    rows: int = 0                                                   # different ones of the mini-batch so far
    batch: int = 0
    lists: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    _row_of: dict[int, int] = field(default_factory=dict)           # by slot
    free: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        self.free = deque(range(self.slots))

    def open(self, batch: int) -> None:
        """A mini-batch begins."""
        self.batch, self.rows = batch, 0

    @property
    def in_use(self) -> int:
        return len(self.held)

    def lookup(self, row: int) -> tuple[int, int, bool]:
        """(ordinal, slot, miss) of a row of the present mini-batch."""
        known = self.held.get(row)
        miss = known is None
        if known is None:
            if not self.free:
                raise ValueError(f"no slot is free for row {row}: all {self.slots} are held")
            slot = self.free.popleft()
            known = self.held[row] = _Held(slot, 0, -1, 0)
            self._row_of[slot] = row
        if known.batch != self.batch:
            known.life += 1
            known.batch, known.ordinal = self.batch, self.rows
            self.lists[self.batch, self.rows] = known.slot, row
            self.rows += 1
        return known.ordinal, known.slot, miss

    def release(self, slot: int) -> bool:
        """A mini-batch gives a slot's row up; whether the slot is free now."""
        row = self._row_of[slot]
        known = self.held[row]
        known.life -= 1
        if known.life:
            return False
        del self.held[row], self._row_of[slot]
        self.free.append(slot)
        return True
