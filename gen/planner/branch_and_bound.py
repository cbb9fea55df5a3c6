"""A bound for few tables: every way to put them on the cards, and ever smaller parts of their cuts.

A node says of some tables on which cards they lie and in which option, and between which steps each is cut. Its linear
program has the loads of each card by itself; tables of which the node says nothing are shared out over all cards as
they like (gen.planner.bound). The node of the least bound is looked at first. The next table, the most expensive one
first, is put in every option on every cards that are not alike, and where all have cards the steps of the table whose
mixture spreads the most are parted. So what is left is no more than cuts between two steps next to each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gen.planner.choices import EVERY_TIME, LOADS, SSD_S, TIMES, Choices
from gen.planner.work import PAIR_S, PIVOT_S, RUN_S, Deadline

__all__ = ["TABLES", "Bounded", "branch_and_bound"]

#: Of so many tables, and cards where tables may lie on several, the ways to lie on cards are few enough.
TABLES, CARDS = 12, 8
PENALTY = 100.0     # times the seconds of all tables: what a whole card's memory too much costs
CLOSE = 1e-6        # of the bound: nearer need not be
ROUNDS = 60
#: Of a table's splits those that a linear program has chosen, by number, and their weights.
Mixture = tuple[NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Bounded:
    """bound: seconds that no placement betters, at most those that were asked for; infinite where there is none at all.
    placement: (option, a, h) of each table and the card of each shard, of the fastest that was met, None where none
    was. loose: (option, step, step) between which cuts are that keep the bound low."""

    bound: float
    placement: tuple[NDArray[np.int64], ...] | None
    loose: frozenset[tuple[int, int, int]]


@dataclass(frozen=True)
class _Lies:
    """Where a table lies, and between which of the steps at which it may be cut, by number."""

    option: int
    cards: tuple[int, ...]
    a: tuple[int, int]
    h: tuple[int, int]


def branch_and_bound(choices: Choices, cards: int, limit: float, until: Deadline, *, near: float = 0.0,
                     between: bool = False) -> Bounded | None:
    """Of placements of at most `limit` seconds on so many cards, as far as it is known at the moment `until`. near: of
    the seconds of the fastest, nearer the bound need not be. between: cuts may be between two steps, where a mixture of
    both bounds what they take; then there is no placement. None where there are too many tables or cards."""
    if choices.tables > TABLES or choices.sharded and cards > CARDS:
        return None
    tree = _Tree(choices, cards, limit, until, near, between)
    bound = tree.searched()
    return Bounded(min(bound, limit), tree.placement, frozenset(tree.loose))


class _Tree:
    def __init__(self, choices: Choices, cards: int, limit: float, until: Deadline, near: float, between: bool):
        self.choices, self.cards, self.best, self.until, self.near = choices, cards, limit, until, near
        self.between = between
        self.loose: set[tuple[int, int, int]] = set()
        self.placement: tuple[NDArray[np.int64], ...] | None = None
        cost = choices.cheapest(EVERY_TIME)[0]
        self.order = np.argsort(-cost, kind="stable").tolist()
        self.unit = np.array([max(cost.sum(), 1e-30)] * TIMES + [*np.maximum(choices.cap[TIMES:], 1.0)])
        self.a, self.h, self.load, self.known = {}, {}, {}, {}
        for v in np.flatnonzero(choices.copies <= cards).tolist():
            at = choices.cut[v, : choices.cuts[v]]
            a, h = np.nonzero(np.isfinite(choices.tt[v][np.ix_(at, at)]))
            load = choices.load(np.full(len(a), v), at[a], at[h])
            # A cut between two steps may be fast enough where one of them is not.
            fast = (load[:, :TIMES] <= choices.within(np.inf if between else limit)).all(axis=1)
            self.a[v], self.h[v], self.load[v] = a[fast], h[fast], load[fast] / self.unit
            self.known[v] = np.zeros(int(fast.sum()), bool)
            self.known[v][[0, -1] if fast.any() else []] = True
        self.options = {j: [v for v in self.load if choices.table[v] == j and len(self.load[v])] for j in self.order}
        self.room = np.append(choices.within(0.0), choices.cap[TIMES:]) / self.unit

    def searched(self) -> float:
        """Seconds that no placement betters."""
        heap: list[tuple[float, int, tuple[_Lies, ...]]] = [(0.0, 0, ())]
        closed, number = np.inf, 0
        while heap:
            least, _, node = heap[0]
            if min(least, closed) >= (1 - self.near) * self.best or self.until.passed:
                break
            heappop(heap)
            bound, mixture, lacks = self._relaxed(node)
            bound = max(bound, least)
            if bound >= (1 - self.near) * self.best:
                closed = min(closed, bound)
                continue
            nexts = list(self._parted(node, mixture, lacks))
            if not nexts and (self.between or not lacks):
                closed = min(closed, bound)
            for each in nexts:
                number += 1
                heappush(heap, (bound, number, each))
        return min(closed, heap[0][0] if heap else np.inf, self.best)

    def _parted(self, node: tuple[_Lies, ...], mixture: list[Mixture], lacks: bool) -> Iterator[tuple[_Lies, ...]]:
        """The same placements by parts; none where the bound is that of one, or of cuts next to each other. lacks: some
        memory is too small for the mixture."""
        if len(node) < len(self.order):
            for v in self.options[self.order[len(node)]]:
                last = self.choices.cut.shape[1]
                for on in self._sets(node, int(self.choices.copies[v])):
                    yield *node, _Lies(v, on, (0, last), (0, last))
            return
        widest = 0.0
        for at, (lies, (columns, weights)) in enumerate(zip(node, mixture, strict=True)):
            for name, steps in (("a", self.a[lies.option][columns]), ("h", self.h[lies.option][columns])):
                mean = float(weights @ steps)
                spread = float(weights @ np.abs(steps - mean))
                if spread > max(widest, 1e-6) and (steps.max() - steps.min() > 1 or not self.between):
                    widest, found = spread, (at, name, mean, int(steps.min()), int(steps.max()))
        if not widest and lacks and not self.between:
            for at, lies in enumerate(node):
                kept = self._within(lies)
                for name, steps in (("a", self.a[lies.option][kept]), ("h", self.h[lies.option][kept])):
                    if (spread := int(steps.max() - steps.min())) > widest:
                        widest, found = spread, (at, name, int(steps.min()) + spread // 2, 0, 0)
        if not widest:
            if self.between:
                for lies, (columns, _) in zip(node, mixture, strict=True):
                    cut = self.choices.cut[lies.option]
                    for steps in (self.a[lies.option][columns], self.h[lies.option][columns]):
                        self.loose.add((lies.option, int(cut[steps.min()]), int(cut[steps.max()])))
            return
        at, name, mean, low, high = found
        begin, end = getattr(node[at], name)
        parts = ((begin, int(mean)), (int(mean) + 1, end)) if not self.between else \
            ((begin, cut := min(max(round(mean), low + 1), high - 1)), (cut, end))
        for part in parts:
            own = {"a": node[at].a, "h": node[at].h} | {name: part}
            yield *node[:at], _Lies(node[at].option, node[at].cards, **own), *node[at + 1:]

    def _sets(self, node: tuple[_Lies, ...], count: int) -> Iterator[tuple[int, ...]]:
        """So many cards, of each class of cards on which the same tables lie the first ones."""
        classes: dict[tuple[bool, ...], list[int]] = {}
        for m in range(self.cards):
            classes.setdefault(tuple(m in lies.cards for lies in node), []).append(m)
        if count == 1:
            yield from ((each[0],) for each in classes.values())
            return
        for numbers in product(*(range(min(len(each), count) + 1) for each in classes.values())):
            if sum(numbers) == count:
                yield tuple(m for each, number in zip(classes.values(), numbers, strict=True) for m in each[:number])

    def _relaxed(self, node: tuple[_Lies, ...]) -> tuple[float, list[Mixture], bool]:
        """(bound, of each table of the node the columns and weights of its mixture, whether it lacks memory)."""
        from highspy import Highs

        cards, rows = self.cards, self.cards * LOADS
        tables = [[(lies.option, lies.cards)] for lies in node]
        tables += [[(v, ()) for v in self.options[j]] for j in self.order[len(node):]]
        masks = [[self._within(lies)] for lies in node]
        masks += [[np.ones(len(self.load[v]), bool) for v, _ in each] for each in tables[len(node):]]
        if not all(any(mask.any() for mask in each) for each in masks):
            return np.inf, [], True
        lp = Highs()
        lp.silent()
        lp.setOptionValue("threads", 1)
        none, nothing = np.zeros(0, np.int32), np.zeros(0)
        number = rows + LOADS + len(tables)
        upper = np.concatenate([np.tile(self.room, cards), np.zeros(LOADS), np.ones(len(tables))])
        lower = np.append(np.full(rows + LOADS, -np.inf), np.ones(len(tables)))
        lp.addRows(number, lower, upper, 0, np.zeros(number, np.int32), none, nothing)
        time = np.tile(np.arange(LOADS) < TIMES, cards)
        at = np.flatnonzero(time).astype(np.int32)
        lp.addCol(1.0, 0.0, np.inf, len(at), at, -np.ones(len(at)))
        # Of memories what is too much; and what the tables without cards take of each card.
        at = np.flatnonzero(~time).astype(np.int32)
        lp.addCols(len(at), np.full(len(at), PENALTY), np.zeros(len(at)), np.full(len(at), np.inf), len(at),
                   np.arange(len(at), dtype=np.int32), at, -np.ones(len(at)))
        each = np.arange(rows, dtype=np.int32)
        lp.addCols(rows, np.zeros(rows), np.zeros(rows), np.full(rows, np.inf), 2 * rows, 2 * each,
                   np.stack([each, rows + each % LOADS], axis=1).ravel().astype(np.int32), np.tile([1.0, -1.0], rows))
        first = 1 + len(at) + rows
        columns: list[tuple[int, int, int]] = []

        def add(fresh: list[tuple[int, int, int]]) -> None:
            index, value, start = [], [], [0]
            for j, way, k in fresh:
                v, on = tables[j][way]
                load = self.load[v][k]
                where = [m * LOADS + np.arange(LOADS) for m in on] or [rows + np.arange(LOADS)]
                index.append(np.append(np.concatenate(where), rows + LOADS + j))
                value.append(np.append(np.tile(load, len(on)) if on else load * self.choices.copies[v], 1.0))
                start.append(start[-1] + len(index[-1]))
                self.known[v][k] = True
            lp.addCols(len(fresh), np.zeros(len(fresh)), np.zeros(len(fresh)), np.full(len(fresh), np.inf), start[-1],
                       np.array(start[:-1], np.int32), np.concatenate(index).astype(np.int32), np.concatenate(value))
            columns.extend(fresh)

        start = []
        for j, (ways, own) in enumerate(zip(tables, masks, strict=True)):
            for way, ((v, _), mask) in enumerate(zip(ways, own, strict=True)):
                if mask.any():
                    there = np.flatnonzero(mask & self.known[v])
                    if not len(there):
                        there = np.flatnonzero(mask)[[0, -1]]
                    start += [(j, way, int(k)) for k in there]
        add(sorted(set(start)))
        best = -np.inf
        for _ in range(ROUNDS):
            lp.run()
            self.until.spend(RUN_S + PIVOT_S * number * lp.getInfo().simplex_iteration_count
                             + PAIR_S * sum(map(len, self.load.values())))
            dual = np.array(lp.getSolution().row_dual)
            prices = np.clip(-dual[:rows], 0, None).reshape(cards, LOADS)
            total = prices[:, :TIMES].sum()
            if total <= 0:
                break
            prices /= total
            prices[:, TIMES:] = np.minimum(prices[:, TIMES:], PENALTY)
            shared = prices.min(axis=0)
            bound, fresh = -float((prices * np.where(prices > 0, self.room, 0.0)).sum()), []
            for j, (ways, own) in enumerate(zip(tables, masks, strict=True)):
                least, chosen = np.inf, None
                for way, ((v, on), mask) in enumerate(zip(ways, own, strict=True)):
                    if not mask.any():
                        continue
                    price = prices[list(on)].sum(axis=0) if on else shared * self.choices.copies[v]
                    cost = np.where(mask, self.load[v] @ price, np.inf)
                    k = int(cost.argmin())
                    if cost[k] < least:
                        least, chosen = float(cost[k]), (j, way, k)
                bound += least
                if chosen is not None and least < dual[rows + LOADS + j] / total - 1e-12:
                    fresh.append(chosen)
            best = max(best, bound)
            if best * self.unit[0] >= self.best or not fresh or \
                    lp.getInfo().objective_function_value - best <= CLOSE * abs(best):
                break
            add(fresh)
        values = np.array(lp.getSolution().col_value)
        weights, lacks = values[first:], bool(values[1:first - rows].max() > 1e-9)
        mixture = []
        for j in range(len(node)):
            own_columns = [(k, w) for (i, _, k), w in zip(columns, weights, strict=True) if i == j and w > 1e-9]
            mixture.append((np.array([k for k, _ in own_columns]), np.array([w for _, w in own_columns])))
        if len(node) == len(tables) and not self.between and not lacks:
            self._keep(node, mixture)
        return max(best, 0.0) * self.unit[0], mixture, lacks

    def _within(self, lies: _Lies) -> NDArray[np.bool_]:
        a, h = self.a[lies.option], self.h[lies.option]
        return (lies.a[0] <= a) & (a <= lies.a[1]) & (lies.h[0] <= h) & (h <= lies.h[1])

    def _keep(self, node: tuple[_Lies, ...], mixture: list[Mixture]) -> None:
        """The heaviest of each mixture, where that is a placement and the fastest one."""
        chosen = [int(columns[weights.argmax()]) for columns, weights in mixture]
        load = np.zeros((self.cards, LOADS))
        for lies, k in zip(node, chosen, strict=True):
            load[list(lies.cards)] += self.load[lies.option][k]
        load *= self.unit
        load[:, SSD_S] += self.choices.wait * (load[:, SSD_S] > 0)
        seconds = float(load[:, :TIMES].max())
        if seconds < self.best and (load <= self.choices.cap * (1 + 1e-12)).all():
            self.best = seconds
            on = {j: lies.cards for j, lies in zip(self.order, node, strict=True)}
            splits = {j: (v := lies.option, self.choices.cut[v, self.a[v][k]], self.choices.cut[v, self.h[v][k]])
                      for j, lies, k in zip(self.order, node, chosen, strict=True)}
            self.placement = (*np.array([splits[j] for j in sorted(splits)], np.int64).T,
                              np.array([m for j in sorted(on) for m in on[j]], np.int64))
