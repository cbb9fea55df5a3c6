"""The accesses that wait for one bank."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from hw.hotline.release import command_layout
from hw.place import Part
from hw.stream.fifo import Fifo


class BankQueue(Part):
    """Takes runs of accesses, up to one from each column of the sorted wave's places, and gives one a cycle to its
    bank, in order.

    Place p of a wave is in column p % columns; each column has a memory of its own, so that a run of up to `columns`
    places is written at once. A queue of runs says in which columns the accesses lie.
    Parameters  lanes, columns: powers of two; payload, tag: bits; depth: accesses that a column holds
    Members     i         In  a command
                i_tags    In  of the two waves
                o_select  Out  for each column which place of it the access comes from: row of places below, the wave
                    (1: the newer one) above
                i_places  In  what was selected, in the same cycle
                o         Out  {valid, tag, place}
                full      Out  a column, or the queue of runs, has fewer than MARGIN places left
    Timing      an access per cycle; four cycles from `i` to `o` if none waits, `full` four cycles after `i`
    Handshake   none: at most MARGIN further runs after `full`
    Numerics    none
    Reset       drops everything
    Golden      golden.hotline.scheduler.Scheduler                      Tests  verif/hotline/test_scheduler.py
    """

    MARGIN = 8

    def __init__(self, *, lanes: int, columns: int, payload: int, tag: int, depth: int):
        self.lanes, self.columns, self.payload, self.tag, self.depth = lanes, columns, payload, tag, depth
        self.row_bits = (lanes // columns - 1).bit_length()
        super().__init__({
            "i": In(command_layout(lanes=lanes, columns=columns)),
            "i_tags": In(data.StructLayout({"older": tag, "newer": tag})),
            "o_select": Out(data.ArrayLayout(self.row_bits + 1, columns)),
            "i_places": In(data.ArrayLayout(payload, columns)),
            "o": Out(data.StructLayout({"valid": 1, "tag": tag, "place": payload})),
            "full": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        columns = self.columns
        column_bits = (columns - 1).bit_length()

        # -- Which columns a run takes and in which row: from its start on, and round the end into the next row.
        i = self.i
        column, row = i.start[:column_bits], i.start[column_bits:]
        takes = Signal(columns)
        writes = Signal(columns)
        run_layout = data.StructLayout({"column": column_bits, "more": column_bits, "tag": self.tag})
        run = Signal(run_layout, reset_less=True)
        comes = Signal()
        for c in range(columns):
            select = Signal(self.row_bits + 1, name=f"select_{c}", reset_less=True)
            # Whether c is among the `more` columns behind the first one: six bits, one LUT.
            reached = sum(((c - first) % columns <= more) << (more << column_bits | first)
                          for more in range(columns) for first in range(columns))
            wraps = Const((1 << columns) - (2 << c), columns).bit_select(column, 1)
            m.d.comb += self.o_select[c].eq(select)
            m.d.sync += takes[c].eq(i.valid & Const(reached, columns * columns).bit_select(Cat(column, i.more), 1))
            m.d.sync += select.eq(Cat((row + wraps)[:self.row_bits], ~i.older))
        m.d.sync += [
            comes.eq(i.valid),
            run.column.eq(column),
            run.more.eq(i.more),
            run.tag.eq(Mux(i.older, self.i_tags.older, self.i_tags.newer)),
            writes.eq(takes),
        ]

        # -- The runs, and the one under way.
        m.submodules.runs = runs = Fifo(run_layout, depth=2 * self.depth, block=False, register=False,
                                        headroom=self.MARGIN + 1)
        now = Signal(run_layout, reset_less=True)
        busy = Signal()
        fetch = Signal()
        m.d.comb += [
            runs.i.payload.eq(run),
            runs.i.valid.eq(comes),
            runs.o.ready.eq(~busy | (now.more == 0)),
            fetch.eq(runs.o.valid & runs.o.ready),
        ]
        m.d.sync += busy.eq(fetch | (busy & (now.more != 0)))
        with m.If(fetch):
            m.d.sync += now.eq(runs.o.payload)
        with m.Else():
            # Up and down by one in plain LUTs: the mapper would use a carry chain of theirs for decoding, too.
            m.d.sync += [now.column[k].eq(now.column[k] ^ (now.column[:k].all() if k else 1))
                         for k in range(column_bits)]
            m.d.sync += [now.more[k].eq(now.more[k] ^ (~now.more[:k].any() if k else 1)) for k in range(column_bits)]

        # -- The accesses.
        places = []
        near = []
        near_full = Signal()
        for c in range(columns):
            store = memory.Memory(shape=self.payload, depth=self.depth, init=[], attrs={"ram_style": "distributed"})
            m.submodules[f"store_{c}"] = store
            write, read = store.write_port(), store.read_port(domain="comb")
            place = Signal(self.payload, name=f"place_{c}", reset_less=True)
            held = Signal(range(self.depth), name=f"held_{c}")
            m.d.comb += write.data.eq(place)
            m.d.comb += write.en.eq(writes[c])
            m.d.comb += held.eq(write.addr - read.addr)
            m.d.sync += place.eq(self.i_places[c])
            m.d.sync += write.addr.eq(write.addr + writes[c])
            m.d.sync += read.addr.eq(read.addr + (busy & (now.column == c)))
            places.append(read.data)
            near.append(held[3:].all())
        m.d.sync += [
            self.o.valid.eq(busy),
            self.o.tag.eq(now.tag),
            self.o.place.eq(Array(places)[now.column]),
            near_full.eq(Cat(near).any()),
        ]
        m.d.comb += self.full.eq(near_full | ~runs.room)
        return m
