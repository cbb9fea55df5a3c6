"""The simulated card: what its memory and drive models give, and the faults that the EMB core was put through on it."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.framework import Row, at_least, bench, figure
from fpga.card.memory import pages, random_rows, rows
from gen.base.tools import environment
from gen.model.device import Device

ROOT = Path(__file__).parents[1]
DEVICE = "smartssd"
DIMS = (16, 32, 64, 128, 256, 512)
FAULTS = 250
ALONE = {4096: 0.05, 16384: 0.31}   # GB/s, one request at a time, as measured on a SmartSSD


def bound(device: Device, row_bytes: int) -> float:
    """Rows a second that activation window, data bus, port and refresh leave, a row being in one page of a bank."""
    d = device.ddr4
    clock = d.mhz * 1e6
    awake = 1 - d.clocks("trfc") / d.clocks("trefi")
    lines = row_bytes / 64
    return min(4 * clock / d.clocks("tfaw") * awake, clock / d.burst_clocks / lines * awake,
               device.kernel_mhz * 1e6 / lines)


@bench("card_ddr4")
def ddr4() -> Iterator[Row]:
    """What the DDR4-2400 model gives for random rows of each size, against the bounds of its timing."""
    device = Device.load(DEVICE)
    for dim in DIMS:
        limit = bound(device, 4 * dim)
        done = random_rows(device, 4 * dim, count=20_000)
        yield figure(f"card.ddr4.rows.d{dim}", f"random rows of {4 * dim} B; bound {limit / 1e6:.1f}",
                     round(done.rows_per_s / 1e6, 1), "M rows/s")
    spread = device.replace("controller", map="interleaved")
    for dim in DIMS:
        done = random_rows(spread, 4 * dim, count=20_000)
        yield figure(f"card.ddr4.interleaved.d{dim}", f"the same with neighbouring lines in different banks: "
                     f"{done.counters['activates'] / 20_000:.1f} activations a row",
                     round(done.rows_per_s / 1e6, 1), "M rows/s")
    for name, item in (("row_bank_column", device), ("interleaved", spread)):
        done = rows(item, np.arange(0, 8 << 20, 64), 64)
        yield figure(f"card.ddr4.stream.{name}", f"one stream, address map {name}",
                     round(done.rows_per_s * 64 / 1e9, 1), "GB/s")


@bench("card_ssd")
def ssd() -> Iterator[Row]:
    """What the drive model gives by P2P: one request at a time, and many."""
    device = Device.load(DEVICE)
    draw = np.random.default_rng(1)
    for size, measured in ALONE.items():
        one = device.replace("ssd", queue_depth=1)
        rate = 500 * size / pages(one, draw.integers(0, 4000, 500), size) / 1e9
        yield figure(f"card.ssd.one.{size}", f"pages of {size} B, one at a time; measured {measured}", round(rate, 3),
                     "GB/s")
    for size in ALONE:
        for order, numbers in (("random", draw.integers(0, 40_000, 4000)), ("in_order", np.arange(4000))):
            rate = 4000 * size / pages(device, numbers, size, ring_pages=512) / 1e9
            yield figure(f"card.ssd.many.{size}.{order}", f"pages of {size} B {order.replace('_', ' ')}, "
                         f"{device.ssd.queue_depth} at a time; measured 3.1 to 3.2 for large reads", round(rate, 2),
                         "GB/s")


@bench("card_faults")
def faults() -> Iterator[Row]:
    """Faults that the EMB core is put through on the simulated card: all end with their cause."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "faults.json"
        command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "tests/fpga/card/test_card_emb.py"]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                             env=environment() | {"HOTRAIL_FAULTS": str(path), "PYTHONPATH": os.fspath(ROOT)})
        if run.returncode:
            raise RuntimeError("tests/fpga/card/test_card_emb.py failed:\n" + run.stdout[-3000:])
        tried: dict[str, int] = json.loads(path.read_text())
    for kind, count in tried.items():
        name = re.sub(r"\W+", "_", kind).lower()
        yield figure(f"card.faults.{name}", f"faults tried: {kind}", count, "")
    yield at_least("card.faults", "faults tried on the EMB core, all ended with their cause and left no trace",
                   sum(tried.values()), "", FAULTS)
