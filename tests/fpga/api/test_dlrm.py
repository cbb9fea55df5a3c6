"""The DLRM that stands for a GPU: slopes are those of differences and torch's, it learns."""

import numpy as np
import pytest

from fpga.api.dlrm import Dlrm
from fpga.api.hotline import Hotline
from tests.support import hotline_logs as make
from tests.support.hotline_card import OracleCard

DENSE, VECTORS, DIM = 3, 4, 5


def batch(seed, count=20):
    random = np.random.default_rng(seed)
    payload = random.standard_normal((count, DENSE + 1)).astype(np.float32)
    payload[:, DENSE] = random.integers(0, 2, count)
    return random.standard_normal((count, VECTORS, DIM)).astype(np.float32), payload.view(np.uint32)


def loss(model, vectors, payload):
    p = model.predict(vectors, payload).astype(float)
    label = payload[:, DENSE].view(np.float32)
    return -np.mean(np.where(label == 1, np.log(p), np.log1p(-p)))


def test_slopes_are_those_of_differences():
    vectors, payload = batch(1)
    model = Dlrm(DENSE, VECTORS, DIM, rate=0.0, seed=2)
    slopes = model(vectors, payload)
    random = np.random.default_rng(3)
    for _ in range(20):
        way = random.standard_normal(vectors.shape).astype(np.float32)
        far = np.float32(5e-4)      # few of the units change sides
        wanted = (loss(model, vectors + far * way, payload) - loss(model, vectors - far * way, payload)) / (2 * far)
        assert abs((slopes * way).sum() - wanted) < 4e-3 * (1 + abs(wanted))


def test_a_step_of_the_networks_goes_down_by_its_slope():
    """With a small rate the loss falls by the rate times the squared slope of all weights."""
    vectors, payload = batch(4)
    rate = 1e-3
    model = Dlrm(DENSE, VECTORS, DIM, rate=rate, seed=5)
    before, weights = loss(model, vectors, payload), [w.copy() for pair in model.bottom + model.top for w in pair]
    model(vectors, payload)
    assert all((new != old).any() for new, old in zip(
        [w for pair in model.bottom + model.top for w in pair], weights, strict=True))
    moved = sum(((new - old).astype(float) ** 2).sum() for new, old in zip(
        [w for pair in model.bottom + model.top for w in pair], weights, strict=True))
    assert before - loss(model, vectors, payload) == pytest.approx(moved / rate, rel=0.05)


def test_a_short_mini_batch_steps_no_further_for_each_sample():
    vectors, payload = batch(5)
    slopes = [Dlrm(DENSE, VECTORS, DIM, rate=0.0, seed=2, of=of)(vectors, payload) for of in (0, 20, 40)]
    np.testing.assert_array_equal(slopes[0], slopes[1])
    np.testing.assert_allclose(slopes[0], 2 * slopes[2], rtol=1e-5)


def test_torch_gives_the_same():
    """Its networks, with the same weights: slopes of the vectors, and the weights after a step."""
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    torch.set_num_threads(1)
    model = Dlrm(DENSE, VECTORS, DIM, rate=0.1, seed=6)
    for seed in range(5):
        vectors, payload = batch(seed)
        layers = [[[torch.from_numpy(part.copy()).requires_grad_() for part in pair] for pair in network]
                  for network in (model.bottom, model.top)]
        rows, words = torch.from_numpy(vectors).requires_grad_(), torch.from_numpy(payload.view(np.float32))
        low = words[:, :DENSE]
        for weight, bias in layers[0]:
            low = torch.relu(low @ weight + bias)
        features = torch.cat([low[:, None], rows], dim=1)
        high = torch.cat([low, (features @ features.transpose(1, 2))[:, model.row, model.column]], dim=1)
        for number, (weight, bias) in enumerate(layers[1]):
            high = (torch.relu(high) if number else high) @ weight + bias
        torch.nn.functional.binary_cross_entropy_with_logits(high[:, 0], words[:, DENSE]).backward()
        np.testing.assert_allclose(model(vectors, payload), rows.grad, rtol=1e-4, atol=1e-6)
        for mine, theirs in zip(model.bottom + model.top, layers[0] + layers[1], strict=True):
            for part, other in zip(mine, theirs, strict=True):
                np.testing.assert_allclose(part, (other - 0.1 * other.grad).detach(), rtol=1e-4, atol=1e-6)


def test_it_learns_through_the_core():
    """Clicks that a product of two rows decides: the loss falls, though most rows are trained by the core."""
    random = np.random.default_rng(8)
    log = make.log(9, 1200, rows=(40, 60, 5), dim=4, payload=2, bag=0, none=0)
    secret = [random.choice([-1.0, 1.0], size) for size in (40, 60)]
    label = secret[0][log.indices[:, 0]] * secret[1][log.indices[:, 1]] > 0
    payload = np.stack([np.zeros(1200), label], axis=1).astype(np.float32)
    model = Dlrm(1, 3, 4, rate=0.1, seed=1)
    layout, half = log.layout, slice(900, None)
    with Hotline(layout.tables, layout.positions, payload=2, card=OracleCard(make.core()), preset=make.TINY) as hotline:
        hotline.learn(log.indices[:15])

        def rows():
            return np.stack([hotline.values(f"t{k}")[log.indices[half, k]] for k in range(3)], axis=1)

        def right():
            return np.mean((model.predict(rows(), payload[half].view(np.uint32)) > 0.5) == label[half])

        before = right()
        for _ in range(6):
            done = hotline.train(model, log.indices[:900], payload[:900], rate=-3.0, batch=10)
        assert 0 < done.popular < 900 and before < 0.65 < 0.85 < right()
