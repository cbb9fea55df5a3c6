"""gen.planner.window beside the golden window, which counts row by row what it fetches."""

import numpy as np
import pytest
from scipy.optimize import brentq

from gen.data.profile import Heat
from gen.planner.window import _reached, fetches, joint, kept_rows
from gen.rtl import config
from golden.emb.rows import window

CORE = config.load("smartssd").cores["emb"]


def shares(rows, exponent):
    """Zipf's; 0: uniform."""
    found = 1 / np.arange(1, rows + 1) ** exponent
    return found / found.sum()


def counted(core, row_beats, share, lookups, random):
    """Fetches of a run, rows of the table in any order."""
    places = random.permutation(len(share))[random.choice(len(share), lookups, p=share)] * row_beats
    beats = np.full(lookups, row_beats)
    source, _, _ = window(places, beats, beats, np.ones(lookups, bool), core.window_beats, core.window_sets)
    return int((source == np.arange(lookups)).sum())


@pytest.mark.turns(4)
@pytest.mark.parametrize("row_beats", [1, 4])
@pytest.mark.parametrize(("rows", "exponent"), [(30, 0), (1000, 0), (3000, 0), (20_000, 0), (3000, 1.05),
                                                (20_000, 0.8), (100_000, 1.05)])
def test_rows_are_fetched_as_the_window_finds_them(rows, exponent, row_beats):
    random, share = np.random.default_rng(rows), shares(rows, exponent)
    for lookups in (256, 2048, 30_000):
        found = fetches(CORE, row_beats, share, np.ones(rows, np.int64), lookups)
        assert found.sum() == pytest.approx(counted(CORE, row_beats, share, lookups, random), rel=0.1)
        assert (found <= lookups * share * (1 + 1e-12)).all() and (np.diff(found) <= 1e-12).all()


def test_a_run_of_half_the_lookups_fetches_half_the_rows_at_least():
    """So a table that shares its samples out has no fewer fetches, on all cards together."""
    share, rows = shares(5000, 0.9), np.ones(5000, np.int64)
    whole = [float(rows @ fetches(CORE, 4, share, rows, lookups)) for lookups in 2.0 ** np.arange(-2, 18)]
    for half, twice in zip(whole, whole[1:], strict=False):
        assert half < twice <= 2 * half * (1 + 1e-12)


def test_rows_that_are_counted_together_and_corner_values():
    share, rows = np.array([0.1, 0.002]), np.array([4, 300])
    apart = fetches(CORE, 32, np.repeat(share, rows), np.ones(304, np.int64), 5000)
    np.testing.assert_allclose(fetches(CORE, 32, share, rows, 5000), apart[[0, -1]])
    np.testing.assert_allclose(fetches(CORE, 1, np.ones(1), np.ones(1, np.int64), 7), 1)
    np.testing.assert_allclose(fetches(CORE, 1, np.ones(1), np.ones(1, np.int64), 0.25), 0.25)
    np.testing.assert_array_equal(fetches(CORE, 1, share, rows, 0), 0)
    none = np.zeros(0)
    assert len(fetches(CORE, 1, none, none.astype(np.int64), 9)) == 0
    assert kept_rows(CORE, 4, 2048) == 640 > kept_rows(CORE, 4, 2049) > 600


def test_products_of_independent_tables():
    """Every pair of rows, hottest first."""
    heats = Heat.of([9, 4, 4, 1]), Heat.of([2, 1, 0])
    share, rows = joint(heats)
    of = [np.array([9, 4, 4, 1]) / 18, np.array([2, 1]) / 3]
    np.testing.assert_allclose(np.sort(np.repeat(share, rows)), np.sort(np.outer(*of).ravel()))
    share, rows = joint([Heat.of(np.arange(1, 3000)), Heat.of(np.ones(50))])
    assert len(share) <= 64 and rows.sum() == 2999 * 50 and share @ rows == pytest.approx(1)
    assert [len(each) for each in joint([Heat.of([]), Heat.of([1])])] == [0, 0]


@pytest.mark.parametrize("target", [1e-3, 0.5, 0.999999])
def test_a_concave_curve_reaches_its_target_where_brents_method_finds_it(target):
    random = np.random.default_rng(2)
    for share in random.exponential(10.0 ** random.uniform(-6, 0, (20, 1)), (20, 50)):
        def curve(number, share=share):
            again = 1 + number * share
            return float(np.mean(number * share / again)), float(np.mean(share / again**2))

        wanted = brentq(lambda number: curve(number)[0] - target, 0.0, 1e15, xtol=1e-12)
        assert _reached(curve, target, 1e-9) == pytest.approx(wanted, rel=1e-7)
        assert _reached(curve, target, 2 * wanted) == 2 * wanted, "from the right nothing is looked for"


def test_a_table_of_one_row_that_has_all_accesses():
    assert fetches(CORE, 1, np.ones(1), np.ones(1, np.int64), 100.0) == pytest.approx([1.0])
