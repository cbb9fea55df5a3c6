"""Budgets of work: a plan does not depend on how fast or busy the machine is."""

import multiprocessing
import os
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from gen.data.logs import of_arrays
from gen.data.profiling import profile
from gen.model.recommender import Recommender
from gen.planner import solve as solving
from gen.planner import work
from gen.planner.planning import make
from gen.planner.solve import solve
from gen.planner.work import Clock, Deadline
from tests.gen.planner.test_planner import many
from tests.support.planner_problems import BATCH, COSTS


def test_a_moment_of_work_passes_with_work():
    until = Deadline(2.0, Clock())
    assert not until.passed and until.left == 2
    until.spend(1.5)
    half, soon, behind = until.part(0.5), until.within(0.1), until.later(1.0)
    assert (half.at, soon.at, behind.at, until.within(9).at) == (1.75, 1.6, 3.0, 2.0)
    half.spend(0.3)
    assert half.passed and soon.passed and not until.passed and until.left == pytest.approx(0.2)
    until.spend(1.0)
    assert until.passed and until.left == 0 and not behind.passed and until.later(1.0).at == pytest.approx(3.8)


def test_real_time_ends_everything_at_last(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(work, "monotonic", lambda: now[0])
    until = Deadline.of(5.0, 7.0)
    behind = until.later(9.0)
    now[0] = 6.9
    assert not until.passed and not behind.passed and not until.clock.late
    now[0] = 7.1
    assert until.passed and behind.passed and until.clock.late


def a_plan(budget=0.1):
    """Bytes of a plan whose searches end by their budget: their gaps stay open."""
    random = np.random.default_rng(3)
    ids = {f"t{j}": random.zipf(1.1 + random.random() / 3, 3000) % int(random.integers(50, 5000)) for j in range(30)}
    model = Recommender.of("m", {name: int(each.max()) + 1000 for name, each in ids.items()}, 64, batch=BATCH)
    plan = make(model, profile(of_arrays(ids)), replace(COSTS, dram_bytes=3_000_000, link_s=0.0), cards=4, gap=0.0,
                seconds=budget, tt_share=1.0)
    return plan.data()


def burn(stop):
    while not stop.is_set():
        pass


@pytest.mark.regress
def test_the_same_bytes_on_a_busy_machine():
    quiet = a_plan()
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    others = [context.Process(target=burn, args=(stop,), daemon=True) for _ in range(os.cpu_count() or 1)]
    for other in others:
        other.start()
    try:
        busy = a_plan()
    finally:
        stop.set()
        for other in others:
            other.join()
    assert busy == quiet and b"ended by real time" not in quiet


@pytest.mark.turns(1)
@pytest.mark.parametrize("tables, cards", [(20, 3), (60, 3)])
def test_the_same_placement_however_slowly_time_passes(tables, cards, monkeypatch):
    """Budgets that leave the gap open; every look at the clock is some hundredths of a second later, or none."""
    problem = many(tables, cards)
    wanted = solve(problem, gap=0.0, seconds=0.4)
    assert wanted.work > 0.2 and not wanted.late
    ticks = np.random.default_rng(1).exponential(0.02, 1 << 20).cumsum()
    looks = iter(ticks.tolist())
    monkeypatch.setattr(work, "monotonic", lambda: next(looks))
    found = solve(problem, gap=0.0, seconds=0.4)
    assert (found.tables, found.seconds, found.bound, found.work) == (
        wanted.tables, wanted.seconds, wanted.bound, wanted.work)


@pytest.mark.turns(1, of="searches")
def test_a_search_that_real_time_ends_says_so(monkeypatch):
    """Ten looks at a clock that each look moves, so that the machine's own speed decides nothing."""
    monkeypatch.setattr(solving, "LEAST", 0.0)
    monkeypatch.setattr(solving, "LAST", 1e-2)
    looks = count(1)
    monkeypatch.setattr(work, "monotonic", lambda: 3e-2 * next(looks))
    found = solve(many(60, 3), gap=0.0, seconds=30.0)
    assert found.late and found.bound <= found.seconds
    assert b"the search was ended by real time" in a_plan(30.0)
