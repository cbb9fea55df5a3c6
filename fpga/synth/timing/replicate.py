"""Copies of registers and LUTs of many loads, each beside the loads that it drives.

Vivado does so in placement and in `phys_opt_design` (UG904, physical synthesis, fan-out and critical-cell
optimization): loads of a large net that is too slow are clustered by where they lie, and each cluster gets a driver
beside it. A copy has the inputs of its cell, each of which has a load more for it, and takes the place of a cell of its
own. Counts of `failfast` and of the gate are those without copies.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fpga.synth.timing.delays import Family, table
from fpga.synth.timing.netlist import Netlist, Table
from fpga.synth.timing.packing import Packed

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

COPIED = Family.FF, Family.LUT
LOADS = 24          # of a net whose driver is copied, at least
GROUP = 8           # loads of a copy, at least
REACH_PS = 800.0    # from corner to corner of the loads of one copy, by columns and rows alone


def _ps(at: Reals) -> Reals:
    t = table()["net"]
    return np.array([[t["column"]], [t["row"]]]) * at


def groups(at: Reals) -> Ints:
    """Numbers for loads at these columns and rows: halved across the longer side of what they span until that is
    short."""
    at = _ps(at)
    number = np.zeros(at.shape[1], np.int64)
    todo, count = [np.arange(at.shape[1])], 0
    while todo:
        mine = todo.pop()
        spans = np.ptp(at[:, mine], axis=1)
        side = at[int(spans.argmax()), mine]
        low = side <= np.median(side)
        if spans.sum() <= REACH_PS or min(low.sum(), (~low).sum()) < GROUP:
            number[mine] = count
            count += 1
        else:
            todo += [mine[low], mine[~low]]
    return number


def replicated(netlist: Netlist, packed: Packed, slow: npt.NDArray[np.bool_], at: Reals,
               together: Ints) -> tuple[Netlist, Packed, Reals]:
    """Netlist and packing with copies of the drivers of slow nets, as cells behind all others.

    Parameters  slow: nets on paths that are too long; at: slice columns and rows of all cells; together: a number of
                each cell, the loads with the same number stay on one net
    Returns     both, and columns and rows of the copies: the middles of their loads
    """
    cells, nets, driver = len(netlist.family), netlist.nets, netlist.driver()
    drives = np.bincount(netlist.rows["drives"]["cell"], minlength=cells)
    own = (packed.host == np.arange(cells)) & np.isin(netlist.family, COPIED) & (drives == 1)
    fits = slow & (netlist.fanout() >= LOADS) & (driver >= 0) & own[driver]
    loads = netlist.rows["loads"]
    mine = fits[loads["net"]]
    keys, first = np.unique(loads["net"][mine] * cells + together[loads["cell"][mine]], return_index=True)
    places = at[:, packed.host[loads["cell"][mine][first]]]
    moves = np.full(len(keys), -1, np.int64)        # to which copy loads go, -1 where they stay
    copies: list[int] = []
    middles = []
    bounds = np.flatnonzero(np.diff(keys // cells, prepend=-1, append=-1))
    for a, b in zip(bounds, bounds[1:]):
        here = driver[keys[a] // cells]
        number = groups(places[:, a:b])
        middle = np.stack([np.bincount(number, axis) / np.bincount(number) for axis in places[:, a:b]])
        stays = int(np.abs(_ps(middle - at[:, [here]])).sum(axis=0).argmin())
        for group in np.delete(np.arange(middle.shape[1]), stays):
            moves[a:b][number == group] = len(copies)
            copies.append(int(here))
            middles.append(middle[:, group])
    if not copies:
        return netlist, packed, np.zeros((2, 0))
    keys, nets_of = keys[moves >= 0], nets + moves[moves >= 0]
    added = _Added(np.array(copies, np.int64), cells, nets)

    def loading(rows: Table) -> Table:
        key = rows["net"] * cells + together[rows["cell"]]
        row = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        return added.inputs(rows | {"net": np.where(keys[row] == key, nets_of[row], rows["net"])})

    rows = netlist.rows | {"loads": loading(loads), "drives": added.outputs(netlist.rows["drives"])}
    extended = replace(netlist, rows=rows, family=added.columns(netlist.family), kind=added.columns(netlist.kind),
                   nets=nets + len(copies), copies=np.append(netlist.copies, added.of))
    through = loading(packed.through)
    arcs = np.arange(len(through["cell"])) >= len(packed.through["cell"])       # of copied LUTs, to nets of their own
    through["to_net"] = np.where(arcs, nets + through["cell"] - cells, through["to_net"])
    taken = Packed(added.outputs(packed.starts), through, loading(packed.ends),
                   np.append(packed.host, cells + np.arange(len(copies))))
    return extended, taken, np.stack(middles, axis=1)


@dataclass(frozen=True)
class _Added:
    """Copies of cells, `of` whom, with the next numbers of cells and nets."""

    of: Ints
    cells: int
    nets: int

    def columns(self, column: npt.NDArray) -> npt.NDArray:
        return np.append(column, column[self.of])

    def _again(self, rows: Table) -> tuple[Ints, Ints]:
        """Rows of the copied cells, and of each the number of the copy."""
        order = np.argsort(rows["cell"], kind="stable")
        first, last = (np.searchsorted(rows["cell"][order], self.of, side) for side in ("left", "right"))
        counts = last - first
        again = order[np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())]
        return again, np.repeat(np.arange(len(self.of)), counts)

    def inputs(self, rows: Table) -> Table:
        """Rows of input pins, and again those of the copied cells with the copies in their place."""
        again, number = self._again(rows)
        own = {"cell": self.cells + number}
        return {name: np.append(column, own.get(name, column[again])) for name, column in rows.items()}

    def outputs(self, rows: Table) -> Table:
        """Rows of output pins, of which a copied cell has one at most, and those of the copies on their own nets."""
        again, number = self._again(rows)
        own = {"net": self.nets + number, "cell": self.cells + number}
        return {name: np.append(column, own.get(name, column[again])) for name, column in rows.items()}
