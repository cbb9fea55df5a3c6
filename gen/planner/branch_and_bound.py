"""A bound for few tables: all ways to assign them to the cards, each card by its own linear program.

Only the splits within a card stay mixtures, which their fine steps make nearly exact; that tables are whole, which is
what leaves a gap where there are few of them, is not relaxed. Branch and bound, the most expensive table first.
"""

import numpy as np
from numpy.typing import NDArray

from gen.planner.bound import Master
from gen.planner.choices import EVERY_TIME, Choices
from gen.planner.work import Deadline

__all__ = ["TABLES", "branch_and_bound"]

#: Of so many tables the sets are few enough.
TABLES = 12


def branch_and_bound(choices: Choices, cards: int, limit: float,
                     until: Deadline) -> tuple[float, NDArray[np.int64] | None] | None:
    """(seconds that no placement betters, at most `limit`; the cards of the tables that reach them, None where none
    does below `limit`). None where there are too many tables, one may lie on several cards, or the moment `until` comes
    first."""
    tables = choices.tables
    if tables > TABLES or choices.sharded:
        return None
    cost = choices.cheapest(EVERY_TIME)[0]
    order = np.argsort(-cost, kind="stable")
    known: dict[frozenset[int], float] = {}
    best, found = limit, None

    def alone(members: frozenset[int]) -> float:
        if members not in known:
            part = choices.part(choices.of_tables(np.array(sorted(members))))
            known[members] = Master(part).seconds(1, until=until, enough=best).bound
        return known[members]

    def place(at: int, hands: list[frozenset[int]], seconds: float) -> bool:
        nonlocal best, found
        if until.passed:
            return False
        if at == tables:
            best, found = seconds, np.array([next(m for m, hand in enumerate(hands) if j in hand)
                                             for j in range(tables)])
            return True
        # Cards without tables are alike.
        used = [m for m in range(cards) if hands[m]]
        nexts = []
        for m in used + [m for m in range(cards) if not hands[m]][:1]:
            nexts.append((max(seconds, alone(hands[m] | {int(order[at])})), m))
        for bound, m in sorted(nexts):
            if bound < best:
                more = [hand | {int(order[at])} if k == m else hand for k, hand in enumerate(hands)]
                if not place(at + 1, more, bound):
                    return False
        return True

    return (best, found) if place(0, [frozenset()] * cards, 0.0) else None
