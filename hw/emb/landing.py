"""Which row is fetched next: rows of card memory and rows that landed in the ring take turns."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.emb.rows import row_layout
from hw.place import Part

POSITION_BITS = 30


class TierArbiter(Part):
    """Merges the rows of both tiers, row by row, each as soon as it can be fetched and its result has a place.

    A row of the SSD waits until the host says that it has landed; rows of card memory pass it meanwhile. A bag's
    last row makes a pooled vector of as many beats, which needs room in its tier's queue of vectors; a row to copy
    needs room in the queue of copies: in either case it waits until two longest rows would fit. If rows of both
    tiers can go, they take turns.
    Source: SCRec §III.A, Fig. 7a (rows of the SSD by P2P, tiers side by side)

    Parameters  row_beats_max: a power of two; partial_beats: of each tier's queue of vectors; copy_beats: of the
                queue of copies (powers of two, at least twice row_beats_max)
    Members     i_dram        In(stream)
                i_ssd         In(stream)  an SSD row's offset is its ring position
                o             Out(stream of hw.emb.rows.row_layout)  an SSD row's offset is its place in the ring
                dram_returned, ssd_returned  In  a beat has left that queue
                copy_written  In  a copied row has left the queue of copies whole (all that are under way have the same
                    length, as those of one instruction do)
                ring_beats    In(32)  of the ring, a power of two or 0
                filled        In(30)  ring position up to which rows have landed (exclusive), modulo 2**30
                released      In(30)  ring position up to which rows have been given back, modulo 2**30; it may lie
                    ahead of `filled`
                polled        In  `filled` has just been read
                waiting       Out  a row has not landed
                position      Out(30)  the first beat of the row that is waited for
                overflow      Out  when polled, more was filled than the ring holds; until a reset
                full          Out  {dram, ssd, copy}, a row could go but for the room of its result
    Timing      a row of card memory every cycle, one of the SSD every other cycle; latency 1 and 3 cycles.
                `waiting` begins 2 cycles after the row arrived; the row may go 2 cycles after `filled` has come far
                enough. overflow 2 cycles after `polled`
    Handshake   o comes from registers; o.ready reaches i_dram.ready and i_ssd.ready
    Numerics    a row of b beats at position p has landed if 0 <= filled - p - b < ring_beats modulo 2**30: what the
                ring has been filled over again is never taken for a row
    Reset       drops the rows inside, takes all room as free
    Raises      ValueError: sizes out of range
    Golden      verif.emb.cycles          Tests  verif/emb/test_landing.py
    """

    def __init__(self, *, row_beats_max: int, partial_beats: int, copy_beats: int):
        if type(row_beats_max) is not int or row_beats_max < 1 or row_beats_max & (row_beats_max - 1):
            raise ValueError(f"row_beats_max must be a power of two, not {row_beats_max!r}")
        for name, value in (("partial_beats", partial_beats), ("copy_beats", copy_beats)):
            if type(value) is not int or value < 2 * row_beats_max or value & (value - 1):
                raise ValueError(f"{name} must be a power of two of at least {2 * row_beats_max} "
                                 f"(two rows of row_beats_max), not {value!r}")
        self.row_beats_max, self.partial_beats, self.copy_beats = row_beats_max, partial_beats, copy_beats
        row = row_layout(row_beats_max)
        super().__init__({
            "i_dram": In(stream.Signature(row)),
            "i_ssd": In(stream.Signature(row)),
            "o": Out(stream.Signature(row)),
            "dram_returned": In(1),
            "ssd_returned": In(1),
            "copy_written": In(1),
            "ring_beats": In(32),
            "filled": In(POSITION_BITS),
            "released": In(POSITION_BITS),
            "polled": In(1),
            "waiting": Out(1),
            "position": Out(POSITION_BITS),
            "overflow": Out(1),
            "full": Out(data.StructLayout({"dram": 1, "ssd": 1, "copy": 1})),
        })

    def elaborate(self, platform):
        m = Module()
        layout = self.i_dram.payload.shape()

        # The SSD's row: compared with what has landed until it has.
        ssd = Signal(layout, reset_less=True)
        ssd_held = Signal()
        landed = Signal()
        end = Signal(POSITION_BITS, reset_less=True)
        mask = Signal(POSITION_BITS)
        ssd_taken = Signal()
        behind = Signal(POSITION_BITS)  # beats that landed after the row; if it has not, most of the modulus
        there = Signal()
        m.d.comb += [
            self.i_ssd.ready.eq(~ssd_held | ssd_taken),
            behind.eq(self.filled + ~end),
            there.eq((behind & ~mask) == 0),
            self.position.eq(ssd.offset),
        ]
        m.d.sync += mask.eq(self.ring_beats - 1)
        m.d.sync += landed.eq(ssd_held & ~ssd_taken & there)
        m.d.sync += self.waiting.eq(ssd_held & ~ssd_taken & ~landed & ~there)
        with m.If(self.i_ssd.ready):
            m.d.sync += ssd_held.eq(self.i_ssd.valid)
            m.d.sync += ssd.eq(self.i_ssd.payload)
            m.d.sync += end.eq(self.i_ssd.payload.offset + self.i_ssd.payload.beats)

        # Room: two longest rows' a cycle ago, so one's now; so neither a row's own length is in the way nor the sum.
        dram = self.i_dram.payload
        taken = {name: Signal(name=f"{name}_taken") for name in ("dram", "ssd", "copy")}
        copied = Signal(len(ssd.beats), reset_less=True)
        with m.If(taken["copy"]):
            m.d.sync += copied.eq(ssd.beats)
        room = {}
        for name, size, beats in (("dram", self.partial_beats, dram.vector), ("ssd", self.partial_beats, ssd.vector),
                                  ("copy", self.copy_beats, ssd.beats)):
            free = Signal(range(size + 1), init=size, name=f"{name}_free")
            # -b is the complement of b - 1; the one comes in by the carry.
            less = ~_widen(beats, len(free))
            if name == "copy":
                # A row taken and one given back in the same cycle are equal.
                with m.If(taken[name] != self.copy_written):
                    m.d.sync += free.eq(free + Mux(taken[name], less, copied) + ~taken[name])
            else:
                m.d.sync += free.eq(free + Mux(taken[name], less, 0) + getattr(self, f"{name}_returned"))
            room[name] = Signal(name=f"{name}_room")
            m.d.sync += room[name].eq(free[(self.row_beats_max - 1).bit_length() + 1:].any())

        # Turns, where both can go.
        dram_can, ssd_can, ssd_turn, ssd_goes, move = (Signal(name=name) for name in (
            "dram_can", "ssd_can", "ssd_turn", "ssd_goes", "move"))
        ssd_room = Signal()
        m.d.comb += [
            ssd_room.eq(Mux(ssd.copy, room["copy"], ~ssd.last | room["ssd"])),
            dram_can.eq(self.i_dram.valid & (~dram.last | room["dram"])),
            ssd_can.eq(landed & ssd_room),
            ssd_goes.eq(ssd_can & (ssd_turn | ~dram_can)),
            move.eq(~self.o.valid | self.o.ready),
            self.i_dram.ready.eq(move & dram_can & ~ssd_goes),
            ssd_taken.eq(move & ssd_goes),
            taken["dram"].eq(self.i_dram.ready & dram.last),
            taken["ssd"].eq(ssd_taken & ssd.last & ~ssd.copy),
            taken["copy"].eq(ssd_taken & ssd.copy),
            self.full.dram.eq(self.i_dram.valid & ~dram_can),
            self.full.ssd.eq(landed & ~ssd.copy & ~ssd_room),
            self.full.copy.eq(landed & ssd.copy & ~ssd_room),
        ]
        with m.If(move):
            m.d.sync += self.o.valid.eq(dram_can | ssd_can)
            m.d.sync += self.o.payload.eq(Mux(ssd_goes, ssd, dram))
            with m.If(ssd_goes):
                m.d.sync += self.o.payload.offset.eq(ssd.offset & mask)
                m.d.sync += ssd_turn.eq(0)
            with m.Elif(dram_can):
                m.d.sync += ssd_turn.eq(1)

        # What goes wrong on the host's side.
        held = Signal(signed(POSITION_BITS))
        polled = Signal()
        m.d.sync += held.eq(self.filled - self.released)
        m.d.sync += polled.eq(self.polled)
        m.d.sync += self.overflow.eq(self.overflow | (polled & (held > self.ring_beats)))
        return m


def _widen(value, width: int):
    """`value` with zeros above, so that its complement has ones there."""
    return Cat(value, Const(0, width - len(value)))
