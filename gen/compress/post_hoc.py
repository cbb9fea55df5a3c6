"""Tensor trains of tables that are there already, however large, with their errors.

TT-SVD in float64, rounded to float32 at the end, out of a table that is read in blocks: the first core is spanned by
the leading eigenvectors of the Gram matrix of the first unfolding, which sums over blocks; what is left of the table
after it is smaller by I1 J1 / R1 and stays in memory. A table may thus be a memory map of any length.

The rows of trained tables have little structure of this kind: look at the error, and train the TT where it is large
(gen.compress.torch_bag).          Source: Oseledets, SIAM J. Sci. Comput. 33(5), 2011, Alg. 1; SCRec §II.B
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.compress.search import RANKS, Candidate, best
from gen.model.weights import Rows
from golden import tt
from golden.tt.cores import fitting

# Words of the table that are worked on at once, as float64.
BLOCK_WORDS = 1 << 22


@dataclass(frozen=True, eq=False)
class TensorTrain:
    """cores: (R, I, J, R') float32. error: Frobenius norm of the difference to the table over that of the table."""

    rows: int
    cores: tuple[NDArray[np.float32], ...]
    error: float

    @property
    def words(self) -> int:
        return sum(core.size for core in self.cores)

    def __str__(self) -> str:
        modes, columns, ranks = ("x".join(str(core.shape[axis]) for core in self.cores) for axis in (1, 2, 3))
        return (f"{self.rows:,} x {prod(core.shape[2] for core in self.cores)} as {modes} by {columns}, "
                f"ranks {ranks.removesuffix('x1')}: relative error {self.error:.3f}, {self.words:,} words "
                f"for {self.rows * prod(core.shape[2] for core in self.cores):,}")


def decompose(values: NDArray[np.floating] | Rows, modes: Sequence[int], columns: Sequence[int],
              ranks: int | Sequence[int]) -> TensorTrain:
    """The tensor train of a table (rows, D), its rows past the last taken as zeros.

    Within sqrt(d - 1) of the least error at those ranks. Equal to TensorLy's up to float64's rounding and the signs of
    ranks. Raises ValueError, one sentence: modes or ranks that do not fit, a word that is not finite.
    """
    if len(values.shape) != 2:
        raise ValueError(f"table must be a matrix (rows, D), not an array of shape {values.shape}")
    rows, dim = values.shape
    modes, columns, inner = fitting(rows, dim, modes, columns, ranks)
    norm = _norm(values)
    side, rest = modes[0] * columns[0], prod(modes[1:]) * prod(columns[1:])
    if side <= rest:
        gram = np.zeros((side, side))
        for _, block in _unfolding(values, modes, columns):
            gram += block @ block.T
        basis = _leading(gram, inner[0])
    else:
        gram = np.zeros((rest, rest))
        for block in _slices(values, modes, columns):
            gram += block.T @ block
        right = _leading(gram, inner[0])
        basis = np.linalg.qr(np.concatenate([block @ right for block in _slices(values, modes, columns)]))[0]
    left: NDArray[np.float64] = np.empty((inner[0], prod(modes[1:]), prod(columns[1:])))
    for tail, block in _unfolding(values, modes, columns):
        left[:, tail] = (basis.T @ block).reshape(inner[0], -1, prod(columns[1:]))
    factors = [basis.reshape(1, modes[0], columns[0], inner[0])]
    left = left.reshape(inner[0], *modes[1:], *columns[1:])
    for k in range(1, len(modes) - 1):
        # (R, I_k .., J_k ..) to (R I_k J_k, the others)
        remaining = len(modes) - k
        left = np.moveaxis(left, 1 + remaining, 2)
        shape = left.shape
        matrix = left.reshape(prod(shape[:3]), -1)
        basis = _columns(matrix, inner[k])
        factors.append(basis.reshape(*shape[:3], inner[k]))
        left = (basis.T @ matrix).reshape(inner[k], *shape[3:])
    factors.append(left[..., None])
    cores = tuple(np.ascontiguousarray(core, dtype=np.float32) for core in factors)
    return TensorTrain(rows, cores, _distance(values, cores) / norm if norm else 0.0)


def even(cores: Sequence[NDArray]) -> list[NDArray]:
    """The same tensor train, every core with words of one size: steps of one rate then move each alike."""
    sizes = [float(np.sqrt(np.mean(np.square(core, dtype=np.float64)))) for core in cores]
    if not all(sizes):
        return list(cores)
    mean = prod(sizes) ** (1 / len(sizes))
    return [(core * (mean / size)).astype(np.float32) for core, size in zip(cores, sizes, strict=True)]


def within(values: NDArray[np.floating] | Rows, error: float, *, config: Any, bytes: float | None = None,
           cycles: float | None = None) -> tuple[Candidate, TensorTrain]:
    """The TT of the lowest rank whose relative error is at most `error`, within bytes and cycles a row of the unit.

    Raises ValueError, one sentence: no rank within the bounds comes so near, and how near the last one came.
    """
    if not 0 <= error:
        raise ValueError(f"error is {error}; it must be 0 or more")
    nearest: TensorTrain | None = None
    reason = ""
    for rank in RANKS:
        try:
            shape = best(*values.shape, config=config, bytes=bytes, cycles=cycles, rank=rank)
        except ValueError as refusal:
            reason = str(refusal)
            continue
        factors = decompose(values, shape.modes, shape.columns, shape.ranks)
        if factors.error <= error:
            return shape, factors
        if nearest is None or factors.error < nearest.error:
            nearest = factors
    if nearest is None:
        raise ValueError(reason)
    raise ValueError(f"no tensor train within the bounds comes nearer than {error:.3g} to the table; the nearest is "
                     f"{nearest}")


def _unfolding(values, modes, columns) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """The first unfolding in blocks: (which (i2, i3, ..), (I1 J1, block x J2 J3 ..))."""
    tails, rows = prod(modes[1:]), len(values)
    step = max(1, BLOCK_WORDS // (modes[0] * prod(columns)))
    for begin in range(0, tails, step):
        tail = slice(begin, min(begin + step, tails))
        block = np.zeros((modes[0], tail.stop - begin, prod(columns)))
        for one in range(modes[0]):
            first = one * tails + begin
            part = values[first:min(first + len(block[one]), rows)]
            block[one, :len(part)] = part
        block = block.reshape(modes[0], -1, columns[0], prod(columns[1:]))
        yield tail, np.moveaxis(block, 2, 1).reshape(modes[0] * columns[0], -1)


def _slices(values, modes, columns) -> Iterator[NDArray[np.float64]]:
    """The first unfolding by its rows: (some I1 times J1, I2 .. J2 ..)."""
    tails = prod(modes[1:])
    for begin, end in _blocks(values, modes):
        block = np.zeros(((end - begin) * tails, prod(columns)))
        part = values[begin * tails:end * tails]
        block[:len(part)] = part
        yield np.moveaxis(block.reshape(end - begin, tails, columns[0], -1), 2, 1).reshape(
            (end - begin) * columns[0], -1)


def _columns(matrix: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """An orthonormal basis (m, rank) of a matrix's leading left singular vectors, by the smaller Gram matrix."""
    if matrix.shape[0] <= matrix.shape[1]:
        return _leading(matrix @ matrix.T, rank)
    return np.linalg.qr(matrix @ _leading(matrix.T @ matrix, rank))[0]


def _leading(gram: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """The eigenvectors of the largest eigenvalues, largest first."""
    return np.linalg.eigh(gram)[1][:, :-rank - 1:-1]


def _blocks(values, modes) -> Iterator[tuple[int, int]]:
    """Runs of i1, of about BLOCK_WORDS words."""
    each = max(1, BLOCK_WORDS // (prod(modes[1:]) * values.shape[1]))
    for begin in range(0, modes[0], each):
        yield begin, min(begin + each, modes[0])


def _norm(values) -> float:
    """Raises ValueError: a word that is not finite."""
    total, step = 0.0, max(1, BLOCK_WORDS // max(1, values.shape[1]))
    for begin in range(0, len(values), step):
        part = np.asarray(values[begin:begin + step], np.float64)
        square = float(np.vdot(part, part))
        if not np.isfinite(square):
            row, column = np.argwhere(~np.isfinite(part))[0]
            raise ValueError(f"table[{begin + row}, {column}] is {part[row, column]}: "
                             "only finite values have a decomposition")
        total += square
    return total ** 0.5


def _distance(values, cores) -> float:
    """Frobenius norm of the table less its tensor train, block by block."""
    modes = [core.shape[1] for core in cores]
    tails, total = prod(modes[1:]), 0.0
    for begin, end in _blocks(values, modes):
        part = np.asarray(values[begin * tails:end * tails], np.float64)
        if not len(part):
            break
        part = part - tt.dense([cores[0][:, begin:end], *cores[1:]])[:len(part)]
        total += float(np.vdot(part, part))
    return total ** 0.5


def tt_rows(cores: Sequence[NDArray[np.float32]], numbers: NDArray) -> NDArray[np.float64]:
    """Rows of a tensor train, multiplied out in float64."""
    product = np.ones((len(numbers), 1, 1))
    for core, part in zip(cores, np.unravel_index(numbers.astype(np.int64), [core.shape[1] for core in cores]),
                          strict=True):
        slices = core[:, part].transpose(1, 0, 2, 3).astype(np.float64)
        product = product @ slices.reshape(len(numbers), core.shape[0], -1)
        product = product.reshape(len(numbers), -1, core.shape[3])
    return product[:, :, 0]
