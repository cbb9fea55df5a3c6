"""What plans that the planner does not make could gain: bounds and hypothetical moves, on small logs."""

from dataclasses import replace

import numpy as np
import pytest

import bench.plan
from bench.plan import Leaving, anywhere, by_leaving, joined
from gen.data.logs import of_arrays
from gen.data.profiling import profile as profiled
from gen.model.recommender import Recommender, TableSpec
from gen.planner.build import build
from gen.planner.choices import with_levels
from gen.planner.costs import CORE_SHARE
from gen.planner.planning import make
from gen.planner.refresh import Residents, in_rows, words_of
from tests.support.planner_problems import BATCH, COSTS

pytestmark = pytest.mark.regress

MODEL = Recommender("m", "", {"user": TableSpec("user", 600, 64), "item": TableSpec("item", 500, 64)}, None, BATCH)
TIGHT = replace(COSTS, dram_bytes=230_000, drive_s=1e-6, link_s=1e-12)


def rows(seed, shift):
    g = np.random.default_rng(seed)
    return in_rows(MODEL, profiled(of_arrays({"user": (g.zipf(1.2, 3000) + shift) % 600,
                                              "item": g.zipf(1.2, 3000) % 500})), {})


@pytest.fixture(scope="module")
def running():
    """(a plan that shares both tables out, its words, new traffic)."""
    by_row, known = rows(1, 0)
    plan = make(by_row, known, TIGHT, cards=2, levels=2, gap=0.05, seconds=0.2, explain=False)
    assert all(table.ssd.rows for table in plan.tables.values())
    plan = replace(plan, tables={name: replace(table, cards=(0, 1), by="samples")
                                 for name, table in plan.tables.items()})
    return plan, words_of(plan, known), rows(2, 300)[1]


def test_a_table_that_leaves_no_card_takes_what_it_takes(running):
    plan, words, new = running
    for name in plan.tables:
        stays = Leaving(plan, name, (0, 1), words[name], new, TIGHT)
        now = Residents(plan, name, words[name], new, TIGHT)
        np.testing.assert_allclose(stays.seconds(0), now.seconds(0))
        ladder = np.array([stays.seconds(swaps) for swaps in range(0, stays.most + 1, 20)])
        assert (np.diff(ladder, axis=0) <= 1e-15).all()
        assert stays.seconds(stays.most)[2] < 1e-9 < now.seconds(0)[2]


def test_rows_come_to_dram_that_others_left(running):
    """More time, fewer rows; none where there is no hurry, no placement where there is no time."""
    plan, words, new = running
    slow = sum(Residents(plan, name, words[name], new, TIGHT).seconds(0) for name in plan.tables).max()
    item = replace(plan.tables["item"], by="whole", cards=(0,))     # stays where it is
    roomy = replace(plan, capacity={**plan.capacity, "dram": 10 ** 9}, tables={**plan.tables, "item": item})
    found = [by_leaving(roomy, words, new, part * slow, TIGHT) for part in (1e-3, 0.7, 1.1)]
    assert found[0] is None and found[1] > found[2] == 0
    full = replace(plan, capacity={**plan.capacity, "dram": 1})
    assert by_leaving(full, words, new, 2 * slow, TIGHT) is None


def test_a_product_of_tables_costs_no_more_and_bags_have_none(monkeypatch):
    monkeypatch.setattr(bench.plan, "measure", lambda *_, **__: replace(COSTS, row_s={16: 1.6e-8}))
    by_row, known = rows(1, 0)
    built = with_levels(build(by_row, known, COSTS, cards=2).problem, 2)
    found = joined(built, by_row, known, COSTS)
    for item, now in zip(built.items, found.items, strict=True):
        assert now.dram_s == pytest.approx(max(4 * 1e-9 / CORE_SHARE, 1 / COSTS.clock_hz)) and now.dram_s < item.dram_s
        assert now.in_s == 0 and 0 < now.bags_s < item.bags_s
    assert anywhere(found, COSTS.idle) <= anywhere(built, COSTS.idle) * (1 + 1e-9)
    tables = {name: replace(table, bag_lengths=np.array([1, 2])) for name, table in known.tables.items()}
    for left in (tables, {**tables, "user": known.tables["user"]}):
        assert [now.dram_s for now in joined(built, by_row, replace(known, tables=left), COSTS).items] == [
            item.dram_s for item in built.items], "a table has nobody to be joined with"
