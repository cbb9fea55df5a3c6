"""Bags, pooled as the core does it: a partial vector a tier, then the partial vectors with a factor each.

    pool     o[d] = sum_k w[k] v[k, d], k ascending, or max_k v[k, d]
    combine  o[d] = sum_p f[p] partial[p, d] in the order given, or max_p partial[p, d]
    bag      chunks of tensor-train rows ascending, card memory, SSD; f = 1, 1 / n (mean) or a tensor train row's weight

Sums are golden.fp.fp32.dot with one term per beat, maxima golden.fp.fp32.maximum; nothing at all is +0.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from golden.emb import bags
from golden.fp import fp32

MODES = ("sum", "mean", "max")


def latency(lut_products: bool) -> int:
    """Cycles of the pooling unit; a product with one DSP takes one more."""
    return 15 if lut_products else 14


def pool(values: ArrayLike, weights: ArrayLike | None = None, mode: str = "sum") -> NDArray[np.float32]:
    """The partial vector (D,) of one tier's rows (n, D). weights: (n,), default 1.0, left aside for a maximum.

    A mean is pooled like a sum: it is divided when the partial vectors are combined.
    Raises      ValueError: an unknown mode; what golden.emb.bags.pool refuses
    """
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}, must be one of {', '.join(MODES)}")
    rows = fp32.bits(values)
    return bags.pool(rows, [0, len(rows)], None if mode == "max" else weights, maximum=mode == "max")[0]


def combine(partials: ArrayLike, factors: ArrayLike | None = None, mode: str = "sum") -> NDArray[np.float32]:
    """The vector (D,) of a bag from its partial vectors (p, D) in order. factors: (p,), default 1.0."""
    return pool(partials, factors, mode)


def bag(chunks: ArrayLike, dram: ArrayLike, ssd: ArrayLike, *, mode: str = "sum", count: int | None = None,
        chunk_weights: ArrayLike | None = None, dram_weights: ArrayLike | None = None,
        ssd_weights: ArrayLike | None = None) -> NDArray[np.float32]:
    """The vector (D,) of a whole bag.

    chunks: (c, D), the tensor train's vectors, one a chunk of rows; with weights one a row. dram, ssd: (n, D) rows.
    count: indices of the bag, for a mean; default: the rows given, each chunk counted as one.
    Raises      ValueError: a mean with weights
    """
    chunks, dram, ssd = (fp32.bits(rows) for rows in (chunks, dram, ssd))
    weights = (chunk_weights, dram_weights, ssd_weights)
    if mode == "mean" and any(w is not None for w in weights):
        raise ValueError("a mean takes no weights")
    factors = np.ones(len(chunks), np.float32) if chunk_weights is None else fp32.value(fp32.bits(chunk_weights))
    partials = [chunks]
    for rows, row_weights in ((dram, dram_weights), (ssd, ssd_weights)):
        if len(rows):
            partials.append(fp32.bits(pool(rows, row_weights, mode))[None])
            factors = np.append(factors, np.float32(1))
    number = len(chunks) + len(dram) + len(ssd) if count is None else count
    if mode == "mean" and number:
        factors = np.full(len(factors), fp32.div(np.float32(1), np.float32(number)), np.float32)
    return combine(np.concatenate(partials), factors, mode)
