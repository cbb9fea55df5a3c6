"""Which instructions the MLP core refuses: by themselves, for their order, for what they reach into."""

from collections.abc import Sequence
from types import SimpleNamespace

from hw.isa import MLP
from hw.isa.mlp import ACTIVATION, ADDEND, TARGET, Geometry

__all__ = ["ENGINES", "INPUTS", "OUTPUTS", "WEIGHT_IMAGE", "Rules", "stored_beats"]

LOAD_ROWS, LOAD_WEIGHTS, LOAD_ADDENDS, LAYER, INTERACT = (
    MLP.instruction(name).opcode for name in ("LOAD_ROWS", "LOAD_WEIGHTS", "LOAD_ADDENDS", "LAYER", "INTERACT"))
BAD_INSTRUCTION, BAD_ORDER, BOUNDS = (MLP.code(name) for name in ("BAD_INSTRUCTION", "BAD_ORDER", "BOUNDS"))
INPUTS, OUTPUTS, WEIGHT_IMAGE = range(3)        # detail of BOUNDS
# Which engine carries an instruction out: that of rows, of parameters, of layers; detail of BAD_ORDER.
ENGINES = {LOAD_ROWS: 0, LOAD_WEIGHTS: 1, LOAD_ADDENDS: 1, LAYER: 2, INTERACT: 2}
# What each instruction must not have 0 of.
SIZES = {item.opcode: tuple(use.field for use in item.uses if MLP.field(use.field).minimum)
         for item in MLP.instructions}


def stored_beats(row_beats: int, half: int) -> int:
    """Of a row in the inputs, of its beats on chip. half: its words are binary16."""
    return -(-row_beats // 2) if half else row_beats


class Rules:
    """What programs of a core must keep to."""

    def __init__(self, geometry: Geometry):
        self.geometry = geometry
        self.columns, self.groups_per_beat, self.line_beats = (
            geometry.columns, geometry.groups_per_beat, geometry.line_beats)

    def refusal(self, item: SimpleNamespace, before: Sequence[int], sizes: Sequence[int]) -> tuple[int, int] | None:
        """The code and detail that an instruction of hw.isa.MLP.decode ends a run with, None for none.

        before: instructions of each engine in front of it; sizes: beats of inputs, outputs and weights
        """
        if not self.allowed(item):
            return BAD_INSTRUCTION, item.word
        for engine, after in enumerate((item.wait_rows, item.wait_weights, item.wait_layers)):
            if after > before[engine]:
                return BAD_ORDER, engine
        if not self.apart(item):
            return BAD_INSTRUCTION, item.word
        reach = self.reach(item)
        return (BOUNDS, reach[0]) if reach is not None and reach[1] > sizes[reach[0]] else None

    def reach(self, item: SimpleNamespace) -> tuple[int, int] | None:
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

    def apart(self, item: SimpleNamespace) -> bool:
        """Whether an allowed instruction writes lines on chip that are different ones and none that it reads.

        From the first line to the last, around the memory's end; partials are added to where they lie.
        """
        core = self.geometry
        if item.opcode != INTERACT and (item.opcode != LAYER or item.target == TARGET.MEMORY):
            return True
        group, rest = divmod(item.count - 1, core.samples)
        groups = group + 1
        last = group * core.rows + min(rest, core.rows - 1)     # sample, of a unit, counted as features' rows are
        if item.opcode == LAYER and item.target == TARGET.PARTIAL:
            units = core.units if item.mode else 1
            written = -(-item.groups // units) * units * groups * core.rows
            if item.addend == ADDEND.NONE or (
                    item.addend == ADDEND.PARTIAL and not (item.addend_line - item.to_line) % core.addend_lines):
                return written <= core.addend_lines
            read = item.groups if item.addend == ADDEND.BIAS else written
            return self._apart(item.addend_line, read, item.to_line, written, core.addend_lines)
        if item.opcode == INTERACT:
            beats = -(-core.product_pieces(item.features) // core.pieces)
            read = last * item.line_stride + -(-item.features // core.rows) * item.row_beats
        else:
            beats = self.beats(item.groups)
            read = (-(-item.steps * core.width // core.words) - 1) * item.line_stride + groups
        steps, step = (last, beats) if item.opcode == LAYER and item.target == TARGET.FEATURE else (beats - 1, groups)
        return ((not steps or item.to_line_stride >= step)
                and self._apart(item.line, read, item.to_line, steps * item.to_line_stride + step, core.row_lines))

    @staticmethod
    def _apart(first: int, lines: int, other: int, others: int, memory: int) -> bool:
        """Whether two stretches of a memory's lines, both of one or more, share none."""
        return (other - first) % memory >= lines and (first - other) % memory >= others

    def beats(self, groups: int) -> int:
        """Beats of column groups, or of lines of addends."""
        return -(-groups // self.groups_per_beat)

    def allowed(self, item: SimpleNamespace) -> bool:
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
