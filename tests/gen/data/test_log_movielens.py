"""MovieLens-100K as it is fetched: checked, in order of time."""

import hashlib
import zipfile

import numpy as np
import pytest

from gen.data.logs import Trace, movielens, open_log


def a_wheel(folder, monkeypatch):
    """A wheel laid out as RecBole's, with three ratings out of order."""
    content = {"ml-100k.inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
                                "5\t2\t4\t30\n6\t9\t1\t10\n5\t9\t3\t30\n"}
    with zipfile.ZipFile(folder / "recbole-1.2.1-py3-none-any.whl", "w") as wheel:
        for name, value in content.items():
            wheel.writestr(movielens.FOLDER + name, value)
    monkeypatch.setattr(movielens, "SHA256",
                        {name: hashlib.sha256(value.encode()).hexdigest() for name, value in content.items()})
    return content


def test_movielens_is_read_in_order_of_time(tmp_path, monkeypatch):
    a_wheel(tmp_path, monkeypatch)
    log = Trace.of(movielens.movielens(cache=tmp_path))
    assert log.values["timestamp"].tolist() == [10, 30, 30]
    assert log.table("user_id").tolist() == [1, 0, 0]
    assert log.table("item_id").tolist() == [1, 0, 1]  # equal times keep the order of the file


def test_movielens_itself():
    """The log as it is published; needs the package index once, then the build folder keeps it."""
    try:
        log = Trace.of(open_log("movielens"))
    except ValueError as error:
        if "could not be fetched" not in str(error):
            raise
        pytest.skip(f"not reachable: {error}")
    assert log.rows == {"user_id": 943, "item_id": 1682} and log.table("item_id").size == 100_000
    assert np.bincount(log.values["rating"].astype(int)).tolist() == [0, 6110, 11370, 27145, 34174, 21201]


def test_one_table_of_it(tmp_path, monkeypatch):
    a_wheel(tmp_path, monkeypatch)
    log = movielens.movielens(["item_id"], cache=tmp_path)
    assert log.tables == ("item_id",) and "not read   user_id (not asked for)" in log.report()
    with pytest.raises(ValueError, match=r"^MovieLens-100K has no table 'film'; it has item_id, user_id$"):
        movielens.movielens(["film"], cache=tmp_path)


def test_movielens_altered(tmp_path, monkeypatch):
    a_wheel(tmp_path, monkeypatch)
    monkeypatch.setitem(movielens.SHA256, "ml-100k.inter", "0" * 64)
    with pytest.raises(ValueError, match=r"ml-100k\.inter in .* has SHA-256 [0-9a-f]{64}, not 0{64}"):
        Trace.of(movielens.movielens(cache=tmp_path))


def test_movielens_out_of_reach(tmp_path, monkeypatch):
    monkeypatch.setattr(movielens, "WHEEL", "recbole==0.0.0.dev0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ValueError, match="MovieLens-100K could not be fetched: pip download recbole"):
        Trace.of(movielens.movielens(cache=tmp_path))
