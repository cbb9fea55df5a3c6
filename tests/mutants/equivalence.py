"""Whether a mutant that no bench finds is an equivalent: unit and mutant side by side, all inputs free.

Yosys makes an and-inverter graph of a model's Verilog with the mutant and one without; ABC looks for inputs that make
their outputs differ, and where it finds none within `FRAMES` cycles for a proof that there are none. A payload counts
while its `valid` is 1, as the rules of streams and of AXI say. Limits are counts
(gates, conflicts), but for the processor time of a search (verif.formal.prove). What is proven holds in the shapes of
the benches, for every input, those among them that no neighbour gives.
"""

import re
import resource
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gen.base.tools import yosys
from tests.mutants.selected import BITS, MODULE
from verif.formal.prove import abc

FRAMES = 24
CONFLICTS = 20_000      # of a search, for each cycle
LARGEST = 60_000        # gates of a graph
MEMORY_BYTES = 6 << 30  # of Yosys: a board's memory is made of registers
# What is undefined is 0 in both, so that neither has inputs of its own.
PASSES = ("proc -noopt", "flatten", "chformal -remove", "delete t:$print", "opt_expr", "opt_clean", "memory_collect",
          "memory_map", "opt -full -purge", "setundef -undriven -init -zero", "dffunmap", "formalff -clk2ff",
          "techmap", "opt -full", "simplemap", "dffunmap", "opt -full -fast", "aigmap", "opt_clean -purge",
          "setundef -zero")
_MODULE = re.compile(r"(?ms)^module (\\\S+ |\w+)\(.*?^endmodule")
_PORT = re.compile(r"(?m)^  (input|output) (\[\d+:0\] |)(\\\S+ |\w+);")
_PAYLOAD = re.compile(r"(\w+__)payload|(\w+_(?:aw|w|b|ar|r))(?!valid|ready)[a-z]+")
PROOF = "pdr -C 20000 -M 2000"


def _modules(model: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of a model's modules."""
    for path in sorted(model.glob("*.v")):
        for found in _MODULE.finditer(path.read_text("utf-8")):
            yield found[1], found[0]


def _shown(text: str, name: str, number: int) -> str:
    """A module `shown` around another, with the mutant's number, whose payloads are 0 where nothing is valid."""
    ports = [(way, bits, port.strip(), port.strip() if port[0] != "\\" else f"port{at}")
             for at, (way, bits, port) in enumerate(_PORT.findall(text))]
    outputs = {shown for way, _, _, shown in ports if way == "output"}
    valids = {shown: f"{found[1] or found[2]}valid" for shown in outputs if (found := _PAYLOAD.fullmatch(shown))}
    masked = {shown: valid for shown, valid in valids.items() if valid in outputs}
    heads = ", ".join(f"{way} {bits}{shown}" for way, bits, port, shown in ports if port != "mutant")
    body = [f"wire {bits}{shown}_any; assign {shown} = {masked[shown]} ? {shown}_any : 0;"
            for _, bits, _, shown in ports if shown in masked]
    pins = ", ".join(f".{port} ({BITS}'d{number})" if port == "mutant" else
                     f".{port} ({shown}{'_any' * (shown in masked)})" for _, _, port, shown in ports)
    return "\n".join([f"module shown({heads});", *body, f"{name} unit({pins});", "endmodule", ""])


def _graph(model: Path, name: str, text: str, number: int, file: Path) -> None:
    chosen = file.with_suffix(".v")
    chosen.write_text(f"module {MODULE}(output [{BITS - 1}:0] number); assign number = {BITS}'d{number}; endmodule\n"
                      + _shown(text, name, number), "utf-8")
    texts = " ".join(f"{path}" for path in sorted(model.glob("*.v")))
    yosys([f"read_verilog -sv -noassert {texts} {chosen}", "hierarchy -top shown", *PASSES,
           f"write_aiger -zinit {file}"], cwd=file.parent)


@contextmanager
def _limited() -> Iterator[None]:
    """Programs that are started have no more than MEMORY_BYTES."""
    now = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, now[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, now)


def _one(model: Path, number: int) -> str:
    """Of the parts that have the mutant, each by itself, and else of the whole."""
    top, modules = (model / "top").read_text("utf-8"), dict(_modules(model))
    parts = [name for name, text in modules.items() if f"{BITS}'h{number:04x}" in text and name != top]
    if parts and all(_part(model, name, modules[name], number) == "equivalent" for name in parts):
        return "equivalent"
    return _part(model, top, modules[top], number)


def _part(model: Path, name: str, text: str, number: int) -> str:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            with _limited():
                _graph(model, name, text, 0, folder / "0.aig")
        except RuntimeError as error:   # cells of a family, modules of a vendor, or too large
            return str(error).splitlines()[0]
        gates = int((folder / "0.aig").open("rb").readline().split()[5])
        if gates > LARGEST:
            return f"too large: {gates} gates"
        _graph(model, name, text, number, folder / f"{number}.aig")
        miter = [f"miter 0.aig {number}.aig", "strash", "scorr", "dc2", "scorr"]
        log = abc([*miter, "print_stats", f"bmc3 -F {FRAMES} -C {CONFLICTS}", "sat"], folder)
        if found := re.search(r"asserted in frame (\d+)", log):
            return f"different at cycle {found[1]}"
        # Sweeping may leave no registers, which the searches then refuse.
        if re.search(r"lat += +0 ", log):
            return "equivalent" if "UNSATISFIABLE" in log else "different at cycle 0"
        return "equivalent" if "Property proved" in abc([*miter, PROOF], folder) else "undecided"


def compare(models: Sequence[Path], number: int) -> str:
    """equivalent: in all models that can be compared; else what the first other one says."""
    told = [_one(model, number) for model in models]
    different = [one for one in told if one.startswith("different")]
    if different or not told:
        return different[0] if different else "not compared"
    return next((one for one in told if one != "equivalent"), "equivalent")
