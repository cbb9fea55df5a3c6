"""Lets a lane's lookups in: reads their descriptors and asks the reuse table for their first products."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from hw.attributes import KEEP
from hw.tt.config import TTConfig
from hw.tt.descriptor import PartMemory, descriptor_parts, part_layout
from hw.tt.index import slices_layout
from hw.tt.reuse import ReuseTable
from hw.tt.tokens import served_layout


def _key(slices):
    """What identifies a lookup's first product."""
    return Cat(slices.table, slices.first_index, slices.second_index)


class Admission(wiring.Component):
    """Takes a lane's lookups in order, each with room for its first product or with the one that it shares.

    A queue, a register with the descriptor, a register that asks the reuse table. Each register waits until the next
    is empty: a lookup every other cycle, and short paths.
    Source: EL-Rec §III.A

    Parameters  config: TTConfig
    Members     i_valid            In  a lookup comes; there is room for config.in_flight of them
                i                  In  a lookup of slices_layout
                taken              Out  a pulse: one of them has left the queue
                load               In  a write of hw.tt.descriptor.part_layout
                free               In  there is room behind
                serve, o           Out  a lookup of served_layout goes on
                release, released  In  a lookup is done with an entry of the reuse table
                poison, poisoned   In  marks an entry
                asked              In  an entry in use
                bad                Out  it is marked
                computed           Out  a pulse per lookup whose first product is to be computed
                reused             Out  a pulse per lookup whose first product was found
    Timing      a lookup every other cycle
    Reset       drops lookups, forgets first products
    Golden      golden.tt.sequencer          Tests  verif/tt/test_unit.py
    """

    def __init__(self, config: TTConfig):
        self.config = config
        super().__init__({
            "i_valid": In(1),
            "i": In(slices_layout(config)),
            "taken": Out(1),
            "load": In(part_layout(config)),
            "free": In(1),
            "serve": Out(1),
            "o": Out(served_layout(config)),
            "release": In(1),
            "released": In(config.entry_bits),
            "poison": In(1),
            "poisoned": In(config.entry_bits),
            "asked": In(config.entry_bits),
            "bad": Out(1),
            "computed": Out(1),
            "reused": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        slices, products = slices_layout(config), descriptor_parts(config)[2]

        m.submodules.queue = queue = fifo.SyncFIFO(width=slices.size, depth=config.in_flight)
        m.submodules.plan = plan = PartMemory(config, part=2)
        incoming = data.View(slices, queue.r_data)
        fetched = Signal(slices)
        asking = Signal(slices)
        fetched_plan = Signal(products)
        asking_plan = Signal(products)
        fetched_valid = Signal()
        asking_valid = Signal()
        fetch = Signal()
        ask = Signal()
        crowded = Signal()
        m.d.comb += [
            queue.w_data.eq(self.i),
            queue.w_en.eq(self.i_valid),
            queue.r_en.eq(fetch),
            plan.load.eq(self.load),
            plan.table.eq(incoming.table),
            ask.eq(fetched_valid & ~asking_valid & ~crowded),
            fetch.eq(queue.r_rdy & ~fetched_valid),
        ]
        m.d.sync += self.taken.eq(fetch)
        with m.If(fetch):
            m.d.sync += fetched.eq(incoming)
            m.d.sync += fetched_plan.eq(plan.o)
        m.d.sync += fetched_valid.eq(fetch | (fetched_valid & ~ask))
        with m.If(ask):
            m.d.sync += asking.eq(fetched)
            m.d.sync += asking_plan.eq(fetched_plan)
        m.d.sync += asking_valid.eq(ask | (asking_valid & ~self.serve))

        m.submodules.reuse = reuse = ReuseTable(
            entries=config.reuse_entries, findable=config.reuse_findable, lines=config.t_lines,
            key_bits=len(_key(fetched)), need_bits=(config.t_lines - 1).bit_length(),
            users_log2=config.in_flight.bit_length() + 1)
        # A chunk's rows keep what they found until the chunk's end: enough lines have to be left for all.
        m.d.comb += crowded.eq(reuse.crowded)
        present = asking_plan.first.present
        may_serve = Signal(attrs=KEEP)
        m.d.comb += [
            reuse.next_key.eq(_key(fetched)),
            reuse.next_need.eq(fetched_plan.first.tiles),
            reuse.advance.eq(ask),
            reuse.ask.eq(asking_valid & present),
            reuse.key.eq(_key(asking)),
            reuse.need_less_one.eq(asking_plan.first.tiles),
            reuse.release.eq(self.release),
            reuse.released.eq(self.released),
            reuse.poison.eq(self.poison),
            reuse.poisoned.eq(self.poisoned),
            may_serve.eq(asking_valid & self.free),
            reuse.may_take.eq(may_serve & present),
            self.serve.eq(may_serve & (~present | reuse.grant)),
            reuse.asked.eq(self.asked),
            self.bad.eq(reuse.bad),
            self.computed.eq(self.serve & present & ~reuse.hit),
            self.reused.eq(self.serve & present & reuse.hit),
        ]

        token = self.o.token
        m.d.comb += [
            self.o.plan.eq(asking_plan.first),
            self.o.skips.eq(~present | reuse.hit),
            self.o.held.eq(asking.first),
            token.table.eq(asking.table),
            token.outside.eq(asking.outside),
            token.buffered.eq(present),
            token.entry.eq(reuse.entry),
            token.base.eq(reuse.base),
            token.middle.eq(asking.middle),
            token.last.eq(asking.last),
            token.second.eq(asking.second),
            token.end.eq(asking.end),
        ]
        return m
