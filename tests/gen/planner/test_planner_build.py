"""From a log to the planner's program and back to rows, counted by hand beside it."""

from dataclasses import replace

import numpy as np
import pytest

from gen.compress import search
from gen.data.logs import of_arrays
from gen.data.profile import Heat, Profile, TableProfile
from gen.data.profiling import profile
from gen.data.remap import rows_of
from gen.model.network import Model
from gen.model.recommender import Recommender, TableSpec
from gen.planner import planning
from gen.planner.assume import model_of
from gen.planner.build import build
from gen.planner.plan import MEMORIES
from gen.planner.planning import ALONE, HALF, WHOLE, make
from gen.planner.problem import Idle
from gen.planner.solve import Infeasible, NotFound, solve
from tests.support.planner_problems import BATCH, COSTS, DRIVE, FREE_LINK, SAMPLES, brute, drawn, seconds


@pytest.mark.turns(1, of="searches")
@pytest.mark.parametrize("longest", [65_536, 65_537])
def test_a_bag_that_the_core_does_not_take_is_refused_before_anything_is_planned(longest):
    random = np.random.default_rng(1)
    lengths = np.array([3, longest, 0])
    log = of_arrays({"t": random.integers(0, 50, lengths.sum())}, {"t": np.concatenate([[0], np.cumsum(lengths)])})
    model = Recommender("m", "", {"t": TableSpec("t", 50, 16)}, None, 8)
    if longest == 65_536:
        assert build(model, profile(log), COSTS, cards=1).problem.items
        return
    with pytest.raises(ValueError, match="^table t: .* has a bag of 65,537 indices; the EMB core takes 65,536 at most"):
        build(model, profile(log), COSTS, cards=1)


@pytest.mark.turns(1, of="searches")
def test_a_row_of_the_drive_takes_its_share_of_a_page(known):
    """Rows of 1,408 bytes: two in a page of 4,096."""
    wide = Recommender("m", "", {"one": TableSpec("one", 900, 352)}, None, BATCH)
    costs = replace(COSTS, row_s={22: 5e-8}, ssd_bytes=450 * 4096)
    (item,) = build(wide, known, costs, cards=1).problem.items
    assert item.row_bytes == 1408 and item.cold_bytes[0] == 450 * 4096 and item.cold_bytes[0] > 900 * 1408
    plan = make(wide, known, costs, cards=1, levels=1, explain=False)
    assert plan.tables["one"].ssd.bytes == plan.cards[0].ssd.bytes == 450 * 4096 and plan.cards[0].full == ("ssd",)
    with pytest.raises(Infeasible):
        make(wide, known, replace(costs, ssd_bytes=450 * 4096 - 1), cards=1, levels=1, explain=False)


def by_hand(counts, is_vocabulary):
    """(rows,) accesses that are expected of as many."""
    total, once, unseen = counts.sum(), np.count_nonzero(counts == 1), np.count_nonzero(counts == 0)
    share = once / (total + 1) if is_vocabulary else once / total
    found = (1 - share) * counts
    if is_vocabulary:
        found[-1] += share * total
    else:
        found[counts == 0] = share * total / max(unseen, 1)
        for most in (1, 2, 3):
            if found[counts == 0].max(initial=0) > found[counts == most].min(initial=np.inf):
                found[counts <= most] = found[counts <= most].mean()
    return found


def test_items_are_what_the_log_says(log, known, model):
    ids, _ = log
    problem = build(model, known, COSTS, cards=3).problem
    assert (problem.cards, problem.dram_bytes, problem.bottom_s, problem.top_s) == (3, 4 << 30, 0, 0)
    seen = {"one": ids["one"], "bags": ids["bags"] % 700, "far": np.unique(ids["far"], return_inverse=True)[1]}
    for item in problem.items:
        counts = np.bincount(seen[item.name], minlength=model.tables[item.name].rows)
        wanted = np.sort(by_hand(counts, item.name == "far"))[::-1]
        assert item.rows[0] == 0 and item.rows[-1] == np.count_nonzero(wanted)
        for share, rows in zip(item.share, item.rows.tolist(), strict=True):
            assert wanted[:rows].sum() >= share * counts.sum() - 0.1
            assert share == 0 or share * counts.sum() > wanted[:rows - 1].sum() - 0.1
        # Equal steps, and one more where the log's rows end.
        assert set((np.arange(101) / 100).tolist()) <= set(item.share.tolist()) and item.steps <= 101
        assert np.count_nonzero(counts) in item.rows or item.name == "far"
        assert item.lookups == pytest.approx(counts.sum() / SAMPLES * BATCH)
        assert item.total_rows == model.tables[item.name].rows
        assert item.row_bytes == {"one": 256, "bags": 256, "far": 64}[item.name]
        # No row crosses a page's end.
        page_rows = 4096 // item.row_bytes
        for rows, size in zip(item.rows.tolist(), item.ssd_bytes.tolist(), strict=True):
            assert size == 4096 * sum(1 for _ in range(rows, item.total_rows, page_rows))
        # The indices and lengths of bags come in, vectors go out.
        # Rows of four beats begin with a stripe of 8; of their last block of 4 rows, 3 may be missing.
        spare = {256: (8 + 3 * 4) * 64, 64: 0}[item.row_bytes]
        vectors, words = BATCH * item.row_bytes, 4 * (item.lookups + BATCH)
        # The vectors of the batch before are still there, the words of the next have come.
        assert item.bags_bytes == int(2 * (vectors + words)) + spare
        assert item.bags_s == pytest.approx((7e-11 + COSTS.packet_s) * vectors + (COSTS.packet_s + 5.6e-11) * words)
        # Over the link they come and go too, and the pages of the drive come.
        assert item.in_s == pytest.approx(4 * (item.lookups + BATCH) * COSTS.link_s)
        assert item.out_s == pytest.approx(BATCH * item.row_bytes * COSTS.link_s)
        assert item.page_in_s == 4096 * COSTS.link_s
        assert item.landing[-1] == 0 and item.landing[0] >= item.lookups * item.dram_s


def test_who_decides_the_tt_share(known, model):
    assert {item.tt_share for item in build(model, known, COSTS, cards=2).problem.items} == {0.1}
    said = replace(model, tables={**model.tables, "one": replace(model.tables["one"], tt_share=0.25)})
    # Where the link binds there is no reason to approximate.
    assert not make(said, known, COSTS, cards=1, explain=False).approximated
    plan = make(said, known, FREE_LINK, cards=1, tt_gain=0.0, explain=False)
    assert 0 < plan.tables["one"].tt.accesses <= 0.25 * BATCH + 1e-6
    assert 0 < plan.approximated < 1
    none = make(said, known, FREE_LINK, cards=1, tt_share=0.0, tt_gain=0.0, explain=False)
    assert none.approximated == 0 and not any(table.ranks for table in none.tables.values())
    assert none.seconds >= plan.bound


def test_tensor_trains_are_used_where_they_save_time(known, model):
    """On one card whose DRAM holds all; the plan without them has its own bound, and says what they would bring."""
    used = make(model, known, FREE_LINK, cards=1, tt_gain=0.0, explain=False)
    plain = make(model, known, FREE_LINK, cards=1, levels=2, explain=False)
    saved = 1 - used.seconds / plain.seconds
    assert used.levels == 3 and used.approximated > 0 and 0 < saved < 0.1
    for gain, is_used in ((saved - 1e-3, True), (saved + 1e-3, False), (0.1, False)):
        plan = make(model, known, FREE_LINK, cards=1, tt_gain=gain, explain=False)
        assert (plan.approximated > 0) == is_used and plan.levels == (3 if is_used else 2)
        assert plan.seconds == (used if is_used else plain).seconds and plan.bound == (used if is_used else plain).bound
        assert plan.ablation == {3: (used.seconds, used.bound), 2: (plain.seconds, plain.bound)}
        note = f"no TT rows: they would save {saved:.1%} of a batch's time and approximate {used.approximated:.1%} of "
        assert any(each.startswith(note) for each in plan.assumed) != is_used


@pytest.mark.turns(1, of="searches")
def test_limits_that_hold_tables_back_are_said_and_have_a_price(known, model):
    tight = replace(COSTS, dram_bytes=400_000, drive_s=1e-3)
    plan = make(model, known, tight, cards=1, hot_share=0.6, tt_share=0.05, tt_gain=0.0)
    assert "at most 60% of a table's accesses may leave the SSD (--hot-share), which holds 3 of 3 tables back" in \
        plan.assumed
    price, bound = plan.what_if["every row may leave the SSD (--hot-share 1)"]
    assert bound <= price < plan.seconds
    assert plan.what_if[ALONE][1] <= plan.what_if[ALONE][0] <= plan.seconds
    free = make(model, known, tight, cards=1, tt_share=1.0, explain=False, seconds=0.5)
    assert not any("at most" in note for note in free.assumed)
    some = make(model, known, FREE_LINK, cards=1, tt_share=0.05, tt_gain=0.0)
    (note,) = [note for note in some.assumed if note.startswith("at most 5% of a table's accesses may read TT rows")]
    assert note.endswith("of 3 tables back")
    alone = make(model, known, tight, cards=1, levels=1, hot_share=0.6, explain=False)     # nothing may leave the SSD
    assert alone.levels == 1 and not any("back" in note for note in alone.assumed)
    assert some.what_if["every access may read TT rows (--tt-share 1)"][0] < some.seconds


def test_what_rows_that_the_log_lacks_cost(known, model):
    """With DRAM for the log's rows alone: the others keep the drive busy, and without them nobody waits for it."""
    few = profile(of_arrays({"t": np.random.default_rng(3).zipf(1.3, 4000) % 50_000}))
    of = Recommender("m", "", {"t": TableSpec("t", 50_000, 64)}, None, BATCH)
    rows = few.tables["t"].heat.touched
    tight = replace(COSTS, dram_bytes=(rows + 10) * 256 + 4 * 2 * BATCH + 2 * 256 * BATCH + 20 * 64)
    plan = make(of, few, tight, cards=1, levels=2)
    assert plan.unseen > 0.01 and plan.cards[0].ssd.seconds > tight.drive_s
    price, bound = plan.what_if[ALONE]
    assert bound <= price < tight.drive_s < plan.seconds


def test_the_share_of_rows_that_the_log_lacks_is_the_same_on_all_numbers_of_cards(known):
    few = profile(of_arrays({"t": np.random.default_rng(3).zipf(1.3, 4000) % 50_000}))
    of = Recommender("m", "", {"t": TableSpec("t", 50_000, 64)}, None, BATCH)
    one, *others = (make(of, few, COSTS, cards=cards, levels=2, explain=False) for cards in (1, 2, 4))
    assert one.unseen > 0.01 and "samples" in {plan.tables["t"].by for plan in others}
    assert all(plan.unseen == pytest.approx(one.unseen, rel=1e-9) for plan in others)


def test_who_decides_the_hot_share(known, model):
    tight = replace(COSTS, dram_bytes=300_000)
    assert {item.hot_share for item in build(model, known, tight, cards=1).problem.items} == {1.0}
    said = replace(model, tables={**model.tables, "one": replace(model.tables["one"], hot_share=0.25)})
    assert build(said, known, tight, cards=1).problem.items[0].hot_share == 0.25
    assert {item.hot_share for item in build(said, known, tight, cards=1, hot_share=0.5).problem.items} == {0.5}


@pytest.mark.turns(1, of="searches")
def test_the_plan_is_what_the_log_would_ask_for(log, known, model):
    """Rows of each memory counted in the log: accesses, rows, bytes, seconds."""
    ids, _ = log
    tight = replace(COSTS, dram_bytes=870_000)
    plan = make(model, known, tight, cards=2, rank=4, seconds=20, tt_gain=0.0)
    seen = {"one": ids["one"], "bags": ids["bags"] % 700, "far": np.unique(ids["far"], return_inverse=True)[1]}
    assert plan.seconds == pytest.approx(max(card.seconds for card in plan.cards)) and plan.gap <= 0.05
    for name, table in plan.tables.items():
        counts = np.sort(np.bincount(seen[name], minlength=model.tables[name].rows))[::-1]
        assert table.dram_rows + table.tt_rows + table.ssd_rows == model.tables[name].rows
        ends = np.cumsum([0, table.dram_rows, table.tt_rows, table.ssd_rows])
        for tier, begin, end in zip((table.dram, table.tt, table.ssd), ends[:-1], ends[1:]):
            # A step is a hundredth of the accesses; the hottest row may be several of them.
            assert tier.accesses == pytest.approx(counts[begin:end].sum() / SAMPLES * BATCH,
                                                  abs=BATCH / SAMPLES * (0.02 * counts.sum() + counts[0]))
        assert bool(table.ranks) == bool(table.tt_rows)
        if table.ranks:
            assert np.prod(table.row_modes) >= table.tt_rows and np.prod(table.column_modes) == model.tables[name].dim
    for card in plan.cards:
        for name in MEMORIES:
            mine = [table.on_card(name) for table in plan.tables.values() if card.number in table.cards]
            waits = DRIVE if name == "ssd" and any(tier.seconds for tier in mine) else 0
            assert getattr(card, name).seconds == pytest.approx(sum(tier.seconds for tier in mine) + waits)
            assert getattr(card, name).bytes == sum(tier.bytes for tier in mine) <= plan.capacity[name]
    # Fewer memories are no faster, by more than the gap.
    assert plan.ablation[3] == (plan.seconds, plan.bound) and set(plan.ablation) == {1, 2, 3}
    for fewer, more in ((1, 2), (2, 3), (1, 3)):
        (slow, least), (quick, _) = plan.ablation[fewer], plan.ablation[more]
        assert 0 < least <= slow and plan.ablation[more][1] <= slow and quick <= slow * 1.05
    assert plan.ablation[1][0] > DRIVE and plan.ablation[1][0] > 2 * plan.ablation[3][0]
    for what, (seconds_more, least) in plan.what_if.items():
        assert 0 < least <= seconds_more and (what == WHOLE or seconds_more <= plan.seconds)


def test_nobody_waits_for_the_drive_without_need(known, model):
    """However the program would share the pages' time, a batch that needs none does not wait for the first one."""
    said = []
    slow = make(model, known, replace(COSTS, drive_s=1.0, page_s=1e-12), cards=2, explain=False, say=said.append)
    assert not any(card.ssd.seconds for card in slow.cards) and slow.seconds < 1e-3 and slow.gap < 0.05
    # With pages for nothing, and no wait, they are what the program takes.
    quick = make(model, known, replace(COSTS, drive_s=0.0, page_s=1e-12, landing_s=0.0), cards=2, explain=False)
    assert quick.seconds <= slow.seconds
    # Rows that must lie there are waited for, and the bound knows it.
    forced = make(model, known, replace(COSTS, drive_s=1.0), cards=2, hot_share=0.5, explain=False)
    assert 1.0 <= forced.bound <= forced.seconds < 1.01
    assert make(model, known, replace(COSTS, drive_s=1.0), cards=2, levels=1, explain=False).seconds >= 1.0


@pytest.mark.turns(1, of="searches")
def test_more_of_a_memory_where_a_batch_waits_for_the_drive():
    """Four tables of 5,000 rows in bags of 10: the DRAM holds .6 of what they need, and who leaves the drive
    saves its wait. A megabyte more each lets both cards leave it."""
    random = np.random.default_rng(0)
    offsets = np.arange(0, 10 * 2001, 10)
    ids = {f"t{j}": random.integers(0, 5000, 20000) for j in range(4)}
    profiled = profile(of_arrays(ids, dict.fromkeys(ids, offsets)))
    model = replace(Recommender.of("m", dict.fromkeys(ids, 5000), 64), batch=BATCH)
    need = sum(item.total_rows * item.row_bytes + item.bags_bytes
               for item in build(model, profiled, COSTS, cards=2).problem.items)
    slow = replace(COSTS, drive_s=1e-2, dram_bytes=int(0.3 * need))
    plan = make(model, profiled, slow, cards=2, levels=2, hot_share=1.0, seconds=0.02)
    assert list(plan.what_if) == ["one card more", HALF, ALONE, *(f"1 MB more of {what} on every EMB card"
                                                                  for what in ("DRAM", "SSD"))]
    assert 1e-2 <= plan.bound <= plan.seconds
    for what, (seconds_more, least) in plan.what_if.items():
        assert 0 < least <= seconds_more <= plan.seconds, what
    # Nearly all the room that is needed: a megabyte more is the end of waiting.
    plan = make(model, profiled, replace(slow, dram_bytes=need // 2 - 200_000), cards=2, levels=2, hot_share=1.0,
                seconds=0.02)
    more, least = plan.what_if["1 MB more of DRAM on every EMB card"]
    assert 0 < least <= more < 5e-3 < 1e-2 < plan.seconds


def test_where_a_search_takes_long_it_is_not_repeated_for_every_memory(known, model, monkeypatch):
    monkeypatch.setattr(planning, "PATIENCE", 0.0)
    plan = make(model, known, COSTS, cards=1)
    assert not any("1 MB more" in what for what in plan.what_if) and "one card more" in plan.what_if
    assert any(note.startswith("what 1 MB more of a memory brings was left out, as") for note in plan.assumed)


def test_what_only_explains_a_plan_does_not_end_it(known, model, monkeypatch):
    def one_card_alone(problem, **more):
        if problem.cards > 1 or not len(problem.items[0].tt_rows) > 1:
            raise NotFound("tables: none was found")
        return solve(problem, **more)

    monkeypatch.setattr(planning, "solve", one_card_alone)
    said = []
    plan = make(model, known, COSTS, cards=1, say=said.append)
    assert set(plan.ablation) == {3} and "one card more" not in plan.what_if
    assert "one card more: tables: none was found" in said
    assert "1 card, DRAM and SSD: tables: none was found" in said


@pytest.mark.turns(1)
@pytest.mark.parametrize("drive_s, run_s", [(0.0, 3.0), (5.0, 3.0), (200.0, 0.0)])
@pytest.mark.parametrize("lost", [None, NotFound("not found"), Infeasible("impossible")])
def test_the_bound_holds_with_the_wait_for_the_drive(drive_s, run_s, lost, monkeypatch):
    """Against all placements, a card that reads the drive waiting for it, and memories for each run. lost: of the
    second search."""
    calls = []

    def solved(problem, **more):
        calls.append(problem)
        if lost is not None and len(calls) == 2:
            raise lost
        return solve(problem, **more)

    monkeypatch.setattr(planning, "solve", solved)
    for seed in range(12 if lost else 24):
        problem = drawn(seed)
        if seed % 2:    # nobody need read the drive
            problem = replace(problem, dram_bytes=10**5, items=tuple(
                replace(each, hot_share=1.0, ssd_reads=None, ssd_s=each.dram_s) for each in problem.items))
        best = brute(problem, drive_s, run_s)
        calls.clear()
        if isinstance(lost, Infeasible) and not isinstance(lost, NotFound) and brute(problem, 1e9, run_s) < 1e8:
            continue    # it is not impossible
        if np.isinf(best):
            with pytest.raises(Infeasible):
                planning._solved(replace(problem, idle=Idle(drive_s, run_s)), 0.0, 20)
            continue
        found = planning._solved(replace(problem, idle=Idle(drive_s, run_s)), 0.0, 20)
        assert 0 < found.bound <= best * (1 + 1e-7) <= found.seconds * (1 + 2e-7)
        assert found.seconds == pytest.approx(seconds(problem, found, drive_s, run_s), rel=1e-9)
        if drive_s == 0:
            assert found.bound == pytest.approx(best, rel=3e-6)


def test_a_network_takes_cards_of_its_own(known, model):
    whole = replace(model, network=Model("n", "", (13, 512, 64), "concat", 3, 64, (512, 1), "relu", "sigmoid"))
    plan = make(whole, known, COSTS, cards=4, explain=False)
    mlp = [card for card in plan.cards if card.kind == "mlp"]
    assert 1 <= len(mlp) <= 3 and [card.number for card in plan.cards] == [0, 1, 2, 3]
    assert sum(card.bottom_s for card in mlp) == pytest.approx(plan.bottom_s) and plan.top_s > plan.bottom_s > 0
    slowest = max(card.seconds for card in plan.cards)
    assert plan.seconds == pytest.approx(slowest + plan.top_s / len(mlp))
    with pytest.raises(ValueError, match="^cards = 1: a network needs an MLP card and an EMB card, 2 at least$"):
        make(whole, known, COSTS, cards=1)


def test_wrong_logs_and_models(known, model):
    for table, sentence in (
            (TableSpec("ghost", 9, 64), "^the profile of .* has no table 'ghost'; it has one, bags, far$"),
            (TableSpec("one", 10, 64), "^table one: .*rows"),
            (TableSpec("one", 900, 4096), "^table one: rows of 4096 words take 256 beats of 64 bytes; the EMB core of "
                                          "the preset smartssd takes 32, a dim of 512 at most$")):
        with pytest.raises(ValueError, match=sentence):
            build(Recommender("m", "", {table.name: table}), known, COSTS, cards=2)
    statistics = Profile("s", 5, {"t": TableProfile("t", 9, 5, Heat.of([3, 1, 1]), np.array([1]), np.array([5]))})
    with pytest.raises(ValueError, match="^table t: the log accesses 3 rows, the model has 2$"):
        build(Recommender.of("m", {"t": 2}, 64), statistics, COSTS, cards=2)
    with pytest.raises(ValueError, match="^cards = 0: must be 1 or more$"):
        build(model, known, COSTS, cards=0)
    with pytest.raises(ValueError, match="^cards = 4097: must be 4096 or fewer$"):
        build(model, known, COSTS, cards=4097)


def test_tables_without_a_train_and_without_accesses(known):
    wide = Recommender("m", "", {"one": TableSpec("one", 900, 528)})    # 8.25 times 64: no unit's width
    costs = replace(COSTS, row_s={33: 1e-7, 4: 1e-8})
    with pytest.raises(ValueError, match="^table one: rows of 528 words"):
        build(wide, known, costs, cards=1)
    none = Recommender("m", "", {"one": TableSpec("one", 900, 500)})
    built = build(none, known, replace(COSTS, row_s={32: 1e-7}), cards=1, rank=128)
    assert len(built.problem.items[0].tt_rows) == 1 and any(note.startswith("one: ") for note in built.notes)
    assert any(note == "tables of the log that the model does not name are left out: bags, far" for note in built.notes)
    silent = Profile("s", 5, {"t": TableProfile("t", 9, 5, Heat.of([]), np.array([0]), np.array([5]))})
    plan = make(Recommender.of("m", {"t": 9}, 64), silent, COSTS, cards=2, explain=False)
    assert plan.tables["t"].dram_rows == plan.tables["t"].spare == 9 and plan.from_ssd == 0


def test_a_sampled_profile_is_said(log, known, model):
    ids, offsets = log
    assert not any("counted" in note for note in build(model, known, COSTS, cards=2).notes)
    part = profile(of_arrays(ids, {"bags": offsets}), sample=0.3)
    two = replace(model, tables={name: model.tables[name] for name in ("one", "far")})
    worst = max(("one", part.extras["sampling_error"][0]), ("far", part.extras["sampling_error"][2]),
                key=lambda each: each[1])
    assert make(two, part, COSTS, cards=2, explain=False).assumed[0] == (
        "of arrays, 0.3 of its samples were counted; the share of accesses to the hottest rows is at most "
        f"{100 * worst[1]:.1f}% off in table {worst[0]}, and less in others; rows that the sample missed are "
        "among those that the log does not have")


def test_bytes_of_trains_are_in_the_unit_of_their_room(known, model):
    """A card's TTs take the unit's lines and slots, so many bytes of the room; never less than their words."""
    plan = make(model, known, replace(FREE_LINK, dram_bytes=300_000), cards=2, tt_share=1, explain=False,
                seconds=0.1)
    warm = [table for table in plan.tables.values() if table.tt.rows]
    assert warm and plan.capacity["tt"] == COSTS.tt_bytes
    assert all(getattr(table, name).accesses >= 0 for table in plan.tables.values() for name in MEMORIES)
    for table in warm:
        share = search.best(table.tt.rows, model.tables[table.name].dim, rank=4, config=COSTS.unit).share
        assert share * COSTS.tt_bytes - 1 <= table.on_card("tt").bytes <= 1.3 * share * COSTS.tt_bytes
    for card in plan.cards:
        mine = [table.on_card("tt").bytes for table in warm if card.number in table.cards]
        assert card.tt.bytes == sum(mine) and ("tt" in card.full) == (sum(mine) >= 0.99 * plan.capacity["tt"])


def test_cores_in_half_the_bits_take_half_the_room(known, model):
    """But never less than a slot. A unit whose operands share no exponents has no such."""
    half = replace(model, tables={name: replace(spec, tt_format="block16") for name, spec in model.tables.items()})
    slot = COSTS.tt_bytes / COSTS.unit.tables
    for plain, narrow in zip(*(build(each, known, COSTS, cards=2, rank=64).problem.items for each in (model, half)),
                             strict=True):
        most = plain.tt_rows[-1]
        assert narrow.tt_rows[-1] == most and plain.tt_bytes[-1] > 2 * slot
        assert narrow.tt_bytes[-1] == pytest.approx(plain.tt_bytes[-1] / 2, rel=0.05) and narrow.tt_bytes[1] >= slot
    built = build(half, known, replace(COSTS, preset="tiny"), cards=2)
    assert all(len(item.tt_rows) == 1 for item in built.problem.items)
    assert any(note.endswith("cores of block16 need a TT unit with grouped = true, whose operands share exponents")
               for note in built.notes), built.notes


def test_a_unit_of_block16_alone_is_planned_in_block16(known, model):
    """As where the tables say so; what was chosen is noted."""
    half = replace(model, tables={name: replace(spec, tt_format="block16") for name, spec in model.tables.items()})
    costs = replace(COSTS, preset="smartssd_half")
    chosen, said = (build(each, known, costs, cards=2, rank=64) for each in (model, half))
    assert all(way.formats[1] == "block16" for ways in chosen.ways for way in ways)
    for a, b in zip(chosen.problem.items, said.problem.items, strict=True):
        assert np.array_equal(a.tt_bytes, b.tt_bytes) and a.tt_rows[-1] > 0
    noted = set(chosen.notes) - set(said.notes)
    assert noted == {"tensor trains have cores in block16, the one format that the TT unit of smartssd_half takes: "
                     + ", ".join(model.tables)}


def test_what_does_not_fit_is_said(known, model):
    """Table `one`: 900 rows of 256 bytes. On the SSD 16 of them take a page."""
    costs = replace(COSTS, dram_bytes=100, ssd_bytes=100)
    item = build(model, known, costs, cards=2).problem.items[0]
    lacks = []
    for h in range(item.steps + 1):
        for a in range(h + 1):
            warm = int(item.rows[h] - item.rows[a])
            if item.share[h] - item.share[a] <= 0.1 + 1e-9 and warm <= item.tt_rows[-1]:
                lacks.append(max(int(item.rows[a]) * 256 + item.bags_bytes - 100, 0)
                             + max(-(-(900 - int(item.rows[h])) // 16) * 4096 - 100, 0))
    sentence = (f"table one: at least {min(lacks)} bytes of it fit in no memory of one card, which has 100 bytes of "
                f"DRAM, {int(COSTS.tt_bytes)} of TT memory and 100 of SSD")
    with pytest.raises(ValueError) as error:
        make(model, known, costs, cards=2)
    assert str(error.value) == sentence


def test_rows_without_end_take_no_memory(known, model):
    large = replace(model, tables={"one": TableSpec("one", 1 << 30, 512), "bags": model.tables["bags"]})
    costs = replace(COSTS, ssd_bytes=10**12, row_s={4: 14.4e-9, 32: 115e-9})
    with pytest.raises(ValueError, match="table one: at least [0-9]+ bytes of it fit in no memory of one card"):
        make(large, known, costs, cards=3)
    large = replace(model, tables={"one": TableSpec("one", (1 << 30) + 1, 64)})
    with pytest.raises(ValueError, match="table one: 1,073,741,825 rows; the EMB core tells 1,073,741,824 rows of"):
        make(large, known, COSTS, cards=3)


def test_a_model_assumed_of_some_samples_has_a_row_for_ids_unseen(log):
    ids, offsets = log
    part = profile(of_arrays(ids, {"bags": offsets}), sample=0.1)
    model, notes = model_of(part, 32, 77)
    for name, spec in model.tables.items():
        assert (spec.ids, spec.rows) == ("vocabulary", len(part.tables[name].ids) + 1)
        rows = rows_of(spec, ids[name], part.tables[name].ids)
        assert (rows < spec.rows).all() and (rows == spec.rows - 1).any()
    assert notes[1] == "rows are those of 0.1 of the samples; a model says how many there really are"
    assert notes[2].endswith("in one, bags, far")


def test_an_assumed_model(known):
    model, notes = model_of(known, 32, 77)
    assert (model.batch, {spec.dim for spec in model.tables.values()}) == (77, {32})
    assert model.tables["one"].ids == "index" and model.tables["one"].rows == int(known.tables["one"].ids[-1]) + 1
    assert model.tables["far"].ids == "vocabulary" and model.tables["far"].rows == len(known.tables["far"].ids) + 1
    assert notes[0].startswith("no model was given: 3 tables") and notes[1].endswith("in far")
