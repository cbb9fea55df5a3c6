"""What the systolic array computes, and when each result leaves it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from golden.fp import fp32


def tiles(x: ArrayLike, y: ArrayLike, width: int, *, grouped: bool = False) -> NDArray[np.float32]:
    """x (..., M, K) times y (..., K, N): K ascending, `width` terms per beat, each result rounded once."""
    x, y = np.asarray(x), np.asarray(y)
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(f"x has {x.shape[-1]} terms and y has {y.shape[-2]}; they must be equal")
    return fp32.dot(x[..., :, None, :], np.swapaxes(y, -1, -2)[..., None, :, :], width, grouped=grouped)


def pe_latency(width: int, *, grouped: bool = False) -> int:
    """Cycles from a cell's last beat to its sum: operands 1, product and exponents 3 (a stage more for
    every two levels of comparison), alignment 1, an adder a level, accumulation 1, rounding 6. Grouped: bringing a
    group to one exponent 4, operands 1, its sum 5, alignment 1, accumulation 1, rounding 6.
    """
    if grouped:
        return 18
    levels = width.bit_length() - 1
    return 12 + levels + (levels + 1) // 2


def schedule(beats: Sequence[int], live_rows: Sequence[int], *, columns: int, width: int,
             aligned: bool, grouped: bool = False, reach: int = 1) -> list[tuple[int, int]]:
    """For tiles that follow each other without a gap: the cycles in which the first and the last word of each
    leave the array, counted from the first beat of the first tile. reach: columns that operands enter at a time.
    """
    out, start = [], 0
    skew = (columns - 1) // reach
    for index, (count, live) in enumerate(zip(beats, live_rows, strict=True)):
        if index and count < max(live_rows[index - 1], 2 * live_rows[index - 1] - live):
            raise ValueError(f"tile {index} has {count} beats and {live} live rows: too few for the "
                             f"{live_rows[index - 1]} rows before it to drain")
        start += count
        first = start + pe_latency(width, grouped=grouped) + live + (skew if aligned else 0)
        out.append((first, first + live - 1 + (0 if aligned else skew)))
    return out
