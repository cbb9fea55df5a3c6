"""Small mapped netlists, as Yosys' JSON has them, and their timing graph."""

from collections.abc import Mapping
from typing import Any

from fpga.synth.timing.netlist import Netlist, flat
from fpga.synth.timing.packing import pack
from fpga.synth.timing.sta import Graph

_OUTPUTS = {"Q", "O", "CO", "P", "PCOUT", "DOA", "DOUTADOUT", "DOUTBDOUT", "DOUT_A", "DOUT_B", "SPO", "DPO"}


def cell(kind: str, parameters: Mapping[str, Any] | None = None, **pins: int | str | list[int | str]) -> dict[str, Any]:
    """A cell; a pin is a net, a constant or a list of them. Those with the names of outputs are outputs."""
    connections = {port: bits if isinstance(bits, list) else [bits] for port, bits in pins.items()}
    return {"type": kind, "parameters": dict(parameters or {}), "connections": connections,
            "port_directions": {port: "output" if port in _OUTPUTS else "input" for port in connections}}


def ff(d: int, q: int, c: int = 1, ce: int | str = "1", r: int | str = "0") -> dict[str, Any]:
    return cell("FDRE", C=c, CE=ce, R=r, D=d, Q=q)


def module(cells: Mapping[str, Any], netnames: Mapping[str, list[int]] | None = None,
           **ports: list[int]) -> dict[str, Any]:
    """A module; ports are inputs but those that begin with o."""
    return {"ports": {name: {"direction": "output" if name.startswith("o") else "input", "bits": bits}
                      for name, bits in ports.items()},
            "cells": dict(cells), "netnames": {name: {"bits": bits} for name, bits in (netnames or {}).items()}}


def netlist(top: Mapping[str, Any], **parts: Mapping[str, Any]) -> Netlist:
    modules = {"top": top, **parts}
    return flat("top", dict.fromkeys(modules, 0), modules.__getitem__)


def graph(found: Netlist) -> Graph:
    return Graph(found, pack(found))
