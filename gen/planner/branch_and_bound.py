"""A bound for few tables: every way to put them on the cards, and ever smaller parts of their cuts.

A node says of some tables on which cards they lie and in which option, and between which steps each is cut. Its linear
program has the loads of each card by itself; tables of which the node says nothing are shared out over all cards as
they like (gen.planner.bound). The node of the least bound is looked at first. The next table, the most expensive one
first, is put in every option on every cards that are not alike, and where all have cards the steps of the table whose
mixture spreads the most are parted. So what is left is no more than cuts between two steps next to each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.planner.choices import EVERY_TIME, LOADS, TIMES, Choices
from gen.planner.work import PAIR_S, PIVOT_S, RUN_S, Deadline

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
        own = [[_Way(lies.option, lies.cards, self._within(lies))] for lies in node]
        rest = [[_Way(v, (), np.ones(len(self.load[v]), bool)) for v in self.options[j]]
                for j in self.order[len(node):]]
        tables = [[way for way in ways if way.allowed.any()] for ways in own + rest]
        if not all(tables):
            return np.inf, [], True
        program = _NodeProgram(self, tables)
        bound = program.solved()
        mixture, lacks = program.mixture(len(node)), program.lacks
        if len(node) == len(tables) and not self.between and not lacks:
            self._keep(node, mixture)
        return bound * self.unit[0], mixture, lacks

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
        load[:, :TIMES] = self.choices.idle.added(load[:, :TIMES])
        seconds = float(load[:, :TIMES].max())
        if seconds < self.best and (load <= self.choices.cap * (1 + 1e-12)).all():
            self.best = seconds
            on = {j: lies.cards for j, lies in zip(self.order, node, strict=True)}
            splits = {j: (v := lies.option, self.choices.cut[v, self.a[v][k]], self.choices.cut[v, self.h[v][k]])
                      for j, lies, k in zip(self.order, node, chosen, strict=True)}
            self.placement = (*np.array([splits[j] for j in sorted(splits)], np.int64).T,
                              np.array([m for j in sorted(on) for m in on[j]], np.int64))


@dataclass(frozen=True, eq=False)
class _Way:
    """A table in an option on these cards, none: on all as they like; allowed: of the option's splits."""

    option: int
    cards: tuple[int, ...]
    allowed: NDArray[np.bool_]


class _NodeProgram:
    """The linear program of a node by column generation. tables: of each the ways that it may lie.

    Rows: the loads of each card, the loads that tables without cards share out, and one per table. Columns: the
    slowest card's time, what is too much of each card's memories, what the tables without cards take of each card, and
    the splits that were found.
    """

    def __init__(self, tree: _Tree, tables: list[list[_Way]]):
        from highspy import Highs

        self.tree, self.tables, self.lp = tree, tables, Highs()
        self.columns: list[tuple[int, int, int]] = []       # table, way, split
        cards, self.rows = tree.cards, tree.cards * LOADS
        self.height = self.rows + LOADS + len(tables)
        self.lp.silent()
        self.lp.setOptionValue("threads", 1)
        upper = np.concatenate([np.tile(tree.room, cards), np.zeros(LOADS), np.ones(len(tables))])
        lower = np.append(np.full(self.rows + LOADS, -np.inf), np.ones(len(tables)))
        self.lp.addRows(self.height, lower, upper, 0, np.zeros(self.height, np.int32), np.zeros(0, np.int32),
                        np.zeros(0))
        time = np.tile(np.arange(LOADS) < TIMES, cards)
        memories = np.flatnonzero(~time)
        self._columns(1.0, [np.flatnonzero(time)], [-np.ones(int(time.sum()))])
        self._columns(PENALTY, list(memories[:, None]), [[-1.0]] * len(memories))
        self._columns(0.0, [np.array([row, self.rows + row % LOADS]) for row in range(self.rows)],
                      [[1.0, -1.0]] * self.rows)
        self.memories = slice(1, 1 + len(memories))
        self.first = self.memories.stop + self.rows

    def _columns(self, cost: float, rows: Sequence[NDArray[np.int64]], values: Sequence[ArrayLike]) -> None:
        """Columns of this cost, each with its values in its rows."""
        count, ends = len(rows), np.cumsum([len(each) for each in rows])
        self.lp.addCols(count, np.full(count, cost), np.zeros(count), np.full(count, np.inf), int(ends[-1]),
                        np.append(0, ends[:-1]).astype(np.int32), np.concatenate(rows).astype(np.int32),
                        np.concatenate(values))

    def _add(self, splits: list[tuple[int, int, int]]) -> None:
        rows, values = [], []
        for table, number, split in splits:
            way = self.tables[table][number]
            load = self.tree.load[way.option][split]
            on = [m * LOADS + np.arange(LOADS) for m in way.cards] or [self.rows + np.arange(LOADS)]
            rows.append(np.append(np.concatenate(on), self.rows + LOADS + table))
            values.append(np.append(np.tile(load, len(way.cards)) if way.cards
                                    else load * self.tree.choices.copies[way.option], 1.0))
            self.tree.known[way.option][split] = True
        self._columns(0.0, rows, values)
        self.columns.extend(splits)

    def _known(self) -> list[tuple[int, int, int]]:
        """The splits that other nodes have found, of a way without any its first and last."""
        found = set()
        for table, ways in enumerate(self.tables):
            for number, way in enumerate(ways):
                splits = np.flatnonzero(way.allowed & self.tree.known[way.option])
                if not len(splits):
                    splits = np.flatnonzero(way.allowed)[[0, -1]]
                found |= {(table, number, int(split)) for split in splits}
        return sorted(found)

    def solved(self) -> float:
        """The bound, in the program's unit."""
        tree, best = self.tree, 0.0
        self._add(self._known())
        for _ in range(ROUNDS):
            self.lp.run()
            tree.until.spend(RUN_S + PIVOT_S * self.height * self.lp.getInfo().simplex_iteration_count
                             + PAIR_S * sum(map(len, tree.load.values())))
            dual = np.array(self.lp.getSolution().row_dual)
            if not (priced := self._priced(dual)):
                break
            best = max(best, priced[0])
            if best * tree.unit[0] >= tree.best or not priced[1] or \
                    self.lp.getInfo().objective_function_value - best <= CLOSE * abs(best):
                break
            self._add(priced[1])
        return best

    def _priced(self, dual: NDArray[np.float64]) -> tuple[float, list[tuple[int, int, int]]] | None:
        """(the bound by these prices, of each table the cheapest split where the program lacks it)."""
        tree = self.tree
        prices = np.clip(-dual[:self.rows], 0, None).reshape(tree.cards, LOADS)
        total = prices[:, :TIMES].sum()
        if total <= 0:
            return None
        prices /= total
        prices[:, TIMES:] = np.minimum(prices[:, TIMES:], PENALTY)
        shared = prices.min(axis=0)
        bound, fresh = -float((prices * np.where(prices > 0, tree.room, 0.0)).sum()), []
        for table, ways in enumerate(self.tables):
            least, chosen = np.inf, (table, 0, 0)
            for number, way in enumerate(ways):
                price = prices[list(way.cards)].sum(axis=0) if way.cards else \
                    shared * tree.choices.copies[way.option]
                cost = np.where(way.allowed, tree.load[way.option] @ price, np.inf)
                split = int(cost.argmin())
                if cost[split] < least:
                    least, chosen = float(cost[split]), (table, number, split)
            bound += least
            if least < dual[self.rows + LOADS + table] / total - 1e-12:
                fresh.append(chosen)
        return bound, fresh

    @property
    def lacks(self) -> bool:
        """Whether some memory is too small for the mixture."""
        return bool(np.array(self.lp.getSolution().col_value)[self.memories].max() > 1e-9)

    def mixture(self, tables: int) -> list[Mixture]:
        """Of the first so many tables."""
        weights, found = np.array(self.lp.getSolution().col_value)[self.first:], []
        for table in range(tables):
            own = [(split, weight) for (of, _, split), weight in zip(self.columns, weights, strict=True)
                   if of == table and weight > 1e-9]
            found.append((np.array([split for split, _ in own]), np.array([weight for _, weight in own])))
        return found
