"""package.json read back: which files there must be, and that each is the one that was written."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gen.headers import KERNELS

__all__ = ["FILE", "Manifest", "inventory", "manifest"]

FILE = "package.json"
_KEYS = {"core": str, "preset": str, "kernel": str, "vlnv": str, "config": dict, "clock_mhz": int,
         "instances": int, "part": str, "platform": str, "gate": dict, "tools": dict, "files": dict}
CLOCKS = (200, 250, 300)
PART, PLATFORM = "xcku15p-ffva1156-2LV-e", "xilinx_u2_gen3x4_xdma_gc_2_202110_1"


@dataclass(frozen=True)
class Manifest:
    """What the other checks need of a package.json. `config`: the numbers of the core's configuration."""

    core: str
    vlnv: str
    instances: int
    config: Mapping[str, int] = field(hash=False)
    files: Mapping[str, str] = field(hash=False)


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
    out = [f"{FILE}: {key} is {told[key]!r}; it must be a {_called(kind)}" if key in told else
           f"{FILE}: {key} is missing" for key, kind in _KEYS.items() if not isinstance(told.get(key), kind)]
    out += [f"{FILE}: {key} does not belong there" for key in told if key not in _KEYS]
    core = str(told.get("core"))
    if core not in KERNELS:
        return None, [*out, f"{FILE}: core is {core!r}; it must be one of {', '.join(KERNELS)}"]
    kernel, vlnv, config = f"hotrail_{core}", told.get("vlnv"), told.get("config")
    if told.get("kernel") != kernel:
        out.append(f"{FILE}: kernel is {told.get('kernel')!r}; the core's is {kernel!r}")
    if not isinstance(vlnv, str) or not re.fullmatch(rf"hotrail:RTLKernel:{kernel}:\d+\.\d+", vlnv):
        return None, [*out, f"{FILE}: vlnv is {vlnv!r}; it must be hotrail:RTLKernel:{kernel}:<two numbers>"]
    if told.get("clock_mhz") not in CLOCKS:
        out.append(f"{FILE}: clock_mhz is {told.get('clock_mhz')!r}; it must be one of {', '.join(map(str, CLOCKS))}")
    out += [f"{FILE}: {key} is {told.get(key)!r}; the card's is {value!r}"
            for key, value in (("part", PART), ("platform", PLATFORM)) if told.get(key) != value]
    files, instances = told.get("files"), told.get("instances")
    numbers = {key: value for key, value in config.items() if type(value) is int} if isinstance(config, dict) else {}
    return Manifest(core, vlnv, instances if isinstance(instances, int) else 1, numbers,
                    files if isinstance(files, dict) else {}), out


def _called(kind: Any) -> str:
    return {str: "text", dict: "table"}.get(kind, "number")


def inventory(told: Manifest, files: Mapping[str, bytes]) -> Iterator[str]:
    """Files that are missing, changed or too many. files: what lies in the folder but package.json, by path"""
    kernel, version = f"hotrail_{told.core}", told.vlnv.rpartition(":")[2].replace(".", "_")
    needed = {"kernel.xml", "component.xml", "package.tcl", "link.cfg", f"{kernel}.h", f"{kernel}.py",
              f"{told.core}.md", f"src/{kernel}.v", f"xgui/{kernel}_v{version}.tcl"}
    allowed = needed | {"host.cpp", f"{kernel}.xo"}
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
