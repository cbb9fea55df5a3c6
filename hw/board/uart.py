"""Bytes over a serial line: 8 data bits, no parity, one stop bit, the lowest bit first."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

BITS = 10           # of a byte on the line: start, eight of data, stop
DIVISOR_MIN = 4     # cycles of a bit: sampled within a quarter of its middle


class Received(data.Struct):
    """A byte off the line. error: its stop bit was missing."""

    data: 8
    error: 1


def _check(divisor) -> None:
    if type(divisor) is not int or not DIVISOR_MIN <= divisor < 1 << 16:
        raise ValueError(f"divisor must be from {DIVISOR_MIN} to {(1 << 16) - 1} cycles a bit, not {divisor!r}")


class Receiver(wiring.Component):
    """Takes bytes off a serial line.

    Source: common practice of 8N1, each bit sampled once in its middle

    Parameters  divisor: cycles of a bit
    Members     rx  In  the pin, asynchronous, high when idle
                o   Out(stream)  always ready
    Timing      the byte is there about divisor / 2 + 3 cycles after its stop bit began; a byte each 10 bits
    Handshake   o is valid for a cycle: a line cannot wait
    Numerics    a start bit shorter than half a bit is none, and the next may follow it at once; after a missing stop
                bit the line has to be high again
    Reset       drops the byte under way. What a sender that is not reset with it still sends of that byte may be taken
                for one
    Raises      ValueError: a divisor that no line can be sampled with
    Golden      the bytes sent          Tests  verif/board/test_link.py
    """

    def __init__(self, *, divisor: int):
        _check(divisor)
        self.divisor = divisor
        super().__init__({"rx": In(1), "o": Out(stream.Signature(Received, always_ready=True))})

    def elaborate(self, platform):
        m = Module()
        line = Signal(init=1)
        m.submodules.line = FFSynchronizer(self.rx, line, init=1, reset_less=False)

        wait = Signal(range(self.divisor))
        left = Signal(range(BITS + 1))      # bits still to be sampled, the stop bit last
        byte = Signal(8, reset_less=True)
        idle = Signal(init=1)               # the line was high since the last byte
        m.d.sync += self.o.valid.eq(0)
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Elif(left == 0):
            m.d.sync += idle.eq(line)
            with m.If(idle & ~line):
                m.d.sync += left.eq(BITS)
                m.d.sync += wait.eq(self.divisor // 2 - 1)
                # The line was seen low a cycle ago; the middle of the start bit is half a bit on.
        with m.Else():
            m.d.sync += left.eq(left - 1)
            m.d.sync += wait.eq(self.divisor - 1)
            with m.If(left == BITS):
                with m.If(line):            # a glitch
                    m.d.sync += left.eq(0)
                    m.d.sync += wait.eq(0)
                    m.d.sync += idle.eq(1)
            with m.Elif(left != 1):
                m.d.sync += byte.eq(Cat(byte[1:], line))
            with m.Else():
                m.d.sync += [
                    wait.eq(0),
                    idle.eq(line),
                    self.o.valid.eq(1),
                    self.o.payload.data.eq(byte),
                    self.o.payload.error.eq(~line),
                ]
        return m


class Transmitter(wiring.Component):
    """Puts bytes on a serial line.

    Parameters  divisor: cycles of a bit
    Members     i   In(stream)  bytes
                tx  Out  the pin, from a register, high when idle
    Timing      the start bit begins the cycle after the byte was taken; a byte each 10 bits, without a gap
    Handshake   i.ready comes from registers
    Reset       the line goes high at once
    Raises      ValueError: as Receiver
    Golden      the bytes received          Tests  verif/board/test_link.py
    """

    def __init__(self, *, divisor: int):
        _check(divisor)
        self.divisor = divisor
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        wait = Signal(range(self.divisor))
        left = Signal(range(BITS + 1))
        rest = Signal(BITS - 1, init=(1 << BITS - 1) - 1)
        m.d.comb += self.i.ready.eq((left == 0) | ((left == 1) & (wait == 0)))
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Elif(left != 0):
            m.d.sync += [
                left.eq(left - 1),
                wait.eq(self.divisor - 1),
                self.tx.eq(rest[0]),
                rest.eq(Cat(rest[1:], 1)),
            ]
            with m.If(left == 1):
                m.d.sync += wait.eq(0)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                left.eq(BITS),
                wait.eq(self.divisor - 1),
                self.tx.eq(0),
                rest.eq(Cat(self.i.payload, 1)),
            ]
        return m
