"""What a training step moves and computes, of a profile or given."""

import math
from dataclasses import dataclass

import numpy as np

from gen.data.profile import Profile
from gen.data.scars import Device, Traffic, optimum

DENSE = 287_500     # parameters of the networks of Meta's DLRM for Criteo Kaggle        Source: Hotline table 7.1
TT_ROWS = 1_000_000             # tables of more rows become tensor trains                Source: EL-Rec §VI.A


@dataclass(frozen=True)
class Workload:
    """A model and its log on so many GPUs.

    batch: samples of a step on all GPUs. tables: pooled vectors per sample. lookups: rows per sample. dim: FP32
    values of a row. dense, layers: parameters and layers of the networks. rows: of all tables. tt_tables: of those,
    how many EL-Rec makes tensor trains. cached_rows: frequently accessed rows that a GPU keeps. popular: share of
    samples that need only those; popular_most: the largest that the profile allows. unique: distinct rows per step.
    cold: distinct rows per step besides the cached ones.
    """

    batch: int
    gpus: int
    tables: float
    lookups: float
    dim: int
    dense: int = DENSE
    layers: int = 8
    rows: int = 0
    tt_tables: int = 0
    cached_rows: int = 0
    popular: float = 0.75
    popular_most: float = 0.75
    unique: float = 0.0
    cold: float = 0.0

    def __post_init__(self) -> None:
        for name in ("batch", "gpus", "dim", "dense"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} must be 1 or more")
        if self.batch < self.gpus:
            raise ValueError(f"batch {self.batch} must be at least gpus {self.gpus}, a sample for each")
        if not 0 <= self.popular <= 1:
            raise ValueError(f"popular {self.popular} must be from 0 to 1")

    @property
    def row_bytes(self) -> int:
        return 4 * self.dim

    @property
    def vector_bytes(self) -> float:
        """Of the pooled vectors of a step."""
        return self.batch * self.tables * self.row_bytes

    @property
    def table_bytes(self) -> int:
        return self.rows * self.row_bytes


def workload(profile: Profile, *, batch: int, gpus: int, dim: int, cached_rows: int, dense: int = DENSE,
             popular: float | None = None) -> Workload:
    """Of a log.

    popular: None: by the profile, whose tables are taken as independent. Real logs have rare rows together, so more
    samples are popular than that; popular_most is where they come together as much as they can.

    Source: SCARS eq. 2, Hotline chapter 5

    Raises      ValueError: a number out of range, or a log without lookups
    """
    for name, value in (("batch", batch), ("gpus", gpus), ("dim", dim)):
        if value < 1:
            raise ValueError(f"{name} {value} must be 1 or more")
    tables = profile.tables.values()
    traffic = Traffic.of([table.heat for table in tables], profile.samples)
    if not traffic.lookups:
        raise ValueError(f"{profile.source} has no lookups")
    cached = min(cached_rows, traffic.touched)
    low, high = _popular(profile, cached) if popular is None else (popular, popular)
    return Workload(batch, gpus, len(profile.tables), traffic.lookups, dim, dense,
                    rows=sum(table.rows for table in tables), tt_tables=sum(table.rows > TT_ROWS for table in tables),
                    cached_rows=cached, popular=low, popular_most=high, unique=traffic.unique(batch),
                    cold=traffic.unique(batch, cached))


def _popular(profile: Profile, cached: int) -> tuple[float, float]:
    """The share of samples whose rows are all among the `cached` most accessed ones: tables independent of each other,
    and as dependent as can be."""
    share, least = 1.0, 1.0
    for table, rows in zip(profile.tables.values(), hottest(profile, cached).values(), strict=True):
        hit = float(table.heat.cdf(rows))
        lengths, samples = table.bag_lengths, table.bag_samples
        bags = float((hit ** lengths.astype(np.float64)) @ samples) / max(int(samples.sum()), 1)
        share, least = share * bags, min(least, bags)
    return share, least


def hottest(profile: Profile, cached: int) -> dict[str, int]:
    """Of each table, how many of its rows are among the `cached` most accessed ones of all; of equals the first
    table's."""
    tables = list(profile.tables.values())
    accesses = np.concatenate([table.heat.accesses for table in tables])
    rows = np.concatenate([table.heat.rows for table in tables])
    owner = np.repeat(np.arange(len(tables)), [len(table.heat.rows) for table in tables])
    order = np.argsort(-accesses, kind="stable")
    kept = np.zeros(len(rows), np.int64)
    kept[order] = np.clip(cached - (np.cumsum(rows[order]) - rows[order]), 0, rows[order])
    counts = np.bincount(owner, weights=kept, minlength=len(tables)).astype(np.int64)
    return dict(zip(profile.tables, counts.tolist(), strict=True))


@dataclass(frozen=True)
class Sizes:
    """Memory of a device shared out. batch: samples; popular: rows of each table that stay; cache_rows: those and room
    for the rows of two more batches, one that trains and one that is fetched."""

    batch: int
    popular: dict[str, int]
    cache_rows: dict[str, int]


def sizes(profile: Profile, *, memory_bytes: int, dim: int, activations: int, overhead: int = 300_000,
          smallest: int = 256, largest: int = 8192) -> Sizes:
    """The split of a device's memory that moves the fewest values per sample.

    Parameters  activations: FP32 values of a sample besides its rows, and those of its rows' gradients. overhead:
                values that could be moved in the time that it takes to start a batch, as gen.data.scars.Device has it
    Raises      ValueError: numbers out of range, or a log without lookups
    Source      SCARS eq. 7 to 12
    """
    tables = profile.tables
    traffic = Traffic.of([table.heat for table in tables.values()], profile.samples)
    if not traffic.lookups:
        raise ValueError(f"{profile.source} has no lookups")
    in_flight = 2 * math.ceil(traffic.lookups * dim)
    split = optimum(traffic, Device(memory_bytes // 4, dim, activations + in_flight, overhead, smallest, largest))
    popular = hottest(profile, split.cached)
    return Sizes(split.batch, popular, {
        name: max(1, min(table.rows, popular[name] + math.ceil(2 * split.batch * table.heat.total / profile.samples)))
        for name, table in tables.items()})
