"""What passes between the parts of a lane's sequencer: lookups between their products, and issue slots."""

from amaranth.lib import data, enum

from hw.tt.config import TTConfig
from hw.tt.descriptor import descriptor_parts


class Product(enum.Enum, shape=2):
    """Which product of a lookup's chain a slot belongs to."""

    FIRST = 0
    MIDDLE = 1
    LAST = 2


def slot_layout(config: TTConfig) -> data.StructLayout:
    """One issue slot.

    stage: which product. x, y: operand addresses. lines: y comes from the intermediate buffer, of ring `ring`;
    paired: y is a pair of lines. block: the cores' lines are of block16. rows: bits of the sub-dot number that the X
    address gives. columns, turn: bits of the sub-dot number that `turn` replaces on the Y side. first, last: of a
    tile. write, swap: where and how the tile goes to the buffer. begin, ends, turned, columns_log2, combine, bad,
    tail, beats: of a vector.
    """
    n = config.grid_log2
    return data.StructLayout({
        "stage": Product,
        "x": config.x_bits,
        "y": config.operand_bits,
        "lines": 1,
        "ring": 1,
        "paired": 1,
        "block": 1,
        "rows": n,
        "columns": n,
        "turn": n,
        "first": 1,
        "last": 1,
        "write": config.t_bits,
        "swap": 1,
        "entry": config.entry_bits,
        "ticket": config.in_flight.bit_length(),
        "begin": 1,
        "turned": 1,
        "columns_log2": 2,
        "combine": 2,
        "bad": 1,
        "ends": 1,
        "tail": 2 * n,
        "beats": 10,
    })


def buffered_layout(config: TTConfig) -> data.StructLayout:
    """A lookup whose first product is computed, found, or not there at all (`buffered` says which).

    outside: the row number was past the table. entry, base: of the reuse table, where the product begins in T.
    middle, last: X operands of the other products. second: the Y operand where there is no first product. end: of a
    chunk.
    """
    return data.StructLayout({
        "table": (config.tables - 1).bit_length(),
        "outside": 1,
        "buffered": 1,
        "entry": config.entry_bits,
        "base": (config.t_lines - 1).bit_length(),
        "middle": config.x_bits,
        "last": config.x_bits,
        "second": config.y_bits,
        "end": 1,
    })


def served_layout(config: TTConfig) -> data.StructLayout:
    """A lookup for the first product, which it skips where it has none or it was found. held: the X operand."""
    return data.StructLayout({
        "token": buffered_layout(config),
        "plan": descriptor_parts(config)[2]["first"].shape,
        "skips": 1,
        "held": config.x_bits,
    })


def ready_layout(config: TTConfig) -> data.StructLayout:
    """A lookup that only lacks its last product.

    ring, lines: it has a middle product, of so many lines less one. base: its operand, in that ring, else in T or Y.
    ticket: what marks its memory errors.
    """
    return data.StructLayout({
        "table": (config.tables - 1).bit_length(),
        "outside": 1,
        "buffered": 1,
        "entry": config.entry_bits,
        "ring": 1,
        "base": config.operand_bits,
        "last": config.x_bits,
        "ticket": config.in_flight.bit_length(),
        "lines": config.ring_bits,
        "end": 1,
    })
