"""What the cores cost in the part and how deep their logic is, by Yosys."""

from collections.abc import Iterator

from bench.framework import Row, at_least, at_most, bench, figure
from fpga.synth.depth import MAX_CHAINS, MAX_LEVELS
from fpga.synth.failfast import left, of_area
from fpga.synth.map import SHELL, Report, synthesise
from gen.base.tools import build_folder
from gen.rtl import config
from gen.rtl.cores import CORES
from gen.rtl.verilog import convert

SHIPPING = {"emb": "smartssd", "mlp": "smartssd", "hotline": "hotline_fpga", "tt": "smartssd"}     # core: preset
HALF = "smartssd_half"      # whose EMB core has half the DSP slices in its TT unit
LUTS = {"emb": 165_000, "mlp": 165_000, "emb.half": 170_000}    # that a core may take, below AMD's guideline

# What a multiply-accumulate of the TT unit is made of: cells, exponents, and what makes sums operands or words.
ARITHMETIC = ("GroupDot", "JointExponent", "Regroup", "Rounder", "Aligner")

UNITS = {"lut": "LUT", "ff": "FF", "dsp": "DSP48E2", "bram36": "BRAM36", "uram": "URAM288"}


def report(preset: str, core: str) -> Report:
    """The mapped core of a preset; what was mapped before comes from the cache."""
    chosen = config.load(preset).cores[core]
    texts, metadata = convert(CORES[core].unit(chosen), f"hotrail_{core}")
    return synthesise(texts, metadata["top"], cache=build_folder() / "synth")


def _resources(name: str, what: str, report: Report) -> Iterator[Row]:
    """What a core takes, against its own target or what AMD's guideline leaves it."""
    for key, value in report.total.as_dict().items():
        if key in SHELL:
            own = LUTS.get(name) if key == "lut" else None
            yield at_most(f"area.{name}.{key}", what if own else f"{what}; what AMD's guideline leaves it", value,
                          UNITS[key], own or left(key))


@bench("area")
def area() -> Iterator[Row]:
    """Area of the shipping cores against the standard shell, and logic depth of every core."""
    reports = {(preset, core): report(preset, core) for core, preset in SHIPPING.items()}
    shipping = reports["smartssd", "tt"]
    for core, what in (("emb", "EMB core"), ("mlp", "MLP core"), ("hotline", "Hotline core"),
                       ("tt", "TT unit by itself")):
        preset = SHIPPING[core]
        yield from _resources(core, f"{what} of {preset}", reports[preset, core])
    half = report(HALF, "emb")
    yield from _resources("emb.half", f"EMB core of {HALF}", half)
    for line in of_area(half):
        if line.key == "blocks":
            yield at_most("area.emb.half.blocks", f"EMB core of {HALF}: {line.name}", round(line.value, 1), "%",
                          line.guide)
    for preset, core in (*reports, *(("tiny", core) for core in SHIPPING), ("screc", "serial")):
        known = reports.get((preset, core)) or report(preset, core)
        name = core if (preset, core) in reports else f"{core}.{preset}"
        where = known.worst.path[0].removeprefix("in ") if known.worst.path else "no logic"
        yield at_most(
            f"depth.lut_levels.{name}",
            f"longest path, in {where}",
            known.worst.levels,
            "LUT levels",
            MAX_LEVELS,
        )
        yield at_most(
            f"depth.carry_chains.{name}",
            "most carry chains on a path",
            known.most_chains.chains,
            "chains",
            MAX_CHAINS,
        )
        if core == "serial":
            for key in ("lut", "dsp", "uram", "bram36"):
                yield figure(
                    f"area.{core}.{key}",
                    "the baseline, SCRec's array",
                    known.total.as_dict()[key],
                    UNITS[key],
                )
    cells = [(n, a, c) for n, (a, c) in shipping.modules.items() if n.startswith(ARITHMETIC)]
    macs = config.load("smartssd").cores["tt"].macs
    if cells:
        luts = sum(a.lut * c for _, a, c in cells)
        dsps = sum(a.dsp * c for _, a, c in cells)
        yield at_most(
            "mac.lut",
            "a multiply-accumulate of smartssd, registers, rounding and groups' exponents included",
            round(luts / macs, 1),
            "LUT",
            150,
        )
        yield at_most("mac.dsp", "the same", round(dsps / macs, 3), "DSP48E2", 2)
        yield at_least("area.tt.macs", "multiply-accumulates per cycle", macs, "MAC", 512)
