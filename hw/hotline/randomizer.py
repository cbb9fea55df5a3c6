"""Spreads the numbers of rows over the banks and sets of the access logger."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ROUNDS", "Randomizer"]

ROUNDS = 8
# How far a round rotates the half that it mixes into the other one: all below the shortest half of 10 bits.
ROTATES = ((0, 3, 1, 4, 6), (2, 7, 5, 8, 1), (1, 4, 8, 0, 3))
STEP = 0x9E3779B97F4A7C15   # 2**64 over the golden ratio; the top bits of its multiples tell the rounds apart


def _mixed(half: Value, number: int, width: int) -> Value:
    """What round `number` adds to the other half, `width` bits long; one LUT a bit together with the addition."""
    a, b, c, d, e = ROTATES[number % len(ROTATES)]
    mixed = (half.rotate_right(a) & half.rotate_right(b)) ^ (half.rotate_right(c) & half.rotate_right(d)) \
        ^ half.rotate_right(e)
    constant = (STEP * (number + 1) & (1 << 64) - 1) >> 64 - width
    # Halves differ by one bit at the most; a longer one takes bit 0 again.
    return Cat(mixed, mixed[0])[:width] ^ Const(constant, width)


class Randomizer(wiring.Component):
    """Permutes the numbers of rows, so that neighbours and equal offsets of tables spread over all sets.

    o = permutation(i) of the numbers of domain_bits bits: 8 Feistel rounds, the low and the high half in turn add
    (h >>> a & h >>> b) ^ (h >>> c & h >>> d) ^ h >>> e ^ constant of the other half h.
                                                       Source: the thesis' randomizer (fig. 6.7), Feistel's network

    Parameters  domain_bits: 20..40
    Members     i: In, a number; o: Out, what becomes of the number two cycles before
    Timing      latency 2 cycles; a number a cycle. Four LUT levels between registers
    Handshake   none
    Numerics    a bijection: no two numbers become one
    Reset       nothing: the registers need none
    Raises      ValueError: names the parameter, its value and what is allowed
    Golden      golden.hotline.randomizer.permute          Tests  verif/test_hotline_randomizer.py
    """

    LATENCY = 2

    def __init__(self, domain_bits: int):
        if type(domain_bits) is not int or not 20 <= domain_bits <= 40:
            raise ValueError(f"domain_bits must be a whole number from 20 to 40, not {domain_bits!r}")
        self.domain_bits = domain_bits
        super().__init__({"i": In(domain_bits), "o": Out(domain_bits)})

    def key(self) -> str:
        return f"Randomizer({self.domain_bits})"

    def elaborate(self, platform):
        m = Module()
        low_bits = self.domain_bits // 2
        low, high = self.i[:low_bits], self.i[low_bits:]
        for number in range(ROUNDS):
            # A signal a round: without it every use of a round would write out all the rounds before it.
            if number % 2 == 0:
                after = Signal(len(low), name=f"low_{number}")
                m.d.comb += after.eq(low ^ _mixed(high, number, len(low)))
                low = after
            else:
                after = Signal(len(high), name=f"high_{number}")
                m.d.comb += after.eq(high ^ _mixed(low, number, len(high)))
                high = after
            if (number + 1) % (ROUNDS // self.LATENCY) == 0:
                stage = Signal(self.domain_bits, name=f"stage_{number}", reset_less=True)
                m.d.sync += stage.eq(Cat(low, high))
                low, high = stage[:low_bits], stage[low_bits:]
        m.d.comb += self.o.eq(Cat(low, high))
        return m
