"""MLP cores of several shapes, and what runs on them, that several tests share."""

import numpy as np

from gen.model.network import Layer, Model, Network
from golden.mlp.core import Memory, Mlp
from hw.mlp.config import MlpConfig

_REST = {"lut_products": 0, "reads_in_flight": 8, "writes_in_flight": 8, "program_beats": 16, "load_beats": 32,
         "output_beats": 32, "staged_tiles": 8}
TINY = MlpConfig(units=2, rows=2, width=2, words=8, row_lines=256, weight_lines=512, addend_lines=256, **_REST)
_LARGE = {**_REST, "staged_tiles": 32, "row_lines": 1024, "weight_lines": 4096, "addend_lines": 2048}
SMARTSSD = MlpConfig(units=4, rows=4, width=4, words=16, grouped=True, **_LARGE)
SCREC = MlpConfig(units=4, rows=8, width=1, words=16, **_LARGE)
SHAPES = {"tiny": TINY, "smartssd": SMARTSSD, "screc": SCREC}


def core(config: MlpConfig) -> Mlp:
    """The oracle of a core, its memories full of NaNs: nothing that was not written may have an effect."""
    made = Mlp.of(config)
    for memory in (made.row_memory, made.weight_memory, made.addend_memory):
        memory[:] = 0x7FC00000
    return made


def carry_out(made: Mlp, program, weights, inputs):
    """The outputs' buffer, and the oracle's result."""
    outputs = np.full(program.outputs_beats * made.words, 0xDEADBEEF, np.uint32)
    result = made.run(Memory(program.words.reshape(-1), inputs.reshape(-1), weights.reshape(-1), outputs))
    return outputs, result


def batch(network: Network, count: int, seed: int = 0):
    """Dense words and features of a batch."""
    random = np.random.default_rng(seed)
    dense = random.standard_normal((count, network.inputs), np.float32)
    if network.interaction == "none":
        return dense, None
    return dense, random.standard_normal((count, network.features, network.dim), np.float32)


def plain(*widths: int, last: str = "none", bias: bool = True, seed: int = 1) -> Network:
    """Layers alone."""
    random = np.random.default_rng(seed)
    layers = []
    for k, n in zip(widths[:-1], widths[1:], strict=True):
        layers.append(Layer(random.standard_normal((k, n), np.float32) / np.float32(k ** 0.5),
                            random.standard_normal(n, np.float32) if bias else None,
                            last if len(layers) == len(widths) - 2 else "relu"))
    return Network(layers)


def joined(interaction: str, features: int, dim: int, bottom=(5, 24), top=(20, 1), last="sigmoid") -> Network:
    """A small recommendation model."""
    return Model("small", "", (*bottom, dim), interaction, features, dim, top, "relu", last).network(3)


# What faults are tried on, and samples of a batch: a network with an interaction, whose features and biases are all
# loaded anew, and one whose first layer is computed in parts; both use both modes.
NETWORKS = {"dot": (joined("dot", 5, 13, bottom=(21, 17), top=(30, 3)), 9),
            "parts": (plain(700, 37, 5, last="sigmoid"), 6)}
