"""Brings rows of samples and of features into the rows' memory."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import read_layout, request_layout
from hw.fp.narrow import widen
from hw.mlp.config import MlpConfig
from hw.mlp.records import load_layout
from hw.mlp.requests import Fetch, Requests
from hw.place import Part, place
from hw.stream.fifo import Fifo
from hw.stream.skid_buffer import SkidBuffer

COUNTED = ("row_beats", "features", "count")    # from the innermost
JOBS = 32   # loads that have been asked for and wait for their data: as many as LUT memory holds


class LoadError(data.Struct):
    """A beat that could not be read; valid stays until reset."""

    valid: 1
    instruction: 32


def _place_layout(config: MlpConfig) -> data.StructLayout:
    """Where a load's rows go, and when they may. line: of the first feature, not of feature 0."""
    line = (config.row_lines - 1).bit_length()
    return data.StructLayout({
        "features_in": 1, "half": 1, "count": 20, "row_beats": 12, "features": 8, "feature": 8,
        "line": line, "line_stride": line, "wait_weights": 32, "wait_layers": 32, "number": 32,
    })


def _walk_layout(config: MlpConfig) -> data.StructLayout:
    """What a load is counted by, and what its first beat has. one_k: the k-th of COUNTED is 1; by_beat, by_sample,
    by_block: lines from a beat of a row to the next, from a sample to the next in its unit, and from the first sample
    of unit 0 to that behind the last unit's last row."""
    line = (config.row_lines - 1).bit_length()
    return data.StructLayout({
        "features_in": 1, "half": 1, "row_beats": 12, "features": 8, "count": 20, "number": 32,
        **{f"one_{at}": 1 for at in range(len(COUNTED))},
        "line": line, "row": range(config.rows), "turn": range(config.pieces),
        "by_beat": line, "by_sample": line, "by_block": line,
    })


class RowsJob(data.Struct):
    """A LOAD_ROWS that has been checked: the instruction's fields of those names, but line: of the first feature
    that is loaded; less_one: rows less one; stored_beats: of a row in the inputs; end: the beat behind the last
    row; run: the rows lie one behind the other; number: of the instruction."""

    features_in: 1
    half: 1
    count: 20
    source: 32
    end: 32
    stride: 32
    run: 1
    less_one: 28
    row_beats: 12
    stored_beats: 12
    features: 8
    feature: 8
    line: 16
    line_stride: 16
    wait_weights: 32
    wait_layers: 32
    number: 32


class RowLoader(Part):
    """Carries out LOAD_ROWS in order: a beat per cycle, data fetched ahead of the instructions' waits.

    Beat q of sample i: unit (i // rows) % units, row i % rows, line + q * line_stride + s. Of feature f of sample i:
    row f % rows of the sample's unit, line + j * line_stride + (f // rows) * row_beats + q, turned by f // rows.
    s = i // (rows * units), j = s * rows + i % rows. With `half` a beat of the port is beats 2 n and 2 n + 1 of a row,
    word k in bits 16 k on, each widened; the last beat of an odd number leaves the port's upper half.

    Parameters  config: MlpConfig
    Members     i           In(stream of RowsJob)
                weights_done, layers_done  In(32)  loads that are done in this run, layers whose results are written
                o_requests  Out(stream)  to and from a client of a ReadPort
                i_data      In(stream)  to and from a client of a ReadPort
                base        In(64)  address of the inputs
                o_load      Out(stream of hw.mlp.records.load_layout)
                done        Out  a pulse in the cycle after a load's last beat was taken
                number      Out  the instruction whose beats are looked for
                error       Out  see LoadError
                idle        Out  no instruction is inside
    Shapes      a row of row_beats beats is as many beats of o_load; half: of ceil(row_beats / 2) beats of i_data
    Timing      a beat of o_load per cycle; from i_data to o_load a cycle. Instructions follow one another without a gap
                if they have 3 beats or more and their waits were over 2 cycles before. Data is asked for as soon as an
                instruction is there: an instruction that waits has its first beats in the port's queue
    Handshake   i_data.ready and o_load from registers, its words widened behind them. A load whose wait is not over
                takes no data
    Faults      a beat with an error ends all: it is not passed on, nothing behind it is taken or asked for
    Numerics    golden.fp.narrow.widen: exact, and so bit-exact
    Reset       forgets everything
    Golden      golden.mlp.loader; cycles: fpga/card/cpp/twin/mlp_front.h          Tests  verif/mlp/test_loader.py
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(RowsJob)),
            "weights_done": In(32), "layers_done": In(32),
            "o_requests": Out(stream.Signature(request_layout())),
            "i_data": In(stream.Signature(read_layout(config.beat_bytes))),
            "base": In(64),
            "o_load": Out(stream.Signature(load_layout(config))),
            "done": Out(1), "number": Out(32), "error": Out(LoadError), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, job, error = self.config, self.i.payload, self.error
        requests = Requests(beat_bytes=config.beat_bytes)
        place(m, platform, "requests", requests)
        m.submodules.jobs = jobs = Fifo(_place_layout(config), depth=JOBS)
        m.d.comb += [
            self.i.ready.eq(requests.i.ready & jobs.i.ready),
            requests.i.valid.eq(self.i.valid & jobs.i.ready),
            jobs.i.valid.eq(self.i.valid & requests.i.ready),
            requests.base.eq(self.base),
            requests.hold.eq(error.valid),
            requests.i.payload.beats.eq(job.stored_beats),
            *(requests.i.payload[name].eq(job[name]) for name in Fetch.as_shape().members if name != "beats"),
            *(jobs.i.payload[name].eq(job[name]) for name in _place_layout(config).members),
        ]
        wiring.connect(m, requests.o, wiring.flipped(self.o_requests))

        # The next instruction: whether its waits are over, and what it counts and walks by.
        new = Signal(_place_layout(config), reset_less=True)
        held = Signal()
        may = Signal()
        shape = _walk_layout(config)
        coming = Signal(shape, reset_less=True)
        active = Signal()
        last = Signal()
        begin = Signal()
        fire = Signal()
        m.d.comb += jobs.o.ready.eq(~held)
        with m.If(~held):
            m.d.sync += new.eq(jobs.o.payload)
            m.d.sync += held.eq(jobs.o.valid)
        with m.If(begin):
            m.d.sync += held.eq(0)
        rows_log2 = (config.rows - 1).bit_length()
        m.d.sync += [
            may.eq(held & ~begin & (self.weights_done >= new.wait_weights) & (self.layers_done >= new.wait_layers)),
            *(coming[name].eq(new[name]) for name in (
                "features_in", "half", "row_beats", "features", "count", "number")),
            *(coming[f"one_{at}"].eq(new[name] == 1) for at, name in enumerate(COUNTED)),
            coming.line.eq(new.line),
            coming.row.eq(new.feature[:rows_log2]),
            coming.turn.eq(Mux(new.features_in, new.feature[rows_log2:], 0)),
            coming.by_beat.eq(Mux(new.features_in, 1, new.line_stride)),
            coming.by_sample.eq(Mux(new.features_in, new.line_stride, 0)),
            coming.by_block.eq(Mux(new.features_in, new.line_stride << rows_log2, 1)),
        ]

        m.submodules.out = out = SkidBuffer(data.StructLayout({"load": load_layout(config), "half": 1, "last": 1}))
        load = out.i.payload.load
        m.d.comb += [
            fire.eq(active & self.i_data.valid & out.i.ready & ~error.valid),
            out.i.valid.eq(fire & ~self.i_data.payload.error),
            out.i.payload.last.eq(last),
            self.o_load.valid.eq(out.o.valid),
            out.o.ready.eq(self.o_load.ready),
            begin.eq(may & (~active | (fire & last))),
            self.idle.eq(~jobs.held & ~held & ~active & ~out.o.valid),
        ]
        m.d.sync += self.done.eq(out.o.valid & out.o.ready & out.o.payload.last)
        with m.If(fire & self.i_data.payload.error):
            m.d.sync += error.valid.eq(1)
            m.d.sync += error.instruction.eq(self.number)
        with m.If(begin):
            m.d.sync += active.eq(1)
        with m.Elif(fire & last):
            m.d.sync += active.eq(0)

        now = Signal(shape, name="walk", reset_less=True)
        with m.If(begin):
            m.d.sync += now.eq(coming)
        m.d.comb += self.number.eq(now.number)
        ends = self._count(m, now, coming, begin, fire)
        m.d.comb += last.eq(Cat(ends).all())
        self._words(m, out, now.half, fire, ends[0])
        self._walk(m, load, now, coming, begin, fire, ends)
        return m

    def _count(self, m: Module, now, coming, begin: Signal, fire: Signal) -> list[Signal]:
        """Whether the beat is the last of its row, the row of its sample, the sample of all."""
        ends = [Signal(name=f"last_{at}", reset_less=True) for at in range(len(COUNTED))]
        steps = Value.cast(fire)
        for at, name in enumerate(COUNTED):
            left = Signal(len(now[name]), name=f"left_{at}", reset_less=True)
            with m.If(begin):
                m.d.sync += left.eq(coming[name])
                m.d.sync += ends[at].eq(coming[f"one_{at}"])
            with m.Elif(steps):
                m.d.sync += left.eq(Mux(ends[at], now[name], left - 1))
                m.d.sync += ends[at].eq(Mux(ends[at], now[f"one_{at}"], left == 2))
            steps = steps & ends[at]
        return ends

    def _words(self, m: Module, out: SkidBuffer, half: Value, fire: Signal, row_ends: Value) -> None:
        """A beat of the port, or its lower half and then its upper one, into the buffer, and out of it as words."""
        beat, width = self.i_data.payload.data, 16 * self.config.words
        upper = Signal()
        with m.If(fire):
            m.d.sync += upper.eq(half & ~upper & ~row_ends)
        stored, load = out.o.payload.load.words.as_value(), self.o_load.payload
        m.d.comb += [
            self.i_data.ready.eq(fire & (~half | upper | row_ends)),
            out.i.payload.half.eq(half),
            out.i.payload.load.words.eq(Cat(Mux(upper, beat[width:], beat[:width]), beat[width:])),
            load.eq(out.o.payload.load),
            *(word.eq(Mux(out.o.payload.half, widen(stored.word_select(k, 16)), stored.word_select(k, 32)))
              for k, word in enumerate(load.words)),
        ]

    def _walk(self, m: Module, load, now, coming, begin: Signal, fire: Signal, ends: list[Signal]) -> None:
        """Which unit, row, line and turn the beat has."""
        config = self.config
        row_ends, sample_ends = ends[0], ends[0] & ends[1]
        within = Signal(range(config.rows), reset_less=True)
        unit = Signal(range(config.units), reset_less=True)
        row = Signal.like(within, name="row")
        turn = Signal(len(load.turn), reset_less=True)
        line = Signal(len(load.line), reset_less=True)
        group, sample = Signal.like(line, name="group"), Signal.like(line, name="sample")
        # Of the samples that the units take at once, and of the next ones.
        block, ahead = Signal.like(line, name="block"), Signal.like(line, name="ahead")
        turns = row == config.rows - 1      # the next feature is in the next group of `rows`
        wraps = within == config.rows - 1   # the next sample is in the next unit
        beyond = wraps & (unit == config.units - 1)
        next_group = Mux(turns, group + now.row_beats, group)
        next_sample = Signal.like(line, name="next_sample")
        m.d.comb += [
            next_sample.eq(Mux(beyond, ahead, Mux(wraps, block, sample + now.by_sample))),
            load.unit.eq(unit),
            load.row.eq(Mux(now.features_in, row, within)),
            load.line.eq(line),
            load.turn.eq(turn),
        ]
        with m.If(begin):
            m.d.sync += [
                within.eq(0),
                unit.eq(0),
                row.eq(coming.row),
                turn.eq(coming.turn),
                line.eq(coming.line),
                group.eq(coming.line),
                sample.eq(coming.line),
                block.eq(coming.line),
                ahead.eq(coming.line + coming.by_block),
            ]
        with m.Elif(fire & sample_ends):
            m.d.sync += [
                row.eq(now.row),
                turn.eq(now.turn),
                within.eq(within + 1),
                unit.eq(unit + wraps),
                line.eq(next_sample),
                group.eq(next_sample),
                sample.eq(next_sample),
            ]
            with m.If(beyond):
                m.d.sync += block.eq(ahead)
                m.d.sync += ahead.eq(ahead + now.by_block)
        with m.Elif(fire & row_ends):
            m.d.sync += [
                row.eq(row + 1),
                turn.eq(turn + turns),
                line.eq(next_group),
                group.eq(next_group),
            ]
        with m.Elif(fire):
            m.d.sync += line.eq(line + now.by_beat)
