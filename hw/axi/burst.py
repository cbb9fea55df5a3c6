"""Cuts requests into bursts, and follows the beats that bursts bring back."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import block_beats, check_beat_bytes
from hw.stream.fifo import Fifo
from hw.stream.skid_buffer import SkidBuffer


class BurstAddress(data.Struct):
    """What changes from burst to burst on an address channel."""

    addr: 64
    len: 8


def burst_layout(tag_bits: int) -> data.StructLayout:
    """What an engine remembers of a burst. len: beats less one; final: the request's last burst."""
    return data.StructLayout({"len": 8, "final": 1, "tag": tag_bits})


class Splitter(wiring.Component):
    """Cuts runs of beats into the fewest bursts that stay inside a page, one burst per cycle.

    A run from beat a (counted from the start of its block) of n beats ends at beat a + n - 1: the bits above the
    block's say how many more blocks it enters, those below where it ends.        Source: AXI4 (IHI 0022) A3.4.1

    Parameters  beat_bytes: 4 to 64; tag_bits: of what a request carries to its bursts
    Members     i      In(stream)  {address, beats, tag}
                room   In  a burst may be handed out
                emit   Out  `burst` is handed out this cycle
                o      Out(stream)  {addr, len}, for the address channel
                held   Out  a request or burst is inside
                drop   In  forgets what is not handed out and takes all
                burst  Out  of burst_layout
    Timing      latency 3 cycles from i to o; one burst per cycle, so one short request per cycle
    Handshake   i.ready, o.valid and o.payload come from registers
    Reset       drops what it holds
    Golden      the beats of a run, one by one          Tests  verif/axi/test_reader.py
    """

    def __init__(self, *, beat_bytes: int, tag_bits: int = 0):
        check_beat_bytes(beat_bytes)
        self.beat_bytes = beat_bytes
        self.tag_bits = tag_bits
        super().__init__({
            "i": In(stream.Signature(data.StructLayout({"address": 64, "beats": 16, "tag": tag_bits}))),
            "room": In(1),
            "drop": In(1),
            "emit": Out(1),
            "burst": Out(burst_layout(tag_bits)),
            "o": Out(stream.Signature(BurstAddress)),
            "held": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        beat_log2 = (self.beat_bytes - 1).bit_length()
        inside = (block_beats(self.beat_bytes) - 1).bit_length()
        m.submodules.ahead = ahead = SkidBuffer(BurstAddress)
        wiring.connect(m, ahead.o, wiring.flipped(self.o))

        # -- A request as it came.
        taken = Signal()
        at = Signal(64 - beat_log2, reset_less=True)
        less_one = Signal(16, reset_less=True)
        tag = Signal(self.tag_bits, reset_less=True)

        # -- The burst to hand out: it starts at beat `start` of block `page`; the request ends at `end`.
        ready = Signal()
        page = Signal(64 - beat_log2 - inside, reset_less=True)
        start = Signal(inside, reset_less=True)
        end = Signal(17, reset_less=True)
        burst_tag = Signal(self.tag_bits, reset_less=True)
        final = Signal()  # the request ends in this block: end[inside:] == 0, from a register
        through = Signal(17)
        go = Signal()
        load = Signal()
        m.d.comb += [
            through.eq(less_one + at[:inside]),
            go.eq(ready & self.room & ahead.i.ready),
            load.eq(~ready | (go & final)),
            self.i.ready.eq(~taken | load),
        ]
        with m.If(~taken | load):
            m.d.sync += [
                taken.eq(self.i.valid),
                at.eq(self.i.payload.address[beat_log2:]),
                less_one.eq(self.i.payload.beats - 1),
                tag.eq(self.i.payload.tag),
            ]
        with m.If(load):
            m.d.sync += [
                ready.eq(taken),
                start.eq(at[:inside]),
                end.eq(through),
                final.eq(through[inside:] == 0),
                burst_tag.eq(tag),
            ]
        with m.Elif(go):
            m.d.sync += start.eq(0)
            m.d.sync += end[inside:].eq(end[inside:] - 1)
            m.d.sync += final.eq(end[inside:] == 1)
        with m.If(load | go):
            # A selection before the adder, so that they share LUTs.
            m.d.sync += page.eq(Mux(load, at[inside:], page) + ~load)
        with m.If(self.drop):
            m.d.sync += taken.eq(0)
            m.d.sync += ready.eq(0)

        m.d.comb += [
            self.emit.eq(go),
            self.burst.len.eq((end[:inside] | (~final).replicate(inside)) - start),
            self.burst.final.eq(final),
            self.burst.tag.eq(burst_tag),
            ahead.i.valid.eq(go),
            ahead.i.payload.addr.eq(Cat(start, page) << beat_log2),
            ahead.i.payload.len.eq(self.burst.len),
            self.held.eq(taken | ready | ahead.o.valid),
        ]
        return m


class BurstTracker(wiring.Component):
    """Tells of every beat that comes back where it stands in its burst and request, and what is wrong with it.

    Parameters  outstanding: bursts to remember; tag_bits: of a burst's tag
    Members     i      In(stream)  bursts as they are handed out
                beat   In  a beat is taken this cycle
                rlast  In  what the slave says of it
                known  Out  there is a burst for it
                last   Out  it is the request's last
                wrong  Out  rlast is not where the burst ends
                tag    Out  of the burst
                held   Out  beats are missing
    Timing      a burst is known two cycles after it was handed in, at the earliest when its first beat can come
    Reset       forgets all bursts
    Golden      the beats of a run, one by one          Tests  verif/axi/test_reader.py
    """

    def __init__(self, *, outstanding: int, tag_bits: int = 0):
        self.outstanding = outstanding
        self.tag_bits = tag_bits
        super().__init__({
            "i": In(stream.Signature(burst_layout(tag_bits))),
            "beat": In(1),
            "rlast": In(1),
            "known": Out(1),
            "last": Out(1),
            "wrong": Out(1),
            "tag": Out(tag_bits),
            "held": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.bursts = bursts = Fifo(burst_layout(self.tag_bits), depth=self.outstanding)
        wiring.connect(m, wiring.flipped(self.i), bursts.i)
        burst = bursts.o.payload
        position = Signal(8)
        ends = Signal()
        step = Signal()
        m.d.comb += [
            ends.eq(position == burst.len),
            step.eq(self.beat & bursts.o.valid),
            bursts.o.ready.eq(self.beat & ends),
            self.known.eq(bursts.o.valid),
            self.last.eq(ends & burst.final),
            self.wrong.eq(self.rlast ^ ends),
            self.tag.eq(burst.tag),
            self.held.eq(bursts.held),
        ]
        with m.If(step):
            m.d.sync += position.eq(Mux(ends, 0, position + 1))
        return m
