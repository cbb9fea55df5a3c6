"""The binary32 word of an exact sum."""

from amaranth.hdl import Const, Module
from amaranth.lib.wiring import In, Out

from hw.place import Part

from .group_dot import DROPPED_BITS, total_layout
from .normalise import normalise
from .operand import delay


class Rounder(Part):
    """Rounds an exact sum to nearest even.

    Parameters  width: bits of a sum
    Members     i  In  hw.fp.group_dot.total_layout, from a register
                o  Out  binary32 word
    Timing      `latency` cycles, a sum per cycle; no stall
    Handshake   none
    Numerics    subnormal results flushed after rounding, an exact zero is +0. Bit-exact
    Reset       nothing needs it
    Golden      golden.fp.group_dot.words          Tests  verif/fp/test_group_dot.py
    """

    latency = 6

    def __init__(self, *, width: int):
        super().__init__({"i": In(total_layout(width)), "o": Out(32)})

    def elaborate(self, platform):
        m = Module()
        flags = delay(m, "kinds", self.i.kinds, self.latency - 1)
        m.d.comb += self.o.eq(normalise(m, 0, self.i.bits, self.i.top, 3, flags, Const(0, 1), DROPPED_BITS))
        return m
