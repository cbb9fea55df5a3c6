"""The registers in SystemRDL, read back word by word and field by field."""

import re

import pytest

from fpga.vitis.systemrdl import _text, rdl
from tests.support.vitis_kernels import KERNELS, prepared

FIELD = re.compile(r"        field \{ sw = (\w+); hw = (\w+); (.*)desc = (\".*\"); \} \\(\w+)\[(\d+):(\d+)\] = (\d+);")


@pytest.mark.parametrize("core", KERNELS)
def test_registers_come_back(core):
    kernel, _ = prepared(core)
    text = rdl(kernel)
    assert text.startswith("// Registers of the kernel ") and f"addrmap {kernel.name} {{\n" in text
    words = re.findall(r"(?s)    reg \{\n(.*?)    \} \\(\w+) @ 0x([0-9A-F]+);", text)
    found = {int(offset, 16): (name, [FIELD.fullmatch(line) for line in body.splitlines()[1:]])
             for body, name, offset in words}
    assert len(found) == len(words) == sum(register.bits // 32 for register in kernel.registers)
    for register in kernel.registers:
        for part in range(register.bits // 32):
            name, fields = found[register.offset + 4 * part]
            assert name == register.name + (("_low", "_high")[part] if register.bits == 64 else "")
            assert None not in fields
            assert sum(int(field[8]) << int(field[7]) for field in fields) == register.reset
            if not register.fields:
                (field,) = fields
                whole = {"read-write": "rw", "read-only": "r", "write-only": "w"}[register.access]
                assert (field[1], int(field[6]), int(field[7])) == (whole, 31, 0) and field[4] == _text(register.about)
    control = {field[5]: (field[1], field[3].strip()) for field in found[0][1]}
    assert control == {"ap_start": ("rw", "onwrite = woset;"), "ap_done": ("r", "onread = rclr;"), "ap_idle": ("r", ""),
                       "ap_ready": ("r", "onread = rclr;"), "auto_restart": ("rw", ""),
                       "sw_reset": ("rw", "onwrite = woset;")}
    assert [field[3].strip() for field in found[0xC][1]] == ["onwrite = wot;"] * 2
