"""What the MLP core computes: a program carried out on plain memory, bit for bit.

    LAYER     y[i, n] = act(dot(x[i], w[:, n]) + addend), a dot product rounded once, the sum once more
    INTERACT  z(f, g) = dot(feature f, feature g), g < f, packed in pieces tile after tile

Instructions are decoded by their description in hw.isa. A program is carried out one instruction after the other: the
result is that of a program whose engines wait for one another where they must. Where a program has several faults, the
result names the one that is first in the program's order; the core may meet another one first, and may not have
finished what stands before it.                                  Source: SCRec §III.E, Fig. 7b; Meta's DLRM
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.fp import fp32
from golden.fp.narrow import widen
from golden.mlp.order import LATENCY, blocks, is_twice, triangle
from golden.mlp.program import Rules, Waits, stored_beats
from golden.systolic import matrix
from hw.isa import MLP
from hw.isa.kernel import Decoded
from hw.isa.mlp import ACTIVATION, ADDEND, TARGET, Geometry

LOAD_ROWS, LOAD_WEIGHTS, LOAD_ADDENDS, LAYER, INTERACT = (
    MLP.instruction(name).opcode for name in ("LOAD_ROWS", "LOAD_WEIGHTS", "LOAD_ADDENDS", "LAYER", "INTERACT"))
OK, MEMORY = MLP.code("OK"), MLP.code("MEMORY")
ROWS, WEIGHTS, ADDENDS = range(3)               # detail of MEMORY
WORDS = MLP.words
COUNTERS = ("instructions", "rows_beats", "weights_beats", "outputs_beats", "tiles", "slots")

Words = NDArray[np.uint32]
Lines = NDArray[np.int64]


@dataclass
class Memory:
    """The buffers, (n,) uint32 each, whole beats. `outputs` is changed in place."""

    program: Words
    inputs: Words
    weights: Words
    outputs: Words


@dataclass(frozen=True)
class Result:
    """How a run ended. counters: those that do not depend on time, by name."""

    code: int
    instruction: int
    detail: int
    counters: dict[str, int]
    instructions_done: int


class _Fault(Exception):
    def __init__(self, code: int, detail: int):
        super().__init__(code)
        self.code, self.detail = code, detail


class Mlp(Geometry):
    """An MLP core with what stays in it from run to run: its memories.

    units, rows, width, words, row_lines, weight_lines, addend_lines, grouped: as in the core's configuration.
    row_memory: (unit, row, line, word), the word being bank * piece + word of the piece. weight_memory: (unit, line,
    word). addend_memory: (unit, line, column). All uint32. known: what of them has been written, by the detail of
    MEMORY: words of rows, lines of weights and of addends.
    """

    def __init__(self, *, units: int, rows: int, width: int, words: int, row_lines: int, weight_lines: int,
                 addend_lines: int, grouped: bool = False):
        self.units, self.rows, self.width, self.words, self.grouped = units, rows, width, words, grouped
        self.row_lines, self.weight_lines, self.addend_lines = row_lines, weight_lines, addend_lines
        self.rules = Rules(self)
        self.row_memory = np.zeros((units, rows, row_lines, words), np.uint32)
        self.weight_memory = np.zeros((units, weight_lines, self.line_words), np.uint32)
        self.addend_memory = np.zeros((units, addend_lines, self.columns), np.uint32)
        self.known = [np.zeros(shape, np.bool_) for shape in (
            self.row_memory.shape, self.weight_memory.shape[:2], self.addend_memory.shape[:2])]
        self._dry = False

    @classmethod
    def of(cls, config: Any) -> "Mlp":
        """As a core's configuration asks."""
        names = ("units", "rows", "width", "words", "row_lines", "weight_lines", "addend_lines", "grouped")
        return cls(**{name: getattr(config, name) for name in names})

    def run(self, memory: Memory, count: int | None = None, dry: bool = False) -> Result:
        """Carries out `count` instructions (default: all of the program) and says how that went. dry: how it would go;
        nothing changes, and instructions alone are counted."""
        count = len(memory.program) // WORDS if count is None else count
        if not dry:
            return self._run(memory, count)
        known, self._dry = self.known, True
        self.known = [part.copy() for part in known]
        try:
            return self._run(memory, count)
        finally:
            self.known, self._dry = known, False

    def _run(self, memory: Memory, count: int) -> Result:
        counters = dict.fromkeys(COUNTERS, 0)
        waits = Waits(self.rules)
        sizes = [len(buffer) // self.words for buffer in (memory.inputs, memory.outputs, memory.weights)]
        for number in range(count):
            item = MLP.decode(memory.program[number * WORDS:(number + 1) * WORDS].tolist())
            try:
                if refusal := waits.refusal(item, sizes):
                    raise _Fault(*refusal)
                carry_out = {
                    LOAD_ROWS: self._load_rows, LOAD_WEIGHTS: self._load_weights, LOAD_ADDENDS: self._load_addends,
                    LAYER: self._layer, INTERACT: self._interact}[item.opcode]
                carry_out(item, memory, counters)
            except _Fault as fault:
                return Result(fault.code, number, fault.detail, counters, number)
            waits.add(item)
            counters["instructions"] += 1
        return Result(OK, 0, 0, counters, count)

    def _needs(self, what: int, index, words: int | None = None) -> None:
        """Raises the fault of operands that were never loaded: what of a memory is read, of rows so many words."""
        known = self.known[what][index]
        if not (known if words is None else known.reshape(len(known), -1)[:, :words]).all():
            raise _Fault(MEMORY, what)

    # Where things lie.

    def _places(self, count: int) -> tuple[Lines, Lines, Lines]:
        """Unit, row and sample group of every sample."""
        sample = np.arange(count)
        return sample // self.rows % self.units, sample % self.rows, sample // (self.rows * self.units)

    def _plain(self, count: int, line: int, line_stride: int, beats: int) -> tuple[Lines, Lines, Lines]:
        """Index of the rows' memory for the beats (count, beats) of plain rows."""
        unit, row, group = self._places(count)
        lines = line + np.arange(beats) * line_stride + group[:, None]
        return unit[:, None], row[:, None], lines % self.row_memory.shape[2]

    def _features(self, features: Lines, count: int, line: Lines, line_stride: int, beats: int) -> tuple:
        """Index of the rows' memory for the words (count, features, beats, words) of features of every sample, each
        with a `line` of its own that counts the features before it: beat and word as the row has them."""
        unit, row, group = self._places(count)
        features = features[:, None, None]
        lines = line[:, None] + ((group * self.rows + row) * line_stride)[:, None, None] + np.arange(beats)
        turned = np.arange(self.words) + features // self.rows % self.pieces * self.piece
        return (unit[:, None, None, None], features % self.rows, (lines % self.row_memory.shape[2])[..., None],
                turned % self.words)

    # Loads.

    def _load_rows(self, item: Decoded, memory: Memory, counters: dict[str, int]) -> None:
        count, beats = item.count, item.row_beats
        if item.features_in:
            features = item.feature + np.arange(item.features)
            place = self._features(features, count, item.line + features // self.rows * beats, item.line_stride, beats)
        else:
            place = self._plain(count, item.line, item.line_stride, beats)
        self.known[ROWS][place] = True
        if self._dry:
            return
        number = item.source + np.arange(count * item.features) * item.stride
        stored = stored_beats(beats, item.half)
        rows = memory.inputs.reshape(-1, self.words)[number[:, None] + np.arange(stored)].reshape(len(number), -1)
        if item.half:
            rows = fp32.bits(widen(rows.view(np.uint16)[:, :beats * self.words], "float16"))
        # Sample by sample, feature by feature, beat by beat: of several at one place the last one stays.
        shape = (count, item.features) if item.features_in else (count,)
        self.row_memory[place] = rows.reshape(*shape, beats, self.words)
        counters["rows_beats"] += count * item.features * stored

    def _load_weights(self, item: Decoded, memory: Memory, counters: dict[str, int]) -> None:
        at = self._weights(item, item.count)
        self.known[WEIGHTS][at] = True
        if self._dry:
            return
        beats = item.count * item.steps * self.line_beats
        lines = memory.weights[item.source * self.words:][:beats * self.words]
        self.weight_memory[at] = lines.reshape(item.count, item.steps, -1)
        counters["weights_beats"] += beats

    def _load_addends(self, item: Decoded, memory: Memory, counters: dict[str, int]) -> None:
        at = (item.addend_line + np.arange(item.count)) % self.addend_memory.shape[1]
        self.known[ADDENDS][:, at] = True
        if self._dry:
            return
        lines = memory.weights[item.source * self.words:][:item.count * self.columns].reshape(item.count, -1)
        self.addend_memory[:, at] = lines
        counters["weights_beats"] += self.rules.beats(item.count)

    # Layers.

    def _layer(self, item: Decoded, memory: Memory, counters: dict[str, int]) -> None:
        count, groups = item.count, item.groups
        beats = -(-item.steps * self.width // self.words)
        rows, weights = self._plain(count, item.line, item.line_stride, beats), self._weights(item, groups)
        self._needs(ROWS, rows, item.steps * self.width)
        self._needs(WEIGHTS, weights)
        group = np.arange(groups)
        addends: tuple | None = None
        if item.addend == ADDEND.BIAS:
            # In throughput mode the sample's own unit adds, in latency mode the group's.
            unit = group % self.units if item.mode == LATENCY else self._places(count)[0][:, None]
            addends = unit, (item.addend_line + group) % self.addend_memory.shape[1]
        elif item.addend == ADDEND.PARTIAL:
            addends = self._partials(item, item.addend_line)
        if addends is not None:
            self._needs(ADDENDS, addends)
        if self._dry:
            self._put(item, None, memory, counters)
            return
        x = self.row_memory[rows].reshape(count, -1)
        w = self.weight_memory[weights].reshape(groups, item.steps, self.columns, self.width)
        w = w.swapaxes(1, 2).reshape(groups * self.columns, -1)
        y = matrix.products(x[:, :item.steps * self.width], w, self.width, grouped=self.grouped)
        y = y.reshape(count, groups, self.columns)
        if addends is not None:
            y = fp32.add(y, self.addend_memory[addends])
        if item.activation == ACTIVATION.RELU:
            y = fp32.maximum(y, np.float32(0))
        if item.activation == ACTIVATION.SIGMOID:
            y = fp32.sigmoid(y)
        y[:, -1, item.last_columns:] = 0
        self._put(item, fp32.bits(y), memory, counters)
        samples = -(-count // (self.rows * self.units))
        if item.mode == LATENCY:
            _, row, _ = self._places(count)
            tiles = -(-groups // self.units) * int(np.count_nonzero(row == 0))
        else:
            tiles = groups * samples
        counters["tiles"] += tiles
        counters["slots"] += tiles * item.steps

    def _weights(self, item: Decoded, groups: int) -> tuple[NDArray, NDArray]:
        """Unit and line of the weights (groups, steps)."""
        group = np.arange(groups)
        lines = item.weight_line + (group // self.units * item.steps)[:, None] + np.arange(item.steps)
        return (group % self.units)[:, None], lines % self.weight_memory.shape[1]

    def _partials(self, item: Decoded, line: int) -> tuple[NDArray, NDArray]:
        """Unit and line of the addends' memory for the partials (count, groups)."""
        unit, row, sample_group = (place[:, None] for place in self._places(item.count))
        group = np.arange(item.groups)
        sample_groups = -(-item.count // (self.rows * self.units))
        if item.mode == LATENCY:
            at = (group // self.units * sample_groups + sample_group) * self.units + unit
            unit = group % self.units
        else:
            at = group * sample_groups + sample_group
        return unit, (line + at * self.rows + row) % self.addend_memory.shape[1]

    def _put(self, item: Decoded, y: Words | None, memory: Memory, counters: dict[str, int]) -> None:
        """Writes results (count, groups, columns) where the instruction says; None: what is written is only known."""
        count, groups = item.count, item.groups
        if item.target == TARGET.PARTIAL:
            partials = self._partials(item, item.to_line)
            self.known[ADDENDS][partials] = True
            if y is not None:
                self.addend_memory[partials] = y
            return
        beats = self.rules.beats(groups)
        if item.target == TARGET.MEMORY:
            if y is None:
                return
            whole = np.zeros((count, beats * self.words), np.uint32)
            whole[:, :groups * self.columns] = y.reshape(count, -1)
            rows = item.out + np.arange(count) * item.out_stride
            memory.outputs.reshape(-1, self.words)[rows[:, None] + np.arange(beats)] = whole.reshape(count, beats, -1)
            counters["outputs_beats"] += count * beats
            return
        at: tuple
        if item.target == TARGET.FEATURE:
            at = self._features(np.array([item.feature]), count, np.array([item.to_line]), item.to_line_stride, beats)
        else:
            at = (*(place[:, :, None] for place in self._plain(count, item.to_line, item.to_line_stride, beats)),
                  np.arange(self.words))
        self._rows(at, y if y is None else y.reshape(count, -1), groups * self.columns)

    def _rows(self, at: tuple, values: Words | None, present: int) -> None:
        """Writes the first `present` words of rows (count, beats, words); what lies behind them stays."""
        for memory, new in ((self.known[ROWS], True), (self.row_memory, values)):
            if new is not None:
                held = memory[at]
                held.reshape(len(held), -1)[:, :present] = new
                memory[at] = held

    # Interactions.

    def _interact(self, item: Decoded, memory: Memory, counters: dict[str, int]) -> None:
        count, features = item.count, item.features
        pairs = triangle(self, features)
        beats = -(-len(pairs) // self.words)
        at = tuple(place[:, :, None] for place in self._plain(count, item.to_line, item.to_line_stride, beats))
        at = (*at, np.arange(self.words))
        feature = np.arange(features)
        place = self._features(feature, count, item.line + feature // self.rows * item.row_beats, item.line_stride,
                               item.row_beats)
        self._needs(ROWS, place)
        if self._dry:
            self._rows(at, None, len(pairs))
            return
        values = self.row_memory[place].reshape(count, features, -1)
        z = np.zeros((count, len(pairs)), np.uint32)
        real = pairs[:, 1] >= 0
        for sample in range(count):
            dots = fp32.bits(matrix.products(values[sample], values[sample], self.width, grouped=self.grouped))
            z[sample, real] = dots[pairs[real, 0], pairs[real, 1]]
        self._rows(at, z, len(pairs))
        unit, _, _ = self._places(count)
        samples = int(np.count_nonzero(unit == 0))      # those of unit 0; the other units work on theirs beside it
        steps = item.row_beats * self.words // self.width
        shapes = list(blocks(self, features))
        counters["tiles"] += samples * len(shapes)
        counters["slots"] += samples * steps * sum(1 + is_twice(self, a, b) for a, b in shapes)
