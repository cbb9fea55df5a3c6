"""A coarse placement on the card's user region: quadratic, with sparse matrices, spread until slices are filled
evenly.

What stays in a slice is one object: a LUT and the register behind it, a carry chain with both, a block with the
registers that it took; and then what nets of few sinks join, up to half a slice. Objects are pulled together by their
nets (squares of distances, weighted by the distance of the last round so that lengths count, and by how critical a
net is), spread over a window of the region by halving it again and again, and pulled to where they were spread to,
harder each round (SimPL: Kim, Lee, Markov, ICCAD 2010). DSP slices, BRAM and URAM are put on the sites of their
columns in every round. Slices are filled, not legalised: inside one there is no order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import cg

from fpga.synth.map import LUT_COST
from fpga.synth.shells import region
from fpga.synth.timing.delays import Family, Sink, local, table
from fpga.synth.timing.netlist import Netlist
from fpga.synth.timing.packing import Packed
from fpga.synth.timing.sta import Graph

__all__ = ["Objects", "Sites", "Window", "filled", "in_order", "objects", "place", "refined", "spread", "window"]

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

FILL = 0.75         # of a window's slices
ROUNDS = 16
GROWTH = 1.3
PLAIN_ROUNDS = 2    # before critical nets pull harder
CRITICAL = 8.0      # how much harder the most critical net does
FEW_SINKS = 4       # of nets that join objects
JOININGS = 5        # each at most halves their number
LARGEST = 1.0       # of what is joined: LUTs' and registers' parts of slices added, 2 in a full one
OUTLINE = 16.0      # sinks that a net's outline has
REFINEMENTS = 120
PATIENCE = 12       # refinements without a shorter longest path
NEAR = 0.8          # of the longest path: pins of paths above pull in refinement,
PULLING = 0.01      # but no more than this part of all
MOVED = 64          # blocks of a kind that move in a refinement
NEARER = 0.7        # of its distance that a block that moves has left
CROWDED = 0.03      # of the logic may come to lie in full slices in refinement
BIN = 4, 12         # slice columns and rows in which slices are counted as full together
SHARE = 0.02        # of its nets' pull, in the first round, that an object is held with where it was spread to
BLOCKS = {Family.DSP: "dsp", Family.BRAM: "bram", Family.URAM: "uram"}


@dataclass(frozen=True)
class Window:
    """A rectangle of the region, in slice columns and rows."""

    left: float
    bottom: float
    width: float
    height: float

    def sites(self, block: str) -> tuple[Reals, Reals]:
        """Column and row of the sites of a kind of block inside."""
        kind = region()[block]
        rows = (np.arange(kind["sites"]) + 0.5) * region()["rows"] / kind["sites"]
        rows = rows[(rows >= self.bottom) & (rows < self.bottom + self.height)]
        at = np.array([x for x in kind["at"] if self.left <= x < self.left + self.width], float)
        return np.repeat(at, len(rows)), np.tile(rows, len(at))


@dataclass(frozen=True)
class Objects:
    """What is placed. of: the object of each cell; area: slices of LUTs and of registers; block: `Family` of a DSP
    slice, BRAM or URAM, else OTHER; sites: how many each takes (0.5 for a half BRAM); slices: that all need, in which
    LUTs and registers lie together."""

    of: Ints
    area: Reals
    block: npt.NDArray[np.int8]
    sites: Reals
    slices: float


def objects(netlist: Netlist, packed: Packed) -> Objects:
    """Joins the cells that share a slice, or a block with its registers."""
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
    for _ in range(JOININGS):
        merged = _joined(of[pulls[0]], pulls[1], area_of(of, count))
        count, of = int(merged.max()) + 1, merged[of]
    block = np.full(count, Family.OTHER, np.int8)
    for family in BLOCKS:
        block[of[netlist.family == family]] = family
    sites = np.bincount(of[fixed], half[fixed], count).astype(float)
    area = np.bincount(of, lut + ff, count).astype(float)
    return Objects(of.astype(np.int64), area, block, sites, float(max(lut.sum(), ff.sum())))


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


def window(found: Objects) -> Window:
    """The smallest window that holds the objects with FILL of its slices, and all blocks; the region where none does.
    It lies around the URAM column where that is needed, else in the middle. Its sides cost a net the same time to
    cross."""
    grid, t = region(), table()["net"]
    tall = t["column"] / t["row"]
    need = found.slices / FILL
    width = max(4.0, (need / tall) ** 0.5)
    middle = grid["uram"]["at"][0] if (found.block == Family.URAM).any() else grid["columns"] / 2
    while True:
        size = min(width, grid["columns"]), min(width * tall, grid["rows"])
        left = min(max(middle - size[0] / 2, 0.0), grid["columns"] - size[0])
        made = Window(left, (grid["rows"] - size[1]) / 2, *size)
        whole = size == (grid["columns"], grid["rows"])
        holds = all(len(made.sites(name)[0]) >= found.sites[found.block == family].sum()
                    for family, name in BLOCKS.items())
        if whole or (holds and size[0] * size[1] >= need):
            return made
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


def _on_sites(x: Reals, y: Reals, found: Objects, place: Window) -> None:
    """Moves blocks, in place, to sites of their kind: in the order of the blocks from left to right into columns, and
    in those near to their rows."""
    for family, name in BLOCKS.items():
        mine = np.nonzero(found.block == family)[0]
        if not len(mine):
            continue
        columns, rows = place.sites(name)
        at = np.unique(columns)
        room = len(rows) / len(at)
        order = mine[np.argsort(x[mine], kind="stable")]
        wanted = np.interp(x[order], at, (np.arange(len(at)) + 0.5) * room)
        column = np.minimum((in_order(wanted, found.sites[order], len(rows)) / room).astype(int), len(at) - 1)
        for k, where in enumerate(at):
            inside = order[column == k]
            inside = inside[np.argsort(y[inside], kind="stable")]
            free = np.sort(rows[columns == where])
            wanted = np.interp(y[inside], free, np.arange(len(free)) + 0.5)
            taken = in_order(wanted, found.sites[inside], len(free))
            x[inside], y[inside] = where, free[np.clip(taken, 0, len(free) - 1).astype(int)]


def in_order(wanted: Reals, sizes: Reals, room: float) -> Reals:
    """Middles of blocks of these sizes that lie in a row without overlaps, in their order, nearest to those wanted by
    least squares; closer to each other where there is too little room."""
    if not len(wanted):
        return wanted
    sizes = sizes * min(1.0, room / float(sizes.sum()))
    offset = np.cumsum(sizes) - sizes / 2
    first = isotonic_regression(wanted - offset, weights=sizes).x
    return np.clip(first, 0, room - float(sizes.sum())) + offset


class _Pull:
    """The pull of nets on objects: of all pairs of a small net, of a net's middle on the objects of others."""

    def __init__(self, netlist: Netlist, found: Objects) -> None:
        rows, count = netlist.rows, len(found.area)
        pin_net = np.concatenate([rows["drives"]["net"], rows["loads"]["net"]])
        pin = found.of[np.concatenate([rows["drives"]["cell"], rows["loads"]["cell"]])]
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
        drives = (driver[self.net] >= 0) & (found.of[driver[self.net]] == self.pin)
        self.base = np.where(drives, 1.0, np.minimum(1.0, OUTLINE / pins[self.net]))

    def solved(self, at: Reals, weight: Reals, hold: Reals, to: Reals) -> Reals:
        """Positions that least squares of lengths ask for, near `at`; objects are held with `hold` at `to`."""
        length = np.maximum(np.abs(at[self.pin] - at[self.middle]), 1.0)
        w = self.base * weight[self.net] / length
        ends = np.concatenate([self.pin, self.middle]), np.concatenate([self.middle, self.pin])
        joined: Any = csr_array(coo_array((np.concatenate([w, w]), ends), (self.size, self.size)))
        pulled = np.asarray(joined.sum(axis=1)).ravel()
        held = np.zeros(self.size)
        held[:self.count] = hold * self.pins / np.maximum(np.abs(at[:self.count] - to), 1.0) + 1e-6
        diagonal = pulled + held + 1e-9
        wanted = np.zeros(self.size)
        wanted[:self.count] = held[:self.count] * to
        out, _ = cg(diags_array(diagonal) - joined, wanted, x0=at, rtol=1e-3, maxiter=40, M=diags_array(1 / diagonal))
        return np.asarray(out)


def filled(found: Objects, x: Reals, y: Reals, place: Window) -> tuple[Reals, float]:
    """Fill of a window's slices by bins of about BIN, 1 where LUTs and registers take all of them; and the share of
    the logic above that."""
    at = np.zeros((2, len(found.area)))
    at[0][found.of], at[1][found.of] = x, y
    sides = ([place.left, place.left + place.width], [place.bottom, place.bottom + place.height])
    mine = found.block == Family.OTHER
    bins = max(1, round(place.width / BIN[0])), max(1, round(place.height / BIN[1]))
    area, _, _ = np.histogram2d(at[0][mine], at[1][mine], bins=bins, range=sides, weights=found.area[mine])
    fill = area / (2 * place.width * place.height / (bins[0] * bins[1]))
    return fill, float(np.maximum(fill - 1, 0).sum() / max(fill.sum(), 1e-9))


def _pulled(at: Reals, a: Ints, b: Ints, forward: Reals, back: Reals, count: int) -> tuple[Reals, Reals]:
    """How hard each object is pulled by those at the other ends of its nets, and to which column and row."""
    total = np.bincount(a, forward, count) + np.bincount(b, back, count)
    to = [np.bincount(a, forward * axis[b], count) + np.bincount(b, back * axis[a], count) for axis in at]
    return total.astype(float), np.stack(to) / np.maximum(total, 1e-12)


class Sites:
    """The sites of blocks, and how much of each is taken; a cascade takes those around its middle."""

    def __init__(self, found: Objects, at: Reals, place: Window) -> None:
        self.sizes = found.sites
        self.of = np.full(len(found.area), -1, np.int64)
        self.kinds = []
        t = table()["net"]
        self.scale = np.array([[t["column"]], [t["row"]]])
        for family, name in BLOCKS.items():
            places = np.stack(place.sites(name))
            taken = np.zeros(places.shape[1])
            for one in np.nonzero(found.block == family)[0]:
                here = self.of[one] = int(np.abs(self.scale * (places - at[:, [one]])).sum(axis=0).argmin())
                whole = int(np.ceil(self.sizes[one]))
                taken[max(0, here - whole // 2):][:whole] += min(1.0, self.sizes[one])
            self.kinds.append((family, places, taken))
        self.block = found.block

    def move(self, at: Reals, pull: Reals, to: Reals) -> None:
        """Moves, in place, blocks that are pulled, the hardest first, to free sites that are nearer to where."""
        for family, places, taken in self.kinds:
            mine = np.nonzero((self.block == family) & (pull > 0) & (self.sizes <= 1))[0]
            for one in mine[np.argsort(-pull[mine], kind="stable")][:MOVED]:
                far = np.abs(self.scale * (places - to[:, [one]])).sum(axis=0)
                here = self.of[one]
                best = int(np.where(taken + self.sizes[one] <= 1, far, np.inf).argmin())
                if far[best] < NEARER * far[here]:
                    taken[here] -= self.sizes[one]
                    taken[best] += self.sizes[one]
                    self.of[one], at[:, one] = best, places[:, best]


def refined(graph: Graph, found: Objects, x: Reals, y: Reals, place: Window,
            say: Callable[[str], None] = lambda line: None) -> tuple[Reals, Reals]:
    """Moves what lies on the longest paths between its neighbours on them, again and again, as detailed placement
    does: slices are not full, and at most CROWDED of the logic more may come to lie where they are.

    Parameters  x, y: slice columns and rows of cells
    Returns     those with the shortest longest path that was seen
    """
    at = np.stack([np.zeros(len(found.area)), np.zeros(len(found.area))])
    at[0][found.of], at[1][found.of] = x, y
    free = found.block == Family.OTHER
    limit = CROWDED + filled(found, x, y, place)[1]
    sites = Sites(found, at, place)
    best, best_ps, since = at.copy(), np.inf, 0
    from_ = found.of[np.concatenate([graph.driver[rows["net"]] for rows in (graph.through, graph.ends)])]
    to = found.of[graph.packed.host[np.concatenate([graph.through["cell"], graph.ends["cell"]])]]
    driven = np.concatenate([graph.driver[rows["net"]] >= 0 for rows in (graph.through, graph.ends)])
    fanout = graph.fanout[np.concatenate([graph.through["net"], graph.ends["net"]])]
    few = max(1, int(PULLING * len(to)))
    for number in range(REFINEMENTS):
        times = graph.times(at[0][found.of], at[1][found.of])
        longest = float(times.ends.max())
        if longest < best_ps:
            best, best_ps, since = at.copy(), longest, number
        if number - since > PATIENCE:
            break
        through = (times.arrival[graph.through["net"]] + times.through_net + graph.through["ps"]
                   + times.tail[graph.through["to_net"]])
        share = np.concatenate([through, times.ends]) / longest
        near = max(NEAR, float(np.partition(share, -few)[-few]))
        pulls = driven & (share >= near) & (from_ != to)
        weight = ((share[pulls] - near) / (1.001 - near)) ** 2 + 1e-3
        a, b, back = from_[pulls], to[pulls], weight / fanout[pulls]     # a driver comes to its sinks, not they to it
        total = np.bincount(a, weight, len(free)) + np.bincount(b, back, len(free))
        mine = (total > 0) & free
        sites.move(at, *_pulled(at, a, b, weight, weight, len(free)))
        total += np.bincount(b, weight - back, len(free))                # and one sink of many stays where it is
        for axis in at:
            wanted = (np.bincount(a, weight * axis[b], len(free)) + np.bincount(b, back * axis[a], len(free))
                      + np.bincount(b, weight - back, len(free)) * axis)
            axis[mine] = (axis[mine] + wanted[mine] / total[mine]) / 2
        if filled(found, at[0][found.of], at[1][found.of], place)[1] > limit:
            break
        if number % 25 == 0:
            say(f"refinement {number + 1} of {REFINEMENTS}: {best_ps:.0f} ps")
    return best[0][found.of], best[1][found.of]


def place(netlist: Netlist, found: Objects, critical: Callable[[Reals, Reals], Reals],
          say: Callable[[str], None] = lambda line: None) -> tuple[Reals, Reals, Window]:
    """Slice column and row of every cell.

    Parameters  critical: how critical each net is, 0 to 1, with cells at these columns and rows
    """
    grid = window(found)
    pull = _Pull(netlist, found)
    slices = found.block == Family.OTHER
    rng = np.random.default_rng(1)
    x = grid.left + grid.width * rng.random(pull.size)
    y = grid.bottom + grid.height * rng.random(pull.size)
    weight = np.ones(netlist.nets)
    hold = 0.0
    to_x, to_y = np.full(pull.count, grid.left + grid.width / 2), np.full(pull.count, grid.bottom + grid.height / 2)
    for number in range(ROUNDS):
        if number >= PLAIN_ROUNDS:
            weight = 1 + CRITICAL * critical(to_x[found.of], to_y[found.of]) ** 4
        for _ in range(1 if hold else 3):
            x = pull.solved(x, weight, np.full(pull.count, hold or 1e-4), to_x)
            y = pull.solved(y, weight, np.full(pull.count, hold or 1e-4), to_y)
        to_x, to_y = x[:pull.count].copy(), y[:pull.count].copy()
        to_x[slices], to_y[slices] = spread(to_x[slices], to_y[slices], found.area[slices], grid)
        _on_sites(to_x, to_y, found, grid)
        hold = SHARE * GROWTH ** number
        say(f"placement {number + 1} of {ROUNDS}")
    return to_x[found.of], to_y[found.of], grid
