"""The bound of all cuts: against every row of one table, and plans at finer steps."""

from dataclasses import replace

import numpy as np
import pytest

from gen.data.logs import of_arrays
from gen.data.profiling import profile
from gen.model.recommender import Recommender, TableSpec
from gen.planner import build as building
from gen.planner.build import build
from gen.planner.choices import SSD_S, TIMES
from gen.planner.planning import make
from gen.planner.rowwise import Rows, bound_of
from tests.support.planner_problems import BATCH, COSTS

MODEL = Recommender("m", "", {"one": TableSpec("one", 5000, 64), "two": TableSpec("two", 2000, 64)}, None, BATCH)


@pytest.fixture(scope="module")
def known():
    """Ids that rise with time, and such that do not."""
    random, samples = np.random.default_rng(3), BATCH * 40
    rows = np.arange(samples) * 4000 // samples + random.zipf(1.3, samples) % 1000
    return profile(of_arrays({"one": rows, "two": random.zipf(1.2, samples) % 2000}))


@pytest.mark.parametrize("drive_s", [0.0, 6e-5])
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_no_row_of_a_table_betters_it(known, drive_s, share):
    built = build(replace(MODEL, tables={"one": MODEL.tables["one"]}), known, COSTS, cards=1, rank=1)
    item = replace(built.problem.items[0], tt_rows=np.zeros(1, np.int64), tt_bytes=np.zeros(1))
    room = item.bags_bytes + int(share * item.total_rows) * item.row_bytes
    problem = replace(built.problem, items=(item,), shardings=(), formats=(), dram_bytes=room, wait_s=drive_s)
    rows = Rows(built.expected, COSTS)
    every = np.arange(0, int(share * item.total_rows) + 1, 7)
    each = np.concatenate([rows.stretches(item, every[at:at + 1]) for at in range(len(every))])[:, :TIMES]
    each[:, SSD_S] += drive_s * (each[:, SSD_S] > 0)
    best = each.max(axis=1).min()
    assert 0.97 * best <= bound_of(problem, rows, 2 * best, 1.0) <= best
    # Beyond what is known nobody looks.
    assert bound_of(problem, rows, 0.5 * best, 1.0) <= best


@pytest.mark.parametrize("cards, share, gap", [(1, 0.3, 0.03), (2, 0.1, 0.2)])
def test_plans_at_finer_steps_do_not_better_it(known, cards, share, gap, monkeypatch):
    costs = replace(COSTS, dram_bytes=int(share * 7000 * 256) + 2 * BATCH * 8 * 64)
    plan = make(MODEL, known, costs, cards=cards, levels=2, seconds=1.0, explain=False)
    monkeypatch.setattr(building, "STEPS", 400)
    finer = make(MODEL, known, costs, cards=cards, levels=2, seconds=1.0, explain=False)
    assert plan.from_ssd > 0 and plan.bound <= finer.seconds and plan.gap < gap
