"""What the parts of the MLP core hand to one another."""

from amaranth.lib import data

from hw.mlp.config import MlpConfig

LATENCY = 6     # cycles from a slot to its operands at the units


class SOURCE:
    """Where a slot's weights come from: one part for all units, each unit's own, the features of its samples."""

    SHARED, OWN, FEATURES = range(3)


def _bits(values: int) -> int:
    """Bits of a number below `values`, one at least."""
    return max(1, (values - 1).bit_length())


def slot_layout(config: MlpConfig) -> data.StructLayout:
    """A beat of the array.

    lines: that each bank of every row's memory is read at (the same in all units and rows); x_bank, part: the bank
    and the part of its piece that are the rows' operands; y_banks: with source FEATURES, the banks of the two groups
    of `rows` features that are the columns'; weight_line: in the part of every unit; source; unit: with SHARED the
    part of the weights that all units take, with OWN the unit whose rows all units take; keep: the rows' operands
    stay those of the slot before; blank: both operands are zeros; lanes: rows (unit * rows + row) and y_groups: of
    the two, what is read and has to be right; y_own: which of the two is the rows' own group, so that its columns exist
    as the rows do; idle_units: with OWN, the last units have no column; first, last: of a tile; live: with last, rows
    to drain.
    """
    return data.StructLayout({
        "lines": data.ArrayLayout(_bits(config.row_lines), config.pieces),
        "x_bank": _bits(config.pieces), "part": _bits(config.parts),
        "y_banks": data.ArrayLayout(_bits(config.pieces), 2),
        "weight_line": _bits(config.weight_lines), "source": 2, "unit": _bits(config.units),
        "keep": 1, "blank": 1, "lanes": config.samples, "y_groups": 2, "y_own": 2, "idle_units": _bits(config.units),
        "first": 1, "last": 1, "live": range(config.rows + 1),
    })


def tile_layout(config: MlpConfig) -> data.StructLayout:
    """What becomes of a tile's results; it comes with the tile's last slot.

    live: rows that drain. latency: all units' rows are one sample's, unit by unit the next columns, and go to the
    rows of `unit`. lanes: samples (unit * rows + row) that exist, one at least in each of the rows that drain; with
    triangle: (unit, row of the tile).
    addend, addend_line: line of row 0; bias: the same for all rows, in latency mode one more for each unit; partial:
    one more for each row, in latency mode each unit has its own at the same line. relu. columns: results that count
    in the last unit that has any (units - 1 - `idle_units`; throughput: in every unit), 1..columns; the others
    become +0.
    target; ROWS and FEATURE: line: of row 0, `row_lines` more for each row, in latency mode `beat_lines` more for
    each beat of `groups_per_beat` units; start: bank of the first piece; fixed, bank: the row whose memory is
    written, if it is not the result's own. PARTIAL: line: of row 0, one more for each row.
    triangle: of an interaction: results (row, column) with block * columns + column < group * rows + row count;
    pieces with any of them go one behind the other to the sample's line, `line` being its line of piece 0 and
    `beat_lines` the lines from a beat to the next; begin: the sample's first tile.
    MEMORY: out: beat of unit 0's (in latency mode: of the sample group's) row 0, in beats from the outputs;
    stride: beats from a sample to the next; half: the column group's place in its beat; fills: the last half of its
    beat; sigmoid. In latency mode a row's units fill whole beats one behind the other, `outs` of them.
    number: of the instruction, modulo 2**16.
    """
    return data.StructLayout({
        "live": range(config.rows + 1), "latency": 1, "unit": _bits(config.units), "lanes": config.samples,
        "addend": 2, "addend_line": _bits(config.addend_lines), "relu": 1,
        "columns": range(config.columns + 1), "idle_units": _bits(config.units),
        "target": 2, "line": 16, "row_lines": 16, "beat_lines": 16, "start": _bits(config.pieces),
        "fixed": 1, "bank": _bits(config.rows),
        "triangle": 1, "group": 8, "block": 8, "begin": 1,
        "out": 32, "stride": 32, "half": _bits(config.groups_per_beat), "fills": 1, "sigmoid": 1,
        "outs": range(config.units // config.groups_per_beat + 1),
        "number": 16,
    })


def result_layout(config: MlpConfig) -> data.StructLayout:
    """A row of results of every unit as the cells have it, for one cycle: row: its number in the tile."""
    return data.StructLayout({
        "words": data.ArrayLayout(data.ArrayLayout(32, config.columns), config.units), "row": _bits(config.rows),
        "last": 1,
    })


def store_layout(config: MlpConfig) -> data.StructLayout:
    """A row of results of every unit on its way to memory, finished but for the sigmoid; the tile's `out`, `stride`,
    `half`, `fills`, `sigmoid`, `latency`, `unit`, `outs`, `lanes`, `columns`, `idle_units` with it."""
    tile = tile_layout(config)
    return data.StructLayout({
        "words": data.ArrayLayout(data.ArrayLayout(32, config.columns), config.units), "row": _bits(config.rows),
        "last": 1,
        **{name: tile[name].shape for name in (
            "out", "stride", "half", "fills", "sigmoid", "latency", "unit", "outs", "lanes", "columns", "idle_units",
            "number")},
    })


def load_layout(config: MlpConfig) -> data.StructLayout:
    """A beat of rows on its way to their memory: all banks of row `row` of unit `unit` at `line`, bank k taking piece
    (k - turn) modulo the pieces."""
    return data.StructLayout({
        "words": data.ArrayLayout(32, config.words), "unit": _bits(config.units), "row": _bits(config.rows),
        "line": _bits(config.row_lines), "turn": _bits(config.pieces),
    })


class LayerJob(data.Struct):
    """A LAYER or INTERACT for the sequencer: the instruction's fields (hw.isa.MLP) of those names; interact: which
    of the two; number: of the instruction."""

    interact: 1
    mode: 1
    addend: 2
    target: 2
    activation: 2
    count: 20
    row_beats: 12
    features: 8
    feature: 8
    line: 16
    line_stride: 16
    steps: 12
    groups: 12
    weight_line: 16
    last_columns: 8
    addend_line: 16
    to_line: 16
    to_line_stride: 16
    out: 32
    out_stride: 32
    wait_rows: 32
    wait_weights: 32
    wait_layers: 32
    number: 32
