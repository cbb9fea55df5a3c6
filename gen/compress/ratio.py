"""The tensor train's compression ratio over a table's rows, its width and the rank.

CR = words of the table / words of its cores. Three cores with modes as equal as they can be, as both papers have them;
gen.compress.search has the shapes that a given unit holds and is quickest with.       Source: SCRec §III.B, Fig. 6
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gen.data.shapes import column_modes, row_modes


def ratios(rows: Sequence[int], dim: int, ranks: Sequence[int] = (4,)) -> NDArray[np.float64]:
    """(len(rows), len(ranks)): below 1 the tensor train is larger than the table. NaN where there are no rows.

    >>> ratios([9, 10**6], 64, [4, 16]).round(1).tolist()
    [[2.8, 0.2], [6666.7, 555.6]]
    """
    columns = column_modes(dim)
    ratio = np.full((len(rows), len(ranks)), np.nan)
    for number, count in enumerate(rows):
        if count > 0:
            modes = row_modes(int(count))
            for at, rank in enumerate(ranks):
                bounds = (1, rank, rank, 1)
                ratio[number, at] = count * dim / sum(bounds[k] * modes[k] * columns[k] * bounds[k + 1]
                                                      for k in range(3))
    return ratio
