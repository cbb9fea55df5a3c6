"""Joined tables of a bundle: every bit is that of tables for themselves; what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from fpga.api.serving import Cards, batches
from fpga.api.verifying import verify
from gen.bundle import Bundle, write
from gen.data import joins
from gen.data.logs import of_arrays
from gen.data.profiling import profile
from gen.data.remap import DRAM
from gen.model.recommender import Recommender, TableSpec
from gen.model.weights import SeededWeights
from gen.planner.plan import Plan, PlanCard, PlanTable, Tier
from tests.support import bundles as make

SAMPLES, TRIPLE, PAIR = 90, ("a", "b", "c"), ("c", "a")
ROWS, DIMS = {"a": 7, "bag": 40, "b": 11, "c": 5}, {"a": 16, "bag": 16, "b": 20, "c": 4}


@pytest.fixture(scope="module")
def log():
    random = np.random.default_rng(8)
    ids = {"a": random.integers(0, 7, SAMPLES), "bag": random.integers(0, 40, 3 * SAMPLES),
           "b": random.integers(0, 1000, SAMPLES), "c": random.integers(0, 6, SAMPLES) * 10**15}
    return of_arrays(ids, {"bag": np.arange(SAMPLES + 1) * 3})


def plan(joined, by="whole", **formats):
    """Four tables in DRAM; those that are joined, or would be, on both cards by samples or on the second one."""
    ids = {"b": "modulo", "c": "vocabulary"}
    specs = {name: TableSpec(name, ROWS[name], dim, ids.get(name, "index"), "mean" if name == "bag" else "sum",
                             **formats) for name, dim in DIMS.items()}
    cards = (0, 1) if by == "samples" else (1,)
    tables = {name: PlanTable(name, (0,) if name == "bag" else cards, Tier(rows), Tier(), Tier(),
                              by="whole" if name == "bag" else by, joined=joined if name in joined else ())
              for name, rows in ROWS.items()}
    return Plan(Recommender("m", "", specs, None, 64), "smartssd", "tiny", 4096, 1 << 16, {}, tables,
                (PlanCard(0, "emb"), PlanCard(1, "emb")), 0.0, 0.0, 1e-3, 1e-3)


def served(bundle, log, monkeypatch):
    make.Opened(bundle, monkeypatch)
    (chunk,) = batches(log, 61, 61)
    with Cards(bundle) as cards:
        return cards.infer(chunk)


@pytest.mark.parametrize("joined", [PAIR, TRIPLE])
@pytest.mark.parametrize(("by", "formats"), [
    ("samples", {}), ("whole", {"results": "float16"}), ("samples", {"row_format": "float16", "results": "bfloat16"})])
def test_every_bit_is_that_of_tables_for_themselves(joined, by, formats, log, tmp_path, monkeypatch):
    known = profile(log)
    one, apart = (write(tmp_path / name, plan(which, by, **formats), known, SeededWeights(3))
                  for name, which in (("one", joined), ("apart", ())))
    found, wanted = served(one, log, monkeypatch), served(apart, log, monkeypatch)
    assert list(found.vectors) == list(wanted.vectors) == list(ROWS)
    for name, each in wanted.vectors.items():
        assert np.array_equal(found.vectors[name].view(np.uint32), each.view(np.uint32)), name
        assert np.array_equal(found.rows[name], wanted.rows[name])
    requests = {card: len(shards) for card, shards in wanted.shards.items()}
    assert {card: len(shards) for card, shards in found.shards.items()} == {
        card: count - (len(joined) - 1) * (card in one.plan.tables["a"].cards) for card, count in requests.items()}


@pytest.mark.parametrize("card", ["sim", "twin"])
def test_on_the_tiny_card(card, log, tmp_path):
    """The Verilated core, or its twin, with a product on both cards: every bit is the oracle's and the dense rows'."""
    bundle = write(tmp_path / "b", plan(PAIR, "samples"), profile(log), SeededWeights(3))
    done = verify(bundle, log, 64, card=card, weights=SeededWeights(3), limit_cycles=500_000,
                  **({"memory": "ideal"} if card == "sim" else {}))
    assert done.different == "" and done.distance["a"] == done.distance["c"] == 0.0
    assert done.rows["a"].tolist() == done.rows["c"].tolist() == [64, 0, 0]


def test_what_is_in_the_bundle(log, tmp_path):
    made = write(tmp_path / "b", plan(TRIPLE), profile(log), SeededWeights(3))
    bundle, weights = Bundle(tmp_path / "b"), SeededWeights(3)
    assert Plan.load(made.folder).tables["b"].joined == TRIPLE
    assert [bundle.words(name)[-1] for name in TRIPLE] == [6 * 55, 10 * 5, 4]
    placed = bundle.images(1).placed["a*b*c"]
    assert (placed.table.rows, placed.table.dim, placed.table.dram.shape) == (385, 40, (385, 40))
    rows = placed.read(bundle.images(1).rows, np.arange(385)).view(np.float32)
    for a, b, c in np.random.default_rng(1).integers(0, (7, 11, 5), (20, 3)):
        wanted = [weights.rows(bundle.plan.model.tables[name], np.array([row]))[0]
                  for name, row in zip(TRIPLE, (a, b, c), strict=True)]
        assert np.array_equal(rows[55 * a + 5 * b + c][:40], np.concatenate(wanted))
    assert all((bundle.words(name) >> 30 == DRAM).all() for name in TRIPLE)
    assert bundle.plan.tables["b"].place == "1, joined with a, c" and bundle.plan.tables["bag"].place == "0"


def test_requests_that_a_product_cannot_serve(log, tmp_path, monkeypatch):
    bundle = write(tmp_path / "b", plan(PAIR), profile(log), SeededWeights(3))
    make.Opened(bundle, monkeypatch)
    (chunk,) = batches(log, 8, 8)
    with Cards(bundle) as cards:
        requests = cards.requests(chunk)
        a = requests["a"]
        two = replace(a, indices=np.append(a.indices, a.indices[:1]), offsets=np.array([*range(8), 9]))
        cases = (({"a": a, "b": requests["b"]}, "a batch must look up each of them by one request"),
                 ({**requests, "again": a}, "a batch must look up each of them by one request"),
                 ({**requests, "a": two}, "each sample must look up one row of it; sample 7 looks up 2"),
                 ({**requests, "a": replace(a, weights=np.ones(8, np.float32))}, "its rows take no weights"))
        for each, what in cases:
            with pytest.raises(ValueError, match=f"^table a is joined with c: {what}$"):
                cards.lookup(each)
        assert set(cards.lookup({"b": requests["b"]}).vectors) == {"b"}


@pytest.mark.parametrize(("change", "what"), [
    ({"b": {"columns": ("b", "d")}}, "table b is looked up by 2 columns"),
    ({"a": {"row_format": "int8"}}, "each row of int8 of table a has its own scale"),
    ({"c": {"hot_share": 0.5}}, "table c has hot_share = 0.5, and a product lies in DRAM whole"),
    ({"b": {"mode": "max"}}, "mode = 'max' of table b is not the 'sum' of table a"),
    ({"c": {"results": "float16"}}, "results = 'float16' of table c is not the 'float32' of table a"),
    ({"a": {"rows": 1 << 20}, "b": {"rows": 1 << 20}}, "the product of a*b*c has 5,497,558,138,880 rows, more than "
                                                       "1,073,741,824"),
    ({}, "")])
def test_what_cannot_be_joined(change, what):
    assert joins.unfit([replace(plan(()).model.tables[name], **change.get(name, {})) for name in TRIPLE]) == what


@pytest.mark.parametrize(("change", "what"), [
    ({"a": {"joined": ()}}, "and another of these tables on other cards or in another way"),
    ({"c": {"cards": (0,)}}, "and another of these tables on other cards or in another way"),
    ({"a": {"dram": Tier(6), "ssd": Tier(1)}}, "and does not lie in DRAM whole"),
    ({"a": {"joined": ("c", "a", "a")}}, ""), ({"a": {"joined": ("c", "x")}}, ""), ({"a": {"joined": ("a",)}}, "")])
def test_plans_whose_tables_do_not_fit_together(change, what, tmp_path):
    made = plan(PAIR)
    tables = {name: replace(table, **change.get(name, {})) for name, table in made.tables.items()}
    replace(made, tables=tables).save(tmp_path)
    with pytest.raises(ValueError, match=rf"table '[ac]' is joined as \[.*\].*{what}"):
        Plan.load(tmp_path)
