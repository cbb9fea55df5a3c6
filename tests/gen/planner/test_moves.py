"""The fewest rows that move, against every choice of swaps of small problems."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from gen.planner.moves import fewest
from gen.planner.solve import Infeasible
from gen.planner.work import Deadline


@dataclass(frozen=True)
class Swapping:
    cards: tuple
    rows: int
    loads: np.ndarray       # (swaps + 1, 5)

    @property
    def most(self):
        return len(self.loads) - 1

    def seconds(self, swaps):
        return self.loads[swaps]


def drawn(seed, tables=4, most=9, cards=3):
    g = np.random.default_rng(seed)
    found = []
    for _ in range(int(g.integers(1, tables + 1))):
        on = tuple(sorted(g.choice(cards, int(g.integers(1, cards + 1)), replace=False).tolist()))
        loads = np.sort(g.uniform(0, 1, (int(g.integers(0, most + 1)) + 1, 5)), axis=0)[::-1]
        found.append(Swapping(on, 2 * len(on), loads.copy()))
    return found


def total(tables, swaps):
    loads = np.zeros((3, 5))
    for table, number in zip(tables, swaps, strict=True):
        loads[list(table.cards)] += table.seconds(number)
    return loads


@pytest.mark.turns(10)
@pytest.mark.parametrize("seed", range(30))
def test_as_few_as_any_choice_has(seed):
    tables, g = drawn(seed), np.random.default_rng([seed, 1])
    reach, stay = (total(tables, [pick(table) for table in tables]).max(axis=0)
                   for pick in (lambda table: table.most, lambda table: 0))
    limit = reach + g.uniform(0, 0.8, 5) * (stay - reach)
    if seed % 4 == 0:
        limit[2] = 0.0      # a drive that there is no time for
        for table in tables:
            table.loads[-1, 2] = 0.0
    every = [swaps for swaps in product(*(range(table.most + 1) for table in tables))
             if (total(tables, swaps) <= limit).all()]
    least = min(sum(table.rows * number for table, number in zip(tables, swaps, strict=True)) for swaps in every)
    found = fewest(tables, limit, gap=0.0, until=Deadline())
    assert found.swaps in every and found.rows == found.least == least
    loose = fewest(tables, limit, gap=0.5, until=Deadline())
    assert loose.swaps in every and loose.least <= least <= loose.rows <= max(1.5 * loose.least, least)


def test_nothing_moves_where_nothing_must():
    tables = drawn(3)
    assert fewest(tables, total(tables, [0] * len(tables)).max(axis=0), gap=0.0, until=Deadline()).rows == 0


def test_out_of_reach():
    table = Swapping((1,), 2, np.array([[4.0] * 5, [3.0] * 5]))
    with pytest.raises(Infeasible, match="card 1 takes 3 s per batch at least, whichever rows of its tables"):
        fewest([table], np.full(5, 2.0), gap=0.0, until=Deadline())
    # Of the 4 s that are allowed the third memory waits for 2, and then takes 3.
    with pytest.raises(Infeasible, match="card 1 takes 5 s per batch at least"):
        fewest([table], np.array([4.0, 4.0, 2.0, 4.0, 4.0]), gap=0.0, until=Deadline())


@pytest.mark.turns(1, of="searches")
def test_long_ladders_are_looked_at_where_it_matters():
    """Twelve tables of a thousand swaps each: the proof is there after a few of the 12,000."""
    g, asked = np.random.default_rng(5), []

    class Counted(Swapping):
        def seconds(self, swaps):
            asked.append(swaps)
            return self.loads[0] * 0.99 ** swaps

    tables = [Counted((k % 4,), 2, np.tile(g.uniform(0.5, 1, 5), (1001, 1))) for k in range(12)]
    loads = [sum(table.loads[0] for table in tables[k::4]) for k in range(4)]
    found = fewest(tables, 0.7 * np.max(loads, axis=0), gap=0.02, until=Deadline())
    assert 0 < found.rows <= 1.02 * found.least and len(asked) < 1000
