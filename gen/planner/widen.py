"""Formats that lose less, wherever a placement has the time and the memory for them.

The program takes whatever shortens a batch within the error budgets. Of a table on a card that waits for something
else narrow rows then lose accuracy for nothing. So each table, that which loses most first, gets the format that loses
least with which its cards stay within their memories and the time of the slowest; rows stay where they are.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gen.data.expected import Expected
from gen.planner.choices import LOADS, TIMES
from gen.planner.costs import Costs
from gen.planner.fill import Part, cold_bytes, dram_seconds, part_of
from gen.planner.problem import CardChoice, Placement, Problem, Sharding
from gen.planner.widths import Errors


def widened(problem: Problem, found: Placement, parts: Sequence[Part], ways: Sequence[Sequence[Sharding]],
            errors: Mapping[str, Errors], expected: Mapping[str, Expected], costs: Costs, seconds: float) \
        -> tuple[tuple[CardChoice, ...], tuple[Part, ...], tuple[Sharding, ...]]:
    """The cards, the tables' parts and how each lies on its cards. ways: of each table, all that its budget allows.
    errors: of those with a budget. seconds: that an EMB card may take."""
    parts, chosen = list(parts), [problem.ways(j)[choice.way] for j, choice in enumerate(found.tables)]
    cap = np.array([seconds] * TIMES + [problem.dram_bytes, problem.tt_bytes, problem.ssd_bytes]) * (1 + 1e-12)
    loads = np.zeros((len(found.emb), LOADS))
    for part in parts:
        loads[list(part.cards)] += _load(part, costs)

    def lost(way: Sharding, name: str) -> tuple[float, float]:
        row_format, tt_format = way.formats
        return errors[name].rows[row_format], errors[name].cores[tt_format]

    def full(load: NDArray[np.float64]) -> bool:
        return bool((_with_idle(load, costs) > cap).any())

    open_ = [j for j, part in enumerate(parts) if part.item.name in errors and len(ways[j]) > 1]
    for j in sorted(open_, key=lambda j: lost(chosen[j], parts[j].item.name), reverse=True):
        name, on = parts[j].item.name, list(parts[j].cards)
        own = lost(chosen[j], name)
        alike = [way for way in ways[j] if (way.by, way.count) == (chosen[j].by, chosen[j].count)]
        for way in sorted(alike, key=lambda way: lost(way, name)):
            if max(np.subtract(lost(way, name), own)) > 0 or lost(way, name) == own:
                continue
            part = part_of(way.item, found.tables[j], parts[j].spare, expected[name], costs)
            load = loads[on] - _load(parts[j], costs) + _load(part, costs)
            if part.warm <= way.item.tt_rows[-1] and not full(load):
                loads[on], parts[j], chosen[j] = load, part, way
                break
    emb = (CardChoice(dram_s, tt_s, ssd_s, in_s, out_s, int(dram), tt, int(ssd))
           for dram_s, tt_s, ssd_s, in_s, out_s, dram, tt, ssd in _with_idle(loads, costs).tolist())
    return tuple(emb), tuple(parts), tuple(chosen)


def _with_idle(loads: NDArray[np.float64], costs: Costs) -> NDArray[np.float64]:
    """(..., LOADS)"""
    return np.concatenate([costs.idle.added(loads[..., :TIMES]), loads[..., TIMES:]], axis=-1)


def _load(part: Part, costs: Costs) -> NDArray[np.float64]:
    """(LOADS,) of each of its cards, without idle time."""
    item = part.item
    return np.array([
        dram_seconds(part, costs), part.tt_s, part.drive_s,
        item.in_s + part.reads * item.page_in_s, item.out_s, (part.hot + part.spare) * item.row_bytes + item.bags_bytes,
        np.interp(part.warm, item.tt_rows, item.tt_bytes), cold_bytes(part, costs)])
