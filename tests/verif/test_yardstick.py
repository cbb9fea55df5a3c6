"""The unit that processor seconds of tests are compared in: a fixed model, built and run by fixed commands.

Whatever changes in the project, this does the same, so that seconds of two commits, or of two machines, can be compared
(tests/support/processor_time.py). It fails when the model's sum is wrong.
"""

import subprocess

import numpy as np

from gen.base.tools import environment, verilator

LANES, CYCLES = 48, 20_000
LANE = """  always @(posedge clk) begin
    x{0} <= {{x{0}[30:0], x{0}[31] ^ x{0}[21] ^ x{0}[1] ^ x{0}[0]}};
    sum{0} <= sum{0} * 32'd1664525 + x{0} + 32'd{0};
  end
"""
VERILOG = """module yardstick(input clk, output [31:0] total);
""" + "".join(f"  reg [31:0] x{k} = 32'd{k + 1};\n  reg [31:0] sum{k} = 32'd0;\n" for k in range(LANES)) + "".join(
    LANE.format(k) for k in range(LANES)) + f"""  assign total = {" + ".join(f"sum{k}" for k in range(LANES))};
endmodule
"""
MAIN = f"""#include "Vyardstick.h"
#include <cstdio>
int main() {{
    Vyardstick model;
    for (int cycle = 0; cycle < {CYCLES}; ++cycle) {{
        model.clk = 0; model.eval();
        model.clk = 1; model.eval();
    }}
    std::printf("%u\\n", model.total);
}}
"""


def total() -> int:
    """What the model's output is after CYCLES edges."""
    lanes = np.arange(LANES, dtype=np.uint32)
    x, sums = lanes + np.uint32(1), np.zeros_like(lanes)
    for _ in range(CYCLES):
        sums = sums * np.uint32(1664525) + x + lanes
        x = x << 1 | (x >> 31 ^ x >> 21 ^ x >> 1 ^ x) & 1
    return int(sums.sum(dtype=np.uint32))


def test_yardstick(tmp_path):
    (tmp_path / "yardstick.v").write_text(VERILOG, "utf-8")
    (tmp_path / "main.cpp").write_text(MAIN, "utf-8")
    binary, root = verilator()

    def run(*command):
        return subprocess.run(command, cwd=tmp_path, env=environment(), check=True, stdout=subprocess.PIPE).stdout

    run(binary, "--cc", "-O3", "-Wno-lint", "--Mdir", "obj", "yardstick.v")
    model = tmp_path / "model.cc"       # one unit: the headers take longer than the model
    texts = [*sorted(tmp_path.glob("obj/V*.cpp")), "main.cpp"]
    model.write_text("".join(f'#include "{text}"\n' for text in texts), "utf-8")
    include = root / "include"
    parts = [include / f"{name}.cpp" for name in ("verilated", "verilated_threads")]
    run("g++", f"-I{include}", f"-I{include / 'vltstd'}", "-Iobj", model, *parts, "-o", "run",
        "-pthread")
    assert int(run("./run")) == total()
