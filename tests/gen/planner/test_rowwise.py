"""The bound of all cuts: against every row of one table, and plans at finer steps."""

from dataclasses import replace

import numpy as np
import pytest

from gen.data.logs import of_arrays
from gen.data.profiling import profile
from gen.model.recommender import Recommender, TableSpec
from gen.planner import build as building
from gen.planner import rowwise
from gen.planner.build import build
from gen.planner.planning import make
from gen.planner.problem import Idle
from gen.planner.rowwise import Rows, bound_of
from tests.support.planner_problems import BATCH, COSTS, DIES

MODEL = Recommender("m", "", {"one": TableSpec("one", 5000, 64), "two": TableSpec("two", 2000, 64)}, None, BATCH)


@pytest.fixture(scope="module")
def known():
    """Ids that rise with time, and such that do not."""
    random, samples = np.random.default_rng(3), BATCH * 40
    rows = np.arange(samples) * 4000 // samples + random.zipf(1.3, samples) % 1000
    return profile(of_arrays({"one": rows, "two": random.zipf(1.2, samples) % 2000}))


@pytest.mark.parametrize("drive_s", [0.0, 6e-5])
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_no_row_of_a_table_betters_it(known, drive_s, share, monkeypatch):
    costs = DIES if drive_s else COSTS
    model = replace(MODEL, tables={"one": MODEL.tables["one"]})
    built = build(model, known, costs, cards=1, rank=1)
    item = replace(built.problem.items[0], tt_rows=np.zeros(1, np.int64), tt_bytes=np.zeros(1))
    room = item.bags_bytes + int(share * item.total_rows) * item.row_bytes
    problem = replace(built.problem, items=(item,), shardings=(), formats=(), dram_bytes=room, idle=Idle(drive_s))
    rows = Rows(built.expected, costs)
    every = np.arange(0, int(share * item.total_rows) + 1, 7)
    read, landing_s = rows.drive(item, every)
    dram_s = np.maximum(*rows.hot(item, every)) + landing_s + item.bags_s
    ssd_s = item.drive_s_at(every, read) + drive_s * (read > 0)
    best = np.max([dram_s, ssd_s, item.in_s + read * item.page_in_s, np.full(len(every), item.out_s)], axis=0).min()
    assert 0.97 * best <= bound_of(problem, rows, 2 * best, 1.0) <= best
    # Beyond what is known nobody looks.
    assert bound_of(problem, rows, 0.5 * best, 1.0) <= best
    # As of many tables: by limits of time, which hold for cuts between two steps, however far apart.
    monkeypatch.setattr(rowwise, "TABLES", 0)
    monkeypatch.setattr(rowwise, "branch_and_bound", lambda *_, **__: None)
    for steps in (6, 12, 24):
        monkeypatch.setattr(building, "STEPS", steps)
        monkeypatch.setattr(building, "DRAM_STEPS", 1)
        item = replace(build(model, known, costs, cards=1, rank=1).problem.items[0], tt_rows=np.zeros(1, np.int64),
                       tt_bytes=np.zeros(1))
        for limit in (1.0, 1.02, 1.1):
            assert 0.5 * best <= bound_of(replace(problem, items=(item,)), rows, limit * best, 1.0) <= best


@pytest.mark.turns(4)
@pytest.mark.parametrize("seed", range(20))
def test_plans_of_a_step_a_row_do_not_better_it(seed, monkeypatch):
    """Of one and two tables whose ids come at any time, rise with it, or both."""
    random = np.random.default_rng(seed)
    samples, ids, rows = BATCH * int(random.integers(8, 30)), {}, {}
    for name in ("one", "two")[:1 + seed % 2]:
        rows[name] = number = int(random.integers(200, 700))
        at, kind = np.arange(samples), random.integers(3)
        ids[name] = (random.zipf(1.05 + random.random(), samples) % number if kind == 0 else
                     at * (number - 60) // samples + random.integers(0, 60, samples) if kind == 1 else
                     at * (number // 2) // samples + random.zipf(1.3, samples) % (number // 2))
    known, model = profile(of_arrays(ids)), Recommender.of("m", rows, 64, batch=BATCH)
    cards, share = int(random.integers(1, 3)), random.choice([0.1, 0.25, 0.5])
    bags = sum(item.bags_bytes for item in build(model, known, COSTS, cards=1).problem.items)
    costs = replace(DIES if seed % 4 > 1 else COSTS, dram_bytes=(int(share * sum(rows.values()) * 256) + bags) // cards)
    plan = make(model, known, costs, cards=cards, levels=2, seconds=0.3, explain=False)
    monkeypatch.setattr(building, "STEPS", 700)
    every = make(model, known, costs, cards=cards, levels=2, seconds=0.3, explain=False)
    assert plan.from_ssd > 0 and plan.bound <= every.seconds * (1 + 1e-9)
    assert plan.gap < 0.01
