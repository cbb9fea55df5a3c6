"""Sums of dot products whose groups share an exponent, all moved to the largest exponent of their sum."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from hw.attributes import KEEP
from hw.place import Part

from . import group as groups
from .logic import add, is_power_of_two, largest, largest_of_four, log2, named, shift_level
from .operand import delay
from .product import EXPONENT_BITS

SUBS = 4        # groups of a beat
#: Bits that are cut off a group's exact sum, and those of what is left of it; the lowest of these only rounds.
CUT_BITS = 21
TERM_BITS = groups.SUM_BITS - CUT_BITS
#: Of a product's 48 bits, those below the unit of a total.
DROPPED_BITS = CUT_BITS + 1 - 2 * groups.GUARD_BITS


def total_layout(bits: int) -> data.StructLayout:
    """An exact sum before it is rounded.

    bits: two's complement, its unit 2^DROPPED_BITS times the lowest bit of a 48-bit product; top: that
    product's exponent, the sum of two biased ones; kinds: +infinity or NaN, -infinity or NaN.
    """
    return data.StructLayout({"bits": bits, "top": EXPONENT_BITS, "kinds": 2})


class _Aligned(NamedTuple):
    """A term; and again, or zero where no other group joins it: of the upper two groups."""

    own: Value
    gated: Any


class _Sum(NamedTuple):
    """bits, in two's complement, plus carry."""

    bits: Value
    carry: Value


class GroupDot(Part):
    """Adds up dot products of groups of four that share an exponent; what leaves is exact and not yet rounded.

    A beat brings four groups of x and of y. o[s] = sum over the beats since `first` of the products of group s, or of
    the groups joined to it by `combine`.       Source: SCRec §III.E, Fig. 7a

    Terms wait in LUT memory until the largest exponent of their sum is known. So each is moved once, and the
    accumulator is an adder without a shifter in its loop. Sums that are to share an exponent take the largest of all.

    Parameters  beats: that a sum has at most, a power of two from 4 to 64; narrow: x has groups of block16 alone, which
                take half the DSPs; family: see FusedDot
    Members     x, y     In  `Group` of every group, narrow: `Narrow` of every one of x, its mantissas by
                    hw.fp.group.SKEW behind the rest of their beat
                first    In  this beat begins a new sum; also every beat that belongs to none
                combine  In  0 every group for itself, 1: groups 0 and 2, 1 and 3 add up in the lower one, 2: all in the
                    first; the others give 0
                share    In  0: sums keep to their own exponents, k: to shared[k - 1]
                peaks    Out  the largest exponent of each sum's beat, 3 cycles behind the beat
                shared   In  the largest of it and of the sums' that share an exponent with it, 2 cycles later
                o        Out  of each group a `total_layout` of `width` bits
    Timing      `latency` cycles from the beat that brings the last term to o; a beat every cycle; no stall
    Handshake   none
    Numerics    exact sums of a group's four products are shifted right by up to 31 places to the largest exponent of
                the sum, or of those that share it, by more to zero, rounded (half up) to 2^-30 of the largest product
                that this exponent allows, and added exactly. Bit-exact
    Reset       nothing needs it: the first beat with `first` set clears a sum
    Raises      ValueError: beats outside its range
    Golden      golden.fp.group_dot          Tests  verif/fp/test_group_dot.py
    """

    def __init__(self, *, beats: int, narrow: bool = False, family: str = "any"):
        if not is_power_of_two(beats) or not 4 <= beats <= 64:
            raise ValueError(f"beats is {beats!r}, must be 4, 8, 16, 32 or 64")
        self.beats = beats
        self.narrow = narrow
        self.family = family
        # A place for each bit that the beats add, and for each that joined groups do.
        self.width = TERM_BITS - 1 + log2(beats)
        # Cycles that terms wait for the last beat of their sum.
        self._lag = beats - 1
        peaks = data.ArrayLayout(EXPONENT_BITS, SUBS)
        super().__init__({
            "x": In(groups.operands(groups.GROUP, SUBS, True, narrow)),
            "y": In(groups.operands(groups.GROUP, SUBS, True)),
            "first": In(1),
            "combine": In(2),
            "share": In(2),
            "peaks": Out(peaks),
            "shared": In(data.ArrayLayout(peaks, 2)),
            "o": Out(data.ArrayLayout(total_layout(self.width), SUBS)),
        })

    # Pipeline stages: a value "of stage n" is in a register whose content is n + 1 edges old. Stage 0 holds the
    # operands. From the memory on a beat is `_lag` later; stages are counted as if it were not.
    PEAK = 5                    # the largest exponents that sums take
    TOP = PEAK + 2              # the same, of all beats
    SHIFT = TOP + 1
    JOINED = SHIFT + 3
    TOTAL = JOINED + 1

    @property
    def latency(self) -> int:
        """Cycles from a beat at the inputs to its sum at `o`."""
        return self.TOTAL + 1 + self._lag

    def elaborate(self, platform):
        m = Module()
        first = Signal(reset_less=True)
        combine = Signal(2, reset_less=True)
        m.d.sync += first.eq(self.first)
        m.d.sync += combine.eq(self.combine)
        joined = Cat(combine != 0, combine == 2)
        held = _waited(m, "joined_late", joined, self.SHIFT + self._lag)
        firsts = _waited(m, "first_late", first, self.TOP - 1 + self._lag)

        def joined_at(name: str, stage: int) -> Value:
            return delay(m, f"joined_{name}", held, stage - self.SHIFT)

        taken = groups.products(m, self.x, self.y, waiting=groups.TERM_STAGE - 2, family=self.family, cut=CUT_BITS)
        following = self._peaks(m, taken.early, first, joined)
        tops, exponents, terms = self._waiting(m, first, firsts, following, taken)
        shifts = self._shifts(m, tops, exponents, _waited(m, "joined_top", joined, self.TOP + self._lag))
        aligned = [self._aligned(m, s, terms[s], shifts[s], held) for s in range(SUBS)]
        sums = self._joined(m, aligned, joined_at)
        begins = delay(m, "begins", firsts, self.JOINED - self.TOP + 1)
        last = joined_at("last", self.JOINED)
        kinds = self._kinds(m, taken.kinds, first, joined)
        for s in range(SUBS):
            foreign = (last[0] if s >= 2 else Const(0, 1)) | (last[1] if s else Const(0, 1))
            total = Signal(self.width, name=f"total{s}", reset_less=True)
            m.d.sync += total.eq(add(sums[s].bits, Mux(begins, 0, total), sums[s].carry, self.width))
            found = Signal(2, name=f"kinds_out{s}", reset_less=True)
            m.d.sync += found.eq(kinds[s])
            if s:
                with m.If(foreign):
                    m.d.sync += total.eq(0)
                    m.d.sync += found.eq(0)
            m.d.comb += self.o[s].bits.eq(total)
            m.d.comb += self.o[s].top.eq(delay(m, f"top_line{s}", tops[s], self.TOTAL - self.TOP))
            m.d.comb += self.o[s].kinds.eq(found)
        return m

    def _peaks(self, m: Module, exponents: Sequence[Value], first: Value, joined: Value) -> list[Value]:
        """Wires of stage PEAK: the largest exponent so far that each sum takes."""
        pairs = delay(m, "joined_peak", joined, 1)
        found = [*largest_of_four(m, "joint_peak", exponents, pairs[0], pairs[1]), *exponents[2:]]
        own = [Signal(EXPONENT_BITS, name=f"own{s}", reset_less=True) for s in range(SUBS)]
        share = Signal(2, reset_less=True)
        m.d.sync += [to.eq(value) for to, value in zip(own, found, strict=True)]
        m.d.comb += Cat(self.peaks).eq(Cat(own))
        m.d.sync += share.eq(self.share)
        share = delay(m, "share_line", share, self.PEAK - 1)
        begins = delay(m, "first_peak", first, self.PEAK - 1)
        following = []
        for s, value in enumerate(own):
            peak = Signal(EXPONENT_BITS, name=f"peak{s}", reset_less=True)
            running = Signal(EXPONENT_BITS, name=f"running{s}", reset_less=True)
            kept = delay(m, f"own_line{s}", value, self.PEAK - 3)
            m.d.sync += peak.eq(Mux(share[1], self.shared[1][s], Mux(share[0], self.shared[0][s], kept)))
            following.append(largest(m, f"largest{s}", peak, running))
            m.d.sync += running.eq(following[-1])
            with m.If(begins):
                # The beat behind this one starts anew.
                m.d.sync += running.eq(0)
        return following

    def _waiting(self, m: Module, first: Value, firsts: Value, following: Sequence[Value], taken):
        """What waits for the end of its sum: the largest exponents, a stage later the exponents of terms, and these.

        A cell of memory is written in every cycle, in turns. The largest exponent so far is written where the sum's
        first beat is, so what is read with that beat is the largest of all.
        """
        turns = range(self.beats)
        now, back, begun = (Signal(turns, name=name, reset_less=True) for name in ("now", "back", "begun"))
        m.d.sync += now.eq(now + 1)
        m.d.sync += back.eq(now + (2 - self._lag) % self.beats)
        with m.If(delay(m, "first_begun", first, self.PEAK - 1)):
            m.d.sync += begun.eq(now + 3)
        peaks = _memory(m, "peaks", self.beats, begun, Cat(following), back)
        # It heads delay lines, see `delay`.
        waited = Signal(SUBS * (EXPONENT_BITS + TERM_BITS), reset_less=True, attrs=KEEP)
        m.d.sync += waited.eq(_memory(m, "terms", self.beats, now, Cat(*taken.exponents, *taken.terms), back))
        tops = [Signal(EXPONENT_BITS, name=f"top{s}", reset_less=True) for s in range(SUBS)]
        with m.If(firsts):
            m.d.sync += Cat(tops).eq(peaks)
        # Exponents and terms are out of the memory before the exponents that sums take.
        ahead = self.SHIFT - groups.TERM_STAGE
        return (tops, [delay(m, f"exponent_held{s}", waited.word_select(s, EXPONENT_BITS), ahead) for s in range(SUBS)],
                [delay(m, f"term_held{s}", waited[SUBS * EXPONENT_BITS:].word_select(s, TERM_BITS), ahead)
                 for s in range(SUBS)])

    def _shifts(self, m: Module, tops: Sequence[Value], exponents: Sequence[Value], joined: Value):
        """How far each term is below its sum's largest exponent, as complements: see FusedDot."""
        upper = [Mux(joined[0], tops[s - 2], tops[s]) for s in (2, 3)]
        owned = [tops[0], *(named(m, f"owner{s}", Mux(joined[1], tops[0], top))
                            for s, top in ((1, tops[1]), (2, upper[0]), (3, upper[1])))]
        shifts = []
        for s, (exponent, top) in enumerate(zip(exponents, owned)):
            distance = named(m, f"distance{s}", add(exponent, ~top, Const(0, 1), EXPONENT_BITS))
            shift = Signal(6, name=f"shift{s}", reset_less=True)
            # Its initial value alone keeps the twin from being merged with `shift`.
            twin = Signal(5, name=f"shift_twin{s}", reset_less=True, init=31)
            m.d.sync += shift.eq(Cat(distance[:5], ~distance[5:].all()))
            m.d.sync += twin.eq(distance[:5])
            shifts.append((shift, twin))
        return shifts

    def _aligned(self, m: Module, s: int, term: Value, shifts, joined: Value) -> _Aligned:
        """A term in its place, its lowest bit that which rounds."""
        shift, twin = shifts
        near = shift_level(m, f"near_fine{s}", term.as_signed(), ~Cat(shift[0], shift[3]), ~Cat(twin[0], twin[3]),
                           (1, 8))
        near = shift_level(m, f"near{s}", near, ~Cat(shift[1], shift[4]), ~Cat(twin[1], twin[4]), (2, 16))

        def register(name: str, value: Value, zero: Value) -> Signal:
            one = Signal(signed(TERM_BITS), name=f"{name}{s}", reset_less=True)
            m.d.sync += one.eq(value)
            with m.If(zero):
                m.d.sync += one.eq(0)
            return one

        if s < 2:
            # The last level of this shifter is absorbed by the LUTs of the adder that joins another to it.
            far = Signal(name=f"near_far{s}", reset_less=True)
            m.d.sync += far.eq(~shift[2])
            nearer = register("nearer", near, shift[5])
            return _Aligned(Mux(far, nearer >> 4, nearer), None)
        placed = named(m, f"placed{s}", Mux(shift[2], near, near >> 4))
        return _Aligned(register("aligned", placed, shift[5]), register("gated", placed, shift[5] | ~joined[0]))

    def _joined(self, m: Module, terms: Sequence[_Aligned], joined_at) -> list[_Sum]:
        """The sums of the groups that combine, and of each other group its own term. Each adder takes in one of the
        bits that round."""
        def register(name: str, value: Value) -> Signal:
            one = Signal(value.shape(), name=name, reset_less=True)
            m.d.sync += one.eq(value)
            return one

        bits = TERM_BITS - 1
        low, high = terms[:2], terms[2:]
        pairs = [register(f"pair{s}", add(there.gated[1:], here.own[1:], here.own[0], bits + 1).as_signed())
                 for s, (here, there) in enumerate(zip(low, high))]
        gated = [register(f"gated_carry{s}", there.gated[0]) for s, there in enumerate(high, 2)]
        joined = joined_at("sum", self.SHIFT + 2)[1]
        every = register("every", add(pairs[0], Mux(joined, pairs[1], 0), gated[0], bits + 2).as_signed())
        last = register("every_carry", gated[1] & joined)
        own = [_Sum(delay(m, f"upper{s}", there.own[1:], 2), delay(m, f"upper_carry{s}", there.own[0], 2))
               for s, there in enumerate(high, 2)]
        return [_Sum(every, last), _Sum(register("second", pairs[1]), register("second_carry", gated[1])), *own]

    def _kinds(self, m: Module, kinds: Sequence[Value], first: Value, joined: Value) -> list[Value]:
        """Per group, in front of the total: what the bits of `groups.infinities` say of the sum."""
        found = []
        for s in range(SUBS):
            group = Signal(2, name=f"kinds{s}", reset_less=True)
            own = kinds[s * groups.GROUP:(s + 1) * groups.GROUP]
            m.d.sync += group.eq(Cat(Cat(*(kind[bit] for kind in own)).any() for bit in range(2)))
            found.append(group)
        paired, all_ = delay(m, "joined_kinds", joined, 2)
        found = [found[s] | (found[s + 2] & paired.replicate(2)) if s < 2 else found[s] for s in range(SUBS)]
        found[0] = found[0] | (found[1] & all_.replicate(2))
        begins = delay(m, "first_kinds", first, 3)
        lines = []
        for s, group in enumerate(found):
            beat, running = (Signal(2, name=f"{name}_kinds{s}", reset_less=True) for name in ("beat", "running"))
            m.d.sync += beat.eq(group)
            m.d.sync += running.eq(beat | Mux(begins, 0, running))
            lines.append(_waited(m, f"kinds_line{s}", running, self.JOINED - 4 + self._lag))
        return lines


def _memory(m: Module, name: str, depth: int, write: Value, value: Value, read: Value) -> Value:
    """LUT memory that is written in every cycle; what it holds at `read`."""
    value = Value.cast(value)
    store = memory.Memory(shape=len(value), depth=depth, init=[], attrs={"ram_style": "distributed"})
    m.submodules[f"{name}_store"] = store
    write_port, read_port = store.write_port(), store.read_port(domain="comb")
    m.d.comb += [
        write_port.addr.eq(write),
        write_port.data.eq(value),
        write_port.en.eq(1),
        read_port.addr.eq(read),
    ]
    return read_port.data


def _waited(m: Module, name: str, value: Value, cycles: int) -> Value:
    """The bits of `value` as they were `cycles` ago, from shift registers in LUTs and a register behind them."""
    value = Value.cast(value)
    line = Signal(len(value) * (cycles - 1), name=f"{name}_line", reset_less=True)
    out = Signal(len(value), name=name, reset_less=True, attrs=KEEP)
    m.d.sync += line.eq(Cat(value, line[:-len(value)]))
    m.d.sync += out.eq(line[-len(value):])
    return out
