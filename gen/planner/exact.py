"""The program over all splits of all tables on all cards, for problems small enough to write it down.

One binary an option of a table, card and split, and one an option of several cards and split, which says that so many
cards have a shard. Tables that are alike in nothing but their names stay apart, cards are alike: where all tables lie
whole on cards, table j, largest first, lies on one of the first j + 1. It proves what the bounds of gen.planner.bound
leave open.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from gen.planner.choices import LOADS, TIMES, Choices
from gen.planner.work import PAIR_S, PIVOT_S, Deadline

__all__ = ["CELLS", "Exact", "exact", "frontier", "least"]

#: So many binaries are worth a try.
CELLS = 60_000
#: Of the bound, what the solver's tolerances may have added to it.
MARGIN = 1e-6
#: Seconds of work of a node of the search tree, and of all before the second, about, by the binaries.
NODE_S, ROOT_S = 2e-6, 4e-5


@dataclass(frozen=True, eq=False)
class Exact:
    """bound: seconds; infinite where there is no placement at all. placement: (option, a, h) of each table and the card
    of each shard, table after table; None: none was found."""

    bound: float
    placement: tuple[NDArray[np.int64], ...] | None


def frontier(choices: Choices, option: int, limit: float = np.inf) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The splits of an option that no other one betters in every time and memory, of at most `limit` seconds each."""
    at = choices.cut[option, : choices.cuts[option]]
    a, h = (each.ravel() for each in np.meshgrid(at, at, indexing="ij"))
    kept = np.isfinite(choices.tt[option, a, h])
    a, h = a[kept], h[kept]
    load = choices.load(np.full(len(a), option), a, h)
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
    tables = choices.tables
    if choices.pairs > CELLS:
        return None
    options = np.nonzero(choices.copies <= cards)[0]
    splits = {}
    for v in options.tolist():
        a, h = splits[v] = frontier(choices, v, limit)
        until.spend(PAIR_S * LOADS * len(a) * int(choices.cuts[v]) ** 2)
        if until.passed:
            return None
    loads = {v: choices.load(np.full(len(a), v), a, h) for v, (a, h) in splits.items()}
    solved = least(choices, loads, cards, limit, until, floor)
    if solved is None:
        return None
    bound, cells = solved
    if cells is None:
        return Exact(bound, None)
    found, on = np.zeros((3, tables), np.int64), [list[int]() for _ in range(tables)]
    for m, v, k in cells:
        found[:, choices.table[v]] = v, splits[v][0][k], splits[v][1][k]
        on[choices.table[v]].append(m)
    return Exact(bound, (*found, np.array([m for each in on for m in each])))


def least(choices: Choices, loads: Mapping[int, NDArray[np.float64]], cards: int, limit: float, until: Deadline,
          floor: float = 0.0) -> tuple[float, list[tuple[int, int, int]] | None] | None:
    """(seconds that no placement betters, what the best one consists of, or None), as `exact` has it. loads: of options
    by number, (splits, LOADS) each; what is found are card, option, split of each shard."""
    from highspy import Highs, HighsModelStatus, HighsVarType

    tables = choices.tables
    if len(np.unique(choices.table[[v for v, load in loads.items() if len(load)]])) < tables:
        return np.inf, None
    width = sum(map(len, loads.values())) * cards
    if width > CELLS or ROOT_S * width > until.left:
        return None
    lightest = np.full(tables, np.inf)
    for v, load in loads.items():
        if len(load):
            lightest[choices.table[v]] = min(lightest[choices.table[v]], load[:, :TIMES].sum(axis=1).min())
    place = np.empty(tables, np.int64)
    place[np.argsort(-lightest, kind="stable")] = np.arange(tables)
    # Where tables lie on several cards, the first of them need not be among the first cards.
    first = cards + 0 * place if choices.sharded else np.minimum(place + 1, cards)
    unit = np.append(np.full(TIMES, max(limit if np.isfinite(limit) else
                                    max(load[:, :TIMES].max(initial=0) for load in loads.values()) * tables, 1e-300)),
                     np.maximum(choices.cap[TIMES:], 1.0))
    mip = Highs()
    mip.silent()
    for name, value in (("threads", 1), ("time_limit", max(until.clock.stop - monotonic(), 0.1)), ("mip_rel_gap", 1e-9),
                        ("mip_max_nodes", int(min(1 + until.left / (NODE_S * width), 1e9))),
                        ("mip_abs_gap", 0.0), ("mip_feasibility_tolerance", 1e-8),
                        ("primal_feasibility_tolerance", 1e-9), ("dual_feasibility_tolerance", 1e-9)):
        mip.setOptionValue(name, value)
    mip.addCol(1.0, floor / unit[0], np.inf, 0, np.zeros(0, np.int32), np.zeros(0))
    cells = [(m, v, k) for v in sorted(loads, key=lambda v: (place[choices.table[v]], v))
             for m in range(first[choices.table[v]]) for k in range(len(loads[v]))]
    card, option = np.array([m for m, _, _ in cells]), np.array([v for _, v, _ in cells])
    value = np.array([loads[v][k] for _, v, k in cells]) / unit
    # Behind the cells, the splits of options of several cards.
    several = [(v, k) for v, load in loads.items() if choices.copies[v] > 1 for k in range(len(load))]
    count = len(cells) + len(several)
    mip.addVars(count, np.zeros(count), np.ones(count))
    index = np.arange(1, count + 1, dtype=np.int32)
    mip.changeColsIntegrality(count, index, np.full(count, HighsVarType.kInteger))
    index, chosen = index[:len(cells)], index[len(cells):]
    split = np.array([k for _, _, k in cells])
    for x, (v, k) in zip(chosen, several, strict=True):
        of = index[(option == v) & (split == k)]
        mip.addRow(0.0, 0.0, len(of) + 1, np.append(of, x), np.append(np.ones(len(of)), -float(choices.copies[v])))
    whole = np.array([v for v, _ in several], np.int64)
    for j in range(tables):
        of = np.concatenate([index[(choices.table[option] == j) & (choices.copies[option] == 1)],
                             chosen[choices.table[whole] == j]])
        mip.addRow(1.0, 1.0, len(of), of, np.ones(len(of)))
    for m in range(cards):
        of = card == m
        for r in range(LOADS):
            if r < TIMES:
                mip.addRow(-np.inf, float(choices.within(0.0)[r]) / unit[0], 1 + int(of.sum()),
                           np.append(np.int32(0), index[of]),
                           np.append(-1.0, value[of, r]))
            elif value[:, r].any():
                mip.addRow(-np.inf, choices.cap[r] / unit[r], int(of.sum()), index[of], value[of, r])
    mip.run()
    until.spend(PIVOT_S * mip.getNumRow() * max(mip.getInfo().simplex_iteration_count, 0))
    until.clock.late |= mip.getModelStatus() == HighsModelStatus.kTimeLimit
    if mip.getModelStatus() == HighsModelStatus.kInfeasible:
        return np.inf, None
    info = mip.getInfo()
    bound = max(float(info.mip_dual_bound) * unit[0] * (1 - MARGIN), floor)
    if not np.isfinite(info.objective_function_value) or info.primal_solution_status != 2:
        return bound, None
    return bound, [cells[at] for at in np.nonzero(np.array(mip.getSolution().col_value)[1:len(cells) + 1] > 0.5)[0]]
