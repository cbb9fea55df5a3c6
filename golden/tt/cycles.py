"""The cycle in which the TT unit takes every lookup and delivers every vector, equal to the RTL's.

golden.tt.unit and golden.tt.sequencer step through the unit's registers (golden.tt.registers) cycle by cycle.
"""

from dataclasses import dataclass

import numpy as np

from golden.tt.layout import Layout, plan
from golden.tt.registers import HORIZON, TABLE, Sizes, Unit
from golden.tt.sequencer import farthest
from golden.tt.unit import run


@dataclass(frozen=True)
class Timing:
    """Cycles from the first lookup's acceptance on, and what the unit's counters say at the end.

    taken_at: (N,) int64, the cycle in which a lookup is accepted; last_at: (M,), that of the last beat of a chunk's
    sum.
    """

    taken_at: np.ndarray
    last_at: np.ndarray
    computed: int
    reused: int
    slots: int


# Where operands share exponents: that it takes to make results operands, and to round sums that leave.
ENTRY_CYCLES, ROUND_CYCLES = 5, 6


def grid_latency(grid_log2: int, *, beats: int = 0) -> int:
    """Cycles from a tile's last operands to its results: a fused dot product of n terms in n sub-dots.

    beats: of the longest sum, where operands share exponents; terms wait for the largest of their sum.
    """
    return 13 + beats if beats else 15 + 2 * grid_log2


def cycles(layouts, tables, indices, *, lanes: int, index_bits: int, t_lines: int, t_middle_lines: int,
           reuse_entries: int, reuse_findable: int, in_flight: int, vectors: int, beats: int = 0, offsets=None,
           latency: int | None = None, gaps=None, ready=None) -> Timing:
    """Timing of lookups `indices` of `tables` (numbers into `layouts`), in order.

    lanes .. in_flight: as in a preset. vectors: that a lane holds. beats: see `grid_latency`. offsets: (M + 1,) where
    chunks of up to 8 rows begin and end (default: every row is a chunk by itself). gaps: (N,) cycles for which the
    source pauses before it offers a lookup, once the one before is taken (default 0). ready: (cycles,) whether the
    consumer takes a beat, repeated (default: always). latency: the grid's, default `grid_latency`. Raises ValueError
    for a latency past what the model looks ahead
    """
    unit = idle_unit(layouts, tables, indices, offsets, gaps, latency, lanes=lanes, index_bits=index_bits,
                     t_lines=t_lines, t_middle_lines=t_middle_lines, reuse_entries=reuse_entries,
                     reuse_findable=reuse_findable, in_flight=in_flight, vectors=vectors, beats=beats)
    run(unit, np.ones(1, np.bool_) if ready is None else np.asarray(ready, np.bool_))
    total = unit.unit[0]["total"]
    return Timing(unit.lookups["taken_at"][:-lanes].copy(), unit.vectors["last_at"][:-1].copy(),
                  int(total["computed"]), int(total["reused"]), int(total["slots"]))


def idle_unit(layouts, tables, indices, offsets, gaps=None, latency=None, *, lanes, index_bits, t_lines,
              t_middle_lines, reuse_entries, reuse_findable, in_flight, vectors, beats=0) -> Unit:
    """An idle unit before these lookups. Raises ValueError for a latency past what the model looks ahead"""
    grid_log2 = layouts[0].grid_log2 if len(layouts) else 1
    if latency is None:
        latency = grid_latency(grid_log2, beats=beats) if len(layouts) else 0
    delay = latency + ENTRY_CYCLES * (beats > 0) + 5 - 3
    leaving = latency + ROUND_CYCLES * (beats > 0)
    sizes = Sizes(lanes=lanes, split_latency=3 * index_bits + 5, grid_latency=leaving, delay=delay, t_lines=t_lines,
                  ring_lines=t_middle_lines, entries=reuse_entries, findable=reuse_findable, in_flight=in_flight,
                  vectors=vectors, side=1 << grid_log2)
    if farthest(sizes) >= HORIZON:
        raise ValueError(f"latency {latency}: the cycle model looks {HORIZON - 1} cycles ahead, where "
                         f"{farthest(sizes)} are needed")
    tables = np.asarray(tables, dtype=np.int64)
    indices = np.asarray(indices, dtype=np.int64)
    count = len(tables)
    keys = np.zeros(count, dtype=np.int64)
    for number, layout in enumerate(layouts):
        mine = tables == number
        inside = np.where((indices[mine] >= 0) & (indices[mine] < layout.rows), indices[mine], 0)
        tail = int(np.prod(layout.modes[2:])) if len(layout.modes) > 2 else 1
        keys[mine] = (inside // tail) * len(layouts) + number
    plans = np.array([_numbers(layout) for layout in layouts], dtype=TABLE)
    gaps = np.zeros(count, np.int64) if gaps is None else np.asarray(gaps, dtype=np.int64)
    offsets = np.arange(count + 1) if offsets is None else np.asarray(offsets, dtype=np.int64)
    return Unit.idle(sizes, plans[tables], keys, gaps, offsets)


def _numbers(layout: Layout) -> tuple:
    """A table as golden.tt.registers.TABLE has it."""
    first, middle, last = layout.first, layout.middle, layout.last
    beats = -(-layout.dim // (1 << 2 * layout.grid_log2))
    return (first.tiles if first else 0, first.beats if first else 0,
            middle.tiles if middle else 0, middle.beats if middle else 0,
            last.tiles, last.beats, last.lines, beats)


def cycles_per_row(columns, rank: int, *, lanes: int = 2, grid_log2: int = 2) -> float:
    """Cycles a row of full bags in steady state, no first product reused, for column modes J and equal ranks.

    Never below 1, the rate at which the unit takes lookups. A row by itself takes D / n**2 at least, its beats.
    Raises ValueError for modes that the unit cannot order.
    """
    ranks = (1, *[rank] * (len(columns) - 1), 1)
    return max(1.0, plan((1,) * len(columns), columns, ranks, grid_log2=grid_log2).slots / lanes)
