"""Counts the first products that a stream of lookups costs when each lane keeps the last few.

A lookup's first product G1[i1] G2[i2] depends on (table, i1, i2) alone: its key. Each lane holds `entries`
of them, replaced oldest first (a hit does not renew an entry: the unit has no recency order).
Chunks are dealt to the lanes in turn.                             Source: EL-Rec §III.A, Alg. 1

This is the rule without time. The unit finds the youngest of what it keeps, an entry is findable for a cycle
more or less as it happens, and a chunk goes to the lane that has less to do: golden.tt.cycles counts that exactly. It
differs by some per cent where the array is the limit.
`ReuseTable` is a lane's table alone, cycle by cycle.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit


def first_products(keys: np.ndarray, *, entries: int, lanes: int = 2, rows: int = 1) -> int:
    """How many of the lookups with these `keys`, in chunks of `rows`, must compute their first product."""
    if entries < 0 or lanes < 1 or rows < 1:
        raise ValueError(f"entries {entries} must be 0 or more, lanes {lanes} and rows {rows} 1 or more")
    keys = np.ascontiguousarray(keys, dtype=np.int64)
    if keys.ndim != 1:
        raise ValueError(f"keys must be one-dimensional, not of shape {keys.shape}")
    return int(_count(keys, entries, lanes, rows))


def leading_keys(indices: np.ndarray, row_modes: tuple[int, ...],
                 table_ids: np.ndarray | int = 0) -> np.ndarray:
    """The key of each lookup, one number for (table, i1, i2); of two cores, (table, i1)."""
    lead = row_modes[:2] if len(row_modes) > 2 else row_modes[:1]
    trailing = int(np.prod(row_modes[len(lead):], dtype=np.int64))
    leading = int(np.prod(lead, dtype=np.int64))
    return np.asarray(indices, dtype=np.int64) // trailing + np.asarray(table_ids, dtype=np.int64) * leading


@njit(cache=True)
def _count(keys, entries, lanes, rows):
    held = np.full((lanes, max(entries, 1)), -1, dtype=np.int64)
    oldest = np.zeros(lanes, dtype=np.int64)
    computed = 0
    for n in range(keys.size):
        lane = n // rows % lanes
        hit = False
        for e in range(entries):
            if held[lane, e] == keys[n]:
                hit = True
                break
        if not hit:
            computed += 1
            if entries:
                held[lane, oldest[lane]] = keys[n]
                oldest[lane] = (oldest[lane] + 1) % entries
    return computed


@dataclass
class Product:
    """A first product that is kept: `size` lines from `base` on. users: lookups that read it; bad: it is marked."""

    key: int = -1
    base: int = 0
    size: int = 0
    users: int = 0
    bad: bool = False


class ReuseTable:
    """A lane's table of first products, cycle by cycle, equal to the RTL's.

    Products and their lines are rings. From `tail` on lie `held` products, of which the last `young` are found again,
    `findable` at most. Attributes show what stands in the present cycle; `step` ends it. What is decided of what was
    seen a cycle before is kept as it was seen: hit, room, and the pace at which products grow old and are freed.

    matched: place of the product that the asking lookup shares, or None; grant: the lookup can be served
    """

    def __init__(self, *, entries: int, findable: int, lines: int):
        self.findable, self.lines = findable, lines
        self.products = [Product() for _ in range(entries)]
        self.tail = self.held = self.young = 0
        self.line = self.used_lines = self.young_lines = 0
        self.matched: int | None = None
        self.room = self.crowded = False
        self._joined: int | None = None     # places whose number of users changes a cycle later
        self._left: int | None = None
        self._stuck = self._wish = self._aged = False
        self._may_drop = self._dropped = False

    def _place(self, number: int) -> int:
        return (self.tail + number) % len(self.products)

    @property
    def hit(self) -> bool:
        return self.matched is not None

    @property
    def grant(self) -> bool:
        return self.hit or self.room

    @property
    def entry(self) -> int:
        return self._place(self.held) if self.matched is None else self.matched

    @property
    def base(self) -> int:
        return self.line if self.matched is None else self.products[self.matched].base

    def step(self, *, key: int, need: int, ask: bool, may_take: bool, next_key: int, next_need: int, advance: bool,
             released: int | None = None, poisoned: int | None = None) -> None:
        """key, need: of the lookup that asks, if `ask`, and how many lines its product has; next_key, next_need: of
        the one that asks from the next cycle on, if `advance`; may_take: it is served if it can be; released: place
        that a lookup is done with; poisoned: place that is marked, of a product in use."""
        lines, products, entry, grant = self.lines, self.products, self.entry, self.grant
        took = may_take and grant
        make = took and not self.hit
        age = self._wish and not self._aged and not took
        drop = self._may_drop and not self._dropped and not make
        young = [self._place(number) for number in range(self.held - self.young, self.held)]
        same = [place for place in young if products[place].key == next_key]

        # What the next cycle goes by was seen in this one.
        many = self.young > self.findable - 2 or self.young_lines > lines // 2
        self.crowded = self.young_lines > lines // 2
        self.room = self.held < len(products) and lines - self.used_lines >= (next_need if advance else need)
        self._wish, self._aged = many or (self._stuck and self.young > 0), age
        self._stuck = ask and not grant
        # Of what is matched the low bits alone are compared.
        wanted = self.matched is not None and (self.tail - self.matched) % self.findable == 0
        self._may_drop = (self.held > self.young and not products[self.tail].users
                          and not wanted and self.tail != self._joined)
        self._dropped = drop

        # The edge.
        for place, change in ((self._joined, 1), (self._left, -1)):
            if place is not None:
                products[place].users += change
        self._joined, self._left = entry if took else None, released
        if age:
            self.young -= 1
            self.young_lines -= products[young[0]].size
        if drop:
            self.used_lines -= products[self.tail].size
            self.tail, self.held = self._place(1), self.held - 1
        if make:
            products[entry] = Product(key, self.line, need)
            self.line = (self.line + need) % lines
            self.held, self.used_lines = self.held + 1, self.used_lines + need
            self.young, self.young_lines = self.young + 1, self.young_lines + need
            assert self.young <= self.findable, "more products are young than have a place"
        if poisoned is not None:
            products[poisoned].bad = True
        if advance:
            self.matched = same[0] if same else None
        elif took:
            self.matched = None
