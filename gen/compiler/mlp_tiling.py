"""How the layers of a network are cut for an MLP core, and where their weights lie.

    resident weights | streamed blocks      in the weights' memory
    biases | partials                       in the addends' memory

Weights stay on chip where they fit; those that do not are brought in blocks of column groups. A layer whose loaded rows
do not fit is computed in chunks of its inputs, with partial results on chip.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gen.compiler.mlp_operations import Load, Span
from gen.compiler.mlp_schedule import Full
from gen.model.network import Layer, Network
from golden.mlp.order import triangle
from golden.mlp.program import stored_beats
from hw.isa import MLP
from hw.mlp.config import MlpConfig

#: Formats in which dense rows and features lie in the inputs.
INPUTS = ("float32", "float16")

STEPS_MAX, GROUPS_MAX, BEATS_MAX = (MLP.field(name).highest for name in ("steps", "groups", "row_beats"))


def widest_row(network: Network, config: MlpConfig) -> int:
    """Beats of the widest row that is loaded and can be cut: chunks that there can be."""
    sparse = network.features * network.dim if network.interaction == "concat" else 1
    return -(-max(network.inputs, sparse) // config.words)


@dataclass(frozen=True)
class Sizes:
    """How a network is cut: sample groups of a mini-batch, chunks of the layer that takes loaded rows, operations
    that loads go ahead, samples of each of two mini-batches that go hand in hand (0: they go one by one), which mode
    takes a layer for which both are equal, and which one takes all layers (None: the better one for each)."""

    samples: int
    chunks: int
    window: int = 0
    pair: int = 0
    prefer: int = 0
    mode: int | None = None


class Halves(NamedTuple):
    """Whether dense rows, and features, lie in the inputs as binary16 words: 0 or 1."""

    dense: int = 0
    features: int = 0

    @classmethod
    def of(cls, **formats: str) -> "Halves":
        """Of the formats `dense` and `features`. Raises ValueError: another one than INPUTS"""
        for name, form in formats.items():
            if form not in INPUTS:
                raise ValueError(f"{name} must be {' or '.join(INPUTS)}, not {form!r}")
        return cls(**{name: INPUTS.index(form) for name, form in formats.items()})


@dataclass(eq=False)
class Chunk:
    """Part of a layer's terms. order: number of the layer's input that each word is, -1 for padding. first, beats:
    of the loaded row, what is loaded for it; no beats: all of it is made on chip. source: of its weights in the image,
    in beats. resident: where those of the layer's `kept` column groups are."""

    order: NDArray[np.int64]
    steps: int
    first: int = 0
    beats: int = 0
    source: int = 0
    resident: Span | None = None


@dataclass(eq=False)
class LayerPlan:
    """A layer as it is carried out. groups: column groups, padded to whole beats where the next reader needs them.
    kept: those, from the first on, whose weights stay on chip; block: of the others, those that are brought at once;
    slice: those whose partials are on chip at once."""

    name: str
    layer: Layer
    groups: int
    chunks: list[Chunk]
    bias: Span | None = None
    kept: int = 0
    block: int = 0
    slice: int = 0

    def blocks(self, first: int, groups: int) -> Iterator[tuple[int, int]]:
        """(first, number) of the column groups that are computed at once, of `groups` from `first` on."""
        begin, end = first, first + groups
        while begin < end:
            following = self.kept if begin < self.kept else begin + self.block - (begin - self.kept) % self.block
            yield begin, min(following, end) - begin
            begin = following


class Image:
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


class Plan:
    """A network cut for a core. sizes: `samples` and `chunks` of them count. keep: weights stay on chip where they fit.
    *_beats: of a row on chip; *_stored: in the inputs, which are half as many in binary16.

    layers: a plan each. resident_lines, bias_lines: lines of the memories that stay as they are. image: to be made
    into words when the sizes are decided.
    Raises      ValueError: the network is too wide for the core; Full: it does not fit when cut so
    """

    def __init__(self, network: Network, config: MlpConfig, sizes: Sizes, keep: bool, half: Halves):
        self.network, self.config, self.sizes, self.keep, self.half = network, config, sizes, keep, half
        self.is_dot = network.interaction == "dot"
        self.dense_beats = self.beats(network.inputs)
        # Beats of a feature, or of all features one behind the other.
        self.sparse_beats = self.beats(network.dim if self.is_dot else network.features * network.dim)
        self.sparse_rows = network.features if self.is_dot else 1
        self.dense_stored = stored_beats(self.dense_beats, half.dense)
        self.sparse_stored = stored_beats(self.sparse_beats, half.features)
        self.out_beats = self.beats(network.outputs)
        self._check_widths()
        self.layers = [LayerPlan(name, layer, self._groups(layer), self._chunks(name, layer))
                       for name, layer in network.layers()]
        self._keep()
        self._image()
        self._slices()

    @property
    def inputs_beats(self) -> int:
        """Of a sample."""
        return self.dense_stored + self.sparse_rows * self.sparse_stored

    def beats(self, words: int) -> int:
        return -(-words // self.config.words)

    def _groups(self, layer: Layer) -> int:
        """Column groups that are computed: where the dot products read a layer's results, whole beats of them."""
        if self.is_dot and layer is self.network.bottom[-1]:
            return self.beats(layer.outputs) * self.config.groups_per_beat
        return -(-layer.outputs // self.config.columns)

    def _check_widths(self) -> None:
        config = self.config
        for name, layer in self.network.layers():
            if self.beats(layer.outputs) * config.groups_per_beat > GROUPS_MAX:
                raise ValueError(f"layer {name} has {layer.outputs} outputs; at most "
                                 f"{GROUPS_MAX // config.groups_per_beat * config.words} are possible")
            is_loaded = name == "bottom 1" or name == "top 1" and not self.is_dot
            if not is_loaded and layer.inputs > STEPS_MAX * config.width:
                raise ValueError(f"layer {name} has {layer.inputs} inputs; at most {STEPS_MAX * config.width} are "
                                 "possible behind another layer")
        biases = sum(self._groups(layer) for _, layer in self.network.layers() if layer.bias is not None)
        if biases > config.addend_lines:
            raise ValueError(f"the biases take {biases} lines of the addends' memory, which has {config.addend_lines}")
        if self.is_dot and self.sparse_beats > BEATS_MAX:
            raise ValueError(f"a feature of {self.network.dim} words takes {self.sparse_beats} beats; at most "
                             f"{BEATS_MAX} are possible")

    def _chunks(self, name: str, layer: Layer) -> list[Chunk]:
        own = self.network.bottom[-1].outputs
        if name == "bottom 1":
            return self._loaded(np.arange(layer.inputs), self.dense_beats, self.half.dense)
        if name != "top 1":
            return [self._chunk(np.arange(layer.inputs))]
        if not self.is_dot:
            return self._loaded(np.arange(own, layer.inputs), self.sparse_beats, self.half.features, np.arange(own))
        row, column = triangle(self.config, self.network.features + 1).T
        bottom = np.full(self.beats(own) * self.config.words, -1)
        bottom[:own] = np.arange(own)
        return [self._chunk(np.concatenate([bottom, np.where(column < 0, -1, own + row * (row - 1) // 2 + column)]))]

    def _chunk(self, order: NDArray[np.int64], first: int = 0, beats: int = 0) -> Chunk:
        steps = -(-len(order) // self.config.width)
        if steps > STEPS_MAX:
            raise Full("weights", steps)
        return Chunk(order, steps, first, beats)

    def _loaded(self, order: NDArray[np.int64], beats: int, half: int, behind: NDArray[np.int64] | None = None) \
            -> list[Chunk]:
        """Chunks of rows that are loaded, whole beats of the inputs, `order` being the layer's inputs in them;
        `behind`: inputs that are made on chip, behind the loaded ones if those are one chunk, else a chunk of their own
        before the others."""
        words = self.config.words
        most = min(STEPS_MAX, self.config.weight_lines) * self.config.width // words
        extra = self.beats(len(behind)) if behind is not None else 0
        per = 1 + half      # beats of a row of one of the inputs
        stored = stored_beats(beats, half)
        chunks = min(stored, max(self.sizes.chunks, -(-(beats + extra) // (min(most, BEATS_MAX) // per * per))))
        cuts = [min(beats, stored * number // chunks * per) for number in range(chunks + 1)]
        loaded = []
        if behind is not None and chunks > 1:
            loaded.append(self._chunk(behind))
        for start, end in zip(cuts[:-1], cuts[1:], strict=True):
            part = order[start * words:end * words]
            if behind is not None and chunks == 1:
                part = np.concatenate([part, np.full((end - start) * words - len(part), -1), behind])
            loaded.append(self._chunk(part, start, end - start))
        return loaded

    def _keep(self) -> None:
        """Which weights stay on chip: all; or the smallest layers' and of the others as many column groups as there is
        room for beside the blocks, three of the largest: one computes, one is there, one is brought."""
        config = self.config

        def lines(plan: LayerPlan) -> int:
            """Of a column group of every unit."""
            return sum(chunk.steps for chunk in plan.chunks)

        def rounds(plan: LayerPlan) -> int:
            return -(-plan.groups // config.units)

        kept = sorted(self.layers, key=lambda plan: rounds(plan) * lines(plan))
        room = config.weight_lines - sum(rounds(plan) * lines(plan) for plan in kept)
        streamed: list[LayerPlan] = []
        area = 0
        while kept and (room < area or not self.keep):
            plan = kept.pop()
            streamed.append(plan)
            room += rounds(plan) * lines(plan)
            least = max(chunk.steps for plan in streamed for chunk in plan.chunks)
            if least > config.weight_lines:
                raise Full("weights", least)
            area = min(3 * least, config.weight_lines)
        for plan in self.layers:
            plan.kept = plan.block = plan.groups
        for plan in streamed:
            some = min((room - area) // lines(plan), rounds(plan) - 1) if self.keep else 0
            plan.kept = some * config.units
            room -= some * lines(plan)
        line = 0
        for plan in self.layers:
            for chunk in plan.chunks:
                own = -(-plan.kept // config.units) * chunk.steps
                if own:
                    chunk.resident = Span("weights", own, line=line, fixed=True)
                    line += own
        self.resident_lines = line
        for plan in streamed:
            most = max(chunk.steps for chunk in plan.chunks)
            plan.block = max(1, (config.weight_lines - line) // 3 // most) * config.units

    def _image(self) -> None:
        """Where weights and biases lie in the image, and the loads of those that stay."""
        self.image, self.bias_lines = Image(self.config), 0
        for plan in self.layers:
            for chunk in plan.chunks:
                chunk.source = self.image.weights(plan.layer, chunk.order, chunk.steps, plan.groups)
                if chunk.resident is not None:
                    chunk.resident.loads = [self.weights_load(plan, chunk, chunk.resident, 0, plan.kept)]
            if plan.layer.bias is not None:
                plan.bias = Span("addends", plan.groups, line=self.bias_lines, fixed=True)
                source = self.image.bias(plan.layer, plan.groups)
                plan.bias.loads = [Load("LOAD_ADDENDS", plan.bias, {"count": plan.groups, "source": source},
                                        {"addend_line": 0}, f"biases of layer {plan.name}",
                                        -(-plan.groups // self.config.groups_per_beat))]
                self.bias_lines += plan.groups

    def _slices(self) -> None:
        """Column groups of a chunked layer whose partials are on chip at once."""
        config, lines = self.config, self.sizes.samples * self.config.rows
        for plan in self.layers:
            plan.slice = plan.groups
            if len(plan.chunks) > 1:
                most = (config.addend_lines - self.bias_lines) // lines // config.units * config.units
                if most < 1:
                    raise Full("addends", lines * config.units)
                plan.slice = min(plan.groups, most)

    def weights_load(self, plan: LayerPlan, chunk: Chunk, span: Span, first: int, groups: int) -> Load:
        beats = chunk.steps * self.config.line_beats
        part = "" if groups == plan.groups else f", outputs {first * self.config.columns} on"
        return Load("LOAD_WEIGHTS", span, {"count": groups, "source": chunk.source + first * beats,
                                           "steps": chunk.steps}, {"weight_line": 0},
                    f"weights of layer {plan.name}{part}", groups * beats)

    def resident_loads(self) -> Iterator[Load]:
        for plan in self.layers:
            for chunk in plan.chunks:
                if chunk.resident is not None:
                    yield from chunk.resident.loads
            if plan.bias is not None:
                yield from plan.bias.loads
