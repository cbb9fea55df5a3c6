"""Small circuits whose mapping is known by hand."""

from pathlib import Path

from fpga.synth import map as synth
from gen.base.tools import build_folder

# All of 36 bits as two levels of six-input LUTs; `keep` fixes the grouping.
GROUPS = "  (* keep *) wire [5:0] g;\n" + "".join(
    f"  assign g[{i}] = &x[{6 * i + 5}:{6 * i}];\n" for i in range(6))
# A register, the two levels, a register.
TREE = f"""module tree(clk, a, o);
  input clk;
  input [35:0] a;
  output o;
  reg [35:0] x;
  reg o;
{GROUPS}
  always @(posedge clk) begin
    x <= a;
    o <= &g;
  end
endmodule
"""
# The same without registers: logic from port to port.
THROUGH = f"""module through(clk, x, o);
  input clk;
  input [35:0] x;
  output o;
{GROUPS}
  assign o = &g;
endmodule
"""
PARENT = """module parent(clk, a, o);
  input clk;
  input [35:0] a;
  output o;
  wire first;
  wire second;
  reg [35:0] from_here;
  reg o;
  through part0 (
    .clk(clk),
    .x(from_here),
    .o(first)
  );
  through part1 (
    .clk(clk),
    .x({35'h123456789, first}),
    .o(second)
  );
  always @(posedge clk) begin
    from_here <= a;
    o <= second;
  end
endmodule
"""


def mapped(top: str, *texts: str, cache: Path | None = None, **options) -> synth.Report:
    """The report of modules given as Verilog. cache: by default that of all cores."""
    modules = {text.split("(")[0].split()[1] + ".v": text for text in texts}
    return synth.synthesise(modules, top, cache=cache or build_folder() / "synth", **options)
