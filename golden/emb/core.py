"""What the EMB core computes: a program carried out on plain memory, bit for bit.

    dram, ssd  o[d] = sum_k w[k] v[k, d] over the bag's rows of that memory, k ascending, one term per beat; v as
               golden.emb.row_decoder makes it of what is stored
    tt         one vector a chunk of `chunk_rows` of the bag's rows of the tensor train
    bag        o[d] = sum_p f[p] partial[p, d], order chunks, dram, ssd; f = 1, 1 / n (mean), or a tensor train row's w
    max        the same order with golden.fp.fp32.maximum; an empty bag is +0

Instructions are decoded by their description in hw.isa. Where a program has several faults, the result names the first
in the program's order; the core may meet another one first.             Source: SCRec §III.D, §III.E, Fig. 7a
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import tt
from golden.emb import bags, packer, row_decoder
from golden.emb.signature import signature
from golden.emb.stripes import Stripes
from golden.fp import fp32
from golden.tt.load import LAST, TABLE, Bounds
from hw.isa import EMB, LONGEST_BAG
from hw.isa.emb import DEVICE, FORMAT, MODE, ROW_FORMAT
from hw.isa.kernel import Decoded

LOAD, BAGS, FILL = (EMB.instruction(name).opcode for name in ("LOAD", "BAGS", "FILL"))
SUM, MEAN, MAX = MODE
DRAM, TT, SSD = DEVICE
OK, BAD_INSTRUCTION, BOUNDS, LENGTHS, TIMEOUT = (
    EMB.code(name) for name in ("OK", "BAD_INSTRUCTION", "BOUNDS", "LENGTHS", "TIMEOUT"))
INDEX_DEVICE, INDEX_RANGE, TT_TABLE, SIGNATURE = (
    EMB.code(name) for name in ("INDEX_DEVICE", "INDEX_RANGE", "TT_TABLE", "SIGNATURE"))
INPUTS, OUTPUTS, ROWS, RING = range(4)      # detail of BOUNDS
WORDS = EMB.words
HEADERS = 16
CHUNK_ROWS = EMB.field("chunk_rows").highest
POSITION_BITS = 30
POSITIONS = 1 << POSITION_BITS
BEHIND = 1 << 40    # order of the SSD's partial: behind every chunk of the bag and the partial of card memory
COUNTERS = ("instructions", "bags", "indices", "dram_rows", "dram_bytes", "tt_rows", "tt_bytes", "ssd_rows",
            "ssd_bytes", "cache_fills")

Words = NDArray[np.uint32]


@dataclass
class Memory:
    """The buffers, (n,) uint32 each, whole beats. `rows` is changed by FILL, `outputs` by BAGS, in place.

    landed: all that the host brings during the run, one beat after the other, the first at ring position
    `landed_at`, as far as it is at most ring_beats ahead of what was released, in pieces of page_beats. ring_beats: of
    the ring that it passes through.
    """

    program: Words
    inputs: Words
    outputs: Words
    rows: Words
    landed: Words = field(default_factory=lambda: np.zeros(0, np.uint32))
    landed_at: int = 0
    ring_beats: int = 0
    page_beats: int = 1


@dataclass(frozen=True)
class Result:
    """How a run ended. counters: those that do not depend on time, by name."""

    code: int
    instruction: int
    bag: int
    index: int
    detail: int
    counters: dict[str, int]
    released: int
    instructions_done: int


class _Fault(Exception):
    def __init__(self, code: int, detail: int = 0, bag: int = 0, index: int = 0):
        super().__init__(code)
        self.code, self.detail, self.bag, self.index = code, detail, bag, index


class Emb:
    """An EMB core with what stays in it from run to run: which tensor-train tables are loaded, with what bounds.

    words: FP32 words of a beat. stripe_beats: over all banks of DRAM. tables: the cores of each tensor-train table, by
    its number in the unit; what a LOAD brings is compared by number only. grid_log2: side of the unit's grid; grouped:
    its dot products' kind; index_bits: of its row numbers. lines: of its memories X, Y and descriptors, to which a LOAD
    may write (default: not checked).
    """

    def __init__(self, *, words: int, row_beats_max: int, stripe_beats: int,
                 tables: Sequence[Sequence[np.ndarray]] = (), grid_log2: int = 2, grouped: bool = False,
                 block16_only: bool = False, index_bits: int = 30, lines: Sequence[int] = ()):
        self.words = words
        self.row_beats_max = row_beats_max
        self.stripe_beats = stripe_beats
        self.tables = list(tables)
        self.grid_log2, self.grouped, self.block16_only = grid_log2, grouped, block16_only
        self.loaded: set[int] = set()
        self.bounds: dict[int, Bounds] = {}     # by table, as their descriptors were written
        self.index_bits = index_bits
        self.lines = tuple(lines)

    @classmethod
    def of(cls, config: Any, tables: Sequence[Sequence[np.ndarray]] = (), lines: Sequence[int] = ()) -> "Emb":
        """Of a core by its configuration, an hw.emb.config.EmbConfig. lines: default, those of its unit."""
        unit = config.tt
        return cls(words=config.words, row_beats_max=config.row_beats_max, stripe_beats=config.stripe_beats,
                   tables=tables, grid_log2=unit.grid_log2, grouped=unit.grouped,
                   block16_only=unit.block16_only, index_bits=unit.index_bits,
                   lines=lines or (unit.x_lines, unit.y_lines, unit.tables))

    def run(self, memory: Memory, count: int | None = None) -> Result:
        """Carries out `count` instructions (default: all of the program) and says how that went.

        Raises      ValueError: a lookup in a table that is loaded and not among `tables`
        """
        count = len(memory.program) // WORDS if count is None else count
        counters = dict.fromkeys(COUNTERS, 0)
        released = memory.landed_at
        for number in range(count):
            fields = vars(EMB.decode(memory.program[number * WORDS:(number + 1) * WORDS].tolist()))
            item = Decoded(**fields, released=released)     # by the instructions before it
            try:
                self._carry_out(item, memory, counters)
            except _Fault as fault:
                return Result(fault.code, number, fault.bag, fault.index, fault.detail & 0xFFFFFFFF, counters,
                              released, number)
            if (item.release - released) % POSITIONS < POSITIONS // 2:
                released = item.release
            counters["instructions"] += 1
        return Result(OK, 0, 0, 0, 0, counters, released, count)

    def _carry_out(self, item: Decoded, memory: Memory, counters: dict[str, int]) -> None:
        if not self._allowed(item, memory.ring_beats):
            raise _Fault(BAD_INSTRUCTION, item.word)
        if item.opcode == LOAD:
            self._load(item, memory)
            return
        if item.ring_count > memory.ring_beats:
            raise _Fault(BOUNDS, RING)
        (self._fill if item.opcode == FILL else self._bags)(item, memory, counters)

    def _allowed(self, item: Decoded, ring_beats: int) -> bool:
        if item.opcode not in (LOAD, BAGS, FILL) or item.reserved or not item.count or item.release >= POSITIONS:
            return False
        if item.opcode == LOAD:
            return True
        if (not 1 <= item.row_beats <= self.row_beats_max or item.row_format > max(ROW_FORMAT)
                or item.ring_first >= POSITIONS
                or item.ring_count and ring_beats & (ring_beats - 1) or not self._stripes(item).allowed):
            return False
        if item.opcode == FILL:
            return True
        one_row = item.weighted or item.mode == MAX
        return (item.mode <= MAX and item.format <= max(FORMAT) and not (item.weighted and item.mode != SUM)
                and 1 <= item.chunk_rows <= (1 if one_row else CHUNK_ROWS) and item.tt_rows <= 1 << self.index_bits
                and self._fits(item))

    def _fits(self, item: Decoded) -> bool:
        """Whether the table that the instruction looks up, if it is loaded, is as it says."""
        bounds = self._bounds(item)
        return not (bounds and item.tt_rows) or (
            item.row_beats == bounds.beats and item.chunk_rows <= bounds.chunk_rows)

    def _bounds(self, item: Decoded) -> Bounds | None:
        """Of the instruction's tensor-train table; None: it is not loaded."""
        return self.bounds.get(item.tt_table, Bounds()) if item.tt_table in self.loaded else None

    def _stripes(self, item: Decoded) -> Stripes:
        return Stripes(_stored(item), item.piece_beats, self.stripe_beats)

    def _table(self, item: Decoded, memory: Memory) -> Words:
        """(beats, words), the table's rows in whole blocks."""
        beats = self._stripes(item).beats(item.dram_rows)
        self._inside(memory.rows, ROWS, item.dram_base, beats)
        return memory.rows[item.dram_base * self.words:(item.dram_base + beats) * self.words].reshape(-1, self.words)

    def _inside(self, arena: Words, what: int, first: int, beats: int) -> None:
        if (first + beats) * self.words > len(arena):
            raise _Fault(BOUNDS, what)

    def _beats(self, words: int) -> int:
        return -(-words // self.words)

    def _load(self, item: Decoded, memory: Memory) -> None:
        blocks = self._beats(HEADERS)
        group = blocks + HEADERS
        beats = item.count + -(-item.count // HEADERS) * blocks
        self._inside(memory.inputs, INPUTS, item.indices, beats)
        for at in range(item.count):
            header = int(memory.inputs[(item.indices + at // HEADERS * group) * self.words + at % HEADERS])
            target, block = header >> 16 & 3, header >> 22 & 1
            if (header >> 23 or target > TABLE or block and not (self.grouped and target < TABLE)
                    or self.block16_only and not block and target < TABLE
                    or self.lines and header & 0xFFFF >= self.lines[target] << block):
                # What was loaded may have been written over.
                self.loaded.clear()
                raise _Fault(BAD_INSTRUCTION, header, 0, at)
            if target == TABLE:
                table, part = header & 0xFFFF, header >> 18 & 3
                word = memory.inputs[(item.indices + at // HEADERS * group + blocks + at % HEADERS) * self.words]
                self.bounds[table] = self.bounds.get(table, Bounds()).after(part, int(word), self.index_bits)
                if part == LAST:        # makes a table known
                    self.loaded.add(table)
        found = signature(memory.inputs[item.indices * self.words:][:beats * self.words].reshape(-1, self.words))
        if found != item.signature:
            self.loaded.clear()
            raise _Fault(SIGNATURE, found)

    def _fill(self, item: Decoded, memory: Memory, counters: dict[str, int]) -> None:
        b, words = _stored(item), self.words
        self._inside(memory.inputs, INPUTS, item.indices, self._beats(2 * item.count))
        table = self._table(item, memory)
        pairs = memory.inputs[item.indices * words:][:2 * item.count].reshape(-1, 2)
        for at, (position, row) in enumerate(pairs.astype(np.int64)):
            if not self._in_ring(item, memory, position):
                raise _Fault(INDEX_RANGE, int(position), at, 2 * at)
            if row >= min(item.dram_rows, POSITIONS):
                raise _Fault(INDEX_RANGE, int(row), at, 2 * at + 1)
            if not self._lands(item, memory, position):
                raise _Fault(TIMEOUT, int(position))
            start = (position - memory.landed_at) % POSITIONS
            self._stripes(item).write(table, np.array([row]), memory.landed[start * words:(start + b) * words])
        counters["cache_fills"] += item.count
        counters["ssd_rows"] += item.count
        counters["ssd_bytes"] += item.count * b * words * 4

    def _in_ring(self, item: Decoded, memory: Memory, position):
        """Whether the row is one of the instruction's and was not released before."""
        b = _stored(item)
        if not memory.ring_beats:
            return np.zeros_like(position, dtype=bool)
        gone = (item.released - item.ring_first) % POSITIONS
        gone = gone if gone < POSITIONS // 2 else 0
        return (((position - item.ring_first - gone) % POSITIONS + b <= item.ring_count - gone)
                & (position % memory.ring_beats + b <= memory.ring_beats) & (position < POSITIONS))

    def _lands(self, item: Decoded, memory: Memory, position):
        """Whether the row is among what the host brings, and there is room for its pages before the instruction is
        done."""
        end = (position - memory.landed_at) % POSITIONS + _stored(item)
        pages_end = -(-end // memory.page_beats) * memory.page_beats
        return (end * self.words <= len(memory.landed)) & (
            pages_end - (item.released - memory.landed_at) % POSITIONS <= memory.ring_beats)

    def _bags(self, item: Decoded, memory: Memory, counters: dict[str, int]) -> None:
        b, words = item.row_beats, self.words
        total = item.indices_count
        self._inside(memory.inputs, INPUTS, item.lengths, self._beats(item.count))
        self._inside(memory.inputs, INPUTS, item.indices, self._beats(total))
        if item.weighted:
            self._inside(memory.inputs, INPUTS, item.weights, self._beats(total))
        self._table(item, memory)
        v = packer.beats(b, item.format)
        self._inside(memory.outputs, OUTPUTS, item.out, (item.count - 1) * item.out_stride + v)

        lengths = memory.inputs[item.lengths * words:][:item.count].astype(np.int64)
        ends = np.cumsum(lengths)
        # Bags whose indices are looked at: up to the first that is too long, or to the last one if they are short.
        long = (ends > total) | (lengths > LONGEST_BAG)
        good = int(np.argmax(long)) if long.any() else item.count
        if good == item.count and ends[-1] != total:
            good -= 1
        index = memory.inputs[item.indices * words:][:int(ends[good - 1]) if good else 0]
        device, number = index >> POSITION_BITS, (index & (POSITIONS - 1)).astype(np.int64)
        self._check_indices(item, memory, index, device, number, ends)
        if good < item.count:
            raise _Fault(LENGTHS, int(lengths[good]), good, int(ends[good - 1]) if good else 0)

        offsets = np.concatenate([[0], ends])
        weights = memory.inputs[item.weights * words:][:total] if item.weighted else None
        out = packer.pack(self._pool(item, memory, device, number, offsets, weights), item.format, words)
        to = (item.out + np.arange(item.count) * item.out_stride) * words
        if item.out_stride == v:
            memory.outputs[item.out * words:][:item.count * v * words] = out.reshape(-1)
        else:
            for at, vector in zip(to, out, strict=True):
                memory.outputs[at:at + v * words] = vector
        counters["bags"] += item.count
        counters["indices"] += total
        for name, place in (("dram", DRAM), ("tt", TT), ("ssd", SSD)):
            rows = int(np.count_nonzero(device == place))
            counters[f"{name}_rows"] += rows
            counters[f"{name}_bytes"] += rows * (b if place == TT else _stored(item)) * words * 4

    def _check_indices(self, item: Decoded, memory: Memory, index, device, number, ends) -> None:
        """Raises the fault of the first index that has one."""
        ssd, bounds = device == SSD, self._bounds(item)
        tt_rows = min(item.tt_rows, bounds.rows) if bounds else item.tt_rows
        bad_ring = ssd & ~self._in_ring(item, memory, number)
        faults = (
            (INDEX_DEVICE, device == 3, index),
            (INDEX_RANGE, ((device == DRAM) & (number >= item.dram_rows))
             | ((device == TT) & (number >= tt_rows)) | bad_ring, index),
            (TT_TABLE, (device == TT) & (number < tt_rows) & (bounds is None),
             np.full(len(index), item.tt_table)),
            (TIMEOUT, ssd & ~bad_ring & ~self._lands(item, memory, number), number),
        )
        first_faults = [(int(np.argmax(mask)), code, detail) for code, mask, detail in faults if mask.any()]
        if first_faults:
            at, code, detail = min(first_faults, key=lambda fault: fault[0])
            if code == TIMEOUT:
                raise _Fault(code, int(detail[at]))     # the row waits far behind what knows its bag
            raise _Fault(code, int(detail[at]), int(np.searchsorted(ends, at, side="right")), at)

    def _pool(self, item: Decoded, memory: Memory, device, number, offsets, weights) -> NDArray[np.float32]:
        """(bags, words of a row): partial vectors of each memory, then all of a bag together."""
        count, width, maximum = item.count, item.row_beats * self.words, item.mode == MAX
        bag = np.repeat(np.arange(count), np.diff(offsets))
        partials, of, order, factors = [], [], [], []
        for rank, (place, rows) in enumerate(((DRAM, self._dram_rows), (SSD, self._ssd_rows)), start=BEHIND - 1):
            mine = device == place
            held = np.bincount(bag[mine], minlength=count)
            have = np.flatnonzero(held)
            if len(have):
                starts = np.concatenate([[0], np.cumsum(held[have])])
                values = row_decoder.decode(rows(item, memory, number[mine]), item.row_format, width, self.words)
                partials.append(bags.pool(values, starts, weights[mine] if weights is not None else None,
                                          maximum=maximum))
                of.append(have)
                order.append(np.full(len(have), rank))
                factors.append(np.full(len(have), bags.ONE, np.uint32))
        mine = device == TT
        if mine.any():
            if item.tt_table >= len(self.tables):
                raise ValueError(f"the cores of the tensor-train table {item.tt_table}, which is loaded, are not known")
            held = np.bincount(bag[mine], minlength=count)
            chunks = -(-held // item.chunk_rows)
            owner = np.repeat(np.arange(count), chunks)
            nth = np.arange(len(owner)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
            starts = (np.cumsum(held) - held)[owner] + nth * item.chunk_rows
            vectors = np.zeros((len(owner), width), np.float32)
            sums = self._chunks(self.tables[item.tt_table], number[mine], np.append(starts, held.sum()))
            vectors[:, :sums.shape[1]] = sums
            partials.append(vectors)
            of.append(owner)
            order.append(nth)
            factors.append(weights[mine] if weights is not None else np.full(len(owner), bags.ONE, np.uint32))
        if not partials:
            return np.zeros((count, width), np.float32)
        owners = np.concatenate(of)
        by_bag = np.lexsort((np.concatenate(order), owners))
        starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))])
        factor = np.concatenate(factors)[by_bag]
        if item.mode == MEAN:
            factor = fp32.bits(fp32.div(np.float32(1), np.diff(offsets).astype(np.float32)))[owners[by_bag]]
        return bags.pool(np.concatenate(partials)[by_bag], starts, factor, maximum=maximum)

    def _dram_rows(self, item: Decoded, memory: Memory, number) -> Words:
        return self._stripes(item).read(self._table(item, memory), number)

    def _ssd_rows(self, item: Decoded, memory: Memory, number) -> Words:
        start = (number - memory.landed_at) % POSITIONS * self.words
        return memory.landed[start[:, None] + np.arange(_stored(item) * self.words)]

    def _chunks(self, cores, rows, offsets) -> np.ndarray:
        if (np.diff(offsets) == 1).all():
            return tt.rows(cores, rows, grid_log2=self.grid_log2, grouped=self.grouped)
        return tt.pooled(cores, rows, offsets, grid_log2=self.grid_log2, grouped=self.grouped)


def _stored(item: Decoded) -> int:
    """Beats of a row as it is stored."""
    return row_decoder.beats(item.row_beats, item.row_format)
