"""Latency of a system of stages under load, against queueing theory and by hand; groups of cards that bear a load."""

from dataclasses import replace

import numpy as np
import pytest

from gen.model.device import Device
from gen.planner.arrivals import Stages, _through, latency, sustained
from gen.planner.plan import Plan, PlanCard, PlanTable, Tier
from gen.planner.sizing import copies, groups


def stages(fixed, each, batch):
    return Stages(tuple(map(str, range(len(fixed)))), np.array(fixed, float), np.array(each, float), batch)


def test_three_samples_by_hand():
    """Two stages of 4 and 10 for one sample: the second waits in the first stage for the third's batch of two."""
    waited, batches = _through(np.array([0.0, 1.0, 2.0]), np.array([4.0, 10.0]), np.zeros(2), 1)
    # 0 to 4 to 14; 4 to 8, there until 14, to 24; 14 to 18, there until 24, to 34
    assert waited.tolist() == [14, 23, 32] and batches == 3
    waited, batches = _through(np.array([0.0, 1.0, 2.0]), np.array([4.0, 10.0]), np.zeros(2), 8)
    assert waited.tolist() == [14, 23, 22] and batches == 2


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_single_samples_wait_as_in_the_queue_m_d_1(load):
    """One stage of one second for one sample: the mean wait is load / 2 (1 - load), by Pollaczek and Khinchine."""
    arrival = np.cumsum(np.random.default_rng(4).exponential(1 / load, 400_000))
    waited, batches = _through(arrival, np.array([1.0]), np.array([0.0]), 1)
    assert batches == len(arrival)
    assert waited.mean() - 1 == pytest.approx(load / 2 / (1 - load), rel=0.05)


def test_what_is_sustained_is_within_the_limit_and_more_is_not():
    made = stages([20e-6, 5e-6, 20e-6], [1e-9, 1e-7, 2e-8], 1024)
    assert made.most == pytest.approx(1024 / (5e-6 + 1024e-7))
    for limit in (60e-6, 200e-6, 1e-3):
        rate = sustained(made, limit)
        assert 0 < rate < made.most and latency(made, rate).p99 <= limit
        if rate < 0.98 * made.most:
            assert latency(made, 1.01 * rate).p99 > limit
    assert sustained(made, 44e-6) == 0      # a lone sample takes 45
    seen = latency(made, 0.5 * made.most)
    assert made.seconds(1).sum() < seen.p50 < seen.p95 < seen.p99 and 1 < seen.batch <= 1024


def plan_of(model, *, ssd=0.0, mlp=False):
    table = PlanTable("t", (0, 1), Tier(seconds=2e-4), Tier(), Tier(seconds=2 * ssd), by="samples")
    first = 6e-5 if ssd else 0.0
    cards = [PlanCard(k, "emb", Tier(seconds=1e-4), Tier(seconds=3e-5), Tier(seconds=ssd + first if ssd else 0.0), 2e-5,
                      5e-5) for k in range(2)]
    cards += [PlanCard(2, "mlp", in_s=4e-5, out_s=1e-6, bottom_s=3e-5, top_s=6e-5)] if mlp else []
    return Plan(model, "smartssd", "smartssd", 4096, 1 << 26, {}, {"t": table}, tuple(cards), 0.0, 0.0, 1e-4, 1e-4)


@pytest.fixture(scope="module")
def model():
    from gen.model.recommender import Recommender

    return replace(Recommender.of("m", {"t": 1000}, 64), batch=1000)


def test_stages_of_a_plan(model):
    """Rates are the plan's, the drive's first page belongs to the way there, the slowest card counts."""
    device = Device.load("smartssd")
    plain, paged, whole = (Stages.of(each, device) for each in (plan_of(model), plan_of(model, ssd=3e-4),
                                                                plan_of(model, mlp=True)))
    assert (plain.sample_s * 1000).tolist() == pytest.approx([2e-5, 1e-4, 5e-5])
    assert (paged.sample_s * 1000).tolist() == pytest.approx([2e-5, 3e-4, 5e-5])
    assert paged.fixed_s[0] - plain.fixed_s[0] == pytest.approx(6e-5)
    assert (whole.sample_s * 1000).tolist() == pytest.approx([2e-5, 1e-4, 5e-5, 4e-5, 9e-5, 1e-6])
    assert plain.most == pytest.approx(1000 / (1e-4 + 1.5e-6))


def test_copies_bear_the_load(model):
    device, plan = Device.load("smartssd"), plan_of(model)
    few, many = (copies(plan, device, qps, 1e-3) for qps in (1e6, 95e6))
    assert few.number == 1 and few.cards == 2
    assert many.number == -(-95e6 // many.rate) and many.cards == 2 * many.number
    assert many.found.p99 <= 1e-3 * 1.02
    none = copies(plan, device, 1e6, 1e-6)
    assert none.number == none.cards == 0 and none.found is None


def test_groups_that_are_tried():
    assert list(groups(8, False)) == [1, 2, 4, 8] and list(groups(6, True)) == [2, 4, 6]
    assert list(groups(1, False)) == [1] and list(groups(2, True)) == [2]
