"""The Hotline core: a Vitis kernel that deals samples to a GPU in mini-batches and keeps the rows that are not hot."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring

from hw.axi.bus import attach
from hw.axi.port import ReadPort
from hw.axi.writer import WritePort, connect_client
from hw.hotline.bags import BagReader
from hw.hotline.classifier import Classifier
from hw.hotline.config import ROW_BEATS_LOG2_MAX, HotlineConfig
from hw.hotline.dispatch import Dispatcher
from hw.hotline.embeddings import EmbeddingBuffer
from hw.hotline.frames import InputBuffer
from hw.hotline.gather import Gather
from hw.hotline.image import ImageMover
from hw.hotline.logger import Logger
from hw.hotline.lookup import LookupArray
from hw.hotline.program import Program
from hw.hotline.update import Updater
from hw.isa import HOTLINE
from hw.kernel.doorbell import Doorbell
from hw.kernel.frame import Frame, kernel_ports, tell_first
from hw.place import place
from hw.stream import SkidBuffer

__all__ = ["HotlineCore"]

PROGRAM, INPUTS, BELL, GRADIENTS, HOT = range(5)    # clients of the first read port
ROWS, HOT_ROWS = 4, 5                               # details of READ_ERROR; the others are their clients' numbers
ROWS_BUFFER = 3                                     # detail of BOUNDS
MAILBOX, IMAGE, STATUS = range(3)                   # clients of the first write port
REFUSED = 2                                         # detail of WRITE_ERROR: rows; one more where twice


class HotlineCore(wiring.Component):
    """Learns which rows are hot, deals mini-batches of popular samples, gathers the rows of the others, updates them.

    Source: Hotline ch. 5 and 6, Fig. 6.1, table 6.1; EL-Rec §V.B (rows updated while they are prefetched)

    Parameters  config: HotlineConfig
    Members     s_axi_control  In(AXI4-Lite)  ap_ctrl_hs and the arguments of hw.isa.HOTLINE
                m00_axi        Out(AXI4)  program, samples, doorbell, gradients and hot rows; mini-batches, logger
                    images, result block
                m01_axi        Out(AXI4)  cold rows, read and written
                interrupt      Out
    Shapes      a program of instructions (hw.isa) over samples of whole beats -> mini-batches in the mailbox
    Timing      a beat of samples a cycle, as long as fewer than `waves` of them wait for the logger's answers; looking
                up, dealing, gathering and updating run side by side, instructions one after the other
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

    def key(self) -> str:
        return f"HotlineCore({self.config.key()})"

    def elaborate(self, platform):
        m = Module()
        self._parts(m, platform)
        self._program_ports(m, platform)
        self._samples(m, platform)
        self._mini_batches(m, platform)
        self._rows(m, platform)
        self._pooled(m, platform)
        self._count(m)
        self._run(m)
        wiring.connect(m, wiring.flipped(self.s_axi_control), self._frame.bus)
        attach(m, self.m00_axi, reader=self._reads.bus, writer=self._writes.bus)
        attach(m, self.m01_axi, reader=self._row_reads.bus, writer=self._row_writes.bus)
        m.d.comb += self.interrupt.eq(self._frame.interrupt)
        return m

    def _cut(self, m: Module, platform, name: str, source, reset=None):
        """The stream, from registers in both directions: what is behind the ready of one part and before the valid of
        the next are paths of their own. reset: the parts' flush, if it is no other."""
        skid = SkidBuffer(source.payload.shape())
        place(m, platform, f"cut_{name}", skid, reset=self._frame.flush if reset is None else reset)
        wiring.connect(m, source, skid.i)
        return skid.o

    def _parts(self, m: Module, platform) -> None:
        config, beat_bytes = self.config, self.config.beat_bytes
        in_flight = {"beat_bytes": beat_bytes, "outstanding": config.reads_in_flight}
        writes = {"beat_bytes": beat_bytes, "outstanding": config.writes_in_flight}
        lanes = config.lanes.bit_length()
        self._frame = Frame(kernel=HOTLINE, words=config.words, increments={"accesses": lanes, "hits": lanes},
                            finishes=True)
        self._reads = ReadPort(**in_flight, clients=(
            config.program_beats, config.input_beats, 1, config.row_read_beats, config.row_read_beats))
        self._writes = WritePort(**writes, clients=(
            config.output_beats, config.output_beats, self._frame.block_beats))
        self._row_reads = ReadPort(**in_flight, clients=(config.row_read_beats,))
        # A row is one request, whatever its length.
        self._row_writes = WritePort(**writes, clients=(max(config.output_beats, 1 << ROW_BEATS_LOG2_MAX),))
        self._program, self._doorbell = Program(config), Doorbell(beat_bytes=beat_bytes)
        self._lookup, self._logger, self._image = LookupArray(config), Logger(config), ImageMover(config)
        self._classifier, self._frames = Classifier(config), InputBuffer(config)
        self._gather, self._embeddings = Gather(config), EmbeddingBuffer(config)
        self._dispatcher, self._updater, self._bags = Dispatcher(config), Updater(config), BagReader(config)
        flush, ports = self._frame.flush, self._frame.clean
        for name, part, reset in (
            ("frame", self._frame, None),
            ("reads", self._reads, ports), ("writes", self._writes, ports),
            ("row_reads", self._row_reads, ports), ("row_writes", self._row_writes, ports),
            # Not "program", which is a word of SystemVerilog.
            ("front", self._program, flush), ("doorbell", self._doorbell, flush), ("lookup", self._lookup, flush),
            ("logger", self._logger, flush), ("image", self._image, flush), ("classifier", self._classifier, flush),
            ("input_buffer", self._frames, flush), ("gather", self._gather, flush),
            ("embeddings", self._embeddings, flush), ("dispatcher", self._dispatcher, flush),
            ("updater", self._updater, flush), ("bags", self._bags, flush),
        ):
            place(m, platform, name, part, reset=reset)
        self._ports = (self._reads, self._writes, self._row_reads, self._row_writes)
        m.d.comb += [port.stop.eq(self._frame.stop) for port in self._ports]

    def _program_ports(self, m: Module, platform) -> None:
        """What reads and writes go where; the job to whom it concerns."""
        program, reads, writes, arguments = self._program, self._reads, self._writes, self._frame.arguments
        for client, requests, beats in (
            (PROGRAM, program.o_requests, program.i), (INPUTS, program.o_input_requests, program.i_inputs),
            (BELL, self._doorbell.o_requests, self._doorbell.i),
            (GRADIENTS, self._updater.o_requests, self._updater.i_gradients),
            (HOT, self._bags.o_requests, self._bags.i_hot),
        ):
            wiring.connect(m, requests, reads.i_requests[client])
            wiring.connect(m, reads.o[client], beats)
        connect_client(m, writes, MAILBOX, self._cut(m, platform, "requests", self._dispatcher.o_requests),
                       self._cut(m, platform, "data", self._dispatcher.o_data))
        connect_client(m, writes, IMAGE, self._cut(m, platform, "image_requests", program.o_write_requests),
                       program.o_write_data)
        # The report is written while the parts are flushed.
        connect_client(m, writes, STATUS, self._cut(m, platform, "report", self._frame.o_requests, self._frame.clean),
                       self._frame.o_data)
        m.d.comb += [
            program.start.eq(self._frame.begin),
            program.arguments.eq(arguments),
            program.written.eq(writes.done[IMAGE]),
            self._frame.done.eq(writes.done[STATUS]),
        ]
        # Of mini-batches nothing is told from the first that could not be written on.
        failed = Signal()
        m.d.sync += failed.eq((failed | writes.error[MAILBOX]) & ~self._frame.flush)
        m.d.comb += self._dispatcher.written.eq(writes.done[MAILBOX] & ~writes.error[MAILBOX] & ~failed)
        # Registers, for what stands while an instruction is carried out reaches every part.
        job = Signal.like(program.job)
        m.d.sync += job.eq(program.job)
        self._job = job
        for part in (self._gather, self._embeddings, self._updater, self._bags):
            m.d.comb += part.row_beats_log2.eq(job.row_beats_log2)
        for part in (self._lookup, self._gather, self._bags):
            m.d.comb += part.indices.eq(job.indices)
        for part in (self._lookup, self._gather, self._bags):
            m.d.comb += part.registers.eq(program.registers)

    def _samples(self, m: Module, platform) -> None:
        """Samples through the logger into the input buffer; the logger's image."""
        program, lookup, logger, image = self._program, self._lookup, self._logger, self._image
        wiring.connect(m, program.o_beats, lookup.i)
        wiring.connect(m, lookup.o_waves, logger.i)
        wiring.connect(m, self._cut(m, platform, "answers", logger.o), lookup.i_answers)
        wiring.connect(m, self._cut(m, platform, "looked_up", lookup.o), self._classifier.i)
        wiring.connect(m, self._classifier.o, self._frames.i)
        wiring.connect(m, self._cut(m, platform, "image", program.o_image_beats), image.i_beats)
        wiring.connect(m, image.o_beats, program.i_image_beats)
        wiring.connect(m, self._cut(m, platform, "sets", image.o_image), logger.i_image)
        wiring.connect(m, image.o_ask, logger.i_ask)
        wiring.connect(m, logger.o_image, image.i_image)
        m.d.comb += [
            lookup.learn.eq(self._job.learn),
            lookup.begin.eq(program.begin),
            logger.clear.eq(program.clear),
            image.start_save.eq(program.start_save),
            image.start_load.eq(program.start_load),
            program.moved.eq(image.done),
            self._frames.batch.eq(self._job.batch),
            self._frames.flush.eq(program.flush),
            program.flushed.eq(self._frames.flushed),
        ]

    def _mini_batches(self, m: Module, platform) -> None:
        """Frames to the dispatcher, or to the gatherer and then to the dispatcher."""
        frames, gather, dispatcher, doorbell = self._frames, self._gather, self._dispatcher, self._doorbell
        arguments = self._frame.arguments
        wiring.connect(m, self._cut(m, platform, "popular", frames.o_popular), dispatcher.i_popular)
        wiring.connect(m, frames.o_cold, gather.i)
        wiring.connect(m, gather.o_place, frames.i_read[1])
        wiring.connect(m, self._cut(m, platform, "again", frames.o_read[1]), gather.i_beats)
        wiring.connect(m, gather.o_write, frames.i_write)
        wiring.connect(m, self._cut(m, platform, "gathered", gather.o), dispatcher.i_gathered)
        wiring.connect(m, dispatcher.o_update, self._updater.i)
        m.d.comb += [
            frames.free.eq(dispatcher.free),
            gather.sample_beats.eq(self._job.sample_beats),
            dispatcher.job.eq(self._job),
            dispatcher.start.eq(self._program.train),
            dispatcher.to.eq(arguments.mailbox),
            dispatcher.gradients.eq(arguments.gradients),
            dispatcher.timeout.eq(arguments.timeout),
            dispatcher.finished.eq(doorbell.value),
            dispatcher.polled.eq(doorbell.polled),
            dispatcher.updated.eq(self._updater.updated),
            doorbell.waiting.eq(dispatcher.waiting),
            doorbell.enable.eq(~dispatcher.idle & ~self._frame.flush),
            doorbell.address.eq(arguments.result + 4 * HOTLINE.value("finished").word),
        ]

    def _rows(self, m: Module, platform) -> None:
        """Cold rows from memory, to the mailbox, and back with their updates."""
        gather, embeddings, updater, dispatcher = self._gather, self._embeddings, self._updater, self._dispatcher
        arguments = self._frame.arguments
        wiring.connect(m, gather.o_requests, self._row_reads.i_requests[0])
        wiring.connect(m, self._row_reads.o[0], embeddings.i_data)
        wiring.connect(m, gather.o_landing, embeddings.i_landing)
        for client, part in enumerate((dispatcher, updater, self._bags)):
            wiring.connect(m, self._cut(m, platform, f"query_{client}", part.o_query), gather.i_query[client])
            wiring.connect(m, gather.o_query[client], part.i_query)
        wiring.connect(m, updater.o_read, embeddings.i_read[1])
        wiring.connect(m, self._cut(m, platform, "updated", embeddings.o_read[1]), updater.i_rows)
        wiring.connect(m, updater.o_write, embeddings.i_write)
        wiring.connect(m, updater.o_release, gather.i_release)
        connect_client(m, self._row_writes, 0, self._cut(m, platform, "row_requests", updater.o_write_requests),
                       updater.o_write_data)
        m.d.comb += [
            gather.rows.eq(arguments.rows),
            gather.rows_beats.eq(arguments.rows_beats),
            gather.landed.eq(embeddings.landed),
            gather.released.eq(updater.done),
            updater.rate.eq(self._job.rate),
            updater.rows.eq(arguments.rows),
            updater.written.eq(self._row_writes.done[0]),
            updater.not_written.eq(self._row_writes.error[0]),
            # However a run ends, the mini-batch whose rows are updated is brought to its end.
            updater.hold.eq(self._frame.ending),
            self._frame.holds.eq(~updater.rests),
        ]

    def _pooled(self, m: Module, platform) -> None:
        """Vectors of pooled samples; whoever makes them has the dispatcher's place at both buffers meanwhile."""
        bags, dispatcher = self._bags, self._dispatcher
        wiring.connect(m, dispatcher.o_bags, bags.i)
        wiring.connect(m, self._cut(m, platform, "vectors", bags.o), dispatcher.i_vectors)
        m.d.comb += bags.hot.eq(self._frame.arguments.hot)
        m.d.comb += bags.sample_beats.eq(self._job.sample_beats)
        for name, asks, beats, mine, buffer in (
            ("beats", dispatcher.o_place, dispatcher.i_beats, (bags.o_place, bags.i_beats), self._frames),
            ("rows", dispatcher.o_rows, dispatcher.i_rows, (bags.o_rows, bags.i_rows), self._embeddings),
        ):
            ask = stream.Signature(asks.payload.shape()).create(path=(f"ask_{name}",))
            wiring.connect(m, self._cut(m, platform, f"ask_{name}", ask), buffer.i_read[0])
            answer = self._cut(m, platform, name, buffer.o_read[0])
            with m.If(bags.busy):
                wiring.connect(m, mine[0], wiring.flipped(ask))
                wiring.connect(m, answer, mine[1])
            with m.Else():
                wiring.connect(m, asks, wiring.flipped(ask))
                wiring.connect(m, answer, beats)

    def _count(self, m: Module) -> None:
        program, classifier, logger, gather = self._program, self._classifier, self._logger, self._gather
        dispatcher, updater, bags, frame = self._dispatcher, self._updater, self._bags, self._frame
        events = frame.events
        m.d.comb += [
            events.instructions.eq(program.finish),
            events.samples.eq(self._lookup.samples),
            events.accesses.eq(logger.accesses),
            events.hits.eq(logger.hits),
            events.popular.eq(classifier.popular),
            events.batches_popular.eq(dispatcher.popular),
            events.batches_gathered.eq(dispatcher.gathered),
            events.batches_updated.eq(updater.done),
            events.dma_rd.eq(gather.fresh),
            events.dma_wr.eq(updater.dma_wr),
            events.gpu_rd.eq(bags.gpu_rd),
            # Never both: what is pooled has been updated before.
            events.v_mul.eq(updater.v_mul | bags.v_mul),
            events.v_add.eq(updater.v_add | bags.v_add),
            events.shared.eq(gather.shared),
            events.stall_logger.eq(program.o_beats.valid & ~program.o_beats.ready),
            events.stall_frames.eq(self._frames.waits),
            events.stall_mailbox.eq(dispatcher.stall_mailbox),
            events.stall_gather.eq(dispatcher.hungry & ~gather.idle),
            frame.progress.dealt.eq(dispatcher.dealt),
            frame.tell.eq(dispatcher.tell & ~frame.flush),
        ]

    def _run(self, m: Module) -> None:
        """From start to done."""
        frame, program, lookup, gather, dispatcher = (
            self._frame, self._program, self._lookup, self._gather, self._dispatcher)
        at, refused = program.number, self._updater.refused
        read_error, write_error = HOTLINE.code("READ_ERROR"), HOTLINE.code("WRITE_ERROR")
        tell_first(m, frame, [
            (program.error.valid, program.error.code, program.error.instruction, 0, 0, program.error.detail),
            (lookup.error.valid, HOTLINE.code("INDEX"), at, lookup.error.sample, lookup.error.position,
             lookup.error.value),
            (gather.error, HOTLINE.code("BOUNDS"), at, 0, 0, ROWS_BUFFER),
            (dispatcher.error.valid, dispatcher.error.code, at, 0, 0, dispatcher.error.detail),
            *((failed, read_error, at, 0, 0, detail) for failed, detail in (
                (self._doorbell.failed, BELL), (self._updater.error, GRADIENTS), (self._embeddings.error, ROWS),
                (self._bags.error, HOT_ROWS))),
            *((failed, write_error, at, 0, 0, detail) for detail, failed in enumerate((
                self._writes.error[MAILBOX] | self._writes.error[IMAGE], self._writes.error[STATUS]))),
            (refused.valid, write_error, at, 0, 0, Cat(refused.twice, Const(REFUSED >> 1, 7), refused.ordinal)),
            (self._logger.error.valid, HOTLINE.code("MEMORY"), at, 0, 0, self._logger.error.bank),
        ])
        lookup_idle = lookup.idle & ~self._logger.busy & self._classifier.idle
        idle = Signal()
        m.d.sync += idle.eq(lookup_idle & Cat(part.idle for part in (
            self._frames, gather, self._embeddings, dispatcher, self._updater, self._bags)).all())
        m.d.comb += [
            program.idle_lookup.eq(lookup_idle),
            program.idle.eq(idle),
            frame.over.eq(program.done),
            frame.at.eq(at),
            frame.quiet.eq(Cat(port.idle for port in self._ports).all()),
        ]
