"""What cards offer: the rows, and the table and the picture of the page."""

import pytest

from bench import cards
from bench.cards import BAGS, PAGE, PICTURE, picture, table
from bench.page import with_table
from fpga.api.servers import facts

pytestmark = pytest.mark.regress


def test_every_target_is_met():
    rows = list(cards.cards_rows())
    assert len(rows) == 2 * len(cards.DIMS) + 2 and all(row.met for row in rows)


def test_rows_by_published_figures():
    rows = {row.id: row for row in cards.cards()}
    assert float(rows["cards.published.u55c.256"].value) == 1577.5
    assert 1400 < float(rows["cards.u55c.modelled.256"].value) < 1600 and rows["cards.u55c.failfast"].met
    assert len([row for row in rows if row.startswith("cards.published.")]) == 8 * len(cards.SIZES)


def test_as_many_cores_are_compared_as_fit():
    (entry,) = (each for each in facts()["compared"] if each["key"] == "u55c_cores")
    assert cards.cores() == entry["channels"] == 14 and entry["name"] == "Alveo U55C, 14 EMB cores"


def test_the_page_has_what_is_compared():
    text = PAGE.read_text("utf-8")
    assert with_table(text, "cards", table()) == text, "run `python -m bench.cards`"
    assert PICTURE.read_text("utf-8") == picture(cards._compared(256, BAGS[-1])), "run `python -m bench.cards`"
