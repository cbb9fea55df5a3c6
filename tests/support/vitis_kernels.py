"""The tiny preset's cores as Vitis kernels, converted once: in this process by core, on disk for the next one."""

import json
from functools import cache

from fpga.vitis.description import RtlKernel, describe
from gen.rtl import config, verilator, verilog
from gen.rtl.cores import CORES

PRESET = "tiny"
KERNELS = tuple(name for name in config.load(PRESET).cores if CORES[name].is_kernel)


@cache
def converted(core: str) -> tuple[dict, dict]:
    """Verilog by file name and metadata, as fpga.vitis.description.prepare gets them from gen.rtl.verilog."""
    component = CORES[core].kernel(config.load(PRESET).cores[core])
    component._MustUse__used = True
    name = f"hotrail_{core}"
    label = json.dumps([name, component.key(), verilator._sources()])
    return tuple(verilator.remembered(label, lambda: verilog.convert(component, name)))


def prepared(core: str) -> tuple[RtlKernel, dict[str, str]]:
    """What fpga.vitis.description.prepare("tiny", core) gives."""
    texts, metadata = converted(core)
    return describe(core, PRESET, metadata), dict(texts)
