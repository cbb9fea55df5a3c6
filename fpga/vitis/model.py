"""The C model of a kernel, which Vitis' software emulation runs in the place of its Verilog: it takes the same programs
and gives the same results (gen.hls). Of the EMB core alone; no tool of Vitis' has read it.

Source: UG1393 (RTL kernels in software emulation, package_xo -kernel_files)
"""

from fpga.vitis.description import RtlKernel
from gen.hls.project import BENCH, sources
from gen.rtl.config import build
from gen.rtl.cores import CORES

FOLDER = "model"


def model(kernel: RtlKernel) -> dict[str, bytes]:
    """The model's files, by their path in the package; none where the core has no model."""
    if kernel.core != "emb":
        return {}
    config = build(CORES[kernel.core].config, kernel.config, f"{kernel.name}:")
    return {f"{FOLDER}/{name}": data for name, data in sources({kernel.core: config}).items() if name not in BENCH}
