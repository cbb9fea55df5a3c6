"""FP32 operands taken apart once, at an array's edge, instead of in each of its cells."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from hw.attributes import KEEP


class Operand(data.Struct):
    """An FP32 value taken apart.

    zero: of a zero or a subnormal, whose `mant` is 0; special: of an infinity or a NaN, which mant[22] alone tells
    apart. Both are set for padding: the product is then zero whatever the other operand, an infinity or a NaN included.
    """

    mant: 23
    exp: 8
    sign: 1
    zero: 1
    special: 1


def unpack(word: Value) -> Operand:
    """An `Operand` expression of a 32-bit word: subnormals flushed, NaNs made recognisable by one bit."""
    word = Value.cast(word)
    if len(word) != 32:
        raise ValueError(f"word has {len(word)} bits, must be 32")
    mant, exp, sign = word[:23], word[23:31], word[31]
    zero = exp == 0
    special = exp == 255
    mant = Mux(zero, 0, Cat(mant[:22], Mux(special, mant.any(), mant[22])))
    return Operand(Cat(mant[:23], exp, sign, zero, special))


def delay(m: Module, name: str, value: Value, cycles: int) -> Value:
    """The bits of `value` as they were `cycles` ago, from packed registers.

    `keep` holds Yosys from turning the chain into SRLs, which would count as LUTs; a packed register of up
    to 64 bits is also one operation per cycle in a simulator.
    """
    value = Value.cast(value)
    width = len(value)
    if width == 0:
        return value
    stages = max(1, 64 // width)
    for part in range(0, cycles, stages):
        count = min(stages, cycles - part)
        line = Signal(width * count, name=f"{name}_{part}", reset_less=True, attrs=KEEP)
        m.d.sync += line.eq(Cat(value, line))
        value = line[width * (count - 1):]
    return value
