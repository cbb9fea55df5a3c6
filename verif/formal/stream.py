"""Of the stream parts: queue, skid buffer, turns."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.stream.fifo import Fifo
from hw.stream.round_robin import round_robin
from hw.stream.skid_buffer import SkidBuffer
from verif.formal.properties import Followed, Properties, properties, stable
from verif.formal.prove import Proof


def _queue(p: Properties, unit: Any, *, most: int, late: int) -> Value:
    """What every queue keeps to. most: payloads that it holds; late: cycles in which what is inside may not show.
    Returns how many are inside."""
    push, pop = Signal(), Signal()
    p.m.d.comb += push.eq(unit.i.valid & unit.i.ready)
    p.m.d.comb += pop.eq(unit.o.valid & unit.o.ready)
    followed = Followed(p, "payload", push, pop, unit.i.payload, most=most)
    inside = followed.inside
    p.claim("payloads leave unchanged and in order", ~(unit.o.valid & followed.here) | (
        Value.cast(unit.o.payload) == followed.payload))
    p.claim("it holds no more than it has places", inside <= most)
    p.claim("nothing leaves that did not enter", ~unit.o.valid | (inside != 0))
    p.claim("what waits stays", stable(p, unit.o))
    waits = Signal(3)
    p.m.d.sync += waits.eq(Mux((inside != 0) & ~unit.o.valid, waits + (waits != 7), 0))
    p.claim("what is inside shows in time", waits <= late)
    p.cover("it is full", inside == most)
    p.cover("it empties", (inside == 1) & pop & ~push)
    p.cover("one enters as one leaves", push & pop)
    return inside


@properties(Fifo)
def _fifo(p: Properties, unit: Fifo) -> None:
    most = unit.depth + unit.register
    inside = _queue(p, unit, most=most, late=1)
    p.claim("held says whether something is inside", unit.held == (inside != 0))
    p.claim("it refuses only when it is full", unit.i.ready | (inside >= unit.depth))
    if unit.headroom is not None:
        p.claim("there is the room that room says", ~unit.room | (inside + unit.headroom <= most + 2))
        p.cover("there is no room", ~unit.room)


@properties(SkidBuffer)
def _skid_buffer(p: Properties, unit: SkidBuffer) -> None:
    inside = _queue(p, unit, most=2, late=0)
    p.claim("it refuses only when it is full", unit.i.ready == (inside != 2))


class _Turns(wiring.Component):
    """`round_robin` with the register that its users keep. taken: the turn is used."""

    def __init__(self, count: int):
        self.count = count
        super().__init__({"requests": In(count), "taken": In(1), "granted": Out(count)})

    def elaborate(self, platform):
        m = Module()
        last = Signal(self.count)
        m.d.comb += self.granted.eq(Cat(round_robin(list(self.requests), last)))
        with m.If(self.taken & self.granted.any()):
            m.d.sync += last.eq(self.granted)
        return m


def _turns(p: Properties, unit: _Turns) -> None:
    granted, requests = unit.granted, unit.requests
    p.claim("at most one is granted", (granted & (granted - 1)) == 0)
    p.claim("who is granted asks", (granted & ~requests) == 0)
    p.claim("whenever one asks one is granted", granted.any() == requests.any())
    for k in range(unit.count):
        # While k asks, others are granted between two turns of its own.
        others = Signal(range(unit.count + 1), name=f"others_{k}")
        p.m.d.sync += others.eq(Mux(requests[k] & ~(granted[k] & unit.taken),
                                    others + (unit.taken & granted.any() & (others != unit.count)), 0))
        p.claim(f"client {k} waits for each other client once", others < unit.count)
        p.cover(f"client {k} waits for all others", (others == unit.count - 1) & granted[k])


_TURNS = "hw/stream/round_robin.py"
PROOFS = (
    Proof("skid_buffer", lambda: SkidBuffer(2), quick=True),
    Proof("fifo", lambda: Fifo(2, depth=4), quick=True),
    Proof("fifo_bare", lambda: Fifo(2, depth=4, register=False)),
    Proof("fifo_block", lambda: Fifo(2, depth=4, block=True)),
    Proof("fifo_parted", lambda: Fifo(2, depth=4, block=True, quick=1)),
    Proof("fifo_room", lambda: Fifo(2, depth=8, headroom=3)),
    Proof("turns_2", lambda: _Turns(2), _TURNS, _turns),
    Proof("turns_3", lambda: _Turns(3), _TURNS, _turns, quick=True),
    Proof("turns_4", lambda: _Turns(4), _TURNS, _turns),
)
