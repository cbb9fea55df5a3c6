"""Parquet logs: as pyarrow reads them whole."""

import decimal
import uuid

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gen.data.logs import open_log, parquet

NAMES = {"item": pa.int32(), "user": pa.uint64(), "tags": pa.list_(pa.int64()),
         "kind": pa.dictionary(pa.int32(), pa.string()), "words": pa.list_(pa.string()), "label": pa.int8(),
         "price": pa.float32(), "when": pa.timestamp("s")}


def a_log(path, rows=500, *, nulls=(), group=60):
    random = np.random.default_rng(rows)
    lists = [random.integers(0, 50, random.integers(0, 6)).tolist() for _ in range(rows)]
    columns = {"item": random.integers(-5, 90, rows).tolist(),
               "user": [int(word) * 4 for word in random.integers(0, 1 << 62, rows)],
               "tags": lists, "kind": random.choice(["a", "12", "é"], rows).tolist(),
               "words": [[str(word) for word in each] for each in lists], "label": random.integers(0, 2, rows).tolist(),
               "price": random.random(rows).tolist(), "when": random.integers(0, 99, rows).tolist()}
    for name, row in nulls:
        columns[name][row] = [1, None] if name == "tags" else None
    pq.write_table(pa.table({name: pa.array(column, NAMES[name]) for name, column in columns.items()}), path,
                   row_group_size=group)
    return columns


def read(log, samples=37):
    ids, lengths, values, numbers = {}, {}, {}, []
    for chunk in log.chunks(samples):
        numbers += range(chunk.first, chunk.first + chunk.samples)
        for name, array in chunk.ids.items():
            ids.setdefault(name, []).extend(array.tolist())
            if name in chunk.offsets:
                assert chunk.offsets[name][0] == 0 and chunk.offsets[name][-1] == len(array)
                lengths.setdefault(name, []).extend(np.diff(chunk.offsets[name]).tolist())
        for name, array in chunk.values.items():
            values.setdefault(name, []).extend(array.tolist())
    return ids, lengths, values, numbers


@pytest.mark.parametrize("piece", [1, 3000, 1 << 26])
def test_as_written(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(parquet, "PIECE_BYTES", piece)
    columns = a_log(tmp_path / "a.parquet")
    log = open_log(tmp_path / "a.parquet")
    assert log.tables == ("item", "user", "tags") and log.unread == ("kind", "words", "when")
    assert len(log.parts()) == {1: 9, 1 << 26: 1}.get(piece, len(log.parts()))
    ids, lengths, values, numbers = read(log)
    assert ids == {"item": [item % (1 << 64) for item in columns["item"]], "user": columns["user"],
                   "tags": sum(columns["tags"], [])}
    assert lengths == {"tags": [len(bag) for bag in columns["tags"]]}
    assert values == {"label": columns["label"], "price": np.array(columns["price"], np.float32).tolist()}
    assert sum((read(part)[3] for part in log.parts()), []) == numbers and len(set(numbers)) == 500


def test_texts_are_the_ids_that_lines_have(tmp_path):
    columns = a_log(tmp_path / "a.parquet")
    ids, lengths, _, _ = read(open_log(tmp_path / "a.parquet", tables=["kind", "words", "label"]))
    (tmp_path / "a.tsv").write_text("kind\n" + "\n".join(columns["kind"]), "utf-8")
    assert ids["kind"] == read(open_log(tmp_path / "a.tsv", tables=["kind"]))[0]["kind"]
    assert ids["words"] == sum(columns["tags"], []) and lengths["words"] == [len(bag) for bag in columns["tags"]]
    assert ids["label"] == columns["label"]


def test_empty_ids(tmp_path):
    nulls = [("item", 3), ("user", 3), ("user", 88), ("tags", 120), ("price", 200)]
    columns = a_log(tmp_path / "a.pq", nulls=nulls)
    log = open_log(tmp_path / "a.pq")
    ids, lengths, values, _ = read(log)
    kept = [row for row in range(500) if row not in (3, 88, 120)]
    assert ids["user"] == [columns["user"][row] for row in kept] and lengths["tags"] == [
        len(columns["tags"][row]) for row in kept]
    assert np.isnan(values["price"][kept.index(200)])
    assert log.problems.counts == {"rows with an empty id": 3}
    assert log.problems.first == {"rows with an empty id": f"{tmp_path / 'a.pq'}: row 4: the column 'item' is empty"}
    ids, lengths, _, numbers = read(open_log(tmp_path / "a.pq", missing=7))
    assert ids["item"][3] == ids["user"][88] == 7 and len(numbers) == 500
    assert ids["tags"] == [7 if tag is None else tag for bag in columns["tags"] for tag in bag]
    with pytest.raises(ValueError) as caught:
        read(open_log(tmp_path / "a.pq", broken=0))
    assert str(caught.value) == (f"{tmp_path / 'a.pq'}: 1 of 37 rows are broken: 1 x rows with an empty id; "
                                 f"first {tmp_path / 'a.pq'}: row 4: the column 'item' is empty")


def test_a_missing_list_is_an_empty_bag(tmp_path):
    pq.write_table(pa.table({"tags": pa.array([[1], None, [], [2, 3]])}), tmp_path / "a.parquet")
    ids, lengths, _, _ = read(open_log(tmp_path / "a.parquet"))
    assert ids["tags"] == [1, 2, 3] and lengths["tags"] == [1, 0, 0, 2]


@pytest.mark.parametrize(("tables", "message"), [
    (["nobody"], "{} has no column 'nobody'; it has item, user, tags, kind, words, label, price, when"),
    (["when"], "{}: the column 'when' is timestamp[ms]; ids are whole numbers, texts or lists of them"),
])
def test_columns_wrong(tmp_path, tables, message):
    a_log(tmp_path / "a.parquet")
    with pytest.raises(ValueError) as caught:
        open_log(tmp_path / "a.parquet", tables=tables)
    assert str(caught.value) == message.format(tmp_path / "a.parquet")


def test_files_wrong(tmp_path):
    pq.write_table(pa.table({"price": [0.5], "label": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError) as caught:
        open_log(tmp_path / "a.parquet")
    assert str(caught.value) == (f"{tmp_path / 'a.parquet'} has no column of whole numbers or lists of them; "
                                 "name the tables (--table); there are price, label")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=r"b\.parquet cannot be read as Parquet: "):
        open_log(tmp_path / "b.parquet")
    a_log(tmp_path / "c.parquet", 5000, group=5000)
    content = bytearray((tmp_path / "c.parquet").read_bytes())
    content[len(content) // 3:len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
    (tmp_path / "c.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"c\.parquet cannot be read as Parquet: "):
        read(open_log(tmp_path / "c.parquet"))


def test_of_pandas(tmp_path):
    """A frame with an index of a name, numbers with gaps and categories."""
    frame = pandas.DataFrame({"user_id": [1, 2, 3], "item_id": pandas.array([4, None, 6], dtype="Int64"),
                              "tag_id": pandas.Categorical(["7", "8", "7"]), "price": [0.5, 1, 2]},
                             index=pandas.Index([7, 8, 9], name="row"))
    frame.to_parquet(tmp_path / "a.parquet")
    log = open_log(tmp_path / "a.parquet", missing=0)
    (chunk,) = log.chunks()
    assert log.unread == ("row",) and chunk.values["price"].tolist() == frame["price"].tolist()
    assert {name: ids.tolist() for name, ids in chunk.ids.items()} == {
        name: frame[name].fillna(0).tolist() if name == "item_id" else frame[name].astype(int).tolist()
        for name in ("user_id", "item_id", "tag_id")}


@pytest.mark.parametrize(("column", "ids"), [
    (pa.array([decimal.Decimal(7), decimal.Decimal(8)], pa.decimal128(38, 0)), [7, 8]),
    (pa.array([decimal.Decimal("7.00"), decimal.Decimal("8.00")]), [7, 8]),
    (pa.array(["7", "8"], pa.string_view()), [7, 8]), (pa.array([b"7", b"8"], pa.binary_view()), [7, 8]),
    (pa.array([b"07", b"08"], pa.binary(2)), [7, 8]), (pa.array([[7.0], [8.0]]), [7, 8]),
    (pa.array([[7], [8]], pa.list_view(pa.int8())), [7, 8]),
    (pa.array([["7"], ["8"]], pa.list_(pa.string_view())), [7, 8]),
    (pa.array([uuid.UUID(int=5).bytes] * 2, pa.uuid()), None)])
def test_kinds_of_columns(tmp_path, column, ids):
    pq.write_table(pa.table({"x_id": column}), tmp_path / "a.parquet")
    found = read(open_log(tmp_path / "a.parquet", tables=["x_id"]))[0]["x_id"]
    assert found == ids or ids is None and len(set(found)) == 1


def test_the_order_of_texts_that_are_times(tmp_path):
    path, times = tmp_path / "a.parquet", ["2024-03-01", "2024-02-29T23:59:59Z", "1709251199.5"]
    pq.write_table(pa.table({"x_id": [2, 0, 1], "when": times}), path)
    assert read(open_log(path, order_by="when"))[0]["x_id"] == [0, 1, 2]
    for wrong in ("2023-02-29", "noon"):
        pq.write_table(pa.table({"x_id": [2, 0, 1], "when": [*times[:2], wrong]}), path)
        with pytest.raises(ValueError, match=f"the column 'when' has '{wrong}', which is neither a number nor a time"):
            open_log(path, order_by="when")


def test_an_index_with_the_name_of_ids_is_a_table(tmp_path):
    frame = pandas.DataFrame({"user_id": [1, 2], "item_id": [3, 4], "price": [0.5, 1]})
    frame.set_index(["user_id", "item_id"]).to_parquet(tmp_path / "a.parquet")
    assert {*open_log(tmp_path / "a.parquet").tables} == {"user_id", "item_id"}


def test_parts_whose_columns_are_in_another_order(tmp_path):
    for name, columns in (("a", ("x_id", "y_id")), ("b", ("y_id", "x_id"))):
        pq.write_table(pa.table({column: [ord(column[0])] for column in columns}), tmp_path / f"{name}.parquet")
    assert read(open_log(tmp_path))[0] == {"x_id": [ord("x")] * 2, "y_id": [ord("y")] * 2}
    pq.write_table(pa.table({"x_id": [1], "z_id": [2]}), tmp_path / "c.parquet")
    with pytest.raises(ValueError, match=r"has the tables x_id, z_id; .* has x_id, y_id; --table names those that all"):
        open_log(tmp_path)
