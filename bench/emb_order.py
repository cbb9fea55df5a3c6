"""What other orders of lookups, copies of hot rows and a second port would bring the rows of DRAM.

Cycles are those of the core, from its twin; a second port is seen by the memory alone.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bench.card import DIMS, zipf
from bench.emb import BAG, DEVICE, PRESET, Rig
from bench.framework import Row, bench, figure
from fpga.api.embedding import DRAM, Table
from fpga.card.memory import rows
from gen.model.device import Device
from gen.planner.costs import requests

ROWS, MOST_BYTES = 1 << 20, 1 << 29     # of a table
LOOKUPS, GROUP = 32_768, 4096
COPIED = 64                             # rows that have a copy in another bank

Indices = NDArray[np.int64]


def ascending(indices: Indices, group: int) -> Indices:
    """Each `group` of lookups in the order of their addresses, so that those of a page follow each other."""
    return np.sort(indices.reshape(-1, group), axis=1).ravel()


def once_ascending(indices: Indices, group: int) -> Indices:
    """The same of the rows that a group asks for once, in their own places: what the window finds stays."""
    groups = indices.reshape(-1, group).copy()
    for each in groups:
        _, inverse, counts = np.unique(each, return_inverse=True, return_counts=True)
        once = counts[inverse] == 1
        each[once] = np.sort(each[once])
    return groups.ravel()


def copied(indices: Indices, first: int) -> Indices:
    """Every second access to each of the first COPIED rows goes to its copy; first: the number of row 0's."""
    changed = indices.copy()
    for row in range(COPIED):
        changed[np.flatnonzero(indices == row)[1::2]] = first + row
    return changed


def two_ports(device: Device) -> Device:
    """A port of two beats a cycle, as long away."""
    port = device.port
    return replace(device.replace("port", front_cycles=2 * port.front_cycles, back_cycles=2 * port.back_cycles),
                   kernel_mhz=2 * device.kernel_mhz)


@bench("emb_dram_order")
def orders() -> Iterator[Row]:
    """Lookups in other orders, hot rows twice and a second port: rows of DRAM per second, beside what is built."""
    device = Device.load(DEVICE)
    for dim in DIMS:
        count = min(ROWS, MOST_BYTES // (4 * dim))
        # One further on a copy lies in another bank.
        table = Table.place(f"d{dim}", np.zeros((count + 1 + COPIED, dim), np.float32), DRAM)
        rig = Rig("ddr4", device, [table], card="twin")
        for skew, drawn in (("uniform", rig.random.integers(0, count, LOOKUPS)), ("zipf", zipf(LOOKUPS, count))):
            for name, what, indices in (
                ("", "as they come", drawn),
                (".bag", "each bag by address", ascending(drawn, BAG)),
                (".group", f"groups of {GROUP:,} by address", ascending(drawn, GROUP)),
                (".once", f"of groups of {GROUP:,} those asked for once by address", once_ascending(drawn, GROUP)),
                (".copied", f"two copies of the {COPIED} hottest rows", copied(drawn, count + 1)),
            ):
                if name == ".copied" and skew == "uniform":
                    continue
                rate = LOOKUPS // 2 / rig.steady(table.name, indices, BAG) * device.kernel_mhz
                yield figure(f"emb.dram.order.{skew}.d{dim}{name}", f"{count:,} rows of {4 * dim} B, {skew}, bags of "
                             f"{BAG}, {what}, at {device.kernel_mhz} MHz", round(rate, 1), "M rows/s")
        rig.bags.close()
        drawn = rig.random.integers(0, device.memory.bytes // (4 * dim), min(8000, 480_000 // dim))
        places, piece_bytes = requests(PRESET, 4 * dim, drawn)
        for name, what, ports in (("", "one port", device), (".ports", "two ports", two_ports(device))):
            rate = rows(ports, places, piece_bytes).rows_per_s * len(drawn) / len(places)
            yield figure(f"emb.dram.order.memory.d{dim}{name}", f"rows of {4 * dim} B, bank after bank, the memory "
                         f"by itself, {what}", round(rate / 1e6, 1), "M rows/s")
