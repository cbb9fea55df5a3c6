"""Brings load images into the tensor-train unit, and knows which tables it holds."""

from functools import reduce
from operator import xor
from typing import NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import read_layout
from hw.isa import EMB
from hw.isa.emb import POLYNOMIAL
from hw.place import Part
from hw.tt.config import TTConfig
from hw.tt.descriptor import BEATS_BITS, Target, descriptor_parts, load_layout

HEADERS = 16                # of a group, and words of their block
FIRST_PART, LAST_PART = 0, 3    # of a descriptor
CLOSING = 3                 # cycles from the last beat until the load has ended
INPUTS = 1      # detail of READ_ERROR


class Header(data.Struct):
    """Where a beat goes in the unit. Above it a header's word has nothing."""

    address: 16
    target: 2
    part: 2
    flip: 2
    block: 1


HEADER_BITS = Shape.cast(Header).width


def bounds_layout(*, index_bits: int, chunk_log2: int) -> data.StructLayout:
    """What the descriptor of a table allows programs. loaded: there is such a table; rows, beats: of the table and of
    a vector; chunk: the most rows of a chunk."""
    return data.StructLayout({"loaded": 1, "rows": index_bits + 1, "beats": BEATS_BITS + 1, "chunk": chunk_log2 + 1})


class _Load(NamedTuple):
    """What `Loader.elaborate` hands to other methods."""

    number: Signal
    done: Signal
    last: Signal
    heading: Signal
    passing: Signal
    header: Signal
    sound: Signal
    ready: Signal
    wrong: Signal
    unread: Signal
    broken: Signal
    closing: Signal


class Loader(Part):
    """Passes the beats of a load image on, each where its header says.

    A table counts as loaded from the beat on that writes the last part of its descriptor, once the load has ended. A
    load that is broken off, by an error or by a reset, or whose beats have another signature than its instruction
    states, leaves no table loaded: it may have written over any of them.

    Parameters  config: TTConfig
    Members     start     In  a pulse while `busy` is low
                less_one, expected  In  load beats less one, and the image's golden.emb.signature; until the end
                busy      Out
                i         In(stream of hw.axi.bus.read_layout)  the image: in turn a block of 16 headers and 16 load
                    beats
                word      In  the next word of the image's beat
                step      Out  takes `word`: the feeder's multiplexer does this for both
                o_load    Out(stream)  the unit's load
                error     Out  {valid, code, index, detail}, READ_ERROR or BAD_INSTRUCTION with the load beat, or
                    SIGNATURE, valid until reset
                table     In  whose `bounds` come a cycle later
                bounds    Out  of that table, see `bounds_layout`; without meaning but for `loaded` where that is low
    Timing      16 cycles for a block of headers, two a load beat, then CLOSING; ready `tables` cycles after a broken
                load
    Handshake   i.ready follows o_load.ready while load beats pass
    Reset       ends the load; what is loaded stays loaded, as in the unit, unless a load was under way
    Golden      golden.emb.core          Tests  verif/emb/test_front.py, test_front_faults.py
    """

    def __init__(self, config: TTConfig):
        self.config = config
        beat_bytes = 4 * config.side**2
        super().__init__({
            "start": In(1), "less_one": In(32), "expected": In(32), "busy": Out(1),
            "word": In(32), "step": Out(1),
            "i": In(stream.Signature(read_layout(beat_bytes))),
            "o_load": Out(stream.Signature(load_layout(config))),
            "error": Out(data.StructLayout({"valid": 1, "code": 8, "index": 32, "detail": 32})),
            "table": In(16),
            "bounds": Out(bounds_layout(index_bits=config.index_bits, chunk_log2=config.chunk_log2)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.headers = headers = memory.Memory(
            shape=32, depth=HEADERS, init=[], attrs={"ram_style": "distributed"})
        to_headers, from_headers = headers.write_port(), headers.read_port(domain="comb")
        number = Signal(range(HEADERS))     # of the header that is read or used
        done = Signal(32, reset_less=True)
        last = Signal(reset_less=True)
        heading = Signal()
        passing = Signal()
        header = Signal(Header, reset_less=True)
        sound = Signal(reset_less=True)
        ready = Signal()
        wrong = Signal(32, reset_less=True)
        unread = Signal(reset_less=True)
        broken = Signal(reset_less=True)    # a load is under way, or was when a reset came
        closing = Signal(CLOSING)           # bit k: k + 1 cycles after the last beat
        load = _Load(
            number=number, done=done, last=last, heading=heading, passing=passing, header=header, sound=sound,
            ready=ready, wrong=wrong, unread=unread, broken=broken, closing=closing)
        m.d.comb += [
            to_headers.addr.eq(number),
            from_headers.addr.eq(number),
            to_headers.data.eq(self.word),
            to_headers.en.eq(heading & self.i.valid),
            self.step.eq(heading),
        ]
        self._mark(m, load)
        self._read(m, load)
        self._close(m, load, self._pass(m, load, from_headers.data))
        return m

    def _mark(self, m: Module, load: _Load) -> None:
        """Bounds of each table, in memories that a reset leaves alone like the unit's; whether it is loaded is swept
        after a broken load."""
        config, header, broken = self.config, load.header, load.broken
        parts, known = descriptor_parts(config), data.StructLayout(
            {"loaded": 1, "beats": BEATS_BITS, "chunk": config.chunk_log2})
        ports = []
        for name, shape in (("tables", known), ("rows", parts[FIRST_PART]["rows"].shape)):
            store = memory.Memory(shape=shape, depth=config.tables, init=[], attrs={"ram_style": "distributed"})
            m.submodules[name] = store
            ports.append((store.write_port(), store.read_port(domain="comb")))
        (mark, look), (count, counted) = ports
        words = self.o_load.payload.data
        first, last = (data.View(parts[part], words[:parts[part].size]) for part in (FIRST_PART, LAST_PART))
        table_bits = len(mark.addr)
        sweep = Signal(table_bits)
        sweeping = Signal()
        writes = Signal()
        m.d.comb += [
            look.addr.eq(self.table),
            counted.addr.eq(self.table),
            sweeping.eq(broken & ~load.heading & ~load.passing & ~load.closing.any() & ~self.error.valid),
            writes.eq(self.o_load.valid & self.o_load.ready & (header.target == Target.TABLE)),
            count.addr.eq(header.address),
            count.data.eq(first.rows),
            count.en.eq(writes & (header.part == FIRST_PART)),
        ]
        m.d.sync += [
            self.bounds.loaded.eq(look.data.loaded & (self.table >> table_bits == 0) & ~broken),
            self.bounds.rows.eq(counted.data),
            self.bounds.beats.eq(look.data.beats + 1),
            self.bounds.chunk.eq(look.data.chunk + 1),
        ]
        with m.If(sweeping):
            m.d.comb += mark.addr.eq(sweep)
            m.d.comb += mark.en.eq(1)
            m.d.sync += sweep.eq(sweep + 1)
            with m.If(sweep == config.tables - 1):
                m.d.sync += broken.eq(0)
        with m.Else():
            m.d.comb += [
                mark.addr.eq(header.address),
                mark.data.loaded.eq(1),
                mark.data.beats.eq(last.beats),
                mark.data.chunk.eq(last.chunk),
                mark.en.eq(writes & (header.part == LAST_PART)),
            ]
        m.d.comb += self.busy.eq(load.heading | load.passing | broken)

    def _read(self, m: Module, load: _Load) -> None:
        """A block of headers."""
        number, heading = load.number, load.heading
        with m.If(self.start & ~self.busy):
            m.d.sync += [
                heading.eq(1),
                load.broken.eq(1),
                load.done.eq(0),
                number.eq(0),
            ]
        with m.Elif(heading & self.i.valid):
            m.d.sync += number.eq(number + 1)
            with m.If(self.i.payload.error):
                m.d.sync += heading.eq(0)
                m.d.sync += self.error.valid.eq(1)
            with m.Elif(number == HEADERS - 1):
                m.d.sync += heading.eq(0)
                m.d.sync += load.passing.eq(1)
                m.d.sync += load.ready.eq(0)

    def _pass(self, m: Module, load: _Load, raw) -> Signal:
        """The beats behind the headers, each to where its header says, which is read a cycle ahead. Returns a pulse
        as the last one is taken."""
        config, beat, error = self.config, self.i.payload, self.error
        with m.If(~error.valid):    # what it is, where there is one
            m.d.sync += load.unread.eq(beat.error)
        number, done, header, passing, ready = load.number, load.done, load.header, load.passing, load.ready
        lines = {Target.X: config.x_lines, Target.Y: config.y_lines, Target.TABLE: config.tables}
        next_header = Header(raw[:HEADER_BITS])
        known = []
        for target in Target:  # type: ignore[attr-defined]
            halves = config.blocks_log2 and target != Target.TABLE
            inside_halves = _below(next_header.address, 2 * lines[target]) if halves else 0
            inside_whole = 0 if halves and config.block16_only else _below(next_header.address, lines[target])
            known.append(Mux(next_header.block, inside_halves, inside_whole))
        inside = Array([*known, 0])[next_header.target]
        m.d.comb += [
            *(self.o_load.payload[name].eq(header[name]) for name in ("target", "part", "address", "block", "flip")),
            self.o_load.payload.data.eq(beat.data),
        ]
        ends = Signal()
        with m.If(passing & ~ready):
            m.d.sync += [
                header.eq(next_header),
                load.wrong.eq(raw),
                number.eq(number + 1),
                ready.eq(1),
                load.sound.eq(inside & (raw[HEADER_BITS:] == 0)),
                load.last.eq(done == self.less_one),
            ]
        with m.If(passing & ready & self.i.valid):
            with m.If(beat.error | ~load.sound):
                m.d.sync += passing.eq(0)
                m.d.sync += error.valid.eq(1)
            with m.Else():
                m.d.comb += self.o_load.valid.eq(1)
                m.d.comb += self.i.ready.eq(self.o_load.ready)
                with m.If(self.o_load.ready):
                    m.d.sync += ready.eq(0)
                    m.d.sync += done.eq(done + 1)
                    with m.If(load.last):
                        m.d.comb += ends.eq(1)
                        m.d.sync += passing.eq(0)
                    with m.Elif(number == 0):
                        m.d.sync += passing.eq(0)
                        m.d.sync += load.heading.eq(1)
        return ends

    def _close(self, m: Module, load: _Load, ends: Value) -> None:
        """The signature of all beats, and its verdict. Beat, words folded, signature, verdict: a cycle each."""
        beat, error, words = self.i.payload, self.error, self.config.side**2
        folded = Signal(32, reset_less=True)
        signature = Signal(32, name="beats_signature", reset_less=True)
        folds = Signal()
        differs = Signal(reset_less=True)
        unsigned = Signal()     # the error is the signature's
        block_ends = load.number[:(min(words, HEADERS) - 1).bit_length()].all()
        m.d.sync += [
            folds.eq(self.i.valid & (load.heading & block_ends | self.i.ready)),
            folded.eq(reduce(xor, (beat.data.word_select(k, 32).rotate_left(2 * k) for k in range(words)))),
            differs.eq(signature != self.expected),
            load.closing.eq(Cat(ends, load.closing[:-1])),
        ]
        with m.If(self.start & ~self.busy):
            m.d.sync += signature.eq(0)
        with m.Elif(folds):
            m.d.sync += signature.eq(Cat(Const(0), signature[:-1]) ^ Mux(signature[-1], POLYNOMIAL, 0) ^ folded)
        with m.If(load.closing[-1]):
            m.d.sync += load.broken.eq(differs)
            m.d.sync += error.valid.eq(differs)
            m.d.sync += unsigned.eq(differs)
        codes = [EMB.code(name) for name in ("SIGNATURE", "READ_ERROR", "BAD_INSTRUCTION")]
        m.d.comb += error.index.eq(Mux(unsigned, 0, load.done))
        m.d.comb += error.detail.eq(Mux(unsigned, signature, Mux(load.unread, INPUTS, load.wrong)))
        m.d.comb += error.code.eq(Mux(unsigned, codes[0], Mux(load.unread, *codes[1:])))


def _below(value: Value, count: int) -> Value:
    """Whether it is; by the bits above alone where `count` is a power of two."""
    return value < count if count & (count - 1) else value >> (count - 1).bit_length() == 0
