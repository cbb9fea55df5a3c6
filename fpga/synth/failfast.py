"""AMD's guidelines for a core in a card's user region, with the platform's own logic in it.

They are the lines of Vivado's report_failfast that a mapped netlist answers; the guidelines are in guidelines.toml, the
region's sites in the platform's file. A resource whose sites are not known there is not judged. Above a
line Vivado usually needs more time, more strategies, or does not close timing; none of them is a limit. Vivado puts
two small LUTs into one where it can, and Yosys counts both.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fpga.synth.map import Report
from fpga.synth.timing.delays import Family
from fpga.synth.timing.netlist import Netlist
from gen.model.platform import DEFAULT, Platform

_FILE = Path(__file__).parent / "guidelines.toml"


@dataclass(frozen=True)
class Line:
    """A guideline. value: per cent of the region with the platform's logic, a ratio, or a count, as the guide is;
    used: what the core itself takes, of `there`; both 0 for a ratio or count."""

    key: str
    name: str
    value: float
    guide: float
    used: float = 0.0
    there: float = 0.0

    @property
    def over(self) -> bool:
        return self.value > self.guide

    @property
    def share(self) -> bool:
        return self.there > 0 or self.key == "blocks"

    def __str__(self) -> str:
        unit = " %" if self.share else ""
        took = f", {self.used:,.10g} of {self.there:,} by the core" if self.there else ""
        return f"{self.name}: {self.value:,.4g}{unit}, guideline {self.guide:g}{unit}{took}"


@cache
def guidelines() -> dict[str, Any]:
    """Of each its name, the guide, and the number from which on it holds, where it has one."""
    return {key: line for key, line in tomllib.loads(_FILE.read_text("utf-8")).items() if key != "source"}


def left(key: str, platform: "str | Platform" = DEFAULT) -> int:
    """What the guideline of a resource leaves a core beside the platform's own logic."""
    sites = Platform.load(platform).sites[key]
    return int(sites.there * guidelines()[key]["guide"] / 100 - sites.platform)


def _shares(used: Mapping[str, float], platform: Platform) -> list[Line]:
    known = guidelines()
    return [Line(key, known[key]["name"], 100 * (amount + sites.platform) / sites.there, known[key]["guide"], amount,
                 sites.there) for key, amount in used.items() if (sites := platform.sites.get(key))]


def of_area(report: Report, instances: int = 1, platform: "str | Platform" = DEFAULT) -> list[Line]:
    """The lines that the resources of a report answer, with so many instances of the core."""
    used = {key: value * instances for key, value in report.total.as_dict().items()}
    used["carry8"] = used.pop("carry4") / 2
    lines = _shares({key: used[key] for key in ("lut", "ff", "lutram", "carry8", "bram36", "uram", "dsp")},
                    Platform.load(platform))
    blocks = guidelines()["blocks"]
    shares = [line.value for line in lines if line.key in ("bram36", "uram", "dsp")]
    mean = [Line("blocks", blocks["name"], sum(shares) / 3, blocks["guide"])] if len(shares) == 3 else []
    return [*lines, *mean]


def of_netlist(netlist: Netlist, platform: "str | Platform" = DEFAULT) -> list[Line]:
    """The lines that ask for the flat netlist of one instance."""
    known = guidelines()
    controls = np.stack([netlist.rows["controls"][name] for name in ("clock_net", "enable_net", "reset_net")])
    muxf7 = int((netlist.kind == netlist.kinds.index("MUXF7")).sum()) if "MUXF7" in netlist.kinds else 0
    fanout, driver = netlist.fanout(), netlist.driver()
    large = (fanout > known["large_nets"]["loads"]) & (driver >= 0)
    return [
        *_shares({"muxf7": muxf7, "control_sets": len(np.unique(controls, axis=1).T)},
                 Platform.load(platform)),
        Line("fanout", known["fanout"]["name"], _average_fanout(netlist, known["fanout"]["cells"]),
             known["fanout"]["guide"]),
        Line("large_nets", known["large_nets"]["name"], int((netlist.family[driver[large]] != Family.FF).sum()),
             known["large_nets"]["guide"]),
    ]


def _average_fanout(netlist: Netlist, cells: int) -> float:
    """The largest mean number of loads per driven net of an instance with its parts, of those above so many cells; 0
    where none is."""
    fanout = netlist.fanout()
    drives = netlist.rows["drives"]
    of_cell, pins = (np.bincount(drives["cell"], weights, len(netlist.family))
                     for weights in (fanout[drives["net"]], (fanout[drives["net"]] > 0).astype(float)))
    bounds = [first for *_, first, _ in netlist.instances] + [len(netlist.family)]
    own = {path: (b - a, of_cell[a:b].sum(), pins[a:b].sum())
           for (path, *_), a, b in zip(netlist.instances, bounds, bounds[1:])}
    total: dict[str, np.ndarray] = {}
    for path, counts in own.items():
        above = path.split(".") if path else []
        for depth in range(len(above) + 1):
            name = ".".join(above[:depth])
            if name in own:
                total[name] = total.get(name, np.zeros(3)) + counts
    return max((float(loads / driven) for count, loads, driven in total.values() if count > cells and driven),
               default=0.0)


def lines(found: list[Line]) -> Iterator[str]:
    """For the terminal."""
    for line in found:
        yield f"{'OVER  ' if line.over else '      '}{line}"
    over = sum(line.over for line in found)
    yield f"{over} of {len(found)} over their guidelines" if over else f"all {len(found)} within their guidelines"
