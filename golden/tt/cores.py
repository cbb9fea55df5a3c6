"""Tensor-train cores of an embedding table: which a table can have, and the table that they stand for.

A table of I1*I2*I3 rows and J1*J2*J3 columns becomes cores G_k of shape (R_{k-1}, I_k, J_k, R_k) with

    table[(i1*I2 + i2)*I3 + i3, (j1*J2 + j2)*J3 + j3] = G1[0, i1, j1, :] @ G2[:, i2, j2, :] @ G3[:, i3, j3, 0]

Source: Oseledets, Tensor-Train Decomposition, SIAM J. Sci. Comput. 33(5), 2011; SCRec §II.B
"""

from collections.abc import Sequence
from math import prod

import numpy as np


def fitting(rows: int, columns: int, row_modes: Sequence[int], column_modes: Sequence[int],
            ranks: int | Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Row modes, column modes and inner ranks of a tensor train of a table of `rows` x `columns` words.

    Raises ValueError, in one sentence, where they do not fit the table.
    """
    row_modes, column_modes = _modes("row_modes", row_modes), _modes("column_modes", column_modes)
    if len(row_modes) != len(column_modes):
        raise ValueError(f"row_modes {row_modes} and column_modes {column_modes} must be equally many")
    if len(row_modes) < 2:
        raise ValueError(f"row_modes {row_modes} must be 2 or more factors: one core is the table itself")
    if prod(row_modes) < rows:
        raise ValueError(f"row_modes {row_modes} multiply to {prod(row_modes)}, "
                         f"fewer than the table's {rows} rows")
    if prod(column_modes) != columns:
        raise ValueError(f"column_modes {column_modes} multiply to {prod(column_modes)}, "
                         f"not to the table's {columns} columns")
    return row_modes, column_modes, _ranks(ranks, row_modes, column_modes)


def dense(cores: Sequence[np.ndarray]) -> np.ndarray:
    """The table (prod I, prod J) that `cores` stand for, contracted in float64."""
    check_cores(cores)
    block = np.ones((1, 1, 1))  # (rows so far, columns so far, open rank)
    for core in cores:
        block = np.einsum("xyr,rijs->xiyjs", block, np.asarray(core, dtype=np.float64), optimize=True)
        block = block.reshape(block.shape[0] * block.shape[1], -1, block.shape[-1])
    return block[:, :, 0]


def check_cores(cores: Sequence[np.ndarray]) -> None:
    """Raises ValueError, naming the offending core, unless `cores` chain from rank 1 to rank 1."""
    if not cores:
        raise ValueError("cores must hold at least one core")
    rank = 1
    for k, core in enumerate(cores, start=1):
        shape = np.shape(core)
        if len(shape) != 4:
            raise ValueError(f"core {k} has shape {shape}; it must be (rank, I, J, rank)")
        if shape[0] != rank:
            raise ValueError(f"core {k} has shape {shape}; its first rank must be {rank}, "
                             f"{'as a tensor train starts with rank 1' if k == 1 else f'the last of core {k - 1}'}")
        rank = shape[3]
    if rank != 1:
        raise ValueError(f"core {len(cores)} ends with rank {rank}; a tensor train ends with rank 1")


def largest_ranks(row_modes: Sequence[int], column_modes: Sequence[int]) -> tuple[int, ...]:
    """The inner ranks at which the decomposition is exact; higher ones cannot exist."""
    sizes = [i * j for i, j in zip(row_modes, column_modes, strict=True)]
    return tuple(min(prod(sizes[:k]), prod(sizes[k:])) for k in range(1, len(sizes)))


def _modes(name: str, modes: Sequence[int]) -> tuple[int, ...]:
    if any(int(mode) != mode or mode < 1 for mode in modes):
        raise ValueError(f"{name} {tuple(modes)} must be whole numbers of 1 or more")
    return tuple(int(mode) for mode in modes)


def _ranks(ranks: int | Sequence[int], row_modes: tuple[int, ...],
           column_modes: tuple[int, ...]) -> tuple[int, ...]:
    wanted = len(row_modes) - 1
    inner = (ranks,) * wanted if isinstance(ranks, (int, np.integer)) else tuple(ranks)
    if len(inner) != wanted:
        raise ValueError(f"ranks {inner} must be {wanted}, one between each two of {wanted + 1} cores")
    limits = largest_ranks(row_modes, column_modes)
    for k, (rank, limit) in enumerate(zip(inner, limits, strict=True), start=1):
        if int(rank) != rank or not 1 <= rank <= limit:
            raise ValueError(f"rank {k} is {rank}; with row_modes {row_modes} and "
                             f"column_modes {column_modes} it must be 1 to {limit}")
    # TT-SVD goes left to right, so a small rank caps how many the next unfolding can still have.
    sizes = [i * j for i, j in zip(row_modes, column_modes, strict=True)]
    left = 1
    for k, rank in enumerate(inner, start=1):
        if rank > left * sizes[k - 1]:
            raise ValueError(f"rank {k} is {rank}; after rank {k - 1} = {left} it must be "
                             f"1 to {left * sizes[k - 1]}")
        left = rank
    return tuple(int(rank) for rank in inner)
