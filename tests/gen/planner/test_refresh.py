"""Plans refreshed by new traffic: against rows counted with loops, and plans made afresh."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from gen.data.logs import of_arrays
from gen.data.profiling import profile as profiled
from gen.model.network import Model
from gen.model.recommender import Recommender, TableSpec
from gen.planner.planning import make
from gen.planner.refresh import Residents, in_rows, refresh, words_of
from tests.support.planner_problems import BATCH, COSTS

MODEL = Recommender("m", "", {"one": TableSpec("one", 900, 64), "bags": TableSpec("bags", 700, 64, "modulo"),
                              "far": TableSpec("far", 601, 64, "vocabulary")}, None, BATCH)
VOCABULARIES = {"far": (np.arange(600) * 10**12).astype(np.uint64)}
#: A drive that a batch has time for, and DRAM for a part of the rows.
TIGHT = replace(COSTS, dram_bytes=470_000, drive_s=1e-6, link_s=1e-12, packet_s=COSTS.read_s)
QUICK = {"gap": 0.05, "seconds": 0.2}
NETWORK = Model("small", "", (3, 8, 64), "dot", 3, 64, (8, 1), "relu", "sigmoid")


def drawn(seed, shift=0, samples=3000):
    """shift: by how much ids are turned, so that other rows are hot."""
    g = np.random.default_rng(seed)
    lengths = g.integers(0, 9, samples)
    ids = {"one": (g.zipf(1.2, samples) + shift) % 900, "bags": (g.zipf(1.2, int(lengths.sum())) + shift) % 4000,
           "far": ((g.zipf(1.3, samples) + shift) % 650) * 10**12}
    return profiled(of_arrays(ids, {"bags": np.concatenate([[0], np.cumsum(lengths)])}))


def planned(model=MODEL, costs=TIGHT, **options):
    """A plan of the first log, with the words of its rows."""
    by_row, rows = in_rows(model, drawn(1), VOCABULARIES)
    plan = make(by_row, rows, costs, **{"cards": 2, "levels": 2, "explain": False, **QUICK, **options})
    return replace(plan, model=model), words_of(plan, rows)


@pytest.fixture(scope="module")
def running():
    return planned()


def shifted(seed=2):
    return drawn(seed, shift=40)


def test_rows_of_ids_are_counted(running):
    _, rows = in_rows(MODEL, drawn(1), VOCABULARIES)
    known = drawn(1).tables
    for name, row_of in {"bags": lambda key: key % 700, "far": lambda key: min(key // 10**12, 600)}.items():
        counts = dict.fromkeys(range(MODEL.tables[name].rows), 0)
        for key, count in zip(known[name].ids.tolist(), known[name].counts.tolist(), strict=True):
            counts[row_of(key)] += count
        found = rows.tables[name]
        assert dict(zip(found.ids.tolist(), found.counts.tolist(), strict=True)) == {
            row: count for row, count in counts.items() if count}
        assert found.heat.total == known[name].heat.total and found.pooling == known[name].pooling
    with pytest.raises(ValueError, match="of arrays has no table 'far', which the plan has"):
        in_rows(MODEL, replace(drawn(1), tables={name: known[name] for name in ("one", "bags")}), VOCABULARIES)


def test_the_same_traffic_moves_nothing(running):
    plan, words = running
    found = refresh(plan, words, VOCABULARIES, drawn(1), TIGHT, **QUICK)
    assert found.rows == found.least == found.fresh_rows == 0 and not found.words
    assert found.plan.seconds == pytest.approx(plan.seconds, rel=0.05) and found.stayed_s == found.plan.seconds


@pytest.mark.turns(1, of="searches")
@pytest.mark.parametrize("within", [0.07, 0.1])
def test_new_traffic_moves_what_it_must(running, within):
    plan, words = running
    found = refresh(plan, words, VOCABULARIES, shifted(), TIGHT, within=within, **QUICK)
    assert found.stayed_s > (1 + within) * found.fresh.seconds >= found.plan.seconds
    assert 0 < found.least <= found.rows <= 1.05 * found.least and found.rows < found.fresh_rows
    moved = 0
    for name, table in found.plan.tables.items():
        old, new = words[name], found.words.get(name, words[name])
        assert sorted(old.tolist()) == sorted(new.tolist())     # places change hands, there are no others
        moved += int((old != new).sum()) * len(table.cards)
        assert (table.dram.rows, table.ssd.rows, table.cards) == (
            plan.tables[name].dram.rows, plan.tables[name].ssd.rows, plan.tables[name].cards)
    assert moved == found.rows and len(found.plan.data()) and found.plan.gap >= 0
    other = refresh(plan, words, VOCABULARIES, shifted(), TIGHT, within=within, **QUICK)
    assert other.plan.data() == found.plan.data()
    assert all((other.words[name] == found.words[name]).all() for name in found.words)
    again = refresh(found.plan, words | found.words, VOCABULARIES, shifted(), TIGHT, within=within, **QUICK)
    assert again.rows == 0


@pytest.mark.turns(1, of="searches")
def test_the_fewest_rows_of_an_earlier_limit_are_fewer(running):
    found = [refresh(*running, VOCABULARIES, shifted(), TIGHT, within=within, **QUICK).rows
             for within in (0.07, 0.1, 0.2)]
    assert found == sorted(found, reverse=True) and found[0] > found[-1]


def test_swaps_leave_the_fewest_accesses_on_the_drive():
    """Every choice of k rows of each memory, of a small table."""
    model = Recommender("m", "", {"one": TableSpec("one", 12, 64)}, None, BATCH)
    profile = profiled(of_arrays({"one": np.repeat(np.arange(12), [9, 2, 7, 1, 1, 5, 3, 8, 2, 6, 4, 4])}))
    by_row, rows = in_rows(model, profile, {})
    plan = make(by_row, rows, replace(TIGHT, dram_bytes=140_000), cards=1, levels=2, explain=False)
    table = replace(plan.tables["one"], dram=replace(plan.tables["one"].dram, rows=6),
                    ssd=replace(plan.tables["one"].ssd, rows=6))
    words = np.where(np.arange(12) % 2, 2 << 30, 0).astype(np.uint32) + np.arange(12, dtype=np.uint32) // 2
    found = Residents(replace(plan, tables={"one": table}), "one", words, rows, TIGHT)
    heat, hot, cold = found.heat, np.arange(0, 12, 2), np.arange(1, 12, 2)
    least = [min(heat[cold].sum() - heat[list(enter)].sum() + heat[list(leave)].sum()
                 for enter in combinations(cold, k) for leave in combinations(hot, k)) for k in range(7)]
    seconds = [found.seconds(k) for k in range(found.most + 1)]
    assert found.most == int(np.argmin(least)) == 3
    for k in range(found.most + 1):
        after = found.words_after(k)
        assert heat[after >> 30 == 2].sum() == least[k] and (after != words).sum() == 2 * k
    assert all((later <= earlier + 1e-18).all() for earlier, later in zip(seconds, seconds[1:], strict=False))


def test_out_of_reach_is_a_sentence():
    plan, words = planned(cards=1)
    slow = replace(plan, tables={name: replace(table, cards=(0,), by="whole") for name, table in plan.tables.items()})
    wide = replace(slow, cards=(*plan.cards, replace(plan.cards[0], number=1)))
    with pytest.raises(ValueError, match=r"card 0 takes .* us per batch at least, whichever rows of its tables "
                                         r"change places.* a plan made afresh takes .* 5% more are allowed"):
        refresh(wide, words, VOCABULARIES, shifted(), TIGHT, **QUICK)


@pytest.mark.turns(1, of="searches")
def test_mlp_cards_stay_what_they_are():
    model = replace(MODEL, network=NETWORK)
    plan, words = planned(model, cards=3)
    found = refresh(plan, words, VOCABULARIES, shifted(), TIGHT, within=0.2, **QUICK)
    assert [card.kind for card in found.plan.cards] == [card.kind for card in plan.cards]
    assert found.plan.cards[-1] == plan.cards[-1] and found.plan.seconds <= 1.2 * found.fresh.seconds
    fewer = replace(plan, cards=(*plan.cards[:-1], replace(plan.cards[-1], bottom_s=9.0)))
    with pytest.raises(ValueError, match="1 MLP cards are too few"):
        refresh(fewer, words, VOCABULARIES, shifted(), TIGHT, **QUICK)
