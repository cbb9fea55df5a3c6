"""Row requests: rows wait in a queue per bank of card memory and are requested bank after bank."""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from hw.attributes import UNREAD
from hw.axi.bus import check_beat_bytes, request_layout
from hw.emb.window import OFFSET_BITS
from hw.place import Part
from hw.stream.fifo import Fifo
from hw.stream.round_robin import round_robin

QUEUE_ROWS = 16
# A queue of this level closes the unit; up to three more rows are on their way then.
CLOSE_AT = 12


def beats_bits(row_beats_max: int) -> int:
    """Bits of a row's beats, less one."""
    return max(1, (row_beats_max - 1).bit_length())


def check_stripe(*, stripe_beats: int, banks: int) -> None:
    """Raises ValueError unless rows can lie in such stripes."""
    for name, value, high in (("stripe_beats", stripe_beats, 256), ("banks", banks, min(16, stripe_beats))):
        if type(value) is not int or not 1 <= value <= high or value & (value - 1):
            raise ValueError(f"{name} must be a power of two from 1 to {high}, not {value!r}")


def queued_layout(row_beats_max: int, position_bits: int) -> data.StructLayout:
    """A row to request. offset: of its first beat, in beats from the start of its arena; ring: the arena is the
    landing ring; beats: less one; piece: beats of a piece, less one; position: of its first beat in the window's ring
    of beats."""
    bits = beats_bits(row_beats_max)
    return data.StructLayout({
        "offset": OFFSET_BITS, "ring": 1, "beats": bits, "piece": bits, "position": position_bits})


class _Row(NamedTuple):
    """What `RowRequests._queues` hands to other methods."""

    valid: Signal
    payload: Signal
    bank: Signal


class RowRequests(Part):
    """Requests rows from card memory, a burst per piece, in an order that keeps its banks busy.

    A stripe of `stripe_beats` beats lies over all banks of card memory, an equal part in each; a row's pieces lie one
    stripe apart, so in one bank and, mostly, one page. A row waits in the queue of the bank that its first beat lies
    in. The queues take turns, a row at a time: while one bank opens a page, the others deliver. Rows of one bank keep
    their order.        Source: AMD PG150 (ROW_COLUMN_BANK; the controller's group machines work in order)

    Parameters  words: FP32 words of a beat; row_beats_max: longest row, in beats; position_bits: of a place in the
                window's ring; stripe_beats: of a stripe, a power of two; banks: queues, a power of two of at most
                stripe_beats; rows: under way at a time at most, a power of two
    Members     valid, i    In  a row of queued_layout; it cannot be held back
                full        Out  a queue is nearly full: at most three more rows may come
                rows, ring  In  byte addresses of the two arenas, multiples of a beat
                o           Out(stream of request_layout)  one per piece
                beat        In  a beat has come back; they come in the order of the requests
                place       Out  where in the window's ring this beat belongs
                bank        Out  of the beat's row
    Timing      a request 4 cycles after the row, then one per cycle; `place` and `bank` belong to the beat of this
                very cycle, which comes at the earliest the cycle after its request was shown
    Handshake   place and bank are registers, full comes from such; o.valid and o.payload are registers
    Numerics    none
    Reset       drops all rows
    Raises      ValueError: sizes out of range
    Golden      verif.emb.cycles          Tests  verif/emb/test_row_requests.py
    """

    def __init__(self, *, words: int, row_beats_max: int, position_bits: int, stripe_beats: int, banks: int, rows: int):
        check_beat_bytes(4 * words)
        check_stripe(stripe_beats=stripe_beats, banks=banks)
        self.words, self.row_beats_max, self.position_bits = words, row_beats_max, position_bits
        self.stripe_beats, self.banks, self.under_way = stripe_beats, banks, rows
        self.bank_bits = (banks - 1).bit_length()
        self.bank_from = (stripe_beats - 1).bit_length() - self.bank_bits  # the bank's lowest bit in an offset
        super().__init__({
            "valid": In(1),
            "i": In(queued_layout(row_beats_max, position_bits)),
            "full": Out(1),
            "rows": In(64),
            "ring": In(64),
            "o": Out(stream.Signature(request_layout())),
            "beat": In(1),
            "place": Out(position_bits),
            "bank": Out(range(max(2, banks))),
        })

    def elaborate(self, platform):
        m = Module()
        ready = Signal()                # the row that is cut into pieces is the last piece's
        row = self._queues(m, ready)
        started = self._pieces(m, row, ready)
        self._places(m, row, started)
        return m

    def bank_of(self, offset):
        """The bank of a row's first beat."""
        return offset[self.bank_from:self.bank_from + self.bank_bits]

    def _queues(self, m: Module, ready: Signal) -> _Row:
        """The queues in one memory: the next row that is not empty-handed, and its bank."""
        rows_bits = (QUEUE_ROWS - 1).bit_length()
        depth = max(2, self.banks) * QUEUE_ROWS
        m.submodules.store = store = memory.Memory(
            shape=self.i.shape(), depth=depth, init=[], attrs={**UNREAD, "ram_style": "distributed"})
        write, read = store.write_port(), store.read_port(domain="comb")
        bank = self.bank_of(self.i.offset)
        turn = Signal(self.banks)       # whose turn it was
        some = Signal(self.banks)       # who has rows, from a register
        heads, tails, levels = (
            [Signal(rows_bits + bits, name=f"{name}_{k}") for k in range(self.banks)]
            for name, bits in (("head", 0), ("tail", 0), ("level", 1)))
        picked = Cat(round_robin(list(some), turn))
        free = Signal()
        # A row that was picked is read in the next cycle.
        reads = Signal()
        chosen = Signal(range(depth))
        number = Signal(range(max(2, self.banks)))
        which = Signal.like(number)
        head = Signal(rows_bits)
        tail = Signal(rows_bits)
        for k in range(self.banks):
            push, pull = Signal(name=f"push_{k}"), Signal(name=f"pull_{k}")
            m.d.comb += push.eq(self.valid & (bank == k))
            m.d.comb += pull.eq(picked[k] & free)
            change = Cat(push ^ pull, (pull & ~push).replicate(rows_bits))
            m.d.sync += [
                tails[k].eq(tails[k] + push),
                heads[k].eq(heads[k] + pull),
                levels[k].eq(levels[k] + change),
                some[k].eq(push | (levels[k][1:] != 0) | (levels[k][0] & ~pull)),
            ]
        loads = Signal()
        row = _Row(valid=Signal(name="row_valid"),
                   payload=Signal(self.i.shape(), name="row", reset_less=True),
                   bank=Signal.like(number, name="row_bank", reset_less=True))
        with m.Switch(bank):
            for k in range(self.banks):
                with m.Case(k):
                    m.d.comb += tail.eq(tails[k])
        m.d.comb += [
            which.eq(_chosen(picked, range(self.banks))),
            head.eq(_chosen(picked, heads)),
            self.full.eq(Cat(level >= CLOSE_AT for level in levels).any()),
            write.en.eq(self.valid),
            write.addr.eq(Cat(tail, bank)),
            write.data.eq(self.i),
            read.addr.eq(chosen),
            loads.eq(~row.valid | ready),
            free.eq(~reads | loads),
        ]
        with m.If(free):
            m.d.sync += reads.eq(some.any())
            m.d.sync += chosen.eq(Cat(head, which))
            m.d.sync += number.eq(which)
            with m.If(some.any()):
                m.d.sync += turn.eq(picked)
        with m.If(loads):
            m.d.sync += row.valid.eq(reads)
            m.d.sync += row.payload.eq(read.data)
            m.d.sync += row.bank.eq(number)
        return row

    def _pieces(self, m: Module, row: _Row, ready: Signal) -> Signal:
        """A request per piece, the next one a stripe behind; says when a row's first piece goes."""
        o, payload = self.o, row.payload
        beat_log2 = (4 * self.words - 1).bit_length()
        begun = Signal()
        go = Signal()
        offset = Signal(OFFSET_BITS)
        left = Signal.like(payload.beats)
        next_offset = Signal(OFFSET_BITS, reset_less=True)
        next_left = Signal.like(payload.beats, reset_less=True)
        base = Mux(payload.ring, self.ring[beat_log2:], self.rows[beat_log2:])
        last = Signal()
        m.d.comb += [
            go.eq(row.valid & (~o.valid | o.ready)),
            offset.eq(Mux(begun, next_offset, payload.offset)),
            left.eq(Mux(begun, next_left, payload.beats)),
            last.eq(left == payload.piece),
            ready.eq(go & last),
        ]
        m.d.sync += o.valid.eq(go | (o.valid & ~o.ready))
        with m.If(go):
            m.d.sync += [
                o.payload.address.eq(Cat(Const(0, beat_log2), (base + offset)[:64 - beat_log2])),
                o.payload.beats.eq(payload.piece + 1),
                begun.eq(~last),
                next_offset.eq(offset + self.stripe_beats),
                next_left.eq(left - payload.piece - 1),
            ]
        return go & ~begun

    def _places(self, m: Module, row: _Row, started) -> None:
        """Where the beats go that come back, row after row: the place of the next one is a register, since it goes to
        all memories of the ring."""
        beats = len(row.payload.beats)
        layout = data.StructLayout({"position": self.position_bits, "beats": beats, "bank": len(self.bank)})
        m.submodules.order = order = Fifo(layout, depth=self.under_way, block=False, register=False)
        entry = order.o.payload
        valid = Signal()
        loads = Signal()
        place_, left, bank = (Signal(bits, name=f"landing_{name}", reset_less=True) for name, bits in (
            ("place", self.position_bits), ("left", beats), ("bank", len(self.bank))))
        # From a register, not at the end of a carry chain that counts.
        final = Signal(name="landing_final", reset_less=True)
        m.d.comb += [
            order.i.valid.eq(started),
            order.i.payload.position.eq(row.payload.position),
            order.i.payload.beats.eq(row.payload.beats),
            order.i.payload.bank.eq(row.bank),
            loads.eq(~valid | (self.beat & final)),
            order.o.ready.eq(loads),
            self.place.eq(place_),
            self.bank.eq(bank),
        ]
        with m.If(loads):
            m.d.sync += [
                valid.eq(order.o.valid),
                place_.eq(entry.position),
                left.eq(entry.beats),
                final.eq(entry.beats == 0),
                bank.eq(entry.bank),
            ]
        with m.Elif(self.beat):
            m.d.sync += place_.eq(place_ + 1)
            m.d.sync += left.eq(left - 1)
            m.d.sync += final.eq(left == 1)


def _chosen(marks, values):
    """The value that is marked, at most one of them."""
    chosen = Const(0)
    for k, value in enumerate(values):
        chosen = chosen | Mux(marks[k], value, 0)
    return chosen
