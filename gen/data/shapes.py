"""Chooses a table's modes: row factors I and column factors J of its tensor-train cores."""

from collections.abc import Iterator
from math import prod
from numbers import Real


def row_modes(rows: int, cores: int = 3) -> tuple[int, ...]:
    """Near-equal factors, descending, whose product is the smallest of that kind that is >= rows.

    The unit splits an index by any integers, so the factors need not be powers of two: 1,682 rows take
    (12, 12, 12) with 46 rows of padding where powers of two would pad 366.
    """
    positive("rows", rows)
    positive("cores", cores)
    side = max(1, round(rows ** (1 / cores)))
    while side ** cores < rows:
        side += 1
    while side > 1 and (side - 1) ** cores >= rows:
        side -= 1
    modes = [side] * cores
    for k in reversed(range(cores)):
        # side - 1 everywhere is too small, so at most cores - 1 factors come down, each by one
        if modes[k] > 1 and prod(modes) // modes[k] * (modes[k] - 1) >= rows:
            modes[k] -= 1
    return tuple(modes)


def column_modes(columns: int, cores: int = 3) -> tuple[int, ...]:
    """The most equal factors of `columns` (least sum), ascending: 64 is (4, 4, 4), 128 is (4, 4, 8)."""
    positive("columns", columns)
    positive("cores", cores)
    return min((modes for modes in factorizations(columns, cores) if list(modes) == sorted(modes)),
               key=lambda modes: (sum(modes), modes))


def macs(modes: tuple[int, ...], rank: int) -> int:
    """Multiply-accumulates of one row with equal inner ranks, products taken from the left.

    Three cores: J1 J2 R^2 + D R.
    """
    ranks = [rank] * (len(modes) - 1) + [1]
    return sum(prod(modes[: k + 1]) * ranks[k - 1] * ranks[k] for k in range(1, len(modes)))


def factorizations(number: int, count: int) -> Iterator[tuple[int, ...]]:
    """Every ordered way to write `number` as a product of `count` factors, ones included."""
    if count == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in factorizations(number // first, count - 1):
                yield (first, *rest)


def positive(name: str, value: int) -> None:
    """Raises ValueError: it is no whole number of 1 or more"""
    if not isinstance(value, Real) or int(value) != value or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of 1 or more")
