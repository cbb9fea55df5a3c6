"""The gate before packaging: does the kernel fit the shell, and is its logic shallow enough for the clock asked.

The depth rule of this project is 6 LUT levels and 1 carry chain between registers (fpga.synth.depth), at 250 MHz: on
this part, of speed grade -2LV, they are about 3.2 ns, which fill a period of 300 MHz and leave a fifth of 250 MHz's for
fan-out and distance. A level is an equal share of the period: a slower clock holds more of them in proportion, rounded
down, 7 levels at 200 MHz; a faster one holds no fewer, at one's own risk.

Area and depth are Yosys' for UltraScale+: not what Vivado will make of it, and no promise that a kernel routes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fpga.synth import failfast
from fpga.synth.depth import MAX_CHAINS, MAX_LEVELS, Depth
from fpga.synth.map import Report, synthesise
from fpga.synth.peers import peers
from fpga.synth.timing import report as timings
from gen.base.tools import build_folder
from gen.model.platform import DEFAULT, RESOURCES, Platform, find


def allowed(limit: int, clock_mhz: int, default_mhz: int = Platform.load().clocks_mhz[0]) -> int:
    """Levels or chains between registers at a clock, from the limit at the platform's default one.

    >>> allowed(6, 300), allowed(6, 250), allowed(6, 200), allowed(1, 200)
    (6, 6, 7, 1)
    """
    return max(limit, limit * default_mhz // clock_mhz)


class Logic(Protocol):
    """What is measured: a kernel, or F2's custom logic. name: of its top module; core: in it."""

    @property
    def name(self) -> str: ...
    @property
    def core(self) -> str: ...


@dataclass(frozen=True)
class Gate:
    """What was measured of a kernel and what it misses. `used`: by all instances; `levels`, `chains`, `ports`: the
    deepest path, the one with the most carry chains, the deepest one at the kernel's ports; `misses`, `notes`: a
    sentence each, misses refuse the kernel, what the synthesis had to say is among the notes."""

    kernel: str
    core: str
    clock_mhz: int
    instances: int
    used: Mapping[str, float]
    levels: Depth
    chains: Depth
    ports: Depth
    misses: tuple[str, ...]
    notes: tuple[str, ...]
    platform: Platform = field(default_factory=Platform.load)

    @property
    def passed(self) -> bool:
        return not self.misses

    def allowed(self, limit: int) -> int:
        return allowed(limit, self.clock_mhz, self.platform.clocks_mhz[0])

    def as_dict(self) -> dict[str, Any]:
        """For package.json."""
        known: dict[str, Any] = {}
        for name, budget in self.platform.shells.items():
            known[name] = budget.missing or {key: round(100 * self.used[key] / limit, 1)
                                             for key, limit in budget.resources.items()}
        return {
            "passed": self.passed, "misses": list(self.misses), "notes": list(self.notes), "used": dict(self.used),
            "percent": known, "levels": self.levels.levels, "levels_allowed": self.allowed(MAX_LEVELS),
            "path": _ends(self.levels), "chains": self.chains.chains,
            "chains_allowed": self.allowed(MAX_CHAINS), "port_levels": self.ports.levels,
            "port_chains": self.ports.chains,
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows for people: every resource against every budget, and SCRec's core of the same kind."""
        known = [budget for budget in self.platform.shells.values() if not budget.missing]
        theirs = peers(self.core) if self.platform.name == DEFAULT else {}
        head = ["", f"{self.instances} x {self.kernel}" if self.instances > 1 else self.kernel,
                *(f"of the {budget.about}" for budget in known), *theirs]
        rows = []
        for key, name in RESOURCES.items():
            row = [name, f"{self.used[key]:,.10g}"]
            for budget in known:
                limit = budget.resources[key]
                row.append(f"{100 * self.used[key] / limit:.1f} % of {limit:,}")
            rows.append(row + [f"{other[key]:,}" if key in other else "not stated" for other in theirs.values()])
        return head, rows


def measure(kernel: Logic, texts: Mapping[str, str], say: Callable[[str], None] = lambda line: None) -> Report:
    """Area and depth of a kernel's top; minutes for what is not in the cache, of which `say` is told."""
    return synthesise(texts, kernel.name, cache=build_folder() / "synth", say=say)


def judge(kernel: Logic, report: Report, *, clock_mhz: int, instances: int = 1,
          platform: "str | Platform" = "") -> Gate:
    """Holds a report against a platform's shell, default: the standard one, and the depth rule at a clock. Where no
    budget is known of the shell it says so, and takes the first that is. What is over AMD's guidelines is noted, and
    the worst slack where `hotrail timing` has computed it.

    Raises ValueError: the platform; ConfigError: its file"""
    board, shell = find(platform)
    used = {key: value * instances for key, value in report.total.as_dict().items() if key in RESOURCES}
    what = f"{instances} x {kernel.name}" if instances > 1 else kernel.name
    misses, notes = [], list(report.notes)
    if shell.missing:
        notes.append(f"{what}: held against the {board.budgeted.about}'s budget, as the {shell.about}'s is not known")
        shell = board.budgeted
    for key, limit in shell.resources.items():
        percent = 100 * used[key] / limit
        if used[key] > limit:
            misses.append(f"{what}: {used[key]:,.10g} {RESOURCES[key]}, {used[key] - limit:,.10g} more than the "
                          f"{shell.about}'s {limit:,} ({percent:.1f} %)")
    notes += [f"{what}: over AMD's guideline, with the platform's logic: {line}"
              for line in failfast.of_area(report, instances, board) if line.over]
    if board.name == DEFAULT and (timed := timings.known(report)):
        period = 1000 / clock_mhz
        notes.append(f"{kernel.name}: worst slack {timed.slack_ns(period):+.2f} ns at {clock_mhz} MHz, estimated; "
                     f"{timed.paths[0].steps[0].name} to {timed.paths[0].steps[-1].name}")
    levels, chains = (allowed(most, clock_mhz, board.clocks_mhz[0]) for most in (MAX_LEVELS, MAX_CHAINS))
    deepest, chained, ports = report.worst, report.most_chains, report.boundary
    if deepest.levels > levels:
        misses.append(f"{kernel.name}: {deepest.levels} LUT levels between registers, {deepest.levels - levels} more "
                      f"than {clock_mhz} MHz allow ({levels}), {_between(deepest)}")
    if chained.chains > chains:
        misses.append(f"{kernel.name}: {chained.chains} carry chains between registers, {chained.chains - chains} more "
                      f"than {clock_mhz} MHz allow ({chains}), {_between(chained)}")
    if ports.levels > levels or ports.chains > chains:
        misses.append(f"{kernel.name}: {ports.levels} LUT levels and {ports.chains} carry chains at its ports, where "
                      f"{clock_mhz} MHz allow {levels} and {chains}, {' to '.join(ports.path)}")
    return Gate(kernel.name, kernel.core, clock_mhz, instances, used, deepest, chained, ports, tuple(misses),
                tuple(notes), board)


def _ends(depth: Depth) -> list[str]:
    """Module, start and end of a path. Where Yosys made up the start's name the signal behind it is said."""
    if len(depth.path) < 3:
        return list(depth.path)
    where, start, *rest = depth.path
    if start.startswith("$") and len(rest) > 1:
        start = rest[0]
    return [where.removeprefix("in "), start, depth.path[-1]]


def _between(depth: Depth) -> str:
    ends = _ends(depth)
    return f"from {ends[1]} to {ends[2]} in {ends[0]}" if len(ends) == 3 else " to ".join(ends)
