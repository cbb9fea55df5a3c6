"""From a click log to mini-batches on the simulated card: what the Hotline core finds hot, and what it saves a GPU.

The core learns from the first samples of the log and dispatches the others to a GPU that trains a small DLRM; then the
same samples again with no row hot, so that every mini-batch has to be gathered.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpga.api.dlrm import Dlrm, payload_of
from fpga.api.gpu import GATHERED, POPULAR, Floats, Times
from fpga.api.hotline import Hotline, Layout, Table, Train, indices_of
from gen.data.logs import Trace, open_for
from gen.data.logs.bounds import few
from gen.data.logs.reading import Reading
from gen.model.log_options import LogOptions

BATCH = 64
RATE = 0.05
SLOTS = 4
SEED = 11
REPORTS = 4     # lines of progress a run

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options(LogOptions):
    """What may be asked, beside how the log is read: another log, its tables (none: all), its column that is learned,
    how much of it is learned from (a share) and trained on (samples), the samples of a mini-batch (none: what a frame
    holds, BATCH at the most), columns of the tables, and what the GPU takes for a sample, in cycles of the core."""

    logs: Sequence[str | Path] = ("movielens",)
    tables: Sequence[str] = ()
    label: str | None = None
    learn: float = 0.05
    samples: int = 2000
    batch: int | None = None
    columns: int = 8
    gpu_cycles: int = 24


@dataclass(frozen=True)
class Run:
    """The samples dispatched once. kinds: of the mini-batches; started, finished: of each at the GPU, in cycles since
    the run began; counters: of the core."""

    name: str
    kinds: tuple[int, ...]
    started: tuple[int, ...]
    finished: tuple[int, ...]
    cycles: int
    counters: dict[str, int] = field(repr=False)

    @property
    def idle(self) -> float:
        """Share of the cycles, up to the last mini-batch's end, in which the GPU waits."""
        busy = sum(end - begin for begin, end in zip(self.started, self.finished))
        return 1 - busy / self.finished[-1] if self.finished else 0.0

    def count(self, kind: int) -> int:
        return self.kinds.count(kind)


@dataclass(frozen=True)
class Dispatched:
    """All that the report shows. tables: rows of each; slots: cold rows that the core holds; cut: indices of bags that
    found no room; hot: rows that the core found, of `capacity`; accesses: of each row in the log behind what was
    learned from, most first; share: of them that meet those rows; best: that meet as many, if the best had been known;
    popular: of the samples that were dispatched; runs: with hot rows, and without."""

    source: str
    tables: dict[str, int]
    learned: int
    samples: int
    batch: int
    slots: int
    cut: int
    hot: int
    capacity: int
    accesses: NDArray[np.int64] = field(repr=False)
    share: float
    best: float
    popular: int
    runs: tuple[Run, Run]

    @property
    def rows(self) -> int:
        return sum(self.tables.values())

    @property
    def speedup(self) -> float:
        """How much later the GPU is done where every mini-batch is gathered."""
        with_hot, without = self.runs
        return without.finished[-1] / with_hot.finished[-1]


def run(options: Options, *, config: Any, card: Callable[[], Any] = lambda: "sim",
        say: Say = lambda text: None, read: Callable[[Reading], None] = lambda _: None) -> Dispatched:
    """Dispatches a log.

    Parameters  options: what is asked; config: of the core; card: gives an open card for each of the two runs, or
                "sim"; say: takes lines of progress; read: told how the log was understood
    Raises      ValueError: a log or sizes that do not fit, as a sentence; RunError, CardError: of the run
    """
    if not 0 < options.learn < 1:
        raise ValueError(f"learn must be more than 0 and less than 1, not {options.learn:g}")
    for name in ("samples", "columns", "gpu_cycles"):
        if getattr(options, name) < 1:
            raise ValueError(f"{name} must be at least 1, not {getattr(options, name)}")
    log = open_for(options.logs, options, options.tables)
    trace, places, cut = _places(Trace.of(log, head=True), config.positions)
    indices, positions = indices_of(trace, places)
    payload, unused = payload_of(trace, options.label)
    learned = max(1, round(options.learn * len(indices)))
    most = max(1, config.frame_beats // -(-(len(positions) + payload.shape[1]) // config.words))
    batch = min(BATCH, most) if options.batch is None else options.batch
    trained = slice(learned, learned + options.samples)
    if len(indices) <= learned:
        raise ValueError(f"{trace.source} has {len(indices)} samples: none is left behind those to learn from")
    say(f"log        {trace.source}: {len(indices):,} samples{trace.note}, {len(positions)} indices each"
        + (f"; {cut:,} indices of long bags left out" if cut else ""))
    for line in (*log.report(), *([f"not used   {few(unused)}"] if unused else [])):
        say(line)
    read(log.reading())
    random = np.random.default_rng(SEED)
    tables = [Table(name, (random.standard_normal((trace.rows[name], options.columns)) / 8).astype(np.float32))
              for name in places]

    # What does not fit is refused before the core learns: that takes long.
    Layout(config, tables, positions, payload.shape[1]).check(Train(batch, SLOTS, -RATE))

    runs: list[Run] = []
    marks = np.zeros(0, np.int64)
    first = np.cumsum([0] + [len(table.array) for table in tables])
    for name in ("hot rows at the GPU", "every mini-batch gathered"):
        with Hotline(tables, positions, payload=payload.shape[1], head=indices[:learned], preset=config, card=card(),
                     times=Times(0, options.gpu_cycles)) as hotline:
            if not runs:
                found = hotline.learn(indices[:learned])
                marks = first[found.tables] + found.indices
                say(f"learned    {learned:,} samples: {len(marks):,} hot rows")
            dlrm = Dlrm(payload.shape[1] - 1, len(hotline.layout.begins), options.columns, rate=RATE, seed=SEED)
            model = _Counted(dlrm, len(indices[trained]), name, say)
            done = hotline.train(model, indices[trained], payload[trained], rate=-RATE, batch=batch, slots=SLOTS)
            gpu, counters, layout = hotline.gpu, dict(hotline.last), hotline.layout
        assert gpu is not None
        runs.append(Run(name, done.kinds, tuple(gpu.started), tuple(gpu.finished), done.cycles, counters))

    later = indices[learned:]
    table_of = [list(places).index(position.table) for position in positions]
    counts = np.bincount((later + first[table_of])[later >= 0], minlength=int(first[-1]))
    accesses = np.sort(counts)[::-1]
    total = max(1, int(counts.sum()))
    return Dispatched(
        trace.source, {name: trace.rows[name] for name in places}, learned, len(indices[trained]), batch, layout.slots,
        cut, len(marks), layout.hot_numbers, accesses, int(counts[marks].sum()) / total,
        int(accesses[:len(marks)].sum()) / total, runs[0].counters["popular"], (runs[0], runs[1]))


class _Counted:
    """A model that tells how far it is."""

    def __init__(self, model: Dlrm, samples: int, name: str, say: Say):
        self.model, self.samples, self.name, self.say = model, samples, name, say
        self.done = self.told = 0

    def __call__(self, vectors: Floats, payload: NDArray[np.uint32]) -> Floats:
        slopes = self.model(vectors, payload)
        self.done += len(vectors)
        if self.done * REPORTS // self.samples > self.told:
            self.told = self.done * REPORTS // self.samples
            self.say(f"training   {self.name}: {self.done:,} of {self.samples:,} samples trained")
        return slopes


def _places(trace: Trace, positions: int) -> tuple[Trace, dict[str, int], int]:
    """How many positions each table gets, the log with bags cut to them, and how many indices that leaves out."""
    single = [name for name in trace.indices if name not in trace.offsets]
    bags = list(trace.offsets)
    room = (positions - len(single)) // len(bags) if bags else 0
    if len(single) > positions or (bags and not room):
        raise ValueError(f"{trace.source} has {len(single)} tables of one index and {len(bags)} of bags: the core has "
                         f"{positions} positions for them: --table takes some of them, --preset a larger core")
    places, indices, offsets, cut = dict.fromkeys(single, 1), dict(trace.indices), dict(trace.offsets), 0
    for name in bags:
        lengths = np.diff(trace.offsets[name])
        places[name] = max(1, min(room, int(lengths.max(initial=1))))
        within = np.arange(len(indices[name])) - np.repeat(trace.offsets[name][:-1], lengths)
        keep = within < places[name]
        cut += int((~keep).sum())
        indices[name] = indices[name][keep]
        offsets[name] = np.concatenate([[0], np.cumsum(np.minimum(lengths, places[name]))])
    return replace(trace, indices=indices, offsets=offsets), places, cut


def lines(result: Dispatched) -> list[str]:
    """The table that the command prints."""
    found = [
        f"rows       {result.rows:,} in {len(result.tables)} tables; capacity {result.capacity:,} hot rows, "
        f"{result.hot:,} found",
        f"accesses   {result.share:.1%} of the remaining log go to hot rows; the oracle's {result.hot:,} rows take "
        f"{result.best:.1%}",
        f"popular    {result.popular:,} of {result.samples:,} samples ({result.popular / result.samples:.1%})",
        "",
        f"{'':28s}{'popular':>9s}{'gathered':>9s}{'rows read':>11s}{'shared':>8s}{'cycles':>12s}{'GPU idle':>10s}",
    ]
    for each in result.runs:
        counters = each.counters
        found.append(f"{each.name:28s}{each.count(POPULAR):9,d}{each.count(GATHERED):9,d}{counters['dma_rd']:11,d}"
                     f"{counters['shared']:8,d}{each.finished[-1]:12,d}{each.idle:10.1%}")
    return [*found, "", f"all        the run takes {result.speedup:.2f} times as long where every mini-batch is "
                        f"gathered"]
