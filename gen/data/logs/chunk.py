"""Samples of a log."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Chunk:
    """Samples first, first + 1, ... of a log.

    ids: of each table, as the log has them: uint64 (text that is no number: its hash, see the reader). offsets:
    (n + 1,) int64 of tables whose samples have bags of ids, from 0; a table without has one id per sample. values: (n,)
    or (n, k) of other columns, as the label and the dense features. place: where it begins and ends, as shares of the
    log's bytes; (0, 0) where that is not known.
    """

    first: int
    samples: int
    ids: dict[str, NDArray[np.uint64]]
    offsets: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    values: dict[str, NDArray] = field(default_factory=dict)
    place: tuple[float, float] = (0.0, 0.0)

    def edges(self, table: str) -> NDArray[np.int64]:
        """Offsets of a table; one id per sample is a bag of one."""
        found = self.offsets.get(table)
        return np.arange(self.samples + 1) if found is None else found

    def part(self, start: int, stop: int) -> "Chunk":
        """Samples start to stop of these."""
        edges = {name: self.edges(name) for name in self.ids}
        begin, end = self.place
        each = (end - begin) / max(self.samples, 1)
        return Chunk(self.first + start, stop - start,
                     {name: ids[edges[name][start]:edges[name][stop]] for name, ids in self.ids.items()},
                     {name: edge[start:stop + 1] - edge[start] for name, edge in self.offsets.items()},
                     {name: value[start:stop] for name, value in self.values.items()},
                     (begin + start * each, begin + stop * each))
