"""The gate's figures of the shipping cores as the table of docs/vitis-package.md.

    python -m fpga.vitis.figures PRESET/CORE ...        measures them at the shell's own clock and writes the table
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from fpga.depth import MAX_CHAINS, MAX_LEVELS
from fpga.vitis.description import prepare
from fpga.vitis.gate import Gate, allowed, judge, measure
from fpga.vitis.shells import RESOURCES, budgets, card, peer

__all__ = ["PAGE", "rows", "written"]

PAGE = Path(__file__).parents[2] / "docs" / "vitis-package.md"
_BEGIN, _END = "<!-- gate begin -->\n", "<!-- gate end -->"


def rows(gates: Iterable[tuple[str, Gate]]) -> list[str]:
    """The table: what each core takes, its share of every known budget, SCRec's core of the same kind.

    Parameters  gates: preset and what was found of its core"""
    out = [f"| | {' | '.join(RESOURCES.values())} | LUT levels | carry chains |", "| --- |" + " ---: |" * 7]
    for preset, gate in gates:
        levels, chains = allowed(MAX_LEVELS, gate.clock_mhz), allowed(MAX_CHAINS, gate.clock_mhz)
        worst = max(gate.levels.levels, gate.ports.levels), max(gate.chains.chains, gate.ports.chains)
        used = " | ".join(f"{gate.used[key]:,.10g}" for key in RESOURCES)
        verdict = "passes" if gate.passed else "**refused**"
        out.append(f"| `{gate.kernel}` of `{preset}`, {gate.clock_mhz} MHz: {verdict} | {used} "
                   f"| {worst[0]} of {levels} | {worst[1]} of {chains} |")
        for budget in budgets().values():
            if not budget.missing:
                shares = (f"{100 * gate.used[key] / budget.resources[key]:.1f} %" for key in RESOURCES)
                out.append(f"| of the {budget.about} | {' | '.join(shares)} | | |")
        if theirs := peer(gate.core):
            told = (f"{theirs[key]:,}" if key in theirs else "not stated" for key in RESOURCES)
            out.append(f"| SCRec's core | {' | '.join(told)} | | |")
    return out


def written(text: str, table: Iterable[str]) -> str:
    """The page with another table. Raises LookupError: it has no place for one"""
    body = _BEGIN + "\n".join(table) + "\n" + _END
    out, count = re.subn(f"{_BEGIN}.*?{_END}", lambda _: body, text, flags=re.S)
    if count != 1:
        raise LookupError(f"{PAGE.name} has no place for the gate's table")
    return out


def main(asked: Iterable[str]) -> None:
    found = []
    for one in asked:
        preset, _, core = one.partition("/")
        kernel, texts = prepare(preset, core)
        found.append((preset, judge(kernel, measure(kernel, texts), clock_mhz=card().clocks_mhz[0])))
    PAGE.write_text(written(PAGE.read_text(), rows(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
