"""A DLRM in PyTorch, as a GPU's model and as a plain trainer; needs the extra `torch` (pip install 'hotrail[torch]').

`TorchDlrm` is called with vectors and payload as fpga.api.dlrm.Dlrm is, with torch's own networks and gradients.
`train` is the ordinary way: all tables in one place, any order of samples.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class TorchDlrm(torch.nn.Module):
    """dense, vectors, dim, rate, bottom, top and of as those of fpga.api.dlrm.Dlrm. seed: of the weights, drawn by
    torch:
    others than Dlrm's of the same seed. `predict` below takes bags and dense features, not vectors and a payload;
    torch sums in another order, so that results differ in their last bits."""

    def __init__(self, dense: int, vectors: int, dim: int, *, rate: float, bottom: Sequence[int] = (16,),
                 top: Sequence[int] = (24,), seed: int = 0, of: int = 0):
        super().__init__()
        self.dense, self.rate, self.of = dense, rate, of
        pairs = torch.tril_indices(vectors + 1, vectors + 1, -1)
        self.row, self.column = pairs[0], pairs[1]
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.bottom = _network([dense, *bottom, dim], True)
            self.top = _network([dim + len(self.row), *top, 1], False)

    def forward(self, dense: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """Logits (samples,)."""
        low = self.bottom(dense)
        features = torch.cat([low[:, None], vectors], dim=1)
        dots = (features @ features.transpose(1, 2))[:, self.row, self.column]
        return torch.as_tensor(self.top(torch.cat([low, dots], dim=1))[:, 0])

    def step(self, dense: torch.Tensor, vectors: torch.Tensor, label: torch.Tensor, of: int = 0) -> None:
        """Gradients of the loss into everything that has some, and a step of the networks. of: samples that the sum of
        losses is divided by, if not those that there are."""
        self.zero_grad(set_to_none=True)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self(dense, vectors), label, reduction="sum")
        (loss / (of or len(label))).backward()
        with torch.no_grad():
            for weight in self.parameters():
                weight -= self.rate * weight.grad

    def __call__(self, *arguments: object) -> object:
        """Of tensors: logits. Of arrays (vectors, payload), as a GPU's model: a step, and the slopes of the vectors."""
        first, second = arguments
        if isinstance(first, torch.Tensor):
            return super().__call__(first, second)
        vectors = torch.from_numpy(np.array(first, np.float32)).requires_grad_()
        words = torch.from_numpy(np.array(second, np.uint32, order="C").view(np.float32))
        self.step(words[:, :self.dense], vectors, words[:, self.dense], self.of)
        assert vectors.grad is not None
        return vectors.grad.numpy()


def _network(widths: Sequence[int], ends: bool) -> torch.nn.Sequential:
    """Layers with ReLU between them; ends: behind the last one too."""
    parts: list[torch.nn.Module] = []
    for k, n in zip(widths[:-1], widths[1:], strict=True):
        parts += [torch.nn.Linear(k, n), torch.nn.ReLU()]
    return torch.nn.Sequential(*(parts if ends else parts[:-1]))


def tables_of(rows: Sequence[int], dim: int, seed: int) -> list[torch.Tensor]:
    """Tables of random rows; behind the last row one of zeros, for no index."""
    random = torch.Generator().manual_seed(seed)
    return [torch.cat([torch.randn(count, dim, generator=random) * 0.1, torch.zeros(1, dim)]) for count in rows]


def _bags(tables: Sequence[torch.Tensor], bags: Sequence[torch.Tensor], part: torch.Tensor) -> list[torch.Tensor]:
    return [table[bag[part]].sum(1) for table, bag in zip(tables, bags, strict=True)]


def train(model: TorchDlrm, tables: Sequence[torch.Tensor], bags: Sequence[NDArray], dense: Floats, label: Floats,
          order: Iterable[NDArray], rate: float, of: int = 0) -> None:
    """Trains on mini-batches in order, each an array of samples' numbers; tables are changed in place.

    bags: (samples, length) for each table, less than 0: none. rate: the learning rate of the rows. of: samples that a
    mini-batch's sum of losses is divided by, so that a short one steps no further for each of its samples.
    """
    held, features, labels = [torch.from_numpy(np.ascontiguousarray(bag)) for bag in bags], torch.from_numpy(
        dense), torch.from_numpy(label)
    for numbers in order:
        part = torch.from_numpy(np.asarray(numbers))
        vectors = torch.stack(_bags(tables, held, part), dim=1).requires_grad_()
        model.step(features[part], vectors, labels[part], of)
        slopes = vectors.grad
        assert slopes is not None
        for number, (table, bag) in enumerate(zip(tables, held, strict=True)):
            index = bag[part]
            step = slopes[:, number, None].expand(-1, index.shape[1], -1)
            table.index_add_(0, index.reshape(-1) % len(table), step.reshape(-1, step.shape[2]), alpha=-rate)
            table[-1] = 0


def predict(model: TorchDlrm, tables: Sequence[torch.Tensor], bags: Sequence[NDArray], dense: Floats) -> Floats:
    """Probabilities of label 1."""
    with torch.no_grad():
        vectors = torch.stack([table[torch.from_numpy(np.ascontiguousarray(bag))].sum(1)
                               for table, bag in zip(tables, bags, strict=True)], dim=1)
        return torch.sigmoid(model(torch.from_numpy(dense), vectors)).numpy()
