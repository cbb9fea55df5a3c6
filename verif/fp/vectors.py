"""Millions of vectors through an arithmetic unit, a record a cycle, played by C++ (gen.rtl.play). Python makes the
vectors and judges the results.

cocotb, which handles a cycle in Python, would take a day for what takes a minute here.
"""
import os
from collections.abc import Callable
from itertools import product

import numpy as np
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gen.rtl import play, verilog
from gen.rtl.play import Phase
from hw.fp.dot import FusedDot
from hw.fp.group import GROUP, Aligner, Narrow, alone, narrowed, skewed
from hw.fp.group_dot import SUBS, GroupDot
from hw.fp.operand import Operand, delay, unpack
from hw.fp.regroup import UNUSED_BITS, Regroup
from hw.fp.rounder import Rounder
from hw.place import place
from hw.tt.grid import JointExponent
from verif.bench.runner import seeds

CELLS = 4       # of a GroupLane


class Lanes(wiring.Component):
    """Equal two-operand units side by side: i = x0, y0, x1, y1, ...; o = o0, o1, ..., 32 bits each."""

    def __init__(self, make, lanes: int):
        self._units = [make() for _ in range(lanes)]
        self.latency = self._units[0].latency
        super().__init__({"i": In(64 * lanes), "o": Out(32 * lanes)})

    def elaborate(self, platform):
        m = Module()
        for k, unit in enumerate(self._units):
            place(m, platform, f"unit{k}", unit)
            m.d.comb += [
                unit.x.eq(self.i[64 * k:64 * k + 32]),
                unit.y.eq(self.i[64 * k + 32:64 * k + 64]),
                self.o[32 * k:32 * k + 32].eq(unit.o),
            ]
        return m


class DotLane(wiring.Component):
    """A FusedDot behind `unpack` and, where groups share an exponent, `Aligner`s: i = control, x words, y words.

    Control: first in bit 0, combine in bits 1 and 2; bit 8 + k makes x[k] padding, bit 24 + k (k below 8) y[k].
    """

    def __init__(self, **parameters):
        self._dot = FusedDot(**parameters)
        self._terms = self._dot.width * self._dot.subs
        self.latency = self._dot.latency + (Aligner.latency if self._dot.grouped else 0)
        super().__init__({"i": In(32 * (1 + 2 * self._terms)), "o": Out(32 * self._dot.subs)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dot = dot = self._dot
        words = [self.i[32 * k:32 * k + 32] for k in range(1 + 2 * self._terms)]
        x, y = (Signal(data.ArrayLayout(Operand, self._terms), name=name) for name in ("x", "y"))
        control = words[0][:3]
        if dot.grouped:
            control = delay(m, "control", control, Aligner.latency)
        m.d.comb += [dot.first.eq(control[0]), dot.combine.eq(control[1:3]),
                     self.o.eq(Cat(*(dot.o[s] for s in range(dot.subs))))]
        for k in range(self._terms):
            m.d.comb += [x[k].eq(unpack(words[1 + k])), y[k].eq(unpack(words[1 + self._terms + k]))]
            with m.If(words[0][8 + k]):
                m.d.comb += [x[k].zero.eq(1), x[k].special.eq(1)]
            if k < 8:
                with m.If(words[0][24 + k]):
                    m.d.comb += [y[k].zero.eq(1), y[k].special.eq(1)]
        for name, given, to in (("x", x, dot.x), ("y", y, dot.y)):
            if not dot.grouped:
                m.d.comb += to.eq(given)
                continue
            for s in range(dot.subs):
                place(m, platform, f"{name}_{s}", aligner := Aligner())
                at = GROUP * s + 1 + (self._terms if name == "y" else 0)
                mine = [given[GROUP * s + w] for w in range(GROUP)]
                m.d.comb += aligner.i.eq(Cat(words[at:at + GROUP]))
                m.d.comb += aligner.padding.eq(Cat(operand.zero & operand.special for operand in mine))
                m.d.comb += to[s].eq(skewed(m, f"{name}_{s}", aligner.o))
        return m


class GroupLane(wiring.Component):
    """Four GroupDots with the same x behind `Aligner`s, before `Rounder`s and `Regroup`s.

    i = control, padding, 16 words of x, 4 times 16 of y; o = words (cell, sub), groups (sub) of the cells' sums.
    Control: first in bit 0, combine in 1 and 2, share in 3 and 4. Padding: of x in the lower half, of y in the upper.
    """

    def __init__(self, **parameters):
        self._dots = [GroupDot(**parameters) for _ in range(CELLS)]
        self.latency = Aligner.latency + self._dots[0].latency + Rounder.latency
        assert Rounder.latency == Regroup.latency
        super().__init__({"i": In(32 * (2 + (1 + CELLS) * GROUP * SUBS)), "o": Out(32 * (CELLS + GROUP) * SUBS)})

    def elaborate(self, platform):
        m = Module()
        control = delay(m, "control", self.i[:5], Aligner.latency)
        size = 32 * GROUP
        operands = self.i[64:]

        def aligned(name: str, words, padding):
            """The groups of SUBS times four words."""
            for s in range(SUBS):
                place(m, platform, f"{name}_{s}", aligner := Aligner())
                m.d.comb += aligner.i.eq(words.word_select(s, size))
                m.d.comb += aligner.padding.eq(padding.word_select(s, GROUP))
                yield aligner.o

        x = list(aligned("x", operands[:size * SUBS], self.i[32:48]))
        if self._dots[0].narrow:
            x = [data.View(Narrow, narrowed(alone(group))) for group in x]
        x = [skewed(m, f"x_{s}_skewed", group) for s, group in enumerate(x)]
        for c, dot in enumerate(self._dots):
            place(m, platform, f"dot_{c}", dot)
            y = aligned(f"y_{c}", operands[size * SUBS * (c + 1):][:size * SUBS], self.i[48:64])
            m.d.comb += [dot.x[s].eq(group) for s, group in enumerate(x)]
            m.d.comb += [dot.y[s].eq(skewed(m, f"y_{c}_{s}_skewed", group)) for s, group in enumerate(y)]
            m.d.comb += Cat(dot.first, dot.combine, dot.share).eq(control)
        words = []
        for c, s in product(range(CELLS), range(SUBS)):
            place(m, platform, f"rounder_{c}_{s}", rounder := Rounder(width=self._dots[0].width))
            m.d.comb += rounder.i.eq(self._dots[c].o[s])
            words.append(rounder.o)
        groups = []
        for s in range(SUBS):
            m.submodules[f"joint_{s}"] = joint = JointExponent()
            place(m, platform, f"regroup_{s}", regroup := Regroup(width=self._dots[0].width - UNUSED_BITS))
            # One of the two is as good as the other.
            m.d.comb += joint.second.eq(s % 2)
            m.d.comb += regroup.i.top.eq(self._dots[0].o[s].top)
            for c, dot in enumerate(self._dots):
                m.d.comb += joint.i[s % 2][c].eq(dot.peaks[s])
                m.d.comb += [shared[s].eq(joint.o) for shared in dot.shared]
                m.d.comb += regroup.i.bits[c].eq(dot.o[s].bits[UNUSED_BITS:])
                m.d.comb += regroup.i.kinds[c].eq(dot.o[s].kinds)
            groups.append(regroup.o)
        m.d.comb += self.o.eq(Cat(words, groups))
        return m


class Runner:
    """A built model of a component with ports `i` and `o` and a constant `latency`.

    translated: makes other Verilog with the same top, `vectors`, of the component's: a netlist, for instance;
    by default its registers begin at random. Long campaigns are worth the compiler's optimisation.
    """

    def __init__(self, component: wiring.Component, name: str,
                 translated: Callable[[dict[str, str]], dict[str, str]] | None = None):
        self.latency = component.latency
        texts, metadata = verilog.convert(component, "vectors")
        metadata["streams"] = [{"name": "i", "direction": "in"}, {"name": "o", "direction": "out"}]
        self._player = play.build_texts(
            texts if translated is None else translated(texts), metadata, f"vectors_{name}", random=translated is None,
            opt="-O1" if os.environ.get("HOTRAIL_REGRESS") else "-O0")

    def __call__(self, records: np.ndarray) -> np.ndarray:
        """uint32 (N, words of i) -> uint32 (N, words of o)"""
        given = np.ascontiguousarray(records, np.uint32).view(np.uint8)
        # The last results are flushed out with the last record standing.
        done = self._player.play([Phase({"i": given}, rest=self.latency)], cycles=len(given) + self.latency,
                                 seed=1 + seeds()[0] % (2**31 - 1))
        return np.ascontiguousarray(done.beats["o"][self.latency:]).view(np.uint32)
