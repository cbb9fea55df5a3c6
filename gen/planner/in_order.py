"""Pages of the drive and rows of DRAM that a batch brings, by the log's own order of accesses where that is known.

gen.planner.costs and gen.planner.window say what accesses bring that are drawn independently by the rows' shares. Where
a profile has kept samples in their order, the same is counted on these, and the quotient of both, cut by cut, is taken
over to the accesses that are expected. Behind the last row that the log has, the quotient of its coldest rows is.
Counted quantities are estimated at fixed cuts (`knots`), made monotone there, and are linear in between. So what a cut
takes does not depend on the other cuts that are asked for, and gen.planner.rowwise can bound it between any two rows.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gen.compiler.tables import stripes
from gen.data.expected import Curve, Expected
from gen.data.order import Order
from gen.data.profile import Heat
from gen.model.recommender import TableSpec
from gen.planner.costs import Costs, drive_reads, in_rounds
from golden.emb.rows import window

PRIOR = 10      # pages or rows, as if so many more had come as they are drawn
BATCHES = 300   # in which fetched rows are counted, at most, evenly over the log
KNOTS = 400     # cuts at which counted quantities are estimated: equal shares of the accesses


def knots(expected: Expected) -> NDArray[np.int64]:
    """Cuts at which counted quantities are estimated, rising: at equal shares of the accesses, and where the rows of
    the log and all rows end."""
    heat, last = expected.heat, 0 if expected.order is None else int(expected.order.ranks.max()) + 1
    return np.unique(np.append(heat.icdf(np.arange(KNOTS + 1) / KNOTS), [0, expected.seen, heat.touched, last]))


def reads(expected: Expected, cuts: NDArray[np.int64], lookups: float, page_rows: int,
          ring_pages: int) -> NDArray[np.float64]:
    """(len(cuts),) pages that a batch is expected to bring from the drive where rows from rank cuts[i] on lie there, as
    gen.planner.costs.drive_reads takes them; not rising with the cut."""
    order = expected.order
    if order is None:
        return drive_reads(expected.heat, cuts, lookups, page_rows, ring_pages)

    def at_knots(at: NDArray[np.int64]) -> NDArray[np.float64]:
        drawn = drive_reads(expected.heat, at, lookups, page_rows, ring_pages)
        found = drawn * _of_pages(order, at, lookups, page_rows, ring_pages) if drawn.any() else drawn
        return np.maximum.accumulate(np.minimum(found, lookups * (1 - expected.heat.cdf(at)))[::-1])[::-1]

    return np.interp(cuts, *_curve(expected, ("reads", lookups, page_rows, ring_pages), at_knots))


def fetches(spec: TableSpec, expected: Expected, lookups: float, costs: Costs) -> Curve:
    """(cuts, rows of a batch that the core fetches where the rows up to each cut lie in DRAM), linear between two cuts
    and not falling."""
    heat, order = expected.heat, expected.order
    # Each of several columns finds nothing of the others; their accesses are kept as those of one bag.
    if order is None or len(spec.looked_up_by) > 1:
        edges = np.cumsum(np.append(0, heat.rows))
        return edges, costs.fetched(spec, heat, edges, lookups)

    def at_knots(at: NDArray[np.int64]) -> NDArray[np.float64]:
        drawn = costs.fetched(spec, heat, at, lookups)
        if not drawn.any():
            return drawn
        counted, accesses = _counted_fetches(order, at, lookups, spec, costs)
        of_log = costs.fetched(spec, order.heat, order.of_log(at), accesses)
        found = drawn * _quotient(counted, of_log, order.batches(order.batch_of(lookups))[1])
        return np.maximum.accumulate(np.minimum(found, lookups * heat.cdf(at)))

    return _curve(expected, ("fetches", lookups, costs.row_beats(spec), costs.preset), at_knots)


def _curve(expected: Expected, key: tuple[str | float, ...],
           at_knots: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> Curve:
    """What `at_knots` gives at the knots, computed once for each key."""
    if key not in expected.curves:
        at = knots(expected)
        expected.curves[key] = at, at_knots(at)
    return expected.curves[key]


def _of_pages(order: Order, cuts: NDArray[np.int64], lookups: float, page_rows: int,
              ring_pages: int) -> NDArray[np.float64]:
    """Pages that the kept samples bring over those of as many independent accesses."""
    counted, accesses = _counted_pages(order, cuts, lookups, page_rows, ring_pages)
    of_log = drive_reads(order.heat, order.of_log(cuts), accesses, page_rows, ring_pages)
    return _quotient(counted, of_log, order.batches(order.batch_of(lookups))[1])


def _counted_pages(order: Order, cuts: NDArray[np.int64], lookups: float, page_rows: int,
                  ring_pages: int) -> tuple[NDArray[np.float64], float]:
    """(pages that the kept samples bring where rows from rank cuts[i] on lie on the drive, accesses), of batches of as
    many samples as a batch of so many lookups has, on average."""
    sizes = [order.batch_of(lookups)]
    touched = [order.touched(cuts, page_rows, sizes[0])]
    while touched[-1].max() > ring_pages // 4 and sizes[-1] > 1:    # parts of a batch, until one fits
        sizes.append(sizes[-1] // 2)
        touched.append(order.touched(cuts, page_rows, sizes[-1]))
    accesses = order.accesses(sizes[0])
    rounds = np.array(sizes[::-1]) * (accesses / sizes[0])
    return in_rounds(np.array(touched[::-1]), rounds, accesses, ring_pages), accesses


def quotients(order: Order | None, cut: int, lookups: float, page_rows: int, spec: TableSpec,
              costs: Costs) -> tuple[float, float]:
    """What the kept samples bring over as many independent accesses, of a table on whose cards rows lie as they lie:
    (pages of the drive, rows that the core fetches). order: the ranks of rows in DRAM are those below `cut`, those of
    the others their places on the drive, behind them. 1 where nothing is known, or nothing is asked for."""
    if order is None:
        return 1.0, 1.0
    ring_pages, found = costs.ring_bytes // costs.page_bytes, [1.0, 1.0]
    batches = order.batches(order.batch_of(lookups))[1]
    counts = np.bincount(order.ranks, minlength=cut)
    if counts[cut:].any():
        cold = order.behind(cut)
        assert cold is not None
        first = np.zeros(1, np.int64)
        counted, accesses = _counted_pages(cold, first, lookups, page_rows, ring_pages)
        pages = np.add.reduceat(counts[cut:], np.arange(0, len(counts) - cut, page_rows))
        found[0] = float(_quotient(counted, drive_reads(Heat.of(pages), first, accesses, 1, ring_pages),
                                   batches)[0])
    if counts[:cut].any() and len(spec.looked_up_by) == 1:
        fetched, accesses = _counted_fetches(order, np.array([cut]), lookups, spec, costs)
        drawn = costs.each_fetched(spec, counts, accesses)[:cut].sum()
        found[1] = float(_quotient(fetched, np.array([drawn]), batches)[0])
    return found[0], found[1]


def _quotient(counted: NDArray[np.float64], drawn: NDArray[np.float64], batches: int) -> NDArray[np.float64]:
    """Of batches; the fewer were expected in all of them, the nearer to 1. Where there is nothing any more the last
    one."""
    there = np.flatnonzero(drawn > 0)
    if not len(there):
        return np.ones(len(drawn))
    found = (counted * batches + PRIOR) / (drawn * batches + PRIOR)
    found[there[-1] + 1:] = found[there[-1]]
    return found


def _counted_fetches(order: Order, cuts: NDArray[np.int64], lookups: float, spec: TableSpec,
                    costs: Costs) -> tuple[NDArray[np.float64], float]:
    """As `_counted_pages`, rows up to rank cuts[i] that the core fetches of a table with all rows in DRAM."""
    core, beats, size = costs.core, costs.row_beats(spec), order.batch_of(lookups)
    count = order.batches(size)[1]
    every = -(-count // BATCHES)

    def fetched() -> NDArray[np.int64]:
        lies = stripes(beats, core.stripe_beats)
        inside = order.ranks % lies.block_rows
        offset = (order.ranks - inside) * beats + inside * (lies.piece_beats or beats)
        each, piece = np.full(len(offset), beats), np.full(len(offset), lies.piece_beats or beats)
        batch, shared, found = order.batches(size)[0], np.ones(len(offset), np.bool_), [np.zeros(0, np.int64)]
        edges = np.concatenate([[0], np.flatnonzero(np.diff(batch)) + 1, [len(batch)]])
        of = batch[edges[:-1]]
        for at in np.flatnonzero((of >= 0) & (of % every == 0)):
            part = slice(edges[at], edges[at + 1])
            source = window(offset[part], each[part], piece[part], shared[part], core.window_beats,
                            core.window_sets)[0]
            found.append(order.ranks[part][source == np.arange(len(source))])
        return np.sort(np.concatenate(found))

    ranks = order.kept((beats, core.window_beats, core.window_sets, size), fetched)
    return np.searchsorted(ranks, cuts) / -(-count // every), order.accesses(size)
