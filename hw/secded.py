"""Hsiao (72, 64) code: single errors corrected, double errors detected.

Every column of the check matrix has odd weight, so any double error has an even, non-zero
syndrome. The data columns are the 56 bytes of weight three and the eight rotations of
``0b00011111``: 26 data bits in each row, the smallest and the best balanced choice there is.

Source: M. Y. Hsiao, A Class of Optimal Minimum Odd-weight-column SEC-DED Codes, IBM J. R&D 14(4), 1970.
"""

from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hw.attributes import KEEP
from hw.place import Part

DATA_BITS = 64
CHECK_BITS = 8
WORD_BITS = DATA_BITS + CHECK_BITS


_LIGHT = tuple(byte for byte in range(256) if byte.bit_count() == 3)
_HEAVY = tuple((0b11111 << turn | 0b11111 >> (8 - turn)) & 0xFF for turn in range(8))

#: The syndrome that a flip of data bit i leaves. A flip of check bit j leaves ``1 << j``.
COLUMNS = _LIGHT + _HEAVY

#: The data bits that check bit j covers.
MASKS = tuple(
    sum((column >> row & 1) << bit for bit, column in enumerate(COLUMNS)) for row in range(CHECK_BITS)
)


def _mask(columns: Iterable[int]) -> int:
    """The data bits of these columns."""
    return sum(1 << COLUMNS.index(column) for column in columns)


def _turned(column: int, row: int) -> int:
    """The column's rows from this one on, round and round."""
    return (column >> row | column << CHECK_BITS - row) & 0xFF


#: Data bits that two check bits cover, and those two: six bits for every two neighbours, two for every two opposite.
#: No data bit is in two of these groups, so that a decoder adds up each of them once for both.
_SHARED = tuple(
    (_mask(column for column in COLUMNS if _turned(column, row) & 0b10000011 == 0b11), (row, (row + 1) % CHECK_BITS))
    for row in range(CHECK_BITS)
) + tuple(
    (_mask(column for column in COLUMNS if _turned(column, row) in (0b10101, 0b1010001)), (row, row + 4))
    for row in range(CHECK_BITS // 2)
)

#: The data bits that check bit j covers and shares with none.
_OWN = tuple(mask & ~sum(bits for bits, rows in _SHARED if row in rows) for row, mask in enumerate(MASKS))


def encode(data: Value) -> Value:
    """The eight check bits of a 64-bit word, as an expression; the codeword is ``Cat(data, check)``.

    A mask and a reduction a bit, rather than 26 named bits: synthesis sees the same XOR tree, and a
    simulator takes one parity instruction.
    """
    data = Value.cast(data)
    if len(data) != DATA_BITS:
        raise ValueError(f"encode takes {DATA_BITS} data bits, not {len(data)}")
    return Cat((data & Const(mask, DATA_BITS)).xor() for mask in MASKS)


class Decoder(Part):
    """Corrects single flips of a 72-bit codeword and reports the rest.

    data = codeword[:64] with a single flipped bit put right.      Source: Hsiao 1970

    Members     codeword       In(72)  data in bits 63..0, check bits in 71..64
                data           Out(64)
                corrected      Out(1)  one bit of the codeword, data or check, was flipped
                uncorrectable  Out(1)  two flips, or more that look like no single one: data is handed on as it was
                    read
    Timing      latency 2 cycles, one word a cycle; three LUT levels before either register at most; 136 LUT
    Handshake   none: it follows a memory's read port, and whoever asked for the word qualifies the flags
    Numerics    three or more flips may pass for a single one, as with any code of this distance
    Reset       nothing is kept but the two words on their way, which a reset does not touch
    Golden      golden.secded.decode          Tests  verif/test_secded.py
    """

    latency = 2

    codeword: In(WORD_BITS)
    data: Out(DATA_BITS)
    corrected: Out(1)
    uncorrectable: Out(1)

    def elaborate(self, platform):
        m = Module()

        read, check = self.codeword[:DATA_BITS], self.codeword[DATA_BITS:]
        word = Signal(DATA_BITS, reset_less=True)
        syndrome = Signal(CHECK_BITS, reset_less=True)
        m.d.sync += word.eq(read)
        shared = Signal(len(_SHARED))
        m.d.comb += shared.eq(Cat((read & Const(mask, DATA_BITS)).xor() for mask, _ in _SHARED))
        m.d.sync += syndrome.eq(Cat((read & Const(mask, DATA_BITS)).xor() for mask in _OWN) ^ check ^ Cat(
            Cat(shared[at] for at, (_, rows) in enumerate(_SHARED) if row in rows).xor() for row in range(CHECK_BITS)))

        # A light column is met where its three bits are set and no others: that there are just three is found
        # once for all. Nets of their own, or the mapper takes them apart again.
        node = KEEP
        wrong = Signal(attrs=node)
        light = Signal(attrs=node)
        heavy = Signal(len(_HEAVY), attrs=node)
        check_bit = Signal()
        m.d.comb += wrong.eq(syndrome != 0)
        m.d.comb += heavy.eq(Cat(syndrome == column for column in _HEAVY))
        with m.Switch(syndrome):
            with m.Case(*_LIGHT):
                m.d.comb += light.eq(1)
            with m.Case(*(1 << row for row in range(CHECK_BITS))):
                m.d.comb += check_bit.eq(1)
        flip = Signal(DATA_BITS)
        # Under a condition so that a simulator steps over it for every good word.
        with m.If(wrong):
            m.d.comb += flip.eq(Cat(
                *(Cat(syndrome[row] for row in range(CHECK_BITS) if column >> row & 1).all() & light
                  for column in _LIGHT), heavy))
        single = light | heavy.any() | check_bit

        fixed = Signal(DATA_BITS, reset_less=True)
        corrected = Signal(reset_less=True)
        uncorrectable = Signal(reset_less=True)
        m.d.sync += fixed.eq(word ^ flip)
        m.d.sync += corrected.eq(single)
        m.d.sync += uncorrectable.eq(wrong & ~single)
        m.d.comb += self.data.eq(fixed)
        m.d.comb += self.corrected.eq(corrected)
        m.d.comb += self.uncorrectable.eq(uncorrectable)
        return m
