"""Popular rows are the logger's, samples are told by them, and sizes fit their memory."""

import numpy as np
import pytest

from gen.data.profile import Heat, Profile, TableProfile
from gen.training.popular import Popular
from gen.training.workload import hottest, sizes


def bags(random, samples):
    items = np.minimum(random.zipf(1.3, 3 * samples), 5000) - 1
    return [("item", items, np.full(samples, 3)), ("day", random.integers(0, 7, samples), np.ones(samples, np.int64))]


def test_rows_that_are_accessed_most_are_popular():
    random = np.random.default_rng(1)
    popular = Popular({"item": 5000, "day": 7}, {"item": 300, "day": 7})
    assert not len(popular.of("item")) and len(popular.of("day")) == 7
    seen, later = bags(random, 3000), bags(random, 500)
    popular.learn(seen)
    counts = np.bincount(seen[0][1], minlength=5000)
    found = popular.of("item")
    assert len(found) == 256, "what a logger of whole powers of two holds"
    assert counts[found].sum() >= 0.97 * np.sort(counts)[-256:].sum()
    told = popular.samples(later)
    assert np.array_equal(told, np.isin(later[0][1].reshape(-1, 3), found).all(1)) and 0.3 < told.mean() < 0.95
    popular.learn(bags(np.random.default_rng(1), 3000)[::-1])
    assert np.array_equal(popular.of("item"), found)


def test_no_table_has_more_than_it_may():
    popular = Popular({"one": 4000, "other": 4000}, {"one": 20, "other": 400})
    popular.learn([(name, np.arange(3000) % 300, np.full(1000, 3)) for name in ("one", "other")])
    assert len(popular.of("one")) == 20 and 20 < len(popular.of("other")) <= 400


def test_wrong():
    with pytest.raises(ValueError, match="table one: popular rows -1 must be 0 or more"):
        Popular({"one": 9}, {"one": -1})
    with pytest.raises(IndexError, match="table one: index 9 is none of its 9 rows"):
        Popular({"one": 9}, {"one": 3}).samples([("one", np.array([9]), np.array([1]))])


def test_sizes_fit_the_memory():
    random = np.random.default_rng(4)
    tables = {}
    for name, rows in (("a", 40_000), ("b", 50)):
        counts = np.bincount(random.zipf(1.2, 60_000) % rows, minlength=rows)
        tables[name] = TableProfile(name, rows, 30_000, Heat.of(counts), np.array([2]), np.array([30_000]))
    profile = Profile("a log", 30_000, tables)
    kept = hottest(profile, 1000)
    assert sum(kept.values()) == 1000
    found = sizes(profile, memory_bytes=1 << 20, dim=8, activations=40)
    assert 256 <= found.batch <= 8192
    assert sum(found.cache_rows.values()) * 8 * 4 + found.batch * 40 * 4 <= 1 << 20
    assert all(found.popular[name] <= found.cache_rows[name] <= tables[name].rows for name in tables)
    with pytest.raises(ValueError, match="memory of 1,024 words does not hold a batch of 256"):
        sizes(profile, memory_bytes=1 << 12, dim=8, activations=40)
