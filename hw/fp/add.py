from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from .pipeline import Unit, is_infinite, is_nan


class Add(Unit):
    """Adds two binary32 words.

    o = x + y.                                       Source: textbook single-path adder, guard-round-sticky

    Parameters  registers: which of CUTS hold a register, all by default
    Members     x, y  In  words
                o     Out  word
    Shapes      one sum per cycle
    Timing      `latency` cycles, one for each register; a sum every cycle. With all registers at most 6 LUT
                levels and one carry chain between two
    Handshake   none
    Numerics    RNE, subnormals flushed (results after rounding), one NaN, exact zero +0 except (-0) + (-0).
                Against golden: bit-exact
    Reset       nothing to reset: there is no state but the pipeline
    Raises      ValueError: an unknown or repeated name in registers
    Golden      golden.fp.fp32.add          Tests  verif/fp/test_fp.py
    """

    CUTS = ("operands", "compared", "swapped", "aligned", "added", "by16", "by4", "by1", "rounded", "result")

    def elaborate(self, platform):
        m = Module()
        x, y = self.operands(m)
        # Exponents are compared by their difference, and the mantissas beside it: were both compared in one go, the
        # mapper would take the difference's chain for a part of the comparison's.
        ahead, behind = x.exp - y.exp, y.exp - x.exp
        s = self.cut(m, "compared", x=x, y=y, ahead=ahead[:8], behind=behind[:8], below=ahead[8],
                     level=x.exp == y.exp, less=x.mant < y.mant)
        x, y = s.x, s.y
        swap = s.below | (s.level & s.less)

        infinite_x, infinite_y = is_infinite(x), is_infinite(y)
        both = infinite_x & infinite_y
        opposite = x.sign ^ y.sign
        distance = Mux(swap, s.behind, s.ahead)
        s = self.cut(
            m, "swapped",
            large=Mux(swap, Cat(y.mant, ~y.zero), Cat(x.mant, ~x.zero)),
            small=Mux(swap, Cat(x.mant, ~x.zero), Cat(y.mant, ~y.zero)),
            exponent=Mux(swap, y.exp, x.exp), distance=distance[:5], far=distance[5:].any(),
            subtract=opposite, sign=Mux(infinite_x, x.sign, Mux(infinite_y | swap, y.sign, x.sign)),
            zero_sign=x.sign & y.sign, infinite=infinite_x | infinite_y,
            nan=is_nan(x) | is_nan(y) | (both & opposite))

        moved = self._shift_jam(m, s.small, s.distance, s.far)
        s = self.cut(m, "aligned", large=s.large, moved=moved, exponent=s.exponent, subtract=s.subtract,
                     sign=s.sign, zero_sign=s.zero_sign, infinite=s.infinite, nan=s.nan)

        # large * 8 + moved, or - moved as + ~moved + 1 whose 1 comes in below both. Written as a subtraction
        # of the complement to keep `large` the operand that needs no logic.
        total = (Cat(s.subtract, Const(0, 3), s.large, Const(0, 1))
                 - Cat(~s.subtract, Mux(s.subtract, s.moved, ~s.moved)[:27], ~s.subtract))[1:29]
        s = self.cut(m, "added", total=total, exponent=s.exponent, sign=s.sign, zero_sign=s.zero_sign,
                     infinite=s.infinite, nan=s.nan)

        def left(value: Value, by: int) -> Value:
            return Cat(Const(0, by), value)[:28]

        # Leading zeros out: 16, then 12, 8 or 4, then 3, 2 or 1.
        skip16 = ~s.total[12:].any()
        s = self.cut(m, "by16", total=Mux(skip16, left(s.total, 16), s.total), skipped=skip16,
                     exponent=s.exponent, sign=s.sign, zero_sign=s.zero_sign, infinite=s.infinite, nan=s.nan)
        by4 = self._zeros(m, "by4", [s.total[24:], s.total[20:24], s.total[16:20]])
        s = self.cut(m, "by4", total=Mux(by4[1], Mux(by4[0], left(s.total, 12), left(s.total, 8)),
                                         Mux(by4[0], left(s.total, 4), s.total)),
                     skipped=Cat(by4, s.skipped), exponent=s.exponent, sign=s.sign, zero_sign=s.zero_sign,
                     infinite=s.infinite, nan=s.nan)
        by1 = self._zeros(m, "by1", [s.total[27:], s.total[26], s.total[25]])
        total = Signal(28)
        m.d.comb += total.eq(Mux(by1[1], Mux(by1[0], left(s.total, 3), left(s.total, 2)),
                                 Mux(by1[0], left(s.total, 1), s.total)))
        exponent = Signal(10)
        m.d.comb += exponent.eq(s.exponent - Cat(by1, s.skipped))
        s = self.cut(m, "by1", total=total, exponent=exponent, sign=s.sign,
                     zero_sign=s.zero_sign, infinite=s.infinite, nan=s.nan)

        # The leading one, bit 27, is worth 2 of the larger operand's exponent: it counts as the 1 it lacks.
        zero = ~s.total[27]
        self.finish(m, sign=Mux(zero & ~s.infinite, s.zero_sign, s.sign), exponent=s.exponent,
                    significand=s.total[4:], up=s.total[3] & (s.total[4] | s.total[:3].any()), zero=zero,
                    infinite=s.infinite, nan=s.nan)
        return m

    def _shift_jam(self, m: Module, value: Value, distance: Value, far: Value) -> Value:
        """value * 8 >> distance in 27 bits, the lowest of which also says whether any bit fell out."""
        one = value[23]  # the hidden bit: set unless all bits are zero
        value = Cat(Const(0, 3), value)
        # What falls out is told from the distance beside the shift, not level by level behind it.
        below = Signal(len(value))
        with m.Switch(distance):
            for number in range(1, 1 << len(distance)):
                with m.Case(number):
                    m.d.comb += below.eq((1 << min(number, len(value))) - 1)
        lost = (value & below).any()
        for level, step in enumerate((1, 4)):
            amount = distance[2 * level:2 * level + 2]
            moved = Signal(27, name=f"moved{step}")
            m.d.comb += moved.eq(Mux(amount[1], Mux(amount[0], value >> 3 * step, value >> 2 * step),
                                     Mux(amount[0], value >> step, value)))
            value = moved
        kept = Mux(distance[4], value >> 16, value)
        return Mux(far, one, Cat(kept[0] | lost, kept[1:27]))

    def _zeros(self, m: Module, name: str, blocks: list[Value]) -> Value:
        """How many of three blocks, from the top, are zero before the first that is not."""
        a, b, c = (~block.any() for block in blocks)
        count = Signal(2, name=f"{name}_zeros")
        m.d.comb += count.eq(Cat(a & (~b | c), a & b))
        return count
