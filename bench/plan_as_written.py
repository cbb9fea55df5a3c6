"""The planner's program as SCRec writes it down, handed whole to HiGHS: for small instances, and to be held against.

Variables and constraints are those of eq. 3 to 37 under their names there. Four things make it a linear program:
a product of a binary and a quantity is a variable of its own between the products' bounds (McCormick, exact here: eq.
24, 25, 27, 31 to 33); p <= d says eq. 7; one binary for each number of MLP cards says eq. 34 and 35; and tt_cm of eq.
26 is interpolated between its knots by weights of two neighbours, which a binary a segment chooses (eq. 19 to 21).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gen.planner.choices import LOADS, TIMES, cuts, loads
from gen.planner.problem import Item, Placement, Problem, TableChoice

CONTINUOUS, BINARY = 0, 1


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the solver came to in its time. status: its word. bound: seconds, at least; 0 where it has none.
    placement: None where it found none."""

    status: str
    bound: float
    placement: Placement | None


class _Program:
    """Variables and rows as they are written, passed on in one piece."""

    def __init__(self) -> None:
        self.upper: list[float] = []
        self.kinds: list[int] = []
        self.starts, self.lows, self.highs = [0], list[float](), list[float]()
        self.index: list[NDArray[np.int32]] = []
        self.value: list[NDArray[np.float64]] = []

    def variables(self, count: int, upper: float, kind: int = CONTINUOUS) -> NDArray[np.int32]:
        first = len(self.upper)
        self.upper += [upper] * count
        self.kinds += [kind] * count
        return np.arange(first, first + count, dtype=np.int32)

    def row(self, low: float, high: float, *terms: tuple[NDArray[np.int32] | np.int32, object]) -> None:
        """low <= sum of the terms <= high; a term is variables and their factors."""
        for index, value in terms:
            at = np.atleast_1d(index)
            self.index.append(at.astype(np.int32))
            self.value.append(np.broadcast_to(np.asarray(value, np.float64), at.shape))
        self.starts.append(self.starts[-1] + sum(len(np.atleast_1d(index)) for index, _ in terms))
        self.lows.append(low)
        self.highs.append(high)

    def product(self, binary: np.int32, quantity: tuple[tuple[NDArray[np.int32], NDArray[np.float64]], ...],
                constant: float, most: float) -> np.int32:
        """A variable that is at least `binary` times the quantity (terms and a constant), which is at most `most`."""
        found = self.variables(1, most)[0]
        self.row(constant - most, np.inf, (found, 1.0), *((at, -value) for at, value in quantity), (binary, -most))
        return found

    def solve(self, least: np.int32, seconds: float, threads: int):
        from highspy import Highs, HighsVarType

        solver = Highs()
        solver.silent()
        for name, option in (("threads", threads), ("time_limit", seconds), ("mip_rel_gap", 1e-9),
                            ("mip_feasibility_tolerance", 1e-8), ("primal_feasibility_tolerance", 1e-9)):
            solver.setOptionValue(name, option)
        count = len(self.upper)
        cost = np.zeros(count)
        cost[least] = 1.0
        none = np.zeros(0, np.int32)
        solver.addCols(count, cost, np.zeros(count), np.array(self.upper), 0, none, none, np.zeros(0))
        whole = np.nonzero(np.array(self.kinds))[0].astype(np.int32)
        solver.changeColsIntegrality(len(whole), whole, np.full(len(whole), HighsVarType.kInteger))
        index, value = np.concatenate(self.index), np.concatenate(self.value)
        solver.addRows(len(self.lows), np.array(self.lows), np.array(self.highs), len(index),
                       np.array(self.starts[:-1], np.int32), index, value)
        solver.run()
        return solver


@dataclass(frozen=True, eq=False)
class _Table:
    """Variables of one table: x_dram, x_ptr (one for each cut, see gen.planner.choices), and what its load consists
    of, each (terms, constant, most): seconds and parts of capacities."""

    cut: NDArray[np.int64]
    x_dram: NDArray[np.int32]
    x_ptr: NDArray[np.int32]
    quantities: list


def _table(program: _Program, item: Item, unit: NDArray[np.float64]) -> _Table:
    at, steps = cuts(item), item.steps
    share, rows = item.share[at], item.rows[at].astype(np.float64)
    x_dram = program.variables(len(at), 1.0, BINARY)
    x_ptr = program.variables(len(at), 1.0, BINARY)
    x_tt = program.variables(steps + 1, 1.0, BINARY)
    for chosen in (x_dram, x_ptr, x_tt):                                        # eq. 11, 16
        program.row(1.0, 1.0, (chosen, 1.0))
    step = np.arange(steps + 1.0)
    program.row(0.0, 0.0, (x_dram, at), (x_tt, step), (x_ptr, -at))             # eq. 14
    program.row(-np.inf, item.hot_share + 1e-9, (x_ptr, share))                 # eq. 22
    program.row(-np.inf, item.tt_share + 1e-9, (x_ptr, share), (x_dram, -share))
    knots = len(item.tt_rows)
    x_row = program.variables(knots, 1.0)
    scale = max(float(item.tt_rows[-1]), 1.0)
    program.row(0.0, 0.0, (x_ptr, rows / scale), (x_dram, -rows / scale), (x_row, -item.tt_rows / scale))   # eq. 19
    program.row(1.0, 1.0, (x_row, 1.0))                                         # eq. 20
    if knots > 2:                                                               # eq. 21
        segment = program.variables(knots - 1, 1.0, BINARY)
        program.row(1.0, 1.0, (segment, 1.0))
        for k in range(knots):
            program.row(-np.inf, 0.0, (x_row[k], 1.0), (segment[max(k - 1, 0): k + 1], -1.0))
    # Eq. 28 to 30, 9, 26 and 25.
    dram_s, tt_s = item.hot_s[at], item.lookups * item.tt_s * share
    landing, ssd_s, inward = item.landing[at], item.drive_s[at], item.inward[at]
    dram, cold = rows * item.row_bytes, item.cold_bytes[at]
    quantities = []
    for r, (terms, constant, most) in enumerate((
            (((x_dram, dram_s), (x_ptr, landing)), item.bags_s, dram_s.max() + landing.max() + item.bags_s),
            (((x_ptr, tt_s), (x_dram, -tt_s)), 0.0, tt_s.max()),
            (((x_ptr, ssd_s),), 0.0, ssd_s.max()),
            (((x_ptr, inward),), 0.0, inward.max()),
            ((), item.out_s, item.out_s),
            (((x_dram, dram),), float(item.bags_bytes), dram.max() + item.bags_bytes),
            (((x_row, item.tt_bytes),), 0.0, item.tt_bytes.max()),
            (((x_ptr, cold),), 0.0, cold.max()))):
        quantities.append((tuple((x, np.asarray(value) / unit[r]) for x, value in terms), constant / unit[r],
                           float(most) / unit[r]))
    return _Table(at, x_dram, x_ptr, quantities)


def as_written(problem: Problem, *, seconds: float = 60.0, threads: int = 1) -> Outcome:
    """Solves eq. 3 to 37, of tables that lie whole on cards, in about so many seconds, or says how far it came."""
    networks = problem.before_s > 0 or problem.after_s > 0
    program, cards = _Program(), problem.cards
    slow = sum(max(float(item.hot_s[-1]), item.lookups * item.tt_s, float(item.drive_s.max()))
               + item.landing.max() + item.bags_s + item.inward.max() + item.out_s for item in problem.items)
    unit = np.array([max(slow + problem.before_s, 1e-30)] * TIMES
                    + [max(float(each), 1.0) for each in (problem.dram_bytes, problem.tt_bytes, problem.ssd_bytes)])
    room = np.array([problem.dram_bytes, problem.tt_bytes, problem.ssd_bytes]) / unit[TIMES:]
    most = 1.0 + problem.before_s / unit[0] + problem.after_s / unit[0]
    c, c_fnt, c_emb = (program.variables(1, most + slow / unit[0])[0] for _ in range(3))
    d = program.variables(cards, 1.0, BINARY)                                                   # eq. 5
    if networks:
        program.row(1.0, cards - 1.0, (d, 1.0))                                                 # eq. 4
        number = program.variables(cards - 1, 1.0, BINARY)                                      # 1 .. M - 1 MLP cards
        count = np.arange(1.0, cards)
        program.row(1.0, 1.0, (number, 1.0))
        program.row(float(cards), float(cards), (number, count), (d, 1.0))
        program.row(0.0, np.inf, (c, 1.0), (c_fnt, -1.0), (number, -problem.after_s / unit[0] / count))     # eq. 3, 34
        program.row(0.0, np.inf, (c_fnt, 1.0), (number, -problem.before_s / unit[0] / count))             # eq. 35, 37
    else:
        program.row(float(cards), float(cards), (d, 1.0))
        program.row(0.0, np.inf, (c, 1.0), (c_fnt, -1.0))
    program.row(0.0, np.inf, (c_fnt, 1.0), (c_emb, -1.0))                                       # eq. 37
    tables = [_table(program, item, unit) for item in problem.items]
    p = [program.variables(cards, 1.0, BINARY) for _ in tables]                                 # eq. 8
    for of in p:
        program.row(1.0, 1.0, (of, 1.0))                                                        # eq. 6
        for m in range(cards):
            program.row(-np.inf, 0.0, (of[m], 1.0), (d[m], -1.0))                               # eq. 7
    for m in range(cards):
        for r in range(LOADS):
            of_card = np.array([program.product(of[m], *table.quantities[r])
                                for of, table in zip(p, tables, strict=True)], np.int32)
            if r < TIMES:
                program.row(-np.inf, 0.0, (of_card, 1.0), (c_emb, -1.0))                        # eq. 31 to 33, 36
            else:
                program.row(-np.inf, room[r - TIMES], (of_card, 1.0))                               # eq. 24, 25, 27
    solver = program.solve(c, seconds, threads)
    info, status = solver.getInfo(), solver.modelStatusToString(solver.getModelStatus())
    bound = max(float(info.mip_dual_bound) * unit[0], 0.0)
    if info.primal_solution_status != 2:
        return Outcome(status, bound if np.isfinite(bound) else 0.0, None)
    value = np.array(solver.getSolution().col_value)
    used = np.nonzero(value[d] > 0.5)[0]
    card_of = {int(m): at for at, m in enumerate(used)}
    chosen = tuple(TableChoice((card_of[int(np.argmax(value[of]))],), int(table.cut[np.argmax(value[table.x_dram])]),
                               int(table.cut[np.argmax(value[table.x_ptr])]))
                   for of, table in zip(p, tables, strict=True))
    found = loads(problem, chosen, len(used))
    others = cards - len(used)
    embedding = max(card.seconds for card in found)
    whole = max(embedding, problem.before_s / max(others, 1)) + problem.after_s / max(others, 1)
    return Outcome(status, bound, Placement(whole, min(bound, whole), chosen, found, others))
