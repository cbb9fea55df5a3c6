"""The intermediate buffer T, written where the tile's format says."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from hw.attributes import UNREAD
from hw.fp.regroup import UNUSED_BITS, Regroup
from hw.place import Part, place
from hw.tt.config import TTConfig
from hw.tt.grid import result_layout

BANK_BITS = 36      # of a line: as wide as a RAMB18 is with 512 lines


class LineBank(Part):
    """A part of all lines, one write and one read port, with registers of its own, as the banks lie far apart.

    Parameters  depth: lines; bits: of each that this bank holds
    Members     write, write_address  In
                word     In  a cycle behind its address
                address  In
                data     Out
    Timing      latency 3 cycles from address to data, of them `read_latency` in the memory. A word can be read from
                the cycle after its write_address on
    Reset       contents stay
    """

    read_latency = 2
    latency = 1 + read_latency

    def __init__(self, *, depth: int, bits: int):
        self.depth, self.bits = depth, bits
        address = range(depth)
        super().__init__({
            "write": In(1), "write_address": In(address), "word": In(bits), "address": In(address), "data": Out(bits),
        })

    def elaborate(self, platform):
        m = Module()
        store = memory.Memory(shape=self.bits, depth=self.depth, init=[], attrs={
            **UNREAD, "ram_style": "block"})
        m.submodules.store = store
        write, read = store.write_port(), store.read_port()
        written = Signal()
        write_address = Signal.like(self.write_address, reset_less=True)
        address = Signal.like(self.address, reset_less=True)
        held = Signal(self.bits, reset_less=True)
        m.d.sync += [
            written.eq(self.write),
            write_address.eq(self.write_address),
            address.eq(self.address),
            held.eq(read.data),
        ]
        m.d.comb += [
            write.addr.eq(write_address),
            write.data.eq(self.word),
            write.en.eq(written),
            read.addr.eq(address),
            self.data.eq(held),
        ]
        return m


class Intermediate(Part):
    """Lines of first and middle products: results in as the grid yields them, lines out as it reads them.

    A first product's result (row, cell, sub) becomes word (cell = sub, sub = row, word = cell) of its line; with
    `swap` the low sub-dot bit and the high cell bit of the target change places; a middle product's becomes word
    (cell = sub, sub = cell with its bits reversed, word = row). That is Alg. 1's reshape.
    Source: SCRec §III.E Alg. 1, lines 21 to 24
    Where four operands share an exponent the words (cell, sub, 0..3) of a line are such a group, hw.fp.group; their
    results have shared one from the start.

    Parameters  config: TTConfig
    Members     z              In  hw.tt.grid.result_layout
                write, middle, swap, write_address  In
                ring, address  In  the line to read, ring 1 holds middle products
                line           Out  words (cell, sub, word)
    Timing      latency 4 cycles from address to line; a line may be asked for from `entry` cycles after `write` on
    Reset       contents stay
    Golden      golden.tt.layout.written_to          Tests  verif/tt/test_unit.py
    """

    latency = 1 + LineBank.latency

    def __init__(self, config: TTConfig):
        self.config = config
        line = data.ArrayLayout(32, config.line_words)
        super().__init__({
            "z": In(result_layout(config)),
            "write": In(1), "middle": In(1), "swap": In(1), "write_address": In(config.t_bits),
            "ring": In(1), "address": In(config.t_bits),
            "line": Out(line),
        })

    @property
    def entry(self) -> int:
        """Cycles that it takes to make what is written a group."""
        return Regroup.latency - 1 if self.config.grouped else 0

    def elaborate(self, platform):
        m = Module()
        config = self.config
        n, bits = config.side, config.grid_log2
        depth = config.t_lines + config.t_middle_lines
        first_bits, middle_bits = (config.t_lines - 1).bit_length(), (config.t_middle_lines - 1).bit_length()

        def physical(ring, address):
            return Mux(ring, config.t_lines + address[:middle_bits], address[:first_bits])

        write, write_address = self.write, physical(self.middle, self.write_address)
        for at in range(self.entry):
            held_write = Signal(name=f"write_{at}")
            held_address = Signal(range(depth), name=f"write_address_{at}", reset_less=True)
            m.d.sync += held_write.eq(write)
            m.d.sync += held_address.eq(write_address)
            write, write_address = held_write, held_address
        address = Signal(range(depth), reset_less=True)
        m.d.sync += address.eq(physical(self.ring, self.address))

        def chosen(cell, sub, word) -> Value:
            """The result that becomes this word."""
            def result(row, cell, sub):
                return Value.cast(self.z[(row * n + cell) * n + sub])

            plain = turned = result(sub, word, cell)
            if bits == 2:
                # cell = (row low, sub low), sub = (row high, sub high)
                turned = result((sub >> 1) << 1 | cell >> 1, word, (sub & 1) << 1 | cell & 1)
            middle = result(word, (sub & 1) << 1 | sub >> 1 if bits == 2 else sub, cell)
            return Mux(self.middle, middle, Mux(self.swap, turned, plain))

        line = []
        for cell in range(n):
            for sub in range(n):
                words = [chosen(cell, sub, word) for word in range(n)]
                held = Signal(32 * n, name=f"words_{cell}_{sub}", reset_less=True)
                if config.grouped:
                    self._regrouped(m, platform, f"regroup_{cell}_{sub}", words, held)
                else:
                    m.d.sync += held.eq(Cat(words))
                line.append(held)

        written, read = Cat(line), self.line.as_value()
        for at in range(0, len(written), BANK_BITS):
            part = slice(at, at + BANK_BITS)
            bank = LineBank(depth=depth, bits=len(written[part]))
            place(m, platform, f"bank_{at // BANK_BITS}", bank)
            m.d.comb += [
                bank.write.eq(write),
                bank.write_address.eq(write_address),
                bank.word.eq(written[part]),
                bank.address.eq(address),
                read[part].eq(bank.data),
            ]
        return m

    def _regrouped(self, m: Module, platform, name: str, sums, group) -> None:
        """Makes four sums a group."""
        totals = [data.View(self.z.shape().elem_shape, total) for total in sums]
        width = len(totals[0].bits) - UNUSED_BITS
        regroup = Regroup(width=width)
        place(m, platform, name, regroup)
        m.d.comb += regroup.i.top.eq(totals[0].top)
        for at, total in enumerate(totals):
            m.d.comb += regroup.i.bits[at].eq(total.bits[UNUSED_BITS:])
            m.d.comb += regroup.i.kinds[at].eq(total.kinds)
        m.d.comb += group.eq(regroup.o)
