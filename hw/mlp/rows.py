"""The rows' memory: what the arrays take as rows, and as columns when features meet each other."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.fp.logic import named
from hw.mlp.config import MlpConfig
from hw.mlp.records import LATENCY, SOURCE, load_layout, slot_layout
from hw.mlp.store import Store, codewords, delayed, gather, rows_layout
from hw.place import Part, place
from hw.secded import DATA_BITS, WORD_BITS, Decoder

READS = 3   # of a row's banks in a cycle: as a row, and as a column of either group
CHOICE = 1 + Store.latency      # cycles from a slot to the choice among the banks' codewords
assert CHOICE + 1 + Decoder.latency == LATENCY


def _pairs(config: MlpConfig) -> int:
    """Codewords of a bank's line."""
    return config.piece // 2


def _banks_layout(config: MlpConfig) -> data.ArrayLayout:
    return data.ArrayLayout((config.pieces - 1).bit_length(), READS)


class RowLane(Part):
    """The banks of one row of a unit.

    Parameters  config: MlpConfig
    Members     lines   In  of every bank
                enable  In  else the lines of before are read again
                banks   In  which banks are read, CHOICE - 1 cycles behind `lines`
                o       Out  their pieces
                write, write_lines  In  which banks are written, and where
                words   In  a cycle behind: what, as codewords
                needed  In  which reads count, with `o`
                corrected, uncorrectable  Out  a cycle behind `o`
    Timing      LATENCY cycles from lines to o: address, array, output register, choice of the bank, decoder
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        line = (config.row_lines - 1).bit_length()
        coded = WORD_BITS * config.words // 2
        super().__init__({
            "lines": In(data.ArrayLayout(line, config.pieces)), "enable": In(1),
            "banks": In(_banks_layout(config)),
            "o": Out(data.ArrayLayout(32 * config.piece, READS)),
            "write": In(config.pieces), "write_lines": In(data.ArrayLayout(line, config.pieces)), "words": In(coded),
            "needed": In(READS),
            "corrected": Out(range(READS * _pairs(config) + 1)), "uncorrectable": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        pairs = _pairs(config)
        width = WORD_BITS * pairs

        lines = Signal.like(self.lines, reset_less=True)
        banks = Signal.like(self.banks, reset_less=True)
        write = Signal(config.pieces)
        write_lines = Signal.like(self.write_lines, reset_less=True)
        with m.If(self.enable):
            m.d.sync += lines.eq(self.lines)
        m.d.sync += banks.eq(self.banks)
        m.d.sync += write.eq(self.write)
        m.d.sync += write_lines.eq(self.write_lines)

        found = []
        for bank in range(config.pieces):
            store = Store(depth=config.row_lines, words=pairs, style="block")
            m.submodules[f"bank_{bank}"] = store
            m.d.comb += [
                store.address.eq(lines[bank]),
                store.write.eq(write[bank]),
                store.write_address.eq(write_lines[bank]),
                store.i.eq(self.words.word_select(bank, width)),
            ]
            found.append(store.o)

        corrected, uncorrectable = [], []
        for read in range(READS):
            # One decoder a read is fewer than one a bank, and the choice is a single level before it.
            chosen = Signal(width, name=f"chosen_{read}", reset_less=True)
            with m.Switch(banks[read]):
                for bank in range(config.pieces):
                    with m.Case(bank):
                        m.d.sync += chosen.eq(found[bank])
            for pair in range(pairs):
                decoder = Decoder()
                place(m, platform, f"decoder_{read}_{pair}", decoder)
                m.d.comb += decoder.codeword.eq(chosen.word_select(pair, WORD_BITS))
                m.d.comb += self.o[read].word_select(pair, DATA_BITS).eq(decoder.data)
                corrected.append(decoder.corrected & self.needed[read])
                uncorrectable.append(decoder.uncorrectable & self.needed[read])
        m.d.sync += self.corrected.eq(sum(corrected))
        m.d.sync += self.uncorrectable.eq(Cat(uncorrectable).any())
        return m


class RowUnit(Part):
    """The rows of one unit.

    Parameters  config: MlpConfig
    Members     lines, enable, banks  In  as of RowLane
                part        In  with x and f
                x, f        Out
                row_lanes, row_banks, row_lines, row_words  In  a write of results
                load_lanes  In  one at most, and none in a cycle of `row_lanes`
                load_line, load_words  In  a load, as codewords
                needed      In  the reads of each row that count, with x and f
                corrected, uncorrectable  Out  of those
    Timing      as of RowLane; a write is in the arrays two cycles later
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        line = (config.row_lines - 1).bit_length()
        number = range(config.rows * READS * _pairs(config) + 1)
        super().__init__({
            "lines": In(data.ArrayLayout(line, config.pieces)), "enable": In(1),
            "banks": In(_banks_layout(config)), "part": In(max(1, (config.parts - 1).bit_length())),
            "x": Out(data.ArrayLayout(data.ArrayLayout(32, config.width), config.rows)),
            "f": Out(data.ArrayLayout(32, config.line_words)),
            "row_lanes": In(config.rows), "row_banks": In(config.pieces),
            "row_lines": In(data.ArrayLayout(line, config.pieces)),
            "row_words": In(data.ArrayLayout(32, config.words)),
            "load_lanes": In(config.rows), "load_line": In(line), "load_words": In(WORD_BITS * config.words // 2),
            "needed": In(data.ArrayLayout(READS, config.rows)),
            "corrected": Out(number), "uncorrectable": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config

        # Results or a load: of two kinds of writes one is chosen here, for all rows. The words' register is here, those
        # of lines and banks are in every row.
        words = Signal(WORD_BITS * config.words // 2, reset_less=True)
        load = named(m, "load", self.load_lanes.any())
        write_lines = [Mux(load, self.load_line, own) for own in self.row_lines]
        with m.If(load | self.row_lanes.any()):
            m.d.sync += words.eq(Mux(load, self.load_words, codewords(self.row_words)))

        tallies = []
        for row in range(config.rows):
            lane = RowLane(config)
            place(m, platform, f"lane_{row}", lane)
            m.d.comb += [
                lane.lines.eq(self.lines),
                lane.enable.eq(self.enable),
                lane.banks.eq(self.banks),
                lane.write.eq(Mux(self.load_lanes[row], ~0, Mux(self.row_lanes[row], self.row_banks, 0))),
                lane.write_lines.eq(Cat(write_lines)),
                lane.words.eq(words),
                lane.needed.eq(self.needed[row]),
            ]
            tallies.append((lane.corrected, lane.uncorrectable))
            bits = 32 * config.width
            x, *ys = (lane.o[read].word_select(self.part, bits) if config.parts > 1 else lane.o[read]
                      for read in range(READS))
            m.d.comb += self.x[row].eq(x)
            for group, y in enumerate(ys):
                column = group * config.rows + row
                m.d.comb += self.f.as_value().word_select(column, bits).eq(y)
        number, bad = gather(m, "flags", tallies)
        m.d.comb += self.corrected.eq(number)
        m.d.comb += self.uncorrectable.eq(bad)
        return m


class RowMemory(Part):
    """Rows of samples and of features on chip: a piece of every row a cycle, a beat of results or of loads in.

    x[u][r] = part `part` of bank x_bank of row r of unit u at its line, f[u][m * rows + r] the same of y_banks[m].

    Parameters  config: MlpConfig
    Members     valid, slot    In  see `slot_layout`
                x              Out  [units][rows][width] words
                f              Out  [units][line_words] words
                i_rows         In  see `rows_layout`, always taken
                i_load         In(stream)  see `load_layout`
                corrected      Out  errors that were put right, of a cycle
                uncorrectable  Out
    Timing      LATENCY cycles from slot to x and f, a slot per cycle; `flag_latency` to the flags. What is written or
                loaded in a cycle is read by a slot `write_latency` cycles later. A slot of before that gets the line
                of before, or, on the card alone, anything in the one cycle in which the array is written: who reads
                it waits. Without `valid` x and f mean nothing
    Handshake   results go first: i_load.ready is the inverse of i_rows' valid
    Faults      single flips of a codeword (two words) are put right in what is read, not in memory. A word counts
                where it is needed: as a row if its lane is in `lanes` and the slot does not `keep`; as a column if
                the source is FEATURES, its group in `y_groups`, its unit has a lane in `lanes`, with its group in
                `y_own` its own one, and the slot is not `blank`. With a width of 1 a codeword is two steps' operands:
                it is read in both, and counts in both
    Reset       contents stay; writes and flags on their way are dropped
    Golden      golden.mlp.store.Rows          Tests  verif/mlp/test_rows.py
    """

    write_latency = 2

    def __init__(self, config: MlpConfig):
        self.config = config
        levels = (config.samples - 1).bit_length()
        self.flag_latency = LATENCY + 1 + levels
        super().__init__({
            "valid": In(1), "slot": In(slot_layout(config)),
            "x": Out(data.ArrayLayout(data.ArrayLayout(data.ArrayLayout(32, config.width), config.rows),
                                      config.units)),
            "f": Out(data.ArrayLayout(data.ArrayLayout(32, config.line_words), config.units)),
            "i_rows": In(rows_layout(config)), "i_load": In(stream.Signature(load_layout(config))),
            "corrected": Out(range(config.samples * READS * _pairs(config) + 1)), "uncorrectable": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, slot = self.config, self.slot

        # Results in a register, a load in another; never in the same cycle.
        rows = Signal(rows_layout(config), reset_less=True)
        writes = Signal()
        loads = Signal(config.samples)
        load_line = Signal.like(self.i_load.payload.line, reset_less=True)
        load_words = Signal(32 * config.words, reset_less=True)
        payload = self.i_load.payload
        lane = Cat(payload.row, payload.unit)
        taken = self.i_load.valid & self.i_load.ready
        m.d.comb += self.i_load.ready.eq(~self.i_rows.valid)
        m.d.sync += writes.eq(self.i_rows.valid)
        m.d.sync += loads.eq(Mux(taken, 1 << lane, 0))
        with m.If(self.i_rows.valid):
            m.d.sync += rows.eq(self.i_rows)
        with m.If(self.i_load.valid):
            m.d.sync += load_line.eq(payload.line)
            with m.Switch(payload.turn):
                for turn in range(config.pieces):
                    with m.Case(turn):
                        m.d.sync += load_words.eq(
                            payload.words.as_value().rotate_left(turn * 32 * config.piece))
        coded = codewords(load_words)

        banks = delayed(m, "banks", Cat(slot.x_bank, slot.y_banks), CHOICE - 1)
        part = delayed(m, "part", slot.part, LATENCY)
        tallies = []
        for unit in range(config.units):
            group = RowUnit(config)
            place(m, platform, f"unit_{unit}", group)
            own = slot.lanes[unit * config.rows:][:config.rows]
            columns = (self.valid & (slot.source == SOURCE.FEATURES) & ~slot.blank & own.any()).replicate(2)
            needed = delayed(m, f"needed_{unit}", Cat(
                Cat(self.valid & ~slot.keep & one, columns & slot.y_groups & (one.replicate(2) | ~slot.y_own))
                for one in own), LATENCY)
            m.d.comb += [
                group.lines.eq(slot.lines),
                group.enable.eq(self.valid),
                group.banks.eq(banks),
                group.part.eq(part),
                self.x[unit].eq(group.x),
                self.f[unit].eq(group.f),
                group.row_lanes.eq(Mux(writes, rows.lanes[unit * config.rows:][:config.rows], 0)),
                group.row_banks.eq(rows.banks),
                group.row_lines.eq(rows.lines),
                group.row_words.eq(rows.words[unit]),
                group.load_lanes.eq(loads[unit * config.rows:][:config.rows]),
                group.load_line.eq(load_line),
                group.load_words.eq(coded),
                group.needed.eq(needed),
            ]
            tallies.append((group.corrected, group.uncorrectable))
        number, bad = gather(m, "flags", tallies)
        m.d.comb += self.corrected.eq(number)
        m.d.comb += self.uncorrectable.eq(bad)
        return m
