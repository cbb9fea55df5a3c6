"""One identity of ids: a whole number within 64 bits is the same id in every format, anything else the same hash."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gen.data.logs import Trace, open_log, text
from gen.data.remap import Remap
from gen.model.recommender import TableSpec
from tests.fuzz.logs import torch_file
from tests.gen.data.test_log_text import hashed

EDGES = [0, 1, 7, 1 << 31, (1 << 32) - 1, 1 << 32, 10**17, 10**18, (1 << 63) - 1, 1 << 63, 10**19, 10**19 + 1,
         (1 << 64) - 2, (1 << 64) - 1, -1, -2, -(10**17), -(10**18), -(10**18) - 1, -(1 << 63) + 1, -(1 << 63)]
NUMPY = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", ">u8", ">i4")


def ids_of(path, **options):
    log = open_log(path, **options)
    return np.concatenate([chunk.ids[log.tables[0]] for chunk in log.chunks(5)]).tolist()


def held(kind):
    """The edges that a type has, and its array."""
    lowest, highest = np.iinfo(kind).min, np.iinfo(kind).max
    numbers = [number for number in EDGES if lowest <= number <= highest]
    return numbers, np.array(numbers, kind)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.inter", "avazu.csv", "criteo.txt"])
def test_texts(tmp_path, name):
    path, header, before, after = tmp_path / name, "x_id", "", ""
    numbers = [f"{number}" for number in EDGES]
    if name == "avazu.csv":
        header = ",".join(("C14", *(each for each in (*text.AVAZU_TABLES, "click", "hour") if each != "C14")))
        after = "," * header.count(",")
    if name == "criteo.txt":
        header, numbers = None, [f"{number % (1 << 64):x}" for number in EDGES]
        before, after = "1" + "\t" * 14, "\t" * 25
    lines = [header] * (header is not None) + [f"{before}{number}{after}" for number in numbers]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    options = {"tables": ["C14" if "avazu" in name else "C01" if "criteo" in name else "x_id"]}
    assert ids_of(path, **options) == [number % (1 << 64) for number in EDGES]


def test_numbers_as_programs_write_them(tmp_path):
    """R writes 100000 as 1e+05; beyond 2**53 such texts are rounded, and without a plus they may be hexadecimal."""
    whole = {"1e+05": 100000, "1.50e+09": 1500000000, "-2E+03": -2000, "9.007199254740991e+15": (1 << 53) - 1, "3\t": 3}
    others = ["1e5", "1.55e+01", "9.007199254740993e+15", "1e+99", "1e+05x", "e+05", "1.5"]
    (tmp_path / "a.csv").write_text("x_id,y\n" + "".join(f"{each},0\n" for each in (*whole, *others)), "utf-8")
    found = ids_of(tmp_path / "a.csv")
    assert found[:len(whole)] == [number % (1 << 64) for number in whole.values()]
    assert found[len(whole):] == [*map(hashed, others)]


@pytest.mark.parametrize("kind", NUMPY)
def test_arrays(tmp_path, kind):
    numbers, array = held(kind)
    np.savez(tmp_path / "a.npz", idx_x=array)
    assert ids_of(tmp_path / "a.npz") == [number % (1 << 64) for number in numbers]
    if kind in ("u1", "i1", "i2", "i4", "i8"):
        lengths = np.ones((1, len(array)), "i8")
        (tmp_path / "a.pt").write_bytes(torch_file([array, np.arange(len(array) + 1), lengths]))
        assert ids_of(tmp_path / "a.pt") == [number % (1 << 64) for number in numbers]


@pytest.mark.parametrize("kind", [pa.uint64(), pa.int64(), pa.uint8(), pa.int16(), pa.uint32()])
@pytest.mark.parametrize("shape", ["flat", "dictionary", "list"])
def test_columns(tmp_path, kind, shape):
    numbers, _ = held(kind.to_pandas_dtype())
    column = pa.array(numbers, kind)
    if shape == "dictionary":
        column = column.dictionary_encode()
    if shape == "list":
        column = pa.array([[number] for number in numbers], pa.list_(kind))
    pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    assert ids_of(tmp_path / "a.parquet") == [number % (1 << 64) for number in numbers]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())])
def test_texts_in_columns(tmp_path, kind):
    texts = [f"{number}" for number in EDGES] + ["007", "1e5", "+4", "x", "18446744073709551616"]
    column = pa.array(texts, pa.string())
    pq.write_table(pa.table({"x": column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)}),
                   tmp_path / "a.parquet")
    (tmp_path / "a.tsv").write_text("x_id\n" + "\n".join(texts) + "\n", "utf-8")
    found = ids_of(tmp_path / "a.parquet", tables=["x"])
    assert found == ids_of(tmp_path / "a.tsv") and found[:len(EDGES)] == [number % (1 << 64) for number in EDGES]
    assert found[len(EDGES)] == 7


def test_a_vocabulary_of_one_format_is_that_of_another(tmp_path):
    """Ids that the profile of a Parquet log has counted are found when they come from a text."""
    random = np.random.default_rng(3)
    ids = np.unique(random.integers(0, (1 << 64) - 1, 1000, np.uint64, endpoint=True))
    (tmp_path / "a.tsv").write_text("x_id\n" + "\n".join(map(str, ids.tolist())) + "\n", "utf-8")
    np.savez(tmp_path / "a.npz", idx_x=ids)
    remap = Remap(TableSpec("x", len(ids) + 1, 8, "vocabulary"), np.arange(len(ids) + 1, dtype=np.uint32), ids)
    for name in ("a.tsv", "a.npz"):
        assert remap(np.array(ids_of(tmp_path / name), np.uint64)).tolist() == list(range(len(ids)))


def test_the_id_of_a_missing_field_is_an_id(tmp_path):
    (tmp_path / "a.tsv").write_text("x_id\tb\n\t1\n-1\t1\n", "utf-8")
    assert ids_of(tmp_path / "a.tsv", missing=-1) == [2**64 - 1] * 2
    log = open_log(tmp_path / "a.tsv", missing=-5)
    assert [line for line in log.report() if "sample" in line] == ["sample     x_id -5, b 1", "sample     x_id -1, b 1"]
    remap = Remap(TableSpec("x", 9, 8), np.arange(9, dtype=np.uint32))
    with pytest.raises(ValueError, match="table x: the id -5 .number 0. is past the table's 9 rows"):
        remap(np.array(ids_of(tmp_path / "a.tsv", missing=-5), np.uint64))
    with pytest.raises(ValueError, match=r"missing must be an id from -2\*\*63 to 2\*\*64 - 1, not 184467440737095516"):
        open_log(tmp_path / "a.tsv", missing=1 << 64)


def test_arrays_of_a_log_number_ids_that_are_no_rows(tmp_path):
    (tmp_path / "a.tsv").write_text("x_id\n18446744073709551615\n7\n007\n9223372036854775808\n", "utf-8")
    found = Trace.of(open_log(tmp_path / "a.tsv"))
    assert found.indices["x_id"].tolist() == [2, 0, 0, 1] and found.rows == {"x_id": 3}
    assert found.ids["x_id"].tolist() == [7, 1 << 63, (1 << 64) - 1]
