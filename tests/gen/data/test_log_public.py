"""Public logs as they are downloaded, a few lines in the form of each, with the options that docs/logs.md gives."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest

from gen.data.logs import Trace, open_log

ROOT = Path(__file__).parents[3]
RANDOM = np.random.default_rng(8)
COUNT = 40


def drawn(most, form="{}"):
    return [form.format(k) for k in RANDOM.integers(1, most, COUNT)]


TIMES = drawn(10**6, "1511{:06d}")
#: Name, header, columns, separator, options of open_log, tables that are read.
LOGS = {
    "u.data": (None, (drawn(943), drawn(1682), drawn(6), TIMES), "\t", {}, ("user_id", "item_id")),
    "ratings.dat": (None, (drawn(943), drawn(1682), drawn(6), TIMES), "::", {}, ("user_id", "item_id")),
    "ratings.csv": ("userId,movieId,rating,timestamp", (drawn(600), drawn(900), drawn(6, "{}.5"), TIMES), ",", {},
                    ("userId", "movieId")),
    "ml-100k.inter": ("user_id:token\titem_id:token\trating:float\ttimestamp:float",
                      (drawn(943), drawn(1682), drawn(6), TIMES), "\t", {}, ("user_id", "item_id")),
    "big_matrix.csv": ("user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio",
                       (drawn(7000), drawn(9000), drawn(9999), drawn(9999), ["2020-07-05 00:08:23.438"] * COUNT,
                        ["20200705"] * COUNT, drawn(999, "1593878903.{:03d}"), drawn(9, "0.{}")), ",", {},
                       ("user_id", "video_id")),
    "amazon.csv": (None, (drawn(99, "A{}"), drawn(99, "B00{}"), drawn(6, "{}.0"), TIMES), ",",
                   {"fields": "user_id,item_id,rating,timestamp"}, ("user_id", "item_id")),
    "UserBehavior.csv": (None, (drawn(999), drawn(999), drawn(99), ["pv"] * COUNT, TIMES), ",",
                         {"fields": "user_id,item_id,category_id,behavior,timestamp"},
                         ("user_id", "item_id", "category_id")),
    "yoochoose-clicks.dat": (None, (drawn(99), ["2014-04-07T10:51:09.277Z"] * COUNT, drawn(999), drawn(12)), ",",
                             {"fields": "session_id,time,item_id,category_id"},
                             ("session_id", "item_id", "category_id")),
}


@pytest.mark.parametrize("name", LOGS)
def test_each_is_read_as_its_columns_are(name, tmp_path):
    header, columns, separator, options, tables = LOGS[name]
    lines = [header] * bool(header) + [separator.join(row) for row in zip(*columns)]
    (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    log = open_log(tmp_path / name, **options)
    trace = Trace.of(log, numbered=True)
    assert log.tables == tables and trace.samples == COUNT
    names = (options.get("fields") or header or "user_id,item_id,rating,timestamp").replace("\t", ",").split(",")
    given = {column.partition(":")[0]: values for column, values in zip(names, columns)}
    for table in tables:
        _, wanted = np.unique(given[table], return_inverse=True)
        _, found = np.unique(trace.table(table), return_inverse=True)
        assert len(set(zip(wanted.tolist(), found.tolist()))) == wanted.max() + 1 == found.max() + 1, table


def test_deepctrs_movielens_with_its_genres(tmp_path):
    rows = [("1", "10", '"Little Indian, The (1973)"', "Comedy|Drama", "F"), ("2", "11", "Heat (1995)", "Action", "M")]
    path = tmp_path / "movielens_sample.txt"
    path.write_text("user_id,movie_id,title,genres,gender\n" + "".join(f"{','.join(row)}\n" for row in rows), "utf-8")
    assert [len(row) for row in csv.reader(io.StringIO(path.read_text("utf-8")))] == [5] * 3
    chunk, = open_log(path, tables=["user_id", "movie_id", "genres"], lists=["genres=pipe"]).chunks()
    assert chunk.ids["user_id"].tolist() == [1, 2] and len(set(chunk.ids["genres"].tolist())) == 3


def test_the_page_gives_these_options():
    page = (ROOT / "docs" / "logs.md").read_text("utf-8")
    for *_, options, _ in LOGS.values():
        assert not options or f"--fields {options['fields']}" in page
    assert re.search(r"`--table genres --list genres=pipe`", page)
