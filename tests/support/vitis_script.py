"""A packaging script rehearsed: run by tclsh with recorders in the place of Vivado's commands, and held against AMD's
rules and the description of the kernel.

In one world nothing is there by itself, so that the script must make every part; in the other, "inferred", Vivado has
inferred interfaces, so that it must make no part twice.
"""

import re
import subprocess
import tempfile
from pathlib import Path

RECORDER = Path(__file__).with_name("vitis_recorder.tcl")
# What Vivado infers by itself: the interfaces of some ports, and what belongs to them.
_INFERRED = ("bus_interface[ap_clk]", "bus_interface[ap_rst_n]", "bus_interface[s_axi_control]",
             "bus_interface[m00_axi]", "bus_interface[m01_axi]", "bus_interface[ap_rst_n]/bus_parameter[POLARITY]",
             "memory_map[s_axi_control]", "memory_map[s_axi_control]/address_block[reg0]")
# Each after all of the one before it; the top is set after the files and before the order of compilation.
_SEQUENCE = ("create_project", "add_files", "set_property top", "update_compile_order", "ipx::package_project",
             "ipx::unload_core", "ipx::edit_ip_in_project", "ipx::associate_bus_interfaces", "ipx::add_register",
             "ipx::create_xgui_files", "ipx::update_checksums", "ipx::check_integrity", "ipx::save_core", "package_xo")
_VIVADO = re.compile(r"ipx::\w+|(get|set)_property|get_filesets|create_project|close_project|add_files|package_xo|"
                     r"update_compile_order")


def calls(text, files, fault=""):
    """What the script calls, run beside empty files of these names: a tuple of words each, its own folder HERE, that
    which it is started in WORK. The error that it ends with, as a text, where it does."""
    with tempfile.TemporaryDirectory() as folder:
        here, work = Path(folder) / "here", Path(folder) / "work"
        for path in (here / "src", work):
            path.mkdir(parents=True)
        for name in sorted(files)[fault == "absent":]:
            (here / "src" / name).touch()
        (here / "kernel.xml").touch()
        if (name := re.search(r"(?m)^set name (.+)$", text)) and fault != "unconstrained":
            (here / "src" / f"{name[1]}.xdc").touch()
        (here / "package.tcl").write_text(text, "utf-8")
        run = subprocess.run(["tclsh", RECORDER, here / "package.tcl", work / "calls", fault, *_INFERRED], cwd=work,
                             text=True, capture_output=True, timeout=30)
        if run.returncode:
            return (run.stderr.strip() or f"code {run.returncode}").splitlines()[0]
        lines = (work / "calls").read_text("utf-8").splitlines()
    return [tuple(bytes.fromhex(word[1:]).decode().replace(str(here), "HERE").replace(str(work), "WORK")
                  for word in line.split()) for line in lines]


def broken(kernel, made):
    """Where the calls of a script that makes every part break AMD's rules, or are not what the description says."""
    if isinstance(made, str):
        yield made
        return
    names = [f"set_property {call[1]}" if call[:2] == ("set_property", "top") else call[0] for call in made]
    for before, after in zip(_SEQUENCE, _SEQUENCE[1:]):
        if after not in names:
            yield f"{after} is not called"
        elif before in names and names.index(after) < len(names) - 1 - names[::-1].index(before):
            yield f"{after} is called before the last {before}"
    yield from (f"{' '.join(call)} is none of Vivado's" for call in made if not _VIVADO.fullmatch(call[0]))
    form = names.index("ipx::create_xgui_files")
    yield from (f"{' '.join(call[:2])} comes after the form" for call in made[form:] if call[0] == "set_property")
    clocked = {call[2]: call[3:5] for call in made if call[:2] == ("ipx::associate_bus_interfaces", "-busif")}
    for bus in kernel.buses:
        if clocked.get(bus.name) != ("-clock", "ap_clk"):
            yield f"{bus.name} has no clock"
    for wanted in (("ipx::associate_bus_interfaces", "-clock", "ap_clk", "-reset", "ap_rst_n"),
                   ("ipx::check_integrity", "-kernel"), ("set_property", "sdx_kernel", "true", "core"),
                   ("set_property", "sdx_kernel_type", "rtl", "core"), ("-kernel_xml", "HERE/kernel.xml"),
                   ("-kernel_name", kernel.name), ("-xo_path", f"WORK/{kernel.name}.xo")):
        if not any(" ".join(wanted) in " ".join(call) for call in made):
            yield f"{' '.join(wanted)} is missing"
    given = {call[3]: {} for call in made if call[0] == "set_property"}
    for call in made:
        if call[0] == "set_property":
            given[call[3]][call[1]] = call[2]
    for register in kernel.registers:
        node = f"core/memory_map[{kernel.control.name}]/address_block[reg0]/register[{register.name}]"
        told = given.get(node, {})
        bus = given.get(f"{node}/register_parameter[ASSOCIATED_BUSIF]", {}).get("value", "")
        if (int(told.get("address_offset", "-1"), 0), told.get("size"), told.get("access"), bus) != (
                register.offset, str(register.bits), register.access, register.bus):
            yield f"register {register.name} is {told} of {bus!r}"
    ports = [port for call in made if call[0] == "ipx::infer_bus_interface" for port in call[1].split()]
    if sorted(ports) != sorted(pin.name for pin in kernel.pins):
        yield f"interfaces hold {len(ports)} ports; the kernel has {len(kernel.pins)}"
    files = [Path(call[-1]).name for call in made if call[0] == "add_files"]
    if sorted(files) != sorted([*kernel.files, f"{kernel.name}.xdc"]):
        yield f"{len(files)} files are given; the kernel has {len(kernel.files)}"
