"""Gathers the cold rows of mini-batches: each different one once, and its ordinal in place of its index."""

from typing import NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import request_layout
from hw.hotline.config import ROW_BEATS_LOG2_MAX, HotlineConfig
from hw.hotline.frames import rewrite_layout
from hw.hotline.records import HOT, frame_layout, gathered_layout, place_layout, register_layout
from hw.hotline.row_table import LOOKUPS, QUERY_CLIENTS, RowTable, location_layout, query_layout
from hw.place import Part, place
from hw.stream.fifo import Fifo

WORDS_UNDER_WAY = LOOKUPS   # cold words between scan and patch; a queue of LUT memory holds them wherever they are
LATE = 4                    # cold words that the scan has taken and the claims do not show yet
REQUESTS = 32               # that wait for the port, and slots for the embedding buffer


class _MiniBatches(NamedTuple):
    """What `Gather._mini_batches` hands on."""

    begins: Signal
    frame: Signal
    sample_begins: Signal
    sample_ends: Signal
    last_beat: Signal
    closed: Fifo
    resting: Signal
    in_flight: Signal


class Gather(Part):
    """Reads samples again, asks for the rows of their cold words, and hands them on once all have landed.

    word = ordinal of its row in the mini-batch, rows counted by first appearance; rows that a mini-batch in flight
    holds are not read again.                               Source: Hotline thesis, 6.5, 6.9; EL-Rec §V.B (life cycle)

    A mini-batch ends with its frame, or before the first sample whose indices might need more slots than it leaves
    (rows so far + indices > slots): what is in it does not depend on time. A sample that would fit, but not beside the
    mini-batches in flight, waits until they have given up enough; they do without this one's help.

    Parameters  config: HotlineConfig
    Members     registers      In  a write of an address register
                indices, sample_beats, row_beats_log2  In  of the job, still while anything is inside
                rows           In  the rows' address in bytes
                rows_beats     In  their length in beats
                i              In(stream of frame_layout)  mini-batches with cold words
                o_place        Out(stream of place_layout)
                i_beats        In(stream)  their beats in order
                o_write        Out(stream of rewrite_layout)  beats with cold words, rewritten
                o_requests     Out(stream of request_layout)  for each row that is not there
                o_landing      Out(stream of slots)  where they go, in the same order
                landed         In  a pulse for each that is in its slot
                o              Out(stream of gathered_layout)
                i_release      In(stream of slots)  a mini-batch gives a row up
                released       In  a pulse when its last one is taken or later
                i_query[k]     In(stream of query_layout)
                o_query[k]     Out(stream of location_layout)
                miss, hit      Out  a pulse for each cold word whose row has to be read, is in the embedding buffer
                error          Out
                idle           Out  nothing is inside and no mini-batch in flight
    Shapes      `samples` samples of `sample_beats` beats; up to `batches` mini-batches in flight, from their first
                sample here until `released`
    Timing      a beat a cycle without cold words, else one more than it has of them, as long as the slots leave room
                for two samples, else 3 cycles between samples; behind that a cycle for a cold word, as RowTable says.
                `idle` is two cycles late
    Handshake   valids and i.ready come from registers. o_requests and o_landing do not wait for each other beyond 32
                rows. i_beats may stand still until earlier mini-batches are released: whoever else reads the frames
                must not wait for it. A read of a frame that is asked for after o sees what o_write wrote before
    Numerics    address = rows + (base + index * row_beats) beats, exact; an index is below its table's rows
    Faults      a row that is not wholly in the rows' buffer is not asked for: `error` rises and stays, its
                mini-batch never comes out. Earlier ones do
    Reset       forgets everything, the address registers too
    Golden      golden.hotline.gather.gather          Tests  verif/hotline/test_gather.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        super().__init__({
            "registers": In(register_layout(config)),
            "indices": In(8), "sample_beats": In(4),
            "row_beats_log2": In(range(ROW_BEATS_LOG2_MAX + 1)),
            "rows": In(64), "rows_beats": In(32),
            "i": In(stream.Signature(frame_layout(config))),
            "o_place": Out(stream.Signature(place_layout(config))),
            "i_beats": In(stream.Signature(32 * config.words)),
            "o_write": Out(stream.Signature(rewrite_layout(config))),
            "o_requests": Out(stream.Signature(request_layout())),
            "o_landing": Out(stream.Signature(config.slot_bits)),
            "landed": In(1),
            "o": Out(stream.Signature(gathered_layout(config))),
            "i_release": In(stream.Signature(config.slot_bits)),
            "released": In(1),
            "i_query": In(stream.Signature(query_layout(config))).array(QUERY_CLIENTS),
            "o_query": Out(stream.Signature(location_layout(config))).array(QUERY_CLIENTS),
            "miss": Out(1), "hit": Out(1), "error": Out(1), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        count_bits = range(config.row_slots + 1)
        take = Signal()
        table, requests, landing, miss, hit, rooms = self._table(m, platform, take)

        # -- Room: slots in use and those that words under way may take, against what a sample may need.
        slots = [min(config.row_slots, config.embedding_beats >> k) for k in range(ROW_BEATS_LOG2_MAX + 1)]
        limit = Signal(count_bits, reset_less=True)
        most = Signal(count_bits, reset_less=True)
        claims = Signal(range(2 * config.row_slots))
        # a further sample does; the mini-batch's own rows leave too few slots
        fits = Signal()
        full = Signal()
        drained = Signal()
        # Beside all that the sample under way may take another one fits: it follows at once.
        follows = Signal(reset_less=True)
        less = Signal(signed(config.row_slots.bit_length() + 2), reset_less=True)
        beside = Signal(range(256 + LATE), reset_less=True)     # of the sample under way, and of what comes late
        m.d.sync += [
            limit.eq(Array([*slots, slots[-1]])[self.row_beats_log2]),
            most.eq(limit - self.indices),
            claims.eq(claims + take - hit - table.freed),
            fits.eq(claims <= most),
            full.eq(table.rows > most),
            beside.eq(self.indices + LATE),
            less.eq(most - beside),
            follows.eq(less >= claims),
        ]
        m.d.comb += table.limit.eq(limit)

        batches = self._mini_batches(m, table, fits, follows, full, drained, miss)
        self._reads(m, batches.begins)
        words = self._scan(m, batches, take)
        self._addresses(m, words, table)
        pending = Signal(range(WORDS_UNDER_WAY + 1))
        patched, patching = self._patch(m, table, words.queue, batches.frame)
        m.d.comb += words.room.eq(~(pending[-1] | rooms.any()))
        m.d.sync += pending.eq(pending + take - patched)
        m.d.sync += drained.eq((pending == 0) & ~take & ~patching)

        # -- Out: rows land in order, so a mini-batch is complete when as many have as are new in it.
        closed = batches.closed.o
        arrived = Signal(range(2 * config.row_slots))
        enough = Signal()
        hands_out = Signal()
        out = Signal(gathered_layout(config), reset_less=True)
        m.d.comb += hands_out.eq(enough & ~self.o.valid)
        m.d.comb += closed.ready.eq(hands_out)
        m.d.comb += self.o.payload.eq(out)
        m.d.sync += enough.eq(closed.valid & ~hands_out & (arrived >= closed.payload.news))
        m.d.sync += arrived.eq(arrived + self.landed - Mux(hands_out, closed.payload.news, 0))
        m.d.sync += self.idle.eq(
            batches.resting & ~self.i.valid & (batches.in_flight == 0) & table.idle & ~requests.held & ~landing.held)
        with m.If(hands_out):
            m.d.sync += self.o.valid.eq(1)
            m.d.sync += out.eq(closed.payload.gathered)
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m

    def _table(self, m: Module, platform, take: Signal) -> tuple[RowTable, Fifo, Fifo, Signal, Signal, Value]:
        """The table, requests for rows and their slots; pulses: a cold word misses, hits; which of both
        queues have no room for a further word."""
        table = RowTable(self.config)
        place(m, platform, "table", table)
        m.submodules.requests = requests = Fifo(32, depth=REQUESTS)
        m.submodules.landing = landing = Fifo(self.config.slot_bits, depth=REQUESTS)
        miss = Signal()
        hit = Signal()
        shift = (self.config.beat_bytes - 1).bit_length()
        wiring.connect(m, wiring.flipped(self.i_release), table.i_release)
        for k in range(QUERY_CLIENTS):
            wiring.connect(m, wiring.flipped(self.i_query[k]), table.i_query[k])
            wiring.connect(m, table.o_query[k], wiring.flipped(self.o_query[k]))
        wiring.connect(m, landing.o, wiring.flipped(self.o_landing))
        row_beats = Signal(ROW_BEATS_LOG2_MAX + 1, reset_less=True)
        m.d.comb += [
            miss.eq(table.o_valid & table.o.miss),
            hit.eq(table.o_valid & ~table.o.miss),
            self.miss.eq(miss),
            self.hit.eq(hit),
            requests.i.valid.eq(miss),
            requests.i.payload.eq(table.o.address),
            landing.i.valid.eq(miss),
            landing.i.payload.eq(table.o.slot),
            self.o_requests.valid.eq(requests.o.valid),
            requests.o.ready.eq(self.o_requests.ready),
            self.o_requests.payload.address.eq(self.rows + Cat(Const(0, shift), requests.o.payload)),
            self.o_requests.payload.beats.eq(row_beats),
        ]
        m.d.sync += row_beats.eq(1 << self.row_beats_log2)
        # A word has its place in both from the scan on, until its row turns out to be there or its request has gone.
        full = []
        for name, queue in (("requests", requests), ("landing", landing)):
            used = Signal(range(REQUESTS + 1), name=f"{name}_used")
            m.d.sync += used.eq(used + take - hit - (queue.o.valid & queue.o.ready))
            full.append(used[-1])
        return table, requests, landing, miss, hit, Cat(full)

    def _mini_batches(self, m: Module, table: RowTable, fits: Signal, follows: Signal, full: Signal, drained: Signal,
                      miss: Signal):
        """Mini-batches: opened, sample by sample, closed."""
        config = self.config
        count_bits = range(config.row_slots + 1)
        frame = Signal(config.frame_bits, reset_less=True)
        left = Signal(16, reset_less=True)
        # of this part of the frame
        start = Signal(16, reset_less=True)
        samples = Signal(16, reset_less=True)
        number = Signal(config.batch_bits)
        in_flight = Signal(range(config.batches + 1))
        news = Signal(count_bits)           # rows of it that have to land
        begins = Signal()
        opens = Signal()
        closes = Signal()
        sample_begins = Signal()
        sample_ends = Signal()
        last_beat = Signal()        # of a sample, in this cycle
        more = Signal()
        record_layout = data.StructLayout({"gathered": gathered_layout(config), "news": count_bits})
        m.submodules.closed = closed = Fifo(record_layout, depth=config.batches)
        resting = Signal()
        with m.FSM():
            with m.State("REST"):
                m.d.comb += self.i.ready.eq(1)
                m.d.comb += begins.eq(self.i.valid)
                m.d.comb += resting.eq(1)
                with m.If(self.i.valid):
                    m.d.sync += frame.eq(self.i.payload.frame)
                    m.d.sync += left.eq(self.i.payload.samples)
                    m.d.sync += start.eq(0)
                    m.next = "OPEN"
            with m.State("OPEN"):
                with m.If(in_flight != config.batches):
                    m.d.comb += opens.eq(1)
                    m.d.sync += samples.eq(0)
                    m.d.sync += more.eq(0)
                    m.next = "SAMPLE"
            with m.State("SAMPLE"):
                with m.If(fits):
                    m.d.comb += sample_begins.eq(1)
                    m.next = "SCAN"
                # Of a mini-batch just opened `full` does not speak yet.
                with m.Elif(more & drained & full):
                    m.next = "CLOSE"
            with m.State("SCAN"):
                with m.If(sample_ends):
                    m.d.sync += left.eq(left - 1)
                    m.d.sync += samples.eq(samples + 1)
                    m.d.sync += more.eq(1)
                    m.next = "SAMPLE"
                    with m.If(left == 1):
                        m.next = "CLOSE"
                with m.Elif(last_beat & follows & (left != 1)):
                    m.d.comb += sample_begins.eq(1)
                    m.d.sync += left.eq(left - 1)
                    m.d.sync += samples.eq(samples + 1)
                    m.d.sync += more.eq(1)
            with m.State("CLOSE"):
                with m.If(drained):
                    m.d.comb += closes.eq(1)
                    m.d.sync += number.eq(number + 1)
                    m.d.sync += start.eq(start + samples)
                    m.next = "REST"
                    with m.If(left != 0):
                        m.next = "OPEN"
        record = closed.i.payload
        m.d.comb += [
            table.open.eq(opens),
            table.batch.eq(number),
            closed.i.valid.eq(closes),
            record.gathered.frame.eq(frame),
            record.gathered.start.eq(start),
            record.gathered.samples.eq(samples),
            record.gathered.batch.eq(number),
            record.gathered.rows.eq(table.rows),
            record.gathered.frees.eq(left == 0),
            record.news.eq(news),
        ]
        m.d.sync += in_flight.eq(in_flight + opens - self.released)
        m.d.sync += news.eq(Mux(opens, 0, news + miss))
        return _MiniBatches(begins=begins, frame=frame, sample_begins=sample_begins, sample_ends=sample_ends,
                            last_beat=last_beat, closed=closed, resting=resting, in_flight=in_flight)

    def _reads(self, m: Module, begins: Signal) -> None:
        """Asks for all beats of a frame, one after the other."""
        asking = Signal()
        at = Signal(place_layout(self.config), reset_less=True)
        beat = Signal.like(self.sample_beats, reset_less=True)
        left = Signal(16, reset_less=True)
        m.d.comb += self.o_place.valid.eq(asking)
        m.d.comb += self.o_place.payload.eq(at)
        with m.If(begins):
            m.d.sync += [
                asking.eq(1),
                at.frame.eq(self.i.payload.frame),
                at.beat.eq(0),
                beat.eq(1),
                left.eq(self.i.payload.samples),
            ]
        with m.Elif(asking & self.o_place.ready):
            m.d.sync += at.beat.eq(at.beat + 1)
            m.d.sync += beat.eq(beat + 1)
            with m.If(beat == self.sample_beats):
                m.d.sync += beat.eq(1)
                m.d.sync += left.eq(left - 1)
                with m.If(left == 1):
                    m.d.sync += asking.eq(0)

    def _scan(self, m: Module, batches: _MiniBatches, take: Signal) -> "_Words":
        """Cold words of a sample's beats, one after the other; their beats go to a queue until they are rewritten."""
        config = self.config
        count = config.words
        index_bits = (count - 1).bit_length()
        register = self.registers
        pinned = Signal(config.positions)
        looked_up = Signal(config.positions, reset_less=True)
        for k in range(config.positions):
            with m.If(register.valid & (register.position == k)):
                m.d.sync += pinned[k].eq(register.pinned)
            m.d.sync += looked_up[k].eq((self.indices > k) & ~pinned[k])

        held = Signal()
        picked = Signal()
        begun = Signal()
        words = [Signal(32, name=f"scanned_{k}", reset_less=True) for k in range(count)]
        rest = Signal(count, reset_less=True)
        pick = Signal(count, reset_less=True)
        loads = Signal.like(self.sample_beats)
        beat = Signal.like(self.sample_beats, reset_less=True)          # that comes next
        held_beat = Signal.like(beat, reset_less=True)
        place_in_frame = Signal((config.frame_beats - 1).bit_length(), reset_less=True)
        finishes = Signal()
        load = Signal()
        none_left = Signal()
        found = _Words(config, m)
        lowest = rest & ~Cat(Const(0, 1), *(rest[:k].any() for k in range(1, count)))
        of_beats = [looked_up[at:at + count] for at in range(0, config.positions, count)]
        of_beats += [Const(0, count)] * (config.sample_beats_max + 1 - len(of_beats))
        lanes = Array(of_beats)[beat]
        m.d.comb += [
            none_left.eq(~rest.any()),
            take.eq(picked & found.room & (begun | found.queue.i.ready)),
            finishes.eq(held & none_left & (~picked | take)),
            self.i_beats.ready.eq((loads != 0) & (~held | finishes)),
            load.eq(self.i_beats.valid & self.i_beats.ready),
            batches.sample_ends.eq((loads == 0) & ~held),
            batches.last_beat.eq(load & (loads == 1)),
            found.queue.i.valid.eq(take & ~begun),
            found.queue.i.payload.beat.eq(place_in_frame),
            *(found.queue.i.payload.words[k].eq(word) for k, word in enumerate(words)),
        ]
        with m.If(~picked | take):
            m.d.sync += picked.eq(held & ~none_left)
            m.d.sync += pick.eq(lowest)
            m.d.sync += rest.eq(rest & ~lowest)
        with m.If(take):
            m.d.sync += begun.eq(1)
        with m.If(finishes):
            m.d.sync += held.eq(0)
            m.d.sync += begun.eq(0)
            m.d.sync += place_in_frame.eq(place_in_frame + 1)
        with m.If(load):
            m.d.sync += [
                held.eq(1),
                held_beat.eq(beat),
                loads.eq(loads - 1),
                beat.eq(beat + 1),
                rest.eq(Cat(~self.i_beats.payload[32 * k + HOT] & lanes[k] for k in range(count))),
            ]
        with m.If((loads != 0) & (~held | finishes)):
            m.d.sync += [word.eq(self.i_beats.payload[32 * k:32 * k + 32]) for k, word in enumerate(words)]
        with m.If(batches.sample_begins):
            m.d.sync += loads.eq(self.sample_beats)
            m.d.sync += beat.eq(0)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += place_in_frame.eq(0)
        chosen = Const(0, 32)
        for k, word in enumerate(words):
            chosen = chosen | Mux(pick[k], word, 0)
        m.d.sync += [
            found.valid.eq(take),
            found.last.eq(none_left),
            found.index.eq(chosen),
            found.lane.eq(Cat(Cat(pick[k] for k in range(count) if k >> bit & 1).any() for bit in range(index_bits))),
            found.beat.eq(held_beat),
        ]
        return found

    def _addresses(self, m: Module, words: "_Words", table: RowTable) -> None:
        """Cold words become rows and their addresses, one register each for lookup, shift, sums and bounds; the table
        has room for all that are under way."""
        config = self.config
        bits = 32 + ROW_BEATS_LOG2_MAX + 1
        register = self.registers
        m.submodules.firsts = firsts = memory.Memory(shape=config.domain_bits, depth=config.positions, init=[],
                                                     attrs={"ram_style": "distributed"})
        m.submodules.bases = bases = memory.Memory(shape=32, depth=config.positions, init=[],
                                                   attrs={"ram_style": "distributed"})
        position = Cat(words.lane, words.beat)[:config.position_bits]
        first_read, base_read = firsts.read_port(domain="comb"), bases.read_port(domain="comb")
        for store, field, read in ((firsts, register.first, first_read), (bases, register.base, base_read)):
            write = store.write_port()
            m.d.comb += [
                write.en.eq(register.valid),
                write.addr.eq(register.position),
                write.data.eq(field),
                read.addr.eq(position),
            ]
        mark_layout = data.StructLayout({"lane": len(words.lane), "last": 1})
        valids = [Signal(name=f"valid_{k}") for k in range(4)]
        marks = [Signal(mark_layout, name=f"mark_{k}", reset_less=True) for k in range(4)]
        first, base, index = (Signal(width, name=name, reset_less=True)
                              for name, width in (("first", config.domain_bits), ("base", 32), ("index", HOT)))
        rows = [Signal(config.domain_bits, name=f"row_{k}", reset_less=True) for k in range(3)]
        base_1 = Signal(32, reset_less=True)
        offset = Signal(32 + ROW_BEATS_LOG2_MAX, reset_less=True)
        address = Signal(bits, reset_less=True)
        address_1 = Signal(32, reset_less=True)
        # where a row may begin
        last_address = Signal(32, reset_less=True)
        short = Signal(reset_less=True)
        outside = Signal(reset_less=True)
        m.d.sync += [
            Cat(valids).eq(Cat(words.valid, valids[:-1])),
            marks[0].lane.eq(words.lane),
            marks[0].last.eq(words.last),
            *(after.eq(mark) for mark, after in zip(marks, marks[1:])),
            first.eq(first_read.data),
            base.eq(base_read.data),
            index.eq(words.index),
            rows[0].eq(first + index),
            offset.eq(index << self.row_beats_log2),
            base_1.eq(base),
            rows[1].eq(rows[0]),
            address.eq(base_1 + offset),
            rows[2].eq(rows[1]),
            address_1.eq(address),
            Cat(last_address, short).eq(self.rows_beats - Cat(Const(1, 1) << self.row_beats_log2)),
            outside.eq(short | (address > last_address)),
        ]
        with m.If(valids[3] & outside):
            m.d.sync += self.error.eq(1)
        m.d.comb += [
            table.i.valid.eq(valids[3] & ~outside & ~self.error),
            table.i.payload.row.eq(rows[2]),
            table.i.payload.address.eq(address_1),
            table.i.payload.tag.eq(marks[3]),
        ]

    def _patch(self, m: Module, table: RowTable, queue: Fifo, frame: Signal) -> tuple[Signal, Signal]:
        """Ordinals into their beats; (a word is done, a beat is here)."""
        config = self.config
        index_bits = (config.words - 1).bit_length()
        m.submodules.answers = answers = Fifo(
            data.StructLayout({"ordinal": config.slot_bits, "lane": index_bits, "last": 1}), depth=WORDS_UNDER_WAY)
        held = Signal()
        whole = Signal()
        patched = Signal()
        leaves = Signal()
        beat = Signal.like(queue.o.payload.beat, reset_less=True)
        answer = answers.o.payload
        m.d.comb += [
            answers.i.valid.eq(table.o_valid),
            answers.i.payload.ordinal.eq(table.o.ordinal),
            Cat(answers.i.payload.lane, answers.i.payload.last).eq(table.o.tag),
            patched.eq(answers.o.valid & held & ~whole),
            answers.o.ready.eq(held & ~whole),
            leaves.eq(whole & self.o_write.ready),
            queue.o.ready.eq(~held | leaves),
            self.o_write.valid.eq(whole),
            self.o_write.payload.place.frame.eq(frame),
            self.o_write.payload.place.beat.eq(beat),
        ]
        with m.If(~held | leaves):
            m.d.sync += held.eq(queue.o.valid)
            m.d.sync += whole.eq(0)
            m.d.sync += beat.eq(queue.o.payload.beat)
        with m.If(patched & answer.last):
            m.d.sync += whole.eq(1)
        for k in range(config.words):
            word = Signal(32, name=f"patched_{k}", reset_less=True)
            with m.If(~held | leaves):
                m.d.sync += word.eq(queue.o.payload.words[k])
            with m.Elif(patched & (answer.lane == k)):
                m.d.sync += word.eq(answer.ordinal)
            m.d.comb += self.o_write.payload.words[k].eq(word)
        return patched, held


class _Words:
    """Cold words on their way out of the scan: one per cycle, in registers, and the queue of their beats.
    room: one more may come."""

    def __init__(self, config: HotlineConfig, m: Module):
        beat = data.StructLayout({"beat": (config.frame_beats - 1).bit_length(),
                                  "words": data.ArrayLayout(32, config.words)})
        m.submodules.beats = self.queue = Fifo(beat, depth=WORDS_UNDER_WAY)
        self.room = Signal()
        self.valid = Signal()
        self.last = Signal(reset_less=True)
        self.index = Signal(HOT, reset_less=True)
        self.lane = Signal((config.words - 1).bit_length(), reset_less=True)
        self.beat = Signal(4, reset_less=True)
