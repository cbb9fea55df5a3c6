"""Whether a mutant that no bench finds is an equivalent: unit and mutant side by side, all inputs free.

Yosys makes an and-inverter graph of a model's Verilog with the mutant and one without; ABC looks for inputs that make
their outputs differ, and where it finds none within `FRAMES` cycles for a proof that there are none. Limits are counts
(gates, conflicts), but for the processor time of a search (verif.formal.prove). What is proven holds in the shapes of
the benches, for every input, those among them that no neighbour gives.
"""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gen.base.tools import yosys
from tests.mutants.selected import BITS, MODULE
from verif.formal.prove import FLAT, GATES, abc

__all__ = ["compare"]

FRAMES = 24
CONFLICTS = 20_000      # of a search, for each cycle
LARGEST = 60_000        # gates of a graph
PROOF = "pdr -C 20000 -M 2000"


def _graph(model: Path, number: int, file: Path) -> None:
    chosen = file.with_suffix(".v")
    chosen.write_text(f"module {MODULE}(output [{BITS - 1}:0] number); assign number = {BITS}'d{number}; endmodule\n",
                      "utf-8")
    top = (model / "top").read_text("utf-8")
    texts = " ".join(f"{path}" for path in sorted(model.glob("*.v")))
    yosys([f"read_verilog -sv -noassert {texts} {chosen}", f"hierarchy -top {top}", *FLAT, *GATES,
           f"write_aiger -zinit {file}"], cwd=file.parent)


def _one(model: Path, number: int) -> str:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for chosen in (0, number):
            _graph(model, chosen, folder / f"{chosen}.aig")
        gates = int((folder / "0.aig").open("rb").readline().split()[5])
        if gates > LARGEST:
            return f"too large: {gates} gates"
        miter = [f"miter 0.aig {number}.aig", "strash"]
        log = abc([*miter, "scorr", f"bmc3 -F {FRAMES} -C {CONFLICTS}"], folder)
        if found := re.search(r"asserted in frame (\d+)", log):
            return f"different at cycle {found[1]}"
        log = abc([*miter, "scorr", "dc2", "scorr", "print_stats", PROOF], folder)
        if "Property proved" in log or re.search(r"lat += +0 +and += +0 ", log):
            return "equivalent"
        return "undecided"


def compare(models: Sequence[Path], number: int) -> str:
    """equivalent: in all models that can be compared; else what the first other one says."""
    told = [_one(model, number) for model in models]
    different = [one for one in told if one.startswith("different")]
    if different or not told:
        return different[0] if different else "not compared"
    return next((one for one in told if one != "equivalent"), "equivalent")
