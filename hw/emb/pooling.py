"""Pools rows beat by beat: FP32 sums with a weight a row, or maxima, of many vectors at a time."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from hw.fp.logic import named
from hw.fp.operand import Operand, delay, unpack
from hw.fp.running import RunningSums
from hw.place import Part, place

ONE = 0x3F800000


def pooling_layout(words: int, contexts_log2: int, tag_bits: int) -> data.StructLayout:
    """A beat of a row.

    weight: of the whole row, left aside with `maximum`; context: which running vector it goes into; first: the context
    starts anew with it; last: the context's value leaves after it; maximum: pools by maximum instead of sum, the same
    for all beats of a vector; tag: goes with what leaves.
    """
    return data.StructLayout({
        "words": data.ArrayLayout(32, words), "weight": 32, "context": contexts_log2, "first": 1, "last": 1,
        "maximum": 1, "tag": tag_bits})


def pooled_layout(words: int, tag_bits: int) -> data.StructLayout:
    """A beat of a pooled vector, with the tag of the beat that was its last."""
    return data.StructLayout({"words": data.ArrayLayout(32, words), "tag": tag_bits})


class PoolingLane(Part):
    """One word of a pooling unit: running sums that, for a maximum, a larger word replaces.

    Parameters  as of PoolingUnit
    Members     word    In  of a row, a cycle ahead of what goes with it
                weight  In  unpacked
                context, first, maximum  In  of the word's beat
                valid   In  there is a word
                o       Out  word
    Timing      `latency` cycles from word to o, a beat per cycle
    Numerics    a maximum starts its sum anew with every word above those so far, as a product with 1.0, and passes the
                others over; a NaN counts as positive, which puts it above infinity
    Reset       contexts survive
    """

    def __init__(self, *, contexts_log2: int, terms_log2: int, lut_product: bool, family: str = "any"):
        self.contexts_log2 = contexts_log2
        self._sums = RunningSums(contexts_log2=contexts_log2, terms_log2=terms_log2, lut_product=lut_product,
                                 family=family)
        self.latency = 1 + self._sums.latency
        super().__init__({
            "word": In(32), "weight": In(Operand), "context": In(contexts_log2), "first": In(1), "maximum": In(1),
            "valid": In(1), "o": Out(32)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sums = sums = self._sums

        word = Signal(32, reset_less=True)
        zero, special, nan, negative = (Signal(name=name, reset_less=True)
                                        for name in ("zero", "special", "nan", "negative"))
        all_ones = named(m, "all_ones", self.word[23:31].all())
        any_nan = named(m, "any_nan", all_ones & self.word[:23].any())
        m.d.sync += [
            word.eq(self.word),
            zero.eq(~self.word[23:31].any()),
            special.eq(all_ones),
            nan.eq(any_nan),
            negative.eq(self.word[31] & ~any_nan),
        ]

        # Subnormals are ordered as they are: a larger one is no smaller when flushed, and the flush comes behind.
        largest = memory.Memory(shape=32, depth=1 << self.contexts_log2, init=[], attrs={"ram_style": "distributed"})
        m.submodules.largest = largest
        read, write = largest.read_port(domain="comb"), largest.write_port()
        before, negative_before = read.data[:31], read.data[31]
        above = named(m, "above", word[:31] > before)
        take = named(m, "take", self.first | Mux(negative == negative_before, above ^ negative, negative_before))
        m.d.comb += [
            read.addr.eq(self.context),
            write.addr.eq(self.context),
            write.data.eq(Cat(word[:31], negative)),
            write.en.eq(self.valid & self.maximum & take),
        ]

        skip = named(m, "skip", ~self.valid | (self.maximum & ~take))
        x = sums.x
        m.d.comb += [
            # Only the flag counts of a zero's or subnormal's bits.
            x.mant.eq(Cat(word[:22], Mux(special, nan, word[22]))),
            x.exp.eq(word[23:31]),
            x.sign.eq(word[31]),
            x.zero.eq(zero | skip),
            x.special.eq(special | skip),
            sums.y.eq(self.weight),
            sums.context.eq(self.context),
            sums.first.eq(self.valid & Mux(self.maximum, take, self.first)),
            sums.copy.eq(self.maximum),
            self.o.eq(sums.o),
        ]
        return m


class PoolingUnit(Part):
    """Pools the rows of bags, `words` words per beat; several vectors may be under way in turns.

    o[d] = sum_k weight[k] * v[k, d], k ascending, or max_k v[k, d].     Source: SCRec §III.E, Fig. 7a

    Parameters  words: of a beat, 1..64; contexts_log2: 2^contexts_log2 beats of vectors are under way at a time, 1..8;
                tag_bits: what goes with a beat; terms_log2: a sum has at most 2^terms_log2 rows, 0..16;
                lut_products: words that multiply with one DSP and LUTs instead of two DSPs, 0..words;
                family: see FusedDot
    Members     i_valid, i  In  beats, see `pooling_layout`
                o_valid, o  Out  pooled beats, see `pooled_layout`
    Shapes      rows of (D,), a beat of `words` words in a context of its own -> (D,), a beat at `last`
    Timing      o is `latency` cycles behind the beat with `last`; one beat per cycle, whatever its context: the same
                may come back to back
    Handshake   none: it never stalls, and whoever feeds it has room for what comes out
    Numerics    a word's sum is golden.fp.fp32.dot with one term per beat: rounded once, subnormals flushed, an exact
                zero is +0. A maximum is golden.fp.fp32.maximum, row by row: NaN if there is one, +0 above -0. Bit-exact
    Reset       drops beats on their way to o; vectors under way are lost, so the next beat has to be a first
    Raises      ValueError for a parameter outside its range
    Golden      golden.emb.pooling.pool          Tests  verif/emb/test_pooling.py
    """

    def __init__(self, *, words: int, contexts_log2: int, tag_bits: int, terms_log2: int = 16, lut_products: int = 0,
                 family: str = "any"):
        for name, value, low, high in (("words", words, 1, 64), ("contexts_log2", contexts_log2, 1, 8),
                                       ("tag_bits", tag_bits, 0, 64), ("terms_log2", terms_log2, 0, 16),
                                       ("lut_products", lut_products, 0, words)):
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"{name} is {value!r}, must be a whole number from {low} to {high}")
        self.words = words
        self.contexts_log2 = contexts_log2
        self.tag_bits = tag_bits
        self.terms_log2 = terms_log2
        self.lut_products = lut_products
        self.family = family
        super().__init__({
            "i_valid": In(1),
            "i": In(pooling_layout(words, contexts_log2, tag_bits)),
            "o_valid": Out(1),
            "o": Out(pooled_layout(words, tag_bits)),
        })

    def _lane(self, lut_product: bool) -> PoolingLane:
        return PoolingLane(contexts_log2=self.contexts_log2, terms_log2=self.terms_log2, lut_product=lut_product,
                           family=self.family)

    @property
    def latency(self) -> int:
        """Cycles from the beat with `last` to its vector's beat at `o`."""
        return 1 + self._lane(self.lut_products > 0).latency

    def elaborate(self, platform):
        m = Module()
        words = Signal(data.ArrayLayout(32, self.words), reset_less=True)
        # What goes with the words reaches the lanes a cycle behind them.
        valid = Signal(2)
        layout = data.StructLayout({"context": self.contexts_log2, "first": 1, "maximum": 1})
        control = Signal(layout, reset_less=True)
        late_control = Signal(layout, reset_less=True)
        pattern = Signal(32, reset_less=True)
        weight = Signal(Operand, reset_less=True)
        m.d.sync += [
            words.eq(self.i.words),
            valid.eq(Cat(self.i_valid, valid[0])),
            *(getattr(control, name).eq(getattr(self.i, name)) for name in ("context", "first", "maximum")),
            late_control.eq(control),
            pattern.eq(Mux(self.i.maximum, ONE, self.i.weight)),
            weight.eq(unpack(pattern)),
        ]
        for k in range(self.words):
            lane = self._lane(k < self.lut_products)
            place(m, platform, f"lane{k}", lane)
            late = self.latency - 1 - lane.latency
            m.d.comb += [
                lane.word.eq(words[k]),
                lane.weight.eq(weight),
                lane.context.eq(late_control.context),
                lane.first.eq(late_control.first),
                lane.maximum.eq(late_control.maximum),
                lane.valid.eq(valid[1]),
                self.o.words[k].eq(delay(m, f"word{k}", lane.o, late)),
            ]
        # What says that there is a beat has a reset; what goes with it has none.
        leaving = Signal(self.latency)
        m.d.sync += leaving.eq(Cat(self.i_valid & self.i.last, leaving[:-1]))
        m.d.comb += self.o_valid.eq(leaving[-1])
        m.d.comb += self.o.tag.eq(delay(m, "tag", self.i.tag, self.latency) if self.tag_bits else Const(0, 0))
        return m
