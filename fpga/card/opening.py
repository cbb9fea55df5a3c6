"""Opens cards."""

from pathlib import Path
from typing import Any

from fpga.card.device import Device
from fpga.card.interface import Card, CardError, KernelLike
from fpga.card.model import build
from fpga.card.sim import SimCard
from gen import config
from gen.cores import CORES

__all__ = ["open"]


def open(
    kind: str,
    *,
    device: "str | Device" = "smartssd",
    core: Any = "emb",
    preset: Any = "smartssd",
    kernel: KernelLike | None = None,
    memory: str = "ddr4",
    process: bool = False,
) -> Card:
    """A card with a core on it; the first time, the core's model is built, later it comes from the cache.

    Parameters  kind: "sim", the Verilated core in this process; device: name of a file in fpga/devices, a path
                that ends in .toml, or a Device; core: the name of a core that the preset describes, or a
                component with ports m##_axi, s_axi_control, interrupt; preset: name, path, or the core's
                configuration itself; kernel: describes the arguments, default: the component's attribute
                `kernel`; memory: "ddr4" for the device's timing, "ideal" for a fixed latency and every bandwidth;
                process: the card lives in a process of its own, so that several work at the same time
    Raises      CardError: the sentence; ConfigError: device or preset; RuntimeError: the model cannot be built
    """
    if kind != "sim":
        raise CardError(f"there is no kind of card {kind!r}; there is \"sim\"")
    found = Device.load(device)
    component, name = core, getattr(type(core), "__name__", "core")
    if isinstance(core, str):
        if core not in CORES:
            raise CardError(f"there is no core {core!r}; there are {', '.join(CORES)}")
        if isinstance(preset, str | Path):
            cores = config.load(preset).cores
            if core not in cores:
                raise CardError(f"preset {str(preset)!r} describes no core {core!r}; it has {', '.join(cores)}")
            component, name = CORES[core].unit(cores[core]), f"{core}_{Path(preset).stem}"
        else:
            component, name = CORES[core].unit(preset), core
    kernel = getattr(component, "kernel", None) if kernel is None else kernel
    model = build(component, f"card_{name}")
    if process:
        from fpga.card.process import ProcessCard

        return ProcessCard(model, found, kernel, memory=memory)
    return SimCard(model, found, kernel, memory=memory)
