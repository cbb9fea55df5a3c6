"""Detailed placement: what lies on the longest paths moves, again and again.

Hops pull their driver and their sink together, the harder the longer the longest path over them is, and what they pull
is held where it is: each time a system of equations over all objects on long paths. Where bins come to be too full, all
is spread again.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from fpga.synth.timing.delays import Family
from fpga.synth.timing.place import Design, Objects, spread
from fpga.synth.timing.reproducible import falling, solved
from fpga.synth.timing.sites import Sites, Window, everywhere

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

REFINEMENTS = 100   # in a phase
PATIENCE = 30       # refinements without a shorter longest path, or, with the same one, without a shorter long one
# First many long paths pull, then few. Of a phase: the share of the ends that have shorter paths than what counts as
# long, so that a few which cannot move hide no others; how much shorter, of that, a path is that pulls e-fold less; and
# whether a block is pulled by whole paths, or by its own hops alone, halfway to their other ends.
PHASES = (0.9999, 1 / 25, False), (0.99999, 1 / 60, False), (0.99999, 1 / 60, True)
NEAR = 0.75         # of what counts as long: hops of paths above pull
HELD = 0.02         # how hard an object is held, where a hop on the longest path pulls with 1
STEP = 0.4          # of the way to where the forces are equal
SHORT = 2.0, 6.0    # columns and rows below which a hop's pull grows with its length
BLOCK_PULL = 0.01   # of a block that moves, at least
CROWDED = 0.03      # of the logic may come to be more than its bin holds
BIN = 4, 12         # slice columns and rows of a bin


def filled(items: Objects, at: Reals, place: Window) -> tuple[Reals, float]:
    """Fill of a window's slices by bins of about BIN, 1 where LUTs or registers take all of them; and the share of the
    logic above that. at: columns and rows of the objects."""
    sides = ([place.left, place.left + place.width], [place.bottom, place.bottom + place.height])
    mine = items.block == Family.OTHER
    bins = max(1, round(place.width / BIN[0])), max(1, round(place.height / BIN[1]))
    slices = [np.histogram2d(at[0, mine], at[1, mine], bins=bins, range=sides, weights=each[mine])[0]
              for each in (items.luts, items.ffs)]
    fill = np.maximum(*slices) * (bins[0] * bins[1]) / (place.width * place.height)
    return fill, float(np.maximum(fill - 1, 0).sum() / max(fill.sum(), 1e-9))


def _moved(place: Reals, a: Ints, b: Ints, weight: Reals, free: npt.NDArray[np.bool_], short: float) -> \
        tuple[Reals, Reals, Reals]:
    """How far objects move in one coordinate to where the pulls of hops and what holds them are equal, those that are
    free; how hard each is pulled, and how far the middle of what pulls is."""
    count = len(place)
    pull = weight / np.maximum(np.abs(place[a] - place[b]) / short, 1.0)
    half = csr_array(coo_array((pull, (a, b)), (count, count)))
    joined = half + half.T
    pulled = np.asarray(joined.sum(axis=1)).ravel()
    middle = joined @ place / np.maximum(pulled, 1e-12) - place
    diagonal = pulled + np.where(free, HELD, 1e6)
    move = solved(diagonal, joined, np.where(free, pulled * middle, 0.0), np.zeros(count), tolerance=1e-2, steps=30)
    return move, pulled, middle


def refined(design: Design, at: Reals, place: Window, say: Callable[[str], None] = lambda line: None) -> Reals:
    """Columns and rows of objects with the shortest longest path that was seen; at most CROWDED of the logic is more
    than its bin holds, or what was at first.

    Parameters  at: columns and rows of objects, blocks on their sites
    """
    for phase in PHASES:
        at = _phase(design, at, place, *phase, say)
    return at


def _phase(design: Design, at: Reals, place: Window, quantile: float, near: float, whole: bool,
           say: Callable[[str], None]) -> Reals:
    items, graph, at = design.objects, design.graph, at.copy()
    free = items.block == Family.OTHER
    low = np.array([place.left, place.bottom])
    high = low + np.array([place.width, place.height])
    limit = max(CROWDED, filled(items, at, place)[1])
    sites = Sites(items.block, items.sites, at, everywhere())
    driver, cell = graph.hops()
    from_, to = items.of[driver], items.of[cell]
    moves = (driver >= 0) & (from_ != to)
    best, best_ps, since = at.copy(), (np.inf, np.inf), 0
    for number in range(REFINEMENTS):
        times = design.times(at)
        long = float(np.quantile(times.ends[np.isfinite(times.ends)], quantile))
        found_ps = float(times.ends.max()), long
        if found_ps < best_ps:
            best, best_ps, since = at.copy(), found_ps, number
        if number - since > PATIENCE:
            break
        share = np.minimum(graph.longest(times) / long, 1.0)
        pulls = moves & (share > NEAR)
        weight = falling((1 - share[pulls]) / near)
        mine, ends = np.unique(np.concatenate([from_[pulls], to[pulls]]), return_inverse=True)
        a, b = ends.reshape(2, -1)
        pull, wanted = np.zeros(len(free)), at.copy()
        for axis in (0, 1):
            move, pulled, middle = _moved(at[axis, mine], a, b, weight, free[mine] | whole, SHORT[axis])
            blocks = ~free[mine]
            pull[mine[blocks]] = pulled[blocks]
            # Halfway: two that pull each other would change places.
            wanted[axis, mine[blocks]] += (move if whole else middle / 2)[blocks]
            at[axis, mine[~blocks]] = np.clip(at[axis, mine] + STEP * move, low[axis], high[axis])[~blocks]
        sites.move(at, np.where(pull > BLOCK_PULL, pull, 0.0), wanted, HELD)
        if filled(items, at, place)[1] > limit:
            at[0, free], at[1, free] = spread(at[0, free], at[1, free], items.area[free], place)
        if number % 25 == 0:
            say(f"refinement {number + 1} of {REFINEMENTS}: {best_ps[0]:.0f} ps")
    return best
