"""Sums that must stay within a buffer, for the programs of all cores."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from amaranth.hdl import Array, Module, Signal, Value, ValueLike
from amaranth.lib import enum


class Term(NamedTuple):
    """A sum: base + (multiplicand + more) * multiplier, or with `doubles` off + (multiplicand + more) for every bit
    of the multiplier, which are ones. base: 33 bits, or None to go on from the sum before; doubles: `more` is 0.
    """

    base: ValueLike | None
    multiplicand: ValueLike
    multiplier: ValueLike
    more: ValueLike = 0
    doubles: bool = True


class BoundedSum:
    """base + multiplicand * multiplier, one bit of the multiplier a cycle, against a buffer's size.

    Adds itself to `m`, as a part of a program's checks: nothing of it is wide enough to be placed by itself.

    Parameters  m: the module; check: which of `terms` is looked at; terms: by check; sizes: of the buffers, in beats;
                buffers: the number in `sizes` of each check's buffer, 0 where there is none
    Members     load: takes `check` up; summed: all bits are added; total: the sum, 33 bits; outside: it passes the
                buffer, a cycle after `summed`; buffer: the number of the buffer
    Timing      `check` stands from `load` on; from there a cycle, and one for each bit of the multiplier up to its
                highest that is set
    Numerics    exact: sums and products of any size are compared, none wraps
    """

    def __init__(self, m: Module, check: Signal, terms: Mapping[enum.Enum, Term], *, sizes: Sequence[Value],
                 buffers: Mapping[enum.Enum, int]):
        self.load = Signal()
        self.summed = Signal()
        self.outside = Signal()
        self.total = total = Signal(33, name="sum", reset_less=True)
        self.buffer = buffer = Signal(range(len(sizes)), name="buffer")
        limit = Signal(32, reset_less=True)
        over = Signal(reset_less=True)
        lost = Signal(reset_less=True)
        times = Signal(32, reset_less=True)
        bits = Signal(32, reset_less=True)
        carry = Signal(reset_less=True)
        shifts = Signal(reset_less=True)
        with m.Switch(check):
            for name, number in buffers.items():
                with m.Case(name):
                    m.d.comb += buffer.eq(number)
        m.d.sync += limit.eq(Array(sizes)[buffer])
        with m.If(self.load):
            m.d.sync += lost.eq(0)
            with m.Switch(check):
                for name, term in terms.items():
                    with m.Case(name):
                        m.d.sync += [
                            times.eq(term.multiplicand),
                            carry.eq(term.more),
                            bits.eq(term.multiplier),
                            shifts.eq(term.doubles),
                        ]
                        if term.base is not None:
                            m.d.sync += total.eq(term.base)
                            m.d.sync += over.eq(0)
        with m.Elif(bits != 0):
            m.d.sync += bits.eq(bits >> 1)
            with m.If(shifts):
                m.d.sync += times.eq(times << 1)
                m.d.sync += lost.eq(lost | times[31])
            with m.If(bits[0]):
                m.d.sync += total.eq(total[:32] + times + carry)
                m.d.sync += over.eq(over | total[32] | lost)
        m.d.comb += self.summed.eq(bits == 0)
        beyond = Signal(reset_less=True)
        passed = Signal(reset_less=True)
        m.d.sync += beyond.eq(total[:32] > limit)
        m.d.sync += passed.eq(over | total[32])
        m.d.comb += self.outside.eq(beyond | passed)
