"""A kernel of the shipping core's AXI engines alone: streams from card memory and to it."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import AXI4, AXI4Lite, attach
from hw.axi.control import ControlSlave
from hw.axi.reader import Reader
from hw.axi.writer import WritePort
from hw.isa import Argument, Kernel, Register

READ, READ_OTHER, WRITE = 1, 2, 4      # streams of a run, to be added up
BEAT_BYTES, BLOCK = 64, 64              # BLOCK: beats of a request to the write port

KERNEL = Kernel(
    name="streams", about="Streams.",
    arguments=(
        Argument("source", "pointer", "m00", "what is read"),
        Argument("other", "pointer", "m01", "what is read beside it"),
        Argument("target", "pointer", "m00", "what is written"),
        Argument("beats", "scalar", "", "of each stream, a multiple of 64 below 65,536"),
        Argument("streams", "scalar", "", "READ + READ_OTHER + WRITE"),
    ),
    registers=(Register("abort", "write", "nothing"), Register("status", "read", "beats read from source so far")),
    words=1, fields=(), instructions=(), modes=(), devices=(), states=(), codes=(), result_words=1, final_words=0,
    result=(),
)


class Streams(wiring.Component):
    """Each stream is asked for at the start, and taken or given as fast as its port goes."""

    kernel = KERNEL

    def __init__(self, *, reads_in_flight: int, writes_in_flight: int, output_beats: int):
        self.readers = [Reader(beat_bytes=BEAT_BYTES, outstanding=reads_in_flight) for _ in range(2)]
        self.writer = WritePort(beat_bytes=BEAT_BYTES, outstanding=writes_in_flight, clients=(output_beats,))
        super().__init__({
            "s_axi_control": In(AXI4Lite(12)),
            "m00_axi": Out(AXI4(8 * BEAT_BYTES)),
            "m01_axi": Out(AXI4(8 * BEAT_BYTES)),
            "interrupt": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.control = control = ControlSlave(kernel=KERNEL)
        m.submodules.writer = writer = self.writer
        wiring.connect(m, wiring.flipped(self.s_axi_control), control.bus)
        attach(m, self.m00_axi, reader=self.readers[0].bus, writer=writer.bus)
        attach(m, self.m01_axi, reader=self.readers[1].bus)
        m.d.comb += self.interrupt.eq(control.interrupt)
        given, running = control.arguments, Signal()
        left = [self._read(m, reader, control, address, given.streams[number])
                for number, (reader, address) in enumerate(zip(self.readers, (given.source, given.other)))]
        left.append(self._write(m, writer, control))
        m.d.comb += control.status.eq(given.beats - left[0])
        m.d.comb += control.done.eq(running & (Cat(left) == 0))
        m.d.sync += running.eq(control.start | running & ~control.done)
        return m

    def _read(self, m: Module, reader: Reader, control: ControlSlave, address, wanted) -> Signal:
        m.submodules += reader
        left, asks = Signal(32), Signal()
        m.d.comb += [
            reader.i_requests.valid.eq(asks),
            reader.i_requests.payload.address.eq(address),
            reader.i_requests.payload.beats.eq(control.arguments.beats),
            reader.o.ready.eq(1),
        ]
        with m.If(control.start & wanted):
            m.d.sync += left.eq(control.arguments.beats)
            m.d.sync += asks.eq(1)
        with m.Else():
            m.d.sync += left.eq(left - reader.o.valid)
            m.d.sync += asks.eq(asks & ~reader.i_requests.ready)
        return left

    def _write(self, m: Module, writer: WritePort, control: ControlSlave) -> Signal:
        """Beats that are not answered yet; what is written does not matter."""
        left, unasked, ungiven = Signal(32), Signal(32), Signal(32)
        requests, beats = writer.i_requests[0], writer.i_data[0]
        m.d.comb += [
            requests.valid.eq(unasked != 0),
            requests.payload.address.eq(control.arguments.target + (control.arguments.beats - unasked) * BEAT_BYTES),
            requests.payload.beats.eq(BLOCK),
            beats.valid.eq(ungiven != 0),
            beats.payload.data.eq(ungiven),
        ]
        with m.If(control.start & control.arguments.streams[2]):
            m.d.sync += [counter.eq(control.arguments.beats) for counter in (left, unasked, ungiven)]
        with m.Else():
            m.d.sync += left.eq(left - BLOCK * writer.done[0])
            m.d.sync += unasked.eq(unasked - BLOCK * (requests.valid & requests.ready))
            m.d.sync += ungiven.eq(ungiven - (beats.valid & beats.ready))
        return left
