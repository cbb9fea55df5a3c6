"""A module as gates, simulated in Python: many runs at once, one in each bit of an integer.

Small modules alone. Yosys makes the gates; nothing else of it is relied on.
"""

import json
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from gen.base.tools import yosys

__all__ = ["Gates", "gates"]

_TWO = {
    "$_AND_": lambda a, b, full: a & b,
    "$_OR_": lambda a, b, full: a | b,
    "$_XOR_": lambda a, b, full: a ^ b,
    "$_XNOR_": lambda a, b, full: a ^ b ^ full,
    "$_NAND_": lambda a, b, full: (a & b) ^ full,
    "$_NOR_": lambda a, b, full: (a | b) ^ full,
    "$_ANDNOT_": lambda a, b, full: a & (b ^ full),
    "$_ORNOT_": lambda a, b, full: a | (b ^ full),
}


class Gates:
    """One module: plain flip-flops with one clock, and gates between them, in the order they are computed in.

    Raises ValueError: a kind of cell that is neither, or gates in a loop"""

    def __init__(self, module: dict[str, Any]):
        self.ports: dict[str, tuple[str, list[Any]]] = {
            name: (port["direction"], port["bits"]) for name, port in module["ports"].items()}
        self.flops: list[tuple[Any, Any]] = []     # (d, q)
        waiting: dict[Any, tuple[str, list[Any]]] = {}
        for cell in module["cells"].values():
            pins, kind = {name: bits[0] for name, bits in cell["connections"].items()}, cell["type"]
            if kind == "$_DFF_P_":
                self.flops.append((pins["D"], pins["Q"]))
            elif kind in ("$_NOT_", "$_BUF_", "$_MUX_") or kind in _TWO:
                waiting[pins["Y"]] = (kind, [pins[name] for name in "ABS" if name in pins])
            else:
                raise ValueError(f"a cell {kind}, which is neither gate nor flip-flop")
        self.order: list[tuple[Any, str, list[Any]]] = []
        done: set[Any] = set()
        for first in list(waiting):
            stack = [first]
            while stack:
                net = stack[-1]
                if net in done or net not in waiting:
                    stack.pop()
                    continue
                open_ = [pin for pin in waiting[net][1] if pin in waiting and pin not in done]
                if open_:
                    if len(stack) > len(waiting):
                        raise ValueError("its gates form a loop")
                    stack += open_
                else:
                    done.add(stack.pop())
                    self.order.append((net, *waiting[net]))

    def run(self, lanes: int) -> "Run":
        return Run(self, lanes)


class Run:
    """A simulation of `lanes` runs; a value of a port is a list of one number a run."""

    def __init__(self, gates: Gates, lanes: int):
        self.gates, self.lanes, self.full = gates, lanes, (1 << lanes) - 1
        self.settled = False
        self.nets: dict[Any, int] = {"0": 0, "1": self.full, "x": 0}
        for _, q in gates.flops:
            self.nets[q] = 0
        for name, (direction, _) in gates.ports.items():
            if direction == "input":
                self.set(name, 0)

    def set(self, port: str, value: int | list[int]) -> None:
        """Gives an input one number for all runs, or one each."""
        nets = self.gates.ports[port][1]
        if isinstance(value, int):
            planes = [self.full if value >> at & 1 else 0 for at in range(len(nets))]
        else:
            planes = _turned(value, len(nets))
        self.nets.update(zip(nets, planes))
        self.settled = False

    def settle(self) -> None:
        if self.settled:
            return
        self.settled = True
        nets, full = self.nets, self.full
        for net, kind, pins in self.gates.order:
            if kind == "$_MUX_":
                a, b, choice = (nets[pin] for pin in pins)
                nets[net] = (a & ~choice) | (b & choice)
            elif kind == "$_NOT_":
                nets[net] = nets[pins[0]] ^ full
            elif kind == "$_BUF_":
                nets[net] = nets[pins[0]]
            else:
                nets[net] = _TWO[kind](nets[pins[0]], nets[pins[1]], full)

    def clock(self) -> None:
        """A rising edge."""
        self.settle()
        nets = self.nets
        nets.update([(q, nets[d]) for d, q in self.gates.flops])
        self.settled = False

    def high(self, port: str) -> int:
        """The runs in which a one-bit output is high, as bits."""
        self.settle()
        return self.nets[self.gates.ports[port][1][0]]

    def get(self, port: str) -> list[int]:
        self.settle()
        return _turned([self.nets.get(net, 0) for net in self.gates.ports[port][1]], self.lanes)

    def all(self, port: str) -> bool:
        """Whether a one-bit output is high in every run; it must be equal in all."""
        value = self.high(port)
        if value not in (0, self.full):
            raise ValueError(f"{port} depends on the address or the data")
        return bool(value)


def _turned(numbers: list[int], bits: int) -> list[int]:
    """The matrix of bits with rows and columns exchanged: `bits` numbers of as many bits as there were numbers."""
    rows = [f"{number:0{bits}b}" for number in reversed(numbers)]
    return [int("".join(column), 2) for column in zip(*rows)][::-1]


@lru_cache(maxsize=64)
def gates(text: str, module: str) -> Gates:
    """The gates of a module of a Verilog text. Raises RuntimeError: Yosys fails; ValueError: see `Gates`"""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "module.v").write_text(text)
        yosys(["read_verilog module.v", f"hierarchy -top {module}", "proc", "flatten", "opt -fast", "memory_map",
               "techmap", "dfflegalize -cell $_DFF_P_ 01", "opt_clean", "write_json module.json"], cwd=Path(folder))
        found = json.loads((Path(folder) / "module.json").read_text())
    return Gates(found["modules"][module])
