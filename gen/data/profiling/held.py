"""The end of a log, counted apart: what a profile of its beginning is held against.

Kept among a profile's extras: held_samples (1,), and of all tables one behind the other held_ids ascending, held_counts
and the ends of each table's part, held_ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gen.data.logs.log import Chunk, Log, Problems
from gen.data.profile import NONE, Heat, Profile, TableProfile

NAMES = ("held_samples", "held_ids", "held_counts", "held_ends")


@dataclass(frozen=True)
class Stretch:
    """Samples start to stop of a log, as they come; a log itself."""

    log: Log
    start: int
    stop: int

    @property
    def source(self) -> str:
        return self.log.source

    @property
    def tables(self) -> tuple[str, ...]:
        return self.log.tables

    @property
    def problems(self) -> Problems:
        return self.log.problems

    def chunks(self, samples: int = 65536) -> Iterator[Chunk]:
        at = 0
        for chunk in self.log.chunks(samples):
            first, last = max(self.start - at, 0), min(self.stop - at, chunk.samples)
            if first < last:
                part = chunk if last - first == chunk.samples else chunk.part(first, last)
                size = self.stop - self.start
                yield replace(part, place=((at + first - self.start) / size, (at + last - self.start) / size))
            at += chunk.samples
            if at >= self.stop:
                return

    def parts(self) -> Sequence[Log]:
        return (self,)


def parted(log: Log, share: float) -> tuple[Stretch, Stretch]:
    """A log's beginning, and the share of its samples at the end. Reads it once, for their number.

    Raises      ValueError: no sample would be left on one side
    """
    samples = sum(chunk.samples for chunk in log.chunks())
    cut = samples - round(share * samples)
    if not 0 < cut < samples:
        raise ValueError(f"{log.source} has {samples:,} samples: with a share of {share:g} held back, {cut:,} are left "
                         f"to count and {samples - cut:,} to hold against them")
    return Stretch(log, 0, cut), Stretch(log, cut, samples)


def packed(tail: Profile) -> dict[str, NDArray]:
    """The extras of a tail."""
    counted = [(table.ids, table.counts) if table.ids is not None and table.counts is not None else (NONE, NONE)
               for table in tail.tables.values()]
    return dict(zip(NAMES, (
        np.array([tail.samples]), np.concatenate([ids.astype(np.uint64) for ids, _ in counted]),
        np.concatenate([counts for _, counts in counted]), np.cumsum([len(ids) for ids, _ in counted])), strict=True))


def tail_of(profile: Profile) -> Profile | None:
    """The tail in a profile's extras, of the same tables; None without.

    Raises      ValueError: extras that do not fit together
    """
    if any(name not in profile.extras for name in NAMES):
        return None
    samples, ids, counts, ends = (np.asarray(profile.extras[name]) for name in NAMES)
    if (any(each.ndim != 1 or each.dtype.kind not in "iu" for each in (samples, ids, counts, ends))
            or len(samples) != 1 or len(ids) != len(counts) or len(ends) != len(profile.tables)
            or (np.diff(ends, prepend=0) < 0).any() or ends[-1:] != len(ids) or counts.min(initial=1) < 1):
        raise ValueError(f"the profile of {profile.source} holds an end of the log that is not of its tables")
    tables = {}
    for table, own, many in zip(profile.tables.values(), np.split(ids, ends[:-1]), np.split(counts, ends[:-1])):
        tables[table.name] = TableProfile(table.name, table.rows, int(samples[0]), Heat.of(many), NONE, NONE,
                                          own.astype(np.uint64), many.astype(np.int64))
    return Profile(profile.source, int(samples[0]), tables, profile.sampled)


def of_tables(extras: Mapping[str, NDArray], tables: Sequence[str], kept: Sequence[str]) -> dict[str, NDArray]:
    """The tail's extras of some of the tables; {} without a tail."""
    known = {name: TableProfile(name, 0, 0, Heat(NONE, NONE), NONE, NONE) for name in tables}
    tail = tail_of(Profile("", 0, known, extras=extras))
    if tail is None:
        return {}
    return packed(Profile("", tail.samples, {name: tail.tables[name] for name in tables if name in kept}))
