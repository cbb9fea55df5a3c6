"""docs/figures.md shows the decisive figures as recorded; the site's page shows all of them, and nothing else."""

import re

import pytest

from bench import page
from bench.framework import at_least, at_most, figure
from bench.page import Line, Section, Selection
from bench.plots import Plot, svg

RECORDED = page.recorded(page.RESULTS)
LAYOUT = page.sections(page.LINES.read_text("utf-8"))
CHOSEN = page.selections(page.LINES.read_text("utf-8"))


def test_the_page_shows_the_recorded_results():
    assert page.PAGE.read_text("utf-8") == page.decisive(RECORDED, CHOSEN), "run python -m bench.page"


@pytest.mark.parametrize("plot", [plot for part in CHOSEN for plot in part.plots], ids=lambda plot: plot.name)
def test_the_plots_are_of_the_recorded_results(plot):
    assert (page.PICTURES / f"{plot.name}.svg").read_text("utf-8") == svg(plot, RECORDED), "run python -m bench.page"


def test_a_curve_of_three_points():
    rows = {f"a.{x}.b": figure(f"a.{x}.b", "", y, "us") for x, y in ((1, 0), (2, 350.0), (4, 700))}
    drawn = svg(Plot("p", "T & U", "x", "us", (1, 2, 4), {"fast": "a.{}.b"}), rows)
    assert "T &amp; U" in drawn and ">fast</text>" in drawn
    (points,) = re.findall(r'points="([^"]*)"', drawn)
    xs, ys = zip(*(map(float, point.split(",")) for point in points.split()), strict=True)
    assert xs[1] - xs[0] == xs[2] - xs[1] and ys[0] > ys[1] > ys[2]
    assert [text for text in re.findall(r'text-anchor="end">([^<]*)<', drawn)] == [str(100 * k) for k in range(8)]
    with pytest.raises(LookupError, match=r"plot p: a\.3\.b not recorded"):
        svg(Plot("p", "T", "x", "us", (1, 3), {"fast": "a.{}.b"}), rows)


def test_the_page_is_read_in_minutes():
    assert 30 <= sum(len(part.figures) for part in CHOSEN) <= 45


def test_the_page_of_all_figures_has_every_row():
    text = page.everything(RECORDED.values(), LAYOUT)
    assert all(f" `{id}` " in text for id in RECORDED)


def test_a_decisive_figure_has_its_origin():
    rows = {"a": page.Row("a", "", 3, "s", "<= 2", False, "b", "c0ffee", "2026-01-02", "P"),
            "b": figure("b", "", 4, "")}
    text = page.decisive(rows, [Selection("S", "", {"a": "A time", "b": "Others"})])
    assert "| A time | 3 s | <= 2 **missed** | `a` | c0ffee, 2026-01-02, P |" in text
    assert "| Others | 4 |  | `b` |  |" in text
    with pytest.raises(LookupError, match="figures.toml names c, not recorded"):
        page.decisive(rows, [Selection("S", "", {"c": ""})])


def test_every_recorded_row_says_its_bench_and_whether_its_target_is_met():
    for row in RECORDED.values():
        assert row.bench and row.commit and row.date, row.id
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
    text = page.everything(rows, layout)
    assert "| two (theirs 38) | 99 / 90 % | >= 95 **missed** by `a.y` | `a.x` `a.y` |  |" in text
    assert "| area | 244,167 LUT / 3 DSP | - / <= 3 | `b.lut` `b.dsp` |  |" in text
    assert text.count("## ") == 2
    assert "| left &#124; alone | none found |  | `c` |  |" in text.split("## All other rows")[1]


@pytest.mark.parametrize("ids", [("a", "b"), ("a", "a")])
def test_a_line_of_rows_that_are_not_recorded_is_refused(ids):
    layout = [Section("S", "", tuple(Line("", (id,)) for id in ids))]
    with pytest.raises(LookupError, match="figures.toml names "):
        page.everything([figure("a", "", 1, "")], layout)


def test_a_bench_that_ran_again_replaces_its_rows():
    def row(id, value, bench):
        return page.Row(id, "", value, "", bench=bench)

    old = {row.id: row for row in (row("a", 1, "one"), row("gone", 1, "one"), row("b", 2, "two"))}
    new = {"a": row("a", 3, "one"), "c": row("c", 4, "one")}
    assert {row.id: row.value for row in page.merged(old, new)} == {"b": 2, "a": 3, "c": 4}
    assert [row.id for row in page.merged(old, new, ["c"])] == ["b", "a"]
