"""The row path of the EMB core: which rows are fetched once for many, and in which order those of both tiers go.

`window` says what RowWindow finds, row by row, whatever the timing; `arbitrate` gives the cycles of the arbiter that
feeds it.
"""

import numpy as np
from numba import njit


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
        hit = -1
        if shared[row]:
            for way in range(2):
                old = table[at, way]
                if (old >= 0 and offset[old] == offset[row] and beats[old] == beats[row] and piece[old] == piece[row]
                        and head // size - began[old] <= 2):
                    hit = old
        if hit >= 0:
            source[row], position[row] = hit, position[hit]
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
