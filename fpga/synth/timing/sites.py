"""The user region's sites: of slices as a window, of DSP slices, BRAM and URAM in columns, and who lies on them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from fpga.synth.timing.delays import Family, table
from gen.model.platform import region

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

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
    """The sites of blocks, and who is where. A cascade takes as many in a row of one column; `of` is the first."""

    def __init__(self, block: npt.NDArray[np.int8], sizes: Reals, at: Reals, place: Window) -> None:
        self.of = np.full(len(block), -1, np.int64)
        self.scale = _scale()
        self.kinds = []
        for family, name in BLOCKS.items():
            places = np.stack(place.sites(name))
            groups = [(size, np.nonzero((block == family) & (sizes == size))[0])
                      for size in np.unique(sizes[block == family])]
            for size, mine in groups:
                runs = _runs(places, size)
                first = np.arange(0, places.shape[1], int(np.ceil(size)))
                self.of[mine] = first[self._far(runs, at[:, mine]).argmin(axis=1)]
            self.kinds.append((places, groups))

    def _far(self, places: Reals, to: Reals) -> Reals:
        return np.abs(self.scale[:, None] * (places[:, None] - to[:, :, None])).sum(axis=0)

    def move(self, at: Reals, pull: Reals, to: Reals, hold: float) -> None:
        """Moves blocks, in place, those of one kind and size together: to where the sum of their distances, each
        weighted by how hard it is pulled, is least, and with `hold` that from where they are. What is pulled takes free
        sites, or the place of what is pulled less."""
        for places, groups in self.kinds:
            for size, mine in groups:
                if not (pull[mine] > 0).any():
                    continue
                count, taken = int(np.ceil(size)), np.zeros(places.shape[1])
                for other, others in groups:
                    if other != size:
                        for site in range(int(np.ceil(other))):
                            np.add.at(taken, self.of[others] + site, min(1.0, other))
                runs, first = _runs(places, size), np.arange(0, places.shape[1], count)
                room = 1 - np.array([taken[one:one + count].max() for one in first])
                room = np.where(np.isinf(runs[0]), 0, np.maximum(room, 0) / min(1.0, size)).astype(int)
                open_ = np.repeat(np.arange(len(first)), room)
                if len(open_) < len(mine):      # some lie on each other, as `assign` leaves them: they stay
                    continue
                far = pull[mine, None] * self._far(runs[:, open_], to[:, mine])
                which, where = linear_sum_assignment(far + hold * self._far(runs[:, open_], at[:, mine]))
                self.of[mine[which]], at[:, mine[which]] = first[open_[where]], runs[:, open_[where]]


def _runs(places: Reals, size: float) -> Reals:
    """The middles of as many sites in a row as a block takes, one behind the other; infinitely far where they are of
    two columns or too few."""
    count, length = int(np.ceil(size)), places.shape[1]
    first = np.arange(0, length, count)
    last = first + count - 1
    whole = last < length
    last = np.minimum(last, length - 1)
    return np.where(whole & (places[0, first] == places[0, last]), (places[:, first] + places[:, last]) / 2, np.inf)
