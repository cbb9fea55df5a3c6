"""A core in standard cells: area and gate equivalents in a library that the user names, by Yosys and ABC.

Every distinct Verilog module is mapped once, with its parts as black boxes, and areas add up over the instances.
Memories that are written and have more than FLIP_FLOP_WORDS words are counted in bits and not mapped: they become
macros, whose area is estimated from the published bit cell of a process. Mapped modules are kept by their content, so
that a mapping that was interrupted goes on where it stopped. Power is fpga.synth.power's. Not modelled: placement
density, clock tree, timing.

Source: bit cells of Intel's processes as published at IEDM (S. Yang 1998, S. Tyagi 2000, S. Thompson 2002, P. Bai 2004,
K. Mistry 2007); share of a macro's area that is cells: own assumption
"""

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fpga.synth.map import instances, leaves_first
from fpga.synth.power import ACTIVITY, Bounds, Cell, Nets, Power, add, library_cells, nets, power, times
from fpga.synth.power import lines as power_lines
from gen.base import kept
from gen.base.tools import yosys
from gen.rtl.toggles import Bit
from gen.rtl.verilog import children, interface

FLIP_FLOP_WORDS = 16
URAM_BITS = 4096 * 72
BIT_CELLS = {180: 5.59, 130: 2.09, 90: 1.0, 65: 0.57, 45: 0.346}    # square micrometres, by nanometres of the process
CELL_SHARE = 0.4, 0.7       # of a macro's area, least and most
MEMORIES = "$mem_v2", "URAM288"
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
    uses: other parts by name; nets: what its cells draw."""

    area_um2: float
    cells: int
    memories: int
    memory_bits: int
    uses: Mapping[str, int]
    nets: Nets = Nets()


@dataclass(frozen=True)
class CellReport:
    """Of a core, all instances together; areas in the library's unit, which is the square micrometre in usual ones.
    nand_um2: of the cell that makes a NAND of two inputs, the gate equivalent. modules: (part, instances) by name."""

    core: str
    area_um2: float
    nand_um2: float
    cells: int
    memories: int
    memory_bits: int
    modules: Mapping[str, tuple[Part, int]]

    @property
    def gates(self) -> float:
        """Gate equivalents of the cells."""
        return self.area_um2 / self.nand_um2

    @property
    def cycle_j(self) -> Bounds:
        """Of a cycle, by assumed activity; zero where the library says nothing of it."""
        return add(*(times(part.nets.cycle_j, count) for part, count in self.modules.values()))

    @property
    def leakage_w(self) -> float:
        return sum(count * part.nets.leakage_w for part, count in self.modules.values())

    def power(self, changes: Mapping[Bit, int]) -> Power:
        """By the changes that were counted in a run (fpga.synth.power.power)."""
        return power(self.core, {name: (part.nets, count) for name, (part, count) in self.modules.items()}, changes)

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
    known = library_cells(library.read_text("utf-8", errors="replace"))
    if not known:
        raise ValueError(f"liberty {liberty}: it has no cells; a Liberty file of a standard-cell library is needed")
    modules = {file.removesuffix(".v"): text for file, text in texts.items()}
    try:
        nand = _part("nand2", {"nand2": NAND}, library, known, Path(cache), lambda: None).area_um2
    except RuntimeError as error:
        raise ValueError(f"liberty {liberty}: {str(error).splitlines()[0]}") from None
    if not nand:
        raise ValueError(f"liberty {liberty}: the cells that make a NAND of two inputs have no area")
    parts: dict[str, Part] = {}
    order = leaves_first(top, modules)
    for number, name in enumerate(order, 1):
        begins = partial(say, f"mapping {number} of {len(order)}: {name}")
        parts[name] = _part(name, modules, library, known, Path(cache), begins)
    counts = instances(top, {name: part.uses for name, part in parts.items()})

    def total(field: str) -> Any:
        return sum(getattr(part, field) * counts[name] for name, part in parts.items())

    return CellReport(top, total("area_um2"), nand, total("cells"), total("memories"), total("memory_bits"),
                      {name: (part, counts[name]) for name, part in parts.items() if counts[name]})


def _part(name: str, modules: Mapping[str, str], library: Path, known: Mapping[str, Cell], cache: Path,
          begins: Callable[[], None]) -> Part:
    """A module, its parts as black boxes. known: the library's cells; begins: is called unless it is in the cache.
    Raises ValueError: it has a cell that the library lacks"""
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
            netlist = json.loads((work / "mapped.json").read_bytes())["modules"][name]
            area = json.loads((work / "area.json").read_bytes())["design"].get("area", 0.0)
        placed = [(cell["type"], {pin: bit for pin, (bit,) in cell["connections"].items()}
                   if cell["type"] in known else {}) for cell in netlist["cells"].values()]
        names = [(bit, net, str(place) if len(wire["bits"]) > 1 else "")
                 for net, wire in netlist["netnames"].items() if not wire["hide_name"]
                 for place, bit in enumerate(wire["bits"])]
        return {"area_um2": area, "memory_bits": [_bits(cell) for cell in netlist["cells"].values()
                                                  if cell["type"] in MEMORIES], "cells": placed, "names": names}

    mapped = kept.remembered(cache / f"{name}-{digest}.cells", make)
    kinds = Counter(kind for kind, _ in mapped["cells"])
    uses = {kind: count for kind, count in kinds.items() if kind in modules}
    if others := sorted(kinds.keys() - uses.keys() - known.keys() - {*MEMORIES, "$scopeinfo"}):
        raise ValueError(f"module {name}: {', '.join(others)} is no cell of {library}; a preset for FPGAs has such "
                         "parts")
    return Part(mapped["area_um2"], sum(kinds[kind] for kind in kinds.keys() & known.keys()),
                len(mapped["memory_bits"]), sum(mapped["memory_bits"]), uses,
                nets(mapped["cells"], mapped["names"], known))


def _bits(cell: Mapping[str, Any]) -> int:
    """Of a memory."""
    if cell["type"] == "URAM288":
        return URAM_BITS
    return int(cell["parameters"]["SIZE"], 2) * int(cell["parameters"]["WIDTH"], 2)


def lines(report: CellReport, node_nm: int | None = None, work: Power | None = None, mhz: float = 0.0
          ) -> Iterator[str]:
    """The report as text. node_nm: of the process, for the memories' area; work, mhz: power of a run at this clock."""
    yield f"{report.core}:"
    yield (f"  cells       {report.cells:,}, {report.area_um2 / 1e6:.4g} mm2, {report.gates / 1e3:,.4g} k gate "
           "equivalents")
    said = "give --node-nm for their area"
    if node_nm is not None:
        least, most = report.memory_mm2(node_nm)
        said = f"{least:.4g} to {most:.4g} mm2 as macros in {node_nm} nm"
    if any(report.cycle_j):
        least, most = times(report.cycle_j, 1e9)     # mW per MHz
        yield (f"  power       {least:.3g} to {most:.3g} mW per MHz and {1e3 * report.leakage_w:.3g} mW of leakage, "
               f"without memories; assumed: {ACTIVITY[0]:.0%} to {ACTIVITY[1]:.0%} of the nets change in a cycle")
    if work is not None:
        yield from power_lines(work, mhz)
    yield f"  memories    {report.memories:,} with {report.memory_bits / 8192:,.4g} KiB: {said}"
    for name, (part, count) in sorted(report.modules.items(), key=lambda item: -item[1][0].area_um2 * item[1][1]):
        yield (f"  {count:4d} x {name}: {part.area_um2 / report.nand_um2:,.0f} gate equivalents"
               + (f", {part.memory_bits:,} bits of memory" if part.memory_bits else ""))
