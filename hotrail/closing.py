"""The commands that say whether a core's timing can close: timing and failfast."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hotrail.as_json import JSON, result
from hotrail.completion import preset_names


def of_preset(chosen: Any, core: str | None) -> tuple[str, ...]:
    """This core of a preset, or all. Raises ClickException: there is none"""
    if core and core not in chosen.cores:
        raise click.ClickException(f"preset {chosen.name} has no core {core}: it has {', '.join(chosen.cores)}")
    return (core,) if core else tuple(chosen.cores)


def _wanted(preset: str, core: str) -> tuple[str, ...]:
    """This core of a preset, or all that are kernels. Raises ClickException: there is none"""
    from fpga.vitis import flow
    from gen.rtl import config as presets

    chosen = presets.load(preset)
    names = of_preset(chosen, core) if core else tuple(flow.kernels(preset))
    if not names:
        raise click.ClickException(f"preset {chosen.name} describes no kernel: name one of its cores, "
                                   f"{', '.join(chosen.cores)}")
    return names


def _mapped(preset: str, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Preset and core, and the mapped report, of cores of a preset, as `hotrail package` maps them.

    Raises ValueError: what keeps a mapped netlist cannot be written"""
    from fpga.synth.map import synthesise
    from fpga.vitis.description import prepare
    from gen.base.tools import build_folder
    from gen.rtl import config as presets
    from gen.rtl.cores import CORES
    from gen.rtl.verilog import convert
    from hotrail.terminal import aside

    chosen = presets.load(preset)
    for name in names:
        if CORES[name].is_kernel:
            top, texts = f"hotrail_{name}", prepare(preset, name)[1]
        else:
            texts, metadata = convert(CORES[name].unit(chosen.cores[name]), f"hotrail_{name}")
            top = metadata["top"]
        report = synthesise(texts, top, cache=build_folder() / "synth", say=aside, keep=True)
        yield f"{chosen.name}/{name}", report


@click.command(short_help="Slack and worst paths of a core, estimated.")
@click.argument("preset", shell_complete=preset_names)
@click.argument("core", default="")
@JSON
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the pictures [build/<preset>/timing].")
def timing(preset: str, core: str, out: Path | None) -> None:
    """Static timing analysis of a CORE of PRESET [all that are kernels] at speed grade -2LV.

    On Yosys' netlist, with open delay tables and a coarse placement: an estimate. Prints slack, the worst paths and how
    well the delays predict routed ones; writes a picture of placement and worst paths. Minutes for the shipping cores.
    """
    from statistics import median
    from tempfile import TemporaryFile

    from fpga.synth.timing import report as timings
    from fpga.synth.timing.calibrate import calibration
    from gen.base.sealed import writing
    from gen.base.staging import staged
    from gen.base.tools import build_folder
    from gen.rtl import config as presets
    from hotrail.report import floorplan
    from hotrail.terminal import aside

    names = _wanted(preset, core)
    folder = out or build_folder() / presets.load(preset).name / "timing"
    with writing(folder):       # before minutes of work
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    told = {}
    for name, report in _mapped(preset, names):
        found = timings.timing(report, aside)
        picture = folder / f"{name.partition('/')[2]}.svg"
        told[name] = {**found.as_dict(), "picture": str(picture)}
        click.echo("\n".join(timings.lines(found)))
        with writing(picture), staged(picture) as half:
            half.write_text(floorplan.svg(found), encoding="utf-8")
        click.echo(f"  {picture}")
    quality = calibration()
    click.echo(f"delays: {quality}")
    result(cores=told, calibration={"median": quality.median, "worst": quality.worst, "bias": quality.bias,
                                    "violated_bias": median(quality.violated)})


@click.command(short_help="AMD's guidelines for a core.")
@click.argument("preset", shell_complete=preset_names)
@click.argument("core", default="")
@click.option("--platform", default="", help="A board, its .toml, or AMD's platform [smartssd].")
@JSON
def failfast(preset: str, core: str, platform: str) -> None:
    """Holds a CORE of PRESET [all that are kernels] against AMD's guidelines for timing closure.

    As report_failfast of Vivado does, with the platform's own logic in the user region, as far as its sites are known.
    """
    from fpga.synth import failfast as guides
    from fpga.synth.timing.report import netlist_of
    from gen.model.platform import find

    told, board = {}, find(platform)[0]
    for name, report in _mapped(preset, _wanted(preset, core)):
        found = [*guides.of_area(report, 1, board), *guides.of_netlist(netlist_of(report), board)]
        told[name] = {line.key: {"value": line.value, "guide": line.guide, "over": line.over} for line in found}
        click.echo("\n".join([f"{name}:", *(f"  {line}" for line in guides.lines(found))]))
    result(cores=told)


COMMANDS = (timing, failfast)
