"""The order of a batch's instructions in which DRAM, TT unit and SSD work at the same time.

The core takes indices in order and finishes bags in order. So a table whose rows lie in DRAM and one whose rows are
tensor trains overlap only where parts of them take turns, and where the core's queues hold a part of one memory while
it waits for the part of the other. They overlap as far as DRAM allows, which moves indices, vectors and pages, too.
The first page of the drive comes late; until then the core works on bags that read none.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gen.compiler.tables import DEVICE_SHIFT, DRAM, SSD, TT


def held(config) -> dict[int, int]:
    """Lookups of a part at most, on average, by the memory that it waits for: what a core holds of it. config: its
    EmbConfig. As many again as wait for DRAM are under way there, and each lane of the TT unit has a queue.
    """
    rows = 2 * config.dram_queue
    return {DRAM: rows, TT: config.tt_queue + config.tt.lanes * config.tt.in_flight, SSD: rows}


def kind(address: NDArray[np.uint32], row_beats: int) -> int:
    """The memory that a request waits for, DRAM, TT or SSD. address: of its rows; row_beats: of one in DRAM."""
    rows = np.bincount(address >> DEVICE_SHIFT, minlength=3)
    if rows[SSD]:
        return SSD
    return TT if rows[TT] > rows[DRAM] * row_beats else DRAM    # a cycle a row beside per beat a cycle


def part_sizes(kinds: Sequence[int], lookups: Sequence[int], config) -> dict[int, float]:
    """Lookups of a part of each kind, if requests of more than one kind take turns: all kinds have as many parts, the
    fewest that keep to what a core of this EmbConfig holds. kinds, lookups: of the requests."""
    total = dict.fromkeys(kinds, 0)
    for of, count in zip(kinds, lookups, strict=True):
        total[of] += count
    if len(total) < 2:
        return {}
    most = held(config)
    turns = max(1, *(-(-count // most[of]) for of, count in total.items()))
    return {of: max(1.0, count / turns) for of, count in total.items()}


def parts(offsets: NDArray[np.int64], start: int, end: int, size: float) -> list[tuple[int, int]]:
    """Bags start .. end as stretches (first, end): one ends with the bag with which another `size` lookups are full."""
    ends = start + 1 + np.flatnonzero(np.diff((offsets[start:end + 1] - offsets[start]) // size))
    cuts = [start, *ends[ends < end].tolist(), end]
    return list(zip(cuts[:-1], cuts[1:], strict=True))


def ahead(reads: Sequence[bool], cycles: Sequence[int], wait: int) -> list[int]:
    """An order of items in which those that read no page of the drive come first until they take `wait` cycles, which
    the first page takes to come. The others, and those of either sort, keep their order. reads: whether each does."""
    free, work = ~np.asarray(reads, np.bool_), np.asarray(cycles, np.int64)
    early = free & (np.cumsum(free * work) - work < wait)
    return [int(at) for at in np.argsort(~early, kind="stable")]


def in_turns(kinds: Sequence[int], lookups: Sequence[int]) -> list[int]:
    """An order of items in which each kind is through the same share of its lookups at any time. Items of a kind keep
    their order. Kinds with as many items as each other alternate, though their items differ a little."""
    of, work = np.asarray(kinds, np.int64), np.asarray(lookups, np.float64)
    share, distinct = np.zeros(len(of)), np.unique(of)
    for number, each in enumerate(distinct):
        mine = of == each
        inside = (number + 0.5) / len(distinct)    # where in an item its turn is
        share[mine] = (np.cumsum(work[mine]) - work[mine] * (1 - inside)) / max(work[mine].sum(), 1)
    return [int(at) for at in np.argsort(share, kind="stable")]
