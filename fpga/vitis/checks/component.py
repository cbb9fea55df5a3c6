"""component.xml read back: interfaces, registers, ports and files against the Verilog's top and hw.isa."""

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from lxml import etree

from fpga.vitis.checks.expected import CONTROL, CONTROL_BYTES, Expected
from fpga.vitis.checks.facts import ANY, Facts, compare, flatten, parse
from fpga.vitis.checks.ports import CLOCK, INTERRUPT, RESET, Interface, Top, depths

__all__ = ["HANDSHAKE", "VIVADO", "component_xml", "listed"]

FILE = "component.xml"
SPIRIT, XILINX = "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009", "http://www.xilinx.com"
# The order that IEEE 1685-2009 asks for, of what is there.
ORDER = ("vendor", "library", "name", "version", "busInterfaces", "addressSpaces", "memoryMaps", "model", "choices",
         "fileSets", "description", "parameters", "vendorExtensions")
VIVADO = ("2021.1", "2021.2", "2022.1", "2022.2")
SYNTHESIS, SIMULATION, FORM = "xilinx_anylanguagesynthesis", "xilinx_anylanguagebehavioralsimulation", "xilinx_xpgui"
HANDSHAKE = {"CTRL": 0x00, "GIER": 0x04, "IP_IER": 0x08, "IP_ISR": 0x0C}
# Register -> field -> (bit, access, what writing does, what reading does). UG1393, control register of ap_ctrl_hs.
FIELDS = {
    "CTRL": {"AP_START": (0, "read-write", "oneToSet", ""), "AP_DONE": (1, "read-only", "", "clear"),
             "AP_IDLE": (2, "read-only", "", ""), "AP_READY": (3, "read-only", "", "clear"),
             "AUTO_RESTART": (7, "read-write", "", "")},
    "GIER": {"ENABLE": (0, "read-write", "", "")},
    "IP_IER": {"DONE": (0, "read-write", "", ""), "READY": (1, "read-write", "", "")},
    "IP_ISR": {"DONE": (0, "read-write", "oneToToggle", ""), "READY": (1, "read-write", "oneToToggle", "")},
}
RESETS = {"CTRL": 4}    # idle
TOP = "component"


def component_xml(data: bytes, expected: Expected, top: Top | None, vlnv: str, verilog: Collection[str],
                  config: Mapping[str, int]) -> Iterator[str]:
    """What a component.xml says that is not so.

    Parameters  verilog: the paths of the Verilog, "src/<module>.v"; config: the core's, for the masters' depths"""
    root = parse(data)
    if isinstance(root, str):
        yield f"{FILE}: {root}"
        return
    tags = [etree.QName(child).localname for child in root]
    if tags != [tag for tag in ORDER if tag in tags]:
        yield f"{FILE}: its elements stand in the order {', '.join(tags)}; the standard's is {', '.join(ORDER)}"
    maps: dict[str, dict[str, str]] = {}
    for interface in root.iter(f"{{{SPIRIT}}}busInterface"):
        name = interface.findtext(f"{{{SPIRIT}}}name", "")
        for node in list(interface.iter(f"{{{SPIRIT}}}portMaps")):
            maps.setdefault(name, {})
            yield from _maps(node, name, maps[name])
            node.getparent().remove(node)
    if top is None:
        return      # said of the Verilog
    yield from _mapped(maps, top)
    found = flatten(root, {SPIRIT: "", XILINX: "xilinx:", None: "plain:"}, "name")
    version = f"{TOP}/vendorExtensions/xilinx:packagingInfo/xilinx:xilinxVersion"
    if found.get(version) not in VIVADO:
        yield f"{FILE}: {version} is {found.pop(version, None)!r}; it must be one of {', '.join(VIVADO)}"
    yield from compare(FILE, found, _wanted(expected, top, vlnv, tuple(verilog), tuple(config.items())))


@lru_cache(maxsize=8)
def _wanted(expected: Expected, top: Top, vlnv: str, verilog: tuple[str, ...], config: tuple[tuple[str, int], ...]
            ) -> Facts:
    return {
        **_name(expected, vlnv), **_interfaces(top, dict(config)), **_spaces(top), **_registers(expected),
        **_views(expected), **_ports(top), **_choices(), **_files(expected, verilog, vlnv), **_rest(expected, vlnv),
    }


def _maps(node: etree._Element, interface: str, into: dict[str, str]) -> Iterator[str]:
    """Reads the port maps: logical name -> port of the top."""
    for pair in node:
        logical = pair.findtext(f"{{{SPIRIT}}}logicalPort/{{{SPIRIT}}}name")
        physical = pair.findtext(f"{{{SPIRIT}}}physicalPort/{{{SPIRIT}}}name")
        shape = flatten(pair, {SPIRIT: "", XILINX: "xilinx:", None: "plain:"}, "")
        if set(shape) != {"portMap/logicalPort/name", "portMap/physicalPort/name"} or not logical or not physical:
            yield f"{FILE}: busInterface {interface}: a port map must hold two names; it holds {sorted(shape)}"
        elif logical in into:
            yield f"{FILE}: busInterface {interface}: {logical} is mapped twice"
        else:
            into[logical] = physical


def _mapped(maps: dict[str, dict[str, str]], top: Top) -> Iterator[str]:
    wanted = {interface.name: {signal: port.name for signal, port in interface.signals}
              for interface in top.interfaces}
    wanted |= {RESET: {"RST": RESET}, CLOCK: {"CLK": CLOCK}, INTERRUPT: {"INTERRUPT": INTERRUPT}}
    for name, pairs in wanted.items():
        yield from compare(FILE, {f"busInterface[{name}]/portMap[{k}]": v for k, v in maps.get(name, {}).items()},
                           {f"busInterface[{name}]/portMap[{k}]": v for k, v in pairs.items()})


def _name(expected: Expected, vlnv: str) -> Facts:
    return {f"{TOP}/{tag}": text for tag, text in zip(("vendor", "library", "name", "version"), vlnv.split(":"))}


def _definition(node: str, kind: str) -> Facts:
    library, name = kind.split(":")
    return {f"{node}/{tag}@{key}": value for tag, end in (("busType", ""), ("abstractionType", "_rtl"))
            for key, value in (("vendor", "xilinx.com"), ("library", library), ("name", name + end),
                               ("version", "1.0"))}


def _interfaces(top: Top, config: Mapping[str, int]) -> Facts:
    out: Facts = {}
    buses = [interface.name for interface in top.interfaces]
    parameters: dict[str, dict[str, str]] = {interface.name: _axi(interface, config) for interface in top.interfaces}
    parameters |= {RESET: {"POLARITY": "ACTIVE_LOW"}, INTERRUPT: {"SENSITIVITY": "LEVEL_HIGH"},
                   CLOCK: {"ASSOCIATED_RESET": RESET, "ASSOCIATED_BUSIF": ":".join(buses)}}
    kinds = {RESET: ("signal:reset", "slave"), CLOCK: ("signal:clock", "slave"),
             INTERRUPT: ("signal:interrupt", "master")}
    lists = {RESET: "choice_list_polarity", INTERRUPT: "choice_list_sensitivity"}
    for name, values in parameters.items():
        node = f"{TOP}/busInterfaces/busInterface[{name}]"
        kind, mode = kinds.get(name, ("interface:aximm", "slave" if name == CONTROL else "master"))
        out |= {f"{node}/name": name, **_definition(node, kind)}
        if name in buses:
            reference = "memoryMapRef" if name == CONTROL else "addressSpaceRef"
            out[f"{node}/{mode}/{reference}@{reference}"] = name
        else:
            out[f"{node}/{mode}"] = ""
        for parameter, value in values.items():
            inner = f"{node}/parameters/parameter[{parameter}]"
            out |= {f"{inner}/name": parameter, f"{inner}/value": value,
                    f"{inner}/value@id": f"BUSIFPARAM_VALUE.{name.upper()}.{parameter}"}
            if name in lists:
                out[f"{inner}/value@choiceRef"] = lists[name]
    return out


def _axi(interface: Interface, config: Mapping[str, int]) -> dict[str, str]:
    lite = interface.name == CONTROL
    out = {"PROTOCOL": "AXI4LITE" if lite else "AXI4", "DATA_WIDTH": str(interface.data_bits),
           "ADDR_WIDTH": str(interface.address_bits), "READ_WRITE_MODE": "READ_WRITE"}
    return out if lite else out | {"ID_WIDTH": "1"} | depths(interface, config)


def _spaces(top: Top) -> Facts:
    out: Facts = {}
    for interface in top.interfaces[1:]:
        node = f"{TOP}/addressSpaces/addressSpace[{interface.name}]"
        out |= {f"{node}/name": interface.name, f"{node}/range": "16777216T", f"{node}/range@format": "long",
                f"{node}/width": str(interface.data_bits), f"{node}/width@format": "long"}
    return out


def listed(expected: Expected) -> list[tuple[str, int, int, str, str, str]]:
    """Every register: name, offset, bits, access, the master that it is a pointer for, what it is."""
    return [*((name, offset, 32, "read-write", "", ANY) for name, offset in HANDSHAKE.items()),
            *((a.name, a.offset, 8 * a.bytes, "read-write", a.bus if a.pointer else "", a.about)
              for a in expected.arguments),
            *((r.name, r.offset, 32, f"{r.access}-only", "", r.about) for r in expected.registers)]


def _registers(expected: Expected) -> Facts:
    memory = f"{TOP}/memoryMaps/memoryMap[{CONTROL}]"
    block = f"{memory}/addressBlock[reg0]"
    out = {f"{memory}/name": CONTROL, f"{block}/name": "reg0", f"{block}/baseAddress": "0",
           f"{block}/baseAddress@format": "bitString", f"{block}/baseAddress@resolve": "user",
           f"{block}/baseAddress@bitStringLength": "32", f"{block}/range": str(CONTROL_BYTES),
           f"{block}/range@format": "long", f"{block}/width": "32", f"{block}/width@format": "long",
           f"{block}/usage": "register"}
    for name, offset, bits, access, bus, about in listed(expected):
        node = f"{block}/register[{name}]"
        out |= {f"{node}/name": name, f"{node}/description": about, f"{node}/addressOffset": hex(offset),
                f"{node}/size": str(bits), f"{node}/size@format": "long", f"{node}/access": access,
                f"{node}/reset/value": str(RESETS.get(name, 0)), f"{node}/reset/value@format": "long"}
        if bus:
            parameter = f"{node}/parameters/parameter[ASSOCIATED_BUSIF]"
            out |= {f"{parameter}/name": "ASSOCIATED_BUSIF", f"{parameter}/value": bus}
        for field, (bit, way, write, read) in FIELDS.get(name, {}).items():
            inner = f"{node}/field[{field}]"
            out |= {f"{inner}/name": field, f"{inner}/description": ANY, f"{inner}/bitOffset": str(bit),
                    f"{inner}/bitWidth": "1", f"{inner}/access": way}
            out |= {f"{inner}/{tag}": value for tag, value in (("modifiedWriteValue", write), ("readAction", read))
                    if value}
    return out


def _views(expected: Expected) -> Facts:
    out: Facts = {}
    for name, tool in ((SYNTHESIS, "synthesis"), (SIMULATION, "simulation"), (FORM, "xgui.ui")):
        node = f"{TOP}/model/views/view[{name}]"
        out |= {f"{node}/name": name, f"{node}/displayName": ANY, f"{node}/envIdentifier": f":vivado.xilinx.com:{tool}",
                f"{node}/fileSetRef/localName": f"{name}_view_fileset"}
        if name != FORM:
            out |= {f"{node}/language": "Verilog", f"{node}/modelName": expected.kernel}
    return out


def _ports(top: Top) -> Facts:
    out: Facts = {}
    for port in top.ports:
        node = f"{TOP}/model/ports/port[{port.name}]"
        kind = f"{node}/wire/wireTypeDefs/wireTypeDef"
        out |= {f"{node}/name": port.name, f"{node}/wire/direction": port.direction, f"{kind}/typeName": "wire",
                f"{kind}/viewNameRef": SYNTHESIS, f"{kind}/viewNameRef#2": SIMULATION}
        if port.bits > 1:
            vector = f"{node}/wire/vector"
            out |= {f"{vector}/left": str(port.bits - 1), f"{vector}/left@format": "long", f"{vector}/right": "0",
                    f"{vector}/right@format": "long"}
        if port.direction == "in" and port.name not in (CLOCK, RESET):
            out |= {f"{node}/wire/driver/defaultValue": "0", f"{node}/wire/driver/defaultValue@format": "long"}
    return out


def _choices() -> Facts:
    out: Facts = {}
    for name, values in (("choice_list_sensitivity", ("LEVEL_HIGH", "LEVEL_LOW", "EDGE_RISING", "EDGE_FALLING")),
                         ("choice_list_polarity", ("ACTIVE_HIGH", "ACTIVE_LOW"))):
        node = f"{TOP}/choices/choice[{name}]"
        out[f"{node}/name"] = name
        for number, value in enumerate(values, 1):
            out[f"{node}/enumeration" + (f"#{number}" if number > 1 else "")] = value
    return out


def _title(expected: Expected, vlnv: str) -> str:
    return f"{expected.kernel}_v{vlnv.rpartition(':')[2].replace('.', '_')}"


def _files(expected: Expected, verilog: Collection[str], vlnv: str) -> Facts:
    out: Facts = {}
    sets = {SYNTHESIS: list(verilog), SIMULATION: list(verilog),
            FORM: [f"xgui/{_title(expected, vlnv)}.tcl"]}
    for view, names in sets.items():
        node = f"{TOP}/fileSets/fileSet[{view}_view_fileset]"
        out[f"{node}/name"] = f"{view}_view_fileset"
        for name in names:
            kind, user = ("tclSource", "XGUI_VERSION_2") if view == FORM else ("verilogSource", "IMPORTED_FILE")
            out |= {f"{node}/file[{name}]/name": name, f"{node}/file[{name}]/fileType": kind,
                    f"{node}/file[{name}]/userFileType": user}
    return out


def _rest(expected: Expected, vlnv: str) -> Facts:
    parameter, core = f"{TOP}/parameters/parameter[Component_Name]", f"{TOP}/vendorExtensions/xilinx:coreExtensions"
    return {
        f"{TOP}/description": expected.about,
        f"{parameter}/name": "Component_Name", f"{parameter}/value": _title(expected, vlnv),
        f"{parameter}/value@resolve": "user", f"{parameter}/value@id": "PARAM_VALUE.Component_Name",
        f"{parameter}/value@order": "1",
        f"{core}/xilinx:taxonomies/xilinx:taxonomy": "/KernelIP", f"{core}/xilinx:displayName": ANY,
        f"{core}/xilinx:autoFamilySupportLevel": "level_2", f"{core}/xilinx:definitionSource": "package_project",
        f"{core}/xilinx:coreRevision": "1", f"{core}/xilinx:coreCreationDateTime": ANY,
        **{f"{core}/xilinx:xpmLibraries/xilinx:xpmLibrary{number}": f"XPM_{name}"
           for number, name in (("", "CDC"), ("#2", "MEMORY"), ("#3", "FIFO"))},
        f"{core}/xilinx:sdxKernelAttributes/xilinx:sdx_kernel": "true",
        f"{core}/xilinx:sdxKernelAttributes/xilinx:sdx_kernel_type": "rtl",
        f"{TOP}/vendorExtensions/xilinx:packagingInfo/xilinx:xilinxVersion": ANY,
    }
