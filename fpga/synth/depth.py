"""Logic depth of a mapped netlist: LUT levels and carry chains between registers, bit by bit.

Depths compose over module boundaries: a part is known to its parent by what lies between its ports and its
registers (`Boundary`). LUTs count one level, the slice's own multiplexers none, a chain of CARRY4 one chain.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MAX_LEVELS = 6
MAX_CHAINS = 1
CHAINS_KEPT = 3     # more count as so many


@dataclass(frozen=True)
class Depth:
    """A longest path between sequential elements: LUT levels, carry chains, and the names it passes."""

    levels: int
    chains: int
    path: tuple[str, ...] = ()

    @property
    def met(self) -> bool:
        return self.levels <= MAX_LEVELS and self.chains <= MAX_CHAINS


class _Front:
    """The deepest ways to reach a bit: for each number of carry chains, the most levels and the origin."""

    __slots__ = ("best",)

    def __init__(self) -> None:
        self.best: dict[int, tuple[int, Any]] = {}

    def offer(self, chains: int, levels: int, origin: Any) -> None:
        chains = min(chains, CHAINS_KEPT)
        if chains not in self.best or self.best[chains][0] < levels:
            self.best[chains] = (levels, origin)


@dataclass
class Boundary:
    """What a parent has to know of a part, per port bit: levels by chains.

    into: from the port to registers inside; out: from registers inside to the port; through: port to port.
    """

    into: dict[tuple[str, int], dict[int, int]]
    out: dict[tuple[str, int], dict[int, int]]
    through: dict[tuple[str, int], dict[tuple[str, int], dict[int, int]]]


_SEQUENTIAL = re.compile(r"FD[RSCP]E|RAMB|URAM|DSP48|LD[CP]E")
_LUT = re.compile(r"LUT[1-6]|INV")
_LUTRAM = re.compile(r"RAM\d+(X\d+[SD]|M\d*)$")
_SRL = re.compile(r"SRL")
_MUX = re.compile(r"MUXF[789]")


def _reads(address: str, output: str) -> bool:
    """Whether a pin of a LUT memory is the address that an output reads. Each has one of its own, that of the last of
    several is the address of writes too (UG574)."""
    if output.startswith("DO"):
        return address == f"ADDR{output[2:3]}"
    return bool(re.fullmatch(r"DPRA.*" if output == "DPO" else r"A\d?|A\[.*", address))


def _arcs(cell: dict[str, Any], boundaries: Mapping[str, Boundary]) -> "_Arcs":
    """The timing arcs of a cell: starts, ends and ways through with their cost (levels, chains)."""
    kind = cell["type"]
    pins = cell["connections"]
    directions = cell["port_directions"]
    inputs = [
        (p, i, b)
        for p, bits in pins.items()
        if directions[p] != "output"
        for i, b in enumerate(bits)
        if isinstance(b, int)
    ]
    outputs = [
        (p, i, b)
        for p, bits in pins.items()
        if directions[p] == "output"
        for i, b in enumerate(bits)
        if isinstance(b, int)
    ]
    arcs = _Arcs()
    if kind == "$scopeinfo":  # only a note of where a flattened cell came from
        return arcs
    if kind in boundaries:
        known = boundaries[kind]
        for p, i, b in inputs:
            for chains, levels in known.into.get((p, i), {}).items():
                arcs.ends.append((b, levels, chains, f"{p}[{i}]"))
        at = {(p, i): b for p, i, b in inputs}
        for p, i, b in outputs:
            for chains, levels in known.out.get((p, i), {}).items():
                arcs.starts.append((b, levels, chains, f"{p}[{i}]"))
            for source, ways in known.through.get((p, i), {}).items():
                if source in at:
                    arcs.through += [(at[source], b, levels, chains) for chains, levels in ways.items()]
    elif _LUT.match(kind) or _MUX.match(kind):
        # The slice's own multiplexers sit behind its LUTs and cost no routing: no level of their own.
        cost = 1 if _LUT.match(kind) else 0
        arcs.through = [(a, b, cost, 0) for _, _, a in inputs for _, _, b in outputs]
    elif kind == "CARRY4":
        for p, i, a in inputs:
            for _, j, b in outputs:
                if p in ("S", "DI") and i > j:
                    continue  # bits above do not influence those below
                arcs.through.append((a, b, 0, 0 if p == "CI" else 1))
    elif _LUTRAM.match(kind) or _SRL.match(kind):
        for p, _, a in inputs:
            if p in ("WCLK", "CLK", "C"):
                continue
            arcs.ends.append((a, 0, 0, p))
            arcs.through += [(a, b, 1, 0) for q, _, b in outputs if _reads(p, q)]
        arcs.starts = [(b, 1, 0, f"{p}[{i}]") for p, i, b in outputs]
    elif _SEQUENTIAL.match(kind):
        arcs.ends = [(a, 0, 0, p) for p, _, a in inputs if p not in ("C", "CLK")]
        arcs.starts = [(b, 0, 0, p) for p, _, b in outputs]
        if kind.startswith("DSP48") and not any(
            _parameter(cell, r) for r in ("AREG", "BREG", "MREG", "PREG")
        ):
            # No register inside: the multiplier is logic, as slow as about four levels.
            arcs.through = [(a, b, 4, 0) for p, _, a in inputs if p not in ("CLK",) for _, _, b in outputs]
    else:
        raise ValueError(f"cell type {kind} has no timing arcs here; add them to fpga.synth.map")
    return arcs


@dataclass
class _Arcs:
    starts: list[tuple[int, int, int, str]] = field(default_factory=list)
    ends: list[tuple[int, int, int, str]] = field(default_factory=list)
    through: list[tuple[int, int, int, int]] = field(default_factory=list)


def _parameter(cell: dict[str, Any], name: str) -> int:
    value = cell.get("parameters", {}).get(name, 0)
    return int(value, 2) if isinstance(value, str) and set(value) <= {"0", "1"} and value else int(value or 0)


class Depths(NamedTuple):
    """A module's paths. worst: that with the most levels; chained: that with the most chains; edge: the worst one from
    or to a port; boundary: what its parents see; notes: remarks; crossed: kinds of parts in which paths that break the
    rule begin, end or lie."""

    worst: Depth
    chained: Depth
    edge: Depth
    boundary: Boundary
    notes: list[str]
    crossed: set[str]


class _Graph:
    """A module's bits and the arcs between them. after: bit -> (bit, levels, chains); order: every bit behind those
    that lead to it; ports_in, ports_out: (port, index) of bits."""

    def __init__(self, module: dict[str, Any], boundaries: Mapping[str, Boundary]):
        self.after: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self.starts: list[tuple[int, int, int, str]] = []
        self.ends: list[tuple[int, int, int, str]] = []
        self.notes: list[str] = []
        pending: dict[int, int] = defaultdict(int)
        for cell_name, cell in module["cells"].items():
            arcs = _arcs(cell, boundaries)
            self.starts += [(b, lv, ch, f"{cell_name}.{pin} ({cell['type']})") for b, lv, ch, pin in arcs.starts]
            self.ends += [(b, lv, ch, f"{cell_name}.{pin} ({cell['type']})") for b, lv, ch, pin in arcs.ends]
            for a, b, levels, chains in arcs.through:
                self.after[a].append((b, levels, chains))
                pending[b] += 1
            if cell["type"].startswith("LD"):
                self.notes.append(f"{cell_name} is a latch")
        self.ports_in = dict(_port_bits(module, "input"))
        self.ports_out = _port_bits(module, "output")
        self.bits = {b for b, *_ in self.starts} | {b for b, *_ in self.ends} | set(self.after) | set(pending)
        self.bits |= self.ports_in.keys() | {b for b, _ in self.ports_out}
        self.order = _topological(self.bits, self.after, pending)

    def fronts(self) -> dict[int, _Front]:
        """From registers to every bit."""
        front: dict[int, _Front] = {b: _Front() for b in self.bits}
        for b, levels, chains, name in self.starts:
            front[b].offer(chains, levels, name)
        for a in self.order:
            for b, levels, chains in self.after[a]:
                for c, (lv, _) in front[a].best.items():
                    front[b].offer(c + chains, lv + levels, (a, c))
        return front

    def boundary(self, front: Mapping[int, _Front]) -> Boundary:
        """From every input port bit into registers and, over the bits that lead to outputs, through to those."""
        reached: dict[int, dict[tuple[str, int], dict[int, int]]] = defaultdict(dict)
        useful = _backward({b for b, _ in self.ports_out}, self.after)
        tails = _tails(self.order, self.after, self.ends)
        into = {at: tails[b] for b, at in self.ports_in.items() if tails.get(b)}
        for b, at in self.ports_in.items():
            if b in useful:
                reached[b][at] = {0: 0}
        for a in self.order:
            if a not in reached:
                continue
            for b, levels, chains in self.after[a]:
                if b not in useful:
                    continue
                for at, ways in reached[a].items():
                    mine = reached[b].setdefault(at, {})
                    for c, lv in ways.items():
                        key = min(c + chains, CHAINS_KEPT)
                        mine[key] = max(mine.get(key, -1), lv + levels)
        out = {at: {c: lv for c, (lv, _) in front[b].best.items()} for b, at in self.ports_out if front[b].best}
        through = {at: dict(reached[b]) for b, at in self.ports_out if reached.get(b)}
        return Boundary(into, out, through)


def _port_bits(module: Mapping[str, Any], direction: str) -> list[tuple[int, tuple[str, int]]]:
    return [(b, (p, i)) for p, port in module["ports"].items() if port["direction"] == direction
            for i, b in enumerate(port["bits"]) if isinstance(b, int)]


def depths(module: dict[str, Any], boundaries: Mapping[str, Boundary]) -> Depths:
    """The paths of a mapped module whose parts have `boundaries`."""
    names, graph = bit_names(module), _Graph(module, boundaries)
    front = graph.fronts()
    paths = [(lv + levels, c + chains, b, c, name)
             for b, levels, chains, name in graph.ends for c, (lv, _) in front[b].best.items()]
    worst, chained = Depth(0, 0), Depth(0, 0)
    if paths:
        # A path that breaks the rule is worse than any that keeps it.
        worst, chained = (Depth(levels, chains, _trace(front, b, c, name, names)) for levels, chains, b, c, name in (
            max(paths, key=lambda path: path[:2]), max(paths, key=lambda path: (path[1], path[0]))))
    crossed: set[str] = set()
    for levels, chains, b, c, name in paths:
        if not Depth(levels, chains).met:
            crossed |= _passed(_trace(front, b, c, name, names), boundaries)
    boundary = graph.boundary(front)
    return Depths(worst, chained, _edge(boundary), boundary, graph.notes, crossed)


def _edge(boundary: Boundary) -> Depth:
    """The worst path from or to a port."""
    ways: list[tuple[int, int, tuple[str, ...]]]
    ways = [(lv, c, (f"{side} {p}[{i}]",))
            for side, table in (("from the port", boundary.into), ("to the port", boundary.out))
            for (p, i), levels in table.items() for c, lv in levels.items()]
    ways += [(lv, c, (f"{p}[{i}]", f"{to}[{j}]")) for (to, j), sources in boundary.through.items()
             for (p, i), levels in sources.items() for c, lv in levels.items()]
    return Depth(*max((way for way in ways if way[:2] > (0, 0)), key=lambda way: way[:2], default=(0, 0)))


def _passed(path: tuple[str, ...], parts: Mapping[str, Boundary]) -> set[str]:
    """The parts among the cells that a path's steps name in brackets."""
    cells = {step.rpartition(" (")[2].removesuffix(")") for step in path}
    return cells & parts.keys()


def _topological(
    bits: set[int], after: Mapping[int, list[tuple[int, int, int]]], pending: Mapping[int, int]
) -> list[int]:
    waiting = {b: pending.get(b, 0) for b in bits}
    ready = [b for b in bits if not waiting[b]]
    order = []
    while ready:
        a = ready.pop()
        order.append(a)
        for b, _, _ in after.get(a, ()):
            waiting[b] -= 1
            if not waiting[b]:
                ready.append(b)
    if len(order) != len(bits):
        raise ValueError(f"{len(bits) - len(order)} bits lie on or behind a combinational loop")
    return order


def _tails(
    order: list[int], after: Mapping[int, list[tuple[int, int, int]]], ends: list[tuple[int, int, int, str]]
) -> dict[int, dict[int, int]]:
    """For each bit, the longest way to a register: levels by chains."""
    tails: dict[int, dict[int, int]] = defaultdict(dict)
    for b, levels, chains, _ in ends:
        tails[b][chains] = max(tails[b].get(chains, 0), levels)
    for a in reversed(order):
        for b, levels, chains in after.get(a, ()):
            for c, lv in tails.get(b, {}).items():
                key = min(c + chains, CHAINS_KEPT)
                tails[a][key] = max(tails[a].get(key, 0), lv + levels)
    return tails


def _backward(targets: set[int], after: Mapping[int, list[tuple[int, int, int]]]) -> set[int]:
    before: dict[int, list[int]] = defaultdict(list)
    for a, nexts in after.items():
        for b, _, _ in nexts:
            before[b].append(a)
    seen, todo = set(targets), list(targets)
    while todo:
        for a in before[todo.pop()]:
            if a not in seen:
                seen.add(a)
                todo.append(a)
    return seen


def bit_names(module: Mapping[str, Any]) -> dict[int, str]:
    """A name for every bit, the shortest that the design gives, and the type of the cell that drives it."""
    driver = {
        b: cell["type"]
        for cell in module["cells"].values()
        for p, bits in cell["connections"].items()
        if cell["port_directions"][p] == "output"
        for b in bits
    }
    names: dict[int, str] = {}
    for name, net in sorted(
        module["netnames"].items(), key=lambda item: (item[1].get("hide_name", 0), len(item[0]))
    ):
        for i, b in enumerate(net["bits"]):
            if isinstance(b, int):
                names.setdefault(b, f"{name}[{i}]" if len(net["bits"]) > 1 else name)
    return {b: f"{name} ({driver[b]})" if b in driver else name for b, name in names.items()}


def _trace(
    front: Mapping[int, _Front], bit: int, chains: int, end: str, names: Mapping[int, str]
) -> tuple[str, ...]:
    steps = [end]
    origin: Any = (bit, chains)
    while isinstance(origin, tuple):
        steps.append(names.get(origin[0], f"bit {origin[0]}"))
        origin = front[origin[0]].best[origin[1]][1]
    steps.append(str(origin))
    return tuple(reversed(steps))
