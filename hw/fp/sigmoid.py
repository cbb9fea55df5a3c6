"""The logistic function of binary32 words: one small multiplier, a table and a few rows of a divider."""

import decimal
import functools

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from hw.fp.operand import unpack
from hw.fp.pipeline import is_nan
from hw.place import Part

INTERVAL = 9        # cycles that a word is in a stage
DIVIDERS = 3        # stages of the divider, a quotient bit per cycle each
STAGES = 2 + DIVIDERS
DIGIT_BITS = 4      # of the mantissa, that one cycle multiplies
LOG2_E = 198_282_496_599    # log2(e) * 2^37
STRETCH_LOG2, FRACTION_BITS = 9, 27
STEP_BITS = FRACTION_BITS - STRETCH_LOG2
POWER_BITS, SLOPE_BITS, BEND_BITS = 28, 22, 12


@functools.cache
def power_table() -> tuple[tuple[int, int, int], ...]:
    """Of each stretch of f, 2^-f around its middle: value, slope and bend, half a unit of f further on, for f comes
    with its lower bits cut off. The value is cut off too: so is, half a unit too far, what is subtracted from it."""
    with decimal.localcontext(prec=40):
        two = decimal.Decimal(2)
        ln2 = two.ln()
        middle = [two ** -((2 * k + 1) / two ** (STRETCH_LOG2 + 1) + 1 / two ** (FRACTION_BITS + 1))
                  for k in range(1 << STRETCH_LOG2)]
        return tuple((int(value * 2 ** POWER_BITS), round(value * ln2 * 2 ** SLOPE_BITS),
                      round(value * ln2 * ln2 / 2 * 2 ** BEND_BITS)) for value in middle)


class Sigmoid(Part):
    """The logistic function of a binary32 word, a few cycles a word.

    o = 1 / (1 + 2^-t), t = x log2(e); of a negative x, 2^-n 2^-f / (1 + 2^-(n + f)) with n + f = |t|, f < 1.
                                        Source: table and second-degree polynomial for 2^-f; non-restoring division

    Parameters  tag_bits: of what comes along with a word
    Members     i     In(stream)  {word, tag}
                o     Out(stream)  {word, tag}, in the same order
                busy  Out  a word is inside, or was in the cycle before
    Timing      a word every INTERVAL cycles; STAGES * INTERVAL + 2 cycles from i to o, if none is before it, at most
                INTERVAL more otherwise
    Handshake   i.ready, o.valid and o.payload come from registers; a word that is not taken from o stops all others
                after at most INTERVAL cycles
    Numerics    within 0.70 ulp of the exact value, and monotone: 2^-f is at every step of the polynomial. Subnormals
                flushed, results below 2^-126 +0 (after rounding); sigmoid(-inf) = +0, sigmoid(inf) = 1, one NaN.
                Against golden: bit-exact
    Reset       drops everything
    Golden      golden.fp.fp32.sigmoid; cycles: fpga/card/cpp/twin/mlp_writer.h
    Tests       verif/fp/test_sigmoid.py
    """

    def __init__(self, *, tag_bits: int):
        if type(tag_bits) is not int or tag_bits < 0:
            raise ValueError(f"tag_bits must be a whole number of at least 0, not {tag_bits!r}")
        self.tag_bits = tag_bits
        payload = data.StructLayout({"word": 32, "tag": tag_bits})
        super().__init__({
            "i": In(stream.Signature(payload)),
            "o": Out(stream.Signature(payload)),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        # Words move on from stage to stage together, every INTERVAL cycles; the first does not wait for its turn.
        word = Signal(self.i.payload.shape(), reset_less=True)
        held = Signal()
        there = Signal(STAGES)
        phase = Signal(range(INTERVAL))
        turn = Signal()
        m.d.comb += turn.eq(((phase == INTERVAL - 1) & ~(there[-1] & self.o.valid & ~self.o.ready)) | ~there.any())
        m.d.comb += self.i.ready.eq(~held)
        m.d.sync += self.o.valid.eq((turn & there[-1]) | (self.o.valid & ~self.o.ready))
        m.d.sync += self.busy.eq((self.i.valid & self.i.ready) | held | there.any() | self.o.valid)
        with m.If(turn):
            m.d.sync += phase.eq(0)
            m.d.sync += there.eq(Cat(held, there))
            m.d.sync += held.eq(0)
        with m.Elif(phase != INTERVAL - 1):
            m.d.sync += phase.eq(phase + 1)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += word.eq(self.i.payload)
            m.d.sync += held.eq(1)

        n, scaled, along = self._scale(m, turn, word)
        power, n, along = self._power(m, turn, phase, n, scaled, along)
        quotient, exponent, along = self._divide(m, turn, phase, power, n, along)
        self._round(m, turn & there[-1], quotient, exponent, along)
        return m

    def _along(self, m: Module, turn: Signal, number: int, before) -> data.View:
        """What stage `number` keeps of its word besides numbers."""
        along = Signal(data.StructLayout({"sign": 1, "nan": 1, "tag": self.tag_bits}), name=f"along_{number}",
                       reset_less=True)
        with m.If(turn):
            m.d.sync += along.eq(before)
        return along

    def _scale(self, m: Module, turn: Signal, word):
        """Stage 0: |x| log2(e), four bits of the mantissa a cycle, then shifted by the exponent."""
        x = unpack(word.word)
        bits = LOG2_E.bit_length()
        right = Signal(9)
        m.d.comb += right.eq(133 - x.exp)       # shifts a |x| below 128 to its place
        mantissa = Signal(24, reset_less=True)
        product = Signal(bits, reset_less=True)
        shift = Signal(6, reset_less=True)
        large = Signal(reset_less=True)
        following = Signal(bits + DIGIT_BITS)
        count = Signal(3, reset_less=True)      # digits left
        digit = Signal(bits + DIGIT_BITS)
        with m.Switch(mantissa[:DIGIT_BITS]):
            for value in range(1 << DIGIT_BITS):
                with m.Case(value):
                    m.d.comb += digit.eq(value * LOG2_E)
        m.d.comb += following.eq(product + digit)
        with m.If(turn):
            m.d.sync += [
                mantissa.eq(Mux(~right[8] & (right[6] | right[7]), 0, Cat(x.mant, ~x.zero))),
                product.eq(0),
                shift.eq(right[:6]),
                large.eq(right[8]),
                count.eq(24 // DIGIT_BITS),
            ]
        with m.Elif(count != 0):
            m.d.sync += mantissa.eq(mantissa >> DIGIT_BITS)
            m.d.sync += product.eq(following[DIGIT_BITS:])
            m.d.sync += count.eq(count - 1)
        along = self._along(m, turn, 0, Cat(x.sign, is_nan(x), word.tag))
        moved: Value = product[3:]
        for at in (0, 2, 4):
            moved = _right(moved, shift[at:at + 2], 1 << at)
        # Where it is 128 or more, the result is the same as at 255.
        n = moved[FRACTION_BITS:] | large.replicate(8)
        return n, moved[:FRACTION_BITS], along

    def _power(self, m: Module, turn: Signal, phase: Signal, n, scaled, along):
        """Stage 1: 2^-f from the table and one multiplier, used twice: stretch by stretch value - tangent * step, in
        which tangent = slope - bend * step."""
        fraction = Signal(FRACTION_BITS, reset_less=True)
        n_here = Signal(8, reset_less=True)
        with m.If(turn):
            m.d.sync += fraction.eq(scaled)
            m.d.sync += n_here.eq(n)
        along = self._along(m, turn, 1, along)
        # A value is 1/2 or more: its highest bit is not stored.
        layout = data.StructLayout({"value": POWER_BITS - 1, "slope": SLOPE_BITS, "bend": BEND_BITS - 2})
        m.submodules.table = table = memory.Memory(
            shape=layout, depth=1 << STRETCH_LOG2, attrs={"rom_style": "block", "ram_style": "block"},
            init=[{"value": value - (1 << POWER_BITS - 1), "slope": slope, "bend": bend}
                  for value, slope, bend in power_table()])
        read = table.read_port()
        m.d.comb += read.addr.eq(fraction[STEP_BITS:])
        m.d.comb += read.en.eq(1)
        entry = read.data
        step = Signal(STEP_BITS, reset_less=True)
        m.d.sync += step.eq(fraction[:STEP_BITS] ^ (1 << STEP_BITS - 1))
        # From phase to phase: entry and step, factor = bend, its product in two registers, factor = tangent, ...
        factor = Signal(SLOPE_BITS + 2, reset_less=True)
        inner = Signal(SLOPE_BITS + 2 + STEP_BITS, reset_less=True)
        product = Signal.like(inner)
        bent = Signal(SLOPE_BITS + 2)
        second = Signal()
        m.d.comb += second.eq(phase[2])  # phases 4 to 7
        m.d.comb += bent.eq(Mux(second, product.as_signed() >> (FRACTION_BITS + BEND_BITS - SLOPE_BITS), 0))
        m.d.sync += factor.eq(Mux(second, entry.slope, entry.bend) - bent)
        m.d.sync += inner.eq(factor.as_signed() * step.as_signed())
        m.d.sync += product.eq(inner)
        power = Signal(POWER_BITS, reset_less=True)
        with m.If(phase == 7):
            m.d.sync += power.eq(Cat(entry.value, 1) - (product.as_signed() >> (
                FRACTION_BITS + SLOPE_BITS - POWER_BITS)))
        return power, n_here, along

    def _divide(self, m: Module, turn: Signal, phase: Signal, power, n, along):
        """Stages 2 to 4: 1 or 2^-f over 1 + 2^-(n + f), INTERVAL bits of the quotient a stage."""
        far = n[5:].any()
        small: Value = power
        for at in (0, 2):
            small = _right(small, n[at:at + 2], 1 << at)
        small = Mux(far, 0, Mux(n[4], small >> 16, small))[:POWER_BITS]
        divisor: Value = small                      # less 1
        # Two's complement; the first one is twice the numerator less the divisor, of which the first cycle takes it.
        remainder: Value = Cat(Mux(along.sign, power, 0), ~along.sign, Const(0, 1))
        subtract: Value = Const(1, 1)
        quotient: Value = Const(0, 0)
        exponent: Value = (125 - Mux(along.sign, n, 0))[:9]
        for number in range(DIVIDERS):
            left = Signal(POWER_BITS + 2, name=f"remainder_{number}", reset_less=True)
            less_one = Signal(POWER_BITS, name=f"divisor_{number}", reset_less=True)
            minus = Signal(name=f"subtract_{number}", reset_less=True)
            bits = Signal(INTERVAL * (number + 1), name=f"quotient_{number}", reset_less=True)
            biased = Signal(9, name=f"exponent_{number}", reset_less=True)
            after = Signal(POWER_BITS + 2, name=f"after_{number}")
            whole = Cat(less_one, Const(1, 2))
            # 2 r - d, or 2 r + d; the 1 that the complement lacks comes in below both.
            m.d.comb += after.eq((Cat(minus, Const(0, 1), left[:-1]) + Cat(minus, Mux(minus, ~whole, whole)))[1:])
            with m.If(turn):
                m.d.sync += [
                    left.eq(remainder),
                    less_one.eq(divisor),
                    minus.eq(subtract),
                    bits.eq(quotient),
                    biased.eq(exponent),
                ]
            with m.Elif(phase != INTERVAL - 1):
                m.d.sync += left.eq(after)
                m.d.sync += minus.eq(~after[-1])
                m.d.sync += bits.eq(Cat(~after[-1], bits))
            along = self._along(m, turn, 2 + number, along)
            # The stage's last bit comes with the turn.
            remainder, subtract, divisor = after, ~after[-1], less_one
            quotient, exponent = Cat(~after[-1], bits)[:INTERVAL * (number + 1)], biased
        return quotient[1:], exponent, along

    def _round(self, m: Module, done: Value, quotient, exponent, along) -> None:
        """The word of 26 bits of a quotient between 1/3 and 1."""
        upper = quotient[25]
        total = Signal(33)
        m.d.comb += total.eq(
            Cat(Mux(upper, quotient[2:25], quotient[1:24]), exponent, exponent[-1])
            + Cat(Mux(upper, quotient[1], quotient[0]), Const(0, 22), upper))
        zero = total[-1] | ~total[23:].any()
        with m.If(done):
            m.d.sync += self.o.payload.word.eq(Mux(along.nan, 0x7FC00000, Mux(zero, 0, total[:31])))
            m.d.sync += self.o.payload.tag.eq(along.tag)


def _right(value: Value, amount: Value, unit: int) -> Value:
    """value shifted right by amount (2 bits) * unit: a 4:1 multiplexer a bit."""
    return Mux(amount[1], Mux(amount[0], value >> 3 * unit, value >> 2 * unit),
               Mux(amount[0], value >> unit, value))
