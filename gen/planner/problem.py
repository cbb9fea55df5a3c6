"""What the planner's program asks, as plain numbers: seconds, bytes, rows.    Source: SCRec §III.C, table I"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Idle:
    """Seconds of each batch in which a card's memories do nothing. page_s: the drive, where the batch reads it, until
    its first page has come. run_s: all three, from the last vector of a batch to the first row of the next: the host
    takes the result block and starts the core again. The link moves vectors and indices meanwhile."""

    page_s: float = 0.0
    run_s: float = 0.0

    @property
    def seconds(self) -> NDArray[np.float64]:
        """(5,) of DRAM, TT, SSD and both directions of the link, of a card that uses all of them."""
        return np.array([self.run_s, self.run_s, self.run_s + self.page_s, 0.0, 0.0])

    def added(self, work: ArrayLike) -> NDArray[np.float64]:
        """(..., 5) seconds of a batch. work: (..., 5) those in which memories and link work; what is not used does not
        idle either."""
        work = np.asarray(work, np.float64)
        return work + self.seconds * (work > 0)


@dataclass(frozen=True, eq=False)
class Item:
    """One table. Steps i = 0 .. S cut its accesses into shares, hottest rows first: share[i] of the accesses fall on
    the `rows[i]` hottest rows (the inverse CDF), rows[0] = 0, and rows[S] are those that are accessed at all.
    shares: (S + 1,) those, from 0 to 1, rising; None: equal ones (i / S).

    rows: (S + 1,) int64, not falling. total_rows: of the table, those never accessed included; they lie on the SSD.
    row_bytes: of one dense row. lookups: of a batch (pooling factor times batch). dram_s, tt_s, ssd_s: seconds a row.
    tt_rows, tt_bytes: knots of what the tensor train of n rows takes on chip, interpolated between (tt_cm of eq. 26);
    tt_rows[0] = 0 with 0 bytes, tt_rows[-1] the most rows that fit at all (no tensor train where there is one knot).
    hot_share: of the accesses, the most that may go to DRAM and TT together (eq. 22).

    tt_share: of the accesses, the most that may go to the tensor train alone, as its rows are approximations.

    What the paper's program leaves out, nothing unless said. ssd_reads: (S + 1,) of a batch, reads of the drive where
    the accesses from step i on lie there, not rising; None: one an access (eq. 30), `lookups * (1 - share[i])`.
    ssd_landing: (S + 1,) seconds of DRAM then, in which the pages land and out of which the core takes the rows,
    not rising either. bags_s, bags_bytes: of DRAM whatever the split, as the table's indices and pooled vectors
    lie there, and its rows fill whole blocks. ssd_bytes: (S + 1,) that the table takes of the SSD where the rows from
    step i on lie there, not rising; None: `row_bytes` a row. in_s, out_s: of the link to the card and to the host
    whatever the split, as the table's indices and pooled vectors cross it; page_in_s: of the link for a read of the
    drive. fetch_curve: (cuts, rows of a batch that the core fetches from DRAM where the rows up to each cut lie there),
    linear between two cuts, not falling; None: one an access. core_s: seconds that the core takes for an access to a
    row of DRAM, fetched or not, while DRAM has to do with rows and bags. drive_curve: (cuts, seconds of the drive for a
    batch where the rows from each cut on lie there), linear between two cuts, not rising; None: ssd_s a read.
    """

    name: str
    rows: NDArray[np.int64]
    total_rows: int
    row_bytes: int
    lookups: float
    dram_s: float
    tt_s: float
    ssd_s: float
    tt_rows: NDArray[np.int64]
    tt_bytes: NDArray[np.float64]
    hot_share: float = 1.0
    ssd_reads: NDArray[np.float64] | None = None
    ssd_landing: NDArray[np.float64] | None = None
    bags_s: float = 0.0
    bags_bytes: int = 0
    tt_share: float = 1.0
    ssd_bytes: NDArray[np.int64] | None = None
    in_s: float = 0.0
    out_s: float = 0.0
    page_in_s: float = 0.0
    shares: NDArray[np.float64] | None = None
    fetch_curve: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None
    core_s: float = 0.0
    drive_curve: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None

    @property
    def steps(self) -> int:
        return len(self.rows) - 1

    @property
    def share(self) -> NDArray[np.float64]:
        """(S + 1,) of the accesses, by the step up to which they are."""
        return np.arange(self.steps + 1) / self.steps if self.shares is None else self.shares

    @property
    def hot_s(self) -> NDArray[np.float64]:
        """(S + 1,) seconds of DRAM a batch for the accesses up to that step, which lie there, beside `bags_s`."""
        return self.hot_s_of(self.fetches, self.lookups * self.share)

    @property
    def fetches(self) -> NDArray[np.float64]:
        """(S + 1,) rows of a batch that are fetched from DRAM, by the step up to which accesses lie there."""
        return self.lookups * self.share if self.fetch_curve is None else np.interp(self.rows, *self.fetch_curve)

    def hot_s_of(self, fetches: ArrayLike, accesses: ArrayLike) -> NDArray[np.float64]:
        """Seconds of DRAM for so many rows that are fetched, or what the core takes longer for so many accesses."""
        return np.maximum(np.multiply(fetches, self.dram_s), np.multiply(accesses, self.core_s) - self.bags_s)

    @property
    def reads(self) -> NDArray[np.float64]:
        """(S + 1,) reads of the drive a batch, by the step from which on accesses lie there."""
        if self.ssd_reads is not None:
            return self.ssd_reads
        return self.lookups * (1 - self.share)

    @property
    def drive_s(self) -> NDArray[np.float64]:
        """(S + 1,) seconds of the drive a batch, by the step from which on accesses lie there."""
        return self.drive_s_at(self.rows, self.reads)

    def drive_s_at(self, rows: ArrayLike, reads: ArrayLike) -> NDArray[np.float64]:
        """Seconds of the drive a batch for so many reads, where those from so many rows on lie there."""
        if self.drive_curve is None:
            return np.multiply(reads, self.ssd_s)
        return np.interp(np.asarray(rows, np.int64), *self.drive_curve)

    @property
    def landing(self) -> NDArray[np.float64]:
        """(S + 1,) seconds of DRAM a batch for the accesses from that step on, which lie on the SSD."""
        return np.zeros(self.steps + 1) if self.ssd_landing is None else self.ssd_landing

    @property
    def inward(self) -> NDArray[np.float64]:
        """(S + 1,) seconds of the link to the card a batch, by the step from which on accesses lie on the SSD."""
        return self.in_s + self.reads * self.page_in_s

    @property
    def cold_bytes(self) -> NDArray[np.int64]:
        """(S + 1,) bytes of the SSD, by the step from which on rows lie there."""
        return (self.total_rows - self.rows) * self.row_bytes if self.ssd_bytes is None else self.ssd_bytes


@dataclass(frozen=True, eq=False)
class Sharding:
    """A table on `count` different cards. by: what its shards are parts of: "samples" (each card holds the table and
    serves its part of every batch), "columns" (each holds a slice of every row), or "whole" on one card. item: one
    shard; the others are alike and split alike. formats: of its rows and of its tensor train's cores; (): not said."""

    by: str
    count: int
    item: Item
    formats: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Problem:
    """cards: in all (M); 1 to M - 1 of them run EMB cores where there is an MLP (eq. 4), else all may. *_bytes: of
    one card. bottom_s, top_s: a batch's bottom and top network on one MLP card; both 0: no MLP, no MLP card.
    idle: of a card. reads: whether placements may read the drive.
    features_s, predictions_s: of the link of one MLP card, dense features and pooled vectors to it and its results to
    the host. shardings: of each item, how it may lie on several cards, and whole in other formats; (): every table lies
    whole on a card. formats: of the items, as of shardings."""

    items: tuple[Item, ...]
    cards: int
    dram_bytes: int
    tt_bytes: int
    ssd_bytes: int
    bottom_s: float = 0.0
    top_s: float = 0.0
    features_s: float = 0.0
    predictions_s: float = 0.0
    shardings: tuple[tuple[Sharding, ...], ...] = ()
    formats: tuple[tuple[str, ...], ...] = ()
    idle: Idle = Idle()
    reads: bool = True

    def ways(self, table: int) -> tuple[Sharding, ...]:
        """How an item may lie on cards: whole, then its shardings."""
        whole = Sharding("whole", 1, self.items[table], self.formats[table] if self.formats else ())
        return whole, *(self.shardings[table] if self.shardings else ())

    @property
    def whole(self) -> "Problem":
        """The same with every table whole on a card."""
        return replace(self, shardings=tuple(tuple(way for way in ways if way.count == 1) for ways in self.shardings))

    def mapped(self, change: Callable[[Item], Item]) -> "Problem":
        """The same with other items, shards among them."""
        return replace(self, items=tuple(map(change, self.items)), shardings=tuple(
            tuple(replace(each, item=change(each.item)) for each in ways) for ways in self.shardings))

    @property
    def without_reads(self) -> "Problem":
        """The same without reads of the drive."""
        return replace(self, reads=False, idle=replace(self.idle, page_s=0.0))

    @property
    def before_s(self) -> float:
        """Of a batch on one MLP card, what goes on beside the embedding: bottom network and link."""
        return max(self.bottom_s, self.features_s)

    @property
    def after_s(self) -> float:
        """Of a batch on one MLP card, what follows the embedding."""
        return max(self.top_s, self.predictions_s)


@dataclass(frozen=True)
class TableChoice:
    """Of one table: its cards (0 is the first EMB card), and the steps: share[i_dram] of its accesses go to
    DRAM, those from there to share[i_hot] to the tensor train, the others to the SSD, on each card alike. way: number
    of the sharding (Problem.ways), 0: whole on one card."""

    cards: tuple[int, ...]
    i_dram: int
    i_hot: int
    way: int = 0


@dataclass(frozen=True)
class CardChoice:
    """Of one EMB card, of a batch: seconds of each memory and of the link's directions, and bytes in each memory."""

    dram_s: float
    tt_s: float
    ssd_s: float
    in_s: float
    out_s: float
    dram_bytes: int
    tt_bytes: float
    ssd_bytes: int

    @property
    def seconds(self) -> float:
        """Memories and link work at the same time."""
        return max(self.dram_s, self.tt_s, self.ssd_s, self.in_s, self.out_s)


@dataclass(frozen=True, eq=False)
class Placement:
    """A solution. seconds: of a batch, C of eq. 3. bound: no solution is faster; gap = seconds / bound - 1.
    tables: one an item, in order. emb: one an EMB card. mlp_cards: how many run the MLP core. work: seconds of it that
    were done (gen.planner.work); late: real time ended it, so that another machine may find another one. at_steps: as
    bound, of cuts at the program's steps alone; 0: not said."""

    seconds: float
    bound: float
    tables: tuple[TableChoice, ...]
    emb: tuple[CardChoice, ...]
    mlp_cards: int
    work: float = 0.0
    late: bool = False
    at_steps: float = 0.0

    @property
    def gap(self) -> float:
        return self.seconds / self.bound - 1 if self.bound else np.inf if self.seconds else 0.0
