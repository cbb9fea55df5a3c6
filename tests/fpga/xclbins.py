"""Xclbins for the tests of the real card's runtime: kernel.xml of a core as its package has it."""

from lxml import etree

from gen.headers import KERNELS

PLATFORM = "xilinx_u2_gen3x4_xdma_gc_2_202110_1"


def kernel_xml(core, bits=512):
    isa = KERNELS[core]
    root = etree.Element("root", versionMajor="1", versionMinor="9")
    kernel = etree.SubElement(root, "kernel", name=f"hotrail_{core}", language="ip_c",
                              vlnv=f"hotrail:RTLKernel:hotrail_{core}:0.1", attributes="",
                              preferredWorkGroupSizeMultiple="0", workGroupSize="1", interrupt="true",
                              hwControlProtocol="ap_ctrl_hs")
    ports = etree.SubElement(kernel, "ports")
    etree.SubElement(ports, "port", name="s_axi_control", mode="slave", range="0x1000", dataWidth="32",
                     portType="addressable", base="0x0")
    for name in sorted({a.port for a in isa.arguments if a.port}):
        etree.SubElement(ports, "port", name=f"{name}_axi", mode="master", range="0xFFFFFFFFFFFFFFFF",
                         dataWidth=str(bits), portType="addressable", base="0x0")
    args = etree.SubElement(kernel, "args")
    for number, a in enumerate(isa.arguments):
        pointer, size = a.kind == "pointer", a.bits // 8
        etree.SubElement(args, "arg", name=a.name, addressQualifier="1" if pointer else "0", id=str(number),
                         port=f"{a.port}_axi" if pointer else "s_axi_control", size=f"0x{size:x}",
                         offset=f"0x{a.offset:x}", hostOffset="0x0", hostSize=f"0x{size:x}",
                         type="void*" if pointer else "uint")
    return etree.tostring(root, pretty_print=True)
