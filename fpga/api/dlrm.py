"""A small DLRM in NumPy, as a GPU's model (fpga.api.gpu.Model): bottom network, dot products of all pairs, top network.

    model = Dlrm(dense=4, vectors=3, dim=8, rate=0.05)
    hotline.train(model, indices, payload, rate=-0.05, batch=64)        # payload: dense features, then the label
    p = model.predict(vectors, payload)

The loss is the logarithmic one, averaged over a mini-batch; weights are trained by plain gradient descent in float32.
Source: Meta's DLRM
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gen.data.logs import features
from gen.data.logs.trace import Trace

LABELS = (*features.LABELS, "target", "rating")     # the first that a log has is learned

Floats = NDArray[np.floating]


class Dlrm:
    """dense: features of a sample, which the payload brings as float32 before its label; vectors: of a sample, of dim
    words. rate: the learning rate of the networks. bottom, top: widths of their hidden layers. seed: of the weights.
    of: samples that a mini-batch's sum of losses is divided by, if not those that it has: with the usual number a short
    mini-batch, as the last ones are, steps no further for each of its samples."""

    def __init__(self, dense: int, vectors: int, dim: int, *, rate: float, bottom: Sequence[int] = (16,),
                 top: Sequence[int] = (24,), seed: int = 0, of: int = 0):
        self.dense, self.vectors, self.dim, self.rate, self.of = dense, vectors, dim, np.float32(rate), of
        self.row, self.column = np.tril_indices(vectors + 1, -1)
        random = np.random.default_rng(seed)
        self.bottom = _layers(random, [dense, *bottom, dim])
        self.top = _layers(random, [dim + len(self.row), *top, 1])

    def __call__(self, vectors: Floats, payload: NDArray[np.uint32]) -> Floats:
        """One step; the slopes (samples, vectors, dim) of the loss. The payload's last word is the label, 0 or 1."""
        features, low, high = self._forward(vectors, payload)
        label = np.ascontiguousarray(payload[:, self.dense:self.dense + 1]).view(np.float32)
        back = self._back(self.top, high, (_sigmoid(high[-1]) - label) / np.float32(self.of or len(label)))
        pairs = np.zeros((len(label), self.vectors + 1, self.vectors + 1), np.float32)
        pairs[:, self.row, self.column] = back[:, self.dim:]
        slopes = (pairs + pairs.swapaxes(1, 2)) @ features
        self._back(self.bottom, low, (back[:, :self.dim] + slopes[:, 0]) * (low[-1] > 0))
        return np.asarray(slopes[:, 1:], np.float32)

    def predict(self, vectors: Floats, payload: NDArray[np.uint32]) -> Floats:
        """The probabilities (samples,) of label 1."""
        return _sigmoid(self._forward(vectors, payload)[2][-1])[:, 0]

    def _forward(self, vectors: Floats, payload: NDArray[np.uint32]) -> tuple[Floats, list[Floats], list[Floats]]:
        low = [np.ascontiguousarray(payload[:, :self.dense]).view(np.float32)]
        for weight, bias in self.bottom:
            low.append(np.maximum(low[-1] @ weight + bias, 0))
        features = np.concatenate([low[-1][:, None], vectors], axis=1)
        dots = (features @ features.swapaxes(1, 2))[:, self.row, self.column]
        high = [np.concatenate([low[-1], dots], axis=1)]
        for number, (weight, bias) in enumerate(self.top):
            y = high[-1] @ weight + bias
            high.append(np.maximum(y, 0) if number < len(self.top) - 1 else y)
        return features, low, high

    def _back(self, layers: list[tuple[Floats, Floats]], values: list[Floats], slope: Floats) -> Floats:
        """Trains layers whose inputs and outputs are `values`, given the slope of the last sum; that of the inputs."""
        for number in reversed(range(len(layers))):
            weight, bias = layers[number]
            before = values[number]
            down = slope @ weight.T
            weight -= self.rate * (before.T @ slope)
            bias -= self.rate * slope.sum(axis=0)
            slope = down * (before > 0) if number else down
        return slope


def _layers(random: np.random.Generator, widths: Sequence[int]) -> list[tuple[Floats, Floats]]:
    return [((random.standard_normal((k, n)) * (2 / k) ** 0.5).astype(np.float32), np.zeros(n, np.float32))
            for k, n in zip(widths[:-1], widths[1:], strict=True)]


def _sigmoid(x: Floats) -> Floats:
    return (1 / (1 + np.exp(-np.clip(x, -60, 60)))).astype(np.float32)


def payload_of(trace: Trace, label: str | None) -> tuple[NDArray[np.uint32], list[str]]:
    """Words that a sample carries: its dense features, or a 1 where it has none, and what is learned, 0 or 1; and the
    values that are not among them.

    Raises      ValueError: no such column, samples without a label or with a feature that is no finite float32
    """
    columns = {name: value for name, value in trace.values.items() if value.ndim == 1}
    name = label or features.label_among(columns, LABELS)
    if name is None or name not in columns:
        what = f"no column {label!r}" if label else "none of " + ", ".join(LABELS)
        raise ValueError(f"{trace.source} has {what}; its columns are {', '.join(columns) or 'none'}: --label says "
                         f"which one is learned")
    value = np.asarray(columns[name], np.float64)
    _check(trace.source, name, value)
    if not np.isin(value, (0, 1)).all():
        value = (value > value.mean()).astype(np.float64)   # liked more than usual
    dense = features.dense_features(trace.values)
    if dense is None:
        dense = np.ones((len(value), 1), np.float32)
    _check(trace.source, "a dense feature", dense)
    used = {name, *features.dense_names(trace.values)}
    return (np.concatenate([dense, value[:, None]], axis=1).astype(np.float32).view(np.uint32),
            [name for name in trace.values if name not in used])


def _check(source: str, what: str, values: NDArray) -> None:
    """Raises ValueError: a sample of which a value (samples, ..) is missing or infinite"""
    missing = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    if missing.any():
        raise ValueError(f"{source}: {what} is no finite number in {np.count_nonzero(missing):,} of {len(values):,} "
                         f"samples; first in sample {int(np.argmax(missing))}, numbered from 0")
