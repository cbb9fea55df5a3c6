"""Area in standard cells of circuits whose mapping is known by hand, with a library of four cells."""

import re

import pytest

from fpga.synth.cells import BIT_CELLS, lines, map_cells
from fpga.synth.power import WIRES

LIBRARY = """library (four) {
  capacitive_load_unit (1, ff); nom_voltage : 2.0; leakage_power_unit : "1nW";
  cell (INV) { area : 1; pin (A) { direction : input; } pin (Y) { direction : output; function : "!A"; } }
  cell (NAND2) { area : 2; pin (A) { direction : input; } pin (B) { direction : input; }
    pin (Y) { direction : output; function : "!(A*B)"; } }
  cell (NOR2) { area : 2; pin (A) { direction : input; } pin (B) { direction : input; }
    pin (Y) { direction : output; function : "!(A+B)"; } }
  cell (DFF) { area : 9; cell_leakage_power : 5; ff (IQ, IQN) { clocked_on : "C"; next_state : "D"; }
    pin (C) { direction : input; capacitance : 3; clock : true; } pin (D) { direction : input; capacitance : 1; }
    pin (Q) { direction : output; function : "IQ"; } }
}
"""
# A register behind a NAND, and a memory.
LEAF = """module leaf(clk, a, b, address, o, q);
  input clk;
  input a;
  input b;
  input [5:0] address;
  output o;
  output [7:0] q;
  reg o = 1'h1;
  reg [7:0] data [63:0];
  reg [7:0] q;
  always @(posedge clk) begin
    o <= ~(a & b);
    q <= data[address];
    if (a) data[address] <= {8{b}};
  end
endmodule
"""
TOP = """module top(clk, a, b, address, o, q);
  input clk;
  input a;
  input b;
  input [5:0] address;
  output [1:0] o;
  output [15:0] q;
  leaf one (
    .clk(clk),
    .a(a),
    .b(b),
    .address(address),
    .o(o[0]),
    .q(q[7:0])
  );
  leaf two (
    .clk(clk),
    .a(b),
    .b(a),
    .address(address),
    .o(o[1]),
    .q(q[15:8])
  );
endmodule
"""


@pytest.fixture
def library(tmp_path):
    path = tmp_path / "four.lib"
    path.write_text(LIBRARY, "utf-8")
    return path


def test_cells_and_memories_of_all_instances(library):
    said = []
    report = map_cells({"leaf.v": LEAF, "top.v": TOP}, "top", library, cache=library.parent, say=said.append)
    assert said == ["mapping 1 of 2: leaf", "mapping 2 of 2: top"]
    assert map_cells({"leaf.v": LEAF, "top.v": TOP}, "top", library, cache=library.parent, say=said.append) == report
    assert len(said) == 2       # kept
    leaf, count = report.modules["leaf"]
    assert (count, leaf.memories, leaf.memory_bits) == (2, 1, 64 * 8)
    assert (report.memories, report.memory_bits, report.nand_um2) == (2, 1024, 2)
    assert report.area_um2 == 2 * leaf.area_um2 == 2 * (9 + 2) and report.cells == 4 and report.gates == 11
    least, most = report.memory_mm2(45)
    assert least < most < 3 * 1e-6 * 1024 * BIT_CELLS[45]
    # Two registers at 2 V, of 3 fF of the clock and 1 fF of data, whose net has no name, and what wires add.
    assert report.leakage_w == pytest.approx(1e-8)
    assert leaf.nets.clock_j == pytest.approx([12e-15 * (1 + more) for more in WIRES])
    assert leaf.nets.others_j == pytest.approx([2e-15 * (1 + more) for more in WIRES])
    assert report.cycle_j == pytest.approx([2 * each for each in leaf.nets.cycle_j])
    # The register's output has its name, as an output pin of no energy; in 10 cycles it changed 4 times in both places.
    assert ("o", "") in leaf.nets.named
    work = report.power({("top", "clk", ""): 20, ("leaf", "o", ""): 4, ("leaf", "clk", ""): 40})
    assert work.clock_j == pytest.approx([2 * each for each in leaf.nets.clock_j]) and work.rate == 4 / 2 / 10
    assert list(lines(report, None, work, 100))[3].startswith("  at work ")
    text = list(lines(report))
    assert "mW per MHz" in text[2]
    assert "give --node-nm" in text[3] and re.search(r"to \S+ mm2 as macros in 45 nm", "\n".join(lines(report, 45)))
    assert text[4] == "     2 x leaf: 6 gate equivalents, 512 bits of memory"


def test_what_is_no_library_is_refused(library):
    library.write_text("module x;", "utf-8")
    with pytest.raises(ValueError, match=r"four\.lib: it has no cells"):
        map_cells({"leaf.v": LEAF}, "leaf", library, cache=library.parent)
    library.write_text(LIBRARY.split("  cell (NAND2)")[0] + "}", "utf-8")
    with pytest.raises(ValueError, match=r"four\.lib: Yosys failed"):
        map_cells({"leaf.v": LEAF}, "leaf", library, cache=library.parent)
