"""From a preset's core to the complete folder of its Vitis package: build/<preset>/vitis/<core>/, <core>-flat/ for the
flat shell.

    src/*.v  kernel.xml  component.xml  xgui/*.tcl  package.tcl  link.cfg    what Vivado and v++ read
    memory.tcl                                                               only on request, experimental
    hotrail_<core>.h  hotrail_<core>.py  <core>.md  host.cpp                 what a host is written with
    model/*                                                                  C model for software emulation, of emb
    package.json                                                             every file's sha256, what was measured

The folder is written beside its place, read back, and renamed: it is there whole or not at all. The same preset gives
the same bytes. One process at a time makes what belongs at a place.
"""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fpga.vitis import gate as gates
from fpga.vitis.check import BOARD, MANIFEST, TOOLS, check
from fpga.vitis.component_xml import component_xml
from fpga.vitis.constraints import xdc, xdc_name
from fpga.vitis.description import RtlKernel, prepare, preset_of
from fpga.vitis.gate import Gate
from fpga.vitis.kernel_xml import kernel_xml
from fpga.vitis.link import check_host, check_instances, link_cfg
from fpga.vitis.memory import MEMORY, memory_tcl
from fpga.vitis.model import model
from fpga.vitis.scripts import KERNEL_XML, SCRIPT, SOURCES, package_tcl
from fpga.vitis.systemrdl import rdl, rdl_name
from fpga.vitis.xgui import xgui, xgui_path
from fpga.vitis.xo import xo
from gen.base.tools import build_folder
from gen.model.platform import DEFAULT, Budget, Platform, find
from gen.rtl import config as presets
from gen.rtl import headers
from gen.rtl.cores import CORES
from gen.rtl.delivery import delivered

LINK = "link.cfg"
_HOSTS = {"emb": "emb_bags.cpp"}        # example hosts in fpga/vitis/hosts

Say = Callable[[str], None]


class Busy(RuntimeError):
    """Another process makes the same; the message says which."""


class PackageError(RuntimeError):
    """A package that was not written; `reasons` are the sentences."""

    def __init__(self, reasons: tuple[str, ...] | list[str]) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = tuple(reasons)


@dataclass(frozen=True)
class Package:
    """A package on disk. `manifest`: the text of its package.json; `gate`: None when it was left out."""

    folder: Path
    kernel: RtlKernel
    clock_mhz: int
    instances: int
    manifest: str
    gate: Gate | None


def kernels(preset: str) -> list[str]:
    """The cores of a preset that are kernels. Raises ConfigError: the preset"""
    return [name for name in presets.load(preset).cores if CORES[name].is_kernel]


def package(preset: str, core: str, *, platform: str = "", clock_mhz: int | None = None, instances: int = 1,
            out: Path | None = None, force: bool = False, gated: bool = True, experimental_xo: bool = False,
            experimental_memory: bool = False, monitors: bool = False, host: Sequence[str] = (),
            say: Say = lambda line: None, measured: Callable[[Gate], None] = lambda gate: None) -> Package:
    """Writes the package of a core.

    Parameters  platform: as gen.model.platform.find takes it, default: the standard shell of the SmartSSD;
                clock_mhz: of the kernel, one that the platform offers, default: its first; instances: in the image;
                out: folder for the presets' folders; force: writes what the gate refuses, and says so in package.json;
                gated: False leaves the gate out, and says so; experimental_xo: an .xo made without Vivado;
                experimental_memory: memory.tcl for the link; monitors: a logic analyzer, protocol checkers and
                counters of traffic at the AXI ports, which the gate does not count; host: masters that are linked to
                the host's memory, as fpga.vitis.link takes them; say: is told what takes long;
                measured: is told of the gate
    Raises      ConfigError: the preset, a board's file; ValueError: the core, platform, clock, instances or `out`;
                Busy: another process makes it; PackageError: refused, or not on disk as it was written
    """
    board, shell = find(platform)
    if not board.vitis:
        raise ValueError(f"platform {board.name} ({board.about}): Vitis does not link for it, so there is no package")
    if experimental_memory and board.name != DEFAULT:
        raise ValueError(f"experimental_memory is for the memory of the {Platform.load().about}, not for that of the "
                         f"{board.about}")
    known = board.clocks_mhz
    clock_mhz = known[0] if clock_mhz is None else clock_mhz
    if clock_mhz not in known:
        raise ValueError(f"clock must be one of {', '.join(map(str, known))} MHz, not {clock_mhz!r}")
    place = (out or build_folder()) / preset_of(preset, core).name / "vitis" / _name(core, board, shell)
    masters = {argument.port for argument in headers.KERNELS[core].arguments if argument.port}
    check_instances(f"hotrail_{core}", len(masters), instances, board)
    check_host(core, host, board)
    with whole(place) as folder:
        say(f"{preset}/{core}: Verilog" + (", then area and depth by Yosys (minutes at first)" if gated else ""))
        kernel, texts = prepare(preset, core)
        judged = None
        if gated:
            judged = gates.judge(kernel, gates.measure(kernel, texts, say), clock_mhz=clock_mhz,
                                 instances=instances, platform=platform)
            measured(judged)
            if judged.misses and not force:
                raise PackageError(judged.misses)
        kernel, texts = named(kernel, texts)
        link = link_cfg(kernel, instances, platform=board, host=host, monitors=monitors)
        parts = contents(kernel, texts, link, part=board.part, monitors=monitors)
        if board.path:
            parts[BOARD] = board.path.read_bytes()
        if experimental_xo:
            parts[f"{kernel.name}.xo"] = xo(kernel, texts, monitors)
        if experimental_memory:
            parts[MEMORY] = memory_tcl().encode()
        for name, data in parts.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        gate_record = judged.as_dict() | {"forced": bool(judged.misses)} if judged else {"passed": None}
        entries = _manifest(kernel, parts, board.part, shell, clock_mhz, instances, gate_record)
        manifest = json.dumps(entries, indent=1) + "\n"
        (folder / MANIFEST).write_text(manifest, "utf-8")
        if faults := check(folder):
            raise PackageError(faults)
    return Package(place, kernel, clock_mhz, instances, manifest, judged)


def _name(core: str, board: Platform, shell: Budget) -> str:
    """Of a package's folder; what is made of it begins with the same."""
    return "-".join([core, *([board.name] if board.name != DEFAULT else []),
                     *([shell.name] if shell != board.shell else [])])


def named(kernel: RtlKernel, texts: Mapping[str, str]) -> tuple[RtlKernel, dict[str, str]]:
    """A kernel and its Verilog with the names and the banner that they have outside (gen.rtl.delivery)."""
    own = delivered(texts, kernel.name, f"Kernel {kernel.name} of the preset {kernel.preset}")
    return replace(kernel, files=tuple(sorted(own))), own


def contents(kernel: RtlKernel, texts: Mapping[str, str], link: str, *, part: str = "",
             monitors: bool = False) -> dict[str, bytes]:
    """What is generated from the description, by its path in the package. part: default, the default platform's;
    monitors: nets are marked for a logic analyzer."""
    files = {f"{SOURCES}/{name}": text.encode() for name, text in texts.items()}
    files |= {KERNEL_XML: kernel_xml(kernel), "component.xml": component_xml(kernel, texts),
              f"{SOURCES}/{xdc_name(kernel)}": xdc(kernel, monitors).encode(), rdl_name(kernel): rdl(kernel).encode(),
              xgui_path(kernel): xgui(kernel).encode(), SCRIPT: package_tcl(kernel, part).encode(), LINK: link.encode()}
    files |= {name: text.encode() for name, text in headers.texts(headers.KERNELS[kernel.core]).items()}
    files |= model(kernel)
    if kernel.core in _HOSTS:
        files["host.cpp"] = (Path(__file__).parent / "hosts" / _HOSTS[kernel.core]).read_bytes()
    return files


def _manifest(kernel: RtlKernel, parts: Mapping[str, bytes], part: str, shell: Budget, clock_mhz: int, instances: int,
              gate: dict[str, Any]) -> dict[str, Any]:
    return {
        "kernel": kernel.name, "vlnv": kernel.vlnv, "core": kernel.core, "preset": kernel.preset,
        "clock_mhz": clock_mhz, "instances": instances, "part": part, "platform": shell.platform,
        "config": kernel.config, "gate": gate,
        "tools": {"hotrail": version("hotrail"), **{name: version(name) for name in TOOLS}},
        "files": {name: hashlib.sha256(parts[name]).hexdigest() for name in sorted(parts)},
    }


@contextmanager
def whole(place: Path, *, keeps: bool = False) -> Iterator[Path]:
    """A new folder, <place>-new, that takes its place when the block ends well; what was there stays until then, and
    whatever happens. When the block does not end well the new folder is gone, or `keeps` for whoever asks why, until
    the next begins.

    Raises Busy: another process is at it; ValueError: nothing can be written there"""
    new, old = (place.with_name(f"{place.name}-{word}") for word in ("new", "old"))
    with held(place):
        _settle(place, old)
        if new.exists():
            shutil.rmtree(new)
        new.mkdir()
        try:
            yield new
            if place.exists():
                os.replace(place, old)
            os.replace(new, place)
        finally:
            _settle(place, old)
            if not keeps:
                shutil.rmtree(new, ignore_errors=True)


def _settle(place: Path, old: Path) -> None:
    """Ends two renames, of which the second was perhaps never reached."""
    if place.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        os.replace(old, place)


@contextmanager
def held(place: Path) -> Iterator[None]:
    """What belongs at the place is this process's until the block or the process ends.

    Raises Busy: it is another's; ValueError: nothing can be written there"""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = place.with_name(f".{place.name}.lock").open("a+")
    except OSError as error:
        raise ValueError(f"nothing can be written to {place.parent}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise Busy(f"{place} is being made by {lock.read()}: wait for its end, or give another folder") from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} ({shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])})")
        lock.flush()
        yield
