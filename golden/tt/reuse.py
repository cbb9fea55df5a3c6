"""Counts the first products that a stream of lookups costs when each lane keeps the last few.

A lookup's first product G1[i1] G2[i2] depends on (table, i1, i2) alone: its key. Each lane holds `entries`
of them, replaced oldest first (a hit does not renew an entry: the unit has no recency order).
Lookups are dealt to the lanes in turn.                            Source: EL-Rec §III.A, Alg. 1

This is the rule without time. The unit finds the younger half of what it keeps, and an entry is findable for
a cycle more or less as it happens: golden.tt.cycles counts that exactly, and differs by a percent or so.
"""

import numpy as np
from numba import njit


def first_products(keys: np.ndarray, *, entries: int, lanes: int = 2) -> int:
    """How many of the lookups with these `keys` must compute their first product."""
    if entries < 0 or lanes < 1:
        raise ValueError(f"entries {entries} must be 0 or more and lanes {lanes} 1 or more")
    keys = np.ascontiguousarray(keys, dtype=np.int64)
    if keys.ndim != 1:
        raise ValueError(f"keys must be one-dimensional, not of shape {keys.shape}")
    return int(_count(keys, entries, lanes))


def leading_keys(indices: np.ndarray, row_modes: tuple[int, ...],
                 table_ids: np.ndarray | int = 0) -> np.ndarray:
    """The key of each lookup, one number for (table, i1, i2); of two cores, (table, i1)."""
    lead = row_modes[:2] if len(row_modes) > 2 else row_modes[:1]
    trailing = int(np.prod(row_modes[len(lead):], dtype=np.int64))
    leading = int(np.prod(lead, dtype=np.int64))
    return np.asarray(indices, dtype=np.int64) // trailing + np.asarray(table_ids, dtype=np.int64) * leading


@njit(cache=True)
def _count(keys, entries, lanes):
    held = np.full((lanes, max(entries, 1)), -1, dtype=np.int64)
    oldest = np.zeros(lanes, dtype=np.int64)
    computed = 0
    for n in range(keys.size):
        lane = n % lanes
        found = False
        for e in range(entries):
            if held[lane, e] == keys[n]:
                found = True
                break
        if not found:
            computed += 1
            if entries:
                held[lane, oldest[lane]] = keys[n]
                oldest[lane] = (oldest[lane] + 1) % entries
    return computed
