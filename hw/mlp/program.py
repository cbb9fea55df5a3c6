"""Fetches and checks instructions, and dispatches them to the engines."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import read_layout, request_layout
from hw.isa import MLP, WORD_BITS
from hw.isa.mlp import ACTIVATION, TARGET
from hw.kernel.bounds import BoundedSum, Term
from hw.kernel.decode import Decoder
from hw.kernel.instructions import Instructions, program_error_layout
from hw.layouts import arguments_layout
from hw.mlp.config import MlpConfig
from hw.mlp.loader import RowsJob
from hw.mlp.parameters import ParametersJob
from hw.mlp.records import LayerJob
from hw.mlp.stretches import Stretches
from hw.mlp.waits import Waits
from hw.place import Part
from hw.stream.fifo import Fifo

QUEUE = 32      # instructions that wait for an engine: as many as LUT memory holds
KINDS = tuple(instruction.name for instruction in MLP.instructions)
LOAD_ROWS, LOAD_WEIGHTS, LOAD_ADDENDS, LAYER, INTERACT = range(len(KINDS))
INPUTS, OUTPUTS, WEIGHTS = range(3)     # detail of BOUNDS


class Check(enum.Enum, shape=3):
    """A sum; all but the first two must stay within a buffer."""

    FEATURES = 0    # line of the first feature that is loaded
    ROWS = 1        # how many rows
    INPUTS = 2
    WEIGHTS = 3
    ADDENDS = 4
    OUTPUTS = 5


class _State(NamedTuple):
    """What `Program.elaborate` hands to other methods."""

    instructions: Instructions
    item: Any


class _Allowed(NamedTuple):
    """What `Program._allowed` hands on."""

    kind: Any
    refused: Any


class _Sums(NamedTuple):
    """What `Program._sums` hands on."""

    check: Signal
    group: Value
    sum: BoundedSum
    less_one: Signal
    stored_beats: Signal
    before_last: Signal
    out_beats: Signal


class _Queues(NamedTuple):
    """What `Program._queues` hands on."""

    line: Signal
    rows_less_one: Signal
    queues: list[Any]


class Program(Part):
    """Reads a program, checks each instruction, and hands it to the engine that it is for.

    Source: hw.isa, golden.mlp.core for what is checked

    Parameters  config: MlpConfig
    Members     start         In  a pulse
                arguments     In  of hw.layouts, from `start` on
                o_requests    Out(stream)  to and from a client of a ReadPort
                i             In(stream)  to and from a client of a ReadPort
                o_rows        Out(stream of hw.mlp.loader.RowsJob)
                o_parameters  Out(stream of hw.mlp.parameters.ParametersJob)
                o_layers      Out(stream of hw.mlp.records.LayerJob)
                number        Out  the instruction that is looked at
                error         Out  see program_error_layout
                done          Out  all instructions, or all before one that is refused, have been taken from the
                    streams, until reset or, without an error, the next start
    Timing      besides its beats an instruction takes 4 cycles without sums; LOAD_ADDENDS 8, LOAD_WEIGHTS 7 + bits of
                steps, LAYER to memory 7 + bits of out_stride, LOAD_ROWS 9 + bits of features and of stride, and with
                feature >= rows 2 + bits of feature // rows more: at most 58 (bits of 0: none); 2 more to its stream.
                QUEUE instructions and one more wait for each engine; a full queue holds up all. Whether an
                instruction shares lines with itself, or with one that it does not wait for, is known when it has been
                handed on and the next one is here, which waits for that: see hw.mlp.waits
    Handshake   streams from registers
    Reset       drops everything
    Golden      golden.mlp.program; cycles: fpga/card/cpp/twin/mlp_front.h          Tests  verif/mlp/test_program.py
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        super().__init__({
            "start": In(1),
            "arguments": In(arguments_layout(MLP)),
            "o_requests": Out(stream.Signature(request_layout())),
            "i": In(stream.Signature(read_layout(config.beat_bytes))),
            "o_rows": Out(stream.Signature(RowsJob)),
            "o_parameters": Out(stream.Signature(ParametersJob)),
            "o_layers": Out(stream.Signature(LayerJob)),
            "number": Out(32), "error": Out(program_error_layout()), "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        instructions = Instructions(m, self, MLP, failed="DRAIN")
        item = instructions.item
        state = _State(instructions=instructions, item=item)
        allowed = self._allowed(m, state)
        bounds = self._sums(m, state)
        queues = self._queues(m, state, allowed, bounds)
        self._sequence(m, state, allowed, bounds, queues)
        return m

    def _allowed(self, m: Module, state: _State) -> _Allowed:
        """What an instruction must keep to by itself. Registers: `refused` two cycles after the instruction is there,
        `kind` one."""
        item, config = state.item, self.config
        activation = item.activation
        # Rows that overlap; of groups there are no more than 12 bits.
        stride_groups = Cat(Const(0, (config.groups_per_beat - 1).bit_length()), item.out_stride[:12])
        overlap = (stride_groups < item.groups) & ~item.out_stride[12:].any()
        decoder = Decoder(m, MLP, item, [
            (~item.features_in & (item.features != 1), {LOAD_ROWS}),
            (item.last_columns > config.columns, {LAYER}),
            ((activation == ACTIVATION.SIGMOID) & (item.target != TARGET.MEMORY), {LAYER}),
            ((activation != ACTIVATION.NONE) & (item.target == TARGET.PARTIAL), {LAYER}),
            ((item.target == TARGET.MEMORY) & (item.count != 1) & overlap, {LAYER}),
            (item.features == 1, {INTERACT}),
        ])
        return _Allowed(kind=decoder.kind, refused=decoder.refused)

    def _sums(self, m: Module, state: _State) -> _Sums:
        item, arguments, config = state.item, self.arguments, self.config
        check = Signal(Check)
        less_one = Signal(32, reset_less=True)      # rows less one
        before_last = Signal(20, reset_less=True)   # samples less one
        row_end = Signal(33, reset_less=True)
        out_end = Signal(33, reset_less=True)
        group = item.feature >> (config.rows - 1).bit_length()
        halves_log2 = (config.groups_per_beat - 1).bit_length()
        out_beats = Signal(16, reset_less=True)     # of a sample
        stored_beats = Signal(12, reset_less=True)  # of a row in the inputs
        # What is added besides the product; in registers before the sum begins.
        m.d.sync += [
            before_last.eq(item.count - 1),
            stored_beats.eq(Mux(item.half, (item.row_beats[:12] + 1)[1:], item.row_beats)),
            row_end.eq(item.source + stored_beats),
            out_beats.eq((item.groups + config.groups_per_beat - 1)[halves_log2:]),
            out_end.eq(item.out + out_beats),
        ]
        lines_log2 = (config.line_beats - 1).bit_length()
        terms = {
            Check.FEATURES: Term(item.line, item.row_beats, group),
            Check.ROWS: Term(0, item.count[:20], item.features),
            Check.INPUTS: Term(row_end, less_one, item.stride),
            Check.WEIGHTS: Term(item.source, item.count[:20] << lines_log2, item.steps),
            Check.ADDENDS: Term(item.source, item.count[halves_log2:20], 1, more=item.count[:halves_log2].any(),
                                doubles=False),
            Check.OUTPUTS: Term(out_end, before_last, item.out_stride),
        }
        bounded = BoundedSum(
            m, check, terms, sizes=[arguments.inputs_beats, arguments.outputs_beats, arguments.weights_beats],
            buffers={Check.INPUTS: INPUTS, Check.OUTPUTS: OUTPUTS, Check.WEIGHTS: WEIGHTS, Check.ADDENDS: WEIGHTS})
        m.d.sync += less_one.eq(bounded.total - 1)
        return _Sums(check=check, group=group, sum=bounded, less_one=less_one, stored_beats=stored_beats,
                     before_last=before_last, out_beats=out_beats)

    def _queues(self, m: Module, state: _State, allowed: _Allowed, bounds: _Sums) -> _Queues:
        """An engine's instructions each."""
        item, kind = state.item, allowed.kind
        rows_less_one = Signal(28, reset_less=True)
        line = Signal(16, name="line", reset_less=True)
        run = Signal(reset_less=True)
        m.d.sync += run.eq(item.stride == bounds.stored_beats)
        queues = []
        own = {
            "o_rows": {"line": line, "less_one": rows_less_one, "stored_beats": bounds.stored_beats, "run": run},
            "o_parameters": {"addends": kind[LOAD_ADDENDS],
                             "line": Mux(kind[LOAD_ADDENDS], item.addend_line, item.weight_line)},
            "o_layers": {"interact": kind[INTERACT]},
        }
        for name, fields in own.items():
            port = getattr(self, name)
            fields |= {"end": bounds.sum.total[:32], "number": self.number}
            queue = Fifo(port.payload.shape(), depth=QUEUE)
            m.submodules[name[2:]] = queue
            m.d.comb += [queue.i.payload[field].eq(fields[field] if field in fields else item[field])
                         for field in data.Layout.cast(port.payload.shape()).members]
            wiring.connect(m, queue.o, wiring.flipped(port))
            queues.append(queue)
        return _Queues(line=line, rows_less_one=rows_less_one, queues=queues)

    def _sequence(self, m: Module, state: _State, allowed: _Allowed, bounds: _Sums, queues: _Queues) -> None:
        item, kind, check, sums = state.item, allowed.kind, bounds.check, bounds.sum
        instructions, error = state.instructions, self.error
        wait = Signal(2)
        begin = Signal(name="allowed_begin")
        stretches = Stretches(m, self.config, item, begin=begin, kind=kind, before_last=bounds.before_last,
                              beats=bounds.out_beats)
        groups = [kind[LOAD_ROWS], kind[LOAD_WEIGHTS] | kind[LOAD_ADDENDS], kind[LAYER] | kind[INTERACT]]
        send = Signal()
        ready = Signal()
        sent = Signal()
        waits = Waits(m, self.config, item, stretches, number=self.number, start=self.start, engines=Cat(groups),
                      sent=sent)
        m.d.comb += ready.eq(
            Cat(queue.i.ready & group for queue, group in zip(queues.queues, groups, strict=True)).any())
        m.d.comb += sent.eq(send & ready)
        for queue, group in zip(queues.queues, groups, strict=True):
            m.d.comb += queue.i.valid.eq(send & group)

        def refuse(code: str, detail: Value | int) -> None:
            """Unless the one before is found out, when it is known."""
            with m.If(error.valid):
                m.next = "DRAIN"
            with m.Elif(~waits.settling):
                instructions.refuse(code, detail)

        m.d.sync += wait.eq(0)
        with m.FSM():
            instructions.states(then="ALLOWED", over="DRAIN")
            with m.State("ALLOWED"):
                m.d.comb += begin.eq(wait == 0)
                m.d.sync += wait.eq(wait + 1)
                m.d.sync += queues.line.eq(item.line)
                m.d.sync += check.eq(Mux(
                    kind[LOAD_ROWS], Mux(item.features_in & (bounds.group != 0), Check.FEATURES, Check.ROWS),
                    Mux(kind[LOAD_WEIGHTS], Check.WEIGHTS, Mux(kind[LOAD_ADDENDS], Check.ADDENDS, Check.OUTPUTS))))
                with m.If(wait == 2):
                    m.d.sync += wait.eq(2)
                    with m.If(allowed.refused):
                        refuse("BAD_INSTRUCTION", item.as_value()[:WORD_BITS])
                    with m.Elif(waits.early.any()):
                        refuse("BAD_ORDER", Mux(waits.early[0], 0, Mux(waits.early[1], 1, 2)))
                    with m.Elif(kind[INTERACT] | (kind[LAYER] & (item.target != TARGET.MEMORY))):
                        m.next = "SEND"
                    with m.Else():
                        m.next = "LOAD"
            with m.State("LOAD"):
                m.d.comb += sums.load.eq(1)
                m.next = "ADD"
            with m.State("ADD"):
                with m.If(sums.summed):
                    with m.If(check == Check.FEATURES):
                        m.d.sync += queues.line.eq(sums.total)
                        m.d.sync += check.eq(Check.ROWS)
                        m.next = "LOAD"
                    with m.Elif(check == Check.ROWS):
                        m.d.sync += check.eq(Check.INPUTS)
                        m.next = "LOAD"
                    with m.Else():
                        m.next = "COMPARE"
            with m.State("COMPARE"):
                with m.If(sums.outside):
                    refuse("BOUNDS", sums.buffer)
                with m.Else():
                    m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += send.eq(~waits.blocked)
                with m.If(sent):
                    instructions.step()
            with m.State("DRAIN"):
                with m.If(~Cat(queue.held for queue in queues.queues).any() & ~waits.settling):
                    m.d.sync += self.done.eq(1)
                    with m.If(~self.error.valid):
                        m.next = "IDLE"
        with m.If(error.valid):
            m.d.sync += instructions.more.eq(0)
        with m.Elif(waits.found):
            m.d.sync += [
                error.valid.eq(1),
                error.code.eq(waits.code),
                error.detail.eq(waits.detail),
                error.instruction.eq(waits.instruction),
                instructions.more.eq(0),
            ]
        # The rows are counted when the check of their addresses begins.
        with m.If(sums.load & (check == Check.INPUTS)):
            m.d.sync += queues.rows_less_one.eq(bounds.less_one)
