"""What software and the Hotline core agree on."""

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


class KIND(IntEnum):
    """Kinds of mini-batches in the mailbox."""

    POPULAR = 0
    GATHERED = 1


class JOIN(IntEnum):
    """What a position's row does in a pooled sample."""

    BEGIN = 0
    ADD = 1
    MULTIPLY = 2


GPUS = 4        # at most
#: Words of the result block, of each GPU.
DISPATCHED, FINISHED = (tuple(f"{name}_{gpu}" if gpu else name for gpu in range(GPUS))
                        for name in ("dispatched", "finished"))
_SAMPLES = (Use("count", "samples"), Use("source", "inputs offset of the first sample, in beats"),
            Use("sample_beats"), Use("indices"))

HOTLINE = Kernel(
    name="hotline",
    about="Samples of a click log dispatched to GPUs in mini-batches: popular ones at once, others with their cold "
          "rows.",
    arguments=(
        Argument("program", "pointer", "m00", "instructions of 64 bytes, one after the other"),
        Argument("program_count", "scalar", "", "instructions"),
        Argument("inputs", "pointer", "m00", "samples, and images of the logger to load"),
        Argument("inputs_beats", "scalar", "", "beats of the inputs' buffer"),
        Argument("mailbox", "pointer", "m00", "mini-batches for the GPUs, the mailbox of each behind that of the GPU "
                                              "before; images of the logger"),
        Argument("mailbox_beats", "scalar", "", "beats of the mailbox"),
        Argument("gradients", "pointer", "m00", "what the GPUs return, in the same manner"),
        Argument("gradients_beats", "scalar", "", "beats of the gradients' buffer"),
        Argument("rows", "pointer", "m01", "the tables' rows"),
        Argument("rows_beats", "scalar", "", "beats of the rows' buffer"),
        Argument("hot", "pointer", "m00", "the GPU's hot rows in the order of their numbers; for pooled samples"),
        Argument("hot_beats", "scalar", "", "beats of it"),
        Argument("result", "pointer", "m00", "the result block, 1024 bytes"),
        Argument("timeout", "scalar", "", "cycles without progress, also while the GPU is waited for, that end the "
                                          "run; 0: none do"),
    ),
    registers=REGISTERS,
    words=16,
    fields=(
        Field("opcode", 0, 0, 8, "which instruction"),
        Field("pinned", 0, 8, 1, "all rows of the table are hot; join is 0 then"),
        Field("pooled", 0, 9, 1, "gathered mini-batches carry a vector for every position with join 0 instead of "
                                 "rows"),
        Field("join", 0, 10, 2, "in a pooled sample the position's row: 0 begins a vector, 1 is added to the vector "
                                "before, 2 is multiplied with it, element by element. Position 0 of a "
                                "pooled TRAIN has 0", maximum=2),
        Field("half", 0, 12, 1, "gathered mini-batches carry rows or vectors as binary16 words, one behind the "
                                "other"),
        Field("position", 0, 16, 8, "address register: which index of a sample; below the core's `positions`",
              maximum=63),
        Field("count", 1, 0, 32, "samples", minimum=1),
        Field("source", 2, 0, 32, "offset in the inputs, in beats"),
        Field("sample_beats", 3, 0, 8, "beats of a sample", minimum=1, maximum=8),
        Field("indices", 3, 8, 8, "words of a sample that are indices, from the first on; those behind them are "
                                  "carried along as they are. At most the core's `positions`, and in a TRAIN the "
                                  "rows that its embedding buffer holds", minimum=1, maximum=64),
        Field("row_beats_log2", 3, 16, 4, "log2 of the beats of a row", maximum=6),
        Field("batch", 4, 0, 16, "samples of a mini-batch; their beats are at most the core's `frame_beats`",
              minimum=1),
        Field("mailbox_slots", 4, 16, 8, "mini-batches that a GPU's mailbox holds", minimum=1),
        Field("mailbox_pitch", 5, 0, 32, "beats from a mini-batch to the next in the mailbox; at least the most that "
              "one may take", minimum=1),
        Field("gradients_pitch", 6, 0, 32, "beats from a mini-batch's gradients to the next's; at least the most that "
              "one may have"),
        Field("rate", 7, 0, 32, "binary32 that gradients are multiplied with: minus the learning rate"),
        Field("first_low", 8, 0, 32, "number of the table's row 0 among the rows of all tables, low word"),
        Field("first_high", 9, 0, 8, "high bits of it. All numbers are below 2^14 times the sets of the core's "
              "banks"),
        Field("table_rows", 10, 0, 32, "rows of the table", minimum=1, maximum=(1 << 31) - 1),
        Field("base", 11, 0, 32, "offset of the table's row 0 in the rows' buffer, in beats. Rows are told apart by "
              "their numbers: TRAIN is refused unless base - (first << row_beats_log2) is equal in all "
              "registers of its indices that are written and not pinned"),
        Field("out", 12, 0, 32, "offset in the mailbox, in beats"),
    ),
    instructions=(
        Instruction(1, "S_WR", "Writes an address register.", (
            Use("position"), Use("pinned"), Use("join"), Use("first_low"), Use("first_high"), Use("table_rows"),
            Use("base"))),
        Instruction(2, "CLEAR", "Forgets all rows that the logger holds.", ()),
        Instruction(3, "LEARN", "Sends samples through the logger, which learns from them.", _SAMPLES),
        Instruction(4, "TRAIN", "Dispatches samples to the GPU in mini-batches, and applies what it returns.", (
            *_SAMPLES, Use("pooled"), Use("half"), Use("row_beats_log2"), Use("batch"), Use("mailbox_slots"),
            Use("mailbox_pitch"), Use("gradients_pitch"), Use("rate"))),
        Instruction(5, "SAVE", "Writes the logger's image to the mailbox.", (Use("out"),)),
        Instruction(6, "LOAD", "Reads the logger's image from the inputs.", (Use("source"),)),
    ),
    modes=(),
    devices=(),
    states=STATES,
    codes=(
        ENDED,
        ABORTED,
        BAD_INSTRUCTION,
        Code(3, "BOUNDS", "an offset and size pass the end of a buffer; detail: 0 inputs, 1 mailbox, 2 gradients, "
                        "3 rows, 4 hot rows",
             ("instruction",)),
        Code(4, "INDEX", "an index is not below its table's rows; detail: the index",
             ("instruction", "sample", "position")),
        Code(5, "TIMEOUT", "nothing but GPUs was waited for, and none has finished a mini-batch in `timeout` cycles; "
                           "detail: how many they had finished", ("instruction",)),
        Code(6, "OVERRUN", "a GPU claims more mini-batches than it was dispatched; detail: how many", ("instruction",)),
        Code(7, "READ_ERROR", "a read was answered with SLVERR or DECERR; detail: 0 program, 1 inputs, 2 doorbell, "
                              "3 gradients, 4 rows, 5 hot rows", ("instruction",)),
        Code(8, "WRITE_ERROR", "a write was answered with SLVERR or DECERR; detail: 0 mailbox, 1 result, 2 a row, and "
                               "it and all rows of its mini-batch behind it were then written once more without an "
                               "error, 3 so was a row that time, the first of them the one with the ordinal in bits "
                               "31..8", ("instruction",)),
        Code(9, "MEMORY", "an entry of the logger has wrong parity; detail: the bank", ("instruction",)),
        stalled(10),
    ),
    channels=("m00 read", "m00 write", "m01 read", "m01 write"),
    apart=("m01",),
    result_words=256,
    final_words=192,
    result=(
        *outcome(("sample", "number of the sample in its instruction"),
                 ("position", "which index of the sample")),
        *counters(
            16,
            ("cycles", "cycles from start to the end of the last write"),
            ("instructions", "instructions carried out"),
            ("samples", "samples that went through the logger"),
            ("accesses", "indices that were looked up"),
            ("hits", "of them in the logger"),
            ("popular", "popular samples"),
            ("batches_popular", "popular mini-batches dispatched"),
            ("batches_gathered", "gathered mini-batches dispatched"),
            ("dma_rd", "cold rows read"),
            ("dma_wr", "cold rows written back; those that are written once more count again"),
            ("gpu_rd", "hot rows read"),
            ("v_mul", "beats multiplied"),
            ("v_add", "beats added"),
            ("shared", "cold indices whose row was there already"),
            ("stall_logger", "cycles in which samples waited for the logger, or for room behind it"),
            ("stall_frames", "cycles in which samples waited for room in the input buffer"),
            ("stall_mailbox", "cycles in which a mini-batch waited for room in the mailbox"),
            ("stall_gather", "cycles in which nothing was ready for the mailbox while mini-batches were gathered or "
                             "updated"),
            ("batches_updated", "gathered mini-batches, from the first on, whose updates are in memory; the rows' "
                                "buffer is as they leave it, but for WRITE_ERROR with detail 3"),
        ),
        *(Value(name, 192 + gpu, 32, "progress", f"mini-batches dispatched to GPU {gpu} so far")
          for gpu, name in enumerate(DISPATCHED)),
        *(Value(name, 208 + gpu, 32, "doorbell", f"mini-batches of the run that GPU {gpu} has finished, gradients "
                "included") for gpu, name in enumerate(FINISHED)),
    ),
)
