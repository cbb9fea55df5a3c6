"""The lookup engines: samples' indices into accesses of the logger, and its answers into translated samples."""

from typing import Any, NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from hw.hotline.config import HotlineConfig
from hw.hotline.records import (
    HOT,
    NONE,
    access_layout,
    answer_layout,
    beat_layout,
    register_layout,
    sample_layout,
)
from hw.place import Part
from hw.stream.fifo import Fifo

ROWS_DEPTH = 16     # beats of row numbers that wait for their wave
MARGIN = 8          # beats that may still come when a queue says that it fills up


def lookup_error_layout(config: HotlineConfig) -> data.StructLayout:
    """An index that is not below its table's rows. sample: its number since `begin`; value: the index."""
    return data.StructLayout({"valid": 1, "sample": 32, "position": config.position_bits, "value": 32})


def waiting_beats(config: HotlineConfig) -> int:
    """Beats that wait for their answers: as many as the logger has under way, and those on the way to it."""
    return 1 << (config.waves * config.beats_of_wave + 2 * MARGIN - 1).bit_length()


class _Stages(NamedTuple):
    """What `LookupArray._stages` hands on."""

    valid: list[Any]
    first: Any
    last: Any
    text: list[Any]
    at: Any


class LookupArray(Part):
    """Asks the logger for every index of a sample and replaces those that are hot.

    row = first[p] + word[p] for each word p < indices that is neither NONE nor in a pinned position;
    o.word[p] = 1 << HOT | number where it was hit, else word[p]; o.cold = any was asked for and not hit, in the beat
    Source: Hotline §6.3 (lookup engines)

    Parameters  config: HotlineConfig
    Members     registers       In  see `register_layout`, written only while idle
                indices, learn  In  stable while not idle
                begin           In  a pulse: samples count from 0 again
                i               In(stream beat)
                o_waves         Out(stream access)
                i_answers       In(stream answer)  one for every wave in order
                o               Out(stream sample)
                samples         Out  a pulse for each sample whose answers are in
                error           Out  see `lookup_error_layout`
                idle            Out
    Shapes      `beats_of_wave` beats that ask for something make a wave, in order, lane after lane. A wave goes
                before it is full as soon as no further beat is there for it. Beats that ask for nothing make no wave
    Timing      a beat per cycle; 6 cycles from i to o_waves with one beat a wave, else 8 for a wave that is not full;
                1 cycle from i_answers to o. `idle` rises a cycle late
    Handshake   i.ready comes from a register: it falls when more than `waiting_beats` - 8 beats wait for answers or
                more than 8 for their wave. o and o_waves come from registers. o.ready reaches i_answers.ready. While
                `learn` is on nothing comes out of o
    Faults      an index that is looked up and not below its table's rows, or whose position's register was not
                written since the reset: the error stays until the reset. Nothing of the beat with that index, nor of
                any beat that comes later, goes out; what came before does, even if its sample is cut short by that
    Reset       drops everything; all registers count as not written
    Golden      golden.hotline.lookup          Tests  verif/hotline/test_lookup.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        super().__init__({
            "registers": In(register_layout(config)),
            "indices": In(8),
            "learn": In(1),
            "begin": In(1),
            "i": In(stream.Signature(beat_layout(config))),
            "o_waves": Out(stream.Signature(access_layout(config))),
            "i_answers": In(stream.Signature(answer_layout(config))),
            "o": Out(stream.Signature(sample_layout(config))),
            "samples": Out(1),
            "error": Out(lookup_error_layout(config)),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        words = range(config.words)
        lanes = data.ArrayLayout(data.StructLayout({"valid": 1, "row": config.domain_bits}), config.words)
        waiting_layout = data.StructLayout({
            "words": data.ArrayLayout(32, config.words), "asked": config.words, "first": 1, "last": 1, "asks": 1})

        ready = Signal(init=1)
        stages = self._stages(m, ready)
        valid, first, last, text = stages.valid, stages.first, stages.last, stages.text
        asked, inside, row = self._asked(m, text, stages.at)

        # -- Stage 4: faults, and what is left of the beat goes into the queues.
        bad = asked & ~inside
        fault = Signal()
        stopped = Signal()
        asks = Signal()
        worst = Signal(config.words, reset_less=True)   # the lowest bad one
        rows_4 = Signal(lanes, reset_less=True)
        push = Signal()
        sample = Signal(32)
        m.d.sync += [
            fault.eq(valid[3] & bad.any()),
            asks.eq(asked.any()),
            worst.eq(Cat(bad[w] & ~bad[:w].any() for w in words)),
            *(rows_4[w].valid.eq(asked[w]) for w in words),
            *(rows_4[w].row.eq(row[w]) for w in words),
            stopped.eq(stopped | fault),
        ]
        m.d.comb += push.eq(valid[4] & ~fault & ~stopped)
        with m.If(self.begin):
            m.d.sync += sample.eq(0)
        with m.Elif(push & last[4]):
            m.d.sync += sample.eq(sample + 1)
        self._report(m, fault & ~stopped, sample, stages.at, worst, text[4])

        depth = waiting_beats(config)
        m.submodules.waiting = waiting = Fifo(waiting_layout, depth=depth)
        m.submodules.rows = rows = Fifo(lanes, depth=ROWS_DEPTH)
        behind = waiting.i.payload
        m.d.comb += [
            waiting.i.valid.eq(push),
            behind.first.eq(first[4]),
            behind.last.eq(last[4]),
            behind.asks.eq(asks),
            behind.asked.eq(Cat(rows_4[w].valid for w in words)),
            *(behind.words[w].eq(text[4][w]) for w in words),
            rows.i.valid.eq(push & asks),
            rows.i.payload.eq(rows_4),
        ]

        # -- Waves, and answers to the beats they are made of.
        put = Signal()
        head = waiting.o.payload
        answers, answered = self._waves(m, rows, put & head.asks)
        m.d.comb += put.eq(waiting.o.valid & (~head.asks | answered) & (~self.o.valid | self.o.ready))
        m.d.comb += waiting.o.ready.eq(put)
        out = self.o.payload
        hit, number = Cat(answer.hit for answer in answers), [answer.number for answer in answers]
        with m.If(put):
            m.d.sync += [
                out.first.eq(head.first),
                out.last.eq(head.last),
                out.cold.eq((head.asked & ~hit).any()),
                *(out.words[w].eq(Mux(head.asked[w] & hit[w], 1 << HOT | number[w], head.words[w])) for w in words),
            ]
        m.d.sync += self.o.valid.eq((put & ~self.learn) | (self.o.valid & ~self.o.ready))
        m.d.sync += self.samples.eq(put & head.last)

        # -- Room for what the stages hold when a queue fills up.
        levels = []
        for name, size, more, less in (("waiting", depth, push, put),
                                       ("rows", ROWS_DEPTH, push & asks, rows.o.valid & rows.o.ready)):
            level = Signal(range(size + 2), name=f"level_{name}")
            m.d.sync += level.eq(level + more - less)
            levels.append(level <= size - MARGIN)
        m.d.sync += ready.eq(levels[0] & levels[1])
        m.d.sync += self.idle.eq(~(Cat(valid).any() | waiting.held | self.o.valid))
        return m

    def _stages(self, m: Module, ready: Signal) -> _Stages:
        """A beat on its way, at each of its stages, and which of its sample's it is at stage 1."""
        words = range(self.config.words)
        valid = [Signal(name=f"valid_{stage}") for stage in range(5)]
        first, last = ([Signal(name=f"{name}_{stage}", reset_less=True) for stage in range(5)]
                       for name in ("first", "last"))
        text = [[Signal(32, name=f"word_{stage}_{w}", reset_less=True) for w in words] for stage in range(5)]
        following, at = (Signal(range(self.config.sample_beats_max), name=name) for name in ("following", "at"))
        number = Mux(self.i.payload.first, 0, following)
        m.d.comb += [
            self.i.ready.eq(ready),
            valid[0].eq(self.i.valid & ready),
            first[0].eq(self.i.payload.first),
            last[0].eq(self.i.payload.last),
            *(text[0][w].eq(self.i.payload.words[w]) for w in words),
        ]
        m.d.sync += at.eq(number)
        with m.If(valid[0]):
            m.d.sync += following.eq(number + 1)
        for stage in range(1, 5):
            m.d.sync += [
                valid[stage].eq(valid[stage - 1]),
                first[stage].eq(first[stage - 1]),
                last[stage].eq(last[stage - 1]),
                *(text[stage][w].eq(text[stage - 1][w]) for w in words),
            ]
        return _Stages(valid=valid, first=first, last=last, text=text, at=at)

    def _asked(self, m: Module, text: list[list[Signal]], at: Signal) -> tuple[Signal, Signal, list[Signal]]:
        """Stage 2: the positions' registers. Stage 3: compared and added, a carry chain each. Returns which words are
        asked for, which are below their table's rows, and their rows."""
        config = self.config
        words = range(config.words)
        asked = Signal(config.words, reset_less=True)
        inside = Signal(config.words, reset_less=True)
        row = [Signal(config.domain_bits, name=f"row_{w}", reset_less=True) for w in words]
        for w in words:
            entry, written = self._register(m, w, at)
            is_index, is_none = Signal(name=f"is_index_{w}"), Signal(name=f"is_none_{w}")
            m.d.sync += [
                is_index.eq(self.indices > Cat(Const(w, (config.words - 1).bit_length()), at)),
                is_none.eq(text[1][w] == NONE),
                asked[w].eq(is_index & ~is_none & ~(entry.pinned & written)),
                inside[w].eq((text[2][w] < entry.rows) & written),
                row[w].eq(entry.first + text[2][w]),
            ]
        return asked, inside, row

    def _report(self, m: Module, wrong, sample: Signal, at: Signal, worst: Signal, text: list[Signal]) -> None:
        """The first fault: where the word of the beat at stage 4 that `worst` marks is."""
        words = range(self.config.words)
        at_4 = Signal.like(at, name="at_4", reset_less=True)
        at_2, at_3 = (Signal.like(at, name=f"at_{stage}", reset_less=True) for stage in (2, 3))
        m.d.sync += at_2.eq(at)
        m.d.sync += at_3.eq(at_2)
        m.d.sync += at_4.eq(at_3)
        error = self.error
        with m.If(wrong):
            m.d.sync += [
                error.valid.eq(1),
                error.sample.eq(sample),
                error.position.eq(Cat(*(Cat(worst[w] for w in words if w >> bit & 1).any()
                                        for bit in range((len(words) - 1).bit_length())), at_4)),
                error.value.eq(_choose(worst, text)),
            ]

    def _register(self, m: Module, word: int, at):
        """The register of the position of `word` in beat `at`, a cycle later; and whether it was written."""
        config = self.config
        depth = config.positions // config.words
        bits = (config.words - 1).bit_length()
        layout = data.StructLayout({"first": config.domain_bits, "rows": 32, "pinned": 1})
        given = self.registers
        here = Signal(name=f"here_{word}")
        entry, known = Signal(layout, name=f"entry_{word}", reset_less=True), Signal(depth, name=f"known_{word}")
        written = Signal(name=f"written_{word}")
        m.d.comb += here.eq(given.valid & (given.position[:bits] == word))
        # With one position a word there is nothing to choose, and no signal of no bits in the Verilog.
        place = given.position[bits:] if depth > 1 else Const(0, 1)
        number = at[:(depth - 1).bit_length()] if depth > 1 else Const(0, 1)
        store = memory.Memory(shape=layout, depth=max(2, depth), init=[], attrs={"ram_style": "distributed"})
        m.submodules[f"register_{word}"] = store
        write, read = store.write_port(), store.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(here),
            write.addr.eq(place),
            write.data.first.eq(given.first),
            write.data.rows.eq(given.rows),
            write.data.pinned.eq(given.pinned),
            read.addr.eq(number),
        ]
        m.d.sync += entry.eq(read.data)
        m.d.sync += written.eq(known.bit_select(number, 1))
        for k in range(depth):
            with m.If(here & (place == k)):
                m.d.sync += known[k].eq(1)
        return entry, written

    def _waves(self, m: Module, rows: Fifo, taken):
        """Makes waves of the beats in `rows`; the answers to the next beat and whether they are there. `taken`: the
        beat goes on."""
        config = self.config
        wave, answer = self.o_waves, self.i_answers
        m.d.comb += wave.payload.learn.eq(self.learn)
        parts = config.beats_of_wave
        if parts == 1:
            m.d.comb += [
                wave.valid.eq(rows.o.valid),
                rows.o.ready.eq(wave.ready),
                wave.payload.lanes.eq(rows.o.payload),
                answer.ready.eq(taken),
            ]
            return list(answer.payload.lanes), answer.valid

        # Every wave that is under way has a beat that waits: there is room for its size.
        m.submodules.sizes = sizes = Fifo(range(parts), depth=waiting_beats(config))
        filled = Signal(range(parts))
        load = Signal()
        part = Mux(wave.valid, 0, filled)
        full = Signal()
        m.d.comb += [
            load.eq(rows.o.valid & (~wave.valid | wave.ready)),
            rows.o.ready.eq(~wave.valid | wave.ready),
            full.eq(~wave.valid & (filled == parts - 1)),
            sizes.i.valid.eq(wave.valid & wave.ready),
            sizes.i.payload.eq(filled),
        ]
        # `filled` counts the beats of the wave that is being made, less one once it is offered.
        with m.If(load):
            m.d.sync += wave.valid.eq(full)
            m.d.sync += filled.eq(part + ~full)
        with m.Elif(~wave.valid):
            m.d.sync += wave.valid.eq(filled != 0)
            with m.If(filled != 0):
                m.d.sync += filled.eq(filled - 1)
        with m.Elif(wave.ready):
            m.d.sync += wave.valid.eq(0)
            m.d.sync += filled.eq(0)
        for k in range(parts):
            for w in range(config.words):
                lane = Signal(wave.payload.lanes[0].shape(), name=f"lane_{k}_{w}", reset_less=True)
                m.d.comb += wave.payload.lanes[k * config.words + w].eq(lane)
                with m.If(load & (part == k)):
                    m.d.sync += lane.eq(rows.o.payload[w])
                with m.Elif(load & (part == 0)):
                    m.d.sync += lane.valid.eq(0)

        turn = Signal(range(parts))
        ends = Signal()
        m.d.comb += ends.eq(turn == sizes.o.payload)
        m.d.comb += answer.ready.eq(taken & ends)
        m.d.comb += sizes.o.ready.eq(taken & ends)
        with m.If(taken):
            m.d.sync += turn.eq(Mux(ends, 0, turn + 1))
        chosen = []
        for w in range(config.words):
            lane = Signal(answer.payload.lanes[0].shape(), name=f"answer_{w}")
            rivals = [answer.payload.lanes[k * config.words + w].as_value() for k in range(parts)]
            m.d.comb += lane.eq(Array(rivals)[turn])
            chosen.append(lane)
        return chosen, answer.valid & sizes.o.valid


def _choose(marks, values):
    """The value whose bit of `marks` is set."""
    found = Const(0, 32)
    for k, value in enumerate(values):
        found = found | Mux(marks[k], value, 0)
    return found
