"""The constraints of a package name what the Verilog has."""

import re

import pytest

from fpga.vitis.constraints import CELLS, MARKED, xdc
from tests.support.vitis_kernels import KERNELS, prepared


@pytest.mark.parametrize("core", KERNELS)
def test_all_that_is_named_is_there(core):
    """Instances by their names down from the top, registers in the modules of the last; every command is whole."""
    kernel, texts = prepared(core)
    every = "\n".join(texts.values())
    modules = dict(re.findall(r"(?s)\nmodule (\w+)\((.*?)\nendmodule", f"\n{every}"))
    (shell,) = set(re.findall(r"(?m)^  (\w+) frame \($", every))
    names = [CELLS["arguments"], *CELLS["broadcast"], *MARKED]
    for name in names:
        instance, register = name.split("/")
        (module,) = re.findall(rf"(?m)^  (\w+) {instance} \($", modules[shell])
        assert re.search(rf"(?m)^  reg (\[\d+:0\] )?{register.removesuffix('_reg')} = ", modules[module]), name
    text = xdc(kernel, monitors=True)
    assert text.startswith(xdc(kernel)) and "MARK_DEBUG" not in xdc(kernel)
    assert all(f"frame/{name}*" in text for name in names) and text.isascii()
    for line in text.splitlines():
        assert line.count("[") == line.count("]") and line.count("{") == line.count("}"), line
        assert not line or line.startswith(("# ", "set ", "set_multicycle_path ", "set_property "))


@pytest.mark.parametrize("core", KERNELS)
def test_attributes_are_those_that_vivado_reads(core):
    """KEEP and DONT_TOUCH as texts (UG901); where there are any."""
    _, texts = prepared(core)
    found = {pair for text in texts.values() for pair in re.findall(r"\(\* (keep|dont_touch) = (\S+) \*\)", text)}
    assert found <= {("keep", '"TRUE"'), ("dont_touch", '"TRUE"')}
    assert core == "hotline" or len(found) == 2
