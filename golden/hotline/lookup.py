"""What the lookup engines ask for, and what they make of the answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

NONE = 0xFFFFFFFF   # an index word that stands for no index
HOT_BIT = 31        # marks the number of a hot row; also set in NONE


@dataclass(frozen=True)
class Register:
    """What a position's address register says of its table."""

    first: int      # number of its row 0 among the rows of all tables
    rows: int
    pinned: bool = False


@dataclass(frozen=True)
class Fault:
    """An index that is not below its table's rows."""

    sample: int
    position: int
    value: int


def accesses(samples: Any, registers: Mapping[int, Register], *, indices: int, words: int,
             ) -> tuple[np.ndarray, Fault | None]:
    """Rows that are looked up, beat by beat.

    Parameters  samples: (samples, beats * words) uint32; registers: by position, those that were written; indices:
                words of a sample that are indices; words: of a beat
    Returns     (beats, words) int64, -1 where nothing is looked up, up to the beat with the first fault; the fault
    """
    samples = np.asarray(samples, np.uint32)
    count, width = samples.shape
    ids = np.full((count, width), -1, np.int64)
    bad = np.zeros((count, width), bool)
    for position in range(indices):
        column = samples[:, position].astype(np.int64)
        there = column != NONE
        register = registers.get(position)
        if register is None:
            bad[:, position] = there
        elif not register.pinned:
            bad[:, position] = there & (column >= register.rows)
            ids[:, position] = np.where(there, register.first + column, -1)
    beats = ids.reshape(-1, words)
    if not bad.any():
        return beats, None
    sample, position = divmod(int(np.argmax(bad)), width)
    return beats[:(sample * width + position) // words], Fault(sample, position, int(samples[sample, position]))


def translate(beats: Any, rows: Any, hit: Any, number: Any) -> tuple[np.ndarray, np.ndarray]:
    """Beats with hot indices replaced, and whether any index of a beat is cold.

    Parameters  beats: (beats, words) uint32; rows: as `accesses` returns them; hit, number: the logger's answers, of
                the same shape; what they say where nothing was looked up does not matter
    """
    accessed = np.asarray(rows) >= 0
    hot = accessed & np.asarray(hit, bool)
    words = np.where(hot, np.uint32(1 << HOT_BIT) | np.asarray(number).astype(np.uint32), np.asarray(beats, np.uint32))
    return words, (accessed & ~hot).any(axis=1)
