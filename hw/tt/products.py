"""The first and the middle product of a lane's lookups, and the queues in which these wait between products."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, fifo, memory, wiring
from amaranth.lib.wiring import In, Out

from hw.tt.config import TTConfig
from hw.tt.descriptor import PartMemory, descriptor_parts, part_layout
from hw.tt.stage import LoopMachine, job_of, roles
from hw.tt.tokens import Product, buffered_layout, ready_layout, served_layout, slot_layout


class TokenQueue(wiring.Component):
    """Lookups between two products: each waits until the lines of its product are written, which it is told.

    Room was seen when a lookup's product began, and only what is ripe is taken: the queue needs no level.

    Parameters  shape: of a lookup; depth: a power of two
    Members     begun    In  a pulse: a product begins whose lookup will come
                room     Out  one more may begin
                push, i  In  its product's last slot is decided, the lookup waits
                ripens   In  a pulse: the lines of one more lookup are written, in order
                ripe     Out  the oldest lookup may be taken
                take     In  it is taken
                o        Out  the oldest lookup
    Timing      no latency
    Reset       drops all
    Golden      golden.tt.sequencer          Tests  verif/tt/test_unit.py
    """

    def __init__(self, shape: data.StructLayout, *, depth: int):
        self.shape = shape
        self.depth = depth
        super().__init__({
            "begun": In(1),
            "room": Out(1, init=1),
            "push": In(1),
            "i": In(shape),
            "ripens": In(1),
            "ripe": Out(1),
            "take": In(1),
            "o": Out(shape),
        })

    def elaborate(self, platform):
        m = Module()
        depth = self.depth
        m.submodules.store = store = memory.Memory(shape=self.shape.size, depth=depth, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        head = Signal(range(depth))
        tail = Signal(range(depth))
        # From `begun` on, and of those the ripe ones; what is asked of the numbers comes from registers.
        count = Signal(range(depth + 1))
        ripe = Signal(range(depth + 1))
        m.d.comb += [
            write.data.eq(self.i),
            write.addr.eq(tail),
            write.en.eq(self.push),
            read.addr.eq(head),
            self.o.eq(read.data),
        ]
        m.d.sync += [
            tail.eq(tail + self.push),
            head.eq(head + self.take),
            count.eq(count + self.begun - self.take),
            ripe.eq(ripe + self.ripens - self.take),
            self.room.eq(Mux(self.room, ~((count == depth - 1) & self.begun & ~self.take), self.take)),
            self.ripe.eq(self.ripens | (self.ripe & ~((ripe == 1) & self.take))),
        ]
        return m


class FirstProduct(wiring.Component):
    """Computes first products in order, or lets lookups pass that need none.

    A register before the machine holds the lookup that is next, so that it goes from job to job without a gap.

    Parameters  config: TTConfig; delay: cycles from a product's last slot until its lines count as written
    Members     free    Out  there is room for a lookup
                push    In  a lookup comes
                i       In  it, of served_layout
                busy    Out  a slot is wanted
                go      In  the slot is granted
                last    Out  it is the last of a tile
                slot    Out  the slot, of slot_layout
                done    Out  a pulse: the product's last slot is decided, or there is nothing to compute
                o       Out  with `done` the lookup, of buffered_layout
                ripens  Out  `done`, `delay` cycles later
    Timing      one slot per cycle, also from lookup to lookup; a lookup that needs none takes a cycle
    Reset       drops lookups
    Golden      golden.tt.sequencer          Tests  verif/tt/test_unit.py
    """

    def __init__(self, config: TTConfig, *, delay: int):
        self.config = config
        self.delay = delay
        super().__init__({
            "free": Out(1),
            "push": In(1),
            "i": In(served_layout(config)),
            "busy": Out(1),
            "go": In(1),
            "last": Out(1),
            "slot": Out(slot_layout(config)),
            "done": Out(1),
            "o": Out(buffered_layout(config)),
            "ripens": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.loops = loops = LoopMachine(held_bits=config.x_bits, running_bits=config.y_bits)
        valid = Signal()
        skips = Signal()
        begin = Signal()
        pending, pending_valid = self._next(m, begin)
        m.d.comb += [
            self.done.eq(valid & (skips | (loops.go & loops.ends))),
            begin.eq(pending_valid & (~valid | self.done)),
            loops.load.eq(begin & ~pending.skips),
            loops.job.tiles.eq(pending.plan.tiles),
            loops.job.blocks.eq(pending.plan.blocks),
            loops.job.lines.eq(pending.plan.lines),
            loops.job.held.eq(pending.held),
            loops.job.running.eq(pending.token.second),
            loops.go.eq(self.go),
            self.busy.eq(loops.busy),
            self.last.eq(loops.last),
        ]
        paired = Signal()
        block = Signal()
        swap = Signal()
        wide = Signal()
        write = Signal(config.t_bits)
        m.d.sync += valid.eq(begin | (valid & ~self.done))
        with m.If(begin):
            m.d.sync += [
                skips.eq(pending.skips),
                self.o.eq(pending.token),
                paired.eq(pending.plan.paired),
                block.eq(pending.plan.block),
                swap.eq(pending.plan.swap),
                wide.eq(pending.plan.wide),
                write.eq(pending.token.base),
            ]
        with m.Elif(loops.go & loops.last):
            m.d.sync += write.eq(write + 1)

        written = Signal(self.delay)
        m.d.sync += written.eq(Cat(self.done, written[:-1]))
        m.d.comb += self.ripens.eq(written[-1])

        all_rows = Const((1 << config.grid_log2) - 1, config.grid_log2)
        m.d.comb += [
            self.slot.stage.eq(Product.FIRST),
            self.slot.x.eq(loops.held),
            self.slot.y.eq(loops.running),
            self.slot.paired.eq(paired),
            self.slot.block.eq(block),
            self.slot.rows.eq(Mux(wide, all_rows >> 1, all_rows)),
            self.slot.first.eq(loops.first),
            self.slot.last.eq(loops.last),
            self.slot.write.eq(write),
            self.slot.swap.eq(swap),
            self.slot.entry.eq(self.o.entry),
            self.slot.combine.eq(wide),
        ]
        return m

    def _next(self, m: Module, begin):
        """(the lookup that is next, there is one)"""
        config = self.config
        layout = served_layout(config)
        pending = Signal(layout)
        pending_valid = Signal()
        to_pending = Signal()
        # While the array is with a chunk's tile, which nothing interrupts, the rows behind it are served, so that their
        # first products follow each other without a gap.
        m.submodules.served = queue = fifo.SyncFIFO(width=layout.size, depth=1 << config.chunk_log2)
        m.d.comb += [
            queue.w_data.eq(self.i),
            queue.w_en.eq(self.push),
            self.free.eq(queue.w_rdy),
            to_pending.eq(queue.r_rdy & (~pending_valid | begin)),
            queue.r_en.eq(to_pending),
        ]
        m.d.sync += pending_valid.eq(to_pending | (pending_valid & ~begin))
        with m.If(to_pending):
            m.d.sync += pending.eq(queue.r_data)
        return pending, pending_valid


class MiddleProduct(wiring.Component):
    """Computes the second product of tables with four cores, into a ring of lines; lets all other lookups pass.

    Parameters  config: TTConfig; delay: cycles from a product's last slot until its lines count as written
    Members     load         In  a write of hw.tt.descriptor.part_layout
                begun        In  a pulse: a first product begins
                room         Out  one more may begin
                push, i      In  a lookup of buffered_layout whose first product is done
                ripens       In  a pulse: the lines of one more are written
                last_room    In  one more last product may be waited for
                busy         Out  a slot is wanted
                go           In  the slot is granted
                last         Out  it is the last of a tile
                slot         Out  the slot, of slot_layout
                begins       Out  a pulse: a lookup begins, be it to pass
                ticket       Out  with `begins` its ticket
                done         Out  a pulse: the product's last slot is decided, or the lookup passes
                o            Out  with `done` the lookup, of ready_layout
                written      Out  a pulse: the lines of one more are written
                freed        In  a pulse: the oldest product has been read
                freed_lines  In  its lines, less one
    Timing      one slot per cycle, a cycle between lookups
    Reset       drops lookups and products
    Golden      golden.tt.sequencer          Tests  verif/tt/test_unit.py
    """

    def __init__(self, config: TTConfig, *, delay: int):
        self.config = config
        self.delay = delay
        super().__init__({
            "load": In(part_layout(config)),
            "begun": In(1),
            "room": Out(1),
            "push": In(1),
            "i": In(buffered_layout(config)),
            "ripens": In(1),
            "last_room": In(1),
            "busy": Out(1),
            "go": In(1),
            "last": Out(1),
            "slot": Out(slot_layout(config)),
            "begins": Out(1),
            "ticket": Out(config.in_flight.bit_length()),
            "done": Out(1),
            "o": Out(ready_layout(config)),
            "written": Out(1),
            "freed": In(1),
            "freed_lines": In(config.ring_bits + 1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.loops = loops = LoopMachine(held_bits=config.operand_bits, running_bits=config.x_bits)
        ready, plan, ready_valid, next_tiles = self._next(m)
        has = plan.middle_present
        need = plan.middle.tiles[:config.ring_bits]
        head, ring_room = self._ring(m, next_tiles, need, self.begins & has)

        valid = Signal()
        skips = Signal()
        quiet = Signal(init=1)          # no lines are on their way that a lookup which passes would overtake
        base = Mux(ready.buffered, ready.base, ready.second)
        m.d.comb += [
            self.done.eq(valid & Mux(skips, quiet, loops.go & loops.ends)),
            self.begins.eq(ready_valid & ~valid & self.last_room & (~has | (~self.freed & ring_room))),
            loops.load.eq(self.begins & has),
            loops.job.running.eq(ready.middle),
            loops.job.held.eq(base),
            *job_of(loops.job, plan.middle),
            loops.go.eq(self.go),
            self.busy.eq(loops.busy),
            self.last.eq(loops.last),
        ]
        write = Signal(config.ring_bits)
        columns_log2 = Signal(2)
        combine = Signal(2)
        ranks = Signal(config.grid_log2)
        block = Signal()
        m.d.sync += valid.eq(self.begins | (valid & ~self.done))
        with m.If(self.begins):
            m.d.sync += [
                skips.eq(~has),
                self.o.table.eq(ready.table),
                self.o.outside.eq(ready.outside),
                self.o.buffered.eq(ready.buffered),
                self.o.entry.eq(ready.entry),
                self.o.ring.eq(has),
                self.o.base.eq(Mux(has, head, base)),
                self.o.last.eq(ready.last),
                self.o.ticket.eq(self.ticket),
                self.o.lines.eq(need),
                self.o.end.eq(ready.end),
                write.eq(head),
                self.ticket.eq(self.ticket + 1),
                columns_log2.eq(plan.middle.columns_log2),
                combine.eq(plan.middle.combine),
                ranks.eq(plan.middle.ranks),
                block.eq(plan.first.block),
            ]
        with m.Elif(loops.go & loops.last):
            m.d.sync += write.eq(write + 1)

        made = Signal()
        on_the_way = Signal(self.delay)
        m.d.comb += made.eq(self.done & ~skips)
        m.d.sync += on_the_way.eq(Cat(made, on_the_way[:-1]))
        m.d.sync += quiet.eq(~made & (on_the_way[:-1] == 0))
        m.d.comb += self.written.eq(on_the_way[-1] | (self.done & skips))

        m.d.comb += [
            self.slot.stage.eq(Product.MIDDLE),
            self.slot.x.eq(loops.running),
            self.slot.y.eq(loops.held),
            self.slot.block.eq(block),
            self.slot.lines.eq(1),
            self.slot.first.eq(loops.first),
            self.slot.last.eq(loops.last),
            self.slot.write.eq(write),
            self.slot.ticket.eq(self.o.ticket),
            self.slot.columns_log2.eq(columns_log2),
            self.slot.combine.eq(combine),
            *roles(self.slot, columns_log2, ranks, loops),
        ]
        return m

    def _next(self, m: Module):
        """(the lookup that is next, its part of the descriptor, there is one, the tiles of the next cycle's)"""
        config = self.config
        m.submodules.waiting = waiting = TokenQueue(buffered_layout(config), depth=config.in_flight)
        m.submodules.plan = memory_of_plans = PartMemory(config, part=2)
        ready = Signal(buffered_layout(config))
        valid = Signal()
        plan = Signal(descriptor_parts(config)[2])
        take = Signal()
        m.d.comb += [
            waiting.begun.eq(self.begun),
            waiting.push.eq(self.push),
            waiting.i.eq(self.i),
            waiting.ripens.eq(self.ripens),
            waiting.take.eq(take),
            self.room.eq(waiting.room),
            memory_of_plans.load.eq(self.load),
            memory_of_plans.table.eq(waiting.o.table),
            take.eq(waiting.ripe & ~valid),
        ]
        with m.If(take):
            m.d.sync += ready.eq(waiting.o)
            m.d.sync += plan.eq(memory_of_plans.o)
        m.d.sync += valid.eq(take | (valid & ~self.begins))
        return ready, plan, valid, Mux(take, memory_of_plans.o.middle.tiles, plan.middle.tiles)

    def _ring(self, m: Module, next_tiles, need, begin):
        """(where the next product goes in the ring, there is room for it)"""
        head = Signal(self.config.ring_bits)
        free = Signal(self.config.ring_bits + 1, init=self.config.t_middle_lines)
        room = Signal()
        # Room is only taken by the lookup that waits here, so what was seen a cycle ago still holds.
        m.d.sync += room.eq(free > next_tiles)
        # ~n is -n - 1: one adder each.
        with m.If(begin):
            m.d.sync += head.eq((Cat(Const(1, 1), head) + Cat(Const(1, 1), need))[1:])
        with m.If(self.freed | begin):
            change = Mux(self.freed, self.freed_lines, ~Cat(need, Const(0, 1)))
            m.d.sync += free.eq((Cat(Const(1, 1), free) + Cat(self.freed, change))[1:])
        return head, room
