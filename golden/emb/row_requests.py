"""Rows to request from card memory, cycle by cycle: a queue per bank, which take turns."""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

CLOSE_AT = 12   # rows in a bank's queue before no more are taken


def in_turns(rows: Sequence[int], banks: int) -> list[int]:
    """The order in which rows are requested whose banks are given, when the port is slower than the rows come: their
    numbers, bank after bank."""
    queues: list[deque[int]] = [deque() for _ in range(banks)]
    order: list[int] = []
    turn, coming = 0, iter(enumerate(rows))
    ended = False
    while True:
        while not ended and all(len(queue) < CLOSE_AT for queue in queues):
            number, bank = next(coming, (-1, 0))
            ended = number < 0
            if not ended:
                queues[bank].append(number)
        turn = next((k % banks for k in range(turn + 1, turn + 1 + banks) if queues[k % banks]), -1)
        if turn < 0:
            return order
        order.append(queues[turn].popleft())


class Fetched(NamedTuple):
    """A row on its way to the row fetch: its place in its arena, stored beats less one, those of a piece less one,
    whether it is its bag's last, goes to be copied, lies in the ring; of its values, which are nothing to who requests
    it, beats less one and format."""

    offset: int
    beats: int
    piece: int
    last: int
    copy: int
    ring: bool
    vector: int = 0
    row_format: int = 0


class RowRequests:
    """hw.emb.row_requests.RowRequests cycle by cycle; its parameters as there.

    `request` is what stands at the port, (offset, beats, ring); full: as the output of that name.
    """

    def __init__(self, *, stripe_beats: int, banks: int):
        self.stripe, self.banks = stripe_beats, banks
        self.queues: list[deque[Any]] = [deque() for _ in range(banks)]
        self.turn = -1
        self.chosen: Any = None                         # a row that is read from its queue's memory
        self.row: Any = None                            # the row that is cut into pieces, (row, pieces gone)
        self.request: Any = None
        self.order: deque[list[int]] = deque()          # of rows whose beats come back: [bank, beats left, position]

    @property
    def full(self) -> bool:
        return any(len(queue) >= CLOSE_AT for queue in self.queues)

    def bank_of(self, offset: int) -> int:
        return offset % self.stripe * self.banks // self.stripe

    def landing(self) -> tuple[int, int]:
        """(bank, place in the window's ring) of a beat that comes back in this cycle."""
        bank, _, position = self.order[0]
        return bank, position

    def step(self, row: Any, taken: bool, beat: bool) -> None:
        """row: (Fetched, position) that enters; taken: the request is; beat: one comes back."""
        if beat:
            self.order[0][1] -= 1
            self.order[0][2] += 1
            if not self.order[0][1]:
                self.order.popleft()
        go = self.row is not None and (self.request is None or taken)
        if taken:
            self.request = None
        last = False
        if go:
            (now, position), piece = self.row
            beats = now.piece + 1
            self.request = now.offset + piece * self.stripe, beats, now.ring
            if not piece:
                self.order.append([self.bank_of(now.offset), now.beats + 1, position])
            last = (piece + 1) * beats == now.beats + 1
            self.row = (now, position), piece + 1
        loads = self.row is None or (go and last)
        free = self.chosen is None or loads
        if loads:
            self.row = None if self.chosen is None else (self.chosen, 0)
        if free:
            order = ((self.turn + 1 + k) % self.banks for k in range(self.banks))
            bank = next((k for k in order if self.queues[k]), None)
            self.chosen = None
            if bank is not None:
                self.chosen, self.turn = self.queues[bank].popleft(), bank
        if row is not None:
            self.queues[self.bank_of(row[0].offset)].append(row)
