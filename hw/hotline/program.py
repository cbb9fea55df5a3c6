"""Fetches, checks and carries out instructions, one after the other."""

from typing import Any, NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, memory, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import data_layout, read_layout, request_layout
from hw.hotline.config import ROW_BEATS_LOG2_MAX, WAYS, HotlineConfig
from hw.hotline.records import beat_layout, register_layout
from hw.hotline.transfers import ImageWriter, InputReader, image_beats
from hw.isa import HOTLINE, WORD_BITS
from hw.isa.hotline import JOIN
from hw.kernel.bounds import BoundedSum, Term
from hw.kernel.decode import Decoder
from hw.kernel.instructions import Instructions, program_error_layout
from hw.layouts import arguments_layout
from hw.place import Part

KINDS = tuple(instruction.name for instruction in HOTLINE.instructions)
S_WR, CLEAR, LEARN, TRAIN, SAVE, LOAD = range(len(KINDS))
CALM_CYCLES = 8         # for which all parts have to be idle: some say so, or that they are not, a few cycles late
INPUTS = 1              # detail of READ_ERROR
SIZES = ("inputs_beats", "mailbox_beats", "gradients_beats", "rows_beats", "hot_beats")     # by detail of BOUNDS
IN_INPUTS, IN_MAILBOX, IN_GRADIENTS, _, IN_HOT = range(len(SIZES))
# Behind the buffers' sizes: what else a sum is compared with.
IN_FRAME, IN_SLOTS, IN_MAILBOX_PITCH, IN_GRADIENTS_PITCH = range(len(SIZES), len(SIZES) + 4)


class Check(enum.Enum, shape=4):
    """A sum, and what it must not pass."""

    FRAME = 0       # beats of a mini-batch's samples; else the instruction is not allowed
    INPUTS = 1
    SOURCE = 2      # of an image
    OUT = 3
    MAILBOX = 4     # all its slots
    ROWS = 5        # of a mini-batch; as many as there are slots at the most
    VECTORS = 6     # of a pooled mini-batch, instead of them
    SENT = 7        # a mini-batch in its slot
    GRADIENTS = 8   # all its slots
    RETURNED = 9    # a mini-batch's gradients in their slot
    HOT = 10


# What it is compared with, and the buffer that is named when it passes that.
LIMITS = {
    Check.FRAME: IN_FRAME, Check.INPUTS: IN_INPUTS, Check.SOURCE: IN_INPUTS, Check.OUT: IN_MAILBOX,
    Check.MAILBOX: IN_MAILBOX, Check.ROWS: IN_SLOTS, Check.SENT: IN_MAILBOX_PITCH, Check.GRADIENTS: IN_GRADIENTS,
    Check.RETURNED: IN_GRADIENTS_PITCH, Check.HOT: IN_HOT,
}
TOLD = {IN_MAILBOX_PITCH: IN_MAILBOX, IN_GRADIENTS_PITCH: IN_GRADIENTS}


class Job(data.Struct):
    """What the parts are to do; fields as in the instruction (hw.isa). learn: LEARN, else TRAIN; vectors: of a pooled
    sample."""

    learn: 1
    indices: 8
    sample_beats: 4
    row_beats_log2: 3
    batch: 16
    pooled: 1
    half: 1
    vectors: 7
    mailbox_slots: 8
    mailbox_pitch: 32
    gradients_pitch: 32
    rate: 32


class _Places(NamedTuple):
    """What `Program._places` hands on. compare: while they are compared; over: in the last cycle of that; differ: then,
    whether there are two that do not go together."""

    compare: Signal
    over: Signal
    differ: Signal


class _State(NamedTuple):
    """What `Program.elaborate` hands to other methods."""

    instructions: Instructions
    item: Any
    writes_register: Signal


class _Allowed(NamedTuple):
    """What `Program._allowed` hands on."""

    slots: Signal
    joined: Signal
    kind: Any
    refused: Value


class _Sums(NamedTuple):
    """What `Program._sums` hands on."""

    check: Signal
    vectors: Signal
    sent_from: Signal
    many: Signal
    rows: Signal
    sum: BoundedSum


class Program(Part):
    """Reads a program, checks each instruction, and sets going and ends what it asks for.

    An instruction begins when the one before has ended with all that followed from it: LEARN when the logger has
    learned, TRAIN when the last mini-batch is finished and its rows are written, SAVE when the image is.
    Source: hw.isa; Hotline §6.1 (controller and data dispatcher); golden.hotline.program for what is checked

    Parameters  config: HotlineConfig
    Members     start             In  a pulse
                arguments         In  of hw.layouts, from `start` on
                o_requests        Out(stream)  to and from the program's client of a ReadPort
                i                 In(stream)  to and from the program's client of a ReadPort
                o_input_requests  Out(stream)  the inputs' client
                i_inputs          In(stream)  the inputs' client
                o_beats           Out(stream of hw.hotline.records.beat_layout)  samples
                registers         Out  of register_layout, valid is a pulse
                job               Out  see Job, stands while an instruction is carried out
                begin             Out  a pulse before the first beat of a LEARN or TRAIN
                train             Out  the same, of a TRAIN alone
                clear, start_save, start_load  Out  pulses
                o_image_beats     Out(stream)
                i_image_beats     In(stream of a beat)  images to and from the logger
                o_write_requests, o_write_data  Out(stream)
                written           In  its pulse: a client of a WritePort
                moved             In  a pulse, the logger has moved an image
                idle_lookup       In  lookup, logger and classifier are empty
                flush             Out  no more samples come, until all is done
                flushed           In
                idle              In  all parts are empty
                number            Out  the instruction that is looked at or carried out
                finish            Out  a pulse, it is done
                done              Out  all are, until reset or the next start
                error             Out  see program_error_layout
    Timing      besides its beats an instruction takes 9 + CALM_CYCLES cycles, the latter those in which no part was
                busy; 3 more for each of its sums and one for each bit of the multiplier; 3 more than the memory to its
                first sample; TRAIN CALM_CYCLES + 7 + indices more, and pooled ones 1 + indices. A beat of samples or
                of an image a cycle
    Handshake   streams from registers, but for i_image_beats to o_write_data, which are wired through
    Faults      a beat of samples or of an image with an error is not passed on, and no more is; `error` then stays
    Reset       drops everything
    Golden      golden.hotline.program.Program          Tests  verif/hotline/test_program.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        bits = 32 * config.words
        super().__init__({
            "start": In(1), "arguments": In(arguments_layout(HOTLINE)),
            "o_requests": Out(stream.Signature(request_layout())),
            "i": In(stream.Signature(read_layout(config.beat_bytes))),
            "o_input_requests": Out(stream.Signature(request_layout())),
            "i_inputs": In(stream.Signature(read_layout(config.beat_bytes))),
            "o_beats": Out(stream.Signature(beat_layout(config))),
            "registers": Out(register_layout(config)), "job": Out(Job), "begin": Out(1), "train": Out(1),
            "clear": Out(1), "start_save": Out(1), "start_load": Out(1), "moved": In(1),
            "o_image_beats": Out(stream.Signature(bits)), "i_image_beats": In(stream.Signature(bits)),
            "o_write_requests": Out(stream.Signature(request_layout())),
            "o_write_data": Out(stream.Signature(data_layout(config.beat_bytes))), "written": In(1),
            "idle_lookup": In(1), "flush": Out(1), "flushed": In(1), "idle": In(1),
            "number": Out(32), "finish": Out(1), "done": Out(1), "error": Out(program_error_layout()),
        })

    def elaborate(self, platform):
        m = Module()
        instructions = Instructions(m, self, HOTLINE, failed="FAILED")
        item = instructions.item
        writes_register = Signal()
        state = _State(instructions=instructions, item=item, writes_register=writes_register)
        allowed = self._allowed(m, state)
        bounds = self._sums(m, state, allowed)
        places = self._places(m, state)
        self._told(m, state, allowed, bounds)
        reader = InputReader(
            m, self.config, o_requests=self.o_input_requests, i=self.i_inputs, o_beats=self.o_beats,
            o_image=self.o_image_beats, base=self.arguments.inputs, source=item.source,
            sample_beats=item.sample_beats, image=allowed.kind[LOAD])
        writer = ImageWriter(
            m, self.config, i=self.i_image_beats, o_requests=self.o_write_requests, o_data=self.o_write_data,
            written=self.written, base=self.arguments.mailbox, out=item.out)
        self._sequence(m, state, allowed, bounds, places, reader, writer)
        return m

    def _allowed(self, m: Module, state: _State) -> _Allowed:
        """What an instruction must keep to by itself and after those before. `refused`, of registers, three cycles
        after the instruction is there."""
        item, config = state.item, self.config
        bits = config.domain_bits
        samples = {LEARN, TRAIN}
        # How many rows the embedding buffer holds, by the length of a row.
        of_length = Array(
            min(config.row_slots, config.embedding_beats >> log2) for log2 in range(ROW_BEATS_LOG2_MAX + 1))
        slots = Signal(range(config.row_slots + 1), reset_less=True)
        late = Signal(2, reset_less=True)
        first = Signal(41, reset_less=True)
        rows = Signal(32, reset_less=True)
        last = Signal(41, reset_less=True)      # number of the table's last row
        m.d.sync += [
            slots.eq(of_length[item.row_beats_log2[:3]]),
            first.eq(Cat(item.first_low, item.first_high)),
            rows.eq(item.table_rows - 1),
            last.eq(first + rows),
        ]
        # The first position of a pooled sample has to begin a vector.
        joined = Signal(config.positions)
        more = [
            (item.join.any() & item.pinned, {S_WR}),
            (item.indices > config.positions, samples),
            (item.indices > Cat(Const(0, (config.words - 1).bit_length()), item.sample_beats[:4]), samples),
            (item.pooled & joined[0], {TRAIN}),
        ]
        if config.positions <= HOTLINE.field("position").highest:
            more.append((item.position >> config.position_bits != 0, {S_WR}))
        decoder = Decoder(m, HOTLINE, item, more, words=(0, 9))
        kind = decoder.kind
        refused = decoder.refused | late.any()
        m.d.sync += late[0].eq(kind[S_WR] & (last >> bits != 0))
        # The sign of a difference: Yosys parts a comparison of so few bits with so many in two carry chains.
        m.d.sync += late[1].eq(kind[TRAIN] & (slots - item.indices)[-1])
        return _Allowed(slots=slots, joined=joined, kind=kind, refused=refused)

    def _sums(self, m: Module, state: _State, allowed: _Allowed) -> _Sums:
        item, arguments, config = state.item, self.arguments, self.config
        check = Signal(Check)
        beats, gpu_bits = image_beats(config), (config.gpus - 1).bit_length()
        vectors = Signal(7, reset_less=True)
        sent_from = Signal(range(config.frame_beats + 2), reset_less=True)     # beats before the rows or vectors
        rows = Signal(32, reset_less=True)
        many = Signal(32, reset_less=True)
        row_beats = Signal(ROW_BEATS_LOG2_MAX + 1, reset_less=True)
        m.d.sync += row_beats.eq(1 << item.row_beats_log2[:3])
        terms = {
            Check.FRAME: Term(0, item.batch, item.sample_beats),
            Check.INPUTS: Term(item.source, item.count, item.sample_beats),
            Check.SOURCE: Term(item.source, beats, 1), Check.OUT: Term(item.out, beats, 1),
            Check.MAILBOX: Term(0, item.mailbox_pitch, item.mailbox_slots << gpu_bits),
            Check.ROWS: Term(0, item.batch, item.indices), Check.VECTORS: Term(0, item.batch, vectors),
            Check.SENT: Term(sent_from, many, row_beats),
            Check.GRADIENTS: Term(0, item.gradients_pitch, item.mailbox_slots << gpu_bits),
            Check.RETURNED: Term(0, rows, row_beats),
            Check.HOT: Term(0, config.banks * config.sets * WAYS, row_beats),
        }
        sizes = [*(arguments[name] for name in SIZES), Const(config.frame_beats, 32), allowed.slots, item.mailbox_pitch,
                 item.gradients_pitch]
        bounded = BoundedSum(m, check, terms, sizes=sizes, buffers=LIMITS)
        return _Sums(
            check=check, vectors=vectors, sent_from=sent_from, many=many, rows=rows, sum=bounded)

    def _places(self, m: Module, state: _State) -> _Places:
        """Rows are told apart by their numbers, so each must have one place and no two the same: base - (first <<
        row_beats_log2) is equal in all registers that TRAIN looks up. They are compared one by one, in its `PLACES`."""
        item, config = state.item, self.config
        # Wide enough for the difference itself: in a buffer of 2^32 beats numbers far apart would meet.
        bits = config.domain_bits + ROW_BEATS_LOG2_MAX
        width = max(bits, 32) + 1
        layout = data.StructLayout({"base": 32, "first": config.domain_bits})
        store = memory.Memory(shape=layout, depth=config.positions, init=[], attrs={"ram_style": "distributed"})
        m.submodules.places = store
        write, read = store.write_port(), store.read_port(domain="comb")
        looked = Signal(config.positions)
        position = item.position[:config.position_bits]
        m.d.comb += [
            write.en.eq(state.writes_register),
            write.addr.eq(position),
            write.data.base.eq(item.base),
            write.data.first.eq(Cat(item.first_low, item.first_high)),
        ]
        with m.If(state.writes_register):
            with m.Switch(position):
                for number in range(config.positions):
                    with m.Case(number):
                        m.d.sync += looked[number].eq(~item.pinned)
        compare = Signal()
        over = Signal()
        # These are cleared in every cycle outside `compare`, so none needs a reset.
        differ = Signal(reset_less=True)
        at = Signal(8, reset_less=True)
        last = Signal(8, reset_less=True)
        rest = Signal(config.positions, reset_less=True)    # of `looked`, from `at` on
        valid = Signal(3, reset_less=True)
        entry = Signal(layout, reset_less=True)
        base = Signal(32, reset_less=True)
        before = Signal(bits, reset_less=True)      # beats of the rows before the table's
        place = Signal(width, reset_less=True)      # of the row with the number 0, with a sign
        wanted = Signal(width, reset_less=True)
        known = Signal(reset_less=True)
        m.d.comb += read.addr.eq(at[:config.position_bits])
        m.d.comb += over.eq(at == last)
        m.d.sync += [
            last.eq(item.indices + 3),
            at.eq(0),
            rest.eq(looked),
            valid.eq(0),
            known.eq(0),
            differ.eq(0),
            entry.eq(read.data),
            base.eq(entry.base),
            before.eq(entry.first << item.row_beats_log2[:3]),
            place.eq(base - before),
        ]
        with m.If(compare):
            m.d.sync += [
                at.eq(at + 1),
                rest.eq(rest >> 1),
                valid.eq(Cat(rest[0] & (at < item.indices), valid)),
                known.eq(known | valid[2]),
                differ.eq(differ | valid[2] & known & (place != wanted)),
            ]
            with m.If(valid[2] & ~known):
                m.d.sync += wanted.eq(place)
        return _Places(compare=compare, over=over, differ=differ)

    def _told(self, m: Module, state: _State, allowed: _Allowed, bounds: _Sums) -> None:
        """What stands at the other parts."""
        item, job, registers = state.item, self.job, self.registers
        m.d.comb += [
            *(job[name].eq(item[name]) for name in Job.as_shape().members if name not in ("learn", "vectors")),
            job.learn.eq(allowed.kind[LEARN]),
            job.vectors.eq(bounds.vectors),
            *(registers[name].eq(item[name]) for name in ("position", "base", "pinned", "join")),
            registers.valid.eq(state.writes_register),
            registers.rows.eq(item.table_rows),
            registers.first.eq(Cat(item.first_low, item.first_high)),
        ]
        with m.If(state.writes_register):
            with m.Switch(item.position[:self.config.position_bits]):
                for position in range(self.config.positions):
                    with m.Case(position):
                        m.d.sync += allowed.joined[position].eq(item.join != JOIN.BEGIN)

    def _sequence(self, m: Module, state: _State, allowed: _Allowed, bounds: _Sums, places: _Places, reader,
                  writer) -> None:
        item, kind, check, sums = state.item, allowed.kind, bounds.check, bounds.sum
        instructions, refuse = state.instructions, state.instructions.refuse
        wait = Signal(2)
        counted = Signal(8, reset_less=True)
        scan = Signal(self.config.positions, reset_less=True)
        moved = Signal()
        calm = Signal(CALM_CYCLES)
        quiet = Signal(reset_less=True)     # flushed: never before `flush` has been high

        pulses = (state.writes_register, self.clear, self.start_save, self.start_load, self.begin, self.train,
                  self.finish, reader.begin, writer.begin)
        m.d.sync += [
            *(pulse.eq(0) for pulse in pulses),
            wait.eq(0),
            calm.eq(0),
            quiet.eq(self.flushed & self.idle),
        ]
        with m.If(self.moved):
            m.d.sync += moved.eq(1)
        with m.FSM():
            instructions.states(then="ALLOWED", over="IDLE")
            with m.State("ALLOWED"):
                m.d.sync += [
                    wait.eq(wait + 1),
                    bounds.vectors.eq(0),
                    counted.eq(0),
                    scan.eq(allowed.joined),
                ]
                m.d.sync += check.eq(Mux(kind[TRAIN], Check.FRAME, Mux(
                    kind[LEARN], Check.INPUTS, Mux(kind[LOAD], Check.SOURCE, Check.OUT))))
                with m.If(wait == 3):
                    with m.If(allowed.refused):
                        refuse("BAD_INSTRUCTION", item.as_value()[:WORD_BITS])
                    with m.Elif(kind[S_WR] | kind[CLEAR]):
                        m.next = "BEGIN"
                    with m.Elif(kind[TRAIN]):
                        m.next = "PLACES"
                    with m.Else():
                        m.next = "SUM"
            with m.State("PLACES"):
                m.d.comb += places.compare.eq(1)
                with m.If(places.over):
                    with m.If(places.differ):
                        refuse("BAD_INSTRUCTION", item.as_value()[:WORD_BITS])
                    with m.Elif(item.pooled):
                        m.next = "COUNT"
                    with m.Else():
                        m.next = "SUM"
            with m.State("COUNT"):
                m.d.sync += counted.eq(counted + 1)
                m.d.sync += scan.eq(scan >> 1)
                with m.If(counted == item.indices):
                    m.next = "SUM"
                with m.Else():
                    m.d.sync += bounds.vectors.eq(bounds.vectors + ~scan[0])
            with m.State("SUM"):
                m.d.comb += sums.load.eq(1)
                m.next = "ADD"
            with m.State("ADD"):
                with m.If(sums.summed):
                    m.next = "COMPARE"
            with m.State("COMPARE"):
                self._compare(m, state, allowed, bounds, reader)
            with m.State("BEGIN"):
                m.d.sync += [
                    reader.begin.eq(kind[LEARN] | kind[TRAIN] | kind[LOAD]),
                    writer.begin.eq(kind[SAVE]),
                    moved.eq(0),
                    state.writes_register.eq(kind[S_WR]),
                    self.clear.eq(kind[CLEAR]),
                    self.start_save.eq(kind[SAVE]),
                    self.start_load.eq(kind[LOAD]),
                    self.train.eq(kind[TRAIN]),
                    self.begin.eq(kind[LEARN] | kind[TRAIN]),
                ]
                m.next = "PAUSE"
            with m.State("PAUSE"):      # what begins is told
                m.next = "PASS"
            with m.State("PASS"):
                with m.If(reader.failed):
                    refuse("READ_ERROR", INPUTS)
                with m.Elif(reader.passed & writer.done & (moved | ~(kind[SAVE] | kind[LOAD]))):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                m.d.sync += calm.eq(Mux(self.idle_lookup, Cat(1, calm), 0))
                with m.If(calm.all()):
                    m.d.sync += calm.eq(0)
                    with m.If(kind[TRAIN]):
                        m.d.sync += self.flush.eq(1)
                        m.next = "FLUSH"
                    with m.Else():
                        m.next = "STEP"
            with m.State("FLUSH"):
                m.d.sync += calm.eq(Mux(quiet, Cat(1, calm), 0))
                with m.If(calm.all()):
                    m.d.sync += self.flush.eq(0)
                    m.next = "STEP"
            with m.State("STEP"):
                m.d.sync += self.finish.eq(1)
                instructions.step()
            with m.State("FAILED"):
                pass

    def _compare(self, m: Module, state: _State, allowed: _Allowed, bounds: _Sums, reader) -> None:
        """Judges a sum, keeps what later ones need of it, and says which is next."""
        item, check, sums, refuse = state.item, bounds.check, bounds.sum, state.instructions.refuse
        buffers = Array(TOLD.get(at, at) for at in range(len(SIZES) + 4))
        # The last ones of an instruction are in no line of these.
        follows = {
            Check.FRAME: Check.INPUTS, Check.INPUTS: Check.MAILBOX, Check.MAILBOX: Check.ROWS,
            Check.ROWS: Mux(item.pooled, Check.VECTORS, Check.SENT), Check.VECTORS: Check.SENT,
            Check.SENT: Check.GRADIENTS, Check.GRADIENTS: Check.RETURNED, Check.RETURNED: Check.HOT,
        }
        ends = {Check.INPUTS: allowed.kind[LEARN], Check.SOURCE: 1, Check.OUT: 1, Check.RETURNED: ~item.pooled,
                Check.HOT: 1}
        with m.If((check == Check.FRAME) & sums.outside):
            refuse("BAD_INSTRUCTION", item.as_value()[:WORD_BITS])
        with m.Elif((check != Check.ROWS) & (check != Check.VECTORS) & sums.outside):
            refuse("BOUNDS", buffers[sums.buffer])
        with m.Else():
            m.next = "SUM"
            with m.Switch(check):
                for name in Check:  # type: ignore[attr-defined]
                    with m.Case(name):
                        if name in follows:
                            m.d.sync += check.eq(follows[name])
                        if name in ends:
                            with m.If(ends[name]):
                                m.next = "BEGIN"
                with m.Default():
                    pass
            with m.If(check == Check.FRAME):
                m.d.sync += bounds.sent_from.eq(sums.total[:len(bounds.sent_from)] + 1)
            with m.If((check == Check.INPUTS) | (check == Check.SOURCE)):
                m.d.sync += reader.span.eq(sums.total[:32] - item.source)
            with m.If(check == Check.ROWS):
                # A mini-batch is cut where its rows would not fit.
                m.d.sync += bounds.rows.eq(Mux(sums.outside, allowed.slots, sums.total))
            with m.If((check == Check.ROWS) | (check == Check.VECTORS)):
                m.d.sync += bounds.many.eq(Mux((check == Check.ROWS) & sums.outside, allowed.slots, sums.total))
