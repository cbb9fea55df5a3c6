"""A queue for what is remembered of bursts under way, and the round robin of the ports' clients."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["BurstQueue", "round_robin"]

LUT_DEPTH = 64  # as deep as one LUT memory; what is deeper goes to block memory


class BurstQueue(wiring.Component):
    """Holds up to depth + 1 payloads, in LUT memory or in block memory, and says whether it holds any.

    Parameters  shape: the payload's; depth: a power of two
    Members     i     In(stream)
                o     Out(stream)
                held  Out  something is inside
    Timing      latency 2 cycles, one payload a cycle
    Handshake   i.ready and o.valid come from registers
    Reset       drops what it holds
    Golden      the order in which it was filled          Tests  verif/axi/test_reader.py
    """

    def __init__(self, shape, *, depth: int):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 2, not {depth}")
        self.shape = shape
        self.depth = depth
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "held": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        small = self.depth <= LUT_DEPTH
        m.submodules.store = store = memory.Memory(
            shape=self.shape, depth=self.depth, init=[], attrs={"ram_style": "distributed" if small else "block"})
        write = store.write_port()
        bits = (self.depth - 1).bit_length()
        head, tail, level = Signal(bits), Signal(bits), Signal(bits + 1)
        some = Signal()  # level != 0, from a register
        push, fetch = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~level[bits]),
            push.eq(self.i.valid & self.i.ready),
            fetch.eq(some & (~self.o.valid | self.o.ready)),
            write.addr.eq(tail),
            write.data.eq(self.i.payload),
            write.en.eq(push),
            self.held.eq(some | self.o.valid),
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
            level.eq(level + push - fetch),
            some.eq(push | (level[1:] != 0) | (level[0] & ~fetch)),
            tail.eq(tail + push),
            head.eq(head + fetch),
            self.o.valid.eq(fetch | (self.o.valid & ~self.o.ready)),
        ]
        return m


def round_robin(requests: list[Value], last: Signal) -> list[Value]:
    """Who is granted, one-hot: the first of `requests` after the one that `last` marks (none: after the end)."""
    count = len(requests)
    granted = []
    for this in range(count):
        wins = Value.cast(0)
        for before in range(count):
            # After a grant to `before` those from its successor up to `this` come first.
            rivals = [requests[(before + 1 + step) % count] for step in range((this - before - 1) % count)]
            free = Value.cast(1)
            for rival in rivals:
                free = free & ~rival
            wins = wins | (last[before] & free)
        # Before the first grant `last` is zero: the lowest goes first.
        none = ~last.any()
        for rival in requests[:this]:
            none = none & ~rival
        granted.append(requests[this] & (wins | none))
    return granted
