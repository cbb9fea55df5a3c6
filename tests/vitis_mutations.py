"""What can go wrong in a package of the EMB core, one change each: the checker must find every one of them.

A mutation changes a copy of a sound package. Then package.json's digests are made new, so that a digest alone finds
nothing; those that are about the digests themselves say so.
"""

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TOP, KERNEL, COMPONENT, SCRIPT, LINK = ("src/hotrail_emb.v", "kernel.xml", "component.xml", "package.tcl", "link.cfg")
HEADER, MODULE, PAGE, MANIFEST, XO = ("hotrail_emb.h", "hotrail_emb.py", "emb.md", "package.json", "hotrail_emb.xo")


@dataclass(frozen=True)
class Mutation:
    """`file`: the one that a sentence must begin with, a pattern; `change`: what is done to the folder; `digests`:
    whether package.json is made to agree afterwards."""

    name: str
    file: str
    change: Callable[[Path], None]
    digests: bool = True

    def apply(self, folder: Path) -> None:
        self.change(folder)
        if self.digests:
            sign(folder)


def sign(folder: Path) -> None:
    """Makes package.json list what lies there."""
    path = folder / MANIFEST
    told = json.loads(path.read_text())
    told["files"] = {found.relative_to(folder).as_posix(): hashlib.sha256(found.read_bytes()).hexdigest()
                     for found in sorted(folder.rglob("*")) if found.is_file() and found != path}
    path.write_text(json.dumps(told))


def replaced(text: str, old: str, new: str) -> str:
    """`text` with the first match of the pattern replaced; something must change."""
    out, count = re.subn(old, new, text, count=1, flags=re.S | re.M)
    if not count or out == text:
        raise LookupError(f"nothing matches {old!r}")
    return out


def edit(name: str, *pairs: tuple[str, str]) -> Callable[[Path], None]:
    """Replaces in the one file that the pattern `name` finds."""
    def change(folder: Path) -> None:
        path = found(folder, name)
        text = path.read_text()
        for old, new in pairs:
            text = replaced(text, old, new)
        path.write_text(text)
    return change


def found(folder: Path, name: str) -> Path:
    paths = sorted(folder.glob(name))
    if len(paths) != 1:
        raise LookupError(f"{name}: {len(paths)} files")
    return paths[0]


def drop(name: str) -> Callable[[Path], None]:
    return lambda folder: found(folder, name).unlink()


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text)


def copied(source: str, name: str) -> Callable[[Path], None]:
    return lambda folder: shutil.copy(found(folder, source), folder / name)


def told(change: Callable[[dict], None]) -> Callable[[Path], None]:
    """Changes package.json as an object."""
    def apply(folder: Path) -> None:
        path = folder / MANIFEST
        items = json.loads(path.read_text())
        change(items)
        path.write_text(json.dumps(items))
    return apply


def zipped(change: Callable[[dict[str, bytes]], None]) -> Callable[[Path], None]:
    """Changes the entries of the .xo."""
    def apply(folder: Path) -> None:
        with zipfile.ZipFile(folder / XO) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        change(entries)
        with zipfile.ZipFile(folder / XO, "w") as archive:
            for name, data in entries.items():
                archive.writestr(name, data)
    return apply


def entry(suffix: str, old: str, new: str) -> Callable[[Path], None]:
    def change(entries: dict[str, bytes]) -> None:
        name = next(name for name in entries if name.endswith(suffix))
        entries[name] = replaced(entries[name].decode(), old, new).encode()
    return zipped(change)


# -- The decoder in the Verilog.

SLAVE = "src/ControlSlave_*.v"


def decode(argument: str, word: int) -> Callable[[Path], None]:
    """Lets writes to `word` reach the argument's low word instead of those that did."""
    def change(folder: Path) -> None:
        path = found(folder, SLAVE)
        text = path.read_text()
        hit = re.search(rf"assign write_{argument}_0 = .* & (\\\S+) ;", text)[1]
        path.write_text(replaced(text, rf"(assign {re.escape(hit)}  = .* == )\d+'h[0-9a-f]+;", rf"\g<1>10'h{word:03x};"))
    return change


def both(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        for change in changes:
            change(folder)
    return apply


# -- Names in XML.

def arg(name: str, attribute: str, value: str) -> Callable[[Path], None]:
    return edit(KERNEL, (rf'(<arg name="{name}" [^>]*\b{attribute}=")[^"]*"', rf'\g<1>{value}"'))


def port(name: str, attribute: str, value: str) -> Callable[[Path], None]:
    return edit(KERNEL, (rf'(<port name="{name}" [^>]*\b{attribute}=")[^"]*"', rf'\g<1>{value}"'))


def register(name: str, old: str, new: str) -> Callable[[Path], None]:
    return edit(COMPONENT, (rf"(<spirit:register>\s*<spirit:name>{name}</spirit:name>(?:(?!</spirit:register>).)*?){old}",
                            rf"\g<1>{new}"))


def interface(name: str, old: str, new: str) -> Callable[[Path], None]:
    return edit(COMPONENT, (
        rf"(<spirit:busInterface>\s*<spirit:name>{name}</spirit:name>(?:(?!</spirit:busInterface>).)*?){old}",
        rf"\g<1>{new}"))


def model(name: str, old: str, new: str) -> Callable[[Path], None]:
    return edit(COMPONENT, (rf"(<spirit:port>\s*<spirit:name>{name}</spirit:name>(?:(?!</spirit:port>).)*?){old}",
                            rf"\g<1>{new}"))


PORT_MAP = r"<spirit:portMap>(?:(?!</spirit:portMap>).)*<spirit:name>{}</spirit:name>(?:(?!</spirit:portMap>).)*</spirit:portMap>"
FILE = r"<spirit:file>\s*<spirit:name>src/Divider[^<]*</spirit:name>.*?</spirit:file>"
M = Mutation

VERILOG = [
    M("decoder: writes of `inputs` moved by 4", SLAVE, decode("inputs", 0x28 // 4)),
    M("decoder: writes of `inputs` moved by 8", SLAVE, decode("inputs", 0x2C // 4)),
    M("decoder: reads of `inputs` moved by 4", SLAVE, edit(SLAVE, (r"10'h009:", "10'h3f1:"))),
    M("decoder: `inputs` and `outputs` exchanged", SLAVE, both(decode("inputs", 0x38 // 4), decode("outputs", 0x24 // 4))),
    M("decoder: `timeout` also where `result` is", SLAVE, decode("timeout", 0x74 // 4)),
    M("decoder: abort moved by 4", SLAVE, edit(SLAVE, (r"(\[11:2\] == )6'h22", r"\g<1>6'h23"))),
    M("decoder: status moved by 4", SLAVE, edit(SLAVE, (r"10'h024:", "10'h025:"))),
    M("decoder: a byte's strobe exchanged", SLAVE, edit(SLAVE, (r"(write_program_0 & \S+ )\[1\]", r"\g<1>[2]"))),
    M("decoder: the interrupt never comes", SLAVE, edit(SLAVE, (r"^    interrupt <= .*?;", "    interrupt <= 1'h0;"))),
    M("decoder: bus__rdata is never valid", SLAVE, edit(SLAVE, (r"^    bus__rvalid <= .*?;", "    bus__rvalid <= 1'h0;"))),
    M("top: port interrupt missing", TOP, edit(TOP, (r", interrupt, ap_clk\)", ", ap_clk)"), (r"^  output interrupt;\n", ""))),
    M("top: port m01_axi_awlen missing", TOP, edit(TOP, (r"m01_axi_awlen, ", ""), (r"^  output \[7:0\] m01_axi_awlen;\n", ""))),
    M("top: a debug pin", TOP, edit(TOP, (r", ap_clk\);", ", ap_clk, debug);\n  output debug;\n  assign debug = 1'h0;"))),
    M("top: m00_axi_wdata 128 -> 64 bits", TOP, edit(TOP, (r"output \[127:0\] m00_axi_wdata", "output [63:0] m00_axi_wdata"))),
    M("top: m00_axi_rdata and wdata 128 -> 96 bits", TOP, edit(TOP, *(
        (rf"{way} \[127:0\] m00_axi_{name}", f"{way} [95:0] m00_axi_{name}")
        for way, name in (("output", "wdata"), ("input", "rdata"))))),
    M("top: m01_axi_araddr 64 -> 32 bits", TOP, edit(TOP, (r"output \[63:0\] m01_axi_araddr", "output [31:0] m01_axi_araddr"))),
    M("top: s_axi_control_awaddr 12 -> 6 bits", TOP, edit(TOP, (r"input \[11:0\] s_axi_control_awaddr", "input [5:0] s_axi_control_awaddr"))),
    M("top: m00_axi_awready is an output", TOP, edit(TOP, (r"input m00_axi_awready", "output m00_axi_awready"))),
    M("top: a port in the list, not declared", TOP, edit(TOP, (r"^  input m00_axi_bid;\n", ""))),
    M("top: module renamed", TOP, edit(TOP, (r"^module hotrail_emb\(", "module hotrail_emb_top("))),
    M("top: core's reset left open", TOP, edit(TOP, (r"    \.rst\(\S+ \),\n", ""))),
    M("top: core's clock is not ap_clk", TOP, edit(TOP, (r"\.clk\(ap_clk\)", ".clk(interrupt)"))),
    M("top: core's wdata wired to 64 bits", TOP, edit(TOP, (r"\.m00_axi__wdata\(m00_axi_wdata\)", ".m00_axi__wdata(m00_axi_awaddr)"))),
    M("Verilog: a module emptied", "src/Divider_*.v", lambda folder: found(folder, "src/Divider_*.v").write_text("")),
    M("Verilog: a syntax error", "src/Divider_*.v", edit("src/Divider_*.v", (r"^  assign (\S+) ", r"  asign \1 "))),
    M("Verilog: endmodule missing", "src/Divider_*.v", edit("src/Divider_*.v", (r"^endmodule\n", ""))),
    M("Verilog: a name that nothing declares", "src/Reciprocal.v", edit("src/Reciprocal.v", (r"^  wire (?:\[\d+:0\] )?\\\$1 ;\n", ""))),
    M("Verilog: a file dropped", "src/Divider_*.v|src/TTUnit_*.v", drop("src/Divider_*.v")),
    M("Verilog: a module twice", "src/Twin.v", copied("src/Reciprocal.v", "src/Twin.v")),
    M("Verilog: a leftover of another configuration", "src/Divider_bits9.v", lambda folder: (
        folder / "src/Divider_bits9.v").write_text(replaced(found(folder, "src/Divider_*.v").read_text(), r"\bDivider_\w+", "Divider_bits9"))),
    M("Verilog: a part's port renamed", "src/TTUnit_*.v", edit("src/TTUnit_*.v", (r"(  Divider_\w+ divide_last \(\n    \.)(\w+)", r"\1\2_x"))),
    M("Verilog: a byte changed, package.json not", "src/secded_decoder.v", edit("src/secded_decoder.v", (r" \^ ", " & ")), False),
]
KERNEL_XML = [
    M("kernel.xml: offset of `inputs` moved by 4", KERNEL, arg("inputs", "offset", "0x28")),
    M("kernel.xml: offset of `inputs` moved by 8", KERNEL, arg("inputs", "offset", "0x2C")),
    M("kernel.xml: ids of `rows` and `ring` exchanged", KERNEL, both(arg("rows", "id", "8"), arg("ring", "id", "6"))),
    M("kernel.xml: a gap in the ids", KERNEL, arg("timeout", "id", "12")),
    M("kernel.xml: size of a pointer halved", KERNEL, arg("program", "size", "0x4")),
    M("kernel.xml: hostSize of a pointer halved", KERNEL, arg("program", "hostSize", "0x4")),
    M("kernel.xml: a pointer as a scalar", KERNEL, arg("rows", "addressQualifier", "0")),
    M("kernel.xml: a pointer at the other master", KERNEL, arg("rows", "port", "m00_axi")),
    M("kernel.xml: a pointer at a master that is not there", KERNEL, arg("rows", "port", "m02_axi")),
    M("kernel.xml: type of a scalar", KERNEL, arg("timeout", "type", "ulong")),
    M("kernel.xml: an argument dropped", KERNEL, edit(KERNEL, (r'\n *<arg name="timeout"[^>]*/>', ""))),
    M("kernel.xml: an argument more", KERNEL, edit(KERNEL, (r'(<arg name="timeout"[^>]*/>)', (
        r'\1<arg name="abort" addressQualifier="0" id="12" port="s_axi_control" size="0x4" offset="0x88" hostOffset="0x0" '
        r'hostSize="0x4" type="uint"/>')))),
    M("kernel.xml: two arguments in each other's place", KERNEL, edit(KERNEL, (r'(<arg name="ring"[^>]*/>)(\s*)(<arg name="ring_beats"[^>]*/>)', r"\3\2\1"))),
    M("kernel.xml: an argument renamed", KERNEL, edit(KERNEL, ('<arg name="ring"', '<arg name="rinse"'))),
    M("kernel.xml: an offset past the slave's range", KERNEL, arg("timeout", "offset", "0xFFE")),
    M("kernel.xml: range 0x1000 -> 0x100", KERNEL, port("s_axi_control", "range", "0x100")),
    M("kernel.xml: a master's range of 4 GB", KERNEL, port("m00_axi", "range", "0xFFFFFFFF")),
    M("kernel.xml: dataWidth 128 -> 256", KERNEL, port("m01_axi", "dataWidth", "256")),
    M("kernel.xml: a master as a slave", KERNEL, port("m01_axi", "mode", "slave")),
    M("kernel.xml: a port dropped", KERNEL, edit(KERNEL, (r'\n *<port name="m01_axi"[^>]*/>', ""))),
    M("kernel.xml: ctrl protocol ap_ctrl_chain", KERNEL, edit(KERNEL, ("ap_ctrl_hs", "ap_ctrl_chain"))),
    M("kernel.xml: no interrupt", KERNEL, edit(KERNEL, (' interrupt="true"', ' interrupt="false"'))),
    M("kernel.xml: kernel renamed", KERNEL, edit(KERNEL, ('<kernel name="hotrail_emb"', '<kernel name="hotrail_mlp"'))),
    M("kernel.xml: version in vlnv", KERNEL, edit(KERNEL, (r"hotrail_emb:0\.1", "hotrail_emb:0.2"))),
    M("kernel.xml: language", KERNEL, edit(KERNEL, ('"ip_c"', '"c"'))),
    M("kernel.xml: versionMinor 9 -> 0", KERNEL, edit(KERNEL, ('versionMinor="9"', 'versionMinor="0"'))),
    M("kernel.xml: cut off", KERNEL, edit(KERNEL, (r"</root>.*", ""))),
    M("kernel.xml: dropped", KERNEL, drop(KERNEL)),
]
COMPONENT_XML = [
    M("component.xml: offset of `inputs` moved by 4", COMPONENT, register("inputs", "0x024", "0x028")),
    M("component.xml: offset of `inputs` moved by 8", COMPONENT, register("inputs", "0x024", "0x02C")),
    M("component.xml: size of a pointer halved", COMPONENT, register("rows", ">64<", ">32<")),
    M("component.xml: a pointer at the other master", COMPONENT, register("rows", "m01_axi", "m00_axi")),
    M("component.xml: a pointer without ASSOCIATED_BUSIF", COMPONENT, register("rows", r"<spirit:parameters>.*?</spirit:parameters>", "")),
    M("component.xml: status may be written", COMPONENT, register("status", "read-only", "read-write")),
    M("component.xml: ap_done at bit 2", COMPONENT, register("CTRL", r"<spirit:bitOffset>1<", "<spirit:bitOffset>2<")),
    M("component.xml: a register dropped", COMPONENT, edit(COMPONENT, (r"<spirit:register>\s*<spirit:name>timeout</spirit:name>.*?</spirit:register>", ""))),
    M("component.xml: range 4096 -> 256", COMPONENT, edit(COMPONENT, (r">4096<", ">256<"))),
    M("component.xml: a port map dropped", COMPONENT, edit(COMPONENT, (PORT_MAP.format("m01_axi_awlen"), ""))),
    M("component.xml: a port map to another port", COMPONENT, edit(COMPONENT, (r"(<spirit:physicalPort>\s*<spirit:name>)m01_axi_awlen<", r"\g<1>m01_axi_arlen<"))),
    M("component.xml: two port maps exchanged", COMPONENT, edit(COMPONENT, (r">m00_axi_awlock<", ">@<"), (r">m00_axi_arlock<", ">m00_axi_awlock<"), (">@<", ">m00_axi_arlock<"))),
    M("component.xml: the interrupt's interface dropped", COMPONENT, edit(COMPONENT, (r"<spirit:busInterface>\s*<spirit:name>interrupt</spirit:name>.*?</spirit:busInterface>", ""))),
    M("component.xml: the clock without m01_axi", COMPONENT, edit(COMPONENT, (r"s_axi_control:m00_axi:m01_axi", "s_axi_control:m00_axi"))),
    M("component.xml: the clock without its reset", COMPONENT, interface("ap_clk", ">ap_rst_n<", "><")),
    M("component.xml: reset ACTIVE_HIGH", COMPONENT, interface("ap_rst_n", ">ACTIVE_LOW<", ">ACTIVE_HIGH<")),
    M("component.xml: interrupt EDGE_RISING", COMPONENT, interface("interrupt", ">LEVEL_HIGH<", ">EDGE_RISING<")),
    M("component.xml: a master as a slave", COMPONENT, interface("m00_axi", r"<spirit:master>(.*?)</spirit:master>", r"<spirit:slave>\g<2></spirit:slave>")),
    M("component.xml: DATA_WIDTH 128 -> 256", COMPONENT, interface("m00_axi", ">128<", ">256<")),
    M("component.xml: ADDR_WIDTH 64 -> 32", COMPONENT, interface("m01_axi", ">64<", ">32<")),
    M("component.xml: burst of 512 beats", COMPONENT, interface("m01_axi", "(MAX_BURST_LENGTH</spirit:name>.*?>)256<", r"\g<2>512<")),
    M("component.xml: an address space of 4 GB", COMPONENT, edit(COMPONENT, (">16777216T<", ">4294967296<"))),
    M("component.xml: a port of the model dropped", COMPONENT, edit(COMPONENT, (r"<spirit:port>\s*<spirit:name>m01_axi_awlen</spirit:name>.*?</spirit:port>", ""))),
    M("component.xml: a port of the model too wide", COMPONENT, model("m01_axi_awlen", ">7<", ">8<")),
    M("component.xml: a port of the model turned", COMPONENT, model("m01_axi_awlen", ">out<", ">in<")),
    M("component.xml: a file dropped from synthesis", COMPONENT, edit(COMPONENT, (FILE, ""))),
    M("component.xml: a file dropped from both sets", COMPONENT, edit(COMPONENT, (FILE, ""), (FILE, ""))),
    M("component.xml: a file that is not there", COMPONENT, edit(COMPONENT, (r"src/Reciprocal\.v", "src/Reciprocals.v"))),
    M("component.xml: the top module's name", COMPONENT, edit(COMPONENT, (r"<spirit:modelName>hotrail_emb<", "<spirit:modelName>EmbCore<"))),
    M("component.xml: IP renamed", COMPONENT, edit(COMPONENT, (r"<spirit:name>hotrail_emb<", "<spirit:name>hotrail<"))),
    M("component.xml: another version", COMPONENT, edit(COMPONENT, (r"<spirit:version>0\.1<", "<spirit:version>0.2<"))),
    M("component.xml: another library", COMPONENT, edit(COMPONENT, (r">RTLKernel<", ">user<"))),
    M("component.xml: taxonomy", COMPONENT, edit(COMPONENT, (r">/KernelIP<", ">/UserIP<"))),
    M("component.xml: sdx_kernel false", COMPONENT, edit(COMPONENT, (r"(sdx_kernel>)true<", r"\1false<"))),
    M("component.xml: sdx_kernel_type hls", COMPONENT, edit(COMPONENT, (r"(sdx_kernel_type>)rtl<", r"\1hls<"))),
    M("component.xml: written for Vivado 2023.1", COMPONENT, edit(COMPONENT, (r"(xilinxVersion>)[\d.]+<", r"\g<1>2023.1<"))),
    M("component.xml: elements in another order", COMPONENT, edit(COMPONENT, (r"(<spirit:addressSpaces>.*?</spirit:addressSpaces>)(\s*)(<spirit:memoryMaps>.*?</spirit:memoryMaps>)", r"\3\2\1"))),
    M("component.xml: cut off", COMPONENT, edit(COMPONENT, (r"</spirit:component>.*", ""))),
    M("component.xml: dropped", COMPONENT, drop(COMPONENT)),
]
TCL = [
    M("package.tcl: offset of `inputs` moved by 4", SCRIPT, edit(SCRIPT, ("    inputs 0x024", "    inputs 0x028"))),
    M("package.tcl: offset of `inputs` moved by 8", SCRIPT, edit(SCRIPT, ("    inputs 0x024", "    inputs 0x02C"))),
    M("package.tcl: size of a pointer halved", SCRIPT, edit(SCRIPT, ("    rows 0x04C 64", "    rows 0x04C 32"))),
    M("package.tcl: a pointer at the other master", SCRIPT, edit(SCRIPT, ("(    rows 0x04C 64 read-write) m01_axi", r"\1 m00_axi"))),
    M("package.tcl: a pointer without a master", SCRIPT, edit(SCRIPT, ("(    rows 0x04C 64 read-write) m01_axi", r"\1 {}"))),
    M("package.tcl: a register dropped", SCRIPT, edit(SCRIPT, (r"^    timeout 0x080.*?\n", ""))),
    M("package.tcl: a file dropped", SCRIPT, edit(SCRIPT, (r"^    Divider_\w+\.v\n", ""))),
    M("package.tcl: a file that is not there", SCRIPT, edit(SCRIPT, (r"^    Reciprocal\.v", "    Reciprocals.v"))),
    M("package.tcl: top is another module", SCRIPT, edit(SCRIPT, (r"set_property top \$name \[get_filesets sources_1\]", "set_property top EmbCore [get_filesets sources_1]"))),
    M("package.tcl: top never set for simulation", SCRIPT, edit(SCRIPT, (r"^set_property top \$name \[get_filesets sim_1\]\n", ""))),
    M("package.tcl: kernel renamed", SCRIPT, edit(SCRIPT, ("^set name hotrail_emb$", "set name hotrail_mlp"))),
    M("package.tcl: another version", SCRIPT, edit(SCRIPT, (r"set_property version 0\.1", "set_property version 0.2"))),
    M("package.tcl: another library", SCRIPT, edit(SCRIPT, ("-library RTLKernel", "-library user"))),
    M("package.tcl: another part", SCRIPT, edit(SCRIPT, ("xcku15p-ffva1156-2LV-e", "xcu200-fsgd2104-2-e"))),
    M("package.tcl: m01_axi without a clock", SCRIPT, edit(SCRIPT, (r"^ipx::associate_bus_interfaces -busif m01_axi.*?\n", ""))),
    M("package.tcl: reset ACTIVE_HIGH", SCRIPT, edit(SCRIPT, ("ACTIVE_LOW", "ACTIVE_HIGH"))),
    M("package.tcl: interrupt EDGE_RISING", SCRIPT, edit(SCRIPT, ("LEVEL_HIGH", "EDGE_RISING"))),
    M("package.tcl: a port of a bus dropped", SCRIPT, edit(SCRIPT, (r"^    m01_axi_awlen\n", ""))),
    M("package.tcl: no memory map at the slave", SCRIPT, edit(SCRIPT, (r"^set_property slave_memory_map_ref.*?\n", ""))),
    M("package.tcl: range 4096 -> 256", SCRIPT, edit(SCRIPT, (r"set_property range \S+", "set_property range 256"))),
    M("package.tcl: sdx_kernel_type missing", SCRIPT, edit(SCRIPT, (r"^set_property sdx_kernel_type.*?\n", ""))),
    M("package.tcl: integrity not checked as a kernel", SCRIPT, edit(SCRIPT, (r"check_integrity -kernel", "check_integrity"))),
    M("package.tcl: checksums after the core is saved", SCRIPT, edit(SCRIPT, (r"^ipx::update_checksums \$core\n", ""), (r"^ipx::save_core \$core\n", "ipx::save_core $core\nipx::update_checksums $core\n"))),
    M("package.tcl: package_xo without kernel.xml", SCRIPT, edit(SCRIPT, (r"-kernel_xml \[.*?\] ", ""))),
    M("package.tcl: a brace missing", SCRIPT, edit(SCRIPT, (r"\}\n\nset registers", "\n\nset registers"))),
    M("package.tcl: dropped", SCRIPT, drop(SCRIPT)),
]
LINK_CFG = [
    M("link.cfg: bank tag DDR[0]", LINK, edit(LINK, ("bank0", "DDR[0]"))),
    M("link.cfg: the masters on two banks", LINK, edit(LINK, ("m01_axi:bank0", "m01_axi:plram"))),
    M("link.cfg: nk of another kernel", LINK, edit(LINK, ("nk=hotrail_emb:", "nk=hotrail_mlp:"))),
    M("link.cfg: instance renamed", LINK, edit(LINK, (":hotrail_emb_1", ":emb_1"))),
    M("link.cfg: two instances announced", LINK, edit(LINK, (":1:hotrail_emb_1", ":2:hotrail_emb_1.hotrail_emb_2"))),
    M("link.cfg: nk missing", LINK, edit(LINK, (r"^nk=.*?\n", ""))),
    M("link.cfg: a line sp missing", LINK, edit(LINK, (r"^sp=\S*m01_axi.*?\n", ""))),
    M("link.cfg: sp of a port that is not there", LINK, edit(LINK, ("m01_axi", "m02_axi"))),
    M("link.cfg: sp twice", LINK, edit(LINK, (r"(^sp=\S+m01_axi:bank0\n)", r"\1\1"))),
    M("link.cfg: section renamed", LINK, edit(LINK, (r"\[connectivity\]", "[connection]"))),
    M("link.cfg: an unknown directive", LINK, edit(LINK, ("DIRECTIVE=Explore", "DIRECTIVE=Explode"))),
    M("link.cfg: dropped", LINK, drop(LINK)),
]
C_HEADER = [
    M("C: offset of `inputs` moved by 4", HEADER, edit(HEADER, (r"(ARG_INPUTS +)0x24", r"\g<1>0x28"))),
    M("C: offset of `inputs` moved by 8", HEADER, edit(HEADER, (r"(ARG_INPUTS +)0x24", r"\g<1>0x2c"))),
    M("C: offset of abort", HEADER, edit(HEADER, (r"(REG_ABORT +)0x88", r"\g<1>0x84"))),
    M("C: two opcodes exchanged", HEADER, edit(HEADER, (r"(EMB_LOAD +)1", r"\g<1>2"), (r"(EMB_BAGS +)2", r"\g<1>1"))),
    M("C: a device's number", HEADER, edit(HEADER, (r"(DEVICE_SSD +)2", r"\g<1>3"))),
    M("C: a code's number", HEADER, edit(HEADER, (r"(CODE_TIMEOUT +)9", r"\g<1>8"))),
    M("C: a field's mask", HEADER, edit(HEADER, (r"(CHUNK_ROWS_MASK +)0x000f0000u", r"\g<1>0x001f0000u"))),
    M("C: a field's lowest bit", HEADER, edit(HEADER, (r"(WEIGHTED_LOW +)10", r"\g<1>11"))),
    M("C: a field's word", HEADER, edit(HEADER, (r"(OUT_STRIDE_WORD +)12", r"\g<1>11"))),
    M("C: words of an instruction", HEADER, edit(HEADER, (r"(INSTRUCTION_WORDS +)16", r"\g<1>8"))),
    M("C: two fields of the result exchanged", HEADER, edit(HEADER, (r"(    uint32_t bag;[^\n]*\n)(    uint32_t index;[^\n]*\n)", r"\2\1"))),
    M("C: a counter of 32 bits", HEADER, edit(HEADER, (r"uint64_t cycles;", "uint32_t cycles;"))),
    M("C: offset of a result", HEADER, edit(HEADER, (r"(RESULT_CYCLES +)64", r"\g<1>68"))),
    M("C: the setter clears too much", HEADER, edit(HEADER, (r"& ~HOTRAIL_EMB_##field##_MASK", "& 0u"))),
    M("C: a macro dropped", HEADER, edit(HEADER, (r"^#define HOTRAIL_EMB_MODE_MEAN.*?\n", ""))),
    M("C: a macro more", HEADER, edit(HEADER, (r"(^#define HOTRAIL_EMB_MODE_MAX.*?\n)", r"\1#define HOTRAIL_EMB_MODE_MIN 3\n"))),
    M("C: a semicolon missing", HEADER, edit(HEADER, (r"uint32_t code;", "uint32_t code"))),
    M("C: dropped", HEADER, drop(HEADER)),
]
PYTHON_HEADER = [
    M("Python: offset of `inputs` moved by 4", MODULE, edit(MODULE, (r"'inputs': \(36,", "'inputs': (40,"))),
    M("Python: offset of `inputs` moved by 8", MODULE, edit(MODULE, (r"'inputs': \(36,", "'inputs': (44,"))),
    M("Python: bits of a pointer", MODULE, edit(MODULE, (r"'rows': \((\d+), 64", r"'rows': (\1, 32"))),
    M("Python: two arguments in each other's place", MODULE, edit(MODULE, (r"(    'ring': [^\n]*\n)(    'ring_beats': [^\n]*\n)", r"\2\1"))),
    M("Python: an opcode", MODULE, edit(MODULE, (r"'BAGS': 2", "'BAGS': 3"))),
    M("Python: a field's bits", MODULE, edit(MODULE, (r"'chunk_rows': \(9, 16, 4\)", "'chunk_rows': (9, 16, 5)"))),
    M("Python: states in another order", MODULE, edit(MODULE, (r"'idle', 'running'", "'running', 'idle'"))),
    M("Python: a result's word", MODULE, edit(MODULE, (r"'cycles': \(16,", "'cycles': (17,"))),
    M("Python: encode takes what does not fit", MODULE, edit(MODULE, (r"if not 0 <= value < 1 << bits:", "if value < 0:"))),
    M("Python: encode shifts the wrong way", MODULE, edit(MODULE, (r"value << low", "value >> low"))),
    M("Python: a bracket missing", MODULE, edit(MODULE, (r"^\}\n", ""))),
    M("Python: dropped", MODULE, drop(MODULE)),
]
REFERENCE = [
    M("page: offset of `inputs` moved by 4", PAGE, edit(PAGE, (r"\| 0x24 \| `inputs`", "| 0x28 | `inputs`"))),
    M("page: offset of `inputs` moved by 8", PAGE, edit(PAGE, (r"\| 0x24 \| `inputs`", "| 0x2c | `inputs`"))),
    M("page: bits of a pointer", PAGE, edit(PAGE, (r"`rows` \| 64", "`rows` | 32"))),
    M("page: a pointer at the other master", PAGE, edit(PAGE, (r"`rows` \| 64 \| m01", "`rows` | 64 | m00"))),
    M("page: an opcode", PAGE, edit(PAGE, (r"### 2 BAGS", "### 4 BAGS"))),
    M("page: bits of a field", PAGE, edit(PAGE, (r"19\.\.16 \| `chunk_rows`", "20..16 | `chunk_rows`"))),
    M("page: what a field may be", PAGE, edit(PAGE, (r"`chunk_rows` \| 1\.\.8", "`chunk_rows` | 1..15"))),
    M("page: offset of a result", PAGE, edit(PAGE, (r"\| 64 \| 64 \| `cycles`", "| 68 | 64 | `cycles`"))),
    M("page: a code's number", PAGE, edit(PAGE, (r"\| 9 \| TIMEOUT", "| 8 | TIMEOUT"))),
    M("page: a row dropped", PAGE, edit(PAGE, (r"^\| 0x80 \| `timeout`.*?\n", ""))),
    M("page: dropped", PAGE, drop(PAGE)),
]
PACKAGE_JSON = [
    M("package.json: an entry removed", MANIFEST, told(lambda t: t["files"].pop("link.cfg")), False),
    M("package.json: an entry of no file", "src/Old.v", told(lambda t: t["files"].update({"src/Old.v": "0" * 64})), False),
    M("package.json: a digest changed", KERNEL, told(lambda t: t["files"].update({KERNEL: "0" * 64})), False),
    M("package.json: kernel renamed", MANIFEST, told(lambda t: t.update(kernel="hotrail_mlp"))),
    M("package.json: version in vlnv", KERNEL, told(lambda t: t.update(vlnv=t["vlnv"].replace("0.1", "0.2")))),
    M("package.json: another core", "kernel.xml|hotrail_mlp.h|package.json", told(lambda t: t.update(core="mlp"))),
    M("package.json: an unknown core", MANIFEST, told(lambda t: t.update(core="gru"))),
    M("package.json: the masters' depth", SCRIPT, told(lambda t: t["config"].update(reads_in_flight=16))),
    M("package.json: a clock that the card has not", MANIFEST, told(lambda t: t.update(clock_mhz=400))),
    M("package.json: another platform", MANIFEST, told(lambda t: t.update(platform="xilinx_u200"))),
    M("package.json: another number of instances", LINK, told(lambda t: t.update(instances=2))),
    M("package.json: no JSON", MANIFEST, write(MANIFEST, "{"), False),
    M("package.json: dropped", MANIFEST, drop(MANIFEST), False),
]
XO_FILE = [
    M(".xo: xo.xml names another kernel", XO, entry("xo.xml", 'Name="hotrail_emb"', 'Name="hotrail_mlp"')),
    M(".xo: xo.xml names another folder", XO, entry("xo.xml", "hotrail_emb_0_1", "hotrail_emb_0_2")),
    M(".xo: xo.xml says it is from HLS", XO, entry("xo.xml", 'Hls="no"', 'Hls="yes"')),
    M(".xo: written for Vivado 2023.1", XO, entry("xo.xml", 'SoftwareVersionMajor="2021"', 'SoftwareVersionMajor="2023"')),
    M(".xo: offset of `inputs` moved by 4 in its kernel.xml alone", XO, entry("/kernel.xml", 'offset="0x24"', 'offset="0x28"')),
    M(".xo: another component.xml than beside it", XO, entry("component.xml", "ACTIVE_LOW", "ACTIVE_HIGH")),
    M(".xo: a file dropped", XO, zipped(lambda e: e.pop(next(name for name in e if "/src/Divider" in name)))),
    M(".xo: xo.xml dropped", XO, zipped(lambda e: e.pop("xo.xml"))),
    M(".xo: a file more", XO, zipped(lambda e: e.update({"ip_repo/old.v": b""}))),
    M(".xo: cut off", XO, lambda folder: (folder / XO).write_bytes((folder / XO).read_bytes()[:-100])),
]
FOLDER = [
    M("folder: a file that nobody listed", "notes.txt", write("notes.txt", "x"), False),
    M("folder: a stranger, listed", "notes.txt", write("notes.txt", "x")),
    M("folder: another core's header", "hotrail_mlp.h", copied(HEADER, "hotrail_mlp.h")),
    M("folder: the form dropped", "xgui/*", drop("xgui/*.tcl")),
    M("folder: the form does something", "xgui/*", edit("xgui/*.tcl", ("Page 0", "Page 1"))),
    M("folder: no text", SCRIPT, lambda folder: (folder / SCRIPT).write_bytes(b"\xff\xfe")),
]
MUTATIONS = [*VERILOG, *KERNEL_XML, *COMPONENT_XML, *TCL, *LINK_CFG, *C_HEADER, *PYTHON_HEADER, *REFERENCE, *PACKAGE_JSON,
             *XO_FILE, *FOLDER]
