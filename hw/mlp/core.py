"""The MLP core: a Vitis kernel that runs fully connected networks and feature interactions."""

from typing import NamedTuple

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import wiring

from hw.axi.bus import attach
from hw.axi.port import ReadPort
from hw.axi.writer import WritePort, connect_client
from hw.isa import MLP
from hw.kernel.shell import KernelShell, connect_ports, kernel_ports, report_first_fault
from hw.mlp.addends import AddendMemory
from hw.mlp.config import MlpConfig
from hw.mlp.loader import RowLoader
from hw.mlp.parameters import ParameterLoader
from hw.mlp.program import Program
from hw.mlp.result_writer import ResultWriter
from hw.mlp.results import Results
from hw.mlp.rows import RowMemory
from hw.mlp.sequencer import TILE_BITS, Sequencer
from hw.mlp.units import ComputeUnits
from hw.mlp.weights import WeightMemory
from hw.place import Part, place
from hw.stream.fifo import Fifo

PROGRAM, ROWS = range(2)        # clients of the first read port
OUTPUTS, STATUS = range(2)      # clients of the write port
INPUTS, WEIGHTS = 1, 2          # detail of READ_ERROR
STALLS = ("rows", "weights", "in_flight", "write", "program")


class _Parts(NamedTuple):
    """The parts of the core."""

    frame: KernelShell
    reads: ReadPort
    weight_reads: ReadPort
    writes: WritePort
    program: Program
    row_loader: RowLoader
    parameter_loader: ParameterLoader
    sequencer: Sequencer
    units: ComputeUnits
    results: Results
    rows: RowMemory
    weights: WeightMemory
    addends: AddendMemory
    outlet: ResultWriter


class MlpCore(Part):
    """Runs a program of loads, layers and interactions over rows of samples, operands brought behind the computation.

    y[i, n] = f(sum_k x[i, k] w[k, n] + b[n]); z[i, (a, b)] = sum_k x[i, a, k] x[i, b, k].
    Source: SCRec §III.E, Fig. 7b (units, throughput and latency mode); Meta's DLRM (the interaction)

    Parameters  config: MlpConfig
    Members     s_axi_control  In(AXI4-Lite)  ap_ctrl_hs and the arguments of hw.isa.MLP
                m00_axi        Out(AXI4)  program and rows; results, result block
                m01_axi        Out(AXI4)  weights and addends, reads only
                interrupt      Out
    Shapes      a program of instructions (hw.isa) over buffers in card memory -> rows of whole beats
    Timing      config.macs multiply-accumulates per cycle, one beat per cycle on every channel of a port; loads,
                layers and stores overlap
    Numerics    golden.mlp.core; bit-exact
    Faults      the first error ends the run: no more bursts begin, those under way end, nothing is written outside
                the outputs, and the result block names the cause and the instruction. The next run starts clean
    Reset       everything but what is in the memories; only with the bus
    Raises      ValueError: see MlpConfig
    Golden      golden.mlp.core          Tests  tests/fpga/card/test_card_mlp.py, test_card_faults.py
    """

    kernel = MLP

    def __init__(self, config: MlpConfig):
        self.config = config
        super().__init__(kernel_ports(config.beat_bytes))

    def elaborate(self, platform):
        m = Module()
        parts = self._parts(m, platform)
        self._loads(m, parts)
        self._array(m, parts)
        all_written = self._outputs(m, parts)
        finished = self._count(m, parts)
        self._run(m, parts, finished, all_written)
        wiring.connect(m, wiring.flipped(self.s_axi_control), parts.frame.bus)
        attach(m, self.m00_axi, reader=parts.reads.bus, writer=parts.writes.bus)
        attach(m, self.m01_axi, reader=parts.weight_reads.bus)
        m.d.comb += self.interrupt.eq(parts.frame.interrupt)
        return m

    def _parts(self, m: Module, platform) -> _Parts:
        config, beat_bytes = self.config, self.config.beat_bytes
        frame = KernelShell(kernel=MLP, config=config, words=config.words, increments={
            "instructions": 2, "corrected": 8, "uncorrectable": 2})
        reads = ReadPort(beat_bytes=beat_bytes, outstanding=config.reads_in_flight,
                         clients=(config.program_beats, config.load_beats))
        weight_reads = ReadPort(beat_bytes=beat_bytes, outstanding=config.reads_in_flight,
                                clients=(config.load_beats,))
        writes = WritePort(beat_bytes=beat_bytes, outstanding=config.writes_in_flight,
                           clients=(config.output_beats, frame.block_beats))
        program = Program(config)
        row_loader, parameter_loader = RowLoader(config), ParameterLoader(config)
        sequencer, units, results = Sequencer(config), ComputeUnits(config), Results(config)
        rows, weights, addends = RowMemory(config), WeightMemory(config), AddendMemory(config)
        assert results.tiles < 1 << TILE_BITS       # besides the one whose slots go
        outlet = ResultWriter(config)
        flush, ports = frame.flush, frame.clean
        for name, part, reset in (
            ("frame", frame, None),
            ("reads", reads, ports), ("weight_reads", weight_reads, ports),
            ("writes", writes, frame.clean_report),
            # Not "program", which is a word of SystemVerilog.
            ("front", program, flush), ("row_loader", row_loader, flush),
            ("parameter_loader", parameter_loader, flush), ("sequencer", sequencer, flush),
            ("units", units, flush), ("results", results, flush), ("rows", rows, flush),
            ("weights", weights, flush), ("addends", addends, flush), ("outlet", outlet, flush),
        ):
            place(m, platform, name, part, reset=reset, alone=reset is not None)
        connect_ports(m, frame, (reads, writes, weight_reads), writes)
        return _Parts(
            frame=frame, reads=reads, weight_reads=weight_reads, writes=writes, program=program, row_loader=row_loader,
            parameter_loader=parameter_loader, sequencer=sequencer, units=units, results=results, rows=rows,
            weights=weights, addends=addends, outlet=outlet)

    def _loads(self, m: Module, parts: _Parts) -> None:
        """Instructions to the engines, and what they bring to the memories."""
        program, rows, parameters, sequencer = (
            parts.program, parts.row_loader, parts.parameter_loader, parts.sequencer)
        arguments = parts.frame.arguments
        for port, client, part in ((parts.reads, PROGRAM, program), (parts.reads, ROWS, rows),
                                   (parts.weight_reads, 0, parameters)):
            wiring.connect(m, part.o_requests, port.i_requests[client])
            wiring.connect(m, port.o[client], part.i if part is program else part.i_data)
        wiring.connect(m, program.o_rows, rows.i)
        wiring.connect(m, program.o_parameters, parameters.i)
        wiring.connect(m, program.o_layers, sequencer.i)
        wiring.connect(m, rows.o_load, parts.rows.i_load)
        wiring.connect(m, parameters.o_addends, parts.addends.i_load)
        m.d.comb += [
            program.start.eq(parts.frame.begin),
            program.arguments.eq(arguments),
            rows.base.eq(arguments.inputs),
            parameters.base.eq(arguments.weights),
            parts.weights.load.eq(parameters.o_weights),
        ]
        # How much of each kind is done: what the instructions of the other engines wait for. A layer is done when the
        # results of its last tile are written.
        finals = Fifo(1, depth=parts.results.tiles)
        m.submodules.finals = ResetInserter(parts.frame.flush)(finals)
        m.d.comb += finals.i.valid.eq(sequencer.tile_valid)
        m.d.comb += finals.i.payload.eq(sequencer.done)
        m.d.comb += finals.o.ready.eq(parts.results.written)
        for name, done, waiting in (
            ("rows", rows.done, (parameters, sequencer)),
            ("weights", parameters.done, (rows, sequencer)),
            ("layers", parts.results.written & finals.o.payload, (rows, parameters, sequencer)),
        ):
            count = Signal(32, name=f"{name}_done")
            m.d.sync += count.eq(count + done)
            with m.If(parts.frame.flush):
                m.d.sync += count.eq(0)
            for engine in waiting:
                m.d.comb += getattr(engine, f"{name}_done").eq(count)

    def _array(self, m: Module, parts: _Parts) -> None:
        """Slots to the memories and on to the units, results to where they go."""
        sequencer, units, results = parts.sequencer, parts.units, parts.results
        for part in (parts.rows, parts.weights, units):
            m.d.comb += part.valid.eq(sequencer.valid)
            m.d.comb += part.slot.eq(sequencer.slot)
        m.d.comb += [
            units.x.eq(parts.rows.x),
            units.f.eq(parts.rows.f),
            units.w.eq(parts.weights.w),
            results.i_tile_valid.eq(sequencer.tile_valid),
            results.i_tile.eq(sequencer.tile),
            results.i_valid.eq(units.o_valid),
            results.i.eq(units.o),
            parts.addends.lines.eq(results.addend_lines),
            parts.addends.read.eq(results.addend_read),
            results.addends.eq(parts.addends.addends),
            parts.rows.i_rows.eq(results.o_rows),
            parts.addends.i_results.eq(results.o_addends),
            sequencer.written.eq(results.written),
        ]

    def _outputs(self, m: Module, parts: _Parts) -> Signal:
        """Results and reports to the write port; whether all rows are written."""
        outlet, results, writes, frame = parts.outlet, parts.results, parts.writes, parts.frame
        m.d.comb += [
            outlet.i_valid.eq(results.o_store_valid),
            outlet.i.eq(results.o_store),
            outlet.outputs.eq(frame.arguments.outputs),
            outlet.reserve.eq(parts.sequencer.reserve),
            parts.sequencer.room.eq(outlet.room),
            frame.done.eq(writes.done[STATUS]),
        ]
        connect_client(m, writes, OUTPUTS, outlet.o_requests, outlet.o_data)
        connect_client(m, writes, STATUS, frame.o_requests, frame.o_data)
        # Rows that have been asked to be written and are not yet.
        under_way = Signal(16)
        asked = outlet.o_requests.valid & outlet.o_requests.ready
        m.d.sync += under_way.eq(under_way + asked - writes.done[OUTPUTS])
        with m.If(parts.frame.flush):
            m.d.sync += under_way.eq(0)
        all_written = Signal(name="_all_written")
        m.d.sync += all_written.eq((under_way == 0) & ~asked)
        return all_written

    def _count(self, m: Module, parts: _Parts) -> Signal:
        """Events; how many instructions are finished."""
        sequencer, frame, events = parts.sequencer, parts.frame, parts.frame.events
        now = Signal(2, name="finished")
        m.d.sync += now.eq(parts.row_loader.done + parts.parameter_loader.done + sequencer.done)
        finished = Signal(32, name="_finished")
        with m.If(frame.begin):
            m.d.sync += finished.eq(0)
        with m.Elif(~frame.flush):
            m.d.sync += finished.eq(finished + now)
        moves = [port.valid & port.ready for port in (
            parts.reads.o[ROWS], parts.weight_reads.o[0], parts.writes.i_data[OUTPUTS])]
        memories = (parts.rows, parts.weights, parts.addends)
        corrected = Signal(8)
        lost = Signal()
        m.d.sync += corrected.eq(sum(part.corrected for part in memories))
        m.d.sync += lost.eq(Cat(part.uncorrectable for part in memories).any())
        m.d.comb += [
            events.instructions.eq(now),
            events.rows_beats.eq(moves[0]),
            events.weights_beats.eq(moves[1]),
            events.outputs_beats.eq(moves[2]),
            events.tiles.eq(sequencer.tile_valid),
            events.slots.eq(sequencer.valid),
            events.corrected.eq(corrected),
            events.uncorrectable.eq(lost),
            frame.progress.instructions_done.eq(finished),
            frame.report_progress.eq(now.any() & ~frame.flush),
        ]
        for name in STALLS:
            m.d.comb += events[f"stall_{name}"].eq(sequencer.stall[name] & ~frame.flush)
        return finished

    def _run(self, m: Module, parts: _Parts, finished, all_written) -> None:
        """From start to done."""
        frame, writes = parts.frame, parts.writes
        program, sequencer = parts.program, parts.sequencer
        loaders = ((parts.row_loader, INPUTS), (parts.parameter_loader, WEIGHTS))
        report_first_fault(m, frame, [
            (program.error.valid, program.error.code, program.error.instruction, program.error.detail),
            *((part.error.valid, MLP.code("READ_ERROR"), part.error.instruction, detail) for part, detail in loaders),
            (writes.error[OUTPUTS] | writes.error[STATUS], MLP.code("WRITE_ERROR"), sequencer.number,
             writes.error[STATUS]),
            *((part.uncorrectable, MLP.code("MEMORY"), sequencer.number, number)
              for number, part in enumerate((parts.rows, parts.weights, parts.addends))),
        ])
        # All parts say that they are idle for some cycles: nothing is on its way between two of them.
        working = (parts.row_loader, parts.parameter_loader, sequencer, parts.results, parts.outlet)
        calm = Signal(4)
        with m.If(program.done & Cat(part.idle for part in working).all() & all_written):
            m.d.sync += calm.eq(Cat(1, calm))
        with m.Else():
            m.d.sync += calm.eq(0)
        m.d.comb += frame.over.eq(calm.all())
        m.d.comb += frame.at.eq(finished)
        m.d.comb += frame.work.eq(Cat(o.valid & o.ready for o in parts.reads.o).any())
