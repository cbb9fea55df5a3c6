"""The front of the EMB core: from a program in memory to what each memory's unit has to do."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import read_layout, request_layout
from hw.emb.config import EmbConfig
from hw.emb.index_decoder import IndexDecoder
from hw.emb.loader import Loader
from hw.emb.post_pool import step_layout
from hw.emb.program import Program
from hw.emb.regions import CLIENTS, Regions
from hw.emb.rows import beats_bits, row_layout
from hw.emb.tier_router import TierRouter
from hw.emb.tokens import POSITION_BITS, error_layout
from hw.isa import EMB
from hw.layouts import arguments_layout
from hw.place import Part, place
from hw.tt.descriptor import load_layout
from hw.tt.index import lookup_layout


class _Pieces(NamedTuple):
    """What `_pieces` hands on."""

    take: Any
    begun: Any
    last: Any


def _pieces(m: Module, name: str, row) -> _Pieces:
    """Counts pieces of rows, one for each `take`; begun: it is not its row's first one, last: it is its last one."""
    take, begun, last = Signal(name=f"{name}_take"), Signal(name=f"{name}_begun"), Signal(name=f"{name}_last")
    ends = Signal(name=f"{name}_ends", reset_less=True)     # a piece that is not the first is the last one
    rest, left = Signal.like(row.beats, name=f"{name}_rest"), Signal.like(row.beats, name=f"{name}_left")
    m.d.comb += left.eq(Mux(begun, rest, row.beats))
    m.d.comb += last.eq(Mux(begun, ends, row.whole))
    with m.If(take):
        m.d.sync += begun.eq(~last)
        m.d.sync += rest.eq(left - row.piece - 1)
        m.d.sync += ends.eq(left == Cat(1, row.piece))
    return _Pieces(take=take, begun=begun, last=last)


class Front(Part):
    """Program, regions, loader, feeder and tiers in one.

    Source: SCRec §III.D and §III.E, Fig. 7a (the front of the EMB core)

    Parameters  config: EmbConfig; ssd_queue, dram_queue, tt_queue and bag_queue at least 32
    Members     start               In  a pulse
                arguments           In  of hw.layouts
                o_requests[k]       Out(stream)  to a ReadPort: of program, lengths, indices and weights
                i[k]                In(stream)  what comes back of it
                o_dram, o_ssd, o_lookups, o_steps  Out(stream)  see hw.emb.tier_router
                o_load              Out(stream)  the tensor-train unit's load
                o_copies            Out(stream of hw.axi.bus.request_layout)  the writes of a FILL, in the order of its
                    rows in o_ssd, a request per piece
                bags_done           In  a pulse: the bags of an instruction are in memory
                copy_done           In  a pulse: the next request of o_copies is in memory
                ring_begins, ring_begin  In  a pulse before any instruction has finished, and with it the run's first
                    ring position
                row_done            Out  in the same cycle: and with it a row
                flush_window        Out  a pulse between instructions: rows in card memory have changed
                flush_tt            Out  a pulse between instructions: tables have changed
                released, finished  Out  progress
                finish              Out  a pulse per instruction
                done                Out  all instructions are done, until the next start
                error               Out  the first error, until reset
                stall               Out  {dram, ssd, tt, write, feeder}, who holds up the bags in this cycle
                row                 Out  {dram, tt, ssd, bag, indices, beats}, what was dispatched in this cycle and how
                    long a row's vector is, less one
    Timing      one index per cycle, or a pair; see hw.emb.index_decoder and hw.emb.tier_router
    Reset       drops everything but which tables are loaded
    Golden      golden.emb.tokens, verif.emb.cycles          Tests  verif/emb/test_front.py, test_front_faults.py
    """

    def __init__(self, config: EmbConfig):
        self.config = config
        read = read_layout(config.beat_bytes)
        row = row_layout(config.row_beats_max)
        super().__init__({
            "start": In(1),
            "arguments": In(arguments_layout(EMB)),
            "o_requests": Out(stream.Signature(request_layout())).array(len(CLIENTS)),
            "i": In(stream.Signature(read)).array(len(CLIENTS)),
            "o_dram": Out(stream.Signature(row)),
            "o_ssd": Out(stream.Signature(row)),
            "o_lookups": Out(stream.Signature(lookup_layout(config.tt))),
            "o_steps": Out(stream.Signature(step_layout(config))),
            "o_load": Out(stream.Signature(load_layout(config.tt))),
            "o_copies": Out(stream.Signature(request_layout())),
            "bags_done": In(1), "copy_done": In(1), "row_done": Out(1),
            "ring_begins": In(1), "ring_begin": In(POSITION_BITS),
            "flush_window": Out(1), "flush_tt": Out(1),
            "released": Out(POSITION_BITS), "finished": Out(32), "finish": Out(1), "done": Out(1),
            "error": Out(error_layout()),
            "stall": Out(data.StructLayout(dict.fromkeys(("dram", "ssd", "tt", "write", "feeder"), 1))),
            "row": Out(data.StructLayout({
                **dict.fromkeys(("dram", "tt", "ssd", "bag"), 1), "indices": 2,
                "beats": beats_bits(config.row_beats_max)})),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        sizes = {"row_beats_max": config.row_beats_max, "tables": config.tt.tables}
        decoding = {"beat_bytes": config.beat_bytes, "index_bits": config.tt.index_bits,
                    "stripe_beats": config.stripe_beats, **sizes}
        program = Program(chunk_rows=1 << config.tt.chunk_log2, **decoding)
        regions = Regions(beat_bytes=config.beat_bytes)
        loader = Loader(config.tt)
        feeder = IndexDecoder(**decoding)
        tiers = TierRouter(lookups=lookup_layout(config.tt), steps=step_layout(config), dram_queue=config.dram_queue,
                      ssd_queue=config.ssd_queue, tt_queue=config.tt_queue, step_queue=config.bag_queue, **sizes)
        # Not "program", which is a word of SystemVerilog.
        for name, part in (("control", program), ("regions", regions), ("loader", loader), ("feeder", feeder),
                           ("tiers", tiers)):
            place(m, platform, name, part)

        arguments = self.arguments
        lengths, indices, weights, words = (self.i[CLIENTS.index(name)] for name in
                                            ("lengths", "indices", "weights", "program"))
        connect = wiring.connect
        connect(m, wiring.flipped(words), program.i)
        connect(m, wiring.flipped(lengths), feeder.i_lengths)
        connect(m, wiring.flipped(weights), feeder.i_weights)
        connect(m, program.o_regions, regions.i)
        connect(m, program.o_jobs, feeder.i_jobs)
        connect(m, loader.o_load, wiring.flipped(self.o_load))
        for name in ("o_dram", "o_ssd", "o_lookups", "o_steps"):
            connect(m, getattr(tiers, name), wiring.flipped(getattr(self, name)))
        for port, to in zip([program.o_requests, *regions.o_requests], self.o_requests, strict=True):
            connect(m, port, wiring.flipped(to))
        m.d.comb += [
            program.start.eq(self.start),
            program.arguments.eq(arguments),
            regions.inputs.eq(arguments.inputs),
            # The words of an image and those of bags come by the same client: one of the two is idle. The loader
            # borrows the feeder's multiplexer to read headers word by word.
            feeder.i_indices.payload.eq(indices.payload),
            loader.i.payload.eq(indices.payload),
            feeder.i_indices.valid.eq(indices.valid),
            loader.i.valid.eq(indices.valid),
            indices.ready.eq(loader.i.ready | feeder.i_indices.ready),
            feeder.step.eq(loader.step),
            loader.word.eq(feeder.word_now),
            loader.start.eq(program.load_start),
            loader.less_one.eq(program.load_less_one),
            loader.expected.eq(program.load_signature),
            feeder.ring_mask.eq(program.ring_mask),
            program.load_busy.eq(loader.busy),
            loader.table.eq(program.table),
            program.bounds.eq(loader.bounds),
            feeder.ring_beats.eq(arguments.ring_beats),
            feeder.open.eq(tiers.open),
            tiers.i_valid.eq(feeder.o_valid),
            tiers.i.eq(feeder.o),
            program.bags_done.eq(self.bags_done),
            program.row_done.eq(self.row_done),
            program.ring_begins.eq(self.ring_begins),
            program.ring_begin.eq(self.ring_begin),
        ]
        for name in ("flush_window", "flush_tt", "released", "finished", "finish", "done"):
            m.d.comb += getattr(self, name).eq(getattr(program, name))

        self._copies(m, tiers.o_fills)

        # At most one of the three can be the first: what comes later has not begun.
        error = self.error
        for source, valid, number, bag in (
            (program.error, program.error.valid, program.error.instruction, 0),
            (loader.error, loader.error.valid, program.number_now, 0),
            (feeder.error, feeder.error.valid, feeder.error.instruction, feeder.error.bag),
        ):
            with m.If(valid & ~error.valid):
                m.d.sync += [
                    error.valid.eq(1),
                    error.code.eq(source.code),
                    error.instruction.eq(number),
                    error.bag.eq(bag),
                    error.index.eq(source.index),
                    error.detail.eq(source.detail),
                ]

        full, token = tiers.full, feeder.o
        m.d.comb += [
            self.stall.dram.eq(full.dram),
            self.stall.ssd.eq(full.ssd | full.fills),
            self.stall.tt.eq(full.tt),
            self.stall.write.eq(full.steps),
            self.stall.feeder.eq(feeder.stall),
            self.row.dram.eq(feeder.o_valid & token.dram & ~token.copy),
            self.row.tt.eq(feeder.o_valid & token.tt),
            self.row.ssd.eq(feeder.o_valid & token.ssd),
            self.row.bag.eq(feeder.o_valid & token.last & ~token.copy),
            self.row.beats.eq(token.vector),
            self.row.indices.eq(Mux(feeder.o_valid & ~token.copy, token.tt + (token.dram | token.ssd), 0)),
        ]
        return m

    def _copies(self, m: Module, fills) -> None:
        """Where rows are copied to, piece after piece, the next a stripe behind; and when a row is there. The rows of
        a FILL are alike, so what the last request was made of says when."""
        config, copies, fill = self.config, self.o_copies, fills.payload
        free = Signal()
        row = Signal.like(fill, reset_less=True)
        sent, written = _pieces(m, "sent", fill), _pieces(m, "written", row)
        m.d.comb += [
            free.eq(~copies.valid | copies.ready),
            sent.take.eq(free & fills.valid),
            fills.ready.eq(free & sent.last),
            written.take.eq(self.copy_done),
            self.row_done.eq(self.copy_done & written.last),
        ]
        with m.If(sent.take):
            m.d.sync += row.eq(fill)
        with m.If(free):
            stripe = config.stripe_beats * config.beat_bytes
            m.d.sync += copies.valid.eq(fills.valid)
            m.d.sync += copies.payload.beats.eq(fill.piece + 1)
            m.d.sync += copies.payload.address.eq(
                Mux(sent.begun, copies.payload.address, self.arguments.rows)
                + Mux(sent.begun, stripe, Cat(Const(0, config.beat_log2), fill.offset)))
