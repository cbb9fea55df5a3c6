"""Among placements that are as fast, one with few approximated rows: what leaves TT where that costs no time.

A card that waits for a slower one, or for the networks, has time to spare. Each card's tables are split anew within
those seconds and the card's memories: the fewest accesses to tensor trains, then the fewest to the SSD. Tables of
several cards come last, as all their cards must have room.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gen.planner.bound import Master
from gen.planner.choices import LOADS, TIMES, TT, TT_S, Choices
from gen.planner.problem import Problem
from gen.planner.search import search
from gen.planner.work import Deadline

STEPS = (0.01, 0.1, 0.3)    # of what may leave the tensor trains, the part that is left there, as it is tried
MOVES, MOVES_TABLE = 500, 10
COLD = 1e-4                 # of an access to a tensor train, what one to the SSD weighs


def tie_break(problem: Problem, choices: Choices, placement: tuple[NDArray[np.int64], ...], seconds: float,
           until: Deadline) -> tuple[NDArray[np.int64], ...]:
    """placement, result: (option, a, h) of each table and the card of each shard; the tables stay on their cards."""
    option, a, h, card = (each.copy() for each in placement)
    chosen = choices.part(option)
    limit = choices.cap.copy()
    limit[:TIMES] = np.maximum(choices.within(seconds), 0.0)
    share = np.ones((len(problem.items), chosen.cut.shape[1]))
    for j, item in enumerate(problem.items):
        share[j, : item.steps + 1] = item.share
    lookups = np.array([item.lookups for item in problem.items], np.float64)
    owner = np.repeat(np.arange(len(a)), chosen.copies)
    if not seconds:
        return option, a, h, card
    for m in range(int(card.max()) + 1):
        on = owner[card == m]
        tables, others = on[chosen.copies[on] == 1], on[chosen.copies[on] > 1]
        room = limit - chosen.load(others, a[others], h[others]).sum(axis=0)
        if len(tables) and not until.passed and room[TT_S] > 0:
            a[tables], h[tables] = _fewest(chosen.part(tables), a[tables], h[tables], room, until)
    room = np.broadcast_to(limit * (1 + 1e-12), (int(card.max()) + 1, LOADS)).copy()
    np.subtract.at(room, card, chosen.load(owner, a[owner], h[owner]))
    order = np.argsort(chosen.copies > 1, kind="stable")
    _polish(chosen.cut, chosen.cuts, chosen.a_load, chosen.h_load, chosen.tt, a, h, card,
            np.cumsum(chosen.copies) - chosen.copies, chosen.copies, order, room, share, lookups)
    return option, a, h, card


def _fewest(choices: Choices, a: NDArray[np.int64], h: NDArray[np.int64], limit: NDArray[np.float64],
            until: Deadline) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Splits of one card's tables with little time of tensor trains, by the linear program and the search."""
    tables, seconds = len(a), float(limit[TT_S])
    spent = choices.load(np.arange(tables), a, h)[:, TT_S].sum() / seconds
    solution = Master(choices).tensor_trains(seconds, until)
    if not np.isfinite(solution.bound) or spent - solution.bound < 1e-3:
        return a, h
    order = np.lexsort((solution.weights, solution.options))
    start_a, start_h = a.copy(), h.copy()
    start_a[solution.options[order]], start_h[solution.options[order]] = solution.a[order], solution.h[order]
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
def _polish(cut, cuts, a_load, h_load, tt, a, h, card, first, copies, order, room, share, lookups):
    """In place: one table after the other, in this order, the split of least weight that the others leave room for on
    its cards. room: of each card."""
    changed = True
    while changed:
        changed = False
        for j in order:
            own = card[first[j]:first[j] + copies[j]]
            for m in own:
                room[m] += a_load[j, a[j]] + h_load[j, h[j]]
                room[m, TT] += tt[j, a[j], h[j]]
            least = room[own[0]].copy()
            for m in own:
                least = np.minimum(least, room[m])
            best = lookups[j] * ((share[j, h[j]] - share[j, a[j]]) + COLD * (1 - share[j, h[j]]))
            for x in range(cuts[j]):
                low = cut[j, x]
                for y in range(x, cuts[j]):
                    high = cut[j, y]
                    weight = lookups[j] * ((share[j, high] - share[j, low]) + COLD * (1 - share[j, high]))
                    if weight >= best - 1e-9 * lookups[j] or not tt[j, low, high] <= least[TT]:
                        continue
                    fits = True
                    for r in range(LOADS):
                        fits = fits and (r == TT or a_load[j, low, r] + h_load[j, high, r] <= least[r])
                    if fits:
                        best, a[j], h[j], changed = weight, low, high, True
            for m in own:
                room[m] -= a_load[j, a[j]] + h_load[j, h[j]]
                room[m, TT] -= tt[j, a[j], h[j]]
