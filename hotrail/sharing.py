"""The command that shares a training device's memory out between batch and cached rows."""

from pathlib import Path
from typing import Any

import click

from gen.base.staging import check_folder, together
from gen.base.tools import build_folder
from gen.data.scars import Device, Traffic, optimum
from hotrail.as_json import JSON, result
from hotrail.reading import Count, Number, Readings, log_options


@click.command()
@click.argument("log", nargs=-1, required=True, type=click.Path())
@log_options
@click.option("--memory", type=Count(), multiple=True, default=(16, 64, 256, 1024), show_default=True,
              help="MB of the device for cached rows and activations; may be given several times.")
@click.option("--dim", type=Count(), default=64, show_default=True, help="Values per row.")
@click.option("--activations", type=Count(), default=4800, show_default=True,
              help="FP32 values per sample on the device, with gradients; the default is Meta's DLRM for Criteo.")
@click.option("--overhead", type=Count(0), default=300_000, show_default=True,
              help="FP32 values that could be moved while a batch is started; the default is 100 us at 12 GB/s.")
@click.option("--smallest", type=Count(), default=1, show_default=True, help="Smallest batch.")
@click.option("--largest", type=Count(), help="Largest batch [as memory allows].")
@click.option("--sample", type=Number(0, 1, min_open=True), default=1.0, show_default=True,
              help="Share of the log's samples to count.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the page [build/scars].")
@JSON
def scars(log: tuple[str, ...], how: dict[str, Any], table: tuple[str, ...], memory: tuple[int, ...], dim: int,
          activations: int, overhead: int, smallest: int, largest: int | None, sample: float, out: Path | None) -> None:
    """Divides a GPU's memory between batch and cached rows.

    The best split of a training device's memory by SCARS' formulas, proven.
    LOG is a click log (files or a folder; text, JSON, npz, Parquet, MELS), a saved profile, or counts that
    are published: criteo_kaggle, mels2021, mels2022.
    """
    from gen.data.profiling import flow
    from hotrail.report import scars as report
    from hotrail.terminal import progress, say

    devices = {each: Device(each << 18, dim, activations, overhead, smallest, largest) for each in sorted(set(memory))}
    folder, readings = out or build_folder() / "scars", Readings()
    check_folder(folder, "scars")
    with progress() as shown:
        profile = flow.profile_of(flow.Options(log, sample=sample, tables=table, **how), say=say, progress=shown,
                                  read=readings)
    traffic = Traffic.of([table.heat for table in profile.tables.values()], profile.samples)
    splits = {each: optimum(traffic, device) for each, device in devices.items()}
    with together(folder, "scars") as half:
        page = report.write(profile.source, traffic, devices, splits, half)
    report.show(profile.source, traffic, devices, splits)
    say(f"report     {folder / page.name}")
    result(page=folder / page.name, source=profile.source, rows_accessed=traffic.touched,
           lookups_per_sample=traffic.lookups, log=readings.log, memories={
               each: {"cached_rows": split.cached, "batch": split.batch, "values_per_sample": split.words,
                      "gap": split.gap} for each, split in splits.items()})


COMMANDS = (scars,)
