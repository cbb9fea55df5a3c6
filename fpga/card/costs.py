"""Measures what the planner reckons with: the memory models of the simulated card, with no core in the way."""

from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np

from fpga.card import memory
from gen.model.device import Device
from gen.model.recommender import ROW_FORMATS
from gen.planner.costs import LINE_BYTES, PACKET, Costs, requests, row_bytes
from gen.rtl import config

__all__ = ["PAGE_BYTES", "measure"]

ROWS, STREAM, PAGES, VECTORS = 6000, 500, 4000, 500
PAGE_BYTES = 4096


def measure(device: "Device | str", preset: str = "smartssd", *, dims: Iterable[int],
            row_formats: Iterable[str] = ROW_FORMATS[:1], page_bytes: int = PAGE_BYTES) -> Costs:
    """The costs of a device with rows of `dims` words, and with slices of them, in each of the formats.

    Raises      ValueError: an unknown device or preset, a page size that there is not, rows that the core does not take
    """
    name, device = _name(device), Device.load(device)
    # Whole rows first: what cannot be is said of them.
    lines = {-(-row_bytes(preset, dim, page_bytes, form) // LINE_BYTES)
             for dim, form in product(sorted(dims), row_formats)}
    words = config.load(preset).cores["emb"].words
    widths = {dim // count for dim in dims for count in range(2, dim // words + 1) if dim % count == 0}
    lines |= {-(-row_bytes(preset, dim, page_bytes, form) // LINE_BYTES) for dim, form in product(widths, row_formats)}
    read, write, page, first = _streams(device, page_bytes)
    # The core's port takes a beat a cycle.
    beat_s = 1 / (device.kernel_mhz * 1e6 * 4 * words)
    read, write = max(read, beat_s), max(write, beat_s)
    rows = {count: _row(device, preset, count) for count in sorted(lines)}
    packet, among = (each / (PACKET * LINE_BYTES) for each in (_row(device, preset, PACKET), _packet(device, preset)))
    return Costs(name, _name(preset), device.kernel_mhz * 1e6, rows, read, write, page, first, page_bytes * packet,
                 device.link.byte_s, packet, page_bytes, device.memory.ring_bytes, device.memory.rows_bytes,
                 device.ssd.bytes, max(among - packet, 0.0))


def _name(given: "Device | str") -> str:
    """As whoever reads the plan finds it again: a name, or a whole path."""
    if isinstance(given, Device):
        return given.name
    return str(Path(given).resolve()) if given.endswith(".toml") else given


def _row(device: Device, preset: str, lines: int) -> float:
    """Seconds a random row of so many lines, as the core asks for it."""
    numbers = np.random.default_rng(1).integers(0, device.memory.bytes // (lines * LINE_BYTES), ROWS)
    places, piece_bytes = requests(preset, lines * LINE_BYTES, numbers, row_in_page=device.row_in_page)
    return len(places) / ROWS / memory.rows(device, places, piece_bytes).rows_per_s


def _packet(device: Device, preset: str) -> float:
    """Seconds of DRAM that a packet of the link adds to rows that the core reads and vectors that it writes, where as
    much goes over the link as the vectors have: the mean over widths and bags. Packets by themselves take less, since
    the data bus never turns around between them and no page closes.
    """
    packet, random, added = PACKET * LINE_BYTES, np.random.default_rng(1), []
    base = np.arange(3) * (device.memory.bytes // 4)        # of rows, of vectors, of what the link takes
    for width, pooling in product((packet << more for more in range(4)), (1, 2, 4)):
        rows, piece = requests(preset, width, random.integers(0, base[1] // width, VECTORS * pooling),
                               row_in_page=device.row_in_page)
        burst = min(piece, packet)
        read = np.add.outer(rows, np.arange(0, piece, burst)).reshape(VECTORS, -1)
        written = base[1] + np.arange(0, VECTORS * width, burst).reshape(VECTORS, -1)
        places = np.concatenate([read, written], axis=1).ravel()
        writes = np.concatenate([np.zeros_like(read), np.ones_like(written)], axis=1).ravel()
        packets = VECTORS * width // packet
        taken = base[2] + np.arange(0, packets * packet, burst)
        before = np.repeat(np.arange(packets) * places.size // packets, packet // burst)
        alone, both = (memory.rows(device, at, burst, writes=marks).cycles for at, marks in (
            (places, writes), (np.insert(places, before, taken), np.insert(writes, before, 0))))
        added.append((both - alone) / packets)
    return float(np.mean(added)) / (device.kernel_mhz * 1e6)


def _streams(device: Device, page_bytes: int) -> tuple[float, ...]:
    """Seconds a byte read and written one behind the other; a random page from the drive, and the first one."""
    places = np.arange(STREAM) * page_bytes
    rates = [memory.rows(device, places, page_bytes, writes=np.full(STREAM, written)).rows_per_s
             for written in (False, True)]
    seconds = memory.pages(device, np.random.default_rng(1).integers(0, 1 << 16, PAGES), page_bytes,
                           ring_pages=max(device.memory.ring_bytes // page_bytes, 1))
    first = memory.pages(device, np.zeros(1, np.int64), page_bytes)
    return 1 / (rates[0] * page_bytes), 1 / (rates[1] * page_bytes), seconds / PAGES, first
