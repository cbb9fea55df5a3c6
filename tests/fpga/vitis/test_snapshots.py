"""The metadata of the tiny EMB core's package, byte for byte as it was last looked at; of component.xml, which has a
schema (test_metadata.py), the digest.

    HOTRAIL_SNAPSHOTS=write .venv/bin/pytest tests/fpga/vitis/test_snapshots.py

writes the snapshots anew after an intended change; what changed is then read in the difference. Texts for people, the
names of the Verilog's parts and hotrail's version are left out, so that only a change of the package's form or of the
core's interface shows.
"""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fpga.vitis.component_xml import component_xml
from fpga.vitis.kernel_xml import kernel_xml
from fpga.vitis.link import link_cfg
from fpga.vitis.scripts import package_tcl
from fpga.vitis.xgui import xgui
from fpga.vitis.xo import xo_xml
from tests.support.vitis_kernels import prepared

FOLDER = Path(__file__).parent / "snapshots"
FILES = ("Part.v", "hotrail_emb.v")


def plain(kernel):
    def quiet(items):
        return tuple(replace(item, about=item.name) for item in items)

    registers = (replace(register, fields=quiet(register.fields)) for register in kernel.registers)
    return replace(kernel, version="0.0", about=kernel.name, files=FILES, arguments=quiet(kernel.arguments),
                   registers=quiet(registers))


def made():
    kernel = plain(prepared("emb")[0])
    digest = f"{hashlib.sha256(component_xml(kernel, dict.fromkeys(FILES, ))).hexdigest()}\n".encode()
    return {"kernel.xml": kernel_xml(kernel), "component.xml.sha256": digest,
            "package.tcl": package_tcl(kernel).encode(), "link.cfg": link_cfg(kernel, 2).encode(),
            "xgui.tcl": xgui(kernel).encode(), "xo.xml": xo_xml(kernel, dict.fromkeys(FILES, b""))}


@pytest.mark.parametrize("name", made())
def test_snapshot(name):
    path, data = FOLDER / name, made()[name]
    if os.environ.get("HOTRAIL_SNAPSHOTS") == "write":
        path.write_bytes(data)
    assert data == path.read_bytes(), f"if the change of {name} is meant, write the snapshots anew: see {__name__}"
