"""Logs in npz files: streamed as np.load has them, and one sentence for what is wrong."""

import zipfile

import numpy as np
import pytest

from gen.data.logs import Trace, npz, open_log


def written(path, save=np.savez, **arrays):
    save(path, **{name: np.array(array) for name, array in arrays.items()})
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("samples", [1, 7, 1000])
def test_streamed_as_loaded(tmp_path, monkeypatch, save, samples):
    monkeypatch.setattr(npz, "BLOCK", 5)
    random = np.random.default_rng(samples)
    lengths = random.integers(0, 5, 23)
    arrays = dict(idx_user=random.integers(0, 99, 23, np.int32), ind_tag=random.integers(0, 9, lengths.sum(), np.uint8),
                  off_tag=np.append(0, np.cumsum(lengths)).astype(np.uint16), label=random.integers(0, 2, 23, np.int8),
                  dense=random.random((23, 3)), turned=np.asfortranarray(random.random((23, 2))), about=np.arange(4))
    log = open_log(written(tmp_path / "a.npz", save, **arrays))
    assert log.tables == ("user", "tag") and log.unread == ("about",)
    chunks = list(log.chunks(samples))
    assert [chunk.first for chunk in chunks] == list(range(0, 23, samples))
    for name, table in (("idx_user", "user"), ("ind_tag", "tag")):
        found = np.concatenate([chunk.ids[table] for chunk in chunks])
        assert found.dtype == np.uint64 and np.array_equal(found, arrays[name])
    assert np.array_equal(np.concatenate([np.diff(chunk.offsets["tag"]) for chunk in chunks]), lengths)
    assert all(chunk.offsets["tag"][0] == 0 and set(chunk.values) == {"label", "dense", "turned"} for chunk in chunks)
    for name in ("label", "dense", "turned"):
        assert np.array_equal(np.concatenate([chunk.values[name] for chunk in chunks]), arrays[name])
    assert open_log(tmp_path / "a.npz", tables=["tag"]).tables == ("tag",)


@pytest.mark.parametrize(("arrays", "tables", "message"), [
    ({"label": [1]}, None,
     "{} has no array named idx_<table> or ind_<table>: --table names those that are tables; it has label"),
    ({"user": [3], "price": [0.5]}, ["price"],
     "{}: idx_price is float64 of shape (1,); it must be whole numbers in one dimension"),
    ({"idx_a": [0.5]}, None, "{}: idx_a is float64 of shape (1,); it must be whole numbers in one dimension"),
    ({"ind_a": [3, 2]}, None, "{}: off_a is missing; the bags of ind_a need it"),
    ({"ind_a": [3, 2], "off_a": [0, 2, 1, 2]}, None,
     "{}: off_a runs from 0 to 2; it must rise from 0 to 2, the length of ind_a"),
    ({"idx_a": [3, 2], "idx_b": [1]}, None, "{}: b has 1 samples, a has 2"),
    ({"idx_a": [3, 2], "idx_b": [1, 4]}, ["c"], "{} has no table 'c'; it has a, b"),
])
def test_npz_wrong(tmp_path, arrays, tables, message):
    path = written(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError) as caught:
        open_log(path, tables=tables)
    assert str(caught.value) == message.format(path)


def test_arrays_by_their_own_names(tmp_path):
    path = written(tmp_path / "a.npz", user=[3, 2], item=[7, 1], clk=[1, 0])
    log = open_log(path, tables=["item", "user"])
    (chunk,) = log.chunks()
    assert {name: ids.tolist() for name, ids in chunk.ids.items()} == {"item": [7, 1], "user": [3, 2]}
    assert log.reading().label == "clk" and not log.unread


def test_faults_that_reading_meets(tmp_path):
    path = written(tmp_path / "a.npz", idx_a=[*range(9), -2])
    assert list(open_log(path).chunks())[-1].ids["a"].tolist() == [*range(9), 2**64 - 2]
    large = np.array([3, 1 << 63, (1 << 64) - 1], np.uint64)
    path = written(tmp_path / "e.npz", idx_a=large)
    assert next(open_log(path).chunks()).ids["a"].tolist() == large.tolist()
    with pytest.raises(ValueError, match=r"b\.npz cannot be read as npz: idx_a\.npy holds Python objects"):
        open_log(written(tmp_path / "b.npz", idx_a=np.array([{}])))
    # A flipped byte in what is stored.
    path = written(tmp_path / "c.npz", idx_a=np.arange(1000))
    content = bytearray(path.read_bytes())
    content[4000] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"c\.npz cannot be read as npz: Bad CRC-32"):
        list(open_log(path).chunks())
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("idx_a.npy", b"text")
    with pytest.raises(ValueError, match=r"d\.npz cannot be read as npz: "):
        open_log(tmp_path / "d.npz")


@pytest.mark.parametrize("name", ["anime_420k", "msweb", "openbandit_60k"])
def test_real_logs(name, data_folder):
    path = data_folder / f"{name}.npz"
    whole, chunks = Trace.of(open_log(path)), list(open_log(path).chunks())
    assert sum(chunk.samples for chunk in chunks) == whole.samples
    with np.load(path) as found:
        tables = {key[4:]: found[key] for key in found if key[:4] in ("idx_", "ind_")}
        assert list(tables) == list(whole.indices)
        for table, indices in tables.items():
            assert np.array_equal(np.concatenate([chunk.ids[table] for chunk in chunks]), indices)
            assert np.array_equal(whole.table(table), indices) and whole.rows[table] == indices.max() + 1
            if table in whole.offsets:
                assert np.array_equal(whole.bags(table)[1], found[f"off_{table}"])
