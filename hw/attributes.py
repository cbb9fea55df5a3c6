"""Attributes of signals that tools must leave as they are, in the words that Vivado and Yosys read.

Source: UG901 (KEEP: synthesis keeps the signal, and makes it no part of a shift register; DONT_TOUCH: placement and
routing do so too, and merge it with no equal one). Yosys reads KEEP as well, with any value that is not zero.
"""

KEEP = {"keep": "TRUE"}
# Of registers that are equal on purpose, each beside what it drives: no step may make one of them.
APART = {**KEEP, "dont_touch": "TRUE"}
# Of memories: what a port reads at the address that is being written counts for nothing, so no logic has to see to it
# where a part's memories leave that open (Yosys).
UNREAD = {"no_rw_check": 1}
