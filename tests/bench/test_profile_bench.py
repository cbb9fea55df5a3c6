"""The bench of profiles on a small file: all ways of counting say the same."""

import json

import pytest

import bench.profile as figures
from gen.data.logs.criteo import ClickLog

pytestmark = pytest.mark.regress


@pytest.fixture
def log(tmp_path):
    tables = {f"C{number:02d}": {"rows": 500, "knots_rank": [1, 4, 300], "knots_count_in_900": [200, 90, 1]}
              for number in range(1, 27)}
    (tmp_path / "c.json").write_text(json.dumps({"n_samples": 900, "tables": tables}), "utf-8")
    return ClickLog(tmp_path / "c.json", seed=2)


def test_files_hold_the_same_ids(log, tmp_path):
    """In all ways of counting; a line has Criteo's 40 fields."""
    paths = figures.written(tmp_path, log, 900)
    lines = paths["tsv"].read_text("utf-8").splitlines()
    assert len(lines) == 900 and {line.count("\t") for line in lines} == {39}
    fields = [line.split("\t") for line in lines]
    wanted = sum(len({line[column] for line in fields}) for column in range(14, 40))
    assert 0.01 < sum(line[column] == "" for line in fields for column in range(14, 40)) / (900 * 26) < 0.05
    for way in (figures.ours, figures.polars_whole, figures.polars_stream):
        assert way(paths["tsv"]) == way(paths["parquet"]) == wanted


def test_a_race_has_every_result(monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "TURNS", 2)
    (tmp_path / "a").write_bytes(b"12345")
    (result, seconds, memory), = figures.raced([size], tmp_path / "a", tmp_path / "a")
    assert result == 5 and 0 < seconds < 60 and 5 < memory < 5000


def size(path):
    return path.stat().st_size


def test_a_billion(log, monkeypatch):
    monkeypatch.setattr(figures, "WHOLE", 3000)
    monkeypatch.setattr(figures, "JUDGED", 500)
    rows = {row.id: row.value for row in figures.billion(log)}
    assert rows["profile.billion.ids"] == 26 * 3000 and rows["profile.billion.rows"] < 26 * 500
    assert rows["profile.criteo.popular"] == 100
