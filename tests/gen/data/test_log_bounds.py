"""What a log may ask for: bounds before anything is allocated, and one sentence for whatever is wrong with a file."""

import bz2
import gzip
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gen.data.logs import bounds, lines, open_log, stream
from tests.fuzz.logs import npy, tensor, torch_file, zipped

INDICES = npy([3], data=np.arange(3).tobytes())


def refused(path, **options):
    """What is said of a log."""
    with pytest.raises(ValueError) as caught:
        list(open_log(path, **options).chunks())
    assert str(path) in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 3000
    return str(caught.value).replace(str(path), "{}")


def written(path, data):
    path.write_bytes(data)
    return path


def peak(code):
    """MB that a program takes at the most, above what it takes to have read a small log."""
    found = subprocess.run([sys.executable, "-c", "import resource\n" + code + "\nprint((resource.getrusage("
                            "resource.RUSAGE_SELF).ru_maxrss - before) >> 10)"], capture_output=True, text=True,
                           check=True, cwd=Path(__file__).parents[3])
    return int(found.stdout)


def many_columns(path, columns=5001):
    row = ",".join(["1"] * columns) + "\n"
    path.write_text(",".join(f"c{n}_id" for n in range(columns)) + "\n" + row * 3, "utf-8")
    return path


def test_chunks_are_shorter_where_there_are_many_columns(tmp_path):
    path = many_columns(tmp_path / "a.csv")
    (piece,) = open_log(path).parts()
    (chunk,) = piece.chunks()
    assert chunk.samples == 3 and len(chunk.ids) == 5001
    assert chunk.ids["c0_id"].base.nbytes <= 8 * (bounds.WORDS + lines.PAD * 5001)
    assert bounds.samples_at_once(65536, 40) == 65536


@pytest.mark.turns(1, of="processes")
def test_a_log_of_many_columns_takes_little(tmp_path):
    many_columns(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("a_id\n1\n", "utf-8")
    taken = peak("from gen.data.logs import open_log\n"
                 f"list(open_log({str(tmp_path / 'b.csv')!r}).chunks())\n"
                 "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
                 f"resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
                 f"list(open_log({str(tmp_path / 'a.csv')!r}).chunks())")
    assert taken < 200


@pytest.mark.turns(1, of="processes")
def test_fields_are_bounded_and_told_apart_in_time(tmp_path):
    columns = bounds.COLUMNS
    path = written(tmp_path / "a.csv", b",".join(b"c%d_id" % n for n in range(columns)) + b"\n")
    assert len(open_log(path).tables) == columns
    path.write_bytes(b"," * columns + b"\n")
    assert refused(path) == "{}: line 1 has 16,385 fields; at most 16,384 are read"
    path.write_bytes(b"a_id,b\n1,2\n" + b"," * (2 * columns) + b"\n")
    log = open_log(path)
    list(log.chunks())
    assert log.problems.first == {
        "lines of too few or too many fields": f"{path}:3: more than 16,384 fields, not 2"}


def one_file(data):
    return zipped({"a.tsv": data}, packed=True)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lambda data: pa.compress(data, "zstd", asbytes=True),
                                  one_file])
def test_what_unpacks_without_end(tmp_path, monkeypatch, pack):
    ending = {gzip.compress: ".gz", bz2.compress: ".bz2", one_file: ".zip"}.get(pack, ".zst")
    path = written(tmp_path / f"a.tsv{ending}", pack(b"a_id\n" + b"1" * (stream.LINE + stream.BLOCK + 1)))
    assert "has a line of more than 16,777,216 bytes; is it text?" in refused(path)
    monkeypatch.setattr(bounds, "UNPACKED", 1 << 20)
    path = written(tmp_path / f"b.tsv{ending}", pack(b"a_id\n" + b"1\n" * (1 << 21)))
    monkeypatch.setattr(bounds, "RATIO", 10)
    assert "and unpacks to" in refused(path) and "over 10 times as many; no log does" in refused(path)


def test_a_column_may_be_called_anything(tmp_path):
    path = written(tmp_path / "a.csv", b"[/red]_id,\x1b[31m_id\n1,2\n")
    assert [chunk.ids["[/red]_id"].tolist() for chunk in open_log(path).chunks()] == [[1]]
    assert open_log(path).tables == ("[/red]_id", "\x1b[31m_id")


# Archives of arrays.

@pytest.mark.turns(1, of="processes")
def test_an_array_that_nobody_needs_is_not_read(tmp_path):
    """256 MB by columns, in a quarter of a megabyte of the file."""
    path, notes = tmp_path / "a.npz", npy([2, 1 << 24], data=bytes(1 << 28), order=True)
    path.write_bytes(zipped({"idx_a.npy": INDICES, "notes.npy": notes}, True))
    code = ("from gen.data.logs import open_log\n"
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            f"log = open_log({str(path)!r})\nassert log.unread == ('notes',)\n"
            "assert sum(chunk.samples for chunk in log.chunks()) == 3\n")
    assert peak(code) < 64


@pytest.mark.parametrize(("member", "told"), [
    (npy([1 << 40]), "idx_a ends after 0 of 8,796,093,022,208 bytes"),
    (npy([1 << 62, 1 << 62]), "idx_a.npy is int64 of shape (4611686018427387904, 4611686018427387904), which is no "
                              "array"),
    (npy([-1]), "idx_a.npy is int64 of shape (-1,), which is no array"),
    (npy([10**15], "<U0"), "idx_a.npy is <U0 of shape (1000000000000000,), which is no array"),
    (npy([3], version=2, header=b" " * 60_000), "idx_a.npy has a header of 60,000 bytes; at most 10,000 are read"),
    (npy([3], header=b"(" * 5000), "cannot be read as npz: "),
    (npy([3], header=b"-" * 9000 + b"1"), "cannot be read as npz: "),
    (npy([3], header=b"[1,"), "cannot be read as npz: "),
    (npy([3], version=3, data=bytes(24)), "idx_a.npy is no array: it begins with"),
    (b"", "idx_a.npy is no array: it begins with b''"),
    (b"\x93NUMPY\1\0\x40", "cannot be read as npz: "),
])
def test_headers_that_lie(tmp_path, member, told):
    assert told in refused(written(tmp_path / "a.npz", zipped({"idx_a.npy": member})))


def test_archives_that_are_traps(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "w") as archive:
        archive.writestr("idx_a.npy", INDICES)
        archive.writestr("idx_a.npy", INDICES)
    assert "it has the member 'idx_a.npy' twice" in refused(path)
    path.write_bytes(zipped({"idx_a.npy": INDICES, "idx_a": INDICES}))
    assert "it has the array 'idx_a' twice" in refused(path)
    edges = npy([2], data=bytes(8) + b"\3" + bytes(7))
    path.write_bytes(zipped({"idx_a.npy": INDICES, "ind_a.npy": INDICES, "off_a.npy": edges}))
    assert refused(path) == "{} has the table 'a' twice, as idx_a and as ind_a"
    data = bytearray(zipped({"idx_a.npy": INDICES}))
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    assert "the member 'idx_a.npy' is encrypted" in refused(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("idx_a.npy", INDICES)
    assert "the member 'idx_a.npy' is packed in another way than deflate" in refused(path)
    monkeypatch.setattr(bounds, "DIRECTORY", 60)
    path.write_bytes(zipped({f"idx_{n}.npy": INDICES for n in range(2)}))
    assert "its directory of 110 bytes is longer than 60" in refused(path)


def test_a_bag_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "BAG", 100)
    np.savez(tmp_path / "a.npz", ind_a=np.arange(101), off_a=[0, 101])
    assert refused(tmp_path / "a.npz") == "{}: a bag of a has 101 ids; at most 100 are read"
    pq.write_table(pa.table({"a": [list(range(101))]}), tmp_path / "a.parquet")
    assert refused(tmp_path / "a.parquet") == "{}: a bag of a has 101 ids; at most 100 are read"
    arrays = [np.arange(101), np.array([0, 101]), np.array([[101]])]
    path = written(tmp_path / "a.pt", torch_file(arrays))
    assert refused(path) == "{}: a bag of t0 has 101 ids; at most 100 are read"


def test_long_bags_make_short_chunks(tmp_path):
    assert list(bounds.stretches(np.array([3, 3, 9, 0, 1, 7, 2]), 7)) == [(0, 2), (2, 3), (3, 5), (5, 6), (6, 7)]
    assert list(bounds.stretches(np.zeros(0, np.int64))) == []


# Tensors.

@pytest.mark.parametrize(("made", "told"), [
    # A storage that is a view of eight bytes, without end; and a second view that walks over it.
    (tensor("0", "LongStorage", 1, 0, [4096], [4096], tensor("0", "LongStorage", 1, 0, [10**12], [0])),
     "a tensor of shape (1000000000000,) leaves its 1 numbers"),
    (tensor("0", "LongStorage", 1, 0, [2], [1], tensor("0", "LongStorage", 1, 0, [1], [1])),
     "its pickle makes a tensor of something else than a storage"),
    (tensor("0", "LongStorage", 1, 0, [10**12], [0]), "a tensor of shape (1000000000000,) leaves its 1 numbers"),
    (tensor("0", "LongStorage", 1, 0, [10**12, 0], [1, 1]), "without numbers has the shape (1000000000000, 0)"),
    (tensor("0", "LongStorage", 10**12, 0, [1], [1]), "too short for 1000000000000 numbers of 8 bytes"),
    (tensor("0", "LongStorage", 1, 1, [1], [1]), "a tensor of shape (1,) leaves its 1 numbers"),
    (tensor("0", "LongStorage", 1, 0, [1] * 40, [1] * 40), "a tensor has a shape, strides or an offset that no"),
    (b"r\xff\xff\xff\x7f", "must hold three tensors of whole numbers"),
    (b"\x8e" + (1 << 40).to_bytes(8, "little"), "cannot be read as tensors: "),
    (b"}" + b")" + b"q\1h\1\x86" * 64 + b"Ns", "its pickle has a key that is no text and no number"),
    (b"]q\0h\0a", "must hold three tensors of whole numbers"),
])
def test_tensors_that_ask_for_more_than_is_stored(tmp_path, made, told):
    path = written(tmp_path / "a.pt", torch_file([np.arange(1)], b"(" + made + b"t"))
    assert len(path.read_bytes()) < 2500 and told in refused(path)


def test_tables_without_end_and_none(tmp_path):
    empty = np.zeros(0, "i8")
    assert "has 16,385 tables; at most 16,384 are read" in refused(written(tmp_path / "a.pt", torch_file(
        [empty, np.zeros(2 * 16385 + 1, "i8"), np.zeros((16385, 2), "i8")])))
    log = open_log(written(tmp_path / "a.pt", torch_file([empty, np.zeros(1, "i8"), np.zeros((3, 0), "i8")])))
    assert log.tables == ("t0", "t1", "t2") and refused(tmp_path / "a.pt") == "{} has no samples"


# Columns.

def test_columns_that_are_there_twice_and_booleans_without_a_value(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    assert refused(path) == "{} has the column 'a' twice"
    clicks = pa.array([1, None, 0], pa.int8())
    pq.write_table(pa.table({"a": [1, 2, 3], "yes": [True, None, False], "click": clicks}), path)
    (chunk,) = open_log(path).chunks()
    assert np.array_equal(chunk.values["yes"], [1, np.nan, 0], equal_nan=True)
    assert np.array_equal(chunk.values["click"], [1, np.nan, 0], equal_nan=True)


def test_rows_without_end(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": pa.array(np.zeros(1 << 20, "i8"))}), path)
    monkeypatch.setattr(bounds, "UNPACKED", 1 << 20)
    assert path.stat().st_size < 8000 and "and unpacks to 8,388,608 or more" in refused(path)


def test_texts_of_a_column_are_held_once(tmp_path):
    """A thousand rows of the same megabyte."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3000, "i4")), pa.array(["x" * (1 << 20)]))
    pq.write_table(pa.table({"a": column}), tmp_path / "a.parquet", store_schema=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (chunk,) = open_log(tmp_path / "a.parquet", tables=["a"]).chunks()
    assert len(set(chunk.ids["a"].tolist())) == 1
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 < 500
