"""The `hotrail` command: thin, every line of work is somewhere else."""

import sys
from pathlib import Path
from typing import Any

import click

from gen.base.staging import together
from gen.base.tools import build_folder
from gen.rtl import config as presets
from hotrail import (
    closing,
    completion,
    example,
    inventory,
    packaging,
    papers,
    planning,
    serving,
    sharing,
    sizing,
    training_time,
)
from hotrail.as_json import JSON, result
from hotrail.boundary import Bounded
from hotrail.completion import device_names, preset_names
from hotrail.reading import Readings, log_options

ENVIRONMENT = """HOTRAIL_BUILD names the folder for all that is built and written [build/]. HOTRAIL_DATA names a folder
of statistics and logs that some commands read, HOTRAIL_TOGGLES the file for synth --activity. Guide to all pages:
docs/index.md. Each COMMAND --help names its own."""


def _presets(names: tuple[str, ...]) -> list[presets.Preset]:
    return [presets.load(name) for name in names or presets.names()]


@click.group(cls=Bounded, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
             epilog=ENVIRONMENT)
@click.version_option(package_name="hotrail")
def main() -> None:
    """Hardware for recommendation models: from a click log to a plan, to verified Verilog, to cards.

    To begin: demo; example writes files to try the others on. Your log: profile, model, plan, size, compile, run,
    refresh; for training: hotline, train-time. The hardware: verilog, lint, synth, timing, failfast; hls for C++. A
    real card: package, xo, bitstream, cards; ecp5 for a board by open tools. What it is worth: bench, papers.
    PRESET names the sizes of the cores: tiny for simulation, smartssd for the card.
    """


@main.command()
@click.argument("preset", nargs=-1, shell_complete=preset_names)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the presets' folders [build].")
@JSON
def verilog(preset: tuple[str, ...], out: Path | None) -> None:
    """Writes the Verilog of PRESET's cores.

    With its metadata. PRESET is a name or a .toml file; default: all that come with hotrail.
    """
    from gen.rtl import verilog as rtl

    written: dict[str, dict[str, Any]] = {}
    for chosen in _presets(preset):
        for built in rtl.verilog(chosen, out):
            written.setdefault(chosen.name, {})[built.top] = {"folder": built.folder,
                                                              "files": [path.name for path in built.files]}
            click.echo(f"{chosen.name}: {built.files[0].parent}/{built.top}.v and {len(built.files) - 1} more modules, "
                       f"{built.top}.json")
    result(presets=written)


@main.command()
@click.argument("preset", nargs=-1, shell_complete=preset_names)
@JSON
def lint(preset: tuple[str, ...]) -> None:
    """Checks the Verilog of PRESET with four tools.

    Verilator, Yosys, slang and Icarus; only waived warnings may remain, as often as they were looked at.
    """
    from fpga.synth import lint as checks

    accepted = checks.waivers()
    bad = 0
    asked = [tool for tool, there in checks.tools().items() if there]
    findings = {}
    for name, left in checks.of_presets(list(_presets(preset)), accepted):
        findings[name] = left
        bad += len(left)
        said = f"{len(left)} findings" if left else "nothing but what is waived"
        click.echo(f"{name}: {', '.join(asked)}: {said}")
        for finding in left[:40]:
            click.echo(f"  {finding.tool} {finding.name}: {finding.text}")
    if "icarus" not in asked:
        click.echo("Icarus is not installed and was left out (apt-get install iverilog).")
    if "slang" not in asked:
        click.echo("slang is not installed and was left out (pip install pyslang).")
    stale = [waiver for waiver in accepted if not waiver.met and waiver.tool in asked and not preset]
    for waiver in stale:
        click.echo(f"waiver {waiver.tool} {waiver.name} ({waiver.match}) catches nothing any more: remove it")
    bad += len(stale)
    result(tools=asked, cores=findings, stale_waivers=[{"tool": each.tool, "name": each.name, "match": each.match}
                                                       for each in stale])
    sys.exit(1 if bad else 0)


@main.command()
@click.argument("preset", shell_complete=preset_names)
@click.argument("core", required=False)
@click.option("--liberty", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Area in the standard cells of this Liberty file instead of an FPGA's.")
@click.option("--node-nm", type=click.Choice(["180", "130", "90", "65", "45"]),
              help="Process whose bit cells the area of memories is estimated by, with --liberty.")
@click.option("--activity", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Power at work, with --liberty: the file that a run of the core's simulated card wrote, with "
                   "HOTRAIL_TOGGLES naming it.")
@click.option("--mhz", type=click.FloatRange(0, min_open=True), default=250.0, show_default=True,
              help="Clock, with --activity.")
@JSON
def synth(preset: str, core: str | None, liberty: Path | None, node_nm: str | None, activity: Path | None,
          mhz: float) -> None:
    """Area and logic depth of PRESET's cores, by Yosys.

    Exits 1 when a path is deeper than the rule.
    """
    from fpga.synth import cells
    from fpga.synth import map as flow
    from gen.rtl import toggles
    from gen.rtl.cores import CORES
    from gen.rtl.verilog import convert
    from hotrail.terminal import aside

    if (node_nm or activity) and liberty is None:
        raise click.UsageError("--node-nm and --activity are for --liberty")
    met, found = True, dict[str, dict[str, Any]]()
    for chosen in _presets((preset,)):
        for name in closing.of_preset(chosen, core):
            config = chosen.cores[name]
            texts, metadata = convert(CORES[name].unit(config), f"hotrail_{name}")
            if liberty is not None:
                mapped = cells.map_cells(texts, metadata["top"], liberty, cache=build_folder() / "synth", say=aside)
                node = int(node_nm) if node_nm else None
                work = mapped.power(toggles.changes([activity])) if activity else None
                click.echo("\n".join(cells.lines(mapped, node, work, mhz)))
                found[f"{chosen.name}/{name}"] = {
                    "area_um2": mapped.area_um2, "gates": mapped.gates, "cells": mapped.cells,
                    "memory_bits": mapped.memory_bits, "memory_mm2": mapped.memory_mm2(node) if node else None,
                    "work_w": work.watts(mhz) if work else None}
                continue
            report = flow.synthesise(texts, metadata["top"], cache=build_folder() / "synth", say=aside)
            click.echo("\n".join(flow.lines(report)))
            kept = report.worst.met and report.most_chains.met
            found[f"{chosen.name}/{name}"] = {"area": report.total, "worst": report.worst,
                                              "most_chains": report.most_chains, "met": kept, "notes": report.notes}
            met = met and kept
    result(cores=found)
    sys.exit(0 if met else 1)


@main.command()
@click.argument("only", nargs=-1)
@click.option("--list", "listing", is_flag=True, help="Only names the benches.")
@JSON
def bench(only: tuple[str, ...], listing: bool) -> None:
    """Measures every figure beside its target.

    Prints them and writes build/bench.json. ONLY: names of benches; default: all. For a clone of the repository.
    """
    beside = Path(__file__).resolve().parents[1]
    if not (beside / "bench").is_dir():
        raise click.ClickException("the benches are no part of an installation: clone hotrail's repository and run "
                                   "`make bench` there")
    sys.path.append(str(beside))
    from bench import framework
    from hotrail.report import bench as report

    if listing:
        result(benches={item.name: item.about for item in framework.registered()})
        for item in framework.registered():
            click.echo(f"{item.name:12s} {item.about}")
        return
    rows = framework.run(only)
    framework.show(rows)
    folder = build_folder() / "bench"
    with together(folder, "bench") as half:
        page = report.write(rows, half)
    click.echo(f"report: {folder / page.name}")
    result(page=folder / page.name, rows=rows)
    sys.exit(0 if all(row.met is not False for row in rows) else 2)


@main.command()
@click.option("--log", multiple=True, help="Your click log, of any format; files or a folder [MovieLens-100K].")
@log_options
@click.option("--label", help="Column that is learned: 0 and 1, or cut at its mean [label, click, .., rating].")
@click.option("--samples", default=100_000, show_default=True, help="Number of samples, the log's first.")
@click.option("--dim", default=64, show_default=True, help="Values per row.")
@click.option("--rank", default=8, show_default=True, help="Rank of the tensor trains.")
@click.option("--batch", default=512, show_default=True, help="Samples per batch.")
@click.option("--device", shell_complete=device_names, default="smartssd_small", show_default=True,
              help="Name of a device, or a path that ends in .toml.")
@click.option("--preset", shell_complete=preset_names, default="tiny", show_default=True,
              help="The preset whose EMB core the card has.")
@click.option("--card", type=click.Choice(("sim", "twin")), default="sim", show_default=True,
              help="sim: the first batches run again on the Verilated core; twin: on its twin alone, which needs no "
                   "Verilator.")
@JSON
def demo(log: tuple[str, ...], how: dict[str, Any], table: tuple[str, ...], label: str | None, samples: int, dim: int,
         rank: int, batch: int, device: str, preset: str, card: str) -> None:
    """Trains a model and places it on one, two, three memories.

    A DLRM is trained on a real log. The card looks up held-out samples with its rows on the SSD, in DRAM too, and as
    tensor trains too: accuracy beside speed, bit for bit in the RTL. build/demo/index.html, build/demo/plan/index.html.
    """
    from fpga.api import demo as flow
    from hotrail.report import demo as report
    from hotrail.report import plan as report_of_plan
    from hotrail.terminal import say

    options = flow.Options(log or flow.Options.logs, table, label, samples, dim, rank, batch, device, preset, **how)
    readings = Readings()
    folder = build_folder() / "demo"
    with together(folder, "demo") as half:
        done = flow.run(options, half, rtl="sim" if card == "sim" else None, say=say, read=readings)
        page = report.write(done, half)
        report_of_plan.write(done.placements[-1].plan, done.profile, half / "plan")
    report.show(done)
    say(f"report     {folder / page.name}")
    result(page=folder / page.name, source=done.source, log=readings.log, device=done.device.name, equal=done.passed,
           fp32_auc=done.baseline, placements=[{
               "memories": each.name, "batch_s": each.batch_s, "samples_per_s": each.rate, "auc": each.auc,
               "planned_s": each.planned_s, "lookups": dict(zip(("dram", "tt", "ssd"), each.shares.tolist())),
               "tt_errors": each.errors} for each in done.placements])
    sys.exit(0 if done.passed else 1)


@main.command()
@click.argument("log", nargs=-1, type=click.Path())
@log_options
@click.option("--label", help="Column that is learned: 0 and 1, or cut at its mean [label, click, .., rating].")
@click.option("--learn", default=0.05, show_default=True, help="Share of the log that is learned from.")
@click.option("--samples", default=2000, show_default=True, help="Number of following samples to train on.")
@click.option("--batch", type=int, help="Samples of a mini-batch [what a frame holds, at most 64].")
@click.option("--columns", default=8, show_default=True, help="Embedding dimension.")
@click.option("--gpu-cycles", default=24, show_default=True, help="Cycles of the core per sample on the GPU.")
@click.option("--preset", shell_complete=preset_names, default="tiny", show_default=True,
              help="The preset whose Hotline core runs.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the report [build/hotline].")
@JSON
def hotline(log: tuple[str, ...], how: dict[str, Any], table: tuple[str, ...], label: str | None, learn: float,
            samples: int, batch: int | None, columns: int, gpu_cycles: int, preset: str, out: Path | None) -> None:
    """Dispatches LOG to a GPU model beside the simulated card.

    LOG is a click log (files or a folder; text, JSON, npz, Parquet, MELS); default: MovieLens-100K.
    """
    from fpga.api import dispatching as flow
    from hotrail.report import hotline as report
    from hotrail.terminal import say
    chosen = _presets((preset,))[0]
    config = chosen.cores.get("hotline")
    if config is None:
        raise click.ClickException(f"the preset {preset} has no [hotline]")
    options = flow.Options(log or flow.Options.logs, table, label, learn, samples, batch, columns, gpu_cycles, **how)
    readings = Readings()
    folder = out or build_folder() / "hotline"
    with together(folder, "hotline") as half:
        done = flow.run(options, config=config, say=say, read=readings)
        page = report.write(done, half)
    say("\n".join(flow.lines(done)))
    say(f"report     {folder / page.name}")
    result(page=folder / page.name, source=done.source, log=readings.log, tables=done.tables,
           samples=done.samples, batch=done.batch, hot_rows=done.hot, hot_rows_most=done.capacity,
           hot_share=done.share, best_share=done.best, popular_samples=done.popular, speedup=done.speedup)


@main.command()
@click.option("--sysfs", type=click.Path(path_type=Path), default=Path("/sys"), hidden=True)
@JSON
def cards(sysfs: Path) -> None:
    """Lists the cards in this machine.

    Each with the NVMe drive on its board; exits 1 when there is none.
    """
    from fpga.card import discover
    from hotrail import cards as report

    found, loose = discover.cards(sysfs), discover.loose(sysfs)
    click.echo(report.text(found, loose))
    result(cards=found, without_driver=loose)
    sys.exit(0 if found else 1)


@main.command()
@click.argument("core", default="emb")
@click.option("--preset", shell_complete=preset_names, help="The preset whose core it is [ecp5].")
@click.option("--board", default="ulx3s_85f", show_default=True, help="Name of a board, or a path that ends in .toml.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True,
              help="Placements to try until one is routed and meets the clock.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the files [build/ecp5/...].")
@JSON
def ecp5(core: str, preset: str | None, board: str, seeds: int, out: Path | None) -> None:
    """CORE on a board with an ECP5, by open tools.

    A bitstream by Yosys and nextpnr alone; CORE is emb, mlp, hotline, or none for the board by itself. Takes long.
    """
    from fpga.synth import ecp5 as flow
    from fpga.synth.board import EcpBoard
    from gen.rtl.board import PRESET
    if core == "none" and preset is not None:
        raise click.BadParameter("a board without a core has none", param_hint="'--preset'")
    layout = flow.make(EcpBoard.load(board), None if core == "none" else core, preset or PRESET, out=out, seeds=seeds,
                       say=click.echo)
    click.echo("\n".join(flow.lines(layout)))
    result(bitstream=layout.file, core=layout.core, seed=layout.seed, used=layout.used, fmax_mhz=layout.fmax,
           met=layout.met)


for command in (*closing.COMMANDS, *completion.COMMANDS, *example.COMMANDS, *inventory.COMMANDS,
                *packaging.COMMANDS, *papers.COMMANDS, *planning.COMMANDS, *serving.COMMANDS, *sharing.COMMANDS,
                *sizing.COMMANDS, *training_time.COMMANDS):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="hotrail")
