"""docs/figures.md shows what the benches recorded, all of it, and nothing else."""

import pytest

from bench import page, readings
from bench.framework import at_least, at_most, figure
from bench.page import Line, Section

RECORDED = page.recorded(page.RESULTS)
LAYOUT = page.sections(page.LINES.read_text("utf-8"))
RUN = readings.about(page.LINES.read_text("utf-8"))


def test_the_page_shows_the_recorded_results():
    rows = page.elsewhere(RECORDED.values(), LAYOUT, readings.papers(page.PAPER_LINES.read_text("utf-8")))
    assert page.PAGE.read_text("utf-8") == page.page(rows, LAYOUT, RUN), "run python -m bench.page"


def test_rows_of_the_papers_page_alone_do_not_stand_among_the_figures():
    rows = [figure(id, "", 1, "") for id in ("here", "both", "there", "nowhere")]
    lines = readings.Figure("Fig. 1", "§1", "", ("both", "there"), beside="2", why="No.")
    paper = readings.Paper("k", "P", "", "", "", "", (), (lines,))
    found = page.elsewhere(rows, [Section("S", "", (Line("", ("here", "both")),))], [paper])
    assert [row.id for row in found] == ["here", "both", "nowhere"]


def test_every_recorded_row_says_its_bench_and_whether_its_target_is_met():
    for row in RECORDED.values():
        assert row.bench, row.id
        assert (row.met is None) == (row.target == ""), row.id
        if row.target and not isinstance(row.value, str):
            sign, limit = row.target.split()
            value, bound = float(row.value), float(limit.replace(",", ""))
            if value != bound:      # shown to three digits, a miss by less reads as equal
                assert row.met == (value > bound if sign == ">=" else value < bound), row.id


def test_lines_of_one_row_and_of_many():
    rows = [at_least("a.x", "", 99.0, "%", 95), at_least("a.y", "", 90.0, "%", 95), figure("b.lut", "", 244167, "LUT"),
            at_most("b.dsp", "", 3, "DSP", 3), figure("c", "left | alone", "none found", "")]
    layout = [Section("S", "About.", (Line("two", ("a.x", "a.y"), "theirs 38"), Line("area", ("b.lut", "b.dsp"))))]
    text = page.page(rows, layout)
    assert "| two (theirs 38) | 99 / 90 % | >= 95 **missed** by `a.y` | `a.x`, `.y` |" in text
    assert "| area | 244,167 LUT / 3 DSP | - / <= 3 | `b.lut`, `.dsp` |" in text
    assert text.count("## ") == 2 and "| none found |  | `c` |" in text.split("## All other rows")[1]


@pytest.mark.parametrize("ids", [("a", "b"), ("a", "a")])
def test_a_line_of_rows_that_are_not_recorded_is_refused(ids):
    layout = [Section("S", "", tuple(Line("", (id,)) for id in ids))]
    with pytest.raises(LookupError, match="figures.toml names "):
        page.page([figure("a", "", 1, "")], layout)


def test_a_bench_that_ran_again_replaces_its_rows():
    def row(id, value, bench):
        return page.Row(id, "", value, "", bench=bench)

    old = {row.id: row for row in (row("a", 1, "one"), row("gone", 1, "one"), row("b", 2, "two"))}
    new = {"a": row("a", 3, "one"), "c": row("c", 4, "one")}
    assert {row.id: row.value for row in page.merged(old, new)} == {"b": 2, "a": 3, "c": 4}
    assert [row.id for row in page.merged(old, new, ["c"])] == ["b", "a"]
