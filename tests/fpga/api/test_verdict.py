"""Verdicts on loads: who is the cheapest, by how much plans may be off, and what is said."""

from dataclasses import replace

import numpy as np
import pytest

from fpga.api import verdict
from fpga.api.servers import facts, gpu, server
from fpga.api.verdict import Choice, Prices, decide
from gen.data.profile import Heat, Profile, TableProfile
from gen.model.device import Device
from gen.model.recommender import Recommender
from gen.planner.arrivals import Stages
from gen.planner.plan import Plan, PlanCard
from gen.planner.sizing import Copy

PRICES = Prices(1000.0, 6400.0, 8000.0, 0.0)
CARDS = Choice("cards, c", "card", ((1, 10.0), (4, 60.0)), 0.0, (0.5, 1.0), (10, 20), 100.0)


@pytest.fixture(autouse=True)
def spread(monkeypatch):
    monkeypatch.setattr(verdict, "facts", lambda: {**facts(), "plan_over_twin": {"low": 0.59, "high": 1.01}})


def decided(rate, qps, core_s, *, rows=1000, prices=PRICES, group=1, **limit):
    """Of cards of which a group bears `rate`."""
    model = Recommender.of("m", {"t": rows}, 64)
    table = TableProfile("t", rows, 500, Heat.of([500]), np.array([1]), np.array([500]))
    stages = Stages.linear(("in", "embedding"), np.array([1e-5, 1e-5]), np.array([1e-7, 2e-7]), 100)
    plan = Plan(model, "smartssd", "smartssd", 4096, 1 << 24, {}, {}, (PlanCard(0, "emb"),) * group, 0, 0, 1e-3, 1e-3)
    return decide([Copy(plan, stages, rate, int(rate > 0), None)], Device.load("smartssd"),
                  Profile("log", 500, {"t": table}), qps, core_s, prices, **limit)


def test_a_core_that_takes_too_long_for_a_sample_serves_nothing():
    made = decided(1e4, 100, 5e-3, limit_s=5e-3)
    assert made.kind == "core" and made.sentence.startswith("one core serves this (0.5 of one, by its cores)")
    made = decided(1e4, 100, 5e-3, limit_s=2e-3)
    assert made.kind == "cards" and "1 GPU USD 8,000" in made.sentence
    assert made.sentence.endswith("; cores do not count, as one takes 5 ms for a sample, longer than the limit")
    assert decided(0, 100, 5e-3, limit_s=2e-3).kind == "none"


def test_numbers_of_groups_and_their_spread():
    assert [CARDS.number(qps) for qps in (1, 10, 11, 31, 60, 61)] == [1, 1, 2, 4, 4, 7]
    assert CARDS.numbers(20) == (2, 2, 4) and CARDS.need(20) == 2 and CARDS.need(31) == pytest.approx(4 * 31 / 60)
    assert CARDS.power(20) == (20, 80) and CARDS.growth(20) == (pytest.approx(0.5), 1, 1)
    free, dear = replace(PRICES, kwh=0.0), replace(PRICES, kwh=1.0, years=1.0)
    assert CARDS.money(20, free) == (200, 400)
    assert CARDS.money(20, dear) == pytest.approx((2 * (100 + 87.6), 4 * (100 + 175.2)))
    roomy = replace(CARDS, floor=2.5)
    assert roomy.number(1) == 3 and roomy.need(1) == 2.5
    assert replace(CARDS, usd=None).money(20, free) is None
    with pytest.raises(ValueError, match="no number of cards, c is enough"):
        replace(CARDS, groups=((1, 0.0),)).number(1)


def test_a_load_that_is_a_whole_number_of_devices():
    """Of rates whose quotient is off by a last bit."""
    third = replace(CARDS, groups=((1, 0.1),))
    assert third.number(0.3) == 3


def test_a_load_that_takes_nothing_takes_one_device():
    idle = replace(CARDS, groups=((1, float("inf")),))
    assert idle.numbers(5) == (1, 1, 1) and idle.need(5) == 0 and set(idle.growth(5)) == {float("inf")}


def test_one_core_is_enough():
    made = decided(1e6, 1e6, 0.5e-6)
    assert made.kind == "core"
    assert made.sentence == "one core serves this (0.5 of one, by its cores): no card pays off"


def test_cards_pay_off_where_tables_fill_servers():
    """A tebibyte of rows takes two servers or 13 GPUs."""
    made = decided(1e6, 1e6, 1e-6, rows=2**40 // 256)
    low, high = made.spread
    assert made.kind == "cards" and made.cards.numbers(1e6) == (1, 1, 2) and low < high
    assert made.sentence == (
        "cards pay off: cards cost USD 1,000 to 2,000 over 3 years, 138 cores USD 13,800. It is 1 card (the load takes "
        f"1 by the plan, {1 / high:.3g} to {1 / low:.3g} by the spread of plans over twins: 1 to 2 cards)")
    assert made.break_even == pytest.approx(138 * 6400 / server().cores / 2)


def test_no_card_pays_off():
    made = decided(1e6, 4e6, 1e-6)
    assert made.kind == "others" and made.sentence.startswith(
        "no card pays off: cards cost USD 4,000 to 7,000 over 3 years, 4 cores USD 400; a card would have to cost less "
        "than USD 57. It would be 4 cards (the load takes 4 by the plan")
    assert made.break_even == pytest.approx(400 / 7)
    dear = decided(1e6, 4e6, 1e-6, prices=replace(PRICES, kwh=10.0, server=0.0))
    assert dear.kind == "others" and "; a card would not at any price. It would" in dear.sentence


def test_within_the_spread_it_is_not_decided():
    made = decided(1e7, 65e6, 20e-6)        # 7 to 12 cards of USD 1,000; a GPU of 8,000
    assert made.kind == "undecided" and "`hotrail run --card twin` on this log narrows the spread" in made.sentence


def test_without_prices():
    made = decided(1e6, 4e6, 1e-6, prices=replace(PRICES, card=None))
    assert made.kind == "unpriced" and "a card pays off below USD 57" in made.sentence and made.break_even
    made = decided(1e6, 4e6, 1e-6, prices=replace(PRICES, server=None, gpu=None))
    assert made.kind == "unpriced" and made.break_even is None and "name the prices" in made.sentence


def test_no_number_of_cards_meets_the_limit():
    made = decided(0.0, 4e6, 1e-6)
    assert made.kind == "none" and made.break_even is None and made.cards.limit == "the latency"
    assert made.sentence == "no number of cards answers within the limit; by throughput the load takes 4 cores"


def test_what_decides():
    made = decided(1e6, 4e6, 1e-6)
    assert [each.limit for each in made.choices] == ["embedding", "its cores", "bandwidth of its memory"]
    assert made.choices[1].watts[0] == server().watts / server().cores and made.choices[2].watts[0] == gpu().watts


def test_prices_by_the_file_and_as_given():
    known = Prices.given("smartssd")
    assert known.card == facts()["cards"]["smartssd"]["usd"] and len(known.sources) == 4
    own = Prices.given("mine", kwh=0.3, years=5)
    assert own.card is None and (own.server, own.gpu, own.kwh, own.years) == (known.server, known.gpu, 0.3, 5)
    assert own.sources[0] == "a card: no price is known (--card-price)"
    assert own.sources[3] == "a kilowatt-hour: USD 0.3, as given (--kwh-price)"
