"""The bench of the system under load: what it reads off twins, and what it says of stages that are known."""

import numpy as np
import pytest

from bench import system
from fpga.api.serving import Cards, batches
from gen import bundle
from gen.model.weights import SeededWeights
from gen.planner.arrivals import Stages, latency
from tests.support import bundles

pytestmark = pytest.mark.regress


@pytest.fixture(scope="module")
def cards(tmp_path_factory):
    log = bundles.log()
    made = bundle.write(tmp_path_factory.mktemp("system") / "b", bundles.plan(), bundles.profile(log), SeededWeights())
    with Cards(made, card="twin") as opened:
        yield opened, log


def test_stages_are_the_clocks_of_the_slowest_cards(cards):
    opened, log = cards
    every = {**opened.emb, **opened.mlp}
    (emb, networks), (period, again) = system.answered(opened, log, 16)
    totals = []
    for chunk in batches(log, 16 * system.TRIALS, 16):
        before = {number: system.clock(card) for number, card in every.items()}
        done = opened.infer(chunk, np.zeros((chunk.samples, 3), np.float32))
        totals.append({number: system.clock(card) - before[number] for number, card in every.items()})
        for number, cycles in done.cycles.items():
            assert cycles + done.links[number].out_cycles < totals[-1][number]
    slowest, other = (np.median([max(each[number] for number in kind) for each in totals])
                      for kind in (opened.emb, opened.mlp))
    assert emb == pytest.approx(slowest, rel=0.02) and networks == again == pytest.approx(other, rel=0.02)
    assert max(done.cycles[number] for number in opened.emb) < period < 0.95 * emb


def test_rows_of_stages_that_are_known():
    """A stage of 10 us and 0.1 us per sample: 4,096 samples wait for each other longer than three times 10.1 us."""
    cycles = [250e6 * np.array([[each], [each]]) for each in (10.1e-6, 10e-6 + 204.8e-6)]
    made = system.as_stages(cycles, (1, 2048))
    found = {row.id: row for row in system.loaded("x", "x", made)}
    assert found["system.unloaded.x"].value == 10.1 and found["system.most.x"].value == round(2048 / 214.8e-6)
    times = {cap: found[f"system.cap.x.{cap}.p99"].value for cap in system.CAPS}
    assert times[2048] > 3 and times[2048] == pytest.approx(latency(made, 0.8 * made.most).p99 / 10.1e-6, abs=0.01)
    # Of n samples within 10 us + n / 10, 80 % of the largest load are borne by n = 322 on: twice 42.2 us.
    assert found["system.even.x"].value == pytest.approx(2 * 42.2 / 10.1, abs=0.02)
    missed, best = found["system.p99.x"], found["system.best.x"].value
    assert missed.value == times[2048] and not missed.met
    assert times[best] == min(times.values()) < 3 < times[1]
    cap = max(cap for cap in times if times[cap] <= 3)
    assert found[f"system.cap.x.{cap}.most"].value == round(cap / (10e-6 + cap * 1e-7))
    assert found["system.within.x"].value == pytest.approx(100 * made.upto(cap).most / made.most, abs=0.1)
    assert f" {cap:,} samples," in found["system.within.x"].what
    curve = [found[f"system.curve.x.{load}.p99"].value for load in system.LOADS]
    assert curve == sorted(curve)
    pairs = sum(system.PAIRS) / 2
    assert found["system.offline.x.qps"].value * pairs == pytest.approx(made.most, rel=0.02)
    assert 0.95 < found["system.server.x.qps"].value / found["system.offline.x.qps"].value < 1


def test_stages_that_overlap_bear_more():
    """The largest load is that of the time from one batch to the next, and a lone sample's latency is not."""
    at, free = [100.0, 50.0], [60.0, 50.0]
    made = system.as_stages([(at, free), ([300.0, 60.0], [200.0, 60.0])], (1, 4))
    assert made.most == pytest.approx(4 / 200 * 250e6) and made.seconds(1).sum() == pytest.approx(150 / 250e6)
    assert made.upto(1).most == pytest.approx(250e6 / 60)


def test_a_system_that_keeps_its_latency_is_met():
    made = Stages(("a",), np.array([1, 64]), np.array([[1e-4, 1.01e-4]]))
    row = next(row for row in system.loaded("x", "x", made) if row.id == "system.p99.x")
    assert row.met and 1 < row.value < 3
