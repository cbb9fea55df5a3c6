"""The program over all splits of all tables on all cards, for problems small enough to write it down.

One binary a table, card and split; tables that are alike in nothing but their names stay apart, cards are alike: the
table j, largest first, lies on one of the first j + 1 cards. It proves what the bounds of gen.planner.bound leave open.
"""

from dataclasses import dataclass
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from gen.planner.choices import LOADS, TIMES, Choices
from gen.planner.work import PAIR_S, PIVOT_S, Deadline

__all__ = ["CELLS", "Exact", "exact", "frontier"]

#: So many binaries are worth a try.
CELLS = 60_000
#: Of the bound, what the solver's tolerances may have added to it.
MARGIN = 1e-6
#: Seconds of work of a node of the search tree, and of all before the second, about, by the binaries.
NODE_S, ROOT_S = 2e-6, 4e-5


@dataclass(frozen=True, eq=False)
class Exact:
    """bound: seconds; infinite where there is no placement at all. card, a, h: a placement, or None of them found."""

    bound: float
    placement: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None


def frontier(choices: Choices, table: int, limit: float = np.inf) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The splits of a table that no other one betters in every time and memory, of at most `limit` seconds each."""
    at = choices.cut[table, : choices.cuts[table]]
    a, h = (each.ravel() for each in np.meshgrid(at, at, indexing="ij"))
    kept = np.isfinite(choices.train[table, a, h])
    a, h = a[kept], h[kept]
    load = choices.load(np.full(len(a), table), a, h)
    kept = (load[:, :TIMES] <= limit * (1 + 1e-12)).all(axis=1)
    a, h, load = a[kept], h[kept], load[kept]
    order = np.argsort(load.sum(axis=1) if not len(load) else (load / np.maximum(load.max(axis=0), 1e-300)).sum(axis=1),
                       kind="stable")
    best, kept = np.zeros_like(order), np.empty_like(load)
    count = 0
    for k in order:
        if not (kept[:count] <= load[k]).all(axis=1).any():
            best[count], kept[count] = k, load[k]
            count += 1
    return a[best[:count]], h[best[:count]]


def exact(choices: Choices, cards: int, limit: float, until: Deadline, floor: float = 0.0) -> Exact | None:
    """The least time of `cards` EMB cards, of placements of at most `limit` seconds, as far as it is known at the
    moment `until`. None where the program would be too large, or the moment has come. floor: a bound that is known."""
    from highspy import Highs, HighsModelStatus, HighsVarType

    tables = len(choices.cuts)
    if choices.pairs > CELLS:
        return None
    splits = []
    for j in range(tables):
        splits.append(frontier(choices, j, limit))
        until.spend(PAIR_S * LOADS * len(splits[-1][0]) * int(choices.cuts[j]) ** 2)
        if until.passed:
            return None
    if any(not len(a) for a, _ in splits):
        return Exact(np.inf, None)
    width = sum(len(a) for a, _ in splits) * cards
    if width > CELLS or ROOT_S * width > until.left:
        return None
    loads = [choices.load(np.full(len(a), j), a, h) for j, (a, h) in enumerate(splits)]
    order = np.argsort([-load[:, :TIMES].sum(axis=1).min() for load in loads], kind="stable")
    unit = np.append(np.full(TIMES, max(limit if np.isfinite(limit) else
                                    max(load[:, :TIMES].max() for load in loads) * tables, 1e-300)),
                     np.maximum(choices.cap[TIMES:], 1.0))
    mip = Highs()
    mip.silent()
    for name, value in (("threads", 1), ("time_limit", max(until.clock.stop - monotonic(), 0.1)), ("mip_rel_gap", 1e-9),
                        ("mip_max_nodes", int(min(1 + until.left / (NODE_S * width), 1e9))),
                        ("mip_abs_gap", 0.0), ("mip_feasibility_tolerance", 1e-8),
                        ("primal_feasibility_tolerance", 1e-9), ("dual_feasibility_tolerance", 1e-9)):
        mip.setOptionValue(name, value)
    mip.addCol(1.0, floor / unit[0], np.inf, 0, np.zeros(0, np.int32), np.zeros(0))
    cells = [(m, int(j), k) for place, j in enumerate(order) for m in range(min(place + 1, cards))
             for k in range(len(splits[j][0]))]
    table = np.array([j for _, j, _ in cells])
    card = np.array([m for m, _, _ in cells])
    value = np.array([loads[j][k] for _, j, k in cells]) / unit
    mip.addVars(len(cells), np.zeros(len(cells)), np.ones(len(cells)))
    index = np.arange(1, len(cells) + 1, dtype=np.int32)
    mip.changeColsIntegrality(len(cells), index, np.full(len(cells), HighsVarType.kInteger))
    for j in range(tables):
        of = index[table == j]
        mip.addRow(1.0, 1.0, len(of), of, np.ones(len(of)))
    for m in range(cards):
        of = card == m
        for r in range(LOADS):
            if r < TIMES:
                mip.addRow(-np.inf, 0.0, 1 + int(of.sum()), np.append(np.int32(0), index[of]),
                           np.append(-1.0, value[of, r]))
            elif value[:, r].any():
                mip.addRow(-np.inf, choices.cap[r] / unit[r], int(of.sum()), index[of], value[of, r])
    mip.run()
    until.spend(PIVOT_S * mip.getNumRow() * max(mip.getInfo().simplex_iteration_count, 0))
    until.clock.late |= mip.getModelStatus() == HighsModelStatus.kTimeLimit
    if mip.getModelStatus() == HighsModelStatus.kInfeasible:
        return Exact(np.inf, None)
    info = mip.getInfo()
    bound = max(float(info.mip_dual_bound) * unit[0] * (1 - MARGIN), floor)
    if not np.isfinite(info.objective_function_value) or info.primal_solution_status != 2:
        return Exact(bound, None)
    chosen = np.nonzero(np.array(mip.getSolution().col_value)[1:] > 0.5)[0]
    found = np.zeros((3, tables), np.int64)
    for at in chosen:
        m, j, k = cells[at]
        found[:, j] = m, splits[j][0][k], splits[j][1][k]
    return Exact(bound, (found[0], found[1], found[2]))
