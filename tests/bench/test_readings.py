"""docs/papers.md, hotrail/papers.json and the site's page: the papers' claims and readings beside the recorded rows."""

import math
import re
from dataclasses import replace

import pytest

from bench import page, readings, train_time
from bench.framework import at_least, figure
from bench.plots import drawn
from bench.readings import Figure, Headline, Paper
from gen.base.tools import data_path

TEXT = page.PAPER_LINES.read_text("utf-8")
LAYOUT, DISPUTED, NEWER = readings.papers(TEXT), readings.disputed(TEXT), readings.newer(TEXT)
RECORDED = page.recorded(page.RESULTS)


def numbered(at, *numbers):
    return {f"{at} {number}" for number in numbers}


#: What a reader looks for.
WANTED = {
    "screc": numbered("Fig.", 6, *range(8, 13)),
    "hotline": (numbered("Fig.", 1.2, 5.2, 6.4, 6.6, 6.8, *(f"7.{k}" for k in range(1, 9)))
                | numbered("Table", 7.4, 7.5, 7.6)),
    "el-rec": numbered("Fig.", 4, *range(11, 19)) | numbered("Table", 3, 4),
    "scars": numbered("Fig.", 4) | numbered("Table", *range(1, 8)),
    "freqcache": numbered("Fig.", 1, 2, *range(5, 15)),
}


def test_the_page_and_the_commands_file_show_the_recorded_results():
    rows = RECORDED.values()
    text = readings.document(rows, LAYOUT, DISPUTED, NEWER)
    assert page.PAPERS.read_text("utf-8") == text, "run python -m bench.page"
    assert page.PACKED.read_text("utf-8") == page.shown(rows, LAYOUT), "run python -m bench.page"


def test_the_pictures_are_of_the_recorded_results():
    wanted = readings.pictures(RECORDED.values(), LAYOUT)
    kept = {path.stem: path.read_text("utf-8") for path in page.PICTURES.glob("papers-*.svg")}
    assert sorted(kept) == sorted(wanted)
    assert [name for name in wanted if kept[name] != wanted[name]] == [], "run python -m bench.page"


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
ROMAN = "I", "II", "III", "IV", "V", "VI", "VII"
# Headings: "IV. EVALUATION" and "C. Performance", or "# 7.2.1 Accuracy" and "## Chapter 5".
LETTERED = re.compile(r"(?m)^(?:([IVX]+)\. [A-Z]{2}|([A-H])\. [A-Z][A-Za-z])")
NUMBERED = re.compile(r"(?m)^(?:#* ?(\d(?:\.\d+)*) \*?[A-Z]|#+ Chapter (\d))")
NEAR = 2500         # characters around the name of a figure or a table
QUOTES = re.compile(r"paper|thesis|caption|SCRec|TT-Rec|§|\btext\b|published")
#: In sentences on a paper, what follows from its numbers, or is hotrail's.
DERIVED = {
    "screc": {
        62,                     # 10^4 over 161.77
        3.91},                  # terabytes of 788 tables of 4,841,017 rows of 256 values
    "hotline": {
        11.25,                  # indices of 4 bytes: 15.75 GB/s over 350 MHz
        4096,                   # thousand entries of 17 bits: 8.5 MB
        23.2},                  # square millimetres of 8 MB of Intel's bit cells
    "el-rec": {
        1.77,                   # mean of 1.83 and 1.70
        8.9,                    # million rows of Avazu, 8.9M in table II, where the text has 8.9101
        1.11, 2.08, 1.15},      # 1 over 1 less 10, 52 and 13 %
}


def numbers(text):
    return {float(digits.replace(",", "").rstrip(".")) * (1000 if thousands else 1)
            for digits, thousands in NUMBER.findall(text)}


def sections(text):
    """The text of each section with its parts, by its number; what is before the first is the abstract."""
    lettered = re.search(r"(?m)^I\. INTRO", text)
    chapter, marks = "", []
    for match in (LETTERED if lettered else NUMBERED).finditer(text):
        whole, part = match.groups()
        if lettered and part:
            label = f"{chapter}.{part}"
        else:
            label = chapter = whole or part
        marks.append((label, match.start()))
    found = {"abstract": text[:marks[0][1]]}
    for (label, start), (_, end) in zip(marks, [*marks[1:], ("", len(text))], strict=True):
        parts = label.split(".")
        for depth in range(1, len(parts) + 1):
            name = ".".join(parts[:depth])
            found[name] = found.get(name, "") + text[start:end]
    return found


def near(text, kind, number):
    """What stands around each mention of a figure or a table."""
    roman = "" if "." in number else f"|{ROMAN[int(number) - 1]}" if int(number) <= len(ROMAN) else ""
    names = rf"(?:fig\.|figure)\s?{re.escape(number)}" if kind == "Fig." else rf"able\s(?:{re.escape(number)}{roman})"
    return " ".join(text[max(0, match.start() - NEAR):match.end() + NEAR]
                    for match in re.finditer(rf"(?i){names}(?![\d.]*\d)(?![IVX])", text))


def places(text, where):
    """What a paper has at the sections, figures and tables that a line names, by their names."""
    parts = sections(text)
    named = re.findall(r"§([IVX]+(?:\.[A-H])?|\d(?:\.\d+)*)", where) + re.findall("abstract", where)
    found = {name: parts.get(name, "") for name in named}
    for kind, listed in re.findall(r"(Fig\.|[Tt]able) ((?:\d+(?:\.\d+)?[ab]?(?:, (?=\d))?)+)", where):
        for number in listed.split(", "):
            found[f"{kind} {number}"] = near(text, kind, number.rstrip("ab"))
    return found


def labelled(claim):
    """(a claim without where it stands, where it stands)."""
    where = " ".join(re.findall(r"\(([^)]*)\)", claim))
    return re.sub(r"(?:Fig\.|[Tt]able|§|eq\.) ?[\d.IVXab, ]+", "", claim), where


def quoted(paper):
    """(numbers that are the paper's own, where they stand, the line): claims, readings, the words beside ours, and
    lines without rows of ours."""
    for each in paper.headlines:
        claim, where = labelled(each.claim)
        yield numbers(claim), where, each.claim
    for each in paper.figures:
        own = numbers(f"{each.beside} {'' if each.ids else each.what}")
        yield own | {abs(one) for one in each.reading if not math.isnan(one)}, f"{each.at} {each.source}", each.what


def remarks(paper):
    """Sentences on the paper in answers, reasons and verdicts, without values of ours."""
    texts = [*(each.answer for each in paper.headlines), *(f"{each.why} {each.needs}" for each in paper.figures),
             *paper.verdict.values()]
    sentences = {one for each in texts for one in re.split(r"(?<=[.;]) ", re.sub(r"\{[^}]*\}|`[^`]*`", "", each))}
    return sorted(filter(QUOTES.search, sentences))


@pytest.fixture(params=LAYOUT, ids=lambda paper: paper.key)
def source(request):
    """(a paper, its text)."""
    index = data_path("../papers/README.md")
    if index is None:
        pytest.skip("needs the papers' texts, in the folder papers beside the one that HOTRAIL_DATA names")
    name = re.search(rf"^\| {request.param.title} \| (\S+) \|", index.read_text("utf-8"), re.MULTILINE)[1]
    return request.param, (index.parent / name).read_text("utf-8")


def test_numbers_of_a_paper_stand_where_the_line_says(source):
    paper, text = source
    for own, where, line in quoted(paper):
        found = places(text, where)
        assert found and all(found.values()), f"{line}: {where}"
        assert not own - numbers(" ".join(found.values())), f"{line}: {where}"


def test_numbers_in_sentences_on_a_paper_stand_in_its_text(source):
    paper, text = source
    known = numbers(text) | DERIVED.get(paper.key, set())
    assert not [(numbers(one) - known, one) for one in remarks(paper) if numbers(one) - known]


#: How pages begin where the text has no marks between them: columns and pages end within a sentence, before what stands
#: on top of the next, behind a footnote or before a running title.
BEGINS = {
    "el-rec": {2: "\nFig. 1. ", 3: "\nFig. 4. ", 4: "TT slice indexed by"},
    "scars": {2: "cost without caching. We", 4: "with prior methods", 5: "the third and the last", 6: "certain epoch"},
    "freqcache": {2: "2.2.2 Hybrid", 3: "\nFigure 2:", 5: "\nFigure 4:", 6: "#Sparse feature", 7: "5.3.2 Throughput"}}


def pages(text, begins, position):
    """The first and the last page that a place in a text may be on."""
    starts = {1: 0} | {page: text.index(words) for page, words in begins.items()}
    assert sorted(starts.values()) == [starts[page] for page in sorted(starts)]
    first = max(page for page, start in starts.items() if start <= position)
    return first, min((page for page in starts if page > first), default=first + 1) - 1


#: What sections without a caption are read for, from its first word to its last.
PASSAGES = {"eq. 2": r"quad \(2\)", "eq. 3": r"quad \(3\)", "eq. 6, 7": r"(?s)quad \(6\).*quad \(7\)",
            "end of §II.B": r"(?s)When analyzed with .* theoretical performance", "§4.3": "LFU eviction strategy"}


def passage(at, source):
    """What a text has where a line points."""
    kind, _, number = at.partition(" ")
    if kind == "Table":
        return rf"(?m)^TABLE {ROMAN[int(number) - 1]}$"
    if kind == "Fig.":
        return rf"(?m)^Fig(?:\.|ure) {number}[.:]"
    return next(words for name, words in PASSAGES.items() if name in f"{at} {source}, ")


def test_figures_stand_on_their_pages(source):
    """By the marks between the pages, by how they begin, or by the lists of figures and tables."""
    paper, text = source
    marked = re.split(r"--- Page \d+ ---", text)
    for each in paper.figures:
        if not (named := re.search(r", p\. (\d+)(?:-(\d+))?$", each.source)):
            assert paper.key == "el-rec", f"{each}: without a page"
            continue
        first, last = int(named[1]), int(named[2] or named[1])
        if marked[1:]:
            assert re.search(passage(each.at, each.source), marked[first]), each
        elif paper.key in BEGINS:
            for page, place in zip((first, last), re.search(passage(each.at, each.source), text).span(), strict=True):
                least, most = pages(text, BEGINS[paper.key], place)
                assert least <= page <= most, each
        else:
            kind, number = each.at.split()
            listed = rf"(?m)^{'Figure' if kind == 'Fig.' else kind} {re.escape(number)}\t.*\t{first}$"
            assert re.search(listed, text), each


def test_the_model_of_a_step_is_held_against_the_readings():
    published = {f"train.model.{each.id}": each.value for each in train_time.published()}
    read = {id: value for paper in LAYOUT for each in paper.figures if each.reading
            for id, value in zip(each.ids, each.reading, strict=True) if id in published}
    assert read == {id: value for id, value in published.items() if not id.endswith("freqcache.torchrec")}


def test_numbers_are_read_as_papers_write_them():
    assert numbers("229.0K LUT, 2,048 samples, 1.5% of §7.2.1, up to 13.35×. In 2022.") == {
        229000, 2048, 1.5, 7.2, 1, 13.35, 2022}


def test_sections_figures_and_tables_of_a_paper_are_found():
    text = "Up to 9.\nI. INTRODUCTION\n7\nA. Setup\n8, see Fig. 12\nII. END\n6\n" + "-" * NEAR + "\nTABLE II\n5"
    assert places(text, "abstract, §I, §I.A, §II; §III") == {
        "abstract": "Up to 9.\n", "I": "I. INTRODUCTION\n7\nA. Setup\n8, see Fig. 12\n",
        "I.A": "A. Setup\n8, see Fig. 12\n", "II": text[text.index("II. END"):], "III": ""}
    found = places(text, "Fig. 1, 12b, table 2")
    assert not found["Fig. 1"] and numbers(found["Fig. 12b"]) >= {9, 8} and numbers(found["table 2"]) == {5}
    assert places("# 7.1 Setup\n3\n#### 7.1.2 Server\n4", "§7.1.2") == {"7.1.2": "#### 7.1.2 Server\n4"}


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


def charted(series, ids, over, **more):
    return Figure("Fig. 1", "§2", "w", ids, why="So.", chart="C & D", series=series, over=over, unit="GPUs", **more)


def test_a_picture_has_lines_of_ours_and_dots_of_the_paper():
    rows = [figure(id, "", value, "us") for id, value in
            (("a", 1.0), ("b", 10.0), ("c", 1000.0), ("d", "none"), ("e", 100.0))]
    first = charted("first", ("a", "b", "c"), ("1", "2", "4"), beside="a curve")
    late = charted("late", ("b", "e"), ("2", "4"), reading=(math.nan, 1000.0))
    none = charted("none", ("d", "e"), ("2", "4"), reading=(math.nan, 1000.0))

    def drawn_of(*lines):
        picture = readings.pictures(rows, [replace(of(*lines, answer=""), plots={"p": "C & D"})])["p"]
        dots = re.findall(r'cx="(.*?)" cy="(.*?)" r="4" fill="(.*?)"', picture)
        return picture, *([tuple(map(float, point.split(","))) for point in line.split()]
                          for line in re.findall(r'points="([^"]*)"', picture)), [
            (float(x), float(y), fill) for x, y, fill in dots]

    picture, at_first, at_late, at_none, dots = drawn_of(first, late, none)
    assert "P, C &amp; D" in picture and ">GPUs</text>" in picture and ">us</text>" in picture
    assert re.findall(r'text-anchor="end">([^<]*)<', picture) == ["1", "10", "100", "1,000"]
    assert at_late[0] == at_first[1] and at_none == [at_late[1]] and at_late[1][0] == at_first[2][0]
    assert at_first[0][1] - at_first[1][1] == pytest.approx(at_late[0][1] - at_late[1][1], abs=0.11)
    assert dots == [(*at_first[2], "#333")]
    _, at_first, _, _, dots = drawn_of(first, late, replace(none, reading=(1.0, 10.0)))
    assert [fill for *_, fill in dots] == ["#c2571a", "#4f7f2b", "#4f7f2b"]
    assert [y for _, y, _ in dots] == [at_first[k][1] for k in (2, 0, 1)]
    with pytest.raises(ValueError, match="papers.toml, P: no line is of the chart E"):
        replace(of(first, answer=""), plots={"p": "E"})


def test_an_axis_goes_below_zero_where_values_do():
    picture = drawn("T", "x", "y", ("1", "2"), {"a": (-2.5, 0.5)})
    assert re.findall(r'text-anchor="end">([^<]*)<', picture) == ["-2.5", "-2", "-1.5", "-1", "-0.5", "0", "0.5"]


def test_only_what_is_the_papers_own_counts_as_quoted():
    lines = (Figure("Fig. 1", "§2", "7 of ours", ("b", "a.x"), reading=(60.5, math.nan), why="8."),
             Figure("Fig. 3", "§4", "9 of ours", ("b",), beside="0.5 to 11", why="12. The paper has 17; {a.x} here."),
             Figure("Fig. 5", "§6", "13 %", needs="14 GPUs."))
    paper = of(*lines, answer="15, {a.x}.")
    assert list(quoted(paper)) == [(set(), "", "c"), ({60.5}, "Fig. 1 §2", "7 of ours"),
                                   ({0.5, 11}, "Fig. 3 §4", "9 of ours"), ({13}, "Fig. 5 §6", "13 %")]
    assert remarks(paper) == ["The paper has 17;"]
    assert labelled("2 times (Fig. 11, 12: 8 cards; §5.2, table 7.6)")[1] == "Fig. 11, 12: 8 cards; §5.2, table 7.6"
    assert numbers(labelled("2 times (Fig. 11, 12: 8 cards; §5.2, table 7.6)")[0]) == {2, 8}


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
