"""A lane's grid of cells, and the multiplexers that bring a line's words to the sub-dots that need them."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out

from hw.attributes import KEEP
from hw.fp.dot import FusedDot
from hw.fp.group import BLOCK_BITS, GROUP, MANT_BITS, Narrow, operands, skewed
from hw.fp.group_dot import GroupDot, total_layout
from hw.fp.logic import largest_of_four
from hw.fp.operand import Operand, delay
from hw.fp.product import EXPONENT_BITS
from hw.place import Part, place
from hw.tt.config import TTConfig


class Share(enum.Enum, shape=2):
    """Whose exponents the results of a tile take: their own, or the largest of a row's cells or a cell's rows."""

    OWN = 0
    CELLS = 1
    ROWS = 2


def _dot(config: TTConfig) -> FusedDot | GroupDot:
    """A cell."""
    if config.grouped:
        return GroupDot(beats=config.beats, narrow=config.block16_only, family=config.family)
    return FusedDot(width=config.side, subs=config.side, terms_log2=config.terms_log2,
                    lut_products=config.lut_products, family=config.family)


def result_layout(config: TTConfig) -> data.ArrayLayout:
    """Results (row, cell, sub): FP32 words, or exact sums where operands share exponents."""
    return data.ArrayLayout(total_layout(_dot(config).width) if config.grouped else 32, config.line_words)


def core_line(config: TTConfig) -> data.ArrayLayout:
    """A line of cores as the grid takes it: FP32 words, groups of them, or groups of block16."""
    words = config.line_words
    return data.ArrayLayout(Narrow, words // GROUP) if config.block16_only else data.ArrayLayout(32, words)


class Turned(Part):
    """What each sub-dot of a cell takes of its line of Y.

    o[s, w] = i[turns[s], w]. A part by itself: among the choices of the upper rows the mapper builds it once more.

    Parameters  width: bits of an operand or group; subs: sub-dots; each: of a sub-dot
    Members     i      In  [subs * each]
                turns  In  [subs] numbers of sub-dots
                o      Out  [subs * each]
    Timing      no latency
    Golden      golden.tt.rows          Tests  verif/tt/test_unit.py
    """

    def __init__(self, *, width: int, subs: int, each: int):
        self.subs = subs
        self.each = each
        line = data.ArrayLayout(width, subs * each)
        super().__init__({
            "i": In(line),
            "turns": In(data.ArrayLayout((subs - 1).bit_length(), subs)),
            "o": Out(line),
        })

    def elaborate(self, platform):
        m = Module()
        for sub in range(self.subs):
            for word in range(self.each):
                among = [self.i[turn * self.each + word] for turn in range(self.subs)]
                m.d.comb += self.o[sub * self.each + word].eq(_pick(among, self.turns[sub]))
        return m


class JointExponent(Part):
    """The largest of four exponents, or of another four.

    Members     i       In  exponents of results
                second  In  the other four
                o       Out  two cycles later
    Timing      2 cycles, four a cycle
    Golden      golden.fp.group_dot          Tests  verif/tt/test_unit.py
    """

    def __init__(self):
        four = data.ArrayLayout(EXPONENT_BITS, 4)
        super().__init__({"i": In(data.ArrayLayout(four, 2)), "second": In(1), "o": Out(EXPONENT_BITS)})

    def elaborate(self, platform):
        m = Module()
        chosen = [Signal(EXPONENT_BITS, name=f"chosen_{at}", reset_less=True) for at in range(4)]
        m.d.sync += [to.eq(Mux(self.second, self.i[1][at], self.i[0][at])) for at, to in enumerate(chosen)]
        first, _ = largest_of_four(m, "largest", chosen)
        found = Signal(EXPONENT_BITS, reset_less=True)
        m.d.sync += found.eq(first)
        m.d.comb += self.o.eq(found)
        return m


class Grid(Part):
    """n x n cells of n fused dot products of n terms, fed by lines of n**3 words.

    z[r, c, s] = sum_w X(q(s), r, w) Y(h(r), c, t(s), w), accumulated from `first` on. q(s) is s with the bits
    of `rows` from `place`; t(s) is s with the bits of `columns` from `turn`; h(r) is the second of the two Y
    lines for the upper half of the rows when `paired`.
    Source: SCRec §III.E, Fig. 7a (PE array); every operand reaches its n cells in one cycle, since at n = 4
    the skew registers of a systolic hand-over would outweigh the wires they shorten.

    Parameters  config: TTConfig
    Members     x, y_high         In  lines of FP32 words (subnormals flushed, NaNs quiet), or of groups (hw.fp.group),
                    of which block16_only leaves `Narrow`
                y_low             In  the same, never narrow
                stored            In  y_low comes from the cores' memory, where -0 is padding, as in x and y_high: its
                    products are zero whatever they meet
                rows, place, columns, turn  In  `early` cycles before the rest of their slot
                paired, first, combine      In
                share             In  where operands share exponents, whose the results take; `first` is then set also
                    in slots without work
                z                 Out  result_layout
    Timing      latency cycles from a tile's last slot to z, one more than a cell's: chosen operands wait in a register,
                since memories and cells lie far apart; a slot every cycle
    Handshake   none; what comes between tiles is harmless
    Numerics    see hw.fp.dot and hw.fp.group_dot; against golden: bit-exact
    Golden      golden.tt.rows          Tests  verif/tt/test_unit.py
    """

    def __init__(self, config: TTConfig):
        self.config = config
        # Six-input LUTs choose one of four operands by registers; without those the choices share logic and take more.
        self.early = 1 if config.family == "ultrascale_plus" else 0
        n = config.grid_log2
        self._cells = [[_dot(config) for _ in range(config.side)] for _ in range(config.side)]
        line = data.ArrayLayout(32, config.line_words)
        super().__init__({
            "x": In(core_line(config)), "y_low": In(line), "y_high": In(core_line(config)),
            "rows": In(n), "place": In(n), "columns": In(n), "turn": In(n),
            "paired": In(1), "stored": In(1), "first": In(1), "combine": In(2), "share": In(Share),
            "z": Out(result_layout(config)),
        })

    @property
    def latency(self) -> int:
        return 1 + self._cells[0][0].latency

    def elaborate(self, platform):
        m = Module()
        n, bits = self.config.side, self.config.grid_log2

        def marked(name, line, stored):
            """The words as operands. No subnormals arrive here, and a stored -0 is padding. Or groups of operands."""
            if self.config.grouped:
                bits = len(line.as_value()) // n**2
                return [line.as_value().word_select(at, bits) for at in range(n**2)]
            out = []
            for at in range(n**3):
                word = line[at]
                operand = Signal(Operand, name=f"{name}_{at}")
                zero = word[23:31] == 0
                m.d.comb += [
                    operand.mant.eq(word[:23]),
                    operand.exp.eq(word[23:31]),
                    operand.sign.eq(word[31]),
                    operand.zero.eq(zero),
                    operand.special.eq((word[23:31] == 255) | (zero & word[31] & stored)),
                ]
                out.append(operand)
            return out

        x, y_high = marked("x", self.x, 1), marked("high", self.y_high, 1)
        y_low = marked("low", self.y_low, self.stored)

        def selects(name, given, which):
            """For each sub-dot the bits of `which` that are given, and of its own number."""
            found = []
            for sub in range(n):
                # Of equal registers none is merged with another, thanks to their initial values.
                kind = {"reset_less": True, "init": (sub >> 1 | sub << 1) % n} if self.early else {}
                found.append(Signal(bits, name=f"{name}_{sub}", **kind))
                m.d["sync" if self.early else "comb"] += found[-1].eq(Cat(
                    Mux(given[bit], which[bit], sub >> bit & 1) for bit in range(bits)))
            return found

        # X: quarter q(s) for sub-dot s.
        quarters = selects("quarter", self.rows, self.place)

        each = 1 if self.config.grouped else n      # of them a sub-dot takes

        def x_of(row, sub, word):
            return _pick([x[(q * n + row) * each + word] for q in range(n)], quarters[sub])

        # Y: sub-dot t(s) of the line, the upper rows from the other line when paired.
        turns = selects("turned", self.columns, self.turn)

        layout = operands(n, n, self.config.grouped)
        layout_x = operands(n, n, self.config.grouped, self.config.block16_only)
        rows_x = []
        for row in range(n):
            wide = Signal(layout_x, name=f"row_{row}_x")
            m.d.comb += [wide[sub * each + word].eq(x_of(row, sub, word)) for sub in range(n) for word in range(each)]
            rows_x.append(self._entering(m, f"x_{row}", wide))
        cells_y = []
        for cell in range(n):
            low, high = (Signal(layout, name=f"cell_{cell}_{half}")
                         for half in ("low", "high"))
            turned = Turned(width=Shape.cast(layout.elem_shape).width, subs=n, each=each)
            place(m, platform, f"turned_{cell}", turned)
            m.d.comb += turned.i.eq(Cat(y_low[cell * n * each:][:n * each]))
            m.d.comb += turned.turns.eq(Cat(turns))
            for sub in range(n):
                for word in range(each):
                    at = sub * each + word
                    # Lines of the buffer are never paired and memory lines never turned: pairs need no turn.
                    m.d.comb += low[at].eq(turned.o[at])
                    m.d.comb += high[at].eq(self._upper(y_high[cell * n * each + at], low[at]))
            cells_y.append((self._entering(m, f"low_{cell}", low), self._entering(m, f"high_{cell}", high)))

        first = Signal(reset_less=True)
        combine = Signal.like(self.combine, reset_less=True)
        m.d.sync += first.eq(self.first)
        m.d.sync += combine.eq(self.combine)
        for row in range(n):
            for cell in range(n):
                dot = self._cells[row][cell]
                place(m, platform, f"cell_{row}_{cell}", dot)
                m.d.comb += [
                    dot.x.eq(rows_x[row]),
                    dot.y.eq(cells_y[cell][row >= n // 2]),
                    dot.first.eq(first),
                    dot.combine.eq(combine),
                ]
                m.d.comb += [self.z[(row * n + cell) * n + sub].eq(dot.o[sub]) for sub in range(n)]
        if self.config.grouped:
            self._exponents(m, platform)
        return m

    def _exponents(self, m: Module, platform) -> None:
        """Hands round the exponents of results that become operands together."""
        n = self.config.side
        share = Signal.like(self.share, reset_less=True)
        m.d.sync += share.eq(self.share)
        by_rows = delay(m, "by_rows", share == Share.ROWS, 3)
        for at in range(n):
            for sub in range(n):
                joint = JointExponent()
                place(m, platform, f"exponent_{at}_{sub}", joint)
                m.d.comb += joint.second.eq(by_rows)
                for other in range(n):
                    m.d.comb += joint.i[0][other].eq(self._cells[at][other].peaks[sub])
                    m.d.comb += joint.i[1][other].eq(self._cells[other][at].peaks[sub])
                    m.d.comb += self._cells[at][other].shared[0][sub].eq(joint.o)
                    m.d.comb += self._cells[other][at].shared[1][sub].eq(joint.o)
        m.d.comb += [dot.share.eq(share) for row in self._cells for dot in row]

    def _upper(self, high: Value, low: data.View) -> Value:
        """What the upper rows take in place of `low`."""
        if not self.config.block16_only:
            return Mux(self.paired, high, low)
        # What a narrow group lacks is zero in lines of memory, and pairs are such lines.
        own = data.View(Narrow, high)
        at = MANT_BITS - BLOCK_BITS
        return Cat(*(Cat(below[:at], Mux(self.paired, mant, below[at:]))
                     for mant, below in zip(own.mants, low.mants, strict=True)),
                   Mux(self.paired, own.exp, low.exp),
                   *(Cat(Mux(self.paired, kind, Value.cast(below)[:2]), Value.cast(below)[2])
                     for kind, below in zip(own.kinds, low.kinds, strict=True)))

    def _entering(self, m: Module, name: str, taken: data.View) -> Value:
        """Operands as the cells take them, behind a register."""
        # `keep`: no part of a shift register, whose place would be the cells'.
        entered = Signal(taken.shape(), name=f"{name}_entered", reset_less=True, attrs=KEEP)
        m.d.sync += entered.eq(taken)
        if not self.config.grouped:
            return entered.as_value()
        return Cat(skewed(m, f"{name}_{s}", group) for s, group in enumerate(entered))


def _pick(values, number):
    """values[number], as a tree of two-way choices: cheap to map and to simulate."""
    values = list(values)
    for bit in number:
        values = [Mux(bit, values[at + 1], values[at]) for at in range(0, len(values), 2)]
    return values[0]
