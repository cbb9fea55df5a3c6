"""Sizes of the serial TT unit, and the layouts of what its parts exchange."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Value
from amaranth.lib import data, enum

from hw.config import Config, whole
from hw.tt.index import slices_layout

PRODUCTS_MAX = 3


@dataclass(frozen=True, kw_only=True)
class SerialConfig(Config):
    """One serial TT unit; see hw.tt.serial. Every key is set by a preset.

    Raises      ValueError: names the key, its value and what is allowed
    """

    rows: int = whole(2, 64, "rows of processing elements", power_of_two=True)
    columns: int = whole(2, 64, "columns of processing elements, and words of a beat", power_of_two=True)
    a_lines: int = whole(2, 1 << 16, "lines of `rows` words for first cores", power_of_two=True)
    b_lines: int = whole(2, 1 << 12, "lines of `columns` words for one intermediate", power_of_two=True)
    c_lines: int = whole(2, 1 << 16, "lines of `columns` words for the other cores", power_of_two=True)
    tables: int = whole(2, 1 << 12, "tables that are resident at once", power_of_two=True)
    index_bits: int = whole(4, 30, "bits of a row number")
    mode_bits: int = whole(2, 16, "bits of a mode size I_k")
    rank_max: int = whole(1, 64, "largest rank of a table")
    dim_max: int = whole(4, 4096, "largest embedding dimension of a table", power_of_two=True)
    in_flight: int = whole(2, 64, "lookups that are split ahead of their turn", power_of_two=True)

    def check(self) -> None:
        if self.rows > self.columns:
            raise ValueError(f"rows must be at most columns = {self.columns}, not {self.rows}: a beat of the "
                             f"intermediate takes one word from each of as many banks as there are rows")
        if self.rank_max > self.columns:
            raise ValueError(f"rank_max must be at most columns = {self.columns}, not {self.rank_max}")
        if self.dim_max < self.columns:
            raise ValueError(f"dim_max must be at least columns = {self.columns}, not {self.dim_max}")
        if self.index_bits < self.mode_bits:
            raise ValueError(f"index_bits must be at least mode_bits = {self.mode_bits}, "
                             f"not {self.index_bits}")

    @property
    def terms_log2(self) -> int:
        """Growth bits of the accumulators."""
        return (self.rank_max - 1).bit_length()

    @property
    def a_bits(self) -> int:
        return (self.a_lines - 1).bit_length()

    @property
    def c_bits(self) -> int:
        return (self.c_lines - 1).bit_length()

    @property
    def table_bits(self) -> int:
        return (self.tables - 1).bit_length()


class Target(enum.Enum, shape=2):
    """What a load beat writes."""

    A = 0
    C = 1
    TABLE = 2


class Splitting:
    """The sizes that the index splitter wants, read off a serial unit's configuration."""

    grid_log2 = 1
    chunk_log2 = 0      # no chunks: rows leave one by one

    def __init__(self, config: SerialConfig):
        self.tables = config.tables
        self.index_bits = config.index_bits
        self.mode_bits = config.mode_bits
        self.x_bits = self.y_bits = max(config.a_bits, config.c_bits)


def shape_layout(config: SerialConfig) -> data.StructLayout:
    """Part 2 of a table's descriptor: its products, less one; log2 of D; and each product's size."""
    step = data.StructLayout({
        "less_one": max(1, config.terms_log2),      # k - 1
        "m_log2": 4, "n_log2": 5,
        "stride_log2": 3,                           # of the left operand's rows in the intermediate
    })
    return data.StructLayout({"products": 2, "dim_log2": 4, "steps": data.ArrayLayout(step, PRODUCTS_MAX)})


def load_layout(config: SerialConfig) -> data.StructLayout:
    """Payload of the load stream: a line of first cores (the low words count), a line of the other cores, or
    a part of a table's descriptor in the low bits: 0 sizes and 1 places (hw.tt.descriptor), 2 shape.
    """
    return data.StructLayout({
        "target": Target,
        "part": 2,
        "address": max(config.a_bits, config.c_bits, config.table_bits),
        "data": config.columns * 32,
    })


def vector_layout(config: SerialConfig) -> data.StructLayout:
    """A beat of a vector; words past a vector shorter than a beat are 0. `outside` marks a row number past
    the table, for which row 0 was computed.
    """
    return data.StructLayout({
        "data": data.ArrayLayout(32, config.columns),
        "last": 1,
        "outside": 1,
        "table": config.table_bits,
    })


def job_layout(config: SerialConfig) -> data.StructLayout:
    return data.StructLayout({"slices": slices_layout(Splitting(config)), "plan": shape_layout(config)})


def word_bits(config: SerialConfig) -> int:
    """Bits of a word's number in an intermediate."""
    return (config.b_lines * config.columns - 1).bit_length()


def tile_bits(config: SerialConfig) -> int:
    """Bits of a tile's number: rows of a product are at most D, columns fill an intermediate at most."""
    return (max(config.b_lines, config.dim_max // config.rows) - 1).bit_length()


def tiles_less_one(size_log2: Value, tile_log2: int, bits: int) -> Value:
    """2^(size_log2 - tile_log2) - 1, or 0 where the tile is not filled."""
    return Cat(size_log2 > tile_log2 + bit for bit in range(bits))
