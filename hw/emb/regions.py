"""Asks the read port for the regions that a program names."""

from amaranth.hdl import Array, Cat, Const, Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import request_layout
from hw.axi.requester import request_beats
from hw.place import Part

# The clients of the read port, by number.
CLIENTS = ("program", "lengths", "indices", "weights")
READERS = CLIENTS[1:]     # of what the instructions name


def region_layout() -> data.StructLayout:
    """Beats `begin` .. `end` - 1 of the inputs, to be read by a client, by its number in READERS."""
    return data.StructLayout({"client": 2, "begin": 32, "end": 32})


class Regions(Part):
    """Turns regions into requests, each client's in order, all clients at once.

    Parameters  beat_bytes: of the port
    Members     i                In(stream of region_layout)  taken when the client's region before has been asked for
                inputs           In  their byte address, a multiple of a beat
                o_requests[k]    Out(stream of hw.axi.bus.request_layout)  of each of READERS
    Timing      2 cycles from a region to its first request, then one per cycle; a region of no beats asks for nothing
    Handshake   a client whose queue is full does not hold the others up
    Reset       forgets all regions
    Golden      golden.emb.tokens, verif.bench.parts.Requester
    Tests       verif/emb/test_front.py, test_front_faults.py
    """

    def __init__(self, *, beat_bytes: int):
        self.beat_bytes = beat_bytes
        super().__init__({
            "i": In(stream.Signature(region_layout())),
            "inputs": In(64),
            "o_requests": Out(stream.Signature(request_layout())).array(len(READERS)),
        })

    def elaborate(self, platform):
        m = Module()
        region, shift = self.i.payload, (self.beat_bytes - 1).bit_length()
        address = Signal(64)
        span = Signal(32)
        m.d.comb += address.eq(self.inputs + Cat(Const(0, shift), region.begin))
        m.d.comb += span.eq(region.end - region.begin)
        entry = self.i.valid & self.i.ready
        asking = [request_beats(m, port, start=entry & (region.client == at), address=address, span=span,
                                beat_bytes=self.beat_bytes, name=READERS[at])
                  for at, port in enumerate(self.o_requests)]
        m.d.comb += self.i.ready.eq(~Array(asking)[region.client])
        return m
