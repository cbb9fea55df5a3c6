"""Logic shaped for six-input LUTs and carry chains: what the fused sums are made of."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from hw.attributes import KEEP


def log2(value: int) -> int:
    return value.bit_length() - 1


def is_power_of_two(value: int) -> bool:
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


def named(m: Module, name: str, value: Value, *, node: bool = False) -> Signal:
    """A wire for `value`. With `node` it stays a net of its own in synthesis, which is how the 4:1 levels of
    the shifters are kept to one LUT6 a bit: left alone, abc9 prices three LUT5 below two LUT6.
    """
    wire = Signal(Value.cast(value).shape(), name=name, attrs=KEEP if node else {})
    m.d.comb += wire.eq(value)
    return wire


def largest(m: Module, name: str, a: Value, b: Value, gate: Value | None = None) -> Value:
    """The larger of a and b; with `gate` low, a."""
    take = b > a if gate is None else (b > a) & gate
    return named(m, name, Mux(named(m, f"{name}_take", take), b, a))


def largest_of_four(m: Module, name: str, p: Sequence[Value], pairs: Value | None = None,
                     all_: Value | None = None) -> tuple[Value, Value]:
    """The largest of p[0..3] and that of p[1] and p[3], by six comparisons side by side: one carry chain deep.

    With `all_` low, the first is the larger of p[0] and p[2]; with `pairs` low too, they are p[0] and p[1].
    """
    def above(i: int, k: int) -> Value:
        return named(m, f"{name}_{i}above{k}", p[i] > p[k])

    even, odd = above(2, 0), above(3, 1)
    take_odd = Mux(even, Mux(odd, above(3, 2), above(1, 2)), Mux(odd, above(3, 0), above(1, 0)))
    if pairs is not None and all_ is not None:
        even, odd, take_odd = even & pairs, odd & pairs, take_odd & all_
    take_odd = named(m, f"{name}_take_odd", take_odd)
    upper = named(m, f"{name}_upper", Mux(take_odd, odd, even))
    first = Mux(take_odd, Mux(upper, p[3], p[1]), Mux(upper, p[2], p[0]))
    return named(m, name, first), Mux(odd, p[3], p[1])


def add(a: Value, b: Value, carry: Value, width: int) -> Value:
    """a + b + carry modulo 2^width, of two's complement values.

    The carry enters as one more bit below both: that bit's sum is 0 and its carry the one wanted, so it
    costs no LUT. `a` must be a plain register: the carry multiplexer takes it as it is. `b` may be logic of
    up to four inputs a bit, which the adder's own LUTs absorb. Written as a subtraction, because the operands
    of an addition are exchanged at will by Yosys, and then `b` would need LUTs of its own.
    """
    a, b = Cat(carry, a).as_signed(), Cat(~carry, ~b).as_signed()
    return (a - b)[1:width + 1]


def shift_level(m: Module, name: str, value: Value, amount: Value, twin: Value, steps: tuple[int, int], *,
                 left: bool = False, kept: int | None = None) -> Signal:
    """value shifted by amount[0] * steps[0] + amount[1] * steps[1]: a 4:1 multiplexer a bit, one LUT6. kept: lowest
    bits of it that are wanted (default: all).

    `twin` is a second register with the same amount. Each output bit that would have a 2:1 multiplexer in
    common with another, steps[1] bits away, takes its selects from the other register: sharing those would
    cost a LUT more a bit. Wide steps make few pieces, which a simulator has to put together.
    A signed value shifts in its sign on the right.
    """
    width = len(value)
    near, far = steps

    def moved(label: str, amount: Value) -> Signal:
        places = Cat(Const(0, log2(near)), amount[0], Const(0, log2(far) - log2(near) - 1), amount[1])
        shifted = (value << places)[:width] if left else value >> places
        return named(m, f"{name}_{label}", shifted)

    own, other = moved("own", amount), moved("twin", twin)
    kept = width if kept is None else kept
    pieces = [(other if k // far % 2 else own)[k:min(k + far, kept)] for k in range(0, kept, far)]
    # Bits that choose among fewer than four are left to the mapper, which often finds a place for them.
    edge = near + far if left else max(min(width - near - far, kept), 0)
    lower = named(m, f"{name}_lower", Cat(*pieces)[:edge], node=not left)
    upper = named(m, f"{name}_upper", Cat(*pieces)[edge:], node=left)
    result = Cat(lower, upper)
    return named(m, name, result.as_signed() if value.shape().signed else result)
