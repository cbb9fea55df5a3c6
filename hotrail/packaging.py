"""The commands from a preset's core to a card: package, xo, bitstream; and to C++ for Vitis HLS."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from hotrail.as_json import JSON, result
from hotrail.completion import preset_names

_OPTIONS = (
    click.option("--platform", default="", help="A board, smartssd, u55c, u250, f2 or the path of your own .toml, or "
                 "AMD's platform by its name or its .xpfm [smartssd]."),
    click.option("--clock", type=int, help="The kernel's clock in MHz, one that the shell offers [its own]."),
    click.option("--instances", type=int, default=1, show_default=True, help="Instances of the kernel in the image."),
    click.option("--force", is_flag=True, help="Packages what the gate refuses; package.json records it."),
    click.option("--no-gate", is_flag=True, help="Skips the gate's measurement; package.json records it."),
    click.option("--experimental-memory", is_flag=True, help="Adds memory.tcl: the link asks the shell's memory for "
                 "another address map and more bursts; nobody has linked with it yet."),
    click.option("--monitors", is_flag=True, help="Adds a logic analyzer (ILA), protocol checkers and profile counters "
                 "at every AXI port; the gate does not count their area."),
    click.option("--host", multiple=True, metavar="MASTER", help="Master that is linked to the host's memory, where "
                 "the platform has HOST[0]: m01_axi of hotline, the port of the rows."),
    click.option("--out", type=click.Path(path_type=Path), help="Folder for the presets' folders [build]."),
    JSON,
)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _show(gate: Any) -> None:
    """The gate's table, and a sentence for all that it does not hold."""

    from hotrail.terminal import console, print_table

    head, rows = gate.table()
    print_table(console(100), head, rows, title=f"{gate.kernel} at {gate.clock_mhz} MHz, mapped by Yosys")
    report = gate.as_dict()
    click.echo(f"depth: LUT levels {report['levels']} of {report['levels_allowed']} allowed, carry chains "
               f"{report['chains']} of {report['chains_allowed']}; at the ports {report['port_levels']} and "
               f"{report['port_chains']}")
    for note in gate.notes:
        click.echo(f"note: {note}")
    for budget in gate.platform.shells.values():
        if budget.missing:
            click.echo(f"note: {budget.about}: {budget.missing}")


def _write(preset: str, core: str, package: Callable[[], Any]) -> Any:
    """What `package` makes, or the end of the command with the gate's reasons."""
    from fpga.vitis import flow

    try:
        written = package()
    except flow.PackageError as error:
        for reason in error.reasons:
            click.echo(f"refused: {reason}", err=True)
        click.echo(f"{preset}/{core}: nothing was packaged", err=True)
        sys.exit(1)
    for miss in written.gate.misses if written.gate else ():
        click.echo(f"forced: {miss}")
    return written


def _make(preset: str, core: str, platform: str, clock: int | None, instances: int, force: bool, no_gate: bool,
          out: Path | None, experimental_memory: bool, monitors: bool, host: tuple[str, ...],
          experimental_xo: bool = False) -> Any:
    """The package of a core, or the end of the command with the reasons."""
    from fpga.vitis import flow
    from fpga.vitis.check import untested

    package = _write(preset, core, lambda: flow.package(
        preset, core, platform=platform, clock_mhz=clock, instances=instances, out=out, force=force,
        gated=not no_gate, experimental_xo=experimental_xo, experimental_memory=experimental_memory, monitors=monitors,
        host=host, say=click.echo, measured=_show))
    click.echo(f"{preset}/{core}: package complete in {package.folder}")
    for text in untested():
        click.echo(f"note: {text}")
    return package


def _told(made: Any) -> dict[str, Any]:
    """Of a package, for JSON."""
    return {"folder": made.folder, "clock_mhz": made.clock_mhz, "instances": made.instances,
            "gate": made.gate.as_dict() if made.gate else None}


def _kernels(preset: str) -> list[str]:
    """The cores of a preset that can be packaged, one or more."""
    from fpga.vitis import flow

    kernels = flow.kernels(preset)
    if not kernels:
        raise click.ClickException(f"preset {preset} describes no kernel")
    return kernels


@click.command(short_help="Vitis packages of a preset's cores.")
@click.argument("preset", shell_complete=preset_names)
@click.argument("core", nargs=-1)
@_options
@click.option("--experimental-xo", is_flag=True, help="Adds an .xo made without Vivado; nobody has linked one yet.")
def package(preset: str, core: tuple[str, ...], **options: Any) -> None:
    """Writes the Vitis package of each CORE of PRESET [all that are kernels], build/<preset>/vitis/<core>/, unless the
    gate refuses it. With --platform f2 the custom logic for AWS' HDK, build/<preset>/f2/cl_hotrail_<core>/."""
    from fpga.vitis import hdk

    if options["platform"] == hdk.BOARD:
        _custom_logic(preset, core or _kernels(preset), options)
        return
    packages = [_make(preset, name, **options) for name in core or _kernels(preset)]
    result(packages=[_told(each) for each in packages])


def _custom_logic(preset: str, cores: Sequence[str], options: dict[str, Any]) -> None:
    from fpga.vitis import hdk

    context = click.get_current_context()
    for name in options.keys() - {"platform", "out", "force", "no_gate"}:
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.ClickException(f"--{name.replace('_', '-')} is for packages that Vitis links; the custom logic "
                                       "of F2 is without it")
    packages = [_write(preset, name, partial(hdk.package, preset, name, out=options["out"], force=options["force"],
                                         gated=not options["no_gate"], say=click.echo, measured=_show))
            for name in cores]
    for each in packages:
        click.echo(f"custom logic complete in {each.folder}")
    result(packages=[{"folder": each.folder, "gate": each.gate.as_dict() if each.gate else None} for each in packages])


@click.command(short_help="A core's package and its .xo, by Vivado.")
@click.argument("preset", shell_complete=preset_names)
@click.argument("core", default="")
@_options
def xo(preset: str, core: str, **options: Any) -> None:
    """Packages a CORE of PRESET [its first kernel] and has Vivado make its .xo,
    build/<preset>/vitis/<core>-xo/hotrail_<core>.xo."""
    _build("xo", preset, core, options)


@click.command(short_help="A core's package and its .xclbin, by Vitis.")
@click.argument("preset", shell_complete=preset_names)
@click.argument("core", default="")
@click.option("--target", type=click.Choice(("hw", "hw_emu")), default="hw", show_default=True,
              help="For the card, or for simulation on the host.")
@_options
def bitstream(preset: str, core: str, target: str, **options: Any) -> None:
    """Packages a CORE of PRESET [its first kernel] and takes it the whole way to an .xclbin,
    build/<preset>/vitis/<core>-<target>/."""
    _build(target, preset, core, options)


def _build(target: str, preset: str, core: str, options: dict[str, Any]) -> None:
    """What it takes is looked for before the minutes that the package takes."""
    from fpga.vitis import toolchain

    core = core or _kernels(preset)[0]
    tools = toolchain.find(target, options["platform"])
    if tools.missing:
        raise click.ClickException(f"{'; '.join(tools.missing)}; without it `hotrail package {preset} {core}` makes "
                                   "the package alone")
    package = _make(preset, core, **options)
    image = toolchain.build(package, tools, say=click.echo)
    click.echo(f"made {image}")
    result(package=_told(package), made=image)


@click.command(short_help="C++ of a preset's units for Vitis HLS.")
@click.argument("preset", shell_complete=preset_names)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True,
              help="Of the vectors that the C simulation plays.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the presets' folders [build].")
@JSON
def hls(preset: str, seed: int, out: Path | None) -> None:
    """Writes build/<preset>/hls/ for Vitis HLS: the units and the EMB kernel in C++, a testbench with vectors.

    `make csim` there needs a C++ compiler alone. No HLS tool has read the folder yet. See docs/hls.md.
    """
    from gen.hls.project import write

    folder = write(preset, out, seed)
    click.echo(f"{preset}: {folder}; make csim there plays the vectors")
    result(folder=folder)


COMMANDS = (package, xo, bitstream, hls)
