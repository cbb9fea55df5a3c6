"""What a plan serves until its next refresh: the range of its SSD accesses, and what refreshing sooner is worth.

The profile says what parts of the log asked of the rows before them (gen.data.returns), for as many samples as a plan
is to serve. The planned share of SSD accesses is that of the whole log; its first and its second half, each cut in its
middle, say by how much it may be off.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

import numpy as np

from gen.data.expected import expected, expected_counts, unseen_share
from gen.data.profile import Heat, Profile, TableProfile
from gen.data.returns import Returns, places
from gen.model.recommender import TableSpec
from gen.planner.build import orders_of
from gen.planner.costs import Costs
from gen.planner.in_order import quotients
from gen.planner.plan import Horizon, Plan, PlanTable, Refresh
from gen.planner.served import Shard, batch_seconds, slowest

#: Samples from one refresh to the next, as shares of the log's: those after its cuts over those before.
EVERY = (1 / 15, 1 / 7, 1 / 3, 1.0, 3.0)
#: The planned share may be off by so many times the difference between the log and its halves, or so much of the
#: difference between what is expected and what was counted; and the least and the most that is stated.
HALVES, COUNTED, LEAST, MOST = 1.5, 0.5, 0.02, 0.04


def horizon_of(plan: Plan, profile: Profile, costs: Costs) -> Horizon | None:
    """profile: what the plan was made of, with what it expects. None where the log says nothing of later parts."""
    known = {name: returns for name in plan.tables if (returns := profile.tables[name].returns)}
    if not known:
        return None
    samples, horizon = profile.samples / profile.sampled, next(iter(known.values())).horizon
    whole, *halves = (_from_ssd(plan, profile, {name: returns.spread[at] for name, returns in known.items()})
                      for at in range(3))
    counted = _from_ssd(plan, profile, dict.fromkeys(known))
    off = min(max(HALVES * max(abs(half - whole) for half in halves), COUNTED * abs(plan.from_ssd - counted), LEAST),
              MOST) if plan.from_ssd else 0.0
    costs = replace(costs, drive_use=plan.drive_use)
    in_order = _in_order(plan, profile, costs)
    now = _seconds(plan, profile, in_order, costs)
    planned = max(card.seconds for card in plan.cards if card.kind == "emb")
    every = tuple(
        Refresh(round(share * samples),
                _from_ssd(plan, profile, {name: returns.expecting(share) for name, returns in known.items()}),
                batch_seconds(plan, planned * (_seconds(plan, profile.expecting(share), in_order, costs) / now
                                               if now else 1.0)))
        for share in EVERY)
    return Horizon(round(horizon * samples), max(plan.from_ssd - off, 0.0), min(plan.from_ssd + off, 1.0),
                   every)


def schedule(plan: Plan, within: float) -> int | None:
    """Samples that the plan serves until a batch first takes more than `within` longer than right after a refresh, as
    far as the log says; None where it says nothing."""
    if plan.horizon is None:
        return None
    every = plan.horizon.every
    return max(each.samples for each in takewhile(lambda each: each.seconds <= (1 + within) * every[0].seconds, every))


def _from_ssd(plan: Plan, profile: Profile, returns: Mapping[str, Returns | None]) -> float:
    """The share of all accesses to the SSD by what is expected of tables' rows, or was counted, None; of other tables
    as planned."""
    found = whole = 0.0
    for name, table in plan.tables.items():
        lookups = sum(tier.accesses for tier in (table.dram, table.tt, table.ssd))
        share = table.ssd.accesses / lookups if lookups else 0.0
        if name in returns and lookups and not table.joined:
            share = _cold(plan.model.tables[name], table, profile.tables[name], returns[name], share)
        found, whole = found + share * lookups, whole + lookups
    return found / whole if whole else 0.0


def _cold(spec: TableSpec, table: PlanTable, known: TableProfile, returns: Returns | None, planned: float) -> float:
    """The share of a table's accesses to rows on the SSD, as planned where its ids share rows. known: by which the rows
    were placed; returns: what is expected of them, None: as they were counted."""
    heat = known.ranking(spec.ids).heat
    others = 1 if spec.ids == "vocabulary" else spec.rows - heat.touched
    if spec.ids == "modulo" or heat.touched > spec.rows - (spec.ids == "vocabulary"):
        return planned
    asked = expected_counts(spec, np.append(heat.accesses, 0), known)
    first = int(heat.rows[asked[:-1] > asked[-1]].sum())        # rows that are hotter than those that it lacks
    fast = table.ends[2]
    seen = min(fast, first) + max(fast - first - others, 0)
    lacking = min(max(fast - first, 0), others) / max(others, 1)
    if returns is None:
        return float(1 - heat.cdf(seen))
    at = np.interp(seen, np.append(0, np.cumsum(heat.rows)), np.append(0.0, places(heat.accesses, heat.rows)))
    share = returns.unseen if spec.ids == "vocabulary" else unseen_share(returns, heat.touched, others)
    known_rows = float(returns.curve(np.array([at]))[0]) / max(1 - returns.unseen, 1e-9)
    return float(max(1 - (1 - share) * known_rows - share * lacking, 0.0))


def _in_order(plan: Plan, profile: Profile, costs: Costs) -> dict[str, tuple[float, float]]:
    """Of each table that is not joined, what its samples in order bring, as gen.planner.in_order.quotients has it."""
    found = {}
    for name, order in orders_of(plan.model, profile).items():
        table = plan.tables[name]
        if not table.joined:
            shard = Shard.of(plan, name, profile.tables[name].pooling * plan.batch, costs)
            placed = order and order.placed(table.places(order.ranks))
            found[name] = quotients(placed, table.dram.rows, shard.lookups, shard.page_rows, shard.spec, costs)
    return found


def _seconds(plan: Plan, profile: Profile, in_order: Mapping[str, tuple[float, float]], costs: Costs) -> float:
    """Of a batch of the slowest EMB card, by what the profile expects, the rows where they lie."""
    loads = {card.number: np.zeros(5) for card in plan.cards if card.kind == "emb"}
    for name, table in plan.tables.items():
        spec, known = plan.model.tables[name], profile.tables[name]
        shard = Shard.of(plan, name, known.pooling * plan.batch, costs)
        heat = expected(spec, known).heat
        ends = heat.cdf(np.array(table.ends))
        cold = np.clip(np.cumsum(heat.rows) - table.ends[2], 0, heat.rows)
        pages = Heat.joined(heat.accesses * shard.page_rows, -(-cold // shard.page_rows))
        brought, again = in_order.get(name, (1.0, 1.0))
        if table.joined:
            fetches = shard.joint_fetches([profile.tables[part].heat for part in table.joined], costs)
        else:
            at = costs.fetched(shard.spec, heat, np.array(table.ends), shard.lookups)
            fetches = float(at[0] + at[2] - at[1]) * again
        places = np.array([ends[0] + ends[2] - ends[1], ends[1] - ends[0], 1 - ends[2]]) * (1 << 30)
        for card in table.cards:
            loads[card] += shard.load(places.astype(np.int64), pages, fetches, costs, brought)
    return slowest(loads, costs)
