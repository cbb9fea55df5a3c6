# Packages the kernel hotrail_emb (hotrail:RTLKernel:hotrail_emb:0.0, preset tiny) as hotrail_emb.xo. Generated: do not edit.
#
#     vivado -mode batch -source package.tcl
#
# reads what lies beside this script and writes hotrail_emb.xo, packaged/ and project/ into the folder it is started in.
set here [file dirname [file normalize [info script]]]
set out [pwd]
set packaged [file join $out packaged]
set name hotrail_emb
namespace eval hotrail {}

proc hotrail::fail {text} {
    puts stderr "ERROR: $text"
    exit 1
}

# The part of that kind and name in its owner; it is made when the tool has not inferred it.
proc hotrail::part {kind name owner} {
    set found [ipx::get_${kind}s $name -of_objects $owner -quiet]
    if {$found ne ""} { return $found }
    return [ipx::add_$kind $name $owner]
}

proc hotrail::parameter {interface name value} {
    set_property value $value [hotrail::part bus_parameter $name $interface]
}

# The interface of that name; inferred from its ports when the tool has not done so by itself.
proc hotrail::interface {name definition ports core} {
    set found [ipx::get_bus_interfaces $name -of_objects $core -quiet]
    if {$found eq ""} {
        ipx::infer_bus_interface $ports $definition $core
        set found [ipx::get_bus_interfaces $name -of_objects $core -quiet]
    }
    if {$found eq ""} { hotrail::fail "the ports of $name were not recognised as an interface $definition" }
    return $found
}

set sources {
    Part.v
    hotrail_emb.v
}

set registers {
    CTRL 0x000 32 read-write {} CTRL
    GIER 0x004 32 read-write {} GIER
    IP_IER 0x008 32 read-write {} IP_IER
    IP_ISR 0x00C 32 read-write {} IP_ISR
    program 0x010 64 read-write m00_axi program
    program_count 0x01C 32 read-write {} program_count
    inputs 0x024 64 read-write m00_axi inputs
    inputs_beats 0x030 32 read-write {} inputs_beats
    outputs 0x038 64 read-write m00_axi outputs
    outputs_beats 0x044 32 read-write {} outputs_beats
    rows 0x04C 64 read-write m01_axi rows
    rows_beats 0x058 32 read-write {} rows_beats
    ring 0x060 64 read-write m01_axi ring
    ring_beats 0x06C 32 read-write {} ring_beats
    result 0x074 64 read-write m00_axi result
    timeout 0x080 32 read-write {} timeout
    abort 0x088 32 write-only {} abort
    status 0x090 32 read-only {} status
    code 0x098 32 read-only {} code
    core 0x0A0 32 read-only {} core
    version 0x0A8 32 read-only {} version
    configuration_low 0x0B0 32 read-only {} configuration_low
    configuration_high 0x0B8 32 read-only {} configuration_high
}

create_project -force $name [file join $out project] -part xcku15p-ffva1156-2LV-e
foreach source $sources {
    set path [file join $here src $source]
    if {![file exists $path]} { hotrail::fail "src/$source is missing beside the script" }
    add_files -norecurse -fileset sources_1 $path
}
set path [file join $here src hotrail_emb.xdc]
if {![file exists $path]} { hotrail::fail "src/hotrail_emb.xdc is missing beside the script" }
add_files -norecurse -fileset constrs_1 $path
set_property top $name [get_filesets sources_1]
set_property top $name [get_filesets sim_1]
update_compile_order -fileset sources_1
update_compile_order -fileset sim_1
if {[get_property top [get_filesets sources_1]] ne $name} {
    hotrail::fail "the top module is [get_property top [get_filesets sources_1]], not $name: its Verilog was not read"
}

ipx::package_project -root_dir $packaged -vendor hotrail -library RTLKernel -taxonomy /KernelIP \
    -import_files -set_current false
ipx::unload_core [file join $packaged component.xml]
ipx::edit_ip_in_project -upgrade true -name edit_$name -directory $packaged [file join $packaged component.xml]
set core [ipx::current_core]
set_property name $name $core
set_property version 0.0 $core
set_property display_name $name $core
set_property description hotrail_emb $core

# Interfaces: every port belongs to one, and every bus to the clock.
set clock [hotrail::interface ap_clk xilinx.com:signal:clock_rtl:1.0 ap_clk $core]
set reset [hotrail::interface ap_rst_n xilinx.com:signal:reset_rtl:1.0 ap_rst_n $core]
set interrupt [hotrail::interface interrupt xilinx.com:signal:interrupt_rtl:1.0 interrupt $core]
hotrail::parameter $reset POLARITY ACTIVE_LOW
hotrail::parameter $interrupt SENSITIVITY LEVEL_HIGH
set bus [hotrail::interface s_axi_control xilinx.com:interface:aximm_rtl:1.0 {
    s_axi_control_awvalid
    s_axi_control_awready
    s_axi_control_awaddr
    s_axi_control_wvalid
    s_axi_control_wready
    s_axi_control_wdata
    s_axi_control_wstrb
    s_axi_control_bvalid
    s_axi_control_bready
    s_axi_control_bresp
    s_axi_control_arvalid
    s_axi_control_arready
    s_axi_control_araddr
    s_axi_control_rvalid
    s_axi_control_rready
    s_axi_control_rdata
    s_axi_control_rresp
} $core]
ipx::associate_bus_interfaces -busif s_axi_control -clock ap_clk $core
set bus [hotrail::interface m00_axi xilinx.com:interface:aximm_rtl:1.0 {
    m00_axi_awvalid
    m00_axi_awready
    m00_axi_awaddr
    m00_axi_awid
    m00_axi_awlen
    m00_axi_awsize
    m00_axi_awburst
    m00_axi_awlock
    m00_axi_awcache
    m00_axi_awprot
    m00_axi_awqos
    m00_axi_awregion
    m00_axi_wvalid
    m00_axi_wready
    m00_axi_wdata
    m00_axi_wstrb
    m00_axi_wlast
    m00_axi_bvalid
    m00_axi_bready
    m00_axi_bid
    m00_axi_bresp
    m00_axi_arvalid
    m00_axi_arready
    m00_axi_araddr
    m00_axi_arid
    m00_axi_arlen
    m00_axi_arsize
    m00_axi_arburst
    m00_axi_arlock
    m00_axi_arcache
    m00_axi_arprot
    m00_axi_arqos
    m00_axi_arregion
    m00_axi_rvalid
    m00_axi_rready
    m00_axi_rid
    m00_axi_rdata
    m00_axi_rresp
    m00_axi_rlast
} $core]
hotrail::parameter $bus MAX_BURST_LENGTH 256
hotrail::parameter $bus SUPPORTS_NARROW_BURST 0
hotrail::parameter $bus NUM_READ_OUTSTANDING 8
hotrail::parameter $bus NUM_WRITE_OUTSTANDING 8
ipx::associate_bus_interfaces -busif m00_axi -clock ap_clk $core
set bus [hotrail::interface m01_axi xilinx.com:interface:aximm_rtl:1.0 {
    m01_axi_awvalid
    m01_axi_awready
    m01_axi_awaddr
    m01_axi_awid
    m01_axi_awlen
    m01_axi_awsize
    m01_axi_awburst
    m01_axi_awlock
    m01_axi_awcache
    m01_axi_awprot
    m01_axi_awqos
    m01_axi_awregion
    m01_axi_wvalid
    m01_axi_wready
    m01_axi_wdata
    m01_axi_wstrb
    m01_axi_wlast
    m01_axi_bvalid
    m01_axi_bready
    m01_axi_bid
    m01_axi_bresp
    m01_axi_arvalid
    m01_axi_arready
    m01_axi_araddr
    m01_axi_arid
    m01_axi_arlen
    m01_axi_arsize
    m01_axi_arburst
    m01_axi_arlock
    m01_axi_arcache
    m01_axi_arprot
    m01_axi_arqos
    m01_axi_arregion
    m01_axi_rvalid
    m01_axi_rready
    m01_axi_rid
    m01_axi_rdata
    m01_axi_rresp
    m01_axi_rlast
} $core]
hotrail::parameter $bus MAX_BURST_LENGTH 256
hotrail::parameter $bus SUPPORTS_NARROW_BURST 0
hotrail::parameter $bus NUM_READ_OUTSTANDING 8
hotrail::parameter $bus NUM_WRITE_OUTSTANDING 8
ipx::associate_bus_interfaces -busif m01_axi -clock ap_clk $core
ipx::associate_bus_interfaces -clock ap_clk -reset ap_rst_n $core

# Registers of the control slave; those with a bus hold the address of a buffer behind it.
set map [hotrail::part memory_map s_axi_control $core]
set block [hotrail::part address_block reg0 $map]
set_property range 4096 $block
set_property width 32 $block
foreach {register offset bits access bus about} $registers {
    set made [hotrail::part register $register $block]
    set_property address_offset $offset $made
    set_property size $bits $made
    set_property access $access $made
    set_property description $about $made
    if {$bus ne ""} { set_property value $bus [hotrail::part register_parameter ASSOCIATED_BUSIF $made] }
}
set_property slave_memory_map_ref s_axi_control [ipx::get_bus_interfaces s_axi_control -of_objects $core]

set_property sdx_kernel true $core
set_property sdx_kernel_type rtl $core
set_property supported_families {} $core
set_property auto_family_support_level level_2 $core
# The clock is the shell's: no frequency is given. The check below asks for the libraries by name, used or not.
set_property ipi_drc {ignore_freq_hz true} $core
set_property xpm_libraries {XPM_CDC XPM_MEMORY XPM_FIFO} $core
ipx::create_xgui_files $core
ipx::update_checksums $core
set sound [ipx::check_integrity -kernel $core]
if {$sound eq "0"} { hotrail::fail "ipx::check_integrity finds faults in the kernel: see the messages above" }
ipx::save_core $core

# Vivado leaves out files that it could not read and goes on: what was given must be what was packaged. Constraints
# belong to the synthesis group, which placement and routing read too.
# A group's name begins with the languages in it.
set constrained 0
foreach groups {*synthesis *simulation} {
    set kept {}
    foreach group [ipx::get_file_groups $groups -of_objects $core -quiet] {
        foreach file [ipx::get_files -of_objects $group] {
            set path [get_property NAME $file]
            if {![file exists [file join $packaged $path]]} { hotrail::fail "$groups names $path, not there" }
            if {[string match *.xdc $path]} { set constrained 1 } else { lappend kept [file tail $path] }
        }
    }
    foreach source $sources {
        if {$source ni $kept} { hotrail::fail "Vivado dropped $source from $groups: look for syntax errors above" }
    }
    foreach file $kept {
        if {$file ni $sources} { hotrail::fail "$groups has the file $file, which was not given" }
    }
}
if {!$constrained} { hotrail::fail "Vivado dropped hotrail_emb.xdc" }
close_project -delete

package_xo -force -xo_path [file join $out $name.xo] -kernel_name $name \
    -kernel_xml [file join $here kernel.xml] -ip_directory $packaged \
    -kernel_files [list \
        [file join $here model/config.h] \
        [file join $here model/descriptor.h] \
        [file join $here model/dot.h] \
        [file join $here model/emb.h] \
        [file join $here model/emb_bags.h] \
        [file join $here model/emb_checks.h] \
        [file join $here model/emb_issue.h] \
        [file join $here model/fp32.h] \
        [file join $here model/groups.h] \
        [file join $here model/hotrail_emb.cpp] \
        [file join $here model/hotrail_emb.h] \
        [file join $here model/instruction.h] \
        [file join $here model/pooling.h] \
        [file join $here model/rows.h] \
        [file join $here model/top.h] \
        [file join $here model/tt.h] \
        [file join $here model/tt_grid.h] \
        [file join $here model/tt_memory.h] \
        [file join $here model/types.h]]
if {![file exists [file join $out $name.xo]]} { hotrail::fail "package_xo made no $name.xo" }
puts "hotrail: packaged [llength $sources] files as [file join $out $name.xo]"
