# Runs a packaging script with recorders in the place of Vivado's commands: SCRIPT OUT FAULT [INFERRED...]
#
# They know nothing of Vivado but names: what was added is found afterwards. Tcl's own commands that reach out of the
# script (`file` but for its questions, `exec`, `open` and the like) are recorded too, and not carried out. FAULT is what
# goes wrong, or "inferred": then the parts INFERRED are there by themselves and file groups are named after Verilog.
lassign $argv recorder(script) path recorder(fault)
set recorder(out) [open $path w]
set recorder(files) {}
if {$recorder(fault) eq "inferred"} {
    foreach object [lrange $argv 3 end] { set "recorder(made core/$object)" 1 }
}
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
    set fault $::recorder(fault)
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
        if {$fault eq "dropped"} { set found [lrange $found 1 end] }
        if {$fault eq "loose"} { set found [lsearch -all -inline -not $found *.xdc] }
        if {$fault eq "added"} { lappend found file/src/stranger.v }
        return $found
    }
    if {$command eq "ipx::get_file_groups"} {
        set language [expr {$fault eq "inferred" ? "verilog" : "anylanguage"}]
        set found {}
        foreach kind {synthesis behavioralsimulation} {
            set group "xilinx_$language$kind"
            if {$fault ne "ungrouped" && [string match [lindex $args 0] $group]} { lappend found core/file_group=$group }
        }
        return $found
    }
    if {[regexp {^ipx::get_(\w+)s$} $command -> kind]} {
        set object "[option $args -of_objects]/$kind\[[lindex $args 0]\]"
        return [expr {[info exists "::recorder(made $object)"] ? $object : ""}]
    }
    switch -- $command {
        get_bd_cells { return [expr {$fault eq "cell-less" ? "" : [lindex $args end]}] }
        ipx::current_core { return core }
        ipx::check_integrity {
            if {$fault eq "broken"} { error "integrity check failed" }
            return [expr {$fault ne "unsound"}]
        }
        ipx::infer_bus_interface {
            set ports [lindex $args 0]
            set name [lindex $ports 0]
            if {[llength $ports] > 1} { set name [string range $name 0 [expr {[string last _ $name] - 1}]] }
            if {$fault ne "blind"} { set "::recorder(made core/bus_interface\[$name\])" 1 }
        }
        get_filesets { return "fileset/[lindex $args 0]" }
        set_property { set "::recorder(is [lindex $args 2],[lindex $args 0])" [lindex $args 1] }
        get_property {
            if {[lindex $args 0] eq "top" && $fault eq "topless"} { return other }
            if {[lindex $args 0] eq "VLNV"} {
                set kind [expr {[string match *ddr* [lindex $args 1]] && $fault ne "another" ? "ddr4" : "axi_interconnect"}]
                return "xilinx.com:ip:$kind:2.2"
            }
            if {$fault eq "deaf" && [string match CONFIG.* [lindex $args 0]]} { return 0 }
            if {[string match file/* [lindex $args 1]]} { return [string range [lindex $args 1] 5 end] }
            set key "is [lindex $args 1],[lindex $args 0]"
            return [expr {[info exists ::recorder($key)] ? $::recorder($key) : ""}]
        }
        add_files { lappend ::recorder(files) [lindex $args end] }
        ipx::package_project {
            foreach file [expr {$fault eq "lost" ? "" : $::recorder(files)}] {
                touch [real_file join [option $args -root_dir] src [real_file tail $file]]
            }
            touch [real_file join [option $args -root_dir] src stranger.v]
        }
        package_xo { if {$fault ne "unpacked"} { touch [option $args -xo_path] } }
    }
    return ""
}
set argv {}
set argc 0
real_source $recorder(script)
close $recorder(out)
