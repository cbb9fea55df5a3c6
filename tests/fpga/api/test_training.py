"""The DLRM that the demo trains: its bags, and that it learns."""

import copy

import numpy as np
import pytest

from fpga.api.dlrm import payload_of
from fpga.api.training import Training
from gen.data.logs import Trace
from gen.data.logs.arrays import of_arrays
from gen.model.scores import auc


def a_trace(samples=1500):
    """Some users like more, some items are liked more; tags say nothing, and some of their bags are empty."""
    random = np.random.default_rng(5)
    users, items = random.integers(40, size=samples), random.integers(30, size=samples)
    lengths = random.integers(0, 4, samples)
    return Trace.of(of_arrays(
        {"user": users, "item": items, "tag": random.integers(9, size=lengths.sum())},
        {"tag": np.concatenate([[0], np.cumsum(lengths)])}, {"label": users + items > 33}))


@pytest.fixture(scope="module")
def trained():
    trace = a_trace()
    payload, _ = payload_of(trace, None)
    training = Training(trace, payload, 8, seed=1)
    fresh = copy.deepcopy(training)
    for _ in range(6):
        training.epoch(np.arange(1300))
    return trace, payload, training, fresh


def test_vectors_are_sums_of_rows(trained):
    trace, _, training, _ = trained
    lengths = np.diff(trace.bags("tag")[1])
    # The last two have as many tags as samples, but none and two.
    samples = np.array([7, 0, 1499, 7, 33, np.argmax(lengths == 0), np.argmax(lengths == 2)])
    found = np.concatenate([training.vectors(samples[:-2]), training.vectors(samples[-2:])])
    for k, name in enumerate(trace.indices):
        rows, (indices, offsets) = training.tables[name].values(), trace.bags(name)
        for n, sample in enumerate(samples):
            wanted = rows[indices[offsets[sample]:offsets[sample + 1]]].sum(axis=0)
            assert np.allclose(found[n, k], wanted, atol=1e-6)


def test_it_learns_and_a_copy_stands_still(trained):
    _, payload, training, fresh = trained
    held = np.arange(1300, 1500)
    label = payload[held, -1].view(np.float32)
    assert auc(training.scores(held), label) > 0.9 and auc(fresh.scores(held), label) < 0.7


def test_rates_of_zero_move_nothing(trained):
    _, _, _, fresh = trained
    still = copy.deepcopy(fresh)
    still.epoch(np.arange(300), (0.0, 0.0))
    still.epoch(np.arange(256), (0.0, 1.0))     # one batch, at the rates of the beginning
    assert np.array_equal(still.scores(np.arange(99)), fresh.scores(np.arange(99)))
    still.epoch(np.arange(300), (0.0, 1.0))
    assert not np.array_equal(still.scores(np.arange(99)), fresh.scores(np.arange(99)))


def test_a_seed_is_of_rows_and_networks(trained):
    trace, payload, _, fresh = trained
    again, other = (Training(trace, payload, 8, seed=seed) for seed in (1, 2))
    samples = np.arange(50)
    assert np.array_equal(again.scores(samples), fresh.scores(samples))
    assert not np.allclose(other.vectors(samples), fresh.vectors(samples))
    assert not np.allclose(other.model.predict(fresh.vectors(samples), payload[samples]), fresh.scores(samples))


@pytest.mark.parametrize(("name", "values", "sentence"), [
    ("label", [0, 1, np.nan, np.nan], "label is no finite number in 2 of 4 samples; first in sample 2, numbered from"),
    ("dense", [[1.0, 2], [3, np.inf], [4, 5], [6, 7]],
     "a dense feature is no finite number in 1 of 4 samples; first in sample 1,")])
def test_samples_that_cannot_be_learned_from(name, values, sentence):
    """They are refused, and not learned as if they had the label 0."""
    given = {"label": np.array([0, 1, 1, 0.0]), name: np.array(values)}
    with pytest.raises(ValueError, match=sentence):
        payload_of(Trace.of(of_arrays({"user": np.arange(4)}, {}, given)), None)
