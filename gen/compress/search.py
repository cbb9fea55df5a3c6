"""Shapes and ranks of a table's tensor train: what each takes of the unit's memories and of its time.

The unit keeps the second core in one memory and the others in another (golden.tt.image), and holds so many tables. A
train's *share* is the largest of the three it takes: tables whose shares add up to 1 fit together. Row modes I_k are
chosen for the least share; near-equal ones would fill one memory and leave the other empty.

Source: SCRec §III.B (compression ratio), eq. 26 (tt_cm); EL-Rec eq. 2 (shapes)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gen.data.shapes import factorizations, macs, positive
from gen.model.recommender import TT_FORMATS
from golden import tt
from golden.tt import Limits
from golden.tt.image import slices_of

#: Ranks that are tried where none is given.
RANKS = (1, 2, 4, 8, 16, 32, 64)
#: How many cores a tensor train has, as in both papers.
CORES = (3,)
#: Rows of a knot, relative to the one before.
STEP = 1.1


@dataclass(frozen=True)
class Candidate:
    """One shape of a table's train.

    modes, columns, ranks: I_k, J_k and the inner R_k. words: of the cores. x_lines, y_lines: of the unit's memories.
    share: of a unit, at least that of a table's slot. bytes: share times `capacity`, what eq. 27 adds up.
    cycles: a row in steady state, no first product found again (golden). macs: multiplications a row.
    """

    rows: int
    dim: int
    modes: tuple[int, ...]
    columns: tuple[int, ...]
    ranks: tuple[int, ...]
    words: int
    x_lines: int
    y_lines: int
    share: float
    bytes: float
    cycles: float
    macs: int

    @property
    def rank(self) -> int:
        return max(self.ranks)

    @property
    def ratio(self) -> float:
        """Compression ratio: words of the dense rows for a word of the cores (SCRec §III.B)."""
        return self.rows * self.dim / self.words


@dataclass(frozen=True)
class _Kind:
    """Column modes at a rank. sizes: (cores, 4) int64: operands of a slice, operands a line, lines of that memory,
    the fewest slices. narrow: the cores in X memory; wide: the one in Y memory."""

    columns: tuple[int, ...]
    rank: int
    sizes: NDArray[np.int64]
    narrow: tuple[int, ...]
    wide: int
    cycles: float


def capacity(config: Any) -> int:
    """Bytes of the core memories of the TT unit that `config` describes."""
    return 4 * (1 << 3 * config.grid_log2) * (config.x_lines + config.y_lines)


def candidates(rows: int, dim: int, *, config: Any, ranks: Iterable[int] = RANKS, cores: Iterable[int] = (2, 3, 4),
               form: str = TT_FORMATS[0]) -> list[Candidate]:
    """Every column shape at every rank, each with the row modes of the least share, that fits the unit alone.

    config: a TT unit's configuration; form: of the cores, here and in all of this module. Raises ValueError: rows or
    dim below 1.
    """
    positive("rows", rows)
    positive("dim", dim)
    fitting = (_candidate(int(rows), int(dim), kind, config)
             for rank in sorted(set(ranks)) for kind in _kinds(int(dim), rank, tuple(cores), config, form)[0])
    return [each for each in fitting if each is not None]


def pareto(found: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other one beats in bytes, cycles and rank at once, by rank, cycles and bytes.

    The rank stands for the error, which depends on the values: a higher one can express all that a lower one can.
    """
    kept: list[Candidate] = []
    for one in sorted(found, key=lambda each: (-each.rank, each.cycles, each.bytes, each.words)):
        if not any(other.bytes <= one.bytes and other.cycles <= one.cycles for other in kept):
            kept.append(one)
    return kept[::-1]


@lru_cache(maxsize=1 << 16)
def best(rows: int, dim: int, *, config: Any, bytes: float | None = None, cycles: float | None = None,
         rank: int | None = None, form: str = TT_FORMATS[0]) -> Candidate:
    """The TT within the bounds: of the highest rank (or of `rank`), then the fewest cycles a row, then the least
    share, then the fewest words.

    Raises ValueError, one sentence: no bound and no rank is given, or nothing meets them.
    """
    if bytes is None and cycles is None and rank is None:
        raise ValueError("one of bytes, cycles and rank must be given: without a bound the largest TT is best")
    shapes = candidates(rows, dim, config=config, ranks=RANKS if rank is None else (rank,), cores=CORES, form=form)
    fit = [one for one in shapes if (bytes is None or one.bytes <= bytes) and (cycles is None or one.cycles <= cycles)]
    if not fit:
        raise ValueError(_nothing(rows, dim, shapes, bytes, cycles, rank, config, form))
    return min(fit, key=lambda one: (-one.rank, one.cycles, one.share, one.words, one.columns))


def width(dim: int, rank: int, *, config: Any) -> int:
    """FP32 values of a tensor train's row that stands for one of `dim`: as many, or where no shape has them, whole
    beats, zeros behind the row's own values, as dense rows have them too."""
    words = 1 << 2 * config.grid_log2
    return dim if _kinds(dim, rank, CORES, config)[0] else -(-dim // words) * words


def cycles_of(dim: int, rank: int, *, config: Any) -> float:
    """The fewest cycles a row, of all column modes. Raises ValueError, the unit's sentence: it takes none of them."""
    kinds, refusal = _kinds(dim, rank, CORES, config)
    if not kinds:
        raise ValueError(f"no tensor train of {dim} words at rank {rank}: {refusal}")
    return min(kind.cycles for kind in kinds)


def knots(rows: int, dim: int, *, rank: int, config: Any,
          form: str = TT_FORMATS[0]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(rows, bytes): what a tensor train of so many of the table's hottest rows takes, to be interpolated between.

    From (0, 0) to the most rows that fit the unit, STEP from knot to knot; each has the bytes of the *next* one,
    so that a line between two is nowhere below `best(...).bytes`. All are tensor trains of `cycles_of` cycles a row.
    Only (0, 0) where no shape of this width and rank fits the unit.
    """
    edges, sizes = _curve(dim, rank, config, form)
    inside = int(np.searchsorted(edges, rows, side="left"))
    if inside == len(edges) or not rows:
        return edges[:inside or 1].copy(), sizes[:inside or 1].copy()
    # The table's last row lies between two knots.
    own = best(rows, dim, config=config, rank=rank, form=form).bytes
    return np.append(edges[:inside], rows), np.append(np.minimum(sizes[:inside], own), own)


@lru_cache(maxsize=256)
def _curve(dim: int, rank: int, config: Any, form: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The knots of a table of as many rows as fit."""
    kinds, _ = _kinds(dim, rank, CORES, config, form)
    cycles = min((kind.cycles for kind in kinds), default=0.0)

    def bytes_of(rows: int) -> float:
        try:
            return best(rows, dim, config=config, cycles=cycles, rank=rank, form=form).bytes
        except ValueError:
            return float("inf")

    room = capacity(config)
    if bytes_of(1) > room:
        return np.zeros(1, np.int64), np.zeros(1)
    low, high = 1, 1 << config.index_bits
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if bytes_of(middle) <= room else (low, middle - 1)
    edges = [1]
    while edges[-1] < low:
        edges.append(min(low, max(edges[-1] + 1, int(edges[-1] * STEP))))
    sizes = np.array([bytes_of(each) for each in edges])
    sizes = np.append(sizes[1:], sizes[-1])
    rises = np.diff(sizes) > 0
    kept = np.r_[True, rises] | np.r_[rises, True]
    kept[[0, -1]] = True
    return np.append(0, np.array(edges)[kept]), np.append(0.0, sizes[kept])


def _nothing(rows, dim, found, bytes, cycles, rank, config, form) -> str:
    wanted = ([] if rank is None else [f"at rank {rank}"]) + [
        f"within {value:,.6g} {name}" for name, value in (("bytes", bytes), ("cycles a row", cycles))
        if value is not None]
    text = f"no tensor train of {rows:,} rows of {dim} words {' '.join(wanted)}"
    if found:
        return (f"{text}: the least are {min(one.bytes for one in found):,.0f} bytes and "
                f"{min(one.cycles for one in found):,.6g} cycles a row")
    refusals = [_kinds(dim, each, CORES, config, form) for each in (RANKS if rank is None else (rank,))]
    refused = next((refusal for kinds, refusal in refusals if not kinds), None)
    return f"{text}: {refused or f'the unit holds {capacity(config):,} bytes of cores'}"


@lru_cache(maxsize=1024)
def _kinds(dim: int, rank: int, cores: tuple[int, ...], config: Any,
           form: str | None = None) -> tuple[tuple[_Kind, ...], str]:
    """The column modes that the unit takes at a rank, and why it does not take the last of the others. form: None where
    only shapes and cycles are asked for.

    Raises ValueError: a unit that does not have the form."""
    limits, block16 = Limits.of(config), form == "block16"
    if form is not None:
        limits.check_format(block16)
    kinds, refusal = [], ""
    for columns in (each for count in cores for each in factorizations(dim, count)):
        ranks = (1, *[rank] * (len(columns) - 1), 1)
        try:
            layout = limits.layout((1,) * len(columns), columns, ranks)
            cycles = tt.cycles_per_row(columns, rank, lanes=config.lanes, grid_log2=config.grid_log2)
        except ValueError as error:
            refusal = str(error)
            continue
        parts = slices_of(layout)
        room = {"x": limits.x_lines, "y": limits.y_lines}
        sizes = np.array([(part.operands, part.per_line << block16, room[part.memory], 1) for part in parts], np.int64)
        # Higher ranks than these do not exist: the outer cores need as many rows times columns.
        for outer in (0, -1):
            sizes[outer, 3] = -(-rank // columns[outer])
        narrow = tuple(part.core for part in parts if part.memory == "x")
        wide = next(part.core for part in parts if part.memory == "y")
        kinds.append(_Kind(columns, rank, sizes, narrow, wide, cycles))
    return tuple(kinds), refusal


def _candidate(rows: int, dim: int, kind: _Kind, config: Any) -> Candidate | None:
    most = 1 << config.mode_bits
    chosen = np.ones(len(kind.columns), np.int64)
    if not _modes(rows, kind.sizes, np.array(kind.narrow), kind.wide, most, chosen):
        return None
    modes = tuple(int(each) for each in chosen)
    if prod(modes) > 1 << config.index_bits:
        return None
    ranks = (1, *[kind.rank] * (len(modes) - 1), 1)
    words = sum(ranks[k] * modes[k] * kind.columns[k] * ranks[k + 1] for k in range(len(modes)))
    lines = [-(-modes[k] * int(size[0]) // int(size[1])) for k, size in enumerate(kind.sizes)]
    x_lines = sum(lines[k] for k in kind.narrow)
    y_lines = lines[kind.wide] + lines[kind.wide] % 2       # the next table begins at an even line
    share = max(x_lines / config.x_lines, y_lines / config.y_lines, 1 / config.tables)
    if share > 1:
        return None
    return Candidate(rows, dim, modes, kind.columns, ranks[1:-1], words, x_lines, y_lines, share,
                     share * capacity(config), kind.cycles, macs(kind.columns, kind.rank))


@njit(cache=True)
def _lines(mode, size):
    return -(-mode * size[0] // size[1])


@njit(cache=True)
def _narrowest(rows, sizes, cores, most, modes):
    """Fills modes[cores] with those of the fewest lines together whose product is >= rows; returns the lines or -1."""
    last = sizes[cores[-1]]
    if len(cores) == 1:
        modes[cores[0]] = max(last[3], rows)
        return _lines(modes[cores[0]], last) if modes[cores[0]] <= most else -1
    least = -1
    chosen = np.zeros(len(cores), np.int64)
    own = sizes[cores[0]]
    for mode in range(own[3], min(most, max(rows, own[3])) + 1):
        lines = _lines(mode, own)
        if least >= 0 and lines >= least:
            break
        rest = -1
        if len(cores) == 2:
            other = max(last[3], -(-rows // mode))
            if other <= most:
                rest = _lines(other, last)
                modes[cores[1]] = other
        else:
            rest = _two(-(-rows // mode), sizes[cores[1]], last, most, modes, cores[1], cores[2])
        if rest >= 0 and (least < 0 or lines + rest < least):
            least = lines + rest
            chosen[0] = mode
            for k in range(1, len(cores)):
                chosen[k] = modes[cores[k]]
    for k in range(len(cores)):
        modes[cores[k]] = chosen[k]
    return least


@njit(cache=True)
def _two(rows, first, last, most, modes, at, at_last):
    least, chosen, chosen_last = -1, 0, 0
    for mode in range(first[3], min(most, max(rows, first[3])) + 1):
        lines = _lines(mode, first)
        if least >= 0 and lines >= least:
            break
        other = max(last[3], -(-rows // mode))
        if other <= most and (least < 0 or lines + _lines(other, last) < least):
            least, chosen, chosen_last = lines + _lines(other, last), mode, other
    modes[at], modes[at_last] = chosen, chosen_last
    return least


@njit(cache=True)
def _modes(rows, sizes, narrow, wide, most, modes):
    """Fills `modes` with those of the least share; False where there are none.

    X lines fall and Y lines rise with the wide core's mode: the least larger one is where the two shares cross.
    """
    low, high = sizes[wide, 3], min(most, max(rows, sizes[wide, 3]))
    x_room, y_room = sizes[narrow[0], 2], sizes[wide, 2]
    while low < high:
        middle = (low + high) // 2
        x = _narrowest(-(-rows // middle), sizes, narrow, most, modes)
        if x >= 0 and x * y_room <= _lines(middle, sizes[wide]) * x_room:
            high = middle
        else:
            low = middle + 1
    x = _narrowest(-(-rows // low), sizes, narrow, most, modes)
    modes[wide] = low
    if low > sizes[wide, 3]:
        x_before = _narrowest(-(-rows // (low - 1)), sizes, narrow, most, modes)
        share = max(x / x_room, _lines(low, sizes[wide]) / y_room)
        if x_before >= 0 and (x < 0 or max(x_before / x_room, _lines(low - 1, sizes[wide]) / y_room) <= share):
            modes[wide] = low - 1
            return True
        x = _narrowest(-(-rows // low), sizes, narrow, most, modes)
    return x >= 0
