"""Fetches and checks instructions, and sends what they say on its way."""

from functools import reduce
from operator import or_
from types import SimpleNamespace
from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import read_layout, request_layout
from hw.emb.loader import bounds_layout
from hw.emb.regions import READERS, region_layout
from hw.emb.row_formats import of_each_kind, slots
from hw.emb.row_offset import kept_bits
from hw.emb.tokens import CHUNK_BITS, POSITION_BITS, above, error_layout, job_layout
from hw.isa import EMB
from hw.isa.emb import FORMAT, ROW_FORMAT
from hw.kernel.bounds import BoundedSum, Term
from hw.kernel.decode import Decoder
from hw.kernel.instructions import Instructions, program_error_layout
from hw.layouts import arguments_layout
from hw.place import Part
from hw.stream.fifo import Fifo

IN_FLIGHT = 64  # instructions that have begun and not finished
JOBS = 16       # of these, that wait for the feeder
BEGUN_CYCLES = 4    # of a job's span behind where the ring begins, less one
LOAD, BAGS, FILL = (EMB.instruction(name).opcode for name in ("LOAD", "BAGS", "FILL"))
AT_BAGS, AT_FILL = (EMB.instructions.index(EMB.instruction(name)) for name in ("BAGS", "FILL"))
WITH_ROWS = {AT_BAGS, AT_FILL}
SUM, _, MAXIMUM = range(len(EMB.modes))
INPUTS, OUTPUTS, ROWS, RING = range(4)  # detail of BOUNDS
HEADER_WORDS = 16                       # of a group of a load image, which has as many beats


class Check(enum.Enum, shape=4):
    """One addition to a sum that must stay within a buffer."""

    RING = 0
    LENGTHS = 1
    INDICES = 2
    WEIGHTS = 3
    ROWS = 4
    VECTOR = 5      # and then
    BAGS = 6
    PAIRS = 7
    IMAGE = 8       # and then
    HEADERS = 9
    DONE = 10


# The buffers that sums other than those of inputs stay in.
BUFFERS = {Check.RING: RING, Check.ROWS: ROWS, Check.VECTOR: OUTPUTS, Check.BAGS: OUTPUTS}


class _State(NamedTuple):
    """What `Program.elaborate` hands to other methods."""

    words: Value
    words_log2: Any
    item: Any
    number: Signal
    instructions: Instructions
    refused: Signal
    stored: Any


class _Queues(NamedTuple):
    """What `Program._queues` hands on."""

    job_push: Any
    job_room: Any
    fill: Signal
    issue: Any
    retire: Any
    quiet: Signal
    room: Any


class _Allowed(NamedTuple):
    """What `Program._allowed` hands on."""

    refused: Any
    bags: Any


class _Sums(NamedTuple):
    """What `Program._sums` hands on."""

    check: Signal
    sum: BoundedSum
    begin: Signal


class Program(Part):
    """Carries a program out: checks each instruction, asks for what it reads, and hands it to feeder or loader.

    Source: SCRec §III.A (the EMB core's instructions); hw.isa, golden.emb.core for what is checked

    BAGS follow one another without waiting; LOAD and FILL begin when all before has finished and end before the
    next begins. An instruction that is refused, or cannot be read, is told when all before has finished. What those
    before it release, finished or not, is cut off its stretch of the ring, as is what lies before the run's first
    position.

    Parameters  beat_bytes: of the ports; row_beats_max, stripe_beats, tables, index_bits: of the core; chunk_rows: most
                rows of a chunk
    Members     start               In  a pulse
                arguments           In  of hw.layouts, from `start` on
                i                   In(stream of hw.axi.bus.read_layout)  instructions
                o_requests          Out(stream of hw.axi.bus.request_layout)  of instructions
                o_regions           Out(stream of hw.emb.regions.region_layout)  of what they read
                o_jobs              Out(stream of hw.emb.tokens.job_layout)
                load_start, load_less_one, load_signature  Out  to the loader
                load_busy           In  of the loader
                table               Out  the table of the instruction that is looked at
                bounds              In  of hw.emb.loader.bounds_layout: what it allows, a cycle later
                ring_mask           Out  ring_beats - 1
                number_now          Out  the instruction that is looked at
                bags_done           In  a pulse: the bags of an instruction are in memory
                row_done            In  a pulse: a row of a FILL is in memory
                flush_window        Out  a pulse: rows in card memory have changed
                flush_tt            Out  a pulse: tables have changed
                ring_begins, ring_begin  In  a pulse behind `start`: the run's first ring position; with ring_beats 0
                    there need be none
                released, finished  Out  progress; what is released stays so, whatever later instructions say
                finish              Out  a pulse: an instruction has finished
                done                Out  all have finished, until reset or `start`
                error               Out  of hw.emb.tokens.error_layout
    Timing      about 20 cycles an instruction, while those before are carried out; with a ring the first begins 5
                cycles after ring_begins at the earliest
    Handshake   streams from registers
    Reset       drops everything; progress is zero again with `start`
    Golden      golden.emb.core          Tests  verif/emb/test_front.py, test_front_faults.py
    """

    def __init__(self, *, beat_bytes: int, row_beats_max: int, stripe_beats: int, tables: int, index_bits: int,
                 chunk_rows: int = 8):
        highest = EMB.field("chunk_rows").highest
        if type(chunk_rows) is not int or not 1 <= chunk_rows <= highest:
            raise ValueError(f"chunk_rows must be from 1 to {highest}, not {chunk_rows!r}")
        self.beat_bytes, self.row_beats_max, self.stripe_beats = beat_bytes, row_beats_max, stripe_beats
        self.tables, self.index_bits, self.chunk_rows = tables, index_bits, chunk_rows
        super().__init__({
            "start": In(1),
            "arguments": In(arguments_layout(EMB)),
            "i": In(stream.Signature(read_layout(beat_bytes))),
            "o_requests": Out(stream.Signature(request_layout())),
            "o_regions": Out(stream.Signature(region_layout())),
            "o_jobs": Out(stream.Signature(job_layout(row_beats_max=row_beats_max, stripe_beats=stripe_beats))),
            "load_start": Out(1), "load_less_one": Out(32), "load_signature": Out(32), "load_busy": In(1),
            "table": Out(16), "bounds": In(bounds_layout(index_bits=index_bits, chunk_log2=CHUNK_BITS)),
            "number_now": Out(32), "ring_mask": Out(32),
            "bags_done": In(1), "row_done": In(1), "ring_begins": In(1), "ring_begin": In(POSITION_BITS),
            "flush_window": Out(1), "flush_tt": Out(1),
            "released": Out(POSITION_BITS), "finished": Out(32), "finish": Out(1), "done": Out(1),
            "error": Out(error_layout()),
        })

    def elaborate(self, platform):
        m = Module()
        words = self.beat_bytes // 4
        words_log2 = (words - 1).bit_length()
        number = Signal(32, name="number", reset_less=True)
        # Why an instruction is refused; it is told when all before has finished.
        refused = Signal(program_error_layout())
        instructions = Instructions(m, SimpleNamespace(
            start=self.start, arguments=self.arguments, o_requests=self.o_requests, i=self.i, number=number,
            done=self.done, error=refused), EMB, failed="REFUSE")
        state = _State(words=words, words_log2=words_log2, item=instructions.item, number=number,
                       instructions=instructions, refused=refused, stored=self._stored(m, instructions.item))
        queues = self._queues(m, state)
        allowed = self._allowed(m, state)
        bounds = self._sums(m, state)
        self._sequence(m, state, queues, allowed, bounds)
        return m

    def _stored(self, m: Module, item) -> Signal:
        """A register: beats of a row as it is stored."""
        beats = item.row_beats[:self.row_beats_max.bit_length()]
        stored = Signal(len(beats), name="stored_beats", reset_less=True)
        for form in of_each_kind(m, item.row_format):
            more = form.header + slots(form) - 1
            m.d.sync += stored.eq((beats + more if more else beats)[slots(form).bit_length() - 1:])
        return stored

    def _queues(self, m: Module, state: _State) -> _Queues:
        """Jobs for the feeder, and what each instruction releases when it has finished."""
        item = state.item
        # Room is seen before.
        m.submodules.jobs = jobs = Fifo(self.o_jobs.payload.shape(), depth=JOBS, headroom=2)
        m.submodules.releases = releases = Fifo(POSITION_BITS, depth=IN_FLIGHT, headroom=3)
        wiring.connect(m, jobs.o, wiring.flipped(self.o_jobs))

        given, ahead, behind = self._given(m, item, releases)
        # How many positions a row may begin at; worked out while the sums are. What lies before `given` is none of
        # them.
        room = Signal(33, name="ring_room", reset_less=True)
        span = Signal(33, reset_less=True)
        fill = Signal(reset_less=True)
        piece = Signal(len(jobs.i.payload.piece), name="piece_less_one", reset_less=True)
        # In two steps, or synthesis puts one subtraction of row_beats behind the other.
        less_one = Signal(len(jobs.i.payload.beats), name="beats_less_one", reset_less=True)
        vector = Signal(len(jobs.i.payload.vector), name="vector_less_one", reset_less=True)
        inverted = Signal(33)
        m.d.comb += inverted.eq(~Cat(less_one, Const(0, 33 - len(less_one))))
        m.d.sync += less_one.eq(state.stored - 1)
        m.d.sync += vector.eq(Mux(fill, state.stored, item.row_beats)[:len(vector) + 1] - 1)
        m.d.sync += room.eq(item.ring_count - (ahead & behind.replicate(len(ahead))))
        m.d.sync += span.eq(room + inverted)
        m.d.sync += fill.eq(item.opcode == FILL)
        fewer = Signal(reset_less=True)     # the table has fewer rows than the instruction says
        m.d.sync += fewer.eq(self.bounds.loaded & (self.bounds.rows < item.tt_rows))
        m.d.sync += piece.eq(Mux(item.piece_beats == 0, state.stored, item.piece_beats)[:len(piece)] - 1)
        job = jobs.i.payload
        m.d.comb += [
            self.table.eq(item.tt_table),
            self.number_now.eq(state.number),
            job.number.eq(state.number),
            job.copy.eq(fill),
            job.mode.eq(Mux(fill, SUM, item.mode)),
            job.weighted.eq(item.weighted & ~fill),
            job.format.eq(item.format),
            job.row_format.eq(Mux(fill, ROW_FORMAT.FLOAT32, item.row_format)),
            job.beats.eq(less_one),
            job.vector.eq(vector),
            job.piece.eq(piece),
            job.cut.eq(item.piece_beats),
            job.table.eq(item.tt_table),
            job.loaded.eq(self.bounds.loaded),
            job.chunk.eq(item.chunk_rows - 1),
            job.count.eq(item.count),
            job.indices.eq(Mux(fill, Cat(0, item.count), item.indices_count)),
            job.dram_base.eq(item.dram_base),
            job.dram_rows.eq(item.dram_rows),
            job.tt_rows.eq(Mux(fewer, self.bounds.rows, item.tt_rows)),
            job.out.eq(item.out),
            job.stride.eq(item.out_stride),
            job.first.eq(Mux(behind, given, item.ring_first)),
            job.span.eq(span),
            job.ring.eq(~span[32]),
        ]

        issue = releases.i.valid
        retire = releases.o.ready
        quiet = Signal()
        further = Signal(signed(POSITION_BITS), name="released_further")
        m.d.comb += further.eq(releases.o.payload - self.released)
        m.d.comb += releases.i.payload.eq(item.release)
        m.d.comb += self.finish.eq(retire)
        m.d.comb += quiet.eq(~releases.held)
        with m.If(self.start):
            m.d.sync += self.finished.eq(0)
            m.d.sync += self.released.eq(0)
        with m.Elif(retire):
            m.d.sync += self.finished.eq(self.finished + 1)
            with m.If(further >= 0):
                m.d.sync += self.released.eq(releases.o.payload)
        with m.Elif(self.ring_begins):
            m.d.sync += self.released.eq(self.ring_begin)
        return _Queues(
            job_push=jobs.i.valid, job_room=jobs.room, fill=fill, issue=issue, retire=retire, quiet=quiet,
            room=releases.room)

    def _given(self, m: Module, item, releases: Fifo) -> tuple[Signal, Signal, Signal]:
        """The ring position that the run begins with or that the instructions before release, whether or not they have
        finished; how far it is ahead of the instruction's first; and, a cycle later, whether it is."""
        given = Signal(POSITION_BITS, name="ring_given", reset_less=True)
        ahead = Signal(POSITION_BITS, name="ring_ahead", reset_less=True)
        behind = Signal(name="ring_behind", reset_less=True)
        further = Signal(signed(POSITION_BITS), name="given_further")
        gives = Signal(name="ring_gives", reset_less=True)
        m.d.comb += further.eq(item.release - given)
        m.d.sync += gives.eq(further >= 0)
        m.d.sync += ahead.eq(given - item.ring_first)
        m.d.sync += behind.eq(ahead[:-1].any() & ~ahead[-1])
        with m.If(self.ring_begins):
            m.d.sync += given.eq(self.ring_begin)
        with m.Elif(releases.i.valid & gives):
            m.d.sync += given.eq(item.release)
        return given, ahead, behind

    def _allowed(self, m: Module, state: _State) -> _Allowed:
        """What an instruction must keep to by itself. Registers, so two cycles after the instruction is there."""
        item = state.item
        ring = self.arguments.ring_beats
        ring_odd = Signal(reset_less=True)
        m.d.sync += self.ring_mask.eq(ring - 1)
        m.d.sync += ring_odd.eq((ring & self.ring_mask) != 0)
        piece = item.piece_beats
        most = Mux(item.weighted | (item.mode == MAXIMUM), 1, self.chunk_rows)
        # A table that is looked up is as the instruction says. Its bounds come with `stored`.
        bounds = self.bounds
        unlike = bounds.loaded & (item.tt_rows != 0) & (
            (item.row_beats[:len(bounds.beats)] != bounds.beats) | (item.chunk_rows > bounds.chunk))
        decoder = Decoder(m, EMB, item, [
            (above(item.row_beats, self.row_beats_max), WITH_ROWS),
            (piece[(self.stripe_beats - 1).bit_length():].any(), WITH_ROWS),
            (Cat(piece[at] & (piece[:at] | state.stored[:at]).any() for at in range(1, len(piece))).any(), WITH_ROWS),
            ((item.ring_count != 0) & ring_odd, WITH_ROWS),
            (item.weighted & (item.mode != SUM), {AT_BAGS}),
            (item.chunk_rows > most, {AT_BAGS}),
            (unlike, {AT_BAGS}),
            (above(item.tt_rows, 1 << self.index_bits), {AT_BAGS}),
        ], words=(0, 9))
        return _Allowed(refused=decoder.refused, bags=decoder.kind[AT_BAGS])

    def _sums(self, m: Module, state: _State) -> _Sums:
        item, arguments = state.item, self.arguments
        log2 = state.words_log2
        check = Signal(Check)
        less_one = Signal(32, reset_less=True)
        m.d.sync += less_one.eq(item.count - 1)
        m.d.comb += self.load_less_one.eq(less_one)
        m.d.comb += self.load_signature.eq(item.signature)
        rows_base, rows = self._blocks(m, state)
        # Beats of a vector: in half precision two of a row's make one.
        vector = Signal(32, name="vector_beats", reset_less=True)
        m.d.sync += vector.eq(Mux(item.format == FORMAT.FLOAT32, item.row_beats, (item.row_beats + 1)[1:]))

        def items(base, count, unit_log2):
            """`count` items, so many a unit, rounded up: whole units, and one more if there is a rest."""
            return Term(base, count[unit_log2:], 1, more=count[:unit_log2].any(), doubles=False)

        blocks = max(1, HEADER_WORDS // state.words)     # beats of a block of headers
        # A block of headers is so many ones: with them its multiplicand is added as often.
        headers = items(None, item.count, 4)._replace(multiplier=(1 << blocks) - 1)
        terms = {
            Check.RING: Term(0, item.ring_count, 1),
            Check.LENGTHS: items(item.lengths, item.count, log2),
            Check.INDICES: items(item.indices, item.indices_count, log2),
            Check.WEIGHTS: items(item.weights, item.indices_count, log2),
            Check.ROWS: Term(rows_base, rows, state.stored),
            Check.VECTOR: Term(item.out, vector, 1),
            Check.BAGS: Term(None, item.out_stride, less_one),
            Check.PAIRS: items(item.indices, item.count, log2 - 1),
            Check.IMAGE: Term(item.indices, item.count, 1),
            Check.HEADERS: headers,
        }
        bounded = BoundedSum(
            m, check, terms, buffers=BUFFERS,
            sizes=[arguments.inputs_beats, arguments.outputs_beats, arguments.rows_beats, arguments.ring_beats])
        begin = Signal(32, name="sum_begin", reset_less=True)
        with m.If(bounded.load):
            with m.Switch(check):
                for name, term in terms.items():
                    if term.base is not None:
                        with m.Case(name):
                            m.d.sync += begin.eq(term.base)
        return _Sums(check=check, sum=bounded, begin=begin)

    def _blocks(self, m: Module, state: _State) -> tuple[Signal, Signal]:
        """The rows in whole blocks, and where they would begin if the block that is not whole came first. Rows that are
        one piece are each a block."""
        item, stripe_log2 = state.item, (self.stripe_beats - 1).bit_length()
        cut, low = item.piece_beats[:stripe_log2], item.dram_rows[:stripe_log2]
        kept = Cat(kept_bits(cut))
        rest = Signal(reset_less=True)
        block = Signal(range(self.stripe_beats * self.row_beats_max + 1), name="block_beats", reset_less=True)
        beats = state.stored
        blocks = [Mux(cut[at], beats << stripe_log2 - at, 0) for at in range(stripe_log2)]
        base, rows = Signal(33, name="rows_base", reset_less=True), Signal(32, name="whole_rows", reset_less=True)
        m.d.sync += [
            rest.eq((low & ~kept).any()),
            block.eq(reduce(or_, blocks)),
            base.eq(item.dram_base + Mux(rest, block, 0)),
            rows.eq(Cat(low & kept, item.dram_rows[stripe_log2:])),
        ]
        return base, rows

    def _checks(self, m: Module, state: _State, queues: _Queues, bounds: _Sums, region_valid) -> None:
        """States from SUM on, one sum after the other. Where it stays within its buffer, a client may read there."""
        item, check, region = state.item, bounds.check, self.o_regions.payload
        # What comes after each check, and the client that may then read what it spans.
        follows = {
            Check.RING: Mux(queues.fill, Check.PAIRS, Check.LENGTHS),
            Check.LENGTHS: Check.INDICES, Check.INDICES: Mux(item.weighted, Check.WEIGHTS, Check.ROWS),
            Check.WEIGHTS: Check.ROWS, Check.ROWS: Mux(queues.fill, Check.DONE, Check.VECTOR),
            Check.VECTOR: Check.BAGS, Check.BAGS: Check.DONE,
            Check.PAIRS: Check.ROWS, Check.IMAGE: Check.HEADERS, Check.HEADERS: Check.DONE,
        }
        reads = {Check.LENGTHS: "lengths", Check.INDICES: "indices", Check.WEIGHTS: "weights",
                 Check.PAIRS: "indices", Check.HEADERS: "indices"}

        with m.State("SUM"):
            with m.If(check == Check.DONE):
                m.next = "SEND"
            with m.Else():
                m.d.comb += bounds.sum.load.eq(1)
                m.next = "ADD"
        with m.State("ADD"):
            with m.If(bounds.sum.summed):
                m.next = "COMPARE"
        with m.State("COMPARE"):
            with m.If(~region_valid):
                with m.If(bounds.sum.outside & (check != Check.IMAGE) & (check != Check.VECTOR)):
                    state.instructions.refuse("BOUNDS", bounds.sum.buffer)
                with m.Else():
                    with m.Switch(check):
                        for name, following in follows.items():
                            with m.Case(name):
                                m.d.sync += check.eq(following)
                                if name in reads:
                                    m.d.sync += [
                                        region.client.eq(READERS.index(reads[name])),
                                        region.begin.eq(bounds.begin),
                                        region.end.eq(bounds.sum.total[:32]),
                                        region_valid.eq(1),
                                    ]
                    m.next = "SUM"

    def _sequence(self, m: Module, state: _State, queues: _Queues, allowed: _Allowed, bounds: _Sums) -> None:
        """Looks at one instruction after the other, and waits for what must have finished before and behind it."""
        item, instructions, check = state.item, state.instructions, bounds.check
        rows_left = Signal(32, reset_less=True)
        last_row = Signal(reset_less=True)
        wait = Signal(2)
        region_valid = Signal()
        # Where the ring begins is known; `span` follows BEGUN_CYCLES later.
        begun = Signal(BEGUN_CYCLES)
        ready = Signal(reset_less=True)
        m.d.comb += self.o_regions.valid.eq(region_valid)
        m.d.sync += begun.eq(Mux(self.start, 0, Cat(begun[0] | self.ring_begins, begun[:-1])))
        m.d.sync += ready.eq(begun[-1] | (self.arguments.ring_beats == 0))

        with m.If(region_valid & self.o_regions.ready):
            m.d.sync += region_valid.eq(0)
        with m.If(self.row_done):
            m.d.sync += rows_left.eq(rows_left - 1)
            m.d.sync += last_row.eq(rows_left == 2)
        m.d.sync += wait.eq(0)

        with m.FSM():
            instructions.states(then="ALLOWED", over="DRAIN")
            with m.State("ALLOWED"):
                # A cycle for what a row takes as it is stored, two for the registers of the checks, and one for those
                # of the sums' operands.
                m.d.sync += wait.eq(wait + 1)
                m.d.sync += check.eq(Mux(item.opcode == LOAD, Check.IMAGE, Check.RING))
                with m.If(wait == 3):
                    with m.If(allowed.refused):
                        instructions.refuse("BAD_INSTRUCTION", item.as_value()[:32])
                    with m.Else():
                        m.next = "SUM"
            self._checks(m, state, queues, bounds, region_valid)
            with m.State("SEND"):
                m.d.sync += rows_left.eq(item.count)
                m.d.sync += last_row.eq(item.count == 1)
                with m.If(allowed.bags & ready & queues.room & queues.job_room):
                    m.d.comb += queues.job_push.eq(1)
                    m.d.comb += queues.issue.eq(1)
                    m.next = "STEP"
                with m.Elif(~allowed.bags & ready & queues.quiet & ~self.load_busy):
                    m.d.comb += queues.issue.eq(1)
                    with m.If(queues.fill):
                        m.d.comb += queues.job_push.eq(1)
                        m.next = "FILL"
                    with m.Else():
                        m.d.comb += self.load_start.eq(1)
                        m.next = "LOAD"
            with m.State("FILL"):
                with m.If(self.row_done & last_row):
                    m.d.comb += self.flush_window.eq(1)
                    m.d.comb += queues.retire.eq(1)
                    m.next = "STEP"
            with m.State("LOAD"):
                m.d.sync += wait.eq(1)
                with m.If((wait == 1) & ~self.load_busy):
                    m.d.comb += self.flush_tt.eq(1)
                    m.d.comb += queues.retire.eq(1)
                    m.next = "STEP"
            with m.State("STEP"):
                instructions.step()
            with m.State("DRAIN"):
                with m.If(queues.quiet):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"
            with m.State("REFUSE"):
                with m.If(queues.quiet):
                    m.d.sync += [
                        self.error.valid.eq(1),
                        *(self.error[name].eq(state.refused[name]) for name in ("code", "detail", "instruction")),
                    ]
                    m.next = "FAILED"
            with m.State("FAILED"):
                pass
        with m.If(self.bags_done):
            m.d.comb += queues.retire.eq(1)
