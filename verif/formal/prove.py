"""Proofs: from a unit with its properties to a verdict for every claim and every cover.

Yosys turns unit and declarations into an and-inverter graph; ABC (in the wheel of pyosys) proves each claim by
itself: sequential sweeping, then induction and property-directed reachability, without bound; what is declared to be
bounded by bounded model checking. The reset is a free input: what is proven holds across resets at any time. Registers
begin with their initial values.

All limits are counts (cycles, conflicts of the solver), so that a verdict is the same under any load. `CPU_SECONDS`
guards against a search without end: beyond it there is no verdict but an error.

    python -m verif.formal              all proofs: a line for each, and the sums
    python -m verif.formal fifo         those whose names contain it, claim by claim
    python -m verif.formal --mutants 8  and that mutants of the netlist break the claims
"""

import importlib.util
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, Module, Signal, Value
from amaranth.lib.wiring import In

from gen.base.extras import missing
from gen.base.tools import yosys
from verif.formal.properties import DECLARED, Properties

INDUCTION = 5               # cycles
INDUCTION_CONFLICTS = 30_000
CPU_SECONDS = 1800          # of one search
# To one flat module without memories. What lies before the split is what mutations are made in.
FLAT = ("proc -noopt", "flatten", "opt_expr", "opt_clean", "memory_collect", "memory_share -nosat",
        "memory_map -formal", "opt -full -purge", "dffunmap", "opt_clean -purge")
GATES = ("formalff -clk2ff", "techmap", "opt -full", "simplemap", "dffunmap", "opt -full -fast", "aigmap",
         "opt_clean -purge", "setundef -undriven -anyseq")


@dataclass(frozen=True)
class Proof:
    """A unit in a shape that is small enough.

    Parameters  name; make: gives the unit; file: of hw that the claims are about, by default the unit's; declare: its
                properties, by default those of its class; narrowed: what the proof assumes besides; constants: of the
                sources, (module, name, value), smaller where nothing depends on their size; bounded: claims for which
                no proof without bound is tried, with the cycles in which they are checked; without: claims that another
                shape is for; quick: `make test` has it; frames: cycles within which covers are reached
    """

    name: str
    make: Callable[[], Any]
    file: str = ""
    declare: Callable[[Properties, Any], None] | None = None
    narrowed: Callable[[Properties, Any], None] | None = None
    constants: tuple[tuple[Any, str, int], ...] = ()
    bounded: Mapping[str, int] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    quick: bool = False
    frames: int = 60


@dataclass
class Outcome:
    """claims: "proven", "bounded: N cycles" or "broken at cycle N" by name; covers: the cycle, or None. Seconds are of
    the wall."""

    proof: Proof
    claims: dict[str, str] = field(default_factory=dict)
    covers: dict[str, int | None] = field(default_factory=dict)
    latches: int = 0
    seconds: float = 0.0

    def faults(self) -> list[str]:
        """What must not be, a sentence each."""
        wrong = [f"{self.proof.name}: {name}: {told}" for name, told in self.claims.items()
                 if told not in ("proven", f"bounded: {self.proof.bounded.get(name)} cycles")]
        wrong += [f"{self.proof.name}: no claim is that {name}" for name in self.proof.bounded
                  if name not in self.claims]
        return wrong + [f"{self.proof.name}: {name}: never happens within {self.proof.frames} cycles"
                        for name, cycle in self.covers.items() if cycle is None]


@contextmanager
def _constants(proof: Proof) -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name, _ in proof.constants]
    try:
        for module, name, value in proof.constants:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class Top(Elaboratable):
    """A unit with its properties; all its inputs are free. outputs: the unit's own are outputs of the whole, too."""

    def __init__(self, proof: Proof, *, outputs: bool = False):
        self.proof, self.shown = proof, outputs
        with _constants(proof):
            self._declare(proof)

    def _declare(self, proof: Proof) -> None:
        self.unit = proof.make()
        self.m = Module()
        self.m.submodules.unit = self.unit
        self.properties = Properties(self.m, proof=True)
        if proof.narrowed is not None:
            proof.narrowed(self.properties, self.unit)
        (proof.declare or DECLARED[type(self.unit)])(self.properties, self.unit)
        for name in proof.without:
            del self.properties.claims[name]
        self.outputs = self.properties.outputs()

    @property
    def ports(self) -> list[Value]:
        members = [(member.flow == In, Value.cast(value))
                   for _, member, value in self.unit.signature.flatten(self.unit)
                   if isinstance(Value.cast(value), Signal)]    # a stream that is always ready has a constant there
        return [*(value for enters, value in members if enters), *self.properties.inputs, *self.outputs,
                *(value for enters, value in members if self.shown and not enters)]

    def write(self, folder: Path) -> None:
        """Its RTLIL, in `<name>.il`."""
        with _constants(self.proof):
            text = rtlil.convert(self, name="top", ports=self.ports)
        (folder / f"{self.proof.name}.il").write_text(text, "utf-8")

    def elaborate(self, platform: Any) -> Module:
        return self.m


@cache
def _program() -> Path:
    spec = importlib.util.find_spec("pyosys")
    if spec is None or spec.origin is None:
        raise RuntimeError(missing("pyosys", "proofs"))
    return Path(spec.origin).with_name("yosys-abc")


def abc(script: Sequence[str], folder: Path) -> str:
    """What ABC says to a script.

    Raises      RuntimeError: it failed, or took more than CPU_SECONDS of the processor
    """
    ran = subprocess.run([str(_program()), "-c", "; ".join(script)], cwd=folder, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS)))
    if ran.returncode < 0:
        raise RuntimeError(f"ABC was ended by signal {-ran.returncode} (CPU_SECONDS is {CPU_SECONDS}) in: {script[-1]}")
    return ran.stdout


def cone(file: str, number: int, count: int = 1) -> list[str]:
    """What reads some outputs of a graph with all the registers that they depend on."""
    return [f"read_aiger {file}", "strash", "&get -n", f"&cone -O {number} -R {count}", "&put", "strash"]


def _search(folder: Path, file: str, number: int, *engine: str) -> str:
    return abc([*cone(file, number), "scorr", "dc2", "strash", *engine], folder)


def _frame(log: str) -> int | None:
    found = re.search(r"asserted in frame (\d+)", log)
    return None if found is None else int(found[1])


def _inductive(folder: Path, file: str, number: int) -> bool:
    step = _search(folder, file, number, f"ind -F {INDUCTION} -C {INDUCTION_CONFLICTS}")
    if "Networks are equivalent" not in step:
        return False
    base = abc([*cone(file, number), f"bmc3 -F {INDUCTION + 1}"], folder)
    return re.search(rf"No output asserted in {INDUCTION + 1} frames", base) is not None


def _claim(folder: Path, file: str, number: int, cycles: int | None) -> str:
    """Without bound first, where no number of cycles is given: by induction over a few cycles, which suffices for a
    pipeline, then by reachability."""
    if cycles is None:
        if _inductive(folder, file, number):
            return "proven"
        log = _search(folder, file, number, "print_stats", "pdr")
        if (frame := _frame(log)) is not None:
            return f"broken at cycle {frame}"
        # Sweeping alone may leave a constant, about which pdr has nothing to say.
        if "Property proved" in log:
            return "proven"
        if re.search(r"lat += +0 +and += +0 ", log):
            log = _search(folder, file, number, "sat")
            return "proven" if "UNSATISFIABLE" in log else "broken at cycle 0"
        return "undecided"
    log = _search(folder, file, number, f"bmc3 -F {cycles}")
    if (frame := _frame(log)) is not None:
        return f"broken at cycle {frame}"
    reached = re.search(r"No output asserted in (\d+) frames", log)
    return f"bounded: {reached[1]} cycles" if reached else "undecided"


def _cover(folder: Path, file: str, number: int, frames: int) -> int | None:
    return _frame(abc([*cone(file, number), f"bmc3 -F {frames}"], folder))


def loaded(name: str) -> list[str]:
    """The passes that read a unit with its properties."""
    return [f"read_rtlil {name}.il", "hierarchy -top top"]


def outputs(file: Path) -> dict[str, int]:
    """Where each output's lowest bit is among those of a graph, by Yosys' own map of it, which leaves out bits that are
    constant."""
    words = (line.split() for line in file.read_text("utf-8").splitlines())
    return {word[3]: int(word[1]) - int(word[2]) for word in words if word[0] == "output"}


def export(proofs: Sequence[Proof], folder: Path) -> list[Top]:
    """Writes `<name>.aig` for each, and where its outputs are, `<name>.map`."""
    script, tops = [], []
    for proof in proofs:
        top = Top(proof)
        tops.append(top)
        top.write(folder)
        script += ["design -reset", *loaded(proof.name), *FLAT, *GATES,
                   f"write_aiger -zinit -map {proof.name}.map {proof.name}.aig"]
    yosys(script, cwd=folder)
    return tops


def prove(proofs: Sequence[Proof]) -> list[Outcome]:
    """The verdicts on all claims and covers of some proofs.

    Raises      RuntimeError: with Yosys' own words
    """
    outcomes = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for proof, top in zip(proofs, export(proofs, folder), strict=True):
            begin, told = time.monotonic(), Outcome(proof)
            file = f"{proof.name}.aig"
            told.latches = int((folder / file).open("rb").readline().split()[3])
            claims, covers = top.properties.claims, top.properties.covers
            first = outputs(folder / f"{proof.name}.map")
            for number, name in enumerate(claims, first["broken"]):
                told.claims[name] = _claim(folder, file, number, proof.bounded.get(name))
            for number, name in enumerate(covers, first["covered"]):
                told.covers[name] = _cover(folder, file, number, proof.frames)
            told.seconds = time.monotonic() - begin
            outcomes.append(told)
    return outcomes


def claims() -> dict[str, set[str]]:
    """What is claimed of each file of hw, in all proofs."""
    from verif.formal import ALL

    found: dict[str, set[str]] = {}
    for proof in ALL:
        top = Top(proof)
        file = proof.file or type(top.unit).__module__.replace(".", "/") + ".py"
        found.setdefault(file, set()).update(top.properties.claims)
    return found
