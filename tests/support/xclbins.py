"""Xclbins for XRT's parser and its noop shim, of the kernel.xml of a core: no device takes them."""

import uuid as uuids

from lxml import etree

from fpga.vitis.xclbin import (
    BANK,
    BITSTREAM,
    CLOCK,
    CLOCKS,
    CONNECTIVITY,
    DATA_CLOCK,
    ENTRY,
    HEADER,
    IP,
    IP_KERNEL,
    IP_LAYOUT,
    LINK,
    MAGIC,
    METADATA,
    TOP,
    TOPOLOGY,
    Xclbin,
    read,
)
from gen.model.device import Device
from gen.model.platform import Platform

CLOCK_MHZ = 250
CONTROL = 0x180_0000        # registers of the first instance
DDR4 = RECONFIGURED = 1
GROUPS, GROUP_LINKS = 26, 27


def write(path, kernel_xml, *, platform, instances=1, bitstream=b"") -> Xclbin:
    """Every pointer of every instance is connected to one bank. bitstream: what stands in its place."""
    kernel, board = etree.fromstring(kernel_xml).find("kernel"), Platform.load()
    memory = Device.load(board.name).memory
    pointers = [number for number, arg in enumerate(kernel.iterfind("args/arg")) if arg.get("addressQualifier") == "1"]
    names = [f"{kernel.get('name')}_{number + 1}" for number in range(instances)]
    topology = counted(1, 8, BANK.pack(DDR4, 1, memory.bytes >> 10, memory.base, board.tag(0).encode()))
    connectivity = counted(instances * len(pointers), 4, b"".join(
        LINK.pack(number, instance, 0) for instance in range(instances) for number in pointers))
    layout = b"".join(IP.pack(IP_KERNEL, 0, CONTROL + (number << 16), f"{kernel.get('name')}:{name}".encode())
                      for number, name in enumerate(names))
    sections = {
        BITSTREAM: bitstream,
        METADATA: project(kernel, names, platform),
        TOPOLOGY: topology,
        CONNECTIVITY: connectivity,
        IP_LAYOUT: counted(instances, 8, layout),
        CLOCKS: counted(1, 2, CLOCK.pack(CLOCK_MHZ, DATA_CLOCK, b"DATA_CLK")),
        GROUPS: topology,
        GROUP_LINKS: connectivity,
    }
    own = uuids.uuid5(uuids.NAMESPACE_OID, f"{platform} {instances} {etree.tostring(kernel).hex()}")
    at = TOP.size + HEADER.size + len(sections) * ENTRY.size
    entries, body = b"", b""
    for kind, data in sections.items():
        entries += ENTRY.pack(kind, b"", at + len(body), len(data))
        body += data + bytes(-len(data) % 8)
    header = HEADER.pack(at + len(body), 0, 0, 0, 2, 1, RECONFIGURED, 0, bytes(16), platform.encode(), own.bytes, b"",
                         len(sections))
    path.write_bytes(TOP.pack(MAGIC, -1, b"\xff" * 28, b"\xff" * 256, 0) + header + entries + body)
    return read(path)


def counted(count, first, entries):
    """A section of so many entries, the first at byte `first`."""
    return count.to_bytes(min(first, 4), "little").ljust(first, b"\0") + entries


def project(kernel, names, platform):
    """EMBEDDED_METADATA as the linker makes it of a kernel.xml, as far as XRT reads it. names: of the instances."""
    root = etree.Element("project", name=kernel.get("name"))
    place = etree.SubElement(etree.SubElement(root, "platform", name=platform), "device", name="fpga0")
    core = etree.SubElement(place, "core", name="OCL_REGION_0", target="bitstream", type="clc_region")
    clocks = etree.SubElement(core, "kernelClocks")
    etree.SubElement(clocks, "clock", port="DATA_CLK", frequency=f"{CLOCK_MHZ}MHz")
    node = etree.SubElement(core, "kernel", dict(kernel.attrib))
    for group in ("ports/port", "args/arg"):
        for item in kernel.iterfind(group):
            etree.SubElement(node, item.tag, dict(item.attrib))
    control = next(port.get("name") for port in kernel.iterfind("ports/port") if port.get("mode") == "slave")
    for number, name in enumerate(names):
        instance = etree.SubElement(node, "instance", name=name)
        etree.SubElement(instance, "addrRemap", base=f"0x{CONTROL + (number << 16):x}", port=control)
    return etree.tostring(root, xml_declaration=True, encoding="UTF-8", pretty_print=True)
