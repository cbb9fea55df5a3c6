"""Batches that are drawn from statistics go where the plan has their rows."""

import numpy as np
import pytest

from bench.mels_twin import blank, drawn
from gen.data.profile import Heat, TableProfile
from gen.data.remap import numbered
from gen.planner.plan import PlanTable, Tier

pytestmark = pytest.mark.regress

TABLE = PlanTable("t", (0,), Tier(12), Tier(6), Tier(22), (2, 3, 1), (2, 2, 4), (2, 2), spare=4)
KNOWN = TableProfile("t", 40, 1000, Heat.of(np.arange(80, 40, -1) ** 2 // 20), np.zeros(0, np.int64),
                     np.zeros(0, np.int64))


def test_rows_lie_where_the_plan_has_them():
    found = drawn(TABLE, KNOWN, 500, np.random.default_rng(2))
    again, order = np.random.default_rng(2), np.arange(40)
    lengths = np.floor(KNOWN.pooling + again.random(500)).astype(np.int64)
    rank = KNOWN.heat.drawn(int(lengths.sum()), again)
    assert found.remapped and np.array_equal(np.diff(found.offsets), lengths)
    assert abs(lengths.mean() - KNOWN.pooling) < 0.1 and len(np.unique(rank)) == 40
    np.testing.assert_array_equal(found.indices, numbered(TABLE.devices(order), order)[rank])


def test_a_blank_table_has_the_plans_rows_and_no_contents():
    table = blank(TABLE, 16, np.random.default_rng(1))
    assert (len(table.dram), len(table.ssd), table.tt_rows, table.tt_dim) == (12, 22, 6, 16)
    assert [core.shape for core in table.cores] == [(1, 2, 2, 2), (2, 3, 2, 2), (2, 1, 4, 1)]
    assert not np.any(table.dram) and table.ssd.strides[0] == 0
