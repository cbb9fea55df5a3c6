"""FP32 values out of rows that are stored in half precision, or as whole numbers with a scale and a bias a row."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.emb.rows import beat_layout, pooled_layout
from hw.fp.logic import named
from hw.fp.narrow import widen
from hw.fp.normalise import normalise
from hw.fp.operand import delay
from hw.isa.emb import ROW_FORMAT
from hw.place import Part, place

FAR = 34            # places that a bias can lie above its scale before the product counts for nothing but rounding
FRACTION = 3        # bits below the scale's last place
TOTAL = FAR + 24 + FRACTION + 2
PRODUCT = 37
# What `normalise` adds to the exponent of a sum's highest bit but one, and that bit's place above the scale's last.
TOP = 127 + 46 - 17 - 23 - FRACTION
# The same for a half word's, whose significand is multiplied by 2**23: exponents of its last place and of 2**23's.
TOP_HALF, TOP_BRAIN = TOP + 102, TOP - 7
ONE = 127 << 23


class Fields(data.Struct):
    """Of a scale or a bias. mant: with its leading one, 0 of a zero or subnormal."""

    mant: 24
    exp: 8
    sign: 1
    wild: 1


class DecoderLane(Part):
    """One value: code * scale + bias, or a half word's.

    Parameters  lut_product: multiply in LUTs, not in a DSP
    Members     code            In  a byte or a nibble with zeros above, or a half word
                half            In  it is a half word
                brain           In  and a bfloat16
                mant, thrice    In  the scale's, signed, 4 cycles after `code`; three times it
                addend, alone   In  the bias in places of the scale and in its own, signed; 6 cycles after
                top, top_alone  In  their exponents, as `normalise` takes them; 6 cycles after
                wild            In  scale or bias is not finite; 12 cycles after
                o               Out  binary32 word
    Timing      `latency` cycles from code to o, one per cycle
    Numerics    golden.emb.row_decoder.decode: rounded once, to nearest even; bit-exact
    Reset       nothing to reset
    """

    latency = 13

    def __init__(self, *, lut_product: bool = False):
        self.lut_product = lut_product
        super().__init__({
            "code": In(16), "half": In(1), "brain": In(1), "mant": In(signed(25)), "thrice": In(signed(27)),
            "addend": In(signed(TOTAL)), "alone": In(signed(25)), "top": In(9), "top_alone": In(9), "wild": In(1),
            "o": Out(32)})

    def elaborate(self, platform):
        m = Module()
        number, exponent, flags = self._number(m)
        is_half = delay(m, "half_line", self.half, 6)
        top_half = delay(m, "exponent_line", exponent, 5)
        empty = Signal(reset_less=True)
        m.d.sync += empty.eq(~self.half & ~self.code[:8].any())
        by_itself = delay(m, "empty_line", empty, 5)

        late = delay(m, "number_line", number, 3).as_signed()
        addend = self.addend
        if self.lut_product:
            result = self._in_luts(m, late[:8])
            # What a half word has above a byte comes in the place of its bias, which is 0, as its scale is 1.
            above = delay(m, "number_above", late[8:], 2).as_signed()
            addend = addend | Cat(Const(0, FRACTION + 23 + 8), above).as_signed()
        else:
            product, result = (Signal(signed(PRODUCT), name=name, reset_less=True) for name in ("product", "result"))
            m.d.sync += product.eq(late * self.mant)
            m.d.sync += result.eq(product)
        total = Signal(signed(TOTAL), reset_less=True)
        top = Signal(9, reset_less=True)
        m.d.sync += total.eq(Cat(Const(0, FRACTION), result).as_signed()
                             + Mux(by_itself, Cat(Const(0, FRACTION), self.alone).as_signed(), addend))
        m.d.sync += top.eq(Mux(is_half, top_half, Mux(by_itself, self.top_alone, self.top)))
        special = delay(m, "flags_line", flags, 11)
        m.d.comb += self.o.eq(normalise(
            m, 0, total, top, 3, Cat(special[:2] | self.wild.replicate(2), special[2]), Const(0, 1)))
        return m

    def _in_luts(self, m: Module, code: Value) -> Value:
        """code * mant of a byte, two cycles later: four digits, each 0 to 3 times the scale, by pairs."""
        def times(digit: Value) -> Value:
            twice = Cat(Const(0, 1), self.mant).as_signed()
            return Mux(digit[1], Mux(digit[0], self.thrice, twice), Mux(digit[0], self.mant, 0))

        low, high = (Signal(signed(30), name=name, reset_less=True) for name in ("product_low", "product_high"))
        result = Signal(signed(PRODUCT), name="result", reset_less=True)
        m.d.sync += low.eq(times(code[:2]) + Cat(Const(0, 2), times(code[2:4])).as_signed())
        m.d.sync += high.eq(times(code[4:6]) + Cat(Const(0, 2), times(code[6:8])).as_signed())
        m.d.sync += result.eq(low + Cat(Const(0, 4), high).as_signed())
        return result

    def _number(self, m: Module) -> tuple[Value, Value, Value]:
        """Registers: the code as a signed number, a half word's exponent as `normalise` takes it, and its flags."""
        code, brain = self.code, self.brain
        exponent = named(m, "exponent", Mux(brain, code[7:15], code[10:15]))
        none = named(m, "none", ~exponent.any())
        everything = named(m, "everything", Mux(brain, exponent.all(), exponent[:5].all()))
        fraction = Mux(brain, code[:7], code[:10])
        some = named(m, "some", fraction.any())
        # A bfloat16 that is subnormal counts as normal, of an exponent that the normaliser takes for too small.
        significand = named(m, "significand", Mux(brain, Cat(code[:7], 1), Cat(code[:10], ~none)))
        is_negative = self.half & code[15]
        number = Signal(signed(12), reset_less=True)
        top = Signal(9, name="own_top", reset_less=True)
        flags = Signal(3, reset_less=True)
        magnitude = Mux(self.half, significand, code[:8])
        m.d.sync += number.eq(Mux(is_negative, -magnitude, magnitude))
        m.d.sync += top.eq(exponent + Mux(brain, TOP_BRAIN, TOP_HALF) + (none & ~brain))
        m.d.sync += flags.eq(
            Cat(everything & (some | ~code[15]), everything & (some | code[15]), none & ~some & code[15])
                & self.half.replicate(3))
        return number, top, flags


class _Header(NamedTuple):
    """What `RowDecoder._codes` hands to other methods."""

    ends: Signal
    short: Any


class RowDecoder(Part):
    """Makes FP32 values of rows on their way from the row fetch to the pooling unit; FP32 rows pass as they are.

    o[d] = code[d] * scale + bias, rounded once, or the half word of d.    Source: FBGEMM, fused row-wise quantisation

    One lane a word serves all formats: a product, a sum with the bias that was shifted once for all lanes, and the
    normaliser of the fused sums. A half word is its significand times a scale of 1.

    Parameters  words: FP32 words of a beat, at least 4; lut_products: lanes that multiply in LUTs, 0 to words
    Members     i_valid, i  In  hw.emb.rows.beat_layout, a part of a stored beat at a time
                o_valid, o  Out  hw.emb.rows.pooled_layout
    Shapes      a stored beat of 2, 4 or 8 times `words` values, in as many beats -> a beat of `words` values each
    Timing      FP32: in the same cycle. Else `latency` cycles; a beat every cycle. An FP32 beat comes more than
                `latency` cycles behind one of another format
    Handshake   none: it never stalls
    Numerics    golden.emb.row_decoder.decode: one rounding, RNE; subnormal results are zeros of their sign. Bit-exact
    Reset       drops beats on their way
    Raises      ValueError: words or lut_products out of range
    Golden      golden.emb.row_decoder          Tests  verif/emb/test_row_decoder.py
    """

    latency = 1 + DecoderLane.latency

    def __init__(self, *, words: int, row_beats_max: int, lut_products: int = 0):
        if type(words) is not int or not 4 <= words <= 64 or words & (words - 1):
            raise ValueError(f"words is {words!r}, must be a power of two from 4 to 64")
        if not 0 <= lut_products <= words:
            raise ValueError(f"lut_products is {lut_products}, must be 0 to {words} for {words} words")
        self.words, self.row_beats_max, self.lut_products = words, row_beats_max, lut_products
        super().__init__({
            "i_valid": In(1),
            "i": In(beat_layout(words, row_beats_max)),
            "o_valid": Out(1),
            "o": Out(pooled_layout(words, row_beats_max)),
        })

    def elaborate(self, platform):
        m = Module()
        form = self.i.row_format
        codes, half, brain, header = self._codes(m)
        scale, bias = self._header(m, header, half)
        shared = self._shared(m, scale, bias)

        coming = Signal(self.latency)
        is_plain = named(m, "is_plain", form == ROW_FORMAT.FLOAT32)
        m.d.sync += coming.eq(Cat(self.i_valid & ~is_plain, coming))
        m.d.comb += self.o_valid.eq(coming[-1] | (self.i_valid & is_plain))
        for name, _ in self.o.shape():
            if name != "words":
                value = Value.cast(self.i[name])
                late = delay(m, f"{name}_line", value, self.latency)
                m.d.comb += Value.cast(self.o[name]).eq(Mux(coming[-1], late, value))
        for k, code in enumerate(codes):
            lane = DecoderLane(lut_product=k < self.lut_products)
            place(m, platform, f"lane{k}", lane)
            m.d.comb += [
                lane.code.eq(code),
                lane.half.eq(half),
                lane.brain.eq(brain),
                *(getattr(lane, name).eq(value) for name, value in shared.items()),
                self.o.words[k].eq(Mux(coming[-1], lane.o, self.i.words[k])),
            ]
        return m

    def _codes(self, m: Module) -> tuple[list[Value], Signal, Signal, _Header]:
        """Registers: the code of each lane, whether they are half words and bfloat16; and the row's scale and bias as
        they are stored, with whether these are binary16."""
        words, slot, form = self.words, self.i.slot, self.i.row_format
        beat = self.i.words.as_value()
        is_byte, is_nibble = form == ROW_FORMAT.INT8, form == ROW_FORMAT.INT4
        upper = Mux(is_nibble, slot[2], Mux(is_byte, slot[1], slot[0]))
        halves = named(m, "halves", Mux(upper, beat[16 * words:], beat[:16 * words]))
        bytes_ = named(m, "bytes", Mux(Mux(is_nibble, slot[1], slot[0]), halves[8 * words:], halves[:8 * words]))
        nibbles = named(m, "nibbles", Mux(slot[0], bytes_[4 * words:], bytes_[:4 * words]))
        half, brain, short = (Signal(name=name, reset_less=True) for name in ("half", "brain", "short"))
        ends = Signal(64, name="ends", reset_less=True)
        codes = [Signal(16, name=f"code{k}", reset_less=True) for k in range(words)]
        m.d.sync += [
            half.eq(~is_byte & ~is_nibble),
            brain.eq(form == ROW_FORMAT.BFLOAT16),
            short.eq(is_nibble),
            *(code.eq(Mux(is_byte, bytes_.word_select(k, 8), Mux(is_nibble, nibbles.word_select(k, 4),
                                                                  halves.word_select(k, 16))))
              for k, code in enumerate(codes)),
        ]
        with m.If(self.i_valid & self.i.begins):
            m.d.sync += ends.eq(beat[:64])
        return codes, half, brain, _Header(ends=ends, short=short)

    def _header(self, m: Module, header: _Header, half: Signal) -> tuple[data.View, data.View]:
        """Registers, 2 cycles after a beat: scale and bias; 1 and 0 for half words."""
        found = []
        for at, (name, plain) in enumerate((("scale", ONE), ("bias", 0))):
            fields = Signal(Fields, name=name, reset_less=True)
            wide = named(m, f"{name}_wide", widen(header.ends[16 * at:16 * at + 16]))
            word = Mux(half, plain, Mux(header.short, wide, header.ends[32 * at:32 * at + 32]))[:32]
            word = named(m, f"{name}_word", word)
            some = word[23:31].any()
            m.d.sync += [
                fields.mant.eq(Mux(some, Cat(word[:23], 1), 0)),
                fields.exp.eq(Cat(word[23] | ~some, word[24:31])),
                fields.sign.eq(word[31]),
                fields.wild.eq(word[23:31].all()),
            ]
            found.append(fields)
        return found[0], found[1]

    def _shared(self, m: Module, scale, bias) -> dict[str, Value]:
        """What all lanes take, each at its time: see DecoderLane."""
        # Cycle 3: the distance of the exponents. Cycle 4: how far the bias moves right from its highest place.
        distance = Signal(signed(9), reset_less=True)
        mant = Signal(signed(25), name="scale_mant", reset_less=True)
        wild = Signal(reset_less=True)
        held = Signal(Fields, name="bias_held", reset_less=True)
        own = Signal(8, name="scale_exponent", reset_less=True)
        m.d.sync += [
            distance.eq(bias.exp - scale.exp),
            mant.eq(Mux(scale.sign, -scale.mant, scale.mant)),
            wild.eq(scale.wild | bias.wild),
            held.eq(bias),
            own.eq(scale.exp),
        ]
        amount = Signal(6, reset_less=True)
        top = Signal(9, reset_less=True)
        top_alone = Signal(9, reset_less=True)
        is_far = distance > FAR
        m.d.sync += amount.eq(Mux(is_far, 0, Mux(distance < FAR - 62, 62, FAR - distance))[:6])
        m.d.sync += top.eq(Mux(is_far, held.exp + (TOP - FAR), own + TOP))
        m.d.sync += top_alone.eq(held.exp + TOP)
        # Cycles 5 and 6: the bias moves; what leaves it is remembered in its last place. Cycle 7: with its sign.
        whole = Cat(Const(0, FAR + FRACTION), delay(m, "bias_mant", held.mant, 1))
        coarse = Signal(len(whole), reset_less=True)
        lost = Signal(reset_less=True)
        fine_amount = Signal(4, reset_less=True)
        fine = Signal(len(whole), reset_less=True)
        sign = delay(m, "bias_sign", held.sign, 3)
        with m.Switch(amount[4:]):
            for step in range(4):
                with m.Case(step):
                    m.d.sync += coarse.eq(whole[16 * step:])
                    m.d.sync += lost.eq(whole[:16 * step].any())
        m.d.sync += fine_amount.eq(amount[:4])
        moved = named(m, "moved", (coarse >> fine_amount)[:len(whole)])
        below = named(m, "below", (coarse[:15] & ((1 << fine_amount) - 1)[:15]).any())
        m.d.sync += fine.eq(Cat(moved[0] | below | lost, moved[1:]))
        addend = Signal(signed(TOTAL), reset_less=True)
        alone = Signal(signed(25), reset_less=True)
        plain = delay(m, "bias_alone", held.mant, 3)
        m.d.sync += addend.eq(Mux(sign, -fine, fine))
        m.d.sync += alone.eq(Mux(sign, -plain, plain))
        scale_mant = delay(m, "mant_line", mant, 2).as_signed()
        thrice = Signal(signed(27), reset_less=True)
        before = delay(m, "mant_before", mant, 1).as_signed()
        m.d.sync += thrice.eq(before + Cat(Const(0, 1), before).as_signed())
        return {
            "mant": scale_mant, "thrice": thrice, "addend": addend, "alone": alone,
            "top": delay(m, "top_line", top, 3), "top_alone": delay(m, "top_alone_line", top_alone, 3),
            "wild": delay(m, "wild_line", wild, 10)}
