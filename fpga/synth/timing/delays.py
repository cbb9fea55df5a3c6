"""Delays of UltraScale+ cells and nets at speed grade -2LV, in ps, and the classes of pins that nets end in.

The numbers and their sources are in delays.toml.
"""

import tomllib
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_FILE = Path(__file__).parent / "delays.toml"
_NEAR = 4       # Columns in which half is paid of what a net takes to leave its neighbourhood, and for its fan-out.


class Family(IntEnum):
    """What a cell is placed as: a part of a slice, or on a site of a column."""

    OTHER = 0
    LUT = 1
    FF = 2
    MUXF = 3
    CARRY = 4
    LUTRAM = 5
    SRL = 6
    BRAM = 7
    URAM = 8
    DSP = 9


class Sink(IntEnum):
    """The pin that a net ends in, as far as the net's delay depends on it."""

    LOGIC = 0
    DATA = 1        # D of a flip-flop
    CONTROL = 2     # CE, R of a flip-flop
    CARRY = 3       # S, DI of a carry chain
    CHAIN = 4       # CI of a carry chain
    MUX = 5         # data of MUXF7 to MUXF9
    MEMORY = 6
    DSP = 7


FAMILIES = {
    Family.LUT: r"LUT[1-6]|INV", Family.FF: r"FD[RSCP]E", Family.MUXF: r"MUXF[789]", Family.CARRY: r"CARRY4",
    Family.LUTRAM: r"RAM\d+(?:X\d+[SD]|M\d*)", Family.SRL: r"SRL(?:16E|C16E|C32E)", Family.BRAM: r"RAMB(?:18|36)E2",
    Family.URAM: r"URAM288", Family.DSP: r"DSP48E2",
}


@cache
def table() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text("utf-8"))


def delay(family: str, *names: str) -> float:
    """One number of the table: `delay("ff", "setup", "ce")`."""
    value: Any = table()[family]
    for name in names:
        value = value[name]
    return float(value)


def clock_ps() -> float:
    """What a period loses to the clock: uncertainty and skew."""
    return delay("clock", "uncertainty") + delay("clock", "skew")


def net(dx: Any, dy: Any, fanout: Any, driver: Any, sink: Any, terms: dict[str, float] | None = None) -> Any:
    """Delay of routed nets, of one or of arrays.

    Parameters  dx, dy: slice columns and rows from driver to sink; fanout: sinks of the net; driver: `Family` of the
                cell that drives it; sink: `Sink` of the pin; terms: of the table's [net] where others are wanted
    """
    t = terms or table()["net"]
    into, out = np.zeros(len(Sink)), np.zeros(len(Family))
    into[Sink.CONTROL], into[Sink.MEMORY], into[Sink.DSP], into[Sink.CARRY] = (
        t["control"], t["memory"], t["dsp"], t["carry"])
    out[Family.CARRY], out[[Family.BRAM, Family.URAM]] = t["from_carry"], t["from_memory"]
    before_carry = (np.asarray(driver) == Family.LUT) & (np.asarray(sink) == Sink.CARRY)
    dx, dy = np.abs(dx), np.abs(dy)
    columns = dx + dy * t["row"] / t["column"]
    doublings = np.round(np.log2(np.maximum(fanout, 1)), 9)     # the last bits of a logarithm are the processor's
    return (t["base"] + t["column"] * columns
            + columns / (columns + _NEAR) * (t["near"] + t["fanout"] * doublings)
            + out[driver] + np.where(before_carry, 0.0, into[sink]))


def local(driver: Any, sink: Any) -> Any:
    """Delay of nets with one sink that stay inside a slice, from a `Family` to a `Sink`; nan for those that do not."""
    t = table()["local"]
    known = np.full((len(Family), len(Sink)), np.nan)
    for source in (Family.LUT, Family.MUXF):
        known[source, Sink.DATA] = t["lut_ff"]
    known[Family.LUT, Sink.CARRY], known[Family.LUT, Sink.MUX] = t["lut_carry"], t["lut_muxf"]
    known[Family.MUXF, Sink.MUX] = t["lut_muxf"]
    known[Family.CARRY, Sink.DATA] = t["carry_ff"]
    return known[driver, sink]
