"""A first-in first-out queue: the one that all units use."""

from itertools import groupby

from amaranth.hdl import Cat, Module, Shape, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.attributes import UNREAD

LUT_DEPTH = 64      # as deep as one LUT memory
MOST_LUTS = 288     # of a queue that is deeper; one that takes more goes to block memory


def mask_of(layout: data.StructLayout, *names: str) -> int:
    """The bits of some of a payload's fields, for `quick`."""
    return sum(((1 << layout[name].width) - 1) << layout[name].offset for name in names)


class Fifo(wiring.Component):
    """Holds payloads in LUT memory or in block memory, in their order.

    Parameters  shape: the payload's; depth: a power of two; block: in block memory, else in LUT memory; by default
                where it is deeper than LUT_DEPTH and takes more than MOST_LUTS; quick: a mask of those bits that are in
                LUT memory all the same, since what decides about the queue is to come from a register, of which a block
                memory's output is 1.2 ns away; register: the head has a register of its own, in block memory the
                memory's; headroom: places that are free while `room` is high, None: there is no `room`
    Members     i     In(stream)
                o     Out(stream)
                held  Out  something is inside
                room  Out  of a pipeline that cannot wait the head may enter: `headroom` more payloads have a place
    Shapes      depth payloads and one in the register
    Timing      latency 2 cycles, without register 1; one payload per cycle; a push is seen in `room` two cycles later
    Handshake   i.ready, o.valid and room come from registers, and so does o.payload with `register`
    Reset       drops what it holds
    Raises      ValueError: depth is no power of two, headroom is more than depth, block memory without register
    Golden      golden.stream.fifo.Fifo          Tests  verif/stream/test_fifo.py
    """

    def __init__(self, shape, *, depth: int, block: bool | None = None, quick: int = 0, register: bool = True,
                 headroom: int | None = None):
        if type(depth) is not int or depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 2, not {depth!r}")
        if headroom is not None and not 1 <= headroom <= depth:
            raise ValueError(f"headroom must be 1 to depth = {depth} places, not {headroom}")
        self.shape, self.depth, self.quick = shape, depth, quick
        luts = -(-Shape.cast(shape).width // 7) * 8 * depth // LUT_DEPTH
        self.block = (depth > LUT_DEPTH and luts > MOST_LUTS) if block is None else block
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
        bits = (self.depth - 1).bit_length()
        head = Signal(bits)
        tail = Signal(bits)
        level = Signal(bits + 1)
        some = Signal()  # level != 0, from a register
        push = Signal()
        fetch = Signal()
        m.d.comb += self.i.ready.eq(~level[bits])
        m.d.comb += push.eq(self.i.valid & self.i.ready)
        if self.block:
            self._stored(m, "store", ~self.quick, True, push, fetch, head, tail)
            self._stored(m, "quick", self.quick, False, push, fetch, head, tail)
        else:
            self._stored(m, "store", -1, False, push, fetch, head, tail)
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
            m.d.comb += fetch.eq(some & self.o.ready)
            m.d.comb += self.o.valid.eq(some)
            m.d.comb += self.held.eq(some)
            return m
        m.d.comb += fetch.eq(some & (~self.o.valid | self.o.ready))
        m.d.comb += self.held.eq(some | self.o.valid)
        m.d.sync += self.o.valid.eq(fetch | (self.o.valid & ~self.o.ready))
        return m

    def _stored(self, m: Module, name: str, mask: int, block: bool, push: Signal, fetch: Signal, head: Signal,
                tail: Signal) -> None:
        """The bits of the payloads that a mask names, in block memory or in LUT memory, and those of the head in its
        register."""
        entering, leaving = (_masked(Value.cast(side.payload), mask) for side in (self.i, self.o))
        if not len(entering):
            return
        m.submodules[name] = store = memory.Memory(
            shape=len(entering), depth=self.depth, init=[],
            attrs={**(UNREAD if self.register else {}), "ram_style": "block" if block else "distributed"})
        write, read = store.write_port(), store.read_port(domain="sync" if block else "comb")
        m.d.comb += [
            write.addr.eq(tail),
            write.data.eq(entering),
            write.en.eq(push),
            read.addr.eq(head),
        ]
        found = read.data
        if block:
            m.d.comb += read.en.eq(fetch)
        elif self.register:
            found = Signal(len(entering), name=f"{name}_head", reset_less=True)
            with m.If(fetch):
                m.d.sync += found.eq(read.data)
        m.d.comb += leaving.eq(found)


def _masked(value: Value, mask: int) -> Value:
    """The bits of a value that a mask names, from the lowest on, by runs."""
    runs = groupby(range(len(value)), lambda at: mask >> at & 1)
    return Cat(value[run[0]:run[-1] + 1] for run in (list(run) for named, run in runs if named))
