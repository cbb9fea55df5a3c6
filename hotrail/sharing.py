"""The command that shares a training device's memory out between batch and cached rows, and its picture."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from gen.base.staging import together
from gen.base.tools import build_folder
from gen.data.scars import Device, Split, Traffic, optimum
from hotrail.planning import FORMAT

__all__ = ["COMMANDS"]

HEAD = ("memory", "rows cached", "of the rows accessed", "batch", "values per sample", "no row cached", "its batch",
        "gap")


@click.command()
@click.argument("log", nargs=-1, required=True)
@FORMAT
@click.option("--memory", type=click.IntRange(1), multiple=True, default=(16, 64, 256, 1024), show_default=True,
              help="MB of the device for cached rows and activations; may be given several times.")
@click.option("--dim", type=click.IntRange(1), default=64, show_default=True, help="Values per row.")
@click.option("--activations", type=click.IntRange(1), default=4800, show_default=True,
              help="FP32 values per sample on the device, with gradients; the default is Meta's DLRM for Criteo.")
@click.option("--overhead", type=click.IntRange(0), default=300_000, show_default=True,
              help="FP32 values that could be moved while a batch is started; the default is 100 us at 12 GB/s.")
@click.option("--smallest", type=click.IntRange(1), default=1, show_default=True, help="Smallest batch.")
@click.option("--largest", type=click.IntRange(1), help="Largest batch [as memory allows].")
@click.option("--sample", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True,
              help="Share of the log's samples to count.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for scars.png [build/scars].")
def scars(log: tuple[str, ...], kind: str | None, memory: tuple[int, ...], dim: int, activations: int, overhead: int,
          smallest: int, largest: int | None, sample: float, out: Path | None) -> None:
    """Divides a GPU's memory between batch and cached rows.

    The best split of a training device's memory by SCARS' formulas, proven.
    LOG is a click log (files or a folder; npz, Criteo, Avazu, Parquet, MELS, text), a saved profile, a calibration,
    mels2021 or mels2022.
    """
    from gen.data.profiling import flow
    from hotrail import plan_report
    from hotrail.terminal import say

    devices = {each: Device(each << 18, dim, activations, overhead, smallest, largest) for each in sorted(set(memory))}
    with plan_report.progress() as progress:
        profile = flow.profile_of(flow.Options(log, format=kind, sample=sample), say=say, progress=progress)
    traffic = Traffic.of([table.heat for table in profile.tables.values()], profile.samples)
    splits = {each: optimum(traffic, device) for each, device in devices.items()}
    picture = (out or build_folder() / "scars") / "scars.png"
    with together(picture.parent) as folder:
        draw(profile.source, traffic, devices, splits, folder)
    show(profile.source, traffic, devices, splits)
    say(f"picture    {picture}")


def show(source: str, traffic: Traffic, devices: dict[int, Device], splits: dict[int, Split]) -> None:
    """The splits on the terminal."""
    from hotrail.terminal import console, print_table

    dim = next(iter(devices.values())).dim
    shown = console(140)
    shown.print(f"log        {source}: {traffic.touched:,} rows accessed, {traffic.lookups:,.2f} lookups per sample, "
                  f"{traffic.lookups * (1 + dim):,.0f} values per sample without cache", soft_wrap=True)
    print_table(shown, HEAD, cells_of(traffic, devices, splits), left=0)


def cells_of(traffic: Traffic, devices: dict[int, Device], splits: dict[int, Split]) -> Iterator[Sequence[str]]:
    for megabytes, device in devices.items():
        split, alone = splits[megabytes], int(device.batch(0))
        yield (f"{megabytes:,} MB", f"{split.cached:,}", f"{split.cached / max(1, traffic.touched):.1%}",
               f"{split.batch:,}", f"{split.words:,.1f}", f"{device.words(traffic, alone, 0):,.1f}", f"{alone:,}",
               f"{split.gap:.3%}")


def draw(source: str, traffic: Traffic, devices: dict[int, Device], splits: dict[int, Split], folder: Path) -> None:
    """Writes scars.png into a folder: rows that a batch asks for, and words a sample over the share of each memory that
    is cache."""
    import matplotlib

    matplotlib.use("Agg")  # draws to files on machines without a screen
    import matplotlib.pyplot as plt

    from hotrail.report import COOL, GREEN, SOFT, WARM, styled

    path = folder / "scars.png"
    with styled():
        figure, (rows, words) = plt.subplots(1, 2, figsize=(12.5, 4.6), layout="constrained")
        largest = max(int(device.batch(0)) for device in devices.values())
        batches = np.unique(np.geomspace(1, largest, 60).astype(int))
        for share, colour in ((0.0, COOL), (0.001, GREEN), (0.01, WARM)):
            cached = int(share * traffic.touched)
            rows.plot(batches, [traffic.unique(int(batch), cached) for batch in batches], color=colour, lw=1.6,
                      label=f"besides the likeliest {share:.1%} of the rows" if share else "different rows")
        rows.plot(batches, traffic.lookups * batches, color=SOFT, lw=1, ls=":", label="lookups")
        rows.set(xscale="log", yscale="log", title="Distinct rows of a batch", xlabel="samples", ylabel="rows")
        for place, (megabytes, device) in enumerate(devices.items()):
            colour, split = (COOL, GREEN, WARM, SOFT)[place % 4], splits[megabytes]
            own = np.unique(np.linspace(device.smallest, int(device.batch(0)), 150).astype(int)).tolist()
            room = [min(traffic.touched, device.room(batch)) for batch in own]
            words.plot([100 * cached * device.dim / device.memory for cached in room],
                       [device.words(traffic, batch, cached) for batch, cached in zip(own, room)], color=colour, lw=1.6,
                       label=f"{megabytes:,} MB: {split.cached:,} rows, batch {split.batch:,}")
            words.plot([100 * split.cached * device.dim / device.memory], [split.words], "o", color=colour)
        least, most = min(split.words for split in splits.values()), max(split.words for split in splits.values())
        words.set(yscale="log", ylim=(0.7 * max(least, 1e-3), 5 * max(most, 1e-3)), title="Words moved a sample",
                  xlabel="% of the memory that is cache, the rest being the batch", ylabel="words")
        for axis in (rows, words):
            axis.legend(frameon=False, fontsize=8)
        figure.suptitle(source)
        figure.savefig(path, dpi=130, metadata={"Software": None})
        plt.close(figure)


COMMANDS = (scars,)
