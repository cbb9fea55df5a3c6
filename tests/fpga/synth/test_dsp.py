"""Products in DSP slices: found where they are, and the two slices compute what the pattern does."""
import subprocess

import pytest

from fpga.synth import dsp
from fpga.synth import map as synth
from gen.rtl import verilator, verilog
from hw.fp.dot import FusedDot
from hw.fp.running import RunningSums
from verif.bench.runner import one_of

# What UG579 says of a DSP48E2 as far as MAPPING uses it: 27 x 18 signed multiplier, M and P registers with
# synchronous reset of P, one register at A and B or none, Z = 0 or the cascade shifted right arithmetically by 17.
MODEL = """\
module DSP48E2 #(parameter AREG = 1, ACASCREG = 1, BREG = 1, BCASCREG = 1, CREG = 1, DREG = 1, ADREG = 1, MREG = 1,
                 PREG = 1, INMODEREG = 1, OPMODEREG = 1, ALUMODEREG = 1, CARRYINREG = 1, CARRYINSELREG = 1)
  (input CLK, input [29:0] A, input [17:0] B, input signed [47:0] PCIN, input [8:0] OPMODE, input [3:0] ALUMODE,
   input [4:0] INMODE, input CARRYIN, input [2:0] CARRYINSEL, input CEA2, CEB2, CEM, CEP, RSTA, RSTB, RSTM, RSTP,
   output [47:0] P, output [47:0] PCOUT);
  reg [29:0] a; reg [17:0] b; reg signed [44:0] m; reg signed [47:0] p;
  wire signed [26:0] ma = AREG ? a[26:0] : A[26:0];
  wire signed [17:0] mb = BREG ? b : B;
  wire signed [47:0] z = OPMODE[6:4] == 3'b101 ? PCIN >>> 17 : 48'sd0;
  always @(posedge CLK) begin
    if (CEA2) a <= A;
    if (CEB2) b <= B;
    if (CEM) m <= ma * mb;
    if (RSTP) p <= 0; else if (CEP) p <= (OPMODE[3:0] == 4'b0101 ? 48'(m) : 48'sd0) + z;
  end
  assign P = p;
  assign PCOUT = p;
endmodule
"""
TOP = """\
module both(input clk, zero, input [23:0] a, a_late, input [16:0] low, input [6:0] high, output [30:0] x, y);
  pattern plain(clk, a, low, a_late, high, zero, x);
  dsp_product slices(clk, a, low, a_late, high, zero, y);
endmodule
"""
MAIN = r"""
#include <cstdio>
#include <random>
#include "Vtop.h"
#include "verilated.h"
int main() {
    VerilatedContext context;
    Vtop dut{&context};
    std::mt19937 random{1};
    long nonzero = 0;
    for (long cycle = 0; cycle < 300000; ++cycle) {
        const bool edge = random() % 8 == 0;
        dut.clk = 0;
        dut.a = edge ? 0xFFFFFF : random() & 0xFFFFFF;
        dut.a_late = edge ? 0xFFFFFF : random() & 0xFFFFFF;
        dut.low = edge ? 0x1FFFF : random() & 0x1FFFF;
        dut.high = edge ? 0x7F : random() & 0x7F;
        dut.zero = random() % 16 == 0;
        dut.eval();
        if (cycle > 8 && dut.x != dut.y) return 1;
        nonzero += dut.y != 0;
        dut.clk = 1;
        dut.eval();
    }
    return nonzero > 250000 ? 0 : 2;
}
"""


@pytest.mark.parametrize("component,products,slices", [
    (RunningSums(contexts_log2=3, terms_log2=4, lut_product=True), 0, 1),
    *one_of([(RunningSums(contexts_log2=3, terms_log2=4), 1, 2),
             (FusedDot(width=2, subs=2, terms_log2=4, lut_products=1), 3, 7)]),
])
def test_products_are_found(component, products, slices, tmp_path):
    texts, _ = verilog.convert(component, "unit")
    # One cache: what has no product is mapped once.
    plain, packed = (synth.synthesise(texts, "unit", cache=tmp_path, pack_products=bool(pack)).total for pack in (0, 1))
    assert plain.dsp == packed.dsp == slices
    log = "\n".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert log.count("Match #") == products
    # 24 and 7 operand bits, 31 and 24 of the partial products twice and once, 31 of the sum, at the least.
    assert plain.ff - packed.ff >= 110 * products and plain.lut - packed.lut >= 15 * products


def test_the_slices_compute_the_product():
    text = dsp.PATTERN.replace("module dsp_product", "module pattern") + dsp.MAPPING + MODEL + TOP
    built = verilator.build({"dut.v": text}, "both", "dsp_slices", target="slices", arguments=("-sv",),
                            sources={"main.cpp": MAIN})
    assert subprocess.run([built.target]).returncode == 0
