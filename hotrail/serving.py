"""The commands from a plan to its cards: compile, run."""

import sys
from pathlib import Path
from typing import Any

import click

from gen.base.staging import check_folder, together
from gen.base.tools import build_folder
from hotrail.as_json import JSON, result
from hotrail.completion import preset_names
from hotrail.reading import Count, log_options


@click.command("compile")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--weights", type=click.Path(path_type=Path), help="The model's parameters, an .npz [random ones].")
@click.option("--seed", default=0, show_default=True, help="Seed of random parameters.")
@click.option("--profile", type=click.Path(path_type=Path), help="The log's profile [profile.npz beside the plan].")
@click.option("--preset", shell_complete=preset_names, help="The preset whose cores the cards have [the plan's].")
@click.option("--order", type=click.Choice(("frequency", "community")), default="frequency", show_default=True,
              help="Neighbours among the rows of tensor trains: those accessed equally often, or together where that "
                   "saves work on samples held out.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder for the bundle.")
@JSON
def compile_plan(plan: Path, weights: Path | None, seed: int, profile: Path | None, preset: str | None,
                 order: str, out: Path) -> None:
    """Makes a bundle of PLAN with everything that its cards need.

    PLAN is a folder of `hotrail plan`, or its plan.json.
    """
    from gen import bundle as flow
    from gen.model.weights import FileWeights, SeededWeights
    from hotrail.terminal import say

    made_of, counted = flow.load_inputs(plan, profile)
    given = SeededWeights(seed) if weights is None else FileWeights(weights)
    made = flow.write(out, made_of, counted, given, preset=preset, order=order, say=say)
    size = sum(path.stat().st_size for path in made.folder.rglob("*") if path.is_file())
    say(f"bundle     {made.folder}: {len(made.members) + 1} files, {size:,} bytes, parameters "
        + (f"random, seed {seed}" if weights is None else f"of {weights}"))
    result(bundle=made.folder, files=len(made.members) + 1, size_bytes=size, parameters=made.weights,
           tables=made.tables, warnings=made.warnings)


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("log", nargs=-1, required=True, type=click.Path())
@log_options
@click.option("--samples", type=Count(), default=256, show_default=True, help="Samples of the log to run.")
@click.option("--batch", type=Count(), help="Samples per batch [the plan's].")
@click.option("--weights", type=click.Path(path_type=Path),
              help="The .npz that was compiled, for the distance from the dense rows.")
@click.option("--memory", type=click.Choice(("ddr4", "ideal")), default="ddr4", show_default=True,
              help="DRAM with the device's timing, or with a fixed latency.")
@click.option("--card", type=click.Choice(("sim", "twin")), default="sim", show_default=True,
              help="The Verilated cores, or their twins, which are faster and need no Verilator.")
@click.option("--processes", is_flag=True, help="Each card in a process of its own, the EMB cards at the same time.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the page [build/run].")
@JSON
def run(bundle: Path, log: tuple[str, ...], how: dict[str, Any], table: tuple[str, ...], samples: int,
        batch: int | None, weights: Path | None, memory: str, card: str, processes: bool, out: Path | None) -> None:
    """Runs LOG on the simulated cards of BUNDLE.

    Compares every result with the oracle and every card's cycles with the plan.
    """
    from fpga.api import verifying as flow
    from fpga.card.opening import check_tools
    from gen.bundle import Bundle
    from gen.data.logs import open_for
    from gen.model.log_options import LogOptions
    from hotrail.report import run as report
    from hotrail.terminal import say

    folder = out or build_folder() / "run"
    check_folder(folder, "run")
    opened = Bundle(bundle)
    check_tools(card)
    known, note = opened.parameters(weights)
    read = open_for(log, LogOptions(**how), table, opened.plan.model)
    done = flow.verify(opened, read, samples, batch=batch, weights=known, say=say, memory=memory, card=card,
                       process=processes)
    with together(folder, "run") as half:
        page = report.write(opened, done, half)
    report.show(opened, done)
    for line in read.report():
        say(line)
    for line in (*done.notes, *([note] if note else [])):
        say(f"note: {line}")
    for line in opened.warnings:
        say(f"warning: {line}")
    if rates := flow.rates(done):
        say(f"rate       {rates}")
    if energy := flow.energy(done):
        say(f"energy     {energy}")
    say(flow.summary(done))
    say(f"report     {folder / page.name}")
    result(page=folder / page.name, samples=done.samples, batches=done.batches, vectors=done.vectors,
           equal=not done.different, different=done.different or None, clock_mhz=done.clock_mhz,
           samples_per_s=done.rate, planned_samples_per_s=done.planned_rate,
           predictions=None if done.predictions is None else len(done.predictions),
           cards={number: {"cycles": cycles, "link": done.links[number], "planned_cycles": done.expected[number],
                           "planned_in_sequence_cycles": done.steady[number], "energy": done.energy[number]}
                  for number, cycles in done.cycles.items()},
           lookups={name: dict(zip(("dram", "tt", "ssd"), rows.tolist())) for name, rows in done.rows.items()},
           log=read.reading(), distance=done.distance, unseen=done.unseen, notes=done.notes,
           warnings=opened.warnings)
    if done.different:
        sys.exit(1)


COMMANDS = (compile_plan, run)
