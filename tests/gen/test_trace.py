"""Readers: what is read, and one sentence naming file, field and value for what cannot be."""

import hashlib
import zipfile

import numpy as np
import pytest

from gen import trace


def text(tmp_path, content, name="log.tsv"):
    path = tmp_path / name
    path.write_text(content)
    return path


def test_marked_fields_are_tables_and_order_is_kept(tmp_path):
    path = text(tmp_path, "user:token\titem:token\tscore:float\tnote:token_seq\n"
                          "9\tb\t1.5\tx y\n10\ta\t2\t\n\n9\tb\t-3e1\tz\n", "a.inter")
    log = trace.read(path)
    assert log.indices["user"].tolist() == [0, 1, 0] and log.ids["user"].tolist() == [9, 10]
    assert log.indices["item"].tolist() == [1, 0, 1] and log.ids["item"].tolist() == ["a", "b"]
    assert log.rows == {"user": 2, "item": 2}
    assert log.values["score"].tolist() == [1.5, 2.0, -30.0] and set(log.values) == {"score"}


def test_csv_by_name_or_by_ending(tmp_path):
    path = text(tmp_path, "when,shop_id,price\n1,7,0.5\n2,3,0.25\n", "a.csv")
    assert trace.read(path).indices["shop_id"].tolist() == [1, 0]
    assert trace.read(path).values["price"].tolist() == [0.5, 0.25]
    named = trace.read(path, ["when", "shop_id"])
    assert named.table("when").tolist() == [0, 1]


def test_npz_with_single_indices_bags_and_values(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, idx_user=np.array([3, 0], np.int32), ind_tag=np.array([4, 4, 1], np.int32),
             off_tag=np.array([0, 1, 3]), label=np.array([1, 0], np.int8))
    log = trace.read(path)
    assert log.table("user").dtype == np.int64 and log.table("user").tolist() == [3, 0]
    assert log.rows == {"user": 4, "tag": 5}
    assert log.offsets["tag"].tolist() == [0, 1, 3] and log.values["label"].tolist() == [1, 0]
    with pytest.raises(ValueError) as caught:
        log.table("item")
    assert str(caught.value) == f"{path} has no table 'item'; it has tag, user"


@pytest.mark.parametrize(("content", "fields", "message"), [
    ("", None, "{} is empty; its first line must name the fields"),
    ("a\tb\n1\t2\n", None, "{}: no field ends in _id, so name the fields that are indices; there are a, b"),
    ("a\tb\n1\t2\n", ["c"], "{} has no field 'c'; it has a, b"),
    ("a\ta\n1\t2\n", ["a"], "{}: line 1 names the field 'a' twice"),
    ("a_id\tb\n1\t2\n\n3\n", None, "{}: line 4 has 1 fields, line 1 has 2"),
    ("a_id\tb\n1\t2\n\n\t4\n", None, "{}: line 4: the field 'a_id' is empty"),
    ("a:token\tb:float\n1\t2\n\n3\tmany\n", None, "{}: line 4: the field 'b' is 'many', not a number"),
])
def test_text_wrong(tmp_path, content, fields, message):
    path = text(tmp_path, content)
    with pytest.raises(ValueError) as caught:
        trace.read(path, fields)
    assert str(caught.value) == message.format(path)


@pytest.mark.parametrize(("arrays", "message"), [
    ({"label": [1]}, "{} has no array named idx_<table> or ind_<table>; it has label"),
    ({"idx_a": [0.5]}, "{}: idx_a is float64 of shape (1,); it must be whole numbers in one dimension"),
    ({"idx_a": [3, -2]}, "{}: idx_a[1] is -2; an index is 0 or more"),
    ({"ind_a": [3, 2]}, "{}: off_a is missing; the bags of ind_a need it"),
    ({"ind_a": [3, 2], "off_a": [0, 3]},
     "{}: off_a runs from 0 to 3; it must rise from 0 to 2, the length of ind_a"),
    ({"ind_a": [3, 2], "off_a": [0, 2, 1, 2]},
     "{}: off_a runs from 0 to 2; it must rise from 0 to 2, the length of ind_a"),
])
def test_npz_wrong(tmp_path, arrays, message):
    path = tmp_path / "a.npz"
    np.savez(path, **{name: np.array(array) for name, array in arrays.items()})
    with pytest.raises(ValueError) as caught:
        trace.read(path)
    assert str(caught.value) == message.format(path)


def test_files_wrong(tmp_path):
    with pytest.raises(ValueError, match="is not a file"):
        trace.read(tmp_path / "none.tsv")
    with pytest.raises(ValueError, match=r"ends in '\.log'; the endings read are \.npz, \.csv"):
        trace.read(text(tmp_path, "x", "a.log"))
    (tmp_path / "b.npz").write_bytes(b"not an archive")
    with pytest.raises(ValueError, match=r"b\.npz cannot be read as npz"):
        trace.read(tmp_path / "b.npz")
    (tmp_path / "c.tsv").write_bytes(b"a_id\n\xff\xfe\n")
    with pytest.raises(ValueError, match=r"c\.tsv is not UTF-8 text: invalid start byte at byte 5"):
        trace.read(tmp_path / "c.tsv")


def a_wheel(folder, monkeypatch):
    """A wheel laid out as RecBole's, with three ratings out of order."""
    content = {"ml-100k.inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
                                "5\t2\t4\t30\n6\t9\t1\t10\n5\t9\t3\t30\n",
               "ml-100k.item": "item_id:token\tmovie_title:token_seq\n2\tOne\n9\tTwo\n"}
    with zipfile.ZipFile(folder / "recbole-1.2.1-py3-none-any.whl", "w") as wheel:
        for name, value in content.items():
            wheel.writestr(trace.MOVIELENS_FOLDER + name, value)
    monkeypatch.setattr(trace, "MOVIELENS_SHA256",
                        {name: hashlib.sha256(value.encode()).hexdigest() for name, value in content.items()})
    return content


def test_movielens_is_read_in_order_of_time(tmp_path, monkeypatch):
    a_wheel(tmp_path, monkeypatch)
    log = trace.movielens(tmp_path)
    assert log.values["timestamp"].tolist() == [10, 30, 30]
    assert log.table("user_id").tolist() == [1, 0, 0]
    assert log.table("item_id").tolist() == [1, 0, 1]  # equal times keep the order of the file
    assert log.names["item_id"] == ["One", "Two"]


def test_movielens_itself():
    """The log as it is published; needs the package index once, then the build folder keeps it."""
    try:
        log = trace.movielens()
    except ValueError as error:
        if "could not be fetched" not in str(error):
            raise
        pytest.skip(f"not reachable: {error}")
    assert log.rows == {"user_id": 943, "item_id": 1682} and log.table("item_id").size == 100_000
    assert log.names["item_id"][0] == "Toy Story"
    assert np.bincount(log.values["rating"].astype(int)).tolist() == [0, 6110, 11370, 27145, 34174, 21201]


def test_movielens_altered(tmp_path, monkeypatch):
    a_wheel(tmp_path, monkeypatch)
    monkeypatch.setitem(trace.MOVIELENS_SHA256, "ml-100k.inter", "0" * 64)
    with pytest.raises(ValueError, match=r"ml-100k\.inter in .* has SHA-256 [0-9a-f]{64}, not 0{64}"):
        trace.movielens(tmp_path)


def test_movielens_out_of_reach(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "MOVIELENS_WHEEL", "recbole==0.0.0.dev0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ValueError, match="MovieLens-100K could not be fetched: pip download recbole"):
        trace.movielens(tmp_path)
