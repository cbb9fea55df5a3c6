"""The planner's program for a model, a profile of its log and a device's costs.      Source: SCRec eq. 9 to 12, 22, 26

The accesses of a table are those that its log lets expect (gen.data.expected), rows that the log does not have among
them. Where the log's rows end a table may be cut, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gen.compress import search
from gen.data.expected import Expected, expected
from gen.data.order import Order, ordered
from gen.data.profile import Profile
from gen.data.remap import ROWS_AT_MOST
from gen.model.recommender import Recommender, TableSpec
from gen.planner import in_order
from gen.planner.costs import Costs, network_seconds, tt_seconds
from gen.planner.plan import DriveUse
from gen.planner.problem import Item, Problem, Sharding
from gen.planner.widths import Errors, allowed, assumed, held_by
from hw.isa import LONGEST_BAG

#: Into so many equal shares the accesses of a table are cut, at most (eq. 9 to 12).
STEPS = 100
#: And the DRAM of a card is cut into so many, at least: the coldest steps of a large table have more rows than that.
DRAM_STEPS = 20
#: So many tables may lie on several cards: those that take the most time or DRAM, where each takes this part of a
#: card's share of the time, or more than a card's DRAM. With more cards as many tables as cards: those behind the first
#: SHARDED must take LESS of a card's share, as whole tables of that size leave gaps on cards that hold few of them.
SHARDED, LEAST, LESS = 32, 0.05, 0.25
#: Up to so many cards a table may lie on any number of them, else on 2, 3, 4, 6, 8, 12 .. and all; those behind the
#: first SHARDED on no more.
ANY = 8
#: Cards of a plan: searches hold arrays of them.
CARDS_MOST = 4096

#: (S + 1,) shares of a table's accesses, and the rows on which they fall, as of Item.
Steps = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Built:
    """problem: its items in the order of the model's tables. ways: of each table, all that its error budget allows:
    those of the problem, and others that are bettered in everything but what they lose. errors: of tables with a
    budget. expected: of each table, by name. notes: sentences of what was assumed or left out. drive_use: as Costs
    has it."""

    problem: Problem
    ways: tuple[tuple[Sharding, ...], ...]
    errors: Mapping[str, Errors]
    expected: Mapping[str, Expected]
    notes: tuple[str, ...]
    drive_use: DriveUse = DriveUse()


def build(model: Recommender, profile: Profile, costs: Costs, *, cards: int, rank: int = 4,
          hot_share: float | None = None, tt_share: float | None = None, unseen: bool = True,
          table_wise: bool = False, errors: Mapping[str, Errors] | None = None,
          orders: Mapping[str, Order | None] | None = None) -> Built:
    """rank: of all tensor trains. hot_share, tt_share: of all tables, in the place of what they say. unseen: False,
    as if no access were to rows that the log does not have. table_wise: no table may lie on several cards. errors: of
    tables with an error budget, by name; those of normal rows where there are none. orders: of the tables, as
    `orders_of` gives them, which takes longest; they are counted where there are none.

    Raises      ValueError: a table that the profile does not have, ids past its rows, bags too long or rows too wide
                for the core
    """
    check_cards(model, cards)
    if rank < 1:
        raise ValueError(f"rank = {rank}: must be 1 or more")
    notes: list[str] = []
    found: dict[str, Expected] = {}
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
        found[name] = replace(expected(spec, profile.tables[name], unseen=unseen),
                              order=ordered(spec, profile.tables[name]) if orders is None else orders.get(name))
    if profile.sampled < 1:
        notes.append(f"of {profile.source}, {profile.sampling(model.tables)}; rows that the sample missed are among "
                     "those that the log does not have")
    if left := [name for name in profile.tables if name not in model.tables]:
        notes.append(f"tables of the log that the model does not name are left out: {_list(left)}")
    lost = {name: (errors or {}).get(name) or assumed(spec) for name, spec in model.tables.items()
            if spec.error_budget is not None}
    every: list[list[tuple[TableSpec, Item]]] = []
    emb_cards = cards - bool(model.network)
    refused: dict[str, list[str]] = {}
    for name, spec in model.tables.items():
        forms = allowed(spec, lost[name], costs) if name in lost else (held_by(costs.unit, spec),)
        steps = _steps(forms[0], found[name], costs)
        made = [_item(each, found[name], steps, profile.tables[name].pooling * model.batch, model.batch, costs, rank,
                      spec.hot_share if hot_share is None else hot_share,
                      spec.tt_share if tt_share is None else tt_share) for each in forms]
        every.append([(each, item) for each, (item, _) in zip(forms, made, strict=True)])
        if made[0][1]:
            refused.setdefault(made[0][1], []).append(name)
    if others := [name for (name, spec), forms in zip(model.tables.items(), every, strict=True)
                  if name not in lost and forms[0][0] != spec]:
        notes.append(f"tensor trains have cores in {every[0][0][0].tt_format}, the one format that the TT unit of "
                     f"{costs.preset} takes: {_list(others)}")
    costs = replace(costs, drive_use=_drive_use([forms[0][1] for forms in every], found, emb_cards, costs))
    every = [[(each, _on_drive(item, found[item.name], costs)) for each, item in forms] for forms in every]
    items = [forms[0][1] for forms in every]
    notes += [f"{_list(names)}: {refusal}" for refusal, names in refused.items()]
    network = (0.0,) * 4
    if model.network:
        # What crosses the link are a network's inputs and outputs; that those fill whole beats which are no features
        # is not looked at.
        of = model.network
        value_s = 4 * model.batch * costs.link_s
        rows, width = (of.features, of.dim) if of.interaction == "dot" else (1, of.features * of.dim)
        features_s = rows * costs.vector_bytes(width, model.features_format) * model.batch * costs.link_s
        network = (*network_seconds(costs, of, model.batch), of.bottom[0] * value_s + features_s,
                   (of.top or of.bottom)[-1] * value_s)
    most = np.ones(len(items), np.int64) if table_wise else heavy(items, emb_cards, costs.dram_bytes)
    ways = tuple(
        tuple(Sharding("whole", 1, item, (spec.row_format, spec.tt_format)) for spec, item in forms)
        + tuple(_shardings(forms, model.batch, found[forms[0][1].name], costs, counts(emb_cards, among)))
        for forms, among in zip(every, most.tolist(), strict=True))
    kept = [_undominated(each) for each in ways]
    return Built(Problem(tuple(each[0].item for each in kept), cards, costs.dram_bytes, int(costs.tt_bytes),
                         costs.ssd_bytes, *network, shardings=tuple(each[1:] for each in kept),
                         formats=tuple(each[0].formats for each in kept)), ways, lost, found, tuple(notes),
                 costs.drive_use)


def _undominated(ways: Sequence[Sharding]) -> tuple[Sharding, ...]:
    """Of ways on as many cards that differ in their formats those that no other one betters in everything, of equals
    the first."""
    kept: list[Sharding] = []
    for way in ways:
        if not any(_betters(other, way) for other in kept):
            kept = [other for other in kept if not _betters(way, other)] + [way]
    return tuple(kept)


def _betters(better: Sharding, way: Sharding) -> bool:
    """Whether a table takes no more of anything in one format than in another, on as many cards and however it is
    split. Then the other is in no need of a bound or a search: a placement with it stays feasible, and takes no longer,
    with the better one in its place."""
    if (better.by, better.count) != (way.by, way.count):
        return False
    one, other = better.item, way.item
    numbers = ("row_bytes", "dram_s", "tt_s", "ssd_s", "bags_s", "bags_bytes", "in_s", "out_s", "page_in_s")
    knots = other.tt_rows
    return (all(getattr(one, name) <= getattr(other, name) for name in numbers)
            and all((getattr(one, name) <= getattr(other, name)).all()
                    for name in ("hot_s", "reads", "drive_s", "landing", "cold_bytes"))
            and one.tt_rows[-1] >= knots[-1]
            and all((np.interp(at, one.tt_rows, one.tt_bytes) <= np.interp(at, knots, other.tt_bytes)).all()
                    for at in (knots, one.tt_rows[one.tt_rows <= knots[-1]])))


def heavy(items: Sequence[Item], cards: int, dram_bytes: int) -> NDArray[np.int64]:
    """On how many cards each table may lie at most: by its time and bytes with all rows in DRAM."""
    seconds = np.array([max(float(item.hot_s[-1]) + item.bags_s, item.in_s, item.out_s) for item in items])
    time = seconds * cards / max(float(seconds.sum()), 1e-300)
    room = np.array([float(item.rows[-1]) * item.row_bytes + item.bags_bytes for item in items]) / max(dram_bytes, 1)
    order = np.argsort(-np.maximum(time, room), kind="stable")
    place = np.argsort(order, kind="stable")
    first, more = (((time > least) | (room > 1)) & (place < many) for least, many in ((LEAST, SHARDED), (LESS, cards)))
    return np.where(first, cards, np.where(more, min(ANY, cards), 1))


def counts(cards: int, most: int) -> list[int]:
    """On how many cards, of so many, a table may lie beside one, which may lie on `most`."""
    return [count for count in range(2, most + 1)
            if count <= ANY or count == cards or count in (count & -count, 3 * (count & -count))]


def _shardings(forms: Sequence[tuple[TableSpec, Item]], whole_batch: int, expected: Expected, costs: Costs,
               on: Sequence[int]) -> Iterator[Sharding]:
    """The table on these numbers of cards, in the formats that it may have. Where each card serves its part of the
    samples, fewer accesses share a page. Where each holds a slice of the columns, each reads all indices, and there are
    no tensor trains."""
    for count in on:
        batch = -(-whole_batch // count)
        for spec, item in forms:
            formats = spec.row_format, spec.tt_format
            lookups = item.lookups * batch / whole_batch
            bags = bags_of(spec, lookups, batch, costs)
            # All parts of a batch bring together what the batch does at least.
            reads = np.maximum(_reads(item.rows, expected, lookups, item.row_bytes, costs), item.reads / count)
            at, fetches = in_order.fetches(spec, expected, lookups, costs)
            if item.fetch_curve is not None:
                fetches = np.maximum(fetches, np.interp(at, *item.fetch_curve) / count)
            yield Sharding("samples", count, _on_drive(replace(
                item, lookups=lookups, ssd_reads=reads, bags_s=bags.seconds, bags_bytes=bags.bytes, in_s=bags.in_s,
                ssd_landing=_landing(reads, item.share, lookups, item.dram_s, costs), out_s=bags.out_s,
                fetch_curve=(at, fetches)), expected, costs, item, count), formats)
            if costs.sliced(spec.dim, count, spec.row_format):
                narrow = replace(spec, dim=spec.dim // count)
                slice = _item(narrow, expected, (item.share, item.rows), item.lookups, whole_batch, costs, 0,
                              item.hot_share, 0.0)[0]
                yield Sharding("columns", count, _on_drive(slice, expected, costs), formats)


def orders_of(model: Recommender, profile: Profile) -> dict[str, Order | None]:
    """Of the model's tables that the profile has."""
    return {name: ordered(spec, profile.tables[name]) for name, spec in model.tables.items() if name in profile.tables}


def check_cards(model: Recommender | None, cards: int) -> None:
    """Raises ValueError: too few for what the model, if there is one, needs, whatever the log says; more than
    CARDS_MOST."""
    network = model is not None and model.network
    if cards < (2 if network else 1):
        raise ValueError(f"cards = {cards}: " + ("a network needs an MLP card and an EMB card, 2 at least"
                                                  if network else "must be 1 or more"))
    if cards > CARDS_MOST:
        raise ValueError(f"cards = {cards}: must be {CARDS_MOST} or fewer")


class Bags(NamedTuple):
    """A table's indices, lengths of bags and pooled vectors, whatever its split: seconds and bytes of DRAM, seconds of
    the link to the card and to the host. Of a batch."""

    seconds: float
    bytes: int
    in_s: float
    out_s: float


def bags_of(spec: TableSpec, lookups: float, batch: int, costs: Costs) -> Bags:
    bags = batch * len(spec.looked_up_by)
    words = 4 * (lookups + bags)        # indices and lengths of bags
    vectors = bags * costs.vector_bytes(spec.dim, spec.results)
    # Vectors are written by the core and read by the link, words the other way round. The vectors of the batch before
    # and the words of the next are there, too, while they cross the link.
    packet_s = costs.beside_s(spec.dim, spec.row_format)
    return Bags(vectors * (costs.write_s + packet_s) + words * (packet_s + costs.read_s),
                int(2 * (vectors + words)) + costs.spare_bytes(spec.dim, spec.row_format), words * costs.link_s,
                vectors * costs.link_s)


def _steps(spec: TableSpec, expected: Expected, costs: Costs) -> Steps:
    """Equal steps, one where the rows that the log has end, and more where a step has a large part of the rows that a
    card's DRAM holds."""
    try:
        card_rows = costs.dram_bytes // costs.row_bytes(spec.dim, spec.row_format)
    except ValueError as error:
        raise ValueError(f"table {spec.name}: {error}") from None
    heat, count = expected.heat, min(spec.rows, STEPS)
    share = np.arange(count + 1) / count
    if not heat.total:
        return share, np.zeros(count + 1, np.int64)
    rows = heat.icdf(share)
    if expected.seen < heat.touched:
        end = float(heat.cdf(expected.seen))
        at = int(np.searchsorted(share, end))
        share, rows = np.insert(share, at, end), np.insert(rows, at, expected.seen)
    ends = np.minimum(rows, card_rows)
    parts = np.minimum(-(-np.diff(ends) * DRAM_STEPS // max(card_rows, 1)), np.diff(ends))
    if not (parts > 1).any():
        return share, rows
    more = np.concatenate([np.linspace(ends[k], ends[k + 1], int(parts[k]) + 1).astype(np.int64)[1:-1]
                           for k in np.flatnonzero(parts > 1)])
    places = np.searchsorted(rows, more)
    return np.insert(share, places, heat.cdf(more)), np.insert(rows, places, more)


def _item(spec: TableSpec, expected: Expected, steps: Steps, lookups: float, batch: int, costs: Costs, rank: int,
          hot_share: float, tt_share: float) -> tuple[Item, str]:
    """The item; and why it has no tensor train, if so. rank: 0: it shall have none."""
    row_bytes = costs.row_bytes(spec.dim, spec.row_format)
    heat = expected.heat
    share, rows = steps
    tt_rows, tt_bytes, tt_s, refusal = np.zeros(1, np.int64), np.zeros(1), 0.0, ""
    if heat.total and rank:
        try:
            tt_s = tt_seconds(costs, spec.dim, rank, lookups / (batch * len(spec.looked_up_by)))
            tt_rows, tt_bytes = search.knots(expected.seen, search.width(spec.dim, rank, config=costs.unit),
                                             rank=rank, config=costs.unit, form=spec.tt_format)
        except ValueError as error:
            refusal = str(error)
    dram_s = costs.dram_s(spec.dim, spec.row_format)
    page_rows, bags = costs.page_bytes // row_bytes, bags_of(spec, lookups, batch, costs)
    reads = _reads(rows, expected, lookups, row_bytes, costs)
    return Item(
        spec.name, rows, spec.rows, row_bytes, lookups, dram_s, tt_s, costs.page_s, tt_rows, tt_bytes,
        # A share between two steps counts as the nearer one.
        float(share[np.argmin(np.abs(share - hot_share))]), reads,
        _landing(reads, share, lookups, dram_s, costs),
        bags.seconds, bags.bytes, tt_share=tt_share,
        ssd_bytes=-(-(spec.rows - rows) // page_rows) * costs.page_bytes,
        in_s=bags.in_s, out_s=bags.out_s, page_in_s=costs.page_bytes * costs.link_s, shares=share,
        fetch_curve=in_order.fetches(spec, expected, lookups, costs), core_s=costs.core_s(spec.dim)), refusal


def _reads(rows: NDArray[np.int64], expected: Expected, lookups: float, row_bytes: int,
           costs: Costs) -> NDArray[np.float64]:
    """By the step from which on rows lie on the SSD, pages of a batch."""
    if not expected.heat.total:
        return np.zeros(len(rows))
    return in_order.reads(expected, rows, lookups, costs.page_bytes // row_bytes, costs.ring_bytes // costs.page_bytes)


def _on_drive(item: Item, expected: Expected, costs: Costs, part_of: Item | None = None, count: int = 1) -> Item:
    """The item with its seconds of the drive. part_of: whose samples are shared out over so many cards, which read
    together what it does at least."""
    if not (costs.die_s or costs.few_s) or not expected.heat.total:
        return item
    at = in_order.knots(expected)
    reads = _reads(at, expected, item.lookups, item.row_bytes, costs)
    if part_of is not None:
        reads = np.maximum(reads, _reads(at, expected, part_of.lookups, item.row_bytes, costs) / count)
    seconds = costs.drive_seconds(reads, _pages(item, at, expected, costs))
    return replace(item, drive_curve=(at, np.maximum.accumulate(seconds[::-1])[::-1]))


def _pages(item: Item, rows: NDArray[np.int64], expected: Expected, costs: Costs) -> NDArray[np.float64]:
    """(len(rows),) pages that are asked for at all where rows from that one on lie on the SSD."""
    return np.maximum(expected.heat.touched - rows, 0) / (costs.page_bytes // item.row_bytes)


def _drive_use(items: Sequence[Item], expected: Mapping[str, Expected], cards: int, costs: Costs) -> DriveUse:
    """Of each card, where the rows with the most accesses per byte lie in the DRAM of all cards."""
    if not (costs.die_s or costs.few_s):
        return DriveUse()
    gains, sizes, tables, reads, pages = [], [], [], [], []
    for j, item in enumerate(items):
        of = expected[item.name]
        at = in_order.knots(of) if of.heat.total else np.zeros(1, np.int64)
        sizes.append(np.diff(at) * float(item.row_bytes))
        gains.append(np.diff(of.heat.cdf(at)) * item.lookups / sizes[-1])
        tables.append(np.full(len(at) - 1, j))
        pages.append(_pages(item, at, of, costs))
        reads.append(costs.flash_reads(_reads(at, of, item.lookups, item.row_bytes, costs), pages[-1]))
    order = np.argsort(-np.concatenate(gains), kind="stable")
    room = cards * costs.dram_bytes - sum(item.bags_bytes for item in items)
    hot = order[np.cumsum(np.concatenate(sizes)[order]) <= room]
    last = np.bincount(np.concatenate(tables)[hot], minlength=len(items))
    read, asked = (sum(float(each[at]) for each, at in zip(of, last.tolist(), strict=True)) for of in (reads, pages))
    return DriveUse(read / (cards * costs.dies), asked / cards)


def _landing(reads: NDArray[np.float64], share: NDArray[np.float64], lookups: float, dram_s: float,
             costs: Costs) -> NDArray[np.float64]:
    """Seconds of DRAM in which pages land and their rows are read."""
    return reads * costs.landing_s + lookups * (1 - share) * dram_s


def _list(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
