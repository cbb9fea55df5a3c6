"""The Verilog's ports, clock and hierarchy as Yosys reads them: nothing to say of the cores, much of mistakes."""

from dataclasses import replace

import pytest

from fpga.vitis.description import describe, prepare
from gen.rtl.verilog import children, interface
from tests.support.vitis_kernels import KERNELS, converted, prepared
from tests.support.vitis_verilog import clocking, faults, modules, ports

UNIT = "kernel/top"
CORE = "mlp"
TOP = f"hotrail_{CORE}"


@pytest.mark.turns(6, of="syntheses")
@pytest.mark.parametrize("core", KERNELS)
@pytest.mark.testpoint("ports_and_clock")
def test_sound_kernels(core):
    """The port set, widths and directions, one clock everywhere, plain registers, by Yosys."""
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
    return [*ports(prepared(CORE)[0], made[TOP]), *clocking(made, TOP)]


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
    "an inout": ("  input m00_axi_rvalid;", "  inout m00_axi_rvalid;", "m00_axi_rvalid is an inout"),
    "an open pin": (".interrupt(interrupt)", ".interrupt()", "nothing drives port interrupt"),
    "a part on another clock": (".clk(ap_clk)", ".clk(m00_axi_rvalid)", "is not on ap_clk"),
    "the other edge": ("always @(posedge ap_clk)", "always @(negedge ap_clk)",
                       "held is not on the rising edge of ap_clk"),
    "an asynchronous reset": ("always @(posedge ap_clk)\n    held <= ",
                              "always @(posedge ap_clk or negedge ap_rst_n) if (!ap_rst_n) held <= 0; else held <= ",
                              "held is held by a $adff, which more than a clock's edge changes"),
    "the clock as data": ("~ ap_rst_n;", "~ ap_rst_n | ap_clk;",
                          "ap_clk is used for something else than an edge or a part's clock"),
    "no such pin of a part": (".m01_axi__rready(", ".m01_axi__rready_(", "does not have a port named"),
    "a syntax error": ("  assign \\$4 ", "  asign \\$4 ", "syntax error"),
    "a name that nothing declares": ("~ ap_rst_n;", "~ ap_rst;", "ap_rst"),
}


@pytest.mark.parametrize("name", TOPS)
@pytest.mark.testpoint("ports_and_clock")
def test_a_wrong_top_is_told(name):
    """A top with a wrong port, clock or register is told."""
    old, new, sentence = TOPS[name]
    found = said(old, new)
    assert any(sentence in one for one in found) if sentence else not found, found


def test_wrong_sets_of_files_are_told():
    """A part that is not there, one that nothing needs, and a part's port that is left open."""
    _, boxes = shell()
    assert len(boxes) == 1
    (name, text), = boxes.items()
    assert "is not part of the design" in said("ap_clk);", "ap_clk) ;", {})[0]
    stranger = {"Old.v": "module Old(clk);\n  input clk;\nendmodule\n"}
    assert said("ap_clk);", "ap_clk) ;", boxes | stranger) == [f"module Old is no part of {TOP}"]
    wider = {name: text.replace(");", ", more);", 1).replace("endmodule", "  input more;\nendmodule")}
    assert said("ap_clk);", "ap_clk) ;", wider) == [f"{TOP}: port more of a part {name[:-2]} is left open"]


GOOD = """module Extra(i, o, rst, clk);
  input i;
  output o;
  input rst;
  input clk;
  wire clk;
  reg o = 1'h0;
  always @(posedge clk)
    o <= i;
endmodule
"""
PARTS = {
    "another edge": ("posedge clk", "negedge clk", "o is not on the rising edge of clk"),
    "another clock": ("posedge clk", "posedge i", "o is not on the rising edge of clk"),
    "asynchronous": ("@(posedge clk)\n", "@(posedge clk or posedge rst)\n    if (rst) o <= 0; else\n",
                     "o is held by a $adff, which more than a clock's edge changes"),
    "a latch": ("@(posedge clk)\n    o <= i", "@*\n    if (rst) o = i",
                "o is held by a $dlatch, which more than a clock's edge changes"),
    "an inout": ("input i;", "inout i;", "i is an inout"),
    "an initial block": ("  always", "  reg [3:0] first;\n  initial begin\n    first = 1;\n  end\n  always",
                         "nothing but its initial value drives first"),
    "a register of its own": ("  always", "  reg [3:0] lost = 4'h5;\n  always",
                              "nothing but its initial value drives lost"),
    "a gate in the clock": ("o <= i;", "o <= i & clk;",
                            "clk is used for something else than an edge or a part's clock"),
    "a clock that leaves": ("o <= i;\n", "o <= i;\n  assign rst = clk;\n", "clk leaves as rst"),
    "a memory without a clock": ("  always",
                                 "  reg [3:0] store [7:0];\n  always @*\n    if (i) store[0] <= 1;\n  always",
                                 "which more than a clock's edge changes"),
}


@pytest.fixture(scope="module")
def parts():
    """All wrong parts, and the right one, in one run of Yosys."""
    texts = {"good.v": GOOD}
    for number, (old, new, _) in enumerate(PARTS.values()):
        assert GOOD.count(old) == 1
        texts[f"{number}.v"] = GOOD.replace(old, new).replace("module Extra", f"module Extra{number}")
    return modules(texts)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.testpoint("ports_and_clock")
def test_a_wrong_part_is_told(name, parts):
    """A part with a wrong clock or register is told."""
    assert list(clocking(parts, "Extra")) == []
    found = list(clocking(parts, f"Extra{list(PARTS).index(name)}"))
    assert any(PARTS[name][2] in sentence for sentence in found), found


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
