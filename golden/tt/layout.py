"""Where every word of a tensor train lies in the TT unit, and how often each loop turns.

The unit's lane is a cube of multipliers of side n = 2**grid_log2: n operand rows r, n cells c, n sub-dots s
and n words w a dot product. Both operands and the results are *lines* of n**3 words:

    X line    (q, r, w)   the narrow operand: q is the quarter that sub-dot s reads
    Y line    (c, s, w)   the wide operand, from the cores' memory or from the intermediate buffer T
    result    (r, c, s)   one FP32 word a sub-dot

A product of the chain is computed tile after tile. Which row, column or rank index a coordinate of the cube
stands for is the *format* of the product's result, a choice of layout that costs no multiplexer:

    A   4 j1 x 4 j2 x  4 ranks a line      (side 4; side 2 halves every count)
    B   2 j1 x 8 j2 x  4
    C   2 j1 x 4 j2 x  8
    D   2 j1 x 2 j2 x 16                   (side 4 only)
    E   as D with 8 ranks, first product 8 terms per beat

and the next product consumes such lines with 2**v blocks of n columns a tile: sub-dot bits that mean ranks
are added up inside the cell, or, where they are needed for columns, walked through in time.

Source: SCRec §III.E Alg. 1 (the chain, its unfolding and reshaping); the tiling is this project's own.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import prod

import numpy as np

ROW, RANK = "row", "rank"


@dataclass(frozen=True)
class Format:
    """How one line of T divides into rows (j1, j2) and ranks.

    j1, j2, ranks: how many of each one line holds. meaning: what the sub-dot bits (low, high) stand for.
    swap: the low sub-dot bit and the high cell bit change places when a result is written (map Q).
    wide: the first product adds up two sub-dots (2 n terms per beat).
    paired: the upper half of the operand rows reads a second Y line.
    """

    name: str
    j1: int
    j2: int
    ranks: int
    meaning: tuple[str, ...]
    swap: bool = False
    wide: bool = False
    paired: bool = False


@cache
def formats(grid_log2: int) -> tuple[Format, ...]:
    """The formats of a lane of side 2**grid_log2."""
    n = 1 << grid_log2
    half = n // 2
    rows = (ROW,) * grid_log2
    formats = [
        Format("A", n, n, n, rows),
        Format("B", half, 2 * n, n, rows, paired=True),
        Format("C", half, n, 2 * n, rows[1:] + (RANK,), paired=True),
    ]
    if grid_log2 == 2:
        formats.append(Format("D", 2, 2, 16, (RANK, RANK), swap=True, paired=True))
        formats.append(Format("E", 2, 2, 8, (RANK, RANK), swap=True, wide=True, paired=True))
    return tuple(formats)


@cache
def positions(grid_log2: int, name: str) -> np.ndarray:
    """(j1, j2, rank) of each word of a T line in this format; -1 where a word holds nothing.

    Shape (n, n, n, 3), indexed by cell, sub-dot, word.
    """
    n = 1 << grid_log2
    out = np.full((n, n, n, 3), -1, dtype=np.int64)
    for cell, sub, word in product(range(n), repeat=3):
        high, low = sub >> (grid_log2 - 1), sub & (n // 2 - 1)
        if name == "A":
            out[cell, sub, word] = (2 * low + high if grid_log2 == 2 else high, cell, word)
        elif name == "B":
            out[cell, sub, word] = (low, high * n + cell, word)
        elif name == "C":
            out[cell, sub, word] = (low, cell, high * n + word)
        elif name == "D":
            out[cell, sub, word] = (cell >> 1, cell & 1, low * 8 + high * 4 + word)
        elif name == "E" and low == 0:
            out[cell, sub, word] = (cell >> 1, cell & 1, high * 4 + word)
    return out


def written_to(grid_log2: int, swap: bool, row: int, cell: int, sub: int) -> tuple[int, int, int]:
    """T coordinates (cell, sub, word) to which the first product's result (row, cell, sub) goes."""
    if not swap:
        return sub, row, cell
    return (row & 1) << 1 | (sub & 1), (row >> 1) << 1 | (sub >> 1), cell


@dataclass(frozen=True)
class Step:
    """One product of the chain as the lane's loop machine runs it.

    A pass over a tile takes `beats` issue slots: `lines` Y lines, each `rank_turns` times. Tiles run through
    `blocks` (fastest), then `groups` of lines, then `row_turns`, then on, until `tiles` are done.
    combine: levels of sub-dots added up. columns_log2: v. meaning, width: see Format; width is the number
    of terms per beat, which with their order fixes the rounding.
    """

    tiles: int
    blocks: int
    groups: int
    lines: int
    columns_log2: int
    combine: int
    row_turns: int
    rank_turns: int
    width: int
    meaning: tuple[str, ...]

    @property
    def beats(self) -> int:
        return self.lines * self.rank_turns

    @property
    def slots(self) -> int:
        return self.tiles * self.beats


@dataclass(frozen=True)
class Layout:
    """The whole plan of one table: I, J, R as given and each product's step.

    modes/columns: I_k and J_k. ranks: R_0 .. R_d. The lane's order is the vector's order, with padding at its end
    alone. turned: pairs of tiles alternate. lines_2, lines_3: T lines per lookup. slots: issue slots per lookup.
    """

    grid_log2: int
    modes: tuple[int, ...]
    columns: tuple[int, ...]
    ranks: tuple[int, ...]
    format: Format
    paired: bool
    first: Step | None
    middle: Step | None
    last: Step
    turned: bool

    @property
    def dim(self) -> int:
        return prod(self.columns)

    @property
    def rows(self) -> int:
        return prod(self.modes)

    @property
    def macs(self) -> int:
        """Multiplications that the chain needs for a row, padding not counted."""
        done, total = self.columns[0], 0
        for k in range(1, len(self.columns)):
            total += done * self.ranks[k] * self.columns[k] * self.ranks[k + 1]
            done *= self.columns[k]
        return total

    @property
    def slots(self) -> int:
        return sum(step.slots for step in (self.first, self.middle, self.last) if step)

    @property
    def lines_2(self) -> int:
        return self.first.tiles if self.first else 0

    @property
    def lines_3(self) -> int:
        return self.middle.tiles if self.middle else 0


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _consume(fmt: Format, grid_log2: int, v: int) -> tuple[int, int, int, int, int]:
    """(combine, row_turns, rank_turns, rows of a tile, width) of a product that reads `fmt` lines."""
    n = 1 << grid_log2
    column_bits = {1: (False,) * (1 - v) + (True,) * v, 2: (v > 0, v > 1)}[grid_log2]
    combine, row_turns, rank_turns, rows = 0, 1, 1, n
    for is_column, meaning in zip(column_bits, fmt.meaning, strict=True):
        if is_column:
            row_turns *= 2 if meaning == ROW else 1
            rank_turns *= 2 if meaning == RANK else 1
        elif meaning == RANK:
            combine += 1
        else:
            rows *= 2
    return combine, row_turns, rank_turns, rows, n << combine


def _last(fmt: Format, grid_log2: int, v: int, j1: int, j2: int, last: int, rank: int):
    """The step that reads rows (j1, j2) in `fmt` and multiplies by the last core, or None.

    Returns (step, padded j2, padded last, turned).
    """
    n = 1 << grid_log2
    combine, row_turns, rank_turns, tile_rows, width = _consume(fmt, grid_log2, v)
    columns = n << v
    blocks = _ceil(last, columns)
    turned = blocks == 2
    if blocks > 2 or (turned and v != grid_log2):
        return None
    groups = _ceil(j2, fmt.j2)
    # Rows leave in their natural order only where a tile's rows are consecutive.
    if groups > 1 and not (tile_rows <= fmt.j2 and (row_turns == 1 or tile_rows * row_turns == fmt.j1 * fmt.j2)
                           and tile_rows * row_turns == fmt.j1 * fmt.j2 and fmt.j2 == tile_rows):
        return None
    padded_2, padded_last = groups * fmt.j2, blocks * columns
    words = tile_rows * columns
    total = j1 * padded_2 * padded_last
    if words < n ** 3 and total > words:
        return None
    tiles = _ceil(total, words * blocks) * blocks
    step = Step(tiles, blocks, groups, _ceil(rank, fmt.ranks), v, combine, row_turns, rank_turns, width,
                fmt.meaning)
    return step, padded_2, padded_last, turned


def _first(fmt: Format, n: int, j1: int, j2: int, rank_1: int, rank_2: int) -> Step:
    width = 2 * n if fmt.wide else n
    y_tiles = _ceil(j2, fmt.j2) * _ceil(rank_2, fmt.ranks)
    return Step(tiles=_ceil(j1, fmt.j1) * y_tiles, blocks=y_tiles, groups=1, lines=_ceil(rank_1, width),
                columns_log2=0, combine=int(fmt.wide), row_turns=1, rank_turns=1, width=width, meaning=())


def check_shape(modes, columns, ranks) -> None:
    """Raises ValueError, one sentence, unless modes, columns and ranks describe a chain of 2 to 4 cores."""
    if not 2 <= len(modes) <= 4:
        raise ValueError(f"a tensor train has 2 to 4 cores here, not {len(modes)}")
    if len(columns) != len(modes):
        raise ValueError(f"{len(modes)} row modes {tuple(modes)} need as many column modes, not {tuple(columns)}")
    if len(ranks) != len(modes) + 1 or ranks[0] != 1 or ranks[-1] != 1:
        raise ValueError(f"ranks must be 1, R1, .., 1 ({len(modes) + 1} numbers), not {tuple(ranks)}")
    for what, values in (("row mode", modes), ("column mode", columns), ("rank", ranks)):
        for value in values:
            if value < 1:
                raise ValueError(f"{what} {value} must be at least 1")


def plan(modes, columns, ranks, *, grid_log2: int = 2) -> Layout:
    """The layout with the fewest issue slots a lookup for a table of this shape.

    modes (I_1..I_d), columns (J_1..J_d), ranks (1, R_1, .., 1): integers, 2 <= d <= 4.
    Raises ValueError for a shape that does not chain, that the lane cannot order, or whose padding would leave holes
    inside a vector.
    """
    modes, columns, ranks = (tuple(int(v) for v in values) for values in (modes, columns, ranks))
    check_shape(modes, columns, ranks)
    return _plan(modes, columns, ranks, grid_log2)


@cache
def _plan(modes, columns, ranks, grid_log2: int) -> Layout:
    n = 1 << grid_log2
    best, holes = None, False
    for fmt, v in product(formats(grid_log2), range(grid_log2 + 1)):
        candidate = _candidate(fmt, v, modes, columns, ranks, grid_log2)
        if candidate is None:
            continue
        layout, padded = candidate
        if padded != columns:
            holes = True
            continue
        cost = (layout.slots, layout.lines_2)
        if best is None or cost < best[0]:
            best = cost, layout
    if best is None and holes:
        raise ValueError(f"column modes {columns} and ranks {ranks} leave holes inside a vector, "
                         f"which this unit cannot close")
    if best is None:
        raise ValueError(f"column modes {columns} have no order on this unit: the last may be at most "
                         f"{2 * n * n}")
    return best[1]


def _candidate(fmt: Format, v: int, modes, columns, ranks, grid_log2: int) -> tuple[Layout, tuple[int, ...]] | None:
    """(the layout in this format and with 2**v blocks of columns, J as the lane pads them), or None."""
    n = 1 << grid_log2
    cores = len(modes)
    first = middle = None
    paired = fmt.paired
    padded: tuple[int, ...]
    if cores == 2:
        if fmt.swap or fmt.wide:
            return None
        # The first core itself stands in the lines: its rows are j2 of blocks of j1.
        j1, j2 = _ceil(columns[0], fmt.j2), fmt.j2
        last = _last(fmt, grid_log2, v, j1, j2, columns[1], ranks[1])
        if last is None:
            return None
        step, _, last_padded, turned = last
        step = replace(step, tiles=_ceil(columns[0] * last_padded, _tile_words(step, n) * step.blocks)
                       * step.blocks)
        if _tile_words(step, n) < n ** 3 and step.tiles > step.blocks:
            return None
        padded, paired = (columns[0], last_padded), False
    else:
        if fmt.wide and ranks[2] > fmt.ranks:
            return None
        if fmt.paired and fmt.name != "B" and ranks[2] <= n:
            paired = False
        if fmt.name == "B" and columns[1] <= n:
            return None
        first = _first(fmt, n, columns[0], columns[1], ranks[1], ranks[2])
        if cores == 3:
            last = _last(fmt, grid_log2, v, columns[0], columns[1], columns[2], ranks[2])
            if last is None:
                return None
            step, padded_2, last_padded, turned = last
            padded = (columns[0], padded_2, last_padded)
        else:
            inner = _middle(fmt, grid_log2, columns, ranks)
            if inner is None:
                return None
            middle, padded_2, groups_3, row_groups = inner
            fmt_3 = formats(grid_log2)[0]
            last = _last(fmt_3, grid_log2, v, row_groups * n, groups_3 * n, columns[3], ranks[3])
            if last is None:
                return None
            step, padded_3, last_padded, turned = last
            padded = (columns[0], padded_2, padded_3, last_padded)
            tile = _tile_words(step, n) * step.blocks
            step = replace(step, tiles=_ceil(prod(padded), tile) * step.blocks)
    return Layout(grid_log2, modes, columns, ranks, fmt, paired, first, middle, step, turned), padded


def _tile_words(step: Step, n: int) -> int:
    return n ** 3 >> step.combine


def _middle(fmt: Format, grid_log2: int, columns, ranks):
    """The second product of four cores: (step, padded j2, groups of j3, groups of n rows), or None."""
    n = 1 << grid_log2
    combine, row_turns, rank_turns, tile_rows, width = _consume(fmt, grid_log2, grid_log2)
    groups_2 = _ceil(columns[1], fmt.j2)
    if tile_rows * row_turns != fmt.j1 * fmt.j2:
        return None
    if fmt.j2 != tile_rows and groups_2 > 1:
        return None
    padded_2 = groups_2 * fmt.j2
    row_groups = _ceil(columns[0] * padded_2, n)
    groups_3, lines_3 = _ceil(columns[2], n), _ceil(ranks[3], n)
    blocks = groups_3 * lines_3
    step = Step(row_groups * blocks, blocks, groups_2, _ceil(ranks[2], fmt.ranks), grid_log2, combine, row_turns,
                rank_turns, width, fmt.meaning)
    return step, padded_2, groups_3, row_groups
