"""Mutants of a unit's netlist against its properties: a claim that no mutant breaks may say nothing.

Yosys draws the mutants among all cells of the unit, so that every line of its source has some, and makes them: an input
or output bit of a cell inverted, constant or controlled by another. ABC looks for a broken claim within `FRAMES`
cycles, and where there is none for any difference of the unit's outputs from those of the sound one: a mutant without
one is counted as equivalent.
"""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gen.base.tools import yosys
from verif.formal.prove import FLAT, GATES, Proof, Top, abc, cone, loaded, outputs

FRAMES = 20
CONFLICTS = 50_000  # of a search, for each claim and cycle


@dataclass
class Mutated:
    """What became of a proof's mutants. breaks: of each claim, how many mutants break it; survivors: those that change
    an output and break none, by line of source; equivalent: those that change no output within FRAMES cycles."""

    proof: Proof
    breaks: dict[str, int] = field(default_factory=dict)
    survivors: list[str] = field(default_factory=list)
    equivalent: int = 0
    count: int = 0

    @property
    def different(self) -> int:
        return self.count - self.equivalent


def _name(line: str) -> str:
    """Of a line of Yosys' list: the innermost place in hw, and what was changed there."""
    word = dict(re.findall(r"-(\w+) (\S+)", line))
    places = [place for place in re.findall(r"-src (\S+)", line) if "/hw/" in place]
    place = "hw/" + places[-1].rpartition("/hw/")[2] if places else word.get("module", "?")
    name, bit = word.get("wire", word["port"]), word.get("wirebit", word["portbit"])
    return f"{place}: {word['mode']} {name}[{bit}]"


def _broken(folder: Path, number: int, count: int) -> list[int]:
    """The claims that a mutant breaks; number 0 is the unit itself."""
    first = outputs(folder / f"{number}.map")["broken"]
    # Claim by claim: ABC may crash where it looks for all at once.
    return [at for at in range(count) if "was asserted in frame" in abc(
        [*cone(f"{number}.aig", first + at), f"bmc3 -F {FRAMES} -C {CONFLICTS}"], folder)]


def mutate(proof: Proof, count: int, seed: int = 1) -> Mutated:
    """Draws `count` mutants of a proof's unit and tries its claims on each of them.

    Raises      ValueError: a claim that does not hold anyhow
    """
    top, told = Top(proof, outputs=True), Mutated(proof)
    told.breaks = dict.fromkeys(top.properties.claims, 0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        top.write(folder)
        begin = [*loaded(proof.name), FLAT[0], "memory_collect", "opt_clean"]
        yosys([*begin, f"mutate -list {count} -seed {seed} -o list * top %d"], cwd=folder)
        lines = (folder / "list").read_text("utf-8").splitlines()
        script = [*begin, "design -save sound"]
        for number, change in enumerate([[], *([line] for line in lines)]):
            script += ["design -load sound", *change, *FLAT[1:], *GATES,
                       f"write_aiger -zinit -map {number}.map {number}.aig"]
        yosys(script, cwd=folder)
        if _broken(folder, 0, len(told.breaks)):
            raise ValueError(f"{proof.name}: a claim does not hold of the unit itself")
        for number, line in enumerate(lines, 1):
            told.count += 1
            broken = _broken(folder, number, len(told.breaks))
            for at in broken:
                told.breaks[list(told.breaks)[at]] += 1
            if broken:
                continue
            log = abc([f"miter 0.aig {number}.aig", "strash", f"bmc3 -F {FRAMES} -C {CONFLICTS}"], folder)
            if "was asserted in frame" in log:
                told.survivors.append(_name(line))
            else:
                told.equivalent += 1
    return told


def lines(told: Sequence[Mutated]) -> list[str]:
    """What is said of them: a line each, then claims that none breaks and survivors by name."""
    out = [f"{one.proof.name}: {one.count} mutants, {one.different} change an output, "
           f"{one.different - len(one.survivors)} of them break a claim" for one in told]
    for one in told:
        out += [f"  {one.proof.name}: no mutant breaks: {name}" for name, times in one.breaks.items() if not times]
        out += [f"  {one.proof.name}: survives: {name}" for name in one.survivors]
    different, survive = sum(one.different for one in told), sum(len(one.survivors) for one in told)
    return [*out, f"{different - survive} of {different} mutants that change an output break a claim "
                  f"({(different - survive) / max(1, different):.1%})"]
