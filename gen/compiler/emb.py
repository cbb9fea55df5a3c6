"""Batches of bags as programs of the EMB core: remapped indices, instructions, and the SSD pages to bring.

Pages of the SSD land in a ring about in the order in which the batch first needs them, so that the drive's dies take
turns (gen.compiler.dies); a page that is still in the ring is not brought again. An instruction reads rows of a stretch
of the ring and releases what no later one needs, so requests are cut into as many instructions as the ring asks for;
where they wait for different memories, into more, which take turns (gen.compiler.turns). Bags of a cut are pooled in
the order in which the last of their pages comes: as bags are finished in order, one behind a page that is yet to come
would hold up those behind it, whose pages are there. FILL instructions at the beginning copy what enters the row cache.
Source: SCRec §III.D (remapping); frequency-aware cache §4.3. Layouts are those of hw.isa.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from gen.compiler.dies import geometry, over_dies
from gen.compiler.inputs import Inputs
from gen.compiler.pairs import in_pairs
from gen.compiler.tables import DEVICE_SHIFT, SSD, CardImages, Placed
from gen.compiler.turns import ahead, in_turns, kind, part_sizes, parts
from gen.data.remap import TT
from gen.model.device import Drive
from golden.emb import packer
from golden.emb.row_cache import RowCache, Step
from golden.emb.signature import signature
from hw.isa import EMB, LONGEST_BAG, Kernel

POSITIONS = 1 << DEVICE_SHIFT
NOWHERE = 1 << 62       # behind every ring position


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags of one table: bag k pools `indices[offsets[k]:offsets[k + 1]]`, rows of the table as numbered there.

    mode: sum, mean or max. weights: one an index, with sum alone. remapped: the indices are words of gen.data.remap
    instead of rows. An empty bag is +0.
    """

    table: str
    indices: ArrayLike
    offsets: ArrayLike
    weights: ArrayLike | None = None
    mode: str = "sum"
    remapped: bool = False


@dataclass(frozen=True)
class Output:
    """Where the vectors of one request lie: `bags` of `beats` beats from `first` on, `dim` values of each. format: of
    them, as hw.isa numbers it. order: (bags,) the request's bag that each is of; None: in their order."""

    table: str
    first: int
    bags: int
    beats: int
    dim: int
    format: int = 0
    order: NDArray[np.int64] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Origin:
    """What an instruction was made of: the request's number, and of its bags and indices the numbers within it, in the
    instruction's order; a LOAD or FILL has no request."""

    request: int | None = None
    bags: Sequence[int] | NDArray[np.int64] = field(default=(), compare=False)
    indices: Sequence[int] | NDArray[np.int64] = field(default=(), compare=False)

    def place(self, bag: int, index: int) -> tuple[int, int]:
        """The request's bag and index behind these of the instruction; behind its last one, which an error may name
        that is of neither, the last."""
        return tuple(int(of[min(at, len(of) - 1)]) if len(of) else 0        # type: ignore[return-value]
                     for of, at in ((self.bags, bag), (self.indices, index)))


@dataclass(frozen=True, eq=False)
class Program:
    """What a run needs beside the card's images.

    words: (instructions, 16) uint32. inputs: (beats, words of a beat) uint32. pages: (n,) page numbers, the
    k-th at ring position k * page_beats. outputs: one a request. origins: one an instruction.
    asked: bytes of the SSD's rows that the bags ask for. brought: bytes of the pages. cached: of the rows asked
    for, repeated ones counted, those that the row cache serves; filled: rows that enter it. steps: of the row caches,
    by table, which are taken when the program has run: see Compiler.commit.
    """

    words: NDArray[np.uint32]
    inputs: NDArray[np.uint32]
    pages: NDArray[np.int64]
    page_beats: int
    outputs_beats: int
    outputs: tuple[Output, ...]
    origins: tuple[Origin, ...]
    asked: int = 0
    brought: int = 0
    cached: int = 0
    filled: int = 0
    steps: Mapping[str, Step] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.words)

    @property
    def transfers(self) -> NDArray[np.int64]:
        """(n, 2): page and ring position modulo 2**30, in beats, in the order to bring them."""
        positions = np.arange(len(self.pages)) * self.page_beats % POSITIONS
        return np.stack([self.pages, positions], axis=1)

    def vectors(self, outputs: ArrayLike) -> list[NDArray[np.float32]]:
        """The vectors (bags, dim) of every request, out of what the core has written in whatever format."""
        flat = np.ascontiguousarray(outputs).view(np.uint32).reshape(-1)
        words = self.inputs.shape[1]
        pooled = []
        for item in self.outputs:
            width = item.beats * words
            part = flat[item.first * words:][:item.bags * width].reshape(item.bags, width)
            vectors = np.ascontiguousarray(packer.unpack(part, item.format)[:, :item.dim])
            if item.order is not None:
                ordered = np.empty_like(vectors)
                ordered[item.order] = vectors
                vectors = ordered
            pooled.append(vectors)
        return pooled


def encode(instruction: str, values: Mapping[str, int], kernel: Kernel = EMB) -> NDArray[np.uint32]:
    """The words of one instruction. Raises ValueError: a field that it does not use, or a value out of range."""
    described = kernel.instruction(instruction)
    words = np.zeros(kernel.words, np.uint32)
    words[0] = described.opcode
    used = {use.field for use in described.uses}
    for name, value in values.items():
        item = kernel.field(name)
        if name not in used:
            raise ValueError(f"{instruction} has no field {name}")
        if not item.minimum <= value <= item.highest:
            raise ValueError(f"{instruction}: {name} must be {item.minimum:,} to {item.highest:,}, not {value:,}")
        words[item.word] |= np.uint32(int(value) << item.low)
    return words


def load_instruction(image: NDArray[np.uint32], count: int, at: int = 0) -> NDArray[np.uint32]:
    """The words of a LOAD. image: (beats, words) of `count` load beats; at: its place in the inputs, in beats."""
    return encode("LOAD", {"count": count, "indices": at, "signature": signature(image)})


@dataclass(frozen=True)
class _Request:
    """A request that has been checked: flat indices and offsets from 0."""

    placed: Placed
    address: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float32] | None
    mode: str


@dataclass(frozen=True)
class _Item:
    """An instruction but for its release; `first` is the first ring position that it reads, not wrapped, or NOWHERE."""

    name: str
    values: dict[str, int]
    first: int
    origin: Origin


class Compiler:
    """Compiles batches for one card; knows which rows the row cache holds. A row's sum with others is rounded
    where it is added up, so the last bits of a vector depend on which rows are cached.

    ring_beats: of the ring on the card, a power of two of at least one page where rows lie on the SSD, else 0. drive:
    whose dies pages are requested from in turns; without it they are requested in the order of first need. wait: cycles
    until its first page has come, in which the core works on bags that need none.
    `compile` changes nothing: a program goes with the rows that the cache holds now, and `commit` says that it has run.
    """

    def __init__(self, images: CardImages, *, ring_beats: int = 0, drive: Drive | None = None, wait: int = 0):
        if ring_beats < 0 or ring_beats & (ring_beats - 1) or ring_beats > POSITIONS >> 1:
            raise ValueError(f"ring_beats must be 0 or a power of two up to 2**{DEVICE_SHIFT - 1}, not {ring_beats}")
        if len(images.pages) and ring_beats < images.page_beats:
            raise ValueError(f"ring_beats must be at least a page's {images.page_beats}, not {ring_beats}")
        if len(images.pages) and images.page_beats & (images.page_beats - 1):
            raise ValueError(f"page_bytes must be a power of two, not {images.page_bytes}")
        self.images = images
        self.ring_beats = ring_beats
        self.drive = drive
        self.wait = wait
        self.caches = {}
        for name, placed in images.placed.items():
            if placed.cache_rows:
                self.caches[name] = RowCache(placed.cache_rows, len(placed.table.ssd))
        self.warm()

    def warm(self) -> None:
        """The card holds the images as they are, with the hottest rows in the row cache."""
        for cache in self.caches.values():
            cache.warm()

    def load(self) -> Program:
        """The program that loads the tensor-train tables; to be run once, before any other."""
        inputs = Inputs(self.images.words)
        at = inputs.add(self.images.load.reshape(-1))
        words = [load_instruction(self.images.load, self.images.load_beats, at)] if self.images.load_beats else []
        return Program(_stacked(words), inputs.image(), np.zeros(0, np.int64), self.images.page_beats, 0, (),
                       (Origin(),) * len(words))

    def compile(self, batch: Sequence[Bags]) -> Program:
        """The program of a batch; the vectors come in the order of the requests.

        Raises      ValueError: one sentence that names table, bag and index
        """
        requests = [self._checked(bags) for bags in batch]
        steps = {}
        for name, cache in self.caches.items():
            ranks = [_on_ssd(request)[0] for request in requests if request.placed.table.name == name]
            steps[name] = cache.prepare(np.concatenate([np.zeros(0, np.int64), *ranks]))
        return self._compile(requests, steps)

    def commit(self, program: Program) -> None:
        """A program has run without an error: the row caches hold what it has filled.

        Raises      ValueError: another one has been committed since it was compiled
        """
        for name, step in program.steps.items():
            self.caches[name].commit(step)

    def _checked(self, bags: Bags) -> _Request:
        if bags.table not in self.images.placed:
            raise ValueError(f"there is no table {bags.table!r}; there are {', '.join(self.images.placed)}")
        placed = self.images.placed[bags.table]
        where = f"table {bags.table}"
        offsets, indices = np.asarray(bags.offsets), np.asarray(bags.indices)
        for what, array in (("offsets", offsets), ("indices", indices)):
            if array.ndim != 1 or array.size and array.dtype.kind not in "iu":
                raise ValueError(f"{where}: {what} must be whole numbers with 1 axis, not {array.dtype} of shape "
                                 f"{array.shape}")
        if bags.mode not in EMB.modes:
            raise ValueError(f"{where}: mode must be one of {', '.join(EMB.modes)}, not {bags.mode!r}")
        offsets, indices = offsets.astype(np.int64), indices.astype(np.int64)
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(indices):
            raise ValueError(f"{where}: offsets must begin with 0 and end with the {len(indices)} indices")
        if (np.diff(offsets) < 0).any():
            bag = int(np.argmax(np.diff(offsets) < 0))
            raise ValueError(f"{where}, bag {bag}: its offset {offsets[bag]} is larger than the next, "
                             f"{offsets[bag + 1]}")
        if (np.diff(offsets) > LONGEST_BAG).any():
            bag = int(np.argmax(np.diff(offsets) > LONGEST_BAG))
            raise ValueError(f"{where}, bag {bag}: it has {offsets[bag + 1] - offsets[bag]} indices; a bag has at most "
                             f"{LONGEST_BAG}")
        if bags.remapped:
            held = np.array([placed.own_rows, placed.table.tt_rows, len(placed.table.ssd), 0])
            wrong = (indices < 0) | (indices >> 32 > 0)
            wrong |= (indices & (POSITIONS - 1)) >= held[indices >> DEVICE_SHIFT & 3]
        else:
            wrong = (indices < 0) | (indices >= placed.table.rows)
        if wrong.any():
            at = int(np.argmax(wrong))
            bag = int(np.searchsorted(offsets, at, side="right")) - 1
            raise ValueError(f"{where}, bag {bag}, index {at - offsets[bag]}: {indices[at]} is none of the table's "
                             + ("remapped words" if bags.remapped else f"{placed.table.rows} rows"))
        weights = None
        if bags.weights is not None:
            if bags.mode != "sum":
                raise ValueError(f"{where}: weights go with mode sum alone, not with {bags.mode}")
            weights = np.asarray(bags.weights, np.float32)
            if weights.shape != indices.shape:
                raise ValueError(f"{where}: {len(indices)} indices need as many weights, not {weights.shape}")
        address = indices.astype(np.uint32) if bags.remapped else placed.table.placement[indices]
        return _Request(placed, address, offsets, weights, bags.mode)

    def _compile(self, requests: Sequence[_Request], steps: Mapping[str, Step]) -> Program:
        inputs = Inputs(self.images.words)
        ring = _Ring(self.images, self.ring_beats, self.drive)
        items: list[_Item] = []
        for name, step in steps.items():
            items += self._fills(self.images.placed[name], step, ring, inputs)
        outputs, out, ssd_bytes = [], 0, 0
        used = dict.fromkeys(steps, 0)
        turns = []
        kinds = [kind(request.address, request.placed.row_beats) for request in requests]
        sizes = part_sizes(kinds, [len(request.address) for request in requests], self.images.config)
        each_cycles = [request.placed.tt_cycles if of == TT else request.placed.row_beats
                       for of, request in zip(kinds, requests, strict=True)]
        spare = self.wait - sum(cycles * len(request.address)
                                for of, cycles, request in zip(kinds, each_cycles, requests, strict=True) if of != SSD)
        for number, (cycles, request) in enumerate(zip(each_cycles, requests, strict=True)):
            placed, name = request.placed, request.placed.table.name
            lookups = len(_on_ssd(request)[0])
            ssd_bytes += lookups * placed.row_beats * self.images.words * 4
            count = len(request.offsets) - 1
            slots = None
            if name in steps:       # its ranks stand there behind those of the requests before
                slots = steps[name].slots[used[name]:used[name] + lookups]
                used[name] += lookups
            request, order, indices, cuts = self._in_ring(request, slots, ring)
            mine = list(self._bags(request, number, cuts, order, indices, inputs, out, size=sizes.get(kinds[number]),
                                   free=spare / cycles))
            if kinds[number] == SSD:
                spare -= cycles * sum(item.values["indices_count"] for item in mine if item.first == NOWHERE)
            turns += [(kinds[number], cycles, item) for item in mine]
            outputs.append(Output(name, out, count, placed.vector_beats, placed.table.dim, placed.format, order))
            out += count * placed.vector_beats
        if (beats := max(inputs.beats, out)) >= 1 << 32:
            raise ValueError(f"the batch needs {beats} beats of {'outputs' if beats == out else 'inputs'}; offsets "
                             "have 32 bits")
        work = [item.values["indices_count"] for _, _, item in turns]
        turns = [turns[at] for at in in_turns([of for of, _, _ in turns], work)]
        items += [turns[at][2] for at in ahead([item.first != NOWHERE for _, _, item in turns], [
            cycles * item.values["indices_count"] for _, cycles, item in turns], self.wait)]
        words, keep = [], ring.end * self.images.page_beats
        for item in reversed(items):
            words.append(encode(item.name, {**item.values, "release": keep % POSITIONS}))
            keep = min(keep, item.first)
        pages = np.concatenate([np.zeros(0, np.int64), *ring.brought])
        return Program(_stacked(words[::-1]), inputs.image(), pages, self.images.page_beats, out, tuple(outputs),
                       tuple(item.origin for item in items), ssd_bytes, len(pages) * self.images.page_bytes,
                       sum(int(np.count_nonzero(step.slots >= 0)) for step in steps.values()),
                       sum(len(step.filled) for step in steps.values()), steps)

    def _fills(self, placed: Placed, step: Step, ring: "_Ring", inputs: Inputs) -> Iterator["_Item"]:
        """FILL instructions for rows that enter the cache."""
        cuts, position, _ = ring.plan(placed, step.filled, np.arange(len(step.filled) + 1))
        for start, end, first, beats in cuts:
            pairs = np.stack([position[start:end], placed.own_rows + step.filled_slots[start:end]], axis=1)
            values = {"count": end - start, "indices": inputs.add(pairs.reshape(-1)),
                      "ring_first": first % POSITIONS, "ring_count": beats, **placed.dram_fields}
            yield _Item("FILL", values, first, Origin())

    def _in_ring(self, request: _Request, slots: NDArray[np.int64] | None, ring: "_Ring") \
            -> tuple[_Request, NDArray[np.int64] | None, NDArray[np.int64] | None, list[tuple[int, int, int, int]]]:
        """Places a request's rows of the SSD. slots: of the row cache, for each of them.

        Returns the request with its bags in the order in which they are to be pooled, the addresses of rows on the SSD
        being those in the ring; the numbers of its bags and indices before, None where they stay; and the cuts of
        `_Ring.plan`.
        """
        address, offsets = request.address.copy(), request.offsets
        ranks, at = _on_ssd(request)
        if slots is not None:
            address[at[slots >= 0]] = request.placed.own_rows + slots[slots >= 0]
            ranks, at = ranks[slots < 0], at[slots < 0]
        try:
            cuts, position, last = ring.plan(request.placed, ranks, np.searchsorted(at, offsets))
        except _TooLarge as error:
            raise ValueError(f"table {request.placed.table.name}, bag {error.bag}: its rows lie on {error.pages} pages "
                             f"of the SSD, the ring holds {ring.pages}") from None
        address[at] = position | SSD << DEVICE_SHIFT
        order = np.lexsort([last, np.repeat(np.arange(len(cuts)), [end - start for start, end, _, _ in cuts])])
        if not len(at) or (order == np.arange(len(order))).all():
            return replace(request, address=address), None, None, cuts
        lengths = np.diff(offsets)[order]
        edges = np.append(0, np.cumsum(lengths))
        indices = np.repeat(offsets[order] - edges[:-1], lengths) + np.arange(edges[-1])
        weights = None if request.weights is None else request.weights[indices]
        return replace(request, address=address[indices], offsets=edges, weights=weights), order, indices, cuts

    def _bags(self, request: _Request, number: int, cuts: Sequence[tuple[int, int, int, int]],
              order: NDArray[np.int64] | None, indices: NDArray[np.int64] | None, inputs: Inputs, out: int, *,
              size: float | None, free: float) -> Iterator["_Item"]:
        """BAGS instructions of one request, as `_in_ring` gives it. size: lookups of a part where parts take turns with
        those of other requests. free: lookups in bags without pages that instructions of their own are to have."""
        placed, address, offsets = request.placed, request.address, request.offsets
        has_tt = placed.table.cores and len(address)
        reading = np.unique(np.searchsorted(offsets, _on_ssd(request)[1], side="right") - 1)
        cuts = list(_ahead_of_pages(cuts, offsets, reading, free))
        if size:
            cuts = [(*part, first, beats) for start, end, first, beats in cuts
                    for part in parts(offsets, start, end, size)]
        for start, end, first, beats in cuts:
            beats = beats if np.searchsorted(reading, start) < np.searchsorted(reading, end) else 0
            part = slice(int(offsets[start]), int(offsets[end]))
            bags = offsets[start:end + 1] - part.start
            words, taken = address[part], np.arange(part.start, part.stop)
            if has_tt and not (words >> DEVICE_SHIFT == TT).all():
                pairs = in_pairs(words >> DEVICE_SHIFT == TT, bags)
                words, taken = words[pairs], taken[pairs]
            values = {"mode": EMB.modes.index(request.mode), "count": end - start,
                      "lengths": inputs.add(np.diff(bags)), "indices": inputs.add(words),
                      "indices_count": part.stop - part.start, **placed.dram_fields,
                      "chunk_rows": 1 if request.weights is not None or request.mode == "max" else placed.chunk_rows,
                      "format": placed.format, "out": out + start * placed.vector_beats,
                      "out_stride": placed.vector_beats, "ring_first": first % POSITIONS, "ring_count": beats}
            if has_tt:
                values |= {"tt_table": placed.tt_table, "tt_rows": placed.tt_rows}
            if request.weights is not None:
                values |= {"weighted": 1, "weights": inputs.add(request.weights[taken].view(np.uint32))}
            origin = Origin(number, range(start, end) if order is None else order[start:end],
                            taken if indices is None else indices[taken])
            yield _Item("BAGS", values, first if beats else NOWHERE, origin)


def _ahead_of_pages(cuts: Sequence[tuple[int, int, int, int]], offsets: NDArray[np.int64], reading: NDArray[np.int64],
                    free: float) -> Iterator[tuple[int, int, int, int]]:
    """The same cuts, the bags that a cut begins with, and that read no page, apart, until those have `free` lookups.
    reading: bags that read pages, ascending."""
    for start, end, first, beats in cuts:
        head = min(int(np.append(reading, end)[np.searchsorted(reading, start)]), end)
        lookups = int(offsets[head] - offsets[start])
        if free > 0 and lookups and head < end:
            free -= lookups
            yield start, head, first, beats
            start = head
        yield start, end, first, beats


def _on_ssd(request: _Request) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ranks of the indices that go to the SSD, and where they stand among the indices."""
    at = np.flatnonzero(request.address >> DEVICE_SHIFT == SSD)
    return (request.address[at] & (POSITIONS - 1)).astype(np.int64), at


def _stacked(words: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    return np.stack(words) if words else np.zeros((0, EMB.words), np.uint32)


class _TooLarge(Exception):
    def __init__(self, bag: int, pages: int):
        super().__init__(bag, pages)
        self.bag, self.pages = bag, pages


class _Ring:
    """Which page stands where, in pages from the beginning of the run."""

    def __init__(self, images: CardImages, ring_beats: int, drive: Drive | None):
        self.page_beats = images.page_beats
        self.drive = geometry(drive, images.page_bytes)
        self.pages = ring_beats // images.page_beats
        self.where = np.full(len(images.pages), -1, np.int64)
        self.end = 0
        self.brought: list[NDArray[np.int64]] = []

    def plan(self, placed: Placed, ranks: NDArray[np.int64], offsets: NDArray[np.int64]):
        """Cuts bags of SSD rows into instructions.

        Returns a list of (first bag, end, first ring position, beats that may be read from there), the ring position
        of every row, modulo 2**30, and of every bag the page of the ring that comes last, -1 where it needs none.
        """
        count = len(offsets) - 1
        last = np.full(count, -1, np.int64)
        if not len(ranks):
            return [(0, count, self.end * self.page_beats, 0)] if count else [], ranks, last
        pages = placed.first_page + ranks // placed.page_rows
        at = np.empty(len(ranks), np.int64)
        brought = np.empty(len(ranks), np.int64)
        cuts = np.empty((count, 3), np.int64)
        # An instruction brings at most half a ring and reaches back at most a quarter, so that the host can fill
        # ahead while it runs; only a bag that needs more takes the ring for itself.
        cut_count, end, bag = _cut(pages, np.ascontiguousarray(offsets), self.where, self.end, self.pages,
                              max(self.pages // 2, 1), self.pages // 4, self.drive, at, brought, cuts)
        if cut_count < 0:
            raise _TooLarge(bag, -cut_count)
        self.brought.append(brought[:end - self.end])
        self.end = end
        starts = [0, *cuts[:cut_count, 0].tolist()]
        pieces = [(starts[k], int(cuts[k, 0]), int(cuts[k, 1]) * self.page_beats,
                  int(cuts[k, 2] - cuts[k, 1]) * self.page_beats) for k in range(cut_count)]
        position = (at * self.page_beats + ranks % placed.page_rows * placed.row_beats) % POSITIONS
        bags = np.flatnonzero(np.diff(offsets))
        last[bags] = np.maximum.reduceat(at, offsets[bags])
        return pieces, position, last


@njit(cache=True)
def _cut(pages, offsets, where, end, ring, own, back, drive, at, brought, cuts):
    """Fills `at` (page position of each row), `brought` (new pages) and `cuts` (end bag, first, end position).

    Returns the number of cuts, the position behind the last page and 0; or minus the pages needed and the bag
    that does not fit.
    """
    stamp = np.full(len(where), -1, np.int64)
    tick = count = bag = opened = 0
    first_page = start = low = end
    base = max(0, end - back)           # pages before it may be gone when the instruction runs
    while bag < len(offsets) - 1:
        mine = pages[offsets[bag]:offsets[bag + 1]]
        need = _missing(mine, where, base, stamp, tick)
        tick += 1
        if end + need - start > own:
            if bag > opened:
                _over_dies(brought[start - first_page:end - first_page], start, drive, where,
                           pages[offsets[opened]:offsets[bag]], at[offsets[opened]:offsets[bag]])
                cuts[count, 0], cuts[count, 1], cuts[count, 2] = bag, low, end
                count += 1
                opened = bag
                start = low = end
                base = max(0, end - back)
                continue
            base = end
            need = _missing(mine, where, base, stamp, tick)
            tick += 1
            if need > ring:
                return -need, end, bag
        for k in range(offsets[bag], offsets[bag + 1]):
            page = pages[k]
            if where[page] < base:
                where[page] = end
                brought[end - first_page] = page
                end += 1
            at[k] = where[page]
            low = min(low, where[page])
        bag += 1
    _over_dies(brought[start - first_page:end - first_page], start, drive, where,
               pages[offsets[opened]:offsets[bag]], at[offsets[opened]:offsets[bag]])
    cuts[count, 0], cuts[count, 1], cuts[count, 2] = bag, low, end
    return count + 1, end, 0


@njit(cache=True)
def _over_dies(brought, start, drive, where, pages, at):
    """Puts the new pages of an instruction, from position `start` on, into the order of their requests. pages, at: of
    the instruction's rows."""
    requested = brought[over_dies(brought, *drive)]
    for k in range(len(brought)):       # to compile an assignment of all at once takes two seconds
        brought[k] = requested[k]
        where[brought[k]] = start + k
    for k in range(len(pages)):
        at[k] = where[pages[k]]


@njit(cache=True)
def _missing(pages, where, base, stamp, tick):
    """How many different pages do not stand at `base` or behind it."""
    need = 0
    for page in pages:
        if where[page] < base and stamp[page] != tick:
            stamp[page] = tick
            need += 1
    return need
