"""Of the board's serial line, and of the link behind it."""

from amaranth.hdl import Module, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

import hw.board.link
from hw.board.link import Link
from hw.board.uart import DIVISOR_MIN, Received, Receiver, Transmitter
from verif.formal.properties import Followed, Properties, counter, properties, since, stable
from verif.formal.prove import Proof


class _Line(wiring.Component):
    """A transmitter and a receiver, reset together."""

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(Received, always_ready=True))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.transmitter = transmitter = Transmitter(divisor=DIVISOR_MIN)
        m.submodules.receiver = receiver = Receiver(divisor=DIVISOR_MIN)
        wiring.connect(m, wiring.flipped(self.i), transmitter.i)
        wiring.connect(m, receiver.o, wiring.flipped(self.o))
        m.d.comb += receiver.rx.eq(transmitter.tx)
        return m


def _line(p: Properties, unit: _Line) -> None:
    byte = Followed(p, "byte", unit.i.valid & unit.i.ready, unit.o.valid, unit.i.payload, most=2)
    came = Value.cast(unit.o.payload)[:8]
    p.claim("a byte arrives as it was sent", ~(byte.here & unit.o.valid) | (came == byte.payload))
    p.claim("no byte arrives that was not sent", ~unit.o.valid | (byte.inside != 0))
    p.claim("no stop bit is missing", ~unit.o.valid | ~unit.o.payload.error)
    p.claim("no more than two bytes are on the way", byte.inside <= 2)
    p.cover("a byte arrives", byte.here & unit.o.valid)


@properties(Link)
def _link(p: Properties, unit: Link) -> None:
    bus = unit.bus
    written, read = bus.bvalid & bus.bready, bus.rvalid & bus.rready
    addresses = counter(p, "addresses_written", bus.awvalid & bus.awready, written, most=2)
    words = counter(p, "words_written", bus.wvalid & bus.wready, written, most=2)
    asked = counter(p, "addresses_read", bus.arvalid & bus.arready, read, most=2)
    p.assume(~bus.bvalid | ((addresses != 0) & (words != 0)))
    p.assume(~bus.rvalid | (asked != 0))
    p.claim("an address to write waits unchanged", stable(p, bus.awvalid, bus.awready, bus.awaddr))
    p.claim("a word waits unchanged", stable(p, bus.wvalid, bus.wready, bus.wdata, bus.wstrb))
    p.claim("an address to read waits unchanged", stable(p, bus.arvalid, bus.arready, bus.araddr))
    p.claim("a byte to send waits unchanged", stable(p, unit.o))
    p.claim("one write at a time", ~bus.awvalid | (addresses == 0))
    p.claim("a word for each address", ~bus.wvalid | (words == 0))
    p.claim("one read at a time", ~bus.arvalid | (asked == 0))
    p.claim("reads and writes are not mixed", ~(bus.arvalid | (asked != 0))
            | ~(bus.awvalid | bus.wvalid | (addresses != 0) | (words != 0)))
    p.claim("it is busy while an access is under way", unit.busy | ~(bus.awvalid | bus.wvalid | bus.arvalid))
    p.cover("a second write", bus.awvalid & since(p, written))
    p.cover("a second read", bus.arvalid & since(p, read))
    p.cover("a reply is refused", unit.refused & unit.o.valid)


PROOFS = (
    Proof("uart", _Line, "hw/board/uart.py", _line),
    Proof("link", lambda: Link(gap_cycles=2), constants=((hw.board.link, "WORDS_MAX", 4),)),
)
