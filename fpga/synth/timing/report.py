"""The timing of a core at speed grade -2LV: slack, the worst paths by name, and where they lie.

Estimated from the mapped netlist: delays of cells and nets (`delays`), registers packed into blocks (`packing`), a
coarse placement on the card's user region (`place`) and static timing analysis (`sta`). docs/timing.md says what is
not modelled.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fpga.synth.map import LUT_COST, Report
from fpga.synth.timing.delays import clock_ps
from fpga.synth.timing.netlist import Netlist, flat
from fpga.synth.timing.place import Design, place
from fpga.synth.timing.refine import filled, refined
from fpga.synth.timing.sites import Window
from fpga.synth.timing.sta import Path as Route
from fpga.synth.timing.sta import Step, Times
from gen.base import kept
from gen.model.platform import region

PERIODS_NS = (4.0, 3.333)
PATHS = 10
FILLS = 0.75, 0.65, 0.55     # of the slices of windows: the best placement of these counts
COPYING_AGAIN = 2       # times that registers are copied after placement, as long as that helps
_SEARCHED = 20_000      # captured registers among which the worst paths of different names are looked for

Say = Callable[[str], None]


@dataclass(frozen=True)
class NamedStep:
    """A cell of a path: name, type, slice column and row; the net to it with its sinks, and its own delay, in ps."""

    name: str
    kind: str
    x: float
    y: float
    fanout: int
    net_ps: float
    cell_ps: float


NamedPath = Route[NamedStep]


@dataclass(frozen=True)
class Timing:
    """The longest path, what it would be with all cells in one place, and the worst paths of different names; ends,
    failing: captured pins, and how many of them have a negative slack at each of PERIODS_NS; packed: registers taken
    into blocks; copies: cells added; window: where the core was placed; crowded: share of the logic that is more than
    its bin of slices holds; density: fill of these bins by column and row."""

    core: str
    worst_ps: float
    floor_ps: float
    paths: tuple[NamedPath, ...]
    cells: int
    nets: int
    ends: int
    failing: tuple[int, ...]
    packed: int
    copies: int
    window: Window
    crowded: float
    density: tuple[tuple[float, ...], ...]

    def slack_ns(self, period_ns: float) -> float:
        return round(period_ns - (self.worst_ps + clock_ps()) / 1000, 3)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"clock_ps": clock_ps(), "slack_ns": {str(ns): self.slack_ns(ns) for ns in PERIODS_NS}}


def _from_dict(record: dict[str, Any]) -> Timing:
    paths = tuple(NamedPath(tuple(NamedStep(**step) for step in path["steps"])) for path in record["paths"])
    names = "core", "worst_ps", "floor_ps", "cells", "nets", "ends", "packed", "copies", "crowded"
    left = {name: record[name] for name in names}
    return Timing(**left, paths=paths, failing=tuple(record["failing"]), window=Window(**record["window"]),
                  density=tuple(map(tuple, record["density"])))


def netlist_of(report: Report) -> Netlist:
    """The flat netlist of a mapped core, from the kept netlists of its modules.

    Raises RuntimeError: one of them is not kept any more, or could not be"""
    def module(name: str) -> Any:
        netlist = kept.read(report.files[name])
        if netlist is None:
            raise RuntimeError(f"{report.files[name]} is missing or changed: map the core again (hotrail synth), in a "
                               "folder that can be written")
        return netlist

    return flat(report.core, dict.fromkeys(report.files, 0), module)


def _place_of(report: Report) -> Path:
    """The file that keeps a core's timing: named by its mapped netlists and by all that decides about their
    timing."""
    own = Path(__file__).parent
    decides = [path.read_text("utf-8") for path in sorted([*own.glob("*.py"), *own.glob("delays.toml")])
               if path.name != "calibrate.py"]
    content = json.dumps([sorted(path.name for path in report.files.values()), region(), LUT_COST, decides])
    top = report.files[report.core]
    return top.with_name(f"{report.core}-{hashlib.sha256(content.encode()).hexdigest()[:16]}.timed")


def known(report: Report) -> Timing | None:
    """What was computed of these netlists before."""
    record = kept.read(_place_of(report)) if report.files else None
    try:
        return _from_dict(record) if record else None
    except (LookupError, TypeError):    # of another version: it is made again
        return None


def timing(report: Report, say: Say = lambda line: None) -> Timing:
    """The timing of a mapped core: minutes for the shipping ones, then from build/synth.

    Raises ValueError: a combinational loop, a cell without delays, or a core without a path between registers;
    RuntimeError: a mapped module is not kept any more"""
    timed = known(report)
    if timed is None:
        timed = _timed(report, say)
        kept.write(_place_of(report), timed.as_dict())
    return timed


def _timed(report: Report, say: Say) -> Timing:
    netlist = netlist_of(report)
    say(f"{report.core}: {len(netlist.family):,} cells, {netlist.nets:,} nets")
    design = Design.of(netlist)
    if not len(design.graph.ends["net"]) or not len(design.graph.starts["net"]):
        raise ValueError(f"{report.core} has no path from a register to a register")
    tried = []
    for number, share in enumerate(FILLS, 1):
        say(f"window {number} of {len(FILLS)}")
        tried.append(_placed(design, share, say))
    design, at, window = min(tried, key=lambda one: float(one[0].times(one[1]).ends.max()))
    times = design.times(at)
    fill, crowded = filled(design.objects, at, window)
    density = tuple(tuple(round(float(value), 3) for value in column) for column in fill)
    timed = times.ends[np.isfinite(times.ends)]
    failing = tuple(int((timed + clock_ps() > 1000 * ns).sum()) for ns in PERIODS_NS)
    floor = float(design.times(np.zeros_like(at)).ends.max())
    paths = tuple(_named(design, times, at))
    return Timing(report.core, round(float(timed.max()), 1), round(floor, 1), paths, len(netlist.family), netlist.nets,
                  len(timed), failing, design.packed.taken, len(design.netlist.copies), window, crowded, density)


def _placed(design: Design, fill: float, say: Say) -> tuple[Design, np.ndarray, Window]:
    """The design with copies of registers, columns and rows of its objects, and their window."""
    design, at, window = place(design, fill, say)
    design, at = design.loosened(at)
    at = refined(design, at, window, say)
    for _ in range(COPYING_AGAIN):
        copied, to = design.with_copies(at)
        to = refined(copied, to, window, say)
        if copied.times(to).ends.max() >= design.times(at).ends.max():
            break
        design, at = copied, to
    return design, at, window


def _named(design: Design, times: Times, at: np.ndarray) -> Iterator[NamedPath]:
    """The worst paths whose ends differ in more than the numbers in their names; `at`: columns and rows of objects."""
    netlist, graph = design.netlist, design.graph
    seen: set[str] = set()

    def step(route: Route[Step], number: int) -> NamedStep:
        one = route.steps[number]
        x, y = (round(float(side), 1) for side in at[:, design.objects.of[graph.packed.host[one.cell]]])
        return NamedStep(netlist.cell_name(one.cell), netlist.kinds[netlist.kind[one.cell]], x, y, one.fanout,
                         round(one.net_ps, 1), round(one.cell_ps, 1))

    for number, route in enumerate(graph.worst(times)):
        ends = "  ".join(netlist.cell_name(route.steps[k].cell) for k in (0, -1))
        key = re.sub(r"\d+", "#", ends)
        if key not in seen:
            seen.add(key)
            yield NamedPath(tuple(step(route, k) for k in range(len(route.steps))))
        if len(seen) == PATHS or number == _SEARCHED:
            return


def lines(timed: Timing) -> Iterator[str]:
    """For the terminal."""
    yield (f"{timed.core}: {timed.cells:,} cells, {timed.packed:,} registers packed into blocks, {timed.copies:,} "
           f"drivers replicated, {timed.ends:,} endpoints timed")
    yield f"  longest path {timed.worst_ps:,.0f} ps; {timed.floor_ps:,.0f} ps if all cells lay in one place"
    for ns, failing in zip(PERIODS_NS, timed.failing):
        yield f"  slack at {ns:g} ns: {timed.slack_ns(ns):+.3f} ns, {failing:,} endpoints below 0"
    yield (f"  placed on {timed.window.width:.0f} x {timed.window.height:.0f} of {region()['columns']} x "
           f"{region()['rows']} slices; {100 * timed.crowded:.1f} % of the logic is more than its bin of slices holds")
    for number, path in enumerate(timed.paths, 1):
        first, last = path.steps[0], path.steps[-1]
        yield (f"  {number:2d}. {path.ps:,.0f} ps, {100 * path.wire_ps / path.ps:.0f} % wire, "
               f"{len(path.steps) - 2} cells between: {first.name} ({first.kind}) to {last.name} ({last.kind})")
        yield "      " + ", ".join(f"{step.kind} {step.net_ps:.0f}/{step.fanout}+{step.cell_ps:.0f}"
                                   for step in path.steps)
