"""What crosses the link of every card in a plan, and what half precision saves of it."""

from dataclasses import replace

import pytest

from gen.model.network import Model
from gen.planner.build import build
from gen.planner.plan import Plan
from gen.planner.planning import HALF, make
from tests.support.planner_problems import BATCH, COSTS


@pytest.mark.turns(1, of="searches")
@pytest.mark.parametrize("form", ["float16", "bfloat16"])
def test_pooled_vectors_in_half_precision(known, model, form):
    """What it says is the plan with such vectors; a model that has no others does not ask."""
    slow = replace(COSTS, link_s=100 * COSTS.link_s)    # the link binds
    plan = make(model, known, slow, cards=2)
    tables = {name: replace(spec, results=form) for name, spec in model.tables.items()}
    half = make(replace(model, tables=tables), known, slow, cards=2)
    seconds, bound = plan.what_if[HALF]
    assert bound <= seconds < 0.75 * plan.seconds
    assert seconds == pytest.approx(half.seconds, rel=0.02) and HALF not in half.what_if
    one = replace(model, tables=tables | dict(list(model.tables.items())[:1]))
    assert make(one, known, slow, cards=2).what_if[HALF][0] == pytest.approx(half.seconds, rel=0.02)


def test_the_link_binds_where_results_are_wide(known, model, tmp_path):
    """As many bytes as the pooled vectors have, over one direction; the plan says so."""
    slow = replace(COSTS, link_s=1e-6)
    plan = make(model, known, slow, cards=2, explain=False)
    outward, inward = ([getattr(card, f"{way}_s") for card in plan.cards] for way in ("out", "in"))
    assert sum(outward) == pytest.approx(BATCH * 4 * (64 + 64 + 16) * slow.link_s)
    lookups = sum(item.lookups for item in build(model, known, slow, cards=2).problem.items)
    assert sum(inward) == pytest.approx(4 * (lookups + 3 * BATCH) * slow.link_s), "no pages"
    slowest = max(plan.cards, key=lambda card: card.seconds)
    assert slowest.binds == "out" and plan.seconds == pytest.approx(max(outward)) and plan.gap < 1e-3
    plan.save(tmp_path)
    assert Plan.load(tmp_path).cards == plan.cards
    assert make(model, known, COSTS, cards=2, explain=False).seconds < plan.seconds


@pytest.mark.parametrize("form", ["float16", "bfloat16"])
def test_half_precision_halves_the_way_to_the_host(known, model, form):
    """Of tables whose vectors have more than one beat, in DRAM and on the link; their rows stay as they are."""
    short = replace(model, tables={name: replace(spec, results=form if name != "bags" else "float32")
                                   for name, spec in model.tables.items()})
    pairs = zip(*(build(each, known, COSTS, cards=2).problem.items for each in (model, short)), strict=True)
    for plain, half in pairs:
        share = {"one": 2, "bags": 1, "far": 1}[plain.name]     # `far` has one beat
        assert plain.out_s == pytest.approx(share * half.out_s) and half.row_bytes == plain.row_bytes
        assert plain.bags_bytes - half.bags_bytes == BATCH * plain.row_bytes * (share - 1), "of two batches"
        assert half.in_s == plain.in_s and (half.bags_s < plain.bags_s) == (share == 2)


@pytest.mark.parametrize("form", ["float32", "float16", "bfloat16"])
def test_features_cross_the_link_of_an_mlp_card(known, model, form):
    """Dense features and every table's pooled vectors to it, in half the bytes where all are float16, beside its bottom
    network; its results to the host."""
    tables = {name: replace(spec, results=form) for name, spec in model.tables.items()}
    whole = replace(model, tables=tables)
    whole = replace(whole, network=Model("n", "", (13, 512, 64), "concat", 3, 64, (512, 1), "relu", "sigmoid"))
    slow = replace(COSTS, link_s=1e-6)
    plan = make(whole, known, slow, cards=3, explain=False)
    mlp = [card for card in plan.cards if card.kind == "mlp"]
    assert sum(card.in_s for card in mlp) == pytest.approx(
        BATCH * (4 * 13 + (2 if form == "float16" else 4) * 3 * 64) * slow.link_s)
    assert sum(card.out_s for card in mlp) == pytest.approx(BATCH * 4 * slow.link_s)
    assert {card.binds for card in mlp} == {"in"}
    slowest = max(card.seconds for card in plan.cards)
    assert plan.seconds == pytest.approx(slowest + max(plan.top_s / len(mlp), mlp[0].out_s))
