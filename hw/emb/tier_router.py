"""Dispatches the indices of bags to the memories that hold their rows."""

from typing import Any, NamedTuple

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emb.rows import beats_bits, row_layout
from hw.emb.tokens import CHUNK_BITS, OPEN_SLACK, token_layout
from hw.isa.emb import MODE
from hw.place import Part
from hw.stream.fifo import Fifo, mask_of

ONE = 0x3F80_0000
FILL_QUEUE = 32


def fill_layout(row_beats_max: int) -> data.StructLayout:
    """Where a row that is copied goes. offset: in beats from the rows' base; beats, and those of a piece: less one;
    whole: it is one piece."""
    bits = beats_bits(row_beats_max)
    return data.StructLayout({"offset": 32, "beats": bits, "piece": bits, "whole": 1})


class _Chunks(NamedTuple):
    """What `TierRouter._chunks` hands on."""

    held: Any
    push: Any
    full: Signal
    factor: Signal


class TierRouter(Part):
    """Splits a stream of tokens into rows of card memory, rows of the SSD and rows of the tensor-train unit.

    Of each memory one row is held back until the next of the same bag or the bag's end is seen, which tells
    whether it is the bag's last. Rows of the tensor-train unit are grouped in chunks of consecutive rows.

    Parameters  row_beats_max, tables: of the core; lookups, steps: shapes of the tensor-train unit's lookups
                {table, index, begin, end} and of the steps of hw.emb.post_pool; dram_queue, ssd_queue, tt_queue,
                step_queue: depths, powers of two, at least 32
    Members     i_valid        In  only while `open` was high OPEN_SLACK cycles ago or less
                i              In  a token of hw.emb.tokens
                o_dram, o_ssd  Out(stream of hw.emb.rows.row_layout)  rows in their bags' order, an SSD row's offset
                    its ring position
                o_lookups      Out(stream)  of the tensor-train unit
                o_steps        Out(stream)  what makes up each bag: a step per chunk, and one for the bag's end unless
                    a chunk ends with it
                o_fills        Out(stream of fill_layout)  where the rows to copy go
                open           Out  all queues have room
                full           Out  {dram, ssd, tt, steps, fills}, which queue has no room
    Timing      one token per cycle in any mix; a row leaves its queue 3 cycles after the token that made it known
                as the last or not; a bag's end is known a cycle after its last token
    Handshake   outputs are streams from registers
    Reset       drops everything
    Raises      ValueError: a queue's depth
    Golden      golden.emb.tokens, verif.emb.cycles          Tests  verif/emb/test_front.py, test_front_faults.py
    """

    def __init__(self, *, row_beats_max: int, tables: int, lookups, steps, dram_queue: int, ssd_queue: int,
                 tt_queue: int, step_queue: int):
        self.row_beats_max, self.tables = row_beats_max, tables
        self.lookups, self.steps = lookups, steps
        self.depths = {"dram": dram_queue, "ssd": ssd_queue, "tt": tt_queue, "steps": step_queue,
                       "fills": FILL_QUEUE}
        for name, depth in self.depths.items():
            if type(depth) is not int or depth < 32 or depth & (depth - 1):
                raise ValueError(f"the queue of {name} must be a power of two of at least 32 deep, not {depth!r}")
        row = row_layout(row_beats_max)
        super().__init__({
            "i_valid": In(1),
            "i": In(token_layout(row_beats_max=row_beats_max, tables=tables)),
            "o_dram": Out(stream.Signature(row)),
            "o_ssd": Out(stream.Signature(row)),
            "o_lookups": Out(stream.Signature(lookups)),
            "o_steps": Out(stream.Signature(steps)),
            "o_fills": Out(stream.Signature(fill_layout(row_beats_max))),
            "open": Out(1),
            "full": Out(data.StructLayout(dict.fromkeys(self.depths, 1))),
        })

    def elaborate(self, platform):
        m = Module()
        queues = self._queues(m)

        # The bag that is under way, and whether its last token came in the cycle before.
        ended = Signal()
        bag = Signal.like(self.i, name="bag", reset_less=True)
        m.d.sync += ended.eq(self.i_valid & self.i.last)
        with m.If(self.i_valid):
            m.d.sync += bag.eq(self.i)

        held = self._rows(m, queues, ended)
        chunk = self._chunks(m, queues, bag, ended)
        self._steps(m, queues, bag, ended, held, chunk)

        # Where rows are copied to.
        m.d.comb += queues["fills"].valid.eq(self.i_valid & self.i.dram & self.i.copy)
        for name in ("offset", "beats", "piece"):
            m.d.comb += queues["fills"].payload[name].eq(self.i[name])
        m.d.comb += queues["fills"].payload.whole.eq(self.i.beats == self.i.piece)
        return m

    def _queues(self, m: Module) -> dict:
        """The streams into the queues before the outputs, and whether all have room."""
        queues = {}
        for name, port in (("dram", self.o_dram), ("ssd", self.o_ssd), ("tt", self.o_lookups),
                           ("steps", self.o_steps), ("fills", self.o_fills)):
            # What decides where a row of a tensor train goes.
            quick = mask_of(port.payload.shape(), "begin", "end") if name == "tt" else 0
            queue = Fifo(port.payload.shape(), depth=self.depths[name], quick=quick, headroom=OPEN_SLACK)
            m.submodules[f"{name}_queue"] = queue
            queues[name] = queue.i      # never refused: `open` is heeded before
            wiring.connect(m, queue.o, wiring.flipped(port))
            m.d.comb += self.full[name].eq(~queue.room)
        m.d.sync += self.open.eq(~self.full.as_value().any())
        return queues

    def _rows(self, m: Module, queues, ended) -> dict:
        """Rows of card memory and of the SSD; whether one of each is held back."""
        token, row = self.i, row_layout(self.row_beats_max)
        held = {}
        for name, mine in (("dram", token.dram & ~token.copy), ("ssd", token.ssd)):
            some, load, push = Signal(name=f"{name}_held"), Signal(name=f"{name}_load"), Signal(name=f"{name}_push")
            kept = Signal(row, name=f"{name}_row", reset_less=True)
            m.d.comb += load.eq(self.i_valid & mine)
            m.d.comb += push.eq(some & (ended | load))
            m.d.sync += some.eq(load | (some & ~ended))
            with m.If(load):
                m.d.sync += [
                    kept.offset.eq(token.offset),
                    kept.ring.eq(name == "ssd"),
                    kept.tier.eq(name == "ssd"),
                    kept.beats.eq(token.beats),
                    kept.vector.eq(token.vector),
                    kept.row_format.eq(token.row_format),
                    kept.piece.eq(token.beats if name == "ssd" else token.piece),
                    kept.first.eq(~some | ended),
                    kept.weight.eq(Mux(token.weighted, token.factor, ONE)),
                    kept.maximum.eq(token.mode == MODE.MAX),
                    kept.copy.eq(token.copy),
                ]
            m.d.comb += queues[name].valid.eq(push)
            m.d.comb += queues[name].payload.eq(kept)
            m.d.comb += queues[name].payload.last.eq(ended)
            held[name] = some
        return held

    def _chunks(self, m: Module, queues, bag, ended) -> _Chunks:
        """Rows of the tensor-train unit, in chunks."""
        token = self.i
        some, load, push = Signal(name="tt_held"), Signal(name="tt_load"), Signal(name="tt_push")
        begin = Signal()
        full = Signal()
        index = Signal.like(queues["tt"].payload.index, reset_less=True)
        place_ = Signal(CHUNK_BITS, name="tt_place", reset_less=True)  # the held row's in its chunk
        following = Signal(CHUNK_BITS)
        starts = Signal()
        factor = Signal(32, reset_less=True)
        m.d.comb += [
            load.eq(self.i_valid & token.tt),
            push.eq(some & (ended | load)),
            starts.eq(~some | ended | full),
            following.eq(Mux(starts, 0, place_ + 1)),
            queues["tt"].valid.eq(push),
            queues["tt"].payload.table.eq(bag.table),
            queues["tt"].payload.index.eq(index),
            queues["tt"].payload.begin.eq(begin),
            queues["tt"].payload.end.eq(full | ended),
        ]
        m.d.sync += some.eq(load | (some & ~ended))
        with m.If(load):
            m.d.sync += [
                index.eq(token.tt_row),
                begin.eq(starts),
                place_.eq(following),
                full.eq(following == token.chunk),
            ]
        # The factor of the chunk that the next step takes; without one, only what all tokens of a bag share counts.
        with m.If(load | (self.i_valid & (~some | ended))):
            m.d.sync += factor.eq(token.tt_factor)
        return _Chunks(held=some, push=push, full=full, factor=factor)

    def _steps(self, m: Module, queues, bag, ended, held, chunk: _Chunks) -> None:
        """What makes up each bag."""
        first = Signal(init=1)
        step = queues["steps"].payload
        chunk_done = Signal()
        m.d.comb += [
            chunk_done.eq(chunk.push & chunk.full),
            queues["steps"].valid.eq((ended | chunk_done) & ~bag.copy),
            step.tt.eq(chunk.held),
            step.dram.eq(held["dram"] & ended),
            step.ssd.eq(held["ssd"] & ended),
            step.first.eq(first),
            step.end.eq(ended),
            step.mode.eq(bag.mode),
            step.weighted.eq(bag.weighted),
            step.format.eq(bag.format),
            step.factor.eq(chunk.factor),
            step.beats.eq(bag.vector),
            step.out.eq(bag.out),
            step.last.eq(ended & bag.final),
            step.instruction.eq(bag.number),
        ]
        with m.If(queues["steps"].valid):
            m.d.sync += first.eq(ended)
