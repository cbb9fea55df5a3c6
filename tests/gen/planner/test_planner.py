import os
from dataclasses import replace
from time import process_time

import numpy as np
import pytest

from bench.plan_as_written import as_written
from gen.planner.bound import Master
from gen.planner.branch_and_bound import branch_and_bound
from gen.planner.choices import Choices, cuts, loads, with_levels
from gen.planner.problem import Item, Problem, TableChoice
from gen.planner.solve import Infeasible, solve
from gen.planner.work import Deadline
from tests.support.planner_problems import brute, check_optimum, drawn, seconds, split

SEEDS = range(3000) if os.environ.get("HOTRAIL_REGRESS") else range(60)


def item(name="t", rows=(0, 1, 3, 9, 40), total=50, row_bytes=16, lookups=100.0, **more):
    return Item(name, np.array(rows), total, row_bytes, lookups, 1.0, 0.5, 20.0,
                more.pop("tt_rows", np.array([0, 50])), more.pop("tt_bytes", np.array([0.0, 60.0])), **more)


def many(tables, cards, seed=0, **more):
    """Tables with heavy tails of rows and lookups."""
    g = np.random.default_rng(seed)
    items = []
    for j in range(tables):
        total = int(np.ceil(min(g.lognormal(9, 2), 1e7)))
        rows = np.unique(np.ceil(total ** np.linspace(0, 1, 100)).astype(np.int64))
        rows = np.append(0, np.sort(np.append(rows, np.repeat(rows[:1], 100 - len(rows)))))
        knots = np.unique(np.append(0, np.geomspace(1, total, 9).astype(np.int64)))
        items.append(Item(f"t{j}", rows, total, 256, float(min(g.lognormal(1.4, 1.2), 118)) * 256, 15e-9, 7e-9, 1.3e-6,
                          knots, 500.0 * knots ** 0.35, 0.99 if total > 1e5 else 1.0))
    return Problem(tuple(items), cards,
                   **{"dram_bytes": 30_000_000, "tt_bytes": 700_000, "ssd_bytes": 10 ** 12, **more})


@pytest.mark.parametrize("seed", SEEDS)
def test_optimum_is_that_of_brute_force_and_the_bound_meets_it(seed):
    problem = drawn(seed)
    check_optimum(problem, brute(problem))


@pytest.mark.parametrize("seed", list(SEEDS)[:40])
def test_program_as_written_has_the_same_optimum(seed):
    problem = drawn(seed, tables=3)
    best, outcome = brute(problem), as_written(problem, seconds=30)
    if np.isinf(best):
        assert outcome.placement is None and outcome.status == "Infeasible"
        return
    assert outcome.placement.seconds == pytest.approx(best, rel=1e-6)
    assert outcome.placement.seconds == pytest.approx(seconds(problem, outcome.placement), rel=1e-9)
    assert outcome.bound <= best * (1 + 1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_bound_is_below_the_optimum_by_itself(seed):
    """Without the search and the whole program, which would hide a bound that is too high."""
    problem = replace(drawn(seed, tables=5), bottom_s=0.0, top_s=0.0, features_s=0.0, predictions_s=0.0)
    best = brute(problem)
    choices = Choices.of(problem)
    if not all(np.isfinite(choices.tt[j]).any() for j in range(len(problem.items))):
        assert np.isinf(best)
        return
    master = Master(choices)
    if master.overflow(problem.cards).bound > 0.5:
        assert np.isinf(best)
        return
    if np.isinf(best):
        return
    assert master.seconds(problem.cards).bound <= best * (1 + 1e-9)
    assert master.seconds(problem.cards, limit=best * 1.0001).bound <= best * (1 + 1e-9)
    assert master.seconds(problem.cards).bound * (1 - 1e-9) <= master.lifted(problem.cards, best * 1.5).bound <= \
        best * (1 + 1e-9)
    tables = np.random.default_rng(seed).permutation(len(problem.items))
    for crowd in range(1, (len(tables) - 1) // problem.cards + 2):
        among = tables[: (crowd - 1) * problem.cards + 1]
        assert master.crowd(among, crowd).bound <= best * (1 + 1e-9)
    assert branch_and_bound(choices, problem.cards, np.inf, Deadline()).bound <= best * (1 + 1e-9)
    assert master.fill(problem.cards, best).bound <= 1 + 1e-6


@pytest.mark.parametrize("networks", [(0.0, 0.0), (4e-4, 9e-4)])
@pytest.mark.parametrize("tables", [26, 120])
def test_placements_of_many_tables_hold_every_constraint_within_the_gap(tables, networks):
    problem = many(tables, 4, seed=tables, bottom_s=networks[0], top_s=networks[1])
    placement = solve(problem, gap=0.02, seconds=20)
    assert placement.seconds == pytest.approx(seconds(problem, placement), rel=1e-12)
    assert 0 <= placement.gap <= 0.02
    assert placement.bound > 0


@pytest.mark.parametrize("tables, cards", [(60, 3), (200, 8)])
def test_the_time_limit_holds(tables, cards):
    """Before the linear program is solved it ends, with a placement that is known to be no better than its bound."""
    problem = many(tables, cards)
    solve(many(5, 2), seconds=0.5)      # compiles the loops
    start = process_time()      # not of whatever else the machine does
    placement = solve(problem, seconds=0.01)
    assert process_time() - start < 6       # without the limit: minutes
    assert placement.seconds == pytest.approx(seconds(problem, placement), rel=1e-12)
    well = solve(problem, seconds=60)
    assert 0 < placement.bound <= well.seconds <= placement.seconds * (1 + well.gap) and well.gap <= 0.01


def test_same_placement_twice():
    problem = many(60, 3)
    assert solve(problem).tables == solve(problem).tables


@pytest.mark.turns(1, of="searches")
def test_fewer_memories_are_never_faster():
    problem = many(60, 3, bottom_s=1e-4, top_s=1e-4)
    three, two, one = (solve(with_levels(problem, levels), gap=0.001, seconds=10) for levels in (3, 2, 1))
    assert three.bound < two.seconds and two.bound < one.seconds
    assert three.seconds < 0.8 * two.seconds < 0.1 * one.seconds
    assert all(card.tt_bytes == 0 == card.tt_s for card in two.emb)
    assert all(card.dram_bytes == 0 == card.dram_s for card in one.emb)
    with pytest.raises(ValueError, match="^levels = 4: must be 1, 2 or 3$"):
        with_levels(problem, 4)


def test_cuts_lie_between_rows_and_within_the_hot_share():
    assert cuts(item(rows=(0, 1, 1, 1, 2))).tolist() == [0, 3, 4]
    assert cuts(item(rows=(0, 1, 1, 1, 2), hot_share=0.75)).tolist() == [0, 3]
    assert cuts(item(rows=(0, 1, 1, 1, 2), hot_share=0.74)).tolist() == [0]
    assert cuts(item(rows=(0, 1, 3, 9, 40), hot_share=0.0)).tolist() == [0]
    assert cuts(item(rows=(0, 0, 0), hot_share=0.5)).tolist() == [0]


def approximated(problem, placement):
    return sum(item.lookups * (item.share[choice.i_hot] - item.share[choice.i_dram])
               for item, choice in zip(problem.items, placement.tables, strict=True))


def test_time_to_spare_takes_accesses_off_the_trains():
    """Where the networks take longer than the embedding, no access need go to a tt, nor to the SSD."""
    problem = many(12, 3, dram_bytes=10 ** 9, bottom_s=1.0, top_s=1.0)
    placement = solve(problem)
    assert placement.gap < 1e-6 and approximated(problem, placement) == 0
    hot = sum(item.lookups * (item.share[choice.i_hot] - item.hot_share)
              for item, choice in zip(problem.items, placement.tables, strict=True))
    assert hot == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_one_card_has_the_fewest_approximated_accesses_for_its_time(seed):
    """All splits of one card that are as fast, against the one that is given: never fewer, seldom more."""
    problem = replace(drawn(seed, tables=3, steps=4), cards=1, bottom_s=0.0, top_s=0.0, features_s=0.0,
                      predictions_s=0.0)
    try:
        placement = solve(problem, gap=0.0, seconds=10)
    except Infeasible:
        return
    caps = np.array([placement.seconds] * 5 + [problem.dram_bytes, problem.tt_bytes, problem.ssd_bytes])
    total, weight = np.zeros((1, 8)), np.zeros(1)
    for each in problem.items:
        pairs = [(a, h) for a in range(len(each.rows)) for h in range(len(each.rows)) if split(each, a, h)]
        total = (total[:, None] + np.array([split(each, *pair) for pair in pairs])[None]).reshape(-1, 8)
        warm = np.array([each.share[h] - each.share[a] for a, h in pairs])
        weight = (weight[:, None] + each.lookups * warm[None]).ravel()
    least = weight[(total <= caps * (1 + 1e-9)).all(axis=1)].min()
    most = sum(each.lookups for each in problem.items)
    assert least - 1e-6 <= approximated(problem, placement) <= least + 0.15 * most


@pytest.mark.turns(1, of="searches")
def test_few_accesses_go_to_the_train_where_few_may():
    problem = many(26, 3)
    some = solve(replace(problem, items=tuple(replace(each, tt_share=0.05) for each in problem.items)), gap=0.1)
    assert any(choice.i_hot - choice.i_dram > 5 for choice in solve(problem, gap=0.1).tables)
    assert max(choice.i_hot - choice.i_dram for choice in some.tables) == 5


def test_cheapest_split_is_that_of_every_split():
    for seed in range(60):
        problem = drawn(seed, steps=8)
        choices, g = Choices.of(problem), np.random.default_rng(seed)
        prices, limit = g.uniform(0, 1, 8), g.choice([np.inf, 40.0])
        cost, _, a, h = choices.cheapest(prices, choices.limits(limit, 1))
        caps = problem.dram_bytes, problem.tt_bytes, problem.ssd_bytes
        for j, each in enumerate(problem.items):
            every = [split(each, x, y) for x in range(len(each.rows)) for y in range(len(each.rows))]
            fit = [load for load in every if load and max(load[:5]) <= limit
                   and all(part <= cap for part, cap in zip(load[5:], caps, strict=True))]
            assert cost[j] == pytest.approx(min((prices @ np.array(load) for load in fit), default=np.inf))
            if fit:
                load = choices.load(np.array([j]), a[j:j + 1], h[j:j + 1])[0]
                np.testing.assert_allclose(load, split(each, a[j], h[j]))
                assert prices @ load == pytest.approx(cost[j])


def test_loads_are_those_of_the_paper():
    problem = drawn(3)
    chosen = [TableChoice((0,), 0, 0) for _ in problem.items]
    card, = loads(problem, chosen, 1)
    whole = np.sum([split(each, 0, 0) for each in problem.items], axis=0)
    np.testing.assert_allclose(
        [card.dram_s, card.tt_s, card.ssd_s, card.in_s, card.out_s, card.dram_bytes, card.tt_bytes, card.ssd_bytes],
        whole)
    assert card.seconds == whole[:5].max()


def test_a_table_without_accesses_has_a_place():
    quiet = Item("quiet", np.zeros(4, np.int64), 3, 8, 0.0, 1.0, 1.0, 1.0, np.array([0]), np.array([0.0]))
    placement = solve(Problem((quiet,), 1, 0, 0, 24))
    assert placement.seconds == placement.bound == 0 == placement.gap
    assert placement.emb[0].ssd_bytes == 24


@pytest.mark.parametrize("problem, sentence", [
    (Problem((item(),), 1, 100, 100, 10_000, 1.0, 1.0), "cards = 1: no EMB card is left"),
    (Problem((item(),), 0, 100, 100, 10_000), "cards = 0: there must be one at least"),
    (Problem((item("C03", total=1000, hot_share=0.0),), 2, 100, 100, 10_000),
     "table C03: at least 6000 bytes of it fit in no memory of one card, which has 100 bytes of DRAM, 100 of "
     "TT memory and 10000 of SSD"),
    (Problem((item("C03", bags_bytes=500),), 2, 100, 100, 10_000),
     "table C03: at least 400 bytes of it fit in no memory of one card, which has 100 bytes of DRAM, 100 of "
     "TT memory and 10000 of SSD"),
    (Problem(tuple(item(f"t{j}", total=100, hot_share=0.0) for j in range(5)), 3, 100, 100, 1600, 1.0, 1.0),
     "tables: 4800 bytes of them fit neither in the DRAM nor on the SSDs of the 2 cards that may hold them, "
     "with 100 bytes of DRAM each beside what a batch takes: more cards (--cards) or a smaller batch (--batch)"),
    (Problem(tuple(item(f"t{j}", total=100, hot_share=0.0) for j in range(3)), 2, 100, 100, 2500),
     "tables: no way to put them on 2 EMB cards whole, though the memories of all together would hold them"),
])
def test_infeasible_says_which_constraint_and_by_how_much(problem, sentence):
    with pytest.raises(Infeasible) as error:
        solve(problem, seconds=5)
    assert str(error.value) == sentence


def test_impossible_demands_wrong():
    with pytest.raises(ValueError, match="^gap = -1, seconds = 60.0: the gap must be 0 or more, the seconds above 0$"):
        solve(Problem((item(),), 1, 100, 100, 10_000), gap=-1)
    with pytest.raises(ValueError, match="^items: there must be a table at least$"):
        solve(Problem((), 1, 100, 100, 10_000))
