"""The gate's part of package.json: all that follows from its figures, the clock and the shell's budget, worked out
anew. The figures themselves are Yosys', and nothing in a package tells them again."""

from collections.abc import Iterator, Mapping
from typing import Any

from fpga.synth.depth import MAX_CHAINS, MAX_LEVELS
from fpga.synth.shells import RESOURCES, budgets, shell_of

__all__ = ["measured"]

LEFT_OUT = {"passed": None}
_TEXTS, _FIGURES = ("misses", "notes", "path"), ("levels", "chains", "port_levels", "port_chains")
FULL_MHZ = 300          # the clock that the rule of depth is for


def measured(gate: Mapping[str, Any], kernel: str, platform: str, clock_mhz: int, instances: int) -> Iterator[str]:
    """What does not fit together in a gate's verdict, or LEFT_OUT, on so many instances of a kernel for a platform.
    Where no budget is known of its shell, the standard one's stands in, and a note says so."""
    if gate == LEFT_OUT:
        return
    if shapeless := [*_shapeless(gate)]:
        yield from shapeless
        return
    used, asked, standard = gate["used"], shell_of(platform), budgets()["standard"]
    shell = standard if asked.missing else asked
    levels, chains = (limit * FULL_MHZ // clock_mhz for limit in (MAX_LEVELS, MAX_CHAINS))
    percent = {name: budget.missing or {key: round(100 * used[key] / limit, 1)
                                        for key, limit in budget.resources.items()}
               for name, budget in budgets().items()}
    what = f"{instances} x {kernel}" if instances > 1 else kernel
    told = {key: f"{what}: {used[key]:,.10g} {name}" for key, name in RESOURCES.items()}
    at_ports = f"{gate['port_levels']} LUT levels and {gate['port_chains']} carry chains at its ports, "
    # How the sentence of each miss and each note begins.
    misses = [begin for begin, missed in (
        *((f"{told[key]}, ", used[key] > most) for key, most in shell.resources.items()),
        (f"{kernel}: {gate['levels']} LUT levels between registers, ", gate["levels"] > levels),
        (f"{kernel}: {gate['chains']} carry chains between registers, ", gate["chains"] > chains),
        (f"{kernel}: {at_ports}", gate["port_levels"] > levels or gate["port_chains"] > chains)) if missed]
    notes = [f"{told[key]} are " for key, most in shell.resources.items()
             if shell.share * most < 100 * used[key] <= 100 * most]
    for key, value in (("passed", not misses), ("forced", bool(misses)), ("levels_allowed", levels),
                       ("chains_allowed", chains), ("percent", percent)):
        if gate[key] != value:
            yield f"gate.{key} is {gate[key]!r}; by its figures it must be {value!r}"
    if len(gate["misses"]) != len(misses) or not all(map(str.startswith, gate["misses"], misses)):
        yield f"gate.misses is {gate['misses']!r}; by its figures its sentences must begin {misses!r}"
    stands_in = f"{what}: held against the {standard.about}'s budget, "
    if any(text.startswith(stands_in) for text in gate["notes"]) != bool(asked.missing):
        yield f"gate.notes is {gate['notes']!r}; platform is that of the {asked.about}"
    for note in notes:
        if not any(text.startswith(note) for text in gate["notes"]):
            yield f"gate.notes lacks a sentence that begins {note!r}"


def _shapeless(gate: Mapping[str, Any]) -> Iterator[str]:
    """Keys that are missing, not known, or not of their kind."""
    kinds = {"passed": bool, "forced": bool, "used": dict, "percent": dict, **dict.fromkeys(_TEXTS, list),
             **dict.fromkeys((*_FIGURES, "levels_allowed", "chains_allowed"), int)}
    for key in sorted({*kinds, *gate}):
        if type(gate.get(key)) is not kinds.get(key):
            yield f"gate.{key} is {gate.get(key, 'missing')!r}" if key in kinds else f"gate.{key} does not belong there"
    for key in _TEXTS:
        if isinstance(gate.get(key), list) and not all(isinstance(text, str) for text in gate[key]):
            yield f"gate.{key} is {gate[key]!r}; it must be texts"
    used = gate.get("used")
    if isinstance(used, dict) and (set(used) != set(RESOURCES) or any(
            type(number) not in (int, float) or number < 0 for number in used.values())):
        yield f"gate.used is {used!r}; it must be a number of each of {', '.join(RESOURCES)}"
