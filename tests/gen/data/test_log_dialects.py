"""Texts as others write them: what csv, pandas, pyarrow and polars read is what a log has, in every dialect."""

import csv
import gzip
import io
import os
import random
import re

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.csv
import pytest

from gen.data.logs import lines, open_log, stream
from gen.data.logs.cells import MISSING
from tests.gen.data.test_log_text import as_id, hashed

TRIALS = 4000 if os.environ.get("HOTRAIL_REGRESS") else 25
TEXTS = ("a", "item 7", "é", "x,y", "x;y", "t\tu", "say \"no\"", '"', "two\nlines", "1\n2,3\n", " 5", "5.0", "-3", "+8",
         "007", "18446744073709551616", "1e5", "true", "[deleted]", "-", "x" * 90)
HEAD = ("user_id", "title; year, line\nbreak", "item_id", "price")
#: What cells of Python stand for, by a plain reading.
NOTHING = {"", *MISSING}


def written(draw):
    """(the file's bytes, its separator, whether it begins with a byte order mark)."""
    sign, text = draw.choice(",\t;|"), io.StringIO(newline="")
    writer = csv.writer(text, delimiter=sign, lineterminator=draw.choice(("\n", "\r\n")),
                        quoting=draw.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)))
    writer.writerow(HEAD)
    for number in range(draw.randrange(1, 40)):
        item = draw.choice(TEXTS if draw.randrange(9) else ("", "NA", "nan", "NaN", "null", "None"))
        user = f"{draw.getrandbits(draw.choice((3, 40)))}{draw.choice(('', '', '.0'))}"
        price = draw.choice(("0.5", "-2", "1e-3", "", "NA", "nan", "7"))
        writer.writerow([user, draw.choice(TEXTS) if number else "a", item, price])
    data = text.getvalue()
    mark = "\ufeff" * draw.randrange(2)
    return (mark + (data if draw.randrange(2) else data.rstrip("\r\n"))).encode(), sign


def by_csv(data, sign):
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=sign))


def by_arrow(data, sign):
    read = pa.csv.read_csv(io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")), pa.csv.ReadOptions(use_threads=False),
                           pa.csv.ParseOptions(delimiter=sign, newlines_in_values=True),
                           pa.csv.ConvertOptions(column_types=dict.fromkeys(HEAD, pa.string())))
    return [read.column_names, *map(list, zip(*(column.to_pylist() for column in read.columns)))]


def by_polars(data, sign):
    read = polars.read_csv(data, separator=sign, infer_schema=False, empty_string_is_null=False)
    return [read.columns, *map(list, read.rows())]


def by_pandas(data, sign):
    """The rows, and of each whether item and price stand for nothing."""
    rows = pandas.read_csv(io.BytesIO(data), sep=sign, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    nothing = pandas.read_csv(io.BytesIO(data), sep=sign, dtype={"item_id": str}, encoding="utf-8-sig").isna()
    return [list(rows.columns), *rows.to_numpy().tolist()], nothing[["item_id", "price"]].to_numpy().tolist()


def samples_of(log):
    """(user, item, price) of every sample."""
    return [(user, item, None if price != price else price) for chunk in log.chunks(7) for user, item, price in zip(
        chunk.ids["user_id"].tolist(), chunk.ids["item_id"].tolist(), chunk.values["price"].tolist())]


@pytest.mark.parametrize("shard", range(5))
def test_texts_are_read_as_others_read_them(tmp_path, monkeypatch, shard):
    for number in range(shard, TRIALS, 5):
        draw = random.Random(number)
        data, sign = written(draw)
        rows = by_csv(data, sign)
        # Others agree on where fields begin and end; a cell that stands for nothing is one of the words.
        assert by_polars(data, sign) == rows, number
        assert [[cell or "" for cell in row] for row in by_arrow(data, sign)] == rows, number
        assert by_pandas(data, sign) == (rows, [[cell in NOTHING for cell in row[2:]] for row in rows[1:]]), number
        path = tmp_path / f"{number}{draw.choice(('.csv', '.tsv', '.txt', '.CSV', '.dat', ''))}"
        path.write_bytes(data)
        if draw.randrange(4) == 0:
            path = path.with_name(path.name + ".gz")
            path.write_bytes(gzip.compress(data, 1, mtime=0))
        monkeypatch.setattr(stream, "BLOCK", draw.choice((64, 300, 1 << 18)))
        monkeypatch.setattr(lines, "PIECE_BYTES", draw.choice((100, 700, 1 << 26)))
        log = open_log(path, missing=99, broken=0)
        right = [(as_id(user), 99 if item in NOTHING else as_id(item), None if price in NOTHING else float(price))
                 for user, _, item, price in rows[1:]]
        assert samples_of(log) == right, number
        assert log.unread == (HEAD[1],) and not log.problems.counts
        assert {",": "comma", "\t": "tab", ";": "semicolon", "|": "pipe"}[sign] in log.reading().form


def test_numbers_of_lines_behind_quoted_line_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "PIECE_BYTES", 90)
    path = tmp_path / "a.csv"
    path.write_text('note,user_id\n' + '"a\nb",7\n' * 50 + '"c\nd"\n' + '"a\nb",7\n' * 50, "utf-8")
    log = open_log(path)
    assert sum(chunk.samples for chunk in log.chunks()) == 100 and len(log.parts()) > 5
    assert log.problems.first == {"lines of too few or too many fields": f"{path}:102: 1 fields, not 2"}


@pytest.mark.parametrize(("text", "tables", "ids", "lengths"), [
    ("user_id,tags_id\n1,4|5\n2,6\n3,\n", None, [4, 5, 6], [2, 1, 0]),
    ('user_id;tags\n1;"[4, 5]"\n2;[]\n3; [6 7]\n', ["user_id", "tags"], [4, 5, 6, 7], [2, 0, 2]),
    ("user_id,tags_id\n1,\"['a', 'b', 'a']\"\n2,['c']\n3,NA\n", None, [*map(hashed, "abac")], [3, 1, 0]),
    ('user_id,tags_id\n1,"[""a"", ""b""]"\n2,"[""c""]"\n', None, [*map(hashed, "abc")], [2, 1]),
    ("user_id:token\ttags:token_seq\n1\t4  x\n2\t\n", None, [4, hashed("x")], [2, 0]),
    ("user_id,tags_id\n1,\"['c d', 'e, f']\"\n2,()\n3,\"('c d',)\"\n", None, [*map(hashed, ("c d", "e, f", "c d"))],
     [2, 0, 1]),
    ('user_id,tags_id\n1,"{4,5}"\n2,{}\n3,[6 7]\n', None, [4, 5, 6, 7], [2, 0, 2]),
    ('user_id,tags_id\n1,"[""a, b"", ""c""]"\n2,"[""c""]"\n', None, [*map(hashed, ("a, b", "c", "c"))], [2, 1]),
    ('user_id,tags_id\n1,"array([4, 5])"\n2,array([])\n', None, None, "'array([4, 5])', what a program prints for a"),
    ('user_id,tags_id\n1,4/5\n2,6\n', None, None, "'4/5', which may be a list: --list 'tags_id=/' reads lists"),
    ("user_id;tags_id\n" + "".join(f"1;{each}\n" for each in ("a", "a,b", "b", "c,a", "b,c", "a,b,c")), None, None,
     "'a,b', which may be a list: --list 'tags_id=comma' reads lists, --list tags_id=none single ids"),
    ("user_id|tags_id\n1|4,5\n2|6,7\n", None, None, "'4,5', which may be a list: --list 'tags_id=comma' reads lists, "
                                                  "--list tags_id=none single ids"),
    ('user_id,tags_id\n1,"4, 5, 6"\n2,7\n', None, None, "'4, 5, 6', which may be a list: --list 'tags_id=comma' reads"),
    ("user_id,genre_id\n1,Action|Comedy\n2,\n", None, None, "'Action|Comedy', which may be a list: --list"),
])
def test_lists_in_cells(tmp_path, text, tables, ids, lengths):
    path = tmp_path / "a.csv"
    path.write_text(text, "utf-8")
    if ids is None:
        with pytest.raises(ValueError, match=re.escape(lengths)):
            open_log(path, tables=tables)
        return
    chunks = list(open_log(path, tables=tables).chunks(2))
    name = next(iter(chunks[0].offsets))
    assert [each for chunk in chunks for each in chunk.ids[name].tolist()] == ids
    assert [each for chunk in chunks for each in np.diff(chunk.offsets[name]).tolist()] == lengths


@pytest.mark.parametrize("cell", ["[[4, 5], [6]]", "{'a': 1}", "{1: 2}", "[1 2 ... 9]"])
def test_what_is_no_list_of_ids(tmp_path, cell):
    (tmp_path / "a.csv").write_text(f'user_id,tags_id\n1,"[7, 8]"\n2,"{cell}"\n3,[9]\n', "utf-8")
    log = open_log(tmp_path / "a.csv")
    assert [chunk.ids["tags_id"].tolist() for chunk in log.chunks()] == [[7, 8, 9]]
    assert log.problems.first == {"lines with a list of lists, or of keys and values, or one that is cut":
                                  f"{tmp_path / 'a.csv'}:3: the field 'tags_id' is {cell!r}"}
    frame = pandas.DataFrame({"user_id": [1, 2], "tags_id": ["[7, 8]", cell]})
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"row 2: the column 'tags_id' has .*, a list of lists, or of keys and values"):
        list(open_log(tmp_path / "a.parquet").chunks())


def test_names_that_are_there_again(tmp_path):
    """Files that were put one behind the other."""
    path = tmp_path / "a.csv"
    path.write_text("user_id,price\n" + "1,2\n\ufeffuser_id,price\r\n" * 40, "utf-8", newline="")
    log = open_log(path)
    chunks = list(log.chunks())
    assert [chunk.ids["user_id"].tolist() for chunk in chunks] == [[1] * 40]
    assert [chunk.values["price"].tolist() for chunk in chunks] == [[2] * 40]
    assert log.problems.counts == {"lines that repeat the fields' names": 40}
    assert log.reading().tables == {"user_id": "whole numbers"}


def test_lists_that_are_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("user_id,genre_id,words_id\n1,Action|Comedy,a b\n2,,c\n3,x||y,d\n", "utf-8")
    chunk = next(open_log(path, lists=["genre_id=pipe", "words_id=space"], missing=5).chunks())
    assert chunk.ids["genre_id"].tolist() == [hashed("Action"), hashed("Comedy"), hashed("x"), 5, hashed("y")]
    assert chunk.offsets["genre_id"].tolist() == [0, 2, 2, 5]
    assert chunk.ids["words_id"].tolist() == [*map(hashed, "abcd")]
    log = open_log(path, lists="pipe")
    assert sum(len(chunk.ids["genre_id"]) for chunk in log.chunks()) == 2
    assert list(log.problems.counts) == ["lines with an empty id in a list (--missing is an id for it)"]
    chunk = next(open_log(path, lists="none", missing=0).chunks())
    assert chunk.ids["genre_id"].tolist() == [hashed("Action|Comedy"), 0, hashed("x||y")] and not chunk.offsets
    for given, sentence in (("nobody=pipe", "--list nobody=pipe: .* has no table 'nobody'; it has user_id, genre_id"),
                            ("genre_id=ab", "--list genre_id= 'ab' is no separator; name comma, tab")):
        with pytest.raises(ValueError, match=sentence):
            open_log(path, lists=[given])


def test_a_list_behind_the_first_lines_is_no_text(tmp_path):
    """What the first lines do not have is a fault of its line, never the hash of a list."""
    path = tmp_path / "a.csv"
    path.write_text("user_id,item_id\n" + "1,abc\n" * 30000 + "2,5|6\n", "utf-8")
    log = open_log(path)
    assert sum(chunk.samples for chunk in log.chunks()) == 30000
    assert log.problems.first == {"lines with a list where the first lines have single ids (--list reads lists)":
                                  f"{path}:30002: the field 'item_id' is '5|6'"}


def test_files_of_one_log_are_read_alike(tmp_path):
    """A list, or a text among values, in one file is one in all."""
    (tmp_path / "a_2.csv").write_text("user_id,tag_id,price\n1,7,2\n", "utf-8")
    (tmp_path / "a_10.csv").write_text("user_id,tag_id,price\n2,8|9,cheap\n", "utf-8")
    log = open_log(tmp_path)
    chunks = list(log.chunks())
    assert [chunk.ids["tag_id"].tolist() for chunk in chunks] == [[7], [8, 9]]
    assert [chunk.offsets["tag_id"].tolist() for chunk in chunks] == [[0, 1], [0, 2]]
    assert [list(chunk.values) for chunk in chunks] == [[], []] and log.unread == ("price",)


@pytest.mark.parametrize(("data", "sentence"), [
    (b"", "is empty; its first line must name the fields"),
    (b"user_id,item_id\n", "has no samples"),
    (b"user_id,item_id\r\n\r\n", "has no samples"),
    (b"user_id,item_id\r1,2\r", "has lines that end in a carriage return alone; they must end in LF or CRLF"),
    ("user_id,item_id\n1,caf\u00e9\n".encode("cp1252"), ":2: the byte 0xe9 is no UTF-8; `iconv -f WINDOWS-1252"),
    (b"user_id,item_id\n" + b"1,2\n" * 70000 + "1,caf\u00e9\n".encode("cp1252"), ":70002: the byte 0xe9 is no UTF-8"),
    ("user_id,item_id\n1,2\n".encode("utf-16"), "is UTF-16, not text in UTF-8: `iconv -f UTF-16 -t UTF-8` converts it"),
    (gzip.compress(b"user_id,item_id\n1,2\n", mtime=0),
     "is gzip, not text in UTF-8; its name must end in .gz"),
    (b"user_id,item_id\n1,\0\n", "has a byte of 0, which is in no text; beside texts, Parquet and npz are read"),
    (b"\x89HDF\r\n\x1a\n", "is HDF5, not text in UTF-8: write its columns as Parquet, npz or CSV"),
    (b"user_id item_id\n1 2\n", "nothing separates fields in line 1, 'user_id item_id'; comma, tab, semicolon and pipe "
                                "were looked for, --separator space reads these"),
    (b"user_id~item_id\n1~2\n", "were looked for, --separator names another"),
    (b"1 3:0.5 7:1\n0 2:1\n", "looked for, and pairs of index and value, as LIBSVM's, are not read: write a column"),
    (b"0 7580 3730\n1 31613\n", "looked for, and lines with different numbers of ids are not read: write the ids of a"),
    (b"1,2,0.5\n3,4,1\n", ": line 1 holds numbers: 1, 2, 0.5; if it is no header line, --fields names its 3 fields"),
    (b"9,0,0\n3,0,1\n", ": line 1 holds numbers: 9, 0, 0; if it is no header line, --fields names its 3 fields, as"),
    (b'[{"user_id": 1, "item_id": 2}]\n', "begins as JSON does, and line 1 is no object by itself; of JSON, lines of"),
    (b'{"user_id": 1,\n"item_id": 2}\n', "begins as JSON does, and line 1 is no object by itself; of JSON, lines of"),
    (b"# of May\nuser_id,item_id\n1,2\n", ": line 1 is a comment; line 1 must name the fields: `tail -n +2 "),
    (b"sep=;\nuser_id;item_id\n1;2\n", ": line 1 is Excel's, of the separator; line 1 must name the fields: `tail"),
    (b"user_id::item_id\n1::2\n", "looked for, '::' is more than one character: `sed 's/::/\\t/g'` makes it one"),
    (b"user_id  item_id\n1        2\n", "looked for, '  ' is more than one character: `tr -s ' ' ','` makes it one"),
    (b"user_id,item_id\n1,2,\n3,4,\n", ": line 1 names 2 fields and the lines have 3; --fields names all of these"),
    (b"PK\x03\x04", "is a zip archive, not text in UTF-8; its name must end in .zip"),
    (b'user_id,"item_id\n1,2\n', ":1: a quoted field is not closed in the first"),
    (b'user_id,item_id\n1,2\n3,"4\n5,6\n', ":3: a quoted field that begins here or further on is not closed"),
])
def test_texts_that_are_refused(tmp_path, data, sentence):
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    with pytest.raises(ValueError) as caught:
        list(open_log(path).chunks())
    assert str(caught.value).startswith(str(path)) and sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_separators_and_fields_that_are_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("user_id item_id\n1 2\n3 4\n", "utf-8")
    for sign in ("space", " "):
        assert [chunk.ids["item_id"].tolist() for chunk in open_log(path, separator=sign).chunks()] == [[2, 4]]
    path.write_text("1^2^0.5\n3^4^1\n", "utf-8")
    log = open_log(path, separator="^", fields=["user_id", "item_id", "price"])
    (chunk,) = log.chunks()
    assert chunk.ids["user_id"].tolist() == [1, 3] and chunk.values["price"].tolist() == [0.5, 1]
    path.write_text("a_id,b;c_id\n1,2;3\n", "utf-8")
    with pytest.raises(ValueError, match=r"may be separated by comma or semicolon; --separator says by which$"):
        open_log(path)
    with pytest.raises(ValueError, match="--separator 'ab' is no separator; name comma, tab, semicolon"):
        open_log(path, separator="ab")


@pytest.mark.parametrize(("first", "samples"), [
    ("uid,iid,t", 2), (",0,1", 2), ("user_id,item_id,t", 2), ("8,7,2014-04-07T10:51:09.277Z", 3), ("a,7,", 3)])
def test_other_names_in_line_1(tmp_path, first, samples):
    """A header line is no sample where --fields gives other names."""
    path = tmp_path / "a.csv"
    path.write_text(f"{first}\n1,2,0.5\n3,4,1\n", "utf-8")
    log = open_log(path, fields="user_id,item_id,t")
    assert sum(chunk.samples for chunk in log.chunks()) == samples
    assert log.reading().form.endswith("other names in line 1" if samples == 2 else "no header line")


def test_a_report_of_parts_that_were_read_elsewhere(tmp_path):
    """The first samples are read for it, and what the parts have found is kept."""
    path = tmp_path / "a.csv"
    path.write_text("user_id,item_id\n" + "3,4\n" * 5 + "1\n", "utf-8")
    log = open_log(path)
    assert [chunk.samples for part in log.parts() for chunk in part.chunks()] == [5]
    assert log.report()[-2:] == ["sample     user_id 3, item_id 4",
                                 f"broken     1 x lines of too few or too many fields; first {path}:7: 1 fields, not 2"]


def test_blank_lines_before_the_names(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf\r\n\nuser_id,item_id\n1\n3,4\n")
    log = open_log(path)
    assert [chunk.ids["item_id"].tolist() for chunk in log.chunks()] == [[4]]
    assert log.problems.first == {"lines of too few or too many fields": f"{path}:4: 1 fields, not 2"}


def test_names_of_ids_and_what_else_a_reading_says(tmp_path):
    """Ids by their names, wide ids, times to the second, digits of other scripts, a separator behind each line."""
    path = tmp_path / "a.csv"
    path.write_text("user.id,item_id_2,id_shop,GRID,seen,score,\n1,10000000000000000000000,3,7,1700000001,٣,\n"
                    "2,-5,4,8,1700000002,٤,\n", "utf-8")
    log = open_log(path)
    next(log.chunks())
    reading = log.reading()
    assert reading.tables == {"user.id": "whole numbers", "item_id_2": "whole numbers, hashed beyond 64 bits",
                              "id_shop": "whole numbers"}
    assert reading.values == ("GRID", "seen") and reading.unread == {"score": "texts", "": "nothing in it"}
    assert reading.lines()[-1] == "sample     user.id 2, item_id_2 -5, id_shop 4, GRID 8, seen 1700000002"
    assert open_log(path, fields=["user.id", *"abcdef"]).tables == ("user.id",)
    path.write_text("a_id,b\nint,bool\n1,2\n3,4\n", "utf-8")
    assert open_log(path, fields=["a_id", "b"]).reading().tables == {"a_id": "texts, hashed"}


def test_row_numbers_and_names_of_ids(tmp_path):
    """What pandas' to_csv puts first is no feature; userId, ITEM_ID and the like are ids."""
    path = tmp_path / "a.csv"
    path.write_text(",userId,ITEM_ID,visitorid,用户ID,Clicked,paid\n0,5,6,1,2,True,\n1,7,8,3,4,False,nan\n", "utf-8")
    log = open_log(path)
    (chunk,) = log.chunks()
    assert log.tables == ("userId", "ITEM_ID", "visitorid", "用户ID") and log.unread == ("",)
    assert chunk.values["Clicked"].tolist() == [1, 0] and np.isnan(chunk.values["paid"]).all()
    reading = log.reading()
    assert reading.unread == {"": "the writer's row numbers"} and reading.label == "Clicked"
    assert reading.first[0] == {"userId": 5, "ITEM_ID": 6, "visitorid": 1, "用户ID": 2, "Clicked": 1.0, "paid": None}
    assert "sample     userId 5, ITEM_ID 6, visitorid 1, 用户ID 2, Clicked 1, paid none" in log.report()
