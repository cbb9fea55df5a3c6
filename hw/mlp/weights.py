"""The weights' memory: a part for every unit."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.mlp.config import MlpConfig
from hw.mlp.records import LATENCY, SOURCE, slot_layout
from hw.mlp.store import FLAGS, Store, codewords, delayed, first_sums, gather, weights_layout
from hw.place import Part, place
from hw.secded import DATA_BITS, WORD_BITS, Decoder
from hw.uram import ProtectedUram, read_layout

assert 1 + Store.latency + 1 + Decoder.latency == 1 + ProtectedUram.latency + 1 == LATENCY


def _stored(config: MlpConfig) -> int:
    """Bits of two words on their way to the memory: with their check bits if it does not make them itself."""
    return WORD_BITS if config.family == "any" else DATA_BITS


class WeightPart(Part):
    """The weights of one unit.

    Parameters  config: MlpConfig
    Members     line    In
                enable  In  else the line of before is read again
                w       Out
                write, write_line, codewords  In  the words alone if the memory codes them
                needed  In  with `w`: its flags count
                corrected, uncorrectable  Out
    Timing      LATENCY cycles from line to w: address, array, output register, one on the way from the UltraRAM's
                column, decoder; or address, those of ProtectedUram and one on the way. What is written is in the array
                two cycles later, or three, as the reads are
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        line = (config.weight_lines - 1).bit_length()
        self.pairs = config.line_words // 2
        self.flag_cycles = 1 + (-(-self.pairs // FLAGS) - 1).bit_length()
        super().__init__({
            "line": In(line), "enable": In(1), "w": Out(data.ArrayLayout(32, config.line_words)),
            "write": In(1), "write_line": In(line), "codewords": In(_stored(config) * self.pairs),
            "needed": In(1), "corrected": Out(range(self.pairs + 1)), "uncorrectable": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        line = Signal.like(self.line, reset_less=True)
        with m.If(self.enable):
            m.d.sync += line.eq(self.line)
        # The UltraRAMs stand in a column, far from where the words come from and where they go.
        write = Signal()
        write_line = Signal.like(self.write_line, reset_less=True)
        words = Signal.like(self.codewords, reset_less=True)
        m.d.sync += write.eq(self.write)
        m.d.sync += write_line.eq(self.write_line)
        with m.If(self.write):
            m.d.sync += words.eq(self.codewords)

        memory = self._soft if self.config.family == "any" else self._urams
        flags = memory(m, platform, line, write, write_line, words)
        number, bad = gather(m, "flags", first_sums(m, "first", flags))
        m.d.comb += self.corrected.eq(number)
        m.d.comb += self.uncorrectable.eq(bad)
        return m

    def _soft(self, m: Module, platform, line, write, write_line, words):
        """Codewords and their decoders; returns the flags of each that count."""
        store = Store(depth=self.config.weight_lines, words=self.pairs, style="ultra")
        m.submodules.store = store
        m.d.comb += [
            store.address.eq(line),
            store.write.eq(write),
            store.write_address.eq(write_line),
            store.i.eq(words),
        ]
        flags = []
        for pair in range(self.pairs):
            held = Signal(WORD_BITS, name=f"held_{pair}", reset_less=True)
            decoder = Decoder()
            place(m, platform, f"decoder_{pair}", decoder)
            m.d.sync += held.eq(store.o.word_select(pair, WORD_BITS))
            m.d.comb += decoder.codeword.eq(held)
            m.d.comb += self.w.as_value().word_select(pair, DATA_BITS).eq(decoder.data)
            flags.append((decoder.corrected & self.needed, decoder.uncorrectable & self.needed))
        return flags

    def _urams(self, m: Module, platform, line, write, write_line, words):
        """The same of words that the memory codes."""
        flags = []
        for pair in range(self.pairs):
            uram = ProtectedUram()
            place(m, platform, f"uram_{pair}", uram)
            held = Signal(read_layout(), name=f"held_{pair}", reset_less=True)
            m.d.sync += held.eq(uram.a)
            m.d.comb += [
                uram.a_address.eq(line),
                uram.b_address.eq(write_line),
                uram.write.eq(write),
                uram.word.eq(words.word_select(pair, DATA_BITS)),
                self.w.as_value().word_select(pair, DATA_BITS).eq(held.data),
            ]
            flags.append((held.corrected & self.needed, held.uncorrectable & self.needed))
        return flags


class WeightMemory(Part):
    """Weights on chip: a line of a column group for every unit a cycle.

    w[u] = line weight_line of part u.

    Parameters  config: MlpConfig
    Members     valid, slot    In  see `slot_layout`
                w              Out  [units][line_words] words, each unit's own part
                load           In  see `weights_layout`, always taken
                corrected      Out  errors that were put right, of a cycle
                uncorrectable  Out
    Timing      LATENCY cycles from slot to w, a slot per cycle; `flag_latency` to the flags. What is loaded in a cycle
                is read by a slot `write_latency` cycles later; a slot of before that gets the line of before or, on
                the card alone, anything. Without `valid` w means nothing
    Handshake   none
    Faults      single flips of a codeword (two words) are put right in what is read, not in memory. A word counts
                where it is needed: with source SHARED in part `unit`, with OWN in all but those of the last
                `idle_units`, which no line may have been loaded to, with FEATURES in none
    Reset       contents stay; a line and flags on their way are dropped
    Golden      golden.mlp.store.Weights          Tests  verif/mlp/test_weights.py
    """

    write_latency = 2

    def __init__(self, config: MlpConfig):
        self.config = config
        self._parts = [WeightPart(config) for _ in range(config.units)]
        self.flag_latency = LATENCY + self._parts[0].flag_cycles + (config.units - 1).bit_length()
        super().__init__({
            "valid": In(1), "slot": In(slot_layout(config)),
            "w": Out(data.ArrayLayout(data.ArrayLayout(32, config.line_words), config.units)),
            "load": In(weights_layout(config)),
            "corrected": Out(range(config.units * config.line_words // 2 + 1)), "uncorrectable": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, slot = self.config, self.slot
        load = Signal(weights_layout(config), reset_less=True)
        writes = Signal()
        m.d.sync += writes.eq(self.load.valid)
        with m.If(self.load.valid):
            m.d.sync += load.eq(self.load)
        coded = codewords(load.words) if config.family == "any" else load.words
        wanted = Cat(self.valid & ~slot.blank & (
            ((slot.source == SOURCE.OWN) & slot.idle_units.matches(*range(config.units - unit)))
            | ((slot.source == SOURCE.SHARED) & (slot.unit == unit)))
            for unit in range(config.units))
        needed = delayed(m, "needed", wanted, LATENCY)
        tallies = []
        for unit, part in enumerate(self._parts):
            place(m, platform, f"part_{unit}", part)
            m.d.comb += [
                part.line.eq(slot.weight_line),
                part.enable.eq(self.valid),
                self.w[unit].eq(part.w),
                part.write.eq(writes & (load.unit == unit)),
                part.write_line.eq(load.line),
                part.codewords.eq(coded),
                part.needed.eq(needed[unit]),
            ]
            tallies.append((part.corrected, part.uncorrectable))
        number, bad = gather(m, "flags", tallies)
        m.d.comb += self.corrected.eq(number)
        m.d.comb += self.uncorrectable.eq(bad)
        return m
