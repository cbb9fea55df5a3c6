from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .operand import Operand, delay

PRODUCT_BITS = 31  # of a 48-bit product, what lies above bit 17
EXPONENT_BITS = 9  # the sum of two biased exponents


def _log2(value: int) -> int:
    return value.bit_length() - 1


def _is_power_of_two(value: int) -> bool:
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


def _named(m: Module, name: str, value: Value, *, node: bool = False) -> Signal:
    """A wire for `value`. With `node` it stays a net of its own in synthesis, which is how the 4:1 levels of
    the shifters are kept to one LUT6 a bit: left alone, abc9 prices three LUT5 below two LUT6.
    """
    wire = Signal(Value.cast(value).shape(), name=name, attrs={"keep": 1} if node else {})
    m.d.comb += wire.eq(value)
    return wire


def _largest(m: Module, name: str, a: Value, b: Value, gate: Value | None = None) -> Value:
    """The larger of a and b; with `gate` low, a."""
    take = b > a if gate is None else (b > a) & gate
    return _named(m, name, Mux(_named(m, f"{name}_take", take), b, a))


def _largest_of_four(m: Module, name: str, p: Sequence[Value], pairs: Value | None = None,
                     all_: Value | None = None) -> tuple[Value, Value]:
    """The largest of p[0..3] and that of p[1] and p[3], by six comparisons side by side: one carry chain deep.

    With `all_` low, the first is the larger of p[0] and p[2]; with `pairs` low too, they are p[0] and p[1].
    """
    def above(i: int, k: int) -> Value:
        return _named(m, f"{name}_{i}above{k}", p[i] > p[k])

    even, odd = above(2, 0), above(3, 1)
    take_odd = Mux(even, Mux(odd, above(3, 2), above(1, 2)), Mux(odd, above(3, 0), above(1, 0)))
    if pairs is not None and all_ is not None:
        even, odd, take_odd = even & pairs, odd & pairs, take_odd & all_
    take_odd = _named(m, f"{name}_take_odd", take_odd)
    upper = _named(m, f"{name}_upper", Mux(take_odd, odd, even))
    first = Mux(take_odd, Mux(upper, p[3], p[1]), Mux(upper, p[2], p[0]))
    return _named(m, name, first), Mux(odd, p[3], p[1])


def _add(a: Value, b: Value, carry: Value, width: int) -> Value:
    """a + b + carry modulo 2^width, of two's complement values.

    The carry enters as one more bit below both: that bit's sum is 0 and its carry the one wanted, so it
    costs no LUT. `a` must be a plain register: the carry multiplexer takes it as it is. `b` may be logic of
    up to four inputs a bit, which the adder's own LUTs absorb. Written as a subtraction, because the operands
    of an addition are exchanged at will by Yosys, and then `b` would need LUTs of its own.
    """
    a, b = Cat(carry, a).as_signed(), Cat(~carry, ~b).as_signed()
    return (a - b)[1:width + 1]


def _shift_level(m: Module, name: str, value: Value, amount: Value, twin: Value, steps: tuple[int, int], *,
                 left: bool = False) -> Signal:
    """value shifted by amount[0] * steps[0] + amount[1] * steps[1]: a 4:1 multiplexer a bit, one LUT6.

    `twin` is a second register with the same amount. Each output bit that would have a 2:1 multiplexer in
    common with another, steps[1] bits away, takes its selects from the other register: sharing those would
    cost a LUT more a bit. Wide steps make few pieces, which a simulator has to put together.
    A signed value shifts in its sign on the right.
    """
    width = len(value)
    near, far = steps

    def moved(label: str, amount: Value) -> Signal:
        places = Cat(Const(0, _log2(near)), amount[0], Const(0, _log2(far) - _log2(near) - 1), amount[1])
        shifted = (value << places)[:width] if left else value >> places
        return _named(m, f"{name}_{label}", shifted)

    own, other = moved("own", amount), moved("twin", twin)
    pieces = [(other if k // far % 2 else own)[k:min(k + far, width)] for k in range(0, width, far)]
    # Bits that choose among fewer than four are left to the mapper, which often finds a place for them.
    edge = near + far if left else max(width - near - far, 0)
    lower = _named(m, f"{name}_lower", Cat(*pieces)[:edge], node=not left)
    upper = _named(m, f"{name}_upper", Cat(*pieces)[edge:], node=left)
    result = Cat(lower, upper)
    return _named(m, name, result.as_signed() if value.shape().signed else result)


class _Sum:
    """A signed partial sum: the value is `bits` (two's complement) plus `carry`."""

    def __init__(self, bits: Value, carry: Value):
        self.bits = bits
        self.carry = carry


class FusedDot(wiring.Component):
    """Adds up dot products of FP32 operands, rounding once.

    A beat brings `subs` groups of `width` products. o[s] = sum over the beats since `first` of the products
    of group s, or of the groups joined to it by `combine`.      Source: SCRec §III.E (its PE is width 1)

    Parameters  width: terms of a group, 1, 2, 4 or 8; subs: groups, 1, 2 or 4;
                terms_log2: at most 2^terms_log2 terms are added before the next `first`,
                log2(width * subs)..16;
                lut_products: multipliers built with one DSP and LUTs instead of two DSPs, 0..width * subs,
                none for a single term
    Members     x, y: Operand of every term, index s * width + w; first: this beat begins a new sum;
                combine: 0 every group for itself, j: groups equal modulo subs / 2^j add up in the lowest
                of them and the others give +0; o: binary32 words
    Shapes      x (subs * width,), y (subs * width,) a beat -> o (subs,)
    Timing      `latency` cycles from the beat that brings the last term to o; a beat every cycle; no stall:
                what is presented after the last term does not disturb a result, `first` starts anew
    Handshake   none
    Numerics    per beat: running maximum of the products' exponents; products cut to their upper 31 bits
                and shifted right to it (magnitudes, floor), accumulator likewise (floor); added exactly;
                after the last beat one rounding to nearest even; NaN for any NaN, 0 * inf and inf - inf; an
                exact zero is +0; subnormal results flushed after rounding; an operand with both `zero` and
                `special` is padding, whose product is zero whatever it meets. Against golden: bit-exact
    Reset       nothing needs it: the first beat with `first` set clears a sum
    Raises      ValueError for a parameter outside its range
    Golden      golden.fp32.dot          Tests  verif/test_fp.py
    """

    def __init__(self, *, width: int, subs: int = 1, terms_log2: int, lut_products: int = 0):
        if not _is_power_of_two(width) or width > 8:
            raise ValueError(f"width is {width}, must be 1, 2, 4 or 8")
        if not _is_power_of_two(subs) or subs > 4:
            raise ValueError(f"subs is {subs}, must be 1, 2 or 4")
        terms = width * subs
        if not _log2(terms) <= terms_log2 <= 16:
            raise ValueError(f"terms_log2 is {terms_log2}, must be {_log2(terms)} to 16 "
                             f"for {terms} terms a beat")
        if not 0 <= lut_products <= (terms if terms > 1 else 0):
            # A single term's exponents arrive before a product made of LUTs could.
            raise ValueError(f"lut_products is {lut_products}, must be 0 to {terms if terms > 1 else 0} "
                             f"for {terms} terms a beat")
        self.width = width
        self.subs = subs
        self.terms_log2 = terms_log2
        self.lut_products = lut_products
        self._levels = _log2(subs)
        super().__init__({
            "x": In(data.ArrayLayout(Operand, terms)),
            "y": In(data.ArrayLayout(Operand, terms)),
            "first": In(1),
            "combine": In(range(self._levels + 1)),
            "o": Out(data.ArrayLayout(32, subs)),
        })

    def key(self) -> str:
        return (f"FusedDot_width{self.width}_subs{self.subs}_terms{self.terms_log2}"
                f"_lut{self.lut_products}")

    # Pipeline stages: a value "of stage n" is in a register whose content is n + 1 edges old. Stage 0 holds
    # the operands. A stage finds the largest of four exponents.
    @property
    def _peak_stage(self) -> int:
        """The largest exponent of the beat."""
        return 1 + (_log2(self.width) + 1) // 2 + (self._levels + 1) // 2

    @property
    def _shift_stage(self) -> int:
        """The shift amounts, after the running maximum."""
        return self._peak_stage + 2

    @property
    def _sum_stage(self) -> int:
        """The sums of the beat, all groups that combine added up."""
        return self._shift_stage + 1 + _log2(self.width) + self._levels

    @property
    def _total_stage(self) -> int:
        return self._sum_stage + 1

    @property
    def latency(self) -> int:
        """Cycles from a beat at the inputs to its sum at `o`."""
        return self._total_stage + 7

    def elaborate(self, platform):
        m = Module()
        terms, subs = self.width * self.subs, self.subs

        # One register a term: a simulator slices them much faster than one of 544 bits.
        x = [Signal(Operand, name=f"x{i}", reset_less=True) for i in range(terms)]
        y = [Signal(Operand, name=f"y{i}", reset_less=True) for i in range(terms)]
        first0 = Signal(reset_less=True)
        combine0 = Signal(self.combine.shape(), reset_less=True)
        m.d.sync += [first0.eq(self.first), combine0.eq(self.combine)]
        m.d.sync += [r.eq(i) for r, i in zip(x, self.x)]
        m.d.sync += [r.eq(i) for r, i in zip(y, self.y)]
        # joined[j]: groups at distance subs / 2^(j + 1) add up.
        joined0 = Cat(*(combine0 > j for j in range(self._levels)))

        def joined_at(name: str, stage: int) -> Value:
            return delay(m, f"joined_{name}", joined0, stage)

        exponents, kinds = zip(*(self._classify(m, i, x[i], y[i]) for i in range(terms)))
        signs = Signal(terms, reset_less=True, attrs={"keep": 1})
        zeros = Signal(terms, reset_less=True)
        m.d.sync += [
            signs.eq(Cat(*(a.sign ^ b.sign for a, b in zip(x, y)))),
            zeros.eq(Cat(*(a.zero | b.zero for a, b in zip(x, y)))),
        ]
        products = self._multiply(m, x, y, zeros)

        peaks = self._beat_peaks(m, exponents, joined_at)
        tops, shifts = self._align(m, peaks, first0, exponents, joined_at)
        sums = self._sum(m, products, shifts, signs, joined_at)
        totals = self._accumulate(m, sums, shifts, first0)
        flags = self._specials(m, kinds, first0, joined_at)
        for s in range(subs):
            owned = joined_at(f"owner{s}", self._total_stage + 5)
            foreign = Const(0, 1)
            for j in range(self._levels):
                if s >= subs >> (j + 1):
                    foreign = foreign | owned[j]
            self._normalise(m, s, totals[s], tops[s], flags[s], foreign)
        return m

    def _classify(self, m: Module, i: int, x: data.View, y: data.View) -> tuple[Value, Value]:
        """Stage 1: a product's exponent and kind."""
        exponent = Signal(EXPONENT_BITS, name=f"exponent{i}", reset_less=True)
        kind = Signal(2, name=f"kind{i}", reset_less=True)
        # Zero and special at once is padding, which makes no NaN and no infinity.
        counts = ~((x.zero & x.special) | (y.zero & y.special))
        zero = _named(m, f"zero_term{i}", x.zero | y.zero)
        nan = (x.special & (x.mant[22] | y.zero)) | (y.special & (y.mant[22] | x.zero))
        nan = _named(m, f"nan{i}", counts & nan)
        infinite = _named(m, f"infinite_term{i}", (x.special | y.special) & ~zero)
        negative = x.sign ^ y.sign
        m.d.sync += [
            exponent.eq(x.exp + y.exp),
            # bit 0: +inf or NaN, bit 1: -inf or NaN.
            kind.eq(Cat(nan | (infinite & ~negative), nan | (infinite & negative))),
        ]
        with m.If(zero):
            # A synchronous reset of the register, no LUT.
            m.d.sync += exponent.eq(0)
        return exponent, kind

    def _multiply(self, m: Module, x: list, y: list, zeros: Value) -> list[tuple[Value, int]]:
        """The products' bits from 17 up, and the stage of each: 24 x 17 in a DSP, 24 x 7 in a cascaded one or
        in LUTs.

        The hidden bits are taken as 1; a zero is made at the end, by the output register's reset.
        """
        products = []
        held = [delay(m, f"zero_line{k}", zeros, k) for k in (1, 2)]
        for i, (a, b) in enumerate(zip(x, y)):
            a, low, high = Cat(a.mant, Const(1, 1)), b.mant[:17], Cat(b.mant[17:], Const(1, 1))
            # Before a multiplier in LUTs these head a delay line, see `delay`.
            keep = {"keep": 1} if i < self.lut_products else {}
            m_low = Signal(41, name=f"m_low{i}", reset_less=True, attrs=keep)
            p_low = Signal(41, name=f"p_low{i}", reset_less=True, attrs=keep)
            m.d.sync += [m_low.eq(a * low), p_low.eq(m_low)]
            product = Signal(PRODUCT_BITS, name=f"product{i}", reset_less=True)
            if i < self.lut_products:
                stage = 4
                upper = self._booth(m, i, a, high)
                base = delay(m, f"p_low_line{i}", p_low[17:], 1)
            else:
                stage = 3
                xx = Signal(24, name=f"xx{i}", reset_less=True)
                high_ = Signal(7, name=f"high_{i}", reset_less=True)
                upper = Signal(PRODUCT_BITS, name=f"m_high{i}", reset_less=True)
                m.d.sync += [xx.eq(a), high_.eq(high), upper.eq(xx * high_)]
                base = p_low[17:]
            m.d.sync += product.eq(upper + base)
            with m.If(held[stage - 3][i]):
                m.d.sync += product.eq(0)
            products.append((product, stage))
        return products

    def _booth(self, m: Module, i: int, x: Value, y: Value) -> Value:
        """Stage 3: 24 x 7 bits by radix-4 Booth digits, a row added in each of three stages.

        The upper digit is 1 or 2, because the hidden bit is 1. Where a row is negated, its missing +1 rides
        in the empty bits below the next row.
        """
        def row(name: str, x: Value, digit: Value) -> tuple[Value, Value]:
            """0, 1, 2, -2, -1 or -0 times x, less 1 if negative; and whether it is."""
            one, two, negative = digit[0] ^ digit[1], (digit[0] & digit[1]) ^ digit[2], digit[2]
            two = two & ~one
            size = Mux(two, Cat(Const(0, 1), x), Mux(one, x, 0))[:25]
            return _named(m, name, Cat(Mux(negative, ~size, size)[:25], negative)).as_signed(), negative

        x1, y1 = delay(m, f"booth_x1_{i}", x, 1), delay(m, f"booth_y1_{i}", y, 1)
        x2, y2 = delay(m, f"booth_x2_{i}", x1, 1), delay(m, f"booth_y2_{i}", y1, 1)
        row0, negative0 = row(f"row0_{i}", x, Cat(Const(0, 1), y[:2]))
        row1, negative1 = row(f"row1_{i}", x, y[1:4])
        row2, negative2 = row(f"row2_{i}", x1, y1[3:6])
        row3 = Mux(y2[5], Cat(Const(0, 1), x2), x2)
        held1 = delay(m, f"booth_negative1_{i}", negative1, 1)
        held2 = delay(m, f"booth_negative2_{i}", negative2, 1)
        none = Const(0, 1)
        widths = (29, 31, 32)
        sums = [Signal(width, name=f"booth{k}_{i}", reset_less=True) for k, width in enumerate(widths)]
        m.d.sync += [
            sums[0].eq(_add(row0, Cat(negative0, Const(0, 1), row1), none, widths[0])),
            sums[1].eq(_add(sums[0], Cat(Const(0, 2), held1, Const(0, 1), row2), none, widths[1])),
            sums[2].eq(_add(sums[1], Cat(Const(0, 4), held2, Const(0, 1), row3, none), none, widths[2])),
        ]
        return sums[2][:PRODUCT_BITS]

    def _largest_of(self, m: Module, name: str, values: Sequence[Value]) -> Value:
        """The largest of some values, up to four a stage."""
        stage = 0
        while len(values) > 1:
            stage += 1
            if len(values) == 2:
                values = [_largest(m, f"{name}_{stage}", *values)]
            else:
                values = [_largest_of_four(m, f"{name}_{stage}_{k}", values[k:k + 4])[0]
                          for k in range(0, len(values), 4)]
            registers = [Signal(EXPONENT_BITS, name=f"{name}_{stage}_{k}_stage", reset_less=True)
                         for k in range(len(values))]
            m.d.sync += [r.eq(v) for r, v in zip(registers, values)]
            values = registers
        return values[0]

    def _beat_peaks(self, m: Module, exponents: Sequence[Value], joined_at) -> list[Value]:
        """The largest exponent of each group, joined groups compared with one another."""
        w = self.width
        peaks = [self._largest_of(m, f"peak{s}", exponents[s * w:(s + 1) * w]) for s in range(self.subs)]
        if self._levels == 0:
            return peaks
        joined = joined_at("peak", self._peak_stage - 1)
        if self._levels == 1:
            peaks = [_largest(m, "joint_peak", *peaks, gate=joined[0]), peaks[1]]
        else:
            peaks = [*_largest_of_four(m, "joint_peak", peaks, joined[0], joined[1]), *peaks[2:]]
        registers = [Signal(EXPONENT_BITS, name=f"beat_peak{s}", reset_less=True) for s in range(self.subs)]
        m.d.sync += [r.eq(p) for r, p in zip(registers, peaks)]
        return registers

    def _align(self, m: Module, peaks: list[Value], first0: Value, exponents: list[Value], joined_at):
        """Running maximum, then each term's and each accumulator's shift to it.

        Distances are held as their complements, ~(a - b) = ~a + b: without a carry in, the lowest sum bit is
        the carry chain's own LUT, and the shifters take the complement in.
        """
        stage = self._peak_stage
        first = delay(m, "first_peak", first0, stage - 1)
        tops, gaps = [], []
        for s, peak in enumerate(peaks):
            running = Signal(EXPONENT_BITS, name=f"running{s}", reset_less=True)
            top = Signal(EXPONENT_BITS, name=f"top{s}", reset_less=True)
            before = Signal(EXPONENT_BITS, name=f"before{s}", reset_less=True)
            largest = _largest(m, f"largest{s}", peak, running)
            gap = Signal(EXPONENT_BITS, name=f"gap{s}", reset_less=True, attrs={"keep": 1})
            m.d.sync += [running.eq(largest), top.eq(largest), before.eq(running),
                         gap.eq(_add(before, ~top, Const(0, 1), EXPONENT_BITS))]
            with m.If(first):
                # The beat behind this one starts anew. `top` keeps what `running` forgets.
                m.d.sync += running.eq(0)
            tops.append(top)
            gaps.append(gap)
        joined = joined_at("top", stage + 1)
        owned = list(tops)
        for j in reversed(range(self._levels)):
            half = self.subs >> (j + 1)
            for s in range(half):
                owned[s + half] = _named(m, f"owned{j}_{s + half}",
                                         Mux(joined[j], owned[s], owned[s + half]))
        shifts = []
        for i, exponent in enumerate(exponents):
            shift = Signal(6, name=f"shift{i}", reset_less=True)
            aligned = delay(m, f"exponent_line{i}", exponent, stage)
            distance = _named(m, f"distance{i}", _add(aligned, ~owned[i // self.width], Const(0, 1),
                                                            EXPONENT_BITS))
            # Its initial value alone keeps the twin from being merged with `shift`.
            twin = Signal(5, name=f"shift_twin{i}", reset_less=True, init=31)
            # Bit 5, not complemented: shifted out.
            m.d.sync += [shift.eq(Cat(distance[:5], ~distance[5:].all())), twin.eq(distance[:5])]
            shifts.append((shift, twin))
        return tops, (shifts, gaps)

    def _sum(self, m: Module, products, shifts, signs, joined_at) -> list[_Sum]:
        """Aligned products, negated by complement, and their sums; each adder takes in one missing +1."""
        shift_stage = self._shift_stage
        partial: list[_Sum] = []
        sign_line = delay(m, "sign_line", signs, shift_stage - 1)
        for i, product in enumerate(products):
            shift, twin = shifts[0][i]
            q = delay(m, f"product_line{i}", product[0], shift_stage - product[1])
            sign = sign_line[i]
            # 1s and 8s, 2s and 16s; then 4s.
            near = _shift_level(m, f"near_fine{i}", q,
                                ~Cat(shift[0], shift[3]), ~Cat(twin[0], twin[3]), (1, 8))
            near = _shift_level(m, f"near{i}", near,
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
                m.d.sync += [aligned.eq(near), far.eq(shift[2])]
                partial.append(_Sum(finish(aligned, ~far, later), later))
            with m.If(shift[5]):
                m.d.sync += [aligned.eq(0), later.eq(0)]

        def register(name: str, bits: Value, carry: Value) -> _Sum:
            total = Signal(len(bits), name=name, reset_less=True)
            missing = Signal(name=f"{name}_carry", reset_less=True)
            m.d.sync += [total.eq(bits), missing.eq(carry)]
            return _Sum(total, missing)

        level = 0
        while len(partial) > self.subs:
            level += 1
            width = PRODUCT_BITS + 1 + level
            partial = [register(f"sum{level}_{k}", _add(a.bits, b.bits, b.carry, width), a.carry)
                       for k, (a, b) in enumerate(zip(partial[::2], partial[1::2]))]
        stage = shift_stage + 1 + level
        for j in range(self._levels):
            half = self.subs >> (j + 1)
            joined = joined_at(f"sum{j}", stage + j)[j]
            following = []
            for s, a in enumerate(partial):
                if s < half:
                    b = partial[s + half]
                    width = PRODUCT_BITS + 1 + level + j + 1
                    bits = _add(a.bits, Mux(joined, b.bits, 0), b.carry & joined, width)
                else:
                    bits = a.bits
                following.append(register(f"joined{j}_{s}", bits, a.carry))
            partial = following
        return partial

    def _accumulate(self, m: Module, sums: list[_Sum], shifts, first0: Value) -> list[Value]:
        stage = self._sum_stage
        width = PRODUCT_BITS + 1 + self.terms_log2
        first = delay(m, "first_sum", first0, stage - 1)
        totals = []
        for s, part in enumerate(sums):
            gap = delay(m, f"gap_line{s}", shifts[1][s], stage - self._shift_stage - 1)
            fine = Signal(4, name=f"gap_fine{s}", reset_less=True)
            coarse = Signal(2, name=f"gap_coarse{s}", reset_less=True)
            twin = Signal(4, name=f"gap_twin{s}", reset_less=True, init=15)
            m.d.sync += [fine.eq(gap[:4]), twin.eq(gap[:4]),
                         coarse.eq(Mux(gap[6:].all(), ~gap[4:6], 3))]
            running = Signal(width, name=f"sum_running{s}", reset_less=True)
            total = Signal(width, name=f"total{s}", reset_less=True)
            near = _shift_level(m, f"sum_near_fine{s}", running.as_signed(),
                                ~Cat(fine[1], fine[3]), ~Cat(twin[1], twin[3]), (2, 8))
            near = _shift_level(m, f"sum_near{s}", near,
                                ~Cat(fine[0], fine[2]), ~Cat(twin[0], twin[2]), (1, 4))
            far = near >> Cat(Const(0, 4), coarse)
            added = _named(m, f"added{s}", _add(part.bits, far, part.carry, width))
            m.d.sync += [running.eq(added), total.eq(added)]
            with m.If(first):
                m.d.sync += running.eq(0)
            totals.append(total)
        return totals

    def _specials(self, m: Module, kinds: list[Value], first0: Value, joined_at) -> list[Value]:
        """Per group, at the stage of the rounded result: +inf (bit 0), -inf (bit 1) or NaN (both)."""
        groups = []
        for s in range(self.subs):
            group = Signal(2, name=f"kinds{s}", reset_less=True)
            own = kinds[s * self.width:(s + 1) * self.width]
            m.d.sync += group.eq(Cat(Cat(*(k[0] for k in own)).any(), Cat(*(k[1] for k in own)).any()))
            groups.append(group)
        joined = joined_at("kinds", 2)
        first = delay(m, "first_kinds", first0, 3)
        flags = []
        for j in range(self._levels):
            half = self.subs >> (j + 1)
            groups = [groups[s] | (groups[s + half] & joined[j].replicate(2)) if s < half else groups[s]
                      for s in range(self.subs)]
        for s, group in enumerate(groups):
            beat = Signal(2, name=f"beat_kinds{s}", reset_less=True)
            running = Signal(2, name=f"running_kinds{s}", reset_less=True)
            m.d.sync += [beat.eq(group), running.eq(beat | Mux(first, 0, running))]
            flags.append(delay(m, f"kinds_line{s}", running, self._total_stage + 5 - 4))
        return flags

    def _normalise(self, m: Module, s: int, total: Value, top: Value, flags: Value, foreign: Value):
        """From the accumulator to the word: a leading-sign shifter of three 4:1 levels, then rounding.

        The shifted value stays in two's complement; rounding turns it into a magnitude in the same adder.
        """
        width = len(total)
        # What the word keeps: sign, 24 bits, a guard bit. `cut` bits lie below.
        cut = width - 26

        def repeats(name: str, value: Value, size: int) -> list[Value]:
            """[k]: the first k + 1 blocks of `size` bits below the sign hold copies of it."""
            high = width - 1
            changed = _named(m, name, Mux(value[-1], ~value, value))
            return [~changed[max(high - k * size, 0):high].any()
                    for k in range(1, 4) if high - (k - 1) * size > 0]

        def left(value: Value, by: int) -> Value:
            return Cat(Const(0, by), value)[:width]

        def choice(blocks: list[Value]) -> Value:
            """How many of three blocks repeat the sign."""
            return Cat(blocks[0] & (~blocks[1] | blocks[2]), blocks[1])

        # 16s; nothing reaches the lowest 16 bits from below, so their registers' reset does the work.
        blocks = repeats(f"changed{s}", total, 16)
        skip16 = _named(m, f"skip16_{s}", blocks[0])
        skip32 = _named(m, f"skip32_{s}", blocks[1] if width - 1 > 32 else Const(0, 1))
        coarse_low = Signal(16, name=f"coarse_low{s}", reset_less=True)
        coarse_high = Signal(width - 16, name=f"coarse_high{s}", reset_less=True)
        coarse = Cat(coarse_low, coarse_high)
        coarse_shift = Signal(2, name=f"coarse_shift{s}", reset_less=True, attrs={"keep": 1})
        m.d.sync += [
            coarse_low.eq(total[:16]),
            coarse_high.eq(Mux(skip32, left(total, 32)[16:], Mux(skip16, total[:width - 16], total[16:]))),
            coarse_shift.eq(Cat(skip16 & ~skip32, skip32)),
        ]
        with m.If(skip16):
            m.d.sync += coarse_low.eq(0)
        exponent = delay(m, f"top_line{s}", top, self._total_stage + 3 - self._peak_stage - 1)

        # 4s
        by4_next = _named(m, f"by4_next{s}", choice(repeats(f"coarse_changed{s}", coarse, 4)))
        by4 = Signal(2, name=f"by4_{s}", reset_less=True)
        by4_twin = Signal(2, name=f"by4_twin{s}", reset_less=True, init=3)
        coarse_held = Signal(width, name=f"coarse_held{s}", reset_less=True)
        coarse_shift_held = delay(m, f"coarse_shift_line{s}", coarse_shift, 2)
        m.d.sync += [by4.eq(by4_next), by4_twin.eq(by4_next), coarse_held.eq(coarse)]

        # 1s. The lowest bits only tell whether the value is inexact: they move no further.
        moved = _shift_level(m, f"middle_next{s}", coarse_held, by4, by4_twin, (4, 8),
                             left=True)
        by1_next = _named(m, f"by1_next{s}", choice(repeats(f"middle_changed{s}", moved, 1)))
        by1 = Signal(2, name=f"by1_{s}", reset_less=True)
        by1_twin = Signal(2, name=f"by1_twin{s}", reset_less=True, init=3)
        middle = Signal(29, name=f"middle{s}", reset_less=True)
        by4_held = Signal(2, name=f"by4_held{s}", reset_less=True)
        lost = Signal(name=f"lost{s}", reset_less=True)
        below = Const(0, 1)
        for k in range(4):
            high = cut - 3 - 4 * k
            if high > 0:
                below = below | (coarse_held[max(high - 4, 0):high].any() & (by4 <= k))
        m.d.sync += [by1.eq(by1_next), by1_twin.eq(by1_next), middle.eq(moved[cut - 3:]),
                     by4_held.eq(by4), lost.eq(below)]

        fine = Signal(26, name=f"fine{s}", reset_less=True)
        sticky = Signal(name=f"sticky{s}", reset_less=True)
        biased = Signal(10, name=f"biased{s}", reset_less=True)
        # Exponent of the leading bit, biased: top - shift + (width - 2) - 2 * 127 - 46 + 17 + 127. What is a
        # multiple of 64 is taken off here, the rest comes in with the rounding, whose adder has an operand
        # free.
        offset = width - 2 - 127 - 46 + 17
        m.d.sync += [
            fine.eq(_shift_level(m, f"fine_next{s}", middle, by1, by1_twin, (1, 2), left=True)[3:]),
            sticky.eq(lost | (middle[2] & (by1 == 0)) | (middle[1] & (by1 <= 1)) | (middle[0] & (by1 <= 2))),
            biased.eq(exponent - Cat(by1, by4_held, coarse_shift_held, Const(-(offset >> 6), 4))),
        ]

        # |v| = ~v + 1 for a negative v: the +1 either reaches the kept bits (all dropped bits 0) or makes the
        # dropped part its own complement.
        guard, kept, negative = fine[0], fine[1:25], fine[25]
        guard_magnitude = guard ^ (negative & sticky)
        up = _named(m, f"up{s}", (negative & ~guard & ~sticky)
                    | (guard_magnitude & (sticky | (kept[0] ^ negative))))
        rounded = Signal(33, name=f"rounded{s}", reset_less=True)
        negative3 = Signal(name=f"negative_result{s}", reset_less=True)
        exact_zero = Signal(name=f"exact_zero{s}", reset_less=True)
        fraction = kept[:23]
        m.d.sync += [
            rounded.eq(_add(Const((offset & 63) << 23, 33),
                            Cat(Mux(negative, ~fraction, fraction)[:23], biased), up, 33)),
            negative3.eq(negative),
            exact_zero.eq(~negative & ~kept[-1]),
        ]

        fraction, exp = rounded[:23], rounded[23:]
        under = _named(m, f"under{s}", exp[9] | ~exp[:9].any() | exact_zero)
        over = _named(m, f"over{s}", ~exp[9] & (exp[8] | exp[:8].all()))
        nan = flags.all()
        infinite = _named(m, f"infinite{s}", flags.any())
        result_fraction = Signal(23, name=f"result_fraction{s}", reset_less=True)
        result_upper = Signal(9, name=f"result_upper{s}", reset_less=True)
        m.d.sync += [
            result_fraction.eq(fraction),
            result_upper.eq(Cat(Mux(infinite | (over & ~under), 0xFF, Mux(under, 0, exp[:8])),
                                Mux(infinite, flags[1] & ~flags[0], negative3))),
        ]
        with m.If(infinite | under | over):
            m.d.sync += result_fraction.eq(Cat(Const(0, 22), nan))
        with m.If(foreign):
            m.d.sync += [result_fraction.eq(0), result_upper.eq(0)]
        m.d.comb += self.o[s].eq(Cat(result_fraction, result_upper))
