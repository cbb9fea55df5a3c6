"""Which cold rows lie in the embedding buffer, in which slot, and how many mini-batches in flight hold them."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Shape, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.hotline.config import HotlineConfig
from hw.place import Part
from hw.stream.fifo import Fifo

__all__ = ["ARRAY_ROWS", "LOOKUPS", "QUERY_CLIENTS", "RowTable", "bucket_bits", "found_layout", "hashed",
           "lookup_layout", "queried_layout", "query_layout"]

QUERY_CLIENTS = 3       # the dispatcher, the updater, the bags' reader
QUERIES = 16            # that a client has under way
LOOKUPS = 32            # that are inside, at most
RELEASES = 16           # that wait for their turn
IN_A_ROW = 3            # of them go before a lookup that waits
FREE = 16               # slots that are read ahead of the rows that take them
PLACES = 4              # of a bucket
LISTS = 2               # halves of the lists: a row's is its ordinal's lowest bit
ARRAY_ROWS = 32768      # of an array need an output register: eight UltraRAMs one above the other
LUT_DEPTH = 64
URAM_DEPTH, URAM_WIDTH = 4096, 72
TAPS = 5                # bits of the tag in each bit of the bucket: one LUT


def bucket_bits(config: HotlineConfig) -> int:
    """Bits of a bucket's number: two places for each slot."""
    return config.slot_bits + 1 - (PLACES - 1).bit_length()


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


def _step(bits: int, up: Value, down: Value, also: Value | None = None) -> Value:
    """up + also - down in so many bits, as one operand of a carry chain."""
    some = up if also is None else up | also
    two = Const(0, 1) if also is None else up & also & ~down
    less = down & ~some
    odd = up ^ down if also is None else up ^ also ^ down
    return Cat(odd, less | two, less.replicate(bits))[:bits]


def _key_layout(config: HotlineConfig) -> data.StructLayout:
    """A row, as `hashed` takes it apart."""
    return data.StructLayout({"home": bucket_bits(config), "tag": config.domain_bits - bucket_bits(config)})


def _operation_layout(config: HotlineConfig) -> data.StructLayout:
    """A lookup, a release or, neither of them, what takes a row that went off the count of a bucket that it had passed.
    away: the bucket is not the row's own; put: the row is known to be new."""
    return data.StructLayout({
        "valid": 1, "look": 1, "give": 1, "bucket": bucket_bits(config), "key": _key_layout(config), "way": PLACES,
        "away": 1, "put": 1, "address": 32, "mark": lookup_layout(config)["tag"].width})


class _Array(NamedTuple):
    """What `RowTable._array` hands on."""

    write: Any
    address: Any
    word: Signal
    registers: Any


class _Arrays(NamedTuple):
    """See `RowTable._arrays`."""

    places: list[_Array]
    passed: _Array
    where: _Array
    free: _Array


class _Waiting(NamedTuple):
    """What `RowTable._lookups` hands on: the next lookup. goes: it enters; again: those behind the one that acts are
    taken once more; acts: one acts for the first time; some: some are inside."""

    valid: Signal
    lookup: Any
    goes: Signal
    again: Signal
    acts: Signal
    some: Any


class _Giving(NamedTuple):
    """What `RowTable._releases` hands on: the next release's place. goes: it enters; none: none is inside; before:
    lookups wait for some."""

    valid: Signal
    place: Any
    goes: Signal
    none: Signal
    before: Signal


class _Sweep(NamedTuple):
    """A bucket is being emptied, this one."""

    on: Signal
    bucket: Signal


class _Acts(NamedTuple):
    """What `RowTable._select` knows of the operation that acts. op: itself; way: its place, one-hot; was: what is
    there. comes, found, gives: the row is new, is there, is given up; up, on, back: it is not here, and goes
    to the next bucket to be put there or to be looked for, or back to its own to be put; again: one of these; down: one
    less passed here."""

    op: Any
    way: Signal
    was: Any
    passed: Signal
    here: Signal
    last: Signal
    comes: Signal
    found: Signal
    gives: Signal
    up: Signal
    on: Signal
    back: Signal
    down: Signal
    again: Signal


class RowTable(Part):
    """Finds rows by their number, gives slots to new ones and ordinals to all, and takes slots back.

    ordinal = number of different rows asked for before in this mini-batch, at a row's first appearance in it;
    life = mini-batches in flight that hold the row; at 0 its slot is free.       Source: EL-Rec §V.B (life cycle)

    A bucket has four places. A row that finds its own bucket full goes to the next one that is not, and each bucket
    that it passes counts it: a search ends where a bucket was passed by none.    Source: Knuth, TAOCP 3, §6.4 (linear
    probing with buckets)

    Parameters  config: HotlineConfig; array_rows: how many of an array need an output register
    Members     i           In(stream of lookup_layout)
                found, o    Out  a pulse and its answer, of found_layout, in order
                limit       In  slots that there are; the table is empty when it changes
                open        In  a pulse: a mini-batch begins, while no lookup is inside and nothing of an earlier one
                    of that number is held
                rows        Out  different ones in it so far
                freed       Out  a pulse for each slot that becomes free
                i_release   In(stream of slots)  a mini-batch gives the row up
                i_query[k]  In(stream of query_layout)
                o_query[k]  Out(stream of queried_layout)  of any mini-batch in flight
                idle        Out  no lookup or release is inside and no slot in use
                batch       In  number of the mini-batch that begins
    Shapes      slots are given out from 0 on, then in the order in which they came back. Who asks takes care that
                there is one
    Timing      a lookup or a release per cycle, three releases to a lookup where both wait; one of a bucket that
                another one is in waits until that has acted, 5 cycles later. 8 cycles from i to found. A row that is
                not in its own bucket, and one that comes to a full one: 6 cycles more for each bucket that is looked
                into, and nothing else meanwhile. Two queries a cycle, of an even and of an odd ordinal; of two clients'
                that of the lower number goes first; 8 cycles from i_query to o_query. Each further register of an array
                adds one to all of these. `idle` is a cycle late. After a reset the first lookup waits until the buckets
                have been emptied, a cycle each
    Handshake   readies and valids come from registers. Lookups and releases are each carried out in their order. A
                lookup needs room for its answer
    Reset       forgets all rows
    Golden      golden.hotline.row_table.RowTable          Tests  verif/hotline/test_row_table.py
    """

    def __init__(self, config: HotlineConfig, *, array_rows: int = ARRAY_ROWS):
        self.config = config
        self.array_rows = array_rows
        super().__init__({
            "i": In(stream.Signature(lookup_layout(config))),
            "found": Out(1),
            "o": Out(found_layout(config)),
            "limit": In(range(config.row_slots + 1)),
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
        return _Array(write=write, address=read.addr, word=word, registers=registers)

    def elaborate(self, platform):
        m = Module()
        arrays = self._arrays(m)
        answers = Signal()
        walks = Signal()                    # one operation is inside, and goes from bucket to bucket
        # After a reset every bucket is emptied.
        sweep = _Sweep(on=Signal(init=1, name="sweeping"), bucket=Signal(bucket_bits(self.config), name="sweep"))
        with m.If(sweep.on):
            m.d.sync += sweep.bucket.eq(sweep.bucket + 1)
            m.d.sync += sweep.on.eq(~sweep.bucket.all())
        looks = self._lookups(m, answers)
        given_up = Signal()                 # a release acts
        gives = self._releases(m, arrays, given_up)
        steps = self._steps(m, arrays)
        acts = self._select(m, arrays, steps, looks.again)
        m.d.comb += given_up.eq(acts.gives)
        slot, ready = self._free_slots(m, arrays, acts, looks, answers)
        self._walk(m, steps, acts, looks, gives, ready, walks, sweep.on)
        self._write(m, arrays, acts, slot, answers, sweep)
        in_use = Signal(range(self.config.row_slots + 1))
        m.d.sync += in_use.eq(in_use + _step(len(in_use), acts.comes, acts.gives & acts.last))
        m.d.sync += self.idle.eq(~(self.i.valid | looks.some | walks) & gives.none & (in_use == 0))
        return m

    def _arrays(self, m: Module) -> _Arrays:
        """What is in each place of a bucket, and how many rows passed it; where the row in a slot is; free slots."""
        config = self.config
        s, slots, b = config.slot_bits, config.row_slots, bucket_bits(config)
        place = data.StructLayout({"key": _key_layout(config), "moved": 1, "life": range(config.batches + 1),
                                   "batch": config.batch_bits, "ordinal": s, "slot": s})
        where = data.StructLayout({"bucket": b, "way": PLACES, "moved": 1})
        return _Arrays(
            places=[self._array(m, f"place_{k}", place, 1 << b) for k in range(PLACES)],
            passed=self._array(m, "passed", range(slots + 1), 1 << b),
            where=self._array(m, "where", where, slots),
            free=self._array(m, "free", s, slots))

    def _lookups(self, m: Module, answers: Signal) -> _Waiting:
        """Lookups in a queue that can go back to the one behind that which acts."""
        i, config = self.i.payload, self.config
        lookup = data.StructLayout({"key": _key_layout(config), "address": 32, "mark": len(i.tag)})
        m.submodules.lookups = lookups = memory.Memory(shape=lookup, depth=LOOKUPS, init=[],
                                                       attrs={"ram_style": "distributed"})
        write, read = lookups.write_port(), lookups.read_port(domain="comb")
        begin, next_, done = (Signal(range(LOOKUPS), name=name) for name in ("begin", "next", "done"))
        inside = Signal(range(LOOKUPS + 1))
        head = Signal(lookup, reset_less=True)
        valid = Signal()
        goes = Signal()
        again = Signal()
        acts = Signal()
        home, tag = hashed(i.row, bucket_bits(self.config))
        m.d.comb += [
            self.i.ready.eq(~inside[-1]),
            write.en.eq(self.i.valid & self.i.ready),
            write.addr.eq(begin),
            write.data.key.home.eq(home),
            write.data.key.tag.eq(tag),
            write.data.address.eq(i.address),
            write.data.mark.eq(i.tag),
            read.addr.eq(next_),
        ]
        m.d.sync += begin.eq(begin + write.en)
        m.d.sync += done.eq(done + acts)
        m.d.sync += inside.eq(inside + _step(len(inside), write.en, answers))
        with m.If(~valid | goes):
            m.d.sync += head.eq(read.data)
            m.d.sync += valid.eq(next_ != begin)
            m.d.sync += next_.eq(next_ + (next_ != begin))
        with m.If(again):
            m.d.sync += valid.eq(0)
            m.d.sync += next_.eq(done + acts)
        return _Waiting(valid=valid, lookup=head, goes=goes, again=again, acts=acts, some=inside.any())

    def _releases(self, m: Module, arrays: _Arrays, acts: Signal) -> _Giving:
        """Where the rows are that are given up."""
        m.submodules.releases = releases = Fifo(arrays.where.word.shape(), depth=RELEASES)
        count = Signal(range(RELEASES + 1))
        slot = Signal(self.config.slot_bits, reset_less=True)
        asked = Signal(arrays.where.registers + 2)
        taken = Signal()
        goes = Signal()
        m.d.comb += [
            self.i_release.ready.eq(~count[-1]),
            taken.eq(self.i_release.valid & self.i_release.ready),
            arrays.where.address.eq(slot),
            releases.i.valid.eq(asked[-1]),
            releases.i.payload.eq(arrays.where.word),
            releases.o.ready.eq(goes),
        ]
        m.d.sync += slot.eq(self.i_release.payload)
        m.d.sync += asked.eq(Cat(taken, asked[:-1]))
        m.d.sync += count.eq(count + _step(len(count), taken, acts))
        # Those of the mini-batch whose number comes again go first.
        before = Signal.like(count)
        some = Signal()
        m.d.sync += some.eq(before != 0)
        with m.If(self.open):
            m.d.sync += some.eq(1)
            m.d.sync += before.eq(count - acts)
        with m.Elif(acts & (before != 0)):
            m.d.sync += before.eq(before - 1)
        return _Giving(valid=releases.o.valid, place=releases.o.payload, goes=goes,
                       none=~self.i_release.valid & (count == 0), before=some)

    def _steps(self, m: Module, arrays: _Arrays) -> list:
        """An operation in its steps, from the one in which its bucket is read to that in which it acts."""
        layout = _operation_layout(self.config)
        steps = [Signal(layout, name=f"step_{k}") for k in range(arrays.places[0].registers + 4)]
        for before, after in zip(steps, steps[1:]):
            m.d.sync += after.eq(before)
        for array in (*arrays.places, arrays.passed):
            m.d.comb += array.address.eq(steps[0].bucket)
        return steps

    def _select(self, m: Module, arrays: _Arrays, steps: list, again: Signal) -> _Acts:
        """What is in the bucket: which place it is, then what that place holds, then what becomes of it."""
        words = [array.word for array in arrays.places]
        compares, chooses, op = steps[-3], steps[-2], steps[-1]
        hits, lives, heres = (Signal(PLACES, name=name, reset_less=True) for name in ("hits", "lives", "heres"))
        passed = [Signal.like(arrays.passed.word, name=f"passed_{k}_", reset_less=True) for k in range(2)]
        held = [Signal.like(word, name=f"held_{k}", reset_less=True) for k, word in enumerate(words)]
        some = Signal(reset_less=True)
        m.d.sync += [
            lives.eq(Cat(word.life != 0 for word in words)),
            hits.eq(Cat(Mux(compares.give, compares.way[k],
                            (word.life != 0) & (word.key.as_value() == compares.key.as_value()))
                        for k, word in enumerate(words))),
            heres.eq(Cat(word.batch == self.batch for word in words)),
            *(each.eq(word) for each, word in zip(held, words, strict=True)),
            passed[0].eq(arrays.passed.word),
            passed[1].eq(passed[0]),
            some.eq(arrays.passed.word != 0),
        ]
        way = Signal(PLACES, reset_less=True)
        was = Signal(words[0].shape(), reset_less=True)
        flags = {name: Signal(name=name) for name in (
            "here", "last", "comes", "found", "gives", "up", "on", "back", "down", "again")}
        found = Signal()
        room = Signal()
        stays = Signal()
        absent = Signal()
        chosen = Signal(was.shape())
        first = ~lives & Cat(Const(1, 1), *(lives[:k].all() for k in range(1, PLACES)))     # that is free
        # A lookup that is squashed is not valid any more; see `_walk`.
        look = chooses.valid & chooses.look & ~again
        m.d.comb += [
            found.eq(hits.any()),
            room.eq(~lives.all()),
            stays.eq(chooses.put | (~chooses.away & ~some)),
            absent.eq(look & ~found),
            chosen.as_value().eq(Cat(Cat(word.as_value()[bit] & hit for word, hit in zip(held, hits)).any()
                                     for bit in range(len(was.as_value())))),
        ]
        m.d.sync += [
            way.eq(Mux(found, hits, first)),
            was.eq(chosen),
            flags["here"].eq((hits & heres).any()),
            flags["last"].eq(chosen.life == 1),
            flags["found"].eq(look & found),
            flags["comes"].eq(absent & stays & room),
            flags["again"].eq(absent & ~(stays & room)),
            flags["up"].eq(absent & stays & ~room),
            flags["on"].eq(absent & ~chooses.put & some),
            flags["back"].eq(absent & ~chooses.put & chooses.away & ~some),
            flags["gives"].eq(chooses.valid & chooses.give),
            flags["down"].eq(chooses.valid & ~chooses.give & ~chooses.look),
        ]
        return _Acts(op=op, way=way, was=was, passed=passed[1], **flags)

    def _free_slots(self, m: Module, arrays: _Arrays, acts: _Acts, looks: _Waiting, answers: Signal):
        """(the next free slot, there is one for a further lookup). From 0 on, then those that came back, in order."""
        count, free = range(self.config.row_slots + 1), arrays.free
        limit, given, new, stored = (Signal(count, name=name) for name in ("limit_", "given", "new", "stored"))
        some_new = Signal()         # new, slots that none has had yet, is not 0
        some_stored = Signal()      # nor is stored
        into, out = (Signal(self.config.slot_bits, name=name) for name in ("into", "out"))
        restart = Signal()
        slots = Fifo(self.config.slot_bits, depth=FREE)
        m.submodules.slots = ResetInserter(restart)(slots)
        # In the queue; less those that lookups may take.
        level, spare = (Signal(range(2 * FREE), name=name) for name in ("level", "spare"))
        reads = Signal(free.registers + 1)
        coming = Signal(range(2 * FREE))       # in the queue, or read for it
        fresh = Signal()
        back = Signal()
        asks = Signal()
        push = Signal()
        m.d.comb += [
            fresh.eq(some_new & ~coming[-1] & ~restart),
            asks.eq(~some_new & some_stored & ~coming[-1] & ~restart),
            back.eq(reads[-1]),
            push.eq(fresh | back),
            slots.i.valid.eq(push),
            slots.i.payload.eq(Mux(back, free.word, given[:self.config.slot_bits])),
            slots.o.ready.eq(acts.comes),
            free.address.eq(out),
            free.write.en.eq(acts.gives & acts.last),
            free.write.addr.eq(into),
            free.write.data.eq(acts.was.slot),
        ]
        m.d.sync += [
            limit.eq(self.limit),
            restart.eq(limit != self.limit),
            given.eq(given + fresh),
            new.eq(new - fresh),
            some_new.eq((new[1:] != 0) | (new[0] & ~fresh)),
            reads.eq(Cat(asks, reads[:-1])),
            out.eq(out + asks),
            into.eq(into + free.write.en),
            stored.eq(stored + _step(len(stored), free.write.en, asks)),
            some_stored.eq((stored[1:] != 0) | (stored[0] & ~asks)),
            coming.eq(coming + _step(len(coming), fresh | asks, acts.comes)),
            level.eq(level + _step(len(level), push, acts.comes)),
            spare.eq(spare + _step(len(spare), push, looks.goes, answers & ~acts.comes)),
        ]
        # The one that goes on keeps its claim; those behind it have none any more.
        with m.If(looks.again):
            m.d.sync += spare.eq(level + _step(len(spare), push, Const(1, 1)))
        with m.If(restart):
            m.d.sync += [each.eq(0) for each in (given, stored, some_stored, into, out, coming, level, spare, reads)]
            m.d.sync += new.eq(limit)
            m.d.sync += some_new.eq(0)
        ready = Signal()
        m.d.sync += ready.eq((spare[1:] != 0) | (spare[0] & ~looks.goes))
        return slots.o.payload, ready

    def _walk(self, m: Module, steps: list, acts: _Acts, looks: _Waiting, gives: _Giving, ready, walks: Signal,
              sweeping: Signal) -> None:
        """What enters: a lookup or a release of a bucket that none is in, or one that goes on to another bucket. A
        lookup that does lets those behind it, which have not acted, begin again."""
        b = bucket_bits(self.config)
        op, key = acts.op, acts.was.key
        walk = Signal(_operation_layout(self.config), reset_less=True)
        waits = Signal()
        stop = Signal(b, reset_less=True)       # bucket in which the row that went was
        turn = Signal(range(IN_A_ROW + 1))      # releases that go before the next lookup
        empty = Signal()
        open_ = Signal()
        clear = {name: Signal(name=f"{name}_clear") for name in ("look", "give")}
        wants = Signal()
        for name, bucket in (("look", looks.lookup.key.home), ("give", gives.place.bucket)):
            m.d.comb += clear[name].eq(~Cat(each.valid & (each.bucket == bucket) for each in steps[:-1]).any())
        m.d.comb += [
            looks.again.eq(acts.again),
            empty.eq(~Cat(each.valid for each in steps).any()),
            open_.eq(~walks & ~sweeping & ~looks.again),
            wants.eq(looks.valid & ready & ~gives.before),
            looks.goes.eq(open_ & wants & clear["look"] & ~(turn.any() & gives.valid)),
            gives.goes.eq(open_ & gives.valid & Mux(gives.place.moved, empty, clear["give"]) & (turn.any() | ~wants)),
            looks.acts.eq((acts.found | acts.comes | looks.again) & ~walks),
        ]
        with m.If(looks.goes):
            m.d.sync += turn.eq(IN_A_ROW)
        with m.Elif(gives.goes & turn.any()):
            m.d.sync += turn.eq(turn - 1)
        first = steps[0]
        m.d.sync += [
            first.valid.eq(looks.goes | gives.goes | (waits & empty)),
            first.look.eq(looks.goes),
            first.give.eq(gives.goes),
            first.bucket.eq(Mux(looks.goes, looks.lookup.key.home, gives.place.bucket)),
            first.key.eq(looks.lookup.key),
            first.way.eq(gives.place.way),
            first.away.eq(0),
            first.put.eq(0),
            first.address.eq(looks.lookup.address),
            first.mark.eq(looks.lookup.mark),
        ]
        with m.If(waits):
            m.d.sync += first.eq(walk)
            m.d.sync += first.valid.eq(empty)
            m.d.sync += waits.eq(~empty)
        # Lookups behind one that goes on.
        with m.If(looks.again):
            for before, after in zip(steps, steps[1:]):
                m.d.sync += after.valid.eq(before.valid & ~before.look)
        behind = Signal(b)
        m.d.comb += behind.eq(op.bucket + 1)
        with m.If(gives.goes & gives.place.moved):
            m.d.sync += walks.eq(1)
        with m.If(acts.found | acts.comes | acts.gives | acts.down):
            with m.If(~waits):
                m.d.sync += walks.eq(0)
        with m.If(looks.again):
            m.d.sync += walks.eq(1)
            m.d.sync += waits.eq(1)
            m.d.sync += walk.eq(op)
            m.d.sync += walk.put.eq(acts.up | acts.back)
            m.d.sync += walk.away.eq(~acts.back)
            m.d.sync += walk.bucket.eq(Mux(acts.back, op.key.home, behind))
        for goes, bucket in ((acts.gives & acts.last & acts.was.moved, key.home),
                             (acts.down & (behind != stop), behind)):
            with m.If(goes):
                m.d.sync += walks.eq(1)
                m.d.sync += waits.eq(1)
                m.d.sync += walk.look.eq(0)
                m.d.sync += walk.give.eq(0)
                m.d.sync += walk.bucket.eq(bucket)
        with m.If(acts.gives):
            m.d.sync += stop.eq(op.bucket)

    def _write(self, m: Module, arrays: _Arrays, acts: _Acts, slot, answers: Signal, sweep: _Sweep) -> None:
        """The bucket as the act leaves it, where the row is, its list; and the answer."""
        s = self.config.slot_bits
        op, was, comes, gives = acts.op, acts.was, acts.comes, acts.gives
        number = self.rows[:s]
        new = Signal(was.shape())
        shares = Signal()
        target = Signal(s)
        m.d.comb += [
            answers.eq(acts.found | comes),
            shares.eq(acts.found & ~acts.here),
            target.eq(Mux(comes, slot, was.slot)),
            new.key.eq(Mux(gives, was.key, op.key)),
            new.moved.eq(Mux(comes, op.away, was.moved)),
            new.life.eq(Mux(comes, 1, Mux(gives, was.life - 1, was.life + 1))),
            new.batch.eq(Mux(gives, was.batch, self.batch)),
            new.ordinal.eq(Mux(gives, was.ordinal, number)),
            new.slot.eq(target),
        ]
        for k, array in enumerate(arrays.places):
            m.d.comb += array.write.en.eq(sweep.on | (acts.way[k] & (comes | shares | gives)))
            m.d.comb += array.write.addr.eq(Mux(sweep.on, sweep.bucket, op.bucket))
            m.d.comb += array.write.data.eq(new)
            with m.If(sweep.on):
                m.d.comb += array.write.data.life.eq(0)
        passed, where = arrays.passed.write, arrays.where.write
        m.d.comb += [
            passed.en.eq(sweep.on | acts.up | acts.down),
            passed.addr.eq(Mux(sweep.on, sweep.bucket, op.bucket)),
            passed.data.eq(Mux(sweep.on, 0, acts.passed + Cat(Const(1, 1), acts.down.replicate(s)))),
            where.en.eq(comes),
            where.addr.eq(slot),
            where.data.bucket.eq(op.bucket),
            where.data.way.eq(acts.way),
            where.data.moved.eq(op.away),
        ]
        with m.If(comes | shares):
            m.d.sync += self.rows.eq(self.rows + 1)
        with m.If(self.open):
            m.d.sync += self.rows.eq(0)
        m.d.sync += [
            self.found.eq(answers),
            self.freed.eq(gives & acts.last),
            self.o.ordinal.eq(Mux(acts.found & acts.here, was.ordinal, number)),
            self.o.fresh.eq(comes),
            self.o.slot.eq(target),
            self.o.address.eq(op.address),
            self.o.tag.eq(op.mark),
        ]
        self._queries(m, place=op.address, comes=comes, lists=comes | shares, number=number, target=target)

    def _queries(self, m: Module, *, place, comes, lists, number, target) -> None:
        """Queries of even and of odd ordinals through their own memories; who asks has room for the answer."""
        config = self.config
        s = config.slot_bits
        asks, queues, grants = [], [], []
        for k in range(QUERY_CLIENTS):
            m.submodules[f"query_{k}"] = queue = Fifo(queried_layout(config), depth=QUERIES)
            wiring.connect(m, queue.o, wiring.flipped(self.o_query[k]))
            queues.append(queue)
            ask = Signal(query_layout(config), name=f"ask_{k}", reset_less=True)
            asked, granted = Signal(name=f"asked_{k}"), Signal(LISTS, name=f"granted_{k}")
            room = Signal(range(QUERIES + 1), name=f"room_{k}", init=QUERIES)
            leaves = Signal(name=f"leaves_{k}")
            m.d.comb += self.i_query[k].ready.eq(~asked | granted.any())
            m.d.comb += leaves.eq(queue.o.valid & queue.o.ready)
            m.d.sync += room.eq(room + leaves - granted.any())
            with m.If(self.i_query[k].ready):
                m.d.sync += asked.eq(self.i_query[k].valid)
                m.d.sync += ask.eq(self.i_query[k].payload)
            asks.append((ask, asked & (room != 0), granted))
        answers = []
        for half in range(LISTS):
            rows = self._array(m, f"lists_{half}", s, config.batches * config.row_slots // LISTS)
            addresses = self._array(m, f"addresses_{half}", 32, config.row_slots)
            m.d.comb += [
                rows.write.en.eq(lists & (number[0] == half)),
                rows.write.addr.eq(Cat(number[1:], self.batch)),
                rows.write.data.eq(target),
                addresses.write.en.eq(comes),
                addresses.write.addr.eq(target),
                addresses.write.data.eq(place),
            ]
            turn = Signal(QUERY_CLIENTS, name=f"turn_{half}")
            here = Cat(wants & (ask.ordinal[0] == half) for ask, wants, _ in asks)
            # The rest of a mini-batch's way to the GPU waits for the first client, the dispatcher.
            grants = [here[k] & ~here[:k].any() for k in range(QUERY_CLIENTS)]
            ask_now = Signal(query_layout(config), name=f"place_of_{half}", reset_less=True)
            m.d.comb += turn.eq(Cat(grants))
            m.d.comb += [granted[half].eq(turn[k]) for k, (*_, granted) in enumerate(asks)]
            word = Const(0, len(ask_now.as_value()))
            for (ask, _, _), grant in zip(asks, grants, strict=True):
                word = word | Mux(grant, ask.as_value(), 0)
            m.d.sync += ask_now.eq(word)
            m.d.comb += rows.address.eq(Cat(ask_now.ordinal[1:], ask_now.batch))
            m.d.comb += addresses.address.eq(rows.word)
            # Turns and slots go beside the memories.
            turns, beside = turn, rows.word
            for k in range(1 + rows.registers + 1 + addresses.registers + 1):
                passed = Signal(QUERY_CLIENTS, name=f"turn_{half}_{k}")
                m.d.sync += passed.eq(turns)
                turns = passed
            for k in range(addresses.registers + 1):
                kept = Signal(s, name=f"slot_{half}_{k}", reset_less=True)
                m.d.sync += kept.eq(beside)
                beside = kept
            answers.append((turns, beside, addresses.word))
        for k, queue in enumerate(queues):
            m.d.comb += queue.i.valid.eq(Cat(turns[k] for turns, *_ in answers).any())
            m.d.comb += queue.i.payload.slot.eq(Mux(answers[1][0][k], answers[1][1], answers[0][1]))
            m.d.comb += queue.i.payload.address.eq(Mux(answers[1][0][k], answers[1][2], answers[0][2]))
