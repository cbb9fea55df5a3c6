"""Small random problems of the planner, every placement of them tried, and a checker: all written from the paper."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from gen.planner.costs import Costs
from gen.planner.problem import Item, Problem, Sharding
from gen.planner.solve import Infeasible, solve

#: Of the log in tests/gen/planner/conftest.py, and prices of a card.
SAMPLES, BATCH, DRIVE = 3000, 256, 6e-5
COSTS = Costs("smartssd", "smartssd", 300e6, {1: 8e-9, 4: 14.4e-9}, 5.6e-11, 7e-11, 2.2e-6, DRIVE, 2.9e-7, 3.2e-10,
              1.2e-10, 4096, 1 << 26, 4 << 30, 3_840_000_000_000)
#: Of a drive whose dies read flash pages.
DIES = replace(COSTS, dies=32, flash_pages=4, die_s=4.5e-5)
FREE_LINK = replace(COSTS, link_s=0.0)


def drawn(seed, *, tables=4, cards=3, steps=3):
    g = np.random.default_rng(seed)
    items = []
    for j in range(int(g.integers(1, tables + 1))):
        own = int(g.integers(1, steps + 1))
        total = int(g.integers(own, 60))
        rows = np.append(0, np.sort(g.integers(1, total + 1, own)))
        knots = np.array([0])
        if g.random() < 0.9:
            count = min(int(g.integers(1, 4)), total)
            knots = np.append(0, np.sort(g.choice(np.arange(1, total + 1), count, replace=False)))
        sizes = np.append(0.0, np.cumsum(g.uniform(1, 30, len(knots) - 1)))
        reads, landing = (None if g.random() < 0.6 else np.sort(g.uniform(0, most, own + 1))[::-1].copy()
                          for most in (50, 20))
        items.append(Item(
            f"t{j}", rows.astype(np.int64), total, 4 * int(g.integers(1, 5)), g.uniform(1, 50), g.uniform(0.5, 2),
            g.uniform(0.2, 2), g.uniform(3, 20), knots.astype(np.int64), sizes, float(g.choice([1.0, 0.7, 0.4])), reads,
            landing, float(g.choice([0, 3.0])), int(g.choice([0, 16])),
            float(g.choice([1.0, 1.0, 0.4]))))
    if seed % 3 == 1:       # whole pages of two rows and a rest
        items = [replace(item, ssd_bytes=-(-(item.total_rows - item.rows) // 2) * (2 * item.row_bytes + 3))
                 for item in items]
    link = np.random.default_rng([seed, 1])     # slow for one problem of three
    slow = link.choice([0.1, 1.0, 10.0])
    items = [replace(item, in_s=slow * link.uniform(0, 5), out_s=slow * link.uniform(0, 8),
                     page_in_s=slow * link.uniform(0, 1)) for item in items]
    uneven = np.random.default_rng([seed, 2])
    items = [replace(item, shares=np.append(0, np.cumsum(uneven.dirichlet(np.ones(item.steps)))).clip(max=1))
             if uneven.random() < 0.4 else item for item in items]
    window = np.random.default_rng([seed, 3])
    items = [replace(item, core_s=item.dram_s * window.uniform(0, 1), fetch_curve=(item.rows, np.append(0.0, np.cumsum(
        item.lookups * np.diff(item.share) * window.uniform(0, 1, item.steps))))) if window.random() < 0.5 else item
             for item in items]
    networks = (g.uniform(1, 100), g.uniform(1, 100)) if g.integers(2) else (0.0, 0.0)
    return Problem(tuple(items), int(g.integers(2, cards + 1)), int(g.integers(60, 400)), int(g.integers(0, 60)),
                   int(g.integers(100, 900)) + int(g.choice([0, 2000])), *networks,
                   *(link.uniform(0, 60, 2) if any(networks) else ()))


def sharded(problem, seed=0):
    """The same with every table on up to all of its cards, too, where a card serves a little more than its part of the
    samples; or holds a slice of the columns, reads all indices and has no tensor train."""
    g = np.random.default_rng([seed, 3])
    emb = problem.cards - (problem.bottom_s > 0 or problem.top_s > 0)

    def part(item, count):
        share = g.uniform(1, 1.1) / count
        return replace(item, lookups=item.lookups * share, ssd_reads=item.reads * share * g.uniform(1, 1.2),
                       fetch_curve=item.fetch_curve and (item.rows, item.fetches * share * g.uniform(1, 1.2)),
                       ssd_landing=item.landing * share, bags_s=item.bags_s * share,
                       bags_bytes=-(-item.bags_bytes // count), in_s=item.in_s * share, out_s=item.out_s * share)

    def narrow(item, count):
        row_bytes = -(-item.row_bytes // count)
        return replace(item, row_bytes=row_bytes, dram_s=item.dram_s * g.uniform(1, 1.5) / count,
                       out_s=item.out_s / count,
                       ssd_reads=item.reads * g.uniform(0.4, 1), tt_rows=np.zeros(1, np.int64), tt_bytes=np.zeros(1),
                       bags_bytes=-(-item.bags_bytes // count),
                       ssd_bytes=None if item.ssd_bytes is None else -(-item.ssd_bytes // count))

    return replace(problem, shardings=tuple(
        tuple(Sharding(by, count, of(item, count)) for count in range(2, emb + 1)
              for by, of in (("samples", part), ("columns", narrow))) for item in problem.items))


def narrowed(problem, seed=0):
    """The same with every table in one or two more formats: fewer bytes, most of them faster, some with more around."""
    g = np.random.default_rng([seed, 4])

    def narrow(item):
        part = g.uniform(0.3, 0.9)
        return replace(item, row_bytes=max(1, int(item.row_bytes * part)), dram_s=item.dram_s * g.uniform(0.5, 1.1),
                       ssd_reads=item.reads * g.uniform(0.5, 1), bags_bytes=item.bags_bytes + int(g.choice([0, 4])),
                       ssd_bytes=None if item.ssd_bytes is None else (item.ssd_bytes * part).astype(np.int64))

    others = problem.shardings or ((),) * len(problem.items)
    return replace(problem, shardings=tuple(
        tuple(Sharding("whole", 1, narrow(item), (f"f{k}",)) for k in range(int(g.integers(1, 3)))) + ways
        for item, ways in zip(problem.items, others, strict=True)))


def split(item, a, h):
    """(seconds of DRAM, TTs, SSD, link in and out, bytes of the three) of a split, or None where it is not one."""
    steps = len(item.rows) - 1
    cdf = [i / steps for i in range(steps + 1)] if item.shares is None else item.shares.tolist()
    if not 0 <= a <= h <= steps or cdf[h] > item.hot_share + 1e-9 or cdf[h] - cdf[a] > item.tt_share + 1e-9:
        return None
    if any(0 < i < steps and item.rows[i + 1] == item.rows[i] for i in (a, h)):
        return None     # would cut through a row
    warm = item.rows[h] - item.rows[a]
    if warm > item.tt_rows[-1]:
        return None
    reads = item.lookups * (1 - cdf[h]) if item.ssd_reads is None else item.ssd_reads[h]
    landing = 0.0 if item.ssd_landing is None else item.ssd_landing[h]
    return (max(item.fetches[a] * item.dram_s + item.bags_s, item.lookups * cdf[a] * item.core_s) + landing,
            item.lookups * (cdf[h] - cdf[a]) * item.tt_s, reads * item.ssd_s,
            item.in_s + reads * item.page_in_s, item.out_s,
            item.rows[a] * item.row_bytes + item.bags_bytes, np.interp(warm, item.tt_rows, item.tt_bytes),
            (item.total_rows - item.rows[h]) * item.row_bytes if item.ssd_bytes is None else item.ssd_bytes[h])


def with_idle(load, drive_s, run_s):
    """Loads of cards with what each waits that reads the drive, and every memory that is used at all."""
    load[:, 2] += drive_s * (load[:, 2] > 0)
    load[:, :3] += run_s * (load[:, :3] > 0)


def seconds(problem, placement, drive_s=0.0, run_s=0.0):
    """C of a placement, out of eq. 3 to 37; an assertion fails where it is none. drive_s, run_s: as `with_idle` takes
    them."""
    networks = problem.bottom_s > 0 or problem.top_s > 0
    emb = len(placement.emb)
    assert len(placement.tables) == len(problem.items)
    assert emb + placement.mlp_cards == problem.cards
    assert (1 <= emb <= problem.cards - 1) if networks else emb == problem.cards                # eq. 4
    load = np.zeros((emb, 8))
    for j, choice in enumerate(placement.tables):
        way = problem.ways(j)[choice.way]
        found = split(way.item, choice.i_dram, choice.i_hot)
        assert found is not None, (way.item.name, choice)
        assert len(choice.cards) == len(set(choice.cards)) == way.count
        for card in choice.cards:
            load[card] += found
    with_idle(load, drive_s, run_s)
    caps = (problem.dram_bytes, problem.tt_bytes, problem.ssd_bytes)
    assert (load[:, 5:] <= np.array(caps) * (1 + 1e-9)).all()                                   # eq. 24, 25, 27
    said = [(c.dram_s, c.tt_s, c.ssd_s, c.in_s, c.out_s, c.dram_bytes, c.tt_bytes, c.ssd_bytes) for c in placement.emb]
    np.testing.assert_allclose(said, load, rtol=1e-9, atol=1e-12)
    found = load[:, :5].max()
    if networks:
        before, after = max(problem.bottom_s, problem.features_s), max(problem.top_s, problem.predictions_s)
        found = max(found, before / placement.mlp_cards) + after / placement.mlp_cards
    return found


def check_optimum(problem, best):
    """Solves a problem whose optimum is known, infinite where there is no placement: the planner must find it, with a
    bound that meets it, or say that there is none. Whether there is one."""
    if np.isinf(best):
        with pytest.raises(Infeasible):
            solve(problem, gap=0, seconds=20)
        return False
    found = solve(problem, gap=0, seconds=20)
    assert found.seconds == pytest.approx(best, rel=1e-7)
    assert found.seconds == pytest.approx(seconds(problem, found), rel=1e-12)
    assert found.bound <= best * (1 + 1e-12) and found.gap < 2e-6
    return True


def brute(problem, drive_s=0.0, run_s=0.0):
    """The least seconds of all splits of all tables on all numbers of cards; infinite where there are none. drive_s,
    run_s: as `with_idle` takes them."""
    splits = []
    for item in problem.items:
        pairs = [split(item, a, h) for a in range(len(item.rows)) for h in range(a, len(item.rows))]
        splits.append(np.array([pair for pair in pairs if pair is not None], np.float64))
    caps = np.array([problem.dram_bytes, problem.tt_bytes, problem.ssd_bytes]) * (1 + 1e-12)
    sets = 1 << len(splits)
    alone = np.zeros(sets)      # least seconds of one card that holds a set of tables
    for members in range(1, sets):
        total = np.zeros((1, 8))
        for j, each in enumerate(splits):
            if members >> j & 1:
                total = (total[:, None] + each[None]).reshape(-1, 8)
        total = total[(total[:, 5:] <= caps).all(axis=1)]
        with_idle(total, drive_s, run_s)
        alone[members] = total[:, :5].max(axis=1).min() if len(total) else np.inf
    networks, best, cards = problem.bottom_s > 0 or problem.top_s > 0, np.inf, alone
    for emb in range(1, problem.cards + 1 - networks):
        if emb > 1:
            cards = np.array([min(max(alone[part], cards[members ^ part]) for part in range(members + 1)
                                  if part & ~members == 0) for members in range(sets)])
        others = max(problem.cards - emb, 1)
        before, after = max(problem.bottom_s, problem.features_s), max(problem.top_s, problem.predictions_s)
        best = min(best, max(cards[-1], before / others) + after / others)
    return best


def brute_sharded(problem):
    """As `brute`, of tables that may lie on several cards: all sets of cards for all shardings and splits of each."""
    networks, best = problem.bottom_s > 0 or problem.top_s > 0, np.inf
    caps = np.array([problem.dram_bytes, problem.tt_bytes, problem.ssd_bytes]) * (1 + 1e-12)
    for emb in range(1, problem.cards + 1 - networks) if networks else [problem.cards]:
        loads = np.zeros((1, emb, 8))
        for j in range(len(problem.items)):
            each = []
            for way in problem.ways(j):
                for on, a in product(combinations(range(emb), way.count), range(len(way.item.rows))):
                    for h in range(a, len(way.item.rows)):
                        if (found := split(way.item, a, h)) is not None:
                            each.append(np.zeros((emb, 8)))
                            each[-1][list(on)] = found
            loads = (loads[:, None] + np.array(each).reshape(-1, emb, 8)[None]).reshape(-1, emb, 8)
            loads = loads[(loads[:, :, 5:] <= caps).all(axis=(1, 2))]
        if not len(loads):
            continue
        others = max(problem.cards - emb, 1)
        before, after = max(problem.bottom_s, problem.features_s), max(problem.top_s, problem.predictions_s)
        best = min(best, max(loads[:, :, :5].max(axis=(1, 2)).min(), before / others) + after / others)
    return best
