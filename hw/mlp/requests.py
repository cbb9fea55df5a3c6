"""Asks a read port for all that a load needs."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import request_layout
from hw.kernel.pieces import PIECE_LOG2

__all__ = ["Requests", "run_layout"]


def run_layout() -> data.StructLayout:
    """What a load reads. run: beats `source` .. `end` - 1; else `less_one` + 1 rows of `beats`, `stride` beats from
    one to the next, the first at `source`."""
    return data.StructLayout({"run": 1, "source": 32, "end": 32, "stride": 32, "beats": 12, "less_one": 28})


class Requests(wiring.Component):
    """Turns runs of beats and rows at a distance into requests.

    Parameters  beat_bytes: of the port
    Members     i     In(stream of run_layout)
                base  In(64)  the buffer's address in bytes
                hold  In  nothing more is asked for
                o     Out(stream of hw.axi.bus.request_layout)
    Shapes      a run is one request, or requests of 2**PIECE_LOG2 beats and the rest; else a row is one
    Timing      3 cycles from a run to its first request; runs of one request every 3 cycles, further requests every 2
    Handshake   i.ready and o from registers
    Reset       forgets everything
    Golden      golden.mlp.loader.Requests          Tests  verif/mlp/test_loader.py
    """

    def __init__(self, *, beat_bytes: int):
        self.beat_bytes = beat_bytes
        super().__init__({
            "i": In(stream.Signature(run_layout())), "base": In(64), "hold": In(1),
            "o": Out(stream.Signature(request_layout())),
        })

    def key(self) -> str:
        return f"Requests({self.beat_bytes})"

    def elaborate(self, platform):
        m = Module()
        new, o = self.i.payload, self.o.payload
        shift = (self.beat_bytes - 1).bit_length()
        piece = 1 << PIECE_LOG2
        now = Signal(run_layout(), reset_less=True)     # of what is left
        left = Signal(32, reset_less=True)              # beats of a run
        size, final = Signal(16, reset_less=True), Signal(reset_less=True)
        long = left[PIECE_LOG2:].any()

        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += now.eq(new)
                m.d.sync += left.eq(new.end - new.source)
                with m.If(self.i.valid):
                    m.next = "SIZE"
            with m.State("SIZE"):
                m.d.sync += size.eq(Mux(now.run, Mux(long, piece, left[:PIECE_LOG2]), now.beats))
                m.d.sync += final.eq(
                    Mux(now.run, ~left[PIECE_LOG2 + 1:].any() & ~(left[PIECE_LOG2] & left[:PIECE_LOG2].any()),
                        now.less_one == 0))
                m.next = "ASK"
            with m.State("ASK"):
                with m.If((~self.o.valid | self.o.ready) & ~self.hold):
                    m.d.sync += [
                        self.o.valid.eq(1),
                        o.beats.eq(size),
                        o.address.eq(self.base + Cat(Const(0, shift), now.source)),
                        now.source.eq(now.source + Mux(now.run, piece, now.stride)),
                        now.less_one.eq(now.less_one - 1),
                        left.eq(left - piece),
                    ]
                    with m.If(final):
                        m.next = "TAKE"
                    with m.Else():
                        m.next = "SIZE"
        return m
