"""Every core says what it is, and a card is refused whose core is another than the caller means."""

from dataclasses import replace

import numpy as np
import pytest

from fpga import card
from fpga.api.embedding import EmbeddingBags, Table
from fpga.api.network import MlpNetwork
from fpga.card import CardError
from fpga.card.identity import Identity, check, of
from gen.model.network import Model
from gen.rtl import config
from gen.rtl.headers import KERNELS
from tests.support.xrt_double import TINY, Machine, Xrt

TWO = replace(TINY, dram_queue=2 * TINY.dram_queue)
REFUSED = ("^the emb core of the card has another configuration: its digest is [0-9a-f]{16}, and that of the preset "
           "wanted here is [0-9a-f]{16}; open a card of that preset, or compile for the card's$")


def test_equal_configurations_alone_have_equal_digests():
    """Of all presets; whatever a preset is called."""
    seen = {}
    for name in config.names():
        for core, settings in config.load(name).cores.items():
            if core in KERNELS:
                assert seen.setdefault((core, of(core, settings).configuration), settings) == settings, name
    assert of("emb", TINY) == of("emb", replace(TINY)) != of("emb", TWO)
    assert of("mlp", config.load("tiny").cores["mlp"]).core == "mlp"


@pytest.mark.turns(1)
@pytest.mark.parametrize("options", [{"kind": "sim"}, {"kind": "twin"}, {"kind": "twin", "process": True}])
def test_cards_know_their_core(options):
    """By its registers, before any time has passed; a bundle's tables for another configuration are refused."""
    with card.open(core="emb", preset="tiny", **options) as opened:
        assert opened.identity == of("emb", TINY) and opened.counters()["cycles"] == 0
        table = Table("rows", 4, np.arange(8, dtype=np.uint32), np.zeros((8, 4), np.float32),
                      np.zeros((0, 4), np.float32))
        with pytest.raises(CardError, match=REFUSED):
            EmbeddingBags([table], card=opened, preset=TWO)
        with pytest.raises(CardError, match="^the card holds the core emb, not the core mlp$"):
            MlpNetwork(Model("small", "", (4, 4), "dot", 2, 4, (2, 1), "relu", "sigmoid").network(1), card=opened,
                       preset="tiny")


@pytest.mark.parametrize(("change", "sentence"), [
    ({"core": "mlp"}, "the card holds the core mlp, not the core emb"),
    ({"core": ""}, "the card holds no core of hotrail, not the core emb"),
    ({"version": (0, 1, 9)}, r"the emb core of the card was made by hotrail 0\.1\.9, and this is hotrail [0-9.]*: make "
                             "and link it anew"),
    ({"configuration": 1}, REFUSED[1:-1]),
])
def test_what_is_refused(change, sentence):
    own = of("emb", TINY)
    check(own, "emb", TINY)
    check(own, "emb")
    check(None, "emb", TINY)
    check(own._replace(version=(*own.version[:2], own.version[2] + 1)), "emb", TINY)
    with pytest.raises(CardError, match=f"^{sentence}$"):
        check(own._replace(**change), "emb", TINY)


def test_a_real_card_is_asked(tmp_path):
    machine = Machine(tmp_path)
    with machine.open(config=TINY) as opened:
        assert opened.identity == of("emb", TINY) and opened.code() == 0
    with pytest.raises(CardError, match="^the emb core of card .* has another configuration: "):
        machine.open(config=TWO)
    other = Xrt()
    other.identity[KERNELS["emb"].register("core").offset] = 0
    with pytest.raises(CardError, match="^card .* holds no core of hotrail, not the core emb$"):
        machine.open(other)
    assert Identity.read({"core": 0x7A7A, "version": 0x10203, "configuration_low": 5, "configuration_high": 6}) == (
        "zz", (1, 2, 3), 5 | 6 << 32)
