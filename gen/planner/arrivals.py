"""Latency of a planned system under load: samples arrive at random, batches follow each other through its stages.

Samples arrive one by one (Poisson). Whenever the first stage is free it takes the samples that wait, at most a batch. A
stage works on one batch at a time; a batch stays in its stage until the next one is free.
Source: MLPerf Inference, the server scenario (Poisson arrivals, a percentile of the latency); offline is `Stages.most`
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gen.model.device import Device
from gen.planner.plan import Plan

__all__ = ["Latency", "Stages", "latency", "sustained"]

SAMPLES = 100_000       # that arrive in a run, the first tenth not counted
CLOSE = 0.005           # of a rate, the step at which the search for it ends
LEAST = 1e-6            # of the largest rate, the least that is tried


@dataclass(frozen=True, eq=False)
class Stages:
    """What a batch passes, in order. fixed_s, sample_s (K,): seconds of a stage for a batch of n samples are
    fixed_s + n * sample_s. batch: samples at most."""

    names: tuple[str, ...]
    fixed_s: NDArray[np.float64]
    sample_s: NDArray[np.float64]
    batch: int

    @classmethod
    def of(cls, plan: Plan, device: Device) -> "Stages":
        """Of a plan: indices to the EMB cards, with the wait for the first page of the drive; memories and TT; pooled
        vectors to the host; and where there is a network, features to the MLP cards, networks, predictions. Of cards
        that work side by side the slowest counts."""
        host = device.host
        dma = (host.submit_us + device.link.latency_us + host.complete_us) * 1e-6
        start = (host.doorbell_us + host.poll_us) * 1e-6
        emb = [card for card in plan.cards if card.kind == "emb"]
        pages = [sum(table.on_card("ssd").seconds for table in plan.tables.values() if card.number in table.cards)
                 for card in emb]
        stages = [
            ("indices to the cards", dma + max(card.ssd.seconds - own for card, own in zip(emb, pages, strict=True)),
             max(card.in_s for card in emb)),
            ("embedding", start, max(max(card.dram.seconds, card.tt.seconds, own)
                                     for card, own in zip(emb, pages, strict=True))),
            ("vectors to the host", dma, max(card.out_s for card in emb))]
        if mlp := [card for card in plan.cards if card.kind == "mlp"]:
            stages += [("features to the cards", dma, max(card.in_s for card in mlp)),
                       ("networks", start, max(card.bottom_s + card.top_s for card in mlp)),
                       ("predictions to the host", dma, max(card.out_s for card in mlp))]
        names, fixed, each = zip(*stages, strict=True)
        return cls(names, np.array(fixed), np.array(each) / plan.batch, plan.batch)

    def seconds(self, samples: int) -> NDArray[np.float64]:
        """(K,) of each stage for a batch of so many samples."""
        return self.fixed_s + samples * self.sample_s

    @property
    def most(self) -> float:
        """Samples per second with full batches, one behind the other: the slowest stage's."""
        return self.batch / float(self.seconds(self.batch).max())


class Latency(NamedTuple):
    """Seconds from a sample's arrival to its result, at three percentiles; the average batch."""

    p50: float
    p95: float
    p99: float
    batch: float


def latency(stages: Stages, qps: float, *, samples: int = SAMPLES, seed: int = 1) -> Latency:
    """At so many samples per second, as they arrive at random. Above `stages.most` it grows with `samples`."""
    arrival = np.cumsum(np.random.default_rng(seed).exponential(1 / qps, samples))
    waited, batches = _through(arrival, stages.fixed_s, stages.sample_s, stages.batch)
    p50, p95, p99 = np.percentile(waited[samples // 10:], (50, 95, 99))
    return Latency(float(p50), float(p95), float(p99), samples / batches)


def sustained(stages: Stages, p99_s: float) -> float:
    """The most samples per second whose 99th percentile is within p99_s, to half a per cent; 0 where a lone sample
    takes longer."""
    low, high = 0.0, stages.most
    if stages.seconds(1).sum() > p99_s:
        return 0.0
    while high - low > CLOSE * high and high > LEAST * stages.most:
        middle = (low + high) / 2
        if latency(stages, middle).p99 <= p99_s:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True)
def _through(arrival, fixed, each, batch):
    """(samples,) seconds in the system, and how many batches there were."""
    waited, left = np.zeros(len(arrival)), np.zeros(len(fixed) + 1)
    first, batches = 0, 0
    while first < len(arrival):
        start = max(arrival[first], left[0])
        last = first
        while last < len(arrival) and last - first < batch and arrival[last] <= start:
            last += 1
        now = start
        for stage in range(len(fixed)):
            now += fixed[stage] + (last - first) * each[stage]
            if stage + 1 < len(fixed):
                now = max(now, left[stage + 1])
            left[stage] = now       # it stays there until the next stage is free
        for sample in range(first, last):
            waited[sample] = now - arrival[sample]
        first, batches = last, batches + 1
    return waited, batches
