"""Of the access logger's scheduler: the waves' way, the release of runs, the banks' queues, the cut of heavy waves."""

from tests.mutants.mutant import Mutant, Unit

BENCH = ("verif/hotline/test_scheduler.py",)

SCHEDULER = Unit("hw/hotline/scheduler.py", BENCH, (
    Mutant("the last bank's queue may overflow", "release.hold.eq(Cat(full).any())",
           "release.hold.eq(Cat(full[:-1]).any())"),
))
QUEUE = Unit("hw/hotline/bank_queue.py", BENCH, (
    Mutant("a run that wraps begins a row early", "(2 << c)", "(1 << c)"),
))
RELEASE = Unit("hw/hotline/release.py", BENCH, (
    Mutant("a bank's newer run goes before its older one", "goes[1].eq(enough[1] & done[0] & ~done[1] & ~stopped)",
           "goes[1].eq(enough[1] & ~done[1] & ~stopped)"),
    Mutant("waves advance while they are held", "advance.eq(~older | (lacks[0][-1][-1] & ~self.hold))",
           "advance.eq(~older | lacks[0][-1][-1])"),
    Mutant("runs go while they are held", "goes[0].eq(enough[0] & ~done[0] & ~stopped)",
           "goes[0].eq(enough[0] & ~done[0])"),
    Mutant("each part of a wave is a wave", "self.load.eq(load & part.first)", "self.load.eq(load)"),
    Mutant("each part of a wave ends it", "self.ended.eq(older & advance & last[0])", "self.ended.eq(older & advance)"),
    Mutant("a place more than there is", "(1 << bits) - 1 - self.queue)", "(1 << bits) - 2 - self.queue)"),
    Mutant("a credit comes back with a release", "returns[b].eq(some[b] & ~goes[0][b] & ~goes[1][b])",
           "returns[b].eq(some[b] & ~goes[0][b])"),
    Mutant("what went of the newer wave goes again", "done[0].eq(done[1] | goes[1]),", "done[0].eq(done[1]),"),
))
SPLITTER = Unit("hw/hotline/splitter.py", BENCH, (
    Mutant("the wave behind a heavy one begins with a later part", "part.eq(Mux(final, 0, part + 1))",
           "part.eq(part + 1)"),
    Mutant("costs are those of a wave before", "with m.If(going[self.latency - 2]):",
           "with m.If(going[self.latency - 1]):"),
))
