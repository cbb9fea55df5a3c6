from amaranth.hdl import Cat, Const, Module, Mux, Signal

from .pipeline import Unit, is_infinite, is_nan

DIGITS = 26


class Divide(Unit):
    """Divides two binary32 words, one quotient bit a stage, without a DSP.

    o = x / y.                                      Source: non-restoring division, radix 2

    Parameters  registers: which of CUTS hold a register, all by default
    Members     x, y: words; o: word
    Shapes      one quotient a cycle
    Timing      `latency` cycles, one for each register; a quotient every cycle. With all registers at most 6
                LUT levels and one carry chain between two
    Handshake   none
    Numerics    RNE, subnormals flushed (results after rounding), one NaN; finite / 0 is infinite, 0 / 0 and
                inf / inf are NaN. Against golden: bit-exact
    Reset       nothing to reset: there is no state but the pipeline
    Raises      ValueError: an unknown or repeated name in registers
    Golden      golden.fp.fp32.div          Tests  verif/fp/test_fp.py
    """

    CUTS = ("operands", *(f"digit{k}" for k in range(DIGITS)), "rounded", "result")

    def elaborate(self, platform):
        m = Module()
        x, y = self.operands(m)
        infinite_x, infinite_y = is_infinite(x), is_infinite(y)
        kind = dict(
            sign=x.sign ^ y.sign,
            zero=x.zero | infinite_y,
            infinite=infinite_x | y.zero,
            nan=is_nan(x) | is_nan(y) | (x.zero & y.zero) | (infinite_x & infinite_y),
            exponent=(x.exp - y.exp)[:9],
        )
        # Two's complement remainder in 26 bits; a digit is 1 when the remainder after it is not negative.
        remainder = Cat(x.mant, Const(1, 1), Const(0, 2))
        divisor = Cat(y.mant, Const(1, 1))
        subtract = Const(1, 1)
        quotient = Const(0, 0)
        for k in range(DIGITS):
            # +divisor, or -divisor whose +1 comes in below both operands; as a subtraction of the
            # complement.
            taken = Cat(~subtract, Mux(subtract, divisor, ~divisor)[:24], (~subtract).replicate(2))
            following = Signal(26, name=f"remainder{k}")
            m.d.comb += following.eq((Cat(subtract, remainder) - taken)[1:27])
            s = self.cut(m, f"digit{k}", remainder=following, divisor=divisor,
                         quotient=Cat(~following[25], quotient), **kind)
            kind = {label: getattr(s, label) for label in kind}
            remainder, divisor = Cat(Const(0, 1), s.remainder[:25]), s.divisor
            quotient, subtract = s.quotient, ~s.remainder[25]
        # A quotient below 1 is one place down; half-way cases do not exist, so the guard bit alone rounds.
        one = quotient[25]
        # The exponent's bias less 1, for the leading one counts into it; of a quotient below 1 it is left out
        # here, which makes the exponent 1 less.
        significand = Cat(Mux(one, quotient[2:25], quotient[1:24]), one, Const(63, 6))
        up = Mux(one, quotient[1], quotient[0])
        exponent = Cat(s.exponent, s.exponent[-1])
        self.finish(m, sign=s.sign, exponent=exponent, significand=significand, up=up,
                    zero=s.zero & ~s.infinite, infinite=s.infinite, nan=s.nan)
        return m
