from amaranth.hdl import Cat, Const, Module, Mux

from .pipeline import Unit, is_nan


class Multiply(Unit):
    """Multiplies two binary32 words in two cascaded DSP slices.

    o = x * y.                                      Source: 24 x 24 = 24 x 17 + 24 x 7, UG579 cascades

    Parameters  registers: which of CUTS hold a register, all by default
    Members     x, y  In  words
                o     Out  word
    Shapes      one product per cycle
    Timing      `latency` cycles, one for each register; a product every cycle. With all registers at most 6
                LUT levels and one carry chain between two
    Handshake   none
    Numerics    RNE, subnormals flushed (results after rounding), one NaN. Against golden: bit-exact
    Reset       nothing to reset: there is no state but the pipeline
    Raises      ValueError: an unknown or repeated name in registers
    Golden      golden.fp.fp32.mul          Tests  verif/fp/test_fp.py
    """

    CUTS = ("operands", "partial", "product", "normalised", "rounded", "result")

    def elaborate(self, platform):
        m = Module()
        x, y = self.operands(m)
        mx, my = Cat(x.mant, Const(1, 1)), Cat(y.mant, Const(1, 1))
        zero = x.zero | y.zero
        s = self.cut(m, "partial", low=mx * my[:17], high=mx * my[17:], exponent=x.exp + y.exp,
                     sign=x.sign ^ y.sign, zero=zero, infinite=x.special | y.special,
                     nan=is_nan(x) | is_nan(y) | ((x.special | y.special) & zero))
        s = self.cut(m, "product", high=(s.high + (s.low >> 17))[:31], low=s.low[:17], exponent=s.exponent,
                     sign=s.sign, zero=s.zero, infinite=s.infinite, nan=s.nan)
        q, top = s.high, s.high[30]
        inexact = s.low.any()
        up = Mux(top, q[6] & (q[7] | q[:6].any() | inexact), q[5] & (q[6] | q[:5].any() | inexact))
        # The integer part, 1 or 2, counts into the exponent: less 128 here. Only the upper bits change.
        upper = s.exponent[7:9]
        exponent = Cat(s.exponent[:7], ~upper[0], ~(upper[0] ^ upper[1]), ~upper.any())
        s = self.cut(m, "normalised", significand=Cat(Mux(top, q[7:30], q[6:29]), ~top, top), up=up,
                     exponent=exponent, sign=s.sign, zero=s.zero, infinite=s.infinite, nan=s.nan)
        self.finish(m, sign=s.sign, exponent=s.exponent, significand=s.significand, up=s.up, zero=s.zero,
                    infinite=s.infinite, nan=s.nan)
        return m
