"""Rows of a tensor-train table in the TT unit's exact order of operations."""

from math import prod

import numpy as np

from golden import fp32
from golden.tt.layout import Layout, check_shape, plan

_TERMS_AT_ONCE = 1 << 21


def shape_of(cores) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(row modes I, column modes J, ranks R_0..R_d) of cores (R_{k-1}, I_k, J_k, R_k).

    Raises ValueError naming the first core that is not four-dimensional or does not chain.
    """
    for k, core in enumerate(cores):
        if np.ndim(core) != 4:
            raise ValueError(f"core {k + 1} has {np.ndim(core)} axes, a core has 4: (R, I, J, R')")
        if k and np.shape(core)[0] != np.shape(cores[k - 1])[3]:
            raise ValueError(f"core {k + 1} begins with rank {np.shape(core)[0]}, core {k} ends with "
                             f"rank {np.shape(cores[k - 1])[3]}")
    modes = tuple(int(np.shape(core)[1]) for core in cores)
    columns = tuple(int(np.shape(core)[2]) for core in cores)
    ranks = (int(np.shape(cores[0])[0]), *(int(np.shape(core)[3]) for core in cores))
    check_shape(modes, columns, ranks)
    return modes, columns, ranks


def split(indices, modes) -> tuple[np.ndarray, ...]:
    """(i_1, .., i_d) of row numbers i = ((i_1 I_2 + i_2) I_3 + i_3) ..; SCRec §III.E."""
    return np.unravel_index(np.asarray(indices, dtype=np.int64), modes)


def rows(cores, indices, *, grid_log2: int = 2, layout: Layout | None = None) -> np.ndarray:
    """Rows `indices` of the table, (N, D) float32, as the unit computes them, bit for bit.

    Every element is a chain of fused dot products (golden.fp32.dot), k ascending, so many terms a beat as the
    layout of this shape has: T_1 = G_1[i_1], T_k = T_{k-1} G_k[i_k]. A row number past the table reads row 0,
    as the unit does, which marks the vector besides.
    Raises ValueError where the cores do not chain.
    """
    layout = layout or plan(*shape_of(cores), grid_log2=grid_log2)
    indices = np.asarray(indices, dtype=np.int64)
    inside = np.where((indices >= 0) & (indices < layout.rows), indices, 0)
    unique, back = np.unique(inside, return_inverse=True)
    widths = [step.width for step in (layout.first, layout.middle, layout.last) if step]
    terms = max(layout.macs // max(widths), 1) * max(widths)
    step = max(1, _TERMS_AT_ONCE // terms)
    done = [_rows(cores, unique[at:at + step], layout, widths) for at in range(0, len(unique), step)]
    if not done:
        return np.zeros((0, layout.dim), dtype=np.float32)
    return np.concatenate(done)[back.reshape(-1)]


def _rows(cores, indices, layout: Layout, widths) -> np.ndarray:
    parts = split(indices, layout.modes)
    chain = np.asarray(cores[0], dtype=np.float32)[0, parts[0]]
    for k, width in enumerate(widths, start=1):
        core = np.moveaxis(np.asarray(cores[k], dtype=np.float32)[:, parts[k]], 1, 0)
        rank, columns = core.shape[1], prod(core.shape[2:])
        right = np.moveaxis(core.reshape(len(indices), rank, columns), 1, 2)
        product = fp32.dot(chain[:, :, None, :], right[:, None, :, :], width)
        chain = product.reshape(len(indices), -1, layout.ranks[k + 1])
    return chain.reshape(len(indices), layout.dim)
