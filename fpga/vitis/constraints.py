"""The constraints of a kernel, which lie beside its Verilog and are scoped to it by Vivado.

A kernel is one synchronous domain: the platform makes its clock, and ap_rst_n is synchronous to it, so no clock is
created and no path is false. What stays still while it is used, and what goes far, is said here. The timing plan
(docs/timing.md) is met without the exceptions; registers that must stay apart carry their attributes in the Verilog.
Vivado has not read it. Source: UG903 (constraints, scoping), UG949 (multicycle paths, fan-out), UG908 (MARK_DEBUG)
"""

from fpga.vitis.description import RtlKernel

#: Registers, by instance and name in the Verilog below the shell `frame` of a core. The arguments stand from the write
#: of ap_start on, and no part leaves its reset before counters are cleared, tens of cycles later.
CELLS = {"arguments": "control/arguments_reg", "broadcast": ("run/flush_reg", "run/stop_reg", "run/stop_report_reg",
                                                            "run/clean_reg", "run/clean_report_reg")}
#: What a logic analyzer shows of a run: its state, how it ends, who asked for its end, and ports that owe an answer.
MARKED = ("run/fsm_state", "run/header", "run/aborted", "run/dropped", "run/owed", "run/owed_report")
MAX_FANOUT = 256        # loads of one copy of a register that reaches all parts: placement makes copies near them


def xdc_name(kernel: RtlKernel) -> str:
    return f"{kernel.name}.xdc"


def xdc(kernel: RtlKernel, monitors: bool = False) -> str:
    """The text, the same bytes from the same description; commands of Vivado 2021.1. monitors: MARKED is kept for a
    logic analyzer."""
    arguments = f"[get_cells -hierarchical -filter {{NAME =~ *frame/{CELLS['arguments']}*}}]"
    slave = "[get_cells -hierarchical -filter {NAME =~ *frame/control/*_reg* && IS_SEQUENTIAL}]"
    broadcast = " || ".join(f"NAME =~ *frame/{cell}*" for cell in CELLS["broadcast"])
    marks = [
        "# For a logic analyzer.",
        "set_property MARK_DEBUG true [get_nets -hierarchical -filter {"
        + " || ".join(f"NAME =~ *frame/{net}*" for net in MARKED) + "}]",
        "",
    ]
    return "\n".join([
        f"# Constraints of the kernel {kernel.name} ({kernel.vlnv}, preset {kernel.preset}). Generated: do not edit.",
        "# SPDX-License-Identifier: Apache-2.0",
        f"# One clock, {kernel.clock.name}, which the platform makes; {kernel.reset.name} is synchronous to it: no path"
        " is false.",
        "",
        "# The kernel's arguments are written before a run and stand while parts use them.",
        f"set arguments {arguments}",
        f"set slave {slave}",
        "set_multicycle_path 2 -setup -from $arguments",
        "set_multicycle_path 1 -hold -from $arguments",
        "# The host may read an argument back while it writes one.",
        "set_multicycle_path 1 -setup -from $arguments -to $slave",
        "set_multicycle_path 0 -hold -from $arguments -to $slave",
        "",
        "# What resets and stops all parts, from registers of the run control.",
        f"set_property MAX_FANOUT {MAX_FANOUT} [get_cells -hierarchical -filter {{{broadcast}}}]",
        "",
        *(marks if monitors else ()),
    ])
