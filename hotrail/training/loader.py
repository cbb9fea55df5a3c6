"""Mini-batches in Hotline's order: popular ones train while the rows of the others are fetched."""

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, default_collate

from gen.training.popular import Bags, Popular
from gen.training.workload import sizes
from hotrail.training.bag import GlobalBatch, announced

__all__ = ["DispatchLoader", "sizes"]

#: Takes from a sample its indices in a table, an array or a tensor.
Lookup = Callable[[Any], Any]
#: A sample, and its rows by feature.
Sample = tuple[Any, list[NDArray[np.int64]]]
HELD = 2        # full mini-batches of other samples that wait for a popular one to come between them


class DispatchLoader(DataLoader[Any]):
    """torch.utils.data.DataLoader whose mini-batches are popular or not, announced to the bags that look them up.

    A popular sample looks up popular rows alone, which stay in the caches of the bags. Samples of each kind fill
    mini-batches in their order; those that are left at the end fill common ones, so there are as many mini-batches as
    DataLoader has. The order depends on samples alone.                                Source: Hotline §5.2, 6.2

    Parameters  lookups: by bag, what takes from a sample its indices in that bag, as an array or a tensor; joined
                sample by sample they must be what the bag is called with; several, where a bag is called with those
                of one feature behind those of another. learn: samples at the beginning from which the logger learns
                which rows are popular. popular: by bag, rows that may be; of others half of the cache,
                or the whole table where the cache holds it. depth, fetch: as in `ahead`. rank, ranks: of several
                processes that read the same samples, each takes its part of each mini-batch. collate_fn: called in this
                process, with an empty list where a rank has no part of the last mini-batch. options: DataLoader's own
    Members     is_popular: whether the mini-batch that came last is. popular_batches, other_batches: so far
    Raises      ValueError: batches that are made elsewhere (batch_sampler, batch_size None), or, without a collate_fn,
                one with fewer samples than ranks, in all ranks alike; TypeError: indices that are not integers;
                IndexError: an index that is no row
    """

    def __init__(self, dataset: Any, lookups: Mapping[Any, Lookup | Sequence[Lookup]], *, batch_size: int = 1,
                 learn: int = 4096, popular: Mapping[Any, int] | None = None, depth: int = 8, fetch: int = 3,
                 rank: int = 0, ranks: int = 1, collate_fn: Callable[[list[Any]], Any] | None = None, **options: Any):
        if batch_size is None or options.get("batch_sampler") is not None:
            raise ValueError("a DispatchLoader makes the batches itself: batch_size must be a number, without a "
                             "batch_sampler")
        if not 0 <= rank < ranks <= batch_size:
            raise ValueError(f"rank {rank} of {ranks} with batch_size {batch_size}: there must be a sample for each "
                             "rank, and a rank for each number below ranks")
        super().__init__(dataset, batch_size, collate_fn=list, **options)
        if not lookups:
            raise ValueError("lookups has no bag: there is nothing to tell popular samples by")
        self._collate, self._bags = collate_fn or default_collate, list(lookups)
        self._names = [str(number) for number in range(len(self._bags))]
        self._features = [(name, of) for name, each in zip(self._names, lookups.values(), strict=True)
                          for of in (each if isinstance(each, Sequence) else [each])]
        self._depth, self._fetch, self._learn, self._rank, self._ranks = depth, fetch, learn, rank, ranks
        given = {bag: bag.may_keep for bag in lookups} | dict(popular or {})
        self._rows = Popular(dict(zip(self._names, (bag.rows for bag in self._bags), strict=True)),
                             dict(zip(self._names, (given[bag] for bag in self._bags), strict=True)))
        self._learned = False
        self.is_popular = False
        self.popular_batches = self.other_batches = 0

    def __iter__(self) -> Iterator[Any]:
        found: Iterator[list[Any]] = super().__iter__()
        reads: Iterator[list[Sample]] = ([(sample, self._rows_of(sample)) for sample in samples] for samples in found)
        if not self._learned:
            reads = self._learn_from(reads)
        for is_popular, samples in announced(self._dispatched(reads), self._bags, self._announce, self._depth,
                                             self._fetch):
            if len(samples) < self._ranks and self._collate is default_collate:
                raise ValueError(f"a mini-batch has {len(samples)} samples, and some of {self._ranks} ranks none: "
                                 "drop_last=True, or a collate_fn that takes an empty list")
            self.is_popular = is_popular
            self.popular_batches += is_popular
            self.other_batches += not is_popular
            yield self._collate([sample for sample, _ in self._part(samples)])

    def _rows_of(self, sample: Any) -> list[NDArray[np.int64]]:
        return [_indices(of(sample), number) for number, (_, of) in enumerate(self._features)]

    def _learn_from(self, reads: Iterator[list[Sample]]) -> Iterator[list[Sample]]:
        """Learns from the first ones; they come all the same."""
        first = list(islice(reads, max(1, -(-self._learn // self.batch_size))))
        self._rows.learn(self._lookups(list(chain.from_iterable(first))))
        for name, bag in zip(self._names, self._bags, strict=True):
            bag.keep(self._rows.of(name))
        self._learned = True
        return chain(first, reads)

    def _lookups(self, samples: list[Sample]) -> Bags:
        found = []
        for number, (name, _) in enumerate(self._features):
            rows = [each[number] for _, each in samples]
            lengths = np.array([len(row) for row in rows], np.int64)
            found.append((name, np.concatenate([np.zeros(0, np.int64), *rows]), lengths))
        return found

    def _dispatched(self, reads: Iterator[list[Sample]]) -> Iterator[tuple[bool, list[Sample]]]:
        """(whether it is popular, its samples) of each mini-batch, those of all ranks."""
        size: int = self.batch_size
        waiting: dict[bool, list[Sample]] = {True: [], False: []}
        full: dict[bool, deque[list[Sample]]] = {True: deque(), False: deque()}
        last = False
        for samples in chain(reads, [None]):
            if samples is not None:
                for sample, kind in zip(samples, self._rows.samples(self._lookups(samples)).tolist(), strict=True):
                    waiting[kind].append(sample)
                    if len(waiting[kind]) == size:
                        full[kind].append(waiting[kind])
                        waiting[kind] = []
            while full[True] or len(full[False]) > (HELD if samples is not None else 0):
                last = bool(full[True]) and not (last and full[False])
                yield last, full[last].popleft()
        rest = waiting[True] + waiting[False]
        for start in range(0, len(rest), size):
            yield not waiting[False], rest[start:start + size]

    def _part(self, samples: list[Sample]) -> list[Sample]:
        count = len(samples)
        return samples[count * self._rank // self._ranks:count * (self._rank + 1) // self._ranks]

    def _announce(self, batch: tuple[bool, list[Sample]]) -> None:
        is_popular, samples = batch
        whole = GlobalBatch(is_popular, 0 if self._ranks == 1 else self._digest(samples))
        given = self._lookups(self._part(samples))
        for name, bag in zip(self._names, self._bags, strict=True):
            bag.announce(torch.from_numpy(np.concatenate([rows for its, rows, _ in given if its == name])), whole)

    def _digest(self, samples: list[Sample]) -> int:
        return zlib.crc32(b"".join(part.tobytes() for _, rows, lengths in self._lookups(samples)
                                   for part in (rows, lengths)))


def _indices(found: Any, number: int) -> NDArray[np.int64]:
    """What a lookup takes from a sample. Raises TypeError: not integers"""
    indices = np.asarray(found)
    if indices.size and indices.dtype.kind not in "iu":
        raise TypeError(f"lookup {number} of the DispatchLoader gives {indices.dtype} indices, such as "
                        f"{indices.flat[0]}; indices are integers")
    return indices.astype(np.int64).reshape(-1)
