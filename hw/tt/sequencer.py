"""Turns a lane's lookups into issue slots: which operands meet in the grid, and where the results go."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, fifo, memory, wiring
from amaranth.lib.wiring import In, Out

from hw.tt.chunks import ChunkRows, row_layout
from hw.tt.config import TTConfig
from hw.tt.descriptor import descriptor_parts
from hw.tt.index import slices_layout
from hw.tt.reuse import ReuseTable
from hw.tt.stage import LoopMachine

__all__ = ["Sequencer", "slot_layout"]

FIRST, MIDDLE, LAST = range(3)


def slot_layout(config: TTConfig) -> data.StructLayout:
    """One issue slot.

    stage: which product. x, y: operand addresses. lines: y comes from the intermediate buffer, of ring `ring`;
    paired: y is a pair of lines. rows: bits of the sub-dot number that the X address gives. columns, turn: bits
    of the sub-dot number that `turn` replaces on the Y side. first, last: of a tile. write, swap: where and how
    the tile goes to the buffer. begin, ends (with pooling), turned, columns_log2, combine, bad, keep or tail, beats:
    of a vector.
    """
    n = config.grid_log2
    if config.pool_log2:
        of_vector = {"ends": 1, "tail": 2 * n}
    else:
        of_vector = {"keep": (config.keep_lines - 1).bit_length()}
    return data.StructLayout({
        "stage": 2,
        "x": config.x_bits,
        "y": max(config.y_bits, config.t_bits),
        "lines": 1,
        "ring": 1,
        "paired": 1,
        "rows": n,
        "columns": n,
        "turn": n,
        "first": 1,
        "last": 1,
        "write": config.t_bits,
        "swap": 1,
        "entry": (config.reuse_entries - 1).bit_length(),
        "ticket": config.in_flight.bit_length(),
        "begin": 1,
        "turned": 1,
        "columns_log2": 2,
        "combine": 2,
        "bad": 1,
        **of_vector,
        "beats": 10,
    })


class Sequencer(wiring.Component):
    """Schedules the products of a lane's lookups onto its grid.

    A lookup passes first, middle and last product in order; each has a loop machine, and whenever a tile ends
    the earliest product that can start takes the grid. Between products a lookup waits until its lines are
    written. A first product that is still in the buffer is not computed again.
    Source: SCRec §III.E Alg. 1; EL-Rec §III.B

    Parameters  config: TTConfig; distance: least number of cycles from the slot that ends a product to the first
                slot that reads its lines
    Members     i_valid            In  a lookup comes; there is room for config.in_flight of them
                i                  In  a lookup of slices_layout
                taken              Out  a pulse: one of them has left the queue
                o_valid, o         Out  an issue slot of slot_layout
                hold               In  no tile may begin this cycle
                open               Out  the grid is between tiles (a load may take the slot)
                write, part, table, words  In  loads descriptor parts 2 and 3
                returned           In  beats that left the output buffer this cycle
                error, error_slot  In  a slot whose operands could not be corrected
                computed           Out  a pulse per lookup whose first product was computed
                reused             Out  a pulse per lookup whose first product was found
    Timing      one slot a cycle, a lookup every other cycle; 6 cycles from i to the first slot, `distance` + 3
                more to the last product's
    Handshake   `taken` comes from a register, a cycle after the lookup has left
    Reset       drops lookups, forgets first products
    Golden      golden.tt.cycles          Tests  verif/tt/test_unit.py
    """

    def __init__(self, config: TTConfig, *, distance: int):
        self.config = config
        self.distance = distance
        parts = descriptor_parts(config)
        # Beats of vectors that the output has room for, or with pooling whole vectors.
        self._credits = config.vectors if config.pool_log2 else config.output_beats
        self._entry_bits = (config.reuse_entries - 1).bit_length()
        super().__init__({
            "i_valid": In(1),
            "i": In(slices_layout(config)),
            "taken": Out(1),
            "o_valid": Out(1),
            "o": Out(slot_layout(config)),
            "hold": In(1),
            "open": Out(1),
            "write": In(1),
            "part": In(2),
            "table": In((config.tables - 1).bit_length()),
            "words": In(max(parts[2].size, parts[3].size)),
            "returned": In(1 if config.pool_log2 else 2),
            "error": In(1),
            "error_slot": In(slot_layout(config)),
            "computed": Out(1),
            "reused": Out(1),
        })

    def key(self) -> str:
        return f"Sequencer({self.config.key()},distance={self.distance})"

    def _descriptor(self, m: Module, name: str, number: int, table):
        """A table's descriptor part, read asynchronously."""
        layout = descriptor_parts(self.config)[number]
        store = memory.Memory(shape=layout.size, depth=self.config.tables, init=[])
        m.submodules[name] = store
        write, read = store.write_port(), store.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(self.table),
            write.data.eq(self.words),
            write.en.eq(self.write & (self.part == number)),
            read.addr.eq(table),
        ]
        return data.View(layout, read.data)

    def elaborate(self, platform):
        m = Module()
        config = self.config
        in_flight = config.in_flight
        products = descriptor_parts(config)[2]
        last_part = descriptor_parts(config)[3]
        wide_y = max(config.y_bits, config.t_bits)
        delay = self.distance - 3
        if delay < 1:
            raise ValueError(f"distance must be at least 4, not {self.distance}")

        # -- Lookups in; a register with the descriptor; a register that asks the reuse table.
        m.submodules.queue = queue = fifo.SyncFIFO(width=slices_layout(config).size, depth=in_flight)
        incoming = data.View(slices_layout(config), queue.r_data)
        m.d.comb += queue.w_data.eq(self.i)
        m.d.comb += queue.w_en.eq(self.i_valid)

        fetched, asking = Signal(slices_layout(config)), Signal(slices_layout(config))
        fetched_plan, asking_plan = Signal(products), Signal(products)
        fetched_valid, asking_valid = Signal(), Signal()
        fetch, ask, serve = Signal(), Signal(), Signal()
        crowded = Signal()
        # Each register waits until the next is empty: a lookup every other cycle, and short paths.
        m.d.comb += ask.eq(fetched_valid & ~asking_valid & ~crowded)
        m.d.comb += fetch.eq(queue.r_rdy & ~fetched_valid)
        m.d.comb += queue.r_en.eq(fetch)
        m.d.sync += self.taken.eq(fetch)
        plan = self._descriptor(m, "plan", 2, incoming.table)
        with m.If(fetch):
            m.d.sync += fetched.eq(incoming)
            m.d.sync += fetched_plan.eq(plan)
        m.d.sync += fetched_valid.eq(fetch | (fetched_valid & ~ask))
        with m.If(ask):
            m.d.sync += asking.eq(fetched)
            m.d.sync += asking_plan.eq(fetched_plan)
        m.d.sync += asking_valid.eq(ask | (asking_valid & ~serve))

        def key_of(slices):
            return Cat(slices.table, slices.first_index, slices.second_index)

        m.submodules.reuse = reuse = ReuseTable(
            entries=config.reuse_entries, lines=config.t_lines, key_bits=len(key_of(fetched)),
            need_bits=(config.t_lines - 1).bit_length(), users_log2=in_flight.bit_length() + 1)
        if config.pool_log2:
            # A chunk's rows keep what they found until the chunk's end: enough lines have to be left for all.
            m.d.comb += crowded.eq(reuse.crowded)
        present = asking_plan.first.present
        first_free, first_room, may_serve = Signal(), Signal(), Signal(attrs={"keep": 1})
        m.d.comb += [
            reuse.next_key.eq(key_of(fetched)),
            reuse.advance.eq(ask),
            reuse.key.eq(key_of(asking)),
            reuse.need_less_one.eq(asking_plan.first.tiles),
            reuse.next_need.eq(fetched_plan.first.tiles),
            reuse.ask.eq(asking_valid & present),
            may_serve.eq(asking_valid & first_free & first_room),
            reuse.may_take.eq(may_serve & present),
            serve.eq(may_serve & (~present | reuse.grant)),
            self.computed.eq(serve & present & ~reuse.hit),
            self.reused.eq(serve & present & reuse.hit),
        ]

        # -- First product.
        chunk_end = {"end": 1} if config.pool_log2 else {}
        token = data.StructLayout({
            "table": len(asking.table), "outside": 1, "buffered": 1, "entry": self._entry_bits,
            "base": len(reuse.base), "middle": config.x_bits, "last": config.x_bits, "second": config.y_bits,
            **chunk_end,
        })
        machines = [
            LoopMachine(held_bits=config.x_bits, running_bits=config.y_bits),
            LoopMachine(held_bits=wide_y, running_bits=config.x_bits),
            LoopMachine(held_bits=wide_y, running_bits=config.x_bits),
        ]
        for name, machine in zip(("first", "middle", "last"), machines, strict=True):
            # In line, not shared: its logic and the arbitration are mapped together.
            m.submodules[f"{name}_loops"] = machine
        first, middle, last = machines
        first_ends, middle_ends, last_ends = (machine.go & machine.ends for machine in machines)

        # A register for the lookup that is next, so that the machine goes from job to job without a gap.
        served = data.StructLayout({"token": token, "plan": asking_plan.first.shape(),
                                    "skips": 1, "held": config.x_bits})
        pending, pending_valid = Signal(served), Signal()
        comes = Signal(served)
        begin_first, to_pending = Signal(), Signal()
        m.d.comb += [
            comes.plan.eq(asking_plan.first),
            comes.skips.eq(~present | reuse.hit),
            comes.held.eq(asking.first),
            comes.token.table.eq(asking.table),
            comes.token.outside.eq(asking.outside),
            comes.token.buffered.eq(present),
            comes.token.entry.eq(reuse.entry),
            comes.token.base.eq(reuse.base),
            comes.token.middle.eq(asking.middle),
            comes.token.last.eq(asking.last),
            comes.token.second.eq(asking.second),
        ]
        if config.pool_log2:
            # While the array is with a chunk's tile, which nothing interrupts, the rows behind it are served, so that
            # their first products follow each other without a gap.
            m.submodules.served = queue = fifo.SyncFIFO(width=served.size, depth=1 << config.pool_log2)
            m.d.comb += [
                comes.token.end.eq(asking.end),
                queue.w_data.eq(comes),
                queue.w_en.eq(serve),
                first_free.eq(queue.w_rdy),
                to_pending.eq(queue.r_rdy & (~pending_valid | begin_first)),
                queue.r_en.eq(to_pending),
            ]
            following = data.View(served, queue.r_data)
        else:
            m.d.comb += first_free.eq(~pending_valid)
            m.d.comb += to_pending.eq(serve)
            following = comes
        m.d.sync += pending_valid.eq(to_pending | (pending_valid & ~begin_first))
        with m.If(to_pending):
            m.d.sync += pending.eq(following)

        first_token, first_valid, first_skips = Signal(token), Signal(), Signal()
        first_paired, first_swap, first_wide = Signal(), Signal(), Signal()
        first_write = Signal(config.t_bits)
        first_done = Signal()
        m.d.comb += [
            first_done.eq(first_valid & (first_skips | first_ends)),
            begin_first.eq(pending_valid & (~first_valid | first_done)),
            first.load.eq(begin_first & ~pending.skips),
            first.job.tiles.eq(pending.plan.tiles),
            first.job.blocks.eq(pending.plan.blocks),
            first.job.lines.eq(pending.plan.lines),
            first.job.held.eq(pending.held),
            first.job.running.eq(pending.token.second),
        ]
        m.d.sync += first_valid.eq(begin_first | (first_valid & ~first_done))
        with m.If(begin_first):
            m.d.sync += [
                first_skips.eq(pending.skips),
                first_token.eq(pending.token),
                first_paired.eq(pending.plan.paired),
                first_swap.eq(pending.plan.swap),
                first_wide.eq(pending.plan.wide),
                first_write.eq(pending.token.base),
            ]
        with m.Elif(first.go & first.last):
            m.d.sync += first_write.eq(first_write + 1)

        # -- Middle product, or straight past it.
        pulses_1 = Signal(delay)
        m.d.sync += pulses_1.eq(Cat(first_done, pulses_1[:-1]))
        to_middle, middle_room, ripe_1, take_middle = self._waiting(
            m, "to_middle", token, first_token, first_done, serve, pulses_1[-1])
        m.d.comb += first_room.eq(middle_room)

        ready, ready_valid, ready_plan = Signal(token), Signal(), Signal(products)
        begin_middle = Signal()
        m.d.comb += take_middle.eq(ripe_1 & ~ready_valid)
        plan = self._descriptor(m, "plan_middle", 2, to_middle.table)
        with m.If(take_middle):
            m.d.sync += ready.eq(to_middle)
            m.d.sync += ready_plan.eq(plan)
        m.d.sync += ready_valid.eq(take_middle | (ready_valid & ~begin_middle))

        ring_bits = (config.t_middle_lines - 1).bit_length()
        ring_head = Signal(ring_bits)
        ring_free = Signal(ring_bits + 1, init=config.t_middle_lines)
        freed, freed_lines = Signal(), Signal(ring_bits + 1)
        has_middle = ready_plan.middle_present
        token_2 = data.StructLayout({
            "table": len(asking.table), "outside": 1, "buffered": 1, "entry": self._entry_bits,
            "ring": 1, "base": wide_y, "last": config.x_bits,
            "ticket": in_flight.bit_length(), "lines": ring_bits,
            **chunk_end,
        })
        middle_token, middle_valid, middle_skips = Signal(token_2), Signal(), Signal()
        middle_done, last_room = Signal(), Signal()
        middle_write = Signal(ring_bits)
        pulses_2 = Signal(delay)
        ticket = Signal(in_flight.bit_length())
        need = ready_plan.middle.tiles[:ring_bits]
        quiet, ring_room = Signal(init=1), Signal()
        # Room is only taken by the lookup that waits here, so what was seen a cycle ago still holds.
        m.d.sync += ring_room.eq(ring_free > Mux(take_middle, plan.middle.tiles, ready_plan.middle.tiles))
        base_2 = Mux(ready.buffered, ready.base, ready.second)
        m.d.comb += [
            middle_done.eq(middle_valid & Mux(middle_skips, quiet, middle_ends)),
            begin_middle.eq(ready_valid & ~middle_valid & last_room
                            & (~has_middle | (~freed & ring_room))),
            middle.load.eq(begin_middle & has_middle),
            middle.job.running.eq(ready.middle),
            middle.job.held.eq(base_2),
        ]
        self._steps(m, middle.job, ready_plan.middle)
        m.d.sync += middle_valid.eq(begin_middle | (middle_valid & ~middle_done))
        with m.If(begin_middle):
            m.d.sync += [
                middle_skips.eq(~has_middle),
                middle_token.table.eq(ready.table),
                middle_token.outside.eq(ready.outside),
                middle_token.buffered.eq(ready.buffered),
                middle_token.entry.eq(ready.entry),
                middle_token.ring.eq(has_middle),
                middle_token.base.eq(Mux(has_middle, ring_head, base_2)),
                middle_token.last.eq(ready.last),
                middle_token.ticket.eq(ticket),
                middle_token.lines.eq(need),
                middle_write.eq(ring_head),
                ticket.eq(ticket + 1),
            ]
            if config.pool_log2:
                m.d.sync += middle_token.end.eq(ready.end)
        with m.Elif(middle.go & middle.last):
            m.d.sync += middle_write.eq(middle_write + 1)
        # ~n is -n - 1: one adder each.
        with m.If(begin_middle & has_middle):
            m.d.sync += ring_head.eq((Cat(Const(1, 1), ring_head) + Cat(Const(1, 1), need))[1:])
        with m.If(freed | (begin_middle & has_middle)):
            change = Mux(freed, freed_lines, ~Cat(need, Const(0, 1)))
            m.d.sync += ring_free.eq((Cat(Const(1, 1), ring_free) + Cat(freed, change))[1:])
        middle_columns, middle_combine, middle_ranks = Signal(2), Signal(2), Signal(config.grid_log2)
        with m.If(begin_middle):
            m.d.sync += middle_columns.eq(ready_plan.middle.columns_log2)
            m.d.sync += middle_combine.eq(ready_plan.middle.combine)
            m.d.sync += middle_ranks.eq(ready_plan.middle.ranks)

        # -- Last product.
        to_last, last_room_, ripe_2, take_last = self._waiting(
            m, "to_last", token_2, middle_token, middle_done, begin_middle,
            pulses_2[-1] | (middle_done & middle_skips))
        m.d.comb += last_room.eq(last_room_)
        m.d.sync += pulses_2.eq(Cat(middle_done & ~middle_skips, pulses_2[:-1]))
        m.d.sync += quiet.eq(~(middle_done & ~middle_skips) & (pulses_2[:-1] == 0))

        inside, owner = Signal(), Signal(3)
        # What a row's memory errors left behind.
        ticket_bad = Signal(2 * in_flight)
        with m.If(begin_middle):
            m.d.sync += ticket_bad.bit_select(ticket, 1).eq(0)
        with m.If(self.error & (self.error_slot.stage == MIDDLE)):
            m.d.sync += ticket_bad.bit_select(self.error_slot.ticket, 1).eq(1)
        m.d.comb += reuse.poison.eq(self.error & (self.error_slot.stage == FIRST))
        m.d.comb += reuse.poisoned.eq(self.error_slot.entry)

        final, final_valid, final_plan = Signal(token_2), Signal(), Signal(last_part)
        final_bad = Signal()
        plan = self._descriptor(m, "plan_last", 3, to_last.table)
        with m.If(take_last):
            m.d.sync += final.eq(to_last)
            m.d.sync += final_plan.eq(plan)
        m.d.comb += final_bad.eq(final.outside | (final.buffered & Array(reuse.bad)[final.entry])
                                 | Array(ticket_bad)[final.ticket])
        begin_last, last_go = Signal(), Signal()
        credits, has_credit = Signal(range(self._credits + 1), init=self._credits), Signal(init=1)
        m.d.comb += last.load.eq(begin_last)
        if config.pool_log2:
            # Rows gather to chunks; the machine runs once a chunk, each of its steps for all rows.
            rows = ChunkRows(pool_log2=config.pool_log2, shape=row_layout(
                held_bits=wide_y, running_bits=config.x_bits, entry_bits=self._entry_bits))
            m.submodules.rows = rows
            chunk = data.StructLayout({
                "plan": last_part, "rows": config.pool_log2, "bad": 1, "buffered": 1, "ring": 1, "lines": ring_bits})
            gathered, gathered_valid = Signal(chunk), Signal()
            gathered_bad, moves = Signal(), Signal()
            m.d.comb += [
                moves.eq(final_valid & ~(final.end & gathered_valid)),
                take_last.eq(ripe_2 & (~final_valid | moves)),
                rows.put.eq(moves),
                rows.end.eq(final.end),
                rows.i.held.eq(final.base),
                rows.i.running.eq(final.last),
                rows.i.entry.eq(final.entry),
            ]
            m.d.sync += final_valid.eq(take_last | (final_valid & ~moves))
            m.d.sync += gathered_valid.eq((moves & final.end) | (gathered_valid & ~begin_last))
            with m.If(moves):
                m.d.sync += gathered_bad.eq((gathered_bad | final_bad) & ~final.end)
            with m.If(moves & final.end):
                m.d.sync += [
                    gathered.plan.eq(final_plan),
                    gathered.rows.eq(rows.count),
                    gathered.bad.eq(gathered_bad | final_bad),
                    gathered.buffered.eq(final.buffered),
                    gathered.ring.eq(final.ring),
                    gathered.lines.eq(final.lines),
                ]
            current = Signal(chunk)
            current_plan, current_bad, released = current.plan, current.bad, rows.o.entry
            # Tiles may end every n-th cycle: those of so many slots do by themselves, before others the array rests.
            long, calm = Signal(), Signal(init=1)
            rest = Signal(range(config.side))
            side_less_one = config.side - 1
            tile_done = Signal()
            m.d.comb += [
                begin_last.eq(gathered_valid & has_credit & (~last.busy | last_ends)),
                last.go.eq(last_go & rows.last),
                rows.load.eq(begin_last),
                rows.rows.eq(gathered.rows),
                rows.step.eq(last_go),
                rows.final.eq(last.ends),
                tile_done.eq(last.last & rows.last),
            ]
            self._steps(m, last.job, gathered.plan)
            with m.If(begin_last):
                m.d.sync += current.eq(gathered)
                m.d.sync += long.eq((gathered.rows >= side_less_one) | (gathered.plan.lines >= side_less_one)
                                    | ((gathered.rows != 0) & (gathered.plan.lines != 0)))
            with m.If(last_go & tile_done):
                m.d.sync += rest.eq(side_less_one)
                m.d.sync += calm.eq(0)
            with m.Elif(rest != 0):
                m.d.sync += rest.eq(rest - 1)
                m.d.sync += calm.eq(rest == 1)
            wants_last = last.busy & (calm | long)
            m.d.sync += credits.eq(credits - begin_last + self.returned)
            m.d.sync += has_credit.eq(credits != 0)
        else:
            current, current_plan, current_bad = Signal(token_2), Signal(last_part), Signal()
            released = current.entry
            tile_done = last.last
            m.d.comb += [
                take_last.eq(ripe_2 & ~final_valid),
                begin_last.eq(final_valid & (~last.busy | last_ends)),
                last.go.eq(last_go),
                last.job.running.eq(final.last),
                last.job.held.eq(final.base),
            ]
            m.d.sync += final_valid.eq(take_last | (final_valid & ~begin_last))
            self._steps(m, last.job, final_plan)
            with m.If(begin_last):
                m.d.sync += current.eq(final)
                m.d.sync += current_plan.eq(final_plan)
                m.d.sync += current_bad.eq(final_bad)
            # The second beat of a pair of tiles takes the cycle after them, unless a pair of tiles follows.
            waits = Signal()
            m.d.sync += waits.eq(last_ends & current_plan.turned & final_valid & ~final_plan.turned)
            wants_last = last.busy & has_credit & ~waits
            # A tile reserves its beat with its first slot; the flag lags, so one beat stays in reserve.
            takes = last_go & ~inside
            m.d.sync += credits.eq(credits - takes + self.returned)
            m.d.sync += has_credit.eq(credits > 1)
        # A row is done with its lines when the last slot that reads them is decided.
        row_ends = Signal()
        m.d.comb += row_ends.eq(last_go & last.ends)
        m.d.comb += reuse.release.eq(row_ends & current.buffered)
        m.d.comb += reuse.released.eq(released)
        m.d.sync += freed.eq(row_ends & current.ring)
        m.d.sync += freed_lines.eq(current.lines)

        # -- Who gets the slot: a tile is never interrupted; at its end the earliest product goes first, so
        # that work for the last one, which can start every cycle, never runs out.
        free = ~inside & ~self.hold
        wanted = Signal()
        m.d.comb += [
            wanted.eq(wants_last),
            self.open.eq(~inside),
            first.go.eq(Mux(inside, owner[FIRST], free & first.busy)),
            middle.go.eq(Mux(inside, owner[MIDDLE], free & middle.busy & ~first.busy)),
            last_go.eq(Mux(inside, owner[LAST], free & wanted & ~first.busy & ~middle.busy)),
        ]
        granted = Cat(first.go, middle.go, last_go)
        with m.If(granted.any()):
            m.d.sync += inside.eq(~(granted & Cat(first.last, middle.last, tile_done)).any())
            m.d.sync += owner.eq(granted)

        # -- The slot.
        slot = Signal(slot_layout(config))
        bits = config.grid_log2
        all_rows = Const((1 << bits) - 1, bits)
        m.d.sync += self.o_valid.eq(granted.any())
        m.d.sync += self.o.eq(slot)
        with m.Switch(granted):
            with m.Case(1 << FIRST):
                m.d.comb += [
                    slot.x.eq(first.held),
                    slot.y.eq(first.running),
                    slot.paired.eq(first_paired),
                    slot.rows.eq(Mux(first_wide, all_rows >> 1, all_rows)),
                    slot.first.eq(first.first),
                    slot.last.eq(first.last),
                    slot.write.eq(first_write),
                    slot.swap.eq(first_swap),
                    slot.entry.eq(first_token.entry),
                    slot.combine.eq(first_wide),
                ]
            with m.Case(1 << MIDDLE):
                m.d.comb += [
                    slot.stage.eq(MIDDLE),
                    slot.x.eq(middle.running),
                    slot.y.eq(middle.held),
                    slot.lines.eq(1),
                    slot.first.eq(middle.first),
                    slot.last.eq(middle.last),
                    slot.write.eq(middle_write),
                    slot.ring.eq(0),
                    slot.ticket.eq(middle_token.ticket),
                    slot.columns_log2.eq(middle_columns),
                    slot.combine.eq(middle_combine),
                ]
                self._roles(m, slot, middle_columns, middle_ranks, middle)
            with m.Case(1 << LAST):
                m.d.comb += [
                    slot.stage.eq(LAST),
                    slot.lines.eq(current.buffered),
                    slot.ring.eq(current.ring),
                    slot.turned.eq(current_plan.turned),
                    slot.columns_log2.eq(current_plan.columns_log2),
                    slot.combine.eq(current_plan.combine),
                    slot.bad.eq(current_bad),
                    slot.beats.eq(current_plan.beats),
                ]
                if config.pool_log2:
                    m.d.comb += [
                        slot.x.eq(last.running + rows.o.running),
                        slot.y.eq(last.held + rows.o.held),
                        slot.first.eq(last.first & rows.first),
                        slot.last.eq(tile_done),
                        slot.begin.eq(last.begin & rows.first),
                        slot.ends.eq(last.ends & rows.last),
                        slot.tail.eq(current_plan.tail),
                    ]
                else:
                    m.d.comb += [
                        slot.x.eq(last.running),
                        slot.y.eq(last.held),
                        slot.first.eq(last.first),
                        slot.last.eq(last.last),
                        slot.begin.eq(last.begin),
                        slot.keep.eq(current_plan.keep),
                    ]
                self._roles(m, slot, current_plan.columns_log2, current_plan.ranks, last)
        return m

    def _waiting(self, m: Module, name: str, layout, token, done, begun, ripens):
        """Tokens between two products: (head, room for one more to begin, the head is ripe, take).

        Room was seen when a token's lookup began, and only what is ripe is taken: the queue needs no level.
        """
        depth = self.config.in_flight
        m.submodules[name] = store = memory.Memory(shape=layout.size, depth=depth, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        take = Signal(name=f"take_{name}")
        head, tail = (Signal(range(depth), name=f"{end}_{name}") for end in ("head", "tail"))
        # From `begun` on, and of those the ripe ones; what is asked of the numbers comes from registers.
        count, ripe = (Signal(range(depth + 1), name=f"{kind}_{name}") for kind in ("count", "ripe"))
        room, some = Signal(name=f"room_{name}", init=1), Signal(name=f"some_{name}")
        m.d.comb += [
            write.data.eq(token),
            write.addr.eq(tail),
            write.en.eq(done),
            read.addr.eq(head),
        ]
        m.d.sync += [
            tail.eq(tail + done),
            head.eq(head + take),
            count.eq(count + begun - take),
            ripe.eq(ripe + ripens - take),
            room.eq(Mux(room, ~((count == depth - 1) & begun & ~take), take)),
            some.eq(ripens | (some & ~((ripe == 1) & take))),
        ]
        return data.View(layout, read.data), room, some, take

    def _steps(self, m: Module, job, plan):
        """Fills a job's loops from a descriptor's step."""
        by_row, by_rank = self._turning(plan.columns_log2, plan.ranks)
        m.d.comb += [
            job.tiles.eq(plan.tiles),
            job.blocks.eq(plan.blocks),
            job.groups.eq(plan.groups),
            job.lines.eq(plan.lines),
            job.row_turns.eq(by_row),
            job.rank_turns.eq(by_rank),
        ]

    def _columns(self, columns_log2):
        """Which sub-dot bits stand for columns, low to high; the low one is the first to."""
        if self.config.grid_log2 == 1:
            return [columns_log2 != 0]
        return [columns_log2 != 0, columns_log2 == 2]

    def _turning(self, columns_log2, ranks):
        """Row turns and rank turns, less one: column bits whose place in the line time has to take."""
        columns = self._columns(columns_log2)
        row_bits = [is_column & ~rank for is_column, rank in zip(columns, ranks, strict=True)]
        rank_bits = [is_column & rank for is_column, rank in zip(columns, ranks, strict=True)]
        return tuple(Cat(Cat(bits).any(), Cat(bits).all() if len(bits) == 2 else Const(0, 1))
                     for bits in (row_bits, rank_bits))

    def _roles(self, m: Module, slot, columns_log2, ranks, machine):
        columns = self._columns(columns_log2)
        m.d.comb += slot.columns.eq(Cat(columns))
        m.d.comb += slot.rows.eq(Cat(~is_column & ~rank for is_column, rank in zip(columns, ranks, strict=True)))
        if self.config.grid_log2 == 1:
            m.d.comb += slot.turn.eq(Mux(ranks, machine.rank_turn, machine.row_turn))
            return
        # Of two turning bits of one kind the high one turns faster.
        low, high = ranks[0], ranks[1]
        both = columns[1] & (low == high)
        turn = [Mux(rank, machine.rank_turn, machine.row_turn) for rank in (low, high)]
        m.d.comb += slot.turn.eq(Cat(Mux(both, turn[0][1], turn[0][0]), turn[1][0]))
