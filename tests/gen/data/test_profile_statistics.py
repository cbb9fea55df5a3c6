"""Profiles from published statistics: every number that is published comes out again."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from gen.data.logs.criteo import BLOCK, ClickLog, drawn
from gen.data.profile import Heat
from gen.data.profiling.criteo import criteo
from gen.data.profiling.mels import PUBLISHED, mels, read_locality

DATA = Path(os.environ.get("HOTRAIL_DATA", "no folder"))
KAGGLE = DATA / "criteo_kaggle_calibration.json"
needs_data = pytest.mark.skipif(not KAGGLE.exists(), reason="HOTRAIL_DATA does not name a folder with the statistics")


def stats(year):
    return DATA / "mels_stats" / f"locality_stats_{year}.txt"


def test_heat_of_counts_and_of_pairs():
    random = np.random.default_rng(3)
    counts = random.zipf(1.3, 5000).clip(0, 10**6) * random.integers(0, 2, 5000)
    levels, rows = np.unique(counts[counts > 0], return_counts=True)
    for heat in (Heat.of(counts), Heat.joined(counts, np.ones(5000)), Heat.joined(levels.repeat(2), rows.repeat(2))):
        factor = 2 if heat.touched > len(counts[counts > 0]) else 1
        assert heat.accesses.tolist() == levels[::-1].tolist()
        assert heat.rows.tolist() == (factor * rows[::-1]).tolist()
        assert heat.accesses.dtype == heat.rows.dtype == np.int64
    assert Heat.of([]).total == Heat.joined([0, 3], [4, 0]).total == 0


@needs_data
@pytest.mark.parametrize("year, tables, pooling", [(2021, 856, 8.34), (2022, 788, 13.60)])
def test_mels_is_as_published(year, tables, pooling):
    """Against the file's own text, read here by other means, and SCRec's table III."""
    profile = mels(stats(year))
    text = stats(year).read_text("utf-8")
    at = next(found.start() for found in re.finditer(r"^fbgemm.*_0\.pt$", text, re.M))
    section = text[at:].splitlines()
    indices, touched = int(section[2].split()[-1]), int(section[3].split()[-1])
    assert len(profile.tables) == tables and profile.samples == int(section[1].split()[-1])
    each = profile.tables.values()
    assert sum(table.heat.total for table in each) == indices
    assert sum(table.heat.touched for table in each) == touched
    assert sum(table.rows for table in each) == PUBLISHED[year].average_rows * tables
    factors = np.array([table.pooling for table in each])
    assert round(float(factors.mean()), 2) == pytest.approx(pooling, abs=0.011)
    assert round(float(factors.max())) == PUBLISHED[year].largest and factors.min() < 1
    assert np.median(factors) < 0.7 * factors.mean()
    for table in each:
        assert table.rows >= table.heat.touched and table.bag_samples.sum() == profile.samples
        assert table.bag_lengths @ table.bag_samples == table.heat.total
        assert (np.diff(table.heat.accesses) < 0).all() and (table.heat.rows > 0).all()
        assert table.heat.accesses[0] <= profile.samples
    heat = Heat.joined(np.concatenate([table.heat.accesses for table in each]),
                       np.concatenate([table.heat.rows for table in each]))
    edges = [0] + [1 << bit for bit in range(16)] + [10**9]
    for name, weights, total in (("rows", heat.rows, touched), ("accesses", heat.rows * heat.accesses, indices)):
        start = 6 if name == "rows" else next(n for n, line in enumerate(section) if "Ratio" in line) + 1
        wanted = [float(line.split(": ")[1]) for line in section[start:start + 17]]
        found = np.histogram(heat.accesses, np.array(edges) + 0.5, weights=weights)[0] / total
        assert np.abs(found - wanted).max() < 1e-3, name


@needs_data
def test_mels_seeds():
    one, same, other = (mels(stats(2021), seed=seed) for seed in (1, 1, 2))
    rows = [[table.rows for table in profile.tables.values()] for profile in (one, same, other)]
    assert rows[0] == rows[1] != rows[2]


def test_no_statistics_at_all(tmp_path):
    with pytest.raises(ValueError, match=r"stats\.txt: the file's name must have the year, one of 2021, 2022"):
        mels(tmp_path / "stats.txt")
    with pytest.raises(ValueError, match="cannot be read: .*No such file"):
        mels(tmp_path / "of_2021.txt")
    (tmp_path / "of_2021.txt").write_text("fbgemm_t856_bs65536_0.pt\nAvg # of indices: 5\n", "utf-8")
    with pytest.raises(ValueError, match="has no locality statistics; each section begins with"):
        read_locality(tmp_path / "of_2021.txt")


@needs_data
def test_criteo_in_full():
    profile = criteo(KAGGLE)
    known = json.loads(KAGGLE.read_text("utf-8"))
    assert profile.samples == known["n_samples"] == 45_840_617
    assert sum(table.rows for table in profile.tables.values()) == 33_762_577
    for name, table in profile.tables.items():
        knots = known["tables"][name]
        assert table.rows == knots["rows"] and table.heat.total == profile.samples and table.pooling == 1
        assert table.heat.touched == knots["knots_rank"][-1]
        if knots["rows"] < 10_000:      # the head of a large table gives way to its many rows of one access
            counts = np.repeat(table.heat.accesses, table.heat.rows)[:len(knots["knots_rank"])]
            assert table.heat.accesses[0] == pytest.approx(knots["knots_count_in_45840617"][0], rel=0.45), name
            assert (np.diff(counts) <= 0).all()
    all_rows = Heat.joined(np.concatenate([table.heat.accesses for table in profile.tables.values()]),
                           np.concatenate([table.heat.rows for table in profile.tables.values()]))
    # The top 0.14 % of rows take 90 % of accesses (frequency-aware cache, on the real log).
    assert float(all_rows.cdf(0.0014 * 33_762_577)) == pytest.approx(0.90, abs=0.015)


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"n_samples": 60_000, "tables": {
        "A": {"rows": 20_000, "knots_rank": [1, 2, 10, 15_000], "knots_count_in_60000": [9000, 5000, 800, 1]},
        "B": {"rows": 4, "knots_rank": [1, 2, 3], "knots_count_in_60000": [36_000, 18_000, 6000]}}}), "utf-8")
    return path


def test_expected_is_what_is_drawn(small):
    """CDF of the expectation beside one drawn log's."""
    expected = criteo(small)
    log = drawn(ClickLog(small, seed=5, correlated=()), 60_000)
    ids = {name: np.concatenate([chunk.ids[name] for chunk in log.chunks(7000)]) for name in log.tables}
    for name, table in expected.tables.items():
        found = Heat.of(np.bincount(ids[name].astype(np.int64)))
        ranks = np.array([1, 2, 10, 100])     # further on luck makes rows hotter than they are
        assert np.abs(found.cdf(ranks) - table.heat.cdf(ranks)).max() < 0.02, name
    assert expected.tables["A"].heat.touched == 15_000 and expected.tables["A"].rows == 20_000
    assert expected.tables["B"].heat.accesses.tolist() == [36_000, 18_000, 6000]
    assert criteo(small, samples=30_000).tables["A"].heat.total == 30_000
    with pytest.raises(ValueError, match="A has 15,000 rows with accesses, more than the 9,000 samples"):
        criteo(small, samples=9000)


def test_drawn_log_streams(small, monkeypatch):
    """In chunks and in pieces the samples of the ClickLog itself."""
    source = ClickLog(small, seed=5, correlated=())
    monkeypatch.setattr("gen.data.logs.criteo.PART", BLOCK // 2)
    told = []
    log = drawn(source, BLOCK + 100, progress=lambda done, of: told.append((done, of)))
    assert len(log.parts()) == 3 and log.tables == ("A", "B")
    wanted = np.concatenate(list(source.blocks(BLOCK + 100)))
    for read in (log.chunks(10_000), (chunk for part in log.parts() for chunk in part.chunks())):
        chunks = list(read)
        assert sum(chunk.samples for chunk in chunks) == BLOCK + 100
        for number, name in enumerate(log.tables):
            assert np.array_equal(np.concatenate([chunk.ids[name] for chunk in chunks]), wanted[:, number])
    assert told[-1] == (log.bytes, log.bytes) and told == sorted(told)
