"""Element-wise arithmetic on rows: vectors of several rows, and updates of rows by their gradients."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from hw.fp.add import Add
from hw.fp.multiply import Multiply
from hw.fp.operand import delay
from hw.isa.hotline import JOIN
from hw.place import Part, place

UPDATE = 3              # the operation besides those of JOIN
MINUS_ZERO = 0x80000000  # what changes no number that it is added to
LUT_DEPTH = 64          # as deep as one LUT memory


def reducing_layout(words: int, contexts: int, tag_bits: int) -> data.StructLayout:
    """A beat to work on.

    operation: JOIN.BEGIN: the context becomes x; ADD: context + x; MULTIPLY: context * x; UPDATE: y + rate * x, which
    leaves the contexts alone. context: which beat of the vectors under way; tag: goes with the result.
    """
    return data.StructLayout({
        "x": data.ArrayLayout(32, words), "y": data.ArrayLayout(32, words), "operation": 2,
        "context": max(1, (contexts - 1).bit_length()), "tag": tag_bits})


def reduced_layout(words: int, tag_bits: int) -> data.StructLayout:
    """A result, with its beat's tag."""
    return data.StructLayout({"words": data.ArrayLayout(32, words), "tag": tag_bits})


class ReducerLane(Part):
    """One word of a reducer: a multiplier, behind it an adder, and the word's share of the contexts.

    Parameters  contexts: as of Reducer
    Members     x, y, rate          In  words
                operation, context  In
                write, write_context  In  with a result at o
                o                   Out  word
    Timing      `latency` cycles from x to o, a word per cycle; what is written is read a cycle later
    Reset       contexts survive
    """

    latency = 1 + Multiply().latency + Add().latency

    def __init__(self, *, contexts: int):
        self.contexts = contexts
        bits = max(1, (contexts - 1).bit_length())
        super().__init__({
            "x": In(32), "y": In(32), "rate": In(32), "operation": In(2), "context": In(bits),
            "write": In(1), "write_context": In(bits), "o": Out(32)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.multiply = multiply = Multiply()
        m.submodules.add = add = Add()
        before = Signal(32)
        if self.contexts > 1:
            m.submodules.vectors = vectors = memory.Memory(
                shape=32, depth=self.contexts, init=[], attrs={"ram_style": "distributed"})
            read, write = vectors.read_port(domain="comb"), vectors.write_port()
            m.d.comb += [
                read.addr.eq(self.context),
                before.eq(read.data),
                write.addr.eq(self.write_context),
                write.data.eq(self.o),
                write.en.eq(self.write),
            ]

        updates, joins = self.operation == UPDATE, self.operation == JOIN.ADD
        x, factor, addend = (Signal(32, name=name, reset_less=True) for name in ("operand", "factor", "addend"))
        plain = Signal(reset_less=True)     # x is added as it is, not as a product
        m.d.sync += [
            x.eq(self.x),
            factor.eq(Mux(updates, self.rate, before)),
            # A product, and the row that begins a vector, go through the adder too: minus zero changes neither.
            addend.eq(Mux(updates, self.y, Mux(joins, before, MINUS_ZERO))),
            plain.eq(~self.operation[1]),
        ]
        late = delay(m, "late", Cat(x, addend), multiply.latency)
        m.d.comb += [
            multiply.x.eq(factor),
            multiply.y.eq(x),
            add.x.eq(late[32:]),
            add.y.eq(Mux(delay(m, "late_plain", plain, multiply.latency), late[:32], multiply.o)),
            self.o.eq(add.o),
        ]
        return m


class Reducer(Part):
    """Adds and multiplies rows element by element, a beat of `words` words per cycle.

    BEGIN: c = x; ADD: c = c + x; MULTIPLY: c = c * x; UPDATE: o = y + rate * x     Source: Hotline thesis, fig. 6.9
    with c the beat's context, which is also o.

    Parameters  words: of a beat, 1 to 64; contexts: beats of vectors that are under way at a time, a power of two from
                2 to 64, or 1 for updates alone; tag_bits: of what goes with a beat, 0 to 64
    Members     i_valid, i    In  see `reducing_layout`
                rate          In  a word, stands while there are updates inside
                o_valid, o    Out  see `reduced_layout`
                v_mul, v_add  Out  a beat was multiplied, added
    Shapes      a beat in, a beat out; a row of n beats has n contexts
    Timing      `latency` cycles, a beat per cycle; a context may come again `turnaround` cycles later. Counts are a
                cycle late
    Handshake   none: it never stalls, and whoever feeds it has room for what comes out
    Numerics    golden.fp.fp32.mul and add, each rounded to nearest even; subnormals count as zeros, also of a row that
                begins a vector, and every NaN becomes the one. Against golden: bit-exact
    Reset       drops beats on their way; vectors under way are lost, so the next beat of a context has to begin it
    Raises      ValueError for a parameter outside its range
    Golden      golden.hotline.reducer          Tests  verif/hotline/test_reducer.py
    """

    latency = 1 + ReducerLane.latency
    turnaround = ReducerLane.latency + 1

    def __init__(self, *, words: int, contexts: int = 1, tag_bits: int = 0):
        for name, value, low, high in (("words", words, 1, 64), ("tag_bits", tag_bits, 0, 64)):
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
        if type(contexts) is not int or not 1 <= contexts <= LUT_DEPTH or contexts & (contexts - 1):
            raise ValueError(f"contexts must be a power of two from 1 to {LUT_DEPTH}, not {contexts!r}")
        self.words = words
        self.contexts = contexts
        self.tag_bits = tag_bits
        super().__init__({
            "i_valid": In(1), "i": In(reducing_layout(words, contexts, tag_bits)), "rate": In(32),
            "o_valid": Out(1), "o": Out(reduced_layout(words, tag_bits)), "v_mul": Out(1), "v_add": Out(1)})

    def elaborate(self, platform):
        m = Module()
        i, operation = self.i, self.i.operation
        beat = Signal.like(i, reset_less=True)
        valid = Signal(self.latency)
        rate = Signal(32, reset_less=True)
        m.d.sync += [
            beat.eq(i),
            rate.eq(self.rate),
            valid.eq(Cat(self.i_valid, valid[:-1])),
            self.v_mul.eq(self.i_valid & operation[1]),
            self.v_add.eq(self.i_valid & operation[0]),
        ]
        behind = delay(m, "behind", Cat(beat.context, beat.operation != UPDATE), ReducerLane.latency)
        for k in range(self.words):
            lane = ReducerLane(contexts=self.contexts)
            place(m, platform, f"lane{k}", lane)
            m.d.comb += [
                lane.x.eq(beat.x[k]),
                lane.y.eq(beat.y[k]),
                lane.rate.eq(rate),
                lane.operation.eq(beat.operation),
                lane.context.eq(beat.context),
                lane.write.eq(valid[-1] & behind[-1]),
                lane.write_context.eq(behind[:-1]),
                self.o.words[k].eq(lane.o),
            ]
        m.d.comb += self.o_valid.eq(valid[-1])
        if self.tag_bits:
            m.d.comb += self.o.tag.eq(delay(m, "tag", beat.tag, ReducerLane.latency))
        return m
