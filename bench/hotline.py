"""The Hotline core's logger: which rows it finds hot, beside the oracle and other caches, and what comes of it.

Rows are placed as the core places them (golden.hotline.randomizer), and all policies see the same accesses. The
oracle counts the whole log and takes the rows that it accesses most.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data import CALIBRATION, logs
from bench.framework import Row, at_least, at_most, bench, figure
from bench.peers import POLICIES, filled, written
from gen.base.tools import data_path
from gen.data.logs import Trace
from gen.data.logs.criteo import BLOCK, ClickLog
from golden.hotline.bank import ID_BITS, STEADY, WAYS, oracle, run
from golden.hotline.randomizer import permute

BANKS = 16
INSERT_LOG2 = 5             # of the presets, whose policy is STEADY
OTHERS = {"srrip": "plain SRRIP, every miss comes in",
          "sampled": f"SRRIP, the last of {1 << INSERT_LOG2} misses in full sets comes in"}
ZIPF_ROWS, ZIPF_ACCESSES = 2_000_000, 20_000_000
ZIPF = ((1.05, 1 << 14, 0.947), (0.90, 1 << 14, None), (1.20, 1 << 14, None), (1.05, 1 << 17, None))
MATTERS = 0.98              # with fewer accesses to hot rows few samples of many indices are popular
SIZES = tuple(1 << bits for bits in range(17, 24))      # of the logger, in rows
PRESET_SIZES = {1 << 19: "hotline_fpga", 1 << 22: "hotline"}
LEARNED = 0.05              # of Criteo's samples, as the thesis learns from
LEARNED_FROM = (0.01, 0.02, 0.05, 0.1, 0.2)             # by the preset `hotline`
CRITEO_SAMPLES = 45_840_617
JUDGED = 1 << 18            # samples of Criteo, none of them learned from, that are judged popular or not
TABLE_BITS = 24             # of a row within its table, where the table's number stands above it


class Logger:
    """The logger of `entries` rows, without the core around it. policy: see golden.hotline.bank."""

    def __init__(self, entries: int, rows: int, *, banks: int = BANKS, randomized: bool = True, policy: str = STEADY):
        sets = entries // banks // WAYS
        self.bits = (banks - 1).bit_length(), (sets - 1).bit_length()
        self.domain_bits = max(20, sum(self.bits) + ID_BITS)
        if rows > 1 << self.domain_bits:
            raise ValueError(f"{entries} entries name {1 << self.domain_bits} rows at the most, not {rows}")
        self.randomized, self.policy = randomized, policy
        self.image = np.zeros((banks, sets, WAYS), np.uint32)
        self.counts = np.zeros(banks, np.uint32)

    def place(self, rows: NDArray[np.int64]) -> tuple[NDArray, NDArray, NDArray]:
        """(bank, set, id) of row numbers."""
        number = permute(rows, self.domain_bits) if self.randomized else rows
        bank_bits, set_bits = self.bits
        return (number & (1 << bank_bits) - 1, number >> bank_bits & (1 << set_bits) - 1,
                number >> bank_bits + set_bits & (1 << ID_BITS) - 1)

    def learn(self, rows: NDArray[np.int64]) -> None:
        run(self.image, self.counts, *self.place(rows), INSERT_LOG2, True, self.policy)

    def holds(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        hit, _ = run(self.image, self.counts, *self.place(rows.ravel()), INSERT_LOG2, False, self.policy)
        return hit.reshape(rows.shape)


def held_by_sets(logger: Logger, accesses: NDArray[np.int64]) -> int:
    """Accesses to the rows that a perfect choice would hold, four of each set."""
    rows = np.flatnonzero(accesses)
    bank, at, _ = logger.place(rows)
    where = at * len(logger.image) + bank
    order = np.lexsort((-accesses[rows], where))
    first = np.concatenate([[True], np.diff(where[order]) != 0])
    rank = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    return int(accesses[rows[order[rank < WAYS]]].sum())


def held(logger: Logger, accesses: NDArray[np.int64]) -> int:
    """Accesses to the rows that the logger holds."""
    rows = np.flatnonzero(accesses)
    return int(accesses[rows[logger.holds(rows)]].sum())


def peers(rows: NDArray[np.int64], accesses: NDArray[np.int64], entries: int) -> Iterator[tuple[str, int]]:
    """(name, accesses to the rows that it holds in the end) of libcachesim's fully associative caches."""
    import libcachesim

    request: Any = libcachesim.Request()
    request.obj_size = 1
    with written(rows) as path:
        for name in POLICIES:
            cache, total = filled(name, entries, path), 0
            for row in np.flatnonzero(accesses).tolist():
                request.obj_id = row
                if cache.find(request, update_cache=False) is not None:
                    total += int(accesses[row])
            yield name, total


def zipf(exponent: float) -> NDArray[np.int64]:
    """Accesses to rows whose popularity falls as rank**-exponent, the ranks scattered over the table."""
    random = np.random.default_rng(11)
    share = np.cumsum(np.arange(1, ZIPF_ROWS + 1) ** -exponent)
    rank = np.searchsorted(share, random.random(ZIPF_ACCESSES) * share[-1])
    return random.permutation(ZIPF_ROWS)[rank]


def coverage() -> Iterator[Row]:
    """Figure 6.6: accesses to the rows found hot, over those of the oracle's."""
    for exponent, entries, target in ZIPF:
        rows = zipf(exponent)
        accesses = np.bincount(rows, minlength=ZIPF_ROWS)
        best = oracle(accesses, entries)
        name = f"hotline.coverage.zipf{exponent:.2f}.{entries >> 10}k"
        what = f"Zipf {exponent:.2f}, {entries:,} hot rows"
        logger = Logger(entries, ZIPF_ROWS)
        logger.learn(rows)
        share = held(logger, accesses) / best
        text = f"{what} of {ZIPF_ROWS:,}: accesses that they take, over the oracle's"
        yield at_least(name, text, share, "", target) if target else figure(name, text, share, "")
        yield figure(f"{name}.oracle", f"{what}: the oracle's share of all accesses", 100 * best / len(rows), "%")
        yield figure(f"{name}.sets", f"{what}: a perfect choice, four of each set",
                     held_by_sets(logger, accesses) / best, "of the oracle's")
        for policy, text in OTHERS.items():
            other = Logger(entries, ZIPF_ROWS, policy=policy)
            other.learn(rows)
            yield figure(f"{name}.{policy}", f"{what}: {text}", held(other, accesses) / best, "of the oracle's")
        if target:
            for peer, total in peers(rows, accesses, entries):
                yield figure(f"{name}.{peer.lower()}", f"{what}: {peer}, fully associative", total / best,
                             "of the oracle's")


def in_samples(log: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """(row number, sample) of every access, sample by sample, tables one behind the other; and all their rows."""
    rows, samples, first = [], [], 0
    for name in log.indices:
        indices, offsets = log.bags(name)
        rows.append(indices + first)
        samples.append(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))
        first += log.rows[name]
    sample = np.concatenate(samples)
    order = np.argsort(sample, kind="stable")
    return np.concatenate(rows)[order], sample[order], first


def popular_samples(hot: NDArray[np.bool_], sample: NDArray[np.int64]) -> float:
    """The share of samples all of whose rows are hot, in %."""
    return 100 * (1 - np.count_nonzero(np.bincount(sample, weights=~hot)) / (sample.max() + 1))


def real_logs() -> Iterator[Row]:
    """Figures 6.6, 6.8 and 7.7 on real logs: each is learned whole, then judged."""
    for name, log in logs():
        rows, sample, count = in_samples(log)
        # A training run shuffles its samples; these logs are sorted by user or time.
        turn = np.random.default_rng(3).permutation(sample.max() + 1)
        order = np.argsort(turn[sample], kind="stable")
        accesses = np.bincount(rows, minlength=count)
        entries = 256
        while True:
            best = oracle(accesses, entries) / len(rows)
            logger, unshuffled, bare = (Logger(entries, count, randomized=kind != "bare")
                                        for kind in ("shuffled", "as it comes", "bare"))
            logger.learn(rows[order])
            unshuffled.learn(rows)
            bare.learn(rows[order])
            id, what = f"hotline.coverage.{name}.{entries}", f"{name}, {entries:,} of {count:,} rows"
            short = 100 * (best - held(logger, accesses) / len(rows))
            text = f"{what}: accesses short of the oracle's {100 * best:.1f} %"
            yield at_most(id, text, short, "points", 1) if best >= MATTERS else figure(id, text, short, "points")
            yield figure(f"{id}.sets", f"{what}: the same, a perfect choice, four of each set",
                         100 * (best - held_by_sets(logger, accesses) / len(rows)), "points")
            yield figure(f"{id}.unshuffled", f"{what}: the same, samples in the order of the log",
                         100 * (best - held(unshuffled, accesses) / len(rows)), "points")
            for policy, text in OTHERS.items():
                other = Logger(entries, count, policy=policy)
                other.learn(rows[order])
                yield figure(f"{id}.{policy}", f"{what}: the same, {text}",
                             100 * (best - held(other, accesses) / len(rows)), "points")
                yield figure(f"hotline.popular.{name}.{entries}.{policy}", f"{what}: popular samples, {text}",
                             popular_samples(other.holds(rows), sample), "% of samples")
            for kind, chosen in (("", logger), (".bare", bare)):
                yield figure(f"hotline.popular.{name}.{entries}{kind}",
                             f"{what}: popular samples" + (", without the randomizer" if kind else ""),
                             popular_samples(chosen.holds(rows), sample), "% of samples")
            if entries >= count:
                break
            entries *= 2


class Criteo:
    """A Criteo Kaggle trace and the samples of it, behind all that is learned from, that are judged."""

    WHAT = "Criteo Kaggle's shape"

    def __init__(self, calibration: Path):
        self.log = ClickLog(calibration)
        self.first = np.concatenate([[0], np.cumsum(self.log.rows)[:-1]])
        self.total = sum(self.log.rows)
        self.judged = np.concatenate(list(self.log.ranks(JUDGED, round(CRITEO_SAMPLES * max(LEARNED_FROM)) + BLOCK)))

    def numbers(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row numbers, hot rows scattered over each table."""
        return np.stack([self.log.row(table, ranks[:, table]) for table in range(ranks.shape[1])], axis=1) + self.first

    def in_front(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """As the thesis merges table and index, and real logs number rows as they are first met: hot ones first."""
        return ranks + (np.arange(ranks.shape[1]) << TABLE_BITS)

    def popular(self, logger: Logger, numbers: NDArray[np.int64]) -> float:
        return 100 * logger.holds(numbers).all(axis=1).mean()

    def sizes(self) -> Iterator[Row]:
        """Figures 7.7 and 6.8: over the logger's size, and with and without the randomizer."""
        loggers = {size: Logger(size, self.total) for size in SIZES}
        front = {(size, randomized): Logger(size, 1 << TABLE_BITS + 5, randomized=randomized)
                 for size in PRESET_SIZES for randomized in (False, True)}
        others = {(size, policy): Logger(size, self.total, policy=policy) for size in PRESET_SIZES for policy in OTHERS}
        for ranks in self.log.ranks(round(CRITEO_SAMPLES * LEARNED)):
            scattered, ordered = self.numbers(ranks).ravel(), self.in_front(ranks).ravel()
            for logger in (*loggers.values(), *others.values()):
                logger.learn(scattered)
            for logger in front.values():
                logger.learn(ordered)
        numbers = self.numbers(self.judged)
        for size, logger in loggers.items():
            name = f" (preset {PRESET_SIZES[size]})" if size in PRESET_SIZES else ""
            what = f"{self.WHAT}, {size:,} hot rows{name}, {100 * LEARNED:g} % learned"
            hot, ideal = logger.holds(numbers), self.judged < self.log.hottest(size)
            yield figure(f"hotline.popular.criteo.{size >> 10}k", f"{what}: popular samples",
                         100 * hot.all(axis=1).mean(), "% of samples")
            yield figure(f"hotline.popular.criteo.{size >> 10}k.oracle", f"{what}: the same, the oracle's rows",
                         100 * ideal.all(axis=1).mean(), "% of samples")
            yield figure(f"hotline.coverage.criteo.{size >> 10}k",
                         f"{what}: accesses that they take, over the oracle's", hot.mean() / ideal.mean(), "")
        for (size, policy), logger in others.items():
            yield figure(f"hotline.popular.criteo.{size >> 10}k.{policy}",
                         f"{self.WHAT}, {size:,} hot rows, {OTHERS[policy]}: popular samples",
                         self.popular(logger, numbers), "% of samples")
        for (size, randomized), logger in front.items():
            yield figure(f"hotline.popular.criteo.{size >> 10}k.front{'' if randomized else '.bare'}",
                         f"{self.WHAT}, {size:,} hot rows, those of each table in front of it: popular samples, with"
                         f"{'' if randomized else 'out'} the randomizer",
                         self.popular(logger, self.in_front(self.judged)), "% of samples")

    def learning(self) -> Iterator[Row]:
        """Figure 5.2: over what the largest preset's logger has learned from."""
        size = max(PRESET_SIZES)
        logger, numbers, done = Logger(size, self.total), self.numbers(self.judged), 0
        for share in LEARNED_FROM:
            for ranks in self.log.ranks(round(CRITEO_SAMPLES * share) - done, done):
                logger.learn(self.numbers(ranks).ravel())
            done = round(CRITEO_SAMPLES * share)
            yield figure(f"hotline.learned.criteo.{100 * share:g}",
                         f"{self.WHAT}, {size:,} hot rows, learned from {100 * share:g} % of the samples: "
                         "popular samples", self.popular(logger, numbers), "% of samples")


@bench("hotline")
def rows() -> Iterator[Row]:
    """The logger's choice of hot rows beside the oracle's and other caches', and the samples that it makes popular."""
    yield from coverage()
    yield from real_logs()
    if calibration := data_path(CALIBRATION):
        criteo = Criteo(calibration)
        yield from criteo.sizes()
        yield from criteo.learning()
