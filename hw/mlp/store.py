"""Memory of protected words for the MLP core: an array of codewords, and the sums of what their decoders tell."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hw.mlp.config import MlpConfig
from hw.secded import DATA_BITS, WORD_BITS, encode

FLAGS = 4       # decoders whose flags are added up at a time


def _bits(values: int) -> int:
    return max(1, (values - 1).bit_length())


def rows_layout(config: MlpConfig) -> data.StructLayout:
    """A write of results to the rows' memory: in every row (unit * rows + row) of `lanes`, one at least, bank k of
    `banks` takes words[unit][k * piece..] at lines[k]."""
    return data.StructLayout({
        "valid": 1, "lanes": config.samples, "banks": config.pieces,
        "lines": data.ArrayLayout(_bits(config.row_lines), config.pieces),
        "words": data.ArrayLayout(data.ArrayLayout(32, config.words), config.units),
    })


def addends_layout(config: MlpConfig) -> data.StructLayout:
    """A write of results to the addends' memory: words[unit] at `line` in each of `units`."""
    return data.StructLayout({
        "valid": 1, "units": config.units, "line": _bits(config.addend_lines),
        "words": data.ArrayLayout(data.ArrayLayout(32, config.columns), config.units),
    })


def addend_line_layout(config: MlpConfig) -> data.StructLayout:
    """A line of addends on its way to every unit."""
    return data.StructLayout({"line": _bits(config.addend_lines), "words": data.ArrayLayout(32, config.columns)})


def weights_layout(config: MlpConfig) -> data.StructLayout:
    """A line of weights on its way to `line` of a unit's part."""
    return data.StructLayout({
        "valid": 1, "unit": _bits(config.units), "line": _bits(config.weight_lines),
        "words": data.ArrayLayout(32, config.line_words),
    })


def codewords(words: Value | data.View) -> Value:
    """Words of 32 bits, two by two with their check bits."""
    bits = Value.cast(words)
    if len(bits) % DATA_BITS:
        raise ValueError(f"codewords takes pairs of 32-bit words, not {len(bits)} bits")
    return Cat(Cat(pair, encode(pair)) for pair in (bits[at:at + DATA_BITS] for at in range(0, len(bits), DATA_BITS)))


def delayed(m: Module, name: str, value: Value, cycles: int) -> Value:
    """`value` as it was `cycles` ago; zero after a reset."""
    for cycle in range(cycles):
        register = Signal(len(value), name=f"{name}_{cycle + 1}")
        m.d.sync += register.eq(value)
        value = register
    return value


def first_sums(m: Module, name: str, flags: Sequence[tuple[Value, Value]]) -> list[tuple[Value, Value]]:
    """How many decoders corrected and whether any could not, of FLAGS at a time, in registers."""
    found = []
    for at in range(0, len(flags), FLAGS):
        some = flags[at:at + FLAGS]
        number, bad = Signal(range(len(some) + 1), name=f"{name}_{at}"), Signal(name=f"{name}_bad_{at}")
        m.d.sync += number.eq(sum(one for one, _ in some))
        m.d.sync += bad.eq(Cat(one for _, one in some).any())
        found.append((number, bad))
    return found


def gather(m: Module, name: str, tallies: Sequence[tuple[Value, Value]]) -> tuple[Value, Value]:
    """The sum of numbers and the union of flags, pair by pair with a register behind each: log2(tallies) cycles."""
    level = 0
    while len(tallies) > 1:
        found = []
        for at in range(0, len(tallies), 2):
            (a, bad_a), (b, bad_b) = tallies[at], tallies[at + 1]
            number = Signal(len(a) + 1, name=f"{name}_number_{level}_{at}")
            bad = Signal(name=f"{name}_bad_{level}_{at}")
            m.d.sync += number.eq(a + b)
            m.d.sync += bad.eq(bad_a | bad_b)
            found.append((number, bad))
        tallies, level = found, level + 1
    return tallies[0]


class Store(wiring.Component):
    """Codewords side by side in memories of their own that are read and written together.

    Parameters  depth: lines; words: codewords of a line; style: "block" or "ultra"
    Members     address  In
                o        Out  the line's codewords
                write, write_address, i  In
    Timing      latency 2 cycles from address to o: array and output register; a line per cycle each way. A line that is
                written in one cycle is read from the next on; read in the same cycle it is not defined (in simulation
                the old one)
    Reset       contents stay
    Golden      golden.mlp.store, golden.secded.decode
    Tests       verif/mlp/test_rows.py, verif/mlp/test_weights.py, verif/mlp/test_addends.py
    """

    latency = 2

    def __init__(self, *, depth: int, words: int, style: str):
        if style not in ("ultra", "block"):
            raise ValueError(f"style must be 'ultra' or 'block', not {style!r}")
        self.depth = depth
        self.words = words
        self.style = style
        super().__init__({
            "address": In(_bits(depth)), "o": Out(WORD_BITS * words),
            "write": In(1), "write_address": In(_bits(depth)), "i": In(WORD_BITS * words),
        })

    def elaborate(self, platform):
        m = Module()
        held = []
        for word in range(self.words):
            store = memory.Memory(shape=WORD_BITS, depth=self.depth, init=[], attrs={"ram_style": self.style})
            m.submodules[f"store_{word}"] = store
            write, read = store.write_port(), store.read_port()
            line = Signal(WORD_BITS, name=f"held_{word}", reset_less=True)
            m.d.sync += line.eq(read.data)
            m.d.comb += [
                read.addr.eq(self.address),
                write.addr.eq(self.write_address),
                write.en.eq(self.write),
                write.data.eq(self.i.word_select(word, WORD_BITS)),
            ]
            held.append(line)
        m.d.comb += self.o.eq(Cat(held))
        return m
