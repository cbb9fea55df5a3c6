"""torch.nn.EmbeddingBag on a card; needs the extra `torch` (pip install 'hotrail[torch]').

    bags = EmbeddingBags([table_of(model.genre, "genre", device)])
    model.genre = EmbeddingBag(bags, "genre", mode="mean")

For inference: the rows are the card's, nothing flows back to them.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from fpga.api.embedding import EmbeddingBags, Table

__all__ = ["EmbeddingBag", "table_of"]


def table_of(module: "torch.nn.EmbeddingBag | torch.nn.Embedding", name: str, device: ArrayLike,
             **options: Any) -> Table:
    """The weights of a module as a table; `device` and the options are those of Table.place."""
    return Table.place(name, module.weight.detach().cpu().numpy(), device, **options)


class EmbeddingBag(torch.nn.Module):
    """One table of `bags`, with the forward of torch.nn.EmbeddingBag; mode, include_last_offset and padding_idx as
    there. Vectors are float32 on the CPU and carry no gradient.
    """

    def __init__(self, bags: EmbeddingBags, table: str, *, mode: str = "mean", include_last_offset: bool = False,
                 padding_idx: int | None = None):
        super().__init__()
        if table not in bags.images.placed:
            raise ValueError(f"there is no table {table!r}; there are {', '.join(bags.images.placed)}")
        self.bags, self.table, self.mode = bags, table, mode
        self.include_last_offset, self.padding_idx = include_last_offset, padding_idx
        self.num_embeddings = bags.images.placed[table].table.rows
        self.embedding_dim = bags.images.placed[table].table.dim

    def forward(self, input: torch.Tensor, offsets: torch.Tensor | None = None,
                per_sample_weights: torch.Tensor | None = None) -> torch.Tensor:
        padding = self.padding_idx
        if padding is not None and padding < 0:
            padding += self.num_embeddings
        return torch.from_numpy(self.bags(self.table, _array(input), None if offsets is None else _array(offsets),
                                          None if per_sample_weights is None else _array(per_sample_weights),
                                          self.mode, self.include_last_offset, padding))

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, table={self.table!r}, mode={self.mode!r}"


def _array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError("per_sample_weights wants a gradient, which a card does not give; use torch.no_grad()")
    return tensor.detach().cpu().numpy()
