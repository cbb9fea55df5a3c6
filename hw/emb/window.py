"""The coalescing window's table: where in the ring a row lies that was fetched a short while ago."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

OFFSET_BITS = 32
WAYS = 2
LAP_BITS = 8


def check_window(*, row_beats_max: int, window_beats: int, window_sets: int, lap_bits: int) -> None:
    """Raises ValueError unless a window can have these sizes."""
    for name, value, low in (("row_beats_max", row_beats_max, 1), ("window_sets", window_sets, 2),
                             ("window_beats", window_beats, 16 * row_beats_max)):
        if type(value) is not int or value < low or value & (value - 1):
            # Up to four rows are accepted before the first of them is known to have entered a new quarter.
            reason = " (16 rows of row_beats_max)" if name == "window_beats" else ""
            raise ValueError(f"{name} must be a power of two of at least {low}{reason}, not {value!r}")
    if window_sets > 65536:
        raise ValueError(f"window_sets must be at most 65536, not {window_sets}")
    if type(lap_bits) is not int or not 1 <= lap_bits <= 16:
        raise ValueError(f"lap_bits must be 1 to 16, not {lap_bits!r}")


class _Entered(NamedTuple):
    """What `RowWindow.elaborate` hands to other methods."""

    ways: Signal
    turn: Signal
    place: Signal


class _Ring(NamedTuple):
    """What `RowWindow._admission` hands on."""

    head: Signal
    lap: Signal
    ahead: Signal
    gate: Signal
    slow: Signal
    clearing: Signal
    cleared: Signal
    valid_1: Signal
    valid_2: Signal


class _Asked(NamedTuple):
    """What `RowWindow._ask` hands on."""

    ways: list[Any]
    keys: tuple[Any, ...]
    sets: tuple[Any, ...]
    shared: tuple[Any, ...]


class _Candidates(NamedTuple):
    """What `RowWindow._compare` hands on."""

    young: Signal
    old: Signal
    barred: Signal
    places: list[Any]
    turns: Signal
    last_set: Signal
    last_row: Signal
    earlier: Signal
    earlier_place: Signal


class _Placed(NamedTuple):
    """What `RowWindow._place` hands on."""

    hit: Signal
    miss: Signal
    crosses: Signal
    after: Signal


class RowWindow(wiring.Component):
    """Gives rows their place in a ring of beats, and finds rows that still lie there.

    Rows that were not found take the ring's next beats; places are in order of arrival. A row is found again until
    the ring has been filled up to the third quarter after the one that it begins in: what lies further back drains.
    A quarter is only filled anew once all rows that arrived before the ring got into the quarter before it have been
    served: nobody can be waiting for what is overwritten, and no row is ever counted or pinned.
    Source: SCARS §II.A (a row repeated within a window is fetched once)

    Parameters  row_beats_max: longest row, in beats; beats: of the ring, at least 16 such rows; sets: of two rows in
                the table; lap_bits: the table is cleared whenever the ring has gone round 2**lap_bits - 1 times
                (all powers of two, but lap_bits)
    Members     hold      In  no rows from the next cycle on
                ready     Out  a row can be taken
                valid     In  it is taken (only while ready)
                offset    In(32)  of the row in its memory
                beats, piece  In  of the row and of one of its pieces, less one; with the offset they identify it
                shared    In  it may be found, and found again
                o_valid   Out
                hit       Out  the row is in the window
                position  Out  its place
                mark      Out  the place enters a new quarter
                reached   In  the marked row has been served, and so have all before it
                flush     In  forget all rows (only when no row is under way)
    Timing      a row per cycle; its place shows 2 cycles later. `sets` + 1 cycles of pause after a reset and at a
                clear; in the last quarter before a clear a row every fourth cycle, so that none is under way then
    Numerics    none; the table's tag is exact
    Reset       forgets all rows
    Raises      ValueError: sizes out of range
    Golden      golden.emb.rows.window          Tests  verif/emb/test_rows.py
    """

    def __init__(self, *, row_beats_max: int, beats: int, sets: int, lap_bits: int = LAP_BITS):
        check_window(row_beats_max=row_beats_max, window_beats=beats, window_sets=sets, lap_bits=lap_bits)
        self.ring_beats, self.sets, self.lap_bits = beats, sets, lap_bits
        self.row_beats_max = row_beats_max
        self.row_log2 = (row_beats_max - 1).bit_length()
        self.position_bits = (beats - 1).bit_length()
        self.within_bits = self.position_bits - 2   # of a place in its quarter
        self.set_bits = (sets - 1).bit_length()
        self.beats_bits = max(1, self.row_log2)
        super().__init__({
            "hold": In(1),
            "ready": Out(1),
            "valid": In(1),
            "offset": In(OFFSET_BITS),
            "beats": In(self.beats_bits),
            "piece": In(self.beats_bits),
            "shared": In(1),
            "o_valid": Out(1),
            "hit": Out(1),
            "position": Out(self.position_bits),
            "mark": Out(1),
            "reached": In(1),
            "flush": In(1),
        })

    def _set_of(self, offset):
        """Every bit of the offset counts: the slices of set_bits, added without carry."""
        bits = self.set_bits
        slices = [offset[at:at + bits] for at in range(0, OFFSET_BITS, bits)]
        value = slices[0]
        for part in slices[1:]:
            value = value ^ part
        return value[:bits]

    def _entry_layout(self):
        """Of the table: a row and its place."""
        tag_bits = OFFSET_BITS - self.set_bits  # the set follows from it and the low bits, and these from the set
        return data.StructLayout({
            "tag": tag_bits, "beats": self.beats_bits, "piece": self.beats_bits, "position": self.position_bits,
            "lap": self.lap_bits, "turn": 1,
        })

    def elaborate(self, platform):
        m = Module()
        ring = self._admission(m)
        asked = self._ask(m, ring)
        # By the row that was placed in the cycle before, in one of the ways.
        entered = _Entered(
            ways=Signal(WAYS, name="entered"), turn=Signal(name="entered_turn"),
            place=Signal(self.position_bits, name="entered_place", reset_less=True))
        candidates = self._compare(m, ring, asked, entered)
        placed = self._place(m, ring, asked, entered, candidates)
        self._advance(m, ring, asked, placed)
        return m

    def _admission(self, m: Module) -> _Ring:
        """The ring, and whether a row can be taken."""
        # Its next beat, how often it went round, and the next beat if no row under way were found.
        head = Signal(self.position_bits)
        lap = Signal(self.lap_bits, init=1)
        ahead = Signal(self.within_bits)
        gate = Signal()  # a row that entered a quarter still waits: no row may enter another
        # another quarter might be entered; the last before the table is cleared
        near = Signal()
        slow = Signal()
        clearing = Signal(init=1)
        cleared = Signal(self.set_bits)
        valid_1 = Signal()
        valid_2 = Signal()
        under_way = Signal()
        m.d.comb += near.eq(ahead[self.row_log2 + 1:].all())
        m.d.comb += under_way.eq(self.valid | valid_1 | valid_2)
        # Decided a cycle ahead, so a row that is taken meanwhile must still find room: two rows are near the end.
        m.d.sync += self.ready.eq(
            ~self.hold & ~clearing & ~self.flush & ~(near & gate) & ~(slow & under_way))
        return _Ring(head=head, lap=lap, ahead=ahead, gate=gate, slow=slow, clearing=clearing,
                     cleared=cleared, valid_1=valid_1, valid_2=valid_2)

    def _ask(self, m: Module, ring: _Ring) -> _Asked:
        """Cycle 0: the table is asked. The row goes along."""
        key_layout = data.StructLayout({"offset": OFFSET_BITS, "beats": self.beats_bits, "piece": self.beats_bits})
        ways = []
        for way in range(WAYS):
            store = memory.Memory(shape=self._entry_layout(), depth=self.sets, init=[], attrs={"ram_style": "block"})
            m.submodules[f"way_{way}"] = store
            ways.append((store.write_port(), store.read_port()))
        key_1, key_2, key_3 = (Signal(key_layout, name=f"key_{i}", reset_less=True) for i in (1, 2, 3))
        set_1, set_2, set_3 = (Signal(self.set_bits, name=f"set_{i}", reset_less=True) for i in (1, 2, 3))
        shared_1, shared_2 = (Signal(name=f"shared_{i}", reset_less=True) for i in (1, 2))
        asked = Signal(self.set_bits)
        m.d.comb += asked.eq(self._set_of(self.offset))
        for _, read in ways:
            m.d.comb += read.addr.eq(asked)
        m.d.sync += [
            ring.valid_1.eq(self.valid),
            key_1.offset.eq(self.offset),
            key_1.beats.eq(self.beats),
            key_1.piece.eq(self.piece),
            set_1.eq(asked),
            shared_1.eq(self.shared),
            ring.valid_2.eq(ring.valid_1),
            key_2.eq(key_1),
            set_2.eq(set_1),
            shared_2.eq(shared_1),
            key_3.eq(key_2),
            set_3.eq(set_2),
        ]
        return _Asked(ways=ways, keys=(key_1, key_2, key_3), sets=(set_1, set_2, set_3),
                      shared=(shared_1, shared_2))

    def _compare(self, m: Module, ring: _Ring, asked: _Asked, entered: _Entered) -> _Candidates:
        """Cycle 1: compared with the two rows of the set, and with the two rows before, whose entries the table may
        not have had yet. What the row before the last did is known; the last is in cycle 2. The age in quarters
        may grow by one in this very cycle."""
        (key_1, key_2, key_3), (set_1, set_2, set_3), (shared_1, _) = asked.keys, asked.sets, asked.shared
        now = Cat(ring.head[self.within_bits:], ring.lap)
        earlier_place = Signal(self.position_bits, reset_less=True)
        found_young = Signal(WAYS)
        found_old = Signal(WAYS)
        barred = Signal(WAYS)
        places = [Signal(self.position_bits, name=f"place_{way}", reset_less=True) for way in range(WAYS)]
        turns = Signal(WAYS)
        same_set = Signal()
        m.d.comb += same_set.eq(set_1 == set_3)
        for way, (_, read) in enumerate(asked.ways):
            entry = read.data
            same, age = Signal(name=f"same_{way}"), Signal(len(now), name=f"age_{way}")
            newer = same_set & entered.ways[way]
            m.d.comb += same.eq(Cat(entry.tag, entry.beats, entry.piece)
                                == Cat(key_1.offset[self.set_bits:], key_1.beats, key_1.piece))
            m.d.comb += age.eq(now - Cat(entry.position[self.within_bits:], entry.lap))
            m.d.sync += [
                found_young[way].eq(same & (age[1:] == 0)),
                found_old[way].eq(same & (age == 2)),
                barred[way].eq(newer | ~shared_1),
                places[way].eq(entry.position),
                turns[way].eq(Mux(newer, entered.turn, entry.turn)),
            ]
        last_set = Signal()
        last_row = Signal()
        earlier = Signal()
        m.d.sync += [
            last_set.eq(set_1 == set_2),
            last_row.eq((key_1.as_value() == key_2.as_value()) & shared_1),
            earlier.eq((key_1.as_value() == key_3.as_value()) & shared_1 & entered.ways.any()),
            earlier_place.eq(entered.place),
        ]
        return _Candidates(
            young=found_young, old=found_old, barred=barred, places=places, turns=turns, last_set=last_set,
            last_row=last_row, earlier=earlier, earlier_place=earlier_place)

    def _place(self, m: Module, ring: _Ring, asked: _Asked, entered: _Entered, candidates: _Candidates) -> _Placed:
        """Cycle 2: found, or given the ring's next beats and entered."""
        head, clearing = ring.head, ring.clearing
        key_2, shared_2, places, earlier = asked.keys[1], asked.shared[1], candidates.places, candidates.earlier
        crossed = Signal()
        last = Signal()
        live = Signal(WAYS)
        turn = Signal(WAYS)
        m.d.comb += last.eq(candidates.last_row & entered.ways.any())
        for way in range(WAYS):
            newer = candidates.last_set & entered.ways[way]
            found = candidates.young[way] | (candidates.old[way] & ~crossed)
            m.d.comb += live[way].eq(found & ~newer & ~candidates.barred[way])
            m.d.comb += turn[way].eq(Mux(newer, entered.turn, candidates.turns[way]))
        hit = Signal()
        miss = Signal()
        enter = Signal()
        victim = Signal()
        after = Signal(self.position_bits)
        crosses = Signal()
        m.d.comb += [
            hit.eq(last | earlier | live.any()),
            miss.eq(ring.valid_2 & ~hit),
            enter.eq(miss & shared_2),
            victim.eq(turn.xor()),  # the way that was not written last
            after.eq(head + key_2.beats + 1),
            crosses.eq(after[self.within_bits] ^ head[self.within_bits]),
            self.o_valid.eq(ring.valid_2),
            self.hit.eq(hit),
            self.mark.eq(crosses & ~hit),
            # At most one of the four can be: a row that is in the table is not entered again.
            self.position.eq(
                _only(last, entered.place) | _only(earlier, candidates.earlier_place) | _only(live[0], places[0])
                | _only(live[1], places[1]) | _only(~hit, head)),
        ]
        entry = Signal(self._entry_layout())
        m.d.comb += [
            entry.tag.eq(key_2.offset[self.set_bits:]),
            entry.beats.eq(key_2.beats),
            entry.piece.eq(key_2.piece),
            # While the table is cleared, lap 0: older than anything that is found.
            entry.position.eq(head),
            entry.lap.eq(Mux(clearing, 0, ring.lap)),
            entry.turn.eq(~clearing & Mux(victim, turn[0], ~turn[1])),
        ]
        for way, (write, _) in enumerate(asked.ways):
            m.d.comb += write.addr.eq(Mux(clearing, ring.cleared, asked.sets[1]))
            m.d.comb += write.data.eq(entry)
            m.d.comb += write.en.eq(clearing | (enter & (victim == way)))
        m.d.sync += [
            entered.ways.eq(Cat(enter & ~victim, enter & victim)),
            entered.turn.eq(entry.turn),
            entered.place.eq(head),
            crossed.eq(miss & crosses),
        ]
        return _Placed(hit=hit, miss=miss, crosses=crosses, after=after)

    def _advance(self, m: Module, ring: _Ring, asked: _Asked, placed: _Placed) -> None:
        """The ring goes on behind the row; the table is cleared after the last lap."""
        head, lap, ahead, miss, crosses = ring.head, ring.lap, ring.ahead, placed.miss, placed.crosses
        last_lap = (1 << self.lap_bits) - 1
        # What a found row would have taken is given back a cycle later.
        refund = Signal(self.beats_bits, reset_less=True)
        refunded = Signal()
        m.d.sync += [
            refund.eq(asked.keys[1].beats),
            refunded.eq(ring.valid_2 & placed.hit),
            ahead.eq(ahead + Mux(self.valid, self.beats, 0) + self.valid
                     - Mux(refunded, refund, 0) - refunded),
            ring.slow.eq((lap == last_lap) & head[self.within_bits:].all()),
        ]
        with m.If(ring.clearing):
            m.d.sync += ring.cleared.eq(ring.cleared + 1)
            m.d.sync += ring.clearing.eq(~ring.cleared.all())
        with m.If(self.reached):
            m.d.sync += ring.gate.eq(0)
        with m.If(miss):
            m.d.sync += head.eq(placed.after)
            with m.If(crosses):
                m.d.sync += ring.gate.eq(1)
        with m.If((miss & crosses & head[self.within_bits:].all()) | self.flush):
            m.d.sync += lap.eq(lap + 1)
            with m.If(lap == last_lap):
                m.d.sync += lap.eq(1)
                m.d.sync += ring.clearing.eq(1)


def _only(condition, value):
    return Mux(condition, value, 0)
