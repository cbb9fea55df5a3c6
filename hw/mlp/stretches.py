"""Which lines on chip an instruction uses, and whether it writes some twice or some that it reads."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from hw.isa import MLP
from hw.isa.mlp import ADDEND, TARGET
from hw.mlp.config import MlpConfig

LOAD_ROWS = MLP.instruction("LOAD_ROWS").opcode


def depths(config: MlpConfig) -> tuple[int, int, int]:
    """log2 of the lines of rows, weights and addends."""
    rows, weights, addends = (
        (lines - 1).bit_length() for lines in (config.row_lines, config.weight_lines, config.addend_lines))
    return rows, weights, addends


def stretch_layout(config: MlpConfig, bits: int) -> data.StructLayout:
    """A stretch of lines of a memory of 2**bits. lines: the highest bit for all from that many on."""
    return data.StructLayout({"first": bits, "lines": bits + 1, "there": 1})


def used_layout(config: MlpConfig) -> data.StructLayout:
    """What an instruction uses of each memory. to_addends: it writes results there, else to the rows' memory.

    loaded: of features, of which none shares lines of the same row with another one, the lines from a sample to the
    next, the beats of each, and of the first `rows` those that are not loaded; without any: not known. made: of the
    feature that a layer writes the same; without `there`: none, or not one of the first.
    """
    rows, weights, addends = depths(config)
    features = {"stride": 16, "beats": 12}
    return data.StructLayout({
        "loaded": data.StructLayout(features | {"others": config.rows}),
        "made": data.StructLayout(features | {"feature": range(config.rows), "there": 1}),
        "rows": stretch_layout(config, rows), "weights": stretch_layout(config, weights),
        "addends": stretch_layout(config, addends), "written": stretch_layout(config, max(rows, addends)),
        "to_addends": 1})


class Stretches:
    """Works out the stretches of lines that an instruction uses, and compares those that a LAYER or an INTERACT writes
    with those that it reads.

    A stretch is from the first line to the last, around the memory's end. Five products, one per cycle through one
    multiplier, say how long they are: packed pieces; lines of a sample's features, or of partials; lines read, or of
    rows loaded; lines written; lines of weights.

    Adds itself to `m`, as a part of a program's checks: nothing of it is wide enough to be placed by itself.
    Source: golden.mlp.program, `reads`, `writes`, `apart`

    Parameters  m: the module; config: MlpConfig; item: the instruction, of hw.layouts.instruction_layout, which stands
                for 5 cycles; begin: in its first one; kind: a bit for each opcode from LOAD_ROWS on, before_last:
                samples less one, beats: of a row of results, all a cycle after it is there
    Members     used: of used_layout, and found: it is refused, for a cycle, CYCLES after its first; the next one may be
                there after 5; known: in that cycle; keep: a cycle in which it stands, before the next one's; busy: from
                the cycle after its first to that of `found`
    """

    CYCLES = 7

    def __init__(self, m: Module, config: MlpConfig, item, *, begin: Value, kind: Value, before_last: Value,
                 beats: Value):
        rows_log2, samples_log2, units_log2, pieces_log2, piece_log2, steps_log2 = (
            (number - 1).bit_length() for number in (
                config.rows, config.samples, config.units, config.pieces, config.piece, config.words // config.width))
        cycle = Signal(self.CYCLES, name="stretch_cycle")       # bit k: k + 1 cycles after the first
        m.d.sync += cycle.eq(Cat(begin, cycle[:-1]))
        self.found = found = Signal(name="overlap_found")
        self.busy, self.keep, self.known = cycle.any(), cycle[2], cycle[-1]
        load_rows, load_weights, load_addends, layer, interact = kind
        partial, feature = (layer & (item.target == target) for target in (TARGET.PARTIAL, TARGET.FEATURE))
        adds = item.addend == ADDEND.PARTIAL
        by_feature = interact | (load_rows & item.features_in)

        # -- From the opcode itself where its kind is not there yet: loads are those below 4.
        # Of samples their groups, and the last one of a unit as features' rows are counted; of a row of results the
        # beats less one; of a row that is read or loaded the same; lines of partials of a group of samples; column
        # groups of a unit.
        rest = before_last[:samples_log2]
        last = Cat(rest[:rows_log2] | rest[rows_log2:].any().replicate(rows_log2), before_last[samples_log2:])
        groups = Signal(len(before_last) - samples_log2 + 1, name="sample_groups", reset_less=True)
        row_beats, read_beats = (Signal(12, name=f"{name}_before_last", reset_less=True) for name in ("row", "read"))
        partials = Signal(16, name="partial_lines", reset_less=True)
        in_units = (Mux(item.opcode[2], item.groups[:12], item.count[:20]) + config.units - 1) >> units_log2
        unit_groups = Signal.like(in_units, name="unit_groups", reset_less=True)
        m.d.sync += [
            groups.eq((item.count[:20] + config.samples - 1) >> samples_log2),
            row_beats.eq(beats - 1),
            read_beats.eq(Mux(load_rows, item.row_beats - 1, (item.steps[:12] - 1) >> steps_log2)),
            partials.eq(Mux(item.mode, in_units << units_log2, item.groups[:12]) << rows_log2),
            unit_groups.eq(in_units),
        ]

        # -- The products.
        # Of features those up to the last, of a LOAD_ROWS those before the first as well.
        feature_end = Signal(9, name="feature_end", reset_less=True)
        m.d.sync += feature_end.eq(item.features + Mux(item.opcode == LOAD_ROWS, item.feature, 0))
        turns, left = item.features[piece_log2:], item.features[:piece_log2]
        product_beats = Signal(12, name="products_before_last", reset_less=True)
        steps = Mux(feature, last, Mux(layer, row_beats, product_beats))
        factors = (
            # Of q, r = divmod(features - 1, piece), with no sum behind another: q + 1, and piece / 2 * q + r.
            (turns + left.any(), Cat((item.features - 1)[:piece_log2 - 1], turns + (
                left > config.piece // 2 if piece_log2 > 1 else 0))),
            (Mux(layer, groups, (feature_end + config.rows - 1) >> rows_log2), Mux(layer, partials, item.row_beats)),
            (Mux(by_feature, last, read_beats), item.line_stride),
            (Mux(partial, groups, steps), Mux(partial, partials, item.to_line_stride)),
            (unit_groups, item.steps),
        )
        x = Signal(max(len(last), len(groups), len(unit_groups), 12), name="lines_x", reset_less=True)
        y = Signal(16, name="lines_y", reset_less=True)
        product = Signal(len(x) + len(y), name="lines_product", reset_less=True)
        for now, (one, other) in zip((begin, *cycle[:4]), factors, strict=True):
            with m.If(now):
                m.d.sync += x.eq(one)
                m.d.sync += y.eq(other)
        m.d.sync += product.eq(x * y)
        m.d.sync += product_beats.eq((product[:16] - 1) >> pieces_log2)

        # -- What is added to them, and the ways from stretch to stretch: they stay as the next instruction comes.
        row_bits, weight_bits, addend_bits = depths(config)
        bits = max(depths(config)) + 1

        def clipped(value: Value) -> Value:
            """Its low bits, and whether it has others."""
            return Cat(value[:bits], value[bits:].any())

        def total(value: Value, more: Value) -> Value:
            """Their sum; all that is beyond `bits` is as much."""
            both = value[:bits] + more[:bits]
            return Cat(both[:bits], both[bits] | value[bits] | more[bits])

        def within(value: Value, log2: int) -> Value:
            """Lines of a memory, as a stretch has them."""
            return Cat(value[:log2], value[log2:].any())

        def way(begins: Value, ends: Value) -> Value:
            lines = (ends - begins)[:max(row_bits, addend_bits)]
            return Mux(partial, lines[:addend_bits], lines[:row_bits])

        self.used = used = Signal(used_layout(config), name="used", reset_less=True)
        product_lines = clipped(product)
        read, written = (Signal(bits + 1, name=f"lines_{name}", reset_less=True) for name in ("read", "written"))
        m.d.comb += used.rows.lines.eq(within(read, row_bits))
        m.d.comb += used.written.lines.eq(within(written, max(row_bits, addend_bits)))
        more, step = (Signal(bits + 1, name=f"{name}_more", reset_less=True) for name in ("read", "written"))
        ahead, behind = (Signal(max(row_bits, addend_bits), name=f"lines_{name}", reset_less=True)
                         for name in ("ahead", "behind"))
        looks, alone, tight = (Signal(name=f"overlap_{name}", reset_less=True) for name in ("looks", "alone", "tight"))
        first = Mux(partial, item.addend_line, item.line)
        least = Mux(feature, beats, groups)
        with m.If(cycle[2]):
            m.d.sync += [
                more.eq(Mux(by_feature, product_lines, clipped(groups))),
                step.eq(clipped(Mux(partial, 0, least))),
                ahead.eq(way(first, item.to_line)),
                behind.eq(way(item.to_line, first)),
                looks.eq(interact | (layer & (item.target != TARGET.MEMORY))),
                alone.eq(partial & ((item.addend == ADDEND.NONE) | (adds & (way(first, item.to_line) == 0)))),
                tight.eq(~partial & (steps != 0) & (item.to_line_stride < least)),
                used.rows.first.eq(item.line),
                used.rows.there.eq(load_rows | layer | interact),
                used.weights.first.eq(item.weight_line),
                used.weights.there.eq(load_weights | layer),
                used.addends.first.eq(item.addend_line),
                used.addends.lines.eq(within(Mux(load_addends, clipped(item.count[:20]), Mux(
                    adds, product_lines, item.groups[:12])), addend_bits)),
                used.addends.there.eq(load_addends | (layer & (item.addend != ADDEND.NONE))),
                used.written.first.eq(item.to_line),
                used.written.there.eq(interact | (layer & (item.target != TARGET.MEMORY))),
                used.to_addends.eq(partial),
                used.loaded.stride.eq(item.line_stride),
                used.loaded.beats.eq(item.row_beats),
                used.loaded.others.eq(Mux(
                    item.features_in & (product[:16] <= item.line_stride),      # of more lines see below
                    Cat((item.feature > number) | (feature_end <= number) for number in range(config.rows)), 0)),
                used.made.stride.eq(item.to_line_stride),
                used.made.beats.eq(beats),
                used.made.feature.eq(item.feature),
                used.made.there.eq(feature & (item.feature < config.rows)),
            ]
        with m.If(cycle[3]):
            m.d.sync += read.eq(total(product_lines, more))
        with m.If(cycle[4]):
            m.d.sync += written.eq(total(product_lines, step))
            with m.If(read > config.row_lines):
                m.d.sync += used.loaded.others.eq(0)
        with m.If(cycle[5]):
            m.d.sync += used.weights.lines.eq(within(product_lines, weight_bits))
        compared = Mux(used.to_addends, used.addends.lines, read)
        m.d.sync += found.eq(cycle[5] & looks & (tight | Mux(
            alone, written > config.addend_lines, (compared > ahead) | (written > behind))))
