"""A bound of all placements, whichever rows their cuts lie between: the program knows cuts at steps alone.

By its rows a table's bytes are linear between two steps, its time of DRAM is concave, as rows get colder, and what it
reads of the drive is convex: a cut between two steps may read less than the line from one to the other. So every
quantity is lowered at both ends of a stretch by as much as it comes below that line within it, at most; what a cut
inside takes is then no less than a mixture of both ends, and the linear program of gen.planner.bound, which has all
mixtures, bounds it. Bytes of a tensor train are lowered by as much as they are not concave in its rows.

Of few tables mixtures are far from what whole tables take: all ways to put them on the cards are looked at
(gen.planner.branch_and_bound), and where cuts between two steps keep the bound low, these get more steps.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.data.expected import Expected
from gen.planner.bound import LACK, LpSolution, Master
from gen.planner.branch_and_bound import TABLES, branch_and_bound
from gen.planner.choices import TIMES, TT_S, Choices, cuts
from gen.planner.costs import Costs
from gen.planner.in_order import knots, reads
from gen.planner.problem import Item, Problem
from gen.planner.solve import LAST, LEAST
from gen.planner.work import Deadline

INSIDE = 16         # parts of a stretch in which its reads are looked at, or into which it is cut
ROUNDS = 3
NEAR = 5e-3         # of the seconds that were found, nearer need not be
CLOSE = 3e-3        # to the bound at steps: where the linear program is as near, more steps bring nothing
SAFE = 1e-9         # of a bound: what rounding of its sums may be


class Rows:
    """What items take at any row, by what was expected of the rows."""

    def __init__(self, expected: Mapping[str, Expected], costs: Costs | None):
        self.expected, self._costs = expected, costs
        self._lowered: dict[Item, Item] = {}

    @property
    def costs(self) -> Costs:
        assert self._costs is not None
        return self._costs

    def known(self, item: Item) -> bool:
        """Whether there is anything between its steps."""
        return item.name in self.expected and self.expected[item.name].heat.total > 0 and item.lookups > 0 \
            and item.ssd_reads is not None

    def drive(self, item: Item, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(pages, seconds of DRAM in which they land) of a batch, where rows from rows[i] on are there."""
        of, costs = self.expected[item.name], self.costs
        read = reads(of, rows, item.lookups, costs.page_bytes // item.row_bytes, costs.ring_bytes // costs.page_bytes)
        return read, read * costs.landing_s + item.lookups * (1 - of.heat.cdf(rows)) * item.dram_s

    def hot(self, item: Item, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(seconds of DRAM for the rows that are fetched, seconds that the core takes longer for all accesses) of a
        batch, where the rows up to rows[i] are in DRAM; the larger one counts. A step's share of the accesses is up to
        that of a row smaller than what its rows have."""
        accesses = item.lookups * self.expected[item.name].heat.cdf(np.maximum(rows - 1, 0))
        fetched = accesses if item.fetch_curve is None else np.interp(rows, *item.fetch_curve)
        return fetched * item.dram_s, accesses * item.core_s - item.bags_s

    def lowered(self, item: Item) -> Item:
        """The item, lowered at its steps; computed once."""
        if item not in self._lowered:
            self._lowered[item] = self._lower(item) if self.known(item) else item
        return self._lowered[item]

    def _lower(self, item: Item) -> Item:
        at, points = _steps(item), self._points(item)
        rows = item.rows[at]

        def lower(below: NDArray[np.float64], within: NDArray[np.float64], ends: NDArray[np.float64]) \
                -> NDArray[np.float64]:
            """ends, lowered at both ends of each stretch by the most of `below` at points `within` it."""
            found, most = ends.copy(), np.zeros(len(at) + 1)
            np.maximum.at(most, np.clip(np.searchsorted(rows, within, side="right"), 1, len(at) - 1), below)
            most[0] = most[-1] = 0.0
            found[at] = ends[at] - np.maximum(most[:-1], most[1:])
            return found

        def sag(values: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.float64]:
            """The same of what falls to 0, and nothing below it: where an end stays at 0, the other one is lowered so
            far that the line between both is below all values."""
            right = np.maximum(lower(np.interp(points, rows, ends[at]) - values, points.astype(np.float64), ends), 0.0)
            stretch = np.clip(np.searchsorted(rows, points, side="right"), 1, len(at) - 1) - 1
            part = (points - rows[stretch]) / np.maximum(rows[stretch + 1] - rows[stretch], 1)
            inside, left = part < 1, right[at]
            most = (values - part * right[at][stretch + 1])[inside] / (1 - part[inside])
            np.minimum.at(left, stretch[inside], most)
            right[at] = np.maximum(left, 0.0)
            return right

        read, landing_s = self.drive(item, points)
        fetched, core = self.hot(item, points)
        # Both are linear between two points, their maximum is not: it is least where one passes the other.
        more = fetched - core
        passed = np.flatnonzero(more[:-1] * more[1:] < 0)
        part = more[passed] / (more[passed] - more[passed + 1])
        within = np.append(points.astype(np.float64), points[passed] + part * np.diff(points)[passed])
        hot_s = np.append(np.maximum(fetched, core), fetched[passed] + part * np.diff(fetched)[passed])
        hot_s = lower(np.interp(within, rows, item.hot_s[at]) - hot_s, within, item.hot_s)
        return replace(item, ssd_reads=sag(read, item.reads), ssd_landing=sag(landing_s, item.landing),
                       drive_curve=(item.rows, sag(item.drive_s_at(points, read), item.drive_s)),
                       fetch_curve=(item.rows, hot_s / item.dram_s), core_s=0.0,
                       ssd_bytes=np.maximum(item.cold_bytes - self.costs.page_bytes, 0))

    def _points(self, item: Item) -> NDArray[np.int64]:
        """Rows between which everything that is counted is linear: knots, and where rows of as many accesses end. What
        is not counted is smooth: so many parts of each stretch."""
        of, rows = self.expected[item.name], item.rows[_steps(item)]
        more = np.cumsum(of.heat.rows)
        if of.order is None:
            more = (rows[:-1, None] + np.diff(rows)[:, None] * (np.arange(INSIDE + 1) / INSIDE)).astype(np.int64)
        points = np.unique(np.concatenate([rows, knots(of), more.ravel()]))
        return points[(points >= rows[0]) & (points <= rows[-1])]

    def above(self, item: Item) -> NDArray[np.float64]:
        """(S + 1,) how far the share of the accesses comes above the line from step to step, next to each."""
        if not self.known(item):
            return np.zeros(item.steps + 1)
        at, inside, found = _steps(item), np.arange(INSIDE + 1) / INSIDE, np.zeros(item.steps + 1)
        fine, line = (each[at][:-1, None] + np.diff(each[at])[:, None] * inside for each in (item.rows, item.share))
        far = np.maximum((self.expected[item.name].heat.cdf(fine) - line).max(axis=1, initial=0.0), 0.0)
        found[at] = np.maximum(np.append(far, 0.0), np.append(0.0, far))
        return found

    def finer(self, item: Item, between: Iterable[tuple[int, int]]) -> Item:
        """The item with more steps from one step to another, and next to them."""
        if not self.known(item):
            return item
        of, at = self.expected[item.name], _steps(item)
        at = at[np.append(np.diff(item.rows[at]) > 0, True)]
        more = [item.rows[at]]
        for low, high in between:
            first, last = np.searchsorted(at, [low, high])
            edges = item.rows[at[max(first - 1, 0):last + 2]]
            more += [np.linspace(*each, INSIDE + 1).astype(np.int64) for each in pairwise(edges)]
        rows = np.unique(np.concatenate(more))
        old = np.isin(rows, item.rows[at])

        def with_more(known: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
            found = values.astype(known.dtype)
            found[old] = known[at]
            return found

        read, landing_s = self.drive(item, rows)
        share = np.maximum.accumulate(with_more(item.share, of.heat.cdf(np.maximum(rows - 1, 0))))
        cold = np.interp(rows, item.rows[at], item.cold_bytes[at])
        return replace(item, rows=rows, shares=share, ssd_reads=with_more(item.reads, read),
                       ssd_landing=with_more(item.landing, landing_s), ssd_bytes=with_more(item.cold_bytes, cold))


def bound_of(problem: Problem, rows: Rows, seconds: float, work: float, shared_s: float = np.inf,
             at_steps: float = np.inf) -> float:
    """Seconds of a batch that no placement betters; not looked into beyond `seconds`. work: seconds of it, about, for
    whole tables; shared_s: for tables that cards share out; at_steps: what no placement with cuts at steps betters."""
    until, shared = (Deadline.of(most, LAST * most + LEAST) for most in (work, shared_s))
    found = 0.0
    for number in range(ROUNDS):
        lowered = replace(problem.mapped(rows.lowered), reads=True)
        choices = _between_rows(Choices.of(lowered), lowered, rows)
        if not problem.reads:
            choices = _without_reads(choices, problem, rows)
        bound, loose = _bound(problem, choices, seconds, until, shared, (1 - CLOSE) * at_steps, not number)
        found = max(found, bound)
        if not loose or found >= (1 - NEAR) * seconds or until.passed:
            break
        options = [way.item for j in range(len(problem.items)) for way in problem.ways(j)]
        finer = {options[v]: rows.finer(options[v], [(low, high) for of, low, high in loose if of == v])
                 for v in {v for v, _, _ in loose}}
        problem = problem.mapped(partial(_of, finer))
    return found * (1 - SAFE)


def _of(finer: Mapping[Item, Item], item: Item) -> Item:
    return finer.get(item, item)


def _bound(problem: Problem, choices: Choices, seconds: float, until: Deadline, shared: Deadline,
           wanted: float, mixed: bool) -> tuple[float, frozenset[tuple[int, int, int]]]:
    """(seconds that no placement betters, cuts that keep them low, as gen.planner.branch_and_bound has them). wanted:
    below so many seconds placements are limited to the time known, and, if `mixed`, the cuts that the linear program
    mixes are among those cuts."""
    networks = problem.before_s > 0 or problem.after_s > 0
    found, loose = np.inf, frozenset[tuple[int, int, int]]()
    if not choices.possible:
        return found, loose
    master = Master(choices)
    for cards in range(1, problem.cards) if networks else (problem.cards,):
        others = max(problem.cards - cards, 1)
        before_s, after_s = problem.before_s / others, problem.after_s / others
        if before_s + after_s >= min(found, seconds) or master.overflow(cards, until).bound > LACK:
            continue
        most = seconds - after_s
        relaxed = master.seconds(cards, until=shared, enough=most)
        least_s = max(relaxed.bound, 0.0)
        low = least_s < (1 - NEAR) * most and max(before_s, least_s) + after_s < wanted
        if low and choices.tables > TABLES:
            relaxed = master.lifted(cards, most, shared)
            least_s = max(relaxed.bound, least_s)
        if low and mixed:
            loose |= _mixed(choices, relaxed)
        if least_s < (1 - NEAR) * most and (whole := branch_and_bound(choices, cards, most, until, near=NEAR,
                                                                      between=True)):
            least_s, loose = max(least_s, whole.bound), loose | whole.loose
        found = min(found, max(before_s, least_s) + after_s)
    return found, loose


def _mixed(choices: Choices, solution: LpSolution) -> frozenset[tuple[int, int, int]]:
    """The stretches beside the cuts that a linear program has mixed."""
    loose = set()
    for v, *cuts_of in zip(solution.options, solution.a, solution.h, strict=True):
        at = choices.cut[v, : choices.cuts[v]]
        for cut in cuts_of:
            place = int(np.searchsorted(at, cut))
            loose.add((int(v), int(at[max(place - 1, 0)]), int(at[min(place + 1, len(at) - 1)])))
    return frozenset(loose)


def _without_reads(choices: Choices, problem: Problem, rows: Rows) -> Choices:
    """Of the splits those alone that read no page of the drive, or that have such ones between them and the next."""
    tt = choices.tt.copy()
    for v, item in enumerate(way.item for j in range(len(problem.items)) for way in problem.ways(j)):
        at = choices.cut[v, : choices.cuts[v]]
        reads = item.reads[at] > 0
        for k in np.flatnonzero(reads[:-1] & ~reads[1:]) if rows.known(item) else ():
            reads[k] = rows.drive(item, item.rows[at[k + 1], None] - 1)[0][0] > 0
        tt[v][:, at[reads]] = np.inf
    return replace(choices, tt=tt)


def _steps(item: Item) -> NDArray[np.int64]:
    """Those at which it may be cut, whatever may leave the drive."""
    return cuts(replace(item, hot_share=1.0))


def _between_rows(choices: Choices, problem: Problem, rows: Rows) -> Choices:
    """With so few bytes of tensor trains that one between steps takes no less than a mixture; with splits that do not
    fit a card next to such that do, as a part of the stretch between them may; and with as much less time of tensor
    trains as accesses between two steps come above the line."""
    tt, a_load = choices.tt.copy(), choices.a_load.copy()
    options = [way.item for j in range(len(problem.items)) for way in problem.ways(j)]
    for v, (item, count) in enumerate(zip(options, choices.cuts, strict=True)):
        at = choices.cut[v, :count]
        fits = np.pad(np.isfinite(choices.tt[v][np.ix_(at, at)]), 1)
        near = np.any([fits[a:a + count, h:h + count] for a in range(3) for h in range(3)], axis=0)
        near &= np.add.outer(-at, at) >= 0
        if len(item.tt_rows) == 1:
            tt[v][np.ix_(at, at)] = np.where(near & np.eye(count, dtype=bool), 0.0, np.inf)
            continue
        own = item.rows[at]
        later, earlier = np.append(own[1:], own[-1:]), np.append(own[:1], own[:-1])
        warm, fewest, most = (np.maximum(h[None, :] - a[:, None], 0) for h, a in (
            (own, own), (earlier, later), (later, earlier)))
        bytes = np.interp(warm, item.tt_rows, item.tt_bytes) - _bent(item, fewest, most)
        near &= warm <= item.tt_rows[-1]        # no train is of more rows
        tt[v][np.ix_(at, at)] = np.where(near, np.maximum(bytes, 0.0), np.inf)
        a_load[v, : item.steps + 1, TT_S] -= item.lookups * item.tt_s * rows.above(item)
    return replace(choices, tt=tt, a_load=a_load, a_least=_beside(choices, a_load),
                   h_least=_beside(choices, choices.h_load))


def _beside(choices: Choices, load: NDArray[np.float64]) -> NDArray[np.float64]:
    """(V, S + 1, TIMES) the least seconds of each cut and those next to it: no cut between them takes less."""
    found = np.full((*load.shape[:2], TIMES), np.inf)
    for v, count in enumerate(choices.cuts):
        at = choices.cut[v, :count]
        own = np.pad(load[v, at, :TIMES], ((1, 1), (0, 0)), mode="edge")
        found[v, at] = np.minimum(np.minimum(own[:-2], own[2:]), own[1:-1])
    return found


def _bent(item: Item, fewest: NDArray[np.int64], most: NDArray[np.int64]) -> NDArray[np.float64]:
    """How far bytes of tensor trains of so many rows, between both numbers, lie below a concave function above them, at
    most: no mixture of such trains takes more above what one of as many rows takes."""
    at, values = item.tt_rows, item.tt_bytes
    hull: list[int] = []
    for k in range(len(at)):
        while len(hull) > 1 and (values[hull[-1]] - values[hull[-2]]) * (at[k] - at[hull[-1]]) <= (
                values[k] - values[hull[-1]]) * (at[hull[-1]] - at[hull[-2]]):
            hull.pop()
        hull.append(k)
    levels = [np.interp(at, at[hull], values[hull]) - values]      # of 1, 2, 4 .. knots, the most
    while 2 ** len(levels) <= len(at):
        half = 2 ** (len(levels) - 1)
        levels.append(np.maximum(levels[-1][:-half], levels[-1][half:]))
    first = np.maximum(np.searchsorted(at, fewest, side="right") - 1, 0)
    last = np.minimum(np.maximum(np.searchsorted(at, most), first), len(at) - 1)
    level = np.log2(last - first + 1).astype(np.int64)
    found = np.zeros(first.shape)
    for k, each in enumerate(levels):
        of = level == k
        found[of] = np.maximum(each[first[of]], each[last[of] - 2**k + 1])
    return found
