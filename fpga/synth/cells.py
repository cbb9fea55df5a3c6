"""A core in standard cells: area and gate equivalents in a library that the user names, by Yosys and ABC.

Every distinct Verilog module is mapped once, with its parts as black boxes, and areas add up over the instances.
Memories that are written and have more than FLIP_FLOP_WORDS words are counted in bits and not mapped: they become
macros, whose area is estimated from the published bit cell of a process. Mapped modules are kept by their content, so
that a mapping that was interrupted goes on where it stopped. Power is what charges the cells' inputs, once
for a change and twice a cycle for a clock, times what wires and the inside of cells add, and leakage; that of memories
is left out. Not modelled: placement density, clock tree, timing.

Source: bit cells of Intel's processes as published at IEDM (S. Yang 1998, S. Tyagi 2000, S. Thompson 2002, P. Bai 2004,
K. Mistry 2007); share of a macro's area that is cells, what wires and the inside of cells add: own assumptions
"""

import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fpga.synth.map import instances, leaves_first
from gen.base import kept
from gen.base.tools import yosys
from gen.rtl.verilog import children, interface

FLIP_FLOP_WORDS = 16
URAM_BITS = 4096 * 72
BIT_CELLS = {180: 5.59, 130: 2.09, 90: 1.0, 65: 0.57, 45: 0.346}    # square micrometres, by nanometres of the process
CELL_SHARE = 0.4, 0.7       # of a macro's area, least and most
ACTIVITY = 0.05, 0.2        # changes of a node per cycle, least and most
MORE = 2.0, 4.0             # times the inputs' capacitance: wires and the inside of cells, least and most
UNITS = {"f": 1e-15, "p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}
NAND = "module nand2(a, b, y);\n  input a;\n  input b;\n  output y;\n  assign y = ~(a & b);\nendmodule\n"
FLOW = """hierarchy -top {name}
proc
flatten
opt_expr
opt_clean
opt -nodffe -nosdff
wreduce
peepopt
opt_clean
alumacc
opt
memory -nomap
opt_clean
memory_map t:$mem_v2 r:WR_PORTS=0 %i t:$mem_v2 r:SIZE<={words} %i %u
opt -fast -full
techmap
opt -fast
setattr -unset init w:*
dfflibmap -liberty {library}
abc -liberty {library} -script +strash;ifraig;dc2;map;topo
opt_clean
select -module {name}
write_json -selected mapped.json
tee -q -o area.json stat -json -liberty {library} -top {name}"""


@dataclass(frozen=True)
class Part:
    """A module without its parts: area_um2 and how many cells, of memories that are no cells how many and their bits;
    uses: other parts by name; kinds: how many cells of each kind."""

    area_um2: float
    cells: int
    memories: int
    memory_bits: int
    uses: Mapping[str, int]
    kinds: Mapping[str, int]


@dataclass(frozen=True)
class Electrical:
    """Of a cell, or of all cells of a core: joules to charge inputs for data and for clocks once, watts of leakage."""

    data_j: float = 0.0
    clock_j: float = 0.0
    leakage_w: float = 0.0

    def times(self, count: int, more: "Electrical") -> "Electrical":
        """Of so many, and of more."""
        return Electrical(count * self.data_j + more.data_j, count * self.clock_j + more.clock_j,
                          count * self.leakage_w + more.leakage_w)

    def watts(self, mhz: float, activity: tuple[float, float] = ACTIVITY) -> tuple[float, float]:
        """Least and most. activity: changes of a node per cycle."""
        least, most = (more * mhz * 1e6 * (share * self.data_j + 2 * self.clock_j) + self.leakage_w
                       for share, more in zip(activity, MORE, strict=True))
        return least, most


@dataclass(frozen=True)
class CellReport:
    """Of a core, all instances together; areas in the library's unit, which is the square micrometre in usual ones.
    nand_um2: of the cell that makes a NAND of two inputs, the gate equivalent. modules: (part, instances) by name.
    electrical: of all cells, zero where the library says nothing of it."""

    core: str
    area_um2: float
    nand_um2: float
    cells: int
    memories: int
    memory_bits: int
    modules: Mapping[str, tuple[Part, int]]
    electrical: Electrical = Electrical()

    @property
    def gates(self) -> float:
        """Gate equivalents of the cells."""
        return self.area_um2 / self.nand_um2

    def memory_mm2(self, node_nm: int) -> tuple[float, float]:
        """Least and most area of the memories as macros in a process of BIT_CELLS."""
        cells = 1e-6 * self.memory_bits * BIT_CELLS[node_nm]
        return cells / CELL_SHARE[1], cells / CELL_SHARE[0]


def map_cells(texts: Mapping[str, str], top: str, liberty: Path, *, cache: Path | str = "build/synth",
              say: Callable[[str], None] = lambda line: None) -> CellReport:
    """Maps the Verilog of a core to the cells of a Liberty file.

    Parameters  texts, top, cache: as fpga.synth.map.synthesise takes them; say: is told of each module that is not in
                the cache
    Raises      ValueError: the file has no cells that make logic, or a module has a part that is neither cell nor
                memory; RuntimeError: Yosys failed; OSError: the file cannot be read
    """
    library = liberty.resolve()
    cells = electrical(library.read_text("utf-8", errors="replace"))
    names = set(cells)
    if not names:
        raise ValueError(f"liberty {liberty}: it has no cells; a Liberty file of a standard-cell library is needed")
    modules = {file.removesuffix(".v"): text for file, text in texts.items()}
    try:
        nand = _part("nand2", {"nand2": NAND}, library, Path(cache), lambda: None).area_um2
    except RuntimeError as error:
        raise ValueError(f"liberty {liberty}: {str(error).splitlines()[0]}") from None
    if not nand:
        raise ValueError(f"liberty {liberty}: the cells that make a NAND of two inputs have no area")
    parts: dict[str, Part] = {}
    order = leaves_first(top, modules)
    for number, name in enumerate(order, 1):
        begins = partial(say, f"mapping {number} of {len(order)}: {name}")
        parts[name] = part = _part(name, modules, library, Path(cache), begins)
        if others := sorted(set(part.kinds) - names):
            raise ValueError(f"module {name}: {', '.join(others)} is no cell of {liberty}; a preset for FPGAs has such "
                             "parts")
    counts = instances(top, {name: part.uses for name, part in parts.items()})

    def total(field: str) -> Any:
        return sum(getattr(part, field) * counts[name] for name, part in parts.items())

    chain = Electrical()
    for name, part in parts.items():
        for kind, count in part.kinds.items():
            chain = cells[kind].times(count * counts[name], chain)
    return CellReport(top, total("area_um2"), nand, total("cells"), total("memories"), total("memory_bits"),
                      {name: (part, counts[name]) for name, part in parts.items() if counts[name]}, chain)


def electrical(liberty: str) -> dict[str, Electrical]:
    """The cells of a Liberty file by name. A change of a node charges or discharges it: half of C V^2."""
    def number(pattern: str, text: str, default: float = 0.0) -> float:
        match = re.search(pattern + r"\s*:?\s*\"?\(?\s*([\d.eE+-]+)", text)
        return float(match[1]) if match else default

    def unit(pattern: str) -> float:
        match = re.search(pattern + r"\W*([\d.]+)\W*([fpnum]?)[WwFf]", liberty)
        return float(match[1]) * UNITS[match[2].lower()] if match else 1.0

    half = 0.5 * unit("capacitive_load_unit") * number("nom_voltage", liberty) ** 2
    values = {}
    for cell in re.split(r"\bcell\s*\(\s*\"?(?=\w)", liberty)[1:]:
        inputs = [pin for pin in re.split(r"\bpin\s*\(", cell)[1:] if re.search(r"direction\s*:\s*\"?input", pin)]
        data, clock = (half * sum(number(r"\bcapacitance", pin) for pin in inputs
                                  if bool(re.search(r"\bclock\s*:\s*\"?true", pin)) == clocked)
                       for clocked in (False, True))
        name = re.split(r"\W", cell, maxsplit=1)[0]
        values[name] = Electrical(data, clock, number("cell_leakage_power", cell) * unit("leakage_power_unit"))
    return values


def _part(name: str, modules: Mapping[str, str], library: Path, cache: Path, begins: Callable[[], None]) -> Part:
    """A module, its parts as black boxes. begins: is called unless it is in the cache."""
    boxes = [interface(modules[part]) for part in sorted(children(modules[name], modules))]
    flow = ["read_verilog own.v", "read_verilog -lib parts.v",
            *FLOW.format(name=name, words=FLIP_FLOP_WORDS, library="cells.lib").splitlines()]
    content = [modules[name], boxes, flow, kept.digest(library), version("pyosys")]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def make() -> dict[str, Any]:
        begins()
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            (work / "own.v").write_text(modules[name], "utf-8")
            (work / "parts.v").write_text("".join(boxes), "utf-8")
            (work / "cells.lib").symlink_to(library)
            yosys(flow, cwd=work)
            netlist = json.loads((work / "mapped.json").read_bytes())["modules"][name]["cells"].values()
            area = json.loads((work / "area.json").read_bytes())["design"]
        memories = [_bits(cell) for cell in netlist if cell["type"] in ("$mem_v2", "URAM288")]
        kinds = Counter(cell["type"] for cell in netlist if cell["type"] not in ("$mem_v2", "URAM288", "$scopeinfo"))
        uses = {kind: kinds.pop(kind) for kind in list(kinds) if kind in modules}
        return asdict(Part(area.get("area", 0.0), sum(kinds.values()), len(memories), sum(memories), uses, dict(kinds)))

    return Part(**kept.remembered(cache / f"{name}-{digest}.cells", make))


def _bits(cell: Mapping[str, Any]) -> int:
    """Of a memory."""
    if cell["type"] == "URAM288":
        return URAM_BITS
    return int(cell["parameters"]["SIZE"], 2) * int(cell["parameters"]["WIDTH"], 2)


def lines(report: CellReport, node_nm: int | None = None) -> Iterator[str]:
    """The report as text. node_nm: of the process, for the memories' area."""
    yield f"{report.core}:"
    yield (f"  cells       {report.cells:,}, {report.area_um2 / 1e6:.4g} mm2, {report.gates / 1e3:,.4g} k gate "
           "equivalents")
    said = "give --node-nm for their area"
    if node_nm is not None:
        least, most = report.memory_mm2(node_nm)
        said = f"{least:.4g} to {most:.4g} mm2 as macros in {node_nm} nm"
    if report.electrical != Electrical():
        least, most = ((each - report.electrical.leakage_w) * 1e3 for each in report.electrical.watts(1))
        yield (f"  power       {least:.3g} to {most:.3g} mW per MHz and {1e3 * report.electrical.leakage_w:.3g} mW of "
               f"leakage, without memories; {ACTIVITY[0]:.0%} to {ACTIVITY[1]:.0%} of the nodes change in a cycle")
    yield f"  memories    {report.memories:,} with {report.memory_bits / 8192:,.4g} KiB: {said}"
    for name, (part, count) in sorted(report.modules.items(), key=lambda item: -item[1][0].area_um2 * item[1][1]):
        yield (f"  {count:4d} x {name}: {part.area_um2 / report.nand_um2:,.0f} gate equivalents"
               + (f", {part.memory_bits:,} bits of memory" if part.memory_bits else ""))
