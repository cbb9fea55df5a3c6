"""Timing arcs of one mapped cell: where paths start, what they pass, and where they end, with the cell's delay in
ps."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fpga.synth.timing.delays import Family, Sink, delay

# A net inside a DSP slice that all its inputs reach and all its outputs leave from: (30 + 18) x 48 arcs are 96.
VIRTUAL = -1
_CLOCKS = re.compile(r"CLK|WCLK|CLKARDCLK|CLKBWRCLK")     # and C of a register; C of a DSP slice is an operand
# Operands of a DSP slice and the registers that they have of their own; the cascades have wires of their own, too.
_DSP_DATA = {"A": "AREG", "B": "BREG", "C": "CREG", "D": "DREG", "ACIN": "AREG", "BCIN": "BREG"}


class Pin(NamedTuple):
    """A bit of a cell's port and the net that it is on."""

    port: str
    bit: int
    net: int


class Arcs(NamedTuple):
    """starts: (net, ps, group), outputs of one group come from one port of a memory; through: (from net, to net,
    sink, ps); ends: (net, sink, ps). A net is a number of the module's JSON, or VIRTUAL."""

    starts: list[tuple[int, float, int]]
    through: list[tuple[int, int, Sink, float]]
    ends: list[tuple[int, Sink, float]]


def pins(cell: Mapping[str, Any]) -> tuple[list[Pin], list[Pin]]:
    """Inputs but clocks, and outputs, of a cell of Yosys' JSON; without constants."""
    directions = cell["port_directions"]
    pins: tuple[list[Pin], list[Pin]] = ([], [])
    for port, bits in cell["connections"].items():
        if not _CLOCKS.fullmatch(port) and not (port == "C" and cell["type"].startswith("FD")):
            pins[directions[port] == "output"].extend(
                Pin(port, bit, net) for bit, net in enumerate(bits) if isinstance(net, int))
    return pins


def set_parameter(cell: Mapping[str, Any], name: str) -> bool:
    """Whether a parameter of a cell is on: a number that is not 0, or TRUE."""
    value = cell.get("parameters", {}).get(name, 0)
    return value == "TRUE" or (value not in ("FALSE", "") and int(str(value), 2 if isinstance(value, str) else 10) > 0)


def arcs(family: Family, cell: Mapping[str, Any], inputs: list[Pin], outputs: list[Pin]) -> Arcs:
    """The arcs of a cell of a family."""
    return _ARCS[family](cell, inputs, outputs)


def _lut(cell: Mapping[str, Any], inputs: list[Pin], outputs: list[Pin]) -> Arcs:
    through = delay("lut", "through")
    return Arcs([], [(a.net, b.net, Sink.LOGIC, through) for a in inputs for b in outputs], [])


def _muxf(cell: Mapping[str, Any], inputs: list[Pin], outputs: list[Pin]) -> Arcs:
    through = delay("muxf", "through")
    return Arcs([], [(a.net, b.net, Sink.LOGIC if a.port == "S" else Sink.MUX, through)
                     for a in inputs for b in outputs], [])


def _ff(cell: Mapping[str, Any], inputs: list[Pin], outputs: list[Pin]) -> Arcs:
    q, d, ce, r = (delay("ff", "clk_q"), *(delay("ff", "setup", name) for name in ("d", "ce", "r")))
    ends = {"D": (Sink.DATA, d), "CE": (Sink.CONTROL, ce)}
    return Arcs([(b.net, q, 0) for b in outputs], [],
                [(a.net, *ends.get(a.port, (Sink.CONTROL, r))) for a in inputs])


def _carry(cell: Mapping[str, Any], inputs: list[Pin], outputs: list[Pin]) -> Arcs:
    """A bit reaches the outputs of its own and of higher bits; CYINIT is a pin as DI is."""
    through = []
    for a in inputs:
        source = {"S": "s", "DI": "di", "CI": "ci", "CYINIT": "di"}[a.port]
        sink = Sink.CHAIN if a.port == "CI" else Sink.CARRY
        for b in outputs:
            if a.bit <= b.bit and not (a.port == "DI" and b.port == "O" and a.bit == b.bit):
                through.append((a.net, b.net, sink, delay("carry4", f"{source}_{b.port.lower()}")))
    return Arcs([], through, [])


def _lutram(cell: Mapping[str, Any], inputs: list[Pin], outputs: list[Pin]) -> Arcs:
    """Reads pass from the address to the output; a write is seen after the clock."""
    out, through = delay("lutram", "clk_o"), delay("lutram", "through")
    setup = {name: delay("lutram", "setup", name) for name in ("d", "a", "we")}
    arcs = Arcs([(b.net, out, 0) for b in outputs], [], [])
    for a in inputs:
        name = "we" if a.port.startswith("WE") else "d" if a.port.startswith("D") and "PRA" not in a.port else "a"
        arcs.ends.append((a.net, Sink.LOGIC, setup[name]))
        if name == "a":
            arcs.through.extend((a.net, b.net, Sink.LOGIC, through) for b in outputs if _reads(a.port, b.port))
    return arcs


def _reads(address: str, output: str) -> bool:
    """Whether an address port of a LUT memory reads to an output port: those of a port end in the same letter."""
    if address.startswith("ADDR"):
        return output == f"DO{address.removeprefix('ADDR')}"
    if output in ("DPO", "SPO"):
        return address.startswith("DPRA") == (output == "DPO")
    return True


def _srl(cell: Mapping[str, Any], inputs: list[Pin], outputs: list[Pin]) -> Arcs:
    q, through = delay("srl", "clk_q"), delay("srl", "through")
    arcs = Arcs([(b.net, q, 0) for b in outputs], [], [])
    for a in inputs:
        name = {"D": "d", "CE": "ce"}.get(a.port, "a")
        arcs.ends.append((a.net, Sink.LOGIC, delay("srl", "setup", name)))
        if name == "a":
            arcs.through.extend((a.net, b.net, Sink.LOGIC, through) for b in outputs if b.port != "Q31")
    return arcs


def _memory(family: str, cell: Mapping[str, Any], inputs: list[Pin], outputs: list[Pin]) -> Arcs:
    """A block memory: groups 0 and 1 are its ports A and B, with registers of their own before and behind it."""
    arcs = Arcs([], [], [])
    for b in outputs:
        group = int(b.port.startswith(("DOUTB", "DOUTPB", "DOUT_B")))
        side = "AB"[group]
        own = set_parameter(cell, f"DO{side}_REG") or set_parameter(cell, f"OREG_{side}")
        out = "clk_do_ecc" if set_parameter(cell, f"OREG_ECC_{side}") else "clk_do_reg" if own else "clk_do"
        arcs.starts.append((b.net, delay(family, out), group))
    for a in inputs:
        name = ("addr" if a.port.startswith("ADDR") else "d" if a.port.startswith("DIN") else
                "we" if a.port.startswith(("WE", "BWE", "RDB")) else "rst" if a.port.startswith("RST") else "en")
        setup = "setup_reg" if set_parameter(cell, f"IREG_PRE_{a.port[-1]}") else "setup"
        arcs.ends.append((a.net, Sink.MEMORY, delay(family, setup, name)))
    return arcs


def _bram(cell: Mapping[str, Any], inputs: list[Pin], outputs: list[Pin]) -> Arcs:
    return _memory("bram", cell, inputs, outputs)


def _uram(cell: Mapping[str, Any], inputs: list[Pin], outputs: list[Pin]) -> Arcs:
    return _memory("uram", cell, inputs, outputs)


def _dsp(cell: Mapping[str, Any], inputs: list[Pin], outputs: list[Pin]) -> Arcs:
    """By the registers that are used. A slice without any has an end at every operand beside the arcs through it:
    which of them hold depends on the registers behind it (`netlist`)."""
    first, m, p = (any(set_parameter(cell, one) for one in names)
                   for names in (("AREG", "BREG"), ("MREG",), ("PREG",)))
    own = {port: set_parameter(cell, register) for port, register in _DSP_DATA.items()}
    arcs = Arcs([], [], [])
    for a in inputs:
        if a.port == "PCIN" and p:
            arcs.ends.append((a.net, Sink.CHAIN, delay("dsp", "pcin_p")))
        elif a.port not in (*own, "PCIN"):
            arcs.ends.append((a.net, Sink.DSP, delay("dsp", "setup_control")))
        elif own.get(a.port):
            arcs.ends.append((a.net, Sink.CHAIN if a.port.endswith("CIN") else Sink.DSP, delay("dsp", "setup_reg")))
        elif a.port == "C" and p:
            arcs.ends.append((a.net, Sink.DSP, delay("dsp", "c_p")))
        elif m or p:
            arcs.ends.append((a.net, Sink.DSP, delay("dsp", "in_m" if m else "in_p")))
        else:
            arcs.ends.append((a.net, Sink.DSP, delay("dsp", "in_p")))
            arcs.through.append((a.net, VIRTUAL, Sink.DSP, delay("dsp", "in_out")))
    out = "p_out" if p else "m_out" if m else "ab_out" if first else ""
    for b in outputs:
        if out:
            arcs.starts.append((b.net, delay("dsp", out), 0))
        else:
            arcs.through.append((VIRTUAL, b.net, Sink.CHAIN, 0.0))
    return arcs


_ARCS = {Family.LUT: _lut, Family.FF: _ff, Family.MUXF: _muxf, Family.CARRY: _carry, Family.LUTRAM: _lutram,
         Family.SRL: _srl, Family.BRAM: _bram, Family.URAM: _uram, Family.DSP: _dsp}
