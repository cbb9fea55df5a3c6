"""Networks as programs of the MLP core: sizes that fit, images of weights, layouts of inputs and outputs.

A batch is cut into mini-batches whose rows fit the memory on chip (gen.compiler.mlp_tiling: where weights lie;
gen.compiler.mlp_lowering:
what is done with them; gen.compiler.mlp_schedule: in which order, and who waits for whom).

Order of a layer's terms: as in the layer before it; the first top layer has concat: feature 1, .., feature F, then the
bottom's output (first and by itself, where the features' rows are cut into chunks); dot: the bottom's output, then the
pairs as INTERACT packs them. Words that pad a row to whole beats are zeros, and so are their weights.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.compiler.emb import encode
from gen.compiler.mlp_lowering import MiniBatch
from gen.compiler.mlp_operations import LATENCY, THROUGHPUT, Op, Step
from gen.compiler.mlp_schedule import Full, Schedule
from gen.compiler.mlp_tiling import Halves, Plan, Sizes, widest_row
from gen.model.network import Network
from hw.isa import MLP
from hw.isa.mlp import TARGET
from hw.mlp.config import MlpConfig

__all__ = ["Compiler", "Gemm", "Program", "gemms"]

ALONE = 1.001           # cycles over slots below which no mini-batches go hand in hand
COUNT_MAX = MLP.field("count").highest
SAMPLE_GROUPS = 32      # of a mini-batch at most: with more the weights are read no less often to speak of
TRIED = 4               # sizes of mini-batches that are compared
WORSE = 3               # numbers of chunks that are tried after one that was better
CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True, eq=False)
class Program:
    """What a run needs beside the network's image.

    words: (instructions, 16) uint32. count: samples. steps: the instructions with names and values, and what each
    is about. predicted: about how many cycles it takes. macs: multiplications that it is asked for.
    """

    words: NDArray[np.uint32]
    steps: tuple[Step, ...]
    count: int
    inputs_beats: int
    outputs_beats: int
    issued: int
    predicted: int
    macs: int
    schedule: Schedule | None = None

    @property
    def slots(self) -> int:
        """Slots that its tiles take: a lower bound of its cycles."""
        return sum(tiles.in_all for tiles in self.schedule.tiles) if self.schedule else 0


def _program(schedule: Schedule, count: int, inputs: int, outputs: int, macs: int) -> Program:
    for what, beats in (("inputs", inputs), ("outputs", outputs)):
        if beats >= 1 << 32:
            raise ValueError(f"the batch needs {beats} beats of {what}; offsets have 32 bits")
    return Program(_encoded(schedule.steps), tuple(schedule.steps), count, inputs, outputs, *schedule.predict(), macs,
                   schedule)


def _encoded(steps: Sequence[Step]) -> NDArray[np.uint32]:
    words = [encode(step.name, step.values, MLP) for step in steps]
    return np.stack(words) if words else np.zeros((0, MLP.words), np.uint32)


class Compiler:
    """A network for one core: its image, and programs for batches of any number of samples.

    batch: the number of samples that sizes are chosen for. keep: weights stay on chip where they fit, else a program
    brings all that it uses. sizes: those of a like network, instead of choosing. dense, features: formats of dense rows
    and of features in the inputs, float32 or float16. weights: (beats, words) uint32, the image.
    Raises      ValueError: one sentence that names the layer that does not fit, a batch that is no positive number, or
                a format that there is not
    """

    def __init__(self, network: Network, config: MlpConfig, *, batch: int = 128, keep: bool = True,
                 sizes: Sizes | None = None, dense: str = "float32", features: str = "float32"):
        _count(batch)
        self.half = Halves.of(dense=dense, features=features)
        self.network, self.config, self.batch, self.keep = network, config, batch, keep
        self.sizes = sizes or self._choose()
        self.plan = Plan(network, config, self.sizes, keep, self.half)
        self.weights = self.plan.image.image()

    @property
    def load(self) -> Program:
        """The program that brings what stays on chip; to be run once before any other."""
        loads = list(self.plan.resident_loads())
        steps = [Step(load.name, load.values | {name: load.span.line + lines for name, lines in load.lines.items()},
                      load.about) for load in loads]
        beats = sum(load.cycles for load in loads)
        return Program(_encoded(steps), tuple(steps), 0, 0, 0, beats, beats, 0)

    def compile(self, count: int, *, cold: bool = False, mode: str | None = None) -> Program:
        """The program for `count` samples. cold: it brings the resident weights too, and needs no `load` before.
        mode: throughput or latency for all layers; None: for each what takes fewer slots.

        Raises      ValueError: a count that is no positive number, or needs more than 32-bit offsets
        """
        _count(count)
        if mode is not None and mode not in MLP.modes:
            raise ValueError(f"mode must be one of {', '.join(MLP.modes)}, not {mode!r}")
        forced = None if mode is None else MLP.modes.index(mode)
        best = None
        for prefer in (THROUGHPUT, LATENCY) if mode is None else (forced or 0,):
            slots = None
            for pair in (0, *self._pairs(count)):
                candidate = self._ahead(count, replace(self.sizes, prefer=prefer, pair=pair, mode=forced), cold)
                if candidate is None or slots is not None and candidate.slots > slots:
                    continue
                slots = slots or candidate.slots
                if best is None or candidate.predicted < best.predicted:
                    best = candidate
                if candidate.predicted < ALONE * candidate.slots:
                    break
        if best is None:
            raise ValueError(f"{count} samples do not fit the core as planned for batches of {self.batch}")
        return best

    def inputs(self, dense: ArrayLike, embeddings: ArrayLike | None = None) -> NDArray[np.uint32]:
        """The inputs' buffer (beats, words) of a batch: dense (count, inputs), embeddings (count, features, dim). What
        goes as float16 is rounded to nearest even, and is infinite past its largest number.

        Raises      ValueError: a wrong shape, or values that are no numbers
        """
        network, words = self.network, self.config.words
        x = _given("dense", dense)
        if x.ndim != 2 or x.shape[1] != network.inputs or not len(x):
            raise ValueError(f"dense must have the shape (samples, {network.inputs}), not {x.shape}")
        parts = [_stored(x, self.plan.dense_stored * words, self.half.dense)]
        if network.interaction == "none":
            if embeddings is not None:
                raise ValueError("the network has no sparse features, so embeddings must be None")
        else:
            if embeddings is None:
                raise ValueError(f"the network has {network.features} sparse features: embeddings are missing")
            e = _given("embeddings", embeddings)
            if e.shape == (len(x), network.features * network.dim):
                e = e.reshape(len(x), network.features, network.dim)
            if e.shape != (len(x), network.features, network.dim):
                raise ValueError(f"embeddings must have the shape ({len(x)}, {network.features}, {network.dim}), not "
                                 f"{e.shape}")
            rows = e.reshape(len(x) * self.plan.sparse_rows, -1)
            parts.append(_stored(rows, self.plan.sparse_stored * words, self.half.features))
        return np.concatenate([part.reshape(-1, words) for part in parts])

    def results(self, outputs: ArrayLike, count: int) -> NDArray[np.float32]:
        """The results (count, outputs), out of what the core has written."""
        words = count * self.plan.out_beats * self.config.words
        rows = np.ascontiguousarray(outputs).view(np.float32).reshape(-1)[:words]
        return np.ascontiguousarray(rows.reshape(count, -1)[:, :self.network.outputs])

    def operations(self, count: int, sizes: Sizes | None = None) -> list[Op]:
        """All operations of a batch, in order."""
        sizes = sizes or self.sizes
        most = sizes.pair or self._samples(sizes)
        batches: list[list[Op]] = []
        modes: dict[int, dict[str, int]] = {}
        for start in range(0, count, most):
            size = min(most, count - start)
            batches.append(list(MiniBatch(self.plan, start, size, count, sizes,
                                          modes.setdefault(size, {})).operations()))
        step, ops = 2 if sizes.pair else 1, []
        for at in range(0, len(batches), step):
            together = batches[at:at + step]
            for number in range(max(len(batch) for batch in together)):
                ops += [batch[number] for batch in together if number < len(batch)]
        return ops

    # Sizes.

    def _choose(self) -> Sizes:
        """The sizes with the fewest cycles expected, of the few largest mini-batches that fit."""
        config, batch = self.config, self.batch
        in_all = -(-batch // config.samples)
        tried: list[int] = []
        for parts in range(1, in_all + 1):
            samples = -(-in_all // parts)
            if samples <= SAMPLE_GROUPS and samples not in tried:
                tried.append(samples)
        best: tuple[float, Sizes] | None = None
        widest = widest_row(self.network, config)
        fitting, full = 0, Full("rows", 0)
        for samples in tried:
            own: float | None = None
            worse, enough = 0, False
            for chunks in CHUNKS:
                try:
                    cycles, sizes, is_ahead = self._try(Sizes(samples, chunks))
                except Full as error:
                    full = error
                else:
                    # More chunks leave room to load ahead, but each costs a rounding.
                    enough = is_ahead or not self.keep
                    if own is None or cycles < 0.99 * own:
                        own, worse = cycles, 0
                        if best is None or cycles < best[0]:
                            best = cycles, sizes
                    else:
                        worse += 1
                if chunks >= widest or worse == WORSE or enough:
                    break
            fitting += own is not None
            if fitting == TRIED:
                break
        if best is None:
            raise ValueError(f"the network does not fit: the {full.space}' memory has no {full.lines} lines left, with "
                             f"mini-batches of {config.samples} samples")
        return best[1]

    def _try(self, sizes: Sizes) -> tuple[float, Sizes, bool]:
        """Cycles of a batch when cut so; its loads go as far ahead as there is room, a mini-batch at least: whether
        there is. How the batch ends does not count, so that a row of batches is what it is good at. Raises Full."""
        widest = widest_row(self.network, self.config)
        if sizes.samples * (widest // sizes.chunks) > self.config.row_lines:
            raise Full("rows", sizes.samples * (widest // sizes.chunks))
        self.plan = Plan(self.network, self.config, sizes, self.keep, self.half)
        count = min(self.batch, 3 * self._samples(sizes))
        with self._held(True):
            ops = self.operations(count, sizes)
            self._schedule(ops, 0)
            one = -(-len(ops) * self._samples(sizes) // count)      # of a mini-batch
            for window in (2 * one, one, max(one // 2, 1), 2, 1):
                try:
                    self._schedule(ops, window)
                    sizes = replace(sizes, window=window)
                    break
                except Full:
                    pass
        return self._compile(count, sizes, False).issued * (self.batch / count), sizes, sizes.window >= one

    def _pairs(self, count: int) -> list[int]:
        """Samples of each of two mini-batches that could go hand in hand: of as many as fit, and of half of them, in
        whole groups or, for latency mode, in whole arrays."""
        most = min(count, self._samples(self.sizes))
        halves = {-(-most // (2 * step)) * step for step in (self.config.samples, self.config.rows)}
        return sorted((size for size in {most, *halves} if size < count), reverse=True)

    def _samples(self, sizes: Sizes) -> int:
        return min(sizes.samples * self.config.samples, COUNT_MAX)

    def _ahead(self, count: int, sizes: Sizes, cold: bool) -> Program | None:
        """The program whose loads go as far ahead as the sizes say, or as there is room; None if there is none."""
        while True:
            try:
                return self._compile(count, sizes, cold)
            except Full:
                if not sizes.window:
                    return None
                sizes = replace(sizes, window=sizes.window // 2)

    def _schedule(self, ops: Sequence[Op], window: int) -> Schedule:
        return Schedule(self.config, ops, window=window,
                        starts={"weights": self.plan.resident_lines, "addends": self.plan.bias_lines})

    def _compile(self, count: int, sizes: Sizes, cold: bool) -> Program:
        with self._held(cold):
            return _program(self._schedule(self.operations(count, sizes), sizes.window), count,
                            count * self.plan.inputs_beats, count * self.plan.out_beats, count * self.network.macs)

    @contextmanager
    def _held(self, cold: bool) -> Iterator[None]:
        """While a program is made that finds the resident weights on chip, or (cold) brings them."""
        held = [] if cold else [(load.span, load.span.loads) for load in self.plan.resident_loads()]
        for span, _ in held:
            span.loads = []
        try:
            yield
        finally:
            for span, loads in held:
                span.loads = loads


@dataclass(frozen=True, eq=False)
class Gemm:
    """A program of matrix products, its images and where its results lie."""

    program: Program
    inputs: NDArray[np.uint32]
    weights: NDArray[np.uint32]
    shapes: tuple[tuple[int, int, int], ...]    # samples, outputs, first beat of the outputs
    beat_words: int

    def results(self, outputs: ArrayLike) -> list[NDArray[np.float32]]:
        flat, results = np.ascontiguousarray(outputs).view(np.float32).reshape(-1, self.beat_words), []
        for count, width, first in self.shapes:
            beats = -(-width // self.beat_words)
            results.append(flat[first:first + count * beats].reshape(count, -1)[:, :width].copy())
        return results


def gemms(pairs: Sequence[tuple[ArrayLike, ArrayLike]], config: MlpConfig) -> Gemm:
    """Matrix products x @ w, one behind the other, each loaded while the one before is computed.

    Raises      ValueError: a product that does not fit, shapes that do not go together
    """
    known: dict[tuple[int, ...], Sizes] = {}
    ops: list[Op] = []
    inputs, weights, shapes = [], [], []
    held, image, out, macs = 0, 0, 0, 0
    for number, (x, w) in enumerate(pairs):
        try:
            network = Network.gemm(w)
            shape = (len(np.asarray(x)), network.inputs, network.outputs)
            compiler = Compiler(network, config, batch=shape[0], keep=False, sizes=known.get(shape))
            rows = compiler.inputs(x)
        except ValueError as error:
            raise ValueError(f"product {number}: {error}") from None
        known[shape] = compiler.sizes
        for op in compiler.operations(shape[0]):
            if op.values["target"] == TARGET.MEMORY:
                op.values["out"] += out
            for load in {id(load): load for span in op.all_spans() for load in span.loads if load.needed < 0}.values():
                load.values["source"] += held if load.is_rows else image
                load.needed = 0     # moved once; the schedule sets it anew
                load.about = f"{load.about}, product {number}"
            op.about = f"{op.about}, product {number}"
            ops.append(op)
        inputs.append(rows)
        weights.append(compiler.weights)
        shapes.append((shape[0], network.outputs, out))
        held, image = held + len(rows), image + len(compiler.weights)
        out += shape[0] * compiler.plan.out_beats
        macs += shape[0] * network.macs
    empty = np.zeros((0, config.words), np.uint32)
    for window in (4, 3, 2, 1, 0):
        try:
            schedule = Schedule(config, ops, window=window)
        except Full:
            if window == 0:
                raise
            continue
        program = _program(schedule, sum(shape[0] for shape in shapes), held, out, macs)
        return Gemm(program, np.concatenate([empty, *inputs]), np.concatenate([empty, *weights]), tuple(shapes),
                    config.words)
    raise AssertionError


def _count(batch: int) -> None:
    if isinstance(batch, bool) or not isinstance(batch, int | np.integer) or batch < 1:
        raise ValueError(f"a batch has 1 sample or more, not {batch!r}")


def _given(what: str, array: ArrayLike) -> NDArray[np.float32]:
    given = np.asarray(array)
    if given.dtype.kind not in "fiu":
        raise ValueError(f"{what} must be numbers, not {given.dtype}")
    return np.ascontiguousarray(given, np.float32)


def _stored(rows: NDArray[np.float32], words: int, half: int) -> NDArray[np.uint32]:
    """Rows of `words` words of 32 bits as they lie in the inputs, zeros behind their values."""
    full = np.zeros((len(rows), words * (1 + half)), np.float16 if half else np.float32)
    with np.errstate(over="ignore"):
        full[:, :rows.shape[1]] = rows
    return full.view(np.uint32)
