# Stand-ins for the commands of Vivado that package.tcl calls, for tclsh:
#
#     tclsh stubs.tcl package.tcl record [fault ...]
#
# Every call goes to the file `record`, one Tcl list a line. They hold just enough state for the script to go on as in
# Vivado: the project's files, the interfaces, memory maps, registers and parameters that were made. What they infer by
# themselves is the AXI interfaces, clock and reset. Faults: drop=FILE leaves a file out of what is packaged,
# extra=FILE adds one, top=NAME is found as top whatever was set, blind infers nothing ever, integrity fails the check,
# noxo makes package_xo write nothing.
set stub_script [lindex $argv 0]
set stub_record [open [lindex $argv 1] w]
fconfigure $stub_record -translation lf
array set stub_fault {drop {} extra {} top {} blind 0 integrity 0 noxo 0}
foreach word [lrange $argv 2 end] {
    set pair [split $word =]
    set stub_fault([lindex $pair 0]) [expr {[llength $pair] > 1 ? [lindex $pair 1] : 1}]
}
set stub_given {}            ;# files of the project, in order
set stub_packaged_in {}      ;# folder of the packaged kernel
array set stub_property {}   ;# "object name" -> value
array set stub_known {}      ;# object -> 1

proc note {args} { puts $::stub_record $args }
# Arguments without the options: {option value ...} in `options`, the rest in `words`.
proc sort_out {arguments flags} {
    upvar options options words words
    array unset options
    array set options {}
    set words {}
    for {set i 0} {$i < [llength $arguments]} {incr i} {
        set word [lindex $arguments $i]
        if {$word in $flags} {
            set options($word) 1
        } elseif {[string match -* $word]} {
            set options($word) [lindex $arguments [incr i]]
        } else {
            lappend words $word
        }
    }
}

proc create_project {args} { note create_project {*}$args }
proc close_project {args} { note close_project {*}$args }
proc update_compile_order {args} { note update_compile_order {*}$args }
proc get_filesets {name} { return "fileset/$name" }
proc add_files {args} {
    note add_files {*}$args
    sort_out $args -norecurse
    foreach file $words { lappend ::stub_given [file tail $file] $file }
}
proc set_property {name value object} {
    note set_property $name $value $object
    if {$object eq ""} { error "set_property $name: no object" }
    set ::stub_property([list $object [string toupper $name]]) $value
}
proc get_property {name object} {
    set key [list $object [string toupper $name]]
    if {$name eq "top" && $::stub_fault(top) ne ""} { return $::stub_fault(top) }
    if {$name eq "NAME" && [string match file/* $object]} { return [string range $object 5 end] }
    if {![info exists ::stub_property($key)]} { error "get_property: $object has no $name" }
    return $::stub_property($key)
}

proc ipx_get {kind name owner} {
    set object "$owner/$kind=$name"
    return [expr {[info exists ::stub_known($object)] ? $object : ""}]
}
proc ipx_add {kind name owner} {
    note ipx::add_$kind $name $owner
    if {$owner eq ""} { error "ipx::add_$kind $name: no owner" }
    set ::stub_known($owner/$kind=$name) 1
    return "$owner/$kind=$name"
}
namespace eval ipx {
    foreach kind {bus_parameter memory_map address_block register register_parameter} {
        proc get_${kind}s {name args} [string map [list KIND $kind] {
            sort_out $args -quiet
            return [ipx_get KIND $name $options(-of_objects)]
        }]
        proc add_$kind {name owner} [string map [list KIND $kind] { return [ipx_add KIND $name $owner] }]
    }
    proc package_project {args} {
        note ipx::package_project {*}$args
        sort_out $args -import_files
        set ::stub_packaged_in $options(-root_dir)
        file mkdir [file join $::stub_packaged_in src]
        foreach {name path} $::stub_given {
            if {$name ne $::stub_fault(drop)} { file copy -force $path [file join $::stub_packaged_in src $name] }
        }
        if {$::stub_fault(extra) ne ""} { close [open [file join $::stub_packaged_in src $::stub_fault(extra)] w] }
        close [open [file join $::stub_packaged_in component.xml] w]
    }
    proc unload_core {path} { note ipx::unload_core $path }
    proc edit_ip_in_project {args} { note ipx::edit_ip_in_project {*}$args }
    proc current_core {} { return core }
    proc get_bus_interfaces {name args} {
        set inferred [expr {$name ne "interrupt" && !$::stub_fault(blind)}]
        return [expr {$inferred || [info exists ::stub_known(core/bus=$name)] ? "core/bus=$name" : ""}]
    }
    proc infer_bus_interface {ports definition core} {
        note ipx::infer_bus_interface $ports $definition $core
        set first [lindex $ports 0]
        set name [expr {[llength $ports] == 1 ? $first : [string range $first 0 [expr {[string last _ $first] - 1}]]}]
        if {!$::stub_fault(blind)} { set ::stub_known(core/bus=$name) 1 }
    }
    proc associate_bus_interfaces {args} { note ipx::associate_bus_interfaces {*}$args }
    proc get_file_groups {name args} { return "core/group=$name" }
    proc get_files {args} {
        set found {}
        foreach path [lsort [glob -directory [file join $::stub_packaged_in src] *]] { lappend found "file/src/[file tail $path]" }
        return $found
    }
    proc create_xgui_files {core} { note ipx::create_xgui_files $core }
    proc update_checksums {core} { note ipx::update_checksums $core }
    proc check_integrity {args} {
        note ipx::check_integrity {*}$args
        if {$::stub_fault(integrity)} { error "integrity check failed" }
    }
    proc save_core {core} { note ipx::save_core $core }
}
proc package_xo {args} {
    note package_xo {*}$args
    sort_out $args -force
    if {!$::stub_fault(noxo)} { close [open $options(-xo_path) w] }
}

set argv {}
set argc 0
source $stub_script
close $stub_record
