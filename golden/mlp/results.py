"""What the rows of results of an MLP core's tiles become: which words are written where."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from golden.fp import fp32
from golden.systolic import array
from hw.isa.mlp import ADDEND, TARGET, Geometry

WRITTEN = 18    # cycles from the turn of a tile's last row to its pulse; one more for each further write
OPERANDS = 8    # cycles from a slot to its operands at the arrays; one fewer where they share exponents
REACH = 2       # columns of an array that operands enter at a time

Tile = Mapping[str, int]


class Became(NamedTuple):
    """What leaves for a row of results, write by write.

    rows: to the rows' memory, {(lane, bank): (line, words)}; addends: of partials, (line, {unit: words}); store: to
    memory, words of every unit; reads: of addends before, (lines, one a unit, the units whose are needed)
    """

    rows: list[dict]
    addends: list[tuple[int, dict]]
    store: list[list]
    reads: list[tuple[list[int], list[int]]]


def latency(width: int, columns: int, *, grouped: bool) -> int:
    """Cycles from a tile's last slot to its first result, but for its live rows."""
    return OPERANDS - grouped + array.pe_latency(width, grouped=grouped) + 1 + (columns - 1) // REACH


def beats(tile: Tile, sizes: Geometry) -> int:
    """Writes of a row to the rows' memory; 1 for what goes elsewhere."""
    if not tile["latency"] or tile["target"] not in (TARGET.ROWS, TARGET.FEATURE):
        return 1
    return -(-(sizes.units - tile["idle_units"]) // sizes.groups_per_beat)


def pairs(tile: Tile, row: int, sizes: Geometry) -> int:
    """Columns of an interaction's row whose feature is below the row's."""
    first = tile["block"] * sizes.columns
    return sum(first + column < tile["group"] * sizes.rows + row for column in range(sizes.columns))


def _words(tile: Tile, row: int, dots: ArrayLike, addends: Sequence[ArrayLike] | None, sizes: Geometry) -> np.ndarray:
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


def _exists(tile: Tile, unit: int, row: int, sizes: Geometry) -> bool:
    return bool(tile["lanes"] >> unit * sizes.rows + row & 1)


def _units(tile: Tile, row: int, sizes: Geometry) -> list[int]:
    """The units with a result in the row."""
    return [unit for unit in range(sizes.units) if (
        unit < sizes.units - tile["idle_units"] if tile["latency"] else _exists(tile, unit, row, sizes))]


def _to_rows(tile: Tile, row: int, y: np.ndarray, position: int, sizes: Geometry) -> list[dict]:
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
                write[unit * sizes.rows + there, bank] = (line % sizes.row_lines,
                                                          words[k * sizes.piece:(k + 1) * sizes.piece].tolist())
        writes.append(write)
    return writes


def follow(rows: Iterable[tuple[Tile, int, ArrayLike]], addends: ArrayLike, sizes: Geometry) -> Iterator[Became]:
    """What each row becomes: of a tile, its number there, dots of every unit as words. addends: words (units, lines,
    columns), read and not changed."""
    memory = np.asarray(addends)
    position = 0
    for tile, row, dots in rows:
        became = Became([], [], [], [])
        units, words = _units(tile, row, sizes), None
        if tile["addend"]:
            partial = tile["addend"] == ADDEND.PARTIAL
            lines = [(tile["addend_line"] + (row if partial else unit if tile["latency"] else 0)) % sizes.addend_lines
                     for unit in range(sizes.units)]
            became.reads.append((lines, units))
            words = [memory[unit, line] for unit, line in enumerate(lines)]
        y = _words(tile, row, dots, words, sizes)
        if tile["triangle"] and tile["begin"] and row == 0:
            position = 0
        if tile["target"] in (TARGET.ROWS, TARGET.FEATURE):
            became.rows.extend(write for write in _to_rows(tile, row, y, position, sizes) if write)
            if tile["triangle"]:
                position += -(-pairs(tile, row, sizes) // sizes.piece)
        elif tile["target"] == TARGET.PARTIAL:
            line = (tile["line"] + row) % sizes.addend_lines
            became.addends.append((line, {unit: y[unit].tolist() for unit in units}))
        else:
            became.store.append(y.tolist())
        yield became
