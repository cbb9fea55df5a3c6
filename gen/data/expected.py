"""What a log lets expect of the next one: accesses to rows of its own, and to rows that it does not have.

Where a profile says what parts of the log asked of the rows before them (gen.data.returns), the next samples, as many
as its horizon has, are expected to ask the same of the rows of the whole log, by their rank, and as much of others,
but of these no more than of the log's on average: what goes beyond has no row here. Without, so large a part of the
accesses is to rows that the log does not have as the N accesses have that are the only one to their row, n1 / N
(Good, Biometrika 1953, after Turing), and the rows that it has take the rest by their counts. No row of the log is
expected to be hotter than one that it has more often: where it would be, both are as hot as they are on average. Rows
that the log does not have are alike; by Good and Turing none is hotter than one that it has. Ids of a vocabulary that
have no row share the table's last.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gen.data.profile import Heat
from gen.data.remap import rows_of
from gen.data.returns import Returns, places

if TYPE_CHECKING:
    from gen.data.order import Order
    from gen.data.profile import TableProfile
    from gen.model.recommender import TableSpec

#: Rows, rising, and what a quantity is at each; linear between two of them.
Curve = tuple[NDArray[np.int64], NDArray[np.float64]]
#: Expected accesses are counted in parts of one: so many, fewer where their sum, by the rows of a page, would pass a
#: word.
PARTS, SUM = 1 << 32, 1 << 52


@dataclass(frozen=True, eq=False)
class Expected:
    """Of one table. heat: of its rows, in parts of an access; those of the log are among the first `seen`. unseen: the
    share of the accesses that is to rows or ids that the log does not have. order: in which the log's came, where that
    is known. curves: by what they are of, (knots, values), as gen.planner.in_order has computed them."""

    heat: Heat
    seen: int
    unseen: float
    order: "Order | None" = None
    curves: dict[tuple[str | float, ...], Curve] = field(
        default_factory=dict, repr=False)


def expected(spec: "TableSpec", table: "TableProfile", *, unseen: bool = True) -> Expected:
    """Of the table's rows: the log's ids through the policy that makes rows of them. However many rows there are, the
    ids alone take memory. unseen: False, as if nobody asked for what the log does not have.

    Raises      ValueError: more rows were accessed than there are, an id past them
    """
    table = table.ranking(spec.ids)
    heat = table.heat
    if table.ids is not None and table.counts is not None and len(table.ids):
        rows = rows_of(spec, table.ids, table.ids)
        order = np.argsort(rows, kind="stable")
        first = np.flatnonzero(np.diff(rows[order], prepend=-1))
        counts = np.add.reduceat(table.counts[order], first)
        if spec.ids == "vocabulary" and unseen:
            own = int(counts[-1]) if rows[order[-1]] == spec.rows - 1 else 0
            return _shared(Heat.of(counts[:-1] if own else counts), own, table)
        heat = Heat.of(counts)
    elif heat.touched > spec.rows:
        raise ValueError(f"table {spec.name}: the log accesses {heat.touched:,} rows, the model has {spec.rows:,}")
    others = spec.rows - heat.touched
    if unseen and others and spec.ids == "vocabulary":
        return _shared(heat, 0, table)
    returns = table.returns if spec.ids == "index" else None
    if not unseen or not heat.total or not returns and not (others and _once(heat)):
        return Expected(heat, heat.touched, 0.0)
    levels, each = _of_index(heat, returns, others)
    scaled = Heat.joined(np.append(levels, each), np.append(heat.rows, others))
    return Expected(scaled, heat.touched if each <= levels[-1] else scaled.touched, each * others / scaled.total)


def expected_counts(spec: "TableSpec", counts: NDArray[np.int64], table: "TableProfile") -> NDArray[np.int64]:
    """(rows,) numbers that are larger for rows that are expected to be hotter, and for those of the log than for others
    as hot. counts: of each row's accesses, as gen.data.remap.row_counts has them."""
    table = table.ranking(spec.ids)
    if not table.heat.total:
        return counts
    if spec.ids == "index" and table.returns:
        levels, each = _of_index(table.heat, table.returns, spec.rows - table.heat.touched)
        return np.where(counts > 0, _ranked(table.heat, counts), _beside(levels, each))
    if spec.ids != "vocabulary":
        return counts
    share, levels = _of_vocabulary(table)
    expected = np.where(counts > 0, _ranked(table.heat, counts), 0)
    expected[-1] = _beside(levels, _last(table.heat, levels, share, int(counts[-1])))
    return expected


def _ranked(heat: Heat, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Even numbers, 2 at least, that are larger for rows of more accesses, also where as much is expected of them."""
    return 2 * (len(heat.accesses) - _place(heat, counts))


def _beside(levels: NDArray[np.int64], level: int) -> int:
    """The odd number of a row of which so much is expected, behind those of the log that are as hot."""
    return 2 * (len(levels) - int(np.searchsorted(-levels, -level, side="right"))) + 1


def _shared(others: Heat, own: int, table: "TableProfile") -> Expected:
    """Where ids without a row share one, of which the log has `own` accesses. others: of the other rows."""
    share, levels = _of_vocabulary(table)
    last = _last(table.heat, levels, share, own)
    levels = levels[_place(table.heat, others.accesses)]
    heat = Heat.joined(np.append(levels, last), np.append(others.rows, 1))
    return Expected(heat, heat.touched, share)


def _of_index(heat: Heat, returns: Returns | None, others: int) -> tuple[NDArray[np.int64], int]:
    """Parts of an access that are expected of each row, by its accesses, as the heat has them, and of each of `others`,
    which the log does not have."""
    if not others:
        return _levels(heat, returns, 0.0), 0
    total = _parts(heat) * heat.total
    if returns:
        share = unseen_share(returns, heat.touched, others)
        return _levels(heat, returns, share), max(round(share * total / others), 1)
    share = _once(heat) / heat.total
    lookups = np.append(_parts(heat) * (1 - share) * heat.accesses, share * total / others)
    levels = _falling(lookups, np.append(heat.rows, others))
    return levels[:-1], int(levels[-1])


def unseen_share(returns: Returns, touched: int, others: int) -> float:
    """The share of accesses to `others`, which the log does not have beside `touched` rows: over the horizon, or over
    as many samples as the log has, they are asked for at most as often as the log's on average. So it does not hang
    on whether an id is unused."""
    return min(returns.unseen, others / max(touched * min(returns.horizon, 1.0), 1.0))


def _last(heat: Heat, levels: NDArray[np.int64], share: float, own: int) -> int:
    """Parts of an access that are expected of a vocabulary's last row, which has `own` of the log's."""
    count = round(_parts(heat) * share * heat.total)
    if own:
        place = min(int(np.searchsorted(-heat.accesses, -own)), len(levels) - 1)
        count += round(int(levels[place]) * max(own / int(heat.accesses[place]), 1.0))
    return count


def _of_vocabulary(table: "TableProfile") -> tuple[float, NDArray[np.int64]]:
    """The share of ids without a row, which have one together, so that it is never without an access; and what is
    expected of ids by their accesses, as the heat has them."""
    heat, returns = table.heat, table.returns
    least = 1 / (heat.total + 1)
    share = max(returns.unseen, least) if returns else max(_once(heat), 1) * least
    return share, _levels(heat, returns, share)


def _levels(heat: Heat, returns: Returns | None, share: float) -> NDArray[np.int64]:
    """Parts of an access that are expected of each row, by its accesses, where `share` of all is to others."""
    accesses = heat.accesses.astype(np.float64)
    if returns:
        accesses = np.diff(returns.curve(places(heat.accesses, heat.rows)), prepend=0.0) / heat.rows
    all_accesses = max(float(accesses @ heat.rows), 1e-9)
    return _falling(accesses * ((1 - share) * _parts(heat) * heat.total / all_accesses), heat.rows)


def _falling(wanted: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nearest that do not rise, weighted by rows; 1 at least."""
    return np.maximum(np.rint(_pooled(wanted, rows.astype(np.float64))), 1).astype(np.int64)


@njit(cache=True)
def _pooled(wanted, weights):
    """The values that do not rise and are nearest to `wanted` by weighted least squares: where a value rises above the
    one before it, both get their mean (pool adjacent violators; Ayer et al., Ann. Math. Statist. 1955)."""
    mean, weight, begin, count = np.empty_like(wanted), np.empty_like(wanted), np.empty(len(wanted), np.int64), 0
    for place in range(len(wanted)):
        mean[count], weight[count], begin[count] = wanted[place], weights[place], place
        while count and mean[count] > mean[count - 1]:
            both = weight[count - 1] + weight[count]
            mean[count - 1] += (mean[count] - mean[count - 1]) * (weight[count] / both)
            weight[count - 1] = both
            count -= 1
        count += 1
    pooled, end = np.empty_like(wanted), len(wanted)
    for pool in range(count - 1, -1, -1):
        pooled[begin[pool]:end] = mean[pool]
        end = begin[pool]
    return pooled


def _place(heat: Heat, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the heat has rows with so many accesses; of a number that no row has, the next smaller one."""
    return np.minimum(np.searchsorted(-heat.accesses, -counts), len(heat.accesses) - 1)


def _once(heat: Heat) -> int:
    """Rows of one access."""
    return int(heat.rows[heat.accesses == 1].sum())


def _parts(heat: Heat) -> int:
    """Of an access."""
    return min(PARTS, SUM // max(heat.total, 1))
