"""Arithmetic of a placement that gives the same bits on every processor.

NumPy's exponentials and BLAS' inner products differ in their last bits from one instruction set to the next, and a
placement makes tenths of a nanosecond of them. Sums and products of elements, `sum` and sparse products do not differ.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]


def falling(x: Reals) -> Reals:
    """exp(-x) for x >= 0, as (1 - x / 1024) ** 1024: lower by x ** 2 / 2048 of it, 0 from 1024 on."""
    y = np.maximum(1 - x / 1024, 0)
    for _ in range(10):
        y = y * y
    return y


def solved(diagonal: Reals, joined: Any, wanted: Reals, start: Reals, *, tolerance: float, steps: int) -> Reals:
    """Solves (diag(diagonal) - joined) x = wanted by conjugate gradients, preconditioned with the diagonal.

    Parameters  diagonal: (n,), above the sums of the rows of joined; joined: (n, n) sparse, symmetric, not negative;
                start: (n,) the first guess; tolerance: of the residual's norm, relative to that of wanted; steps: at
                most
    Source      scipy.sparse.linalg.cg, whose inner products are BLAS'
    """
    def dot(a: Reals, b: Reals) -> float:
        return float((a * b).sum())

    x, left = start.copy(), wanted - (diagonal * start - joined @ start)
    enough, before, way = tolerance * math.sqrt(dot(wanted, wanted)), 0.0, np.zeros(len(wanted))
    for step in range(steps):
        if math.sqrt(dot(left, left)) <= enough:
            break
        scaled = left / diagonal
        now = dot(left, scaled)
        way = scaled + now / before * way if step else scaled
        there = diagonal * way - joined @ way
        share = now / dot(way, there)
        x = x + share * way
        left = left - share * there
        before = now
    return x
