"""What is expected until the next refresh: against counting by hand, and against the samples that follow."""

from dataclasses import replace

import numpy as np
import pytest

from gen.data.logs import of_arrays
from gen.data.profiling import profile
from gen.data.profiling.held import parted
from gen.data.profiling.stream import with_rows
from gen.data.returns import PLACES
from gen.model.recommender import Recommender, TableSpec
from gen.planner.horizon import EVERY, _cold, horizon_of, schedule
from gen.planner.plan import Plan
from gen.planner.planning import make
from gen.planner.served import served
from tests.support.planner_problems import BATCH, COSTS

ROWS, SAMPLES = 3000, 40_000
MODEL = Recommender("m", "", {"t": TableSpec("t", ROWS, 64)}, None, BATCH)
LIMITED = replace(COSTS, dram_bytes=ROWS * 256 // 4 + 2 * BATCH * 8 * 64)


@pytest.fixture(scope="module")
def log():
    """Rows that come for a while, and hot ones that stay."""
    random = np.random.default_rng(2)
    newest = np.arange(SAMPLES) * (ROWS - 300) // SAMPLES
    passing = newest - random.integers(0, 200, SAMPLES).clip(max=newest) + 300
    rows = np.where(random.random(SAMPLES) < 0.8, random.zipf(1.2, SAMPLES) % 300, passing)
    return of_arrays({"t": random.permutation(ROWS)[rows]})


def planned(log, horizon):
    known = with_rows(profile(log), {"t": ROWS}).expecting(horizon)
    return make(MODEL, known, LIMITED, cards=1, levels=2, seconds=0.3, explain=False), known


def test_what_follows_is_within_the_range(log, tmp_path):
    first, second = parted(log, 0.5)
    plan, known = planned(first, 1.0)
    found = horizon_of(plan, known, LIMITED)
    later = with_rows(profile(second), {"t": ROWS})
    asked = served(plan, known, later, LIMITED).shares[""][2]
    assert found.samples == SAMPLES / 2 and found.low <= asked <= found.high and 0.03 < found.high - found.low < 0.081
    # More of what is asked for is new, the later the refresh is.
    assert [each.samples for each in found.every] == [round(share * SAMPLES / 2) for share in EVERY]
    for name in ("ssd_share", "seconds"):
        assert getattr(found.every[-1], name) > getattr(found.every[0], name)
    assert found.every[3].seconds == pytest.approx(plan.seconds)
    plan = replace(plan, horizon=found)
    plan.save(tmp_path)
    assert Plan.load(tmp_path).horizon == found
    assert schedule(plan, 0.0) >= found.every[0].samples and schedule(plan, 1e9) == found.every[-1].samples
    assert schedule(replace(plan, horizon=None), 0.05) is None
    # A batch that is slow in between ends it, though a later one is quick again.
    slow = [replace(each, seconds=plan.seconds * times)
            for each, times in zip(found.every, (1, 1.01, 1.2, 1.01, 1.01), strict=True)]
    assert schedule(replace(plan, horizon=replace(found, every=tuple(slow))), 0.05) == found.every[1].samples


def test_nothing_is_said_of_a_log_that_says_nothing(log):
    plan, known = planned(log, 0.25)
    silent = replace(known, tables={"t": replace(known.tables["t"], returns=None)})
    assert horizon_of(plan, silent, LIMITED) is None
    everything = make(MODEL, known, COSTS, cards=1, levels=2, seconds=0.3, explain=False)
    found = horizon_of(everything, known, COSTS)
    assert everything.from_ssd == found.low == found.high == 0


def test_rows_on_the_ssd_by_hand(log):
    """All rows of the log in DRAM, or half of them; rows that it lacks come before or behind."""
    plan, known = planned(parted(log, 0.5)[0], 1.0)
    table, returns, spec = known.tables["t"], known.tables["t"].returns, MODEL.tables["t"]
    counts, seen = np.sort(table.counts)[::-1], table.heat.touched
    alone = returns.once / returns.before
    raw = returns.after[1] / returns.whole[1]
    unseen = 1 - raw[-1] + alone[-1] - alone[1]

    def cold(rows, returns=returns, **changed):
        tier = replace(plan.tables["t"].dram, rows=rows)
        placed = replace(plan.tables["t"], dram=tier, spare=0, tt=replace(tier, rows=0))
        return _cold(replace(spec, **changed), placed, table, returns, 0.5)

    assert cold(ROWS) == 0 and cold(0) == pytest.approx(1)
    assert ROWS - seen > 500 and 0.02 < unseen < 0.3
    place = (9 / seen + counts[:9].sum() / counts.sum()) / 2
    wanted = 1 - np.interp(place, PLACES, raw) * (1 - unseen) / raw[-1] - unseen
    assert cold(10, ids="vocabulary") == pytest.approx(wanted, abs=0.02)
    assert cold(10, ids="modulo") == 0.5
    assert cold(100, None) == pytest.approx(1 - counts[:100].sum() / counts.sum())
