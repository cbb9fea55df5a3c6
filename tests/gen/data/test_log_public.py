"""Public logs in the form in which they are downloaded, with the options that docs/logs.md gives: the accesses of every
id are those that pandas counts."""

import csv
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest

from gen.data.logs import Trace, open_log

pd = pytest.importorskip("pandas", reason="needs pandas")

ROOT = Path(__file__).parents[3]
RANDOM = np.random.default_rng(8)
COUNT = 40


def drawn(most, form="{}"):
    return [form.format(k) for k in RANDOM.integers(1, most, COUNT)]


TIMES = drawn(10**6, "1511{:06d}")
RATINGS = "user_id,item_id,rating,timestamp"
HEX = "{:08x}"
AVAZU = ("id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,"
         "device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21")
#: Name: its header line, the names of columns where it has none, columns, separator, options of open_log, its tables.
LOGS = {
    "day_0": (None, ["label", *(f"I{k:02}" for k in range(1, 14)), *(f"C{k:02}" for k in range(1, 27))],
              [drawn(2), *(drawn(5) for _ in range(13)), *(drawn(9, HEX) for _ in range(26))], "\t", {},
              [f"C{k:02}" for k in range(1, 27)]),
    "avazu_train.csv": (AVAZU, None, [
        drawn(10**9), drawn(2), ["14102100"] * COUNT, ["1005"] * COUNT, drawn(3), *(drawn(99, HEX) for _ in range(9)),
        *(drawn(99) for _ in range(10))], ",", {}, AVAZU.split(",")[3:]),
    "u.data": (None, RATINGS.split(","), (drawn(943), drawn(1682), drawn(6), TIMES), "\t", {}, ["user_id", "item_id"]),
    "ratings.dat": (None, RATINGS.split(","), (drawn(943), drawn(1682), drawn(6), TIMES), "::", {},
                    ["user_id", "item_id"]),
    "ratings.csv": ("userId,movieId,rating,timestamp", None, (drawn(600), drawn(900), drawn(6, "{}.5"), TIMES), ",", {},
                    ["userId", "movieId"]),
    "ml-100k.inter": ("user_id:token\titem_id:token\trating:float\ttimestamp:float", None,
                      (drawn(943), drawn(1682), drawn(6), TIMES), "\t", {}, ["user_id", "item_id"]),
    "big_matrix.csv": ("user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio", None,
                       (drawn(7000), drawn(9000), drawn(9999), drawn(9999), ["2020-07-05 00:08:23.438"] * COUNT,
                        ["20200705"] * COUNT, drawn(999, "1593878903.{:03d}"), drawn(9, "0.{}")), ",", {},
                       ["user_id", "video_id"]),
    "ratings_Books.csv": (None, RATINGS.split(","), (drawn(99, "A{}"), drawn(99, "B00{}"), drawn(6, "{}.0"), TIMES),
                          ",", {"fields": RATINGS}, ["user_id", "item_id"]),
    "UserBehavior.csv": (None, "user_id,item_id,category_id,behavior,timestamp".split(","),
                         (drawn(999), drawn(999), drawn(99), ["pv"] * COUNT, TIMES), ",",
                         {"fields": "user_id,item_id,category_id,behavior,timestamp"},
                         ["user_id", "item_id", "category_id"]),
    "yoochoose-clicks.dat": (None, "session_id,time,item_id,category_id".split(","),
                             (drawn(99), ["2014-04-07T10:51:09.277Z"] * COUNT, drawn(999), drawn(12)), ",",
                             {"fields": "session_id,time,item_id,category_id"},
                             ["session_id", "item_id", "category_id"]),
    "goodreads_interactions.csv": ("user_id,book_id,is_read,rating,is_reviewed", None,
                                   (drawn(99), drawn(999), drawn(2), drawn(6), drawn(2)), ",", {},
                                   ["user_id", "book_id"]),
    "train.tiny.csv": (",".join(["Id", "Label", *(f"I{k}" for k in range(1, 14)), *(f"C{k}" for k in range(1, 27))]),
                       None, (drawn(99), drawn(2), *(drawn(5) for _ in range(13)), *(drawn(9, HEX) for _ in range(26))),
                       ",", {}, [f"C{k}" for k in range(1, 27)]),
    "events.csv": ("timestamp,visitorid,event,itemid,transactionid", None,
                   (TIMES, drawn(99), ["view"] * COUNT, drawn(999), [""] * COUNT), ",", {}, ["visitorid", "itemid"]),
    "ali_ccp_train.csv": ("click,purchase,101,121,D109_14", None,
                          (drawn(2), drawn(2), drawn(99), drawn(99), drawn(9, "0.{}")), ",", {"tables": ["101", "121"]},
                          ["101", "121"]),
    "behaviors.tsv": (None, "impression_id,user_id,time,history,impressions".split(","),
                      (map(str, range(COUNT)), drawn(99, "U{}"), ["11/11/2019 9:05:58 AM"] * COUNT, drawn(99, "N{} N7"),
                       drawn(99, "N{}-1 N35729-0")), "\t",
                      {"fields": "impression_id,user_id,time,history,impressions"}, ["impression_id", "user_id"]),
    "train-item-views.csv": ("sessionId;userId;itemId;timeframe;eventdate", None,
                             (drawn(99), ["NA"] * COUNT, drawn(999), drawn(999), ["2016-05-09"] * COUNT), ";",
                             {"tables": ["sessionId", "itemId"]}, ["sessionId", "itemId"]),
    "BX-Book-Ratings.csv": ('"User-ID";"ISBN";"Book-Rating"', None,
                            (drawn(999, '"{}"'), drawn(99, '"0{}X"'), drawn(9, '"{}"')), ";",
                            {"tables": ["User-ID", "ISBN"]}, ["User-ID", "ISBN"]),
}


def equal_counts(log, tables, read):
    """The log's tables, and the accesses of their ids, are those of what pandas has read: of whole numbers by id."""
    trace = Trace.of(log, numbered=True)
    assert list(log.tables) == tables and trace.samples == len(read)
    for table in tables:
        wanted, (rows, found) = read[table].value_counts(), np.unique(trace.table(table), return_counts=True)
        ids = trace.ids[table][rows]
        if pd.api.types.is_integer_dtype(read[table]):
            assert dict(zip(ids.tolist(), found.tolist())) == wanted.to_dict(), table
        assert sorted(found.tolist()) == sorted(wanted.tolist()), table


@pytest.mark.parametrize("name", LOGS)
def test_text(name, tmp_path):
    header, names, columns, separator, options, tables = LOGS[name]
    lines = [header] * bool(header) + [separator.join(row) for row in zip(*columns, strict=True)]
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    own = {table: lambda cell: int(cell, 16) for table in tables} if name in ("day_0", "train.tiny.csv") else {
        table: lambda cell: int(cell, 16) for table in tables
        if name.startswith("avazu") and table.split("_")[0] in ("site", "app", "device") and "_type" not in table}
    read = pd.read_csv(path, sep=separator, names=names, header=0 if header else None, converters=own,
                       engine="python" if len(separator) > 1 else "c")
    read.columns = [column.partition(":")[0] for column in read.columns]
    equal_counts(open_log(path, **options), tables, read)


@pytest.mark.parametrize("name, columns, options, tables", [
    ("yelp_academic_dataset_review.json", {
        "review_id": drawn(10**9), "user_id": drawn(99, "u{}"), "business_id": drawn(99, "b{}"), "stars": [4.0] * COUNT,
        "useful": [1] * COUNT, "text": ['so, "so"\n{'] * COUNT, "date": ["2018-07-07 22:09:11"] * COUNT}, {},
     ["review_id", "user_id", "business_id"]),
    ("reviews_Books_5.json.gz", {
        "reviewerID": drawn(99, "A{}"), "asin": drawn(99, "B{}"), "helpful": [[0, 1]] * COUNT, "overall": [5.0] * COUNT,
        "unixReviewTime": [int(each) for each in TIMES]},
     {"tables": ["reviewerID", "asin"], "order_by": "unixReviewTime"}, ["reviewerID", "asin"])])
def test_json_lines(name, columns, options, tables, tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra arrow")
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    log = open_log(path, **options)
    equal_counts(log, tables, pd.read_json(path, lines=True, dtype=False))
    assert log.report()[0].startswith("read as    JSON lines")
    if "order_by" in options:
        order = np.concatenate([chunk.values["unixReviewTime"] for chunk in log.chunks()])
        assert np.array_equal(order, np.sort(order))


def test_json_lines_that_have_become_others(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra arrow")
    path = tmp_path / "log.jsonl"
    for ids in ([3, 1], [4, 4, 2]):
        path.write_text("".join(f'{{"user_id": {each}}}\n' for each in ids), "utf-8")
        assert next(iter(open_log(path).chunks())).ids["user_id"].tolist() == ids


def test_deepctrs_movielens_with_its_genres(tmp_path):
    rows = [("1", "10", '"Little Indian, The (1973)"', "Comedy|Drama", "F"), ("2", "11", "Heat (1995)", "Action", "M")]
    path = tmp_path / "movielens_sample.txt"
    path.write_text("user_id,movie_id,title,genres,gender\n" + "".join(f"{','.join(row)}\n" for row in rows), "utf-8")
    assert [len(row) for row in csv.reader(io.StringIO(path.read_text("utf-8")))] == [5] * 3
    chunk, = open_log(path, tables=["user_id", "movie_id", "genres"], lists=["genres=pipe"]).chunks()
    assert chunk.ids["user_id"].tolist() == [1, 2] and len(set(chunk.ids["genres"].tolist())) == 3


def test_minds_impressions_are_lists(tmp_path):
    path = tmp_path / "behaviors.tsv"
    path.write_text("1\tU5\tN1 N2\tN3-1 N4-0\n2\tU6\tN2\tN4-1\n", "utf-8")
    options = {"fields": "impression_id,user_id,history,impressions", "tables": ["history", "impressions"]}
    with pytest.raises(ValueError, match=r"'history' has 'N1 N2', which may be a list: --list 'history=space' reads"):
        open_log(path, **options)
    chunk, = open_log(path, lists="space", **options).chunks()
    assert chunk.offsets["history"].tolist() == [0, 2, 3] and len(set(chunk.ids["impressions"].tolist())) == 3


def test_the_page_gives_these_options():
    page = (ROOT / "docs" / "logs.md").read_text("utf-8")
    for *_, options, _ in LOGS.values():
        assert "fields" not in options or f"--fields {options['fields']}" in page
    assert "`--table genres --list genres=pipe`" in page and "`--table reviewerID --table asin`" in page
