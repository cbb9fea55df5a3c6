"""The command that estimates a training step on GPUs."""

from pathlib import Path
from typing import Any

import click

from gen.base.staging import check_folder, together
from gen.base.tools import build_folder
from gen.training.systems import GPUS, SYSTEMS, train_time
from gen.training.workload import DENSE
from hotrail.as_json import JSON, result
from hotrail.reading import Count, Number, Readings, log_options


@click.command("train-time")
@click.argument("log", nargs=-1, required=True, type=click.Path())
@log_options
@click.option("--gpus", type=Count(), default=1, show_default=True, help="Number of GPUs in one server.")
@click.option("--gpu", type=click.Choice(GPUS), default=GPUS[0], show_default=True, help="Whose constants are used.")
@click.option("--batch", type=Count(), default=4096, show_default=True, help="Samples per step, all GPUs.")
@click.option("--dim", type=Count(), default=64, show_default=True, help="Values per row.")
@click.option("--dense", type=Count(), default=DENSE, show_default=True,
              help="Parameters of the networks; the default is Meta's DLRM for Criteo Kaggle.")
@click.option("--hot-mb", type=Count(), default=512, show_default=True,
              help="MB of frequently accessed rows on each GPU.")
@click.option("--popular", type=Number(0, 1),
              help="Share of samples that need only those rows [by the profile, tables taken as independent].")
@click.option("--baseline", type=click.Choice(tuple(SYSTEMS)), default="hybrid", show_default=True,
              help="The system that you use now.")
@click.option("--baseline-ms", type=Number(0, min_open=True),
              help="Milliseconds that its step takes, as you measured [as estimated].")
@click.option("--sample", type=Number(0, 1, min_open=True), default=1.0, show_default=True,
              help="Share of the log's samples to count.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the page [build/train-time].")
@JSON
def train(log: tuple[str, ...], how: dict[str, Any], table: tuple[str, ...], gpus: int, gpu: str, batch: int, dim: int,
          dense: int, hot_mb: int, popular: float | None, baseline: str, baseline_ms: float | None, sample: float,
          out: Path | None) -> None:
    """Estimates a training step on LOG in seven systems.

    Bytes, step time, what binds, and the speedup over your own system, by a model fitted to published step times.
    LOG is a click log (files or a folder; text, JSON, npz, Parquet, MELS), a saved profile, a calibration,
    mels2021 or mels2022.
    """
    from gen.data.profiling import flow
    from hotrail.report import train_time as report
    from hotrail.terminal import progress, say

    folder, readings = out or build_folder() / "train-time", Readings()
    check_folder(folder, "train-time")
    with progress() as shown:
        profile = flow.profile_of(flow.Options(log, sample=sample, tables=table, **how), say=say, progress=shown,
                                  read=readings)
    of, systems = train_time(profile, gpus=gpus, gpu=gpu, batch=batch, dim=dim, hot_mb=hot_mb, dense=dense,
                             popular=popular)
    own = next(each for each in systems if each.system == baseline)
    if own.step is None and baseline_ms is None:
        raise ValueError(f"--baseline {baseline} has no step time, {own.lacks}: name another one or --baseline-ms")
    baseline_s = baseline_ms * 1e-3 if baseline_ms else own.step.seconds     # type: ignore[union-attr]
    said = report.Report(profile.source, gpu, of, systems, baseline, baseline_s, popular is not None)
    with together(folder, "train-time") as half:
        page = report.write(said, half)
    report.show(said)
    say(f"report     {folder / page.name}")
    result(page=folder / page.name, log=readings.log, source=profile.source, gpu=gpu, gpus=gpus, batch=batch, dim=dim,
           dense=dense, popular_share=of.popular, popular_most=of.popular_most, rows_per_step=of.unique,
           cold_rows_per_step=of.cold, baseline=baseline,
           baseline_s=baseline_s, systems={each.system: {
               "step_s": each.step.seconds, "samples_per_s": of.batch / each.step.seconds,
               "speedup": baseline_s / each.step.seconds, "binds": each.step.binds, "stages_s": each.step.stages,
               "pcie_bytes": each.pcie_bytes, "link_bytes": each.link_bytes} if each.step else {"lacks": each.lacks}
               for each in systems})


COMMANDS = (train,)
