"""Logs held in memory: the same arrays from every format, rows in place of ids, a bound."""

import numpy as np
import pytest

from gen.data.logs import Trace, bounds, of_arrays, open_log, text
from tests.support.log_files import COUNT, ITEM, LABEL, NAMES, OFFSETS, TAG, USER, written


@pytest.mark.parametrize("name", NAMES)
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
    (tmp_path / "a.csv").write_text("a_id\n", "utf-8")
    with pytest.raises(ValueError, match=r"a\.csv has no samples$"):
        Trace.of(open_log(tmp_path / "a.csv"))


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
