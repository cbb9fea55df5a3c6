"""The Verilog of a kernel held against its description and the rules of Vitis: ports, clock, registers.

Yosys reads it: the top with its parts as black boxes, and each part once (a text that was seen before is not read
again; the largest cores take some seconds the first time). Source: UG1393, requirements of an RTL kernel
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fpga.vitis.description import Bus, RtlKernel
from gen.base.tools import yosys
from gen.rtl.verilog import children, interface

__all__ = ["check_ports"]

# The channels' signals and their bits: those of a master, which has all of AXI4, and of the control slave, AXI4-Lite.
# Names: what the width is the same as.
_ADDRESS = {"ADDR": 64, "ID": 1, "LEN": 8, "SIZE": 3, "BURST": 2, "LOCK": 1, "CACHE": 4, "PROT": 3, "QOS": 4,
            "REGION": 4}
_MASTER: dict[str, dict[str, int | str]] = {
    "AW": {**_ADDRESS}, "W": {"DATA": "data", "STRB": "strobes", "LAST": 1}, "B": {"ID": 1, "RESP": 2},
    "AR": {**_ADDRESS}, "R": {"ID": 1, "DATA": "data", "RESP": 2, "LAST": 1}}
_SLAVE: dict[str, dict[str, int | str]] = {
    "AW": {"ADDR": "address"}, "W": {"DATA": "data", "STRB": "strobes"}, "B": {"RESP": 2}, "AR": {"ADDR": "address"},
    "R": {"DATA": "data", "RESP": 2}}
_REQUESTS = ("AW", "W", "AR")       # what goes from a master to a slave; B and R come back
_WIDTHS = {"master": (32, 64, 128, 256, 512), "slave": (32,)}
# What holds a value and may: registers that one clock edge alone changes, and memories with their contents.
_REGISTERS = ("$dff", "$dffe", "$sdff", "$sdffe", "$sdffce")
_MEMORIES = ("$memrd", "$memwr", "$meminit", "$memrd_v2", "$memwr_v2", "$meminit_v2")
_HOLDS = re.compile(r"\$(?:a?l?s?dff|a?dlatch|sr$|ff$|mem|anyinit|_)")
_SELECTED = "t:*dff* t:*dlatch* %u %co1:+[Q] t:$sr t:$ff t:$mem* t:$anyinit w:clk"
_PART_CLOCK = "clk"
_NAME = r"\\\S+|[A-Za-z_]\w*"


def check_ports(kernel: RtlKernel, texts: Mapping[str, str]) -> list[str]:
    """What is wrong with a kernel's Verilog (texts by file name), a sentence each; empty if nothing is.

    Ports: those of the description and no others, with its widths and directions; those are what AXI4, AXI4-Lite and
    Vitis ask for. Clock: the top's registers and parts are on its clock, every part's on the part's own; no other
    edge, no latch, no asynchronous set or reset, no `initial` but for contents of memories, no register that only its
    initial value drives."""
    file = f"{kernel.name}.v"
    if file not in texts:
        return [f"there is no {file} for the top module {kernel.name}"]
    found = [*_buses(kernel)]
    try:
        found += _top(kernel, file, _netlist(kernel.name, file, texts))
    except (RuntimeError, ValueError) as error:
        return [*found, f"{file}: Yosys cannot read it with its parts: {str(error).splitlines()[-1]}"]
    parts = {name: text for name, text in texts.items() if name != file}
    try:
        told = _parts(parts)
    except RuntimeError as error:
        return [*found, f"Yosys cannot read the parts of {file}: {str(error).splitlines()[-1]}"]
    return found + [f"{name}: {sentence}" for name in sorted(parts) for sentence in told[name]]


# -- The description against the rules.

def _buses(kernel: RtlKernel) -> Iterator[str]:
    for bus in kernel.buses:
        widths = _WIDTHS[bus.mode]
        if bus.data_bits not in widths:
            yield f"{bus.name}: {bus.data_bits} data bits; a {bus.mode} has {', '.join(map(str, widths))}"
        pins = {pin.signal: (pin.direction, pin.bits) for pin in bus.pins}
        wanted = _signals(bus)
        for signal in sorted(pins.keys() | wanted.keys()):
            if signal not in wanted:
                yield f"{bus.name}: {signal} is no signal of a {bus.mode}"
            elif signal not in pins:
                yield f"{bus.name}: there is no {signal}"
            elif pins[signal] != wanted[signal]:
                yield f"{bus.name}: {signal} is {_port(*pins[signal])}; it must be {_port(*wanted[signal])}"
    slaves = [bus.name for bus in kernel.buses if bus.mode == "slave"]
    if len(slaves) != 1:
        yield f"a kernel has one control slave, not {len(slaves)}: {', '.join(slaves)}"


def _port(direction: str, bits: int) -> str:
    return f"{'an inout' if direction == 'inout' else f'an {direction}put'} of {bits} bit{'s' * (bits != 1)}"


def _signals(bus: Bus) -> dict[str, tuple[str, int]]:
    """Direction and bits of every signal that the bus must have."""
    of = {"data": bus.data_bits, "strobes": bus.data_bits // 8, "address": (bus.range_bytes - 1).bit_length()}
    made: dict[str, tuple[str, int]] = {}
    for channel, fields in (_MASTER if bus.mode == "master" else _SLAVE).items():
        there, back = ("out", "in") if (channel in _REQUESTS) == (bus.mode == "master") else ("in", "out")
        made |= {f"{channel}VALID": (there, 1), f"{channel}READY": (back, 1)}
        made |= {channel + name: (there, of[bits] if isinstance(bits, str) else bits) for name, bits in fields.items()}
    return made


# -- The top, from Yosys' netlist.

def _netlist(top: str, file: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """The top module with its processes made registers."""
    boxes = [f"(* blackbox *)\n{interface(texts[f'{part}.v'])}"
             for part in sorted(children(texts[file], (name.removesuffix(".v") for name in texts)))]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "top.v").write_text(texts[file])
        (work / "boxes.v").write_text("\n".join(boxes))
        yosys(["read_verilog top.v", "read_verilog boxes.v", f"hierarchy -check -top {top}", "proc -norom",
               "write_json netlist.json"], cwd=work)
        return json.loads((work / "netlist.json").read_text())["modules"][top]


def _top(kernel: RtlKernel, file: str, module: dict[str, Any]) -> Iterator[str]:
    ports = {name: (port["direction"].removesuffix("put"), len(port["bits"])) for name, port in module["ports"].items()}
    wanted = {pin.name: (pin.direction, pin.bits) for pin in kernel.pins}
    for name in sorted(ports.keys() | wanted.keys()):
        if name not in wanted:
            yield f"{file}: port {name} belongs to no interface of the kernel"
        elif name not in ports:
            yield f"{file}: there is no port {name}"
        elif ports[name] != wanted[name]:
            yield f"{file}: port {name} is {_port(*ports[name])}; it must be {_port(*wanted[name])}"
    if kernel.clock.name not in ports:
        return
    clock = module["ports"][kernel.clock.name]["bits"]
    driven = {bit for cell in module["cells"].values() for pin, bits in cell["connections"].items()
              if cell["port_directions"][pin] != "input" for bit in bits}
    driven |= {bit for port in module["ports"].values() if port["direction"] == "input" for bit in port["bits"]}
    for name, port in module["ports"].items():
        if port["direction"] == "output" and any(
                bit not in driven if isinstance(bit, int) else bit in "xz" for bit in port["bits"]):
            yield f"{file}: nothing drives port {name}"
    for sentence in _cells(module, clock, kernel.clock.name):
        yield f"{file}: {sentence}"
    for name, cell in sorted(module["cells"].items()):
        kind, pins = cell["type"], cell["connections"]
        if not kind.startswith("$"):
            if pins.get(_PART_CLOCK) != clock:
                yield f"{file}: {name} ({kind}) is not on {kernel.clock.name}"
        elif not _HOLDS.match(kind) and any(bit in clock for bits in pins.values() for bit in bits):
            yield f"{file}: {kernel.clock.name} is used for something else than an edge or a part's clock"


def _cells(module: Mapping[str, Any], clock: list[Any], name: str) -> Iterator[str]:
    """Of the cells that hold a value those that are not on the rising edge of the clock alone."""
    for cell in module["cells"].values():
        kind, pins, parameters = cell["type"], cell["connections"], cell["parameters"]
        if not _HOLDS.match(kind):
            continue
        held = pins.get("Q", [])[:1]
        what = parameters.get("MEMID") or next(
            (wire for wire, net in module["netnames"].items() if held and net["bits"][:1] == held), "a register")
        if kind not in (*_REGISTERS, *_MEMORIES):
            yield f"{what} is held by a {kind}, which more than a clock's edge changes"
            continue
        enabled = kind in _REGISTERS or "init" not in kind and int(parameters["CLK_ENABLE"], 2)
        if "wr" in kind and not enabled:
            yield f"{what} is a memory that is written without a clock"
        if enabled and (pins["CLK"] != clock or int(parameters["CLK_POLARITY"], 2) != 1):
            yield f"{what} is not on the rising edge of {name}"


# -- The parts.

_seen: dict[str, tuple[str, ...]] = {}     # by text: what is wrong with it


def _parts(texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """What is wrong with each file."""
    new = {name: text for name, text in texts.items() if text not in _seen}
    if new:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            for number, text in enumerate(new.values()):
                (work / f"{number}.v").write_text(text)
            yosys([*(f"read_verilog {number}.v" for number in range(len(new))), "proc -norom", f"select {_SELECTED}",
                   "write_json -selected cells.json"], cwd=work)
            modules = json.loads((work / "cells.json").read_text())["modules"]
        for text in new.values():
            _seen[text] = tuple(_part(text, modules))
    return {name: _seen[text] for name, text in texts.items()}


def _part(text: str, modules: Mapping[str, Any]) -> Iterator[str]:
    for body in text.split("\nendmodule")[:-1]:
        head = re.search(rf"(?m)^module +({_NAME})", body)
        assert head is not None
        if re.search(r"(?m)^\s*inout\b", body):
            yield "it has an inout"
        module = modules.get(head[1].removeprefix("\\"))
        if module is not None:      # without cells that hold a value it is not there
            clock = module["ports"].get(_PART_CLOCK, {"bits": []})["bits"]
            yield from _cells(module, clock, _PART_CLOCK)
        yield from _text(body)


def _text(body: str) -> Iterator[str]:
    """What is seen best in the plain form that Yosys writes a module in."""
    rest = re.sub(rf"@ *\(posedge {_PART_CLOCK}\)|(?m:^ *(?:input|wire) {_PART_CLOCK};)|"
                  rf"\.{_PART_CLOCK}\({_PART_CLOCK} *\)", "", body[body.index(";"):])
    if re.search(rf"(?<![\w.$\\]){_PART_CLOCK}\b(?! *\()", rest):
        yield f"{_PART_CLOCK} is used for something else than an edge or a part's clock"
    for pin in re.findall(rf"\.{_PART_CLOCK}\(([^)]*)\)", rest):
        yield f"a part is clocked by {pin.strip()}, not by {_PART_CLOCK}"
    for block in re.findall(r"(?ms)^  initial(?: begin)?$(.*?)^  end$", body):
        if re.search(r"(?m)^ +[^\[\n]*=", block):
            yield "it has an initial block that is not a memory's contents"
    written = set(re.findall(rf"(?m)^ +(?:[^\s:]+: +)?({_NAME})(?: *\[[^;=]*\])* +<?= ", body))
    for name in re.findall(rf"(?m)^  reg (?:signed )?(?:\[\d+:\d+\] )?({_NAME})(?: +\[[^\]]*\])?(?: = [^;]*)?;", body):
        if name not in written:
            yield f"nothing but its initial value drives the register {name}"
