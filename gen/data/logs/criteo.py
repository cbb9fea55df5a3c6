"""Draws click logs like Criteo Kaggle's from a calibration: what is published of its 26 tables, without any record.

A calibration is a JSON file: for each table its rows, and knots (rank, accesses) between which accesses fall as a
power of the rank. Real samples hold rare rows together, so the tables of a group share one draw of how rare their
rows are; without that far fewer samples would consist of common rows alone.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.data.logs.log import Chunk, Piece, Pieces, Progress

#: Tables of Criteo Kaggle whose rare rows come together.
CORRELATED = (("C03", "C04", "C12", "C16", "C21"), ("C07", "C11", "C13"))
BLOCK = 1 << 16     # samples that are drawn at once; a part of what a seed means
PART = 64 * BLOCK   # samples of a piece


@dataclass(frozen=True)
class Table:
    """How a table's accesses fall over its ranks, 0 the row accessed most.

    share: of the accesses that lie before each knot; edges: the knots' ranks - 1/2, and the rows' end; slopes: the
    exponent behind each knot.
    """

    name: str
    rows: int
    edges: NDArray[np.float64]
    share: NDArray[np.float64]
    slopes: NDArray[np.float64]

    @classmethod
    def through(cls, name: str, rows: int, ranks: Sequence[float], accesses: Sequence[float]) -> "Table":
        """The table through these knots; ranks from 1 on, ascending. Behind the last one there are no accesses.

        Raises      ValueError: knots that do not rise in rank from 1 on, rise in accesses, or leave the table
        """
        rank, count = np.asarray(ranks, np.float64), np.asarray(accesses, np.float64)
        if not len(rank) or len(rank) != len(count) or rank[0] != 1 or (np.diff(rank) < 1).any() or rank[-1] > rows:
            raise ValueError(f"{name}: the ranks of knots must rise from 1 to at most {rows}, the table's rows")
        if (np.diff(count) > 0).any() or count[-1] <= 0:
            raise ValueError(f"{name}: the accesses of knots must fall with the rank and be above 0")
        slopes = np.append(np.log(count[:-1] / count[1:]) / np.log(rank[1:] / rank[:-1]), 0.0)
        # A rank's accesses are the integral from half a rank before it to half a rank behind it. Single ranks are
        # what the knot says.
        edges = np.append(rank, rank[-1] + 1) - 0.5
        slopes[np.diff(edges) <= 1] = 0
        mass = count * rank**slopes * _integral(edges[:-1], edges[1:], slopes)
        share = np.concatenate([[0], np.cumsum(mass)]) / mass.sum()
        return cls(name, rows, edges, share, slopes)

    def rank(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """The ranks where the share of accesses before is `uniform`, 0 <= uniform < 1."""
        knot = np.searchsorted(self.share, uniform, side="right") - 1
        part = (uniform - self.share[knot]) / (self.share[knot + 1] - self.share[knot])
        low, high, power = self.edges[knot], self.edges[knot + 1], 1 - self.slopes[knot]
        flat = np.abs(power) < 1e-9
        power = np.where(flat, 1, power)
        inside = (low**power + part * (high**power - low**power)) ** (1 / power)
        at = np.where(flat, low * (high / low) ** part, inside)
        return np.clip(np.floor(at - 0.5), 0, self.rows - 1).astype(np.int64)

    def before(self, rank: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """The share of accesses to rows of smaller ranks than these."""
        at = np.clip(np.asarray(rank) + 0.5, self.edges[0], self.edges[-1])
        knot = np.clip(np.searchsorted(self.edges, at, side="right") - 1, 0, len(self.slopes) - 1)
        whole = _integral(self.edges[knot], self.edges[knot + 1], self.slopes[knot])
        part = _integral(self.edges[knot], at, self.slopes[knot]) / whole
        return self.share[knot] + part * (self.share[knot + 1] - self.share[knot])


def _integral(low: NDArray[np.float64], high: NDArray[np.float64], slope: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of x**-slope."""
    power = 1 - slope
    flat = np.abs(power) < 1e-9
    safe = np.where(flat, 1, power)
    return np.where(flat, np.log(high / low), (high**safe - low**safe) / safe)


class ClickLog:
    """An endless click log of one index a table and sample, the same for the same seed.

    Parameters  calibration: the JSON file; seed: of everything; correlated: groups of tables whose rows are equally
                rare in a sample, () for tables on their own
    Raises      ValueError: a file that is none, a table in a group that does not exist or is in two

    >>> log = ClickLog("criteo_kaggle_calibration.json", seed=7)            # doctest: +SKIP
    >>> for block in log.blocks(1_000_000): use(block[:, 2])                # doctest: +SKIP
    """

    def __init__(self, calibration: str | Path, *, seed: int = 1, correlated: Sequence[Sequence[str]] = CORRELATED):
        self.source = str(calibration)
        self.seed = seed
        try:
            content: Any = json.loads(Path(calibration).read_text(encoding="utf-8"))
            if isinstance(content, list):
                raise ValueError(f"{calibration} is an array of JSON; of JSON, logs are lines, an object in each: "
                                 f"`jq -c '.[]' {calibration}` writes them")
            found = content["tables"].items()
            self.samples = content.get("n_samples")     # of the log that was counted
            self.tables = [Table.through(name, each["rows"], each["knots_rank"], next(
                each[key] for key in each if key.startswith("knots_count"))) for name, each in found]
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{calibration} is no calibration: {error}") from None
        except (KeyError, TypeError, AttributeError, StopIteration):
            raise ValueError(f"{calibration} is no calibration: it lacks tables with rows, knots_rank and "
                             "knots_count") from None
        names = [table.name for table in self.tables]
        joined = [name for group in correlated for name in group]
        for name in joined:
            if name not in names:
                raise ValueError(f"{calibration} has no table {name!r}; it has {', '.join(names)}")
            if joined.count(name) > 1:
                raise ValueError(f"the table {name!r} is in a group twice")
        # The column of uniform numbers that each table takes.
        self._draw = list(range(len(names)))
        for group in correlated:
            for name in group:
                self._draw[names.index(name)] = names.index(group[0])
        # Rows are numbered as if at random: row = (rank * step + first) % rows.
        random = np.random.default_rng([seed, 0])
        self._step = [_coprime(random, table.rows) for table in self.tables]
        self._first = [int(random.integers(table.rows)) for table in self.tables]

    @property
    def rows(self) -> list[int]:
        """Of each table."""
        return [table.rows for table in self.tables]

    def row(self, table: int, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of `table` that have these ranks."""
        return (ranks * self._step[table] + self._first[table]) % self.tables[table].rows

    def ranks(self, samples: int, start: int = 0) -> Iterator[NDArray[np.int64]]:
        """(n, tables) ranks of samples start, start + 1, ..., block by block."""
        for number in range(start // BLOCK, -(-(start + samples) // BLOCK)):
            uniform = np.random.default_rng([self.seed, 1, number]).random((len(self.tables), BLOCK))
            part = slice(max(0, start - number * BLOCK), min(BLOCK, start + samples - number * BLOCK))
            yield np.stack([table.rank(uniform[draw, part]) for table, draw in zip(self.tables, self._draw)], axis=1)

    def blocks(self, samples: int, start: int = 0) -> Iterator[NDArray[np.int64]]:
        """(n, tables) indices of samples start, start + 1, ..., block by block."""
        for ranks in self.ranks(samples, start):
            for table in range(len(self.tables)):
                ranks[:, table] = self.row(table, ranks[:, table])
            yield ranks

    def hottest(self, rows: int) -> NDArray[np.int64]:
        """How many ranks of each table are among the `rows` rows accessed most, of all tables together."""
        edges = [np.unique(np.concatenate([np.arange(min(table.rows, 2048)), np.geomspace(
            1, table.rows, 4096).astype(np.int64), [table.rows]])) for table in self.tables]
        # Each row of a stretch of ranks counts as the stretch's mean.
        mean = np.concatenate([np.diff(table.before(edge)) / np.diff(edge) for table, edge in zip(self.tables, edges)])
        length = np.concatenate([np.diff(edge) for edge in edges])
        owner = np.repeat(np.arange(len(edges)), [len(edge) - 1 for edge in edges])
        order = np.argsort(-mean, kind="stable")
        room = np.minimum(length[order], np.maximum(0, rows - np.cumsum(length[order]) + length[order]))
        return np.bincount(owner[order], weights=room, minlength=len(edges)).astype(np.int64)


def _coprime(random: np.random.Generator, rows: int) -> int:
    """A multiplier that scatters the ranks over the rows."""
    if rows < 3:
        return 1
    while True:
        step = int(random.integers(rows // 3, rows))
        if math.gcd(step, rows) == 1:
            return step


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
