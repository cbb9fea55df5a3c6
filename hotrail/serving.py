"""The commands from a plan to its cards: compile, run."""

import sys
from pathlib import Path
from typing import Any

import click

from hotrail.planning import FORMAT

__all__ = ["COMMANDS"]


@click.command("compile")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--weights", type=click.Path(path_type=Path), help="The model's parameters, an .npz [random ones].")
@click.option("--seed", default=0, show_default=True, help="Seed of random parameters.")
@click.option("--profile", type=click.Path(path_type=Path), help="The log's profile [profile.npz beside the plan].")
@click.option("--preset", help="The preset whose cores the cards have [the plan's].")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder for the bundle.")
def compile_plan(plan: Path, weights: Path | None, seed: int, profile: Path | None, preset: str | None,
                 out: Path) -> None:
    """Makes a bundle of PLAN with everything that its cards need.

    PLAN is a folder of `hotrail plan`, or its plan.json.
    """
    from gen import bundle as flow
    from gen.model.weights import FileWeights, SeededWeights
    from hotrail.terminal import say

    made_of, counted = flow.load_inputs(plan, profile)
    given = SeededWeights(seed) if weights is None else FileWeights(weights)
    made = flow.write(out, made_of, counted, given, preset=preset, say=say)
    size = sum(path.stat().st_size for path in made.folder.rglob("*") if path.is_file())
    say(f"bundle     {made.folder}: {len(made.members) + 1} files, {size:,} bytes, parameters "
        + (f"random, seed {seed}" if weights is None else f"of {weights}"))


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("log", nargs=-1, required=True)
@FORMAT
@click.option("--samples", type=click.IntRange(1), default=256, show_default=True, help="Samples of the log to run.")
@click.option("--batch", type=click.IntRange(1), help="Samples per batch [the plan's].")
@click.option("--weights", type=click.Path(path_type=Path),
              help="The .npz that was compiled, for the distance from the dense rows.")
@click.option("--memory", type=click.Choice(("ddr4", "ideal")), default="ddr4", show_default=True,
              help="DRAM with the device's timing, or with a fixed latency.")
def run(bundle: Path, log: tuple[str, ...], kind: str | None, samples: int, batch: int | None, weights: Path | None,
        memory: str) -> None:
    """Runs LOG on the simulated cards of BUNDLE.

    Compares every result with the oracle and every card's cycles with the plan.
    """
    from fpga.api import verifying as flow
    from gen.bundle import Bundle
    from gen.data.logs import open_log
    from hotrail.terminal import say

    opened = Bundle(bundle)
    known, note = opened.parameters(weights)
    read = open_log(log, kind, tuple(opened.tables))
    done = flow.verify(opened, read, samples, batch=batch, weights=known, say=say, memory=memory)
    _show(opened, done)
    for line in read.report():
        say(line)
    for line in (*done.notes, *([note] if note else [])):
        say(f"note: {line}")
    say(flow.summary(done))
    if done.different:
        sys.exit(1)


def _show(bundle: Any, done: Any) -> None:
    """Cards beside the plan, and tables."""
    from hotrail.terminal import console, print_table

    shown = console(130)
    head = ("card", "core", "cycles per batch", "link: to the card", "to the host", "the plan's", "measured / planned",
            "in sequence, planned", f"samples per second at {done.clock_mhz:g} MHz")
    cards = []
    for card in bundle.plan.cards:
        if card.number in done.cycles:
            busy, one, steady = (each[card.number] for each in (done.busy, done.expected, done.steady))
            link = done.links[card.number]
            measured = (done.cycles[card.number], link.in_cycles, link.out_cycles)
            cards.append((str(card.number), card.kind, *(f"{cycles / done.batches:,.0f}" for cycles in measured),
                          f"{one / done.batches:,.0f}", f"{busy / one:.2f}" if one else "-",
                          f"{steady / done.batches:,.0f}",
                          f"{done.samples * done.clock_mhz * 1e6 / steady:,.0f}" if steady else "-"))
    batches = "1 batch" if done.batches == 1 else f"{done.batches:,} batches"
    print_table(shown, head, cards, title=f"{done.samples:,} samples in {batches}", left=2)
    tables = []
    for name, told in bundle.tables.items():
        far = done.distance[name] if done.distance is not None else None
        tables.append((name, bundle.plan.tables[name].place, *(f"{int(rows):,}" for rows in done.rows[name]),
                       f"{told['weighted_error']:.3f}" if told["cores"] else "-", "-" if far is None else f"{far:.2g}"))
    print_table(shown, ("table", "cards", "DRAM", "TT", "SSD", "TT error", "distance of the vectors"), tables)


COMMANDS = (compile_plan, run)
