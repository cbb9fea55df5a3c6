"""What the unit has to know of a table, as four parts that are loaded one beat each.

Addresses count operands: an X operand is a quarter of a line, or two, or the whole line, by its stage; a Y
operand is a line, or the pair of lines 2 a and 2 a + 1. Counts are stored less one. Source: golden.tt.layout
computes them, golden.tt.load packs them.
"""

from amaranth.hdl import Const, Module, Value
from amaranth.lib import data, enum, memory, wiring
from amaranth.lib.wiring import In, Out

from hw.tt.config import TTConfig

STRIDE_BITS = 12
BEATS_BITS = 10     # of a vector, less one


class Target(enum.Enum, shape=2):
    """What a load beat writes."""

    X = 0
    Y = 1
    TABLE = 2


def _stage(config: TTConfig) -> dict:
    return {
        "tiles": 12,
        "blocks": 10,
        "groups": 8,
        "lines": 7,
        # One bit a sub-dot bit: it stands for ranks, not rows.
        "ranks": config.grid_log2,
        "columns_log2": 2,
        "combine": 2,
    }


def descriptor_parts(config: TTConfig) -> tuple[data.StructLayout, ...]:
    """The parts in the order of their numbers: split, where, products, last. block: the cores are of block16.

    What programs have to keep to is in them too: the rows in the first; the beats of a vector and the most rows of a
    chunk at the low end of the last.
    """
    x, y = config.x_bits, config.y_bits
    split = data.StructLayout({
        "rows": config.index_bits + 1,
        "last": config.mode_bits,       # mode sizes, less one
        "middle": config.mode_bits,
        "second": config.mode_bits,
    })
    where = data.StructLayout({
        "first": x, "middle": x, "last": x, "second": y,
        "first_stride": STRIDE_BITS, "middle_stride": STRIDE_BITS,
        "last_stride": STRIDE_BITS, "second_stride": STRIDE_BITS,
    })
    products = data.StructLayout({
        "first": data.StructLayout({
            "present": 1, "tiles": 12, "blocks": 10, "lines": 7, "wide": 1, "paired": 1, "swap": 1, "block": 1,
        }),
        "middle_present": 1,
        "middle": data.StructLayout(_stage(config)),
    })
    last = data.StructLayout({
        "beats": BEATS_BITS,
        "chunk": config.chunk_log2,
        **_stage(config),
        "turned": 1,
        # The words of the last beat, less one.
        "tail": 2 * config.grid_log2,
        "block": 1,
    })
    return split, where, products, last


def load_layout(config: TTConfig) -> data.StructLayout:
    """Payload of the load stream: one quarter line of cores or a descriptor part.

    address: an X or Y line, or a table. part: the quarter of the line or the descriptor's part. data: n**2 FP32
    words, or the part in the low bits. block: a line of block16, two of which share one of the memory; of words that
    golden.tt.block16 gives, and -0 for padding. flip: stores the first codeword of the beat with its bits 0
    and 1 flipped, to try out the error correction.
    """
    address = max(config.x_bits - config.grid_log2, config.y_bits, (config.tables - 1).bit_length())
    return data.StructLayout({
        "target": Target,
        "part": 2,
        "address": address,
        "block": 1,
        "flip": 2,
        "data": config.side**2 * 32,
    })


def block_of(config: TTConfig, carrier: data.View) -> Value:
    """Whether the line of a load, slot or job is of block16; where nothing else exists it is not asked."""
    return Const(1, 1) if config.block16_only else carrier.block


def part_layout(config: TTConfig) -> data.StructLayout:
    """A write of one of a table's parts 2 and 3, if `valid`."""
    parts = descriptor_parts(config)
    return data.StructLayout({
        "valid": 1,
        "part": 2,
        "table": (config.tables - 1).bit_length(),
        "words": max(parts[2].size, parts[3].size),
    })


class PartMemory(wiring.Component):
    """One part of every table's descriptor.

    Parameters  config: TTConfig; part: its number, 2 or 3
    Members     load   In  a write of part_layout
                table  In
                o      Out  the table's part
    Timing      no latency from table to o
    Reset       contents stay
    Golden      golden.tt.image          Tests  verif/tt/test_unit.py
    """

    def __init__(self, config: TTConfig, *, part: int):
        self.config = config
        self.part = part
        super().__init__({
            "load": In(part_layout(config)),
            "table": In((config.tables - 1).bit_length()),
            "o": Out(descriptor_parts(config)[part]),
        })

    def elaborate(self, platform):
        m = Module()
        store = memory.Memory(shape=len(self.o.as_value()), depth=self.config.tables, init=[])
        m.submodules.store = store
        write, read = store.write_port(), store.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(self.load.table),
            write.data.eq(self.load.words),
            write.en.eq(self.load.valid & (self.load.part == self.part)),
            read.addr.eq(self.table),
            self.o.eq(read.data),
        ]
        return m
