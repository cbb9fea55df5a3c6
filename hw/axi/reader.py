"""Reads runs of beats in order, as fast as an AXI4 port goes."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.axi.burst import BurstTracker, Splitter
from hw.axi.bus import AXI4, address_constants, check_beat_bytes, read_layout, request_layout
from hw.place import Part


def check_outstanding(outstanding: int) -> None:
    """Raises ValueError unless it is a power of two that the queues can hold."""
    if type(outstanding) is not int or not 2 <= outstanding <= 1024 or outstanding & (outstanding - 1):
        raise ValueError(f"outstanding must be a power of two from 2 to 1024, not {outstanding!r}")


class Reader(Part):
    """One client's read master: requests in, their beats out, in order.

    o = memory[address, address + beats * beat_bytes)                    Source: AXI4 (ARM IHI 0022)

    Parameters  beat_bytes: 4 to 64; outstanding: bursts in flight, a power of two from 2 to 1024
    Members     i_requests  In(stream)  {address, beats}
                o           Out(stream)  {data, error, last}
                bus         Out(AXI4 without the write channels)
                stop        In
                idle        Out  nothing is under way on the bus, inside or at o
                moved       Out  a beat came on the bus
                owes        Out  the bus owes an answer
    Shapes      a request of n beats is n beats of o, the last one marked
    Timing      3 cycles from a request to its address, 1 from the bus to o; an address and a beat per cycle: a memory
                of latency L is kept busy by outstanding >= L bursts of one beat. `idle`, `moved` and `owes` are
                a cycle late
    Handshake   all outputs of the bus come from registers but rready, which follows o.ready by one LUT: who can
                always take a beat ties o.ready to 1 and has a constant. i_requests.ready comes from registers.
                Bursts are INCR of full width, never across 4 KB, of up to 64 beats of 512 bits (256 if narrow)
    Numerics    error: the slave answered SLVERR or DECERR, or rlast was not where the burst ends. The engine
                counts the beats it asked for and goes on; beats that nobody asked for are dropped
    Reset       forgets everything: only for a bus that is reset with it. `stop` ends in a quiet bus: no more
                bursts, requests are taken and dropped, beats under way are taken and dropped; hold it until
                `idle`, after its first cycle. o.valid may fall under `stop`
    Raises      ValueError: beat_bytes or outstanding out of range
    Golden      the memory itself          Tests  verif/axi/test_reader.py
    """

    def __init__(self, *, beat_bytes: int, outstanding: int):
        check_beat_bytes(beat_bytes)
        check_outstanding(outstanding)
        self.beat_bytes = beat_bytes
        self.outstanding = outstanding
        super().__init__({
            "i_requests": In(stream.Signature(request_layout())),
            "o": Out(stream.Signature(read_layout(beat_bytes))),
            "bus": Out(AXI4(8 * beat_bytes, writes=False)),
            "stop": In(1),
            "idle": Out(1),
            "moved": Out(1),
            "owes": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        bus, o = self.bus, self.o
        m.submodules.splitter = splitter = Splitter(beat_bytes=self.beat_bytes)
        m.submodules.tracker = tracker = BurstTracker(outstanding=self.outstanding)
        m.d.comb += [
            splitter.i.payload.address.eq(self.i_requests.payload.address),
            splitter.i.payload.beats.eq(self.i_requests.payload.beats),
            splitter.i.valid.eq(self.i_requests.valid),
            self.i_requests.ready.eq(splitter.i.ready),
            splitter.drop.eq(self.stop),
            splitter.room.eq(tracker.i.ready),
            tracker.i.valid.eq(splitter.emit),
            tracker.i.payload.eq(splitter.burst),
            bus.arvalid.eq(splitter.o.valid),
            splitter.o.ready.eq(bus.arready),
            bus.araddr.eq(splitter.o.payload.addr),
            bus.arlen.eq(splitter.o.payload.len),
            *address_constants("ar", bus, self.beat_bytes),
            bus.rready.eq(~o.valid | o.ready | self.stop),
            tracker.beat.eq(bus.rvalid & bus.rready),
            tracker.rlast.eq(bus.rlast),
        ]
        beat = Signal(read_layout(self.beat_bytes), reset_less=True)
        with m.If(bus.rready):
            m.d.sync += [
                o.valid.eq(bus.rvalid & tracker.known & ~self.stop),
                beat.data.eq(bus.rdata),
                beat.error.eq(bus.rresp[1] | tracker.wrong),
                beat.last.eq(tracker.last),
            ]
        m.d.comb += o.payload.eq(beat)
        m.d.sync += self.moved.eq(bus.rvalid & bus.rready)
        m.d.sync += self.owes.eq(bus.arvalid | tracker.held)
        m.d.sync += self.idle.eq(~(splitter.held | tracker.held | o.valid))
        return m
