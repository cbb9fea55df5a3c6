"""torch.nn.EmbeddingBag on a card; needs the extra `torch` (pip install 'hotrail[torch]').

    bags = EmbeddingBags([table_of(model.genre, "genre", device)])
    model.genre = EmbeddingBag(bags, "genre", mode="mean")

For inference: the rows are the card's, nothing flows back to them.
"""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike

from fpga.api.embedding import Table

__all__ = ["EmbeddingBag", "Tables", "array", "table_of"]


class Tables(Protocol):
    """What EmbeddingBag looks up: fpga.api.embedding.EmbeddingBags, or tables on several cards."""

    def shape(self, table: str) -> tuple[int, int]:
        """Rows and values of each. Raises ValueError: no such table"""
        ...

    def __call__(self, table: str, *arguments: Any, **options: Any) -> np.ndarray:
        ...


def table_of(module: "torch.nn.EmbeddingBag | torch.nn.Embedding", name: str, device: ArrayLike,
             **options: Any) -> Table:
    """The weights of a module as a table; `device` and the options are those of Table.place."""
    return Table.place(name, module.weight.detach().cpu().numpy(), device, **options)


class EmbeddingBag(torch.nn.Module):
    """One table of `bags`, with the forward of torch.nn.EmbeddingBag; mode, include_last_offset and padding_idx as
    there. Vectors are float32 on the CPU and carry no gradient.
    """

    def __init__(self, bags: Tables, table: str, *, mode: str = "mean", include_last_offset: bool = False,
                 padding_idx: int | None = None):
        super().__init__()
        self.num_embeddings, self.embedding_dim = bags.shape(table)
        self.bags, self.table, self.mode = bags, table, mode
        self.include_last_offset, self.padding_idx = include_last_offset, padding_idx

    def __deepcopy__(self, memo: dict[int, Any]) -> "EmbeddingBag":
        return self         # the card is what it is

    def forward(self, input: torch.Tensor, offsets: torch.Tensor | None = None,
                per_sample_weights: torch.Tensor | None = None) -> torch.Tensor:
        padding = self.padding_idx
        if padding is not None and padding < 0:
            padding += self.num_embeddings
        return torch.from_numpy(self.bags(self.table, array(input), None if offsets is None else array(offsets),
                                          None if per_sample_weights is None else array(per_sample_weights),
                                          self.mode, self.include_last_offset, padding))

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, table={self.table!r}, mode={self.mode!r}"


def array(tensor: torch.Tensor) -> np.ndarray:
    """Of a tensor that no gradient is wanted of."""
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError("per_sample_weights wants a gradient, which a card does not give; use torch.no_grad()")
    return tensor.detach().cpu().numpy()
