"""Pages and rows of accesses in their order: against sets, and the core's window."""

from dataclasses import replace

import numpy as np
import pytest

from gen.data.expected import expected
from gen.data.logs import of_arrays
from gen.data.order import ordered
from gen.data.profiling import profile
from gen.model.recommender import TableSpec
from gen.planner import in_order
from gen.planner.costs import drive_reads
from tests.support.planner_problems import BATCH, COSTS

SPEC, PAGE_ROWS, RING = TableSpec("t", 4000, 64), 16, 1 << 14


def drawn(kind, samples=BATCH * 60):
    """Rows that come for a while, numbered as they come or not; or at any time."""
    random = np.random.default_rng(2)
    rows = np.arange(samples) * 3700 // samples + random.integers(0, 300, samples)
    if kind == "permuted":
        rows = random.permutation(4000)[rows]
    return rows if kind != "shuffled" else random.permutation(rows)


def known(kind):
    table = replace(profile(of_arrays({"t": drawn(kind)})).tables["t"], returns=None)
    return replace(expected(SPEC, table, unseen=False), order=ordered(SPEC, table))


@pytest.mark.parametrize("kind", ["rising", "permuted", "shuffled"])
def test_pages_come_as_the_log_brings_them(kind):
    found, rows = known(kind), drawn(kind)
    cuts = np.array([0, 320, 1600, 3200])
    counts = np.bincount(rows, minlength=4000)
    place = np.empty(4000, np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(4000)
    asked = place[rows].reshape(60, BATCH)
    wanted = [np.mean([len(set((batch[batch >= cut] // PAGE_ROWS).tolist())) for batch in asked]) for cut in cuts]
    got = in_order.reads(found, cuts, BATCH, PAGE_ROWS, RING)
    np.testing.assert_allclose(got, wanted, rtol=0.05)
    independent = drive_reads(found.heat, cuts, BATCH, PAGE_ROWS, RING)
    if kind == "shuffled":
        np.testing.assert_allclose(got, independent, rtol=0.05)
    elif kind == "rising":
        assert (got < 0.8 * independent).all()
    # A cut inside a page: the rows behind it fill pages of their own.
    exact = np.mean([len(set(((batch[batch >= 333] - 333) // PAGE_ROWS).tolist())) for batch in asked])
    assert in_order.reads(found, np.array([333]), BATCH, PAGE_ROWS, RING)[0] == pytest.approx(exact, rel=0.05)
    # Twice the batch brings fewer than twice as many, a ring that holds less of it more.
    double, small = (in_order.reads(found, cuts, *each) for each in ((2 * BATCH, PAGE_ROWS, RING), (
        BATCH, PAGE_ROWS, 40)))
    assert (got < double).all() and (double < 2 * got).all() and (small[:2] > got[:2]).all()


def test_fetched_rows_are_counted_in_some_batches_of_many(monkeypatch):
    of = in_order.fetches(SPEC, known("rising"), BATCH, COSTS)[1]
    monkeypatch.setattr(in_order, "BATCHES", 20)
    found = in_order.fetches(SPEC, known("rising"), BATCH, COSTS)[1]
    np.testing.assert_allclose(found[100:], of[100:], rtol=0.1)
    assert (found != of).any()


def test_rows_that_come_again_soon_are_fetched_once():
    random = np.random.default_rng(4)
    rows = np.repeat(random.integers(0, 4000, BATCH * 10), 6)
    table = replace(profile(of_arrays({"t": rows})).tables["t"], returns=None)
    found = replace(expected(SPEC, table, unseen=False), order=ordered(SPEC, table))
    cuts = np.array([0, 1000, 4000])
    got = np.interp(cuts, *in_order.fetches(SPEC, found, BATCH, COSTS))
    assert got[0] == 0 and got[2] == pytest.approx(BATCH / 6, rel=0.03) and (np.diff(got) > 0).all()
    plain = in_order.fetches(SPEC, replace(found, order=None), BATCH, COSTS)
    assert plain[1][-1] > 5 * got[2]
    both = replace(SPEC, columns=("a", "b"))
    np.testing.assert_equal(in_order.fetches(both, found, BATCH, COSTS),
                            in_order.fetches(both, replace(found, order=None), BATCH, COSTS))


def test_few_samples_say_little():
    """Ten samples, whose cold rows come by chance or not: nearly what independent accesses bring."""
    table = profile(of_arrays({"t": np.arange(10) * 50})).tables["t"]
    found = replace(expected(SPEC, table, unseen=False), order=ordered(SPEC, table))
    cuts = np.array([0, 5])
    quotient = (in_order.reads(found, cuts, 4, PAGE_ROWS, RING) / drive_reads(found.heat, cuts, 4, PAGE_ROWS, RING))
    assert (abs(quotient - 1) < 0.5).all()
    assert in_order.quotients(None, 3, 4.0, PAGE_ROWS, SPEC, COSTS) == (1.0, 1.0)
