"""Of the board's serial line."""

from amaranth.hdl import Module, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.board.uart import DIVISOR_MIN, Received, Receiver, Transmitter
from verif.formal.properties import Followed, Properties
from verif.formal.prove import Proof

__all__ = ["PROOFS"]


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


PROOFS = (Proof("uart", _Line, "hw/board/uart.py", _line),)
