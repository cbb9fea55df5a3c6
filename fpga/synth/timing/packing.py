"""Registers that a vendor's tool takes into memories and DSP slices, which Yosys leaves beside them.

Vivado packs a flip-flop into the output register of a block memory or DSP slice where the output has no other load and
all bits of the port share clock, enable and reset; behind a multiplier it packs two. Such flip-flops take no place and
no wire of their own here, and the paths before and behind them have the delays of the registered block. Only delays
change: the counts of `failfast` and of the gate are those of the mapped netlist.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fpga.synth.timing.delays import Family, Sink, delay
from fpga.synth.timing.netlist import Netlist

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Packed:
    """The rows of `Netlist` after packing; `host`: the block that took each cell, the cell itself where none did."""

    starts: dict[str, npt.NDArray]
    through: dict[str, npt.NDArray]
    ends: dict[str, npt.NDArray]
    host: Ints

    @property
    def taken(self) -> int:
        return int((self.host != np.arange(len(self.host))).sum())


class _Registers:
    """Flip-flops by the net at their D, and their control sets."""

    def __init__(self, netlist: Netlist) -> None:
        rows, cells = netlist.rows, len(netlist.family)
        data = rows["ends"]["sink"] == Sink.DATA
        self.behind = np.full(netlist.nets, -1, np.int64)
        self.behind[rows["ends"]["net"][data]] = rows["ends"]["cell"][data]
        self.fanout = netlist.fanout()
        self.behind[self.fanout != 1] = -1
        self.control = np.full(cells, -1, np.int64)
        control = rows["controls"]
        if len(control["cell"]):
            _, number = np.unique(np.stack([control["clock_net"], control["enable_net"], control["reset_net"]]), axis=1,
                                  return_inverse=True)
            self.control[control["cell"]] = number.ravel()
        own = netlist.family[rows["starts"]["cell"]] == Family.FF
        self.q = np.full(cells, -1, np.int64)
        self.q[rows["starts"]["cell"][own]] = rows["starts"]["net"][own]

    def packable(self, nets: Ints, group: Ints) -> npt.NDArray[np.bool_]:
        """For each net whether all nets of its group that have loads have one, a register of one control set."""
        used = self.fanout[nets] > 0
        register = np.where(used, self.behind[nets], -1)
        control = np.where(register >= 0, self.control[register], -1)
        top = int(group.max(initial=0)) + 1
        low, high = np.full(top, np.iinfo(np.int64).max), np.full(top, -1, np.int64)
        np.minimum.at(low, group[used], control[used])
        np.maximum.at(high, group[used], control[used])
        return ((low == high) & (high >= 0))[group] & used


def pack(netlist: Netlist) -> Packed:
    """Takes the registers into blocks that a vendor's tool would."""
    starts, through, ends = ({name: column.copy() for name, column in netlist.rows[rows].items()}
                             for rows in ("starts", "through", "ends"))
    registers = _Registers(netlist)
    host = np.arange(len(netlist.family))
    of = np.full(len(netlist.family), -1, np.int64)         # row of a register's output
    own = netlist.family[starts["cell"]] == Family.FF
    of[starts["cell"][own]] = np.nonzero(own)[0]
    gone = np.zeros(len(starts["net"]), bool)
    kept_end = np.ones(len(ends["net"]), bool)

    def take(nets: Ints, blocks: Ints, ps: float) -> Ints:
        taken = registers.behind[nets]
        host[taken] = blocks
        starts["cell"][of[taken]], starts["ps"][of[taken]] = blocks, ps
        kept_end[(ends["sink"] == Sink.DATA) & np.isin(ends["cell"], taken)] = False
        return registers.q[taken]

    for family, name in ((Family.BRAM, "bram"), (Family.URAM, "uram")):
        without = starts["ps"] == np.float32(delay(name, "clk_do"))
        open_ = np.nonzero((netlist.family[starts["cell"]] == family) & without)[0]
        block = starts["cell"][open_]
        fits = registers.packable(starts["net"][open_], 2 * block + starts["group"][open_])
        take(starts["net"][open_][fits], block[fits], delay(name, "clk_do_reg"))
        gone[open_[fits]] = True
    through = _dsp(netlist, registers, through, ends, kept_end, take)
    return Packed({name: column[~gone] for name, column in starts.items()}, through,
                  {name: column[kept_end] for name, column in ends.items()}, host)


def _dsp(netlist: Netlist, registers: _Registers, through: dict, ends: dict, kept_end: npt.NDArray[np.bool_],
         take) -> dict:
    """DSP slices without registers of their own: one behind them becomes P, two M and P."""
    inside = netlist.family[through["cell"]] == Family.DSP
    out = np.nonzero(inside & (through["sink"] == Sink.CHAIN))[0]
    block = through["cell"][out]
    fits = registers.packable(through["to_net"][out], block)
    q = take(through["to_net"][out][fits], block[fits], delay("dsp", "p_out"))
    again = registers.packable(q, block[fits])
    take(q[again], block[fits][again], delay("dsp", "p_out"))
    one, two = (np.zeros(len(netlist.family), bool) for _ in range(2))
    one[block[fits]], two[block[fits][again]] = True, True
    data = (ends["sink"] == Sink.DSP) & (ends["ps"] == np.float32(delay("dsp", "in_p")))
    ends["ps"][data & two[ends["cell"]]] = delay("dsp", "in_m")
    without = np.zeros(len(netlist.family), bool)
    without[through["cell"][inside]] = True
    kept_end[data & without[ends["cell"]] & ~one[ends["cell"]]] = False
    left = ~one[through["cell"]]
    return {name: column[left] for name, column in through.items()}
