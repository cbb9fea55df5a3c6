"""Every way to split each table over the three memories, packed for the solver's loops.    Source: SCRec eq. 9 to 33

A table may lie on several cards, and in several formats: each way to do so (gen.planner.problem) is an option, whose
load is that of a shard.
A split is a pair of steps (a, h), a <= h: the first share[a] of the accesses go to DRAM, those up to share[h] to the
tensor train, the others to the SSD. A cut lies between two rows: of steps that end in the same row the last counts, so
that no row is in two memories.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from gen.planner.problem import CardChoice, Idle, Item, Problem, TableChoice

#: What a load consists of: seconds of the three memories and of the link to the card and to the host, then bytes in the
#: memories.
DRAM_S, TT_S, SSD_S, IN_S, OUT_S, DRAM, TT, SSD = range(8)
TIMES, LOADS = DRAM, SSD + 1
#: Prices that add up all seconds of a load.
EVERY_TIME = np.append(np.ones(TIMES), np.zeros(LOADS - TIMES))
LEVELS = (1, 2, 3)


def cuts(item: Item) -> NDArray[np.int64]:
    """The steps at which a table may be cut: 0, and the last of those that end in one row, up to hot_share (eq. 22)."""
    last = np.append(np.diff(item.rows) > 0, True)
    last[0] = True
    last &= within(item.share, item.hot_share)
    return np.nonzero(last)[0]


def within(share: NDArray[np.float64], most: float) -> NDArray[np.bool_]:
    """Which shares are at most so large, but for what rounding adds."""
    return share <= most + 1e-9


def with_levels(problem: Problem, levels: int) -> Problem:
    """The same problem on fewer memories: 1 is the SSD alone, 2 DRAM and SSD, 3 all."""
    if levels not in LEVELS:
        raise ValueError(f"levels = {levels!r}: must be 1, 2 or 3")
    none: dict[str, Any] = {} if levels == 3 else {"tt_rows": np.zeros(1, np.int64), "tt_bytes": np.zeros(1)}
    if levels == 1:
        none["hot_share"] = 0.0
    return problem.mapped(lambda item: replace(item, **none))


def loads(problem: Problem, choices: Sequence[TableChoice], cards: int) -> tuple[CardChoice, ...]:
    """The load of each card. Its own arithmetic, table after table: the solver's is held against it."""
    found = [[*[0.0] * TIMES, 0, 0.0, 0] for _ in range(cards)]
    for j, choice in enumerate(choices):
        item = problem.ways(j)[choice.way].item
        a, h, share = choice.i_dram, choice.i_hot, item.share
        hot, warm = int(item.rows[a]), int(item.rows[h] - item.rows[a])
        reads, drive_s = float(item.reads[h]), float(item.drive_s[h])
        dram_s = float(item.hot_s[a]) + float(item.landing[h]) + item.bags_s
        for at, each in enumerate((dram_s, item.lookups * item.tt_s * float(share[h] - share[a]), drive_s,
                                   item.in_s + reads * item.page_in_s, item.out_s,
                                   hot * item.row_bytes + item.bags_bytes,
                                   float(np.interp(warm, item.tt_rows, item.tt_bytes)),
                                   (item.total_rows - hot - warm) * item.row_bytes if item.ssd_bytes is None
                                   else int(item.ssd_bytes[h]))):
            for card in choice.cards:
                found[card][at] += each
    return tuple(CardChoice(*problem.idle.added(each[:TIMES]).tolist(), *each[TIMES:]) for each in found)


@dataclass(frozen=True, eq=False)
class Choices:
    """Of J tables V options, S steps at most. table (V,), rising: whose option it is; copies (V,): cards that it takes.
    cut (V, S + 1), cuts (V,): the steps at which each may be cut, in front. a_load (V, S + 1, LOADS), h_load (V, S + 1,
    LOADS): a split's load of a card is a_load[a] + h_load[h], and tt[a, h] bytes of tensor train on top, infinite
    where the split does not fit one card. cap (LOADS,): of a card; no bound of time. idle: of a card, which no load
    has. a_least, h_least: seconds by which a split is too slow or not, where they are less than its load, as of cuts
    between two steps; None: its own.
    """

    table: NDArray[np.int64]
    copies: NDArray[np.int64]

    cut: NDArray[np.int64]
    cuts: NDArray[np.int64]
    a_load: NDArray[np.float64]
    h_load: NDArray[np.float64]
    tt: NDArray[np.float64]
    cap: NDArray[np.float64]
    idle: Idle = Idle()
    a_least: NDArray[np.float64] | None = None
    h_least: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, problem: Problem) -> "Choices":
        ways = [problem.ways(j) for j in range(len(problem.items))]
        table = np.repeat(np.arange(len(ways)), [len(each) for each in ways])
        options = [each for of in ways for each in of]
        number, steps = len(options), max(option.item.steps for option in options)
        cut, count = np.zeros((number, steps + 1), np.int64), np.zeros(number, np.int64)
        a_load, h_load = np.zeros((number, steps + 1, LOADS)), np.zeros((number, steps + 1, LOADS))
        tt = np.full((number, steps + 1, steps + 1), np.inf)
        for j, option in enumerate(options):
            item = option.item
            own = item.steps + 1
            at = cuts(item)
            cut[j, : len(at)], count[j] = at, len(at)
            share = item.share
            a_load[j, :own, DRAM_S] = item.hot_s + item.bags_s
            h_load[j, :own, DRAM_S] = item.landing
            a_load[j, :own, TT_S] = -item.lookups * item.tt_s * share
            h_load[j, :own, TT_S] = item.lookups * item.tt_s * share
            h_load[j, :own, SSD_S] = item.drive_s
            h_load[j, :own, IN_S] = item.inward
            a_load[j, :own, OUT_S] = item.out_s
            a_load[j, :own, DRAM] = item.rows * float(item.row_bytes) + item.bags_bytes
            h_load[j, :own, SSD] = item.cold_bytes
            warm = item.rows[None, at] - item.rows[at, None]
            fits = (warm <= item.tt_rows[-1]) & within(share[None, at] - share[at, None], item.tt_share)
            fits &= (a_load[j, at, DRAM] <= problem.dram_bytes)[:, None] & (h_load[j, at, SSD] <= problem.ssd_bytes)
            found = np.where(fits, np.interp(warm, item.tt_rows, item.tt_bytes), np.inf)
            found[found > problem.tt_bytes] = np.inf
            found[np.tril_indices(len(at), -1)] = np.inf
            if not problem.reads:
                found[:, item.reads[at] > 0] = np.inf
            tt[j][np.ix_(at, at)] = found
        cap = np.array([np.inf] * TIMES + [problem.dram_bytes, problem.tt_bytes, problem.ssd_bytes], np.float64)
        return cls(table, np.array([each.count for each in options]), cut, count, a_load, h_load, tt, cap,
                   problem.idle)

    @property
    def tables(self) -> int:
        """J."""
        return int(self.table[-1]) + 1

    @property
    def possible(self) -> bool:
        """Whether every table has a split that fits a card."""
        return all(np.isfinite(self.tt[self.table == j]).any() for j in range(self.tables))

    @property
    def sharded(self) -> bool:
        """Whether any table may lie on several cards."""
        return bool((self.copies > 1).any())

    @property
    def varied(self) -> bool:
        """Whether any table has more than one option."""
        return len(self.table) > self.tables

    @property
    def pairs(self) -> int:
        """Of cuts, over all options."""
        return int((self.cuts * (self.cuts + 1) // 2).sum())

    def of_tables(self, tables: NDArray[np.int64]) -> NDArray[np.int64]:
        """All options of these tables."""
        return np.flatnonzero(np.isin(self.table, tables))

    def part(self, options: NDArray[np.int64]) -> "Choices":
        """Of these options alone."""
        return Choices(np.unique(self.table[options], return_inverse=True)[1], self.copies[options], self.cut[options],
                       self.cuts[options], self.a_load[options], self.h_load[options], self.tt[options], self.cap,
                       self.idle)

    def within(self, seconds: float, cards: int = 1) -> NDArray[np.float64]:
        """(TIMES,) seconds in which so many cards can work, each of which has so many and uses all memories."""
        return cards * (seconds - self.idle.seconds)

    def load(self, options: NDArray[np.int64], a: NDArray[np.int64], h: NDArray[np.int64]) -> NDArray[np.float64]:
        """(len, LOADS) loads of a card by these splits of these options."""
        found = self.a_load[options, a] + self.h_load[options, h]
        found[:, TT_S] = np.maximum(found[:, TT_S], 0)
        found[:, TT] += self.tt[options, a, h]
        return found

    @property
    def least(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of each cut, (V, S + 1, TIMES) or more: the seconds by which a split is too slow or not."""
        return (self.a_load if self.a_least is None else self.a_least,
                self.h_load if self.h_least is None else self.h_least)

    def paired(self, seconds: float, part: float) -> "Choices":
        """With one load more, for linear programs alone: 1 where a shard of several takes more than a part of the time
        that a drive has in so many seconds. A card holds one of these: others are split as the first leaves room."""
        a_load, h_load = (np.pad(each, ((0, 0), (0, 0), (0, 1))) for each in (self.a_load, self.h_load))
        h_load[:, :, LOADS] = (self.h_load[:, :, SSD_S] > part * self.within(seconds)[SSD_S]) \
            & (self.copies > 1)[:, None]
        return replace(self, a_load=a_load, h_load=h_load, cap=np.append(self.cap, 1.0))

    def limits(self, seconds: float, cards: int, grain: ArrayLike = 1.0) -> NDArray[np.float64]:
        """(V, TIMES) seconds that each option may take on each of its cards: none where it takes more than there are,
        and but a part `grain`, one or (TIMES,), where the table can be shared out over more."""
        there = self.copies <= cards
        most = np.zeros(self.tables, np.int64)
        np.maximum.at(most, self.table[there], self.copies[there])
        part = np.where((self.copies < most[self.table])[:, None], grain, 1.0) * (1 + 1e-12)
        return np.where(there[:, None], part * np.maximum(self.within(seconds), 0.0), -1.0)

    def cheapest(self, prices: NDArray[np.float64], limits: NDArray[np.float64] | None = None) \
            -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of each table the option and split of the least priced load of all its cards, among those whose times are at
        most `limits` (V, TIMES): (cost, option, a, h), (J,) each; cost is infinite where there is none."""
        limits = np.full((len(self.table), TIMES), np.inf) if limits is None else limits
        cost, a, h = _cheapest(self.cut, self.cuts, self.a_load, self.h_load, self.tt, prices, limits, *self.least)
        cost *= self.copies
        least = np.full(self.tables, np.inf)
        np.minimum.at(least, self.table, cost)
        best = np.nonzero(cost == least[self.table])[0]
        best = best[np.unique(self.table[best], return_index=True)[1]]
        return cost[best], best, a[best], h[best]


@njit(cache=True)
def _cheapest(cut, cuts, a_load, h_load, tt, prices, limits, a_least, h_least):
    tables, steps, _ = a_load.shape
    cost, first, last = np.full(tables, np.inf), np.zeros(tables, np.int64), np.zeros(tables, np.int64)
    of_h = np.zeros(steps)
    for j in range(tables):
        most = limits[j]
        for x in range(cuts[j]):
            h = cut[j, x]
            of_h[x] = 0.0
            for r in range(len(prices)):
                of_h[x] += prices[r] * h_load[j, h, r]
        for x in range(cuts[j]):
            a = cut[j, x]
            of_a = 0.0
            for r in range(len(prices)):
                of_a += prices[r] * a_load[j, a, r]
            if a_least[j, a, OUT_S] > most[OUT_S]:
                continue
            for y in range(x, cuts[j]):
                h = cut[j, y]
                total = of_a + of_h[y] + prices[TT] * tt[j, a, h]
                if total < cost[j] and h_least[j, h, SSD_S] <= most[SSD_S] and h_least[j, h, IN_S] <= most[IN_S] \
                        and a_least[j, a, DRAM_S] + h_least[j, h, DRAM_S] <= most[DRAM_S]:
                    if h_least[j, h, TT_S] + a_least[j, a, TT_S] > most[TT_S]:
                        break
                    if tt[j, a, h] < np.inf:
                        cost[j], first[j], last[j] = total, a, h
    return cost, first, last
