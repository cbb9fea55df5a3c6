"""The row path of the EMB core: which rows are fetched once for many, row by row, whatever the timing."""

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
