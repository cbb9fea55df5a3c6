"""Mutants that are equivalents by an argument which no comparison of two units knows: what their neighbours promise."""

from tests.mutants.mutant import ROOT, Mutant, Unit
from tests.mutants.operators import Change

# Here `why` says why nobody can find it.
ARGUED = (
    Unit("hw/emb/pooling.py", (), (
        Mutant("a beat that a reset finds is added to a sum, which the next beat there, a first one, begins anew",
               "valid = Signal(2)\n", "valid = Signal(2, reset_less=True)\n"),
    )),
    Unit("hw/tt/unit.py", (), (
        Mutant("slots of a tile are never interrupted, and only a last product's are marked as the first of a sum",
               "valid & (slot.stage == Product.LAST)):\n            m.d.sync += begun",
               "valid | (slot.stage == Product.LAST)):\n            m.d.sync += begun"),
    )),
)


def argument(change: Change) -> str:
    """Why it is an equivalent, if it is known for one."""
    text = (ROOT / change.file).read_text("utf-8")
    return next((mutant.why for unit in ARGUED if unit.file == change.file for mutant in unit.mutants
                 if change.applied(text) == text.replace(mutant.old, mutant.new)), "")
