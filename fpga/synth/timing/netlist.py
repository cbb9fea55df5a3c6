"""The flat netlist of a core as arrays: from the kept netlists of its modules, instance by instance.

A module is laid out once and repeated per instance; nets that meet at a port become one. Clock pins and constants are
no part of it. Names stay with the modules, and are joined for the few cells that a report names.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fpga.synth.depth import bit_names
from fpga.synth.timing.arcs import VIRTUAL, arcs, pins
from fpga.synth.timing.delays import FAMILIES, Family

Ints = npt.NDArray[np.int64]
Table = dict[str, npt.NDArray[Any]]
# Rows of the arrays below: columns and their types. `net` columns hold nets, `cell` columns cells.
_ROWS: dict[str, dict[str, str]] = {
    "starts": {"net": "i8", "cell": "i8", "ps": "f4", "group": "i1"},
    "through": {"net": "i8", "to_net": "i8", "cell": "i8", "sink": "i1", "ps": "f4"},
    "ends": {"net": "i8", "cell": "i8", "sink": "i1", "ps": "f4"},
    "drives": {"net": "i8", "cell": "i8"},      # output pins
    "loads": {"net": "i8", "cell": "i8"},       # input pins
    "controls": {"cell": "i8", "clock_net": "i8", "enable_net": "i8", "reset_net": "i8"},   # of registers
}
_KIND = re.compile("|".join(f"(?P<{family.name}>(?:{pattern})$)" for family, pattern in FAMILIES.items()))


def family_of(kind: str) -> Family:
    """Raises ValueError: a cell of a kind without delays"""
    match = _KIND.match(kind)
    if not match:
        raise ValueError(f"cell type {kind} has no delays; add them to fpga/synth/timing")
    return Family[str(match.lastgroup)]


@dataclass
class Netlist:
    """`rows`: the arrays of `_ROWS`; family, kind: of each cell, `kinds` names the latter; nets: how many there are;
    ports: nets of the core's pins; instances: hierarchical name, module and first cell and net of each; names: of a
    module's cells; copies: of which cells the last ones are copies."""

    rows: dict[str, Table]
    family: npt.NDArray[np.int8]
    kind: npt.NDArray[np.int16]
    kinds: list[str]
    nets: int
    ports: Ints
    instances: list[tuple[str, str, int, int]]
    names: Mapping[str, list[str]]
    copies: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def cell_name(self, cell: int) -> str:
        """Hierarchical name of a cell: its instance and, where Yosys made its own name up, the signal it drives."""
        first = len(self.family) - len(self.copies)
        if cell >= first:
            return f"{self.cell_name(int(self.copies[cell - first]))} (copy)"
        at = bisect_right([one[2] for one in self.instances], cell) - 1
        path, module, first, _ = self.instances[at]
        return ".".join(part for part in (path, self.names[module][cell - first]) if part)

    def fanout(self) -> Ints:
        return np.bincount(self.rows["loads"]["net"], minlength=self.nets)

    def driver(self) -> Ints:
        """The cell that drives each net, -1 for a port."""
        out = np.full(self.nets, -1, np.int64)
        out[self.rows["drives"]["net"]] = self.rows["drives"]["cell"]
        return out


@dataclass
class _Layout:
    """A module by itself; its nets and cells count from 0, nets of constants are -1."""

    names: list[str]
    rows: dict[str, Table]
    family: npt.NDArray[np.int8]
    kind: npt.NDArray[np.int16]
    nets: int
    port_nets: dict[tuple[str, int], int]
    parts: list[tuple[str, str, dict[tuple[str, int], int]]]


def _leaves(module: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Cells that are neither parts nor notes, in their order: the numbers of cells count these."""
    return [(name, cell) for name, cell in module["cells"].items() if _KIND.match(cell["type"])]


def _names(module: Mapping[str, Any]) -> list[str]:
    """A name for each of the leaves."""
    signals = {bit: name.rpartition(" (")[0] or name for bit, name in bit_names(module).items()}
    return [next((signals[b.net] for b in pins(cell)[1] if b.net in signals), name) if name.startswith("$") else name
            for name, cell in _leaves(module)]


def _layout(module: Mapping[str, Any], known: Mapping[str, int], kinds: dict[str, int]) -> _Layout:
    net_of: dict[int, int] = {}
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in _ROWS}
    family, kind, parts = [], [], []

    def net(bit: Any) -> int:
        return net_of.setdefault(bit, len(net_of)) if isinstance(bit, int) else -1

    port_nets = {(name, index): net(bit) for name, port in module["ports"].items()
                 for index, bit in enumerate(port["bits"]) if isinstance(bit, int)}
    cells = _leaves(module)
    for number, (_, cell) in enumerate(cells):
        own = family_of(cell["type"])
        family.append(own)
        kind.append(kinds.setdefault(cell["type"], len(kinds)))
        inputs, outputs = pins(cell)
        rows["loads"] += [(net(a.net), number) for a in inputs]
        rows["drives"] += [(net(b.net), number) for b in outputs]
        timing = arcs(own, cell, inputs, outputs)
        inside = net(-1 - number) if any(VIRTUAL in arc[:2] for arc in timing.through) else -1
        rows["starts"] += [(net(bit), number, ps, group) for bit, ps, group in timing.starts]
        rows["ends"] += [(net(bit), number, sink, ps) for bit, sink, ps in timing.ends]
        rows["through"] += [(inside if a == VIRTUAL else net(a), inside if b == VIRTUAL else net(b), number, sink, ps)
                            for a, b, sink, ps in timing.through]
        if own == Family.FF:
            bits = [cell["connections"].get(port, ["0"])[0] for port in ("C", "CE")]
            reset = next((cell["connections"][port][0] for port in ("R", "S", "CLR", "PRE")
                          if port in cell["connections"]), "0")
            rows["controls"].append((number, *(net(bit) for bit in (*bits, reset))))
    for name, cell in module["cells"].items():
        if cell["type"] in known:
            parts.append((name, cell["type"], {(port, index): net(bit) for port, bits in cell["connections"].items()
                                               for index, bit in enumerate(bits) if isinstance(bit, int)}))
        elif cell["type"] != "$scopeinfo":
            family_of(cell["type"])
    tables = {name: {column: np.array([row[k] for row in rows[name]], dtype)
                     for k, (column, dtype) in enumerate(columns.items())} for name, columns in _ROWS.items()}
    return _Layout(_names(module), tables, np.array(family, np.int8), np.array(kind, np.int16), len(net_of), port_nets,
                   parts)


def flat(top: str, names: Mapping[str, int], modules: Callable[[str], Mapping[str, Any]]) -> Netlist:
    """The flat netlist of a core.

    Parameters  top: module name; names: the core's modules; modules: the mapped netlist of one, as Yosys' JSON has it
    Raises      ValueError: a cell without delays
    """
    kinds: dict[str, int] = {}
    layouts: dict[str, _Layout] = {}
    placed: list[tuple[_Layout, int, int]] = []
    instances: list[tuple[str, str, int, int]] = []
    same: list[tuple[Ints, Ints]] = []
    cells = nets = 0
    todo: list[tuple[str, str, dict[tuple[str, int], int], int]] = [("", top, {}, 0)]
    while todo:
        path, module, outside, base = todo.pop()
        if module not in layouts:
            layouts[module] = _layout(modules(module), names, kinds)
        own = layouts[module]
        instances.append((path, module, cells, nets))
        placed.append((own, cells, nets))
        shared = [(base + net, nets + own.port_nets[at]) for at, net in outside.items() if at in own.port_nets]
        if shared:
            same.append((np.array([a for a, _ in shared]), np.array([b for _, b in shared])))
        todo += [(f"{path}.{name}" if path else name, kind, pinned, nets) for name, kind, pinned in own.parts]
        cells, nets = cells + len(own.family), nets + own.nets
    net_of, count = _joined(same, nets)
    rows = {name: {column: _laid(placed, name, column, net_of) for column in columns}
            for name, columns in _ROWS.items()}
    return Netlist(rows, np.concatenate([own.family for own, _, _ in placed]),
                   np.concatenate([own.kind for own, _, _ in placed]), list(kinds), count,
                   np.unique(net_of[list(layouts[top].port_nets.values())]), instances,
                   {module: own.names for module, own in layouts.items()})


def _joined(same: list[tuple[Ints, Ints]], nets: int) -> tuple[Ints, int]:
    """Numbers for nets, equal ones for those that meet, and how many there are."""
    if not same:
        return np.arange(nets), nets
    a, b = (np.concatenate(list(side)) for side in zip(*same))
    count, number = connected_components(coo_array((np.ones(len(a), np.int8), (a, b)), (nets, nets)), directed=False)
    return number.astype(np.int64), count


def _laid(placed: list[tuple[_Layout, int, int]], name: str, column: str, net_of: Ints) -> npt.NDArray[Any]:
    """A column of all instances, with the numbers that cells and nets have in the whole."""
    parts = [own.rows[name][column] for own, _, _ in placed]
    whole = np.concatenate(parts) if parts else np.array([], np.int64)
    if column == "cell":
        return whole + np.repeat([cell for _, cell, _ in placed], [len(part) for part in parts])
    if column.endswith("net"):
        shifted = whole + np.repeat([net for _, _, net in placed], [len(part) for part in parts])
        return np.where(whole < 0, -1, net_of[np.where(whole < 0, 0, shifted)])
    return whole
