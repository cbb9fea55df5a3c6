"""Rows and vectors on their way to the mailbox: as they are, or in half precision, two beats in one."""

from typing import Any, NamedTuple

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.emb.packer import Packer
from hw.isa.emb import FORMAT
from hw.place import Part, place
from hw.stream.fifo import Fifo

DEPTH = 16                          # beats that wait for the mailbox
HEADROOM = Packer.latency + 3       # of the pipeline, and of what `room` is late


class Narrower(Part):
    """Passes the beats of a mini-batch on, with `half` rounded to binary16, two beats in one.

    o = i, or narrow(v[0]), narrow(v[1]), ... of all values v of a mini-batch, value k in bits 16 k on; what is left of
    its last beat is 0.                       Source: mixed-precision training (Micikevicius et al., ICLR 2018), 3.1

    Parameters  words: FP32 words of a beat
    Members     begin, beats  In  a pulse before the first beat of a mini-batch, and how many it has, 1 or more
                half          In  stands from `begin` until the last beat has left
                i             In(stream of a beat)
                o             Out(stream of a beat)
    Shapes      b beats -> b beats, with `half` ceil(b / 2)
    Timing      in the same cycle; with `half` `latency` cycles behind the second beat of two and the last of all, a
                beat every cycle in and every other cycle out
    Handshake   i.ready and o from registers with `half`, else by wires
    Numerics    golden.fp.narrow: to nearest even, infinity past the largest number; bit-exact
    Reset       drops what is on its way
    Raises      ValueError: words out of range
    Golden      golden.hotline.dispatch.sent          Tests  verif/hotline/test_narrower.py, test_dispatch.py
    """

    latency = Packer.latency + 2

    def __init__(self, *, words: int):
        self.words = words
        self._packer = Packer(words=words)
        beat = stream.Signature(32 * words)
        super().__init__({"begin": In(1), "beats": In(29), "half": In(1), "i": In(beat), "o": Out(beat)})

    def elaborate(self, platform):
        m = Module()
        packer = self._packer
        place(m, platform, "packer", packer)
        m.submodules.queue = queue = Fifo(32 * self.words, depth=DEPTH, headroom=HEADROOM)
        left = Signal(29, reset_less=True)
        last = Signal(reset_less=True)
        odd = Signal()
        takes = Signal()
        m.d.comb += [
            takes.eq(self.half & self.i.valid & queue.room),
            packer.i_valid.eq(takes),
            packer.i.eq(self.i.payload),
            packer.form.format.eq(FORMAT.FLOAT16),
            packer.form.odd.eq(odd),
            packer.form.last.eq(last),
            queue.i.valid.eq(packer.o_valid),
            queue.i.payload.eq(packer.o),
            queue.o.ready.eq(self.half & self.o.ready),
            self.i.ready.eq(Mux(self.half, queue.room, self.o.ready)),
            self.o.valid.eq(Mux(self.half, queue.o.valid, self.i.valid)),
            self.o.payload.eq(Mux(self.half, queue.o.payload, self.i.payload)),
        ]
        with m.If(self.begin):
            m.d.sync += left.eq(self.beats)
            m.d.sync += last.eq(self.beats == 1)
            m.d.sync += odd.eq(0)
        with m.Elif(takes):
            m.d.sync += left.eq(left - 1)
            m.d.sync += last.eq(left == 2)
            m.d.sync += odd.eq(~odd)
        return m


class Narrowed(NamedTuple):
    """What `narrowed` hands on."""

    o: Any
    beats: Signal


def narrowed(m: Module, platform, *, words: int, begin: Value, beats: Value, half: Value, pooled: Value, rows, vectors
             ) -> Narrowed:
    """A Narrower of vectors, or of rows: `o`, its stream, and `beats`, how many come out of it, from the cycle behind
    `begin` on. begin, beats, half: its own; words: of a beat."""
    narrower = Narrower(words=words)
    place(m, platform, "narrower", narrower)
    out_beats = Signal(len(narrower.beats), name="out_beats", reset_less=True)
    m.d.sync += out_beats.eq(Mux(half, beats[1:] + beats[0], beats))
    m.d.comb += [
        narrower.begin.eq(begin),
        narrower.beats.eq(beats),
        narrower.half.eq(half),
        narrower.i.valid.eq(Mux(pooled, vectors.valid, rows.valid)),
        narrower.i.payload.eq(Mux(pooled, vectors.payload, rows.payload)),
        vectors.ready.eq(pooled & narrower.i.ready),
        rows.ready.eq(~pooled & narrower.i.ready),
    ]
    return Narrowed(o=narrower.o, beats=out_beats)
