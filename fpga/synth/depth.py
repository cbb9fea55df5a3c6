"""Logic depth of a mapped netlist: LUT levels and carry chains between registers, bit by bit.

Depths compose over module boundaries: a part is known to its parent by what lies between its ports and its
registers (`Boundary`). LUTs count one level, the slice's own multiplexers none, a chain of CARRY4 one chain.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Boundary", "Depth", "MAX_CHAINS", "MAX_LEVELS", "bit_names", "depths"]

MAX_LEVELS = 6
MAX_CHAINS = 1


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
        chains = min(chains, 3)
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
        read = re.compile(r"DPRA.*|ADDR[A-H]|A\d?|A\[.*") if _LUTRAM.match(kind) else re.compile(r"A\d?$")
        for p, _, a in inputs:
            if p in ("WCLK", "CLK", "C"):
                continue
            arcs.ends.append((a, 0, 0, p))
            if read.fullmatch(p):
                arcs.through += [(a, b, 1, 0) for _, _, b in outputs]
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


def depths(
    module: dict[str, Any], boundaries: Mapping[str, Boundary]
) -> tuple[Depth, Depth, Depth, Boundary, list[str], set[str]]:
    """Worst path, path with the most chains, worst boundary path, the boundary as parents see it, notes, and the
    kinds of parts that paths which break the rule begin in, pass or end in."""
    names = bit_names(module)
    after: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # bit -> (bit, levels, chains)
    pending: dict[int, int] = defaultdict(int)
    starts: list[tuple[int, int, int, str]] = []
    ends: list[tuple[int, int, int, str]] = []
    notes = []
    for cell_name, cell in module["cells"].items():
        arcs = _arcs(cell, boundaries)
        starts += [(b, lv, ch, f"{cell_name}.{pin} ({cell['type']})") for b, lv, ch, pin in arcs.starts]
        ends += [(b, lv, ch, f"{cell_name}.{pin} ({cell['type']})") for b, lv, ch, pin in arcs.ends]
        for a, b, levels, chains in arcs.through:
            after[a].append((b, levels, chains))
            pending[b] += 1
        if cell["type"].startswith("LD"):
            notes.append(f"{cell_name} is a latch")
    ports_in = {
        b: (p, i)
        for p, port in module["ports"].items()
        if port["direction"] == "input"
        for i, b in enumerate(port["bits"])
        if isinstance(b, int)
    }
    ports_out = [
        (b, (p, i))
        for p, port in module["ports"].items()
        if port["direction"] == "output"
        for i, b in enumerate(port["bits"])
        if isinstance(b, int)
    ]
    bits = {b for b, *_ in starts} | {b for b, *_ in ends} | set(after) | set(pending) | set(ports_in)
    bits |= {b for b, _ in ports_out}
    order = _topological(bits, after, pending)

    # From registers.
    front: dict[int, _Front] = {b: _Front() for b in bits}
    for b, levels, chains, name in starts:
        front[b].offer(chains, levels, name)
    for a in order:
        for b, levels, chains in after[a]:
            for c, (lv, _) in front[a].best.items():
                front[b].offer(c + chains, lv + levels, (a, c))
    worst, most = Depth(0, 0), Depth(0, 0)
    crossed: set[str] = set()
    paths: list[tuple[int, int, int, int, str]] = []
    for b, levels, chains, name in ends:
        for c, (lv, _) in front[b].best.items():
            paths.append((lv + levels, c + chains, b, c, name))
    if paths:
        # A path that breaks the rule is worse than any that keeps it.
        top = max(paths, key=lambda f: (f[0], f[1]))
        worst = Depth(top[0], top[1], _trace(front, top[2], top[3], top[4], names))
        chained = max(paths, key=lambda f: (f[1], f[0]))
        most = Depth(chained[0], chained[1], _trace(front, chained[2], chained[3], chained[4], names))
    for levels, chains, b, c, name in paths:
        if not Depth(levels, chains).met:
            crossed |= _passed(_trace(front, b, c, name, names), boundaries)

    # From each input port bit, over the bits that inputs reach: the way into registers and through to
    # outputs.
    reached: dict[int, dict[tuple[str, int], dict[int, int]]] = defaultdict(dict)
    useful = _backward({b for b, _ in ports_out}, after)
    into: dict[tuple[str, int], dict[int, int]] = {}
    tails = _tails(order, after, ends)
    for b, at in ports_in.items():
        if tails.get(b):
            into[at] = tails[b]
        if b in useful:
            reached[b][at] = {0: 0}
    for a in order:
        if a not in reached:
            continue
        for b, levels, chains in after[a]:
            if b not in useful:
                continue
            for at, ways in reached[a].items():
                mine = reached[b].setdefault(at, {})
                for c, lv in ways.items():
                    key = min(c + chains, 3)
                    mine[key] = max(mine.get(key, -1), lv + levels)
    out = {at: {c: lv for c, (lv, _) in front[b].best.items()} for b, at in ports_out if front[b].best}
    through = {at: dict(reached[b]) for b, at in ports_out if reached.get(b)}
    edge = Depth(0, 0)
    for side, table in (("from the port", into), ("to the port", out)):
        for (p, i), ways in table.items():
            for c, lv in ways.items():
                if (lv, c) > (edge.levels, edge.chains):
                    edge = Depth(lv, c, (f"{side} {p}[{i}]",))
    for at, sources in through.items():
        for source, ways in sources.items():
            for c, lv in ways.items():
                if (lv, c) > (edge.levels, edge.chains):
                    edge = Depth(lv, c, (f"{source[0]}[{source[1]}]", f"{at[0]}[{at[1]}]"))
    return worst, most, edge, Boundary(into, out, through), notes, crossed


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
                key = min(c + chains, 3)
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
