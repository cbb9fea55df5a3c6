"""A queue that is never refused: whoever fills it looks at whether it is open some cycles before."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emb.tokens import OPEN_SLACK

__all__ = ["Outlet"]

LUT_DEPTH = 64  # as deep as one LUT memory; what is deeper goes to block memory


class Outlet(wiring.Component):
    """Holds payloads that come out of a pipeline which cannot wait.

    Parameters  shape: the payload's; depth: a power of two, at least 32
    Members     push  In  `i` is to be held
                i     In  a payload
                o     Out(stream)
                open  Out  room for OPEN_SLACK more payloads
    Timing      latency 2 cycles, one payload a cycle; `open` tells of a push two cycles later
    Handshake   o.valid, o.payload and open come from registers
    Reset       drops what it holds
    Raises      ValueError: depth too small or no power of two
    Golden      the order in which it was filled          Tests  verif/emb/test_front.py
    """

    def __init__(self, shape, *, depth: int):
        if type(depth) is not int or depth < 32 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 32, not {depth!r}")
        self.shape, self.depth = shape, depth
        super().__init__({
            "push": In(1),
            "i": In(shape),
            "o": Out(stream.Signature(shape)),
            "open": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        small = self.depth <= LUT_DEPTH
        m.submodules.store = store = memory.Memory(
            shape=self.shape, depth=self.depth, init=[], attrs={"ram_style": "distributed" if small else "block"})
        write = store.write_port()
        bits = (self.depth - 1).bit_length()
        head, tail, level = Signal(bits), Signal(bits), Signal(bits + 1)
        some, fetch = Signal(), Signal()
        m.d.comb += [
            fetch.eq(some & (~self.o.valid | self.o.ready)),
            write.addr.eq(tail),
            write.data.eq(self.i),
            write.en.eq(self.push),
        ]
        if small:
            read = store.read_port(domain="comb")
            payload = Signal.like(self.o.payload, reset_less=True)
            with m.If(fetch):
                m.d.sync += payload.eq(read.data)
            m.d.comb += self.o.payload.eq(payload)
        else:
            read = store.read_port()
            m.d.comb += read.en.eq(fetch)
            m.d.comb += self.o.payload.eq(read.data)
        m.d.comb += read.addr.eq(head)
        m.d.sync += [
            level.eq(level + self.push - fetch),
            some.eq(self.push | (level[1:] != 0) | (level[0] & ~fetch)),
            tail.eq(tail + self.push),
            head.eq(head + fetch),
            self.o.valid.eq(fetch | (self.o.valid & ~self.o.ready)),
            self.open.eq(level <= self.depth - OPEN_SLACK),
        ]
        return m
