"""The tiles of a LAYER one after the other, and what the sequencer is told of a tile."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.mlp.config import MlpConfig
from hw.mlp.plan import SHORT_BITS, group_bits, plan_layout
from hw.mlp.records import slot_layout, tile_layout


def order_layout(config: MlpConfig) -> data.StructLayout:
    """A tile: names as in the records, but for

    final: the instruction's last; twice: slots a step; short: slots, 2 * LONG at most; spacing: least cycles from the
    last slot before to its own last one; x_line, y_lines, x_bank, y_bank: of its first step, y_bank of the first group.
    """
    tile, slot = tile_layout(config), slot_layout(config)
    line = (config.row_lines - 1).bit_length()
    names = ("live", "lanes", "unit", "addend_line", "line", "start", "bank", "out", "half", "fills", "columns",
             "idle_units", "group", "block", "begin")
    return data.StructLayout({
        "final": 1, "twice": 1, "short": SHORT_BITS + 1,
        "spacing": range(max(config.rows, config.samples // config.groups_per_beat) + 1),
        "x_line": line, "y_lines": data.ArrayLayout(line, 2), "x_bank": slot["x_bank"].shape,
        "y_bank": slot["x_bank"].shape, "y_groups": 2, "y_own": 2, "weight_line": slot["weight_line"].shape,
        **{name: tile[name].shape for name in names},
    })


def below(value: Value, number: int) -> Value:
    """value < number, for a number that may be 0."""
    return value < number if number else Const(0, 1)


class LayerOrder(wiring.Component):
    """The tiles of a LAYER: pass, group of samples, and within it the halves of a beat or in latency mode the units.

    Addresses are kept for each of the three loops and grow by strides.

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
        units_log2 = (config.units - 1).bit_length()
        halves_log2 = (config.groups_per_beat - 1).bit_length()
        latency = plan.shared.latency

        # -- The loops. Which of them ends with this tile is known from registers.
        # left
        passes = Signal(12, reset_less=True)
        groups = Signal(group_bits(config), reset_less=True)
        inner = Signal(units_log2, reset_less=True)
        last_pass, last_group = (Signal(name=name, reset_less=True) for name in ("last_pass", "last_group"))
        # one more to go
        pass_before = Signal(reset_less=True)
        group_before = Signal(reset_less=True)
        last_inner = Signal(reset_less=True)
        limit = Signal(units_log2)
        short = Mux(latency, last_group, last_pass)
        m.d.comb += limit.eq(Mux(short, plan.last_inner, Mux(latency, config.units - 1, config.groups_per_beat - 1)))
        m.d.sync += pass_before.eq(passes == 1)
        m.d.sync += group_before.eq(groups == 1)
        m.d.sync += last_inner.eq(inner == limit)
        next_group = Signal()
        next_pass = Signal()
        m.d.comb += next_group.eq(self.step & last_inner)
        m.d.comb += next_pass.eq(next_group & last_group)
        with m.If(self.load):
            m.d.sync += [
                passes.eq(following.passes_less_one),
                last_pass.eq(following.one_pass),
                groups.eq(following.groups_less_one),
                last_group.eq(following.one_group),
                inner.eq(0),
            ]
        with m.Elif(self.step):
            m.d.sync += inner.eq(Mux(last_inner, 0, inner + 1))
            with m.If(next_group):
                m.d.sync += groups.eq(groups - 1)
                m.d.sync += last_group.eq(group_before)
            with m.If(next_pass):
                m.d.sync += [
                    passes.eq(passes - 1),
                    last_pass.eq(pass_before),
                    groups.eq(plan.groups_less_one),
                    last_group.eq(plan.one_group),
                ]

        # -- The addresses.
        levels = next_group, next_pass
        addend = self._address(m, "addend", levels, following.addend_line,
                               plan.addend_pass, plan.addend_group, plan.addend_inner)
        to = self._address(m, "to", levels, following.to_line, plan.to_pass, plan.to_group, plan.to_inner)
        out = self._address(m, "out", levels, following.out, plan.out_pass, plan.out_group, Const(0, 1))
        line = Signal(len(plan.line), reset_less=True)
        weight = Signal(len(plan.weight_line), reset_less=True)
        # The units that a pass' groups of weights lie in: those of the first, and how often they fit in all units.
        turn = Signal(max(1, units_log2 - halves_log2), reset_less=True)
        turns = (1 << (units_log2 - halves_log2)) - 1
        with m.If(self.load):
            m.d.sync += line.eq(following.line)
            m.d.sync += weight.eq(following.weight_line)
            m.d.sync += turn.eq(0)
        with m.Elif(next_pass):
            m.d.sync += line.eq(plan.line)
            m.d.sync += turn.eq(Mux(turn == turns, 0, turn + 1))
            with m.If(latency | (turn == turns)):
                m.d.sync += weight.eq(weight + plan.steps)
        with m.Elif(next_group):
            m.d.sync += line.eq(line + 1)

        lanes, live = self._rows(m, inner, last_group)
        half = Signal(units_log2)
        writes = live << (units_log2 - halves_log2)     # that the results take, as many beats a row
        last_columns = last_pass & (last_inner | latency)
        # A half is a number of pieces.
        pieces_log2 = (config.columns // config.piece - 1).bit_length()
        m.d.comb += [
            half.eq(Mux(latency, 0, inner)),
            o.final.eq(last_pass & last_group & last_inner),
            o.short.eq(plan.short),
            o.spacing.eq(Mux(latency & (writes > config.rows), writes, config.rows)),
            o.x_line.eq(line),
            o.weight_line.eq(weight),
            o.live.eq(live),
            o.lanes.eq(lanes),
            o.unit.eq(Mux(latency, inner, Cat(inner[:halves_log2], turn))),
            o.addend_line.eq(addend),
            o.line.eq(to),
            o.start.eq(plan.start + (half << pieces_log2)),
            o.bank.eq(plan.bank),
            o.out.eq(out),
            o.half.eq(half),
            o.fills.eq(latency | last_inner),
            o.columns.eq(Mux(last_columns, plan.last_columns, config.columns)),
            o.idle_units.eq(Mux(last_pass, plan.last_idle, 0)),
        ]
        return m

    def _rows(self, m: Module, inner, last_group):
        """Registers: the rows whose samples exist, and how many rows drain."""
        config, rows, latency = self.config, self.config.rows, self.plan.shared.latency
        rows_log2 = (rows - 1).bit_length()
        rest, rest_unit = self.plan.rest[:rows_log2], self.plan.rest[rows_log2:]
        lanes = Signal(config.samples, reset_less=True)
        live = Signal(range(rows + 1), reset_less=True)
        # The rest's unit is not full; those before are.
        short = last_group & (Mux(latency, inner, 0) == rest_unit)
        for unit in range(config.units):
            # A unit ahead of the rest's is full, one behind it is empty.
            ends, beyond = last_group & (rest_unit == unit), last_group & below(rest_unit, unit)
            for row in range(rows):
                m.d.sync += lanes[unit * rows + row].eq(
                    ~beyond & ~(ends & below(rest, row)) & (~latency | (inner == unit)))
        m.d.sync += live.eq(Mux(short, rest + 1, rows))
        return lanes, live

    def _address(self, m: Module, name, levels, begin, by_pass, by_group, by_inner):
        """The tile's address: of each loop where it began, one stride further with each turn of it."""
        next_group, next_pass = levels
        width = len(begin)
        at_pass, at_group, at = (Signal(width, name=f"{name}_{loop}", reset_less=True)
                                 for loop in ("of_pass", "of_group", "of_tile"))
        total = Signal(width, name=f"{name}_next")
        base, stride = Signal(width, name=f"{name}_base"), Signal(width, name=f"{name}_stride")
        m.d.comb += base.eq(Mux(next_pass, at_pass, Mux(next_group, at_group, at)))
        m.d.comb += stride.eq(Mux(next_pass, by_pass, Mux(next_group, by_group, by_inner)))
        m.d.comb += total.eq(base + stride)
        with m.If(self.load):
            m.d.sync += at_pass.eq(begin)
            m.d.sync += at_group.eq(begin)
            m.d.sync += at.eq(begin)
        with m.Elif(self.step):
            m.d.sync += at.eq(total)
            with m.If(next_group):
                m.d.sync += at_group.eq(total)
            with m.If(next_pass):
                m.d.sync += at_pass.eq(total)
        return at
