"""Tables joined into one of their product: a row for each choice of a row of each, the values of all side by side.

A sample that looks each table up once reads one row of the product in the place of one row of each. Row k of tables of
r1, r2, .. rows is row k // (r2 * ..) of the first, whose rows vary slowest, and so on: the word of a row of the product
is the sum of a word of each table, its row times the rows of all tables behind it.        Source: MicroRec (MLSys 2021)
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gen.data.remap import ROWS_AT_MOST
from gen.model.recommender import TableSpec
from gen.model.row_formats import fused_bytes
from gen.model.weights import Rows, Weights

#: In what joined tables must be alike.
ALIKE = ("mode", "results", "row_format")


def unfit(specs: Sequence[TableSpec]) -> str:
    """Why tables cannot be joined, whatever the log; empty where they can."""
    first = specs[0]
    for spec in specs:
        if "*" in spec.name:
            return f"table {spec.name} has a * in its name, which stands between the names of joined tables"
        if len(spec.looked_up_by) > 1:
            return f"table {spec.name} is looked up by {len(spec.looked_up_by)} columns"
        if fused_bytes(spec.row_format, spec.dim):
            return f"each row of {spec.row_format} of table {spec.name} has its own scale"
        if spec.hot_share < 1:
            return f"table {spec.name} has hot_share = {spec.hot_share:g}, and a product lies in DRAM whole"
        for key in ALIKE:
            if getattr(spec, key) != getattr(first, key):
                return (f"{key} = {getattr(spec, key)!r} of table {spec.name} is not the {getattr(first, key)!r} of "
                        f"table {first.name}")
    if (rows := math.prod(spec.rows for spec in specs)) > ROWS_AT_MOST:
        return f"the product of {name_of([spec.name for spec in specs])} has {rows:,} rows, more than {ROWS_AT_MOST:,}"
    return ""


def name_of(tables: Sequence[str]) -> str:
    """Of the product, on the cards; of a single table its own."""
    return "*".join(tables)


def joined(specs: Sequence[TableSpec]) -> TableSpec:
    """Of the product; a single table is its own."""
    if len(specs) == 1:
        return specs[0]
    return replace(specs[0], name=name_of([spec.name for spec in specs]), rows=math.prod(spec.rows for spec in specs),
                   dim=sum(spec.dim for spec in specs), ids="index")


def strides(specs: Sequence[TableSpec]) -> tuple[int, ...]:
    """By what a row of each table counts in the product: the rows of all tables behind it."""
    return tuple(math.prod(spec.rows for spec in specs[at + 1:]) for at in range(len(specs)))


def rows_of_product(specs: Sequence[TableSpec], weights: Weights) -> Rows:
    """(rows, dim) of the product, made of the tables' parameters."""
    def take(numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.concatenate([weights.rows(spec, numbers // stride % spec.rows)
                               for spec, stride in zip(specs, strides(specs), strict=True)], axis=1)

    whole = joined(specs)
    return Rows(whole.rows, whole.dim, take)
