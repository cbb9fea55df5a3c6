"""Small tables joined into products (MicroRec, MLSys 2021), as columns of the planner's program that cover two tables.

A sample that looks each of two tables up once reads one row of their product (gen.data.joins) in the place of one of
each: one request, and for narrow rows fewer beats of vectors; DRAM holds a row for each pair of rows. The linear
program of gen.planner.bound has a column for each such pair, so its bound holds for placements with products, too. On
several cards by samples a product takes no less of anything, so that its column on one card bounds these as well. A
matching by the program's prices says which tables are joined; the products are then tables like others to the search.

Pairs are left out that cannot be (gen.data.joins.unfit, a product past a card's DRAM, rows past the core's), and those
that save time of neither DRAM nor the link to the host. Of more than MOST tables those of the fewest rows are paired.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from gen.data import joins
from gen.data.expected import Expected
from gen.data.profile import Heat, Profile, TableProfile
from gen.model.recommender import Recommender, TableSpec
from gen.planner.bound import Master, Pairs
from gen.planner.build import Built, bags_of, counts, heavy
from gen.planner.choices import DRAM, DRAM_S, EVERY_TIME, IN_S, LOADS, OUT_S, Choices
from gen.planner.costs import LINE_BYTES, Costs
from gen.planner.problem import Item, Problem, Sharding
from gen.planner.window import joint

#: Tables that may be joined, the smallest.
MOST = 64
#: Of the DRAM of all cards, what products may take, as it is tried: full cards are hard to share out.
ROOMS = (0.9, 0.6, 0.3)
SAFE = 1e-9         # of a bound: what rounding of its sums may be
LEANING = 1e-3      # of the prices, those of every time: of products as cheap those that spare more


@dataclass(frozen=True, eq=False)
class Pair:
    """Two tables, by their numbers, and their product whole on a card. specs: of both."""

    tables: tuple[int, int]
    specs: tuple[TableSpec, TableSpec]
    item: Item

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.specs)

    @property
    def load(self) -> NDArray[np.float64]:
        """(LOADS,) of its card."""
        found, item = np.zeros(LOADS), self.item
        found[DRAM_S] = item.hot_s[-1] + item.bags_s
        found[IN_S], found[OUT_S] = item.in_s, item.out_s
        found[DRAM] = item.total_rows * item.row_bytes + item.bags_bytes
        return found


def pairs_of(model: Recommender, profile: Profile, built: Built, costs: Costs) -> tuple[Pair, ...]:
    """Those of a model that are worth a column. built: its program."""
    problem, items = built.problem, built.problem.items
    heats = [built.expected[item.name].heat for item in items]
    able = [j for j, (name, spec) in enumerate(model.tables.items())
            if looked_up_once(profile.tables[name]) and spec.error_budget is None and items[j].hot_share == 1]
    able = sorted(able, key=lambda j: items[j].total_rows)[:MOST]
    specs, found = list(model.tables.values()), []
    for i, j in combinations(sorted(able), 2):
        both = specs[i], specs[j]
        if joins.unfit(both) or not _wide_enough(joins.joined(both), costs):
            continue
        pair = Pair((i, j), both, _product(both, [heats[k] for k in (i, j)], model.batch, costs))
        dram_s = sum(items[k].hot_s[-1] + items[k].bags_s for k in (i, j))
        saves = pair.load[DRAM_S] < dram_s or pair.load[OUT_S] < items[i].out_s + items[j].out_s
        if saves and pair.load[DRAM] <= problem.dram_bytes:
            found.append(pair)
    return tuple(found)


def looked_up_once(table: TableProfile) -> bool:
    """Whether each sample of the log has one index of it."""
    return bool((table.bag_lengths[table.bag_samples > 0] == 1).all()) and table.heat.total > 0


def _wide_enough(spec: TableSpec, costs: Costs) -> bool:
    """Whether the core takes rows as wide, and their time is known."""
    try:
        return -(-costs.row_bytes(spec.dim, spec.row_format) // LINE_BYTES) in costs.row_s
    except ValueError:
        return False


def _product(specs: Sequence[TableSpec], heats: Sequence[Heat], batch: int, costs: Costs) -> Item:
    """The product with all rows in DRAM, of which there is one way: no step. heats: of the tables; batch: of the
    samples that it serves."""
    spec, (share, rows) = joins.joined(specs), joint(heats)
    bags = bags_of(spec, batch, batch, costs)
    fetches = rows @ costs.fetches(spec, share, rows, batch)
    return Item(spec.name, np.array([spec.rows]), spec.rows, costs.row_bytes(spec.dim, spec.row_format), batch,
                costs.dram_s(spec.dim, spec.row_format), 0.0, costs.page_s, np.zeros(1, np.int64), np.zeros(1),
                bags_s=bags.seconds, bags_bytes=bags.bytes, in_s=bags.in_s, out_s=bags.out_s, shares=np.ones(1),
                fetch_curve=(np.array([spec.rows]), np.array([fetches])), core_s=costs.core_s(spec.dim))


def bound(problem: Problem, pairs: Sequence[Pair]) -> float:
    """Seconds of a batch that no placement betters, whichever of the pairs are joined; the wait for the drive left
    out."""
    networks, choices = problem.before_s > 0 or problem.after_s > 0, Choices.of(problem)
    found = np.inf
    for cards in (range(1, problem.cards) if networks else (problem.cards,)) if choices.possible else ():
        others = max(problem.cards - cards, 1)
        seconds = Master(choices, _columns(pairs)).seconds(cards).bound
        found = min(found, max(problem.before_s / others, seconds) + problem.after_s / others)
    return found * (1 - SAFE)


def _columns(pairs: Sequence[Pair]) -> Pairs:
    return Pairs(np.array([pair.tables for pair in pairs], np.int64), np.array([pair.load for pair in pairs]))


def matchings(problem: Problem, pairs: Sequence[Pair], cards: int) -> Iterator[tuple[Pair, ...]]:
    """Pairs of different tables that save the most by the prices of the linear program on so many EMB cards, of all
    whose products take at most a part of their DRAM; each once."""
    choices = Choices.of(problem)
    prices = Master(choices, _columns(pairs)).seconds(cards).prices + LEANING / cards * EVERY_TIME
    cost, bytes = choices.cheapest(prices)[0], np.array([pair.load[DRAM] for pair in pairs])
    saved = np.array([cost[list(pair.tables)].sum() - pair.load @ prices for pair in pairs])
    seen = set()
    for part in ROOMS:
        chosen = _matching(pairs, saved, bytes, part * cards * problem.dram_bytes)
        if chosen and chosen not in seen:
            seen.add(chosen)
            yield tuple(pairs[at] for at in chosen)


def _matching(pairs: Sequence[Pair], saved: NDArray[np.float64], bytes: NDArray[np.float64],
              room: float) -> tuple[int, ...]:
    """The pairs of different tables that save most, of at most `room` bytes together; of those that save as much, the
    fewest bytes."""
    from highspy import Highs

    solver = Highs()
    solver.silent()
    value = saved / max(float(saved.max(initial=0.0)), 1e-300) - 1e-3 * bytes / max(room, 1.0)
    worth = [at for at in range(len(pairs)) if value[at] > 0]
    chosen = {at: solver.addBinary(obj=float(value[at])) for at in worth}
    if not chosen:
        return ()
    for table in {table for at in worth for table in pairs[at].tables}:
        solver.addConstr(sum(chosen[at] for at in worth if table in pairs[at].tables) <= 1)
    solver.addConstr(sum(chosen[at] * float(bytes[at] / max(room, 1.0)) for at in worth) <= 1)
    for option, most in (("mip_rel_gap", 1e-3), ("mip_max_nodes", 1000), ("threads", 1)):
        solver.setOptionValue(option, most)
    solver.maximize()
    values = np.array(solver.getSolution().col_value)
    return tuple(at for at, x in zip(worth, values, strict=True) if x > 0.5)


def merged(built: Built, model: Recommender, names: Sequence[Sequence[str]], costs: Costs) -> Built:
    """The program of a model with products in the place of the tables that they are made of, behind all others. names:
    of the tables of each."""
    gone = {name for each in names for name in each}
    joined, batch = [tuple(model.tables[name] for name in each) for each in names], model.batch
    heats = [[built.expected[name].heat for name in each] for each in names]
    problem, kept = built.problem, [j for j, item in enumerate(built.problem.items) if item.name not in gone]
    made = [_product(*each, batch, costs) for each in zip(joined, heats, strict=True)]
    items = (*(problem.items[j] for j in kept), *made)
    cards = problem.cards - bool(model.network)
    most = heavy(items, cards, problem.dram_bytes)[len(kept):].tolist()
    ways = [tuple(_ways(specs, of, item, batch, costs, counts(cards, among)))
            for specs, of, item, among in zip(joined, heats, made, most, strict=True)]
    expected: Mapping[str, Expected] = {**built.expected, **{
        item.name: Expected(Heat(np.ones(1, np.int64), item.rows), item.total_rows, 0.0) for item in made}}
    shardings = (*(problem.ways(j)[1:] for j in kept), *(each[1:] for each in ways))
    formats = (*(problem.ways(j)[0].formats for j in kept), *(each[0].formats for each in ways))
    return replace(built, problem=replace(problem, items=items, shardings=shardings, formats=formats),
                   ways=(*(built.ways[j] for j in kept), *ways), expected=expected)


def _ways(specs: Sequence[TableSpec], heats: Sequence[Heat], item: Item, batch: int, costs: Costs,
          on: Sequence[int]) -> Iterator[Sharding]:
    """The product whole on a card, and by samples on these numbers of cards."""
    formats = specs[0].row_format, specs[0].tt_format
    yield Sharding("whole", 1, item, formats)
    for count in on:
        yield Sharding("samples", count, _product(specs, heats, -(-batch // count), costs), formats)
