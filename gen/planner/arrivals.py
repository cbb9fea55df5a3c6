"""Latency of a system under load: queries arrive at random, batches follow each other through its stages.

Queries arrive one by one (Poisson), each of one sample or of several, and are answered with their last sample. Whenever
the first stage is free it takes the samples that wait, at most a batch. A stage works on one batch at a time; a batch
stays in its stage until the next one is free. Stages that overlap (`Stages.free_s`) begin the next batch sooner, and a
batch then begins no sooner than it must to find every later stage free.
Source: MLPerf Inference, the server scenario (Poisson arrivals, a percentile of the latency); offline is `Stages.most`
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from gen.model.device import Device
from gen.planner.plan import MEMORIES, Plan

DRAM, SSD = MEMORIES.index("dram"), MEMORIES.index("ssd")
QUERIES = 100_000       # that arrive in a run, the first tenth not counted
CLOSE = 0.005           # of a rate, the step at which the search for it ends
LEAST = 1e-6            # of the largest rate, the least that is tried


@dataclass(frozen=True, eq=False)
class Stages:
    """What a batch passes, in order. points (P,): sizes of batches, ascending, the last one the largest batch; at_s
    (K, P): seconds that each of the K stages takes for them, in between on straight lines. free_s (K, P): seconds from
    a batch's begin to that of the next, of stages that work on up to three at a time; None: on one."""

    names: tuple[str, ...]
    points: NDArray[np.int64]
    at_s: NDArray[np.float64]
    free_s: NDArray[np.float64] | None = None

    @classmethod
    def linear(cls, names: tuple[str, ...], fixed_s: NDArray[np.float64], sample_s: NDArray[np.float64],
               batch: int) -> "Stages":
        """Stages of fixed_s + n * sample_s (K,) seconds for a batch of n samples."""
        return cls(names, np.array([0, batch]), np.stack([fixed_s, fixed_s + batch * sample_s], axis=1))

    @classmethod
    def of(cls, plan: Plan, device: Device) -> "Stages":
        """Of a plan: indices to the EMB cards, with the wait for the first page of the drive; memories and TT; pooled
        vectors to the host; and where there is a network, features to the MLP cards, networks, predictions. Of cards
        that work side by side the slowest counts."""
        dma, start = device.dma_s, device.start_s
        emb = [card for card in plan.cards if card.kind == "emb"]
        work = np.array([plan.work(card.number) for card in emb])
        idle = np.array([card.memory_seconds for card in emb]) - work
        stages = [
            ("indices to the cards", dma + max(float((idle[:, SSD] - idle[:, DRAM]).max()), 0.0),
             max(card.in_s for card in emb)),
            ("embedding", start, float(work.max())),
            ("vectors to the host", dma, max(card.out_s for card in emb))]
        if mlp := [card for card in plan.cards if card.kind == "mlp"]:
            stages += [("features to the cards", dma, max(card.in_s for card in mlp)),
                       ("networks", start, max(card.bottom_s + card.top_s for card in mlp)),
                       ("predictions to the host", dma, max(card.out_s for card in mlp))]
        names, fixed, each = zip(*stages, strict=True)
        return cls.linear(names, np.array(fixed), np.array(each) / plan.batch, plan.batch)

    @property
    def batch(self) -> int:
        """Samples at most."""
        return int(self.points[-1])

    def seconds(self, samples: ArrayLike) -> NDArray[np.float64]:
        """(K, ...) of each stage for batches of so many samples."""
        return self._between(samples, self.at_s)

    def free(self, samples: ArrayLike) -> NDArray[np.float64]:
        """(K, ...) from the begin of a batch of so many samples in each stage to that of the next."""
        return self._between(samples, self.at_s if self.free_s is None else self.free_s)

    def _between(self, samples: ArrayLike, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        wanted = np.asarray(samples, np.float64)
        return np.array([np.interp(wanted, self.points, own) for own in seconds])

    def upto(self, batch: int) -> "Stages":
        """The same with batches of at most so many samples, no more than before."""
        points = np.append(self.points[self.points < batch], batch)
        return Stages(self.names, points, self.seconds(points), None if self.free_s is None else self.free(points))

    @property
    def most(self) -> float:
        """Samples per second with full batches, one behind the other: the slowest stage's."""
        return self.batch / float(self.free(self.batch).max())

    @property
    def slowest(self) -> str:
        """The stage that limits `most`, by its name."""
        return self.names[int(self.free(self.batch).argmax())]

    def _serve(self, arrival: NDArray[np.float64], size: NDArray[np.int64]) -> tuple[NDArray[np.float64], int]:
        """(queries,) seconds in the system, and how many batches there were."""
        each = np.arange(self.batch + 1)
        return _through(arrival, size, self.seconds(each), self.free(each), self.free_s is not None)


class Latency(NamedTuple):
    """Seconds from a query's arrival to its result, at three percentiles; the average batch in samples."""

    p50: float
    p95: float
    p99: float
    batch: float


def latency(stages: Stages, qps: float, *, queries: int = QUERIES, sizes: NDArray[np.int64] | None = None,
            seed: int = 1) -> Latency:
    """At so many queries per second, as they arrive at random. Above the rate that the stages sustain it
    grows with `queries`. sizes (queries,): samples of each query, in place of one."""
    size = np.ones(queries, np.int64) if sizes is None else sizes
    arrival = np.cumsum(np.random.default_rng(seed).exponential(1 / qps, len(size)))
    waited, batches = stages._serve(arrival, size)
    p50, p95, p99 = np.percentile(waited[len(size) // 10:], (50, 95, 99))
    return Latency(float(p50), float(p95), float(p99), float(size.sum()) / batches)


def offline(stages: Stages, sizes: NDArray[np.int64]) -> float:
    """Queries per second where all of them are there at the start."""
    waited, _ = stages._serve(np.zeros(len(sizes)), sizes)
    return len(sizes) / float(waited.max())


def sustained(stages: Stages, p99_s: float, *, sizes: NDArray[np.int64] | None = None) -> float:
    """The most queries per second whose 99th percentile is within p99_s, to half a per cent; 0 where it is at none.
    sizes: as `latency` takes them."""
    low, high = 0.0, stages.most / (1.0 if sizes is None else float(sizes.mean()))
    most = high
    if stages.seconds(1).sum() > p99_s:
        return 0.0
    while high - low > CLOSE * high and high > LEAST * most:
        middle = (low + high) / 2
        if latency(stages, middle, sizes=sizes).p99 <= p99_s:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True)
def _through(arrival, size, taken, free, overlaps):
    """(queries,) seconds in the system, and how many batches there were. taken, free (K, largest batch + 1): seconds of
    each stage by the samples of a batch, and until it may begin the next. overlaps: a stage begins the next as soon as
    it is free and no two others are in it beside this one, else when this one has left; and a batch begins no sooner
    than it must to meet a later stage that is free, so that it takes what comes meanwhile."""
    waited, left, exits = np.zeros(len(arrival)), np.zeros(len(taken) + 1), np.zeros((2, len(taken)))
    batch, first, gone, batches = taken.shape[1] - 1, 0, 0, 0      # gone: samples of query `first` that are under way
    while first < len(arrival):
        soonest = start = max(arrival[first], left[0])
        last, samples, rest = _waiting(arrival, size, first, gone, start, batch)
        for _ in range(2 * overlaps):       # first by those who wait now, then by those who will have come
            start, behind = soonest, 0.0
            for stage in range(len(taken)):
                start = max(start, left[stage] - behind)
                behind += taken[stage, samples]
            last, samples, rest = _waiting(arrival, size, first, gone, start, batch)
        gone = rest
        now = start
        for stage in range(len(taken)):
            begun = now
            now = max(begun + taken[stage, samples], exits[1, stage])       # behind the batch before, if smaller
            if stage + 1 < len(taken):
                now = max(now, left[stage + 1])     # it stays there until the next stage is free
            left[stage] = max(begun + free[stage, samples], exits[0, stage]) if overlaps else now
            exits[0, stage], exits[1, stage] = exits[1, stage], now
        for query in range(first, last):
            waited[query] = now - arrival[query]
        first, batches = last, batches + 1
    return waited, batches


@njit(cache=True)
def _waiting(arrival, size, first, gone, start, batch):
    """(the first query that stays, samples that are taken, those of that query among them) of what waits at `start`,
    at most a batch. gone: samples of query `first` that were taken before."""
    last, samples = first, 0
    while last < len(arrival) and samples < batch and arrival[last] <= start:
        rest = size[last] - gone
        if samples + rest > batch:
            return last, batch, gone + batch - samples
        samples += rest
        gone = 0
        last += 1
    return last, samples, gone
