"""Tables that lie on several cards of a bundle: which card serves what, and that results are those of whole tables."""

import numpy as np
import pytest

from fpga.api.serving import Cards, batches
from fpga.api.verifying import verify
from fpga.card import Device
from gen.bundle import write
from gen.model.weights import SeededWeights
from tests.support import bundles as make

QUICK = Device.load("smartssd").replace("ssd", read_us=1.0, dies=32).replace(
    "host", submit_us=0.2, complete_us=0.2, poll_us=0.1, doorbell_us=0.1)
REPLICATED = {"user/id": "samples", "genre": "samples"}


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


@pytest.mark.parametrize("by", [REPLICATED, {"town": "samples"}, dict.fromkeys(make.SPLIT, "samples")])
def test_every_bit_is_that_of_whole_tables(written, log, monkeypatch, by):
    for samples in (70, 3, 1):
        (chunk,) = batches(log, samples, samples)
        found, whole = (served(written(each), chunk, monkeypatch) for each in (by, None))
        for name in make.SPLIT:
            assert np.array_equal(found.vectors[name].view(np.uint32), whole.vectors[name].view(np.uint32)), name
            assert np.array_equal(found.rows[name], whole.rows[name])
        assert np.array_equal(found.predictions, whole.predictions)
        for name in by:
            each = [len(shards[name]) for shards in found.shards.values() if name in shards]
            assert each == [-(-samples // 2), samples // 2][:max(1, min(samples, 2))]


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


def test_simulated_cards(written, log):
    """Two Verilated EMB cores that share out the samples of two tables."""
    bundle = written(REPLICATED, None)
    done = verify(bundle, log, 32, weights=SeededWeights(3), device=QUICK, memory="ideal", limit_cycles=500_000)
    assert done.different == "" and done.samples == 32 and set(done.cycles) == {0, 1}
    assert done.distance["genre"] < 1e-6 and done.distance["town"] < 1e-6
