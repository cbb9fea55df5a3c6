"""Rows joined to vectors and updated by gradients, bit for bit as the reducer does it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from golden.fp import fp32
from hw.isa.hotline import JOIN

BEGIN, ADD, MULTIPLY = JOIN


def step(vector: ArrayLike, row: ArrayLike, operation: int) -> NDArray[np.uint32]:
    """The vector after one more row, as bit patterns.

    Raises      ValueError: an unknown operation
    """
    if operation == BEGIN:
        return fp32.bits(fp32.flush(fp32.bits(row)))
    if operation not in (ADD, MULTIPLY):
        raise ValueError(f"operation must be {BEGIN}, {ADD} or {MULTIPLY}, not {operation!r}")
    return fp32.bits((fp32.add if operation == ADD else fp32.mul)(fp32.bits(vector), fp32.bits(row)))


def join(rows: ArrayLike, joins: Sequence[int]) -> NDArray[np.uint32]:
    """The vectors (v, D) of rows (n, D): a vector begins at each row whose join is BEGIN.

    Raises      ValueError: rows that come before any vector begins
    """
    patterns = fp32.bits(rows)
    vectors: list[NDArray[np.uint32]] = []
    for row, operation in zip(patterns, joins, strict=True):
        if operation == BEGIN:
            vectors.append(step(row, row, BEGIN))
        elif not vectors:
            raise ValueError("the first row must begin a vector")
        else:
            vectors[-1] = step(vectors[-1], row, operation)
    return np.array(vectors, np.uint32).reshape(len(vectors), patterns.shape[1])


def update(rows: ArrayLike, rate: int, gradients: ArrayLike) -> NDArray[np.uint32]:
    """rows + rate * gradients, product and sum each rounded. rate: a bit pattern."""
    product = fp32.mul(np.uint32(rate), fp32.bits(gradients))
    return fp32.bits(fp32.add(fp32.bits(rows), product))
