"""package.json read back: what it says of itself, which files there must be, and that each is the one that was written.

Its configuration is held against the Verilog: the name of the core's module tells the whole of it.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fpga.vitis.checks.hosts import FILE as HOST
from fpga.vitis.checks.hosts import HOSTS
from fpga.vitis.checks.link import MOST_PORTS
from fpga.vitis.checks.measured import measured
from gen.rtl.config import ConfigError, build
from gen.rtl.cores import CORES
from gen.rtl.headers import KERNELS
from gen.rtl.verilog import module_name

__all__ = ["FILE", "Manifest", "heading", "inventory", "manifest"]

FILE = "package.json"
_KEYS = {"core": str, "preset": str, "kernel": str, "vlnv": str, "config": dict, "clock_mhz": int,
         "instances": int, "part": str, "platform": str, "gate": dict, "tools": dict, "files": dict}
_CALLED = {str: "text", dict: "table", int: "number"}
CLOCKS = (200, 250, 300)
PART = "xcku15p-ffva1156-2LV-e"
PLATFORMS = ("xilinx_u2_gen3x4_xdma_gc_2_202110_1", "xilinx_u2_gen3x4_xdma_flat_gc_2_202110_1")
TOOLS = ("hotrail", "amaranth", "pyosys", "lxml")


@dataclass(frozen=True)
class Manifest:
    """What the other checks need of a package.json. `config`: the numbers of the core's configuration; `module`: the
    core's, which that configuration makes."""

    core: str
    preset: str
    vlnv: str
    instances: int
    module: str
    config: Mapping[str, int] = field(hash=False)
    files: Mapping[str, str] = field(hash=False)

    @property
    def version(self) -> str:
        return self.vlnv.rpartition(":")[2]


def manifest(data: bytes | None) -> tuple[Manifest | None, list[str]]:
    """What a package.json says, None where it is of no use; and what is wrong with it."""
    if data is None:
        return None, [f"{FILE} is missing"]
    try:
        told = json.loads(data)
    except ValueError as error:
        return None, [f"{FILE}: it is no JSON: {error}"]
    if not isinstance(told, dict):
        return None, [f"{FILE}: it must be an object"]
    out = [f"{FILE}: {key} does not belong there" for key in told if key not in _KEYS]
    if wrong := [f"{FILE}: {key} is {told[key]!r}; it must be a {_CALLED[kind]}" if key in told else
                 f"{FILE}: {key} is missing" for key, kind in _KEYS.items() if type(told.get(key)) is not kind]:
        return None, [*out, *wrong]
    core, kernel, vlnv = told["core"], f"hotrail_{told['core']}", told["vlnv"]
    if core not in KERNELS:
        return None, [*out, f"{FILE}: core is {core!r}; it must be one of {', '.join(KERNELS)}"]
    if not re.fullmatch(rf"hotrail:RTLKernel:{kernel}:\d+\.\d+", vlnv):
        return None, [*out, f"{FILE}: vlnv is {vlnv!r}; it must be hotrail:RTLKernel:{kernel}:<two numbers>"]
    if not 1 <= told["instances"] <= MOST_PORTS:
        return None, [*out, f"{FILE}: instances is {told['instances']}; the platform has {MOST_PORTS} ports"]
    try:
        config = build(CORES[core].config, told["config"], f"{FILE}: config:")
    except ConfigError as error:
        return None, [*out, str(error)]
    numbers = {key: value for key, value in told["config"].items() if type(value) is int}
    made = Manifest(core, told["preset"], vlnv, told["instances"], _module(core, config), numbers, told["files"])
    for key, allowed in (("kernel", (kernel,)), ("part", (PART,)), ("platform", PLATFORMS), ("clock_mhz", CLOCKS)):
        if told[key] not in allowed:
            out.append(f"{FILE}: {key} is {told[key]!r}; it must be {' or '.join(map(repr, allowed))}")
    out += _tools(told["tools"], made.version)
    clock_mhz, platform = told["clock_mhz"], told["platform"]
    if clock_mhz in CLOCKS and platform in PLATFORMS:
        out += (f"{FILE}: {fault}" for fault in measured(told["gate"], kernel, platform, clock_mhz, made.instances))
    return made, out


@lru_cache(maxsize=32)
def _module(core: str, config: Any) -> str:
    return module_name(CORES[core].unit(config).key())


def _tools(tools: Mapping[str, Any], version: str) -> Iterator[str]:
    for name in TOOLS:
        if not re.fullmatch(r"\d+(\.[\w+]+)+", str(tools.get(name))):
            yield f"{FILE}: tools.{name} is {tools.get(name)!r}; it must be a version"
    for name in sorted(set(tools) - set(TOOLS)):
        yield f"{FILE}: tools.{name} does not belong there"
    if str(tools.get("hotrail")).split(".")[:2] != version.split("."):
        yield f"{FILE}: tools.hotrail is {tools.get('hotrail')!r}; in vlnv it is {version}"


def inventory(told: Manifest, files: Mapping[str, bytes]) -> Iterator[str]:
    """Files that are missing, changed or too many. files: what lies in the folder but package.json, by path"""
    kernel = f"hotrail_{told.core}"
    needed = {"kernel.xml", "component.xml", "package.tcl", "link.cfg", f"{kernel}.h", f"{kernel}.py",
              f"{told.core}.md", f"src/{kernel}.v", f"xgui/{kernel}_v{told.version.replace('.', '_')}.tcl",
              *([HOST] if told.core in HOSTS else [])}
    allowed = needed | {f"{kernel}.xo"}
    for name in sorted(needed - set(files)):
        yield f"{name} is missing"
    for name in sorted(set(files) | set(told.files)):
        if name not in allowed and not re.fullmatch(r"src/\w+\.v", name):
            yield f"{name} does not belong to a package"
        if name not in files:
            if name not in needed:
                yield f"{name} is missing; {FILE} lists it"
        elif name not in told.files:
            yield f"{FILE}: {name} is not listed"
        elif (digest := hashlib.sha256(files[name]).hexdigest()) != told.files[name]:
            yield f"{name}: its SHA-256 is {digest[:16]}..., in {FILE} {str(told.files[name])[:16]}..."
    if f"src/{told.module}.v" not in files:
        yield f"{FILE}: config describes the core {told.module}, which is not in src/"


def heading(told: Manifest, name: str, text: str) -> Iterator[str]:
    """Whether a script says in its first line whose it is."""
    whose = f"({told.vlnv}, preset {told.preset})"
    if whose not in text.partition("\n")[0]:
        yield f"{name}: its first line does not say {whose}, as {FILE} does"
