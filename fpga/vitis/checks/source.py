"""The Verilog of a package read back: modules, their ports, and how they hang together.

A reader of its own, for the plain Verilog that Yosys writes: declarations in the body, parts with named connections.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from gen.base.tools import yosys

__all__ = ["Instance", "Module", "Port", "hierarchy", "read", "syntax"]

_NAME = r"(?:\\\S+|[A-Za-z_]\w*)"
_MODULE = re.compile(rf"(?m)^module +({_NAME}) *\(([^;]*)\);")
_PORT = re.compile(rf"(?m)^  (input|output|inout) (?:(?:wire|reg) )?(?:\[(\d+):(\d+)\] )?({_NAME}) ?;")
_WIRE = re.compile(rf"(?m)^  (?:wire|reg) (?:signed )?(?:\[(\d+):(\d+)\] )?({_NAME}) *(?:=[^;]*)?;")
_INSTANCE = re.compile(rf"(?m)^  ({_NAME}) +(?:#\([^;]*?\) )?({_NAME}) +\(\n([^;]*?)  \);")
_CONNECTION = re.compile(rf"\.({_NAME}) ?\(([^()]*)\)")
CLOCKS = ("clk", "ap_clk")      # of a part, of the top
_END = re.compile(r"(?m)^endmodule")


@dataclass(frozen=True)
class Port:
    """A port of a module. `direction`: "in", "out" or "inout"."""

    name: str
    direction: str
    bits: int


@dataclass(frozen=True)
class Instance:
    """A part of a module: which module, under which name, what is connected to its ports."""

    module: str
    name: str
    connections: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Module:
    """A module of a file. `header`: the names in its port list; `bits`: of everything declared in it."""

    name: str
    header: tuple[str, ...]
    ports: tuple[Port, ...]
    instances: tuple[Instance, ...]
    bits: Mapping[str, int] = field(repr=False, hash=False, compare=False)


@lru_cache(maxsize=4096)
def read(text: str) -> tuple[Module, ...]:
    """The modules of a Verilog text, in order."""
    found = []
    ends = [match.start() for match in _END.finditer(text)]
    for match in _MODULE.finditer(text):
        end = next((at for at in ends if at > match.end()), len(text))
        body = text[match.end():end]
        ports = tuple(Port(_plain(name), {"input": "in", "output": "out"}.get(way, way), _bits(high, low))
                      for way, high, low, name in _PORT.findall(body))
        bits = {_plain(name): _bits(high, low) for high, low, name in _WIRE.findall(body)}
        bits |= {port.name: port.bits for port in ports}
        instances = tuple(
            Instance(_plain(kind), _plain(name),
                     tuple((_plain(port), _plain(wire)) for port, wire in _CONNECTION.findall(links)))
            for kind, name, links in _INSTANCE.findall(body))
        header = tuple(_plain(name) for name in re.findall(_NAME, match[2]))
        found.append(Module(_plain(match[1]), header, ports, instances, bits))
    return tuple(found)


def _plain(name: str) -> str:
    return name.strip().removeprefix("\\")


def _bits(high: str, low: str) -> int:
    return abs(int(high) - int(low)) + 1 if high else 1


def hierarchy(texts: Mapping[str, str], top: str) -> Iterator[str]:
    """What is wrong with the files, given by path and text, as one design under the module `top`.

    Each file begins with the module that it is named after, and with `<name>.` begin the others; every part is there,
    connected to all its ports in their width and to the clock; and nothing lies there that the top does not need."""
    modules: dict[str, Module] = {}
    homes: dict[str, str] = {}
    for name, text in texts.items():
        inside, stem = read(text), Path(name).stem
        if not inside or inside[0].name != stem or any(not m.name.startswith(f"{stem}.") for m in inside[1:]):
            listed = ", ".join(module.name for module in inside) or "none"
            yield f"{name}: it must hold the module {stem} and its own parts; found {listed}"
        if len(_END.findall(text)) != len(inside):
            yield f"{name}: {len(inside)} module(s) begin, {len(_END.findall(text))} end"
        for module in inside:
            if module.name in homes:
                yield f"{name}: module {module.name} is also in {homes[module.name]}"
            else:
                modules[module.name], homes[module.name] = module, name
            yield from _declared(name, module)
    if top not in modules:
        yield f"src/{top}.v: there is no module {top}, the top"
    for module in modules.values():
        for part in module.instances:
            yield from _connected(homes[module.name], module, part, modules.get(part.module))
    reached, todo = set(), [top]
    while todo:
        name = todo.pop()
        if name in modules and name not in reached:
            reached.add(name)
            todo += [part.module for part in modules[name].instances]
    for name in sorted(set(modules) - reached):
        yield f"{homes[name]}: module {name} is no part of {top}: a leftover of another configuration"


def _declared(file: str, module: Module) -> Iterator[str]:
    names = [port.name for port in module.ports]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{file}: port {name} of module {module.name} is declared {names.count(name)} times"
    for name in sorted(set(module.header) ^ set(names)):
        where = "is declared but not in the port list" if name in names else "is in the port list but not declared"
        yield f"{file}: port {name} of module {module.name} {where}"


def _connected(file: str, module: Module, part: Instance, kind: Module | None) -> Iterator[str]:
    if kind is None:
        yield f"{file}: part {part.name} is a {part.module}, and no file has that module"
        return
    wires, ports = dict(part.connections), {port.name: port for port in kind.ports}
    for name in sorted(set(wires) ^ set(ports)):
        what = "which is left open" if name in ports else "which it has not"
        yield f"{file}: part {part.name}, a {part.module}: port {name}, {what}"
    clocks = [port.name for port in module.ports if port.name in CLOCKS]
    if "clk" in ports and [wires.get("clk")] != clocks:
        yield f"{file}: part {part.name}, a {part.module}: its clk is {wires.get('clk')}, not the clock"
    for name, wire in part.connections:
        if name in ports and wire in module.bits and module.bits[wire] != ports[name].bits:
            yield (f"{file}: part {part.name}, a {part.module}: port {name} has {ports[name].bits} bits, "
                   f"{wire} has {module.bits[wire]}")


_SOUND: set[tuple[str, str]] = set()     # (file, text) that Yosys has read without an error


def syntax(texts: Mapping[str, str]) -> Iterator[str]:
    """What Yosys cannot read: syntax and names that nothing declares. (Vivado leaves such a file out of an .xo
    without a word.) Each file is read alone; a text that was read once is not read again."""
    new = {name: text for name, text in texts.items() if (name, text) not in _SOUND}
    while new:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in new.items():
                (Path(folder) / Path(name).name).write_text(text)
            try:
                yosys([f"read_verilog -noautowire {Path(name).name}" for name in new], cwd=Path(folder))
            except RuntimeError as error:
                found = re.search(r"(?m)^(\S+\.v):(\d+): ERROR: (.*)", str(error))
                guilty = next((name for name in new if found and Path(name).name == found[1]), None)
                if found is None or guilty is None:
                    yield f"{next(iter(new))}: Yosys cannot read the files: {str(error).splitlines()[-1]}"
                    return
                yield f"{guilty}: line {found[2]}: Yosys: {found[3]}"
                new.pop(guilty)
                continue
        _SOUND.update(new.items())
        return
