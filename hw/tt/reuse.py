"""Remembers where recent first products lie, so that lookups that share (table, i_1, i_2) compute it once."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ReuseTable"]


class ReuseTable(wiring.Component):
    """Allocates lines of the intermediate buffer to first products, oldest out first, and finds them again.

    Entries and lines are both rings in order of allocation. Only the younger half of either ring is found again:
    the older half drains, so that an entry whose place is needed is no longer in use and nobody waits for it.
    Source: EL-Rec §III.B (reuse of intermediate results)

    Parameters  entries, lines: powers of two; key_bits: width of what identifies a product; need_bits: width of
                a number of lines, less one; users_log2: log2 of the lookups that can be under way
    Members     next_key, advance: In, the lookup that comes next is taken; ask: In, a lookup is waiting, that of
                the last `advance`; key, need_less_one: In, its key and lines; grant: Out, it can be served:
                found (hit) or allocated; hit: Out; entry, base: Out; take: In, with ask and grant, serves it;
                release, released: In, a lookup is done with an entry; poison, poisoned: In, marks an entry;
                bad: Out, a bit an entry
    Timing      one lookup a cycle; one entry a cycle grows too old to be found; without room, one entry is freed
                a cycle until there is
    Reset       forgets everything
    Golden      golden.tt.cycles          Tests  verif/test_tt.py
    """

    def __init__(self, *, entries: int, lines: int, key_bits: int, need_bits: int, users_log2: int):
        self.entries = entries
        self.lines = lines
        self.users_bits = users_log2 + 1
        entry_bits, line_bits = (entries - 1).bit_length(), (lines - 1).bit_length()
        super().__init__({
            "next_key": In(key_bits),
            "advance": In(1),
            "ask": In(1),
            "key": In(key_bits),
            "need_less_one": In(need_bits),
            "grant": Out(1),
            "hit": Out(1),
            "entry": Out(entry_bits),
            "base": Out(line_bits),
            "take": In(1),
            "release": In(1),
            "released": In(entry_bits),
            "poison": In(1),
            "poisoned": In(entry_bits),
            "bad": Out(entries),
        })

    def elaborate(self, platform):
        m = Module()
        entries = self.entries
        entry_bits, line_bits = len(self.entry), len(self.base)
        valid = Signal(entries)
        keys = [Signal(len(self.key), name=f"key_{i}") for i in range(entries)]
        users = [Signal(self.users_bits, name=f"users_{i}") for i in range(entries)]
        idle = Signal(entries, init=(1 << entries) - 1)
        head, oldest_found, tail = Signal(entry_bits), Signal(entry_bits), Signal(entry_bits)
        held = Signal(entry_bits + 1)
        line = Signal(line_bits)
        free_lines = Signal(line_bits + 1, init=self.lines)
        findable, findable_lines = Signal(entry_bits + 1), Signal(line_bits + 1)

        # Where an entry's lines begin, and how many they are, less one.
        store = memory.Memory(shape=line_bits + len(self.need_less_one), depth=entries, init=[])
        m.submodules.store = store
        write = store.write_port()
        found_port, aging_port, tail_port = (store.read_port(domain="comb") for _ in range(3))
        m.d.comb += [aging_port.addr.eq(oldest_found), tail_port.addr.eq(tail)]

        # Matching takes a cycle of its own: what the next lookup equals is known when it becomes the one that
        # asks, an entry that is made in between included.
        matches = Signal(entries)
        found, room, make, drop, age = Signal(), Signal(), Signal(), Signal(), Signal()
        match_now = matches & valid
        m.d.comb += [
            found.eq(match_now.any()),
            room.eq(~held[entry_bits] & (free_lines > self.need_less_one)),
            self.hit.eq(found),
            self.grant.eq(found | room),
            make.eq(self.take & ~found),
            drop.eq(self.ask & ~found & ~room & (held != 0) & Array(idle)[tail]),
            age.eq((findable > entries // 2) | (findable_lines > self.lines // 2)),
            found_port.addr.eq(_encode(match_now)),
            self.entry.eq(Mux(found, found_port.addr, head)),
            self.base.eq(Mux(found, found_port.data[:line_bits], line)),
            write.addr.eq(head), write.data.eq(Cat(line, self.need_less_one)), write.en.eq(make),
        ]
        same = Signal()
        m.d.comb += same.eq(self.next_key == self.key)
        with m.If(self.advance):
            m.d.sync += matches.eq(Cat(
                Mux(make & (head == i), same, keys[i] == self.next_key) for i in range(entries)))

        need = self.need_less_one + 1
        with m.If(make):
            m.d.sync += [head.eq(head + 1), line.eq(line + need)]
        with m.If(drop):
            m.d.sync += tail.eq(tail + 1)
        m.d.sync += held.eq(held + make - drop)
        # A drop only happens where nothing is made.
        with m.If(make):
            m.d.sync += free_lines.eq(free_lines - need)
        with m.Elif(drop):
            m.d.sync += free_lines.eq(free_lines + tail_port.data[line_bits:] + 1)
        with m.If(age):
            m.d.sync += oldest_found.eq(oldest_found + 1)
        m.d.sync += [
            findable.eq(findable + make - age),
            findable_lines.eq(findable_lines + Mux(make, need, 0)
                              - Mux(age, aging_port.data[line_bits:] + 1, 0)),
        ]

        for i in range(entries):
            makes, ages = make & (head == i), age & (oldest_found == i)
            joins, leaves = Signal(name=f"joins_{i}"), Signal(name=f"leaves_{i}")
            m.d.comb += [
                joins.eq(makes | (self.take & match_now[i])),
                leaves.eq(self.release & (self.released == i)),
            ]
            with m.If(makes):
                m.d.sync += [keys[i].eq(self.key), valid[i].eq(1), self.bad[i].eq(0)]
            with m.Elif(ages):
                m.d.sync += valid[i].eq(0)
            with m.If(self.poison & (self.poisoned == i)):
                m.d.sync += self.bad[i].eq(1)
            with m.If(joins & ~leaves):
                m.d.sync += [users[i].eq(users[i] + 1), idle[i].eq(0)]
            with m.Elif(leaves & ~joins):
                m.d.sync += [users[i].eq(users[i] - 1), idle[i].eq(users[i] == 1)]
        return m


def _encode(one_hot):
    """The number of the only bit that is set."""
    bits = (len(one_hot) - 1).bit_length()
    return Cat(Cat(one_hot[i] for i in range(len(one_hot)) if i >> bit & 1).any() for bit in range(bits))

