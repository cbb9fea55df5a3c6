"""Sizes of a TT computation unit."""

from dataclasses import dataclass
from typing import ClassVar

from hw.config import Config, choice, family, grouped, whole
from hw.uram import LINES


@dataclass(frozen=True, kw_only=True)
class TTConfig(Config):
    """One TT computation unit; see hw.tt.unit. Every key is set by a preset.

    Raises      ValueError: names the key, its value and what is allowed
    """

    lanes: int = choice(1, 2, about="independent engines, each on one port of the cores' memories")
    grid_log2: int = choice(1, 2, about="log2 of the side n of a lane's cube of n**4 multipliers")
    lut_products: int = whole(0, 16, "products of a cell that spend LUTs to save a DSP")
    x_lines: int = whole(2, 1 << 16, "lines of n**3 words for the narrow operands: a power of two, or, with "
                                     "block16_only, any number above an UltraRAM's 4096")
    y_lines: int = whole(4, 1 << 16, "lines of n**3 words for the wide operand", power_of_two=True)
    t_lines: int = whole(2, 1 << 12, "lines of first products that a lane keeps", power_of_two=True)
    t_middle_lines: int = whole(2, 1 << 12, "lines of second products of four cores that a lane keeps",
                                power_of_two=True)
    tables: int = whole(2, 1 << 12, "tables that are resident at once", power_of_two=True)
    index_bits: int = whole(4, 30, "bits of a row number")
    mode_bits: int = whole(2, 16, "bits of a mode size I_k")
    rank_max: int = whole(1, 256, "largest rank of a table")
    dim_max: int = whole(4, 4096, "largest embedding dimension of a table")
    reuse_entries: int = whole(4, 256, "first products that a lane keeps", power_of_two=True)
    reuse_findable: int = whole(4, 128, "of them, the youngest that it finds again: at most half", power_of_two=True)
    in_flight: int = whole(8, 256, "lookups that a queue between stages holds", power_of_two=True)
    output_beats: int = whole(8, 1024, "beats of sums that a lane keeps for the consumer", power_of_two=True)
    grouped: bool = grouped()
    block16_only: bool = choice(False, True, default=False,
                                about="all cores are block16: a product takes one DSP instead of two")
    family: str = family()

    # log2 of the rows of a chunk at most.
    chunk_log2: ClassVar[int] = 3

    def check(self) -> None:
        if self.index_bits < self.mode_bits:
            raise ValueError(f"index_bits must be at least mode_bits = {self.mode_bits}, not {self.index_bits}")
        if self.lut_products > self.side**2:
            raise ValueError(f"lut_products must be at most the {self.side**2} products of a cell, "
                             f"not {self.lut_products}")
        if self.grouped and (self.grid_log2 != 2 or self.lut_products):
            raise ValueError(f"grouped must be false for grid_log2 = {self.grid_log2} and lut_products = "
                             f"{self.lut_products}: groups have four products, all in DSP slices")
        if self.block16_only and not self.grouped:
            raise ValueError("block16_only must be false for grouped = false, whose operands share no exponents")
        if self.t_lines < self.reuse_entries:
            raise ValueError(f"t_lines must be at least reuse_entries = {self.reuse_entries}, not {self.t_lines}")
        # A chunk's intermediate products stand in T together, all of them findable or younger.
        if self.reuse_entries < 4 << self.chunk_log2:
            raise ValueError(f"reuse_entries must be at least {4 << self.chunk_log2}, four chunks of "
                             f"{1 << self.chunk_log2} rows, not {self.reuse_entries}")
        if self.reuse_findable > self.reuse_entries // 2:
            raise ValueError(f"reuse_findable must be at most half of reuse_entries = {self.reuse_entries}, "
                             f"not {self.reuse_findable}")
        deep = self.block16_only and self.x_lines > LINES
        if self.x_lines & (self.x_lines - 1) and not deep:
            raise ValueError(f"x_lines must be a power of two from 2 to {1 << 16}, not {self.x_lines}")
        for name, most in (("x_lines", LINES), ("y_lines", 2 * LINES)):
            if name == "x_lines" and deep:
                continue
            if self.family == "ultrascale_plus" and getattr(self, name) > most:
                raise ValueError(f"{name} must be at most {most} for family = 'ultrascale_plus', the words of its "
                                 f"UltraRAMs, not {getattr(self, name)}")
        if self.vectors < 8:
            raise ValueError(f"output_beats must be at least {8 * self.vector_beats}, eight vectors of dim_max = "
                             f"{self.dim_max}, not {self.output_beats}")

    @property
    def side(self) -> int:
        """n: operand rows, cells, sub-dots of a cell, terms of a dot product."""
        return 1 << self.grid_log2

    @property
    def line_words(self) -> int:
        """FP32 words of a line."""
        return self.side**3

    @property
    def beat_words(self) -> int:
        """FP32 words of a beat of a sum."""
        return self.side**2

    @property
    def vector_beats(self) -> int:
        """Beats that the longest sum takes in the output memory, a power of two."""
        return max(2, 1 << (-(-self.dim_max // self.beat_words) - 1).bit_length())

    @property
    def vectors(self) -> int:
        """Sums that a lane's output memory holds."""
        return self.output_beats // self.vector_beats

    @property
    def timing(self) -> dict[str, int]:
        """The sizes that decide in which cycle what happens, by name."""
        names = ("lanes", "index_bits", "t_lines", "t_middle_lines", "reuse_entries", "reuse_findable", "in_flight",
                 "vectors", "beats")
        return {name: getattr(self, name) for name in names}

    @property
    def macs(self) -> int:
        """Multiply-accumulates per cycle."""
        return self.lanes * self.side**4

    @property
    def terms_log2(self) -> int:
        """Growth bits of the accumulators: log2 of the longest dot product with its padding."""
        return max(2 * self.grid_log2, (self.rank_max - 1).bit_length())

    @property
    def beats(self) -> int:
        """Beats of the longest sum where operands share exponents, whose terms wait for the largest one; else 0."""
        return (1 << self.terms_log2) // self.side if self.grouped else 0

    @property
    def blocks_log2(self) -> int:
        """log2 of the lines of block16 that share one of the memories."""
        return int(self.grouped)

    @property
    def x_depths(self) -> tuple[int, int]:
        """Words of the two kinds of banks of X memory: an UltraRAM's at most in the first, where the second may have
        more.
        """
        first = min(self.x_lines, LINES)
        return first, 2 * self.x_lines - first

    @property
    def x_bits(self) -> int:
        """Bits of an X operand's address: a line and a quarter of it."""
        return (self.x_lines - 1).bit_length() + self.grid_log2 + self.blocks_log2

    @property
    def y_bits(self) -> int:
        """Bits of a Y line's address."""
        return (self.y_lines - 1).bit_length() + self.blocks_log2

    @property
    def t_bits(self) -> int:
        """Bits of a T line's address in either ring."""
        return (max(self.t_lines, self.t_middle_lines) - 1).bit_length()

    @property
    def operand_bits(self) -> int:
        """Bits of a line's address in Y or in T."""
        return max(self.y_bits, self.t_bits)

    @property
    def ring_bits(self) -> int:
        """Bits of a line's address in the ring of middle products."""
        return (self.t_middle_lines - 1).bit_length()

    @property
    def entry_bits(self) -> int:
        """Bits of an entry's number in the reuse table."""
        return (self.reuse_entries - 1).bit_length()
