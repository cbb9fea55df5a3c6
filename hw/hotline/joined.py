"""What the bags' reader knows before it reads: where vectors begin and end, and whose turn it is."""

from amaranth.hdl import Array, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hw.hotline.config import ROW_BEATS_LOG2_MAX, HotlineConfig
from hw.hotline.records import register_layout
from hw.isa.hotline import JOIN

CONTEXTS = 64       # beats of vectors under way
CONTEXT_BITS = 6
POSITION_BITS = 6
PLACE_BITS = 20     # beats of a frame, of samples
READERS = 2


class Joined(data.Struct):
    """What is known of a position. follows: the next position is joined to this one; more: a vector begins behind it,
    first at `next`."""

    join: 2
    pinned: 1
    follows: 1
    more: 1
    next: POSITION_BITS


class JoinedPositions(wiring.Component):
    """Looks through the positions of a sample, from the last one down, and finds the samples' place meanwhile.

    first = start * sample_beats, beats = samples * sample_beats, a bit of sample_beats per cycle

    Parameters  config: HotlineConfig
    Members     registers       In  see `register_layout`
                indices, sample_beats  In
                start, samples  In  taken in the cycle of `load`
                load            In  not while it looks
                done            Out  a pulse: what follows stands until the next `load`
                first, beats    Out  of the search
                some            Out  there is a vector
                begin           Out  the position that begins the first vector
                joined[k]       Out  of position[k]
                position[k]     In
    Timing      `done` comes as many cycles after `load` as there are address registers; joined follows position without
                a register
    Reset       what was found is lost, what was written stays
    Golden      golden.hotline.bags          Tests  verif/hotline/test_bags.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        super().__init__({
            "registers": In(register_layout(config)), "indices": In(8), "sample_beats": In(4),
            "load": In(1), "start": In(16), "samples": In(16), "done": Out(1),
            "first": Out(PLACE_BITS), "beats": Out(PLACE_BITS), "some": Out(1), "begin": Out(POSITION_BITS),
            "position": In(POSITION_BITS).array(READERS), "joined": Out(Joined).array(READERS),
        })

    def elaborate(self, platform):
        m = Module()
        positions = self.config.positions
        written = memory.Memory(shape=data.StructLayout({"join": 2, "pinned": 1}), depth=positions, init=[],
                                attrs={"ram_style": "distributed"})
        found = memory.Memory(shape=Joined, depth=positions, init=[], attrs={"ram_style": "distributed"})
        m.submodules.written, m.submodules.found = written, found
        write, read, into = written.write_port(), written.read_port(domain="comb"), found.write_port()
        looks = Signal()
        position = Signal(range(positions), init=positions - 1)
        exists = Signal()
        joins = Signal()
        follows = Signal(reset_less=True)
        some = Signal(reset_less=True)
        begin = Signal(POSITION_BITS, reset_less=True)
        m.d.comb += [
            write.en.eq(self.registers.valid),
            write.addr.eq(self.registers.position),
            write.data.join.eq(self.registers.join),
            write.data.pinned.eq(self.registers.pinned),
            read.addr.eq(position),
            exists.eq(position < self.indices),
            joins.eq(read.data.join != JOIN.BEGIN),
            into.en.eq(looks),
            into.addr.eq(position),
            into.data.join.eq(read.data.join),
            into.data.pinned.eq(read.data.pinned),
            into.data.follows.eq(follows),
            into.data.more.eq(some),
            into.data.next.eq(begin),
            self.some.eq(some),
            self.begin.eq(begin),
        ]
        m.d.sync += self.done.eq(looks & (position == 0))
        with m.If(looks):
            m.d.sync += position.eq(position - 1)
            m.d.sync += follows.eq(exists & joins)
            with m.If(exists & ~joins):
                m.d.sync += some.eq(1)
                m.d.sync += begin.eq(position)
            with m.If(position == 0):
                m.d.sync += looks.eq(0)
        with m.If(self.load):
            m.d.sync += [
                looks.eq(1),
                position.eq(positions - 1),
                follows.eq(0),
                some.eq(0),
            ]
        for k in range(READERS):
            port = found.read_port(domain="comb")
            m.d.comb += port.addr.eq(self.position[k])
            m.d.comb += self.joined[k].eq(port.data)

        times = Signal(4)
        start = Signal(PLACE_BITS, name="shifted_start", reset_less=True)
        samples = Signal(PLACE_BITS, name="shifted_samples", reset_less=True)
        m.d.sync += times.eq(times >> 1)
        m.d.sync += start.eq(start << 1)
        m.d.sync += samples.eq(samples << 1)
        with m.If(times[0]):
            m.d.sync += self.first.eq(self.first + start)
            m.d.sync += self.beats.eq(self.beats + samples)
        with m.If(self.load):
            m.d.sync += [
                times.eq(self.sample_beats),
                start.eq(self.start),
                samples.eq(self.samples),
                self.first.eq(0),
                self.beats.eq(0),
            ]
        return m


class InOrder(wiring.Component):
    """Contexts are marked in any order and gone on from in their own.

    Parameters  none
    Members     row_beats  In  from a context to the next
                rewind     In  the first one is 0 again, when none is marked
                mark       In  {valid, context}
                there      Out  the next one is marked
                context    Out  the next one
                step       In  with `there` only: its mark goes, and on to the one behind it
    Timing      there comes 2 cycles after the mark; a context per cycle
    Reset       no marks, context 0
    Golden      golden.hotline.bags          Tests  verif/hotline/test_bags.py
    """

    def __init__(self):
        super().__init__({
            "row_beats": In(CONTEXT_BITS + 1), "rewind": In(1),
            "mark": In(data.StructLayout({"valid": 1, "context": CONTEXT_BITS})),
            "there": Out(1), "context": Out(CONTEXT_BITS), "step": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        marked = Signal(CONTEXTS)
        here = self.context
        behind = Signal(CONTEXT_BITS)
        m.d.sync += marked.eq(
            (marked & ~Mux(self.step, 1 << here, 0)) | Mux(self.mark.valid, 1 << self.mark.context, 0))
        # A row as long as all contexts is behind itself.
        m.d.sync += self.there.eq(Mux(self.step, marked.bit_select(behind, 1) & ~self.row_beats[CONTEXT_BITS],
                                      marked.bit_select(here, 1)))
        m.d.sync += behind.eq(Mux(self.step, behind, here) + self.row_beats)
        with m.If(self.step):
            m.d.sync += here.eq(behind)
        with m.If(self.rewind):
            m.d.sync += here.eq(0)
            m.d.sync += behind.eq(self.row_beats)
        return m


class RowLength:
    """How long a row is, in registers. log2: as given; beats, minus_beats; last, last_but_one: beats of a row."""

    def __init__(self, m: Module, given: Signal):
        self.log2 = Signal.like(given, name="scale", reset_less=True)
        self.beats = Signal(ROW_BEATS_LOG2_MAX + 1, name="row_beats", reset_less=True)
        self.minus_beats = Signal(signed(ROW_BEATS_LOG2_MAX + 2), name="minus_row_beats", reset_less=True)
        self.last = Signal(ROW_BEATS_LOG2_MAX, name="last_beat", reset_less=True)
        self.last_but_one = Signal.like(self.last, name="last_but_one")
        lengths = [1 << k for k in range(ROW_BEATS_LOG2_MAX + 1)] + [1]
        m.d.sync += [
            self.log2.eq(given),
            self.beats.eq(Array(lengths)[given]),
            self.last.eq(Array([length - 1 for length in lengths])[given]),
            self.last_but_one.eq(Array([(length - 2) % (1 << ROW_BEATS_LOG2_MAX) for length in lengths])[given]),
            self.minus_beats.eq(Array([-length for length in lengths])[given]),
        ]

    def counted(self, beats: Signal, more: Value, fewer: Value) -> Value:
        """A row's beats more, or fewer, where what says so comes late."""
        # The negative comes from a register: one adder, and no chain before it.
        return beats + Mux(more == fewer, 0, Mux(more, self.beats, self.minus_beats))

    def is_last(self, m: Module, beat: Signal, step: Value) -> Signal:
        """Counts a row's beats by `step`; that `beat` is the last one, from a register."""
        last = Signal(name=f"{beat.name}_last")
        with m.If(step):
            # Of the beat that comes next.
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))
            m.d.sync += last.eq(Mux(last, self.last == 0, beat == self.last_but_one))
        with m.Else():
            m.d.sync += last.eq(beat == self.last)
        return last
