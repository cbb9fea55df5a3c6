"""Where the rows of a chunk lie, and which of them takes the next issue slot."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out


def row_layout(*, held_bits: int, running_bits: int, entry_bits: int) -> data.StructLayout:
    """A row of a chunk: where its lines and its slice of the last core begin; its entry of the reuse table."""
    return data.StructLayout({"held": held_bits, "running": running_bits, "entry": entry_bits})


class ChunkRows(wiring.Component):
    """Collects the rows of chunks and walks those of one chunk over and over, a row a slot.

    Three chunks have room: one that runs, one that waits, one that gathers.

    Parameters  rows_log2: log2 of the rows of a chunk at most; shape: row_layout
    Members     put, i, end  In  one more row, the chunk's last
                count        Out  the rows of its chunk before it
                load, rows   In  the oldest chunk that waits begins, of so many rows, less one
                step         In  this row has its slot
                final        In  the walk that is on is the chunk's last
                o            Out  this slot's row
                first, last  Out  it is the chunk's first, last row
    Timing      a row per cycle, also from chunk to chunk; no output depends on an input of the same cycle
    Reset       drops all rows
    Golden      golden.tt.sequencer          Tests  verif/tt/test_unit.py
    """

    def __init__(self, *, rows_log2: int, shape: data.StructLayout):
        self.rows_log2 = rows_log2
        self.shape = shape
        super().__init__({
            "put": In(1), "i": In(shape), "end": In(1), "count": Out(rows_log2),
            "load": In(1), "rows": In(rows_log2),
            "step": In(1), "final": In(1),
            "o": Out(shape), "first": Out(1), "last": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        depth = 4 << self.rows_log2
        store = memory.Memory(shape=self.shape.size, depth=depth, init=[])
        m.submodules.store = store
        write, read = store.write_port(), store.read_port(domain="comb")
        tail = Signal(range(depth))
        m.d.comb += write.addr.eq(tail)
        m.d.comb += write.data.eq(self.i)
        m.d.comb += write.en.eq(self.put)
        with m.If(self.put):
            m.d.sync += tail.eq(tail + 1)
            m.d.sync += self.count.eq(Mux(self.end, 0, self.count + 1))

        # Chunks lie one behind the other: after a chunk's last walk comes the next one's first row.
        ahead = Signal(range(depth))
        back = Signal(range(depth))
        limit = Signal(self.rows_log2)
        left = Signal(self.rows_log2)
        ends = Signal()
        m.d.comb += read.addr.eq(Mux(self.last & ~self.final, back, ahead))
        m.d.comb += ends.eq(self.last & self.final)
        with m.If(self.load | (self.step & ~ends)):
            m.d.sync += self.o.eq(read.data)
            m.d.sync += ahead.eq(read.addr + 1)
        with m.If(self.load):
            m.d.sync += [
                back.eq(ahead),
                limit.eq(self.rows),
                left.eq(self.rows),
                self.last.eq(self.rows == 0),
                self.first.eq(1),
            ]
        with m.Elif(self.step):
            with m.If(self.last):
                m.d.sync += left.eq(limit)
                m.d.sync += self.last.eq((limit == 0) & ~self.final)
                m.d.sync += self.first.eq(1)
            with m.Else():
                m.d.sync += left.eq(left - 1)
                m.d.sync += self.last.eq(left == 1)
                m.d.sync += self.first.eq(0)
        return m
