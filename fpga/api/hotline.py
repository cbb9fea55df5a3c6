"""Training with hot and cold rows apart: the Hotline core on a card, a GPU beside it.

    from fpga.api.hotline import Hotline, Position, Table
    with Hotline(tables, [Position("user"), Position("item")], payload=14) as hotline:     # the simulated card
        hotline.learn(indices[:2000])                           # which rows are hot
        hotline.train(model, indices, payload, rate=-0.05, batch=64)
        users = hotline.values("user")                          # rows as trained

`model` takes vectors (samples, vectors, dim) and the payload, trains itself, and returns the loss's slopes of the
vectors: see fpga.api.gpu. A RunError of this core has instruction, sample, position and detail of the result block, and
table where an index is meant.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpga.api.gpu import GATHERED, POPULAR, Batch, Embeddings, Gpu, Model, Times
from fpga.card import Card, CardError
from fpga.card.runs import LIMIT_CYCLES, LIMIT_S, OnCard, RunError
from fpga.card.threads import exclusive
from gen.compiler.hotline import HotRows, Layout, Position, Table, Train, indices_of

__all__ = ["GATHERED", "POPULAR", "Batch", "Embeddings", "Gpu", "HotRows", "Hotline", "Layout", "Model", "Position",
           "RunError", "Table", "Times", "Train", "Trained", "indices_of"]

TIMEOUT_CYCLES = 30_000_000     # a tenth of a second from one mini-batch to the next
ROWS = "float32", "float16"     # formats in which rows go to the GPU
UNSET = (1 << 64) - 1           # of a counter that the core has not written
REFUSED_TWICE = 3               # detail of WRITE_ERROR: rows of a mini-batch may have old beats beside new ones


@dataclass(frozen=True)
class Trained:
    """A run of `train`. kinds: of the mini-batches as they were dispatched; samples, popular: how many; cycles: of the
    core; busy: of them GPUs at work, of all together."""

    kinds: tuple[int, ...]
    samples: int
    popular: int
    cycles: int
    busy: int


class Hotline(OnCard):
    """Tables on a card, trained with a GPU.

    tables: of one dim; positions: of a sample's indices; payload: words that a sample carries behind them. head:
    indices (n, positions) of the log's beginning, by which rows are numbered so that the logger's banks are asked alike
    [table by table]; some 1,000 samples are enough. card: "sim" opens the simulated one, else an open card
    whose core is that of `preset`, which is then not closed here. preset: a name or path, or the core's
    configuration itself. times: what the simulated GPU takes. timeout_cycles: without progress, also of the GPU's,
    which end a run. limit_cycles, limit_s: of a run, as fpga.card.runs.Runs takes them. options: for fpga.card.open.

    Before the first `learn` no row is hot. `last` has the counters of the last run, `hot` which rows are hot, `trained`
    (samples,) which samples of the last `train` the tables are trained with. After a RunError these are those of the
    mini-batches that the model saw. Where it is not known what the core came to (it could not write a row twice, its
    result block, or the host broke the run off, Ctrl-C included) there are none, and the tables are as before the call.
    The card gets the rows anew before the next run.
    Raises      ValueError: what does not fit the core; CardError: a card that cannot hold it
    """

    def __init__(self, tables: Sequence[Table], positions: Sequence[Position], *, payload: int = 0,
                 head: ArrayLike | None = None, card: "str | Card" = "sim", preset: Any = "hotline_fpga",
                 times: Times | None = None, timeout_cycles: int = TIMEOUT_CYCLES, limit_cycles: int = LIMIT_CYCLES,
                 limit_s: float = LIMIT_S, **options: Any):
        config = self._config(preset, "hotline")
        self.layout = Layout(config, tables, positions, payload, head)
        self.times = times or Times()
        self._image = np.zeros((self.layout.image_beats, config.words), np.uint32)
        self.hot: HotRows = self.layout.hot(self._image)
        self.gpu: Gpu | None = None
        self._values = [table.array.copy() for table in self.layout.tables]
        self.trained = np.zeros(0, bool)
        self._rows_beats = len(self.layout.rows())
        self._open("hotline", card, preset, config.words, limit_cycles, limit_s, timeout_cycles, **options)

    def _build(self) -> None:
        self._runs.write("rows", self.layout.rows(self._values))
        for name in ("mailbox", "gradients", "hot"):
            self._runs.ensure_buffer(name, 0)

    @exclusive
    def learn(self, indices: ArrayLike) -> HotRows:
        """Forgets what is hot, lets the core learn it anew from samples (n, positions), less than 0: none.

        Raises      ValueError: indices that the tables do not have; RunError: the core's own words; CardError
        """
        layout, payload = self.layout, None
        if layout.payload:
            payload = np.zeros((len(np.asarray(indices)), layout.payload), np.uint32)
        samples = layout.samples(indices, payload)
        self._ensure_known()
        with self._runs.transaction():
            self._runs.ensure_buffer("mailbox", layout.image_beats * 4 * self._runs.words)
            self._run(np.concatenate([layout.registers(), layout.learn(len(samples), 0)]), samples,
                      {"mailbox_beats": layout.image_beats})
            image = self._runs.read("mailbox", layout.image_beats)
        hot = layout.hot(image)
        self._image, self.hot = image, hot      # both or none, also where Ctrl-C comes between
        return hot

    @exclusive
    def train(self, model: Model, indices: ArrayLike, payload: ArrayLike | None = None, *, rate: float, batch: int,
              slots: int = 4, pooled: bool = False, rows: str = "float32") -> Trained:
        """Trains on samples: indices (n, positions), payload (n, payload) 32-bit words.

        rate: what gradients are multiplied with, minus the learning rate. batch: samples of a mini-batch; slots: of
        them in flight. pooled: the core joins the rows of gathered mini-batches; it reads hot rows ahead, which may be
        as they were a step of the GPU before. rows: format in which cold rows, or vectors, go to the GPU, float32 or
        float16, to which they are rounded; rows in memory are float32 and take their updates as such.
        Raises      ValueError: what the core cannot dispatch, another format; RunError: the core's own words;
                    CardError: the card's
        """
        if rows not in ROWS:
            raise ValueError(f"rows must be {' or '.join(ROWS)}, not {rows!r}")
        embeddings = Embeddings(self.layout, self.hot, self._values, rate, model)
        how = Train(batch, slots, rate, pooled, half=rows == "float16")
        return self._dispatch(embeddings, indices, payload, how, (lambda: embeddings.hot_rows.view(np.uint32))
                              if pooled else None, embeddings)

    @exclusive
    def dispatch(self, compute: Callable[[Batch], NDArray[np.float32]], indices: ArrayLike, payload: ArrayLike | None,
                 how: Train, hot: Callable[[], NDArray[np.uint32]] | None = None) -> Trained:
        """The layer below `train`: any function of mini-batches that returns the gradients of their cold rows, and
        keeps hot and pinned rows itself. hot: the hot rows' words (numbers, row words), where the core pools."""
        return self._dispatch(compute, indices, payload, how, hot)

    def _dispatch(self, compute: Callable[[Batch], NDArray[np.float32]], indices: ArrayLike, payload: ArrayLike | None,
                  how: Train, hot: Callable[[], NDArray[np.uint32]] | None, kept: Embeddings | None = None) -> Trained:
        """kept: the rows that the GPU has trained, which are brought to the card when all is over."""
        layout, runs, beat = self.layout, self._runs, 4 * self._runs.words
        layout.check(how)
        samples = layout.samples(indices, payload)
        if how.pooled and hot is None:
            raise ValueError("hot rows must be given where the core pools")
        self.trained = np.zeros(len(samples), bool)
        self._ensure_known()
        mailbox, gradients = layout.mailbox_beats(how), layout.gradients_beats(how)
        program = np.concatenate([layout.registers(), layout.train(how, len(samples), layout.image_beats, 0)])
        self.gpu = gpu = Gpu(layout, compute, self.times)
        with runs.transaction():
            runs.ensure_buffer("mailbox", mailbox * beat)
            runs.ensure_buffer("gradients", gradients * beat)
            hot_beats = 0 if hot is None else runs.write("hot", hot()).bytes // beat
            try:
                self._run(program, np.concatenate([self._image.reshape(-1), samples.reshape(-1)]),
                          {"mailbox_beats": mailbox, "gradients_beats": gradients, "hot_beats": hot_beats},
                          lambda: gpu.serve(runs, how, hot))
            finally:
                self._keep(gpu, np.asarray(indices), how, kept)
            if kept is not None:
                runs.write("rows", layout.rows(self._values))
        return Trained(tuple(gpu.kinds), len(samples), self.last["popular"], self.last["cycles"], gpu.busy)

    @exclusive
    def values(self, table: str) -> NDArray[np.float32]:
        """The rows (rows, dim) of a table as trained so far."""
        names = [item.name for item in self.layout.tables]
        if table not in names:
            raise ValueError(f"there is no table {table!r}; there are {', '.join(names)}")
        return self._values[names.index(table)].copy()

    def _updated(self) -> int | None:
        """The gathered mini-batches whose updates the rows' buffer has, where the last run says so."""
        last = self.last
        updated = last.get("batches_updated", UNSET)
        refused = last.get("code") == self._runs.kernel.code("WRITE_ERROR") and last["detail"] & 0xFF == REFUSED_TWICE
        return None if updated == UNSET or refused else updated

    def _keep(self, gpu: Gpu, indices: NDArray[Any], how: Train, kept: Embeddings | None) -> None:
        """After a run, however it ended: tables as the mini-batches that the GPU returned leave them, what the core did
        not come to included; as before the run where it is not known what the core came to."""
        layout, updated = self.layout, self._updated()
        if updated is None:
            return
        rows = self._runs.read("rows", self._rows_beats)
        cold, trained = layout.cold(indices, self.hot), np.zeros(len(indices), bool)
        waiting = [np.flatnonzero(~cold.any(axis=1)), np.flatnonzero(cold.any(axis=1))]
        gathered = 0
        for each in gpu.taken:
            part, waiting[each.kind] = waiting[each.kind][:each.samples], waiting[each.kind][each.samples:]
            if each.gradients is None:
                continue
            trained[part] = True
            gathered += each.kind == GATHERED
            if each.kind == GATHERED and gathered > updated:
                layout.update(rows, layout.cold_rows(indices[part], cold[part]), how.rate, each.gradients)
        # Pinned tables are the GPU's alone.
        values = [old if table.pinned else new
                  for table, old, new in zip(layout.tables, self._values, layout.values(rows), strict=True)]
        if kept is not None:
            hot = kept.hot
            for table in np.unique(hot.tables):
                mine = hot.tables == table
                values[table][hot.indices[mine]] = kept.hot_rows[hot.numbers[mine], :layout.dim]
            for number, pinned in kept.pinned.items():
                values[number] = pinned
        self._values, self.trained = values, trained

    def _run(self, program: NDArray[np.uint32], inputs: NDArray[np.uint32], arguments: dict[str, int],
             beside: Callable[[], object] | None = None) -> None:
        runs = self._runs
        runs.last = {}
        block = runs.clear_result()
        # A beat of the block that is refused must not pass for a count of 0.
        self.card.send(block, np.array([UNSET], np.uint64), 4 * runs.kernel.value("batches_updated").word)
        runs.send("inputs", inputs)
        if runs.run(program, {"gradients_beats": 0, "hot_beats": 0, **arguments, "rows_beats": self._rows_beats,
                              "inputs_beats": inputs.size // runs.words}, beside):
            raise self._error()
        if self.last["batches_updated"] == UNSET:
            raise CardError("the core ended without an error, but its result block was not written as a whole")

    def _error(self) -> RunError:
        """What went wrong, in the words of whoever gave the samples."""
        last, codes = self.last, {code.code: code for code in self._runs.kernel.codes}
        code, where, place = codes.get(last["code"]), [], {}
        if code is not None and "sample" in code.place and last["position"] < len(self.layout.positions):
            place["table"] = self.layout.positions[last["position"]].table
            where = [f"sample {last['sample']}", f"position {last['position']}", f"table {place['table']}"]
        return self._runs.error(where, **place)
