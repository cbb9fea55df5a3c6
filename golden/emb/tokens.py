"""What the front of the EMB core deals out: rows to each memory, chunks of tensor train rows, and steps that end bags.

An instruction is a mapping of its fields by their names in hw.isa; inputs are 32-bit words. Everything is said bag
by bag: which rows a memory is asked for, the first and the last marked, and what makes the bag's vector up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from golden.emb import row_decoder
from golden.emb.stripes import Stripes
from hw.isa import EMB, LONGEST_BAG
from hw.isa.emb import DEVICE, MODE

BAGS, FILL = 2, 3
_, MEAN, MAX = MODE
DRAM, TT, SSD = DEVICE
INDEX_DEVICE, INDEX_RANGE, LENGTHS, TT_TABLE = (
    EMB.code(name) for name in ("INDEX_DEVICE", "INDEX_RANGE", "LENGTHS", "TT_TABLE"))
POSITIONS = 1 << 30
ONE = 0x3F800000


@dataclass(frozen=True)
class Row:
    """A row to fetch. offset: of its first beat, or the ring position; beats, piece: as stored, less one; vector: beats
    of its FP32 values, less one; row_format: see ROW_FORMAT; weight: binary32. A row to copy is FP32, as it lies."""

    offset: int
    beats: int
    piece: int
    vector: int
    row_format: int
    first: int
    last: int
    weight: int
    maximum: int
    copy: int


@dataclass(frozen=True)
class Lookup:
    """A row of a tensor train, and whether a chunk begins or ends with it."""

    table: int
    index: int
    begin: int
    end: int


@dataclass(frozen=True)
class Step:
    """A chunk's vector (tt), and with `end` the bag's end and whose partials it has. factor is what counts."""

    tt: int
    dram: int
    ssd: int
    first: int
    end: int
    mode: int
    weighted: int
    format: int
    factor: int
    beats: int
    out: int
    last: int
    instruction: int


@dataclass(frozen=True)
class Copy:
    """Where a piece of a row is copied to, in beats of the rows' buffer."""

    offset: int
    beats: int


@dataclass(frozen=True)
class Fault:
    code: int
    bag: int
    index: int
    detail: int


@dataclass
class Dealt:
    """In order, each list by itself; `fault` ends an instruction early."""

    dram: list[Row] = field(default_factory=list)
    ssd: list[Row] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    fault: Fault | None = None


def stored(item: Mapping[str, int]) -> int:
    """Beats of an instruction's rows as they are stored."""
    return row_decoder.beats(item["row_beats"], item["row_format"])


def stripes(item: Mapping[str, int], stripe_beats: int) -> Stripes:
    """Where an instruction's rows lie."""
    return Stripes(stored(item), item["piece_beats"], stripe_beats)


def deal(item: Mapping[str, int], inputs: Sequence[int], *, words: int, stripe_beats: int, number: int = 0,
         ring_beats: int = 0, released: int | None = None, index_bits: int = 30,
         loaded: Mapping[int, int] = MappingProxyType({})) -> Dealt:
    """What a BAGS or FILL instruction deals out, up to its first fault.

    Parameters  item: fields by name; inputs: all words of the inputs' buffer; words: of a beat; stripe_beats: of the
                core; number: of the instruction; ring_beats: of the ring; released: the ring position that the
                instructions before release [none of the instruction's]; index_bits: of a TT's row; loaded: the rows of
                each table that is there
    """
    dealt = Dealt()
    beats, gone = stored(item), 0
    if released is not None and (before := (released - item["ring_first"]) % POSITIONS) < POSITIONS // 2:
        gone = before

    def region(name: str, count: int) -> Sequence[int]:
        start = item[name] * words
        return [int(word) for word in inputs[start:start + count]]

    def in_ring(position: int) -> bool:
        along = (position - item["ring_first"] - gone) % POSITIONS
        return (bool(ring_beats) and along + beats <= item["ring_count"] - gone
                and position % ring_beats + beats <= ring_beats)

    if item["opcode"] == FILL:
        pairs = region("indices", 2 * item["count"])
        for at in range(item["count"]):
            position, row = pairs[2 * at:2 * at + 2]
            if position >= POSITIONS or not in_ring(position):
                dealt.fault = Fault(INDEX_RANGE, at, 2 * at, position)
                return dealt
            if row >= min(item["dram_rows"], POSITIONS):
                dealt.fault = Fault(INDEX_RANGE, at, 2 * at + 1, row)
                return dealt
            dealt.ssd.append(Row(position, beats - 1, beats - 1, beats - 1, 0, 1, 1, ONE, 0, 1))
            dealt.copies += [Copy(item["dram_base"] + at, item["piece_beats"] or beats)
                             for at in stripes(item, stripe_beats).pieces(row)]
        return dealt

    total = item["indices_count"]
    lengths = region("lengths", item["count"])
    indices = region("indices", total)
    weights = region("weights", total) if item["weighted"] else None
    at = 0
    for bag, length in enumerate(lengths):
        if length > LONGEST_BAG or length > total - at or (bag == item["count"] - 1 and length != total - at):
            dealt.fault = Fault(LENGTHS, bag, at, length)
            return dealt
        rows: dict[int, list[tuple[int, int]]] = {DRAM: [], TT: [], SSD: []}
        for index in range(at, at + length):
            word = indices[index]
            code = _refused(item, word, index_bits, loaded, in_ring)
            if code:
                dealt.fault = Fault(code, bag, index, item["tt_table"] if code == TT_TABLE else word)
                break
            rows[word >> 30].append((word % POSITIONS, weights[index] if weights else ONE))
        _bag(dealt, item, stripes(item, stripe_beats), number, bag, length, rows)
        if dealt.fault:
            return dealt
        at += length
    return dealt


def _refused(item: Mapping[str, int], word: int, index_bits: int, loaded: Mapping[int, int], in_ring) -> int:
    device, row = word >> 30, word % POSITIONS
    if device == 3:
        return INDEX_DEVICE
    if device == DRAM and row >= item["dram_rows"] or device == SSD and not in_ring(row):
        return INDEX_RANGE
    table = item["tt_table"]
    if device == TT and row >= min(item["tt_rows"], loaded.get(table, 1 << index_bits)):
        return INDEX_RANGE
    return TT_TABLE if device == TT and table not in loaded else 0


def _bag(dealt: Dealt, item: Mapping[str, int], lies: Stripes, number: int, bag: int, length: int,
         rows: dict[int, list[tuple[int, int]]]) -> None:
    """The rows of a bag. One that a fault broke off is still waiting for its last row of each memory."""
    whole = dealt.fault is None
    beats, vector, maximum = stored(item) - 1, item["row_beats"] - 1, int(item["mode"] == MAX)
    for place, to in ((DRAM, dealt.dram), (SSD, dealt.ssd)):
        members = rows[place]
        for at, (offset, weight) in enumerate(members if whole else members[:-1]):
            start, piece = offset, beats
            if place == DRAM:
                start, piece = item["dram_base"] + lies.pieces(offset)[0], (item["piece_beats"] or beats + 1) - 1
            to.append(Row(start, beats, piece, vector, item["row_format"], int(at == 0), int(at == len(members) - 1),
                          weight, maximum, 0))

    chunk = item["chunk_rows"]
    ends = []   # factors
    members = rows[TT]
    for at, (index, weight) in enumerate(members if whole else members[:-1]):
        end = at % chunk == chunk - 1 or at == len(members) - 1
        dealt.lookups.append(Lookup(item["tt_table"], index, int(at % chunk == 0), int(end)))
        if end:
            ends.append(length if item["mode"] == MEAN else weight)
    steps = [(1, factor) for factor in ends]
    if whole and not ends:
        steps = [(0, length if item["mode"] == MEAN else 0)]
    for at, (tt, factor) in enumerate(steps):
        end = whole and at == len(steps) - 1
        dealt.steps.append(Step(
            tt, int(end and bool(rows[DRAM])), int(end and bool(rows[SSD])), int(at == 0), int(end), item["mode"],
            item["weighted"], item["format"], factor, vector, item["out"] + bag * item["out_stride"],
            int(end and bag == item["count"] - 1), number))
