"""The simulated card: what its memory and drive models give, and the faults that the EMB core was put through on it."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.framework import Row, at_least, bench, figure
from fpga.card.memory import pages, rows
from gen.base.tools import environment
from gen.model.device import Device

ROOT = Path(__file__).parents[1]
DEVICE = "smartssd"
DIMS = (16, 32, 64, 128, 256, 512)
BURST_BYTES = 4096      # of a stream
FAULTS = 1500
ALONE = {4096: 0.05, 16384: 0.31}   # GB/s, one request at a time, as measured on a SmartSSD


def opened(device: Device, row_bytes: int) -> int:
    """Pages that hold the lines of a row which begins at a multiple of its size."""
    lines, place = np.arange(row_bytes // 64), np.zeros(row_bytes // 64, np.int64)
    for kind, low, width, at in device.fields():
        if kind != 3:   # a column
            place |= (lines >> low & (1 << width) - 1) << at + 8 * kind
    return len(set(place.tolist()))


def bound(device: Device, row_bytes: int, piece_bytes: int = 0) -> float:
    """Rows a second that activation window, data bus, port, refresh and bursts under way leave, in whatever order rows
    are asked for, the pieces of each one behind the other. piece_bytes: of the pieces that a row is cut into, which
    share their pages, 0 where it is one.

    A row's first burst closes another row's page and opens its own, as pages stay open; the others find theirs open.
    Answers keep the order of the requests, so those wait for the first, and what is under way are whole rows for as
    long as a first burst takes. Group machines give a command of each kind in a controller clock: from one to the next
    it is whole clocks (five for an activation, five for a precharge, as Shuhai measured).

    A refresh closes all pages: no line is read for `still` seconds. Before the first line behind it arrives the port
    is given what was under way when the last one before it was read, and nothing else.
    """
    d, c, port = device.dram, device.controller, device.port
    clock, lines_s = d.mhz * 1e6, device.kernel_mhz * 1e6
    step = d.mhz // c.mhz if c.policy == "group_machines" else 1

    def seconds(*clocks: int) -> float:
        return sum(-(-each // step) * step for each in clocks) / clock

    trp, trcd, trefi = d.clocks("trp"), d.clocks("trcd"), d.clocks("trefi") / clock
    still = (d.clocks("trtp") + trp + d.clocks("trfc") + trcd) / clock
    piece_bytes = piece_bytes or row_bytes
    lines, pages, piece_lines = row_bytes // 64, opened(device, piece_bytes), piece_bytes // 64
    found = ((port.front_cycles + port.back_cycles) / lines_s + (c.front_clocks + c.back_clocks) / (c.mhz * 1e6)
             + seconds(d.cl + d.burst_clocks))
    burst = found + (piece_lines - 1) / (c.mhz * 1e6)
    first, pieces = burst + seconds(trp, trcd), lines // piece_lines
    under_way = min(-(-port.bursts // pieces) / first, port.bursts / pieces / burst)
    awake = 1 - (trp + d.clocks("trfc")) / clock / trefi
    unasked = max(0, still + found - port.bursts * piece_lines / lines_s)
    return min(4 / seconds(d.clocks("tfaw")) / pages * awake, clock / d.burst_clocks / lines * awake,
               lines_s / lines * (1 - unasked / trefi), under_way * (1 - max(0, still - first) / trefi))


def stream_cycles(device: Device, reads: Sequence[float], written: float = 0) -> float:
    """Cycles of the kernel that streams take at least: a beat of 64 bytes a cycle on each channel of a port, and the
    memory's data bus for all of them, whatever the core does. reads: beats of each port; written: of one port.

    The controller takes lines in order, bursts of 4 KB of the ports in turn, and at most `turn_lines` of one kind while
    the other waits. A burst that follows one of another stream finds other rows in all banks: each is closed behind its
    last line and opened, four of them in tFAW, while the bus carries the last lines of the one before.
    """
    d, banks = device.dram, opened(device, BURST_BYTES)
    turn = max(0, d.clocks("trtp") + d.clocks("trp") + d.clocks("trcd") + (banks - 1) * d.clocks("tfaw") / 4
               - (2 * banks - 1) * d.burst_clocks)
    lines = BURST_BYTES // 64
    together = 2 * min(sorted(reads)[-2:]) / lines if len(reads) > 1 else 0
    kinds = 2 * min(sum(reads), written) / device.group_machines.turn_lines
    clocks = (sum(reads) + written) * d.burst_clocks + max(together, kinds) * turn
    awake = 1 - d.clocks("trfc") / d.clocks("trefi")
    return max(*reads, written, clocks / awake / d.mhz * device.kernel_mhz)


def zipf(count: int, ranks: int = 1_000_000, exponent: float = 1.05) -> NDArray[np.int64]:
    """Ranks drawn by a Zipf distribution: rows laid out by how often they are accessed."""
    total = np.cumsum(1 / np.arange(1, ranks + 1) ** exponent)
    return np.searchsorted(total / total[-1], np.random.default_rng(2).random(count))


def tuned() -> dict[str, tuple[str, Device]]:
    """The card as the experimental memory.tcl asks for it, with what is not published as assumed and as it may be."""
    asked = Device.load("smartssd_tuned")
    return {"tuned": ("a row in one page, 32 bursts under way", asked),
            "tuned.16": ("a row in one page, 32 bursts under way, 16 lines in a machine",
                         asked.replace("group_machines", depth=16))}


def variations(device: Device) -> dict[str, tuple[str, Device]]:
    """What is not published of the card's memory, and what would make it faster, each by itself."""
    paged = device.replace("controller", map="row_bank_column")
    return {
        "depth.8": ("8 lines in a group machine", device.replace("group_machines", depth=8)),
        "depth.16": ("16 lines in a group machine", device.replace("group_machines", depth=16)),
        "slots": ("two places for a column command", device.replace("group_machines", column_slots=2)),
        "bursts.32": ("32 bursts under way", device.replace("port", bursts=32)),
        "near": ("nothing between port and controller", device.replace("port", front_cycles=0, back_cycles=0)),
        "paged": ("a row in one page (row_bank_column)", paged),
        "paged.8": ("a row in one page, 8 lines in a machine", paged.replace("group_machines", depth=8)),
        "paged.16": ("a row in one page, 16 lines in a machine", paged.replace("group_machines", depth=16)),
        **tuned(),
        "frfcfs": ("the device smartssd_frfcfs", Device.load("smartssd_frfcfs")),
    }


@bench("card_ddr4")
def ddr4() -> Iterator[Row]:
    """What the card's memory gives for rows of each size and for streams, and how far each assumption moves it."""
    real = Device.load(DEVICE)
    cases = {"card.memory": ("", real)} | {f"card.variation.{name}": case for name, case in variations(real).items()}
    for name, (what, device) in cases.items():
        text = f"; {what}" if what else ""
        for dim in DIMS:
            size = 4 * dim
            count = min(8000, 480_000 // dim)
            for order, ranks in (("uniform", np.random.default_rng(1).integers(0, device.memory.bytes // size, count)),
                                 ("zipf", zipf(count))):
                limit = f"; bound {bound(device, size) / 1e6:.1f}" if order == "uniform" else ""
                yield figure(f"{name}.{order}.d{dim}", f"rows of {size} B, {order}{limit}{text}",
                             round(rows(device, ranks * size, size).rows_per_s / 1e6, 1), "M rows/s")
        for order, written in (("read", 0), ("write", 1)):
            done = rows(device, np.arange(1000) * 4096, 4096, writes=np.full(1000, written))
            yield figure(f"{name}.stream.{order}", f"one stream, {order}, bursts of 4 KB{text}",
                         round(done.rows_per_s * 4096 / 1e9, 1), "GB/s")


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
        command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-k", "emb", "tests/fpga/card/test_card_emb.py",
                   "tests/fpga/card/test_card_faults.py"]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                             env=environment() | {"HOTRAIL_FAULTS": str(path), "HOTRAIL_REGRESS": "1",
                                                    "PYTHONPATH": os.fspath(ROOT)})
        if run.returncode:
            raise RuntimeError(f"{' '.join(command[3:])} failed:\n" + run.stdout[-3000:])
        tried: dict[str, int] = json.loads(path.read_text("utf-8"))
    for kind, count in tried.items():
        name = re.sub(r"\W+", "_", kind).lower()
        yield figure(f"card.faults.{name}", f"faults tried: {kind}", count, "")
    yield at_least("card.faults", "faults tried on the EMB core, all ended with their cause and left no trace",
                   sum(tried.values()), "", FAULTS)
