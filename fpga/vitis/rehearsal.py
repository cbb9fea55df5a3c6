"""package.tcl run by tclsh with stand-ins for Vivado's commands (stubs.tcl), and what was called held against the
description: every file, interface, association, register and property, in an order that Vivado needs.

It shows that the script is good Tcl and says what the description says; it cannot show that Vivado takes it.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fpga.vitis.buses import bus_parameters
from fpga.vitis.description import RtlKernel
from fpga.vitis.scripts import KERNEL_XML, SCRIPT, SOURCES
from fpga.vitis.shells import card

__all__ = ["RehearsalError", "available", "findings", "rehearse"]

_STUBS = Path(__file__).parent / "stubs.tcl"
Call = tuple[str, ...]


class RehearsalError(RuntimeError):
    """The script ended with an error; the message is what it said."""


def available() -> bool:
    """Whether there is a tclsh."""
    return shutil.which("tclsh") is not None


def rehearse(folder: Path, faults: Iterable[str] = ()) -> list[Call]:
    """The calls that package.tcl of a package makes, in order; `faults` as stubs.tcl knows them.

    Raises RehearsalError: the script failed; FileNotFoundError: there is no tclsh"""
    with tempfile.TemporaryDirectory() as work:
        run = subprocess.run(["tclsh", _STUBS, (folder / SCRIPT).resolve(), "calls", *faults], cwd=work,
                             capture_output=True, text=True, timeout=60)
        if run.returncode:
            raise RehearsalError((run.stderr.strip() or run.stdout.strip()).splitlines()[0])
        return [tuple(split(line)) for line in (Path(work) / "calls").read_text().splitlines()]


def split(line: str) -> list[str]:
    """The words of a Tcl list as Tcl itself writes one.

    >>> split("a {b c} {} d\\\\ e")
    ['a', 'b c', '', 'd e']
    """
    words: list[str] = []
    at = 0
    while at < len(line):
        if line[at] == " ":
            at += 1
        elif line[at] == "{":
            depth, end = 1, at + 1
            while depth:
                depth += {"{": 1, "}": -1}.get(line[end], 0)
                end += 1
            words.append(line[at + 1:end - 1])
            at = end
        else:
            word = ""
            while at < len(line) and line[at] != " ":
                at += line[at] == "\\"
                word += line[at]
                at += 1
            words.append(word)
    return words


def findings(calls: list[Call], kernel: RtlKernel) -> list[str]:
    """What the calls of a script have that the description has not, or the other way round; empty when they agree."""
    return [*_files(calls, kernel), *_buses(calls, kernel), *_registers(calls, kernel), *_properties(calls, kernel),
            *_xo(calls, kernel), *_order(calls)]


def _options(call: Call) -> dict[str, str]:
    return {word: value for word, value in zip(call, (*call[1:], "")) if word.startswith("-")}


def _named(calls: list[Call], name: str) -> list[Call]:
    return [call for call in calls if call[0] == name]


def _differences(what: str, found: dict, wanted: dict) -> list[str]:
    out = [f"{what} {key} is missing" for key in wanted if key not in found]
    out += [f"{what} {key} is not in the description" for key in found if key not in wanted]
    out += [f"{what} {key} is {found[key]}, not {value}" for key, value in wanted.items()
            if key in found and found[key] != value]
    return [f"{SCRIPT}: {text}" for text in out]


def _files(calls: list[Call], kernel: RtlKernel) -> list[str]:
    found = {Path(call[-1]).name: Path(call[-1]).parent.name for call in _named(calls, "add_files")}
    return _differences("file", found, dict.fromkeys(kernel.files, SOURCES))


def _buses(calls: list[Call], kernel: RtlKernel) -> list[str]:
    made = _named(calls, "ipx::associate_bus_interfaces")
    found = {_options(call)["-busif"]: _options(call).get("-clock") for call in made if "-busif" in _options(call)}
    out = _differences("clock of", found, {bus.name: kernel.clock.name for bus in kernel.buses})
    resets = {_options(call)["-clock"]: _options(call)["-reset"] for call in made if "-reset" in _options(call)}
    out += _differences("reset of", resets, {kernel.clock.name: kernel.reset.name})
    inferred = {call[1]: call[2].split(":")[2] for call in _named(calls, "ipx::infer_bus_interface")}
    out += _differences("inferred interface", inferred, {kernel.interrupt.name: "interrupt_rtl"})
    wanted = {(bus.name, name): str(value)
              for bus in kernel.buses for name, value in bus_parameters(bus, kernel.config).items()}
    wanted |= {(kernel.reset.name, "POLARITY"): "ACTIVE_LOW", (kernel.interrupt.name, "SENSITIVITY"): "LEVEL_HIGH"}
    parameters = {}
    for _, name, value, owner in _named(calls, "set_property"):
        if name == "value" and owner.startswith("core/bus="):
            bus, parameter = owner.removeprefix("core/bus=").split("/bus_parameter=")
            parameters[bus, parameter] = value
    return out + _differences("parameter", parameters, wanted)


def _registers(calls: list[Call], kernel: RtlKernel) -> list[str]:
    control = kernel.control
    block = f"core/memory_map={control.name}/address_block=reg0"
    found: dict[str, dict[str, str]] = {}
    for _, name, value, owner in _named(calls, "set_property"):
        if owner.startswith(f"{block}/register="):
            register, _, parameter = owner.removeprefix(f"{block}/register=").partition("/")
            found.setdefault(register, {})[parameter.removeprefix("register_parameter=") or name] = value
    told = {name: (int(known.get("address_offset", "-1"), 0), known.get("size"), known.get("access"),
                   known.get("ASSOCIATED_BUSIF", "")) for name, known in found.items()}
    wanted = {item.name: (item.offset, str(item.bits), item.access, item.bus) for item in kernel.registers}
    out = _differences("register (offset, bits, access, bus)", told, wanted)
    own = {name: value for _, name, value, owner in _named(calls, "set_property") if owner == block}
    out += _differences("address block's", own, {"range": str(control.range_bytes), "width": str(control.data_bits)})
    maps = {owner: value for _, name, value, owner in _named(calls, "set_property") if name == "slave_memory_map_ref"}
    return out + _differences("memory map of", maps, {f"core/bus={control.name}": control.name})


def _properties(calls: list[Call], kernel: RtlKernel) -> list[str]:
    found = {name: value for _, name, value, owner in _named(calls, "set_property") if owner == "core"}
    out = _differences("the kernel's", found, {
        "name": kernel.name, "version": kernel.version, "display_name": kernel.name, "description": kernel.about,
        "sdx_kernel": "true", "sdx_kernel_type": "rtl", "supported_families": "",
        "auto_family_support_level": "level_2", "ipi_drc": "ignore_freq_hz true",
        "xpm_libraries": "XPM_CDC XPM_MEMORY XPM_FIFO"})
    tops = {owner: value for _, name, value, owner in _named(calls, "set_property") if name == "top"}
    out += _differences("top of", tops, dict.fromkeys(("fileset/sources_1", "fileset/sim_1"), kernel.name))
    made = [_options(call) for call in _named(calls, "ipx::package_project")]
    told = {key: value for options in made for key, value in options.items() if key in
            ("-vendor", "-library", "-taxonomy")}
    out += _differences("package_project's", told, {"-vendor": kernel.vendor, "-library": kernel.library,
                                                    "-taxonomy": "/KernelIP"})
    parts = {f"project {call[-4]}": _options(call).get("-part") for call in _named(calls, "create_project")}
    return out + _differences("part of", parts, {f"project {kernel.name}": card().part})


def _xo(calls: list[Call], kernel: RtlKernel) -> list[str]:
    made = [_options(call) for call in _named(calls, "package_xo")]
    roots = [_options(call).get("-root_dir", "") for call in _named(calls, "ipx::package_project")]
    told = {key: Path(value).name if key != "-ip_directory" else value
            for options in made for key, value in options.items() if key != "-force"}
    return _differences("package_xo's", told, {"-xo_path": f"{kernel.name}.xo", "-kernel_name": kernel.name,
                                               "-kernel_xml": KERNEL_XML, "-ip_directory": "".join(roots)})


_SEQUENCE = ("create_project", "add_files", "update_compile_order", "ipx::package_project", "ipx::edit_ip_in_project",
             "ipx::associate_bus_interfaces", "ipx::create_xgui_files", "ipx::update_checksums",
             "ipx::check_integrity", "ipx::save_core", "close_project", "package_xo")


def _order(calls: list[Call]) -> list[str]:
    """Each command after all calls of the one before it; nothing of the kernel is set once its files are written."""
    names = [call[0] for call in calls]
    out = [f"{SCRIPT}: {name} is never called" for name in _SEQUENCE if name not in names]
    there = [name for name in _SEQUENCE if name in names]
    last = {name: len(names) - 1 - names[::-1].index(name) for name in there}
    out += [f"{SCRIPT}: {after} is called before the last {before}" for before, after in zip(there, there[1:])
            if names.index(after) < last[before]]
    if "set_property" in names and "ipx::create_xgui_files" in names:
        if len(names) - 1 - names[::-1].index("set_property") > names.index("ipx::create_xgui_files"):
            out.append(f"{SCRIPT}: set_property is called after ipx::create_xgui_files")
    if not any("-kernel" in call for call in _named(calls, "ipx::check_integrity")):
        out.append(f"{SCRIPT}: ipx::check_integrity is called without -kernel")
    return out
