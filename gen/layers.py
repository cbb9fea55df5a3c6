"""Networks as programs of the MLP core: sizes that fit, images of weights, layouts of inputs and outputs.

A batch is cut into mini-batches whose rows fit the memory on chip. Weights stay on chip where they fit; those that do
not are brought in blocks of column groups beside the computation. A first layer whose rows do not fit is computed in
chunks of its inputs, with partial results on chip.

    resident weights | streamed blocks      in the weights' memory
    biases | partials                       in the addends' memory
    dense rows, features, activations       in the rows' memory, each as long as it is needed

Order of a layer's terms: as in the layer before it; the first top layer has concat: feature 1, .., feature F, then the
bottom's output; dot: the bottom's output, then the pairs as INTERACT packs them, `triangle`. Words that pad a row to
whole beats are zeros, and so are their weights.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.compile import encode
from gen.engines import LATENCY, THROUGHPUT, Full, Load, Op, Schedule, Span, Step, Tiles
from gen.network import Layer, Network
from hw.isa import MLP
from hw.mlp.config import MlpConfig

__all__ = ["Compiler", "Gemm", "Program", "gemms", "triangle"]

TO_ROWS, TO_FEATURE, TO_PARTIAL, TO_MEMORY = range(4)
NOTHING, BIAS, PARTIAL = range(3)
ACTIVATION = {"none": 0, "relu": 1, "sigmoid": 2}
COUNT_MAX, STEPS_MAX, GROUPS_MAX, BEATS_MAX = (
    MLP.field(name).highest for name in ("count", "steps", "groups", "row_beats"))
SAMPLE_GROUPS = 32      # of a mini-batch at most: with more the weights are read no less often to speak of
TRIED = 3               # plans that are compared
CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def triangle(config: MlpConfig, features: int) -> NDArray[np.int64]:
    """(n, 2): the pair of features of every word that INTERACT packs for a sample, -1 where it puts +0."""
    pairs = []
    for group in range(-(-features // config.rows)):
        rows = range(group * config.rows, min(features, (group + 1) * config.rows))
        for block in range(-(-rows[-1] // config.columns)):
            first = block * config.columns
            for row in rows:
                kept = -(-min(max(row - first, 0), config.columns) // config.piece) * config.piece
                pairs += [(row, column if column < row else -1) for column in range(first, first + kept)]
    return np.array(pairs, np.int64).reshape(-1, 2)


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
    return Program(_encoded(schedule.steps), tuple(schedule.steps), count, inputs, outputs, schedule.predict(), macs,
                   schedule)


def _encoded(steps: Sequence[Step]) -> NDArray[np.uint32]:
    words = [encode(step.name, step.values, MLP) for step in steps]
    return np.stack(words) if words else np.zeros((0, MLP.words), np.uint32)


@dataclass(eq=False)
class _Chunk:
    """Part of a layer's terms. order: number of the layer's input that each word is, -1 for padding. first, beats:
    of the loaded row, what is loaded for it. source: of its weights in the image, in beats."""

    order: NDArray[np.int64]
    steps: int
    first: int = 0
    beats: int = 0
    source: int = 0
    resident: Span | None = None


@dataclass(eq=False)
class _Plan:
    """A layer as it is carried out. groups: column groups, padded to whole beats where the next reader needs them.
    block: column groups of a block of weights; slice: those whose partials are on chip at once."""

    name: str
    layer: Layer
    groups: int
    chunks: list[_Chunk]
    bias: Span | None = None
    bias_source: int = 0
    block: int = 0
    slice: int = 0


@dataclass(frozen=True)
class _Sizes:
    """How a network is cut: sample groups of a mini-batch, chunks of the layer that takes loaded rows, operations
    that loads go ahead, mini-batches that go hand in hand, and which mode takes a layer for which both are equal."""

    samples: int
    chunks: int
    window: int
    pair: bool
    prefer: int


class _Image:
    """Lines of weights and addends one behind the other, each piece at the begin of a beat."""

    def __init__(self, config: MlpConfig):
        self.config = config
        self.beats = 0
        self.made: list[tuple[int, Callable[[], NDArray[np.float32]]]] = []

    def add(self, words: int, make: Callable[[], NDArray[np.float32]]) -> int:
        """Where `words` words will lie that `make` makes when the image is wanted."""
        at = self.beats
        self.made.append((at, make))
        self.beats += -(-words // self.config.words)
        return at

    def weights(self, layer: Layer, order: NDArray[np.int64], steps: int, groups: int) -> int:
        """Column groups of `steps` lines each: word column * width + term."""
        config = self.config

        def make() -> NDArray[np.float32]:
            full = np.zeros((steps * config.width, groups * config.columns), np.float32)
            real = order >= 0
            full[np.flatnonzero(real), :layer.outputs] = layer.weights[order[real]]
            return full.reshape(steps, config.width, groups, config.columns).transpose(2, 0, 3, 1)

        return self.add(steps * groups * config.line_words, make)

    def bias(self, layer: Layer, groups: int) -> int:
        def make() -> NDArray[np.float32]:
            full = np.zeros(groups * self.config.columns, np.float32)
            full[:layer.outputs] = layer.bias
            return full

        return self.add(groups * self.config.columns, make)

    def image(self) -> NDArray[np.uint32]:
        if self.beats >= 1 << 32:
            raise ValueError(f"the weights need {self.beats} beats; offsets have 32 bits")
        flat = np.zeros(self.beats * self.config.words, np.float32)
        for at, make in self.made:
            words = make().reshape(-1)
            flat[at * self.config.words:][:len(words)] = words
        return flat.view(np.uint32).reshape(-1, self.config.words)


class Compiler:
    """A network for one core: its image, and programs for batches of any number of samples.

    batch: the number of samples that sizes are chosen for. keep: weights stay on chip where they fit, else a program
    brings all that it uses. sizes: those of a like network, instead of choosing. weights: (beats, words) uint32, the
    image. load: the program that brings what stays on chip; to be run once before any other.
    Raises      ValueError: one sentence that names the layer that does not fit, or a batch that is no positive number
    """

    def __init__(self, network: Network, config: MlpConfig, *, batch: int = 128, keep: bool = True,
                 sizes: "_Sizes | None" = None):
        _count(batch)
        self.network, self.config, self.batch, self.keep = network, config, batch, keep
        self.dense_beats = self._beats(network.inputs)
        self.is_dot = network.interaction == "dot"
        # Beats of a feature, or of all features one behind the other.
        self.sparse_beats = self._beats(network.dim if self.is_dot else network.features * network.dim)
        self.sparse_rows = network.features if self.is_dot else 1
        self.out_beats = self._beats(network.outputs)
        self._check_widths()
        self.sizes = sizes or self._choose(batch)
        self._plan(self.sizes)
        self.weights = self.image.image()

    # What is called.

    @property
    def load(self) -> Program:
        steps = [Step(load.name, load.values | {name: load.span.line + lines for name, lines in load.lines.items()},
                      load.about) for load in self._resident_loads()]
        return Program(_encoded(steps), tuple(steps), 0, 0, 0, sum(load.beats for load in self._resident_loads()), 0)

    def compile(self, count: int, *, cold: bool = False) -> Program:
        """The program for `count` samples. cold: it brings the resident weights too, and needs no `load` before.

        Raises      ValueError: a count that is no positive number, or needs more than 32-bit offsets
        """
        _count(count)
        best = None
        for prefer in (THROUGHPUT, LATENCY):
            for pair in (False, True):
                if pair and count <= self._samples(self.sizes):
                    continue
                found = self._ahead(count, replace(self.sizes, prefer=prefer, pair=pair), cold)
                if found is not None and (best is None or found.predicted < best.predicted):
                    best = found
        if best is None:
            raise ValueError(f"{count} samples do not fit the core as planned for batches of {self.batch}")
        return best

    def inputs(self, dense: ArrayLike, embeddings: ArrayLike | None = None) -> NDArray[np.uint32]:
        """The inputs' buffer (beats, words) of a batch: dense (count, inputs), embeddings (count, features, dim).

        Raises      ValueError: a wrong shape, or values that are no numbers
        """
        network, words = self.network, self.config.words
        x = _given("dense", dense)
        if x.ndim != 2 or x.shape[1] != network.inputs or not len(x):
            raise ValueError(f"dense must have the shape (samples, {network.inputs}), not {x.shape}")
        parts = [_padded(x, self.dense_beats * words)]
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
            rows = e.reshape(len(x) * self.sparse_rows, -1)
            parts.append(_padded(rows, self.sparse_beats * words))
        return np.concatenate([part.reshape(-1, words) for part in parts])

    def results(self, outputs: ArrayLike, count: int) -> NDArray[np.float32]:
        """The results (count, outputs), out of what the core has written."""
        rows = np.ascontiguousarray(outputs).view(np.float32).reshape(-1)[:count * self.out_beats * self.config.words]
        return np.ascontiguousarray(rows.reshape(count, -1)[:, :self.network.outputs])

    # Sizes.

    def _beats(self, words: int) -> int:
        return -(-words // self.config.words)

    def _groups(self, layer: Layer, whole: bool = False) -> int:
        groups = -(-layer.outputs // self.config.columns)
        return self._beats(layer.outputs) * self.config.halves if whole else groups

    def _plan_groups(self, layer: Layer) -> int:
        """Column groups that are computed: where the dot products read a layer's results, whole beats of them."""
        return self._groups(layer, self.is_dot and layer is self.network.bottom[-1])

    def _check_widths(self) -> None:
        config = self.config
        for name, layer in self.network.layers():
            if self._groups(layer, True) > GROUPS_MAX:
                raise ValueError(f"layer {name} has {layer.outputs} outputs; at most "
                                 f"{GROUPS_MAX * config.columns} are possible")
            if layer is not self.network.bottom[0] and not (name == "top 1" and not self.is_dot) and \
                    layer.inputs > STEPS_MAX * config.width:
                raise ValueError(f"layer {name} has {layer.inputs} inputs; at most {STEPS_MAX * config.width} are "
                                 "possible behind another layer")
        biases = sum(self._plan_groups(layer) for _, layer in self.network.layers() if layer.bias is not None)
        if biases > config.addend_lines:
            raise ValueError(f"the biases take {biases} lines of the addends' memory, which has {config.addend_lines}")
        if self.is_dot and self.sparse_beats > BEATS_MAX:
            raise ValueError(f"a feature of {self.network.dim} words takes {self.sparse_beats} beats; at most "
                             f"{BEATS_MAX} are possible")

    def _choose(self, batch: int) -> _Sizes:
        """The sizes with the fewest cycles expected, of the few largest mini-batches that fit."""
        config = self.config
        in_all = -(-batch // config.samples)
        tried: list[int] = []
        for parts in range(1, in_all + 1):
            samples = -(-in_all // parts)
            if samples <= SAMPLE_GROUPS and samples not in tried:
                tried.append(samples)
        best: tuple[int, _Sizes] | None = None
        found, full = 0, None
        for samples in tried:
            fits = False
            for chunks in CHUNKS:
                if chunks > 1 and chunks > self._chunkable():
                    break
                if samples * (self._chunkable() // chunks) > config.row_lines:
                    full = full or Full("rows", samples * (self._chunkable() // chunks))
                    continue
                try:
                    sizes = self._window(_Sizes(samples, chunks, 0, False, THROUGHPUT))
                except Full as error:
                    full = error
                    continue
                count = min(batch, 3 * self._samples(sizes))
                # More chunks than it takes may leave room to load ahead, but they cost a rounding each.
                cycles = self._compile(count, sizes, False).predicted * (batch / count) * (1.01 if fits else 1)
                if best is None or cycles < best[0]:
                    best = (int(cycles), sizes)
                if fits or not self.keep:
                    fits = True
                    break
                fits = True
            found += fits
            if found == TRIED:
                break
        if best is None:
            assert full is not None
            raise ValueError(f"the network does not fit: the {full.space}' memory has no {full.lines} lines left, with "
                             f"mini-batches of {config.samples} samples")
        return best[1]

    def _window(self, sizes: _Sizes) -> _Sizes:
        """Sizes whose loads go as far ahead as fits."""
        self._plan(sizes)
        count = min(self.batch, 3 * self._samples(sizes))
        one = sum(1 for _ in self._operations(0, min(count, self._samples(sizes)), count, sizes))
        with self._held(True):
            ops = self.operations(count, sizes)
            self._schedule(ops, 0)
            for window in (2 * one, one, max(one // 2, 1), 2, 1):
                try:
                    self._schedule(ops, window)
                    return replace(sizes, window=window)
                except Full:
                    pass
        return sizes

    def _schedule(self, ops: Sequence[Op], window: int) -> Schedule:
        return Schedule(self.config, ops, window=window,
                        starts={"weights": self.resident_lines, "addends": self.bias_lines})

    def _samples(self, sizes: _Sizes) -> int:
        return min(sizes.samples * self.config.samples, COUNT_MAX)

    def _chunkable(self) -> int:
        """Beats of the widest loaded row: chunks that there can be."""
        return max(self.dense_beats, 1 if self.is_dot else self.sparse_beats)

    def _plan(self, sizes: _Sizes) -> None:
        """Chunks, blocks, which weights stay, and the image."""
        config, network = self.config, self.network
        plans = []
        self.modes: dict[tuple[str, int, int], int] = {}
        layers = list(network.layers())
        for number, (name, layer) in enumerate(layers):
            is_joined = name == "top 1"
            if number == 0:
                chunks = self._loaded(np.arange(layer.inputs), self.dense_beats, sizes.chunks, None)
            elif is_joined and not self.is_dot:
                own = network.bottom[-1].outputs
                chunks = self._loaded(own + np.arange(layer.inputs - own), self.sparse_beats, sizes.chunks,
                                      np.arange(own))
            elif is_joined:
                own = network.bottom[-1].outputs
                pairs = triangle(config, network.features + 1)
                row, column = pairs.T
                order = np.full(self._beats(own) * config.words, -1)
                order[:own] = np.arange(own)
                order = np.concatenate([order, np.where(column < 0, -1, own + row * (row - 1) // 2 + column)])
                chunks = [self._chunk(order)]
            else:
                chunks = [self._chunk(np.arange(layer.inputs))]
            plans.append(_Plan(name, layer, self._plan_groups(layer), chunks))
        self.plans = plans
        self._keep()
        image, line = _Image(config), 0
        for plan in plans:
            for chunk in plan.chunks:
                chunk.source = image.weights(plan.layer, chunk.order, chunk.steps, plan.groups)
                if chunk.resident is not None:
                    chunk.resident.loads = [self._weights_load(plan, chunk, chunk.resident, 0, plan.groups)]
            if plan.layer.bias is not None:
                plan.bias = Span("addends", plan.groups, line=line, fixed=True)
                plan.bias_source = image.bias(plan.layer, plan.groups)
                plan.bias.loads = [Load("LOAD_ADDENDS", plan.bias,
                                        {"count": plan.groups, "source": plan.bias_source}, {"addend_line": 0},
                                        f"biases of layer {plan.name}", -(-plan.groups // config.halves))]
                line += plan.groups
        self.bias_lines = line
        self.image = image
        room = config.addend_lines - line
        for plan in plans:
            plan.slice = plan.groups
            if len(plan.chunks) > 1:
                most = room // (sizes.samples * config.rows) // config.units * config.units
                if most < 1:
                    raise Full("addends", sizes.samples * config.rows * config.units)
                plan.slice = min(plan.groups, most)

    def _chunk(self, order: NDArray[np.int64], first: int = 0, beats: int = 0) -> _Chunk:
        return _Chunk(order, -(-len(order) // self.config.width), first, beats)

    def _loaded(self, order: NDArray[np.int64], beats: int, chunks: int, behind: NDArray[np.int64] | None
                ) -> list[_Chunk]:
        """Chunks of rows that are loaded, `order` being the layer's inputs in them; `behind`: inputs that are made on
        chip and lie behind the last chunk."""
        words = self.config.words
        most = min(STEPS_MAX * self.config.width // words, self.config.weight_lines * self.config.width // words,
                   BEATS_MAX)
        extra = self._beats(len(behind)) if behind is not None else 0
        chunks = min(beats, max(chunks, -(-(beats + extra) // most)))
        cuts = [beats * number // chunks for number in range(chunks + 1)]
        found = []
        for number, (start, end) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
            part = order[start * words:end * words]
            if number == chunks - 1 and behind is not None:
                part = np.concatenate([part, np.full((end - start) * words - len(part), -1), behind])
            found.append(self._chunk(part, start, end - start))
        return found

    def _keep(self) -> None:
        """Which weights stay on chip: all, or the smallest layers', the rest of the memory taking blocks."""
        config = self.config

        def lines(plan: _Plan) -> int:
            return sum(-(-plan.groups // config.units) * chunk.steps for chunk in plan.chunks)

        order = sorted(self.plans, key=lines)
        kept, total = list(order), sum(lines(plan) for plan in order)
        area = 0
        while kept and (total + area > config.weight_lines or not self.keep):
            plan = kept.pop()
            total -= lines(plan)
            least = max(chunk.steps for plan in order[len(kept):] for chunk in plan.chunks)
            if least > config.weight_lines:
                raise Full("weights", least)
            # Three blocks at least, so that one is computed with while the next is brought, if there is room.
            area = min(max(3 * least, config.weight_lines // 4), config.weight_lines)
        line = 0
        for plan in self.plans:
            is_kept = plan in kept
            for chunk in plan.chunks:
                own = -(-plan.groups // config.units) * chunk.steps
                if is_kept:
                    chunk.resident = Span("weights", own, line=line, fixed=True)
                    line += own
            plan.block = plan.groups
            if not is_kept:
                most = max(chunk.steps for chunk in plan.chunks)
                plan.block = max(1, (config.weight_lines - total) // 3 // most) * config.units
        self.resident_lines = line

    def _weights_load(self, plan: _Plan, chunk: _Chunk, span: Span, first: int, groups: int) -> Load:
        beats = chunk.steps * self.config.line_beats
        part = "" if groups == plan.groups else f", outputs {first * self.config.columns} on"
        return Load("LOAD_WEIGHTS", span, {"count": groups, "source": chunk.source + first * beats,
                                           "steps": chunk.steps}, {"weight_line": 0},
                    f"weights of layer {plan.name}{part}", groups * beats)

    def _resident_loads(self) -> Iterator[Load]:
        for plan in self.plans:
            for chunk in plan.chunks:
                if chunk.resident is not None:
                    yield from chunk.resident.loads
            if plan.bias is not None:
                yield from plan.bias.loads

    # Operations.

    def _ahead(self, count: int, sizes: _Sizes, cold: bool) -> Program | None:
        """The program whose loads go as far ahead as the sizes say, or as there is room; None if there is none."""
        while True:
            try:
                return self._compile(count, sizes, cold)
            except Full:
                if not sizes.window:
                    return None
                sizes = replace(sizes, window=sizes.window // 2)

    def operations(self, count: int, sizes: _Sizes | None = None) -> list[Op]:
        """All operations of a batch, in order."""
        sizes = sizes or self.sizes
        most = self._samples(sizes)
        ops: list[Op] = []
        batches = [list(self._operations(start, min(most, count - start), count, sizes))
                   for start in range(0, count, most)]
        step = 2 if sizes.pair else 1
        for at in range(0, len(batches), step):
            together = batches[at:at + step]
            for number in range(max(len(batch) for batch in together)):
                ops += [batch[number] for batch in together if number < len(batch)]
        return ops

    def _compile(self, count: int, sizes: _Sizes, cold: bool) -> Program:
        with self._held(cold):
            return _program(self._schedule(self.operations(count, sizes), sizes.window), count,
                            count * (self.dense_beats + self.sparse_rows * self.sparse_beats),
                            count * self.out_beats, count * self.network.macs)

    @contextmanager
    def _held(self, cold: bool) -> Iterator[None]:
        """While a program is made that finds the resident weights on chip, or (cold) brings them."""
        held = [] if cold else [(load.span, load.span.loads) for load in self._resident_loads()]
        for span, _ in held:
            span.loads = []
        try:
            yield
        finally:
            for span, loads in held:
                span.loads = loads

    def _operations(self, start: int, count: int, in_all: int, sizes: _Sizes) -> Iterator[Op]:
        """The operations of one mini-batch, samples `start` on."""
        config, network = self.config, self.network
        samples = -(-count // config.samples)
        where = f"samples {start} to {start + count - 1}"
        mini = _Mini(self, start, count, in_all, samples, where, sizes.prefer)
        rows: Span | None = None
        bottoms = self.plans[:len(network.bottom)]
        for plan in bottoms[:-1]:
            to = Span("rows", self._beats(plan.groups * config.columns) * samples, samples)
            yield from mini.layer(plan, rows, None, to, 0, {"target": TO_ROWS})
            rows = to
        last = bottoms[-1]
        if network.interaction == "none":
            yield from mini.layer(last, rows, None, None, 0, self._to_memory(start))
            return
        own = self._beats(last.groups * config.columns)
        tops = self.plans[len(network.bottom):]
        if self.is_dot:
            features = network.features + 1
            groups = -(-features // config.rows)
            apart = groups * self.sparse_beats
            held = Span("rows", samples * config.rows * apart, apart)
            source = in_all * self.dense_beats + start * self.sparse_rows * self.sparse_beats
            held.loads = [Load("LOAD_ROWS", held, {
                "features_in": 1, "count": count, "source": source, "stride": self.sparse_beats,
                "row_beats": self.sparse_beats, "features": network.features, "feature": 1, "apart": apart},
                {"line": 0}, f"features, {where}", count * network.features * self.sparse_beats)]
            pairs = self._beats(len(triangle(config, features)))
            joined = Span("rows", (own + pairs) * samples, samples)
            # As a feature first: while the same layer runs once more, for the top, the last features are written.
            yield from mini.layer(last, rows, None, held, 0, {"target": TO_FEATURE, "feature": 0})
            yield from mini.layer(last, rows, None, joined, 0, {"target": TO_ROWS})
            shapes = []
            for group in range(groups):
                for block in range(-(-(min(features, (group + 1) * config.rows) - 1) // config.columns)):
                    clash = any(other < group and (group - other) % config.pieces == 0
                                for other in (2 * block, 2 * block + 1))
                    shapes.append(max(config.rows, self.sparse_beats * config.words // config.width * (1 + clash)))
            yield Op("INTERACT", {"count": count, "row_beats": self.sparse_beats, "features": features, "apart": apart,
                                  "to_apart": samples},
                     {"line": (held, 0), "to_line": (joined, own * samples)}, f"dot products, {where}", [held],
                     [joined], shapes)
            parts = None
            rows = joined
        else:
            parts = [Span("rows", chunk.beats * samples, samples) for chunk in tops[0].chunks]
            beats = tops[0].chunks[-1].beats
            parts[-1].lines += own * samples
            yield from mini.layer(last, rows, None, parts[-1], beats * samples, {"target": TO_ROWS})
            rows = None
        for plan in tops:
            if plan is tops[-1]:
                yield from mini.layer(plan, rows, parts, None, 0, self._to_memory(start))
                return
            to = Span("rows", self._beats(plan.groups * config.columns) * samples, samples)
            yield from mini.layer(plan, rows, parts, to, 0, {"target": TO_ROWS})
            rows, parts = to, None

    def _to_memory(self, start: int) -> dict[str, int]:
        return {"target": TO_MEMORY, "out": start * self.out_beats, "out_stride": self.out_beats}


@dataclass
class _Mini:
    """Makes the operations of a mini-batch's layers."""

    compiler: Compiler
    start: int
    count: int
    in_all: int
    samples: int
    where: str
    prefer: int
    held: dict[tuple[int, int], Span] = field(default_factory=dict)

    def layer(self, plan: _Plan, rows: Span | None, parts: Sequence[Span] | None, to: Span | None, to_lines: int,
              target: dict[str, int]) -> Iterator[Op]:
        """The operations of a layer whose rows are `rows`, or loaded: into `parts` if something else goes there too.

        to, to_lines: where its results go on chip. target: the fields that say so.
        """
        config, layer = self.compiler.config, plan.layer
        known = self.compiler.modes
        key = plan.name, self.count, self.prefer
        mode = known[key] = known[key] if key in known else self._mode(plan)
        is_chunked = len(plan.chunks) > 1
        for first in range(0, plan.groups, plan.slice):
            groups = min(plan.slice, plan.groups - first)
            partials = Span("addends", -(-groups // config.units) * config.units * self.samples * config.rows)
            for number, chunk in enumerate(plan.chunks):
                source = rows if rows is not None else self._load(plan, chunk, number, first, parts)
                is_last = number == len(plan.chunks) - 1
                for begin in range(first, first + groups, plan.block):
                    size = min(plan.block, first + groups - begin)
                    ends = begin + size == plan.groups
                    tail = layer.outputs - (plan.groups - 1) * config.columns if ends else config.columns
                    values = {"mode": mode, "count": self.count, "apart": source.apart, "steps": chunk.steps,
                              "groups": size, "tail": min(max(tail, 1), config.columns)}
                    spans: dict[str, tuple[Span, int]] = {"line": (source, 0)}
                    writes: list[Span] = []
                    spans["weight_line"] = self._weights(plan, chunk, begin, size)
                    at = (begin - first) * self.samples * config.rows
                    if number:
                        values["addend"] = PARTIAL
                        spans["addend_line"] = (partials, at)
                    elif plan.bias is not None:
                        values["addend"] = BIAS
                        spans["addend_line"] = (plan.bias, begin)
                    if not is_last:
                        values["target"] = TO_PARTIAL
                        spans["to_line"] = (partials, at)
                    else:
                        values |= target | {"activation": ACTIVATION[layer.activation]}
                        beat = begin // config.halves
                        if to is None:
                            values["out"] += beat
                        else:
                            apart = 1 if target["target"] == TO_FEATURE else to.apart
                            values["to_apart"] = to.apart
                            spans["to_line"] = (to, to_lines + beat * apart)
                            writes = [to]
                    about = f"layer {plan.name}, {self.where}"
                    if is_chunked or size < plan.groups:
                        about += f", inputs {chunk.first * config.words} on, outputs {begin * config.columns} on"
                    yield Op("LAYER", values, spans, about, [source], writes)

    def _mode(self, plan: _Plan) -> int:
        """The mode in which the layer takes fewer slots."""
        found = []
        for mode in (self.prefer, 1 - self.prefer):
            slots = 0
            for chunk in plan.chunks:
                for begin in range(0, plan.groups, plan.block):
                    op = Op("LAYER", {"mode": mode, "count": self.count, "steps": chunk.steps,
                                      "groups": min(plan.block, plan.groups - begin)}, {}, "", ())
                    slots += Tiles(self.compiler.config, op).in_all
            found.append((slots, mode))
        return min(found, key=lambda item: item[0])[1]

    def _weights(self, plan: _Plan, chunk: _Chunk, begin: int, groups: int) -> tuple[Span, int]:
        compiler = self.compiler
        if chunk.resident is not None:
            return chunk.resident, begin // compiler.config.units * chunk.steps
        key = (id(chunk), begin)
        if key not in self.held or self.held[key].lines < 0:
            span = Span("weights", -(-groups // compiler.config.units) * chunk.steps)
            span.loads = [compiler._weights_load(plan, chunk, span, begin, groups)]
            self.held[key] = span
        return self.held[key], 0

    def _load(self, plan: _Plan, chunk: _Chunk, number: int, first: int, parts: Sequence[Span] | None) -> Span:
        """The span that holds the rows of a chunk."""
        compiler = self.compiler
        is_dense = plan is compiler.plans[0]
        beats = compiler.dense_beats if is_dense else compiler.sparse_beats
        base = 0 if is_dense else self.in_all * compiler.dense_beats
        what = "dense rows" if is_dense else "features"
        if parts is not None and (first == 0 or number == len(plan.chunks) - 1):
            span = parts[number]
            if span.loads:
                return span
        else:
            span = Span("rows", chunk.beats * self.samples, self.samples)
        span.loads = [Load("LOAD_ROWS", span, {
            "count": self.count, "source": base + self.start * beats + chunk.first, "stride": beats,
            "row_beats": chunk.beats, "features": 1, "apart": span.apart}, {"line": 0},
            f"{what}, {self.where}", self.count * chunk.beats)]
        return span


@dataclass(frozen=True, eq=False)
class Gemm:
    """A program of matrix products, its images and where its results lie."""

    program: Program
    inputs: NDArray[np.uint32]
    weights: NDArray[np.uint32]
    shapes: tuple[tuple[int, int, int], ...]    # samples, outputs, first beat of the outputs
    beat_words: int

    def results(self, outputs: ArrayLike) -> list[NDArray[np.float32]]:
        flat, found = np.ascontiguousarray(outputs).view(np.float32).reshape(-1, self.beat_words), []
        for count, width, first in self.shapes:
            beats = -(-width // self.beat_words)
            found.append(flat[first:first + count * beats].reshape(count, -1)[:, :width].copy())
        return found


def gemms(pairs: Sequence[tuple[ArrayLike, ArrayLike]], config: MlpConfig) -> Gemm:
    """Matrix products x @ w, one behind the other, each loaded while the one before is computed.

    Raises      ValueError: a product that does not fit, shapes that do not go together
    """
    known: dict[tuple[int, ...], _Sizes] = {}
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
            if op.values["target"] == TO_MEMORY:
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
        out += shape[0] * compiler.out_beats
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


def _padded(rows: NDArray[np.float32], words: int) -> NDArray[np.uint32]:
    full = np.zeros((len(rows), words), np.uint32)
    full[:, :rows.shape[1]] = rows.view(np.uint32)
    return full
