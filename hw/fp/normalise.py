"""From an accumulator in two's complement to a binary32 word."""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from hw.attributes import KEEP

from .logic import add, named, shift_level
from .operand import delay
from .product import DROPPED_BITS


class _Shifted(NamedTuple):
    """A sum on its way to the rounding. middle: its upper bits, to be shifted by `by1`; by1_twin: a copy of that; lost:
    a bit below `middle` is set; shift: by how much it has been shifted and will be."""

    middle: Signal
    lost: Signal
    by1: Signal
    by1_twin: Signal
    shift: Value


class _Rounded(NamedTuple):
    """A rounded number: of the word's fields, and whether it is exactly zero."""

    fraction: Value
    exponent: Value
    negative: Signal
    zero: Signal


def normalise(m: Module, s: int, total: Value, top: Value, top_cycles: int, flags: Value, foreign: Value,
              dropped: int = DROPPED_BITS) -> Value:
    """The word of an accumulator, six cycles later: a leading-sign shifter of three 4:1 levels, then rounding.

    total: stage n, its unit 2^dropped times the lowest bit of a 48-bit product; top: that product's exponent, which
    came top_cycles before stage n + 3; flags, foreign: stage n + 5: +inf, -inf, both for NaN, and, if there is a third
    bit, that a zero is -0; the word is +0 whatever the rest. The shifted value stays in two's complement; rounding
    turns it into a magnitude in the same adder.
    """
    coarse, coarse_shift = _shift_16s(m, s, total)
    exponent = delay(m, f"top_line{s}", top, top_cycles)
    shifted = _shift_4s(m, s, coarse, coarse_shift)
    number = _round(m, s, shifted, exponent, len(total), dropped)
    return _word(m, s, number, flags, foreign)


def _repeats(m: Module, name: str, value: Value, size: int) -> list[Value]:
    """[k]: the first k + 1 blocks of `size` bits below the sign hold copies of it."""
    high = len(value) - 1
    changed = named(m, name, Mux(value[-1], ~value, value))
    return [~changed[max(high - k * size, 0):high].any()
            for k in range(1, 4) if high - (k - 1) * size > 0]


def _choice(blocks: list[Value]) -> Value:
    """How many of three blocks repeat the sign."""
    return Cat(blocks[0] & (~blocks[1] | blocks[2]), blocks[1])


def _shift_16s(m: Module, s: int, total: Value) -> tuple[Value, Value]:
    """Shifted by 16s, and by how many."""
    width = len(total)
    # Nothing reaches the lowest 16 bits from below, so their registers' reset does the work.
    blocks = _repeats(m, f"changed{s}", total, 16)
    skip16 = named(m, f"skip16_{s}", blocks[0])
    skip32 = named(m, f"skip32_{s}", blocks[1] if width - 1 > 32 else Const(0, 1))
    skip48 = named(m, f"skip48_{s}", blocks[2] if width - 1 > 48 else Const(0, 1))
    coarse_low = Signal(16, name=f"coarse_low{s}", reset_less=True)
    coarse_high = Signal(width - 16, name=f"coarse_high{s}", reset_less=True)
    coarse = Cat(coarse_low, coarse_high)
    coarse_shift = Signal(2, name=f"coarse_shift{s}", reset_less=True, attrs=KEEP)
    by32, by48 = (Cat(Const(0, places), total)[:width] for places in (32, 48))
    m.d.sync += coarse_low.eq(total[:16])
    m.d.sync += coarse_high.eq(
        Mux(skip48, by48[16:], Mux(skip32, by32[16:], Mux(skip16, total[:width - 16], total[16:]))))
    m.d.sync += coarse_shift.eq(Cat(skip16 & (~skip32 | skip48), skip32))
    with m.If(skip16):
        m.d.sync += coarse_low.eq(0)
    return coarse, coarse_shift


def _shift_4s(m: Module, s: int, coarse: Value, coarse_shift: Value) -> _Shifted:
    """Shifted by 4s, and by how many of 1s it is to be."""
    width = len(coarse)
    # What the word keeps: sign, 24 bits, a guard bit. `cut` bits lie below.
    cut = width - 26
    by4_next = named(m, f"by4_next{s}", _choice(_repeats(m, f"coarse_changed{s}", coarse, 4)))
    by4 = Signal(2, name=f"by4_{s}", reset_less=True)
    by4_twin = Signal(2, name=f"by4_twin{s}", reset_less=True, init=3)
    coarse_held = Signal(width, name=f"coarse_held{s}", reset_less=True)
    coarse_shift_held = delay(m, f"coarse_shift_line{s}", coarse_shift, 2)
    m.d.sync += by4.eq(by4_next)
    m.d.sync += by4_twin.eq(by4_next)
    m.d.sync += coarse_held.eq(coarse)

    # The lowest bits only tell whether the value is inexact: they move no further.
    moved = shift_level(m, f"middle_next{s}", coarse_held, by4, by4_twin, (4, 8), left=True)
    by1_next = named(m, f"by1_next{s}", _choice(_repeats(m, f"middle_changed{s}", moved, 1)))
    by1 = Signal(2, name=f"by1_{s}", reset_less=True)
    by1_twin = Signal(2, name=f"by1_twin{s}", reset_less=True, init=3)
    middle = Signal(29, name=f"middle{s}", reset_less=True)
    by4_held = Signal(2, name=f"by4_held{s}", reset_less=True)
    lost = Signal(name=f"lost{s}", reset_less=True)
    below = Const(0, 1)
    for k in range(4):
        high = cut - 3 - 4 * k
        if high > 0:
            # The lowest block is all that is left, however wide the sum.
            # by4 is at most 3, so the lowest bits count whatever it is.
            within = by4 <= k if k < 3 else Const(1, 1)
            below = below | (coarse_held[max(high - 4, 0) if k < 3 else 0:high].any() & within)
    m.d.sync += [
        by1.eq(by1_next),
        by1_twin.eq(by1_next),
        middle.eq(moved[cut - 3:]),
        by4_held.eq(by4),
        lost.eq(below),
    ]
    return _Shifted(middle=middle, lost=lost, by1=by1, by1_twin=by1_twin,
                    shift=Cat(by1, by4_held, coarse_shift_held))


def _round(m: Module, s: int, shifted: _Shifted, exponent: Value, width: int, dropped: int) -> _Rounded:
    """Shifted by 1s, then rounded."""
    middle, by1 = shifted.middle, shifted.by1
    fine = Signal(26, name=f"fine{s}", reset_less=True)
    sticky = Signal(name=f"sticky{s}", reset_less=True)
    biased = Signal(10, name=f"biased{s}", reset_less=True)
    # Exponent of the leading bit, biased: top - shift + (width - 2) - 2 * 127 - 46 + dropped + 127. What is a
    # multiple of 64 is taken off here, the rest comes in with the rounding, whose adder has an operand free.
    offset = width - 2 - 127 - 46 + dropped
    m.d.sync += fine.eq(shift_level(m, f"fine_next{s}", middle, by1, shifted.by1_twin, (1, 2), left=True)[3:])
    m.d.sync += sticky.eq(shifted.lost | (middle[2] & (by1 == 0)) | (middle[1] & (by1 <= 1)) | (middle[0] & (by1 <= 2)))
    m.d.sync += biased.eq(exponent - Cat(shifted.shift, Const(-(offset >> 6), 4)))

    # |v| = ~v + 1 for a negative v: the +1 either reaches the kept bits (all dropped bits 0) or makes the
    # dropped part its own complement.
    guard, kept, negative = fine[0], fine[1:25], fine[25]
    guard_magnitude = guard ^ (negative & sticky)
    up = named(m, f"up{s}", (negative & ~guard & ~sticky)
               | (guard_magnitude & (sticky | (kept[0] ^ negative))))
    rounded = Signal(33, name=f"rounded{s}", reset_less=True)
    negative3 = Signal(name=f"negative_result{s}", reset_less=True)
    exact_zero = Signal(name=f"exact_zero{s}", reset_less=True)
    fraction = kept[:23]
    m.d.sync += rounded.eq(add(Const((offset & 63) << 23, 33),
                               Cat(Mux(negative, ~fraction, fraction)[:23], biased), up, 33))
    m.d.sync += negative3.eq(negative)
    m.d.sync += exact_zero.eq(~negative & ~kept[-1])
    return _Rounded(fraction=rounded[:23], exponent=rounded[23:], negative=negative3, zero=exact_zero)


def _word(m: Module, s: int, number: _Rounded, flags: Value, foreign: Value) -> Value:
    """The rounded number, or what takes its place."""
    exp = number.exponent
    under = named(m, f"under{s}", exp[9] | ~exp[:9].any() | number.zero)
    over = named(m, f"over{s}", ~exp[9] & (exp[8] | exp[:8].all()))
    nan = flags[:2].all()
    infinite = named(m, f"infinite{s}", flags[:2].any())
    sign = number.negative | flags[2] if len(flags) > 2 else number.negative
    result_fraction = Signal(23, name=f"result_fraction{s}", reset_less=True)
    result_upper = Signal(9, name=f"result_upper{s}", reset_less=True)
    m.d.sync += result_fraction.eq(number.fraction)
    m.d.sync += result_upper.eq(Cat(Mux(infinite | (over & ~under), 0xFF, Mux(under, 0, exp[:8])),
                                    Mux(infinite, flags[1] & ~flags[0], sign)))
    with m.If(infinite | under | over):
        m.d.sync += result_fraction.eq(Cat(Const(0, 22), nan))
    with m.If(foreign):
        m.d.sync += result_fraction.eq(0)
        m.d.sync += result_upper.eq(0)
    return Cat(result_fraction, result_upper)
