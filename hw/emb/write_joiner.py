"""Joins the vectors of consecutive bags into one write where they lie behind one another."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.place import Part


def vector_place_layout(beats_max: int) -> data.StructLayout:
    """A bag's vector. out: its first beat, from the outputs' base; beats: less one; last: the instruction's last."""
    return data.StructLayout({"out": 32, "beats": max(1, (beats_max - 1).bit_length()), "last": 1})


def joined_layout(beats_max: int, block_beats: int) -> data.StructLayout:
    """Vectors behind one another. out: the first beat; beats, bags: in all; last: an instruction ends with them."""
    return data.StructLayout({"out": 32, "beats": (block_beats + beats_max - 1).bit_length(),
                              "bags": block_beats.bit_length(), "last": 1})


class WriteJoiner(Part):
    """Joins vectors that lie behind one another into one write, up to and with the one that reaches the end of a block.

    Blocks are counted from the outputs' base. What is held is less than a block.

    A write to DRAM closes the pages of the reads around it and turns the bus round twice, whatever its length.
    Source: AMD PG353 (Read and Write Coalescing)

    Parameters  beats_max: longest vector, in beats, a power of two; block_beats: a power of two of at least beats_max;
                no vector is joined to one that ended in another block
    Members     valid       In  a vector comes; it cannot be held back
                i           In  see `vector_place_layout`
                o_valid, o  Out  vectors joined, see `joined_layout`; it cannot be held back
    Timing      a vector per cycle. What is held leaves 3 cycles after a vector that ended the block or the instruction,
                2 after one that is not joined to it
    Handshake   all outputs are registers
    Numerics    none
    Reset       drops what is held
    Raises      ValueError: sizes out of range
    Golden      verif.emb.cycles          Tests  verif/emb/test_write_joiner.py
    """

    def __init__(self, *, beats_max: int, block_beats: int):
        for name, value, low in (("beats_max", beats_max, 1), ("block_beats", block_beats, beats_max)):
            if type(value) is not int or not low <= value <= 256 or value & (value - 1):
                raise ValueError(f"{name} must be a power of two from {low} to 256, not {value!r}")
        self.beats_max, self.block_beats = beats_max, block_beats
        super().__init__({
            "valid": In(1),
            "i": In(vector_place_layout(beats_max)),
            "o_valid": Out(1),
            "o": Out(joined_layout(beats_max, block_beats)),
        })

    def elaborate(self, platform):
        m = Module()
        block_log2 = (self.block_beats - 1).bit_length()
        coming = Signal()
        vector = Signal(self.i.shape(), reset_less=True)
        m.d.sync += coming.eq(self.valid)
        m.d.sync += vector.eq(self.i)

        held = Signal()
        joined = Signal(self.o.shape(), reset_less=True)
        end = Signal(32, reset_less=True)       # the beat behind what is held
        is_open = Signal()                      # something is held, and more may be joined to it
        following = Signal(32)
        joins = Signal()
        leaves = Signal()
        m.d.comb += following.eq(vector.out + vector.beats + 1)
        m.d.comb += joins.eq(is_open & (vector.out == end))
        m.d.comb += leaves.eq(held & Mux(coming, ~joins, ~is_open))
        m.d.sync += self.o_valid.eq(leaves)
        m.d.sync += self.o.eq(joined)
        with m.If(coming):
            m.d.sync += [
                held.eq(1),
                end.eq(following),
                is_open.eq(~vector.last & (following[block_log2] == vector.out[block_log2])),
                joined.beats.eq(Mux(joins, joined.beats, 0) + vector.beats + 1),
                joined.bags.eq(Mux(joins, joined.bags, 0) + 1),
                joined.last.eq(vector.last),
            ]
            with m.If(~joins):
                m.d.sync += joined.out.eq(vector.out)
        with m.Elif(leaves):
            m.d.sync += held.eq(0)
        return m
