"""A table whose hottest rows are dense and whose others are a tensor train, under CachedEmbeddingBag's interface."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from gen.compress.torch_bag import TieredBag
from gen.data.remap import by_heat
from hotrail.training.bag import GlobalBatch, check, check_ends


class TensorTrainBag(TieredBag):
    """One embedding table of `rows` rows of `dim` words; all of it is on one device, for tensor trains are small.

    `backward` takes the step, gradients of equal rows and of equal first products summed before (EL-Rec §III.B).

    Parameters  cache_rows: rows that are dense, the hottest by `heat` (the first ones without); the others are the
                tensor train. order: new row of each row as gen.data.reorder has it, by which the tensor train's rows
                are numbered. rate, rule: as gen.compress.torch_bag.TieredBag has them, and options: its other ones
    Members     may_keep: rows that are popular for a loader: all. moved, hits, lookups, waits: as
                CachedEmbeddingBag has them; no row is ever moved
    Raises      ValueError: sizes, modes and rules that do not exist
    """

    def __init__(self, rows: int, dim: int, *, cache_rows: int = 0, heat: ArrayLike | None = None, mode: str = "sum",
                 rate: float, include_last_offset: bool = False, order: ArrayLike | None = None, **options: Any):
        check(mode, rate)
        if not 0 <= cache_rows < rows:
            raise ValueError(f"cache_rows is {cache_rows}; it must be 0 to {rows - 1}, less than the rows of the table")
        counts = np.zeros(rows, np.int64) if heat is None else np.asarray(heat)
        if counts.shape != (rows,):
            raise ValueError(f"heat has the shape {counts.shape}; it must be one number for each of {rows} rows")
        tier = np.ones(rows, np.uint8)
        tier[by_heat(counts)[:cache_rows]] = 0
        if order is not None:
            numbered = np.argsort(np.asarray(order), kind="stable")
            order = numbered[tier[numbered] == 1]
        super().__init__(tier, dim, order=order, mode=mode, rate=rate, **options)
        self.include_last_offset, self.may_keep = include_last_offset, rows
        self.moved = self.hits = self.lookups = self.waits = 0

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor | None = None,       # type: ignore[override]
                per_sample_weights: torch.Tensor | None = None) -> torch.Tensor:
        """Pooled bags (bags, dim), as CachedEmbeddingBag has them.

        Raises      IndexError: an index that is no row; ValueError: indices behind the last offset
        """
        check_ends(self, indices, offsets)
        wrong = (indices < 0) | (indices >= self.rows)
        if wrong.any():
            raise IndexError(f"index {int(indices[wrong][0])} is none of the table's {self.rows} rows")
        return super().forward(indices, offsets, per_sample_weights,
                               include_last_offset=self.include_last_offset and offsets is not None)

    def table(self) -> torch.Tensor:
        """The rows (rows, dim), those of the tensor train multiplied out."""
        return torch.from_numpy(self.values())

    # Nothing moves.

    def announce(self, indices: torch.Tensor, of_all: GlobalBatch | None = None) -> None: ...

    def prefetch(self, up_to: int = 1) -> None: ...

    def forget(self) -> None: ...

    def keep(self, rows: ArrayLike | torch.Tensor) -> None: ...
