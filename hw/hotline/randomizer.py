"""Spreads the numbers of rows over the banks and sets of the access logger."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hw.hotline.config import ID_BITS
from hw.place import Part

ROUNDS = 10
# How far a round rotates the half that it mixes into the other one, and the identifier that it mixes in, too.
ROTATES = ((0, 1, 5), (2, 4, 7), (6, 7, 1))
KEYS = (0, 3, 7, 10, 5, 12, 2, 9, 4, 11)
STEP = 0x9E3779B97F4A7C15   # 2**64 over the golden ratio; the top bits of its multiples tell the rounds apart


def _mixed(half: Value, key: Value, number: int, width: int) -> Value:
    """What round `number` adds to the other half, `width` bits long; one LUT a bit together with the addition."""
    a, b, c = ROTATES[number % len(ROTATES)]
    mixed = (half.rotate_right(a) & half.rotate_right(b)) ^ half.rotate_right(c)
    constant = (STEP * (number + 1) & (1 << 64) - 1) >> 64 - width
    # Halves differ by one bit at the most; a longer one takes bit 0 again.
    return Cat(mixed, mixed[0])[:width] ^ key.rotate_right(KEYS[number])[:width] ^ Const(constant, width)


class Randomizer(Part):
    """Permutes the numbers of rows, so that neighbours and equal offsets of tables spread over all sets.

    o = {place, id}, place lowest: id is i's top 14 bits as they are, place a permutation of the others that depends on
    id: 10 Feistel rounds, the low and the high half in turn add (h >>> a & h >>> b) ^ h >>> c ^ id >>> k ^ constant of
    the other half h                                   Source: the thesis' randomizer (fig. 6.7), Feistel's network

    Parameters  domain_bits: 20..40
    Members     i  In  a number
                o  Out  what becomes of the number two cycles before
    Timing      latency 2 cycles; a number per cycle. Five rounds, of one LUT each, between registers
    Handshake   none
    Numerics    a bijection: no two numbers become one. Of 2**(domain_bits - 14) numbers side by side, from a multiple
                of that on, each has a place of its own: no set gets more of them than the others
    Reset       nothing: the registers need none
    Raises      ValueError: names the parameter, its value and what is allowed
    Golden      golden.hotline.randomizer.permute          Tests  verif/hotline/test_randomizer.py
    """

    LATENCY = 2

    def __init__(self, domain_bits: int):
        if type(domain_bits) is not int or not 20 <= domain_bits <= 40:
            raise ValueError(f"domain_bits must be a whole number from 20 to 40, not {domain_bits!r}")
        self.domain_bits = domain_bits
        super().__init__({"i": In(domain_bits), "o": Out(domain_bits)})

    def elaborate(self, platform):
        m = Module()
        place_bits = self.domain_bits - ID_BITS
        low_bits = place_bits // 2
        value = self.i
        low, high, id = value[:low_bits], value[low_bits:place_bits], value[place_bits:]
        for number in range(ROUNDS):
            # A signal a round: without it every use of a round would write out all the rounds before it.
            if number % 2 == 0:
                after = Signal(len(low), name=f"low_{number}")
                m.d.comb += after.eq(low ^ _mixed(high, id, number, len(low)))
                low = after
            else:
                after = Signal(len(high), name=f"high_{number}")
                m.d.comb += after.eq(high ^ _mixed(low, id, number, len(high)))
                high = after
            if (number + 1) % (ROUNDS // self.LATENCY) == 0:
                stage = Signal(self.domain_bits, name=f"stage_{number}", reset_less=True)
                m.d.sync += stage.eq(Cat(low, high, id))
                low, high, id = stage[:low_bits], stage[low_bits:place_bits], stage[place_bits:]
        m.d.comb += self.o.eq(Cat(low, high, id))
        return m
