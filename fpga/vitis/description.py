"""A kernel as AMD's tools see it: the one description that every file of its package is written from.

Pins come from the Verilog's own metadata, arguments and registers from hw.isa; nothing is said twice.
Source: UG1393 (RTL kernels), the facts of ap_ctrl_hs in hw.axi.control
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

from gen.rtl import config as presets
from gen.rtl import verilog
from gen.rtl.cores import CORES
from gen.rtl.headers import KERNELS

VENDOR, LIBRARY = "hotrail", "RTLKernel"
CONTROL = "s_axi_control"
INTERRUPT = "interrupt"
RESET = "ap_rst_n"
CONTROL_BYTES = 0x1000      # the slave's range; XRT refuses arguments behind it
MASTER_BYTES = 1 << 64


@dataclass(frozen=True)
class Pin:
    """A port of the top module. `signal`: its name in its interface, "AWADDR"; for clock, reset and interrupt the
    interface's only signal. `direction`: "in" or "out"."""

    name: str
    signal: str
    direction: str
    bits: int


@dataclass(frozen=True)
class Bus:
    """An AXI interface. `mode`: "slave" (the control registers, AXI4-Lite) or "master" (AXI4)."""

    name: str
    mode: str
    data_bits: int
    address_bits: int
    range_bytes: int
    pins: tuple[Pin, ...]


@dataclass(frozen=True)
class KernelArgument:
    """An argument by the number that a host sets it with. `bus`: the master that a pointer's buffer is reached by, the
    control slave for a scalar; `offset`: of its low word in the control slave; `type`: as OpenCL spells it."""

    id: int
    name: str
    pointer: bool
    bus: str
    offset: int
    bytes: int
    type: str
    about: str


@dataclass(frozen=True)
class RegisterField:
    """A bit of a register. `access`, `write` (what writing does, else empty) and `read` (what reading does, else empty)
    as IP-XACT spells them; `reset`: its value after reset."""

    name: str
    bit: int
    access: str
    about: str
    write: str = ""
    read: str = ""
    reset: int = 0


@dataclass(frozen=True)
class KernelRegister:
    """A register of the control slave; `bits` 64 for a pointer, `access` as IP-XACT spells it. `bus`: the master that
    a pointer belongs to, else empty. `fields`: where bits have meanings of their own."""

    name: str
    offset: int
    bits: int
    access: str
    about: str
    bus: str = ""
    fields: tuple[RegisterField, ...] = ()

    @property
    def reset(self) -> int:
        """The value after reset."""
        return sum(field.reset << field.bit for field in self.fields)


# What ap_ctrl_hs has below the arguments (UG1393), as hw.axi.control does it.
_HANDSHAKE = (
    KernelRegister("CTRL", 0x00, 32, "read-write", "0 ap_start, 1 ap_done, 2 ap_idle, 3 ap_ready, 7 auto_restart, "
                   "8 sw_reset", "", (
        RegisterField("ap_start", 0, "read-write", "1 starts a run; cleared when it is over", write="oneToSet"),
        RegisterField("ap_done", 1, "read-only", "a run is over; cleared by reading", read="clear"),
        RegisterField("ap_idle", 2, "read-only", "no run is on", reset=1),
        RegisterField("ap_ready", 3, "read-only", "arguments may be written; cleared by reading", read="clear"),
        RegisterField("auto_restart", 7, "read-write", "the end of a run starts the next"),
        RegisterField("sw_reset", 8, "read-write", "1 drops the run; cleared when it is over", write="oneToSet"),
    )),
    KernelRegister("GIER", 0x04, 32, "read-write", "0 interrupts reach the host", "", (
        RegisterField("enable", 0, "read-write", "interrupts reach the host"),
    )),
    KernelRegister("IP_IER", 0x08, 32, "read-write", "0 interrupt when done, 1 when ready", "", (
        RegisterField("done", 0, "read-write", "interrupt when done"),
        RegisterField("ready", 1, "read-write", "interrupt when ready"),
    )),
    KernelRegister("IP_ISR", 0x0C, 32, "read-write", "0 done, 1 ready; toggled by writing 1", "", (
        RegisterField("done", 0, "read-write", "done happened; toggled by writing 1", write="oneToToggle"),
        RegisterField("ready", 1, "read-write", "ready happened; toggled by writing 1", write="oneToToggle"),
    )),
)


@dataclass(frozen=True)
class RtlKernel:
    """A core of a preset as a Vitis kernel. `name` is the kernel's and the top module's, `files` the Verilog's names,
    `version` the IP's: two numbers."""

    name: str
    core: str
    preset: str
    version: str
    about: str
    clock: Pin
    reset: Pin
    interrupt: Pin
    buses: tuple[Bus, ...]
    arguments: tuple[KernelArgument, ...]
    registers: tuple[KernelRegister, ...]
    files: tuple[str, ...]
    config: Any

    @property
    def vlnv(self) -> str:
        return ":".join((VENDOR, LIBRARY, self.name, self.version))

    @property
    def vendor(self) -> str:
        return VENDOR

    @property
    def library(self) -> str:
        return LIBRARY

    @property
    def control(self) -> Bus:
        return next(bus for bus in self.buses if bus.mode == "slave")

    @property
    def masters(self) -> tuple[Bus, ...]:
        return tuple(bus for bus in self.buses if bus.mode == "master")

    @cached_property
    def pins(self) -> tuple[Pin, ...]:
        """All ports of the top module: clock, reset, interrupt, then each bus."""
        return (self.clock, self.reset, self.interrupt, *(pin for bus in self.buses for pin in bus.pins))


def describe(core: str, preset: str, metadata: Mapping[str, Any]) -> RtlKernel:
    """The description of a core from the metadata of its top's Verilog (gen.rtl.verilog.convert of `Core.kernel`).

    Raises ValueError: a port that belongs to no interface of a Vitis kernel"""
    isa, ports = KERNELS[core], metadata["ports"]
    pins = {name: Pin(name, name, port["direction"], port["width"]) for name, port in ports.items()}
    buses = []
    names = sorted({found[0] for name in pins if (found := re.match(r"m\d\d_axi(?=_)", name))})
    for bus in (CONTROL, *names):
        own = tuple(Pin(pin.name, pin.name.removeprefix(f"{bus}_").upper(), pin.direction, pin.bits)
                    for name, pin in pins.items() if name.startswith(f"{bus}_"))
        bits = {pin.signal: pin.bits for pin in own}
        master = bus != CONTROL
        buses.append(Bus(bus, "master" if master else "slave", bits["WDATA"], bits["AWADDR"],
                         MASTER_BYTES if master else CONTROL_BYTES, own))
    used = {pin.name for bus in buses for pin in bus.pins} | {RESET, INTERRUPT}
    if loose := sorted(set(pins) - used):
        raise ValueError(f"{metadata['top']}: port {loose[0]} belongs to no interface of a Vitis kernel")
    arguments = tuple(
        KernelArgument(number, item.name, item.kind == "pointer", f"{item.port}_axi" if item.port else CONTROL,
                       item.offset, item.bits // 8, "void*" if item.kind == "pointer" else "uint", item.about)
        for number, item in enumerate(isa.arguments))
    registers = (
        *_HANDSHAKE,
        *(KernelRegister(item.name, item.offset, 8 * item.bytes, "read-write", item.about,
                         item.bus if item.pointer else "") for item in arguments),
        *(KernelRegister(item.name, item.offset, 32, f"{item.access}-only", item.about) for item in isa.registers),
    )
    return RtlKernel(
        metadata["top"], core, preset, ".".join(version("hotrail").split(".")[:2]), isa.about,
        Pin(metadata["clock"], "CLK", "in", 1), Pin(RESET, "RST", "in", 1), Pin(INTERRUPT, "INTERRUPT", "out", 1),
        tuple(buses), arguments, registers, tuple(metadata["files"]), metadata["config"])


def preset_of(preset: str, core: str) -> presets.Preset:
    """The preset (name or path) that is to describe the core as a kernel.

    Raises ConfigError: the preset; ValueError: it has no such core, or the core is no kernel"""
    chosen = presets.load(preset)
    known = [name for name in chosen.cores if CORES[name].is_kernel]
    if core not in known:
        raise ValueError(f"preset {chosen.name} describes no kernel {core!r}; it has {', '.join(known) or 'none'}")
    return chosen


def prepare(preset: str, core: str) -> tuple[RtlKernel, dict[str, str]]:
    """A core of a preset converted: its description and its Verilog by file name. Takes seconds for `tiny`, a minute or
    two for the shipping cores.

    Raises ConfigError, ValueError: as `preset_of`"""
    chosen = preset_of(preset, core)
    texts, metadata = verilog.convert(CORES[core].kernel(chosen.cores[core]), f"hotrail_{core}")
    return describe(core, chosen.name, metadata), texts
