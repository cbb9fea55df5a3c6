"""The serial TT unit's memories, and the way of results from the array to them."""

from amaranth.hdl import Cat, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.tt.serial_config import (
    SerialConfig,
    Target,
    job_layout,
    load_layout,
    tiles_less_one,
    vector_layout,
    word_bits,
)


def _rotate(words: list[Value], by: Value, way: int) -> list[Value]:
    """Word i of the result is words[(i + way * by) % count], by log2(count) levels of 2:1 multiplexers."""
    count = len(words)
    for bit in range((count - 1).bit_length()):
        words = [Mux(by[bit], words[(i + way * (1 << bit)) % count], words[i]) for i in range(count)]
    return words


class Operands(wiring.Component):
    """TT_AMem and TT_CMem, and the tile's marks delayed as long as they take to answer: two cycles.

    Members     load_valid, load  In  a write of hw.tt.serial_config.load_layout
                issue             In  bit 0: a beat is asked for; bit 1: it is the tile's last beat
                a_line, c_line    In  where the beat is
                a, c              Out  the beat, two cycles later
                first, last       Out  with the beat: it is the tile's first, last
    Golden      golden.tt.serial          Tests  verif/tt/test_serial.py
    """

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
                write.addr.eq(self.load.address),
                write.data.eq(self.load.data),
                write.en.eq(self.load_valid & (self.load.target == target) & ~ResetSignal()),
                read.addr.eq(line),
                out.eq(held),
            ]
            m.d.sync += held.eq(read.data)

        within = Signal()               # the beat before was one of this tile's
        marks = Signal(4)
        m.d.sync += within.eq(self.issue[0] & ~self.issue[1])
        m.d.sync += marks.eq(Cat(self.issue[0] & ~within, self.issue[1], marks[:2]))
        m.d.comb += self.first.eq(marks[2])
        m.d.comb += self.last.eq(marks[3])
        return m


class Intermediate(wiring.Component):
    """TT_BMem: two intermediates, one read while the other is written, a bank a column; and the choice
    between them and the first core.

    A beat wants rank k of rows r = 0.. of a tile, words r * stride + k. With stride 2^s, row r lies
    `r >> (c - s)` lines (c = log2(columns)) below the tile's first line Q, and its bank is that line plus k
    and the rest of r << s: after turning the banks by Q + k, rows stand at places that depend on s alone.

    Members     read_half    In  the intermediate to read
                read_line    In  the tile's first line Q
                turn         In  Q + k
                stride_log2  In  s
                first        In  the beat of the first core
                from_first   In  `o` is that beat
                o            Out  the beat
                write        In  a bit per bank
                write_half   In  the intermediate to write
                write_line   In
                words        In  one per bank
    Golden      golden.tt.serial          Tests  verif/tt/test_serial.py
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
                write.data.eq(self.words[bank]),
                write.en.eq(self.write[bank]),
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


class Drain(wiring.Component):
    """Brings a row of results, whose columns leave the array one after the other, together and turns it to
    its banks.

    Members     word_valid, word_last  In  marks of the first column's word
                words      In  of the array, a column one cycle behind the one before
                start      In  a pulse: a tile begins
                line_word  In  the tile's first word in its result
                n_log2     In  log2 of the product's columns
                straight   In  the row is not turned: it goes to the output
                write      Out  a bit per bank
                line       Out  of the row
                o          Out  the words of all banks
                done       Out  with the tile's last row
    Golden      golden.tt.serial          Tests  verif/tt/test_serial.py
    """

    def __init__(self, config: SerialConfig):
        self.config = config
        super().__init__({
            "words": In(data.ArrayLayout(32, config.columns)), "word_valid": In(1), "word_last": In(1),
            "start": In(1), "line_word": In(word_bits(config)), "n_log2": In(5), "straight": In(1),
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
        fits = Signal(len(widths))
        live = Signal(columns)
        m.d.sync += fits.eq(Cat(self.n_log2 == j if j < columns_log2 else self.n_log2 >= j for j, _ in widths))
        m.d.sync += live.eq(Cat(Const(1, 1), *(self.n_log2 > j for j in range(columns_log2) for _ in range(1 << j))))
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
        line = Signal.like(self.line, reset_less=True)
        turn = Signal(columns_log2, reset_less=True)
        started = Signal()
        m.d.sync += started.eq(self.start)
        with m.If(self.start):
            m.d.sync += ahead.eq(self.line_word)
        with m.Elif(started | valid):
            m.d.sync += ahead.eq(ahead + (1 << self.n_log2))
            m.d.sync += line.eq(line_ahead)
            m.d.sync += turn.eq(ahead[:columns_log2] + Mux(self.straight, 0, line_ahead[:columns_log2]))
        # Bank b takes column b - turn.
        m.d.comb += [
            self.line.eq(line),
            self.write.eq(Cat(_rotate(list(live & valid.replicate(columns)), turn, -1))),
            *(self.o[b].eq(word) for b, word in enumerate(_rotate(aligned, turn, -1))),
        ]
        return m


class Output(wiring.Component):
    """Two vectors' worth of words: one is written while the other leaves.

    Members     take        In  a lookup begins, only while `free`
                job         In  the lookup
                free        Out  there is room for a vector
                write       In  a bit per word
                write_line  In  of the vector that is written
                words       In
                filled      In  the vector is whole
                o           Out(stream)  vectors in order, of vector_layout
    Golden      golden.tt.serial          Tests  verif/tt/test_serial.py
    """

    def __init__(self, config: SerialConfig):
        self.config = config
        super().__init__({
            "take": In(1), "job": In(job_layout(config)), "free": Out(1),
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
        # halves
        taking = Signal()
        filling = Signal()
        leaving = Signal()
        abouts = [Signal(about, name=f"about_{half}", reset_less=True) for half in range(2)]
        m.d.comb += self.free.eq(~full.bit_select(taking, 1))
        with m.If(self.take):
            m.d.sync += taking.eq(~taking)
            for half in range(2):
                with m.If(taking == half):
                    m.d.sync += abouts[half].table.eq(self.job.slices.table)
                    m.d.sync += abouts[half].outside.eq(self.job.slices.outside)
                    m.d.sync += abouts[half].dim_log2.eq(self.job.plan.dim_log2)
        m.d.comb += write.addr.eq(Cat(self.write_line[:line_bits], filling))
        m.d.comb += write.en.eq(self.write)
        m.d.comb += write.data.eq(self.words)
        with m.If(self.filled):
            m.d.sync += full.bit_select(filling, 1).eq(1)
            m.d.sync += filling.eq(~filling)

        line = Signal(max(line_bits, 1))
        now = Signal(about)
        last = Signal()
        m.d.comb += now.eq(Mux(leaving, abouts[1], abouts[0]))
        m.d.comb += read.addr.eq(Cat(line[:line_bits], leaving))
        m.d.comb += last.eq(line == tiles_less_one(now.dim_log2, columns_log2, len(line)))
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
                    payload.last.eq(last),
                    payload.outside.eq(now.outside),
                    payload.table.eq(now.table),
                    line.eq(line + 1),
                ]
                with m.If(last):
                    m.d.sync += line.eq(0)
                    m.d.sync += full.bit_select(leaving, 1).eq(0)
                    m.d.sync += leaving.eq(~leaving)
        return m
