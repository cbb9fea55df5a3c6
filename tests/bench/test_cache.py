"""What the bench of the row cache counts is what it says."""

import numpy as np
import pytest

from bench import cache
from gen.data.logs import Trace
from tests.support import emb_tables as make

pytestmark = pytest.mark.regress


def test_batches_and_first_lookups():
    cut = cache.batches(np.arange(10), np.array([0, 3, 3, 10]))
    assert len(cut) == 1 and cut[0][1].tolist() == [0, 3, 3, 10]
    assert cache.once(np.array([5, 2, 5, 9, 2])).tolist() == [5, 2, 9]


def test_a_log_longer_than_a_batch(monkeypatch):
    monkeypatch.setattr(cache, "BATCH", 2)
    cut = cache.batches(np.arange(10), np.array([0, 3, 3, 10]))
    assert [part.tolist() for part, _ in cut] == [[0, 1, 2], [3, 4, 5, 6, 7, 8, 9]]
    assert [offsets.tolist() for _, offsets in cut] == [[0, 3, 3], [0, 7]]


def test_rows_that_are_brought():
    rank = np.array([1, 0, 2, 3])
    # warmed with ranks 0 and 1, rows 1 and 0; row 2 is brought, and row 3 in its place.
    assert cache.rows_brought([np.array([0, 1, 0]), np.array([2, 2, 1]), np.array([3, 1])], rank, 2) == (6, 2)


def test_pages_are_counted_in_bytes(monkeypatch):
    monkeypatch.setattr(cache, "load", lambda _: type("Preset", (), {"cores": {"emb": make.config()}}))
    cut = [(np.array([0, 1, 40, 40]), np.array([0, 2, 4]))]
    assert cache.pages_brought(cut, np.arange(64), 1) == 2 * 4096, "rank 0 is cached, ranks 1 and 40 are not"


def test_the_rows_of_a_log(monkeypatch):
    pytest.importorskip("libcachesim")
    monkeypatch.setattr(cache, "BATCH", 8)
    random = np.random.default_rng(1)
    log = Trace("a log", {"item": random.zipf(1.5, 800) % 60}, {"item": 60})
    monkeypatch.setattr(cache, "all_logs", lambda: [("openbandit", log)])
    monkeypatch.setattr(cache, "pages_brought", lambda *_: 51200)
    found = {row.id.removeprefix("emb.cache."): row.value for row in cache.rows()}
    name = "openbandit.item"
    assert {key.removeprefix(name) for key in found if key.startswith(name)} == {"", ".coalesced", ".pages", *(
        f".{policy}{kind}" for policy in ("lru", "lfu", "sieve") for kind in ("", ".coalesced"))}, "three rows"
    assert 0 < found[name] <= found[f"{name}.coalesced"] < 100 and found[f"{name}.pages"] == 50
    assert all(0 < value <= 100 for value in found.values())
    curve = [found[f"curve.{name}.hotrail.{percent}"] for percent in (2, 5, 10, 20, 40)]
    assert curve == sorted(curve, reverse=True) and curve[1] == found[name]
    assert found[f"curve.{name}.lru.5"] == found[f"{name}.lru.coalesced"]
    assert {key.split(".")[3] for key in found if key.startswith("curve") and key.endswith(".40")} == {
        "hotrail", "lru", "lfu", "s3fifo", "sieve"}, "24 rows"
