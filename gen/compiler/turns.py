"""The order of a batch's instructions in which DRAM, TT unit and SSD work at the same time.

The core takes instructions and their indices in order, and looks ahead as far as its queues go, a few hundred indices.
So a table whose rows lie in DRAM and one whose rows are tensor trains overlap only where parts of them take turns.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gen.compiler.tables import DEVICE_SHIFT, DRAM, SSD, TT

__all__ = ["PART", "in_turns", "kind", "parts"]

#: Lookups of a part, on average: of batches of MELS, parts of 128 take the fewest cycles among 32 to 8,192.
PART = 128


def kind(address: NDArray[np.uint32], row_beats: int) -> int:
    """The memory that a request waits for, DRAM, TT or SSD. address: of its rows; row_beats: of one in DRAM."""
    rows = np.bincount(address >> DEVICE_SHIFT, minlength=3)
    if rows[SSD]:
        return SSD
    return TT if rows[TT] > rows[DRAM] * row_beats else DRAM    # a cycle a row beside a beat a cycle


def parts(offsets: NDArray[np.int64], start: int, end: int) -> list[tuple[int, int]]:
    """Bags start .. end as stretches (first, end): one ends with the bag with which another PART lookups are full."""
    ends = start + 1 + np.flatnonzero(np.diff((offsets[start:end + 1] - offsets[start]) // PART))
    cuts = [start, *ends[ends < end].tolist(), end]
    return list(zip(cuts[:-1], cuts[1:], strict=True))


def in_turns(kinds: Sequence[int], lookups: Sequence[int]) -> list[int]:
    """An order of items in which each kind is through the same share of its lookups at any time. Items of a kind keep
    their order."""
    of, work = np.asarray(kinds, np.int64), np.asarray(lookups, np.float64)
    share = np.zeros(len(of))
    for each in np.unique(of):
        mine = of == each
        share[mine] = (np.cumsum(work[mine]) - work[mine] / 2) / max(work[mine].sum(), 1)
    return [int(at) for at in np.argsort(share, kind="stable")]
