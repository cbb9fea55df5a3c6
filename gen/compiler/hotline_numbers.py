"""The numbers that the rows of all tables have for the Hotline core, which decide about their banks in the logger.

A bank takes an access per cycle, so the bank that is asked most decides how fast a log is looked up. It is known by the
rows that are asked for most, few of every table: what a table's number begins with decides in which banks they lie.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from golden.hotline.randomizer import permute

GAP = 64        # numbers that stay free before a table, at most


def numbered(rows: Sequence[int], asked: Sequence[NDArray[np.int64]] | None, *, banks: int, domain_bits: int,
             most: int) -> NDArray[np.int64]:
    """The number of each table's first row, and how many numbers there are (the last).

    rows: of each table, 0 of one that is not looked up. asked: rows of each table that a part of a log asks for, one
    each time; None: one table follows the other. With them the tables whose hottest rows are asked for most come
    first, each with the gap that spreads what is asked for most evenly over the banks so far. most: numbers at most,
    beyond which there are no gaps.
    """
    first = np.zeros(len(rows) + 1, np.int64)
    first[1:] = np.cumsum(rows)
    if asked is None:
        return first
    counted = [np.unique(each, return_counts=True) for each in asked]
    spare, at, load = max(0, most - int(first[-1])), 0, np.zeros(banks)
    for table in sorted(range(len(rows)), key=lambda number: -counted[number][1].max(initial=0)):
        index, counts = counted[table]
        gaps = np.arange(min(GAP, spare + 1))
        bank = permute(index + at + gaps[:, None], domain_bits) & banks - 1
        loads = np.zeros((len(gaps), banks))
        np.add.at(loads, (gaps[:, None], bank), counts)
        gap = int(np.square(loads + load).sum(axis=1).argmin())
        load, spare = load + loads[gap], spare - gap
        first[table] = at + gap
        at += gap + rows[table]
    first[-1] = at
    return first
