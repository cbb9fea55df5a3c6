"""kernel.xml: what XRT and `v++` know of a kernel's ports and arguments."""

from lxml import etree

from fpga.vitis import document
from fpga.vitis.description import Bus, KernelArgument, RtlKernel

VERSION = ("1", "9")
SCALAR, GLOBAL = "0", "1"      # values of addressQualifier


def kernel_xml(kernel: RtlKernel) -> bytes:
    """The text of a kernel's kernel.xml; the same bytes from the same description.

    Source: UG1393, kernel.xml of RTL kernels. The tests hold it against a schema and XRT's parser."""
    root = etree.Element("root", versionMajor=VERSION[0], versionMinor=VERSION[1])
    top = etree.SubElement(
        root, "kernel", name=kernel.name, language="ip_c", vlnv=kernel.vlnv, attributes="",
        preferredWorkGroupSizeMultiple="0", workGroupSize="1", interrupt="true", hwControlProtocol="ap_ctrl_hs",
        # XRT's driver then ends the run of a host that is gone by CTRL, without a reset of the device.
        swReset="true")
    ports, arguments = etree.SubElement(top, "ports"), etree.SubElement(top, "args")
    for bus in kernel.buses:
        etree.SubElement(ports, "port", _port(bus))
    for argument in kernel.arguments:
        etree.SubElement(arguments, "arg", _argument(argument))
    return document.text(root)


def _port(bus: Bus) -> dict[str, str]:
    # The whole of a 64-bit space is no 64-bit number: its last address stands for it.
    reach = min(bus.range_bytes, (1 << 64) - 1)
    return {"name": bus.name, "mode": bus.mode, "range": f"0x{reach:X}", "dataWidth": str(bus.data_bits),
            "portType": "addressable", "base": "0x0"}


def _argument(argument: KernelArgument) -> dict[str, str]:
    size = f"0x{argument.bytes:X}"
    return {"name": argument.name, "addressQualifier": GLOBAL if argument.pointer else SCALAR, "id": str(argument.id),
            "port": argument.bus, "size": size, "offset": f"0x{argument.offset:X}", "hostOffset": "0x0",
            "hostSize": size, "type": argument.type}
