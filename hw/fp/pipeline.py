"""Optional pipeline registers, and the rounding that the separate units end with."""

from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueCastable
from amaranth.lib.wiring import In, Out

from hw.place import Part

from .operand import Operand, unpack


class Unit(Part):
    """An operation on two binary32 words with a register at each of the named cuts that the user wants.

    Subclasses list their cuts from input to output in CUTS and say in `elaborate` what lies between.
    Golden      golden.fp.fp32          Tests  verif/fp/test_fp.py
    """

    CUTS: tuple[str, ...] = ()

    def __init__(self, *, registers: tuple[str, ...] | None = None):
        chosen = self.CUTS if registers is None else tuple(registers)
        for name in chosen:
            if name not in self.CUTS:
                raise ValueError(f"registers names {name!r}, {type(self).__name__} has the cuts "
                                 f"{', '.join(self.CUTS)}")
        if len(set(chosen)) != len(chosen):
            raise ValueError(f"registers is {', '.join(chosen)}, each cut may be named once")
        self.registers = tuple(name for name in self.CUTS if name in chosen)
        super().__init__({"x": In(32), "y": In(32), "o": Out(32)})

    @property
    def latency(self) -> int:
        """Cycles from operands to result: the number of registers chosen."""
        return len(self.registers)

    def cut(self, m: Module, name: str, **values: Any) -> SimpleNamespace:
        """The values behind the cut `name`: registered if it was chosen, else the same values as wires."""
        behind = {}
        for label, value in values.items():
            shape = value.shape() if isinstance(value, ValueCastable) else Value.cast(value).shape()
            signal = Signal(shape, name=f"{name}_{label}", reset_less=True)
            if name in self.registers:
                m.d.sync += signal.eq(value)
            else:
                m.d.comb += signal.eq(value)
            behind[label] = signal
        return SimpleNamespace(**behind)

    def operands(self, m: Module) -> tuple[Any, Any]:
        """Both operands, unpacked; the cut "operands"."""
        taken = self.cut(m, "operands", x=unpack(self.x), y=unpack(self.y))
        return taken.x, taken.y

    def finish(self, m: Module, *, sign: Value, exponent: Value, significand: Value, up: Value,
               zero: Value, infinite: Value, nan: Value) -> None:
        """Rounds and selects; the cuts "rounded" and "result".

        The biased exponent (10 bits, two's complement) is `exponent` plus what lies above the 23 fraction
        bits of `significand`, which includes the leading one; so that normalising by one place needs no
        adder.
        """
        # `up` enters as a bit below both operands: 1 carry chain. Written as a subtraction because Yosys
        # exchanges the operands of an addition, and this first one should stay a plain register.
        ones = 33 - len(significand)
        complement = Cat(~up, ~significand, Const((1 << ones) - 1, ones))
        total = (Cat(up, Const(0, 23), exponent) - complement)[1:34]
        s = self.cut(m, "rounded", total=total, sign=sign, zero=zero, infinite=infinite, nan=nan)
        fraction, exp = s.total[:23], s.total[23:]
        under = Signal()
        over = Signal()
        m.d.comb += under.eq(exp[9] | ~exp[:9].any() | s.zero)
        m.d.comb += over.eq(~exp[9] & (exp[8] | exp[:8].all()))
        large = s.infinite | s.nan | (over & ~under)
        word = Cat(
            Mux(large | under, Cat(Const(0, 22), s.nan), fraction),
            Mux(large, 0xFF, Mux(under, 0, exp[:8])),
            s.sign & ~s.nan,
        )
        m.d.comb += self.o.eq(self.cut(m, "result", word=word).word)


def is_nan(x: Any) -> Value:
    return x.special & x.mant[22]


def is_infinite(x: Any) -> Value:
    return x.special & ~x.mant[22]


__all__ = ["Operand", "Unit", "is_nan", "is_infinite"]
