"""Products of mantissas in the DSP48E2 slices of AMD UltraScale+, their registers and their adder inside.

Source: AMD UG579 (DSP48E2: attributes, OPMODE, cascades), UG974
"""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value

from .operand import delay

MOST_WAITING = 2        # cycles that a product can wait in its slices: registers at A and B
WIDE = 17               # bits of the operand that the first slice takes; the second one's product lies so much higher

# X and Y take the multiplier; Z nothing, the slice below, it shifted right by 17, or C; W nothing or C.
_ALONE, _BELOW, _SHIFTED, _ADDEND = 0b00_000_01_01, 0b00_001_01_01, 0b00_101_01_01, 0b00_011_01_01
_BELOW_AND_C = 0b11_001_01_01


class _Slice:
    """A DSP48E2: p = a * b + z + w, registers behind the multiplier and the adder, `registers` before it.

    a: up to 26 bits without a sign or 27 with one, or the slice below, whose a it takes; b: up to 17 without or 18 with
    a sign; below: the slice whose sum comes in; clear: of p, in the cycle before it is 0; c_register: at C.
    """

    def __init__(self, m: Module, name: str, *, a: "Value | _Slice", b: Value, registers: tuple[int, int], mode: int,
                 clear: Value = Const(0, 1), c: Value | None = None, c_register: bool = True,
                 below: "_Slice | None" = None):
        self.p = Signal(48, name=f"{name}_p")
        self.a_out, self.p_out = Signal(30, name=f"{name}_a_out"), Signal(48, name=f"{name}_p_out")
        shared = a if isinstance(a, _Slice) else None
        below = shared or below
        at_a, at_b = registers
        one, off = Const(1, 1), Const(0, 1)
        unused = {name: off for name in (
            "i_CARRYCASCIN", "i_CARRYIN", "i_MULTSIGNIN", "i_CEAD", "i_CEALUMODE", "i_CECARRYIN", "i_CECTRL", "i_CED",
            "i_CEINMODE", "i_RSTA", "i_RSTALLCARRYIN", "i_RSTALUMODE", "i_RSTB", "i_RSTC", "i_RSTCTRL", "i_RSTD",
            "i_RSTINMODE", "i_RSTM")}
        m.submodules[name] = Instance(
            "DSP48E2",
            p_A_INPUT="DIRECT" if shared is None else "CASCADE",
            p_AREG=at_a, p_ACASCREG=at_a, p_BREG=at_b, p_BCASCREG=at_b, p_CREG=int(c is not None and c_register),
            p_DREG=0, p_ADREG=0,
            p_MREG=1, p_PREG=1, p_INMODEREG=0, p_OPMODEREG=0, p_ALUMODEREG=0, p_CARRYINREG=0, p_CARRYINSELREG=0,
            i_CLK=ClockSignal(),
            i_A=Const(0, 30) if shared else _extended(a, 30),
            i_ACIN=shared.a_out if shared else Const(0, 30),
            i_B=_extended(b, 18), i_BCIN=Const(0, 18),
            i_C=Const(0, 48) if c is None else _extended(c, 48), i_D=Const(0, 27),
            i_PCIN=below.p_out if below else Const(0, 48),
            i_OPMODE=Const(mode, 9), i_ALUMODE=Const(0, 4), i_INMODE=Const(0, 5), i_CARRYINSEL=Const(0, 3),
            i_CEA1=one if at_a == 2 else off, i_CEA2=one if at_a else off,
            i_CEB1=one if at_b == 2 else off, i_CEB2=one if at_b else off,
            i_CEC=one if c is not None and c_register else off, i_CEM=one, i_CEP=one, i_RSTP=clear,
            o_P=self.p, o_ACOUT=self.a_out, o_PCOUT=self.p_out, **unused)


def _extended(value: Value, bits: int) -> Value:
    """All bits of a port, by the value's sign if it has one."""
    upper = value[-1] if value.shape().signed else Const(0, 1)
    return Cat(value, upper.replicate(bits - len(value)))


def four(m: Module, name: str, x: Sequence[Value], y: Sequence[Value]) -> Value:
    """(x[0] * y[0] + .. + x[3] * y[3]) >> 17 of 27 bits with sign each, in eight slices, 6 cycles behind x[0], y[0].

    Operands 1 and 2 come a cycle behind the first, 3 two cycles. Of y the lower 17 bits go through two cascades of
    two, the upper through one of four, into whose last slice the lower part's sum comes.
    """
    def low(w: int, mode: int, **adds: Any) -> _Slice:
        return _Slice(m, f"{name}_low{w}", a=x[w], b=y[w][:WIDE], registers=(1, 1), mode=mode, **adds)

    pair = low(1, _BELOW, below=low(0, _ALONE))
    lower = low(3, _BELOW_AND_C, below=low(2, _ALONE), c=pair.p, c_register=False)
    return _column(m, f"{name}_high", x, [b[WIDE:].as_signed() for b in y], lower.p[WIDE:].as_signed())


def four_narrow(m: Module, name: str, x: Sequence[Value], y: Sequence[Value]) -> Value:
    """x[0] * y[0] + .. + x[3] * y[3] of up to 18 bits and of 27 with sign each, in four slices: as `four` in time."""
    return _column(m, f"{name}_", y, x)


def _column(m: Module, name: str, a: Sequence[Value], b: Sequence[Value], c: Value | None = None) -> Value:
    """A cascade of four, whose operands come as those of `four`; c comes into the last one."""
    below: Any = None
    for w in range(4):
        adds: dict[str, Any] = {"c": c, "c_register": False} if c is not None and w == 3 else {}
        # They wait inside for what comes from below.
        below = _Slice(m, f"{name}{w}", a=a[w], b=b[w], registers=(1 + w // 2,) * 2, below=below,
                       mode=_BELOW_AND_C if adds else _BELOW if w else _ALONE, **adds)
    return below.p


def cascaded(m: Module, name: str, a: Value, b: Value, clear: Value, waiting: int) -> Value:
    """(a * b) >> 17 of 24 bits each, 3 + `waiting` cycles later, in two slices; 0 where `clear` is set a cycle before.

    a and b are registers; what the second slice's b waits longer than it has registers for is one in the fabric.
    """
    low = _Slice(m, f"{name}_low", a=a, b=b[:WIDE], registers=(waiting, waiting), mode=_ALONE, clear=Const(0, 1))
    inside = min(2, waiting + 1)
    upper = delay(m, f"{name}_upper", b[WIDE:], waiting + 1 - inside)
    high = _Slice(m, f"{name}_high", a=low, b=upper, registers=(1, inside), mode=_SHIFTED, clear=clear)
    return high.p


def with_addend(m: Module, name: str, a: Value, low: Value, addend: Value, clear: Value) -> Value:
    """(a * low >> 17) + addend in one slice: 4 cycles behind a and low, 2 behind the addend, whose register it has."""
    one = _Slice(m, name, a=a, b=low, registers=(2, 2), mode=_ADDEND, clear=clear,
                 c=Cat(Const(0, WIDE), addend)[:48])
    return one.p[WIDE:]
