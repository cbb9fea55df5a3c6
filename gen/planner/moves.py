"""The fewest rows that move so that no card takes longer than it may: how many rows each table swaps.

A table's rows stay on their cards, and its memories keep their number of rows: a swap takes a row from DRAM to the
place on the SSD that the row has which comes in its stead. The k swaps that leave the fewest accesses on the SSD take
the k coldest rows of DRAM and the k hottest of the SSD: two thresholds. Every further swap makes each card no slower,
so a ladder of numbers of swaps bounds all those between its rungs: what a table takes between two rungs is no less than
at the upper one, and no fewer rows than one more than at the lower. A program with one binary a rung gives a choice,
one with the rungs' lower ends the proof; rungs are added where the proof stands between two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gen.planner.plan import duration
from gen.planner.solve import Infeasible
from gen.planner.work import PIVOT_S, Deadline

RUNGS = 9           # that a table begins with, about
PARTS = 8           # into which a stretch between two rungs is cut
NODE_S = 2e-6       # seconds of work of a node of the search tree, by the binaries
MARGIN = 1e-6       # of the proof, what the solver's tolerances may have added to it


class Swapping(Protocol):
    """A table. cards: those on which it lies; most: swaps that make anything faster; rows: that a swap moves, of all
    cards together."""

    @property
    def cards(self) -> tuple[int, ...]: ...
    @property
    def most(self) -> int: ...
    @property
    def rows(self) -> int: ...

    def seconds(self, swaps: int) -> NDArray[np.float64]:
        """(TIMES,) of each of its cards, not rising with the swaps."""
        ...


@dataclass(frozen=True)
class Moves:
    """swaps: of each table. rows: that move; least: no choice within the limits moves fewer."""

    swaps: tuple[int, ...]
    rows: int
    least: int


def fewest(tables: Sequence[Swapping], limit: NDArray[np.float64], *, gap: float, until: Deadline) -> Moves:
    """limit: (TIMES,) seconds of every card. Ends where `rows` are at most `gap` more than the least, or at the moment
    `until`.

    Raises      Infeasible: all swaps together do not suffice; names the seconds that they reach
    """
    ladders: list[dict[int, NDArray[np.float64]]] = [{} for _ in tables]

    def climb(at: int, swaps: int) -> NDArray[np.float64]:
        if swaps not in ladders[at]:
            ladders[at][swaps] = tables[at].seconds(swaps)
        return ladders[at][swaps]

    def total(swaps: Sequence[int]) -> dict[int, NDArray[np.float64]]:
        found: dict[int, NDArray[np.float64]] = {}
        for at, (table, number) in enumerate(zip(tables, swaps, strict=True)):
            for card in table.cards:
                found[card] = found.get(card, np.zeros(len(limit))) + climb(at, number)
        return found

    def held(loads: Mapping[int, NDArray[np.float64]]) -> bool:
        return all((load <= limit * (1 + 1e-12)).all() for load in loads.values())

    if held(total([0] * len(tables))):
        return Moves((0,) * len(tables), 0, 0)
    if not held(reached := total([table.most for table in tables])):
        # What a limit is below the others is a wait, which comes on top.
        over = {card: float((load - limit).max()) for card, load in reached.items()}
        card = max(over, key=over.__getitem__)
        raise Infeasible(f"card {card} takes {duration(float(limit.max()) + over[card])} per batch at least, whichever "
                         "rows of its tables change places between its memories")
    for at, table in enumerate(tables):
        for number in np.unique(np.geomspace(1, table.most, RUNGS).round()).astype(int) if table.most else ():
            climb(at, int(number))
    best, least = tuple(table.most for table in tables), 1
    rows = sum(table.rows * number for table, number in zip(tables, best, strict=True))

    def proven(whole: bool) -> bool:
        """Lifts `least`; rungs are added where the proof stands between two. Whether there were any to add."""
        nonlocal least
        sets = [sorted(ladder) for ladder in ladders]
        among, bound = _chosen(tables, ladders, sets, limit, True, whole, gap / 4, until)
        least = max(least, min(rows, int(np.ceil(bound * (1 - MARGIN)))))
        wide = [(at, low, number) for at, number in among if number
                and number - (low := sets[at][sets[at].index(number) - 1]) > 1]
        for at, low, number in wide:
            for between in np.unique(np.linspace(low, number, PARTS + 1).astype(int)):
                climb(at, int(between))
        return bool(wide)

    while proven(whole=False) and not until.passed:
        pass
    more = True
    while more and rows > least * (1 + gap):
        found, _ = _chosen(tables, ladders, [sorted(ladder) for ladder in ladders], limit, False, True, gap / 4, until)
        swaps = tuple(number for _, number in found)
        moved = sum(table.rows * number for table, number in zip(tables, swaps, strict=False))
        if found and moved < rows and held(total(swaps)):
            best, rows = swaps, moved
        more = not until.passed and rows > least * (1 + gap) and proven(whole=True)
    return Moves(best, rows, least)


def _chosen(tables: Sequence[Swapping], ladders: Sequence[Mapping[int, NDArray[np.float64]]],
            rungs: Sequence[Sequence[int]], limit: NDArray[np.float64], lower: bool, whole: bool, gap: float,
            until: Deadline) -> tuple[list[tuple[int, int]], float]:
    """(each table with its rung, rows that they move at least). lower: a rung counts one swap more than the one below
    it. whole: no mixtures of rungs, which may be several of a table else. gap: of the program."""
    from highspy import Highs, HighsModelStatus, HighsVarType

    mip = Highs()
    mip.silent()
    columns = [(at, number) for at, of in enumerate(rungs) for number in of]
    for name, value in (("threads", 1), ("time_limit", max(until.clock.stop - monotonic(), 0.1)), ("mip_rel_gap", gap),
                        ("mip_max_nodes", int(min(1 + until.left / (NODE_S * len(columns)), 1e9))),
                        ("mip_feasibility_tolerance", 1e-9), ("primal_feasibility_tolerance", 1e-9)):
        mip.setOptionValue(name, value)
    owner = np.array([at for at, _ in columns])
    counted = np.array([of[k - 1] + 1 if lower and k else of[k] for of in rungs for k in range(len(of))], np.float64)
    cost = counted * [tables[at].rows for at in owner]
    unit = max(float(cost.max()), 1.0)
    mip.addVars(len(columns), np.zeros(len(columns)), np.ones(len(columns)))
    index = np.arange(len(columns), dtype=np.int32)
    mip.changeColsCost(len(index), index, cost / unit)
    if whole:
        mip.changeColsIntegrality(len(index), index, np.full(len(index), HighsVarType.kInteger))
    for at in range(len(tables)):
        of = index[owner == at]
        mip.addRow(1.0, 1.0, len(of), of, np.ones(len(of)))
    load = np.array([ladders[at][number] for at, number in columns])
    for card in sorted({card for table in tables for card in table.cards}):
        of = index[[card in tables[at].cards for at in owner]]
        for r in range(len(limit)):
            mip.addRow(-np.inf, float(limit[r] > 0), len(of), of, load[of, r] / (limit[r] or 1.0))
    mip.run()
    info = mip.getInfo()
    until.spend(PIVOT_S * mip.getNumRow() * max(info.simplex_iteration_count, 0))
    until.clock.late |= mip.getModelStatus() == HighsModelStatus.kTimeLimit
    bound = float(info.mip_dual_bound if whole else info.objective_function_value) * unit
    weights = np.array(mip.getSolution().col_value) if info.primal_solution_status == 2 else np.zeros(len(columns))
    return [columns[k] for k in np.nonzero(weights > (0.5 if whole else 1e-9))[0]], bound
