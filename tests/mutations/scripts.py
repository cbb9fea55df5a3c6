"""What can go wrong in the packaging script and the link configuration."""

from tests.mutations.changes import LINK, SCRIPT, drop, edit
from tests.mutations.changes import Mutation as M

TCL = [
    M("package.tcl: offset of `inputs` moved by 4", SCRIPT, edit(SCRIPT, ("    inputs 0x024", "    inputs 0x028"))),
    M("package.tcl: offset of `inputs` moved by 8", SCRIPT, edit(SCRIPT, ("    inputs 0x024", "    inputs 0x02C"))),
    M("package.tcl: size of a pointer halved", SCRIPT, edit(SCRIPT, ("    rows 0x04C 64", "    rows 0x04C 32"))),
    M(
        "package.tcl: a pointer at the other master",
        SCRIPT,
        edit(SCRIPT, ("(    rows 0x04C 64 read-write) m01_axi", r"\1 m00_axi")),
    ),
    M(
        "package.tcl: a pointer without a master",
        SCRIPT,
        edit(SCRIPT, ("(    rows 0x04C 64 read-write) m01_axi", r"\1 {}")),
    ),
    M("package.tcl: a register dropped", SCRIPT, edit(SCRIPT, (r"^    timeout 0x080.*?\n", ""))),
    M("package.tcl: a file dropped", SCRIPT, edit(SCRIPT, (r"^    Divider_\w+\.v\n", ""))),
    M("package.tcl: a file that is not there", SCRIPT, edit(SCRIPT, (r"^    Reciprocal\.v", "    Reciprocals.v"))),
    M(
        "package.tcl: top is another module",
        SCRIPT,
        edit(
            SCRIPT,
            (
                r"set_property top \$name \[get_filesets sources_1\]",
                "set_property top EmbCore [get_filesets sources_1]",
            ),
        ),
    ),
    M(
        "package.tcl: top never set for simulation",
        SCRIPT,
        edit(SCRIPT, (r"^set_property top \$name \[get_filesets sim_1\]\n", "")),
    ),
    M("package.tcl: kernel renamed", SCRIPT, edit(SCRIPT, ("^set name hotrail_emb$", "set name hotrail_mlp"))),
    M("package.tcl: another version", SCRIPT, edit(SCRIPT, (r"set_property version 0\.1", "set_property version 0.2"))),
    M("package.tcl: another library", SCRIPT, edit(SCRIPT, ("-library RTLKernel", "-library user"))),
    M("package.tcl: another part", SCRIPT, edit(SCRIPT, ("xcku15p-ffva1156-2LV-e", "xcu200-fsgd2104-2-e"))),
    M(
        "package.tcl: m01_axi without a clock",
        SCRIPT,
        edit(SCRIPT, (r"^ipx::associate_bus_interfaces -busif m01_axi.*?\n", "")),
    ),
    M("package.tcl: reset ACTIVE_HIGH", SCRIPT, edit(SCRIPT, ("ACTIVE_LOW", "ACTIVE_HIGH"))),
    M("package.tcl: interrupt EDGE_RISING", SCRIPT, edit(SCRIPT, ("LEVEL_HIGH", "EDGE_RISING"))),
    M("package.tcl: a port of a bus dropped", SCRIPT, edit(SCRIPT, (r"^    m01_axi_awlen\n", ""))),
    M(
        "package.tcl: no memory map at the slave",
        SCRIPT,
        edit(SCRIPT, (r"^set_property slave_memory_map_ref.*?\n", "")),
    ),
    M("package.tcl: range 4096 -> 256", SCRIPT, edit(SCRIPT, (r"set_property range \S+", "set_property range 256"))),
    M("package.tcl: sdx_kernel_type missing", SCRIPT, edit(SCRIPT, (r"^set_property sdx_kernel_type.*?\n", ""))),
    M(
        "package.tcl: integrity not checked as a kernel",
        SCRIPT,
        edit(SCRIPT, (r"check_integrity -kernel", "check_integrity")),
    ),
    M(
        "package.tcl: faults of the integrity check unnoticed",
        SCRIPT,
        edit(SCRIPT, (r'^if \{\$sound eq "0"\}.*?\n', "")),
    ),
    M(
        "package.tcl: errors of the integrity check caught",
        SCRIPT,
        edit(SCRIPT, (r"^set sound (\[.*?\])\n", r"set sound 1\ncatch {set sound \1}\n")),
    ),
    M(
        "package.tcl: a file group by one name",
        SCRIPT,
        edit(SCRIPT, (r"\{\*synthesis ", "{xilinx_anylanguagesynthesis ")),
    ),
    M(
        "package.tcl: checksums after the core is saved",
        SCRIPT,
        edit(
            SCRIPT,
            (r"^ipx::update_checksums \$core\n", ""),
            (r"^ipx::save_core \$core\n", "ipx::save_core $core\nipx::update_checksums $core\n"),
        ),
    ),
    M("package.tcl: package_xo without kernel.xml", SCRIPT, edit(SCRIPT, (r"-kernel_xml \[.*?\] ", ""))),
    M(
        "package.tcl: Vivado's dropping a file unnoticed",
        SCRIPT,
        edit(SCRIPT, (r"^ *if \{\$source ni \$kept\}.*?\n", "")),
    ),
    M(
        "package.tcl: an .xo that was not made unnoticed",
        SCRIPT,
        edit(SCRIPT, (r"^if \{!\[file exists \[file join \$out \$name\.xo\]\]\}.*?\n", "")),
    ),
    M(
        "package.tcl: what was packaged deleted",
        SCRIPT,
        edit(SCRIPT, (r"^close_project -delete\n", "close_project -delete\nfile delete -force $packaged\n")),
    ),
    M("package.tcl: runs a program", SCRIPT, edit(SCRIPT, (r"^close_project", "exec touch stranger\nclose_project"))),
    M("package.tcl: writes a file", SCRIPT, edit(SCRIPT, (r"^close_project", "close [open x w]\nclose_project"))),
    M("package.tcl: a call without words", SCRIPT, edit(SCRIPT, (r"^close_project", "reset_project\nclose_project"))),
    M("package.tcl: errors do not end it", SCRIPT, edit(SCRIPT, (r"^    exit 1\n", ""))),
    M(
        "package.tcl: interfaces made twice",
        SCRIPT,
        edit(SCRIPT, (r'^    if \{\$found ne ""\} \{ return \$found \}\n', "")),
    ),
    M("package.tcl: a brace missing", SCRIPT, edit(SCRIPT, (r"\}\n\nset registers", "\n\nset registers"))),
    M("package.tcl: dropped", SCRIPT, drop(SCRIPT)),
]
LINK_CFG = [
    M("link.cfg: bank tag DDR[0]", LINK, edit(LINK, ("bank0", "DDR[0]"))),
    M("link.cfg: the masters on two banks", LINK, edit(LINK, ("m01_axi:bank0", "m01_axi:plram"))),
    M("link.cfg: nk of another kernel", LINK, edit(LINK, ("nk=hotrail_emb:", "nk=hotrail_mlp:"))),
    M("link.cfg: instance renamed", LINK, edit(LINK, (":hotrail_emb_1", ":emb_1"))),
    M("link.cfg: two instances announced", LINK, edit(LINK, (":1:hotrail_emb_1", ":2:hotrail_emb_1.hotrail_emb_2"))),
    M("link.cfg: nk missing", LINK, edit(LINK, (r"^nk=.*?\n", ""))),
    M("link.cfg: a line sp missing", LINK, edit(LINK, (r"^sp=\S*m01_axi.*?\n", ""))),
    M("link.cfg: sp of a port that is not there", LINK, edit(LINK, ("m01_axi", "m02_axi"))),
    M("link.cfg: sp twice", LINK, edit(LINK, (r"(^sp=\S+m01_axi:bank0\n)", r"\1\1"))),
    M("link.cfg: section renamed", LINK, edit(LINK, (r"\[connectivity\]", "[connection]"))),
    M("link.cfg: an unknown directive", LINK, edit(LINK, ("DIRECTIVE=Explore", "DIRECTIVE=Explode"))),
    M("link.cfg: a directive dropped", LINK, edit(LINK, (r"^prop=\S+ROUTE_DESIGN.*?\n", ""))),
    M("link.cfg: physical optimisation off", LINK, edit(LINK, ("IS_ENABLED=true", "IS_ENABLED=false"))),
    M("link.cfg: a directive twice", LINK, edit(LINK, (r"(^prop=\S+\n)", r"\1\1"))),
    M("link.cfg: of another preset", LINK, edit(LINK, ("preset tiny", "preset smartssd"))),
    M("link.cfg: dropped", LINK, drop(LINK)),
]
