"""Of the EMB core's results: vectors that are joined into one write."""

from tests.mutants.mutant import Mutant, Unit

JOINER = Unit("hw/emb/write_joiner.py", ("verif/emb/test_write_joiner.py",), (
    Mutant("a vector elsewhere is joined", "joins.eq(held & is_open & (vector.out == end))",
           "joins.eq(held & is_open)"),
    Mutant("joined to what has gone", "joins.eq(held & is_open & (", "joins.eq(is_open & ("),
    Mutant("joined behind the end of a block or an instruction", "joins.eq(held & is_open & (", "joins.eq(held & ("),
    Mutant("joined behind the end of an instruction", "is_open.eq(~vector.last & (", "is_open.eq(("),
    Mutant("a block of half the size", "following[block_log2] == vector.out[block_log2]",
           "following[block_log2 - 1] == vector.out[block_log2 - 1]"),
    Mutant("a flush overtakes a vector", "leaves.eq(held & Mux(coming, ~joins, self.flush | ~is_open))",
           "leaves.eq(held & (self.flush | Mux(coming, ~joins, ~is_open)))"),
    Mutant("no flush", "self.flush | ~is_open", "~is_open"),
    Mutant("the end of a block waits for a flush", "self.flush | ~is_open", "self.flush"),
    Mutant("bags are not counted", "joined.bags.eq(Mux(joins, joined.bags, 0) + 1)", "joined.bags.eq(1)"),
    Mutant("beats of the last vector alone", "Mux(joins, joined.beats, 0)", "0"),
    Mutant("the place of the last vector", "with m.If(~joins):", "with m.If(1):"),
    Mutant("what has left leaves again", "m.d.sync += held.eq(0)", "m.d.sync += held.eq(held)"),
    Mutant("the end of an instruction sticks", "joined.last.eq(vector.last)",
           "joined.last.eq(joined.last | vector.last)"),
    Mutant("a reset leaves what is held", "held, joined = Signal(), ", "held, joined = Signal(reset_less=True), "),
))
