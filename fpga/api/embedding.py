"""Embedding bags on a card, called as torch.nn.EmbeddingBag is.

    from fpga.api.embedding import EmbeddingBags, Table
    with EmbeddingBags([Table.place("genre", values, device)]) as bags:     # the simulated card
        vectors = bags("genre", indices, offsets, mode="mean")              # (bags, dim) float32

Rows lie where the table's placement puts them: DRAM, tensor train, SSD. A batch of several tables is one run
of the core: `bags.batch([bags.request("genre", ...), bags.request("anime", ...)])`. A RunError of this core has
instruction, bag, index and detail of the result block; and table, and `request_bag` and `request_index` within the
request, where an instruction of bags is meant.
"""

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, cycle, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpga.card import Card, CardError, SsdStream
from fpga.card.runs import LIMIT_CYCLES, LIMIT_S, SIDES, TIMEOUT_CYCLES, OnCard, RunError
from fpga.card.threads import Turns, exclusive
from gen.compiler.emb import Bags, Compiler, Program
from gen.compiler.tables import DRAM, SSD, TT, CardImages, Table
from gen.model.device import Device
from gen.rtl.headers import KERNELS

__all__ = ["DRAM", "SSD", "TT", "EmbeddingBags", "RunError", "Staged", "Table"]

KERNEL = KERNELS["emb"]


class EmbeddingBags(OnCard):
    """Tables on a card.

    tables: names differ; or images that were made of them, with their own page_bytes. card: "sim" opens the simulated
    one, "twin" its twin, "xrt" or "f2" a real one, else an open card whose core is that of `preset`, which is then not
    closed here. preset: a name or path, or the core's configuration itself. results: the format of pooled vectors on
    the link, float32, float16 or bfloat16, of all tables or by table [as the tables say]; they are given as float32 in
    any case. page_bytes: of the SSD. ring_bytes: where its pages land, a power of two. ssd: a file on the card's
    drive, where the SSD's pages are written and read from [the host's memory plays the drive]. timeout_cycles:
    without progress, also of a row's landing, which end a run. limit_cycles, limit_s: of a run, as
    fpga.card.runs.Runs takes them. options: for fpga.card.open.

    The core and the images are on the card when the constructor returns. `last` has the counters of the last run,
    `program` what was run. After a run that did not end well, Ctrl-C included, the images are brought and the tensor
    trains loaded anew before the next; the row cache then begins as at first.
    Raises      ValueError: tables that do not fit the core; CardError: a card that cannot hold them
    """

    def __init__(self, tables: Sequence[Table] | CardImages, *, card: "str | Card" = "sim", preset: Any = "smartssd",
                 page_bytes: int = 4096, ring_bytes: int = 1 << 20, ssd: "str | Path | None" = None,
                 results: "str | Mapping[str, str] | None" = None, timeout_cycles: int = TIMEOUT_CYCLES,
                 limit_cycles: int = LIMIT_CYCLES, limit_s: float = LIMIT_S, **options: Any):
        config, device = self._config(preset, "emb"), Device.load(options.get("device", "smartssd"))
        if not isinstance(tables, CardImages):
            tables = CardImages(_in_format(tables, results), config, page_bytes, row_in_page=device.row_in_page)
        elif results is not None:
            raise ValueError(f"results = {results!r}: images have the formats of their tables")
        self._ring_bytes = ring_bytes if len(tables.pages) else 0
        self.compiler = Compiler(tables, ring_beats=self._ring_bytes // (4 * tables.words), drive=device.ssd,
                                 wait=device.first_page_cycles(tables.page_bytes))
        self._file = None if ssd is None else _stored(tables, Path(ssd))
        self._stale = np.zeros(0, np.int64)     # pages of the file that may not be those of the images
        self._staged: Staged | None = None      # what was brought last
        self._waiting: list[_Asked] = []        # a batch whose vectors are on their way
        self.program: Program | None = None
        self._open("emb", card, preset, self.images.words, limit_cycles, limit_s, timeout_cycles, **options)

    @property
    def images(self) -> CardImages:
        """What the card holds."""
        return self.compiler.images

    def _build(self) -> None:
        self._waiting = []
        self._store(self._stale, self.images.pages)
        self._runs.write("rows", self.images.rows)
        self._runs.ensure_buffer("ring", self._ring_bytes, p2p=self._ring_bytes > 0)
        self.compiler.warm()
        self.card.tensor_trains(self.images.cores)
        self._run(self.compiler.load())

    def shape(self, table: str) -> tuple[int, int]:
        """A table's rows, and values of each. Raises ValueError: no such table"""
        if table not in self.images.placed:
            raise ValueError(f"there is no table {table!r}; there are {', '.join(self.images.placed)}")
        found = self.images.placed[table].table
        return found.rows, found.dim

    def __call__(self, table: str, indices: ArrayLike, offsets: ArrayLike | None = None,
                 per_sample_weights: ArrayLike | None = None, mode: str = "sum", include_last_offset: bool = False,
                 padding_idx: int | None = None) -> NDArray[np.float32]:
        """Vectors (bags, dim) of one table; the arguments are those of torch.nn.functional.embedding_bag."""
        return self.batch([self.request(table, indices, offsets, per_sample_weights, mode, include_last_offset,
                                        padding_idx)])[0]

    @staticmethod
    def request(table: str, indices: ArrayLike, offsets: ArrayLike | None = None,
                per_sample_weights: ArrayLike | None = None, mode: str = "sum", include_last_offset: bool = False,
                padding_idx: int | None = None) -> Bags:
        """Bags in the form that `batch` takes.

        indices: (N,) with offsets (B,), the first of which is 0, or with include_last_offset (B + 1,), the last of
        which is N; or (B, N) without offsets, N indices a bag. per_sample_weights: of the indices' shape, with sum
        alone. Indices equal to padding_idx are left out, from the number that a mean is divided by too.
        Raises      ValueError: one sentence that names the table
        """
        flat, weights = np.asarray(indices), None
        if per_sample_weights is not None:
            weights = np.asarray(per_sample_weights, np.float32)
            if weights.shape != flat.shape:
                raise ValueError(f"table {table}: per_sample_weights has shape {weights.shape}, "
                                 f"the indices {flat.shape}")
            weights = weights.reshape(-1)
        if flat.ndim == 2:
            if offsets is not None:
                raise ValueError(f"table {table}: indices of 2 axes are bags of their own, so offsets must be None")
            ends = np.arange(flat.shape[0] + 1, dtype=np.int64) * flat.shape[1]
            flat = flat.reshape(-1)
        elif flat.ndim == 1:
            if offsets is None:
                raise ValueError(f"table {table}: indices of 1 axis need offsets")
            ends = np.asarray(offsets)
            if ends.ndim != 1 or include_last_offset and not len(ends):
                raise ValueError(f"table {table}: offsets must have 1 axis"
                                 + (" and an entry at least with include_last_offset" if include_last_offset else "")
                                 + f", not the shape {ends.shape}")
            if len(ends) and (ends.dtype.kind not in "iu" or ends.min() < 0 or ends.max() > len(flat)):
                raise ValueError(f"table {table}: offsets must be whole numbers from 0 to the {len(flat)} indices")
            if len(ends) and ends[0]:
                raise ValueError(f"table {table}: offsets must begin with 0, not with {ends[0]}")
            if not include_last_offset:
                ends = np.append(ends, len(flat)) if len(ends) else np.zeros(1, np.int64)
        else:
            raise ValueError(f"table {table}: indices must have 1 or 2 axes, not {flat.ndim}")
        if padding_idx is not None:
            kept = flat != padding_idx
            ends = np.concatenate([[0], np.cumsum(kept)])[ends]
            flat, weights = flat[kept], weights if weights is None else weights[kept]
        if not flat.size:
            flat = flat.astype(np.int64)    # an empty list is float64 to NumPy
        return Bags(table, flat, ends, weights, mode)

    def batch(self, requests: Sequence[Bags]) -> list[NDArray[np.float32]]:
        """The vectors of every request, in order, from one run of the core. Without a row cache a thread compiles its
        program while the card runs those of others, if it does not simulate them in this process.

        Raises      ValueError: a request that is wrong; RunError: the core's own words; CardError: the card's
        """
        compiler = self.compiler
        program = None if compiler.caches or self.card.in_process else compiler.compile(requests)
        with self.lock:
            self._ensure_known()
            if program is None or compiler is not self.compiler:
                program = self.compiler.compile(requests)
            with self._runs.transaction():
                self._settle()
                self._run(program, requests)
                vectors = self._vectors(program, self._runs.fetched)
                self.compiler.commit(program)
        return vectors

    def batches(self, batches: Iterable[Sequence[Bags]]) -> Turns[list[NDArray[np.float32]]]:
        """As `batch`, one batch after the other: while one is run, the inputs of the next and the vectors of the one
        before cross the link; so two more batches are taken before the vectors of one are given. An error ends all,
        also the batch before, whose vectors are still on their way; a request that is wrong is one when its turn comes.
        What crosses the link while a batch is run is counted as its (`link`).

        Raises      as `batch`
        """
        return Turns(self._given(batches))

    def _given(self, batches: Iterable[Sequence[Bags]]) -> Generator[list[NDArray[np.float32]], None, None]:
        before = None
        asked = (_Asked(requests, side) for requests, side in zip(batches, cycle(SIDES), strict=False))
        for now, following in pairwise(chain(asked, (None,))):
            assert now is not None
            self._begin(now, following)
            if before is not None:
                yield before.given()
            before = now
        if before is not None:
            with self.lock, self._runs.transaction():
                self._take()
            yield before.given()

    @exclusive
    def _begin(self, now: "_Asked", following: "_Asked | None") -> None:
        """Runs a batch of `batches`, whose vectors are then on their way."""
        self._ensure_known()
        preloaded = now.compiler is self.compiler and now.turn == self._runs.turn
        if not preloaded:
            now.program = self.compiler.compile(now.requests)
        with self._runs.transaction():
            if not preloaded:
                self._settle()
            self.compiler.commit(now.program)   # a run that fails leaves no cache as it was
            self._run(now.program, now.requests, now.side, preloaded, partial(self._send_ahead, following))
            now.begun = self._runs.fetched
            self._take()
            self._waiting = [now]

    def _send_ahead(self, asked: "_Asked | None") -> None:
        """Sends the inputs of the batch, if there is one, that comes behind the run that is under way."""
        if asked is None:
            return
        with suppress(ValueError):      # for its turn
            asked.program = self.compiler.compile(asked.requests)
            if asked.program.count:
                self._runs.preload(asked.program.words, asked.program.inputs, asked.side)
            asked.compiler, asked.turn = self.compiler, self._runs.turn

    def _settle(self) -> None:
        """Nothing of `batches` is on the link any more: neither inputs, for which nobody may come, nor vectors."""
        self.card.settle()
        self._take()

    def _take(self) -> None:
        """The vectors that are on their way have come; whoever waits for them has them."""
        for each in self._waiting:
            each.vectors = self._vectors(each.program, each.begun)
        self._waiting = []

    @exclusive
    def stage(self, images: CardImages, beats: NDArray[np.int64], numbers: NDArray[np.int64]) -> "Staged":
        """Brings other images of the same tables, which differ in these beats of `rows` and these `pages`, to the card
        between two runs. `adopt` takes them; until then all answers are those of the images before, and a run brings
        these anew. Whatever ends this before its end changes no answer.

        Raises      ValueError: images of another shape, a row cache; CardError: the card's
        """
        old = self.images
        if images.rows.shape != old.rows.shape or images.pages.shape != old.pages.shape or \
                any(placed.cache_rows for placed in (*old.placed.values(), *images.placed.values())):
            raise ValueError(f"images of {images.rows.shape} and {images.pages.shape} words: they must be of "
                             f"{old.rows.shape} and {old.pages.shape}, as on the card, and without a row cache")
        self._ensure_known()
        if self._waiting:
            with self._runs.transaction():
                self._take()
        compiler = Compiler(images, ring_beats=self.compiler.ring_beats, drive=self.compiler.drive,
                            wait=self.compiler.wait)
        since = self._runs.invalidate()
        self._stale, self._staged = numbers, None
        self._store(numbers, images.pages)
        for first, end in _stretches(beats):
            self.card.send(self._runs.buffers["rows"], images.rows[first:end], first * 4 * images.words)
        self.card.settle()
        self._staged = Staged(compiler, numbers, since)
        return self._staged

    @exclusive
    def adopt(self, staged: "Staged") -> None:
        """Answers from now on are those of the images that were staged; where a run or other images came in between,
        the next one brings them anew. May be called again where it was cut short.

        Raises      CardError: it is closed
        """
        self._runs.invalidate()
        self._stale = np.union1d(self._stale, staged.numbers)
        self.compiler = staged.compiler
        if staged is self._staged:
            self._runs.revalidate(staged.since)

    def _store(self, numbers: NDArray[np.int64], pages: NDArray[np.uint32]) -> None:
        """Writes some of the pages into the drive's file, all of them on the drive when it returns.

        Raises      CardError: it cannot be written"""
        if self._file is None or not len(numbers):
            return
        try:
            with self._file.open("r+b") as file:
                for number in numbers.tolist():
                    file.seek(number * self.images.page_bytes)
                    file.write(np.ascontiguousarray(pages[number]).data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CardError(f"ssd {self._file}: the pages cannot be written there: {error.strerror}") from None

    def _vectors(self, program: Program, begun: Any) -> list[NDArray[np.float32]]:
        return program.vectors(self._runs.results(begun))

    def _run(self, program: Program, requests: Sequence[Bags] = (), side: str = SIDES[0], preloaded: bool = False,
             beside: Callable[[], None] | None = None) -> None:
        """The outputs are then on their way (`fetched`). preloaded: what `Runs.preload` sends is."""
        self.program, self._runs.fetched = program, None
        if not program.count:
            return
        runs, words = self._runs, self.images.words
        if not preloaded:
            runs.clear_result(side)
            runs.send(f"{side}inputs", program.inputs)
        runs.ensure_buffer(f"{side}outputs", program.outputs_beats * words * 4)
        # Progress and doorbell begin at 0: ring positions count from the beginning of a run.
        result, ring = runs.buffers[f"{side}result"], runs.buffers["ring"]
        self.card.stream(None if not len(program.pages) else SsdStream(
            self.images.pages if self._file is None else self._file, self.images.page_bytes, program.transfers, ring,
            result.address + 4 * KERNEL.value("released").word, result.address + 4 * KERNEL.value("filled").word,
            4 * words))
        if runs.run(program.words, {
                "inputs_beats": len(program.inputs), "outputs_beats": program.outputs_beats,
                "rows_beats": len(self.images.rows), "ring_beats": self.compiler.ring_beats}, beside, side, preloaded):
            raise self._error(program, requests)

    def _error(self, program: Program, requests: Sequence[Bags]) -> RunError:
        """What went wrong, in the words of whoever made the requests."""
        last = self.last
        code = next((code for code in KERNEL.codes if code.code == last["code"]), None)
        place: dict[str, Any] = {}
        where: list[str] = []
        origin = program.origins[last["instruction"]] if last["instruction"] < program.count else None
        if origin is not None and origin.request is not None:
            bag, index = origin.place(last["bag"], last["index"])
            place = {"table": requests[origin.request].table, "request_bag": bag, "request_index": index}
            where = [f"table {place['table']}"]
            if code is not None and "bag" in code.place:
                where.append(f"bag {place['request_bag']}")
                if "index" in code.place:
                    where.append(f"index {place['request_index']} of the request")
        return self._runs.error(where, **place)


@dataclass(eq=False)
class _Asked:
    """A batch of `batches`. side: of its buffers; program: what it is run by. Its inputs are there as long as images
    and turn (Runs.turn) are those of `compiler` and `turn`. begun: the transfer of its vectors; vectors: once taken."""

    requests: Sequence[Bags]
    side: str
    program: Program = field(init=False)
    compiler: Compiler | None = None
    turn: int = -1
    begun: Any = None
    vectors: list[NDArray[np.float32]] | None = None

    def given(self) -> list[NDArray[np.float32]]:
        """Raises CardError: the card was built anew before they came"""
        if self.vectors is None:
            raise CardError("vectors of a batch were on their way when the card had to be built anew: ask for it again")
        return self.vectors


@dataclass(frozen=True, eq=False)
class Staged:
    """What a card was brought and answers by when it is adopted. numbers: of pages; since: of Runs.invalidate."""

    compiler: Compiler
    numbers: NDArray[np.int64]
    since: int


def _stretches(numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(first, end) of ascending numbers that follow each other."""
    if not len(numbers):
        return []
    ends = np.append(np.flatnonzero(np.diff(numbers) > 1), len(numbers) - 1)
    begins = np.append(0, ends[:-1] + 1)
    return list(zip(numbers[begins].tolist(), (numbers[ends] + 1).tolist(), strict=True))


def _in_format(tables: Sequence[Table], results: "str | Mapping[str, str] | None") -> list[Table]:
    """Tables with other formats of results."""
    if results is None:
        return list(tables)
    if isinstance(results, str):
        results = {table.name: results for table in tables}
    if unknown := sorted(set(results) - {table.name for table in tables}):
        raise ValueError(f"results: there is no table {unknown[0]!r}; there are {', '.join(t.name for t in tables)}")
    return [replace(table, results=results.get(table.name, table.results)) for table in tables]


def _stored(images: CardImages, path: Path) -> Path:
    """Writes the SSD's pages into a file, all of them on the drive when it returns.

    Raises CardError: what is there is no file, or cannot be written"""
    if path.exists() and not path.is_file():
        raise CardError(f"ssd {path} is no file; pages are written into files alone, not over a whole drive")
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            with half.open("wb") as file:
                file.write(np.ascontiguousarray(images.pages).data)
                os.fsync(file.fileno())
            half.replace(path)
        except BaseException:
            half.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CardError(f"ssd {path}: the pages cannot be written there: {error.strerror}") from None
    return path
