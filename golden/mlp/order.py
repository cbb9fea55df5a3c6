"""In which order the MLP core takes a layer or an interaction: tiles of results, and the slots of each tile.

By the letter of the contract, with products and divisions; instructions are dicts of hw.isa's fields, `interact`
says which of the two, `number` which of the program.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hw.isa import MLP
from hw.isa.mlp import ACTIVATION, ADDEND, TARGET, Geometry

LATENCY = MLP.modes.index("latency")
SHARED, OWN, FEATURES = range(3)

Item = Mapping[str, int]


class Tile(NamedTuple):
    """A tile of results.

    fields: of hw.mlp.records.tile_layout; slots: cycles with operands; place: (group of weights, sample group, unit)
    or, of an interaction, (sample of the unit, group a, block b); twice: slots a step; final: of its instruction
    """

    item: Item
    fields: dict[str, int]
    slots: int
    live: int
    place: tuple[int, int, int]
    twice: bool = False
    final: bool = False


def blocks(shape: Geometry, features: int) -> Iterator[tuple[int, int]]:
    """(group a, block b) of the tiles of a sample's interaction in their order."""
    for a in range(-(-features // shape.rows)):
        b = 0
        while b * shape.columns < min(features, (a + 1) * shape.rows) - 1:
            yield a, b
            b += 1


def is_twice(shape: Geometry, a: int, b: int) -> bool:
    """Whether a tile takes two slots a step: a group of its columns lies in the bank that its rows come from."""
    return any(group < a and (a - group) % shape.pieces == 0 for group in (2 * b, 2 * b + 1))


def triangle(shape: Geometry, features: int) -> NDArray[np.int64]:
    """(n, 2): the pair of features of every word of a sample's packed products, -1 for a word of +0."""
    words = [np.zeros((0, 2), np.int64)]
    for a, b in blocks(shape, features):
        for f in range(a * shape.rows, min(features, (a + 1) * shape.rows)):
            kept = -(-min(max(f - b * shape.columns, 0), shape.columns) // shape.piece) * shape.piece
            g = np.arange(b * shape.columns, b * shape.columns + kept)
            words.append(np.stack([np.full(kept, f), np.where(g < f, g, -1)], axis=1))
    return np.concatenate(words)


def tiles(shape: Geometry, item: Item) -> Iterator[Tile]:
    """The tiles of an instruction in their order."""
    sequence = _interact(shape, item) if item["interact"] else _layer(shape, item)
    before = next(sequence)
    for tile in sequence:
        yield before
        before = tile
    yield before._replace(final=True)


def _layer(shape: Geometry, item: Item) -> Iterator[Tile]:
    units, rows, groups_per_beat = shape.units, shape.rows, shape.groups_per_beat
    count, groups = item["count"], item["groups"]
    sample_groups = -(-count // shape.samples)
    if item["mode"] == LATENCY:
        for q in range(-(-groups // units)):
            for s in range(sample_groups):
                for c in range(units):
                    if (s * units + c) * rows < count:
                        yield _layer_tile(shape, item, q, s, c, sample_groups)
    else:
        for q in range(-(-groups // groups_per_beat)):
            for s in range(sample_groups):
                for h in range(groups_per_beat):
                    if q * groups_per_beat + h < groups:
                        yield _layer_tile(shape, item, q, s, h, sample_groups)


def _layer_tile(shape: Geometry, item: Item, q: int, s: int, inner: int, sample_groups: int) -> Tile:
    """inner: the half of the beat, or with LATENCY the unit whose rows are taken."""
    units, rows, groups_per_beat, columns = shape.units, shape.rows, shape.groups_per_beat, shape.columns
    count, groups, target = item["count"], item["groups"], item["target"]
    latency = item["mode"] == LATENCY
    if latency:
        group, last_group = q * units, groups - 1
        in_use = min(units, groups - group)
        last = in_use == groups - group
        beat, half, fills, unit = q * (units // groups_per_beat), 0, True, inner
        lanes = [unit == lane // rows and s * shape.samples + lane < count for lane in range(shape.samples)]
        live = sum(lanes)
        partial = ((q * sample_groups + s) * units + inner) * rows
    else:
        group, last_group, in_use = q * groups_per_beat + inner, groups - 1, units
        last = group == last_group
        beat, half, fills, unit = q, inner, inner == groups_per_beat - 1 or last, group % units
        lanes = [s * shape.samples + lane < count for lane in range(shape.samples)]
        live = sum(lanes[:rows])
        partial = (group * sample_groups + s) * rows
    start = half * columns // shape.piece
    row = 0
    if target == TARGET.FEATURE:
        line = item["to_line"] + s * rows * item["to_line_stride"] + beat
        row, turn = item["feature"] % rows, item["feature"] // rows
        start += turn
    elif target == TARGET.PARTIAL:
        line = item["to_line"] + partial
    else:
        line = item["to_line"] + beat * item["to_line_stride"] + s
    addend_line = item["addend_line"] + (partial if item["addend"] == ADDEND.PARTIAL else group)
    fields = {
        "live": live, "latency": int(latency), "unit": unit, "lanes": _mask(lanes),
        "addend": item["addend"], "addend_line": addend_line % shape.addend_lines,
        "relu": int(item["activation"] == ACTIVATION.RELU and target != TARGET.PARTIAL),
        "columns": item["last_columns"] if last else columns, "idle_units": units - in_use,
        "target": target, "line": line % (1 << 16),
        "row_lines": item["to_line_stride"] if target == TARGET.FEATURE else 0,
        "beat_lines": 1 if target == TARGET.FEATURE else item["to_line_stride"], "start": start % shape.pieces,
        "fixed": int(target == TARGET.FEATURE), "bank": row,
        "triangle": 0, "group": 0, "block": 0, "begin": 0,
        "out": (item["out"] + s * shape.samples * item["out_stride"] + beat) % (1 << 32),
        "stride": item["out_stride"], "half": half, "fills": int(fills),
        "sigmoid": int(item["activation"] == ACTIVATION.SIGMOID), "outs": -(-in_use // groups_per_beat),
        "number": item["number"] % (1 << 16),
    }
    return Tile(item, fields, item["steps"], live, (group, s, unit))


def _interact(shape: Geometry, item: Item) -> Iterator[Tile]:
    for s in range(-(-item["count"] // shape.samples)):
        for r in range(min(shape.rows, item["count"] - s * shape.samples)):
            for a, b in blocks(shape, item["features"]):
                yield _interact_tile(shape, item, s, r, a, b)


def _interact_tile(shape: Geometry, item: Item, s: int, r: int, a: int, b: int) -> Tile:
    rows = shape.rows
    live = min(rows, item["features"] - a * rows)
    lanes = [s * shape.samples + unit * rows + r < item["count"] and row < live
             for unit in range(shape.units) for row in range(rows)]
    twice = is_twice(shape, a, b)
    fields = {
        "live": live, "latency": 0, "unit": 0, "lanes": _mask(lanes), "addend": 0, "addend_line": 0, "relu": 0,
        "columns": shape.columns, "idle_units": 0,
        "target": TARGET.ROWS, "line": (item["to_line"] + s) % (1 << 16), "row_lines": 0,
        "beat_lines": item["to_line_stride"],
        "start": 0, "fixed": 1, "bank": r, "triangle": 1, "group": a, "block": b, "begin": int(a == 0 and b == 0),
        "out": 0, "stride": 0, "half": 0, "fills": 1, "sigmoid": 0, "outs": shape.units // shape.groups_per_beat,
        "number": item["number"] % (1 << 16),
    }
    steps = item["row_beats"] * shape.pieces * shape.parts
    return Tile(item, fields, steps << twice, live, (s * rows + r, a, b), twice)


def _mask(bits: list[bool]) -> int:
    return sum(bit << at for at, bit in enumerate(bits))


def slot(shape: Geometry, tile: Tile, number: int) -> dict[str, Any]:
    """Slot `number` of a tile: the fields of hw.mlp.records.slot_layout."""
    item, pieces = tile.item, shape.pieces
    k = number // 2 if tile.twice else number
    blank, keep = tile.twice and number % 2 == 0, tile.twice and number % 2 == 1
    q, piece, part = k // (pieces * shape.parts), k // shape.parts % pieces, k % shape.parts
    if item["interact"]:
        j, a, b = tile.place
        base = item["line"] + j * item["line_stride"] + q
        x_bank, y_banks = (piece + a) % pieces, [(piece + 2 * b) % pieces, (piece + 2 * b + 1) % pieces]
        lines = [base + a * item["row_beats"]] * pieces
        if not blank:
            for m in range(2):
                lines[y_banks[m]] = base + (2 * b + m) * item["row_beats"]
        y_groups = 0 if blank else 1 | (2 * b + 1 <= a) << 1
        y_own = sum((2 * b + m == a) << m for m in range(2))
        weight_line, source, unit = k, FEATURES, 0
    else:
        group, s, unit = tile.place
        x_bank, y_banks, y_groups = piece, [piece, (piece + 1) % pieces], 0
        y_own = 0
        lines = [item["line"] + q * item["line_stride"] + s] * pieces
        weight_line = item["weight_line"] + group // shape.units * item["steps"] + k
        source = OWN if item["mode"] == LATENCY else SHARED
    return {
        "lines": [line % shape.row_lines for line in lines], "x_bank": x_bank, "part": part, "y_banks": y_banks,
        "weight_line": weight_line % shape.weight_lines, "source": source, "unit": unit,
        "keep": int(keep), "blank": int(blank), "lanes": tile.fields["lanes"], "y_groups": y_groups,
        "y_own": y_own, "idle_units": tile.fields["idle_units"],
        "first": int(number == 0), "last": int(number == tile.slots - 1), "live": tile.live,
    }
