"""Cards of a bundle without tensor trains whose EMB cores are the oracle, however many are opened."""

import fpga.card.runs
from gen.rtl.config import load
from golden.emb.core import Emb
from tests.support import emb_card


def opened_by(monkeypatch):
    """Every card that is opened from now on is one; returns the list that they are added to."""
    cards = []

    def opened(kind, *, core, preset, **options):
        assert core == "emb", "only tables are on these cards"
        cards.append(emb_card.OracleCard(Emb.of(load(preset).cores["emb"])))
        return cards[-1]

    monkeypatch.setattr(fpga.card.runs, "open_card", opened)
    return cards
