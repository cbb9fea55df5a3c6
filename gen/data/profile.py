"""What a click log says of each table, as an object that is saved and planned from.    Source: SCRec §III.B, Fig. 6"""

import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.base.npy import member, opened
from gen.base.sealed import seal, understood, unseal, writing
from gen.base.staging import staged
from gen.data.excerpt import Excerpt
from gen.data.returns import Returns

FEW = 1 << 12
KIND, VERSION = "profile", 5
FILE = "profile.npz"    # its name beside a plan
HEADER = "profile.json"
DIGEST = 64             # characters of a SHA-256, the last bytes of a saved profile
BLOCK = 1 << 20
NONE = np.zeros(0, np.int64)
EXCERPT = ("runs", "lengths", "places")


@dataclass(frozen=True, eq=False)
class Heat:
    """How often rows are accessed: `rows[k]` rows of `accesses[k]` accesses each, hottest first, no zeros. int64 both.

    It is all that the CDF needs, exact, and short however long the table is.
    """

    accesses: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, counts: ArrayLike) -> "Heat":
        """Out of the accesses of every row, in any order, zeros among them or not."""
        kept = np.asarray(counts, np.int64)
        # Nearly all counts are small: no need to sort them.
        few = np.bincount(np.minimum(kept, FEW), minlength=FEW + 1)[:FEW]
        low = np.flatnonzero(few[1:]) + 1
        high, rows = np.unique(kept[kept >= FEW], return_counts=True)
        return cls(np.concatenate([high[::-1], low[::-1]]), np.concatenate([rows[::-1], few[low[::-1]]]))

    @classmethod
    def joined(cls, accesses: ArrayLike, rows: ArrayLike) -> "Heat":
        """Out of so many rows of so many accesses, in any order, the same number of accesses more than once or not."""
        given, many = np.asarray(accesses, np.int64), np.asarray(rows, np.int64)
        there = (given > 0) & (many > 0)
        levels, at = np.unique(given[there], return_inverse=True)
        sums = np.zeros(len(levels), np.int64)
        np.add.at(sums, at, many[there])
        return cls(levels[::-1].copy(), sums[::-1].copy())

    @property
    def total(self) -> int:
        return int(self.accesses @ self.rows)

    @property
    def touched(self) -> int:
        """Rows that are accessed at all."""
        return int(self.rows.sum())

    def cdf(self, rows: ArrayLike) -> NDArray[np.float64]:
        """The share of accesses that falls on so many of the hottest rows."""
        edges = np.concatenate([[0], np.cumsum(self.rows)])
        sums = np.concatenate([[0], np.cumsum(self.rows * self.accesses)])
        return np.interp(np.asarray(rows, np.float64), edges, sums) / max(self.total, 1)

    def icdf(self, shares: ArrayLike) -> NDArray[np.int64]:
        """The fewest rows on which at least these shares of the accesses fall."""
        if not self.total:
            return np.zeros(np.shape(shares), np.int64)
        wanted = np.ceil(np.asarray(shares, np.float64) * self.total - 1e-6)
        sums = np.cumsum(self.rows * self.accesses)
        at = np.minimum(np.searchsorted(sums, wanted), len(sums) - 1)
        before, edges = sums - self.rows * self.accesses, np.cumsum(self.rows) - self.rows
        more = np.ceil(np.maximum(wanted - before[at], 0) / self.accesses[at])
        return np.where(wanted > 0, edges[at] + more, 0).astype(np.int64)

    def drawn(self, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        """So many accesses, independent of each other: rows, numbered from the hottest, as often as they are
        accessed."""
        return np.maximum(self.icdf(random.random(count)) - 1, 0)


@dataclass(frozen=True, eq=False)
class TableProfile:
    """One table. samples: of the log. bag_lengths, bag_samples: the pooling factor's distribution: so many samples have
    a bag of that length; an empty bag is one of length 0. ids, counts: ascending ids and how often each was accessed
    (None where only statistics are known). rows: of the model's table where one was named, else those touched. returns:
    what parts of the log asked of the rows before them; excerpt: samples in their order; None where that is not
    known. aged: of each id its accesses, which count by their age; None where all count alike."""

    name: str
    rows: int
    samples: int
    heat: Heat
    bag_lengths: NDArray[np.int64]
    bag_samples: NDArray[np.int64]
    ids: NDArray[np.uint64] | None = None
    counts: NDArray[np.int64] | None = None
    returns: Returns | None = None
    excerpt: Excerpt | None = None
    aged: NDArray[np.int64] | None = None

    def ranking(self, policy: str) -> "TableProfile":
        """With the heat and counts by which rows are ranked: those of accesses that count by their age, where the log
        says so and ids have rows of their own; of another policy, what is expected of rows is not known so well."""
        return self if self.aged is None or self.returns is None or policy == "modulo" else self._by_age

    @cached_property
    def _by_age(self) -> "TableProfile":
        assert self.aged is not None
        return replace(self, heat=Heat.of(self.aged), counts=self.aged, aged=None)

    @property
    def pooling(self) -> float:
        """The average pooling factor."""
        return self.heat.total / max(self.samples, 1)


@dataclass(frozen=True, eq=False)
class Profile:
    """Of a log. tables: by name, in its order. sampled: the share of its samples that were looked at; samples are
    those. extras: what further analyses found (gen.data.profiling), arrays by name."""

    source: str
    samples: int
    tables: Mapping[str, TableProfile]
    sampled: float = 1.0
    extras: Mapping[str, NDArray] = field(default_factory=dict)

    def expecting(self, samples: float) -> "Profile":
        """The same, where so many samples are expected until the next refresh, as a share of the log's."""
        return replace(self, tables={name: replace(table, returns=table.returns and table.returns.expecting(samples))
                                     for name, table in self.tables.items()})

    def sampling(self, among: Iterable[str] | None = None) -> str:
        """A sentence of how much of the log was counted, and how far off that is for these tables (default: all);
        empty where it is all of it."""
        if self.sampled == 1:
            return ""
        told = f"{self.sampled:.3g} of its samples were counted"
        errors = dict(zip(self.tables, np.asarray(self.extras.get("sampling_error", ())).tolist()))
        known = {name: errors[name] for name in (self.tables if among is None else among) if name in errors}
        if not known:
            return f"{told}; how far off that is, is not known: it takes as many other samples, so half the log at most"
        worst = max(known, key=lambda name: known[name])
        return (f"{told}; the share of accesses to the hottest rows is at most {known[worst]:.1%} off in table "
                f"{worst}, and less in others" if len(known) > 1 else
                f"{told}; the share of accesses to the hottest rows is at most {known[worst]:.1%} off")

    def save(self, path: str | Path) -> None:
        """Writes an npz file without pickles, whole or not at all: the arrays of all tables one behind the other,
        profile.json with their names, and the SHA-256 of all bytes before it as the archive's comment. The same
        profile is the same bytes. Raises ValueError: it cannot be written there."""
        with writing(path), staged(path, parents=False) as beside:
            with zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED) as archive:
                with archive.open(zipfile.ZipInfo(HEADER), "w") as member:
                    member.write(seal(KIND, VERSION, {
                        "source": self.source, "sampled": self.sampled, "tables": list(self.tables),
                        "without_ids": [name for name, table in self.tables.items() if table.ids is None]}))
                for name, array in self._arrays().items():
                    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
                archive.comment = bytes(DIGEST)
            digest = _sha256(beside)
            with open(beside, "r+b") as file:
                file.seek(-DIGEST, os.SEEK_END)
                file.write(digest)

    @classmethod
    def load(cls, path: str | Path) -> "Profile":
        """Raises ValueError: no file, no profile, one of another version or with a byte that has changed."""
        path = Path(path)
        try:
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - DIGEST))
                # Nothing is made of bytes that are not those which were written.
                if file.read() != _sha256(path):
                    raise ValueError(f"{path} is no {KIND} of hotrail, or damaged")
            with opened(path, f"{KIND} of hotrail") as archive:
                header = unseal(KIND, VERSION, archive.read(HEADER), str(path))
                arrays = {}
                for name in archive.namelist():
                    if name != HEADER:
                        # Nothing is packed: no array is larger than the file.
                        arrays[name.removesuffix(".npy")] = member(archive, name, path.stat().st_size)
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
        except (LookupError, RuntimeError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{path} is no {KIND} of hotrail: {error}") from None
        with understood(KIND, path):
            return cls._of_arrays(header, arrays)

    def _arrays(self) -> dict[str, NDArray]:
        """The arrays of a file: whole numbers as narrow as they are."""
        tables = list(self.tables.values())
        ragged: dict[str, list[NDArray]] = {
            "heat_accesses": [table.heat.accesses for table in tables],
            "heat_rows": [table.heat.rows for table in tables],
            "bag_lengths": [table.bag_lengths for table in tables],
            "bag_samples": [table.bag_samples for table in tables],
            "ids": [NONE if table.ids is None else table.ids for table in tables],
            "counts": [NONE if table.counts is None else table.counts for table in tables],
            "aged": [NONE if table.aged is None else table.aged for table in tables],
            "returns": [NONE if table.returns is None else table.returns.array() for table in tables]}
        excerpts = [{} if table.excerpt is None else table.excerpt.arrays() for table in tables]
        ragged |= {f"excerpt_{name}": [each.get(name, NONE) for each in excerpts] for name in EXCERPT}
        found = {"samples": np.array([self.samples], np.int64),
                 "table_rows": np.array([table.rows for table in tables], np.int64),
                 "table_samples": np.array([table.samples for table in tables], np.int64)}
        for name, parts in ragged.items():
            found[name] = _narrow(parts)
            found[f"{name}_ends"] = np.cumsum([len(part) for part in parts], dtype=np.int64)
        return found | {f"extra_{name}": np.asarray(array) for name, array in self.extras.items()}

    @classmethod
    def _of_arrays(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> "Profile":
        def numbers(name: str) -> NDArray:
            if arrays[name].ndim != 1 or arrays[name].dtype.kind not in "iu":
                raise TypeError(f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}")
            return arrays[name]

        def each(name: str, kind: type) -> list[NDArray]:
            ends = numbers(f"{name}_ends")
            if ends.size and (ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != arrays[name].size):
                raise ValueError(f"{name}_ends do not rise to the {arrays[name].size} entries of {name}")
            return [part.astype(kind) for part in np.split(numbers(name), ends[:-1])]

        if not isinstance(header["tables"], list) or not all(type(name) is str for name in header["tables"]):
            raise TypeError("tables are no list of names")
        if type(header["source"]) is not str or type(header["sampled"]) not in (int, float):
            raise TypeError("source or sampled is none")
        if not 0 < header["sampled"] <= 1:
            raise ValueError("sampled is no share above 0 and at most 1")
        columns = zip(header["tables"], numbers("table_rows").tolist(), numbers("table_samples").tolist(),
                      each("heat_accesses", np.int64), each("heat_rows", np.int64), each("bag_lengths", np.int64),
                      each("bag_samples", np.int64), each("ids", np.uint64), each("counts", np.int64),
                      each("aged", np.int64), each("returns", np.int64),
                      *(each(f"excerpt_{name}", np.int64) for name in EXCERPT), strict=True)
        without, tables = set(header["without_ids"]), {}
        for name, rows, samples, accesses, levels, lengths, bags, ids, counts, aged, returns, *excerpt in columns:
            for one, other in ((accesses, levels), (lengths, bags), (ids, counts)):
                if len(one) != len(other):
                    raise ValueError(f"table {name!r} has {len(one)} numbers and {len(other)} beside them")
            if rows < 0 or samples < 0 or min(accesses.min(initial=0), levels.min(initial=0)) < 0:
                raise ValueError(f"table {name!r} counts less than nothing")
            if len(aged) and (len(aged) != len(ids) or aged.min() < 1):
                raise ValueError(f"table {name!r} has accesses by their age that are not those of its ids")
            known = {} if name in without else {"ids": ids, "counts": counts}
            runs, each_length, places = excerpt
            tables[name] = TableProfile(name, rows, samples, Heat(accesses, levels), lengths, bags, **known,
                                        returns=Returns.of(returns), aged=aged if len(aged) else None,
                                        excerpt=Excerpt.of(runs, each_length, places, len(ids)))
        return cls(header["source"], int(numbers("samples")[0]), tables, header["sampled"],
                   {name.removeprefix("extra_"): array for name, array in arrays.items() if name.startswith("extra_")})


def _narrow(parts: Sequence[NDArray]) -> NDArray:
    largest = max(int(part.max(initial=0)) for part in parts)
    return np.concatenate([part.astype(np.min_scalar_type(largest)) for part in parts])


def _sha256(path: Path) -> bytes:
    """Of all bytes but the last DIGEST, in hexadecimal."""
    digest, left = hashlib.sha256(), path.stat().st_size - DIGEST
    with open(path, "rb") as file:
        while left > 0 and (block := file.read(min(BLOCK, left))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest().encode()
