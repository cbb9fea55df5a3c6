"""What each memory of a card is worth to a model that is trained here: accuracy beside speed, bit for bit.

A DLRM is trained on a log of which samples are held out, and placed on a card with one memory, with two and with
three. Where rows become a tensor train (TT) its cores are trained with the rest of the model. Each placement looks up
the held-out samples on the twin of the card, whose vectors give the AUC and whose cycles the speed, then the first
batches again in the RTL. The simulator of the RTL is built beside all this.
"""

import copy
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fpga.api.dlrm import payload_of
from fpga.api.training import Training
from fpga.api.verifying import Verified, verify
from fpga.card import twin
from fpga.card.costs import measure
from fpga.card.opening import check_tools
from gen import bundle as bundles
from gen.base.tools import call, versions
from gen.bundle import Bundle
from gen.data.expected import expected_counts
from gen.data.logs import Pieces, Trace, open_for
from gen.data.logs.arrays import of_arrays
from gen.data.logs.bounds import few
from gen.data.logs.reading import Reading
from gen.data.logs.trace import picked
from gen.data.profile import Profile
from gen.data.profiling import stream
from gen.data.remap import TT, by_heat, row_counts
from gen.data.reorder import by_similarity
from gen.model.device import Device
from gen.model.log_options import LogOptions
from gen.model.recommender import Recommender, TableSpec
from gen.model.scores import auc
from gen.model.weights import FileWeights
from gen.planner.plan import LEVELS, Plan, duration, rate
from gen.planner.planning import make

SEED = 20
HELD_OUT = 0.1
EPOCHS = 4          # rows become tensor trains after half of them
SLICE = 2           # batches in the RTL
#: Name, memories, and the share of the accesses that may read TT rows.
PLACEMENTS = ((LEVELS[1], 1, 0.0), (LEVELS[2], 2, 0.0), ("DRAM, TT (10 %) and SSD", 3, 0.1), (LEVELS[3], 3, 1.0))
#: The simulator of the tiny core takes about as many times as long to build as its twin.
BUILDS = 4
PATIENCE_S = 15.0   # between two lines of a wait

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options(LogOptions):
    """What may be asked, beside how the log is read: another log, its tables [all] and column that is learned, how much
    of it; values per row, rank of the tensor trains, samples per batch; the card."""

    logs: Sequence[str | Path] = ("movielens",)
    tables: Sequence[str] = ()
    label: str | None = None
    samples: int = 100_000
    dim: int = 64
    rank: int = 8
    batch: int = 512
    device: str = "smartssd_small"
    preset: str = "tiny"


@dataclass(frozen=True, eq=False)
class Placement:
    """One way to place the model. auc: of the held-out samples, by the card's vectors; curve: the same on the host
    after each epoch. errors: relative, of each table's TT rows as their training began. whole: all held-out samples on
    the twin; slice: the first batches of them in the RTL, where it runs; equal: with the vectors and cycles of the
    twin."""

    name: str
    plan: Plan
    auc: float
    curve: list[float]
    errors: dict[str, float]
    whole: Verified = field(repr=False)
    slice: Verified | None = field(default=None, repr=False)
    equal: bool = False

    @property
    def rate(self) -> float:
        """Samples per second, one batch at a time."""
        return self.whole.rate

    @property
    def batch_s(self) -> float:
        """Seconds of a full batch."""
        return self.plan.batch / self.rate

    @property
    def planned_s(self) -> float:
        """The same as planned."""
        return self.plan.batch / self.whole.planned_rate

    @property
    def shares(self) -> NDArray[np.float64]:
        """Of the lookups: DRAM, TT, SSD."""
        rows = np.sum(list(self.whole.rows.values()), axis=0)
        return np.asarray(rows / rows.sum())

    @property
    def passed(self) -> bool:
        return not self.whole.different and (self.slice is None or self.equal and not self.slice.different)


@dataclass(frozen=True, eq=False)
class Demo:
    """All that the report shows. rows: of each table; row_bytes: of all together; baseline: AUC of the FP32 rows on the
    host; device: of the card; profile: of the samples that were learned from."""

    source: str
    rows: dict[str, int]
    row_bytes: int
    learned: int
    held: int
    baseline: float
    device: Device
    profile: Profile = field(repr=False)
    placements: list[Placement]

    @property
    def passed(self) -> bool:
        return all(each.passed for each in self.placements)

    @property
    def in_rtl(self) -> bool:
        return all(each.slice is not None for each in self.placements)


def run(options: Options, folder: Path, *, rtl: str | None = "sim", say: Say = print,
        read: Callable[[Reading], None] = lambda _: None) -> Demo:
    """Runs the whole demo, telling its steps to `say`. folder: for bundles, which are removed in the end. rtl: the kind
    of card that the first batches run on again; None: none, and no simulator is built. read: told how the log was
    understood.

    Raises      ValueError: a log or options that do not fit, in one sentence; CardError, RunError: of a card
    """
    with threadpool_limits(1):      # matrices are small, and the other core builds the simulator
        return _run(options, folder, rtl, say, read)


def _run(options: Options, folder: Path, rtl: str | None, say: Say, read: Callable[[Reading], None]) -> Demo:
    device = Device.load(options.device)
    check_tools(rtl if rtl == "sim" else "twin")
    samples = _Samples(options, say)
    read(samples.reading)
    simulator = _Simulator(options.preset) if rtl == "sim" else None
    say("time       about half a minute for 100,000 samples; longer the first time" + (
        ", which builds a simulator" if simulator else ""))
    costs, trace = measure(options.device, options.preset, dims={options.dim}), samples.trace
    model = Recommender("demo", trace.source, {
        name: TableSpec(name, rows, options.dim) for name, rows in trace.rows.items()}, None, options.batch)
    row_bytes = sum(spec.rows * costs.row_bytes(spec.dim) for spec in model.tables.values())
    say(f"card       {device.name}: its DRAM has {device.memory.rows_bytes:,} bytes for rows and two batches of "
        f"{model.batch:,} samples; the rows take {row_bytes:,}")
    learning = _Learning(samples, options.dim, say)
    profile = stream.with_rows(stream.profile(samples.log(samples.in_parts())), trace.rows)
    say("plan       of each placement; the first time numba compiles its loops, for some 15 s of an idle core")
    plans = []
    for name, levels, tt_share in PLACEMENTS:
        plans.append(make(model, profile, costs, cards=1, rank=options.rank, levels=levels, tt_share=tt_share,
                          tt_gain=0.0, explain=False))
        say(f"plan       {name}: {duration(plans[-1].seconds)} per batch, of batches that follow each other")
    for note in plans[-1].assumed:
        say(f"note: {note}")
    log, looked = samples.log(samples.held), []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for (name, *_), plan in zip(PLACEMENTS, plans):
            training, curve = learning.placed(plan, profile)
            bundle = _bundle(Path(scratch), name, plan, profile, training)
            verified, vectors = _looked_up(bundle, log, len(samples.held), "twin")
            score = training.model.predict(vectors, samples.payload[samples.held])
            placement = Placement(name, plan, auc(score, samples.label), curve, {
                table: training.tables[table].error for table in plan.tables if plan.tables[table].tt_rows}, verified)
            say(f"twin       {name}: {duration(placement.batch_s)} per batch, one at a time, {rate(placement.rate)} "
                f"samples/s, AUC {placement.auc:.4f}")
            looked.append((placement, bundle, vectors))
        if simulator:
            simulator.wait(say)
        placements = [_again(*each, log, rtl, say) if rtl else each[0] for each in looked]
    return Demo(trace.source, dict(trace.rows), row_bytes, len(samples.learned), len(samples.held), learning.curve[-1],
                device, profile, placements)


class _Samples:
    """A log in memory, split at random: numbers of samples that are learned from and, in the log's order, held out."""

    def __init__(self, options: Options, say: Say):
        for name in ("samples", "dim", "rank", "batch"):
            if getattr(options, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(options, name)}")
        log = open_for(options.logs, options, options.tables)
        trace = Trace.of(log, numbered=True, head=True)
        self.reading = log.reading()
        self.trace, count = trace, min(trace.samples, options.samples)
        self.payload, unused = payload_of(trace, options.label)
        shuffled = np.random.default_rng(SEED).permutation(count)
        self.learned, self.held = shuffled[round(HELD_OUT * count):], np.sort(shuffled[:round(HELD_OUT * count)])
        self.label = self.payload[self.held, -1].view(np.float32)
        if len(set(self.label.tolist())) < 2:
            raise ValueError(f"{trace.source} has {count:,} samples: those held out need labels 0 and 1 both")
        say(f"log        {trace.source}: {count:,} samples{trace.note}, tables "
            + ", ".join(f"{name} of {rows:,} rows" for name, rows in trace.rows.items())
            + f"; {len(self.held):,} samples held out")
        for line in (*log.report(), *([f"not used   {few(unused)}"] if unused else [])):
            say(line)

    def in_parts(self) -> NDArray[np.int64]:
        """Those that are learned from, in parts as large as what is held out, each in the log's order: samples come
        together in them as often as they do in the batches that the card serves."""
        parts = np.array_split(self.learned, max(1, round(len(self.learned) / len(self.held))))
        return np.concatenate([np.sort(part) for part in parts])

    def log(self, samples: NDArray[np.int64]) -> Pieces:
        """Some of the samples as a log, whose ids are the tables' rows."""
        bags = {name: picked(*self.trace.bags(name), samples) for name in self.trace.indices}
        return of_arrays({name: indices for name, (indices, _) in bags.items()},
                         {name: bags[name][1] for name in self.trace.offsets}, source=self.trace.source)


class _Learning:
    """The model after half of its training, from where every placement goes on by itself."""

    def __init__(self, samples: _Samples, dim: int, say: Say):
        self.samples, self._say = samples, say
        random = np.random.default_rng(SEED)
        self._orders = [random.permutation(samples.learned) for _ in range(EPOCHS)]
        self._half = Training(samples.trace, samples.payload, dim, seed=SEED)
        self._curve: list[float] = []
        for number in range(EPOCHS // 2):
            self._epoch(self._half, self._curve, number, "dense rows")
        self.dense, self.curve = self._rest(self._half, "dense rows")

    def placed(self, plan: Plan, profile: Profile) -> tuple[Training, list[float]]:
        """The trained model, and the AUC after each epoch; rows that the plan has as TT rows are learned as such."""
        if not any(table.tt_rows for table in plan.tables.values()):
            return self.dense, self.curve
        training = copy.deepcopy(self._half)
        for name, table in plan.tables.items():
            if table.tt_rows:
                spec, counted, rows = plan.model.tables[name], profile.tables[name], training.tables[name]
                order = by_heat(expected_counts(spec, row_counts(spec, counted), counted))
                warm = np.flatnonzero(table.devices(order) == TT)
                alike = np.empty_like(warm)         # rows that resemble each other are neighbours
                alike[by_similarity(rows[warm])] = warm
                rows.decompose(alike, table.row_modes, table.column_modes, table.ranks)
        return self._rest(training, f"{sum(table.tt_rows for table in plan.tables.values()):,} TT rows")

    def _rest(self, training: Training, what: str) -> tuple[Training, list[float]]:
        training, curve = copy.deepcopy(training), list(self._curve)
        for number in range(EPOCHS // 2, EPOCHS):
            self._epoch(training, curve, number, what)
        return training, curve

    def _epoch(self, training: Training, curve: list[float], number: int, what: str) -> None:
        """All rates fall to nothing in the second half, so that the last batches do not decide."""
        scales = [min(1.0, 2 * (1 - at / EPOCHS)) for at in (number, number + 1)]
        start = time.monotonic()
        with np.errstate(over="ignore", invalid="ignore"):
            training.epoch(self._orders[number], (scales[0], scales[1]))
            score = training.scores(self.samples.held)
        if not np.isfinite(score).all():
            raise ValueError(f"{self.samples.trace.source}: the training diverges; dense features should be of size 1 "
                             "or so")
        taken = time.monotonic() - start
        curve.append(auc(score, self.samples.label))
        self._say(f"training   {what}, epoch {number + 1} of {EPOCHS}: AUC {curve[-1]:.4f} on held-out samples, "
                  + (f"about {taken * (EPOCHS - 1 - number):.0f} s left" if number + 1 < EPOCHS else "done"))


class _Simulator:
    """Builds the twin and the simulator of a preset's EMB core in a process that ends with this one.

    Raises      RuntimeError: there is no Verilator, or no g++
    """

    def __init__(self, preset: str):
        versions()
        self._begun = time.monotonic()
        program = ("import sys, fpga.card, fpga.card.twin; fpga.card.twin.build('emb'); "
                   "fpga.card.open('sim', preset=sys.argv[1]).close()")
        self._thread = threading.Thread(target=call, args=([sys.executable, "-c", program, preset],), kwargs={
            "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL,
            "env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}}, daemon=True)
        self._thread.start()

    def wait(self, say: Say) -> None:
        """Until it is built; an error is that of whoever opens the card then."""
        while self._thread.is_alive():
            taken = time.monotonic() - self._begun
            left = (1 + BUILDS) * twin.build("emb")[1] - taken
            say(f"simulator  of the RTL: being built for {taken:.0f} s, "
                + (f"about {left:.0f} s left" if left > 0 else "which is longer than it mostly takes"))
            self._thread.join(PATIENCE_S)


def _bundle(folder: Path, name: str, plan: Plan, profile: Profile, training: Training) -> Bundle:
    arrays: dict[str, Any] = {key: value for name, table in training.tables.items()
                              for key, value in table.arrays(name).items()}
    np.savez(folder / "trained.npz", **arrays)
    return bundles.write(folder / name, plan, profile, FileWeights(folder / "trained.npz"))


def _looked_up(bundle: Bundle, log: Pieces, samples: int, card: str) -> tuple[Verified, NDArray[np.float32]]:
    """The first samples on a card of a kind, and their vectors (samples, tables, dim)."""
    vectors: list[NDArray[np.float32]] = []
    done = verify(bundle, log, samples, card=card, watch=lambda batch: vectors.append(
        np.stack(list(batch.done.vectors.values()), axis=1)))
    return done, np.concatenate(vectors)


def _again(found: Placement, bundle: Bundle, vectors: NDArray[np.float32], log: Pieces, card: str,
           say: Say) -> Placement:
    """With its first batches on another kind of card, word for word and cycle for cycle."""
    start = time.monotonic()
    done, other = _looked_up(bundle, log, min(SLICE * found.plan.batch, found.whole.samples), card)
    equal = (np.array_equal(other.view(np.uint32), vectors[:len(other)].view(np.uint32))
             and done.each == found.whole.each[:done.batches])
    say(f"RTL        {found.name}: {done.batches} batches, {sum(done.cycles.values()):,} cycles in "
        f"{time.monotonic() - start:.0f} s: " + (
            "every bit and cycle the twin's, every bit the oracle's" if equal and not done.different
            else f"DIFFERENT from the {'oracle: ' + done.different if done.different else 'twin'}"))
    return replace(found, slice=done, equal=equal)
