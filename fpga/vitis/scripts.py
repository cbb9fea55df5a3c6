"""The Tcl that Vivado packages a kernel with: AMD's own way from Verilog to an .xo.

Vivado has not run it. The tests run it under tclsh with recorders in the place of Vivado's commands and hold what it
does against the description. Whether Vivado takes it is not verified.
Source: UG1393 (packaging RTL kernels, package_xo), UG1118 (ipx commands), AMD's Vitis_Accel_Examples
"""

from collections.abc import Iterable

from fpga.vitis.buses import bus_parameters
from fpga.vitis.constraints import xdc_name
from fpga.vitis.description import RtlKernel
from fpga.vitis.model import model
from gen.model.platform import Platform

SCRIPT, KERNEL_XML, SOURCES = "package.tcl", "kernel.xml", "src"
_AXI = "xilinx.com:interface:aximm_rtl:1.0"
_SIGNAL = "xilinx.com:signal:{}_rtl:1.0"

_HEAD = """\
# Packages the kernel {name} ({vlnv}, preset {preset}) as {name}.xo. Generated: do not edit.
#
#     vivado -mode batch -source {script}
#
# reads what lies beside this script and writes {name}.xo, packaged/ and project/ into the folder it is started in.
set here [file dirname [file normalize [info script]]]
set out [pwd]
set packaged [file join $out packaged]
set name {name}
namespace eval hotrail {{}}

proc hotrail::fail {{text}} {{
    puts stderr "ERROR: $text"
    exit 1
}}

# The part of that kind and name in its owner; it is made when the tool has not inferred it.
proc hotrail::part {{kind name owner}} {{
    set found [ipx::get_${{kind}}s $name -of_objects $owner -quiet]
    if {{$found ne ""}} {{ return $found }}
    return [ipx::add_$kind $name $owner]
}}

proc hotrail::parameter {{interface name value}} {{
    set_property value $value [hotrail::part bus_parameter $name $interface]
}}

# The interface of that name; inferred from its ports when the tool has not done so by itself.
proc hotrail::interface {{name definition ports core}} {{
    set found [ipx::get_bus_interfaces $name -of_objects $core -quiet]
    if {{$found eq ""}} {{
        ipx::infer_bus_interface $ports $definition $core
        set found [ipx::get_bus_interfaces $name -of_objects $core -quiet]
    }}
    if {{$found eq ""}} {{ hotrail::fail "the ports of $name were not recognised as an interface $definition" }}
    return $found
}}
"""

_PROJECT = """\
create_project -force $name [file join $out project] -part {part}
foreach source $sources {{
    set path [file join $here {folder} $source]
    if {{![file exists $path]}} {{ hotrail::fail "{folder}/$source is missing beside the script" }}
    add_files -norecurse -fileset sources_1 $path
}}
set path [file join $here {folder} {constraints}]
if {{![file exists $path]}} {{ hotrail::fail "{folder}/{constraints} is missing beside the script" }}
add_files -norecurse -fileset constrs_1 $path
set_property top $name [get_filesets sources_1]
set_property top $name [get_filesets sim_1]
update_compile_order -fileset sources_1
update_compile_order -fileset sim_1
if {{[get_property top [get_filesets sources_1]] ne $name}} {{
    hotrail::fail "the top module is [get_property top [get_filesets sources_1]], not $name: its Verilog was not read"
}}

ipx::package_project -root_dir $packaged -vendor {vendor} -library {library} -taxonomy /KernelIP \\
    -import_files -set_current false
ipx::unload_core [file join $packaged component.xml]
ipx::edit_ip_in_project -upgrade true -name edit_$name -directory $packaged [file join $packaged component.xml]
set core [ipx::current_core]
set_property name $name $core
set_property version {version} $core
set_property display_name $name $core
set_property description {about} $core
"""

_CONTROL = """\
# Registers of the control slave; those with a bus hold the address of a buffer behind it.
set map [hotrail::part memory_map {control} $core]
set block [hotrail::part address_block reg0 $map]
set_property range {range} $block
set_property width {width} $block
foreach {{register offset bits access bus about}} $registers {{
    set made [hotrail::part register $register $block]
    set_property address_offset $offset $made
    set_property size $bits $made
    set_property access $access $made
    set_property description $about $made
    if {{$bus ne ""}} {{ set_property value $bus [hotrail::part register_parameter ASSOCIATED_BUSIF $made] }}
}}
set_property slave_memory_map_ref {control} [ipx::get_bus_interfaces {control} -of_objects $core]
"""

_END = """\
set_property sdx_kernel true $core
set_property sdx_kernel_type rtl $core
set_property supported_families {{}} $core
set_property auto_family_support_level level_2 $core
# The clock is the shell's: no frequency is given. The check below asks for the libraries by name, used or not.
set_property ipi_drc {{ignore_freq_hz true}} $core
set_property xpm_libraries {{XPM_CDC XPM_MEMORY XPM_FIFO}} $core
ipx::create_xgui_files $core
ipx::update_checksums $core
set sound [ipx::check_integrity -kernel $core]
if {{$sound eq "0"}} {{ hotrail::fail "ipx::check_integrity finds faults in the kernel: see the messages above" }}
ipx::save_core $core

# Vivado leaves out files that it could not read and goes on: what was given must be what was packaged. Constraints
# belong to the synthesis group, which placement and routing read too.
# A group's name begins with the languages in it.
set constrained 0
foreach groups {{*synthesis *simulation}} {{
    set kept {{}}
    foreach group [ipx::get_file_groups $groups -of_objects $core -quiet] {{
        foreach file [ipx::get_files -of_objects $group] {{
            set path [get_property NAME $file]
            if {{![file exists [file join $packaged $path]]}} {{ hotrail::fail "$groups names $path, not there" }}
            if {{[string match *.xdc $path]}} {{ set constrained 1 }} else {{ lappend kept [file tail $path] }}
        }}
    }}
    foreach source $sources {{
        if {{$source ni $kept}} {{ hotrail::fail "Vivado dropped $source from $groups: look for syntax errors above" }}
    }}
    foreach file $kept {{
        if {{$file ni $sources}} {{ hotrail::fail "$groups has the file $file, which was not given" }}
    }}
}}
if {{!$constrained}} {{ hotrail::fail "Vivado dropped {constraints}" }}
close_project -delete

package_xo -force -xo_path [file join $out $name.xo] -kernel_name $name \\
    -kernel_xml [file join $here {kernel_xml}] -ip_directory $packaged{model}
if {{![file exists [file join $out $name.xo]]}} {{ hotrail::fail "package_xo made no $name.xo" }}
puts "hotrail: packaged [llength $sources] files as [file join $out $name.xo]"
"""

def package_tcl(kernel: RtlKernel, part: str = "") -> str:
    """The packaging script of a kernel, to lie beside its kernel.xml and src/, for a part, default: the default
    platform's. Commands of Tcl 8.5 only."""
    blocks = [
        _HEAD.format(name=kernel.name, vlnv=kernel.vlnv, preset=kernel.preset, script=SCRIPT),
        _list("sources", ((file,) for file in kernel.files)),
        _list("registers", ((item.name, f"0x{item.offset:03X}", str(item.bits), item.access, item.bus, item.about)
                            for item in kernel.registers)),
        _PROJECT.format(part=part or Platform.load().part, folder=SOURCES, constraints=xdc_name(kernel),
                        vendor=kernel.vendor, library=kernel.library, version=kernel.version,
                        about=_word(kernel.about)),
        _interfaces(kernel),
        _CONTROL.format(control=kernel.control.name, range=kernel.control.range_bytes, width=kernel.control.data_bits),
        _END.format(kernel_xml=KERNEL_XML, constraints=xdc_name(kernel), model=_model(kernel)),
    ]
    return "\n".join(blocks)


def _model(kernel: RtlKernel) -> str:
    """The option of package_xo that names the files of the C model, for software emulation; nothing without one."""
    files = "".join(f" \\\n        [file join $here {name}]" for name in sorted(model(kernel)))
    return f" \\\n    -kernel_files [list{files}]" if files else ""


def _interfaces(kernel: RtlKernel) -> str:
    """Every port belongs to an interface, and every AXI interface to the clock."""
    clock, reset, interrupt = kernel.clock.name, kernel.reset.name, kernel.interrupt.name
    lines = ["# Interfaces: every port belongs to one, and every bus to the clock."]
    for name, kind in ((clock, "clock"), (reset, "reset"), (interrupt, "interrupt")):
        lines.append(f"set {kind} [hotrail::interface {name} {_SIGNAL.format(kind)} {name} $core]")
    lines += ["hotrail::parameter $reset POLARITY ACTIVE_LOW", "hotrail::parameter $interrupt SENSITIVITY LEVEL_HIGH"]
    for bus in kernel.buses:
        ports = "\n".join(f"    {pin.name}" for pin in bus.pins)
        lines.append(f"set bus [hotrail::interface {bus.name} {_AXI} {{\n{ports}\n}} $core]")
        known = bus_parameters(bus, kernel.config)
        lines += [f"hotrail::parameter $bus {name} {value}" for name, value in known.items()]
        lines.append(f"ipx::associate_bus_interfaces -busif {bus.name} -clock {clock} $core")
    lines.append(f"ipx::associate_bus_interfaces -clock {clock} -reset {reset} $core")
    return "\n".join(lines) + "\n"


def _list(name: str, rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join([f"set {name} {{", *("    " + " ".join(map(_word, row)) for row in rows), "}"]) + "\n"


def _word(text: str) -> str:
    """A text as one word of Tcl, nothing in it substituted.

    >>> _word("beats of the ring"), _word("a{b"), _word("")
    ('{beats of the ring}', 'a\\\\{b', '{}')
    """
    if text and not set(text) & set(" \t\n;\"$[]{}\\#"):
        return text
    if not set(text) & set("{}\\"):
        return "{" + text + "}"
    return "".join("\\" + char if char in " \t;\"$[]{}\\#" else "\\n" if char == "\n" else char for char in text)
