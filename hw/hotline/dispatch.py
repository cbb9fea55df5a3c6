"""Dispatches mini-batches to GPUs through their mailboxes, and starts the updates of those that are finished."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import data_layout, request_layout
from hw.hotline.config import HotlineConfig
from hw.hotline.narrower import narrowed
from hw.hotline.program import Job
from hw.hotline.records import (
    DispatchError,
    frame_layout,
    gathered_layout,
    numbers_layout,
    place_layout,
    update_layout,
)
from hw.hotline.row_table import location_layout, query_layout
from hw.hotline.transfers import chunk_beats
from hw.isa.hotline import KIND
from hw.place import Part
from hw.stream.fifo import Fifo

NUMBER_BITS = 32        # of a mini-batch's number
HEADER, SAMPLES, ROWS, VECTORS = range(4)       # sections of a mini-batch in the mailbox, in order


class _Mailbox(NamedTuple):
    """Where a GPU's next mini-batch goes. begun: mini-batches that it was given; slot: of its mailbox; mailbox_beat,
    gradient_beat: where slot and gradients begin, in beats of the buffers."""

    begun: Signal
    slot: Signal
    mailbox_beat: Signal
    gradient_beat: Signal


class _State(NamedTuple):
    """What all stages share.

    number: of the next mini-batch; current, kind: the one under way; to: the GPU that the next one goes to; gpu: that
    of the one under way; mailboxes: by GPU; pick: the sequencer waits for a mini-batch; take: it takes one; launch: a
    pulse when its addresses and lengths are known; pending: a gathered one is dispatched, or being so, and its updates
    have not begun; updating: they are being made; outstanding: a GPU has not finished all that it was dispatched.
    """

    number: Signal
    current: data.View
    kind: Signal
    to: Signal
    gpu: Signal
    mailboxes: tuple[_Mailbox, ...]
    pick: Signal
    take: Signal
    launch: Signal
    pending: Signal
    updating: Signal
    outstanding: Signal


class _Reads(NamedTuple):
    """The beats of the samples of the mini-batch under way: the first one's number in its frame, and how many."""

    first_beat: Signal
    sample_beats: Signal


class _Output(NamedTuple):
    """The beats to the mailbox. sending: from the header of the mini-batch under way to its last beat; go: a beat is
    passed on; last: the mini-batch ends with it; address: of the next request, in bytes; number: the mini-batch's;
    rest_beats: of its rows or vectors before they are narrowed; has_rest: it has some."""

    sending: Signal
    go: Signal
    last: Signal
    address: Signal
    number: Signal
    rest_beats: Signal
    has_rest: Signal


def _of(values: Sequence[Any], gpu: Value) -> Any:
    """That of a GPU."""
    return Array(values)[gpu] if len(values) > 1 else values[0]


def each(numbers: data.View) -> list[Any]:
    """Of each GPU."""
    return [numbers[name] for name in numbers.shape().members]


class Dispatcher(Part):
    """Writes mini-batches to mailboxes as GPUs free them: a header, samples, and the gathered rows or vectors.

    A mini-batch goes to the GPU that has the fewest which it has not finished, of several to the first. Of GPU g the
    j-th one, from 0 over the run, lies from beat (g * mailbox_slots + j % mailbox_slots) * mailbox_pitch on: words k
    (its number among those of all GPUs), kind, samples, rows, 0 ...; then all beats of its samples; then, of a gathered
    one, its rows by ordinals or, pooled, its vectors. `dispatched` of g becomes j + 1 when all of that is written.
    Source: Hotline §6.1, §6.5 (dispatcher and scheduler)

    Parameters  config: HotlineConfig
    Members     job                 In  of hw.hotline.program.Job
                start               In  a pulse before the first mini-batch of a job
                mailbox_address     In(64)
                gradients           In(64)  address of the gradients
                i_popular           In(stream of frame_layout)
                i_gathered          In(stream of gathered_layout)
                o_place             Out(stream of place_layout)  to the input buffer's read client
                i_beats             In(stream of a beat)  from the input buffer's read client
                free                Out  {valid, frame}: all of it has been read
                o_query             Out(stream of query_layout)  to the row table
                i_query             In(stream of location_layout)  from the row table
                o_rows              Out(stream of a slot)  to the embedding buffer's read client
                i_rows              In(stream of a beat)  from the embedding buffer's read client
                o_bags              Out(stream of gathered_layout)  to the unit that pools
                i_vectors           In(stream of a beat)  from the unit that pools
                o_requests, o_data  Out(stream)  to a client of a WritePort
                written             In  its pulse
                dispatched          Out(32 for each GPU)  mini-batches that are written
                notify              Out  a pulse when `dispatched` has changed
                finished            In(32 for each GPU)  mini-batches that it has finished, as it reports
                polled              In  a pulse: the reports were read
                completed           Out(32 for each GPU)  mini-batches that it has finished, accepted
                advanced            Out  `completed` has grown
                waiting             Out  for GPUs and for nothing else
                urgent              Out  the next report is waited for, or a GPU has a gathered mini-batch
                o_update            Out(stream of update_layout)
                updated             In  a pulse: the updates have been made
                popular, gathered   Out  a pulse: such a mini-batch is dispatched
                stall_mailbox       Out  a mini-batch waits for room
                starved             Out  there is no mini-batch to write
                error               Out  {valid, detail}  OVERRUN
                idle                Out  everything dispatched is finished and nothing is inside
    Shapes      a popular mini-batch of s samples is 1 + s * sample_beats beats, a gathered one of r rows r * row_beats
                more, pooled s * vectors * row_beats more; of these, with `half`, half as many, rounded up
    Timing      a beat per cycle, of rows and vectors every other cycle with `half`; 10 cycles from a mini-batch to its
                header, 11 from its last beat to the next one's header, besides what the first read of samples, that of
                rows and, with `half`, hw.hotline.narrower take. A job begins 42 cycles after `start`, with g GPUs, more
                than one, 9 + 43 * g. `advanced` comes 3 cycles after the poll; a GPU is chosen by what was known 1 +
                log2(g) cycles before. `idle` is two cycles late
    Handshake   a gathered one goes before popular ones, but not before the updates of the gathered one before it
                have begun, and its rows or vectors are not read before those have been made. Its samples' beats have
                all been read when o_bags is offered: until its last vector the dispatcher reads nothing. Rows are
                requested after its last sample; answers go from i_query to o_rows by wires. Requests of up to half
                of the port's queue follow their data
    Faults      a GPU reports more than it was dispatched (OVERRUN, of several the first); what is under way goes on
                until a reset. A lower report than before is ignored
    Reset       drops everything; the next mini-batch is number 0
    Golden      golden.hotline.dispatch          Tests  verif/hotline/test_dispatch.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        bits = 32 * config.words
        beat = stream.Signature(bits)
        numbers = numbers_layout(config)
        super().__init__({
            "job": In(Job), "start": In(1), "mailbox_address": In(64), "gradients": In(64),
            "i_popular": In(stream.Signature(frame_layout(config))),
            "i_gathered": In(stream.Signature(gathered_layout(config))),
            "o_place": Out(stream.Signature(place_layout(config))), "i_beats": In(beat),
            "free": Out(data.StructLayout({"valid": 1, "frame": config.frame_bits})),
            "o_query": Out(stream.Signature(query_layout(config))),
            "i_query": In(stream.Signature(location_layout(config))),
            "o_rows": Out(stream.Signature(config.slot_bits)), "i_rows": In(beat),
            "o_bags": Out(stream.Signature(gathered_layout(config))), "i_vectors": In(beat),
            "o_requests": Out(stream.Signature(request_layout())),
            "o_data": Out(stream.Signature(data_layout(config.beat_bytes))), "written": In(1),
            "dispatched": Out(numbers), "notify": Out(1), "finished": In(numbers), "polled": In(1),
            "completed": Out(numbers), "advanced": Out(1), "waiting": Out(1), "urgent": Out(1),
            "o_update": Out(stream.Signature(update_layout(config))), "updated": In(1),
            "popular": Out(1), "gathered": Out(1), "stall_mailbox": Out(1), "starved": Out(1),
            "error": Out(DispatchError), "idle": Out(1, init=1),
        })

    def elaborate(self, platform):
        m = Module()
        gpus = range(self.config.gpus)
        mailboxes = tuple(_Mailbox(
            begun=Signal(NUMBER_BITS, name=f"begun_{g}"),
            slot=Signal(8, name=f"slot_{g}", reset_less=True),
            mailbox_beat=Signal(32, name=f"mailbox_beat_{g}", reset_less=True),
            gradient_beat=Signal(32, name=f"gradient_beat_{g}", reset_less=True)) for g in gpus)
        state = _State(
            number=mailboxes[0].begun if len(gpus) == 1 else Signal(NUMBER_BITS, name="number"),
            current=Signal(gathered_layout(self.config), name="current", reset_less=True),
            kind=Signal(name="kind", reset_less=True),
            to=Signal(gpus, name="to", reset_less=True),
            gpu=Signal(gpus, name="gpu", reset_less=True),
            mailboxes=mailboxes,
            pick=Signal(name="pick"),
            take=Signal(name="take"),
            launch=Signal(name="launch"),
            pending=Signal(name="pending"),
            updating=Signal(name="updating"),
            outstanding=Signal(name="outstanding"))
        self._finished(m, state)
        self._updates(m, state)
        reads = self._reads(m, state)
        may_gather = self._room(m, state)
        output = self._output(m, state, reads, platform)
        self._sequence(m, state, reads, may_gather, output)
        return m

    def _bytes(self, beats: Value) -> Value:
        return Cat(Const(0, (self.config.beat_bytes - 1).bit_length()), beats)

    def _finished(self, m: Module, state: _State) -> None:
        """Accepts the GPUs' reports, or refuses them."""
        error, completed, dispatched = self.error, each(self.completed), each(self.dispatched)
        report = [Signal(NUMBER_BITS, name=f"report_{g}", reset_less=True) for g in range(self.config.gpus)]
        polled = Signal()
        compared = Signal()
        gpus = range(self.config.gpus)
        beyond = Signal(len(gpus), reset_less=True)
        newer = Signal(len(gpus), reset_less=True)
        m.d.sync += [
            polled.eq(self.polled),
            *(mine.eq(finished) for mine, finished in zip(report, each(self.finished), strict=True)),
            compared.eq(polled),
            *(beyond[g].eq(report[g] > dispatched[g]) for g in gpus),
            *(newer[g].eq(report[g] > completed[g]) for g in gpus),
            state.outstanding.eq(self.completed.as_value() != self.dispatched.as_value()),
            self.advanced.eq(0),
        ]
        wrong = report[gpus[-1]]
        for g in reversed(gpus):
            with m.If(compared & newer[g] & ~beyond[g]):
                m.d.sync += completed[g].eq(report[g])
                m.d.sync += self.advanced.eq(1)
            wrong = Mux(beyond[g], report[g], wrong) if g != gpus[-1] else wrong
        with m.If(~error.valid & compared & beyond.any()):
            m.d.sync += error.valid.eq(1)
            m.d.sync += error.detail.eq(wrong)

    def _updates(self, m: Module, state: _State) -> None:
        """Starts the updates of the gathered mini-batch that a GPU has, when it has finished it."""
        update, current = self.o_update, state.current
        number = Signal(NUMBER_BITS, name="pending_number", reset_less=True)
        gpu = Signal.like(state.gpu, name="pending_gpu", reset_less=True)
        reached = Signal()
        sent = Signal()
        with m.If(update.ready):
            m.d.sync += update.valid.eq(0)
        m.d.sync += reached.eq(state.pending & (_of(each(self.completed), gpu) > number))
        with m.If(state.pending & reached & ~sent):
            m.d.sync += update.valid.eq(1)
            m.d.sync += sent.eq(1)
        with m.If(self.updated):
            m.d.sync += state.updating.eq(0)
        with m.If(update.valid & update.ready):
            m.d.sync += state.pending.eq(0)
            m.d.sync += state.updating.eq(1)
            m.d.sync += sent.eq(0)
        with m.If(state.launch & (state.kind == KIND.GATHERED)):
            m.d.sync += [
                state.pending.eq(1),
                number.eq(_of([mailbox.begun for mailbox in state.mailboxes], state.gpu) - 1),
                gpu.eq(state.gpu),
                update.payload.batch.eq(current.batch),
                update.payload.rows.eq(current.rows),
                update.payload.address.eq(self.gradients + self._bytes(
                    _of([mailbox.gradient_beat for mailbox in state.mailboxes], state.gpu))),
            ]

    def _reads(self, m: Module, state: _State) -> _Reads:
        """Requests the beats of the samples, then the rows, from `launch` on."""
        current, job = state.current, self.job
        first_beat = Signal(len(self.o_place.payload.beat), reset_less=True)
        sample_beats = Signal(range(self.config.frame_beats + 1), reset_less=True)
        place, query = self.o_place, self.o_query
        beats_left = Signal.like(sample_beats)
        last_beat = Signal(reset_less=True)
        rows_left = Signal.like(current.rows)
        last_row = Signal(reset_less=True)
        querying = Signal()
        queried = Signal()
        m.d.comb += [
            query.valid.eq(querying & ~place.valid & ~state.updating),
            query.payload.batch.eq(current.batch),
            queried.eq(query.valid & query.ready),
            self.o_rows.valid.eq(self.i_query.valid),
            self.o_rows.payload.eq(self.i_query.payload.slot),
            self.i_query.ready.eq(self.o_rows.ready),
        ]
        with m.If(state.launch):
            m.d.sync += [
                place.valid.eq(1),
                place.payload.frame.eq(current.frame),
                place.payload.beat.eq(first_beat),
                beats_left.eq(sample_beats),
                last_beat.eq(sample_beats == 1),
                querying.eq((state.kind == KIND.GATHERED) & ~job.pooled & (current.rows != 0)),
                query.payload.ordinal.eq(0),
                rows_left.eq(current.rows),
                last_row.eq(current.rows == 1),
            ]
        with m.Elif(place.valid & place.ready):
            m.d.sync += [
                place.payload.beat.eq(place.payload.beat + 1),
                place.valid.eq(~last_beat),
                beats_left.eq(beats_left - 1),
                last_beat.eq(beats_left == 2),
            ]
        with m.Elif(queried):
            m.d.sync += [
                query.payload.ordinal.eq(query.payload.ordinal + 1),
                querying.eq(~last_row),
                rows_left.eq(rows_left - 1),
                last_row.eq(rows_left == 2),
            ]
        return _Reads(first_beat=first_beat, sample_beats=sample_beats)

    def _room(self, m: Module, state: _State) -> Signal:
        """Takes the next mini-batch when a mailbox has room. Returns: it is a gathered one."""
        popular, gathered = self.i_popular, self.i_gathered
        ahead = [Signal(NUMBER_BITS, name=f"ahead_{g}", reset_less=True) for g in range(self.config.gpus)]
        room = Signal()
        empty = Signal()
        may_gather = Signal()
        available = popular.valid | gathered.valid
        eligible = may_gather | popular.valid
        m.d.comb += [
            may_gather.eq(gathered.valid & ~state.pending),
            gathered.ready.eq(state.pick & room & ~state.pending & ~self.start),
            popular.ready.eq(state.pick & room & ~may_gather & ~self.start),
            state.take.eq(state.pick & room & eligible & ~self.start),
        ]
        fewest, to = self._fewest(m, ahead)
        m.d.sync += [
            *(mine.eq(mailbox.begun - done) for mine, mailbox, done in zip(
                ahead, state.mailboxes, each(self.completed), strict=True)),
            room.eq(fewest < self.job.mailbox_slots),
            state.to.eq(to),
            empty.eq(Cat(mine == 0 for mine in ahead).all()),
            self.waiting.eq(state.pick & state.outstanding),
            self.urgent.eq((state.pick | state.pending) & state.outstanding),
            self.starved.eq(state.pick & ~available),
            self.stall_mailbox.eq(state.pick & ~room & eligible),
            self.idle.eq(state.pick & ~available & ~self.start & empty & ~state.pending & ~state.updating),
        ]
        return may_gather

    def _fewest(self, m: Module, ahead: list[Signal]) -> tuple[Value, Value]:
        """The least of some numbers, and which it is: pairs are compared, a cycle a level."""
        best: list[tuple[Value, Value]] = [(mine, Const(g, range(len(ahead)))) for g, mine in enumerate(ahead)]
        while len(best) > 1:
            level = []
            for (mine, here), (other, there) in zip(best[::2], best[1::2], strict=True):
                least = Signal(NUMBER_BITS, name=f"least_{len(best)}", reset_less=True)
                which = Signal(range(len(ahead)), name=f"which_{len(best)}", reset_less=True)
                m.d.sync += least.eq(Mux(other < mine, other, mine))
                m.d.sync += which.eq(Mux(other < mine, there, here))
                level.append((least, which))
            best = level
        return best[0]

    def _written(self, m: Module, ends: Fifo) -> None:
        """Counts what is dispatched. ends: which of the requests under way are a mini-batch's last."""
        ended = Signal()
        kind = ends.o.payload.kind
        m.d.comb += ended.eq(self.written & ends.o.valid & ends.o.payload.last)
        m.d.comb += ends.o.ready.eq(self.written)
        m.d.sync += [
            *(count.eq(count + (ended & (ends.o.payload.gpu == g))) for g, count in enumerate(each(self.dispatched))),
            self.notify.eq(ended),
            self.popular.eq(ended & (kind == KIND.POPULAR)),
            self.gathered.eq(ended & (kind == KIND.GATHERED)),
        ]

    def _output(self, m: Module, state: _State, reads: _Reads, platform) -> _Output:
        """Passes the sections' beats to the port, one after the other; a request follows its beats."""
        config, current, job = self.config, state.current, self.job
        o, request, chunk = self.o_data, self.o_requests, chunk_beats(config)
        m.submodules.ends = ends = Fifo(
            data.StructLayout({"last": 1, "kind": 1, "gpu": state.gpu.shape()}), depth=config.writes_in_flight)
        self._written(m, ends)
        sending = Signal()
        go = Signal()
        last = Signal()
        address = Signal(64, reset_less=True)
        rest_beats = Signal(29, reset_less=True)
        has_rest = Signal(reset_less=True)
        number = Signal(NUMBER_BITS, reset_less=True)
        beat = Signal(32 * config.words, reset_less=True)
        source = Signal(32 * config.words)
        section = Signal(2, reset_less=True)
        pool = Signal()                 # the pooling unit is started
        valid = Signal()
        ends_request = Signal()
        ready = Signal()
        left = Signal(29, reset_less=True)      # of the section
        last_left = Signal(reset_less=True)
        pooled = job.pooled & (state.kind == KIND.GATHERED)
        rest = narrowed(m, platform, words=config.words, begin=state.launch, beats=rest_beats, half=job.half,
                        pooled=pooled, rows=self.i_rows, vectors=self.i_vectors)
        count = Signal(range(chunk))    # beats of the request
        full = Signal()                 # the next beat fills it
        m.d.comb += [
            last.eq(last_left & (section[1] | (section[0] & ~has_rest))),
            ends_request.eq(full | last),
            ready.eq((~o.valid | o.ready) & (~ends_request | ((~request.valid | request.ready) & ends.i.ready))),
            go.eq(valid & ready),
            o.payload.data.eq(beat),
            self.o_bags.payload.eq(current),
            self.o_bags.valid.eq(pool & ~state.updating),
            ends.i.valid.eq(go & ends_request),
            ends.i.payload.last.eq(last),
            ends.i.payload.kind.eq(state.kind),
            ends.i.payload.gpu.eq(state.gpu),
        ]
        with m.Switch(section):
            with m.Case(HEADER):
                m.d.comb += valid.eq(sending)
                m.d.comb += source.eq(
                    Cat(number, state.kind, Const(0, 31), current.samples, Const(0, 16), current.rows))
            for sections, i in (((SAMPLES,), self.i_beats), ((ROWS, VECTORS), rest.o)):
                with m.Case(*sections):
                    m.d.comb += valid.eq(sending & i.valid)
                    m.d.comb += source.eq(i.payload)
                    m.d.comb += i.ready.eq(sending & ready)
        with m.If(~o.valid | o.ready):
            m.d.sync += o.valid.eq(go)
            m.d.sync += beat.eq(source)
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(self.o_bags.ready & ~state.updating):
            m.d.sync += pool.eq(0)
        m.d.sync += self.free.valid.eq(0)
        m.d.sync += self.free.frame.eq(current.frame)
        with m.If(~sending):
            m.d.sync += section.eq(HEADER)
            m.d.sync += last_left.eq(1)
        with m.If(go):
            m.d.sync += [
                count.eq(Mux(ends_request, 0, count + 1)),
                full.eq(~ends_request & (count == chunk - 2)),
                left.eq(left - 1),
                last_left.eq(left == 2),
            ]
            with m.If(ends_request):
                m.d.sync += [
                    request.valid.eq(1),
                    request.payload.address.eq(address),
                    request.payload.beats.eq(count + 1),
                    address.eq(address + chunk * config.beat_bytes),
                ]
            with m.If(last_left):
                with m.Switch(section):
                    with m.Case(HEADER):
                        m.d.sync += section.eq(SAMPLES)
                        m.d.sync += left.eq(reads.sample_beats)
                        m.d.sync += last_left.eq(reads.sample_beats == 1)
                    with m.Case(SAMPLES):
                        m.d.sync += [
                            section.eq(Mux(pooled, VECTORS, ROWS)),
                            left.eq(rest.beats),
                            last_left.eq(rest.beats == 1),
                            self.free.valid.eq(current.frees & ~pooled),
                            pool.eq(pooled),
                        ]
                    with m.Case(VECTORS):
                        m.d.sync += self.free.valid.eq(current.frees)
        return _Output(
            sending=sending, go=go, last=last, address=address, number=number, rest_beats=rest_beats,
            has_rest=has_rest)

    def _sequence(self, m: Module, state: _State, reads: _Reads, may_gather: Signal, output: _Output) -> None:
        """Computes where the next mini-batch goes and its length: products bit by bit, the highest first, and at a
        job's begin a division for each GPU, whose mailbox lies behind those of the GPUs before."""
        current, job, mailboxes = state.current, self.job, state.mailboxes
        popular, gathered = self.i_popular.payload, self.i_gathered.payload
        several = len(mailboxes) > 1
        step = Signal(range(NUMBER_BITS + 1))
        beats_factor = Signal(7, reset_less=True)
        vectors_factor = Signal(7, reset_less=True)
        first, beats, rest = (Signal(bits, name=name, reset_less=True)
                              for name, bits in (("first_product", 17), ("beats_product", 17), ("rest_product", 23)))
        dividend = Signal(NUMBER_BITS, reset_less=True)
        remainder = Signal(9, reset_less=True)
        multiplier = Signal(8, reset_less=True)
        last_slot = Signal(reset_less=True)
        shifted = Signal(9)
        difference = Signal(10)
        pitches = job.mailbox_pitch, job.gradients_pitch
        # Beats of a GPU's mailbox and of its gradients, and where those of each GPU begin.
        wholes = [Signal(32, name=f"whole_{k}", reset_less=True) if several else Const(0, 32) for k in range(2)]
        begins = [[Const(0, 32), whole, whole << 1, whole + (whole << 1)] for whole in wholes]
        m.d.comb += shifted.eq(Cat(dividend[-1], remainder))
        m.d.comb += difference.eq(shifted - job.mailbox_slots)
        m.d.sync += state.launch.eq(0)

        def beats_of(mailbox: _Mailbox) -> tuple[Signal, Signal]:
            return mailbox.mailbox_beat, mailbox.gradient_beat

        def multiply(mailbox: _Mailbox) -> list[Any]:
            return [beat.eq((beat << 1) + Mux(multiplier[-1], pitch, 0))
                    for beat, pitch in zip(beats_of(mailbox), pitches, strict=True)]

        with m.FSM() as sequencer:
            with m.State("PICK"):
                m.d.sync += [
                    step.eq(0),
                    dividend.eq(mailboxes[0].begun),
                    remainder.eq(0),
                    output.number.eq(state.number),
                    state.gpu.eq(state.to),
                    state.kind.eq(Mux(may_gather, KIND.GATHERED, KIND.POPULAR)),
                    current.eq(gathered),
                    beats_factor.eq(job.sample_beats),
                    vectors_factor.eq(job.vectors),
                    first.eq(0),
                    beats.eq(0),
                    rest.eq(0),
                    output.address.eq(self.mailbox_address + self._bytes(
                        _of([mailbox.mailbox_beat for mailbox in mailboxes], state.to))),
                ]
                with m.If(~may_gather):
                    m.d.sync += [
                        current.frame.eq(popular.frame),
                        current.samples.eq(popular.samples),
                        current.start.eq(0),
                        current.rows.eq(0),
                        current.frees.eq(1),
                    ]
                if several:
                    m.d.sync += multiplier.eq(job.mailbox_slots)
                with m.If(self.start):
                    if several:
                        m.d.sync += state.gpu.eq(0)
                        for beat in beats_of(mailboxes[0]):
                            m.d.sync += beat.eq(0)
                    m.next = "WHOLE" if several else "DIVIDE"
                with m.Elif(state.take):
                    for g, mailbox in enumerate(mailboxes):
                        m.d.sync += mailbox.begun.eq(mailbox.begun + (state.to == g))
                    if several:
                        m.d.sync += state.number.eq(state.number + 1)
                    m.next = "MULTIPLY"
            if several:
                with m.State("WHOLE"):
                    m.d.sync += [
                        step.eq(step + 1),
                        multiplier.eq(multiplier << 1),
                        *multiply(mailboxes[0]),
                    ]
                    with m.If(step == len(multiplier)):
                        m.d.sync += step.eq(0)
                        for whole, beat in zip(wholes, beats_of(mailboxes[0]), strict=True):
                            m.d.sync += whole.eq(beat)
                        m.next = "DIVIDE"
            with m.State("DIVIDE"):         # slot = begun % mailbox_slots
                m.d.sync += [
                    step.eq(step + 1),
                    dividend.eq(dividend << 1),
                    remainder.eq(Mux(difference[-1], shifted, difference)),
                    multiplier.eq(remainder),
                ]
                for g, mailbox in enumerate(mailboxes):
                    with m.If(state.gpu == g):
                        m.d.sync += mailbox.slot.eq(remainder)
                        for beat in beats_of(mailbox):
                            m.d.sync += beat.eq(0)
                with m.If(step == NUMBER_BITS):
                    m.d.sync += step.eq(0)
                    m.next = "PLACE"
            with m.State("PLACE"):          # where it begins in its mailbox
                m.d.sync += step.eq(step + 1)
                m.d.sync += multiplier.eq(multiplier << 1)
                for g, mailbox in enumerate(mailboxes):
                    with m.If(state.gpu == g):
                        m.d.sync += multiply(mailbox)
                with m.If(step == len(multiplier) - 1):
                    m.next = "MOVE" if several else "PICK"
            if several:
                with m.State("MOVE"):       # behind the mailboxes before
                    m.d.sync += [
                        step.eq(0),
                        remainder.eq(0),
                        state.gpu.eq(state.gpu + 1),
                        dividend.eq(_of([mailbox.begun for mailbox in mailboxes], (state.gpu + 1)[:len(state.gpu)])),
                    ]
                    for g, mailbox in enumerate(mailboxes):
                        with m.If(state.gpu == g):
                            for beat, begin in zip(beats_of(mailbox), begins, strict=True):
                                m.d.sync += beat.eq(beat + begin[g])
                    with m.If(state.gpu == len(mailboxes) - 1):
                        m.next = "PICK"
                    with m.Else():
                        m.next = "DIVIDE"
            with m.State("MULTIPLY"):
                m.d.sync += [
                    step.eq(step + 1),
                    beats_factor.eq(beats_factor << 1),
                    vectors_factor.eq(vectors_factor << 1),
                    first.eq((first << 1) + Mux(beats_factor[-1], current.start, 0)),
                    beats.eq((beats << 1) + Mux(beats_factor[-1], current.samples, 0)),
                    rest.eq((rest << 1) + Mux(vectors_factor[-1], current.samples, 0)),
                    last_slot.eq(_of([mailbox.slot for mailbox in mailboxes], state.gpu) + 1 == job.mailbox_slots),
                ]
                with m.If(step == len(beats_factor) - 1):
                    m.next = "SHIFT"
            with m.State("SHIFT"):
                m.d.sync += [
                    output.rest_beats.eq(Mux(job.pooled, rest, current.rows) << job.row_beats_log2),
                    state.launch.eq(1),
                    reads.first_beat.eq(first),
                    reads.sample_beats.eq(beats),
                    output.sending.eq(1),
                    output.has_rest.eq(current.rows != 0),
                ]
                m.next = "SEND"
            with m.State("SEND"):
                with m.If(output.go & output.last):
                    m.d.sync += output.sending.eq(0)
                    m.next = "END"
            with m.State("END"):
                for g, mailbox in enumerate(mailboxes):
                    with m.If(state.gpu == g):
                        m.d.sync += mailbox.slot.eq(Mux(last_slot, 0, mailbox.slot + 1))
                        for beat, pitch, begin in zip(beats_of(mailbox), pitches, begins, strict=True):
                            m.d.sync += beat.eq(Mux(last_slot, begin[g], beat + pitch))
                m.next = "PICK"
        m.d.comb += state.pick.eq(sequencer.ongoing("PICK"))
