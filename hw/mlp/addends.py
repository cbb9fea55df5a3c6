"""The addends' memory: biases and partial results, every unit's own."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.mlp.config import MlpConfig
from hw.mlp.store import Store, addend_line_layout, addends_layout, codewords, delayed, gather
from hw.place import Part, place
from hw.secded import DATA_BITS, WORD_BITS, Decoder


class AddendPart(Part):
    """The addends of one unit.

    Parameters  config: MlpConfig
    Members     line    In  to read
                o       Out  its words
                write, write_line, words  In  a write of a line
                needed  In  with `o`: its flags count
                corrected, uncorrectable  Out  a cycle behind `o`
    Timing      `latency` cycles from line to o: array, output register, decoder; what is written is in the array a
                cycle later
    """

    latency = Store.latency + Decoder.latency

    def __init__(self, config: MlpConfig):
        self.config = config
        line = (config.addend_lines - 1).bit_length()
        self.pairs = config.columns // 2
        words = data.ArrayLayout(32, config.columns)
        super().__init__({
            "line": In(line), "o": Out(words),
            "write": In(1), "write_line": In(line), "words": In(words),
            "needed": In(1), "corrected": Out(range(self.pairs + 1)), "uncorrectable": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        store = Store(depth=self.config.addend_lines, words=self.pairs, style="block")
        m.submodules.store = store
        write = Signal()
        line = Signal.like(self.write_line, reset_less=True)
        coded = Signal(WORD_BITS * self.pairs, reset_less=True)
        m.d.sync += write.eq(self.write)
        m.d.sync += line.eq(self.write_line)
        with m.If(self.write):
            m.d.sync += coded.eq(codewords(self.words))
        m.d.comb += [
            store.address.eq(self.line),
            store.write.eq(write),
            store.write_address.eq(line),
            store.i.eq(coded),
        ]
        corrected, uncorrectable = [], []
        for pair in range(self.pairs):
            decoder = Decoder()
            place(m, platform, f"decoder_{pair}", decoder)
            m.d.comb += decoder.codeword.eq(store.o.word_select(pair, WORD_BITS))
            m.d.comb += self.o.as_value().word_select(pair, DATA_BITS).eq(decoder.data)
            corrected.append(decoder.corrected & self.needed)
            uncorrectable.append(decoder.uncorrectable & self.needed)
        m.d.sync += self.corrected.eq(sum(corrected))
        m.d.sync += self.uncorrectable.eq(Cat(uncorrectable).any())
        return m


class AddendMemory(Part):
    """Addends on chip: a line of a column group for every unit a cycle.

    addends[u] = line lines[u] of unit u.

    Parameters  config: MlpConfig
    Members     lines          In  [units]
                addends        Out  [units][columns] words
                read           In  [units] with `lines`: whose are needed
                i_results      In  see `addends_layout`, always taken
                i_load         In(stream)  see `addend_line_layout`, for all units
                corrected      Out  errors that were put right, of a cycle
                uncorrectable  Out
    Timing      `latency` cycles from lines to addends, a line of every unit a cycle; `flag_latency` to the flags.
                What is written or loaded in a cycle is read `write_latency` cycles later; a read of before that gets
                the line of before or, on the card alone, anything
    Handshake   results go first: i_load.ready is the inverse of i_results' valid
    Faults      single flips of a codeword (two words) are put right in what is read, not in memory; they count where
                `read` has the unit
    Reset       contents stay; writes and flags on their way are dropped
    Golden      golden.mlp.store.Addends          Tests  verif/mlp/test_addends.py
    """

    latency = AddendPart.latency
    write_latency = 3

    def __init__(self, config: MlpConfig):
        self.config = config
        self.flag_latency = self.latency + 1 + (config.units - 1).bit_length()
        line = (config.addend_lines - 1).bit_length()
        super().__init__({
            "lines": In(data.ArrayLayout(line, config.units)), "read": In(config.units),
            "addends": Out(data.ArrayLayout(data.ArrayLayout(32, config.columns), config.units)),
            "i_results": In(addends_layout(config)), "i_load": In(stream.Signature(addend_line_layout(config))),
            "corrected": Out(range(config.units * config.columns // 2 + 1)), "uncorrectable": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        results = Signal(addends_layout(config), reset_less=True)
        writes = Signal()
        load = Signal(addend_line_layout(config), reset_less=True)
        loads = Signal()
        m.d.comb += self.i_load.ready.eq(~self.i_results.valid)
        m.d.sync += writes.eq(self.i_results.valid)
        m.d.sync += loads.eq(self.i_load.valid & ~self.i_results.valid)
        with m.If(self.i_results.valid):
            m.d.sync += results.eq(self.i_results)
        with m.If(self.i_load.valid):
            m.d.sync += load.eq(self.i_load.payload)
        needed = delayed(m, "needed", self.read, self.latency)
        tallies = []
        for unit in range(config.units):
            part = AddendPart(config)
            place(m, platform, f"part_{unit}", part)
            m.d.comb += [
                part.line.eq(self.lines[unit]),
                part.needed.eq(needed[unit]),
                self.addends[unit].eq(part.o),
                part.write.eq(loads | (writes & results.units[unit])),
                part.write_line.eq(Mux(loads, load.line, results.line)),
                part.words.eq(Mux(loads, load.words, results.words[unit])),
            ]
            tallies.append((part.corrected, part.uncorrectable))
        number, bad = gather(m, "flags", tallies)
        m.d.comb += self.corrected.eq(number)
        m.d.comb += self.uncorrectable.eq(bad)
        return m
