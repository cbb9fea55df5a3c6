"""The pictures drawn from the hardware: they show what is there, and those of the documentation are today's."""

import pytest
from amaranth.hdl import Module, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from gen.rtl import waveform
from gen.rtl.hierarchy import Block, Flow, diagram
from hotrail.report import blocks, waves
from hotrail.report.pictures import FOLDER, PICTURES
from hw.stream.skid_buffer import SkidBuffer

LONG = ("blocks-emb", "blocks-mlp", "blocks-hotline")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.turns(1) if name in LONG else ())
                                  for name in PICTURES])
def test_the_documentation_has_todays(name):
    assert (FOLDER / f"{name}.svg").read_text("utf-8") == PICTURES[name](), "run python -m hotrail.report.pictures"


class Doubler(Component):
    """Doubles a number."""

    i: In(stream.Signature(unsigned(16)))
    o: Out(stream.Signature(unsigned(16)))

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.o.payload.eq(self.i.payload << 1), self.o.valid.eq(self.i.valid),
                     self.i.ready.eq(self.o.ready)]
        return m


class Core(Component):
    i: In(stream.Signature(unsigned(16)))
    o: Out(stream.Signature(unsigned(16)))

    def elaborate(self, platform):
        m = Module()
        first, second, wire = Doubler(), Doubler(), SkidBuffer(16)
        m.submodules.double_0, m.submodules.wire, m.submodules.again = first, wire, second
        connect(m, flipped(self.i), first.i)
        connect(m, first.o, wire.i)
        connect(m, wire.o, second.i)
        connect(m, second.o, flipped(self.o))
        return m


def test_blocks_and_flows_of_a_component():
    """Skid buffers are wires; payload and valid count, ready does not."""
    found = diagram(Core(), "small")
    assert found.blocks == (Block("double", "Doubler", "Doubles a number.", 1),
                            Block("again", "Doubler", "Doubles a number.", 1), Block("i", "", "", 1),
                            Block("o", "", "", 1))
    assert set(found.flows) == {Flow("i", "double", 17), Flow("double", "again", 17), Flow("again", "o", 17)}
    text = blocks.svg(found)
    places = [text.index(f">{name}</text>") for name in ("double", "again")]
    assert places == sorted(places) and "double to again: 17 bits" in text and text.count("<rect") == 5


def test_a_port_that_there_is_not():
    with pytest.raises(AttributeError, match="payloads"):
        waveform.record(SkidBuffer(8), [{}], ("o.payloads",))


def test_a_waveform_has_boxes_where_values_are_valid():
    text = waves.svg("a <title>", {"v": [0, 1, 1], "p": [7, 7, 8]}, valid={"p": "v"},
                     shown=lambda name, value: f"<{value}>")
    assert "a &lt;title&gt;" in text and text.count("&lt;7&gt;") == text.count("&lt;8&gt;") == 1
    assert text.count("stroke-dasharray") == 1
