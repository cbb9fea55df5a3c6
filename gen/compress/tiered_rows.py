"""An embedding table that is trained in NumPy, in the form in which cards hold it: the counterpart of
gen.compress.torch_bag for machines without torch, for lookups whose sums the caller makes.

    table = TieredRows(values, rate=0.02, core_rate=0.1)
    vectors = table[numbers]                    # (n, dim)
    table.step(numbers, slopes)                 # of the loss by these vectors
    table.decompose(warm, (10, 11, 7), (4, 2, 8), 8)        # warm rows go on as a tensor train
    np.savez("weights.npz", **table.arrays("items"))        # the format of `hotrail compile --weights`

Slopes of equal rows are summed before they meet the chain, those of equal slices before the step (EL-Rec §III.B).
"""

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.compress.post_hoc import decompose, even

TINY = 1e-10        # as torch.optim.Adagrad has it


class TieredRows:
    """A table (rows, dim), all rows dense at first. rate, core_rate: of Adagrad, for dense rows and for cores.

    Members     tt_row: (rows,) the row of the tensor train that each row is, -1 for dense ones. cores: (R, I, J, R')
                each, () without a tensor train. error: of the decomposition it began with, relative.
    """

    def __init__(self, values: NDArray[np.floating], *, rate: float, core_rate: float):
        self.rate, self.core_rate, self.error = rate, core_rate, 0.0
        self.tt_row = np.full(len(values), -1)
        self.cores: tuple[NDArray[np.floating], ...] = ()
        self._dense = values.copy()
        self._squares = [np.zeros_like(values)]     # of rows, then of each core

    def __getitem__(self, numbers: NDArray[np.integer]) -> NDArray[np.floating]:
        """Rows (n, dim)."""
        values = self._dense[numbers]
        warm = self.tt_row[numbers] >= 0
        if warm.any():
            left = np.ones((int(warm.sum()), 1, 1), values.dtype)
            for part in self._slices(self.tt_row[numbers[warm]])[1]:
                left = _times(left, part)
            values[warm] = left[:, :values.shape[1], 0]
        return values

    def step(self, numbers: NDArray[np.integer], slopes: NDArray[np.floating], scale: float = 1.0) -> None:
        """Adagrad's step against slopes (n, dim) of the loss by rows `numbers`. scale: of the rates, for schedules."""
        parts = [self._dense, *(core.swapaxes(0, 1) for core in self.cores)]
        for k, (at, slope) in enumerate(self.gradients(numbers, slopes)):
            self._squares[k][at] += slope * slope
            rate = scale * (self.core_rate if k else self.rate)
            parts[k][at] -= rate * slope / (np.sqrt(self._squares[k][at]) + TINY)

    def gradients(self, numbers: NDArray[np.integer], slopes: NDArray[np.floating]) -> list[tuple[NDArray, NDArray]]:
        """Which dense rows, and the loss's slopes (n, dim) by them; then of each core, if a TT row is among them, which
        slices, and the slopes (n, R, J, R')."""
        unique, slopes = summed(numbers, slopes)
        warm = self.tt_row[unique] >= 0
        of_dense = [(unique[~warm], slopes[~warm])]
        if not warm.any():
            return of_dense
        places, parts = self._slices(self.tt_row[unique[warm]])
        count, dim, width = int(warm.sum()), slopes.shape[1], prod(part.shape[2] for part in parts)
        slopes = np.pad(slopes[warm], ((0, 0), (0, width - dim)))
        lefts = [np.ones((count, 1, 1), slopes.dtype)]
        for part in parts[:-1]:
            lefts.append(_times(lefts[-1], part))
        right = np.ones((count, 1, 1), slopes.dtype)        # (n, R', J .. of the cores behind)
        of_cores = []
        for left, part, place in zip(reversed(lefts), reversed(parts), reversed(places)):
            _, rank, mode, after = part.shape
            behind = (left.swapaxes(1, 2) @ slopes.reshape(count, left.shape[1], -1)).reshape(count, rank * mode, -1)
            of_cores.append(summed(place, (behind @ right.swapaxes(1, 2)).reshape(part.shape)))
            right = (part.reshape(count, rank * mode, after) @ right).reshape(count, rank, -1)
        return [*of_dense, *reversed(of_cores)]

    def decompose(self, warm: ArrayLike, modes: Sequence[int], columns: Sequence[int], ranks: int | Sequence[int]) \
            -> None:
        """Makes a tensor train of dense rows, in this order; it goes on from what they have learned. Where the columns
        multiply to more than dim, its rows have zeros behind.

        Raises      ValueError: modes or ranks that do not fit
        """
        warm, width = np.asarray(warm), max(prod(columns), self._dense.shape[1])
        rows = np.pad(self._dense[warm], ((0, 0), (0, width - self._dense.shape[1])))
        train = decompose(rows, modes, columns, ranks)
        self.cores, self.error = tuple(core.astype(self._dense.dtype) for core in even(train.cores)), train.error
        self.tt_row = np.full(len(self._dense), -1)
        self.tt_row[warm] = np.arange(len(warm))
        self._squares[1:] = [np.zeros_like(core.swapaxes(0, 1)) for core in self.cores]

    def values(self) -> NDArray[np.floating]:
        """The table (rows, dim), rows of the tensor train multiplied out."""
        return self[np.arange(len(self._dense))]

    def arrays(self, name: str) -> dict[str, NDArray]:
        """The table under the names that a bundle's weights have (gen.model.weights)."""
        arrays = {f"table_{name}": self.values()}
        if self.cores:
            arrays |= {f"core{k}_{name}": core for k, core in enumerate(self.cores, 1)}
            arrays[f"tt_row_{name}"] = self.tt_row
        return arrays

    def _slices(self, at: NDArray[np.int64]) -> tuple[tuple[NDArray, ...], list[NDArray]]:
        """Of rows of the tensor train: the index into each core, and its slices (n, R, J, R')."""
        places = np.unravel_index(at, [core.shape[1] for core in self.cores])
        return places, [core.swapaxes(0, 1)[place] for core, place in zip(self.cores, places, strict=True)]


def _times(left: NDArray, part: NDArray) -> NDArray:
    """Products (n, J .., R) of the cores so far and slices (n, R, J, R') of the next: (n, J .. J, R')."""
    return (left @ part.reshape(*part.shape[:2], -1)).reshape(len(part), -1, part.shape[3])


def summed(numbers: NDArray, slopes: NDArray) -> tuple[NDArray, NDArray]:
    """Different numbers, ascending, and the sums of each one's slopes."""
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    first = np.flatnonzero(np.diff(ascending, prepend=-1))
    return ascending[first], np.add.reduceat(slopes[order], first, axis=0)
