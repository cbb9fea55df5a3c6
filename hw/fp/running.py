from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import memory
from amaranth.lib.wiring import In, Out

from hw.place import Part

from .logic import add, named, shift_level
from .normalise import normalise
from .operand import Operand, delay
from .product import EXPONENT_BITS, PRODUCT_BITS, classify, in_slices, multiply


class RunningSums(Part):
    """Adds up products of FP32 operands in many sums by turns, a product per beat, rounding once at the end.

    o = sum over the beats of a context since its `first`.     Source: SCRec §III.E; FusedDot with one term per beat

    Parameters  contexts_log2: 2^contexts_log2 sums are under way at a time, 1..8; terms_log2: a sum has at most
                2^terms_log2 products, 0..16; lut_product: multiply with one DSP and LUTs instead of two DSPs;
                family: see FusedDot
    Members     x, y     In  Operand
                context  In  the sum that the beat belongs to
                first    In  that sum starts anew with it
                copy     In  if the sum is this beat's product alone and that is -0, it stays so
                o        Out  binary32 word
    Shapes      x, y a beat -> o, the sum so far of the beat's context
    Timing      `latency` cycles from a beat to o; a beat every cycle, the same context as often as one likes
    Handshake   none. Every beat counts: one of padding without `first` leaves its context as it is
    Numerics    as FusedDot with one term per beat; bit-exact
    Reset       nothing needs it: contexts survive, a beat with `first` clears one
    Raises      ValueError for a parameter outside its range
    Golden      golden.fp.fp32.dot          Tests  verif/emb/test_pooling.py
    """

    def __init__(self, *, contexts_log2: int, terms_log2: int, lut_product: bool = False, family: str = "any"):
        if not 1 <= contexts_log2 <= 8:
            raise ValueError(f"contexts_log2 is {contexts_log2}, must be 1 to 8")
        if not 0 <= terms_log2 <= 16:
            raise ValueError(f"terms_log2 is {terms_log2}, must be 0 to 16")
        self.contexts_log2 = contexts_log2
        self.terms_log2 = terms_log2
        self.lut_product = lut_product
        self.family = family
        super().__init__({
            "x": In(Operand), "y": In(Operand), "context": In(contexts_log2), "first": In(1), "copy": In(1),
            "o": Out(32),
        })

    # Pipeline stages: a value "of stage n" is in a register whose content is n + 1 edges old. Stage 0 holds
    # the operands.
    @property
    def _peak_stage(self) -> int:
        """The exponents, held back if the product takes longer."""
        return 2 if self.lut_product else 1

    @property
    def _sum_stage(self) -> int:
        """The product, all but shifted to its place."""
        return self._peak_stage + 3

    @property
    def latency(self) -> int:
        """Cycles from a beat at the inputs to the sum at `o`."""
        return self._sum_stage + 8

    def elaborate(self, platform):
        m = Module()
        x = Signal(Operand, reset_less=True)
        y = Signal(Operand, reset_less=True)
        control = Signal(self.contexts_log2 + 1, reset_less=True)
        copy = Signal(reset_less=True)
        m.d.sync += [
            x.eq(self.x),
            y.eq(self.y),
            control.eq(Cat(self.first, self.context)),
            copy.eq(self.copy),
        ]

        exponent, kind = classify(m, 0, x, y, copy)
        sign = Signal(reset_less=True)
        zero = Signal(reset_less=True)
        m.d.sync += sign.eq(x.sign ^ y.sign)
        m.d.sync += zero.eq(x.zero | y.zero)
        if self.family == "any":
            (product, _), = multiply(m, [x], [y], zero, int(self.lut_product))
        else:
            (product, _), = in_slices(m, [x], [y], zero, int(self.lut_product), self._sum_stage - 1)

        stage = self._peak_stage
        held_exponent, held_kind = delay(m, "exponent", exponent, stage - 1), delay(m, "kind", kind, stage - 1)
        top, shift, twin, gap, kinds = self._align(m, control, held_exponent, held_kind)
        first = delay(m, "first_sum", control[0], self._sum_stage - 1)
        term, carry = self._place(m, product, delay(m, "sign", sign, stage + 1), shift, twin)
        total = self._accumulate(m, control, first, gap, term, carry)
        # `top` and `kinds` are of the stage behind the peak's; the normaliser wants them 7 and 9 behind the sum's.
        word = normalise(m, 0, total, top, 6, delay(m, "kinds_line", kinds, 8), Const(0, 1))
        m.d.comb += self.o.eq(word)
        return m

    def _state(self, m: Module, name: str, stage: int, control: Value, width: int) -> tuple[Value, Signal, Value]:
        """For the beat at `stage`: what its context holds, a wire for what it is to hold from the next cycle on, and
        whether the beat is its first. A memory read and written at one address: nothing has to be handed past it.
        """
        store = memory.Memory(shape=width, depth=1 << self.contexts_log2, init=[], attrs={"ram_style": "distributed"})
        m.submodules[f"{name}_store"] = store
        read, write = store.read_port(domain="comb"), store.write_port()
        following = Signal(width, name=f"{name}_following")
        late = delay(m, f"control_{name}", control, stage)
        m.d.comb += [
            read.addr.eq(late[1:]),
            write.addr.eq(late[1:]),
            write.en.eq(1),
            write.data.eq(following),
        ]
        return read.data, following, late[0]

    def _align(self, m: Module, control: Value, exponent: Value, kind: Value):
        """Running maximum of the exponents, and how far it is from the smaller one: either the product or the sum so
        far is shifted, never both. Distances are complements, as in FusedDot.
        """
        before, following, first = self._state(m, "peak", self._peak_stage, control, EXPONENT_BITS + 3)
        running, kinds_before = before[:EXPONENT_BITS], before[EXPONENT_BITS:]
        take = named(m, "larger", first | (exponent > running))
        largest = named(m, "largest", Mux(take, exponent, running))
        all_kinds = named(m, "all_kinds", kind | Mux(first, 0, kinds_before))
        m.d.comb += following.eq(Cat(largest, all_kinds))

        top = Signal(EXPONENT_BITS, reset_less=True)
        not_top = Signal(EXPONENT_BITS, reset_less=True, init=511)
        old = Signal(EXPONENT_BITS, reset_less=True)
        new = Signal(EXPONENT_BITS, reset_less=True)
        took = Signal(reset_less=True)
        kept = Signal(reset_less=True, init=1)
        kinds = Signal(3, reset_less=True)
        m.d.sync += [
            top.eq(largest),
            not_top.eq(~largest),
            old.eq(running),
            new.eq(exponent),
            took.eq(take),
            kept.eq(~take),
            kinds.eq(all_kinds),
        ]

        distance = named(m, "distance", add(not_top, Mux(took, old, new), Const(0, 1), EXPONENT_BITS))
        shift = Signal(6, reset_less=True)
        # Its initial value alone keeps the twin from being merged with `shift`.
        twin = Signal(5, reset_less=True, init=31)
        gap = Signal(EXPONENT_BITS, reset_less=True)
        # Bit 5, not complemented: shifted out.
        m.d.sync += shift.eq(Cat(distance[:5], ~distance[5:].all()))
        m.d.sync += twin.eq(distance[:5])
        m.d.sync += gap.eq(distance)
        with m.If(took):
            m.d.sync += shift.eq(31)
            m.d.sync += twin.eq(31)
        with m.If(kept):
            m.d.sync += gap.eq(-1)
        return top, shift, twin, gap, kinds

    def _place(self, m: Module, product: Value, sign: Value, shift: Value, twin: Value) -> tuple[Value, Value]:
        """The product shifted and negated by complement, and the +1 that is then missing. The last level of the
        shifter is logic behind the registers, which the adder's LUTs absorb.
        """
        near = shift_level(m, "near_fine", product, ~Cat(shift[0], shift[3]), ~Cat(twin[0], twin[3]), (1, 8))
        near = shift_level(m, "near", near, ~Cat(shift[1], shift[4]), ~Cat(twin[1], twin[4]), (2, 16))
        nearer = Signal(PRODUCT_BITS, reset_less=True)
        negative = Signal(reset_less=True)
        far = Signal(reset_less=True)
        m.d.sync += nearer.eq(near)
        m.d.sync += negative.eq(sign)
        m.d.sync += far.eq(~shift[2])
        with m.If(shift[5]):
            m.d.sync += nearer.eq(0)
            m.d.sync += negative.eq(0)
        magnitude = Mux(far, nearer[4:], nearer)[:PRODUCT_BITS]
        return Cat(Mux(negative, ~magnitude, magnitude)[:PRODUCT_BITS], negative), negative

    def _accumulate(self, m: Module, control: Value, first: Value, gap: Value, term: Value, carry: Value) -> Value:
        width = PRODUCT_BITS + 1 + self.terms_log2
        fine = Signal(4, reset_less=True)
        coarse = Signal(2, reset_less=True)
        fine_twin = Signal(4, reset_less=True, init=15)
        coarse_twin = Signal(2, reset_less=True, init=3)
        # A first beat shifts out all that its context holds, and what comes in then is not the sign but 0.
        places = named(m, "places", Mux(gap[6:].all() & ~first, ~gap[4:6], 3))
        m.d.sync += [
            fine.eq(gap[:4]),
            fine_twin.eq(gap[:4]),
            coarse.eq(places),
            coarse_twin.eq(places),
        ]
        running, following, begins = self._state(m, "sum", self._sum_stage, control, width)
        fill = named(m, "fill", running[-1] & ~begins)
        near = shift_level(m, "sum_near_fine", running.as_signed(),
                           ~Cat(fine[1], fine[3]), ~Cat(fine_twin[1], fine_twin[3]), (2, 8))
        near = shift_level(m, "sum_near", near,
                           ~Cat(fine[0], fine[2]), ~Cat(fine_twin[0], fine_twin[2]), (1, 4))
        far = shift_level(m, "sum_far", Cat(near, fill).as_signed(), coarse, coarse_twin, (16, 32))
        far = named(m, "sum_far_node", far[:width], node=True)
        total = Signal(width, reset_less=True)
        m.d.comb += following.eq(add(far, term, carry, width))
        m.d.sync += total.eq(following)
        return total
