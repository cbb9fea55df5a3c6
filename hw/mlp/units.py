"""The compute units: the arrays of an MLP core in lock step, and the ways of the operands to them."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.attributes import APART
from hw.mlp.config import MlpConfig
from hw.mlp.records import LATENCY, SOURCE, result_layout, slot_layout
from hw.place import Part, place
from hw.systolic import SystolicArray

REACH = 2   # columns of an array that operands enter at a time


def _delay(m: Module, name: str, value: Value, cycles: int, *, reset_less: bool = True) -> Value:
    """`value` as it was `cycles` ago, from one packed register."""
    width = len(value)
    line = Signal(width * cycles, name=name, reset_less=reset_less)
    m.d.sync += line.eq(Cat(value, line[:width * (cycles - 1)]))
    return line[width * (cycles - 1):]


def stages(config: MlpConfig) -> int:
    """Registers between the memories and the arrays; what brings groups to one exponent begins with the second."""
    return 1 if config.grouped else 2


class ColumnOperands(Part):
    """The words that one unit's columns take: the weights of one unit for all, its own, or its features.

    A part of its own, since equal registers of four units would become one, which lies far from most of what it drives.

    Parameters  config: MlpConfig
    Members     common, w, f  In  a line of each
                features      In  a cycle before: `f` is taken instead of `w`
                shared        In  a cycle before: `common` is taken instead of either
                y             Out
    Timing      stages(config) cycles from common, w and f to y
    Reset       forgets `features` and `shared`
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        line = data.ArrayLayout(32, config.line_words)
        super().__init__({"common": In(line), "w": In(line), "f": In(line), "features": In(1), "shared": In(1),
                          "y": Out(line)})

    def elaborate(self, platform):
        m = Module()
        common, weights, features = ([Signal(32, name=f"{name}_{i}", reset_less=True)
                                      for i in range(self.config.line_words)]
                                     for name in ("common_held", "weights", "features_held"))
        # All but one are nothing: the choice is one LUT a bit without another input.
        no_common, no_weights, no_features = (Signal(name=f"no_{name}", init=1)
                                              for name in ("common", "weights", "features"))
        m.d.sync += no_common.eq(~self.shared)
        m.d.sync += no_weights.eq(self.shared | self.features)
        m.d.sync += no_features.eq(~self.features)
        for held, words, nothing in ((common, self.common, no_common), (weights, self.w, no_weights),
                                     (features, self.f, no_features)):
            m.d.sync += [register.eq(word) for register, word in zip(held, words)]
            with m.If(nothing):
                m.d.sync += [register.eq(0) for register in held]
        domain = m.d.comb if self.config.grouped else m.d.sync
        domain += [self.y[i].eq(a | b | c) for i, (a, b, c) in enumerate(zip(common, weights, features))]
        return m


class ComputeUnits(Part):
    """Takes a slot's operands to the units' arrays and hands on their rows of results.

    Source SHARED: unit u takes its own rows and the weights of the slot's unit; OWN: the rows of the slot's unit and
    its own weights; FEATURES: its own rows and its own features.            Source: SCRec §III.E, top MLP

    Parameters  config: MlpConfig
    Members     valid, slot  In  a slot (hw.mlp.records)
                x            In  the rows' words of every unit
                w, f         In  a line of weights and one of features of every unit, index column * width + k, all
                    LATENCY cycles behind their slot
                o_valid, o   Out  a row of results of every unit, see `result_layout`
    Shapes      a tile is x (units, rows, K) times y (units, K, columns), K / width slots from `first` to `last`;
                blank slots and cycles without a slot count as terms of +0
    Timing      a slot per cycle; result row r comes `latency + live + r` cycles after the slot with `last`. Tiles may
                follow each other without a gap under SystolicArray's rule, with the live rows of their last slots
    Handshake   none: the slots come as they may, results have to be taken
    Numerics    golden.systolic.array.tiles, unit by unit; rows from `live` on are not there. Against golden:
                bit-exact
    Reset       tiles under way are dropped: none of their results is marked valid
    Golden      golden.systolic.array.tiles, .schedule      Tests  verif/mlp/test_units.py
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        line = data.ArrayLayout(data.ArrayLayout(32, config.line_words), config.units)
        rows = data.ArrayLayout(data.ArrayLayout(data.ArrayLayout(32, config.width), config.rows), config.units)
        self._arrays = [SystolicArray(rows=config.rows, columns=config.columns, width=config.width,
                                      terms_log2=config.terms_log2, grouped=config.grouped, reach=REACH, aligned=True,
                                      lut_products=config.lut_products, family=config.family)
                        for _ in range(config.units)]
        super().__init__({
            "valid": In(1), "slot": In(slot_layout(config)), "x": In(rows), "w": In(line), "f": In(line),
            "o_valid": Out(1), "o": Out(result_layout(config)),
        })

    @property
    def latency(self) -> int:
        """Cycles from a slot with `last` to row 0 of its results, less the live rows."""
        return LATENCY + stages(self.config) + self._arrays[0].latency

    def elaborate(self, platform):
        m = Module()
        config = self.config
        for u, array in enumerate(self._arrays):
            place(m, platform, f"array_{u}", array)

        # -- What a slot asks for, in the cycle of its operands: `at`; and one later, `then`.
        slot = self.slot
        marks = Cat(self.valid & slot.first, self.valid & slot.last)
        marks = _delay(m, "marks", marks, LATENCY + stages(config), reset_less=False)
        live = _delay(m, "live", slot.live, LATENCY + stages(config))
        asked = _delay(m, "asked", Cat(
            slot.unit, slot.source == SOURCE.OWN, slot.source == SOURCE.FEATURES, slot.source == SOURCE.SHARED,
            self.valid & ~slot.keep, ~self.valid | slot.blank), LATENCY - 1)
        bits = len(slot.unit)
        unit, own, features, shared, fresh, blank = asked[:bits], *(asked[bits + k] for k in range(5))

        # -- First registers: the rows that a unit takes, kept when the slot says so; weights of one unit for all.
        chosen = Signal(bits, reset_less=True, attrs=APART)
        m.d.sync += chosen.eq(unit)
        common = Signal(self.w[0].shape())
        m.d.comb += [word.eq(Array(line[i] for line in self.w)[chosen]) for i, word in enumerate(common)]
        for u, array in enumerate(self._arrays):
            rows_of = Signal(bits, name=f"rows_of_{u}", reset_less=True, attrs=APART)
            take_rows = Signal(name=f"take_rows_{u}", reset_less=True, attrs=APART)
            m.d.sync += rows_of.eq(Mux(own, unit, u))
            m.d.sync += take_rows.eq(fresh)
            rows = [Signal(32, name=f"rows_{u}_{i}", reset_less=True) for i in range(config.rows * config.width)]
            with m.If(take_rows):
                m.d.sync += [word.eq(Array(x[i // config.width][i % config.width] for x in self.x)[rows_of])
                             for i, word in enumerate(rows)]
            columns = ColumnOperands(config)
            place(m, platform, f"columns_{u}", columns)
            m.d.comb += [
                columns.common.eq(common),
                columns.w.eq(self.w[u]),
                columns.f.eq(self.f[u]),
                columns.features.eq(features),
                columns.shared.eq(shared),
            ]

            # -- Second registers. A reset keeps marks of every unit from becoming shift registers, initial values from
            # being merged.
            nothing = [Signal(name=f"nothing_{u}_{k}", init=u % 2, attrs=APART) for k in range(1 + stages(config))]
            m.d.sync += [register.eq(before) for register, before in zip(nothing, (blank, *nothing))]
            x = [Signal(32, name=f"x_{u}_{i}", reset_less=True) for i in range(len(rows))]
            domain = m.d.comb if config.grouped else m.d.sync
            domain += [word.eq(row) for word, row in zip(x, rows)]
            m.d.comb += [
                array.x.eq(Cat(x)),
                array.y.eq(columns.y),
                array.blank.eq(nothing[-1]),
                Cat(array.first, array.last).eq(marks),
                array.live_rows.eq(live),
                self.o.words[u].eq(array.o),
            ]

        row = Signal.like(self.o.row)
        first = self._arrays[0]
        with m.If(first.o_valid):
            m.d.sync += row.eq(Mux(first.o_last, 0, row + 1))
        m.d.comb += self.o_valid.eq(first.o_valid)
        m.d.comb += self.o.last.eq(first.o_last)
        m.d.comb += self.o.row.eq(row)
        return m
