"""Which instructions the MLP core refuses: by themselves, for their order, for what they reach into.

Waits. An instruction has to wait for every one before it, of another engine, that writes lines which it uses or uses
lines which it writes, and of its own engine for layers that write lines which it reads: itself, or by one of its own
engine that stands before it. What else an engine's instructions do to each other's lines they do in their order. The
lines of an instruction are the stretches from the first to the last of them, around the end of their memory, of
features from feature 0 on; but a layer that makes one of the first `rows` features shares no lines with a load of
others of the same samples. Of each engine it has to wait for all but the last WINDOW in any case.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from hw.isa import MLP
from hw.isa.kernel import Decoded
from hw.isa.mlp import ACTIVATION, ADDEND, TARGET, WINDOW, Geometry

LOAD_ROWS, LOAD_WEIGHTS, LOAD_ADDENDS, LAYER, INTERACT = (
    MLP.instruction(name).opcode for name in ("LOAD_ROWS", "LOAD_WEIGHTS", "LOAD_ADDENDS", "LAYER", "INTERACT"))
BAD_INSTRUCTION, BAD_ORDER, BOUNDS, EARLY = (
    MLP.code(name) for name in ("BAD_INSTRUCTION", "BAD_ORDER", "BOUNDS", "EARLY"))
INPUTS, OUTPUTS, WEIGHT_IMAGE = range(3)        # detail of BOUNDS
ROWS, WEIGHTS, ADDENDS = range(3)               # memories on chip
# Which engine carries an instruction out: that of rows, of parameters, of layers; detail of BAD_ORDER.
ENGINES = {LOAD_ROWS: 0, LOAD_WEIGHTS: 1, LOAD_ADDENDS: 1, LAYER: 2, INTERACT: 2}
# Those that it may have to wait for.
OTHERS = ((2,), (2,), (0, 1, 2))
# What each instruction must not have 0 of.
SIZES = {item.opcode: tuple(use.field for use in item.uses if MLP.field(use.field).minimum)
         for item in MLP.instructions}


def stored_beats(row_beats: int, half: int) -> int:
    """Of a row in the inputs, of its beats on chip. half: its words are binary16."""
    return -(-row_beats // 2) if half else row_beats


class Features(NamedTuple):
    """Features of samples, none of which shares lines of the same row with another one. loaded: else a layer's result,
    one of the first `rows`; stride: lines from a sample to the next; beats: of a feature."""

    loaded: bool
    numbers: range
    stride: int
    beats: int


class Stretch(NamedTuple):
    """Lines of a memory on chip, from the first to the last; features: what lies there, if that is known."""

    memory: int
    first: int
    lines: int
    features: Features | None = None


class Rules:
    """What the instructions of a core must keep to, each by itself."""

    def __init__(self, geometry: Geometry):
        self.geometry = geometry
        self.columns, self.groups_per_beat, self.line_beats = (
            geometry.columns, geometry.groups_per_beat, geometry.line_beats)
        self.depths = (geometry.row_lines, geometry.weight_lines, geometry.addend_lines)

    def reach(self, item: Decoded) -> tuple[int, int] | None:
        """The buffer that an instruction reads or writes, and the beat behind the last one there; None: none."""
        if item.opcode == LOAD_ROWS:
            last = (item.count * item.features - 1) * item.stride
            return INPUTS, item.source + last + stored_beats(item.row_beats, item.half)
        if item.opcode == LOAD_WEIGHTS:
            return WEIGHT_IMAGE, item.source + item.count * item.steps * self.line_beats
        if item.opcode == LOAD_ADDENDS:
            return WEIGHT_IMAGE, item.source + self.beats(item.count)
        if item.opcode == LAYER and item.target == TARGET.MEMORY:
            return OUTPUTS, item.out + (item.count - 1) * item.out_stride + self.beats(item.groups)
        return None

    def reads(self, item: Decoded) -> list[Stretch]:
        """The lines on chip that an allowed instruction reads."""
        core = self.geometry
        groups, last = self._samples(item)
        if item.opcode == INTERACT:
            lines = last * item.line_stride + -(-item.features // core.rows) * item.row_beats
            return [Stretch(ROWS, item.line, lines)]
        if item.opcode != LAYER:
            return []
        stretches = [
            Stretch(ROWS, item.line, (-(-item.steps * core.width // core.words) - 1) * item.line_stride + groups),
            Stretch(WEIGHTS, item.weight_line, -(-item.groups // core.units) * item.steps)]
        if item.addend == ADDEND.BIAS:
            stretches.append(Stretch(ADDENDS, item.addend_line, item.groups))
        elif item.addend == ADDEND.PARTIAL:
            stretches.append(Stretch(ADDENDS, item.addend_line, self._partials(item)))
        return stretches

    def writes(self, item: Decoded) -> Stretch | None:
        """The lines on chip that an allowed instruction writes."""
        core = self.geometry
        groups, last = self._samples(item)
        if item.opcode == LOAD_ROWS:
            if not item.features_in:
                return Stretch(ROWS, item.line, (item.row_beats - 1) * item.line_stride + groups)
            of_sample = ((item.feature + item.features - 1) // core.rows + 1) * item.row_beats
            lines, features = last * item.line_stride + of_sample, None
            if of_sample <= item.line_stride and lines <= core.row_lines:
                numbers = range(item.feature, item.feature + item.features)
                features = Features(True, numbers, item.line_stride, item.row_beats)
            return Stretch(ROWS, item.line, lines, features)
        if item.opcode == LOAD_WEIGHTS:
            return Stretch(WEIGHTS, item.weight_line, -(-item.count // core.units) * item.steps)
        if item.opcode == LOAD_ADDENDS:
            return Stretch(ADDENDS, item.addend_line, item.count)
        if item.opcode == LAYER and item.target == TARGET.MEMORY:
            return None
        if item.opcode == LAYER and item.target == TARGET.PARTIAL:
            return Stretch(ADDENDS, item.to_line, self._partials(item))
        steps, step = self._written(item)
        features = None
        if item.opcode == LAYER and item.target == TARGET.FEATURE and item.feature < core.rows:
            features = Features(False, range(item.feature, item.feature + 1), item.to_line_stride, step)
        return Stretch(ROWS, item.to_line, steps * item.to_line_stride + step, features)

    def _samples(self, item: Decoded) -> tuple[int, int]:
        """Groups of samples; the last sample of a unit, counted as features' rows are."""
        core = self.geometry
        group, rest = divmod(item.count - 1, core.samples)
        return group + 1, group * core.rows + min(rest, core.rows - 1)

    def _partials(self, item: Decoded) -> int:
        """Lines of partials."""
        core = self.geometry
        units = core.units if item.mode else 1
        return -(-item.groups // units) * units * self._samples(item)[0] * core.rows

    def _written(self, item: Decoded) -> tuple[int, int]:
        """Of results in the rows' memory the steps of to_line_stride, and the lines from one to the next at least."""
        groups, last = self._samples(item)
        if item.opcode == LAYER and item.target == TARGET.FEATURE:
            return last, self.beats(item.groups)
        pieces = self.geometry.product_pieces(item.features) if item.opcode == INTERACT else 0
        beats = -(-pieces // self.geometry.pieces) if item.opcode == INTERACT else self.beats(item.groups)
        return beats - 1, groups

    def apart(self, item: Decoded) -> bool:
        """Whether an allowed instruction writes lines on chip that are different ones and none that it reads; partials
        are added to where they lie."""
        written = self.writes(item)
        if item.opcode not in (LAYER, INTERACT) or written is None:
            return True
        if written.memory == ADDENDS:
            adds = item.addend == ADDEND.PARTIAL and not (item.addend_line - item.to_line) % self.depths[ADDENDS]
            return written.lines <= self.depths[ADDENDS] and (
                adds or not any(self.share(read, written) for read in self.reads(item)))
        steps, step = self._written(item)
        return ((not steps or item.to_line_stride >= step)
                and not any(self.share(read, written) for read in self.reads(item)))

    def share(self, one: Stretch, other: Stretch) -> bool:
        """Whether two stretches share a line, but for a layer's feature among loaded ones of the same samples."""
        depth = self.depths[one.memory]
        way, back = (other.first - one.first) % depth, (one.first - other.first) % depth
        if one.memory != other.memory or (way >= one.lines and back >= other.lines):
            return False
        if one.features is None or other.features is None or one.features.loaded == other.features.loaded or way:
            return True
        made, loaded = sorted((one.features, other.features))
        return (made.numbers[0] in loaded.numbers or made.stride != loaded.stride or made.beats > loaded.beats)

    def beats(self, groups: int) -> int:
        """Beats of column groups, or of lines of addends."""
        return -(-groups // self.groups_per_beat)

    def allowed(self, item: Decoded) -> bool:
        """Whether an instruction keeps to what its fields allow, one by one and together."""
        if item.opcode not in SIZES or item.reserved:
            return False
        if not all(1 <= getattr(item, name) <= MLP.field(name).highest for name in SIZES[item.opcode]):
            return False
        if item.opcode == LOAD_ROWS:
            return bool(item.features_in) or item.features == 1
        if item.opcode == LAYER:
            return (item.addend <= ADDEND.PARTIAL and item.activation <= ACTIVATION.SIGMOID
                    and item.last_columns <= self.columns
                    and not (item.activation == ACTIVATION.SIGMOID and item.target != TARGET.MEMORY)
                    and not (item.activation and item.target == TARGET.PARTIAL)
                    and not (item.target == TARGET.MEMORY and item.count > 1
                             and item.out_stride < self.beats(item.groups)))
        return item.opcode != INTERACT or item.features >= 2


class Waits:
    """What stands before an instruction: how many of each engine, and the lines that the last ones read and write."""

    def __init__(self, rules: Rules):
        self.rules = rules
        self.before = [0, 0, 0]
        self._last: list[deque[tuple[list[Stretch], list[Stretch]]]] = [deque(maxlen=WINDOW) for _ in range(3)]
        self._waited = [[0, 0, 0] for _ in range(3)]    # by engine: of each one how many its instructions wait for

    def refusal(self, item: Decoded, sizes: Sequence[int]) -> tuple[int, int] | None:
        """The code and detail that an instruction of hw.isa.MLP.decode ends a run with, None for none. sizes: beats of
        inputs, outputs and weights."""
        rules = self.rules
        if not rules.allowed(item):
            return BAD_INSTRUCTION, item.word
        for engine, after in enumerate(_waits(item)):
            if after > self.before[engine]:
                return BAD_ORDER, engine
        if not rules.apart(item):
            return BAD_INSTRUCTION, item.word
        reach = rules.reach(item)
        if reach is not None and reach[1] > sizes[reach[0]]:
            return BOUNDS, reach[0]
        for engine in OTHERS[ENGINES[item.opcode]]:
            found = max(self._waited[ENGINES[item.opcode]][engine], _waits(item)[engine])
            if found < self.needed(item, engine, found):
                return EARLY, engine
        return None

    def needed(self, item: Decoded, engine: int, found: int = 0) -> int:
        """How many instructions of an engine an allowed one has to wait for, if that is more than `found`."""
        last, (reads, writes) = self._last[engine], self._lines(item)
        own = engine == ENGINES[item.opcode]
        for number in range(self.before[engine], max(found, self.before[engine] - len(last)), -1):
            read, written = last[number - 1 - self.before[engine]]
            if any(self.rules.share(one, two) for one in reads for two in written) or not own and any(
                    self.rules.share(one, two) for one in writes for two in (*read, *written)):
                return number
        return max(0, self.before[engine] - WINDOW)

    def add(self, item: Decoded) -> None:
        """An instruction that is not refused."""
        own = ENGINES[item.opcode]
        self._waited[own] = [max(pair) for pair in zip(self._waited[own], _waits(item), strict=True)]
        self._last[own].append(self._lines(item))
        self.before[own] += 1

    def _lines(self, item: Decoded) -> tuple[list[Stretch], list[Stretch]]:
        written = self.rules.writes(item)
        return self.rules.reads(item), [] if written is None else [written]


def _waits(item: Decoded) -> tuple[int, int, int]:
    return item.wait_rows, item.wait_weights, item.wait_layers
