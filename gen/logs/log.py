"""A click log that is read in a stream: chunks of samples, each with the ids of every table."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Chunk", "Log", "Problems"]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Samples first, first + 1, ... of a log.

    ids: of each table, as the log has them: uint64 (text that is no number: its hash, see the reader). offsets:
    (n + 1,) int64 of tables whose samples have bags of ids, from 0; a table without has one id a sample. values: (n,)
    or (n, k) of other columns, as the label and the dense features.
    """

    first: int
    samples: int
    ids: dict[str, NDArray[np.uint64]]
    offsets: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    values: dict[str, NDArray] = field(default_factory=dict)


@dataclass
class Problems:
    """Lines that were left out: how many, of each kind, and where the first of it was."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, where: str, count: int = 1) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + count
        self.first.setdefault(kind, where)


class Log(Protocol):
    """source: what people call it. tables: their names. parts: pieces that can be read on their own, in any order, as
    files or stretches of a file; part k of n always has the same samples."""

    source: str
    tables: tuple[str, ...]
    problems: Problems

    def chunks(self, samples: int = 65536) -> Iterator[Chunk]:
        """All samples in order, about so many at once."""
        ...

    def parts(self) -> "tuple[Log, ...]":
        """Itself, or its pieces in order."""
        ...
