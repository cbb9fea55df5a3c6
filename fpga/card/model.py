"""Turns a core into a shared library: its Verilated model with the harness in fpga/card/cpp around it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpga.card.interface import CardError
from fpga.card.memory import MODEL_SOURCES
from gen.rtl import verilator, verilog

SOURCES = Path(__file__).parent / "cpp"
HARNESS = ("harness.cpp", *MODEL_SOURCES)
PER_MODEL = ("model.cpp", "model.h")
CONTROL = "s_axi_control"
INTERRUPT = "interrupt"
TOGGLES = "--coverage-toggle", "--coverage-max-width", "4096"       # buses of a beat have 512 bits
# Name of a master's pin in the harness, and its width; data and strobe have the port's own.
READ_PINS = {"arvalid": 1, "arready": 1, "arid": 1, "arlen": 8, "arsize": 3, "arburst": 2, "araddr": 64,
             "rvalid": 1, "rready": 1, "rid": 1, "rresp": 2, "rlast": 1, "rdata": 0}
WRITE_PINS = {"awvalid": 1, "awready": 1, "awid": 1, "awlen": 8, "awsize": 3, "awburst": 2, "awaddr": 64,
              "wvalid": 1, "wready": 1, "wlast": 1, "wdata": 0, "wstrb": 0,
              "bvalid": 1, "bready": 1, "bid": 1, "bresp": 2}
CONTROL_PINS = {"awvalid": 1, "awready": 1, "awaddr": 12, "wvalid": 1, "wready": 1, "wdata": 32, "wstrb": 4,
                "bvalid": 1, "bready": 1, "bresp": 2, "arvalid": 1, "arready": 1, "araddr": 12,
                "rvalid": 1, "rready": 1, "rdata": 32, "rresp": 2}


@dataclass(frozen=True)
class Master:
    """A memory port of a core."""

    name: str
    data_bits: int
    reads: bool
    writes: bool


@dataclass(frozen=True)
class Ports:
    """What a card connects to."""

    masters: tuple[Master, ...]
    control: bool
    interrupt: bool


@dataclass(frozen=True)
class Model:
    """A built library."""

    library: Path
    ports: Ports
    metadata: dict[str, Any]


def ports(metadata: Mapping[str, Any]) -> Ports:
    """The AXI ports of a core, from the metadata of its Verilog.

    Raises CardError: a port that the card cannot connect to, or one that belongs to no interface."""
    known: Mapping[str, Any] = metadata["ports"]
    names = sorted({found.group(1) for name in known if (found := re.fullmatch(r"(m\w*?)__(?:ar|aw)valid", name))})
    masters = []
    used = {metadata["clock"], metadata["reset"], INTERRUPT}
    for name in names:
        reads, writes = f"{name}__arvalid" in known, f"{name}__awvalid" in known
        data = known.get(f"{name}__rdata") or known.get(f"{name}__wdata")
        bits = data["width"] if data else 0
        if bits not in (32, 64, 128, 256, 512):
            raise CardError(f"port {name} has {bits} data bits; a card takes 32, 64, 128, 256 or 512")
        wanted = {**(READ_PINS if reads else {}), **(WRITE_PINS if writes else {})}
        _check(known, name, {pin: width or (bits // 8 if pin == "wstrb" else bits) for pin, width in wanted.items()})
        masters.append(Master(name, bits, reads, writes))
    control = f"{CONTROL}__awvalid" in known
    if control:
        _check(known, CONTROL, CONTROL_PINS)
    used |= {port for port in known if port.split("__")[0] in {*names, CONTROL}}
    if loose := sorted(set(known) - used):
        raise CardError(f"port {loose[0]} belongs to no interface that a card has: m##_axi, {CONTROL}, {INTERRUPT}")
    if not masters:
        raise CardError("the core has no memory port m##_axi")
    return Ports(tuple(masters), control, INTERRUPT in known)


def _check(known: Mapping[str, Any], prefix: str, wanted: Mapping[str, int]) -> None:
    for pin, width in wanted.items():
        port = f"{prefix}__{pin}"
        if port not in known:
            raise CardError(f"port {prefix} has no {pin}")
        if known[port]["width"] != width:
            raise CardError(f"{port} has {known[port]['width']} bits; a card takes {width}")


def _binding(found: Ports) -> str:
    """bind.h: where the harness finds the pins in the Verilated top. Pins of a missing channel get a byte of
    their own, which nobody reads."""

    def pin(name: str) -> str:
        return "&top." + name.replace("__", "___05F")  # as Verilator writes two underscores

    def spare(width: int) -> str:
        kind = "uint8_t" if width <= 8 else "uint64_t" if width == 64 else "void"
        return f"static_cast<{kind}*>(spare())"

    lines = ["#include <array>", "#include <deque>", "", "inline void* spare() {",
             "    alignas(8) static thread_local std::deque<std::array<uint64_t, 8>> all;",
             "    all.push_back({});", "    return all.back().data();", "}", "",
             "inline void bind(Vtop& top, Binding& b) {", "    b.clk = &top.clk;", "    b.rst = &top.rst;"]
    if found.interrupt:
        lines.append(f"    b.interrupt = &top.__SYM__{INTERRUPT};")  # Verilator takes the word for C's
    for master in found.masters:
        lines += ["    {", "        Pins p{};"]
        for pins, there in ((READ_PINS, master.reads), (WRITE_PINS, master.writes)):
            for name, width in pins.items():
                value = pin(f"{master.name}__{name}") if there else spare(width)
                lines.append(f"        p.{name} = {value};")
        lines += ["        b.masters.push_back(p);", f"        b.beats.push_back({master.data_bits // 8});", "    }"]
    if found.control:
        lines.append("    b.has_control = true;")
        lines += [f"    b.control.{name} = {pin(f'{CONTROL}__{name}')};" for name in CONTROL_PINS]
    return "\n".join([*lines, "}", ""])


def _read(files: Iterable[str]) -> dict[str, str]:
    return {file: (SOURCES / file).read_text("utf-8") for file in files}


def build(component: Any, name: str, *, opt: str = "-O1", toggles: bool = False) -> Model:
    """The library of a component, from the cache when the same one was built before.

    Parameters  component: with ports m##_axi, s_axi_control and interrupt, whatever of them it has; name: for
                the folder's name; opt: of the C++ compiler; toggles: it counts how often every bit changes
                (gen.rtl.toggles), from the begin of a run, and writes that to the file HOTRAIL_TOGGLES when it ends
    Raises      CardError: a card cannot be connected to its ports; RuntimeError: the end of the build's log
    """
    texts, metadata = verilog.convert(component)
    axi_ports = ports(metadata)
    built = verilator.build(
        texts, metadata["top"], name,
        target="card.so",
        arguments=TOGGLES if toggles else (),
        sources={**_read(PER_MODEL), "bind.h": _binding(axi_ports)},
        common=_read(HARNESS),
        # Several cores live in one process: none may see the other's symbols.
        ldflags="-shared -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,--no-undefined -pthread",
        opt=opt,
    )
    return Model(built.target, axi_ports, metadata)
