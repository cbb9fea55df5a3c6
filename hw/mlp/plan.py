"""What the sequencer works out of an instruction before it begins: counts, strides, what all its tiles share."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.isa.mlp import ACTIVATION, ADDEND, TARGET
from hw.mlp.config import MlpConfig
from hw.mlp.records import SOURCE, LayerJob, tile_layout

SHORT_BITS = 6
LONG = (1 << SHORT_BITS) - 1    # slots of a tile that needs no empty ones, whatever came before


def group_bits(config: MlpConfig) -> int:
    """Bits of a number of a group of samples, less one."""
    return 20 - (config.samples - 1).bit_length()


def shared_layout(config: MlpConfig) -> data.StructLayout:
    """What is the same for all tiles of an instruction; names as in the records, but for

    steps_less_one; once: a single step; hop: lines from a row's beat to its next.
    """
    tile = tile_layout(config)
    names = ("latency", "addend", "relu", "target", "row_lines", "beat_lines", "fixed", "triangle", "stride",
             "sigmoid")
    return data.StructLayout({
        **{name: tile[name].shape for name in names}, "number": 32, "source": 2,
        "steps_less_one": 16, "once": 1, "hop": (config.row_lines - 1).bit_length()})


def plan_layout(config: MlpConfig) -> data.StructLayout:
    """An instruction with what follows from its fields. Names as in the instruction, but for

    short: steps, LONG at most; groups_less_one: groups of samples less one, of `samples`; one_group: there is but one;
    rest: samples of the last group less one; last_rows: of unit 0 less one.
    LAYER: passes_less_one, one_pass: over the samples; last_inner: tiles of the last pass (latency: of the last group)
    for a group less one; last_idle, start, bank: of the tile; addend, to and out strides: from a pass, a group of
    samples and a tile within it to the next.
    INTERACT: blocks_less_one, one_block: groups of features; last_live: features of the last less one.
    """
    lines, addends = (config.row_lines - 1).bit_length(), (config.addend_lines - 1).bit_length()
    tile = tile_layout(config)
    rows_log2, samples_log2 = (config.rows - 1).bit_length(), (config.samples - 1).bit_length()
    units_log2 = (config.units - 1).bit_length()
    return data.StructLayout({
        "shared": shared_layout(config), "interact": 1, "wait_rows": 32, "wait_weights": 32, "wait_layers": 32,
        "short": SHORT_BITS, "groups_less_one": group_bits(config), "one_group": 1, "rest": samples_log2,
        "line": lines, "to_line": 16,
        "passes_less_one": 12, "one_pass": 1, "last_inner": units_log2, "last_idle": units_log2,
        "last_columns": tile["columns"].shape, "start": tile["start"].shape, "bank": tile["bank"].shape,
        "weight_line": (config.weight_lines - 1).bit_length(), "steps": 12,
        "addend_line": addends, "addend_pass": addends, "addend_group": addends, "addend_inner": addends,
        "to_pass": 16, "to_group": 16, "to_inner": 16,
        "out": 32, "out_pass": 3, "out_group": 32,
        "line_stride": lines, "row_beats": lines, "last_rows": rows_log2,
        "blocks_less_one": 8, "one_block": 1, "last_live": rows_log2,
    })


class Planner(wiring.Component):
    """Takes an instruction and has its plan two cycles later, until it is taken.

    Parameters  config: MlpConfig
    Members     i      In(stream of LayerJob)
                valid  Out
                plan   Out  of plan_layout
                taken  In  the plan goes, while `valid`
                empty  Out  no instruction is inside
    Timing      3 cycles from i to `valid`; i.ready the cycle after `taken`
    Handshake   i.ready comes from a register
    Reset       drops what it holds
    Golden      golden.mlp.order, verif.mlp.cycles          Tests  verif/mlp/test_sequencer.py
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(LayerJob)),
            "valid": Out(1), "plan": Out(plan_layout(config)), "taken": In(1), "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        item = Signal(LayerJob, reset_less=True)
        held = Signal()
        first = Signal()
        second = Signal()
        m.d.comb += self.i.ready.eq(~held)
        m.d.comb += self.empty.eq(~held)
        m.d.comb += self.valid.eq(held & ~first & ~second)
        m.d.sync += first.eq(self.i.valid & ~held)
        m.d.sync += second.eq(first)
        with m.If(~held):
            m.d.sync += item.eq(self.i.payload)
            m.d.sync += held.eq(self.i.valid)
        with m.Elif(self.taken):
            m.d.sync += held.eq(0)
        self._plan(m, item)
        return m

    def _plan(self, m: Module, item) -> None:
        config, plan = self.config, self.plan
        rows_log2, units_log2, samples_log2, halves_log2, pieces_log2, step_log2 = (
            (number - 1).bit_length() for number in (
                config.rows, config.units, config.samples, config.groups_per_beat, config.pieces,
                config.pieces * config.parts))
        latency, interact = item.mode & ~item.interact, item.interact
        feature, partial = item.target == TARGET.FEATURE, item.target == TARGET.PARTIAL
        # Less one, of what is counted.
        samples, groups, features = (Signal(width, name=f"{name}_less_one", reset_less=True)
                                     for name, width in (("count", 20), ("groups", 12), ("features", 8)))
        steps = Signal(16, reset_less=True)
        m.d.comb += steps.eq(Mux(interact, item.row_beats << step_log2, item.steps))
        m.d.sync += samples.eq(item.count - 1)
        m.d.sync += groups.eq(item.groups - 1)
        m.d.sync += features.eq(item.features - 1)

        # A pass: over all samples with the groups that a beat, or in latency mode that the units take.
        group = samples >> samples_log2
        passes = Mux(latency, groups >> units_log2, groups >> halves_log2)
        within = Mux(latency, units_log2, halves_log2)
        pass_groups = Signal(units_log2 + 1)
        m.d.comb += pass_groups.eq(Const(1) << within)
        rest = samples[:samples_log2]
        beats_log2 = units_log2 - halves_log2   # of the beats that the units' groups make
        # Of groups of samples; the sums wrap like the lines that they become strides of.
        count = Signal(16)
        m.d.comb += count.eq(group + 1)
        row_lines = count << rows_log2      # lines of partials that a group of weights takes, or a unit's of all
        all_lines = Mux(latency, row_lines << units_log2, row_lines << halves_log2)
        unit_rows, one_row = config.samples, config.rows
        by_partial = (all_lines, Mux(latency, unit_rows, one_row), Mux(latency, one_row, row_lines))
        by_group = (pass_groups, 0, Mux(latency, 0, 1))
        addend_partial = item.addend == ADDEND.PARTIAL
        addend = [Mux(addend_partial, one, other) for one, other in zip(by_partial, by_group, strict=True)]
        line_stride = Mux(latency, item.to_line_stride << beats_log2, item.to_line_stride)
        beats = Mux(latency, 1 << beats_log2, 1)
        by_feature = (beats, item.to_line_stride << rows_log2, 0)
        to = [Mux(partial, one, Mux(feature, other, third))
              for one, other, third in zip(by_partial, by_feature, (line_stride, 1, 0), strict=True)]

        shared = plan.shared
        m.d.sync += [
            shared.latency.eq(latency),
            shared.addend.eq(Mux(interact, ADDEND.NONE, item.addend)),
            shared.relu.eq(~interact & (item.activation == ACTIVATION.RELU) & ~partial),
            shared.target.eq(Mux(interact, TARGET.ROWS, item.target)),
            shared.row_lines.eq(Mux(feature & ~interact, item.to_line_stride, 0)),
            shared.beat_lines.eq(Mux(feature & ~interact, 1, item.to_line_stride)),
            shared.fixed.eq(interact | feature),
            shared.triangle.eq(interact),
            shared.stride.eq(Mux(interact, 0, item.out_stride)),
            shared.sigmoid.eq(~interact & (item.activation == ACTIVATION.SIGMOID)),
            shared.number.eq(item.number),
            shared.source.eq(Mux(interact, SOURCE.FEATURES, Mux(latency, SOURCE.OWN, SOURCE.SHARED))),
            shared.steps_less_one.eq(steps - 1),
            shared.once.eq(steps == 1),
            shared.hop.eq(Mux(interact, 1, item.line_stride)),
            plan.interact.eq(interact),
            plan.wait_rows.eq(item.wait_rows),
            plan.wait_weights.eq(item.wait_weights),
            plan.wait_layers.eq(item.wait_layers),
            plan.short.eq(steps[:SHORT_BITS] | steps[SHORT_BITS:].any().replicate(SHORT_BITS)),
            plan.groups_less_one.eq(group),
            plan.one_group.eq(group == 0),
            plan.rest.eq(rest),
            plan.line.eq(item.line),
            plan.to_line.eq(item.to_line),
            plan.passes_less_one.eq(passes),
            plan.one_pass.eq(passes == 0),
            plan.last_inner.eq(Mux(latency, rest[rows_log2:], groups & (config.groups_per_beat - 1))),
            plan.last_idle.eq(Mux(latency, ~groups[:units_log2], 0)),
            plan.last_columns.eq(item.last_columns),
            plan.start.eq(Mux(feature, item.feature >> rows_log2, 0)),
            plan.bank.eq(Mux(feature, item.feature[:rows_log2], 0)),
            plan.weight_line.eq(item.weight_line),
            plan.steps.eq(item.steps),
            plan.addend_line.eq(item.addend_line),
            plan.addend_pass.eq(addend[0]),
            plan.addend_group.eq(addend[1]),
            plan.addend_inner.eq(addend[2]),
            plan.to_pass.eq(to[0]),
            plan.to_group.eq(to[1]),
            plan.to_inner.eq(to[2]),
            plan.out.eq(item.out),
            plan.out_pass.eq(beats),
            plan.out_group.eq(item.out_stride << samples_log2),
            plan.line_stride.eq(item.line_stride),
            plan.row_beats.eq(item.row_beats),
            plan.last_rows.eq(rest[:rows_log2] | rest[rows_log2:].any().replicate(rows_log2)),
            plan.blocks_less_one.eq(features >> rows_log2),
            plan.one_block.eq(features >> rows_log2 == 0),
            plan.last_live.eq(features[:rows_log2]),
        ]
