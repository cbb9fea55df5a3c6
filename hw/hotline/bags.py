"""Pooled samples: rows of each sample's bags, from the GPU's memory and the embedding buffer, joined to vectors."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import read_layout, request_layout
from hw.hotline.config import ROW_BEATS_LOG2_MAX, HotlineConfig
from hw.hotline.joined import CONTEXT_BITS, CONTEXTS, InOrder, JoinedPositions, RowLength
from hw.hotline.records import HOT, gathered_layout, place_layout, register_layout
from hw.hotline.reducer import MINUS_ZERO, Reducer
from hw.hotline.row_table import location_layout, query_layout
from hw.isa.hotline import JOIN
from hw.place import Part
from hw.stream.fifo import Fifo

SAMPLES = 64        # beats of samples at hand
AHEAD = 256         # rows asked for before the reducer comes to them
REQUESTS = 16       # of either kind of row that wait for their port
HOT_ROW, COLD_ROW, NO_ROW = range(3)
# Cycles from a row's last beat into the reducer until its vector is marked as free, three before the next row's first
# beat can be.
PASSING = Reducer.turnaround - 3


class Step(data.Struct):
    """A position of a vector under way. at: where its sample's beats are; context: where its own are."""

    position: 6
    at: 6
    context: CONTEXT_BITS


class Row(data.Struct):
    """A row on its way to the reducer. last: of its vector."""

    kind: 2
    join: 2
    last: 1
    context: CONTEXT_BITS


class _State(NamedTuple):
    """What `BagReader.elaborate` hands to other methods."""

    batch: Signal
    begin: Signal
    length: RowLength
    positions: JoinedPositions
    sample_over: Signal
    sample_started: Signal
    sample_there: Signal


class _Wires(NamedTuple):
    """What `BagReader._start` hands to other methods."""

    samples_left: Signal
    advance: Signal
    fresh: Signal
    active: Fifo


class _Reduced(NamedTuple):
    """What `BagReader._reduce` hands to other methods."""

    leaves: Signal
    tag: Any


class BagReader(Part):
    """Makes the vectors of a pooled mini-batch: rows joined position by position.

    A vector begins with the row of each position whose `join` is 0; rows of the positions behind it are added to it or
    multiplied with it, element by element, in order.      Source: Hotline thesis, §6.6 (reducer), fig. 6.10

    Parameters  config: HotlineConfig
    Members     registers   In  see `register_layout`
                indices, sample_beats, row_beats_log2  In  of the job, they stand while busy
                hot         In  address of the hot rows in bytes, stands while busy
                i           In(stream of gathered_layout)
                o           Out(stream)  beats of vectors
                o_place     Out(stream of place_layout)  to the input buffer
                i_beats     In(stream of a beat)  from the input buffer
                o_query     Out(stream of query_layout)  to the row table
                i_query     In(stream of location_layout)  from the row table
                o_rows      Out(stream of slots)  to the embedding buffer
                i_rows      In(stream of a beat)  from the embedding buffer
                o_requests  Out(stream)  to a client of a ReadPort
                i_hot       In(stream)  what comes back of it
                busy        Out  from the cycle after i is taken until the last vector has left
                v_mul       Out  a beat was multiplied
                v_add       Out  a beat was added
                gpu_rd      Out  a hot row is asked for
                error       Out  a beat of a hot row had an error; until a reset
                idle        Out  the inverse of busy
    Shapes      each sample and position that begins a vector: row_beats beats, in order. A hot row is at hot + number *
                row_beats beats; a cold one is named by its ordinal. NONE, or a row of a pinned position, is +0 where
                it begins a vector and left out elsewhere. Positions before the first that begins one are left out
    Timing      a beat per cycle as far as rows come that fast: vectors one behind the other, of several samples, take
                turns, 64 beats of them. Rows of one vector alone follow every `turnaround` + row_beats cycles. Before a
                mini-batch its positions are scanned, a cycle each
    Handshake   all valids come from registers, but o_rows.valid, which is i_query's. i_beats is always taken
    Numerics    golden.fp.fp32.flush of a row that begins a vector, then golden.fp.fp32.add and mul; bit-exact
    Faults      a beat of a hot row with an error is not taken, `error` stays and nothing goes on until a reset
    Reset       drops the mini-batch; registers count as not written: they have to be written before they are used
    Golden      golden.hotline.bags          Tests  verif/hotline/test_bags.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        beat = stream.Signature(32 * config.words)
        super().__init__({
            "registers": In(register_layout(config)), "indices": In(8), "sample_beats": In(4),
            "row_beats_log2": In(range(ROW_BEATS_LOG2_MAX + 1)), "hot": In(64),
            "i": In(stream.Signature(gathered_layout(config))), "o": Out(beat),
            "o_place": Out(stream.Signature(place_layout(config))), "i_beats": In(beat),
            "o_query": Out(stream.Signature(query_layout(config))),
            "i_query": In(stream.Signature(location_layout(config))),
            "o_rows": Out(stream.Signature(config.slot_bits)), "i_rows": In(beat),
            "o_requests": Out(stream.Signature(request_layout())),
            "i_hot": In(stream.Signature(read_layout(config.beat_bytes))),
            "busy": Out(1), "v_mul": Out(1), "v_add": Out(1), "gpu_rd": Out(1), "error": Out(1),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        # -- What the parts below share.
        batch = Signal(gathered_layout(self.config), reset_less=True)
        begin = Signal()                   # positions are known: samples may be read
        length = RowLength(m, self.row_beats_log2)
        m.submodules.positions = positions = JoinedPositions(self.config)
        taken = self.i.valid & self.i.ready
        m.d.comb += [
            positions.registers.eq(self.registers),
            positions.indices.eq(self.indices),
            positions.sample_beats.eq(self.sample_beats),
            positions.load.eq(taken),
            positions.start.eq(self.i.payload.start),
            positions.samples.eq(self.i.payload.samples),
            begin.eq(positions.done),
        ]
        # A whole sample is at hand that was not started; it is started; all rows of the oldest one were asked for.
        sample_there = Signal()
        sample_started = Signal()
        sample_over = Signal()
        state = _State(
            batch=batch, begin=begin, length=length, positions=positions, sample_over=sample_over,
            sample_started=sample_started, sample_there=sample_there)
        samples = self._samples(m, state)
        step, started, ended, starts = self._start(m, state)
        rows = self._ask(m, state, samples, starts, step, started, ended)
        reducer, reduced = self._reduce(m, state, rows)
        left = self._leave(m, state, starts, reduced, reducer)

        # -- The mini-batch.
        over = Signal()
        m.d.sync += over.eq(starts.samples_left == 0)
        m.d.comb += self.idle.eq(~self.busy)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += self.busy.eq(self.i.valid)
                with m.If(self.i.valid):
                    m.d.sync += batch.eq(self.i.payload)
                    m.next = "LOOK"
            with m.State("LOOK"):
                with m.If(begin):
                    m.next = "WAIT"
            with m.State("WAIT"):       # for what `over` says
                m.next = "RUN"
            with m.State("RUN"):
                with m.If(over & left):
                    m.d.sync += self.busy.eq(0)
                    m.next = "IDLE"
        return m

    def _samples(self, m: Module, state: _State) -> memory.Memory:
        """Reads samples ahead, as there is room for their beats."""
        config = self.config
        m.submodules.samples = samples = memory.Memory(
            shape=32 * config.words, depth=SAMPLES, init=[], attrs={"ram_style": "distributed"})
        write = samples.write_port()
        o = self.o_place
        # more: beats_left != 0, from a register
        beats_left = Signal(20)
        more = Signal()
        at = Signal(6)
        room = Signal(range(SAMPLES + 1), init=SAMPLES)
        part = Signal(4)
        last_part = Signal(4, reset_less=True)
        whole = Signal()
        asks = o.valid & o.ready
        waiting = Signal(range(SAMPLES + 1))        # whole samples that nobody has started
        m.d.comb += [
            o.valid.eq(more & (room != 0)),
            o.payload.frame.eq(state.batch.frame),
            self.i_beats.ready.eq(1),
            write.en.eq(self.i_beats.valid),
            write.addr.eq(at),
            write.data.eq(self.i_beats.payload),
            whole.eq(self.i_beats.valid & (part == last_part)),
            state.sample_there.eq(waiting != 0),
        ]
        over = Signal()
        place = Signal.like(o.payload.beat, reset_less=True)
        m.d.comb += o.payload.beat.eq(place)
        m.d.sync += [
            last_part.eq(self.sample_beats - 1),
            over.eq(state.sample_over),
            room.eq(room + Mux(over, self.sample_beats, 0) - asks),
            waiting.eq(waiting + whole - state.sample_started),
        ]
        with m.If(state.begin):
            # Without vectors no sample is needed.
            m.d.sync += beats_left.eq(state.positions.beats)
            m.d.sync += more.eq(state.positions.some & (state.positions.beats != 0))
            m.d.sync += place.eq(state.positions.first)
        with m.Elif(asks):
            m.d.sync += beats_left.eq(beats_left - 1)
            m.d.sync += more.eq(beats_left != 1)
            m.d.sync += place.eq(place + 1)
        with m.If(self.i_beats.valid):
            m.d.sync += at.eq(at + 1)
            m.d.sync += part.eq(Mux(whole, 0, part + 1))
        return samples

    def _start(self, m: Module, state: _State):
        """Which position comes next: the first of a new vector, if there is one and room for it, else the next of
        the vector that has waited longest. Returns it, that there is one, and what says that a vector's last position
        has been asked for."""
        position = Signal(6)
        at = Signal(6)
        joined = state.positions.joined[0]
        samples_left = Signal(16)
        # Beats of vectors of which not all rows have been asked for: no more than their contexts, full with bit 6.
        span = Signal(CONTEXT_BITS + 1)
        tail = Signal(CONTEXT_BITS)
        advance = Signal()
        fresh = Signal()
        closes = Signal(CONTEXTS)
        step = Signal(Step, reset_less=True)
        valid = Signal()
        m.submodules.active = active = Fifo(Step, depth=CONTEXTS)
        m.submodules.asked = asked = InOrder()
        m.d.comb += [
            state.positions.position[0].eq(position),
            fresh.eq(state.sample_there & ~span[CONTEXT_BITS] & advance),
            state.sample_started.eq(fresh & ~joined.more),
            active.o.ready.eq(advance & ~fresh),
            asked.row_beats.eq(state.length.beats),
            asked.rewind.eq(state.begin),
            asked.step.eq(asked.there),
            state.sample_over.eq(asked.there & closes.bit_select(asked.context, 1)),
        ]
        with m.If(advance):
            m.d.sync += valid.eq(fresh | active.o.valid)
            m.d.sync += step.eq(active.o.payload)
        with m.If(fresh):
            m.d.sync += [
                step.position.eq(position),
                step.at.eq(at),
                step.context.eq(tail),
                tail.eq(tail + state.length.beats),
                position.eq(Mux(joined.more, joined.next, state.positions.begin)),
                closes.bit_select(tail, 1).eq(~joined.more),
            ]
        with m.If(state.begin):
            m.d.sync += samples_left.eq(Mux(state.positions.some, state.batch.samples, 0))
            m.d.sync += position.eq(state.positions.begin)
            m.d.sync += tail.eq(0)
        with m.Elif(state.sample_started):
            m.d.sync += samples_left.eq(samples_left - 1)
            m.d.sync += at.eq(at + self.sample_beats)
        m.d.sync += span.eq(state.length.counted(span, fresh, asked.there))
        wires = _Wires(samples_left=samples_left, advance=advance, fresh=fresh, active=active)
        return step, valid, asked.mark, wires

    def _ask(self, m: Module, state: _State, samples, starts, step, valid, ended) -> Fifo:
        """Asks for the row of each position, of whom has it; the queue of the rows that will come, in order."""
        config = self.config
        beat_log2 = (config.beat_bytes - 1).bit_length()
        word_bits = (config.words - 1).bit_length()
        about, words = state.positions.joined[1], samples.read_port(domain="comb")
        m.submodules.rows = rows = Fifo(Row, depth=AHEAD)
        m.submodules.hot_rows = hot = Fifo(config.hot_bits, depth=REQUESTS)
        m.submodules.cold_rows = cold = Fifo(config.slot_bits, depth=REQUESTS)
        word = Signal(32, reset_less=True)
        row = Signal(Row, reset_less=True)
        pinned = Signal(reset_less=True)
        read = Signal()
        m.d.comb += [
            state.positions.position[1].eq(step.position),
            words.addr.eq(step.at + step.position[word_bits:]),
            starts.active.i.valid.eq(valid & about.follows & starts.advance),
            starts.active.i.payload.position.eq(step.position + 1),
            *(starts.active.i.payload[name].eq(step[name]) for name in ("at", "context")),
        ]
        m.d.comb += ended.valid.eq(valid & ~about.follows & starts.advance)
        m.d.comb += ended.context.eq(step.context)
        with m.If(starts.advance):
            m.d.sync += [
                read.eq(valid),
                pinned.eq(about.pinned),
                row.join.eq(about.join),
                row.last.eq(~about.follows),
                row.context.eq(step.context),
                word.eq(words.data.word_select(step.position[:word_bits], 32)),
            ]
        # -- What the word says.
        known = Signal(Row, reset_less=True)
        held = Signal()
        number = Signal(max(config.hot_bits, config.slot_bits), reset_less=True)
        with m.If(starts.advance):
            m.d.sync += [
                held.eq(read),
                known.eq(row),
                number.eq(word),
                known.kind.eq(Mux(pinned | word.all(), NO_ROW, Mux(word[HOT], HOT_ROW, COLD_ROW))),
            ]
        go = Signal()
        m.d.comb += [
            go.eq(held & rows.i.ready & hot.i.ready & cold.i.ready),
            starts.advance.eq(~held | go),
            rows.i.valid.eq(go),
            rows.i.payload.eq(known),
            hot.i.valid.eq(go & (known.kind == HOT_ROW)),
            hot.i.payload.eq(number),
            cold.i.valid.eq(go & (known.kind == COLD_ROW)),
            cold.i.payload.eq(number),
            self.o_query.valid.eq(cold.o.valid),
            cold.o.ready.eq(self.o_query.ready),
            self.o_query.payload.batch.eq(state.batch.batch),
            self.o_query.payload.ordinal.eq(cold.o.payload),
            self.o_rows.valid.eq(self.i_query.valid),
            self.i_query.ready.eq(self.o_rows.ready),
            self.o_rows.payload.eq(self.i_query.payload.slot),
        ]
        # -- Hot rows: shifted, then added.
        offset = Signal(config.hot_bits + ROW_BEATS_LOG2_MAX, reset_less=True)
        shifted = Signal()
        o = self.o_requests
        address = Signal(64, reset_less=True)
        move = ~o.valid | o.ready
        m.d.comb += hot.o.ready.eq(~shifted | move)
        m.d.comb += o.payload.address.eq(address)
        m.d.comb += o.payload.beats.eq(state.length.beats)
        with m.If(hot.o.ready):
            m.d.sync += shifted.eq(hot.o.valid)
            m.d.sync += offset.eq(hot.o.payload << state.length.log2)
        with m.If(move):
            m.d.sync += o.valid.eq(shifted)
            m.d.sync += address.eq(self.hot + Cat(Const(0, beat_log2), offset))
        m.d.sync += self.gpu_rd.eq(o.valid & o.ready)
        return rows

    def _reduce(self, m: Module, state: _State, rows: Fifo) -> tuple[Reducer, _Reduced]:
        """Rows into the reducer, as they come; a vector's row only when the one before it is through."""
        config = self.config
        tag = data.StructLayout({"last": 1, "ends": 1, "start": CONTEXT_BITS, "context": CONTEXT_BITS})
        reducer = Reducer(words=config.words, contexts=CONTEXTS, tag_bits=tag.size)
        m.submodules.reducer = reducer
        # Vectors that have a row in the reducer. With rows longer than its pipeline no beat meets its own context.
        pending = Signal(CONTEXTS)
        short = Signal(reset_less=True)
        # Beats of vectors that have begun and not left.
        under_way = Signal(CONTEXT_BITS + 1)
        leaves = Signal()      # a vector leaves
        left = Signal()

        waits = Signal(Row, reset_less=True)
        waiting = Signal()
        blocked = Signal(reset_less=True)
        now = Signal(Row, reset_less=True)
        there = Signal()
        beat = Signal(ROW_BEATS_LOG2_MAX)
        move = Signal()
        take = Signal()
        ends = state.length.is_last(m, beat, take)
        begins = Signal()
        coming = rows.o.payload
        m.d.comb += begins.eq(waits.join == JOIN.BEGIN)
        m.d.comb += move.eq(waiting & ~blocked & (~there | (take & ends)) & ~(begins & under_way[CONTEXT_BITS]))
        m.d.comb += rows.o.ready.eq(~waiting | move)
        m.d.sync += short.eq(state.length.last < Reducer.turnaround)
        m.d.sync += left.eq(leaves)
        m.d.sync += under_way.eq(state.length.counted(under_way, move & begins, left))
        with m.If(rows.o.ready):
            m.d.sync += waiting.eq(rows.o.valid)
            m.d.sync += waits.eq(coming)
            m.d.sync += blocked.eq(short & (pending.bit_select(coming.context, 1)
                                            | (waiting & (coming.context == waits.context))))
        with m.Else():
            m.d.sync += blocked.eq(short & pending.bit_select(waits.context, 1))
        with m.If(~there | (take & ends)):
            m.d.sync += there.eq(move)
            m.d.sync += now.eq(waits)
        through = Signal(data.ArrayLayout(data.StructLayout({"valid": 1, "context": CONTEXT_BITS}),
                                          PASSING))
        m.d.sync += [
            through[0].valid.eq(take & ends),
            through[0].context.eq(now.context),
            *(through[k].eq(through[k - 1]) for k in range(1, PASSING)),
        ]
        done = through[-1]
        m.d.sync += pending.eq((pending & ~Mux(done.valid, 1 << done.context, 0)) | Mux(move, 1 << waits.context, 0))

        # -- Beats.
        failed = Signal()
        there_now = Signal()
        hot, cold = self.i_hot, self.i_rows
        tagged = tag(reducer.i.tag)
        left_out = (now.kind == NO_ROW) & (now.join != JOIN.BEGIN)
        filler = Mux(left_out, MINUS_ZERO, 0)
        m.d.comb += [
            there_now.eq(Mux(now.kind == HOT_ROW, hot.valid & ~hot.payload.error,
                             (now.kind == NO_ROW) | cold.valid)),
            take.eq(there & there_now & ~failed),
            hot.ready.eq(there & ~failed & ~hot.payload.error & (now.kind == HOT_ROW)),
            cold.ready.eq(there & ~failed & (now.kind == COLD_ROW)),
            reducer.i_valid.eq(take),
            reducer.i.operation.eq(Mux(left_out, JOIN.ADD, now.join)),
            reducer.i.context.eq(now.context | beat),
            tagged.last.eq(now.last),
            tagged.ends.eq(ends),
            tagged.start.eq(now.context),
            tagged.context.eq(now.context | beat),
            self.error.eq(failed),
        ]
        for k in range(config.words):
            at = slice(32 * k, 32 * k + 32)
            m.d.comb += reducer.i.x[k].eq(Mux(now.kind == HOT_ROW, hot.payload.data[at], Mux(
                now.kind == COLD_ROW, cold.payload[at], filler)))
        with m.If(hot.valid & hot.payload.error):
            m.d.sync += failed.eq(1)
        counts = take & ~left_out
        m.d.sync += self.v_add.eq(counts & (now.join == JOIN.ADD))
        m.d.sync += self.v_mul.eq(counts & (now.join == JOIN.MULTIPLY))
        return reducer, _Reduced(leaves=leaves, tag=tag)

    def _leave(self, m: Module, state: _State, starts, reduced, reducer: Reducer):
        """Vectors leave in order. Returns that none is under way."""
        config = self.config
        m.submodules.vectors = vectors = memory.Memory(
            shape=32 * config.words, depth=CONTEXTS, init=[], attrs={"ram_style": "distributed"})
        write, read = vectors.write_port(), vectors.read_port(domain="comb")
        tagged = reduced.tag(reducer.o.tag)
        m.submodules.whole = whole = InOrder()
        beat = Signal(ROW_BEATS_LOG2_MAX)
        go = Signal()
        left = Signal()
        ends = state.length.is_last(m, beat, go)
        o = self.o
        payload = Signal(32 * config.words, reset_less=True)
        m.d.comb += [
            write.en.eq(reducer.o_valid & tagged.last),
            write.addr.eq(tagged.context),
            write.data.eq(reducer.o.words.as_value()),
            whole.row_beats.eq(state.length.beats),
            whole.rewind.eq(state.begin),
            whole.mark.valid.eq(reducer.o_valid & tagged.last & tagged.ends),
            whole.mark.context.eq(tagged.start),
            whole.step.eq(reduced.leaves),
            read.addr.eq(whole.context | beat),
            go.eq(whole.there & (~o.valid | o.ready)),
            reduced.leaves.eq(go & ends),
            o.payload.eq(payload),
        ]
        with m.If(go):
            m.d.sync += payload.eq(read.data)
        with m.If(~o.valid | o.ready):
            m.d.sync += o.valid.eq(whole.there)
        # Vectors that were begun and have not left: each has a row in the queue, or is among the 64 under way.
        inside = Signal(range(2 * (AHEAD + CONTEXTS)))
        m.d.sync += inside.eq(inside + starts.fresh - reduced.leaves)
        m.d.comb += left.eq((inside == 0) & ~o.valid)
        return left
