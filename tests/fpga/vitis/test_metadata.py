"""kernel.xml and component.xml of the tiny cores: held against the schemas, hw.isa, the Verilog and the RTL."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from amaranth.sim import Simulator
from lxml import etree

from fpga.vitis.component_xml import component_xml
from fpga.vitis.ipxact import NAMESPACES, SPIRIT
from fpga.vitis.kernel_xml import kernel_xml
from fpga.vitis.xgui import xgui, xgui_path
from gen.rtl import config as presets
from gen.rtl.headers import KERNELS as ISA
from gen.rtl.verilog import interface
from hw.axi.control import ControlSlave
from tests.support import vitis_schema as schema
from tests.support.vitis_kernels import KERNELS, converted, prepared
from tests.support.vitis_verilog import modules

both = pytest.mark.parametrize("core", KERNELS)


def component(core):
    return etree.fromstring(component_xml(*prepared(core)))


def texts(node, path):
    return [found.text for found in node.iterfind(path, NAMESPACES)]


def text(node, path):
    return node.findtext(path, None, NAMESPACES)


def name(node):
    return text(node, "spirit:name")


def interfaces(root):
    return {name(node): node for node in root.iterfind("spirit:busInterfaces/spirit:busInterface", NAMESPACES)}


def parameters(node):
    return {name(found): text(found, "spirit:value")
            for found in node.iterfind("spirit:parameters/spirit:parameter", NAMESPACES)}


@cache
def verilog_ports(core):
    """Name -> (direction, bits) as Yosys reads them in the top's Verilog."""
    top = modules({"top.v": interface(prepared(core)[1][f"hotrail_{core}.v"])})[f"hotrail_{core}"]
    return {name: (port["direction"].removesuffix("put"), len(port["bits"])) for name, port in top["ports"].items()}


def test_all_kernels_are_here():
    assert set(KERNELS) == set(ISA)


@both
def test_kernel_xml_obeys_its_schema(core):
    written = kernel_xml(prepared(core)[0])
    assert schema.kernel_errors(written) == []
    assert written.startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n') and written.endswith(b"</root>\n")


@both
def test_kernel_xml_says_what_the_isa_says(core):
    kernel = etree.fromstring(kernel_xml(prepared(core)[0])).find("kernel")
    assert kernel.get("name") == f"hotrail_{core}" and kernel.get("vlnv") == prepared(core)[0].vlnv
    found = [(a.get("name"), int(a.get("id")), int(a.get("offset"), 16), 8 * int(a.get("size"), 16), a.get("port"),
              a.get("addressQualifier"), a.get("hostSize")) for a in kernel.iterfind("args/arg")]
    assert found == [
        (a.name, number, a.offset, a.bits, f"{a.port}_axi" if a.port else "s_axi_control", "1" if a.port else "0",
         f"0x{a.bits // 8:X}") for number, a in enumerate(ISA[core].arguments)]
    ports = {port.get("name"): port for port in kernel.iterfind("ports/port")}
    bits = verilog_ports(core)
    assert set(ports) == {port.removesuffix("_wdata") for port in bits if port.endswith("_wdata")}
    for port, node in ports.items():
        assert int(node.get("dataWidth")) == bits[f"{port}_wdata"][1]
        assert node.get("range") == ("0x1000" if port == "s_axi_control" else "0xFFFFFFFFFFFFFFFF")


@both
def test_component_xml_obeys_the_standard(core):
    assert schema.component_errors(component_xml(*prepared(core))) == []


@both
def test_ports_are_those_of_the_verilog(core):
    found = {}
    for port in component(core).iterfind("spirit:model/spirit:ports/spirit:port", NAMESPACES):
        high = text(port, "spirit:wire/spirit:vector/spirit:left")
        found[name(port)] = (text(port, "spirit:wire/spirit:direction"), int(high or 0) + 1)
        assert (text(port, "spirit:wire/spirit:driver/spirit:defaultValue") == "0") == (
            found[name(port)][0] == "in" and name(port) not in ("ap_clk", "ap_rst_n"))
    assert found == verilog_ports(core)


@both
def test_every_pin_belongs_to_one_interface(core):
    root = component(core)
    mapped = Counter()
    for interface_name, node in interfaces(root).items():
        for pair in node.iterfind("spirit:portMaps/spirit:portMap", NAMESPACES):
            logical, pin = (text(pair, f"spirit:{kind}Port/spirit:name") for kind in ("logical", "physical"))
            mapped[pin] += 1
            assert pin == interface_name or pin == f"{interface_name}_{logical.lower()}"
    assert mapped == Counter(verilog_ports(core).keys())


@both
def test_interfaces_name_their_partners(core):
    root, kernel = component(core), prepared(core)[0]
    found = interfaces(root)
    masters = [bus.name for bus in kernel.masters]
    assert list(found) == ["s_axi_control", *masters, "ap_rst_n", "ap_clk", "interrupt"]
    clock = parameters(found["ap_clk"])
    assert clock == {"ASSOCIATED_RESET": "ap_rst_n", "ASSOCIATED_BUSIF": ":".join(["s_axi_control", *masters])}
    assert parameters(found["ap_rst_n"]) == {"POLARITY": "ACTIVE_LOW"}
    assert parameters(found["interrupt"]) == {"SENSITIVITY": "LEVEL_HIGH"}
    assert parameters(found["s_axi_control"])["PROTOCOL"] == "AXI4LITE"
    spaces = {name(node): node for node in root.iterfind("spirit:addressSpaces/spirit:addressSpace", NAMESPACES)}
    assert list(spaces) == masters
    for bus in kernel.masters:
        given = parameters(found[bus.name])
        assert (given["PROTOCOL"], given["READ_WRITE_MODE"]) == ("AXI4", "READ_WRITE")
        assert (given["DATA_WIDTH"], given["ADDR_WIDTH"]) == (str(bus.data_bits), "64")
        assert int(given["MAX_BURST_LENGTH"]) * bus.data_bits // 8 <= 4096 and given["SUPPORTS_NARROW_BURST"] == "0"
        # Every port of the core may have this many requests under way: what HDL and metadata both come from.
        config = presets.load("tiny").cores[core]
        assert (given["NUM_READ_OUTSTANDING"], given["NUM_WRITE_OUTSTANDING"]) == (
            str(config.reads_in_flight), str(config.writes_in_flight))
        assert text(spaces[bus.name], "spirit:range") == "16777216T" and 16777216 << 40 == 1 << 64


def test_interfaces_follow_their_pins():
    """A master without write channels is read only; what has no bursts is AXI4-Lite."""
    kernel, files = prepared("emb")
    reads = tuple(pin for pin in kernel.masters[1].pins if pin.signal[:2] not in ("AW",) and pin.signal[0] not in "WB")
    altered = replace(kernel, buses=(*kernel.buses[:2], replace(kernel.buses[2], pins=reads)))
    found = parameters(interfaces(etree.fromstring(component_xml(altered, files)))["m01_axi"])
    assert (found["PROTOCOL"], found["READ_WRITE_MODE"]) == ("AXI4", "READ_ONLY")


@both
def test_registers_are_those_of_the_isa(core):
    isa, found = ISA[core], {}
    block = component(core).find("spirit:memoryMaps/spirit:memoryMap/spirit:addressBlock", NAMESPACES)
    assert (name(block), text(block, "spirit:range"), text(block, "spirit:width")) == ("reg0", "4096", "32")
    for node in block.iterfind("spirit:register", NAMESPACES):
        found[name(node)] = (int(text(node, "spirit:addressOffset"), 16), int(text(node, "spirit:size")),
                             text(node, "spirit:access"), parameters(node).get("ASSOCIATED_BUSIF"))
    assert list(found)[:4] == ["CTRL", "GIER", "IP_IER", "IP_ISR"]
    assert [found.pop(key) for key in list(found)[:4]] == [(4 * n, 32, "read-write", None) for n in range(4)]
    assert found == {
        **{a.name: (a.offset, a.bits, "read-write", f"{a.port}_axi" if a.port else None) for a in isa.arguments},
        **{r.name: (r.offset, 32, f"{r.access}-only", None) for r in isa.registers}}


@both
def test_registers_do_what_component_xml_says(core):
    """The control slave's RTL at the offsets of component.xml: values after reset, which bits of the handshake's
    registers can be written, and that each argument is written and read where it is said to lie."""
    block = component(core).find("spirit:memoryMaps/spirit:memoryMap/spirit:addressBlock", NAMESPACES)
    registers = {name(node): node for node in block.iterfind("spirit:register", NAMESPACES)}
    words = {register: [int(text(node, "spirit:addressOffset"), 16) + at
                        for at in range(0, int(text(node, "spirit:size")) // 8, 4)]
             for register, node in registers.items()}
    given = {argument.name: 0x1234_5678_9ABC_DEF0 * number % (1 << argument.bits)
             for number, argument in enumerate(ISA[core].arguments, 1)}
    dut = ControlSlave(kernel=ISA[core])
    bus, reads, writable, held, again = dut.bus, {}, {}, {}, {}

    async def read(ctx, register):
        value = 0
        for number, offset in enumerate(words[register]):
            ctx.set(bus.araddr, offset)
            ctx.set(bus.arvalid, 1)
            await ctx.tick().until(bus.arready)
            ctx.set(bus.arvalid, 0)
            word, = await ctx.tick().sample(bus.rdata).until(bus.rvalid)
            value |= word << 32 * number
        return value

    async def write(ctx, register, value):
        for number, offset in enumerate(words[register]):
            word = value >> 32 * number & 0xFFFFFFFF
            for port, bits in ((bus.awaddr, offset), (bus.wdata, word), (bus.wstrb, 15), (bus.awvalid, 1),
                               (bus.wvalid, 1)):
                ctx.set(port, bits)
            await ctx.tick()
            ctx.set(bus.awvalid, 0)
            ctx.set(bus.wvalid, 0)
            await ctx.tick().until(bus.bvalid)

    async def bench(ctx):
        ctx.set(bus.rready, 1)
        ctx.set(bus.bready, 1)
        for register in registers:
            reads[register] = await read(ctx, register)
        for register in ("GIER", "IP_IER", "IP_ISR"):
            await write(ctx, register, 0xFFFFFFFF)
            writable[register] = await read(ctx, register)
        for argument, value in given.items():
            await write(ctx, argument, value)
        for argument in given:
            again[argument] = await read(ctx, argument)
            held[argument] = ctx.get(dut.arguments[argument])

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert reads == {register: int(text(node, "spirit:reset/spirit:value"), 16)
                     for register, node in registers.items()}
    bits = {register: texts(registers[register], "spirit:field/spirit:bitOffset") for register in writable}
    assert writable == {register: sum(1 << int(bit) for bit in bits[register]) for register in bits}
    assert again == held == given


@both
def test_files_stand_in_both_sets_once(core):
    root, (kernel, files) = component(core), prepared(core)
    sets = {name(node): texts(node, "spirit:file/spirit:name")
            for node in root.iterfind("spirit:fileSets/spirit:fileSet", NAMESPACES)}
    *verilog, constraints = sets["xilinx_anylanguagesynthesis_view_fileset"]
    assert constraints == f"src/hotrail_{core}.xdc"
    assert sorted(verilog) == sorted(f"src/{file}" for file in files) and verilog[-1] == f"src/hotrail_{core}.v"
    assert sets["xilinx_anylanguagebehavioralsimulation_view_fileset"] == verilog
    assert sets["xilinx_xpgui_view_fileset"] == [xgui_path(kernel)]
    assert "init_gui" in xgui(kernel) and "\r" not in xgui(kernel)


def test_cached_kernels_are_what_prepare_gives(monkeypatch):
    from fpga.vitis import description

    known = {core: converted(core) for core in KERNELS}     # by the function itself, whatever test came before
    monkeypatch.setattr(description.verilog, "convert", lambda component, top: known[component.kernel.name])
    for core in KERNELS:
        assert description.prepare("tiny", core) == prepared(core)


def test_component_xml_wants_the_kernels_files():
    kernel, files = prepared("mlp")
    less = dict(files)
    del less["hotrail_mlp.v"]
    with pytest.raises(ValueError, match=r"^hotrail_mlp: hotrail_mlp\.v is missing$"):
        component_xml(kernel, less)
    with pytest.raises(ValueError, match=r"^hotrail_mlp: extra\.v is none of its files$"):
        component_xml(kernel, {**files, "extra.v": ""})


@pytest.mark.parametrize("old, new, sentence", [
    ('id="3"', 'id="13"', "ids of the arguments are not 0, 1, 2"),
    ('offset="0x1C"', 'offset="0x14"', "program_count at 0x14 lies on program"),
    ('offset="0x80"', 'offset="0x1000"', "timeout at 0x1000 passes the end of s_axi_control"),
    ('offset="0x10"', 'offset="0xC"', "program at 0xc lies on the handshake's registers"),
    ('id="0" port="m00_axi"', 'id="0" port="s_axi_control"', "program is a pointer on a slave port"),
    ('id="1" port="s_axi_control"', 'id="1" port="m00_axi"', "program_count is a scalar on a master port"),
    ('size="0x4" offset="0x1C"', 'size="0x8" offset="0x1C"', "program_count has 8 bytes, on the host 0x4; pointers"),
    ('mode="slave"', 'mode="master"', "a kernel has one slave port, this one 0"),
    ('ap_ctrl_hs', 'ap_ctrl_chain', "hwControlProtocol"),
])
def test_kernel_errors_are_seen(old, new, sentence):
    written = kernel_xml(prepared("emb")[0]).decode()
    assert old in written
    errors = schema.kernel_errors(written.replace(old, new, 1).encode())
    assert errors and any(sentence in error for error in errors), errors


@pytest.mark.parametrize("old, new, sentence", [
    ('memoryMapRef="s_axi_control"', 'memoryMapRef="gone"', "No match found for key-sequence ['gone']"),
    ("<spirit:name>GIER", "<spirit:name>CTRL", "Duplicate key-sequence ['CTRL']"),
    ("<spirit:access>read-write", "<spirit:access>perhaps", "'perhaps' is not an element of the set"),
])
def test_component_errors_are_seen(old, new, sentence):
    written = component_xml(*prepared("emb")).decode()
    assert old in written
    errors = schema.component_errors(written.replace(old, new, 1).encode())
    assert errors and any(sentence in error for error in errors) and SPIRIT not in "".join(errors), errors
