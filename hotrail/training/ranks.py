"""One embedding table for several processes that train on parts of each mini-batch (torch.distributed).

    torch.distributed.init_process_group("gloo")
    bag = RankedEmbeddingBag(10_000_000, 64, cache_rows=50_000, rate=0.01)
    loader = DispatchLoader(log, {bag: items_of}, batch_size=4096, rank=rank, ranks=ranks)

Popular rows are in every process, and their gradients are summed over all; every other row is with its owner, which
sends it when a mini-batch needs it and takes its step. A popular mini-batch exchanges nothing else.

A row's gradient is g0 + g1 + ... in the order of ranks, where each is the sum of its rank's part in the order of the
indices; so parameters depend on the parts and not on timing.                     Source: Hotline §5.2; EL-Rec §III.B
"""

import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike

from hotrail.training.bag import RULES, GlobalBatch, PinnedRows, check, check_ends, pooled, step
from hotrail.training.store import Store


class RankedEmbeddingBag(torch.nn.Module):
    """The part of one process in a table of `rows` rows of `dim` float32 words. All processes make it, look up and go
    backward equally often and in the same order, also where their part of a mini-batch is empty.

    Parameters  cache_rows: rows that may be popular, in every process. group: of torch.distributed; default: all
                processes. place: a folder for the rows that this process owns, one for each. Others as
                CachedEmbeddingBag has them
    Members     owned: the rows that this process owns. exchanged, reduced: bytes that it has sent for rows of other
                owners and their gradients, and for sums over all (with a header of 24 bytes a mini-batch)
    Raises      ValueError: sizes, modes and rules that do not exist; RuntimeError: there is no process group
    """

    def __init__(self, rows: int, dim: int, *, cache_rows: int, mode: str = "sum", rate: float, rule: str = RULES[0],
                 place: str | Path | None = None, std: float = 0.01, seed: int = 0,
                 include_last_offset: bool = False, group: Any = None):
        super().__init__()
        check(mode, rate)
        if rule not in RULES:
            raise ValueError(f"rule is {rule!r}; it must be one of {', '.join(RULES)}")
        if not 0 <= cache_rows <= rows:
            raise ValueError(f"cache_rows is {cache_rows}; it must be 0 to {rows}, the rows of the table")
        if not dist.is_initialized():
            raise RuntimeError("there is no process group: torch.distributed.init_process_group comes first")
        self.rows, self.dim, self.mode, self.rate, self.rule = rows, dim, mode, rate, rule
        self.may_keep, self.include_last_offset = cache_rows, include_last_offset
        self._group = group if group is not None else dist.group.WORLD
        self.rank, self.ranks = dist.get_rank(self._group), dist.get_world_size(self._group)
        # Rows are fetched while sums are made: messages of both must not meet.
        self._fetching = dist.new_group(dist.get_process_group_ranks(self._group),
                                        use_local_synchronization=group is not None)
        self.owned = range(self.rank, rows, self.ranks)
        self._store = Store(rows, dim, keeps_state=rule != "sgd", place=place, std=std, seed=seed,
                            part=(self.rank, self.ranks))
        self._slot = torch.full((rows,), -1)        # of each row among the popular ones, -1: it is none
        self._kept = torch.zeros(0, dtype=torch.long)
        self._popular = torch.zeros(0, dim)
        self._state = torch.zeros(0)
        self.exchanged = self.reduced = self._steps = 0
        self._announced: deque[_Batch] = deque()
        self._failed = False
        self._open = 0              # mini-batches of other rows whose step is to come
        self._dropped = SimpleQueue[int]()      # of these, whose results are gone without a backward
        if cache_rows == rows:
            self.keep(np.arange(rows))

    # Batches

    def announce(self, indices: torch.Tensor, of_all: GlobalBatch | None = None) -> None:
        """A mini-batch will be looked up. of_all: what holds of the parts of all ranks; None: it may need any row.

        Raises      IndexError: an index that is no row
        """
        wrong = (indices < 0) | (indices >= self.rows)
        if wrong.any():
            raise IndexError(f"index {int(indices[wrong][0])} is none of the table's {self.rows} rows")
        self._announced.append(_Batch(indices, of_all or GlobalBatch()))

    def prefetch(self, up_to: int = 1) -> None:
        """Fetches the rows of the next mini-batch that needs others than popular ones, if those of the one before it
        have taken their step, while popular ones train."""
        with suppress(Empty):
            while True:
                self._open -= self._dropped.get_nowait()
        for batch in list(self._announced)[:up_to]:
            if not batch.of_all.popular:
                if batch.coming is None and not self._open:
                    batch.coming = Future()
                    self._open += 1
                    Thread(target=self._fetch, args=(batch,), name="rows", daemon=True).start()
                return

    def forget(self) -> None:
        """Mini-batches that were announced will not come."""
        for batch in self._announced:
            if batch.coming is not None and not self._failed:
                with self._together():
                    batch.coming.result()
                self._open -= 1
        self._announced.clear()

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor | None = None,
                per_sample_weights: torch.Tensor | None = None) -> torch.Tensor:
        """Pooled bags (bags, dim) of this process's part, as torch.nn.EmbeddingBag has them.

        Raises      IndexError: an index that is no row; ValueError: other indices than were announced, indices behind
                    the last offset, an index that is not popular in a mini-batch that is; RuntimeError: a rank that is
                    gone, or reads another log. Parameters are then as before
        """
        check_ends(self, indices, offsets)
        if not self._announced:
            self.announce(indices)
        batch = self._announced[0]
        if not torch.equal(batch.indices.reshape(-1), indices.reshape(-1).to(batch.indices)):
            raise ValueError("the indices are not those of the batch that was announced next; a batch that was "
                             "announced must be looked up, in turn")
        slots = self._slot[batch.different]
        rows = self._popular.new_empty(len(slots), self.dim)
        if batch.of_all.popular:
            if (slots < 0).any():
                raise ValueError(f"row {int(batch.different[slots < 0][0])} is not kept, and the mini-batch was "
                                 "announced as popular")
            self._announced.popleft()
        else:
            self.prefetch()
            if batch.coming is None:
                raise ValueError("the mini-batch before has rows of other owners and has not taken its step: its "
                                 "backward comes first, or its result goes (torch.no_grad() where none is wanted)")
            with self._together():
                self._check(batch)
                rows[slots < 0] = batch.coming.result()
            self._announced.popleft()
        rows[slots >= 0] = self._popular[slots[slots >= 0]]
        trains = self.training and torch.is_grad_enabled()
        ended = self._dropped if trains and not batch.of_all.popular else SimpleQueue()
        pinned = PinnedRows(ended, 1, slots, batch.back)
        if trains:
            rows.requires_grad_().register_post_accumulate_grad_hook(partial(self._step, batch, pinned))
        elif not batch.of_all.popular:
            self._open -= 1
        return pooled(self, rows, pinned, indices, offsets, per_sample_weights)

    def _fetch(self, batch: "_Batch") -> None:
        """Of a thread: brings a mini-batch's rows from their owners."""
        assert batch.coming is not None
        try:
            cold = batch.different[self._slot[batch.different] < 0]
            # By owner, as messages go.
            batch.order = torch.argsort(cold % self.ranks, stable=True)
            batch.sent = torch.bincount(cold % self.ranks, minlength=self.ranks)
            batch.asked = torch.empty_like(batch.sent)
            dist.all_to_all_single(batch.asked, batch.sent, group=self._fetching)
            wanted = self._exchange(cold[batch.order], batch.sent, batch.asked, self._fetching)
            batch.wanted = wanted // self.ranks
            found = self._exchange(self._store.weight[batch.wanted], batch.asked, batch.sent, self._fetching)
            rows = torch.empty_like(found)
            rows[batch.order] = found
            batch.coming.set_result(rows)
        except BaseException as error:
            batch.coming.set_exception(error)

    def _exchange(self, values: torch.Tensor, sent: torch.Tensor, received: torch.Tensor, group: Any) -> torch.Tensor:
        """What the others have for this rank, in the order of ranks. sent, received: how many, by rank."""
        out = values.new_empty(int(received.sum()), *values.shape[1:])
        dist.all_to_all_single(out, values.contiguous(), received.tolist(), sent.tolist(), group=group)
        self.exchanged += values.nbytes - int(sent[self.rank]) * (values.nbytes // max(1, len(values)))
        return out

    @torch.no_grad()
    def _step(self, batch: "_Batch", pinned: PinnedRows, rows: torch.Tensor) -> None:
        change = rows.grad
        assert change is not None
        rows.grad = None
        pinned.use()
        hot = pinned.slots >= 0
        with self._together():
            if batch.of_all.popular:
                self._check(batch)
            popular, summed = self._reduce(pinned.slots[hot], change[hot])
            if not batch.of_all.popular:
                parts = self._exchange(change[~hot][batch.order], batch.sent, batch.asked, self._group)
        # All is here: now the steps.
        state = self.rule != "sgd"
        step(self._popular, self._state if state else None, popular, summed, self.rate)
        if not batch.of_all.popular:
            mine, at = torch.unique(batch.wanted, return_inverse=True)
            total = change.new_zeros(len(mine), self.dim)
            for place, part in zip(at.split(batch.asked.tolist()), parts.split(batch.asked.tolist()), strict=True):
                total[place] += part
            step(self._store.weight, self._store.state, mine, total, self.rate)
            self._open -= 1

    def _reduce(self, slots: torch.Tensor, change: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(popular rows that any rank looked up, the sums of their gradients in the order of ranks)."""
        touched = torch.zeros(len(self._popular), dtype=torch.uint8)
        touched[slots] = 1
        dist.all_reduce(touched, dist.ReduceOp.MAX, group=self._group)
        at = touched.nonzero().flatten()
        part = -(-len(at) // self.ranks)            # a share that each rank sums
        given = change.new_zeros(part * self.ranks, self.dim)
        given[(touched.cumsum(0) - 1)[slots]] = change
        parts, total = torch.empty_like(given), torch.empty_like(given)
        dist.all_to_all_single(parts, given, group=self._group)
        mine, *others = parts.reshape(self.ranks, part, self.dim)
        for other in others:
            mine += other
        dist.all_gather_single(total, mine, group=self._group)
        self.reduced += 2 * (self.ranks - 1) * (mine.nbytes + len(touched) // self.ranks)
        return at, total[:len(at)]

    def _check(self, batch: "_Batch") -> None:
        """The first message of a mini-batch: all ranks train the same one."""
        mine = torch.tensor([self._steps, batch.of_all.popular, batch.of_all.digest])
        every = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(every, mine, group=self._group)
        self.reduced += mine.nbytes * (self.ranks - 1)
        for rank, other in enumerate(every):
            if not torch.equal(other, mine):
                raise ValueError(f"rank {rank} trains another mini-batch than rank {self.rank} (number "
                                 f"{int(other[0])}, here {self._steps}): all ranks must read the same log in the same "
                                 "order")
        self._steps += 1

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Around messages: after one that failed, the ranks are no longer at the same place."""
        if self._failed:
            raise RuntimeError("the ranks went apart before; all go on from their last checkpoint, in a new group")
        self._failed = True
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError("a rank of the group is gone or does not answer; the table is as before this step, and "
                               f"all ranks go on from their last checkpoint ({str(error).split('. ')[0]})") from error
        self._failed = False

    # The table

    @torch.no_grad()
    def keep(self, rows: ArrayLike | torch.Tensor) -> None:
        """These rows are popular from now on, those kept so far are not. All ranks call it.

        Raises      IndexError: a number that is no row; ValueError: mini-batches are announced, or more rows than
                    `cache_rows`; RuntimeError: other rows on another rank
        """
        kept = torch.unique(torch.as_tensor(rows, dtype=torch.long))
        if self._announced:
            raise ValueError(f"{len(self._announced)} batches are announced: rows to keep must be named before them")
        if len(kept) > self.may_keep:
            raise ValueError(f"{len(kept)} rows are to be kept, and cache_rows is {self.may_keep}")
        if len(kept) and not 0 <= int(kept[0]) <= int(kept[-1]) < self.rows:
            raise IndexError(f"index {int(kept[0] if kept[0] < 0 else kept[-1])} is none of the table's {self.rows} "
                             "rows")
        own = kept % self.ranks == self.rank
        with self._together():
            self._check(_Batch(kept, GlobalBatch(True, zlib.crc32(kept.numpy().tobytes()))))
            self._write_back()
            popular = [self._shared(each, own, kept) for each in (self._store.weight, self._store.state)
                       if each is not None]
        self._slot.fill_(-1)
        self._slot[kept] = torch.arange(len(kept))
        self._kept, self._popular = kept, popular[0]
        self._state = popular[1] if len(popular) > 1 else self._state

    def _shared(self, mine: torch.Tensor, own: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Rows of all owners; of bits, whose sum with zeros is themselves."""
        bits = torch.zeros(len(rows), *mine.shape[1:], dtype=torch.int32)
        bits[own] = mine[rows[own] // self.ranks].view(torch.int32)
        dist.all_reduce(bits, group=self._group)
        return bits.view(torch.float32)

    def _write_back(self) -> None:
        """Popular rows that this process owns go to its others."""
        own = self._kept % self.ranks == self.rank
        self._store.weight[self._kept[own] // self.ranks] = self._popular[own]
        if self._store.state is not None:
            self._store.state[self._kept[own] // self.ranks] = self._state[own]

    @torch.no_grad()
    def table(self) -> torch.Tensor:
        """A copy (rows, dim) of the whole table, in every process; all call it."""
        self._write_back()
        every = torch.arange(self.rows)
        with self._together():
            return self._shared(self._store.weight, every % self.ranks == self.rank, every)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        self._write_back()
        destination[prefix + "weight"] = self._store.weight
        if self._store.state is not None:
            destination[prefix + "state"] = self._store.state

    @torch.no_grad()
    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str]) -> None:
        for name, own in (("weight", self._store.weight), ("state", self._store.state)):
            value = state_dict.get(prefix + name)
            if own is None:
                continue
            if value is None:
                missing_keys.append(prefix + name)
            elif value.shape != own.shape:
                error_msgs.append(f"{prefix}{name} has the shape {tuple(value.shape)}; rank {self.rank} of "
                                  f"{self.ranks} has {tuple(own.shape)}")
            else:
                own.copy_(value)
        kept, self._kept = self._kept, self._kept[:0]
        self.keep(kept)

    def extra_repr(self) -> str:
        return f"{self.rows}, {self.dim}, rank {self.rank} of {self.ranks}, mode={self.mode!r}, rule={self.rule!r}"


class _Batch:
    """One that was announced. coming: its rows of other owners, in their order, where they are fetched."""

    def __init__(self, indices: torch.Tensor, of_all: GlobalBatch):
        self.indices, self.of_all = indices.detach().clone(), of_all
        self.different, self.back = torch.unique(self.indices.reshape(-1), return_inverse=True)
        self.coming: Future[torch.Tensor] | None = None
        # Its cold rows by owner; how many go to each rank and come from it; the rows that others want of this one.
        self.order = self.sent = self.asked = self.wanted = self.back[:0]
