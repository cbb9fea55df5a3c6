"""Products of FP32 operands, cut to their upper bits, with exponents and kinds."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from hw.attributes import KEEP

from . import slices
from .logic import add, named
from .operand import delay

DROPPED_BITS = 17  # of a 48-bit product
PRODUCT_BITS = 48 - DROPPED_BITS
EXPONENT_BITS = 9  # the sum of two biased exponents


def classify(m: Module, i: int, x: data.View, y: data.View, copy: Value | None = None) -> tuple[Value, Value]:
    """Stage 1: a product's exponent and kind: +inf or NaN (bit 0), -inf or NaN (bit 1) and, where there is a `copy`,
    -0 that is to stay so (bit 2).
    """
    exponent = Signal(EXPONENT_BITS, name=f"exponent{i}", reset_less=True)
    kind = Signal(2 if copy is None else 3, name=f"kind{i}", reset_less=True)
    # Zero and special at once is padding, which makes no NaN and no infinity.
    counts = ~((x.zero & x.special) | (y.zero & y.special))
    zero = named(m, f"zero_term{i}", x.zero | y.zero)
    nan = (x.special & (x.mant[22] | y.zero)) | (y.special & (y.mant[22] | x.zero))
    nan = named(m, f"nan{i}", counts & nan)
    infinite = named(m, f"infinite_term{i}", (x.special | y.special) & ~zero)
    negative = x.sign ^ y.sign
    m.d.sync += exponent.eq(x.exp + y.exp)
    m.d.sync += kind.eq(Cat(nan | (infinite & ~negative), nan | (infinite & negative),
                            [] if copy is None else copy & counts & zero & negative))
    with m.If(zero):
        # A synchronous reset of the register, no LUT.
        m.d.sync += exponent.eq(0)
    return exponent, kind


def in_slices(m: Module, x: list, y: list, zeros: Value, lut_products: int, stage: int) -> list[tuple[Value, int]]:
    """As `multiply`, in DSP48E2 slices with all their registers. What is not to be there before `stage` waits in front
    of the multipliers, where a register costs nothing.
    """
    products = []
    waiting = max(0, min(slices.MOST_WAITING, stage - 3))
    stages = [3 + waiting, 4] if lut_products else [3 + waiting]
    cleared = {made: delay(m, f"zero_line{made}", zeros, made - 2) for made in dict.fromkeys(stages)}
    for i, (a, b) in enumerate(zip(x, y)):
        a, b = Cat(a.mant, Const(1, 1)), Cat(b.mant, Const(1, 1))
        made = 4 if i < lut_products else 3 + waiting
        clear = cleared[made][i]
        if i < lut_products:
            p = slices.with_addend(m, f"slice{i}", a, b[:slices.WIDE], _booth(m, i, a, b[slices.WIDE:]), clear)
        else:
            p = slices.cascaded(m, f"slice{i}", a, b, clear, waiting)
        products.append((p[:PRODUCT_BITS], made))
    return products


def multiply(m: Module, x: list, y: list, zeros: Value, lut_products: int) -> list[tuple[Value, int]]:
    """The products' bits from 17 up, and the stage of each: 24 x 17 in a DSP, 24 x 7 in a cascaded one or
    in LUTs.

    The hidden bits are taken as 1; a zero is made at the end, by the output register's reset.
    """
    products = []
    held = [delay(m, f"zero_line{k}", zeros, k) for k in (1, 2)]
    for i, (a, b) in enumerate(zip(x, y)):
        a, low, high = Cat(a.mant, Const(1, 1)), b.mant[:17], Cat(b.mant[17:], Const(1, 1))
        # Before a multiplier in LUTs these head a delay line, see `delay`.
        keep = KEEP if i < lut_products else {}
        m_low = Signal(41, name=f"m_low{i}", reset_less=True, attrs=keep)
        p_low = Signal(41, name=f"p_low{i}", reset_less=True, attrs=keep)
        m.d.sync += m_low.eq(a * low)
        m.d.sync += p_low.eq(m_low)
        product = Signal(PRODUCT_BITS, name=f"product{i}", reset_less=True)
        if i < lut_products:
            stage = 4
            booth = Signal(32, name=f"booth2_{i}", reset_less=True)
            m.d.sync += booth.eq(_booth(m, i, a, high))
            upper = booth[:PRODUCT_BITS]
            base = delay(m, f"p_low_line{i}", p_low[17:], 1)
        else:
            stage = 3
            xx = Signal(24, name=f"xx{i}", reset_less=True)
            high_ = Signal(7, name=f"high_{i}", reset_less=True)
            upper = Signal(PRODUCT_BITS, name=f"m_high{i}", reset_less=True)
            m.d.sync += xx.eq(a)
            m.d.sync += high_.eq(high)
            m.d.sync += upper.eq(xx * high_)
            base = p_low[17:]
        m.d.sync += product.eq(upper + base)
        with m.If(held[stage - 3][i]):
            m.d.sync += product.eq(0)
        products.append((product, stage))
    return products


def _booth(m: Module, i: int, x: Value, y: Value) -> Value:
    """Before stage 3's register: 24 x 7 bits by radix-4 Booth digits, a row added in each of three stages.

    The upper digit is 1 or 2, because the hidden bit is 1. Where a row is negated, its missing +1 rides
    in the empty bits below the next row.
    """
    def row(name: str, x: Value, digit: Value) -> tuple[Value, Value]:
        """0, 1, 2, -2, -1 or -0 times x, less 1 if negative; and whether it is."""
        one, two, negative = digit[0] ^ digit[1], (digit[0] & digit[1]) ^ digit[2], digit[2]
        two = two & ~one
        size = Mux(two, Cat(Const(0, 1), x), Mux(one, x, 0))[:25]
        return named(m, name, Cat(Mux(negative, ~size, size)[:25], negative)).as_signed(), negative

    x1, y1 = delay(m, f"booth_x1_{i}", x, 1), delay(m, f"booth_y1_{i}", y, 1)
    x2, y2 = delay(m, f"booth_x2_{i}", x1, 1), delay(m, f"booth_y2_{i}", y1, 1)
    row0, negative0 = row(f"row0_{i}", x, Cat(Const(0, 1), y[:2]))
    row1, negative1 = row(f"row1_{i}", x, y[1:4])
    row2, negative2 = row(f"row2_{i}", x1, y1[3:6])
    row3 = Mux(y2[5], Cat(Const(0, 1), x2), x2)
    held1 = delay(m, f"booth_negative1_{i}", negative1, 1)
    held2 = delay(m, f"booth_negative2_{i}", negative2, 1)
    none = Const(0, 1)
    sums = [Signal(width, name=f"booth{k}_{i}", reset_less=True) for k, width in enumerate((29, 31))]
    m.d.sync += sums[0].eq(add(row0, Cat(negative0, Const(0, 1), row1), none, 29))
    m.d.sync += sums[1].eq(add(sums[0], Cat(Const(0, 2), held1, Const(0, 1), row2), none, 31))
    return add(sums[1], Cat(Const(0, 4), held2, Const(0, 1), row3, none), none, 32)
