"""The figures about hot rows: the choices that stand beside the logger's, and rows of small streams."""
import json

import numpy as np
import pytest

from bench import hotline as figures
from gen.data.logs import Trace
from golden.hotline.bank import WAYS, oracle

pytestmark = pytest.mark.regress


def test_a_perfect_choice_takes_four_of_each_set():
    random = np.random.default_rng(1)
    logger = figures.Logger(256, 5000)
    accesses = random.integers(50, size=5000) * (random.random(5000) < 0.5)
    bank, at, _ = logger.place(np.arange(5000))
    want = sum(np.sort(accesses[(bank == b) & (at == s)])[-WAYS:].sum()
               for b in range(figures.BANKS) for s in range(256 // figures.BANKS // WAYS))
    assert figures.held_by_sets(logger, accesses) == want <= oracle(accesses, 256)


def test_what_a_logger_holds():
    """Few rows: all of them are held, none other, with the randomizer and without."""
    for randomized in (True, False):
        logger = figures.Logger(256, 5000, randomized=randomized)
        rows = np.array([7, 7, 900, 31, 7, 4999])
        logger.learn(rows)
        accesses = np.bincount(rows, minlength=5000)
        assert figures.held(logger, accesses) == figures.held(logger, np.ones(5000, np.int64)) + 2 == 6
        assert logger.holds(np.array([[7, 8], [31, 4999]])).tolist() == [[True, False], [True, True]]
    with pytest.raises(ValueError, match="256 entries name 1048576 rows at the most, not 1048577"):
        figures.Logger(256, (1 << 20) + 1)


def test_accesses_in_the_order_of_the_samples():
    log = Trace("log", {"a": np.array([3, 1]), "b": np.array([0, 2, 2])}, {"a": 5, "b": 3}, {"b": np.array([0, 1, 3])})
    rows, sample, count = figures.in_samples(log)
    assert rows.tolist() == [3, 5, 1, 7, 7] and sample.tolist() == [0, 0, 1, 1, 1] and count == 8
    assert figures.popular_samples(np.array([True, True, True, False, True]), sample) == 50


def test_rows_of_small_streams(monkeypatch):
    """Every policy of every row, on streams that are over in a second."""
    random = np.random.default_rng(2)
    monkeypatch.delenv("HOTRAIL_DATA", raising=False)
    monkeypatch.setattr(figures, "ZIPF_ROWS", 20_000)
    monkeypatch.setattr(figures, "ZIPF_ACCESSES", 200_000)
    monkeypatch.setattr(figures, "ZIPF", ((1.05, 1024, 0.9), (0.9, 2048, None)))
    tables = {name: random.zipf(1.3, 20_000) % 300 for name in "ab"}
    monkeypatch.setattr(figures, "logs", lambda: iter([("log", Trace("log", tables, {"a": 300, "b": 300}))]))
    rows = {row.id: row for row in figures.rows()}
    first = {name: rows[f"hotline.coverage.zipf1.05.1k{name}"].value for name in
             ("", ".sets", ".srrip", ".sampled", ".lru", ".lfu", ".s3fifo", ".sieve", ".wtinylfu")}
    assert all(0.5 < value <= 1 for value in first.values()) and rows["hotline.coverage.zipf1.05.1k"].met
    assert first[".srrip"] < first[""] <= first[".sets"] and first[".sampled"] < first[""]
    assert "hotline.coverage.zipf0.90.2k.lru" not in rows
    last = rows["hotline.coverage.log.1024"]
    assert last.target and last.met and rows["hotline.popular.log.256"].value < 100
    assert rows["hotline.popular.log.256"].value > rows["hotline.popular.log.256.srrip"].value
    assert rows["hotline.coverage.log.256"].value < rows["hotline.coverage.log.256.sampled"].value
    assert "hotline.coverage.log.2048" not in rows and not [id for id in rows if "criteo" in id]


def test_rows_of_a_calibration(monkeypatch, tmp_path):
    """Small tables: sizes, learned shares, and rows in front of tables, which collide without the randomizer."""
    count = {"rows": 30_000, "knots_rank": [1, 20_000], "knots_count_in_1": [1e6, 0.02]}
    (tmp_path / "c.json").write_text(json.dumps({"tables": {f"C{number:02}": count for number in range(1, 27)}}))
    monkeypatch.setattr(figures, "CRITEO_SAMPLES", 60_000)
    monkeypatch.setattr(figures, "JUDGED", 2000)
    monkeypatch.setattr(figures, "SIZES", (4096, 16_384))
    monkeypatch.setattr(figures, "PRESET_SIZES", {16_384: "some"})
    monkeypatch.setattr(figures, "TABLE_BITS", 17)
    criteo = figures.Criteo(tmp_path / "c.json")
    rows = {row.id: row.value for row in criteo.sizes()}
    assert rows["hotline.popular.criteo.4k"] < rows["hotline.popular.criteo.16k"]
    assert rows["hotline.popular.criteo.16k"] <= rows["hotline.popular.criteo.16k.oracle"]
    assert rows["hotline.popular.criteo.16k.front.bare"] < rows["hotline.popular.criteo.16k.front"]
    assert rows["hotline.popular.criteo.16k.srrip"] <= rows["hotline.popular.criteo.16k"]
    assert "hotline.popular.criteo.16k.sampled" in rows and "hotline.popular.criteo.4k.sampled" not in rows
    learned = [row.value for row in criteo.learning()]
    assert len(learned) == len(figures.LEARNED_FROM) and learned == sorted(learned)
    numbers = criteo.numbers(criteo.judged)
    assert (numbers >= criteo.first).all() and (numbers < criteo.first + 30_000).all()
