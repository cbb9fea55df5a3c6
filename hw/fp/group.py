"""Groups of four FP32 operands that share one exponent, and the exact sums of their products.

Aligned once at an array's edge, the products of a group need no shifters of their own.
"""

from collections.abc import Sequence
from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out

from hw.place import Part

from . import slices
from .logic import add, largest_of_four, shift_level
from .operand import Operand, delay

GROUP = 4
GUARD_BITS = 2
#: Mantissas in two's complement: 24 bits, the guard bits and the sign.
MANT_BITS = 24 + GUARD_BITS + 1
#: Of them in a block of half the bits, golden.tt.block16.
BLOCK_BITS = 14
#: Cycles that a cell takes each mantissa behind its group's exponent: two cascades of slices add up side by side.
SKEW = (0, 1, 1, 2)
#: The stage of a sum of products, by FusedDot's count, and its bits: those from 19 up of an exact sum of four.
TERM_STAGE = 5
CUT_BITS = 19
#: Of a product's 48 bits, not counting the guard bits of its operands.
DROPPED_BITS = CUT_BITS - 2 * GUARD_BITS
SUM_BITS = 2 * (MANT_BITS - 1) + 2 + 1      # of an exact sum of four products
TERM_BITS = SUM_BITS - CUT_BITS


class Kind(enum.Enum, shape=3):
    """What an operand is; padding makes its product zero whatever it meets."""

    ZERO = 0
    PADDING = 1
    POSITIVE = 2
    NEGATIVE = 3
    PLUS_INFINITY = 4
    MINUS_INFINITY = 5
    NAN = 6


class Group(data.Struct):
    """Four operands as multiples of one power of two; as many bits as their words.

    mants: two's complement, 2^25 standing for the hidden bit of a number with exponent `exp`; zero for all that is no
    number. exp: the largest biased exponent of those that are, 0 if none is; kinds: of every operand.
    """

    mants: data.ArrayLayout(MANT_BITS, GROUP)
    exp: 8
    kinds: data.ArrayLayout(Kind, GROUP)


class Block(data.Struct):
    """Half of a group: all of its operands if they are finite and their mantissas have no lower bits.

    By itself, as `alone` stores it and `widened` reads it, the one mantissa that golden.tt.block16 never has, -2^13,
    marks padding.
    """

    mants: data.ArrayLayout(BLOCK_BITS, GROUP)
    exp: 8


class Narrow(data.Struct):
    """The group that a block by itself stands for, without the bits that are zero in all of these.

    mants: without the lower bits; kinds: without the upper bit, since none is infinite or NaN.
    """

    mants: data.ArrayLayout(BLOCK_BITS, GROUP)
    exp: 8
    kinds: data.ArrayLayout(2, GROUP)


class Rest(data.Struct):
    """The other half: the lower bits of the mantissas, and the kinds."""

    mants: data.ArrayLayout(MANT_BITS - BLOCK_BITS, GROUP)
    kinds: data.ArrayLayout(Kind, GROUP)


def parted(group: data.View) -> tuple[Value, Value]:
    """A group as a `Block` and a `Rest`."""
    low = MANT_BITS - BLOCK_BITS
    return (Cat(*(mant[low:] for mant in group.mants), group.exp),
            Cat(*(mant[:low] for mant in group.mants), group.kinds.as_value()))


def joined(block: Value, rest: Value) -> Value:
    """The bits of the group that `parted` took apart."""
    block, rest = data.View(Block, block), data.View(Rest, rest)
    return Cat(*(Cat(low, high) for low, high in zip(rest.mants, block.mants, strict=True)), block.exp,
               rest.kinds.as_value())


def alone(group: data.View) -> Value:
    """The `Block` that stands for a group by itself."""
    mants = [Cat(mant[MANT_BITS - BLOCK_BITS:-1], mant[-1] | (Value.cast(kind) == Kind.PADDING.value))  # type: ignore[attr-defined]
             for mant, kind in zip(group.mants, group.kinds, strict=True)]
    return Cat(*mants, group.exp)


def widened(block: Value) -> tuple[Value, Value]:
    """The `Block` and the `Rest` of the group that a block by itself stands for."""
    numbers, signs = _stood_for(block)
    kinds = [Cat(sign, number, Const(0, 1)) for sign, number in signs]
    return numbers, Cat(Const(0, GROUP * (MANT_BITS - BLOCK_BITS)), *kinds)


def narrowed(block: Value) -> Value:
    """The `Narrow` of the group that a block by itself stands for."""
    numbers, signs = _stood_for(block)
    return Cat(numbers, *(Cat(sign, number) for sign, number in signs))


def _stood_for(block: Value) -> tuple[Value, list[tuple[Value, Value]]]:
    """Mantissas and exponent of a block by itself, and the lower two bits of the kinds: sign, number."""
    block = data.View(Block, block)
    signs = [(mant[-1], mant[:-1].any()) for mant in block.mants]
    # Positive, negative, zero or padding, whose mantissa is zero.
    mants = [Cat(mant[:-1], sign & number) for mant, (sign, number) in zip(block.mants, signs, strict=True)]
    return Cat(*mants, block.exp), signs


class Aligner(Part):
    """Brings four operands to their largest exponent.

    Members     i        In  four FP32 words
                padding  In  a bit for each that is none
                o        Out  their `Group`
    Timing      `latency` cycles, a group per cycle; no stall
    Handshake   none
    Numerics    magnitudes keep 2 bits below the larger one's lowest; what lies below is cut off. Bit-exact
    Reset       nothing needs it
    Golden      golden.fp.fp32.dot          Tests  verif/fp/test_dot.py, test_group_dot.py
    """

    latency = 4

    def __init__(self):
        super().__init__({"i": In(data.ArrayLayout(32, GROUP)), "padding": In(GROUP), "o": Out(Group)})

    def elaborate(self, platform):
        m = Module()
        exps, mants, signs, kinds = zip(*(self._taken(m, i) for i in range(GROUP)))

        first, _ = largest_of_four(m, "largest", exps)
        peak = Signal(8, reset_less=True)
        # Its initial value alone keeps the twin from being merged with `peak`.
        twin = Signal(8, reset_less=True, init=255)
        m.d.sync += peak.eq(first)
        m.d.sync += twin.eq(first)
        for i in range(GROUP):
            exp, mant = delay(m, f"exp_line{i}", exps[i], 1), delay(m, f"mant_line{i}", mants[i], 1)
            # Distances as complements, as in FusedDot; the twin's are for the shifters, see `shift_level`.
            distance, other = (add(exp, ~largest, Const(0, 1), 8) for largest in (peak, twin))
            near = shift_level(m, f"near_fine{i}", Cat(Const(0, GUARD_BITS), mant),
                               ~Cat(distance[0], distance[3]), ~Cat(other[0], other[3]), (1, 8))
            near = shift_level(m, f"near{i}", near,
                               ~Cat(distance[1], distance[4]), ~Cat(other[1], other[4]), (2, 16))
            held = Signal(MANT_BITS - 1, name=f"near_held{i}", reset_less=True)
            near_by = Signal(name=f"near_by{i}", reset_less=True)     # not 4 places further
            m.d.sync += held.eq(near)
            m.d.sync += near_by.eq(distance[2])
            with m.If(~distance[5:].all()):
                m.d.sync += held.eq(0)
            sign = delay(m, f"sign_line{i}", signs[i], 2)
            magnitude = Mux(near_by, held, held[4:])[:MANT_BITS - 1]
            signed = Cat(Mux(sign, ~magnitude, magnitude)[:MANT_BITS - 1], sign)
            mantissa = Signal(MANT_BITS, name=f"mantissa{i}", reset_less=True)
            m.d.sync += mantissa.eq(add(Const(0, MANT_BITS), signed, sign, MANT_BITS))
            m.d.comb += self.o.mants[i].eq(mantissa)
            m.d.comb += self.o.kinds[i].eq(delay(m, f"kind_line{i}", kinds[i], 3))
        m.d.comb += self.o.exp.eq(delay(m, "peak_line", peak, 2))
        return m

    def _taken(self, m: Module, i: int) -> tuple[Value, Value, Value, Value]:
        """Exponent, mantissa, sign and kind in the first register; the former two 0 for what is no number."""
        word, padding = self.i[i], self.padding[i]
        zero, special = word[23:31] == 0, word[23:31].all()
        exp, mant = Signal(8, name=f"exp{i}", reset_less=True), Signal(24, name=f"mant{i}", reset_less=True)
        sign, kind = Signal(name=f"sign{i}", reset_less=True), Signal(Kind, name=f"kind{i}", reset_less=True)
        m.d.sync += [
            exp.eq(word[23:31]),
            mant.eq(Cat(word[:23], 1)),
            sign.eq(word[31]),
            kind.eq(Mux(
                padding | zero, Mux(padding, Kind.PADDING, Kind.ZERO),
                Mux(special & word[:23].any(), Kind.NAN, Cat(word[31], ~special, special)))),
        ]
        with m.If(zero | special | padding):
            m.d.sync += exp.eq(0)
            m.d.sync += mant.eq(0)
        return exp, mant, sign, Value.cast(kind)


def operands(width: int, count: int, grouped: bool, narrow: bool = False) -> data.ArrayLayout:
    """What `count` dot products of so many terms take a beat; narrow: as groups of block16."""
    if not grouped:
        return data.ArrayLayout(Operand, width * count)
    return data.ArrayLayout(Narrow if narrow else Group, count)


def skewed(m: Module, name: str, group: data.View) -> Value:
    """The group as a cell takes it: each mantissa SKEW cycles later."""
    mants = [delay(m, f"{name}_skew{w}", group.mants[w], cycles) for w, cycles in enumerate(SKEW)]
    return Cat(*mants, group.exp, group.kinds.as_value())


def infinities(x: Value, y: Value) -> Value:
    """Of a product by its operands' kinds, of a `Group` or `Narrow`: whether it is +inf or NaN, whether -inf or NaN."""
    def parts(kind: Value) -> Sequence[Value]:
        kind = Value.cast(kind)
        if len(kind) == 2:
            kind = Cat(kind, Const(0, 1))
        return (kind == Kind.ZERO.value, kind == Kind.PADDING.value, kind[1:] == 2, kind == Kind.NAN.value, kind[0])  # type: ignore[attr-defined]

    (zero_x, padding_x, infinite_x, nan_x, sign_x), (zero_y, padding_y, infinite_y, nan_y, sign_y) = parts(x), parts(y)
    nan = nan_x | nan_y | (infinite_x & zero_y) | (zero_x & infinite_y)
    infinite = infinite_x | infinite_y
    negative = sign_x ^ sign_y
    counts = ~(padding_x | padding_y)
    return Cat(counts & (nan | (infinite & ~negative)), counts & (nan | (infinite & negative)))


class Products(NamedTuple):
    """See `products`."""

    early: list[Signal]
    exponents: list[Signal]
    kinds: list[Value]
    terms: list[Signal]


def products(m: Module, x: data.View, y: data.View, *, waiting: int, family: str,
             cut: int = CUT_BITS) -> Products:
    """Of each group: `early`, its exponent of stage 1, by FusedDot's count; `exponents`, the same `waiting` cycles
    later; the kinds of its four products, of stage 1; `terms`, their sum without its lowest `cut` bits, of TERM_STAGE.

    x, y: the groups of a beat, those of y of `Group`.
    """
    taken = Products([], [], [], [])
    for s in range(len(y)):
        exps, kinds = [], []
        for name, given in (("x", x[s]), ("y", y[s])):
            exp = Signal(8, name=f"{name}_exp{s}", reset_less=True)
            kind = Signal.like(given.kinds, name=f"{name}_kinds{s}", reset_less=True)
            m.d.sync += exp.eq(given.exp)
            m.d.sync += kind.eq(given.kinds)
            exps.append(exp)
            kinds.append(kind)
        exponent = Signal(9, name=f"exponent{s}", reset_less=True)
        m.d.sync += exponent.eq(exps[0] + exps[1])
        with m.If(~exps[0].any() | ~exps[1].any()):
            m.d.sync += exponent.eq(0)
        taken.early.append(exponent)
        taken.exponents.append(delay(m, f"exponent_wait{s}", exponent, waiting))
        for w, (a, b) in enumerate(zip(*kinds)):
            kind = Signal(2, name=f"kind{s}_{w}", reset_less=True)
            m.d.sync += kind.eq(infinities(a, b))
            taken.kinds.append(kind)
        taken.terms.append(terms(m, s, x[s].mants, y[s].mants, family, cut))
    return taken


def terms(m: Module, s: int, x: Sequence[Value], y: Sequence[Value], family: str, cut: int) -> Value:
    """The sum of four products of mantissas that come by SKEW, without its lowest `cut` bits, TERM_STAGE + 1 cycles
    behind the first of them. x: of a `Group` or `Narrow`.
    """
    x, y = [Value.cast(a).as_signed() for a in x], [Value.cast(b).as_signed() for b in y]
    bits = SUM_BITS - cut
    # What a narrow mantissa lacks is zero.
    cut -= MANT_BITS - len(x[0])
    if family != "any":
        if len(x[0]) == BLOCK_BITS:
            return slices.four_narrow(m, f"slice{s}", x, y)[cut:][:bits]
        return slices.four(m, f"slice{s}", x, y)[cut - slices.WIDE:][:bits]
    def register(name: str, value: Value) -> Signal:
        held = Signal(value.shape(), name=f"{name}{s}", reset_less=True)
        m.d.sync += held.eq(value)
        return held

    products = [register(f"product{w}_", register(f"x{w}_", a) * register(f"y{w}_", b))
                for w, (a, b) in enumerate(zip(x, y))]
    low, high = (register(f"pair{w}_", register(f"late{w}_", products[w]) + products[w + 1]) for w in (0, 2))
    return register("sum", register("late", low) + high)[cut:][:bits]
