"""A coarse placement on the card's user region: quadratic, with sparse matrices, spread until slices are filled
evenly.

What stays in a slice is one object: a LUT and the register behind it, a carry chain with both, a block with the
registers that it took; and then, for speed, what nets of few sinks join, up to half a slice. Objects are pulled
together by their nets (squares of distances, weighted by the distance of the last round so that lengths count), spread
over a window of the region by halving it again and again, and pulled to where they were spread to, harder each round
(SimPL: Kim, Lee, Markov, ICCAD 2010). Driver and sink of a hop on a long path pull each other, too (pin-to-pin
attraction: Shi et al., DATE 2025). In every round DSP slices, BRAM and URAM are put on the sites of their columns;
registers of many loads are copied in two rounds. Slices are filled, not legalised: inside one there is no order.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from fpga.synth.map import LUT_COST
from fpga.synth.timing.delays import Family, Sink, local, table
from fpga.synth.timing.netlist import Netlist
from fpga.synth.timing.packing import Packed, pack
from fpga.synth.timing.replicate import replicated
from fpga.synth.timing.reproducible import falling, solved
from fpga.synth.timing.sites import BLOCKS, Window, assign, everywhere
from fpga.synth.timing.sta import Graph, Times
from gen.model.platform import region

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Hops = tuple[Ints, Ints, Reals]     # objects at both ends, and how hard they pull each other

ROUNDS = 16
GROWTH = 1.3
PLAIN_ROUNDS = 3    # before hops on long paths pull
CRITICAL = 8.0      # how hard one on the longest path does; a net of two pulls with 1
LONGEST = 0.999     # of the ends have shorter paths than what counts as the longest: a few do not hide the others
SHARP = 12.0        # e-fold less for a path that is shorter by a twelfth of the longest
LEAST = 0.01        # of that pull that is still used
COPYING = 6, 12     # rounds before which registers are copied
SLOW = 0.6          # of the longest path: nets on longer paths are slow
FEW_SINKS = 4       # of nets that join objects
JOININGS = 5        # each at most halves their number
LARGEST = 1.0       # of what is joined: LUTs' and registers' parts of slices added, 2 in a full one
OUTLINE = 16.0      # sinks that a net's outline has
SHARE = 0.02        # of its nets' pull, in the first round, that an object is held with where it was spread to


@dataclass(frozen=True)
class Objects:
    """What is placed. of: the object of each cell; luts, ffs: slices that its LUTs and its registers take, which can be
    the same; block: `Family` of a DSP slice, BRAM or URAM, else OTHER; sites: how many each takes (0.5 for a half
    BRAM); slices: that all need."""

    of: Ints
    luts: Reals
    ffs: Reals
    block: npt.NDArray[np.int8]
    sites: Reals
    slices: float

    @property
    def area(self) -> Reals:
        """Slices of LUTs and of registers added: 2 in a full slice."""
        return self.luts + self.ffs

    def with_copies(self, family: npt.NDArray[np.int8]) -> "Objects":
        """And registers and LUTs more, by themselves."""
        count = len(family)
        register = family == Family.FF
        return replace(self, of=np.append(self.of, len(self.luts) + np.arange(count)),
                       luts=np.append(self.luts, ~register / region()["luts"]),
                       ffs=np.append(self.ffs, register / region()["ffs"]),
                       block=np.append(self.block, np.full(count, Family.OTHER, np.int8)),
                       sites=np.append(self.sites, np.zeros(count)))


@dataclass(frozen=True)
class Design:
    """What is placed, as it changes while it is: cells, those of them taken into blocks, arcs, objects."""

    netlist: Netlist
    packed: Packed
    graph: Graph
    objects: Objects

    @staticmethod
    def of(netlist: Netlist) -> "Design":
        packed = pack(netlist)
        return Design(netlist, packed, Graph(netlist, packed), objects(netlist, packed))

    def loosened(self, at: Reals) -> tuple["Design", Reals]:
        """With what shares a slice or a block alone as objects, and the columns and rows of these: each where it was.
        A register in the middle of a long way can then leave the logic before and behind it."""
        loose = replace(self, objects=objects(self.netlist, self.packed, joinings=0))
        to = np.zeros((2, len(loose.objects.luts)))
        to[:, loose.objects.of] = at[:, self.objects.of]
        return loose, to

    def times(self, at: Reals) -> Times:
        """With objects at these columns and rows."""
        return self.graph.times(at[0, self.objects.of], at[1, self.objects.of])

    def with_copies(self, at: Reals) -> tuple["Design", Reals]:
        """Copies of the drivers of slow nets, and columns and rows of the objects with them."""
        times = self.times(at)
        path = times.arrival + times.tail
        cells = at[:, self.objects.of]
        netlist, packed, to = replicated(self.netlist, self.packed, path > SLOW * times.ends.max(), cells,
                                         self.objects.of)
        copied = Design(netlist, packed, Graph(netlist, packed),
                      self.objects.with_copies(netlist.family[len(netlist.family) - to.shape[1]:]))
        return copied, np.concatenate([at, to], axis=1)


def objects(netlist: Netlist, packed: Packed, joinings: int = JOININGS) -> Objects:
    """Joins the cells that share a slice, or a block with its registers; so many times more what few nets join."""
    cells = len(netlist.family)
    fanout, driver = netlist.fanout(), netlist.driver()
    pairs = [(np.arange(cells), packed.host)]
    for rows in (packed.through, packed.ends):
        from_, sink = driver[rows["net"]], rows["sink"]
        inside = (from_ >= 0) & ((sink == Sink.CHAIN) | (fanout[rows["net"]] == 1)
                                 & ~np.isnan(local(netlist.family[from_], sink)))
        pairs.append((from_[inside], rows["cell"][inside]))
    a, b = (np.concatenate(list(side)) for side in zip(*pairs))
    count, of = connected_components(coo_array((np.ones(len(a), np.int8), (a, b)), (cells, cells)), directed=False)
    own = packed.host == np.arange(cells)
    luts = np.array([LUT_COST.get(kind, 1.0) for kind in netlist.kinds])[netlist.kind]
    lut = luts * np.isin(netlist.family, (Family.LUT, Family.SRL, Family.LUTRAM)) / region()["luts"]
    ff = ((netlist.family == Family.FF) & own) / float(region()["ffs"])
    half = np.array([0.5 if kind.startswith("RAMB18") else 1.0 for kind in netlist.kinds])[netlist.kind]
    fixed = np.isin(netlist.family, list(BLOCKS))

    def area_of(of: Ints, count: int) -> Reals:
        return np.bincount(of, np.where(own & fixed, 2 * LARGEST, lut + ff), count).astype(float)

    loads = netlist.rows["loads"]
    few = (driver[loads["net"]] >= 0) & (fanout[loads["net"]] <= FEW_SINKS)
    pulls = np.stack([driver[loads["net"][few]], loads["cell"][few]]), 1.0 / fanout[loads["net"][few]]
    for _ in range(joinings):
        merged = _joined(of[pulls[0]], pulls[1], area_of(of, count))
        count, of = int(merged.max()) + 1, merged[of]
    block = np.full(count, Family.OTHER, np.int8)
    for family in BLOCKS:
        block[of[netlist.family == family]] = family
    sites = np.bincount(of[fixed], half[fixed], count).astype(float)
    taken = [np.bincount(of, each, count).astype(float) for each in (lut, ff)]
    return Objects(of.astype(np.int64), taken[0], taken[1], block, sites, float(max(lut.sum(), ff.sum())))


def _joined(pairs: Ints, weight: Reals, area: Reals) -> Ints:
    """New numbers for objects: two get the same that are each other's strongest neighbour and together stay below
    LARGEST."""
    count = len(area)
    fits = (pairs[0] != pairs[1]) & (area[pairs[0]] + area[pairs[1]] <= LARGEST)
    a, b = pairs[:, fits]
    joined = csr_array(coo_array((np.tile(weight[fits], 2), (np.concatenate([a, b]), np.concatenate([b, a]))),
                                 (count, count)))
    joined.sum_duplicates()
    row = np.repeat(np.arange(count), np.diff(joined.indptr))
    draw = (row + joined.indices) * 2654435761 % 2**32      # the same for both ends, so that equals find each other
    strength = joined.data / (0.1 + area[row] + area[joined.indices])
    order = np.lexsort((draw, strength, row))
    best = np.arange(count)
    best[row[order]] = joined.indices[order]        # the last of a row, its strongest
    first = np.where(best[best] == np.arange(count), np.minimum(best, np.arange(count)), np.arange(count))
    return np.unique(first, return_inverse=True)[1].ravel()


def window(items: Objects, fill: float) -> Window:
    """The smallest window that holds the objects with this share of its slices, and all blocks; the region where none
    does. It lies around the URAM column where that is needed, else in the middle. Its sides cost a net the same time to
    cross."""
    grid, t = region(), table()["net"]
    tall = t["column"] / t["row"]
    need = items.slices / fill
    width = max(4.0, math.sqrt(need / tall))
    middle = grid["uram"]["at"][0] if (items.block == Family.URAM).any() else grid["columns"] / 2
    while True:
        size = min(width, grid["columns"]), min(width * tall, grid["rows"])
        left = min(max(middle - size[0] / 2, 0.0), grid["columns"] - size[0])
        smallest = Window(left, (grid["rows"] - size[1]) / 2, *size)
        whole = size == (grid["columns"], grid["rows"])
        holds = all(len(smallest.sites(name)[0]) >= items.sites[items.block == family].sum()
                    for family, name in BLOCKS.items())
        if whole or (holds and size[0] * size[1] >= need * (1 - 1e-9)):
            return smallest
        width *= 1.1


def spread(x: Reals, y: Reals, area: Reals, place: Window) -> tuple[Reals, Reals]:
    """Objects in the same order from left to right and from bottom to top, with equal area in equal parts of a
    window: halved across its longer side, each half with half of the area, down to single objects or slices."""
    tall = table()["net"]["column"] / table()["net"]["row"]
    left, bottom = np.full(len(x), float(place.left)), np.full(len(x), float(place.bottom))
    width, height = place.width, place.height
    part = np.zeros(len(x), np.int64)
    while width > 1 or height > 1:
        across = width * tall >= height
        order = np.lexsort((x if across else y, part))
        first = np.concatenate(([True], part[order][1:] != part[order][:-1]))
        total = np.cumsum(area[order])
        begin = np.maximum.accumulate(np.where(first, total - area[order], -np.inf))
        number = np.cumsum(first) - 1
        whole = np.bincount(number, area[order])[number]
        upper = np.zeros(len(x), bool)
        upper[order] = total - area[order] / 2 - begin > whole / 2
        part = 2 * part + upper
        if across:
            width /= 2
            left += width * upper
        else:
            height /= 2
            bottom += height * upper
    return left + width / 2, bottom + height / 2


class _Pull:
    """The pull of nets on objects: of all pairs of a small net, of a net's middle on the objects of others."""

    def __init__(self, design: Design) -> None:
        netlist, items = design.netlist, design.objects
        rows, count = netlist.rows, len(items.luts)
        pin_net = np.concatenate([rows["drives"]["net"], rows["loads"]["net"]])
        pin = items.of[np.concatenate([rows["drives"]["cell"], rows["loads"]["cell"]])]
        pairs = np.unique(pin_net * count + pin)
        self.net, self.pin = pairs // count, pairs % count
        pins = np.bincount(self.net, minlength=netlist.nets)
        used = pins > 1
        self.net, self.pin = self.net[used[self.net]], self.pin[used[self.net]]
        middles, number = np.unique(self.net, return_inverse=True)
        self.middle = count + number.ravel()
        self.size = count + len(middles)
        self.count = count
        self.pins = np.bincount(self.pin, minlength=count)
        # A large net costs what its outline does: its driver is pulled, of its sinks those on the outline.
        driver = netlist.driver()
        drives = (driver[self.net] >= 0) & (items.of[driver[self.net]] == self.pin)
        self.base = np.where(drives, 1.0, np.minimum(1.0, OUTLINE / pins[self.net]))

    def with_middles(self, at: Reals) -> Reals:
        """One coordinate of objects, and of the middles of their nets."""
        number = self.middle - self.count
        return np.append(at, np.bincount(number, at[self.pin]) / np.bincount(number))

    def solved(self, at: Reals, hops: Hops, hold: float, to: Reals) -> Reals:
        """Positions that least squares of lengths ask for, near `at`; objects are held with `hold` at `to`."""
        a, b, pull = hops
        w = np.concatenate([self.base / np.maximum(np.abs(at[self.pin] - at[self.middle]), 1.0),
                            pull / np.maximum(np.abs(at[a] - at[b]), 1.0)])
        ends = np.concatenate([self.pin, a]), np.concatenate([self.middle, b])
        half = csr_array(coo_array((w, ends), (self.size, self.size)))
        joined: Any = half + half.T
        pulled = np.asarray(joined.sum(axis=1)).ravel()
        held = np.zeros(self.size)
        held[:self.count] = hold * self.pins / np.maximum(np.abs(at[:self.count] - to), 1.0) + 1e-6
        diagonal = pulled + held + 1e-9
        wanted = np.zeros(self.size)
        wanted[:self.count] = held[:self.count] * to
        return solved(diagonal, joined, wanted, at, tolerance=1e-3, steps=40)


class _Critical:
    """The hops of a design that long paths pass, and how hard each pulls: half as in the round before."""

    def __init__(self, design: Design) -> None:
        self.design = design
        of = design.objects.of
        driver, cell = design.graph.hops()
        self.from_, self.to = of[driver], of[cell]
        self.moves = (driver >= 0) & (self.from_ != self.to)
        self.pull: Reals = np.zeros(len(driver))

    def hops(self, at: Reals) -> tuple[Hops, float]:
        """With objects at these columns and rows; and what counts as the longest path."""
        times = self.design.times(at)
        longest = float(np.quantile(times.ends[np.isfinite(times.ends)], LONGEST))
        now = falling(SHARP * np.maximum(1 - self.design.graph.longest(times) / longest, 0))
        self.pull = (self.pull + now) / 2 if self.pull.any() else now
        mine = self.moves & (self.pull > LEAST)
        return (self.from_[mine], self.to[mine], CRITICAL * self.pull[mine]), longest


def place(design: Design, fill: float, say: Callable[[str], None] = lambda line: None) -> tuple[Design, Reals, Window]:
    """The design with copies of registers, slice column and row of every object, and the window they lie in; `fill`: of
    its slices."""
    grid = window(design.objects, fill)
    pull, critical = _Pull(design), _Critical(design)
    rng = np.random.default_rng(1)
    size = np.array([[grid.width], [grid.height]])
    corner = np.array([[grid.left], [grid.bottom]])
    at = corner + size * rng.random((2, pull.size))
    to = np.repeat(corner + size / 2, pull.count, axis=1)
    hops: Hops = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    hold = 0.0
    for number in range(ROUNDS):
        if number in COPYING:
            count = pull.count
            design, to = design.with_copies(to)
            pull, critical = _Pull(design), _Critical(design)
            at = np.stack([pull.with_middles(np.append(axis[:count], own[count:])) for axis, own in zip(at, to)])
        if number >= PLAIN_ROUNDS:
            hops, longest = critical.hops(to)
            say(f"placement {number} of {ROUNDS}: {longest:.0f} ps")
        hold = hold * GROWTH if number > 1 else SHARE if number else 1e-4
        for _ in range(1 if number else 3):
            at = np.stack([pull.solved(axis, hops, hold, own) for axis, own in zip(at, to)])
        items = design.objects
        slices = items.block == Family.OTHER
        to = at[:, :pull.count].copy()
        to[0, slices], to[1, slices] = spread(to[0, slices], to[1, slices], items.area[slices], grid)
        assign(to, items.block, items.sites, everywhere())
    return design, to, grid
