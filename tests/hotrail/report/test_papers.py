"""`hotrail papers`, as a user calls it."""

import json
from functools import partial

import pytest

from hotrail.papers import KEYS
from hotrail.report import papers as report
from tests.support.command import call

run = partial(call, "papers", terminal_width=150)


def test_every_paper_is_there():
    assert tuple(each["key"] for each in report.load()) == KEYS


def test_one_paper(tmp_path):
    done = run("hotline", "--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    (paper,) = json.loads(done.stdout)["papers"]
    line = next(each for each in paper["figures"] if each["at"] == "Fig. 6.4")
    issued = next(row for row in line["rows"] if row["id"] == "hotline.issue.64.512")
    assert line["ratio"][3] == pytest.approx(issued["value"] / 60, rel=0.01) and line["reading"][3] == 60
    assert "Fig. 6.4" in done.stderr and "Hotline: M. Adnan" in done.stderr and "EL-Rec" not in done.stderr
    page = (tmp_path / "index.html").read_text("utf-8")
    assert "Fig. 6.4: requests issued per cycle, 64 banks" in page and "Not to be had here" in page


def test_another_paper_is_refused():
    done = run("dlrm")
    assert done.exit_code == 2 and "'screc', 'hotline', 'el-rec', 'scars', 'freqcache'" in done.output


def line(values, **more):
    rows = [{"id": "a", "value": value, "unit": "times", "target": "", "met": None} for value in values]
    return {"over": [], "reading": [], "rows": rows, "paper": "slow", "series": "s", "unit": "cards", **more}


def test_points_over_numbers_are_lines_with_the_papers_points():
    chart = report._chart("t", [line([1.0, "none", 900.0], over=["1", "2", "8"], reading=[None, None, 700.0])])
    own, theirs = chart.series
    assert chart.kind == "lines" and own.points == [(1.0, 1.0), (8.0, 900.0)] and theirs.points == [(8.0, 700.0)]
    assert chart.y.log and theirs.form == "dots" and chart.about == "The paper: slow."


def test_points_below_zero_are_shown():
    chart = report._chart("t", [line([-2.0, 1.0], over=["4", "8"])])
    assert chart.y.least is None and report._chart("t", [line([2.0, 1.0], over=["4", "8"])]).y.least == 0


def test_points_over_words_are_bars():
    chart = report._chart("t", [line([1.0, 3.0], over=["0 to 1", "1 to 2"])])
    assert chart.kind == "bars" and chart.labels == ["0 to 1", "1 to 2"] and not chart.y.log
