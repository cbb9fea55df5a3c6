"""Profiles a log in one pass: ids, bags and samples of every table, exact, in memory that the different ids bound."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gen.data.excerpt import Blocks
from gen.data.logs.log import Chunk, Log
from gen.data.profile import Heat, Profile, TableProfile
from gen.data.profiling import held
from gen.data.profiling.count import IdCounter, join, kept
from gen.data.returns import ENDS, measured, weighted

FEWEST, MOST, CHUNK = 1 << 8, 1 << 16, 1 << 21      # samples of a chunk; bags of one, over all tables


def profile(log: Log, *, sample: float = 1.0, rows: Mapping[str, int] | None = None) -> Profile:
    """The profile of a log.

    Parameters  log: as gen.data.logs opens it; sample: the share of samples that is looked at, chosen by a hash of
    their
                numbers; rows: of the model's tables, by name (default: those touched)
    Raises      ValueError: a share of nothing or more than all, rows of a table that the log does not have
    Source      SCRec §III.B; 1 % is what it takes

    A sampled profile has "sampling_error" among its extras: of each table, how far the share of accesses that falls
    on its hottest rows, however many, is off what the same rows take in as many other samples, at most. Of more than
    half the samples there are not as many others, so no such errors.
    """
    return with_rows(finished(count(log, shares(sample)), sample), rows)


def check_share(sample: float) -> None:
    if not 0 < sample <= 1:
        raise ValueError(f"sample is {sample:g}; a share of the samples is above 0 and at most 1")


def shares(sample: float) -> tuple[float, ...]:
    """The ends of the stretches of hashes that are counted: the samples, and as many others to hold them against."""
    check_share(sample)
    return (0.0, sample, 2 * sample) if sample <= 0.5 else (0.0, sample)


@dataclass(frozen=True, eq=False)
class Counted:
    """Of a log, or of a part of one. profiles: of the samples whose numbers' hashes fall into the first stretch, those
    up to each of ENDS of the log; then of each further stretch. blocks: samples in their order."""

    profiles: tuple[Profile, ...]
    blocks: Blocks

    def __add__(self, other: "Counted") -> "Counted":
        """Of both, one behind the other."""
        return Counted(tuple(map(merge, self.profiles, other.profiles)), self.blocks + other.blocks)


def count(log: Log, ends: tuple[float, ...]) -> Counted:
    """What is counted of a log. ends: of the stretches of hashes, see `shares`."""
    found, blocks = [_Counts(log) for _ in range(len(ENDS) + len(ends) - 2)], Blocks()
    for chunk in ahead(log):
        blocks.add(chunk)
        for part, stretch in _stretches(chunk):
            if ends == (0.0, 1.0):
                found[stretch].add(part)
                continue
            hashes = kept(part.first, part.samples)
            for number, end in enumerate(ends[1:]):
                into = found[len(ENDS) + number - 1 if number else stretch]
                into.add(chosen(part, (hashes >= ends[number]) & (hashes < end)))
    return Counted(tuple(each.profile() for each in found), blocks)


def _stretches(chunk: Chunk) -> Iterator[tuple[Chunk, int]]:
    """The chunk's samples with the number of the stretch up to each of ENDS of the log."""
    begin, end = chunk.place
    places = (np.array(ENDS) / ENDS[-1] - begin) / max(end - begin, 1e-300)
    cuts = np.rint(np.clip(places, 0.0, 1.0) * chunk.samples).astype(int).tolist()
    cuts[-1] = chunk.samples
    for number, (first, last) in enumerate(pairwise([0, *cuts])):
        if first < last:
            yield chunk if last - first == chunk.samples else chunk.part(first, last), number


def finished(counted: Counted, sample: float) -> Profile:
    """What `count` found as one profile, with what parts of the log asked of the rows before them and samples in their
    order; sampled, with its errors on the last of the profiles."""
    stretches, others = counted.profiles[:len(ENDS)], counted.profiles[len(ENDS):]
    both = _all(stretches)
    excerpts = counted.blocks.excerpts({name: table.ids for name, table in both.tables.items()
                                        if table.ids is not None})
    tables = {name: replace(_with_returns(table, [each.tables[name] for each in stretches]), excerpt=excerpts.get(name))
              for name, table in both.tables.items()}
    found = replace(both, tables=tables, sampled=sample)
    if not others:
        return found
    error = [_error(table, others[0].tables[name]) for name, table in tables.items()]
    return replace(found, extras={"sampling_error": np.array(error)})


def _all(profiles: Sequence[Profile]) -> Profile:
    """Merged in pairs of neighbours."""
    while len(profiles) > 1:
        profiles = [merge(*profiles[at:at + 2]) if at + 1 < len(profiles) else profiles[at]
                    for at in range(0, len(profiles), 2)]
    return profiles[0]


def _with_returns(table: TableProfile, stretches: Sequence[TableProfile]) -> TableProfile:
    ids, counts = ([each for table in (table, *stretches) if (each := getattr(table, name)) is not None]
                   for name in ("ids", "counts"))
    returns = measured(ids[0], counts[0], ids[1:], counts[1:])
    aged = weighted(ids[0], ids[1:], counts[1:], returns.ageing) if returns and returns.ageing else None
    return replace(table, returns=returns, aged=aged)


def merge(one: Profile, other: Profile) -> Profile:
    """Of both logs together, bit for bit the profile of one that has the samples of both. Extras are left out, and
    what is said of the order of a log's samples.

    Raises      ValueError: other tables, other shares, statistics without ids, different rows of a model's table
    """
    if list(one.tables) != list(other.tables):
        raise ValueError(f"{one.source} has the tables {', '.join(one.tables)}; "
                         f"{other.source} has {', '.join(other.tables)}")
    if one.sampled != other.sampled:
        raise ValueError(f"{one.source} was sampled by {one.sampled:g}, {other.source} by {other.sampled:g}")
    sources = dict.fromkeys(one.source.split(" + ") + other.source.split(" + "))
    return Profile(" + ".join(sources), one.samples + other.samples,
                   {name: _merged(table, other.tables[name]) for name, table in one.tables.items()}, one.sampled)


def _merged(one: TableProfile, other: TableProfile) -> TableProfile:
    if one.ids is None or one.counts is None or other.ids is None or other.counts is None:
        raise ValueError(f"table {one.name} is known by statistics alone: without ids profiles cannot be merged")
    ids, counts = join(one.ids, one.counts, other.ids, other.counts)
    heat, rows = Heat.of(counts), max(one.rows, other.rows)
    if one.rows == one.heat.touched and other.rows == other.heat.touched:
        rows = heat.touched
    elif one.rows != other.rows:
        raise ValueError(f"table {one.name} has {one.rows} rows here and {other.rows} there")
    lengths = np.zeros(max(int(each.bag_lengths.max(initial=0)) for each in (one, other)) + 1, np.int64)
    for each in (one, other):
        lengths[each.bag_lengths] += each.bag_samples
    seen = np.flatnonzero(lengths)
    return TableProfile(one.name, rows, one.samples + other.samples, heat, seen, lengths[seen], ids, counts)


def with_rows(found: Profile, rows: Mapping[str, int] | None) -> Profile:
    """Of a model's tables alone, in the log's order, with its rows in place of those touched. With some of the
    tables those extras that are of all together are left out."""
    if rows is None:
        return found
    for name in rows:
        if name not in found.tables:
            raise ValueError(f"{found.source} has no table {name!r}; it has {', '.join(list(found.tables)[:40])}")
    extras = found.extras
    if len(rows) < len(found.tables):
        named = [name in rows for name in found.tables]
        extras = {name: array[named] for name, array in extras.items() if name == "sampling_error"}
        extras |= held.of_tables(found.extras, list(found.tables), list(rows))
    return replace(found, extras=extras, tables={
        name: replace(table, rows=rows[name]) for name, table in found.tables.items() if name in rows})


class _Counts:
    """What is counted of a log's samples."""

    def __init__(self, log: Log) -> None:
        self.log, self.samples = log, 0
        self.ids: dict[str, IdCounter] = {}
        self.bags: dict[str, NDArray[np.int64]] = {name: np.zeros(2, np.int64) for name in log.tables}

    def add(self, chunk: Chunk) -> None:
        self.samples += chunk.samples
        for name in self.bags:
            if name not in self.ids:        # a part of a log has samples of few stretches
                self.ids[name] = IdCounter()
            self.ids[name].add(chunk.ids[name])
            if name in chunk.offsets:
                more = np.bincount(np.diff(chunk.offsets[name]), minlength=len(self.bags[name]))
                more[:len(self.bags[name])] += self.bags[name]
                self.bags[name] = more
            else:
                self.bags[name][1] += chunk.samples

    def profile(self) -> Profile:
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            return Profile(self.log.source, self.samples, dict(zip(self.bags, pool.map(self._table, self.bags))))

    def _table(self, name: str) -> TableProfile:
        ids, counts = self.ids.pop(name, IdCounter()).counted()     # its memory is free again at once
        heat, lengths = Heat.of(counts), np.flatnonzero(self.bags[name])
        return TableProfile(name, heat.touched, self.samples, heat, lengths, self.bags[name][lengths], ids, counts)


def chosen(chunk: Chunk, keep: NDArray[np.bool_]) -> Chunk:
    """The samples of a chunk that are kept; values are left out."""
    ids, offsets = {}, {}
    for name, array in chunk.ids.items():
        if name in chunk.offsets:
            lengths = np.diff(chunk.offsets[name])
            ids[name] = array[np.repeat(keep, lengths)]
            offsets[name] = np.concatenate([[0], np.cumsum(lengths[keep])])
        else:
            ids[name] = array[keep]
    return Chunk(chunk.first, int(keep.sum()), ids, offsets)


def ahead(log: Log) -> Iterator[Chunk]:
    """A log's chunks, each read by a thread while the one before is worked on; short ones of many tables."""
    chunks = log.chunks(max(FEWEST, min(MOST, CHUNK // len(log.tables))))
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, chunks, None)
        while (chunk := following.result()) is not None:
            following = reader.submit(next, chunks, None)
            yield chunk


def _error(table: TableProfile, other: TableProfile) -> float:
    """The largest difference of the shares of accesses on this table's hottest rows, here and in the other one."""
    assert table.ids is not None and table.counts is not None and other.ids is not None and other.counts is not None
    if not table.heat.total or not other.heat.total:
        return 1.0
    _, mine, theirs = np.intersect1d(table.ids, other.ids, assume_unique=True, return_indices=True)
    level = np.searchsorted(-table.heat.accesses, -table.counts[mine])
    there = np.bincount(level, weights=other.counts[theirs], minlength=len(table.heat.rows)).cumsum()
    here = np.cumsum(table.heat.accesses * table.heat.rows)
    return float(np.abs(here / table.heat.total - there / other.heat.total).max())
