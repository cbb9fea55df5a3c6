"""What is a log and in which order: folders, pipes, formats by their lines, Parquet as its writer describes it."""

import gzip
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gen.data.logs import Trace, bounds, open_log
from gen.data.logs.opening import settled
from gen.data.logs.text import AVAZU_TABLES, CRITEO_NAMED
from tests.gen.data.test_log_text import hashed


def ids(log, name, samples=65536):
    return [each for chunk in log.chunks(samples) for each in chunk.ids[name].tolist()]


# Order.

def test_parts_of_a_folder_are_in_the_order_of_their_numbers(tmp_path):
    for number in (0, 1, 2, 9, 10, 11, 100):
        (tmp_path / f"day_{number}.csv").write_text(f"a_id\n{number}\n", "utf-8")
    for name in ("_SUCCESS", ".part.crc"):
        (tmp_path / name).write_text("x", "utf-8")
    log = open_log(tmp_path)
    assert ids(log, "a_id") == [0, 1, 2, 9, 10, 11, 100] and not log.reading().notes
    files = sorted(tmp_path.glob("day_*"))              # as a shell has them
    log = open_log(files)
    assert ids(log, "a_id") == [0, 1, 10, 100, 11, 2, 9]
    assert "order      7 files as they were given, day_0.csv, day_1.csv, .. day_9.csv; by the numbers in their names " \
           "day_100.csv is the last" in log.report()
    assert not open_log(files[::-1]).notes and not open_log(files[:2]).notes


def test_folders_of_hive(tmp_path):
    for date, hour in (("2024-01-02", 3), ("2024-01-02", 10), ("2024-01-10", 1), ("2023-12-31", 5)):
        folder = tmp_path / f"date={date}" / f"hour={hour}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"a": [int(date.replace("-", "")) * 100 + hour]}), folder / "part-0.parquet")
    log = open_log(tmp_path)
    assert ids(log, "a") == [2023123105, 2024010203, 2024010210, 2024011001] and log.tables == ("a",)
    assert log.reading().unread == {"date": "the name of a folder", "hour": "the name of a folder"}
    (tmp_path / "more").mkdir()
    with pytest.raises(ValueError) as caught:
        open_log(tmp_path)
    assert str(caught.value) == (f"{tmp_path / 'more'} is a folder, whose place in the order of {tmp_path} is not "
                                 "known; name the files or folders in order")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_samples_in_the_order_of_time(tmp_path, suffix, monkeypatch):
    random = np.random.default_rng(4)
    when, item = random.integers(0, 40, 200), random.integers(0, 99, 200)
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        rows = "".join(f"{i},{t},{i}|{i + 1}\n" for i, t in zip(item, when))
        path.write_text("item_id,timestamp,tag_id\n" + rows + "1\n", "utf-8")
    else:
        tags, times = [[i, i + 1] for i in item.tolist()], pa.array(when, pa.timestamp("us"))
        pq.write_table(pa.table({"item_id": item, "timestamp": times, "tag_id": tags}), path)
    order = np.argsort(when, kind="stable")
    log = open_log(path, order_by="timestamp")
    assert ids(log, "item_id", 30) == item[order].tolist()
    assert ids(log, "tag_id") == np.stack([item, item + 1], 1)[order].reshape(-1).tolist()
    assert log.reading().form.endswith(", put in the order of timestamp")
    assert list(log.problems.counts.values()) == [1] * (suffix == ".csv")
    monkeypatch.setattr(bounds, "WHOLE", 100)
    with pytest.raises(ValueError, match="is not in the order of 'timestamp' and has more than 100 bytes"):
        open_log(path, order_by="timestamp")
    with pytest.raises(ValueError, match=r"has no column 'when' of numbers \(--order-by\); it has"):
        open_log(path, order_by="when")


def test_times_as_programs_write_them(tmp_path):
    random = np.random.default_rng(9)
    when = np.datetime64("1999-12-31T23:00:00", "ms") + random.integers(0, 10**12, 300).astype("m8[ms]")
    whole = when.astype("M8[D]")
    forms = {"day": (np.datetime_as_string(whole), whole), "iso": (np.datetime_as_string(when), when),
             "zulu": ([f"{text}Z" for text in np.datetime_as_string(when)], when),
             "space": ([text.replace("T", " ")[:19] for text in np.datetime_as_string(when)], when.astype("M8[s]")),
             "zone": ([f"{text}+02:30" for text in np.datetime_as_string(when)], when - np.timedelta64(150, "m"))}
    for name, (texts, times) in forms.items():
        path = tmp_path / f"{name}.csv"
        path.write_text("item_id,when\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts)), "utf-8")
        log = open_log(path, order_by="when")
        assert ids(log, "item_id") == np.argsort(times, kind="stable").tolist(), name
        seconds = np.concatenate([chunk.values["when"] for chunk in log.chunks()])
        assert np.allclose(seconds, np.sort(times).astype("M8[ms]").astype(np.int64) / 1000, rtol=0, atol=1e-6), name
    for text in ("2024-13-01", "2024-01-01 25:00", "2024-01-01x", "yesterday", "2024-01-01 10:00+1"):
        (tmp_path / "b.csv").write_text(f"item_id,when\n1,2024-01-01\n2,{text}\n", "utf-8")
        with pytest.raises(ValueError, match="neither a number nor a time, as 2024-01-31 23:59:58; first"):
            ids(open_log(tmp_path / "b.csv", order_by="when", broken=0), "item_id")


def test_values_that_not_all_files_have(tmp_path):
    pq.write_table(pa.table({"a": [1], "label": [1], "price": [0.5]}), tmp_path / "a_1.parquet")
    pq.write_table(pa.table({"a": [0], "label": [0]}), tmp_path / "a_2.parquet")
    assert list(Trace.of(open_log(tmp_path)).values) == ["label"]
    assert ids(open_log(tmp_path, order_by="label"), "a") == [0, 1]


def test_a_log_that_is_in_order_stays_a_stream(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("item_id,hour\n" + "".join(f"{n % 7},{n // 3}\n" for n in range(300)), "utf-8")
    monkeypatch.setattr(bounds, "WHOLE", 100)
    assert ids(open_log(path, order_by="hour"), "item_id") == [n % 7 for n in range(300)]
    path.write_text("item_id,hour\n1,5\n2,\n", "utf-8")
    with pytest.raises(ValueError, match=r"the column 'hour' \(--order-by\) has cells without a number"):
        open_log(path, order_by="hour")


# Pipes and compression.

def test_a_pipe_and_the_standard_input(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("user_id,item_id\n1,2\n3,4\n", "utf-8"))
    writer.start()
    (copy,) = settled([pipe])
    assert all(ids(open_log(copy), "item_id") == [2, 4] for _ in range(2))
    writer.join()
    assert settled(["-", tmp_path]) == ["-", tmp_path]
    writer = threading.Thread(target=lambda: pipe.write_text("user_id,item_id\n5,6\n", "utf-8"))
    writer.start()
    assert ids(open_log(pipe), "item_id") == [6]
    writer.join()


@pytest.mark.turns(1, of="processes")
def test_the_standard_input_and_gzip_without_an_extra(tmp_path):
    """A command may read its input twice."""
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"user_id\n7\n"))
    code = ("import sys\nsys.modules['pyarrow'] = None\nfrom gen.data.logs import open_log\n"
            f"for log in ({str(tmp_path / 'a.csv.gz')!r}, '-', '-'):\n"
            "    print(next(open_log(log).chunks()).ids['user_id'])")
    run = subprocess.run([sys.executable, "-c", code], input="user_id\titem_id\n1\t2\n", capture_output=True, text=True,
                         cwd=Path(__file__).parents[3])
    assert run.stdout == "[7]\n[1]\n[1]\n", run.stderr


# Formats.

@pytest.mark.parametrize(("name", "text"), [
    ("u.data", "196\t242\t3\t881250949\n186\t302\t3\t891717742\n"),
    ("ratings.dat", "196::242::3::978300760\n186::302::3.5::978302109\n"),
    ("ratings.csv", "userId,movieId,rating,timestamp\n196,242,3.0,978300760\n186,302,3.5,978302109\n"),
])
def test_ratings_of_movielens(tmp_path, name, text):
    (tmp_path / name).write_text(text, "utf-8")
    log = open_log(tmp_path / name)
    user, item = log.tables
    assert ids(log, user) == [196, 186] and ids(log, item) == [242, 302] and not log.unread
    assert list(next(log.chunks()).values) == ["rating", "timestamp"]
    assert (user, item) == (("userId", "movieId") if name.endswith(".csv") else ("user_id", "item_id"))
    with pytest.raises(ValueError, match=r"b\.csv is no file of ratings as MovieLens' u\.data or ratings\.dat"):
        (tmp_path / "b.csv").write_text("a_id\n1\n", "utf-8")
        open_log(tmp_path / "b.csv", "movielens")


def test_criteo_with_a_header(tmp_path):
    """As DeepCTR's sample has it: comma-separated, named, ids of eight hexadecimal digits."""
    head = ["label", *(f"I{n}" for n in range(1, 14)), *CRITEO_NAMED]
    rows = [["1", "", "3", "260.0", *[""] * 10, "05db9164", "", *["0000000a"] * 24],
            ["0", *["2"] * 13, *["68fd1e64"] * 26]]
    (tmp_path / "criteo_sample.csv").write_text("\n".join(map(",".join, [head, *rows])) + "\n", "utf-8")
    log = open_log(tmp_path / "criteo_sample.csv")
    assert log.tables == CRITEO_NAMED and not log.unread
    assert ids(log, "C1") == [0x05db9164, 0x68fd1e64] and ids(log, "C2") == [0, 0x68fd1e64] and ids(log, "C3")[0] == 10
    reading = log.reading()
    assert reading.label == "label" and reading.dense == tuple(f"I{n}" for n in range(1, 14))
    assert reading.lines()[-1].endswith("C7 1761418852, label 0 and 32 more")


def test_avazu_in_quotes(tmp_path):
    names = ["id", "click", "hour", *AVAZU_TABLES]
    row = ["1", "0", "14102100", *("1fbe01fe" if name.split("_")[0] in ("site", "app", "device") else "7"
                                   for name in AVAZU_TABLES)]
    found = []
    for quote in ("", '"'):
        (tmp_path / "a.csv").write_text("".join(",".join(quote + cell + quote for cell in line) + "\n"
                                                for line in (names, row)), "utf-8")
        log = open_log(tmp_path / "a.csv")
        found.append({name: array.tolist() for name, array in next(log.chunks()).ids.items()})
    assert found[0] == found[1] and found[0]["site_id"] == [0x1fbe01fe] and len(found[0]) == 21


def test_the_same_options_in_every_format(tmp_path):
    np.savez(tmp_path / "a.npz", idx_a=np.arange(3))
    for options, option in (({"separator": ";"}, "--separator"), ({"lists": "pipe"}, "--list"),
                            ({"fields": ["a"]}, "--fields")):
        with pytest.raises(ValueError) as caught:
            open_log(tmp_path / "a.npz", "npz", **options)
        assert str(caught.value) == f"{tmp_path / 'a.npz'} is of the format npz, for which {option} has no meaning"
    (tmp_path / "u.data").write_text("196\t242\t3\t881250949\n" * 100 + "\t302\t3\t891717742\n", "utf-8")
    assert ids(open_log(tmp_path / "u.data", "movielens", missing=8), "user_id") == [196] * 100 + [8]
    with pytest.raises(ValueError, match="is of the format movielens, for which --list has no meaning"):
        open_log(tmp_path / "u.data", "movielens", lists="pipe")
    (tmp_path / "c.txt").write_text("1" + "\t" * 39 + "\n", "utf-8")
    assert ids(open_log(tmp_path / "c.txt", missing=8, tables="C26"), "C26") == [8]
    names = ",".join(f"f{n}" for n in range(40))
    assert open_log(tmp_path / "c.txt", separator="tab", fields=names, tables="f3").tables == ("f3",)


# Parquet.

def described(columns, index):
    """A table with what pandas writes of its index."""
    return pa.table(columns).replace_schema_metadata({"pandas": json.dumps({"index_columns": index, "columns": []})})


@pytest.mark.parametrize(("name", "index", "unread"), [
    ("__index_level_0__", ["__index_level_0__"], True), ("__null_dask_index__", ["__null_dask_index__"], True),
    ("session", ["session"], True), ("__index_level_0__", None, True),
    ("session", [{"kind": "range", "name": None}], False), ("session", 7, False),
])
def test_the_row_index_of_a_writer_is_no_table(tmp_path, name, index, unread):
    columns = {"user_id": [1, 2], "label": [0, 1], name: [8, 9]}
    pq.write_table(pa.table(columns) if index is None else described(columns, index), tmp_path / "a.parquet")
    log = open_log(tmp_path / "a.parquet")
    assert log.tables == (("user_id",) if unread else ("user_id", name))
    assert log.unread == ((name,) if unread else ())
    if unread:
        assert log.reading().unread == {name: "the writer's row index"}
    else:
        assert log.reading().tables == {"user_id": "whole numbers",
                                        name: "whole numbers; no id by its name: --table names the tables"}
    assert ids(open_log(tmp_path / "a.parquet", tables=[name]), name) == [8, 9]


def test_ids_that_are_floats(tmp_path):
    """As pandas has whole numbers where some are missing."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"user_id": [5.0, None, -7.0, float("nan")], "price": [0.5, 1, 2, 3],
                             "item_id": ["a", "b", "7", "a"]}), path)
    log = open_log(path, missing=3)
    assert log.tables == ("user_id", "item_id") and ids(log, "item_id") == [hashed("a"), hashed("b"), 7, hashed("a")]
    assert ids(log, "user_id") == [5, 3, 2**64 - 7, 3]
    assert ids(open_log(path), "user_id") == [5, 2**64 - 7]
    with pytest.raises(ValueError, match=r"row 1: the column 'price' has 0\.5; ids written as floats are "):
        list(open_log(path, tables=["price"]).chunks())


def test_lists_in_texts_of_parquet(tmp_path):
    path, texts = tmp_path / "a.parquet", ["4|5", None, "[6, 'x']", "", "7"]
    pq.write_table(pa.table({"user_id": range(5), "tags": texts}), path)
    with pytest.raises(ValueError, match=r"the field 'tags' has '4\|5', which may be a list: --list 'tags=pipe' reads"):
        open_log(path, tables=["user_id", "tags"])
    (chunk,) = open_log(path, tables=["user_id", "tags"], lists=["tags=pipe"]).chunks()
    assert chunk.ids["tags"].tolist() == [4, 5, 6, hashed("x"), 7]
    assert chunk.offsets["tags"].tolist() == [0, 2, 2, 4, 4, 5]
    assert ids(open_log(path, tables=["tags"], lists="none", missing=1), "tags")[0] == hashed("4|5")
    pq.write_table(pa.table({"tags": ["a"] * 2000 + ["4|5"]}), path)
    with pytest.raises(ValueError, match=r"the column 'tags' has '4\|5' behind the first rows, which may be a list"):
        list(open_log(path, tables=["tags"]).chunks())


@pytest.mark.parametrize("log", [None, 5, {"user": [1]}, pandas.DataFrame({"user": [1]}), [b"a.csv"]])
def test_what_is_no_log(log):
    with pytest.raises(ValueError, match=r"^a log is a path, paths, .* not a \w+; hotrail.of_arrays"):
        open_log(log)


@pytest.mark.parametrize(("name", "data", "sentence"), [
    ("a.csv", b"<!DOCTYPE html>\n<html>\n", "a.csv is a page of HTML, not text in UTF-8: is it one of a download that"),
    ("a.csv", b"version https://git-lfs.github.com/spec/v1\n", "a.csv is a pointer of Git LFS, not text in UTF-8"),
    ("a.xlsx", b"PK\3\4", "a.xlsx is a workbook, not text in UTF-8: save its sheet as CSV"),
    ("plan.json", b"{}", "holds what `hotrail plan` wrote and is no log"),
])
def test_files_of_other_kinds(tmp_path, name, data, sentence):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        open_log(tmp_path)
