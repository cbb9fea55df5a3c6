from amaranth.hdl import Cat, Module, Mux

from .pipeline import Unit, is_nan

LESS, EQUAL, GREATER, UNORDERED = 1, 2, 4, 8


class Compare(Unit):
    """Orders two binary32 words.

    o = LESS, EQUAL, GREATER or UNORDERED of x against y, one bit each.      Source: IEEE 754-2019 §5.11

    Parameters  registers: which of CUTS hold a register, all by default
    Members     x, y: words; o: 4 bits, exactly one of them set
    Shapes      one comparison a cycle
    Timing      `latency` cycles, one for each register; a comparison every cycle. With all registers at
                most 6 LUT levels and one carry chain between two
    Handshake   none
    Numerics    subnormals count as zeros, zeros of both signs are equal, a NaN is unordered with everything.
                Against golden: bit-exact
    Reset       nothing to reset: there is no state but the pipeline
    Raises      ValueError: an unknown or repeated name in registers
    Golden      golden.fp.fp32.compare      Tests  verif/fp/test_fp.py
    """

    CUTS = ("operands", "compared", "result")

    def __init__(self, *, registers: tuple[str, ...] | None = None):
        super().__init__(registers=registers, output_bits=4)

    def elaborate(self, platform):
        m = Module()
        x, y = self.operands(m)
        a, b = Cat(x.mant, x.exp), Cat(y.mant, y.exp)
        s = self.cut(m, "compared", x_sign=x.sign, y_sign=y.sign, smaller=a < b, same=a == b,
                     zeros=x.zero & y.zero, unordered=is_nan(x) | is_nan(y))
        equal = (s.same & (s.x_sign == s.y_sign)) | s.zeros
        less = Mux(s.x_sign != s.y_sign, s.x_sign, s.smaller ^ s.x_sign)
        unequal = ~s.unordered & ~equal
        flags = Cat(unequal & less, ~s.unordered & equal, unequal & ~less, s.unordered)
        m.d.comb += self.o.eq(self.cut(m, "result", flags=flags).flags)
        return m


class Maximum(Unit):
    """The larger of two binary32 words.

    o = max(x, y).                                   Source: IEEE 754-2019 §9.6, maximum

    Parameters  registers: which of CUTS hold a register, all by default
    Members     x, y: words; o: word
    Shapes      one result a cycle
    Timing      `latency` cycles, one for each register; a result every cycle. With all registers at most 6
                LUT levels and one carry chain between two
    Handshake   none
    Numerics    subnormals flushed, +0 is larger than -0, a NaN on either side gives the one NaN.
                Against golden: bit-exact
    Reset       nothing to reset: there is no state but the pipeline
    Raises      ValueError: an unknown or repeated name in registers
    Golden      golden.fp.fp32.maximum      Tests  verif/fp/test_fp.py
    """

    CUTS = ("operands", "compared", "result")

    def elaborate(self, platform):
        m = Module()
        x, y = self.operands(m)
        s = self.cut(m, "compared", x=x, y=y, smaller=Cat(x.mant, x.exp) < Cat(y.mant, y.exp),
                     nan=is_nan(x) | is_nan(y))
        # Equal words may come from either side.
        take_y = Mux(s.x.sign != s.y.sign, s.x.sign, s.smaller ^ s.x.sign)
        word = Mux(take_y, Cat(s.y.mant, s.y.exp, s.y.sign), Cat(s.x.mant, s.x.exp, s.x.sign))
        m.d.comb += self.o.eq(self.cut(m, "result", word=Mux(s.nan, 0x7FC00000, word)).word)
        return m
