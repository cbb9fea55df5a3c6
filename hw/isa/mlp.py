"""What software and the MLP core agree on."""

from enum import IntEnum

from hw.isa.kernel import (
    ABORTED,
    BAD_INSTRUCTION,
    ENDED,
    REGISTERS,
    STATES,
    Argument,
    Code,
    Field,
    Instruction,
    Kernel,
    Use,
    Value,
    counters,
    outcome,
    stalled,
)

WINDOW = 32     # instructions of another engine that one may stand behind without waiting for them


class TARGET(IntEnum):
    """Where a layer's results go."""

    ROWS = 0
    FEATURE = 1
    PARTIAL = 2
    MEMORY = 3


class ADDEND(IntEnum):
    """What is added to a layer's dot products."""

    NONE = 0
    BIAS = 1
    PARTIAL = 2


class ACTIVATION(IntEnum):
    """What a layer's results go through."""

    NONE = 0
    RELU = 1
    SIGMOID = 2


class Geometry:
    """What follows from a core's sizes; whoever inherits it has them, names as in a preset."""

    units: int
    rows: int
    width: int
    words: int
    row_lines: int
    weight_lines: int
    addend_lines: int

    @property
    def columns(self) -> int:
        """Columns of a unit's array, results of a column group."""
        return 2 * self.rows

    @property
    def samples(self) -> int:
        """Samples that the units take at once with rows of their own."""
        return self.units * self.rows

    @property
    def piece(self) -> int:
        """Words that a bank of the rows' memory holds in a line: a part of a beat."""
        return max(2, self.width)

    @property
    def pieces(self) -> int:
        """Pieces of a beat, and banks of a row."""
        return self.words // self.piece

    @property
    def parts(self) -> int:
        """Beats of the array that a piece makes."""
        return self.piece // self.width

    @property
    def groups_per_beat(self) -> int:
        """Column groups of a beat: 1 or more."""
        return self.words // self.columns

    @property
    def line_words(self) -> int:
        """Words of a line of weights: a column group's terms of one beat of the array."""
        return self.columns * self.width

    @property
    def line_beats(self) -> int:
        return self.line_words // self.words

    def product_pieces(self, features: int) -> int:
        """Pieces of a sample's packed products: of each feature with those before it."""
        q, r = divmod(features - 1, self.piece)
        return (q + 1) * (self.piece // 2 * q + r)


_AFTER = tuple(Use(name) for name in ("wait_rows", "wait_weights", "wait_layers"))

MLP = Kernel(
    name="mlp",
    about="Networks of fully connected layers and feature interactions, batches of rows at a time.",
    arguments=(
        Argument("program", "pointer", "m00", "instructions of 64 bytes, one after the other"),
        Argument("program_count", "scalar", "", "instructions"),
        Argument("inputs", "pointer", "m00", "rows that layers and interactions begin from"),
        Argument("inputs_beats", "scalar", "", "beats of the inputs' buffer"),
        Argument("outputs", "pointer", "m00", "rows of the layers that write to memory"),
        Argument("outputs_beats", "scalar", "", "beats of the outputs' buffer"),
        Argument("weights", "pointer", "m01", "images of weights and addends"),
        Argument("weights_beats", "scalar", "", "beats of the weights' buffer"),
        Argument("result", "pointer", "m00", "the result block, 1024 bytes"),
        Argument("timeout", "scalar", "", "cycles without progress that end the run; 0: none do"),
    ),
    registers=REGISTERS,
    words=16,
    fields=(
        Field("opcode", 0, 0, 8, "which instruction"),
        Field("mode", 0, 8, 1, "0 throughput: units have rows of their own and share weights; 1 latency: they share "
                               "rows and have weights of their own"),
        Field("addend", 0, 9, 2, "what is added to a dot product: 0 nothing, 1 a bias, 2 the partial of the result "
                                 "before", maximum=2),
        Field("target", 0, 11, 2, "where results go: 0 rows on chip, 1 one feature of rows on chip, 2 partials, "
                                  "3 memory"),
        Field("activation", 0, 13, 2, "0 none, 1 ReLU, 2 sigmoid (to memory alone); partials have none", maximum=2),
        Field("features_in", 0, 15, 1, "rows are features of samples, not samples"),
        Field("half", 0, 16, 1, "rows lie in the inputs as binary16 words, in half the beats, rounded up, and are "
                                "widened as they are loaded"),
        Field("count", 1, 0, 32, "samples, column groups or lines", minimum=1, maximum=(1 << 20) - 1),
        Field("source", 2, 0, 32, "offset in the inputs or the weights, in beats"),
        Field("stride", 3, 0, 32, "beats from a row to the next in the inputs"),
        Field("row_beats", 4, 0, 16, "beats of a row or of a feature", minimum=1, maximum=(1 << 12) - 1),
        Field("features", 4, 16, 8, "features of a sample", minimum=1),
        Field("feature", 4, 24, 8, "number of the feature that is written, or of the first that is loaded"),
        Field("line", 5, 0, 16, "line of the rows' memory that is read, or loaded, first. Lines of each memory count "
              "around its end"),
        Field("line_stride", 5, 16, 16,
              "lines from a beat of a row to its next; with features: from a sample to the next"),
        Field("steps", 6, 0, 16, "beats of the array that a dot product takes", minimum=1, maximum=(1 << 12) - 1),
        Field("groups", 6, 16, 16, "column groups of the result", minimum=1, maximum=(1 << 12) - 1),
        Field("weight_line", 7, 0, 16, "first line of the weights' memory"),
        Field("last_columns", 7, 16, 8, "columns of the last group that count, at most the array's; the others "
              "become +0", minimum=1),
        Field("addend_line", 8, 0, 16, "first line of the addends' memory that is read, or loaded"),
        Field("to_line", 9, 0, 16, "first line that is written, of the rows' or the addends' memory; those up to the "
                                   "last must fit there and be none of those from the first to the last that are read "
                                   "there, but for partials that are added to where they lie"),
        Field("to_line_stride", 9, 16, 16,
              "lines from a beat of a row to its next, at least the groups of samples; features: from a sample to the "
              "next, at least a row's beats"),
        Field("out", 10, 0, 32, "outputs offset of sample 0, in beats"),
        Field("out_stride", 11, 0, 32, "beats from a sample's row to the next in the outputs; at least a row's, the "
              "column groups' in whole beats, where target is memory and count is not 1"),
        Field("wait_rows", 13, 0, 32, "LOAD_ROWS that must be done before; at least those of EARLY"),
        Field("wait_weights", 14, 0, 32, "LOAD_WEIGHTS and LOAD_ADDENDS that must be done before; at least those of "
                                         "EARLY"),
        Field("wait_layers", 15, 0, 32, "LAYER and INTERACT that must be done before, all that they write on chip "
                                        "written; at least those of EARLY"),
    ),
    instructions=(
        Instruction(1, "LOAD_ROWS", "Brings rows from the inputs into the rows' memory, sample by sample, and "
                    "feature by feature of each: of several at one place the last stays.", (
            Use("features_in"), Use("half"), Use("count", "samples"), Use("source"), Use("stride"),
            Use("row_beats", "beats of a row or of a feature on chip"),
            Use("features", "features loaded of each sample, one row each; 1 if rows are samples"), Use("feature"),
            Use("line"), Use("line_stride"), *_AFTER)),
        Instruction(2, "LOAD_WEIGHTS", "Brings column groups of weights, one behind the other, `steps` lines each.", (
            Use("count", "column groups"), Use("source"), Use("steps"), Use("weight_line"), *_AFTER)),
        Instruction(3, "LOAD_ADDENDS", "Brings lines of addends, a column group each, to every unit.", (
            Use("count", "lines"), Use("source"), Use("addend_line"), *_AFTER)),
        Instruction(4, "LAYER", "activation(rows x weights + addend).", (
            Use("mode"), Use("addend"), Use("target"), Use("activation"), Use("count", "samples"), Use("feature"),
            Use("line"), Use("line_stride"), Use("steps"), Use("groups"), Use("weight_line"), Use("last_columns"),
            Use("addend_line"), Use("to_line"), Use("to_line_stride"), Use("out"), Use("out_stride"),
            *_AFTER)),
        Instruction(5, "INTERACT", "Dot products of all pairs of a sample's features.", (
            Use("count", "samples"), Use("row_beats"), Use("features", "features of a sample, 2 or more"), Use("line"),
            Use("line_stride"), Use("to_line"), Use("to_line_stride"), *_AFTER)),
    ),
    modes=("throughput", "latency"),
    devices=(),
    states=STATES,
    codes=(
        ENDED,
        ABORTED,
        BAD_INSTRUCTION,
        Code(3, "BAD_ORDER", "an instruction waits for more than comes before it; detail: what it waits for: 0 rows, "
                             "1 weights, 2 layers", ("instruction",)),
        Code(4, "BOUNDS", "an offset and size pass the end of a buffer; detail: 0 inputs, 1 outputs, 2 weights",
             ("instruction",)),
        Code(5, "READ_ERROR", "a read was answered with SLVERR or DECERR; detail: 0 program, 1 inputs, 2 weights",
             ("instruction",)),
        Code(6, "WRITE_ERROR", "a write was answered with SLVERR or DECERR; detail: the port's client",
             ("instruction",)),
        Code(7, "MEMORY", "an operand had a memory error that could not be corrected, as what was never loaded has; "
                          "detail: 0 rows, 1 weights, 2 addends", ("instruction",)),
        stalled(8),
        Code(9, "EARLY", "an instruction does not wait, itself or by one of its kind before it, for all loads, or as a "
                         "load for all LAYER and INTERACT, that stand before it and share lines with it; or as LAYER "
                         "or INTERACT for all of those that write lines which it reads; or for all but the last 32 of "
                         "any of these. Lines count from the first to the last, of features from feature 0 on; but "
                         "a LAYER that writes a feature below the core's `rows` shares none with a LOAD_ROWS of others "
                         "that has its `to_line` and `to_line_stride` as `line` and `line_stride`, and as many beats "
                         "or more, where a sample's features fit in `line_stride` and those of all in the memory; "
                         "detail: of what: 0 rows, 1 weights, 2 layers. The instruction may have begun, so that "
                         "results of those that share lines with it may be wrong", ("instruction",)),
    ),
    channels=("m00 read", "m00 write", "m01 read"),
    result_words=256,
    final_words=192,
    result=(
        *outcome(instruction="number of the instruction, from 0; of those under way the first"),
        *counters(
            16,
            ("cycles", "cycles from start to the end of the last write"),
            ("instructions", "instructions carried out"),
            ("rows_beats", "beats of rows that were loaded"),
            ("weights_beats", "beats of weights and addends that were loaded"),
            ("outputs_beats", "beats of results that were written"),
            ("tiles", "tiles of results"),
            ("slots", "cycles in which the array took operands"),
            ("stall_rows", "cycles in which the array waited for rows to be loaded"),
            ("stall_weights", "cycles in which the array waited for weights or addends to be loaded"),
            ("stall_in_flight", "cycles in which the array waited for results under way"),
            ("stall_write", "cycles in which the array waited for room for results on their way to memory"),
            ("stall_program", "cycles in which the array had no instruction"),
            ("corrected", "memory errors that were corrected"),
            ("uncorrectable", "memory errors that could not be"),
        ),
        Value("instructions_done", 192, 32, "progress", "instructions carried out so far"),
    ),
)
