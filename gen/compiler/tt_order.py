"""Numbering of the rows that become a tensor train: which of them are neighbours, and share their first products."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gen.base.extras import extra
from gen.data.reorder import by_community
from golden.tt.reuse import first_products, leading_keys

ORDERS = FREQUENCY, COMMUNITY = "frequency", "community"
#: EL-Rec's Hot_ratio: rows that stay by frequency. Lookups that are joined at a time; lookups learned from, at most.
HOT, BATCH, MOST = 0.01, 4096, 1 << 19


@dataclass(frozen=True, eq=False)
class Numbering:
    """order: the rows in their order. lookups, products, by_frequency: of the half of the log that it was not learned
    from, and the first products G1[i1] G2[i2] that these compute in this order, and by frequency."""

    order: NDArray[np.int64]
    lookups: int
    products: int
    by_frequency: int


def communities(rows: int, asked: NDArray[np.int64], modes: tuple[int, ...], *, entries: int, lanes: int) -> Numbering:
    """Rows 0, 1, .., of falling frequency, by communities of rows that are looked up together.

    Parameters  asked: lookups of these rows, in the log's order: communities are those of the first half. modes: of the
                tensor train. entries, lanes: of the table of first products that the core has
    Raises      ValueError: scikit-network is not installed
    Source      EL-Rec §IV, Alg. 2
    """
    middle = len(asked) // 2
    with extra("--order community"):
        number = by_community(asked[:middle][-MOST:], rows, batch=BATCH, hot_rows=max(1, int(rows * HOT)))
    held = asked[middle:]
    counts = [first_products(leading_keys(each, modes), entries=entries, lanes=lanes) for each in (number[held], held)]
    return Numbering(np.argsort(number, kind="stable"), len(held), *counts)
