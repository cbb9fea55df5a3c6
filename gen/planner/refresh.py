"""A new plan from new traffic that moves as few rows as it can.

Every table stays on its cards, and each of its memories keeps its number of rows, so that nothing is laid out anew; the
rows of tensor trains stay what they are. Rows of DRAM and of the SSD change places, as many as gen.planner.moves proves
to be needed for a batch that takes at most `within` more time than that of a plan made afresh. Of k swaps those that
leave the fewest accesses on the SSD are taken: the k hottest rows of the SSD for the k coldest of DRAM.

The model keeps its rows: ids that its vocabulary lacks read the last one, as before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gen.data.expected import expected, expected_counts
from gen.data.order import Order
from gen.data.profile import Heat, Profile, TableProfile
from gen.data.remap import DEVICE_SHIFT, DRAM, ROWS_AT_MOST, SSD, by_heat, numbered, row_counts, rows_of
from gen.model.recommender import Recommender, TableSpec
from gen.planner.costs import Costs
from gen.planner.in_order import quotients
from gen.planner.join import looked_up_once
from gen.planner.moves import fewest
from gen.planner.plan import MEMORIES, Plan, PlanCard, PlanTable, Tier, duration
from gen.planner.planning import LATE, make
from gen.planner.served import Shard
from gen.planner.solve import LAST, LEAST, Infeasible
from gen.planner.work import Deadline

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Refreshed:
    """plan: of the new traffic. words: of each table in which rows move, of all its rows. rows: that are written, on
    all cards together; least: no swaps within the limit write fewer; stayed_s: seconds of a batch if none moved.
    fresh: the plan that was made afresh; fresh_rows: that it would write at least: those which it has in another memory
    or on another card, its cards numbered so that these are fewest."""

    plan: Plan
    words: Mapping[str, NDArray[np.uint32]]
    rows: int
    least: int
    stayed_s: float
    fresh: Plan
    fresh_rows: int


def refresh(plan: Plan, words: Mapping[str, NDArray[np.uint32]], vocabularies: Mapping[str, NDArray[np.uint64]],
            profile: Profile, costs: Costs, *, within: float = 0.05, gap: float = 0.01, seconds: float = 60.0,
            table_wise: bool = False, say: Say | None = None) -> Refreshed:
    """plan, words: what runs now, each row's word. vocabularies: of the tables whose ids are such. profile: of the new
    traffic, with ids. within: part of the time of a plan made afresh, which has the model's hot_share and tt_share and
    with table_wise whole tables alone. gap, seconds: where each search may end.

    Raises      ValueError: no swaps are fast enough; traffic that joined tables cannot serve; a profile without ids or
                with ids past the rows
    """
    say = say or (lambda _: None)
    by_row, rows = in_rows(plan.model, profile, vocabularies)
    for name, table in plan.tables.items():
        if table.joined and not looked_up_once(profile.tables[name]):
            raise ValueError(f"table {name} is joined with others, and not every sample of {profile.source} has one "
                             "index of it: make a new plan")
    ranks = [max(table.ranks) for table in plan.tables.values() if table.ranks]
    fresh = make(by_row, rows, costs, cards=len(plan.cards), levels=3 if ranks else min(plan.levels, 2), gap=gap,
                 seconds=seconds, rank=max(ranks, default=4), tt_gain=0.0, table_wise=table_wise, explain=False,
                 join=not table_wise and any(table.joined for table in plan.tables.values()), say=say)
    mlp = [card for card in plan.cards if card.kind == "mlp"]
    most_s = (1 + within) * fresh.seconds
    emb_s = most_s - max((card.after_s for card in mlp), default=0.0)
    if mlp and mlp[0].seconds > emb_s:
        raise ValueError(f"{len(mlp)} MLP cards are too few: a plan made afresh takes {duration(fresh.seconds)} with "
                         f"{sum(card.kind == 'mlp' for card in fresh.cards)}; plan and compile anew")
    limit = np.maximum(emb_s - costs.idle.seconds, 0.0)
    tables = {name: Residents(plan, name, words[name], rows, costs) for name in plan.tables}
    until = Deadline.of(seconds, max(LAST * seconds, LEAST))
    try:
        found = fewest(list(tables.values()), limit, gap=gap, until=until)
    except Infeasible as reason:
        raise ValueError(f"{reason}: a plan made afresh takes {duration(fresh.seconds)}, and {within:.0%} more are "
                         "allowed; allow more, or plan and compile anew") from None
    swaps = dict(zip(tables, found.swaps, strict=True))
    cards = _cards(plan, tables, swaps, costs)
    room = plan.capacity["dram"]
    moves = f"{found.rows:,} rows change places" if found.rows else "no row has to move"
    fewer = f"; fewer than {found.least:,} do not suffice" if found.least else ""
    notes = (f"refreshed: {moves}{fewer} for {duration(most_s)}, {within:.0%} more than a plan made afresh takes",
             *(f"card {card.number}: rows, indices and pooled vectors take {card.dram.bytes - room:,.0f} bytes more "
               "than its DRAM has" for card in cards if card.dram.bytes > room))
    if until.clock.late:
        notes += (LATE,)
    made = replace(plan, tables={name: tables[name].table_after(swaps[name]) for name in tables}, cards=cards,
                   seconds=_seconds(cards), bound=min(fresh.bound, _seconds(cards)), ablation={}, what_if={},
                   assumed=(*fresh.assumed, *notes), source=profile.source, profile_sha256="", held=None)
    stayed = _cards(plan, tables, dict.fromkeys(tables, 0), costs)
    return Refreshed(made, {name: tables[name].words_after(number) for name, number in swaps.items() if number},
                     found.rows, found.least, _seconds(stayed), fresh, _moved(plan, words, rows, fresh))


class Residents:
    """The rows of a table where they lie, under new traffic; its swaps, as gen.planner.moves takes them.

    words: of each row. profile: of the new traffic, its ids the rows. fetches: of each row in DRAM, of a batch;
    brought: pages over those that independent accesses bring."""

    def __init__(self, plan: Plan, name: str, words: NDArray[np.uint32], profile: Profile, costs: Costs):
        costs = replace(costs, drive_use=plan.drive_use)
        self.table, self.words, self._costs = plan.tables[name], np.asarray(words), costs
        spec = replace(plan.model.tables[name], ids="index")
        asked = profile.tables[name]
        self.shard = Shard.of(plan, name, asked.pooling * plan.batch, costs)
        self.heat, self._unseen = _heat(spec, asked)
        memory, place = self.words >> DEVICE_SHIFT, (self.words & (ROWS_AT_MOST - 1)).astype(np.int64)
        self.places = np.array([self.heat[memory == each].sum() for each in range(len(MEMORIES))], np.int64)
        cold, hot = np.flatnonzero(memory == SSD), np.flatnonzero(memory == DRAM)
        self._pages = np.zeros(int(place[cold].max(initial=-1)) // self.shard.page_rows + 1, np.int64)
        np.add.at(self._pages, place[cold] // self.shard.page_rows, self.heat[cold])
        count = min(len(cold), len(hot))
        entering = cold[np.argsort(-self.heat[cold], kind="stable")[:count]]
        leaving = hot[np.argsort(self.heat[hot], kind="stable")[:count]]
        gain = self.heat[entering] - self.heat[leaving]
        self.entering, self.leaving, self._gain = (each[gain > 0] for each in (entering, leaving, gain))
        self._page = place[self.entering] // self.shard.page_rows
        self.brought = 1.0
        if self.table.joined:       # no row has another place to go to
            heats = [profile.tables[part].heat for part in self.table.joined]
            self.fetches, self.fetched = np.zeros(len(self.words)), self.shard.joint_fetches(heats, costs)
        else:
            # As accesses come once all swaps are done, whatever their number: so none makes anything slower.
            self.brought, again = quotients(self._order(asked), len(hot), self.shard.lookups, self.shard.page_rows,
                                             self.shard.spec, costs)
            self.fetches = again * self.shard.fetches(self.heat, costs)
            self.fetched = float(self.fetches[hot].sum())

    @property
    def cards(self) -> tuple[int, ...]:
        return self.table.cards

    @property
    def most(self) -> int:
        return len(self.entering)

    @property
    def rows(self) -> int:
        return 2 * len(self.cards)

    def seconds(self, swaps: int) -> NDArray[np.float64]:
        return self._load(swaps)[0]

    def _load(self, swaps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(seconds of each card, its accesses to each memory), of a batch."""
        places, pages = self.places.copy(), self._pages.copy()
        gained = int(self._gain[:swaps].sum())
        places[DRAM] += gained
        places[SSD] -= gained
        np.subtract.at(pages, self._page[:swaps], self._gain[:swaps])
        fetches = self.fetched + float((self.fetches[self.entering] - self.fetches[self.leaving])[:swaps].sum())
        return (self.shard.load(places, Heat.of(pages), fetches, self._costs, self.brought),
                self.shard.lookups * places / max(places.sum(), 1))

    def _order(self, asked: TableProfile) -> Order | None:
        """How accesses come, by the places of rows after all swaps: in DRAM, then on the SSD."""
        words = self.words_after(self.most)
        memory, place = words >> DEVICE_SHIFT, (words & (ROWS_AT_MOST - 1)).astype(np.int64)
        at = np.where(memory == DRAM, place, np.where(memory == SSD, place + np.count_nonzero(memory == DRAM), -1))
        assert asked.ids is not None
        order = Order.of(asked, asked.ids.astype(np.int64), asked.heat)
        return order and order.placed(at[order.ranks])

    def words_after(self, swaps: int) -> NDArray[np.uint32]:
        """Of all rows: each that enters has the place of the one that leaves for it."""
        found, enter, leave = self.words.copy(), self.entering[:swaps], self.leaving[:swaps]
        found[enter], found[leave] = self.words[leave], self.words[enter]
        return found

    def table_after(self, swaps: int) -> PlanTable:
        """The plan's table with the new traffic's accesses and seconds."""
        seconds, accesses = self._load(swaps)
        count = len(self.cards)
        tiers = {name: replace(getattr(self.table, name), seconds=count * float(seconds[at]), accesses=float(
            accesses[at]) * (1 if self.table.by == "columns" else count)) for at, name in enumerate(MEMORIES)}
        tiers["dram"] = replace(tiers["dram"], bytes=count * self.shard.dram_bytes(self.table.dram.rows, self._costs))
        whole = self.shard.lookups * (1 if self.table.by == "columns" else count)
        return replace(self.table, **tiers, unseen=self._unseen * whole)


def in_rows(model: Recommender, profile: Profile, vocabularies: Mapping[str, NDArray[np.uint64]]) \
        -> tuple[Recommender, Profile]:
    """Model and profile of its tables with rows in the place of ids.

    Raises      ValueError: a table that it lacks, statistics without ids, an id past the rows
    """
    tables = {}
    for name, spec in model.tables.items():
        table = profile.tables.get(name)
        if table is None:
            raise ValueError(f"the profile of {profile.source} has no table {name!r}, which the plan has")
        if table.ids is None or table.counts is None:
            raise ValueError(f"table {name}: its profile knows how hot rows are, not which; profile the log itself")
        rows, at = np.unique(rows_of(spec, table.ids, vocabularies.get(name)), return_inverse=True)
        counts = np.zeros(len(rows), np.int64)
        np.add.at(counts, at, table.counts)
        # What came back of ids says nothing of rows that several share.
        tables[name] = replace(table, rows=spec.rows, heat=Heat.of(counts), ids=rows.astype(np.uint64), counts=counts,
                               returns=table.returns if spec.ids == "index" else None,
                               aged=table.aged if spec.ids == "index" else None,
                               excerpt=table.excerpt and replace(table.excerpt, places=np.append(at, len(rows))[
                                   table.excerpt.places]))
    return (replace(model, tables={name: replace(spec, ids="index") for name, spec in model.tables.items()}),
            replace(profile, tables=tables, extras={}))


def words_of(plan: Plan, profile: Profile) -> dict[str, NDArray[np.uint32]]:
    """Of a plan without tensor trains, the words that its bundle gives to rows. profile: its own, of in_rows."""
    found = {}
    for name, table in plan.tables.items():
        order = _order(plan.model.tables[name], profile.tables[name])
        found[name] = numbered(table.devices(order), order)
    return found


def _heat(spec: TableSpec, table: TableProfile) -> tuple[NDArray[np.int64], float]:
    """((rows,) accesses that are expected of each row, in parts of one; the share of all that is to rows which the
    log lacks, which are alike)."""
    of, found = expected(spec, table), np.zeros(spec.rows, np.int64)
    found[_order(spec, table)[:of.heat.touched]] = np.repeat(of.heat.accesses, of.heat.rows)
    return found, of.unseen


def _order(spec: TableSpec, table: TableProfile) -> NDArray[np.int64]:
    """Rows by what is expected of them, of a profile whose ids they are."""
    own = replace(spec, ids="index")
    return by_heat(expected_counts(own, row_counts(own, table), table))


def _cards(plan: Plan, tables: Mapping[str, Residents], swaps: Mapping[str, int], costs: Costs) -> tuple[PlanCard, ...]:
    """The plan's cards with what their tables take."""
    found = []
    for card in plan.cards:
        mine = [name for name, table in tables.items() if card.number in table.cards]
        if card.kind == "emb":
            seconds = costs.idle.added(sum((tables[name].seconds(swaps[name]) for name in mine), np.zeros(5)))
            shards = [tables[name].table_after(swaps[name]) for name in mine]
            tiers = {name: replace(Tier.sum([table.on_card(name) for table in shards]), seconds=float(each))
                     for name, each in zip(MEMORIES, seconds, strict=False)}
            slowest = int(np.argmax(seconds))
            card = replace(card, dram=tiers["dram"], tt=tiers["tt"], ssd=tiers["ssd"], in_s=float(seconds[3]),
                           out_s=float(seconds[4]), binds=(*MEMORIES, "in", "out")[slowest] if seconds[slowest] else "")
        found.append(card)
    return tuple(found)


def _seconds(cards: Sequence[PlanCard]) -> float:
    """Of a batch."""
    return max(card.seconds for card in cards) + max(card.after_s for card in cards)


def _moved(plan: Plan, words: Mapping[str, NDArray[np.uint32]], profile: Profile, fresh: Plan) -> int:
    """Rows that another plan of the profile, whose ids are rows, has where they are not now, on all its cards together,
    those of products among them; the cards are numbered so that there are fewest."""
    whole, stay, known = 0, np.zeros((len(plan.cards), len(fresh.cards)), np.int64), plan.stored
    for name, (spec, then, parts) in fresh.stored.items():
        whole += spec.rows * len(then.cards)
        if name not in known:
            continue
        now, same = known[name].table, spec.rows
        if len(parts) == 1:
            device = then.devices(_order(spec, profile.tables[name]))
            same = int(np.count_nonzero(device == words[name] >> DEVICE_SHIFT))
        for old in now.cards:
            for new in then.cards:
                stay[old, new] += same * (now.columns(spec.dim, old) == then.columns(spec.dim, new))
    return whole - _most(stay)


def _most(stay: NDArray[np.int64]) -> int:
    """The largest sum of entries, at most one of each row and column: the linear program of an assignment, whose
    vertices are whole."""
    from highspy import Highs

    solver = Highs()
    solver.silent()
    chosen = np.array([[solver.addVariable(0, 1) for _ in row] for row in stay])
    for line in (*chosen, *chosen.T):
        solver.addConstr(sum(line) <= 1)
    solver.maximize(sum((chosen * stay).flat))
    taken = np.array(solver.getSolution().col_value).reshape(stay.shape)
    return int(stay[taken > 0.5].sum())
