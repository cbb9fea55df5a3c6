"""Streams lengths, indices and weights of bags in, checks every index and turns it into a token."""

from typing import Any, NamedTuple

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import read_layout
from hw.emb.cursor import Cursor
from hw.emb.row_offset import FACTOR_BITS, row_offset
from hw.emb.tokens import POSITION_BITS, above, error_layout, job_layout, token_layout
from hw.isa import EMB, LONGEST_BAG
from hw.isa.emb import MODE
from hw.place import Part
from hw.stream.fifo import Fifo

__all__ = ["IndexDecoder"]

ONE = 0x3F80_0000
# Of what was taken: an index was; the bag ends with it, and the instruction; its length is wrong, or something could
# not be read; it is a pair, of which tensor trains have the first.
FLAGS = data.StructLayout(dict.fromkeys(("needs", "ends", "final", "wrong", "unread", "pair", "tt_first"), 1))
LENGTH_BITS = LONGEST_BAG.bit_length()
BAGS_AHEAD = 16  # bags whose lengths are known before their turn
INPUTS = 1  # detail of READ_ERROR


def _late(m: Module, name: str, value, stages: int):
    """`value`, so many cycles later."""
    for at in range(stages):
        held = Signal.like(value, name=f"{name}_{at + 2}", reset_less=True)
        m.d.sync += held.eq(value)
        value = held
    return value


class _Jobs(NamedTuple):
    """What `IndexDecoder._job` hands on."""

    job: Signal
    reading: Signal
    waits: Signal
    start: Signal
    accept: Signal


class _Bags(NamedTuple):
    """What `IndexDecoder._lengths` hands on."""

    bag: Any
    bag_pop: Any
    bag_valid: Any


class _Taken(NamedTuple):
    """What `IndexDecoder._take` hands on."""

    taken: Signal
    word: Any
    tt_word: Any
    factor: Any
    tt_factor: Any
    flags: Signal


class _Index(NamedTuple):
    """What `IndexDecoder._check` hands to other methods."""

    valid: Any
    word: Any
    tt_word: Any
    flags: Any
    kind: Any
    bad: Signal


class _Placed(NamedTuple):
    """What `IndexDecoder._check` hands to other methods."""

    valid: Any
    place: Signal
    kind: Any
    ends: Any
    factor: Any
    tt_row: Any
    tt_factor: Any


class _Compared(NamedTuple):
    """What `IndexDecoder._compare` hands on."""

    factor: Any
    cut: Any
    kind: Signal
    in_dram: Signal
    in_tt: Signal
    along: Signal
    end: Signal
    above: Signal


class IndexDecoder(Part):
    """Reads the bags of one instruction after the other and makes tokens of their indices.

    token = the row's place in its memory, where offset = base + row * beats in card memory, or base + block * beats +
    (row - block) * piece where rows lie in pieces, block = row with its low log2(stripe_beats / piece) bits 0; and the
    ring position or the tensor train's row otherwise.                        Source: SCRec §III.D, Fig. 7a

    The lengths run ahead of the indices and into the next instruction, so that neither a short bag nor an
    instruction's end costs a cycle. A length that is too long, passes what is left of the indices, or is the last
    and leaves some over, is found before its bag begins.

    The tensor-train unit and card memory go on side by side, so an index of each makes a token of two where both
    stand in the inputs as a pair: the words 2k and 2k + 1 of the indices, in one bag, one of a tensor-train row, one
    of another memory.

    Parameters  beat_bytes: of the streams; row_beats_max, stripe_beats, tables: of the core; index_bits: of a TT's
                row
    Members     i_jobs      In(stream of hw.emb.tokens.job_layout)
                i_lengths, i_indices, i_weights  In(stream of hw.axi.bus.read_layout)  whole beats; what follows an
                    instruction's last word in its beat is dropped
                ring_beats  In  of the ring, a power of two if any job has a ring
                ring_mask   In  ring_beats - 1
                step        In  takes `word_now`, while no bag is under way
                word_now    Out  the next word of `i_indices`
                open        In  tokens can be taken
                o_valid     Out  there is a token
                o           Out  hw.emb.tokens.token_layout
                error       Out  of hw.emb.tokens.error_layout
                stall       Out  there is room for a token and work, but a length, an index or a weight has not come
    Shapes      n indices, p pairs among them, or one empty bag -> max(n - p, 1) tokens
    Timing      one token per cycle, over bags and instructions, but a cycle more from one instruction to the next
                where no bag has more than an index, so that lengths cannot get ahead; 6 cycles from the cycle that
                takes an index to its token; an instruction of fewer than 8 tokens takes 8 cycles
    Handshake   o cannot be refused: `open` stops it before its queues are full
    Numerics    offsets modulo 2**32, which the program's bounds keep them below
    Errors      the first bad word stops the tokens for good: INDEX_DEVICE, INDEX_RANGE, LENGTHS, READ_ERROR,
                TT_TABLE, in the order of the program; error.bag and error.index count until then and stand still after
    Reset       drops everything
    Raises      ValueError: index_bits out of range
    Golden      golden.emb.tokens, verif.emb.cycles          Tests  verif/emb/test_front.py, test_front_faults.py
    """

    def __init__(self, *, beat_bytes: int, row_beats_max: int, stripe_beats: int, tables: int, index_bits: int):
        self.beat_bytes, self.row_beats_max, self.stripe_beats = beat_bytes, row_beats_max, stripe_beats
        self.tables, self.index_bits = tables, index_bits
        if not 1 <= index_bits <= POSITION_BITS:
            raise ValueError(f"index_bits must be from 1 to {POSITION_BITS}, not {index_bits!r}")
        read = read_layout(beat_bytes)
        super().__init__({
            "i_jobs": In(stream.Signature(job_layout(row_beats_max=row_beats_max, stripe_beats=stripe_beats))),
            "i_lengths": In(stream.Signature(read)),
            "i_indices": In(stream.Signature(read)),
            "i_weights": In(stream.Signature(read)),
            "ring_beats": In(32), "ring_mask": In(32),
            "step": In(1), "word_now": Out(32),
            "open": In(1),
            "o_valid": Out(1),
            "o": Out(token_layout(row_beats_max=row_beats_max, tables=tables)),
            "error": Out(error_layout()),
            "stall": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        jobs = self._job(m)
        bags = self._lengths(m, jobs)
        index = self._take(m, jobs, bags)
        self._check(m, jobs, index)
        return m

    def _job(self, m: Module) -> _Jobs:
        """The job whose lengths are read. Stages behind keep what they need of it, from `start` on."""
        job = Signal(self.i_jobs.payload.shape(), reset_less=True)
        reading = Signal()     # lengths are left
        waits = Signal()       # no bag of the job has begun
        start = Signal(7)      # its first bag begins, and so many cycles ago
        begins = start[0]
        accept = Signal()
        m.d.comb += self.i_jobs.ready.eq(~reading & ~waits & ~start[1:].any())
        m.d.comb += accept.eq(self.i_jobs.valid & self.i_jobs.ready)
        m.d.sync += start[1:].eq(start[:-1])
        with m.If(accept):
            m.d.sync += job.eq(self.i_jobs.payload)
            m.d.sync += waits.eq(1)
        with m.Elif(begins):
            m.d.sync += waits.eq(0)
        return _Jobs(job=job, reading=reading, waits=waits, start=start, accept=accept)

    def _lengths(self, m: Module, jobs: _Jobs) -> _Bags:
        """Lengths, checked against what is left of the indices, into a queue of bags."""
        job = jobs.job
        left = Signal(32, reset_less=True)
        last = Signal(reset_less=True)
        first = Signal(reset_less=True)
        room = Signal(range(BAGS_AHEAD + 1), init=BAGS_AHEAD)
        take = Signal()
        m.d.comb += take.eq(jobs.reading & (room != 0) & (self.i_lengths.valid | job.copy))
        cursor = Cursor(m, "lengths", self.i_lengths, take=take & ~job.copy, last=last)
        with m.If(jobs.accept):
            m.d.sync += [
                left.eq(self.i_jobs.payload.count),
                last.eq(self.i_jobs.payload.count == 1),
                first.eq(1),
                jobs.reading.eq(1),
            ]
        with m.Elif(take):
            m.d.sync += [
                left.eq(left - 1),
                last.eq(left == 2),
                first.eq(0),
                jobs.reading.eq(~last),
            ]

        # The length, then what it leaves of the indices, then the verdict.
        read = Signal(3)
        length = Signal(32, name="length", reset_less=True)
        length_error = Signal(reset_less=True)
        length_first = Signal(reset_less=True)
        length_last = Signal(reset_less=True)
        m.d.sync += [
            read.eq(Cat(take, read[:-1])),
            length.eq(Mux(job.copy, 2, cursor.word)),
            length_error.eq(self.i_lengths.payload.error & ~job.copy),
            length_first.eq(first),
            length_last.eq(last),
        ]
        remains = Signal(33, reset_less=True)
        after = Signal(32, name="length_after", reset_less=True)
        after_error = Signal(reset_less=True)
        after_first = Signal(reset_less=True)
        after_last = Signal(reset_less=True)
        with m.If(read[0]):
            m.d.sync += remains.eq(Mux(length_first, job.indices, remains[:32]) - length)
        m.d.sync += after.eq(length)
        m.d.sync += Cat(after_error, after_first, after_last).eq(Cat(length_error, length_first, length_last))
        entry = Signal(self._bag_layout(), reset_less=True)
        leaves = Signal(reset_less=True)
        m.d.sync += [
            entry.length.eq(after),
            entry.none.eq(after == 0),
            entry.one.eq(after == 1),
            entry.two.eq(after == 2),
            entry.first.eq(after_first),
            entry.last.eq(after_last),
            entry.error.eq(after_error),
            entry.wrong.eq(remains[32] | above(after, LONGEST_BAG)),
            leaves.eq(after_last & (remains[:32] != 0)),
        ]
        m.submodules.bags = bags = Fifo(entry.shape(), depth=BAGS_AHEAD, register=False)
        m.d.comb += bags.i.payload.eq(entry)
        m.d.comb += bags.i.payload.wrong.eq(entry.wrong | leaves)
        m.d.comb += bags.i.valid.eq(read[2])
        m.d.sync += room.eq(room + bags.o.ready - take)
        return _Bags(bag=bags.o.payload, bag_pop=bags.o.ready, bag_valid=bags.o.valid)

    @staticmethod
    def _bag_layout():
        # none, one, two: the length is 0, 1 or 2; wrong: it does not fit the indices; error: it could not be read.
        return data.StructLayout({
            "length": 32, **dict.fromkeys(("none", "one", "two", "first", "last", "wrong", "error"), 1)})

    def _take(self, m: Module, jobs: _Jobs, bags: _Bags) -> _Taken:
        """An index or a pair per cycle out of the beats; a bag without any, or that cannot be, takes a cycle too."""
        job = jobs.job
        # What the stage needs of the job whose bag it is at.
        weighted = Signal(reset_less=True)
        mean = Signal(reset_less=True)
        copies = Signal(reset_less=True)
        one, two, last, wrong, error = (Signal(name=f"bag_{name}", reset_less=True) for name in
                                        ("one", "two", "last", "wrong", "error"))
        pair = Signal()    # the word at hand and its partner are one
        # A bag is under way and needs an index, or has none and is but a token; the index is its instruction's
        # last one, or the token is.
        needs, hollow, closes, closes_pair, closes_hollow = (Signal(name=f"bag_{name}") for name in (
            "needs", "hollow", "closes", "closes_pair", "closes_hollow"))
        some = needs | hollow
        length = Signal(32, name="bag_length", reset_less=True)
        left = Signal(LENGTH_BITS, reset_less=True)
        take = Signal()
        ends = Signal()
        load = Signal()
        taken = Signal()
        skip = Signal()
        no_index = Signal()
        m.d.comb += [
            taken.eq(needs & self.open & self.i_indices.valid & (self.i_weights.valid | ~weighted)),
            take.eq(taken | (hollow & self.open)),
            skip.eq(closes_hollow & self.open),
            ends.eq(take & (one | (pair & two))),
            load.eq(bags.bag_valid & (~some | ends)),
            bags.bag_pop.eq(load),
            jobs.start[0].eq(load & bags.bag.first),
            no_index.eq(bags.bag.none | bags.bag.wrong | bags.bag.error),
        ]
        m.d.sync += self.stall.eq(self.open & ~take & (some | jobs.reading))
        ends_region = closes | (pair & closes_pair)
        indices = Cursor(m, "indices", self.i_indices, take=taken | (self.step & self.i_indices.valid),
                         last=ends_region, skip=skip, pair=pair)
        m.d.comb += self.word_now.eq(indices.word)
        weights = Cursor(m, "weights", self.i_weights, take=taken & weighted, last=ends_region, skip=skip, pair=pair)
        words = [self.i_indices.payload.data[32 * at:32 * at + 32] for at in range(self.beat_bytes // 4)]
        of_tt = [word[POSITION_BITS:] == 1 for word in words]
        mixed = Cat(a ^ b for a, b in zip(of_tt[::2], of_tt[1::2], strict=True))
        tt_first = Array(of_tt[::2])[indices.place[1:]]
        m.d.comb += pair.eq(needs & ~one & ~copies & indices.even & Array(mixed)[indices.place[1:]])
        with m.If(load):
            m.d.sync += [
                length.eq(bags.bag.length),
                left.eq(bags.bag.length),
                last.eq(bags.bag.last),
                wrong.eq(bags.bag.wrong),
                error.eq(bags.bag.error),
                needs.eq(~no_index),
                hollow.eq(no_index),
                one.eq(bags.bag.one | no_index),
                two.eq(bags.bag.two),
                closes.eq(bags.bag.one & ~no_index & bags.bag.last),
                closes_pair.eq(bags.bag.two & ~no_index & bags.bag.last),
                closes_hollow.eq(no_index & bags.bag.last),
            ]
        with m.Elif(ends):
            m.d.sync += [
                needs.eq(0),
                hollow.eq(0),
                closes.eq(0),
                closes_pair.eq(0),
                closes_hollow.eq(0),
            ]
        with m.Elif(take):
            now_one, now_two = left == Mux(pair, 3, 2), left == Mux(pair, 4, 3)
            m.d.sync += [
                left.eq(left - 1 - pair),
                one.eq(now_one),
                two.eq(now_two),
                closes.eq(now_one & last),
                closes_pair.eq(now_two & last),
            ]
        with m.If(jobs.start[0]):
            m.d.sync += weighted.eq(job.weighted)
            m.d.sync += mean.eq(job.mode == MODE.MEAN)
            m.d.sync += copies.eq(job.copy)

        # What was taken. A token has two lanes, of memories with rows and of tensor trains; an index by itself goes
        # through both, and what it says of its memory tells which of them counts.
        taken_late = Signal(name="taken")
        word, tt_word = Signal(32, name="index", reset_less=True), Signal(32, name="tt_index", reset_less=True)
        factor, tt_factor = (Signal(32, name=name, reset_less=True) for name in ("factor", "tt_factor"))
        flags = Signal(FLAGS, name="flags", reset_less=True)
        index, tt_index, weight, tt_weight = (
            Mux(pair & second, cursor.partner, cursor.word)
            for cursor in (indices, weights) for second in (tt_first, ~tt_first))
        m.d.sync += [
            taken_late.eq(take),
            word.eq(Mux(wrong, length, index)),
            tt_word.eq(tt_index),
            factor.eq(Mux(mean, length[:LENGTH_BITS], Mux(weighted, weight, ONE))),
            tt_factor.eq(Mux(mean, length[:LENGTH_BITS], Mux(weighted, tt_weight, ONE))),
            flags.needs.eq(needs),
            flags.ends.eq(ends),
            flags.final.eq(ends & last),
            flags.wrong.eq(wrong & ~error),
            flags.unread.eq(error | (needs & (self.i_indices.payload.error
                                              | (weighted & self.i_weights.payload.error)))),
            flags.pair.eq(pair),
            flags.tt_first.eq(tt_first),
        ]
        return _Taken(taken=taken_late, word=word, tt_word=tt_word, factor=factor, tt_factor=tt_factor,
                      flags=flags)

    def _check(self, m: Module, jobs: _Jobs, index: _Taken) -> None:
        """Stages 1 to 5: device and range, place in memory, verdict."""
        def kept(name, value, cycles):
            """`value` of the job, from as many cycles after `start` on."""
            held = Signal.like(value, name=f"job_{name}", reset_less=True)
            with m.If(jobs.start[cycles]):
                m.d.sync += held.eq(value)
            return held

        compared = self._compare(m, jobs.job, index, kept)
        lows, upper = row_offset(m, index.word[:POSITION_BITS], compared.factor, compared.cut)

        # Stage 2: the ring, now that position and end are there.
        span, ring = kept("span", jobs.job.span, 2), kept("ring", jobs.job.ring, 2)
        in_span = Signal(reset_less=True)
        wraps = Signal(reset_less=True)
        m.d.sync += in_span.eq((compared.along <= span) & ring)
        m.d.sync += wraps.eq((compared.end & self.ring_beats[:POSITION_BITS + 1]).any())
        kind_2, above_2 = _late(m, "kind", compared.kind, 1), _late(m, "above", compared.above, 1)
        in_dram_2, in_tt_2 = _late(m, "in_dram", compared.in_dram, 1), _late(m, "in_tt", compared.in_tt, 1)

        # Stage 3: a verdict of either lane. The upper bits of the product are added to what the DSP has of them.
        loaded = kept("loaded", jobs.job.loaded, 3)
        bad = Signal(data.StructLayout(dict.fromkeys(("outside", "tt_outside", "absent"), 1)), reset_less=True)
        above_low = Signal(len(upper), reset_less=True)
        kind_3 = _late(m, "kind_of", kind_2, 1)
        m.d.sync += bad.outside.eq(above_2 | (kind_2[0] & ~in_dram_2) | (kind_2[2] & (~in_span | wraps)))
        m.d.sync += bad.tt_outside.eq(kind_2[1] & ~in_tt_2)
        m.d.sync += bad.absent.eq(kind_2[1] & ~loaded)
        m.d.sync += above_low.eq(upper)
        flags_3 = _late(m, "flags", index.flags, 3)
        word_3, factor_3 = _late(m, "word", index.word, 3), _late(m, "factor", index.factor, 3)
        tt_word_3 = _late(m, "tt_word", index.tt_word, 3)
        valid = Signal(3)
        m.d.sync += valid.eq(Cat(index.taken, valid[:-1]))

        # Stage 4: offset before the base is added; the first error stops all that follows.
        goes, kind_4, ends_4 = self._verdict(m, jobs, kept, _Index(
            valid=valid[2], word=word_3, tt_word=tt_word_3, flags=flags_3, kind=kind_3, bad=bad))
        to_memory = Signal(32, reset_less=True)
        m.d.sync += to_memory.eq(Mux(kind_3[0], Cat(lows[:FACTOR_BITS], lows[FACTOR_BITS:] + above_low),
                                     word_3[:POSITION_BITS]))
        self._token(m, jobs, kept, _Placed(
            valid=goes, place=to_memory, kind=kind_4, ends=ends_4, factor=_late(m, "factor_last", factor_3, 1),
            tt_row=_late(m, "tt_row", tt_word_3[:POSITION_BITS], 1),
            tt_factor=_late(m, "tt_factor", index.tt_factor, 4)))

    def _compare(self, m: Module, job, index: _Taken, kept) -> _Compared:
        """Stage 1: comparisons, and the factors of row * beats."""
        row, device = index.word[:POSITION_BITS], index.word[POSITION_BITS:]
        tt_row, tt_device = index.tt_word[:POSITION_BITS], index.tt_word[POSITION_BITS:]
        copy = kept("copy", job.copy, 1)
        dram_rows, tt_rows = kept("dram_rows", job.dram_rows, 1), kept("tt_rows", job.tt_rows, 1)
        ring_first, beats = kept("ring_first", job.first, 1), kept("beats", job.beats, 1)
        factor, cut = kept("factor", job.beats + 1, 1), kept("cut", job.cut, 1)
        second = Signal()  # word of a pair of a FILL
        with m.If(index.taken):
            m.d.sync += second.eq(~index.flags.ends)
        to_dram = Mux(copy, second, device == 0)
        to_ssd = Mux(copy, ~second, device == 2)
        kind = Signal(4, name="kind_1", reset_less=True)   # dram, tt, ssd, none of them
        in_dram = Signal(reset_less=True)
        in_tt = Signal(reset_less=True)
        along = Signal(POSITION_BITS, reset_less=True)
        end = Signal(POSITION_BITS + 1, reset_less=True)
        above = Signal(reset_less=True)  # the device bits of a pair's word are not zero
        m.d.sync += [
            kind.eq(Cat(to_dram, ~copy & (tt_device == 1), to_ssd, ~copy & (device == 3))
                    & index.flags.needs.replicate(4)),
            in_dram.eq(row < dram_rows),
            in_tt.eq((tt_row < tt_rows) & (tt_row[self.index_bits:] == 0)),
            along.eq(row - ring_first),
            end.eq((row & self.ring_mask) + beats),
            above.eq(copy & (device != 0)),
        ]
        return _Compared(factor=factor, cut=cut, kind=kind, in_dram=in_dram, in_tt=in_tt, along=along, end=end,
                         above=above)

    def _token(self, m: Module, jobs: _Jobs, kept, stage: _Placed) -> None:
        """Stage 5: the token."""
        job, start = jobs.job, jobs.start
        base = kept("base", job.dram_base, 5)
        out, stride = Signal(32, name="job_out", reset_less=True), kept("stride", job.stride, 6)
        m.d.sync += [
            self.o_valid.eq(stage.valid),
            self.o.offset.eq(stage.place + (base & stage.kind[0].replicate(32))),
            Cat(self.o.dram, self.o.tt, self.o.ssd).eq(stage.kind[:3]),
            self.o.factor.eq(stage.factor),
            self.o.tt_row.eq(stage.tt_row),
            self.o.tt_factor.eq(stage.tt_factor),
            Cat(self.o.last, self.o.final).eq(stage.ends),
        ]
        with m.If(start[6]):
            m.d.sync += out.eq(job.out)
        with m.Elif(self.o_valid & self.o.last):
            m.d.sync += out.eq(out + stride)
        m.d.comb += self.o.out.eq(out)
        for name, source in (("copy", job.copy), ("mode", job.mode), ("weighted", job.weighted), ("format", job.format),
                             ("row_format", job.row_format), ("beats", job.beats), ("piece", job.piece),
                             ("vector", job.vector), ("table", job.table),
                             ("chunk", job.chunk), ("number", job.number)):
            m.d.comb += self.o[name].eq(kept(f"token_{name}", source, 6))

    def _verdict(self, m: Module, jobs: _Jobs, kept, stage: _Index) -> tuple[Signal, Signal, Signal]:
        """Counts bags and indices and keeps the first error. Returns, of the next stage: there is a token, which
        memories have a row of it, and whether bag and instruction end with it. Of a pair whose second index is the
        first error the first one is a token by itself."""
        job, error, flags, kind, bad = jobs.job, self.error, stage.flags, stage.kind, stage.bad
        bag, index = Signal(32, name="bag_number", reset_less=True), Signal(32, name="index_number", reset_less=True)
        number, table = kept("number", job.number, 4), kept("table", job.table, 4)
        any_bad = Signal()
        row_bad = Signal()
        tt_bad = Signal()
        tt_worse = Signal()
        first_good = Signal()
        m.d.comb += [
            error.bag.eq(bag),
            error.index.eq(index),
            row_bad.eq(kind[3] | bad.outside),
            tt_bad.eq(bad.tt_outside | bad.absent),
            tt_worse.eq(tt_bad & (flags.tt_first | ~row_bad)),
            any_bad.eq(flags.unread | flags.wrong | row_bad | tt_bad),
            first_good.eq(flags.pair & ~flags.unread & ~Mux(flags.tt_first, tt_bad, row_bad)),
        ]
        with m.If(~error.valid):
            with m.If(stage.valid & any_bad):
                m.d.sync += error.valid.eq(1)
                m.d.sync += error.instruction.eq(number)
                m.d.sync += index.eq(index + first_good)
            with m.Elif(jobs.start[4]):
                m.d.sync += bag.eq(0)
                m.d.sync += index.eq(0)
            with m.Elif(stage.valid):
                m.d.sync += bag.eq(bag + flags.ends)
                m.d.sync += index.eq(index + flags.needs + flags.pair)
            m.d.sync += error.detail.eq(Mux(tt_worse, stage.tt_word, stage.word))
            with m.If(flags.unread):
                m.d.sync += error.code.eq(EMB.code("READ_ERROR"))
                m.d.sync += error.detail.eq(INPUTS)
            with m.Elif(flags.wrong):
                m.d.sync += error.code.eq(EMB.code("LENGTHS"))
            with m.Elif(kind[3] & ~tt_worse):
                m.d.sync += error.code.eq(EMB.code("INDEX_DEVICE"))
            with m.Elif(tt_worse & ~bad.tt_outside):
                m.d.sync += error.code.eq(EMB.code("TT_TABLE"))
                m.d.sync += error.detail.eq(table)
            with m.Else():
                m.d.sync += error.code.eq(EMB.code("INDEX_RANGE"))

        goes = Signal(name="goes")
        kinds, ends = Signal(3, name="kind_4", reset_less=True), Signal(2, name="ends_4", reset_less=True)
        m.d.sync += goes.eq(stage.valid & ~error.valid & (~any_bad | first_good))
        m.d.sync += kinds.eq(Cat(kind[0] & ~row_bad, kind[1] & ~tt_bad, kind[2] & ~row_bad))
        m.d.sync += ends.eq(Cat(flags.ends, flags.final) & (~any_bad).replicate(2))
        return goes, kinds, ends
