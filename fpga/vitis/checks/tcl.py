"""package.tcl read back: run by tclsh with recorders in the place of Vivado's commands, and what it did as facts.

The recorders know nothing of Vivado but names: what was added is found afterwards. Tcl's own commands that reach out of
the script (`file` but for its questions, `exec`, `open` and the like) are recorded too, and not carried out. The script
runs in two worlds: in one nothing is there by itself, so that it must make every part; in the other Vivado has inferred
the interfaces and named its file groups after Verilog, so that it must make no part twice and look for no group by one
name.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from fpga.vitis.checks.component import listed
from fpga.vitis.checks.expected import CONTROL, CONTROL_BYTES, Expected
from fpga.vitis.checks.facts import ANY, Facts, compare
from fpga.vitis.checks.ports import CLOCK, INTERRUPT, RESET, Top, depths

__all__ = ["PART", "package_tcl"]

FILE = "package.tcl"
PART = "xcku15p-ffva1156-2LV-e"
_FLAGS = {"-force", "-norecurse", "-import_files", "-quiet", "-kernel", "-delete"}
Call = tuple[str, ...]
# What the script must end with an error at; Vivado ends with none but at the last.
_FAULTS = {
    "dropped": "a file that Vivado left out of the kernel", "added": "a file in the kernel that was not given",
    "lost": "packaged files that are not on disk", "ungrouped": "a kernel without file groups",
    "topless": "another module as top", "blind": "an interface that Vivado does not recognise",
    "unpacked": "package_xo making no .xo", "absent": "a file missing in src/",
    "unsound": "ipx::check_integrity returning 0", "broken": "ipx::check_integrity ending with an error",
}
# What Vivado infers by itself: the interfaces of some ports, and what belongs to them.
_INFERRED = ("bus_interface[ap_clk]", "bus_interface[ap_rst_n]", "bus_interface[s_axi_control]",
             "bus_interface[m00_axi]", "bus_interface[m01_axi]", "bus_interface[ap_rst_n]/bus_parameter[POLARITY]",
             "memory_map[s_axi_control]", "memory_map[s_axi_control]/address_block[reg0]")

_RECORDERS = r"""
set recorder(out) [open [lindex $argv 1] w]
set recorder(script) [lindex $argv 0]
set recorder(fault) [lindex $argv 2]
set recorder(files) {}
proc note {words} {
    set line {}
    foreach word $words { lappend line x[binary encode hex [encoding convertto utf-8 $word]] }
    puts $::recorder(out) [join $line " "]
}
proc option {words name} {
    set at [lsearch -exact $words $name]
    return [expr {$at < 0 ? "" : [lindex $words [expr {$at + 1}]]}]
}
proc touch {path} {
    real_file mkdir [real_file dirname $path]
    close [real_open $path w]
}
# What is not there is left to `unknown`.
foreach command {file open source} { rename $command real_$command }
foreach command {cd exec glob load socket} { rename $command {} }
proc unknown {command args} {
    if {$command eq "file" && [lindex $args 0] in {dirname exists join normalize tail}} {
        return [real_file {*}$args]
    }
    note [list $command {*}$args]
    if {[regexp {^ipx::add_(\w+)$} $command -> kind]} {
        set object "[lindex $args 1]/$kind\[[lindex $args 0]\]"
        if {[info exists "::recorder(made $object)"]} { error "$object is there already" }
        set "::recorder(made $object)" 1
        return $object
    }
    if {$command eq "ipx::get_files"} {
        set found {}
        foreach file $::recorder(files) { lappend found "file/src/[real_file tail $file]" }
        if {$::recorder(fault) eq "dropped"} { set found [lrange $found 1 end] }
        if {$::recorder(fault) eq "added"} { lappend found file/src/stranger.v }
        return $found
    }
    if {$command eq "ipx::get_file_groups" && $::recorder(fault) eq "ungrouped"} { return "" }
    if {$command eq "ipx::get_file_groups"} {
        set language [expr {$::recorder(fault) eq "inferred" ? "verilog" : "anylanguage"}]
        set found {}
        foreach kind {synthesis behavioralsimulation} {
            set group "xilinx_$language$kind"
            if {[string match [lindex $args 0] $group]} { lappend found "core/file_group=$group" }
        }
        return $found
    }
    if {[regexp {^ipx::get_(\w+)s$} $command -> kind]} {
        set object "[option $args -of_objects]/$kind\[[lindex $args 0]\]"
        return [expr {[info exists "::recorder(made $object)"] ? $object : ""}]
    }
    switch -- $command {
        ipx::current_core { return core }
        ipx::check_integrity {
            if {$::recorder(fault) eq "broken"} { error "integrity check failed" }
            return [expr {$::recorder(fault) ne "unsound"}]
        }
        ipx::infer_bus_interface {
            set name [lindex $args 0 0]
            if {[llength [lindex $args 0]] > 1} { set name [string range $name 0 [expr {[string last _ $name] - 1}]] }
            if {$::recorder(fault) ne "blind"} { set "::recorder(made core/bus_interface\[$name\])" 1 }
        }
        get_filesets { return "fileset/[lindex $args 0]" }
        set_property { set "::recorder(is [lindex $args 2],[lindex $args 0])" [lindex $args 1] }
        get_property {
            if {[lindex $args 0] eq "top" && $::recorder(fault) eq "topless"} { return other }
            set key "is [lindex $args 1],[lindex $args 0]"
            if {[string match file/* [lindex $args 1]]} { return [string range [lindex $args 1] 5 end] }
            return [expr {[info exists ::recorder($key)] ? $::recorder($key) : ""}]
        }
        add_files { lappend ::recorder(files) [lindex $args end] }
        ipx::package_project {
            touch [real_file join [option $args -root_dir] src stranger.v]
            if {$::recorder(fault) ne "lost"} {
                foreach file $::recorder(files) {
                    touch [real_file join [option $args -root_dir] src [real_file tail $file]]
                }
            }
        }
        package_xo { if {$::recorder(fault) ne "unpacked"} { touch [option $args -xo_path] } }
    }
    return ""
}
if {$recorder(fault) eq "inferred"} {
    foreach object [lrange $argv 3 end] { set "recorder(made core/$object)" 1 }
}
set argv {}
set argc 0
real_source $recorder(script)
close $recorder(out)
"""


def package_tcl(text: str, expected: Expected, top: Top | None, vlnv: str, verilog: Collection[str],
                config: Mapping[str, int]) -> Iterator[str]:
    """What a package.tcl does that it should not, or leaves out.

    Parameters  verilog: the paths of the Verilog, "src/<module>.v"; config: the core's, for the masters' depths"""
    if top is None:
        return      # said of the Verilog
    verilog = sorted(Path(name).name for name in verilog)
    if shutil.which("tclsh") is None:
        yield from _unrun(text, expected, verilog)
        return
    calls = _calls(text, tuple(verilog))
    if isinstance(calls, str):
        yield f"{FILE}: the script ends with an error: {calls}"
        return
    wanted = _wanted(expected, top, vlnv, verilog, config)
    yield from compare(FILE, _facts(calls), wanted)
    yield from _order(calls)
    for fault, what in _FAULTS.items():
        if not isinstance(_calls(text, tuple(verilog), fault), str):
            yield f"{FILE}: the script does not notice {what}"
    if isinstance(ends := _calls(text, tuple(verilog), "inferred"), str):
        yield f"{FILE}: where Vivado has inferred the interfaces, the script ends with an error: {ends}"
        return
    there = {f"core/{part}{what}" for part in _INFERRED for what in ("", ": ports")}
    yield from compare(FILE, _facts(ends), {name: value for name, value in wanted.items() if name not in there})
    yield from _order(ends)


@lru_cache(maxsize=256)
def _calls(text: str, verilog: tuple[str, ...], fault: str = "") -> tuple[Call, ...] | str:
    """What the script calls, run beside empty files of these names; or the error it ends with."""
    with tempfile.TemporaryDirectory() as folder:
        here, work = Path(folder) / "here", Path(folder) / "work"
        for path in (here / "src", work):
            path.mkdir(parents=True)
        for name in verilog[fault == "absent":]:
            (here / "src" / name).touch()
        (here / "kernel.xml").touch()
        (here / FILE).write_text(text)
        (work / "recorders.tcl").write_text(_RECORDERS)
        try:
            run = subprocess.run(["tclsh", "recorders.tcl", str(here / FILE), "calls", fault, *_INFERRED], cwd=work,
                                 text=True, capture_output=True, timeout=30)
        except subprocess.TimeoutExpired:
            return "it does not end"
        if run.returncode:
            return (run.stderr.strip() or run.stdout.strip() or f"code {run.returncode}").splitlines()[0]
        lines = (work / "calls").read_text().splitlines()
        where = ((str(here), "HERE"), (str(work), "WORK"))
    calls = []
    for line in lines:
        words = [bytes.fromhex(word[1:]).decode() for word in line.split()]
        for real, name in where:
            words = [word.replace(real, name) for word in words]
        calls.append(tuple(words))
    return tuple(calls)


def _split(call: Call) -> tuple[dict[str, str], list[str]]:
    """Options and other words of a call."""
    options: dict[str, str] = {}
    words, rest = [], list(call[1:])
    while rest:
        word = rest.pop(0)
        if word in _FLAGS:
            options[word] = ""
        elif re.fullmatch(r"-[a-z_]+", word) and rest:
            options[word] = rest.pop(0)
        else:
            words.append(word)
    return options, words


def _bus(ports: list[str]) -> str:
    """The interface that ports belong to by their names."""
    return "".join(ports[:1]) if len(ports) < 2 else ports[0].rpartition("_")[0]


def _facts(calls: tuple[Call, ...]) -> Facts:
    out: Facts = {}

    def put(name: str, value: str) -> None:
        out[f"{name} again" if name in out else name] = value

    for call in calls:
        options, words = _split(call)
        name = call[0]
        if name == "set_property" and len(words) == 3:
            put(f"{words[2]}.{words[0]}", words[1])
        elif name.startswith("ipx::add_") and len(words) == 2:
            put(f"{words[1]}/{name.removeprefix('ipx::add_')}[{words[0]}]", "made")
        elif name == "ipx::infer_bus_interface" and len(words) == 3:
            ports = words[0].split()
            bus = _bus(ports)
            put(f"{words[2]}/bus_interface[{bus}]", words[1])
            put(f"{words[2]}/bus_interface[{bus}]: ports", " ".join(sorted(ports)))
        elif name == "ipx::associate_bus_interfaces":
            what = f"bus {options['-busif']}" if "-busif" in options else "reset"
            put(f"association of {what}", " ".join(f"{k} {v}" for k, v in sorted(options.items()) if k != "-busif"))
        elif name == "add_files":
            for word in words:
                put(f"file {Path(word).name}", str(Path(word).parent))
        elif not name.startswith("ipx::get_") and name not in ("get_filesets", "get_property", "ipx::current_core"):
            if len(call) == 1:
                put(name, "")
            for word in words:
                put(f"{name} {word}", "")
            for option, value in options.items():
                put(f"{name}{' ' + words[0] if words else ''} {option}", value)
    return out


def _wanted(expected: Expected, top: Top, vlnv: str, verilog: Collection[str], config: Mapping[str, int]) -> Facts:
    vendor, library, kernel, version = vlnv.split(":")
    out: Facts = {f"file {name}": "HERE/src" for name in verilog}
    out |= {
        f"create_project {expected.kernel}": "", "create_project WORK/project": "",
        f"create_project {expected.kernel} -force": "", f"create_project {expected.kernel} -part": PART,
        "fileset/sources_1.top": expected.kernel, "fileset/sim_1.top": expected.kernel,
        "update_compile_order -fileset": "sources_1", "update_compile_order -fileset again": "sim_1",
        "ipx::package_project -root_dir": "WORK/packaged", "ipx::package_project -vendor": vendor,
        "ipx::package_project -library": library, "ipx::package_project -taxonomy": "/KernelIP",
        "ipx::package_project -import_files": "", "ipx::package_project -set_current": "false",
        "ipx::unload_core WORK/packaged/component.xml": "",
        "ipx::edit_ip_in_project WORK/packaged/component.xml": "",
        "ipx::edit_ip_in_project WORK/packaged/component.xml -upgrade": "true",
        "ipx::edit_ip_in_project WORK/packaged/component.xml -name": f"edit_{expected.kernel}",
        "ipx::edit_ip_in_project WORK/packaged/component.xml -directory": "WORK/packaged",
        "core.name": kernel, "core.version": version, "core.display_name": ANY, "core.description": expected.about,
        "core.sdx_kernel": "true", "core.sdx_kernel_type": "rtl", "core.supported_families": "",
        "core.auto_family_support_level": "level_2", "core.ipi_drc": "ignore_freq_hz true",
        "core.xpm_libraries": "XPM_CDC XPM_MEMORY XPM_FIFO",
        "ipx::create_xgui_files core": "", "ipx::update_checksums core": "", "ipx::check_integrity core": "",
        "ipx::check_integrity core -kernel": "", "ipx::save_core core": "", "close_project -delete": "",
        "package_xo -force": "", "package_xo -xo_path": f"WORK/{expected.kernel}.xo",
        "package_xo -kernel_name": expected.kernel, "package_xo -kernel_xml": "HERE/kernel.xml",
        "package_xo -ip_directory": "WORK/packaged",
    }
    return out | _interfaces(top, config) | _registers(expected)


def _interfaces(top: Top, config: Mapping[str, int]) -> Facts:
    out: Facts = {"association of reset": f"-clock {CLOCK} -reset {RESET}"}

    def parameter(bus: str, name: str, value: str) -> None:
        node = f"core/bus_interface[{bus}]/bus_parameter[{name}]"
        out.update({node: "made", f"{node}.value": value})

    for name, kind in ((CLOCK, "clock"), (RESET, "reset"), (INTERRUPT, "interrupt")):
        out |= {f"core/bus_interface[{name}]": f"xilinx.com:signal:{kind}_rtl:1.0",
                f"core/bus_interface[{name}]: ports": name}
    parameter(RESET, "POLARITY", "ACTIVE_LOW")
    parameter(INTERRUPT, "SENSITIVITY", "LEVEL_HIGH")
    for interface in top.interfaces:
        node = f"core/bus_interface[{interface.name}]"
        out |= {node: "xilinx.com:interface:aximm_rtl:1.0", f"association of bus {interface.name}": f"-clock {CLOCK}",
                f"{node}: ports": " ".join(sorted(port.name for _, port in interface.signals))}
        if interface.mode == "master":
            for key, value in depths(interface, config).items():
                parameter(interface.name, key, value)
    return out


def _registers(expected: Expected) -> Facts:
    memory = f"core/memory_map[{CONTROL}]"
    block = f"{memory}/address_block[reg0]"
    out: Facts = {memory: "made", block: "made", f"{block}.range": str(CONTROL_BYTES), f"{block}.width": "32",
                  f"core/bus_interface[{CONTROL}].slave_memory_map_ref": CONTROL}
    for name, offset, bits, access, bus, about in listed(expected):
        node = f"{block}/register[{name}]"
        out |= {node: "made", f"{node}.address_offset": str(offset), f"{node}.size": str(bits),
                f"{node}.access": access, f"{node}.description": about}
        if bus:
            parameter = f"{node}/register_parameter[ASSOCIATED_BUSIF]"
            out |= {parameter: "made", f"{parameter}.value": bus}
    return out


# Each after all of the one before it.
_SEQUENCE = ("create_project", "add_files", "update_compile_order", "ipx::package_project", "ipx::unload_core",
             "ipx::edit_ip_in_project", "ipx::associate_bus_interfaces", "ipx::add_register", "ipx::create_xgui_files",
             "ipx::update_checksums", "ipx::check_integrity", "ipx::save_core", "package_xo")


def _order(calls: tuple[Call, ...]) -> Iterator[str]:
    names = [call[0] for call in calls]
    there = [name for name in _SEQUENCE if name in names]
    for before, after in zip(there, there[1:]):
        if names.index(after) < len(names) - 1 - names[::-1].index(before):
            yield f"{FILE}: {after} is called before the last {before}"
    tops = [at for at, call in enumerate(calls) if call[:2] == ("set_property", "top")]
    first, last = ({name: at for at, name in order} for order in
                   (list(enumerate(names))[::-1], list(enumerate(names))))
    for at in tops:
        if not last.get("add_files", -1) < at < first.get("update_compile_order", len(names)):
            yield f"{FILE}: top must be set after add_files and before update_compile_order"
    made = {_bus(call[1].split()): at for at, call in enumerate(calls) if call[0] == "ipx::infer_bus_interface"}
    for at, call in enumerate(calls):
        bus = _split(call)[0].get("-busif", "") if call[0] == "ipx::associate_bus_interfaces" else ""
        if made.get(bus, -1) > at:
            yield f"{FILE}: {bus} is given its clock before it is made"
    late = [call for call in calls[first.get("ipx::create_xgui_files", len(names)):] if call[0] == "set_property"]
    for call in late:
        yield f"{FILE}: {' '.join(call[:2])} comes after ipx::create_xgui_files"


def _unrun(text: str, expected: Expected, verilog: Collection[str]) -> Iterator[str]:
    """Without tclsh: the two lists of the script, files and registers."""
    lists = {name: body.split("\n") for name, body in re.findall(r"(?ms)^set (sources|registers) \{\n(.*?)\n\}$", text)}
    files = [line.strip() for line in lists.get("sources", ())]
    if sorted(files) != sorted(verilog):
        different = sorted(set(files) ^ set(verilog)) or ["a file twice"]
        yield f"{FILE}: sources and src/ differ: {', '.join(different)}"
    rows = [line.split() for line in lists.get("registers", ())]
    found = {row[0]: " ".join([str(int(row[1], 0)), *row[2:4]]) for row in rows if len(row) > 3}
    wanted = {name: f"{offset} {bits} {access}" for name, offset, bits, access, _, _ in listed(expected)}
    yield from compare(FILE, found, wanted)
