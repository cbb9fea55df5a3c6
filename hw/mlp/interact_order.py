"""The tiles of an INTERACT one after the other."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.mlp.config import MlpConfig
from hw.mlp.layer_order import below, order_layout
from hw.mlp.plan import group_bits, plan_layout


class _Lines(NamedTuple):
    """What `InteractOrder._lines` hands on."""

    x: Any
    y: Any
    y_next: Any
    to: Signal


class InteractOrder(wiring.Component):
    """The tiles of an INTERACT: group of samples, row, group a of features as rows, block b of two as columns.

    Only tiles with a feature before another one's are made: b up to a / 2; a last group of a single feature, if its
    number is even, has no tile with itself.

    Parameters  config: MlpConfig
    Members     load  In  takes up `next`
                next  In  the plan of the coming instruction
                plan  In  of the one taken up
                step  In  to the tile behind
                o     Out  of order_layout
    Timing      o is right from the second cycle after `load` or `step` on
    Reset       none: `load` sets everything
    Golden      golden.mlp.order          Tests  verif/mlp/test_sequencer.py
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        super().__init__({
            "load": In(1), "next": In(plan_layout(config)), "plan": In(plan_layout(config)), "step": In(1),
            "o": Out(order_layout(config)),
        })

    def elaborate(self, platform):
        m = Module()
        config, plan, following, o = self.config, self.plan, self.next, self.o
        rows_log2 = (config.rows - 1).bit_length()

        # -- The loops. Which of them ends with this tile is known from registers.
        groups = Signal(group_bits(config), reset_less=True)    # of samples, left
        left = Signal(8, reset_less=True)                       # groups of features
        row = Signal(rows_log2, reset_less=True)
        a = Signal(8, reset_less=True)
        b = Signal(7, reset_less=True)
        last_group, last_row, last_a, last_b = (
            Signal(name=f"last_{name}", reset_less=True) for name in ("group", "row", "a", "b"))
        # one more to go
        group_before = Signal(reset_less=True)
        a_before = Signal(reset_less=True)
        first = Signal(reset_less=True)
        begin = Signal(reset_less=True)
        single = last_a & (plan.last_live == 0) & ~a[0]
        m.d.sync += [
            group_before.eq(groups == 1),
            a_before.eq(left == 1),
            last_row.eq(row == Mux(last_group, plan.last_rows, config.rows - 1)),
            last_b.eq((b + single)[:7] == a[1:]),
        ]
        next_a = Signal()
        next_row = Signal()
        next_group = Signal()
        m.d.comb += next_a.eq(self.step & last_b)
        m.d.comb += next_row.eq(next_a & last_a)
        m.d.comb += next_group.eq(next_row & last_row)
        with m.If(self.load):
            m.d.sync += [
                groups.eq(following.groups_less_one),
                last_group.eq(following.one_group),
                row.eq(0),
                first.eq(1),
            ]
        with m.Elif(self.step):
            m.d.sync += first.eq(0)
            with m.If(next_row):
                m.d.sync += row.eq(Mux(last_row, 0, row + 1))
            with m.If(next_group):
                m.d.sync += groups.eq(groups - 1)
                m.d.sync += last_group.eq(group_before)
        with m.If(self.load | next_row):
            m.d.sync += [
                a.eq(0),
                b.eq(0),
                begin.eq(1),
                left.eq(Mux(self.load, following.blocks_less_one, plan.blocks_less_one)),
                last_a.eq(Mux(self.load, following.one_block, plan.one_block)),
            ]
        with m.Elif(next_a):
            m.d.sync += [
                a.eq(a + 1),
                b.eq(0),
                begin.eq(0),
                left.eq(left - 1),
                last_a.eq(a_before),
            ]
        with m.Elif(self.step):
            m.d.sync += b.eq(b + 1)
            m.d.sync += begin.eq(0)
        lines = self._lines(m, next_a, next_row, next_group)

        # -- Whether both groups of the block exist, which of them is a, and whether two of the tile's lie in the same
        # banks. Registers.
        bits = len(o.x_bank)
        both = Signal(reset_less=True)
        twice = Signal(reset_less=True)
        own = Signal(2, reset_less=True)
        zero, one = Const(0, 1), Const(1, 1)
        # 2b + 1 is at most a, unless 2b is: then a + 1, which lies elsewhere.
        clash = [(a[:bits] == Cat(second, b)[:bits]) & (a != Cat(second, b)) for second in (zero, one)]
        m.d.sync += both.eq((a[1:] != b) | a[0])
        m.d.sync += own.eq(Mux(a[1:] == b, Cat(~a[0], a[0]), 0))
        m.d.sync += twice.eq(clash[0] | clash[1])
        lanes, live = self._live(m, row, last_group, last_a)

        m.d.comb += [
            o.final.eq(last_group & last_row & last_a & last_b),
            o.twice.eq(twice),
            o.short.eq(plan.short << twice),
            o.spacing.eq(config.rows),
            o.x_line.eq(lines.x),
            o.y_lines[0].eq(lines.y),
            o.y_lines[1].eq(lines.y_next),
            o.x_bank.eq(a),
            o.y_bank.eq(Cat(zero, b)),
            o.y_groups.eq(Cat(one, both)),
            o.y_own.eq(own),
            o.live.eq(live),
            o.lanes.eq(lanes),
            o.line.eq(lines.to),
            o.bank.eq(row),
            o.fills.eq(1),
            o.columns.eq(config.columns),
            o.group.eq(a),
            o.block.eq(b),
            o.begin.eq(begin),
        ]
        return m

    def _lines(self, m: Module, next_a, next_row, next_group) -> _Lines:
        """The lines: of group a, of the block's two groups, before them of the sample's first feature; of results."""
        plan, following = self.plan, self.next
        sample, x_line, y_line, y_next = (Signal(len(plan.line), name=name, reset_less=True)
                                          for name in ("sample_line", "x_line", "y_line", "y_next_line"))
        to = Signal(16, reset_less=True)
        next_sample = Signal(len(plan.line))
        m.d.comb += next_sample.eq(sample + plan.line_stride)
        m.d.sync += y_next.eq(y_line + plan.row_beats)
        with m.If(self.load):
            m.d.sync += sample.eq(following.line)
            m.d.sync += to.eq(following.to_line)
        with m.Elif(next_row):
            m.d.sync += sample.eq(next_sample)
            with m.If(next_group):
                m.d.sync += to.eq(to + 1)
        with m.If(self.load | next_row):
            line = Mux(self.load, following.line, next_sample)
            m.d.sync += x_line.eq(line)
            m.d.sync += y_line.eq(line)
        with m.Elif(next_a):
            m.d.sync += x_line.eq(x_line + plan.row_beats)
            m.d.sync += y_line.eq(sample)
        with m.Elif(self.step):
            m.d.sync += y_line.eq(y_line + (plan.row_beats << 1))
        return _Lines(x=x_line, y=y_line, y_next=y_next, to=to)

    def _live(self, m: Module, row, last_group, last_a) -> tuple[Signal, Signal]:
        """What of the tile exists: of the samples its lanes, of group a its rows. Registers."""
        config, plan = self.config, self.plan
        rest_row, rest_unit = plan.rest[:len(row)], plan.rest[len(row):]
        lanes = Signal(config.samples, reset_less=True)
        live = Signal(len(self.o.live), reset_less=True)
        m.d.sync += live.eq(Mux(last_a, plan.last_live + 1, config.rows))
        for unit in range(config.units):
            beyond = below(rest_unit, unit) | ((rest_unit == unit) & (rest_row < row))
            for lane in range(config.rows):
                m.d.sync += lanes[unit * config.rows + lane].eq(
                    ~(last_group & beyond) & ~(last_a & below(plan.last_live, lane)))
        return lanes, live
