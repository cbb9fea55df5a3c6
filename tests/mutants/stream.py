"""Of the stream parts: the queue and the round robin."""

from tests.mutants.mutant import Mutant, Unit

FIFO = Unit("hw/stream/fifo.py", ("verif/stream/test_fifo.py",), (
    Mutant("a queue is never full", "self.i.ready.eq(~level[bits])", "self.i.ready.eq(1)"),
    Mutant("held forgets the head", "self.held.eq(some | self.o.valid)", "self.held.eq(some)"),
    Mutant("a payload is lost", "some.eq(push | (level[1:] != 0) | (level[0] & ~fetch))",
           "some.eq(push | (level[1:] != 0))"),
    Mutant("the head is taken twice", "self.o.valid.eq(fetch | (self.o.valid & ~self.o.ready))",
           "self.o.valid.eq(fetch | self.o.valid)"),
    Mutant("a push while the head leaves is not counted", "Cat(push ^ fetch,", "Cat(push & ~fetch,"),
    Mutant("the level goes up alone", "(fetch & ~push).replicate(bits)", "(fetch & ~push & 0).replicate(bits)"),
    Mutant("a head that is not taken is replaced", "fetch.eq(some & (~self.o.valid | self.o.ready))", "fetch.eq(some)"),
    Mutant("without a register a head that is not taken goes", "fetch.eq(some & self.o.ready)", "fetch.eq(some)"),
    Mutant("room for one payload less", "level <= self.depth - self.headroom", "level < self.depth - self.headroom"),
    Mutant("room for one payload more", "level <= self.depth - self.headroom",
           "level <= self.depth - self.headroom + 1"),
    Mutant("a block memory reads on", "read.en.eq(fetch)", "read.en.eq(1)"),
    Mutant("a reset leaves the head", "head = Signal(bits)",
           "head = Signal(bits, reset_less=True)"),
    Mutant("a reset leaves the level", "level = Signal(bits + 1)",
           "level = Signal(bits + 1, reset_less=True)"),
    Mutant("a reset leaves that there is some", "some = Signal()", "some = Signal(reset_less=True)"),
    Mutant("a place is never used", "self.i.ready.eq(~level[bits])", "self.i.ready.eq(level < self.depth - 1)"),
    Mutant("a payload that comes as one leaves is forgotten", "push | (level[1:] != 0) | (level[0] & ~fetch)",
           "(level[1:] != 0) | ((push | level[0]) & ~fetch)"),
    Mutant("the last payload leaves one behind", "(level[0] & ~fetch)),", "level[0]),"),
    Mutant("the level falls as one comes and one leaves", "(fetch & ~push).replicate(bits)", "fetch.replicate(bits)"),
    Mutant("half the rate", "fetch.eq(some & (~self.o.valid | self.o.ready))", "fetch.eq(some & ~self.o.valid)"),
    Mutant("a head that is not taken is replaced when the queue is full", "(~self.o.valid | self.o.ready))",
           "(~self.o.valid | self.o.ready | level[bits]))"),
    Mutant("a head that is not taken is lost", "fetch | (self.o.valid & ~self.o.ready)", "fetch"),
    Mutant("a full queue is written over", "push.eq(self.i.valid & self.i.ready)", "push.eq(self.i.valid)"),
    Mutant("what a full queue refuses leaves a gap", "tail.eq(tail + push),", "tail.eq(tail + self.i.valid),"),
    Mutant("a reset leaves the tail", "tail = Signal(bits)",
           "tail = Signal(bits, reset_less=True)"),
))
ROUND_ROBIN = Unit("hw/stream/round_robin.py", ("verif/stream/test_round_robin.py",), (
    Mutant("the first goes first", "wins = wins | (last[before] & free)", "wins = wins | 0 & free"),
    Mutant("a turn is missed", "requests[(before + 1 + step) % count]", "requests[(before + 2 + step) % count]"),
    Mutant("nobody goes first", "granted.append(requests[this] & (wins | none))",
           "granted.append(requests[this] & wins)"),
))
