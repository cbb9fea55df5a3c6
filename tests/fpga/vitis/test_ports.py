"""The Verilog's ports, clock and registers against the description: nothing to say of the cores, much of mistakes."""

from dataclasses import replace
from functools import cache

import pytest

from fpga.vitis.description import describe
from fpga.vitis.ports import check_ports
from gen.rtl import verilator
from gen.rtl.config import load
from gen.rtl.cores import CORES

UNIT = "kernel/top"

KERNELS = [name for name in load("tiny").cores if CORES[name].is_kernel]
CORE = "mlp"
TOP = f"hotrail_{CORE}.v"
PART = "Extra.v"
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


@cache
def packaged(core):
    texts, metadata = verilator.convert(CORES[core].kernel(load("tiny").cores[core]), top=f"hotrail_{core}")
    return describe(core, "tiny", metadata), texts


@pytest.mark.parametrize("core", KERNELS)
@pytest.mark.testpoint("ports_and_clock")
def test_sound_kernels(core):
    """The port set, widths and directions, one clock everywhere, plain registers, by Yosys."""
    assert check_ports(*packaged(core)) == []


# What is replaced in the top, and what is said about it.
TOPS = {
    "a debug pin": (("ap_clk);", "ap_clk, debug);\n  input debug;"),
                    f"{TOP}: port debug belongs to no interface of the kernel"),
    "a narrow pin": (("output [63:0] m00_axi_araddr;\n  wire [63:0]", "output [31:0] m00_axi_araddr;\n  wire [31:0]"),
                     f"{TOP}: port m00_axi_araddr is an output of 32 bits; it must be an output of 64 bits"),
    "a pin the other way": (("output m01_axi_rready;", "input m01_axi_rready;"),
                            f"{TOP}: port m01_axi_rready is an input of 1 bit; it must be an output of 1 bit"),
    "an inout": (("  input m00_axi_rvalid;", "  inout m00_axi_rvalid;"),
                 f"{TOP}: port m00_axi_rvalid is an inout of 1 bit; it must be an input of 1 bit"),
    "an open pin": ((".interrupt(interrupt)", ".interrupt()"), f"{TOP}: nothing drives port interrupt"),
    "a part on another clock": ((".clk(ap_clk)", ".clk(m00_axi_rvalid)"), " is not on ap_clk"),
    "the other edge": (("always @(posedge ap_clk)", "always @(negedge ap_clk)"),
                       f"{TOP}: held is not on the rising edge of ap_clk"),
    "an asynchronous reset": (("always @(posedge ap_clk)\n    held <= ",
                               "always @(posedge ap_clk or negedge ap_rst_n) if (!ap_rst_n) held <= 0; else held <= "),
                              f"{TOP}: held is held by a $adff, which more than a clock's edge changes"),
    "the clock as data": (("~ ap_rst_n;", "~ ap_rst_n | ap_clk;"),
                          f"{TOP}: ap_clk is used for something else than an edge or a part's clock"),
    "no part": ((".m01_axi__rready(", ".m01_axi__rready_("), f"{TOP}: Yosys cannot read it with its parts"),
}


@pytest.mark.parametrize("name", TOPS)
@pytest.mark.testpoint("ports_and_clock")
def test_a_wrong_top_is_told(name):
    """A top with a wrong port, clock or register is told."""
    (old, new), said = TOPS[name]
    kernel, texts = packaged(CORE)
    assert texts[TOP].count(old) == 1
    found = check_ports(kernel, texts | {TOP: texts[TOP].replace(old, new)})
    assert any(said in sentence for sentence in found), found


PARTS = {
    "another edge": (("posedge clk", "negedge clk"), "o is not on the rising edge of clk"),
    "another clock": (("posedge clk", "posedge i"), "o is not on the rising edge of clk"),
    "asynchronous": (("@(posedge clk)\n", "@(posedge clk or posedge rst)\n    if (rst) o <= 0; else\n"),
                     "o is held by a $adff, which more than a clock's edge changes"),
    "a latch": (("@(posedge clk)\n    o <= i", "@*\n    if (rst) o = i"),
                "o is held by a $dlatch, which more than a clock's edge changes"),
    "an inout": (("input i;", "inout i;"), "it has an inout"),
    "an initial block": (("  always", "  reg [3:0] first;\n  initial begin\n    first = 1;\n  end\n  always"),
                         "it has an initial block that is not a memory's contents"),
    "a register of its own": (("  always", "  reg [3:0] lost = 4'h5;\n  always"),
                              "nothing but its initial value drives the register lost"),
    "a gate in the clock": (("o <= i;", "o <= i & clk;"),
                            "clk is used for something else than an edge or a part's clock"),
    "a part's clock": (("endmodule", "  Other other (\n    .clk(i)\n  );\nendmodule"),
                       "a part is clocked by i, not by clk"),
    "a memory without a clock": (("  always",
                                  "  reg [3:0] store [7:0];\n  always @*\n    if (i) store[0] <= 1;\n  always"),
                                 "which more than a clock's edge changes"),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.testpoint("ports_and_clock")
def test_a_wrong_part_is_told(name):
    """A part with a wrong clock or register is told."""
    (old, new), said = PARTS[name]
    kernel, texts = packaged(CORE)
    assert GOOD.count(old) == 1 and check_ports(kernel, texts | {PART: GOOD}) == []
    found = check_ports(kernel, texts | {PART: GOOD.replace(old, new)})
    assert any(sentence.startswith(f"{PART}: ") and said in sentence for sentence in found), found


def test_a_wrong_description_is_told():
    kernel, texts = packaged(CORE)

    def with_bus(change):
        return replace(kernel, buses=tuple(change(bus) if bus.name == "m01_axi" else bus for bus in kernel.buses))

    assert check_ports(with_bus(lambda bus: replace(bus, data_bits=96)), texts)[0] == (
        "m01_axi: 96 data bits; a master has 32, 64, 128, 256, 512")
    short = with_bus(lambda bus: replace(bus, pins=tuple(
        replace(pin, bits=40) if pin.signal == "AWADDR" else pin for pin in bus.pins if pin.signal != "RLAST")))
    assert {"m01_axi: AWADDR is an output of 40 bits; it must be an output of 64 bits",
            "m01_axi: there is no RLAST",
            f"{TOP}: port m01_axi_rlast belongs to no interface of the kernel"} <= set(check_ports(short, texts))
    renamed = check_ports(replace(kernel, interrupt=replace(kernel.interrupt, name="irq")), texts)
    assert renamed == [f"{TOP}: port interrupt belongs to no interface of the kernel", f"{TOP}: there is no port irq"]
    assert check_ports(kernel, {}) == [f"there is no {TOP} for the top module hotrail_{CORE}"]
