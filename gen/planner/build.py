"""The planner's program for a model, a profile of its log and a device's costs.      Source: SCRec eq. 9 to 12, 22, 26

hot_share, where a table does not say it: the smallest tables, as many as fit the DRAM of all EMB cards
together, may leave the SSD whole (1). Of larger ones those accesses may which fall on rows that the log has more than
once: the others, n1 / N of them, are also what the log says of rows that it does not have (Good and Turing), and
those lie on the SSD.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gen.compress import search
from gen.data.profile import Heat, Profile, TableProfile
from gen.data.remap import ROWS_AT_MOST, rows_of
from gen.model.recommender import Recommender, TableSpec
from gen.planner.costs import Costs, drive_reads, network_seconds, train_seconds
from gen.planner.problem import Item, Problem
from hw.isa import LONGEST_BAG

__all__ = ["STEPS", "Built", "build", "check_cards", "hot_shares"]

#: Into so many equal shares the accesses of a table are cut, at most (eq. 9 to 12).
STEPS = 100


@dataclass(frozen=True, eq=False)
class Built:
    """problem: its items in the order of the model's tables. notes: sentences of what was assumed or left out."""

    problem: Problem
    notes: tuple[str, ...]


def build(model: Recommender, profile: Profile, costs: Costs, *, cards: int, rank: int = 4,
          hot_share: float | None = None, train_share: float | None = None) -> Built:
    """rank: of all tensor trains. hot_share, train_share: of all tables, in the place of what they say.

    Raises      ValueError: a table that the profile does not have, ids past its rows, bags too long or rows too wide
                for the core
    """
    check_cards(model, cards)
    if rank < 1:
        raise ValueError(f"rank = {rank}: must be 1 or more")
    notes, heats = [], {}
    for name, spec in model.tables.items():
        if name not in profile.tables:
            raise ValueError(f"the profile of {profile.source} has no table {name!r}; it has "
                             f"{', '.join(list(profile.tables)[:40])}")
        if spec.rows > ROWS_AT_MOST:
            raise ValueError(f"table {name}: {spec.rows:,} rows; the EMB core tells {ROWS_AT_MOST:,} rows of a memory "
                             "apart")
        longest = int(profile.tables[name].bag_lengths.max(initial=0))
        if longest > LONGEST_BAG:
            raise ValueError(f"table {name}: {profile.source} has a bag of {longest:,} indices; the EMB core takes "
                             f"{LONGEST_BAG:,} at most, so cut such bags in the log")
        heats[name] = _heat(spec, profile.tables[name])
    if profile.sampled < 1:
        notes.append(f"of {profile.source}, {profile.sampling(model.tables)}; rows that the sample missed count as "
                     "never accessed")
    if left := [name for name in profile.tables if name not in model.tables]:
        notes.append(f"tables of the log that the model does not name are left out: {_list(left)}")
    shares = hot_shares(model, heats, (cards - (model.network is not None)) * costs.dram_bytes)
    items: list[Item] = []
    refused: dict[str, list[str]] = {}
    for name, spec in model.tables.items():
        share = hot_share if hot_share is not None else shares[name] if spec.hot_share is None else spec.hot_share
        item, refusal = _item(spec, heats[name], profile.tables[name].pooling * model.batch, model.batch, costs, rank,
                              share, spec.train_share if train_share is None else train_share)
        items.append(item)
        if refusal:
            refused.setdefault(refusal, []).append(name)
    notes += [f"{_list(names)}: {refusal}" for refusal, names in refused.items()]
    network = (0.0,) * 4
    if model.network:
        # What crosses the link are a network's inputs and outputs; that they fill whole beats is not looked at.
        of = model.network
        value_s = 4 * model.batch * costs.link_s
        network = (*network_seconds(costs, of, model.batch), (of.bottom[0] + of.features * of.dim) * value_s,
                   (of.top or of.bottom)[-1] * value_s)
    return Built(Problem(tuple(items), cards, costs.dram_bytes, int(costs.tt_bytes), costs.ssd_bytes, *network),
                 tuple(notes))


def check_cards(model: Recommender, cards: int) -> None:
    """Raises ValueError: too few for what the model needs, whatever the log says."""
    if cards < (2 if model.network else 1):
        raise ValueError(f"cards = {cards}: " + ("a network needs an MLP card and an EMB card, 2 at least"
                                                  if model.network else "must be 1 or more"))


def hot_shares(model: Recommender, heats: Mapping[str, Heat], dram_bytes: int) -> dict[str, float]:
    """The rule above, of every table; dram_bytes: of all EMB cards."""
    found, left = {}, dram_bytes
    for spec in sorted(model.tables.values(), key=lambda spec: spec.bytes):
        left -= spec.bytes
        heat = heats[spec.name]
        once = int(heat.rows[heat.accesses == 1].sum())
        found[spec.name] = 1.0 if left >= 0 or not heat.total else 1 - once / heat.total
    return found


def _heat(spec: TableSpec, table: TableProfile) -> Heat:
    """Of the table's rows: the log's ids through the policy that makes rows of them. However many rows there are, the
    ids alone take memory."""
    if table.ids is not None and table.counts is not None:
        rows = rows_of(spec, table.ids, table.ids)
        if spec.ids == "index":
            return Heat.of(table.counts)
        order = np.argsort(rows, kind="stable")
        first = np.flatnonzero(np.diff(rows[order], prepend=-1))
        return Heat.of(np.add.reduceat(table.counts[order], first) if len(rows) else table.counts)
    if table.heat.touched > spec.rows:
        raise ValueError(f"table {spec.name}: the log accesses {table.heat.touched:,} rows, the model has "
                         f"{spec.rows:,}")
    return table.heat


def _item(spec: TableSpec, heat: Heat, lookups: float, batch: int, costs: Costs, rank: int,
          hot_share: float, train_share: float) -> tuple[Item, str]:
    """The item; and why it has no tensor train, if so."""
    try:
        row_bytes = costs.row_bytes(spec.dim)
    except ValueError as error:
        raise ValueError(f"table {spec.name}: {error}") from None
    steps = min(spec.rows, STEPS)
    rows = heat.icdf(np.arange(steps + 1) / steps) if heat.total else np.zeros(steps + 1, np.int64)
    tt_rows, tt_bytes, tt_s, refusal = np.zeros(1, np.int64), np.zeros(1), 0.0, ""
    if heat.total:
        try:
            tt_s = train_seconds(costs, spec.dim, rank, lookups / batch)
            tt_rows, tt_bytes = search.knots(int(rows[-1]), spec.dim, rank=rank, config=costs.unit)
        except ValueError as error:
            refusal = str(error)
    page_rows = costs.page_bytes // row_bytes
    reads = drive_reads(heat, rows, lookups, page_rows, costs.ring_bytes // costs.page_bytes) \
        if heat.total else np.zeros(steps + 1)
    cold = lookups * (1 - np.arange(steps + 1) / steps)
    words = 4 * (lookups + batch)       # indices and lengths of bags
    vectors = batch * costs.vector_bytes(spec.dim, spec.results)
    return Item(
        spec.name, rows, spec.rows, row_bytes, lookups, costs.dram_s(row_bytes), tt_s, costs.page_s, tt_rows, tt_bytes,
        # A share between two steps counts as the nearer one.
        round(hot_share * steps) / steps, reads, reads * costs.landing_s + cold * costs.dram_s(row_bytes),
        # Both are written and read: by the host and by the core.
        (vectors + words) * (costs.write_s + costs.read_s), int(vectors + words) + costs.spare_bytes(spec.dim),
        train_share=train_share, ssd_bytes=-(-(spec.rows - rows) // page_rows) * costs.page_bytes,
        in_s=words * costs.link_s, out_s=vectors * costs.link_s,
        page_in_s=costs.page_bytes * costs.link_s), refusal


def _list(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
