"""The tensor-train computation unit: bags of row numbers in, sums of rows of many resident tables out."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fp.group import GROUP, Aligner, Group, alone, joined, narrowed, parted, widened
from hw.fp.operand import unpack
from hw.place import Part, place
from hw.stream.skid_buffer import SkidBuffer
from hw.tt.config import TTConfig
from hw.tt.core_memory import CoreMemory, is_second_x
from hw.tt.descriptor import Target, block_of, load_layout
from hw.tt.grid import Grid, Share
from hw.tt.index import IndexSplitter, lookup_layout
from hw.tt.intermediate import Intermediate, LineBank
from hw.tt.sequencer import Sequencer
from hw.tt.sums import SumMemory, SumStream, sum_layout
from hw.tt.tokens import Product, slot_layout

# A product's results become groups along the cells, or along the rows, or leave.
SHARES = {Product.FIRST: Share.CELLS, Product.MIDDLE: Share.ROWS, Product.LAST: Share.OWN}

# From the cycle in which a slot is decided to the one in which its operands enter the grid: two registers behind the
# memories, since these lie far from the grid and from each other.
FETCH_CYCLES = 1 + CoreMemory.latency + 2


def counters_layout() -> data.StructLayout:
    """What the unit counts since reset, modulo 2**32.

    lookups: accepted. computed, reused: first products. slots: issue slots with work. corrected: lines read with
    a bit put right. uncorrectable: lines read with two bits flipped. outside: row numbers past their table.
    """
    names = ("lookups", "computed", "reused", "slots", "corrected", "uncorrectable", "outside")
    return data.StructLayout(dict.fromkeys(names, 32))


def load_wait(config: TTConfig) -> int:
    """Cycles that a load waits in front of the unit: its groups are brought to one exponent, one per cycle."""
    return (Aligner.latency + config.beat_words // GROUP - 1) * config.grouped


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
                is reused; `lanes` slots per cycle, back to back over lookups, tables and shapes. One beat of sums a
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
    Golden      golden.tt.rows, golden.tt.pooled, golden.tt.cycles    Tests  verif/tt/test_unit.py, test_loads.py
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
        turn_in = Signal()
        turn_out = Signal()
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
        distance = FETCH_CYCLES + grid_latency + entry + 2 - (FETCH_CYCLES - 1 - LineBank.read_latency)
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

        cores = CoreMemory(config)
        place(m, platform, "cores", cores)
        m.d.comb += cores.write.eq(load.valid & load.ready)
        m.d.comb += cores.load.eq(beat)
        m.d.comb += cores.words.eq(stored)
        for lane in lanes:
            m.d.comb += cores.slot[lane].eq(slots[lane][0][1])
            lines = cores.x[lane], cores.even[lane], cores.odd[lane]
            self._lane(m, platform, lane, slots[lane], lines, sequencers[lane], grids[lane], sums, events)

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
        inside = Signal()
        before = Signal(init=1)
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

        A load waits in front of the unit while its groups of four are brought to one exponent, one per cycle: a load in
        `latency` + 5 cycles. Their halves are stored; of a line of block16 one half, for one place or the other.
        """
        given, count = self.i_load.payload.data, self.config.beat_words
        if not self.config.grouped:
            wiring.connect(m, wiring.flipped(self.i_load), loads.i)
            held = [loads.o.payload.data.word_select(at, 32) for at in range(count)]
            # A subnormal becomes +0: a stored -0 is padding.
            return Cat(Cat(word.mant, word.exp, word.sign & ~(word.zero & given[:23].any()))
                       for word, given in ((unpack(given), given) for given in held))
        groups, bits, last = count // GROUP, 32 * GROUP, load_wait(self.config)
        age, stored = Signal(range(last + 1), name="load_age"), Signal(32 * count, name="stored", reset_less=True)
        taken = Signal(name="load_taken")   # as the last of its groups comes
        aligner = Aligner()
        place(m, platform, "aligner", aligner)
        words = given.word_select(age[:(groups - 1).bit_length()], bits)
        m.d.comb += aligner.i.eq(words)     # in which -0 is padding
        m.d.comb += aligner.padding.eq(Cat(words.word_select(w, 32) == 1 << 31 for w in range(GROUP)))
        by_itself = alone(aligner.o)
        halves = Cat(Mux(block_of(self.config, self.i_load.payload), by_itself, half) for half in parted(aligner.o))
        m.d.comb += loads.i.payload.eq(self.i_load.payload)
        m.d.comb += loads.i.valid.eq(taken)
        m.d.comb += self.i_load.ready.eq(taken)
        m.d.sync += taken.eq(age == last - 1)
        with m.If(taken):
            m.d.sync += age.eq(0)
        with m.Elif((age != 0) | (self.i_load.valid & ~loads.o.valid)):
            m.d.sync += age.eq(age + 1)
        with m.If(age >= Aligner.latency):
            m.d.sync += stored.eq(Cat(stored[bits:], halves))
        return stored

    def _quarter(self, slot):
        """The quarter of its line where an X operand begins, in the bits that `rows` names."""
        if self.config.grid_log2 == 1:
            return slot.x[0]
        return Mux(slot.rows == 3, slot.x[:2], Mux(slot.rows == 1, Cat(slot.x[0], 0), Cat(0, slot.x[0])))

    def _lane(self, m: Module, platform, lane: int, slots, lines, sequencer, grid: Grid, sums, events):
        buffer, order = Intermediate(self.config), SumMemory(self.config)
        for name, part in (("intermediate", buffer), ("grid", grid), ("order", order)):
            place(m, platform, f"{name}_{lane}", part)

        # T is read so that its line arrives with what the first register has of the cores'.
        _, early = slots[FETCH_CYCLES - 2 - Intermediate.latency]
        m.d.comb += buffer.ring.eq(early.ring)
        m.d.comb += buffer.address.eq(early.y)
        wrong = self._operands(m, lane, slots, lines, buffer, grid, events)

        # In the grid.
        valid, slot = slots[FETCH_CYCLES - 1]
        _, ahead = slots[FETCH_CYCLES - 1 - grid.early]
        shares = Array(SHARES[product] for product in Product)  # type: ignore[attr-defined]
        m.d.comb += [
            grid.rows.eq(ahead.rows),
            grid.place.eq(self._quarter(ahead)),
            grid.columns.eq(ahead.columns),
            grid.turn.eq(ahead.turn),
            grid.paired.eq(slot.paired),
            grid.stored.eq(~slot.lines),
            grid.first.eq(slot.first | ~valid),
            grid.combine.eq(slot.combine),
            grid.share.eq(shares[slot.stage]),
        ]
        # From registers: the sequencer lies at the other end, and what it notes is read many cycles later.
        m.d.sync += sequencer.error.eq(valid & wrong)
        m.d.sync += sequencer.error_slot.eq(slot)
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
        # Lines that have arrived; two more registers before the grid. What chooses among them comes from registers.
        _, before = slots[FETCH_CYCLES - 4]
        valid, slot = slots[FETCH_CYCLES - 3]
        _, behind = slots[FETCH_CYCLES - 2]
        x, even, odd = lines
        pick_odd = Signal(name=f"pick_odd_{lane}")
        m.d.sync += pick_odd.eq(~before.paired & before.y[0])
        # Of an X line only the operand's own quarters count.
        quarters = Signal(n, name=f"quarters_{lane}")
        m.d.sync += quarters.eq(Cat(((number ^ self._quarter(before)) & before.rows) == 0 for number in range(n)))
        pairs = config.line_words // 2
        read = {"x": Cat(quarter.replicate(pairs // n) for quarter in quarters), "y": Const(~0, pairs)}
        held = {name: Signal(len(getattr(grid, name).as_value()), name=f"{name}_held_{lane}", reset_less=True)
                for name in ("x", "y_low", "y_high")}
        if config.grouped:
            seconds = self._groups(m, lane, before, behind, lines, pick_odd, buffer, held)
            for name, is_second in seconds.items():
                read[name] &= Cat(*(~is_second, ~block_of(config, slot) | is_second) * (pairs // 2))
        else:
            first = {name: Signal.like(to, name=f"{name}_first_{lane}") for name, to in held.items()}
            chosen = x.words, Mux(pick_odd, odd.words, even.words), odd.words
            m.d.sync += [to.eq(words) for to, words in zip(first.values(), chosen, strict=True)]
            m.d.sync += [to.eq(first[name]) for name, to in held.items()]
            with m.If(behind.lines):
                m.d.sync += held["y_low"].eq(buffer.line)
        m.d.comb += [getattr(grid, name).eq(words) for name, words in held.items()]
        uses = [(x, read["x"], valid),
                (even, read["y"], valid & ~slot.lines & ~pick_odd),
                (odd, read["y"], valid & ~slot.lines & (pick_odd | slot.paired))]
        for at, (line, mine, used) in enumerate(uses):
            for name in ("corrected", "uncorrectable"):
                flags, seen = Signal(pairs, name=f"{name}_flags_{lane}_{at}"), Signal(name=f"{name}_{lane}_{at}")
                m.d.sync += flags.eq(line[name] & mine & used.replicate(pairs))
                m.d.sync += seen.eq(flags.any())
                events[name].append(seen)
        unread = events["uncorrectable"]
        return unread[-1] | unread[-2] | unread[-3]

    def _groups(self, m: Module, lane: int, before, behind, lines, pick_odd, buffer: Intermediate, held):
        """Registers twice: halves of the lines that have arrived, then, in `held`, groups: of lines of block16 what one
        half says, or lines of the intermediate buffer. Returns whether the half is the second, of X and of Y memory.
        """
        x_second, y_second = Signal(name=f"x_second_{lane}"), Signal(name=f"y_second_{lane}")
        shift = sum((before.rows[bit] for bit in range(self.config.grid_log2)), start=Const(0, 1))
        of_block = block_of(self.config, before)
        x_line = Array(before.x[at:] for at in range(self.config.grid_log2 + 1))[shift]
        m.d.sync += x_second.eq(of_block & is_second_x(self.config, x_line))
        m.d.sync += y_second.eq(of_block & Mux(before.paired, before.y[0], before.y[1]))
        size = Shape.cast(Group).width
        for at in range(self.config.line_words // GROUP):
            x, even, odd = ((line.words.word_select(2 * at, size // 2), line.words.word_select(2 * at + 1, size // 2))
                            for line in lines)
            odd_block = Mux(y_second, odd[1], odd[0])
            low_block = Mux(pick_odd, odd_block, Mux(y_second, even[1], even[0]))
            for name, chosen in (("x", (Mux(x_second, x[1], x[0]), x[1])),
                                 ("y_low", (low_block, Mux(pick_odd, odd[1], even[1]))),
                                 ("y_high", (odd_block, odd[1]))):
                block, rest = (Signal(size // 2, name=f"{name}_{half}_{lane}_{at}", reset_less=True)
                               for half in ("block", "rest"))
                m.d.sync += block.eq(chosen[0])
                if self.config.block16_only:
                    group = joined(*widened(block)) if name == "y_low" else narrowed(block)
                else:
                    m.d.sync += rest.eq(chosen[1])
                    group = joined(*(Mux(behind.block, whole, part)
                                     for whole, part in zip(widened(block), (block, rest), strict=True)))
                if name == "y_low":
                    group = Mux(behind.lines, buffer.line.as_value().word_select(at, size), group)
                m.d.sync += held[name].word_select(at, len(group)).eq(group)
        return {"x": x_second, "y": y_second}

    def _results(self, m: Module, lane: int, valid, slot, wrong, buffer: Intermediate, grid: Grid, order):
        """What becomes of the results travels beside the grid: to the intermediate buffer, or out."""
        config = self.config
        # An error in any slot of a vector's last product marks the vector.
        marked = Signal()
        mark = Signal()
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
