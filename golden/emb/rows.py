"""The row path of the EMB core: which rows are fetched once for many, and in which cycle everything happens.

`window` says what RowWindow finds, row by row, whatever the timing; `RowFetch` is the unit cycle by cycle: it shows in
its attributes what its registers show in the present cycle, and `step` is the clock edge that ends it. `arbitrate`
gives the cycles of the arbiter that feeds it.
"""

from typing import Any

import numpy as np
from numba import njit

from golden.emb import row_decoder
from golden.emb.row_requests import RowRequests
from golden.stream.fifo import Fifo
from hw.isa.emb import ROW_FORMAT

__all__ = ["RowFetch", "arbitrate", "set_of", "window"]


@njit(cache=True)
def set_of(offset: int, sets: int) -> int:
    """The table's set for a row's 32-bit offset: its digits to the base `sets`, added without carry."""
    value = 0
    while offset:
        value ^= offset % sets
        offset //= sets
    return value


@njit(cache=True)
def window(
    offset: np.ndarray, beats: np.ndarray, piece: np.ndarray, shared: np.ndarray, window_beats: int, sets: int,
    lap_bits: int = 8, head: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(source, position, quarter) of each row: whose fetch it takes its beats from (itself if it is fetched), the
    ring beat where these begin, and the number of the quarter, counted from the start, that the ring is in when the
    next row comes.

    offset, beats, piece: what identifies a row, beats of it and of a piece in full; shared: it may be found; head:
    beats that went into the ring before, of rows that are forgotten. A row is found in its set, of the two rows
    entered last, if it began no more than two quarters ago. After 2**lap_bits - 1 turns of the ring all is
    forgotten, the row that completed them included.
    """
    rows = len(offset)
    source = np.empty(rows, np.int64)
    position = np.empty(rows, np.int64)
    quarter = np.empty(rows, np.int64)
    # An entry is the number of the row that was fetched, or -1; column 0 was entered last.
    table = np.full((sets, 2), -1, np.int64)
    began = np.empty(rows, np.int64)
    size = window_beats // 4
    wrap = window_beats * ((1 << lap_bits) - 1)
    for row in range(rows):
        at = set_of(offset[row], sets)
        found = -1
        if shared[row]:
            for way in range(2):
                old = table[at, way]
                if (old >= 0 and offset[old] == offset[row] and beats[old] == beats[row] and piece[old] == piece[row]
                        and head // size - began[old] <= 2):
                    found = old
        if found >= 0:
            source[row], position[row] = found, position[found]
        else:
            source[row], position[row], began[row] = row, head % window_beats, head // size
            if shared[row]:
                table[at, 1] = table[at, 0]
                table[at, 0] = row
            if (head + beats[row]) // wrap > head // wrap:
                table[:] = -1
            head += beats[row]
        quarter[row] = head // size
    return source, position, quarter


class RowFetch:
    """hw.emb.rows.RowFetch cycle by cycle, in front of any memory; its parameters as there.

    `request` is what stands at the port, (offset, beats, ring), `out` the (row, beat of its values) that leaves to the
    decoder.
    """

    def __init__(self, *, window_beats: int, sets: int, row_beats_max: int, delivery_rows: int,
                 stripe_beats: int, banks: int, lap_bits: int = 8):
        self.size, self.sets, self.longest, self.rows = window_beats // 4, sets, row_beats_max, delivery_rows
        self.turns = 4 * ((1 << lap_bits) - 1)
        self.table: dict[int, list[Any]] = {}
        self.queue = Fifo(delivery_rows)
        self.stages: list[Any] = [None, None]
        self.requests = RowRequests(stripe_beats=stripe_beats, banks=banks)
        self.read: Any = None                           # (row, beat) that is read from the ring
        self.out: Any = None                            # (row, beat) at the decoder
        self.head = self.ahead = self.refund = 0
        self.gate = self.slow = False
        self.cycle, self.clear_until = 0, sets
        self.ready = False
        self.waiting = self.beat = 0
        self.decoding = 0                               # cycles before FP32 may follow another format
        self.arrived = [0] * banks                      # beats that have not been delivered yet
        self.found_rows = 0

    @property
    def request(self) -> Any:
        return self.requests.request

    def step(self, row: Any, data: bool, request_taken: bool) -> None:
        """row: a Fetched that is taken, only if `ready`; data: a beat comes back; request_taken: the request is."""
        requests = self.requests
        near = self.gate and self.ahead % self.size >= self.size - 2 * self.longest
        under_way = row is not None or self.stages != [None, None]
        self.ready = (self.cycle >= self.clear_until and not near and not (self.slow and under_way)
                      and self.waiting < self.rows and not requests.full)
        entry = self.queue.o
        bank = 0 if entry is None else requests.bank_of(entry[0].offset)
        goes = entry is not None and (entry[1] or self.arrived[bank] > 0)
        plain = entry is None or entry[0].row_format == ROW_FORMAT.FLOAT32
        goes = goes and not (plain and self.decoding)
        self.decoding = row_decoder.LATENCY if goes and not plain else max(self.decoding - 1, 0)
        served = goes and self.beat == entry[0].vector
        self.out, self.read = self.read, (entry[0], self.beat) if goes else None
        if data:
            self.arrived[requests.landing()[0]] += 1
        if goes and not entry[1] and (served or row_decoder.ends_beat(self.beat, entry[0].row_format)):
            self.arrived[bank] -= 1
        if goes:
            self.beat = 0 if served else self.beat + 1
        if served and entry[2]:
            self.gate = False

        self.slow, before = self.head // self.size % self.turns == self.turns - 1, self.head // self.size
        request = None
        placed, push, refund = self.stages[1], None, 0
        if placed is not None:
            found = self._find(placed)
            if found:
                refund = placed.beats + 1
                self.found_rows += 1
            else:
                request = placed, self.head % (4 * self.size)
                self.head += placed.beats + 1
            mark = self.head // self.size != before
            push = placed, found, mark
            if mark:
                self.gate = True
                if self.head // self.size % self.turns == 0:
                    self.table.clear()
                    self.clear_until = self.cycle + 1 + self.sets
        requests.step(request, request_taken, data)
        self.queue.step(push, served)
        self.stages = [row, self.stages[0]]
        self.waiting += (row is not None) - served
        self.ahead += (row.beats + 1 if row is not None else 0) - self.refund
        self.refund = refund
        self.cycle += 1

    def _find(self, row: Any) -> bool:
        """Whether the row lies in the ring; if not, it is entered."""
        if row.ring or row.copy:
            return False
        key, now = (row.offset, row.beats, row.piece), self.head // self.size
        ways = self.table.setdefault(set_of(row.offset, self.sets), [])
        if any(known == key and now - began <= 2 for known, began in ways):
            return True
        ways.insert(0, (key, now))
        del ways[2:]
        return False


@njit(cache=True)
def arbitrate(
    offered: np.ndarray, last: np.ndarray, vector: np.ndarray, ssd_offered: np.ndarray, ssd_last: np.ndarray,
    ssd_copy: np.ndarray, ssd_beats: np.ndarray, ssd_vector: np.ndarray, ssd_position: np.ndarray, ready: np.ndarray,
    filled: np.ndarray, returned: np.ndarray, ring_beats: int, row_beats_max: int, partial_beats: int, copy_beats: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(taken, ssd_taken, waiting): the cycle after which each row of card memory stands at the arbiter's output
    (-1: not within the cycles looked at), the same of the SSD's, and whether a row is waited for, cycle by cycle.

    offered, last, vector and beats (of the values and as stored, in full), copy, position: of the rows of each tier;
    ready, filled, returned (cycles, 3): what the arbiter is shown in each cycle; `returned` beats of vectors of card
    memory and of the SSD, and copied rows, which are all as long as the last that was taken.
    """
    cycles = len(ready)
    taken = np.full(len(offered), -1, np.int64)
    ssd_taken = np.full(len(ssd_offered), -1, np.int64)
    waiting = np.zeros(cycles, np.bool_)
    free = np.array([partial_beats, partial_beats, copy_beats])
    room = np.zeros(3, np.bool_)  # what was known of it a cycle ago
    dram, ssd, copied = 0, 0, 0  # the next row of either tier; beats of the last copy
    held, landed, ssd_turn, valid = False, False, False, False
    for cycle in range(cycles):
        move = ready[cycle] or not valid
        dram_can = (dram < len(offered) and offered[dram] <= cycle
                    and (not last[dram] or room[0]))
        ssd_can, there = False, False
        if held:
            ssd_can = landed and (not (ssd_copy[ssd] or ssd_last[ssd]) or room[2 if ssd_copy[ssd] else 1])
            there = (filled[cycle] - ssd_position[ssd] - ssd_beats[ssd]) % (1 << 30) < ring_beats
        ssd_goes = move and ssd_can and (ssd_turn or not dram_can)
        dram_goes = move and dram_can and not ssd_goes
        load = (not held or ssd_goes) and ssd + ssd_goes < len(ssd_offered) and ssd_offered[ssd + ssd_goes] <= cycle
        if cycle + 1 < cycles:
            waiting[cycle + 1] = held and not ssd_goes and not landed and not there
        landed = held and not ssd_goes and there
        room[:] = free >= 2 * row_beats_max
        free += returned[cycle] * np.array([1, 1, copied])
        if move:
            valid = dram_goes or ssd_goes
        if ssd_goes:
            ssd_taken[ssd] = cycle
            if ssd_copy[ssd]:
                copied = ssd_beats[ssd]
                free[2] -= copied
            elif ssd_last[ssd]:
                free[1] -= ssd_vector[ssd]
            ssd, held, ssd_turn = ssd + 1, False, False
        if dram_goes:
            taken[dram] = cycle
            if last[dram]:
                free[0] -= vector[dram]
            dram, ssd_turn = dram + 1, True
        held = held or load
    return taken, ssd_taken, waiting
