"""From a preset's core to the folder of a custom logic (CL) for AWS F2: build/<preset>/f2/cl_hotrail_<core>/.

    design/cl_hotrail_<core>.sv  design/hotrail_<core>_f2*.v     the top (gen.rtl.f2) and the logic that it wires
    design/cl_id_defines.vh                                      PCIe IDs, which the manifest of an image repeats
    build/constraints/*.xdc  build/scripts/synth_<CL>.tcl        what build_all.tcl of the HDK asks for
    build/scripts/build.sh                                       the HDK's build of this CL
    hotrail_<core>.h  hotrail_<core>.py  <core>.md               registers and instructions, for a host of one's own
    package.json                                                 every file's sha256, versions of the tools, the gate

Source: aws/aws-fpga@fd77a72, hdk/common/shell_stable/build/scripts (aws_build_dcp_from_cl.py, build_all.tcl,
encrypt.tcl, synth_cl_header.tcl) and Supported_DDR_Modes. Nobody has built from it.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from fpga.vitis import gate as gates
from fpga.vitis.check import MANIFEST, TOOLS
from fpga.vitis.flow import PackageError, Say, whole
from fpga.vitis.gate import Gate
from gen.base.tools import build_folder
from gen.model.platform import Platform
from gen.rtl import config, headers, verilog
from gen.rtl.delivery import LICENCE, delivered
from gen.rtl.f2 import custom_logic, top

BOARD = "f2"
# PCIe IDs of the loaded image: device, vendor, subsystem, subsystem's vendor. Devices of vendor 1D0F (Amazon) may have
# F000 to F0FF.
IDS = (0xF048, 0x1D0F, 0x4854, 0xFEDC)
DDR_IP = "cl_ddr4"      # of sh_ddr without a macro: 64 GB
# Virtual LEDs are asynchronous to the shell's clock (Shell Interface Specification).
_LEDS = "set_false_path -from [get_cells -hierarchical -filter {NAME =~ *LOGIC/vled_reg*}]\n"
CONSTRAINTS = {"cl_synth_user.xdc": "", "cl_timing_user.xdc": "", "small_shell_cl_pnr_user.xdc": _LEDS}


@dataclass(frozen=True)
class Logic:
    """A core's logic between the ports of the shell. texts: of its Verilog by file name."""

    name: str
    core: str
    texts: dict[str, str]


@dataclass(frozen=True)
class CustomLogicFolder:
    """A folder on disk. gate: None when it was left out."""

    folder: Path
    gate: Gate | None


def package(preset: str, core: str, *, out: Path | None = None, force: bool = False, gated: bool = True,
            say: Say = lambda line: None, measured: Callable[[Gate], None] = lambda gate: None) -> CustomLogicFolder:
    """Writes the folder, which is there whole or not at all.

    Parameters  out: folder for the presets' folders; force: writes what the gate refuses, and says so in package.json;
                gated: False leaves the gate out, and says so; measured: is told of the gate
    Raises      ConfigError: the preset; ValueError: the core, its beats or `out`; Busy: another process makes it;
                PackageError: refused
    """
    chosen, board = config.load(preset), Platform.load(BOARD)
    say(f"{chosen.name}/{core}: Verilog" + (", then area and depth by Yosys (minutes at first)" if gated else ""))
    made = logic(chosen, core)
    judged = None
    if gated:
        judged = gates.judge(made, gates.measure(made, made.texts, say), clock_mhz=board.clocks_mhz[0], platform=board)
        measured(judged)
        if judged.misses and not force:
            raise PackageError(judged.misses)
    parts = contents(chosen, made)
    place = (out or build_folder()) / chosen.name / "f2" / f"cl_hotrail_{core}"
    with whole(place) as folder:
        for name, text in parts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
        (folder / "build/scripts/build.sh").chmod(0o755)
        manifest = {
            "cl": place.name, "core": core, "preset": chosen.name, "part": board.part,
            "gate": judged.as_dict() | {"forced": bool(judged.misses)} if judged else {"passed": None},
            "tools": {"hotrail": version("hotrail"), **{name: version(name) for name in TOOLS}},
            "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(parts.items())}}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    return CustomLogicFolder(place, judged)


def logic(preset: config.Preset, core: str) -> Logic:
    """Raises ValueError: as `package`"""
    name = f"hotrail_{core}_f2"
    return Logic(name, core, verilog.convert(custom_logic(preset, core), name)[0])


def contents(preset: config.Preset, made: Logic) -> dict[str, str]:
    """The files' texts by their paths in the folder."""
    name = f"cl_hotrail_{made.core}"
    mark = f"# SPDX-License-Identifier: {LICENCE}\n"
    return {
        **{f"design/{file}": text for file, text in delivered(
            made.texts, made.name, f"Custom logic around core {made.core} of the preset {preset.name}").items()},
        f"design/{name}.sv": top(name, made.name),
        "design/cl_id_defines.vh": _id_defines(),
        **{f"build/constraints/{file}": mark + text for file, text in CONSTRAINTS.items()},
        f"build/scripts/synth_{name}.tcl": mark + _synth_tcl(),
        "build/scripts/build.sh": _build_sh(name),
        **headers.texts(headers.KERNELS[made.core]),
    }


def _id_defines() -> str:
    device, vendor, subsystem, subsystem_vendor = IDS
    return (f"// SPDX-License-Identifier: {LICENCE}\n`ifndef CL_ID_DEFINES\n`define CL_ID_DEFINES\n"
            f"  `define CL_SH_ID0 32'h{device:04X}_{vendor:04X}\n"
            f"  `define CL_SH_ID1 32'h{subsystem:04X}_{subsystem_vendor:04X}\n`endif\n")


def _synth_tcl() -> str:
    """What build_all.tcl sources with its variables set, when encrypt.tcl has copied `design` to src_post_enc_dir."""
    return f"""source ${{HDK_SHELL_DIR}}/build/scripts/synth_cl_header.tcl

read_verilog [glob ${{src_post_enc_dir}}/*.v]
read_verilog -sv [glob ${{src_post_enc_dir}}/*.sv]
read_ip ${{HDK_IP_SRC_DIR}}/{DDR_IP}/{DDR_IP}.xci

read_xdc [list ${{constraints_dir}}/cl_synth_user.xdc ${{constraints_dir}}/cl_timing_user.xdc]
set_property PROCESSING_ORDER LATE [get_files cl_synth_user.xdc]
set_property PROCESSING_ORDER LATE [get_files cl_timing_user.xdc]

update_compile_order -fileset sources_1
synth_design -mode out_of_context -top ${{CL}} -verilog_define XSDB_SLV_DIS -part ${{DEVICE_TYPE}} \\
  -keep_equivalent_registers

source ${{HDK_SHELL_DIR}}/build/scripts/synth_cl_footer.tcl
"""


def _build_sh(name: str) -> str:
    """The HDK asks for its scripts in the CL's own folder, and that CL_DIR ends in the CL's name."""
    return f"""#!/bin/sh
# SPDX-License-Identifier: {LICENCE}
# Options: those of the HDK's aws_build_dcp_from_cl.py.
set -eu
: "${{HDK_SHELL_DIR:?is not set: run 'source hdk_setup.sh' in the folder of aws-fpga}}"
cd "$(dirname "$0")"
CL_DIR="$(cd ../.. && pwd -P)"
export CL_DIR
for script in aws_build_dcp_from_cl.py build_all.tcl build_level_1_cl.tcl encrypt.tcl; do
  ln -sf "$HDK_SHELL_DIR/build/scripts/$script" "$script"
done
exec python3 aws_build_dcp_from_cl.py --cl {name} --mode small_shell "$@"
"""
