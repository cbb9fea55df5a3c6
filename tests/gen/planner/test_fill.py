"""The DRAM that the optimum leaves, filled: with which rows, and what it brings."""

from dataclasses import replace

import numpy as np
import pytest

from gen.bundle import write
from gen.compress.post_hoc import tt_rows
from gen.data.expected import expected_counts
from gen.data.logs import of_arrays
from gen.data.profiling import profile
from gen.data.remap import DRAM, SSD, TT, by_heat
from gen.model.recommender import Recommender, TableSpec
from gen.model.weights import SeededWeights
from gen.planner.planning import make
from tests.support.planner_problems import BATCH, COSTS, FREE_LINK


def uniform(rows=20_000, samples=20_000, **tables):
    """A log of equally hot rows; in half of it there are not all of them."""
    random = np.random.default_rng(4)
    return profile(of_arrays({"t": random.integers(0, rows, samples)}))


def planned(model, known, costs, **more):
    return make(model, known, costs, explain=False, **{"cards": 1, **more})


def test_rows_that_the_log_lacks_lie_in_dram_where_there_is_room():
    known = uniform()
    model = Recommender("m", "", {"t": TableSpec("t", 20_000, 64)}, None, BATCH)
    missing = 20_000 - known.tables["t"].heat.touched
    plan = planned(model, known, COSTS)
    assert missing > 5000 and plan.tables["t"].dram_rows == 20_000 and plan.from_ssd == 0 == plan.cards[0].ssd.seconds
    assert 0.25 < plan.unseen < 0.4       # e^-1 of the accesses


def test_as_many_rows_as_fit_and_the_rest_is_priced():
    """Equally hot rows, DRAM for half of them: half of the accesses go to the SSD, not all."""
    known = uniform()
    model = Recommender("m", "", {"t": TableSpec("t", 20_000, 64)}, None, BATCH)
    bags = 2 * BATCH * (256 + 4 * 2) + 20 * 64     # vectors, indices and lengths of two batches
    plan = planned(model, known, replace(COSTS, dram_bytes=10_000 * 256 + bags + 255), levels=2)
    table = plan.tables["t"]
    assert table.dram_rows == 10_000 and table.ssd_rows == 10_000 and plan.cards[0].dram.bytes <= plan.capacity["dram"]
    # The log's hottest half is a little hotter than half: some rows came twice by chance.
    assert 0.2 < plan.from_ssd < 0.5 and plan.from_ssd == pytest.approx(table.ssd.accesses / BATCH)
    assert table.dram.accesses + table.ssd.accesses == pytest.approx(BATCH)
    assert plan.cards[0].ssd.seconds > COSTS.drive_s and plan.bound <= plan.seconds


def test_rows_that_nobody_reads_come_last_and_none_leaves_the_ssd_that_may_not():
    random = np.random.default_rng(6)
    ids = {"a": np.repeat(np.arange(50), 40), "b": random.zipf(1.2, 2000) % 4000}
    known = profile(of_arrays(ids))
    model = Recommender("m", "", {"a": TableSpec("a", 30_000, 64), "b": TableSpec("b", 4000, 64)}, None, BATCH)
    plan = planned(model, known, replace(COSTS, dram_bytes=4 << 20), levels=2)
    assert plan.tables["b"].dram_rows == 4000, "rows of b are expected to be read, those of a past 50 are not"
    assert 50 < plan.tables["a"].dram_rows < 30_000 and plan.from_ssd == 0
    assert plan.capacity["dram"] - plan.cards[0].dram.bytes < 256
    assert plan.cards[0].full == ()     # what is taken of it is not needed
    kept = planned(model, known, COSTS, levels=2, hot_share=0.5)
    assert kept.from_ssd == pytest.approx(0.5, abs=0.01)
    assert planned(model, known, COSTS, levels=1).from_ssd == 1


def test_spare_rows_lie_behind_the_train_and_the_bundle_puts_them_there(tmp_path):
    random = np.random.default_rng(7)
    known = profile(of_arrays({"t": random.zipf(1.2, 9000) % 3000}))
    model = Recommender("m", "", {"t": TableSpec("t", 3000, 64, tt_share=0.1)}, None, BATCH)
    costs = replace(FREE_LINK, dram_bytes=1050 * 256)
    plan = planned(model, known, costs)
    table = plan.tables["t"]
    assert table.tt_rows and table.spare and table.ssd_rows and table.dram_rows > table.spare
    bundle = write(tmp_path / "b", plan, known, SeededWeights(3))
    place = bundle.words("t") >> 30
    counts = np.zeros(3000, np.int64)
    counts[known.tables["t"].ids.astype(np.int64)] = known.tables["t"].counts
    order = by_heat(expected_counts(model.tables["t"], counts, known.tables["t"]))
    wanted = np.repeat([DRAM, TT, DRAM, SSD], np.diff([0, *table.ends, 3000]))
    np.testing.assert_array_equal(place[order], wanted)
    images = bundle.images(0)
    numbers = bundle.words("t")[order[place[order] == DRAM]] & (1 << 30) - 1
    rows = images.placed["t"].read(images.rows, numbers)[:, :64]
    np.testing.assert_array_equal(rows.view(np.float32),
                                  SeededWeights(3).rows(model.tables["t"], order[place[order] == DRAM]))


@pytest.mark.turns(1, of="searches")
def test_a_plan_is_no_slower_for_what_is_filled():
    """Of random tables and rooms: every card within its room, which is used, times those of its rows."""
    several = 0
    for seed in range(4):
        random = np.random.default_rng(seed)
        ids = {f"t{j}": random.zipf(1.1 + random.random(), 3000) % int(random.integers(10, 9000)) for j in range(1, 4)}
        # The first table takes most of the time and little room: cards share its samples, and all have rows to fill in.
        ids["t0"] = random.zipf(1.3, 3000 * 40) % 200
        known = profile(of_arrays(ids, {"t0": np.arange(3001) * 40}))
        model = Recommender.of("m", {name: int(each.max()) + int(random.integers(1, 5000))
                                     for name, each in ids.items()}, 64, batch=BATCH)
        plan = planned(model, known, replace(COSTS, dram_bytes=int(random.integers(900_000, 3_000_000))), cards=2,
                       seconds=0.1)
        free = [plan.capacity["dram"] - card.dram.bytes for card in plan.cards]
        assert min(free) >= 0
        several += sum(len(table.cards) > 1 and table.ssd_rows > 0 for table in plan.tables.values())
        for table in plan.tables.values():
            if table.ssd_rows:
                assert min(free[card] for card in table.cards) < 256
        assert plan.seconds == pytest.approx(max(card.seconds for card in plan.cards)) and plan.bound <= plan.seconds
    assert several


@pytest.mark.turns(3)
@pytest.mark.parametrize("dim, columns", [(10, 16), (12, 16), (18, 32), (20, 32), (24, 32), (40, 48), (50, 64),
                                          (100, 112), (200, 208), (300, 304)])
def test_a_train_of_whole_beats_where_the_width_itself_has_none(dim, columns, tmp_path):
    """From a plan to the bundle's words: the tensor train stands for the rows and zeros behind them."""
    random = np.random.default_rng(7)
    known = profile(of_arrays({"t": random.zipf(1.2, 9000) % 900}))
    model = Recommender("m", "", {"t": TableSpec("t", 900, dim, tt_share=0.3)}, None, BATCH)
    beats = -(-dim // 16)
    costs = replace(FREE_LINK, row_s={beats: beats * 20e-9})
    plan = planned(model, known, costs, tt_gain=0.0)
    table = plan.tables["t"]
    assert table.tt_rows > 10 and np.prod(table.column_modes) == columns
    bundle = write(tmp_path / "b", plan, known, SeededWeights(3))
    words = bundle.words("t")
    there = np.flatnonzero(words >> 30 == TT)
    rows = tt_rows(bundle.cores("t"), words[there] & (1 << 30) - 1)
    own = SeededWeights(3).rows(model.tables["t"], there)
    assert rows.shape == (len(there), columns)
    error = np.linalg.norm(rows[:, :dim] - own) / np.linalg.norm(own)
    assert bundle.tables["t"]["error"] == pytest.approx(error) and 0 < error < 1
    assert np.linalg.norm(rows[:, dim:]) < 0.2 * np.linalg.norm(own)
    assert bundle.images(0).placed["t"].tt_rows >= len(there)
