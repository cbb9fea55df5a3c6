"""The tensor-train computation unit: bags of row numbers in, sums of rows of many resident tables out."""

from functools import partial

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fp.group import GROUP, Aligner
from hw.fp.operand import unpack
from hw.place import Part, place
from hw.secded import DATA_BITS, WORD_BITS, encode
from hw.stream.skid_buffer import SkidBuffer
from hw.tt.config import TTConfig
from hw.tt.cores import Bank
from hw.tt.descriptor import Target, load_layout
from hw.tt.grid import Grid
from hw.tt.index import IndexSplitter, lookup_layout
from hw.tt.intermediate import Intermediate, WordBank
from hw.tt.sequencer import Sequencer
from hw.tt.sums import SumMemory, SumStream, sum_layout
from hw.tt.tokens import Product, slot_layout
from hw.uram import ProtectedUram

__all__ = ["TTUnit", "counters_layout"]

# From the cycle in which a slot is decided to the one in which its operands enter the grid.
FETCH_CYCLES = 2 + Bank.latency + 1
assert Bank.latency == ProtectedUram.latency


def counters_layout() -> data.StructLayout:
    """What the unit counts since reset, modulo 2**32.

    lookups: accepted. computed, reused: first products. slots: issue slots with work. corrected: lines read with
    a bit put right. uncorrectable: lines read with two bits flipped. outside: row numbers past their table.
    """
    names = ("lookups", "computed", "reused", "slots", "corrected", "uncorrectable", "outside")
    return data.StructLayout(dict.fromkeys(names, 32))


class TTUnit(Part):
    """Sums rows of embedding tables that live on chip as tensor trains.

    E(i, :) = G_1[i_1] G_2[i_2] .. G_d[i_d], d = 2, 3 or 4.      Source: SCRec §II.B eq. 2, §III.E Alg. 1

    Parameters  config: TTConfig
    Members     i_lookups  In(stream)  {table, index, begin, end}: a row of a chunk, which begins, ends with it. A
                    chunk has up to 8 rows of one table, as many as golden.tt.chunk_rows says (more may lock up); a row
                    by itself is a chunk of one
                o_vectors  Out(stream)  sums of chunks in their order, hw.tt.sums.sum_layout
                i_load     In(stream)  cores and descriptors (hw.tt.descriptor)
                counters   Out  events since reset, by name
    Shapes      a sum of D words leaves as ceil(D / n**2) beats of n**2 words, d ascending
    Timing      a lookup takes golden.tt.layout.plan(..).slots issue slots, its first product's fewer when that
                is reused; `lanes` slots a cycle, back to back over lookups, tables and shapes. One beat of sums a
                cycle; a chunk's tiles leave a lane every n-th cycle at most. Latency of a lookup in an idle unit:
                golden.tt.cycles
    Handshake   no combinational path from any ready to another stream's ready or valid. i_load waits for the
                end of a tile of lane 0, whose slot it takes
    Numerics    hw.fp.dot; subnormal cores are zero, NaN and infinite ones propagate; a stored -0 is padding,
                which golden.tt.image never leaves in a core's place; against golden: bit-exact
    Memory      every core word under SECDED: single errors corrected and counted, double ones counted and the
                vector marked, and with it the vectors that reuse its first product
    Reset       drops lookups, results and remembered first products; cores and descriptors stay. Loading a table
                anew while lookups of it are under way is undefined; reset or drain first, since first products
                of the old cores may be reused
    Raises      ValueError: see TTConfig
    Golden      golden.tt.rows, golden.tt.pooled, golden.tt.cycles    Tests  verif/tt/test_unit.py
    """

    def __init__(self, config: TTConfig):
        self.config = config
        super().__init__({
            "i_lookups": In(stream.Signature(lookup_layout(config))),
            "o_vectors": Out(stream.Signature(sum_layout(config))),
            "i_load": In(stream.Signature(load_layout(config))),
            "counters": Out(counters_layout()),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        lanes = range(config.lanes)
        events: dict[str, list] = {name: [] for name in ("computed", "reused", "slots", "corrected", "uncorrectable")}
        # Loads reach everything: they come out of registers.
        m.submodules.loads = loads = SkidBuffer(load_layout(config))
        load = loads.o
        stored = self._stored(m, platform, loads)
        beat = load.payload
        table_write = load.valid & load.ready & (beat.target == Target.TABLE)

        # -- Row numbers to slices, chunks dealt to the lanes by how much a lane has to do.
        m.submodules.split = split = IndexSplitter(config)
        accept = Signal()
        turn_in, turn_out = Signal(), Signal()
        waiting = [Signal(range(config.in_flight + 1), name=f"waiting_{lane}") for lane in lanes]
        lane_ready = Array([count != config.in_flight for count in waiting])[turn_in]
        sums = SumStream(config)
        place(m, platform, "sums", sums)
        m.d.comb += [
            accept.eq(self.i_lookups.valid & self.i_lookups.ready),
            split.i_valid.eq(accept),
            split.i.eq(self.i_lookups.payload),
            split.write.eq(table_write),
            split.part.eq(beat.part),
            split.table.eq(beat.address),
            split.words.eq(beat.data),
            self.i_lookups.ready.eq(lane_ready & sums.room),
            sums.push.eq(accept & self.i_lookups.payload.begin),
            sums.lane.eq(turn_in),
            self.o_vectors.payload.eq(sums.o.payload),
            self.o_vectors.valid.eq(sums.o.valid),
            sums.o.ready.eq(self.o_vectors.ready),
        ]
        if config.lanes == 2:
            m.d.comb += turn_out.eq(self._deal(m, accept, turn_in, waiting, split.latency))

        # -- Lanes.
        grids = [Grid(config) for _ in lanes]
        grid_latency = grids[0].latency
        entry = Intermediate(config).entry
        distance = FETCH_CYCLES + grid_latency + entry + 2 - (FETCH_CYCLES - 1 - WordBank.latency)
        sequencers, slots = [], []
        for lane in lanes:
            sequencer = Sequencer(config, distance=distance)
            place(m, platform, f"sequencer_{lane}", sequencer)
            m.d.comb += [
                sequencer.i_valid.eq(split.o_valid & (turn_out == lane)),
                sequencer.i.eq(split.o),
                sequencer.write.eq(table_write),
                sequencer.part.eq(beat.part),
                sequencer.table.eq(beat.address),
                sequencer.words.eq(beat.data),
            ]
            comes = accept & (turn_in == lane)
            with m.If(comes ^ sequencer.taken):
                m.d.sync += waiting[lane].eq(waiting[lane] + Cat(1, sequencer.taken.replicate(len(waiting[lane]) - 1)))
            sequencers.append(sequencer)
            slots.append(self._pipeline(m, f"slot_{lane}", sequencer.o_valid, sequencer.o, FETCH_CYCLES - 1))
            events["computed"].append(sequencer.computed)
            events["reused"].append(sequencer.reused)
            events["slots"].append(sequencer.o_valid)
        # A load takes the place of a slot of lane 0.
        m.d.comb += load.ready.eq(sequencers[0].open)
        m.d.comb += sequencers[0].hold.eq(load.valid)

        lines = self._cores(m, platform, load, stored, slots)
        for lane in lanes:
            self._lane(m, platform, lane, slots[lane], lines[lane], sequencers[lane], grids[lane], sums, events)

        # -- Counters.
        outside = split.o_valid & split.o.outside
        for name, bits in {"lookups": [accept], "outside": [outside], **events}.items():
            total = Signal(range(len(bits) + 1), name=f"{name}_now")
            m.d.sync += total.eq(sum(bits, start=0))
            m.d.sync += self.counters[name].eq(self.counters[name] + total)
        return m

    def _deal(self, m: Module, accept, turn, waiting, latency: int):
        """Gives `turn` the lane of the next chunk: the one with fewer lookups, or the other one than before.

        Returns the lane of the lookup that leaves the splitter.
        """
        # Between chunks the choice is looked over every cycle.
        inside, before = Signal(), Signal(init=1)
        with m.If(accept):
            m.d.sync += inside.eq(~self.i_lookups.payload.end)
            m.d.sync += before.eq(turn)
        with m.If(Mux(accept, self.i_lookups.payload.end, ~inside)):
            m.d.sync += turn.eq(Mux(waiting[0] == waiting[1], ~Mux(accept, turn, before), waiting[1] < waiting[0]))
        lane = turn
        for at in range(latency):
            held = Signal(name=f"lane_{at}", reset_less=True)
            m.d.sync += held.eq(lane)
            lane = held
        return lane

    def _pipeline(self, m: Module, name: str, valid, slot, length: int):
        """[(valid, slot)] one cycle after `slot` and later; entry k is k + 1 cycles after the decision."""
        stages = [(valid, slot)]
        for at in range(length):
            held_valid = Signal(name=f"{name}_valid_{at}")
            held = Signal(slot_layout(self.config), name=f"{name}_{at}", reset_less=True)
            m.d.sync += held_valid.eq(stages[-1][0])
            m.d.sync += held.eq(stages[-1][1])
            stages.append((held_valid, held))
        return stages

    def _stored(self, m: Module, platform, loads: SkidBuffer) -> Value:
        """Takes the loads in; returns the words of the oldest as they are stored.

        Groups of four wait in front of the unit while they are brought to one exponent: a load in `latency` + 2 cycles.
        """
        given, count = self.i_load.payload.data, self.config.beat_words
        if not self.config.grouped:
            wiring.connect(m, wiring.flipped(self.i_load), loads.i)
            held = [loads.o.payload.data.word_select(at, 32) for at in range(count)]
            # A subnormal becomes +0: a stored -0 is padding.
            return Cat(Cat(word.mant, word.exp, word.sign & ~(word.zero & given[:23].any()))
                       for word, given in ((unpack(given), given) for given in held))
        groups = []
        for at in range(count // GROUP):
            aligner = Aligner()
            place(m, platform, f"aligner_{at}", aligner)
            words = given.word_select(at, 32 * GROUP)
            m.d.comb += aligner.i.eq(words)     # in which -0 is padding
            m.d.comb += aligner.padding.eq(Cat(words.word_select(w, 32) == 1 << 31 for w in range(GROUP)))
            groups.append(aligner.o.as_value())
        age, taken, stored = Signal(range(Aligner.latency + 1)), Signal(), Signal(32 * count, reset_less=True)
        m.d.comb += [
            taken.eq(self.i_load.valid & (age == Aligner.latency) & ~loads.o.valid),
            loads.i.payload.eq(self.i_load.payload),
            loads.i.valid.eq(taken),
            self.i_load.ready.eq(taken),
        ]
        with m.If(taken):
            m.d.sync += age.eq(0)
            m.d.sync += stored.eq(Cat(groups))
        with m.Elif(self.i_load.valid & (age != Aligner.latency)):
            m.d.sync += age.eq(age + 1)
        return stored

    def _cores(self, m: Module, platform, load, words_stored, slots):
        """X and Y memory. Per lane: (x, y even, y odd) lines and their error flags, 5 cycles after the slot."""
        config = self.config
        n, bits = config.side, config.grid_log2
        lanes = range(config.lanes)
        beat = load.payload

        # Load: words encoded, in step with lane 0's addresses.
        taken = load.valid & load.ready
        write_x, write_y = Signal(), Signal()
        stored = Signal(data.ArrayLayout(32, n * n), reset_less=True)
        flip = Signal(2, reset_less=True)
        line, part = Signal(len(beat.address), reset_less=True), Signal(len(beat.part), reset_less=True)
        m.d.sync += [
            stored.eq(words_stored),
            write_x.eq(taken & (beat.target == Target.X)),
            write_y.eq(taken & (beat.target == Target.Y)),
            flip.eq(beat.flip),
            line.eq(beat.address),
            part.eq(beat.part),
        ]
        codewords = [Signal(WORD_BITS, name=f"codeword_{at}", reset_less=True) for at in range(n * n // 2)]
        write_x_now, write_y_now = Signal(n), Signal(data.ArrayLayout(n, 2))
        line_now = Signal(len(line), reset_less=True)
        for at, codeword in enumerate(codewords):
            pair = Cat(stored[2 * at], stored[2 * at + 1])
            flipped = Cat(flip, *[0] * (DATA_BITS - 2)) if at == 0 else 0
            m.d.sync += codeword.eq(Cat(pair ^ flipped, encode(pair)))
        for quarter in range(n):
            here = part[:bits] == quarter
            m.d.sync += write_x_now[quarter].eq(write_x & here)
            m.d.sync += write_y_now[0][quarter].eq(write_y & here & ~line[0])
            m.d.sync += write_y_now[1][quarter].eq(write_y & here & line[0])
        m.d.sync += line_now.eq(line)
        writing = write_x | write_y

        # Addresses: the line of an X operand lies above the bits that choose a part of it.
        x_address = Signal(data.ArrayLayout(config.x_bits - bits, config.lanes), reset_less=True)
        y_address = Signal(data.ArrayLayout(config.y_bits - 1, config.lanes), reset_less=True)
        for lane in lanes:
            _, slot = slots[lane][0]
            shift = sum((slot.rows[bit] for bit in range(bits)), start=0)
            lines_x = Array([slot.x[at:at + config.x_bits - bits] for at in range(bits + 1)])[shift]
            line_y = Mux(slot.paired, slot.y[:config.y_bits - 1], slot.y[1:config.y_bits])
            if lane == 0:
                lines_x, line_y = Mux(writing, line, lines_x), Mux(writing, line[1:], line_y)
            m.d.sync += x_address[lane].eq(lines_x)
            m.d.sync += y_address[lane].eq(line_y)

        def soft(depth, style, write, name, at):
            """A bank of codewords: a port of every lane."""
            bank = Bank(depth=depth, ports=config.lanes, style=style)
            place(m, platform, name, bank)
            quarter, codeword = divmod(at, len(codewords))
            m.d.comb += bank.write.eq(write[quarter])
            m.d.comb += bank.codeword.eq(codewords[codeword])
            return [(bank.address[lane], bank.data[lane], bank.corrected[lane], bank.uncorrectable[lane])
                    for lane in lanes]

        def uram(write, name, at):
            """The same of words that the memory codes."""
            bank = ProtectedUram()
            place(m, platform, name, bank)
            quarter, word = divmod(at, len(codewords))
            m.d.comb += bank.write.eq(write[quarter])
            m.d.comb += bank.word.eq(words[word])
            m.d.comb += bank.flips.eq(0 if word else flip_now)
            ports = ((bank.b_address, bank.b), (bank.a_address, bank.a))
            return [(to, read.data, read.corrected, read.uncorrectable) for to, read in ports[:config.lanes]]

        y_bank = partial(soft, config.y_lines // 2, "ultra")
        if config.family == "ultrascale_plus":
            # Such a memory is told what to store wrong; the word that it is given is right.
            y_bank, flip_now = uram, Signal(2, reset_less=True)
            m.d.sync += flip_now.eq(flip)
            words = [codeword[:DATA_BITS] for codeword in codewords]
            words[0] ^= flip_now
        x = self._memory(m, "x", x_address, partial(soft, config.x_lines, "block", write_x_now))
        even = self._memory(m, "y_even", y_address, partial(y_bank, write_y_now[0]))
        odd = self._memory(m, "y_odd", y_address, partial(y_bank, write_y_now[1]))
        return [(x[lane], even[lane], odd[lane]) for lane in lanes]

    def _memory(self, m: Module, name: str, address, bank):
        """n**3 / 2 banks: per lane the line and whether it was corrected or cannot be.

        bank: places one, from its name and number; returns address, data and flags of each lane.
        """
        lanes, count = range(self.config.lanes), self.config.side**3 // 2
        words = [Signal(data.ArrayLayout(32, 2 * count), name=f"{name}_{lane}") for lane in lanes]
        flags = [(Signal(count, name=f"{name}_corrected_{lane}"), Signal(count, name=f"{name}_bad_{lane}"))
                 for lane in lanes]
        for at in range(count):
            for lane, (to, word, corrected, bad) in enumerate(bank(f"{name}_bank_{at}", at)):
                m.d.comb += [
                    to.eq(address[lane]),
                    Cat(words[lane][2 * at], words[lane][2 * at + 1]).eq(word),
                    flags[lane][0][at].eq(corrected),
                    flags[lane][1][at].eq(bad),
                ]
        return [(words[lane], *flags[lane]) for lane in lanes]

    def _quarter(self, slot):
        """The quarter of its line where an X operand begins, in the bits that `rows` names."""
        if self.config.grid_log2 == 1:
            return slot.x[0]
        return Mux(slot.rows == 3, slot.x[:2], Mux(slot.rows == 1, Cat(slot.x[0], 0), Cat(0, slot.x[0])))

    def _lane(self, m: Module, platform, lane: int, slots, lines, sequencer, grid: Grid, sums, events):
        buffer, order = Intermediate(self.config), SumMemory(self.config)
        for name, part in (("intermediate", buffer), ("grid", grid), ("order", order)):
            place(m, platform, f"{name}_{lane}", part)

        # T is read so that its line arrives with the cores'.
        _, early = slots[FETCH_CYCLES - 2 - WordBank.latency]
        m.d.comb += buffer.ring.eq(early.ring)
        m.d.comb += buffer.address.eq(early.y)
        wrong = self._operands(m, lane, slots, lines, buffer, grid, events)

        # In the grid.
        valid, slot = slots[FETCH_CYCLES - 1]
        _, ahead = slots[FETCH_CYCLES - 1 - grid.early]
        m.d.comb += [
            grid.rows.eq(ahead.rows),
            grid.place.eq(self._quarter(ahead)),
            grid.columns.eq(ahead.columns),
            grid.turn.eq(ahead.turn),
            grid.paired.eq(slot.paired),
            grid.stored.eq(~slot.lines),
            grid.first.eq(slot.first),
            grid.combine.eq(slot.combine),
            sequencer.error.eq(valid & wrong),
            sequencer.error_slot.eq(slot),
        ]
        self._results(m, lane, valid, slot, wrong, buffer, grid, order)
        m.d.comb += [
            sums.about[lane].eq(order.about),
            sums.ready[lane].eq(order.ready),
            order.pop.eq(sums.pop[lane]),
            order.fetch.eq(sums.fetch),
            order.vector.eq(sums.vector[lane]),
            order.beat.eq(sums.beat),
            sums.words[lane].eq(order.words),
            sequencer.returned.eq(sums.popped[lane]),
        ]

    def _operands(self, m: Module, lane: int, slots, lines, buffer: Intermediate, grid: Grid, events):
        """Brings the slot's lines to the grid; returns whether one of them could not be corrected."""
        config, n = self.config, self.config.side
        # Lines that have arrived; one more register before the grid.
        valid, slot = slots[FETCH_CYCLES - 2]
        (x, x_fixed, x_bad), (even, even_fixed, even_bad), (odd, odd_fixed, odd_bad) = lines
        pick_odd = ~slot.paired & slot.y[0]
        chosen = {"x": x, "y_low": Mux(slot.lines, buffer.line, Mux(pick_odd, odd, even)), "y_high": odd}
        for name, words in chosen.items():
            held = Signal(data.ArrayLayout(32, config.line_words), name=f"{name}_held_{lane}", reset_less=True)
            m.d.sync += held.eq(words)
            m.d.comb += getattr(grid, name).eq(held)
        # Of an X line only the operand's own quarters count.
        _, before = slots[FETCH_CYCLES - 3]
        quarters = Signal(n, name=f"quarters_{lane}")
        m.d.sync += quarters.eq(Cat(((number ^ self._quarter(before)) & before.rows) == 0 for number in range(n)))
        read = Cat(quarter.replicate(n * n // 2) for quarter in quarters)
        uses = [(x_fixed & read, x_bad & read, valid),
                (even_fixed, even_bad, valid & ~slot.lines & ~pick_odd),
                (odd_fixed, odd_bad, valid & ~slot.lines & (pick_odd | slot.paired))]
        for at, (fixed, bad, used) in enumerate(uses):
            for name, flags in (("corrected", fixed), ("uncorrectable", bad)):
                seen = Signal(name=f"{name}_{lane}_{at}")
                m.d.sync += seen.eq(flags.any() & used)
                events[name].append(seen)
        unread = events["uncorrectable"]
        return unread[-1] | unread[-2] | unread[-3]

    def _results(self, m: Module, lane: int, valid, slot, wrong, buffer: Intermediate, grid: Grid, order):
        """What becomes of the results travels beside the grid: to the intermediate buffer, or out."""
        config = self.config
        # An error in any slot of a vector's last product marks the vector.
        marked, mark = Signal(), Signal()
        m.d.comb += mark.eq((marked & ~slot.begin) | wrong | slot.bad)
        with m.If(valid & (slot.stage == Product.LAST)):
            m.d.sync += marked.eq(mark)

        fate = data.StructLayout({
            "buffer": 1, "middle": 1, "swap": 1, "write": config.t_bits,
            "out": 1, "begin": 1, "turned": 1, "columns_log2": 2, "combine": 2, "error": 1, "beats": 10,
            "ends": 1, "tail": len(slot.tail),
        })
        begun = Signal()
        with m.If(valid & (slot.stage == Product.LAST)):
            m.d.sync += begun.eq(Mux(slot.last, 0, slot.begin | begun))
        now = Signal(fate)
        m.d.comb += [
            now.buffer.eq(valid & slot.last & (slot.stage != Product.LAST)),
            now.middle.eq(slot.stage == Product.MIDDLE),
            now.swap.eq(slot.swap),
            now.write.eq(slot.write),
            now.out.eq(valid & slot.last & (slot.stage == Product.LAST)),
            now.begin.eq(slot.begin | begun),
            now.turned.eq(slot.turned),
            now.columns_log2.eq(slot.columns_log2),
            now.combine.eq(slot.combine),
            now.error.eq(mark),
            now.beats.eq(slot.beats),
            now.ends.eq(slot.ends),
            now.tail.eq(slot.tail),
        ]
        for at in range(grid.latency):
            later = Signal(fate, name=f"fate_{lane}_{at}")
            m.d.sync += later.eq(now)
            now = later
        m.d.comb += [
            buffer.z.eq(grid.z),
            buffer.write.eq(now.buffer),
            buffer.middle.eq(now.middle),
            buffer.swap.eq(now.swap),
            buffer.write_address.eq(now.write),
            order.z.eq(grid.z),
            order.valid.eq(now.out),
            order.begin.eq(now.begin),
            order.turned.eq(now.turned),
            order.columns_log2.eq(now.columns_log2),
            order.combine.eq(now.combine),
            order.error.eq(now.error),
            order.beats.eq(now.beats),
            order.ends.eq(now.ends),
            order.tail.eq(now.tail),
        ]
