"""Remembers where recent first products lie, so that lookups that share (table, i_1, i_2) compute it once."""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hw.attributes import KEEP
from hw.tt.marks import Marks, shown


class _Matches(NamedTuple):
    """What the asking lookup equals: by fours of places, and the place among the four in two bits."""

    fours: Value
    odd: Value
    upper: Value


class _Users(wiring.Component):
    """Counts the lookups that use each entry, in two memories in place of registers: who came and who left.

    Members     join, joined, fresh  In  a lookup comes to an entry; it is the first one
                leave, left          In  a lookup leaves an entry
                asked                In  an entry
                idle                 Out  nobody uses the entry asked for
    Timing      idle in the cycle in which an entry is asked for, from the cycle after a change on
    Reset       none: an entry's count begins with its first lookup
    """

    def __init__(self, *, entries: int, bits: int):
        self.entries, self.bits = entries, bits
        place = (entries - 1).bit_length()
        super().__init__({
            "join": In(1), "joined": In(place), "fresh": In(1), "leave": In(1), "left": In(place),
            "asked": In(place), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.came = came = memory.Memory(shape=self.bits, depth=self.entries, init=[])
        m.submodules.gone = gone = memory.Memory(shape=self.bits, depth=self.entries, init=[])
        comes, goes = came.write_port(), gone.write_port()
        m.d.comb += [
            comes.en.eq(self.join),
            comes.addr.eq(self.joined),
            comes.data.eq(Mux(self.fresh, shown(m, gone, self.joined), shown(m, came, self.joined)) + 1),
            goes.en.eq(self.leave),
            goes.addr.eq(self.left),
            goes.data.eq(shown(m, gone, self.left) + 1),
            self.idle.eq(shown(m, came, self.asked) == shown(m, gone, self.asked)),
        ]
        return m


class ReuseTable(wiring.Component):
    """Allocates lines of the intermediate buffer to first products, oldest out first, and finds them again.

    Entries and lines are both rings in order of allocation. Only the youngest entries are found again, which alone
    have a key to compare with: the older ones drain and are freed at once, so that nobody waits for an entry that is
    always in use.

    No deadlock: the rows of a chunk hold their first products until its end. Lookups are not compared while `crowded`;
    a first product takes at most a quarter of the lines, as do all rows of a chunk except the first. So what a chunk
    still needs becomes free.
    Source: EL-Rec §III.A (reuse of intermediate results)

    Parameters  entries, lines: powers of two; findable: entries that are found again at most, a power of two up to
                half of them; key_bits: width of what identifies a product; need_bits: width of a number of lines,
                less one; users_log2: log2 of the lookups that can be under way
    Members     next_key, next_need, advance  In  the lookup that asks from the next cycle on
                ask                 In  the lookup is waiting
                key, need_less_one  In  its key and lines
                grant               Out  it can be served: found (hit) or allocated
                hit                 Out  the product is found
                entry, base         Out  where it is or goes
                may_take            In  with `grant`: serves the lookup, not in a cycle of `advance`
                release, released   In  a lookup is done with an entry
                poison, poisoned    In  marks an entry in use
                asked               In  an entry in use
                bad                 Out  it is marked
                crowded             Out  more than half of the lines are to be found, which passes
    Timing      a lookup every other cycle; every other cycle an entry grows too old to be found, and one is freed
    Reset       forgets everything
    Raises      ValueError: names the parameter, its value and what is allowed
    Golden      golden.tt.reuse.ReuseTable; golden.tt.cycles within the unit          Tests  verif/tt/test_reuse.py
    """

    def __init__(self, *, entries: int, findable: int, lines: int, key_bits: int, need_bits: int, users_log2: int):
        for name, value, least in (("entries", entries, 8), ("findable", findable, 4), ("lines", lines, 2)):
            if value < least or value & (value - 1):
                raise ValueError(f"{name} must be a power of two of at least {least}, not {value}")
        if findable > entries // 2:
            raise ValueError(f"findable must be at most half of the {entries} entries, not {findable}")
        if need_bits > (lines - 1).bit_length():
            raise ValueError(f"need_bits must be at most the {(lines - 1).bit_length()} bits of a line's number, "
                             f"not {need_bits}")
        self.entries = entries
        self.findable = findable
        self.lines = lines
        self.users_bits = users_log2 + 1
        entry_bits, line_bits = (entries - 1).bit_length(), (lines - 1).bit_length()
        super().__init__({
            "next_key": In(key_bits),
            "next_need": In(need_bits),
            "advance": In(1),
            "ask": In(1),
            "key": In(key_bits),
            "need_less_one": In(need_bits),
            "grant": Out(1),
            "hit": Out(1),
            "entry": Out(entry_bits),
            "base": Out(line_bits),
            "may_take": In(1),
            "release": In(1),
            "released": In(entry_bits),
            "poison": In(1),
            "poisoned": In(entry_bits),
            "asked": In(entry_bits),
            "bad": Out(1),
            "crowded": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        entry_bits, line_bits, place_bits = len(self.entry), len(self.base), (self.findable - 1).bit_length()
        valid = Signal(self.findable)
        keys = [Signal(len(self.key), name=f"key_{i}", reset_less=True) for i in range(self.findable)]
        # A young entry's place is what its number ends with.
        head = Signal(entry_bits)
        tail = Signal(entry_bits)
        oldest = Signal(place_bits)
        heads = Signal(self.findable, init=1)       # the place of `head`, a bit a place
        held = Signal(entry_bits + 1)
        young = Signal(place_bits + 1)
        line = Signal(line_bits)
        free_lines = Signal(line_bits + 1, init=self.lines)
        young_lines = Signal(line_bits + 1)

        # How many lines an entry has, less one; of a young one also what its number begins with, and its first line.
        need = self.need_less_one
        m.submodules.sizes = sizes = memory.Memory(shape=len(need), depth=self.entries, init=[])
        m.submodules.places = places = memory.Memory(
            shape=entry_bits - place_bits + line_bits + len(need), depth=self.findable, init=[])
        sizes_write, places_write = sizes.write_port(), places.write_port()

        take = Signal()
        matches = self._matches(m, keys, valid, take)
        place = Cat(matches.odd.any(), matches.upper.any(), _encode(matches.fours))
        place_at = shown(m, places, place)
        high, base = place_at[:entry_bits - place_bits], place_at[entry_bits - place_bits:][:line_bits]

        # Room is only taken by the lookup that asks, so what was seen a cycle ago still holds.
        found = Signal()
        room = Signal()
        make = Signal()
        some = Signal(-(-self.findable // 24), attrs=KEEP)
        m.d.sync += room.eq(~held[entry_bits] & (
            free_lines > Mux(self.advance, self.next_need, need)))
        m.d.comb += [
            some.eq(Cat(matches.fours[at:at + 6].any() for at in range(0, self.findable // 4, 6))),
            found.eq(some.any()),
            self.hit.eq(found),
            self.grant.eq(found | room),
            take.eq(self.may_take & (found | room)),
            make.eq(self.may_take & ~found & room),
            self.entry.eq(Mux(found, Cat(place, high), head)),
            self.base.eq(Mux(found, base, line)),
            sizes_write.addr.eq(head),
            sizes_write.data.eq(need),
            sizes_write.en.eq(make),
            places_write.addr.eq(head),
            places_write.data.eq(Cat(head[place_bits:], line, need)),
            places_write.en.eq(make),
        ]

        # Aging, in cycles that make nothing; also when a lookup is stuck among entries that are all young.
        # Whether there is need is known a cycle later, so not in the cycle after another. There are no more young ones
        # than places: one is made every other cycle at most, and from two less on one grows old in the cycle between.
        stuck = Signal()
        wish = Signal()
        age = Signal()
        aged = Signal()
        m.d.sync += stuck.eq(self.ask & ~self.grant)
        m.d.sync += wish.eq((young > self.findable - 2) | (young_lines > self.lines // 2) | (stuck & (young != 0)))
        m.d.sync += aged.eq(age)
        m.d.comb += age.eq(wish & ~aged & ~take)
        m.d.sync += self.crowded.eq(young_lines > self.lines // 2)
        # Freeing: whether the oldest is idle is known a cycle later, so not in the cycle after another. What the
        # waiting lookup equals, or has just joined, is in use; of the former the place alone is compared, known early.
        drop = Signal()
        tail_idle = Signal()
        dropped = Signal()
        old = Signal()
        idle = self._idle(m, tail, take, make)
        m.d.sync += tail_idle.eq(idle & ~(found & (place == tail[:place_bits])))
        m.d.sync += old.eq(held != young)
        m.d.sync += dropped.eq(drop)
        m.d.comb += drop.eq(tail_idle & old & ~dropped & ~make)

        # What is late, whether an entry is made, only chooses between two sums. ~n is -n - 1.
        tail_size, aging_size = shown(m, sizes, tail), shown(m, places, oldest)[-len(need):]
        with m.If(make):
            m.d.sync += head.eq(head + 1)
            m.d.sync += heads.eq(heads.rotate_left(1))
            m.d.sync += line.eq(_sum(line, need, 1))
        with m.If(drop):
            m.d.sync += tail.eq(tail + 1)
        with m.If(age):
            m.d.sync += oldest.eq(oldest + 1)
        with m.If(make | drop):
            m.d.sync += held.eq(Mux(make, held + 1, held - 1))
            m.d.sync += free_lines.eq(Mux(make, _sum(free_lines, ~_widen(need, line_bits + 1), 0),
                                          _sum(free_lines, tail_size, 1)))
        with m.If(make | age):
            m.d.sync += young.eq(Mux(make, young + 1, young - 1))
            m.d.sync += young_lines.eq(Mux(make, _sum(young_lines, need, 1),
                                           _sum(young_lines, ~_widen(aging_size, line_bits + 1), 0)))
        for i in range(self.findable):
            with m.If(make & heads[i]):
                m.d.sync += keys[i].eq(self.key)
                m.d.sync += valid[i].eq(1)
            with m.Elif(age & (oldest == i)):
                m.d.sync += valid[i].eq(0)

        m.submodules.marks = marks = Marks(self.entries)
        m.d.comb += [
            marks.mark.eq(self.poison),
            marks.marked_place.eq(self.poisoned),
            marks.clear.eq(make),
            marks.clear_place.eq(head),
            marks.place.eq(self.asked),
            self.bad.eq(marks.o),
        ]
        return m

    def _idle(self, m: Module, entry, take, make):
        """Whether nobody uses an entry. take: a lookup joins the one that is shown; make: as the first."""
        join = Signal()
        leave = Signal()
        fresh = Signal(reset_less=True)
        joined, left = (Signal(len(self.entry), name=name, reset_less=True) for name in ("joined", "left"))
        m.submodules.users = users = _Users(entries=self.entries, bits=self.users_bits)
        m.d.sync += [
            join.eq(take),
            joined.eq(self.entry),
            fresh.eq(make),
            leave.eq(self.release),
            left.eq(self.released),
        ]
        m.d.comb += [
            users.join.eq(join),
            users.joined.eq(joined),
            users.fresh.eq(fresh),
            users.leave.eq(leave),
            users.left.eq(left),
            users.asked.eq(entry),
        ]
        return users.idle & ~(join & (joined == entry))

    def _matches(self, m: Module, keys: list[Signal], valid, take) -> _Matches:
        """What a lookup equals is worked out while it waits to ask; an entry that has grown old since then may still be
        used, it is only freed once idle. By fours, so that finding the entry's number is short.
        """
        fours, odd, upper = (Signal(self.findable // 4, name=name) for name in ("fours", "odd", "upper"))
        equal = Signal(self.findable)
        for i, key in enumerate(keys):
            # Three bits a LUT, nets of their own, or the mapper makes two of each; and that they are all the same is
            # what a carry chain through them lets pass.
            same = Signal(-(-len(key) // 3), name=f"same_{i}", attrs=KEEP)
            m.d.comb += same.eq(Cat(key[at:at + 3] == self.next_key[at:at + 3] for at in range(0, len(key), 3)))
            m.d.comb += equal[i].eq((same + 1)[-1] & valid[i])
        with m.If(self.advance):
            starts = range(0, self.findable, 4)
            m.d.sync += fours.eq(Cat(equal[at:at + 4].any() for at in starts))
            m.d.sync += odd.eq(Cat(equal[at + 1] | equal[at + 3] for at in starts))
            m.d.sync += upper.eq(Cat(equal[at + 2] | equal[at + 3] for at in starts))
        with m.Elif(take):
            m.d.sync += fours.eq(0)
        return _Matches(fours, odd, upper)


def _widen(value, width: int):
    """`value` with zeros above, so that its complement has ones there."""
    return Cat(value, Const(0, width - len(value)))


def _sum(a, b, carry):
    """a + b + carry in the width of a: one carry chain."""
    return (Cat(Const(1, 1), a) + Cat(carry, b))[1:len(a) + 1]


def _encode(one_hot):
    """The number of the only bit that is set."""
    bits = (len(one_hot) - 1).bit_length()
    return Cat(Cat(one_hot[i] for i in range(len(one_hot)) if i >> bit & 1).any() for bit in range(bits))
