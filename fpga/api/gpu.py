"""GPUs beside the Hotline core: they take mini-batches out of their mailboxes, train, and return gradients.

`Gpu` is the devices on a simulated card: it watches the words `dispatched`, takes the mini-batches of each GPU in
order, each so many cycles long, writes the gradients of gathered ones and rings the doorbells `finished`. What it
computes is a function of a `Batch`; `Embeddings` makes one of a model that only knows vectors: it keeps the hot rows
and the pinned tables, and trains them itself.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fpga.card import CardError
from fpga.card.runs import Runs
from gen.compiler.hotline import (
    DISPATCHED,
    FINISHED,
    GATHERED,
    HOT_BIT,
    NONE,
    POPULAR,
    HotRows,
    Layout,
    Train,
)

__all__ = ["GATHERED", "POPULAR", "Batch", "Embeddings", "Gpu", "Model", "Places", "Taken", "Times"]

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
class Taken:
    """A mini-batch in a mailbox. gpu: whose, own: its number there; kind, samples: of the mini-batch; started,
    finished: cycles since the run began, None: not yet; gradients: of its cold rows, once it is computed."""

    gpu: int
    own: int
    kind: int
    samples: int
    started: int | None = None
    finished: int | None = None
    gradients: Floats | None = None


@dataclass(frozen=True)
class Places:
    """Of mini-batches in mailboxes and of their gradients, in beats. slots: of a GPU."""

    gpus: int
    slots: int
    mailbox_pitch: int
    gradients_pitch: int

    def slot(self, taken: Taken) -> int:
        return taken.gpu * self.slots + taken.own % self.slots


@dataclass(frozen=True, eq=False)
class _Training:
    """A mini-batch that a GPU is at work on until a cycle of the run."""

    taken: Taken
    until: int
    words: NDArray[np.uint32]


@dataclass
class Gpu:
    """The devices, as many as the core has mailboxes. compute: gradients (rows, dim) of a Batch. times: what a
    mini-batch takes a GPU. poll_cycles: from a look at `dispatched` to the next. watch: called with each mini-batch's
    words before it is computed.

    Mini-batches are computed in the order in which they end, each with the hot rows as those before leave them: GPUs
    have one set of hot rows here, and what their sums over GPUs take is not modelled.

    After a run: taken, in the order in which they were dispatched; kinds, started, finished, gpus: of those;
    busy: cycles of GPUs at work, of all together.
    """

    layout: Layout
    compute: Callable[[Batch], Floats]
    times: Times = field(default_factory=Times)
    poll_cycles: int = POLL_CYCLES
    watch: Callable[[NDArray[np.uint32]], None] | None = None
    taken: list[Taken] = field(default_factory=list)

    @property
    def kinds(self) -> list[int]:
        return [taken.kind for taken in self.taken]

    @property
    def gpus(self) -> list[int]:
        return [taken.gpu for taken in self.taken]

    @property
    def started(self) -> list[int]:
        return [taken.started for taken in self.taken if taken.started is not None]

    @property
    def finished(self) -> list[int]:
        return [taken.finished for taken in self.taken if taken.finished is not None]

    @property
    def busy(self) -> int:
        return sum(taken.finished - taken.started for taken in self.taken
                   if taken.started is not None and taken.finished is not None)

    def serve(self, runs: Runs, how: Train, hot: Callable[[], NDArray[np.uint32]] | None = None, *,
              most: int | None = None, until: int | None = None) -> bool:
        """Works beside the run that has begun until the core is done; whether it is. It stops before with `most`
        mini-batches, after `until` cycles, or when the run has taken too long.

        hot: the hot rows' words after a mini-batch; those that have changed are written where the core reads them.
        None: it does not.
        """
        self.taken = []
        places = self.places(how)
        limit = runs.limit_cycles if until is None else until
        waiting: list[deque[Taken]] = [deque() for _ in range(places.gpus)]
        working: list[_Training | None] = [None] * places.gpus
        mirror = None if hot is None else hot().copy()      # what the core reads
        now = finished = 0
        while most is None or finished < most:
            self._look(runs, how, places, waiting)
            for gpu in range(places.gpus):
                if working[gpu] is None and waiting[gpu]:
                    mine = waiting[gpu].popleft()
                    words = self._words(runs, how, places, mine)
                    if self.watch is not None:
                        self.watch(words)
                    mine.started = now
                    working[gpu] = _Training(mine, now + self.times.of(mine.samples), words)
            steps = [training.until - now if training else self.poll_cycles for training in working]
            cycles = min(*steps, limit - now)
            now += cycles
            done = runs.card.step(cycles)
            if done or now >= limit or not runs.left_s():
                return done
            for gpu, training in enumerate(working):
                if training is not None and training.until <= now:
                    working[gpu] = None
                    mine = training.taken
                    self._finish(runs, how, places, mine, training.words)
                    if hot is not None and mirror is not None:
                        rows = hot()
                        changed = np.flatnonzero((rows != mirror).any(axis=1))
                        for row in changed.tolist():
                            runs.card.write(runs.buffers["hot"], rows[row], row * rows[row].nbytes)
                        mirror[changed] = rows[changed]
                        runs.card.passed(to_card=rows[changed].nbytes)
                    word = runs.kernel.value(FINISHED[gpu]).word
                    runs.card.write(runs.buffers["result"], np.array([mine.own + 1], np.uint32), 4 * word)
                    mine.finished = now
                    finished += 1
        return False

    def places(self, how: Train) -> Places:
        layout = self.layout
        return Places(layout.config.gpus, how.slots, layout.mailbox_pitch(how), layout.gradients_pitch(how))

    def beats(self, how: Train, header: NDArray[np.uint32]) -> int:
        """Of the mini-batch with this header."""
        _, kind, count, cold = (int(word) for word in header[:4])
        rest = self.layout.rest_beats(how, count, cold) if kind == GATHERED else 0
        return 1 + count * self.layout.sample_beats + rest

    def train(self, how: Train, words: NDArray[np.uint32]) -> tuple[Floats, Floats]:
        """The gradients (rows, dim) of a mini-batch's cold rows, and as the core takes them (rows, row words)."""
        batch = Batch.read(self.layout, how, words)
        gradients = np.asarray(self.compute(batch), np.float32)
        padded = np.zeros((batch.cold, self.layout.row_words), np.float32)
        if batch.kind == GATHERED:
            padded[:, :self.layout.dim] = gradients
        return gradients, padded

    def _look(self, runs: Runs, how: Train, places: Places, waiting: list[deque[Taken]]) -> None:
        """What was dispatched since the look before. The core writes the words of all GPUs at once."""
        word = 4 * runs.kernel.value(DISPATCHED[0]).word
        dispatched = runs.card.read(runs.buffers["result"], np.uint32, places.gpus, word).tolist()
        fresh = []
        for gpu, count in enumerate(dispatched):
            for own in range(self.gpus.count(gpu), count):
                taken = Taken(gpu, own, 0, 0)
                header = self._read(runs, places, taken, 1)[0]
                taken.kind, taken.samples = int(header[1]), int(header[2])
                fresh.append((int(header[0]), taken))
        for number, taken in sorted(fresh, key=lambda dispatched: dispatched[0]):
            if number != len(self.taken):
                raise CardError(f"the mailbox has mini-batch {number} where {len(self.taken)} should be")
            self.taken.append(taken)
            waiting[taken.gpu].append(taken)

    def _read(self, runs: Runs, places: Places, taken: Taken, beats: int) -> NDArray[np.uint32]:
        """The first beats of a mini-batch."""
        at = places.slot(taken) * places.mailbox_pitch * 4 * runs.words
        return runs.card.read(runs.buffers["mailbox"], np.uint32, beats * runs.words, at).reshape(-1, runs.words)

    def _words(self, runs: Runs, how: Train, places: Places, taken: Taken) -> NDArray[np.uint32]:
        """All beats of a mini-batch."""
        beats = self.beats(how, self._read(runs, places, taken, 1)[0])
        if beats > places.mailbox_pitch:
            raise CardError(f"mini-batch {self.taken.index(taken)} has {beats} beats, more than the "
                            f"{places.mailbox_pitch} of its place")
        words = self._read(runs, places, taken, beats)
        runs.card.passed(to_host=words.nbytes)
        return words

    def _finish(self, runs: Runs, how: Train, places: Places, taken: Taken, words: NDArray[np.uint32]) -> None:
        """Computes a mini-batch and returns the gradients of its cold rows."""
        taken.gradients, padded = self.train(how, words)
        if taken.kind == GATHERED and len(padded):
            runs.card.write(runs.buffers["gradients"], padded,
                            places.slot(taken) * places.gradients_pitch * 4 * runs.words)
            runs.card.passed(to_card=padded.nbytes)
