"""A buffer of two registers."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.place import Part


class SkidBuffer(Part):
    """Cuts every combinational path of a stream, forward and backward, at full rate.

    o = i, one beat later.                             Source: two-register buffer, common practice

    Parameters  shape: the payload's shape
    Members     i  In(stream)
                o  Out(stream)
    Shapes      one beat in, one beat out
    Timing      latency 1 cycle; one beat per cycle
    Handshake   o.valid, o.payload and i.ready come from registers
    Numerics    none
    Reset       drops what it holds
    Raises      TypeError: from amaranth, when the shape is not a shape
    Golden      verif.bench.parts.SkidBuffer          Tests  verif/stream/test_skid_buffer.py
    """

    def __init__(self, shape):
        self._shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        # The beat that arrived while the output was blocked, and in every other cycle what stands at the input: only a
        # register enables it.
        held, payload = (Signal(self._shape, name=name, reset_less=True) for name in ("held", "payload"))
        free = Signal(init=1)
        m.d.comb += self.i.ready.eq(free)
        m.d.comb += self.o.payload.eq(payload)
        with m.If(free):
            m.d.sync += held.eq(self.i.payload)
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += payload.eq(Mux(free, self.i.payload, held))
            m.d.sync += self.o.valid.eq(self.i.valid | ~free)
            m.d.sync += free.eq(1)
        with m.Elif(self.i.valid):
            m.d.sync += free.eq(0)
        return m
