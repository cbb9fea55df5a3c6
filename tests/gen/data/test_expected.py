"""What is expected of rows that a log has and has not, against counting by hand."""

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from gen.data.expected import PARTS, _pooled, expected, expected_counts
from gen.data.profile import Heat, TableProfile
from gen.data.remap import by_heat, row_counts
from gen.model.recommender import TableSpec

BAGS = np.array([1])


def counted(counts, ids=None):
    kept = np.flatnonzero(counts)
    there = np.asarray(counts)[kept]
    numbers = (kept if ids is None else np.asarray(ids)[kept]).astype(np.uint64)
    return TableProfile("t", len(kept), 9, Heat.of(there), BAGS, np.array([9]), numbers, there)


def as_counts(heat):
    return np.repeat(heat.accesses, heat.rows) / PARTS


@pytest.mark.parametrize("policy", ["index", "modulo"])
def test_rows_that_the_log_lacks_share_what_good_and_turing_say(policy):
    counts = [50, 20, 1, 0, 1, 8, 0, 0, 0, 0]       # 2 of 80 accesses to rows seen once
    found = expected(TableSpec("t", 10, 4, policy), counted(counts))
    assert found.unseen == pytest.approx(2 / 80) and found.seen == 5
    wanted = np.sort([*(78 / 80 * np.array([50, 20, 8, 1, 1])), *[2 / 5] * 5])[::-1]
    np.testing.assert_allclose(as_counts(found.heat), wanted, rtol=1e-6)


@pytest.mark.parametrize("rows", [2001, 2500, 10**9])
def test_no_row_is_hotter_than_one_that_the_log_has_once(rows):
    """Each of 2,000 rows once: the log does not say how often any comes again."""
    found = expected(TableSpec("t", rows, 4), counted(np.ones(2000, np.int64)))
    unseen = rows - 2000
    assert found.heat.rows.tolist() == [rows] and found.seen == 2000
    assert found.unseen == pytest.approx(unseen / rows)


def test_rows_of_one_access_are_as_hot_as_those_of_none_where_these_would_be_hotter():
    counts = [40, 5, 2, 1, 1, 1, 1, 1, 1, 0, 0]         # 6 of 53 accesses, for two rows; 3 each
    found = expected(TableSpec("t", 11, 4), counted(counts))
    alike = (6 + 47 / 53 * 6) / 8
    np.testing.assert_allclose(as_counts(found.heat), [47 / 53 * 40, 47 / 53 * 5, 47 / 53 * 2, *[alike] * 8], rtol=1e-6)
    assert found.unseen == pytest.approx(2 * alike / 53)


def test_nothing_is_expected_of_rows_that_there_are_not():
    for counts, rows in (([5, 1, 1], 3), ([5, 2, 2], 9)):      # none unseen, none once
        found = expected(TableSpec("t", rows, 4), counted(counts))
        assert found.unseen == 0 and found.seen == 3 and found.heat.accesses.tolist() == sorted({*counts})[::-1]
    silent = expected(TableSpec("t", 3, 4), counted([0, 0, 0]))
    assert silent.heat.total == 0 == silent.unseen


def test_what_is_expected_of_a_page_fits_a_word():
    """Three rows of all of 2**40 accesses, as they count by their age, and one that is unused."""
    found = expected(TableSpec("t", 4, 4), counted([1 << 40, 1 << 39, 1]))
    assert int(found.heat.accesses.max()) * 1024 < 1 << 63
    np.testing.assert_allclose(found.heat.cdf([1, 2]), [2 / 3, 1], rtol=1e-9)


def test_the_last_row_of_a_vocabulary_is_read_for_all_ids_without_one():
    counts = np.array([3, 2, 1, 1, 20])
    ids = np.array([5, 70, 10**6, 10**12, 10**18])
    table, spec = counted(counts, ids), TableSpec("t", 9, 4, "vocabulary")
    found = expected(spec, table)
    share = 2 / 28
    assert found.unseen == pytest.approx(share)
    wanted = np.sort([*(counts * (1 - share)), share * 27])[::-1]
    np.testing.assert_allclose(as_counts(found.heat), wanted, rtol=1e-4)
    order = by_heat(expected_counts(spec, row_counts(spec, table), table))
    assert order.tolist()[:4] == [4, 0, 8, 1]       # the last of 9 rows is read 1.93 times


def test_a_vocabulary_without_room_shares_the_row_of_its_last_ids():
    counts, ids = np.array([30, 2, 1, 1, 2]), np.array([1, 2, 3, 4, 5]) * 10**9
    table, spec = counted(counts, ids), TableSpec("t", 3, 4, "vocabulary")      # ids 3 to 5 share row 2
    found, share = expected(spec, table), 2 / 37
    np.testing.assert_allclose(as_counts(found.heat), [30 * (1 - share), 4 * (1 - share) + 36 * share, 2 * (1 - share)],
                               rtol=1e-4)
    assert by_heat(expected_counts(spec, row_counts(spec, table), table)).tolist() == [0, 2, 1]


def test_ids_without_a_row_are_expected_though_none_is_seen_once():
    table, spec = counted(np.array([90, 9]), [7, 10**9]), TableSpec("t", 500, 4, "vocabulary")
    found = expected(spec, table)
    assert found.unseen == pytest.approx(0.01) and found.seen == found.heat.touched == 3
    assert by_heat(expected_counts(spec, row_counts(spec, table), table)).tolist()[:3] == [0, 1, 499]


@pytest.mark.parametrize("ids, touched", [("index", 900), ("vocabulary", 4)])
def test_statistics_without_ids(ids, touched):
    table = TableProfile("t", 900, 9, Heat.of([50, 1, 1]), BAGS, np.array([9]))
    found = expected(TableSpec("t", 900, 4, ids), table)
    assert found.heat.touched == touched and found.unseen == pytest.approx(2 / 52 if ids == "index" else 2 / 53)
    assert expected(TableSpec("t", 3, 4, ids), table).unseen == 0
    with pytest.raises(ValueError, match="^table t: the log accesses 3 rows, the model has 2$"):
        expected(TableSpec("t", 2, 4, ids), table)


@pytest.mark.parametrize("slope", [0.0, 1.0, -1.0])
def test_values_are_pooled_as_scipy_pools_them(slope):
    random = np.random.default_rng(4)
    for count in (1, 2, 7, 300):
        wanted = random.standard_normal(count).round(1) + slope * np.arange(count)
        weights = random.integers(1, 1000, count).astype(np.float64)
        by_scipy = isotonic_regression(wanted, weights=weights, increasing=False).x
        np.testing.assert_allclose(_pooled(wanted, weights), by_scipy, rtol=1e-12, atol=1e-12)
