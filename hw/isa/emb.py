"""What software and the EMB core agree on."""

from enum import IntEnum

from hw.isa.kernel import (
    ABORTED,
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

LONGEST_BAG = 1 << 16       # indices: what sums keep room for
# Of a load image's signature: IEEE 802.3's CRC, which is primitive, so beats of one image do not commute.
POLYNOMIAL = 0x04C11DB7
_PLACE = ("instruction", "bag", "index")


class MODE(IntEnum):
    """How the rows of a bag become its vector."""

    SUM = 0
    MEAN = 1
    MAX = 2


class DEVICE(IntEnum):
    """Where an index word's row is."""

    DRAM = 0
    TT = 1
    SSD = 2


class FORMAT(IntEnum):
    """Of the vectors in the outputs."""

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2


class ROW_FORMAT(IntEnum):
    """Of rows in card memory and on the SSD; see golden.emb.row_decoder."""

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2
    INT8 = 3
    INT4 = 4

    @property
    def bits(self) -> int:
        """Of a stored value."""
        return (32, 16, 16, 8, 4)[self]

    @property
    def header(self) -> int:
        """Beats of FP32 values, whose room as stored scale and bias take in front of the row's values."""
        return (0, 0, 0, 2, 2)[self]


EMB = Kernel(
    name="emb",
    about="Embedding bags pooled from card memory, tensor-train tables and SSD pages.",
    arguments=(
        Argument("program", "pointer", "m00", "instructions of 64 bytes, one after the other"),
        Argument("program_count", "scalar", "", "instructions"),
        Argument("inputs", "pointer", "m00", "lengths, indices, weights and load images"),
        Argument("inputs_beats", "scalar", "", "beats of the inputs' buffer"),
        Argument("outputs", "pointer", "m00", "pooled vectors"),
        Argument("outputs_beats", "scalar", "", "beats of the outputs' buffer"),
        Argument("rows", "pointer", "m01", "rows of tables in card memory, and the row cache"),
        Argument("rows_beats", "scalar", "", "beats of the rows' buffer"),
        Argument("ring", "pointer", "m01", "where rows from the SSD land"),
        Argument("ring_beats", "scalar", "", "beats of the ring: a power of two, or 0 for none"),
        Argument("result", "pointer", "m00", "the result block, 1024 bytes"),
        Argument("timeout", "scalar", "", "cycles without progress, also while an SSD row is waited for, that end the "
                                          "run; 0: none do"),
    ),
    registers=REGISTERS,
    words=16,
    fields=(
        Field("opcode", 0, 0, 8, "which instruction"),
        Field("mode", 0, 8, 2, "how a bag is pooled: 0 sum, 1 mean, 2 max", maximum=2),
        Field("weighted", 0, 10, 1, "each index has a weight; with sum alone"),
        Field("format", 0, 11, 2, "of the vectors: 0 float32, 1 float16, 2 bfloat16; the last two halve their beats",
              maximum=2),
        Field("row_format", 0, 13, 3, "of rows in card memory and in the ring: "
              + ", ".join(f"{form.value} {form.name.lower()}" for form in ROW_FORMAT)
              + "; the last two with a scale and a bias a row", maximum=max(ROW_FORMAT)),
        Field("count", 1, 0, 32, "bags, load beats or rows", minimum=1),
        Field("lengths", 2, 0, 32, f"inputs offset of u32[count]: indices of each bag, at most {LONGEST_BAG}"),
        Field("indices", 3, 0, 32, "inputs offset of the index words"),
        Field("signature", 4, 0, 32, "of the load image's beats, blocks of headers included: from 0 on, for each beat "
              f"c = (c << 1) ^ ({POLYNOMIAL:#010x} if bit 31 of c was set, else 0) ^ the exclusive or of the beat's "
              "words, word k of them rotated left by 2 k bits"),
        Field("weights", 4, 0, 32, "inputs offset of f32[indices_count]"),
        Field("indices_count", 5, 0, 32, "indices of all bags: the sum of the lengths"),
        Field("dram_base", 6, 0, 32, "rows offset of the table's row 0 in card memory"),
        Field("dram_rows", 7, 0, 32, "rows of the table in card memory; in pieces, the last block's room counts whole"),
        Field("row_beats", 8, 0, 32, "beats v of a row's values in float32. Stored, a row takes b beats: v in float32, "
              "v / 2 in half precision, (v + 2) / 4 in int8 and (v + 2) / 8 in int4, rounded up. A tensor-train "
              "table that is loaded has as many where tt_rows is not 0", minimum=1, limit="row_beats_max"),
        Field("tt_table", 9, 0, 16, "number of the table in the tensor-train unit"),
        Field("chunk_rows", 9, 16, 4, "rows that the tensor-train unit adds up at once; 1 with weights or max, and at "
              "most what the table's descriptor allows, where tt_rows is not 0 and the table is loaded",
              minimum=1, maximum=8),
        Field("piece_beats", 9, 20, 6, "beats of a piece of a row in card memory, a power of two below the core's "
              "stripe_beats that divides b; 0: a row is one piece. With n = stripe_beats / piece_beats, piece "
              "j of row r begins at dram_base + (r - r % n) * b + r % n * piece_beats + j * stripe_beats"),
        Field("tt_rows", 10, 0, 32, "rows of the tensor-train table that may be looked up, at most 2^index_bits of the "
              "core's unit; 0: the table is not used"),
        Field("out", 11, 0, 32, "outputs offset of bag 0"),
        Field("out_stride", 12, 0, 32, "beats from a bag's vector to the next bag's"),
        Field("ring_first", 13, 0, 32, "first ring position that the instruction may read", maximum=(1 << 30) - 1),
        Field("ring_count", 14, 0, 32, "ring positions that it may read, from ring_first on, at most ring_beats; not "
              "those of them before one that an instruction before it releases, or before the run's first. Of two "
              "positions, the one from which fewer than 2^29 lead to the other is before it"),
        Field("release", 15, 0, 32, "ring position up to which the ring is free once this instruction is done; what "
              "lies before it is not read any more, whether or not it has landed. A position before one that was "
              "released, or before the run's first, releases nothing", maximum=(1 << 30) - 1),
    ),
    instructions=(
        Instruction(1, "LOAD", "Writes cores and descriptors into the tensor-train unit.", (
            Use("count", "load beats"),
            Use("indices", "inputs offset of the image: groups of a block of 16 header words and 16 load beats; "
                           "header = {block[22], flip[21:20], part[19:18], target[17:16], address[15:0]}"),
            Use("signature"), Use("release"),
        ), fence=True),
        Instruction(2, "BAGS", "Pools bags of one table and writes one vector a bag.", tuple(Use(name) for name in (
            "mode", "weighted", "format", "row_format", "count", "lengths", "indices", "weights", "indices_count",
            "dram_base", "dram_rows", "row_beats", "piece_beats", "tt_table", "chunk_rows", "tt_rows", "out",
            "out_stride", "ring_first", "ring_count", "release"))),
        Instruction(3, "FILL", "Copies rows that have landed in the ring into card memory (the row cache).", (
            Use("row_format"), Use("count", "rows"),
            Use("indices", "inputs offset of u32 pairs {ring position, row}, each below 2^30, as in an index word"),
            Use("dram_base"), Use("dram_rows", "rows that may be written, from dram_base on"), Use("row_beats"),
            Use("piece_beats"), Use("ring_first"), Use("ring_count"), Use("release"),
        ), fence=True),
    ),
    modes=tuple(mode.name.lower() for mode in MODE),
    devices=tuple(device.name.lower() for device in DEVICE),
    states=STATES,
    codes=(
        ENDED,
        ABORTED,
        Code(2, "BAD_INSTRUCTION", "an opcode, a reserved bit, a value or a load header that is not allowed; detail: "
                                   "word 0 or the header", ("instruction", "index")),
        Code(3, "INDEX_DEVICE", "an index word names device 3; detail: the index word", _PLACE),
        Code(4, "INDEX_RANGE", "a row number is not below its table's rows, those of the instruction and of the "
                               "descriptor, or a ring position is not one of the instruction's, as one that was "
                               "released before is none; detail: the index word", _PLACE),
        Code(5, "LENGTHS", "the lengths add up to something else than indices_count, or a bag is too long; "
                         "detail: the length",
             ("instruction", "bag")),
        Code(6, "BOUNDS", "an offset and size pass the end of a buffer; detail: 0 inputs, 1 outputs, 2 rows, 3 ring",
             _PLACE),
        Code(7, "READ_ERROR", "a read was answered with SLVERR or DECERR; detail: 0 program, 1 inputs, 2 rows, "
                              "3 doorbell", _PLACE),
        Code(8, "WRITE_ERROR", "a write was answered with SLVERR or DECERR; detail: the port's client",
             ("instruction",)),
        Code(9, "TIMEOUT", "nothing but a row from the SSD was waited for, and it has not landed in `timeout` cycles; "
                           "detail: its ring position", ("instruction",)),
        Code(10, "RING_OVERFLOW", "the host filled more than ring_beats behind what was released last, or behind the "
                                  "run's first position; detail: the filled position",
             ("instruction",)),
        Code(11, "TT_TABLE", "an index goes to a tensor-train table that was never loaded; detail: the table", _PLACE),
        Code(12, "TT_MEMORY", "a vector was made from a memory line with an uncorrectable error", _PLACE),
        stalled(13),
        Code(14, "SIGNATURE", "a load image does not have the signature that the instruction states, and no table is "
                              "loaded any more; detail: the image's", ("instruction",)),
    ),
    channels=("m00 read", "m00 write", "m01 read"),
    result_words=256,
    final_words=192,
    result=(
        *outcome(("bag", "number of the bag in the instruction"),
                 ("index", "number of the index word in the instruction; LOAD: of the load beat")),
        *counters(
            16,
            ("cycles", "cycles from start to the end of the last write"),
            ("instructions", "instructions carried out"),
            ("bags", "bags written"),
            ("indices", "indices of these bags"),
            ("dram_rows", "rows from card memory, those of the row cache included"),
            ("dram_bytes", "bytes of these rows"),
            ("tt_rows", "rows from the tensor-train unit"),
            ("tt_bytes", "bytes of these rows"),
            ("ssd_rows", "rows read from the ring, fills included"),
            ("ssd_bytes", "bytes of these rows"),
            ("coalesced_rows", "rows that another fetch of the same row served"),
            ("beats_fetched", "beats of rows that were fetched"),
            ("stall_dram", "cycles in which the bags waited for rows from card memory"),
            ("stall_tt", "cycles in which the bags waited for the tensor-train unit"),
            ("stall_ssd", "cycles in which the bags waited for rows that have not landed"),
            ("stall_write", "cycles in which the bags waited for room for their vectors"),
            ("stall_feeder", "cycles in which all tiers waited for lengths, indices or weights"),
            ("tt_computed", "first products that the tensor-train unit computed"),
            ("tt_reused", "first products that it remembered"),
            ("tt_slots", "issue slots that it used"),
            ("corrected", "memory errors that were corrected"),
            ("uncorrectable", "memory errors that could not be"),
            ("cache_fills", "rows copied into the row cache"),
        ),
        Value("released", 192, 32, "progress", "ring position behind which the host may fill ring_beats; before a run "
                                               "the host sets it to the run's first position, which may be any"),
        Value("instructions_done", 193, 32, "progress", "instructions carried out so far"),
        Value("filled", 208, 32, "doorbell", "ring position up to which all rows have landed; before a run the host "
                                             "sets it to the run's first position"),
    ),
)
