"""Open-source synthesis of a core: what it costs and how deep its logic is, module by module.

Every distinct Verilog module is mapped once by Yosys (`synth_xilinx -family xcup`) with its placed parts as
black boxes; costs add up over the instances, and depths are composed over the boundaries bit by bit. Mapped
netlists are cached by their content. No timing model of the part is open: depth in LUT levels stands in for
it.
"""

import hashlib
import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gen.tools import yosys
from gen.verilog import children, interface

__all__ = ["Area", "Depth", "Report", "SHELL", "MAX_LEVELS", "MAX_CHAINS", "synthesise"]

# What the standard SmartSSD shell leaves to the user. Source: UG1382 table 8, the DDR controller taken off.
SHELL = {"lut": 310_000, "ff": 655_000, "bram36": 620, "uram": 104, "dsp": 1_341}
MAX_LEVELS = 6
MAX_CHAINS = 1
FLOW = "synth_xilinx -family xcup -flatten -noiopad -noclkbuf"

# LUTs that one memory or shift-register primitive takes (UG974).
LUT_COST = {
    "INV": 1,
    "SRL16E": 1,
    "SRLC16E": 1,
    "SRLC32E": 1,
    "RAM16X1S": 1,
    "RAM32X1S": 1,
    "RAM64X1S": 1,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1S": 2,
    "RAM128X1D": 4,
    "RAM256X1S": 4,
    "RAM256X1D": 8,
    "RAM512X1S": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
}


@dataclass(frozen=True)
class Area:
    """Resources. `bram36` counts halves for a RAMB18, `lutram` is the part of `lut` that stores."""

    lut: int = 0
    ff: int = 0
    dsp: int = 0
    bram36: float = 0
    uram: int = 0
    carry4: int = 0
    lutram: int = 0

    def __add__(self, other: "Area") -> "Area":
        return Area(*(a + b for a, b in zip(self.values(), other.values())))

    def __mul__(self, times: int) -> "Area":
        return Area(*(a * times for a in self.values()))

    def values(self) -> tuple[Any, ...]:
        return self.lut, self.ff, self.dsp, self.bram36, self.uram, self.carry4, self.lutram

    def as_dict(self) -> dict[str, float]:
        return dict(zip(("lut", "ff", "dsp", "bram36", "uram", "carry4", "lutram"), self.values()))


@dataclass(frozen=True)
class Depth:
    """A longest path between sequential elements: LUT levels, carry chains, and the names it passes."""

    levels: int
    chains: int
    path: tuple[str, ...] = ()

    @property
    def met(self) -> bool:
        return self.levels <= MAX_LEVELS and self.chains <= MAX_CHAINS


@dataclass(frozen=True)
class Report:
    """`total` of the core, `modules`: name -> (own area, instances in the core), `worst` path and its module,
    `boundary`: the deepest logic between the core's ports and its first or last register."""

    core: str
    total: Area
    modules: dict[str, tuple[Area, int]]
    worst: Depth
    most_chains: Depth
    boundary: Depth
    depth_of: dict[str, Depth] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


# ---- mapping ----


def _map(name: str, texts: Mapping[str, str], parts: Iterable[str], cache: Path) -> dict[str, Any]:
    """The mapped netlist of one module as Yosys' JSON describes it, with its parts as black boxes."""
    own = texts[name]
    boxes = [interface(texts[part]) for part in sorted(parts)]
    digest = hashlib.sha256(json.dumps([own, boxes, FLOW, _yosys_version()]).encode()).hexdigest()[:16]
    path = cache / f"{name}-{digest}.json"
    if not path.exists():
        work = cache / f"{name}-{digest}-{os.getpid()}"
        work.mkdir(parents=True, exist_ok=True)
        (work / "own.v").write_text(own)
        (work / "parts.v").write_text("".join(boxes))
        map_it = f"{FLOW} -top {name} -json mapped.json"
        log = yosys(["read_verilog own.v", "read_verilog -lib parts.v", map_it], cwd=work)
        path.with_suffix(".log").write_text(log)
        (work / "mapped.json").replace(path)
        shutil.rmtree(work)
    return json.loads(path.read_text())["modules"][name]


def _yosys_version() -> str:
    from importlib.metadata import version

    return version("pyosys")


def _area(cells: Mapping[str, Any]) -> Area:
    total: dict[str, float] = defaultdict(float)
    for cell in cells.values():
        kind = cell["type"]
        if kind in LUT_COST:
            total["lut"] += LUT_COST[kind]
            if kind != "INV":
                total["lutram"] += LUT_COST[kind]
        elif re.fullmatch(r"LUT[1-6]", kind):
            total["lut"] += 1
        elif re.match(r"FD[RSCP]E", kind):
            total["ff"] += 1
        elif kind.startswith("DSP48"):
            total["dsp"] += 1
        elif kind.startswith("RAMB36"):
            total["bram36"] += 1
        elif kind.startswith("RAMB18"):
            total["bram36"] += 0.5
        elif kind.startswith("URAM288"):
            total["uram"] += 1
        elif kind == "CARRY4":
            total["carry4"] += 1
    whole = {key: int(value) for key, value in total.items() if key != "bram36"}
    return Area(**whole, bram36=total["bram36"])


# ---- depth ----


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
class _Boundary:
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


def _arcs(cell: dict[str, Any], boundaries: Mapping[str, _Boundary]) -> "_Arcs":
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
        raise ValueError(f"cell type {kind} has no timing arcs here; add them to fpga.synth")
    return arcs


@dataclass
class _Arcs:
    starts: list[tuple[int, int, int, str]] = field(default_factory=list)
    ends: list[tuple[int, int, int, str]] = field(default_factory=list)
    through: list[tuple[int, int, int, int]] = field(default_factory=list)


def _parameter(cell: dict[str, Any], name: str) -> int:
    value = cell.get("parameters", {}).get(name, 0)
    return int(value, 2) if isinstance(value, str) and set(value) <= {"0", "1"} and value else int(value or 0)


def _depths(
    module: dict[str, Any], boundaries: Mapping[str, _Boundary]
) -> tuple[Depth, Depth, Depth, _Boundary, list[str]]:
    """Worst path, path with the most chains, worst boundary path, and the boundary as parents see it."""
    names = _bit_names(module)
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
    found: list[tuple[int, int, int, int, str]] = []
    for b, levels, chains, name in ends:
        for c, (lv, _) in front[b].best.items():
            found.append((lv + levels, c + chains, b, c, name))
    if found:
        # A path that breaks the rule is worse than any that keeps it.
        top = max(found, key=lambda f: (f[0], f[1]))
        worst = Depth(top[0], top[1], _trace(front, top[2], top[3], top[4], names))
        chained = max(found, key=lambda f: (f[1], f[0]))
        most = Depth(chained[0], chained[1], _trace(front, chained[2], chained[3], chained[4], names))

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
    return worst, most, edge, _Boundary(into, out, through), notes


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


def _bit_names(module: dict[str, Any]) -> dict[int, str]:
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


# ---- a core ----


def synthesise(texts: Mapping[str, str], top: str, *, cache: Path | str = "build/synth") -> Report:
    """Maps the Verilog of a core and adds up area and depth.

    Parameters  texts: file name -> Verilog, one module a file, as `gen.verilog.convert` gives; top: module
                name
    Raises      ValueError: a combinational loop, or a cell that is not known; RuntimeError: Yosys failed
    """
    folder = Path(cache)
    folder.mkdir(parents=True, exist_ok=True)
    modules = {file.removesuffix(".v"): text for file, text in texts.items()}
    areas: dict[str, Area] = {}
    boundaries: dict[str, _Boundary] = {}
    depth_of: dict[str, Depth] = {}
    chains_of: dict[str, Depth] = {}
    uses: dict[str, dict[str, int]] = {}
    notes: list[str] = []
    edge = Depth(0, 0)
    for name in _leaves_first(top, modules):
        netlist = _map(name, modules, children(modules[name], modules), folder)
        uses[name] = defaultdict(int)
        for cell in netlist["cells"].values():
            if cell["type"] in modules:
                uses[name][cell["type"]] += 1
        areas[name] = _area(netlist["cells"])
        try:
            depth_of[name], chains_of[name], edge, boundaries[name], found = _depths(netlist, boundaries)
        except ValueError as error:
            raise ValueError(f"module {name}: {error}") from None
        notes += [f"{name}: {note}" for note in found]
    counts: dict[str, int] = defaultdict(int)
    counts[top] = 1
    for name in reversed(list(uses)):
        for child, number in uses[name].items():
            counts[child] += number * counts[name]
    total = Area()
    for name, area in areas.items():
        total = total + area * counts[name]

    def named(table: dict[str, Depth], key: Any) -> Depth:
        name = max((n for n in table if counts[n]), key=lambda n: key(table[n]))
        return Depth(table[name].levels, table[name].chains, (f"in {name}", *table[name].path))

    return Report(
        top,
        total,
        {n: (areas[n], counts[n]) for n in areas},
        named(depth_of, lambda d: (d.levels, d.chains)),
        named(chains_of, lambda d: (d.chains, d.levels)),
        edge,
        depth_of,
        tuple(notes),
    )


def _leaves_first(top: str, modules: Mapping[str, str]) -> list[str]:
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        for child in sorted(children(modules[name], modules)):
            visit(child)
        done[name] = None

    visit(top)
    return list(done)


def lines(report: Report) -> Iterator[str]:
    """The report as text, for the terminal."""
    yield f"{report.core}:"
    for key, value in report.total.as_dict().items():
        budget = SHELL.get(key)
        share = f"  {100 * value / budget:5.1f} % of the shell's {budget:,}" if budget else ""
        yield f"  {key:8s} {value:>10,.10g}{share}"
    for name, (area, count) in sorted(report.modules.items(), key=lambda item: -item[1][0].lut * item[1][1]):
        yield (
            f"  {count:4d} x {name}: {area.lut} LUT, {area.ff} FF, {area.dsp} DSP, {area.bram36:g} BRAM36, "
            f"{area.uram} URAM; {report.depth_of[name].levels} levels"
        )
    yield (
        f"  deepest: {report.worst.levels} LUT levels, {report.worst.chains} carry chains "
        f"({'within' if report.worst.met else 'OVER'} {MAX_LEVELS} levels and {MAX_CHAINS} chain)"
    )
    yield from (f"    {step}" for step in report.worst.path)
    if report.most_chains.chains > MAX_CHAINS:
        yield f"  most chains: {report.most_chains.chains} with {report.most_chains.levels} levels"
        yield from (f"    {step}" for step in report.most_chains.path)
    yield f"  at the ports: {report.boundary.levels} levels, {report.boundary.chains} chains; " + " -> ".join(
        report.boundary.path
    )
    yield from (f"  note: {note}" for note in report.notes)
