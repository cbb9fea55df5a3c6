"""Latency of a system of stages under load, against queueing theory and by hand; groups of cards that bear a load."""

from dataclasses import replace

import numpy as np
import pytest

from gen.model.device import Device
from gen.planner.arrivals import Stages, _through, latency, offline, sustained
from gen.planner.plan import Plan, PlanCard, PlanTable, Tier
from gen.planner.sizing import copies, groups


def stages(fixed, each, batch):
    return Stages.linear(tuple(map(str, range(len(fixed)))), np.array(fixed, float), np.array(each, float), batch)


def through(arrival, taken, sizes=None, free=None):
    """taken: seconds of each stage by the samples of a batch, from none on; free: until it begins the next."""
    size = np.ones(len(arrival), np.int64) if sizes is None else np.array(sizes)
    return _through(np.array(arrival, float), size, np.array(taken, float), np.array(free or taken, float), bool(free))


def test_three_samples_by_hand():
    """Two stages of 4 and 10 for one sample: the second waits in the first stage for the third's batch of two."""
    waited, batches = through([0, 1, 2], [[0, 4], [0, 10]])
    # 0 to 4 to 14; 4 to 8, there until 14, to 24; 14 to 18, there until 24, to 34
    assert waited.tolist() == [14, 23, 32] and batches == 3
    waited, batches = through([0, 1, 2], [[0, 4, 4], [0, 10, 10]])
    assert waited.tolist() == [14, 23, 22] and batches == 2


def test_stages_that_overlap_by_hand():
    """A stage takes 10 and begins another batch after 4, with three in it at most; then one of 5 on its own."""
    waited, batches = through([0, 0, 0, 0], [[0, 10], [0, 5]], free=[[0, 4], [0, 5]])
    # Begin at 0, 4, 8, 12; from the second on they wait for the second stage.
    assert waited.tolist() == [15, 20, 25, 30] and batches == 4
    waited, _ = through([0, 0, 0, 0], [[0, 10]], free=[[0, 2]])
    assert waited.tolist() == [10, 12, 14, 20], "the fourth begins when the first has left"
    waited, _ = through([0, 0, 3], [[0, 2, 20]], free=[[0, 2, 4]])
    assert waited.tolist() == [20, 20, 17], "a small batch leaves behind the large one before it"
    made = Stages(("a", "b"), np.array([1, 4]), np.array([[8.0, 20.0], [2.0, 5.0]]),
                  np.array([[4.0, 10.0], [2.0, 5.0]]))
    assert made.most == 4 / 10 and made.upto(1).most == 1 / 4 and made.free(2).tolist() == [6, 3]
    assert offline(made, np.full(64, 4)) == pytest.approx(64 / (63 * 10 + 25), rel=0.03)


def test_queries_of_many_samples_by_hand():
    """Batches of 4 samples take 10: five and three that wait go as 4, then 1 + 3; two that come at 25 go alone."""
    waited, batches = through([0, 0, 25], [[0, 10, 10, 10, 10]], [5, 3, 2])
    assert waited.tolist() == [20, 20, 10] and batches == 3
    waited, batches = through([0, 1], [[0, 10, 20, 30, 40]], [9, 1])
    # 0 to 40, to 80, and with the second query's to 100
    assert waited.tolist() == [100, 99] and batches == 3


def test_measured_points_are_met_and_in_between_on_a_line():
    made = Stages(("a", "b"), np.array([1, 4, 16]), np.array([[2.0, 2.0, 8.0], [1.0, 7.0, 7.0]]))
    assert made.seconds([1, 2, 4, 10, 16]).tolist() == [[2, 2, 2, 5, 8], [1, 3, 7, 7, 7]]
    assert made.batch == 16 and made.most == 2
    fewer = made.upto(10)
    assert fewer.batch == 10 and fewer.most == 10 / 7 and (fewer.seconds([1, 3]) == made.seconds([1, 3])).all()
    assert offline(made, np.full(64, 16)) == pytest.approx(64 / (64 * 8 + 7))
    assert latency(made, 0.01).p50 == pytest.approx(3)


def test_large_queries_are_borne_less_often():
    made = stages([1e-5], [1e-7], 512)
    sizes = np.random.default_rng(1).integers(1, 400, 20_000)
    rate = sustained(made, 1e-3, sizes=sizes)
    assert 0.8 < rate * sizes.mean() / made.most < 1 and latency(made, rate, sizes=sizes).p99 <= 1e-3


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_single_samples_wait_as_in_the_queue_m_d_1(load):
    """One stage of one second for one sample: the mean wait is load / 2 (1 - load), by Pollaczek and Khinchine."""
    arrival = np.cumsum(np.random.default_rng(4).exponential(1 / load, 400_000))
    waited, batches = through(arrival, [[0.0, 1.0]])
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
    grown = [(each.seconds(1000) - each.seconds(0)).tolist() for each in (plain, paged, whole)]
    assert grown == [pytest.approx(wanted) for wanted in (
        [2e-5, 1e-4, 5e-5], [2e-5, 3e-4, 5e-5], [2e-5, 1e-4, 5e-5, 4e-5, 9e-5, 1e-6])]
    assert (paged.seconds(0) - plain.seconds(0))[0] == pytest.approx(6e-5)
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
