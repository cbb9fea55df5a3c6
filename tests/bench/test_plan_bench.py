from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bench.plan_torchrec import peak
from bench.sharding_peer import (
    Devices,
    Misses,
    OurCost,
    TheirCost,
    choices_of,
    overfull,
    plan_of,
    planned,
    priced,
    ways,
)
from gen.model.recommender import Recommender, TableSpec
from gen.planner.choices import cuts, with_levels
from gen.planner.problem import Item, Problem
from gen.planner.solve import solve
from tests.support.planner_problems import COSTS, drawn, sharded

pytestmark = pytest.mark.regress


def alone(seed):
    """DRAM and SSD, embedding alone, tables on several cards."""
    problem = sharded(drawn(seed), seed)
    return with_levels(Problem(problem.items, problem.cards, problem.dram_bytes, 0, problem.ssd_bytes,
                               shardings=problem.shardings), 2)


def option(name, kind, kernel, factor, ranks):
    return SimpleNamespace(name=name, sharding_type=kind, compute_kernel=kernel, cache_load_factor=factor,
                           shards=[SimpleNamespace(rank=rank) for rank in ranks])


def some_plan(problem, seed):
    """A random plan as TorchRec gives it."""
    g = np.random.default_rng(seed)
    plan = []
    for j, item in enumerate(problem.items):
        kinds = ways(problem, j)
        kind = str(g.choice(list(kinds)))
        at = int(g.choice(cuts(item)))
        kernel = "dense" if kind == "data_parallel" else "fused_uvm_caching" if at else "fused_uvm"
        ranks = g.permutation(problem.cards)[:problem.ways(j)[kinds[kind]].count]
        plan.append(option(item.name, kind, kernel, item.rows[at] / item.total_rows, ranks.tolist()))
    return plan


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_is_rated_as_its_placement(seed):
    """The rating that TorchRec gets of a plan is what gen's own arithmetic finds of the placement alone."""
    problem = alone(seed)
    roomy = Problem(problem.items, problem.cards, 10 ** 6, 0, 10 ** 6, shardings=problem.shardings)
    plan = some_plan(roomy, seed)
    assert OurCost(roomy, summed=False).rate(plan) == pytest.approx(peak(roomy, choices_of(roomy, plan)))
    with pytest.raises(ValueError, match="card 0: .* bytes of DRAM"):
        peak(Problem(problem.items, problem.cards, -1, 0, 10 ** 6, shardings=problem.shardings),
             choices_of(roomy, plan))


def test_a_cache_holds_the_hottest_rows():
    """Up to the last step that the load factor covers; fused in HBM are all rows with accesses that may leave."""
    item = drawn(3).items[0]
    problem = Problem((item,), 2, 10 ** 6, 0, 10 ** 6)
    for at in cuts(item)[1:]:
        for rows in (item.rows[at], item.rows[at] + 0.4):
            (choice,) = choices_of(problem, [option(item.name, "table_wise", "fused_uvm_caching",
                                                    rows / item.total_rows, [1])])
            assert (choice.cards, choice.i_dram, choice.i_hot, choice.way) == ((1,), at, at, 0)
    (fused,) = choices_of(problem, [option(item.name, "table_wise", "fused", None, [0])])
    (cold,) = choices_of(problem, [option(item.name, "table_wise", "fused_uvm", None, [0])])
    assert (fused.i_dram, cold.i_dram) == (cuts(item)[-1], 0)


def test_misses_of_a_cache_of_the_hottest_rows():
    item = Item("t", np.array([0, 1, 3]), 4, 4, 8.0, 1.0, 1.0, 1.0, np.zeros(1, np.int64), np.zeros(1))
    misses = Misses(item)
    assert [misses.expected_miss_rate(clf) for clf in (0, 0.25, 0.5, 0.75, 1)] == [1, 0.5, 0.25, 0, 0]
    assert misses.cacheability == pytest.approx(0.25 * 0.75 + 0.5 * 0.25)


@pytest.mark.parametrize("seed", range(4))
def test_ours_is_no_slower_than_the_package(seed):
    """Under either cost, and both fit; ours comes out of TorchRec's options as it went in."""
    pytest.importorskip("torchrec")
    problem = replace(alone(seed), dram_bytes=3000, ssd_bytes=10 ** 5)
    model = Recommender("t", "t", {item.name: TableSpec(item.name, item.total_rows, 16) for item in problem.items},
                        None, 8 * problem.cards)
    devices = Devices.of(problem, model, COSTS)
    ours = peak(problem, solve(problem, gap=0.0, seconds=5).tables)
    cost = OurCost(problem, summed=seed % 2 == 0)
    plan = planned(devices, cost, 5, scaled=False)
    assert cost.rate(plan) == pytest.approx(peak(problem, choices_of(problem, plan)))
    assert ours <= cost.rate(plan) * (1 + 1e-9)
    theirs, (as_theirs, options) = planned(devices, TheirCost(devices), 5, scaled=False), priced(devices)
    best = solve(as_theirs, gap=0.0, seconds=5)
    plan = plan_of(best.tables, options)
    assert not overfull(devices, plan) and not overfull(devices, theirs)
    assert TheirCost(devices).rate(plan) == pytest.approx(1e3 * best.seconds)
    assert 1e3 * best.seconds <= TheirCost(devices).rate(theirs) * (1 + 1e-9)
