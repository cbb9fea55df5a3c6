"""docs/papers.md, hotrail/papers.json and the site's page: the papers' claims and readings beside the recorded rows."""

import math
import re

import pytest

from bench import page, readings
from bench.framework import at_least, figure
from bench.readings import Figure, Headline, Paper
from gen.base.tools import data_path

TEXT = page.PAPER_LINES.read_text("utf-8")
LAYOUT, NEWER = readings.papers(TEXT), readings.newer(TEXT)
RECORDED = page.recorded(page.RESULTS)


def numbered(at, *numbers):
    return {f"{at} {number}" for number in numbers}


#: What a reader looks for.
WANTED = {
    "screc": numbered("Fig.", 6, *range(8, 13)),
    "hotline": (numbered("Fig.", 5.2, 6.4, 6.6, 6.8, *(f"7.{k}" for k in range(1, 9)))
                | numbered("Table", 7.4, 7.5, 7.6)),
    "el-rec": numbered("Fig.", 4, *range(11, 19)) | numbered("Table", 3, 4),
    "scars": numbered("Fig.", 4) | numbered("Table", *range(1, 8)),
    "freqcache": numbered("Fig.", 2, *range(5, 15)),
}


def test_the_page_and_the_commands_file_show_the_recorded_results():
    rows = RECORDED.values()
    assert page.PAPERS.read_text("utf-8") == readings.document(rows, LAYOUT, NEWER), "run python -m bench.page"
    assert page.PACKED.read_text("utf-8") == page.shown(rows, LAYOUT), "run python -m bench.page"


@pytest.mark.parametrize("paper", LAYOUT, ids=lambda paper: paper.key)
def test_every_figure_is_answered(paper):
    assert WANTED[paper.key] <= {each.at for each in paper.figures}
    assert paper.headlines and all(each.holds in readings.HOLDS for each in paper.headlines)
    for each in paper.figures:
        assert (each.why or each.needs).endswith("."), each
    assert all(text.endswith(".") for text in paper.verdict.values())


def test_the_site_shows_every_figure():
    text = readings.figures(RECORDED.values(), LAYOUT, readings.about(TEXT))
    for paper in LAYOUT:
        assert all(f"### {paper.title}: {at}\n" in text for at in paper.verdict)
    rows = [line for line in text.splitlines()
            if line.startswith("| ") and not line.startswith(("| what |", "| figure |"))]
    assert len(rows) == sum(len(paper.figures) for paper in LAYOUT)


NUMBER = re.compile(r"(\d[\d,]*\.?\d*)(K?)")


def numbers(text):
    return {float(digits.replace(",", "").rstrip(".")) * (1000 if thousands else 1)
            for digits, thousands in NUMBER.findall(text)}


def quoted(paper):
    """What is the paper's own in its lines: claims, readings, the words beside ours, and lines without rows of ours."""
    texts = [each.claim for each in paper.headlines]
    texts += [f"{each.at} {each.source} {each.beside} {'' if each.ids else each.what}" for each in paper.figures]
    return numbers(" ".join(texts)) | {each for line in paper.figures for each in line.reading if not math.isnan(each)}


@pytest.mark.parametrize("paper", LAYOUT, ids=lambda paper: paper.key)
def test_numbers_of_a_paper_stand_in_its_text(paper):
    index = data_path("../papers/README.md")
    if index is None:
        pytest.skip("needs the papers' texts, in the folder papers beside the one that HOTRAIL_DATA names")
    name = re.search(rf"^\| {paper.title} \| (\S+) \|", index.read_text("utf-8"), re.MULTILINE)[1]
    assert not quoted(paper) - numbers((index.parent / name).read_text("utf-8"))


def test_numbers_are_read_as_papers_write_them():
    assert numbers("229.0K LUT, 2,048 samples, 1.5% of §7.2.1, up to 13.35×. In 2022.") == {
        229000, 2048, 1.5, 7.2, 1, 13.35, 2022}


ROWS = [at_least("a.x", "", 30.0, "times", 20), figure("a.y", "", "none", ""), figure("b", "", 5.0, "times")]


def of(*figures, answer="Yes, {a.x}."):
    verdict = {each.at: "Holds, {b}." for each in figures if each.ids}
    return Paper("k", "P", "*Book*", "`hw/`", "All.", "About.", (Headline("c", "yes", answer),), figures, verdict)


def test_a_line_has_reading_value_ratio_and_why():
    lines = (Figure("Fig. 1", "§2", "w", ("a.x", "a.y", "b"), reading=(60.0, 4.0, float("nan")), why="So."),
             Figure("Fig. 2", "§3", "v", ("b",), beside="fast", why="Else."),
             Figure("Fig. 3", "§3", "u", needs="GPUs."))
    text = readings.figures(ROWS, [of(*lines)], "Head.")
    assert ("### P: Fig. 1\n\nHolds, 5 times.\n\n" in text)
    assert ("| w (§2) | 60 / 4 / - times | 30 times / none / 5 times (`a.x`, `.y`, `b`, target >= 20) | "
            "0.5 / - / - | So. |") in text
    assert "| v (§3) | fast | 5 times (`b`) | - | Else. |" in text and "| Fig. 3 (§3) | u | GPUs. |" in text
    text = readings.document(ROWS, [of(*lines)])
    assert "| P: c | yes | Yes, 30 times. |" in text
    first, _, last = readings.packed(ROWS, [of(*lines)])["papers"][0]["figures"]
    assert first["ratio"] == [0.5, None, None] and first["reading"] == [60.0, 4.0, None]
    assert not last["rows"] and last["needs"] == "GPUs."


def test_only_what_is_the_papers_own_counts_as_quoted():
    lines = (Figure("Fig. 1", "§2", "7 of ours", ("b", "a.x"), reading=(60.5, math.nan), why="8."),
             Figure("Fig. 3", "§4", "9 of ours", ("b",), beside="0.5 to 11", why="12."),
             Figure("Fig. 5", "§6", "13 %", needs="14 GPUs."))
    assert quoted(of(*lines, answer="15, {a.x}.")) == {1, 2, 60.5, 3, 4, 0.5, 11, 5, 6, 13}


def test_what_is_not_recorded_is_named():
    with pytest.raises(LookupError, match="papers.toml names gone, not recorded"):
        readings.packed(ROWS, [of(Figure("Fig. 1", "§2", "w", ("b", "gone"), beside="1", why="So."))])
    with pytest.raises(LookupError, match="names gone.x"):
        readings.document(ROWS, [of(answer="{gone.x}")])


def test_a_figure_with_rows_needs_a_verdict():
    line = Figure("Fig. 1", "§2", "w", ("b",), beside="1", why="So.")
    with pytest.raises(ValueError, match="papers.toml, P: a verdict and rows belong together: Fig. 1, Fig. 2"):
        Paper("k", "P", "", "", "", "", (), (line,), {"Fig. 2": "Holds."})


@pytest.mark.parametrize("wrong", [
    {"ids": ("b",), "why": "So."}, {"ids": ("b",), "beside": "1"}, {"needs": ""}, {"needs": "x", "why": "So."},
    {"ids": ("b",), "beside": "1", "why": "So.", "needs": "x"}, {"ids": ("b",), "reading": (1.0, 2.0), "why": "So."},
    {"ids": ("b",), "beside": "1", "reading": (1.0,), "why": "So."},
    {"ids": ("b",), "beside": "1", "why": "So.", "over": ("1", "2")}])
def test_a_line_without_what_it_must_have_is_refused(wrong):
    with pytest.raises(ValueError, match="papers.toml, Fig. 1, w: "):
        Figure("Fig. 1", "§2", "w", **wrong)
