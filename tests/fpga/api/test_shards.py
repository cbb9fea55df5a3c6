"""Tables that lie on several cards of a bundle: which card serves what, and that results are those of whole tables."""

from dataclasses import replace

import numpy as np
import pytest

from fpga.api.serving import Cards, batches
from fpga.api.verifying import verify
from fpga.card import Device
from gen.bundle import write
from gen.model.weights import SeededWeights
from gen.planner.costs import Costs
from gen.planner.planning import make as planned
from tests.support import bundles as make

QUICK = Device.load("smartssd").replace("ssd", read_us=1.0, dies=32).replace(
    "host", submit_us=0.2, complete_us=0.2, poll_us=0.1, doorbell_us=0.1)
REPLICATED = {"user/id": "samples", "genre": "samples"}
SLICED = {"genre": "columns", "town": "columns"}


@pytest.fixture(scope="module")
def log():
    return make.log()


@pytest.fixture(scope="module")
def written(log, tmp_path_factory):
    """A bundle of the small model by what its tables are split."""
    made = {}

    def of(by, network=make.MODEL):
        key = repr((by, network))
        if key not in made:
            made[key] = write(tmp_path_factory.mktemp("bundle") / "small", make.plan(network, by=by),
                              make.profile(log), SeededWeights(3))
        return made[key]

    return of


def served(bundle, chunk, monkeypatch):
    make.Opened(bundle, monkeypatch)
    with Cards(bundle) as cards:
        return cards.infer(chunk, chunk.values["dense"])


@pytest.mark.turns(1)
@pytest.mark.parametrize("by", [REPLICATED, {"town": "samples"}, dict.fromkeys(make.SPLIT, "samples"), SLICED,
                                {"user/id": "samples", "genre": "columns"}])
def test_every_bit_is_that_of_whole_tables(written, log, monkeypatch, by):
    for samples in (70, 3, 1):
        (chunk,) = batches(log, samples, samples)
        found, whole = (served(written(each), chunk, monkeypatch) for each in (by, None))
        for name in make.SPLIT:
            assert np.array_equal(found.vectors[name].view(np.uint32), whole.vectors[name].view(np.uint32)), name
            assert np.array_equal(found.rows[name], whole.rows[name])
        assert np.array_equal(found.predictions, whole.predictions)
        for name, what in by.items():
            each = [shards[name].shape for shards in found.shards.values() if name in shards]
            assert each == ([(samples, make.DIM // 2)] * 2 if what == "columns" else
                            [(-(-samples // 2), make.DIM), (samples // 2, make.DIM)][:max(1, min(samples, 2))])


@pytest.mark.turns(1, of="flows")
@pytest.mark.parametrize("dram_bytes, by", [(16_000, "columns"), (1 << 20, "samples")])
def test_plans_of_the_planner(log, tmp_path, monkeypatch, dram_bytes, by):
    """Few bytes of DRAM are worth slices, many are worth copies; every bit is that of a plan of whole tables."""
    known = make.profile(log)
    costs = Costs("smartssd", "tiny", 300e6, {1: 2e-8}, 5.6e-11, 7e-11, 2.2e-6, 6e-5, 2.9e-7, 3.2e-10,
                  1.2e-10, 4096, 1 << 16, dram_bytes, 1 << 22)
    plan = planned(make.model(None), known, costs, cards=2, levels=2, explain=False)
    assert by in {table.by for table in plan.tables.values() if len(table.cards) > 1}
    bundle = write(tmp_path / "shared", plan, known, SeededWeights(3))
    for card in bundle.emb_cards:
        assert bundle.images(card).rows.nbytes <= plan.cards[card].dram.bytes <= plan.capacity["dram"]
        assert bundle.images(card).pages.nbytes == plan.cards[card].ssd.bytes
    tables = {name: replace(table, cards=(0,), by="whole") for name, table in plan.tables.items()}
    alone = write(tmp_path / "whole", replace(plan, tables=tables), known, SeededWeights(3))
    (chunk,) = batches(log, 41, 41)
    one, other = (served(each, chunk, monkeypatch) for each in (bundle, alone))
    for name in make.SPLIT:
        assert np.array_equal(one.vectors[name].view(np.uint32), other.vectors[name].view(np.uint32)), name
    make.Opened(bundle, monkeypatch)
    done = verify(bundle, log, 100, weights=SeededWeights(3))
    assert done.different == "" and max(done.distance.values()) < 1e-6


def test_a_card_without_samples_is_left_alone(written, log, monkeypatch):
    (chunk,) = batches(log, 1, 1)
    done = served(written(dict.fromkeys(make.SPLIT, "samples"), None), chunk, monkeypatch)
    assert set(done.shards) == set(done.cycles) == {0}
    make.Opened(written(dict.fromkeys(make.SPLIT, "samples"), None), monkeypatch)
    found = verify(written(dict.fromkeys(make.SPLIT, "samples"), None), log, 3, batch=2)
    assert found.different == "" and found.batches == 2 and set(found.cycles) == {0, 1}


@pytest.mark.parametrize("card", range(2))
def test_a_wrong_bit_of_a_shard_is_seen(written, log, monkeypatch, card):
    opened = make.Opened(written(REPLICATED), monkeypatch)
    opened.wrong = card
    done = verify(written(REPLICATED), log, 40, batch=40)
    assert done.different == f"card {card}, samples 0 on: request 0: 1 vectors differ, the first is 0"


@pytest.mark.turns(1)
@pytest.mark.parametrize("by", [REPLICATED, SLICED])
def test_simulated_cards(written, log, by):
    """Two Verilated EMB cores that share out samples, or columns, of two tables."""
    bundle = written(by, None)
    done = verify(bundle, log, 32, weights=SeededWeights(3), device=QUICK, memory="ideal", limit_cycles=500_000)
    assert done.different == "" and done.samples == 32 and set(done.cycles) == {0, 1}
    assert done.distance["genre"] < 1e-6 and done.distance["town"] < 1e-6
