"""SCRec's TT computation unit: one array of plain cells, one product after the other."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.systolic import SystolicArray
from hw.tt.index import IndexSplitter, lookup_layout, slices_layout
from hw.tt.serial_config import SerialConfig

__all__ = [
    "SerialConfig", "SerialTTUnit", "Splitting", "Target", "load_layout", "shape_layout", "vector_layout",
]

PRODUCTS_MAX = 3


class Target(enum.Enum, shape=2):
    """What a load beat writes."""

    A = 0
    C = 1
    TABLE = 2


class Splitting:
    """The sizes that the index splitter wants, read off a serial unit's configuration."""

    grid_log2 = 1
    keep_lines = 2

    def __init__(self, config: SerialConfig):
        self.tables = config.tables
        self.index_bits = config.index_bits
        self.mode_bits = config.mode_bits
        self.x_bits = self.y_bits = max(config.a_bits, config.c_bits)


def shape_layout(config: SerialConfig) -> data.StructLayout:
    """Part 2 of a table's descriptor: its products, less one; log2 of D; and each product's size."""
    step = data.StructLayout({
        "less_one": max(1, config.terms_log2),      # k - 1
        "m_log2": 4, "n_log2": 5,
        "stride_log2": 3,                           # of the left operand's rows in the intermediate
    })
    return data.StructLayout({"products": 2, "dim_log2": 4, "steps": data.ArrayLayout(step, PRODUCTS_MAX)})


def load_layout(config: SerialConfig) -> data.StructLayout:
    """Payload of the load stream: a line of first cores (the low words count), a line of the other cores, or
    a part of a table's descriptor in the low bits: 0 sizes and 1 places (hw.tt.descriptor), 2 shape.
    """
    return data.StructLayout({
        "target": Target,
        "part": 2,
        "address": max(config.a_bits, config.c_bits, config.table_bits),
        "data": config.columns * 32,
    })


def vector_layout(config: SerialConfig) -> data.StructLayout:
    """A beat of a vector; words past a vector shorter than a beat are 0. `outside` marks a row number past
    the table, for which row 0 was computed.
    """
    return data.StructLayout({
        "data": data.ArrayLayout(32, config.columns),
        "last": 1,
        "outside": 1,
        "table": config.table_bits,
    })


def _rotate(words: list[Value], by: Value, way: int) -> list[Value]:
    """Word i of the result is words[(i + way * by) % count], by log2(count) levels of 2:1 multiplexers."""
    count = len(words)
    for bit in range((count - 1).bit_length()):
        words = [Mux(by[bit], words[(i + way * (1 << bit)) % count], words[i]) for i in range(count)]
    return words


class SerialTTUnit(wiring.Component):
    """Rows of tensor-train tables, computed as SCRec's EMB core does.

    v = G1[i1] G2[i2] .. Gd[id], products from the left.       Source: SCRec §III.E, eq. 38, Alg. 1, Fig. 7a

    TT_AMem holds the first cores, TT_CMem the others, TT_BMem the reshaped intermediates. Reshaping is done
    by addressing: word l of an intermediate lies in line l / columns of bank (l + line) % columns, so that a
    row of results can be written, and one rank of `rows` rows can be read, in one cycle. Tiles follow each
    other when the one before has been drained, as in the paper; only live rows and columns are waited for.

    Parameters  config: SerialConfig
    Members     i_load: In(stream) memories and descriptors (load_layout); i_lookups: In(stream) table and row
                number; o_vectors: Out(stream) vectors in order (vector_layout)
    Shapes      cores (R_{k-1}, I_k, J_k, R_k), 2 to 4 of them, J_k powers of two, R_k <= rank_max; a vector
                is ceil(D / columns) beats, d ascending
    Timing      a tile of m x n live cells over k terms takes k + 2 m + n + 13 cycles, a lookup its tiles;
                lookups do not overlap but for index splitting and output (golden.tt.serial.finish)
    Handshake   no combinational path between streams; i_load is always ready, and what it writes must not be
                in use
    Numerics    golden.fp32.dot one term a beat, k ascending, rounded after each product; against golden:
                bit-exact
    Reset       drops lookups and vectors under way; memories and descriptors stay
    Raises      ValueError: from SerialConfig
    Golden      golden.tt.serial.rows, .finish          Tests  verif/test_tt_serial.py
    """

    def __init__(self, config: SerialConfig):
        self.config = config
        splitting = Splitting(config)
        super().__init__({
            "i_load": In(stream.Signature(load_layout(config))),
            "i_lookups": In(stream.Signature(lookup_layout(splitting))),
            "o_vectors": Out(stream.Signature(vector_layout(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.array = array = SystolicArray(
            rows=config.rows, columns=config.columns, width=1, terms_log2=config.terms_log2)
        m.submodules.front = front = _Front(config)
        m.submodules.control = control = _Control(config)
        m.submodules.operands = operands = _Operands(config)
        m.submodules.drain = drain = _Drain(config)
        m.submodules.intermediate = intermediate = _Intermediate(config)
        m.submodules.output = output = _Output(config)
        wiring.connect(m, wiring.flipped(self.i_lookups), front.i_lookups)
        wiring.connect(m, wiring.flipped(self.o_vectors), output.o)

        load = self.i_load.payload
        for part in (front, operands):
            m.d.comb += [part.load.eq(load), part.load_valid.eq(self.i_load.valid)]
        m.d.comb += [
            self.i_load.ready.eq(1),
            control.job.eq(front.job), control.job_valid.eq(front.job_valid & output.free),
            front.take.eq(control.take), output.take.eq(control.take), output.job.eq(front.job),
            control.tile_done.eq(drain.done),

            operands.a_line.eq(control.a_line), operands.c_line.eq(control.c_line),
            operands.issue.eq(control.issue),
            intermediate.read_half.eq(~control.product[0]), intermediate.read_line.eq(control.b_line),
            intermediate.turn.eq(control.b_turn), intermediate.stride_log2.eq(control.step.stride_log2),

            intermediate.first.eq(operands.a), intermediate.from_first.eq(control.product == 0),
            array.x.eq(intermediate.o), array.y.eq(operands.c),
            array.first.eq(operands.first), array.last.eq(operands.last),
            array.live_rows.eq(control.live_rows),

            drain.words.eq(array.o), drain.word_valid.eq(array.o_valid), drain.word_last.eq(array.o_last),
            drain.n_log2.eq(control.step.n_log2), drain.start.eq(control.start),
            drain.line_word.eq(control.line_word), drain.straight.eq(control.last_product),

            intermediate.write.eq(drain.write & ~control.last_product.replicate(config.columns)),
            intermediate.write_half.eq(control.product[0]),
            intermediate.write_line.eq(drain.line), intermediate.words.eq(drain.o),
            output.write.eq(drain.write & control.last_product.replicate(config.columns)),
            output.write_line.eq(drain.line), output.words.eq(drain.o), output.filled.eq(control.finish),
        ]
        return m


def _job_layout(config: SerialConfig) -> data.StructLayout:
    return data.StructLayout({"slices": slices_layout(Splitting(config)), "plan": shape_layout(config)})


class _Front(wiring.Component):
    """Splits row numbers ahead of their turn and queues what was split, with the table's shape."""

    def __init__(self, config: SerialConfig):
        self.config = config
        super().__init__({
            "i_lookups": In(stream.Signature(lookup_layout(Splitting(config)))),
            "load": In(load_layout(config)), "load_valid": In(1),
            "job": Out(_job_layout(config)), "job_valid": Out(1), "take": In(1),
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
            splitter.i.eq(self.i_lookups.payload), splitter.i_valid.eq(taken),
            queue.w_data.eq(splitter.o), queue.w_en.eq(splitter.o_valid),
            queue.r_en.eq(self.take),
        ]
        m.d.sync += room.eq(room - taken + self.take)

        to_table = self.load_valid & (self.load.target == Target.TABLE)
        m.d.comb += [
            splitter.write.eq(to_table & (self.load.part != 2)), splitter.part.eq(self.load.part),
            splitter.table.eq(self.load.address), splitter.words.eq(self.load.data),
            write.en.eq(to_table & (self.load.part == 2)), write.addr.eq(self.load.address),
            write.data.eq(self.load.data),
        ]
        head = slices(queue.r_data)
        m.d.comb += [
            read.addr.eq(head.table),
            self.job.slices.eq(head), self.job.plan.eq(read.data), self.job_valid.eq(queue.r_rdy),
        ]
        return m


class _Control(wiring.Component):
    """Walks through a lookup's products and tiles: issues a tile's beats, waits for its drain, goes on."""

    def __init__(self, config: SerialConfig):
        self.config = config
        line_bits = max(config.a_bits, config.c_bits)
        shape = shape_layout(config)
        super().__init__({
            "job": In(_job_layout(config)), "job_valid": In(1), "take": Out(1),
            "tile_done": In(1), "start": Out(1), "finish": Out(1),
            "issue": Out(2),                # a beat's address is out; and it is the tile's last beat
            "a_line": Out(line_bits), "c_line": Out(line_bits),
            "b_line": Out((config.b_lines - 1).bit_length()),       # the tile's first
            "b_turn": Out((config.columns - 1).bit_length()),       # that line plus the beat
            "product": Out(2), "last_product": Out(1), "step": Out(shape["steps"].shape.elem_shape),
            "live_rows": Out(range(config.rows + 1)),
            "line_word": Out(_word_bits(config)),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        rows_log2, columns_log2 = (config.rows - 1).bit_length(), (config.columns - 1).bit_length()
        line_bits = len(self.a_line)

        job = Signal(_job_layout(config), reset_less=True)
        step = self.step
        slices = job.slices
        running, issuing = Signal(), Signal()
        beat = Signal(shape_layout(config)["steps"].shape.elem_shape["less_one"].shape)
        row_tile, column_tile = Signal(_tile_bits(config)), Signal(_tile_bits(config))
        last_row_tile, last_column_tile, last_beat = Signal(), Signal(), Signal()
        m.d.comb += [
            self.last_product.eq(self.product == job.plan.products),
            last_beat.eq(beat == step.less_one),
        ]
        # A tile takes so long that all it needs at its end can be worked out a cycle late, in registers.
        m.d.sync += [
            last_row_tile.eq(row_tile == _tiles_less_one(step.m_log2, rows_log2, len(row_tile))),
            last_column_tile.eq(column_tile == _tiles_less_one(step.n_log2, columns_log2, len(row_tile))),
            self.live_rows.eq(Mux(step.m_log2 >= rows_log2, config.rows, 1 << step.m_log2[:3])),
        ]

        # A tile's address of the left operand in A memory, to come back to for each of its column tiles.
        a_line, a_back = Signal(line_bits, name="a_line_now"), Signal(line_bits)
        c_line = Signal(line_bits, name="c_line_now")
        tile_word, row_word = Signal(_word_bits(config)), Signal(_word_bits(config))
        m.d.comb += [self.a_line.eq(a_line), self.c_line.eq(c_line), self.line_word.eq(tile_word)]
        m.d.comb += self.issue.eq(Cat(issuing, issuing & last_beat))
        m.d.sync += self.start.eq(0)

        with m.If(issuing):
            m.d.sync += [
                beat.eq(beat + 1), a_line.eq(a_line + 1), c_line.eq(c_line + 1),
                self.b_turn.eq(self.b_turn + 1),
            ]
            with m.If(last_beat):
                m.d.sync += [issuing.eq(0), beat.eq(0)]

        following = Signal(2)           # the product that comes next, and its C slice and size
        c_slice = Signal(line_bits)
        next_step = Signal.like(step)
        here = Signal(line_bits)        # the C slice of the product under way
        next_row, next_b_line = Signal(_word_bits(config)), Signal.like(self.b_line)
        m.d.sync += [
            following.eq(self.product + 1),
            c_slice.eq(Mux(self.product + 1 == job.plan.products, slices.last, slices.middle)),
            next_step.eq(Mux(self.product == 0, job.plan.steps[1], job.plan.steps[2])),
            here.eq(Mux(self.last_product, slices.last,
                        Mux(self.product == 0, slices.second, slices.middle))),
            next_row.eq(row_word + ((1 << step.n_log2) << rows_log2)),
            next_b_line.eq(self.b_line + ((1 << step.stride_log2) >> (columns_log2 - rows_log2))),
        ]

        done = Signal()
        m.d.comb += done.eq(running & self.tile_done)
        with m.If(done):
            m.d.sync += [issuing.eq(1), self.start.eq(1)]
            with m.If(~last_column_tile):
                m.d.sync += [
                    column_tile.eq(column_tile + 1), a_line.eq(a_back), self.b_turn.eq(self.b_line),
                    tile_word.eq(tile_word + config.columns),
                ]
            with m.Elif(~last_row_tile):
                m.d.sync += [
                    column_tile.eq(0), row_tile.eq(row_tile + 1), a_back.eq(a_line), c_line.eq(here),
                    tile_word.eq(next_row), row_word.eq(next_row),
                    self.b_line.eq(next_b_line), self.b_turn.eq(next_b_line),
                ]
            with m.Elif(~self.last_product):
                m.d.sync += [
                    column_tile.eq(0), row_tile.eq(0), self.product.eq(following), c_line.eq(c_slice),
                    step.eq(next_step), tile_word.eq(0), row_word.eq(0), self.b_line.eq(0), self.b_turn.eq(0),
                ]
            with m.Else():
                m.d.comb += self.finish.eq(1)
                m.d.sync += [running.eq(0), issuing.eq(0), self.start.eq(0)]

        with m.If((~running | self.finish) & self.job_valid):
            m.d.comb += self.take.eq(1)
            m.d.sync += [
                job.eq(self.job), running.eq(1), issuing.eq(1), self.start.eq(1), self.product.eq(0),
                step.eq(self.job.plan.steps[0]), column_tile.eq(0), row_tile.eq(0),
                tile_word.eq(0), row_word.eq(0), self.b_line.eq(0), self.b_turn.eq(0),
                a_line.eq(self.job.slices.first), a_back.eq(self.job.slices.first),
                c_line.eq(Mux(self.job.plan.products == 0, self.job.slices.last, self.job.slices.second)),
            ]
        return m


def _word_bits(config: SerialConfig) -> int:
    """Bits of a word's number in an intermediate."""
    return (config.b_lines * config.columns - 1).bit_length()


def _tile_bits(config: SerialConfig) -> int:
    """Bits of a tile's number: rows of a product are at most D, columns fill an intermediate at most."""
    return (max(config.b_lines, config.dim_max // config.rows) - 1).bit_length()


def _tiles_less_one(size_log2: Value, tile_log2: int, bits: int) -> Value:
    """2^(size_log2 - tile_log2) - 1, or 0 where the tile is not filled."""
    return Cat(size_log2 > tile_log2 + bit for bit in range(bits))


class _Operands(wiring.Component):
    """TT_AMem and TT_CMem, and the tile's marks delayed as long as they take to answer: two cycles."""

    def __init__(self, config: SerialConfig):
        self.config = config
        line_bits = max(config.a_bits, config.c_bits)
        super().__init__({
            "load": In(load_layout(config)), "load_valid": In(1),
            "issue": In(2), "a_line": In(line_bits), "c_line": In(line_bits),
            "a": Out(data.ArrayLayout(32, config.rows)), "c": Out(data.ArrayLayout(32, config.columns)),
            "first": Out(1), "last": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        for name, target, words, depth, line, out in (
            ("a_mem", Target.A, config.rows, config.a_lines, self.a_line, self.a),
            ("c_mem", Target.C, config.columns, config.c_lines, self.c_line, self.c),
        ):
            store = memory.Memory(shape=words * 32, depth=depth, init=[], attrs={"ram_style": "ultra"})
            m.submodules[name] = store
            write, read = store.write_port(), store.read_port()
            held = Signal(words * 32, name=f"{name}_held", reset_less=True)
            m.d.comb += [
                write.addr.eq(self.load.address), write.data.eq(self.load.data),
                write.en.eq(self.load_valid & (self.load.target == target)),
                read.addr.eq(line), out.eq(held),
            ]
            m.d.sync += held.eq(read.data)

        within = Signal()               # the beat before was one of this tile's
        marks = Signal(4)
        m.d.sync += [
            within.eq(self.issue[0] & ~self.issue[1]),
            marks.eq(Cat(self.issue[0] & ~within, self.issue[1], marks[:2])),
        ]
        m.d.comb += [self.first.eq(marks[2]), self.last.eq(marks[3])]
        return m


class _Intermediate(wiring.Component):
    """TT_BMem: two intermediates, one read while the other is written, a bank a column; and the choice
    between them and the first core.

    A beat wants rank k of rows r = 0.. of a tile, words r * stride + k. With stride 2^s, row r lies
    `r >> (c - s)` lines (c = log2(columns)) below the tile's first line Q, and its bank is that line plus k
    and the rest of r << s: after turning the banks by Q + k, rows stand at places that depend on s alone.
    """

    def __init__(self, config: SerialConfig):
        self.config = config
        super().__init__({
            "read_half": In(1), "read_line": In((config.b_lines - 1).bit_length()),
            "turn": In((config.columns - 1).bit_length()), "stride_log2": In(3),
            "first": In(data.ArrayLayout(32, config.rows)), "from_first": In(1),
            "o": Out(data.ArrayLayout(32, config.rows)),
            "write": In(config.columns), "write_half": In(1),
            "write_line": In((config.b_lines - 1).bit_length()),
            "words": In(data.ArrayLayout(32, config.columns)),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        rows_log2, columns_log2 = (config.rows - 1).bit_length(), (config.columns - 1).bit_length()
        strides = range(columns_log2 - rows_log2, columns_log2 + 1)

        mask = Signal(rows_log2)        # the lines of a tile, less one
        with m.Switch(self.stride_log2):
            for s in strides:
                with m.Case(s):
                    m.d.comb += mask.eq((1 << s - (columns_log2 - rows_log2)) - 1)

        banks = []
        for bank in range(config.columns):
            store = memory.Memory(shape=32, depth=2 * config.b_lines, init=[], attrs={"ram_style": "block"})
            m.submodules[f"bank_{bank}"] = store
            write, read = store.write_port(), store.read_port()
            below = Signal(columns_log2, name=f"below_{bank}")
            m.d.comb += [
                below.eq(bank - self.turn),
                read.addr.eq(Cat(self.read_line | (below & mask), self.read_half)),
                write.addr.eq(Cat(self.write_line, self.write_half)),
                write.data.eq(self.words[bank]), write.en.eq(self.write[bank]),
            ]
            banks.append(read.data)

        turned_by = Signal(columns_log2, reset_less=True)
        turned = [Signal(32, name=f"turned_{i}", reset_less=True) for i in range(config.columns)]
        m.d.sync += turned_by.eq(self.turn)
        m.d.sync += [to.eq(word) for to, word in zip(turned, _rotate(banks, turned_by, 1))]
        # Which place a row is taken from stands ready, one bit a choice, long before a beat arrives: what is
        # left between two registers is an AND-OR and the unpacking of operands.
        chosen = Signal(len(strides) + 1)
        m.d.sync += chosen.eq(Cat(self.from_first, *(~self.from_first & (self.stride_log2 == s)
                                                     for s in strides)))
        for r in range(config.rows):
            word = Mux(chosen[0], self.first[r], 0)
            for which, s in enumerate(strides, start=1):
                low = r & (1 << columns_log2 - s) - 1
                word |= Mux(chosen[which], turned[(low << s) + (r >> columns_log2 - s)], 0)
            m.d.comb += self.o[r].eq(word)
        return m


class _Drain(wiring.Component):
    """Brings a row of results, whose columns leave the array one after the other, together and turns it to
    its banks.
    """

    def __init__(self, config: SerialConfig):
        self.config = config
        word_bits = _word_bits(config)
        super().__init__({
            "words": In(data.ArrayLayout(32, config.columns)), "word_valid": In(1), "word_last": In(1),
            "start": In(1), "line_word": In(word_bits), "n_log2": In(5), "straight": In(1),
            "write": Out(config.columns), "line": Out((config.b_lines - 1).bit_length()),
            "o": Out(data.ArrayLayout(32, config.columns)), "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        columns = config.columns
        columns_log2 = (columns - 1).bit_length()

        # Column c waits for the last live column: n - 1 - c cycles.
        def waiting(name: str, value: Value, longest: int) -> list[Value]:
            held = Signal(len(value) * longest, name=name)
            m.d.sync += held.eq(Cat(value, held)[:len(held)])
            return [value, *(held[i * len(value):(i + 1) * len(value)] for i in range(longest))]

        widths = [(j, 1 << j) for j in range(columns_log2 + 1)]
        marks = waiting("marks", Cat(self.word_valid, self.word_last), columns - 1)
        lines = [waiting(f"column_{c}", self.words[c], columns - 1 - c) for c in range(columns)]
        # The width stands ready, one bit a choice, long before a row comes.
        fits, live = Signal(len(widths)), Signal(columns)
        m.d.sync += [
            fits.eq(Cat(self.n_log2 == j if j < columns_log2 else self.n_log2 >= j for j, _ in widths)),
            live.eq(Cat(Const(1, 1), *(self.n_log2 > j for j in range(columns_log2) for _ in range(1 << j)))),
        ]
        aligned = []
        for c in range(columns):
            word = 0
            for j, n in widths:
                if n > c:
                    word |= Mux(fits[j], lines[c][n - 1 - c], 0)
            aligned.append(word)
        valid = Signal()
        mark = Mux(fits[0], marks[0], 0)
        for j, n in widths[1:]:
            mark |= Mux(fits[j], marks[n - 1], 0)
        m.d.comb += Cat(valid, self.done).eq(mark)

        with m.If(self.done):
            # What has passed the tap must not pass the next tile's, which may lie further on.
            m.d.sync += [held.eq(0) for held in marks[1:]]

        # The number of the row's first word, kept one row ahead: where it goes is worked out in the cycle
        # before. A tile's first row comes long after its start.
        ahead = Signal(len(self.line_word), reset_less=True)
        line_ahead = ahead[columns_log2:]
        line, turn = Signal.like(self.line, reset_less=True), Signal(columns_log2, reset_less=True)
        started = Signal()
        m.d.sync += started.eq(self.start)
        with m.If(self.start):
            m.d.sync += ahead.eq(self.line_word)
        with m.Elif(started | valid):
            m.d.sync += [
                ahead.eq(ahead + (1 << self.n_log2)), line.eq(line_ahead),
                turn.eq(ahead[:columns_log2] + Mux(self.straight, 0, line_ahead[:columns_log2])),
            ]
        # Bank b takes column b - turn.
        m.d.comb += [
            self.line.eq(line),
            self.write.eq(Cat(_rotate(list(live & valid.replicate(columns)), turn, -1))),
            *(self.o[b].eq(word) for b, word in enumerate(_rotate(aligned, turn, -1))),
        ]
        return m


class _Output(wiring.Component):
    """Two vectors' worth of words: one is written while the other leaves."""

    def __init__(self, config: SerialConfig):
        self.config = config
        super().__init__({
            "take": In(1), "job": In(_job_layout(config)), "free": Out(1),
            "write": In(config.columns), "write_line": In((config.b_lines - 1).bit_length()),
            "words": In(data.ArrayLayout(32, config.columns)), "filled": In(1),
            "o": Out(stream.Signature(vector_layout(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        columns_log2 = (config.columns - 1).bit_length()
        lines = config.dim_max // config.columns
        line_bits = (lines - 1).bit_length()
        about = data.StructLayout({"table": config.table_bits, "outside": 1, "dim_log2": 4})

        m.submodules.store = store = memory.Memory(
            shape=data.ArrayLayout(32, config.columns), depth=2 * lines, init=[],
            attrs={"ram_style": "distributed"})
        write, read = store.write_port(granularity=1), store.read_port(domain="comb")

        full = Signal(2)
        taking, filling, leaving = Signal(), Signal(), Signal()     # halves
        abouts = [Signal(about, name=f"about_{half}", reset_less=True) for half in range(2)]
        m.d.comb += self.free.eq(~full.bit_select(taking, 1))
        with m.If(self.take):
            m.d.sync += taking.eq(~taking)
            for half in range(2):
                with m.If(taking == half):
                    m.d.sync += [
                        abouts[half].table.eq(self.job.slices.table),
                        abouts[half].outside.eq(self.job.slices.outside),
                        abouts[half].dim_log2.eq(self.job.plan.dim_log2),
                    ]
        m.d.comb += [
            write.addr.eq(Cat(self.write_line[:line_bits], filling)), write.en.eq(self.write),
            write.data.eq(self.words),
        ]
        with m.If(self.filled):
            m.d.sync += [full.bit_select(filling, 1).eq(1), filling.eq(~filling)]

        line = Signal(max(line_bits, 1))
        now = Signal(about)
        last = Signal()
        m.d.comb += [
            now.eq(Mux(leaving, abouts[1], abouts[0])),
            read.addr.eq(Cat(line[:line_bits], leaving)),
            last.eq(line == _tiles_less_one(now.dim_log2, columns_log2, len(line))),
        ]
        short = Signal(config.columns)      # which words of a beat a vector has
        with m.Switch(now.dim_log2):
            for j in range(columns_log2):
                with m.Case(j):
                    m.d.comb += short.eq((1 << (1 << j)) - 1)
            with m.Default():
                m.d.comb += short.eq(~0)
        with m.If(~self.o.valid | self.o.ready):
            ready = full.bit_select(leaving, 1)
            m.d.sync += self.o.valid.eq(ready)
            with m.If(ready):
                payload = self.o.payload
                m.d.sync += [
                    *(payload.data[c].eq(Mux(short[c], read.data[c], 0)) for c in range(config.columns)),
                    payload.last.eq(last), payload.outside.eq(now.outside), payload.table.eq(now.table),
                    line.eq(line + 1),
                ]
                with m.If(last):
                    m.d.sync += [line.eq(0), full.bit_select(leaving, 1).eq(0), leaving.eq(~leaving)]
        return m
