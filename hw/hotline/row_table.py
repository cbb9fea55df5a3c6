"""Which cold rows lie in the embedding buffer, in which slot, and how many mini-batches in flight hold them."""

from typing import Any, NamedTuple

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


class _Array(NamedTuple):
    """What `RowTable._array` hands on."""

    write: Any
    address: Any
    word: Signal
    registers: Any


class _Arrays(NamedTuple):
    """See `RowTable._arrays`."""

    names: _Array
    nexts: _Array
    befores: _Array
    holds: _Array
    heads: _Array
    free: _Array
    addresses: _Array
    lists: _Array


class _Slots(NamedTuple):
    """What `RowTable.elaborate` hands to other methods."""

    fresh: Signal
    lonely: Signal
    stacked: Signal


class _Ahead(NamedTuple):
    """What `RowTable._look_ahead` hands on."""

    held: Signal
    bucket: Signal
    tag: Signal
    address: Signal
    mark: Signal
    known: Signal
    start: Signal


class _Operation(NamedTuple):
    """What `RowTable._begin` hands on. gives, asks: the release or the lookup whose slot is read ahead begins; turns:
    that is a lookup's."""

    gives: Signal
    asks: Signal
    turns: Signal
    releases: Signal
    bucket: Signal
    tag: Signal
    address: Signal
    mark: Signal
    slot: Signal
    reading: Signal
    compare: Signal
    act: Signal
    idle: Signal
    first: Signal
    was_given: Signal


class _Seen(NamedTuple):
    """What `RowTable._compare` hands on. slot: that was compared, as the next one's may be read already; next_gives,
    next_asks: a release or a lookup may follow, whose slot is read, and which this one does not touch."""

    slot: Signal
    next_gives: Signal
    next_asks: Signal
    found: Any
    here: Any
    passes: Any
    last_holder: Any
    link_next: Signal
    link_before: Signal
    was: Signal
    first_slot: Signal
    headed: Signal


class _Outcome(NamedTuple):
    """What `RowTable._act` hands on."""

    answers: Signal
    shares: Signal
    comes: Signal
    goes: Signal
    new_slot: Signal
    target: Signal


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
    Timing      5 cycles for a lookup or a release, 3 for one whose slot is read while the one before acts: a release,
                where that touches neither its slot nor one beside it; a lookup in another bucket, where no row comes in
                that cycle and the lookup before began 7 cycles ago. 4 more for each further row of the list that is
                passed; 2 more if a row of its bucket came or went just before. 8 cycles from i to found. A query a
                cycle in all, clients in turns; 8 cycles from i_query to o_query. Each further register of an array adds
                one to all of these, and a client has up to 16 queries under way. `idle` is a cycle late
    Handshake   i_release.ready, i_query.ready and all valids come from registers; i.ready follows i_release.valid and
                room. A release goes before a lookup where nothing is inside, else they take turns. A release that is
                taken in the cycle before an answer comes behind that lookup
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
        """A memory: its write port, the address to read, the word that was read `registers` + 1 cycles later."""
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
        return _Array(write=write, address=read.addr, word=word, registers=registers)

    def elaborate(self, platform):
        m = Module()
        arrays = self._arrays(m)
        # Slots. fresh_slots: given out so far, from 0 on; lonely: one is in use; stacked: some came back.
        fresh_slots = Signal(range(self.config.row_slots + 1))
        lonely = Signal()
        stacked = Signal()
        slots = _Slots(fresh=fresh_slots, lonely=lonely, stacked=stacked)
        ahead = self._look_ahead(m, arrays)
        op = self._begin(m, arrays, ahead, slots)
        seen = self._compare(m, arrays, ahead, op)
        act = self._act(m, arrays, op, seen, slots)
        self._write(m, arrays, ahead, op, seen, act)
        self._answer(m, op, seen, act)
        self._free_slots(m, arrays, ahead, op, seen, act, slots)
        self._queries(m, arrays)
        return m

    def _arrays(self, m: Module) -> _Arrays:
        """What is known of each slot, of each bucket, and the rows of each mini-batch."""
        config = self.config
        s, slots = config.slot_bits, config.row_slots
        b = bucket_bits(config)
        link = data.StructLayout({"there": 1, "slot": s})
        hold = data.StructLayout({"life": range(config.batches + 1), "batch": config.batch_bits, "ordinal": s})
        shapes = {
            "names": (data.StructLayout({"bucket": b, "tag": config.domain_bits - b}), slots),
            "nexts": (link, slots),
            "befores": (link, slots),
            "holds": (hold, slots),
            "heads": (s, 2 * slots),
            "free": (s, slots),
            "addresses": (32, slots),
            "lists": (s, config.batches * slots),
        }
        return _Arrays(**{name: self._array(m, name, shape, depth) for name, (shape, depth) in shapes.items()})

    def _look_ahead(self, m: Module, arrays: _Arrays) -> _Ahead:
        """The next lookup, whose bucket's head is looked up ahead. start: it begins."""
        i = self.i.payload
        next_held = Signal()
        start_lookup = Signal()
        bucket, tag = hashed(i.row, bucket_bits(self.config))
        next_bucket = Signal(len(bucket), reset_less=True)
        next_tag = Signal(len(tag), reset_less=True)
        next_address = Signal(32, reset_less=True)
        next_mark = Signal.like(i.tag, reset_less=True)
        known = Signal(arrays.heads.registers + 1)      # cycles since its bucket is asked for, head unchanged
        m.d.comb += self.i.ready.eq(~next_held | start_lookup)
        m.d.comb += arrays.heads.address.eq(next_bucket)
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
        return _Ahead(held=next_held, bucket=next_bucket, tag=next_tag, address=next_address,
                      mark=next_mark, known=known, start=start_lookup)

    def _begin(self, m: Module, arrays: _Arrays, ahead: _Ahead, slots: _Slots) -> _Operation:
        """One lookup or release after the other: array, its registers, compare, act. While one acts the slot of the
        next is read; what is known of it by then decides whether that counts. What is under way."""
        releases = Signal()
        op_bucket = Signal(len(ahead.bucket), reset_less=True)
        op_tag = Signal(len(ahead.tag), reset_less=True)
        address = Signal(32, reset_less=True)
        mark = Signal.like(ahead.mark)
        slot = Signal(self.config.slot_bits, reset_less=True)       # that is looked at
        reading = Signal(arrays.names.registers + 1)                # one-hot: cycles until it is known
        compare = Signal()
        act = Signal()
        idle = Signal(init=1)
        start_release = Signal()
        start_lookup = Signal()
        gives = Signal()
        asks = Signal()
        begins = Signal()
        # Whose slot is read ahead: a lookup's behind a release, a release's behind a lookup, if both wait.
        able = Signal()
        turns = Signal()
        first = Signal(reset_less=True)                             # of the bucket
        was_given = Signal(reset_less=True)
        of_slot = (arrays.names, arrays.nexts, arrays.befores, arrays.holds)
        m.d.comb += [
            start_release.eq(idle & self.i_release.valid),
            self.i_release.ready.eq(idle | gives),
            able.eq(ahead.known[-1] & ahead.held & self.room),
            turns.eq(able & (releases | ~self.i_release.valid)),
            start_lookup.eq(idle & ~self.i_release.valid & able),
            ahead.start.eq(start_lookup | asks),
            begins.eq(start_release | start_lookup),
            *(array.address.eq(slot) for array in of_slot),
        ]
        m.d.sync += [
            reading.eq(Cat(begins, reading[:-1])),
            compare.eq(reading[-1]),
            act.eq(compare),
            was_given.eq(slot < slots.fresh),
        ]
        with m.If(gives | asks):
            m.d.sync += reading[1].eq(1)
        with m.If(begins | compare):
            m.d.sync += slot.eq(Mux(Mux(compare, turns, start_lookup), arrays.heads.word, self.i_release.payload))
        with m.If(begins | gives | asks):
            m.d.sync += [
                idle.eq(0),
                releases.eq(start_release | gives),
                first.eq(1),
                op_bucket.eq(ahead.bucket),
                op_tag.eq(ahead.tag),
                address.eq(ahead.address),
                mark.eq(ahead.mark),
            ]
        return _Operation(gives=gives, asks=asks, turns=turns, releases=releases, bucket=op_bucket, tag=op_tag,
                          address=address, mark=mark, slot=slot, reading=reading, compare=compare, act=act, idle=idle,
                          first=first, was_given=was_given)

    def _compare(self, m: Module, arrays: _Arrays, ahead: _Ahead, op: _Operation) -> _Seen:
        """What the arrays say of the slot; a copy of the links for the act."""
        name, hold, following = arrays.names.word, arrays.holds.word, arrays.nexts.word
        lives = Signal()
        matches = Signal()
        same_tag = Signal()
        found, here, passes, last_holder = (Signal(name=name_, reset_less=True)
                                            for name_ in ("found_", "here", "passes", "last_holder"))
        link = following.shape()
        link_next = Signal(link, reset_less=True)
        link_before = Signal(link, reset_less=True)
        was = Signal.like(hold, reset_less=True)
        first_slot = Signal(self.config.slot_bits, reset_less=True)
        headed = Signal(reset_less=True)
        m.d.comb += lives.eq(op.was_given & (hold.life != 0))
        m.d.comb += matches.eq(lives & (name.bucket == op.bucket))
        m.d.comb += same_tag.eq(name.tag == op.tag)
        # The next one: a release of a row whose links stay, or a lookup in another bucket.
        slot = Signal.like(op.slot, reset_less=True)
        next_gives = Signal()
        next_asks = Signal()
        apart = Signal()
        bucket = Signal.like(op.bucket)
        before = arrays.befores.word
        touched = ((op.slot, 1), (first_slot, 1), (following.slot, following.there), (before.slot, before.there))
        m.d.comb += apart.eq(~Cat((self.i_release.payload == each) & there for each, there in touched).any())
        m.d.comb += bucket.eq(Mux(op.releases, name.bucket, op.bucket))
        m.d.sync += next_gives.eq(op.compare & ~op.turns & self.i_release.valid & apart)
        m.d.sync += next_asks.eq(op.compare & op.turns & (bucket != ahead.bucket))
        with m.If(op.compare):
            m.d.sync += [
                slot.eq(op.slot),
                found.eq(matches & same_tag),
                here.eq(hold.batch == self.batch),
                last_holder.eq(hold.life == 1),
                passes.eq(matches & ~same_tag & following.there),
                was.eq(hold),
                link_next.eq(following),
                link_before.eq(before),
            ]
            with m.If(op.first):
                m.d.sync += first_slot.eq(op.slot)
                m.d.sync += headed.eq(matches)
            with m.If(op.releases):
                m.d.sync += op.bucket.eq(name.bucket)
        return _Seen(slot=slot, next_gives=next_gives, next_asks=next_asks, found=found, here=here, passes=passes,
                     last_holder=last_holder, link_next=link_next, link_before=link_before, was=was,
                     first_slot=first_slot, headed=headed)

    def _act(self, m: Module, arrays: _Arrays, op: _Operation, seen: _Seen, slots: _Slots) -> _Outcome:
        """What becomes of the row: the list goes on, or it is shared, comes or goes."""
        s = self.config.slot_bits
        # What the memory of free slots says has been there for cycles when a row comes.
        new_slot = Signal(s, reset_less=True)
        target = Signal(s)
        goes_on = Signal()
        answers = Signal()
        shares = Signal()
        comes = Signal()
        goes = Signal()
        m.d.comb += [
            goes_on.eq(op.act & ~op.releases & seen.passes),
            answers.eq(op.act & ~op.releases & ~seen.passes),
            shares.eq(answers & seen.found & ~seen.here),
            comes.eq(answers & ~seen.found),
            goes.eq(op.act & op.releases & seen.last_holder),
            target.eq(Mux(comes, new_slot, seen.slot)),
            op.gives.eq(seen.next_gives & ~goes_on),
            op.asks.eq(seen.next_asks & ~goes_on & ~comes & self.room),
        ]
        # The one that went last is the next to be given out, which the memory of free slots says only later.
        given = Signal(arrays.free.registers + 1)
        m.d.sync += given.eq(Cat(goes, given[:-1]))
        with m.If(goes):
            m.d.sync += new_slot.eq(Mux(slots.lonely, 0, seen.slot))
        with m.Elif(~given.any()):
            m.d.sync += new_slot.eq(Mux(slots.stacked, arrays.free.word, slots.fresh))
        with m.If(op.act):
            m.d.sync += op.idle.eq(~(goes_on | op.gives | op.asks))
        with m.If(goes_on):
            m.d.sync += op.slot.eq(seen.link_next.slot)
            m.d.sync += op.reading[0].eq(1)
            m.d.sync += op.first.eq(0)
        return _Outcome(answers=answers, shares=shares, comes=comes, goes=goes, new_slot=new_slot, target=target)

    def _write(self, m: Module, arrays: _Arrays, ahead: _Ahead, op: _Operation, seen: _Seen, act: _Outcome) -> None:
        """The arrays, as the act leaves them: the row's name, who holds it, and the links of its list."""
        s = self.config.slot_bits
        number = self.rows[:s]
        comes, goes, shares, new_slot = act.comes, act.goes, act.shares, act.new_slot
        link_next, link_before, was = seen.link_next, seen.link_before, seen.was
        names, addresses, holds, lists = (array.write for array in (arrays.names, arrays.addresses, arrays.holds,
                                                                    arrays.lists))
        nexts, befores, heads = (array.write for array in (arrays.nexts, arrays.befores, arrays.heads))
        # A row that comes goes before the head; its own links and the head's, which is written a cycle later.
        later = Signal()
        later_at = Signal(s, reset_less=True)
        later_slot = Signal(s, reset_less=True)
        m.d.sync += later.eq(comes & seen.headed)
        m.d.sync += later_at.eq(seen.first_slot)
        m.d.sync += later_slot.eq(new_slot)
        head_moves = Signal()
        m.d.comb += [
            names.en.eq(comes),
            names.addr.eq(new_slot),
            names.data.bucket.eq(op.bucket),
            names.data.tag.eq(op.tag),
            addresses.en.eq(comes),
            addresses.addr.eq(new_slot),
            addresses.data.eq(op.address),
            holds.en.eq(comes | shares | (op.act & op.releases)),
            holds.addr.eq(act.target),
            holds.data.life.eq(Mux(comes, 1, Mux(op.releases, was.life - 1, was.life + 1))),
            holds.data.batch.eq(Mux(op.releases, was.batch, self.batch)),
            holds.data.ordinal.eq(Mux(op.releases, was.ordinal, number)),
            lists.en.eq(comes | shares),
            lists.addr.eq(Cat(number, self.batch)),
            lists.data.eq(act.target),
            nexts.en.eq(comes | (goes & link_before.there)),
            nexts.addr.eq(Mux(comes, new_slot, link_before.slot)),
            nexts.data.there.eq(Mux(comes, seen.headed, link_next.there)),
            nexts.data.slot.eq(Mux(comes, seen.first_slot, link_next.slot)),
            befores.en.eq(comes | later | (goes & link_next.there)),
            befores.addr.eq(Mux(comes, new_slot, Mux(later, later_at, link_next.slot))),
            befores.data.there.eq(~comes & (later | link_before.there)),
            befores.data.slot.eq(Mux(later, later_slot, link_before.slot)),
            head_moves.eq(comes | (goes & ~link_before.there & link_next.there)),
            heads.en.eq(head_moves),
            heads.addr.eq(op.bucket),
            heads.data.eq(Mux(comes, new_slot, link_next.slot)),
        ]
        with m.If(head_moves & (op.bucket == ahead.bucket)):
            m.d.sync += ahead.known.eq(0)

    def _answer(self, m: Module, op: _Operation, seen: _Seen, act: _Outcome) -> None:
        """Ordinals are counted, and what was found goes out."""
        with m.If(act.comes | act.shares):
            m.d.sync += self.rows.eq(self.rows + 1)
        with m.If(self.open):
            m.d.sync += self.rows.eq(0)
        m.d.sync += [
            self.found.eq(act.answers),
            self.freed.eq(act.goes),
            self.o.ordinal.eq(Mux(seen.found & seen.here, seen.was.ordinal, self.rows[:self.config.slot_bits])),
            self.o.fresh.eq(~seen.found),
            self.o.slot.eq(act.target),
            self.o.address.eq(op.address),
            self.o.tag.eq(op.mark),
        ]

    def _free_slots(self, m: Module, arrays: _Arrays, ahead: _Ahead, op: _Operation, seen: _Seen, act: _Outcome,
                    slots: _Slots) -> None:
        """Free slots: those that came back, in a stack, then those never given out."""
        s, count, free = self.config.slot_bits, range(self.config.row_slots + 1), arrays.free
        # slots; of them in the stack
        in_use = Signal(count)
        depth = Signal(count)
        m.d.sync += [
            in_use.eq(in_use + act.comes - act.goes),
            slots.lonely.eq(in_use == 1),
            slots.stacked.eq(depth != 0),
            self.idle.eq(op.idle & ~ahead.held & ~self.i.valid & ~self.i_release.valid & (in_use == 0)),
        ]
        m.d.comb += [
            free.address.eq((depth - 1)[:s]),
            free.write.addr.eq(depth[:s]),
            free.write.data.eq(seen.slot),
            free.write.en.eq(act.goes),
        ]
        with m.If(act.comes):
            with m.If(slots.stacked):
                m.d.sync += depth.eq(depth - 1)
            with m.Else():
                m.d.sync += slots.fresh.eq(slots.fresh + 1)
        with m.If(act.goes):
            m.d.sync += depth.eq(depth + 1)
            with m.If(slots.lonely):
                m.d.sync += depth.eq(0)
                m.d.sync += slots.fresh.eq(0)

    def _queries(self, m: Module, arrays: _Arrays) -> None:
        """Queries in turns through both memories; who asks has room for the answer."""
        config = self.config
        slot, list_wait, address_wait = arrays.lists.word, arrays.lists.registers, arrays.addresses.registers
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
        m.d.comb += arrays.lists.address.eq(Cat(place.ordinal, place.batch))
        m.d.comb += arrays.addresses.address.eq(slot)
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
            m.d.comb += queue.i.payload.address.eq(arrays.addresses.word)
