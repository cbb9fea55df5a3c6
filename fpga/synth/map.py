"""Open-source synthesis of a core: what it costs and how deep its logic is, module by module.

Every distinct Verilog module is mapped once by Yosys (`synth_xilinx -family xcup`) with its placed parts as
black boxes; costs add up over the instances, and depths are composed over the boundaries bit by bit. A part by
itself is mapped no faster than its own worst path asks for, though its parent may need more of it: where a composed
path breaks the rule, the parts that it passes are mapped again in one piece with their parent, as a tool that
flattens would, and the report names them. Mapped netlists are cached by their content, and so is the report of a core.
Levels are counted, not times: of those fpga.synth.timing has a model.
"""

import hashlib
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fpga.synth.depth import MAX_CHAINS, MAX_LEVELS, Boundary, Depth, depths
from gen.base import kept
from gen.base.sealed import writing
from gen.base.tools import yosys
from gen.model.platform import Platform
from gen.rtl.verilog import children, interface

# What the default platform leaves to the user.
SHELL = Platform.load().shell.resources
# What a net costs beside a LUT, in ps: twice Yosys' default. Its LUTs have the delays of an older family, in which
# fast pins make seven small LUTs cheaper than six; in UltraScale+ the nets decide, so the levels, which are counted.
NET_DELAY = "scratchpad -set synth_xilinx.abc9.W 600"
FLOW = "synth_xilinx -family xcup -flatten -noiopad -noclkbuf"
# A module of at most so much text is mapped without the declarations of cells that it cannot contain. Yosys has 328 and
# goes through all of them in every step: three quarters of a small module's time. How a large module is mapped depends
# a little on what was read before, so it is mapped as `synth_xilinx` by itself does.
SMALL_BYTES = 1 << 14
# What the flow makes of memories and products for this family; what else it makes is declared in cells_sim.v.
MADE = ("DSP48E2", "RAMB18E2", "RAMB36E2", "URAM288")

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
class Report:
    """`total` of the core, `modules`: name -> (own area, instances in the core), `worst` path and its module,
    `boundary`: the deepest logic between the core's ports and its first or last register; `files`: the kept netlist of
    each module (gen.base.kept)."""

    core: str
    total: Area
    modules: dict[str, tuple[Area, int]]
    worst: Depth
    most_chains: Depth
    boundary: Depth
    depth_of: dict[str, Depth] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: dict[str, Path] = field(default_factory=dict)


# ---- mapping ----


def _map(
    name: str, texts: Mapping[str, str], joined: Iterable[str], cache: Path, keep: bool, begins: Callable[[], None]
) -> tuple[dict[str, Any], Path]:
    """The mapped netlist of one module as Yosys' JSON describes it: in one piece with the parts in `joined`, with all
    others as black boxes; and the file that keeps it, which has to be there afterwards with `keep`. begins: is called
    unless it is in the cache."""
    inside = {name, *joined}
    own = "".join([texts[name], *(texts[part] for part in sorted(joined))])
    parts = {part for one in inside for part in children(texts[one], texts)} - inside
    boxes = [interface(texts[part]) for part in sorted(parts)]
    content = [own, boxes, NET_DELAY, _flow(name, own), _yosys_version()]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    path = cache / f"{name}-{digest}.mapped"

    def make() -> dict[str, Any]:
        begins()
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            (work / "own.v").write_text(own, "utf-8")
            (work / "parts.v").write_text("".join(boxes), "utf-8")
            (work / "cells.v").write_text(_cells(own), "utf-8")
            read = ["read_verilog own.v", "read_verilog -lib parts.v"]
            log = yosys([*read, NET_DELAY, *_flow(name, own)], cwd=work)
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_suffix(".log").write_text(log, "utf-8")
            return json.loads((work / "mapped.json").read_bytes())["modules"][name]

    netlist = kept.remembered(path, make)
    if keep and not path.is_file():
        with writing(path):
            kept.put(path, netlist)
    return netlist, path


def _flow(name: str, text: str) -> list[str]:
    """Yosys commands that map a module. Reading the libraries of all memories is half of a small module's time; it is
    left out where nothing can become one: no array, and no `case`, which may be a table."""
    begin, label = [], "begin"
    if len(text) <= SMALL_BYTES:
        begin, label = ["read_verilog -lib -specify +/xilinx/cells_sim.v", "read_verilog -lib cells.v",
                        f"hierarchy -check -top {name}"], "prepare"
    if re.search(r"\breg\b[^;]*\[[^\]]*\]\s*;|\bcase[xz]?\b", text):
        flow = [*begin, f"{FLOW} -top {name} -run {label}:"]
    else:
        flow = [*begin, f"{FLOW} -top {name} -run {label}:map_memory", f"{FLOW} -top {name} -run map_ffram:"]
    # Without the libraries, which are a hundred times what a small module is.
    return [*flow, f"select -module {name}", "write_json -selected mapped.json"]


@cache
def _declarations() -> dict[str, str]:
    """Yosys' declarations of Xilinx's cells by name, all but those of cells_sim.v."""
    spec = find_spec("pyosys")
    assert spec is not None and spec.submodule_search_locations
    text = Path(spec.submodule_search_locations[0], "share", "xilinx", "cells_xtra.v").read_text("utf-8")
    each = r"(?ms)^(?:\(\*[^\n]*\*\)\n)?module (\w+).*?^endmodule\n"
    return {found[1]: found[0] for found in re.finditer(each, text)}


def _cells(text: str) -> str:
    """The declarations of cells that a module of this text can contain."""
    known = _declarations()
    return "".join(known[name] for name in sorted({*MADE, *re.findall(r"\w+", text)} & known.keys()))


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


# ---- a core ----


def synthesise(
    texts: Mapping[str, str], top: str, *, cache: Path | str = "build/synth",
    say: Callable[[str], None] = lambda line: None, keep: bool = False
) -> Report:
    """Maps the Verilog of a core and adds up area and depth.

    Parameters  texts: file name -> Verilog, one module a file, as `gen.rtl.verilog.convert` gives; top: module
                name; say: is told of each module that is not in the cache; keep: the files of the netlists are
                needed afterwards
    Raises      ValueError: a combinational loop, a cell that is not known, or a file that is needed and cannot be
                written; RuntimeError: Yosys failed
    """
    folder = Path(cache)
    folder.mkdir(parents=True, exist_ok=True)
    modules = {file.removesuffix(".v"): text for file, text in texts.items()}
    own = Path(__file__)
    sources = [path.read_text("utf-8") for path in (own, own.with_name("depth.py"))]
    decides = [modules, NET_DELAY, _yosys_version(), *sources]
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]
    path = folder / f"{top}-{digest}.report"
    report = _known(path)
    if report is None:
        report = _synthesised(modules, top, folder, say, keep)
        with suppress(OSError):     # a netlist that could not be kept: the report is made again, too
            netlists = {file.name: kept.digest(file) for file in report.files.values()}
            kept.put(path, asdict(replace(report, files={})) | {
                "files": {name: file.name for name, file in report.files.items()}, "netlists": netlists})
    return report


def _known(path: Path) -> Report | None:
    """The report kept in a file, if the netlists that it is of are there as they were."""
    record = kept.read(path)
    try:
        if record is None or any(kept.digest(path.with_name(name)) != was for name, was in record["netlists"].items()):
            return None
        depth = {key: _depth(record[key]) for key in ("worst", "most_chains", "boundary")}
        return Report(record["core"], Area(**record["total"]),
                      {name: (Area(**area), count) for name, (area, count) in record["modules"].items()}, **depth,
                      depth_of={name: _depth(of) for name, of in record["depth_of"].items()},
                      notes=tuple(record["notes"]),
                      files={name: path.with_name(file) for name, file in record["files"].items()})
    except OSError:
        return None


def _depth(found: dict[str, Any]) -> Depth:
    return Depth(found["levels"], found["chains"], tuple(found["path"]))


def _synthesised(modules: Mapping[str, str], top: str, folder: Path, say: Callable[[str], None], keep: bool) -> Report:
    areas: dict[str, Area] = {}
    boundaries: dict[str, Boundary] = {}
    depth_of: dict[str, Depth] = {}
    chains_of: dict[str, Depth] = {}
    uses: dict[str, dict[str, int]] = {}
    notes: list[str] = []
    files: dict[str, Path] = {}
    edge = Depth(0, 0)
    order = leaves_first(top, modules)
    for number, name in enumerate(order, 1):
        begins = partial(say, f"mapping {number} of {len(order)}: {name}")
        joined: set[str] = set()
        while True:
            netlist, files[name] = _map(name, modules, joined, folder, keep, begins)
            try:
                found = depths(netlist, boundaries)
            except ValueError as error:
                raise ValueError(f"module {name}: {error}") from None
            if not found.crossed:
                break
            joined |= found.crossed
        depth_of[name], chains_of[name] = found.worst, found.chained
        edge, boundaries[name] = found.edge, found.boundary
        uses[name] = defaultdict(int)
        for cell in netlist["cells"].values():
            if cell["type"] in modules:
                uses[name][cell["type"]] += 1
        areas[name] = _area(netlist["cells"])
        notes += [f"{name}: {note}" for note in found.notes]
        if joined:
            notes.append(f"{name}: mapped in one piece with {', '.join(sorted(joined))}")
    counts = instances(top, uses)
    total = Area()
    for name, area in areas.items():
        total = total + area * counts[name]

    def named(table: dict[str, Depth], key: Any) -> Depth:
        name = max((n for n in table if counts[n]), key=lambda n: key(table[n]))
        return Depth(table[name].levels, table[name].chains, (f"in {name}", *table[name].path))

    return Report(
        top,
        total,
        {n: (areas[n], counts[n]) for n in areas if counts[n]},
        named(depth_of, lambda d: (d.levels, d.chains)),
        named(chains_of, lambda d: (d.chains, d.levels)),
        edge,
        depth_of,
        tuple(notes),
        {n: files[n] for n in areas if counts[n]},
    )


def leaves_first(top: str, modules: Mapping[str, str]) -> list[str]:
    """The modules of a core, parts before those that have them."""
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        for child in sorted(children(modules[name], modules)):
            visit(child)
        done[name] = None

    visit(top)
    return list(done)


def instances(top: str, uses: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """How often the core has each module. uses: parts of each by name, leaves first."""
    counts: dict[str, int] = defaultdict(int)
    counts[top] = 1
    for name in reversed(list(uses)):
        for child, number in uses[name].items():
            counts[child] += number * counts[name]
    return counts


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
