"""Opens cards."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fpga.card.interface import Card, CardError, KernelLike
from fpga.card.model import Model, build
from fpga.card.sim import SimCard
from gen.base.extras import extra
from gen.base.tools import compiler, versions
from gen.model.device import Device
from gen.rtl import config
from gen.rtl.cores import CORES
from gen.rtl.headers import KERNELS

REAL = ("xrt", "f2")


def check_kind(kind: str) -> None:
    """Raises CardError: there is no such kind of card"""
    if kind not in ("sim", "twin", *REAL):
        raise CardError(f"there is no kind of card {kind!r}; there are \"sim\", \"twin\", \"xrt\" and \"f2\"")


def check_tools(kind: str) -> None:
    """For a command that works long before it opens a card. Raises RuntimeError: what builds cards of this kind is not
    installed"""
    if kind not in REAL:
        {"sim": versions, "twin": compiler}[kind]()


def open(
    kind: str,
    *,
    device: "str | Device" = "smartssd",
    core: Any = "emb",
    preset: Any = "smartssd",
    kernel: KernelLike | None = None,
    memory: str | None = None,
    process: bool = False,
    opt: str | None = None,
    seed: int | None = None,
    host: Sequence[str] = (),
    xclbin: str | Path | None = None,
    index: int | None = None,
    bdf: str = "",
    instance: str = "",
) -> Card:
    """A card with a core on it. For a simulated one the core's model is built the first time and comes from the cache
    later, which takes minutes; for a twin it takes seconds; a real one is given the core's xclbin.

    Parameters  kind: "sim", the Verilated core in this process; "twin", a model of that card which is faster
                (docs/simulated-card.md); "xrt", a real card; or "f2", one of an AWS F2 instance; device: name of a file
                in gen/model/devices, a path that ends in .toml, or a Device; core: the name of a core that the preset
                describes, or for "sim" a component with ports m##_axi, s_axi_control, interrupt, or the Model of one
                that many cards are opened with; preset: name, path, or the core's configuration itself
                sim and twin: memory: "ddr4" for the device's timing (default), "ideal" for a fixed latency and every
                bandwidth; process: the card lives in a process of its own, so that several work at the same time
                sim alone: kernel: describes the arguments, default: the component's attribute `kernel`; opt: of the
                C++ compiler, default: "-O1"; "-O0" is built sooner and takes four times as long for a cycle; seed: of
                the state in which the core's registers and memories begin before the card resets it, default: 1; host:
                masters of the core, as "m01_axi", that are linked to the host's memory over PCIe (the device's
                [bridge]) and not to the card's own: buffers of their arguments lie there
                xrt alone: xclbin: of the core, default: build/<preset>/vitis/<core>-hw/hotrail_<core>.xclbin, with
                XCL_EMULATION_MODE=hw_emu that in <core>-hw_emu; index: the card's number in `hotrail cards`, default:
                0; bdf: its PCIe address instead; instance: of the kernel, where the xclbin has several, default: the
                first
                f2 alone: index: the slot, default: 0
    Raises      CardError: the sentence, also for an option of the other kind; ConfigError: device or preset;
                RuntimeError: the model cannot be built
    """
    check_kind(kind)
    if kind in REAL:
        _refuse(kind, kernel=kernel, memory=memory, opt=opt, seed=seed, host=host or None)
    else:
        _refuse(kind, index=index)
    if kind != "xrt":
        _refuse(kind, xclbin=xclbin, bdf=bdf or None, instance=instance or None)
    if kind == "twin":
        _refuse(kind, kernel=kernel, opt=opt, seed=seed, host=host or None)
        return _in_process(process, _twin(core, preset, Device.load(device), memory or "ddr4"))
    description = Device.load(device)
    if isinstance(core, str):
        settings, name = _settings(core, preset)
        if kind == "f2":
            return _open_f2(core, settings, process, index or 0)
        if kind == "xrt":
            return _open_xrt(core, settings, name, xclbin, description, process, index=index or 0, bdf=bdf,
                             instance=instance)
        component = CORES[core].unit(settings)
        name = f"{core}_{name}" if name else core
    else:
        if kind in REAL:
            raise CardError("a real card takes the name of a core, not a component")
        component, name = core, getattr(type(core), "__name__", "core")
    kernel = getattr(component, "kernel", None) if kernel is None else kernel
    model = core if isinstance(core, Model) else build(component, f"card_{name}", opt=opt or "-O1",
                                                                toggles="HOTRAIL_TOGGLES" in os.environ)
    return _in_process(process, partial(SimCard, model, description, kernel, memory=memory or "ddr4",
                                        seed=1 if seed is None else seed, host=tuple(host)))


def _in_process(alone: bool, make: Callable[[], SimCard]) -> Card:
    """The card that `make` gives, in a process of its own or here."""
    if not alone:
        return make()
    from fpga.card.process import ProcessCard

    return ProcessCard(make)


def _twin(core: Any, preset: Any, device: Device, memory: str) -> Callable[[], SimCard]:
    from fpga.card.twin import TWINS

    if core not in TWINS:
        raise CardError(f"there is no twin of core {core!r}; there are those of {', '.join(TWINS)}")
    return partial(TWINS[core], _settings(core, preset)[0], device, KERNELS[core], memory=memory)


def _refuse(kind: str, **others: Any) -> None:
    """Raises CardError: an option is given that only cards of the other kind have."""
    for name, value in others.items():
        if value is not None:
            raise CardError(f"{name}={value!r} means nothing to a card of kind {kind!r}")


def _settings(core: str, preset: Any) -> tuple[Any, str]:
    """The core's configuration, and the preset's name, empty where the configuration itself was given."""
    if core not in CORES:
        raise CardError(f"there is no core {core!r}; there are {', '.join(CORES)}")
    if not isinstance(preset, str | Path):
        return preset, ""
    cores = config.load(preset).cores
    if core not in cores:
        raise CardError(f"preset {str(preset)!r} describes no core {core!r}; it has {', '.join(cores)}")
    return cores[core], Path(preset).stem


def _open_xrt(core: str, settings: Any, preset: str, xclbin: str | Path | None, device: Device, process: bool,
              **which: Any) -> Card:
    from fpga.card import libxrt
    with extra("A real card"):
        from fpga.card.xrt import XrtCard
        from fpga.vitis.toolchain import image

    _check_real(core, process)
    if xclbin is None:
        if not preset:
            raise CardError("the xclbin must be named where the preset is a configuration")
        target = "hw_emu" if libxrt.emulation() == "hw_emu" else "hw"
        xclbin = image(preset, core, target)
        if not xclbin.is_file():
            raise CardError(f"there is no {xclbin}: link it (`make bitstream PRESET={preset} CORE={core} "
                            f"TARGET={target}`), or name another with xclbin=")
    return XrtCard(xclbin, core, kernel_mhz=device.kernel_mhz, beat_bytes=4 * settings.words,
                   config=settings, queue_depth=device.ssd.queue_depth, **which)


def _open_f2(core: str, settings: Any, process: bool, index: int) -> Card:
    from fpga.card.f2 import F2Card

    _check_real(core, process)
    device = Device.load("f2")
    return F2Card(core, index=index, kernel_mhz=device.kernel_mhz, memory_bytes=device.memory.bytes,
                  beat_bytes=4 * settings.words, config=settings, queue_depth=device.ssd.queue_depth)


def _check_real(core: str, process: bool) -> None:
    if core not in KERNELS:
        raise CardError(f"core {core!r} is no kernel by itself; {', '.join(KERNELS)} are")
    if process:
        raise CardError("a real card needs no process of its own: cards work at the same time anyway")
