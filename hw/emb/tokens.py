"""What the parts that read a program hand to one another: jobs, tokens, errors."""

from amaranth.hdl import Value
from amaranth.lib import data

from hw.emb.row_formats import FORMAT_BITS
from hw.emb.rows import beats_bits
from hw.isa import EMB

# Rows of a chunk, less one: as many bits as the instruction's largest chunk needs.
CHUNK_BITS = (EMB.field("chunk_rows").highest - 1).bit_length()
# Ring positions, row numbers and train rows are what an index word can say below its device bits.
POSITION_BITS = 30
# Pushes that can still come after a queue has said that it is closed: the stages of the feeder and of the
# tiers, the two registers of the queue's own answer, and a row that was held back.
OPEN_SLACK = 14


def table_bits(tables: int) -> int:
    """Bits of a tensor-train table's number."""
    return max(1, (tables - 1).bit_length())


def above(value: Value, power: int) -> Value:
    """value > power, a power of two, without a carry chain that synthesis would hang behind another."""
    bit = power.bit_length() - 1
    return value[bit + 1:].any() | (value[bit] & value[:bit].any())


def job_layout(*, row_beats_max: int, stripe_beats: int) -> data.StructLayout:
    """A BAGS or FILL instruction that has been checked.

    number: which instruction; copy: FILL, whose rows are bags of two words each; beats, piece: of a row as it is
    stored, less one; vector: of its FP32 values, less one; row_format: see ROW_FORMAT, float32 for FILL, which copies
    rows of every format as they are; chunk: less one; cut: a bit per power of two, the beats of a piece, none where
    rows are one piece; loaded: the tensor-train table `table` is; span: ring positions a row may begin at, less one,
    from first on; ring: there is at least one; count, indices: bags, and words of all; the rest as in the instruction.
    """
    return data.StructLayout({
        "number": 32, "copy": 1, "mode": 2, "weighted": 1, "format": 2, "row_format": FORMAT_BITS,
        **dict.fromkeys(("beats", "piece", "vector"), beats_bits(row_beats_max)),
        "cut": (stripe_beats - 1).bit_length(), "table": EMB.field("tt_table").bits, "loaded": 1,
        "chunk": CHUNK_BITS, "count": 32, "indices": 32, "dram_base": 32, "dram_rows": 32,
        "tt_rows": POSITION_BITS + 1, "out": 32, "stride": 32, "first": POSITION_BITS, "span": POSITION_BITS + 1,
        "ring": 1,
    })


def token_layout(*, row_beats_max: int, tables: int) -> data.StructLayout:
    """One index, a pair of one of a tensor train and one of another memory, or an empty bag.

    dram, tt, ssd: which memories have a row, none for an empty bag; offset: of a row of card memory its first beat in
    the rows' arena, of one of the SSD its ring position; tt_row: of a tensor train; factor, tt_factor: the index's
    weight if weighted, the bag's number of indices with mean, else 1.0, and both the same for a single index; last:
    the bag ends here; final: and with it the instruction; copy: of a FILL, with ssd the row to copy, with dram where
    to; the rest as in the job, `out` being this bag's.
    """
    return data.StructLayout({
        "dram": 1, "tt": 1, "ssd": 1, "offset": 32, "tt_row": POSITION_BITS, "factor": 32, "tt_factor": 32,
        "last": 1, "final": 1, "copy": 1, "mode": 2, "weighted": 1, "format": 2, "row_format": FORMAT_BITS,
        **dict.fromkeys(("beats", "piece", "vector"), beats_bits(row_beats_max)), "table": table_bits(tables),
        "chunk": CHUNK_BITS, "out": 32, "number": 32,
    })


def error_layout() -> data.StructLayout:
    """What went wrong first, as the result block tells it. valid stays until reset."""
    return data.StructLayout({"valid": 1, "code": 8, "instruction": 32, "bag": 32, "index": 32, "detail": 32})
