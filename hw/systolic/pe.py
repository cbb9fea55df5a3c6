"""One cell of the systolic array: a fused dot product between neighbours."""

from functools import cached_property

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from hw.fp.dot import FusedDot
from hw.fp.group import operands
from hw.place import Part


class ProcessingElement(Part):
    """Multiplies and accumulates what passes by, and keeps its sum until the column drains.

    held = sum_k x[k] * y[k] over the terms between `first` and `done`.  Source: SCRec §III.E, Fig. 7a

    Parameters  width: terms per beat, 1, 2, 4 or 8; terms_log2: a sum has at most 2^terms_log2 terms;
                grouped, lut_products, family: see FusedDot
    Members     x_i, first_i, done_i  In  from the left
                y_i    In  from above
                y_o    Out  the same one cycle later
                load   In(1)  the held sum replaces what passes up the column
                below  In(32)  what comes up the column
                o      Out(32)  what goes up the column
    Timing      done_i comes `FusedDot.latency` cycles after the beat with the last term: an array delays that
                token once for all its cells; `load` acts two cycles after it is given
    Handshake   none: beats without meaning pass by unharmed, since the next `first` clears
    Numerics    golden.fp.fp32.dot with beat = width, grouped or not
    Reset       nothing to clear: tokens are in order, so that what was under way is overtaken by nothing
    Raises      ValueError: from FusedDot, once the latency is asked for
    Golden      golden.systolic.array.tiles         Tests  verif/systolic/test_array.py
    """

    def __init__(self, *, width: int, terms_log2: int, grouped: bool = False, lut_products: int = 0,
                 family: str = "any"):
        self.width, self.terms_log2, self.grouped = width, terms_log2, grouped
        self.lut_products, self.family = lut_products, family
        given = operands(width, 1, grouped)
        super().__init__({
            "x_i": In(given), "first_i": In(1), "done_i": In(1),
            "y_i": In(given), "y_o": Out(given),
            "load": In(1), "below": In(32), "o": Out(32),
        })

    @cached_property
    def _dot(self) -> FusedDot:
        # Made when it is asked for: of many equal cells only one is ever elaborated.
        return FusedDot(width=self.width, terms_log2=self.terms_log2, grouped=self.grouped,
                        lut_products=self.lut_products, family=self.family)

    @property
    def latency(self) -> int:
        """Cycles from the beat with the last term to `done_i`."""
        return self._dot.latency

    def elaborate(self, platform):
        m = Module()
        m.submodules.dot = dot = self._dot
        m.d.comb += dot.x.eq(self.x_i)
        m.d.comb += dot.y.eq(self.y_i)
        m.d.comb += dot.first.eq(self.first_i)

        # The registers handed on equal the dot product's own operand registers; synthesis keeps one of each.
        y = Signal.like(self.y_o, reset_less=True)
        load = Signal(reset_less=True)
        m.d.sync += y.eq(self.y_i)
        m.d.sync += load.eq(self.load)
        m.d.comb += self.y_o.eq(y)

        # The sum rests here until its whole column is there, so that the next tile can follow at once.
        held = Signal(32, reset_less=True)
        passing = Signal(32, reset_less=True)
        with m.If(self.done_i):
            m.d.sync += held.eq(dot.o[0])
        with m.If(load):
            m.d.sync += passing.eq(held)
        with m.Else():
            m.d.sync += passing.eq(self.below)
        m.d.comb += self.o.eq(passing)
        return m
