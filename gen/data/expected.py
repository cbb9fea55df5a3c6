"""What a log lets expect of the next one: accesses to rows of its own, and to rows that it does not have.

Of N accesses n1 are the only one to their row. So large a part of the accesses that follow, n1 / N, is to rows that the
log does not have (Good, Biometrika 1953, after Turing), and the rows that it has take the rest by their counts. Rows
that the log does not have are alike, and none is hotter than one that it has: where they would be, both are as hot as
they are on average. Ids of a vocabulary that have no row share the table's last.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gen.data.profile import Heat
from gen.data.remap import rows_of

if TYPE_CHECKING:
    from gen.data.profile import TableProfile
    from gen.model.recommender import TableSpec

__all__ = ["Expected", "expected", "expected_counts"]

#: Expected accesses are counted in parts of one: so many, fewer where their sum would pass a word.
PARTS, SUM = 1 << 32, 1 << 61


@dataclass(frozen=True, eq=False)
class Expected:
    """Of one table. heat: of its rows, in parts of an access; the `seen` rows of the log come first. unseen: share of
    the accesses that is to rows or ids that the log does not have."""

    heat: Heat
    seen: int
    unseen: float


def expected(spec: "TableSpec", table: "TableProfile", *, unseen: bool = True) -> Expected:
    """Of the table's rows: the log's ids through the policy that makes rows of them. However many rows there are, the
    ids alone take memory. unseen: False, as if nobody asked for what the log does not have.

    Raises      ValueError: more rows were accessed than there are, an id past them
    """
    heat = table.heat
    if table.ids is not None and table.counts is not None and len(table.ids):
        rows = rows_of(spec, table.ids, table.ids)
        order = np.argsort(rows, kind="stable")
        first = np.flatnonzero(np.diff(rows[order], prepend=-1))
        counts = np.add.reduceat(table.counts[order], first)
        if spec.ids == "vocabulary" and unseen:
            own = int(counts[-1]) if rows[order[-1]] == spec.rows - 1 else 0
            return _shared(Heat.of(counts[:-1] if own else counts), own, table.heat)
        heat = Heat.of(counts)
    elif heat.touched > spec.rows:
        raise ValueError(f"table {spec.name}: the log accesses {heat.touched:,} rows, the model has {spec.rows:,}")
    others = spec.rows - heat.touched
    if not unseen or not others or not _once(heat) and spec.ids != "vocabulary":
        return Expected(heat, heat.touched, 0.0)
    if spec.ids == "vocabulary":
        return _shared(heat, 0, heat)
    share = _once(heat) / heat.total
    levels = _scaled(heat, heat.accesses, share)
    mass, alike, last = _parts(heat) * share * heat.total, others, len(levels)
    while last and mass > alike * levels[last - 1]:
        last -= 1
        mass, alike = mass + float(levels[last]) * int(heat.rows[last]), alike + int(heat.rows[last])
    each = max(round(mass / alike), 1)
    found = Heat.joined(np.append(levels[:last], each), np.append(heat.rows[:last], alike))
    return Expected(found, heat.touched, each * others / found.total)


def expected_counts(spec: "TableSpec", counts: NDArray[np.int64], table: "TableProfile") -> NDArray[np.int64]:
    """(rows,) expected accesses of each row, of those counted; of rows that the log does not have 0, as they are
    alike, but for the last of a vocabulary."""
    if spec.ids != "vocabulary" or not table.heat.total:
        return counts
    share = _strangers(table.heat)
    found = np.where(counts > 0, _scaled(table.heat, counts, share), 0)
    found[-1] += round(_parts(table.heat) * share * table.heat.total)
    return found


def _shared(others: Heat, own: int, ids: Heat) -> Expected:
    """Where ids without a row share one, of which the log has `own` accesses. others: of the other rows."""
    share = _strangers(ids)
    last = round(_parts(ids) * share * ids.total) + (int(_scaled(ids, np.array([own]), share)[0]) if own else 0)
    heat = Heat.joined(np.append(_scaled(ids, others.accesses, share), last), np.append(others.rows, 1))
    return Expected(heat, heat.touched, share)


def _strangers(ids: Heat) -> float:
    """The share of ids without a row, which have one together: it is never without an access."""
    return max(_once(ids), 1) / (ids.total + 1)


def _once(heat: Heat) -> int:
    """Rows of one access."""
    return int(heat.rows[heat.accesses == 1].sum())


def _parts(heat: Heat) -> int:
    """Of an access."""
    return min(PARTS, SUM // max(heat.total, 1))


def _scaled(heat: Heat, counts: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Of accesses in the log, parts of those expected where `share` of all is to other rows."""
    return np.maximum(np.rint(_parts(heat) * (1 - share) * counts), 1).astype(np.int64)
