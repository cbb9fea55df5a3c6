"""What parts of a log asked of the rows that the parts before them had: a held-out estimate (Jelinek and Mercer 1985).

The next samples are expected to ask of the rows of the whole log what the samples behind a cut asked of those before
it, at the cut where the samples behind are the same share of those before. Rows are compared by their place from the
hottest to the coldest: the mean of the share of all rows and of all accesses that the rows up to it have. The longer a
log, the fewer rows are new to it: the share of accesses to new rows behind a cut is corrected by the difference that
Good's and Turing's estimate has between the samples before the cut and the whole log. Both halves of the log are cut,
too: by how far they differ, the estimate may be wrong.

Where rows come and go, the latest accesses say most of the next ones: an access then counts by its age, all but a floor
of it half as much after each half-life. The cuts of the log say which half-life and floor rank the rows best, or that
all accesses count alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

#: Where the stretches of a log end that are counted apart, in sixteenths of it.
ENDS = (4, 8, 12, 14, 15, 16)
#: What is compared: begin, cut and end, in sixteenths; the whole log by rising cuts, then its halves.
SPLITS = ((0, 4, 16), (0, 8, 16), (0, 12, 16), (0, 14, 16), (0, 15, 16), (0, 4, 8), (8, 12, 16))
WHOLE = 5
HALVES = (5, 6)
#: Places from the hottest row to the coldest up to which accesses are counted.
PLACES = np.arange(1, 97) / 96
#: Accesses before and after a cut, of which fewer say nothing.
FEWEST = 2000
#: Samples until the next refresh, as a share of the log's, where nothing else is said.
HORIZON = 0.25
#: Rows of which all are compared; of more, those with most accesses and some of the others. Half-lives are compared on
#: fewer.
ROWS, FEW_ROWS = 1 << 17, 1 << 14
#: Half-lives of accesses, in sixteenths of the log, and what is left of an access of any age; first: all count alike.
AGEING = ((0, 1.0), *((half_life, floor) for half_life in (4, 2, 1) for floor in (0.0, 0.125)))
#: For accesses to count by their age the hottest rows before the cuts must take more of the accesses behind them: by so
#: large a share on average over numbers of rows, and of no number less by more than this.
GAIN, LOSS = 0.01, 0.001
#: What an access of age 0 counts, and to how many leading bits a row's sum of them is known, so that few sums differ.
NEW, LEADING = 1 << 16, 7
WRONG = "what parts of the log asked of its rows is not whole"


@dataclass(frozen=True, eq=False)
class Returns:
    """Of one table. after: (SPLITS, PLACES) accesses behind the cut to the rows before it up to each place; whole:
    (SPLITS,) all accesses behind it, 0 where there are too few; once, before: (SPLITS + 1,) rows with one access before
    it, and all accesses before it, last those of the whole log. ageing: which of AGEING accesses count by. horizon:
    samples that are expected, as a share of the log's; half: None: as all of the log lets expect; 0, 1: as its first or
    second half alone."""

    after: NDArray[np.int64]
    whole: NDArray[np.int64]
    once: NDArray[np.int64]
    before: NDArray[np.int64]
    ageing: int = 0
    horizon: float = HORIZON
    half: int | None = None

    def curve(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """The share of the accesses that are expected to the rows up to each place."""
        return np.interp(places, np.append(0.0, PLACES), np.append(0.0, self._at()))

    @property
    def unseen(self) -> float:
        """The share of the accesses that are expected to rows which the log does not have."""
        return float(1 - self._at()[-1])

    def expecting(self, horizon: float, half: int | None = None) -> "Returns":
        """For so many samples, as a share of the log's."""
        return replace(self, horizon=horizon, half=half)

    @property
    def spread(self) -> tuple["Returns", "Returns", "Returns"]:
        """As the whole log, its first and its second half let expect, for as many samples as each of them has."""
        return self.expecting(1.0), self.expecting(1.0, 0), self.expecting(1.0, 1)

    def _at(self) -> NDArray[np.float64]:
        """(PLACES,) of the accesses, cut where as many are behind, relative to those before; between two cuts on a
        straight line."""
        if self.half is not None and self.whole[HALVES[self.half]]:
            return self._behind(HALVES[self.half])
        known = [split for split in range(WHOLE) if self.whole[split]]
        cuts, cut = [SPLITS[split][1] for split in known], 16 / (1 + self.horizon)
        curves = [self._behind(split) for split in known]
        high = min(max(int(np.searchsorted(cuts, cut)), 1), len(known) - 1)
        if not high:
            return curves[0]
        low = high - 1
        part = min(max((cut - cuts[low]) / (cuts[high] - cuts[low]), 0.0), 1.0)
        curve: NDArray[np.float64] = curves[low] + part * (curves[high] - curves[low])
        return curve

    def _behind(self, split: int) -> NDArray[np.float64]:
        """(PLACES,) of the accesses behind a cut, with as many new rows as the whole log lets expect."""
        curve: NDArray[np.float64] = self.after[split] / self.whole[split]
        alone = self.once[[split, -1]] / self.before[[split, -1]]
        unseen = min(max(1 - curve[-1] + alone[1] - alone[0], 0.0), 1.0)
        return curve * ((1 - unseen) / curve[-1]) if curve[-1] else curve

    def array(self) -> NDArray[np.int64]:
        """All numbers, as `of` takes them."""
        return np.concatenate([[round(self.horizon * (1 << 32)), self.ageing], self.once, self.before, self.whole,
                               self.after.ravel()])

    @classmethod
    def of(cls, numbers: Sequence[int] | NDArray[np.int64]) -> "Returns | None":
        """None of no numbers. Raises ValueError: numbers that `array` does not give"""
        if not len(numbers):
            return None
        found = np.asarray(numbers)
        splits = len(SPLITS)
        if len(found) != 4 + splits * (3 + len(PLACES)) or found.min() < 0 or not found[0] \
                or found[1] >= len(AGEING):
            raise ValueError(WRONG)
        once, before, whole, after = np.split(found[2:], np.cumsum([splits + 1, splits + 1, splits]))
        after = after.reshape(splits, -1)
        if not whole[:WHOLE].any() or (np.diff(after, axis=1) < 0).any() or (after[:, -1] > whole).any() \
                or (once > before).any() or not before[:splits][whole > 0].all() or not before[-1]:
            raise ValueError(WRONG)
        return cls(after, whole, once, before, int(found[1]), int(found[0]) / (1 << 32))


def measured(known: NDArray[np.uint64], total: NDArray[np.int64], ids: Sequence[NDArray[np.uint64]],
             counts: Sequence[NDArray[np.int64]]) -> Returns | None:
    """known, total: ids, ascending, and the accesses to each; ids, counts: the same of the stretches up to each of
    ENDS. None of too few."""
    totals = np.array([int(each.sum()) for each in counts])
    if min(totals[:-1].sum(), totals[1:].sum()) < FEWEST:
        return None
    kept, weight = _some(known, total, ROWS)
    of = _by_stretch(known[kept], ids, counts)
    few, weight_of_few = _some(known[kept], total[kept], FEW_ROWS)
    ageing = _ageing(of[:, few], weight[few] * weight_of_few, totals)
    after, whole = np.zeros((len(SPLITS), len(PLACES)), np.int64), np.zeros(len(SPLITS), np.int64)
    once, before = np.zeros((2, len(SPLITS) + 1), np.int64)
    for split, ends in enumerate((*SPLITS, (0, ENDS[-1], ENDS[-1]))):
        first, middle, last = _stretches(*ends)
        requests = of[first:middle].sum(axis=0)
        before[split] = totals[first:middle].sum()
        once[split] = min(int(weight[requests == 1].sum()), before[split])
        if split < len(SPLITS) and min(before[split], totals[middle:last].sum()) >= FEWEST:
            whole[split] = totals[middle:last].sum()
            behind = _hottest(by_age(of[first:middle], first, ageing), of[middle:last].sum(axis=0), weight, places)
            after[split] = np.minimum(behind, whole[split])
    return Returns(after, whole, once, before, ageing) if whole[:WHOLE].any() else None


def weighted(known: NDArray[np.uint64], ids: Sequence[NDArray[np.uint64]], counts: Sequence[NDArray[np.int64]],
             ageing: int) -> NDArray[np.int64]:
    """(known,) accesses that count by their age at the end of the log; arguments as of `measured`. Of ROWS ids at once,
    which bounds the memory."""
    return np.concatenate([by_age(_by_stretch(known[start:start + ROWS], ids, counts), 0, ageing)
                           for start in range(0, len(known), ROWS)])


def by_age(of: NDArray[np.int64], first: int, ageing: int) -> NDArray[np.int64]:
    """(rows,) sums of accesses of so many stretches from the first on, which count by their age at the end of the last
    one; above 0 where there is an access. of: (stretches, rows)."""
    half_life, floor = AGEING[ageing]
    if not half_life:
        return of.sum(axis=0)
    ends = np.append(0, ENDS)[first:first + len(of) + 1]
    age = ends[-1] - (ends[:-1] + ends[1:]) / 2
    # By the C library, whose powers of two are exact on every processor: some weights lie between two numbers.
    weights = [round(NEW * (floor + (1 - floor) * 0.5 ** (each / half_life))) for each in age.tolist()]
    sums = np.array(weights) @ of
    lost = np.maximum(np.frexp(sums)[1] - LEADING, 0)
    return sums >> lost << lost


def _by_stretch(known: NDArray[np.uint64], ids: Sequence[NDArray[np.uint64]],
                counts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """(ENDS, known) accesses of each stretch to each id."""
    of = np.zeros((len(ENDS), len(known)), np.int64)
    for stretch, (own, many) in enumerate(zip(ids, counts, strict=True)):
        if len(own):
            place = np.minimum(np.searchsorted(own, known), len(own) - 1)
            of[stretch] = np.where(own[place] == known, many[place], 0)
    return of


def _stretches(*ends: int) -> list[int]:
    """The stretches that begin at these sixteenths of the log."""
    return [int(at) for at in np.searchsorted(np.append(0, ENDS), ends)]


def _ageing(of: NDArray[np.int64], weight: NDArray[np.int64], totals: NDArray[np.int64]) -> int:
    """That of AGEING by which the hottest rows before the cuts of the whole log take most accesses behind them; the
    first where the others take hardly more, or less where rows are few or many."""
    taken, cuts = np.zeros((len(AGEING), len(PLACES))), 0
    for first, middle, last in (_stretches(*split) for split in SPLITS[1:WHOLE]):
        behind = int(totals[middle:last].sum())
        if min(int(totals[first:middle].sum()), behind) >= FEWEST:
            cuts += 1
            taken += [_hottest(by_age(of[first:middle], first, ageing), of[middle:last].sum(axis=0), weight,
                               _shares) / behind for ageing in range(len(AGEING))]
    more = (taken - taken[0]) / max(cuts, 1)
    more = np.where(more.min(axis=1) < -LOSS, 0.0, more.mean(axis=1))
    return int(np.argmax(more)) if more.max() >= GAIN else 0


def _some(known: NDArray[np.uint64], total: NDArray[np.int64],
          most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(places among the ids, how many each stands for): all, or of more than so many those with most accesses, and by a
    hash every so many of the others."""
    if len(known) <= most:
        return np.arange(len(known)), np.ones(len(known), np.int64)
    hot = total > np.partition(total, -most // 2)[-most // 2]
    each = -(-2 * len(known) // most)
    hashed = (known * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    kept = np.flatnonzero(hot | (hashed % np.uint64(each) == 0))
    return kept, np.where(hot[kept], 1, each)


def _hottest(before: NDArray[np.int64], after: NDArray[np.int64], weight: NDArray[np.int64],
             places_of: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]) -> NDArray[np.int64]:
    """(PLACES,) accesses after to the rows up to each place by the accesses before; rows of as many accesses share
    theirs alike."""
    seen = np.flatnonzero(before)
    if not len(seen):
        return np.zeros(len(PLACES), np.int64)
    order = seen[np.argsort(-before[seen], kind="stable")]
    last = np.append(np.diff(before[order]) != 0, True)
    place = places_of(before[order], weight[order])[last]
    accesses = np.cumsum((weight * after)[order])[last]
    return np.rint(np.interp(PLACES, np.append(0, place), np.append(0, accesses))).astype(np.int64)


def _shares(accesses: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """As `places`, by the rows alone."""
    many = np.cumsum(rows)
    share: NDArray[np.float64] = many / many[-1]
    return share


def places(accesses: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of so many rows of so many accesses each, hottest first, the places up to the last of each."""
    many, lookups = np.cumsum(rows), np.cumsum(accesses * rows)
    share: NDArray[np.float64] = (many / many[-1] + lookups / lookups[-1]) / 2
    return share
