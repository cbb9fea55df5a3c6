"""A bank of the access logger: a memory of sets, and the policy that decides which rows stay."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from hw.hotline.config import ID_BITS, POLICIES, SRRIP, STEADY, WAYS
from hw.place import Part

STALE = 3               # the rrpv of what may be replaced
ULTRA_SETS = 2048       # from here on a bank fills a good part of an UltraRAM


class Way(data.Struct):
    """An entry: what it holds of the row's number, how soon the row is expected again (0 soon .. 3), in use."""

    id: ID_BITS
    rrpv: 2
    valid: 1


def _lowest(bits: Value) -> Value:
    return Cat(bits[n] & ~bits[:n].any() for n in range(len(bits)))


class LoggerBank(Part):
    """Looks rows up in their sets, and learns which ones are accessed often.

    srrip   hit: rrpv[way] = 0; else the lowest empty way takes the row with rrpv 2; if there is none, all rrpv of the
            set rise by 3 - the highest, and the lowest way with 3 takes the row with rrpv 2
    sampled the same, but where no way is empty only at every 2**insert_log2-th such access of the bank
    steady  hit: rrpv[way] = max(rrpv[way] - 1, 0); else the lowest empty way or, if there is none, the lowest with
            rrpv 3 takes the row with rrpv 3; else, at every 2**insert_log2-th such access of the bank, all rrpv of the
            set rise by 1                   Source: Hotline §6.2, Fig. 6.5, is srrip; others: golden.hotline.bank

    Parameters  sets: a power of two; policy, insert_log2: see above; tag_bits: of what an access carries along
    Members     i        In  an access: valid, learn, set, id, tag
                o        Out  its answer: valid, hit, way (0 without a hit), wrong (an entry of the set had wrong
                    parity), tag, and ways, the set's entries, which count only where the access did not learn
                i_write  In  valid, set and entries that are written
    Shapes      a set is a memory word of 72 bits: way w at 18w, {id: 14, rrpv: 2, valid: 1, parity: 1}, even parity,
                so that a word of zeros is an empty set
    Timing      LATENCY cycles from i to o, an access every cycle, whatever their sets
    Handshake   none: what comes is taken. i_write only with no learning access inside, and no access in the same
                and the next cycle
    Numerics    accesses take effect one after the other, in the order in which they come. An entry with wrong parity
                counts as empty; what an access that learns leaves has right parity
    Reset       drops accesses on their way, begins the count anew; sets stay as they are. i_write, too, begins the
                count anew
    Raises      ValueError: sets that are no power of two from 2 on, another policy, insert_log2 below 0, or not 0
                with srrip, or tag_bits below 1
    Golden      golden.hotline.bank.Bank, bit for bit       Tests  verif/hotline/test_bank.py
    """

    LATENCY = 5

    def __init__(self, *, sets: int, policy: str, insert_log2: int, tag_bits: int):
        if sets < 2 or sets & sets - 1:
            raise ValueError(f"sets must be a power of two from 2 on, not {sets}")
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(map(repr, POLICIES))}, not {policy!r}")
        if insert_log2 < 0:
            raise ValueError(f"insert_log2 must be 0 or more, not {insert_log2}")
        if policy == SRRIP and insert_log2:
            raise ValueError(f"insert_log2 must be 0 with the policy {SRRIP}, by which every miss comes in, not "
                             f"{insert_log2}")
        if tag_bits < 1:
            raise ValueError(f"tag_bits must be 1 or more, not {tag_bits}")
        self.sets, self.policy, self.insert_log2, self.tag_bits = sets, policy, insert_log2, tag_bits
        set_bits = (sets - 1).bit_length()
        ways = data.ArrayLayout(Way, WAYS)
        super().__init__({
            "i": In(data.StructLayout({"valid": 1, "learn": 1, "set": set_bits, "id": ID_BITS, "tag": tag_bits})),
            "o": Out(data.StructLayout({"valid": 1, "hit": 1, "way": 2, "wrong": 1, "tag": tag_bits, "ways": ways})),
            "i_write": In(data.StructLayout({"valid": 1, "set": set_bits, "ways": ways})),
        })

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        words = data.ArrayLayout(Way, WAYS)
        entry_bits = Way.as_shape().size
        store = memory.Memory(shape=data.ArrayLayout(entry_bits + 1, WAYS), depth=self.sets, init=[], attrs={
            "ram_style": "ultra" if self.sets >= ULTRA_SETS else "block"})
        m.submodules.store = store
        read, write = store.read_port(), store.write_port()

        valid, learn, sets, ids, tags = self._stages(m)
        same, newest, unwritten = self._newer(m, learn, sets)

        # -- The word, with what is newer.
        raw = Signal(read.data.shape(), reset_less=True)
        word = {n: Signal(words, name=f"word_{n}", reset_less=True) for n in range(3, 8)}
        after = Signal(words)       # the word that the access at 4 leaves
        wrong = [Signal(name=f"wrong_{n}") for n in (3, 4, 5)]
        bad = Signal(WAYS)
        m.d.comb += read.addr.eq(i.set)
        m.d.comb += read.en.eq(i.valid)
        m.d.comb += bad.eq(Cat(raw[way].xor() for way in range(WAYS)))
        m.d.sync += raw.eq(read.data)
        m.d.sync += wrong[0].eq(bad.any() & ~unwritten)
        for way in range(WAYS):
            entry = raw[way][:entry_bits] & ~Cat(Const(0, entry_bits - 1), bad[way])
            older = Mux(newest[3], word[5][way], 0) | Mux(newest[4], word[6][way], 0) | Mux(newest[5], word[7][way], 0)
            m.d.sync += word[3][way].eq(Mux(newest[2], after[way], older | Mux(unwritten, 0, entry)))
        m.d.sync += word[4].eq(Mux(same[1], after, word[3]))
        m.d.sync += [
            word[5].eq(after),
            word[6].eq(word[5]),
            word[7].eq(word[6]),
            wrong[1].eq(wrong[0] & ~same[1]),
            wrong[2].eq(wrong[1]),
        ]

        # -- The ways compared. That the access before has just put its row there is known when that is done.
        match = Signal(WAYS)
        brings = Signal(WAYS)
        equal = Signal()            # this access, at 3, is to the same row as the one before
        m.d.sync += equal.eq(ids[2] == ids[3])
        for way in range(WAYS):
            entry = word[3][way]
            m.d.sync += match[way].eq(Mux(same[1] & brings[way], equal, entry.valid & (entry.id == ids[3])))

        count = self._decide(m, learn[4], ids[4], word[4], after, match, brings)

        # -- Out, and back into the memory.
        writes = Signal()
        hit = Signal()
        way_hit = Signal(2, reset_less=True)
        m.d.sync += writes.eq(learn[4])
        m.d.sync += hit.eq(match.any())
        m.d.sync += way_hit.eq(Mux(match[0], 0, Mux(match[1], 1, Mux(match[2], 2, Mux(match[3], 3, 0)))))
        to = Signal.like(i.set, reset_less=True)
        m.d.sync += to.eq(sets[4])
        with m.If(self.i_write.valid):
            m.d.sync += [
                writes.eq(1),
                to.eq(self.i_write.set),
                word[5].eq(self.i_write.ways),
                count.eq(0),
            ]
        m.d.comb += [
            write.en.eq(writes),
            write.addr.eq(to),
            *(write.data[way].eq(Cat(word[5][way], word[5][way].as_value().xor())) for way in range(WAYS)),
            o.valid.eq(valid[5]),
            o.hit.eq(hit),
            o.way.eq(way_hit),
            o.wrong.eq(wrong[2]),
            o.tag.eq(tags[5]),
            o.ways.eq(word[5]),
        ]
        return m

    def _stages(self, m: Module) -> tuple[list[Value], ...]:
        """An access on its way: valid, learn, set, id and tag, each at all its stages.

        It is at stage n in the n-th cycle after it came: at 1 the memory has read, at 2 its word is in a register, the
        memory's own; at 3 the ways are compared, at 4 the policy decides, at 5 its word is written.
        """
        i = self.i
        valid, learn, sets, ids, tags = ([field] for field in (i.valid, i.valid & i.learn, i.set, i.id, i.tag))
        for name, stages, last in (("valid", valid, 5), ("learn", learn, 6), ("set", sets, 6), ("id", ids, 4),
                                   ("tag", tags, 5)):
            for n in range(1, last + 1):
                stage = Signal(len(stages[0]), name=f"{name}_{n}", reset_less=name not in ("valid", "learn"))
                m.d.sync += stage.eq(stages[-1])
                stages.append(stage)
        return valid, learn, sets, ids, tags

    def _newer(self, m: Module, learn: list[Value], sets: list[Value]):
        """What the memory does not show yet, of the d-th access before this one, if it learned from the same set: of
        the first, at stages 2 and 3; of the others, the newest; whether it is any of them.

        Asked when this one is at 1 and that one at 1 + d. The last one is seen only at 4.
        """
        learned = {d: learn[1 + d] & (sets[1 + d] == sets[1]) for d in range(1, 6)}
        same = [Signal(name=f"same_{n}") for n in (2, 3)]
        newest = {d: Signal(name=f"newest_{d}") for d in range(2, 6)}
        unwritten = Signal()
        m.d.sync += [
            same[0].eq(learned[1]),
            same[1].eq(same[0]),
            unwritten.eq(Cat(learned[d] for d in newest).any()),
            *(newest[d].eq(learned[d] & ~Cat(learned[e] for e in range(2, d)).any()) for d in newest),
        ]
        return same, newest, unwritten

    def _decide(self, m: Module, learn: Value, row: Value, word, after, match: Signal, brings: Signal) -> Signal:
        """The policy: the word that an access to `row`, at 4, leaves. Returns the count of misses in full sets."""
        count = Signal(self.insert_log2)
        entries = [word[way] for way in range(WAYS)]
        full, due, misses, counts, ages = (Signal(name=name) for name in ("full", "due", "misses", "counts", "ages"))
        free, goes, takes = (Signal(WAYS, name=name) for name in ("free", "goes", "takes"))
        older = Signal(2)
        # Of misses in a full set: which are counted, which may come in, by how much all age at the last one counted.
        if self.policy == STEADY:
            fresh, counted, comes = STALE, ~goes.any(), Const(1)
            lowered = [Mux(entry.rrpv == 0, 0, entry.rrpv - 1) for entry in entries]
            m.d.comb += goes.eq(Cat(entry.rrpv == STALE for entry in entries))
            m.d.comb += older.eq(1)
        else:
            fresh, counted, comes, lowered = STALE - 1, Const(1), due, [Const(0, 2)] * WAYS
            # The highest rrpv: its upper bit, then the lower one of those that have it.
            most = Signal(2)
            m.d.comb += [
                most[1].eq(Cat(entry.rrpv[1] for entry in entries).any()),
                most[0].eq(Mux(most[1], Cat(entry.rrpv.all() for entry in entries).any(),
                               Cat(entry.rrpv[0] for entry in entries).any())),
                goes.eq(Cat(entry.rrpv == most for entry in entries)),
                older.eq(STALE - most),
            ]
        m.d.comb += [
            free.eq(Cat(~entry.valid for entry in entries)),
            full.eq(~free.any()),
            takes.eq(Mux(full, Mux(comes, _lowest(goes), 0), _lowest(free))),
            misses.eq(learn & ~match.any()),
            brings.eq(Mux(misses, takes, 0)),
            counts.eq(misses & full & counted),
            due.eq(count.all()),
            ages.eq(counts & due),
        ]
        for way, entry in enumerate(entries):
            m.d.comb += after[way].id.eq(Mux(brings[way], row, entry.id))
            m.d.comb += after[way].valid.eq(entry.valid | brings[way])
            m.d.comb += after[way].rrpv.eq(Mux(brings[way], fresh, Mux(learn & match[way], lowered[way],
                                                                       entry.rrpv + Mux(ages, older, 0))))
        with m.If(counts):
            m.d.sync += count.eq(count + 1)
        return count
