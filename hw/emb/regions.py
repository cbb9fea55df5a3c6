"""Asks the read port for the regions that a program names, piece by piece."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import request_layout

__all__ = ["CLIENTS", "Regions", "region_layout"]

# The clients of the read port, by number.
CLIENTS = ("program", "lengths", "indices", "weights")
PROGRAM = CLIENTS.index("program")


def region_layout() -> data.StructLayout:
    """Beats `begin` .. `end` - 1 of the inputs, or of the program, to be read by a client."""
    return data.StructLayout({"client": 2, "begin": 32, "end": 32})


class Regions(wiring.Component):
    """Turns regions into requests of at most `piece_beats`, each client's in order, the clients in turn.

    Parameters  beat_bytes: of the port; piece_beats: a power of two. Pieces end at its multiples
    Members     i                In(stream of region_layout)  taken when the client's region before has been asked for
                program, inputs  In  byte addresses of the two arenas, multiples of a beat
                o_requests[k]    Out(stream of hw.axi.bus.request_layout)  of each client
    Timing      a piece every 4 cycles, one client's every 16; a region of no beats asks for nothing
    Handshake   a client whose queue is full does not hold the others up
    Reset       forgets all regions
    Raises      ValueError: piece_beats is no power of two
    Golden      golden.emb.front          Tests  verif/emb/test_front.py
    """

    def __init__(self, *, beat_bytes: int, piece_beats: int):
        if type(piece_beats) is not int or piece_beats < 2 or piece_beats & (piece_beats - 1):
            raise ValueError(f"piece_beats must be a power of two of at least 2, not {piece_beats!r}")
        self.beat_bytes, self.piece_beats = beat_bytes, piece_beats
        super().__init__({
            "i": In(stream.Signature(region_layout())),
            "program": In(64),
            "inputs": In(64),
            "o_requests": Out(stream.Signature(request_layout())).array(len(CLIENTS)),
        })

    def key(self) -> str:
        return f"Regions({self.beat_bytes}, {self.piece_beats})"

    def elaborate(self, platform):
        m = Module()
        clients = range(len(CLIENTS))
        bits = (self.piece_beats - 1).bit_length()
        shift = (self.beat_bytes - 1).bit_length()

        stores = {}
        for name in ("begin", "end"):
            store = memory.Memory(shape=32, depth=len(CLIENTS), init=[], attrs={"ram_style": "distributed"})
            m.submodules[f"{name}s"] = store
            stores[name] = store.write_port(), store.read_port(domain="comb")
        busy = Signal(len(CLIENTS))     # a client's region is not all asked for

        # One client at a time: pick, compare, ask, step on.
        turn = Signal(range(len(CLIENTS)))
        step = Signal(2)
        begin, end = Signal(32, reset_less=True), Signal(32, reset_less=True)
        same, some = Signal(reset_less=True), Signal()
        address = Signal(64, reset_less=True)
        beats = Signal(bits + 1, reset_less=True)
        following = Signal(32, reset_less=True)
        valid = Array([port.valid for port in self.o_requests])
        entry, moves = Signal(), Signal()
        # The last step may write a begin itself.
        m.d.comb += self.i.ready.eq(~Array(busy)[self.i.payload.client] & (step != 3))
        m.d.comb += entry.eq(self.i.valid & self.i.ready)
        m.d.comb += moves.eq((step == 3) & some)
        for write, read in stores.values():
            m.d.comb += read.addr.eq(turn)
            m.d.comb += write.addr.eq(Mux(moves, turn, self.i.payload.client))
        m.d.comb += [
            stores["begin"][0].data.eq(Mux(moves, following, self.i.payload.begin)),
            stores["end"][0].data.eq(self.i.payload.end),
            stores["begin"][0].en.eq(entry | moves),
            stores["end"][0].en.eq(entry),
        ]
        base = Mux(turn == PROGRAM, self.program, self.inputs)
        m.d.sync += step.eq(step + 1)
        with m.Switch(step):
            with m.Case(0):
                m.d.sync += begin.eq(stores["begin"][1].data)
                m.d.sync += end.eq(stores["end"][1].data)
                m.d.sync += some.eq(Array(busy)[turn] & ~valid[turn])
            with m.Case(1):
                m.d.sync += same.eq(begin[bits:] == end[bits:])
                m.d.sync += following.eq(Cat(Const(0, bits), begin[bits:] + 1))
                m.d.sync += address.eq(base + Cat(Const(0, shift), begin))
            with m.Case(2):
                m.d.sync += beats.eq(Mux(same, end[:bits], self.piece_beats) - begin[:bits])
            with m.Case(3):
                m.d.sync += turn.eq(turn + 1)
                for at in clients:
                    with m.If(some & (turn == at)):
                        m.d.sync += [
                            self.o_requests[at].payload.address.eq(address),
                            self.o_requests[at].payload.beats.eq(beats),
                            self.o_requests[at].valid.eq(beats != 0),
                            busy[at].eq(~same),
                        ]
        for at in clients:
            with m.If(self.o_requests[at].valid & self.o_requests[at].ready):
                m.d.sync += self.o_requests[at].valid.eq(0)
            with m.If(entry & (self.i.payload.client == at)):
                m.d.sync += busy[at].eq(1)
        return m
