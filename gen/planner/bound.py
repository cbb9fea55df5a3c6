"""A bound of the time of `cards` EMB cards that no placement can beat, by column generation.

The cards are alike. Whoever lets them share their times and memories, and tables be mixtures of splits, has a linear
program; its columns are splits, of which each round prices all and adds the best of each table (Dantzig and Wolfe).
Whatever its prices w of the times and u of the memories are, with the sum of w 1 / cards,

    sum over tables (min over splits of w . times + u . bytes) - cards * u . capacity

is a bound (Lagrange); a table that lies on several cards is a column with the loads of all of them, so that it holds
for such placements, too. It is what is reported, in our own arithmetic, so that the LP solver's tolerances do not
enter.
A product of two tables (gen.planner.join) is a column of both. Then the sum is that of values y of the tables, where y
is no more than the least cost of a table's splits, and of two tables no more than that of their product: so each table
or pair costs at least what its tables are worth. The linear program's own prices of the tables are such, once put right
where they are not.
Splits slower than a placement that is known cannot be part of a better one and are left out, which lifts the bound.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.planner.choices import DRAM, EVERY_TIME, LOADS, SSD, TIMES, TT, TT_S, Choices
from gen.planner.work import PAIR_S, PIVOT_S, RUN_S, Deadline

ROUNDS = 200
LACK = 0.5          # bytes of a memory: less is rounding
NEVER = Deadline()
CLOSE = 1e-5        # of the bound: nearer need not be
LIFTED = 1e-3       # of the limit of placements: the same
PENALTY = 100.0       # times the seconds of all tables: what a whole card's memory too much costs
NO_INDEX, NO_VALUE = np.zeros(0, np.int32), np.zeros(0)


@dataclass(frozen=True, eq=False)
class LpSolution:
    """bound: seconds, or bytes that are lacking. prices (LOADS,): of seconds and bytes.
    options, a, h, weights: the mixture of splits that the linear program has chosen, in order of options."""

    bound: float
    prices: NDArray[np.float64]
    options: NDArray[np.int64]
    a: NDArray[np.int64]
    h: NDArray[np.int64]
    weights: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Products of two tables each, whole on a card. tables: (P, 2); load: (P, LOADS)."""

    tables: NDArray[np.int64]
    load: NDArray[np.float64]


class Master:
    """The linear program, with the columns found so far; they serve every number of cards. pairs: of which `seconds`
    has columns, too."""

    def __init__(self, choices: Choices, pairs: Pairs | None = None):
        self.choices = choices
        self.pairs = pairs or Pairs(np.zeros((0, 2), np.int64), np.zeros((0, LOADS)))
        self.seen: set[tuple[int, int, int]] = set()
        self.options = self.a = self.h = np.zeros(0, np.int64)
        # The program's units: seconds of all tables one after the other, and a card's memories.
        self.every_time = np.append(EVERY_TIME, np.zeros(len(choices.cap) - LOADS))
        seconds = choices.cheapest(self.every_time)[0].sum()
        self.unit = np.array([max(seconds, 1e-30)] * TIMES + [*np.maximum(choices.cap[TIMES:], 1.0)])

    def _add(self, options: NDArray[np.int64], a: NDArray[np.int64], h: NDArray[np.int64]) -> int:
        fresh = [key for key in zip(options.tolist(), a.tolist(), h.tolist(), strict=True) if key not in self.seen]
        self.seen.update(fresh)
        if fresh:
            more = np.array(fresh, np.int64).T
            self.options, self.a, self.h = (np.concatenate(pair) for pair in
                                            zip((self.options, self.a, self.h), more, strict=True))
        return len(fresh)

    def overflow(self, cards: int, until: Deadline = NEVER) -> LpSolution:
        """The fewest bytes of DRAM and SSD that so many cards lack, in `bound`; 0 where they hold all."""
        # A byte of tensor train more may save many: it is no way out.
        slack = np.append(np.zeros(TIMES), [1.0, 1e3, 1.0])
        room = np.append(np.full(TIMES, np.inf), cards * self.choices.cap[TIMES:])
        return self._solve(np.zeros(LOADS), room, slack, self.unit[SSD], cards, until=until, enough=1e-9)

    def seconds(self, cards: int, limit: float = np.inf, until: Deadline = NEVER, enough: float = np.inf,
                grain: ArrayLike = 1.0, allowed: NDArray[np.bool_] | None = None) -> LpSolution:
        """The bound for so many cards, of placements of at most `limit` seconds. Ends early behind the moment
        `until`, or with a bound of `enough`. grain: as Choices.limits takes it. allowed: (V,) options, None: all."""
        room = np.append(self.choices.within(0.0, cards), cards * self.choices.cap[TIMES:])
        return self._solve(cards * self.every_time, room, PENALTY * self.unit[0] / self.unit, self.unit[0], cards,
                           limit, until, enough, grain=grain, allowed=allowed)

    def lifted(self, cards: int, limit: float, until: Deadline = NEVER) -> LpSolution:
        """The bound for so many cards, at most `limit`: of placements of at most s seconds it is the higher the less s
        is, and where it is s or more there is none. The solution is one of the last s above the bound."""
        found = self.seconds(cards, limit, until)
        low, high = min(found.bound, limit), limit
        while high - low > LIFTED * high and not until.passed:
            middle = 0.5 * (low + high)
            each = self.seconds(cards, middle, until)
            if each.bound >= middle:
                low = middle
            else:
                found, low, high = each, max(low, each.bound), middle
        return replace(found, bound=low)

    def crowd(self, among: NDArray[np.int64], count: int, until: Deadline = NEVER) -> LpSolution:
        """The bound for one card that holds any `count` of the tables `among`, whole. Where those are more than count -
        1 times the cards, some card does (the pigeonhole principle)."""
        room = np.append(self.choices.within(0.0), self.choices.cap[TIMES:])
        return self._solve(EVERY_TIME, room, PENALTY * self.unit[0] / self.unit, self.unit[0], 1,
                           until=until, among=among, count=count)

    def fill(self, cards: int, seconds: float, until: Deadline = NEVER, grain: ArrayLike = 1.0,
             allowed: NDArray[np.bool_] | None = None, limit: float | None = None) -> LpSolution:
        """How full the fullest memory of so many cards must be, at least, for so many seconds, as `bound`. grain: as
        Choices.limits takes it. allowed: (V,) options, None: all. limit: seconds of one card, None: as many."""
        cap, memories = self.choices.cap, np.isin(np.arange(len(self.unit)), (DRAM, TT, SSD))
        main = cards * np.where(memories, cap, 0.0)
        room = np.where(memories, 0.0, cards * cap)
        room[:TIMES] = np.maximum(self.choices.within(seconds, cards), 0.0)
        return self._solve(main, room, PENALTY / self.unit, 1.0, cards, seconds if limit is None else limit, until,
                           grain=grain, allowed=allowed)

    def tensor_trains(self, seconds: float, until: Deadline = NEVER) -> LpSolution:
        """The least part of so many seconds that the tensor trains of one card take, as `bound`."""
        room, main = np.append(self.choices.within(seconds), self.choices.cap[TIMES:]), np.zeros(LOADS)
        room[TT_S], main[TT_S] = 0.0, seconds
        return self._solve(main, room, PENALTY / self.unit, 1.0, 1, seconds, until)

    def _worth(self, values: NDArray[np.float64], prices: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of each table, less where two are worth more than their product costs."""
        found = values.copy()
        first, second = self.pairs.tables.T
        cost = self.pairs.load @ prices
        for at in np.flatnonzero(found[first] + found[second] > cost):
            i, j = self.pairs.tables[at]
            found[i if found[i] > found[j] else j] -= max(found[i] + found[j] - cost[at], 0.0)
        return found

    def _solve(self, main: NDArray[np.float64], room: NDArray[np.float64], slack: NDArray[np.float64], scale: float,
               cards: int, limit: float = np.inf, until: Deadline = NEVER, enough: float = np.inf,
               among: NDArray[np.int64] | None = None, count: int | None = None, grain: ArrayLike = 1.0,
               allowed: NDArray[np.bool_] | None = None) -> LpSolution:
        """The least value of one variable and `slack` times what overflows, where the loads of `count` of the tables
        `among` (of all, without them) are at most `room` + `main` times the variable + overflow; `scale` is the
        value's unit. Slack of a program that asks for something else only gives the first rounds a solution, and is
        so expensive that no optimum has any."""
        from highspy import Highs

        tables, unit, choices, loads = self.choices.tables, self.unit, self.choices, len(self.unit)
        limits = choices.limits(limit, cards, grain)
        limits = limits if allowed is None else np.where(allowed[:, None], limits, -1.0)
        main, room, slack = main / unit * (scale if main.any() else 1.0), room / unit, slack * unit / scale
        fixed = not main.any()
        a_least, h_least = choices.least
        among = np.arange(tables) if among is None else among
        count = len(among) if count is None else count
        inside = np.zeros(tables, bool)
        inside[among] = True
        lp = Highs()
        lp.silent()
        lp.setOptionValue("threads", 1)
        for r in range(loads):
            lp.addRow(-np.inf, room[r], 0, NO_INDEX, NO_VALUE)
        for j in range(tables):
            lp.addRow(float(inside[j] and count == len(among)), float(inside[j]), 0, NO_INDEX, NO_VALUE)
        lp.addRow(float(count), np.inf, 0, NO_INDEX, NO_VALUE)
        lp.addCol(1.0, 0.0, np.inf, loads, np.arange(loads, dtype=np.int32), -main)
        for r in range(loads):
            lp.addCol(slack[r], 0.0, np.inf, 1, np.array([r], np.int32), np.array([-1.0]))
        if pairs := len(self.pairs.load):
            index = np.concatenate([np.broadcast_to(np.arange(loads), (pairs, loads)), loads + self.pairs.tables,
                                    np.full((pairs, 1), loads + tables)], axis=1).astype(np.int32)
            value = np.concatenate([self.pairs.load / unit, np.tile([1.0, 1.0, 2.0], (pairs, 1))], axis=1)
            lp.addCols(pairs, np.zeros(pairs), np.zeros(pairs), np.full(pairs, np.inf), index.size,
                       np.arange(pairs, dtype=np.int32) * (loads + 3), index.ravel(), value.ravel())
        in_lp, added = np.zeros(0, np.int64), 0
        best, best_prices, room = -np.inf, np.zeros(loads), np.where(np.isfinite(room), room, 0.0)
        cost, *cheap = choices.cheapest(self.every_time / unit, limits)
        if not np.isfinite(cost[among]).all():     # a table has no split that is fast enough
            return LpSolution(np.inf, best_prices, *(np.zeros(0, np.int64),) * 3, np.zeros(0))
        self._add(*cheap)
        for _ in range(ROUNDS):
            fresh = self.options[added:]
            load, table = choices.load(fresh, self.a[added:], self.h[added:]), choices.table[fresh]
            least_s = a_least[fresh, self.a[added:], :TIMES] + h_least[fresh, self.h[added:], :TIMES]
            kept = np.nonzero((least_s <= limits[fresh]).all(axis=1) & inside[table])[0]
            index = np.concatenate([np.broadcast_to(np.arange(loads, dtype=np.int32), (len(kept), loads)),
                                    loads + table[kept, None].astype(np.int32),
                                    np.full((len(kept), 1), loads + tables, np.int32)], axis=1)
            value = np.concatenate([load[kept] * choices.copies[fresh[kept], None] / unit, np.ones((len(kept), 2))],
                                   axis=1)
            lp.addCols(len(kept), np.zeros(len(kept)), np.zeros(len(kept)), np.full(len(kept), np.inf), index.size,
                       np.arange(len(kept), dtype=np.int32) * (loads + 2), index.ravel(), value.ravel())
            in_lp, added = np.concatenate([in_lp, added + kept]), len(self.options)
            lp.run()
            pivots = lp.getInfo().simplex_iteration_count
            until.spend(RUN_S + PIVOT_S * (loads + tables) * pivots + PAIR_S * choices.pairs)
            least = lp.getInfo().objective_function_value
            dual = np.array(lp.getSolution().row_dual)
            # Prices that the true program allows, so that what they give is a bound of it.
            prices = np.maximum(-dual[:loads], 0)
            if fixed:
                prices = np.minimum(prices, slack)
            elif (total := main @ prices) > 0:
                prices = prices / total
            else:
                prices = main / (main @ main)
            cost, *cheap = choices.cheapest(prices / unit, limits)
            worth = self._worth(np.minimum(cost, dual[loads:-1] + dual[-1]), prices / unit) if pairs else cost
            found = float(np.sort(worth[among])[:count].sum() - prices @ room)
            if found > best:
                best, best_prices = found, prices
            if best * scale >= enough or least - best <= CLOSE * abs(best) + 1e-12 or fixed and least <= 0:
                break
            better = inside & (cost < dual[loads:-1] + dual[-1] - 1e-12)
            if not self._add(*(each[better] for each in cheap)) or until.passed:
                break
        weights = np.array(lp.getSolution().col_value)[1 + loads + pairs:]
        used = np.nonzero(weights > 1e-9)[0]
        used = used[np.argsort(self.options[in_lp[used]], kind="stable")]
        at = in_lp[used]
        return LpSolution(best * scale, best_prices / unit * scale, self.options[at], self.a[at], self.h[at],
                          weights[used])
