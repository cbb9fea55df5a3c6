"""A GPU beside the Hotline core: it takes mini-batches out of the mailbox, trains, and returns gradients.

`Gpu` is the device on a simulated card: it watches the word `dispatched`, takes mini-batches in order, each so many
cycles long, writes the gradients of gathered ones and rings the doorbell `finished`. What it computes is a function of
a `Batch`; `Embeddings` makes one of a model that only knows vectors: it keeps the hot rows and the pinned tables, and
trains them itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fpga.card import CardError
from fpga.card.runs import Runs
from gen.compiler.hotline import GATHERED, HOT_BIT, NONE, POPULAR, HotRows, Layout, Train

__all__ = ["GATHERED", "POPULAR", "Batch", "Embeddings", "Gpu", "Model", "Times"]

POLL_CYCLES = 32

Floats = NDArray[np.float32]
# (vectors (samples, vectors, dim), payload (samples, payload)) -> the loss's slopes of the vectors; it trains itself.
Model = Callable[[Floats, NDArray[np.uint32]], Floats]


@dataclass(frozen=True, eq=False)
class Batch:
    """A mini-batch. indices (samples, positions): 1 << 31 | number of a hot row, the ordinal of a cold one, the index
    of a pinned one, or NONE. payload: (samples, payload). rows: (rows, dim), cold ones in order of their ordinals;
    pooled: (samples, vectors, dim) instead, without pinned rows."""

    number: int
    kind: int
    indices: NDArray[np.uint32]
    payload: NDArray[np.uint32]
    cold: int
    rows: Floats
    pooled: Floats | None = None

    @classmethod
    def read(cls, layout: Layout, how: Train, words: NDArray[np.uint32]) -> "Batch":
        """A mini-batch out of its beats in the mailbox (beats, words)."""
        number, kind, count, cold = (int(word) for word in words[0, :4])
        end = 1 + count * layout.sample_beats
        samples = words[1:end].reshape(count, -1)
        values = words[end:].view(np.float16 if how.half else np.float32).reshape(-1).astype(np.float32)
        rows = values[:len(values) // layout.row_words * layout.row_words].reshape(-1, layout.row_words)[:, :layout.dim]
        width = len(layout.positions)
        carried = samples[:, width:width + layout.payload]
        pooled = None
        if kind == GATHERED and how.pooled:
            vectors = len(layout.begins)
            pooled, rows = rows[:count * vectors].reshape(count, vectors, -1), rows[:0]
        elif kind == GATHERED:
            rows = rows[:cold]
        else:
            rows = rows[:0]
        return cls(number, kind, samples[:, :width].copy(), carried.copy(), cold, rows.copy(), pooled)


@dataclass(frozen=True)
class Times:
    """Cycles that the GPU takes for a mini-batch, and for each sample of it."""

    batch: int = 1000
    sample: int = 10

    def of(self, samples: int) -> int:
        return self.batch + self.sample * samples


class Embeddings:
    """The rows that a GPU keeps, as a function of a Batch.

    layout: of the tables. hot: which rows are hot; values: of the tables. rate: minus the learning rate. model: as
    `Model`. hot_rows: (numbers, row words), in the order of their numbers. pinned: tables by number.
    """

    def __init__(self, layout: Layout, hot: HotRows, values: Sequence[Floats], rate: float, model: Model):
        self.layout, self.hot, self.rate, self.model = layout, hot, np.float32(rate), model
        self.hot_rows = np.zeros((layout.hot_numbers, layout.row_words), np.float32)
        for table in np.unique(hot.tables):
            mine = hot.tables == table
            self.hot_rows[hot.numbers[mine], :layout.dim] = values[table][hot.indices[mine]]
        self.pinned = {number: values[number].copy() for number, table in enumerate(layout.tables) if table.pinned}
        joins = [position.join for position in layout.positions]
        # Which vector a position's row goes into.
        self.vector = np.cumsum([join == "begin" for join in joins]) - 1
        self.products = [number for number, join in enumerate(joins) if join == "multiply"]

    def __call__(self, batch: Batch) -> Floats:
        """The gradients (rows, dim) of the mini-batch's cold rows, summed over it; hot and pinned rows are trained."""
        if batch.pooled is not None and self.products:
            raise ValueError("a row that multiplies cannot be trained where the core pools: its factors are not sent")
        single = self._single(batch)
        vectors = self._join(batch, single)
        slopes = np.asarray(self.model(vectors, batch.payload), np.float32)
        if slopes.shape != vectors.shape:
            raise ValueError(f"the model must return slopes of the shape {vectors.shape}, not {slopes.shape}")
        return self._learn(batch, single, slopes)

    def _single(self, batch: Batch) -> Floats:
        """The row of every position (samples, positions, dim); +0 for none, and for what the core has pooled."""
        layout, index = self.layout, batch.indices
        out = np.zeros((*index.shape, layout.dim), np.float32)
        for position, table in enumerate(layout.table_of):
            word = index[:, position]
            there = word != NONE
            if table in self.pinned:
                out[there, position] = self.pinned[table][word[there]]
                continue
            hot = there & (word >> HOT_BIT == 1)
            if batch.pooled is None:
                out[hot, position] = self.hot_rows[word[hot] & (1 << HOT_BIT) - 1, :layout.dim]
                cold = there & ~hot
                out[cold, position] = batch.rows[word[cold]]
        return out

    def _join(self, batch: Batch, single: Floats) -> Floats:
        if batch.pooled is not None:
            vectors = batch.pooled.copy()
            for position, table in enumerate(self.layout.table_of):
                if table in self.pinned:
                    vectors[:, self.vector[position]] += single[:, position]
            return vectors
        vectors = np.zeros((len(single), len(self.layout.begins), self.layout.dim), np.float32)
        there = batch.indices != NONE
        for position, item in enumerate(self.layout.positions):
            vector, mine = self.vector[position], there[:, position]
            if item.join == "multiply":
                vectors[mine, vector] *= single[mine, position]
            else:
                vectors[:, vector] += single[:, position]
        return vectors

    def _learn(self, batch: Batch, single: Floats, slopes: Floats) -> Floats:
        layout, index = self.layout, batch.indices
        own = self._back(batch, single, slopes)
        gradients = np.zeros((batch.cold, layout.dim), np.float32)
        tables = np.array([table in self.pinned for table in layout.table_of])
        there = index != NONE
        hot = there & ~tables & (index >> HOT_BIT == 1)
        cold = there & ~tables & ~hot
        np.add.at(gradients, index[cold], own[cold])
        numbers, which = np.unique(index[hot] & (1 << HOT_BIT) - 1, return_inverse=True)
        hot_sums = np.zeros((len(numbers), layout.dim), np.float32)
        np.add.at(hot_sums, which, own[hot])
        self.hot_rows[numbers, :layout.dim] += self.rate * hot_sums
        for table, values in self.pinned.items():
            mine = there & (np.array(layout.table_of) == table)
            np.add.at(values, index[mine], self.rate * own[mine])
        return gradients

    def _back(self, batch: Batch, single: Floats, slopes: Floats) -> Floats:
        """The slope of every position's row: that of its vector, times what it is multiplied with."""
        own = slopes[:, self.vector].copy()
        there = batch.indices != NONE
        for at in self.products:
            # Everything in the vector before it is multiplied with it, and it with the vector so far.
            vector = self.vector[at]
            before = [k for k in range(at) if self.vector[k] == vector]
            partial = np.zeros_like(single[:, 0])
            for k in before:
                if self.layout.positions[k].join == "multiply":
                    partial = np.where(there[:, k, None], partial * single[:, k], partial)
                else:
                    partial = partial + single[:, k]
            own[:, at] *= partial
            mine = there[:, at, None]
            for k in before:
                own[:, k] = np.where(mine, own[:, k] * single[:, at], own[:, k])
        return own


@dataclass
class Gpu:
    """The device. compute: gradients (rows, dim) of a Batch. times: what a mini-batch takes. poll_cycles: from a look
    at `dispatched` to the next. watch: called with each mini-batch's words before it is computed.

    After a run: kinds, as dispatched; started, finished: cycles since it began, of each; busy: of them at work;
    returned: of each mini-batch that was computed, its samples and the gradients of its cold rows.
    """

    layout: Layout
    compute: Callable[[Batch], Floats]
    times: Times = field(default_factory=Times)
    poll_cycles: int = POLL_CYCLES
    watch: Callable[[NDArray[np.uint32]], None] | None = None
    kinds: list[int] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    returned: list[tuple[int, Floats]] = field(default_factory=list)

    @property
    def busy(self) -> int:
        return sum(end - begin for begin, end in zip(self.started, self.finished, strict=False))

    def serve(self, runs: Runs, how: Train, hot: Callable[[], NDArray[np.uint32]] | None = None, *,
              most: int | None = None, until: int | None = None) -> bool:
        """Works beside the run that has begun until the core is done; whether it is. It stops before with `most`
        mini-batches, after `until` cycles, or when the run has taken too long.

        hot: the hot rows' words after a mini-batch; those that have changed are written where the core reads them.
        None: it does not.
        """
        self.kinds, self.started, self.finished, self.returned = [], [], [], []
        card, result, kernel = runs.card, runs.buffers["result"], runs.kernel
        limit = runs.limit_cycles if until is None else until
        at, done = 0, False
        mirror = None if hot is None else hot().copy()      # what the core reads

        def over(cycles: int) -> bool:
            nonlocal at, done
            cycles = min(cycles, limit - at)
            at += cycles
            done = card.step(cycles)
            return done or at >= limit or not runs.left_s()

        while most is None or len(self.finished) < most:
            number = len(self.finished)
            dispatched = int(card.read(result, np.uint32, 1, 4 * kernel.value("dispatched").word)[0])
            if dispatched <= number:
                if over(self.poll_cycles):
                    return done
                continue
            words = self._take(runs, how, number)
            if self.watch is not None:
                self.watch(words)
            batch = Batch.read(self.layout, how, words)
            if batch.number != number:
                raise CardError(f"the mailbox has mini-batch {batch.number} where {number} should be")
            self.kinds.append(batch.kind)
            self.started.append(at)
            if over(self.times.of(len(batch.indices))):
                return done
            gradients = np.asarray(self.compute(batch), np.float32)
            self.returned.append((len(batch.indices), gradients))
            if batch.kind == GATHERED and batch.cold:
                padded = np.zeros((batch.cold, self.layout.row_words), np.float32)
                padded[:, :self.layout.dim] = gradients
                card.write(runs.buffers["gradients"], padded,
                           number % how.slots * self.layout.gradients_pitch(how) * 4 * runs.words)
                card.passed(to_card=padded.nbytes)
            if hot is not None and mirror is not None:
                rows = hot()
                changed = np.flatnonzero((rows != mirror).any(axis=1))
                for row in changed.tolist():
                    card.write(runs.buffers["hot"], rows[row], row * rows[row].nbytes)
                mirror[changed] = rows[changed]
                card.passed(to_card=rows[changed].nbytes)
            card.write(result, np.array([number + 1], np.uint32), 4 * kernel.value("finished").word)
            self.finished.append(at)
        return False

    def _take(self, runs: Runs, how: Train, number: int) -> NDArray[np.uint32]:
        """The beats of mini-batch `number`."""
        beat, pitch = 4 * runs.words, self.layout.mailbox_pitch(how)
        at = number % how.slots * pitch
        header = runs.card.read(runs.buffers["mailbox"], np.uint32, runs.words, at * beat)
        _, kind, count, cold = (int(word) for word in header[:4])
        beats = 1 + count * self.layout.sample_beats
        if kind == GATHERED:
            beats += self.layout.rest_beats(how, count, cold)
        if beats > pitch:
            raise CardError(f"mini-batch {number} has {beats} beats, more than the {pitch} of its place")
        words = runs.card.read(runs.buffers["mailbox"], np.uint32, beats * runs.words, at * beat)
        runs.card.passed(to_host=words.nbytes)
        return words.reshape(-1, runs.words)
