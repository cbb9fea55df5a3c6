"""Classifies samples as popular or cold."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.hotline.config import HotlineConfig
from hw.hotline.records import sample_layout
from hw.place import Part
from hw.stream.fifo import Fifo


class Classifier(Part):
    """Holds a sample back until all its beats are in, and marks each of them with the sample's class.

    o.cold = any of the sample's i.cold; all else of a beat stays as it is          Source: Hotline §6.1 (classifier)

    Parameters  config: HotlineConfig
    Members     i        In(stream sample)
                o        Out(stream sample)
                popular  Out  a pulse for each sample that is in and of which no beat is cold
                idle     Out  nothing is inside
    Timing      a beat per cycle; 2 cycles from a sample's last beat to its first. A pulse comes a cycle after the
                last beat; `idle` rises a cycle late
    Handshake   i.ready comes from registers; o.ready does not reach it
    Reset       drops everything
    Golden      golden.hotline.classifier          Tests  verif/hotline/test_classifier.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(sample_layout(config))),
            "o": Out(stream.Signature(sample_layout(config))),
            "popular": Out(1),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        # Two of the longest samples: one goes out while the next comes in.
        depth = 2 * config.sample_beats_max
        layout = data.StructLayout({"words": data.ArrayLayout(32, config.words), "first": 1, "last": 1})
        m.submodules.beats = beats = Fifo(layout, depth=depth)
        m.submodules.classes = classes = Fifo(1, depth=depth)
        i, o = self.i, self.o
        # a beat of this sample was cold
        some = Signal()
        taken = Signal()
        cold = i.payload.cold | (some & ~i.payload.first)
        m.d.comb += [
            i.ready.eq(beats.i.ready & classes.i.ready),
            taken.eq(i.valid & i.ready),
            beats.i.valid.eq(taken),
            classes.i.valid.eq(taken & i.payload.last),
            classes.i.payload.eq(cold),
            o.valid.eq(beats.o.valid & classes.o.valid),
            o.payload.cold.eq(classes.o.payload),
            beats.o.ready.eq(classes.o.valid & o.ready),
            classes.o.ready.eq(beats.o.valid & o.ready & beats.o.payload.last),
        ]
        for name in ("words", "first", "last"):
            m.d.comb += beats.i.payload[name].eq(i.payload[name])
            m.d.comb += o.payload[name].eq(beats.o.payload[name])
        with m.If(taken):
            m.d.sync += some.eq(cold)
        m.d.sync += self.popular.eq(taken & i.payload.last & ~cold)
        m.d.sync += self.idle.eq(~(i.valid | beats.held))
        return m
