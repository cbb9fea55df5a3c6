"""The serial TT unit's control: row numbers split ahead, and the walk through products and tiles."""

from typing import NamedTuple

from amaranth.hdl import Cat, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.tt.index import IndexSplitter, lookup_layout, slices_layout
from hw.tt.serial_config import (
    SerialConfig,
    Splitting,
    Target,
    job_layout,
    load_layout,
    shape_layout,
    tile_bits,
    tiles_less_one,
    word_bits,
)


class Front(wiring.Component):
    """Splits row numbers ahead of their turn and queues what was split, with the table's shape.

    Members     i_lookups         In(stream)  table and row number
                load_valid, load  In  a write of hw.tt.serial_config.load_layout
                job_valid, job    Out  the oldest lookup, of job_layout
                take              In  the job goes
    Golden      golden.tt.serial          Tests  verif/tt/test_serial.py
    """

    def __init__(self, config: SerialConfig):
        self.config = config
        super().__init__({
            "i_lookups": In(stream.Signature(lookup_layout(Splitting(config)))),
            "load": In(load_layout(config)), "load_valid": In(1),
            "job": Out(job_layout(config)), "job_valid": Out(1), "take": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.splitter = splitter = IndexSplitter(Splitting(config))
        slices = slices_layout(Splitting(config))
        m.submodules.queue = queue = fifo.SyncFIFO(width=slices.size, depth=config.in_flight)
        m.submodules.shapes = shapes = memory.Memory(
            shape=shape_layout(config).size, depth=config.tables, init=[])
        write, read = shapes.write_port(), shapes.read_port(domain="comb")

        # The splitter cannot wait, so a lookup is let in only if the queue has room for it.
        room = Signal(range(config.in_flight + 1), init=config.in_flight)
        taken = Signal()
        m.d.comb += [
            self.i_lookups.ready.eq(room != 0),
            taken.eq(self.i_lookups.valid & self.i_lookups.ready),
            splitter.i.eq(self.i_lookups.payload),
            splitter.i_valid.eq(taken),
            queue.w_data.eq(splitter.o),
            queue.w_en.eq(splitter.o_valid),
            queue.r_en.eq(self.take),
        ]
        m.d.sync += room.eq(room - taken + self.take)

        to_table = self.load_valid & (self.load.target == Target.TABLE) & ~ResetSignal()
        m.d.comb += [
            splitter.write.eq(to_table & (self.load.part != 2)),
            splitter.part.eq(self.load.part),
            splitter.table.eq(self.load.address),
            splitter.words.eq(self.load.data),
            write.en.eq(to_table & (self.load.part == 2)),
            write.addr.eq(self.load.address),
            write.data.eq(self.load.data),
        ]
        head = slices(queue.r_data)
        m.d.comb += [
            read.addr.eq(head.table),
            self.job.slices.eq(head),
            self.job.plan.eq(read.data),
            self.job_valid.eq(queue.r_rdy),
        ]
        return m


class _Ahead(NamedTuple):
    """Where to go on after a tile: at the next product, its C slice and its sizes; or at the next row of tiles, its
    first word and line of the intermediate, from the C slice that the product under way has here."""

    product: Value
    c_line: Value
    step: data.View
    here: Value
    row: Value
    b_line: Value


class Control(wiring.Component):
    """Walks through a lookup's products and tiles: issues a tile's beats, waits for its drain, goes on.

    Members     job_valid, job  In  the next lookup, of job_layout
                take            Out  the job goes
                tile_done       In  the last row of the tile has left the array
                start           Out  a pulse: a tile begins
                finish          Out  a pulse: the lookup's last tile is done
                issue           Out  bit 0: a beat's address is out; bit 1: it is the tile's last beat
                a_line, c_line  Out  the beat's lines of A and C memory
                b_line          Out  the tile's first line of the intermediate
                b_turn          Out  b_line plus the beat
                product         Out  number of the product under way
                last_product    Out  it is the lookup's last
                step            Out  its sizes
                live_rows       Out  rows of the tile that exist
                line_word       Out  the tile's first word in its result
    Golden      golden.tt.serial          Tests  verif/tt/test_serial.py
    """

    def __init__(self, config: SerialConfig):
        self.config = config
        line_bits = max(config.a_bits, config.c_bits)
        shape = shape_layout(config)
        super().__init__({
            "job": In(job_layout(config)), "job_valid": In(1), "take": Out(1),
            "tile_done": In(1), "start": Out(1), "finish": Out(1),
            "issue": Out(2),
            "a_line": Out(line_bits), "c_line": Out(line_bits),
            "b_line": Out((config.b_lines - 1).bit_length()),
            "b_turn": Out((config.columns - 1).bit_length()),
            "product": Out(2), "last_product": Out(1), "step": Out(shape["steps"].shape.elem_shape),
            "live_rows": Out(range(config.rows + 1)),
            "line_word": Out(word_bits(config)),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        line_bits = len(self.a_line)

        job = Signal(job_layout(config), reset_less=True)
        step = self.step
        running = Signal()
        issuing = Signal()
        beat = Signal(shape_layout(config)["steps"].shape.elem_shape["less_one"].shape)
        row_tile = Signal(tile_bits(config))
        column_tile = Signal(tile_bits(config))
        last_row_tile, last_column_tile, last_beat = self._ends(m, job, beat, row_tile, column_tile)

        # A tile's address of the left operand in A memory, to come back to for each of its column tiles.
        a_line = Signal(line_bits, name="a_line_now")
        a_back = Signal(line_bits)
        c_line = Signal(line_bits, name="c_line_now")
        tile_word = Signal(word_bits(config))
        row_word = Signal(word_bits(config))
        m.d.comb += self.a_line.eq(a_line)
        m.d.comb += self.c_line.eq(c_line)
        m.d.comb += self.line_word.eq(tile_word)
        m.d.comb += self.issue.eq(Cat(issuing, issuing & last_beat))
        m.d.sync += self.start.eq(0)

        with m.If(issuing):
            m.d.sync += [
                beat.eq(beat + 1),
                a_line.eq(a_line + 1),
                c_line.eq(c_line + 1),
                self.b_turn.eq(self.b_turn + 1),
            ]
            with m.If(last_beat):
                m.d.sync += issuing.eq(0)
                m.d.sync += beat.eq(0)

        ahead = self._ahead(m, job, row_word)
        done = Signal()
        m.d.comb += done.eq(running & self.tile_done)
        with m.If(done):
            m.d.sync += issuing.eq(1)
            m.d.sync += self.start.eq(1)
            with m.If(~last_column_tile):
                m.d.sync += [
                    column_tile.eq(column_tile + 1),
                    a_line.eq(a_back),
                    self.b_turn.eq(self.b_line),
                    tile_word.eq(tile_word + config.columns),
                ]
            with m.Elif(~last_row_tile):
                m.d.sync += [
                    column_tile.eq(0),
                    row_tile.eq(row_tile + 1),
                    a_back.eq(a_line),
                    c_line.eq(ahead.here),
                    tile_word.eq(ahead.row),
                    row_word.eq(ahead.row),
                    self.b_line.eq(ahead.b_line),
                    self.b_turn.eq(ahead.b_line),
                ]
            with m.Elif(~self.last_product):
                m.d.sync += [
                    column_tile.eq(0),
                    row_tile.eq(0),
                    self.product.eq(ahead.product),
                    c_line.eq(ahead.c_line),
                    step.eq(ahead.step),
                    tile_word.eq(0),
                    row_word.eq(0),
                    self.b_line.eq(0),
                    self.b_turn.eq(0),
                ]
            with m.Else():
                m.d.comb += self.finish.eq(1)
                m.d.sync += running.eq(0)
                m.d.sync += issuing.eq(0)
                m.d.sync += self.start.eq(0)

        with m.If((~running | self.finish) & self.job_valid):
            m.d.comb += self.take.eq(1)
            m.d.sync += [
                job.eq(self.job),
                running.eq(1),
                issuing.eq(1),
                self.start.eq(1),
                self.product.eq(0),
                step.eq(self.job.plan.steps[0]),
                column_tile.eq(0),
                row_tile.eq(0),
                tile_word.eq(0),
                row_word.eq(0),
                self.b_line.eq(0),
                self.b_turn.eq(0),
                a_line.eq(self.job.slices.first),
                a_back.eq(self.job.slices.first),
                c_line.eq(Mux(self.job.plan.products == 0, self.job.slices.last, self.job.slices.second)),
            ]
        return m

    def _ahead(self, m: Module, job, row_word) -> _Ahead:
        """Worked out a cycle late, in registers, as is all that a tile needs at its end: it takes so long."""
        rows_log2, columns_log2 = (self.config.rows - 1).bit_length(), (self.config.columns - 1).bit_length()
        step, slices = self.step, job.slices
        following = Signal(2)
        c_slice = Signal(len(self.c_line))
        next_step = Signal.like(self.step)
        here = Signal(len(self.c_line))
        next_row = Signal(word_bits(self.config))
        next_b_line = Signal.like(self.b_line)
        m.d.sync += [
            following.eq(self.product + 1),
            c_slice.eq(Mux(self.product + 1 == job.plan.products, slices.last, slices.middle)),
            next_step.eq(Mux(self.product == 0, job.plan.steps[1], job.plan.steps[2])),
            here.eq(Mux(self.last_product, slices.last,
                        Mux(self.product == 0, slices.second, slices.middle))),
            next_row.eq(row_word + ((1 << step.n_log2) << rows_log2)),
            next_b_line.eq(self.b_line + ((1 << step.stride_log2) >> (columns_log2 - rows_log2))),
        ]
        return _Ahead(following, c_slice, next_step, here, next_row, next_b_line)

    def _ends(self, m: Module, job, beat, row_tile, column_tile):
        """Whether this is the last row of tiles, its last tile, the tile's last beat."""
        config, step = self.config, self.step
        rows_log2, columns_log2 = (config.rows - 1).bit_length(), (config.columns - 1).bit_length()
        last_row_tile = Signal()
        last_column_tile = Signal()
        last_beat = Signal()
        m.d.comb += self.last_product.eq(self.product == job.plan.products)
        m.d.comb += last_beat.eq(beat == step.less_one)
        # A tile takes so long that all it needs at its end can be worked out a cycle late, in registers.
        m.d.sync += last_row_tile.eq(row_tile == tiles_less_one(step.m_log2, rows_log2, len(row_tile)))
        m.d.sync += last_column_tile.eq(column_tile == tiles_less_one(step.n_log2, columns_log2, len(row_tile)))
        m.d.sync += self.live_rows.eq(Mux(step.m_log2 >= rows_log2, config.rows, 1 << step.m_log2[:3]))
        return last_row_tile, last_column_tile, last_beat
