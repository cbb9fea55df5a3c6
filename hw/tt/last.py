"""The last product of a lane's lookups, one for all rows of a chunk."""

from typing import NamedTuple

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.tt.chunks import ChunkRows, row_layout
from hw.tt.config import TTConfig
from hw.tt.descriptor import PartMemory, descriptor_parts, part_layout
from hw.tt.marks import Marks
from hw.tt.products import TokenQueue
from hw.tt.stage import LoopMachine, job_of, roles
from hw.tt.tokens import Product, ready_layout, slot_layout


class _Waiting(NamedTuple):
    """The lookup before the machine, if any: its token, its part of the descriptor, and whether it is spoilt.

    ripe: another one can be taken from the queue; take: it is.
    """

    ripe: Value
    take: Value
    row: data.View
    plan: data.View
    bad: Value


class LastProduct(wiring.Component):
    """Computes last products in order, one for all rows of a chunk, as the output has room.

    Rows gather to chunks; the machine runs once a chunk, each of its steps for all rows.

    Parameters  config: TTConfig
    Members     load               In  a write of hw.tt.descriptor.part_layout
                begun              In  a pulse: a lookup begins or passes its middle product
                ticket             In  with `begun` its ticket, which is unmarked
                room               Out  one more may begin
                push, i            In  a lookup of ready_layout whose middle product is done
                written            In  a pulse: the lines of one more are written
                busy               Out  a slot is wanted
                go                 In  the slot is granted
                last               Out  it is the last of a tile
                slot               Out  the slot, of slot_layout
                error, error_slot  In  a slot whose operands could not be corrected
                asked              Out  an entry of the reuse table
                bad                In  it is marked
                release, released  Out  a lookup is done with an entry of the reuse table
                freed              Out  a pulse: the oldest middle product has been read
                freed_lines        Out  its lines, less one
                returned           In  a pulse: a vector has left the output
    Timing      one slot per cycle, also from lookup to lookup
    Reset       drops lookups
    Golden      golden.tt.sequencer          Tests  verif/tt/test_unit.py
    """

    def __init__(self, config: TTConfig):
        self.config = config
        super().__init__({
            "load": In(part_layout(config)),
            "begun": In(1),
            "ticket": In(config.in_flight.bit_length()),
            "room": Out(1),
            "push": In(1),
            "i": In(ready_layout(config)),
            "written": In(1),
            "busy": Out(1),
            "go": In(1),
            "last": Out(1),
            "slot": Out(slot_layout(config)),
            "error": In(1),
            "error_slot": In(slot_layout(config)),
            "asked": Out(config.entry_bits),
            "bad": In(1),
            "release": Out(1),
            "released": Out(config.entry_bits),
            "freed": Out(1),
            "freed_lines": Out(config.ring_bits + 1),
            "returned": In(1),
        })

    def _job_layout(self) -> data.StructLayout:
        """What the machine does for a chunk of `rows`, less one."""
        config = self.config
        return data.StructLayout({
            "plan": descriptor_parts(config)[3],
            "bad": 1,
            "buffered": 1,
            "ring": 1,
            "lines": config.ring_bits,
            "rows": config.chunk_log2,
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.loops = loops = LoopMachine(held_bits=config.operand_bits, running_bits=config.x_bits)
        current = Signal(self._job_layout())
        begin, following = self._chunks(m, self._waiting(m), loops, current)
        m.d.comb += [
            loops.load.eq(begin),
            *job_of(loops.job, following.plan),
        ]
        with m.If(begin):
            m.d.sync += current.eq(following)

        # A row is done with its lines when the last slot that reads them is decided.
        row_ends = Signal()
        m.d.comb += row_ends.eq(self.go & loops.ends)
        m.d.comb += self.release.eq(row_ends & current.buffered)
        m.d.sync += self.freed.eq(row_ends & current.ring)
        m.d.sync += self.freed_lines.eq(current.lines)

        m.d.comb += [
            self.slot.stage.eq(Product.LAST),
            self.slot.lines.eq(current.buffered),
            self.slot.ring.eq(current.ring),
            self.slot.block.eq(current.plan.block),
            self.slot.turned.eq(current.plan.turned),
            self.slot.columns_log2.eq(current.plan.columns_log2),
            self.slot.combine.eq(current.plan.combine),
            self.slot.bad.eq(current.bad),
            self.slot.beats.eq(current.plan.beats),
            *roles(self.slot, current.plan.columns_log2, current.plan.ranks, loops),
        ]
        return m

    def _waiting(self, m: Module) -> _Waiting:
        """The queue, and the register of the lookup that was taken from it."""
        config = self.config
        m.submodules.waiting = waiting = TokenQueue(ready_layout(config), depth=config.in_flight)
        m.submodules.plan = plans = PartMemory(config, part=3)
        m.d.comb += [
            waiting.begun.eq(self.begun),
            waiting.push.eq(self.push),
            waiting.i.eq(self.i),
            waiting.ripens.eq(self.written),
            self.room.eq(waiting.room),
            plans.load.eq(self.load),
            plans.table.eq(waiting.o.table),
        ]
        row = Signal(ready_layout(config))
        plan = Signal(descriptor_parts(config)[3])
        with m.If(waiting.take):
            m.d.sync += row.eq(waiting.o)
            m.d.sync += plan.eq(plans.o)

        # What a row's memory errors left behind.
        m.submodules.marks = marks = Marks(2 * config.in_flight)
        bad = Signal()
        m.d.comb += [
            marks.mark.eq(self.error & (self.error_slot.stage == Product.MIDDLE)),
            marks.marked_place.eq(self.error_slot.ticket),
            marks.clear.eq(self.begun),
            marks.clear_place.eq(self.ticket),
            marks.place.eq(row.ticket),
            self.asked.eq(row.entry),
            bad.eq(row.outside | (row.buffered & self.bad) | marks.o),
        ]
        return _Waiting(waiting.ripe, waiting.take, row, plan, bad)

    def _chunks(self, m: Module, waiting: _Waiting, loops: LoopMachine, current):
        """The machine runs once a chunk, each of its steps for all rows; returns (it begins, with this)."""
        config = self.config
        m.submodules.rows = rows = ChunkRows(rows_log2=config.chunk_log2, shape=row_layout(
            held_bits=config.operand_bits, running_bits=config.x_bits, entry_bits=config.entry_bits))
        begin = Signal()
        gathered, gathered_valid = self._gathered(m, waiting, rows, begin)
        tile_done = Signal()
        # Whole vectors that the output has room for.
        credits = Signal(range(config.vectors + 1), init=config.vectors)
        has_credit = Signal(init=1)
        m.d.sync += credits.eq(credits - begin + self.returned)
        m.d.sync += has_credit.eq(credits != 0)
        m.d.comb += [
            begin.eq(gathered_valid & has_credit & (~loops.busy | (loops.go & loops.ends))),
            rows.load.eq(begin),
            rows.rows.eq(gathered.rows),
            rows.step.eq(self.go),
            rows.final.eq(loops.ends),
            tile_done.eq(loops.last & rows.last),
            loops.go.eq(self.go & rows.last),
        ]

        # Tiles may end every n-th cycle: those of so many slots do by themselves, before others the array rests.
        n_less_one = config.side - 1
        long = Signal()
        calm = Signal(init=1)
        rest = Signal(range(config.side))
        with m.If(begin):
            m.d.sync += long.eq((gathered.rows >= n_less_one) | (gathered.plan.lines >= n_less_one)
                                | ((gathered.rows != 0) & (gathered.plan.lines != 0)))
        with m.If(self.go & tile_done):
            m.d.sync += rest.eq(n_less_one)
            m.d.sync += calm.eq(0)
        with m.Elif(rest != 0):
            m.d.sync += rest.eq(rest - 1)
            m.d.sync += calm.eq(rest == 1)
        m.d.comb += [
            self.busy.eq(loops.busy & (calm | long)),
            self.last.eq(tile_done),
            self.released.eq(rows.o.entry),
            self.slot.x.eq(loops.running + rows.o.running),
            self.slot.y.eq(loops.held + rows.o.held),
            self.slot.first.eq(loops.first & rows.first),
            self.slot.last.eq(tile_done),
            self.slot.begin.eq(loops.begin & rows.first),
            self.slot.ends.eq(loops.ends & rows.last),
            self.slot.tail.eq(current.plan.tail),
        ]
        return begin, gathered

    def _gathered(self, m: Module, waiting: _Waiting, rows: ChunkRows, begin):
        """(the oldest whole chunk, there is one)"""
        row = waiting.row
        valid = Signal()
        moves = Signal()
        chunk = Signal(self._job_layout())
        chunk_valid = Signal()
        chunk_bad = Signal()
        m.d.comb += [
            moves.eq(valid & ~(row.end & chunk_valid)),
            waiting.take.eq(waiting.ripe & (~valid | moves)),
            rows.put.eq(moves),
            rows.end.eq(row.end),
            rows.i.held.eq(row.base),
            rows.i.running.eq(row.last),
            rows.i.entry.eq(row.entry),
        ]
        m.d.sync += valid.eq(waiting.take | (valid & ~moves))
        m.d.sync += chunk_valid.eq((moves & row.end) | (chunk_valid & ~begin))
        with m.If(moves):
            m.d.sync += chunk_bad.eq((chunk_bad | waiting.bad) & ~row.end)
        with m.If(moves & row.end):
            m.d.sync += [
                chunk.plan.eq(waiting.plan),
                chunk.rows.eq(rows.count),
                chunk.bad.eq(chunk_bad | waiting.bad),
                chunk.buffered.eq(row.buffered),
                chunk.ring.eq(row.ring),
                chunk.lines.eq(row.lines),
            ]
        return chunk, chunk_valid
