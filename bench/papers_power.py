"""Hotline table 7.4: area and power of the accelerator's memories by CACTI, which the thesis took them from, and by how
often hotrail's core asks them, counted in RTL; power of the logic of a smaller core by a standard-cell library and by
the changes of its nets (fpga.synth.power), counted in the same run.

Counted: lookups and cold rows per sample, of Criteo Kaggle's shape, on the simulated card. From the RTL: how many
accesses of a memory each of them is. CACTI's: area, energy per access, leakage with refresh, of 45 nm at 360 K, of
every kind of device and by four objectives. Assumed: samples per second, from the thesis' own rate to that of the RTL;
logic between them changes nothing, but its clock does.

Source: N. Muralimanohar et al.: CACTI 7 (github.com/HewlettPackard/cacti); the thesis has CACTI 6.0
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.data import needed
from bench.framework import LeftOut, Row, bench, figure
from bench.hotline_train import BATCHES, DEVICE, PRESET, Criteo, dealt, opened
from fpga.api.gpu import Times
from fpga.card.runs import Runs
from fpga.synth.cells import map_cells
from fpga.synth.power import Power
from gen.base.tools import build_folder
from gen.model.device import Device
from gen.rtl import toggles
from gen.rtl.config import load
from gen.rtl.cores import CORES
from gen.rtl.verilog import convert

MHZ, NODE_UM, KELVIN = 350, 0.045, 360
KINDS = ("itrs-hp", "itrs-lop", "itrs-lstp")        # of transistors: high performance, low operating, low standby power
OBJECTIVES = {"power": "0:100:0:0:0", "leakage": "0:0:100:0:0", "cycle": "0:0:0:100:0", "area": "0:0:0:0:100"}
LIBERTY = "nangate45_typ.lib"                       # Nangate's open cell library, typical: 1.1 V, 298 K
THESIS_RATE = 20.8 * 80e6 / 3600                    # samples per second: §1.2, an epoch of Terabyte in table 7.2
OPTIONS = """
-size (bytes) {size}
-block size (bytes) {word}
-associativity 1
-technology (u) {node}
-page size (bits) 8192
-burst length 1
-internal prefetch width 1
-Data array cell type - "{cell}"
-Data array peripheral type - "{kind}"
-output/input bus width {bits}
-operating temperature (K) {kelvin}
-cache type "ram"
-design objective (weight delay, dynamic power, leakage power, cycle time, area) {objective}
-deviate (delay, dynamic power, leakage power, cycle time, area) 100000:100000:100000:100000:100000
-Optimize ED or ED^2 (ED, ED^2, NONE): "NONE"
-Add ECC - "false"
-Print level (DETAILED, CONCISE) - "CONCISE"
"""


@dataclass(frozen=True)
class Memory:
    """Of table 7.4: so many banks of `size` bytes, `word` bytes wide; eDRAM or SRAM."""

    what: str
    banks: int
    size: int
    word: int
    edram: bool


#: The logger's bank has sets of four entries of 17 bits, of which CACTI, by whole bytes, gets eight.
MEMORIES = {"logger": Memory("8 MB of SRAM in 64 banks", 64, 128 << 10, 8, False),
            "inputs": Memory("10 MB of eDRAM", 1, 10 << 20, 64, True),
            "embeddings": Memory("16 MB of eDRAM", 1, 16 << 20, 64, True)}


@dataclass(frozen=True)
class Organisation:
    """One that CACTI found, all banks together: nanoseconds between accesses, joules per access, watts, mm2."""

    cycle_ns: float
    read_j: float
    write_j: float
    leakage_w: float
    area_mm2: float

    def watts(self, reads: float, writes: float) -> float:
        """At so many accesses per second."""
        return self.leakage_w + reads * self.read_j + writes * self.write_j


def organisations(cacti: Path, memory: Memory) -> list[Organisation]:
    """Of every kind and objective."""
    found: list[Organisation] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            for objective in OBJECTIVES.values():
                path = Path(folder) / f"{len(found)}.cfg"
                path.write_text((cacti.parent / "cache.cfg").read_text("utf-8") + OPTIONS.format(
                    size=memory.size, word=memory.word, bits=8 * memory.word, node=NODE_UM, kelvin=KELVIN, kind=kind,
                    cell="lp-dram" if memory.edram else kind, objective=objective), "utf-8")
                # It finds the constants of processes in its own folder.
                subprocess.run([cacti, "-infile", path], cwd=cacti.parent, check=True, capture_output=True)
                found.append(organisation(path.with_name(path.name + ".out").read_text("utf-8"), memory.banks))
    return found


def organisation(table: str, banks: int) -> Organisation:
    """Of the table that CACTI writes: names, and numbers of one bank."""
    names, numbers = ([each.strip() for each in line.split(",")] for line in table.strip().splitlines())
    of = dict(zip(names, numbers, strict=True))
    return Organisation(float(of["Random cycle time (ns)"]), 1e-9 * float(of["Dynamic read energy (nJ)"]),
                        1e-9 * float(of["Dynamic write energy (nJ)"]),
                        1e-3 * banks * float(of["Standby leakage per bank(mW)"]), banks * float(of["Area (mm2)"]))


@dataclass(frozen=True)
class Counted:
    """Of a run in RTL: lookups and cold rows per sample, the share of gathered samples, samples per second."""

    lookups: float
    rows: float
    gathered: float
    rate: float
    beats: int

    def accesses(self) -> dict[str, tuple[float, float]]:
        """(reads, writes) of each memory per sample. A gathered sample's beats go through the input buffer once more,
        cold rows marked. A row lands, is sent, read for its update, written, and read for its write."""
        through = self.beats * (1 + self.gathered)
        return {"logger": (self.lookups, 0.0), "inputs": (through, through),
                "embeddings": (3 * self.rows, 2 * self.rows)}


def counted() -> Counted:
    """Of TRAIN on the simulated card, Criteo Kaggle's shape, ideal memory."""
    config = load(PRESET).cores["hotline"]
    made = Criteo(config, 2 * BATCHES)
    with opened("dram", "ideal") as card:
        runs = Runs(card, "hotline", config.words)
        made.build(runs)
        _, once, twice = (dealt(runs, made, count * made.batch, made.batch, Times(0, 0), load=count == 1).counters
                          for count in (1, BATCHES, 2 * BATCHES))
    of = {name: twice[name] - once[name] for name in ("samples", "accesses", "dma_rd", "popular", "cycles")}
    samples = of["samples"]
    return Counted(of["accesses"] / samples, of["dma_rd"] / samples, 1 - of["popular"] / samples,
                   samples / of["cycles"] * 1e6 * Device.load(DEVICE).kernel_mhz, made.layout.sample_beats)


@bench("papers_power")
def memories() -> Iterator[Row]:
    """Hotline table 7.4: area and power of its memories by CACTI and by accesses counted in RTL."""
    if (tool := shutil.which("cacti")) is None:
        raise LeftOut("needs cacti, built in its own folder (github.com/HewlettPackard/cacti), on the PATH")
    found = {part: organisations(Path(tool).resolve(), memory) for part, memory in MEMORIES.items()}
    least_mm2 = {part: min(each.area_mm2 for each in of) for part, of in found.items()}
    for part, memory in MEMORIES.items():
        yield figure(f"papers.hotline.power.area.{part}", f"{memory.what}, 45 nm, CACTI 7: the least area of all kinds "
                     "of devices and objectives", round(least_mm2[part], 1), "mm2")
    yield figure("papers.hotline.power.area", "All three memories: the least area", round(sum(least_mm2.values()), 1),
                 "mm2")
    run = counted()
    what = "TRAIN of Criteo Kaggle's shape, 512 k hot rows, counted in RTL"
    yield figure("papers.hotline.power.lookups", f"{what}: lookups of the logger per sample", round(run.lookups, 2), "")
    yield figure("papers.hotline.power.rows", f"{what}: cold rows that go through the embedding buffer per sample",
                 round(run.rows, 2), "rows")
    for id, samples, said in (("thesis", THESIS_RATE, "the thesis' 20.8 epochs per hour of Terabyte"),
                              ("rtl", run.rate, f"{run.rate / 1e6:.1f} M samples per second, which the RTL takes")):
        all_least, all_most = 0.0, 0.0
        for part, memory in MEMORIES.items():
            reads, writes = (samples * each for each in run.accesses()[part])
            watts = [each.watts(reads, writes) for each in found[part] if each.cycle_ns * MHZ <= 1e3]
            all_least, all_most = all_least + min(watts), all_most + max(watts)
            for bound, value in (("least", min(watts)), ("most", max(watts))):
                yield figure(f"papers.hotline.power.{id}.{part}.{bound}", f"{memory.what}, CACTI 7, of those that take "
                             f"an access per cycle of {MHZ} MHz, at {said}: the {bound} power", float(f"{value:.3g}"),
                             "W")
        for bound, value in (("least", all_least), ("most", all_most)):
            yield figure(f"papers.hotline.power.{id}.{bound}", f"All three memories at {said}: the {bound} power",
                         float(f"{value:.3g}"), "W")


def worked(liberty: Path) -> tuple[Power, Counted]:
    """Of the core's cells, and the run whose changes they are of."""
    texts, metadata = convert(CORES["hotline"].unit(load(PRESET).cores["hotline"]), "hotrail_hotline")
    mapped = map_cells(texts, metadata["top"], liberty, cache=build_folder() / "synth")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "toggles"
        os.environ["HOTRAIL_TOGGLES"] = str(file)
        try:
            run = counted()
        finally:
            del os.environ["HOTRAIL_TOGGLES"]
        return mapped.power(toggles.changes([file])), run


@bench("papers_logic")
def logic() -> Iterator[Row]:
    """Hotline table 7.4: power of the logic of hotrail's smaller core by cells of 45 nm and changes counted in RTL."""
    work, run = worked(needed(LIBERTY))
    what, id = "Logic of hotline_fpga, 16 lookup engines, in Nangate's 45 nm", "papers.hotline.logic"
    yield figure(f"{id}.changes", f"{what}, TRAIN of Criteo Kaggle's shape: signals that change in a cycle",
                 round(100 * work.rate, 2), "%")
    yield figure(f"{id}.leakage", f"{what}: leakage at 298 K", float(f"{work.leakage_w:.3g}"), "W")
    for part, joules, said in (("clock", work.clock_j, "clock pins of all registers"),
                               ("counted", work.counted_j, "nets whose changes were counted"),
                               ("others", work.others_j, "other nets, as often as those of their module")):
        for bound, value in zip(("least", "most"), joules, strict=True):
            yield figure(f"{id}.{part}.{bound}", f"{what}, per MHz: {said}, {bound}", float(f"{1e9 * value:.3g}"),
                         "mW/MHz")
    rate = run.rate * MHZ / Device.load(DEVICE).kernel_mhz
    for name, busy, said in (("thesis", THESIS_RATE / rate, "the thesis' 20.8 epochs per hour of Terabyte"),
                             ("rtl", 1.0, f"{rate / 1e6:.1f} M samples per second, which the RTL takes")):
        for bound, value in zip(("least", "most"), work.watts(MHZ, busy), strict=True):
            yield figure(f"{id}.{name}.{bound}", f"{what}, {MHZ} MHz, 1.1 V, at {said}: the {bound} power",
                         float(f"{value:.3g}"), "W")
