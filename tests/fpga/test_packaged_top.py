"""The Verilog and the kernel.xml of the packages, run as XRT runs them; and tops with a mistake, none of which passes.

The benches are verif/test_vitis_top.py, started here because a package is fpga's.
"""

from functools import cache

import pytest

from fpga.vitis.description import describe
from fpga.vitis.kernel_xml import kernel_xml
from gen import verilator
from gen.config import load
from gen.cores import CORES
from verif.bench import runner

MODULE = "verif.test_vitis_top"
KERNELS = [name for name in load("tiny").cores if CORES[name].is_kernel]
TESTS = 6


@cache
def packaged(core):
    """Description, Verilog and metadata of a tiny core's package."""
    texts, metadata = verilator.convert(CORES[core].kernel(load("tiny").cores[core]), top=f"hotrail_{core}")
    return describe(core, "tiny", metadata), texts, metadata


def simulate(core, folder, *, texts=None, xml=None, **options):
    kernel, sound, metadata = packaged(core)
    path = folder / "kernel.xml"
    path.write_bytes(xml or kernel_xml(kernel))
    # Runs are short: what counts is how long the compiler takes.
    model = runner.build_texts(texts or sound, metadata, f"packaged_{core}", opt="-O0")
    return runner.run(model, MODULE, env={"HOTRAIL_KERNEL_XML": path}, **options)


@pytest.mark.parametrize("number", runner.seeds())
@pytest.mark.parametrize("core", KERNELS)
def test_packaged_top(core, number, tmp_path):
    values = simulate(core, tmp_path, tests=TESTS, seed=number).values
    assert all(values["bursts"][port]["ar"] for port in ("m00_axi", "m01_axi")), "both ports are read from"
    assert values["written_beats"]["m00_axi"]
