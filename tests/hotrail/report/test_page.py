"""The reports' components: what stands in the file, read by a parser, and what a browser makes of it, by clicks."""

import json
import shutil
from html.parser import HTMLParser

import pytest

from hotrail.report import plan as plan_report
from hotrail.report import profile as profile_report
from hotrail.report.page import COLOURS, Axis, Bars, Heat, Lines, Page, Series, Spans, Table, Text
from tests.support import reports

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
MOST_BYTES = 1.5e6
VOID = {"meta", "input", "link", "img", "br"}
ROWS = [(f"t{k}", f"{k * 137 % 11:,} ms" if k else "90 us", "a <b>" if k else "x,y") for k in range(10)]


class Tree(HTMLParser):
    """Elements in their order, each with its attributes, those around it, and its text. Fails where tags do not
    match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, **dict(attrs), "in": [each["tag"] for each in self.open], "text": ""}
        self.found.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        if self.open:
            self.open[-1]["text"] += data

    def of(self, tag):
        return [each for each in self.found if each["tag"] == tag]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """One of each component."""
    page = Page("hotrail test", "A <title> & more", lead="What it is.", facts=[("rows", "10")])
    page.add("Times", Text("Every bit equal.", True), Spans(
        "Timeline", "When.", Axis("ms", "ms"), Axis("card"), [
            Series("DRAM", [("t1", (0, 2.5)), ("t2", (1, 2))], "dram")],
        key="table", labels=["t1", "t2"]), Bars(
        "Loads", "How many.", Axis("table"), Axis("rows"), [Series("rows", [("t1", 3), ("t2", 1 / 3)])], key="table",
        labels=["t1", "t2"]), Lines(
        "Curve", "How fast.", Axis("rows", "rows", log=True), Axis("%", "%"), [Series("a", [(1, 2), (10, 5)]),
                                                                 Series("b", [(1, 1)], form="dots")]))
    page.add("All", Heat("Matrix", "Signs.", ["r"], ["c", "d"], [[1.0, -0.5]]),
             Table("Rows </script>", ("table", "time", "note"), ROWS, note="A note.", left=1, key="table"))
    page.add("Nothing")
    page.add("Odd", Text("a\udcffb"))
    return page.write(tmp_path_factory.mktemp("page") / "new")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The profile and the plan of 856 tables."""
    folder, profile = tmp_path_factory.mktemp("large"), reports.profile()
    return [profile_report.write(profile, folder / "profile", dim=64, rank=4),
            plan_report.write(reports.plan(profile), profile, folder / "plan")]


def test_structure(small):
    tree = Tree(small.read_text("utf-8"))
    assert [each["text"] for each in tree.of("h1")] == ["A <title> & more"] and tree.of("html")[0]["lang"] == "en"
    assert [each["text"] for each in tree.of("caption")] == ["Matrix", "Rows </script>"]
    assert len(tree.of("caption")) == len(tree.of("table"))
    assert {each["scope"] for each in tree.of("th")} == {"col", "row"}
    assert [each["aria-label"].split(".")[0] for each in tree.of("canvas")] == ["Timeline", "Loads", "Curve"]
    assert all(each["tabindex"] == "0" and each["role"] == "img" for each in tree.of("canvas"))
    assert [each["text"] for each in tree.of("h2")] == ["Times", "All", "Odd"]  # nothing of an empty section
    targets = {each.get("id") for each in tree.found}
    assert all(each["href"][1:] in targets for each in tree.of("a")) and len(tree.of("a")) == 4
    assert not [each for each in tree.found if each.get("src") or each["tag"] in ("link", "iframe", "img")]
    specs = [json.loads(each["text"]) for each in tree.of("script") if each.get("type") == "application/json"]
    assert [spec["kind"] for spec in specs] == ["spans", "bars", "lines"]
    assert specs[0]["series"][0]["points"] == [["t1", [0, 2.5]], ["t2", [1, 2]]]
    assert specs[1]["series"][0]["points"] == [["t1", 3], ["t2", 0.33333]]


def test_the_same_bytes_again(small, large, tmp_path):
    profile = reports.profile()
    assert profile_report.write(profile, tmp_path, dim=64, rank=4).read_bytes() == large[0].read_bytes()


def test_a_report_of_856_tables_is_small(large):
    for path in large:
        text = path.read_text("utf-8")
        assert path.stat().st_size <= MOST_BYTES and text.count('<th scope="row">t') >= reports.TABLES
        Tree(text)


def test_every_axis_of_numbers_has_a_unit_and_a_part_of_a_card_its_own_colour(large):
    for path in large:
        specs = [json.loads(each["text"]) for each in Tree(path.read_text("utf-8")).of("script")
                 if each.get("type") == "application/json"]
        assert specs
        for spec in specs:
            axes = {"lines": "xy", "bars": "y", "across": "x", "spans": "x"}[spec["kind"]]
            assert all(spec[axis]["unit"] for axis in axes), spec["x"]
            parts = {each["name"] for each in spec["series"] if each["colour"] in ("dram", "ssd", "in", "out", "top")}
            assert all(any(name in each for name in ("DRAM", "SSD", "link", "network")) for each in parts), parts


def test_an_assumption_has_its_price(large):
    assert "which holds 856 of 856 tables back</th><td>20 ms less</td>" in large[1].read_text("utf-8")


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: nobody clicks")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed: nobody clicks")
    with api.sync_playwright() as started:
        found = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser):
    """Opens a page; at the end nothing was fetched and no script failed."""
    wrong, contexts = [], []

    def open_page(path, *, width=1200, scheme="light"):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        found = contexts[-1].new_page()
        found.on("pageerror", lambda error: wrong.append(str(error)))
        found.on("request", lambda request: request.url.startswith(("file:", "blob:")) or wrong.append(request.url))
        found.goto(path.as_uri())
        found.wait_for_selector("html[data-ready]", state="attached")
        return found

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def names(page):
    return page.locator(".table tbody tr:visible th").all_inner_texts()


def test_tables_are_sorted_searched_and_downloaded(opened, small):
    page = opened(small)
    assert names(page) == [row[0] for row in ROWS]
    time = page.get_by_role("button", name="time")
    time.click()
    assert page.locator("th[aria-sort=descending]").inner_text().strip() == "time"
    worth = {name: 0.09 if cell == "90 us" else float(cell.split()[0]) for name, cell, _ in ROWS}
    assert [worth[name] for name in names(page)] == sorted(worth.values(), reverse=True)
    time.press("Enter")
    assert [worth[name] for name in names(page)] == sorted(worth.values())
    page.get_by_role("searchbox").fill("X,Y")
    assert names(page) == ["t0"] and page.locator(".table output").inner_text() == "1 of 10 rows"
    with page.expect_download() as got:
        page.locator(".table .csv").click()
    assert got.value.suggested_filename == "rows-script.csv"
    assert got.value.path().read_text("utf-8") == 'table,time,note\nt0,90 us,"x,y"\n'


def test_charts_are_read_by_mouse_and_keyboard_and_downloaded(opened, small):
    page = opened(small)
    timeline, loads, curve = page.locator("figure.chart").all()
    with page.expect_download() as got:
        timeline.locator(".csv").click()
    assert got.value.path().read_text("utf-8") == 'series,card,"ms, from","ms, to"\nDRAM,t1,0,2.5\nDRAM,t2,1,2\n'
    curve.locator("canvas").focus()
    for key, told in (("ArrowRight", "a: 1 rows, 2 %"), ("ArrowRight", "a: 10 rows, 5 %"),
                      ("ArrowDown", "b: 1 rows, 1 %")):
        page.keyboard.press(key)
        assert curve.locator("output").inner_text() == told
    assert page.evaluate("charts[2].chart.scales.x.ticks.map(each => each.label)") == ["1", "2", "5", "10"]
    told = page.evaluate("""[[1446654, "samples/s"], [907710, "samples/s"], [419943, "rows"], [0.0779, "ms"]]
                            .map(([value, unit]) => read(value, {unit}))""")
    assert told == ["1.45 M samples/s", "908,000 samples/s", "419,943 rows", "0.0779 ms"]
    loads.get_by_role("button", name="Data").click()
    assert loads.locator("td").all_inner_texts() == ["rows", "t1", "3", "rows", "t2", "0.33333"]
    loads.get_by_role("button", name="Data").click()
    assert loads.locator("td").count() == 0
    page.locator("canvas").nth(1).hover(position={"x": 150, "y": 150})
    assert page.locator("tr.lit th").all_inner_texts() == ["t1"]
    page.locator(".table tbody tr").nth(2).hover()
    active = "charts.slice(0, 2).map(each => each.chart.tooltip.getActiveElements().map(({index}) => index))"
    page.wait_for_function(f"JSON.stringify({active}) === '[[1],[1]]'", timeout=5000)      # of t2
    page.locator("figure.heat td").nth(1).hover()
    assert page.locator("figure.heat output").inner_text() == "r, d: -0.5"


def luminance(colour):
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_themes_have_contrast(opened, small):
    """WCAG AA: 4.5 for text, 3 for what is drawn, in both themes, by the system and by the switch."""
    grounds = []
    for scheme in ("light", "dark"):
        page = opened(small, scheme=scheme)
        switch = page.locator("#theme")
        for theme in ("auto", "light", "dark"):
            assert switch.inner_text() == f"Theme: {theme}"
            names = ("ground", "panel", "lit", "ink", "soft", "accent", "good", "bad", "dram", "tt", "ssd", "in", "out",
                     "bottom", "top", *COLOURS)
            found = dict(zip(names, map(luminance, page.evaluate("names => names.map(colour)", names))))
            grounds.append(found["ground"] < 0.1)
            for name, value in found.items():
                for ground in ("ground", "panel", "lit"):
                    ratio = (max(value, found[ground]) + 0.05) / (min(value, found[ground]) + 0.05)
                    least = 4.5 if name in ("ink", "soft", "accent", "good", "bad") and ground != "lit" else 3
                    assert name in ("ground", "panel", "lit") or ratio >= least, (theme, name, ground, ratio)
            switch.click()
    assert grounds == [False, False, True, True, False, True]


@pytest.mark.turns(1, of="processes")
@pytest.mark.parametrize("width", [360, 1920])
def test_a_large_report_at_every_width(opened, large, width):
    page = opened(large[width == 360], width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("searchbox", name="Tables").fill("t85")
    tables = page.locator(".table", has_text="Tables, the most accessed first")
    assert tables.locator("tbody tr:visible").count() == 6
