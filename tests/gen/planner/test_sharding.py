"""Tables on several cards: the planner's program against every placement, and plans of logs of few tables."""

import os
from dataclasses import replace

import numpy as np
import pytest

from gen.planner.bound import Master
from gen.planner.choices import Choices
from gen.planner.solve import Infeasible, solve
from tests.support.planner_problems import brute, brute_sharded, drawn, replicated, seconds

SEEDS = range(600) if os.environ.get("HOTRAIL_REGRESS") else range(60)


def small(seed):
    return drawn(seed, tables=2, cards=3, steps=2)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_optimum_is_that_of_all_placements_and_the_bound_meets_it(seed):
    problem = replicated(small(seed), seed)
    best = brute_sharded(problem)
    if np.isinf(best):
        with pytest.raises(Infeasible):
            solve(problem, gap=0, seconds=20)
        return
    found = solve(problem, gap=0, seconds=20)
    assert found.seconds == pytest.approx(best, rel=1e-7)
    assert found.seconds == pytest.approx(seconds(problem, found), rel=1e-12)
    assert found.bound <= best * (1 + 1e-12) and found.gap < 2e-6
    assert best <= brute(problem) * (1 + 1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_bound_is_below_the_optimum_by_itself(seed):
    problem = replace(replicated(drawn(seed, tables=3, steps=2), seed), bottom_s=0.0, top_s=0.0, features_s=0.0,
                      predictions_s=0.0)
    problem = replace(problem, shardings=replicated(problem, seed).shardings)
    best = brute_sharded(problem)
    if np.isinf(best):
        return
    master = Master(Choices.of(problem))
    assert master.overflow(problem.cards).bound <= 0.5
    assert master.seconds(problem.cards).bound <= best * (1 + 1e-9)
    assert master.seconds(problem.cards, limit=best * 1.0001).bound <= best * (1 + 1e-9)
    assert master.fill(problem.cards, best).bound <= 1 + 1e-6
