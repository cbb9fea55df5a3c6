"""Of what remembers rows: the coalescing window, the reuse table, joined writes, banks of the access logger, codes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

import hw.emb.window
from hw import secded
from hw.emb.landing import TierArbiter
from hw.emb.loader import Loader
from hw.emb.window import RowWindow
from hw.emb.write_joiner import WriteJoiner
from hw.hotline.bank import LoggerBank
from hw.hotline.config import ID_BITS
from hw.hotline.randomizer import ROUNDS, Randomizer, _mixed
from hw.tt.config import TTConfig
from hw.tt.marks import Marks
from hw.tt.reuse import ReuseTable
from verif.formal.properties import Properties, counter, past, properties, since, stable, streams
from verif.formal.prove import Proof


@properties(RowWindow)
def _window(p: Properties, unit: RowWindow) -> None:
    beats = unit.ring_beats
    row = Cat(unit.offset, unit.beats, unit.piece)
    p.assume(~unit.valid | unit.ready)
    if unit.row_log2 == 0:
        p.assume(unit.beats == 0)
    going = Signal(2)
    p.m.d.sync += going.eq(Cat(unit.valid, going[0]))
    p.assume(~unit.flush | ~(unit.valid | going.any()))
    marks = counter(p, "marks", unit.o_valid & unit.mark, unit.reached, most=2)
    p.assume(~unit.reached | (marks != 0))
    # What is at the output entered two cycles before.
    row_2, shared_2 = past(p, past(p, row)), past(p, past(p, unit.shared))
    beats_2 = row_2[len(unit.offset):][:len(unit.beats)]
    key = p.chosen("row", len(row), simulated=row)
    mine = unit.o_valid & (row_2 == key)
    there, place, since_then = Signal(), Signal(unit.position_bits), Signal(unit.position_bits + 2)
    takes = unit.o_valid & ~unit.hit
    most = 2 * beats
    with p.m.If(takes):
        p.m.d.sync += since_then.eq(Mux(since_then + beats_2 + 1 > most, most, since_then + beats_2 + 1))
    with p.m.If(mine & ~unit.hit & shared_2):
        p.m.d.sync += [there.eq(1), place.eq(unit.position), since_then.eq(beats_2 + 1)]
    with p.m.If(unit.flush):
        p.m.d.sync += there.eq(0)
    next_ = Signal(unit.position_bits)
    with p.m.If(takes):
        p.m.d.sync += next_.eq(unit.position + beats_2 + 1)
    p.claim("a hit is never stale", ~(mine & unit.hit) | (there & (place == unit.position) & (since_then <= beats)))
    p.claim("only rows that are shared are found", ~(unit.o_valid & unit.hit) | shared_2)
    p.claim("no quarter is entered before the one before it has drained", marks <= 1)
    p.claim("places follow one another round the ring", ~takes | (unit.position == next_))
    p.claim("a row shows two cycles after it was taken", unit.o_valid == going[1])
    p.claim("a hit enters no quarter", ~(unit.o_valid & unit.hit & unit.mark))
    p.cover("a row is found", mine & unit.hit)
    p.cover("a quarter is entered", unit.o_valid & unit.mark)
    p.cover("a row is found in another quarter", mine & unit.hit & (since_then > beats // 4))


@properties(ReuseTable)
def _reuse(p: Properties, unit: ReuseTable) -> None:
    take = Signal()
    p.m.d.comb += take.eq(unit.grant & unit.may_take & unit.ask)
    # The lookup that asks is the one that came with the last `advance`.
    key, need, asks = Signal.like(unit.next_key), Signal.like(unit.next_need), Signal()
    with p.m.If(unit.advance):
        p.m.d.sync += [key.eq(unit.next_key), need.eq(unit.next_need), asks.eq(1)]
    with p.m.Elif(take):
        p.m.d.sync += asks.eq(0)
    p.assume((unit.key == key) & (unit.need_less_one == need))
    p.assume(unit.ask == asks)
    p.assume(~unit.may_take | (unit.ask & ~unit.advance))
    p.assume(~unit.advance | ~asks)         # the lookup before has been served
    # A product has its size by its key.
    followed_key = p.chosen("key", len(unit.key), simulated=unit.key)
    followed_need = Signal.like(need)
    kept, entry, base = Signal(), Signal.like(unit.entry), Signal.like(unit.base)
    makes = take & ~unit.hit
    mine = take & (key == followed_key)
    p.assume(~(mine & kept) | (need == followed_need))
    with p.m.If(mine & ~unit.hit):
        p.m.d.sync += [kept.eq(1), entry.eq(unit.entry), base.eq(unit.base), followed_need.eq(need)]
    with p.m.Elif(makes & kept & (unit.entry == entry)):
        p.m.d.sync += kept.eq(0)
    # Who uses one entry, from the cycle in which it is served.
    users_of = p.chosen("entry", len(unit.entry), simulated=0)
    users = Signal(unit.users_bits)
    comes, goes = take & (unit.entry == users_of), unit.release & (unit.released == users_of)
    p.m.d.sync += users.eq(users + comes - goes)
    p.assume(~goes | (users != 0))
    p.assume(~comes | (users != (1 << unit.users_bits - 1)))
    p.claim("a hit is the product that was made last for its key",
            ~(mine & unit.hit) | (kept & (unit.entry == entry) & (unit.base == base)))
    p.claim("no entry is made anew while it is in use", ~(makes & (unit.entry == users_of)) | (users == 0))
    p.claim("what was not asked for is not served", ~take | asks)
    p.cover("a product is found", mine & unit.hit)
    p.cover("an entry is made anew", makes & (unit.entry == users_of) & since(p, comes))
    p.cover("an entry has two users", users == 2)


@properties(Marks)
def _marks(p: Properties, unit: Marks) -> None:
    place = p.chosen("place", len(unit.place), simulated=unit.place)
    marked, known = Signal(), Signal()
    p.assume(~(unit.mark & unit.clear & (unit.marked_place == unit.clear_place)))
    with p.m.If(unit.mark & (unit.marked_place == place)):
        p.m.d.sync += [marked.eq(1), known.eq(1)]
    with p.m.Elif(unit.clear & (unit.clear_place == place)):
        p.m.d.sync += [marked.eq(0), known.eq(1)]
    p.claim("a place is marked as it was changed last", ~(known & (unit.place == place)) | (unit.o == marked))
    p.cover("a place is marked", known & (unit.place == place) & unit.o)
    p.cover("a place is cleared", known & (unit.place == place) & ~unit.o)


@properties(WriteJoiner)
def _joiner(p: Properties, unit: WriteJoiner) -> None:
    vector, joined = unit.i, unit.o
    p.assume(vector.out < (1 << 32) - 4 * unit.block_beats)
    p.assume(vector.beats < unit.beats_max)
    modulus = 4 * unit.block_beats
    # Beats and bags that came and went, modulo more than is ever inside; one bag is followed by its number.
    beats, bags = (Signal(range(modulus), name=name) for name in ("beats_inside", "bags_inside"))
    p.m.d.sync += beats.eq(beats + Mux(unit.valid, vector.beats + 1, 0) - Mux(unit.o_valid, joined.beats, 0))
    p.m.d.sync += bags.eq(bags + unit.valid - Mux(unit.o_valid, joined.bags, 0))
    seen, ahead, out, length, last = Signal(), Signal.like(bags), Signal(32), Signal.like(vector.beats), Signal()
    follow = p.free("follow")
    with p.m.If(unit.o_valid & seen):
        p.m.d.sync += ahead.eq(ahead - joined.bags)
        p.m.d.sync += seen.eq(ahead >= joined.bags)
    with p.m.If(unit.valid & ~seen & follow):
        p.m.d.sync += [seen.eq(1), ahead.eq(bags - Mux(unit.o_valid, joined.bags, 0)), out.eq(vector.out),
                       length.eq(vector.beats), last.eq(vector.last)]
    leaves = seen & unit.o_valid & (ahead < joined.bags)
    p.claim("a vector is written where it belongs", ~leaves | (
        (joined.out <= out) & (out + length + 1 <= joined.out + joined.beats)))
    p.claim("an instruction's last vector ends its write", ~leaves | ~last | (joined.last & (ahead == joined.bags - 1)))
    p.claim("no write is of more bags than are inside", ~unit.o_valid | ((joined.bags != 0) & (joined.bags <= bags)))
    p.claim("no write is of more beats than are inside",
            ~unit.o_valid | ((joined.beats != 0) & (joined.beats <= beats)))
    p.claim("what is inside is less than two blocks", beats < 2 * unit.block_beats + unit.beats_max)
    p.cover("two vectors are joined", unit.o_valid & (joined.bags == 2))
    p.cover("a block is full", unit.o_valid & (joined.beats == unit.block_beats))


@properties(LoggerBank)
def _bank(p: Properties, unit: LoggerBank) -> None:
    i, o, latency = unit.i, unit.o, unit.LATENCY
    row = Cat(i.set, i.id)
    history = [Cat(i.valid, i.learn, row)]
    for _ in range(latency + 1):
        history.append(past(p, history[-1]))
    # The environment of the documentation: sets are written only while nothing is inside, with no access beside.
    inside = Cat(one[0] for one in history).any()
    p.assume(~unit.i_write.valid | ~inside)
    p.assume(~past(p, unit.i_write.valid) | ~i.valid)
    key = p.chosen("row", len(row), simulated=row)
    now, before = history[latency], history[latency + 1]
    mine = o.valid & (now[2:] == key)
    again = mine & before[0] & before[1] & (before[2:] == key)
    p.claim("an answer comes for each access, in time", o.valid == now[0])
    p.claim("an answer without a hit names way 0", ~o.valid | o.hit | (o.way == 0))
    entries = [o.ways[k] for k in range(4)]
    found = Cat(entry.valid & (entry.id == now[2 + len(i.set):]) for entry in entries)
    looked = o.valid & ~now[1]
    p.claim("a hit is where the row is", ~looked | (found.bit_select(o.way, 1) == o.hit) | ~o.hit)
    p.claim("a row that is in its set is hit", ~looked | (o.hit == found.any()))
    if unit.policy == "srrip":
        p.claim("a row that has just learned is hit", ~again | o.hit)
        p.claim("a row that was hit is expected soon", ~(again & past(p, o.hit) & looked) | (
            Cat(found.bit_select(k, 1) & (entry.rrpv == 0) for k, entry in enumerate(entries)).any()))
        p.claim("a row that came in is expected later", ~(again & ~past(p, o.hit) & looked) | (
            Cat(found.bit_select(k, 1) & (entry.rrpv == 2) for k, entry in enumerate(entries)).any()))
    p.cover("a row is hit", mine & o.hit)
    p.cover("a row is hit as it learns", again & o.hit)
    p.cover("a row is looked at", looked & o.hit)


@properties(TierArbiter)
def _arbiter(p: Properties, unit: TierArbiter) -> None:
    streams(p, unit)
    o = unit.o
    dram, ssd = unit.i_dram.valid & unit.i_dram.ready, unit.i_ssd.valid & unit.i_ssd.ready
    goes = o.valid & o.ready
    inside = counter(p, "rows_inside", (dram + ssd)[:2], goes, most=3)
    p.claim("no more rows leave than entered", ~o.valid | (inside != 0))
    p.claim("no more rows are inside than there are places", inside <= 2)
    p.claim("both tiers are not served in the same cycle by one place", ~(dram & o.valid & ~o.ready))
    # A tier that can go waits for one row of the other at most.
    waits = Signal(2)
    p.m.d.sync += waits.eq(Mux(unit.i_dram.valid & ~unit.i_dram.ready & ~unit.full.dram & (~o.valid | o.ready),
                               waits + (waits != 3), 0))
    p.claim("rows of card memory wait for one row of the SSD", waits <= 1)
    p.cover("rows of both tiers are inside", inside == 2)
    p.cover("a row of card memory waits for one of the SSD", waits == 1)


@properties(Randomizer)
def _permutation(p: Properties, unit: Randomizer) -> None:
    number = past(p, past(p, unit.i))
    warm = since(p, since(p, 1))
    bits = unit.domain_bits - ID_BITS
    low, high, id_ = unit.o[:bits // 2], unit.o[bits // 2:bits], unit.o[bits:]
    # Each round is undone by itself: who leads back to its number is no other's.
    for at in reversed(range(ROUNDS)):
        before = Signal(len(high if at % 2 else low), name=f"before_{at}")
        if at % 2:
            p.m.d.comb += before.eq(high ^ _mixed(low, id_, at, len(high)))
            high = before
        else:
            p.m.d.comb += before.eq(low ^ _mixed(high, id_, at, len(low)))
            low = before
    p.claim("what becomes of a number leads back to it alone", ~warm | (Cat(low, high) == number[:bits]))
    p.claim("an identifier stays as it is", ~warm | (id_ == number[bits:]))
    p.cover("a number changes", warm & (unit.o != number))


_ONE, _TWO = "a flipped bit is put right and told of", "two flipped bits are told of"


class _Flips(wiring.Component):
    """A word, encoded, with up to two bits flipped on its way to the decoder."""

    def __init__(self) -> None:
        super().__init__({"word": In(64), "first": In(7), "second": In(7), "flips": In(2), "data": Out(64),
                          "corrected": Out(1), "uncorrectable": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.decoder = decoder = secded.Decoder()
        mask = Signal(secded.WORD_BITS)
        m.d.comb += mask.eq(Mux(self.flips != 0, Const(1, secded.WORD_BITS) << self.first, 0)
                            ^ Mux(self.flips == 2, Const(1, secded.WORD_BITS) << self.second, 0))
        m.d.comb += [
            decoder.codeword.eq(Cat(self.word, secded.encode(self.word)) ^ mask),
            self.data.eq(decoder.data),
            self.corrected.eq(decoder.corrected),
            self.uncorrectable.eq(decoder.uncorrectable),
        ]
        return m


def _code(p: Properties, unit: _Flips) -> None:
    places = (unit.first < secded.WORD_BITS) & (unit.second < secded.WORD_BITS) & (unit.first != unit.second)
    p.assume(places & (unit.flips != 3))
    word, flips = past(p, past(p, unit.word)), past(p, past(p, unit.flips))
    warm = since(p, since(p, 1))
    p.claim("a word without error passes", ~warm | (flips != 0) | (
        (unit.data == word) & ~unit.corrected & ~unit.uncorrectable))
    p.claim(_ONE, ~warm | (flips != 1) | (
        (unit.data == word) & unit.corrected & ~unit.uncorrectable))
    p.claim(_TWO, ~warm | (flips != 2) | (unit.uncorrectable & ~unit.corrected))
    p.cover("a bit is put right", warm & (flips == 1))
    p.cover("two bits are flipped", warm & (flips == 2))


def _single_bits(p: Properties, unit: _Flips) -> None:
    """Words of no or one set bit: the syndrome is linear, so it depends on the flips alone if it does for these."""
    p.assume((unit.word & (unit.word - 1)) == 0)


@properties(Loader)
def _loader(p: Properties, unit: Loader) -> None:
    error, took = unit.error, unit.o_load.valid & unit.o_load.ready
    told = Value.cast(error)
    was = past(p, error.valid)
    p.assume(stable(p, unit.i))
    p.assume(~unit.start | ~unit.busy)
    p.claim("no table counts as loaded while a load is under way or broken", ~unit.bounds.loaded | ~past(p, unit.busy))
    p.claim("the first error stays", ~was | (told == past(p, told)))
    p.claim("nothing is loaded behind an error", ~error.valid | ~(unit.o_load.valid | unit.step))
    p.claim("a load beat waits unchanged", stable(p, unit.o_load))
    p.claim("a beat is taken with its load or its headers", ~unit.i.ready | took)
    p.claim("it is busy from its start on", ~past(p, unit.start) | unit.busy)
    p.claim("an error ends no load", ~error.valid | unit.busy)
    p.cover("a load is broken off", error.valid & ~was)
    p.cover("a load goes into the unit", took)


PROOFS = (
    # Rows are told apart by four bits: which ones they are does not matter.
    Proof("window", lambda: RowWindow(row_beats_max=1, beats=16, sets=2, lap_bits=1),
          constants=((hw.emb.window, "OFFSET_BITS", 4),), bounded={"a hit is never stale": 26}),
    Proof("reuse", lambda: ReuseTable(entries=8, findable=4, lines=4, key_bits=3, need_bits=1, users_log2=2),
          bounded={"no entry is made anew while it is in use": 26}),
    Proof("loader", lambda: Loader(TTConfig(
        lanes=1, lut_products=0, x_lines=256, y_lines=512, t_lines=64, t_middle_lines=64, mode_bits=8, rank_max=16,
        dim_max=64, reuse_entries=32, reuse_findable=16, in_flight=16, output_beats=128, grid_log2=1, tables=2,
        index_bits=8))),
    Proof("marks", lambda: Marks(4)),
    Proof("write_joiner", lambda: WriteJoiner(beats_max=2, block_beats=4)),
    Proof("tier_arbiter", lambda: TierArbiter(row_beats_max=1, partial_beats=2, copy_beats=2)),
    Proof("permutation_20", lambda: Randomizer(20)),
    # Two flips of such a word, and one of any, take longer than anybody waits.
    Proof("secded", _Flips, "hw/secded.py", _code, narrowed=_single_bits, without=(_TWO,)),
    Proof("secded_any_word", _Flips, "hw/secded.py", _code, without=(_ONE, _TWO)),
)
