"""What needs a second pass over the log: samples of popular rows alone, tables whose rare rows come together, LRU.

A sample is popular with so many bytes of memory if the hottest rows of all tables that fit there have all that it
looks up (Hotline). How rare a row is: the share of its table's accesses that go to hotter ones; of a bag the rarest.
Its correlation between tables is Spearman's, with ties.        Source: Hotline §2.3, SCRec §III.B
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gen.data.logs.log import Chunk, Log
from gen.data.profile import Profile, TableProfile
from gen.data.profiling.count import kept
from gen.data.profiling.reuse import POINTS, Thinned, static_misses
from gen.data.profiling.stream import ahead, chosen, shares
from gen.data.remap import Remap
from gen.model.recommender import TableSpec

RARE_BITS = 12      # of how rare a row is; sums of products stay whole numbers in float64
RARE = (1 << RARE_BITS) - 1
STEPS_PER_OCTAVE = 2


@dataclass(frozen=True, eq=False)
class Places:
    """Of each id its place among the rows of all tables: the first of `edges` (bytes) with which it is in memory,
    above how rare it is within its table."""

    edges: NDArray[np.int64]
    words: dict[str, Remap]

    @classmethod
    def of(cls, profile: Profile, row_bytes: Mapping[str, int]) -> "Places":
        """Raises ValueError: statistics without ids, a table without its row's bytes."""
        for name in profile.tables:
            if name not in row_bytes:
                raise ValueError(f"table {name}: how many bytes a row has is missing")
        tables = list(profile.tables.values())
        sizes = [row_bytes[table.name] for table in tables]
        # All tables' levels of heat, the hottest first; rows of one level lie table by table, ascending by id.
        accesses = np.concatenate([table.heat.accesses for table in tables])
        owner = np.repeat(np.arange(len(tables)), [len(table.heat.rows) for table in tables])
        held = np.concatenate([table.heat.rows * size for table, size in zip(tables, sizes)])
        order = np.lexsort((owner, -accesses))
        before = np.empty_like(held)
        before[order] = np.cumsum(held[order]) - held[order]
        total = max(int(held.sum()), 1)
        steps = np.arange(STEPS_PER_OCTAVE * 12, int(np.ceil(STEPS_PER_OCTAVE * np.log2(max(total, 4096)))) + 1)
        edges = np.unique(np.floor(2.0 ** (steps / STEPS_PER_OCTAVE)).astype(np.int64))
        words = {table.name: _words(table, size, before[owner == number], edges)
                 for number, (table, size) in enumerate(zip(tables, sizes))}
        return cls(edges, words)


def _words(table: TableProfile, size: int, before: NDArray[np.int64], edges: NDArray[np.int64]) -> Remap:
    if table.ids is None or table.counts is None:
        raise ValueError(f"table {table.name} is known by statistics alone; popular samples need the log's ids")
    heat = table.heat
    level = len(heat.accesses) - 1 - np.searchsorted(heat.accesses[::-1], table.counts)
    ends = before[level] + (_among(level, len(heat.accesses)) + 1) * size
    hotter = np.cumsum(heat.rows * heat.accesses) - heat.rows * heat.accesses / 2
    rare = (hotter * RARE / max(heat.total, 1)).astype(np.uint32)
    words = np.append(np.searchsorted(edges, ends).astype(np.uint32) << RARE_BITS | rare[level],
                      np.uint32(len(edges) << RARE_BITS | RARE))
    # Ids that the profile has not counted are as cold as can be.
    return Remap(TableSpec(table.name, len(words), 1, "vocabulary"), words, table.ids)


@njit(cache=True)
def _among(level, levels):      # pragma: no cover - compiled
    """Of each, how many before it have its level."""
    seen, out = np.zeros(levels, np.int64), np.empty(len(level), np.int64)
    for k in range(len(level)):
        out[k] = seen[level[k]]
        seen[level[k]] += 1
    return out


@dataclass(frozen=True, eq=False)
class CoAccess:
    """What the second pass counts, whole numbers that add up. steps: samples whose coldest row is in memory from each
    edge on, those never last. sums, products: of how rare the tables' rows are."""

    samples: int
    steps: NDArray[np.int64]
    sums: NDArray[np.int64]
    products: NDArray[np.int64]
    thinned: dict[str, Thinned]

    def __add__(self, other: "CoAccess") -> "CoAccess":
        """Of both, one behind the other."""
        return CoAccess(self.samples + other.samples, self.steps + other.steps, self.sums + other.sums,
                      self.products + other.products,
                      {name: each + other.thinned[name] for name, each in self.thinned.items()})


def together(log: Log, profile: Profile, *, row_bytes: Mapping[str, int], sample: float = 1.0) -> Profile:
    """The profile with the second pass's extras, see `extras`.

    Parameters  row_bytes: of a row of each table; sample: the share of samples that is looked at (LRU sees all)
    Raises      ValueError: statistics without ids, a table without its row's bytes
    """
    places = Places.of(profile, row_bytes)
    return replace(profile, extras={**profile.extras, **extras(profile, places, looked(log, profile, places, sample))})


def looked(log: Log, profile: Profile, places: Places, sample: float) -> CoAccess:
    """What the second pass counts of a log, or of a part of one."""
    end, tables = shares(sample)[1], len(profile.tables)
    found = CoAccess(0, np.zeros(len(places.edges) + 1, np.int64), np.zeros(tables, np.int64),
                   np.zeros((tables, tables), np.int64),
                   {name: Thinned.of(table, profile.sampled) for name, table in profile.tables.items()})
    for chunk in ahead(log):
        part = chunk if end == 1 else chosen(chunk, kept(chunk.first, chunk.samples) < end)
        found += _looked(part, chunk, found.thinned, places)
    return found


def _looked(chunk: Chunk, whole: Chunk, thinned: Mapping[str, Thinned], places: Places) -> CoAccess:
    step = np.zeros(chunk.samples, np.uint32)
    rare = np.empty((len(places.words), chunk.samples))
    for number, (name, words) in enumerate(places.words.items()):
        found = words(chunk.ids[name])
        if name in chunk.offsets:
            found = _rarest(found, chunk.offsets[name])
        np.maximum(step, found >> RARE_BITS, out=step)
        rare[number] = found & RARE
    return CoAccess(chunk.samples, np.bincount(step, minlength=len(places.edges) + 1),
                  rare.sum(axis=1).astype(np.int64), (rare @ rare.T).astype(np.int64),
                  # LRU sees every access: a cache of sampled ones would be another.
                  {name: each.of_chunk(whole.ids[name]) for name, each in thinned.items()})


@njit(cache=True, nogil=True)
def _rarest(words, offsets):        # pragma: no cover - compiled
    """Of each bag the largest step and the largest rarity, each for itself; 0 of an empty one."""
    out = np.zeros(len(offsets) - 1, np.uint32)
    for bag in range(len(out)):
        step = rare = np.uint32(0)
        for k in range(offsets[bag], offsets[bag + 1]):
            step = max(step, words[k] >> np.uint32(RARE_BITS))
            rare = max(rare, words[k] & np.uint32(RARE))
        out[bag] = step << np.uint32(RARE_BITS) | rare
    return out


def extras(profile: Profile, places: Places, found: CoAccess) -> dict[str, NDArray]:
    """popular_bytes, popular_share: of the samples, how many are popular with so much memory. correlation: (tables,
    tables), NaN of a table with one row. cache_shares: cache sizes in shares of the rows touched; static_misses,
    lru_misses: (tables, sizes) shares of accesses that miss a set of the hottest rows, and LRU (NaN: not known)."""
    sums = found.sums.astype(object)
    # Whole numbers without an end: their difference is small against both.
    spread = (found.samples * found.products.astype(object) - np.multiply.outer(sums, sums)).astype(np.float64)
    deviation = np.sqrt(np.diag(spread))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = spread / np.multiply.outer(deviation, deviation)
    tables = profile.tables.values()
    return {"popular_bytes": places.edges,
            "popular_share": np.cumsum(found.steps[:-1]) / max(found.samples, 1),
            "correlation": correlation,
            "cache_shares": np.array(POINTS),
            "static_misses": np.stack([static_misses(table) for table in tables]),
            "lru_misses": np.stack([each.misses() for each in found.thinned.values()])}
