"""The Hotline core, a Vitis kernel: dispatches samples to GPUs in mini-batches and keeps the rows that are not hot."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring

from hw.axi.bus import attach
from hw.axi.port import ReadPort
from hw.axi.reader import Reader
from hw.axi.writer import WritePort, connect_client
from hw.hotline.bags import BagReader
from hw.hotline.classifier import Classifier
from hw.hotline.config import ROW_BEATS_LOG2_MAX, HotlineConfig
from hw.hotline.dispatch import Dispatcher, each
from hw.hotline.embeddings import EmbeddingBuffer
from hw.hotline.frames import InputBuffer
from hw.hotline.gather import Gather
from hw.hotline.image import ImageMover
from hw.hotline.logger import Logger
from hw.hotline.lookup import LookupArray
from hw.hotline.program import Program
from hw.hotline.update import Updater
from hw.isa import HOTLINE
from hw.isa.hotline import DISPATCHED
from hw.kernel.doorbell import Doorbell
from hw.kernel.shell import KernelShell, connect_ports, kernel_ports, report_first_fault
from hw.place import Part, place
from hw.stream.skid_buffer import SkidBuffer

PROGRAM, INPUTS, BELL, GRADIENTS, HOT = range(5)    # clients of the first read port
ROWS, HOT_ROWS = 4, 5                               # details of READ_ERROR; the others are their clients' numbers
ROWS_BUFFER = 3                                     # detail of BOUNDS
MAILBOX, IMAGE, STATUS = range(3)                   # clients of the first write port
REFUSED = 2                                         # detail of WRITE_ERROR: rows; one more where twice


class _Parts(NamedTuple):
    """The parts of the core."""

    frame: KernelShell
    reads: ReadPort
    writes: WritePort
    row_reads: Reader
    row_writes: WritePort
    program: Program
    doorbell: Doorbell
    lookup: LookupArray
    logger: Logger
    image: ImageMover
    classifier: Classifier
    frames: InputBuffer
    gather: Gather
    embeddings: EmbeddingBuffer
    dispatcher: Dispatcher
    updater: Updater
    bags: BagReader


class HotlineCore(Part):
    """Learns which rows are hot, dispatches popular mini-batches, gathers and updates the rows of the others.

    Source: Hotline ch. 5 and 6, Fig. 6.1, table 6.1; EL-Rec §V.B (rows updated while they are prefetched)

    Parameters  config: HotlineConfig
    Members     s_axi_control  In(AXI4-Lite)  ap_ctrl_hs and the arguments of hw.isa.HOTLINE
                m00_axi        Out(AXI4)  program, samples, doorbell, gradients and hot rows; mini-batches, logger
                    images, result block
                m01_axi        Out(AXI4)  cold rows, read and written
                interrupt      Out
    Shapes      a program of instructions (hw.isa) over samples of whole beats -> mini-batches in the mailbox
    Timing      a beat of samples per cycle, as long as fewer than `waves` of them wait for the logger's answers;
                lookups, dispatch, gathering and updates overlap, instructions follow one another
    Numerics    golden.hotline; bit-exact. What is in a mini-batch does not depend on time; which class goes first does
    Faults      the first error ends the run: the mini-batch whose rows are being updated is brought to its end if its
                gradients can be read, no more bursts begin, those under way end, nothing is written outside the
                buffers, and the result block names the cause. The rows' buffer is then as the first
                `batches_updated` gathered mini-batches leave it, bit for bit, unless a row was refused twice: see
                hw.hotline.update. The next run starts clean; the logger keeps its entries
    Reset       everything but what is in the logger and the tables; only with the bus
    Raises      ValueError: see HotlineConfig
    Golden      golden.hotline.train          Tests  tests/fpga/card/test_card_hotline.py, test_card_hotline_faults.py
    """

    kernel = HOTLINE

    def __init__(self, config: HotlineConfig):
        self.config = config
        super().__init__(kernel_ports(config.beat_bytes))

    def elaborate(self, platform):
        m = Module()
        parts = self._parts(m, platform)
        job = self._program_ports(m, parts, platform)
        self._samples(m, parts, job, platform)
        self._mini_batches(m, parts, job, platform)
        self._rows(m, parts, job, platform)
        self._pooled(m, parts, job, platform)
        self._count(m, parts)
        self._run(m, parts)
        wiring.connect(m, wiring.flipped(self.s_axi_control), parts.frame.bus)
        attach(m, self.m00_axi, reader=parts.reads.bus, writer=parts.writes.bus)
        attach(m, self.m01_axi, reader=parts.row_reads.bus, writer=parts.row_writes.bus)
        m.d.comb += self.interrupt.eq(parts.frame.interrupt)
        return m

    def _cut(self, m: Module, parts: _Parts, platform, name: str, source, reset=None):
        """The stream, from registers in both directions: what is behind the ready of one part and before the valid of
        the next are paths of their own. reset: the parts' flush, if it is no other."""
        skid = SkidBuffer(source.payload.shape())
        place(m, platform, f"cut_{name}", skid, reset=parts.frame.flush if reset is None else reset,
              alone=True)
        wiring.connect(m, source, skid.i)
        return skid.o

    def _parts(self, m: Module, platform) -> _Parts:
        config, beat_bytes = self.config, self.config.beat_bytes
        in_flight: dict[str, Any] = {"beat_bytes": beat_bytes, "outstanding": config.reads_in_flight}
        write_port = {"beat_bytes": beat_bytes, "outstanding": config.writes_in_flight}
        lanes = config.lanes.bit_length()
        frame = KernelShell(kernel=HOTLINE, config=config, words=config.words, finishes=True,
                            increments={"accesses": lanes, "hits": lanes})
        # Further samples wait for gradients: rows of the next mini-batch do, samples have the input buffer before them.
        reads = ReadPort(**in_flight, urgent=(GRADIENTS,), clients=(
            config.program_beats, config.input_beats, 1, config.row_read_beats, config.row_read_beats))
        writes = WritePort(**write_port, clients=(
            config.output_beats, config.output_beats, frame.block_beats))
        # A row is one request, whatever its length; one per cycle.
        row_reads = Reader(**in_flight)
        row_writes = WritePort(**write_port, clients=(max(config.output_beats, 1 << ROW_BEATS_LOG2_MAX),))
        program, doorbell = Program(config), Doorbell(beat_bytes=beat_bytes, bits=32 * config.gpus)
        lookup, logger, image = LookupArray(config), Logger(config), ImageMover(config)
        classifier, frames = Classifier(config), InputBuffer(config)
        gather, embeddings = Gather(config), EmbeddingBuffer(config)
        dispatcher, updater, bags = Dispatcher(config), Updater(config), BagReader(config)
        flush, ports = frame.flush, frame.clean
        for name, part, reset in (
            ("frame", frame, None),
            ("reads", reads, ports), ("writes", writes, frame.clean_report),
            ("row_reads", row_reads, ports), ("row_writes", row_writes, ports),
            # Not "program", which is a word of SystemVerilog.
            ("front", program, flush), ("doorbell", doorbell, flush), ("lookup", lookup, flush),
            ("logger", logger, flush), ("image", image, flush), ("classifier", classifier, flush),
            ("input_buffer", frames, flush), ("gather", gather, flush),
            ("embeddings", embeddings, flush), ("dispatcher", dispatcher, flush),
            ("updater", updater, flush), ("bags", bags, flush),
        ):
            place(m, platform, name, part, reset=reset, alone=reset is not None)
        connect_ports(m, frame, (reads, writes, row_reads, row_writes), writes)
        return _Parts(
            frame=frame, reads=reads, writes=writes, row_reads=row_reads, row_writes=row_writes, program=program,
            doorbell=doorbell, lookup=lookup, logger=logger, image=image, classifier=classifier, frames=frames,
            gather=gather, embeddings=embeddings, dispatcher=dispatcher, updater=updater, bags=bags)

    def _program_ports(self, m: Module, parts: _Parts, platform) -> Signal:
        """What reads and writes go where; the job, from registers, to whom it concerns."""
        program, reads, writes, arguments = parts.program, parts.reads, parts.writes, parts.frame.arguments
        for client, requests, beats in (
            (PROGRAM, program.o_requests, program.i), (INPUTS, program.o_input_requests, program.i_inputs),
            (BELL, parts.doorbell.o_requests, parts.doorbell.i),
            (GRADIENTS, parts.updater.o_requests, parts.updater.i_gradients),
            (HOT, parts.bags.o_requests, parts.bags.i_hot),
        ):
            wiring.connect(m, requests, reads.i_requests[client])
            wiring.connect(m, reads.o[client], beats)
        connect_client(m, writes, MAILBOX, self._cut(m, parts, platform, "requests", parts.dispatcher.o_requests),
                       self._cut(m, parts, platform, "data", parts.dispatcher.o_data))
        connect_client(m, writes, IMAGE, self._cut(m, parts, platform, "image_requests", program.o_write_requests),
                       program.o_write_data)
        # The report is written while the parts are flushed.
        report = self._cut(m, parts, platform, "report", parts.frame.o_requests, parts.frame.clean_report)
        connect_client(m, writes, STATUS, report, parts.frame.o_data)
        m.d.comb += [
            program.start.eq(parts.frame.begin),
            program.arguments.eq(arguments),
            program.written.eq(writes.done[IMAGE]),
            parts.frame.done.eq(writes.done[STATUS]),
        ]
        # No mini-batch is reported from the first that could not be written on.
        failed = Signal()
        m.d.sync += failed.eq((failed | writes.error[MAILBOX]) & ~parts.frame.flush)
        m.d.comb += parts.dispatcher.written.eq(writes.done[MAILBOX] & ~writes.error[MAILBOX] & ~failed)
        # Registers, for what stands while an instruction is carried out reaches every part.
        job = Signal.like(program.job)
        m.d.sync += job.eq(program.job)
        for part in (parts.gather, parts.embeddings, parts.updater, parts.bags):
            m.d.comb += part.row_beats_log2.eq(job.row_beats_log2)
        for part in (parts.lookup, parts.gather, parts.bags):
            m.d.comb += part.indices.eq(job.indices)
        for part in (parts.lookup, parts.gather, parts.bags):
            m.d.comb += part.registers.eq(program.registers)
        return job

    def _samples(self, m: Module, parts: _Parts, job, platform) -> None:
        """Samples through the logger into the input buffer; the logger's image."""
        program, lookup, logger, image = parts.program, parts.lookup, parts.logger, parts.image
        wiring.connect(m, program.o_beats, lookup.i)
        wiring.connect(m, lookup.o_waves, logger.i)
        wiring.connect(m, self._cut(m, parts, platform, "answers", logger.o), lookup.i_answers)
        wiring.connect(m, self._cut(m, parts, platform, "looked_up", lookup.o), parts.classifier.i)
        wiring.connect(m, parts.classifier.o, parts.frames.i)
        wiring.connect(m, self._cut(m, parts, platform, "image", program.o_image_beats), image.i_beats)
        wiring.connect(m, image.o_beats, program.i_image_beats)
        wiring.connect(m, self._cut(m, parts, platform, "sets", image.o_image), logger.i_image)
        wiring.connect(m, image.o_ask, logger.i_ask)
        wiring.connect(m, logger.o_image, image.i_image)
        m.d.comb += [
            lookup.learn.eq(job.learn),
            lookup.begin.eq(program.begin),
            logger.clear.eq(program.clear),
            image.start_save.eq(program.start_save),
            image.start_load.eq(program.start_load),
            program.moved.eq(image.done),
            parts.frames.batch.eq(job.batch),
            parts.frames.flush.eq(program.flush),
            program.flushed.eq(parts.frames.flushed),
        ]

    def _mini_batches(self, m: Module, parts: _Parts, job, platform) -> None:
        """Frames to the dispatcher, or to the gatherer and then to the dispatcher."""
        frames, gather, dispatcher, doorbell = parts.frames, parts.gather, parts.dispatcher, parts.doorbell
        arguments = parts.frame.arguments
        wiring.connect(m, self._cut(m, parts, platform, "popular", frames.o_popular), dispatcher.i_popular)
        wiring.connect(m, frames.o_cold, gather.i)
        wiring.connect(m, gather.o_place, frames.i_read[1])
        wiring.connect(m, self._cut(m, parts, platform, "again", frames.o_read[1]), gather.i_beats)
        wiring.connect(m, gather.o_write, frames.i_write)
        wiring.connect(m, self._cut(m, parts, platform, "gathered", gather.o), dispatcher.i_gathered)
        wiring.connect(m, dispatcher.o_update, parts.updater.i)
        m.d.comb += [
            frames.free.eq(dispatcher.free),
            gather.sample_beats.eq(job.sample_beats),
            dispatcher.job.eq(job),
            dispatcher.start.eq(parts.program.train),
            dispatcher.mailbox_address.eq(arguments.mailbox),
            dispatcher.gradients.eq(arguments.gradients),
            dispatcher.finished.eq(doorbell.value),
            dispatcher.polled.eq(doorbell.polled),
            dispatcher.updated.eq(parts.updater.updated),
            doorbell.waiting.eq(dispatcher.urgent),
            doorbell.enable.eq(~dispatcher.idle & ~parts.frame.flush),
            doorbell.address.eq(arguments.result + 4 * HOTLINE.value("finished").word),
        ]

    def _rows(self, m: Module, parts: _Parts, job, platform) -> None:
        """Cold rows from memory, to the mailbox, and back with their updates."""
        gather, embeddings, updater, dispatcher = parts.gather, parts.embeddings, parts.updater, parts.dispatcher
        arguments = parts.frame.arguments
        wiring.connect(m, gather.o_requests, parts.row_reads.i_requests)
        wiring.connect(m, self._cut(m, parts, platform, "landing", parts.row_reads.o), embeddings.i_data)
        wiring.connect(m, gather.o_landing, embeddings.i_landing)
        for client, part in enumerate((dispatcher, updater, parts.bags)):
            wiring.connect(m, self._cut(m, parts, platform, f"query_{client}", part.o_query), gather.i_query[client])
            wiring.connect(m, gather.o_query[client], part.i_query)
        wiring.connect(m, updater.o_read, embeddings.i_read[1])
        wiring.connect(m, self._cut(m, parts, platform, "updated", embeddings.o_read[1]), updater.i_rows)
        wiring.connect(m, updater.o_write, embeddings.i_write)
        wiring.connect(m, updater.o_release, gather.i_release)
        connect_client(m, parts.row_writes, 0, self._cut(m, parts, platform, "row_requests", updater.o_write_requests),
                       updater.o_write_data)
        m.d.sync += updater.reads_wait.eq(gather.o_requests.valid & ~gather.o_requests.ready)
        m.d.comb += [
            gather.rows.eq(arguments.rows),
            gather.rows_beats.eq(arguments.rows_beats),
            gather.landed.eq(embeddings.landed),
            gather.released.eq(updater.done),
            updater.rate.eq(job.rate),
            updater.rows.eq(arguments.rows),
            updater.written.eq(parts.row_writes.done[0]),
            updater.not_written.eq(parts.row_writes.error[0]),
            # However a run ends, the mini-batch whose rows are updated is brought to its end.
            updater.hold.eq(parts.frame.ending),
            parts.frame.holds.eq(~updater.rests),
        ]

    def _pooled(self, m: Module, parts: _Parts, job, platform) -> None:
        """Vectors of pooled samples; whoever makes them has the dispatcher's place at both buffers meanwhile."""
        bags, dispatcher = parts.bags, parts.dispatcher
        wiring.connect(m, dispatcher.o_bags, bags.i)
        wiring.connect(m, self._cut(m, parts, platform, "vectors", bags.o), dispatcher.i_vectors)
        m.d.comb += bags.hot.eq(parts.frame.arguments.hot)
        m.d.comb += bags.sample_beats.eq(job.sample_beats)
        for name, asks, beats, mine, buffer in (
            ("beats", dispatcher.o_place, dispatcher.i_beats, (bags.o_place, bags.i_beats), parts.frames),
            ("rows", dispatcher.o_rows, dispatcher.i_rows, (bags.o_rows, bags.i_rows), parts.embeddings),
        ):
            ask = stream.Signature(asks.payload.shape()).create(path=(f"ask_{name}",))
            wiring.connect(m, self._cut(m, parts, platform, f"ask_{name}", ask), buffer.i_read[0])
            answer = self._cut(m, parts, platform, name, buffer.o_read[0])
            with m.If(bags.busy):
                wiring.connect(m, mine[0], wiring.flipped(ask))
                wiring.connect(m, answer, mine[1])
            with m.Else():
                wiring.connect(m, asks, wiring.flipped(ask))
                wiring.connect(m, answer, beats)

    def _count(self, m: Module, parts: _Parts) -> None:
        program, classifier, logger, gather = parts.program, parts.classifier, parts.logger, parts.gather
        dispatcher, updater, bags, frame = parts.dispatcher, parts.updater, parts.bags, parts.frame
        events = frame.events
        m.d.comb += [
            events.instructions.eq(program.finish),
            events.samples.eq(parts.lookup.samples),
            events.accesses.eq(logger.accesses),
            events.hits.eq(logger.hits),
            events.popular.eq(classifier.popular),
            events.batches_popular.eq(dispatcher.popular),
            events.batches_gathered.eq(dispatcher.gathered),
            events.batches_updated.eq(updater.done),
            events.dma_rd.eq(gather.miss),
            events.dma_wr.eq(updater.dma_wr),
            events.gpu_rd.eq(bags.gpu_rd),
            # Never both: what is pooled has been updated before.
            events.v_mul.eq(updater.v_mul | bags.v_mul),
            events.v_add.eq(updater.v_add | bags.v_add),
            events.shared.eq(gather.hit),
            events.stall_logger.eq(program.o_beats.valid & ~program.o_beats.ready),
            events.stall_frames.eq(parts.frames.waits),
            events.stall_mailbox.eq(dispatcher.stall_mailbox),
            events.stall_gather.eq(dispatcher.starved & ~gather.idle),
            *(frame.progress[name].eq(value) for name, value in zip(
                DISPATCHED, each(dispatcher.dispatched), strict=False)),
            frame.report_progress.eq(dispatcher.notify & ~frame.flush),
        ]

    def _run(self, m: Module, parts: _Parts) -> None:
        """From start to done."""
        frame, program, lookup, gather, dispatcher = (
            parts.frame, parts.program, parts.lookup, parts.gather, parts.dispatcher)
        at, refused = program.number, parts.updater.refused
        read_error, write_error = HOTLINE.code("READ_ERROR"), HOTLINE.code("WRITE_ERROR")
        report_first_fault(m, frame, [
            (program.error.valid, program.error.code, program.error.instruction, 0, 0, program.error.detail),
            (lookup.error.valid, HOTLINE.code("INDEX"), at, lookup.error.sample, lookup.error.position,
             lookup.error.value),
            (gather.error, HOTLINE.code("BOUNDS"), at, 0, 0, ROWS_BUFFER),
            (dispatcher.error.valid, HOTLINE.code("OVERRUN"), at, 0, 0, dispatcher.error.detail),
            *((failed, read_error, at, 0, 0, detail) for failed, detail in (
                (parts.doorbell.failed, BELL), (parts.updater.error, GRADIENTS), (parts.embeddings.error, ROWS),
                (parts.bags.error, HOT_ROWS))),
            *((failed, write_error, at, 0, 0, detail) for detail, failed in enumerate((
                parts.writes.error[MAILBOX] | parts.writes.error[IMAGE], parts.writes.error[STATUS]))),
            (refused.valid, write_error, at, 0, 0, Cat(refused.twice, Const(REFUSED >> 1, 7), refused.ordinal)),
            (parts.logger.error.valid, HOTLINE.code("MEMORY"), at, 0, 0, parts.logger.error.bank),
        ])
        lookup_idle = lookup.idle & ~parts.logger.busy & parts.classifier.idle
        idle = Signal()
        m.d.sync += idle.eq(lookup_idle & Cat(part.idle for part in (
            parts.frames, gather, parts.embeddings, dispatcher, parts.updater, parts.bags)).all())
        m.d.comb += [
            program.idle_lookup.eq(lookup_idle),
            program.idle.eq(idle),
            frame.over.eq(program.done),
            frame.at.eq(at),
            frame.host.waits.eq(dispatcher.waiting),
            frame.host.detail.eq(sum(each(dispatcher.completed))),
            frame.work.eq(dispatcher.advanced | Cat(
                o.valid & o.ready for client, o in enumerate(parts.reads.o) if client != BELL).any()),
        ]
