"""What cards offer: the rows, and the table and the picture of the page."""

import pytest

from bench import cards
from bench.cards import BAGS, PAGE, PICTURE, picture, written


def test_targets():
    rows = {row.id: row for row in cards.cards()}
    assert rows["cards.u55c.times"].met and float(rows["cards.published.u55c.256"].value) == 1577.5
    assert len([row for row in rows if row.startswith("cards.published.")]) == 7 * len(cards.SIZES)


def test_the_page_has_what_is_compared():
    text = PAGE.read_text("utf-8")
    assert written(text) == text and PICTURE.read_text("utf-8") == picture(cards._compared(256, BAGS[-1])), \
        "run `python -m bench.cards`"
    with pytest.raises(LookupError, match="cards.md has no place for the table"):
        written("nothing")
