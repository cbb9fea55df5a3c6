"""The gate's figures of the shipping cores as the table of docs/vitis-package.md.

    python -m bench.gate        measures them at the shell's own clock and writes the table
"""

from collections.abc import Iterable
from pathlib import Path

from bench.page import with_table
from fpga.synth.depth import MAX_CHAINS, MAX_LEVELS
from fpga.synth.peers import peers
from fpga.vitis.description import prepare
from fpga.vitis.gate import Gate, judge, measure
from gen.model.platform import RESOURCES, Platform

PAGE = Path(__file__).parents[1] / "docs" / "vitis-package.md"
# By the names that figures have: preset and core.
SHIPPING = {"emb": ("smartssd", "emb"), "emb.half": ("smartssd_half", "emb"), "mlp": ("smartssd", "mlp"),
            "hotline": ("hotline_fpga", "hotline")}


def rows(gates: Iterable[tuple[str, Gate]]) -> list[str]:
    """The table: what each core takes, its share of every published budget; below the first of its kind SCRec's core.

    Parameters  gates: preset and what was found of its core"""
    compared: set[str] = set()
    out = [f"| | {' | '.join(RESOURCES.values())} | LUT levels | carry chains |", "| --- |" + " ---: |" * 7]
    for preset, gate in gates:
        levels, chains = gate.allowed(MAX_LEVELS), gate.allowed(MAX_CHAINS)
        worst = max(gate.levels.levels, gate.ports.levels), max(gate.chains.chains, gate.ports.chains)
        used = " | ".join(f"{gate.used[key]:,.10g}" for key in RESOURCES)
        verdict = "passes" if gate.passed else "**refused**"
        out.append(f"| `{gate.kernel}` of `{preset}`, {gate.clock_mhz} MHz: {verdict} | {used} "
                   f"| {worst[0]} of {levels} | {worst[1]} of {chains} |")
        for budget in Platform.load().shells.values():
            if not budget.missing:
                shares = (f"{100 * gate.used[key] / budget.resources[key]:.1f} %" for key in RESOURCES)
                out.append(f"| of the {budget.about} | {' | '.join(shares)} | | |")
        if gate.core not in compared:
            for name, theirs in peers(gate.core).items():
                cells = (f"{theirs[key]:,}" if key in theirs else "not stated" for key in RESOURCES)
                out.append(f"| {name} | {' | '.join(cells)} | | |")
        compared.add(gate.core)
    return out


def measured() -> list[str]:
    """The table of the shipping cores; minutes for what is not in the cache."""
    verdicts = []
    for preset, core in SHIPPING.values():
        kernel, texts = prepare(preset, core)
        verdicts.append((preset, judge(kernel, measure(kernel, texts), clock_mhz=Platform.load().clocks_mhz[0])))
    return rows(verdicts)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), "gate", measured()), "utf-8")
