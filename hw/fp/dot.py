from collections.abc import Sequence
from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.attributes import KEEP
from hw.place import Part

from . import group as groups
from .logic import add, is_power_of_two, largest, largest_of_four, log2, named, shift_level
from .normalise import normalise
from .operand import Operand, delay
from .product import DROPPED_BITS, EXPONENT_BITS, PRODUCT_BITS, classify, in_slices, multiply


class _Products(NamedTuple):
    """The products of x and y, one per element."""

    exponents: tuple[Value, ...]
    kinds: tuple[Value, ...]
    signs: Signal
    terms: Sequence[Any]


class _Sum(NamedTuple):
    """A signed partial sum: the value is `bits` (two's complement) plus `carry`."""

    bits: Value
    carry: Value


class FusedDot(Part):
    """Adds up dot products of FP32 operands, rounding once.

    A beat brings `subs` groups of `width` products. o[s] = sum over the beats since `first` of the products
    of group s, or of the groups joined to it by `combine`.      Source: SCRec §III.E (its PE is width 1)

    Parameters  width: terms of a group, 1, 2, 4 or 8; subs: groups, 1, 2 or 4;
                terms_log2: at most 2^terms_log2 terms are added before the next `first`,
                log2(width * subs)..16, ..14 where groups share an exponent;
                grouped: the four operands of the only group share one exponent, hw.fp.group;
                lut_products: multipliers built with one DSP and LUTs instead of two DSPs, 0..width * subs,
                none for a single term;
                family: "ultrascale_plus" has the products in DSP48E2 slices with all their registers, "any" leaves
                their making to synthesis
    Members     x, y     In  Operand of every term, index s * width + w; grouped: Group, its mantissas by
                    hw.fp.group.SKEW behind the rest of their beat
                first    In  this beat begins a new sum
                combine  In  0 every group for itself, j: groups equal modulo subs / 2^j add up in the lowest of them
                    and the others give +0
                o        Out  binary32 words
    Shapes      x (subs * width,), y (subs * width,) a beat -> o (subs,)
    Timing      `latency` cycles from the beat that brings the last term to o; a beat every cycle; no stall:
                what is presented after the last term does not disturb a result, `first` starts anew
    Handshake   none
    Numerics    per beat: running maximum of the products' exponents; products cut to their upper 31 bits
                and shifted right to it (magnitudes, floor), accumulator likewise (floor); added exactly;
                after the last beat one rounding to nearest even; NaN for any NaN, 0 * inf and inf - inf; an
                exact zero is +0; subnormal results flushed after rounding; an operand with both `zero` and
                `special` is padding, whose product is zero whatever it meets. Grouped: in place of products the exact
                sums of a group's, cut at 2^-33 of the largest product that the exponents allow, shifted right by up
                to 31 places (floor), by more to zero. Against golden: bit-exact
    Reset       nothing needs it: the first beat with `first` set clears a sum
    Raises      ValueError for a parameter outside its range
    Golden      golden.fp.fp32.dot          Tests  verif/fp/test_dot.py
    """

    def __init__(self, *, width: int, subs: int = 1, terms_log2: int, grouped: bool = False, lut_products: int = 0,
                 family: str = "any"):
        if not is_power_of_two(width) or width > 8:
            raise ValueError(f"width is {width}, must be 1, 2, 4 or 8")
        if not is_power_of_two(subs) or subs > 4:
            raise ValueError(f"subs is {subs}, must be 1, 2 or 4")
        terms = width * subs
        most = 14 if grouped else 16
        if not log2(terms) <= terms_log2 <= most:
            raise ValueError(f"terms_log2 is {terms_log2}, must be {log2(terms)} to {most} "
                             f"for {terms} terms a beat")
        if grouped and width != groups.GROUP:
            raise ValueError(f"width is {width}, must be {groups.GROUP} for groups that share an exponent")
        if grouped and subs > 1:
            raise ValueError(f"subs is {subs}, must be 1 for groups that share an exponent")
        # A single term's exponents arrive before a product made of LUTs could.
        most = 0 if terms == 1 or grouped else terms
        if not 0 <= lut_products <= most:
            raise ValueError(f"lut_products is {lut_products}, must be 0 to {most} for {terms} terms a beat")
        self.width = width
        self.subs = subs
        self.terms_log2 = terms_log2
        self.lut_products = lut_products
        self.family = family
        self.grouped = grouped
        self._levels = log2(subs)
        # What is shifted and added: products, or sums of a group's.
        self._each = 1 if grouped else width
        self._term_bits = groups.TERM_BITS if grouped else PRODUCT_BITS + 1
        self._dropped = groups.DROPPED_BITS if grouped else DROPPED_BITS
        super().__init__({
            "x": In(groups.operands(width, subs, grouped)),
            "y": In(groups.operands(width, subs, grouped)),
            "first": In(1),
            "combine": In(range(self._levels + 1)),
            "o": Out(data.ArrayLayout(32, subs)),
        })

    # Pipeline stages: a value "of stage n" is in a register whose content is n + 1 edges old. Stage 0 holds
    # the operands. A stage finds the largest of four exponents.
    @property
    def _peak_stage(self) -> int:
        """The largest exponent of the beat."""
        return 1 + self._waiting + (log2(self._each) + 1) // 2 + (self._levels + 1) // 2

    @property
    def _waiting(self) -> int:
        """Cycles that exponents wait for the sums of groups, which the shift amounts meet."""
        return groups.TERM_STAGE - 3 if self.grouped else 0

    @property
    def _shift_stage(self) -> int:
        """The shift amounts, after the running maximum."""
        return self._peak_stage + 2

    @property
    def _sum_stage(self) -> int:
        """The sums of the beat, all groups that combine added up."""
        return self._shift_stage + 1 + log2(self._each) + self._levels

    @property
    def _total_stage(self) -> int:
        return self._sum_stage + 1

    @property
    def latency(self) -> int:
        """Cycles from a beat at the inputs to its sum at `o`."""
        return self._total_stage + 7

    def elaborate(self, platform):
        m = Module()
        subs = self.subs
        first0 = Signal(reset_less=True)
        combine0 = Signal(self.combine.shape(), reset_less=True)
        m.d.sync += first0.eq(self.first)
        m.d.sync += combine0.eq(self.combine)
        # joined[j]: groups at distance subs / 2^(j + 1) add up.
        joined0 = Cat(*(combine0 > j for j in range(self._levels)))

        def joined_at(name: str, stage: int) -> Value:
            return delay(m, f"joined_{name}", joined0, stage)

        taken: Any      # with the products' signs where they are apart
        if self.grouped:
            taken = groups.products(m, self.x, self.y, waiting=self._waiting, family=self.family)
        else:
            taken = self._products(m)
        peaks = self._beat_peaks(m, taken.exponents, joined_at)
        tops, shifts = self._align(m, peaks, first0, taken.exponents, joined_at)
        if self.grouped:
            aligned = self._aligned_term(m, taken.terms[0], *shifts[0][0])
        else:
            aligned = self._aligned_products(m, taken.terms, shifts[0], taken.signs)
        sums = self._sum(m, aligned, joined_at)
        totals = self._accumulate(m, sums, shifts, first0)
        flags = self._specials(m, taken.kinds, first0, joined_at)
        for s in range(subs):
            owned = joined_at(f"owner{s}", self._total_stage + 5)
            foreign = Const(0, 1)
            for j in range(self._levels):
                if s >= subs >> (j + 1):
                    foreign = foreign | owned[j]
            word = normalise(m, s, totals[s], tops[s], self._total_stage + 3 - self._peak_stage - 1, flags[s], foreign,
                             self._dropped)
            m.d.comb += self.o[s].eq(word)
        return m

    def _products(self, m: Module) -> _Products:
        """Stage 1: exponents and kinds of the products, their signs; the products, each with its stage."""
        # One register a term: a simulator slices them much faster than one of 544 bits.
        x, y = ([Signal(Operand, name=f"{name}{i}", reset_less=True) for i in range(len(given))]
                for name, given in (("x", self.x), ("y", self.y)))
        m.d.sync += [r.eq(i) for r, i in zip((*x, *y), (*self.x, *self.y))]
        exponents, kinds = zip(*(classify(m, i, a, b) for i, (a, b) in enumerate(zip(x, y))))
        signs = Signal(len(x), reset_less=True, attrs=KEEP)
        # They head a delay line where the products wait in slices, see `delay`.
        zeros = Signal(len(x), reset_less=True, attrs={} if self.family == "any" else KEEP)
        m.d.sync += signs.eq(Cat(*(a.sign ^ b.sign for a, b in zip(x, y))))
        m.d.sync += zeros.eq(Cat(*(a.zero | b.zero for a, b in zip(x, y))))
        if self.family == "any":
            products = multiply(m, x, y, zeros, self.lut_products)
        else:
            products = in_slices(m, x, y, zeros, self.lut_products, self._shift_stage)
        return _Products(exponents=exponents, kinds=kinds, signs=signs, terms=products)

    def _largest_of(self, m: Module, name: str, values: Sequence[Value]) -> Value:
        """The largest of some values, up to four a stage."""
        stage = 0
        while len(values) > 1:
            stage += 1
            if len(values) == 2:
                values = [largest(m, f"{name}_{stage}", *values)]
            else:
                values = [largest_of_four(m, f"{name}_{stage}_{k}", values[k:k + 4])[0]
                          for k in range(0, len(values), 4)]
            registers = [Signal(EXPONENT_BITS, name=f"{name}_{stage}_{k}_stage", reset_less=True)
                         for k in range(len(values))]
            m.d.sync += [r.eq(v) for r, v in zip(registers, values)]
            values = registers
        return values[0]

    def _beat_peaks(self, m: Module, exponents: Sequence[Value], joined_at) -> list[Value]:
        """The largest exponent of each group, joined groups compared with one another."""
        w = self._each
        peaks = [self._largest_of(m, f"peak{s}", exponents[s * w:(s + 1) * w]) for s in range(self.subs)]
        if self._levels == 0:
            return peaks
        joined = joined_at("peak", self._peak_stage - 1)
        if self._levels == 1:
            peaks = [largest(m, "joint_peak", peaks[0], peaks[1], gate=joined[0]), peaks[1]]
        else:
            peaks = [*largest_of_four(m, "joint_peak", peaks, joined[0], joined[1]), *peaks[2:]]
        registers = [Signal(EXPONENT_BITS, name=f"beat_peak{s}", reset_less=True) for s in range(self.subs)]
        m.d.sync += [r.eq(p) for r, p in zip(registers, peaks)]
        return registers

    def _align(self, m: Module, peaks: list[Value], first0: Value, exponents: Sequence[Value], joined_at):
        """Running maximum, then each term's and each accumulator's shift to it.

        Distances are held as their complements, ~(a - b) = ~a + b: without a carry in, the lowest sum bit is
        the carry chain's own LUT, and the shifters take the complement in.
        """
        stage = self._peak_stage
        first = delay(m, "first_peak", first0, stage - 1)
        tops, gaps = [], []
        for s, peak in enumerate(peaks):
            top = Signal(EXPONENT_BITS, name=f"top{s}", reset_less=True)
            before = Signal(EXPONENT_BITS, name=f"before{s}", reset_less=True)
            gap = Signal(EXPONENT_BITS, name=f"gap{s}", reset_less=True, attrs=KEEP)
            running = Signal(EXPONENT_BITS, name=f"running{s}", reset_less=True)
            following = largest(m, f"largest{s}", peak, running)
            m.d.sync += running.eq(following)
            with m.If(first):
                # The beat behind this one starts anew. `top` keeps what `running` forgets.
                m.d.sync += running.eq(0)
            m.d.sync += top.eq(following)
            m.d.sync += before.eq(running)
            m.d.sync += gap.eq(add(before, ~top, Const(0, 1), EXPONENT_BITS))
            tops.append(top)
            gaps.append(gap)
        joined = joined_at("top", stage + 1)
        owned = list(tops)
        for j in reversed(range(self._levels)):
            half = self.subs >> (j + 1)
            for s in range(half):
                owned[s + half] = named(m, f"owned{j}_{s + half}", Mux(joined[j], owned[s], owned[s + half]))
        shifts = []
        for i, exponent in enumerate(exponents):
            shift = Signal(6, name=f"shift{i}", reset_less=True)
            aligned = delay(m, f"exponent_line{i}", exponent, stage - self._waiting)
            distance = named(m, f"distance{i}", add(aligned, ~owned[i // self._each], Const(0, 1), EXPONENT_BITS))
            # Its initial value alone keeps the twin from being merged with `shift`.
            twin = Signal(5, name=f"shift_twin{i}", reset_less=True, init=31)
            # Bit 5, not complemented: shifted out.
            m.d.sync += shift.eq(Cat(distance[:5], ~distance[5:].all()))
            m.d.sync += twin.eq(distance[:5])
            shifts.append((shift, twin))
        return tops, (shifts, gaps)

    def _aligned_term(self, m: Module, term: Value, shift: Value, twin: Value) -> list[_Sum]:
        """The sum of a group, shifted to its place."""
        term = named(m, "term0", term).as_signed()
        near = shift_level(m, "near_fine0", term, ~Cat(shift[0], shift[3]), ~Cat(twin[0], twin[3]), (1, 8))
        near = shift_level(m, "near0", near, ~Cat(shift[1], shift[4]), ~Cat(twin[1], twin[4]), (2, 16))
        aligned = Signal(signed(self._term_bits), name="aligned0", reset_less=True)
        m.d.sync += aligned.eq(Mux(shift[2], near, near >> 4))
        with m.If(shift[5]):
            m.d.sync += aligned.eq(0)
        return [_Sum(aligned, Const(0, 1))]

    def _aligned_products(self, m: Module, products, shifts, signs) -> list[_Sum]:
        """Products shifted to their places, negated by complement; a missing +1 comes with each."""
        shift_stage = self._shift_stage
        partial: list[_Sum] = []
        sign_line = delay(m, "sign_line", signs, shift_stage - 1)
        for i, product in enumerate(products):
            shift, twin = shifts[i]
            q = delay(m, f"product_line{i}", product[0], shift_stage - product[1])
            sign = sign_line[i]
            # 1s and 8s, 2s and 16s; then 4s.
            near = shift_level(m, f"near_fine{i}", q,
                               ~Cat(shift[0], shift[3]), ~Cat(twin[0], twin[3]), (1, 8))
            near = shift_level(m, f"near{i}", near,
                               ~Cat(shift[1], shift[4]), ~Cat(twin[1], twin[4]), (2, 16))

            def finish(near, far, sign):
                kept = Mux(far, near[4:], near)
                return Cat(Mux(sign, ~kept, kept)[:PRODUCT_BITS], sign)

            later = Signal(name=f"negative{i}", reset_less=True)
            m.d.sync += later.eq(sign)
            if i % 2 == 0 or self.width == 1:
                aligned = Signal(PRODUCT_BITS + 1, name=f"aligned{i}", reset_less=True)
                m.d.sync += aligned.eq(finish(near, ~shift[2], sign))
                partial.append(_Sum(aligned, later))
            else:
                # The last level of this shifter is absorbed by the adder's LUTs.
                aligned = Signal(PRODUCT_BITS, name=f"nearer{i}", reset_less=True)
                far = Signal(name=f"near_far{i}", reset_less=True)
                m.d.sync += aligned.eq(near)
                m.d.sync += far.eq(shift[2])
                partial.append(_Sum(finish(aligned, ~far, later), later))
            with m.If(shift[5]):
                m.d.sync += aligned.eq(0)
                m.d.sync += later.eq(0)
        return partial

    def _sum(self, m: Module, partial: list[_Sum], joined_at) -> list[_Sum]:
        """Sums of what is aligned; each adder takes in one missing +1."""
        def register(name: str, bits: Value, carry: Value) -> _Sum:
            total = Signal(len(bits), name=name, reset_less=True)
            missing = Signal(name=f"{name}_carry", reset_less=True)
            m.d.sync += total.eq(bits)
            m.d.sync += missing.eq(carry)
            return _Sum(total, missing)

        level = 0
        while len(partial) > self.subs:
            level += 1
            width = self._term_bits + level
            partial = [register(f"sum{level}_{k}", add(a.bits, b.bits, b.carry, width), a.carry)
                       for k, (a, b) in enumerate(zip(partial[::2], partial[1::2]))]
        stage = self._shift_stage + 1 + level
        for j in range(self._levels):
            half = self.subs >> (j + 1)
            joined = joined_at(f"sum{j}", stage + j)[j]
            following = []
            for s, a in enumerate(partial):
                if s < half:
                    b = partial[s + half]
                    width = self._term_bits + level + j + 1
                    bits = add(a.bits, Mux(joined, b.bits, 0), b.carry & joined, width)
                else:
                    bits = a.bits
                following.append(register(f"joined{j}_{s}", bits, a.carry))
            partial = following
        return partial

    def _accumulate(self, m: Module, sums: list[_Sum], shifts, first0: Value) -> list[Value]:
        stage = self._sum_stage
        # A place for the sign, and one for each bit that the number of products adds to one.
        width = 48 - self._dropped + 1 + self.terms_log2
        first = delay(m, "first_sum", first0, stage - 1)
        totals = []
        for s, part in enumerate(sums):
            gap = delay(m, f"gap_line{s}", shifts[1][s], stage - self._shift_stage - 1)
            fine = Signal(4, name=f"gap_fine{s}", reset_less=True)
            coarse = Signal(2, name=f"gap_coarse{s}", reset_less=True)
            twin = Signal(4, name=f"gap_twin{s}", reset_less=True, init=15)
            m.d.sync += fine.eq(gap[:4])
            m.d.sync += twin.eq(gap[:4])
            m.d.sync += coarse.eq(Mux(gap[6:].all(), ~gap[4:6], 3))
            total = Signal(width, name=f"total{s}", reset_less=True)
            running = Signal(width, name=f"sum_running{s}", reset_less=True)
            near = shift_level(m, f"sum_near_fine{s}", running.as_signed(),
                               ~Cat(fine[1], fine[3]), ~Cat(twin[1], twin[3]), (2, 8))
            near = shift_level(m, f"sum_near{s}", near,
                               ~Cat(fine[0], fine[2]), ~Cat(twin[0], twin[2]), (1, 4))
            far = near >> Cat(Const(0, 4), coarse)
            added = named(m, f"added{s}", add(part.bits, far, part.carry, width))
            m.d.sync += running.eq(added)
            m.d.sync += total.eq(added)
            with m.If(first):
                m.d.sync += running.eq(0)
            totals.append(total)
        return totals

    def _specials(self, m: Module, kinds: Sequence[Value], first0: Value, joined_at) -> list[Value]:
        """Per group, at the stage of the rounded result: what the bits of `classify` say of the sum."""
        groups = []
        bits = len(kinds[0])
        for s in range(self.subs):
            group = Signal(bits, name=f"kinds{s}", reset_less=True)
            own = kinds[s * self.width:(s + 1) * self.width]
            m.d.sync += group.eq(Cat(Cat(*(k[bit] for k in own)).any() for bit in range(bits)))
            groups.append(group)
        joined = joined_at("kinds", 2)
        first = delay(m, "first_kinds", first0, 3)
        flags = []
        for j in range(self._levels):
            half = self.subs >> (j + 1)
            groups = [groups[s] | (groups[s + half] & joined[j].replicate(bits)) if s < half else groups[s]
                      for s in range(self.subs)]
        for s, group in enumerate(groups):
            beat = Signal(bits, name=f"beat_kinds{s}", reset_less=True)
            running = Signal(bits, name=f"running_kinds{s}", reset_less=True)
            m.d.sync += beat.eq(group)
            m.d.sync += running.eq(beat | Mux(first, 0, running))
            flags.append(delay(m, f"kinds_line{s}", running, self._total_stage + 5 - 4))
        return flags
