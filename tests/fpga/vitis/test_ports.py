"""The Verilog's ports and hierarchy as Yosys reads them: nothing to say of the cores, much of mistakes."""

from dataclasses import replace

import pytest

from fpga.vitis.description import describe, prepare
from gen.rtl.verilog import children, interface
from tests.support.vitis_kernels import KERNELS, converted, prepared
from tests.support.vitis_verilog import faults, modules, ports

UNIT = "kernel/top"
CORE = "mlp"
TOP = f"hotrail_{CORE}"


@pytest.mark.turns(1, of="syntheses")
@pytest.mark.parametrize("core", KERNELS)
@pytest.mark.testpoint("ports")
def test_sound_kernels(core):
    """The port set, widths and directions, by Yosys."""
    assert faults(*prepared(core)) == []


@pytest.mark.regress
@pytest.mark.parametrize("preset, core", [("smartssd", "emb"), ("smartssd", "mlp"), ("hotline_fpga", "hotline")])
def test_shipping_kernels(preset, core):
    """Minutes: their Verilog is converted."""
    assert faults(*prepare(preset, core)) == []


def shell():
    """The top with its parts as boxes: its Verilog, theirs."""
    texts = prepared(CORE)[1]
    names = children(texts[f"{TOP}.v"], (name.removesuffix(".v") for name in texts))
    return texts[f"{TOP}.v"], {f"{name}.v": interface(texts[f"{name}.v"]) for name in names}


def said(old, new, boxes=None):
    """What is said of the top with a change, or of its boxes."""
    text, sound = shell()
    assert text.count(old) == 1
    try:
        made = modules({f"{TOP}.v": text.replace(old, new)} | (sound if boxes is None else boxes), TOP)
    except ValueError as error:
        return [str(error)]
    return list(ports(prepared(CORE)[0], made[TOP]))


# What is replaced in the top, and what is said about it.
TOPS = {
    "nothing": ("ap_clk);", "ap_clk) ;", ""),
    "a debug pin": ("ap_clk);", "ap_clk, debug);\n  input debug;",
                    "Verilog: port debug is in, 1 bits; it must be not there"),
    "a narrow pin": ("output [63:0] m00_axi_araddr;\n  wire [63:0]", "output [31:0] m00_axi_araddr;\n  wire [31:0]",
                     "Resizing cell port"),
    "a pin the other way": ("output m01_axi_rready;", "input m01_axi_rready;",
                            "Verilog: port m01_axi_rready is in, 1 bits; it must be out, 1 bits"),
    "a pin not declared": ("  input m00_axi_bid;\n", "", "m00_axi_bid"),
    "no such pin of a part": (".m01_axi__rready(", ".m01_axi__rready_(", "does not have a port named"),
    "a syntax error": ("  assign \\$4 ", "  asign \\$4 ", "syntax error"),
    "a name that nothing declares": ("~ ap_rst_n;", "~ ap_rst;", "ap_rst"),
}


@pytest.mark.parametrize("name", TOPS)
@pytest.mark.testpoint("ports")
def test_a_wrong_top_is_told(name):
    """A top with a wrong port is reported."""
    old, new, sentence = TOPS[name]
    found = said(old, new)
    assert any(sentence in one for one in found) if sentence else not found, found


def test_wrong_sets_of_files_are_told():
    """A part that is not there, and one that nothing needs."""
    _, boxes = shell()
    assert len(boxes) == 1
    assert "is not part of the design" in said("ap_clk);", "ap_clk) ;", {})[0]
    stranger = {"Old.v": "module Old(clk);\n  input clk;\nendmodule\n"}
    assert said("ap_clk);", "ap_clk) ;", boxes | stranger) == [f"module Old is no part of {TOP}"]


def test_a_wrong_description_is_told():
    kernel, texts = prepared(CORE)
    text, boxes = shell()
    top = modules({f"{TOP}.v": text} | boxes, TOP)[TOP]

    def told(change):
        buses = tuple(change(bus) if bus.name == "m01_axi" else bus for bus in kernel.buses)
        return set(ports(replace(kernel, buses=buses), top))

    assert told(lambda bus: bus) == set()
    assert "m01_axi: 96 data bits; a master has 32, 64, 128, 256, 512" in told(lambda bus: replace(bus, data_bits=96))
    assert {"description: port m01_axi_awaddr is out, 40 bits; it must be out, 64 bits",
            "description: port m01_axi_rlast is not there; it must be in, 1 bits"} == told(
        lambda bus: replace(bus, pins=tuple(replace(pin, bits=40) if pin.signal == "AWADDR" else pin
                                            for pin in bus.pins if pin.signal != "RLAST")))
    metadata = converted(CORE)[1]
    loose = metadata | {"ports": metadata["ports"] | {"debug": {"direction": "in", "width": 1}}}
    with pytest.raises(ValueError, match=f"{TOP}: port debug belongs to no interface of a Vitis kernel"):
        describe(CORE, "tiny", loose)
