"""What a plan does with another log than the one it was made of: where its accesses go, how long a batch takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gen.data import joins
from gen.data.order import Order, ordered, ranked
from gen.data.profile import Heat, Profile, TableProfile
from gen.model.recommender import TableSpec
from gen.planner.build import bags_of
from gen.planner.costs import Costs, drive_reads, tt_seconds
from gen.planner.in_order import quotients
from gen.planner.plan import MEMORIES, Held, Plan, PlanTable
from gen.planner.window import joint


def served(plan: Plan, profile: Profile, other: Profile, costs: Costs) -> Held:
    """profile: what the plan was made of; other: the log that is served. Both with ids. Seconds by the planner's costs.

    Raises      ValueError: a log without ids, or with ids past a table's rows
    """
    costs = replace(costs, drive_use=plan.drive_use)
    loads: dict[int, NDArray[np.float64]] = {}
    shares, whole, unseen = {}, np.zeros(3), 0.0
    for name, table in plan.tables.items():
        spec, lookups = plan.model.tables[name], other.tables[name].pooling * plan.batch
        shard = Shard.of(plan, name, lookups, costs)
        counts, ranks, strange = _ranked(spec, profile.tables[name], other.tables[name])
        memory = np.array([0, 1, 0, 2])[np.searchsorted(table.ends, ranks, side="right")]
        places = np.bincount(memory, weights=counts, minlength=3).astype(np.int64)
        cold = memory == MEMORIES.index("ssd")
        _, at = np.unique((ranks[cold] - table.ends[2]) // shard.page_rows, return_inverse=True)
        pages = Heat.of(np.bincount(at, weights=counts[cold]).astype(np.int64))
        brought = 1.0
        if table.joined:
            fetches = shard.joint_fetches([other.tables[part].heat for part in table.joined], costs)
        else:
            order = _order(spec, table, profile.tables[name], other.tables[name])
            brought, again = quotients(order, table.dram.rows, shard.lookups, shard.page_rows, shard.spec, costs)
            fetches = shard.fetches(counts, costs)[memory == MEMORIES.index("dram")].sum() * again
        total = max(places.sum(), 1)
        shares[name] = _shares(places)
        whole, unseen = whole + places / total * lookups, unseen + strange / total * lookups
        load = shard.load(places, pages, float(fetches), costs, brought)
        for card in table.cards:
            loads[card] = loads.get(card, np.zeros(len(load))) + load
    return Held(other.samples, batch_seconds(plan, slowest(loads, costs)),
                float(unseen / max(whole.sum(), 1e-300)), {"": _shares(whole)} | shares)


def slowest(loads: Mapping[int, NDArray[np.float64]], costs: Costs) -> float:
    """Seconds of the slowest EMB card, by the sums of `Shard.load` of each one's tables."""
    return max((float(costs.idle.added(load).max()) for load in loads.values()), default=0.0)


def batch_seconds(plan: Plan, emb_s: float) -> float:
    """Of a batch whose embedding takes emb_s."""
    mlp = [card for card in plan.cards if card.kind == "mlp"]
    return max(emb_s, *(card.seconds for card in mlp), 0.0) + max((card.after_s for card in mlp), default=0.0)


@dataclass(frozen=True)
class Shard:
    """What each card of a table serves. spec: its columns, of joined tables their product; parts: of how many tables
    that is, each of which takes an equal part; batch: its samples; lookups: of such a batch; page_rows: of a page;
    rank: of the tensor train, 0 without one."""

    spec: TableSpec
    batch: int
    lookups: float
    page_rows: int
    rank: int
    parts: int = 1

    @classmethod
    def of(cls, plan: Plan, name: str, lookups: float, costs: Costs) -> "Shard":
        """lookups: of a batch of the plan."""
        table = plan.tables[name]
        parts = table.joined or (name,)
        spec = joins.joined([plan.model.tables[part] for part in parts])
        batch = -(-plan.batch // (len(table.cards) if table.by == "samples" else 1))
        columns = table.columns(spec.dim, table.cards[0])
        spec = replace(spec, dim=columns.stop - columns.start)
        page_rows = plan.page_bytes // costs.row_bytes(spec.dim, spec.row_format)
        return cls(spec, batch, lookups * batch / plan.batch, page_rows, max(table.ranks, default=0), len(parts))

    def dram_bytes(self, rows: int, costs: Costs) -> int:
        """Of so many rows there, or all of the product, indices and pooled vectors."""
        rows = rows if self.parts == 1 else self.spec.rows
        return (rows * costs.row_bytes(self.spec.dim, self.spec.row_format)
                + bags_of(self.spec, self.lookups, self.batch, costs).bytes) // self.parts

    def fetches(self, accesses: NDArray[np.int64], costs: Costs) -> NDArray[np.float64]:
        """(rows,) of a batch, of each row in DRAM, by the accesses to each, in any unit."""
        return costs.each_fetched(self.spec, accesses, self.lookups)

    def joint_fetches(self, heats: Sequence[Heat], costs: Costs) -> float:
        """Of a batch, of all rows of a product of tables with these accesses."""
        share, rows = joint(heats)
        return float(rows @ costs.fetches(self.spec, share, rows, self.lookups))

    def load(self, places: NDArray[np.int64], pages: Heat, fetches: float, costs: Costs,
             brought: float = 1.0) -> NDArray[np.float64]:
        """(5,) seconds of a batch: DRAM, TT, SSD, link to the card and to the host. places: (3,) accesses to DRAM, TT
        and SSD, in any unit; pages: those of the SSD by page; fetches: of rows in DRAM; brought: pages over those that
        independent accesses bring."""
        share = places / max(places.sum(), 1)
        to_dram, to_tt, to_ssd = (self.lookups * share).tolist()
        reads = min(brought * float(drive_reads(pages, np.zeros(1, np.int64), to_ssd, 1,
                                                costs.ring_bytes // costs.page_bytes)[0]), to_ssd)
        spec, bags = self.spec, bags_of(self.spec, to_dram + to_tt + to_ssd, self.batch, costs)
        pooling = self.lookups / (self.batch * len(spec.looked_up_by))
        tt_s = tt_seconds(costs, spec.dim, self.rank, pooling) if self.rank else 0.0
        dram_s = costs.dram_s(spec.dim, spec.row_format)
        return np.array([
            max(bags.seconds + fetches * dram_s, to_dram * costs.core_s(spec.dim)) + to_ssd * dram_s
            + reads * costs.landing_s,
            to_tt * tt_s, float(costs.drive_seconds(np.array(reads), np.array(float(pages.touched)))),
            bags.in_s + reads * costs.page_bytes * costs.link_s,
            bags.out_s]) / self.parts


def _order(spec: TableSpec, table: PlanTable, known: TableProfile, other: TableProfile) -> Order | None:
    """How the other log's accesses come, or as far as that is not known, those of the plan's own: the ranks of rows in
    DRAM, then on the SSD; those in TT left out."""
    own = other.excerpt is None
    order = ordered(spec, known) if own else Order.of(other, ranked(spec, known, _ids(other))[0], other.heat)
    return order and order.placed(table.places(order.ranks))


def _ids(table: TableProfile) -> NDArray[np.uint64]:
    assert table.ids is not None
    return table.ids


def _shares(accesses: NDArray) -> tuple[float, float, float]:
    dram, tt, ssd = (accesses / max(float(accesses.sum()), 1e-300)).tolist()
    return dram, tt, ssd


def _ranked(spec: TableSpec, known: TableProfile,
            other: TableProfile) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """(accesses to each row that the other log asks for, the row's place among all as the bundle orders them; accesses
    to rows or ids that are not known)."""
    if known.ids is None or known.counts is None or other.ids is None or other.counts is None:
        raise ValueError(f"table {spec.name}: without ids it is not known which rows lie where")
    ranks, is_known = ranked(spec, known, other.ids)
    rows, at = np.unique(ranks, return_inverse=True)
    counts = np.zeros(len(rows), np.int64)
    np.add.at(counts, at, other.counts)
    return counts, rows, int(other.counts[~is_known].sum())
