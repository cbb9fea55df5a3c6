"""Deals mini-batches to the GPU by way of the mailbox, and hands what it returns to the updates."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import data_layout, request_layout
from hw.hotline.config import HotlineConfig
from hw.hotline.narrower import narrowed
from hw.hotline.program import Job
from hw.hotline.records import DispatchError, frame_layout, gathered_layout, place_layout, update_layout
from hw.hotline.row_table import queried_layout, query_layout
from hw.hotline.transfers import chunk_beats
from hw.isa.hotline import KIND
from hw.place import Part
from hw.stream.fifo import Fifo

__all__ = ["Dispatcher"]

NUMBER_BITS = 32        # of a mini-batch's number
HEADER, SAMPLES, ROWS, VECTORS = range(4)       # what a mini-batch has in the mailbox, in order


class Dispatcher(Part):
    """Writes mini-batches to the mailbox as the GPU frees it: a header, samples, and the rows or vectors gathered.

    Mini-batch k, counted from 0 over the run, lies from beat (k % mailbox_slots) * mailbox_pitch on: words k, kind,
    samples, rows, 0 ...; then all beats of its samples; then, of a gathered one, its rows by ordinals or, pooled, its
    vectors. `dealt` becomes k + 1 when all of that is written. Source: Hotline §6.1, §6.5 (dispatcher and scheduler)

    Parameters  config: HotlineConfig
    Members     job                 In  of hw.hotline.program.Job
                start               In  a pulse before the first mini-batch of a job
                to                  In(64)  address of the mailbox (whose name SystemVerilog has taken)
                gradients           In(64)  address of the gradients
                i_popular           In(stream of frame_layout)
                i_gathered          In(stream of gathered_layout)
                o_place             Out(stream of place_layout)  to the input buffer's read client
                i_beats             In(stream of a beat)  from the input buffer's read client
                free                Out  {valid, frame}: all of it has been read
                o_query             Out(stream of query_layout)  to the row table
                i_query             In(stream of queried_layout)  from the row table
                o_rows              Out(stream of a slot)  to the embedding buffer's read client
                i_rows              In(stream of a beat)  from the embedding buffer's read client
                o_bags              Out(stream of gathered_layout)  to the unit that pools
                i_vectors           In(stream of a beat)  from the unit that pools
                o_requests, o_data  Out(stream)  to a client of a WritePort
                written             In  its pulse
                dealt               Out(32)  mini-batches that are written
                tell                Out  a pulse when `dealt` has changed
                finished            In(32)  mini-batches that the GPU has finished
                polled              In  a pulse: the GPU's word was read
                seen                Out(32)  of them counted here
                advanced            Out  `seen` has grown
                waiting             Out  for the GPU and for nothing else
                eager               Out  the GPU's word matters: it is waited for, or it has a gathered mini-batch
                o_update            Out(stream of update_layout)
                updated             In  a pulse: the updates have been made
                popular, gathered   Out  a pulse: such a mini-batch is dispatched
                stall_mailbox       Out  a mini-batch waits for room
                hungry              Out  there is no mini-batch to write
                error               Out  {valid, detail}  OVERRUN
                idle                Out  everything dispatched is finished and nothing is inside
    Shapes      a popular mini-batch of s samples is 1 + s * sample_beats beats, a gathered one of r rows r * row_beats
                more, pooled s * vectors * row_beats more; of these, with `half`, half as many, rounded up
    Timing      a beat per cycle, of rows and vectors every other cycle with `half`; 10 cycles from a mini-batch to its
                header, 11 from its last beat to the next one's header, besides what the first read of samples, that of
                rows and, with `half`, hw.hotline.narrower take. A job begins 42 cycles after `start`. `advanced` comes
                3 cycles after the poll. `idle` is two cycles late
    Handshake   a gathered one goes before popular ones, but not before the updates of the gathered one before it
                are under way, and its rows or vectors never before those have been made. Its samples' beats have all
                been read when o_bags is offered: until its last vector the dispatcher reads nothing. Rows are asked
                for when its last sample has been; answers go from i_query to o_rows by wires. Requests of up to half
                of the port's queue follow their data
    Faults      the GPU claims more than was dispatched (OVERRUN); what is under way goes on until a reset. A
                word that went back counts as not changed
    Reset       drops everything; the next mini-batch is number 0
    Golden      golden.hotline.dispatch          Tests  verif/hotline/test_dispatch.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        bits = 32 * config.words
        beat = stream.Signature(bits)
        super().__init__({
            "job": In(Job), "start": In(1), "to": In(64), "gradients": In(64),
            "i_popular": In(stream.Signature(frame_layout(config))),
            "i_gathered": In(stream.Signature(gathered_layout(config))),
            "o_place": Out(stream.Signature(place_layout(config))), "i_beats": In(beat),
            "free": Out(data.StructLayout({"valid": 1, "frame": config.frame_bits})),
            "o_query": Out(stream.Signature(query_layout(config))),
            "i_query": In(stream.Signature(queried_layout(config))),
            "o_rows": Out(stream.Signature(config.slot_bits)), "i_rows": In(beat),
            "o_bags": Out(stream.Signature(gathered_layout(config))), "i_vectors": In(beat),
            "o_requests": Out(stream.Signature(request_layout())),
            "o_data": Out(stream.Signature(data_layout(config.beat_bytes))), "written": In(1),
            "dealt": Out(NUMBER_BITS), "tell": Out(1), "finished": In(NUMBER_BITS), "polled": In(1),
            "seen": Out(NUMBER_BITS), "advanced": Out(1), "waiting": Out(1), "eager": Out(1),
            "o_update": Out(stream.Signature(update_layout(config))), "updated": In(1),
            "popular": Out(1), "gathered": Out(1), "stall_mailbox": Out(1), "hungry": Out(1),
            "error": Out(DispatchError), "idle": Out(1, init=1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        shift = (config.beat_bytes - 1).bit_length()
        number = Signal(NUMBER_BITS)       # of the next mini-batch
        seen = self.seen                   # finished ones
        pending = Signal()                 # a gathered one is dispatched, or being so, and its updates not begun
        making = Signal()                  # they are being made
        now = Signal(gathered_layout(config), reset_less=True)
        kind = Signal(reset_less=True)
        gradient_at = Signal(32, reset_less=True)
        take = Signal()
        launch = Signal()
        picking = Signal()
        outstanding = Signal()
        state = SimpleNamespace(
            shift=shift, number=number, seen=seen, pending=pending, making=making, now=now, kind=kind,
            gradient_at=gradient_at, launch=launch, take=take, outstanding=outstanding, picking=picking)
        self._finished(m, state)
        self._updates(m, state)
        reads = self._reads(m, state)
        may_gather = self._room(m, state)
        out = self._out(m, state, reads, platform)
        self._sequence(m, state, reads, may_gather, out)
        return m

    def _finished(self, m: Module, state) -> None:
        """The GPU's report."""
        error, seen = self.error, state.seen
        claim = Signal(NUMBER_BITS, reset_less=True)
        polled = Signal()
        judged = Signal()
        beyond = Signal(reset_less=True)
        newer = Signal(reset_less=True)
        m.d.sync += [
            polled.eq(self.polled),
            claim.eq(self.finished),
            judged.eq(polled),
            beyond.eq(claim > self.dealt),
            newer.eq(claim > seen),
            state.outstanding.eq(seen != self.dealt),
            self.advanced.eq(0),
        ]
        with m.If(judged & newer & ~beyond):
            m.d.sync += seen.eq(claim)
            m.d.sync += self.advanced.eq(1)
        with m.If(~error.valid & judged & beyond):
            m.d.sync += error.valid.eq(1)
            m.d.sync += error.detail.eq(claim)

    def _updates(self, m: Module, state) -> None:
        """The gathered mini-batch that is with the GPU, until its updates are made."""
        update, now = self.o_update, state.now
        number = Signal(NUMBER_BITS, name="pending_number", reset_less=True)
        reached = Signal()
        sent = Signal()
        with m.If(update.ready):
            m.d.sync += update.valid.eq(0)
        m.d.sync += reached.eq(state.pending & (state.seen > number))
        with m.If(state.pending & reached & ~sent):
            m.d.sync += update.valid.eq(1)
            m.d.sync += sent.eq(1)
        with m.If(self.updated):
            m.d.sync += state.making.eq(0)
        with m.If(update.valid & update.ready):
            m.d.sync += state.pending.eq(0)
            m.d.sync += state.making.eq(1)
            m.d.sync += sent.eq(0)
        with m.If(state.launch & (state.kind == KIND.GATHERED)):
            m.d.sync += [
                state.pending.eq(1),
                number.eq(state.number - 1),
                update.payload.batch.eq(now.batch),
                update.payload.rows.eq(now.rows),
                update.payload.address.eq(self.gradients + Cat(Const(0, state.shift), state.gradient_at)),
            ]

    def _reads(self, m: Module, state) -> SimpleNamespace:
        """Asks for the beats of the samples, then for the rows, when `launch` says so."""
        config, now, job = self.config, state.now, self.job
        first_beat = Signal(len(self.o_place.payload.beat), reset_less=True)
        sample_beats = Signal(range(config.frame_beats + 1), reset_less=True)
        place, query = self.o_place, self.o_query
        beats_left = Signal.like(sample_beats)
        last_beat = Signal(reset_less=True)
        rows_left = Signal.like(now.rows)
        last_row = Signal(reset_less=True)
        asks = Signal()
        gone = Signal()
        m.d.comb += [
            query.valid.eq(asks & ~place.valid & ~state.making),
            query.payload.batch.eq(now.batch),
            gone.eq(query.valid & query.ready),
            self.o_rows.valid.eq(self.i_query.valid),
            self.o_rows.payload.eq(self.i_query.payload.slot),
            self.i_query.ready.eq(self.o_rows.ready),
        ]
        with m.If(state.launch):
            m.d.sync += [
                place.valid.eq(1),
                place.payload.frame.eq(now.frame),
                place.payload.beat.eq(first_beat),
                beats_left.eq(sample_beats),
                last_beat.eq(sample_beats == 1),
                asks.eq((state.kind == KIND.GATHERED) & ~job.pooled & (now.rows != 0)),
                query.payload.ordinal.eq(0),
                rows_left.eq(now.rows),
                last_row.eq(now.rows == 1),
            ]
        with m.Elif(place.valid & place.ready):
            m.d.sync += [
                place.payload.beat.eq(place.payload.beat + 1),
                place.valid.eq(~last_beat),
                beats_left.eq(beats_left - 1),
                last_beat.eq(beats_left == 2),
            ]
        with m.Elif(gone):
            m.d.sync += [
                query.payload.ordinal.eq(query.payload.ordinal + 1),
                asks.eq(~last_row),
                rows_left.eq(rows_left - 1),
                last_row.eq(rows_left == 2),
            ]
        return SimpleNamespace(first_beat=first_beat, sample_beats=sample_beats)

    def _room(self, m: Module, state) -> Signal:
        """Which mini-batch may go: how many are in the mailbox, that under way included, and who is there."""
        popular, gathered = self.i_popular, self.i_gathered
        ahead = Signal(NUMBER_BITS, reset_less=True)
        room = Signal()
        empty = Signal()
        may_gather = Signal()
        some = popular.valid | gathered.valid
        able = may_gather | popular.valid
        m.d.comb += [
            may_gather.eq(gathered.valid & ~state.pending),
            gathered.ready.eq(state.picking & room & ~state.pending & ~self.start),
            popular.ready.eq(state.picking & room & ~may_gather & ~self.start),
            state.take.eq(state.picking & room & able & ~self.start),
        ]
        m.d.sync += [
            ahead.eq(state.number - state.seen),
            room.eq(ahead < self.job.mailbox_slots),
            empty.eq(ahead == 0),
            self.waiting.eq(state.picking & state.outstanding),
            self.eager.eq((state.picking | state.pending) & state.outstanding),
            self.hungry.eq(state.picking & ~some),
            self.stall_mailbox.eq(state.picking & ~room & able),
            self.idle.eq(state.picking & ~some & ~self.start & empty & ~state.pending & ~state.making),
        ]
        return may_gather

    def _written(self, m: Module, ends) -> None:
        """Counts what is dispatched. ends: which requests are a mini-batch's last."""
        ended = Signal()
        kind = ends.o.payload.kind
        m.d.comb += ended.eq(self.written & ends.o.valid & ends.o.payload.last)
        m.d.comb += ends.o.ready.eq(self.written)
        m.d.sync += [
            self.dealt.eq(self.dealt + ended),
            self.tell.eq(ended),
            self.popular.eq(ended & (kind == KIND.POPULAR)),
            self.gathered.eq(ended & (kind == KIND.GATHERED)),
        ]

    def _out(self, m: Module, state, reads, platform) -> SimpleNamespace:
        """Beats to the port, from where they come in turn: `sending` begins with the header of the mini-batch under
        way, `go` passes on a beat, `closes` with the last; a request goes behind its beats."""
        config, now, job = self.config, state.now, self.job
        o, request, chunk = self.o_data, self.o_requests, chunk_beats(config)
        m.submodules.ends = ends = Fifo(
            data.StructLayout({"last": 1, "kind": 1}), depth=config.writes_in_flight)
        self._written(m, ends)
        sending = Signal()
        go = Signal()
        closes = Signal()
        address = Signal(64, reset_less=True)
        rest_beats = Signal(29, reset_less=True)
        more = Signal(reset_less=True)                     # rows or vectors follow the samples
        current = Signal(NUMBER_BITS, reset_less=True)     # the mini-batch's number
        beat = Signal(32 * config.words, reset_less=True)
        source = Signal(32 * config.words)
        part = Signal(2, reset_less=True)
        pools = Signal()
        there = Signal()
        cuts = Signal()
        able = Signal()
        left = Signal(29, reset_less=True)
        final = Signal(reset_less=True)
        pooled = job.pooled & (state.kind == KIND.GATHERED)
        rest = narrowed(m, platform, words=config.words, begin=state.launch, beats=rest_beats, half=job.half,
                        pooled=pooled, rows=self.i_rows, vectors=self.i_vectors)
        # beats of a request; all but one that it may have
        count = Signal(range(chunk))
        full = Signal()
        m.d.comb += [
            closes.eq(final & (part[1] | (part[0] & ~more))),
            cuts.eq(full | closes),
            able.eq((~o.valid | o.ready) & (~cuts | ((~request.valid | request.ready) & ends.i.ready))),
            go.eq(there & able),
            o.payload.data.eq(beat),
            self.o_bags.payload.eq(now),
            self.o_bags.valid.eq(pools & ~state.making),
            ends.i.valid.eq(go & cuts),
            ends.i.payload.last.eq(closes),
            ends.i.payload.kind.eq(state.kind),
        ]
        with m.Switch(part):
            with m.Case(HEADER):
                m.d.comb += there.eq(sending)
                m.d.comb += source.eq(Cat(current, state.kind, Const(0, 31), now.samples, Const(0, 16), now.rows))
            for numbers, i in (((SAMPLES,), self.i_beats), ((ROWS, VECTORS), rest.o)):
                with m.Case(*numbers):
                    m.d.comb += there.eq(sending & i.valid)
                    m.d.comb += source.eq(i.payload)
                    m.d.comb += i.ready.eq(sending & able)
        with m.If(~o.valid | o.ready):
            m.d.sync += o.valid.eq(go)
            m.d.sync += beat.eq(source)
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(self.o_bags.ready & ~state.making):
            m.d.sync += pools.eq(0)
        m.d.sync += self.free.valid.eq(0)
        m.d.sync += self.free.frame.eq(now.frame)
        with m.If(~sending):
            m.d.sync += part.eq(HEADER)
            m.d.sync += final.eq(1)
        with m.If(go):
            m.d.sync += [
                count.eq(Mux(cuts, 0, count + 1)),
                full.eq(~cuts & (count == chunk - 2)),
                left.eq(left - 1),
                final.eq(left == 2),
            ]
            with m.If(cuts):
                m.d.sync += [
                    request.valid.eq(1),
                    request.payload.address.eq(address),
                    request.payload.beats.eq(count + 1),
                    address.eq(address + (chunk << state.shift)),
                ]
            with m.If(final):
                with m.Switch(part):
                    with m.Case(HEADER):
                        m.d.sync += part.eq(SAMPLES)
                        m.d.sync += left.eq(reads.sample_beats)
                        m.d.sync += final.eq(reads.sample_beats == 1)
                    with m.Case(SAMPLES):
                        m.d.sync += [
                            part.eq(Mux(pooled, VECTORS, ROWS)),
                            left.eq(rest.beats),
                            final.eq(rest.beats == 1),
                            self.free.valid.eq(now.frees & ~pooled),
                            pools.eq(pooled),
                        ]
                    with m.Case(VECTORS):
                        m.d.sync += self.free.valid.eq(now.frees)
        return SimpleNamespace(
            closes=closes, go=go, sending=sending, address=address, rest_beats=rest_beats, more=more,
            current=current)

    def _sequence(self, m: Module, state, reads, may_gather, out) -> None:
        """Where the next mini-batch goes, and how long it is: products, a bit of the factor a cycle, the highest
        first, and at a job's begin a division."""
        now, job = state.now, self.job
        popular, gathered = self.i_popular.payload, self.i_gathered.payload
        mail_at = Signal(32, reset_less=True)
        slot = Signal(8, reset_less=True)
        step = Signal(range(NUMBER_BITS + 1))
        of_beats = Signal(7, reset_less=True)
        of_vectors = Signal(7, reset_less=True)
        first, beats, rest = (Signal(bits, name=name, reset_less=True)
                              for name, bits in (("first", 17), ("beats", 17), ("rest", 23)))
        dividend = Signal(NUMBER_BITS, reset_less=True)
        remainder = Signal(9, reset_less=True)
        multiplier = Signal(8, reset_less=True)
        slot_last = Signal(reset_less=True)
        doubled = Signal(9)
        less = Signal(10)
        m.d.comb += doubled.eq(Cat(dividend[-1], remainder))
        m.d.comb += less.eq(doubled - job.mailbox_slots)
        m.d.sync += state.launch.eq(0)
        with m.FSM() as steps:
            with m.State("PICK"):
                m.d.sync += [
                    step.eq(0),
                    dividend.eq(state.number),
                    remainder.eq(0),
                    out.current.eq(state.number),
                    state.kind.eq(Mux(may_gather, KIND.GATHERED, KIND.POPULAR)),
                    now.eq(gathered),
                    of_beats.eq(job.sample_beats),
                    of_vectors.eq(job.vectors),
                    first.eq(0),
                    beats.eq(0),
                    rest.eq(0),
                    out.address.eq(self.to + Cat(Const(0, state.shift), mail_at)),
                ]
                with m.If(~may_gather):
                    m.d.sync += [
                        now.frame.eq(popular.frame),
                        now.samples.eq(popular.samples),
                        now.start.eq(0),
                        now.rows.eq(0),
                        now.frees.eq(1),
                    ]
                with m.If(self.start):
                    m.next = "DIVIDE"
                with m.Elif(state.take):
                    m.d.sync += state.number.eq(state.number + 1)
                    m.next = "MULTIPLY"
            with m.State("DIVIDE"):         # the slot of the next mini-batch
                m.d.sync += [
                    step.eq(step + 1),
                    dividend.eq(dividend << 1),
                    remainder.eq(Mux(less[-1], doubled, less)),
                    multiplier.eq(remainder),
                    slot.eq(remainder),
                    mail_at.eq(0),
                    state.gradient_at.eq(0),
                ]
                with m.If(step == NUMBER_BITS):
                    m.d.sync += step.eq(0)
                    m.next = "PLACE"
            with m.State("PLACE"):          # and where it is
                m.d.sync += [
                    step.eq(step + 1),
                    multiplier.eq(multiplier << 1),
                    mail_at.eq((mail_at << 1) + Mux(multiplier[-1], job.mailbox_pitch, 0)),
                    state.gradient_at.eq((state.gradient_at << 1) + Mux(multiplier[-1], job.gradients_pitch, 0)),
                ]
                with m.If(step == len(multiplier) - 1):
                    m.next = "PICK"
            with m.State("MULTIPLY"):
                m.d.sync += [
                    step.eq(step + 1),
                    of_beats.eq(of_beats << 1),
                    of_vectors.eq(of_vectors << 1),
                    first.eq((first << 1) + Mux(of_beats[-1], now.start, 0)),
                    beats.eq((beats << 1) + Mux(of_beats[-1], now.samples, 0)),
                    rest.eq((rest << 1) + Mux(of_vectors[-1], now.samples, 0)),
                    slot_last.eq(slot + 1 == job.mailbox_slots),
                ]
                with m.If(step == len(of_beats) - 1):
                    m.next = "SHIFT"
            with m.State("SHIFT"):
                m.d.sync += [
                    out.rest_beats.eq(Mux(job.pooled, rest, now.rows) << job.row_beats_log2),
                    state.launch.eq(1),
                    reads.first_beat.eq(first),
                    reads.sample_beats.eq(beats),
                    out.sending.eq(1),
                    out.more.eq(now.rows != 0),
                ]
                m.next = "SEND"
            with m.State("SEND"):
                with m.If(out.go & out.closes):
                    m.d.sync += out.sending.eq(0)
                    m.next = "END"
            with m.State("END"):
                m.d.sync += slot.eq(Mux(slot_last, 0, slot + 1))
                m.d.sync += mail_at.eq(Mux(slot_last, 0, mail_at + job.mailbox_pitch))
                m.d.sync += state.gradient_at.eq(Mux(slot_last, 0, state.gradient_at + job.gradients_pitch))
                m.next = "PICK"
        m.d.comb += state.picking.eq(steps.ongoing("PICK"))
