"""The registers of a kernel in SystemRDL 2.0, for tools that make drivers, models and documents of them.

Source: Accellera SystemRDL 2.0; the registers are those of fpga.vitis.description, which component.xml shows too.
"""

from collections.abc import Iterator

from fpga.vitis.description import KernelRegister, RegisterField, RtlKernel

ACCESS = {"read-write": "rw", "read-only": "r", "write-only": "w"}
ON_WRITE = {"": "", "oneToSet": "onwrite = woset; ", "oneToToggle": "onwrite = wot; "}
ON_READ = {"": "", "clear": "onread = rclr; "}
WORD_BITS = 32


def rdl_name(kernel: RtlKernel) -> str:
    return f"{kernel.name}.rdl"


def rdl(kernel: RtlKernel) -> str:
    """The text, the same bytes from the same description. A pointer is two registers, <name>_low and <name>_high."""
    lines = [f"// Registers of the kernel {kernel.name} ({kernel.vlnv}). Generated: do not edit.",
             "// SPDX-License-Identifier: Apache-2.0", f"addrmap {kernel.name} {{",
             f"    desc = {_text(kernel.about)};", "    default regwidth = 32;", "    default accesswidth = 32;"]
    for register in kernel.registers:
        for part in range(register.bits // WORD_BITS):
            lines += _register(register, part)
    return "\n".join([*lines, "};", ""])


def _register(register: KernelRegister, part: int) -> Iterator[str]:
    """One word of a register."""
    name = register.name if register.bits == WORD_BITS else f"{register.name}_{('low', 'high')[part]}"
    yield "    reg {"
    yield f"        desc = {_text(register.about)};"
    for field in register.fields or (RegisterField("value", 0, register.access, register.about),):
        top = field.bit if register.fields else WORD_BITS - 1
        # The core writes what the host does not.
        hardware = "w" if field.access == "read-only" else "rw" if field.write or field.read else "r"
        yield (f"        field {{ sw = {ACCESS[field.access]}; hw = {hardware}; {ON_WRITE[field.write]}"
               f"{ON_READ[field.read]}desc = {_text(field.about)}; }} "
               f"\\{field.name}[{top}:{field.bit}] = {field.reset};")
    yield f"    }} \\{name} @ 0x{register.offset + WORD_BITS // 8 * part:X};"


def _text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
