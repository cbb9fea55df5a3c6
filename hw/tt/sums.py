"""Puts a tile's words into the vector's order, n**2 words per cycle, and merges the lanes' vectors."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, memory, stream
from amaranth.lib.wiring import In, Out

from hw.attributes import UNREAD
from hw.fp.rounder import Rounder
from hw.place import Part, place
from hw.tt.config import TTConfig
from hw.tt.grid import result_layout


def sum_layout(config: TTConfig) -> data.StructLayout:
    """A beat of a sum: n**2 words d ascending, +0 past the vector's end.

    last: the vector's last beat. error: with last: a row past its table, or a memory error that could not be
    corrected, in any of the rows.
    """
    return data.StructLayout({"words": data.ArrayLayout(32, config.beat_words), "last": 1, "error": 1})


def about_layout(config: TTConfig) -> data.StructLayout:
    """What there is to know of a vector that is ready. beats, tail: less one."""
    return data.StructLayout({"beats": _beat_bits(config), "tail": 2 * config.grid_log2, "error": 1})


def _beat_bits(config: TTConfig) -> int:
    return (config.vector_beats - 1).bit_length()


def _vector_bits(config: TTConfig) -> int:
    return (config.vectors - 1).bit_length()


class SumMemory(Part):
    """Takes a lane's tiles apart into beats of n**2 words in the vector's order and keeps them until they are read.

    A group of n words is a result (row 0..n-1, cell, sub). A beat is n groups, and group p of any beat has a bank
    of its own. The banks write different beats in the same cycle, so that in every cycle every cell gives one
    group: two multiplexers of n to 1 a bit instead of one of n**2. Exact sums are rounded between the two, n**2 a
    cycle.

    Parameters  config: TTConfig
    Members     z            In  hw.tt.grid.result_layout
                valid        In  the last slot of a tile, at most every n-th cycle, has its result in `z`
                begin, ends  In  with `valid`: the vector's first, last tile
                turned, columns_log2, combine, error, beats, tail  In  of the tile, with `valid`
                about        Out  the oldest whole vector's about_layout
                ready        Out  there is a whole vector
                pop          In  the oldest vector is done with
                fetch        In  reads a beat
                vector       In  of this vector, a number that counts up from 0
                beat         In  this beat
                words        Out  the beat, a cycle later
    Timing      n + 3 cycles from the last tile to `ready`, `rounding` more where sums are exact
    Handshake   the sequencer keeps account of room: config.vectors vectors
    Reset       drops what it holds
    Golden      golden.tt.layout.Layout          Tests  verif/tt/test_unit.py
    """

    def __init__(self, config: TTConfig):
        self.config = config
        super().__init__({
            "z": In(result_layout(config)),
            "valid": In(1), "begin": In(1), "ends": In(1), "turned": In(1),
            "columns_log2": In(2), "combine": In(2), "error": In(1),
            "beats": In(10), "tail": In(2 * config.grid_log2),
            "about": Out(about_layout(config)), "ready": Out(1), "pop": In(1),
            "fetch": In(1), "vector": In(_vector_bits(config)), "beat": In(_beat_bits(config)),
            "words": Out(data.ArrayLayout(32, config.beat_words)),
        })

    @property
    def rounding(self) -> int:
        """Cycles that rounding takes."""
        return Rounder.latency if self.config.grouped else 0

    def _sub(self, columns_log2, step, cell: int):
        """Which sub-dot a cell gives in a step."""
        bits = self.config.grid_log2
        crossed = step ^ cell
        if bits == 1:
            return Mux(columns_log2 == 1, crossed, step)
        return Mux(columns_log2 == 1, Cat(step[0] ^ (cell >> 1), step[1]), Mux(columns_log2 == 2, crossed, step))

    def _cell(self, columns_log2, step, group: int):
        """Which cell's group goes to bank `group` in a step."""
        bits = self.config.grid_log2
        crossed = step ^ group
        if bits == 1:
            return Mux(columns_log2 == 1, crossed, group)
        half = Cat(Const(group >> 1, 1), step[0] ^ (group & 1))
        return Mux(columns_log2 == 1, half, Mux(columns_log2 == 2, crossed, group))

    def _beat(self, columns_log2, combined, step, group: int):
        """Which beat of the tile that is."""
        bits = self.config.grid_log2
        crossed = step ^ group
        if bits == 1:
            return Mux(columns_log2 == 1, crossed, step)
        half = Cat(step[0] ^ (group & 1), step[1])
        back = Mux(combined, step, Cat(step[1], step[0]))
        return Mux(columns_log2 == 1, half, Mux(columns_log2 == 2, crossed, back))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        n, bits = config.side, config.grid_log2
        beat_bits, vector_bits = _beat_bits(config), _vector_bits(config)

        # -- A tile stands for n steps. What follows from the step's number is there with it.
        tile = [Signal(self.z.shape().elem_shape, name=f"tile_{at}", reset_less=True)
                for at in range(config.line_words)]
        with m.If(self.valid):
            m.d.sync += [word.eq(self.z[at]) for at, word in enumerate(tile)]
        steps = Signal(n)                       # the step that is on, a bit each
        m.d.sync += steps.eq(Cat(self.valid, steps[:-1]))
        following = Signal(bits)                # its number, a cycle ahead
        m.d.comb += following.eq(Cat(
            Cat(steps[at - 1] for at in range(1, n) if at >> bit & 1).any() for bit in range(bits)))
        columns_log2 = Signal(2)
        combined = Signal()
        columns_now = Signal(2)
        number = Signal(beat_bits)
        tile_number = Signal(beat_bits)
        m.d.comb += columns_now.eq(Mux(self.valid, self.columns_log2, columns_log2))
        m.d.comb += tile_number.eq(Mux(self.begin, 0, number))
        tail = Signal(len(self.tail))
        turned = Signal()
        ends = Signal()
        error = Signal()
        base = Signal(beat_bits)
        beats = Signal(beat_bits)
        with m.If(self.valid):
            m.d.sync += [
                columns_log2.eq(self.columns_log2),
                combined.eq(self.combine != 0),
                turned.eq(self.turned),
                ends.eq(self.ends),
                error.eq(self.error),
                base.eq(tile_number),
                number.eq(tile_number + 1),
                beats.eq(self.beats),
                tail.eq(self.tail),
            ]
        subs = [Signal(bits, name=f"sub_{cell}", reset_less=True) for cell in range(n)]
        step = Signal(bits, reset_less=True)
        m.d.sync += step.eq(following)
        m.d.sync += [sub.eq(self._sub(columns_now, following, cell)) for cell, sub in enumerate(subs)]

        # -- First: a group a cell. What goes with it waits while the group is rounded.
        given = [[Signal(self.z.shape().elem_shape, name=f"given_{cell}_{x}", reset_less=True) for x in range(n)]
                 for cell in range(n)]
        for cell in range(n):
            for x in range(n):
                choices = Array(Value.cast(tile[(x * n + cell) * n + sub]) for sub in range(n))
                m.d.sync += given[cell][x].eq(choices[subs[cell]])
        late = Signal(data.StructLayout({
            "cells": data.ArrayLayout(bits, n), "places": data.ArrayLayout(bits, n), "active": 1, "turned": 1,
            "closes": 1, "base": beat_bits, "beats": beat_bits, "tail": len(tail), "error": 1}))
        for group in range(n):
            m.d.sync += late.cells[group].eq(self._cell(columns_log2, step, group))
            m.d.sync += late.places[group].eq(self._beat(columns_log2, combined, step, group))
        m.d.sync += [
            late.active.eq(steps.any()),
            late.closes.eq(steps[-1] & ends),
            late.turned.eq(turned),
            late.base.eq(base),
            late.beats.eq(beats),
            late.tail.eq(tail),
            late.error.eq(error),
        ]
        rounded = given if not config.grouped else [
            [self._rounded(m, platform, f"rounder_{cell}_{x}", given[cell][x]) for x in range(n)] for cell in range(n)]
        for at in range(self.rounding):
            waiting = Signal(late.shape(), name=f"late_{at}")
            m.d.sync += waiting.eq(late)
            late = waiting

        # -- Second: a group a bank. Where a row spans two tiles their beats alternate.
        vector = Signal(vector_bits)
        wide = beat_bits + bits + 1
        for group in range(n):
            words = Signal(data.ArrayLayout(32, n), name=f"group_{group}", reset_less=True)
            for x in range(n):
                m.d.sync += words[x].eq(Array(rounded[cell][x] for cell in range(n))[late.cells[group]])
            at = Signal(wide, name=f"at_{group}")
            m.d.comb += at.eq(Mux(late.turned, Cat(late.base[0], late.places[group], late.base[1:]),
                                  Cat(late.places[group], late.base)))
            write_enable = Signal(name=f"write_{group}")
            write_at = Signal(vector_bits + beat_bits, name=f"write_at_{group}", reset_less=True)
            m.d.sync += write_enable.eq(late.active & (at <= late.beats))
            m.d.sync += write_at.eq(Cat(at[:beat_bits], vector))
            bank = memory.Memory(shape=32 * n, depth=config.vectors * config.vector_beats, init=[],
                                 attrs={**UNREAD, "ram_style": "block"})
            m.submodules[f"bank_{group}"] = bank
            write, read = bank.write_port(), bank.read_port()
            m.d.comb += [
                write.addr.eq(write_at),
                write.data.eq(words.as_value()),
                write.en.eq(write_enable),
                read.addr.eq(Cat(self.beat, self.vector)),
                read.en.eq(self.fetch),
                Cat(self.words[group * n + x] for x in range(n)).eq(read.data),
            ]

        self._whole(m, vector, late)
        return m

    def _rounded(self, m: Module, platform, name: str, total: data.View) -> Value:
        """The word of a sum."""
        rounder = Rounder(width=len(total.bits))
        place(m, platform, name, rounder)
        m.d.comb += rounder.i.eq(total)
        return rounder.o

    def _whole(self, m: Module, vector, late: data.View):
        """Queues what there is to know of a vector when its last group comes."""
        config = self.config
        m.submodules.whole = whole = fifo.SyncFIFO(width=about_layout(config).size, depth=config.vectors)
        close = Signal()
        done = Signal(about_layout(config))
        with m.If(late.closes):
            m.d.sync += vector.eq(vector + 1)
        m.d.sync += [
            close.eq(late.closes),
            done.beats.eq(late.beats),
            done.tail.eq(late.tail),
            done.error.eq(late.error),
        ]
        m.d.comb += [
            whole.w_data.eq(done),
            whole.w_en.eq(close),
            self.about.eq(whole.r_data),
            self.ready.eq(whole.r_rdy),
            whole.r_en.eq(self.pop),
        ]


class SumStream(Part):
    """Reads the lanes' vectors in the order in which their chunks came, beat after beat, as one stream.

    Parameters  config: TTConfig
    Members     push, lane          In  a chunk begins on a lane
                room                Out  there may be more
                about[k], words[k]  In  of each SumMemory
                ready               In  of the SumMemories
                pop, fetch, beat    Out  to the SumMemories
                vector[k]           Out  to each SumMemory
                popped              Out  a bit a lane, a vector's room is free again
                o                   Out(stream)
    Timing      one beat per cycle, also from vector to vector; 3 cycles from `ready` to the first beat
    Handshake   o comes from registers; o.ready reaches enables and this part's own pointers
    Reset       drops all
    Golden      golden.tt.layout.Layout          Tests  verif/tt/test_unit.py
    """

    def __init__(self, config: TTConfig):
        self.config = config
        lanes = config.lanes
        super().__init__({
            "push": In(1), "lane": In(1), "room": Out(1),
            "about": In(about_layout(config)).array(lanes), "ready": In(lanes), "pop": Out(lanes),
            "fetch": Out(1), "vector": Out(_vector_bits(config)).array(lanes), "beat": Out(_beat_bits(config)),
            "words": In(data.ArrayLayout(32, config.beat_words)).array(lanes),
            "popped": Out(lanes),
            "o": Out(stream.Signature(sum_layout(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        lanes = range(config.lanes)

        # -- The order of the lanes. Chunks under way are lookups under way: room only ends where the consumer stands.
        depth = 4 * config.in_flight * config.lanes
        m.submodules.order = order = fifo.SyncFIFO(width=1, depth=depth)
        count = Signal(range(depth + 1))
        start = Signal()
        refill = Signal()
        # the next vector's lane
        following = Signal()
        following_valid = Signal()
        m.d.comb += [
            order.w_data.eq(self.lane),
            order.w_en.eq(self.push),
            refill.eq(order.r_rdy & (~following_valid | start)),
            order.r_en.eq(refill),
        ]
        m.d.sync += count.eq(count + self.push - refill)
        m.d.sync += self.room.eq(count < depth - 4)
        m.d.sync += following_valid.eq(refill | (following_valid & ~start))
        with m.If(refill):
            m.d.sync += following.eq(order.r_data)

        # -- The vector that is being read.
        busy = Signal()
        lane = Signal()
        last = Signal()
        error = Signal()
        left = Signal(_beat_bits(config))
        tail = Signal(2 * config.grid_log2)
        step = Signal()
        free_1 = Signal()
        free_2 = Signal()
        valid = Signal()
        about = self.about[0] if config.lanes == 1 else data.View(
            about_layout(config), Mux(following, self.about[1].as_value(), self.about[0].as_value()))
        ready = self.ready[0] if config.lanes == 1 else Mux(following, self.ready[1], self.ready[0])
        m.d.comb += [
            free_2.eq(~self.o.valid | self.o.ready),
            free_1.eq(~valid | free_2),
            step.eq(busy & free_1),
            self.fetch.eq(step),
            start.eq(following_valid & ready & (~busy | (step & last))),
        ]
        m.d.sync += busy.eq(start | (busy & ~(step & last)))
        with m.If(start):
            m.d.sync += [
                self.beat.eq(0),
                left.eq(about.beats),
                last.eq(about.beats == 0),
                tail.eq(about.tail),
                error.eq(about.error),
            ]
            if config.lanes == 2:
                m.d.sync += lane.eq(following)
        with m.Elif(step):
            m.d.sync += self.beat.eq(self.beat + 1)
            m.d.sync += left.eq(left - 1)
            m.d.sync += last.eq(left == 1)
        for at in lanes:
            mine = (lane == at) if config.lanes == 2 else 1
            m.d.comb += self.pop[at].eq(start & (following == at if config.lanes == 2 else 1))
            m.d.sync += self.popped[at].eq(step & last & mine)
            with m.If(step & last & mine):
                m.d.sync += self.vector[at].eq(self.vector[at] + 1)

        # -- Its beat, as the memories give it; then the output register, which blanks what lies past the end.
        now_lane = Signal()
        now_last = Signal()
        now_error = Signal()
        blank = Signal(config.beat_words)
        m.d.sync += valid.eq(step | (valid & ~free_2))
        with m.If(step):
            m.d.sync += [
                now_lane.eq(lane),
                now_last.eq(last),
                now_error.eq(last & error),
                blank.eq(Cat(Const(0, 1), *(last & (tail < at) for at in range(1, config.beat_words)))),
            ]
        words = Signal(data.ArrayLayout(32, config.beat_words), reset_less=True)
        m.d.sync += self.o.valid.eq(valid | (self.o.valid & ~self.o.ready))
        with m.If(free_2):
            m.d.sync += self.o.payload.last.eq(now_last)
            m.d.sync += self.o.payload.error.eq(now_error)
            for at in range(config.beat_words):
                word = self.words[0][at] if config.lanes == 1 else Mux(now_lane, self.words[1][at], self.words[0][at])
                m.d.sync += words[at].eq(word)
                with m.If(blank[at]):
                    m.d.sync += words[at].eq(0)
        m.d.comb += self.o.payload.words.eq(words)
        return m
