"""From a preset's core to the complete folder of its Vitis package: build/<preset>/vitis/<core>/.

    src/*.v  kernel.xml  component.xml  xgui/*.tcl  package.tcl  link.cfg    what Vivado and v++ read
    hotrail_<core>.h  hotrail_<core>.py  <core>.md  host.cpp                 what a host is written with
    package.json                                                             every file's sha256, what was measured

The folder is written beside its place, checked, and renamed: it is there whole or not at all, with the same bytes from
the same preset.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fpga.vitis import gate as gates
from fpga.vitis.check import check
from fpga.vitis.component_xml import component_xml
from fpga.vitis.description import RtlKernel, prepare
from fpga.vitis.gate import Gate
from fpga.vitis.kernel_xml import kernel_xml
from fpga.vitis.link import check_instances, link_cfg
from fpga.vitis.ports import check_ports
from fpga.vitis.scripts import KERNEL_XML, SCRIPT, SOURCES, package_tcl
from fpga.vitis.shells import card
from fpga.vitis.xgui import xgui, xgui_path
from fpga.vitis.xo import write_xo
from gen import config as presets
from gen import headers
from gen.cores import CORES
from gen.tools import build_folder

__all__ = ["MANIFEST", "Package", "PackageError", "contents", "kernels", "package", "whole"]

MANIFEST = "package.json"
LINK = "link.cfg"
_HOSTS = {"emb": "emb_bags.cpp"}        # example hosts in fpga/host
# What decides about the bytes of a package besides the project itself.
_TOOLS = ("amaranth", "pyosys", "lxml")


class PackageError(RuntimeError):
    """A package that was not written; `reasons` are the sentences."""

    def __init__(self, reasons: tuple[str, ...] | list[str]) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = tuple(reasons)


@dataclass(frozen=True)
class Package:
    """A package on disk. `gate` is None when it was left out."""

    folder: Path
    kernel: RtlKernel
    clock_mhz: int
    instances: int
    gate: Gate | None


def kernels(preset: str) -> list[str]:
    """The cores of a preset that are kernels. Raises ConfigError: the preset"""
    return [name for name in presets.load(preset).cores if CORES[name].is_kernel]


def package(preset: str, core: str, *, clock_mhz: int = 300, instances: int = 1, out: Path | None = None,
            force: bool = False, gated: bool = True, experimental_xo: bool = False,
            measured: Callable[[Gate], None] = lambda gate: None) -> Package:
    """Writes the package of a core.

    Parameters  clock_mhz: of the kernel, one that the card offers; instances: in the image; out: folder for the
                presets' folders; force: writes what the gate refuses, and says so in package.json; gated: False leaves
                the gate out, and says so; experimental_xo: an .xo made without Vivado; measured: is told of the gate
    Raises      ConfigError: the preset; ValueError: the core, clock, instances or `out`; PackageError: refused or
                faulty
    """
    if clock_mhz not in card().clocks_mhz:
        raise ValueError(f"clock must be one of {', '.join(map(str, card().clocks_mhz))} MHz, not {clock_mhz!r}")
    # What can be told is told before the conversion and the gate, which take minutes.
    if core in headers.KERNELS:
        masters = {argument.port for argument in headers.KERNELS[core].arguments if argument.port}
        check_instances(f"hotrail_{core}", len(masters), instances)
    _check_place(out or build_folder())
    kernel, texts = prepare(preset, core)
    link = link_cfg(kernel, instances)
    judged = None
    if gated:
        judged = gates.judge(kernel, gates.measure(kernel, texts), clock_mhz=clock_mhz, instances=instances)
        measured(judged)
        if judged.misses and not force:
            raise PackageError(judged.misses)
    place = (out or build_folder()) / kernel.preset / "vitis" / core
    with whole(place) as folder:
        for name, data in contents(kernel, texts, link).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        headers.write(headers.KERNELS[core], folder)
        if experimental_xo:
            write_xo(kernel, texts, folder / f"{kernel.name}.xo")
        told = judged.as_dict() | {"forced": bool(judged.misses)} if judged else {"passed": None}
        text = json.dumps(_manifest(kernel, folder, clock_mhz, instances, told), indent=1) + "\n"
        (folder / MANIFEST).write_text(text)
        if faults := [*check_ports(kernel, texts), *check(folder)]:
            raise PackageError(faults)
    return Package(place, kernel, clock_mhz, instances, judged)


def _check_place(out: Path) -> None:
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ValueError(f"nothing can be written to {out}: {there} is no folder that can be written to")


def contents(kernel: RtlKernel, texts: Mapping[str, str], link: str) -> dict[str, bytes]:
    """What is generated from the description, by its path in the package."""
    found = {f"{SOURCES}/{name}": text.encode() for name, text in texts.items()}
    found |= {KERNEL_XML: kernel_xml(kernel), "component.xml": component_xml(kernel, texts),
              xgui_path(kernel): xgui(kernel).encode(), SCRIPT: package_tcl(kernel).encode(), LINK: link.encode()}
    if kernel.core in _HOSTS:
        found["host.cpp"] = (Path(__file__).parents[1] / "host" / _HOSTS[kernel.core]).read_bytes()
    return found


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _manifest(kernel: RtlKernel, folder: Path, clock_mhz: int, instances: int, gate: dict[str, Any]) -> dict[str, Any]:
    return {
        "kernel": kernel.name, "vlnv": kernel.vlnv, "core": kernel.core, "preset": kernel.preset,
        "clock_mhz": clock_mhz, "instances": instances, "part": card().part, "platform": card().platform,
        "config": kernel.config, "gate": gate,
        "tools": {"hotrail": version("hotrail"), **{name: version(name) for name in _TOOLS}},
        "files": _digests(folder),
    }


@contextmanager
def whole(place: Path, draft: Path | None = None) -> Iterator[Path]:
    """A new folder beside `place` that takes its place when the block ends well. When it does not, a temporary one is
    gone; a `draft` stays, for whoever asks why, until the next begins."""
    place.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        new = draft or work / "new"
        if new.exists():
            shutil.rmtree(new)
        new.mkdir()
        yield new
        if place.exists():
            os.replace(place, work / "old")
        os.replace(new, place)
    finally:
        shutil.rmtree(work)
