"""How many words of embedding rows training moves to a device, and how its memory is best shared out.

A batch asks for each different row once (coalescing); rows that the device keeps are not moved at all (caching). Both
cost memory: a larger batch its activations, a cached row its words. What follows from the heat of rows alone:

    unique rows of a batch      sum_e 1 - (1 - P(e))^b                                      (1), (2)
    words of an epoch           Q d lookups                             as they come        (4)
                                Q lookups + Q/b d sum_e 1 - (1 - P(e))^b   coalesced, the sum over all rows (5)
                                                                           or those not cached (6)
    batch                       b = (M - |C| d) / a                                         (7)

Q samples, b a batch, d words of a row, M words of memory, a words of activations per sample. P(e): the chance that a
sample asks for row e. The paper's (5) and (6) count one index per sample; here it is as many as there are lookups.

Samples are taken to be independent draws: true of a shuffled log, an upper bound where samples near each other ask
for the same rows.                          Source: Stochastic Communication Avoidance for Recommendation Systems, §II
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gen.data.profile import Heat


@dataclass(frozen=True, eq=False)
class Traffic:
    """What a sample asks for. `rows[k]` rows are asked for by a sample with the chance `chance[k]` each, most likely
    first; lookups: of a sample, on the average."""

    chance: NDArray[np.float64]
    rows: NDArray[np.int64]
    lookups: float

    @classmethod
    def of(cls, heats: Iterable[Heat], samples: int) -> "Traffic":
        """Of tables with this heat in a log of so many samples.

        A bag's rows count as independent lookups, as many as the bags have on the average.

        Raises      ValueError: no samples
        """
        if samples < 1:
            raise ValueError(f"samples {samples} must be 1 or more")
        chances, rows, lookups = [np.empty(0)], [np.empty(0, np.int64)], 0.0
        for heat in heats:
            pooling = heat.total / samples
            chances.append(_hit(np.asarray(heat.accesses / max(heat.total, 1)), pooling))
            rows.append(heat.rows)
            lookups += pooling
        chance, group = np.unique(np.concatenate(chances), return_inverse=True)
        together = np.bincount(group, weights=np.concatenate(rows), minlength=chance.size).astype(np.int64)
        return cls(chance[::-1], together[::-1], lookups)

    @property
    def touched(self) -> int:
        """Rows that are asked for at all."""
        return int(self.rows.sum())

    @cached_property
    def _edges(self) -> NDArray[np.int64]:
        return np.cumsum(self.rows)

    def unique(self, batch: float, cached: int = 0) -> float:
        """Different rows that a batch asks for besides the `cached` likeliest, on the average.    Source: eq. 2, 6"""
        left = np.clip(self._edges - cached, 0, self.rows)
        first = np.searchsorted(self._edges, cached, side="right")
        return float(left[first:] @ _hit(self.chance[first:], batch))

    def words(self, batch: float, dim: int, cached: int = 0) -> float:
        """Moved a sample: indices, and rows of `dim` words that are not cached, each once a batch.

        Times the samples it is an epoch; times the batch it is eq. 3.                             Source: eq. 5, 6
        """
        return self.lookups + dim * self.unique(batch, cached) / batch


def _hit(chance: NDArray[np.float64], times: float) -> NDArray[np.float64]:
    """1 - (1 - chance)^times, also where that is far below rounding's unit.                          Source: eq. 1"""
    with np.errstate(divide="ignore"):      # a chance of 1: log 0, and 1 in the end
        return -np.expm1(times * np.log1p(-chance))


@dataclass(frozen=True)
class Device:
    """Where training runs. memory: words for cached rows and activations together, the network's weights apart; dim:
    of a row; activations: words that a sample takes; overhead: words that could be moved in the time that it takes to
    start a batch; smallest, largest: of the batches that will do.

    The paper counts no overhead. With none, the skew of real logs makes the smallest batch the best one: a row in the
    cache saves more than the overlap that its memory could bring.

    Raises      ValueError: numbers out of range, or memory that does not hold the smallest batch
    """

    memory: int
    dim: int
    activations: int
    overhead: int = 0
    smallest: int = 1
    largest: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("memory", 1), ("dim", 1), ("activations", 1), ("overhead", 0), ("smallest", 1),
                            ("largest", self.smallest)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} {value} must be {least} or more")
        if self.memory < self.smallest * self.activations:
            raise ValueError(f"memory of {self.memory:,} words does not hold a batch of {self.smallest:,}, "
                             f"{self.activations:,} words of activations a sample")

    def batch(self, cached: int) -> float:
        """The largest batch beside so many cached rows, not rounded.                                 Source: eq. 7"""
        room = (self.memory - cached * self.dim) / self.activations
        return room if self.largest is None else min(room, float(self.largest))

    def room(self, batch: int) -> int:
        """Rows that can be cached beside such a batch."""
        return (self.memory - batch * self.activations) // self.dim

    def words(self, traffic: Traffic, batch: float, cached: int) -> float:
        """Moved a sample, with its part of the overhead."""
        return traffic.words(batch, self.dim, cached) + self.overhead / batch


@dataclass(frozen=True)
class Split:
    """Memory shared out. cached: likeliest rows that stay; batch: samples; words: moved a sample; bound: below which
    no other split comes."""

    cached: int
    batch: int
    words: float
    bound: float

    @property
    def gap(self) -> float:
        """How far above the best it may be, of its words."""
        return 1 - self.bound / self.words


def binary_search(traffic: Traffic, device: Device) -> Split:
    """The split where one row more in the cache no longer pays.

    It takes the cost to fall first and rise then, which is common and not certain; bound is therefore 0.

    Source      eq. 8 to 12; (13) is these simplified
    """
    low, high = 0, _most(traffic, device)
    while low < high:
        middle = (low + high) // 2
        if _cost(traffic, device, middle + 1) < _cost(traffic, device, middle):
            low = middle + 1
        else:
            high = middle
    return _beside(traffic, device, int(device.batch(low)))


def optimum(traffic: Traffic, device: Device, *, tolerance: float = 1e-4) -> Split:
    """A split that is proven to be within `tolerance` of the best.

    Binary search gives a first one; then stretches of batch sizes are halved, the most promising first, until none can
    hold a better. Rows moved a sample fall with the batch and with the cache: the stretch's largest batch beside the
    cache that its smallest one leaves room for is a bound on all of it.

    Raises      ValueError: a tolerance that is not above 0
    """
    if not tolerance > 0:
        raise ValueError(f"tolerance {tolerance} must be above 0")

    def stretch(low: int, high: int) -> tuple[float, int, int]:
        return device.words(traffic, high, device.room(low)), low, high

    best = binary_search(traffic, device)
    stretches = [stretch(device.smallest, int(device.batch(0)))]
    while stretches and stretches[0][0] < best.words * (1 - tolerance):
        _, low, high = heapq.heappop(stretches)
        middle = (low + high) // 2
        best = min(best, _beside(traffic, device, middle), key=lambda split: split.words)
        if low < middle:
            heapq.heappush(stretches, stretch(low, middle - 1))
        if middle < high:
            heapq.heappush(stretches, stretch(middle + 1, high))
    return replace(best, bound=min(best.words, stretches[0][0] if stretches else best.words))


def _most(traffic: Traffic, device: Device) -> int:
    """Rows that can be cached beside the smallest batch."""
    return min(traffic.touched, device.room(device.smallest))


def _cost(traffic: Traffic, device: Device, cached: int) -> float:
    return device.words(traffic, device.batch(cached), cached)


def _beside(traffic: Traffic, device: Device, batch: int) -> Split:
    """The split with such a batch and all the cache that it leaves room for."""
    cached = min(traffic.touched, device.room(batch))
    return Split(cached, batch, device.words(traffic, batch, cached), 0.0)
