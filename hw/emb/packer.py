"""Hands pooled beats to the writer, as they are or two in one."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.fp.narrow import Narrow
from hw.isa.emb import FORMAT
from hw.place import Part, place


def form_layout() -> data.StructLayout:
    """What a beat is. format: see FORMAT; odd: its number in the vector is; last: the vector ends with it."""
    return data.StructLayout({"format": 2, "odd": 1, "last": 1})


class Packer(Part):
    """Hands pooled beats on, in FP32 as they are, in half precision two of a vector in one.

    o = narrow(v[0]), narrow(v[1]), ..., value k of a vector in bits 16 k on; what is left of its last beat is 0.

    Parameters  words: FP32 words of a beat
    Members     i_valid, i, form  In  a beat and what it is, see `form_layout`; beats of a vector in order
                o_valid, o  Out  a beat for the writer
    Shapes      b beats -> b beats in FP32, ceil(b / 2) in half precision
    Timing      FP32: in the same cycle. Half precision: `latency` cycles behind a vector's odd beats and its last one.
                A beat every cycle; an FP32 beat comes more than `latency` cycles behind one in half precision
    Handshake   none: it never stalls
    Numerics    golden.fp.fp32, or golden.fp.narrow: bit-exact
    Reset       drops beats on their way
    Raises      ValueError: words out of range
    Golden      golden.emb.packer.pack          Tests  verif/emb/test_packer.py
    """

    latency = Narrow.latency

    def __init__(self, *, words: int):
        if type(words) is not int or not 1 <= words <= 64:
            raise ValueError(f"words is {words!r}, must be a whole number from 1 to 64")
        self.words = words
        super().__init__({
            "i_valid": In(1),
            "i": In(data.ArrayLayout(32, words)),
            "form": In(form_layout()),
            "o_valid": Out(1),
            "o": Out(32 * words),
        })

    def elaborate(self, platform):
        m = Module()
        is_half = Signal()
        m.d.comb += is_half.eq(self.form.format != FORMAT.FLOAT32)
        codes = []
        for k in range(self.words):
            lane = Narrow()
            place(m, platform, f"narrow{k}", lane)
            m.d.comb += lane.word.eq(self.i[k])
            m.d.comb += lane.brain.eq(self.form.format == FORMAT.BFLOAT16)
            codes.append(lane.o)

        coming, odd, last = (Signal(self.latency, name=name) for name in ("coming", "odd", "last"))
        m.d.sync += coming.eq(Cat(self.i_valid & is_half, coming))
        m.d.sync += odd.eq(Cat(self.form.odd, odd))
        m.d.sync += last.eq(Cat(self.form.last, last))
        beat = Cat(*codes)
        before = Signal(16 * self.words, reset_less=True)
        with m.If(coming[-1]):
            m.d.sync += before.eq(beat)
        whole = Signal()
        m.d.comb += whole.eq(coming[-1] & (odd[-1] | last[-1]))
        m.d.comb += self.o_valid.eq(whole | (self.i_valid & ~is_half))
        m.d.comb += self.o.eq(Mux(coming[-1], Mux(odd[-1], Cat(before, beat), beat), self.i.as_value()))
        return m
