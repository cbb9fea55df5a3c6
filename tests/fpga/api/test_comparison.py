"""One machine of each kind by published figures: what binds it, and what it costs."""

from dataclasses import replace

import numpy as np
import pytest

from fpga.api.comparison import Lookups, compare, sentence
from fpga.api.servers import facts, server
from fpga.api.verdict import HOURS, Prices
from gen.data.profile import Heat, Profile, TableProfile
from gen.model.device import Device
from gen.model.recommender import Recommender

PRICES = Prices.given("smartssd")


def compared(size=256, rows=32.0, prices=PRICES):
    return {each.key: each for each in compare(Lookups(10 * rows, size, 10, 256), prices)}


def test_rows_by_published_figures():
    """The figures; between two sizes on a line over the logarithm, below in proportion, above as the last one."""
    for size, gb_s in ((256, 12.62), (64, 4.75), (32, 2.375), (2048, 13.16)):
        assert compared(size)["u55c"].rows_s == pytest.approx(32e9 * gb_s / size)
    assert compared(181)["u55c"].rows_s * 181 == pytest.approx(32e9 * 11.11, rel=1e-3)
    found = compared()
    assert found["f2_hbm"].rows_s == found["u55c"].rows_s
    assert found["socket"].rows_s == 0.7 * 460.8e9 / 256 and found["gpu"].rows_s == 0.8 * 3.35e12 / 256
    assert found["core"].rows_s == pytest.approx(10 * 32 / (320 * (1 / 65.4e6)), rel=2e-3)
    assert compared(64)["core"].rows_s == found["core"].rows_s
    assert 30e6 < found["smartssd"].rows_s < 36e6
    assert found["u55c_cores"].rows_s == pytest.approx(14 * 49.7e6, rel=0.02)


def test_results_bind_short_bags_of_cards_alone():
    found, link = compared(rows=1.0), Device.load("u55c").link
    assert found["u55c"].limit == "results" and found["socket"].limit == found["gpu"].limit == "rows"
    assert found["u55c"].samples_s == pytest.approx(1e9 * link.gb_s * link.efficiency / 2560)
    longer = compared(rows=40.0)
    assert longer["u55c"].limit == "rows" and longer["u55c"].samples_s == longer["u55c"].rows_s / 400


def test_watts_and_money():
    found = compared()
    assert found["u55c"].watts == (30, 150) and found["u55c"].usd is None
    assert found["f2_ddr"].usd == pytest.approx(1.98 * HOURS * 3)
    assert found["core"].watts == (server().watts / 64,) * 2
    assert found["smartssd"].usd == pytest.approx(facts()["cards"]["smartssd"]["usd"] + 0.025 * HOURS * 3 * PRICES.kwh)
    assert compared(prices=replace(PRICES, years=1.0))["f2_hbm"].usd == pytest.approx(1.98 * HOURS)
    assert found["u55c"].samples_j == found["u55c"].samples_s / 150


@pytest.mark.parametrize("size, memory, cores", [(256, "1.25 times", "0.55 times"), (64, "0.47 times", "0.19 times")])
def test_whether_hbm_is_worth_a_card(size, memory, cores):
    """The memory of a U55C reads more rows than a socket, the cores that fit it fewer."""
    load = Lookups(320, size, 10, 256)
    said = sentence(compare(load, PRICES), load)
    assert said.startswith(f"a U55C's memory reads {memory} the rows of a socket by published bandwidths (")
    assert f"the EMB cores that fit it {cores} (" in said and "too little for a card; results bind" in said


def test_lookups_of_a_model():
    table = TableProfile("t", 1000, 500, Heat.of([500]), np.array([3]), np.array([500]))
    found = Lookups.of(Recommender.of("m", {"t": 1000}, 64), Profile("log", 500, {"t": table}))
    assert found == Lookups(found.rows, 256.0, 1, 256.0) and found.rows == table.pooling
    assert compare(replace(found, rows=0.0), PRICES) == ()
