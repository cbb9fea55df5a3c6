"""Applies the GPU's gradients to the rows of a mini-batch, in the embedding buffer and in memory."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import data_layout, read_layout, request_layout
from hw.axi.queue import BurstQueue
from hw.hotline.config import ROW_BEATS_LOG2_MAX, HotlineConfig
from hw.hotline.embeddings import updated_layout
from hw.hotline.records import update_layout
from hw.hotline.reducer import UPDATE, Reducer
from hw.hotline.row_table import queried_layout, query_layout
from hw.kernel.pieces import ask_in_pieces

__all__ = ["Updater"]

ANSWERS = 16        # of the list of rows that may be under way
RESULTS = 32        # beats between reducer and port: enough for those inside the reducer
ROWS = 64           # between the list's answer and the end of their updates


class Updater(wiring.Component):
    """row = row + rate * gradient for all rows of a mini-batch, in the embedding buffer and in memory.

    Source: Hotline thesis, §5.2.2, fig. 6.10, EL-Rec §V.B

    Parameters  config: HotlineConfig
    Members     i: In(stream update); rate: In, a word; rows: In, the rows' buffer's address in bytes;
                row_beats_log2: In, 0 to 6: all three stand while it is not idle;
                o_query: Out(stream) {batch, ordinal}, i_query: In(stream) {slot, address}: the mini-batch's list;
                o_requests: Out(stream), i_gradients: In(stream): a client of a ReadPort;
                o_read: Out(stream), slots, i_rows: In(stream), beats: a client of the EmbeddingBuffer; o_write:
                Out(stream), to it; o_write_requests, o_write_data: Out(stream), written: In, a pulse for each request
                that is answered: a client of a WritePort; o_release: Out(stream), slots;
                updated: Out, a pulse when all updates are in the embedding buffer; done: Out, a pulse when all are in
                memory and all slots are released; v_mul, v_add, dma_wr: Out, a beat multiplied, added, a row written;
                error: Out; idle: Out
    Shapes      `rows` gradients of row_beats beats each from `address` on, in the order of the list. Requests to
                memory are of a row, or of `output_beats` beats where a row is longer
    Timing      a beat a cycle, as far as list, gradients and rows come that fast. One mini-batch at a time: the list is
                gone through a second time, for o_release, when the last write is answered. `idle` is a cycle late
    Handshake   valids and i.ready come from registers, but o_read.valid, which needs two registers' consent, and
                i_gradients.ready and i_rows.ready, which wait for each other. i_query and o_write never wait
    Numerics    golden.fp32.mul, then golden.fp32.add, each rounded; bit-exact
    Faults      a beat of gradients with an error is not taken, `error` stays and nothing is updated any more until a
                reset; a row that fits the port's queue is then written as a whole or not at all
    Reset       drops the mini-batch
    Golden      golden.hotline.update.Updater          Tests  verif/test_hotline_update.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(update_layout(config))),
            "rate": In(32),
            "rows": In(64),
            "row_beats_log2": In(range(ROW_BEATS_LOG2_MAX + 1)),
            "o_query": Out(stream.Signature(query_layout(config))),
            "i_query": In(stream.Signature(queried_layout(config))),
            "o_requests": Out(stream.Signature(request_layout())),
            "i_gradients": In(stream.Signature(read_layout(config.beat_bytes))),
            "o_read": Out(stream.Signature(config.slot_bits)),
            "i_rows": In(stream.Signature(32 * config.words)),
            "o_write": Out(stream.Signature(updated_layout(config), always_ready=True)),
            "o_write_requests": Out(stream.Signature(request_layout())),
            "o_write_data": Out(stream.Signature(data_layout(config.beat_bytes))),
            "written": In(1),
            "o_release": Out(stream.Signature(config.slot_bits)),
            "updated": Out(1), "done": Out(1),
            "v_mul": Out(1), "v_add": Out(1), "dma_wr": Out(1),
            "error": Out(1), "idle": Out(1),
        })

    def key(self) -> str:
        return f"Updater({self.config.key()})"

    def elaborate(self, platform):
        m = Module()
        config = self.config
        batch = Signal(update_layout(config), reset_less=True)
        releasing = Signal()        # the list is gone through for the second time
        load, begin, again = Signal(), Signal(), Signal()
        # How long a row is: in beats less one, and in writes less one of a part that fits the port's queue.
        scale = Signal.like(self.row_beats_log2, reset_less=True)
        part_log2 = (config.output_beats - 1).bit_length()
        logs = range(ROW_BEATS_LOG2_MAX + 1)
        last_beat, part_beats = Signal(ROW_BEATS_LOG2_MAX, reset_less=True), Signal(7, reset_less=True)
        last_part = Signal(ROW_BEATS_LOG2_MAX, reset_less=True)
        m.d.sync += [
            scale.eq(self.row_beats_log2),
            last_beat.eq(Array([*((1 << k) - 1 for k in logs), 0])[self.row_beats_log2]),
            part_beats.eq(Array([*(1 << min(k, part_log2) for k in logs), 0])[self.row_beats_log2]),
            last_part.eq(Array([*((1 << max(0, k - part_log2)) - 1 for k in logs), 0])[self.row_beats_log2]),
        ]
        ask_in_pieces(m, self.o_requests, start=begin, address=batch.address, span=batch.rows << scale,
                      beat_bytes=config.beat_bytes)
        answers = self._list(m, batch, begin, again)

        # -- A row of the list goes three ways: to be read, to be written over, to be written back.
        m.submodules.under_way = under_way = BurstQueue(config.slot_bits, depth=ROWS)
        m.submodules.going = going = BurstQueue(32, depth=ROWS)
        forward = Signal()
        m.d.comb += [
            self.o_read.payload.eq(answers.o.payload.slot),
            self.o_read.valid.eq(answers.o.valid & ~releasing & under_way.i.ready & going.i.ready),
            forward.eq(self.o_read.valid & self.o_read.ready),
            under_way.i.payload.eq(answers.o.payload.slot), under_way.i.valid.eq(forward),
            going.i.payload.eq(answers.o.payload.address), going.i.valid.eq(forward),
            self.o_release.payload.eq(answers.o.payload.slot), self.o_release.valid.eq(answers.o.valid & releasing),
            answers.o.ready.eq(Mux(releasing, self.o_release.ready, forward)),
        ]

        updates = self._update(m, batch, begin, under_way, last_beat)
        self._write(m, going, part_beats, last_part)

        # -- Answers to writes, of all a row's parts.
        part, to_write = Signal(ROW_BEATS_LOG2_MAX), Signal.like(batch.rows, reset_less=True)
        whole = Signal()
        m.d.comb += whole.eq(self.written & (part == last_part))
        m.d.sync += self.dma_wr.eq(whole)
        with m.If(self.written):
            m.d.sync += part.eq(Mux(part == last_part, 0, part + 1))
        with m.If(begin):
            m.d.sync += to_write.eq(batch.rows)
        with m.Elif(whole):
            m.d.sync += to_write.eq(to_write - 1)

        # -- The mini-batch.
        to_release = Signal.like(batch.rows, reset_less=True)
        released = self.o_release.valid & self.o_release.ready
        with m.If(begin):
            m.d.sync += to_release.eq(batch.rows)
        with m.Elif(released):
            m.d.sync += to_release.eq(to_release - 1)
        with m.If(load):
            m.d.sync += batch.eq(self.i.payload)
        m.d.sync += [self.updated.eq(updates), self.done.eq(0), self.idle.eq(0)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.i.ready.eq(1), load.eq(self.i.valid)]
                m.d.sync += self.idle.eq(~self.i.valid)
                with m.If(self.i.valid):
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                # A row's length may have come with the mini-batch: what follows from it is there in the next cycle.
                m.d.comb += begin.eq(1)
                with m.If(batch.rows == 0):
                    m.d.sync += [self.updated.eq(1), self.done.eq(1)]
                    m.next = "IDLE"
                with m.Else():
                    m.next = "UPDATE"
            with m.State("UPDATE"):
                with m.If(to_write == 0):
                    m.d.comb += again.eq(1)
                    m.d.sync += releasing.eq(1)
                    m.next = "RELEASE"
            with m.State("RELEASE"):
                with m.If(to_release == 0):
                    m.d.sync += [releasing.eq(0), self.done.eq(1)]
                    m.next = "IDLE"
        return m

    def _update(self, m: Module, batch: data.View, begin: Signal, under_way: BurstQueue, last_beat: Signal) -> Signal:
        """Gradients meet rows; returns a pulse with the last beat of all."""
        config = self.config
        reducer = Reducer(words=config.words)
        m.submodules.reducer = reducer
        m.submodules.results = results = BurstQueue(32 * config.words, depth=RESULTS)
        room = Signal(range(RESULTS + 1), init=RESULTS)
        failed, take, leaves = Signal(), Signal(), Signal()
        gradients, rows = self.i_gradients, self.i_rows
        free = Signal()
        m.d.comb += [
            free.eq((room != 0) & ~failed & ~gradients.payload.error),
            gradients.ready.eq(free & rows.valid), rows.ready.eq(free & gradients.valid),
            take.eq(free & rows.valid & gradients.valid),
            leaves.eq(results.o.valid & results.o.ready),
            reducer.i_valid.eq(take), reducer.rate.eq(self.rate), reducer.i.operation.eq(UPDATE),
            reducer.i.x.eq(gradients.payload.data), reducer.i.y.eq(rows.payload),
            self.v_mul.eq(reducer.v_mul), self.v_add.eq(reducer.v_add), self.error.eq(failed),
        ]
        m.d.sync += room.eq(room + leaves - take)
        with m.If(gradients.valid & gradients.payload.error):
            m.d.sync += failed.eq(1)

        # -- Results, to the embedding buffer at once and to memory as the port takes them.
        beat, ends = Signal(ROW_BEATS_LOG2_MAX), Signal()
        to_update = Signal.like(batch.rows, reset_less=True)
        m.d.comb += [
            ends.eq(reducer.o_valid & (beat == last_beat)),
            self.o_write.valid.eq(reducer.o_valid), self.o_write.payload.slot.eq(under_way.o.payload),
            self.o_write.payload.beat.eq(beat), self.o_write.payload.words.eq(reducer.o.words),
            under_way.o.ready.eq(ends),
            results.i.valid.eq(reducer.o_valid), results.i.payload.eq(reducer.o.words.as_value()),
            self.o_write_data.valid.eq(results.o.valid), self.o_write_data.payload.data.eq(results.o.payload),
            results.o.ready.eq(self.o_write_data.ready),
        ]
        with m.If(reducer.o_valid):
            m.d.sync += beat.eq(Mux(beat == last_beat, 0, beat + 1))
        with m.If(begin):
            m.d.sync += to_update.eq(batch.rows)
        with m.Elif(ends):
            m.d.sync += to_update.eq(to_update - 1)
        last = Signal()
        m.d.comb += last.eq(ends & (to_update == 1))
        return last

    def _list(self, m: Module, batch: data.View, begin: Signal, again: Signal) -> BurstQueue:
        """Asks for all rows of the list in order, twice; the queue of the answers."""
        m.submodules.answers = answers = BurstQueue(queried_layout(self.config), depth=ANSWERS)
        left = Signal.like(batch.rows)
        room = Signal(range(ANSWERS + 1), init=ANSWERS)
        asked, leaves = Signal(), Signal()
        o = self.o_query
        m.d.comb += [
            o.valid.eq((left != 0) & (room != 0)), asked.eq(o.valid & o.ready), o.payload.batch.eq(batch.batch),
            leaves.eq(answers.o.valid & answers.o.ready),
            answers.i.valid.eq(self.i_query.valid), answers.i.payload.eq(self.i_query.payload),
            # There is room for every answer that was asked for.
            self.i_query.ready.eq(1),
        ]
        ordinal = Signal(self.config.slot_bits, reset_less=True)
        m.d.comb += o.payload.ordinal.eq(ordinal)
        m.d.sync += room.eq(room + leaves - asked)
        with m.If(begin | again):
            m.d.sync += [left.eq(batch.rows), ordinal.eq(0)]
        with m.Elif(asked):
            m.d.sync += [left.eq(left - 1), ordinal.eq(ordinal + 1)]
        return answers

    def _write(self, m: Module, going: BurstQueue, part_beats: Signal, last_part: Signal) -> None:
        """A request for each part of each row that goes back."""
        beat_log2 = (self.config.beat_bytes - 1).bit_length()
        at, part, held = Signal(32, reset_less=True), Signal(ROW_BEATS_LOG2_MAX), Signal()
        o = self.o_write_requests
        address = Signal(64, reset_less=True)
        move, final = Signal(), Signal()
        m.d.comb += [
            move.eq(held & (~o.valid | o.ready)), final.eq(part == last_part),
            going.o.ready.eq(~held | (move & final)),
            o.payload.address.eq(address), o.payload.beats.eq(part_beats),
        ]
        with m.If(~o.valid | o.ready):
            m.d.sync += [o.valid.eq(held), address.eq(self.rows + Cat(Const(0, beat_log2), at))]
        with m.If(going.o.ready):
            m.d.sync += [held.eq(going.o.valid), at.eq(going.o.payload), part.eq(0)]
        with m.Elif(move):
            m.d.sync += [at.eq(at + part_beats), part.eq(part + 1)]
