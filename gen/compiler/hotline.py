"""Tables and a click log as the Hotline core takes them: row numbers, samples, programs, the logger's image.

A sample has one index for each position; several positions may name the same table (time series, bags), and NONE
stands for no index. Rows of all tables that are not pinned are numbered table by table (gen.compiler.hotline_numbers);
that is also the order of the rows' buffer, each row a power of two of beats.    Layouts are those of hw.isa
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.compiler.emb import encode
from gen.compiler.hotline_numbers import numbered
from gen.data.logs import Trace
from golden.hotline import randomizer, reducer
from golden.hotline.bank import ID_BITS, VALID, WAYS
from golden.hotline.train import HOT_BIT, NONE
from hw.isa import HOTLINE
from hw.isa.hotline import DISPATCHED, FINISHED, JOIN, KIND

__all__ = ["DISPATCHED", "FINISHED", "GATHERED", "HOT_BIT", "JOINS", "NONE", "POPULAR", "HotRows", "Layout", "Position",
           "Table", "Train", "indices_of"]

POPULAR, GATHERED = KIND     # kinds of mini-batches
JOINS = {"begin": JOIN.BEGIN, "add": JOIN.ADD, "multiply": JOIN.MULTIPLY}
ROWS_MOST = (1 << 31) - 1
HEAD = 4096     # samples that say which rows are asked for most

Words = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Table:
    """An embedding table: values (rows, dim). pinned: all its rows stay at the GPU, and are not looked up."""

    name: str
    values: ArrayLike
    pinned: bool = False

    def __post_init__(self) -> None:
        values = np.ascontiguousarray(self.values, np.float32)
        if values.ndim != 2 or not values.size or len(values) > ROWS_MOST:
            raise ValueError(f"table {self.name}: values must have the shape (rows, dim), not {values.shape}")
        object.__setattr__(self, "values", values)

    @property
    def array(self) -> NDArray[np.float32]:
        return np.asarray(self.values)


@dataclass(frozen=True)
class Position:
    """An index of a sample: a row of `table`. join: "begin": it begins a vector; "add", "multiply": it joins the
    vector before."""

    table: str
    join: str = "begin"


@dataclass(frozen=True, eq=False)
class HotRows:
    """Which rows are hot: number at the GPU, table (its number among the tables) and index, by ascending number."""

    numbers: NDArray[np.int64]
    tables: NDArray[np.int64]
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class Train:
    """How a log is dispatched: `batch` samples per mini-batch, `slots` of them in the mailbox, gradients times `rate`;
    pooled: gathered ones bring vectors instead of rows; half: in binary16."""

    batch: int
    slots: int
    rate: float
    pooled: bool = False
    half: bool = False


class Layout:
    """Where tables and samples lie for a core of `config`.

    tables: of one dim, names differ. positions: of a sample's indices, in order. payload: words carried along behind
    them. head: indices (n, positions) of samples, as of the log's beginning, by which rows are numbered so that the
    logger's banks are asked alike [in the order of the tables].
    Raises      ValueError: what does not fit the core
    """

    def __init__(self, config: Any, tables: Sequence[Table], positions: Sequence[Position], payload: int = 0,
                 head: ArrayLike | None = None):
        self.config, self.tables, self.positions, self.payload = config, list(tables), list(positions), payload
        names = [table.name for table in self.tables]
        if len(set(names)) != len(names) or not names:
            raise ValueError(f"tables must have names that differ, and be some, not {', '.join(names) or 'none'}")
        self.dim = self.tables[0].array.shape[1]
        for table in self.tables:
            if table.array.shape[1] != self.dim:
                raise ValueError(f"table {table.name} has rows of {table.array.shape[1]} words, table {names[0]} of "
                                 f"{self.dim}: all tables must have the same")
        if not 1 <= len(self.positions) <= config.positions:
            raise ValueError(f"a sample must have 1 to {config.positions} indices, not {len(self.positions)}")
        self.table_of = []
        for number, position in enumerate(self.positions):
            if position.table not in names:
                raise ValueError(f"position {number}: there is no table {position.table!r}; there are "
                                 f"{', '.join(names)}")
            if position.join not in JOINS:
                raise ValueError(f"position {number}: join must be {', '.join(JOINS)}, not {position.join!r}")
            self.table_of.append(names.index(position.table))
            if position.join != "begin" and (not number or self.tables[self.table_of[-1]].pinned):
                raise ValueError(f"position {number}: join must be begin, as "
                                 + ("nothing is before it" if not number else "its table is pinned"))
        beats = -(-self.dim // config.words)
        self.row_beats_log2 = (beats - 1).bit_length()
        self.row_words = config.words << self.row_beats_log2
        if self.row_beats_log2 > HOTLINE.field("row_beats_log2").highest:
            raise ValueError(f"rows of {self.dim} words are too long")
        self._sizes = np.array([0 if table.pinned else len(table.array) for table in self.tables])
        total, rows_most = int(self._sizes.sum()), (1 << 32) - 1 >> self.row_beats_log2
        if total > 1 << config.domain_bits:
            raise ValueError(f"the tables have {total} rows, the core tells {1 << config.domain_bits} apart")
        if total > rows_most:
            raise ValueError(f"the tables have {total} rows, too many for a buffer of 2**32 beats")
        self.first = numbered(self._sizes.tolist(), None if head is None else self._asked(head), banks=config.banks,
                              domain_bits=config.domain_bits, most=min(1 << config.domain_bits, rows_most))
        self.sample_beats = -(-(len(self.positions) + payload) // config.words)
        if self.sample_beats > config.sample_beats_max:
            raise ValueError(f"a sample of {len(self.positions)} indices and {payload} words must fit "
                             f"{config.sample_beats_max} beats of {config.words} words")
        self.slots = min(config.row_slots, config.embedding_beats >> self.row_beats_log2)
        if self.slots < len(self.positions):
            raise ValueError(f"the embedding buffer holds {self.slots} rows of {self.dim} words, a sample has "
                             f"{len(self.positions)}")

    def _asked(self, head: ArrayLike) -> list[NDArray[np.int64]]:
        """Rows of each table that samples ask for, of no more samples than say enough."""
        index = self._checked(head)[:HEAD].astype(np.int64)
        table_of = np.array(self.table_of)
        rows = [index[:, table_of == number].ravel() for number in range(len(self.tables))]
        return [each[each >= 0] if size else each[:0] for each, size in zip(rows, self._sizes, strict=True)]

    # What lies in the buffers.

    def rows(self, values: Sequence[NDArray[np.float32]] | None = None) -> Words:
        """The rows' buffer (beats, words): every table that is not pinned, rows padded with zeros. values: of the
        tables, where they are no longer those that were given."""
        image = np.zeros((int(self.first[-1]), self.row_words), np.float32)
        arrays = [table.array for table in self.tables] if values is None else values
        for table, array, first in zip(self.tables, arrays, self.first, strict=False):
            if not table.pinned:
                image[first:first + len(array), :self.dim] = array
        return image.view(np.uint32).reshape(-1, self.config.words)

    def values(self, rows: Words) -> list[NDArray[np.float32]]:
        """The tables out of the rows' buffer; a pinned one as it was given."""
        image = np.ascontiguousarray(rows).view(np.float32).reshape(-1, self.row_words)
        return [table.array.copy() if table.pinned else image[first:first + len(table.array), :self.dim].copy()
                for table, first in zip(self.tables, self.first, strict=False)]

    def samples(self, indices: ArrayLike, payload: ArrayLike | None = None) -> Words:
        """Samples (n, words): indices (n, positions), less than 0: none; payload (n, payload), 32-bit words.

        Raises      ValueError: shapes, or an index that its table does not have
        """
        index = self._checked(indices)
        words = np.zeros((len(index), self.sample_beats * self.config.words), np.uint32)
        words[:, :index.shape[1]] = np.where(index < 0, NONE, index).astype(np.uint32)
        if payload is not None or self.payload:
            carried = np.asarray(payload)
            if carried.shape != (len(index), self.payload) or carried.dtype.itemsize != 4:
                raise ValueError(f"payload must be 32-bit words of the shape ({len(index)}, {self.payload}), not "
                                 f"{carried.dtype} of {carried.shape}")
            words[:, index.shape[1]:index.shape[1] + self.payload] = np.ascontiguousarray(carried).view(np.uint32)
        return words

    def _checked(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Raises ValueError: no indices of samples of these tables"""
        index = np.asarray(indices)
        if index.ndim != 2 or index.shape[1] != len(self.positions) or not len(index):
            raise ValueError(f"indices must have the shape (samples, {len(self.positions)}), not {index.shape}")
        if index.dtype.kind not in "iu":
            raise ValueError(f"indices must be whole numbers, not {index.dtype}")
        most = np.array([len(self.tables[table].array) for table in self.table_of])
        if (index >= most).any():
            sample, position = np.argwhere(index >= most)[0]
            raise ValueError(f"sample {sample}, position {position}: table {self.positions[position].table} has no row "
                             f"{index[sample, position]}, but {most[position]} rows")
        return index

    # What a mini-batch has of a log.

    def cold(self, indices: ArrayLike, hot: HotRows) -> NDArray[np.bool_]:
        """Which indices (samples, positions) are of cold rows."""
        index = np.asarray(indices)
        cold = np.zeros(index.shape, bool)
        for position, number in enumerate(self.table_of):
            if not self.tables[number].pinned:
                column = index[:, position]
                cold[:, position] = (column >= 0) & ~np.isin(column, hot.indices[hot.tables == number])
        return cold

    def cold_rows(self, indices: ArrayLike, cold: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The cold rows of a mini-batch of these samples by ordinals, numbered among the rows of all tables."""
        rows = (np.asarray(indices, np.int64) + self.first[self.table_of])[cold]
        _, first = np.unique(rows, return_index=True)
        return rows[np.sort(first)]

    def update(self, rows: Words, numbers: NDArray[np.int64], rate: float, gradients: NDArray[np.float32]) -> None:
        """Applies gradients (rows, dim) to rows of these numbers in the rows' buffer (beats, words), as the core
        does."""
        image = rows.reshape(-1, self.row_words)
        padded = np.zeros((len(numbers), self.row_words), np.float32)
        padded[:, :self.dim] = gradients
        image[numbers] = reducer.update(image[numbers], int(np.float32(rate).view(np.uint32)), padded.view(np.uint32))

    @property
    def image_beats(self) -> int:
        """Beats of the logger's image."""
        return int(self.config.banks * self.config.sets * WAYS // self.config.words)

    @property
    def hot_numbers(self) -> int:
        """Rows that the GPU keeps room for."""
        return int(self.config.banks * self.config.sets * WAYS)

    def hot(self, image: Words) -> HotRows:
        """What a saved image of the logger holds; an entry that is no row of a table, from another log, is left out."""
        config = self.config
        ways = np.ascontiguousarray(image).reshape(config.sets, config.banks, WAYS)
        sets, banks, way = np.nonzero(ways & VALID)
        ids = (ways[sets, banks, way] & (1 << ID_BITS) - 1).astype(np.int64)
        place = banks | sets << config.bank_bits
        rows = randomizer.invert(place | ids << config.bank_bits + config.set_bits, config.domain_bits).astype(np.int64)
        numbers = place | way << config.bank_bits + config.set_bits
        inside = rows < self.first[-1]
        order = np.argsort(numbers[inside], kind="stable")
        numbers, rows = numbers[inside][order], rows[inside][order]
        looked_up = np.flatnonzero(self._sizes)
        looked_up = looked_up[np.argsort(self.first[looked_up], kind="stable")]
        tables = looked_up[np.searchsorted(self.first[looked_up], rows, side="right") - 1]
        indices = rows - self.first[tables]
        known = (indices >= 0) & (indices < self._sizes[tables])
        return HotRows(numbers[known], tables[known], indices[known])

    # Instructions.

    def registers(self) -> Words:
        """Writes the address registers of all positions."""
        writes = []
        for number, (position, table) in enumerate(zip(self.positions, self.table_of, strict=True)):
            first, pinned = int(self.first[table]), self.tables[table].pinned
            writes.append(encode("S_WR", {
                "position": number, "pinned": int(pinned), "join": JOINS[position.join],
                "first_low": 0 if pinned else first & 0xFFFFFFFF, "first_high": 0 if pinned else first >> 32,
                "table_rows": len(self.tables[table].array), "base": 0 if pinned else first << self.row_beats_log2,
            }, HOTLINE))
        return np.stack(writes)

    def _log(self, count: int, source: int) -> dict[str, int]:
        return {"count": count, "source": source, "sample_beats": self.sample_beats, "indices": len(self.positions)}

    def learn(self, count: int, source: int, out: int = 0) -> Words:
        """Forgets, learns from `count` samples at `source` and saves what was learned at `out` of the mailbox."""
        return np.stack([encode("CLEAR", {}, HOTLINE), encode("LEARN", self._log(count, source), HOTLINE),
                         encode("SAVE", {"out": out}, HOTLINE)])

    def train(self, how: Train, count: int, source: int, image: int) -> Words:
        """Loads the image at `image` of the inputs and deals `count` samples at `source`."""
        return np.stack([encode("LOAD", {"source": image}, HOTLINE), encode("TRAIN", {
            **self._log(count, source), "pooled": int(how.pooled), "half": int(how.half),
            "row_beats_log2": self.row_beats_log2,
            "batch": how.batch, "mailbox_slots": how.slots, "mailbox_pitch": self.mailbox_pitch(how),
            "gradients_pitch": self.gradients_pitch(how), "rate": int(np.float32(how.rate).view(np.uint32))}, HOTLINE)])

    @property
    def begins(self) -> list[int]:
        """The positions that begin a vector."""
        return [number for number, position in enumerate(self.positions) if position.join == "begin"]

    def most_rows(self, how: Train) -> int:
        """Cold rows of a mini-batch at the most."""
        return int(min(how.batch * len(self.positions), self.slots))

    def rest_beats(self, how: Train, count: int, cold: int) -> int:
        """Beats of a gathered mini-batch's vectors or rows in the mailbox: of `count` samples, or of `cold` rows."""
        beats = (count * len(self.begins) if how.pooled else cold) << self.row_beats_log2
        return -(-beats // 2) if how.half else beats

    def mailbox_pitch(self, how: Train) -> int:
        """Room for a mini-batch in binary32, whatever it is sent as."""
        sent = how.batch * len(self.begins) if how.pooled else self.most_rows(how)
        return 1 + how.batch * self.sample_beats + (sent << self.row_beats_log2)

    def gradients_pitch(self, how: Train) -> int:
        return self.most_rows(how) << self.row_beats_log2

    def mailbox_beats(self, how: Train) -> int:
        """Of the mailboxes of all GPUs."""
        return self.config.gpus * how.slots * self.mailbox_pitch(how)

    def gradients_beats(self, how: Train) -> int:
        return self.config.gpus * how.slots * self.gradients_pitch(how)

    def check(self, how: Train) -> None:
        """Raises ValueError: mini-batches that the core cannot deal."""
        most = self.config.frame_beats // self.sample_beats
        if not 1 <= how.batch <= most:
            raise ValueError(f"batch must be 1 to {most} samples of {self.sample_beats} beats, not {how.batch}")
        if not 1 <= how.slots <= HOTLINE.field("mailbox_slots").highest:
            raise ValueError(f"slots must be 1 to {HOTLINE.field('mailbox_slots').highest} mini-batches in flight, not "
                             f"{how.slots}")


def indices_of(trace: Trace, places: Mapping[str, int]) -> tuple[NDArray[np.int64], list[Position]]:
    """Indices (samples, positions) of a log and its positions: of every table that `places` names so many, a bag's
    indices in order, added up, and none where it has fewer. Raises ValueError: a bag that is longer."""
    columns, positions = [], []
    for name, wide in places.items():
        index, offsets = trace.bags(name)
        lengths = np.diff(offsets)
        if len(lengths) and lengths.max() > wide:
            raise ValueError(f"{trace.source}: sample {int(np.argmax(lengths > wide))} has {lengths.max()} indices of "
                             f"{name}, there is room for {wide}")
        part = np.full((len(lengths), wide), -1, np.int64)
        part[np.arange(wide) < lengths[:, None]] = index
        columns.append(part)
        positions += [Position(name, "add" if number else "begin") for number in range(wide)]
    return np.concatenate(columns, axis=1), positions
