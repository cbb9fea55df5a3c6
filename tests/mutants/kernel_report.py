"""Of the result block's writer."""

from tests.mutants.mutant import Mutant, Unit

REPORTER = Unit("hw/kernel/report.py", ("verif/kernel/test_report.py",), (
    Mutant("the next block begins inside a beat", "m.d.sync += filled.eq(0)", "m.d.sync += filled.eq(filled)"),
    Mutant("a block is a beat longer while progress waits", "Mux(finish, self.beats, 1)",
           "Mux(finish, self.beats, 1) | progress_pending"),
))
