"""Second opinions on the Verilog: Verilator, Yosys, slang and Icarus; each accepted warning is named in a file.

A waiver names a class of warnings and why they are accepted. How often each is met in the modules of a part is kept
too, by preset and core: more of them is a finding. `python -m fpga.synth.lint PRESET` writes the numbers anew.
"""

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from gen.base.tools import build_folder, environment, verilator, yosys
from gen.rtl import primitives
from gen.rtl.config import Preset, load, names
from gen.rtl.cores import CORES
from gen.rtl.verilog import Build, children, emit, interface

PORTS = "ports_of_parts.v"
WAIVERS = Path(__file__).parent / "waivers.toml"
WAIVED = Path(__file__).parent / "waived.toml"
RECORD = "python -m fpga.synth.lint"

Counts = dict[str, dict[str, int]]      # tool/name of a waiver -> part -> how often it is met in the part's modules


@dataclass(frozen=True)
class Finding:
    """A warning or error of a tool. `name` is its class, as Verilator calls it, or `warning`, `error`; `module`: whose
    file was read, empty where all were."""

    tool: str
    name: str
    text: str
    module: str = ""


@dataclass
class Waiver:
    """An accepted warning and how often it was met, in all and by module."""

    tool: str
    name: str
    match: str
    reason: str
    met: int = field(default=0, compare=False)
    modules: Counter[str] = field(default_factory=Counter, compare=False)

    def covers(self, finding: Finding) -> bool:
        return (
            finding.tool == self.tool
            and finding.name == self.name
            and re.search(self.match, finding.text) is not None
        )


def waivers(path: Path = WAIVERS) -> list[Waiver]:
    """The accepted warnings. Raises ValueError for an entry without tool, name, match and reason."""
    entries = tomllib.loads(path.read_text("utf-8")).get("waiver", [])
    wanted = {"tool", "name", "match", "reason"}
    for number, entry in enumerate(entries, 1):
        if set(entry) != wanted or not all(isinstance(v, str) and v.strip() for v in entry.values()):
            raise ValueError(
                f"{path.name}: waiver {number}: must have exactly {', '.join(sorted(wanted))}, "
                f"each a text; it has {', '.join(sorted(entry))}"
            )
        if entry["name"] == "error":
            raise ValueError(f"{path.name}: waiver {number}: an error cannot be waived")
    return [Waiver(**entry) for entry in entries]


def check(files: Iterable[Path], top: str, accepted: list[Waiver] | None = None) -> list[Finding]:
    """What the tools say about the Verilog and no waiver covers. Counts in `accepted` what each covered.

    Every file is read with the modules that it instantiates reduced to their ports: an array of 512 equal
    cells is checked as one cell and one array. Yosys and slang read everything together once more for the hierarchy.
    Icarus and slang are asked when they are installed (see `tools`)."""
    texts = {Path(file).stem: Path(file).read_text("utf-8") for file in sorted(files)}
    accepted = waivers() if accepted is None else accepted
    known = texts | {Path(file).stem: text for file, text in primitives.models(texts).items()}
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name, text in texts.items():
            (work / f"{name}.v").write_text(text, "utf-8")
            parts = sorted(children(text, known))
            (work / PORTS).write_text("".join(interface(known[part]) for part in parts), "utf-8")
            pair = [work / f"{name}.v"] + ([work / PORTS] if parts else [])
            findings += [replace(finding, module=name) for finding in (*_verilator(pair, name), *_icarus(pair, name))]
        others = sorted(known.keys() - texts.keys())
        (work / PORTS).write_text("".join(interface(known[part]) for part in others), "utf-8")
        findings += _yosys([work / f"{name}.v" for name in texts], top)
        findings += _slang([work / f"{name}.v" for name in texts] + [work / PORTS], top)
    left = []
    for finding in findings:
        waiver = next((w for w in accepted if w.covers(finding)), None)
        if waiver is None:
            left.append(finding)
        else:
            waiver.met += 1
            waiver.modules[finding.module] += 1
    return left


def waived() -> dict[str, dict[str, Counts]]:
    """How often each waiver may be met, by preset and core; of a preset that is not there, any number of times."""
    return tomllib.loads(WAIVED.read_text("utf-8"))


def excess(counts: Counts, allowed: Counts) -> list[Finding]:
    """A finding for each waiver that is met more often in a part than it was looked at."""
    findings = []
    for kind, parts in counts.items():
        tool, name = kind.split("/")
        for part, count in parts.items():
            if count > (most := allowed.get(kind, {}).get(part, 0)):
                findings.append(Finding(tool, name, f"{part}: {count} are waived, and {most} were looked at; look at "
                                                    f"the others, then {RECORD} PRESET"))
    return findings


def _counts(built: Build, accepted: Iterable[Waiver]) -> Counts:
    """By part: a module's class, whatever it is configured as; the tops and what only one module uses are parts too."""
    parts = {name: module["key"].split("(")[0] or name for name, module in built.metadata["modules"].items()}
    counts: dict[str, Counter[str]] = {}
    for waiver in accepted:
        for module, count in waiver.modules.items():
            if module:
                counts.setdefault(f"{waiver.tool}/{waiver.name}", Counter())[parts.get(module, module)] += count
    return {kind: dict(sorted(each.items())) for kind, each in sorted(counts.items())}


def of_presets(presets: Sequence[Preset], accepted: list[Waiver]) -> Iterator[tuple[str, list[Finding]]]:
    """Writes the Verilog of every core and checks it: (preset/core, findings), in order, a processor for each core.
    Counts in `accepted` as `check` does."""
    jobs = [(preset.name, core, config) for preset in presets for core, config in preset.cores.items()]
    with ProcessPoolExecutor(max(1, min(os.cpu_count() or 1, len(jobs)))) as pool:
        done = [pool.submit(_of_core, *item, accepted) for item in jobs]
        for (preset, core, _), item in zip(jobs, done, strict=True):
            left, met = item.result()
            for waiver, count in zip(accepted, met, strict=True):
                waiver.met += count
            yield f"{preset}/{core}", left


def _of_core(preset: str, core: str, config: object, accepted: list[Waiver]) -> tuple[list[Finding], list[int]]:
    """What is found, and how often each waiver was met, in a process of its own."""
    fresh = [Waiver(waiver.tool, waiver.name, waiver.match, waiver.reason) for waiver in accepted]
    built = emit(CORES[core].unit(config), f"hotrail_{core}", build_folder() / preset, preset=preset)
    left = check(built.files, built.top, fresh)
    counted = waived().get(preset)
    if counted is not None and config == load(preset).cores.get(core):
        left += excess(_counts(built, fresh), counted.get(core, {}))
    return left, [waiver.met for waiver in fresh]


def tools() -> dict[str, bool]:
    """The tools that will be asked."""
    return {"verilator": True, "yosys": True, "slang": find_spec("pyslang") is not None,
            "icarus": shutil.which("iverilog") is not None}


def _verilator(files: list[Path], top: str) -> list[Finding]:
    binary, _ = verilator()
    command = [str(binary), "--lint-only", "-Wall", "--quiet", "-O0", "--top-module", top, *map(str, files)]
    run = subprocess.run(
        command, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    findings = []
    for line in run.stdout.splitlines():
        if m := re.match(r"%Warning-(\w+): (.*)", line):
            if f"/{PORTS}:" in m[2]:
                continue  # a module without its body is of course not driven
            findings.append(Finding("verilator", m[1], _short(m[2])))
        elif line.startswith("%Warning:"):
            findings.append(Finding("verilator", "warning", _short(line)))
        elif line.startswith("%Error") and "Exiting due to" not in line:
            findings.append(Finding("verilator", "error", _short(line)))
    if run.returncode and not findings:
        findings.append(Finding("verilator", "error", f"ended with code {run.returncode}: {run.stdout[-300:]}"))
    return findings


def _yosys(files: list[Path], top: str) -> list[Finding]:
    # `check -assert` refuses several drivers, undriven wires that are used, and combinational loops.
    script = [f"read_verilog -lib {PORTS}", *(f"read_verilog {file.name}" for file in files)]
    script += [f"hierarchy -check -top {top}", "proc", "check -assert"]
    try:
        log = yosys(script, cwd=files[0].parent)
    except RuntimeError as error:
        return [Finding("yosys", "error", str(error))]
    # Summaries at the end repeat each warning ("Warnings: 3 unique messages, 3 total").
    return [
        Finding("yosys", "warning", line.removeprefix("Warning: "))
        for line in log.splitlines()
        if line.startswith("Warning: ")
    ]


def _slang(files: list[Path], top: str) -> list[Finding]:
    """Errors and warnings of every class that it knows."""
    if not tools()["slang"]:
        return []
    import pyslang

    manager = pyslang.SourceManager()
    options = pyslang.ast.CompilationOptions()
    options.topModules = {top}
    design = pyslang.ast.Compilation(pyslang.Bag([options]))
    for file in files:
        design.addSyntaxTree(pyslang.syntax.SyntaxTree.fromText(file.read_text("utf-8"), manager, file.name))
    engine, findings = pyslang.DiagnosticEngine(manager), []
    for item in design.getAllDiagnostics():
        place, line = manager.getFileName(item.location), manager.getLineNumber(item.location)
        name = "error" if item.isError() else re.sub(r"DiagCode\((\w+)\)", r"\1", str(item.code))
        module = "" if place == PORTS else place.removesuffix(".v")
        findings.append(Finding("slang", name, f"{place}:{line}: {engine.formatMessage(item)}", module))
    return findings


def _icarus(files: list[Path], top: str) -> list[Finding]:
    if not tools()["icarus"]:
        return []
    run = subprocess.run(
        ["iverilog", "-g2005", "-Wall", "-s", top, "-t", "null", *map(str, files)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    findings = []
    for line in run.stdout.splitlines():
        if line.strip():
            kind = "warning" if "warning" in line else "error"
            findings.append(Finding("icarus", kind, _short(line)))
    if run.returncode and not findings:
        findings.append(Finding("icarus", "error", f"ended with code {run.returncode}"))
    return findings


def _short(text: str) -> str:
    """Without the folder that the file happened to be in."""
    return re.sub(r"(/[^\s:]*/)([^/\s:]+\.v)", r"\2", text)


def _counted(preset: str) -> dict[str, Counts]:
    """How often each waiver is met in the cores of a preset. Raises SystemExit: a finding that none covers"""
    counted = {}
    with tempfile.TemporaryDirectory() as folder:
        for core, config in load(preset).cores.items():
            built = emit(CORES[core].unit(config), f"hotrail_{core}", Path(folder) / core, preset=preset)
            accepted = waivers()
            if left := check(built.files, built.top, accepted):
                raise SystemExit(f"{preset}/{core}: {left[0].tool} {left[0].name}: {left[0].text}")
            counted[core] = _counts(built, accepted)
    return counted


def main(presets: Sequence[str]) -> None:
    """Writes anew how often each waiver is met in these presets [all]. What is new has been looked at before."""
    counted = {preset: _counted(preset) for preset in presets or names()}
    counted = waived() | counted
    lines = ["# How often each waiver of waivers.toml is met in the modules of a part, by preset and core.",
             f"# Written by `{RECORD}`: more of them is a finding of `make lint`.", ""]
    for preset, cores in sorted(counted.items()):
        for core, kinds in cores.items():
            for kind, parts in kinds.items():
                lines += [f'[{preset}.{core}."{kind}"]', *(f'"{part}" = {count}' for part, count in parts.items()), ""]
    WAIVED.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=RECORD, description=main.__doc__)
    parser.add_argument("presets", nargs="*", help="(default: all)")
    main(parser.parse_args().presets)
