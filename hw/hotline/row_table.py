"""Which cold rows lie in the embedding buffer, in which slot, and how many mini-batches in flight hold them."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.hotline.config import HotlineConfig
from hw.place import Part
from hw.stream.fifo import Fifo
from hw.stream.round_robin import round_robin

__all__ = ["ARRAY_ROWS", "QUERY_CLIENTS", "RowTable", "bucket_bits", "found_layout", "hashed", "lookup_layout",
           "queried_layout", "query_layout"]

QUERY_CLIENTS = 3       # the dispatcher, the updater, the bags' reader
QUERIES = 16            # that a client has under way
ARRAY_ROWS = 32768      # of an array need an output register: eight UltraRAMs one above the other
LUT_DEPTH = 64
TAPS = 5                # bits of the tag in each bit of the bucket: one LUT


def bucket_bits(config: HotlineConfig) -> int:
    """Bits of a bucket's number: two buckets for each slot."""
    return config.slot_bits + 1


def hashed(row: Value, bits: int) -> tuple[Value, Value]:
    """(bucket, tag) of a row, both together as good as the row. bucket: the row's low bits, each with some bits of the
    tag, the bits above, so that rows at regular distances do not meet."""
    tag_bits = len(row) - bits
    bucket = []
    for k in range(bits):
        taps = {(k * 7 + step * (k % 3 + 2) * 3 + step) % tag_bits for step in range(TAPS)} | {k % tag_bits}
        bucket.append(row[k] ^ Cat(row[bits + tap] for tap in sorted(taps)[:TAPS]).xor())
    return Cat(bucket), row[bits:]


def lookup_layout(config: HotlineConfig) -> data.StructLayout:
    """A row that is asked for. address: of its first beat in the rows' buffer, in beats; tag: comes back."""
    return data.StructLayout({"row": config.domain_bits, "address": 32, "tag": (config.words - 1).bit_length() + 1})


def found_layout(config: HotlineConfig) -> data.StructLayout:
    """Where it is. fresh: it was not there, and has to be read from `address` into `slot`; ordinal: in the mini-batch;
    tag: as asked."""
    return data.StructLayout({"ordinal": config.slot_bits, "fresh": 1, "slot": config.slot_bits, "address": 32,
                              "tag": (config.words - 1).bit_length() + 1})


def query_layout(config: HotlineConfig) -> data.StructLayout:
    """A row of a mini-batch in flight."""
    return data.StructLayout({"batch": config.batch_bits, "ordinal": config.slot_bits})


def queried_layout(config: HotlineConfig) -> data.StructLayout:
    """Its slot, and the address of its first beat in the rows' buffer, in beats."""
    return data.StructLayout({"slot": config.slot_bits, "address": 32})


class RowTable(Part):
    """Finds rows by their number, gives slots to new ones and ordinals to all, and takes slots back.

    ordinal = number of different rows asked for before in this mini-batch, at a row's first appearance in it;
    life = mini-batches in flight that hold the row; at 0 its slot is free.       Source: EL-Rec §V.B (life cycle)

    Rows of a bucket form a list, doubly linked, so that one leaves it without a search. Who heads a bucket is told by
    a memory that nobody initialises: what it says counts only if that slot holds a row, and one of this very bucket;
    then it was written when that row came.

    Parameters  config: HotlineConfig; array_rows: how many of an array need an output register
    Members     i           In(stream of lookup_layout)
                room        In  an answer can be taken: no lookup begins without
                found, o    Out  a pulse and its answer, of found_layout, in order
                open        In  a pulse: a mini-batch begins, while no lookup is inside and nothing of an earlier one
                    of that number is held
                rows        Out  different ones in it so far
                freed       Out  a pulse for each slot that becomes free
                i_release   In(stream of slots)  a mini-batch gives the row up
                i_query[k]  In(stream of query_layout)
                o_query[k]  Out(stream of queried_layout)  of any mini-batch in flight
                idle        Out  no lookup or release is inside and no slot in use
                batch       In  number of the mini-batch that begins
    Shapes      slots are given out from 0 on; those that came back first, the last one first; from 0 on again when all
                have come back. Who asks takes care that there is one
    Timing      5 cycles for a lookup or a release, 4 more for each further row of the list that is passed; 2 more if a
                row of its bucket came or went just before. 8 cycles from i to found. A query a cycle in all, clients
                in turns; 8 cycles from i_query to o_query. Each further register of an array adds one to all of
                these, and a client has up to 16 queries under way. `idle` is a cycle late
    Handshake   i_release.ready, i_query.ready and all valids come from registers; i.ready follows i_release.valid and
                room: a release goes before a lookup
    Reset       forgets all rows
    Golden      golden.hotline.row_table.RowTable          Tests  verif/hotline/test_row_table.py
    """

    def __init__(self, config: HotlineConfig, *, array_rows: int = ARRAY_ROWS):
        self.config = config
        self.array_rows = array_rows
        super().__init__({
            "i": In(stream.Signature(lookup_layout(config))),
            "room": In(1),
            "found": Out(1),
            "o": Out(found_layout(config)),
            "open": In(1),
            "batch": In(config.batch_bits),
            "rows": Out(range(config.row_slots + 1)),
            "freed": Out(1),
            "i_release": In(stream.Signature(config.slot_bits)),
            "i_query": In(stream.Signature(query_layout(config))).array(QUERY_CLIENTS),
            "o_query": Out(stream.Signature(queried_layout(config))).array(QUERY_CLIENTS),
            "idle": Out(1),
        })

    def _array(self, m: Module, name: str, shape, depth: int):
        """(write port, address to read, what was read `registers` + 1 cycles later, registers) of a memory."""
        small = depth <= LUT_DEPTH
        # Wide and deep enough that UltraRAM is not wasted; the tools choose for what lies between.
        style = "distributed" if small else "ultra" if depth > ARRAY_ROWS else "block"
        m.submodules[name] = array = memory.Memory(shape=shape, depth=depth, init=[], attrs={"ram_style": style})
        write, read = array.write_port(), array.read_port()
        registers = max(1, depth // self.array_rows)
        word = read.data
        for k in range(registers):
            register = Signal(shape, name=f"{name}_{k}", reset_less=True)
            m.d.sync += register.eq(word)
            word = register
        return write, read.addr, word, registers

    def elaborate(self, platform):
        m = Module()
        config = self.config
        s, slots = config.slot_bits, config.row_slots
        b = bucket_bits(config)
        t = config.domain_bits - b
        link = data.StructLayout({"there": 1, "slot": s})
        life_shape = range(config.batches + 1)

        # -- What is known of each slot, of each bucket, and the rows of each mini-batch.
        array = lambda name, shape, depth=slots: self._array(m, name, shape, depth)
        names_w, names_a, name, wait = array("names", data.StructLayout({"bucket": b, "tag": t}))
        nexts_w, nexts_a, following, _ = array("nexts", link)
        befores_w, befores_a, before, _ = array("befores", link)
        holds_w, holds_a, hold, _ = array("holds", data.StructLayout(
            {"life": life_shape, "batch": config.batch_bits, "ordinal": s}))
        heads_w, heads_a, head, head_wait = array("heads", s, 2 * slots)
        free_w, free_a, returned, _ = array("free", s)
        addresses_w, addresses_a, queried_address, address_wait = array("addresses", 32)
        lists_w, lists_a, queried_slot, list_wait = array("lists", s, config.batches * slots)

        # -- The next lookup, whose bucket's head is looked up ahead.
        i = self.i.payload
        next_held, start_lookup = Signal(), Signal()
        bucket, tag = hashed(i.row, b)
        next_bucket, next_tag = Signal(b, reset_less=True), Signal(t, reset_less=True)
        next_address, next_mark = Signal(32, reset_less=True), Signal.like(i.tag, reset_less=True)
        known = Signal(head_wait + 1)   # cycles since its bucket is asked for, head unchanged
        head_moves = Signal()
        m.d.comb += self.i.ready.eq(~next_held | start_lookup)
        m.d.comb += heads_a.eq(next_bucket)
        m.d.sync += known.eq(Cat(next_held, known[:-1]))
        with m.If(self.i.ready):
            m.d.sync += [
                next_held.eq(self.i.valid),
                next_bucket.eq(bucket),
                next_tag.eq(tag),
                next_address.eq(i.address),
                next_mark.eq(i.tag),
                known.eq(0),
            ]

        # -- One lookup or release after the other: array, its registers, compare, act.
        releases = Signal()                                         # what is under way
        op_bucket, op_tag = Signal(b, reset_less=True), Signal(t, reset_less=True)
        address, mark = Signal(32, reset_less=True), Signal.like(i.tag, reset_less=True)
        slot = Signal(s, reset_less=True)                           # that is looked at
        reading = Signal(wait + 1)                                  # one-hot: cycles until it is known
        compare, act = Signal(), Signal()
        idle = Signal(init=1)
        start_release = Signal()
        first = Signal(reset_less=True)                             # of the bucket
        fresh_slots = Signal(range(slots + 1))                      # given out so far, from 0 on
        was_given = Signal(reset_less=True)
        m.d.comb += [
            start_release.eq(idle & self.i_release.valid),
            self.i_release.ready.eq(idle),
            start_lookup.eq(idle & ~self.i_release.valid & known[-1] & next_held & self.room),
            *(port.eq(slot) for port in (names_a, nexts_a, befores_a, holds_a)),
        ]
        m.d.sync += [
            reading.eq(Cat(start_release | start_lookup, reading[:-1])),
            compare.eq(reading[-1]),
            act.eq(compare),
            was_given.eq(slot < fresh_slots),
        ]
        with m.If(start_release | start_lookup):
            m.d.sync += [
                idle.eq(0),
                releases.eq(start_release),
                first.eq(1),
                slot.eq(Mux(start_release, self.i_release.payload, head)),
                op_bucket.eq(next_bucket),
                op_tag.eq(next_tag),
                address.eq(next_address),
                mark.eq(next_mark),
            ]

        # What the arrays say of the slot; a copy of the links for the act.
        lives, matches, same_tag = Signal(), Signal(), Signal()
        found, here, passes, last_holder = (Signal(name=name_, reset_less=True)
                                            for name_ in ("found_", "here", "passes", "last_holder"))
        link_next, link_before = Signal(link, reset_less=True), Signal(link, reset_less=True)
        was = Signal.like(hold, reset_less=True)
        first_slot, headed = Signal(s, reset_less=True), Signal(reset_less=True)
        m.d.comb += lives.eq(was_given & (hold.life != 0))
        m.d.comb += matches.eq(lives & (name.bucket == op_bucket))
        m.d.comb += same_tag.eq(name.tag == op_tag)
        with m.If(compare):
            m.d.sync += [
                found.eq(matches & same_tag),
                here.eq(hold.batch == self.batch),
                last_holder.eq(hold.life == 1),
                passes.eq(matches & ~same_tag & following.there),
                was.eq(hold),
                link_next.eq(following),
                link_before.eq(before),
            ]
            with m.If(first):
                m.d.sync += first_slot.eq(slot)
                m.d.sync += headed.eq(matches)
            with m.If(releases):
                m.d.sync += op_bucket.eq(name.bucket)

        # -- The act.
        in_use, depth = Signal(range(slots + 1)), Signal(range(slots + 1))      # slots; of them in the stack
        lonely, stacked = Signal(), Signal()
        new_slot = Signal(s)
        goes_on, answers, shares, comes, goes = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            goes_on.eq(act & ~releases & passes),
            answers.eq(act & ~releases & ~passes),
            shares.eq(answers & found & ~here),
            comes.eq(answers & ~found),
            goes.eq(act & releases & last_holder),
            new_slot.eq(Mux(stacked, returned, fresh_slots)),
        ]
        with m.If(act):
            m.d.sync += idle.eq(~goes_on)
        with m.If(goes_on):
            m.d.sync += slot.eq(link_next.slot)
            m.d.sync += reading[0].eq(1)
            m.d.sync += first.eq(0)
        target = Signal(s)
        number = self.rows[:s]
        # A row that comes goes before the head; its own links and the head's, which is written a cycle later.
        later, later_at, later_slot = Signal(), Signal(s, reset_less=True), Signal(s, reset_less=True)
        m.d.sync += later.eq(comes & headed)
        m.d.sync += later_at.eq(first_slot)
        m.d.sync += later_slot.eq(new_slot)
        m.d.comb += [
            target.eq(Mux(comes, new_slot, slot)),
            names_w.en.eq(comes),
            names_w.addr.eq(new_slot),
            names_w.data.bucket.eq(op_bucket),
            names_w.data.tag.eq(op_tag),
            addresses_w.en.eq(comes),
            addresses_w.addr.eq(new_slot),
            addresses_w.data.eq(address),
            holds_w.en.eq(comes | shares | (act & releases)),
            holds_w.addr.eq(target),
            holds_w.data.life.eq(Mux(comes, 1, Mux(releases, was.life - 1, was.life + 1))),
            holds_w.data.batch.eq(Mux(releases, was.batch, self.batch)),
            holds_w.data.ordinal.eq(Mux(releases, was.ordinal, number)),
            lists_w.en.eq(comes | shares),
            lists_w.addr.eq(Cat(number, self.batch)),
            lists_w.data.eq(target),
            nexts_w.en.eq(comes | (goes & link_before.there)),
            nexts_w.addr.eq(Mux(comes, new_slot, link_before.slot)),
            nexts_w.data.there.eq(Mux(comes, headed, link_next.there)),
            nexts_w.data.slot.eq(Mux(comes, first_slot, link_next.slot)),
            befores_w.en.eq(comes | later | (goes & link_next.there)),
            befores_w.addr.eq(Mux(comes, new_slot, Mux(later, later_at, link_next.slot))),
            befores_w.data.there.eq(~comes & (later | link_before.there)),
            befores_w.data.slot.eq(Mux(later, later_slot, link_before.slot)),
            head_moves.eq(comes | (goes & ~link_before.there & link_next.there)),
            heads_w.en.eq(head_moves),
            heads_w.addr.eq(op_bucket),
            heads_w.data.eq(Mux(comes, new_slot, link_next.slot)),
        ]
        with m.If(head_moves & (op_bucket == next_bucket)):
            m.d.sync += known.eq(0)
        with m.If(comes | shares):
            m.d.sync += self.rows.eq(self.rows + 1)
        with m.If(self.open):
            m.d.sync += self.rows.eq(0)
        m.d.sync += [
            self.found.eq(answers),
            self.freed.eq(goes),
            self.o.ordinal.eq(Mux(found & here, was.ordinal, number)),
            self.o.fresh.eq(~found),
            self.o.slot.eq(target),
            self.o.address.eq(address),
            self.o.tag.eq(mark),
        ]

        # -- Free slots: those that came back, then those never given out.
        m.d.sync += [
            in_use.eq(in_use + comes - goes),
            lonely.eq(in_use == 1),
            stacked.eq(depth != 0),
            self.idle.eq(idle & ~next_held & ~self.i.valid & ~self.i_release.valid & (in_use == 0)),
        ]
        m.d.comb += [
            free_a.eq((depth - 1)[:s]),
            free_w.addr.eq(depth[:s]),
            free_w.data.eq(slot),
            free_w.en.eq(goes),
        ]
        with m.If(comes):
            with m.If(stacked):
                m.d.sync += depth.eq(depth - 1)
            with m.Else():
                m.d.sync += fresh_slots.eq(fresh_slots + 1)
        with m.If(goes):
            m.d.sync += depth.eq(depth + 1)
            with m.If(lonely):
                m.d.sync += depth.eq(0)
                m.d.sync += fresh_slots.eq(0)

        self._queries(m, lists_a, queried_slot, list_wait, addresses_a, queried_address, address_wait)
        return m

    def _queries(self, m: Module, lists_a, slot, list_wait: int, addresses_a, address, address_wait: int) -> None:
        """Queries in turns through both memories; who asks has room for the answer."""
        config = self.config
        asks, queues = [], []
        for k in range(QUERY_CLIENTS):
            m.submodules[f"query_{k}"] = queue = Fifo(queried_layout(config), depth=QUERIES)
            wiring.connect(m, queue.o, wiring.flipped(self.o_query[k]))
            queues.append(queue)
            ask = Signal(query_layout(config), name=f"ask_{k}", reset_less=True)
            asked, granted = Signal(name=f"asked_{k}"), Signal(name=f"granted_{k}")
            room = Signal(range(QUERIES + 1), name=f"room_{k}", init=QUERIES)
            leaves = Signal(name=f"leaves_{k}")
            m.d.comb += self.i_query[k].ready.eq(~asked | granted)
            m.d.comb += leaves.eq(queue.o.valid & queue.o.ready)
            m.d.sync += room.eq(room + leaves - granted)
            with m.If(self.i_query[k].ready):
                m.d.sync += asked.eq(self.i_query[k].valid)
                m.d.sync += ask.eq(self.i_query[k].payload)
            asks.append((ask, asked & (room != 0), granted))
        last = Signal(QUERY_CLIENTS)
        grants = round_robin([wants for _, wants, _ in asks], last)
        place = Signal(query_layout(config), reset_less=True)
        turn = Signal(QUERY_CLIENTS)
        m.d.comb += turn.eq(Cat(grants))
        m.d.comb += Cat(granted for *_, granted in asks).eq(turn)
        with m.If(turn.any()):
            m.d.sync += last.eq(turn)
        word = Const(0, len(place.as_value()))
        for (ask, _, _), grant in zip(asks, grants, strict=True):
            word = word | Mux(grant, ask.as_value(), 0)
        m.d.sync += place.eq(word)
        m.d.comb += lists_a.eq(Cat(place.ordinal, place.batch))
        m.d.comb += addresses_a.eq(slot)
        # Turns and slots go beside the memories.
        turns = turn
        for k in range(1 + list_wait + 1 + address_wait + 1):
            passed = Signal(QUERY_CLIENTS, name=f"turn_{k}")
            m.d.sync += passed.eq(turns)
            turns = passed
        beside = slot
        for k in range(address_wait + 1):
            kept = Signal(config.slot_bits, name=f"slot_{k}", reset_less=True)
            m.d.sync += kept.eq(beside)
            beside = kept
        for k, queue in enumerate(queues):
            m.d.comb += queue.i.valid.eq(turns[k])
            m.d.comb += queue.i.payload.slot.eq(beside)
            m.d.comb += queue.i.payload.address.eq(address)
