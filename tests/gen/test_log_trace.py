"""Logs held in memory: the same arrays from every format, rows in place of ids, a bound."""

import bz2
import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gen.logs import Trace, bounds, of_arrays, open_log, text
from tests.fuzz.logs import torch_file

COUNT = 60
RANDOM = np.random.default_rng(6)
USER, ITEM = RANDOM.integers(0, 9, COUNT), RANDOM.integers(0, 40, COUNT)
LABEL = RANDOM.integers(0, 2, COUNT)
OFFSETS = np.concatenate([[0], np.cumsum(RANDOM.integers(0, 4, COUNT))])
TAG = RANDOM.integers(0, 7, OFFSETS[-1])


def table(separator, *columns, head=None):
    lines = [] if head is None else [separator.join(head)]
    return "".join(f"{line}\n" for line in (*lines, *(separator.join(map(str, row)) for row in zip(*columns))))


def criteo():
    counts = [""] * COUNT
    return table("\t", LABEL, *[range(COUNT)] * 13, *(map("{:08x}".format, each) for each in [USER, ITEM] * 2),
                 *[counts] * 22)


def avazu():
    names = (*text.AVAZU_TABLES, "click", "hour")
    columns = {"site_id": map("{:08x}".format, USER), "C14": ITEM, "click": LABEL}
    return table(",", *(columns.get(name, [7] * COUNT) for name in names), head=names)


def written(folder, name):
    """A file of each format with the tables above."""
    path, head = folder / name, ("user_id:token", "item_id:token", "label:float")
    plain = {"a.csv": lambda: table(",", USER, ITEM, LABEL, head=[each.partition(":")[0] for each in head]),
             "a.tsv": lambda: table("\t", USER, ITEM, LABEL, head=head),
             "a.inter": lambda: table("\t", USER, ITEM, LABEL, head=head),
             "train.txt": criteo, "train.csv": avazu}
    packed = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": lambda data: pa.compress(data, "zstd", asbytes=True)}
    if path.suffix in packed:
        path.write_bytes(packed[path.suffix](plain[path.stem]().encode()))
    elif name in plain:
        path.write_text(plain[name]())
    elif name == "a.npz":
        np.savez(path, idx_user_id=USER, idx_item_id=ITEM, ind_tag=TAG, off_tag=OFFSETS, label=LABEL)
    elif name == "a.parquet":
        tags = [TAG[begin:end] for begin, end in zip(OFFSETS, OFFSETS[1:])]
        pq.write_table(pa.table({"user_id": USER, "item_id": ITEM, "tag": tags, "label": LABEL}), path)
    else:
        path.write_bytes(torch_file([TAG, OFFSETS, np.diff(OFFSETS)[None]]))
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.inter", "a.csv.gz", "a.tsv.bz2", "a.inter.zst", "train.txt",
                                  "train.txt.gz", "train.csv", "train.csv.zst", "a.npz", "a.parquet", "a.pt"])
def test_all_tables_of_every_format(tmp_path, name):
    found = Trace.of(open_log(written(tmp_path, name)))
    assert found.samples == COUNT
    if name == "a.pt":
        assert list(found.indices) == ["t0"] and np.array_equal(found.table("t0"), TAG)
        assert np.array_equal(found.bags("t0")[1], OFFSETS)
        return
    named = {"train.txt": (text.CRITEO_TABLES, "C01", "C02", "label"),
             "train.csv": (text.AVAZU_TABLES, "site_id", "C14", "click")}
    tables, user, item, label = named.get(name.removesuffix(".gz").removesuffix(".zst"),
                                          (("user_id", "item_id"), "user_id", "item_id", "label"))
    bags = ("tag",) if name in ("a.npz", "a.parquet") else ()
    assert tuple(found.indices) == (*tables, *bags) and tuple(found.offsets) == bags
    assert np.array_equal(found.table(user), USER) and np.array_equal(found.table(item), ITEM)
    assert found.rows[item] == ITEM.max() + 1 and np.array_equal(found.values[label], LABEL)
    for bag in bags:
        assert np.array_equal(found.table(bag), TAG) and np.array_equal(found.offsets[bag], OFFSETS)


def test_a_log_of_several_files_is_one(tmp_path):
    np.savez(tmp_path / "a.npz", ind_tag=TAG, off_tag=OFFSETS)
    found = Trace.of(open_log([tmp_path / "a.npz"] * 2))
    assert found.samples == 2 * COUNT and np.array_equal(found.table("tag"), np.tile(TAG, 2))
    assert np.array_equal(found.bags("tag")[1], np.concatenate([OFFSETS, OFFSETS[1:] + OFFSETS[-1]]))


def test_ids_are_rows_unless_they_are_sparse():
    names = {"dense": [0, 2, 2], "sparse": [5, 5_000, 5], "largest": [0, 1, 1024 + 7]}
    found = Trace.of(of_arrays(names))
    assert found.rows == {"dense": 3, "sparse": 2, "largest": 1032} and list(found.ids) == ["sparse"]
    assert found.table("sparse").tolist() == [0, 1, 0] and found.ids["sparse"].tolist() == [5, 5_000]
    found = Trace.of(of_arrays(names), numbered=True)
    assert found.rows == {"dense": 2, "sparse": 2, "largest": 3} and found.table("dense").tolist() == [0, 1, 1]
    with pytest.raises(ValueError) as caught:
        found.table("item")
    assert str(caught.value) == "arrays has no table 'item'; it has dense, largest, sparse"


def test_no_samples(tmp_path):
    (tmp_path / "a.csv").write_text("a_id\n")
    found = Trace.of(open_log(tmp_path / "a.csv"))
    assert found.samples == 0 and found.rows == {"a_id": 0} and not found.values


def test_no_more_than_a_bound_is_held(monkeypatch):
    log = of_arrays({"a": np.arange(200_000)})
    monkeypatch.setattr(bounds, "WHOLE", 8 * 150_000)
    with pytest.raises(ValueError) as caught:
        Trace.of(log)
    assert str(caught.value) == ("arrays has more than 1,200,000 bytes of ids and values, which is the most that is "
                                 "held in memory")
    found = Trace.of(log, head=True)
    assert found.samples == 131_072 and found.note == ", the first of the log: no more are held in memory"
    assert not Trace.of(of_arrays({"a": np.arange(9)}), head=True).note
