"""gen.planner.join: which pairs are worth it, bound and placement against every matching of small models."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from gen.data.logs import of_arrays
from gen.data.profiling import profile
from gen.model.recommender import Recommender, TableSpec
from gen.planner.bound import Master, Pairs
from gen.planner.build import build
from gen.planner.choices import Choices, with_levels
from gen.planner.costs import Costs
from gen.planner.join import merged, pairs_of
from gen.planner.plan import Plan
from gen.planner.planning import make
from gen.planner.refresh import refresh
from gen.planner.served import served
from gen.planner.solve import solve

#: Of larger tables than the window keeps.
SAMPLES, BATCH, LEVELS = 40_000, 256, 2
ROWS = {"a": 500, "b": 1200, "c": 3000, "d": 4000, "bag": 60}
DRAM = 26 * 10**8


def costs(dram_bytes=DRAM, drive_s=0.0, **changes):
    """Rows of two lines take hardly longer than those of one."""
    return replace(Costs("smartssd", "tiny", 3e9, {1: 8e-9, 2: 9e-9}, 5.6e-11, 7e-11, 2.2e-6, drive_s, 2.9e-7, 1e-10,
                         1.2e-10, 4096, 1 << 16, dram_bytes, 1 << 22), **changes)


def model(**changes):
    """One index a sample, but for bags; rows of 16 values."""
    specs = {name: TableSpec(name, rows, 16, mode="mean" if name == "bag" else "sum") for name, rows in ROWS.items()}
    return Recommender("m", "", {name: replace(spec, **changes.get(name, {})) for name, spec in specs.items()}, None,
                       BATCH)


@pytest.fixture(scope="module")
def known():
    random = np.random.default_rng(3)
    ids = {name: random.integers(0, rows, SAMPLES) for name, rows in ROWS.items() if name != "bag"}
    ids["bag"] = random.integers(0, 60, 2 * SAMPLES)
    return profile(of_arrays(ids, {"bag": np.arange(SAMPLES + 1) * 2}))


def pairs(known, of=None, c=None):
    of, c = of or model(), c or costs()
    return {pair.names: pair for pair in pairs_of(of, known, build(of, known, c, cards=2), c)}


def matchings(found):
    """All sets of pairs of different tables."""
    for count in range(len(found) + 1):
        for chosen in combinations(found, count):
            names = [name for each in chosen for name in each]
            if len(set(names)) == len(names):
                yield chosen


@pytest.mark.turns(1, of="searches")
@pytest.mark.parametrize(("changes", "wanted"), [
    ({}, 6), ({"a": {"hot_share": 0.5}}, 3), ({"b": {"row_format": "int8"}}, 3), ({"c": {"mode": "max"}}, 3),
    ({"d": {"error_budget": 0.01}}, 3), ({"a": {"results": "float16"}, "b": {"results": "float16"}}, 2)])
def test_pairs_of_tables_that_are_alike(changes, wanted, known):
    found = pairs(known, model(**changes))
    assert len(found) == wanted and not any("bag" in names for names in found)


@pytest.mark.turns(1, of="searches")
def test_pairs_that_are_worth_nothing_are_left_out(known):
    assert not pairs(known, c=costs(row_s={1: 8e-9, 2: 2e-8}))      # two lines take longer than one and one
    assert not pairs(known, c=costs(row_s={1: 8e-9}))               # as wide rows were not measured
    least = costs(1200 * 4000 * 128)                                 # the products of c with d, and b with d are larger
    assert ("c", "d") not in pairs(known, c=least) and ("a", "b") in pairs(known, c=least)


@pytest.mark.turns(1, of="searches")
@pytest.mark.parametrize(("dram_bytes", "cards"), [(DRAM, 1), (DRAM, 2), (9 * 10**8, 2)])
def test_bound_and_plan_against_every_matching(dram_bytes, cards, known):
    """No matching betters the bound; the plan is as good as the best one, and with the pairs of the bound little gap
    is left where one card holds all: that between the steps and cuts between any two rows."""
    of, c = model(), costs(dram_bytes)
    built, best = build(of, known, c, cards=cards), {}
    for chosen in matchings(pairs(known, c=c)):
        problem = with_levels(merged(built, of, chosen, c).problem, LEVELS)
        try:
            best[chosen] = solve(problem, gap=0.0, seconds=0.1).seconds
        except ValueError:      # its products do not fit
            continue
    made, apart = (make(of, known, c, cards=cards, levels=LEVELS, gap=0.0, seconds=0.2, explain=False, join=join)
                   for join in (True, False))
    least = min(best.values())
    assert made.bound <= least * (1 + 1e-9) and made.seconds <= least * 1.02
    assert made.what_if == {"no tables joined (without --join)": (apart.seconds, apart.bound)}
    joined = {table.joined for table in made.tables.values() if table.joined}
    assert bool(joined) == (least < 0.999 * best[()]) and (dram_bytes < DRAM or len(joined) == 2)
    if cards == 1 and dram_bytes == DRAM:
        assert made.gap < 1e-4


def test_a_column_of_two_tables_is_in_the_bound():
    """Two tables of one second each on a card, or one and a half together; three tables: only one pair at a time."""
    choices = Choices(np.arange(3), np.ones(3, np.int64), np.zeros((3, 1), np.int64), np.ones(3, np.int64),
                      np.zeros((3, 1, 8)), np.zeros((3, 1, 8)), np.zeros((3, 1, 1)),
                      np.array([np.inf] * 5 + [10.0, 10.0, 10.0]))
    choices.a_load[:, 0, 0] = 1.0
    load = np.zeros((2, 8))
    load[:, 0] = 1.5
    load[:, 5] = 4.0
    for dram, wanted in ((10.0, 2.5), (2.0, 2.75)):     # half of a product fits: the program's mixture
        cap = replace(choices, cap=np.array([np.inf] * 5 + [dram, 10.0, 10.0]))
        found = Master(cap, Pairs(np.array([[0, 1], [1, 2]]), load)).seconds(1).bound
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
    np.testing.assert_allclose(Master(choices).seconds(1).bound, 3.0)


@pytest.mark.turns(1, of="searches")
def test_the_plan_says_it(known, tmp_path):
    of, c = model(), costs(drive_s=6e-5)
    made = make(of, known, c, cards=2, levels=LEVELS, gap=0.0, seconds=0.1, join=True)
    again = Plan.load(made.save(tmp_path))
    assert again.tables == made.tables
    (note,) = [each for each in made.assumed if each.startswith("joined (--join): ")]
    assert "4 tables, of which each sample has one index, have products that save time of DRAM or link, 6 in" in note
    joined = [table for table in made.tables.values() if table.joined]
    assert len(joined) == 4 and all(table.dram_rows == ROWS[table.name] for table in joined)
    assert all(f"joined with {' '.join(set(table.joined) - {table.name})}" in table.place for table in joined)
    for card in made.cards:
        mine = [table.on_card("dram") for table in made.tables.values() if card.number in table.cards]
        assert card.dram.bytes == sum(tier.bytes for tier in mine)
        np.testing.assert_allclose(card.dram.seconds, sum(tier.seconds for tier in mine))
    for names, (spec, table, _) in ((each.parts, each) for each in made.stored.values() if len(each.parts) > 1):
        bytes = sum(made.tables[name].dram.bytes for name in names)
        assert bytes >= len(table.cards) * spec.rows * c.row_bytes(32)
    assert made.seconds < made.what_if["no tables joined (without --join)"][0]


def test_whole_tables_alone_are_not_joined(known):
    with pytest.raises(ValueError, match="^--join with --table-wise: SCRec's program has no joined tables; leave out "
                                         "one of them$"):
        make(model(), known, costs(), cards=2, table_wise=True, join=True)


@pytest.mark.turns(1, of="searches")
def test_its_own_log_is_served_as_planned_and_moves_no_rows(known):
    """Seconds of a shard of a product are its tables' together, also after a refresh."""
    of, c = model(), costs()
    made = make(of, known, c, cards=2, levels=LEVELS, gap=0.0, seconds=0.1, explain=False, join=True)
    assert sum(bool(table.joined) for table in made.tables.values()) == 4
    np.testing.assert_allclose(served(made, known, known, c).seconds, made.seconds, rtol=1e-3)
    words = {name: np.arange(rows, dtype=np.uint32) for name, rows in ROWS.items()}
    again = refresh(made, words, {}, known, c, gap=0.0, seconds=0.1)
    assert again.rows == 0 and not again.words
    for card, old in zip(again.plan.cards, made.cards, strict=True):
        np.testing.assert_allclose(card.dram.seconds, old.dram.seconds, rtol=1e-3)
        assert abs(card.dram.bytes - old.dram.bytes) < 4
    np.testing.assert_allclose(again.fresh.seconds, made.seconds, rtol=0.02)


@pytest.mark.turns(1, of="searches")
def test_products_of_other_tables_are_written_anew(known):
    of, c, words = model(), costs(), {name: np.arange(rows, dtype=np.uint32) for name, rows in ROWS.items()}
    made = make(of, known, c, cards=1, levels=LEVELS, gap=0.0, seconds=0.1, explain=False, join=True)
    assert refresh(made, words, {}, known, c, gap=0.0, seconds=0.1).fresh_rows == 0
    joined = {table.joined for table in made.tables.values() if table.joined}
    other = next(each for each in ((("a", "b"), ("c", "d")), (("a", "c"), ("b", "d"))) if set(each) != joined)
    tables = {name: replace(table, joined=next((pair for pair in other if name in pair), ()))
              for name, table in made.tables.items()}
    found = refresh(replace(made, tables=tables), words, {}, known, c, within=1.0, gap=0.0, seconds=0.1)
    assert found.fresh_rows == sum(np.prod([ROWS[name] for name in pair]) for pair in joined)
