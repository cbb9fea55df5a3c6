"""The page of `hotrail bench`: what is measured is drawn, what is not is left out."""

import html

import pytest

from bench.framework import figure
from hotrail.report import bench as report

ROWS = [figure(id, "", value, "") for id, value in {
    "hotline.issue.64.64": 38.0, "hotline.issue.64.512": 60.1, "hotline.issue.16.64": 14.0,
    "hotline.issue.64.512.ideal": 60.0, "hotline.coverage.zipf1.05.16k": 0.97,
    "hotline.coverage.zipf1.05.16k.srrip": 0.91, "hotline.coverage.zipf1.05.16k.sets": 0.99,
    "hotline.popular.anime.1024": 40, "hotline.popular.anime.1024.bare": 30,
    "hotline.popular.criteo.16k": 50, "hotline.popular.criteo.16k.oracle": 60, "hotline.overlap.gpu.1": 60,
    "hotline.overlap.gpu.2": 99, "emb.dram.port.d16": 100}.items()]


def found(row_ids):
    values = {row.id: float(row.value) for row in ROWS if row.id in row_ids or row_ids is None}
    return [panel.found(values) for panel in report._HOTLINE]


def test_every_panel_finds_its_rows():
    issue, hot, randomizer, overlap, size = found({row.id for row in ROWS})
    assert issue == {"64": {64: 38, 512: 60.1}, "16": {64: 14}}
    assert hot == {"": {"zipf1.05.16k": 0.97}, ".srrip": {"zipf1.05.16k": 0.91}, ".sets": {"zipf1.05.16k": 0.99}}
    assert randomizer == {"": {"anime.1024": 40}, ".bare": {"anime.1024": 30}}
    assert overlap == {"gpu": {1: 60, 2: 99}}
    assert size == {"": {16: 50}, ".oracle": {16: 60}}


def test_what_is_recorded_as_a_bound_is_listed_and_not_drawn():
    """As bench/results.json has a gap that is too small to be told."""
    bound = figure("scars.criteo.256.gap", "", "at most 0.01", "%")
    with_it, without = (report.page(rows).html() for rows in ([*ROWS, bound], ROWS))
    assert "at most 0.01" in with_it and with_it.count("<figure") == without.count("<figure") > 0


@pytest.mark.parametrize("count", [len(ROWS), 3])
def test_a_page_of_what_is_measured(tmp_path, count):
    text = report.write(ROWS[:count], tmp_path / "new").read_text("utf-8")
    drawn = [panel.title for panel in report._HOTLINE if html.escape(panel.title) in text]
    assert len(drawn) == (5 if count > 3 else 1) and "Caches over their size" not in text
    assert all(row.id in text for row in ROWS[:count])


def test_caches_over_their_size(tmp_path):
    rows = [figure(f"emb.cache.curve.movielens.item_id.{policy}.{size}", "", 90 / size, "")
            for policy in ("hotrail", "lru", "wtinylfu") for size in (1, 2, 40)]
    rows += [figure(f"scars.criteo.{size}", "", 1000 / size, "") for size in (16, 64)]
    rows += [figure("scars.criteo.16.coalesced", "", 40, ""), figure("scars.criteo.64.free", "", 9, "")]
    rows += [figure("emb.cache.movielens.item_id.lru", "", 1, "")]
    values = {row.id: row.value for row in rows}
    item, *others, words = (panel.found(values) for panel in report._CACHES)
    assert item == {policy: {1: 90, 2: 45, 40: 2.25} for policy in ("hotrail", "lru", "wtinylfu")}
    assert not any(others) and words == {"": {16: 62.5, 64: 15.625}, ".coalesced": {16: 40}}
    assert "Caches over their size" in report.write(rows, tmp_path).read_text("utf-8")


def test_no_chart_of_nothing():
    assert "<figure" not in report.page(ROWS[-1:]).html()
