"""What the front of the EMB core deals out: rows to each memory, chunks of tensor train rows, and steps that end bags.

An instruction is a mapping of its fields by their names in hw.isa; inputs are 32-bit words. Everything is said bag
by bag: which rows a memory is asked for, the first and the last marked, and what makes the bag's vector up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from golden.emb import row_decoder
from golden.emb.stripes import Stripes
from hw.isa import EMB
from hw.isa.emb import DEVICE, MODE

FILL = EMB.instruction("FILL").opcode
_, MEAN, MAX = MODE
DRAM, TT, SSD = DEVICE
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


@dataclass
class Dealt:
    """In order, each list by itself."""

    dram: list[Row] = field(default_factory=list)
    ssd: list[Row] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)


def stored(item: Mapping[str, int]) -> int:
    """Beats of an instruction's rows as they are stored."""
    return row_decoder.beats(item["row_beats"], item["row_format"])


def stripes(item: Mapping[str, int], stripe_beats: int) -> Stripes:
    """Where an instruction's rows lie."""
    return Stripes(stored(item), item["piece_beats"], stripe_beats)


def deal(item: Mapping[str, int], inputs: Sequence[int], *, words: int, stripe_beats: int, number: int = 0,
         fault: tuple[int, int] | None = None) -> Dealt:
    """What a BAGS or FILL instruction deals out, up to its first fault.

    Parameters  item: fields by name; inputs: all words of the inputs' buffer; words: of a beat; stripe_beats: of the
                core; number: of the instruction; fault: bag and index of the first, as golden.emb.core finds it
    """
    dealt, beats = Dealt(), stored(item)
    last_bag, last_index = fault or (item["count"], 0)

    def region(name: str, count: int) -> Sequence[int]:
        start = item[name] * words
        return [int(word) for word in inputs[start:start + count]]

    if item["opcode"] == FILL:
        pairs = region("indices", 2 * item["count"])
        for at in range(last_bag):
            position, row = pairs[2 * at:2 * at + 2]
            dealt.ssd.append(Row(position, beats - 1, beats - 1, beats - 1, 0, 1, 1, ONE, 0, 1))
            dealt.copies += [Copy(item["dram_base"] + at, item["piece_beats"] or beats)
                             for at in stripes(item, stripe_beats).pieces(row)]
        return dealt

    indices = region("indices", item["indices_count"])
    weights = region("weights", item["indices_count"]) if item["weighted"] else None
    at = 0
    for bag, length in enumerate(region("lengths", item["count"])):
        whole = bag < last_bag
        rows: dict[int, list[tuple[int, int]]] = {DRAM: [], TT: [], SSD: []}
        for index in range(at, at + length if whole else last_index):
            rows[indices[index] >> 30].append((indices[index] % POSITIONS, weights[index] if weights else ONE))
        _bag(dealt, item, stripes(item, stripe_beats), number, bag, length, rows, whole)
        if not whole:
            break
        at += length
    return dealt


def _bag(dealt: Dealt, item: Mapping[str, int], lies: Stripes, number: int, bag: int, length: int,
         rows: dict[int, list[tuple[int, int]]], whole: bool) -> None:
    """The rows of a bag. One that is not whole is still waiting for its last row of each memory."""
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
