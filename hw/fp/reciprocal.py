"""One over a whole number, a bit per cycle, for numbers that have to be counted first anyway."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hw.place import Part

COUNT_BITS = 17     # counts up to 2^16
DIGITS = 25         # 24 of the significand and one to round by
KNOWN = 64          # counts below come from a table of a LUT a bit


def reciprocal_word(count: int) -> int:
    """The binary32 nearest to 1 / count; 0 for 0. No count below 2^23 is half-way between two."""
    if count == 0:
        return 0
    places = count.bit_length() - 1
    if count == 1 << places:
        return (127 - places) << 23
    significand = ((1 << (24 + places + 1)) // count + 1) >> 1
    return (126 - places) << 23 | (significand & 0x7FFFFF)


class Reciprocal(Part):
    """1 / n of a whole number as a binary32 word.

    o = 1 / n.                                       Source: non-restoring division, radix 2

    Members     start  In  a pulse
                n      In(17)  1 to 2^16, taken at `start`
                o      Out(32)  stands until the next start
                done   Out  o is the word of the last n
    Timing      done falls with the cycle behind `start` and rises 28 + (16 - floor(log2 n)) cycles behind it
    Handshake   a start while done is low begins anew
    Numerics    golden.fp.fp32.div(1, n). Bit-exact
    Reset       done is low
    Golden      golden.fp.fp32.div          Tests  verif/emb/test_post_pool.py
    """

    def __init__(self):
        super().__init__({"start": In(1), "n": In(COUNT_BITS), "o": Out(32), "done": Out(1)})

    def elaborate(self, platform):
        m = Module()
        # 1 / n = 2^-(16 - k) / m with n shifted left by k to m in 1..2: the exponent counts k.
        divisor = Signal(COUNT_BITS, reset_less=True)
        exponent = Signal(8, reset_less=True)
        remainder = Signal(COUNT_BITS + 1, reset_less=True)
        quotient = Signal(DIGITS, reset_less=True)
        left = Signal(range(DIGITS + 1), reset_less=True)
        whole = Signal(reset_less=True)     # n is a power of two
        following = Signal(COUNT_BITS + 1)
        negative = remainder[-1]
        # The remainder is 2R - m or 2R + m in two's complement; the +1 of the former comes in below.
        taken = Mux(negative, divisor, ~Cat(divisor, Const(0, 1)))[:COUNT_BITS + 1]
        m.d.comb += following.eq((Cat(~negative, Const(0, 1), remainder[:-1]) + Cat(~negative, taken))[1:])
        fraction = (quotient[1:24] + quotient[0])[:23]
        scaling, dividing, rounding = (Signal(name=name) for name in ("scaling", "dividing", "rounding"))
        m.d.sync += rounding.eq(dividing & (left == 1))
        with m.If(scaling):
            m.d.sync += [
                remainder.eq(1 << (COUNT_BITS - 1)),
                left.eq(DIGITS),
                whole.eq(~divisor[:-1].any()),
                scaling.eq(~divisor[-1]),
                dividing.eq(divisor[-1]),
            ]
            with m.If(~divisor[-1]):
                m.d.sync += divisor.eq(Cat(Const(0, 1), divisor))
                m.d.sync += exponent.eq(exponent + 1)
        with m.If(dividing):
            m.d.sync += [
                remainder.eq(following),
                quotient.eq(Cat(~following[-1], quotient)),
                left.eq(left - 1),
                dividing.eq(left != 1),
            ]
        with m.If(rounding):
            # A quotient of 1 exactly is one place up, and its digits are of no use.
            m.d.sync += self.o.eq(Cat(Mux(whole, 0, fraction), exponent + whole))
            m.d.sync += self.done.eq(1)
        with m.If(self.start):
            m.d.sync += [
                divisor.eq(self.n),
                exponent.eq(126 - (COUNT_BITS - 1)),
                self.done.eq(0),
                scaling.eq(1),
                dividing.eq(0),
                rounding.eq(0),
            ]
        return m
