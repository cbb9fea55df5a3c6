"""torch.nn.EmbeddingBag whose table stays on the host, with a cache of its rows on the device.

    bag = CachedEmbeddingBag(10_000_000, 64, cache_rows=500_000, heat=counts, rate=0.01)
    for batch in ahead(loader, {bag: lambda batch: batch.items}):       # rows come while earlier batches train
        loss_of(bag(batch.items, batch.offsets)).backward()             # its rows have taken their step

Parameters after any number of steps are bit for bit those of torch.nn.EmbeddingBag with torch.optim.SGD, or with
row-wise Adagrad as FBGEMM has it, on the same batches: gradients of equal rows are summed, in the order of the indices,
before they are applied. (With sparse=True torch itself applies them one by one, to other bits.)
"""

import atexit
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

import torch
from numpy.typing import ArrayLike

from hotrail.training.placement import Move, Placement
from hotrail.training.store import Store

#: To be stopped before the interpreter ends under their threads.
_BAGS: "weakref.WeakSet[CachedEmbeddingBag]" = weakref.WeakSet()
RULES = ("sgd", "rowwise_adagrad")
EPSILON = 1e-8          # FBGEMM's
Batch = TypeVar("Batch")


@dataclass(frozen=True)
class GlobalBatch:
    """What a loader says of a mini-batch, that of all ranks. popular: all its rows are kept; digest: of its indices."""

    popular: bool = False
    digest: int = 0


class CachedEmbeddingBag(torch.nn.Module):
    """One embedding table of `rows` rows of `dim` float32 words.

    Parameters  cache_rows: rows on the device; one batch's different rows must fit. heat: (rows,) accesses of each
                row, as `hotrail profile` counts them: rows with the fewest accesses to come are evicted first; without,
                those with the fewest so far (LFU). mode: sum or mean. rate, rule: of the step that `backward` takes,
                sgd or rowwise_adagrad; no optimizer needs to know the bag. place: a folder for a table larger than
                memory, which is mapped; one that is there goes on. device: of the cache. std, seed: of the rows at
                the start.
    Members     moved: rows copied to the cache. hits, lookups: rows of a batch, each counted once, that were
                there, and all of them, summed over batches. waits: batches that had to wait for another one's end
                before they had room.
    Raises      ValueError: sizes, modes and rules that do not exist, or a `place` that another bag uses; OSError: a
                disk without room for the table
    """

    def __init__(self, rows: int, dim: int, *, cache_rows: int, heat: ArrayLike | None = None, mode: str = "sum",
                 rate: float, rule: str = RULES[0], place: str | Path | None = None,
                 device: str | torch.device = "cpu", std: float = 0.01, seed: int = 0,
                 include_last_offset: bool = False):
        super().__init__()
        check(mode, rate)
        if rule not in RULES:
            raise ValueError(f"rule is {rule!r}; it must be one of {', '.join(RULES)}")
        self.rows, self.dim, self.mode, self.rate, self.rule = rows, dim, mode, rate, rule
        self.cache_rows, self.include_last_offset, self.device = cache_rows, include_last_offset, torch.device(device)
        self._placement = Placement(rows, cache_rows, heat)
        self._store = Store(rows, dim, keeps_state=rule != "sgd", place=place, std=std, seed=seed)
        self.moved = self.hits = self.lookups = self.waits = 0
        self._process = os.getpid()
        # No buffers: what converts a module to another type or device leaves them as they are.
        self._cache = torch.zeros(cache_rows, dim, device=self.device)
        self._state = torch.zeros(cache_rows if rule != "sgd" else 0, device=self.device)
        # One thread plans and copies, batch after batch: what was evicted is on the host before it can be asked for.
        # It alone uses the placement, but for who holds the lock: then the cache has what the placement says.
        self._moving, self._ended = Lock(), SimpleQueue[int]()
        self._open: set[int] = set()                        # batches whose rows are kept for them
        self._announced: deque[_Batch] = deque()            # and not looked up
        self._brought = 0                                   # of these, from the first on
        self._wanted: _Batch | None = None
        self._jobs = SimpleQueue[Any]()
        self._thread = Thread(target=_serve, args=(self._jobs,), name="rows", daemon=True)
        self._thread.start()
        weakref.finalize(self, self._jobs.put, None).atexit = False
        _BAGS.add(self)

    @classmethod
    def of(cls, bag: torch.nn.EmbeddingBag, **options: Any) -> "CachedEmbeddingBag":
        """A bag with the weights and the mode of torch's. options: as at construction.

        Raises      ValueError: it has what this one does not do (max_norm, padding_idx, scale_grad_by_freq, mode max)
        """
        for name in ("max_norm", "padding_idx", "scale_grad_by_freq"):
            if getattr(bag, name) not in (None, False):
                raise ValueError(f"the EmbeddingBag has {name}={getattr(bag, name)!r}, which a CachedEmbeddingBag does "
                                 "not do")
        made = cls(bag.num_embeddings, bag.embedding_dim, mode=bag.mode,
                   include_last_offset=bag.include_last_offset, **options)
        made.load_state_dict({"weight": bag.weight.detach()}, strict=False)
        return made

    # Batches

    def announce(self, indices: torch.Tensor, of_all: GlobalBatch | None = None) -> None:
        """A batch will be looked up, behind those announced before: its rows are not the ones that leave. of_all:
        the mini-batch of all ranks, of which there is one here."""
        self._check_process()
        batch = _Batch(indices)
        self._announced.append(batch)
        self._jobs.put((self, batch, None))

    def keep(self, rows: ArrayLike | torch.Tensor) -> None:
        """Pins these rows in the cache; those pinned so far are unpinned.

        Raises      IndexError: a number that is no row; ValueError: batches are announced, or more rows than the cache
                    holds
        """
        self._check_process()
        if self._announced:
            raise ValueError(f"{len(self._announced)} batches are announced: rows to keep must be named before them")
        batch = _Batch(torch.as_tensor(rows), keeps=True)
        self._jobs.put((self, batch, None))
        self._jobs.put((self, batch, 0))
        self._rows_of(batch)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError(f"the bag belongs to process {self._process}, of which this one is a fork, without the "
                               "thread that moves rows: use it there alone, or start workers with "
                               "multiprocessing_context='spawn'")

    def prefetch(self, up_to: int = 1) -> None:
        """Brings in the rows of the next batches that were announced, until so many that are not looked up have theirs
        or are about to have them; all but the first while those before it train."""
        while self._brought < min(up_to, len(self._announced)):
            self._jobs.put((self, self._announced[self._brought], self._brought))
            self._brought += 1

    def forget(self) -> None:
        """Batches that were announced will not come."""
        if os.getpid() != self._process:
            return
        for batch in self._announced:
            batch.coming.cancel()
        self.prefetch(len(self._announced))
        self._announced.clear()
        self._brought = 0

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor | None = None,
                per_sample_weights: torch.Tensor | None = None) -> torch.Tensor:
        """Pooled bags (bags, dim), on the cache's device, as torch.nn.EmbeddingBag has them.

        Raises      IndexError: an index that is no row; ValueError: more different rows than `cache_rows`, other
                    indices than were announced, or indices behind the last offset. Parameters are then as before.
        """
        self._check_process()
        check_ends(self, indices, offsets)
        if not self._announced:
            self.announce(indices)
        self.prefetch()
        batch = self._announced[0]
        if not torch.equal(batch.indices.reshape(-1), indices.reshape(-1).to(batch.indices)):
            raise ValueError("the indices are not those of the batch that was announced next; a batch that was "
                             "announced must be looked up, in turn")
        self._announced.popleft()
        self._brought -= 1
        pinned = self._rows_of(batch)
        del batch
        # A copy of the rows, which the cache's later ones do not touch.
        rows = self._cache.index_select(0, pinned.slots)
        if self.training and torch.is_grad_enabled():
            rows.requires_grad_().register_post_accumulate_grad_hook(partial(self._step, pinned))
        return pooled(self, rows, pinned, indices, offsets, per_sample_weights)

    @property
    def may_keep(self) -> int:
        """Rows that a loader keeps: all, or those that leave half of the cache to others."""
        return self.rows if self.cache_rows == self.rows else self.cache_rows // 2

    def _rows_of(self, batch: "_Batch") -> "PinnedRows":
        """Waits for its rows."""
        # Where there is no room without an end of a batch that only the caller can end, waiting would not end.
        self._wanted = batch
        self._ended.put(-1)
        try:
            pinned = batch.coming.result()
        finally:
            self._wanted = None
            del batch
        assert pinned is not None, "it was not cancelled"
        return pinned

    def _fetch(self, batch: "_Batch", in_flight: int) -> "PinnedRows | None":
        """Of the thread: waits for the batches whose rows must leave, then moves rows; None: nobody wants them."""
        move = self._placement.plan(in_flight)
        waited = False
        while True:
            # Before the caller waits for this one, it has ended what it will end.
            last = self._wanted is batch
            with suppress(Empty):
                while True:
                    self._open.discard(self._ended.get_nowait())
            if min(self._open, default=move.wait_for) >= move.wait_for:
                break
            if last or batch.coming.cancelled():
                self._placement.skip()
            if batch.coming.cancelled():
                return None
            if last:
                raise ValueError(f"a batch has no room beside those whose backward is still to come; the cache holds "
                                 f"{len(self._cache)} rows: more cache_rows, or a backward before the next batch")
            waited = True
            self._open.discard(self._ended.get())
        self._commit(move)
        self.waits += waited
        self.moved += len(move.misses)
        self.lookups += len(move.unique)
        self.hits += len(move.unique) - len(move.misses)
        return PinnedRows(self._ended, move.number, *(torch.from_numpy(each).to(self.device)
                                            for each in (self._placement.slots(move.unique), move.inverse)))

    def _commit(self, move: Move) -> None:
        with self._moving:
            self._evict_and_fill(move)
            self._placement.commit(move)
        self._open.add(move.number)

    @torch.no_grad()
    def _evict_and_fill(self, move: Move) -> None:
        """Writes evicted rows back to the host, then copies missing rows in."""
        victims, victim_slots = torch.from_numpy(move.victims), torch.from_numpy(move.victim_slots).to(self.device)
        misses, fill_slots = torch.from_numpy(move.misses), torch.from_numpy(move.fill_slots).to(self.device)
        for host, cache in self._pairs():
            if len(victims):
                host.index_copy_(0, victims, cache.index_select(0, victim_slots).cpu())
            if len(misses):
                cache.index_copy_(0, fill_slots, host.index_select(0, misses).to(self.device))

    @torch.no_grad()
    def _step(self, pinned: "PinnedRows", rows: torch.Tensor) -> None:
        change = rows.grad
        assert change is not None
        rows.grad = None
        pinned.use()
        # What another lookup before this backward has learned meanwhile stays.
        step(self._cache, self._state if self.rule != "sgd" else None, pinned.slots, change, self.rate)
        pinned.end()

    # The table

    @torch.no_grad()
    def table(self) -> torch.Tensor:
        """The host's tensor (rows, dim), with what the cache has learned written back; the bag goes on with it."""
        self._check_process()
        with self._moving:
            rows, slots = (torch.from_numpy(each) for each in self._placement.cached())
            for host, cache in self._pairs():
                host[rows] = cache[slots.to(self.device)].cpu()
        return self._store.weight

    def _pairs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(on the host, in the cache) of all that belongs to a row."""
        pairs = [(self._store.weight, self._cache)]
        return pairs if self._store.state is None else [*pairs, (self._store.state, self._state)]

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[prefix + "weight"] = self.table()
        if self._store.state is not None:
            destination[prefix + "state"] = self._store.state

    @torch.no_grad()
    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str]) -> None:
        given = {name: state_dict.get(prefix + name) for name in ("weight", "state")}
        if self._store.state is None and given["state"] is not None:
            unexpected_keys.append(prefix + "state")
        with self._moving:
            rows, slots = (torch.from_numpy(each) for each in self._placement.cached())
            for (host, cache), (name, value) in zip(self._pairs(), given.items()):
                if value is None:
                    missing_keys.append(prefix + name)
                elif value.shape != host.shape:
                    error_msgs.append(f"{prefix}{name} has the shape {tuple(value.shape)}; the bag has "
                                      f"{tuple(host.shape)}")
                else:
                    host.copy_(value)
                    cache[slots.to(self.device)] = host[rows].to(self.device)

    def extra_repr(self) -> str:
        return f"{self.rows}, {self.dim}, cache_rows={len(self._cache)}, mode={self.mode!r}, rule={self.rule!r}"


class _Batch:
    """One that was announced, and its pinned to come. known: the placement has it; keeps: its rows stay."""

    def __init__(self, indices: torch.Tensor, keeps: bool = False):
        # A copy: the caller's tensor may be filled anew before its turn.
        self.indices, self.keeps, self.known = indices.detach().clone(), keeps, False
        self.coming: Future[PinnedRows | None] = Future()


def check(mode: str, rate: float) -> None:
    """Raises ValueError: a mode or a rate that no bag has."""
    if mode not in ("sum", "mean"):
        raise ValueError(f"mode is {mode!r}; it must be sum or mean")
    if not 0 <= rate < float("inf"):
        raise ValueError(f"rate is {rate}; it must be a number from 0 on")


def check_ends(bag: Any, indices: torch.Tensor, offsets: torch.Tensor | None) -> None:
    """Raises ValueError: indices behind the last offset."""
    if offsets is not None and bag.include_last_offset and int(offsets[-1]) != indices.numel():
        raise ValueError(f"the last offset is {int(offsets[-1])}, and there are {indices.numel()} indices: with "
                         "include_last_offset it must be their number")


def step(weight: torch.Tensor, state: torch.Tensor | None, at: torch.Tensor, change: torch.Tensor, rate: float) -> None:
    """Of the rows `at`, each once, by their gradients: SGD's, or with a state row-wise Adagrad's."""
    if state is not None:
        squares = state[at] + (change * change).mean(1)
        state[at] = squares
        change = change / (squares.sqrt() + EPSILON)[:, None]
    weight.index_copy_(0, at, weight.index_select(0, at).add_(change, alpha=-rate))


def pooled(bag: Any, rows: torch.Tensor, pinned: "PinnedRows", indices: torch.Tensor, offsets: torch.Tensor | None,
           weights: torch.Tensor | None) -> torch.Tensor:
    """The vectors of a batch out of its different rows, as the bag's mode has them."""
    back = pinned.back.reshape(indices.shape)
    if bag.mode == "sum" and weights is None and (offsets is None or bool((offsets.diff() >= 0).all())):
        return _Sum.apply(rows, pinned, back, offsets, bag.include_last_offset)
    return _pooled(back, rows, offsets, bag.include_last_offset, bag.mode, weights)


def _pooled(indices: torch.Tensor, rows: torch.Tensor, offsets: torch.Tensor | None, last: bool, mode: str = "sum",
            weights: torch.Tensor | None = None) -> torch.Tensor:
    options = {} if offsets is None else {"include_last_offset": last}
    return torch.nn.functional.embedding_bag(indices, rows, offsets, mode=mode, per_sample_weights=weights, **options)


class _Sum(torch.autograd.Function):
    """Sums of rows; backward sums the slopes of the bags that looked a row up, which is as much work and no more.

    Torch's own backward of the whole table does the same, to the same bits, a bag and a row at a time. Where it scales
    the slopes too, for means and weights, its own is used.
    """

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, pinned: "PinnedRows", back: torch.Tensor, offsets: torch.Tensor | None,
                last: bool) -> torch.Tensor:
        ctx.pinned, ctx.shape = pinned, back.shape
        ctx.save_for_backward(offsets)
        ctx.last = last
        return _pooled(back, rows, offsets, last)

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (offsets,), pinned = ctx.saved_tensors, ctx.pinned
        if offsets is None:
            bag = pinned.order // max(1, ctx.shape[1])
        else:
            ends = offsets[1:] if ctx.last else torch.cat([offsets[1:], offsets.new_tensor([len(pinned.back)])])
            bag = torch.repeat_interleave(ends - offsets[:len(ends)])[pinned.order]
        return _pooled(bag, slopes[0].contiguous(), pinned.starts, False), None, None, None, None


class PinnedRows:
    """The slots of a batch's rows, and which of them each index is; they are kept for it as long as this lives or until
    it has ended. order: of its indices by rows, as torch sorts them; starts: of each row's in that order."""

    def __init__(self, ended: "SimpleQueue[int]", number: int, slots: torch.Tensor, back: torch.Tensor):
        self._ended, self._number, self.slots, self.back = ended, number, slots, back
        self._used = False
        self.order = torch.sort(back).indices
        counts = torch.bincount(back, minlength=len(slots))
        self.starts = counts.cumsum(0) - counts

    def use(self) -> None:
        if self._used:
            raise RuntimeError("this batch has taken its step: a second backward through it would step again")
        self._used = True

    def end(self) -> None:
        self._ended.put(self._number)       # SimpleQueue: also from __del__, whatever it interrupts

    def __del__(self) -> None:
        if not self._used:
            self.end()


def _serve(jobs: "SimpleQueue[Any]") -> None:
    """The thread of a bag: it learns of batches and brings their rows, in turn, until the bag is gone."""
    while (job := jobs.get()) is not None:
        bag, batch, in_flight = job
        with suppress(InvalidStateError):       # it was cancelled meanwhile
            try:
                if in_flight is None:
                    learn = bag._placement.pin if batch.keeps else bag._placement.announce
                    learn(batch.indices.detach().cpu().numpy().reshape(-1))
                    batch.known = True
                elif batch.coming.cancelled() and batch.known:
                    bag._placement.skip()
                elif batch.known:
                    batch.coming.set_result(bag._fetch(batch, in_flight))
            except BaseException as error:
                batch.coming.set_exception(error)
        del job, bag, batch


@atexit.register
def _stop() -> None:
    for bag in list(_BAGS):
        if bag._process != os.getpid():
            continue
        bag.forget()
        bag._ended.put(-1)
        bag._jobs.put(None)
        bag._thread.join(10)


def ahead(batches: Iterable[Batch], bags: Mapping[CachedEmbeddingBag, Callable[[Batch], torch.Tensor]], *,
          depth: int = 8, fetch: int = 1) -> Iterator[Batch]:
    """The batches, each announced to the bags `depth` batches before it comes.

    Parameters  bags: by bag, what takes the indices of that bag from a batch. fetch: rows of so many batches behind
                the one that trains are brought in
    """
    def announce(batch: Batch) -> None:
        for bag, indices in bags.items():
            bag.announce(indices(batch))

    return announced(batches, list(bags), announce, depth, fetch)


def announced(batches: Iterable[Batch], bags: Iterable[Any], announce: Callable[[Batch], None], depth: int,
              fetch: int) -> Iterator[Batch]:
    """As `ahead`, where `announce` tells all bags of a batch."""
    for name, value in (("depth", depth), ("fetch", fetch)):
        if value < 0:
            raise ValueError(f"{name} is {value}; it must be 0 or more")
    waiting: deque[Batch] = deque()
    source, more = iter(batches), True
    try:
        while True:
            while more and len(waiting) <= depth:
                try:
                    batch = next(source)
                except StopIteration:
                    more = False
                    break
                waiting.append(batch)
                announce(batch)
            if not waiting:
                return
            for bag in bags:
                bag.prefetch(up_to=1 + fetch)
            yield waiting.popleft()
    finally:
        for bag in bags:
            bag.forget()
