"""The cores of all tables in on-chip memory: lines of X and Y memory, written by loads and read by every lane."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.attributes import APART, KEEP
from hw.fp.operand import delay
from hw.place import Part, place
from hw.secded import DATA_BITS, WORD_BITS, encode
from hw.tt.config import TTConfig
from hw.tt.cores import Bank, selected
from hw.tt.descriptor import Target, block_of, load_layout
from hw.tt.tokens import slot_layout
from hw.uram import ProtectedUram


def line_layout(config: TTConfig) -> data.StructLayout:
    """A line as it is read. corrected, uncorrectable: of each of its codewords, two words long."""
    codewords = config.line_words // 2
    return data.StructLayout({"words": 32 * config.line_words, "corrected": codewords, "uncorrectable": codewords})


def is_second_x(config: TTConfig, line: Value) -> Value:
    """Whether a line of block16 lies in the second pairs of X memory."""
    if config.block16_only:
        return line[(config.x_depths[0] - 1).bit_length():].any()
    return line[0]


def _behind(m: Module, register):
    """A register that holds what `register` held a cycle ago."""
    before = Value.cast(register)
    behind = Signal(register.shape(), name=f"{before.name}_behind", reset_less=before.reset_less)
    m.d.sync += behind.eq(register)
    return behind


class _Kind(NamedTuple):
    """A kind of banks. bank: makes one; depth: its words; early: every lane's address, a cycle before `address`."""

    bank: Callable
    depth: int
    early: data.View
    address: data.View


class CoreMemory(Part):
    """X memory, which holds the narrow operands, and Y memory, whose even and odd lines are read together.

    Of a line a bank keeps each pair of words. Where four words are a group (hw.fp.group), the first pair is its `Block`
    and the second its `Rest`, or the block of another line: line a of block16 is, of X memory, in line a >> 1, in the
    pairs that a[0] says; of Y memory, in line a[2:] a[0], in the pairs that a[1] says. Where all lines are of block16
    those of X memory that the first pairs have no room for follow in the second.

    Parameters  config: TTConfig
    Members     write    In  a beat is taken; no slot of lane 0 comes a cycle later
                load     In  the beat
                words    In  its words as they are stored
                slot[k]  In  of every lane, hw.tt.tokens.slot_layout; what it reads is there `latency` cycles later
                x[k]     Out  of every lane, the line of X memory
                even[k]  Out  of every lane, the even line of Y memory
                odd[k]   Out  of every lane, the odd one
    Timing      latency 7 cycles from slot to lines, a slot a lane and cycle: two registers before the banks and one
                behind them, since these fill a column of the part
    Handshake   none
    Memory      every pair of words under SECDED. family = "ultrascale_plus": Y memory and the first pairs of X memory
                in UltraRAM, the others in block RAM
    Reset       contents stay
    Golden      golden.tt.image.image, golden.secded.decode          Tests  verif/tt/test_unit.py, test_loads.py
    """

    latency = 2 + Bank.latency + 1
    assert Bank.latency == ProtectedUram.latency

    def __init__(self, config: TTConfig):
        self.config = config
        lines = Out(line_layout(config)).array(config.lanes)
        super().__init__({
            "write": In(1), "load": In(load_layout(config)), "words": In(32 * config.beat_words),
            "slot": In(slot_layout(config)).array(config.lanes),
            "x": lines, "even": lines, "odd": lines,
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        n, halves = config.side, 1 << config.blocks_log2

        # A beat in step with the addresses of lane 0.
        writing = Signal()
        # no part of a shift register
        written = Signal(load_layout(config), reset_less=True)
        words = Signal(len(self.words), reset_less=True, attrs=KEEP)
        m.d.sync += writing.eq(self.write & (self.load.target != Target.TABLE))
        m.d.sync += written.eq(self.load)
        m.d.sync += words.eq(self.words)
        is_x = written.target == Target.X
        second = Mux(is_x, is_second_x(config, written.address), written.address[1])
        here = Cat(writing & (written.part[:config.grid_log2] == quarter)
                   & (~block_of(config, written) | (second == half) if halves == 2 else 1)
                   for quarter in range(n) for half in range(halves))
        write_x, write_even, write_odd = (Signal(n * halves, name=f"write_{name}") for name in ("x", "even", "odd"))
        m.d.sync += write_x.eq(Mux(is_x, here, 0))
        m.d.sync += write_even.eq(Mux(is_x | written.address[0], 0, here))
        m.d.sync += write_odd.eq(Mux(is_x | ~written.address[0], 0, here))
        pairs, flipped = [], Signal(data.ArrayLayout(2, halves), name="flips", reset_less=True,
                                     attrs=KEEP)     # nor of one for Vivado; Yosys may make one
        m.d.sync += flipped.eq(Cat(written.flip, Mux(block_of(config, written), written.flip, 0)))
        flips = _behind(m, flipped)
        for at in range(n * n // 2):
            word = words.word_select(at, DATA_BITS)
            pair = Signal(WORD_BITS, name=f"pair_{at}", reset_less=True)
            m.d.sync += pair.eq(Cat(word, encode(word)))
            pairs.append((_behind(m, pair), flips[at] if at < halves else Const(0, 2)))

        codes = config.family == "ultrascale_plus"
        (first, second), half = config.x_depths, config.y_lines // 2
        soft, ultra = partial(self._soft, m, platform, pairs), partial(self._ultra, m, platform, pairs)
        early = self._addresses(m, writing, written)
        x, y = _behind(m, early[0]), _behind(m, early[2])
        x_second = _behind(m, early[1]) if config.block16_only else x
        kinds = (_Kind(ultra if codes else partial(soft, first, "block"), first, early[0], x),
                 _Kind(partial(soft, second, "block"), second, early[1], x_second))
        y_kind = _Kind(ultra if codes else partial(soft, half, "ultra"), half, early[2], y)
        self._memory(m, self.x, "x", kinds, write_x)
        self._memory(m, self.even, "y_even", (y_kind, y_kind), write_even)
        self._memory(m, self.odd, "y_odd", (y_kind, y_kind), write_odd)
        return m

    def _addresses(self, m: Module, writing, written):
        """Registers, of every lane: the word of X memory in each kind of banks and that of each half of Y memory."""
        config, only = self.config, int(self.config.block16_only)
        first_bits, second_bits = ((depth - 1).bit_length() for depth in config.x_depths)
        x_bits, y_bits = (config.x_lines - 1).bit_length() + only, (config.y_lines // 2 - 1).bit_length()
        x_address = Signal(data.ArrayLayout(first_bits, config.lanes), reset_less=True)
        x_second = Signal(data.ArrayLayout(second_bits, config.lanes), reset_less=True) if only else x_address
        y_address = Signal(data.ArrayLayout(y_bits, config.lanes), reset_less=True)
        loads_block = block_of(config, written)
        for lane, slot in enumerate(self.slot):
            block = block_of(config, slot)
            # The line of an X operand lies above the bits that choose a part of it.
            shift = sum((slot.rows[bit] for bit in range(config.grid_log2)), start=Const(0, 1) if only else block)
            x = Array(slot.x[at:at + x_bits] for at in range(config.grid_log2 + config.blocks_log2 + 1))[shift]
            y = Array(slot.y[at:at + y_bits] for at in range(config.blocks_log2 + 2))[~slot.paired + block]
            if lane == 0:
                x = Mux(writing, written.address if only else Mux(loads_block, written.address[1:], written.address), x)
                y = Mux(writing, Mux(loads_block, written.address[2:], written.address[1:]), y)
            m.d.sync += x_address[lane].eq(x)
            if only:
                m.d.sync += x_second[lane].eq(Cat(x[:first_bits], x[first_bits:] - 1))
            m.d.sync += y_address[lane].eq(y)
        return x_address, x_second, y_address

    def _memory(self, m: Module, lines, name: str, kinds, write):
        """n**3 / 2 banks, in turn of two kinds; a bit of `write`, a cycle early, for each of these of a quarter."""
        config = self.config
        count = config.side**2 // 2
        for at in range(config.side * count):
            quarter, pair = divmod(at, count)
            half = at % (1 << config.blocks_log2)
            # Each bank has a register of its own, which APART keeps: they lie all over the column.
            kind = kinds[at % 2]
            pieces = selected(kind.early[0], kind.depth)
            mine = Signal(len(pieces), name=f"{name}_write_{at}", attrs=APART)
            m.d.sync += mine.eq(Mux(write[(quarter << config.blocks_log2) + half], pieces, 0))
            ports = kind.bank(f"{name}_bank_{at}", pair, mine)
            for lane, (to, *found) in enumerate(ports):
                m.d.comb += to.eq(kind.address[lane])
                line = lines[lane]
                there = line.words.word_select(at, DATA_BITS), line.corrected[at], line.uncorrectable[at]
                m.d.comb += Cat(there).eq(delay(m, f"{name}_{at}_{lane}", Cat(found), 1))

    def _soft(self, m: Module, platform, pairs, depth: int, style: str, name: str, pair: int, write):
        """A bank of codewords; address, word and flags of the port of every lane."""
        bank = Bank(depth=depth, ports=self.config.lanes, style=style)
        place(m, platform, name, bank)
        word, flips = pairs[pair]
        m.d.comb += bank.write.eq(write)
        m.d.comb += bank.codeword.eq(word ^ flips)
        return [(bank.address[lane], bank.data[lane], bank.corrected[lane], bank.uncorrectable[lane])
                for lane in range(self.config.lanes)]

    def _ultra(self, m: Module, platform, pairs, name: str, pair: int, write):
        """The same of words that the memory codes."""
        bank = ProtectedUram()
        place(m, platform, name, bank)
        word, flips = pairs[pair]
        m.d.comb += bank.write.eq(write)
        m.d.comb += bank.word.eq(word[:DATA_BITS])
        m.d.comb += bank.flips.eq(flips)
        ports = ((bank.b_address, bank.b), (bank.a_address, bank.a))
        return [(to, read.data, read.corrected, read.uncorrectable) for to, read in ports[:self.config.lanes]]
