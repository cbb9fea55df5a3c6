"""EXPERIMENTAL: the Tcl that asks the shell's memory for another address map and for more bursts under way.

v++ runs it when it has put the kernels into the block design of the dynamic region, to which the memory controller and
the interconnects before it belong. It asks for what the device smartssd_tuned has. Nobody is known to have linked with
it: the cells' names are those of public build output of the standard platform.
Source: UG1393 (compiler.userPostSysLinkOverlayTcl), PG150 (Mem_Add_Map), PG059 (issuing: 1 to 32)
"""

from gen.model.device import Device

DEVICE, MEMORY = "smartssd_tuned", "memory.tcl"
PARAMETER = "compiler.userPostSysLinkOverlayTcl"
# The controller, and the interconnects on a kernel's way to it.
_CONTROLLER, _INTERCONNECTS = "/ddrmem_1", ("/axi_interconnect_0", "/axi_interconnect_1")

_SCRIPT = """\
# EXPERIMENTAL: nobody is known to have linked with this script. Generated: do not edit.
#
#     v++ -l ... --advanced.param {parameter}=<path of this script>
#
# asks the memory controller to keep neighbouring lines in one page, and the interconnects for more bursts under way.
namespace eval hotrail {{}}

# The cell of that name, which must be of that kind.
proc hotrail::cell {{name kind}} {{
    set cell [get_bd_cells -quiet $name]
    if {{$cell eq ""}} {{ error "hotrail: this platform's block design has no cell $name" }}
    set found [get_property VLNV $cell]
    if {{![string match xilinx.com:ip:$kind:* $found]}} {{ error "hotrail: $name is $found, no $kind" }}
    return $cell
}}

# Sets a parameter and looks whether the cell has taken it.
proc hotrail::ask {{cell name value}} {{
    set_property CONFIG.$name $value $cell
    set found [get_property CONFIG.$name $cell]
    if {{$found ne $value}} {{ error "hotrail: $cell keeps $name at $found; asked for: $value" }}
    puts "hotrail: $cell $name is $value"
}}

hotrail::ask [hotrail::cell {controller} ddr4] C0.DDR4_Mem_Add_Map {map}
foreach name {{{interconnects}}} {{
    set cell [hotrail::cell $name axi_interconnect]
    hotrail::ask $cell ENABLE_ADVANCED_OPTIONS 1
    hotrail::ask $cell M00_ISSUANCE {bursts}
}}
"""


def memory_tcl() -> str:
    """The script. Commands of Tcl 8.5 only; it ends with an error where a cell is missing or takes no such value."""
    device = Device.load(DEVICE)
    return _SCRIPT.format(parameter=PARAMETER, controller=_CONTROLLER, map=device.controller.map.upper(),
                          interconnects=" ".join(_INTERCONNECTS), bursts=device.port.bursts)
