"""Networks of fully connected layers as recommendation models have them.

    dense -> bottom layers -> interaction with the sparse features -> top layers -> prediction

    interaction none    the bottom layers are the whole network
                concat  top's input = bottom's output, feature 1, .., feature F, one behind the other
                dot     top's input = bottom's output, then the dot products of all pairs of the features, feature 0
                        being the bottom's output: (1, 0), (2, 0), (2, 1), (3, 0), .. as torch.tril_indices has them

A network comes from arrays, from a model's TOML in gen/model/networks (sizes; the weights are random) or from an
ONNX file.
Source: SCRec Fig. 9a; Hotline Table 7.1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.rtl import config

FOLDER = Path(__file__).parent / "networks"
ACTIVATIONS = ("none", "relu", "sigmoid")
INTERACTIONS = ("none", "concat", "dot")
KEYS = ("about", "bottom", "interaction", "features", "dim", "top", "hidden", "last")
FEATURES_MAX = 255
WIDEST, LAYERS_MOST = 1 << 16, 64       # of a model's file: a layer of 16 GB at the most


@dataclass(frozen=True, eq=False)
class Layer:
    """activation(x @ weights + bias): weights (inputs, outputs), bias (outputs,) or None, both float32 and finite.

    Raises      ValueError: a wrong shape, a value that is no finite float32, an activation that there is not
    """

    weights: NDArray[np.float32]
    bias: NDArray[np.float32] | None = None
    activation: str = "none"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _floats("weights", self.weights))
        if self.weights.ndim != 2 or 0 in self.weights.shape:
            raise ValueError(f"weights must have the shape (inputs, outputs), not {self.weights.shape}")
        if self.bias is not None:
            object.__setattr__(self, "bias", _floats("bias", self.bias))
            if self.bias.shape != (self.outputs,):
                raise ValueError(f"bias must have the shape ({self.outputs},), not {self.bias.shape}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {self.activation!r}")

    @property
    def inputs(self) -> int:
        return self.weights.shape[0]

    @property
    def outputs(self) -> int:
        return self.weights.shape[1]

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The layer in float64."""
        y = x @ self.weights.astype(np.float64)
        if self.bias is not None:
            y = y + self.bias
        if self.activation == "relu":
            return np.maximum(y, 0)
        return 1 / (1 + np.exp(-y)) if self.activation == "sigmoid" else y


def _floats(what: str, array: ArrayLike) -> NDArray[np.float32]:
    given = np.asarray(array)
    if given.dtype.kind not in "fiu":
        raise ValueError(f"{what} must be numbers, not {given.dtype}")
    with np.errstate(over="ignore"):
        words = np.ascontiguousarray(given, np.float32)
    if not np.isfinite(words).all():
        at = tuple(int(k) for k in np.argwhere(~np.isfinite(words))[0])
        raise ValueError(f"{what} must be finite float32 numbers; at {at} stands {given[at]}")
    return words


@dataclass(frozen=True, eq=False)
class Network:
    """Layers that go together. features, dim: sparse features and words of each, 0 without an interaction.

    Raises      ValueError: one sentence that names the layer: shapes that do not chain, a sigmoid that is not last
    """

    bottom: Sequence[Layer]
    interaction: str = "none"
    features: int = 0
    dim: int = 0
    top: Sequence[Layer] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "bottom", tuple(self.bottom))
        object.__setattr__(self, "top", tuple(self.top))
        _check_shape(self.interaction, self.features, self.dim, len(self.bottom), len(self.top))
        width = self.bottom[0].inputs
        for name, layer in self.layers():
            if name == "top 1":
                if self.interaction == "dot" and width != self.dim:
                    raise ValueError(f"the bottom's {width} outputs are a feature among others of {self.dim} words: "
                                     "they must be as many")
                width = self.top_inputs
            if layer.inputs != width:
                raise ValueError(f"layer {name} has weights for {layer.inputs} inputs, and gets {width}")
            width = layer.outputs
            if layer.activation == "sigmoid" and layer is not (self.top or self.bottom)[-1]:
                raise ValueError(f"layer {name} has a sigmoid; only the network's last layer may")

    def layers(self) -> Iterator[tuple[str, Layer]]:
        """(name, layer) in order."""
        for part, layers in (("bottom", self.bottom), ("top", self.top)):
            for number, layer in enumerate(layers, 1):
                yield f"{part} {number}", layer

    @property
    def inputs(self) -> int:
        """Dense words of a sample."""
        return self.bottom[0].inputs

    @property
    def outputs(self) -> int:
        return (self.top or self.bottom)[-1].outputs

    @property
    def top_inputs(self) -> int:
        """Words that the first top layer gets."""
        return _top_inputs(self.interaction, self.bottom[-1].outputs, self.features, self.dim)

    @property
    def macs(self) -> int:
        """Multiplications that a sample asks for: those of the layers and of the pairs of features."""
        pairs = (self.features + 1) * self.features // 2 if self.interaction == "dot" else 0
        return sum(layer.weights.size for _, layer in self.layers()) + pairs * self.dim

    def __call__(self, dense: ArrayLike, embeddings: ArrayLike | None = None) -> NDArray[np.float64]:
        """The predictions in float64."""
        x = np.asarray(dense, np.float64)
        for layer in self.bottom:
            x = layer(x)
        if self.interaction == "none":
            return x
        sparse = np.asarray(embeddings, np.float64).reshape(len(x), self.features, self.dim)
        if self.interaction == "concat":
            x = np.concatenate([x, sparse.reshape(len(x), -1)], axis=1)
        else:
            vectors = np.concatenate([x[:, None], sparse], axis=1)
            row, column = np.tril_indices(self.features + 1, -1)
            x = np.concatenate([x, (vectors @ vectors.swapaxes(1, 2))[:, row, column]], axis=1)
        for layer in self.top:
            x = layer(x)
        return x

    @classmethod
    def gemm(cls, weights: ArrayLike) -> "Network":
        """A plain matrix product: x @ weights."""
        return cls((Layer(np.asarray(weights)),))

    @classmethod
    def model(cls, name: str, *, dim: int | None = None, seed: int = 0) -> "Network":
        """A model of gen/model/networks with random weights; dim: of its features, where the model leaves it open."""
        return Model.load(name, dim=dim).network(seed)


def _check_shape(interaction: str, features: int, dim: int, bottom: int, top: int) -> None:
    if interaction not in INTERACTIONS:
        raise ValueError(f"interaction must be one of {', '.join(INTERACTIONS)}, not {interaction!r}")
    if not bottom:
        raise ValueError("a network needs a bottom layer at least")
    if interaction == "none":
        if top or features or dim:
            raise ValueError("a network without an interaction has bottom layers alone, no features and no top")
        return
    if not top:
        raise ValueError(f"interaction {interaction} needs a top layer at least")
    most = FEATURES_MAX - (interaction == "dot")
    if not 1 <= features <= most:
        raise ValueError(f"features must be 1 to {most}, not {features}")
    if dim < 1:
        raise ValueError(f"dim must be at least 1, not {dim}")


def _top_inputs(interaction: str, bottom: int, features: int, dim: int) -> int:
    if interaction == "concat":
        return bottom + features * dim
    return bottom + (features + 1) * features // 2 if interaction == "dot" else 0


@dataclass(frozen=True)
class Model:
    """The sizes of a network. bottom: the dense inputs, then the outputs of each layer; top: the outputs of each."""

    name: str
    about: str
    bottom: tuple[int, ...]
    interaction: str
    features: int
    dim: int
    top: tuple[int, ...]
    hidden: str
    last: str

    @classmethod
    def load(cls, name: str | Path, *, dim: int | None = None) -> "Model":
        """A model by its name in gen/model/networks, or from a path that ends in .toml.

        dim: words of a feature where the file leaves it open ("D" as the bottom's last width).
        Raises      ValueError: the file, or a key in it, is missing, unknown or impossible
        """
        path, content = config.read("model", name, FOLDER)
        for key in content:
            if key not in KEYS:
                raise ValueError(f"{path.name}: {key}: unknown key; allowed are {', '.join(KEYS)}")
        for key in ("about", "bottom", "interaction", "hidden", "last"):
            if key not in content:
                raise ValueError(f"{path.name}: {key}: missing key")
        bottom, top = content["bottom"], content.get("top", [])
        is_open = isinstance(bottom, list) and bottom[-1:] == ["D"]
        if is_open:
            if dim is None:
                raise ValueError(f"{path.name}: the model leaves the features' dimension open: say dim")
            bottom = [*bottom[:-1], dim]
        elif dim is not None and dim != content.get("dim"):
            raise ValueError(f"{path.name}: the features' dimension is {content.get('dim', 'none')}, not {dim}")
        for key, widths in (("bottom", bottom), ("top", top)):
            if not isinstance(widths, list) or not all(type(width) is int and width >= 1 for width in widths):
                raise ValueError(f"{path.name}: {key} = {widths!r}: must be a list of widths")
            if max(widths, default=0) > WIDEST or len(widths) > LAYERS_MOST:
                raise ValueError(f"{path.name}: {key} = {str(widths)[:80]}: at most {LAYERS_MOST} widths of at most "
                                 f"{WIDEST}")
        if len(bottom) < 2:
            raise ValueError(f"{path.name}: bottom = {bottom!r}: must have the dense inputs and a layer's outputs")
        for key in ("features", "dim"):
            if type(content.get(key, 0)) is not int or content.get(key, 0) > WIDEST:
                raise ValueError(f"{path.name}: {key} = {content[key]!r}: must be a whole number of at most {WIDEST}")
        if type(content["about"]) is not str:
            raise ValueError(f"{path.name}: about = {content['about']!r}: must be a sentence")
        for key in ("hidden", "last"):
            if content[key] not in ACTIVATIONS:
                raise ValueError(f"{path.name}: {key} = {content[key]!r}: must be one of {', '.join(ACTIVATIONS)}")
        words = content.get("dim", dim or 0) if content["interaction"] != "none" else 0
        try:
            _check_shape(content["interaction"], content.get("features", 0), words, len(bottom) - 1, len(top))
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
        return cls(path.stem, content["about"], tuple(bottom), content["interaction"], content.get("features", 0),
                   words, tuple(top), content["hidden"], content["last"])

    def network(self, seed: int = 0) -> Network:
        """A network of these sizes with random weights that keep the words' size from layer to layer."""
        random = np.random.default_rng(seed)

        def layers(widths: Sequence[int], is_last: bool) -> list[Layer]:
            return [Layer(random.standard_normal((k, n), np.float32) * np.float32((2 / k) ** 0.5),
                          random.standard_normal(n, np.float32) * np.float32(0.1),
                          self.last if is_last and at == len(widths) - 2 else self.hidden)
                    for at, (k, n) in enumerate(zip(widths[:-1], widths[1:], strict=True))]

        wide = _top_inputs(self.interaction, self.bottom[-1], self.features, self.dim)
        return Network(layers(self.bottom, not self.top), self.interaction, self.features, self.dim,
                       layers((wide, *self.top), True) if self.top else ())


def models() -> tuple[str, ...]:
    """The models that come with the project."""
    return config.stems(FOLDER)
