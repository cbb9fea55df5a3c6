"""Puts the vectors of a bag's tiers together and hands the bag's vector to the writer."""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import data_layout, request_layout
from hw.emb.config import EmbConfig
from hw.emb.packer import Packer, form_layout
from hw.emb.pooling import ONE, PoolingUnit
from hw.emb.write_joiner import WriteJoiner
from hw.fp.reciprocal import COUNT_BITS, KNOWN, Reciprocal, reciprocal_word
from hw.isa import EMB
from hw.isa.emb import FORMAT, MODE
from hw.place import Part, place
from hw.stream.fifo import Fifo


class From(enum.Enum, shape=2):
    """Where the words of a beat come from."""

    NOTHING = 0
    TT = 1
    DRAM = 2
    SSD = 3


def step_layout(config: EmbConfig) -> data.StructLayout:
    """What a bag takes next, in order.

    tt: one vector of the TT unit; end: the bag ends with this step; dram, ssd (only with end): then the partial
    vector of that tier; first: the bag begins with this step; mode: see MODE; weighted: `factor` is the
    weight of the TT vector; format: see FORMAT; factor: with MEAN the bag's indices as an integer, up to 2^16; beats:
    of a vector in FP32, less 1; out: beats from the outputs' base to the bag's vector; last: the instruction ends with
    this step; instruction: its number, for faults.
    """
    return data.StructLayout({
        "tt": 1, "dram": 1, "ssd": 1, "first": 1, "end": 1, "mode": 2, "weighted": 1, "format": 2, "factor": 32,
        "beats": max(config.context_log2, 1), "out": 32, "last": 1, "instruction": 32})


def partial_layout(config: EmbConfig) -> data.StructLayout:
    """A beat of a tier's partial vector. error: a row of it could not be read."""
    return data.StructLayout({"words": data.ArrayLayout(32, config.words), "error": 1})


def vector_layout(config: EmbConfig) -> data.StructLayout:
    """A beat of a vector of the TT unit. error: valid with last, the vector cannot be trusted."""
    return data.StructLayout({"words": data.ArrayLayout(32, config.words), "last": 1, "error": 1})


class Fault(data.Struct):
    """code: as in the result block; bag: its number within the instruction."""

    code: 8
    instruction: 32
    bag: 32


class _Beat(NamedTuple):
    """What `PostPool.elaborate` hands to other methods."""

    fire: Signal
    value: Signal
    plain: Signal
    first: Signal
    last: Value


class PostPool(Part):
    """Puts a bag's vectors together and hands the bag to the writer, bag by bag.

    o[d] = sum_p f[p] partial[p, d], p: the bag's tensor-train vectors in order, card memory's, the SSD's; or their
    maximum.                                                           Source: SCRec §III.E, post-pooling

    Parameters  config: EmbConfig
    Members     i_steps             In(stream)  what a bag takes next, see `step_layout`
                i_tt, i_dram, i_ssd  In(stream)  whole vectors, each as the steps ask for it
                outputs             In  the outputs' address in bytes
                o_requests, o_data  Out(stream)  requests and their beats; bags behind one another share one, see
                    WriteJoiner
                written             In  a pulse as a request has been written
                done                Out  bags that have been written in this cycle
                instruction_done    Out  with the done of an instruction's last bag
                fault_valid, fault  Out  a pulse and its `Fault`, at most one per cycle
    Shapes      p vectors (D,) -> (D,) a bag, in beats of `words` words, or 2 `words` of half precision
    Timing      a beat of a vector per cycle, none lost between vectors, steps or bags; but a mean of KNOWN or more
                indices waits up to 45 cycles for its factor, less than its indices took to come in. o_data is
                PoolingUnit.latency cycles behind the beat that ends a bag, in half precision Packer.latency more; as
                many are lost where a bag in FP32 follows one in half precision
    Handshake   o_data is not held back: beats that are not yet written are at most config.output_beats, so a queue of
                that depth behind it is always ready, and so many bags are not yet written at most.
                i_dram and i_ssd are ready only while they are valid; the inputs' ready depends on i_steps' state
    Numerics    golden.emb.pooling.combine: f = 1, golden.fp.fp32.div(1, n) for a mean, or a tensor-train row's
                weight; a bag of no vectors is +0; then golden.emb.packer. Bit-exact
    Faults      READ_ERROR: a tier's vector is marked; TT_MEMORY: the tensor train's is. The bag is written
                nevertheless. All vectors have `beats` beats: the program has seen to it
    Reset       drops everything; credits for the queue behind are full again
    Golden      golden.emb.pooling.bag          Tests  verif/emb/test_post_pool.py
    """

    def __init__(self, config: EmbConfig):
        self.config = config
        super().__init__({
            "i_steps": In(stream.Signature(step_layout(config))),
            "i_dram": In(stream.Signature(partial_layout(config))),
            "i_ssd": In(stream.Signature(partial_layout(config))),
            "i_tt": In(stream.Signature(vector_layout(config))),
            "outputs": In(64),
            "o_requests": Out(stream.Signature(request_layout())),
            "o_data": Out(stream.Signature(data_layout(config.beat_bytes))),
            "written": In(1),
            "done": Out(config.write_block_beats.bit_length()),
            "instruction_done": Out(1),
            "fault_valid": Out(1),
            "fault": Out(Fault),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config

        # -- The step under way and the one behind it, whose factor is made ready.
        step = Signal(step_layout(config), reset_less=True)
        held = Signal()
        value = Signal(32, reset_less=True)
        taken = Signal()  # the step under way ends, or there is none
        is_half = held & (step.format != FORMAT.FLOAT32)
        following, ready, factor = self._prepare(m, platform, taken, is_half)

        # -- Its vectors one after the other, their beats one after the other.
        source = Signal(From)
        dram_left = Signal(reset_less=True)
        ssd_left = Signal(reset_less=True)
        plain = Signal(reset_less=True)     # the factor is 1
        first = Signal(reset_less=True)
        beat = Signal(len(step.beats))
        final = Signal(reset_less=True)     # the vector's last beat
        may = Signal()                      # room for what this beat brings
        fire = Signal()
        # Of each source by itself: what it answers goes on to the enables of its queue's memories.
        takes = {which: Signal(name=f"takes_{which.name.lower()}") for which in From}  # type: ignore[attr-defined]
        for which, there in ((From.NOTHING, 1), (From.TT, self.i_tt.valid), (From.DRAM, self.i_dram.valid),
                             (From.SSD, self.i_ssd.valid)):
            m.d.comb += takes[which].eq(held & may & (source == which) & there)
        more = dram_left | ssd_left
        ends = Signal()
        m.d.comb += [
            fire.eq(Cat(takes.values()).any()),
            ends.eq(fire & final & ~more),
            taken.eq(ends | ~held),
            self.i_tt.ready.eq(takes[From.TT]),
            self.i_dram.ready.eq(takes[From.DRAM]),
            self.i_ssd.ready.eq(takes[From.SSD]),
        ]
        with m.If(fire):
            m.d.sync += beat.eq(Mux(final, 0, beat + 1))
            m.d.sync += final.eq((beat + 1)[:len(beat)] == step.beats)
        with m.If(fire & final):
            m.d.sync += [
                final.eq(step.beats == 0),
                first.eq(0),
                plain.eq(step.weighted),
                source.eq(Mux(dram_left, From.DRAM, From.SSD)),
                dram_left.eq(0),
                ssd_left.eq(dram_left & ssd_left),
            ]
        with m.If(taken):
            m.d.sync += [
                held.eq(ready),
                step.eq(following),
                value.eq(factor),
                source.eq(Mux(following.tt, From.TT, Mux(following.dram, From.DRAM,
                                                         Mux(following.ssd, From.SSD, From.NOTHING)))),
                dram_left.eq(following.dram & following.tt),
                ssd_left.eq(following.ssd & (following.tt | following.dram)),
                plain.eq(~following.tt & (following.weighted | ~(following.dram | following.ssd))),
                first.eq(following.first),
                final.eq(following.beats == 0),
            ]

        last = step.end & ~more
        form = self._pool(m, platform, step, source, beat, final, _Beat(
            fire=fire, value=value, plain=plain, first=first, last=last))
        # In half precision two beats leave as one.
        leaves = (step.format == FORMAT.FLOAT32) | form.odd | form.last
        self._account(m, step, fire & last & leaves, ends & step.end, may)
        self._fault(m, step, takes, final, ends & step.end)
        return m

    def _pool(self, m: Module, platform, step, source: Signal, beat: Signal, final: Signal, at: _Beat):
        """The beat that is taken on its way to the writer; what it is there."""
        config = self.config
        form = Signal(form_layout())
        pool = PoolingUnit(words=config.words, contexts_log2=max(config.context_log2, 1), tag_bits=form.shape().size,
                           lut_products=config.lut_products, family=config.tt.family)
        place(m, platform, "pool", pool)
        packer = Packer(words=config.words)
        place(m, platform, "packer", packer)
        words = Signal(32 * config.words)
        with m.Switch(source):
            for name, port in ((From.TT, self.i_tt), (From.DRAM, self.i_dram), (From.SSD, self.i_ssd)):
                with m.Case(name):
                    m.d.comb += words.eq(port.payload.words.as_value())
        m.d.comb += [
            pool.i_valid.eq(at.fire),
            pool.i.words.eq(words),
            pool.i.weight.eq(Mux(at.plain, ONE, at.value)),
            pool.i.context.eq(beat),
            pool.i.first.eq(at.first),
            pool.i.last.eq(at.last),
            pool.i.maximum.eq(step.mode == MODE.MAX),
            form.format.eq(step.format),
            form.odd.eq(beat[0]),
            form.last.eq(final),
            pool.i.tag.eq(form.as_value()),
            packer.i_valid.eq(pool.o_valid),
            packer.i.eq(pool.o.words),
            packer.form.eq(pool.o.tag),
            self.o_data.valid.eq(packer.o_valid),
            self.o_data.payload.data.eq(packer.o),
        ]
        return form

    def _prepare(self, m: Module, platform, taken: Signal, is_half: Value):
        """The next step, whether it may begin, and its factor. is_half: the step under way is in half precision."""
        following = Signal(step_layout(self.config), reset_less=True)
        valid = Signal()
        mean = following.mode == MODE.MEAN
        count = following.factor[:COUNT_BITS]
        few = Signal()
        known = Signal(32)  # few of its bits depend on more than six others: a LUT each
        m.d.comb += few.eq(~count[6:].any())
        with m.Switch(count[:6]):
            for number in range(KNOWN):
                with m.Case(number):
                    m.d.comb += known.eq(reciprocal_word(number))
        divide = Reciprocal()
        place(m, platform, "divide", divide)
        # FP32 would overtake what half precision has before it in the packer.
        leaving = Signal(Packer.latency - 1)
        clash = Signal()
        m.d.sync += leaving.eq(Cat(is_half, leaving))
        m.d.comb += clash.eq((following.format == FORMAT.FLOAT32) & (is_half | leaving.any()))
        asked = Signal()  # the quotient of this bag, there or on its way
        ready = Signal()
        move = Signal()
        factor = Signal(32)
        m.d.comb += [
            divide.start.eq(valid & mean & ~few & ~asked),
            divide.n.eq(count),
            ready.eq(valid & (~mean | few | (asked & divide.done)) & ~clash),
            move.eq(ready & taken),
            self.i_steps.ready.eq(~valid | move),
            factor.eq(Mux(mean, Mux(few, known, divide.o), Mux(following.weighted, following.factor, ONE))),
        ]
        with m.If(divide.start):
            m.d.sync += asked.eq(1)
        with m.If(self.i_steps.ready):
            m.d.sync += following.eq(self.i_steps.payload)
            m.d.sync += valid.eq(self.i_steps.valid)
            with m.If(self.i_steps.valid & self.i_steps.payload.first):
                m.d.sync += asked.eq(0)
        return following, ready, factor

    def _account(self, m: Module, step, used, bag_ends, may) -> None:
        """Requests, what waits to be written, and the room for it."""
        depth = self.config.output_beats
        m.submodules.joiner = joiner = WriteJoiner(
            beats_max=self.config.row_beats_max, block_beats=self.config.write_block_beats)
        together = joiner.o.shape()
        waiting = Fifo(data.StructLayout({name: together[name].shape for name in ("out", "beats")}), depth=depth)
        under_way = Fifo(data.StructLayout({name: together[name].shape for name in ("beats", "bags", "last")}),
                         depth=depth)
        m.submodules.waiting, m.submodules.under_way = waiting, under_way
        shift = self.config.beat_log2
        # A bag has a beat or more, so there is room in both while there is room for its beats. The joiner holds less
        # than a block and two blocks fit the queue: when all else is written there is room for the bag that lets it go.
        m.d.comb += [
            joiner.valid.eq(bag_ends),
            joiner.i.out.eq(step.out),
            joiner.i.beats.eq(Mux(step.format == FORMAT.FLOAT32, step.beats, step.beats[1:])),
            joiner.i.last.eq(step.last),
            waiting.i.valid.eq(joiner.o_valid),
            *(waiting.i.payload[name].eq(joiner.o[name]) for name in ("out", "beats")),
            under_way.i.valid.eq(joiner.o_valid),
            *(under_way.i.payload[name].eq(joiner.o[name]) for name in ("beats", "bags", "last")),
            self.o_requests.valid.eq(waiting.o.valid),
            waiting.o.ready.eq(self.o_requests.ready),
            self.o_requests.payload.address.eq(self.outputs + Cat(Const(0, shift), waiting.o.payload.out)),
            self.o_requests.payload.beats.eq(waiting.o.payload.beats),
            under_way.o.ready.eq(self.written),
        ]
        credits = Signal(range(depth + 1), init=depth)
        back = Signal(len(joiner.o.beats))
        back_less = Signal(signed(len(back) + 1), init=-1)
        m.d.sync += [
            self.done.eq(Mux(self.written, under_way.o.payload.bags, 0)),
            self.instruction_done.eq(self.written & under_way.o.payload.last),
            back.eq(Mux(self.written, under_way.o.payload.beats, 0)),
            back_less.eq(Mux(self.written, under_way.o.payload.beats, 0) - 1),
            credits.eq(credits + Mux(used, back_less, back)),
            # Room for another beat behind this one. What comes back in this cycle counts from the next on.
            may.eq((credits[1:] != 0) | (credits[0] & ~used)),
        ]

    def _fault(self, m: Module, step, takes, final, bag_ends) -> None:
        bag = Signal(32)
        with m.If(bag_ends):
            m.d.sync += bag.eq(Mux(step.last, 0, bag + 1))
        unread = Signal()
        unfit = Signal()
        m.d.comb += unfit.eq(takes[From.TT] & self.i_tt.payload.last & self.i_tt.payload.error)
        m.d.comb += unread.eq(final & ((takes[From.DRAM] & self.i_dram.payload.error)
                                       | (takes[From.SSD] & self.i_ssd.payload.error)))
        m.d.sync += [
            self.fault_valid.eq(unread | unfit),
            self.fault.code.eq(Mux(unread, EMB.code("READ_ERROR"), EMB.code("TT_MEMORY"))),
            self.fault.instruction.eq(step.instruction),
            self.fault.bag.eq(bag),
        ]
