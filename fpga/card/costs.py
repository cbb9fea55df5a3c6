"""What the memory models of the simulated card give the planner, with no core in the way: seconds of rows, streams and
pages.

The models are C++. costs.json holds their times for the devices and presets that come with hotrail, so that a plan
for these needs no compiler; `python -m fpga.card.costs` writes it anew. Other devices are measured when they are
planned for.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpga.card import memory
from gen.base.tools import needed
from gen.compiler.dies import geometry, over_dies
from gen.model.device import Device
from gen.model.recommender import ROW_FORMATS
from gen.planner.costs import LINE_BYTES, PACKET, Costs, requests, row_bytes
from gen.rtl import config

ROWS, STREAM, PAGES, VECTORS = 6000, 500, 4000, 500
PAGE_BYTES = 4096
#: Of so many different pages random ones hardly ever share a flash page. Fewer, a ring at least, are measured at SIZES
#: numbers of them to the doubling, each by FEW reads.
MANY, SIZES, FEW = 1 << 16, 4, 1500
#: Of a run, to its first row and from its last vector on: one bag of one row takes 1,193 on the twin.
RUN_CYCLES = 1200
UNEVEN = 1.25       # times the mean of random pages that the dies take at most for PAGES of them, as they are uneven;
                    # where pages take more than so many times what the link does, the dies decide
TABLE = Path(__file__).with_name("costs.json")


class Times(NamedTuple):
    """In seconds. row_s: of a random row, by its lines of 64 bytes; packet_s: of DRAM that a packet of the link adds
    beside such rows; read_s, write_s: of a byte of a stream; page_s: of a page of the drive among many, in the order in
    which the compiler requests them; few_s: the same by how many different ones there are, where the dies decide and
    the ring has too few pages for them to even out."""

    row_s: dict[int, float]
    packet_s: float
    read_s: float
    write_s: float
    page_s: float
    few_s: dict[int, float]


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
    times = _known(device, preset, lines, page_bytes) or _measured(device, preset, lines, page_bytes)
    # The core's port takes a beat a cycle.
    beat_s = 1 / (device.kernel_mhz * 1e6 * 4 * words)
    first_s = device.first_page_cycles(page_bytes) / (device.kernel_mhz * 1e6)
    read, write = max(times.read_s, beat_s), max(times.write_s, beat_s)
    packet, among = (each / (PACKET * LINE_BYTES) for each in (times.row_s[PACKET], times.packet_s))
    return Costs(name, _name(preset), device.kernel_mhz * 1e6, {count: times.row_s[count] for count in sorted(lines)},
                 read, write, times.page_s, first_s, page_bytes * packet, device.link.byte_s, packet, page_bytes,
                 device.memory.ring_bytes, device.memory.rows_bytes, device.ssd.bytes, max(among - packet, 0.0),
                 device.memory.channels, 1, *_dies(device, page_bytes, times.page_s),
                 few_s=times.few_s, run_s=device.between_s + RUN_CYCLES / (device.kernel_mhz * 1e6))


def _dies(device: Device, page_bytes: int, page_s: float) -> tuple[int, int, float]:
    """(dies, pages of a flash page, seconds of a die's read), as Costs has them; no seconds where pages do not wait for
    the dies, but for the queue or the channels."""
    drive = device.ssd
    dies, flash_pages, _ = geometry(drive, page_bytes)
    die_s = 1e-6 * (drive.read_us + drive.command_us)
    return dies, flash_pages, die_s if page_s < UNEVEN * die_s / dies else 0.0


def _measured(device: Device, preset: str, lines: Iterable[int], page_bytes: int) -> Times:
    """Raises RuntimeError: there is no g++"""
    needed("g++", "g++", f"the memory of the device {device.name} with the preset {preset}, which do not come with "
                         "hotrail, is simulated")
    return times(device, preset, lines, page_bytes)


def times(device: Device, preset: str, lines: Iterable[int], page_bytes: int = PAGE_BYTES) -> Times:
    """What the models give, of rows of so many lines and of a packet's.

    Raises      RuntimeError: there is no g++
    """
    read_s, write_s, page_s = _streams(device, page_bytes)
    return Times({count: _row(device, preset, count) for count in sorted({*lines, PACKET})}, _packet(device, preset),
                 read_s, write_s, page_s, _few(device, page_bytes, page_s))


def _known(device: Device, preset: str, lines: Iterable[int], page_bytes: int) -> Times | None:
    """What TABLE has of it."""
    recorded = _table()
    times = recorded["times"].get(f"{device_key(device)} {port_key(preset)}") if page_bytes == PAGE_BYTES else None
    if recorded["models"] != _models_key() or times is None:
        return None
    row_s = {count: seconds for count, seconds in enumerate(times["row_s"], 1)}
    few_s = {int(pages): seconds for pages, seconds in times["few_s"].items()}
    return Times(**{**times, "row_s": row_s, "few_s": few_s}) if {*lines, PACKET} <= row_s.keys() else None


@cache
def _table() -> dict[str, Any]:
    return json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {"models": "", "times": {}}


def _models_key() -> str:
    """What the models are made of."""
    files = [memory.SOURCES / name for name in ("direct.cpp", *memory.MODEL_SOURCES)]
    return _digest([(file.name, file.read_text("utf-8")) for file in files])


def device_key(device: Device) -> str:
    """All of a device that may decide about times."""
    return _digest([(name, value) for name, value in vars(device).items() if name not in ("name", "about", "power")])


def port_key(preset: str) -> str:
    """All of an EMB core that decides where it asks for the parts of rows."""
    core = config.load(preset).cores["emb"]
    return f"{core.beat_bytes}x{core.stripe_beats}/{core.banks}"


def _digest(what: Any) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def table(devices: Iterable[str], presets: Iterable[str]) -> dict[str, Any]:
    """The contents of TABLE: of every device with the port of every preset, rows of all lengths that it takes."""
    longest: dict[str, tuple[int, str]] = {}
    for preset in presets:
        core = config.load(preset).cores["emb"]
        lines = max(min(core.row_beats_max * core.beat_bytes, PAGE_BYTES) // LINE_BYTES, PACKET)
        longest[port_key(preset)] = max(longest.get(port_key(preset), (0, "")), (lines, preset))
    measured = {}
    for name in devices:
        device = Device.load(name)
        for port, (lines, preset) in longest.items():
            each = times(device, preset, range(1, lines + 1))
            measured[f"{device_key(device)} {port}"] = {**each._asdict(), "row_s": list(each.row_s.values())}
    return {"models": _models_key(), "times": measured}


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


def _streams(device: Device, page_bytes: int) -> tuple[float, float, float]:
    """Seconds a byte read and written one behind the other; a random page from the drive, dies in turns."""
    places = np.arange(STREAM) * page_bytes
    rates = [memory.rows(device, places, page_bytes, writes=np.full(STREAM, written)).rows_per_s
             for written in (False, True)]
    ring = max(device.memory.ring_bytes // page_bytes, 1)
    numbers, each = np.random.default_rng(1).integers(0, 1 << 16, PAGES), max(ring // 2, 1)     # of an instruction
    for start in range(0, PAGES, each):
        part = numbers[start:start + each]
        part[:] = part[over_dies(part, *geometry(device.ssd, page_bytes))]
    seconds = memory.pages(device, numbers, page_bytes, ring_pages=ring)
    return 1 / (rates[0] * page_bytes), 1 / (rates[1] * page_bytes), seconds / PAGES


def _few(device: Device, page_bytes: int, page_s: float) -> dict[int, float]:
    """Seconds of a page by how many different ones there are. An instruction brings half a ring, none of what the one
    before has brought last."""
    dies, ring, found = geometry(device.ssd, page_bytes), max(device.memory.ring_bytes // page_bytes, 1), {}
    half = max(ring // 2, 1)
    if _dies(device, page_bytes, page_s)[2] or page_s < UNEVEN * page_bytes * device.link.byte_s:
        return {}
    for size in range(SIZES * math.ceil(math.log2(MANY / ring))):
        among, random = round(ring * 2 ** (size / SIZES)), np.random.default_rng(1)
        numbers, last = [], np.zeros(0, np.int64)
        for _ in range(-(-FEW // half)):
            drawn = random.choice(among, min(half + len(last), among), replace=False)
            part = drawn[~np.isin(drawn, last)][:half]
            numbers.append(part[over_dies(part, *dies)])
            last = part[len(part) // 2:]
        found[among] = memory.pages(device, np.concatenate(numbers), page_bytes, ring_pages=ring) \
            / sum(map(len, numbers))
    return found


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(Device.names(), [name for name in config.names()
                                                       if "emb" in config.load(name).cores]), indent=1) + "\n", "utf-8")
