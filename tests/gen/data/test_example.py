"""The files of `hotrail example`: formats that are read as they are meant, one log in all of them."""

import numpy as np
import pytest

from gen.data import example
from gen.data.logs import Trace, open_log
from gen.model.recommender import Recommender
from gen.model.weights import FileWeights
from tests.support.command import call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("example")
    example.write(place)
    return place


def test_one_log_in_every_format(folder):
    text = Trace.of(open_log(folder / "clicks.csv", tables=["user", "item"]))
    for name in ("clicks.npz", "clicks"):
        arrays = Trace.of(open_log(folder / name))
        for table in example.ROWS:
            assert np.array_equal(text.table(table), arrays.table(table)) and text.rows[table] <= example.ROWS[table]
        assert np.array_equal(text.values["label"], arrays.values["label"])
    for name, first in (("train.txt", 0), ("train.txt.gz", 0), ("day_0.gz", 1), ("day_1.gz", 2)):
        lines = Trace.of(open_log(folder / name))
        part = slice(first * example.LINES, (first + 1) * example.LINES)
        assert np.array_equal(lines.values["label"], text.values["label"][part])
        assert len(np.unique(lines.table("C01"))) == len(np.unique(text.table("user")[part]))


def test_model_and_parameters_are_of_it(folder):
    model = Recommender.load(folder / "model.toml")
    assert {name: spec.rows for name, spec in model.tables.items()} == example.ROWS
    weights = FileWeights(folder / "weights.npz")
    with np.load(folder / "trained.npz") as trained:
        for name, rows in example.ROWS.items():
            wanted = trained[f"{name}_embedding"]
            assert wanted.shape == (rows, example.DIM)
            assert np.array_equal(weights.rows(model.tables[name], np.arange(rows)), wanted)


def test_the_label_can_be_learned(folder):
    with np.load(folder / "clicks.npz") as log, np.load(folder / "trained.npz") as trained:
        score = (trained["user_embedding"][log["idx_user"]] * trained["item_embedding"][log["idx_item"]]).sum(1)
        assert np.mean((score > 0) == log["label"]) > 0.75


def test_files_are_the_same_every_time_and_nothing_is_overwritten(folder, tmp_path):
    again = call("example", tmp_path)
    assert again.exit_code == 0 and len(again.output.splitlines()) == len(example.FILES)
    assert all((tmp_path / name).read_bytes() == (folder / name).read_bytes() for name in example.FILES)
    for name in example.FILES:
        if name != "day_1.gz":
            (tmp_path / name).unlink()
    refused = call("example", tmp_path)
    assert refused.exit_code == 1 and "day_1.gz exists already; name another folder" in refused.output
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["day_1.gz"]
