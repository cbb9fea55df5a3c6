"""Profiles of click logs like Criteo Kaggle's, and such logs to be read in a stream, both from a calibration."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gen.criteo import BLOCK, ClickLog, Table
from gen.logs.log import Chunk, Piece, Pieces, Progress
from gen.profile import Heat, Profile, TableProfile

__all__ = ["criteo", "drawn"]

SINGLY, STRETCHES = 1 << 12, 1 << 13
PART = 64 * BLOCK   # samples of a piece


def criteo(calibration: str | Path, *, samples: int | None = None) -> Profile:
    """What the calibration expects of a log: no drawing, no ids.

    Every row with accesses has at least one, as a table's rows are those that its log names; the others follow the
    knots. Whole numbers: the accesses of all ranks before one are rounded.

    Parameters  calibration: as gen.criteo.ClickLog takes it; samples: of the log, else of the calibration's own
    Raises      ValueError: a file that is none, fewer samples than a table's rows
    """
    log = ClickLog(calibration, correlated=())
    if samples is None:
        samples = json.loads(Path(calibration).read_text(encoding="utf-8")).get("n_samples")
        if type(samples) is not int or not 1 <= samples < 1 << 40:
            raise ValueError(f"{calibration} has no n_samples of 1 or more, so say how many samples there are")
    lengths, whole = np.array([1]), np.array([samples])
    tables = {table.name: TableProfile(table.name, table.rows, samples, _expected(table, samples), lengths, whole)
              for table in log.tables}
    return Profile(f"{Path(calibration).name}, expected in {samples:,} samples", samples, tables)


def _expected(table: Table, samples: int) -> Heat:
    accessed = int(table.edges[-1] - 0.5)
    if samples < accessed:
        raise ValueError(f"{table.name} has {accessed:,} rows with accesses, more than the {samples:,} samples")
    # Ranks one by one at first, then in stretches so short that their mean says all.
    edges = np.unique(np.concatenate([np.arange(min(accessed, SINGLY)), np.geomspace(
        min(accessed, SINGLY), accessed, STRETCHES).astype(np.int64), [accessed]]))
    rows = np.diff(edges)
    more = np.maximum(np.diff(table.before(edges)) * samples - rows, 0)
    before = np.concatenate([[0.0], np.cumsum(more)])
    if before[-1]:
        before *= (samples - accessed) / before[-1]
    low, rest = np.divmod(rows + np.diff(np.rint(before).astype(np.int64)), rows)
    return Heat.joined(np.concatenate([low, low + 1]), np.concatenate([rows - rest, rest]))


@dataclass
class Drawn(Piece):
    """`samples` samples from `start` on, drawn block by block."""

    log: ClickLog = field(kw_only=True)
    samples: int = field(kw_only=True)
    start: int = field(default=0, kw_only=True)

    def _chunks(self, samples: int) -> Iterator[Chunk]:
        number = self.first
        for block in self.log.blocks(self.samples, self.start):
            for part in (block[cut:cut + samples] for cut in range(0, len(block), samples)):
                self.done = (number + len(part) - self.first) * self.bytes // self.samples
                yield Chunk(number, len(part), dict(zip(self.tables, part.T.astype(np.uint64))))
                number += len(part)


def drawn(log: ClickLog, samples: int, *, progress: Progress | None = None) -> Pieces:
    """A log of the first `samples` samples that are drawn from a calibration; it is never held whole."""
    source = f"{Path(log.source).name}, {samples:,} samples drawn with seed {log.seed}"
    names = tuple(table.name for table in log.tables)
    cuts = [*range(0, samples, PART), samples]
    return Pieces(source, [Drawn(source, names, bytes=(stop - start) * 8 * len(names), log=log, samples=stop - start,
                                 start=start) for start, stop in zip(cuts, cuts[1:])], progress=progress)
