"""component.xml: the IP of a kernel as Vivado's catalogue and `v++` read it.

Source: IEEE 1685-2009; the order and the extensions are those of Vivado 2021.1 to 2022.2 for RTL kernels. Held against
the standard's schemas by the tests; whether Vivado takes the file is unverified.

Vivado writes checksums of views and files and of what it packaged. How it computes them is published nowhere, and a
wrong one would be worse than none: they are left out. The supported path, package.tcl, lets Vivado write its own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from lxml import etree

from fpga.vitis import document
from fpga.vitis.buses import bus_parameters
from fpga.vitis.constraints import xdc_name
from fpga.vitis.description import Bus, Pin, RtlKernel
from fpga.vitis.ipxact import choices, component, named, parameter, spirit, vlnv, xilinx
from fpga.vitis.registers_xml import memory_maps
from fpga.vitis.xgui import xgui_path

VIVADO = "2021.1"               # the oldest that the package is meant for
SOURCES = "src"                 # the folder of the Verilog beside component.xml
CREATED = "1980-01-01T00:00:00Z"    # fixed: the bytes depend on the kernel alone
SYNTHESIS, SIMULATION, FORM = "xilinx_anylanguagesynthesis", "xilinx_anylanguagebehavioralsimulation", "xilinx_xpgui"
# Vivado's check of a kernel asks for them whether the Verilog uses them or not (message IP_Flow 19-5630).
XPM_LIBRARIES = ("XPM_CDC", "XPM_MEMORY", "XPM_FIFO")
POLARITY, SENSITIVITY = "choice_list_polarity", "choice_list_sensitivity"
CHOICES = {SENSITIVITY: ("LEVEL_HIGH", "LEVEL_LOW", "EDGE_RISING", "EDGE_FALLING"),
           POLARITY: ("ACTIVE_HIGH", "ACTIVE_LOW")}


def component_xml(kernel: RtlKernel, files: Mapping[str, bytes | str]) -> bytes:
    """The text of a kernel's component.xml; the same bytes from the same description.

    Parameters  files: the Verilog by name, as it will lie in `src/`
    Raises      ValueError: they are not the kernel's files"""
    if strange := sorted(set(files) ^ set(kernel.files)):
        where = "is missing" if strange[0] in kernel.files else "is none of its files"
        raise ValueError(f"{kernel.name}: {strange[0]} {where}")
    root = component()
    for tag, text in (("vendor", kernel.vendor), ("library", kernel.library), ("name", kernel.name),
                      ("version", kernel.version)):
        spirit(root, tag, text)
    _interfaces(root, kernel)
    _address_spaces(root, kernel)
    memory_maps(root, kernel)
    model = spirit(root, "model")
    _views(model, kernel)
    ports = spirit(model, "ports")
    for pin in kernel.pins:
        _port(ports, pin, driven=pin in (kernel.clock, kernel.reset))
    choices(root, CHOICES)
    _file_sets(root, kernel)
    spirit(root, "description", kernel.about)
    parameter(spirit(root, "parameters"), "Component_Name", _title(kernel), resolve="user",
              id="PARAM_VALUE.Component_Name", order="1")
    _extensions(root, kernel)
    return document.text(root)


def _title(kernel: RtlKernel) -> str:
    return f"{kernel.name}_v{kernel.version.replace('.', '_')}"


# -- Interfaces and address spaces.

def _interfaces(root: etree._Element, kernel: RtlKernel) -> None:
    top = spirit(root, "busInterfaces")
    for bus in kernel.buses:
        slave = bus.mode == "slave"
        node = _interface(top, bus.name, "interface:aximm", bus.mode, bus.pins)
        reference = "memoryMapRef" if slave else "addressSpaceRef"
        # The element of the mode stands third, behind the two types.
        spirit(node[3], reference, **{reference: bus.name})
        _parameters(node, bus.name, _axi(bus, kernel.config))
    node = _interface(top, kernel.reset.name, "signal:reset", "slave", (kernel.reset,))
    _parameters(node, kernel.reset.name, {"POLARITY": "ACTIVE_LOW"}, choiceRef=POLARITY)
    node = _interface(top, kernel.clock.name, "signal:clock", "slave", (kernel.clock,))
    _parameters(node, kernel.clock.name, {"ASSOCIATED_RESET": kernel.reset.name,
                                          "ASSOCIATED_BUSIF": ":".join(bus.name for bus in kernel.buses)})
    node = _interface(top, kernel.interrupt.name, "signal:interrupt", "master", (kernel.interrupt,))
    _parameters(node, kernel.interrupt.name, {"SENSITIVITY": "LEVEL_HIGH"}, choiceRef=SENSITIVITY)


def _interface(top: etree._Element, name: str, kind: str, mode: str, pins: Iterable[Pin]) -> etree._Element:
    node = named(top, "busInterface", name)
    vlnv(node, "busType", kind)
    vlnv(node, "abstractionType", f"{kind}_rtl")
    spirit(node, mode)
    maps = spirit(node, "portMaps")
    for pin in pins:
        pair = spirit(maps, "portMap")
        named(pair, "logicalPort", pin.signal)
        named(pair, "physicalPort", pin.name)
    return node


def _parameters(node: etree._Element, bus: str, values: Mapping[str, object], **attributes: str) -> None:
    top = spirit(node, "parameters")
    for name, value in values.items():
        parameter(top, name, value, id=f"BUSIFPARAM_VALUE.{bus.upper()}.{name}", **attributes)


def _axi(bus: Bus, config: Any) -> dict[str, object]:
    """What the pins and the core's configuration say of an AXI interface."""
    bits = {pin.signal: pin.bits for pin in bus.pins}
    mode = "_".join(word for word, channel in (("READ", "ARVALID"), ("WRITE", "AWVALID")) if channel in bits)
    return {
        "PROTOCOL": "AXI4" if "AWLEN" in bits or "ARLEN" in bits else "AXI4LITE",
        "DATA_WIDTH": bus.data_bits,
        "ADDR_WIDTH": bus.address_bits,
        **({"ID_WIDTH": bits["ARID"]} if "ARID" in bits else {}),
        "READ_WRITE_MODE": mode if "_" in mode else f"{mode}_ONLY",
        **bus_parameters(bus, config),
    }


def _address_spaces(root: etree._Element, kernel: RtlKernel) -> None:
    top = spirit(root, "addressSpaces")
    for bus in kernel.masters:
        space = named(top, "addressSpace", bus.name)
        spirit(space, "range", _scaled(bus.range_bytes), format="long")
        spirit(space, "width", bus.data_bits, format="long")


def _scaled(number: int) -> str:
    """As Vivado writes ranges: all of a 64-bit space is 16777216T."""
    return str(number) if number % (1 << 40) else f"{number >> 40}T"


# -- Model and files.

def _views(model: etree._Element, kernel: RtlKernel) -> None:
    top = spirit(model, "views")
    for name, display, tool in ((SYNTHESIS, "Synthesis", "synthesis"), (SIMULATION, "Simulation", "simulation"),
                                (FORM, "UI Layout", "xgui.ui")):
        view = named(top, "view", name)
        spirit(view, "displayName", display)
        spirit(view, "envIdentifier", f":vivado.xilinx.com:{tool}")
        if name != FORM:
            spirit(view, "language", "Verilog")
            spirit(view, "modelName", kernel.name)
        spirit(spirit(view, "fileSetRef"), "localName", f"{name}_view_fileset")


def _port(ports: etree._Element, pin: Pin, *, driven: bool) -> None:
    """A port of the top module; `driven`: it is always connected, so it needs no value of its own."""
    wire = spirit(named(ports, "port", pin.name), "wire")
    spirit(wire, "direction", pin.direction)
    if pin.bits > 1:
        vector = spirit(wire, "vector")
        spirit(vector, "left", pin.bits - 1, format="long")
        spirit(vector, "right", 0, format="long")
    kind = spirit(spirit(wire, "wireTypeDefs"), "wireTypeDef")
    spirit(kind, "typeName", "wire")
    for view in (SYNTHESIS, SIMULATION):
        spirit(kind, "viewNameRef", view)
    if pin.direction == "in" and not driven:
        spirit(spirit(wire, "driver"), "defaultValue", 0, format="long")


def _file_sets(root: etree._Element, kernel: RtlKernel) -> None:
    top = spirit(root, "fileSets")
    last = f"{kernel.name}.v"       # the top module stands behind what it is made of
    verilog = sorted(kernel.files, key=lambda name: (name == last, name))
    for view in (SYNTHESIS, SIMULATION):
        files = named(top, "fileSet", f"{view}_view_fileset")
        for name in verilog:
            _file(files, f"{SOURCES}/{name}", "verilogSource", "IMPORTED_FILE")
        if view == SYNTHESIS:       # placement and routing read it too
            constraints = named(files, "file", f"{SOURCES}/{xdc_name(kernel)}")
            for kind in ("xdc", "IMPORTED_FILE", "USED_IN_implementation", "USED_IN_synthesis"):
                spirit(constraints, "userFileType", kind)
    _file(named(top, "fileSet", f"{FORM}_view_fileset"), xgui_path(kernel), "tclSource", "XGUI_VERSION_2")


def _file(files: etree._Element, name: str, kind: str, user: str) -> None:
    file = named(files, "file", name)
    spirit(file, "fileType", kind)
    spirit(file, "userFileType", user)


def _extensions(root: etree._Element, kernel: RtlKernel) -> None:
    """No supportedFamilies: level_2 is every family of the chip in hand, as Vivado writes RTL kernels."""
    top = spirit(root, "vendorExtensions")
    core = xilinx(top, "coreExtensions")
    xilinx(xilinx(core, "taxonomies"), "taxonomy", "/KernelIP")
    xilinx(core, "displayName", _title(kernel))
    xilinx(core, "autoFamilySupportLevel", "level_2")
    xilinx(core, "definitionSource", "package_project")
    libraries = xilinx(core, "xpmLibraries")
    for name in XPM_LIBRARIES:
        xilinx(libraries, "xpmLibrary", name)
    xilinx(core, "coreRevision", 1)
    xilinx(core, "coreCreationDateTime", CREATED)
    attributes = xilinx(core, "sdxKernelAttributes")
    xilinx(attributes, "sdx_kernel", "true")
    xilinx(attributes, "sdx_kernel_type", "rtl")
    xilinx(xilinx(top, "packagingInfo"), "xilinxVersion", VIVADO)
