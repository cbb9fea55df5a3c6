"""From a package to a bitstream with programs that stand in for Vivado and v++, shortly said."""

from fpga.vitis import flow, toolchain

CORE = "mlp"
STANDARD, FLAT = "xilinx_u2_gen3x4_xdma_gc_2_202110_1", "xilinx_u2_gen3x4_xdma_flat_gc_2_202110_1"


def make(tmp_path, **options):
    return flow.package("tiny", CORE, out=tmp_path, **options)


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def build(made, target="hw", platform="", say=lambda line: None):
    return toolchain.build(made, toolchain.find(target, platform), say=say)


def shown(folder):
    """What a folder holds besides its locks."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))
