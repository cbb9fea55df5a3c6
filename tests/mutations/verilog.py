"""What can go wrong in a package's Verilog: the decoder, the top's ports, the set of files."""

import re
from collections.abc import Callable
from pathlib import Path

from tests.mutations.changes import TOP, both, copied, drop, edit, found, replaced
from tests.mutations.changes import Mutation as M

SLAVE = "src/ControlSlave_*.v"


def decode(argument: str, word: int) -> Callable[[Path], None]:
    """Lets writes to `word` reach the argument's low word instead of those that did."""

    def change(folder: Path) -> None:
        path = found(folder, SLAVE)
        text = path.read_text()
        hit = re.search(rf"assign write_{argument}_0 = .* & (\\\S+) ;", text)[1]
        path.write_text(
            replaced(text, rf"(assign {re.escape(hit)}  = .* == )\d+'h[0-9a-f]+;", rf"\g<1>10'h{word:03x};")
        )

    return change


VERILOG = [
    M("decoder: writes of `inputs` moved by 4", SLAVE, decode("inputs", 0x28 // 4)),
    M("decoder: writes of `inputs` moved by 8", SLAVE, decode("inputs", 0x2C // 4)),
    M("decoder: reads of `inputs` moved by 4", SLAVE, edit(SLAVE, (r"10'h009:", "10'h3f1:"))),
    M(
        "decoder: `inputs` and `outputs` exchanged",
        SLAVE,
        both(decode("inputs", 0x38 // 4), decode("outputs", 0x24 // 4)),
    ),
    M("decoder: `timeout` also where `result` is", SLAVE, decode("timeout", 0x74 // 4)),
    M("decoder: abort moved by 4", SLAVE, edit(SLAVE, (r"(\[11:2\] == )6'h22", r"\g<1>6'h23"))),
    M("decoder: status moved by 4", SLAVE, edit(SLAVE, (r"10'h024:", "10'h025:"))),
    M("decoder: a byte's strobe exchanged", SLAVE, edit(SLAVE, (r"(write_program_0 & \S+ )\[1\]", r"\g<1>[2]"))),
    M("decoder: the interrupt never comes", SLAVE, edit(SLAVE, (r"^    interrupt <= .*?;", "    interrupt <= 1'h0;"))),
    M(
        "decoder: bus__rdata is never valid",
        SLAVE,
        edit(SLAVE, (r"^    bus__rvalid <= .*?;", "    bus__rvalid <= 1'h0;")),
    ),
    M(
        "top: port interrupt missing",
        TOP,
        edit(TOP, (r", interrupt, ap_clk\)", ", ap_clk)"), (r"^  output interrupt;\n", "")),
    ),
    M(
        "top: port m01_axi_awlen missing",
        TOP,
        edit(TOP, (r"m01_axi_awlen, ", ""), (r"^  output \[7:0\] m01_axi_awlen;\n", "")),
    ),
    M(
        "top: a debug pin",
        TOP,
        edit(TOP, (r", ap_clk\);", ", ap_clk, debug);\n  output debug;\n  assign debug = 1'h0;")),
    ),
    M(
        "top: m00_axi_wdata 128 -> 64 bits",
        TOP,
        edit(TOP, (r"output \[127:0\] m00_axi_wdata", "output [63:0] m00_axi_wdata")),
    ),
    M(
        "top: m00_axi_rdata and wdata 128 -> 96 bits",
        TOP,
        edit(
            TOP,
            *(
                (rf"{way} \[127:0\] m00_axi_{name}", f"{way} [95:0] m00_axi_{name}")
                for way, name in (("output", "wdata"), ("input", "rdata"))
            ),
        ),
    ),
    M(
        "top: m01_axi_araddr 64 -> 32 bits",
        TOP,
        edit(TOP, (r"output \[63:0\] m01_axi_araddr", "output [31:0] m01_axi_araddr")),
    ),
    M(
        "top: s_axi_control_awaddr 12 -> 6 bits",
        TOP,
        edit(TOP, (r"input \[11:0\] s_axi_control_awaddr", "input [5:0] s_axi_control_awaddr")),
    ),
    M("top: m00_axi_awready is an output", TOP, edit(TOP, (r"input m00_axi_awready", "output m00_axi_awready"))),
    M("top: a port in the list, not declared", TOP, edit(TOP, (r"^  input m00_axi_bid;\n", ""))),
    M("top: module renamed", TOP, edit(TOP, (r"^module hotrail_emb\(", "module hotrail_emb_top("))),
    M("top: core's reset left open", TOP, edit(TOP, (r"    \.rst\(\S+ \),\n", ""))),
    M("top: core's clock is not ap_clk", TOP, edit(TOP, (r"\.clk\(ap_clk\)", ".clk(interrupt)"))),
    M(
        "top: core's wdata wired to 64 bits",
        TOP,
        edit(TOP, (r"\.m00_axi__wdata\(m00_axi_wdata\)", ".m00_axi__wdata(m00_axi_awaddr)")),
    ),
    M("Verilog: a module emptied", "src/Divider_*.v", lambda folder: found(folder, "src/Divider_*.v").write_text("")),
    M("Verilog: a syntax error", "src/Divider_*.v", edit("src/Divider_*.v", (r"^  assign (\S+) ", r"  asign \1 "))),
    M("Verilog: endmodule missing", "src/Divider_*.v", edit("src/Divider_*.v", (r"^endmodule\n", ""))),
    M(
        "Verilog: a name that nothing declares",
        "src/Reciprocal.v",
        edit("src/Reciprocal.v", (r"^  wire (?:\[\d+:0\] )?\\\$1 ;\n", "")),
    ),
    M("Verilog: a file dropped", "src/Divider_*.v|src/TTUnit_*.v", drop("src/Divider_*.v")),
    M("Verilog: a module twice", "src/Twin.v", copied("src/Reciprocal.v", "src/Twin.v")),
    M(
        "Verilog: a leftover of another configuration",
        "src/Divider_bits9.v",
        lambda folder: (folder / "src/Divider_bits9.v").write_text(
            replaced(found(folder, "src/Divider_*.v").read_text(), r"\bDivider_\w+", "Divider_bits9")
        ),
    ),
    M(
        "Verilog: a part's port renamed",
        "src/TTUnit_*.v",
        edit("src/TTUnit_*.v", (r"(  Divider_\w+ divide_last \(\n    \.)(\w+)", r"\1\2_x")),
    ),
    M(
        "Verilog: a byte changed, package.json not",
        "src/secded_decoder.v",
        edit("src/secded_decoder.v", (r" \^ ", " & ")),
        False,
    ),
]
