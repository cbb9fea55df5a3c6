"""A first-in first-out queue: the one that all units use."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Fifo"]

LUT_DEPTH = 64  # as deep as one LUT memory; what is deeper goes to block memory


class Fifo(wiring.Component):
    """Holds payloads in LUT memory or in block memory, in their order.

    Parameters  shape: the payload's; depth: a power of two; block: in block memory, else in LUT memory; by default
                where it is deeper than LUT_DEPTH; register: the head has a register of its own, in block memory the
                memory's; headroom: places that are free while `room` is high, None: there is no `room`
    Members     i     In(stream)
                o     Out(stream)
                held  Out  something is inside
                room  Out  of a pipeline that cannot wait the head may enter: `headroom` more payloads have a place
    Shapes      depth payloads and one in the register
    Timing      latency 2 cycles, without register 1; one payload a cycle; a push is seen in `room` two cycles later
    Handshake   i.ready, o.valid and room come from registers, and so does o.payload with `register`
    Reset       drops what it holds
    Raises      ValueError: depth is no power of two, headroom is more than depth, block memory without register
    Golden      golden.stream.fifo.Fifo          Tests  verif/stream/test_fifo.py
    """

    def __init__(self, shape, *, depth: int, block: bool | None = None, register: bool = True,
                 headroom: int | None = None):
        if type(depth) is not int or depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 2, not {depth!r}")
        if headroom is not None and not 1 <= headroom <= depth:
            raise ValueError(f"headroom must be 1 to depth = {depth} places, not {headroom}")
        self.shape, self.depth = shape, depth
        self.block = depth > LUT_DEPTH if block is None else block
        if self.block and not register:
            raise ValueError("register must be true in block memory, whose output is a register")
        self.register, self.headroom = register, headroom
        members = {
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "held": Out(1),
        }
        super().__init__(members if headroom is None else members | {"room": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = memory.Memory(
            shape=self.shape, depth=self.depth, init=[], attrs={"ram_style": "block" if self.block else "distributed"})
        write, read = store.write_port(), store.read_port(domain="sync" if self.block else "comb")
        bits = (self.depth - 1).bit_length()
        head, tail, level = Signal(bits), Signal(bits), Signal(bits + 1)
        some = Signal()  # level != 0, from a register
        push, fetch = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~level[bits]),
            push.eq(self.i.valid & self.i.ready),
            write.addr.eq(tail),
            write.data.eq(self.i.payload),
            write.en.eq(push),
            read.addr.eq(head),
        ]
        # One more, one less or none, in one carry chain.
        change = Cat(push ^ fetch, (fetch & ~push).replicate(bits))
        m.d.sync += [
            level.eq(level + change),
            some.eq(push | (level[1:] != 0) | (level[0] & ~fetch)),
            tail.eq(tail + push),
            head.eq(head + fetch),
        ]
        if self.headroom is not None:
            m.d.sync += self.room.eq(level <= self.depth - self.headroom)
        if not self.register:
            m.d.comb += [
                fetch.eq(some & self.o.ready),
                self.o.valid.eq(some),
                self.o.payload.eq(read.data),
                self.held.eq(some),
            ]
            return m
        m.d.comb += fetch.eq(some & (~self.o.valid | self.o.ready))
        m.d.comb += self.held.eq(some | self.o.valid)
        m.d.sync += self.o.valid.eq(fetch | (self.o.valid & ~self.o.ready))
        if self.block:
            m.d.comb += read.en.eq(fetch)
            m.d.comb += self.o.payload.eq(read.data)
        else:
            payload = Signal.like(self.o.payload, reset_less=True)
            with m.If(fetch):
                m.d.sync += payload.eq(read.data)
            m.d.comb += self.o.payload.eq(payload)
        return m
