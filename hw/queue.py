"""A queue in block memory, for beats too wide for LUTs."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["BlockQueue"]


class BlockQueue(wiring.Component):
    """Holds up to depth + 1 payloads; the memory's own output register is the head.

    Parameters  shape: the payload's; depth: a power of two
    Members     i  In(stream)
                o  Out(stream)
    Timing      latency 2 cycles, one payload a cycle
    Handshake   i.ready comes from registers; o.ready reaches only the memory's read enable and the pointers
    Reset       drops what it holds
    Golden      the order in which it was filled          Tests  verif/tt/test_unit.py
    """

    def __init__(self, shape, *, depth: int):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 2, not {depth}")
        self.shape = shape
        self.depth = depth
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
        })

    def elaborate(self, platform):
        m = Module()
        store = memory.Memory(shape=self.shape, depth=self.depth, init=[], attrs={"ram_style": "block"})
        m.submodules.store = store
        write, read = store.write_port(), store.read_port()
        bits = (self.depth - 1).bit_length()
        head, tail, level = Signal(bits), Signal(bits), Signal(bits + 1)
        push, fetch = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~level[bits]),
            push.eq(self.i.valid & self.i.ready),
            fetch.eq((level != 0) & (~self.o.valid | self.o.ready)),
            write.addr.eq(tail),
            write.data.eq(self.i.payload),
            write.en.eq(push),
            read.addr.eq(head),
            read.en.eq(fetch),
            self.o.payload.eq(read.data),
        ]
        m.d.sync += [
            level.eq(level + push - fetch),
            tail.eq(tail + push),
            head.eq(head + fetch),
            self.o.valid.eq(fetch | (self.o.valid & ~self.o.ready)),
        ]
        return m
