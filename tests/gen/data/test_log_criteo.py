"""Click logs drawn from a calibration: what they reproduce, and that the same seed is the same log."""
import json
import os
from pathlib import Path

import numpy as np
import pytest

from gen.data.logs.criteo import BLOCK, CORRELATED, ClickLog, Table

KAGGLE = Path(os.environ.get("HOTRAIL_DATA", "")) / "criteo_kaggle_calibration.json"
needs_kaggle = pytest.mark.skipif("HOTRAIL_DATA" not in os.environ or not KAGGLE.exists(),
                                  reason="HOTRAIL_DATA does not name a folder with the calibration")


@pytest.fixture
def small(tmp_path):
    """Three tables: a head and a tail, knots at every rank, one row."""
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"n_samples": 1000, "tables": {
        "A": {"rows": 5000, "knots_rank": [1, 2, 10, 4000], "knots_count_in_1000": [300, 200, 20, 0.1]},
        "B": {"rows": 4, "knots_rank": [1, 2, 3], "knots_count_in_1000": [600, 300, 100]},
        "C": {"rows": 1, "knots_rank": [1], "knots_count_in_1000": [1000]}}}), "utf-8")
    return path


def test_table_is_the_sum_over_its_ranks():
    """Shares and ranks against the accesses of every rank, summed one by one."""
    ranks, counts = [1, 2, 3, 50, 2000], [900.0, 500.0, 400.0, 10.0, 1.0]
    table = Table.through("t", 3000, ranks, counts)
    every = np.exp(np.interp(np.log(np.arange(1, 2001)), np.log(ranks), np.log(counts)))
    share = np.concatenate([[0], np.cumsum(every) / every.sum()])
    assert np.allclose(table.before(np.arange(2001)), share, atol=4e-3)
    assert table.before(3000) == 1
    uniform = (np.arange(200_000) + 0.5) / 200_000
    drawn = np.bincount(table.rank(uniform), minlength=2000) / 200_000
    assert np.allclose(np.cumsum(drawn), table.before(np.arange(1, 2001)), atol=1e-5)
    assert table.rank(np.array([0.0, np.nextafter(1, 0)])).tolist() == [0, 1999]


def test_knots_at_every_rank_are_exact():
    table = Table.through("t", 3, [1, 2, 3], [6, 3, 1])
    assert np.allclose(table.before(np.arange(4)), [0, 0.6, 0.9, 1])
    assert table.rank(np.array([0, 0.59, 0.61, 0.89, 0.91])).tolist() == [0, 0, 1, 1, 2]


def test_a_seed_is_a_log(small):
    """In any pieces, from any sample on; another seed is another log."""
    log = ClickLog(small, seed=3, correlated=())
    whole = np.concatenate(list(log.blocks(BLOCK + 100)))
    assert whole.shape == (BLOCK + 100, 3) and whole.dtype == np.int64
    assert (whole >= 0).all() and (whole < log.rows).all() and not whole[:, 2].any()
    assert np.array_equal(np.concatenate(list(ClickLog(small, seed=3, correlated=()).blocks(50, BLOCK - 20))),
                          whole[BLOCK - 20:BLOCK + 30])
    assert not np.array_equal(next(ClickLog(small, seed=4, correlated=()).blocks(1000))[:, 0], whole[:1000, 0])
    assert list(log.blocks(0)) == []


def test_rows_are_the_ranks_scattered(small):
    log = ClickLog(small, seed=3, correlated=())
    for table, rows in enumerate(log.rows):
        assert sorted(log.row(table, np.arange(rows)).tolist()) == list(range(rows))
    assert abs(np.diff(log.row(0, np.arange(20)))).min() > 100


def test_groups_share_how_rare_rows_are(small):
    apart, joined = (next(ClickLog(small, correlated=groups).ranks(20_000)) for groups in ((), (("A", "B"),)))
    assert abs(np.corrcoef(apart[:, 0] > 1, apart[:, 1] > 0)[0, 1]) < 0.05
    # B's rank 0 takes .6 of the draws: exactly those that are the lowest in A.
    assert joined[joined[:, 1] == 0, 0].max() <= joined[joined[:, 1] > 0, 0].min()
    for column in range(2):
        assert np.allclose(np.bincount(apart[:, column], minlength=9)[:3],
                           np.bincount(joined[:, column], minlength=9)[:3], rtol=0.1)


def test_hottest_of_all_tables(small):
    log = ClickLog(small, correlated=())
    assert log.hottest(1).tolist() == [0, 0, 1] and log.hottest(3).tolist() in ([1, 1, 1], [0, 2, 1])
    every = np.concatenate([np.diff(table.before(np.arange(table.rows + 1))) for table in log.tables])
    for rows in (10, 200, 3000):
        hot = log.hottest(rows)
        taken = sum(float(table.before(int(count))) for table, count in zip(log.tables, hot))
        assert hot.sum() == rows and taken == pytest.approx(np.sort(every)[::-1][:rows].sum(), rel=2e-3)


@pytest.mark.parametrize("change,sentence", [
    ("no json", "is no calibration: Expecting value"),
    ('[{"user_id": 1}]', "is an array of JSON; of JSON, logs are lines, an object in each: `jq -c '.[]' "),
    ("{}", "lacks tables with rows, knots_rank and knots_count"),
    ('{"tables": {"A": {"rows": 3, "knots_rank": [1]}}}', "lacks tables with rows, knots_rank and knots_count"),
    ('{"tables": {"A": {"rows": 3, "knots_rank": [2, 3], "knots_count": [2, 1]}}}',
     "A: the ranks of knots must rise from 1 to at most 3, the table's rows"),
    ('{"tables": {"A": {"rows": 3, "knots_rank": [1, 3], "knots_count": [1, 2]}}}',
     "A: the accesses of knots must fall with the rank and be above 0"),
])
def test_wrong_calibrations(tmp_path, change, sentence):
    path = tmp_path / "wrong.json"
    path.write_text(change, "utf-8")
    with pytest.raises(ValueError) as caught:
        ClickLog(path, correlated=())
    assert sentence in str(caught.value)


@pytest.mark.parametrize("groups,sentence", [
    ((("A", "X"),), "has no table 'X'; it has A, B, C"),
    ((("A", "B"), ("B",)), "the table 'B' is in a group twice"),
])
def test_wrong_groups(small, groups, sentence):
    with pytest.raises(ValueError) as caught:
        ClickLog(small, correlated=groups)
    assert sentence in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match="nothing.json is no calibration: .*No such file"):
        ClickLog(tmp_path / "nothing.json")


@needs_kaggle
def test_criteo_kaggle_as_published():
    """33.76 M rows; .14 % of them take 90 % of all accesses; of the samples about 3 in 4 have common rows alone where
    rare ones come together, far fewer where they do not; no more in a table than its knots say."""
    rates = {}
    for groups in (CORRELATED, ()):
        log = ClickLog(KAGGLE, correlated=groups)
        assert len(log.tables) == 26 and sum(log.rows) == 33_762_577
        hot = log.hottest(1 << 22)      # 256 MB of 64 bytes
        assert hot.sum() == 1 << 22
        drawn = np.concatenate(list(log.ranks(100_000)))
        rates[bool(groups)] = (drawn < hot).all(axis=1).mean()
        top = log.hottest(round(0.0014 * sum(log.rows)))
        assert (drawn < top).mean() == pytest.approx(0.90, abs=0.015)
        for number, table in enumerate(log.tables):
            share = [float(table.before(rank)) for rank in (1, 10, 1000)]
            assert np.allclose([(drawn[:, number] < rank).mean() for rank in (1, 10, 1000)], share, atol=0.01)
    assert rates[True] == pytest.approx(0.72, abs=0.02) and rates[False] == pytest.approx(0.35, abs=0.02)
