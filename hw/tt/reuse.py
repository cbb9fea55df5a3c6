"""Remembers where recent first products lie, so that lookups that share (table, i_1, i_2) compute it once."""

from typing import NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ReuseTable"]


class _Entries(NamedTuple):
    """The table's registers, one per entry; users: lookups between their service and the last slot that reads T."""

    valid: Value
    keys: list[Value]
    users: list[Value]
    idle: Value


class ReuseTable(wiring.Component):
    """Allocates lines of the intermediate buffer to first products, oldest out first, and finds them again.

    Entries and lines are both rings in order of allocation. Only the younger half of either ring is found again:
    the older half drains and is freed at once, so that nobody waits for an entry that is always in use.
    Source: EL-Rec §III.B (reuse of intermediate results)

    Parameters  entries, lines: powers of two; key_bits: width of what identifies a product; need_bits: width of
                a number of lines, less one; users_log2: log2 of the lookups that can be under way
    Members     next_key, next_need, advance  In  the lookup that asks from the next cycle on
                ask                 In  the lookup is waiting
                key, need_less_one  In  its key and lines
                grant               Out  it can be served: found (hit) or allocated
                hit                 Out  the product is found
                entry, base         Out  where it is or goes
                may_take            In  with `grant`: serves the lookup, not in a cycle of `advance`
                release, released   In  a lookup is done with an entry
                poison, poisoned    In  marks an entry
                bad                 Out  a bit per entry: it is poisoned
                crowded             Out  more than half of the lines are to be found, which passes
    Timing      a lookup every other cycle; every other cycle an entry grows too old to be found, and one is freed
    Reset       forgets everything
    Raises      ValueError: entries or lines is no power of two, or a product could need more lines than there are
    Golden      golden.tt.reuse.ReuseTable; golden.tt.cycles within the unit          Tests  verif/tt/test_reuse.py
    """

    def __init__(self, *, entries: int, lines: int, key_bits: int, need_bits: int, users_log2: int):
        for name, value, least in (("entries", entries, 4), ("lines", lines, 2)):
            if value < least or value & (value - 1):
                raise ValueError(f"{name} must be a power of two of at least {least}, not {value}")
        if need_bits > (lines - 1).bit_length():
            raise ValueError(f"need_bits must be at most the {(lines - 1).bit_length()} bits of a line's number, "
                             f"not {need_bits}")
        self.entries = entries
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
            "bad": Out(entries),
            "crowded": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        entries = self.entries
        entry_bits, line_bits = len(self.entry), len(self.base)
        table = _Entries(
            valid=Signal(entries, name="valid"),
            keys=[Signal(len(self.key), name=f"key_{i}") for i in range(entries)],
            users=[Signal(self.users_bits, name=f"users_{i}") for i in range(entries)],
            idle=Signal(entries, init=(1 << entries) - 1, name="idle"))
        head, oldest_found, tail = Signal(entry_bits), Signal(entry_bits), Signal(entry_bits)
        heads = Signal(entries, init=1)         # the same as `head`, a bit an entry
        held, findable = Signal(entry_bits + 1), Signal(entry_bits + 1)
        line = Signal(line_bits)
        free_lines = Signal(line_bits + 1, init=self.lines)
        findable_lines = Signal(line_bits + 1)

        # Where an entry's lines begin, and how many they are, less one.
        store = memory.Memory(shape=line_bits + len(self.need_less_one), depth=entries, init=[])
        m.submodules.store = store
        write = store.write_port()
        found_port, aging_port, tail_port = (store.read_port(domain="comb") for _ in range(3))

        take = Signal()
        matches, fours, odd, upper = self._matches(m, table, take)

        # Room is only taken by the lookup that asks, so what was seen a cycle ago still holds.
        found, room, make = Signal(), Signal(), Signal()
        some = Signal(-(-entries // 24), attrs={"keep": 1})
        m.d.sync += room.eq(~held[entry_bits] & (
            free_lines > Mux(self.advance, self.next_need, self.need_less_one)))
        m.d.comb += [
            some.eq(Cat(fours[at:at + 6].any() for at in range(0, entries // 4, 6))),
            found.eq(some.any()),
            self.hit.eq(found),
            self.grant.eq(found | room),
            take.eq(self.may_take & (found | room)),
            make.eq(self.may_take & ~found & room),
            found_port.addr.eq(Cat(odd.any(), upper.any(), _encode(fours))),
            self.entry.eq(Mux(found, found_port.addr, head)),
            self.base.eq(Mux(found, found_port.data[:line_bits], line)),
            write.addr.eq(head),
            write.data.eq(Cat(line, self.need_less_one)),
            write.en.eq(make),
        ]

        # Aging, in cycles that make nothing; also when a lookup is stuck among entries that are all young.
        # Whether there is need is known a cycle later, so not in the cycle after another.
        stuck, wish, age, aged = Signal(), Signal(), Signal(), Signal()
        m.d.sync += stuck.eq(self.ask & ~self.grant)
        m.d.sync += wish.eq((findable > entries // 2) | (findable_lines > self.lines // 2) | (stuck & (findable != 0)))
        m.d.sync += aged.eq(age)
        m.d.comb += age.eq(wish & ~aged & ~take)
        m.d.comb += aging_port.addr.eq(oldest_found)
        m.d.sync += self.crowded.eq(findable_lines > self.lines // 2)
        # Freeing: whether the oldest is idle is known a cycle later, so not in the cycle after another. What the
        # waiting lookup equals, or has just joined, is in use.
        joins, leaves = Signal(entries), Signal(entries)
        drop, tail_idle, dropped, old = Signal(), Signal(), Signal(), Signal()
        m.d.sync += tail_idle.eq(Array(table.idle & ~matches & ~joins)[tail])
        m.d.sync += old.eq(held != findable)
        m.d.sync += dropped.eq(drop)
        m.d.comb += drop.eq(tail_idle & old & ~dropped & ~make)
        m.d.comb += tail_port.addr.eq(tail)

        # What is late, whether an entry is made, only chooses between two sums. ~n is -n - 1.
        need = self.need_less_one
        tail_size, aging_size = tail_port.data[line_bits:], aging_port.data[line_bits:]
        with m.If(make):
            m.d.sync += head.eq(head + 1)
            m.d.sync += heads.eq(heads.rotate_left(1))
            m.d.sync += line.eq(_sum(line, need, 1))
        with m.If(drop):
            m.d.sync += tail.eq(tail + 1)
        with m.If(age):
            m.d.sync += oldest_found.eq(oldest_found + 1)
        with m.If(make | drop):
            m.d.sync += held.eq(Mux(make, held + 1, held - 1))
            m.d.sync += free_lines.eq(Mux(make, _sum(free_lines, ~_widen(need, line_bits + 1), 0),
                                          _sum(free_lines, tail_size, 1)))
        with m.If(make | age):
            m.d.sync += findable.eq(Mux(make, findable + 1, findable - 1))
            m.d.sync += findable_lines.eq(Mux(make, _sum(findable_lines, need, 1),
                                              _sum(findable_lines, ~_widen(aging_size, line_bits + 1), 0)))

        m.d.sync += joins.eq(Mux(take, matches | (heads & (~found).replicate(entries)), 0))
        m.d.sync += leaves.eq(Cat(self.release & (self.released == i) for i in range(entries)))
        for i in range(entries):
            with m.If(make & heads[i]):
                m.d.sync += table.keys[i].eq(self.key)
                m.d.sync += table.valid[i].eq(1)
                m.d.sync += self.bad[i].eq(0)
            with m.Elif(age & (oldest_found == i)):
                m.d.sync += table.valid[i].eq(0)
            with m.If(self.poison & (self.poisoned == i)):
                m.d.sync += self.bad[i].eq(1)
            self._count(m, table, i, joins[i], leaves[i])
        return m

    def _count(self, m: Module, table: _Entries, i: int, joins, leaves):
        """The users of an entry; without any it is idle."""
        users = table.users[i]
        with m.If(joins ^ leaves):
            # One more, or ~0 more: one carry chain for both.
            m.d.sync += users.eq(users + Cat(Const(1, 1), leaves.replicate(len(users) - 1)))
            m.d.sync += table.idle[i].eq(leaves & (users == 1))

    def _matches(self, m: Module, table: _Entries, take):
        """(a bit per entry: the asking lookup equals it, per four: it equals one of them, its place there in two bits)

        What a lookup equals is worked out while it waits to ask; an entry that has grown old since then may still be
        used, it is only freed once idle. Also by fours, so that finding the entry's number is short.
        """
        matches = Signal(self.entries)
        fours, odd, upper = (Signal(self.entries // 4, name=name) for name in ("fours", "odd", "upper"))
        equal = Signal(self.entries)
        for i, key in enumerate(table.keys):
            # Three bits a LUT, nets of their own, or the mapper makes two of each; and that they are all the same is
            # what a carry chain through them lets pass.
            same = Signal(-(-len(key) // 3), name=f"same_{i}", attrs={"keep": 1})
            m.d.comb += same.eq(Cat(key[at:at + 3] == self.next_key[at:at + 3] for at in range(0, len(key), 3)))
            m.d.comb += equal[i].eq((same + 1)[-1] & table.valid[i])
        with m.If(self.advance):
            starts = range(0, self.entries, 4)
            m.d.sync += [
                matches.eq(equal),
                fours.eq(Cat(equal[at:at + 4].any() for at in starts)),
                odd.eq(Cat(equal[at + 1] | equal[at + 3] for at in starts)),
                upper.eq(Cat(equal[at + 2] | equal[at + 3] for at in starts)),
            ]
        with m.Elif(take):
            m.d.sync += matches.eq(0)
            m.d.sync += fours.eq(0)
        return matches, fours, odd, upper


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
