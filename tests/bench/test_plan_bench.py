import numpy as np
import pytest

from bench.plan import peak, serial, torchrec
from gen.planner.choices import loads
from gen.planner.problem import Placement, Problem, TableChoice
from gen.planner.solve import Infeasible, solve
from tests.support.planner_problems import brute, drawn, seconds, split


def alone(problem):
    return Problem(problem.items, problem.cards, problem.dram_bytes, problem.tt_bytes, problem.ssd_bytes)


@pytest.mark.parametrize("seed", range(60))
def test_the_peer_holds_the_constraints_and_is_no_faster_than_the_optimum(seed):
    problem = alone(drawn(seed))
    chosen, best = torchrec(problem, problem.cards), brute(problem)
    if chosen is None:
        return
    found = peak(problem, chosen, problem.cards)
    placement = Placement(found, 0.0, chosen, loads(problem, chosen, problem.cards), 0)
    assert seconds(problem, placement) == pytest.approx(found)
    assert best <= found * (1 + 1e-9)


def test_the_peer_is_greedy_by_time():
    """Without scarce storage: every table split as is fastest, the slowest first on the least loaded card."""
    for seed in range(20):
        one = alone(drawn(seed))
        problem = Problem(one.items, one.cards, 10 ** 6, 10 ** 6, 10 ** 6)
        chosen = torchrec(problem, 2)
        fastest = [min(sum(load[:5]) for a in range(len(item.rows)) for h in range(len(item.rows))
                       if (load := split(item, a, h))) for item in problem.items]
        for item, choice, least in zip(problem.items, chosen, fastest, strict=True):
            assert sum(split(item, choice.i_dram, choice.i_hot)[:5]) == pytest.approx(least)
        sums = np.zeros(2)
        for least in sorted(fastest, reverse=True):
            sums[sums.argmin()] += least
        assert peak_in_turn(problem, chosen) == pytest.approx(sums.max())


def peak_in_turn(problem, chosen):
    return max(card.dram_s + card.tt_s + card.ssd_s + card.in_s + card.out_s
               for card in loads(problem, chosen, 2))


def test_one_memory_after_another_is_the_sum_of_their_times():
    for seed in range(20):
        problem = drawn(seed)
        one = Problem(tuple(serial(item) for item in problem.items), 2, 0, 0, 0)
        chosen = tuple(TableChoice((j % 2,), 0, len(item.rows) - 1) for j, item in enumerate(problem.items))
        assert peak(one, chosen, 2) == pytest.approx(peak_in_turn(problem, chosen))


def test_ours_is_no_slower_under_either_cost():
    for seed in range(8):
        problem = alone(drawn(seed))
        chosen = torchrec(problem, problem.cards)
        for each in (problem, Problem(tuple(serial(item) for item in problem.items), problem.cards, problem.dram_bytes,
                                      problem.tt_bytes, problem.ssd_bytes)):
            try:
                ours = solve(each, gap=0.0, seconds=10)
            except Infeasible:
                assert chosen is None
                continue
            assert chosen is None or ours.seconds <= peak(each, chosen, problem.cards) * (1 + 1e-9)
