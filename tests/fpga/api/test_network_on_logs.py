"""A small recommendation model trained on a real log, then asked for predictions on the simulated card: the same bits
as the oracle's, and the same AUC as float64."""

from pathlib import Path

import numpy as np
import pytest

from fpga.api.network import Layer, MlpNetwork, Network
from gen.model.scores import auc
from gen.rtl.config import load
from golden.fp import fp32
from tests.support import mlp_sizes as make
from tests.support.mlp_card import OracleCard

ROOT = Path(__file__).parents[3]
DIM = 8
TRAINED, ASKED = 60_000, 3_000
BATCH = 250


class Adam:
    """Arrays that are trained, by name."""

    def __init__(self, rate, **arrays):
        self.rate, self.arrays, self.steps = rate, arrays, 0
        self.means = {name: [np.zeros_like(array), np.zeros_like(array)] for name, array in arrays.items()}

    def step(self, **slopes):
        self.steps += 1
        for name, slope in slopes.items():
            mean, square = self.means[name]
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope * slope - square)
            scale = self.rate * (1 - 0.999 ** self.steps) ** 0.5 / (1 - 0.9 ** self.steps)
            self.arrays[name] -= scale * mean / (np.sqrt(square) + 1e-8)


class Dlrm:
    """Bottom, dot products of all pairs, top, and the tables, in float64 with their slopes."""

    def __init__(self, dense, tables, seed):
        random = np.random.default_rng(seed)

        def layer(k, n):
            return random.standard_normal((k, n)) * (2 / k) ** 0.5

        pairs = len(tables) * (len(tables) + 1) // 2
        self.parts = Adam(0.003, w0=layer(dense, 16), b0=np.zeros(16), w1=layer(16, DIM), b1=np.zeros(DIM),
                          w2=layer(DIM + pairs, 24), b2=np.zeros(24), w3=layer(24, 1), b3=np.zeros(1))
        self.tables = [random.standard_normal((rows, DIM)) * 0.1 for rows in tables]
        self.row, self.column = np.tril_indices(len(tables) + 1, -1)

    def train(self, dense, vectors, label):
        """Slopes of the logarithmic loss; those of the vectors are returned."""
        p = self.parts.arrays
        h0 = np.maximum(dense @ p["w0"] + p["b0"], 0)
        h1 = np.maximum(h0 @ p["w1"] + p["b1"], 0)
        features = np.concatenate([h1[:, None], vectors], axis=1)
        dots = (features @ features.swapaxes(1, 2))[:, self.row, self.column]
        x = np.concatenate([h1, dots], axis=1)
        h2 = np.maximum(x @ p["w2"] + p["b2"], 0)
        out = 1 / (1 + np.exp(-(h2 @ p["w3"] + p["b3"])[:, 0]))
        d3 = (out - label)[:, None] / len(label)
        d2 = d3 @ p["w3"].T * (h2 > 0)
        dx = d2 @ p["w2"].T
        dots_back = np.zeros((len(label), features.shape[1], features.shape[1]))
        dots_back[:, self.row, self.column] = dx[:, DIM:]
        back = (dots_back + dots_back.swapaxes(1, 2)) @ features
        d1 = (dx[:, :DIM] + back[:, 0]) * (h1 > 0)
        d0 = d1 @ p["w1"].T * (h0 > 0)
        self.parts.step(w0=dense.T @ d0, b0=d0.sum(0), w1=h0.T @ d1, b1=d1.sum(0), w2=x.T @ d2, b2=d2.sum(0),
                        w3=h2.T @ d3, b3=d3.sum(0))
        return back[:, 1:]

    def network(self):
        p = self.parts.arrays
        return Network([Layer(p["w0"], p["b0"], "relu"), Layer(p["w1"], p["b1"], "relu")], "dot", len(self.tables), DIM,
                       [Layer(p["w2"], p["b2"], "relu"), Layer(p["w3"], p["b3"], "sigmoid")])


@pytest.fixture(scope="module")
def trained(real_log):
    """(model, dense, vectors, labels) of samples that were not trained on."""
    log = real_log("anime_420k")
    random = np.random.default_rng(5)
    chosen = random.permutation(len(log.table("user")))[:TRAINED + ASKED]
    names = ["user", "anime", "type"]
    index = np.stack([log.table(name)[chosen] for name in names], axis=1)
    label = np.asarray(log.values["label"])[chosen].astype(float)
    genres = np.diff(log.offsets["genre"])[chosen]
    past = [np.bincount(index[:TRAINED, k], minlength=log.rows[name])[index[:, k]] for k, name in enumerate(names)]
    dense = np.log1p(np.stack([genres, *past], axis=1))
    dense = (dense - dense[:TRAINED].mean(0)) / dense[:TRAINED].std(0)
    model = Dlrm(dense.shape[1], [log.rows[name] for name in names], 6)
    for _ in range(2):
        for start in range(0, TRAINED, BATCH):
            here = slice(start, start + BATCH)
            vectors = np.stack([table[index[here, k]] for k, table in enumerate(model.tables)], axis=1)
            slopes = model.train(dense[here], vectors, label[here])
            for k, table in enumerate(model.tables):
                np.subtract.at(table, index[here, k], 20 * slopes[:, k])
    asked = slice(TRAINED, None)
    vectors = np.stack([table[index[asked, k]] for k, table in enumerate(model.tables)], axis=1)
    return model, dense[asked], vectors, label[asked]


@pytest.mark.turns(1, of="flows")
def test_predictions_on_the_card_are_the_oracles_and_as_good_as_float64(trained):
    model, dense, vectors, label = trained
    network, config = model.network(), load("tiny").cores["mlp"]
    exact = network(dense, vectors)[:, 0]
    found = []
    for card in ("sim", OracleCard(make.core(config))):
        options = {"memory": "ideal"} if card == "sim" else {}
        with MlpNetwork(network, card=card, preset="tiny", batch=500, limit_cycles=5_000_000, **options) as net:
            found.append(np.concatenate([net(dense[at:at + 500], vectors[at:at + 500])[:, 0]
                                         for at in range(0, len(dense), 500)]))
    np.testing.assert_array_equal(*(fp32.bits(words) for words in found))
    np.testing.assert_allclose(found[0], exact, rtol=1e-4)
    assert auc(exact, label) > 0.7, "the model has learned something"
    assert round(auc(found[0], label), 4) == round(auc(exact, label), 4)
    # Dense features and vectors in float16: predictions move, in the fourth digit at most, and the AUC does not.
    with MlpNetwork(network, card=OracleCard(make.core(config)), preset="tiny", batch=500, dense="float16",
                    features="float16") as net:
        half = np.concatenate([net(dense[at:at + 500], vectors[at:at + 500])[:, 0] for at in range(0, len(dense), 500)])
    assert 0 < np.abs(half - found[0]).max() < 1e-3
    assert abs(auc(half, label) - auc(found[0], label)) < 1e-4
    print(f"AUC {auc(found[0], label):.4f}, float64 {auc(exact, label):.4f}, float16 inputs "
          f"{auc(half, label):.6f} for {auc(found[0], label):.6f}, {len(label)} samples")
