"""The TT unit's cycles for callers that are compiled themselves: a step of golden.tt.unit behind a C pointer."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numba import carray, cfunc, from_dtype, types
from numba.np.unsafe.ndarray import to_fixed_tuple

from golden.tt.cycles import idle_unit
from golden.tt.registers import ENTRY, LANE, LOOKUP, UNIT, VECTOR, Sizes
from golden.tt.sequencer import NEVER, lane_steps, wakes
from golden.tt.unit import _goes_on, _input_steps, _room, _sums_steps

ROOM, OFFERED, FLAGS = 1, 2, 2      # what is said of the next cycle, and in how many bits
SETTLED = 6                         # cycles without a decision after which what follows of the last one is decided too
_SIZES = len(Sizes._fields)

_pointers = [types.CPointer(each) for each in (
    types.int64, *(from_dtype(record) for record in (UNIT, LANE, ENTRY, LOOKUP, VECTOR)), types.int64)]


def _clock(sizes, unit, lanes, entries, lookups, vectors, counts, cycle, lookup, goes):
    n = carray(counts, 2)
    sizes = Sizes(*to_fixed_tuple(carray(sizes, _SIZES), _SIZES))
    unit = carray(unit, 1)[0]
    lanes, entries = carray(lanes, sizes.lanes), carray(entries, (sizes.lanes, sizes.entries))
    lookups, vectors = carray(lookups, n[0]), carray(vectors, n[1])
    if not _goes_on(unit.total, vectors):
        return NEVER
    accept = _room(sizes, unit, lanes, lookups) and lookup != 0
    moved = _sums_steps(sizes, unit, lanes, lookups, vectors, cycle, goes != 0) or accept
    _input_steps(sizes, unit, lanes, lookups, vectors, cycle, accept)
    for number in range(sizes.lanes):
        moved |= lane_steps(sizes, lanes[number], entries, number, lookups, unit.total, cycle)
    unit.total.still = 0 if moved else unit.total.still + 1
    wake = cycle + 1
    if unit.total.still >= SETTLED:
        wake = NEVER
        for lane in lanes:
            wake = min(wake, wakes(sizes, lane, lookups, cycle))
    return ((wake - cycle) << FLAGS | (ROOM if _room(sizes, unit, lanes, lookups) else 0)
            | (0 if unit.sums.offered == -1 else OFFERED))


@cache
def _compiled() -> Any:
    """Made when a clock is, not on import: it takes seconds, or a third of one from Numba's cache."""
    return cfunc(types.int64(*_pointers, types.int64, types.int64, types.int64), cache=True)(_clock)


class Clock:
    """A unit before its lookups, which are all known beforehand; arguments as those of golden.tt.cycles.cycles.

    pointers: of the step, of what it takes first, and of its three totals, first products computed and reused and
    slots; to be kept no longer than this object. The step goes on with the number of the cycle, whether there is a
    lookup and whether a beat would be taken; it returns of the next cycle whether a lookup has ROOM, whether a beat is
    OFFERED, and above these FLAGS bits after how many cycles the next step is: there is none before, unless a lookup
    is taken or a beat that is offered.
    """

    def __init__(self, layouts: Sequence[Any], tables: np.ndarray, indices: np.ndarray, offsets: np.ndarray,
                 **sizes: Any):
        self._unit = idle_unit(layouts, tables, indices, offsets, **sizes)
        self._sizes = np.array(self._unit.sizes, np.int64)
        self._counts = np.array([len(self._unit.lookups), len(self._unit.vectors)], np.int64)
        arrays = (self._sizes, *self._unit[1:], self._counts, self._unit.unit["total"]["computed"])
        self.pointers = np.array([_compiled().address, *(each.ctypes.data for each in arrays)], np.uint64)
