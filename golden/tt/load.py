"""Tables as the beats that load them: cores and descriptors."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from golden.tt.image import Image, image
from golden.tt.layout import RANK, Layout, Step, plan
from golden.tt.rows import MOST_ROWS, chunk_rows, shape_of

X, Y, TABLE = range(3)
SPLIT, LAST = 0, 3      # the parts of a descriptor that bound what programs may ask for
BEATS_BITS, CHUNK_BITS = 10, (MOST_ROWS - 1).bit_length()
BLOCK16_REFUSED = "cores of block16 need a TT unit with grouped = true, whose operands share exponents"
FLOAT32_REFUSED = "cores of float32 need a TT unit with block16_only = false; this one takes tt_format = block16 alone"


@dataclass(frozen=True)
class Limits:
    """The sizes of a unit that a table has to fit, as plain numbers; the names are those of the presets."""

    grid_log2: int
    x_lines: int
    y_lines: int
    t_lines: int
    t_middle_lines: int
    tables: int
    index_bits: int
    mode_bits: int
    rank_max: int
    dim_max: int
    grouped: bool
    block16_only: bool = False

    @classmethod
    def of(cls, sizes: Any) -> "Limits":
        """Those of a unit's sizes, which have the same names."""
        return cls(**{name: getattr(sizes, name) for name in cls.__dataclass_fields__})

    @property
    def x_bits(self) -> int:
        return (self.x_lines - 1).bit_length() + self.grid_log2 + self.grouped

    @property
    def y_bits(self) -> int:
        return (self.y_lines - 1).bit_length() + self.grouped

    def check_format(self, block16: bool) -> None:
        """Raises ValueError: cores in half the bits, or in all of them, are not for this unit."""
        if block16 and not self.grouped:
            raise ValueError(BLOCK16_REFUSED)
        if self.block16_only and not block16:
            raise ValueError(FLOAT32_REFUSED)

    def layout(self, modes, columns, ranks) -> Layout:
        """The layout of a table of this shape, R_0 .. R_d all ranks, after a check against these limits.

        Raises ValueError naming what is too large, by how much.
        """
        if prod(columns) > self.dim_max:
            raise ValueError(f"the embedding dimension is {prod(columns)}, this unit takes at most {self.dim_max}")
        for k, rank in enumerate(ranks):
            if rank > self.rank_max:
                raise ValueError(f"rank R_{k} is {rank}, this unit takes at most {self.rank_max}")
        for k, mode in enumerate(modes, start=1):
            if mode > 1 << self.mode_bits:
                raise ValueError(f"mode I_{k} is {mode}, this unit takes at most {1 << self.mode_bits}")
        if prod(modes) > 1 << self.index_bits:
            raise ValueError(f"{prod(modes)} rows need more than the {self.index_bits} index bits of this unit")
        planned = plan(modes, columns, ranks, grid_log2=self.grid_log2)
        # A chunk's first products stand in T together, those before it drain.
        for what, lines, room in (("first", planned.lines_2, self.t_lines // 4),
                                  ("second", planned.lines_3, self.t_middle_lines)):
            if lines > room:
                raise ValueError(f"the {what} product takes {lines} lines of the intermediate buffer, "
                                 f"this unit has {room} a row")
        return planned


@dataclass(frozen=True)
class Bounds:
    """What a table's descriptor allows programs: rows, beats of a vector, most rows of a chunk."""

    rows: int = 0
    beats: int = 1
    chunk_rows: int = 1

    def after(self, part: int, word: int, index_bits: int) -> "Bounds":
        """Those once a part of the descriptor is written, by the part's low 32 bits."""
        if part == SPLIT:
            return replace(self, rows=word & (2 << index_bits) - 1)
        if part == LAST:
            beats, chunk = word & (1 << BEATS_BITS) - 1, word >> BEATS_BITS & MOST_ROWS - 1
            return replace(self, beats=beats + 1, chunk_rows=chunk + 1)
        return self


@dataclass(frozen=True)
class Beat:
    """One beat of the load stream; data is an integer of n**2 * 32 bits. block: of a line of block16, two of which
    share one of the memory."""

    target: int
    part: int
    address: int
    data: int
    block: int = 0

    @property
    def header(self) -> int:
        """What a load image says of it."""
        return self.address | self.target << 16 | self.part << 18 | self.block << 22


def _pack(fields) -> int:
    """Fields (value, bits), the first lowest."""
    total, at = 0, 0
    for value, bits in fields:
        value = int(value)
        if not 0 <= value < 1 << bits:
            raise ValueError(f"descriptor value {value} does not fit {bits} bits")
        total |= value << at
        at += bits
    return total


def _step(step: Step | None, grid_log2: int):
    if step is None:
        return [(0, 12 + 10 + 8 + 7 + grid_log2 + 2 + 2)]
    ranks = sum((meaning == RANK) << bit for bit, meaning in enumerate(step.meaning))
    return [(step.tiles - 1, 12), (step.blocks - 1, 10), (step.groups - 1, 8), (step.lines - 1, 7),
            (ranks, grid_log2), (step.columns_log2, 2), (step.combine, 2)]


class Loader:
    """Places tables in a unit's memories, one after the other, and yields the beats that load them."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.x_used = self.y_used = self.count = 0

    def layout(self, cores) -> Layout:
        """The layout of cores (R_{k-1}, I_k, J_k, R_k), after a check against the unit's limits.

        Raises ValueError naming what is too large, by how much.
        """
        return self.limits.layout(*shape_of(cores))

    def add(self, cores, *, rows: int | None = None, block16: bool = False) -> tuple[int, Layout, list[Beat]]:
        """Places one table; returns its number, its layout and the beats that load it.

        rows: how many of the prod(I_k) rows exist (default all); a row number from there on is out of range. block16:
        the cores, which are golden.tt.block16.rounded_cores, take half the bits.
        Raises ValueError in one sentence: cores that do not chain, shapes over the limits, memory that is full.
        """
        layout = self.layout(cores)
        limits = self.limits
        rows = layout.rows if rows is None else rows
        if not 1 <= rows <= layout.rows:
            raise ValueError(f"rows must be 1 to {layout.rows}, the product of the modes, not {rows}")
        if self.count == limits.tables:
            raise ValueError(f"this unit holds at most {limits.tables} tables")
        limits.check_format(block16)
        packed = image(layout, cores, block16=block16)
        for what, used, more, room in (("X", self.x_used, packed.x_lines, limits.x_lines),
                                       ("Y", self.y_used, packed.y_lines, limits.y_lines)):
            if used + more > room:
                raise ValueError(f"the cores need {more} lines of {what} memory, "
                                 f"{room - used} of {room} are free")
        x_start, y_start = self.x_used << packed.lines_log2, self.y_used << packed.lines_log2
        beats = list(self._lines(X, packed.x, x_start, block16)) + list(self._lines(Y, packed.y, y_start, block16))
        beats += self._descriptor(packed, rows, x_start, y_start)
        number = self.count
        self.count += 1
        self.x_used += packed.x_lines
        self.y_used += packed.y_lines
        return number, layout, beats

    def _lines(self, target, lines, start, block16):
        n = 1 << self.limits.grid_log2
        bits = np.ascontiguousarray(lines, dtype="<f4").view("<u4").reshape(len(lines), n, n * n)
        for at, line in enumerate(bits):
            for part, words in enumerate(line):
                yield Beat(target, part, start + at, int.from_bytes(words.astype("<u4").tobytes(), "little"),
                           int(block16))

    def _descriptor(self, packed: Image, rows: int, x_start: int, y_start: int):
        limits, layout, block = self.limits, packed.layout, (packed.lines_log2, 1)
        words = 1 << 2 * limits.grid_log2
        chunk = chunk_rows(layout, rank_max=limits.rank_max, t_lines=limits.t_lines,
                           t_middle_lines=limits.t_middle_lines)
        cores = len(layout.modes)
        modes = layout.modes
        mode = {"last": modes[-1], "middle": modes[2] if cores == 4 else 1,
                "second": modes[0] if cores == 2 else modes[1]}
        split = [(rows, limits.index_bits + 1), *((mode[k] - 1, limits.mode_bits) for k in
                                                  ("last", "middle", "second"))]
        base = {part: (x_start + at) << packed.per_line_log2.get(part, 0)
                for part, at in packed.starts.items() if part != "second"}
        base["second"] = y_start >> layout.paired
        where = [(base.get(part, 0), limits.x_bits) for part in ("first", "middle", "last")]
        where += [(base["second"], limits.y_bits)]
        where += [(packed.strides.get(part, 0), 12) for part in ("first", "middle", "last", "second")]
        first = layout.first
        products: list[tuple[int, int]] = [(first is not None, 1)]
        if first is None:
            products += [(0, 12 + 10 + 7 + 4)]
        else:
            products += [(first.tiles - 1, 12), (first.blocks - 1, 10), (first.lines - 1, 7),
                         (first.combine, 1), (layout.paired, 1), (layout.format.swap, 1), block]
        products += [(layout.middle is not None, 1), *_step(layout.middle, limits.grid_log2)]
        last = [(-(-layout.dim // words) - 1, BEATS_BITS), (chunk - 1, CHUNK_BITS),
                *_step(layout.last, limits.grid_log2), (layout.turned, 1),
                ((layout.dim - 1) % words, 2 * limits.grid_log2), block]
        return [Beat(TABLE, part, self.count, _pack(fields))
                for part, fields in enumerate((split, where, products, last))]
