"""Static timing analysis over arrays: the latest arrival at every net, and the paths that are worst.

Nets are nodes, arcs through cells are edges; a net's delay depends on where its driver and its sink are. Nets are
sorted by their level once, then every level is one step over arrays. Only paths from register to register are timed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fpga.synth.timing.delays import Sink, delay, local, net
from fpga.synth.timing.netlist import Netlist
from fpga.synth.timing.packing import Packed

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Step:
    """A cell of a path, the net to it and its own delay, in ps; the first has no net, the last one's delay is its
    set-up."""

    cell: int
    net_ps: float
    cell_ps: float
    fanout: int


class Delayed(Protocol):
    """What a path adds up: the net to a cell and the cell."""

    @property
    def net_ps(self) -> float: ...
    @property
    def cell_ps(self) -> float: ...


_S = TypeVar("_S", bound=Delayed)


@dataclass(frozen=True)
class Path(Generic[_S]):
    """From a register to a register."""

    steps: tuple[_S, ...]

    @property
    def ps(self) -> float:
        return sum(step.net_ps + step.cell_ps for step in self.steps)

    @property
    def wire_ps(self) -> float:
        return sum(step.net_ps for step in self.steps)


@dataclass(frozen=True)
class Times:
    """In ps. arrival: latest at the driver of each net, -inf where no register reaches it; ends: of each end, with
    its net and set-up; tail: longest way from each net's driver to an end; the nets' delays of arcs and of ends."""

    arrival: Reals
    tail: Reals
    ends: Reals
    through_net: Reals
    end_net: Reals


class Graph:
    """The arcs of a netlist in the order of their levels.

    Raises ValueError: a combinational loop"""

    def __init__(self, netlist: Netlist, packed: Packed) -> None:
        self.packed, self.nets = packed, netlist.nets
        self.fanout, self.family = netlist.fanout(), netlist.family
        driver = netlist.driver()
        self.driver = np.where(driver >= 0, packed.host[driver], -1)
        self.starts, self.ends = packed.starts, packed.ends
        level = self._levels()
        order = np.argsort(level[packed.through["to_net"]], kind="stable")
        self.through = {name: column[order] for name, column in packed.through.items()}
        levels = level[self.through["to_net"]]
        self.bounds = np.searchsorted(levels, np.arange(1, int(level.max(initial=0)) + 2))
        self._by_target = np.argsort(self.through["to_net"], kind="stable")
        self._first = np.searchsorted(self.through["to_net"][self._by_target], np.arange(self.nets + 1))
        by_ps = np.argsort(self.starts["ps"], kind="stable")
        self._start = np.full(self.nets, -1, np.int64)
        self._start[self.starts["net"][by_ps]] = by_ps      # the slowest of a net's

    def _levels(self) -> Ints:
        arcs = self.packed.through
        order = np.argsort(arcs["net"], kind="stable")
        targets = arcs["to_net"][order]
        first = np.searchsorted(arcs["net"][order], np.arange(self.nets + 1))
        waiting = np.bincount(arcs["to_net"], minlength=self.nets)
        level = np.zeros(self.nets, np.int64)
        ready, now, done = np.nonzero(waiting == 0)[0], 0, 0
        while len(ready):
            done += len(ready)
            now += 1
            counts = first[ready + 1] - first[ready]
            at = np.repeat(first[ready] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
            reached, times = np.unique(targets[at], return_counts=True)
            waiting[reached] -= times
            ready = reached[waiting[reached] == 0]
            level[ready] = now
        if done < self.nets:
            raise ValueError(f"{self.nets - done} nets lie on or behind a combinational loop")
        return level

    def _net_ps(self, nets: Ints, cells: Ints, sink: Ints, x: Reals, y: Reals) -> Reals:
        """Delays from the drivers of nets to cells."""
        driver, cells = self.driver[nets], self.packed.host[cells]
        fanout = self.fanout[nets]
        family = self.family[driver]
        ps = net(x[cells] - x[driver], y[cells] - y[driver], fanout, family, sink)
        inside = local(family, sink)
        ps = np.where((fanout == 1) & ~np.isnan(inside), inside, ps)
        ps[sink == Sink.CHAIN] = delay("local", "carry_carry")
        ps[driver < 0] = 0.0
        return ps

    def times(self, x: Reals, y: Reals) -> Times:
        """Arrival times with cells at slice columns `x` and rows `y`."""
        t, e = self.through, self.ends
        through_net = self._net_ps(t["net"], t["cell"], t["sink"], x, y)
        end_net = self._net_ps(e["net"], e["cell"], e["sink"], x, y)
        arrival = np.full(self.nets, -np.inf)
        np.maximum.at(arrival, self.starts["net"], self.starts["ps"])
        whole = through_net + t["ps"]
        for a, b in zip(self.bounds, self.bounds[1:]):
            np.maximum.at(arrival, t["to_net"][a:b], arrival[t["net"][a:b]] + whole[a:b])
        tail = np.full(self.nets, -np.inf)
        np.maximum.at(tail, e["net"], end_net + e["ps"])
        for a, b in zip(self.bounds[-2::-1], self.bounds[:0:-1]):
            np.maximum.at(tail, t["net"][a:b], tail[t["to_net"][a:b]] + whole[a:b])
        return Times(arrival, tail, arrival[e["net"]] + end_net + e["ps"], through_net, end_net)

    def hops(self) -> tuple[Ints, Ints]:
        """Of all arcs, then of all ends: the cell that drives their net, -1 for a port, and that which they go to."""
        pins = self.through, self.ends
        return (np.concatenate([self.driver[rows["net"]] for rows in pins]),
                self.packed.host[np.concatenate([rows["cell"] for rows in pins])])

    def longest(self, times: Times) -> Reals:
        """Of each of `hops` the longest path over it, in ps; -inf where there is none."""
        t = self.through
        over = times.arrival[t["net"]] + times.through_net + t["ps"] + times.tail[t["to_net"]]
        return np.concatenate([over, times.ends])

    def worst(self, times: Times) -> Iterator[Path[Step]]:
        """Paths from the worst, one per capturing cell."""
        seen: set[int] = set()
        for end in np.argsort(-times.ends, kind="stable"):
            cell = int(self.packed.host[self.ends["cell"][end]])
            if cell in seen or not np.isfinite(times.ends[end]):
                continue
            seen.add(cell)
            yield self._traced(times, int(end))

    def _traced(self, times: Times, end: int) -> Path[Step]:
        e, t = self.ends, self.through
        at = int(e["net"][end])
        steps = [Step(int(e["cell"][end]), float(times.end_net[end]), float(e["ps"][end]), int(self.fanout[at]))]
        while True:
            arcs = self._by_target[self._first[at]:self._first[at + 1]]
            came = times.arrival[t["net"][arcs]] + times.through_net[arcs] + t["ps"][arcs]
            row = int(self._start[at])
            if not len(arcs) or (row >= 0 and self.starts["ps"][row] >= came.max()):
                break
            arc = arcs[int(came.argmax())]
            at = int(t["net"][arc])
            steps.append(Step(int(t["cell"][arc]), float(times.through_net[arc]), float(t["ps"][arc]),
                              int(self.fanout[at])))
        steps.append(Step(int(self.starts["cell"][row]), 0.0, float(self.starts["ps"][row]), 0))
        return Path(tuple(reversed(steps)))
