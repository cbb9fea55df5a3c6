"""What the bench of reuse measures is what it says."""

import numpy as np
import pytest

from bench import reuse
from bench.data import held
from gen.data.logs import Trace
from gen.data.shapes import row_modes
from gen.rtl.config import load
from golden.tt.reuse import first_products, leading_keys

pytestmark = pytest.mark.regress


def test_zipf_is_seeded_skewed_and_scattered():
    first, again = (reuse.zipf(1000, 20_000, 1.05, seed=4) for _ in range(2))
    assert np.array_equal(first, again) and first.max() < 1000
    counts = np.bincount(first, minlength=1000)
    hottest = np.argsort(-counts)[:10]
    assert 0.3 < counts[hottest].sum() / first.size < 0.5  # 0.40 by the law
    assert np.ptp(hottest) > 100


def test_logs_that_are_not_there_are_left_out(monkeypatch, tmp_path):
    monkeypatch.delenv("HOTRAIL_DATA", raising=False)
    monkeypatch.setattr(reuse, "ZIPF_LOOKUPS", 100)
    log = Trace("a log", {"item_id": np.array([3, 1, 0])}, {"item_id": 4})
    monkeypatch.setattr(reuse, "held", lambda path: log)
    found = list(reuse.streams())
    assert [name for name, *_ in found] == ["zipf", "real"]
    assert found[0][2].size == 100 and found[0][2].max() < found[0][3]
    assert found[1][2:] == (log.indices["item_id"], 4)
    monkeypatch.setenv("HOTRAIL_DATA", str(tmp_path))
    np.savez(tmp_path / "msweb.npz", ind_vroot=np.array([5, 2]), off_vroot=np.array([0, 2]))
    monkeypatch.setattr(reuse, "held", lambda path: log if path == "movielens" else held(path))
    assert [name for name, *_ in reuse.streams()] == ["zipf", "real", "real.msweb"]


def test_numberings_are_bijections_and_the_ratio_of_hot_rows_counts():
    known = reuse.zipf(400, 5000, 0.6, seed=8)
    found = {name: rows for name, _, rows in reuse.numberings(known, 400)}
    assert list(found) == ["frequency", "communities", "communities.hot10"]
    assert all(np.array_equal(np.sort(rows), np.arange(400)) for rows in found.values())
    hottest = np.argsort(found["frequency"])
    assert np.array_equal(found["communities.hot10"][hottest[:40]], np.arange(40))
    assert not np.array_equal(found["communities"][hottest[:40]], np.arange(40))


@pytest.mark.parametrize(("ordered", "bag"), [(False, 8), (True, 1)])
def test_count_is_near_the_rule_without_time(ordered, bag):
    config = load("smartssd").cores["tt"]
    indices = reuse.zipf(5000, 4000, 1.0, seed=5)
    indices = np.sort(indices) if ordered else indices
    modes = row_modes(5000)
    rule = first_products(leading_keys(indices, modes), entries=config.reuse_findable, lanes=config.lanes, rows=bag)
    assert reuse.computed(config, indices, modes, bag) == pytest.approx(rule, rel=0.03)
