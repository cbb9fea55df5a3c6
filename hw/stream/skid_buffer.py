"""A buffer of two registers."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.place import Part

__all__ = ["SkidBuffer"]


class SkidBuffer(Part):
    """Cuts every combinational path of a stream, forward and backward, at full rate.

    o = i, one beat later.                             Source: two-register buffer, common practice

    Parameters  shape: the payload's shape
    Members     i  In(stream)
                o  Out(stream)
    Shapes      one beat in, one beat out
    Timing      latency 1 cycle; one beat a cycle
    Handshake   o.valid, o.payload and i.ready come from registers
    Numerics    none
    Reset       drops what it holds
    Raises      TypeError: from amaranth, when the shape is not a shape
    Golden      golden.stream.skid_buffer.SkidBuffer          Tests  verif/stream/test_skid_buffer.py
    """

    def __init__(self, shape):
        self._shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        held = Signal(self._shape)  # the beat that arrived while the output was blocked
        full = Signal()
        m.d.comb += self.i.ready.eq(~full)
        with m.If(~self.o.valid | self.o.ready):
            with m.If(full):
                m.d.sync += self.o.payload.eq(held)
                m.d.sync += self.o.valid.eq(1)
                m.d.sync += full.eq(0)
            with m.Else():
                m.d.sync += self.o.payload.eq(self.i.payload)
                m.d.sync += self.o.valid.eq(self.i.valid)
        with m.Elif(self.i.valid & self.i.ready):
            m.d.sync += held.eq(self.i.payload)
            m.d.sync += full.eq(1)
        return m
