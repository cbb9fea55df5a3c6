"""What `hotrail scars` prints, and its page."""

from pathlib import Path

import numpy as np

from gen.data.scars import Device, Split, Traffic
from hotrail.report.page import Axis, Lines, Page, Series, Table
from hotrail.terminal import console, print_table

HEAD = ("memory", "rows cached", "of the rows accessed", "batch", "values per sample", "no row cached", "its batch",
        "gap")


def show(source: str, traffic: Traffic, devices: dict[int, Device], splits: dict[int, Split]) -> None:
    """The splits on the terminal."""
    shown = console(140)
    shown.print(f"log        {_sentence(source, traffic, devices)}", soft_wrap=True)
    print_table(shown, HEAD, _cells(traffic, devices, splits), left=0)


def _sentence(source: str, traffic: Traffic, devices: dict[int, Device]) -> str:
    dim = next(iter(devices.values())).dim
    return (f"{source}: {traffic.touched:,} rows accessed, {traffic.lookups:,.2f} lookups per sample, "
            f"{traffic.lookups * (1 + dim):,.0f} values per sample without cache")


def _cells(traffic: Traffic, devices: dict[int, Device], splits: dict[int, Split]) -> list[list[str]]:
    found = []
    for megabytes, device in devices.items():
        split, alone = splits[megabytes], int(device.batch(0))
        found.append([f"{megabytes:,} MB", f"{split.cached:,}", f"{split.cached / max(1, traffic.touched):.1%}",
                      f"{split.batch:,}", f"{split.words:,.1f}", f"{device.words(traffic, alone, 0):,.1f}",
                      f"{alone:,}", f"{split.gap:.3%}"])
    return found


def write(source: str, traffic: Traffic, devices: dict[int, Device], splits: dict[int, Split], folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    return page(source, traffic, devices, splits).write(folder)


def page(source: str, traffic: Traffic, devices: dict[int, Device], splits: dict[int, Split]) -> Page:
    made = Page("hotrail scars", "A training device's memory between batch and cached rows",
                lead=f"{_sentence(source, traffic, devices)}.")
    made.add("Splits", _values(traffic, devices, splits), _rows(traffic, devices),
             Table("The best split of each memory", HEAD, _cells(traffic, devices, splits), key="memory"))
    return made


def _rows(traffic: Traffic, devices: dict[int, Device]) -> Lines:
    largest = max(int(device.batch(0)) for device in devices.values())
    batches = np.unique(np.geomspace(1, largest, 60).astype(int)).tolist()
    series = [Series(f"besides the likeliest {share:.1%} of the rows" if share else "different rows",
                     [(batch, traffic.unique(batch, int(share * traffic.touched))) for batch in batches])
              for share in (0.0, 0.001, 0.01)]
    series.append(Series("lookups", [(batch, traffic.lookups * batch) for batch in batches], "soft", "dashed"))
    return Lines("Distinct rows of a batch", "Rows that a batch of so many samples asks for, each counted once.",
                 Axis("samples", "samples", log=True), Axis("rows", "rows", log=True), series)


def _values(traffic: Traffic, devices: dict[int, Device], splits: dict[int, Split]) -> Lines:
    series, best = [], []
    for megabytes, device in devices.items():
        split = splits[megabytes]
        own = np.unique(np.linspace(device.smallest, int(device.batch(0)), 150).astype(int)).tolist()
        room = [min(traffic.touched, device.room(batch)) for batch in own]
        series.append(Series(f"{megabytes:,} MB", [(100 * cached * device.dim / device.memory,
                                                    device.words(traffic, batch, cached))
                                                   for batch, cached in zip(own, room)]))
        best.append((100 * split.cached * device.dim / device.memory, split.words))
    most = 5 * max(split.words for split in splits.values())
    return Lines("Values moved per sample", "Over the share of the memory that is cache, the rest being the batch; a "
                 "dot is the best split.", Axis("% of the memory that is cache", "%"),
                 Axis("values per sample", "values", log=True, most=max(most, 5e-3)),
                 [*series, Series("best", best, "ink", "dots")])
