"""A binary32 word to half precision, rounded, and back, exact."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hw.fp.logic import named
from hw.place import Part

# Of a binary32 exponent: below, a binary16 is zero; below, it is subnormal; from here on, infinite.
NOTHING, NORMAL, INFINITE = 102, 113, 143
GONE = 15       # a shift after which nothing is left
INFINITY, NAN, BRAIN_NAN = 0x7C00, 0x7E00, 0x7FC0


class Narrow(Part):
    """Rounds a binary32 word to binary16 or bfloat16.

    o = x in half precision, to nearest even.       Source: IEEE 754-2019 §3.6, §5.4.2

    Parameters  none
    Members     word   In  binary32
                brain  In  the result is a bfloat16, else a binary16
                o      Out  word of 16 bits
    Shapes      one word per cycle
    Timing      `latency` = 3 cycles; a word every cycle. At most six LUT levels and one carry chain between registers
    Handshake   none
    Numerics    RNE; a subnormal operand counts as zero of its sign; binary16 subnormals are kept, bfloat16 has none as
                no operand is as small; past the largest number infinity; one quiet NaN, 0x7E00 or 0x7FC0. Against
                golden: bit-exact
    Reset       nothing to reset: there is no state but the pipeline
    Golden      golden.fp.narrow.narrow          Tests  verif/fp/test_narrow.py
    """

    latency = 3

    def __init__(self):
        super().__init__({"word": In(32), "brain": In(1), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        sign, brain, nan, over, high, digits = self._fields(m)
        amount = self._amount(m)

        # The fraction moves right until the exponent is the smallest. What leaves it is remembered as one bit.
        near, far = amount[:2], amount[2:]
        some = named(m, "some", digits >> near)
        most = named(m, "most", some >> Cat(Const(0, 2), far))
        lost_near = Signal()
        lost_far = Signal()
        with m.Switch(near):
            for places in range(1, 4):
                with m.Case(places):
                    m.d.comb += lost_near.eq(digits[:places].any())
        with m.Switch(far):
            for places in range(1, 4):
                with m.Case(places):
                    m.d.comb += lost_far.eq(some[:4 * places].any())

        kept, guard = (Signal(width, name=name, reset_less=True) for name, width in (("kept", 15), ("guard", 1)))
        sticky, late_sign, late_brain, late_nan, late_over = (
            Signal(name=name, reset_less=True)
            for name in ("sticky", "late_sign", "late_brain", "late_nan", "late_over"))
        m.d.sync += [
            kept.eq(Cat(most[2:12], high)),
            guard.eq(most[1]),
            sticky.eq(most[0] | lost_near | lost_far),
            late_sign.eq(sign),
            late_brain.eq(brain),
            late_nan.eq(nan),
            late_over.eq(over),
        ]

        # A carry out of the fraction counts into the exponent, and out of the largest number gives infinity.
        rounded = named(m, "rounded", (kept + (guard & (sticky | kept[0])))[:15])
        special = Mux(late_nan, Mux(late_brain, BRAIN_NAN, NAN), INFINITY)
        result = Signal(16, reset_less=True)
        m.d.sync += result.eq(Cat(Mux(late_nan | late_over, special, rounded), late_sign & ~late_nan))
        m.d.comb += self.o.eq(result)
        return m

    def _fields(self, m: Module):
        """Registers: sign, format, NaN, past the largest number, the upper five bits of the result's exponent and
        fraction, and the others before they are shifted: leading one, ten bits, the bit below, whether more follow."""
        mantissa, exponent = self.word[:23], self.word[23:31]
        sign, brain, nan, over = (Signal(name=name, reset_less=True) for name in ("sign", "brain", "nan", "over"))
        high, digits = Signal(5, name="high", reset_less=True), Signal(13, name="digits", reset_less=True)
        normal = named(m, "normal", exponent >= NORMAL)
        half_digits = Cat(mantissa[:12].any(), mantissa[12:], 1)
        brain_digits = Cat(mantissa[:15].any(), mantissa[15:], exponent[:3], 0)
        m.d.sync += [
            sign.eq(self.word[31]),
            brain.eq(self.brain),
            nan.eq(exponent.all() & mantissa.any()),
            over.eq(~self.brain & (exponent >= INFINITE)),
            # Of a binary16 the exponent less the difference of the biases, which is 112.
            high.eq(Mux(self.brain, exponent[3:], Mux(normal, Cat(exponent[:4], ~exponent[4]), 0))),
            digits.eq(Mux(self.brain, brain_digits, half_digits)),
        ]
        return sign, brain, nan, over, high, digits

    def _amount(self, m: Module) -> Signal:
        """How far the fraction moves: a register."""
        exponent = self.word[23:31]
        amount = Signal(4, name="amount", reset_less=True)
        gone = named(m, "gone", Mux(self.brain, ~exponent.any(), exponent < NOTHING))
        stays = named(m, "stays", self.brain | (exponent >= NORMAL))
        below = named(m, "below", (NORMAL - exponent)[:4])
        m.d.sync += amount.eq(Mux(gone, GONE, Mux(stays, 0, below)))
        return amount


def widen(half: Value) -> Value:
    """The binary32 word of a binary16 one; exact, a NaN with its fraction."""
    fraction, exponent = half[:10], half[10:15]
    with_leading = Cat(Const(0, 13), fraction, exponent + 112)[:31]
    special = Cat(Const(0, 13), fraction, Const(255, 8))
    # A subnormal's leading one, at place k of the fraction, has the exponent k - 24.
    subnormal = Const(0, 31)
    for k in range(10):
        subnormal = Mux(fraction[k], Cat(Const(0, 23 - k), fraction[:k], Const(k - 24 + 127, 8)), subnormal)
    return Cat(Mux(exponent == 31, special, Mux(exponent == 0, subnormal, with_leading))[:31], half[15])
