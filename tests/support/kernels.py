"""A small kernel for tests of the card: copies, follows a ring, reads at random, and breaks rules on request."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.axi.bus import AXI4, AXI4Lite, attach
from hw.axi.control import ControlSlave
from hw.axi.writer import WritePort
from hw.isa import Argument, Kernel, Register

COPY, RING, SCATTER, HANG = 0, 1, 2, 3
# Rules that the copy breaks, by the number in `wrong`.
WRONG = ("nothing", "valid_fell", "payload_changed", "strobe", "wlast", "burst_type", "burst_size", "crosses_4k",
         "write_payload")
CHUNK = 64  # beats

KERNEL = Kernel(
    name="trial", about="Copies.",
    arguments=(
        Argument("source", "pointer", "m00", "what is copied; the ring"),
        Argument("beats", "scalar", "", "how many, a multiple of 64 but for SCATTER"),
        Argument("target", "pointer", "m00", "where to"),
        Argument("mode", "scalar", "", "COPY, RING, SCATTER, HANG"),
        Argument("wrong", "scalar", "", "the rule to break"),
        Argument("progress", "pointer", "m00", "a beat whose first word is the ring position read so far"),
        Argument("doorbell", "pointer", "m00", "a beat whose first word is the filled ring position"),
        Argument("ring_beats", "scalar", "", "a power of two"),
        Argument("mask", "scalar", "", "SCATTER: lines to choose from, less one"),
    ),
    registers=(Register("abort", "write", "stops"), Register("status", "read", "beats so far")),
    words=1, fields=(), instructions=(), modes=(), devices=(), states=(), codes=(), result_words=1, final_words=0,
    result=(),
)


class TrialKernel(wiring.Component):
    """m00_axi: 128 bits, one burst at a time; m01_axi: 512 bits, a line in each cycle from a counter's hash."""

    __test__ = False
    kernel = KERNEL

    def __init__(self, interrupt=True, extra=False, kernel=True):
        self.extra = extra
        super().__init__({
            "s_axi_control": In(AXI4Lite(12)),
            "m00_axi": Out(AXI4(128)),
            "m01_axi": Out(AXI4(512, writes=False)),
            **({"interrupt": Out(1)} if interrupt else {}),
            **({"debug": Out(1)} if extra else {}),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.control = control = ControlSlave(kernel=KERNEL)
        connect(m, flipped(self.s_axi_control), control.bus)
        if hasattr(self, "interrupt"):
            m.d.comb += self.interrupt.eq(control.interrupt)
        a, p = control.arguments, self.m00_axi
        # The hash stands in the address from the second reset on, so that only registers feed the masters.
        position, left = Signal(32), Signal(32)
        m.d.comb += control.status.eq(position)
        m.submodules.buffer = buffer = Memory(shape=128, depth=CHUNK, init=[])
        write, read = buffer.write_port(), buffer.read_port(domain="comb")
        at, one, bell = Signal(7), Signal(), Signal()
        stop = Signal()
        wrong = a.wrong
        with m.If(control.abort):
            m.d.sync += stop.eq(1)
        offset = Signal(64)
        m.d.comb += offset.eq(Cat(Signal(4), position))
        last = Signal()
        m.d.comb += [
            last.eq(Mux(one, at == 0, at == CHUNK - 1)),
            write.addr.eq(at), write.data.eq(p.rdata), write.en.eq(p.rvalid & p.rready & ~bell),
            read.addr.eq(at),
            p.arsize.eq(4), p.arburst.eq(1), p.awsize.eq(Mux(wrong == 6, 3, 4)), p.awburst.eq(Mux(wrong == 5, 0, 1)),
            p.wdata.eq(Mux(one, position, read.data)), p.wstrb.eq(Mux(wrong == 3, 0x7FFF, 0xFFFF)),
            p.wlast.eq(Mux(wrong == 4, at == 3, last)),
        ]
        tick = Signal(8)
        m.d.sync += tick.eq(tick + 1)
        broken = Signal()
        # Words that change while they wait, and a request that is taken back, need a ready that stays low.
        with m.If((wrong == 8) & p.wvalid):
            m.d.comb += p.wdata.eq(read.data ^ tick)
        with m.FSM():
            with m.State("idle"):
                with m.If(control.start):
                    m.d.sync += [position.eq(0), left.eq(a.beats), stop.eq(0), at.eq(0), broken.eq(0)]
                    with m.Switch(a.mode):
                        with m.Case(COPY):
                            m.next = "ask"
                        with m.Case(RING):
                            m.next = "bell"
                        with m.Case(SCATTER):
                            m.next = "scatter"
                        with m.Case(HANG):
                            m.next = "hang"
            with m.State("ask"):
                m.d.sync += [
                    p.arvalid.eq(1), p.arlen.eq(CHUNK - 1), one.eq(0), bell.eq(0),
                    p.araddr.eq(a.source + Mux(a.mode == RING, Cat(Signal(4), position & (a.ring_beats - 1)), offset)
                                + Mux(wrong == 7, 4096 - 512, 0)),
                ]
                m.next = "asked"
            with m.State("bell"):
                m.d.sync += [p.arvalid.eq(1), p.arlen.eq(0), p.araddr.eq(a.doorbell), one.eq(1), bell.eq(1)]
                m.next = "asked"
            with m.State("asked"):
                with m.If(p.arvalid & p.arready):
                    m.d.sync += [p.arvalid.eq(0), p.rready.eq(1), at.eq(0)]
                    m.next = "read"
                with m.Elif(~broken & (wrong == 1)):
                    m.d.sync += [p.arvalid.eq(0), broken.eq(1)]
                    m.next = "ask"
                with m.Elif(~broken & (wrong == 2)):
                    m.d.sync += [p.araddr.eq(p.araddr ^ 1024), broken.eq(1)]
            with m.State("read"):
                with m.If(p.rvalid):
                    m.d.sync += at.eq(at + 1)
                    with m.If(bell & (p.rdata[:30] - position[:30] >= CHUNK) & (p.rdata[:30] != position[:30])
                              & ~(p.rdata[:30] - position[:30])[29]):
                        m.d.sync += bell.eq(0)
                    with m.If(p.rlast):
                        m.d.sync += [p.rready.eq(0), at.eq(0)]
                        with m.If(~one):
                            m.d.sync += [p.awvalid.eq(1), p.awlen.eq(CHUNK - 1), p.awaddr.eq(a.target + offset)]
                            m.next = "address"
                        with m.Else():
                            m.next = "heard"
            with m.State("heard"):
                with m.If(stop):
                    m.next = "done"
                with m.Elif(bell):
                    m.next = "bell"
                with m.Else():
                    m.next = "ask"
            with m.State("address"):
                with m.If(p.awready):
                    m.d.sync += [p.awvalid.eq(0), p.wvalid.eq(1), at.eq(0)]
                    m.next = "write"
            with m.State("write"):
                with m.If(p.wready):
                    m.d.sync += at.eq(at + 1)
                    with m.If(last):
                        m.d.sync += [p.wvalid.eq(0), p.bready.eq(1)]
                        m.next = "answer"
            with m.State("answer"):
                with m.If(p.bvalid):
                    m.d.sync += [p.bready.eq(0), at.eq(0)]
                    with m.If(one):
                        m.next = "next"
                    with m.Else():
                        m.d.sync += [position.eq(position + CHUNK), left.eq(left - CHUNK)]
                        m.next = "moved"
            with m.State("moved"):
                with m.If(a.mode == RING):
                    m.d.sync += [one.eq(1), p.awvalid.eq(1), p.awlen.eq(0), p.awaddr.eq(a.progress)]
                    m.next = "address"
                with m.Else():
                    m.next = "next"
            with m.State("next"):
                with m.If((left == 0) | stop):
                    m.next = "done"
                with m.Elif(a.mode == RING):
                    m.next = "bell"
                with m.Else():
                    m.next = "ask"
            with m.State("scatter"):
                with m.If(position == a.beats):
                    m.next = "done"
            with m.State("hang"):
                with m.If(stop):
                    m.next = "done"
            with m.State("done"):
                m.d.comb += control.done.eq(1)
                m.next = "idle"

        # The scattered reads: address n is a hash of n, as many under way as the memory takes.
        q, asked, sum_ = self.m01_axi, Signal(32), Signal(32)
        state = Signal(32, init=1)
        following = Signal(32)
        m.d.comb += [
            following.eq(state ^ (state << 13)),
            q.arsize.eq(6), q.arburst.eq(1), q.rready.eq(1),
        ]
        shuffled = Signal(32)
        m.d.comb += shuffled.eq(following ^ (following >> 17))
        with m.If((a.mode == SCATTER) & (asked != a.beats) & (~q.arvalid | q.arready) & (left != 0)):
            m.d.sync += [
                q.arvalid.eq(1), q.araddr.eq(a.source + Cat(Signal(6), (state & a.mask))), asked.eq(asked + 1),
                state.eq(shuffled ^ (shuffled << 5)),
            ]
        with m.Elif(q.arready):
            m.d.sync += q.arvalid.eq(0)
        with m.If(control.start):
            m.d.sync += [asked.eq(0), state.eq(0x2545F491), sum_.eq(0)]
        with m.If(q.rvalid):
            m.d.sync += [sum_.eq(sum_ + q.rdata[:32]), position.eq(position + 1)]
        return m


class WritingKernel(wiring.Component):
    """m00_axi: 512 bits, writes `beats` lines from `target` on, each in a burst of its own."""

    __test__ = False
    kernel = KERNEL

    def __init__(self):
        super().__init__({"s_axi_control": In(AXI4Lite(12)), "m00_axi": Out(AXI4(512)), "interrupt": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.control = control = ControlSlave(kernel=KERNEL)
        m.submodules.writes = writes = WritePort(beat_bytes=64, clients=(64,), outstanding=128)
        connect(m, flipped(self.s_axi_control), control.bus)
        attach(m, self.m00_axi, writer=writes.bus)
        arguments, request, beat = control.arguments, writes.i_requests[0], writes.i_data[0]
        asked, given, done = Signal(32), Signal(32), Signal(32)
        running = Signal()
        m.d.comb += [
            self.interrupt.eq(control.interrupt), control.status.eq(done),
            request.valid.eq(running & (asked != arguments.beats)), request.payload.beats.eq(1),
            request.payload.address.eq(arguments.target + Cat(Signal(6), asked)),
            beat.valid.eq(running & (given != arguments.beats)), beat.payload.data.eq(given),
            control.done.eq(running & (done == arguments.beats)),
        ]
        m.d.sync += [
            asked.eq(asked + (request.valid & request.ready)), given.eq(given + (beat.valid & beat.ready)),
            done.eq(done + writes.done[0]),
        ]
        with m.If(control.start):
            m.d.sync += [running.eq(1), asked.eq(0), given.eq(0), done.eq(0)]
        with m.Elif(control.done):
            m.d.sync += running.eq(0)
        return m


def scattered(beats, mask):
    """The lines that SCATTER reads, in order."""
    state, lines = 0x2545F491, []
    for _ in range(beats):
        lines.append(state & mask)
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
    return lines
