"""What the rows of results of an MLP core's tiles become: which words are written where, and in which cycle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from golden.fp import fp32
from golden.systolic import array
from hw.isa.mlp import ADDEND, TARGET

STORE = 16      # cycles from a row's turn to a whole row on its way: to memory, to the addends
ROWS = 17       # to the first of its writes to the rows' memory
WRITTEN = 18    # of the tile's last row, to the pulse; a cycle more for each further write
OPERANDS = 8    # cycles from a slot to its operands at the arrays; one fewer where they share exponents
REACH = 2       # columns of an array that operands enter at a time

Tile = Mapping[str, int]


@dataclass(frozen=True)
class Sizes:
    """Of a core: units, rows and columns of a unit's array, words of a beat and of one of its pieces."""

    units: int
    rows: int
    columns: int
    words: int
    piece: int

    @property
    def pieces(self) -> int:
        return self.words // self.piece

    @property
    def groups_per_beat(self) -> int:
        return self.words // self.columns


@dataclass
class Row:
    """A row of a tile: dots of every unit as words, and the cycle in which they come."""

    tile: int
    row: int
    cycle: int
    dots: ArrayLike


@dataclass
class Writes:
    """What leaves, with the cycle of each. Lines are not yet taken modulo a memory's depth.

    reads: lines of addends, one a unit, and the units whose are needed; rows: {(lane, bank): (line, words)}; addends:
    (line, {unit: words}); store: (tile, row, words of every unit); written: the tiles' pulses; waiting: rows that wait,
    the most at a time.
    """

    reads: list[tuple[int, tuple[list[int], list[int]]]] = field(default_factory=list)
    rows: list[tuple[int, dict]] = field(default_factory=list)
    addends: list[tuple[int, tuple[int, dict]]] = field(default_factory=list)
    store: list[tuple[int, tuple[int, int, list]]] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    waiting: int = 0


def latency(width: int, columns: int, *, grouped: bool) -> int:
    """Cycles from a tile's last slot to its first result, but for its live rows."""
    return OPERANDS - grouped + array.pe_latency(width, grouped=grouped) + 1 + (columns - 1) // REACH


def beats(tile: Tile, sizes: Sizes) -> int:
    """Writes of a row to the rows' memory; 1 for what goes elsewhere."""
    if not tile["latency"] or tile["target"] not in (TARGET.ROWS, TARGET.FEATURE):
        return 1
    return -(-(sizes.units - tile["idle_units"]) // sizes.groups_per_beat)


def turns(comes: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """When each row has its turn: as it comes, or once the rows before had theirs."""
    cycles, free = [], 0
    for cycle, length in zip(comes, lengths, strict=True):
        cycles.append(max(cycle, free))
        free = cycles[-1] + length
    return cycles


def pairs(tile: Tile, row: int, sizes: Sizes) -> int:
    """Columns of an interaction's row whose feature is below the row's."""
    first = tile["block"] * sizes.columns
    return sum(first + column < tile["group"] * sizes.rows + row for column in range(sizes.columns))


def _words(tile: Tile, row: int, dots: ArrayLike, addends: Sequence[ArrayLike] | None, sizes: Sizes) -> np.ndarray:
    """The row's words, (units, columns)."""
    y = np.array(dots, np.uint32).reshape(sizes.units, sizes.columns)
    if addends is not None:
        y = fp32.bits(fp32.add(y, np.array(addends, np.uint32)))
    if tile["relu"]:
        y = fp32.bits(fp32.maximum(y, np.uint32(0)))
    last = sizes.units - 1 - tile["idle_units"]
    for unit in range(sizes.units):
        if tile["triangle"]:
            count = pairs(tile, row, sizes)
        elif not tile["latency"] or unit == last:
            count = tile["columns"]
        else:
            count = sizes.columns if unit < last else 0
        y[unit, count:] = 0
    return y


def _exists(tile: Tile, unit: int, row: int, sizes: Sizes) -> bool:
    return bool(tile["lanes"] >> unit * sizes.rows + row & 1)


def _units(tile: Tile, row: int, sizes: Sizes) -> list[int]:
    """The units with a result in the row."""
    return [unit for unit in range(sizes.units) if (
        unit < sizes.units - tile["idle_units"] if tile["latency"] else _exists(tile, unit, row, sizes))]


def _to_rows(tile: Tile, row: int, y: np.ndarray, position: int, sizes: Sizes) -> list[dict]:
    """The row's writes, beat by beat. `position`: pieces of the sample's triangle before."""
    there = tile["bank"] if tile["fixed"] else row
    units = [tile["unit"]] if tile["latency"] else range(sizes.units)
    writes = []
    for beat in range(beats(tile, sizes)):
        write = {}
        for unit in units:
            if not _exists(tile, unit, row, sizes):
                continue
            if tile["latency"]:
                first = beat * sizes.groups_per_beat
                words = y[first:min(first + sizes.groups_per_beat, sizes.units - tile["idle_units"])].ravel()
            else:
                words = y[unit]
            count = len(words) // sizes.piece
            if tile["triangle"]:
                count = -(-pairs(tile, row, sizes) // sizes.piece)
            for k in range(count):
                if tile["triangle"]:
                    beat_of, bank = divmod(position + k, sizes.pieces)
                    line = tile["line"] + beat_of * tile["beat_lines"]
                else:
                    bank = (tile["start"] + k) % sizes.pieces
                    line = tile["line"] + row * tile["row_lines"] + beat * tile["beat_lines"]
                write[unit * sizes.rows + there, bank] = (line, words[k * sizes.piece:(k + 1) * sizes.piece].tolist())
        writes.append(write)
    return writes


def follow(tiles: Sequence[Tile], rows: Sequence[Row], addends: ArrayLike, sizes: Sizes) -> Writes:
    """Everything that the rows of `tiles` become; addends: words (units, lines, columns), read and not changed."""
    memory = np.asarray(addends)
    out = Writes()
    lengths = [beats(tiles[row.tile], sizes) for row in rows]
    when = turns([row.cycle for row in rows], lengths)
    position = 0
    for number, (row, cycle, length) in enumerate(zip(rows, when, lengths, strict=True)):
        tile = tiles[row.tile]
        out.waiting = max(out.waiting, sum(turn > row.cycle for turn in when[:number + 1]))
        units, words = _units(tile, row.row, sizes), None
        if tile["addend"]:
            partial = tile["addend"] == ADDEND.PARTIAL
            lines = [tile["addend_line"] + (row.row if partial else unit if tile["latency"] else 0)
                     for unit in range(sizes.units)]
            out.reads.append((cycle + 1, (lines, units)))
            words = [memory[unit, line % memory.shape[1]] for unit, line in enumerate(lines)]
        y = _words(tile, row.row, row.dots, words, sizes)
        if tile["triangle"] and tile["begin"] and row.row == 0:
            position = 0
        if tile["target"] in (TARGET.ROWS, TARGET.FEATURE):
            writes = _to_rows(tile, row.row, y, position, sizes)
            out.rows += [(cycle + ROWS + beat, write) for beat, write in enumerate(writes) if write]
            if tile["triangle"]:
                position += -(-pairs(tile, row.row, sizes) // sizes.piece)
        elif tile["target"] == TARGET.PARTIAL:
            out.addends.append((cycle + STORE, (tile["line"] + row.row, {unit: y[unit].tolist() for unit in units})))
        else:
            out.store.append((cycle + STORE, (row.tile, row.row, y.tolist())))
        if row.row == tile["live"] - 1:
            out.written.append(cycle + WRITTEN + length - 1)
    return out
