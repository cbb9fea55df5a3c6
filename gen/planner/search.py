"""Searches a placement within given limits: one table at a time is moved and split anew where that hurts least.

The load of a card beyond its limits, as a part of them, is its excess; a placement without any is
found. A table of a card with excess goes where the sum of all excesses becomes least, over all cards and splits, or
changes places with another table. The shards of a table are moved alike, never two onto one card, and are split anew
together. At a standstill the memories and times in excess get heavier, and some tables go
astray, so that the search leaves every local optimum.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gen.planner.choices import DRAM, DRAM_S, IN_S, LOADS, OUT_S, SSD, SSD_S, TT, TT_S, Choices
from gen.planner.work import TRIED_S, Deadline

SLICE = 50      # tables that are tried between two looks at the clock, at least
ROUND_S = 1.0   # seconds of work between two looks at the clock, at most, but for one table's
CARDS = 24      # on which a table is tried with every split: those that are the least full
HEAVY = 50.0    # weight of an excess at which all begin anew
SLACK = 1 + 1e-12   # of a limit, for what rounding adds


def spread(loads: NDArray[np.float64], copies: NDArray[np.int64], limit: NDArray[np.float64],
           cards: int) -> NDArray[np.int64]:
    """(sum of copies,) a card for each shard of tables of these loads (J, LOADS), table after table, the largest first:
    where the fullest resource stays least. The shards of a table get different cards."""
    part = loads / np.maximum(limit, 1e-300)
    return _spread(part, copies, np.cumsum(copies) - copies, np.argsort(-part.max(axis=1), kind="stable"), cards)


def search(choices: Choices, card: NDArray[np.int64], a: NDArray[np.int64], h: NDArray[np.int64], cards: int,
           limit: NDArray[np.float64], prices: NDArray[np.float64], *, moves: int, seed: int = 1,
           until: Deadline) -> bool:
    """Improves a placement in place until every load of a card is within `limit`; whether it got there. If not, the
    placement is the best on the way: its fullest resource is the least full. choices: an option a table; card: of each
    shard, as `spread` gives them. prices: of seconds and bytes beside the excess, so that among equals a split that is
    cheap for all is taken. moves: shards that are tried at most. until: the moment behind which it ends early, after a
    round at least."""
    order, heavy, state = np.arange(len(card)), np.ones(LOADS), np.array([seed, 0], np.uint64)
    met, fullest = tuple(each.copy() for each in (card, a, h)), np.array([np.inf])
    owner, first = np.repeat(np.arange(len(a)), choices.copies), np.cumsum(choices.copies) - choices.copies
    done = False
    while moves > 0 and not done:
        done, tried, steps = _search(choices.cut, choices.cuts, choices.a_load, choices.h_load, choices.tt, card, owner,
                                     first, choices.copies, a, h, cards, limit, prices, min(moves, SLICE), order, heavy,
                                     state, ROUND_S / TRIED_S, *met, fullest)
        until.spend(TRIED_S * steps)
        if until.passed:
            break
        moves -= tried
    for each, best in zip((card, a, h), met, strict=True):
        each[:] = best
    return bool(done)


@njit(cache=True)
def _spread(part, copies, first, order, cards):
    found, full = np.zeros(copies.sum(), np.int64), np.zeros((cards, LOADS))
    for j in order:
        taken = np.zeros(cards, np.bool_)
        for shard in range(first[j], first[j] + copies[j]):
            best, best_peak, best_sum = -1, np.inf, np.inf
            for m in range(cards):
                if taken[m]:
                    continue
                peak, total = 0.0, 0.0
                for r in range(LOADS):
                    peak = max(peak, full[m, r] + part[j, r])
                    total += full[m, r]
                if best < 0 or peak < best_peak - 1e-12 or peak < best_peak + 1e-12 and total < best_sum:
                    best, best_peak, best_sum = m, peak, total
            found[shard], taken[best] = best, True
            full[best] += part[j]
    return found


@njit(cache=True)
def _load(a_load, h_load, tt, j, a, h, out):
    for r in range(LOADS):
        out[r] = a_load[j, a, r] + h_load[j, h, r]
    out[TT_S] = max(out[TT_S], 0.0)
    out[TT] += tt[j, a, h]


@njit(cache=True)
def _next(random):
    """The next of a sequence of numbers without visible order (Knuth's MMIX generator); its low bits are worst."""
    return random * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)


@njit(cache=True)
def _over(load, limit):
    """Whether anything of a card is beyond its limit."""
    for r in range(LOADS):
        if load[r] > limit[r] * SLACK:
            return True
    return False


@njit(cache=True)
def _shuffle(order, random):
    for top in range(len(order) - 1, 0, -1):
        random = _next(random)
        other = int((random >> np.uint64(33)) % np.uint64(top + 1))
        order[top], order[other] = order[other], order[top]
    return random


@njit(cache=True)
def _place(cut, cuts, a_load, h_load, tt, j, among, load, inverse, heavy, prices, best, best_card, best_a, best_h):
    """(loss, card, cuts) of table j where it loses least among some cards, if less than what is known as best."""
    part, loss_a, loss_h = np.zeros(LOADS), np.zeros(cut.shape[1]), np.zeros(cut.shape[1])
    for k in among:
        # Excesses that depend on one of the two cuts alone, and are charged once for each.
        base = 0.0
        for r in range(LOADS):
            part[r] = load[k, r] * inverse[r] - 1
            base += heavy[r] * max(part[r], 0.0)
        for x in range(cuts[j]):
            c = cut[j, x]
            loss_a[x], loss_h[x] = -base, 0.0
            for r in range(LOADS):
                loss_a[x] += prices[r] * a_load[j, c, r]
                loss_h[x] += prices[r] * h_load[j, c, r]
            for r in (OUT_S, DRAM):
                loss_a[x] += heavy[r] * max(part[r] + a_load[j, c, r] * inverse[r], 0.0)
            for r in (SSD_S, IN_S, SSD):
                loss_h[x] += heavy[r] * max(part[r] + h_load[j, c, r] * inverse[r], 0.0)
        for x in range(cuts[j]):
            if loss_a[x] >= best:
                continue
            first = cut[j, x]
            for y in range(x, cuts[j]):
                if loss_a[x] + loss_h[y] >= best:
                    continue
                last = cut[j, y]
                warm = tt[j, first, last]
                found = loss_a[x] + loss_h[y] + prices[TT] * warm
                found += heavy[TT] * max(part[TT] + warm * inverse[TT], 0.0)
                dram_s = a_load[j, first, DRAM_S] + h_load[j, last, DRAM_S]
                found += heavy[DRAM_S] * max(part[DRAM_S] + dram_s * inverse[DRAM_S], 0.0)
                tt_s = max(a_load[j, first, TT_S] + h_load[j, last, TT_S], 0.0)
                found += heavy[TT_S] * max(part[TT_S] + tt_s * inverse[TT_S], 0.0)
                if found < best:
                    best, best_card, best_a, best_h = found, k, first, last
    return best, best_card, best_a, best_h


@njit(cache=True)
def _emptiest(load, inverse, own):
    """A shard's own card and those whose fullest resource is the least full, CARDS at most."""
    cards = len(load)
    if cards <= CARDS:
        return np.arange(cards)
    full = np.zeros(cards)
    for k in range(cards):
        for r in range(LOADS):
            full[k] = max(full[k], load[k, r] * inverse[r])
    full[own] = -1.0
    found = np.zeros(CARDS, np.int64)
    for place in range(CARDS):      # to compile a sort takes two seconds
        for k in range(cards):
            if full[k] < full[found[place]]:
                found[place] = k
        full[found[place]] = np.inf
    return found


@njit(cache=True)
def _exchange(loads, card, owner, copies, lies, shard, load, inverse, heavy, prices, best):
    """(loss, other) of the shard with which this one best changes places, both split as they are; -1: none is better
    than what is known as best."""
    best_other, m, j = -1, card[shard], owner[shard]
    own = loads[j]
    for other in range(len(card)):
        k, i = card[other], owner[other]
        if k == m or copies[i] > 1 and lies[i, m] or copies[j] > 1 and lies[j, k]:
            continue
        found = 0.0
        for r in range(LOADS):
            found += heavy[r] * (max((load[m, r] + loads[i, r]) * inverse[r] - 1, 0.0)
                                 - max(load[m, r] * inverse[r] - 1, 0.0)
                                 + max((load[k, r] - loads[i, r] + own[r]) * inverse[r] - 1, 0.0)
                                 - max(load[k, r] * inverse[r] - 1, 0.0)) + prices[r] * own[r]
        if found < best:
            best, best_other = found, other
    return best, best_other


@njit(cache=True)
def _excess(load, own, inverse, heavy):
    """That a card has more with the load `own` than without."""
    found = 0.0
    for r in range(LOADS):
        part = load[r] * inverse[r] - 1
        found += heavy[r] * (max(part + own[r] * inverse[r], 0.0) - max(part, 0.0))
    return found


@njit(cache=True)
def _move(lies, own, load, inverse, heavy, best, best_card):
    """(loss, card) where a shard of this load loses least, split as it is, if less than what is known as best. lies: on
    which cards its table does."""
    for k in range(len(load)):
        if not lies[k]:
            found = _excess(load[k], own, inverse, heavy)
            if found < best:
                best, best_card = found, k
    return best, best_card


@njit(cache=True)
def _resplit(cut, cuts, a_load, h_load, tt, j, cards, load, inverse, heavy, prices, best, best_a, best_h):
    """(loss, cuts) of table j on these cards, without it, where it loses least, if less than what is known as best."""
    own = np.zeros(LOADS)
    for x in range(cuts[j]):
        for y in range(x, cuts[j]):
            first, last = cut[j, x], cut[j, y]
            if tt[j, first, last] == np.inf:
                continue
            _load(a_load, h_load, tt, j, first, last, own)
            found = 0.0
            for r in range(LOADS):
                found += len(cards) * prices[r] * own[r]
            for m in cards:
                found += _excess(load[m], own, inverse, heavy)
                if found >= best:
                    break
            if found < best:
                best, best_a, best_h = found, first, last
    return best, best_a, best_h


@njit(cache=True)
def _together(cut, cuts, a_load, h_load, tt, j, cards, a, h, load, inverse, heavy, prices, own):
    """What is gained where all shards of table j, on these cards, are split anew; in place."""
    loss = 0.0
    for m in cards:
        load[m] -= own
        loss += _excess(load[m], own, inverse, heavy)
    for r in range(LOADS):
        loss += len(cards) * prices[r] * own[r]
    best, a[j], h[j] = _resplit(cut, cuts, a_load, h_load, tt, j, cards, load, inverse, heavy, prices, loss - 1e-9,
                                a[j], h[j])
    _load(a_load, h_load, tt, j, a[j], h[j], own)
    for m in cards:
        load[m] += own
    return max(loss - 1e-9 - best, 0.0)


@njit(cache=True)
def _go_astray(load, limit, heavy, card, owner, copies, lies, still, random):
    """At a standstill: excesses get heavier, and random shards go elsewhere."""
    if heavy.max() > HEAVY:
        heavy[:] = 1.0
    for r in range(LOADS):
        over = False
        for m in range(len(load)):
            over = over or load[m, r] > limit[r] * SLACK
        if over:
            heavy[r] *= 1.5
    for _ in range(1 + still % 4):
        random = _next(random)
        astray = int((random >> np.uint64(33)) % np.uint64(len(card)))
        random = _next(random)
        to, j = int((random >> np.uint64(33)) % np.uint64(len(load))), owner[astray]
        if copies[j] == 1 or not lies[j, to]:
            lies[j, card[astray]], lies[j, to] = False, True
            card[astray] = to
    return random


@njit(cache=True)
def _search(cut, cuts, a_load, h_load, tt, card, owner, first, copies, a, h, cards, limit, prices, moves, order,
            heavy, state, most, met_card, met_a, met_h, fullest):
    """(whether it ended within the limits, shards that were tried, steps of work); order, heavy, state: where it goes
    on. most: steps after which it ends. met_*, fullest (1,): the best placement met, and how full its fullest resource
    is."""
    random, still = state[0], np.int64(state[1])
    tables = len(a)
    load, loads = np.zeros((cards, LOADS)), np.zeros((tables, LOADS))
    inverse = 1 / np.maximum(limit, 1e-300)
    tried, steps = 0, 0.0
    lies = np.zeros((tables, cards), np.bool_)
    for shard in range(len(card)):
        lies[owner[shard], card[shard]] = True
    while tried < moves and steps < most:
        # Afresh, so that sums do not drift.
        load[:] = 0
        for j in range(tables):
            _load(a_load, h_load, tt, j, a[j], h[j], loads[j])
        for shard in range(len(card)):
            load[card[shard]] += loads[owner[shard]]
        within, full = True, 0.0
        for m in range(cards):
            within = within and not _over(load[m], limit)
            for r in range(LOADS):
                full = max(full, load[m, r] * inverse[r])
        if within or full < fullest[0]:
            fullest[0], met_card[:], met_a[:], met_h[:] = full, card, a, h
        if within:
            return True, tried, steps
        steps += (len(card) + cards) * LOADS
        gained = 0.0
        random = _shuffle(order, random)
        for turn in order:
            shard = int(turn)
            j, m = owner[shard], card[shard]
            if not _over(load[m], limit):
                continue
            if steps >= most:
                break
            tried += 1
            steps += len(card) * LOADS
            own = loads[j]
            load[m] -= own
            loss = 0.0
            for r in range(LOADS):
                loss += heavy[r] * max((load[m, r] + own[r]) * inverse[r] - 1, 0.0) + prices[r] * own[r]
                loss -= heavy[r] * max(load[m, r] * inverse[r] - 1, 0.0)
            best, best_card, best_a, best_h = loss - 1e-9, m, a[j], h[j]
            if copies[j] == 1:
                steps += min(cards, CARDS) * cuts[j] * (cuts[j] + 1) / 2
                best, best_card, best_a, best_h = _place(cut, cuts, a_load, h_load, tt, j, _emptiest(load, inverse, m),
                                                         load, inverse, heavy, prices, best, best_card, best_a, best_h)
            else:
                asked = 0.0
                for r in range(LOADS):
                    asked += prices[r] * own[r]
                steps += cards * LOADS
                best, best_card = _move(lies[j], own, load, inverse, heavy, best - asked, m)
                best += asked
            best, other = _exchange(loads, card, owner, copies, lies, shard, load, inverse, heavy, prices, best)
            if other >= 0:
                best_card, best_a, best_h = card[other], a[j], h[j]
                load[best_card] -= loads[owner[other]]
                load[m] += loads[owner[other]]
                card[other] = m
                lies[owner[other], best_card], lies[owner[other], m] = False, True
            gain = max(loss - 1e-9 - best, 0.0)
            lies[j, m] = False
            lies[j, best_card] = True
            card[shard], a[j], h[j] = best_card, best_a, best_h
            _load(a_load, h_load, tt, j, best_a, best_h, loads[j])
            load[best_card] += loads[j]
            if copies[j] > 1 and gain <= 1e-9:
                steps += copies[j] * cuts[j] * (cuts[j] + 1) / 2 * LOADS
                gain = _together(cut, cuts, a_load, h_load, tt, j, card[first[j]:first[j] + copies[j]], a, h, load,
                                 inverse, heavy, prices, loads[j])
            gained += gain
        if gained <= 1e-9 and steps < most:
            still += 1
            random = _go_astray(load, limit, heavy, card, owner, copies, lies, still, random)
    state[0], state[1] = random, np.uint64(still)
    return False, tried, steps
