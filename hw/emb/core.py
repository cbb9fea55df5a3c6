"""The EMB core: a Vitis kernel that pools embedding bags from card memory, tensor trains and the SSD."""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring

from hw.axi.bus import attach, request_layout
from hw.axi.port import ReadPort
from hw.axi.reader import Reader
from hw.axi.writer import WritePort, connect_client
from hw.emb.config import EmbConfig
from hw.emb.front import Front
from hw.emb.landing import TierArbiter
from hw.emb.pooling import PoolingUnit
from hw.emb.post_pool import PostPool, partial_layout
from hw.emb.regions import CLIENTS
from hw.emb.row_decoder import RowDecoder
from hw.emb.rows import RowFetch
from hw.emb.tokens import POSITION_BITS
from hw.isa import EMB
from hw.kernel.doorbell import Doorbell
from hw.kernel.shell import KernelShell, connect_ports, kernel_ports, report_first_fault
from hw.place import Part, place
from hw.stream.fifo import Fifo, mask_of
from hw.stream.skid_buffer import SkidBuffer
from hw.tt.sums import sum_layout
from hw.tt.unit import TTUnit

DOORBELL = len(CLIENTS)         # client of the read port
OUTPUTS, COPIES, STATUS = range(3)  # clients of the write port
ROWS, HOST = 2, 3               # detail of READ_ERROR
TT_COUNTS = {"tt_computed": "computed", "tt_reused": "reused", "tt_slots": "slots", "corrected": "corrected",
             "uncorrectable": "uncorrectable"}
TT_COUNT_BITS = 4               # more than any of them grows in a cycle


class _Parts(NamedTuple):
    """The parts of the core."""

    frame: KernelShell
    reads: ReadPort
    writes: WritePort
    rows_port: Reader
    front: Front
    arbiter: TierArbiter
    fetch: RowFetch
    decoder: RowDecoder
    pool: PoolingUnit
    finish: PostPool
    tt: TTUnit
    bell: Doorbell
    flush: Signal
    flush_tt: Signal


class EmbCore(Part):
    """Pools bags of rows from three memories at once: card DRAM, tensor trains on chip, the SSD by way of a ring.

    o[bag] = pool over its indices of row(index), sum, mean or max, with a weight an index.
    Source: SCRec §III.D (remapped indices), §III.E, Fig. 7a; SCARS §II.A (coalescing)

    Parameters  config: EmbConfig
    Members     s_axi_control  In(AXI4-Lite)  ap_ctrl_hs and the arguments of hw.isa.EMB
                m00_axi        Out(AXI4)  program, lengths, indices, weights, load images, doorbell; results, cache
                    fills, result block
                m01_axi        Out(AXI4)  rows, reads only
                interrupt      Out
    Shapes      a program of instructions (hw.isa) over arenas in card memory -> a vector of whole beats per bag
    Timing      per cycle at most: one index in, or a pair of one of a tensor train and one of another memory; one
                beat of rows (m01), one row of a tensor train at D = 64, R = 4, one beat of results; the tiers run side
                by side, the slowest sets the pace
    Numerics    golden.emb.core; bit-exact
    Faults      the first error ends the run: no more bursts begin, those under way end, nothing is written outside
                the outputs, and the result block names the cause and the place. The next run starts clean; tables
                in the tensor-train unit stay
    Reset       everything but the contents of the tensor-train unit; only with the bus
    Raises      ValueError: see EmbConfig
    Golden      golden.emb.core          Tests  tests/fpga/card/test_card_emb.py, test_card_faults.py
    """

    kernel = EMB

    def __init__(self, config: EmbConfig):
        self.config = config
        super().__init__(kernel_ports(config.beat_bytes))

    def elaborate(self, platform):
        m = Module()
        parts = self._parts(m, platform)
        self._rows(m, parts)
        self._tensor_trains(m, parts)
        self._results(m, parts)
        self._doorbell(m, parts)
        self._count(m, parts)
        self._run(m, parts)

        frame = parts.frame
        wiring.connect(m, wiring.flipped(self.s_axi_control), frame.bus)
        attach(m, self.m00_axi, reader=parts.reads.bus, writer=parts.writes.bus)
        attach(m, self.m01_axi, reader=parts.rows_port.bus)
        m.d.comb += self.interrupt.eq(frame.interrupt)
        m.d.comb += parts.front.arguments.eq(frame.arguments)
        for at in range(len(CLIENTS)):
            wiring.connect(m, parts.front.o_requests[at], parts.reads.i_requests[at])
            wiring.connect(m, parts.reads.o[at], parts.front.i[at])
        return m

    def _parts(self, m: Module, platform) -> _Parts:
        config = self.config
        beat_bytes = config.beat_bytes
        sizes = {"row_beats_max": config.row_beats_max}

        beats_bits = config.row_beats_max.bit_length() + config.beat_log2
        finish = PostPool(config)
        frame = KernelShell(kernel=EMB, config=config, words=config.words, increments={
            "tt_bytes": beats_bits, "indices": 2, "bags": len(finish.done), "dram_bytes": config.beat_log2 + 1,
            "ssd_bytes": config.beat_log2 + 1, **dict.fromkeys(TT_COUNTS, TT_COUNT_BITS)})
        # The device bits of all indices say whether two are taken as one.
        devices = sum(0b11 << at for at in range(POSITION_BITS, 32 * config.words, 32))
        reads = ReadPort(
            beat_bytes=beat_bytes, outstanding=config.reads_in_flight,
            clients=(config.program_beats, *[config.input_beats] * (len(CLIENTS) - 1), 1),
            quick=tuple(devices * (name == "indices") for name in (*CLIENTS, "doorbell")))
        writes = WritePort(
            beat_bytes=beat_bytes, outstanding=config.writes_in_flight,
            clients=(config.output_beats, config.output_beats, frame.block_beats))
        rows_port = Reader(beat_bytes=beat_bytes, outstanding=config.rows_in_flight)
        front = Front(config)
        arbiter = TierArbiter(partial_beats=config.partial_beats, copy_beats=config.output_beats, **sizes)
        fetch = RowFetch(words=config.words, window_beats=config.window_beats, window_sets=config.window_sets,
                         delivery_rows=config.delivery_rows, stripe_beats=config.stripe_beats,
                         banks=config.banks, decoder_latency=RowDecoder.latency, **sizes)
        decoder = RowDecoder(words=config.words, lut_products=config.lut_products, **sizes)
        pool = PoolingUnit(words=config.words, contexts_log2=1 + config.context_log2, tag_bits=2,
                           lut_products=config.lut_products, family=config.tt.family)
        tt = TTUnit(config.tt)
        bell = Doorbell(beat_bytes=beat_bytes, bits=len(arbiter.filled))

        flush, ports = frame.flush, frame.clean
        # Tables that changed: products of the old ones are forgotten. From a register, since it goes far.
        flush_tt = Signal(name="flush_tt", init=1)
        m.d.sync += flush_tt.eq(flush | front.flush_tt)
        for name, part, reset in (
            ("frame", frame, None),
            ("reads", reads, ports), ("writes", writes, frame.clean_report),
            ("rows_port", rows_port, ports),
            ("front", front, flush), ("arbiter", arbiter, flush), ("fetch", fetch, flush),
            ("decoder", decoder, flush),
            ("pool", pool, flush), ("post_pool", finish, flush), ("doorbell", bell, flush),
            ("tt", tt, flush_tt),
        ):
            place(m, platform, name, part, reset=reset, alone=reset is not None)
        connect_ports(m, frame, (reads, writes, rows_port), writes)
        return _Parts(
            frame=frame, reads=reads, writes=writes, rows_port=rows_port, front=front, arbiter=arbiter, fetch=fetch,
            decoder=decoder, pool=pool, finish=finish, tt=tt, bell=bell, flush=flush, flush_tt=flush_tt)

    def _rows(self, m: Module, parts: _Parts) -> None:
        """Rows of card memory and of the ring, up to their tiers' partial vectors."""
        config, front, arbiter, fetch = self.config, parts.front, parts.arbiter, parts.fetch
        decoder, pool, finish = parts.decoder, parts.pool, parts.finish
        arguments = parts.frame.arguments
        wiring.connect(m, front.o_dram, arbiter.i_dram)
        wiring.connect(m, front.o_ssd, arbiter.i_ssd)
        wiring.connect(m, arbiter.o, fetch.i)
        wiring.connect(m, fetch.o_requests, parts.rows_port.i_requests)
        m.d.comb += [
            fetch.i_data.valid.eq(parts.rows_port.o.valid),
            fetch.i_data.payload.eq(parts.rows_port.o.payload),
            parts.rows_port.o.ready.eq(1),
            fetch.rows.eq(arguments.rows),
            fetch.ring.eq(arguments.ring),
            fetch.flush_window.eq(front.flush_window),
            arbiter.ring_beats.eq(arguments.ring_beats),
            arbiter.released.eq(front.released),
            arbiter.copy_written.eq(front.row_done),
            decoder.i_valid.eq(fetch.o_valid),
            decoder.i.eq(fetch.o),
            pool.i_valid.eq(decoder.o_valid),
            pool.i.eq(decoder.o.as_value()),
        ]
        tag = Signal(parts.fetch.o.tag.shape())
        m.d.comb += tag.eq(pool.o.tag)
        for number, (name, to) in enumerate((("dram", finish.i_dram), ("ssd", finish.i_ssd))):
            # Room was made before the row was fetched: the queue cannot be full.
            layout = partial_layout(config)
            queue = Fifo(layout, depth=config.partial_beats, block=True, quick=mask_of(layout, "error"))
            m.submodules[f"{name}_partials"] = self._flushed(parts, queue)
            m.d.comb += [
                queue.i.valid.eq(pool.o_valid & (tag.tier == number)),
                queue.i.payload.words.eq(pool.o.words),
                queue.i.payload.error.eq(tag.error),
                getattr(arbiter, f"{name}_returned").eq(to.ready),    # only when a beat is there
            ]
            wiring.connect(m, queue.o, to)

    def _flushed(self, parts, part):
        """A part in line, with the core's flush."""
        return ResetInserter(parts.flush)(part)

    def _tensor_trains(self, m: Module, parts: _Parts) -> None:
        front, tt = parts.front, parts.tt
        wiring.connect(m, front.o_lookups, tt.i_lookups)
        wiring.connect(m, front.o_load, tt.i_load)
        # Registers both ways between two parts whose own paths end at their ports.
        vectors = SkidBuffer(sum_layout(self.config.tt))
        m.submodules.vectors = self._flushed(parts, vectors)
        wiring.connect(m, tt.o_vectors, vectors.i)
        wiring.connect(m, vectors.o, parts.finish.i_tt)

    def _results(self, m: Module, parts: _Parts) -> None:
        """Vectors, cache fills and the blocks out."""
        front, finish, writes, fetch = parts.front, parts.finish, parts.writes, parts.fetch
        frame = parts.frame
        wiring.connect(m, front.o_steps, finish.i_steps)
        # The request's address is the end of an adder, and the port compares it with what it holds.
        requests = SkidBuffer(request_layout())
        m.submodules.requests = self._flushed(parts, requests)
        wiring.connect(m, finish.o_requests, requests.i)
        connect_client(m, writes, OUTPUTS, requests.o, finish.o_data)
        connect_client(m, writes, STATUS, frame.o_requests, frame.o_data)
        copies = SkidBuffer(request_layout())
        m.submodules.copies = self._flushed(parts, copies)
        wiring.connect(m, front.o_copies, copies.i)
        wiring.connect(m, copies.o, writes.i_requests[COPIES])
        m.d.comb += [
            finish.outputs.eq(parts.frame.arguments.outputs),
            finish.written.eq(writes.done[OUTPUTS]),
            # The arbiter keeps account of the queue behind.
            writes.i_data[COPIES].valid.eq(fetch.copy_valid),
            writes.i_data[COPIES].payload.data.eq(fetch.o_copy.data),
            front.bags_done.eq(finish.instruction_done),
            front.copy_done.eq(writes.done[COPIES]),
            frame.done.eq(writes.done[STATUS]),
            frame.progress.released.eq(front.released),
            frame.progress.instructions_done.eq(front.finished),
        ]
        finished = Signal()         # an instruction has
        m.d.sync += finished.eq(front.finish)
        m.d.comb += frame.report_progress.eq(finished & ~parts.flush)

    def _doorbell(self, m: Module, parts: _Parts) -> None:
        """Looks how far the host has filled the ring: now and then, and often while a row is waited for."""
        arbiter, reads, arguments = parts.arbiter, parts.reads, parts.frame.arguments
        doorbell = parts.bell
        wiring.connect(m, doorbell.o_requests, reads.i_requests[DOORBELL])
        wiring.connect(m, reads.o[DOORBELL], doorbell.i)
        # Where the run begins stands in `released` until an instruction finishes; the host may fill from its start on.
        ring = Signal()
        begun = Signal(name="ring_begun")
        m.d.sync += ring.eq(arguments.ring_beats != 0)
        m.d.sync += begun.eq((begun | doorbell.polled) & ~parts.flush)
        m.d.comb += [
            doorbell.enable.eq(ring),
            doorbell.waiting.eq(arbiter.waiting),
            doorbell.address.eq(arguments.result + Mux(begun, 4 * EMB.value("filled").word,
                                                       4 * EMB.value("released").word)),
            arbiter.filled.eq(doorbell.value),
            arbiter.polled.eq(doorbell.polled & begun),
            parts.front.ring_begins.eq(doorbell.polled & ~begun),
            parts.front.ring_begin.eq(doorbell.value),
        ]

    def _count(self, m: Module, parts: _Parts) -> None:
        front, fetch, tt, events = parts.front, parts.fetch, parts.tt, parts.frame.events
        row, moved = front.row, fetch.events
        beat = self.config.beat_bytes
        beats = Signal(range(self.config.row_beats_max + 1))
        m.d.sync += beats.eq(Mux(row.tt, row.beats + 1, 0))
        m.d.comb += [
            events.instructions.eq(front.finish),
            events.bags.eq(parts.finish.done),
            events.indices.eq(row.indices),
            events.dram_rows.eq(moved.dram_row),
            events.dram_bytes.eq(Mux(moved.dram_beat, beat, 0)),
            events.ssd_rows.eq(moved.ssd_row),
            events.ssd_bytes.eq(Mux(moved.ssd_beat, beat, 0)),
            events.tt_rows.eq(row.tt),
            events.tt_bytes.eq(Cat(Const(0, self.config.beat_log2), beats)),
            events.coalesced_rows.eq(moved.shared_row),
            events.beats_fetched.eq(moved.fetched),
            events.cache_fills.eq(front.row_done),
        ]
        for name in ("dram", "tt", "ssd", "write", "feeder"):
            m.d.comb += events[f"stall_{name}"].eq(front.stall[name] & ~parts.flush)
        # The unit tells totals since its reset; what they have grown by is counted on.
        for name, total in TT_COUNTS.items():
            before, grown = Signal(TT_COUNT_BITS, name=f"{name}_before"), Signal(TT_COUNT_BITS, name=f"{name}_grown")
            now = tt.counters[total][:TT_COUNT_BITS]
            m.d.sync += before.eq(now)
            m.d.sync += grown.eq(now - before)
            with m.If(parts.flush | parts.flush_tt):
                m.d.sync += before.eq(0)
                m.d.sync += grown.eq(0)
            m.d.comb += events[name].eq(grown)

    def _run(self, m: Module, parts: _Parts) -> None:
        """From start to done."""
        frame, writes = parts.frame, parts.writes
        front, finish, arbiter = parts.front, parts.finish, parts.arbiter
        # Of the port's clients; the run control keeps the final report's out, which could not be told any more.
        unwritten = writes.error[OUTPUTS] | writes.error[COPIES] | writes.error[STATUS]
        # From a register: a block memory says so.
        unread = Signal()
        m.d.sync += unread.eq(parts.fetch.copy_valid & parts.fetch.o_copy.error & ~parts.flush)
        report_first_fault(m, frame, (
            (front.error.valid, front.error.code, front.error.instruction, front.error.bag, front.error.index,
             front.error.detail),
            (finish.fault_valid, finish.fault.code, finish.fault.instruction, finish.fault.bag, 0,
             Mux(finish.fault.code == EMB.code("READ_ERROR"), ROWS, 0)),
            (unread, EMB.code("READ_ERROR"), front.finished, 0, 0, ROWS),
            (unwritten, EMB.code("WRITE_ERROR"), front.finished, 0, 0,
             Cat(writes.error[COPIES], writes.error[STATUS])),
            (parts.bell.failed, EMB.code("READ_ERROR"), front.finished, 0, 0, HOST),
            (arbiter.overflow, EMB.code("RING_OVERFLOW"), front.finished, 0, 0, arbiter.filled),
        ))
        m.d.comb += [
            frame.over.eq(front.done),
            frame.at.eq(front.finished),
            front.start.eq(frame.begin),
            frame.host.waits.eq(arbiter.waiting),
            frame.host.detail.eq(arbiter.position),
            frame.work.eq(Cat(o.valid & o.ready for at, o in enumerate(parts.reads.o) if at != DOORBELL).any()),
        ]
