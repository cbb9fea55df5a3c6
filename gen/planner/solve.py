"""Solves the planner's program for many tables, with a bound that proves how near the best the placement is.

For each number of EMB cards, a linear program gives prices and a bound (gen.planner.bound), and the prices lead a
search to a placement (gen.planner.search). Where the gap stays open and tables are few, all ways to put them on the
cards are looked at (gen.planner.branch_and_bound).
Source: SCRec §III.C, eq. 3 to 37
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gen.planner.bound import LACK, LpSolution, Master
from gen.planner.branch_and_bound import TABLES, branch_and_bound
from gen.planner.choices import DRAM, EVERY_TIME, LOADS, OUT_S, SSD, TIMES, TT, Choices, loads, within
from gen.planner.problem import Placement, Problem, TableChoice
from gen.planner.search import search, spread
from gen.planner.tie_break import tie_break
from gen.planner.work import TRIED_S, Deadline

MOVES, MOVES_CARD = 6000, 100       # of a try of the search at most: so many, or so many a card where that is more
MOVES_TABLE = 200   # and no more of each table
CROWD = 12          # tables of one card: more are so small that the linear program does as well
LEANINGS = (1.0, 0.1, 0.01)
TURNS = 3           # times that targets nearer to the bound are tried, each time with other random numbers
FARTHER = 4         # times as far from the bound as a target that was missed is the next one
SETTLING = 0.2      # of the time: for the choice among placements that are as fast
SAFE = 1e-9         # of a bound: what rounding of its sums may be
WIDE = (2.0, 30.0, 1e3)     # times the tables' seconds shared out, where any placement is sought
GRACE = 1.0         # seconds of work past the budget in which a first placement is still sought
LAST = 10.0         # times the seconds of work: real seconds after which a search ends in any case
LEAST = 60.0        # of them, as loops may have to be compiled first
TIGHTEST = 1e-3     # gap that the search aims at, where less is asked for
#: Where tables are few, the parts of a card's time that a shard may take, as they are tried: small ones share out well.
GRAINS, FEW = (1.0, 0.5, 0.25, 0.1), 12
NOTHING = LpSolution(0.0, np.zeros(LOADS), *(np.zeros(0, np.int64),) * 3, np.zeros(0))     # where there was no time
FULL = 1 + 1e-9     # of a memory, for what rounding adds
#: Of the seconds of DRAM and of each other memory and direction, the part that a shard of a table takes at most that
#: more cards could share: what else lies on its card takes DRAM time, too.
APART = np.array([0.8, 1.0, 1.0, 1.0, 1.0])
PACKED = 0.1        # of the time that is left: what packed tables get of it
PAIRED = 0.2        # of a drive's time: a shard of several that takes more has the card without others of these
AIM = 0.35          # of the way from the bound to the target, where tables are packed
MIXES = 3           # numbers of tables on all cards that are tried


class Infeasible(ValueError):
    """There is no placement; the sentence says which constraint cannot hold and by how much."""


class NotFound(Infeasible):
    """No placement was found in the time that was given. There may be one."""


@dataclass
class _Count:
    """What is known of one number of EMB cards. bound: of the embedding's seconds. solution: what the linear program
    says of it. best: the least found; placement: (option, a, h) of each table and the card of each shard."""

    cards: int
    bottom: float
    top: float
    solution: LpSolution
    bound: float = 0.0
    best: float = np.inf
    placement: tuple[NDArray[np.int64], ...] | None = None

    def whole(self, seconds: float) -> float:
        """C of eq. 3 with so many seconds of embedding (eq. 34 to 37)."""
        return max(self.bottom, seconds) + self.top


def solve(problem: Problem, *, gap: float = 0.01, seconds: float = 60.0,
          say: Callable[[str], None] | None = None) -> Placement:
    """A placement, and the proof of how good it is. Ends with a gap of at most `gap`, or after `seconds` of work
    (gen.planner.work); after LAST times as many real ones at last.

    Raises      Infeasible: no placement holds every constraint, or NotFound; ValueError: an impossible gap or time
    """
    if not 0 <= gap < np.inf or not 0 < seconds < np.inf:
        raise ValueError(f"gap = {gap!r}, seconds = {seconds!r}: the gap must be 0 or more, the seconds above 0")
    if not problem.items:
        raise ValueError("items: there must be a table at least")
    tell = say or (lambda _: None)
    until = Deadline.of(seconds, max(LAST * seconds, LEAST))
    networks = problem.before_s > 0 or problem.after_s > 0
    if problem.cards < 1 + networks:
        raise Infeasible(f"cards = {problem.cards}: no EMB card is left" if problem.cards == 1 else
                         f"cards = {problem.cards}: there must be one at least")
    choices = Choices.of(problem)
    _each_fits(problem, choices)
    master = Master(choices)
    counts = _bounds(problem, master, networks, until, tell)
    best = _search_all(counts, choices, master, gap, until, tell)
    _prove(counts, choices, master, gap, until, tell)
    best = min((each for each in counts if each.placement is not None), key=lambda each: each.whole(each.best),
               default=best)
    if best is None or best.placement is None:
        if all(np.isinf(each.bound) for each in counts):
            raise Infeasible(f"tables: no way to put them on {counts[0].cards} EMB cards whole, though the memories of "
                             f"all together would hold them")
        raise NotFound(f"tables: no placement on {counts[0].cards} EMB cards was found in {seconds:g} s, though the "
                       f"memories of all together would hold them")
    option, a, h, card = tie_break(problem, choices, best.placement, max(best.bottom, best.best),
                                   until.within(SETTLING * seconds))
    cards = np.split(card, np.cumsum(choices.copies[option])[:-1])
    first = np.searchsorted(choices.table, choices.table[option])
    chosen = tuple(TableChoice(tuple(sorted(on.tolist())), *map(int, each))
                   for on, *each in zip(cards, a, h, option - first, strict=True))
    emb = loads(problem, chosen, best.cards)
    value = best.whole(max(card.seconds for card in emb))
    bound = min(value, min(each.whole(each.bound) for each in counts) * (1 - SAFE))
    return Placement(value, bound, chosen, emb, problem.cards - best.cards, until.clock.done, until.clock.late)


def _each_fits(problem: Problem, choices: Choices) -> None:
    """Raises Infeasible where a table fits no card, however it is split."""
    for j, item in enumerate(problem.items):
        options = np.nonzero(choices.table == j)[0]
        if np.isfinite(choices.tt[options]).any():
            continue
        j = int(options[0])     # whole
        a, h = (each.ravel() for each in np.meshgrid(*[choices.cut[j, : choices.cuts[j]]] * 2, indexing="ij"))
        warm = item.rows[h] - item.rows[a]
        fits = (a <= h) & within(item.share[h] - item.share[a], item.tt_share) & (warm <= item.tt_rows[-1])
        fits &= np.interp(warm, item.tt_rows, item.tt_bytes) <= choices.cap[TT]
        a, h = a[fits], h[fits]
        lack = sum(np.maximum(load - choices.cap[r], 0)
                   for load, r in ((choices.a_load[j, a, DRAM], DRAM), (choices.h_load[j, h, SSD], SSD)))
        raise Infeasible(f"table {item.name}: at least {lack.min():.0f} bytes of it fit in no memory of one card, "
                         f"which has {problem.dram_bytes} bytes of DRAM, {problem.tt_bytes} of TT memory and "
                         f"{problem.ssd_bytes} of SSD")


def _bounds(problem: Problem, master: Master, networks: bool, until: Deadline,
            tell: Callable[[str], None]) -> list[_Count]:
    """Of every number of EMB cards that has the memory, what bounds its time; the most promising first."""
    counts: list[_Count] = []
    lack = 0.0
    for cards in range(problem.cards - networks, 0 if networks else problem.cards - 1, -1):
        others, late = problem.cards - cards, counts and until.passed
        lack = 0.0 if late else master.overflow(cards, until).bound
        if lack > LACK:
            break
        relaxed = NOTHING if late else master.seconds(cards, until=until)
        each = _Count(cards, problem.before_s / max(others, 1), problem.after_s / max(others, 1), relaxed,
                      max(relaxed.bound, master.unit[0] / (TIMES * cards)))   # memories and link at once
        found = min((other.whole(other.bound) for other in counts), default=np.inf)
        if each.whole(each.bound) < found and not late and not master.choices.sharded:
            each.bound = max(each.bound, _crowded(cards, master, relaxed.prices, until))
        tell(f"{cards} EMB cards: at least {each.whole(each.bound):.4g} s, of them {each.bound:.4g} s of embedding"
             + (", more than fewer MLP cards need" if each.whole(each.bound) > found else ""))
        counts.append(each)
    if not counts:
        most = problem.cards - networks
        raise Infeasible(f"tables: {lack:.0f} bytes of them fit neither in the DRAM nor on the SSDs of the {most} "
                         f"card{'s' if most != 1 else ''} that may hold them, with {problem.dram_bytes} bytes of DRAM "
                         "each beside what a batch takes: more cards (--cards) or a smaller batch (--batch)")
    return sorted(counts, key=lambda each: each.whole(each.bound))


def _best(counts: list[_Count]) -> float:
    return min(each.whole(each.best) for each in counts)


def _search_all(counts: list[_Count], choices: Choices, master: Master, gap: float, until: Deadline,
                tell: Callable[[str], None]) -> _Count | None:
    """Searches a placement for those numbers of cards that may have the best one."""
    for each in counts:
        if each.whole(each.bound) * (1 + gap) >= _best(counts):
            break
        _descend(each, choices, master, gap, until.part(0.7), _best(counts))
        tell(f"{each.cards} EMB cards: {each.whole(each.best):.4g} s found")
    for each in counts:
        for wide in WIDE:
            if np.isinf(_best(counts)) and until.clock.done < until.at + GRACE:
                share = GRACE / len(counts) / len(WIDE)
                _try(each, choices, master, max(_floor(each), master.unit[0] / each.cards) * wide,
                     Deadline.of(share, share) if until.clock.late else until.later(share))
    return min(counts, key=lambda each: each.whole(each.best), default=None)


def _floor(count: _Count) -> float:
    return max(count.bound, count.bottom, 1e-30)


def _descend(count: _Count, choices: Choices, master: Master, gap: float, until: Deadline, known: float) -> None:
    """Looks for a placement near the bound, ever farther from it until there is one, then nearer again."""
    floor = _floor(count)
    wide = max(gap, TIGHTEST)
    low, step = 0.0, 0.5 * wide
    while step < 1e6 and not until.passed:
        if count.whole(floor * (1 + low)) >= known:
            return      # no better than another number of cards
        # Of the time, so much is left for targets that are farther.
        if _try(count, choices, master, floor * (1 + step), until.part(0.3)):
            break
        low, step = step, FARTHER * step
    if count.placement is None:
        return
    for turn in range(TURNS):
        while not until.passed and count.best > floor * (1 + 0.9 * gap) and count.best - floor * (1 + low) > \
                0.1 * wide * floor:
            middle = 0.5 * (low + count.best / floor - 1)
            if not _try(count, choices, master, floor * (1 + middle), until, turn):
                low = middle
        low = max(count.bound / floor - 1, 0.0)
    # The bound of rows, which a plan is told by, lies below this one: on from the placement, in steps.
    while not until.passed and count.best > floor * (1 + 0.5 * wide):
        if not _improve(count, choices, count.best - 0.1 * wide * floor, until):
            break


def _improve(count: _Count, choices: Choices, target: float, until: Deadline) -> bool:
    """Whether the search gets from the placement found to `target` seconds; what is met on the way is kept."""
    assert count.placement is not None
    limit = choices.cap.copy()
    limit[:TIMES] = choices.within(target)
    option, a, h, card = (each.copy() for each in count.placement)
    prices = count.solution.prices / max(float(count.solution.prices @ limit), 1e-300)
    found = search(choices.part(option), card, a, h, count.cards, limit, prices, until=until,
                   moves=max(MOVES, MOVES_CARD * count.cards))
    _keep(count, choices, option, a, h, card)
    return found


def _try(count: _Count, choices: Choices, master: Master, target: float, until: Deadline, turn: int = 0) -> bool:
    """Whether the search gets to `target` seconds, from mixtures that fill the memories the least for that time. Where
    there are none, no placement takes so little."""
    tables = choices.tables
    limit = choices.cap.copy()
    limit[:TIMES] = choices.within(target)
    if limit.min() < 0:
        return False
    aim = count.bound + 0.5 * (target - count.bound)
    grains = GRAINS if choices.sharded and tables <= FEW * count.cards else GRAINS[:1]
    mixes = _mixes(choices, count.cards, target) if len(grains) > 1 else ()
    little = until.part(PACKED)
    apart = packed(choices, count.cards, target, little) if len(grains) > 1 and tables > TABLES else None

    def filled(grain: float, allowed: NDArray[np.bool_] | None = None) -> LpSolution | None:
        found = (master.fill(count.cards, seconds, until, grain, allowed) for seconds in (aim, target))
        return next((each for each in found if each.bound <= FULL), None)

    if not (plain := filled(GRAINS[0])):
        count.bound = max(count.bound, target)
        return False
    begun = set()
    for solution in chain([apart], (filled(GRAINS[0], mix) for mix in mixes), [plain], map(filled, grains[1:]),
                          [count.solution]):
        if not solution or not len(solution.options):
            continue
        prices = solution.prices / max(float(solution.prices @ limit), 1e-300)
        option, *split = heaviest(choices, solution)
        if (begin := tuple(each.tobytes() for each in (prices, option, *split))) in begun:
            continue
        begun.add(begin)
        own = choices.part(option) if choices.varied else choices
        first = spread(own.load(np.arange(tables), *split), own.copies, limit, count.cards)
        until.spend(TRIED_S * len(first) * count.cards * LOADS)
        for seed, lean in enumerate(LEANINGS, 1 + turn * len(LEANINGS)):
            card, a, h = (each.copy() for each in (first, *split))
            moves = min(max(MOVES, MOVES_CARD * count.cards), MOVES_TABLE * len(card))
            given = little if solution is apart else until
            found = search(own, card, a, h, count.cards, limit, prices * lean, moves=moves, seed=seed, until=given)
            _keep(count, choices, option, a, h, card)
            if found:
                return True
            if until.passed:
                return False
            if given.passed:
                break
    return False


def packed(choices: Choices, cards: int, target: float, until: Deadline) -> LpSolution | None:
    """A mixture with each table in one option, where of shards that take more than PAIRED of a drive's time no two need
    to share a card, and memories are as empty as they can be. Of the linear program with all options one table after
    the other, that on the most cards first, gets the option that most of it has. None: there is no such mixture."""
    pairs, allowed = Master(choices.paired(target, PAIRED)), np.ones(len(choices.table), bool)
    room = np.append(choices.within(target), pairs.choices.cap[TIMES:]) * cards * FULL
    while not until.passed and (relaxed := pairs.seconds(cards, target, until, grain=APART,
                                                         allowed=allowed)).bound <= target:
        option, a, h = heaviest(choices, relaxed)
        mixed = np.setdiff1d(relaxed.options, option)
        chosen = np.isin(np.arange(len(allowed)), option)
        if not len(mixed):
            found = pairs.fill(cards, relaxed.bound + AIM * (target - relaxed.bound), until, APART, chosen, target)
            # Of a table's cuts that are mixed the one with shards that may share a card.
            more = pairs.choices.h_load[found.options, found.h, LOADS] > 0
            kept = ~(more & np.isin(found.options, found.options[~more]))
            return LpSolution(found.bound, found.prices[:LOADS], found.options[kept], found.a[kept], found.h[kept],
                              found.weights[kept])
        if (choices.copies[option] @ pairs.choices.load(option, a, h) > room).any():
            chosen |= choices.table != choices.table[mixed[choices.copies[mixed].argmax()]]
        allowed &= chosen
    return None


def _mixes(choices: Choices, cards: int, target: float) -> Iterator[NDArray[np.bool_]]:
    """Options of a few small tables on all cards and the others whole, so that what leaves the cards is within the
    target: whole tables alone may leave some cards with less to do."""
    most = np.zeros(choices.tables, np.int64)
    there = choices.copies <= cards
    np.maximum.at(most, choices.table[there], choices.copies[there])
    whole = np.searchsorted(choices.table, np.arange(choices.tables))
    last = choices.cut[whole, choices.cuts[whole] - 1]
    order = np.argsort(choices.a_load[whole, last, DRAM], kind="stable")
    order, out_s, found = order[most[order] == cards], choices.a_load[whole, 0, OUT_S], 0
    for number in range(len(order) + 1):
        fine = np.zeros(choices.tables, bool)
        fine[order[:number]] = True
        full = np.full(cards, out_s[fine].sum() / cards)
        for seconds in -np.sort(-out_s[~fine]):
            full[np.argmin(full)] += seconds
        if full.max() <= target:
            found += 1
            yield np.where(fine[choices.table], choices.copies == cards, choices.copies == 1)
        if found == MIXES:
            return


def heaviest(choices: Choices, solution: LpSolution) \
        -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(option, a, h) of each table: the option that most of it has, and of that the split that most has."""
    whole = np.zeros(len(choices.table))
    np.add.at(whole, solution.options, solution.weights)
    order = np.lexsort((solution.weights, whole[solution.options], choices.table[solution.options]))
    last = order[np.append(np.diff(choices.table[solution.options[order]]) > 0, True)]
    return solution.options[last], solution.a[last], solution.h[last]


def _keep(count: _Count, choices: Choices, option: NDArray[np.int64], a: NDArray[np.int64], h: NDArray[np.int64],
          card: NDArray[np.int64]) -> None:
    load = np.zeros((count.cards, LOADS))
    np.add.at(load, card, np.repeat(choices.load(option, a, h), choices.copies[option], axis=0))
    load[:, :TIMES] = choices.idle.added(load[:, :TIMES])
    if load[:, :TIMES].max() < count.best and (load <= choices.cap * (1 + 1e-12)).all():
        count.best, count.placement = float(load[:, :TIMES].max()), (option.copy(), a.copy(), h.copy(), card.copy())


def _prove(counts: list[_Count], choices: Choices, master: Master, gap: float, until: Deadline,
           tell: Callable[[str], None]) -> None:
    """Lifts the bounds that leave the gap open."""
    def open_() -> list[_Count]:
        return [each for each in counts if each.whole(each.bound) * (1 + gap) < _best(counts) and not until.passed]

    for each in open_():
        # A split that is slower than the best placement is in no better one.
        limit = _best(counts) - each.top
        found = master.lifted(each.cards, limit, until)
        crowded = 0.0 if choices.sharded else _crowded(each.cards, master, found.prices, until)
        each.bound = max(each.bound, found.bound, min(crowded, limit))
    for each in open_():
        limit = min(_best(counts) - each.top, each.best)
        whole = branch_and_bound(choices, each.cards, limit, until, near=gap / (1 + gap))
        if whole is None:
            continue
        each.bound = max(each.bound, whole.bound)
        if whole.placement is not None:
            _keep(each, choices, *whole.placement)
        tell(f"{each.cards} EMB cards: at least {each.whole(each.bound):.4g} s, by all ways of the tables")


def _crowded(cards: int, master: Master, prices: NDArray[np.float64], until: Deadline) -> float:
    """Seconds of the fullest card, at least: of the (k - 1) * cards + 1 most expensive tables, some card holds k."""
    cost = master.choices.cheapest(prices if prices.any() else EVERY_TIME)[0]
    order, found = np.argsort(-cost, kind="stable"), 0.0
    for crowd in range(1, min((len(order) - 1) // cards + 1, CROWD) + 1):
        if until.passed:
            break
        found = max(found, master.crowd(order[: (crowd - 1) * cards + 1], crowd, until).bound)
    return found
