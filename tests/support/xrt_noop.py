"""XRT with its noop shim, which loads xclbins and runs nothing, in processes of their own: it is chosen at load."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from fpga.vitis.kernel_xml import kernel_xml
from tests.support.vitis_kernels import prepared

ROOT = Path(__file__).parents[2]
PLATFORM = "xilinx_u2_gen3x4_xdma_gc_2_202110_1"
NOOP = "libxrt_noop.so.2"
HEADERS = next((path for path in (Path("/usr/include/xrt"), Path("/opt/xilinx/xrt/include"))
                if (path / "xrt/xrt_kernel.h").exists() and Path("/usr/include/uuid/uuid.h").exists()), None)


@cache
def library(name=NOOP):
    """The path of one of XRT's libraries, None where it is not installed."""
    folders = [Path(folder) for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/opt/xilinx/xrt/lib")]
    return next((folder / name for folder in folders if (folder / name).exists()), None)


needed = pytest.mark.skipif(library() is None, reason="XRT's libraries are not installed (apt-get install libxrt1)")


def metadata(core):
    """The kernel.xml of a tiny core, as its package has it."""
    return kernel_xml(prepared(core)[0])


def environment(folder, delay_us=0):
    """Of a process whose XRT works with the noop shim; a run takes `delay_us`."""
    (folder / "lib").mkdir(exist_ok=True)
    if not (folder / "lib" / NOOP).exists():
        (folder / "lib" / NOOP).symlink_to(library())
    ini = folder / "xrt.ini"
    ini.write_text(f"[Runtime]\nnoop_completion_delay_us={delay_us}\n", "utf-8")
    return {**os.environ, "XCL_EMULATION_MODE": "noop", "XILINX_XRT": str(folder), "XRT_INI_PATH": str(ini),
            "PYTHONPATH": str(ROOT)}


def python(folder, code, *arguments, delay_us=0, **changes):
    """Runs Python code on the noop shim; what it printed. Its failure is the test's."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], cwd=folder, text=True,
                          env={**environment(folder, delay_us), **changes}, capture_output=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
