"""Puts a tile's words into the vector's order and queues the beats for the consumer."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from hw.place import Part
from hw.stream.fifo import Fifo
from hw.tt.config import TTConfig
from hw.tt.descriptor import keep_layout

__all__ = ["OutputOrder", "vector_layout"]


def vector_layout(config: TTConfig) -> data.StructLayout:
    """A beat of a vector: words d ascending where `keep` is set, the other words mean nothing.

    last: the vector's last beat. error: valid with last: the vector cannot be trusted (row past the table, or a
    memory error that could not be corrected).
    """
    return data.StructLayout({
        "words": data.ArrayLayout(32, config.line_words),
        "keep": keep_layout(config),
        "last": 1,
        "error": 1,
    })


class OutputOrder(Part):
    """Orders tiles into beats of n**3 consecutive words, in pairs where a row spans two tiles, and queues them.

    Parameters  config: TTConfig
    Members     z         In  results (row, cell, sub)
                valid, begin, turned, columns_log2, combine, error, keep, beats  In  with the result of a tile's last
                    slot
                write, address, mask  In  loads keep masks
                returned  Out  beats that left or were dropped this cycle
                o         Out(stream)
    Shapes      a tile of n**3 words (or half or a quarter of it, when sub-dots were combined) a beat
    Timing      latency 6 cycles from z to o; one tile a cycle
    Handshake   o comes from registers; the sequencer keeps account of room
    Reset       drops what is queued
    Golden      golden.tt.layout.Layout          Tests  verif/tt/test_unit.py
    """

    def __init__(self, config: TTConfig):
        self.config = config
        super().__init__({
            "z": In(data.ArrayLayout(32, config.line_words)),
            "valid": In(1),
            "begin": In(1),
            "turned": In(1),
            "columns_log2": In(2),
            "combine": In(2),
            "error": In(1),
            "keep": In((config.keep_lines - 1).bit_length()),
            "beats": In(10),
            "write": In(1),
            "address": In((config.keep_lines - 1).bit_length()),
            "mask": In(keep_layout(config)),
            "returned": Out(2),
            "o": Out(stream.Signature(vector_layout(config))),
        })

    def _groups(self, columns_log2: int, combine: int):
        """(cell, sub) of each group of n consecutive words, in the vector's order."""
        bits, n = self.config.grid_log2, self.config.side
        found = []
        for cell in range(n):
            for sub in range(n):
                high, low = sub >> (bits - 1), sub & (n // 2 - 1)
                if (combine and high) or (combine == 2 and low):
                    continue
                if bits == 1:
                    rank = (cell, sub) if columns_log2 else (sub, cell)
                else:
                    rank = ((low, high, cell), (high, cell, low), (cell, high, low))[columns_log2]
                found.append((rank, cell, sub))
        return [(cell, sub) for _, cell, sub in sorted(found)]

    def _modes(self):
        bits = self.config.grid_log2
        return [(v, combine) for v in range(bits + 1) for combine in range(bits + 1) if v + combine <= bits]

    def elaborate(self, platform):
        m = Module()
        config = self.config
        n = config.side

        # -- Order: word x of group g is result (row x, cell, sub).
        mode = {pair: Signal(name=f"mode_{pair[0]}_{pair[1]}") for pair in self._modes()}
        m.d.comb += [picked.eq((self.columns_log2 == v) & (self.combine == c)) for (v, c), picked in mode.items()]
        ordered = Signal(data.ArrayLayout(32, config.line_words), reset_less=True)
        for group in range(n * n):
            sources: dict[tuple[int, int], list] = {}
            for pair in self._modes():
                order = self._groups(*pair)
                if group < len(order):
                    sources.setdefault(order[group], []).append(mode[pair])
            for x in range(n):
                word = 0
                for (cell, sub), picks in sources.items():
                    value = self.z[(x * n + cell) * n + sub]
                    word = word | Mux(Cat(picks).any(), value, 0)
                m.d.sync += ordered[group * n + x].eq(word)
        tile = data.StructLayout({
            "valid": 1, "begin": 1, "turned": 1, "error": 1, "keep": len(self.keep), "beats": 10})
        arrived = Signal(tile)
        m.d.sync += arrived.eq(Cat(self.valid, self.begin, self.turned, self.error, self.keep, self.beats))

        # -- Pairs: where a row spans two tiles, quarter i of either is half of row i.
        rows = data.ArrayLayout(data.ArrayLayout(32, n * n), n)
        words = data.View(rows, ordered.as_value())
        kept = Signal(rows, reset_less=True)
        second, second_begins, flush = Signal(), Signal(), Signal()
        beat = Signal(rows, reset_less=True)
        pushed, begins, error = Signal(), Signal(), Signal()
        keep, beats = Signal(len(self.keep)), Signal(10)
        half = n // 2
        whole = arrived.valid & ~arrived.turned
        pair = arrived.valid & arrived.turned & second
        m.d.sync += pushed.eq(whole | pair | flush)
        m.d.sync += begins.eq(Mux(pair, second_begins, whole & arrived.begin))
        m.d.sync += flush.eq(pair)
        with m.If(whole | pair):
            m.d.sync += error.eq(arrived.error)
            m.d.sync += keep.eq(arrived.keep)
            m.d.sync += beats.eq(arrived.beats)
        with m.If(whole):
            m.d.sync += beat.eq(words)
        for row in range(half):
            with m.If(pair):
                m.d.sync += beat[2 * row].eq(kept[row])
                m.d.sync += beat[2 * row + 1].eq(words[row])
                m.d.sync += kept[row].eq(words[half + row])
            with m.Elif(flush):
                m.d.sync += beat[2 * row].eq(kept[half + row])
                m.d.sync += beat[2 * row + 1].eq(kept[row])
        with m.If(arrived.valid & arrived.turned & ~second):
            m.d.sync += kept.eq(words)
            m.d.sync += second_begins.eq(arrived.begin)
        with m.If(arrived.valid & arrived.turned):
            m.d.sync += second.eq(~second)

        # -- Number of the beat, its mask; what lies past the vector is dropped.
        masks = memory.Memory(shape=len(self.mask.as_value()), depth=config.keep_lines, init=[],
                              attrs={"ram_style": "block"})
        m.submodules.masks = masks
        write, read = masks.write_port(), masks.read_port()
        number, following = Signal(10), Signal(10)
        m.d.comb += [
            number.eq(Mux(begins, 0, following)),
            write.addr.eq(self.address),
            write.data.eq(self.mask),
            write.en.eq(self.write),
            read.addr.eq(keep + number),
        ]
        within = pushed & (number <= beats)
        dropped, queued, last = Signal(), Signal(), Signal()
        with m.If(pushed):
            m.d.sync += following.eq(number + 1)
        m.d.sync += queued.eq(within)
        m.d.sync += dropped.eq(pushed & (number > beats))
        m.d.sync += last.eq(number == beats)
        m.submodules.queue = queue = Fifo(vector_layout(config), depth=config.output_beats, block=True)
        late_beat, late_error = Signal(rows, reset_less=True), Signal()
        m.d.sync += late_beat.eq(beat)
        m.d.sync += late_error.eq(error)
        m.d.comb += [
            queue.i.payload.words.as_value().eq(late_beat.as_value()),
            queue.i.payload.keep.as_value().eq(read.data),
            queue.i.payload.last.eq(last),
            queue.i.payload.error.eq(late_error),
            queue.i.valid.eq(queued),
            self.o.payload.eq(queue.o.payload),
            self.o.valid.eq(queue.o.valid),
            queue.o.ready.eq(self.o.ready),
        ]
        left = Signal()
        m.d.sync += left.eq(self.o.valid & self.o.ready)
        m.d.comb += self.returned.eq(left + dropped)
        return m
