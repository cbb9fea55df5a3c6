"""Asks a read port for all that a load needs."""

from amaranth.hdl import Cat, Const, Module, Mux
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import request_layout
from hw.axi.requester import request_beats
from hw.place import Part


class Fetch(data.Struct):
    """What a load reads. run: beats `source` .. `end` - 1; else `less_one` + 1 rows of `beats`, `stride` beats from
    one to the next, the first at `source`."""

    run: 1
    source: 32
    end: 32
    stride: 32
    beats: 12
    less_one: 28


class Requests(Part):
    """Turns runs of beats and rows at a distance into requests.

    Parameters  beat_bytes: of the port
    Members     i     In(stream of Fetch)
                base  In(64)  the buffer's address in bytes
                hold  In  nothing more is asked for
                o     Out(stream of hw.axi.bus.request_layout)
    Shapes      a run is one request, or hw.axi.requester's longest ones and the rest; else a row is one
    Timing      2 cycles from a run to its first request, then one per cycle; runs of one request every 2 cycles
    Handshake   i.ready and o from registers
    Reset       forgets everything
    Golden      verif.bench.parts.Requester          Tests  verif/mlp/test_loader.py
    """

    def __init__(self, *, beat_bytes: int):
        self.beat_bytes = beat_bytes
        super().__init__({
            "i": In(stream.Signature(Fetch)), "base": In(64), "hold": In(1),
            "o": Out(stream.Signature(request_layout())),
        })

    def elaborate(self, platform):
        m = Module()
        new = self.i.payload
        shift = (self.beat_bytes - 1).bit_length()
        asking = request_beats(
            m, self.o, start=self.i.valid & self.i.ready, address=self.base + Cat(Const(0, shift), new.source),
            span=Mux(new.run, (new.end - new.source)[:32], new.beats), rows=(Mux(new.run, 0, new.less_one), new.stride),
            hold=self.hold, beat_bytes=self.beat_bytes)
        m.d.comb += self.i.ready.eq(~asking)
        return m
