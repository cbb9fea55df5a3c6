"""Which cold rows lie in the embedding buffer, in which slot, and how many mini-batches in flight hold them."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Shape, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.hotline.config import HotlineConfig
from hw.place import Part
from hw.stream.fifo import Fifo

QUERY_CLIENTS = 3       # the dispatcher, the updater, the bags' reader
QUERIES = 16            # in flight, per client
LOOKUPS = 32            # in flight, at most
RELEASES = 16           # queued
RELEASES_PER_LOOKUP = 3     # while both wait
FREE_SLOTS = 16         # read from the free list ahead of the rows that take them
WAYS = 4                # of a bucket
LIST_BANKS = 2          # of the mini-batches' lists: a row's is its ordinal's lowest bit
ARRAY_ROWS = 32768      # of an array need an output register: eight UltraRAMs one above the other
LUT_DEPTH = 64
URAM_DEPTH, URAM_WIDTH = 4096, 72
TAPS = 5                # bits of the tag in each bit of the bucket: one LUT


def bucket_bits(config: HotlineConfig) -> int:
    """Bits of a bucket's number: the table has two ways for each slot."""
    return config.slot_bits + 1 - (WAYS - 1).bit_length()


def hash_row(row: Value, bits: int) -> tuple[Value, Value]:
    """(bucket, tag) of a row: a bijection. tag: the row's upper bits; bucket: its `bits` low bits, each XORed with up
    to TAPS bits of the tag, so that rows at regular distances spread over the buckets."""
    tag_bits = len(row) - bits
    bucket = []
    for k in range(bits):
        taps = {(k * 7 + step * (k % 3 + 2) * 3 + step) % tag_bits for step in range(TAPS)} | {k % tag_bits}
        bucket.append(row[k] ^ Cat(row[bits + tap] for tap in sorted(taps)[:TAPS]).xor())
    return Cat(bucket), row[bits:]


def lookup_layout(config: HotlineConfig) -> data.StructLayout:
    """A lookup of a row. address: of its first beat in the rows' buffer, in beats; tag: returned with the result."""
    return data.StructLayout({"row": config.domain_bits, "address": 32, "tag": (config.words - 1).bit_length() + 1})


def result_layout(config: HotlineConfig) -> data.StructLayout:
    """The result of a lookup. ordinal: the row's in the mini-batch; miss: the row has to be read from `address` into
    `slot`, which was allocated for it; tag: the lookup's."""
    return data.StructLayout({"ordinal": config.slot_bits, "miss": 1, "slot": config.slot_bits, "address": 32,
                              "tag": (config.words - 1).bit_length() + 1})


def query_layout(config: HotlineConfig) -> data.StructLayout:
    """A row of a mini-batch in flight, by its ordinal."""
    return data.StructLayout({"batch": config.batch_bits, "ordinal": config.slot_bits})


def location_layout(config: HotlineConfig) -> data.StructLayout:
    """Where a row is: its slot, and the address of its first beat in the rows' buffer, in beats."""
    return data.StructLayout({"slot": config.slot_bits, "address": 32})


def _net_change(bits: int, up: Value, down: Value, up_too: Value | None = None) -> Value:
    """up + up_too - down in two's complement, `bits` wide, as one operand of a carry chain."""
    any_up = up if up_too is None else up | up_too
    two = Const(0, 1) if up_too is None else up & up_too & ~down
    negative = down & ~any_up
    odd = up ^ down if up_too is None else up ^ up_too ^ down
    return Cat(odd, negative | two, negative.replicate(bits))[:bits]


def _key_layout(config: HotlineConfig) -> data.StructLayout:
    """A row as `hash_row` splits it. home: the bucket where its search begins."""
    return data.StructLayout({"home": bucket_bits(config), "tag": config.domain_bits - bucket_bits(config)})


def _operation_layout(config: HotlineConfig) -> data.StructLayout:
    """A lookup, a release or, if neither bit is set, the decrement of a bucket's overflow count.

    bucket: where it acts; way: of a release, one-hot; displaced: `bucket` is not the row's home; insert: the row is
    known to be absent; tag: the lookup's."""
    return data.StructLayout({
        "valid": 1, "lookup": 1, "release": 1, "bucket": bucket_bits(config), "key": _key_layout(config), "way": WAYS,
        "displaced": 1, "insert": 1, "address": 32, "tag": lookup_layout(config)["tag"].width})


class _Ram(NamedTuple):
    """A memory. data: the word at `address`, `registers` + 1 cycles later."""

    write: memory.WritePort
    address: Signal
    data: Any       # a Signal or a View, as the words' shape
    registers: int


class _Rams(NamedTuple):
    """The table's memories. ways: the entries of each bucket; overflow: how many rows of earlier buckets lie beyond
    this one; entry_of: bucket and way of the row in a slot; free: the free list, a ring of slots."""

    ways: list[_Ram]
    overflow: _Ram
    entry_of: _Ram
    free: _Ram


class _LookupQueue(NamedTuple):
    """Lookups until their results. valid, head: the next one; issue: it enters the pipeline; replay: those behind the
    one that acts are issued again; retire: one has acted and is not replayed; busy: there are some."""

    valid: Signal
    head: data.View
    issue: Signal
    replay: Signal
    retire: Signal
    busy: Value


class _ReleaseQueue(NamedTuple):
    """Releases until they act. valid, head: the entry of the next one; issue: it enters the pipeline; empty: there are
    none; blocking: lookups wait for some."""

    valid: Signal
    head: data.View
    issue: Signal
    empty: Value
    blocking: Signal


class _Clear(NamedTuple):
    """After a reset every bucket is emptied, one per cycle. active: this one."""

    active: Signal
    bucket: Signal


class _Outcome(NamedTuple):
    """What the operation at the end of the pipeline does.

    op: the operation; way: its entry's, one-hot; entry, overflow: as read from its bucket; in_batch: the entry belongs
    to the present mini-batch; last: one mini-batch holds it.
    hit: of a lookup; allocates: a lookup misses and takes a free way; releases: a reference; decrements: the overflow
    count. redirects: a lookup continues in another bucket: to insert in the next one, this one being full (overflows),
    to insert at home (returns), or else to search the next one.
    """

    op: data.View
    way: Signal
    entry: data.View
    overflow: Signal
    in_batch: Signal
    last: Signal
    hit: Signal
    allocates: Signal
    releases: Signal
    decrements: Signal
    overflows: Signal
    returns: Signal
    redirects: Signal


class RowTable(Part):
    """Maps rows to slots: allocates slots, numbers a mini-batch's rows, counts references and frees slots.

    ordinal = number of distinct rows looked up before in this mini-batch, at a row's first lookup in it;
    references = mini-batches in flight that hold the row; at 0 its slot is free.    Source: EL-Rec §V.B (life cycle)

    A hash table of buckets with four ways. A row whose home bucket is full is inserted in the next bucket with a free
    way, and each bucket that it passes counts it as overflow: a search ends at a bucket without overflow.
    Source: Knuth, TAOCP 3, §6.4 (linear probing with buckets)

    Parameters  config: HotlineConfig; array_rows: rows of a memory per output register
    Members     i           In(stream of lookup_layout)
                o_valid, o  Out  a pulse and its result, of result_layout, in order
                limit       In  slots to use; the table is empty when it changes
                open        In  a pulse: a mini-batch begins, while no lookup is in flight and no row of an earlier one
                    of that number is held
                batch       In  number of the mini-batch that begins
                rows        Out  distinct ones in it so far
                freed       Out  a pulse per slot that becomes free
                i_release   In(stream of slots)  a mini-batch releases the row
                i_query[k]  In(stream of query_layout)
                o_query[k]  Out(stream of location_layout)  of any mini-batch in flight
                idle        Out  no lookup or release is in flight and no slot in use
    Shapes      slots are allocated from 0 on, then in the order in which they were freed. The client must not look up
                more rows than there are free slots
    Timing      a lookup or a release per cycle, three releases per lookup where both wait; one whose bucket is in use
                by another waits until that has acted, 5 cycles later. 8 cycles from i to o_valid. A row outside its
                home bucket, or one whose home is full: 6 cycles more per bucket probed, and nothing else is issued.
                Two queries per cycle, of an even and of an odd ordinal; of two clients' that of the lower number goes
                first; 8 cycles from i_query to o_query. Each further register of a memory adds one to all of these.
                `idle` is a cycle late. After a reset the first lookup waits until all buckets are cleared, one per
                cycle
    Handshake   readies and valids come from registers. Lookups and releases each act in order. The client needs
                room for the result of every lookup
    Reset       forgets all rows
    Golden      golden.hotline.row_table.RowTable          Tests  verif/hotline/test_row_table.py
    """

    def __init__(self, config: HotlineConfig, *, array_rows: int = ARRAY_ROWS):
        self.config = config
        self.array_rows = array_rows
        super().__init__({
            "i": In(stream.Signature(lookup_layout(config))),
            "o_valid": Out(1),
            "o": Out(result_layout(config)),
            "limit": In(range(config.row_slots + 1)),
            "open": In(1),
            "batch": In(config.batch_bits),
            "rows": Out(range(config.row_slots + 1)),
            "freed": Out(1),
            "i_release": In(stream.Signature(config.slot_bits)),
            "i_query": In(stream.Signature(query_layout(config))).array(QUERY_CLIENTS),
            "o_query": Out(stream.Signature(location_layout(config))).array(QUERY_CLIENTS),
            "idle": Out(1),
        })

    def _ram(self, m: Module, name: str, shape, depth: int) -> _Ram:
        width = Shape.cast(shape).width
        # Wide and deep enough that UltraRAM is not wasted; the tools choose for what lies between.
        ultra = depth > ARRAY_ROWS or (depth >= URAM_DEPTH and URAM_WIDTH // 2 < width <= URAM_WIDTH)
        style = "distributed" if depth <= LUT_DEPTH else "ultra" if ultra else "block"
        m.submodules[name] = array = memory.Memory(shape=shape, depth=depth, init=[], attrs={"ram_style": style})
        write, read = array.write_port(), array.read_port()
        registers = max(1, depth // self.array_rows)
        word = read.data
        for k in range(registers):
            register = Signal(shape, name=f"{name}_{k}", reset_less=True)
            m.d.sync += register.eq(word)
            word = register
        return _Ram(write=write, address=read.addr, data=word, registers=registers)

    def elaborate(self, platform):
        m = Module()
        rams = self._rams(m)
        result = Signal()           # a lookup has its result
        probing = Signal()          # one operation is inside, and goes from bucket to bucket
        clear = _Clear(active=Signal(init=1, name="clearing"), bucket=Signal(bucket_bits(self.config), name="cleared"))
        with m.If(clear.active):
            m.d.sync += clear.bucket.eq(clear.bucket + 1)
            m.d.sync += clear.active.eq(~clear.bucket.all())
        lookups = self._lookups(m, result)
        released = Signal()         # a release acts
        releases = self._releases(m, rams, released)
        stages = self._pipeline(m, rams)
        outcome = self._decide(m, rams, stages, lookups.replay)
        m.d.comb += released.eq(outcome.releases)
        slot, may_allocate = self._free_slots(m, rams, outcome, lookups, result)
        self._issue(m, stages, outcome, lookups, releases, may_allocate, probing, clear.active)
        self._write(m, rams, outcome, slot, result, clear)
        in_use = Signal(range(self.config.row_slots + 1))
        m.d.sync += in_use.eq(in_use + _net_change(len(in_use), outcome.allocates, outcome.releases & outcome.last))
        m.d.sync += self.idle.eq(~(self.i.valid | lookups.busy | probing) & releases.empty & (in_use == 0))
        return m

    def _rams(self, m: Module) -> _Rams:
        config = self.config
        s, slots, b = config.slot_bits, config.row_slots, bucket_bits(config)
        entry = data.StructLayout({"key": _key_layout(config), "displaced": 1, "references": range(config.batches + 1),
                                   "batch": config.batch_bits, "ordinal": s, "slot": s})
        entry_of = data.StructLayout({"bucket": b, "way": WAYS, "displaced": 1})
        return _Rams(
            ways=[self._ram(m, f"way_{k}", entry, 1 << b) for k in range(WAYS)],
            overflow=self._ram(m, "overflow", range(slots + 1), 1 << b),
            entry_of=self._ram(m, "entry_of", entry_of, slots),
            free=self._ram(m, "free", s, slots))

    def _lookups(self, m: Module, result: Signal) -> _LookupQueue:
        """The queue of lookups, whose read pointer can return to the one behind that which acts."""
        i, config = self.i.payload, self.config
        lookup = data.StructLayout({"key": _key_layout(config), "address": 32, "tag": len(i.tag)})
        m.submodules.lookups = lookups = memory.Memory(shape=lookup, depth=LOOKUPS, init=[],
                                                       attrs={"ram_style": "distributed"})
        write, read = lookups.write_port(), lookups.read_port(domain="comb")
        write_at, read_at, oldest = (Signal(range(LOOKUPS), name=name) for name in ("write_at", "read_at", "oldest"))
        in_flight = Signal(range(LOOKUPS + 1))
        head = Signal(lookup, reset_less=True)
        valid = Signal()
        issue = Signal()
        replay = Signal()
        retire = Signal()
        home, tag = hash_row(i.row, bucket_bits(self.config))
        m.d.comb += [
            self.i.ready.eq(~in_flight[-1]),
            write.en.eq(self.i.valid & self.i.ready),
            write.addr.eq(write_at),
            write.data.key.home.eq(home),
            write.data.key.tag.eq(tag),
            write.data.address.eq(i.address),
            write.data.tag.eq(i.tag),
            read.addr.eq(read_at),
        ]
        m.d.sync += write_at.eq(write_at + write.en)
        m.d.sync += oldest.eq(oldest + retire)
        m.d.sync += in_flight.eq(in_flight + _net_change(len(in_flight), write.en, result))
        take = ~valid | issue
        # As a sum of what moves it: a choice behind `issue` would be a level more.
        m.d.sync += read_at.eq(Mux(replay, oldest + retire, read_at + (take & (read_at != write_at))))
        with m.If(take):
            m.d.sync += head.eq(read.data)
            m.d.sync += valid.eq(read_at != write_at)
        with m.If(replay):
            m.d.sync += valid.eq(0)
        return _LookupQueue(valid=valid, head=head, issue=issue, replay=replay, retire=retire, busy=in_flight.any())

    def _releases(self, m: Module, rams: _Rams, released: Signal) -> _ReleaseQueue:
        """Reads the entries of the slots that are released, into a queue."""
        m.submodules.releases = releases = Fifo(rams.entry_of.data.shape(), depth=RELEASES)
        count = Signal(range(RELEASES + 1))
        slot = Signal(self.config.slot_bits, reset_less=True)
        reading = Signal(rams.entry_of.registers + 2)
        taken = Signal()
        issue = Signal()
        m.d.comb += [
            self.i_release.ready.eq(~count[-1]),
            taken.eq(self.i_release.valid & self.i_release.ready),
            rams.entry_of.address.eq(slot),
            releases.i.valid.eq(reading[-1]),
            releases.i.payload.eq(rams.entry_of.data),
            releases.o.ready.eq(issue),
        ]
        m.d.sync += slot.eq(self.i_release.payload)
        m.d.sync += reading.eq(Cat(taken, reading[:-1]))
        m.d.sync += count.eq(count + _net_change(len(count), taken, released))
        # Those of the mini-batch whose number is used again go before its lookups.
        earlier = Signal.like(count)
        blocking = Signal()
        m.d.sync += blocking.eq(earlier != 0)
        with m.If(self.open):
            m.d.sync += blocking.eq(1)
            m.d.sync += earlier.eq(count - released)
        with m.Elif(released & (earlier != 0)):
            m.d.sync += earlier.eq(earlier - 1)
        return _ReleaseQueue(valid=releases.o.valid, head=releases.o.payload, issue=issue,
                             empty=~self.i_release.valid & (count == 0), blocking=blocking)

    def _pipeline(self, m: Module, rams: _Rams) -> list[data.View]:
        """The operation in each stage, from the one that reads its bucket to the one in which it acts."""
        layout = _operation_layout(self.config)
        stages = [Signal(layout, name=f"stage_{k}") for k in range(rams.ways[0].registers + 4)]
        for before, after in zip(stages, stages[1:]):
            m.d.sync += after.eq(before)
        for ram in (*rams.ways, rams.overflow):
            m.d.comb += ram.address.eq(stages[0].bucket)
        return stages

    def _decide(self, m: Module, rams: _Rams, stages: list, replay: Signal) -> _Outcome:
        """The last three stages: compares all ways with the key, selects one, and decides what the operation does."""
        words = [ram.data for ram in rams.ways]
        compared, selected, op = stages[-3], stages[-2], stages[-1]
        hits, used, in_batch = (Signal(WAYS, name=name, reset_less=True) for name in ("hits", "used", "same_batch"))
        overflow = [Signal.like(rams.overflow.data, name=f"overflow_{k}_", reset_less=True) for k in range(2)]
        entries = [Signal.like(word, name=f"entry_{k}", reset_less=True) for k, word in enumerate(words)]
        beyond = Signal(reset_less=True)        # some rows lie beyond this bucket
        m.d.sync += [
            used.eq(Cat(word.references != 0 for word in words)),
            hits.eq(Cat(Mux(compared.release, compared.way[k],
                            (word.references != 0) & (word.key.as_value() == compared.key.as_value()))
                        for k, word in enumerate(words))),
            in_batch.eq(Cat(word.batch == self.batch for word in words)),
            *(entry.eq(word) for entry, word in zip(entries, words, strict=True)),
            overflow[0].eq(rams.overflow.data),
            overflow[1].eq(overflow[0]),
            beyond.eq(rams.overflow.data != 0),
        ]
        way = Signal(WAYS, reset_less=True)
        entry = Signal(words[0].shape(), reset_less=True)
        flags = {name: Signal(name=name) for name in (
            "in_batch", "last", "allocates", "hit", "releases", "overflows", "returns", "decrements", "redirects")}
        any_hit = Signal()
        any_free = Signal()
        ends = Signal()                         # no further bucket is searched
        absent = Signal()
        hit_entry = Signal(entry.shape())
        first_free = ~used & Cat(Const(1, 1), *(used[:k].all() for k in range(1, WAYS)))
        # A lookup that is replayed is not valid any more; see `_issue`.
        lookup = selected.valid & selected.lookup & ~replay
        m.d.comb += [
            any_hit.eq(hits.any()),
            any_free.eq(~used.all()),
            ends.eq(selected.insert | (~selected.displaced & ~beyond)),
            absent.eq(lookup & ~any_hit),
            hit_entry.as_value().eq(Cat(Cat(word.as_value()[bit] & hit for word, hit in zip(entries, hits)).any()
                                        for bit in range(len(entry.as_value())))),
        ]
        m.d.sync += [
            way.eq(Mux(any_hit, hits, first_free)),
            entry.eq(hit_entry),
            flags["in_batch"].eq((hits & in_batch).any()),
            flags["last"].eq(hit_entry.references == 1),
            flags["hit"].eq(lookup & any_hit),
            flags["allocates"].eq(absent & ends & any_free),
            flags["redirects"].eq(absent & ~(ends & any_free)),
            flags["overflows"].eq(absent & ends & ~any_free),
            flags["returns"].eq(absent & ~selected.insert & selected.displaced & ~beyond),
            flags["releases"].eq(selected.valid & selected.release),
            flags["decrements"].eq(selected.valid & ~selected.release & ~selected.lookup),
        ]
        return _Outcome(op=op, way=way, entry=entry, overflow=overflow[1], **flags)

    def _free_slots(self, m: Module, rams: _Rams, outcome: _Outcome, lookups: _LookupQueue, result: Signal
                    ) -> tuple[Value, Signal]:
        """(the next free slot, whether a further lookup may take one). Slots 0, 1, ..., then those freed, in order."""
        count, free = range(self.config.row_slots + 1), rams.free
        limit, unused, unused_left, stored = (
            Signal(count, name=name) for name in ("limit_", "unused", "unused_left", "stored"))
        some_unused = Signal()      # unused_left, the slots that none has had yet, is not 0
        some_stored = Signal()      # nor is stored, the length of the free list
        write_at, read_at = (Signal(self.config.slot_bits, name=name) for name in ("free_write_at", "free_read_at"))
        restart = Signal()
        slots = Fifo(self.config.slot_bits, depth=FREE_SLOTS)
        m.submodules.slots = ResetInserter(restart)(slots)
        # In the queue; less those that lookups may take.
        level, spare = (Signal(range(2 * FREE_SLOTS), name=name) for name in ("level", "spare"))
        reading = Signal(free.registers + 1)
        claimed = Signal(range(2 * FREE_SLOTS))     # in the queue, or read for it
        push_unused = Signal()
        push_freed = Signal()
        read = Signal()
        push = Signal()
        m.d.comb += [
            push_unused.eq(some_unused & ~claimed[-1] & ~restart),
            read.eq(~some_unused & some_stored & ~claimed[-1] & ~restart),
            push_freed.eq(reading[-1]),
            push.eq(push_unused | push_freed),
            slots.i.valid.eq(push),
            slots.i.payload.eq(Mux(push_freed, free.data, unused[:self.config.slot_bits])),
            slots.o.ready.eq(outcome.allocates),
            free.address.eq(read_at),
            free.write.en.eq(outcome.releases & outcome.last),
            free.write.addr.eq(write_at),
            free.write.data.eq(outcome.entry.slot),
        ]
        m.d.sync += [
            limit.eq(self.limit),
            restart.eq(limit != self.limit),
            unused.eq(unused + push_unused),
            unused_left.eq(unused_left - push_unused),
            some_unused.eq((unused_left[1:] != 0) | (unused_left[0] & ~push_unused)),
            reading.eq(Cat(read, reading[:-1])),
            read_at.eq(read_at + read),
            write_at.eq(write_at + free.write.en),
            stored.eq(stored + _net_change(len(stored), free.write.en, read)),
            some_stored.eq((stored[1:] != 0) | (stored[0] & ~read)),
            claimed.eq(claimed + _net_change(len(claimed), push_unused | read, outcome.allocates)),
            level.eq(level + _net_change(len(level), push, outcome.allocates)),
            spare.eq(spare + _net_change(len(spare), push, lookups.issue, result & ~outcome.allocates)),
        ]
        # The lookup that continues keeps its claim; those that are replayed have none any more.
        with m.If(lookups.replay):
            m.d.sync += spare.eq(level + _net_change(len(spare), push, Const(1, 1)))
        with m.If(restart):
            m.d.sync += [register.eq(0) for register in (
                unused, stored, some_stored, write_at, read_at, claimed, level, spare, reading)]
            m.d.sync += unused_left.eq(limit)
            m.d.sync += some_unused.eq(0)
        may_allocate = Signal()
        m.d.sync += may_allocate.eq((spare[1:] != 0) | (spare[0] & ~lookups.issue))
        return slots.o.payload, may_allocate

    def _issue(self, m: Module, stages: list, outcome: _Outcome, lookups: _LookupQueue, releases: _ReleaseQueue,
               may_allocate: Signal, probing: Signal, clearing: Signal) -> None:
        """Issues a lookup or a release whose bucket is in no stage, or one that continues in another bucket. A lookup
        that does squashes those behind it, which are replayed."""
        b = bucket_bits(self.config)
        op, key = outcome.op, outcome.entry.key
        redirected = Signal(_operation_layout(self.config), reset_less=True)    # that continues
        waiting = Signal()                      # it waits for an empty pipeline
        stop = Signal(b, reset_less=True)       # bucket in which the released row was
        credit = Signal(range(RELEASES_PER_LOOKUP + 1))     # releases that go before the next lookup
        empty = Signal()
        may_issue = Signal()
        no_conflict = {name: Signal(name=f"{name}_no_conflict") for name in ("lookup", "release")}
        wants_lookup = Signal()
        for name, bucket in (("lookup", lookups.head.key.home), ("release", releases.head.bucket)):
            m.d.comb += no_conflict[name].eq(
                ~Cat(stage.valid & (stage.bucket == bucket) for stage in stages[:-1]).any())
        m.d.comb += [
            lookups.replay.eq(outcome.redirects),
            empty.eq(~Cat(stage.valid for stage in stages).any()),
            may_issue.eq(~probing & ~clearing & ~lookups.replay),
            wants_lookup.eq(lookups.valid & may_allocate & ~releases.blocking),
            lookups.issue.eq(may_issue & wants_lookup & no_conflict["lookup"] & ~(credit.any() & releases.valid)),
            releases.issue.eq(may_issue & releases.valid & Mux(releases.head.displaced, empty, no_conflict["release"])
                              & (credit.any() | ~wants_lookup)),
            lookups.retire.eq((outcome.hit | outcome.allocates | lookups.replay) & ~probing),
        ]
        with m.If(lookups.issue):
            m.d.sync += credit.eq(RELEASES_PER_LOOKUP)
        with m.Elif(releases.issue & credit.any()):
            m.d.sync += credit.eq(credit - 1)
        first = stages[0]
        m.d.sync += [
            first.valid.eq(lookups.issue | releases.issue | (waiting & empty)),
            first.lookup.eq(lookups.issue),
            first.release.eq(releases.issue),
            first.bucket.eq(Mux(lookups.issue, lookups.head.key.home, releases.head.bucket)),
            first.key.eq(lookups.head.key),
            first.way.eq(releases.head.way),
            first.displaced.eq(0),
            first.insert.eq(0),
            first.address.eq(lookups.head.address),
            first.tag.eq(lookups.head.tag),
        ]
        with m.If(waiting):
            m.d.sync += first.eq(redirected)
            m.d.sync += first.valid.eq(empty)
            m.d.sync += waiting.eq(~empty)
        with m.If(lookups.replay):
            for before, after in zip(stages, stages[1:]):
                m.d.sync += after.valid.eq(before.valid & ~before.lookup)
        next_bucket = Signal(b)
        m.d.comb += next_bucket.eq(op.bucket + 1)
        with m.If(releases.issue & releases.head.displaced):
            m.d.sync += probing.eq(1)
        with m.If(outcome.hit | outcome.allocates | outcome.releases | outcome.decrements):
            with m.If(~waiting):
                m.d.sync += probing.eq(0)
        with m.If(lookups.replay):
            m.d.sync += probing.eq(1)
            m.d.sync += waiting.eq(1)
            m.d.sync += redirected.eq(op)
            m.d.sync += redirected.insert.eq(outcome.overflows | outcome.returns)
            m.d.sync += redirected.displaced.eq(~outcome.returns)
            m.d.sync += redirected.bucket.eq(Mux(outcome.returns, op.key.home, next_bucket))
        # A displaced row that is evicted is taken off the overflow counts from its home to the bucket before its own.
        for decrements, bucket in ((outcome.releases & outcome.last & outcome.entry.displaced, key.home),
                                   (outcome.decrements & (next_bucket != stop), next_bucket)):
            with m.If(decrements):
                m.d.sync += probing.eq(1)
                m.d.sync += waiting.eq(1)
                m.d.sync += redirected.lookup.eq(0)
                m.d.sync += redirected.release.eq(0)
                m.d.sync += redirected.bucket.eq(bucket)
        with m.If(outcome.releases):
            m.d.sync += stop.eq(op.bucket)

    def _write(self, m: Module, rams: _Rams, outcome: _Outcome, slot, result: Signal, clear: _Clear) -> None:
        """Writes the entry, its overflow count, the slot's entry and the mini-batch's list; the result."""
        s = self.config.slot_bits
        op, entry, allocate, release = outcome.op, outcome.entry, outcome.allocates, outcome.releases
        ordinal = self.rows[:s]
        new = Signal(entry.shape())
        adds_reference = Signal()
        new_slot = Signal(s)
        m.d.comb += [
            result.eq(outcome.hit | allocate),
            adds_reference.eq(outcome.hit & ~outcome.in_batch),
            new_slot.eq(Mux(allocate, slot, entry.slot)),
            new.key.eq(Mux(release, entry.key, op.key)),
            new.displaced.eq(Mux(allocate, op.displaced, entry.displaced)),
            new.references.eq(Mux(allocate, 1, Mux(release, entry.references - 1, entry.references + 1))),
            new.batch.eq(Mux(release, entry.batch, self.batch)),
            new.ordinal.eq(Mux(release, entry.ordinal, ordinal)),
            new.slot.eq(new_slot),
        ]
        for k, ram in enumerate(rams.ways):
            m.d.comb += ram.write.en.eq(clear.active | (outcome.way[k] & (allocate | adds_reference | release)))
            m.d.comb += ram.write.addr.eq(Mux(clear.active, clear.bucket, op.bucket))
            m.d.comb += ram.write.data.eq(new)
            with m.If(clear.active):
                m.d.comb += ram.write.data.references.eq(0)
        overflow, entry_of = rams.overflow.write, rams.entry_of.write
        m.d.comb += [
            overflow.en.eq(clear.active | outcome.overflows | outcome.decrements),
            overflow.addr.eq(Mux(clear.active, clear.bucket, op.bucket)),
            overflow.data.eq(
                Mux(clear.active, 0, outcome.overflow + Cat(Const(1, 1), outcome.decrements.replicate(s)))),
            entry_of.en.eq(allocate),
            entry_of.addr.eq(slot),
            entry_of.data.bucket.eq(op.bucket),
            entry_of.data.way.eq(outcome.way),
            entry_of.data.displaced.eq(op.displaced),
        ]
        with m.If(allocate | adds_reference):
            m.d.sync += self.rows.eq(self.rows + 1)
        with m.If(self.open):
            m.d.sync += self.rows.eq(0)
        m.d.sync += [
            self.o_valid.eq(result),
            self.freed.eq(release & outcome.last),
            self.o.ordinal.eq(Mux(outcome.hit & outcome.in_batch, entry.ordinal, ordinal)),
            self.o.miss.eq(allocate),
            self.o.slot.eq(new_slot),
            self.o.address.eq(op.address),
            self.o.tag.eq(op.tag),
        ]
        self._queries(m, address=op.address, allocate=allocate, appends=allocate | adds_reference, ordinal=ordinal,
                      slot=new_slot)

    def _queries(self, m: Module, *, address, allocate, appends, ordinal, slot) -> None:
        """Answers queries of even and of odd ordinals from banks of their own. Of a lookup's result: allocate: `slot`
        holds another row, from `address`; appends: it is the mini-batch's row of this ordinal.

        Each client has credits for the queue of its answers."""
        config = self.config
        s = config.slot_bits
        requests, queues = [], []
        for k in range(QUERY_CLIENTS):
            m.submodules[f"query_{k}"] = queue = Fifo(location_layout(config), depth=QUERIES)
            wiring.connect(m, queue.o, wiring.flipped(self.o_query[k]))
            queues.append(queue)
            query = Signal(query_layout(config), name=f"pending_{k}", reset_less=True)
            valid = Signal(name=f"pending_{k}_valid")
            granted = Signal(LIST_BANKS, name=f"granted_{k}")
            credits = Signal(range(QUERIES + 1), name=f"credits_{k}", init=QUERIES)
            returned = Signal(name=f"returned_{k}")
            m.d.comb += self.i_query[k].ready.eq(~valid | granted.any())
            m.d.comb += returned.eq(queue.o.valid & queue.o.ready)
            m.d.sync += credits.eq(credits + returned - granted.any())
            with m.If(self.i_query[k].ready):
                m.d.sync += valid.eq(self.i_query[k].valid)
                m.d.sync += query.eq(self.i_query[k].payload)
            requests.append((query, valid & (credits != 0), granted))
        answers = []
        for bank in range(LIST_BANKS):
            slots = self._ram(m, f"slots_{bank}", s, config.batches * config.row_slots // LIST_BANKS)
            addresses = self._ram(m, f"addresses_{bank}", 32, config.row_slots)
            m.d.comb += [
                slots.write.en.eq(appends & (ordinal[0] == bank)),
                slots.write.addr.eq(Cat(ordinal[1:], self.batch)),
                slots.write.data.eq(slot),
                addresses.write.en.eq(allocate),
                addresses.write.addr.eq(slot),
                addresses.write.data.eq(address),
            ]
            grant = Signal(QUERY_CLIENTS, name=f"grant_{bank}")
            request = Cat(valid & (query.ordinal[0] == bank) for query, valid, _ in requests)
            # The rest of a mini-batch's way to the GPU waits for the first client, the dispatcher.
            grants = [request[k] & ~request[:k].any() for k in range(QUERY_CLIENTS)]
            chosen = Signal(query_layout(config), name=f"chosen_{bank}", reset_less=True)
            m.d.comb += grant.eq(Cat(grants))
            m.d.comb += [granted[bank].eq(grant[k]) for k, (*_, granted) in enumerate(requests)]
            word = Const(0, len(chosen.as_value()))
            for (query, _, _), selects in zip(requests, grants, strict=True):
                word = word | Mux(selects, query.as_value(), 0)
            m.d.sync += chosen.eq(word)
            m.d.comb += slots.address.eq(Cat(chosen.ordinal[1:], chosen.batch))
            m.d.comb += addresses.address.eq(slots.data)
            # Grants and slots are delayed as long as the memories take.
            grant_late, slot_late = grant, slots.data
            for k in range(1 + slots.registers + 1 + addresses.registers + 1):
                register = Signal(QUERY_CLIENTS, name=f"grant_{bank}_{k}")
                m.d.sync += register.eq(grant_late)
                grant_late = register
            for k in range(addresses.registers + 1):
                register = Signal(s, name=f"slot_{bank}_{k}", reset_less=True)
                m.d.sync += register.eq(slot_late)
                slot_late = register
            answers.append((grant_late, slot_late, addresses.data))
        even, odd = answers
        for k, queue in enumerate(queues):
            m.d.comb += queue.i.valid.eq(Cat(grants[k] for grants, *_ in answers).any())
            m.d.comb += queue.i.payload.slot.eq(Mux(odd[0][k], odd[1], even[1]))
            m.d.comb += queue.i.payload.address.eq(Mux(odd[0][k], odd[2], even[2]))
