"""Among placements that are as fast, one with few approximated rows: what leaves the trains where that costs no time.

A card that waits for a slower one, or for the networks, has time to spare. Each card's tables are split anew within
those seconds and the card's memories: the fewest accesses to tensor trains, then the fewest to the SSD.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gen.planner.bound import Master
from gen.planner.choices import LOADS, TIMES, TT, TT_S, Choices
from gen.planner.problem import Problem
from gen.planner.search import search
from gen.planner.work import Deadline

__all__ = ["tie_break"]

STEPS = (0.01, 0.1, 0.3)    # of what may leave the trains, the part that is left there, as it is tried
MOVES, MOVES_TABLE = 500, 10
COLD = 1e-4                 # of an access to a train, what one to the SSD weighs


def tie_break(problem: Problem, choices: Choices, placement: tuple[NDArray[np.int64], ...], seconds: float,
           until: Deadline) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(card, a, h), the tables on the cards that they were on."""
    card, a, h = (each.copy() for each in placement)
    limit = choices.cap.copy()
    limit[:TIMES] = seconds
    share = np.ones((len(problem.items), choices.cut.shape[1]))
    for j, item in enumerate(problem.items):
        share[j, : item.steps + 1] = item.share
    lookups = np.array([item.lookups for item in problem.items], np.float64)
    for m in range(int(card.max()) + 1):
        tables = np.nonzero(card == m)[0]
        if not len(tables) or not seconds:
            continue
        own, splits = choices.part(tables), (a[tables], h[tables])
        if not until.passed:
            splits = _fewest(own, *splits, limit, until)
        _polish(own.cut, own.cuts, own.a_load, own.h_load, own.train, *splits, limit, share[tables], lookups[tables])
        a[tables], h[tables] = splits
    return card, a, h


def _fewest(choices: Choices, a: NDArray[np.int64], h: NDArray[np.int64], limit: NDArray[np.float64],
            until: Deadline) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Splits of one card's tables with little time of trains, by the linear program and the search."""
    tables, seconds = len(a), float(limit[TT_S])
    spent = choices.load(np.arange(tables), a, h)[:, TT_S].sum() / seconds
    solution = Master(choices).train(seconds, until)
    if not np.isfinite(solution.bound) or spent - solution.bound < 1e-3:
        return a, h
    order = np.lexsort((solution.weights, solution.tables))
    start_a, start_h = a.copy(), h.copy()
    start_a[solution.tables[order]], start_h[solution.tables[order]] = solution.a[order], solution.h[order]
    for step in STEPS:
        within = limit.copy()
        within[TT_S] = seconds * (solution.bound + step * (spent - solution.bound))
        new_a, new_h = start_a.copy(), start_h.copy()
        prices = solution.prices / max(float(solution.prices @ limit), 1e-300)
        if search(choices, np.zeros(tables, np.int64), new_a, new_h, 1, within, prices,
                  moves=MOVES + MOVES_TABLE * tables, until=until):
            return new_a, new_h
    return a, h


@njit(cache=True)
def _polish(cut, cuts, a_load, h_load, train, a, h, limit, share, lookups):
    """In place: one table after the other the split of least weight that the others leave room for."""
    room = limit * (1 + 1e-12)
    for j in range(len(a)):
        room -= a_load[j, a[j]] + h_load[j, h[j]]
        room[TT] -= train[j, a[j], h[j]]
    changed = True
    while changed:
        changed = False
        for j in range(len(a)):
            room += a_load[j, a[j]] + h_load[j, h[j]]
            room[TT] += train[j, a[j], h[j]]
            best = lookups[j] * ((share[j, h[j]] - share[j, a[j]]) + COLD * (1 - share[j, h[j]]))
            for x in range(cuts[j]):
                first = cut[j, x]
                for y in range(x, cuts[j]):
                    last = cut[j, y]
                    weight = lookups[j] * ((share[j, last] - share[j, first]) + COLD * (1 - share[j, last]))
                    if weight >= best - 1e-9 * lookups[j] or not train[j, first, last] <= room[TT]:
                        continue
                    fits = True
                    for r in range(LOADS):
                        fits = fits and (r == TT or a_load[j, first, r] + h_load[j, last, r] <= room[r])
                    if fits:
                        best, a[j], h[j], changed = weight, first, last, True
            room -= a_load[j, a[j]] + h_load[j, h[j]]
            room[TT] -= train[j, a[j], h[j]]
