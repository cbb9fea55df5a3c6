"""Virtual cards: the channels of a board with a core each. Bits on every board, and what boards share."""

import numpy as np
import pytest

from fpga.api.embedding import EmbeddingBags
from fpga.card import Device
from fpga.card.costs import measure
from gen.model.platform import names
from tests.support import emb_tables as make


def test_a_board_is_shared():
    """Link and watts by the channels in use, up to all; nothing of a card with one channel."""
    board, smartssd = Device.load("u55c"), Device.load("smartssd")
    for cards, of in ((1, 1), (8, 8), (32, 32), (40, 32)):
        part = board.shared(cards)
        assert part.link.gb_s == pytest.approx(board.link.gb_s / of)
        assert part.power.slot_w == pytest.approx(150 / of) and part.dram == board.dram and part.name == board.name
    assert smartssd.shared(8) is smartssd
    assert [board.boards(cards) for cards in (1, 32, 33)] == [1, 1, 2] and smartssd.boards(3) == 3


def test_the_plan_s_costs_share_the_link():
    board, smartssd = (measure(name, "tiny", dims={16}) for name in ("u55c", "smartssd"))
    of_eight = board.shared(8)
    assert of_eight.link_s == pytest.approx(8 * board.link_s) and of_eight.row_s == board.row_s
    assert of_eight.page_s >= of_eight.page_bytes * of_eight.link_s * (1 - 1e-9)
    assert smartssd.shared(8) is smartssd and board.shared(1) is board and of_eight.shared(8) is of_eight
    assert of_eight.shared(9).link_s == pytest.approx(9 * board.link_s)
    assert board.row_s[1] < smartssd.row_s[1]


def test_every_board_gives_the_same_bits():
    """The same tables and batch on the twin of a core at each board's memory; what differs is the time."""
    random = np.random.default_rng(5)
    table = make.mixed(random)
    indices, offsets = make.bags(random, table.rows, 60, 12, zipf=0.7)
    found, cycles = {}, {}
    for name in names():
        with EmbeddingBags([table], card="twin", preset=make.config(), device=Device.load(name).shared(4)) as bags:
            found[name] = bags("items", indices, offsets, include_last_offset=True)
            cycles[name] = bags.last["cycles"]
    for name, vectors in found.items():
        np.testing.assert_array_equal(vectors.view(np.uint32), found["smartssd"].view(np.uint32), name)
    assert len(set(cycles.values())) == len(cycles)
