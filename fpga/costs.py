"""Measures what the planner reckons with: the memory models of the simulated card, with no core in the way."""

from collections.abc import Iterable

import numpy as np

from fpga.card import memory
from gen import config
from gen.costs import LINE_BYTES, Costs
from gen.device import Device

__all__ = ["RING_BYTES", "measure"]

RING_BYTES = 1 << 26
ROWS, STREAM, PAGES = 6000, 500, 4000
# Result block, program and what a batch leaves unused.
RESERVE_BYTES = 1 << 24


def measure(device: "Device | str", preset: str = "smartssd", *, dims: Iterable[int], page_bytes: int = 4096,
            ring_bytes: int = RING_BYTES) -> Costs:
    """The costs of a device with rows of `dims` words.

    Raises      ValueError: an unknown device or preset, a page size that there is not
    """
    device = Device.load(device)
    config.load(preset)
    read, write, page, landing = _streams(device, page_bytes, ring_bytes)
    rows = {lines: _row(device, lines * LINE_BYTES) for lines in sorted({-(-4 * dim // LINE_BYTES) for dim in dims})}
    return Costs(device.name, preset, device.kernel_mhz * 1e6, rows, read, write, page, landing, page_bytes,
                 ring_bytes, device.memory.bytes - ring_bytes - RESERVE_BYTES, device.ssd.bytes)


def _row(device: Device, row_bytes: int) -> float:
    return 1 / memory.random_rows(device, row_bytes, count=ROWS).rows_per_s


def _streams(device: Device, page_bytes: int, ring_bytes: int) -> tuple[float, float, float, float]:
    """Seconds a byte read and written one behind the other; a random page from the drive, and its landing."""
    places = np.arange(STREAM) * page_bytes
    rates = [memory.rows(device, places, page_bytes, writes=np.full(STREAM, written)).rows_per_s
             for written in (False, True)]
    seconds = memory.pages(device, np.random.default_rng(1).integers(0, 1 << 16, PAGES), page_bytes,
                           ring_pages=max(ring_bytes // page_bytes, 1))
    return 1 / (rates[0] * page_bytes), 1 / (rates[1] * page_bytes), seconds / PAGES, 1 / rates[1]
