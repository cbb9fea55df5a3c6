"""The registers of a kernel's control slave in IP-XACT."""

from lxml import etree

from fpga.vitis.description import KernelRegister, RegisterField, RtlKernel
from fpga.vitis.ipxact import named, parameter, spirit


def memory_maps(root: etree._Element, kernel: RtlKernel) -> None:
    """Appends the one memory map, with one block, `reg0`, and every register in it."""
    control = kernel.control
    block = named(named(spirit(root, "memoryMaps"), "memoryMap", control.name), "addressBlock", "reg0")
    spirit(block, "baseAddress", 0, format="bitString", resolve="user", bitStringLength="32")
    spirit(block, "range", control.range_bytes, format="long")
    spirit(block, "width", control.data_bits, format="long")
    spirit(block, "usage", "register")
    for register in kernel.registers:
        _register(block, register)


def _register(block: etree._Element, register: KernelRegister) -> None:
    node = named(block, "register", register.name)
    spirit(node, "description", register.about)
    spirit(node, "addressOffset", f"0x{register.offset:03X}")
    spirit(node, "size", register.bits, format="long")
    spirit(node, "access", register.access)
    spirit(spirit(node, "reset"), "value", f"0x{register.reset:X}", format="long")
    for field in register.fields:
        _field(node, field)
    if register.bus:
        parameter(spirit(node, "parameters"), "ASSOCIATED_BUSIF", register.bus)


def _field(register: etree._Element, field: RegisterField) -> None:
    node = named(register, "field", field.name.upper())
    spirit(node, "description", field.about)
    spirit(node, "bitOffset", field.bit)
    spirit(node, "bitWidth", 1)
    spirit(node, "access", field.access)
    if field.write:
        spirit(node, "modifiedWriteValue", field.write)
    if field.read:
        spirit(node, "readAction", field.read)
