"""The tiny preset's cores as Vitis kernels, converted once in this process."""

from functools import cache

from fpga.vitis.description import RtlKernel, describe
from gen.rtl import config, verilog
from gen.rtl.cores import CORES

PRESET = "tiny"
KERNELS = tuple(name for name in config.load(PRESET).cores if CORES[name].is_kernel)


@cache
def converted(core: str) -> tuple[dict, dict]:
    """Verilog by file name and metadata, as fpga.vitis.description.prepare gets them from gen.rtl.verilog."""
    component = CORES[core].kernel(config.load(PRESET).cores[core])
    return verilog.convert(component, f"hotrail_{core}")


def prepared(core: str) -> tuple[RtlKernel, dict[str, str]]:
    """What fpga.vitis.description.prepare("tiny", core) gives."""
    texts, metadata = converted(core)
    return describe(core, PRESET, metadata), dict(texts)
