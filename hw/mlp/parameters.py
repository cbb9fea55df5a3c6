"""Brings weights and addends into their memories."""

from typing import NamedTuple

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import read_layout, request_layout
from hw.mlp.config import MlpConfig
from hw.mlp.loader import JOBS, LoadError
from hw.mlp.requests import Requests
from hw.mlp.store import addend_line_layout, weights_layout
from hw.place import Part, place
from hw.stream.fifo import Fifo


class ParametersJob(data.Struct):
    """A LOAD_WEIGHTS or, with `addends`, a LOAD_ADDENDS that has been checked: the instruction's fields of those
    names; line: weight_line or addend_line; end: the beat behind the last; number: of the instruction."""

    source: 32
    end: 32
    addends: 1
    count: 20
    steps: 12
    line: 16
    wait_rows: 32
    wait_layers: 32
    number: 32


PLACE = data.StructLayout({  # what is kept of a job until its data is there
    name: field.shape for name, field in ParametersJob.as_shape() if name not in ("source", "end")})


class _Now(NamedTuple):
    """What `ParameterLoader.elaborate` hands to other methods."""

    begin: Signal
    new: Signal
    one_line: Signal
    one_group: Signal
    now: Signal
    unit: Signal
    line: Signal
    line_ends: Signal
    lines_end: Signal
    groups_end: Signal
    next_group: Signal
    steps_on: Signal


class ParameterLoader(Part):
    """Carries out LOAD_WEIGHTS and LOAD_ADDENDS in order, data fetched ahead of the instructions' waits.

    Line k of column group g of weights: part g % units, line + (g // units) * steps + k. Addends: line + n, for all.

    Parameters  config: MlpConfig
    Members     i           In(stream of ParametersJob)
                rows_done, layers_done  In(32)  loads that are done in this run, layers whose results are written
                o_requests  Out(stream)  to and from a client of a ReadPort
                i_data      In(stream)  to and from a client of a ReadPort
                base        In(64)  address of the weights
                o_weights   Out  hw.mlp.store.weights_layout
                o_addends   Out(stream of addend_line_layout)
                done        Out  a pulse in the cycle after a load's last line was written
                number      Out  the instruction whose beats are looked for
                error       Out  see hw.mlp.loader.LoadError
                idle        Out  no instruction is inside
    Shapes      line_beats beats make a line of weights, a beat `groups_per_beat` lines of addends
    Timing      a beat of weights per cycle, a line of addends per cycle; from i_data to the outputs a cycle.
                Instructions follow one another without a gap if they are weights of 3 beats or more and their waits
                were over 2 cycles before; a cycle is lost behind addends. Data is asked for as in hw.mlp.loader
    Handshake   the outputs from registers, i_data.ready from these and o_addends.ready. A load whose wait is not over
                takes no data
    Faults      a beat with an error ends all: it is not passed on, nothing behind it is taken or asked for
    Reset       forgets everything
    Golden      golden.mlp.loader; cycles: fpga/card/cpp/twin/mlp_front.h          Tests  verif/mlp/test_parameters.py
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(ParametersJob)),
            "rows_done": In(32), "layers_done": In(32),
            "o_requests": Out(stream.Signature(request_layout())),
            "i_data": In(stream.Signature(read_layout(config.beat_bytes))),
            "base": In(64),
            "o_weights": Out(weights_layout(config)),
            "o_addends": Out(stream.Signature(addend_line_layout(config))),
            "done": Out(1), "number": Out(32), "error": Out(LoadError), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, error = self.config, self.error
        jobs = self._jobs(m, platform)

        # The next instruction, and whether its waits are over.
        new = Signal(PLACE, reset_less=True)
        held = Signal()
        may = Signal()
        one_line = Signal(reset_less=True)
        one_group = Signal(reset_less=True)
        active = Signal()
        begin = Signal()
        m.d.comb += jobs.o.ready.eq(~held)
        with m.If(~held):
            m.d.sync += new.eq(jobs.o.payload)
            m.d.sync += held.eq(jobs.o.valid)
        with m.If(begin):
            m.d.sync += held.eq(0)
        m.d.sync += may.eq(held & ~begin & (self.rows_done >= new.wait_rows) & (self.layers_done >= new.wait_layers))
        m.d.sync += one_line.eq(new.steps == 1)
        m.d.sync += one_group.eq(new.count == 1)

        beat, bad = self.i_data.payload.data, self.i_data.payload.error
        going = Signal()
        m.d.comb += going.eq(active & self.i_data.valid & ~error.valid)
        now = Signal(PLACE, name="now", reset_less=True)
        with m.If(begin):
            m.d.sync += now.eq(new)
        m.d.comb += self.number.eq(now.number)

        # -- Weights: lines are put together in a register.
        parts = config.line_beats
        part = Signal(range(parts))
        # the last beat of a line, the last line of a group
        line_ends = Signal()
        lines_end = Signal(reset_less=True)
        groups_end = Signal(reset_less=True)                        # the last group, or the last line of addends
        take = Signal()
        line = Signal(16, reset_less=True)
        unit = Signal(range(config.units), reset_less=True)
        steps_on = Signal()
        next_group = Signal()
        weights = self.o_weights
        final = Signal(reset_less=True)
        m.d.comb += take.eq(going & ~now.addends)
        m.d.comb += line_ends.eq(take & (part == parts - 1))
        with m.If(take):
            m.d.sync += part.eq(Mux(part == parts - 1, 0, part + 1))
        # The part whose turn it is takes what stands there until that is taken.
        for at in range(parts):
            with m.If(part == at):
                for word in range(config.words):
                    m.d.sync += weights.words[at * config.words + word].eq(beat.word_select(word, 32))
        m.d.sync += [
            weights.valid.eq(line_ends & ~bad),
            weights.unit.eq(unit),
            weights.line.eq(line),
            final.eq(lines_end & groups_end),
        ]

        give, fetch = self._addends(m, going & now.addends, line, groups_end)

        # -- Both.
        ends = Signal()
        m.d.comb += [
            self.i_data.ready.eq(take | fetch),
            next_group.eq(give | (line_ends & lines_end)),
            steps_on.eq(give | line_ends),
            ends.eq(next_group & groups_end),
            begin.eq(may & (~active | ends)),
            self.idle.eq(~jobs.held & ~held & ~active & ~weights.valid),
        ]
        m.d.sync += self.done.eq((weights.valid & final) | (give & groups_end))
        with m.If((take | fetch) & bad):
            m.d.sync += error.valid.eq(1)
            m.d.sync += error.instruction.eq(self.number)
        with m.If(begin):
            m.d.sync += active.eq(1)
        with m.Elif(ends):
            m.d.sync += active.eq(0)
        self._count(m, _Now(
            begin=begin, new=new, one_line=one_line, one_group=one_group, now=now, unit=unit, line=line,
            line_ends=line_ends, lines_end=lines_end, groups_end=groups_end, next_group=next_group, steps_on=steps_on))
        return m

    def _jobs(self, m: Module, platform) -> Fifo:
        """The jobs whose data has been asked for."""
        job = self.i.payload
        requests = Requests(beat_bytes=self.config.beat_bytes)
        place(m, platform, "requests", requests)
        m.submodules.jobs = jobs = Fifo(PLACE, depth=JOBS)
        m.d.comb += [
            self.i.ready.eq(requests.i.ready & jobs.i.ready),
            requests.i.valid.eq(self.i.valid & jobs.i.ready),
            jobs.i.valid.eq(self.i.valid & requests.i.ready),
            requests.base.eq(self.base),
            requests.hold.eq(self.error.valid),
            requests.i.payload.run.eq(1),
            *(requests.i.payload[name].eq(job[name]) for name in ("source", "end")),
            *(jobs.i.payload[name].eq(job[name]) for name in PLACE.members),
        ]
        wiring.connect(m, requests.o, wiring.flipped(self.o_requests))
        return jobs

    def _addends(self, m: Module, going, line, groups_end) -> tuple[Signal, Signal]:
        """Addends: a beat in a register, line by line, and when a line goes and a beat is taken."""
        config, beat, bad = self.config, self.i_data.payload.data, self.i_data.payload.error
        held_beat = Signal(32 * config.words, reset_less=True)
        some = Signal()
        half = Signal(range(max(2, config.groups_per_beat)))
        half_ends = Signal()
        give = Signal()
        fetch = Signal()
        addends = self.o_addends
        columns = 32 * config.columns
        m.d.comb += [
            give.eq(some & addends.ready),
            half_ends.eq(half == config.groups_per_beat - 1),
            fetch.eq(going & (~some | (addends.ready & half_ends & ~groups_end))),
            addends.valid.eq(some),
            addends.payload.line.eq(line),
            addends.payload.words.eq(held_beat.word_select(half, columns) if config.groups_per_beat > 1 else held_beat),
        ]
        with m.If(give):
            m.d.sync += some.eq(0)
            m.d.sync += half.eq(Mux(half_ends | groups_end, 0, half + 1))
            with m.If(~half_ends & ~groups_end):
                m.d.sync += some.eq(1)
        with m.If(fetch):
            m.d.sync += some.eq(~bad)
        # What stands there is taken or means nothing: the register waits for no more than its own beat.
        with m.If(~some | (addends.ready & half_ends)):
            m.d.sync += held_beat.eq(beat)
        return give, fetch

    def _count(self, m: Module, at: _Now) -> None:
        """Where the next line goes, and which lines are the last ones."""
        base = Signal(16, reset_less=True)
        lines_left = Signal(12, reset_less=True)
        groups_left = Signal(20, reset_less=True)
        one_line_now = Signal(reset_less=True)
        one_group_now = Signal(reset_less=True)
        with m.If(at.begin):
            m.d.sync += [
                at.unit.eq(0),
                at.line.eq(at.new.line),
                base.eq(at.new.line),
                lines_left.eq(at.new.steps),
                at.lines_end.eq(at.one_line),
                one_line_now.eq(at.one_line),
                groups_left.eq(at.new.count),
                at.groups_end.eq(at.one_group),
                one_group_now.eq(at.one_group),
            ]
        with m.Else():
            wraps = at.unit == self.config.units - 1
            with m.If(at.line_ends):
                m.d.sync += lines_left.eq(Mux(at.lines_end, at.now.steps, lines_left - 1))
                m.d.sync += at.lines_end.eq(Mux(at.lines_end, one_line_now, lines_left == 2))
            with m.If(at.next_group):
                m.d.sync += groups_left.eq(groups_left - 1)
                m.d.sync += at.groups_end.eq(groups_left == 2)
                m.d.sync += at.unit.eq(at.unit + 1)
            with m.If(at.steps_on):
                m.d.sync += at.line.eq(Mux(~at.now.addends & at.lines_end & ~wraps, base, at.line + 1))
            with m.If(at.line_ends & at.lines_end & wraps):
                m.d.sync += base.eq(at.line + 1)
