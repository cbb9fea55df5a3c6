"""Row fetch: embedding rows out of card memory, each read once while it lies in the window."""

from typing import Any, NamedTuple

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.attributes import UNREAD
from hw.axi.bus import check_beat_bytes, read_layout, request_layout
from hw.emb.row_formats import FORMAT_BITS, SLOT_BITS, of_each_kind, slots
from hw.emb.row_requests import RowRequests, beats_bits
from hw.emb.window import LAP_BITS, OFFSET_BITS, RowWindow
from hw.isa.emb import ROW_FORMAT
from hw.place import Part, place
from hw.stream.fifo import Fifo

__all__ = ["RowFetch", "beat_layout", "beats_bits", "pooled_layout", "row_layout"]

EVENTS = ("dram_row", "ssd_row", "shared_row", "fetched", "dram_beat", "ssd_beat")


def row_layout(row_beats_max: int) -> data.StructLayout:
    """A row to fetch. offset: of its first beat, in beats from the start of its arena; ring: the arena is the
    landing ring; beats: as stored, less one; piece: beats that lie behind one another, less one, `beats` for a
    contiguous row; vector: beats of its FP32 values, less one; row_format: see ROW_FORMAT; tier: 0 card memory, 1 SSD;
    first, last: of its bag and tier; weight: binary32; maximum: pooled by maximum; copy: leaves on `o_copy` as it is
    stored instead of being pooled, FP32 by its format."""
    bits = beats_bits(row_beats_max)
    return data.StructLayout({
        "offset": OFFSET_BITS, "ring": 1, "beats": bits, "piece": bits, "vector": bits, "row_format": FORMAT_BITS,
        "tier": 1, "first": 1, "last": 1, "weight": 32, "maximum": 1, "copy": 1,
    })


def pooled_layout(words: int, row_beats_max: int) -> data.StructLayout:
    """A beat to pool. context: tier and beat of the row; tag.error: a beat of this bag and tier, so far, was
    answered with an error, or of this very row."""
    return data.StructLayout({
        "words": data.ArrayLayout(32, words), "weight": 32,
        "context": 1 + (row_beats_max - 1).bit_length(),
        "first": 1, "last": 1, "maximum": 1,
        "tag": data.StructLayout({"tier": 1, "error": 1}),
    })


def beat_layout(words: int, row_beats_max: int) -> data.StructLayout:
    """The same with the words as they are stored. slot: the part of them, from the lowest on, that is to be decoded, as
    many values as a beat has words; begins: the row's first beat, with its scale and bias."""
    pooled = pooled_layout(words, row_beats_max)
    return data.StructLayout({**{name: field.shape for name, field in pooled}, "row_format": FORMAT_BITS,
                              "slot": SLOT_BITS, "begins": 1})


class _Parts(NamedTuple):
    """What `RowFetch._parts` hands on."""

    beat: Signal
    slot: Signal
    begins: Value
    leaves: Signal
    may: Value


class _Front(NamedTuple):
    """What `RowFetch._front` hands on: a row, then its `_Parts`."""

    row: Any
    go: Signal
    loaded: Signal
    beat: Signal
    slot: Signal
    begins: Value
    leaves: Signal
    may: Value


class RowFetch(Part):
    """Fetches rows and hands their beats to the decoder; a row repeated within the window is fetched once.

    o = the beats of row 0, of row 1, ..., whether they come from memory or from the window; a beat of more values than
    words as often as it takes to decode them.
    Source: SCARS §II.A (coalescing); SCRec §III.E, Fig. 7a (the row path of the EMB core)

    What was read lies in a ring of `window_beats` beats, both buffer and window: `RowWindow` says where. Rows wait
    for their beats in a queue of `delivery_rows`. `RowRequests` asks for those that were not found, a bank after the
    other; rows of one bank come in order, so a row at the queue's front has arrived once enough beats of its bank
    have, and one that was found always has.

    Parameters  words: FP32 words of a beat; row_beats_max, window_beats, window_sets, lap_bits: see RowWindow;
                delivery_rows: a power of two, rows under way; it bounds what is in flight, as does window_beats / 4;
                stripe_beats, banks: see RowRequests; decoder_latency: cycles that an FP32 row is held back behind one
                of another format, which it would overtake in the decoder
    Members     i             In(stream of row_layout)
                rows, ring    In  byte addresses of the two arenas, multiples of a beat
                o_requests    Out(stream of request_layout)
                i_data        In(stream of read_layout)  of a reader that answers in order; i_data.ready is constant 1:
                    the space is taken before the request
                o_valid       Out  `o` cannot be held back: whoever sends rows in has made room
                o             Out  a beat of beat_layout
                copy_valid    Out  `o_copy` cannot be held back either
                o_copy        Out  {data, error}, a beat of a row to copy
                flush_window  In  forgets all rows, for when memory was written (only while idle)
                idle          Out  no row under way
                events        Out  to count, one bit each: a row of either tier was looked up, one was found, a beat
                    was fetched, a beat of either tier left
    Shapes      a row of v beats of values, stored in b -> v beats in a row's order, no gaps while data is there
    Timing      a row per cycle into the window, its request 6 cycles after it was taken; a beat per cycle out, 2 cycles
                after it is read from the ring, which is 1 cycle after it arrived or later; 6 cycles from a found
                row taken to its first beat. See RowWindow for its pauses
    Handshake   i.ready is a register; i_data is never held back
    Numerics    none: words pass unchanged. A row answered with an error carries it again whenever it is found
    Reset       drops all rows and forgets the window; data of requests before it must not reach i_data any more
    Raises      ValueError: sizes out of range
    Golden      golden.emb.rows.window, verif.emb.cycles.rows          Tests  verif/emb/test_rows.py
    """

    def __init__(self, *, words: int, row_beats_max: int, window_beats: int, window_sets: int, delivery_rows: int,
                 stripe_beats: int, banks: int, decoder_latency: int, lap_bits: int = LAP_BITS):
        check_beat_bytes(4 * words)
        if type(delivery_rows) is not int or delivery_rows < 8 or delivery_rows & (delivery_rows - 1):
            raise ValueError(f"delivery_rows must be a power of two of at least 8, not {delivery_rows!r}")
        self.words, self.row_beats_max = words, row_beats_max
        self.window_beats, self.window_sets, self.lap_bits = window_beats, window_sets, lap_bits
        self.delivery_rows = delivery_rows
        self.stripe_beats, self.banks = stripe_beats, banks
        self.decoder_latency = decoder_latency
        self._window = RowWindow(row_beats_max=row_beats_max, beats=window_beats, sets=window_sets, lap_bits=lap_bits)
        self._requests = RowRequests(
            words=words, row_beats_max=row_beats_max, position_bits=self._window.position_bits,
            stripe_beats=stripe_beats, banks=banks, rows=delivery_rows)
        super().__init__({
            "i": In(stream.Signature(row_layout(row_beats_max))),
            "rows": In(64),
            "ring": In(64),
            "o_requests": Out(stream.Signature(request_layout())),
            "i_data": In(stream.Signature(read_layout(4 * words), always_ready=True)),
            "o_valid": Out(1),
            "o": Out(beat_layout(words, row_beats_max)),
            "copy_valid": Out(1),
            "o_copy": Out(data.StructLayout({"data": 32 * words, "error": 1})),
            "flush_window": In(1),
            "idle": Out(1),
            "events": Out(data.StructLayout(dict.fromkeys(EVENTS, 1))),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.window = self._window
        place(m, platform, "requests", self._requests)
        row, served = self._look_up(m)
        self._request(m, row)
        front = self._front(m, self._wait(m, row), served)
        self._deliver(m, front)
        return m

    def _look_up(self, m: Module) -> tuple[data.View, Signal]:
        """Rows into the window; with its answer they are looked up: that row, and a signal for a row served.

        A row is taken only when the queues have room for it and for those on their way to them. The queue of rows
        holds one more than its depth, for the row that is taken before `hold` is heeded.
        """
        window, i = self._window, self.i.payload
        waiting = Signal(range(2 * self.delivery_rows))
        take = Signal()
        served = Signal()
        m.d.comb += [
            window.hold.eq(waiting[-1] | self._requests.full),
            self.i.ready.eq(window.ready),
            take.eq(self.i.valid & self.i.ready),
            window.valid.eq(take),
            window.offset.eq(i.offset),
            window.beats.eq(i.beats),
            window.piece.eq(i.piece),
            window.shared.eq(~i.ring & ~i.copy),
            window.flush.eq(self.flush_window),
        ]
        row_1, row_2 = (Signal(row_layout(self.row_beats_max), name=f"row_{n}", reset_less=True) for n in (1, 2))
        m.d.sync += [
            row_1.eq(i),
            row_2.eq(row_1),
            waiting.eq(waiting + take - served),
            self.idle.eq((waiting == 0) & ~take),
            self.events.dram_row.eq(window.o_valid & ~row_2.tier),
            self.events.ssd_row.eq(window.o_valid & row_2.tier),
            self.events.shared_row.eq(window.o_valid & window.hit),
            self.events.fetched.eq(self.i_data.valid),
        ]
        return row_2, served

    def _request(self, m: Module, row) -> None:
        """Rows not found are requested."""
        window, requests = self._window, self._requests
        wiring.connect(m, requests.o, wiring.flipped(self.o_requests))
        m.d.comb += [
            requests.valid.eq(window.o_valid & ~window.hit),
            requests.i.position.eq(window.position),
            *(requests.i[name].eq(row[name]) for name in ("offset", "ring", "beats", "piece")),
            requests.rows.eq(self.rows),
            requests.ring.eq(self.ring),
            requests.beat.eq(self.i_data.valid),
        ]

    def _wait(self, m: Module, row) -> Fifo:
        """All rows wait in order for their beats."""
        window = self._window
        wait_layout = data.StructLayout({
            "position": window.position_bits, "mark": 1, "found": 1, "bank": len(self._requests.bank),
            "vector": beats_bits(self.row_beats_max), "row_format": FORMAT_BITS,
            "tier": 1, "first": 1, "last": 1, "weight": 32, "maximum": 1, "copy": 1,
        })
        m.submodules.queue = queue = Fifo(wait_layout, depth=self.delivery_rows, block=False, register=False)
        entry = queue.i.payload
        m.d.comb += [
            queue.i.valid.eq(window.o_valid),
            entry.position.eq(window.position),
            entry.mark.eq(window.mark),
            entry.found.eq(window.hit),
            entry.bank.eq(self._requests.bank_of(row.offset)),
            *(entry[name].eq(row[name])
              for name in ("vector", "row_format", "tier", "first", "last", "weight", "maximum", "copy")),
        ]
        return queue

    def _front(self, m: Module, queue: Fifo, served: Signal) -> _Front:
        """The row at the front: beat after beat out of the ring once it has arrived, each for as many cycles as the
        pooling unit takes for its values. The place of the beat is a register, since it goes to all memories of the
        ring."""
        window, requests = self._window, self._requests
        row = Signal(queue.shape, name="front", reset_less=True)
        valid = Signal(name="front_valid")
        go = Signal()
        # The ring, written as data arrives.
        beats = memory.Memory(shape=data.StructLayout({"data": 32 * self.words, "error": 1}),
                              depth=self.window_beats, init=[], attrs={**UNREAD, "ram_style": "block"})
        m.submodules.beats = beats
        store, load = beats.write_port(), beats.read_port()
        m.d.comb += [
            store.en.eq(self.i_data.valid),
            store.addr.eq(requests.place),
            store.data.data.eq(self.i_data.payload.data),
            store.data.error.eq(self.i_data.payload.error),
        ]
        parts = self._parts(m, row, go, served)
        m.d.comb += queue.o.ready.eq(~valid | served)
        with m.If(queue.o.ready):
            m.d.sync += valid.eq(queue.o.valid)
            m.d.sync += row.eq(queue.o.payload)
        with m.Elif(parts.leaves):
            m.d.sync += row.position.eq(row.position + 1)
        # Beats of each bank that have arrived and have not been delivered yet; whether there are any, from registers.
        there = Signal(self.banks)
        for k in range(self.banks):
            arrived, used = Signal(name=f"arrived_{k}"), Signal(name=f"used_{k}")
            count = Signal(window.position_bits + 1, name=f"beats_{k}")
            m.d.comb += arrived.eq(self.i_data.valid & (requests.bank == k))
            m.d.comb += used.eq(parts.leaves & ~row.found & (row.bank == k))
            m.d.sync += count.eq(count + Cat(arrived ^ used, (used & ~arrived).replicate(window.position_bits)))
            m.d.sync += there[k].eq(arrived | (count[1:] != 0) | (count[0] & ~used))
        m.d.comb += [
            go.eq(valid & (row.found | Array(there)[row.bank]) & parts.may),
            load.addr.eq(row.position),
            load.en.eq(valid),
            window.reached.eq(served & row.mark),
        ]
        # The memory's output register: without it its output is 1.3 ns away.
        loaded = Signal(beats.shape, name="loaded", reset_less=True)
        m.d.sync += loaded.eq(load.data)
        return _Front(row, go, loaded, *parts)

    def _parts(self, m: Module, row, go: Signal, served: Signal) -> _Parts:
        """Which part of which of the row's beats it is: beat of its values, slot in the stored one; begins: the row's
        first; leaves: the stored beat's last; may: nothing is in the row's way."""
        beat = Signal(beats_bits(self.row_beats_max))
        begun = Signal()
        held = Signal(SLOT_BITS, name="slot_held")
        slot, first_slot, last_slot = (Signal(SLOT_BITS, name=name) for name in ("slot", "first_slot", "last_slot"))
        full = Signal()
        leaves = Signal()
        for form in of_each_kind(m, row.row_format):
            m.d.comb += first_slot.eq(form.header)
            m.d.comb += last_slot.eq(slots(form) - 1)
        m.d.comb += [
            slot.eq(Mux(begun, held, first_slot)),
            full.eq((slot | ~last_slot).all()),
            served.eq(go & (beat == row.vector)),
            leaves.eq((go & full) | served),
        ]
        with m.If(go):
            m.d.sync += begun.eq(~served)
            m.d.sync += held.eq(Mux(full, 0, slot + 1))
            m.d.sync += beat.eq(Mux(served, 0, beat + 1))

        plain = row.row_format == ROW_FORMAT.FLOAT32
        left = Signal(range(self.decoder_latency + 1), name="decoding")
        with m.If(go & ~plain):
            m.d.sync += left.eq(self.decoder_latency)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        return _Parts(beat=beat, slot=slot, begins=~begun, leaves=leaves,
                      may=~plain | (left == 0))

    def _deliver(self, m: Module, front: _Front) -> None:
        """The beat of the row leaves, with the errors of its bag so far."""
        row, go, beat, o = front.row, front.go, front.beat, self.o
        fields = beat_layout(self.words, self.row_beats_max).members
        names = "weight", "context", "first", "last", "maximum", "row_format", "slot", "begins"
        # opens: the first beat of its bag.
        about = data.StructLayout({**{name: fields[name] for name in names}, "tier": 1, "opens": 1})
        # While the ring's memory is read, and with what is in its output register.
        read, shown = (Signal(about, name=name, reset_less=True) for name in ("read", "shown"))
        pooled = Signal()
        copied = Signal()
        # late: an error of this tier's bag in an earlier beat
        error = Signal()
        late = Signal(2)
        m.d.sync += [
            pooled.eq(go & ~row.copy),
            copied.eq(go & row.copy),
            read.context.eq(Cat(beat[:len(o.context) - 1], row.tier)),
            read.slot.eq(front.slot),
            read.begins.eq(front.begins),
            read.opens.eq(row.first & (beat == 0)),
            *(read[name].eq(row[name]) for name in ("weight", "first", "last", "maximum", "row_format", "tier")),
            shown.eq(read),
            self.o_valid.eq(pooled),
            self.copy_valid.eq(copied),
            self.events.dram_beat.eq(front.leaves & ~row.tier),
            self.events.ssd_beat.eq(front.leaves & row.tier),
        ]
        m.d.comb += [
            *(o[name].eq(shown[name]) for name in names),
            o.words.as_value().eq(front.loaded.data),
            error.eq(front.loaded.error),
            o.tag.tier.eq(shown.tier),
            o.tag.error.eq(error | (Mux(shown.tier, late[1], late[0]) & ~shown.opens)),
            self.o_copy.data.eq(front.loaded.data),
            self.o_copy.error.eq(error),
        ]
        with m.If(self.o_valid):
            with m.If(o.tag.tier):
                m.d.sync += late[1].eq(o.tag.error)
            with m.Else():
                m.d.sync += late[0].eq(o.tag.error)
