"""Whether an instruction writes lines on chip twice, or lines that it reads."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from hw.isa.mlp import ADDEND, TARGET
from hw.mlp.config import MlpConfig

__all__ = ["Overlap"]


class Overlap:
    """Compares the stretches of lines that a LAYER or an INTERACT reads and writes in the same memory.

    A stretch is from the first line to the last, around the memory's end. Four products, one per cycle through one
    multiplier, say how long both are: packed pieces, lines of a sample's features, lines read, lines written.

    Adds itself to `m`, as a part of a program's checks: nothing of it is wide enough to be placed by itself.
    Source: golden.mlp.program, `apart`

    Parameters  m: the module; config: MlpConfig; item: the instruction, of hw.layouts.instruction_layout, which stands
                for 4 cycles; begin: in its first one; layer, interact: which it is, before_last: samples less one,
                beats: of a row of results, all a cycle after it is there
    Members     found: it is refused, CYCLES after its first cycle; the next one may be there after 5; keep: the last
                cycle in which it has to stand; busy: from the cycle after its first to that of `found`
    """

    CYCLES = 7

    def __init__(self, m: Module, config: MlpConfig, item, *, begin: Value, layer: Value, interact: Value,
                 before_last: Value, beats: Value):
        rows_log2, samples_log2, units_log2, pieces_log2, piece_log2, steps_log2 = (
            (number - 1).bit_length() for number in (
                config.rows, config.samples, config.units, config.pieces, config.piece, config.words // config.width))
        cycle = Signal(self.CYCLES, name="overlap_cycle")       # bit k: k + 1 cycles after the first
        m.d.sync += cycle.eq(Cat(begin, cycle[:-1]))
        self.found = found = Signal(name="overlap_found")
        self.busy, self.keep = cycle.any(), cycle[2]
        partial, feature = (layer & (item.target == target) for target in (TARGET.PARTIAL, TARGET.FEATURE))
        adds = item.addend == ADDEND.PARTIAL

        # -- Of samples their groups, and the last one of a unit as features' rows are counted; of a row of results the
        # beats less one; of a row that is read the same; lines of partials of a group of samples.
        rest = before_last[:samples_log2]
        last = Cat(rest[:rows_log2] | rest[rows_log2:].any().replicate(rows_log2), before_last[samples_log2:])
        groups = Signal(len(before_last) - samples_log2 + 1, name="sample_groups", reset_less=True)
        row_beats, read_beats = (Signal(12, name=f"{name}_before_last", reset_less=True) for name in ("row", "read"))
        partials = Signal(16, name="partial_lines", reset_less=True)
        whole = (item.groups[:12] + config.units - 1) >> units_log2 << units_log2
        m.d.sync += [
            groups.eq(before_last[samples_log2:] + 1),
            row_beats.eq(beats - 1),
            read_beats.eq((item.steps[:12] - 1) >> steps_log2),
            partials.eq(Mux(item.mode, whole, item.groups[:12]) << rows_log2),
        ]

        # -- The products.
        features = Signal(8, name="features_before_last")
        m.d.comb += features.eq(item.features - 1)
        turns, left = features[piece_log2:], features[:piece_log2]
        product_beats = Signal(12, name="products_before_last", reset_less=True)
        steps = Mux(feature, last, Mux(layer, row_beats, product_beats))
        factors = (
            (turns + 1, (turns << piece_log2 - 1) + left),
            ((features >> rows_log2) + 1, item.row_beats),
            (Mux(interact, last, Mux(partial, Mux(adds, groups, 0), read_beats)),
             Mux(partial, partials, item.line_stride)),
            (Mux(partial, groups, steps), Mux(partial, partials, item.to_line_stride)),
        )
        x = Signal(max(len(last), len(groups), 12), name="lines_x", reset_less=True)
        y = Signal(16, name="lines_y", reset_less=True)
        product = Signal(len(x) + len(y), name="lines_product", reset_less=True)
        for now, (one, other) in zip((begin, *cycle[:3]), factors, strict=True):
            with m.If(now):
                m.d.sync += x.eq(one)
                m.d.sync += y.eq(other)
        m.d.sync += product.eq(x * y)
        m.d.sync += product_beats.eq((product[:16] - 1) >> pieces_log2)

        # -- What is added to them, and the ways from stretch to stretch: they stay as the next instruction comes.
        depths = [(lines - 1).bit_length() for lines in (config.row_lines, config.addend_lines)]
        bits = max(depths) + 1

        def clipped(value: Value) -> Value:
            """Its low bits, and whether it has others: more than there are lines."""
            return Cat(value[:bits], value[bits:].any())

        def total(value: Value, more: Value) -> Value:
            return Cat(value[:bits] + more[:bits], value[bits] | more[bits])

        def way(begins: Value, ends: Value) -> Value:
            lines = (ends - begins)[:max(depths)]
            return Mux(partial, lines[:depths[1]], lines[:depths[0]])

        more, step = (Signal(bits + 1, name=f"{name}_more", reset_less=True) for name in ("read", "written"))
        read, written = (Signal(bits + 2, name=f"lines_{name}", reset_less=True) for name in ("read", "written"))
        ahead, behind = (Signal(bits - 1, name=f"lines_{name}", reset_less=True) for name in ("ahead", "behind"))
        looks, alone, tight = (Signal(name=f"overlap_{name}", reset_less=True) for name in ("looks", "alone", "tight"))
        first = Mux(partial, item.addend_line, item.line)
        least = Mux(feature, beats, groups)
        with m.If(cycle[2]):
            m.d.sync += [
                more.eq(clipped(Mux(interact, product, Mux(partial, Mux(adds, 0, item.groups), groups)))),
                step.eq(clipped(Mux(partial, 0, least))),
                ahead.eq(way(first, item.to_line)),
                behind.eq(way(item.to_line, first)),
                looks.eq(interact | (layer & (item.target != TARGET.MEMORY))),
                alone.eq(partial & ((item.addend == ADDEND.NONE) | (adds & (way(first, item.to_line) == 0)))),
                tight.eq(~partial & (steps != 0) & (item.to_line_stride < least)),
            ]
        with m.If(cycle[3]):
            m.d.sync += read.eq(total(clipped(product), more))
        with m.If(cycle[4]):
            m.d.sync += written.eq(total(clipped(product), step))
        m.d.sync += found.eq(cycle[5] & looks & (tight | Mux(
            alone, written > config.addend_lines, (read > ahead) | (written > behind))))
