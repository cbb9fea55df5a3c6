"""Streams lengths, indices and weights of bags in, checks every index and turns it into a token."""

from collections.abc import Callable
from typing import NamedTuple

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
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

ONE = 0x3F80_0000
# Of what a cycle took. index: there is one, or a pair; ends_bag, ends_job: the bag, the instruction ends with it;
# length_error: the bag's length is wrong; read_error: a read failed; tt_first: the pair's first word is the TT's.
FLAGS = data.StructLayout(dict.fromkeys(
    ("index", "ends_bag", "ends_job", "length_error", "read_error", "pair", "tt_first"), 1))
LENGTH_BITS = LONGEST_BAG.bit_length()
BAGS_AHEAD = 16  # bags whose lengths are known before their turn
INPUTS = 1  # detail of READ_ERROR


def _delay(m: Module, name: str, value, stages: int):
    """`value`, that many cycles later."""
    for stage in range(stages):
        register = Signal.like(value, name=f"{name}_{stage + 2}", reset_less=True)
        m.d.sync += register.eq(value)
        value = register
    return value


class _Job(NamedTuple):
    """The job whose lengths are read. accept: it comes; reading: lengths are left; waiting: its first bag has not
    begun; start: its first bag begins, and began 1 to 6 cycles ago."""

    job: data.View
    accept: Signal
    reading: Signal
    waiting: Signal
    start: Signal


class _Bags(NamedTuple):
    """The queue of bags whose lengths have been checked; of `IndexDecoder._bag_layout`."""

    bag: data.View
    valid: Signal
    pop: Signal


class _Index(NamedTuple):
    """What a cycle took. word, tt_word: an index of each lane, the same but for a pair; the length instead, if that is
    wrong; factor, tt_factor: of a lane, see hw.emb.tokens; flags: FLAGS."""

    taken: Signal
    word: Signal
    tt_word: Signal
    factor: Signal
    tt_factor: Signal
    flags: data.View


class _Compared(NamedTuple):
    """Stage 1. kind: dram, tt, ssd, no memory; factor, cut: of `row_offset`; in_dram, in_tt: the row is in its table;
    ring_distance: from the first ring position; ring_end: of the row in the ring; bad_copy: a word of a FILL names a
    memory."""

    kind: Signal
    factor: Value
    cut: Value
    in_dram: Signal
    in_tt: Signal
    ring_distance: Signal
    ring_end: Signal
    bad_copy: Signal


class _Checked(NamedTuple):
    """Stage 3. bad: of the lane with rows, `outside` its memory; of the TT's, `tt_outside` or its table `absent`."""

    valid: Value
    word: Signal
    tt_word: Signal
    flags: data.View
    kind: Signal
    bad: data.View


class _Located(NamedTuple):
    """Stage 4. offset: of the row, without its table's base; kind: dram, tt, ssd; ends: the bag, the job."""

    valid: Signal
    offset: Signal
    kind: Signal
    ends: Signal
    factor: Signal
    tt_row: Value
    tt_factor: Signal


# Holds a value of the job from so many cycles after `start` on.
_Latch = Callable[[str, Value, int], Signal]


class IndexDecoder(Part):
    """Reads the bags of one instruction after the other and turns each index into a token.

    A token holds the row's location in its memory. DRAM: offset = base + row * beats or, where rows are stored in
    pieces, base + block * beats + (row - block) * piece, block = row with its low log2(stripe_beats / piece) bits 0.
    SSD: the ring position. TT: the row's number.                             Source: SCRec §III.D, Fig. 7a

    Lengths are read ahead of the indices and into the next instruction, so that neither a short bag nor the end of an
    instruction costs a cycle. A length that is too long, exceeds the indices left, or is the last and leaves some over
    is detected before its bag begins.

    The TT unit and the other memories work in parallel, so two indices share a token where they are a pair: the words
    2k and 2k + 1 of the indices, in one bag, one of them of the TT and one of another memory.

    Parameters  beat_bytes: of the streams; row_beats_max, stripe_beats, tables: of the core; index_bits: of a TT's
                row
    Members     i_jobs      In(stream of hw.emb.tokens.job_layout)
                i_lengths, i_indices, i_weights  In(stream of hw.axi.bus.read_layout)  whole beats; what follows an
                    instruction's last word in its beat is dropped
                ring_beats  In  of the ring, a power of two if any job has a ring
                ring_mask   In  ring_beats - 1
                step        In  takes `word_now`, only between bags
                word_now    Out  the next word of `i_indices`
                open        In  tokens can be taken
                o_valid     Out  there is a token
                o           Out  hw.emb.tokens.token_layout
                error       Out  of hw.emb.tokens.error_layout
                stall       Out  a token is waited for, and there is none for lack of a length, an index or a weight
    Shapes      n indices, p pairs among them, or one empty bag -> max(n - p, 1) tokens
    Timing      one token per cycle, over bags and instructions, but a cycle more from one instruction to the next
                where no bag has more than one index, so that lengths cannot get ahead; 6 cycles from the cycle that
                takes an index to its token; an instruction of fewer than 8 tokens takes 8 cycles
    Handshake   o cannot be refused: `open` stops it before its queues are full
    Numerics    offsets modulo 2**32; the checks of the program keep them below
    Errors      no token follows the first error in program order: INDEX_DEVICE, INDEX_RANGE, LENGTHS, READ_ERROR,
                TT_TABLE; error.bag and error.index count up to it
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
        job = self._job(m)
        bags = self._lengths(m, job)
        index = self._take(m, job, bags)
        self._check(m, job, index)
        return m

    def _job(self, m: Module) -> _Job:
        """Accepts jobs. Each later stage latches what it needs of one when `start` comes by."""
        job = Signal(self.i_jobs.payload.shape(), reset_less=True)
        reading = Signal()
        waiting = Signal()
        start = Signal(7)
        begins = start[0]
        accept = Signal()
        m.d.comb += self.i_jobs.ready.eq(~reading & ~waiting & ~start[1:].any())
        m.d.comb += accept.eq(self.i_jobs.valid & self.i_jobs.ready)
        m.d.sync += start[1:].eq(start[:-1])
        with m.If(accept):
            m.d.sync += job.eq(self.i_jobs.payload)
            m.d.sync += waiting.eq(1)
        with m.Elif(begins):
            m.d.sync += waiting.eq(0)
        return _Job(job=job, accept=accept, reading=reading, waiting=waiting, start=start)

    def _lengths(self, m: Module, source: _Job) -> _Bags:
        """Checks lengths against the indices left, into a queue of bags."""
        job = source.job
        left = Signal(32, reset_less=True)
        last = Signal(reset_less=True)
        first = Signal(reset_less=True)
        room = Signal(range(BAGS_AHEAD + 1), init=BAGS_AHEAD)
        take = Signal()
        m.d.comb += take.eq(source.reading & (room != 0) & (self.i_lengths.valid | job.copy))
        cursor = Cursor(m, "lengths", self.i_lengths, take=take & ~job.copy, last=last)
        with m.If(source.accept):
            m.d.sync += [
                left.eq(self.i_jobs.payload.count),
                last.eq(self.i_jobs.payload.count == 1),
                first.eq(1),
                source.reading.eq(1),
            ]
        with m.Elif(take):
            m.d.sync += [
                left.eq(left - 1),
                last.eq(left == 2),
                first.eq(0),
                source.reading.eq(~last),
            ]

        # Three stages: the length; the indices that are left behind it; the entry of the queue.
        read = Signal(3)
        length_1 = Signal(32, name="length_1", reset_less=True)
        error_1 = Signal(reset_less=True)
        first_1 = Signal(reset_less=True)
        last_1 = Signal(reset_less=True)
        m.d.sync += [
            read.eq(Cat(take, read[:-1])),
            length_1.eq(Mux(job.copy, 2, cursor.word)),
            error_1.eq(self.i_lengths.payload.error & ~job.copy),
            first_1.eq(first),
            last_1.eq(last),
        ]
        remaining = Signal(33, reset_less=True)
        length_2 = Signal(32, name="length_2", reset_less=True)
        error_2 = Signal(reset_less=True)
        first_2 = Signal(reset_less=True)
        last_2 = Signal(reset_less=True)
        with m.If(read[0]):
            m.d.sync += remaining.eq(Mux(first_1, job.indices, remaining[:32]) - length_1)
        m.d.sync += length_2.eq(length_1)
        m.d.sync += Cat(error_2, first_2, last_2).eq(Cat(error_1, first_1, last_1))
        entry = Signal(self._bag_layout(), reset_less=True)
        leftover = Signal(reset_less=True)
        m.d.sync += [
            entry.length.eq(length_2),
            entry.none.eq(length_2 == 0),
            entry.one.eq(length_2 == 1),
            entry.two.eq(length_2 == 2),
            entry.first.eq(first_2),
            entry.last.eq(last_2),
            entry.read_error.eq(error_2),
            entry.length_error.eq(remaining[32] | above(length_2, LONGEST_BAG)),
            leftover.eq(last_2 & (remaining[:32] != 0)),
        ]
        m.submodules.bags = bags = Fifo(entry.shape(), depth=BAGS_AHEAD, register=False)
        m.d.comb += bags.i.payload.eq(entry)
        m.d.comb += bags.i.payload.length_error.eq(entry.length_error | leftover)
        m.d.comb += bags.i.valid.eq(read[2])
        m.d.sync += room.eq(room + bags.o.ready - take)
        return _Bags(bag=bags.o.payload, valid=bags.o.valid, pop=bags.o.ready)

    @staticmethod
    def _bag_layout():
        # none, one, two: the length is 0, 1 or 2; first, last: of the job; length_error: it does not fit the indices.
        return data.StructLayout({"length": 32, **dict.fromkeys(
            ("none", "one", "two", "first", "last", "length_error", "read_error"), 1)})

    def _take(self, m: Module, source: _Job, bags: _Bags) -> _Index:
        """Takes an index or a pair per cycle from the beats. A bag that is empty or has an error takes one cycle."""
        job = source.job
        # Of the job whose bag is under way.
        weighted = Signal(reset_less=True)
        mean = Signal(reset_less=True)
        copy = Signal(reset_less=True)
        one, two, last, length_error, read_error = (Signal(name=f"bag_{name}", reset_less=True) for name in
                                                    ("one", "two", "last", "length_error", "read_error"))
        pair = Signal()             # the next word and its partner are a pair
        index_left = Signal(name="bag_index_left")      # the bag under way has an index left
        token_left = Signal(name="bag_token_left")      # it has no index, but its token left
        # The next index, pair or token is its job's last one.
        last_index, last_pair, last_token = (
            Signal(name=f"bag_{name}") for name in ("last_index", "last_pair", "last_token"))
        active = index_left | token_left
        length = Signal(32, name="bag_length", reset_less=True)
        left = Signal(LENGTH_BITS, reset_less=True)
        take = Signal()
        ends = Signal()
        load = Signal()
        taken = Signal()
        skip = Signal()
        no_index = Signal()
        m.d.comb += [
            taken.eq(index_left & self.open & self.i_indices.valid & (self.i_weights.valid | ~weighted)),
            take.eq(taken | (token_left & self.open)),
            skip.eq(last_token & self.open),
            ends.eq(take & (one | (pair & two))),
            load.eq(bags.valid & (~active | ends)),
            bags.pop.eq(load),
            source.start[0].eq(load & bags.bag.first),
            no_index.eq(bags.bag.none | bags.bag.length_error | bags.bag.read_error),
        ]
        m.d.sync += self.stall.eq(self.open & ~take & (active | source.reading))
        ends_region = last_index | (pair & last_pair)
        indices = Cursor(m, "indices", self.i_indices, take=taken | (self.step & self.i_indices.valid),
                         last=ends_region, skip=skip, pair=pair)
        m.d.comb += self.word_now.eq(indices.word)
        weights = Cursor(m, "weights", self.i_weights, take=taken & weighted, last=ends_region, skip=skip, pair=pair)
        words = [self.i_indices.payload.data[32 * k:32 * k + 32] for k in range(self.beat_bytes // 4)]
        of_tt = [word[POSITION_BITS:] == 1 for word in words]
        mixed = Cat(a ^ b for a, b in zip(of_tt[::2], of_tt[1::2], strict=True))
        tt_first = Array(of_tt[::2])[indices.place[1:]]
        m.d.comb += pair.eq(index_left & ~one & ~copy & indices.even & Array(mixed)[indices.place[1:]])
        with m.If(load):
            m.d.sync += [
                length.eq(bags.bag.length),
                left.eq(bags.bag.length),
                last.eq(bags.bag.last),
                length_error.eq(bags.bag.length_error),
                read_error.eq(bags.bag.read_error),
                index_left.eq(~no_index),
                token_left.eq(no_index),
                one.eq(bags.bag.one | no_index),
                two.eq(bags.bag.two),
                last_index.eq(bags.bag.one & ~no_index & bags.bag.last),
                last_pair.eq(bags.bag.two & ~no_index & bags.bag.last),
                last_token.eq(no_index & bags.bag.last),
            ]
        with m.Elif(ends):
            m.d.sync += [
                index_left.eq(0),
                token_left.eq(0),
                last_index.eq(0),
                last_pair.eq(0),
                last_token.eq(0),
            ]
        with m.Elif(take):
            then_one, then_two = left == Mux(pair, 3, 2), left == Mux(pair, 4, 3)
            m.d.sync += [
                left.eq(left - 1 - pair),
                one.eq(then_one),
                two.eq(then_two),
                last_index.eq(then_one & last),
                last_pair.eq(then_two & last),
            ]
        with m.If(source.start[0]):
            m.d.sync += weighted.eq(job.weighted)
            m.d.sync += mean.eq(job.mode == MODE.MEAN)
            m.d.sync += copy.eq(job.copy)

        # A token has two lanes, of memories with rows and of the TT. An index that is no half of a pair goes through
        # both; its memory decides which of them counts.
        index_taken = Signal(name="taken")
        word, tt_word = Signal(32, name="index", reset_less=True), Signal(32, name="tt_index", reset_less=True)
        factor, tt_factor = (Signal(32, name=name, reset_less=True) for name in ("factor", "tt_factor"))
        flags = Signal(FLAGS, name="flags", reset_less=True)
        index, tt_index, weight, tt_weight = (
            Mux(pair & second, cursor.partner, cursor.word)
            for cursor in (indices, weights) for second in (tt_first, ~tt_first))
        m.d.sync += [
            index_taken.eq(take),
            word.eq(Mux(length_error, length, index)),
            tt_word.eq(tt_index),
            factor.eq(Mux(mean, length[:LENGTH_BITS], Mux(weighted, weight, ONE))),
            tt_factor.eq(Mux(mean, length[:LENGTH_BITS], Mux(weighted, tt_weight, ONE))),
            flags.index.eq(index_left),
            flags.ends_bag.eq(ends),
            flags.ends_job.eq(ends & last),
            flags.length_error.eq(length_error & ~read_error),
            flags.read_error.eq(read_error | (index_left & (
                self.i_indices.payload.error | (weighted & self.i_weights.payload.error)))),
            flags.pair.eq(pair),
            flags.tt_first.eq(tt_first),
        ]
        return _Index(taken=index_taken, word=word, tt_word=tt_word, factor=factor, tt_factor=tt_factor, flags=flags)

    def _check(self, m: Module, source: _Job, index: _Index) -> None:
        """Stages 1 to 5: memory and range, location, error or token."""
        job = source.job

        def latch(name: str, value: Value, cycles: int) -> Signal:
            register = Signal.like(value, name=f"job_{name}", reset_less=True)
            with m.If(source.start[cycles]):
                m.d.sync += register.eq(value)
            return register

        compared = self._compare(m, job, index, latch)
        lows, upper = row_offset(m, index.word[:POSITION_BITS], compared.factor, compared.cut)

        # Stage 2: whether the row is within the ring.
        span, ring = latch("span", job.span, 2), latch("ring", job.ring, 2)
        in_span = Signal(reset_less=True)
        wraps = Signal(reset_less=True)
        m.d.sync += in_span.eq((compared.ring_distance <= span) & ring)
        m.d.sync += wraps.eq((compared.ring_end & self.ring_beats[:POSITION_BITS + 1]).any())
        kind_2, bad_copy_2 = _delay(m, "kind", compared.kind, 1), _delay(m, "bad_copy", compared.bad_copy, 1)
        in_dram_2, in_tt_2 = _delay(m, "in_dram", compared.in_dram, 1), _delay(m, "in_tt", compared.in_tt, 1)

        # Stage 3: the errors of each lane. The upper bits of the product are added to what the DSP has of them.
        loaded = latch("loaded", job.loaded, 3)
        bad = Signal(data.StructLayout(dict.fromkeys(("outside", "tt_outside", "absent"), 1)), reset_less=True)
        upper_3 = Signal(len(upper), reset_less=True)
        kind_3 = _delay(m, "kind_of", kind_2, 1)
        m.d.sync += bad.outside.eq(bad_copy_2 | (kind_2[0] & ~in_dram_2) | (kind_2[2] & (~in_span | wraps)))
        m.d.sync += bad.tt_outside.eq(kind_2[1] & ~in_tt_2)
        m.d.sync += bad.absent.eq(kind_2[1] & ~loaded)
        m.d.sync += upper_3.eq(upper)
        flags_3 = _delay(m, "flags", index.flags, 3)
        word_3, factor_3 = _delay(m, "word", index.word, 3), _delay(m, "factor", index.factor, 3)
        tt_word_3 = _delay(m, "tt_word", index.tt_word, 3)
        valid = Signal(3)
        m.d.sync += valid.eq(Cat(index.taken, valid[:-1]))

        # Stage 4: the offset without the base; the first error stops all that follows.
        valid_4, kind_4, ends_4 = self._error(m, source, latch, _Checked(
            valid=valid[2], word=word_3, tt_word=tt_word_3, flags=flags_3, kind=kind_3, bad=bad))
        offset_4 = Signal(32, reset_less=True)
        m.d.sync += offset_4.eq(Mux(kind_3[0], Cat(lows[:FACTOR_BITS], lows[FACTOR_BITS:] + upper_3),
                                     word_3[:POSITION_BITS]))
        self._token(m, source, latch, _Located(
            valid=valid_4, offset=offset_4, kind=kind_4, ends=ends_4, factor=_delay(m, "factor_last", factor_3, 1),
            tt_row=_delay(m, "tt_row", tt_word_3[:POSITION_BITS], 1),
            tt_factor=_delay(m, "tt_factor", index.tt_factor, 4)))

    def _compare(self, m: Module, job: data.View, index: _Index, latch: _Latch) -> _Compared:
        """Stage 1: comparisons, and the factors of row * beats."""
        row, device = index.word[:POSITION_BITS], index.word[POSITION_BITS:]
        tt_row, tt_device = index.tt_word[:POSITION_BITS], index.tt_word[POSITION_BITS:]
        copy = latch("copy", job.copy, 1)
        dram_rows, tt_rows = latch("dram_rows", job.dram_rows, 1), latch("tt_rows", job.tt_rows, 1)
        ring_first, beats = latch("ring_first", job.first, 1), latch("beats", job.beats, 1)
        factor, cut = latch("factor", job.beats + 1, 1), latch("cut", job.cut, 1)
        target = Signal()  # of a FILL's pair of words this is the second, where to copy to
        with m.If(index.taken):
            m.d.sync += target.eq(~index.flags.ends_bag)
        to_dram = Mux(copy, target, device == 0)
        to_ssd = Mux(copy, ~target, device == 2)
        kind = Signal(4, name="kind_1", reset_less=True)
        in_dram = Signal(reset_less=True)
        in_tt = Signal(reset_less=True)
        ring_distance = Signal(POSITION_BITS, reset_less=True)
        ring_end = Signal(POSITION_BITS + 1, reset_less=True)
        bad_copy = Signal(reset_less=True)
        m.d.sync += [
            kind.eq(Cat(to_dram, ~copy & (tt_device == 1), to_ssd, ~copy & (device == 3))
                    & index.flags.index.replicate(4)),
            in_dram.eq(row < dram_rows),
            in_tt.eq((tt_row < tt_rows) & (tt_row[self.index_bits:] == 0)),
            ring_distance.eq(row - ring_first),
            ring_end.eq((row & self.ring_mask) + beats),
            bad_copy.eq(copy & (device != 0)),
        ]
        return _Compared(kind=kind, factor=factor, cut=cut, in_dram=in_dram, in_tt=in_tt, ring_distance=ring_distance,
                         ring_end=ring_end, bad_copy=bad_copy)

    def _token(self, m: Module, source: _Job, latch: _Latch, stage: _Located) -> None:
        """Stage 5: the token."""
        job, start = source.job, source.start
        base = latch("base", job.dram_base, 5)
        out, stride = Signal(32, name="job_out", reset_less=True), latch("stride", job.stride, 6)
        m.d.sync += [
            self.o_valid.eq(stage.valid),
            self.o.offset.eq(stage.offset + (base & stage.kind[0].replicate(32))),
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
        for name, value in (("copy", job.copy), ("mode", job.mode), ("weighted", job.weighted), ("format", job.format),
                             ("row_format", job.row_format), ("beats", job.beats), ("piece", job.piece),
                             ("vector", job.vector), ("table", job.table),
                             ("chunk", job.chunk), ("number", job.number)):
            m.d.comb += self.o[name].eq(latch(f"token_{name}", value, 6))

    def _error(self, m: Module, source: _Job, latch: _Latch, stage: _Checked) -> tuple[Signal, Signal, Signal]:
        """Stage 4: counts bags and indices and keeps the first error. Returns valid, kind and ends of a token. A pair
        whose second index is the first error becomes a token of its first index."""
        job, error, flags, kind, bad = source.job, self.error, stage.flags, stage.kind, stage.bad
        bag, index = Signal(32, name="bag_number", reset_less=True), Signal(32, name="index_number", reset_less=True)
        number, table = latch("number", job.number, 4), latch("table", job.table, 4)
        any_bad = Signal()
        row_bad = Signal()
        tt_bad = Signal()
        tt_reported = Signal()      # the error is the TT lane's
        first_good = Signal()       # of a pair
        m.d.comb += [
            error.bag.eq(bag),
            error.index.eq(index),
            row_bad.eq(kind[3] | bad.outside),
            tt_bad.eq(bad.tt_outside | bad.absent),
            tt_reported.eq(tt_bad & (flags.tt_first | ~row_bad)),
            any_bad.eq(flags.read_error | flags.length_error | row_bad | tt_bad),
            first_good.eq(flags.pair & ~flags.read_error & ~Mux(flags.tt_first, tt_bad, row_bad)),
        ]
        with m.If(~error.valid):
            with m.If(stage.valid & any_bad):
                m.d.sync += error.valid.eq(1)
                m.d.sync += error.instruction.eq(number)
                m.d.sync += index.eq(index + first_good)
            with m.Elif(source.start[4]):
                m.d.sync += bag.eq(0)
                m.d.sync += index.eq(0)
            with m.Elif(stage.valid):
                m.d.sync += bag.eq(bag + flags.ends_bag)
                m.d.sync += index.eq(index + flags.index + flags.pair)
            m.d.sync += error.detail.eq(Mux(tt_reported, stage.tt_word, stage.word))
            with m.If(flags.read_error):
                m.d.sync += error.code.eq(EMB.code("READ_ERROR"))
                m.d.sync += error.detail.eq(INPUTS)
            with m.Elif(flags.length_error):
                m.d.sync += error.code.eq(EMB.code("LENGTHS"))
            with m.Elif(kind[3] & ~tt_reported):
                m.d.sync += error.code.eq(EMB.code("INDEX_DEVICE"))
            with m.Elif(tt_reported & ~bad.tt_outside):
                m.d.sync += error.code.eq(EMB.code("TT_TABLE"))
                m.d.sync += error.detail.eq(table)
            with m.Else():
                m.d.sync += error.code.eq(EMB.code("INDEX_RANGE"))

        valid = Signal(name="valid_4")
        kinds, ends = Signal(3, name="kind_4", reset_less=True), Signal(2, name="ends_4", reset_less=True)
        m.d.sync += valid.eq(stage.valid & ~error.valid & (~any_bad | first_good))
        m.d.sync += kinds.eq(Cat(kind[0] & ~row_bad, kind[1] & ~tt_bad, kind[2] & ~row_bad))
        m.d.sync += ends.eq(Cat(flags.ends_bag, flags.ends_job) & (~any_bad).replicate(2))
        return valid, kinds, ends
