"""The user region's sites: of slices as a window, of DSP slices, BRAM and URAM in columns, and who lies on them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from fpga.synth.shells import region
from fpga.synth.timing.delays import Family, table

__all__ = ["BLOCKS", "Sites", "Window", "assign", "everywhere"]

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

MOVED = 64          # blocks of a kind that move in a refinement
NEARER = 0.7        # of its distance that a block that moves has left
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


def everywhere() -> Window:
    """The whole region: blocks lie where sites are, also beside the window of the slices."""
    return Window(0.0, 0.0, float(region()["columns"]), float(region()["rows"]))


def _scale() -> Reals:
    """ps of a slice column and of a row."""
    t = table()["net"]
    return np.array([[t["column"]], [t["row"]]])


def assign(at: Reals, block: npt.NDArray[np.int8], sizes: Reals, place: Window) -> None:
    """Moves blocks, in place, to sites of their kind: those of one size together to where the sum of their squared
    distances is least, cascades first, each on as many sites in a row. Two halves of a BRAM share a site. Where there
    is too little room, blocks lie on each other.

    Parameters  at: columns and rows where objects are wanted; block: `Family` of each, OTHER for one that is no block;
                sizes: sites of each
    """
    for family, name in BLOCKS.items():
        mine = np.nonzero(block == family)[0]
        columns, rows = place.sites(name)
        height = len(columns) // max(1, len(np.unique(columns)))
        free = np.ones(len(columns), bool)
        for size in np.unique(sizes[mine])[::-1]:
            own = mine[sizes[mine] == size]
            whole = int(np.ceil(size))
            runs = np.arange(len(columns)).reshape(-1, height)[:, :height // whole * whole].reshape(-1, whole)
            open_ = runs[free[runs].all(axis=1)]
            runs = np.tile(open_ if len(open_) else runs, (2 if size < 1 else 1, 1))
            runs = np.tile(runs, (-(-len(own) // len(runs)), 1))
            places = np.stack([columns[runs].mean(axis=1), rows[runs].mean(axis=1)])
            far = _scale()[:, None] * (at[:, own, None] - places[:, None])
            which, where = linear_sum_assignment((far**2).sum(axis=0))
            at[:, own[which]] = places[:, where]
            free[runs[where]] = False


class Sites:
    """The sites of blocks, and how much of each is taken. A cascade takes as many in a row of one column; `of` is the
    first."""

    def __init__(self, block: npt.NDArray[np.int8], sizes: Reals, at: Reals, place: Window) -> None:
        self.block, self.sizes = block, sizes
        self.of = np.full(len(block), -1, np.int64)
        self.kinds = []
        self.scale = _scale()
        for family, name in BLOCKS.items():
            places = np.stack(place.sites(name))
            taken = np.zeros(places.shape[1])
            for one in map(int, np.nonzero(block == family)[0]):
                here = self.of[one] = int(self._far(_runs(places, self._count(one)), at[:, [one]]).argmin())
                taken[here:here + self._count(one)] += min(1.0, sizes[one])
            self.kinds.append((family, places, taken))

    def _count(self, one: int) -> int:
        return int(np.ceil(self.sizes[one]))

    def _far(self, places: Reals, to: Reals) -> Reals:
        return np.abs(self.scale * (places - to)).sum(axis=0)

    def move(self, at: Reals, pull: Reals, to: Reals) -> None:
        """Moves, in place, blocks that are pulled, the hardest first, to free sites that are nearer to where."""
        for family, places, taken in self.kinds:
            mine = np.nonzero((self.block == family) & (pull > 0))[0]
            for one in mine[np.argsort(-pull[mine], kind="stable")][:MOVED]:
                here, count, part = self.of[one], self._count(one), min(1.0, self.sizes[one])
                runs = _runs(places, count)
                far = self._far(runs, to[:, [one]])
                taken[here:here + count] -= part
                full = np.lib.stride_tricks.sliding_window_view(taken + part > 1, count).any(axis=1)
                best = int(np.where(full, np.inf, far).argmin())
                if far[best] < NEARER * far[here]:
                    self.of[one], at[:, one] = best, runs[:, best]
                taken[self.of[one]:][:count] += part


def _runs(places: Reals, count: int) -> Reals:
    """The middles of as many sites behind one another, by the first; infinitely far where they are of two columns."""
    first, last = places[:, :places.shape[1] - count + 1], places[:, count - 1:]
    return np.where(first[0] == last[0], (first + last) / 2, np.inf)
