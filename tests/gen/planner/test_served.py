"""A plan and another log than its own: where its accesses go, counted with dictionaries out of the bundle's words."""

from dataclasses import replace

import numpy as np
import pytest

from gen.bundle import write
from gen.data.logs import of_arrays
from gen.data.profiling import profile
from gen.data.profiling.held import Stretch, packed, parted, tail_of
from gen.data.profiling.stream import with_rows
from gen.model.recommender import Recommender, TableSpec
from gen.model.weights import SeededWeights
from gen.planner.planning import make
from gen.planner.served import served
from tests.support.planner_problems import BATCH, FREE_LINK

COSTS = replace(FREE_LINK, dram_bytes=500_000)


def drawn(seed, samples=3000):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 9, samples)
    ids = {"one": random.zipf(1.2, samples) % 900, "bags": random.zipf(1.2, int(lengths.sum())) % 4000,
           "far": (random.zipf(1.3, samples) % 600) * 10**12}
    return of_arrays(ids, {"bags": np.concatenate([[0], np.cumsum(lengths)])})


@pytest.fixture(scope="module")
def model():
    return Recommender("m", "", {"one": TableSpec("one", 900, 64), "bags": TableSpec("bags", 700, 64, "modulo"),
                                 "far": TableSpec("far", 2000, 64, "vocabulary")}, None, BATCH)


@pytest.mark.turns(1, of="searches")
def test_accesses_go_where_the_bundle_has_their_rows(model, tmp_path):
    known, other = profile(drawn(1)), profile(drawn(2))
    plan = make(model, known, COSTS, cards=2, explain=False, hot_share=0.9, seconds=0.5)
    bundle = write(tmp_path / "b", plan, known, SeededWeights(1))
    found = served(plan, known, other, COSTS)
    strange = 0.0
    for name, table in other.tables.items():
        words = bundle.remap(name)(table.ids) >> 30
        wanted = [table.counts[words == place].sum() / table.counts.sum() for place in range(3)]
        np.testing.assert_allclose(found.shares[name], wanted)
        assert wanted[2] > 0
        mine = known.tables[name].ids % (700 if name == "bags" else 2**64 - 1)
        theirs = table.ids % (700 if name == "bags" else 2**64 - 1)
        strange += table.counts[~np.isin(theirs, mine)].sum()
    accesses = sum(table.heat.total for table in other.tables.values())
    assert found.unseen == pytest.approx(strange / accesses) and found.samples == 3000
    assert sum(found.shares[""]) == pytest.approx(1)
    assert found.shares[""][2] == pytest.approx(sum(
        found.shares[name][2] * table.heat.total for name, table in other.tables.items()) / accesses)


@pytest.mark.turns(1, of="searches")
def test_of_its_own_log_a_plan_serves_what_it_says(model):
    known = profile(drawn(1))
    plan = make(model, known, COSTS, cards=2, explain=False, gap=0.05, seconds=0.5)
    found = served(plan, known, known, COSTS)
    assert found.unseen == 0 and found.shares[""][2] <= plan.from_ssd + 1e-9
    assert 0.8 * plan.seconds < found.seconds <= plan.seconds * 1.05


def test_a_log_whose_rows_lie_elsewhere_takes_longer(model):
    known = profile(drawn(1))
    plan = make(model, known, COSTS, cards=2, explain=False, levels=2, hot_share=0.9, seconds=0.5)
    random = np.random.default_rng(3)       # consecutive rows would lie on the same pages
    shifted = profile(of_arrays({"one": 899 - random.permutation(3000) % 400, "bags": random.permutation(12_000) % 4000,
                                 "far": random.permutation(3000) % 600 * 10**12},
                                {"bags": np.arange(0, 12_001, 4)}))
    found, own = (served(plan, known, each, COSTS) for each in (shifted, known))
    assert found.shares[""][2] > own.shares[""][2] and found.seconds > own.seconds > COSTS.drive_s
    with pytest.raises(ValueError, match="^table one: the id 900 "):
        served(plan, known, replace(shifted, tables={**shifted.tables, "one": replace(
            shifted.tables["one"], ids=np.array([900], np.uint64), counts=np.array([3]))}), COSTS)
    with pytest.raises(ValueError, match="^table one: without ids it is not known which rows lie where$"):
        served(plan, replace(known, tables={name: replace(table, ids=None, counts=None)
                                            for name, table in known.tables.items()}), known, COSTS)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_end_of_a_log_is_held_back(share):
    log = drawn(3, 1000)
    head, tail = parted(log, share)
    cut = 1000 - round(1000 * share)
    assert (head.start, head.stop, tail.stop) == (0, cut, 1000)
    for part, first, last in ((head, 0, cut), (tail, cut, 1000)):
        for size in (7, 64, 5000):
            chunks = list(part.chunks(size))
            assert sum(chunk.samples for chunk in chunks) == last - first
            (whole,) = log.chunks(1000)
            for name in log.tables:
                np.testing.assert_array_equal(np.concatenate([chunk.ids[name] for chunk in chunks]),
                                              whole.part(first, last).ids[name])
    known, end = profile(head), profile(tail)
    kept = tail_of(replace(known, extras=packed(end)))
    assert kept.samples == 1000 - cut
    for name, table in end.tables.items():
        assert np.array_equal(kept.tables[name].ids, table.ids)
        assert np.array_equal(kept.tables[name].counts, table.counts)
    some = with_rows(replace(known, extras=packed(end)), {"far": 2000, "one": 900})
    assert np.array_equal(tail_of(some).tables["far"].ids, end.tables["far"].ids)
    assert list(tail_of(some).tables) == ["one", "far"] and tail_of(known) is None


def test_nothing_is_held_back_of_a_short_log():
    for share in (0.1, 0.9):
        with pytest.raises(ValueError, match="^arrays has 3 samples: with a share of 0.[19] held back, [0-3] are"):
            parted(Stretch(drawn(1, 3), 0, 3), share)


@pytest.mark.parametrize("name, array", [
    ("held_samples", np.array([1, 2])), ("held_ids", np.zeros(1)), ("held_ends", np.array([2, 1, 0])),
    ("held_counts", np.array([1, 2])), ("held_counts", np.zeros((2, 2), np.int64))])
def test_extras_that_are_no_tail_wrong(name, array):
    known, end = (profile(part) for part in parted(drawn(3, 100), 0.2))
    with pytest.raises(ValueError, match="^the profile of arrays holds an end of the log that is not of its tables$"):
        tail_of(replace(known, extras={**packed(end), name: array}))
