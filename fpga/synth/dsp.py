"""What Yosys does not pack into an UltraScale+ DSP slice by itself: the registers of a product and its adder.

For the `xcup` family Yosys maps a multiplication to a DSP48E2 and leaves the registers around it and the addition of
two partial products to the fabric. The vendor's tools pack both: a 24 x 24 product cut at bit 17 is two slices in a
cascade, P = A * B + (PCIN >> 17), with all its registers inside. This file finds that one product, as
hw.fp.product writes it, and says the slices.

Source: UG579 (DSP48E2 attributes, OPMODE encodings), PG cascade of wide multipliers
"""

import re

__all__ = ["MAPPING", "PATTERN", "PREPARE", "has_product", "steps"]

#: The product as it stands in the Verilog of hw.fp.product: 24 x 17 and 24 x 7 bits, one cycle apart.
PATTERN = """\
module dsp_product(clk, a, low, a_late, high_next, zero, product);
  input clk, zero;
  input [23:0] a, a_late;
  input [16:0] low;
  input [6:0] high_next;
  output reg [30:0] product;
  reg [40:0] m_low, p_low;
  reg [30:0] m_high;
  reg [23:0] x;
  reg [6:0] high;
  wire [40:0] by_low = a * low;
  wire [30:0] by_high = x * high;
  wire [31:0] sum = m_high + p_low[40:17];
  wire [30:0] next = zero ? 31'd0 : sum[30:0];
  always @(posedge clk) begin
    m_low <= by_low;
    p_low <= m_low;
    x <= a_late;
    high <= high_next;
    m_high <= by_high;
    product <= next;
  end
endmodule
"""

_COMMON = (".CREG(0), .DREG(0), .ADREG(0), .MREG(1), .PREG(1), .INMODEREG(0), .OPMODEREG(0), .ALUMODEREG(0), "
           ".CARRYINREG(0), .CARRYINSELREG(0)")
_PORTS = (".CLK(clk), .ALUMODE(4'b0), .INMODE(5'b0), .CARRYIN(1'b0), .CARRYINSEL(3'b0), .CEM(1'b1), .CEP(1'b1), "
          ".RSTM(1'b0)")

#: The same in two slices. OPMODE: X and Y take the multiplier, Z nothing, or the cascade shifted right by 17.
MAPPING = f"""\
module dsp_product(clk, a, low, a_late, high_next, zero, product);
  input clk, zero;
  input [23:0] a, a_late;
  input [16:0] low;
  input [6:0] high_next;
  output [30:0] product;
  wire [47:0] cascade, p;
  DSP48E2 #(.AREG(0), .ACASCREG(0), .BREG(0), .BCASCREG(0), {_COMMON})
    low_part({_PORTS}, .A({{6'b0, a}}), .B({{1'b0, low}}), .OPMODE(9'b00_000_01_01), .RSTP(1'b0), .PCOUT(cascade));
  DSP48E2 #(.AREG(1), .ACASCREG(1), .BREG(1), .BCASCREG(1), {_COMMON})
    high_part({_PORTS}, .A({{6'b0, a_late}}), .B({{11'b0, high_next}}), .PCIN(cascade), .OPMODE(9'b00_101_01_01),
              .CEA2(1'b1), .CEB2(1'b1), .RSTA(1'b0), .RSTB(1'b0), .RSTP(zero), .P(p));
  assign product = p[30:0];
endmodule
"""

#: What brings pattern and module into one form, in which the former can be found in the latter.
PREPARE = ("proc", "opt_clean", "wreduce", "opt_clean")


def has_product(text: str) -> bool:
    """Whether a module's Verilog may hold such products; finding them costs a pass."""
    return re.search(r"\breg \[30:0\] m_high\d+\b", text) is not None


def steps(read: list[str], top: str) -> list[str]:
    """Yosys commands that read a design and put its products into slices.

    Parameters  read: commands that read the Verilog; top: its top module. PATTERN lies in pattern.v and MAPPING in
                mapping.v
    """
    return [
        "read_verilog pattern.v", *PREPARE, "write_rtlil pattern.il", "design -reset",
        *read, f"hierarchy -top {top}", *PREPARE,
        "extract -constports -map pattern.il", "techmap -map mapping.v",
    ]
