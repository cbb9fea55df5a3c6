"""Applies the GPU's gradients to the rows of a mini-batch, in the embedding buffer and then in memory."""

from typing import NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import data_layout, read_layout, request_layout
from hw.axi.requester import request_beats
from hw.hotline.config import ROW_BEATS_LOG2_MAX, HotlineConfig
from hw.hotline.embeddings import updated_layout
from hw.hotline.records import update_layout
from hw.hotline.reducer import UPDATE, Reducer
from hw.hotline.row_table import location_layout, query_layout
from hw.place import Part
from hw.stream.fifo import Fifo

ANSWERS = 32        # of the list of rows that may be under way
ROWS = 64           # between the list's answer and the end of their update or of their request
PACE = 4            # cycles from a row's write to the next, at least, while rows wait to be read


def refused_layout(config: HotlineConfig) -> data.StructLayout:
    """Rows whose write was answered with an error; valid stays until reset. twice: some of them were refused again,
    and the mini-batch is not whole in memory; ordinal: of the first of those, else 0."""
    return data.StructLayout({"valid": 1, "twice": 1, "ordinal": config.slot_bits})


class _Phase(NamedTuple):
    """What `Updater.elaborate` hands to other methods."""

    updating: Signal
    writing: Signal


class _Begins(NamedTuple):
    """What `Updater.elaborate` hands to other methods."""

    load: Signal
    begin: Signal
    again: Signal


class _Rows(NamedTuple):
    """What `Updater._count` hands on."""

    left: Signal
    final: Signal
    second: Signal
    bad: Signal
    first_bad: Signal
    start: Signal


class Updater(Part):
    """row = row + rate * gradient for all rows of a mini-batch: of all in the embedding buffer, then of all in memory.

    Nothing is written to memory before the last gradient has come and been applied, so a mini-batch is there as a
    whole or not at all.                                    Source: Hotline thesis, §5.2.2, fig. 6.10, EL-Rec §V.B

    Parameters  config: HotlineConfig
    Members     i               In(stream of update_layout)
                hold            In  none is taken
                reads_wait      In  a row waits to be read. Behind a bridge to a host's memory a read waits for a write
                                that the host has no room for
                rate            In  a word
                rows            In  the rows' buffer's address in bytes
                row_beats_log2  In  0 to 6; these three stand while it is not idle
                o_query         Out(stream)  {batch, ordinal}
                i_query         In(stream)  {slot, address} of the mini-batch's list
                o_requests      Out(stream)  to a client of a ReadPort
                i_gradients     In(stream)  what comes back of it
                o_read          Out(stream of slots)  to a client of the EmbeddingBuffer
                i_rows          In(stream)  what comes back of it, beat by beat
                o_write         Out(stream)  beats to the EmbeddingBuffer
                o_write_requests, o_write_data  Out(stream)  to a client of a WritePort
                written         In  its pulse for each request that is answered
                not_written     In  with `written`: by an error
                error           Out  a gradient could not be read
                o_release       Out(stream)  slots
                updated         Out  a pulse when all updates are in the embedding buffer
                done            Out  a pulse when all are in memory and all slots are released
                v_mul           Out  a beat was multiplied
                v_add           Out  a beat was added
                dma_wr          Out  a row was written
                refused         Out  see refused_layout
                rests           Out  no mini-batch is inside, or one that nothing more happens to
                idle            Out
    Shapes      `rows` gradients of row_beats beats each from `address` on, in the order of the list. A request to
                memory is a row
    Timing      a beat a cycle is updated, then a beat a cycle is written, while rows wait to be read a row in PACE
                cycles at most, as far as list, gradients, rows and port go that fast; a row is released when its write
                is answered. One mini-batch at a time: the list is gone through twice. `idle` is a cycle late
    Handshake   valids and i.ready come from registers, but o_read.valid, which needs two registers' consent, and
                i_gradients.ready and i_rows.ready, which wait for each other; i_rows is wired to o_write_data while
                rows are written. i_query and o_write never wait
    Numerics    golden.fp.fp32.mul, then golden.fp.fp32.add, each rounded; bit-exact
    Faults      a beat of gradients with an error is not taken, `error` stays, nothing is updated any more until a
                reset, and nothing of the mini-batch is written. Where a row's write is answered with an error all rows
                from that one on are kept and written once more; then, or if that fails too, `refused` stays, and no
                mini-batch is taken any more until a reset
    Reset       drops the mini-batch
    Golden      golden.hotline.update.Updater          Tests  verif/hotline/test_update.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(update_layout(config))),
            "hold": In(1), "reads_wait": In(1),
            "rate": In(32),
            "rows": In(64),
            "row_beats_log2": In(range(ROW_BEATS_LOG2_MAX + 1)),
            "o_query": Out(stream.Signature(query_layout(config))),
            "i_query": In(stream.Signature(location_layout(config))),
            "o_requests": Out(stream.Signature(request_layout())),
            "i_gradients": In(stream.Signature(read_layout(config.beat_bytes))),
            "o_read": Out(stream.Signature(config.slot_bits)),
            "i_rows": In(stream.Signature(32 * config.words)),
            "o_write": Out(stream.Signature(updated_layout(config), always_ready=True)),
            "o_write_requests": Out(stream.Signature(request_layout())),
            "o_write_data": Out(stream.Signature(data_layout(config.beat_bytes))),
            "written": In(1), "not_written": In(1),
            "o_release": Out(stream.Signature(config.slot_bits)),
            "updated": Out(1), "done": Out(1),
            "v_mul": Out(1), "v_add": Out(1), "dma_wr": Out(1),
            "error": Out(1), "refused": Out(refused_layout(config)), "rests": Out(1), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        batch = Signal(update_layout(config), reset_less=True)
        # What the list is gone through for: to update or to write.
        updating = Signal(init=1)
        writing = Signal()
        start = Signal(config.slot_bits, reset_less=True)       # from which row on
        load = Signal()
        begin = Signal()
        again = Signal()
        # How long a row is: in beats, and in beats less one.
        scale = Signal.like(self.row_beats_log2, reset_less=True)
        logs = range(ROW_BEATS_LOG2_MAX + 1)
        row_beats = Signal(ROW_BEATS_LOG2_MAX + 1, reset_less=True)
        last_beat = Signal(ROW_BEATS_LOG2_MAX, reset_less=True)
        m.d.sync += scale.eq(self.row_beats_log2)
        m.d.sync += row_beats.eq(Array([*(1 << k for k in logs), 0])[self.row_beats_log2])
        m.d.sync += last_beat.eq(Array([*((1 << k) - 1 for k in logs), 0])[self.row_beats_log2])
        request_beats(m, self.o_requests, start=begin, address=batch.address, span=batch.rows << scale,
                      beat_bytes=config.beat_bytes)
        answers = self._list(m, batch, begin | again, start)

        # -- A row of the list is read, and updated or written.
        m.submodules.under_way = under_way = Fifo(location_layout(config), depth=ROWS)
        forward = Signal()
        m.d.comb += [
            self.o_read.payload.eq(answers.o.payload.slot),
            self.o_read.valid.eq(answers.o.valid & under_way.i.ready),
            forward.eq(self.o_read.valid & self.o_read.ready),
            under_way.i.payload.eq(answers.o.payload),
            under_way.i.valid.eq(forward),
            answers.o.ready.eq(forward),
        ]
        take, ends = self._update(m, updating, under_way, last_beat)
        asks, kept = self._write(m, writing, under_way, row_beats, again)
        m.d.comb += under_way.o.ready.eq(Mux(writing, asks, ends))
        m.d.comb += self.i_rows.ready.eq(Mux(writing, self.o_write_data.ready, take))

        rows = self._count(m, batch, begin | again, Mux(updating, ends, self.written), again, start)
        released = self._release(m, kept, rows)
        phase = _Phase(updating=updating, writing=writing)
        self._steps(m, batch, _Begins(load=load, begin=begin, again=again), phase, rows, ends, released)
        return m

    def _release(self, m: Module, kept: Fifo, rows: _Rows) -> Signal:
        """Slots of rows whose write was answered, up to the first that was refused. Whether all of them are out."""
        o = self.o_release
        owed = Signal(range(2 * kept.depth))
        some = Signal()
        good = Signal()
        leaves = Signal()
        m.d.comb += [
            good.eq(self.written & ~self.not_written & ~rows.bad),
            o.payload.eq(kept.o.payload),
            o.valid.eq(kept.o.valid & some),
            leaves.eq(o.valid & o.ready),
            kept.o.ready.eq(o.ready & some),
        ]
        m.d.sync += owed.eq(owed + good - leaves)
        m.d.sync += some.eq(good | (owed[1:] != 0) | (owed[0] & ~leaves))
        return ~some

    def _count(self, m: Module, batch: data.View, begins, ended, again: Signal, start: Signal) -> _Rows:
        """Rows that this time through the list still has to bring to an end, and writes that failed."""
        left = Signal.like(batch.rows, reset_less=True)
        final = Signal()
        m.d.comb += final.eq(left == 0)
        with m.If(begins):
            m.d.sync += left.eq(batch.rows - start)
        with m.Elif(ended):
            m.d.sync += left.eq(left - 1)
        # the rows are written once more; one was refused this time
        second = Signal()
        bad = Signal()
        ordinal = Signal(self.config.slot_bits, reset_less=True)    # of the next row to be answered
        first_bad = Signal.like(ordinal, reset_less=True)
        m.d.sync += self.dma_wr.eq(self.written & ~self.not_written)
        with m.If(again):
            m.d.sync += ordinal.eq(start)
            m.d.sync += bad.eq(0)
        with m.Elif(self.written):
            m.d.sync += ordinal.eq(ordinal + 1)
            with m.If(self.not_written & ~bad):
                m.d.sync += bad.eq(1)
                m.d.sync += first_bad.eq(ordinal)
        return _Rows(left=left, final=final, second=second, bad=bad, first_bad=first_bad, start=start)

    def _steps(self, m: Module, batch: data.View, pulse: _Begins, phase: _Phase, rows: _Rows, ends: Signal,
               released: Signal) -> None:
        """The mini-batch: all rows are updated, then all written and, one by one, released."""
        refused = self.refused
        with m.If(pulse.load):
            m.d.sync += batch.eq(self.i.payload)
        m.d.sync += self.updated.eq(0)
        m.d.sync += self.done.eq(0)
        m.d.sync += self.idle.eq(0)
        with m.FSM() as steps:
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(~self.hold & ~refused.valid)
                m.d.comb += pulse.load.eq(self.i.valid & self.i.ready)
                m.d.sync += self.idle.eq(~self.i.valid)
                m.d.sync += rows.second.eq(0)
                m.d.sync += rows.start.eq(0)
                with m.If(pulse.load):
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                # A row's length may have come with the mini-batch: what follows from it is there in the next cycle.
                m.d.comb += pulse.begin.eq(1)
                with m.If(batch.rows == 0):
                    m.d.sync += self.updated.eq(1)
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    m.next = "UPDATE"
            with m.State("UPDATE"):
                with m.If(ends & (rows.left == 1)):
                    m.d.sync += self.updated.eq(1)
                    m.d.sync += phase.updating.eq(0)
                    m.d.sync += phase.writing.eq(1)
                    m.next = "TURN"
            with m.State("TURN"):       # the queues are empty
                m.d.comb += pulse.again.eq(1)
                m.next = "WRITE"
            with m.State("WRITE"):
                with m.If(rows.final & released):
                    with m.If(~rows.bad):
                        m.d.sync += [
                            phase.writing.eq(0),
                            phase.updating.eq(1),
                            self.done.eq(1),
                            refused.valid.eq(rows.second),
                        ]
                        m.next = "IDLE"
                    with m.Elif(rows.second):
                        m.d.sync += refused.valid.eq(1)
                        m.d.sync += refused.twice.eq(1)
                        m.d.sync += refused.ordinal.eq(rows.first_bad)
                        m.next = "STUCK"
                    with m.Else():
                        m.d.sync += rows.second.eq(1)
                        m.d.sync += rows.start.eq(rows.first_bad)
                        m.next = "TURN"
            with m.State("STUCK"):
                pass
        m.d.sync += self.rests.eq(steps.ongoing("IDLE") & ~pulse.load | steps.ongoing("STUCK") | self.error)

    def _update(self, m: Module, updating: Signal, under_way: Fifo, last_beat: Signal) -> tuple[Signal, Signal]:
        """Gradients meet rows, and results go to the embedding buffer: (a row's beat is taken, a row's last result)."""
        config = self.config
        reducer = Reducer(words=config.words)
        m.submodules.reducer = reducer
        failed = Signal()
        able = Signal()
        take = Signal()
        gradients, rows = self.i_gradients, self.i_rows
        m.d.comb += [
            able.eq(updating & ~failed & ~gradients.payload.error),
            gradients.ready.eq(able & rows.valid),
            take.eq(able & rows.valid & gradients.valid),
            reducer.i_valid.eq(take),
            reducer.rate.eq(self.rate),
            reducer.i.operation.eq(UPDATE),
            reducer.i.x.eq(gradients.payload.data),
            reducer.i.y.eq(rows.payload),
            self.v_mul.eq(reducer.v_mul),
            self.v_add.eq(reducer.v_add),
            self.error.eq(failed),
        ]
        with m.If(gradients.valid & gradients.payload.error):
            m.d.sync += failed.eq(1)
        beat = Signal(ROW_BEATS_LOG2_MAX)
        ends = Signal()
        m.d.comb += [
            ends.eq(reducer.o_valid & (beat == last_beat)),
            self.o_write.valid.eq(reducer.o_valid),
            self.o_write.payload.slot.eq(under_way.o.payload.slot),
            self.o_write.payload.beat.eq(beat),
            self.o_write.payload.words.eq(reducer.o.words),
        ]
        with m.If(reducer.o_valid):
            m.d.sync += beat.eq(Mux(beat == last_beat, 0, beat + 1))
        return take, ends

    def _list(self, m: Module, batch: data.View, begin, start: Signal) -> Fifo:
        """Asks for the rows of the list from `start` on, each time that it begins; the queue of the answers."""
        m.submodules.answers = answers = Fifo(location_layout(self.config), depth=ANSWERS)
        # more: left != 0, from a register
        left = Signal.like(batch.rows)
        more = Signal()
        room = Signal(range(ANSWERS + 1), init=ANSWERS)
        asked = Signal()
        leaves = Signal()
        o = self.o_query
        m.d.comb += [
            o.valid.eq(more & (room != 0)),
            asked.eq(o.valid & o.ready),
            o.payload.batch.eq(batch.batch),
            leaves.eq(answers.o.valid & answers.o.ready),
            answers.i.valid.eq(self.i_query.valid),
            answers.i.payload.eq(self.i_query.payload),
            # There is room for every answer that was asked for.
            self.i_query.ready.eq(1),
        ]
        ordinal = Signal(self.config.slot_bits, reset_less=True)
        m.d.comb += o.payload.ordinal.eq(ordinal)
        m.d.sync += room.eq(room + leaves - asked)
        with m.If(begin):
            m.d.sync += left.eq(batch.rows - start)
            m.d.sync += more.eq(batch.rows != 0)
            m.d.sync += ordinal.eq(start)
        with m.Elif(asked):
            m.d.sync += left.eq(left - 1)
            m.d.sync += more.eq(left != 1)
            m.d.sync += ordinal.eq(ordinal + 1)
        return answers

    def _write(self, m: Module, writing: Signal, under_way: Fifo, row_beats: Signal,
               again: Signal) -> tuple[Signal, Fifo]:
        """Rows as they are in the embedding buffer, a request for each: (one is asked for, their slots)."""
        beat_log2 = (self.config.beat_bytes - 1).bit_length()
        o, rows = self.o_write_requests, self.i_rows
        address = Signal(64, reset_less=True)
        asks = Signal()
        pause = Signal(range(PACE))
        # As many as the port has under way, and those that wait before it. Written again, all are there once more.
        kept = Fifo(self.config.slot_bits, depth=2 * max(self.config.writes_in_flight, ROWS))
        m.submodules.kept = ResetInserter(again)(kept)
        m.d.comb += [
            asks.eq((~o.valid | o.ready) & kept.i.ready & (pause == 0)),
            kept.i.valid.eq(asks & writing & under_way.o.valid),
            kept.i.payload.eq(under_way.o.payload.slot),
            o.payload.address.eq(address),
            o.payload.beats.eq(row_beats),
            self.o_write_data.valid.eq(writing & rows.valid),
            self.o_write_data.payload.data.eq(rows.payload),
        ]
        with m.If(o.ready):
            m.d.sync += o.valid.eq(0)
        m.d.sync += pause.eq(Mux(kept.i.valid & self.reads_wait, PACE - 1, pause - (pause != 0)))
        with m.If(asks):
            m.d.sync += o.valid.eq(writing & under_way.o.valid)
            m.d.sync += address.eq(self.rows + Cat(Const(0, beat_log2), under_way.o.payload.address))
        return asks, kept
