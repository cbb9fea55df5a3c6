"""What can go wrong in kernel.xml and component.xml."""

from collections.abc import Callable
from pathlib import Path

from tests.mutations.changes import COMPONENT, KERNEL, both, drop, edit
from tests.mutations.changes import Mutation as M


def arg(name: str, attribute: str, value: str) -> Callable[[Path], None]:
    return edit(KERNEL, (rf'(<arg name="{name}" [^>]*\b{attribute}=")[^"]*"', rf'\g<1>{value}"'))


def port(name: str, attribute: str, value: str) -> Callable[[Path], None]:
    return edit(KERNEL, (rf'(<port name="{name}" [^>]*\b{attribute}=")[^"]*"', rf'\g<1>{value}"'))


def register(name: str, old: str, new: str) -> Callable[[Path], None]:
    return edit(
        COMPONENT,
        (rf"(<spirit:register>\s*<spirit:name>{name}</spirit:name>(?:(?!</spirit:register>).)*?){old}", rf"\g<1>{new}"),
    )


def interface(name: str, old: str, new: str) -> Callable[[Path], None]:
    return edit(
        COMPONENT,
        (
            rf"(<spirit:busInterface>\s*<spirit:name>{name}</spirit:name>(?:(?!</spirit:busInterface>).)*?){old}",
            rf"\g<1>{new}",
        ),
    )


def model(name: str, old: str, new: str) -> Callable[[Path], None]:
    return edit(
        COMPONENT,
        (rf"(<spirit:port>\s*<spirit:name>{name}</spirit:name>(?:(?!</spirit:port>).)*?){old}", rf"\g<1>{new}"),
    )


PORT_MAP = (
    r"<spirit:portMap>(?:(?!</spirit:portMap>).)*<spirit:name>{}</spirit:name>(?:(?!</spirit:portMap>).)*"
    r"</spirit:portMap>"
)
FILE = r"<spirit:file>\s*<spirit:name>src/Divider[^<]*</spirit:name>.*?</spirit:file>"
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
    M(
        "kernel.xml: an argument more",
        KERNEL,
        edit(
            KERNEL,
            (
                r'(<arg name="timeout"[^>]*/>)',
                (
                    r'\1<arg name="abort" addressQualifier="0" id="12" port="s_axi_control" size="0x4" '
                    r'offset="0x88" hostOffset="0x0" '
                    r'hostSize="0x4" type="uint"/>'
                ),
            ),
        ),
    ),
    M(
        "kernel.xml: two arguments in each other's place",
        KERNEL,
        edit(KERNEL, (r'(<arg name="ring"[^>]*/>)(\s*)(<arg name="ring_beats"[^>]*/>)', r"\3\2\1")),
    ),
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
    M(
        "component.xml: a pointer without ASSOCIATED_BUSIF",
        COMPONENT,
        register("rows", r"<spirit:parameters>.*?</spirit:parameters>", ""),
    ),
    M("component.xml: status may be written", COMPONENT, register("status", "read-only", "read-write")),
    M("component.xml: ap_done at bit 2", COMPONENT, register("CTRL", r"<spirit:bitOffset>1<", "<spirit:bitOffset>2<")),
    M(
        "component.xml: a register dropped",
        COMPONENT,
        edit(COMPONENT, (r"<spirit:register>\s*<spirit:name>timeout</spirit:name>.*?</spirit:register>", "")),
    ),
    M("component.xml: range 4096 -> 256", COMPONENT, edit(COMPONENT, (r">4096<", ">256<"))),
    M("component.xml: a port map dropped", COMPONENT, edit(COMPONENT, (PORT_MAP.format("m01_axi_awlen"), ""))),
    M(
        "component.xml: a port map to another port",
        COMPONENT,
        edit(COMPONENT, (r"(<spirit:physicalPort>\s*<spirit:name>)m01_axi_awlen<", r"\g<1>m01_axi_arlen<")),
    ),
    M(
        "component.xml: two port maps exchanged",
        COMPONENT,
        edit(
            COMPONENT,
            (r">m00_axi_awlock<", ">@<"),
            (r">m00_axi_arlock<", ">m00_axi_awlock<"),
            (">@<", ">m00_axi_arlock<"),
        ),
    ),
    M(
        "component.xml: the interrupt's interface dropped",
        COMPONENT,
        edit(COMPONENT, (r"<spirit:busInterface>\s*<spirit:name>interrupt</spirit:name>.*?</spirit:busInterface>", "")),
    ),
    M(
        "component.xml: the clock without m01_axi",
        COMPONENT,
        edit(COMPONENT, (r"s_axi_control:m00_axi:m01_axi", "s_axi_control:m00_axi")),
    ),
    M("component.xml: the clock without its reset", COMPONENT, interface("ap_clk", ">ap_rst_n<", "><")),
    M("component.xml: reset ACTIVE_HIGH", COMPONENT, interface("ap_rst_n", ">ACTIVE_LOW<", ">ACTIVE_HIGH<")),
    M("component.xml: interrupt EDGE_RISING", COMPONENT, interface("interrupt", ">LEVEL_HIGH<", ">EDGE_RISING<")),
    M(
        "component.xml: a master as a slave",
        COMPONENT,
        interface("m00_axi", r"<spirit:master>(.*?)</spirit:master>", r"<spirit:slave>\g<2></spirit:slave>"),
    ),
    M("component.xml: DATA_WIDTH 128 -> 256", COMPONENT, interface("m00_axi", ">128<", ">256<")),
    M("component.xml: ADDR_WIDTH 64 -> 32", COMPONENT, interface("m01_axi", ">64<", ">32<")),
    M(
        "component.xml: burst of 512 beats",
        COMPONENT,
        interface("m01_axi", "(MAX_BURST_LENGTH</spirit:name>.*?>)256<", r"\g<2>512<"),
    ),
    M("component.xml: an address space of 4 GB", COMPONENT, edit(COMPONENT, (">16777216T<", ">4294967296<"))),
    M(
        "component.xml: a port of the model dropped",
        COMPONENT,
        edit(COMPONENT, (r"<spirit:port>\s*<spirit:name>m01_axi_awlen</spirit:name>.*?</spirit:port>", "")),
    ),
    M("component.xml: a port of the model too wide", COMPONENT, model("m01_axi_awlen", ">7<", ">8<")),
    M("component.xml: a port of the model turned", COMPONENT, model("m01_axi_awlen", ">out<", ">in<")),
    M("component.xml: a file dropped from synthesis", COMPONENT, edit(COMPONENT, (FILE, ""))),
    M("component.xml: a file dropped from both sets", COMPONENT, edit(COMPONENT, (FILE, ""), (FILE, ""))),
    M(
        "component.xml: a file that is not there",
        COMPONENT,
        edit(COMPONENT, (r"src/Reciprocal\.v", "src/Reciprocals.v")),
    ),
    M(
        "component.xml: the top module's name",
        COMPONENT,
        edit(COMPONENT, (r"<spirit:modelName>hotrail_emb<", "<spirit:modelName>EmbCore<")),
    ),
    M("component.xml: IP renamed", COMPONENT, edit(COMPONENT, (r"<spirit:name>hotrail_emb<", "<spirit:name>hotrail<"))),
    M("component.xml: another version", COMPONENT, edit(COMPONENT, (r"<spirit:version>0\.1<", "<spirit:version>0.2<"))),
    M("component.xml: another library", COMPONENT, edit(COMPONENT, (r">RTLKernel<", ">user<"))),
    M("component.xml: taxonomy", COMPONENT, edit(COMPONENT, (r">/KernelIP<", ">/UserIP<"))),
    M("component.xml: sdx_kernel false", COMPONENT, edit(COMPONENT, (r"(sdx_kernel>)true<", r"\1false<"))),
    M("component.xml: sdx_kernel_type hls", COMPONENT, edit(COMPONENT, (r"(sdx_kernel_type>)rtl<", r"\1hls<"))),
    M(
        "component.xml: written for Vivado 2023.1",
        COMPONENT,
        edit(COMPONENT, (r"(xilinxVersion>)[\d.]+<", r"\g<1>2023.1<")),
    ),
    M(
        "component.xml: elements in another order",
        COMPONENT,
        edit(
            COMPONENT,
            (
                r"(<spirit:addressSpaces>.*?</spirit:addressSpaces>)(\s*)(<spirit:memoryMaps>.*?</spirit:memoryMaps>)",
                r"\3\2\1",
            ),
        ),
    ),
    M("component.xml: cut off", COMPONENT, edit(COMPONENT, (r"</spirit:component>.*", ""))),
    M("component.xml: dropped", COMPONENT, drop(COMPONENT)),
]
