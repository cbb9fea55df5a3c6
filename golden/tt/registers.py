"""The registers of the TT unit, by name, as golden.tt.unit and golden.tt.sequencer step through them.

A lookup, a vector and an entry are their numbers, -1 is none.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

# Cycles that can be looked ahead.
HORIZON = 128
# Rows that wait for the first machine.
SERVED = 8


def _record(names: str, flags: str = "", **parts) -> np.dtype:
    """A record of numbers, flags and parts."""
    numbers = [(name, np.int64) for name in names.split()]
    bits = [(name, np.bool_) for name in flags.split()]
    return np.dtype([*parts.items(), *numbers, *bits], align=True)


# What the steps need of a table. beats: of a vector.
TABLE = _record("first_tiles first_beats middle_tiles middle_beats last_tiles last_beats last_lines beats")
# gap: the pause before it; begin, rows: its chunk's first lookup and lookups; vector: the chunk. after: the next one
# of its lane; entry: where its first product is remembered.
LOOKUP = _record("key gap begin rows vector after entry taken_at", plan=TABLE)
VECTOR = _record("begin lane last_at")

# -- The unit. next: the next lookup; turn: its lane. order_in, order_out: vectors whose lane is known, that were read.
# idle: cycles without a lookup taken or a vector done; still: without a decision of any part.
INPUT = _record("next turn turn_before pause", "inside_chunk")
SUMS = _record("order_in order_out reading beats_left given offered", "room following")
TOTAL = _record("finished idle still computed reused slots")
# The cache of Numba looks at the file of a function alone; the name of a type makes it notice what that calls.
_SOURCES = b"".join((Path(__file__).parent / name).read_bytes() for name in ("registers.py", "sequencer.py", "unit.py"))
UNIT = _record("", f"of_{hashlib.sha256(_SOURCES).hexdigest()[:16]}", input=INPUT, sums=SUMS, total=TOTAL)

# -- A lane. A machine: its lookup, tiles left, beats a tile, beats left of the tile.
MACHINE = _record("lookup tiles beats left", "skips")
# Lookups that have begun, that are ripe; the last that was taken.
QUEUE = _record("begun ripe taken")
# newest: the last lookup of the queue; matched: the entry that the asking lookup equals; left: the queue, a cycle ago.
ADMISSION = _record("waiting newest left_last fetched asking matched", "crowded left")
REUSE = _record("head tail held free_lines oldest findable findable_lines leaving",
                "has_room stuck tail_idle wish aged dropped old")
ENTRY = _record("key users size", "valid")
PENDING = _record("lookup", "skips")
FIRST_PRODUCT = _record("level", machine=MACHINE, pending=PENDING, served=(PENDING, SERVED))
MIDDLE_PRODUCT = _record("ready busy_until ring_free freed", "ring_room", machine=MACHINE, queue=QUEUE)
# row: before the machine; gathered: a chunk, by its first row; rows: of the chunk that runs.
LAST_PRODUCT = _record("row gathered rows rest credits", "has_credit", machine=MACHINE, queue=QUEUE)
ARBITER = _record("owner", "inside")
# What arrives in a later cycle.
SOON = _record("middle_ripe last_ripe returned whole")
# whole: vectors in the output memory.
LANE = _record("whole", admission=ADMISSION, reuse=REUSE, first=FIRST_PRODUCT, middle=MIDDLE_PRODUCT,
               last=LAST_PRODUCT, arbiter=ARBITER, soon=(SOON, HORIZON))


class Sizes(NamedTuple):
    """Of a unit. delay: see hw.tt.sequencer; vectors: that a lane holds."""

    lanes: int
    split_latency: int
    grid_latency: int
    delay: int
    t_lines: int
    ring_lines: int
    entries: int
    findable: int
    in_flight: int
    vectors: int
    side: int


class Unit(NamedTuple):
    """All registers, and the lookups and vectors with what becomes of them."""

    sizes: Sizes
    unit: np.ndarray            # one UNIT
    lanes: np.ndarray           # LANE
    entries: np.ndarray         # ENTRY (lane, entry)
    lookups: np.ndarray         # LOOKUP; behind them one for each lane that stands before its first
    vectors: np.ndarray         # VECTOR

    @classmethod
    def idle(cls, sizes: Sizes, plans: np.ndarray, keys: np.ndarray, gaps: np.ndarray, offsets: np.ndarray) -> "Unit":
        """Before lookups of these plans (TABLE) and keys, offsets: where chunks begin and end."""
        count, results = len(plans), len(offsets) - 1
        lookups = np.zeros(count + sizes.lanes, LOOKUP)
        vector = np.repeat(np.arange(results), np.diff(offsets))
        lookups["after"] = lookups["taken_at"] = -1
        for name, values in (("plan", plans), ("key", keys), ("gap", gaps), ("vector", vector),
                             ("begin", offsets[vector]), ("rows", np.diff(offsets)[vector])):
            lookups[name][:count] = values
        vectors = np.zeros(results + 1, VECTOR)
        vectors["begin"] = offsets
        vectors["last_at"] = -1

        unit = np.zeros(1, UNIT)
        unit["input"]["turn_before"] = 1
        unit["sums"]["room"] = True
        lanes = np.zeros(sizes.lanes, LANE)
        first, middle, last = lanes["first"], lanes["middle"], lanes["last"]
        before = count + np.arange(sizes.lanes)
        for part, names in ((lanes["admission"], "newest left_last"), (middle["queue"], "taken"),
                            (last["queue"], "taken")):
            for name in names.split():
                part[name] = before
        for part, names in ((unit["sums"], "reading given offered"), (lanes["admission"], "fetched asking matched"),
                            (lanes["reuse"], "leaving"), (first["pending"], "lookup"), (first["machine"], "lookup"),
                            (middle, "ready busy_until"), (middle["machine"], "lookup"), (last, "row gathered"),
                            (last["machine"], "lookup")):
            for name in names.split():
                part[name] = -1
        lanes["reuse"]["free_lines"] = sizes.t_lines
        middle["ring_free"] = sizes.ring_lines
        last["credits"] = sizes.vectors
        last["has_credit"] = True
        return cls(sizes, unit, lanes, np.zeros((sizes.lanes, sizes.entries), ENTRY), lookups, vectors)
