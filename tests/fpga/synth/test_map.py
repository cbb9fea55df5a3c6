"""Area and depth on circuits whose mapping is known by hand."""

import pytest

from fpga.synth import map as synth
from tests.support.circuits import PARENT, THROUGH, TREE, mapped


@pytest.mark.turns(1, of="syntheses")
def test_tree(tmp_path):
    """As counted by hand; mapped once, and again when its text changes."""
    report = mapped("tree", TREE, cache=tmp_path)
    assert (report.worst.levels, report.worst.chains) == (2, 0)
    assert report.total.as_dict() | {"carry4": 0} == {
        "lut": 7, "ff": 37, "dsp": 0, "bram36": 0, "uram": 0, "carry4": 0, "lutram": 0}
    assert report.worst.path[0] == "in tree"
    assert any(step.startswith("x[") for step in report.worst.path) and "(FDRE)" in report.worst.path[-1]
    assert report.worst.met
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.glob("*.mapped")}
    assert len(stamps) == 1
    assert mapped("tree", TREE, cache=tmp_path) == report
    assert {p: p.stat().st_mtime_ns for p in tmp_path.glob("*.mapped")} == stamps
    with pytest.MonkeyPatch.context() as patch:     # a known core is not gone through again
        patch.setattr(synth, "depths", lambda *_: pytest.fail("depths"))
        assert mapped("tree", TREE, cache=tmp_path) == report
    mapped("tree", TREE.replace("<= &g", "<= |g"), cache=tmp_path)
    assert len(list(tmp_path.glob("*.mapped"))) == 2


@pytest.mark.turns(1, of="syntheses")
def test_depth_is_composed_over_boundaries(tmp_path):
    said = []
    report = mapped("parent", THROUGH, PARENT, cache=tmp_path, say=said.append)
    assert said == ["mapping 1 of 2: through", "mapping 2 of 2: parent"]
    again = mapped("parent", THROUGH, PARENT, cache=tmp_path, say=said.append)
    assert again == report and not said[2:], "it is in the cache"
    kept = report.files["through"].read_bytes()
    report.files["through"].write_bytes(kept[:-1])      # what was cut off is noticed, and mapped again
    assert mapped("parent", THROUGH, PARENT, cache=tmp_path, say=said.append) == report
    assert said[2:] == ["mapping 1 of 2: through"] and report.files["through"].read_bytes() == kept
    assert report.modules["through"][1] == 2 and report.total.lut == 14
    assert (report.worst.levels, report.worst.chains) == (4, 0)
    assert report.worst.path[0] == "in parent"


@pytest.mark.turns(1, of="syntheses")
def test_a_memory_is_read_by_its_own_address(tmp_path):
    """What is read lies behind the read's address, one level, and not behind that of the write."""
    store = """module store(clk, a, to, at, x, o);
  input clk;
  input [35:0] a;
  input [5:0] to;
  input [5:0] at;
  input [7:0] x;
  output o;
  reg [35:0] a_0;
  reg [5:0] to_0;
  reg [5:0] at_0;
  reg [7:0] x_0;
  reg o;
  (* ram_style = "distributed" *) reg [7:0] words [0:63];
  wire [7:0] read = words[at_0];
  always @(posedge clk) begin
    {a_0, to_0, at_0, x_0} <= {a, to, at, x};
    words[to_0 ^ {6{^a_0}}] <= x_0;
    o <= ^read;
  end
endmodule
"""
    report = mapped("store", store, cache=tmp_path)
    assert report.total.lutram and (report.worst.levels, report.worst.chains) == (3, 0)


def in_line(count, bits, function):
    """Registers, `count` parts in line, a register."""
    part = f"""module part(x, y, o);
  input [{bits - 1}:0] x;
  input [{bits - 1}:0] y;
  output [{bits - 1}:0] o;
  assign o = {function};
endmodule
"""
    def word(k):
        return f"[{bits * (k + 1) - 1}:{bits * k}]"

    parts = "".join(f"""  part part{k} (
    .x(from_here{word(k)}),
    .y(line{word(k)}),
    .o(line{word(k + 1)})
  );
""" for k in range(count))
    return part, f"""module line(clk, a, o);
  input clk;
  input [{bits * (count + 1) - 1}:0] a;
  output [{bits - 1}:0] o;
  reg [{bits * (count + 1) - 1}:0] from_here;
  reg [{bits - 1}:0] o;
  wire [{bits * (count + 1) - 1}:0] line;
  assign line{word(0)} = from_here{word(count)};
{parts}  always @(posedge clk) begin
    from_here <= a;
    o <= line{word(count)};
  end
endmodule
"""


@pytest.mark.turns(1, of="syntheses")
def test_parts_on_a_path_that_is_too_deep_are_mapped_with_their_parent():
    report = mapped("line", *in_line(synth.MAX_LEVELS, 1, "x ^ y"))
    assert report.worst.levels == synth.MAX_LEVELS and report.modules["part"][1] == synth.MAX_LEVELS
    assert not report.notes
    report = mapped("line", *in_line(synth.MAX_LEVELS + 2, 1, "x ^ y"))
    assert report.worst.levels == 2 and "part" not in report.modules
    assert report.notes == ("line: mapped in one piece with part",)
    assert "  note: line: mapped in one piece with part" in synth.lines(report)


@pytest.mark.turns(1, of="syntheses")
def test_what_is_too_deep_in_one_piece_stays_too_deep():
    report = mapped("line", *in_line(2, 20, "(x + y) ^ x"))
    assert report.most_chains.chains == 2 and not report.most_chains.met
    assert report.notes == ("line: mapped in one piece with part",)


@pytest.mark.turns(1, of="syntheses")
def test_a_carry_chain_counts_once_however_long():
    text = """module adder(input clk, input [59:0] a, b, output reg [59:0] o);
  reg [59:0] x, y;
  always @(posedge clk) begin
    x <= a;
    y <= b;
    o <= x + y;
  end
endmodule
"""
    report = mapped("adder", text)
    assert (report.most_chains.chains, report.most_chains.levels) == (1, 1) and report.total.carry4 == 15
    assert report.worst.met and report.most_chains.met


@pytest.mark.turns(1, of="syntheses")
def test_two_chains_break_the_rule():
    text = """module adders(input clk, input [29:0] a, b, c, output reg [29:0] o);
  reg [29:0] x, y, z;
  always @(posedge clk) begin
    x <= a;
    y <= b;
    z <= c;
    o <= (x + y) ^ ((x + y) + z);
  end
endmodule
"""
    report = mapped("adders", text)
    assert report.most_chains.chains == 2 and not report.most_chains.met
    assert "most chains: 2" in "\n".join(synth.lines(report))


@pytest.mark.turns(1, of="syntheses")
def test_memories():
    text = """module memories(
    input clk, input [11:0] a, input [71:0] d, input w, output reg [71:0] o, p, output reg [7:0] q);
  (* ram_style = "ultra" *) reg [71:0] big [4095:0];
  (* ram_style = "block" *) reg [71:0] block [511:0];
  (* ram_style = "distributed" *) reg [7:0] small [31:0];
  always @(posedge clk) begin
    if (w) begin
      big[a] <= d;
      block[a[8:0]] <= d;
      small[a[4:0]] <= d[7:0];
    end
    o <= big[a];
    p <= block[a[8:0]];
    q <= small[a[11:7]];
  end
endmodule
"""
    report = mapped("memories", text)
    assert report.total.uram == 1 and report.total.bram36 == 1 and report.total.lutram > 0
    assert report.worst.levels <= 2


@pytest.mark.turns(1, of="syntheses")
def test_loop_wrong():
    part, _ = in_line(1, 1, "x ^ y")
    ring = """module ring(a, o);
  input [1:0] a;
  output o;
  wire back;
  part part0 (
    .x(a[0]),
    .y(back),
    .o(o)
  );
  part part1 (
    .x(a[1]),
    .y(o),
    .o(back)
  );
endmodule
"""
    with pytest.raises(ValueError, match=r"module ring: \d+ bits lie on or behind a combinational loop"):
        mapped("ring", part, ring)


def test_area_arithmetic():
    area = synth.Area(lut=1, bram36=0.5) * 3 + synth.Area(lut=1, ff=2)
    assert area == synth.Area(lut=4, ff=2, bram36=1.5)
