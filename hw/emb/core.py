"""The EMB core: a Vitis kernel that pools embedding bags from card memory, tensor trains and the SSD."""

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring

from hw.axi.bus import attach, request_layout
from hw.axi.port import ReadPort
from hw.axi.reader import Reader
from hw.axi.writer import WritePort, connect_client
from hw.emb.config import EmbConfig
from hw.emb.finish import Finish, partial_layout
from hw.emb.front import Front
from hw.emb.landing import TierArbiter
from hw.emb.pooling import PoolingUnit
from hw.emb.regions import CLIENTS
from hw.emb.rows import RowFetch
from hw.isa import EMB
from hw.kernel.doorbell import Doorbell
from hw.kernel.frame import Frame, kernel_ports, tell_first
from hw.place import place
from hw.queue import BlockQueue
from hw.stream import SkidBuffer
from hw.tt.sums import sum_layout
from hw.tt.unit import TTUnit

__all__ = ["EmbCore"]

DOORBELL = len(CLIENTS)         # client of the read port
OUTPUTS, COPIES, STATUS = range(3)  # clients of the write port
ROWS, HOST = 2, 3               # detail of READ_ERROR
TT_COUNTS = {"tt_computed": "computed", "tt_reused": "reused", "tt_slots": "slots", "corrected": "corrected",
             "uncorrectable": "uncorrectable"}
TT_COUNT_BITS = 4               # more than any of them grows in a cycle


class EmbCore(wiring.Component):
    """Pools bags of rows from three memories at once: card DRAM, tensor trains on chip, the SSD by way of a ring.

    o[bag] = pool over its indices of row(index), sum, mean or max, with a weight an index.
    Source: SCRec §III.D (remapped indices), §III.E, Fig. 7a; SCARS §II.A (coalescing)

    Parameters  config: EmbConfig
    Members     s_axi_control  In(AXI4-Lite)  ap_ctrl_hs and the arguments of hw.isa.EMB
                m00_axi        Out(AXI4)  program, lengths, indices, weights, load images, doorbell; results, cache
                    fills, result block
                m01_axi        Out(AXI4)  rows, reads only
                interrupt      Out
    Shapes      a program of instructions (hw.isa) over arenas in card memory -> a vector of whole beats a bag
    Timing      per cycle at most: one index in, one beat of rows (m01), one row of a tensor train at D = 64, R = 4,
                one beat of results; the tiers run side by side, the slowest sets the pace
    Numerics    golden.emb.core; bit-exact
    Faults      the first error ends the run: no more bursts begin, those under way end, nothing is written outside
                the outputs, and the result block names the cause and the place. The next run starts clean; tables
                in the tensor-train unit stay
    Reset       everything but the contents of the tensor-train unit; only with the bus
    Raises      ValueError: see EmbConfig
    Golden      golden.emb.core          Tests  verif/emb/test_core.py, tests/fpga/card/test_card_emb.py
    """

    kernel = EMB

    def __init__(self, config: EmbConfig):
        self.config = config
        super().__init__(kernel_ports(config.beat_bytes))

    def key(self) -> str:
        return f"EmbCore({self.config.key()})"

    def elaborate(self, platform):
        m = Module()
        self._parts(m, platform)
        self._rows(m)
        self._tensor_trains(m)
        self._results(m)
        self._doorbell(m)
        self._count(m)
        self._run(m)

        frame = self._frame
        wiring.connect(m, wiring.flipped(self.s_axi_control), frame.bus)
        attach(m, self.m00_axi, reader=self._reads.bus, writer=self._writes.bus)
        attach(m, self.m01_axi, reader=self._rows_port.bus)
        m.d.comb += self.interrupt.eq(frame.interrupt)
        m.d.comb += self._front.arguments.eq(frame.arguments)
        for at in range(len(CLIENTS)):
            wiring.connect(m, self._front.o_requests[at], self._reads.i_requests[at])
            wiring.connect(m, self._reads.o[at], self._front.i[at])
        return m

    def _parts(self, m: Module, platform) -> None:
        config = self.config
        beat_bytes = config.beat_bytes
        sizes = {"row_beats_max": config.row_beats_max}

        beats_bits = config.row_beats_max.bit_length() + config.beat_log2
        self._frame = Frame(kernel=EMB, words=config.words, increments={
            "tt_bytes": beats_bits, **dict.fromkeys(("dram_bytes", "ssd_bytes"), config.beat_log2 + 1),
            **dict.fromkeys(TT_COUNTS, TT_COUNT_BITS)})
        self._reads = ReadPort(
            beat_bytes=beat_bytes, outstanding=config.reads_in_flight,
            clients=(config.program_beats, *[config.input_beats] * (len(CLIENTS) - 1), 1))
        self._writes = WritePort(
            beat_bytes=beat_bytes, outstanding=config.writes_in_flight,
            clients=(config.output_beats, config.output_beats, self._frame.block_beats))
        self._rows_port = Reader(beat_bytes=beat_bytes, outstanding=config.rows_in_flight)
        self._front = Front(config)
        self._arbiter = TierArbiter(partial_beats=config.partial_beats, copy_beats=config.output_beats, **sizes)
        self._fetch = RowFetch(words=config.words, window_beats=config.window_beats, window_sets=config.window_sets,
                               delivery_rows=config.delivery_rows, **sizes)
        self._pool = PoolingUnit(words=config.words, contexts_log2=1 + config.context_log2, tag_bits=2)
        self._tt = TTUnit(config.tt)
        self._finish = Finish(config)
        self._bell = Doorbell(beat_bytes=beat_bytes, bits=len(self._arbiter.filled))

        flush, ports = self._frame.flush, self._frame.clean
        self._flush = flush
        for name, part, reset in (
            ("frame", self._frame, None),
            ("reads", self._reads, ports), ("writes", self._writes, ports), ("rows_port", self._rows_port, ports),
            ("front", self._front, flush), ("arbiter", self._arbiter, flush), ("fetch", self._fetch, flush),
            ("pool", self._pool, flush), ("post_pool", self._finish, flush), ("doorbell", self._bell, flush),
            # Tables that changed: products of the old ones are forgotten.
            ("tt", self._tt, flush | self._front.flush_tt),
        ):
            place(m, platform, name, part, reset=reset)
        m.d.comb += [port.stop.eq(self._frame.stop) for port in (self._reads, self._writes, self._rows_port)]

    def _rows(self, m: Module) -> None:
        """Rows of card memory and of the ring, up to their tiers' partial vectors."""
        config, front, arbiter, fetch = self.config, self._front, self._arbiter, self._fetch
        pool, finish = self._pool, self._finish
        arguments = self._frame.arguments
        wiring.connect(m, front.o_dram, arbiter.i_dram)
        wiring.connect(m, front.o_ssd, arbiter.i_ssd)
        wiring.connect(m, arbiter.o, fetch.i)
        wiring.connect(m, fetch.o_requests, self._rows_port.i_requests)
        m.d.comb += [
            fetch.i_data.valid.eq(self._rows_port.o.valid),
            fetch.i_data.payload.eq(self._rows_port.o.payload),
            self._rows_port.o.ready.eq(1),
            fetch.rows.eq(arguments.rows),
            fetch.ring.eq(arguments.ring),
            fetch.flush_window.eq(front.flush_window),
            arbiter.ring_beats.eq(arguments.ring_beats),
            arbiter.timeout.eq(arguments.timeout),
            arbiter.released.eq(front.released),
            arbiter.copy_written.eq(self._writes.done[COPIES]),
            pool.i_valid.eq(fetch.o_valid),
            pool.i.eq(fetch.o.as_value()),
        ]
        tag = Signal(self._fetch.o.tag.shape())
        m.d.comb += tag.eq(pool.o.tag)
        for number, (name, to) in enumerate((("dram", finish.i_dram), ("ssd", finish.i_ssd))):
            # Room was made before the row was fetched: the queue cannot be full.
            queue = BlockQueue(partial_layout(config), depth=config.partial_beats)
            m.submodules[f"{name}_partials"] = self._flushed(queue)
            m.d.comb += [
                queue.i.valid.eq(pool.o_valid & (tag.tier == number)),
                queue.i.payload.words.eq(pool.o.words),
                queue.i.payload.error.eq(tag.error),
                getattr(arbiter, f"{name}_returned").eq(to.valid & to.ready),
            ]
            wiring.connect(m, queue.o, to)

    def _flushed(self, part):
        """A part in line, with the core's flush."""
        return ResetInserter(self._flush)(part)

    def _tensor_trains(self, m: Module) -> None:
        front, tt = self._front, self._tt
        wiring.connect(m, front.o_lookups, tt.i_lookups)
        wiring.connect(m, front.o_load, tt.i_load)
        # Registers both ways between two parts whose own paths end at their ports.
        vectors = SkidBuffer(sum_layout(self.config.tt))
        m.submodules.vectors = self._flushed(vectors)
        wiring.connect(m, tt.o_vectors, vectors.i)
        wiring.connect(m, vectors.o, self._finish.i_tt)

    def _results(self, m: Module) -> None:
        """Vectors, cache fills and the blocks out."""
        front, finish, writes, fetch = self._front, self._finish, self._writes, self._fetch
        frame = self._frame
        wiring.connect(m, front.o_steps, finish.i_steps)
        # The request's address is the end of an adder, and the port compares it with what it holds.
        requests = SkidBuffer(request_layout())
        m.submodules.requests = self._flushed(requests)
        wiring.connect(m, finish.o_requests, requests.i)
        connect_client(m, writes, OUTPUTS, requests.o, finish.o_data)
        connect_client(m, writes, STATUS, frame.o_requests, frame.o_data)
        copies = SkidBuffer(request_layout())
        m.submodules.copies = self._flushed(copies)
        wiring.connect(m, front.o_copies, copies.i)
        wiring.connect(m, copies.o, writes.i_requests[COPIES])
        m.d.comb += [
            finish.outputs.eq(self._frame.arguments.outputs),
            finish.written.eq(writes.done[OUTPUTS]),
            # The arbiter keeps account of the queue behind.
            writes.i_data[COPIES].valid.eq(fetch.copy_valid),
            writes.i_data[COPIES].payload.data.eq(fetch.o_copy.data),
            front.bags_done.eq(finish.instruction_done),
            front.row_done.eq(writes.done[COPIES]),
            frame.done.eq(writes.done[STATUS]),
            frame.progress.released.eq(front.released),
            frame.progress.instructions_done.eq(front.finished),
        ]
        tell = Signal()
        m.d.sync += tell.eq(front.finish)
        m.d.comb += frame.tell.eq(tell & ~self._flush)

    def _doorbell(self, m: Module) -> None:
        """Looks how far the host has filled the ring: now and then, and often while a row is waited for."""
        arbiter, reads, arguments = self._arbiter, self._reads, self._frame.arguments
        doorbell = self._bell
        wiring.connect(m, doorbell.o_requests, reads.i_requests[DOORBELL])
        wiring.connect(m, reads.o[DOORBELL], doorbell.i)
        ring = Signal()
        m.d.sync += ring.eq(arguments.ring_beats != 0)
        m.d.comb += [
            doorbell.enable.eq(ring),
            doorbell.waiting.eq(arbiter.waiting),
            doorbell.address.eq(arguments.result + 4 * EMB.value("filled").word),
            arbiter.filled.eq(doorbell.value),
            arbiter.polled.eq(doorbell.polled),
        ]

    def _count(self, m: Module) -> None:
        front, fetch, tt, events = self._front, self._fetch, self._tt, self._frame.events
        row, moved = front.row, fetch.events
        beat = self.config.beat_bytes
        beats = Signal(range(self.config.row_beats_max + 1))
        m.d.sync += beats.eq(Mux(row.tt, row.beats + 1, 0))
        m.d.comb += [
            events.instructions.eq(front.finish),
            events.bags.eq(self._finish.done),
            events.indices.eq(row.index),
            events.dram_rows.eq(moved.dram_row),
            events.dram_bytes.eq(Mux(moved.dram_beat, beat, 0)),
            events.ssd_rows.eq(moved.ssd_row),
            events.ssd_bytes.eq(Mux(moved.ssd_beat, beat, 0)),
            events.tt_rows.eq(row.tt),
            events.tt_bytes.eq(Cat(Const(0, self.config.beat_log2), beats)),
            events.coalesced_rows.eq(moved.shared_row),
            events.beats_fetched.eq(moved.fetched),
            events.cache_fills.eq(self._writes.done[COPIES]),
        ]
        for name in ("dram", "tt", "ssd", "write", "feeder"):
            m.d.comb += events[f"stall_{name}"].eq(front.stall[name] & ~self._flush)
        # The unit tells totals since its reset; what they have grown by is counted on.
        for name, total in TT_COUNTS.items():
            before, grown = Signal(TT_COUNT_BITS, name=f"{name}_before"), Signal(TT_COUNT_BITS, name=f"{name}_grown")
            now = tt.counters[total][:TT_COUNT_BITS]
            m.d.sync += before.eq(now)
            m.d.sync += grown.eq(now - before)
            with m.If(self._flush | front.flush_tt):
                m.d.sync += before.eq(0)
                m.d.sync += grown.eq(0)
            m.d.comb += events[name].eq(grown)

    def _run(self, m: Module) -> None:
        """From start to done."""
        frame, writes = self._frame, self._writes
        front, finish, arbiter = self._front, self._finish, self._arbiter
        # Of the port's clients; the run control keeps the final report's out, which could not be told any more.
        unwritten = writes.error[OUTPUTS] | writes.error[COPIES] | writes.error[STATUS]
        tell_first(m, frame, (
            (front.error.valid, front.error.code, front.error.instruction, front.error.bag, front.error.index,
             front.error.detail),
            (finish.fault_valid, finish.fault.code, finish.fault.instruction, finish.fault.bag, 0,
             Mux(finish.fault.code == EMB.code("READ_ERROR"), ROWS, 0)),
            (self._fetch.copy_valid & self._fetch.o_copy.error, EMB.code("READ_ERROR"), front.finished, 0, 0, ROWS),
            (unwritten, EMB.code("WRITE_ERROR"), front.finished, 0, 0,
             Cat(writes.error[COPIES], writes.error[STATUS])),
            (self._bell.failed, EMB.code("READ_ERROR"), front.finished, 0, 0, HOST),
            (arbiter.timed_out, EMB.code("TIMEOUT"), front.finished, 0, 0, arbiter.position),
            (arbiter.overflow, EMB.code("RING_OVERFLOW"), front.finished, 0, 0, arbiter.filled),
        ))
        ports = (self._reads, self._writes, self._rows_port)
        m.d.comb += [
            frame.over.eq(front.done),
            frame.at.eq(front.finished),
            front.start.eq(frame.begin),
            frame.quiet.eq(Cat(port.idle for port in ports).all()),
        ]
