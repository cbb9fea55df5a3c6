"""A step in steady state: sums, maxima and queues that are known by hand."""

import pytest

from gen.training.step import Stage, simulate


def test_one_at_a_time_is_the_sum():
    step = simulate([[Stage("gather", "CPU", 3.0), Stage("copy", "PCIe", 1.0), Stage("update", "CPU", 2.0)]])
    assert step.seconds == pytest.approx(6) and step.busy == {"CPU": 5.0, "PCIe": 1.0}
    assert step.binds == "gather, stages in sequence"


@pytest.mark.parametrize("in_flight, seconds", [(1, 6), (2, 3), (3, 3), (8, 3)])
def test_stages_overlap_until_a_resource_binds(in_flight, seconds):
    """Three stages of 3, 2 and 1 seconds: two mini-batches are enough to fill the first resource."""
    step = simulate([[Stage("a", "A", 3.0), Stage("b", "B", 2.0), Stage("c", "C", 1.0)]], in_flight)
    assert step.seconds == pytest.approx(seconds)
    assert (step.binds == "A") == (in_flight > 1)


def test_the_window_binds_where_no_resource_does():
    """Four equal stages, two mini-batches under way: one ends every two seconds, each resource works half the time."""
    step = simulate([[Stage(name, name, 1.0) for name in "abcd"]], 2)
    assert step.seconds == pytest.approx(2) and step.binds.endswith("stages in sequence")


@pytest.mark.parametrize("gather, least, most", [(2.0, 1.0, 1.01), (8.0, 2.0, 2.01)])
def test_gathering_hides_behind_popular_mini_batches(gather, least, most):
    """One of four mini-batches is gathered: for two seconds beside three others of a second, or longer than these."""
    train = [Stage("train", "GPU", 1.0)]
    step = simulate([train, train, train, [Stage("gather", "PCIe", gather), *train]], 4)
    assert least * (1 - 1e-9) <= step.seconds <= most


@pytest.mark.parametrize("together, seconds", [((), 3.0), (("GPU", "link"), 4.0)])
def test_stages_that_no_other_mini_batch_may_enter(together, seconds):
    """Two stages of the GPU around one of its link: the next mini-batch begins to train when all three have ended."""
    stages = [Stage("gather", "CPU", 1.0), Stage("bring", "PCIe", 1.0), Stage("forward", "GPU", 2.0),
              Stage("all-reduce", "link", 1.0), Stage("optimizer", "GPU", 1.0)]
    step = simulate([stages], 8, together)
    assert step.seconds == pytest.approx(seconds) and step.busy["GPU"] == 3.0


@pytest.mark.parametrize("cycle, in_flight, sentence", [
    ([], 1, "a step needs stages and in_flight 1 of 1 or more"),
    ([[]], 1, "a step needs stages and in_flight 1 of 1 or more"),
    ([[Stage("a", "A", 1.0)]], 0, "a step needs stages and in_flight 0 of 1 or more"),
    ([[Stage("a", "A", -1.0)]], 1, "stage a takes -1.0 seconds, which must be 0 or more"),
])
def test_what_is_no_step(cycle, in_flight, sentence):
    with pytest.raises(ValueError) as raised:
        simulate(cycle, in_flight)
    assert str(raised.value) == sentence
