"""What the bench of SCARS' formulas counts in a log is what it says."""

import numpy as np
import pytest

from bench import scars
from gen.data.logs import Trace
from gen.data.scars import Device, Traffic

pytestmark = pytest.mark.regress

# Four samples: a user each, and bags of genres.
LOG = Trace("a log", {"user": np.array([0, 1, 0, 2]), "genre": np.array([3, 3, 1, 0, 3])}, {"user": 3, "genre": 4},
            offsets={"genre": np.array([0, 2, 2, 4, 5])})


def test_samples_and_traffic():
    assert LOG.samples == 4
    traffic = scars.traffic_of(LOG)
    assert traffic.lookups == 2.25 and traffic.touched == 6
    assert traffic.chance[0] == pytest.approx(1 - 0.4**1.25), "genre 3, three of five lookups"


def test_rows_of_batches():
    order = np.arange(4)
    assert scars.unique(LOG, 2, order) == ((2 + 1) + (2 + 3)) / 2
    assert scars.unique(LOG, 2, np.array([0, 2, 1, 3])) == ((1 + 3) + (2 + 1)) / 2
    assert scars.unique(LOG, 3, order) == 2 + 3, "the last sample makes no whole batch"
    cached = {"user": np.array([True, False, False]), "genre": np.array([False, False, False, True])}
    assert scars.unique(LOG, 4, order, cached) == 2 + 2


@pytest.mark.parametrize("batch", [1, 5, 64])
def test_rows_of_batches_of_a_longer_log(batch):
    random = np.random.default_rng(batch)
    lengths = random.integers(0, 4, 200)
    log = Trace("a log", {"a": random.integers(0, 30, 200), "b": random.integers(0, 9, lengths.sum())},
                {"a": 30, "b": 9}, offsets={"b": np.concatenate([[0], np.cumsum(lengths)])})
    order = random.permutation(200)
    kept = scars.hottest(log, 7)
    assert sum(int(each.sum()) for each in kept.values()) == 7
    total = 0
    for start in range(0, 200 - batch + 1, batch):
        asked = set()
        for sample in order[start:start + batch]:
            asked.add(("a", log.indices["a"][sample]))
            asked |= {("b", row) for row in log.indices["b"][log.offsets["b"][sample]:log.offsets["b"][sample + 1]]}
        total += sum(not kept[table][row] for table, row in asked)
    assert scars.unique(log, batch, order, kept) == total / (200 // batch)


def test_the_likeliest_rows():
    kept = scars.hottest(LOG, 3)
    assert kept["genre"].tolist() == [False, False, False, True] and kept["user"].tolist() == [True, True, False]


def test_every_batch_is_tried():
    traffic, device = Traffic(np.array([0.5, 0.01]), np.array([2, 50]), 1.5), Device(100, 4, 10, overhead=7)
    assert scars.exhaustive(traffic, device) == min(
        device.words(traffic, batch, (100 - 10 * batch) // 4) for batch in range(1, 11))


def test_the_rows_of_a_log(monkeypatch):
    random = np.random.default_rng(2)
    log = Trace("a log", {"item": random.zipf(1.4, 3000) % 200}, {"item": 200})
    monkeypatch.setattr(scars, "logs", lambda: [("log", log)])
    monkeypatch.setattr(scars, "data_path", lambda _: None)
    monkeypatch.setattr(scars, "BATCHES", (64,))
    found = {row.id: row for row in scars.rows()}
    assert set(found) == {f"scars.{row}" for row in ("unique.log.64", "unique.log.64.error", "unique.log.64.order",
                                                     "split.log", "split.log.words", "split.log.error")}
    assert all(row.met is not False for row in found.values())
    assert found["scars.unique.log.64.order"].value == pytest.approx(1, abs=.05), "drawn without any order"
