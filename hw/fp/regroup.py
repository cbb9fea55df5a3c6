"""Exact sums that share an exponent made the operands of the next dot products, without words between."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.place import Part

from . import group_dot
from .group import GROUP, MANT_BITS, Group, Kind
from .logic import named, shift_level
from .operand import delay
from .product import EXPONENT_BITS

#: Lowest bits of a total that do not reach a group.
UNUSED_BITS = 2
BLOCK = 4


def regroup_layout(width: int) -> data.StructLayout:
    """Four sums of one exponent: their bits without the UNUSED_BITS lowest, and what else a total_layout has."""
    return data.StructLayout({
        "bits": data.ArrayLayout(width, GROUP), "kinds": data.ArrayLayout(2, GROUP), "top": EXPONENT_BITS})


class Regroup(Part):
    """Shifts four sums that share an exponent to the left, all by as much as the largest of them allows.

    Parameters  width: bits of a sum
                i  In  regroup_layout
                o  Out  their `Group`
    Timing      `latency` cycles, a group per cycle; no stall
    Handshake   none
    Numerics    mantissas are cut (floor, in two's complement) 25 places below the highest bit of the largest sum. If
                that is not below 2^128 all are infinite, below 2^-126 all are zero. No operand is of Kind.ZERO: one
                whose mantissa is zero counts as positive beside an infinity. Bit-exact
    Reset       nothing needs it
    Golden      golden.fp.group_dot.regroup          Tests  verif/fp/test_group_dot.py
    """

    latency = 6

    def __init__(self, *, width: int):
        self.width = width
        super().__init__({"i": In(regroup_layout(width)), "o": Out(Group)})

    def elaborate(self, platform):
        m = Module()
        high = self.width - 1
        # Stage 0. What comes is two's complement.
        taken = Signal.like(self.i, reset_less=True)
        m.d.sync += taken.eq(self.i)
        # Stage 1: below the sign, bits in which some sum differs from its sign.
        spread = Signal(high, reset_less=True)
        m.d.sync += spread.eq(Cat(Cat(bits[at] ^ bits[high] for bits in taken.bits).any() for at in range(high)))
        # Stage 2: blocks of these, from above, that are empty.
        blocks = [spread[max(high - BLOCK * (k + 1), 0):high - BLOCK * k] for k in range(-(-high // BLOCK))]
        some = named(m, "some", Cat(block.any() for block in blocks), node=True)
        empty = Signal(4, reset_less=True)
        none = Signal(reset_less=True)
        place = Const(0, 4)
        for k in reversed(range(len(blocks))):
            place = Mux(some[k], Const(k, 4), place)
        m.d.sync += empty.eq(place)
        m.d.sync += none.eq(~some.any())
        # Stage 3: places within the block; sums moved by sixteens.
        held = delay(m, "spread_held", spread, 1)
        upper = [Cat(Const(0, BLOCK), held)[max(high - BLOCK * k, 0):][:BLOCK] for k in range(len(blocks))]
        lead = [named(m, f"lead{at}", Array(block[BLOCK - 1 - at] for block in upper)[empty]) for at in range(3)]
        fine = Signal(2, reset_less=True)
        fine_twin = Signal(2, reset_less=True, init=3)
        by4 = Signal(2, reset_less=True)
        by4_twin = Signal(2, reset_less=True, init=3)
        places = named(m, "places", Cat(~lead[0] & (lead[1] | ~lead[2]), ~lead[0] & ~lead[1]))
        m.d.sync += [
            fine.eq(places),
            fine_twin.eq(places),
            by4.eq(empty[:2]),
            by4_twin.eq(empty[:2]),
        ]
        # Stage 4: the exponent of the highest bit, biased: top - places + high - 1 + .. - 2 * 127 - 46 + 127.
        constant = high - 1 + group_dot.DROPPED_BITS + UNUSED_BITS - 127 - 46
        exponent = Signal(EXPONENT_BITS + 1, reset_less=True)
        nothing = delay(m, "nothing", none, 2)
        m.d.sync += exponent.eq(delay(m, "top_line", taken.top, 3) + constant
                                - Cat(fine, by4, delay(m, "sixteens", empty[2:], 1)))
        # Stage 5.
        over = named(m, "over", ~exponent[-1] & (exponent[8] | exponent[:8].all()) & ~nothing)
        under = named(m, "under", exponent[-1] | (exponent == 0) | nothing)
        exp = Signal(8, reset_less=True)
        m.d.sync += exp.eq(exponent[:8])
        with m.If(over | under):
            m.d.sync += exp.eq(0)
        m.d.comb += self.o.exp.eq(exp)
        for c in range(GROUP):
            moved = self._moved(m, c, delay(m, f"bits_line{c}", taken.bits[c], 2), empty[2:])
            near = shift_level(m, f"near{c}", moved, by4, by4_twin, (4, 8), left=True)[self.width - MANT_BITS - 3:]
            near = shift_level(m, f"nearer{c}", near, fine, fine_twin, (1, 2), left=True)[3:]
            mantissa, own = (Signal(MANT_BITS, name=f"{name}{c}", reset_less=True) for name in ("mantissa", "own"))
            m.d.sync += own.eq(near)
            m.d.sync += mantissa.eq(own)
            with m.If(over | under):
                m.d.sync += mantissa.eq(0)
            m.d.comb += self.o.mants[c].eq(mantissa)
            kinds = delay(m, f"kinds_line{c}", taken.kinds[c], 4)
            kind = Signal(Kind, name=f"kind{c}", reset_less=True)
            infinite = Mux(kinds[1] | ~kinds.any() & own[-1], Kind.MINUS_INFINITY, Kind.PLUS_INFINITY)
            m.d.sync += kind.eq(Mux(kinds.all(), Kind.NAN, Mux(
                kinds.any() | over, infinite, Mux(own[-1] & ~under, Kind.NEGATIVE, Kind.POSITIVE))))
            m.d.comb += self.o.kinds[c].eq(kind)
        return m

    def _moved(self, m: Module, c: int, bits: Value, sixteens: Value) -> Value:
        """Stage 3: moved to the left by 0, 16 or 32. Nothing reaches the lowest bits from below, so their registers'
        reset does the work."""
        low, high = (Signal(width, name=f"{name}{c}", reset_less=True)
                     for name, width in (("low", 16), ("high", self.width - 16)))
        m.d.sync += low.eq(bits[:16])
        m.d.sync += high.eq(Mux(sixteens[1], (bits << 32)[16:self.width],
                                Mux(sixteens[0], bits[:self.width - 16], bits[16:])))
        with m.If(sixteens.any()):
            m.d.sync += low.eq(0)
        return Cat(low, high)
